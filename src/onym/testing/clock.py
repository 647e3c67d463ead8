"""A clock for tests: it moves when it is told to, and its chances are chosen."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """Stands wherever Onym asks for the time or for chance; `sleep` moves it and is remembered.

    `now` is the date in seconds since the epoch at the start, `chance` what every `random()` gives:
    with 1.0 a wait with full jitter is as long as it may be.
    """

    def __init__(self, *, now: float = 1_700_000_000.0, chance: float = 1.0) -> None:
        self.slept: list[float] = []
        self.chance = chance
        self._passed = 0.0
        self._now = now

    def monotonic(self) -> float:
        """Seconds since this clock was made, plus a start that is not 0."""
        return 1_000.0 + self._passed

    def time(self) -> float:
        """The date in seconds since the epoch."""
        return self._now + self._passed

    def random(self) -> float:
        """The chance that was chosen."""
        return self.chance

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass, and remember that somebody waited."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """`sleep` for a coroutine; it does not wait either."""
        self.sleep(seconds)
