"""Running a handler: within its time, once per idempotency key, its events sent as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from onym.ai.endpoint._deliver import Outlet, Streaming, close_events, finish, gone, part, pour, timed
from onym.ai.endpoint._http import Receive, Send, start
from onym.ai.endpoint._kept import again, kept_answer, kept_events
from onym.ai.endpoint._places import Places
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

T = TypeVar("T")


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
        self._places = Places(limits)
        self._keeper: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Let go of the thread that keeps answers."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.shutdown(wait=False)

    async def run(self, resource: Resource, call: Call, who: str) -> Answer | Streaming:
        """The handler's answer; `who` is whose share it takes of the places.

        Raises what the handler raises, `aiip.unavailable`, `aiip.too-many-requests`, `aiip.upstream-timeout`.
        """
        return await self._entered(resource, call, self._places.take(who))

    async def _entered(
        self, resource: Resource, call: Call, release: Callable[[], None]
    ) -> Answer | Streaming:
        try:
            found: Answer | Streaming = await self._within(self._limits.seconds, self._begin(resource, call))
        except BaseException:
            release()
            raise
        if isinstance(found, Answer):
            release()
            if len(found.body) > self._limits.answer:
                raise OnymError("the answer is longer than the endpoint sends", code="aiip.internal")
            return found
        found.release = release
        return found

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
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope, who: str
    ) -> Answer | Streaming:
        """The answer under a key: given again, or made now and kept, whoever goes away meanwhile."""
        # first: "come again later" must not become what the key is answered with
        release = self._places.take(who)
        task = self._own(self._kept(resource, call, store, scope, release))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._unheard, call))
            raise

    async def _kept(
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope, release: Callable[[], None]
    ) -> Answer | Streaming:
        try:
            stored = await self._keep(store.begin, scope, call.request_hash, self._clock())
        except BaseException:
            release()
            raise
        if stored.answer is None:
            return await self._first(resource, call, store, scope, release)
        try:
            found = again(stored.answer, self._limits.stream_seconds)
        except BaseException:
            release()
            raise
        if isinstance(found, Answer):
            release()
        else:
            found.release = release
        return found

    def _unheard(self, call: Call, task: asyncio.Task[Answer | Streaming]) -> None:
        """Nobody waits for this answer any more. Events that a key is bound to are taken all the same."""
        if task.cancelled() or task.exception() is not None:
            return
        found = task.result()
        if isinstance(found, Streaming):
            self._own(self._drain(found, call))

    async def _drain(self, stream: Streaming, call: Call) -> None:
        try:
            if stream.ends is not None:
                await pour(stream, Wire(call.request_hash, self._limits), Outlet(None, lasting=True))
        except Exception as error:  # noqa: BLE001 - the log is all that can be told
            self._tell(timed(error), str(call.uri.without_query))
        finally:
            try:
                await finish(stream)
            finally:
                stream.release()

    async def _first(
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope, release: Callable[[], None]
    ) -> Answer | Streaming:
        try:
            found = await self._entered(resource, call, release)
        except Exception as error:  # noqa: BLE001 - the refusal is the answer that this key has
            found = self._tell(error, scope.target)
        except BaseException:
            store.interrupt(scope)
            raise
        if isinstance(found, Answer):
            await self._note(scope, store.complete, kept_answer(found))
            return found

        async def ends(events: list[StreamEvent] | None) -> None:
            if events is None:
                await self._note(scope, store.interrupt)
            else:
                await self._note(scope, store.complete, kept_events(events))

        found.ends = ends
        return found

    async def _note(self, scope: Scope, work: Callable[..., None], *args: Any) -> None:
        try:
            await self._keep(work, scope, *args)
        except AIIPError as error:
            # it has happened, and whoever asked is told; the log says that its key is not answered again
            self._tell(error, scope.target)

    async def _keep(self, work: Callable[..., Any], *args: Any) -> Any:
        """A call of the store, which waits for the disk, in a thread of its own."""
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(1, thread_name_prefix="onym-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._keeper, work, *args)

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it as a task that is not forgotten, whoever waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it was told to whoever waited; asyncio shall not tell it again

    async def send(self, stream: Streaming, asked: Asked, receive: Receive, send: Send) -> None:
        """Send the events and the receipt that makes them count.

        A caller that goes away ends the stream, and so does whoever cancels this: the function has ended by
        then, but for a plain generator at work in its thread, which ends with its next event. A key binds the
        endpoint to what it has begun; the rest of that is taken, and sent to nobody.
        """
        bound = stream.ends is not None
        outlet = Outlet(send, lasting=bound)
        work = self._own(self._send(stream, asked, outlet))
        watch = None if bound else self._own(gone(receive))
        ending = [each for each in (watch, None if bound else work) if each is not None]
        try:
            await asyncio.wait({work, *ending}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            outlet.close()  # whoever cancels may answer in another way
            raise
        finally:
            for each in ending:
                each.cancel()
            if ending:
                await asyncio.wait(ending)
        if not work.cancelled():
            work.result()

    async def _send(self, stream: Streaming, asked: Asked, send: Outlet) -> None:
        answer = Answer(content_type=EVENTS, headers=stream.headers)
        wire = Wire(asked.request_hash, self._limits)
        try:
            try:
                await start(send, answer)
                last = await self._poured(stream, asked, answer, wire, send)
                await part(send, last)
            finally:
                await finish(stream)
            await part(send, b"", more=False)
        finally:
            stream.release()

    async def _poured(
        self, stream: Streaming, asked: Asked, answer: Answer, wire: Wire, send: Outlet
    ) -> bytes:
        """The last event, after all others: the receipt, or the problem that ended them."""
        try:
            await pour(stream, wire, send)
            return encode_event("receipt", self.signing.stream(asked, answer, wire.end))
        except Exception as error:  # noqa: BLE001 - without a receipt, nothing of the stream counts
            told = self._tell(timed(error), asked.subject)
            return encode_event("problem", told.body.decode())


async def _joined(first: StreamEvent | None, rest: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamEvent]:
    """The events again, from the one that was taken to see whether they begin at all."""
    try:
        if first is not None:
            yield first
            async for event in rest:
                yield event
    finally:
        await close_events(rest)
