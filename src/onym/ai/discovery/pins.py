"""Pins: what authorities asked for before, and when it is too little now (AIIP/HTTPS v1, 3.3 rule 7).

In memory, or in one SQLite file that processes share and only its owner can read. A file that cannot be used
is an error and never an empty one: whoever could ruin it would undo every pin.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Protocol

from onym.ai.discovery._pin_rules import CLAUSE, Pin, judge
from onym.ai.records import AnchorDocument
from onym.errors import DiscoveryError

__all__ = ["MOST_PINS", "MemoryPins", "PinFile", "Pins", "default_path"]

#: authorities remembered at most; once they are that many, those that hold stay and no new one is taken
MOST_PINS: Final = 50_000

_APPLICATION: Final = 0x6F70696E  # "opin"
_VERSION: Final = 1
#: seconds to wait for another process that writes
_PATIENCE: Final = 5.0
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

    def __init__(self, limit: int = MOST_PINS) -> None:
        self._limit = limit
        self._pins: dict[str, Pin] = {}
        self._lock = threading.Lock()

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; else remember this one."""
        with self._lock:
            before = self._pins.get(authority)
            pin = judge(authority, document, kids, at, before)
            if pin is not None and (before is not None or self._room(at)):
                self._pins[authority] = pin

    def _room(self, at: float) -> bool:
        if len(self._pins) >= self._limit:
            self._pins = {name: pin for name, pin in self._pins.items() if pin.until > at}
        return len(self._pins) < self._limit


def default_path() -> Path:
    """Where pins are kept unless told otherwise: the user's state directory."""
    import platformdirs

    return platformdirs.user_state_path("onym") / "aiip-pins.sqlite"


class PinFile:
    """Pins in a file (mode 0600), made when it is first needed. Threads and processes may share it."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, limit: int = MOST_PINS) -> None:
        self.path = default_path() if path is None else Path(path)
        self._limit = limit

    def look(self) -> None:
        """See that the file can be used; a missing one is made. Raises DiscoveryError (aiip.unavailable)."""
        with self._opened():
            pass

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        """Raise DiscoveryError (aiip.downgrade-detected) for a weaker document; else remember this one.

        Raises DiscoveryError (aiip.unavailable) where the file cannot be used.
        """
        with self._opened() as db:
            # most looks change nothing, and readers do not wait for each other
            if judge(authority, document, kids, at, _read(db, authority)) is None:
                return
            db.execute("BEGIN IMMEDIATE")
            before = _read(db, authority)
            pin = judge(authority, document, kids, at, before)
            if pin is not None and (before is not None or self._room(db, at)):
                db.execute(_PUT, (authority, pin.until, _written(pin)))
            db.execute("COMMIT")

    def _room(self, db: sqlite3.Connection, at: float) -> bool:
        if _count(db) >= self._limit:
            db.execute("DELETE FROM pins WHERE until <= ?", (at,))
        return _count(db) < self._limit

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._prepare()
            db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            with contextlib.closing(db):
                _check_schema(db)
                yield db
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._unusable(error) from error

    def _prepare(self) -> None:
        """A file of pins that only its owner can use: the one that is there, else a new one."""
        if not self.path.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(self.path)
        if os.name == "posix" and stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            raise PermissionError(f"others may use it; chmod 600 {self.path}")

    def _unusable(self, error: Exception) -> DiscoveryError:
        busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        why = "another process keeps it busy" if busy else str(error) or type(error).__name__
        return DiscoveryError(
            f"the file of pins cannot be used: {why}",
            code="aiip.unavailable",
            clause=CLAUSE,
            retryable=busy,
            hint="try again" if busy else f"put {self.path} right; removed, every authority is trusted anew",
        )


def _make(path: Path) -> None:
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


def _check_schema(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA trusted_schema = OFF")
    found = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if found != (_APPLICATION, _VERSION):
        raise ValueError("it is empty, another program's, or of another version of Onym")


def _read(db: sqlite3.Connection, authority: str) -> Pin | None:
    row = db.execute("SELECT pin FROM pins WHERE authority = ?", (authority,)).fetchone()
    if row is None:
        return None
    found = json.loads(row[0])
    demands = {str(name): float(until) for name, until in found["demands"].items()}
    return Pin(demands=demands, kids=frozenset(str(each) for each in found["kids"]))


def _written(pin: Pin) -> str:
    return json.dumps({"demands": dict(pin.demands), "kids": sorted(pin.kids)}, sort_keys=True)


def _count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT COUNT(*) FROM pins").fetchone()[0])
