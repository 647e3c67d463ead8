"""An `llm://` URI as the keyword arguments of LiteLLM's `completion`. LiteLLM itself is not imported."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onym.errors import CredentialError, OnymWarning
from onym.llm._connect import find_uri, hide, settle
from onym.llm.config import Config
from onym.llm.convert import to_litellm
from onym.net.policy import decide

if TYPE_CHECKING:
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = ["litellm_kwargs"]

#: what a server that wants no key is sent
_NO_KEY = "none"


def litellm_kwargs(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`litellm.completion(**litellm_kwargs(uri), messages=…)`: model, api_base, api_key, parameters.

    The key is in the result as plain text, so the result is not to be printed; where none is wanted, "none"
    keeps LiteLLM from sending one that its own variables hold. What LiteLLM has no argument for earns an
    OnymWarning. The policy is checked for host, port and scheme; addresses are LiteLLM's to
    find.

    Raises what `onym.connect` raises, CredentialError for a missing key, UnsupportedError for a provider that
    LiteLLM has no word for.
    """
    uri, key = hide(uri), hide(key)
    config = Config.load(environ=environ) if config is None else config
    providers = config.providers if providers is None else providers
    planner, allowed = settle(
        uri,
        policy=policy,
        config=config,
        key=key,
        providers=providers,
        environ=environ,
        on_unsupported="error",
        system_filter=None,
    )
    endpoint = planner.endpoint
    if endpoint.unkeyed is not None:
        raise CredentialError(
            endpoint.unkeyed.message, code=endpoint.unkeyed.code, hint=endpoint.unkeyed.hint
        )
    origin = endpoint.origin
    if origin is not None:
        verdict = decide(allowed, origin.host, origin.port, scheme=origin.scheme)
        if not verdict.allowed and verdict.reason != "no-address":
            raise verdict.error(endpoint.text)
    written = to_litellm(find_uri(uri, config).without_key().without_params("auth"), providers=providers)
    for note in written.notes:
        if note.where == "api_key":
            continue  # there is one, below
        warnings.warn(f"not carried to LiteLLM: {note}", OnymWarning, stacklevel=2)
    found = dict(written.value)
    credential = endpoint.credential
    if credential is None:
        # without one, LiteLLM would send OPENAI_API_KEY or another variable of its own to this host
        found["api_key"] = _NO_KEY
    elif credential.access_id is None:  # what signs requests is for LiteLLM to find by itself
        found["api_key"] = credential.secret.reveal()
    return found
