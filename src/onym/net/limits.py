"""Limits of a transport: sizes and times, deadlines, TLS settings and retry delays.

Pure values and functions: the clock, the date and random numbers are arguments. A deadline is a time of a
monotonic clock, or None for no deadline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Final, Literal, Protocol, TypeAlias

from onym.errors import DeadlineExceeded, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLimits:
    """How much a transport takes, waits and keeps. Sizes in octets, times in seconds.

    `header_bytes`, `header_count`: a response's head. `body`: a 2xx body, decompressed; beyond it
    ResponseTooLarge is raised. `error_body`: any other body; it is cut there, its status says what matters.
    `connect`: one attempt to connect; `connect_next` instead where more addresses are left to try.
    `answers`: how long checked addresses are good before a name is looked up again. `idle`,
    `idle_connections`: how long and how many connections wait to be used again.
    """

    header_bytes: int = 64 * 1024
    header_count: int = 256
    body: int = 64 * 1024 * 1024
    error_body: int = 1024 * 1024
    connect: float = 15.0
    connect_next: float = 3.0
    answers: float = 10.0
    idle: float = 60.0
    idle_connections: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """Whom TLS trusts, and the lowest version that is spoken.

    Trusted are the system's authorities, and those in `ca_files` (PEM) as well. Raises UsageError for another
    `minimum`.
    """

    ca_files: tuple[str, ...] = ()
    minimum: Literal["1.2", "1.3"] = "1.2"

    def __post_init__(self) -> None:
        if self.minimum not in ("1.2", "1.3"):
            raise UsageError('TLSConfig(minimum=...) is "1.2" or "1.3"', code="usage.tls")


Deadline: TypeAlias = float | None

#: seconds; where a signal does not end a system call (Windows), it is noticed after so long
SLICE: Final = 0.5


def make_deadline_error() -> DeadlineExceeded:
    """The error for a call whose time is over."""
    return DeadlineExceeded("the time allowed for the call is over")


def compute_remaining(
    deadline: Deadline, clock: Callable[[], float], most: float | None = None
) -> float | None:
    """Seconds until the deadline, at most `most`; raises DeadlineExceeded when none are left."""
    if deadline is None:
        return most
    left = deadline - clock()
    if left <= 0:
        raise make_deadline_error()
    return left if most is None else min(left, most)


_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?").fullmatch
#: an HTTP-date has 29 characters, the obsolete forms up to 33 (RFC 9110 5.6.7)
_LONGEST_DATE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently: `attempts` after the first; `base` and `cap` bound the wait in seconds."""

    attempts: int = 2
    base: float = 0.5
    cap: float = 8.0

    def delay(self, attempt: int, retry_after: float | None, random: Callable[[], float]) -> float:
        """Seconds to wait after failed attempt number `attempt` (0 is the first).

        Full jitter: chance between 0 and a bound that doubles from `base` up to `cap`. A server that
        says when to come back (`retry_after`, seconds) is never asked sooner.
        """
        bound = min(self.cap, self.base * 2.0 ** min(attempt, 64))
        return max(retry_after or 0.0, random() * bound)


def compute_delay(
    attempt: int, retry_after: float | None, random: Callable[[], float], policy: RetryPolicy = RetryPolicy()
) -> float:
    """`policy.delay(...)`; by default with the bounds of a new `RetryPolicy`."""
    return policy.delay(attempt, retry_after, random)


class _SupportsGet(Protocol):
    def get(self, name: str, /) -> str | None: ...


def parse_retry_after(headers: _SupportsGet, now: float) -> float | None:
    """Seconds to wait as the server asks, None where it does not say or cannot be understood.

    Reads `retry-after-ms`, as OpenAI and Azure send it, then `Retry-After` (RFC 9110 10.2.3), a number
    of seconds or a date, which is compared with `now` (seconds since 1970, UTC). Never negative.
    """
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None and _SECONDS(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    if _SECONDS(value):
        return float(value)
    when = _parse_http_date(value)
    return None if when is None else max(0.0, when - now)


def _parse_http_date(value: str) -> float | None:
    """An HTTP-date as seconds since 1970."""
    if len(value) > _LONGEST_DATE:
        return None
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(value)
        # a date without a zone, or with "-0000", is UTC: HTTP knows no other
        return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
