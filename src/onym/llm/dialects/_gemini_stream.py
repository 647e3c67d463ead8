"""Streams of the Gemini dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._gemini_decode import decode_chat
from onym.llm.dialects._gemini_errors import FAILURES
from onym.llm.dialects._gemini_read import (
    carried,
    finish_reason,
    first_candidate,
    pieces,
    raw_parts,
    read_usage,
    response_id,
)
from onym.llm.dialects._push import EventDecoder, LineFrames, SSEFrames, WholeBody, is_whole
from onym.llm.dialects._read import NO_USAGE, text, wrong
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta

__all__ = ["BodyDecoder", "StreamDecoder", "stream_decoder"]

_LARGEST_BARE = 1024 * 1024


def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> Decoder:
    """The decoder for the body of this answer: without `alt=sse` a stream is one JSON array."""
    if is_whole(headers):
        return BodyDecoder(status, headers, exchange)
    return StreamDecoder(find_request_id(headers, exchange), exchange, status=status)


class BodyDecoder(WholeBody):
    """A whole answer, or the whole array of a stream's frames."""

    __slots__ = ()

    def __init__(self, status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> None:
        super().__init__(decode_chat, status, headers, exchange)


class _Frames:
    """Data of server-sent events, and JSON that stands bare among them: so Google writes a late error."""

    __slots__ = ("_bare", "_events", "_lines", "_size")

    def __init__(self) -> None:
        self._events = SSEFrames()
        self._lines = LineFrames()
        self._bare: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[str | bytes]:
        for event in self._events.feed(data):
            yield event.data
        for line in self._lines.feed(data):
            self._keep(line)

    def close(self) -> Iterator[str | bytes]:
        for line in self._lines.close():
            self._keep(line)
        if self._bare:
            yield b"\n".join(self._bare)

    def _keep(self, line: bytes) -> None:
        if not line.startswith(b"data:") and (self._bare or line.startswith((b"{", b"["))):
            self._size += len(line)
            if self._size <= _LARGEST_BARE:
                self._bare.append(line)


class StreamDecoder(EventDecoder[str | bytes]):
    """Server-sent answers to events, each frame a piece of one.

    Nothing says that a stream is over: `Finish` comes at the end of the bytes, once a frame gave a
    finish reason. Candidates other than the first are not read.
    """

    __slots__ = ("_calls", "_parts", "_said")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(_Frames(), FAILURES, request_id, exchange, status=status)
        self._calls = 0
        self._parts: list[Mapping[str, Any]] = []
        #: the finish reason in the server's words
        self._said: Any = None

    def _take(self, frame: str | bytes, events: list[Event]) -> bool:
        if frame == "[DONE]":
            # not Google's, but some gateways' end
            return self._reason is not None
        try:
            data = msgspec.json.decode(frame)
        except (ValueError, RecursionError):
            data = None
        if isinstance(frame, bytes) and not isinstance(data, dict | list):
            return False  # no JSON after all: a line of server-sent events that means nothing
        for each in data if isinstance(data, list) else (data,):
            if not isinstance(each, dict):
                raise wrong("an event of the stream is not a JSON object")
            self._frame(each, events)
        return False

    def _frame(self, data: Mapping[str, Any], events: list[Event]) -> None:
        usage = read_usage(data.get("usageMetadata"))
        if usage != NO_USAGE:
            self.usage = usage
        if self._request_id is None:
            self._request_id = response_id(data, self._exchange)
        if FAILURES.is_failure(data):
            raise self._failed(data)
        if self._model is None:
            self._model = text(data, "modelVersion")
        candidate = first_candidate(data)
        if candidate is not None:
            self._candidate(candidate, events)

    def _candidate(self, candidate: Mapping[str, Any], events: list[Event]) -> None:
        parts = raw_parts(candidate)
        for piece in pieces(parts):
            if piece.call is not None:
                identity = piece.call.id or f"call_{self._calls}"
                events.append(
                    ToolCallDelta(
                        index=self._calls,
                        id=identity,
                        name=piece.call.name,
                        arguments=piece.call.arguments,
                    )
                )
                self._calls += 1
            elif piece.reasoning:
                events.append(ReasoningDelta(piece.reasoning))
            elif piece.text:
                events.append(TextDelta(piece.text))
        self._parts.extend(parts)
        said = candidate.get("finishReason")
        if said is not None:
            self._said = said
            self._reason = finish_reason(said, called=False)

    def _finish(self, events: list[Event]) -> None:
        self._reason = finish_reason(self._said, called=self._calls > 0)
        self._carried = carried(self._parts)
        super()._finish(events)
