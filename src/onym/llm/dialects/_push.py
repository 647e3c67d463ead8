"""What the push decoders of all dialects share: framing, the end, and failures on the way.

Bytes go in, events come out, and the same bytes give the same events however they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

from onym.errors import MalformedResponseError, NetError, ProviderError, ResponseTooLarge
from onym.llm.dialects._base import Exchange, HeaderMap
from onym.llm.dialects._errors import Failures
from onym.llm.dialects._read import NO_USAGE
from onym.llm.types import (
    Carried,
    Completion,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from onym.net.sse import SSEDecoder, SSEEvent

__all__ = ["EventDecoder", "Frames", "LineFrames", "SSEFrames", "WholeBody", "is_whole"]

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)

#: a dialect's `decode_chat`
Decode: TypeAlias = Callable[[int, HeaderMap, bytes, Exchange], Completion]

_LARGEST_BODY = 32 * 1024 * 1024
_LARGEST_EVENT = 8 * 1024 * 1024
_SLICE = 1024 * 1024
_NOT_STREAMS = frozenset({"application/json", "text/html", "application/xhtml+xml"})


def is_whole(headers: HeaderMap) -> bool:
    """Whether this answer to a request for a stream is a whole body instead."""
    return (headers.get("content-type") or "").partition(";")[0].strip().lower() in _NOT_STREAMS


class Frames(Protocol[F_co]):
    """Bytes to frames, one at a time: where one is bad, those before it in the same bytes are not lost."""

    def feed(self, data: bytes, /) -> Iterator[F_co]:
        """The frames that these bytes complete; raises NetError at one that cannot be read."""

    def close(self) -> Iterator[F_co]:
        """What the end of the bytes completes."""


class SSEFrames:
    """Server-sent events."""

    __slots__ = ("_sse",)

    def __init__(self) -> None:
        self._sse = SSEDecoder(_LARGEST_EVENT)

    def feed(self, data: bytes) -> Iterator[SSEEvent]:
        """The events, each as its blank line comes."""
        return self._sse.events(data)

    def close(self) -> Iterator[SSEEvent]:
        """Nothing: an event without its blank line is none."""
        return iter(())


class LineFrames:
    """Lines of JSON (NDJSON). Empty lines are skipped, and the last one may lack its line end."""

    __slots__ = ("_pending", "_size")

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines, without their ends."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._check(len(line))
            whole = b"".join((*self._pending, line)).strip()
            self._pending, self._size = [], 0
            if whole:
                yield whole
        if rest:
            self._check(len(rest))
            self._pending.append(rest)

    def close(self) -> Iterator[bytes]:
        """The last line, if it has no end."""
        rest = b"".join(self._pending).strip()
        self._pending = []
        if rest:
            yield rest

    def _check(self, more: int) -> None:
        self._size += more
        if self._size > _LARGEST_EVENT:
            raise ResponseTooLarge(
                f"one event of the stream is longer than {_LARGEST_EVENT} octets", code="net.too-large.event"
            )


class EventDecoder(Generic[F]):
    """The push decoder of a dialect. A subclass reads one frame in `_take`.

    It sets `usage`, `_model`, `_reason` and `_carried` as it learns them. `wrong(...)` raised there becomes
    a MalformedResponseError of this exchange, `_failed(record)` is the provider's own failure.
    """

    __slots__ = (
        "_carried",
        "_exchange",
        "_failures",
        "_frames",
        "_model",
        "_reason",
        "_request_id",
        "_status",
        "done",
        "error",
        "usage",
    )

    def __init__(
        self,
        frames: Frames[F],
        failures: Failures,
        request_id: str | None,
        exchange: Exchange,
        *,
        status: int = 200,
    ) -> None:
        self.error: NetError | ProviderError | None = None
        self.done = False
        self.usage: Usage = NO_USAGE
        self._frames = frames
        self._failures = failures
        self._request_id = request_id
        self._exchange = exchange
        self._status = status
        self._model: str | None = None
        self._reason: FinishReason | None = None
        self._carried: Carried | None = None

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete; after an error or the end, none."""
        events: list[Event] = []
        # in slices, for a compressed bomb comes as one piece, and each step would copy all of it
        for start in range(0, len(data), _SLICE):
            if self.error is None and not self.done:
                self._read(self._frames.feed(data[start : start + _SLICE]), events)
        return events

    def close(self) -> list[Event]:
        """The last events. Raises the error, or MalformedResponseError where no end was announced."""
        events: list[Event] = []
        if self.error is None and not self.done:
            self._read(self._frames.close(), events)
        if self.error is None and not self.done:
            if self._reason is None:
                self.error = self._malformed("the stream ended before the answer did")
            else:
                self._finish(events)
        if self.error is not None:
            raise self.error
        return events

    def _take(self, frame: F, events: list[Event]) -> bool:
        """Read one frame; True says that it was the last."""
        raise NotImplementedError

    def _failed(self, record: object) -> ProviderError:
        """The failure that a frame says it is."""
        return self._failures.in_stream(
            record,
            status=self._status,
            request_id=self._request_id,
            usage=self.usage,
            exchange=self._exchange,
        )

    def _read(self, frames: Iterator[F], events: list[Event]) -> None:
        try:
            for frame in frames:
                if self._take(frame, events):
                    self._finish(events)
                    return
        except MalformedResponseError as error:
            # our own words, from `wrong`, until they know where they happened
            self.error = error if error.endpoint or error.status else self._malformed(error.message)
        except (NetError, ProviderError) as error:
            # frames do not know whose they are
            error.endpoint = error.endpoint or self._exchange.endpoint
            self.error = error

    def _finish(self, events: list[Event]) -> None:
        self.done = True
        events.append(
            Finish(
                reason=self._reason or "other",
                usage=self.usage,
                model=self._model or self._exchange.model or None,
                request_id=self._request_id,
                carried=self._carried,
            )
        )

    def _malformed(self, text: str) -> MalformedResponseError:
        error = self._failures.malformed(text, self._status, None, self._exchange, usage=self.usage)
        error.request_id = self._request_id
        return error


