"""Replay stores: receipt IDs and nonces that must not be accepted twice (AIIP/HTTPS v1, 3.10).

A store keeps a 16-byte hash of each ID in memory or in a SQLite file. It never drops an ID early: a full
store rejects new requests, because a dropped ID could be replayed.
"""

from __future__ import annotations

import heapq
import math
import os
import sqlite3
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

from onym.errors import ConfigError, ProvenanceError

#: ids kept at one time: a receipt's for 180 seconds at most
MAX_REPLAY_IDS: Final = 1_000_000
#: an authority may have as many times what it leaves free: it must not lock out the others
_SHARE: Final = 3
#: this part of the room is for answers to what was asked already
_RESERVE: Final = 64
_LONGEST: Final = 1_024
_HASH: Final = 16


def split_identity(identity: str) -> tuple[str, bytes]:
    """The anchor that an id begins with, on a line of its own ("" where there is none), and the id's hash."""
    if len(identity) > _LONGEST:
        raise ProvenanceError("the id of the receipt is too long", clause="AIIP/HTTPS v1 3.8 step 6")
    return identity.rpartition("\n")[0], hash_text(identity)


def hash_text(text: str) -> bytes:
    """What is kept of a text; b"" of none."""
    # JSON of a stranger may hold halves of characters
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH).digest() if text else b""


def get_admission_limit(most: int) -> int:
    """The part of the room that is for what is not asked yet."""
    return most - most // _RESERVE


def is_full(taken: int, own: int, most: int) -> bool:
    """Is there no room for one more, all in all or for this owner, who has `own` (0 for nobody's)?"""
    return taken >= most or (own > 0 and own >= _SHARE * (most - taken))


def make_full_error() -> ProvenanceError:
    """The error of a store without room."""
    return ProvenanceError(
        "no more receipts can be told apart just now",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again in some minutes, or allow more",
    )


