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

from onym.errors import ConfigError, OnymWarning, UsageError
from onym.llm._arguments import Messages, to_messages
from onym.llm.config import Config
from onym.llm.credentials import hide_environment
from onym.llm.flow import OpenedStream, chat_flow, embed_flow, model_flow, models_flow, stream_flow
from onym.llm.plan import OnUnsupported
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.streams import AsyncStream, Stream
from onym.llm.types import Completion, Embeddings
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
    """The planner and the network settings for these arguments."""
    if on_unsupported not in get_args(OnUnsupported):
        raise UsageError("on_unsupported is error, warn or drop")
    # no frame of a traceback shows what it holds
    environ = hide_environment(environ)
    config = Config.load(environ=environ) if config is None else config
    found = resolve_uri(uri, config)
    if key is not None:
        found = found.with_key(key)
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
        key_given="userinfo" if key is None else "argument",
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


def choose_policy(config: Config, environ: Mapping[str, str], *, typed: bool = False) -> Policy:
    """Return the configuration's policy, or `trusted`.

    `trusted` becomes `local` if `ONYM_ALLOW_LOOPBACK=1`, or if a person has `typed` the URI. A different preset
    in the configuration stays as it is.
    """
    policy = config.policy or Policy.trusted()
    if (typed or environ.get(ALLOW_LOOPBACK) == "1") and policy.name == "trusted":
        return policy.replace(name="local", allow_loopback=True)
    return policy


A = TypeVar("A", Completion, Embeddings)
T = TypeVar("T")

#: makes a call; with an observer, it lets that watch
Caller: TypeAlias = "Callable[[Plan, CallSpan | None], T]"


def watch_flow(flow: Flow[T], observed: CallSpan | None) -> Flow[T]:
    """The flow, watched where somebody watches."""
    return flow if observed is None else observed.watch_flow(flow)


