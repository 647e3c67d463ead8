"""The values that flows and transports exchange. They are frozen and do no I/O.

A flow is a generator that yields `Send`, `Wait`, `Ask` or `Work` and receives a `Reply`, None, `Records` or
the result of the work; `run_flow` and `arun_flow` drive it. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeVar

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
