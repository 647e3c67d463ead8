"""The OpenAI SDK's client, configured from an `llm://` URI.

The policy checks the endpoint, and the SDK receives the key. This module needs the SDK.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onym.bridges._llm_client import NO_KEY, require_usable_endpoint
from onym.bridges._sdk import require_extra
from onym.errors import OnymWarning, UnsupportedError
from onym.llm.client import build_setup, resolve_uri, wrap_secret
from onym.llm.config import Config
from onym.llm.endpoint import API_PARAMETER
from onym.net.config import NetConfig
from onym.net.connections import make_tls_context
from onym.net.policy import Policy
from onym.uri.parameters import PROVIDER_NAMES
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.mapping import OnUnsupported
    from onym.llm.plan import Plan
    from onym.llm.providers import Provider, ProviderTable
    from onym.net.limits import TLSConfig
    from onym.net.proxies import ProxyConfig
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
    proxy: ProxyConfig | None
    tls: TLSConfig


def resolve_foreign_endpoint(uri: Secret | LLMURI, **options: Any) -> ForeignEndpoint:
    """Return the endpoint after the policy has allowed its host, port and scheme.

    No name is resolved, so the addresses are not checked. Raises the errors of `connect`, CredentialError for
    a missing key, and UnsupportedError for an API format other than OpenAI's.
    """
    planner, network = build_setup(uri, system_filter=None, **options)
    if any(
        used.parameter == API_PARAMETER and used.origin == "default" for used in planner.endpoint.place.used
    ):
        # the SDK's chat completions are what the caller uses, also with a model that has another API too
        uri = resolve_uri(uri, options["config"] or Config.load(environ=options["environ"]))
        planner, network = build_setup(uri.with_params(api="chat"), system_filter=None, **options)
    plan = planner.chat("…", {}, stream=False)
    endpoint = plan.endpoint
    if endpoint.dialect.name != "openai_chat" or not plan.target.partition("?")[0].endswith(_CHAT):
        raise UnsupportedError(
            f"{endpoint.provider.title} does not support OpenAI's chat format at this URL",
            code="bridge.not-openai",
            source=endpoint.provider.source,
            hint=_describe_way_out(endpoint.provider),
        )
    if endpoint.is_embedded:
        from onym.llm import embedded  # late: only the embedded model needs a server process

        plan = planner.with_running_server(plan, embedded.ensure_server(endpoint.model))
        network = NetConfig(policy=Policy.local())
    require_usable_endpoint(plan.endpoint, network)
    return _build_endpoint(plan, network)


def _describe_way_out(provider: Provider) -> str:
    api = provider.apis.get("chat")
    if api is not None and api.dialect == "openai_chat":
        return "add api=chat to the URI, or use onym.connect(), which supports the provider's own format"
    return "use onym.connect(), which supports the provider's own format"


def _build_endpoint(plan: Plan, network: NetConfig) -> ForeignEndpoint:
    address, _, query = plan.url.partition("?")
    headers: dict[str, str | Secret] = {}
    bearer = None
    for name, value in plan.headers:
        scheme, _, token = value.reveal().partition(" ") if isinstance(value, Secret) else ("", "", "")
        if name.lower() == "authorization" and scheme == "Bearer":
            bearer = Secret(token)
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
        proxy=None if plan.origin is None else network.find_proxy(plan.origin),
        tls=network.tls,
    )


with require_extra("openai", "openai"):
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, Omit, OpenAI
    from openai._models import FinalRequestOptions
    from openai._types import Headers


def openai(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    network: NetConfig | None = None,
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
    are not checked: do not use this function with untrusted URIs. Redirects are not followed. The SDK uses
    the proxy and the certificates of `network`, or else of `ONYM_PROXY` and the configuration; other proxy
    variables are not read, unless your own `http_client=` does so.

    Raises the errors of `onym.connect`, CredentialError for a missing key, UnsupportedError for a provider
    without OpenAI's chat format, and MissingExtraError without the SDK.
    """
    uri, key = wrap_secret(uri), wrap_secret(key)
    endpoint = resolve_foreign_endpoint(
        uri, key=key, policy=policy, network=network, config=config, providers=providers,
        environ=environ, on_unsupported=on_unsupported,
    )  # fmt: skip
    client: OpenAI = _make_client(OpenAI, DefaultHttpxClient, endpoint, options)
    return client


