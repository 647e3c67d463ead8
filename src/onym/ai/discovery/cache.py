"""Documents of authorities, kept as long as HTTP lets one keep them, within bounds (AIIP/HTTPS v1, 3.2, 3.9).

Nothing is used past its time: not where the authority does not answer, not where it answers with an error.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from onym.net.messages import Headers

__all__ = [
    "DEFAULT_LIFE",
    "LONGEST_LIFE",
    "NEGATIVE_LIFE",
    "SHORTEST_LIFE",
    "Cache",
    "Cached",
    "MemoryCache",
    "lifetime",
]

#: seconds that an answer is kept: at least, at most, where it says nothing, and where there was none
SHORTEST_LIFE: Final = 60.0
LONGEST_LIFE: Final = 24 * 3600.0
DEFAULT_LIFE: Final = 600.0
NEGATIVE_LIFE: Final = 60.0
#: documents kept at most
_MOST: Final = 1024
_SECONDS: Final = re.compile(r"\"?([0-9]{1,9})\"?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """What an address answered: `value` as it was read, None for "there is none".

    `expires` is when it must be asked for again, `etag` what to ask with; `refetched` is when it was last
    asked for before its time (an unknown key), `asking` whether that has no answer yet. Seconds since the
    epoch.
    """

    value: Any
    expires: float
    etag: str | None = None
    refetched: float = float("-inf")
    asking: bool = False


class Cache(Protocol):
    """Keeps documents by key. Threads share one."""

    def get(self, key: str) -> Cached | None:
        """What is kept under this key, in time or not."""
        ...

    def put(self, key: str, entry: Cached) -> None:
        """Keep it, instead of what was there."""
        ...

    def drop(self, key: str) -> None:
        """Forget it."""
        ...


class MemoryCache:
    """A cache of at most `limit` documents: the one used longest ago makes room."""

    def __init__(self, limit: int = _MOST) -> None:
        self._limit = max(1, limit)
        self._entries: OrderedDict[str, Cached] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Cached | None:
        """What is kept under this key, in time or not."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: str, entry: Cached) -> None:
        """Keep it, instead of what was there."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget it."""
        with self._lock:
            self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)


def lifetime(headers: Headers) -> float | None:
    """Seconds that a 200 or 304 may be used (RFC 9111 4.2, within our bounds); None where it may not be kept.

    0 says: keep it, and ask each time whether it still holds (`no-cache`). A lifetime that cannot be read is
    the shortest one.
    """
    directives = _directives(headers)
    if "no-store" in directives:
        return None
    if "no-cache" in directives:
        return 0.0
    said = directives["max-age"] if "max-age" in directives else _until_expiry(headers)
    age = _seconds(headers.get("age") or "0")
    return min(max(said - age, SHORTEST_LIFE), LONGEST_LIFE)


def _directives(headers: Headers) -> dict[str, float]:
    """Cache-Control by name, with its seconds (0 for none); of several the least counts."""
    found: dict[str, float] = {}
    for part in ",".join(headers.get_all("cache-control")).split(","):
        name, _, value = part.strip().partition("=")
        seconds = _seconds(value.strip())
        found[name.lower()] = min(seconds, found.get(name.lower(), seconds))
    return found


def _until_expiry(headers: Headers) -> float:
    expires, date = headers.get("expires"), headers.get("date")
    if expires is None or date is None:
        return DEFAULT_LIFE
    try:
        return (parsedate_to_datetime(expires) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        # RFC 9111 5.3: what is no date is in the past
        return 0.0


def _seconds(text: str) -> float:
    found = _SECONDS.match(text)
    return float(found[1]) if found else 0.0
