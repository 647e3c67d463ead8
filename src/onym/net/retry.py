"""How long to wait before another attempt. Pure: chance and the date are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Protocol

__all__ = ["RetryPolicy", "delay", "parse_retry_after"]

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


def delay(
    attempt: int,
    retry_after: float | None,
    random: Callable[[], float],
    policy: RetryPolicy = RetryPolicy(),
) -> float:
    """`policy.delay(...)`; by default with the bounds of a new `RetryPolicy`."""
    return policy.delay(attempt, retry_after, random)


class _HasGet(Protocol):
    def get(self, name: str, /) -> str | None: ...


def parse_retry_after(headers: _HasGet, now: float) -> float | None:
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
    when = _timestamp(value)
    return None if when is None else max(0.0, when - now)


def _timestamp(value: str) -> float | None:
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
