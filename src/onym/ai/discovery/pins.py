"""Pins: protection against downgrades of an authority's requirements (AIIP/HTTPS v1, 3.3 rule 7).

An authority announces with `pin_max_age` how long its requirements stay in force. Until then signed
results, mTLS, DPoP, sign-in and the strength of the weakest signature algorithm may grow and never shrink,
and a new key set must share a key with the last one. Pins are kept in memory or in one SQLite file that
only its owner can read. A damaged file is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from onym.ai.records import AnchorDocument, Auth, Level
from onym.errors import DiscoveryError

CLAUSE: Final = "AIIP/HTTPS v1 3.3 rule 7"
#: seconds that a pin holds at most, whatever the authority says
MAX_PIN_SECONDS: Final = 2 * 365 * 24 * 3600
#: a pin is written anew when it holds this many seconds longer than before
_UPDATE_SECONDS: Final = 60.0

_LEVELS: Final = (Level.NONE, Level.SUPPORTED, Level.REQUIRED)
#: bits of security (NIST SP 800-57 1, table 2); PS256 with its smallest key
_BITS: Final[Mapping[str, int]] = MappingProxyType({"PS256": 112, "Ed25519": 128, "ES256": 128, "ES384": 192})
#: a demand's name up to its colon -> what a document without it has lost
_LOST_DEMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "signed-results": "until now it asked for signed results",
        "mtls": "until now it asked for client certificates (mTLS)",
        "dpop": "until now it asked more firmly for proofs of possession (DPoP)",
        "auth": "until now it asked callers to sign in",
        "bits": "until now it signed with stronger algorithms alone",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What one authority is held to: each demand and until when it stands, and the keys last seen.

    Times are seconds since the epoch; the keys count as long as any demand stands.
    """

    demands: Mapping[str, float]
    kids: frozenset[str] = frozenset()

    @property
    def until(self) -> float:
        """When nothing of it holds any more."""
        return max(self.demands.values(), default=0.0)


def evaluate_pin(
    authority: str, document: AnchorDocument, kids: Collection[str], at: float, before: Pin | None
) -> Pin | None:
    """What to remember of this document, None where that is there already. Raises DiscoveryError."""
    demands = _list_demands(document)
    held = {name: until for name, until in (before.demands.items() if before else ()) if until > at}
    for name in held:
        if name not in demands:
            raise _make_downgrade_error(authority, _LOST_DEMANDS[name.partition(":")[0]])
    known = before.kids if before and held else frozenset()
    if kids and known and known.isdisjoint(kids):
        raise _make_downgrade_error(
            authority,
            "none of its keys is one that it had",
            "a new key is published beside the old one before the old one goes; else this is not its owner",
        )
    now = _extend_pin(held, demands, frozenset(kids) or known, at, document.pin_max_age)
    return now if _needs_write(before, now) else None


def _list_demands(document: AnchorDocument) -> frozenset[str]:
    """Everything that this document asks for; what asks for more asks for the lesser as well."""
    asked = document.requirements
    bits = min((_BITS.get(each, 0) for each in document.algorithms), default=0)
    level = _LEVELS.index(asked.dpop)
    return frozenset(
        [
            *(["signed-results"] if asked.signed_results else []),
            *(["mtls"] if asked.mtls else []),
            *(["auth"] if asked.auth is not Auth.NONE else []),
            *(f"dpop:{each}" for each in _LEVELS[1 : level + 1]),
            *(f"bits:{each}" for each in sorted(set(_BITS.values())) if each <= bits),
        ]
    )


def _extend_pin(
    held: Mapping[str, float], demands: frozenset[str], kids: frozenset[str], at: float, pin_max_age: int
) -> Pin:
    """The pin with this document in it. A shorter `pin_max_age` takes nothing back that was promised."""
    until = at + min(max(pin_max_age, 0), MAX_PIN_SECONDS)
    stands = {name: max(until, held.get(name, 0.0)) for name in demands}
    stands = {name: end for name, end in stands.items() if end > at}
    return Pin(demands=stands, kids=kids if stands else frozenset())


def _needs_write(before: Pin | None, now: Pin) -> bool:
    if before is None:
        return bool(now.demands)
    if now.kids != before.kids or now.demands.keys() != before.demands.keys():
        return True
    return any(end - before.demands[name] >= _UPDATE_SECONDS for name, end in now.demands.items())


def _make_downgrade_error(authority: str, what: str, hint: str | None = None) -> DiscoveryError:
    return DiscoveryError(
        f"{authority} asks for less than it did: {what}",
        code="aiip.downgrade-detected",
        clause=CLAUSE,
        hint=hint or "ask its owner; what it promised counts until the end of its pin_max_age",
    )


