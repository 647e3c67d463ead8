"""Events on their way out, and what happens to them where nobody takes them any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.ai.endpoint._fault import contained
from onym.ai.endpoint.context import StreamEvent
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.ai.endpoint._http import Receive, Send
    from onym.ai.endpoint.streams import Wire

__all__ = ["Ends", "Events", "Outlet", "Streaming", "close_events", "finish", "gone", "part", "pour"]

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


class Events:
    """The events of a handler, which may fail in any way."""

    def __init__(self, source: AsyncIterator[StreamEvent]) -> None:
        self._source = source
        self._ahead: list[StreamEvent] = []
        self._over = False

    async def begin(self) -> None:
        """Take the first event, if there is one: what fails before it is an answer of its own."""
        try:
            self._ahead.append(await self._next())
        except StopAsyncIteration:
            self._over = True

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._over:
            raise StopAsyncIteration
        return self._ahead.pop() if self._ahead else await self._next()

    async def aclose(self) -> None:
        """Let the function clean up."""
        await close_events(self._source)

    async def _next(self) -> StreamEvent:
        with contained():
            return await anext(self._source)


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
    """Send the events, and tell `stream.ends` of them. Raises their error, and `aiip.upstream-timeout`."""
    sent: list[StreamEvent] = []
    limit = asyncio.timeout_at(stream.deadline)
    try:
        async with limit:
            async for event in stream.events:
                octets = wire.add(event)
                if stream.ends is not None:
                    sent.append(event)
                await part(send, octets)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AIIPError(
            "the stream took longer than the endpoint allows", code="aiip.upstream-timeout"
        ) from error
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
        # it has been told already, or nobody listens
        with contextlib.suppress(Exception), contained():
            await close()
