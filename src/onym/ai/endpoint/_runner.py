"""Running a handler: concurrency limits, timeouts, idempotent replay and streaming.

A call with an idempotency key runs once, even if the caller disconnects, and its stored answer is sent again
on a retry (AIIP/HTTPS v1, 3.11).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from onym.ai.endpoint import responses
from onym.ai.endpoint.context import Answer, Call, Caller, Limits, StreamEvent
from onym.ai.endpoint.idempotency import INTERRUPTED_HINT, IdempotencyStore, KeyScope
from onym.ai.endpoint.signing import ReceiptRequest, ReceiptSigner, validate_answer
from onym.ai.records import EVENTS
from onym.common.concurrency import TOTAL, ConcurrencyLimiter, TaskSet
from onym.errors import AIIPError, OnymError
from onym.net.hosts import get_client_network

T = TypeVar("T")


class CallDeadline:
    """The time limit of one call with a key, `seconds` from now.

    While `lasting` is true, the call runs in a thread, which cannot be cancelled and so has no time limit.
    """

    def __init__(self, seconds: float, *, lasting: bool) -> None:
        self.lasting = lasting
        self._task: asyncio.Task[Any] | None = None
        self._deadline = asyncio.get_running_loop().time() + seconds
        self.limit = asyncio.timeout_at(None if lasting else self._deadline)

    def activate(self) -> None:
        """Make this the deadline of the current task and of everything that it awaits."""
        self._task = asyncio.current_task()
        CURRENT_DEADLINE.set(self)

    def start_limit(self) -> None:
        """Apply the time limit: the thread has returned an awaitable, which can be cancelled."""
        # a thread has the context of its call, and may run its own event loop
        if self.lasting and self._task is asyncio.current_task():
            self.lasting = False
            self.limit.reschedule(self._deadline)


#: the deadline of the call with a key that runs in this task
CURRENT_DEADLINE: Final[ContextVar[CallDeadline | None]] = ContextVar("CURRENT_DEADLINE", default=None)


def make_limiter(limits: Limits) -> ConcurrencyLimiter:
    """Return the limiter for invocations: all of them, and those of one caller."""

    def make_error(group: str) -> AIIPError:
        if group == TOTAL:
            message = "the endpoint runs as many invocations as it allows"
            return AIIPError(message, code="aiip.unavailable", retryable=True)
        message = "the caller has as many running invocations as the endpoint allows"
        hint = "Wait for one to end. A stream counts until it has been read."
        return AIIPError(message, code="aiip.too-many-requests", retryable=True, hint=hint)

    return ConcurrencyLimiter({TOTAL: limits.concurrent, "caller": limits.of_one_caller}, make_error)


def get_caller_key(caller: Caller, peer: Any) -> str:
    """Return the key of the caller's share: the client named in the token, or the network address.

    `peer` is `client` of the ASGI scope; callers on a socket without addresses share one key.
    """
    if caller.client_id is not None:
        return f"client {caller.client_id}"
    return f"address {get_client_network(str(peer[0]) if peer else '')}"


_REPLAYED: Final = (("Idempotency-Replayed", "?1"),)
_PACK: Final = msgspec.msgpack.Encoder()


class _AnswerRecord(msgspec.Struct, array_like=True):
    """A stored answer: a whole one, or the events of a stream."""

    status: int
    content_type: str | None
    body: bytes
    headers: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str | None], ...] | None = None


_UNPACK: Final = msgspec.msgpack.Decoder(_AnswerRecord)


def encode_answer(answer: Answer) -> bytes:
    """Encode a whole answer for the store."""
    return _PACK.encode(_AnswerRecord(answer.status, answer.content_type, answer.body, answer.headers))


def encode_events(events: Iterable[StreamEvent]) -> bytes:
    """Encode the events of a stream for the store."""
    rows = tuple((event.data, event.event, event.id) for event in events)
    return _PACK.encode(_AnswerRecord(200, EVENTS, b"", (), rows))


def decode_stored_answer(octets: bytes, seconds: float) -> Answer | responses.StreamingAnswer:
    """Decode a stored answer; a stream may take `seconds`. Needs a running event loop."""
    stored = _UNPACK.decode(octets)
    if stored.events is not None:
        deadline = asyncio.get_running_loop().time() + seconds
        return responses.StreamingAnswer(
            events=_replay_events(stored.events), headers=_REPLAYED, deadline=deadline
        )
    return Answer(
        status=stored.status,
        content_type=stored.content_type,
        body=stored.body,
        headers=(*stored.headers, *_REPLAYED),
    )


async def _replay_events(rows: tuple[tuple[str, str, str | None], ...]) -> AsyncIterator[StreamEvent]:
    for data, event, name in rows:
        yield StreamEvent(data=data, event=event, id=name)


_TIMEOUT_MESSAGE: Final = "the invocation exceeded the endpoint's time limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCall:
    """One call with an idempotency key. `release` frees its slot."""

    resource: responses.Resource
    call: Call
    store: IdempotencyStore
    scope: KeyScope
    release: Callable[[], None]
    #: the transaction of an approval, which is spent when the call begins
    spend: str | None = None


@dataclass
class HandlerRunner:
    """Runs handlers, at most `limits.concurrent` at a time. `make_problem` makes an answer of an error."""

    signing: ReceiptSigner
    limits: Limits
    clock: Callable[[], float]
    make_problem: Callable[..., Answer]

    def __post_init__(self) -> None:
        self._limiter = make_limiter(self.limits)
        self._tasks = TaskSet()

    async def run(
        self, resource: responses.Resource, call: Call, caller_key: str
    ) -> Answer | responses.StreamingAnswer:
        """Return the handler's answer. `caller_key` identifies the caller for its share of the slots.

        Raises what the handler raises, `aiip.unavailable`, `aiip.too-many-requests`, `aiip.upstream-timeout`.
        """
        release = self._limiter.acquire(caller=caller_key)
        limit = asyncio.timeout(self.limits.seconds)
        try:
            async with limit:
                return await self._run_handler(resource, call, release)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AIIPError(_TIMEOUT_MESSAGE, code="aiip.upstream-timeout") from error

    async def run_once(
        self,
        resource: responses.Resource,
        call: Call,
        store: IdempotencyStore,
        scope: KeyScope,
        caller_key: str,
        spend: str | None = None,
    ) -> Answer | responses.StreamingAnswer:
        """Return the answer for a key: the stored one, or a new one, even if the caller disconnects.

        A new call spends the approval whose transaction is `spend`.
        """
        # before the store is used: a full endpoint must not become the stored answer
        release = self._limiter.acquire(caller=caller_key)
        keyed = KeyedCall(
            resource=resource, call=call, store=store, scope=scope, release=release, spend=spend
        )
        task = self._tasks.spawn(self._find_or_run(keyed))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._handle_abandoned, keyed.call))
            raise

    async def _find_or_run(self, keyed: KeyedCall) -> Answer | responses.StreamingAnswer:
        try:
            stored = await keyed.store.begin(
                keyed.scope, keyed.call.request_hash, self.clock(), spend=keyed.spend
            )
            answer = None if stored is None else decode_stored_answer(stored, self.limits.stream_seconds)
        except BaseException:
            keyed.release()
            raise
        if answer is None:
            return await self._run_first(keyed)
        if isinstance(answer, Answer):
            keyed.release()
        else:
            answer.release = keyed.release
        return answer

    async def _run_first(self, keyed: KeyedCall) -> Answer | responses.StreamingAnswer:
        """Run the call.

        After the time limit the caller gets an error response; a thread runs on, in its slot.
        """
        lasting = getattr(keyed.resource.handler, "lasts", False)  # in a thread, which cannot be cancelled
        deadline = CallDeadline(self.limits.seconds, lasting=lasting)
        work = self._tasks.spawn(self._run_and_store(keyed, deadline))
        await asyncio.wait({work}, timeout=self.limits.seconds if deadline.lasting else None)
        if not deadline.lasting:
            await asyncio.wait({work})
        if work.done():
            return work.result()
        error = AIIPError(
            f"{_TIMEOUT_MESSAGE} and is still running",
            code="aiip.upstream-timeout",
            hint="Send the request again with the same idempotency key to get its result.",
        )
        return self.make_problem(error, keyed.scope.target, final=True)

    async def _run_and_store(
        self, keyed: KeyedCall, deadline: CallDeadline
    ) -> Answer | responses.StreamingAnswer:
        deadline.activate()
        answer: Answer | responses.StreamingAnswer
        try:
            async with deadline.limit:
                answer = await self._run_handler(keyed.resource, keyed.call, keyed.release)
            encoded = encode_answer(answer) if isinstance(answer, Answer) else b""
        except Exception as error:  # noqa: BLE001 - the error response is the answer of this key
            if isinstance(error, TimeoutError) and deadline.limit.expired():
                return await self._handle_timeout(keyed, error)
            answer = self.make_problem(error, keyed.scope.target, final=True)
            encoded = encode_answer(answer)
        except BaseException:
            keyed.store.abandon(keyed.scope)
            raise
        if isinstance(answer, responses.StreamingAnswer):
            answer.ends = partial(self._store_stream, keyed)
        else:
            await self._store_answer(keyed, encoded)
        return answer

    async def _handle_timeout(self, keyed: KeyedCall, cause: TimeoutError) -> Answer:
        """Return the error response of a call that was cancelled; it is unknown how far the call came."""
        await self._mark_interrupted(keyed)
        error = AIIPError(
            _TIMEOUT_MESSAGE,
            code="aiip.upstream-timeout",
            hint=INTERRUPTED_HINT,
        )
        error.__cause__ = cause
        return self.make_problem(error, keyed.scope.target, final=True)

    async def _store_stream(self, keyed: KeyedCall, events: list[StreamEvent] | None) -> None:
        if events is None:
            await self._mark_interrupted(keyed)
        else:
            await self._store_answer(keyed, encode_events(events))

    async def _store_answer(self, keyed: KeyedCall, encoded: bytes) -> None:
        try:
            await keyed.store.complete(keyed.scope, encoded)
        except AIIPError as error:
            # the caller gets the answer, but a retry will not; the log contains the reason
            self.make_problem(error, keyed.scope.target)
            if not keyed.store.closed:  # closing interrupts running calls by itself
                await self._mark_interrupted(keyed)

    async def _mark_interrupted(self, keyed: KeyedCall) -> None:
        try:
            await keyed.store.interrupt(keyed.scope)
        except AIIPError as error:
            self.make_problem(error, keyed.scope.target)

    def _handle_abandoned(self, call: Call, task: asyncio.Task[Answer | responses.StreamingAnswer]) -> None:
        """Read the events of a stream whose caller has disconnected, so that they are stored for its key."""
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        if isinstance(answer, responses.StreamingAnswer):
            self._tasks.spawn(self._drain_stream(answer, call))

    async def _drain_stream(self, stream: responses.StreamingAnswer, call: Call) -> None:
        try:
            if stream.ends is not None:
                await responses.send_events(
                    stream,
                    responses.EventEncoder(call.request_hash, self.limits),
                    responses.ResponseSender(None, lasting=True),
                )
        except Exception as error:  # noqa: BLE001 - no caller is left, so it is only logged
            self.make_problem(error, str(call.uri.without_query))
        finally:
            try:
                await responses.close_stream(stream)
            finally:
                stream.release()

    async def _run_handler(
        self, resource: responses.Resource, call: Call, release: Callable[[], None]
    ) -> Answer | responses.StreamingAnswer:
        try:
            with responses.contain_faults():
                answer = await resource.handler.invoke(call)
            if not isinstance(answer, Answer):
                events = responses.HandlerEvents(answer)
                await events.prefetch()
                deadline = asyncio.get_running_loop().time() + self.limits.stream_seconds
                return responses.StreamingAnswer(events=events, deadline=deadline, release=release)
        except BaseException:
            release()
            raise
        release()
        validate_answer(answer)
        if len(answer.body) > self.limits.answer:
            message = f"the handler's answer is longer than {self.limits.answer} bytes"
            raise OnymError(message, code="aiip.internal")
        return answer

    async def send_stream(
        self,
        stream: responses.StreamingAnswer,
        request: ReceiptRequest,
        receive: responses.Receive,
        send: responses.Send,
    ) -> None:
        """Send the events, and the receipt at the end.

        The stream ends if the caller disconnects or this call is cancelled. The function has ended by then;
        only a synchronous generator in its thread ends with its next event. With an idempotency key, the
        remaining events are read and stored, but not sent.
        """
        bound = stream.ends is not None
        sender = responses.ResponseSender(send, lasting=bound)
        work = self._tasks.spawn(self._send_events(stream, request, sender))
        ending = [] if bound else [self._tasks.spawn(responses.wait_for_disconnect(receive)), work]
        try:
            await asyncio.wait({work, *ending}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            sender.close()  # the canceller may send another response
            raise
        finally:
            for task in ending:
                task.cancel()
            if ending:
                await asyncio.wait(ending)
        if not work.cancelled():
            work.result()

    async def _send_events(
        self, stream: responses.StreamingAnswer, request: ReceiptRequest, send: responses.ResponseSender
    ) -> None:
        answer = Answer(content_type=EVENTS, headers=stream.headers)
        encoder = responses.EventEncoder(request.request_hash, self.limits)
        try:
            try:
                await responses.send_head(send, answer)
                last = await self._send_until_end(stream, request, answer, encoder, send)
                await responses.send_body_part(send, last)
            finally:
                await responses.close_stream(stream)
            await responses.send_body_part(send, b"", more=False)
        finally:
            stream.release()

    async def _send_until_end(
        self,
        stream: responses.StreamingAnswer,
        request: ReceiptRequest,
        answer: Answer,
        encoder: responses.EventEncoder,
        send: responses.ResponseSender,
    ) -> bytes:
        """Send the events and return the last one: the receipt, or the problem that ended the stream."""
        final = stream.ends is not None
        try:
            await responses.send_events(stream, encoder, send)
            return responses.encode_event(
                "receipt", self.signing.sign_stream(request, answer, encoder.chain.end)
            )
        except Exception as error:  # noqa: BLE001 - without a receipt, the stream is invalid
            problem = self.make_problem(error, request.subject, final=final)
            return responses.encode_event("problem", problem.body.decode())