#: authorities remembered at most; once they are that many, those that hold stay and no new one is taken
MAX_PINS: Final = 50_000

_APPLICATION: Final = 0x6F70696E  # "opin"
_VERSION: Final = 1
#: seconds to wait for another process that writes
_BUSY_SECONDS: Final = 5.0
_SCHEMA: Final = f"""
BEGIN;
CREATE TABLE pins (authority TEXT PRIMARY KEY, until REAL NOT NULL, pin TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX pins_until ON pins (until);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_PUT: Final = "INSERT OR REPLACE INTO pins VALUES (?, ?, ?)"


class Pins(Protocol):
    """Remembers what authorities asked for. Threads share one."""

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; else remember this one.

        `kids` are the thumbprints of its keys, none where they have not been fetched.
        """
        ...


class MemoryPins:
    """Pins that last as long as this object."""

    def __init__(self, limit: int = MAX_PINS) -> None:
        self._limit = limit
        self._pins: dict[str, Pin] = {}
        self._lock = threading.Lock()

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; else remember this one."""
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
    """Where pins are kept unless told otherwise: the user's state directory."""
    import platformdirs

    return platformdirs.user_state_path("onym") / "aiip-pins.sqlite"


class PinFile:
    """Pins in a file (mode 0600), made when it is first needed. Threads and processes may share it."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, limit: int = MAX_PINS) -> None:
        self.path = default_pin_path() if path is None else Path(path)
        self._limit = limit

    def require_usable(self) -> None:
        """See that the file can be used; a missing one is made. Raises DiscoveryError (aiip.unavailable)."""
        with self._open_database():
            pass

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; else remember this one.

        Raises DiscoveryError (aiip.unavailable) where the file cannot be used.
        """
        with self._open_database() as db:
            # most looks change nothing, and readers do not wait for each other
            if evaluate_pin(authority, document, kids, at, _load_pin(db, authority)) is None:
                return
            db.execute("BEGIN IMMEDIATE")
            before = _load_pin(db, authority)
            pin = evaluate_pin(authority, document, kids, at, before)
            if pin is not None and (before is not None or self._make_room(db, at)):
                db.execute(_PUT, (authority, pin.until, _encode_pin(pin)))
            db.execute("COMMIT")

    def _make_room(self, db: sqlite3.Connection, at: float) -> bool:
        if _count_pins(db) >= self._limit:
            db.execute("DELETE FROM pins WHERE until <= ?", (at,))
        return _count_pins(db) < self._limit

    @contextlib.contextmanager
    def _open_database(self) -> Iterator[sqlite3.Connection]:
        try:
            self._ensure_file()
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            with contextlib.closing(db):
                _validate_schema(db)
                yield db
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._make_unusable_error(error) from error

    def _ensure_file(self) -> None:
        """A file of pins that only its owner can use: the one that is there, else a new one."""
        if not self.path.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _create_file(self.path)
        if os.name == "posix" and stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            raise PermissionError(f"others may use it; chmod 600 {self.path}")

    def _make_unusable_error(self, error: Exception) -> DiscoveryError:
        busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        why = "another process keeps it busy" if busy else str(error) or type(error).__name__
        return DiscoveryError(
            f"the file of pins cannot be used: {why}",
            code="aiip.unavailable",
            clause=CLAUSE,
            retryable=busy,
            hint="try again" if busy else f"put {self.path} right; removed, every authority is trusted anew",
        )


def _create_file(path: Path) -> None:
    """The whole file at once, so that an empty one is never a new one but one that was emptied."""
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    os.close(descriptor)
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as db:
            db.executescript(_SCHEMA)
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(name, path)
    finally:
        Path(name).unlink()


def _validate_schema(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA trusted_schema = OFF")
    found = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if found != (_APPLICATION, _VERSION):
        raise ValueError("it is empty, another program's, or of another version of Onym")


def _load_pin(db: sqlite3.Connection, authority: str) -> Pin | None:
    row = db.execute("SELECT pin FROM pins WHERE authority = ?", (authority,)).fetchone()
    if row is None:
        return None
    found = json.loads(row[0])
    demands = {str(name): float(until) for name, until in found["demands"].items()}
    return Pin(demands=demands, kids=frozenset(str(each) for each in found["kids"]))


def _encode_pin(pin: Pin) -> str:
    return json.dumps({"demands": dict(pin.demands), "kids": sorted(pin.kids)}, sort_keys=True)


def _count_pins(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT COUNT(*) FROM pins").fetchone()[0])
