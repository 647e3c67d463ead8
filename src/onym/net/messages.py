"""The values that flows and transports exchange. They are frozen and do no I/O.

A flow is a generator that yields `Send`, `Wait`, `Ask` or `Work` and receives a `Reply`, None, `Records` or
the result of the work; `run_flow` and `arun_flow` drive it. Times are in seconds.
"""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from onym.errors import ProtocolError, ResponseTooLarge

if TYPE_CHECKING:
    from onym.net.limits import ClientIdentity
    from onym.uri.generic import URI
    from onym.uri.secret import Secret, SecretBytes

__all__ = [
    "SRV",
    "Ask",
    "AsyncStreamBody",
    "ConnectionInfo",
    "Flow",
    "HTTPRequest",
    "Headers",
    "Origin",
    "RecordKind",
    "Records",
    "Reply",
    "SSEDecoder",
    "SSEEvent",
    "Send",
    "StreamBody",
    "Wait",
    "Work",
    "split_url",
]

T = TypeVar("T")

#: the types of DNS records that a flow can query
RecordKind: TypeAlias = Literal["SRV", "TXT", "CNAME"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a request: scheme, host and port.

    `host` is a name in ASCII or an IP literal without brackets, `port` is 1 to 65535. The transport checks
    whether the policy allows it.
    """

    scheme: Literal["https", "http"]
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def split_url(url: URI) -> tuple[Origin, str]:
    """Return the origin and the request target of a valid https or http URL."""
    scheme: Literal["https", "http"] = "http" if url.scheme == "http" else "https"
    query = "" if url.query is None else f"?{url.query}"
    port = int(url.port or (80 if scheme == "http" else 443))
    return Origin(scheme, url.host or "", port), (url.path or "/") + query


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPRequest:
    """One HTTP request.

    `target` is the path with its query ("/v1/chat/completions"), already percent-encoded. Header values may
    be `Secret` and the body `SecretBytes`; only the transport reveals them. `credential` is an opaque name of
    the credential, never the credential itself: two credentials do not share a connection.
    """

    method: str
    origin: Origin
    target: str
    headers: tuple[tuple[str, str | Secret], ...] = ()
    body: bytes | SecretBytes = field(default=b"", repr=False)
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send `request`; the flow receives a `Reply`.

    `timeout` applies to the whole exchange, with lookup and body; None sets no limit. With `stream=True` the
    body of a 2xx reply is still open; every other body is read completely. `connect` is the origin to connect
    to instead of the request's: the policy checks both, `Host` and TLS keep the request's name, and the
    scheme is the same. `limit` is the largest 2xx body in bytes, if that is less than the transport's limit.
    `idle_timeout` is the longest time without a byte of an open body; None is that of `NetLimits`. `identity`
    is the client certificate of this request, None for that of the transport's `TLSConfig`.
    """

    request: HTTPRequest
    timeout: float | None = None
    stream: bool = False
    connect: Origin | None = None
    limit: int | None = None
    idle_timeout: float | None = None
    identity: ClientIdentity | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait; the flow receives None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Query DNS records of a name; the flow receives `Records`, also after a failure.

    `name` is absolute, with or without a final dot; no search list is used. `timeout` applies to all queries
    together; None is the resolver's own timeout.
    """

    name: str
    kind: RecordKind
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Run a call that may wait; the flow receives its result.

    `arun_flow` awaits `acall` instead, or runs `call` in a thread if there is none.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None


@dataclass(frozen=True, slots=True)
class SRV:
    """One SRV record (RFC 2782). `target` is in lower case without the final dot; "" is the root."""

    priority: int
    weight: int
    port: int
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a name.

    `status` is "found"; "none" if the name does not exist or has no record of the type; "bogus" if DNSSEC
    shows that the answer is forged, which does not mean "none"; "failed" without a usable answer. `values`
    are `SRV` or text: the joined strings of a TXT record, the target of a CNAME spelt as `SRV.target`.
    `validated` is true if DNSSEC proves the answer, also for "none". `detail` is for people.
    """

    status: Literal["found", "none", "bogus", "failed"]
    values: tuple[SRV | str, ...] = ()
    validated: bool = False
    detail: str = ""


class Headers:
    """Header fields in the order received; names compare without case (RFC 9110 5.1)."""

    __slots__ = ("_index", "_pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)
        self._index: dict[str, list[str]] | None = None

    def _by_name(self) -> dict[str, list[str]]:
        if self._index is None:
            index: dict[str, list[str]] = {}
            for name, value in self._pairs:
                index.setdefault(name.lower(), []).append(value)
            self._index = index
        return self._index

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of this name, or `default`."""
        values = self._by_name().get(name.lower())
        return values[0] if values else default

    def get_all(self, name: str) -> tuple[str, ...]:
        """Every value of this name, in order."""
        return tuple(self._by_name().get(name.lower(), ()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._by_name()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Headers):
            return NotImplemented
        return self._pairs == other._pairs

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __repr__(self) -> str:
        # values may be cookies or tokens, and a log needs only the names
        return f"Headers({', '.join(name for name, _ in self._pairs)})"


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """The connection of a reply: its checked address and its versions.

    `tls_version` is None over plain HTTP.
    """

    address: str
    tls_version: str | None = None
    http_version: str = "1.1"


class StreamBody(Protocol):
    """A body that is still arriving. Closing it before its end closes the connection."""

    def read(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises NetError."""

    def close(self, patience: float = 0) -> None:
        """Close the connection, or reuse it if the end was read. May be called again.

        Wait `patience` seconds for the end if the connection can be reused then.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class AsyncStreamBody(Protocol):
    """A body that is still arriving, read by a coroutine."""

    async def aread(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises NetError."""

    async def aclose(self, patience: float = 0) -> None:
        """Do what `StreamBody.close` does."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. Either `stream` is open and `body` is empty, or `body` is complete."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    stream: StreamBody | AsyncStreamBody | None
    info: ConnectionInfo


#: a generator's type cannot express that the received value depends on the yielded one
Flow: TypeAlias = Generator[Send | Wait | Ask | Work, Any, T]


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
