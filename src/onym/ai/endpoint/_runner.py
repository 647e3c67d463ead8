"""Running a handler: concurrency limits, timeouts, idempotent replay and streaming.

A call under an idempotency key runs once, even if the caller disconnects, and its stored answer is sent
again on a retry (AIIP/HTTPS v1, 3.11).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from onym.ai.content import EVENTS
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.ai.endpoint.responses import (
    EventEncoder,
    HandlerEvents,
    Receive,
    ResponseSender,
    Send,
    StreamingAnswer,
    close_stream,
    contain_faults,
    encode_event,
    send_body_part,
    send_events,
    send_head,
    wait_for_disconnect,
)
from onym.ai.endpoint.signing import validate_answer
from onym.errors import AIIPError, OnymError
from onym.net.hosts import get_client_network

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Call, Caller, Limits
    from onym.ai.endpoint.idempotency import IdempotencyStore, KeyScope
    from onym.ai.endpoint.resources import Resource
    from onym.ai.endpoint.signing import ReceiptRequest, ReceiptSigner

T = TypeVar("T")


class TaskSet:
    """Tasks of one endpoint, each held until it has ended."""

    def __init__(self) -> None:
        self._held: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._held))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it as a task that is not forgotten, whoever waits for it."""
        task = asyncio.create_task(work)
        self._held.add(task)
        task.add_done_callback(self._discard_task)
        return task

    def _discard_task(self, task: asyncio.Task[Any]) -> None:
        self._held.discard(task)
        if not task.cancelled():
            task.exception()  # it was told to whoever waited; asyncio shall not tell it again


class CallDeadline:
    """The time of one call under a key, `seconds` from now.

    While `lasting`, its work is that of a thread, which goes on where it is given up: that has no limit.
    """

    def __init__(self, seconds: float, *, lasting: bool) -> None:
        self.lasting = lasting
        self._task: asyncio.Task[Any] | None = None
        self._deadline = asyncio.get_running_loop().time() + seconds
        self.limit = asyncio.timeout_at(None if lasting else self._deadline)

    def activate(self) -> None:
        """Make it the term of this task, and of what that awaits."""
        self._task = asyncio.current_task()
        CURRENT_DEADLINE.set(self)

    def start_limit(self) -> None:
        """The thread has returned something to await: that can be ended, and is when the time is over."""
        # a thread knows the context of its call, and may run a loop of its own
        if self.lasting and self._task is asyncio.current_task():
            self.lasting = False
            self.limit.reschedule(self._deadline)


#: of the call under a key that this task makes
CURRENT_DEADLINE: Final[ContextVar[CallDeadline | None]] = ContextVar("TERM", default=None)


class StoreThread:
    """Calls of the store, which waits for the disk, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self.closed = False

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """What the call gives. Raises what it raises, and AIIPError `aiip.unavailable` once it is closed."""
        if self.closed:
            raise AIIPError("the endpoint was closed meanwhile", code="aiip.unavailable")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="onym-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """Let go of the thread, for good."""
        self.closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)


class ConcurrencyLimiter:
    """Counts what runs, by `Limits.concurrent` and `Limits.share`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()
        self._running = 0

    def __len__(self) -> int:
        return self._running

    def acquire(self, who: str) -> Callable[[], None]:
        """A place for this caller, given back by the first call of what is returned.

        Raises AIIPError `aiip.unavailable` where all are taken, `aiip.too-many-requests` where the caller has
        its share.
        """
        if self._running >= self._limits.concurrent:
            raise AIIPError(
                "too many invocations run at this moment", code="aiip.unavailable", retryable=True
            )
        if self._taken[who] >= self._limits.of_one_caller:
            raise AIIPError(
                "too many invocations of this caller run at this moment",
                code="aiip.too-many-requests",
                retryable=True,
                hint="wait for one to end; a stream counts until it has been read",
            )
        self._taken[who] += 1
        self._running += 1
        held = True

        def give() -> None:
            nonlocal held
            if held:
                held = False
                self._release(who)

        return give

    def _release(self, who: str) -> None:
        self._running -= 1
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


