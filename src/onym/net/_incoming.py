"""A response as it arrives: octets in, head and content out, within the limits.

llhttp reads the messages, strictly: lines end in CRLF, nothing is folded, no length is said twice.
"""

from __future__ import annotations

from typing import Final

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from onym.errors import ConnectionFailed, ProtocolError, RedirectRefused, ResponseTooLarge
from onym.net._coding import Decoder, too_large
from onym.net._http1 import TELLING, Head
from onym.net.limits import NetLimits

__all__ = ["Incoming"]

_MOST_INTERIM: Final = 8
_MINOR: Final = {"1.0": 0, "1.1": 1}
#: what a head and its trailers hold beside names and values: the status line, and four octets a field
_STATUS_LINE: Final = 16
_AROUND_FIELD: Final = 4


class Incoming:
    """One response. `head` is None until it is whole; `done` says that the content is.

    The `on_` methods are the parser's.
    """

    __slots__ = (
        "_complete",
        "_decoder",
        "_fields",
        "_header_count",
        "_header_octets",
        "_in_step",
        "_interim",
        "_keep",
        "_limit",
        "_limits",
        "_method",
        "_parser",
        "_parts",
        "_quiet",
        "_told",
        "done",
        "head",
    )

    def __init__(self, method: str, limits: NetLimits, limit: int | None = None) -> None:
        self._method = method
        self._limits = limits
        self._limit = limits.body if limit is None else min(limit, limits.body)
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._fields: list[tuple[str, str]] = []
        self._told: dict[str, list[str]] = {}
        self._header_count = 0
        self._header_octets = _STATUS_LINE
        self._quiet = 0
        self._interim = 0
        self._parts: list[bytes] = []
        self._decoder: Decoder
        self._complete = False
        self._in_step = True
        self._keep = False
        self.head: Head | None = None
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take what the connection gave; b"" says that it has ended."""
        if not data:
            self._end()
            return
        parser = self._parser
        if parser is None:
            self._in_step = False
            return
        self._quiet += len(data)
        try:
            parser.feed_data(data)
        except HttpParserCallbackError as error:
            raise _ours(error) from None
        except (HttpParserError, HttpParserUpgrade):
            # octets after the end are no part of this answer, whatever they are
            if not self._complete:
                raise _not_http() from None
        # a field, trailer or chunk's size that does not end is counted nowhere else
        if not self.done and self._quiet > self._limits.header_bytes:
            raise self._head_too_large()

    def take(self) -> bytes:
        """The content that has come since the last call."""
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return content

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        return self._complete and self._in_step and self._keep

    @property
    def lasting(self) -> bool:
        """Whether another request may follow once the answer is whole, as far as can be told."""
        return self.reusable if self._parser is None else self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        """Called by the parser: after a whole answer, something has come unasked."""
        if self._complete:
            self._in_step = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers too: those count and are dropped."""
        if self._complete:
            return
        self._header_count += 1
        self._header_octets += len(name) + len(value) + _AROUND_FIELD
        if self._header_octets > self._limits.header_bytes:
            raise self._head_too_large()
        if self._header_count > self._limits.header_count:
            raise ResponseTooLarge(
                f"the answer has more than {self._limits.header_count} headers", code="net.too-large.headers"
            )
        if self.head is None:
            field = (name.decode("latin-1"), value.decode("latin-1").strip("\t "))
            self._fields.append(field)
            if (lower := field[0].lower()) in TELLING:
                self._told.setdefault(lower, []).append(field[1])

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        if parser is None or self._complete:
            return
        status = parser.get_status_code()
        minor = _MINOR.get(parser.get_http_version())
        if minor is None or status < 100:
            raise _not_http()
        if status < 200:
            self._interim += 1
            if status == 101 or self._interim > _MOST_INTERIM:
                raise ProtocolError(
                    "the answer is an interim one that was not asked for", code="net.protocol.http"
                )
            return
        self._start(Head(minor, status, self._fields, self._told))
        if self._method == "HEAD":
            self._finish()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._quiet = 0
        if self._complete or self.done:
            return
        content = self._decoder.feed(data)
        if content:
            self._parts.append(content)
        self.done = self._decoder.full

    def on_message_complete(self) -> None:
        """Called by the parser, after an interim answer too."""
        parser = self._parser
        if parser is None or self._complete:
            return
        if self.head is None:
            self._fields, self._told = [], {}
            return
        self._keep = parser.should_keep_alive()
        self._finish()

    def _start(self, head: Head) -> None:
        told = head.told
        if 300 <= head.status < 400 and "location" in told:
            raise RedirectRefused(
                "the server sends the request elsewhere; nothing was sent there",
                hint="if the new address is right, put it into the URI",
            )
        coding = told.get("transfer-encoding")
        if coding is not None and (head.minor == 0 or [each.lower() for each in coding] != ["chunked"]):
            raise ProtocolError("the answer is framed in an ambiguous way", code="net.protocol.http")
        good = head.status < 300
        cap = self._limit if good else self._limits.error_body
        self._decoder = Decoder(head, cap, cut=not good)
        if good and self._method != "HEAD" and int(told.get("content-length", ["0"])[0]) > cap:
            raise too_large(cap)
        self.head = head

    def _finish(self) -> None:
        """The message is whole. The parser and this object hold each other: let go."""
        self._complete = self.done = True
        self._parser = None
        if self._method != "HEAD":
            self._decoder.end()

    def _end(self) -> None:
        if self.head is None:
            how = "truncated" if self._quiet else "broken"
            raise ConnectionFailed(
                "the connection ended before the answer came", code=f"net.connection.{how}"
            )
        if {"content-length", "transfer-encoding"} & self._told.keys():
            raise ConnectionFailed(
                "the connection ended before the answer did", code="net.connection.truncated"
            )
        self._finish()

    def _head_too_large(self) -> ResponseTooLarge:
        return ResponseTooLarge(
            f"the head of the answer is larger than {self._limits.header_bytes} octets",
            code="net.too-large.headers",
        )


def _not_http() -> ProtocolError:
    return ProtocolError("the answer is not HTTP", code="net.protocol.http")


def _ours(error: HttpParserCallbackError) -> BaseException:
    """What a method of ours raised, Ctrl-C too: the parser makes it the context of an error of its own."""
    return error.__context__ or error
