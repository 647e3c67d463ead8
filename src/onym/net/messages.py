"""What a flow and a transport say to each other: frozen values, no I/O.

A flow is a generator that yields `Send`, `Wait`, `Ask` or `Work` and is resumed with a `Reply`, None,
`Records` or what the work gave; `run` and `arun` drive it. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from onym.uri.generic import URI
    from onym.uri.secret import Secret

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

#: the types of DNS records that a flow can ask for
RecordKind: TypeAlias = Literal["SRV", "TXT", "CNAME"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request goes: scheme, host and port.

    `host` is a name in ASCII or an IP literal without brackets, `port` is 1 to 65535. Whether the
    policy lets anybody go there is the transport's business.
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

    `target` is the path with its query ("/v1/chat/completions"), already percent-encoded. Header
    values may be `Secret`; they are revealed in the transport alone. `credential` is an opaque name
    of the credential in use, never the credential: connections are not shared between two of them.
    """

    method: str
    origin: Origin
    target: str
    headers: tuple[tuple[str, str | Secret], ...] = ()
    body: bytes = field(default=b"", repr=False)
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Ask the driver to send `request` and answer with a `Reply`.

    `timeout` bounds the whole exchange, look-up and body included; None leaves it unbounded. With
    `stream=True` a 2xx reply comes back with its body still open; every other body is read whole.
    `connect` says where to open the connection instead of the request's origin: the policy judges both,
    while `Host` and TLS keep the origin's name. Its scheme is the origin's. `limit` is the most octets that a
    2xx body may have, where that is less than what the transport takes.
    """

    request: HTTPRequest
    timeout: float | None = None
    stream: bool = False
    connect: Origin | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask the driver to do nothing for so many seconds; the flow is resumed with None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the driver for DNS records of a name, and be resumed with `Records`; never raises.

    `name` is absolute, with or without the dot at its end; no search list is used. `timeout` bounds the
    whole question, what is asked to tell bogus from broken included; None leaves the resolver's own bound.
    """

    name: str
    kind: RecordKind
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Ask the driver to make a call that may wait; the flow is resumed with what it returns.

    The driver of coroutines awaits `acall` instead, or runs `call` in a thread if there is none.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None


@dataclass(frozen=True, slots=True)
class SRV:
    """One SRV record (RFC 2782). `target` is lower case without the dot at its end; "" is the root."""

    priority: int
    weight: int
    port: int
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What DNS says of a name.

    `status` is "found"; "none" for a name that does not exist, or that has no record of the kind; "bogus"
    where DNSSEC shows that the answer is false: stop, it is not an absence; "failed" where nobody answered,
    or nothing that could be used. `values` are `SRV`, or text: a TXT record's strings joined, a CNAME's
    target spelt as `SRV.target`. `validated` says that DNSSEC vouches for it, for "none" too. `detail` is
    for people.
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
        # values may be cookies or tokens that a server sets: names are enough for a log
        return f"Headers({', '.join(name for name, _ in self._pairs)})"


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """How a reply came: the address that was checked and connected to, and the versions spoken.

    `tls_version` is the lowest version that the connection can have ("1.2" means 1.2 or later); None
    over plain HTTP.
    """

    address: str
    tls_version: str | None = None
    http_version: str = "1.1"


class StreamBody(Protocol):
    """A body that is still arriving. Closing it before its end closes the connection."""

    def read(self) -> bytes:
        """The next octets, or b"" at the end; raises NetError."""
        ...

    def close(self, patience: float = 0) -> None:
        """Give the connection back if the end was read, else close it. May be called again.

        The end may take `patience` seconds to come, where the connection could be used again then.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AsyncStreamBody(Protocol):
    """A body that is still arriving, read by a coroutine."""

    async def aread(self) -> bytes:
        """The next octets, or b"" at the end; raises NetError."""
        ...

    async def aclose(self, patience: float = 0) -> None:
        """As `StreamBody.close`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server said. Either `stream` is open and `body` is empty, or `body` is whole."""

    status: int
    headers: Headers
    body: bytes = field(repr=False)
    stream: StreamBody | AsyncStreamBody | None
    info: ConnectionInfo


#: what comes back follows from the step that was yielded, which a generator's type cannot say:
#: Reply for Send, None for Wait, Records for Ask
Flow: TypeAlias = Generator[Send | Wait | Ask | Work, Any, T]
