"""uvicorn's HTTP protocol with bounds that it lacks: on the size of a head, and on time.

Whoever sends a head or a body drop by drop, or takes no answer, holds one of the service's connections.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = [
    "BODY_SECONDS",
    "HEAD_SECONDS",
    "LONGEST_HEAD",
    "TAKE_SECONDS",
    "BoundedProtocol",
    "OriginFormProtocol",
]

#: octets of request line and header fields
LONGEST_HEAD: Final = 128 * 1024
#: seconds until a head is there, from the connection or the head's first octet
HEAD_SECONDS: Final = 20.0
#: seconds until a body is there, from the end of its head
BODY_SECONDS: Final = 60.0
#: seconds that a client may take nothing of an answer that waits for it
TAKE_SECONDS: Final = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose head or body never ends, and one that takes no answer."""

    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    take_seconds: float = TAKE_SECONDS
    _taken = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self._begin(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._end()
        self._taking()
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
        self._begin(self.head_seconds)

    def on_headers_complete(self) -> None:
        """A head is whole; a body may follow."""
        if self.parser.should_upgrade() and self._has_body():
            # httptools takes what is behind such a head for no body of it: in a segment of its own that
            # would be read as the next request
            raise ValueError("a request with a body goes on as HTTP, without Upgrade")
        self._in_head = False
        self._begin(self.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._end()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """More of an answer waits than the client takes."""
        super().pause_writing()
        self._taking()
        self._stalled = self.loop.call_later(self.take_seconds, self._stuck)

    def resume_writing(self) -> None:
        """It takes again."""
        self._taking()
        super().resume_writing()

    def _has_body(self) -> bool:
        fields = dict(self.headers)
        return b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"

    def _taking(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _stuck(self) -> None:
        self._stalled = None
        self.transport.abort()

    def _begin(self, seconds: float) -> None:
        self._end()
        self._timer = self.loop.call_later(seconds, self._late)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.transport.close()


class OriginFormProtocol(BoundedProtocol):
    """Refuses what an app cannot tell from its scope: targets not in origin-form, fields behind the body.

    An absolute-form target (RFC 9112 3.2.2) names a second host beside the field Host, a fragment is never
    sent, a `?` with nothing behind it is lost in a scope, and a trailer field would stand among those of the
    head, where no proxy in front has seen it.
    """

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field: of the head, or it is refused."""
        if not self._in_head:
            raise ValueError("trailer fields are not taken")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Look at the target as it came."""
        if self.url != b"*" and (self.url[:1] != b"/" or b"#" in self.url or self.url[-1:] == b"?"):
            # httptools hands this on as an error of the request: 400, and the connection is closed
            raise ValueError("the target is not in origin-form")
        super().on_headers_complete()
