"""`connect` and the clients: two thin drivers over one flow."""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from onym.errors import OnymWarning
from onym.llm._connect import Settled, hide, settle
from onym.llm._environ import variables
from onym.llm._extras import Extras, listened, watched
from onym.llm._messages import Messages
from onym.llm._stream import AsyncStream, Stream
from onym.llm.flow import Opened, chat_flow, embed_flow, model_flow, models_flow, stream_flow
from onym.llm.mapping import OnUnsupported
from onym.llm.types import Completion, Embeddings
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun, run

if TYPE_CHECKING:
    from types import TracebackType

    from onym.llm._endpoint import Endpoint
    from onym.llm.cache import ResponseCache
    from onym.llm.config import Config
    from onym.llm.plan import Plan
    from onym.llm.providers import ProviderTable
    from onym.llm.telemetry import Telemetry
    from onym.llm.telemetry._call import Observed
    from onym.llm.types import ModelInfo
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = ["AsyncClient", "Client", "aconnect", "connect"]


def connect(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
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
    `ONYM_ALLOW_LOOPBACK=1` in the environment it is allowed. `config` defaults to the user's file,
    `environ` to `os.environ`. `on_unsupported` says what becomes of a parameter that the model does not
    take: "error", "warn" or "drop". `system_filter` gets a URI's `system` and returns what of it to send.
    A `transport` of your own is not closed with the client. `cache` is where calls with `cache=true` look
    first, by default the user's own. `telemetry` reports calls; without it only `ONYM_TELEMETRY=1` does.

    Raises URIError, ConfigError, CredentialError, UnsupportedError, ParameterError or PolicyError.
    """
    # from here on no frame of a traceback holds the text, which holds the key
    uri, key = hide(uri), hide(key)
    settled = settle(
        uri,
        policy=policy,
        config=config,
        key=key,
        providers=providers,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
    )
    return Client(settled, transport, _extras(environ, cache, telemetry))


def aconnect(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
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
    uri, key = hide(uri), hide(key)
    settled = settle(
        uri,
        policy=policy,
        config=config,
        key=key,
        providers=providers,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
    )
    return AsyncClient(settled, transport, _extras(environ, cache, telemetry))


def _extras(
    environ: Mapping[str, str] | None, cache: ResponseCache | None, telemetry: Telemetry | None
) -> Extras:
    return Extras(variables(environ), cache, telemetry)


class _Planned:
    """What both clients know before anything is sent."""

    def __init__(self, settled: Settled, extras: Extras | None) -> None:
        self._planner = settled.planner
        self._policy = settled.policy
        self._extras = extras or Extras(variables(None), None, None)

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
    def _local_policy(self) -> Policy:
        # the embedded model listens on loopback, which only this client's own choice of it allows
        return Policy.local() if self._planner.endpoint.embedded else self._policy


class Client(_Planned):
    """Talks to one model. Threads may share it; close it, or use it in a `with` statement."""

    def __init__(
        self, settled: Settled, transport: Transport | None = None, extras: Extras | None = None
    ) -> None:
        super().__init__(settled, extras)
        self._own = transport is None
        self._transport = Transport(self._local_policy) if transport is None else transport

    def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """One answer to a text or to messages.

        `overrides` are the well-known parameters (`temp=`, `max_tokens=`, `timeout=` in ms, …), which go
        before the URI's, and `tools=`, `tool_choice=`, `schema=`, `extra=`. With `stream=true` in the URI the
        answer is streamed on the wire and put together here; its `raw` is empty then.

        Raises UsageError for an unknown argument, ParameterError or UnsupportedError for a value that
        cannot be honoured, CredentialError for a key that is missing, NetError or ProviderError.
        """
        messages = self._extras.readable(messages)
        plan = self._planner.chat(messages, overrides)
        if plan.warnings:
            _warn(plan)
        return self._extras.answer(plan, Completion, self._chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> Stream:
        """The same as events, while they arrive. Use it in a `with` statement."""
        messages = self._extras.readable(messages)
        plan = self._planner.chat(messages, overrides, stream=True)
        if plan.warnings:
            _warn(plan)
        opened = self._extras.opened(plan, self._open, messages)
        return Stream(opened, plan.endpoint.model, plan.endpoint.text)

    def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """One vector per text; `dimensions=`, `timeout=`, `retries=` and `extra=` may be given."""
        plan, count = self._planner.embed(texts, overrides)
        if plan.warnings:
            _warn(plan)

        def call(plan: Plan, observed: Observed | None) -> Embeddings:
            return run(watched(embed_flow(self._ready(plan), count), observed), self._transport)

        return self._extras.answer(plan, Embeddings, call)

    def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """What the server says of its models; `timeout=` and `retries=` may be given."""
        plan = self._planner.models(overrides)
        if plan.warnings:
            _warn(plan)
        return run(models_flow(self._ready(plan)), self._transport)

    def model(self, **overrides: Any) -> ModelInfo:
        """What the server says of this URI's model: its context window, what it takes, where the API says.

        Raises NotFoundError where the server does not know it.
        """
        plan = self._planner.model(overrides)
        if plan.warnings:
            _warn(plan)
        return run(model_flow(self._ready(plan)), self._transport)

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

    def _chat(self, plan: Plan, observed: Observed | None) -> Completion:
        if not plan.stream:
            return run(watched(chat_flow(self._ready(plan)), observed), self._transport)
        opened = listened(self._open(plan, observed), observed)
        with Stream(opened, plan.endpoint.model, plan.endpoint.text) as stream:
            return stream.completion()

    def _ready(self, plan: Plan) -> Plan:
        if plan.expires is not None and self._planner.stale(time.time()):
            return self._planner.renewed(plan)
        if plan.endpoint.embedded:
            from onym.llm import embedded  # a process to look after, which other endpoints do not need

            return self._planner.running(plan, embedded.ensure(plan.endpoint.model))
        return plan

    def _open(self, plan: Plan, observed: Observed | None) -> Opened:
        return run(watched(stream_flow(self._ready(plan)), observed), self._transport)


class AsyncClient(_Planned):
    """`Client` for coroutines. One event loop; any number of calls at once."""

    def __init__(
        self, settled: Settled, transport: AsyncTransport | None = None, extras: Extras | None = None
    ) -> None:
        super().__init__(settled, extras)
        self._own = transport is None
        self._transport = AsyncTransport(self._local_policy) if transport is None else transport

    async def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """As `Client.chat`."""
        messages = self._extras.readable(messages)
        plan = self._planner.chat(messages, overrides)
        if plan.warnings:
            _warn(plan)
        return await self._extras.aanswer(plan, Completion, self._chat, messages)

    def stream(self, messages: Messages, **overrides: Any) -> AsyncStream:
        """As `Client.stream`: `async with client.stream(…) as events`."""
        messages = self._extras.readable(messages)
        plan = self._planner.chat(messages, overrides, stream=True)
        if plan.warnings:
            _warn(plan)

        def opening() -> Awaitable[Opened]:
            return self._extras.aopened(plan, self._open, messages)

        return AsyncStream(opening, plan.endpoint.model, plan.endpoint.text)

    async def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """As `Client.embed`."""
        plan, count = self._planner.embed(texts, overrides)
        if plan.warnings:
            _warn(plan)

        async def call(plan: Plan, observed: Observed | None) -> Embeddings:
            plan = await self._ready(plan)
            return await arun(watched(embed_flow(plan, count), observed), self._transport)

        return await self._extras.aanswer(plan, Embeddings, call)

    async def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """As `Client.models`."""
        plan = self._planner.models(overrides)
        if plan.warnings:
            _warn(plan)
        return await arun(models_flow(await self._ready(plan)), self._transport)

    async def model(self, **overrides: Any) -> ModelInfo:
        """As `Client.model`."""
        plan = self._planner.model(overrides)
        if plan.warnings:
            _warn(plan)
        return await arun(model_flow(await self._ready(plan)), self._transport)

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

    async def _chat(self, plan: Plan, observed: Observed | None) -> Completion:
        if not plan.stream:
            if plan.endpoint.embedded or plan.expires is not None:
                plan = await self._ready(plan)
            return await arun(watched(chat_flow(plan), observed), self._transport)

        async def opening() -> Opened:
            return listened(await self._open(plan, observed), observed)

        async with AsyncStream(opening, plan.endpoint.model, plan.endpoint.text) as stream:
            return await stream.completion()

    async def _ready(self, plan: Plan) -> Plan:
        if plan.expires is not None and self._planner.stale(time.time()):
            import asyncio

            return await asyncio.to_thread(self._planner.renewed, plan)
        if plan.endpoint.embedded:
            import asyncio

            from onym.llm import embedded

            # starting takes a second, and is no coroutine
            where = await asyncio.to_thread(embedded.ensure, plan.endpoint.model)
            return self._planner.running(plan, where)
        return plan

    async def _open(self, plan: Plan, observed: Observed | None) -> Opened:
        return await arun(watched(stream_flow(await self._ready(plan)), observed), self._transport)


def _warn(plan: Plan) -> None:
    for text in plan.warnings:
        warnings.warn(text, OnymWarning, stacklevel=3)
