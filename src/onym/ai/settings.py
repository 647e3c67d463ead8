"""Resolver settings, and the cache of discovery documents and key sets. No I/O.

The cache keeps a response as long as HTTP allows, within bounds (AIIP/HTTPS v1, 3.2 and 3.9). Onym never
uses an expired entry, even if the authority does not answer.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.ai.discovery.pins import MemoryPins, Pins
from onym.ai.records import Auth, Level, Namespace, Namespaces, Requirements

if TYPE_CHECKING:
    from onym.ai.telemetry import Telemetry
    from onym.net.messages import Headers

#: seconds that an answer is kept: at least, at most, where it says nothing, and where there was none
SHORTEST_LIFE: Final = 60.0
LONGEST_LIFE: Final = 24 * 3600.0
DEFAULT_LIFE: Final = 600.0
NEGATIVE_LIFE: Final = 60.0
#: documents kept at most
_MAX_ENTRIES: Final = 1024
_SECONDS: Final = re.compile(r"\"?([0-9]{1,9})\"?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
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

    def get(self, key: str) -> CacheEntry | None:
        """What is kept under this key, in time or not."""
        ...

    def put(self, key: str, entry: CacheEntry) -> None:
        """Keep it, instead of what was there."""
        ...

    def drop(self, key: str) -> None:
        """Forget it."""
        ...


class MemoryCache:
    """A cache of at most `limit` documents: the one used longest ago makes room."""

    def __init__(self, limit: int = _MAX_ENTRIES) -> None:
        self._limit = max(1, limit)
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> CacheEntry | None:
        """What is kept under this key, in time or not."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: str, entry: CacheEntry) -> None:
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


def get_cache_lifetime(headers: Headers) -> float | None:
    """Seconds that a 200 or 304 may be used (RFC 9111 4.2, within our bounds); None where it may not be kept.

    0 says: keep it, and ask each time whether it still holds (`no-cache`). A lifetime that cannot be read is
    the shortest one.
    """
    directives = _parse_cache_control(headers)
    if "no-store" in directives:
        return None
    if "no-cache" in directives:
        return 0.0
    said = directives["max-age"] if "max-age" in directives else _get_expires_lifetime(headers)
    age = _parse_seconds(headers.get("age") or "0")
    return min(max(said - age, SHORTEST_LIFE), LONGEST_LIFE)


def _parse_cache_control(headers: Headers) -> dict[str, float]:
    """Cache-Control by name, with its seconds (0 for none); of several the least counts."""
    found: dict[str, float] = {}
    for part in ",".join(headers.get_all("cache-control")).split(","):
        name, _, value = part.strip().partition("=")
        seconds = _parse_seconds(value.strip())
        found[name.lower()] = min(seconds, found.get(name.lower(), seconds))
    return found


def _get_expires_lifetime(headers: Headers) -> float:
    expires, date = headers.get("expires"), headers.get("date")
    if expires is None or date is None:
        return DEFAULT_LIFE
    try:
        return (parsedate_to_datetime(expires) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        # RFC 9111 5.3: what is no date is in the past
        return 0.0


def _parse_seconds(text: str) -> float:
    found = _SECONDS.match(text)
    return float(found[1]) if found else 0.0


#: stands for the authority of an ai URI that has none (`ai:/path`); it can never be a host
CONTEXT: Final = "_"

#: nothing is asked for but what the draft says: results are signed
_FLOOR: Final = Requirements()
_LEVELS: Final = (Level.NONE, Level.SUPPORTED, Level.REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverSettings:
    """How names are resolved.

    `namespaces` speak for one-label authorities; the first that knows a label decides. `contexts` says who
    speaks for `ai:/path`, by path prefix ("/agent/"; "/" for all), the longest that fits first. `pins`
    remembers what authorities asked for, `cache` their documents. `floor` is the least that is asked of
    callers (mtls, dpop, auth), whatever an authority says; results are always signed. `dns` false leaves the
    DNS sources out. `timeout` is seconds for one request of discovery, `clock` the time in seconds since the
    epoch. `telemetry` is told of what is done with these settings.
    """

    namespaces: tuple[Namespaces, ...] = ()
    contexts: Mapping[str, Namespace] = field(default_factory=lambda: MappingProxyType({}))
    pins: Pins = field(default_factory=MemoryPins)
    cache: Cache = field(default_factory=MemoryCache)
    floor: Requirements = _FLOOR
    dns: bool = True
    timeout: float = 10.0
    clock: Callable[[], float] = time.time
    telemetry: Telemetry | None = field(default=None, repr=False)

    def find_context(self, path: str) -> Namespace | None:
        """Who speaks for `ai:` and this path; None where nobody was named."""
        fitting = [prefix for prefix in self.contexts if _is_path_within(prefix, path)]
        return self.contexts[max(fitting, key=len)] if fitting else None

    def apply_floor(self, said: Requirements) -> Requirements:
        """What holds where an authority asks for `said`: never less than the floor (3.3 rule 7, 3.2).

        Signed results among it: the draft's MUST is not the authority's to waive.
        """
        floor = self.floor
        return Requirements(
            signed_results=True,
            mtls=said.mtls or floor.mtls,
            dpop=max(said.dpop, floor.dpop, key=_LEVELS.index),
            auth=Auth.OAUTH2 if Auth.OAUTH2 in {said.auth, floor.auth} else Auth.NONE,
        )


def _is_path_within(prefix: str, path: str) -> bool:
    """Is the path at or below the prefix, whole segments counted?"""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")
