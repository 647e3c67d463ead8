"""The OpenAI SDK's client, configured from an `llm://` URI.

The policy checks the endpoint, and the SDK receives the key. This module needs the SDK.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onym.bridges._sdk import require_extra
from onym.errors import OnymWarning, UnsupportedError
from onym.llm.client import build_setup, wrap_secret
from onym.net.config import NetConfig
from onym.net.connections import make_tls_context
from onym.net.limits import TLSConfig
from onym.net.messages import Origin
from onym.net.policy import Policy, evaluate_policy
from onym.uri.parameters import PROVIDER_NAMES
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.config import Config
    from onym.llm.mapping import OnUnsupported
    from onym.llm.plan import Plan
    from onym.llm.providers import ProviderTable
    from onym.uri.llm import LLMURI

_CHAT = "/chat/completions"
#: headers that every client sets itself
_OWN = frozenset({"accept", "content-type", "user-agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEndpoint:
    """The settings of another client. `headers` may contain the key, so `repr` shows neither.

    `timeout` is in seconds. `body` has the URI's parameters under their names in the API format, without
    model and messages. `warnings` are sentences about parameters that were left out.
    """

    base_url: str
    query: Mapping[str, str]
    model: str
    bearer: Secret | None = field(repr=False)
    headers: Mapping[str, str | Secret] = field(repr=False)
    timeout: float
    retries: int
    body: Mapping[str, Any]
    #: messages of the URI, before those of the caller
    system: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]


def resolve_foreign_endpoint(uri: str | Secret | LLMURI, options: Mapping[str, Any]) -> ForeignEndpoint:
    """Return the endpoint after the policy has allowed its host, port and scheme.

    No name is resolved, so the addresses are not checked. Raises the errors of `connect`, CredentialError for
    a missing key, and UnsupportedError for an API format other than OpenAI's.
    """
    arguments = {**_DEFAULTS, **{name: value for name, value in options.items() if value is not None}}
    arguments["key"] = wrap_secret(arguments["key"])
    planner, network = build_setup(wrap_secret(uri), **arguments)
    plan = planner.chat("…", {}, stream=False)
    endpoint = plan.endpoint
    if endpoint.dialect.name != "openai_chat" or not plan.target.partition("?")[0].endswith(_CHAT):
        raise UnsupportedError(
            f"{endpoint.provider.title} does not support OpenAI's chat format at this URL",
            code="bridge.not-openai",
            source=endpoint.provider.source,
            hint="use onym.connect(), which supports the provider's own format",
        )
    if endpoint.is_embedded:
        from onym.llm import embedded  # late: only the embedded model needs a server process

        plan = planner.with_running_server(plan, embedded.ensure_server(endpoint.model))
        network = NetConfig(policy=Policy.local())
    if plan.endpoint.unkeyed is not None:
        raise copy(plan.endpoint.unkeyed)
    _require_allowed(network.policy, plan)
    return _build_endpoint(plan)


_DEFAULTS: dict[str, Any] = {
    "policy": None,
    "config": None,
    "key": None,
    "providers": None,
    "environ": None,
    "on_unsupported": "error",
    "system_filter": None,
}


def _require_allowed(policy: Policy, plan: Plan) -> None:
    origin = plan.endpoint.origin
    assert isinstance(origin, Origin)  # noqa: S101 - the embedded model runs at this point
    verdict = evaluate_policy(policy, origin.host, origin.port, scheme=origin.scheme)
    # a name without addresses: the client resolves it, after this check
    if not verdict.allowed and verdict.reason != "no-address":
        raise verdict.to_error(plan.endpoint.text)


def _build_endpoint(plan: Plan) -> ForeignEndpoint:
    address, _, query = plan.url.partition("?")
    headers: dict[str, str | Secret] = {}
    bearer = None
    for name, value in plan.headers:
        if name.lower() == "authorization" and isinstance(value, Secret) and _is_bearer(value):
            bearer = Secret(value.reveal().partition(" ")[2])
        elif name.lower() not in _OWN:
            headers[name] = value
    body = {name: value for name, value in (plan.body or {}).items() if name not in ("model", "messages")}
    return ForeignEndpoint(
        base_url=address.removesuffix(_CHAT),
        query=dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair),
        model=plan.endpoint.model,
        bearer=bearer,
        headers=headers,
        timeout=plan.timeout,
        retries=plan.retries,
        body=body,
        system=tuple((plan.body or {}).get("messages", ())[:-1]),
        warnings=plan.warnings,
    )


def _is_bearer(value: Secret) -> bool:
    return value.reveal().startswith("Bearer ")


with require_extra("openai", "openai"):
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, Omit, OpenAI
    from openai._models import FinalRequestOptions
    from openai._types import Headers


#: the SDK requires a key; if none is needed, its header is left out
_NO_KEY = "none"


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
    """Return an `openai.OpenAI` client for the URI, with base URL, key, timeout, retries and label header.

    The arguments are those of `onym.connect`; `options` go to the SDK's constructor. The URI's parameters,
    including `system`, are the defaults of `client.chat.completions.create`; arguments of a call override
    them, and the caller still passes `model=`. The client stores the key as plain text.

    The policy is checked now, for host, port and scheme. The SDK resolves the name and connects, so addresses
    are not checked: do not use this function with untrusted URIs. Redirects are not followed and proxy
    variables are not read, unless your own `http_client=` does so.

    Raises the errors of `onym.connect`, CredentialError for a missing key, UnsupportedError for a provider
    without OpenAI's chat format, and MissingExtraError without the SDK.
    """
    uri, key = wrap_secret(uri), wrap_secret(key)
    found = resolve_foreign_endpoint(
        uri, _collect_options(key, policy, config, providers, environ, on_unsupported)
    )
    options.setdefault("http_client", DefaultHttpxClient(**_build_http_options()))
    return _make_sync_class(found, options)(**{**_build_client_arguments(found), **options})


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
    """Return an `openai.AsyncOpenAI` client for the URI; the arguments are those of `openai`."""
    uri, key = wrap_secret(uri), wrap_secret(key)
    found = resolve_foreign_endpoint(
        uri, _collect_options(key, policy, config, providers, environ, on_unsupported)
    )
    options.setdefault("http_client", DefaultAsyncHttpxClient(**_build_http_options()))
    return _make_async_class(found, options)(**{**_build_client_arguments(found), **options})


def _build_http_options() -> dict[str, Any]:
    """Return the options of the SDK's HTTP client: no redirects, no proxy variables, Onym's own TLS."""
    # a key to this computer is not encrypted, and a proxy would read it
    return {"follow_redirects": False, "trust_env": False, "verify": make_tls_context(TLSConfig())}


def _collect_options(
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


def _build_client_arguments(found: ForeignEndpoint) -> dict[str, Any]:
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


def _make_sync_class(found: ForeignEndpoint, options: Mapping[str, Any]) -> type[OpenAI]:
    """Define the client class in a function, because the SDK copies a client by calling its class again."""
    pinned = _build_pinned_headers(found, options)

    class OnymOpenAI(OpenAI):
        """`openai.OpenAI` with the parameters of an `llm://` URI as defaults."""

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {**super().default_headers, **pinned}

        def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
            return super()._prepare_options(_apply_defaults(options, found))

        def _validate_headers(self, headers: Headers, custom_headers: Headers) -> None:
            """Accept a server without a key, or with the key in another place."""

    return OnymOpenAI


def _make_async_class(found: ForeignEndpoint, options: Mapping[str, Any]) -> type[AsyncOpenAI]:
    pinned = _build_pinned_headers(found, options)

    class OnymAsyncOpenAI(AsyncOpenAI):
        """`openai.AsyncOpenAI` with the parameters of an `llm://` URI as defaults."""

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {**super().default_headers, **pinned}

        async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
            return await super()._prepare_options(_apply_defaults(options, found))

        def _validate_headers(self, headers: Headers, custom_headers: Headers) -> None:
            """Accept a server without a key, or with the key in another place."""

    return OnymAsyncOpenAI


def _build_pinned_headers(found: ForeignEndpoint, options: Mapping[str, Any]) -> dict[str, str | Omit]:
    """Return headers that the SDK would otherwise fill from variables meant for OpenAI."""
    said = {"OpenAI-Organization": options.get("organization"), "OpenAI-Project": options.get("project")}
    pinned: dict[str, str | Omit] = {}
    for name, value in said.items():
        labelled = found.headers.get(name)
        pinned[name] = value or (labelled if isinstance(labelled, str) else Omit())
    return pinned


def _apply_defaults(options: FinalRequestOptions, found: ForeignEndpoint) -> FinalRequestOptions:
    given = options.json_data
    if options.url != _CHAT or not isinstance(given, Mapping):
        return options
    said = {PROVIDER_NAMES.get(name, name) for name in given}
    body = {name: value for name, value in found.body.items() if PROVIDER_NAMES.get(name, name) not in said}
    messages = given.get("messages")
    if found.system and isinstance(messages, list) and not any(_is_system(message) for message in messages):
        messages = [*found.system, *messages]
    return options.model_copy(update={"json_data": {**body, **given, "messages": messages}})


def _is_system(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") in ("system", "developer")
