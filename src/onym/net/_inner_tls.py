"""TLS inside a connection that leads through a proxy, for both backends."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from onym.errors import ConnectionFailed
from onym.net.connections import (
    Connection,
    TLSSession,
    TLSSettings,
    get_tls_session,
    get_tls_version,
    translate_error,
)
from onym.net.limits import Deadline
from onym.uri.secret import SecretBytes

#: bytes of one TLS record (RFC 8446 5.1)
_RECORD: Final = 16 * 1024
#: bytes that are encrypted before they are sent
_BATCH: Final = 256 * 1024


class InnerTLSConnection:
    """A `Connection` with a TLS session of its own inside another connection, which may have TLS too."""

    __slots__ = ("_incoming", "_outer", "_outgoing", "_session", "address", "tls_version")

    def __init__(self, outer: Connection, security: TLSSettings) -> None:
        self._outer = outer
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = security.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=security.name
        )
        self.address = outer.address
        self.tls_version: str | None = None

    async def do_handshake(self, deadline: Deadline) -> None:
        """Open the session. Raises NetError."""
        while not self._run_step(self._session.do_handshake):
            await self._flush(deadline)
            await self._receive(deadline)
        await self._flush(deadline)
        self.tls_version = get_tls_version(self._session)

    async def write(self, message: SecretBytes, deadline: Deadline) -> None:
        """Send the message."""
        sent, size = 0, len(message)

        def encrypt() -> None:
            nonlocal sent
            # never in a variable, which tools that report errors would show
            sent += self._session.write(memoryview(message.reveal())[sent : sent + _BATCH])

        while sent < size:
            done = self._run_step(encrypt)
            await self._flush(deadline)
            if not done:
                await self._receive(deadline)

    async def read(self, deadline: Deadline) -> bytes:
        """Return the next bytes."""
        parts: list[bytes] = []

        def decrypt() -> None:
            while part := self._session.read(_RECORD):
                parts.append(part)

        # all that has arrived: what stays here would not make the socket readable
        while not self._run_step(decrypt):
            if parts:
                break
            await self._receive(deadline)
        return b"".join(parts)

    def is_usable(self) -> bool:
        """Report whether the outer connection is open, and no data arrived without a request."""
        return self._outer.is_usable()

    def certificate(self) -> TLSSession | None:
        """Return the inner TLS session, which is the server's."""
        return get_tls_session(self._session)

    def close(self) -> None:
        """Close the outer connection at once."""
        self._outer.close()

    def drop(self) -> None:
        """Close the outer connection, from any thread."""
        self._outer.drop()

    def abandon(self) -> None:
        """Close this process's copy of the outer connection after a fork."""
        self._outer.abandon()

    def _run_step(self, step: Callable[[], None]) -> bool:
        """Run a step, and report whether it is complete; if not, it needs more data of the server."""
        try:
            step()
        except ssl.SSLWantReadError:
            return False
        except (OSError, ValueError) as error:
            # the frames of `ssl` hold what was to be sent
            raise translate_error(error) from error.with_traceback(None)
        return True

    async def _flush(self, deadline: Deadline) -> None:
        """Send what the session has produced."""
        if self._outgoing.pending:
            await self._outer.write(SecretBytes(self._outgoing.read()), deadline)

    async def _receive(self, deadline: Deadline) -> None:
        """Pass what arrives to the session."""
        data = await self._outer.read(deadline)
        if not data:
            raise ConnectionFailed("the connection was lost", code="net.connection.broken")
        self._incoming.write(data)
