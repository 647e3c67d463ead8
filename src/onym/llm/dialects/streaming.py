"""Push decoders for streamed responses, and the framing of their bytes.

Frames are server-sent events, lines of JSON or messages of `application/vnd.amazon.eventstream`. The same
bytes give the same events, however the network splits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, Final, Generic, NoReturn, Protocol, TypeAlias, TypeVar
from zlib import crc32

from onym.errors import MalformedResponseError, NetError, ProtocolError, ProviderError, ResponseTooLarge
from onym.llm import types
from onym.llm.dialects import NO_EXCHANGE, Decoder, ErrorDecoder, Exchange, HeaderMap, find_request_id
from onym.llm.dialects.codec import NO_USAGE
from onym.net.messages import SSEDecoder, SSEEvent

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)

#: an API format's `decode_chat`
DecodeChat: TypeAlias = Callable[[int, HeaderMap, bytes, Exchange], types.Completion]

_MAX_BODY = 32 * 1024 * 1024
_MAX_EVENT = 8 * 1024 * 1024
_SLICE_SIZE = 1024 * 1024
_WHOLE_BODY_TYPES = frozenset({"application/json", "text/html", "application/xhtml+xml"})


class Framer(Protocol[F_co]):
    """Splits bytes into frames, one at a time, so that the frames before an invalid one are not lost."""

    def feed(self, data: bytes, /) -> Iterator[F_co]:
        """Return the frames that these bytes complete; raises NetError at an invalid one."""

    def close(self) -> Iterator[F_co]:
        """Return the frames that the end of the bytes completes."""


class SSEFramer:
    """Server-sent events."""

    __slots__ = ("_sse",)

    def __init__(self) -> None:
        self._sse = SSEDecoder(_MAX_EVENT)

    def feed(self, data: bytes) -> Iterator[SSEEvent]:
        """Return the events. A blank line completes an event."""
        return self._sse.events(data)

    def close(self) -> Iterator[SSEEvent]:
        """Return nothing: an event without its blank line is incomplete."""
        return iter(())


class LineFramer:
    """Lines of JSON (NDJSON). Empty lines are skipped, and the last one may lack its line end.

    `limit` is the largest size of a line in bytes.
    """

    __slots__ = ("_limit", "_pending", "_size")

    def __init__(self, limit: int = _MAX_EVENT) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the lines, without their line ends."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._check_size(len(line))
            whole = b"".join((*self._pending, line)).strip()
            self._pending, self._size = [], 0
            if whole:
                yield whole
        if rest:
            self._check_size(len(rest))
            self._pending.append(rest)

    def close(self) -> Iterator[bytes]:
        """Return the last line, if it has no line end."""
        rest = b"".join(self._pending).strip()
        self._pending = []
        if rest:
            yield rest

    def _check_size(self, more: int) -> None:
        self._size += more
        if self._size > self._limit:
            raise ResponseTooLarge(
                f"one line of the response is longer than {self._limit // 1024**2} MiB",
                code="net.too-large.event",
            )


class EventDecoder(Generic[F]):
    """The push decoder of an API format. A subclass decodes one frame in `_decode_frame`.

    It sets `usage`, `_model`, `_reason`, `_refusals` and `_carried` when it learns them, and its own state in
    `_begin`. An error of `make_malformed_error` raised there becomes a MalformedResponseError of this
    exchange; `_make_stream_error` returns the provider's own error.
    """

    __slots__ = (
        "_carried",
        "_exchange",
        "_frames",
        "_model",
        "_reason",
        "_refusals",
        "_request_id",
        "_status",
        "done",
        "error",
        "usage",
    )

    #: the framer, and the error decoder of the API format
    framer: ClassVar[Callable[[], Framer[Any]]] = SSEFramer
    errors: ClassVar[ErrorDecoder]

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NO_EXCHANGE, *, status: int = 200
    ) -> None:
        self.error: NetError | ProviderError | None = None
        self.done = False
        self.usage: types.Usage = NO_USAGE
        self._frames: Framer[F] = type(self).framer()
        self._request_id = request_id
        self._exchange = exchange
        self._status = status
        self._model: str | None = None
        self._reason: types.FinishReason | None = None
        #: the pieces of a refusal
        self._refusals: list[str] = []
        self._carried: types.Carried | None = None
        self._begin()

    def _begin(self) -> None:
        """Set the state of a new stream."""

    def feed(self, data: bytes) -> list[types.Event]:
        """Return the events that these bytes complete; nothing after an error or the end."""
        events: list[types.Event] = []
        # in slices: a compressed bomb arrives as one piece, and each step would copy all of it
        for start in range(0, len(data), _SLICE_SIZE):
            if self.error is None and not self.done:
                self._decode_frames(self._frames.feed(data[start : start + _SLICE_SIZE]), events)
        return events

    def close(self) -> list[types.Event]:
        """Return the last events. Raises the error, or MalformedResponseError if the stream is incomplete."""
        events: list[types.Event] = []
        if self.error is None and not self.done:
            self._decode_frames(self._frames.close(), events)
        if self.error is None and not self.done:
            if self._reason is None:
                self.error = self._make_malformed_error("the stream ended before the answer was complete")
            else:
                self._append_finish(events)
        if self.error is not None:
            raise self.error
        return events

    def _decode_frame(self, frame: F, events: list[types.Event]) -> bool:
        """Decode one frame; True if it was the last."""
        raise NotImplementedError

    def _make_stream_error(self, record: object) -> ProviderError:
        error = self.errors.decode_body_error(record, self._status, None, self._exchange)
        error.request_id, error.usage = self._request_id, self.usage
        return error

    def _decode_frames(self, frames: Iterator[F], events: list[types.Event]) -> None:
        try:
            for frame in frames:
                if self._decode_frame(frame, events):
                    self._append_finish(events)
                    return
        except MalformedResponseError as error:
            # an error of `make_malformed_error` does not know its exchange yet
            self.error = (
                error if error.endpoint or error.status else self._make_malformed_error(error.message)
            )
        except (NetError, ProviderError) as error:
            # framers do not know the endpoint
            error.endpoint = error.endpoint or self._exchange.endpoint
            self.error = error

    def _append_finish(self, events: list[types.Event]) -> None:
        self.done = True
        events.append(
            types.Finish(
                reason=self._reason or "other",
                refusal="".join(self._refusals) or None,
                usage=self.usage,
                model=self._model or self._exchange.model or None,
                request_id=self._request_id,
                carried=self._carried,
            )
        )

    def _make_malformed_error(self, text: str) -> MalformedResponseError:
        error = self.errors.make_malformed_error(text, self._status, None, self._exchange, usage=self.usage)
        error.request_id = self._request_id
        return error


class _WholeBodyFramer:
    """The whole body as one frame."""

    __slots__ = ("_body",)

    def __init__(self) -> None:
        self._body = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._body += data
        if len(self._body) > _MAX_BODY:
            self._body.clear()
            raise ResponseTooLarge(f"the response is larger than {_MAX_BODY // 1024**2} MiB")
        yield from ()

    def close(self) -> Iterator[bytes]:
        yield bytes(self._body)


class WholeBodyDecoder(EventDecoder[bytes]):
    """A whole body in response to a streaming request: read to its end, then returned as events."""

    __slots__ = ("_decode", "_headers")
    framer = _WholeBodyFramer

    def __init__(self, decode: DecodeChat, status: int, headers: HeaderMap, exchange: Exchange) -> None:
        super().__init__(None, exchange, status=status)
        self._decode = decode
        self._headers = headers

    def _decode_frame(self, frame: bytes, events: list[types.Event]) -> bool:
        whole = self._decode(self._status, self._headers, frame, self._exchange)
        if whole.reasoning:
            events.append(types.ReasoningDelta(whole.reasoning))
        if whole.text:
            events.append(types.TextDelta(whole.text))
        for index, call in enumerate(whole.tool_calls):
            events.append(
                types.ToolCallDelta(
                    index=index, id=call.id, name=call.name, arguments=call.arguments, custom=call.custom
                )
            )
        self.usage, self._reason, self._model = whole.usage, whole.finish_reason, whole.model
        self._request_id, self._carried = whole.request_id, whole.carried
        self._refusals = [whole.refusal or ""]
        return True

    def _make_malformed_error(self, text: str) -> MalformedResponseError:
        return MalformedResponseError(text, endpoint=self._exchange.endpoint, status=self._status)


class _OpenDecoder(Protocol):
    def __call__(self, status: int, headers: HeaderMap, exchange: Exchange = ..., /) -> Decoder: ...


def make_stream_decoder(decode_chat: DecodeChat, make_decoder: type[EventDecoder[Any]]) -> _OpenDecoder:
    """Return a format's `stream_decoder`.

    Some servers and gateways answer a streaming request with a whole body, so the media type decides.
    """

    def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NO_EXCHANGE) -> Decoder:
        """Return the decoder for the body of this response."""
        if (headers.get("content-type") or "").partition(";")[0].strip().lower() in _WHOLE_BODY_TYPES:
            return WholeBodyDecoder(decode_chat, status, headers, exchange)
        return make_decoder(find_request_id(headers, exchange), exchange, status=status)

    return stream_decoder


HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE: Final = Struct(">III")
_CRC: Final = Struct(">I")
_OVERHEAD: Final = _PRELUDE.size + _CRC.size
_MAX_MESSAGE: Final = 16 * 1024 * 1024
_MAX_HEADERS: Final = 128 * 1024
#: bytes of a header's value, by the number of its type: true, false, byte, short, integer, long, bytes, text,
#: timestamp, UUID; None if the value has its own length
_VALUE_SIZES: Final = (0, 0, 1, 2, 4, 8, None, None, 8, 16)
_TRUE, _FALSE, _BYTES, _TEXT, _UUID = 0, 1, 6, 7, 9


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One message. `headers` have their types; a timestamp is in milliseconds, a UUID is 16 bytes."""

    headers: Mapping[str, HeaderValue]
    payload: bytes = field(repr=False)

    def get_text(self, name: str) -> str:
        """Return a header that is text, "" if there is none of that name."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


class EventStreamFramer:
    """Splits bytes into messages. A message that is cut at the end is ignored."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        """Return the messages that these bytes complete.

        Raises ProtocolError for a wrong checksum, length or header, and ResponseTooLarge for a message larger
        than 16 MiB or headers larger than 128 KiB.
        """
        pending = self._pending
        pending += data
        start = 0
        try:
            while (size := _find_message_size(pending, start)) is not None and len(pending) - start >= size:
                message = bytes(pending[start : start + size])
                start += size
                yield _decode_message(message)
        finally:
            # once for all messages: removing each of them would copy the rest each time
            del pending[:start]

    def close(self) -> Iterator[EventFrame]:
        """Return nothing: the rest is not a complete message."""
        self._pending.clear()
        return iter(())


def _find_message_size(pending: bytearray, start: int) -> int | None:
    """Return the size of the message at `start`, None if its prelude is incomplete."""
    if len(pending) - start < _PRELUDE.size:
        return None
    total, headers, check = _PRELUDE.unpack_from(pending, start)
    if crc32(pending[start : start + 8]) != check:
        _raise_protocol_error("a prelude's checksum is wrong")
    if total > _MAX_MESSAGE or headers > _MAX_HEADERS:
        raise ResponseTooLarge(
            f"one message of the stream is longer than {_MAX_MESSAGE} bytes, or its headers than "
            f"{_MAX_HEADERS}",
            code="net.too-large.event",
        )
    if total < _OVERHEAD + headers:
        _raise_protocol_error("a message is shorter than its headers")
    return int(total)


def _decode_message(message: bytes) -> EventFrame:
    end = len(message) - _CRC.size
    if crc32(memoryview(message)[:end]) != _CRC.unpack_from(message, end)[0]:
        _raise_protocol_error("a message's checksum is wrong")
    after = _PRELUDE.size + _PRELUDE.unpack_from(message)[1]
    return EventFrame(_decode_headers(message[_PRELUDE.size : after]), message[after:end])


def _decode_headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    while at < len(data):
        coded, at = _slice_bytes(data, at + 1, data[at])
        name = _decode_utf8(coded)
        kind, at = _slice_bytes(data, at, 1)
        if name in headers or kind[0] >= len(_VALUE_SIZES):
            _raise_protocol_error("a header is repeated or has an unknown type")
        size = _VALUE_SIZES[kind[0]]
        if size is None:
            length, at = _slice_bytes(data, at, 2)
            size = int.from_bytes(length)
        value, at = _slice_bytes(data, at, size)
        headers[name] = _decode_value(kind[0], value)
    return headers


def _decode_value(kind: int, value: bytes) -> HeaderValue:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE
    if kind == _TEXT:
        return _decode_utf8(value)
    return value if kind in (_BYTES, _UUID) else int.from_bytes(value, signed=True)


def _slice_bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        _raise_protocol_error("a header runs beyond its message")
    return data[at : at + size], at + size


def _decode_utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        _raise_protocol_error("a header is not UTF-8")


def _raise_protocol_error(reason: str) -> NoReturn:
    raise ProtocolError(f"the event stream is broken: {reason}", code="net.protocol.eventstream")
