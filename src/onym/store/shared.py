"""Shared stores: small values that the processes of a server, or of a fleet, put, take and count.

    store = open_shared_store("/var/lib/onym/shared.sqlite")
    if not await mark_seen(store, "proof", jti, until):
        raise ...  # a replay
    await store.put(make_key("session", digest), sealed, until)

Here are the Protocol and the stores of one computer, in memory and in a SQLite file. PostgreSQL and Valkey
are in `onym.store.shared_servers`. `onym.store.open_shared_store` picks one by URL.
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import re
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from onym.common.text import encode_base64url
from onym.errors import StoreError, UsageError
from onym.store.sqlite import FileFormat, SharedConnection, SQLiteOptions, WrongFormatError, describe_error
from onym.store.valkey import ValkeyOptions

#: characters of a key: printable ASCII, so that every store sorts keys alike
MAX_KEY: Final = 512
#: values that one call of `find` returns
MAX_FOUND: Final = 1_000
#: seconds that the clocks of a process and of its store may differ
CLOCK_TOLERANCE: Final = 5.0
#: seconds for which a store of a fleet keeps what has expired, because the clocks of machines differ
GRACE: Final = 2 * CLOCK_TOLERANCE
#: an `until` for values that do not expire (the year 9999)
FOREVER: Final = 253_402_300_799.0
#: expired values that an insertion deletes, more than it adds
PURGE: Final = 20

_KEY: Final = re.compile(r"[!-.0-~]+(?:/[!-.0-~]+)*", re.ASCII)
#: parts of a key that stay readable
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
#: sorts after every character of a key
_LAST: Final = "\x7f"


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value, the version that `replace` compares, and when it expires (seconds since the epoch)."""

    value: bytes = field(repr=False)
    version: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """How much a store accepts.

    `entries` values in all, `kind` values whose keys have the same first part, `value` bytes for one value,
    and `marks` marks. A Valkey server limits its marks by `maxmemory`. Counts of a PostgreSQL database may be
    ten seconds old.
    """

    entries: int = 1_000_000
    kind: int = 500_000
    value: int = 1024 * 1024
    marks: int = 1_000_000


DEFAULT_LIMITS: Final = StoreLimits()
DEFAULT_VALKEY: Final = ValkeyOptions()


class SharedStore(Protocol):
    """Values by key. Every method is atomic, also between machines, and raises StoreError if it fails.

    Codes: `store.unreachable`, `store.full`, `store.too-large`, `store.epoch`, `store.clock`, `store.closed`
    and `store.eviction`, and the codes of `onym.store.valkey`. A key that is not valid raises UsageError
    `store.bad-key`.

    A key is text with slashes; its first part is its kind. A value is bytes and lives until a point in time,
    in seconds since the epoch, by the clock of the process that reads it. A store never drops a value early:
    a store without room rejects new values (`store.full`), and a store that cannot be reached raises
    StoreError (503), so that nothing is taken for absent by mistake.
    """

    async def put_new(self, key: str, value: bytes, until: float) -> bool:
        """Put a value if the key has none. Report whether the value was put."""
        ...

    async def put(self, key: str, value: bytes, until: float) -> None:
        """Put a value, in place of one that the key has."""
        ...

    async def replace(self, key: str, value: bytes, until: float, *, version: int) -> bool:
        """Put a value if the key still has the value of this version. Report whether it was put."""
        ...

    async def get(self, key: str) -> StoredValue | None:
        """Return the value of the key, or None if it has none or its value has expired."""
        ...

    async def take(self, key: str) -> bytes | None:
        """Return the value of the key and delete it. Of several callers one gets it."""
        ...

    async def delete(self, key: str) -> None:
        """Delete the value of the key, if it has one."""
        ...

    async def find(
        self, prefix: str, *, limit: int, after: str | None = None
    ) -> list[tuple[str, StoredValue]]:
        """Return keys that begin with `prefix`, with their values, in the order of the keys.

        At most `limit` of them (1 to `MAX_FOUND`), and only those that sort after the key `after`.
        """
        ...

    async def count(self, prefix: str) -> int:
        """Return the number of keys that begin with `prefix`."""
        ...

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        """Remember the key until then, without a value. Report whether it was unknown; see `mark_seen`.

        Marks are apart from values: `get`, `find` and `count` do not see them. Raises StoreError
        `store.epoch` if the store has lost its marks since `epoch` returned this text.
        """
        ...

    async def epoch(self) -> str:
        """Return a random text that is another one after the store has lost its content.

        Proofs that were made for another epoch could be replays: reject them.
        """
        ...

    async def check(self) -> None:
        """Raise StoreError if the store cannot be reached, drops values early or has another time."""
        ...

    async def close(self) -> None:
        """Close all connections. A store in memory forgets its values."""
        ...


