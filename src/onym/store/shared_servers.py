"""Shared stores of a fleet: in PostgreSQL and in Valkey (or Redis).

Use a Valkey server for what is used once (proofs, logout tokens, receipts) and for sessions. It must have the
policy `noeviction`; the first use raises StoreError if it has another one. PostgreSQL suits what must survive
a failover: approvals, consents and connections.

A value expires by the clock of the process that reads it, so that a proof cannot be used again on a machine
whose clock is behind. Both servers keep what has expired for ten seconds more, and `check` rejects a server
whose clock differs by more than five.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from onym.errors import StoreError
from onym.store import shared
from onym.store.postgres import ANSWER_SECONDS
from onym.store.valkey import ValkeyOptions, open_async_valkey, translate_errors
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

#: seconds between two counts of the rows of a PostgreSQL database
_RECOUNT: Final = 10.0
_TABLES: Final = (
    "CREATE TABLE onym_shared_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE onym_shared_entries (key TEXT COLLATE "C" PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL, version BIGINT NOT NULL, until DOUBLE PRECISION NOT NULL)""",
    "CREATE INDEX onym_shared_entries_until ON onym_shared_entries (until)",
    'CREATE TABLE onym_shared_marks (key TEXT COLLATE "C" PRIMARY KEY, until DOUBLE PRECISION NOT NULL)',
    "CREATE INDEX onym_shared_marks_until ON onym_shared_marks (until)",
    "INSERT INTO onym_shared_facts VALUES ('epoch', md5(random()::text || clock_timestamp()::text))",
)
_LOCK_KEY: Final = 0x4F6E5301
#: what to call PostgreSQL's SQLSTATE "undefined_table"
_NO_TABLE: Final = "42P01"
_MISSING: Final = "missing-tables"
_VERSION: Final = 1
#: the kind under which marks are counted; no key has it
_MARKS: Final = "/"
#: with each insertion go some rows that have expired, but never the row that is being put
_PURGE_ROWS: Final = """WITH old AS (DELETE FROM {table} WHERE key IN (SELECT key FROM {table}
WHERE until <= %(gone)s AND key <> %(key)s LIMIT 20 FOR UPDATE SKIP LOCKED)) """
_INSERT: Final = """INSERT INTO onym_shared_entries AS e (key, kind, value, version, until)
VALUES (%(key)s, %(kind)s, %(value)s, %(version)s, %(until)s) ON CONFLICT (key) DO UPDATE
SET value = excluded.value, version = excluded.version, until = excluded.until """
_PUT: Final = _PURGE_ROWS.format(table="onym_shared_entries") + _INSERT
_ONLY_NEW: Final = "WHERE e.until <= %(now)s "
_INSERTED: Final = "RETURNING xmax = 0"
_INSERT_MARK: Final = """INSERT INTO onym_shared_marks AS m (key, until)
SELECT %(key)s, %(until)s WHERE %(epoch)s::text IS NULL
OR EXISTS (SELECT 1 FROM onym_shared_facts WHERE name = 'epoch' AND value = %(epoch)s)
ON CONFLICT (key) DO UPDATE SET until = excluded.until WHERE m.until <= %(now)s RETURNING xmax = 0"""
_MARK: Final = _PURGE_ROWS.format(table="onym_shared_marks") + _INSERT_MARK
_COUNT: Final = (
    "SELECT kind, count(*) FROM onym_shared_entries WHERE until > %(now)s GROUP BY kind "
    "UNION ALL SELECT '/', count(*) FROM onym_shared_marks WHERE until > %(now)s"
)


