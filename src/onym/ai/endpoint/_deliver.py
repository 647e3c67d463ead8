"""Events on their way out, and what happens to them where nobody takes them any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.ai.endpoint.context import StreamEvent
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.ai.endpoint._http import Receive, Send
    from onym.ai.endpoint.streams import Wire

__all__ = ["Ends", "Outlet", "Streaming", "close_events", "finish", "gone", "part", "pour", "timed"]

#: seconds that a caller may take for one piece; longer than servers wait that cut off idle ones themselves
_STALLED: Final = 120.0
#: told the events that were sent, or None after a failure
Ends: TypeAlias = Callable[[list[StreamEvent] | None], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Streaming:
    """Events that are about to be sent. `release` gives their place back, `deadline` is of the loop's clock.

    `ends` is there where a key binds the endpoint to what it has begun.
    """

    events: AsyncIterator[StreamEvent]
    headers: tuple[tuple[str, str], ...] = ()
    ends: Ends | None = None
    deadline: float = 0.0
    release: Callable[[], None] = field(default=lambda: None)


class Outlet:
    """The server's `send`, until it is closed: then nothing goes out. `lasting` survives a broken one."""

    def __init__(self, send: Send | None, *, lasting: bool) -> None:
        self._send = send
        self._lasting = lasting

    async def __call__(self, message: Any) -> None:
        """Send it, if anybody is there and takes it."""
        if self._send is None:
            return
        try:
            async with asyncio.timeout(_STALLED):
                await self._send(message)
        except OSError:
            # ASGI 2.4: the caller has gone; or it reads nothing (TimeoutError is an OSError)
            self.close()
            if not self._lasting:
                raise

    def close(self) -> None:
        """Nothing more goes out: somebody else answers, or nobody."""
        self._send = None


async def pour(stream: Streaming, wire: Wire, send: Send) -> None:
    """Send the events within their time, and tell `stream.ends` of them. Raises TimeoutError and theirs."""
    sent: list[StreamEvent] = []
    async with asyncio.timeout_at(stream.deadline):
        async for event in stream.events:
            octets = wire.add(event)
            if stream.ends is not None:
                sent.append(event)
            await part(send, octets)
    if stream.ends is not None:
        await stream.ends(sent)
        stream.ends = None


async def finish(stream: Streaming) -> None:
    """Close the events; what was not told of as sent was interrupted."""
    await close_events(stream.events)
    ends, stream.ends = stream.ends, None
    if ends is not None:
        await ends(None)


async def part(send: Send, octets: bytes, *, more: bool = True) -> None:
    """A piece of the body."""
    await send({"type": "http.response.body", "body": octets, "more_body": more})


async def gone(receive: Receive) -> None:
    """Wait until the caller has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def close_events(events: AsyncIterator[StreamEvent]) -> None:
    """Let the function behind the events clean up."""
    close = getattr(events, "aclose", None)
    if close is not None:
        with contextlib.suppress(Exception):  # it has been told already, or nobody listens
            await close()


def timed(error: Exception) -> Exception:
    """The error to tell of."""
    if isinstance(error, TimeoutError):
        return AIIPError("the stream took longer than the endpoint allows", code="aiip.upstream-timeout")
    return error
