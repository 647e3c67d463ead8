"""Limits of a transport: sizes and times, deadlines, TLS settings and retry delays.

Pure values and functions: the clock, the date and random numbers are arguments. A deadline is a time of a
monotonic clock, or None for no deadline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from onym.errors import DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from onym.uri.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLimits:
    """The limits of a transport. Sizes are in bytes, times in seconds.

    `header_bytes` and `header_count` limit a response's head. `body` limits a decompressed 2xx body (beyond
    it, ResponseTooLarge is raised), `error_body` any other body, whose rest is dropped. `connect` is for one
    attempt to connect, `connect_next` if more addresses can be tried. `answers` is how long checked addresses
    are used before the next lookup. `idle` and `idle_connections` limit the pool. `stream_idle` is the
    longest time without a byte of a stream, None for no limit besides the timeout of the call.
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
    stream_idle: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """The authorities that TLS trusts, the client's own certificate, and the lowest version of TLS.

    `ca_files` (PEM) are trusted besides the system's authorities. `client_cert` (PEM, with intermediates) and
    `client_key` (PEM; default: the key is in `client_cert`) prove who the client is to servers that ask for
    it; `client_key_password` decrypts the key. Onym reads the files for the first connection, and raises
    UsageError `usage.tls` for an unusable one.

    Connections to this computer use plain HTTP, unless `loopback` is true: that chooses TLS for all of them.
    Raises UsageError for another `minimum` than "1.2" or "1.3", and for a key without certificate.
    """

    ca_files: tuple[str, ...] = ()
    minimum: Literal["1.2", "1.3"] = "1.2"
    client_cert: str | None = None
    client_key: str | None = None
    client_key_password: Secret | None = None
    loopback: bool = False

    def __post_init__(self) -> None:
        if self.minimum not in ("1.2", "1.3"):
            raise UsageError('TLSConfig(minimum=...) must be "1.2" or "1.3"', code="usage.tls")
        if self.client_cert is None and (self.client_key or self.client_key_password) is not None:
            raise UsageError("TLSConfig(client_key=...) needs client_cert", code="usage.tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """A client certificate for single requests (`Send.identity`), instead of the one of `TLSConfig`.

    `cert` is a PEM file with the certificate and its intermediates, `key` the PEM file of its key (default:
    the key is in `cert`), `password` decrypts the key. Requests with different identities never share a
    connection. The files are read once by each transport.
    """

    cert: str
    key: str | None = None
    password: Secret | None = None


Deadline: TypeAlias = float | None

#: seconds of one wait: on Windows, a signal does not interrupt a system call
SLICE: Final = 0.5


def make_deadline_error() -> DeadlineExceeded:
    """Return the error for a call whose deadline has passed."""
    return DeadlineExceeded("the request timed out")


def compute_remaining(
    deadline: Deadline, clock: Callable[[], float], most: float | None = None
) -> float | None:
    """Return the seconds until the deadline, at most `most`. Raises DeadlineExceeded after it."""
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
    """How often to retry: `attempts` after the first, with pauses between `base` and `cap` seconds."""

    attempts: int = 2
    base: float = 0.5
    cap: float = 8.0

    def delay(self, attempt: int, retry_after: float | None, random: Callable[[], float]) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (0 is the first).

        This is a random time (full jitter) up to a bound that doubles from `base` to `cap`, and at least
        `retry_after`, the seconds that the server requests.
        """
        bound = min(self.cap, self.base * 2.0 ** min(attempt, 64))
        return max(retry_after or 0.0, random() * bound)


class _SupportsGet(Protocol):
    def get(self, name: str, /) -> str | None: ...


def parse_retry_after(headers: _SupportsGet, now: float) -> float | None:
    """Return the seconds to wait that the server requests, or None without a valid request.

    This is `retry-after-ms` (OpenAI and Azure), else `Retry-After` (RFC 9110 10.2.3), a number of seconds or
    a date, which is compared with `now` (seconds since 1970, UTC). The result is never negative.
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


def parse_should_retry(headers: _SupportsGet) -> bool | None:
    """Return what `x-should-retry` of OpenAI and Anthropic says, None if it says neither true nor false."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry") or "")


def _parse_http_date(value: str) -> float | None:
    """Return an HTTP-date as seconds since 1970."""
    if len(value) > _LONGEST_DATE:
        return None
    from email.utils import parsedate_to_datetime

    try:
        when = parsedate_to_datetime(value)
        # a date without a zone, or with "-0000", is UTC (RFC 9110 5.6.7)
        return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