def observe_stream(opened: OpenedStream, observed: CallSpan | None) -> OpenedStream:
    """The stream, listened to where somebody watches."""
    if observed is None:
        return opened
    from onym.llm.streams import attach_listener

    return attach_listener(opened, observed)


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
            from onym.llm.telemetry import from_environment

            self.telemetry = from_environment(environ)

    def prepare_messages(self, messages: Messages) -> Messages:
        """The messages in a form that may be read twice, where that is to be done."""
        if self.telemetry is None or not self.telemetry.captures:
            return messages
        return to_messages(messages)

    def run_call(self, plan: Plan, kind: type[A], call: Caller[A], messages: Messages | None = None) -> A:
        """The answer to this plan: from the cache if it may, else by `call`."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        try:
            if cache is None:
                answer = call(plan, observed)
            else:
                asked = _TimedCall(plan, observed)
                answer = cache.get_or_call(
                    plan, kind, lambda waited: call(asked.with_time_left(waited), observed)
                )
                asked.mark_cached()
        except BaseException as error:
            if observed is not None:
                observed.record_error(error)
            raise
        if observed is not None:
            observed.record_answer(answer)
        return answer

    async def arun_call(
        self, plan: Plan, kind: type[A], call: Caller[Awaitable[A]], messages: Messages | None = None
    ) -> A:
        """`answer` for coroutines."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        try:
            if cache is None:
                answer = await call(plan, observed)
            else:
                asked = _TimedCall(plan, observed)
                answer = await cache.aget_or_call(
                    plan, kind, lambda waited: call(asked.with_time_left(waited), observed)
                )
                asked.mark_cached()
        except BaseException as error:
            if observed is not None:
                observed.record_error(error)
            raise
        if observed is not None:
            observed.record_answer(answer)
        return answer

    def open_stream(
        self, plan: Plan, call: Caller[OpenedStream], messages: Messages | None = None
    ) -> OpenedStream:
        """The answer as a stream that has begun: from the cache if it may, else by `call`."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        try:
            kept = None if cache is None else cache.open_replay(plan)
            opened = call(plan, observed) if kept is None else kept
        except BaseException as error:
            if observed is not None:
                observed.record_error(error)
            raise
        if kept is not None and observed is not None:
            observed.cached = True
        return _attach_listeners(plan, opened, cache if kept is None else None, observed)

    async def aopen_stream(
        self, plan: Plan, call: Caller[Awaitable[OpenedStream]], messages: Messages | None = None
    ) -> OpenedStream:
        """`opened` for coroutines."""
        cache, observed = self._begin_call(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        try:
            kept = None
            if cache is not None:
                import asyncio

                kept = await asyncio.to_thread(cache.open_replay, plan)
            opened = await call(plan, observed) if kept is None else kept
        except BaseException as error:
            if observed is not None:
                observed.record_error(error)
            raise
        if kept is not None and observed is not None:
            observed.cached = True
        return _attach_listeners(plan, opened, cache if kept is None else None, observed)

    def _begin_call(
        self, plan: Plan, messages: Messages | None
    ) -> tuple[ResponseCache | None, CallSpan | None]:
        cache = self._get_cache() if _wants_cache(plan) else None
        return cache, None if self.telemetry is None else self.telemetry.begin_call(plan, messages)

    def _get_cache(self) -> ResponseCache:
        if self._cache is None:
            from onym.llm.cache import default_cache  # its library is loaded where a cache is wanted

            self._cache = default_cache(self._environ)
        return self._cache


def _wants_cache(plan: Plan) -> bool:
    for note in plan.notes:
        if note.parameter == "cache" and note.action == "client":
            return note.value is True
    return False


class _TimedCall:
    """Whether the call was made, and in what time."""

    __slots__ = ("_made", "_observed", "_plan")

    def __init__(self, plan: Plan, observed: CallSpan | None) -> None:
        self._plan = plan
        self._observed = observed
        self._made = False

    def with_time_left(self, waited: float) -> Plan:
        """The plan with the time that is left."""
        self._made = True
        if not waited:
            return self._plan
        frame = self._plan.frame
        return replace(self._plan, frame=replace(frame, timeout=max(frame.timeout - waited, 0.001)))

    def mark_cached(self) -> None:
        """Let the observer know of an answer that nobody was asked for."""
        if self._observed is not None and not self._made:
            self._observed.cached = True


def _attach_listeners(
    plan: Plan, opened: OpenedStream, cache: ResponseCache | None, observed: CallSpan | None
) -> OpenedStream:
    """The stream, listened to by those who want to; `cache` is None for one that came from there."""
    if cache is not None:
        opened = cache.record_stream(plan, opened)
    return observe_stream(opened, observed)


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
    """A client for the model that a URI, or a name of the configuration file, stands for.

    Nothing is sent yet. `key` goes before any other credential. `policy` says where the URI may lead:
    by default the configuration's, else `Policy.trusted()`, which refuses this machine; with
    `ONYM_ALLOW_LOOPBACK=1` in the environment it is allowed. `network` sets certificate authorities, limits
    and more; its policy applies unless you pass `policy` too. `config` defaults to the user's file,
    `environ` to `os.environ`. `on_unsupported` says what becomes of a parameter that the model does not
    take: "error", "warn" or "drop". `system_filter` gets a URI's `system` and returns what of it to send.
    A `transport` of your own is not closed with the client. `cache` is where calls with `cache=true` look
    first, by default the user's own. `telemetry` reports calls; without it only `ONYM_TELEMETRY=1` does.

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
    """`connect` for coroutines; the arguments mean the same. It is no coroutine itself."""
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
    """What both clients know before anything is sent."""

    def __init__(self, settled: ClientSetup, extras: CallMiddleware | None) -> None:
        self._planner = settled.planner
        self._network = settled.network
        self._extras = extras or CallMiddleware(hide_environment(None), None, None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._planner.endpoint.text!r})"

    @property
    def endpoint(self) -> Endpoint:
        """Who is on the other side: provider row, model, profile. Its text holds no key."""
        return self._planner.endpoint

    def explain(self, messages: Messages = "…", *, streaming: bool = False, **overrides: Any) -> Plan:
        """What `chat` (or `stream`, with `streaming=True`) would send with these arguments. Sends nothing."""
        return self._planner.chat(messages, overrides, stream=True if streaming else None)

    @property
    def _transport_config(self) -> NetConfig:
        # the embedded model listens on loopback, which only this client's own choice of it allows
        return NetConfig(policy=Policy.local()) if self._planner.endpoint.is_embedded else self._network