class WholeBody:
    """A whole body where a stream was asked for: read to its end, then handed out as events."""

    __slots__ = ("_body", "_decode", "_exchange", "_headers", "_status", "done", "error", "usage")

    def __init__(self, decode: Decode, status: int, headers: HeaderMap, exchange: Exchange) -> None:
        self._decode = decode
        self.error: NetError | ProviderError | None = None
        self.done = False
        self.usage: Usage = NO_USAGE
        self._status = status
        self._headers = headers
        self._exchange = exchange
        self._body = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """Nothing: a body says what it is at its end."""
        if self.error is None:
            self._body += data
            if len(self._body) > _LARGEST_BODY:
                self._body.clear()
                self.error = ResponseTooLarge(
                    "the answer is larger than a completion may be", endpoint=self._exchange.endpoint
                )
        return []

    def close(self) -> list[Event]:
        """The answer as events. Raises ProviderError where it is none."""
        if self.done:
            return []
        if self.error is not None:
            raise self.error
        try:
            whole = self._decode(self._status, self._headers, bytes(self._body), self._exchange)
        except (NetError, ProviderError) as error:
            self.error = error
            raise
        self.done, self.usage = True, whole.usage
        return list(_events(whole))


def _events(whole: Completion) -> Iterator[Event]:
    if whole.reasoning:
        yield ReasoningDelta(whole.reasoning)
    if whole.text:
        yield TextDelta(whole.text)
    for index, call in enumerate(whole.tool_calls):
        yield ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
    yield Finish(
        reason=whole.finish_reason,
        usage=whole.usage,
        model=whole.model or None,
        request_id=whole.request_id,
        carried=whole.carried,
    )
