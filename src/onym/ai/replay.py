"""Replay stores: receipt IDs and nonces that must not be accepted twice (AIIP/HTTPS v1, 3.10).

A store keeps a hash of each ID: in memory, in a SQLite file, or for a fleet in a shared store. It never drops
an ID early: a full store rejects new requests, because a dropped ID could be replayed.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

from onym.errors import ConfigError, ProvenanceError, StoreError
from onym.store import open_shared_store
from onym.store.shared import StoreLimits, StoreThread, mark_seen
from onym.store.sqlite import FileFormat, SharedConnection, SQLiteOptions, describe_error, is_busy
from onym.uri.secret import Secret

#: IDs stored at one time; a receipt's ID is stored for at most 180 seconds
MAX_REPLAY_IDS: Final = 1_000_000
#: one authority may have at most this many times the free room, so that it cannot lock out the others
_SHARE: Final = 3
#: 1/64 of the room is reserved for responses to requests that were sent already
_RESERVE: Final = 64
_LONGEST: Final = 1_024
_HASH: Final = 16


def split_identity(identity: str) -> tuple[str, bytes]:
    """Return the owner, which is the ID's first line ("" without one), and the hash of the whole ID."""
    if len(identity) > _LONGEST:
        raise ProvenanceError(
            f"the receipt's ID is longer than {_LONGEST} characters", clause="AIIP/HTTPS v1 3.8 step 6"
        )
    return identity.rpartition("\n")[0], hash_text(identity)


def hash_text(text: str) -> bytes:
    """Return the hash that is stored for a text; b"" for an empty one."""
    # untrusted JSON may contain lone surrogates
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH).digest() if text else b""


def get_admission_limit(most: int) -> int:
    """Return the part of the room that new requests may use."""
    return most - most // _RESERVE


def is_full(taken: int, own: int, most: int) -> bool:
    """Report whether the store is full, in all or for this owner, who has `own` IDs."""
    return taken >= most or (own > 0 and own >= _SHARE * (most - taken))


def make_full_error() -> ProvenanceError:
    """Return the error for a store without room."""
    return ProvenanceError(
        "the replay store is full, so new receipts cannot be checked",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="Try again in a few minutes, or create the store with a larger limit.",
    )


class Replays(Protocol):
    """Stores IDs until they expire. Threads may share a store.

    The first line of an ID may name its owner; one owner can use only a share of the room.
    """

    @property
    def waits(self) -> bool:
        """True if `seen` waits for a disk or for other processes; coroutines then call it in a thread."""
        ...

    def admit(self, owner: str, *, now: float) -> None:
        """Raise ProvenanceError `aiip.unavailable` if the store is full for this owner.

        The client calls it before it sends a request, because it could not accept the response. It does not
        wait.
        """
        ...

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Report whether the ID is stored, and store it until `until` (seconds since the epoch).

        The call is atomic: of two simultaneous callers one gets False. Raises ProvenanceError
        `aiip.unavailable` if the store is full.
        """
        ...


class MemoryReplays:
    """IDs of this process, about 150 bytes for each ID."""

    waits: Final = False

    def __init__(self, most: int = MAX_REPLAY_IDS) -> None:
        self._most = most
        self._known: set[bytes] = set()
        self._owners: Counter[str] = Counter()
        # second -> owner -> IDs that expire in that second
        self._ends: dict[int, dict[str, list[bytes]]] = {}
        self._seconds: list[int] = []
        self._lock = threading.Lock()

    def admit(self, owner: str, *, now: float) -> None:
        """Do what `Replays.admit` says."""
        with self._lock:
            self._delete_expired(now)
            self._require_room(owner, get_admission_limit(self._most))

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Do what `Replays.seen` says."""
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


#: seconds to wait for another process
_BUSY_SECONDS: Final = 5.0
#: expired IDs that are deleted in one step
_PURGE: Final = 1_000
#: `room` counts the IDs of each authority, and all IDs under x''
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
_FORMAT: Final = FileFormat(application_id=0x4F6E5201, version=1, schema=_SCHEMA)