class Client(_BaseClient):
    """Talks to one model. Threads may share it; close it, or use it in a `with` statement."""

    def __init__(
        self, settled: ClientSetup, transport: Transport | None = None, extras: CallMiddleware | None = None
    ) -> None:
        super().__init__(settled, extras)
        self._own = transport is None
        self._transport = Transport(self._transport_config) if transport is None else transport

    def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """One answer to a text or to messages.

        `overrides` are the well-known parameters (`temp=`, `max_tokens=`, `timeout=` in ms, …), which go
        before the URI's, and `tools=`, `tool_choice=`, `schema=`, `extra=`. With `stream=true` in the URI the
        answer is streamed on the wire and put together here; its `raw` is empty then.

        Raises UsageError for an unknown argument, ParameterError or UnsupportedError for a value that
        cannot be honoured, CredentialError for a key that is missing, NetError or ProviderError.
        """
        messages = self._extras.prepare_messages(messages)
        plan = self._planner.chat(messages, overrides)
        if plan.warnings:
            _emit_warnings(plan)
        return self._extras.run_call(plan, Completion, self._send_chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> Stream:
        """The same as events, while they arrive. Use it in a `with` statement."""
        messages = self._extras.prepare_messages(messages)
        plan = self._planner.chat(messages, overrides, stream=True)
        if plan.warnings:
            _emit_warnings(plan)
        opened = self._extras.open_stream(plan, self._open_stream, messages)
        return Stream(opened, plan.endpoint.model, plan.endpoint.text)

    def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """One vector per text; `dimensions=`, `timeout=`, `retries=` and `extra=` may be given."""
        plan, count = self._planner.embed(texts, overrides)
        if plan.warnings:
            _emit_warnings(plan)

        def call(plan: Plan, observed: CallSpan | None) -> Embeddings:
            return run_flow(
                watch_flow(embed_flow(self._prepare_plan(plan), count), observed), self._transport
            )

        return self._extras.run_call(plan, Embeddings, call)

    def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """What the server says of its models; `timeout=` and `retries=` may be given."""
        plan = self._planner.models(overrides)
        if plan.warnings:
            _emit_warnings(plan)
        return run_flow(models_flow(self._prepare_plan(plan)), self._transport)

    def model(self, **overrides: Any) -> ModelInfo:
        """What the server says of this URI's model: its context window, what it takes, where the API says.

        Raises NotFoundError where the server does not know it.
        """
        plan = self._planner.model(overrides)
        if plan.warnings:
            _emit_warnings(plan)
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

    def _send_chat(self, plan: Plan, observed: CallSpan | None) -> Completion:
        if not plan.stream:
            return run_flow(watch_flow(chat_flow(self._prepare_plan(plan)), observed), self._transport)
        opened = observe_stream(self._open_stream(plan, observed), observed)
        with Stream(opened, plan.endpoint.model, plan.endpoint.text) as stream:
            return stream.completion()

    def _prepare_plan(self, plan: Plan) -> Plan:
        if plan.expires is not None and self._planner.is_credential_stale(time.time()):
            return self._planner.with_renewed_credential(plan)
        if plan.endpoint.is_embedded:
            from onym.llm import embedded  # a process to look after, which other endpoints do not need

            return self._planner.with_running_server(plan, embedded.ensure_server(plan.endpoint.model))
        return plan

    def _open_stream(self, plan: Plan, observed: CallSpan | None) -> OpenedStream:
        return run_flow(watch_flow(stream_flow(self._prepare_plan(plan)), observed), self._transport)


class AsyncClient(_BaseClient):
    """`Client` for coroutines. One event loop; any number of calls at once."""

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
        """As `Client.chat`."""
        messages = self._extras.prepare_messages(messages)
        plan = self._planner.chat(messages, overrides)
        if plan.warnings:
            _emit_warnings(plan)
        return await self._extras.arun_call(plan, Completion, self._send_chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> AsyncStream:
        """As `Client.stream`: `async with client.stream(…) as events`."""
        messages = self._extras.prepare_messages(messages)
        plan = self._planner.chat(messages, overrides, stream=True)
        if plan.warnings:
            _emit_warnings(plan)

        def opening() -> Awaitable[OpenedStream]:
            return self._extras.aopen_stream(plan, self._open_stream, messages)

        return AsyncStream(opening, plan.endpoint.model, plan.endpoint.text)

    async def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """As `Client.embed`."""
        plan, count = self._planner.embed(texts, overrides)
        if plan.warnings:
            _emit_warnings(plan)

        async def call(plan: Plan, observed: CallSpan | None) -> Embeddings:
            plan = await self._prepare_plan(plan)
            return await arun_flow(watch_flow(embed_flow(plan, count), observed), self._transport)

        return await self._extras.arun_call(plan, Embeddings, call)

    async def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """As `Client.models`."""
        plan = self._planner.models(overrides)
        if plan.warnings:
            _emit_warnings(plan)
        return await arun_flow(models_flow(await self._prepare_plan(plan)), self._transport)

    async def model(self, **overrides: Any) -> ModelInfo:
        """As `Client.model`."""
        plan = self._planner.model(overrides)
        if plan.warnings:
            _emit_warnings(plan)
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

    async def _send_chat(self, plan: Plan, observed: CallSpan | None) -> Completion:
        if not plan.stream:
            if plan.endpoint.is_embedded or plan.expires is not None:
                plan = await self._prepare_plan(plan)
            return await arun_flow(watch_flow(chat_flow(plan), observed), self._transport)

        async def opening() -> OpenedStream:
            return observe_stream(await self._open_stream(plan, observed), observed)

        async with AsyncStream(opening, plan.endpoint.model, plan.endpoint.text) as stream:
            return await stream.completion()

    async def _prepare_plan(self, plan: Plan) -> Plan:
        if plan.expires is not None and self._planner.is_credential_stale(time.time()):
            import asyncio

            return await asyncio.to_thread(self._planner.with_renewed_credential, plan)
        if plan.endpoint.is_embedded:
            import asyncio

            from onym.llm import embedded

            # starting takes a second, and is no coroutine
            where = await asyncio.to_thread(embedded.ensure_server, plan.endpoint.model)
            return self._planner.with_running_server(plan, where)
        return plan

    async def _open_stream(self, plan: Plan, observed: CallSpan | None) -> OpenedStream:
        return await arun_flow(
            watch_flow(stream_flow(await self._prepare_plan(plan)), observed), self._transport
        )


def _emit_warnings(plan: Plan) -> None:
    for text in plan.warnings:
        warnings.warn(text, OnymWarning, stacklevel=3)
