"""Resolver settings, and what a resolver remembers: cached documents, and pins against downgrades.

The cache stores a response as long as HTTP allows, within bounds (AIIP/HTTPS v1, 3.2 and 3.9). A pin stores
what an authority requires, for as long as it announced: until then its requirements may grow and never shrink
(3.3 rule 7).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from onym.ai.records import LEVELS, AnchorDocument, Auth, Namespace, Namespaces, Requirements
from onym.ai.telemetry import Telemetry
from onym.common.platform import is_open_to_others
from onym.errors import DiscoveryError
from onym.net.messages import Headers
from onym.sign.keys import ALGORITHMS, RECEIPT_ALGORITHMS
from onym.store import sqlite

CLAUSE: Final = "AIIP/HTTPS v1 3.3 rule 7"
#: longest life of a pin in seconds, whatever the authority says
MAX_PIN_SECONDS: Final = 2 * 365 * 24 * 3600
#: a pin is written again if it lasts this many seconds longer than before
_UPDATE_SECONDS: Final = 60.0

#: bits of security (NIST SP 800-57 1, table 2); PS256 with its smallest key
_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {name: ALGORITHMS[name].strength for name in RECEIPT_ALGORITHMS}
)
#: a demand's name up to its colon -> what a document without it no longer requires
_LOST_DEMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "signed-results": "it no longer requires signed results",
        "mtls": "it no longer requires client certificates (mTLS)",
        "dpop": "it requires proofs of possession (DPoP) less strictly",
        "request-binding": "it no longer requires proofs that cover the whole request",
        "auth": "it no longer requires callers to sign in",
        "bits": "it allows weaker signature algorithms",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The demands that an authority must keep up, when they expire, and the keys that were last seen.

    Times are seconds since the epoch. The keys are pinned as long as any demand is.
    """

    demands: Mapping[str, float]
    kids: frozenset[str] = frozenset()

    @property
    def until(self) -> float:
        """When the last demand expires."""
        return max(self.demands.values(), default=0.0)


def evaluate_pin(
    authority: str, document: AnchorDocument, kids: Collection[str], at: float, before: Pin | None
) -> Pin | None:
    """Return the pin to store for this document, or None if nothing changed. Raises DiscoveryError."""
    demands = _list_demands(document)
    held = {name: until for name, until in (before.demands.items() if before else ()) if until > at}
    for name in held:
        if name not in demands:
            raise _make_downgrade_error(authority, _LOST_DEMANDS[name.partition(":")[0]])
    known = before.kids if before and held else frozenset()
    if kids and known and known.isdisjoint(kids):
        raise _make_downgrade_error(
            authority,
            "it replaced all its keys at once",
            "Ask its owner: an authority publishes a new key before it removes the old one.",
        )
    # a shorter `pin_max_age` does not shorten earlier promises
    until = at + min(max(document.pin_max_age, 0), MAX_PIN_SECONDS)
    ends = {name: max(until, held.get(name, 0.0)) for name in demands}
    ends = {name: end for name, end in ends.items() if end > at}
    now = Pin(demands=ends, kids=(frozenset(kids) or known) if ends else frozenset())
    if before is None:
        return now if ends else None
    same = now.kids == before.kids and ends.keys() == before.demands.keys()
    if same and all(end - before.demands[name] < _UPDATE_SECONDS for name, end in ends.items()):
        return None
    return now


def _list_demands(document: AnchorDocument) -> frozenset[str]:
    """List the document's demands; a stronger demand includes the weaker ones."""
    required = document.requirements
    bits = min((_BITS.get(algorithm, 0) for algorithm in document.algorithms), default=0)
    level = LEVELS.index(required.dpop)
    return frozenset(
        [
            *(["signed-results"] if required.signed_results else []),
            *(["mtls"] if required.mtls else []),
            *(["request-binding"] if required.request_binding else []),
            *(["auth"] if required.auth is not Auth.NONE else []),
            *(f"dpop:{degree}" for degree in LEVELS[1 : level + 1]),
            *(f"bits:{strength}" for strength in sorted(set(_BITS.values())) if strength <= bits),
        ]
    )


def _make_downgrade_error(authority: str, change: str, hint: str | None = None) -> DiscoveryError:
    return DiscoveryError(
        f"the requirements of {authority} became weaker: {change}",
        code="aiip.downgrade-detected",
        clause=CLAUSE,
        hint=hint or "Ask its owner: the earlier requirements apply until its pin_max_age has passed.",
    )


