"""Clients and call arguments for frameworks on an `llm://` URI, and LiteLLM's keyword arguments.

LiteLLM itself is not imported.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onym.bridges._sdk import require_extra
from onym.errors import OnymWarning, PolicyError, SecretError, UnsupportedError, UsageError
from onym.llm.client import AsyncClient, Client, aconnect, build_setup, connect, resolve_uri, wrap_secret
from onym.llm.config import Config
from onym.llm.convert import to_litellm
from onym.llm.credentials import hide_environment
from onym.llm.endpoint import API_PARAMETER
from onym.llm.types import Carried
from onym.net.config import NetConfig
from onym.net.connections import make_tls_context
from onym.net.limits import TLSConfig
from onym.net.policy import Policy, evaluate_policy
from onym.uri.llm import LLMURI
from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.endpoint import Endpoint
    from onym.llm.mapping import OnUnsupported
    from onym.llm.plan import Plan
    from onym.llm.providers import ProviderTable
    from onym.net.proxies import ProxyConfig

_MILLISECONDS: Final = frozenset({"timeout_ms", "timeoutMs"})
_OURS: Final = frozenset({*WELL_KNOWN, "tools", "tool_choice", "schema"})
#: other libraries' name for the tool choice "required"
_CHOICES: Final = {"any": "required", True: "required", False: "none"}


def to_overrides(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments of a framework to arguments of `Client.chat`; unknown ones go to `extra`.

    Common names are converted (`temperature`, `max_completion_tokens`, `response_format`, `stop`). `timeout`
    is in seconds. None keeps the value of the URI.
    """
    overrides: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in arguments.items():
        known = PROVIDER_NAMES.get(name, name)
        if value is None:
            continue
        if known == "format":
            overrides.update(_convert_format(value))
        elif known in _OURS:
            overrides[known] = _convert_value(known, name, value)
        elif name == "extra_body" and isinstance(value, Mapping):
            extra.update(value)
        else:
            extra[name] = value
    if not overrides.get("tools"):
        overrides.pop("tools", None)
        overrides.pop("tool_choice", None)
    if extra:
        overrides["extra"] = extra
    return overrides


def _convert_value(known: str, name: str, value: Any) -> Any:
    if known == "timeout" and name not in _MILLISECONDS and isinstance(value, int | float):
        return max(1, round(value * 1000))
    if known == "tool_choice" and isinstance(value, str | bool):
        return _CHOICES.get(value, value)
    if known == "tools":
        return list(value)
    return value


def _convert_format(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"format": value}
    kind = value.get("type")
    if kind == "json_object":
        return {"format": "json"}
    described = value.get("json_schema")
    if kind == "json_schema" and isinstance(described, Mapping):
        return {"schema": described.get("schema", {})}
    if kind == "text":
        return {"format": "text"}
    raise UsageError("response_format must have the type text, json_object or json_schema")


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return a tool call's arguments as an object, or None if the model wrote no valid object."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def encode_carried(carried: Carried | None) -> dict[str, Any] | None:
    """Return the provider's state of a turn as plain data, which a framework's message stores."""
    return None if carried is None else carried.to_record()


def decode_carried(data: Any) -> Carried | None:
    """Restore the state that `encode_carried` made; None for any other value."""
    return Carried.from_record(data)


class EndpointClient:
    """One endpoint, with the arguments of `connect`. Threads may share it.

    `repr` shows no key. A copy is the same object. Pickling drops the clients, and is an error with a key,
    with `environ` or with a configuration, because they may contain one.
    """

    __slots__ = ("__weakref__", "_async", "_lock", "_options", "_source", "_sync")
    _source: str | LLMURI

    def __init__(self, uri: str | Secret | LLMURI, **options: Any) -> None:
        uri = wrap_secret(uri)
        self._options = {name: value for name, value in options.items() if value is not None}
        del options
        if "key" in self._options:
            self._options["key"] = wrap_secret(self._options["key"])
        if "environ" in self._options:
            self._options["environ"] = hide_environment(self._options["environ"])
        self._lock = threading.Lock()
        self._async: AsyncClient | None = None
        # created now, so that errors of the URI are raised by the caller's line
        self._sync: Client | None = connect(uri, **self._options)
        if isinstance(uri, Secret):
            # the name of an endpoint in the configuration has no colon
            self._source = LLMURI.parse(uri.reveal()) if ":" in uri.reveal() else uri.reveal()
        else:
            self._source = uri

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that the URI names."""
        return self.get_sync_client().explain("…").endpoint

    @property
    def uri_text(self) -> str:
        """The URI without its key, or the name of the endpoint in the configuration."""
        return self._source if isinstance(self._source, str) else self._source.without_key().render()

    @property
    def formats(self) -> frozenset[str]:
        """The values of `format` that the provider and its API support."""
        endpoint = self.endpoint
        return endpoint.provider.formats & endpoint.dialect.formats

    def can_force_tools(self, extra: Mapping[str, Any] | None = None) -> bool:
        """Whether the model accepts that it must call a tool, in a call with these parameters."""
        plan = self.get_sync_client().explain("…", extra=extra)
        return plan.endpoint.find_choice_refusal("required", plan.body or {}) is None

    def prefers_schema(self, extra: Mapping[str, Any] | None = None) -> bool:
        """Whether typed output needs a JSON Schema, because the model cannot be forced to call a tool."""
        return "json_schema" in self.formats and not self.can_force_tools(extra)

    def get_sync_client(self) -> Client:
        """Return the client, and create it if necessary."""
        with self._lock:
            if self._sync is None:
                self._sync = connect(self._source, **self._options)
            return self._sync

    def get_async_client(self) -> AsyncClient:
        """Return the async client, and create it if necessary."""
        with self._lock:
            if self._async is None:
                self._async = aconnect(self._source, **self._options)
            return self._async

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        with self._lock:
            client, self._sync = self._sync, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of the async client too."""
        self.close()
        with self._lock:
            client, self._async = self._async, None
        if client is not None:
            await client.close()

    def __del__(self) -> None:
        client = getattr(self, "_sync", None)
        if client is not None:
            client.close()

    def __repr__(self) -> str:
        # a debugger may print an object whose constructor failed
        return f"EndpointClient({self.uri_text!r})" if hasattr(self, "_source") else "EndpointClient()"

    def __copy__(self) -> EndpointClient:
        return self

    def __deepcopy__(self, memo: object) -> EndpointClient:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._options.keys() & {"key", "environ", "config"}:
            raise SecretError(
                "an object with a key, an environment or a configuration cannot be pickled",
                code="secret.pickled",
                hint="refer to the key with ?auth=env:NAME, and pass only the URI",
            )
        options = {name: value for name, value in self._options.items() if name != "transport"}
        return _restore_client, (self._source, options)