def async_openai(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    network: NetConfig | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    **options: Any,
) -> AsyncOpenAI:
    """Return an `openai.AsyncOpenAI` client for the URI; the arguments are those of `openai`."""
    uri, key = wrap_secret(uri), wrap_secret(key)
    endpoint = resolve_foreign_endpoint(
        uri, key=key, policy=policy, network=network, config=config, providers=providers,
        environ=environ, on_unsupported=on_unsupported,
    )  # fmt: skip
    client: AsyncOpenAI = _make_client(AsyncOpenAI, DefaultAsyncHttpxClient, endpoint, options)
    return client


def _make_client(base: Any, http_client: Any, endpoint: ForeignEndpoint, options: dict[str, Any]) -> Any:
    """Return a client of a class made from `base`: the SDK copies a client by calling its class again."""
    pinned = _build_pinned_headers(endpoint, options)

    class OnymOpenAI(base):  # type: ignore[misc]
        """The SDK's client with the parameters of an `llm://` URI as defaults."""

        @property
        def default_headers(self) -> dict[str, str | Omit]:
            return {**super().default_headers, **pinned}

        def _prepare_options(self, options: FinalRequestOptions) -> Any:
            # the async client's method returns an awaitable
            return super()._prepare_options(_apply_defaults(options, endpoint))

        def _validate_headers(self, headers: Headers, custom_headers: Headers) -> None:
            """Accept a server without a key, or with the key in another place."""

    if "http_client" not in options:
        # a key to this computer is not encrypted, and a proxy would read it
        options["http_client"] = http_client(
            follow_redirects=False,
            trust_env=False,
            verify=make_tls_context(endpoint.tls),
            proxy=_build_proxy(endpoint.proxy),
        )
    return OnymOpenAI(**{**_build_client_arguments(endpoint), **options})


def _build_proxy(proxy: ProxyConfig | None) -> Any:
    """Return the proxy for httpx, which the SDK uses. Raises UnsupportedError for SOCKS."""
    if proxy is None:
        return None
    if proxy.scheme.startswith("socks"):
        raise UnsupportedError(
            "the OpenAI SDK gets no SOCKS proxy from Onym",
            code="bridge.no-socks",
            hint="use an http proxy, pass http_client= of your own, or call onym.connect()",
        )
    from httpx import Proxy  # late: the SDK's own dependency

    login = None
    if proxy.username is not None:
        login = (proxy.username.reveal(), "" if proxy.password is None else proxy.password.reveal())
    return Proxy(proxy.text, auth=login)


def _build_client_arguments(endpoint: ForeignEndpoint) -> dict[str, Any]:
    headers: dict[str, Any] = {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in endpoint.headers.items()
    }
    if endpoint.bearer is None:
        headers["Authorization"] = Omit()
    for text in endpoint.warnings:
        warnings.warn(text, OnymWarning, stacklevel=4)
    return {
        # the SDK requires a key; if none is needed, its header is left out
        "api_key": NO_KEY if endpoint.bearer is None else endpoint.bearer.reveal(),
        "base_url": endpoint.base_url,
        "timeout": endpoint.timeout,
        "max_retries": endpoint.retries,
        "default_headers": headers,
        "default_query": dict(endpoint.query),
    }


def _build_pinned_headers(endpoint: ForeignEndpoint, options: Mapping[str, Any]) -> dict[str, str | Omit]:
    """Return headers that the SDK would otherwise fill from variables meant for OpenAI."""
    pinned: dict[str, str | Omit] = {}
    for name, option in (("OpenAI-Organization", "organization"), ("OpenAI-Project", "project")):
        label = endpoint.headers.get(name)
        pinned[name] = options.get(option) or (label if isinstance(label, str) else Omit())
    return pinned


def _apply_defaults(options: FinalRequestOptions, endpoint: ForeignEndpoint) -> FinalRequestOptions:
    arguments = options.json_data
    if options.url != _CHAT or not isinstance(arguments, Mapping):
        return options
    known = {PROVIDER_NAMES.get(name, name) for name in arguments}
    defaults = {
        name: value for name, value in endpoint.body.items() if PROVIDER_NAMES.get(name, name) not in known
    }
    messages = arguments.get("messages")
    if endpoint.system and isinstance(messages, list) and not any(map(_is_system_message, messages)):
        messages = [*endpoint.system, *messages]
    return options.model_copy(update={"json_data": {**defaults, **arguments, "messages": messages}})


def _is_system_message(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") in ("system", "developer")
