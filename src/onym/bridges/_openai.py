"""The OpenAI SDK's own client, set up from an `llm://` URI."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onym.bridges._extra import needs
from onym.bridges._foreign import Foreign, foreign
from onym.errors import OnymWarning
from onym.llm._connect import hide
from onym.net._trust import make_context
from onym.net.limits import TLSConfig
from onym.uri._names import PROVIDER_NAMES
from onym.uri.secret import Secret

with needs("openai", "openai"):
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, Omit, OpenAI
    from openai._models import FinalRequestOptions
    from openai._types import Headers

if TYPE_CHECKING:
    from onym.llm.config import Config
    from onym.llm.mapping import OnUnsupported
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI

__all__ = ["async_openai", "openai"]

#: the SDK insists on a key; where none is wanted its header is left out
_NO_KEY = "none"
_CHAT = "/chat/completions"


def openai(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    **options: Any,
) -> OpenAI:
    """A configured `openai.OpenAI` for the URI: base URL, key, timeout, retries, label header.

    The arguments mean what they mean for `onym.connect`; `options` go to the SDK's constructor. The URI's
    parameters, its `system` among them, are the defaults of `client.chat.completions.create`; what the call
    says goes before them, and `model=` is still the caller's to give. The key leaves its `Secret` here and is
    the client's own from now on.

    The policy is checked now, for host, port and scheme. It is the SDK that looks the name up and connects,
    so the check of each address, which Onym's own client makes, is not in force: not for URIs from outside.
    Redirects are not followed and proxy variables are not read, unless an `http_client=` of your own does so.

    Raises what `onym.connect` raises, CredentialError for a missing key, UnsupportedError for a provider that
    does not speak OpenAI's chat format, MissingExtraError without the SDK.
    """
    uri, key = hide(uri), hide(key)
    found = foreign(uri, _given(key, policy, config, providers, environ, on_unsupported))
    options.setdefault("http_client", DefaultHttpxClient(**_plain()))
    return _sync_class(found, options)(**{**_arguments(found), **options})


def async_openai(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    **options: Any,
) -> AsyncOpenAI:
    """`openai` for coroutines: a configured `openai.AsyncOpenAI`."""
    uri, key = hide(uri), hide(key)
    found = foreign(uri, _given(key, policy, config, providers, environ, on_unsupported))
    options.setdefault("http_client", DefaultAsyncHttpxClient(**_plain()))
    return _async_class(found, options)(**{**_arguments(found), **options})


def _plain() -> dict[str, Any]:
    """How the SDK's HTTP client is to be: no redirects, no proxy of the environment, Onym's own TLS."""
    # to this machine a key goes unencrypted: a proxy would read it
    return {"follow_redirects": False, "trust_env": False, "verify": make_context(TLSConfig())}


def _given(
    key: Any, policy: Any, config: Any, providers: Any, environ: Any, on_unsupported: Any
) -> dict[str, Any]:
    return {
        "key": key,
        "policy": policy,
        "config": config,
        "providers": providers,
        "environ": environ,
        "on_unsupported": on_unsupported,
    }


def _arguments(found: Foreign) -> dict[str, Any]:
    headers: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in found.headers.items()
    }
    if found.bearer is None:
        headers["Authorization"] = Omit()
    for text in found.warnings:
        warnings.warn(text, OnymWarning, stacklevel=3)
    return {
        "api_key": _NO_KEY if found.bearer is None else found.bearer.reveal(),
        "base_url": found.base_url,
        "timeout": found.timeout,
        "max_retries": found.retries,
        "default_headers": headers,
        "default_query": dict(found.query),
    }


def _sync_class(found: Foreign, options: Mapping[str, Any]) -> type[OpenAI]:
    """A class of its own, since the SDK copies a client by calling its class again."""
    pinned = _pinned(found, options)

    class OnymOpenAI(OpenAI):
        """`openai.OpenAI` with the parameters of an `llm://` URI as defaults."""

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {**super().default_headers, **pinned}

        def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
            return super()._prepare_options(_with_defaults(options, found))

        def _validate_headers(self, headers: Headers, custom_headers: Headers) -> None:
            """A server may want no key, or want it elsewhere: what it gets is settled."""

    return OnymOpenAI


def _async_class(found: Foreign, options: Mapping[str, Any]) -> type[AsyncOpenAI]:
    pinned = _pinned(found, options)

    class OnymAsyncOpenAI(AsyncOpenAI):
        """`openai.AsyncOpenAI` with the parameters of an `llm://` URI as defaults."""

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {**super().default_headers, **pinned}

        async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
            return await super()._prepare_options(_with_defaults(options, found))

        def _validate_headers(self, headers: Headers, custom_headers: Headers) -> None:
            """A server may want no key, or want it elsewhere: what it gets is settled."""

    return OnymAsyncOpenAI


def _pinned(found: Foreign, options: Mapping[str, Any]) -> dict[str, str | Omit]:
    """Headers that the SDK would fill from variables which are meant for OpenAI alone."""
    said = {"OpenAI-Organization": options.get("organization"), "OpenAI-Project": options.get("project")}
    pinned: dict[str, str | Omit] = {}
    for name, value in said.items():
        labelled = found.headers.get(name)
        pinned[name] = value or (labelled if isinstance(labelled, str) else Omit())
    return pinned


def _with_defaults(options: FinalRequestOptions, found: Foreign) -> FinalRequestOptions:
    given = options.json_data
    if options.url != _CHAT or not isinstance(given, Mapping):
        return options
    said = {PROVIDER_NAMES.get(name, name) for name in given}
    body = {name: value for name, value in found.body.items() if PROVIDER_NAMES.get(name, name) not in said}
    messages = given.get("messages")
    if found.system and isinstance(messages, list) and not any(_is_system(each) for each in messages):
        messages = [*found.system, *messages]
    return options.model_copy(update={"json_data": {**body, **given, "messages": messages}})


def _is_system(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") in ("system", "developer")