class Replays(Protocol):
    """Remembers ids until they are of no use any more. Threads may share one.

    An id may begin with whose it is and a line end: each of these may take a share of the room, and not all.
    """

    @property
    def waits(self) -> bool:
        """Does `seen` wait for a disk, or for others? Coroutines ask in a thread then."""
        ...

    def admit(self, owner: str, *, now: float) -> None:
        """Raises ProvenanceError `aiip.unavailable` where an id of this owner would find no room.

        It is asked before a request goes out, whose answer would not count; it does not wait.
        """
        ...

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Was this id there already? If not it is from now on, until `until` (seconds since the epoch).

        One step: of two callers at the same time one gets False. Raises ProvenanceError
        `aiip.unavailable` where no more can be kept.
        """
        ...


class MemoryReplays:
    """Ids of this process, about 150 octets for each."""

    #: nothing is waited for
    waits: Final = False

    def __init__(self, most: int = MAX_REPLAY_IDS) -> None:
        self._most = most
        self._known: set[bytes] = set()
        self._owners: Counter[str] = Counter()
        # second -> owner -> ids that are of no use behind it
        self._ends: dict[int, dict[str, list[bytes]]] = {}
        self._seconds: list[int] = []
        self._lock = threading.Lock()

    def admit(self, owner: str, *, now: float) -> None:
        """As `Replays.admit`."""
        with self._lock:
            self._delete_expired(now)
            self._require_room(owner, get_admission_limit(self._most))

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`."""
        owner, key = split_identity(identity)
        with self._lock:
            self._delete_expired(now)
            if key in self._known:
                return True
            self._require_room(owner, self._most)
            self._known.add(key)
            self._owners[owner] += 1
            second = math.ceil(until)
            if second not in self._ends:
                self._ends[second] = defaultdict(list)
                heapq.heappush(self._seconds, second)
            self._ends[second][owner].append(key)
        return False

    def _require_room(self, owner: str, most: int) -> None:
        if is_full(len(self._known), self._owners[owner] if owner else 0, most):
            raise make_full_error()

    def _delete_expired(self, now: float) -> None:
        while self._seconds and self._seconds[0] < now:
            for owner, keys in self._ends.pop(heapq.heappop(self._seconds)).items():
                self._known.difference_update(keys)
                self._owners[owner] -= len(keys)
                if not self._owners[owner]:
                    del self._owners[owner]


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

    def __init__(self, path: str | Path, most: int = MAX_REPLAY_IDS) -> None:
        self._path = Path(path)
        self._most = most
        self._writer, self._reader = _SharedConnection(self._path), _SharedConnection(self._path)
        try:
            self._path.touch(mode=0o600)
            self._path.chmod(0o600)  # whoever takes an id out makes its receipt count again
            with self._writer.acquire():
                pass
        except (sqlite3.Error, OSError) as error:
            raise _make_open_error(self._path, error) from error

    def admit(self, owner: str, *, now: float) -> None:
        """As `Replays.admit`; `aiip.unavailable` where the file cannot be used, too."""
        # readers of a WAL wait for nobody
        with _convert_errors(), self._reader.acquire() as database:
            if not is_full(*_count_ids(database, hash_text(owner)), get_admission_limit(self._most)):
                return
            # what is over gives its place back to the next one that is recorded
            if database.execute("SELECT 1 FROM seen WHERE until < ? LIMIT 1", (now,)).fetchone() is None:
                raise make_full_error()

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`; `aiip.unavailable` where the file cannot be used, too."""
        owner, key = split_identity(identity)
        with _convert_errors(), self._writer.acquire() as database:
            database.execute("BEGIN IMMEDIATE")
            with database:
                known = self._insert_id(database, key, hash_text(owner), until, now)
        if known is None:
            raise make_full_error()
        return known

    def close(self) -> None:
        """Close the file; it is opened again where it is needed again."""
        self._writer.close()
        self._reader.close()

    def _insert_id(
        self, database: sqlite3.Connection, key: bytes, owner: bytes, until: float, now: float
    ) -> bool | None:
        """Was it there? None where there is no room for it."""
        more = _delete_expired(database, now)
        ends = database.execute("SELECT until FROM seen WHERE id = ?", (key,)).fetchone()
        if ends is not None and ends[0] >= now:
            return True
        while is_full(*_count_ids(database, owner), self._most):
            if not more:
                return None
            more = _delete_expired(database, now)
        database.execute("DELETE FROM seen WHERE id = ?", (key,))  # it was over, and is not purged yet
        database.execute("INSERT INTO seen VALUES (?, ?, ?)", (key, owner, until))
        return False


class _SharedConnection:
    """A connection that is kept while its file has the name. Threads take turns; a fork opens its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._process = 0
        self._file: os.stat_result | None = None

    @contextmanager
    def acquire(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._database is None or self._process != os.getpid() or not self._is_current_file():
                self._disconnect()
                self._database, self._process = self._connect(), os.getpid()
            yield self._database

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _is_current_file(self) -> bool:
        """Is the file that is open the one that the others would open?"""
        try:
            return self._file is not None and os.path.samestat(self._file, self._path.stat())
        except FileNotFoundError:
            return False

    def _disconnect(self) -> None:
        # SQLite leaves the log of a file alone that has taken this one's place
        if self._database is not None and self._process == os.getpid():
            self._database.close()
        self._database = None

    def _connect(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600)
        self._file = self._path.stat()  # before SQLite opens it: a change in between is seen at the next turn
        database = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # not at the end of a process: one that was forked must not close what is another's
        weakref.finalize(self, database.close).atexit = False
        try:
            _initialize_schema(database, self._path)
        except BaseException:
            database.close()
            raise
        return database


def _initialize_schema(database: sqlite3.Connection, path: Path) -> None:
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
    _enable_wal(database)
    database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_FORM}; COMMIT")


def _enable_wal(database: sqlite3.Connection) -> None:
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


def _delete_expired(database: sqlite3.Connection, now: float) -> bool:
    """Forget some ids that are over. Are there more of them?"""
    query = "DELETE FROM seen WHERE id IN (SELECT id FROM seen WHERE until < ? LIMIT ?)"
    return database.execute(query, (now, _PURGE)).rowcount == _PURGE


def _count_ids(database: sqlite3.Connection, owner: bytes) -> tuple[int, int]:
    """How many ids there are, and how many of this owner."""
    found = dict(database.execute("SELECT owner, taken FROM room WHERE owner IN (x'', ?)", (owner,)))
    return int(found.get(b"", 0)), int(found.get(owner, 0)) if owner else 0


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Turns what SQLite says into an error of ours."""
    try:
        yield
    except (sqlite3.Error, OSError, ConfigError) as error:
        raise _make_unavailable_error(error) from error


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _make_open_error(path: Path, error: sqlite3.Error | OSError) -> ConfigError | ProvenanceError:
    """Why a store cannot begin."""
    if _is_busy(error):
        return _make_unavailable_error(error)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(
        f"{path}, the file of receipts that were seen, cannot be used: {why}",
        code="config.bad-store",
        hint="a file of SQLite in a folder that can be written to; a missing one is made",
    )


def _make_unavailable_error(error: Exception) -> ProvenanceError:
    busy = _is_busy(error)
    why = "another process keeps it busy" if busy else str(error)
    return ProvenanceError(
        f"the file of receipts that were seen cannot be used: {why}",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again" if busy else "is there room on the disk, and is the file one of Onym's?",
    )
