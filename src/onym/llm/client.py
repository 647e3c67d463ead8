"""`connect`, `aconnect` and the two clients.

Both clients drive the same flow. The response cache and telemetry wrap a call; their modules are imported
only if they are enabled.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar, get_args, overload

from onym._lazy import make_telemetry
from onym.errors import ConfigError, LLMURIError, OnymWarning, UsageError, strip_frames
from onym.llm import flow
from onym.llm._arguments import Messages, to_messages, to_texts
from onym.llm.config import PROXY, Config, NetworkSettings, parse_proxy
from onym.llm.credentials import hide_environment
from onym.llm.mapping import OnUnsupported
from onym.llm.parameters import DRAFT
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.request_headers import HeaderPairs, parse_headers
from onym.llm.types import OPERATIONS, Answer, Completion, Embeddings
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.messages import Work
from onym.net.policy import Policy
from onym.net.proxies import ProxyConfig
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.cache import ResponseCache
    from onym.llm.endpoint import Endpoint
    from onym.llm.plan import Plan
    from onym.llm.providers import ProviderTable
    from onym.llm.telemetry import CallSpan, Telemetry
    from onym.llm.types import ModelInfo
    from onym.net.messages import Flow

#: set to 1, it makes `local` the policy where the program names none
ALLOW_LOOPBACK = "ONYM_ALLOW_LOOPBACK"

_NOT_IN_KEY = re.compile("[\x00-\x20\x7f-\x9f]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class ClientSetup(NamedTuple):
    """What a client is made of."""

    planner: Planner
    network: NetConfig


def build_setup(
    uri: Secret | LLMURI,
    policy: Policy | None,
    config: Config | None,
    key: Secret | None,
    providers: ProviderTable | None,
    environ: Mapping[str, str] | None,
    on_unsupported: OnUnsupported,
    system_filter: Callable[[str], str] | None,
    network: NetConfig | None = None,
) -> ClientSetup:
    """Return the planner and the network settings for these arguments of `connect`."""
    if on_unsupported not in get_args(OnUnsupported):
        raise UsageError("on_unsupported must be error, warn or drop")
    environ = hide_environment(environ)
    config = Config.load(environ=environ) if config is None else config
    resolved = resolve_uri(uri, config)
    if key is not None:
        _require_usable_key(key)
    if policy is None:
        policy = choose_policy(config, environ) if network is None else network.policy
    network = choose_network(network, policy, environ, config.network)
    # a person who chose no proxy needs no hint about one
    chosen = network.proxy or config.network.proxy or environ.get(PROXY)
    settings = PlannerSettings(
        policy=policy,
        providers=config.providers if providers is None else providers,
        profiles=config.profiles,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
        headers=find_endpoint_headers(uri, config),
        key=key,
        find_unused_proxy=None if chosen else partial(ProxyConfig.find_variable, environ),
        tls_loopback=network.tls.loopback,
    )
    return ClientSetup(Planner(resolved, settings), network)


@overload
def wrap_secret(value: str | Secret) -> Secret: ...
@overload
def wrap_secret(value: LLMURI) -> LLMURI: ...
@overload
def wrap_secret(value: None) -> None: ...
def wrap_secret(value: str | Secret | LLMURI | None) -> Secret | LLMURI | None:
    """Return a text as a `Secret`, and other values as they are."""
    return Secret(value) if isinstance(value, str) else value


def resolve_uri(uri: Secret | LLMURI, config: Config) -> LLMURI:
    """Return the URI itself, or the one that the configuration has under this name."""
    if uri is None:  # what os.environ.get gives
        raise UsageError("the URI is None", hint="Check that the variable that you read it from is set.")
    if not isinstance(uri, Secret):
        return LLMURI.parse(uri)
    if _NAME.fullmatch(uri.reveal()) is None:
        return _parse_secret(uri)
    if uri.reveal() in config.endpoints:
        return _parse_secret(Secret(config.endpoints[uri.reveal()]))
    close = get_close_matches(uri.reveal(), list(config.endpoints), n=1)
    raise ConfigError(
        "the text is neither an llm:// URI nor the name of an endpoint in the configuration",
        code="config.no-endpoint",
        hint=f"Did you mean {close[0]}?" if close else "Write a URI such as llm://api.openai.com/gpt-5.5.",
    )


def find_endpoint_headers(uri: Secret | LLMURI, config: Config) -> HeaderPairs:
    """Return the headers that the configuration has for the endpoint of this name."""
    if not isinstance(uri, Secret) or uri.reveal() not in config.headers:
        return ()
    return parse_headers(config.headers[uri.reveal()])


def _parse_secret(text: Secret) -> LLMURI:
    try:
        return LLMURI.parse(text.reveal())
    except KeyboardInterrupt as error:
        raise strip_frames(error) from None


def _require_usable_key(key: Secret) -> None:
    """Apply the rules for a key in a URI (draft 4.2.1) to a key that the program passes."""
    # never in a variable, which tools that report errors would show
    if not key.reveal() or _NOT_IN_KEY.search(key.reveal()) is not None:
        raise LLMURIError(
            "the API key passed as key= is empty, or contains a space or a control character",
            code="llm.control-character" if key.reveal() else "llm.empty-key",
            clause=f"{DRAFT} 4.2.1",
            parameter="api-key",
            hint="Check that the variable or file that the key comes from is set and has no line end.",
        )


def choose_policy(config: Config, environ: Mapping[str, str], *, typed: bool = False) -> Policy:
    """Return the configuration's policy, or `trusted`.

    `trusted` becomes `local` if `ONYM_ALLOW_LOOPBACK=1`, or if a person has `typed` the URI. A different
    preset in the configuration stays as it is.
    """
    policy = config.policy or Policy.trusted()
    if (typed or environ.get(ALLOW_LOOPBACK) == "1") and policy.name == "trusted":
        return policy.replace(name="local", allow_loopback=True)
    return policy


def choose_network(
    network: NetConfig | None,
    policy: Policy,
    environ: Mapping[str, str],
    settings: NetworkSettings | None = None,
) -> NetConfig:
    """Return the network settings of a client, with this policy.

    The proxy is that of `network`, or else that of `ONYM_PROXY`, or else that of the configuration's
    `settings`. The TLS settings are those of `network`, or else those of `settings`. Raises UsageError
    `usage.proxy`.
    """
    network = NetConfig(policy=policy) if network is None else replace(network, policy=policy)
    if network.proxy is None:
        proxy = _find_proxy(environ, settings)
        network = network if proxy is None else replace(network, proxy=proxy)
    if settings is not None and network.tls == TLSConfig() != settings.tls:
        network = replace(network, tls=settings.tls)
    return network


def _find_proxy(environ: Mapping[str, str], settings: NetworkSettings | None) -> ProxyConfig | None:
    if environ.get(PROXY):
        return parse_proxy(Secret(environ[PROXY]), environ, PROXY)
    if settings is None or settings.proxy is None:
        return None
    proxy = parse_proxy(settings.proxy, environ, "the configuration")
    return proxy and replace(proxy, no_proxy=(*proxy.no_proxy, *settings.no_proxy))


A = TypeVar("A", bound=Answer)
T = TypeVar("T")

#: makes a call, which a span observes if there is one
Caller: TypeAlias = "Callable[[Plan, CallSpan | None], Flow[T]]"


def _load_telemetry(environ: Mapping[str, str]) -> Telemetry:
    from onym.llm.telemetry import Telemetry  # late: OpenTelemetry is an optional dependency

    return Telemetry(environ=environ)


class CallMiddleware:
    """The cache and the telemetry of one client."""

    __slots__ = ("_cache", "_environ", "telemetry")

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        cache: ResponseCache | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._environ = environ = hide_environment(environ)
        self._cache = cache
        if telemetry is None:
            telemetry = make_telemetry(partial(_load_telemetry, environ), environ)
        self.telemetry = telemetry

    def prepare_messages(self, messages: Messages) -> Messages:
        """Return the messages in a form that can be read twice, if telemetry captures them."""
        if self.telemetry is None or not self.telemetry.captures:
            return messages
        return to_messages(messages)

    def run_call(self, plan: Plan, call: Caller[A], messages: Messages | None = None) -> Flow[A]:
        """Return the answer to this plan: a cached one, or that of `call`."""
        cache, span = self._begin_call(plan, messages)
        if cache is None and span is None:
            return call(plan, None)
        return _run_wrapped(plan, call, cache, span)

    def open_stream(
        self, plan: Plan, call: Caller[flow.OpenedStream], messages: Messages | None = None
    ) -> Flow[flow.OpenedStream]:
        """Return the answer as an open stream: a cached one, or that of `call`."""
        cache, span = self._begin_call(plan, messages)
        if cache is None and span is None:
            return call(plan, None)
        return _open_wrapped(plan, call, cache, span)

    def _begin_call(
        self, plan: Plan, messages: Messages | None
    ) -> tuple[ResponseCache | None, CallSpan | None]:
        cache = self._get_cache() if _wants_cache(plan) else None
        return cache, None if self.telemetry is None else self.telemetry.begin_call(plan, messages)

    def _get_cache(self) -> ResponseCache:
        if self._cache is None:
            from onym.llm.cache import default_cache  # loads sqlite3, which only a cache needs

            self._cache = default_cache(self._environ)
        return self._cache


def _wants_cache(plan: Plan) -> bool:
    for note in plan.notes:
        if note.parameter == "cache" and note.action == "client":
            return note.value is True
    return False


def _run_wrapped(plan: Plan, call: Caller[A], cache: ResponseCache | None, span: CallSpan | None) -> Flow[A]:
    cached = cache is not None

    def call_later(waited: float) -> Flow[A]:
        nonlocal cached
        cached = False
        return call(plan.with_timeout(max(plan.timeout - waited, 0.001)) if waited else plan, span)

    with _report_errors(span):
        if cache is None:
            answer = yield from call(plan, span)
        else:
            answer = yield from cache.lookup_flow(plan, OPERATIONS[plan.operation].result, call_later)
        if span is not None:
            span.cached = cached
            span.record_answer(answer)
        return answer


def _open_wrapped(
    plan: Plan, call: Caller[flow.OpenedStream], cache: ResponseCache | None, span: CallSpan | None
) -> Flow[flow.OpenedStream]:
    with _report_errors(span):
        replay = None if cache is None else (yield Work(lambda: cache.open_replay(plan)))
        opened: flow.OpenedStream = (yield from call(plan, span)) if replay is None else replay
    if span is not None and replay is not None:
        span.cached = True
    if cache is not None and replay is None:
        opened = cache.record_stream(plan, opened)
    return _observe_stream(opened, span)


@contextmanager
def _report_errors(span: CallSpan | None) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if span is not None:
            span.record_error(error)
        raise


def _watch_flow(flow: Flow[T], span: CallSpan | None) -> Flow[T]:
    return flow if span is None else span.watch_flow(flow)


def _observe_stream(opened: flow.OpenedStream, span: CallSpan | None) -> flow.OpenedStream:
    return opened if span is None else flow.attach_listener(opened, span)


def connect(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    network: NetConfig | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    system_filter: Callable[[str], str] | None = None,
    transport: Transport | None = None,
    cache: ResponseCache | None = None,
    telemetry: Telemetry | None = None,
) -> Client:
    """Return a client for the model of a URI or of an endpoint in the configuration file.

    Nothing is sent yet. `key` takes precedence over other credentials. `policy` sets the hosts that the URI
    may reach: by default the configuration's policy, else `Policy.trusted()`, which rejects loopback
    addresses unless `ONYM_ALLOW_LOOPBACK=1` is set. `network` sets certificate authorities, limits
    and more; its policy applies unless you pass `policy` too. `config` defaults to the user's file,
    `environ` to `os.environ`. `on_unsupported` is "error", "warn" or "drop", for parameters that the
    model does not support. `system_filter` gets a URI's `system` and returns the text to send. The client
    does not close a `transport` that you pass. `cache` is for calls with `cache=true`, by default the user's
    cache. `telemetry` reports calls; without it, `ONYM_TELEMETRY=1` enables telemetry.

    Raises URIError, ConfigError, CredentialError, UnsupportedError, ParameterError or PolicyError.
    """
    # from here on no frame of a traceback holds the text, which holds the key, or the environment
    uri, key, environ = wrap_secret(uri), wrap_secret(key), hide_environment(environ)
    setup = build_setup(uri, policy, config, key, providers, environ, on_unsupported, system_filter, network)
    return Client(setup, transport, CallMiddleware(environ, cache, telemetry))


def aconnect(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    network: NetConfig | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    system_filter: Callable[[str], str] | None = None,
    transport: AsyncTransport | None = None,
    cache: ResponseCache | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncClient:
    """The async version of `connect`, with the same arguments. Do not await it; use `async with`."""
    # from here on no frame of a traceback holds the text, which holds the key, or the environment
    uri, key, environ = wrap_secret(uri), wrap_secret(key), hide_environment(environ)
    setup = build_setup(uri, policy, config, key, providers, environ, on_unsupported, system_filter, network)
    return AsyncClient(setup, transport, CallMiddleware(environ, cache, telemetry))


class _BaseClient:
    """The calls of both clients, as flows."""

    def __init__(self, setup: ClientSetup, extras: CallMiddleware | None) -> None:
        self._planner = setup.planner
        self._network = setup.network
        self._extras = extras or CallMiddleware()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._planner.endpoint.text!r})"

    @property
    def endpoint(self) -> Endpoint:
        """The provider's row, the model and the profile. Its text contains no key."""
        return self._planner.endpoint

    def explain(self, messages: Messages = "…", *, streaming: bool = False, **overrides: Any) -> Plan:
        """Return what `chat` (or `stream`, with `streaming=True`) would send. Sends nothing."""
        return self._planner.chat(messages, overrides, stream=True if streaming else None)

    @property
    def _transport_config(self) -> NetConfig:
        # the embedded model listens on loopback, which only this client's own choice of it allows
        return NetConfig(policy=Policy.local()) if self._planner.endpoint.is_embedded else self._network

    def _plan_chat(
        self, messages: Messages, overrides: Mapping[str, Any], *, stream: bool | None = None
    ) -> tuple[Plan, Messages]:
        messages = self._extras.prepare_messages(messages)
        plan = self._planner.chat(messages, overrides, stream=stream)
        return _emit_warnings(plan), messages

    def _chat_flow(self, plan: Plan, messages: Messages) -> Flow[Completion]:
        return self._extras.run_call(plan, self._send_chat, messages)

    def _stream_flow(self, plan: Plan, messages: Messages) -> Flow[flow.OpenedStream]:
        return self._extras.open_stream(plan, self._open_stream, messages)

    def _embed_flow(self, texts: str | Iterable[str], overrides: Mapping[str, Any]) -> Flow[Embeddings]:
        inputs = to_texts(texts)
        plan = self._planner.plan_inputs("embed", inputs, overrides, expected=len(inputs))
        return self._extras.run_call(_emit_warnings(plan), self._send)

    def _models_flow(self, overrides: Mapping[str, Any]) -> Flow[tuple[ModelInfo, ...]]:
        return self._prepare_flow(_emit_warnings(self._planner.models(overrides)), flow.models_flow)

    def _model_flow(self, overrides: Mapping[str, Any]) -> Flow[ModelInfo]:
        return self._prepare_flow(_emit_warnings(self._planner.model(overrides)), flow.model_flow)

    def _send(self, plan: Plan, span: CallSpan | None) -> Flow[Any]:
        return self._prepare_flow(plan, lambda plan: _watch_flow(flow.call_flow(plan), span))

    def _open_stream(self, plan: Plan, span: CallSpan | None) -> Flow[flow.OpenedStream]:
        return self._prepare_flow(plan, lambda plan: _watch_flow(flow.stream_flow(plan), span))

    def _send_chat(self, plan: Plan, span: CallSpan | None) -> Flow[Completion]:
        return self._collect_stream(plan, span) if plan.stream else self._send(plan, span)

    def _collect_stream(self, plan: Plan, span: CallSpan | None) -> Flow[Completion]:
        opened = _observe_stream((yield from self._open_stream(plan, span)), span)
        model, endpoint = plan.endpoint.model, plan.endpoint.text

        def read() -> Completion:
            with flow.Stream(opened, model, endpoint) as stream:
                return stream.completion()

        async def aread() -> Completion:
            async def get_opened() -> flow.OpenedStream:
                return opened

            async with flow.AsyncStream(get_opened, model, endpoint) as stream:
                return await stream.completion()

        completion: Completion = yield Work(read, aread)
        return completion

    def _prepare_flow(self, plan: Plan, send: Callable[[Plan], Flow[T]]) -> Flow[T]:
        """Send the plan with a current credential, to a server that runs."""
        if plan.expires is None and not plan.endpoint.is_embedded:
            return send(plan)
        return self._refresh_and_send(plan, send)

    def _refresh_and_send(self, plan: Plan, send: Callable[[Plan], Flow[T]]) -> Flow[T]:
        if plan.expires is not None and self._planner.is_credential_stale(time.time()):
            plan = yield Work(partial(self._planner.with_renewed_credential, plan))
        elif plan.endpoint.is_embedded:
            from onym.llm import embedded  # subprocess and more, which other endpoints do not need

            # starting a server takes a second
            running = yield Work(partial(embedded.ensure_server, plan.endpoint.model))
            plan = self._planner.with_running_server(plan, running)
        return (yield from send(plan))


