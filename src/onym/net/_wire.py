"""What the core asks of the two ways to do I/O. Both are coroutines; those of the blocking one never wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from onym.net._deadline import Deadline

if TYPE_CHECKING:
    import ssl

    from onym.net.resolve import Resolver

__all__ = ["Backend", "Certificate", "Connection", "Security", "drive"]

T = TypeVar("T")


class Security(NamedTuple):
    """How a connection is to be secured: whom to trust, and the name that the certificate must bear."""

    context: ssl.SSLContext
    name: str


class Certificate(NamedTuple):
    """What TLS has agreed on: version ("1.3"), cipher, and the server's certificate as `ssl` has it."""

    version: str
    cipher: str
    subject: dict[str, Any]


class Connection(Protocol):
    """One connection to one address, used for one exchange at a time."""

    address: str
    tls_version: str | None

    async def write(self, data: bytes, deadline: Deadline) -> None:
        """Send it all; raises NetError. A peer that has gone away shows when reading."""
        ...

    async def read(self, deadline: Deadline) -> bytes:
        """The next octets, b"" at the end; raises NetError."""
        ...

    def is_usable(self) -> bool:
        """Whether an idle connection may be used again: it is open, and nothing has come unasked."""
        ...

    def certificate(self) -> Certificate | None:
        """What TLS has agreed on, None over plain TCP."""
        ...

    def close(self) -> None:
        """Close at once, wherever an exchange stands. May be called again."""
        ...

    def drop(self) -> None:
        """Nobody holds its exchange any more: close it. Called from any thread."""
        ...


class Backend(Protocol):
    """Where connections come from."""

    clock: Callable[[], float]

    async def lookup(self, resolver: Resolver, host: str, deadline: Deadline) -> list[str]:
        """The addresses of the name; raises NetError."""
        ...

    async def dial(self, address: str, port: int, deadline: Deadline) -> Any:
        """A connected TCP socket; raises NetError."""
        ...

    async def establish(
        self, sock: Any, address: str, security: Security | None, deadline: Deadline
    ) -> Connection:
        """The connection on that socket, secured where asked for; raises NetError, the socket closed then."""
        ...

    def close(self) -> None:
        """Stop what goes on beside the exchanges."""
        ...


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core over a backend that blocks: it never waits, so one step ends it."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a blocking transport was driven through something that waits")
