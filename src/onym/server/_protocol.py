"""uvicorn's HTTP protocol with two bounds that it lacks: on the size of a head, and on the time it takes."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_SECONDS", "LONGEST_HEAD", "BoundedProtocol"]

#: octets of request line and header fields
LONGEST_HEAD: Final = 128 * 1024
#: seconds until a head is there, from the connection or the head's first octet
HEAD_SECONDS: Final = 20.0


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose head never ends, by size or by time."""

    head_seconds: float = HEAD_SECONDS
    _taken = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the head is too long by now."""
        super().data_received(data)
        if self._in_head:
            self._taken += len(data)
            if self._taken > LONGEST_HEAD:
                self._end()
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._taken = 0
        self._in_head = True
        self._begin()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._end()
        self._in_head = False
        super().on_headers_complete()

    def _begin(self) -> None:
        self._end()
        self._timer = self.loop.call_later(self.head_seconds, self._late)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.transport.close()