class Client(_BaseClient):
    """A synchronous client for one model. Threads can share it; close it, or use it in a `with` statement."""

    def __init__(
        self, setup: ClientSetup, transport: Transport | None = None, extras: CallMiddleware | None = None
    ) -> None:
        super().__init__(setup, extras)
        self._own = transport is None
        self._transport = Transport(self._transport_config) if transport is None else transport

    def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """Send a text or messages and return the answer.

        `overrides` are the well-known parameters (`temp=`, `max_tokens=`, `timeout=` in ms, …), which take
        precedence over the URI's, and `tools=`, `tool_choice=`, `schema=`, `extra=`. `headers=` are sent
        besides Onym's own. With `stream=true` in the URI, the answer is streamed and put together here; its
        `raw` is empty then. `idle_timeout=` in ms ends a stream that falls silent for so long, also between
        two events; every byte counts, comments of the server too.

        Raises UsageError for an unknown argument, ParameterError or UnsupportedError for a value that is
        not supported, CredentialError for a missing key, NetError or ProviderError.
        """
        plan, messages = self._plan_chat(messages, overrides)
        return run_flow(self._chat_flow(plan, messages), self._transport)

    def stream(self, messages: Messages, **overrides: Any) -> flow.Stream:
        """Send a text or messages and return the answer as events. Use it in a `with` statement."""
        plan, messages = self._plan_chat(messages, overrides, stream=True)
        opened = run_flow(self._stream_flow(plan, messages), self._transport)
        return flow.Stream(opened, plan.endpoint.model, plan.endpoint.text)

    def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """Return one vector per text. Accepts `dimensions=`, `timeout=`, `retries=` and `extra=`."""
        return run_flow(self._embed_flow(texts, overrides), self._transport)

    def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """Return the server's list of models. Accepts `timeout=` and `retries=`."""
        return run_flow(self._models_flow(overrides), self._transport)

    def model(self, **overrides: Any) -> ModelInfo:
        """Return what the server reports about this URI's model: its context window and more.

        Raises NotFoundError if the server does not know the model.
        """
        return run_flow(self._model_flow(overrides), self._transport)

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_BaseClient):
    """`Client` for coroutines, for one event loop and any number of concurrent calls."""

    def __init__(
        self,
        setup: ClientSetup,
        transport: AsyncTransport | None = None,
        extras: CallMiddleware | None = None,
    ) -> None:
        super().__init__(setup, extras)
        self._own = transport is None
        self._transport = AsyncTransport(self._transport_config) if transport is None else transport

    async def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """The async version of `Client.chat`."""
        plan, messages = self._plan_chat(messages, overrides)
        return await arun_flow(self._chat_flow(plan, messages), self._transport)

    def stream(self, messages: Messages, **overrides: Any) -> flow.AsyncStream:
        """The async version of `Client.stream`: `async with client.stream(…) as events`."""
        plan, messages = self._plan_chat(messages, overrides, stream=True)

        def open_later() -> Awaitable[flow.OpenedStream]:
            return arun_flow(self._stream_flow(plan, messages), self._transport)

        return flow.AsyncStream(open_later, plan.endpoint.model, plan.endpoint.text)

    async def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """The async version of `Client.embed`."""
        return await arun_flow(self._embed_flow(texts, overrides), self._transport)

    async def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """The async version of `Client.models`."""
        return await arun_flow(self._models_flow(overrides), self._transport)

    async def model(self, **overrides: Any) -> ModelInfo:
        """The async version of `Client.model`."""
        return await arun_flow(self._model_flow(overrides), self._transport)

    async def close(self) -> None:
        """Close the connections."""
        if self._own:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _emit_warnings(plan: Plan) -> Plan:
    """Warn the caller of the client's method, three frames above, and return the plan."""
    for text in plan.warnings:
        warnings.warn(text, OnymWarning, stacklevel=4)
    return plan
