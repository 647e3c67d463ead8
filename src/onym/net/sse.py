"""Server-sent events: a decoder from bytes to events (WHATWG HTML 9.2.6).

The chunks of the bytes do not change the events. `max_event` limits the memory.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from onym.errors import ProtocolError, ResponseTooLarge

__all__ = ["SSEDecoder", "SSEEvent"]

_BOM = "\ufeff"


class SSEEvent(NamedTuple):
    """One event: its type ("message" by default), its data, and the last event id seen ("" if none)."""

    event: str
    data: str
    id: str


class SSEDecoder:
    """Decodes an event stream.

    `max_event` is the most characters of one event; beyond it, ResponseTooLarge is raised. Invalid UTF-8
    raises ProtocolError: the standard replaces it, which could change a value in JSON. `retry` fields are
    ignored.
    """

    def __init__(self, max_event: int = 8 * 1024 * 1024) -> None:
        self._max = max_event
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        self._started = False
        self._skip = False
        self._pending: list[str] = []
        self._wait = 0
        self._event = ""
        self._data: list[str] = []
        self._data_size = 0
        self._id = ""

    def feed(self, data: bytes) -> list[SSEEvent]:
        """Return the events that these bytes complete."""
        return list(self.events(data))

    def events(self, data: bytes) -> Iterator[SSEEvent]:
        """Yield the same events, those before an error too. Exhaust the iterator before the next call."""
        broken = False
        try:
            text = self._utf8.decode(data)
        except UnicodeDecodeError as error:
            broken = True
            text = str(error.object[: error.start], "utf-8")
        if text:
            yield from self._decode_text(self._normalize_line_ends(text))
        if broken:
            raise ProtocolError("the event stream is not UTF-8", code="net.protocol.sse")

    def close(self) -> list[SSEEvent]:
        """End the stream and return []: an event without its blank line is dropped."""
        self._pending.clear()
        self._data.clear()
        return []

    def _normalize_line_ends(self, text: str) -> str:
        """Return the text with line feeds as line ends, and without a byte order mark at its beginning."""
        if not self._started:
            self._started = True
            text = text.removeprefix(_BOM)
        if self._skip:
            # the second half of a CRLF: its CR has already ended the line
            text = text.removeprefix("\n")
            self._skip = False
        if "\r" in text:
            self._skip = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    def _decode_text(self, text: str) -> Iterator[SSEEvent]:
        *blocks, rest = text.split("\n\n")
        at_start = not (self._wait or self._data or self._event)
        for block in blocks:
            # most events are one line of data
            if at_start and block.startswith("data: ") and "\n" not in block and len(block) <= self._max:
                yield SSEEvent("message", block[6:], self._id)
            else:
                yield from self._decode_lines(block + "\n\n")
                at_start = True
        if rest:
            yield from self._decode_lines(rest)

    def _decode_lines(self, text: str) -> Iterator[SSEEvent]:
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = "".join((*self._pending, lines[0]))
            self._pending.clear()
            self._wait = 0
        for line in lines:
            self._require_size(len(line))
            if line:
                self._parse_field(line)
            elif (event := self._dispatch_event()) is not None:
                yield event
        # a long line stays in pieces, so that the work is linear
        self._pending.append(rest)
        self._wait += len(rest)
        self._require_size(self._wait)

    def _require_size(self, line: int) -> None:
        if line + self._data_size > self._max:
            raise ResponseTooLarge(
                f"one event of the stream is longer than {self._max} characters", code="net.too-large.event"
            )

    def _parse_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            # the line feed between lines is counted, so that empty lines are limited too
            self._data_size += len(value) + 1
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value

    def _dispatch_event(self) -> SSEEvent | None:
        event, data = self._event, self._data
        if not data:
            self._event = ""
            return None
        self._event, self._data, self._data_size = "", [], 0
        return SSEEvent(event or "message", "\n".join(data), self._id)
