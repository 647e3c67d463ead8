"""Streams of events: sync and async iterators that are context managers.

`_StreamState`, which does no I/O, decodes and collects events for both. `attach_listener` reports a
stream's events to the cache and to telemetry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from onym.errors import NetError, ProviderError, UsageError
from onym.llm.flow import OpenedStream
from onym.llm.types import (
    Completion,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from onym.net.messages import Reply

if TYPE_CHECKING:
    from types import TracebackType

    from onym.llm.dialects import Decoder
    from onym.net.messages import AsyncStreamBody, StreamBody

NO_USAGE = Usage()
#: seconds from the last event to the end of the body, which some servers forget: about what another
#: connection would take
_PATIENCE = 0.05


class Collector:
    """Puts the events of a stream together again."""

    __slots__ = ("_calls", "_finish", "_reasoning", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._finish: Finish | None = None

    @property
    def finished(self) -> bool:
        """Whether the stream came to its end."""
        return self._finish is not None

    def add(self, event: Event) -> None:
        """One more event."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
        elif isinstance(event, ToolCallDelta):
            call = self._calls.setdefault(event.index, ["", "", ""])
            call[0] = event.id or call[0]
            call[1] = event.name or call[1]
            call[2] += event.arguments
        else:
            self._finish = event

    def completion(self, model: str = "", usage: Usage = NO_USAGE) -> Completion:
        """What has come so far, with the usage so far; the whole answer once the stream is over."""
        finish = self._finish or Finish(reason="other", usage=usage)
        return Completion(
            text="".join(self._text),
            model=finish.model or model,
            finish_reason=finish.reason,
            reasoning="".join(self._reasoning) or None,
            tool_calls=tuple(
                ToolCall(id=call[0] or f"call_{index}", name=call[1], arguments=call[2])
                for index, call in sorted(self._calls.items())
            ),
            usage=finish.usage,
            request_id=finish.request_id,
            carried=finish.carried,
        )


