"""Server-sent events, as a push decoder: octets in, events out. (WHATWG HTML 9.2.6)

Any cut of the same octets gives the same events. Memory is bounded by `max_event`.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from onym.errors import ProtocolError, ResponseTooLarge

__all__ = ["SSEDecoder", "SSEEvent"]

_split_lines = re.compile("\r\n|\r|\n").split
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class SSEEvent:
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
        text = self._decode(data)
        if not text:
            return []
        *lines, rest = text.split("\n") if "\r" not in text else _split_lines(text)
        if not lines:
            # the middle of a long line stays in pieces, so that the work stays linear
            self._pending.append(rest)
            self._check(len(rest))
            return []
        lines[0] = "".join((*self._pending, lines[0]))
        self._pending = [rest]
        self._wait = 0
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._check(len(rest))
        return events

    def close(self) -> list[SSEEvent]:
        """The end of the stream. An event that lacks its blank line is dropped, so the list is empty."""
        self._pending.clear()
        self._data.clear()
        return []

    def _decode(self, data: bytes) -> str:
        try:
            text = self._utf8.decode(data)
        except UnicodeDecodeError:
            raise ProtocolError("the event stream is not UTF-8", code="net.protocol.sse") from None
        if not text:
            return text
        if not self._started:
            self._started = True
            text = text.removeprefix(_BOM)
        if self._skip:
            # the second half of a CRLF whose CR has already ended its line
            text = text.removeprefix("\n")
        self._skip = text.endswith("\r")
        return text

    def _check(self, more: int) -> None:
        """Count what waits for the end of its line."""
        self._wait += more
        if self._wait + self._data_size > self._max:
            raise ResponseTooLarge(
                f"one event of the stream is longer than {self._max} characters", code="net.too-large.event"
            )

    def _line(self, line: str) -> SSEEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            # the line feed that joins the lines counts, so that empty ones are bounded too
            self._data_size += len(value) + 1
            self._check(0)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> SSEEvent | None:
        event, data = self._event, self._data
        self._event, self._data, self._data_size = "", [], 0
        if not data:
            return None
        return SSEEvent(event or "message", "\n".join(data), self._id)
