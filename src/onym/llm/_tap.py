"""Listen in on a stream without changing it: what the cache keeps and telemetry measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from onym.llm.flow import Opened
from onym.net.messages import Reply

if TYPE_CHECKING:
    from onym.errors import NetError, ProviderError
    from onym.llm.dialects import Decoder
    from onym.llm.types import Event, Usage

__all__ = ["Listener", "tap"]


class Listener(Protocol):
    """Whoever listens in."""

    def heard(self, events: list[Event]) -> None:
        """Octets came, and these events with them, perhaps none."""

    def over(self, error: BaseException | None) -> Callable[[], object] | None:
        """The stream was closed, whole or not, or broke with `error`. Told once.

        What is returned is done next, in a thread where a coroutine reads: it may wait for a disk.
        """


def tap(opened: Opened, listener: Listener) -> Opened:
    """The same stream, with a listener."""
    reply = opened.reply
    decoder = _Decoder(opened.decoder, listener)
    body: Any = _Body(reply.stream, decoder, listener)
    return Opened(Reply(reply.status, reply.headers, reply.body, body, reply.info), decoder)


class _Decoder:
    """A decoder that tells what it gave."""

    __slots__ = ("_inside", "_listener", "failure")

    def __init__(self, inside: Decoder, listener: Listener) -> None:
        self._inside = inside
        self._listener = listener
        self.failure: BaseException | None = None

    @property
    def error(self) -> NetError | ProviderError | None:
        return self._inside.error

    @property
    def done(self) -> bool:
        return self._inside.done

    @property
    def usage(self) -> Usage:
        return self._inside.usage

    def feed(self, data: bytes) -> list[Event]:
        events = self._inside.feed(data)
        self.failure = self._inside.error
        self._listener.heard(events)
        return events

    def close(self) -> list[Event]:
        try:
            events = self._inside.close()
        except BaseException as error:
            self.failure = error
            raise
        self._listener.heard(events)
        return events


class _Body:
    """A body, for either kind of reader, that tells when it is closed."""

    __slots__ = ("_body", "_decoder", "_listener")

    def __init__(self, body: Any, decoder: _Decoder, listener: Listener) -> None:
        self._body = body
        self._decoder = decoder
        self._listener: Listener | None = listener

    def read(self) -> bytes:
        try:
            return self._body.read()  # type: ignore[no-any-return]
        except BaseException as error:
            self._decoder.failure = error
            raise

    async def aread(self) -> bytes:
        try:
            return await self._body.aread()  # type: ignore[no-any-return]
        except BaseException as error:
            self._decoder.failure = error
            raise

    def close(self, patience: float = 0) -> None:
        self._body.close(patience)
        work = self._over()
        if work is not None:
            work()

    async def aclose(self, patience: float = 0) -> None:
        await self._body.aclose(patience)
        work = self._over()
        if work is not None:
            import asyncio  # not for those who read without coroutines

            await asyncio.to_thread(work)

    def _over(self) -> Callable[[], object] | None:
        listener, self._listener = self._listener, None
        return None if listener is None else listener.over(self._decoder.failure)

    def __del__(self) -> None:
        # dropped half read: nothing is left to wait for
        self._over()