def get_caller_key(caller: Caller, peer: Any) -> str:
    """Whose share it is: the client's that a token names, else that of a network address.

    `peer` is `client` of the ASGI scope: all who come by a socket without addresses are one.
    """
    if caller.client_id is not None:
        return f"client {caller.client_id}"
    return f"address {get_client_network(str(peer[0]) if peer else '')}"


_REPLAYED: Final = (("Idempotency-Replayed", "?1"),)
_PACK: Final = msgspec.msgpack.Encoder()


class _AnswerRecord(msgspec.Struct, array_like=True):
    """An answer: whole, or the events of a stream."""

    status: int
    content_type: str | None
    body: bytes
    headers: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str | None], ...] | None = None


_UNPACK: Final = msgspec.msgpack.Decoder(_AnswerRecord)


def encode_answer(answer: Answer) -> bytes:
    """A whole answer, to be stored."""
    return _PACK.encode(_AnswerRecord(answer.status, answer.content_type, answer.body, answer.headers))


def encode_events(events: Iterable[StreamEvent]) -> bytes:
    """The events of a stream, to be stored."""
    rows = tuple((event.data, event.event, event.id) for event in events)
    return _PACK.encode(_AnswerRecord(200, EVENTS, b"", (), rows))


def decode_stored_answer(octets: bytes, seconds: float) -> Answer | StreamingAnswer:
    """What was stored, to be sent once more; a stream within so many seconds. Needs a running loop."""
    kept = _UNPACK.decode(octets)
    if kept.events is not None:
        deadline = asyncio.get_running_loop().time() + seconds
        return StreamingAnswer(events=_replay_events(kept.events), headers=_REPLAYED, deadline=deadline)
    return Answer(
        status=kept.status,
        content_type=kept.content_type,
        body=kept.body,
        headers=(*kept.headers, *_REPLAYED),
    )


async def _replay_events(kept: tuple[tuple[str, str, str | None], ...]) -> AsyncIterator[StreamEvent]:
    for data, event, name in kept:
        yield StreamEvent(data=data, event=event, id=name)


#: runs a handler, and gives its place back when it has ended
RunHandler: TypeAlias = Callable[
    ["Resource", "Call", Callable[[], None]], Awaitable[Answer | StreamingAnswer]
]
_TIMEOUT_MESSAGE = "the invocation took longer than the endpoint allows"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCall:
    """One call under a key. `release` gives its place back, `keeper` asks the store."""

    resource: Resource
    call: Call
    store: IdempotencyStore
    keeper: StoreThread
    scope: KeyScope
    release: Callable[[], None]

    @property
    def lasts(self) -> bool:
        """Does its work begin in a thread, which goes on where it is given up?"""
        return bool(getattr(self.resource.handler, "lasts", False))