class PostgresStore:
    """Values in three tables of a PostgreSQL database, which it creates. Each call is one statement.

    A store belongs to the event loop that used it first. Raises StoreError; `store.newer` if a later version
    of Onym has changed the tables.
    """

    def __init__(
        self,
        url: str | Secret,
        *,
        limits: shared.StoreLimits = shared.DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        from onym.store.sql import Database, DatabaseProfile, Failure, prepare_tables  # late: optional

        self._limits = limits
        self._clock = clock
        missing = Failure(_MISSING, "the tables of the store are missing", "Try again; they are created.")
        self._database = Database(
            url, DatabaseProfile(name="store", lock_key=_LOCK_KEY, failures={_NO_TABLE: missing})
        )
        self._prepare = prepare_tables
        self._ready = False
        self._start = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        #: rows of each kind, and when they were counted
        self._taken: Counter[str] = Counter()
        self._counted = float("-inf")

    async def put_new(self, key: str, value: bytes, until: float) -> bool:
        """Do what `SharedStore.put_new` says."""
        return await self._put(_PUT + _ONLY_NEW + _INSERTED, key, value, until)

    async def put(self, key: str, value: bytes, until: float) -> None:
        """Do what `SharedStore.put` says."""
        await self._put(_PUT + _INSERTED, key, value, until)

    async def replace(self, key: str, value: bytes, until: float, *, version: int) -> bool:
        """Do what `SharedStore.replace` says."""
        shared.check_key(key), shared.check_value(value, self._limits)
        rows = await self._execute(
            "UPDATE onym_shared_entries SET value = %(value)s, version = %(new)s, until = %(until)s "
            "WHERE key = %(key)s AND version = %(version)s AND until > %(now)s RETURNING 1",
            key=key, value=value, new=shared.make_version(), until=until, version=version, now=self._clock(),
        )  # fmt: skip
        return bool(rows)

    async def get(self, key: str) -> shared.StoredValue | None:
        """Do what `SharedStore.get` says."""
        query = (
            "SELECT value, version, until FROM onym_shared_entries WHERE key = %(key)s AND until > %(now)s"
        )
        rows = await self._execute(query, key=shared.check_key(key), now=self._clock())
        return shared.StoredValue(*rows[0]) if rows else None

    async def take(self, key: str) -> bytes | None:
        """Do what `SharedStore.take` says."""
        query = "DELETE FROM onym_shared_entries WHERE key = %(key)s RETURNING value, until"
        rows = await self._execute(query, key=shared.check_key(key))
        if not rows:
            return None
        self._taken[shared.get_kind(key)] -= 1
        value, until = rows[0]
        return value if until > self._clock() else None

    async def delete(self, key: str) -> None:
        """Do what `SharedStore.delete` says."""
        await self.take(key)

    async def find(
        self, prefix: str, *, limit: int, after: str | None = None
    ) -> list[tuple[str, shared.StoredValue]]:
        """Do what `SharedStore.find` says."""
        first, last = shared.get_range(prefix, after)
        rows = await self._execute(
            "SELECT key, value, version, until FROM onym_shared_entries "
            "WHERE key > %(first)s AND key < %(last)s AND until > %(now)s ORDER BY key LIMIT %(limit)s",
            first=first, last=last, now=self._clock(), limit=shared.check_limit(limit),
        )  # fmt: skip
        return [(key, shared.StoredValue(*rest)) for key, *rest in rows]

    async def count(self, prefix: str) -> int:
        """Do what `SharedStore.count` says."""
        first, last = shared.get_range(prefix)
        rows = await self._execute(
            "SELECT count(*) FROM onym_shared_entries WHERE key > %(first)s AND key < %(last)s "
            "AND until > %(now)s",
            first=first, last=last, now=self._clock(),
        )  # fmt: skip
        count: int = rows[0][0]
        return count

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        """Do what `SharedStore.mark` says."""
        shared.check_key(key)
        now = self._clock()
        await self._count_rows(now)
        if self._taken[_MARKS] >= self._limits.marks and not await self._has_room_again(_MARKS):
            known = await self._execute(
                "SELECT 1 FROM onym_shared_marks WHERE key = %(key)s AND until > %(now)s", key=key, now=now
            )
            if known:
                return False
            raise shared.make_full_error(f"{self._taken[_MARKS]} marks")
        rows = await self._execute(_MARK, key=key, until=until, now=now, gone=now - shared.GRACE, epoch=epoch)
        if not rows and epoch not in {None, await self.epoch()}:
            raise shared.make_epoch_error()
        self._taken[_MARKS] += bool(rows and rows[0][0])
        return bool(rows)

    async def epoch(self) -> str:
        """Do what `SharedStore.epoch` says."""
        rows = await self._execute("SELECT value FROM onym_shared_facts WHERE name = 'epoch'")
        return str(rows[0][0]) if rows else ""

    async def check(self) -> None:
        """Do what `SharedStore.check` says."""
        began = self._clock()
        rows = await self._execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        shared.require_same_time(_measure_difference(rows[0][0], began, self._clock()))

    async def close(self) -> None:
        """Do what `SharedStore.close` says."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWER_SECONDS)
        await self._database.close()

    async def _put(self, query: str, key: str, value: bytes, until: float) -> bool:
        shared.check_key(key), shared.check_value(value, self._limits)
        now, kind = self._clock(), shared.get_kind(key)
        await self._count_rows(now)
        if not self._has_room(kind) and not await self._has_room_again(kind):
            found = await self.get(key)
            if found is None:
                shared.require_room(kind, self._taken[kind], self._count_values(), self._limits)
        rows = await self._execute(
            query,
            key=key,
            kind=kind,
            value=value,
            version=shared.make_version(),
            until=until,
            now=now,
            gone=now - shared.GRACE,
        )
        self._taken[kind] += bool(rows and rows[0][0])
        return bool(rows)

    def _has_room(self, kind: str) -> bool:
        if kind == _MARKS:
            return self._taken[_MARKS] < self._limits.marks
        return self._taken[kind] < self._limits.kind and self._count_values() < self._limits.entries

    async def _has_room_again(self, kind: str) -> bool:
        """Count the rows again, at most once in a second, and report whether there is room now."""
        await self._count_rows(self._clock(), patience=1.0)
        return self._has_room(kind)

    def _count_values(self) -> int:
        return self._taken.total() - self._taken[_MARKS]

    async def _count_rows(self, now: float, patience: float = _RECOUNT) -> None:
        if abs(now - self._counted) >= patience:
            self._counted = now  # before the query: others do not count meanwhile
            self._taken = Counter(dict(await self._execute(_COUNT, now=now)))

    async def _execute(self, query: str, **values: Any) -> Sequence[Any]:
        # a task of its own: a caller that is cancelled would leave the driver's connection half-open
        task = asyncio.ensure_future(self._execute_statement(query, values))
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        # a server that is stopped keeps its connections, and the driver would wait for it without a limit
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if not task.done():
            raise StoreError(
                f"the database has not answered for {ANSWER_SECONDS:.0f} seconds",
                code="store.unreachable",
                hint="Check that it runs, and its load.",
            )
        return task.result()

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may be gone

    async def _execute_statement(self, query: str, values: dict[str, Any]) -> Sequence[Any]:
        if not self._ready:
            async with self._start:
                if not self._ready:
                    await self._prepare(self._database, "shared", _VERSION, _TABLES)
                    self._ready = True
        try:
            async with self._database.open_reader() as connection:
                return (await connection.exec_driver_sql(query, values)).fetchall()
        except StoreError as error:
            if error.code == f"store.{_MISSING}":
                self._ready = False
            raise


#: what is in front of a value: its version and its end
_HEAD: Final = struct.Struct(">qd")
_ENTRY: Final = "onym:e:"
_MARK_KEY: Final = "onym:m:"
_INDEX: Final = "onym:keys"
_ENDS: Final = "onym:ends"
_EPOCH: Final = "onym:epoch"
#: commands that run at the same time
_CONNECTIONS: Final = 32
#: indices that belong to values which the server has dropped because they had expired
_LUA_PURGE: Final = """
local function purge(before, count)
    local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', before, 'LIMIT', 0, count)
    if #old > 0 then
        redis.call('ZREM', KEYS[1], unpack(old))
        redis.call('ZREM', KEYS[2], unpack(old))
    end
    return #old == count
end
"""
#: KEYS: index, ends, entry. ARGV: key, stored value, now, until, expiry in milliseconds, gone, how, version,
#: first and last key of the kind, most of the kind, most of all
_LUA_PUT: Final = (
    _LUA_PURGE
    + """
local found = redis.call('GET', KEYS[3])
if found and struct.unpack('>d', found, 9) <= tonumber(ARGV[3]) then found = false end
if ARGV[7] == 'new' and found then return {0} end
if ARGV[7] == 'replace' and not (found and string.sub(found, 1, 8) == ARGV[8]) then return {0} end
local more = purge(ARGV[6], 20)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    while true do
        local own = redis.call('ZLEXCOUNT', KEYS[1], '(' .. ARGV[9], '(' .. ARGV[10])
        local all = redis.call('ZCARD', KEYS[1])
        if own < tonumber(ARGV[11]) and all < tonumber(ARGV[12]) then break end
        if not more then return {-1, own, all} end
        more = purge(ARGV[6], 1000)
    end
end
redis.call('SET', KEYS[3], ARGV[2], 'PXAT', ARGV[5])
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
return {1}
"""
)
#: KEYS: index, ends, entry. ARGV: key
_LUA_TAKE: Final = """
local found = redis.call('GET', KEYS[3])
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return found
"""
#: KEYS: index. ARGV: first, last, now, limit, the beginning of an entry's name
_LUA_FIND: Final = """
local out, from = {}, ARGV[1]
while true do
    local keys = redis.call('ZRANGEBYLEX', KEYS[1], '(' .. from, '(' .. ARGV[2], 'LIMIT', 0, 100)
    for _, key in ipairs(keys) do
        local found = redis.call('GET', ARGV[5] .. key)
        if found and struct.unpack('>d', found, 9) > tonumber(ARGV[3]) then
            out[#out + 1] = key
            out[#out + 1] = found
            if #out == 2 * tonumber(ARGV[4]) then return out end
        end
        from = key
    end
    if #keys < 100 then return out end
end
"""
#: KEYS: index, ends. ARGV: first, last, now, prefix, gone
_LUA_COUNT: Final = (
    _LUA_PURGE
    + """
while purge(ARGV[5], 1000) do end
local count = redis.call('ZLEXCOUNT', KEYS[1], '(' .. ARGV[1], '(' .. ARGV[2])
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[3])) do
    if string.sub(key, 1, #ARGV[4]) == ARGV[4] then count = count - 1 end
end
return count
"""
)
#: KEYS: mark, epoch. ARGV: until, now, expiry in milliseconds, the epoch that the caller knows
_LUA_MARK: Final = """
if ARGV[4] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[4] then return -1 end
local known = redis.call('GET', KEYS[1])
if known and tonumber(known) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[3])
return 1
"""


class ValkeyStore:
    """Values in one database of a Valkey or Redis server (version 6.2 or later), which no other program uses.

    A store belongs to the event loop that used it first. Raises StoreError, also with the codes of
    `onym.store.valkey`; `store.eviction` if the server may drop values early.
    """

    def __init__(
        self,
        url: str | Secret,
        *,
        options: ValkeyOptions = shared.DEFAULT_VALKEY,
        limits: shared.StoreLimits = shared.DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._client: Any = open_async_valkey(url, options)
        self._put_script, self._take_script, self._find_script, self._count_script, self._mark_script = (
            self._client.register_script(text)
            for text in (_LUA_PUT, _LUA_TAKE, _LUA_FIND, _LUA_COUNT, _LUA_MARK)
        )
        # the client would open a connection for each command that waits
        self._turn = asyncio.Semaphore(_CONNECTIONS)
        self._checked = False

    async def put_new(self, key: str, value: bytes, until: float) -> bool:
        """Do what `SharedStore.put_new` says."""
        return await self._put("new", key, value, until)

    async def put(self, key: str, value: bytes, until: float) -> None:
        """Do what `SharedStore.put` says."""
        await self._put("put", key, value, until)

    async def replace(self, key: str, value: bytes, until: float, *, version: int) -> bool:
        """Do what `SharedStore.replace` says."""
        return await self._put("replace", key, value, until, version)

    async def get(self, key: str) -> shared.StoredValue | None:
        """Do what `SharedStore.get` says."""
        name = _ENTRY + shared.check_key(key)
        async with self._use():
            found = await self._client.get(name)
        return None if found is None else self._parse_value(found)

    async def take(self, key: str) -> bytes | None:
        """Do what `SharedStore.take` says."""
        names = [_INDEX, _ENDS, _ENTRY + shared.check_key(key)]
        found = await self._run(self._take_script, names, [key])
        value = None if found is None else self._parse_value(found)
        return None if value is None else value.value

    async def delete(self, key: str) -> None:
        """Do what `SharedStore.delete` says."""
        await self.take(key)

    async def find(
        self, prefix: str, *, limit: int, after: str | None = None
    ) -> list[tuple[str, shared.StoredValue]]:
        """Do what `SharedStore.find` says."""
        arguments = [*shared.get_range(prefix, after), repr(self._clock()), shared.check_limit(limit), _ENTRY]
        found = iter(await self._run(self._find_script, [_INDEX], arguments))
        pairs = ((key.decode(), self._parse_value(value)) for key, value in zip(found, found, strict=True))
        return [(key, value) for key, value in pairs if value is not None]

    async def count(self, prefix: str) -> int:
        """Do what `SharedStore.count` says."""
        now = self._clock()
        arguments = [*shared.get_range(prefix), repr(now), prefix, repr(now - shared.GRACE)]
        count: int = await self._run(self._count_script, [_INDEX, _ENDS], arguments)
        return count

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        """Do what `SharedStore.mark` says."""
        names = [_MARK_KEY + shared.check_key(key), _EPOCH]
        arguments = [repr(until), repr(self._clock()), _get_expiry(until), epoch or ""]
        marked = await self._run(self._mark_script, names, arguments)
        if marked < 0:
            raise shared.make_epoch_error()
        return bool(marked)

    async def epoch(self) -> str:
        """Do what `SharedStore.epoch` says."""
        async with self._use():
            await self._client.set(_EPOCH, secrets.token_hex(16), nx=True)
            found: bytes = await self._client.get(_EPOCH)
        return found.decode()

    async def check(self) -> None:
        """Do what `SharedStore.check` says."""
        self._checked = False
        async with self._use():
            began = self._clock()
            seconds, microseconds = await self._client.time()
            shared.require_same_time(_measure_difference(seconds + microseconds / 1e6, began, self._clock()))

    async def close(self) -> None:
        """Do what `SharedStore.close` says."""
        with translate_errors():
            await self._client.aclose()

    async def _put(self, how: str, key: str, value: bytes, until: float, version: int = 0) -> bool:
        shared.check_key(key), shared.check_value(value, self._limits)
        now, kind = self._clock(), shared.get_kind(key)
        limits = self._limits
        stored = _HEAD.pack(shared.make_version(), until) + value
        found = await self._run(
            self._put_script,
            [_INDEX, _ENDS, _ENTRY + key],
            [
                key, stored, repr(now), repr(until), _get_expiry(until), repr(now - shared.GRACE), how,
                _HEAD.pack(version, 0)[:8], *_get_kind_range(kind), limits.kind, limits.entries,
            ],
        )  # fmt: skip
        if found[0] < 0:
            shared.require_room(kind, found[1], found[2], limits)
        return bool(found[0])

    def _parse_value(self, stored: bytes) -> shared.StoredValue | None:
        version, until = _HEAD.unpack_from(stored)
        return shared.StoredValue(stored[_HEAD.size :], version, until) if until > self._clock() else None

    async def _run(self, script: Any, names: list[str], arguments: list[Any]) -> Any:
        async with self._use():
            return await script(names, arguments)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[None]:
        async with self._turn:
            with translate_errors():
                if not self._checked:
                    _require_no_eviction(await self._client.info("memory"))
                    self._checked = True
                yield


def _require_no_eviction(info: dict[str, Any]) -> None:
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        raise StoreError(
            f"the Valkey server drops values when its memory is full (maxmemory-policy {policy})",
            code="store.eviction",
            hint="Run it with maxmemory-policy noeviction, apart from servers that are caches.",
        )


def _get_kind_range(kind: str) -> tuple[str, str]:
    """Return the keys between which all keys of a kind lie, but for the key that is only the kind."""
    return shared.get_range(kind + "/")


def _get_expiry(until: float) -> int:
    """Return the time, in milliseconds, at which the server may drop a value."""
    return max(1, int((min(until, shared.FOREVER) + shared.GRACE) * 1000))


def _measure_difference(theirs: float, began: float, ended: float) -> float:
    """Return how far a clock is from this process's, which was read before and after: 0 if in between."""
    return min(theirs - began, 0.0) or max(theirs - ended, 0.0)
