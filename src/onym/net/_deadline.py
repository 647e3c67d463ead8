"""Time that is left. A deadline is a moment of a monotonic clock, None for never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from onym.errors import DeadlineExceeded

__all__ = ["SLICE", "Deadline", "overdue", "remaining"]

Deadline: TypeAlias = float | None

#: seconds; where a signal does not end a system call (Windows), it is noticed after so long
SLICE: Final = 0.5


def overdue() -> DeadlineExceeded:
    """The error for a call whose time is over."""
    return DeadlineExceeded("the time allowed for the call is over")


def remaining(deadline: Deadline, clock: Callable[[], float], most: float | None = None) -> float | None:
    """Seconds until the deadline, at most `most`; raises DeadlineExceeded when none are left."""
    if deadline is None:
        return most
    left = deadline - clock()
    if left <= 0:
        raise overdue()
    return left if most is None else min(left, most)
