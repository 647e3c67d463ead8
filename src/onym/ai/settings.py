"""Resolver settings, and the cache of discovery documents and key sets. No I/O.

The cache stores a response as long as HTTP allows, within bounds (AIIP/HTTPS v1, 3.2 and 3.9). Onym never
uses an expired entry, even if the authority does not respond.
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
from typing import Any, Final, Protocol

from onym.ai.discovery.pins import MemoryPins, Pins
from onym.ai.records import LEVELS, Auth, Namespace, Namespaces, Requirements
from onym.ai.telemetry import Telemetry
from onym.net.messages import Headers

#: seconds in the cache: at least, at most, without a header field, and for a document that does not exist
SHORTEST_LIFE: Final = 60.0
LONGEST_LIFE: Final = 24 * 3600.0
DEFAULT_LIFE: Final = 600.0
NEGATIVE_LIFE: Final = 60.0
#: documents in the cache
_MAX_ENTRIES: Final = 1024
_SECONDS: Final = re.compile(r"\"?([0-9]{1,9})\"?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """A cached document: `value` is its parsed form, or None if it does not exist.

    After `expires` it must be fetched again, with `etag`. `refetched` is when it was last fetched early, for
    an unknown key, and `fetching` is true while such a fetch runs. Times are seconds since the epoch.
    """

    value: Any
    expires: float
    etag: str | None = None
    refetched: float = float("-inf")
    fetching: bool = False


class Cache(Protocol):
    """Stores documents by key. Threads share a cache."""

    def get(self, key: str) -> CacheEntry | None:
        """Return the entry, which may have expired."""
        ...

    def put(self, key: str, entry: CacheEntry) -> None:
        """Store the entry and replace an older one."""
        ...

    def drop(self, key: str) -> None:
        """Remove the entry."""
        ...


class MemoryCache:
    """A cache of at most `limit` documents; a new one replaces the least recently used."""

    def __init__(self, limit: int = _MAX_ENTRIES) -> None:
        self._limit = max(1, limit)
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> CacheEntry | None:
        """Return the entry, which may have expired."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: str, entry: CacheEntry) -> None:
        """Store the entry and replace an older one."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)

    def drop(self, key: str) -> None:
        """Remove the entry."""
        with self._lock:
            self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)


def get_cache_lifetime(headers: Headers) -> float | None:
    """Return the seconds for which a 200 or 304 may be used (RFC 9111 4.2, within bounds).

    None means that it must not be stored, 0 that it must be revalidated before every use (`no-cache`). An
    invalid lifetime counts as the shortest one.
    """
    directives = _parse_cache_control(headers)
    if "no-store" in directives:
        return None
    if "no-cache" in directives:
        return 0.0
    lifetime = directives["max-age"] if "max-age" in directives else _get_expires_lifetime(headers)
    age = _parse_seconds(headers.get("age") or "0")
    return min(max(lifetime - age, SHORTEST_LIFE), LONGEST_LIFE)


def _parse_cache_control(headers: Headers) -> dict[str, float]:
    """Return the directives of Cache-Control with their seconds; a repeated one has the least value."""
    directives: dict[str, float] = {}
    for part in ",".join(headers.get_all("cache-control")).split(","):
        name, _, value = part.strip().partition("=")
        seconds = _parse_seconds(value.strip())
        directives[name.lower()] = min(seconds, directives.get(name.lower(), seconds))
    return directives


def _get_expires_lifetime(headers: Headers) -> float:
    expires, date = headers.get("expires"), headers.get("date")
    if expires is None or date is None:
        return DEFAULT_LIFE
    try:
        return (parsedate_to_datetime(expires) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        # RFC 9111 5.3: an invalid date is in the past
        return 0.0


def _parse_seconds(text: str) -> float:
    match = _SECONDS.match(text)
    return float(match[1]) if match else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverSettings:
    """How names are resolved.

    `namespaces` are registries that resolve one-label authorities; the first that knows a label decides.
    `contexts` maps path prefixes ("/agent/"; "/" for all) to the namespace of `ai:/path`; the longest
    matching prefix applies. `pins` stores the requirements of authorities, `cache` their documents. `floor`
    contains the least requirements (mtls, dpop, auth) for callers, whatever an authority publishes; results
    are always signed. With `dns=False` no DNS source is used. `timeout` is in seconds and applies to one
    request, `clock` returns seconds since the epoch. `telemetry` reports what is done with these settings.
    """

    namespaces: tuple[Namespaces, ...] = ()
    contexts: Mapping[str, Namespace] = field(default_factory=lambda: MappingProxyType({}))
    pins: Pins = field(default_factory=MemoryPins)
    cache: Cache = field(default_factory=MemoryCache)
    floor: Requirements = field(default_factory=Requirements)
    dns: bool = True
    timeout: float = 10.0
    clock: Callable[[], float] = time.time
    telemetry: Telemetry | None = field(default=None, repr=False)

    def find_context(self, path: str) -> Namespace | None:
        """Return the namespace configured for `ai:` and this path, or None."""
        # by whole segments
        matching = [
            prefix for prefix in self.contexts if path == prefix or path.startswith(prefix.rstrip("/") + "/")
        ]
        return self.contexts[max(matching, key=len)] if matching else None

    def apply_floor(self, required: Requirements) -> Requirements:
        """Return an authority's requirements, raised to the floor (3.3 rule 7, 3.2).

        Results are always signed: an authority cannot waive the draft's MUST.
        """
        floor = self.floor
        return Requirements(
            signed_results=True,
            mtls=required.mtls or floor.mtls,
            dpop=max(required.dpop, floor.dpop, key=LEVELS.index),
            auth=Auth.OAUTH2 if Auth.OAUTH2 in {required.auth, floor.auth} else Auth.NONE,
        )
