"""Octets by key in one SQLite file: bounded by size and age, shared by threads and processes.

A broken store is no failure of a call: what cannot be read is a miss, what cannot be written is not kept, and
`trouble` is told why, once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import finalize

from onym.llm.cache import _files as files

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Contents", "Store"]

T = TypeVar("T")

#: seconds to wait for another process's write
_PATIENCE: Final = 2.0
#: an entry that was read is noted at most so often: seconds
_NOTED: Final = 60.0
#: where the bound is passed, so much of it stays
_KEPT: Final = 0.9
#: octets of a row beside its value, about
_ROW: Final = 120
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY, made REAL NOT NULL, used REAL NOT NULL, seal BLOB NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (used, key);
CREATE INDEX IF NOT EXISTS by_age ON entries (made);
"""
#: the entries used longest ago, beyond so many octets
_SURPLUS: Final = """
DELETE FROM entries WHERE key IN (SELECT key FROM (
    SELECT key, SUM(length(value) + ?) OVER (ORDER BY used DESC, key) AS running FROM entries
) WHERE running > ?)
"""
#: SQLite's codes for a file that is not, or no longer, a database
_RUINED: Final = (11, 26)
_BUSY: Final = (5, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What lies in the store: octets in use, and the dates of the oldest and the newest entry (seconds)."""

    entries: int = 0
    octets: int = 0
    oldest: float | None = None
    newest: float | None = None


class Store:
    """The store in `folder`, at most about `size` octets, nothing older than `age` seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        size: int,
        age: float,
        clock: Callable[[], float] = time.time,
        trouble: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._size = size
        self._age = age
        self._clock = clock
        self._trouble = trouble
        self._lock = RLock()
        self._key: bytes | None = None
        self._number = 0
        self._open: tuple[int, sqlite3.Connection, finalize[Any, Any]] | None = None

    def secret(self) -> bytes | None:
        """The random key that names are made with; None where there is none to be had."""
        if self._key is None:
            with self._lock:
                self._key = self._guarded(self._make_key, None)
        return self._key

    def get(self, key: bytes) -> bytes | None:
        """The value under this key, if it is there, whole and young enough."""
        return self._guarded(lambda db: self._read(db, key), None)

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; the ones used longest ago make room for it."""
        if len(value) + _ROW <= self._size * _KEPT:
            self._guarded(lambda db: self._write(db, key, value), None)

    def contents(self) -> Contents:
        """What there is. Makes nothing where there is nothing."""
        if not files.data_files(self.folder):
            return Contents()
        return self._guarded(_contents, Contents())

    def clear(self) -> Contents:
        """Remove every entry, and say what there was."""
        found = self.contents()
        if files.data_files(self.folder):
            self._guarded(_clear, None)
        return found

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            found, self._open = self._open, None
            if found is not None:
                found[2]()

    def _make_key(self, _: object) -> bytes:
        return files.random_key(self.folder)

    def _guarded(self, work: Callable[[Any], T], otherwise: T) -> T:
        """Do it with an open file. A ruined one is replaced, once; all else that fails is told."""
        try:
            import sqlite3
        except ImportError:  # pragma: no cover - some builds of Python have none
            self._trouble("this Python has no sqlite3")
            return otherwise
        with self._lock:
            try:
                try:
                    return work(self._connection())
                except sqlite3.DatabaseError as error:
                    if _code(error) not in _RUINED:
                        raise
                    self._replace()
                    return work(self._connection())
            except (sqlite3.Error, OSError) as error:
                if _code(error) not in _BUSY:
                    self._trouble(_said(error))
                return otherwise

    def _connection(self) -> sqlite3.Connection:
        if self._open is not None:
            if self._open[0] == os.getpid():
                return self._open[1]
            _ABANDONED.append(self._open[1])
            self._open = None
        files.make_folder(self.folder)
        self._number = max(files.data_files(self.folder), default=1)
        db = _connect(files.data_file(self.folder, self._number))
        # also where nobody closes it, and at the end of the program
        self._open = os.getpid(), db, finalize(self, _close, os.getpid(), db)
        return db

    def _replace(self) -> None:
        """Go on with a new file. Others may still have the old one open, so its name is not used again."""
        self.close()
        known = files.data_files(self.folder)
        if max(known, default=0) > self._number:
            return  # another process did it already
        files.data_file(self.folder, self._number + 1)
        for path in known.values():
            files.remove(path)

    def _read(self, db: sqlite3.Connection, key: bytes) -> bytes | None:
        row = db.execute("SELECT made, used, seal, value FROM entries WHERE key = ?", (key,)).fetchone()
        now = self._clock()
        if row is None or not self._young(row[0], now) or row[2] != self._seal(key, row[3]):
            return None
        if now - row[1] > _NOTED:
            db.execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))
        return bytes(row[3])

    def _young(self, made: float, now: float) -> bool:
        # a date in the future is a clock that was put back: no reason to keep something for ever
        return abs(now - made) <= self._age

    def _write(self, db: sqlite3.Connection, key: bytes, value: bytes) -> None:
        now = self._clock()
        db.execute("BEGIN IMMEDIATE")
        try:
            row = (key, now, now, self._seal(key, value), value)
            db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM entries WHERE made < ? OR made > ?", (now - self._age, now + self._age))
            if _octets(db) > self._size:
                self._evict(db)
        except BaseException:
            if db.in_transaction:  # SQLite has ended it by itself where the disk is full
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _evict(self, db: sqlite3.Connection) -> None:
        """Make room: pages count, not values, so what is left is measured again."""
        room = self._size * _KEPT
        for _ in range(8):
            db.execute(_SURPLUS, (_ROW, int(room)))
            if _octets(db) <= self._size:
                return
            room *= _KEPT * _KEPT

    def _seal(self, key: bytes, value: bytes) -> bytes:
        """Tells a value that was changed, by chance or by hand."""
        return blake2b(
            key + value, key=self.secret() or b"", digest_size=16, person=b"onym-cache-seal"
        ).digest()


#: connections that a fork brought along: they are the parent's, and closing them would disturb it
_ABANDONED: Final[list[sqlite3.Connection]] = []


def _close(pid: int, db: sqlite3.Connection) -> None:
    if pid == os.getpid():
        db.close()
    else:
        _ABANDONED.append(db)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        # one writer and any number of readers at once; a power cut may lose the last entries, and no more
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA journal_size_limit = 4194304")
        db.execute("PRAGMA trusted_schema = OFF")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _octets(db: sqlite3.Connection) -> int:
    """Octets of the file that are in use: whole pages."""
    pages, free, length = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * length)


def _contents(db: sqlite3.Connection) -> Contents:
    entries, oldest, newest = db.execute("SELECT COUNT(*), MIN(made), MAX(made) FROM entries").fetchone()
    return Contents(entries=entries, octets=_octets(db) if entries else 0, oldest=oldest, newest=newest)


def _clear(db: sqlite3.Connection) -> None:
    import sqlite3

    db.execute("DELETE FROM entries")
    with suppress(sqlite3.OperationalError):  # others are at work: the room is used again, not given back
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _code(error: BaseException) -> int:
    """SQLite's primary code, -1 for what is not SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


def _said(error: BaseException) -> str:
    """What went wrong, without a path."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
