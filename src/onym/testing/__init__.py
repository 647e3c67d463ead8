"""Tools for the tests of applications that use Onym.

`strategies` has hypothesis strategies for URIs and is the only module that needs hypothesis. `fake_provider`
answers like an OpenAI-compatible server. `clock` moves only when a test moves it.
"""

from __future__ import annotations

__all__: list[str] = []


class FakeClock:
    """Replaces the time, `sleep` and `random` that Onym uses; `sleep` moves the clock and is recorded.

    `now` is the initial date in seconds since the epoch. Every `random()` returns `chance`; with 1.0 a wait
    with full jitter is as long as possible.
    """

    def __init__(self, *, now: float = 1_700_000_000.0, chance: float = 1.0) -> None:
        self.slept: list[float] = []
        self.chance = chance
        self._passed = 0.0
        self._now = now

    def monotonic(self) -> float:
        """Return the seconds since the clock was created, plus a start that is not 0."""
        return 1_000.0 + self._passed

    def time(self) -> float:
        """Return the date in seconds since the epoch."""
        return self._now + self._passed

    def random(self) -> float:
        """Return the chosen random number."""
        return self.chance

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._passed += seconds

    def sleep(self, seconds: float) -> None:
        """Move the clock forward, and record the wait."""
        self.slept.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Do what `sleep` does, as a coroutine; it does not wait either."""
        self.sleep(seconds)
