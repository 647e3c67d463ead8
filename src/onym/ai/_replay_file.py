"""A replay store in a file of SQLite, which processes may share."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from onym.ai._replay_room import MOST, before, full, hash_of, is_full, key_of
from onym.errors import ConfigError, ProvenanceError

__all__ = ["ReplayFile"]

_BUSY_SECONDS: Final = 5.0
_PAUSE: Final = 0.01
#: ids that are forgotten in one step
_PURGE: Final = 1_000
#: names the form of the file, in SQLite's field for that ("OnR" and a number): another form, another number
_FORM: Final = 0x4F6E5201
#: `room` counts the ids of each authority, and all of them under x''
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS seen (
        id BLOB PRIMARY KEY, owner BLOB NOT NULL, until REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS seen_until ON seen (until);
    CREATE TABLE IF NOT EXISTS room (owner BLOB PRIMARY KEY, taken INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS seen_in AFTER INSERT ON seen BEGIN
        INSERT INTO room VALUES (x'', 1) ON CONFLICT (owner) DO UPDATE SET taken = taken + 1;
        INSERT INTO room SELECT NEW.owner, 1 WHERE NEW.owner <> x''
            ON CONFLICT (owner) DO UPDATE SET taken = taken + 1;
    END;
    CREATE TRIGGER IF NOT EXISTS seen_out AFTER DELETE ON seen BEGIN
        UPDATE room SET taken = taken - 1 WHERE owner IN (x'', OLD.owner);
        DELETE FROM room WHERE owner = OLD.owner AND taken <= 0;
    END;
"""


class ReplayFile:
    """Ids in a SQLite file on a local disk, which processes may share.

    A missing one is made, for its owner alone, and where another takes its place, that one is used. What a
    call costs does not depend on how many ids there are. Raises ConfigError `config.bad-store` for a file
    that is none of SQLite, has another form or cannot be written, and ProvenanceError `aiip.unavailable` for
    one that another process keeps busy.
    """

    #: for the disk, and for other processes
    waits: Final = True

    def __init__(self, path: str | Path, most: int = MOST) -> None:
        self._path = Path(path)
        self._most = most
        self._writer, self._reader = _Line(self._path), _Line(self._path)
        try:
            self._path.touch(mode=0o600)
            self._path.chmod(0o600)  # whoever takes an id out makes its receipt count again
            with self._writer.held():
                pass
        except (sqlite3.Error, OSError) as error:
            raise _unfit(self._path, error) from error

    def admit(self, owner: str, *, now: float) -> None:
        """As `Replays.admit`; `aiip.unavailable` where the file cannot be used, too."""
        # readers of a WAL wait for nobody
        with _told(), self._reader.held() as database:
            if not is_full(*_taken(database, hash_of(owner)), before(self._most)):
                return
            # what is over gives its place back to the next one that is recorded
            if database.execute("SELECT 1 FROM seen WHERE until < ? LIMIT 1", (now,)).fetchone() is None:
                raise full()

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`; `aiip.unavailable` where the file cannot be used, too."""
        owner, key = key_of(identity)
        with _told(), self._writer.held() as database:
            database.execute("BEGIN IMMEDIATE")
            with database:
                known = self._seen(database, key, hash_of(owner), until, now)
        if known is None:
            raise full()
        return known

    def close(self) -> None:
        """Close the file; it is opened again where it is needed again."""
        self._writer.close()
        self._reader.close()

    def _seen(
        self, database: sqlite3.Connection, key: bytes, owner: bytes, until: float, now: float
    ) -> bool | None:
        """Was it there? None where there is no room for it."""
        more = _purge(database, now)
        ends = database.execute("SELECT until FROM seen WHERE id = ?", (key,)).fetchone()
        if ends is not None and ends[0] >= now:
            return True
        while is_full(*_taken(database, owner), self._most):
            if not more:
                return None
            more = _purge(database, now)
        database.execute("DELETE FROM seen WHERE id = ?", (key,))  # it was over, and is not purged yet
        database.execute("INSERT INTO seen VALUES (?, ?, ?)", (key, owner, until))
        return False


class _Line:
    """A connection that is kept while its file has the name. Threads take turns; a fork opens its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._process = 0
        self._file: os.stat_result | None = None

    @contextmanager
    def held(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._database is None or self._process != os.getpid() or not self._is_named():
                self._let_go()
                self._database, self._process = self._open(), os.getpid()
            yield self._database

    def close(self) -> None:
        with self._lock:
            self._let_go()

    def _is_named(self) -> bool:
        """Is the file that is open the one that the others would open?"""
        try:
            return self._file is not None and os.path.samestat(self._file, self._path.stat())
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        # SQLite leaves the log of a file alone that has taken this one's place
        if self._database is not None and self._process == os.getpid():
            self._database.close()
        self._database = None

    def _open(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600)
        self._file = self._path.stat()  # before SQLite opens it: a change in between is seen at the next turn
        database = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # not at the end of a process: one that was forked must not close what is another's
        weakref.finalize(self, database.close).atexit = False
        try:
            _prepare(database, self._path)
        except BaseException:
            database.close()
            raise
        return database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """See that the file has our form, which an empty one is given. Raises ConfigError for another."""
    # a loss of power may take the last ids: it takes the questions that they answered as well
    database.execute("PRAGMA synchronous = NORMAL")
    # in this order, as another process may give it its form in between
    empty = database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    form = database.execute("PRAGMA application_id").fetchone()[0]
    if form == _FORM:
        return
    if form or not empty:
        raise ConfigError(
            f"{path}, the file of receipts that were seen, has the form of another version or program",
            code="config.bad-store",
            hint="remove it if it is a replay file, whose ids count for 180 seconds, or name another",
        )
    _to_wal(database)
    database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_FORM}; COMMIT")


def _to_wal(database: sqlite3.Connection) -> None:
    """Write-ahead logging, which stays with the file. SQLite's own patience does not cover this change."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
        time.sleep(_PAUSE)


def _purge(database: sqlite3.Connection, now: float) -> bool:
    """Forget some ids that are over. Are there more of them?"""
    query = "DELETE FROM seen WHERE id IN (SELECT id FROM seen WHERE until < ? LIMIT ?)"
    return database.execute(query, (now, _PURGE)).rowcount == _PURGE


def _taken(database: sqlite3.Connection, owner: bytes) -> tuple[int, int]:
    """How many ids there are, and how many of this owner."""
    found = dict(database.execute("SELECT owner, taken FROM room WHERE owner IN (x'', ?)", (owner,)))
    return int(found.get(b"", 0)), int(found.get(owner, 0)) if owner else 0


@contextmanager
def _told() -> Iterator[None]:
    """Turns what SQLite says into an error of ours."""
    try:
        yield
    except (sqlite3.Error, OSError, ConfigError) as error:
        raise _unusable(error) from error


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _unfit(path: Path, error: sqlite3.Error | OSError) -> ConfigError | ProvenanceError:
    """Why a store cannot begin."""
    if _is_busy(error):
        return _unusable(error)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(
        f"{path}, the file of receipts that were seen, cannot be used: {why}",
        code="config.bad-store",
        hint="a file of SQLite in a folder that can be written to; a missing one is made",
    )


def _unusable(error: Exception) -> ProvenanceError:
    busy = _is_busy(error)
    why = "another process keeps it busy" if busy else str(error)
    return ProvenanceError(
        f"the file of receipts that were seen cannot be used: {why}",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again" if busy else "is there room on the disk, and is the file one of Onym's?",
    )
