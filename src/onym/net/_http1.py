"""HTTP/1.1 on the wire (RFC 9112): encode requests, parse responses and decode content codings within limits.

llhttp parses the messages strictly: lines end in CRLF, no line is folded, no length is given twice. Content
codings are decoded piece by piece and never beyond a limit, so a small body cannot become a huge one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from onym.errors import ConnectionFailed, ProtocolError, RedirectRefused, ResponseTooLarge, UsageError
from onym.net.limits import NetLimits
from onym.net.messages import HTTPRequest
from onym.uri.secret import Secret

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_is_token = re.compile(_NAME).fullmatch
#: field-content, and obs-text as UTF-8; no control may split the head
_is_value = re.compile(r"[\t\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff]*").fullmatch
_is_target = re.compile(r"/[!-\"$-~]*").fullmatch

#: what the transport itself decides (RFC 9110 7.2, 7.6.1, 8.6, 10.1.1)
_TRANSPORT_HEADERS: Final = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)

#: what says how a response is to be read
FRAMING_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "location", "transfer-encoding"}
)


class ResponseHead(NamedTuple):
    """A response's head: the minor version of HTTP/1, the status, and the fields in order.

    `told` holds, by lower-case name, the values of the fields that say how to read the message itself.
    """

    minor: int
    status: int
    fields: list[tuple[str, str]]
    told: dict[str, list[str]]

    def get_values(self, name: str) -> Sequence[str]:
        """Every value of this one of the fields that say how to read the message."""
        return self.told.get(name, ())


def encode_request(request: HTTPRequest, host: str, accept_encoding: str) -> bytes:
    """The request as octets. `host` is the Host field's value.

    Raises UsageError for a method, target or header that HTTP does not allow; values are never shown.
    """
    if _is_token(request.method) is None or _is_target(request.target) is None:
        raise UsageError("the method or the target is not one of HTTP", code="usage.http")
    lines = [f"{request.method} {request.target} HTTP/1.1\r\nHost: {host}\r\n"]
    coded = False
    for name, value in request.headers:
        text = value.reveal() if isinstance(value, Secret) else value
        lower = _normalize_header_name(name)
        if lower is None:
            raise UsageError("a header with this name cannot be set", code="usage.http")
        if _is_value(text) is None:
            raise UsageError(f"the value of the header {name} holds a control character", code="usage.http")
        coded = coded or lower == "accept-encoding"
        lines.append(f"{name}: {text}\r\n")
    if not coded:
        lines.append(f"Accept-Encoding: {accept_encoding}\r\n")
    if request.body or request.method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode() + request.body


@lru_cache(256)
def _normalize_header_name(name: str) -> str | None:
    """The name in lower case, None where it is no name or not for callers to set."""
    lower = name.lower()
    return None if _is_token(name) is None or lower in _TRANSPORT_HEADERS else lower


def parse_tokens(values: Sequence[str]) -> list[str]:
    """The members of comma-separated lists, in lower case."""
    return [each.strip("\t ").lower() for value in values for each in value.split(",")]


_GZIP: Final = 31  # a window of 32 KiB, gzip header
_ZLIB: Final = 15
_RAW: Final = -15
_PIECE: Final = 256 * 1024


def make_too_large_error(cap: int) -> ResponseTooLarge:
    """The error for a body beyond its cap."""
    return ResponseTooLarge(f"the answer is larger than {cap} octets", code="net.too-large.body")


class ContentDecoder:
    """Undoes the coding that a head names, and counts: beyond `cap` octets it raises ResponseTooLarge.

    The cap holds for the octets that come in too: empty pieces without end would keep it busy. With
    `cut=True` what is beyond the cap is dropped instead, and `full` is set.
    """

    __slots__ = ("_cap", "_coding", "_cut", "_inflater", "_left", "_wire_left", "full")

    def __init__(self, head: ResponseHead, cap: int, *, cut: bool = False) -> None:
        told = head.get_values("content-encoding")
        codings = [each for each in parse_tokens(told) if each not in ("identity", "")] if told else []
        if len(codings) > 1 or (codings and codings[0] not in ("gzip", "x-gzip", "deflate")):
            raise ProtocolError(
                "the answer is coded in a way that was not asked for", code="net.protocol.coding"
            )
        self._coding = codings[0] if codings else None
        self._inflater: zlib._Decompress | None = None
        self._cap = self._left = self._wire_left = cap
        self._cut = cut
        self.full = False

    def feed(self, data: bytes) -> bytes:
        """The content's octets among these octets of the body."""
        if self._coding is None:
            return self._count_octets(data)
        self._wire_left -= len(data)
        if self._wire_left < 0:
            self._handle_overflow()
        parts: list[bytes] = []
        try:
            while data and not self.full:
                inflater = self._inflater = self._inflater or zlib.decompressobj(self._choose_window(data))
                # one octet more than is left, so that going beyond shows
                parts.append(self._count_octets(inflater.decompress(data, min(_PIECE, self._left + 1))))
                data = inflater.unconsumed_tail
                if inflater.eof:
                    data = inflater.unused_data
                    self._inflater = None
        except zlib.error:
            raise self._make_broken_error() from None
        return b"".join(parts)

    def finish(self) -> None:
        """The body is whole; raises ProtocolError where the coded data is not."""
        if self._inflater is not None and not self.full:
            raise self._make_broken_error()

    def _choose_window(self, data: bytes) -> int:
        if self._coding != "deflate":
            return _GZIP
        # some servers send deflate without the zlib header that RFC 9110 8.4.1.2 asks for
        return _ZLIB if data[0] & 0x8F == 8 else _RAW

    def _count_octets(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self._handle_overflow()
            data = data[: self._left]
        self._left -= len(data)
        return data

    def _handle_overflow(self) -> None:
        if not self._cut:
            raise make_too_large_error(self._cap)
        self.full = True

    @staticmethod
    def _make_broken_error() -> ProtocolError:
        return ProtocolError("the answer's compressed data is broken", code="net.protocol.coding")


_MOST_INTERIM: Final = 8
_MINOR: Final = {"1.0": 0, "1.1": 1}
#: what a head and its trailers hold beside names and values: the status line, and four octets a field
_STATUS_LINE: Final = 16
_AROUND_FIELD: Final = 4


class ResponseParser:
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
        self._decoder: ContentDecoder
        self._complete = False
        self._in_step = True
        self._keep = False
        self.head: ResponseHead | None = None
        self.done = False

    def feed(self, data: bytes) -> None:
        """Take what the connection gave; b"" says that it has ended."""
        if not data:
            self._end_connection()
            return
        parser = self._parser
        if parser is None:
            self._in_step = False
            return
        self._quiet += len(data)
        try:
            parser.feed_data(data)
        except HttpParserCallbackError as error:
            raise _unwrap_callback_error(error) from None
        except (HttpParserError, HttpParserUpgrade):
            # octets after the end are no part of this answer, whatever they are
            if not self._complete:
                raise _make_not_http_error() from None
        # a field, trailer or chunk's size that does not end is counted nowhere else
        if not self.done and self._quiet > self._limits.header_bytes:
            raise self._make_head_error()

    def take_content(self) -> bytes:
        """The content that has come since the last call."""
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return content

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow on this connection."""
        return self._complete and self._in_step and self._keep

    @property
    def will_be_reusable(self) -> bool:
        """Whether another request may follow once the answer is whole, as far as can be told."""
        return self.is_reusable if self._parser is None else self._parser.should_keep_alive()

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
            raise self._make_head_error()
        if self._header_count > self._limits.header_count:
            raise ResponseTooLarge(
                f"the answer has more than {self._limits.header_count} headers", code="net.too-large.headers"
            )
        if self.head is None:
            field = (name.decode("latin-1"), value.decode("latin-1").strip("\t "))
            self._fields.append(field)
            if (lower := field[0].lower()) in FRAMING_HEADERS:
                self._told.setdefault(lower, []).append(field[1])

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        if parser is None or self._complete:
            return
        status = parser.get_status_code()
        minor = _MINOR.get(parser.get_http_version())
        if minor is None or status < 100:
            raise _make_not_http_error()
        if status < 200:
            self._interim += 1
            if status == 101 or self._interim > _MOST_INTERIM:
                raise ProtocolError(
                    "the answer is an interim one that was not asked for", code="net.protocol.http"
                )
            return
        self._start_body(ResponseHead(minor, status, self._fields, self._told))
        if self._method == "HEAD":
            self._finish_message()

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
        self._finish_message()

    def _start_body(self, head: ResponseHead) -> None:
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
        self._decoder = ContentDecoder(head, cap, cut=not good)
        if good and self._method != "HEAD" and int(told.get("content-length", ["0"])[0]) > cap:
            raise make_too_large_error(cap)
        self.head = head

    def _finish_message(self) -> None:
        """The message is whole. The parser and this object hold each other: let go."""
        self._complete = self.done = True
        self._parser = None
        if self._method != "HEAD":
            self._decoder.finish()

    def _end_connection(self) -> None:
        if self.head is None:
            how = "truncated" if self._quiet else "broken"
            raise ConnectionFailed(
                "the connection ended before the answer came", code=f"net.connection.{how}"
            )
        if {"content-length", "transfer-encoding"} & self._told.keys():
            raise ConnectionFailed(
                "the connection ended before the answer did", code="net.connection.truncated"
            )
        self._finish_message()

    def _make_head_error(self) -> ResponseTooLarge:
        return ResponseTooLarge(
            f"the head of the answer is larger than {self._limits.header_bytes} octets",
            code="net.too-large.headers",
        )


def _make_not_http_error() -> ProtocolError:
    return ProtocolError("the answer is not HTTP", code="net.protocol.http")


def _unwrap_callback_error(error: HttpParserCallbackError) -> BaseException:
    """What a method of ours raised, Ctrl-C too: the parser makes it the context of an error of its own."""
    return error.__context__ or error
