"""Connections on the running event loop, with the transports of asyncio or uvloop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from onym.errors import NetError
from onym.net import connections
from onym.net.limits import Deadline, compute_remaining, make_deadline_error
from onym.uri.secret import SecretBytes

#: bytes read from a socket at once
_READ: Final = 64 * 1024
#: bytes that may wait to be read before the socket is paused
_HIGH: Final = 256 * 1024


class AsyncConnection(asyncio.BufferedProtocol):
    """A `Connection` as a protocol of asyncio. Data that arrives is buffered until it is read.

    The loop receives into `space`, which the connections of one loop share: with `data_received`, asyncio
    allocates 256 KiB for every call.
    """

    def __init__(self, address: str, clock: Callable[[], float], space: memoryview) -> None:
        self._clock = clock
        self._space = space
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._readable: Callable[[float], bool]
        self._waiter: asyncio.Future[None] | None = None
        self._until: Deadline = None
        self._timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._error: NetError | None = None
        self.address = address
        self.tls_version: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._readable = connections.make_readiness_check(transport.get_extra_info("socket"), reading=True)
        session = transport.get_extra_info("ssl_object")
        self.tls_version = None if session is None else connections.get_tls_version(session)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio, just before it receives."""
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio, right after it received."""
        self._parts.append(bytes(self._space[:nbytes]))
        self._size += nbytes
        if self._size > _HIGH:
            self._transport.pause_reading()
        self._wake_waiter()

    def eof_received(self) -> None:
        """Called by asyncio. No request follows after the server has ended the connection."""
        self._ended = True
        self._wake_waiter()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._ended = True
        if exc is not None:
            self._error = connections.translate_error(exc)
        self._stop_timer()
        self._wake_waiter()

    async def write(self, message: SecretBytes, deadline: Deadline) -> None:
        """Send the message; the loop goes on sending while the response is awaited."""
        if not self._ended and not self._transport.is_closing():
            try:
                self._transport.write(message.reveal())
            except BaseException as error:
                # the frames of asyncio contain the message
                error.__traceback__ = None
                raise

    async def read(self, deadline: Deadline) -> bytes:
        """Return the next bytes."""
        if not self._parts and not self._ended:
            await self._wait_for_data(deadline)
        if self._parts:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts.clear()
            if self._size > _HIGH:
                self._transport.resume_reading()
            self._size = 0
            return data
        if self._error is not None:
            raise self._error
        return b""

    def is_usable(self) -> bool:
        """Report whether it is open and no data arrived without a request, noticed by the loop or not."""
        if self._ended or self._parts or self._transport.is_closing():
            return False
        return not self._readable(0)

    def certificate(self) -> connections.TLSSession | None:
        """Return the TLS session."""
        session = self._transport.get_extra_info("ssl_object")
        return None if session is None else connections.get_tls_session(session)

    def close(self) -> None:
        """Close the socket at once."""
        if not self._loop.is_closed():
            self._transport.abort()

    def drop(self) -> None:
        """Close the connection, from any thread: asyncio itself keeps a reference to it."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._transport.abort)

    def abandon(self) -> None:
        """Do nothing: the loop is the parent's too, and closing would end the parent's wait for data."""

    async def _wait_for_data(self, deadline: Deadline) -> None:
        left = compute_remaining(deadline, self._clock)
        self._until = deadline
        # one timer serves several waits, because most end long before it is due
        if left is not None and (self._timer is None or self._timer.when() > self._loop.time() + left):
            self._set_timer(left)
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _set_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        """End the wait if its time is over; the timer may be that of an earlier wait."""
        self._timer = None
        if self._waiter is None or self._waiter.done() or self._until is None:
            return
        left = self._until - self._clock()
        if left > 0:
            self._set_timer(left)
        else:
            self._waiter.set_exception(make_deadline_error())

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsyncBackend:
    """A `Backend` on the running event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lookups: dict[str, asyncio.Task[list[str]]] = {}
        self._space = memoryview(bytearray(_READ))

    async def lookup(self, resolver: connections.AddressResolver, host: str, deadline: Deadline) -> list[str]:
        """Look up the name; simultaneous lookups of one name share the answer."""
        task = self._lookups.get(host)
        if task is None:
            task = asyncio.get_running_loop().create_task(resolver.alookup(host, None))
            self._lookups[host] = task
            task.add_done_callback(lambda done: self._on_lookup_done(host, done))
        try:
            async with asyncio.timeout(compute_remaining(deadline, self.clock)):
                return await asyncio.shield(task)
        except TimeoutError:
            raise make_deadline_error() from None

    def _on_lookup_done(self, host: str, task: asyncio.Task[list[str]]) -> None:
        del self._lookups[host]
        if not task.cancelled():
            task.exception()  # retrieved, because all callers may have been cancelled

    def close(self) -> None:
        """Cancel the lookups."""
        for task in self._lookups.values():
            task.cancel()

    async def dial(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        """Connect."""
        sock = connections.make_socket(address)
        with connections.close_on_failure(sock):
            sock.setblocking(False)
            async with asyncio.timeout(compute_remaining(deadline, self.clock)):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
        return sock

    async def establish(
        self, sock: Any, address: str, security: connections.TLSSettings | None, deadline: Deadline
    ) -> AsyncConnection:
        """Return the connection on this socket, with TLS if `security` is given."""
        loop = asyncio.get_running_loop()
        connection = AsyncConnection(address, self.clock, self._space)
        options: dict[str, Any] = {}
        if security is not None:
            options = {"ssl": security.context, "server_hostname": security.name}
        try:
            async with asyncio.timeout(compute_remaining(deadline, self.clock)):
                await loop.create_connection(lambda: connection, sock=sock, **options)
        except TimeoutError:
            raise make_deadline_error() from None
        except (OSError, ValueError) as error:
            raise connections.translate_error(error) from error
        finally:
            if not hasattr(connection, "_transport"):
                sock.close()
        return connection
