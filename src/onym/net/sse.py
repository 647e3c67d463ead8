"""Server-sent events, as a push decoder: octets in, events out. (WHATWG HTML 9.2.6)

Any cut of the same octets gives the same events. Memory is bounded by `max_event`.
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
    """Turns an event stream into events.

    `max_event` bounds the characters that one event may hold; beyond it ResponseTooLarge is raised.
    Octets that are not UTF-8 raise ProtocolError: the standard would replace them, and a replaced
    octet inside JSON is a wrong answer. `retry` fields are ignored, nobody reconnects here.
    """

    __slots__ = (
        "_data",
        "_data_size",
        "_event",
        "_id",
        "_max",
        "_pending",
        "_skip",
        "_started",
        "_utf8",
        "_wait",
    )

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
        """The events that these octets complete."""
        return list(self.events(data))

    def events(self, data: bytes) -> Iterator[SSEEvent]:
        """The same one by one: those before an error are given before it is raised.

        All are to be taken before the next octets are fed.
        """
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
        """The end of the stream. An event that lacks its blank line is dropped, so the list is empty."""
        self._pending.clear()
        self._data.clear()
        return []

    def _normalize_line_ends(self, text: str) -> str:
        """The text with line feeds for the other line ends, and without the mark at its beginning."""
        if not self._started:
            self._started = True
            text = text.removeprefix(_BOM)
        if self._skip:
            # the second half of a CRLF whose CR has already ended its line
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
        # the middle of a long line stays in pieces, so that the work stays linear
        self._pending.append(rest)
        self._wait += len(rest)
        self._require_size(self._wait)

    def _require_size(self, line: int) -> None:
        """Whether a line of this length, whole or not, and the data before it are too long."""
        if line + self._data_size > self._max:
            raise ResponseTooLarge(
                f"one event of the stream is longer than {self._max} characters", code="net.too-large.event"
            )

    def _parse_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            # the line feed that joins the lines counts, so that empty ones are bounded too
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