def make_key(*parts: str) -> str:
    """Return a key of these parts. A part that is long or has unusual characters becomes its SHA-256."""
    return "/".join(part if _PLAIN.fullmatch(part) else hash_part(part) for part in parts)


def hash_part(text: str) -> str:
    """Return a part of a key that stands for any text, without containing it."""
    return "~" + encode_base64url(sha256(text.encode("utf-8", "surrogatepass")).digest())


async def mark_seen(
    store: SharedStore, kind: str, identity: str, until: float, *, epoch: str | None = None
) -> bool:
    """Remember an ID that may be used only once. Report whether this is its first use.

    `kind` says what it identifies, such as "proof" or "logout"; `until` is the time after which the caller
    rejects the ID anyway. IDs of any length and content are stored as their SHA-256. `epoch` is that of the
    store when the ID was made: StoreError `store.epoch` says that its uses may have been forgotten.
    """
    return await store.mark(f"{make_key(kind)}/{hash_part(identity)}", until, epoch=epoch)


def check_key(key: str, *, prefix: bool = False) -> str:
    """Return the key. Raises UsageError `store.bad-key`."""
    if len(key) <= MAX_KEY and (_KEY.fullmatch(key) or (prefix and _KEY.fullmatch(key + "x"))):
        return key
    raise UsageError(
        f"a key of a store has 1 to {MAX_KEY} printable ASCII characters without spaces",
        code="store.bad-key",
        hint="Make it with make_key(), which replaces other texts by their hash.",
    )


def get_kind(key: str) -> str:
    """Return the first part of a key."""
    return key.partition("/")[0]


def get_range(prefix: str, after: str | None = None) -> tuple[str, str]:
    """Return the keys between which all keys with this prefix lie; both are outside."""
    check_key(prefix, prefix=True)
    check_key(after or "", prefix=True)
    # "" and every prefix sort before the keys that begin with them; a key may be equal to the prefix
    return max(after or "", prefix[:-1] + chr(ord(prefix[-1]) - 1) + _LAST if prefix else ""), prefix + _LAST


def check_value(value: bytes, limits: StoreLimits) -> bytes:
    """Return the value. Raises StoreError `store.too-large`."""
    if len(value) <= limits.value:
        return value
    raise StoreError(
        f"the value has {len(value)} bytes; the store accepts {limits.value}",
        code="store.too-large",
        hint="Store less, or raise the limit of the store.",
    )


def check_limit(limit: int) -> int:
    """Return the limit of a search. Raises UsageError `store.bad-limit`."""
    if 1 <= limit <= MAX_FOUND:
        return limit
    raise UsageError(
        f"a search cannot return {limit} values",
        code="store.bad-limit",
        hint=f"Use a limit from 1 to {MAX_FOUND}.",
    )


def make_version() -> int:
    """Return the version of a value that is being put; no two are the same, also after a deletion."""
    return secrets.randbits(62)


