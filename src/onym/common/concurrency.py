"""Limits for the work that runs at the same time, in all and for one client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

#: the group whose limit applies to all work together
TOTAL: Final = "total"


class ConcurrencyLimiter:
    """Counts running work by groups, such as all work and the work of one client. For one event loop.

    `limits` maps the name of a group to the number that may run at the same time for one key of that group;
    "total" is one group with one key. `make_error` returns the error to raise for a group that is full.
    """

    def __init__(self, limits: Mapping[str, int], make_error: Callable[[str], Exception]) -> None:
        self._limits = dict(limits)
        self._make_error = make_error
        self._running: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._running[TOTAL, ""]

    def acquire(self, **keys: str) -> Callable[[], None]:
        """Take a slot in every group and return a function that frees it; further calls have no effect.

        `keys` contains a key for every group but the total. Raises the error of the first full group.
        """
        slots = [(TOTAL, ""), *keys.items()]
        for group, key in slots:
            if self._running[group, key] >= self._limits[group]:
                raise self._make_error(group)
        self._running.update(slots)

        def release() -> None:
            self._running.subtract(slots)
            for slot in slots:
                if not self._running[slot]:
                    del self._running[slot]
            slots.clear()

        return release

    @contextmanager
    def reserve(self, **keys: str) -> Iterator[None]:
        """Take a slot for the time of the block. Raises what `acquire` raises."""
        release = self.acquire(**keys)
        try:
            yield
        finally:
            release()
