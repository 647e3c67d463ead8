"""`connect`, `aconnect` and the two clients.

Both clients drive the same flow. The response cache and telemetry wrap a call; their modules are imported
only if they are enabled.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar, get_args, overload

from onym.errors import ConfigError, LLMURIError, OnymWarning, UsageError
from onym.llm._arguments import Messages, to_messages, to_texts
from onym.llm.config import Config
from onym.llm.credentials import hide_environment
from onym.llm.flow import OpenedStream, call_flow, model_flow, models_flow, stream_flow
from onym.llm.mapping import OnUnsupported
from onym.llm.operations import OPERATIONS
from onym.llm.parameters import DRAFT
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.streams import AsyncStream, Stream, attach_listener
from onym.llm.types import Answer, Completion, Embeddings
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from types import TracebackType

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
    *,
    policy: Policy | None,
    config: Config | None,
    key: Secret | None,
    providers: ProviderTable | None,
    environ: Mapping[str, str] | None,
    on_unsupported: OnUnsupported,
    system_filter: Callable[[str], str] | None,
    network: NetConfig | None = None,
) -> ClientSetup:
    """Return the planner and the network settings for these arguments."""
    if on_unsupported not in get_args(OnUnsupported):
        raise UsageError("on_unsupported must be error, warn or drop")
    # no frame of a traceback shows what it holds
    environ = hide_environment(environ)
    config = Config.load(environ=environ) if config is None else config
    found = resolve_uri(uri, config)
    if key is not None:
        _require_usable_key(key)
    if policy is None:
        policy = choose_policy(config, environ) if network is None else network.policy
    network = NetConfig(policy=policy) if network is None else replace(network, policy=policy)
    settings = PlannerSettings(
        policy=policy,
        providers=config.providers if providers is None else providers,
        profiles=config.profiles,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
        key=key,
    )
    return ClientSetup(Planner(found, settings), network)


@overload
def wrap_secret(given: str | Secret) -> Secret: ...
@overload
def wrap_secret(given: LLMURI) -> LLMURI: ...
@overload
def wrap_secret(given: None) -> None: ...
def wrap_secret(given: str | Secret | LLMURI | None) -> Secret | LLMURI | None:
    """A text as a `Secret`, everything else as it is."""
    return Secret(given) if isinstance(given, str) else given


def resolve_uri(uri: Secret | LLMURI, config: Config) -> LLMURI:
    """The URI itself, or the one that the configuration has under this name."""
    if uri is None:  # what os.environ.get gives
        raise UsageError("the URI is None", hint="Check that the variable that you read it from is set.")
    if not isinstance(uri, Secret):
        return LLMURI.parse(uri)
    if _NAME.fullmatch(uri.reveal()) is None:
        return LLMURI.parse(uri.reveal())
    known = config.endpoints.get(uri.reveal())
    if known is not None:
        return LLMURI.parse(known)
    close = get_close_matches(uri.reveal(), list(config.endpoints), n=1)
    raise ConfigError(
        "the text is neither an llm:// URI nor the name of an endpoint in the configuration",
        code="config.no-endpoint",
        hint=f"Did you mean {close[0]}?" if close else "Write a URI such as llm://api.openai.com/gpt-5.",
    )


def _require_usable_key(key: Secret) -> None:
    """Apply the rules for a key in a URI (draft 4.2.1) to a key that the program passes."""
    text = key.reveal()
    if not text or _NOT_IN_KEY.search(text) is not None:
        raise LLMURIError(
            "the API key passed as key= is empty, or contains a space or a control character",
            code="llm.control-character" if text else "llm.empty-key",
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


A = TypeVar("A", bound=Answer)
T = TypeVar("T")

#: makes a call, which a span observes if there is one
Caller: TypeAlias = "Callable[[Plan, CallSpan | None], T]"


def watch_flow(flow: Flow[T], observed: CallSpan | None) -> Flow[T]:
    """Return the flow, observed by the span if there is one."""
    return flow if observed is None else observed.watch_flow(flow)


def observe_stream(opened: OpenedStream, observed: CallSpan | None) -> OpenedStream:
    """Return the stream, observed by the span if there is one."""
    return opened if observed is None else attach_listener(opened, observed)


class CallMiddleware:
    """The cache and the telemetry of one client."""

    __slots__ = ("_cache", "_environ", "telemetry")

    def __init__(
        self, environ: Mapping[str, str], cache: ResponseCache | None, telemetry: Telemetry | None
    ) -> None:
        self._environ = environ
        self._cache = cache
        self.telemetry = telemetry
        if telemetry is None and environ.get("ONYM_TELEMETRY"):
            # OpenTelemetry is an optional dependency
            from onym.llm.telemetry import from_environment

            self.telemetry = from_environment(environ)

    def prepare_messages(self, messages: Messages) -> Messages:
        """Return the messages in a form that can be read twice, if telemetry captures them."""
        if self.telemetry is None or not self.telemetry.captures:
            return messages
        return to_messages(messages)

    def run_call(self, plan: Plan, call: Caller[A], messages: Messages | None = None) -> A:
        """Return the answer to this plan: a cached one, or that of `call`."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        with _WrappedCall(plan, observed) as wrapped:
            if cache is None:
                return wrapped.record(call(plan, observed))
            kind = OPERATIONS[plan.operation].result
            return wrapped.record(cache.get_or_call(plan, kind, wrapped.count(call)))

    async def arun_call(self, plan: Plan, call: Caller[Awaitable[A]], messages: Messages | None = None) -> A:
        """`run_call` for coroutines."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        with _WrappedCall(plan, observed) as wrapped:
            if cache is None:
                return wrapped.record(await call(plan, observed))
            kind = OPERATIONS[plan.operation].result
            return wrapped.record(await cache.aget_or_call(plan, kind, wrapped.count(call)))

    def open_stream(
        self, plan: Plan, call: Caller[OpenedStream], messages: Messages | None = None
    ) -> OpenedStream:
        """Return the answer as an open stream: a cached one, or that of `call`."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        with _WrappedCall(plan, observed) as wrapped:
            replay = None if cache is None else cache.open_replay(plan)
            opened = call(plan, observed) if replay is None else replay
        return wrapped.attach(opened, cache, replayed=replay is not None)

    async def aopen_stream(
        self, plan: Plan, call: Caller[Awaitable[OpenedStream]], messages: Messages | None = None
    ) -> OpenedStream:
        """`open_stream` for coroutines."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        with _WrappedCall(plan, observed) as wrapped:
            replay = None
            if cache is not None:
                import asyncio  # 20 ms that a synchronous client does not need

                replay = await asyncio.to_thread(cache.open_replay, plan)
            opened = await call(plan, observed) if replay is None else replay
        return wrapped.attach(opened, cache, replayed=replay is not None)

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


class _WrappedCall:
    """A call with a cache or a span: reports its errors, and whether the cache answered."""

    __slots__ = ("_cached", "_observed", "_plan")

    def __init__(self, plan: Plan, observed: CallSpan | None) -> None:
        self._plan = plan
        self._observed = observed
        self._cached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._observed is not None:
            self._observed.record_error(error)

    def count(self, call: Caller[T]) -> Callable[[float], T]:
        """Return `call` for the cache, which passes the seconds that it waited."""

        def make(waited: float) -> T:
            self._cached = False
            plan = self._plan
            if waited:
                frame = replace(plan.frame, timeout=max(plan.timeout - waited, 0.001))
                plan = replace(plan, frame=frame)
            return call(plan, self._observed)

        self._cached = True
        return make

    def record(self, answer: A) -> A:
        """Report the answer and return it."""
        if self._observed is not None:
            self._observed.cached = self._cached
            self._observed.record_answer(answer)
        return answer

    def attach(self, opened: OpenedStream, cache: ResponseCache | None, *, replayed: bool) -> OpenedStream:
        """Return the stream, observed by the span and stored by the cache if it is a new answer."""
        if replayed and self._observed is not None:
            self._observed.cached = True
        if cache is not None and not replayed:
            opened = cache.record_stream(self._plan, opened)
        return observe_stream(opened, self._observed)


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
    # from here on no frame of a traceback holds the text, which holds the key
    uri, key = wrap_secret(uri), wrap_secret(key)
    settled = build_setup(
        uri,
        policy=policy,
        network=network,
        config=config,
        key=key,
        providers=providers,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
    )
    return Client(settled, transport, _make_middleware(environ, cache, telemetry))


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
    # from here on no frame of a traceback holds the text, which holds the key
    uri, key = wrap_secret(uri), wrap_secret(key)
    settled = build_setup(
        uri,
        policy=policy,
        network=network,
        config=config,
        key=key,
        providers=providers,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
    )
    return AsyncClient(settled, transport, _make_middleware(environ, cache, telemetry))


def _make_middleware(
    environ: Mapping[str, str] | None, cache: ResponseCache | None, telemetry: Telemetry | None
) -> CallMiddleware:
    return CallMiddleware(hide_environment(environ), cache, telemetry)


class _BaseClient:
    """The part of both clients that sends nothing."""

    def __init__(self, settled: ClientSetup, extras: CallMiddleware | None) -> None:
        self._planner = settled.planner
        self._network = settled.network
        self._extras = extras or CallMiddleware(hide_environment(None), None, None)

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
        return _emit_warnings(plan, stacklevel=4), messages

    def _plan_embed(self, texts: str | Iterable[str], overrides: Mapping[str, Any]) -> Plan:
        inputs = to_texts(texts)
        plan = self._planner.plan_inputs("embed", inputs, overrides, expected=len(inputs))
        return _emit_warnings(plan, stacklevel=4)

    def _is_stale(self, plan: Plan) -> bool:
        return plan.expires is not None and self._planner.is_credential_stale(time.time())


class Client(_BaseClient):
    """A synchronous client for one model. Threads can share it; close it, or use it in a `with` statement."""

    def __init__(
        self, settled: ClientSetup, transport: Transport | None = None, extras: CallMiddleware | None = None
    ) -> None:
        super().__init__(settled, extras)
        self._own = transport is None
        self._transport = Transport(self._transport_config) if transport is None else transport

    def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """Send a text or messages and return the answer.

        `overrides` are the well-known parameters (`temp=`, `max_tokens=`, `timeout=` in ms, …), which take
        precedence over the URI's, and `tools=`, `tool_choice=`, `schema=`, `extra=`. With `stream=true` in
        the URI, the answer is streamed and put together here; its `raw` is empty then.

        Raises UsageError for an unknown argument, ParameterError or UnsupportedError for a value that is
        not supported, CredentialError for a missing key, NetError or ProviderError.
        """
        plan, messages = self._plan_chat(messages, overrides)
        return self._extras.run_call(plan, self._send_chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> Stream:
        """Send a text or messages and return the answer as events. Use it in a `with` statement."""
        plan, messages = self._plan_chat(messages, overrides, stream=True)
        opened = self._extras.open_stream(plan, self._open_stream, messages)
        return Stream(opened, plan.endpoint.model, plan.endpoint.text)

    def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """Return one vector per text. Accepts `dimensions=`, `timeout=`, `retries=` and `extra=`."""
        answer: Embeddings = self._extras.run_call(self._plan_embed(texts, overrides), self._send)
        return answer

    def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """Return the server's list of models. Accepts `timeout=` and `retries=`."""
        plan = _emit_warnings(self._planner.models(overrides))
        return run_flow(models_flow(self._prepare_plan(plan)), self._transport)

    def model(self, **overrides: Any) -> ModelInfo:
        """Return what the server reports about this URI's model: its context window and more.

        Raises NotFoundError if the server does not know the model.
        """
        plan = _emit_warnings(self._planner.model(overrides))
        return run_flow(model_flow(self._prepare_plan(plan)), self._transport)

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, plan: Plan, observed: CallSpan | None) -> Any:
        return run_flow(watch_flow(call_flow(self._prepare_plan(plan)), observed), self._transport)

    def _send_chat(self, plan: Plan, observed: CallSpan | None) -> Completion:
        if not plan.stream:
            answer: Completion = self._send(plan, observed)
            return answer
        opened = observe_stream(self._open_stream(plan, observed), observed)
        with Stream(opened, plan.endpoint.model, plan.endpoint.text) as stream:
            return stream.completion()

    def _open_stream(self, plan: Plan, observed: CallSpan | None) -> OpenedStream:
        return run_flow(watch_flow(stream_flow(self._prepare_plan(plan)), observed), self._transport)

    def _prepare_plan(self, plan: Plan) -> Plan:
        if self._is_stale(plan):
            return self._planner.with_renewed_credential(plan)
        if plan.endpoint.is_embedded:
            from onym.llm import embedded  # subprocess and more, which other endpoints do not need

            return self._planner.with_running_server(plan, embedded.ensure_server(plan.endpoint.model))
        return plan