class IdempotentRunner:
    """Runs calls under keys by `enter`; `tell` makes an answer of an error."""

    def __init__(
        self,
        enter: RunHandler,
        tasks: TaskSet,
        limits: Limits,
        clock: Callable[[], float],
        tell: Callable[..., Answer],
    ) -> None:
        self._enter = enter
        self._tasks = tasks
        self._limits = limits
        self._clock = clock
        self._tell = tell
        self.keeper = StoreThread()

    def close(self) -> None:
        """Let go of the thread that keeps answers; calls from now on have another."""
        self.keeper.close()
        self.keeper = StoreThread()

    async def run(self, keyed: KeyedCall) -> Answer | StreamingAnswer:
        """The answer under a key: given again, or made now and kept."""
        task = self._tasks.spawn(self._find_or_run(keyed))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._handle_abandoned, keyed.call))
            raise

    async def _find_or_run(self, keyed: KeyedCall) -> Answer | StreamingAnswer:
        begin = keyed.store.begin
        try:
            stored = await keyed.keeper.run(begin, keyed.scope, keyed.call.request_hash, self._clock())
            found = (
                None
                if stored.answer is None
                else decode_stored_answer(stored.answer, self._limits.stream_seconds)
            )
        except BaseException:
            keyed.release()
            raise
        if found is None:
            return await self._run_first(keyed)
        if isinstance(found, Answer):
            keyed.release()
        else:
            found.release = keyed.release
        return found

    async def _run_first(self, keyed: KeyedCall) -> Answer | StreamingAnswer:
        """What it comes to. Whoever asked is told when the time is over; a thread goes on, in its place."""
        term = CallDeadline(self._limits.seconds, lasting=keyed.lasts)
        work = self._tasks.spawn(self._run_and_store(keyed, term))
        await asyncio.wait({work}, timeout=self._limits.seconds if term.lasting else None)
        if not term.lasting:
            await asyncio.wait({work})
        if work.done():
            return work.result()
        error = AIIPError(
            f"{_TIMEOUT_MESSAGE}, and goes on",
            code="aiip.upstream-timeout",
            hint="ask again with the same idempotency key: what it comes to will be the answer",
        )
        return self._tell(error, keyed.scope.target, final=True)

    async def _run_and_store(self, keyed: KeyedCall, term: CallDeadline) -> Answer | StreamingAnswer:
        term.activate()
        found: Answer | StreamingAnswer
        try:
            async with term.limit:
                found = await self._enter(keyed.resource, keyed.call, keyed.release)
            octets = encode_answer(found) if isinstance(found, Answer) else None
        except Exception as error:  # noqa: BLE001 - the refusal is the answer that this key has
            if isinstance(error, TimeoutError) and term.limit.expired():
                return await self._handle_timeout(keyed, error)
            found = self._tell(error, keyed.scope.target, final=True)
            octets = encode_answer(found)
        except BaseException:
            with suppress(AIIPError):  # a store that is closed has said so already
                keyed.store.interrupt(keyed.scope)
            raise
        if isinstance(found, StreamingAnswer):
            found.ends = partial(self._store_stream, keyed)
        else:
            await self._store_answer(keyed, octets or b"")
        return found

    async def _handle_timeout(self, keyed: KeyedCall, error: TimeoutError) -> Answer:
        """It was ended when its time was over, and nobody knows how far it came."""
        await self._mark_interrupted(keyed)
        told = AIIPError(
            _TIMEOUT_MESSAGE,
            code="aiip.upstream-timeout",
            hint="interrupted: find out whether it took effect, then use a new key",
        )
        told.__cause__ = error
        return self._tell(told, keyed.scope.target, final=True)

    async def _store_stream(self, keyed: KeyedCall, events: list[StreamEvent] | None) -> None:
        if events is None:
            await self._mark_interrupted(keyed)
        else:
            await self._store_answer(keyed, encode_events(events))

    async def _store_answer(self, keyed: KeyedCall, octets: bytes) -> None:
        try:
            await keyed.keeper.run(keyed.store.complete, keyed.scope, octets)
        except AIIPError as error:
            # it has happened, and whoever asked is told; the log says that its key is not answered again
            self._tell(error, keyed.scope.target)
            if not keyed.keeper.closed:  # which interrupts what runs on
                await self._mark_interrupted(keyed)

    async def _mark_interrupted(self, keyed: KeyedCall) -> None:
        try:
            await keyed.keeper.run(keyed.store.interrupt, keyed.scope)
        except AIIPError as error:
            self._tell(error, keyed.scope.target)

    def _handle_abandoned(self, call: Call, task: asyncio.Task[Answer | StreamingAnswer]) -> None:
        """Nobody waits for this answer any more. Events that a key is bound to are taken all the same."""
        if task.cancelled() or task.exception() is not None:
            return
        found = task.result()
        if isinstance(found, StreamingAnswer):
            self._tasks.spawn(self._drain_stream(found, call))

    async def _drain_stream(self, stream: StreamingAnswer, call: Call) -> None:
        try:
            if stream.ends is not None:
                await send_events(
                    stream, EventEncoder(call.request_hash, self._limits), ResponseSender(None, lasting=True)
                )
        except Exception as error:  # noqa: BLE001 - the log is all that can be told
            self._tell(error, str(call.uri.without_query))
        finally:
            try:
                await close_stream(stream)
            finally:
                stream.release()