class _StreamState:
    """How far a stream has come: bytes go in, events come out, a failure waits behind them."""

    _decoder: Decoder

    def __init__(self, model: str, endpoint: str) -> None:
        self.over = False
        self._model = model
        self._endpoint = endpoint
        self._collector = Collector()
        self._events: deque[Event] = deque()
        self._usage = NO_USAGE
        self._failure: NetError | ProviderError | None = None

    @property
    def patience(self) -> float:
        """Seconds to wait for the end of the body: none, unless all else of the answer was handed out."""
        return _PATIENCE if self._collector.finished else 0

    def set_decoder(self, decoder: Decoder) -> None:
        """The answer has begun, and this reads it."""
        self._decoder = decoder

    def next_event(self) -> Event | None:
        """The next event, None where more bytes are needed or the stream is over."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._collector.add(event)
        return event

    def feed(self, data: bytes) -> None:
        """Bytes of the body; none are its end."""
        if data:
            self._events.extend(self._decoder.feed(data))
            self._failure = self._decoder.error
        else:
            try:
                self._events.extend(self._decoder.close())
            except (NetError, ProviderError) as error:
                self._failure = error
        self._usage = self._decoder.usage
        self.over = not data or self._decoder.done or self._failure is not None

    def mark_broken(self, error: NetError) -> None:
        """The body broke off."""
        self.over = True
        error.endpoint = self._endpoint
        self._failure = error

    def stop(self) -> None:
        """The reader stops."""
        self.over = True
        self._events.clear()
        self._failure = None

    def raise_failure(self) -> None:
        """At the end: raise what ended the stream, if it was no good end."""
        if self._failure is not None:
            self._failure.partial = self.partial()
            raise self._failure

    def partial(self) -> Completion:
        """What has come so far."""
        return self._collector.completion(self._model, self._usage)

    def get_completion(self) -> Completion:
        """The completion, once all of it was read."""
        if not self._collector.finished:
            raise UsageError(
                "the stream was closed before its end: partial() has what came", code="usage.closed-stream"
            )
        return self.partial()


class Stream:
    """An answer that is still arriving: iterate over it for events, or over `text` for the text alone.

    Use it in a `with` statement: leaving that, or `close()`, closes the connection if the answer was not
    read to its end, and the server stops. A failure on the way is raised after the events that came before
    it; its `partial` holds them put together.
    """

    def __init__(self, opened: OpenedStream, model: str, endpoint: str) -> None:
        self._body = cast("StreamBody", opened.reply.stream)
        self._progress = _StreamState(model, endpoint)
        self._progress.set_decoder(opened.decoder)

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
            except NetError as error:
                progress.mark_broken(error)
        return event

    @property
    def text(self) -> Iterator[str]:
        """The pieces of text alone."""
        return (event.text for event in self if isinstance(event, TextDelta))

    def completion(self) -> Completion:
        """The whole answer; what is left of the stream is read for it."""
        for _ in self:
            pass
        return self._progress.get_completion()

    def partial(self) -> Completion:
        """What has been handed out so far, put together; `finish_reason` is `other` before the end."""
        return self._progress.partial()

    def close(self) -> None:
        """End it here; what was not handed out yet is forgotten. May be called again."""
        self._progress.stop()
        self._close_body()

    def _close_body(self) -> None:
        self._body.close(self._progress.patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream:
    """`Stream` for coroutines: the same events, read with `async for`.

    The call begins with `async with`, with `await`, or with the first event that is asked for.
    """

    def __init__(self, opening: Callable[[], Awaitable[OpenedStream]], model: str, endpoint: str) -> None:
        self._opening: Callable[[], Awaitable[OpenedStream]] | None = opening
        self._body: AsyncStreamBody | None = None
        self._progress = _StreamState(model, endpoint)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open_body().__await__()

    async def _open_body(self) -> Self:
        opening, self._opening = self._opening, None
        if opening is not None:
            try:
                opened = await opening()
            except BaseException:
                # there is nothing to read, now or later
                self._progress.stop()
                raise
            self._progress.set_decoder(opened.decoder)
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
            except NetError as error:
                progress.mark_broken(error)
        return event

    @property
    def text(self) -> AsyncIterator[str]:
        """The pieces of text alone."""
        return (event.text async for event in self if isinstance(event, TextDelta))

    async def completion(self) -> Completion:
        """The whole answer; what is left of the stream is read for it."""
        async for _ in self:
            pass
        return self._progress.get_completion()

    def partial(self) -> Completion:
        """What has been handed out so far, put together; `finish_reason` is `other` before the end."""
        return self._progress.partial()

    async def close(self) -> None:
        """End it here; what was not handed out yet is forgotten. May be called again."""
        self._progress.stop()
        self._opening = None
        await self._close_body()

    async def _close_body(self) -> None:
        if self._body is not None:
            await self._body.aclose(self._progress.patience)

    async def __aenter__(self) -> Self:
        return await self._open_body()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class StreamListener(Protocol):
    """A listener to the events of a stream."""

    def on_events(self, events: list[Event]) -> None:
        """Bytes arrived, which completed these events, if any."""

    def on_close(self, error: BaseException | None) -> Callable[[], object] | None:
        """The stream was closed, whole or not, or broke with `error`. Told once.

        What is returned is done next, in a thread where a coroutine reads: it may wait for a disk.
        """


def attach_listener(opened: OpenedStream, listener: StreamListener) -> OpenedStream:
    """The same stream, with a listener."""
    reply = opened.reply
    decoder = _ListeningDecoder(opened.decoder, listener)
    body: Any = _ListeningBody(reply.stream, decoder, listener)
    return OpenedStream(Reply(reply.status, reply.headers, reply.body, body, reply.info), decoder)


class _ListeningDecoder:
    """A decoder that tells what it gave."""

    __slots__ = ("_inside", "_listener", "failure")

    def __init__(self, inside: Decoder, listener: StreamListener) -> None:
        self._inside = inside
        self._listener = listener
        self.failure: BaseException | None = None

    @property
    def error(self) -> NetError | ProviderError | None:
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
    """A body, for either kind of reader, that tells when it is closed."""

    __slots__ = ("_body", "_decoder", "_listener")

    def __init__(self, body: Any, decoder: _ListeningDecoder, listener: StreamListener) -> None:
        self._body = body
        self._decoder = decoder
        self._listener: StreamListener | None = listener

    def read(self) -> bytes:
        try:
            return self._body.read()  # type: ignore[no-any-return]
        except BaseException as error:
            self._decoder.failure = error
            raise

    async def aread(self) -> bytes:
        try:
            return await self._body.aread()  # type: ignore[no-any-return]
        except BaseException as error:
            self._decoder.failure = error
            raise

    def close(self, patience: float = 0) -> None:
        self._body.close(patience)
        work = self._notify_close()
        if work is not None:
            work()

    async def aclose(self, patience: float = 0) -> None:
        await self._body.aclose(patience)
        work = self._notify_close()
        if work is not None:
            import asyncio  # not for those who read without coroutines

            await asyncio.to_thread(work)

    def _notify_close(self) -> Callable[[], object] | None:
        listener, self._listener = self._listener, None
        return None if listener is None else listener.on_close(self._decoder.failure)

    def __del__(self) -> None:
        # dropped half read: nothing is left to wait for
        self._notify_close()
