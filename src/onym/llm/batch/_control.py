"""How many requests are under way at once: as many as the server bears.

Additive increase, multiplicative decrease, as TCP does it: the limit doubles with each round of answers until
the first refusal (429, 503), is halved by it, and then grows by one a round. Refusals of requests that were
sent before the limit was halved say nothing new and do not halve it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Control"]

_FIRST: Final = 8
#: seconds; a server that asks for more is asked again after this
_LONGEST: Final = 86_400.0


class Control:
    """The slots of one event loop. `most` is the highest limit; `clock` gives seconds that only grow."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.most = most
        self.flying = 0
        #: a moment of the clock before which nobody sends, as the server asked
        self.resume_at = 0.0
        self._limit = float(min(_FIRST, most))
        self._slow_from = float(most)
        self._clock = clock
        self._round = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many may be under way now; never below 1."""
        return int(self._limit)

    @property
    def pause(self) -> float:
        """Seconds for which the server wants to be left alone."""
        return max(0.0, self.resume_at - self._clock())

    def try_enter(self) -> int | None:
        """What `enter` gives where nobody has to wait, else None."""
        if self.flying >= int(self._limit) or self.resume_at > self._clock():
            return None
        self.flying += 1
        return self._round

    async def enter(self) -> int:
        """Wait for a slot, and get the number of the round that it belongs to."""
        while self.flying >= int(self._limit):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    # it had been woken: the next one is, in its place
                    self._wake()
                raise
        self.flying += 1
        return self._round

    def leave(self) -> None:
        """Give the slot back."""
        self.flying -= 1
        self._wake()

    def succeeded(self) -> None:
        """An answer came: room for more, if there is any."""
        if self._limit < self.most:
            step = 1.0 if self._limit < self._slow_from else 1.0 / self._limit
            self._limit = min(float(self.most), self._limit + step)
            self._wake()

    def refused(self, sent_in: int, retry_after: float | None) -> None:
        """The server had too much of a request of round `sent_in`, and may say when to come back."""
        if retry_after:
            self.resume_at = max(self.resume_at, self._clock() + min(retry_after, _LONGEST))
        if sent_in == self._round:
            self._round += 1
            self._limit = self._slow_from = max(1.0, self._limit / 2)

    def _wake(self) -> None:
        free = int(self._limit) - self.flying
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1