class AsyncClient(_BaseClient):
    """`Client` for coroutines, for one event loop and any number of concurrent calls."""

    def __init__(
        self,
        settled: ClientSetup,
        transport: AsyncTransport | None = None,
        extras: CallMiddleware | None = None,
    ) -> None:
        super().__init__(settled, extras)
        self._own = transport is None
        self._transport = AsyncTransport(self._transport_config) if transport is None else transport

    async def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """The async version of `Client.chat`."""
        plan, messages = self._plan_chat(messages, overrides)
        return await self._extras.arun_call(plan, self._send_chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> AsyncStream:
        """The async version of `Client.stream`: `async with client.stream(…) as events`."""
        plan, messages = self._plan_chat(messages, overrides, stream=True)

        def opening() -> Awaitable[OpenedStream]:
            return self._extras.aopen_stream(plan, self._open_stream, messages)

        return AsyncStream(opening, plan.endpoint.model, plan.endpoint.text)

    async def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """The async version of `Client.embed`."""
        answer: Embeddings = await self._extras.arun_call(self._plan_embed(texts, overrides), self._send)
        return answer

    async def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """The async version of `Client.models`."""
        plan = _emit_warnings(self._planner.models(overrides))
        return await arun_flow(models_flow(await self._prepare_plan(plan)), self._transport)

    async def model(self, **overrides: Any) -> ModelInfo:
        """The async version of `Client.model`."""
        plan = _emit_warnings(self._planner.model(overrides))
        return await arun_flow(model_flow(await self._prepare_plan(plan)), self._transport)

    async def close(self) -> None:
        """Close the connections."""
        if self._own:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, plan: Plan, observed: CallSpan | None) -> Any:
        if plan.endpoint.is_embedded or plan.expires is not None:
            plan = await self._prepare_plan(plan)
        return await arun_flow(watch_flow(call_flow(plan), observed), self._transport)

    async def _send_chat(self, plan: Plan, observed: CallSpan | None) -> Completion:
        if not plan.stream:
            answer: Completion = await self._send(plan, observed)
            return answer

        async def opening() -> OpenedStream:
            return observe_stream(await self._open_stream(plan, observed), observed)

        async with AsyncStream(opening, plan.endpoint.model, plan.endpoint.text) as stream:
            return await stream.completion()

    async def _open_stream(self, plan: Plan, observed: CallSpan | None) -> OpenedStream:
        prepared = await self._prepare_plan(plan)
        return await arun_flow(watch_flow(stream_flow(prepared), observed), self._transport)

    async def _prepare_plan(self, plan: Plan) -> Plan:
        if self._is_stale(plan):
            import asyncio  # 20 ms that a synchronous client does not need

            return await asyncio.to_thread(self._planner.with_renewed_credential, plan)
        if plan.endpoint.is_embedded:
            import asyncio

            from onym.llm import embedded  # subprocess and more, which other endpoints do not need

            # starting a server takes a second and blocks
            running = await asyncio.to_thread(embedded.ensure_server, plan.endpoint.model)
            return self._planner.with_running_server(plan, running)
        return plan


def _emit_warnings(plan: Plan, *, stacklevel: int = 3) -> Plan:
    """Warn the caller of the client's method, who is `stacklevel` frames away, and return the plan."""
    for text in plan.warnings:
        warnings.warn(text, OnymWarning, stacklevel=stacklevel)
    return plan
