"""Sockets that block. Ctrl-C gets through: no wait is longer than a slice, and none is outside of Python."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from math import ceil
from typing import Any, Final

from onym.net._deadline import SLICE, Deadline, overdue, remaining
from onym.net._failures import translate
from onym.net._wire import Certificate, Security
from onym.net.resolve import Resolver

__all__ = ["BlockingBackend", "BlockingConnection", "certificate_of", "new_socket", "tls_version", "watch"]

_READ: Final = 64 * 1024
#: Windows has no poll
_POLL: Final = getattr(select, "poll", None)


class BlockingConnection:
    """A `Connection` on a socket of the standard library.

    The socket itself does not block: waiting costs a system call only where there is something to wait for.
    """

    __slots__ = ("_clock", "_readable", "_sock", "_writable", "address", "tls_version")

    def __init__(self, sock: socket.socket, address: str, clock: Callable[[], float]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._clock = clock
        self._readable = watch(sock, reading=True)
        self._writable = watch(sock, reading=False)
        self.address = address
        self.tls_version = tls_version(sock)

    async def write(self, data: bytes, deadline: Deadline) -> None:
        """Send it all."""
        remaining(deadline, self._clock)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(self._writable, deadline)
            except ConnectionError:
                # the server may have answered before it went away: reading tells
                return
            except OSError as error:
                raise translate(error) from error

    async def read(self, deadline: Deadline) -> bytes:
        """The next octets."""
        while True:
            # a read takes a record of TLS whole: nothing is left over in OpenSSL
            self._wait(self._readable, deadline)
            try:
                return self._sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError as error:
                raise translate(error) from error

    def is_usable(self) -> bool:
        """An idle connection on which anything can be read has ended, or is out of step."""
        try:
            return not self._readable(0)
        except (OSError, ValueError):
            return False

    def certificate(self) -> Certificate | None:
        """What TLS has agreed on."""
        return certificate_of(self._sock) if isinstance(self._sock, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket, without a farewell."""
        self._sock.close()

    drop = close

    def _wait(self, ready: Callable[[float], bool], deadline: Deadline) -> None:
        try:
            while not ready(remaining(deadline, self._clock, SLICE) or SLICE):
                pass
        except (OSError, ValueError) as error:
            raise translate(error) from error


class BlockingBackend:
    """A `Backend` on blocking sockets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock

    async def lookup(self, resolver: Resolver, host: str, deadline: Deadline) -> list[str]:
        """Ask the resolver."""
        return resolver.lookup(host, deadline)

    async def dial(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        """Connect."""
        sock = new_socket(address)
        try:
            sock.settimeout(remaining(deadline, self.clock))
            sock.connect((address, port))
        except TimeoutError:
            sock.close()
            raise overdue() from None
        except OSError as error:
            sock.close()
            raise translate(error) from error
        except BaseException:
            sock.close()
            raise
        return sock

    async def establish(
        self, sock: Any, address: str, security: Security | None, deadline: Deadline
    ) -> BlockingConnection:
        """Agree on TLS where asked for."""
        try:
            if security is not None:
                # a connection that ends without a farewell is an error, not the end of the answer
                sock = security.context.wrap_socket(
                    sock,
                    server_hostname=security.name,
                    do_handshake_on_connect=False,
                    suppress_ragged_eofs=False,
                )
                self._shake_hands(sock, deadline)
            return BlockingConnection(sock, address, self.clock)
        except (OSError, ValueError) as error:
            sock.close()
            raise translate(error) from error
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Nothing goes on beside the exchanges."""

    def _shake_hands(self, sock: ssl.SSLSocket, deadline: Deadline) -> None:
        while True:
            sock.settimeout(remaining(deadline, self.clock, SLICE))
            with contextlib.suppress(TimeoutError):
                sock.do_handshake()
                return


def new_socket(address: str) -> socket.socket:
    """A TCP socket for connections to this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def tls_version(sock: socket.socket | ssl.SSLObject) -> str | None:
    """ "1.3" for a session of TLS 1.3; None over plain TCP."""
    if not isinstance(sock, ssl.SSLSocket | ssl.SSLObject):
        return None
    return (sock.version() or "").removeprefix("TLSv")


def certificate_of(session: ssl.SSLSocket | ssl.SSLObject) -> Certificate:
    """What TLS has agreed on."""
    cipher = session.cipher()
    return Certificate(tls_version(session) or "", cipher[0] if cipher else "", session.getpeercert() or {})


def watch(sock: socket.socket, *, reading: bool) -> Callable[[float], bool]:
    """A function that waits so many seconds for the socket, and says whether it is ready."""
    if _POLL is None:
        watched = ([sock], []) if reading else ([], [sock])
        return lambda seconds: any(select.select(*watched, [], seconds))
    poll = _POLL()
    poll.register(sock, select.POLLIN if reading else select.POLLOUT)
    return lambda seconds: bool(poll.poll(ceil(seconds * 1000)))
