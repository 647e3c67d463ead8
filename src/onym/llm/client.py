"""`connect` and the clients: two thin drivers over one flow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from onym.errors import OnymWarning
from onym.llm._connect import Settled, hide, settle
from onym.llm._messages import Messages
from onym.llm._stream import AsyncStream, Stream
from onym.llm.flow import Opened, chat_flow, embed_flow, models_flow, stream_flow
from onym.llm.mapping import OnUnsupported
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun, run

if TYPE_CHECKING:
    from types import TracebackType

    from onym.llm.config import Config
    from onym.llm.plan import Plan
    from onym.llm.providers import ProviderTable
    from onym.llm.types import Completion, Embeddings, ModelInfo
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
) -> Client:
    """A client for the model that a URI, or a name of the configuration file, stands for.

    Nothing is sent yet. `key` goes before any other credential. `policy` says where the URI may lead:
    by default the configuration's, else `Policy.trusted()`, which refuses this machine; with
    `ONYM_ALLOW_LOOPBACK=1` in the environment it is allowed. `config` defaults to the user's file,
    `environ` to `os.environ`. `on_unsupported` says what becomes of a parameter that the model does not
    take: "error", "warn" or "drop". `system_filter` gets a URI's `system` and returns what of it to send.
    A `transport` of your own is not closed with the client.

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
    return Client(settled, transport)


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
    return AsyncClient(settled, transport)


class _Planned:
    """What both clients know before anything is sent."""

    def __init__(self, settled: Settled) -> None:
        self._planner = settled.planner
        self._policy = settled.policy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._planner.endpoint.text!r})"

    def explain(self, messages: Messages = "…", *, streaming: bool = False, **overrides: Any) -> Plan:
        """What `chat` (or `stream`, with `streaming=True`) would send with these arguments. Sends nothing."""
        return self._planner.chat(messages, overrides, stream=True if streaming else None)

    @property
    def _local_policy(self) -> Policy:
        # the embedded model listens on loopback, which only this client's own choice of it allows
        return Policy.local() if self._planner.endpoint.embedded else self._policy


class Client(_Planned):
    """Talks to one model. Threads may share it; close it, or use it in a `with` statement."""

    def __init__(self, settled: Settled, transport: Transport | None = None) -> None:
        super().__init__(settled)
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
        plan = self._ready(self._planner.chat(messages, overrides))
        if plan.stream:
            with self._open(plan) as stream:
                return stream.completion()
        return run(chat_flow(plan), self._transport)

    def stream(self, messages: Messages, **overrides: Any) -> Stream:
        """The same as events, while they arrive. Use it in a `with` statement."""
        return self._open(self._ready(self._planner.chat(messages, overrides, stream=True)))

    def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """One vector per text; `dimensions=`, `timeout=`, `retries=` and `extra=` may be given."""
        plan, count = self._planner.embed(texts, overrides)
        return run(embed_flow(self._ready(plan), count), self._transport)

    def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """What the server says of its models; `timeout=` and `retries=` may be given."""
        return run(models_flow(self._ready(self._planner.models(overrides))), self._transport)

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

    def _ready(self, plan: Plan) -> Plan:
        if plan.warnings:
            _warn(plan)
        if plan.endpoint.embedded:
            from onym.llm import embedded  # a process to look after, which other endpoints do not need

            return self._planner.running(plan, embedded.ensure(plan.endpoint.model))
        return plan

    def _open(self, plan: Plan) -> Stream:
        return Stream(run(stream_flow(plan), self._transport), plan.endpoint.model, plan.endpoint.text)


class AsyncClient(_Planned):
    """`Client` for coroutines. One event loop; any number of calls at once."""

    def __init__(self, settled: Settled, transport: AsyncTransport | None = None) -> None:
        super().__init__(settled)
        self._own = transport is None
        self._transport = AsyncTransport(self._local_policy) if transport is None else transport

    async def chat(self, messages: Messages, **overrides: Any) -> Completion:
        """As `Client.chat`."""
        plan = self._planner.chat(messages, overrides)
        if plan.stream:
            async with self._open(plan) as stream:
                return await stream.completion()
        if plan.warnings or plan.endpoint.embedded:
            plan = await self._ready(plan)
        return await arun(chat_flow(plan), self._transport)

    def stream(self, messages: Messages, **overrides: Any) -> AsyncStream:
        """As `Client.stream`: `async with client.stream(…) as events`."""
        return self._open(self._planner.chat(messages, overrides, stream=True))

    async def embed(self, texts: str | Iterable[str], **overrides: Any) -> Embeddings:
        """As `Client.embed`."""
        plan, count = self._planner.embed(texts, overrides)
        return await arun(embed_flow(await self._ready(plan), count), self._transport)

    async def models(self, **overrides: Any) -> tuple[ModelInfo, ...]:
        """As `Client.models`."""
        return await arun(models_flow(await self._ready(self._planner.models(overrides))), self._transport)

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

    async def _ready(self, plan: Plan) -> Plan:
        if plan.warnings:
            _warn(plan)
        if plan.endpoint.embedded:
            import asyncio

            from onym.llm import embedded

            # starting takes a second, and is no coroutine
            where = await asyncio.to_thread(embedded.ensure, plan.endpoint.model)
            return self._planner.running(plan, where)
        return plan

    def _open(self, plan: Plan) -> AsyncStream:
        async def opening() -> Opened:
            return await arun(stream_flow(await self._ready(plan)), self._transport)

        return AsyncStream(opening, plan.endpoint.model, plan.endpoint.text)


def _warn(plan: Plan) -> None:
    for text in plan.warnings:
        warnings.warn(text, OnymWarning, stacklevel=4)