def require_room(kind: str, own: int, total: int, limits: StoreLimits) -> None:
    """Raise StoreError `store.full` if there is no room for one more value of this kind."""
    if own >= limits.kind:
        raise make_full_error(f'{own} values of the kind "{kind}"')
    if total >= limits.entries:
        raise make_full_error(f"{total} values")


def make_full_error(what: str) -> StoreError:
    """Return the error for a store that has no room."""
    return StoreError(
        f"the shared store is full: it has {what}",
        code="store.full",
        hint="Try again when values have expired, or raise the limits of the store.",
    )


def make_epoch_error() -> StoreError:
    """Return the error for a store that came back without its marks."""
    return StoreError(
        "the shared store has lost its content, so uses of an ID before that are unknown",
        code="store.epoch",
        hint="Try again with a new nonce.",
    )


def require_same_time(difference: float) -> None:
    """Raise StoreError `store.clock` unless the clocks agree."""
    if abs(difference) > CLOCK_TOLERANCE:
        raise StoreError(
            f"the clocks of this process and of the shared store are {abs(difference):.1f} s apart",
            code="store.clock",
            hint="Run NTP on both machines; they may differ by 5 seconds.",
        )


class MemoryStore:
    """Values of this process; threads and event loops may share them."""

    def __init__(
        self, *, limits: StoreLimits = DEFAULT_LIMITS, clock: Callable[[], float] = time.time
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._values: dict[str, StoredValue] = {}
        #: the keys in their order
        self._order: list[str] = []
        self._kinds: Counter[str] = Counter()
        #: (until, version, key) of values, some of which have been replaced since
        self._ends: list[tuple[float, int, str]] = []
        self._marks: dict[str, float] = {}
        self._mark_ends: list[tuple[float, str]] = []
        self._epoch = secrets.token_hex(16)

    async def put_new(self, key: str, value: bytes, until: float) -> bool:
        """Do what `SharedStore.put_new` says."""
        check_key(key), check_value(value, self._limits)
        with self._use():
            if key in self._values:
                return False
            self._set(key, value, until)
        return True

    async def put(self, key: str, value: bytes, until: float) -> None:
        """Do what `SharedStore.put` says."""
        check_key(key), check_value(value, self._limits)
        with self._use():
            self._set(key, value, until)

    async def replace(self, key: str, value: bytes, until: float, *, version: int) -> bool:
        """Do what `SharedStore.replace` says."""
        check_key(key), check_value(value, self._limits)
        with self._use():
            found = self._values.get(key)
            if found is None or found.version != version:
                return False
            self._set(key, value, until)
        return True

    async def get(self, key: str) -> StoredValue | None:
        """Do what `SharedStore.get` says."""
        with self._use():
            return self._values.get(check_key(key))

    async def take(self, key: str) -> bytes | None:
        """Do what `SharedStore.take` says."""
        with self._use():
            found = self._remove(check_key(key))
        return None if found is None else found.value

    async def delete(self, key: str) -> None:
        """Do what `SharedStore.delete` says."""
        with self._use():
            self._remove(check_key(key))

    async def find(
        self, prefix: str, *, limit: int, after: str | None = None
    ) -> list[tuple[str, StoredValue]]:
        """Do what `SharedStore.find` says."""
        first, last = get_range(prefix, after)
        with self._use():
            start, end = bisect.bisect_right(self._order, first), bisect.bisect_left(self._order, last)
            keys = self._order[start : min(end, start + check_limit(limit))]
            return [(key, self._values[key]) for key in keys]

    async def count(self, prefix: str) -> int:
        """Do what `SharedStore.count` says."""
        first, last = get_range(prefix)
        with self._use():
            return bisect.bisect_left(self._order, last) - bisect.bisect_right(self._order, first)

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        """Do what `SharedStore.mark` says."""
        with self._use():
            if epoch not in {None, self._epoch}:
                raise make_epoch_error()
            if check_key(key) in self._marks:
                return False
            if len(self._marks) >= self._limits.marks:
                raise make_full_error(f"{self._limits.marks} marks")
            self._marks[key] = until
            heapq.heappush(self._mark_ends, (until, key))
        return True

    async def epoch(self) -> str:
        """Do what `SharedStore.epoch` says."""
        return self._epoch

    async def check(self) -> None:
        """Do what `SharedStore.check` says: memory is always there."""

    async def close(self) -> None:
        """Do what `SharedStore.close` says."""
        with self._lock:
            self._forget()

    @contextmanager
    def _use(self) -> Iterator[None]:
        with self._lock:
            now = self._clock()
            while self._ends and self._ends[0][0] <= now:
                _, version, key = heapq.heappop(self._ends)
                found = self._values.get(key)
                if found is not None and found.version == version:
                    self._remove(key)
            while self._mark_ends and self._mark_ends[0][0] <= now:
                self._marks.pop(heapq.heappop(self._mark_ends)[1], None)
            yield

    def _set(self, key: str, value: bytes, until: float) -> None:
        if key not in self._values:
            kind = get_kind(key)
            require_room(kind, self._kinds[kind], len(self._values), self._limits)
            self._kinds[kind] += 1
            bisect.insort(self._order, key)
        stored = StoredValue(bytes(value), make_version(), until)
        self._values[key] = stored
        heapq.heappush(self._ends, (until, stored.version, key))
        if len(self._ends) > 64 + 4 * len(self._values):  # replaced values leave their ends behind
            self._ends = [(value.until, value.version, key) for key, value in self._values.items()]
            heapq.heapify(self._ends)

    def _remove(self, key: str) -> StoredValue | None:
        found = self._values.pop(key, None)
        if found is not None:
            del self._order[bisect.bisect_left(self._order, key)]
            kind = get_kind(key)
            self._kinds[kind] -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]
        return found


