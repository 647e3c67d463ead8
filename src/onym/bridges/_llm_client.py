"""Clients and call arguments for frameworks on an `llm://` URI, and LiteLLM's keyword arguments.

LiteLLM itself is not imported.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from onym.errors import OnymWarning, PolicyError, SecretError, UsageError
from onym.llm.client import AsyncClient, Client, aconnect, build_setup, connect, resolve_uri, wrap_secret
from onym.llm.config import Config
from onym.llm.convert import to_litellm
from onym.llm.credentials import hide_environment
from onym.llm.types import Carried
from onym.net.limits import TLSConfig
from onym.net.policy import evaluate_policy
from onym.uri.llm import LLMURI
from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.endpoint import Endpoint
    from onym.llm.providers import ProviderTable
    from onym.net.config import NetConfig
    from onym.net.policy import Policy

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
