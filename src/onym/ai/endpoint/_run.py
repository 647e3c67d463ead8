"""Running a handler: within its time, once per idempotency key, its events sent as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onym.ai.endpoint._http import Receive, Send, start
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.ai.endpoint.streams import EVENTS, Wire, encode_event
from onym.errors import AIIPError, OnymError

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Call
    from onym.ai.endpoint.idempotency import Idempotency, Scope
    from onym.ai.endpoint.limits import Limits
    from onym.ai.endpoint.resources import Resource
    from onym.ai.endpoint.signing import Asked, Signing

__all__ = ["Runner", "Streaming"]

_REPLAYED: Final = (("Idempotency-Replayed", "?1"),)
_PACK: Final = msgspec.msgpack.Encoder()


class _Kept(msgspec.Struct, array_like=True):
    """An answer as it is kept under its idempotency key: whole, or the events of a stream."""

    status: int
    content_type: str | None
    body: bytes
    headers: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str | None], ...] | None = None


_UNPACK: Final = msgspec.msgpack.Decoder(_Kept)


@dataclass(slots=True, kw_only=True)
class Streaming:
    """Events that are about to be sent. `ends` is told the events that were sent, or None after a failure."""

    events: AsyncIterator[StreamEvent]
    headers: tuple[tuple[str, str], ...] = ()
    ends: Callable[[list[StreamEvent] | None], Any] | None = None
    deadline: float = 0.0
    release: Callable[[], None] = field(default=lambda: None)


class Runner:
    """Runs handlers, `limits.concurrent` of them at a time."""

    def __init__(
        self,
        signing: Signing,
        limits: Limits,
        clock: Callable[[], float],
        tell: Callable[[BaseException, str | None], Answer],
    ) -> None:
        self.signing = signing
        self._limits = limits
        self._clock = clock
        self._tell = tell
        self._running = 0
        self._keeper: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[Answer | Streaming]] = set()

    def close(self) -> None:
        """Let go of the thread that keeps answers."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.shutdown(wait=False)

    async def run(self, resource: Resource, call: Call) -> Answer | Streaming:
        """The handler's answer. Raises what it raises, `aiip.unavailable` and `aiip.upstream-timeout`."""
        self._enter()
        return await self._entered(resource, call)

    def _enter(self) -> None:
        if self._running >= self._limits.concurrent:
            raise AIIPError(
                "too many invocations run at this moment", code="aiip.unavailable", retryable=True
            )
        self._running += 1

    async def _entered(self, resource: Resource, call: Call) -> Answer | Streaming:
        try:
            found: Answer | Streaming = await self._within(self._limits.seconds, self._begin(resource, call))
        except BaseException:
            self._running -= 1
            raise
        if isinstance(found, Answer):
            self._running -= 1
            if len(found.body) > self._limits.answer:
                raise OnymError("the answer is longer than the endpoint sends", code="aiip.internal")
            return found
        found.release = self._released
        return found

    def _released(self) -> None:
        self._running -= 1

    async def _begin(self, resource: Resource, call: Call) -> Answer | Streaming:
        result = await resource.handler.invoke(call)
        if isinstance(result, Answer):
            return result
        # the first event is awaited here: what fails before it is an answer of its own
        first = await anext(result, None)
        deadline = asyncio.get_running_loop().time() + self._limits.stream_seconds
        return Streaming(events=_joined(first, result), deadline=deadline)

    async def _within(self, seconds: float, work: Any) -> Any:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise AIIPError(
                "the invocation took longer than the endpoint allows", code="aiip.upstream-timeout"
            ) from None

    async def once(
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope
    ) -> Answer | Streaming:
        """The answer under a key: given again, or made now and kept, whoever goes away meanwhile."""
        self._enter()  # first: "come again later" must not become what the key is answered with
        try:
            stored = await self._keep(store.begin, scope, call.request_hash, self._clock())
        except BaseException:
            self._released()
            raise
        if stored.answer is not None:
            self._released()
            return _again(_UNPACK.decode(stored.answer), self._limits)
        task = asyncio.create_task(self._first(resource, call, store, scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _first(
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope
    ) -> Answer | Streaming:
        try:
            found = await self._entered(resource, call)
        except Exception as error:  # noqa: BLE001 - the refusal is the answer that this key has
            found = self._tell(error, scope.target)
        except BaseException:
            store.interrupt(scope)
            raise
        if isinstance(found, Answer):
            kept = _Kept(found.status, found.content_type, found.body, found.headers)
            await self._complete(store, scope, kept)
            return found

        async def ends(events: list[StreamEvent] | None) -> None:
            if events is None:
                await self._keep(store.interrupt, scope)
            else:
                rows = tuple((each.data, each.event, each.id) for each in events)
                await self._complete(store, scope, _Kept(200, EVENTS, b"", (), rows))

        found.ends = ends
        return found

    async def _complete(self, store: Idempotency, scope: Scope, kept: _Kept) -> None:
        try:
            await self._keep(store.complete, scope, _PACK.encode(kept))
        except AIIPError as error:
            # it has happened, and whoever asked is told; the log says that its key is not answered again
            self._tell(error, scope.target)

    async def _keep(self, work: Callable[..., Any], *args: Any) -> Any:
        """A call of the store, which waits for the disk, in a thread of its own."""
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(1, thread_name_prefix="onym-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._keeper, work, *args)

    async def send(self, stream: Streaming, asked: Asked, receive: Receive, send: Send) -> None:
        """Send the events and the receipt that makes them count.

        A caller that goes away ends the stream, unless a key binds the endpoint to what it has begun.
        """
        work = asyncio.ensure_future(self._send(stream, asked, send))
        try:
            if stream.ends is None:
                gone = asyncio.ensure_future(_gone(receive))
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not work.done():
                    work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        finally:
            stream.release()

    async def _send(self, stream: Streaming, asked: Asked, send: Send) -> None:
        answer = Answer(content_type=EVENTS, headers=stream.headers)
        wire = Wire(asked.request_hash, self._limits)
        sent: list[StreamEvent] = []
        await start(send, answer)
        try:
            async with asyncio.timeout_at(stream.deadline):
                async for event in stream.events:
                    octets = wire.add(event)
                    if stream.ends is not None:
                        sent.append(event)
                    await _part(send, octets)
            if stream.ends is not None:
                await stream.ends(sent)
                stream.ends = None
            receipt = self.signing.stream(asked, answer, wire.end)
        except Exception as error:  # noqa: BLE001 - without a receipt, nothing of the stream counts
            told = self._tell(_timed(error), asked.subject)
            await _part(send, encode_event("problem", told.body.decode()))
        else:
            await _part(send, encode_event("receipt", receipt))
        finally:
            await _close(stream.events)
            if stream.ends is not None:
                await stream.ends(None)
        await _part(send, b"", more=False)


def _timed(error: Exception) -> Exception:
    if isinstance(error, TimeoutError):
        return AIIPError("the stream took longer than the endpoint allows", code="aiip.upstream-timeout")
    return error


async def _part(send: Send, octets: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": octets, "more_body": more})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(events: AsyncIterator[StreamEvent]) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        with contextlib.suppress(Exception):  # it has been told already, or nobody listens
            await close()


async def _joined(first: StreamEvent | None, rest: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamEvent]:
    """The events again, from the one that was taken to see whether they begin at all."""
    try:
        if first is not None:
            yield first
            async for event in rest:
                yield event
    finally:
        await _close(rest)


async def _replayed(kept: tuple[tuple[str, str, str | None], ...]) -> AsyncIterator[StreamEvent]:
    for data, event, name in kept:
        yield StreamEvent(data=data, event=event, id=name)


def _again(kept: _Kept, limits: Limits) -> Answer | Streaming:
    if kept.events is not None:
        deadline = asyncio.get_running_loop().time() + limits.stream_seconds
        return Streaming(events=_replayed(kept.events), headers=_REPLAYED, deadline=deadline)
    return Answer(
        status=kept.status,
        content_type=kept.content_type,
        body=kept.body,
        headers=(*kept.headers, *_REPLAYED),
    )