class ReplayFile:
    """IDs in a SQLite file on a local disk. Processes may share the file.

    A missing file is created, readable by its owner only. If another file takes its place, the store uses
    that one. The cost of a call does not depend on the number of IDs. Raises ConfigError `config.bad-store`
    if the file is not a replay file or cannot be written, and ProvenanceError `aiip.unavailable` if another
    process keeps it locked.
    """

    #: for the disk, and for other processes
    waits: Final = True

    def __init__(self, path: str | Path, most: int = MAX_REPLAY_IDS) -> None:
        self._most = most
        # a power cut may lose the last IDs, but then it has also ended the requests that they belong to
        options = SQLiteOptions(timeout=_BUSY_SECONDS)
        self._writer, self._reader = (SharedConnection(path, _FORMAT, options) for _ in range(2))
        try:
            with self._writer.acquire():
                pass
        except (sqlite3.Error, OSError) as error:
            if is_busy(error):
                raise _make_unavailable_error(error) from error
            raise ConfigError(
                f"the replay file {path} cannot be used: {describe_error(error)}",
                code="config.bad-store",
                hint="Name a new file in a folder that you can write to, or remove the file if it is a "
                "replay file: its IDs expire after 180 seconds.",
            ) from error

    def admit(self, owner: str, *, now: float) -> None:
        """Do what `Replays.admit` says; raise `aiip.unavailable` also if the file cannot be used."""
        # readers of a write-ahead log do not wait
        with _convert_errors(), self._reader.acquire() as database:
            if not is_full(*_count_ids(database, hash_text(owner)), get_admission_limit(self._most)):
                return
            # `seen` deletes expired IDs when it needs room
            if database.execute("SELECT 1 FROM seen WHERE until < ? LIMIT 1", (now,)).fetchone() is None:
                raise make_full_error()

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Do what `Replays.seen` says; raise `aiip.unavailable` also if the file cannot be used."""
        owner, key = split_identity(identity)
        with _convert_errors(), self._writer.transaction() as database:
            more = _delete_expired(database, now)
            ends = database.execute("SELECT until FROM seen WHERE id = ?", (key,)).fetchone()
            if ends is not None and ends[0] >= now:
                return True
            own = hash_text(owner)
            while (full := is_full(*_count_ids(database, own), self._most)) and more:
                more = _delete_expired(database, now)
            if not full:
                database.execute("DELETE FROM seen WHERE id = ?", (key,))  # an expired one may still be there
                database.execute("INSERT INTO seen VALUES (?, ?, ?)", (key, own, until))
                return False
        raise make_full_error()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._writer.close()
        self._reader.close()


#: seconds for which no request is sent after the shared store has failed
_PAUSE: Final = 1.0


class SharedReplays:
    """IDs in a shared store, such as `valkeys://USER:PASSWORD@HOST/0`, which the machines of a fleet share.

    The store compares the time with its own clock. Raises StoreError when it is made if the store cannot be
    used (`onym.store.shared`), and later ProvenanceError `aiip.unavailable`. Close it at the end.
    """

    #: for the network
    waits: Final = True

    def __init__(self, url: str | Path | Secret, most: int = MAX_REPLAY_IDS) -> None:
        self._store = open_shared_store(url, limits=StoreLimits(marks=most))
        self._thread = StoreThread()
        self._failed = -math.inf
        try:
            self._thread.run(self._store.check())
        except BaseException:
            self.close()
            raise

    def admit(self, owner: str, *, now: float) -> None:
        """Do what `Replays.admit` says: the store has failed within the last second."""
        if abs(now - self._failed) < _PAUSE:
            raise _make_shared_error("it failed a moment ago")

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Do what `Replays.seen` says; raise `aiip.unavailable` also if the store cannot be used."""
        split_identity(identity)
        try:
            # a mark ends at a time, and an ID is known until the end of that time
            return not self._thread.run(
                mark_seen(self._store, "receipt", identity, math.nextafter(until, math.inf))
            )
        except StoreError as error:
            self._failed = now
            raise _make_shared_error(error.message) from error

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._thread.run(self._store.close())
        self._thread.close()


def open_replays(
    url: str | Path | Secret | None, most: int = MAX_REPLAY_IDS
) -> MemoryReplays | ReplayFile | SharedReplays:
    """Return the replay store for None (memory), a file, or the URL of a shared store."""
    if url is None:
        return MemoryReplays(most)
    plain = url.reveal() if isinstance(url, Secret) else str(url)
    return SharedReplays(Secret(plain), most) if "://" in plain else ReplayFile(plain, most)


def _make_shared_error(reason: str) -> ProvenanceError:
    return ProvenanceError(
        f"the shared replay store cannot be used: {reason}",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="Try again in a few seconds.",
    )


def _delete_expired(database: sqlite3.Connection, now: float) -> bool:
    """Delete some expired IDs and report whether there are more."""
    query = "DELETE FROM seen WHERE id IN (SELECT id FROM seen WHERE until < ? LIMIT ?)"
    return database.execute(query, (now, _PURGE)).rowcount == _PURGE


def _count_ids(database: sqlite3.Connection, owner: bytes) -> tuple[int, int]:
    """Return the number of all IDs and of this owner's."""
    counts = dict(database.execute("SELECT owner, taken FROM room WHERE owner IN (x'', ?)", (owner,)))
    return int(counts.get(b"", 0)), int(counts.get(owner, 0)) if owner else 0


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Raise ProvenanceError for errors of SQLite and of the file system."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise _make_unavailable_error(error) from error


def _make_unavailable_error(error: sqlite3.Error | OSError) -> ProvenanceError:
    return ProvenanceError(
        f"the replay file cannot be used: {describe_error(error)}",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="Try again."
        if is_busy(error)
        else "Check that the disk has room and that the file is a replay file.",
    )