#: authorities with a pin; if there are that many, current pins stay and no new authority is pinned
MAX_PINS: Final = 50_000

#: seconds to wait for another process that writes
_BUSY_SECONDS: Final = 5.0
_FORMAT: Final = sqlite.FileFormat(
    application_id=0x6F70696E,  # "opin"
    version=1,
    schema="""
    CREATE TABLE IF NOT EXISTS pins (
        authority TEXT PRIMARY KEY, until REAL NOT NULL, pin TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS pins_until ON pins (until);
    """,
)
_PUT: Final = "INSERT OR REPLACE INTO pins VALUES (?, ?, ?)"


class Pins(Protocol):
    """Stores the requirements of authorities. Threads share an object."""

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; otherwise store its demands.

        `kids` are the thumbprints of its keys; empty if the keys have not been fetched.
        """
        ...


class MemoryPins:
    """Pins that are lost with this object."""

    def __init__(self, limit: int = MAX_PINS) -> None:
        self._limit = limit
        self._pins: dict[str, Pin] = {}
        self._lock = threading.Lock()

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Do what `Pins.check` says."""
        with self._lock:
            before = self._pins.get(authority)
            pin = evaluate_pin(authority, document, kids, at, before)
            if pin is not None and (before is not None or self._make_room(at)):
                self._pins[authority] = pin

    def _make_room(self, at: float) -> bool:
        if len(self._pins) >= self._limit:
            self._pins = {name: pin for name, pin in self._pins.items() if pin.until > at}
        return len(self._pins) < self._limit


def default_pin_path() -> Path:
    """Return the path of the default file, in the user's state directory."""
    import platformdirs

    return platformdirs.user_state_path("onym") / "aiip-pins.sqlite"


class PinFile:
    """Pins in a SQLite file (mode 0600) that is created on first use. Threads and processes may share it."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, limit: int = MAX_PINS) -> None:
        self.path = default_pin_path() if path is None else Path(path)
        self._limit = limit

    def require_usable(self) -> None:
        """Open the file, creating it if it is missing. Raises DiscoveryError (aiip.unavailable)."""
        with self._open_database():
            pass

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Do what `Pins.check` says. Raises DiscoveryError (aiip.unavailable) if the file cannot be used."""
        with self._open_database() as db:
            # most checks change nothing, and readers do not wait for each other
            if evaluate_pin(authority, document, kids, at, _load_pin(db, authority)) is None:
                return
            with sqlite.write_transaction(db):
                before = _load_pin(db, authority)
                pin = evaluate_pin(authority, document, kids, at, before)
                if pin is not None and (before is not None or self._make_room(db, at)):
                    members = {"demands": dict(pin.demands), "kids": sorted(pin.kids)}
                    db.execute(_PUT, (authority, pin.until, json.dumps(members, sort_keys=True)))

    def _make_room(self, db: sqlite3.Connection, at: float) -> bool:
        if _count_pins(db) >= self._limit:
            db.execute("DELETE FROM pins WHERE until <= ?", (at,))
        return _count_pins(db) < self._limit

    @contextlib.contextmanager
    def _open_database(self) -> Iterator[sqlite3.Connection]:
        try:
            options = sqlite.SQLiteOptions(timeout=_BUSY_SECONDS, wal=False, pragmas={"synchronous": "FULL"})
            if not self.path.exists():
                sqlite.create_sqlite(self.path, _FORMAT, options)
            if is_open_to_others(self.path.stat()):
                raise PermissionError(f"other users can read it; run: chmod 600 {self.path}")
            with contextlib.closing(sqlite.open_sqlite(self.path, _FORMAT, options, create=False)) as db:
                yield db
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            repair = "Repair the file. If you remove it, Onym trusts every authority anew on its next use."
            raise DiscoveryError(
                f"the pin file {self.path} cannot be used: {sqlite.describe_error(error)}",
                code="aiip.unavailable",
                clause=CLAUSE,
                retryable=sqlite.is_busy(error),
                hint="Try again." if sqlite.is_busy(error) else repair,
            ) from error


def _load_pin(db: sqlite3.Connection, authority: str) -> Pin | None:
    row = db.execute("SELECT pin FROM pins WHERE authority = ?", (authority,)).fetchone()
    if row is None:
        return None
    members = json.loads(row[0])
    demands = {str(name): float(until) for name, until in members["demands"].items()}
    return Pin(demands=demands, kids=frozenset(str(kid) for kid in members["kids"]))


def _count_pins(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT COUNT(*) FROM pins").fetchone()[0])


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