class HandlerRunner:
    """Runs handlers, `limits.concurrent` of them at a time. `tell` makes an answer of an error."""

    def __init__(
        self, signing: ReceiptSigner, limits: Limits, clock: Callable[[], float], tell: Callable[..., Answer]
    ) -> None:
        self.signing = signing
        self._limits = limits
        self._tell = tell
        self._places = ConcurrencyLimiter(limits)
        self._tasks = TaskSet()
        self._once = IdempotentRunner(self._run_handler, self._tasks, limits, clock, tell)

    def close(self) -> None:
        """Let go of the thread that keeps answers."""
        self._once.close()

    async def run(self, resource: Resource, call: Call, who: str) -> Answer | StreamingAnswer:
        """The handler's answer; `who` is whose share it takes of the places.

        Raises what the handler raises, `aiip.unavailable`, `aiip.too-many-requests`, `aiip.upstream-timeout`.
        """
        release = self._places.acquire(who)
        limit = asyncio.timeout(self._limits.seconds)
        try:
            async with limit:
                return await self._run_handler(resource, call, release)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AIIPError(
                "the invocation took longer than the endpoint allows", code="aiip.upstream-timeout"
            ) from error

    async def run_once(
        self, resource: Resource, call: Call, store: IdempotencyStore, scope: KeyScope, who: str
    ) -> Answer | StreamingAnswer:
        """The answer under a key: given again, or made now and kept, whoever goes away meanwhile."""
        # first: "come again later" must not become what the key is answered with
        release = self._places.acquire(who)
        return await self._once.run(
            KeyedCall(
                resource=resource,
                call=call,
                store=store,
                keeper=self._once.keeper,
                scope=scope,
                release=release,
            )
        )

    async def _run_handler(
        self, resource: Resource, call: Call, release: Callable[[], None]
    ) -> Answer | StreamingAnswer:
        try:
            found = await self._invoke_handler(resource, call)
        except BaseException:
            release()
            raise
        if isinstance(found, StreamingAnswer):
            found.release = release
            return found
        release()
        validate_answer(found)
        if len(found.body) > self._limits.answer:
            raise OnymError("the answer is longer than the endpoint sends", code="aiip.internal")
        return found

    async def _invoke_handler(self, resource: Resource, call: Call) -> Answer | StreamingAnswer:
        with contain_faults():
            result = await resource.handler.invoke(call)
        if isinstance(result, Answer):
            return result
        events = HandlerEvents(result)
        await events.prefetch()
        deadline = asyncio.get_running_loop().time() + self._limits.stream_seconds
        return StreamingAnswer(events=events, deadline=deadline)

    async def send_stream(
        self, stream: StreamingAnswer, asked: ReceiptRequest, receive: Receive, send: Send
    ) -> None:
        """Send the events and the receipt that makes them count.

        A caller that goes away ends the stream, and so does whoever cancels this: the function has ended by
        then, but for a plain generator at work in its thread, which ends with its next event. A key binds the
        endpoint to what it has begun; the rest of that is taken, and sent to nobody.
        """
        bound = stream.ends is not None
        outlet = ResponseSender(send, lasting=bound)
        work = self._tasks.spawn(self._send_events(stream, asked, outlet))
        watch = None if bound else self._tasks.spawn(wait_for_disconnect(receive))
        ending = [task for task in (watch, None if bound else work) if task is not None]
        try:
            await asyncio.wait({work, *ending}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            outlet.close()  # whoever cancels may answer in another way
            raise
        finally:
            for task in ending:
                task.cancel()
            if ending:
                await asyncio.wait(ending)
        if not work.cancelled():
            work.result()

    async def _send_events(
        self, stream: StreamingAnswer, asked: ReceiptRequest, send: ResponseSender
    ) -> None:
        answer = Answer(content_type=EVENTS, headers=stream.headers)
        wire = EventEncoder(asked.request_hash, self._limits)
        try:
            try:
                await send_head(send, answer)
                last = await self._send_until_end(stream, asked, answer, wire, send)
                await send_body_part(send, last)
            finally:
                await close_stream(stream)
            await send_body_part(send, b"", more=False)
        finally:
            stream.release()

    async def _send_until_end(
        self,
        stream: StreamingAnswer,
        asked: ReceiptRequest,
        answer: Answer,
        wire: EventEncoder,
        send: ResponseSender,
    ) -> bytes:
        """The last event, after all others: the receipt, or the problem that ended them."""
        final = stream.ends is not None
        try:
            await send_events(stream, wire, send)
            return encode_event("receipt", self.signing.sign_stream(asked, answer, wire.chain_end))
        except Exception as error:  # noqa: BLE001 - without a receipt, nothing of the stream counts
            told = self._tell(error, asked.subject, final=final)
            return encode_event("problem", told.body.decode())
