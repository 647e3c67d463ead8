"""What `connect` and `aconnect` share: from what a person passes to a planner and a policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, get_args, overload

from onym.errors import ConfigError, UsageError
from onym.llm._environ import variables
from onym.llm.config import Config
from onym.llm.mapping import OnUnsupported
from onym.llm.plan import Planner, Settings
from onym.net.policy import Policy
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import ProviderTable

__all__ = ["ALLOW_LOOPBACK", "Settled", "find_uri", "hide", "settle"]

#: set to 1, it makes `local` the policy where the program names none
ALLOW_LOOPBACK = "ONYM_ALLOW_LOOPBACK"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Settled(NamedTuple):
    """What a client is made of."""

    planner: Planner
    policy: Policy


def settle(
    uri: Secret | LLMURI,
    *,
    policy: Policy | None,
    config: Config | None,
    key: Secret | None,
    providers: ProviderTable | None,
    environ: Mapping[str, str] | None,
    on_unsupported: OnUnsupported,
    system_filter: Callable[[str], str] | None,
) -> Settled:
    """The planner and the policy behind these arguments."""
    if on_unsupported not in get_args(OnUnsupported):
        raise UsageError("on_unsupported is error, warn or drop")
    # no frame of a traceback shows what it holds
    environ = variables(environ)
    config = Config.load(environ=environ) if config is None else config
    found = find_uri(uri, config)
    if key is not None:
        found = found.with_key(key)
    policy = _policy(config, environ) if policy is None else policy
    settings = Settings(
        policy=policy,
        providers=config.providers if providers is None else providers,
        profiles=config.profiles,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
        key_given="userinfo" if key is None else "argument",
    )
    return Settled(Planner(found, settings), policy)


@overload
def hide(given: str | Secret) -> Secret: ...
@overload
def hide(given: LLMURI) -> LLMURI: ...
@overload
def hide(given: None) -> None: ...
def hide(given: str | Secret | LLMURI | None) -> Secret | LLMURI | None:
    """A text as a `Secret`, everything else as it is."""
    return Secret(given) if isinstance(given, str) else given


def find_uri(uri: Secret | LLMURI, config: Config) -> LLMURI:
    """The URI itself, or the one that the configuration has under this name."""
    if uri is None:  # what os.environ.get gives
        raise UsageError(
            "there is no URI to connect to: it is None", hint="is the variable that holds it set?"
        )
    if not isinstance(uri, Secret):
        return LLMURI.parse(uri)
    if _NAME.fullmatch(uri.reveal()) is None:
        return LLMURI.parse(uri.reveal())
    known = config.endpoints.get(uri.reveal())
    if known is not None:
        return LLMURI.parse(known)
    close = get_close_matches(uri.reveal(), list(config.endpoints), n=1)
    raise ConfigError(
        "the configuration has no endpoint of that name",
        code="config.no-endpoint",
        hint=f"did you mean {close[0]}?" if close else "a URI looks like llm://api.openai.com/gpt-5",
    )


def _policy(config: Config, environ: Mapping[str, str]) -> Policy:
    policy = config.policy or Policy.trusted()
    if environ.get(ALLOW_LOOPBACK) == "1" and policy.name == "trusted":
        return policy.replace(name="local", allow_loopback=True)
    return policy
