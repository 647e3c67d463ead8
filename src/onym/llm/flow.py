"""A call as a generator: send, retry, decode. No I/O and no clock.

Each flow yields `Send` or `Wait` and receives a `Reply` or None; `onym.net` drives it. Retries are decided
here only: for 408, 409, 429, 5xx and lost connections, with full jitter, within the call's timeout.
Retry-After is honoured. A stream that has begun is never retried.
"""

from __future__ import annotations

import dataclasses
import random
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast

from msgspec import structs

from onym import errors
from onym.llm.dialects import find_request_id
from onym.llm.mapping import make_value_key
from onym.llm.types import (
    NO_HEADERS,
    OPERATIONS,
    Completion,
    Event,
    Finish,
    ModelInfo,
    ModelPage,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from onym.net.limits import RetryPolicy
from onym.net.messages import Flow, Headers, Reply, Send, Wait

if TYPE_CHECKING:
    from onym.llm.dialects import Decoder
    from onym.llm.plan import Plan
    from onym.net.messages import AsyncStreamBody, StreamBody

#: the typed codes by which an API says that a parameter, or this value of it, is not for this model
_PARAMETER_CODE, _VALUE_CODE = "unsupported_parameter", "unsupported_value"
#: the caller's own instructions, which are not parameters of the server
_NEVER_DROPPED = frozenset({"system", "stream"})
T = TypeVar("T")

#: limits of a list of models, because a server may never end it
_MOST_PAGES = 100
_MOST_MODELS = 50_000
#: bytes of the query for the next page, which Onym sends
_LONGEST_NEXT = 8192


class Clock(Protocol):
    """The clock and the random numbers of a flow."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def time(self) -> float:
        """Seconds since 1970."""

    def random(self) -> float:
        """A random number from 0 to below 1."""


class _SystemClock:
    """The clock of this computer."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
    random = staticmethod(random.random)


SYSTEM_CLOCK: Clock = _SystemClock()


class OpenedStream(NamedTuple):
    """A stream that has begun: the reply with its open body, the decoder that reads it, and the ID."""

    reply: Reply
    decoder: Decoder
    request_id: str | None = None


def call_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[Any]:
    """Send a request and return its answer: the `result` of the plan's operation."""
    return _run_call(plan, clock, _decode_answer)


def stream_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[OpenedStream]:
    """Open a stream. The caller reads and closes `reply.stream`."""
    return _run_call(plan, clock, _open_decoder)


def models_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[tuple[ModelInfo, ...]]:
    """Return the server's list of models, all pages within the plan's timeout."""
    models: list[ModelInfo] = []
    end = clock.monotonic() + plan.timeout
    for _ in range(_MOST_PAGES):
        page = yield from _run_call(plan, clock, _decode_answer)
        models += page.models
        if page.next is None:
            return tuple(models)
        if len(page.next) > _LONGEST_NEXT or len(models) > _MOST_MODELS:
            break
        plan = plan.with_next_page(page.next, max(0.001, end - clock.monotonic()))
    raise errors.MalformedResponseError(
        "the server's list of models is too long", endpoint=plan.endpoint.text, status=200
    )


def model_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[ModelInfo]:
    """Return what the server reports about one model, from its own route or from the list of models."""
    if plan.operation == "model":
        try:
            info: ModelInfo = yield from call_flow(plan, clock)
            return info
        except errors.NotFoundError:
            # servers with several API formats may have only the list
            listing = plan.with_model_list()
            if listing is None:
                raise
            plan = listing
    model = plan.endpoint.model
    names = list_model_ids(model)
    for listed in (yield from models_flow(plan, clock)):
        if listed.id in names:
            return listed
    raise errors.NotFoundError(
        f"the server does not list the model {model}", endpoint=plan.endpoint.text, status=200
    )


def list_model_ids(model: str) -> frozenset[str]:
    """Return the IDs under which a server may list the model: without a tag, its tag is `latest` (Ollama)."""
    untagged = model.removesuffix(":latest")
    return frozenset((untagged, f"{untagged}:latest"))


def _decode_answer(plan: Plan, reply: Reply) -> Any:
    decode = getattr(plan.dialect, OPERATIONS[plan.operation].decoder)
    expected = {} if plan.expected is None else {"count": plan.expected}
    answer = decode(reply.status, reply.headers, reply.body, plan.exchange, **expected)
    if isinstance(answer, ModelPage | ModelInfo):
        for model in answer.models if isinstance(answer, ModelPage) else (answer,):
            # nobody else has these values yet, and a copy of each takes longer
            object.__setattr__(model, "headers", reply.headers)
            object.__setattr__(model, "request_id", find_request_id(reply.headers, plan.exchange))
    else:
        object.__setattr__(answer, "headers", reply.headers)
    return answer


def _open_decoder(plan: Plan, reply: Reply) -> OpenedStream:
    decoder = plan.dialect.stream_decoder(reply.status, reply.headers, plan.exchange)
    return OpenedStream(reply, decoder, find_request_id(reply.headers, plan.exchange))


def _run_call(plan: Plan, clock: Clock, read: Callable[[Plan, Reply], T]) -> Flow[T]:
    """Send until a 2xx response, a failure that a retry cannot fix, or the timeout."""
    request, timeout, stream = plan.request, plan.timeout, plan.stream
    start = clock.monotonic()
    left = timeout
    attempt = 0
    while True:
        failure: errors.NetError | errors.ProviderError
        try:
            reply: Reply = yield Send(request, left, stream, idle_timeout=plan.idle_timeout)
        except errors.NetError as error:
            plan.add_hint(error)
            failure = error
        else:
            if 200 <= reply.status < 300:
                return _read_response(plan, reply, read)
            failure = plan.decode_error(reply, clock.time())
            without = learn_rejection(plan, failure)
            if without is not None:
                # one parameter fewer each time, so this ends
                plan, request = without, without.request
                left = timeout - (clock.monotonic() - start)
                continue
        left = timeout - (clock.monotonic() - start)
        pause = _compute_pause(failure, attempt, plan.retries, left, clock)
        if pause is None:
            raise failure
        attempt += 1
        yield Wait(pause)
        if plan.endpoint.is_signed:
            request = plan.request  # a signature is good for minutes
        left = timeout - (clock.monotonic() - start)
        if left <= 0:
            raise failure


def _read_response(plan: Plan, reply: Reply, read: Callable[[Plan, Reply], T]) -> T:
    try:
        return read(plan, reply)
    except errors.OnymError as error:
        if isinstance(error, errors.ProviderError):
            error.headers = reply.headers
        # the decoder's frames contain the response, which may repeat the request
        raise errors.strip_frames(error) from None


def _compute_pause(
    failure: errors.NetError | errors.ProviderError, attempt: int, retries: int, left: float, clock: Clock
) -> float | None:
    """Return the seconds to wait before the next attempt, None if there is no next attempt."""
    if attempt >= retries or not failure.retryable:
        return None
    asked = failure.retry_after if isinstance(failure, errors.ProviderError) else None
    pause = RetryPolicy().delay(attempt, asked, clock.random)
    return pause if pause < left else None


def learn_rejection(plan: Plan, failure: errors.NetError | errors.ProviderError) -> Plan | None:
    """Remember a rejected parameter, and return the plan without it if parameters may be dropped.

    Only a parameter that is in the body under the rejected name is dropped: a server cannot remove the system
    prompt.
    """
    if not isinstance(failure, errors.BadRequestError):
        return None
    if failure.provider_code not in (_PARAMETER_CODE, _VALUE_CODE):
        return None
    wire = failure.parameter
    sent = [note for note in plan.notes if note.wire_name == wire and note.action in ("sent", "renamed")]
    if wire is None or not sent or sent[0].parameter in _NEVER_DROPPED or plan.body is None:
        return None
    rejected = sent[0]
    body = _remove_member(plan.body, wire.split("."))
    if body == plan.body:
        return None
    reason = f"the server rejected it before in this process (HTTP {failure.status}, {failure.provider_code})"
    key = wire if failure.provider_code == _PARAMETER_CODE else make_value_key(wire, rejected.value)
    plan.lessons.add_rejection(plan.endpoint.rejection_key, key, reason)
    if plan.on_unsupported == "error":
        return None
    # even with on_unsupported="drop": the caller could not know of this one
    warnings.warn(
        f"the server does not support {rejected.parameter}: Onym sent the request again without it",
        errors.OnymWarning,
        stacklevel=2,
    )
    dropped = dataclasses.replace(rejected, action="dropped", wire_name=None, reason=reason)
    notes = tuple(dropped if note is rejected else note for note in plan.notes)
    return structs.replace(plan, body=body, notes=notes)


def _remove_member(body: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    first, *rest = path
    if rest and isinstance(body.get(first), Mapping):
        return {**body, first: _remove_member(body[first], rest)}
    return {name: value for name, value in body.items() if name != first}


NO_USAGE = Usage()
#: seconds to wait after the last event for the end of the body, which some servers never send: about the
#: time that a new connection takes
_PATIENCE = 0.05


class Collector:
    """Builds a completion from the events of a stream."""

    __slots__ = ("_calls", "_custom", "_finish", "_reasoning", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[str]] = {}
        #: indexes of calls of custom tools
        self._custom: set[int] = set()
        self._finish: Finish | None = None

    @property
    def finished(self) -> bool:
        """Whether the last event of the stream arrived."""
        return self._finish is not None

    def add(self, event: Event) -> None:
        """Add the next event."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
        elif isinstance(event, ToolCallDelta):
            call = self._calls.setdefault(event.index, ["", "", ""])
            call[0] = event.id or call[0]
            call[1] = event.name or call[1]
            call[2] += event.arguments
            if event.custom:
                self._custom.add(event.index)
        else:
            self._finish = event

    def completion(
        self, model: str = "", usage: Usage = NO_USAGE, headers: Headers = NO_HEADERS
    ) -> Completion:
        """Return the answer so far, with the usage so far; after the last event, the whole answer."""
        finish = self._finish or Finish(reason="other", usage=usage)
        return Completion(
            text="".join(self._text),
            model=finish.model or model,
            finish_reason=finish.reason,
            reasoning="".join(self._reasoning) or None,
            refusal=finish.refusal,
            tool_calls=tuple(
                ToolCall(
                    id=call[0] or f"call_{index}",
                    name=call[1],
                    arguments=call[2],
                    custom=index in self._custom,
                )
                for index, call in sorted(self._calls.items())
            ),
            usage=finish.usage,
            request_id=finish.request_id,
            carried=finish.carried,
            headers=headers,
        )


class _StreamState:
    """The state of a stream: bytes go in, events come out, and a failure waits behind them."""

    _decoder: Decoder

    def __init__(self, model: str, endpoint: str) -> None:
        self.over = False
        self.headers = NO_HEADERS
        self.request_id: str | None = None
        self._model = model
        self._endpoint = endpoint
        self._collector = Collector()
        self._events: deque[Event] = deque()
        self._usage = NO_USAGE
        self._failure: errors.NetError | errors.ProviderError | None = None

    @property
    def patience(self) -> float:
        """Seconds to wait for the end of the body: 0 unless the caller has all events of the answer."""
        return _PATIENCE if self._collector.finished else 0

    def begin(self, opened: OpenedStream) -> None:
        """Set the decoder, the headers and the ID of the answer, which has begun."""
        self._decoder = opened.decoder
        self.headers = opened.reply.headers
        self.request_id = opened.request_id

    def next_event(self) -> Event | None:
        """Return the next event, None if more bytes are needed or the stream is over."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._collector.add(event)
        return event

    def feed(self, data: bytes) -> None:
        """Decode bytes of the body; b"" is its end."""
        if data:
            self._events.extend(self._decoder.feed(data))
            self._failure = self._decoder.error
        else:
            try:
                self._events.extend(self._decoder.close())
            except (errors.NetError, errors.ProviderError) as error:
                self._failure = error
        if self._failure is not None:
            if isinstance(self._failure, errors.ProviderError):
                self._failure.headers = self.headers
            # the decoder's frames contain the response, which may repeat the request
            errors.strip_frames(self._failure)
        self._usage = self._decoder.usage
        self.over = not data or self._decoder.done or self._failure is not None

    def mark_broken(self, error: errors.NetError) -> None:
        """Record that the body ended early."""
        self.over = True
        error.endpoint = self._endpoint
        self._failure = error

    def stop(self) -> None:
        """Drop the remaining events: the caller stops reading."""
        self.over = True
        self._events.clear()
        self._failure = None

    def raise_failure(self) -> None:
        """Raise the error that ended the stream, if there is one."""
        if self._failure is not None:
            self._failure.partial = self.partial()
            raise self._failure

    def partial(self) -> Completion:
        """Return the part of the answer that has arrived."""
        return self._collector.completion(self._model, self._usage, self.headers)

    def get_completion(self) -> Completion:
        """Return the completion. Raises UsageError if the stream was closed before its end."""
        if not self._collector.finished:
            message = "the stream was closed before its end: partial() returns the part that arrived"
            raise errors.UsageError(message, code="usage.closed-stream")
        return self.partial()


class Stream:
    """An answer that is still arriving: iterate over it for events, or over `text` for only the text.

    Use it in a `with` statement. Leaving the block, or `close()`, closes the connection if the answer was not
    read to its end, and the server stops. An error is raised after the events that arrived before it; its
    `partial` attribute contains them as a `Completion`.
    """

    def __init__(self, opened: OpenedStream, model: str, endpoint: str) -> None:
        self._body = cast("StreamBody", opened.reply.stream)
        self._progress = _StreamState(model, endpoint)
        self._progress.begin(opened)

    @property
    def headers(self) -> Headers:
        """The headers of the response; a cached answer has none."""
        return self._progress.headers

    @property
    def request_id(self) -> str | None:
        """The server's ID of the request, None if there is none."""
        return self._progress.request_id

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        progress = self._progress
        while (event := progress.next_event()) is None:
            if progress.over:
                self._close_body()
                progress.raise_failure()
                raise StopIteration
            try:
                progress.feed(self._body.read())
            except errors.NetError as error:
                progress.mark_broken(error)
        return event

    @property
    def text(self) -> Iterator[str]:
        """The pieces of text, without other events."""
        return (event.text for event in self if isinstance(event, TextDelta))

    def completion(self) -> Completion:
        """Read the rest of the stream and return the whole answer."""
        for _ in self:
            pass
        return self._progress.get_completion()

    def partial(self) -> Completion:
        """Return the events so far as a completion; `finish_reason` is `other` before the end."""
        return self._progress.partial()

    def close(self) -> None:
        """Stop reading and drop the remaining events. May be called again."""
        self._progress.stop()
        self._close_body()

    def _close_body(self) -> None:
        self._body.close(self._progress.patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream:
    """`Stream` for coroutines: the same events, read with `async for`.

    The call begins with `async with`, with `await`, or when the first event is read.
    """

    def __init__(self, opening: Callable[[], Awaitable[OpenedStream]], model: str, endpoint: str) -> None:
        self._opening: Callable[[], Awaitable[OpenedStream]] | None = opening
        self._body: AsyncStreamBody | None = None
        self._progress = _StreamState(model, endpoint)

    @property
    def headers(self) -> Headers:
        """The headers of the response; none before the call has begun, and for a cached answer."""
        return self._progress.headers

    @property
    def request_id(self) -> str | None:
        """The server's ID of the request, None if there is none."""
        return self._progress.request_id

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open_body().__await__()

    async def _open_body(self) -> Self:
        opening, self._opening = self._opening, None
        if opening is not None:
            try:
                opened = await opening()
            except BaseException:
                # nothing can be read, now or later
                self._progress.stop()
                raise
            self._progress.begin(opened)
            self._body = cast("AsyncStreamBody", opened.reply.stream)
        return self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        progress = self._progress
        while (event := progress.next_event()) is None:
            if progress.over:
                await self._close_body()
                progress.raise_failure()
                raise StopAsyncIteration
            if self._body is None:
                await self._open_body()
                continue
            try:
                progress.feed(await self._body.aread())
            except errors.NetError as error:
                progress.mark_broken(error)
        return event

    @property
    def text(self) -> AsyncIterator[str]:
        """The pieces of text, without other events."""
        return (event.text async for event in self if isinstance(event, TextDelta))

    async def completion(self) -> Completion:
        """Read the rest of the stream and return the whole answer."""
        async for _ in self:
            pass
        return self._progress.get_completion()

    def partial(self) -> Completion:
        """Return the events so far as a completion; `finish_reason` is `other` before the end."""
        return self._progress.partial()

    async def close(self) -> None:
        """Stop reading and drop the remaining events. May be called again."""
        self._progress.stop()
        self._opening = None
        await self._close_body()

    async def _close_body(self) -> None:
        if self._body is not None:
            await self._body.aclose(self._progress.patience)

    async def __aenter__(self) -> Self:
        return await self._open_body()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class StreamListener(Protocol):
    """A listener to the events of a stream."""

    def on_events(self, events: list[Event]) -> None:
        """Bytes arrived, which completed these events. There may be none."""

    def on_close(self, error: BaseException | None) -> Callable[[], object] | None:
        """The stream was closed, at its end or before, or failed with `error`. Called once.

        A function that is returned is called next; for a coroutine, in a thread, as it may wait for a disk.
        """


def attach_listener(opened: OpenedStream, listener: StreamListener) -> OpenedStream:
    """Return the same stream with a listener."""
    reply = opened.reply
    decoder = _ListeningDecoder(opened.decoder, listener)
    body: Any = _ListeningBody(reply.stream, decoder, listener)
    reply = Reply(reply.status, reply.headers, reply.body, body, reply.info)
    return opened._replace(reply=reply, decoder=decoder)


class _ListeningDecoder:
    """A decoder that reports its events."""

    __slots__ = ("_inside", "_listener", "failure")

    def __init__(self, inside: Decoder, listener: StreamListener) -> None:
        self._inside = inside
        self._listener = listener
        self.failure: BaseException | None = None

    @property
    def error(self) -> errors.NetError | errors.ProviderError | None:
        return self._inside.error

    @property
    def done(self) -> bool:
        return self._inside.done

    @property
    def usage(self) -> Usage:
        return self._inside.usage

    def feed(self, data: bytes) -> list[Event]:
        events = self._inside.feed(data)
        self.failure = self._inside.error
        self._listener.on_events(events)
        return events

    def close(self) -> list[Event]:
        try:
            events = self._inside.close()
        except BaseException as error:
            self.failure = error
            raise
        self._listener.on_events(events)
        return events


class _ListeningBody:
    """A body, for sync and async readers, that reports when it is closed."""

    __slots__ = ("_body", "_decoder", "_listener")

    def __init__(self, body: Any, decoder: _ListeningDecoder, listener: StreamListener) -> None:
        self._body = body
        self._decoder = decoder
        self._listener: StreamListener | None = listener

    def read(self) -> bytes:
        try:
            data: bytes = self._body.read()
        except BaseException as error:
            self._decoder.failure = error
            raise
        return data

    async def aread(self) -> bytes:
        try:
            data: bytes = await self._body.aread()
        except BaseException as error:
            self._decoder.failure = error
            raise
        return data

    def close(self, patience: float = 0) -> None:
        self._body.close(patience)
        work = self._notify_close()
        if work is not None:
            work()

    async def aclose(self, patience: float = 0) -> None:
        await self._body.aclose(patience)
        work = self._notify_close()
        if work is not None:
            import asyncio  # 20 ms that a synchronous client does not need

            await asyncio.to_thread(work)

    def _notify_close(self) -> Callable[[], object] | None:
        listener, self._listener = self._listener, None
        return None if listener is None else listener.on_close(self._decoder.failure)

    def __del__(self) -> None:
        # dropped before its end: a disk is not waited for
        self._notify_close()