#: `room` counts the values of each kind by triggers, and the marks as the kind "/", which no key has
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS entries (
        key TEXT PRIMARY KEY, kind TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
        until REAL NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS entries_until ON entries (until);
    CREATE TABLE IF NOT EXISTS marks (key TEXT PRIMARY KEY, until REAL NOT NULL) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS marks_until ON marks (until);
    CREATE TABLE IF NOT EXISTS room (kind TEXT PRIMARY KEY, taken INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS entries_in AFTER INSERT ON entries BEGIN
        INSERT INTO room VALUES (NEW.kind, 1) ON CONFLICT (kind) DO UPDATE SET taken = taken + 1;
    END;
    CREATE TRIGGER IF NOT EXISTS entries_out AFTER DELETE ON entries BEGIN
        UPDATE room SET taken = taken - 1 WHERE kind = OLD.kind;
        DELETE FROM room WHERE kind = OLD.kind AND taken <= 0;
    END;
    CREATE TRIGGER IF NOT EXISTS marks_in AFTER INSERT ON marks BEGIN
        INSERT INTO room VALUES ('/', 1) ON CONFLICT (kind) DO UPDATE SET taken = taken + 1;
    END;
    CREATE TRIGGER IF NOT EXISTS marks_out AFTER DELETE ON marks BEGIN
        UPDATE room SET taken = taken - 1 WHERE kind = '/';
    END;
    INSERT OR IGNORE INTO facts VALUES ('epoch', lower(hex(randomblob(16))));
"""
_FORMAT: Final = FileFormat(application_id=0x4F6E5301, version=1, schema=_SCHEMA)
_MARKS: Final = "/"
_PUT: Final = (
    "INSERT INTO entries (key, kind, value, version, until) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) "
    "DO UPDATE SET value = excluded.value, version = excluded.version, until = excluded.until"
)
_FIND: Final = (
    "SELECT key, value, version, until FROM entries WHERE key > ? AND key < ? AND until > ? "
    "ORDER BY key LIMIT ?"
)
_Result = TypeVar("_Result")


class SQLiteStore:
    """Values in a SQLite file, which the processes of one computer share. One thread uses the file.

    What was put is on the disk when the call returns. A power cut may lose the last marks: it has also ended
    the requests that they belong to. Raises StoreError `store.bad-file` if the file cannot be used.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        limits: StoreLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._files = SharedConnection(path, _FORMAT, SQLiteOptions(pragmas={"synchronous": "FULL"}))
        self._mark_files = SharedConnection(path, _FORMAT)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onym-shared-store")

    async def put_new(self, key: str, value: bytes, until: float) -> bool:
        """Do what `SharedStore.put_new` says."""
        check_key(key), check_value(value, self._limits)
        return await self._run(lambda: self._insert(key, value, until, only_new=True))

    async def put(self, key: str, value: bytes, until: float) -> None:
        """Do what `SharedStore.put` says."""
        check_key(key), check_value(value, self._limits)
        await self._run(lambda: self._insert(key, value, until, only_new=False))

    async def replace(self, key: str, value: bytes, until: float, *, version: int) -> bool:
        """Do what `SharedStore.replace` says."""
        check_key(key), check_value(value, self._limits)
        query = (
            "UPDATE entries SET value = ?, version = ?, until = ? WHERE key = ? AND version = ? AND until > ?"
        )
        arguments = (value, make_version(), until, key, version, self._clock())
        return await self._run(lambda: self._execute(query, arguments).rowcount == 1)

    async def get(self, key: str) -> StoredValue | None:
        """Do what `SharedStore.get` says."""
        query = "SELECT value, version, until FROM entries WHERE key = ? AND until > ?"
        arguments = (check_key(key), self._clock())
        row = await self._run(lambda: self._execute(query, arguments).fetchone())
        return None if row is None else StoredValue(*row)

    async def take(self, key: str) -> bytes | None:
        """Do what `SharedStore.take` says."""
        query = "DELETE FROM entries WHERE key = ? RETURNING value, until"
        arguments, now = (check_key(key),), self._clock()
        rows = await self._run(lambda: self._execute(query, arguments).fetchall())
        return rows[0][0] if rows and rows[0][1] > now else None

    async def delete(self, key: str) -> None:
        """Do what `SharedStore.delete` says."""
        arguments = (check_key(key),)
        await self._run(lambda: self._execute("DELETE FROM entries WHERE key = ?", arguments))

    async def find(
        self, prefix: str, *, limit: int, after: str | None = None
    ) -> list[tuple[str, StoredValue]]:
        """Do what `SharedStore.find` says."""
        arguments = (*get_range(prefix, after), self._clock(), check_limit(limit))
        rows = await self._run(lambda: self._execute(_FIND, arguments).fetchall())
        return [(key, StoredValue(*rest)) for key, *rest in rows]

    async def count(self, prefix: str) -> int:
        """Do what `SharedStore.count` says."""
        query = "SELECT count(*) FROM entries WHERE key > ? AND key < ? AND until > ?"
        arguments = (*get_range(prefix), self._clock())
        count: int = await self._run(lambda: self._execute(query, arguments).fetchone()[0])
        return count

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        """Do what `SharedStore.mark` says."""
        check_key(key)
        return await self._run(lambda: self._insert_mark(key, until, epoch))

    async def epoch(self) -> str:
        """Do what `SharedStore.epoch` says."""
        query = "SELECT value FROM facts WHERE name = 'epoch'"
        return str(await self._run(lambda: self._execute(query, ()).fetchone()[0]))

    async def check(self) -> None:
        """Do what `SharedStore.check` says. The time is that of the same computer."""
        await self._run(self._try_to_write)

    async def close(self) -> None:
        """Do what `SharedStore.close` says."""
        await self._run(self._close_files)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, _run_on_file, work)
        except RuntimeError:  # the thread has ended
            raise StoreError("the store was closed", code="store.closed") from None
        return await running

    def _execute(self, query: str, arguments: tuple[Any, ...]) -> sqlite3.Cursor:
        with self._files.acquire() as database:
            return database.execute(query, arguments)

    def _insert(self, key: str, value: bytes, until: float, *, only_new: bool) -> bool:
        now, kind = self._clock(), get_kind(key)
        with self._files.transaction() as database:
            more = _delete_expired(database, "entries", now)
            row = database.execute("SELECT until FROM entries WHERE key = ?", (key,)).fetchone()
            if row is None:
                while not self._has_room(database, kind) and more:
                    more = _delete_expired(database, "entries", now)
                require_room(kind, *_count_values(database, kind), self._limits)
            elif only_new and row[0] > now:
                return False
            database.execute(_PUT, (key, kind, value, make_version(), until))
        return True

    def _has_room(self, database: sqlite3.Connection, kind: str) -> bool:
        own, total = _count_values(database, kind)
        return own < self._limits.kind and total < self._limits.entries

    def _insert_mark(self, key: str, until: float, epoch: str | None) -> bool:
        now = self._clock()
        with self._mark_files.transaction() as database:
            if epoch is not None:
                query = "SELECT 1 FROM facts WHERE name = 'epoch' AND value = ?"
                if database.execute(query, (epoch,)).fetchone() is None:
                    raise make_epoch_error()
            more = _delete_expired(database, "marks", now)
            row = database.execute("SELECT until FROM marks WHERE key = ?", (key,)).fetchone()
            if row is not None and row[0] > now:
                return False
            query = "SELECT taken FROM room WHERE kind = ?"
            while (taken := database.execute(query, (_MARKS,)).fetchone()) and taken[0] >= self._limits.marks:
                if not more:
                    raise make_full_error(f"{taken[0]} marks")
                more = _delete_expired(database, "marks", now)
            database.execute("DELETE FROM marks WHERE key = ?", (key,))
            database.execute("INSERT INTO marks VALUES (?, ?)", (key, until))
        return True

    def _try_to_write(self) -> None:
        with self._files.transaction() as database:
            database.execute("INSERT OR REPLACE INTO facts VALUES ('checked', ?)", (str(self._clock()),))

    def _close_files(self) -> None:
        self._files.close()
        self._mark_files.close()


def _run_on_file(work: Callable[[], _Result]) -> _Result:
    """Run the work in the store's thread. SQLite's errors become StoreError there, away from its values."""
    try:
        return work()
    except WrongFormatError as error:
        raise StoreError(
            f"the file of the shared store cannot be used: {describe_error(error)}",
            code="store.bad-file",
            hint="Name a new file, or a file of a shared store of this version of Onym.",
        ) from None
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"the file of the shared store cannot be used: {describe_error(error)}",
            code="store.unreachable",
            hint="Check that the folder exists, its owner and the free space.",
        ) from None


def _delete_expired(database: sqlite3.Connection, table: str, now: float) -> bool:
    """Delete some rows that have expired, and report whether there may be more."""
    query = f"DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE until <= ? LIMIT ?)"  # noqa: S608 - a constant
    return database.execute(query, (now, PURGE)).rowcount == PURGE


def _count_values(database: sqlite3.Connection, kind: str) -> tuple[int, int]:
    """Return the number of values of this kind, and of all."""
    query = (
        "SELECT coalesce(sum(taken) FILTER (WHERE kind = ?), 0), coalesce(sum(taken), 0) FROM room "
        "WHERE kind <> ?"
    )
    own, total = database.execute(query, (kind, _MARKS)).fetchone()
    return own, total


class StoreThread:
    """An event loop in a thread of its own, for callers without one.

        with StoreThread() as thread:
            store = open_shared_store(url)
            value = thread.run(store.get(key))

    A store of PostgreSQL or Valkey belongs to the loop that used it first: use it only through this object.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onym-store-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run the coroutine and return its result; the calling thread waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread. Close the stores first."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> StoreThread:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