class EndpointClientMixin:
    """Framework classes that have an EndpointClient: they take the arguments of `onym.connect`."""

    _link: EndpointClient

    def __init__(
        self,
        uri: Any = None,
        *,
        key: Any = None,
        policy: Any = None,
        network: Any = None,
        config: Any = None,
        providers: Any = None,
        environ: Mapping[str, str] | None = None,
        on_unsupported: Any = None,
        system_filter: Callable[[str], str] | None = None,
        **options: Any,
    ) -> None:
        if not uri:
            raise UsageError(f"{type(self).__name__} needs an llm:// URI or the name of an endpoint")
        # from here on no frame of a traceback contains the text with the key
        uri, key = wrap_secret(uri), wrap_secret(key)
        link = EndpointClient(
            uri, key=key, policy=policy, network=network, config=config, providers=providers,
            environ=environ, on_unsupported=on_unsupported, system_filter=system_filter,
        )  # fmt: skip
        super().__init__(**{**options, "uri": link.uri_text, "model": link.endpoint.model})
        self._link = link

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    async def aclose(self) -> None:
        """Close the connections of the async client too."""
        await self._link.aclose()


def _restore_client(source: str | LLMURI, options: dict[str, Any]) -> EndpointClient:
    return EndpointClient(source, **options)


def require_usable_endpoint(endpoint: Endpoint, network: NetConfig) -> None:
    """Raise the error of a missing key, or PolicyError for the endpoint's host, port, scheme or proxy.

    No name is resolved: the other client does that later, so the addresses are not checked.
    """
    if endpoint.unkeyed is not None:
        raise copy(endpoint.unkeyed)
    origin = endpoint.origin
    if origin is not None:
        policy = network.policy
        verdict = evaluate_policy(policy, origin.host, origin.port, scheme=origin.scheme)
        if not verdict.allowed and verdict.reason != "no-address":
            raise verdict.to_error(endpoint.text)
        if network.find_proxy(origin) is not None and not policy.allow_proxy_resolution:
            raise PolicyError(
                "the proxy would look up the name, which the policy does not allow",
                reason="proxy-resolution",
                endpoint=endpoint.text,
                hint="Use Policy.replace(allow_proxy_resolution=True) if the proxy may choose the address.",
            )


#: the value for a server that needs no key
NO_KEY: Final = "none"


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

    The result contains the key as plain text: do not print it. If no key is needed, "none" keeps LiteLLM from
    sending one from its own variables. Parameters that LiteLLM does not support raise an OnymWarning. The
    policy checks the host, port and scheme, but not the addresses, which LiteLLM looks up.

    Raises the errors of `onym.connect`, CredentialError for a missing key, and UnsupportedError for a
    provider that LiteLLM does not know.
    """
    uri, key, environ = wrap_secret(uri), wrap_secret(key), hide_environment(environ)
    config = Config.load(environ=environ) if config is None else config
    providers = config.providers if providers is None else providers
    planner, network = build_setup(
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
    require_usable_endpoint(endpoint, network)
    written = to_litellm(resolve_uri(uri, config).without_key().without_params("auth"), providers=providers)
    for note in written.notes:
        if note.where == "api_key":
            continue  # it is set below
        warnings.warn(f"not carried to LiteLLM: {note}", OnymWarning, stacklevel=2)
    if network.proxy is not None or network.tls != TLSConfig():
        message = "not carried to LiteLLM: proxy and certificates; it reads HTTPS_PROXY and SSL_CERT_FILE"
        warnings.warn(message, OnymWarning, stacklevel=2)
    arguments = dict(written.value)
    credential = endpoint.credential
    if credential is None:
        # without a key, LiteLLM would send OPENAI_API_KEY or another variable to this host
        arguments["api_key"] = NO_KEY
    elif credential.access_id is None:  # LiteLLM finds signing credentials itself
        arguments["api_key"] = credential.secret.reveal()
    return arguments


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
            hint="use onym.connect(), which supports the provider's own format",
        )
    if endpoint.is_embedded:
        from onym.llm import embedded  # late: only the embedded model needs a server process

        plan = planner.with_running_server(plan, embedded.ensure_server(endpoint.model))
        network = NetConfig(policy=Policy.local())
    require_usable_endpoint(plan.endpoint, network)
    return _build_endpoint(plan, network)


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
