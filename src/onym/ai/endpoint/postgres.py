"""Idempotency keys and long tasks in PostgreSQL, for the machines of a fleet (AIIP/HTTPS v1, 3.11 and 3.12).

The statements are those of the stores in SQLite. Here are the tables and what differs: transactions go
through a `PostgresWriter`, and the lock that shows that an owner is alive is one of the database. It ends
with the owner's process at once, and after 15 seconds if the machine is lost.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

from onym.ai.endpoint import task_store
from onym.ai.endpoint.idempotency import STORED_BYTES, STORED_BYTES_TOTAL, KeyScope, SQLiteIdempotencyStore
from onym.ai.endpoint.task_store import NewTask, SQLiteTaskStore, TaskStore
from onym.errors import AIIPError, ConfigError, StoreError
from onym.store.postgres import UNFINISHED, PostgresTransaction, PostgresWriter, TableGroup, is_owner_alive
from onym.store.shared import require_same_time
from onym.uri.secret import Secret

T = TypeVar("T")

_SCHEMA: Final = "onym_endpoint"
_TABLES: Final = (
    """CREATE TABLE keys (
    client TEXT COLLATE "C", principal TEXT COLLATE "C", target TEXT COLLATE "C", key TEXT COLLATE "C",
    fingerprint TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, owner TEXT NOT NULL, answer BYTEA,
    holder TEXT COLLATE "C" NOT NULL, expires DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (client, principal, target, key))""",
    "CREATE INDEX keys_expires ON keys (expires)",
    "CREATE INDEX keys_holder ON keys (holder, expires)",
    "CREATE INDEX keys_running ON keys (owner) WHERE answer IS NULL",
    "CREATE TABLE spent (txn TEXT PRIMARY KEY, expires DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX spent_expires ON spent (expires)",
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "INSERT INTO about VALUES ('identity', md5(random()::text || clock_timestamp()::text))",
    """CREATE TABLE quota (holder TEXT COLLATE "C" PRIMARY KEY, keys BIGINT NOT NULL DEFAULT 0,
    size BIGINT NOT NULL DEFAULT 0) WITH (fillfactor = 50)""",
    "INSERT INTO quota (holder) VALUES (''), ('anonymous')",
    """CREATE TABLE tasks (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL,
    key TEXT NOT NULL, holder TEXT COLLATE "C" NOT NULL, caller TEXT NOT NULL,
    request TEXT NOT NULL, call BYTEA NOT NULL, owner TEXT NOT NULL,
    state TEXT NOT NULL, runs BIGINT NOT NULL DEFAULT 1, version BIGINT NOT NULL DEFAULT 1,
    seq BIGINT NOT NULL DEFAULT 0, canceling INTEGER NOT NULL DEFAULT 0, created DOUBLE PRECISION NOT NULL,
    updated DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, size BIGINT NOT NULL, progress BYTEA,
    inputs BYTEA, input BYTEA, checkpoint BYTEA, error BYTEA, answer BYTEA)""",
    "CREATE INDEX tasks_holder ON tasks (holder, ended, size)",
    "CREATE INDEX tasks_key ON tasks (client, principal, target, key)",
    "CREATE INDEX tasks_running ON tasks (owner) WHERE ended IS NULL",
    "CREATE INDEX tasks_ended ON tasks (ended) WHERE ended IS NOT NULL",
    """CREATE TABLE task_events (task TEXT, seq BIGINT, event TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (task, seq))""",
    "CREATE TABLE task_owners (id TEXT PRIMARY KEY, seen DOUBLE PRECISION NOT NULL)",
    # counts the changes of tasks, also those that are rolled back
    "CREATE SEQUENCE task_changes",
)
#: the triggers of the SQLite file
_FUNCTIONS: Final = (
    """CREATE FUNCTION count_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO onym_endpoint.quota (holder) VALUES (new.holder) ON CONFLICT DO NOTHING;
        UPDATE onym_endpoint.quota SET keys = keys + 1, size = size + coalesce(length(new.answer), 0)
            WHERE holder IN (new.holder, '', CASE WHEN starts_with(new.holder, 'address ')
            THEN 'anonymous' END);
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE onym_endpoint.quota SET keys = keys - 1, size = size - coalesce(length(old.answer), 0)
            WHERE holder IN (old.holder, '', CASE WHEN starts_with(old.holder, 'address ')
            THEN 'anonymous' END);
        DELETE FROM onym_endpoint.quota WHERE holder = old.holder AND keys <= 0 AND holder <> ''
            AND holder <> 'anonymous';
    ELSIF old.answer IS NULL AND new.answer IS NOT NULL THEN
        UPDATE onym_endpoint.quota SET size = size + length(new.answer)
            WHERE holder IN (new.holder, '', CASE WHEN starts_with(new.holder, 'address ')
            THEN 'anonymous' END);
    ELSIF old.holder <> '' AND new.holder = '' THEN
        UPDATE onym_endpoint.quota SET keys = keys - 1
            WHERE holder IN (old.holder, CASE WHEN starts_with(old.holder, 'address ')
            THEN 'anonymous' END);
        DELETE FROM onym_endpoint.quota WHERE holder = old.holder AND keys <= 0;
    END IF; RETURN NULL; END $$""",
    """CREATE TRIGGER key_counted AFTER INSERT OR DELETE OR UPDATE OF answer, holder ON keys
    FOR EACH ROW EXECUTE FUNCTION count_key()""",
    """CREATE FUNCTION keep_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT 1 FROM onym_endpoint.tasks WHERE client = old.client AND principal = old.principal
        AND target = old.target AND key = old.key) THEN RETURN NULL; END IF; RETURN old; END $$""",
    "CREATE TRIGGER keys_of_tasks BEFORE DELETE ON keys FOR EACH ROW EXECUTE FUNCTION keep_key()",
    """CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('onym_endpoint.task_changes'); RETURN NULL; END $$""",
    """CREATE TRIGGER task_changed AFTER INSERT OR DELETE OR UPDATE ON tasks
    FOR EACH STATEMENT EXECUTE FUNCTION count_change()""",
)
_GROUP: Final = TableGroup(
    name="endpoint", schema=_SCHEMA, version=1, lock_key=0x4F6E4B01, statements=(*_TABLES, *_FUNCTIONS)
)
_LOSE_KEYS: Final = "UPDATE keys SET owner = '' WHERE owner = ? AND answer IS NULL"


#: signs of life that an owner without its lock must have missed, since it may only have lost its session
_LOST_BEATS: Final = 3
#: failed attempts that are remembered, those of one transaction, and seconds between two transactions
_MOST_UNKNOWN: Final = 100_000
_MOST_SETTLED: Final = 256
_SETTLE_SECONDS: Final = 1.0
_DELETE_ATTEMPT: Final = """DELETE FROM keys WHERE client = ? AND principal = ? AND target = ? AND key = ?
AND owner = ? AND created = ? AND answer IS NULL"""
_FREE_TASK: Final = "UPDATE tasks SET owner = '' WHERE id = ? AND owner = ? AND state = 'submitted'"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A request that failed to begin: its key, its time, and the approval and the task that came with it."""

    scope: KeyScope
    created: float
    spend: str | None
    task: str | None


def _settle_attempts(owner: str, attempts: Iterable[_Attempt], transaction: PostgresTransaction) -> None:
    """Free the keys of requests that did not run.

    Another machine may have shown a task to its caller already, so tasks stay: any machine may run them.
    """
    for attempt in attempts:
        row = (*attempt.scope.primary_key, owner, attempt.created)
        if attempt.task is not None:
            transaction.execute(_FREE_TASK, (attempt.task, owner))
        elif transaction.execute(_DELETE_ATTEMPT, row).rowcount == 1 and attempt.spend is not None:
            transaction.execute("DELETE FROM spent WHERE txn = ?", (attempt.spend,))


class PostgresIdempotencyStore(SQLiteIdempotencyStore):
    """The keys of the machines that serve one authority, in a PostgreSQL database.

    `url` is `postgresql://USER:PASSWORD@HOST/DATABASE`; tables are made in the schema `onym_endpoint`.
    `clock` is that of the endpoint; while it differs from the database's by more than five seconds, no
    request begins (503). The other arguments are those of `SQLiteIdempotencyStore`.

    Raises ConfigError `config.bad-store` if the database cannot be used, a later version of Onym has changed
    its tables, a pooler in transaction mode is in between, or the clocks differ.

    An owner that was taken for dead has lost its keys: their rows have no owner any more, so that an answer
    which comes later changes nothing, and every machine says that the call was interrupted.
    """

    _writer: Any

    def __init__(
        self,
        url: str | Secret,
        *,
        most: int,
        size: int = STORED_BYTES,
        total: int = STORED_BYTES_TOTAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._set_limits(most=most, size=size, total=total)
        #: the attempts of which nobody knows whether they were committed, and who finds out
        self._unknown: deque[_Attempt] = deque(maxlen=_MOST_UNKNOWN)
        self._settler: asyncio.Task[None] | None = None
        self._last = 0.0
        try:
            self._writer = PostgresWriter(url, _GROUP, name="onym-idempotency", clock=clock)
            self.owner = self._writer.owner
            try:
                self.identity = self._writer.call(_read_identity)
            except BaseException:
                self._writer.close()
                raise
        except StoreError as error:
            raise ConfigError(
                f"the idempotency store cannot be opened: {error.message}",
                code="config.bad-store",
                hint=error.hint,
            ) from None

    async def begin(
        self,
        scope: KeyScope,
        fingerprint: str,
        now: float,
        *,
        spend: str | None = None,
        task: NewTask | None = None,
    ) -> bytes | None:
        """Record that the request begins and return None, or return its answer (see the protocol)."""
        scope = _make_storable(scope)
        # no two attempts of a process have the same time, by which `_settle_attempts` recognises them
        self._last = now = max(now, math.nextafter(self._last, math.inf))
        try:
            return await super().begin(scope, fingerprint, now, spend=spend, task=task)
        except AIIPError as error:
            if getattr(error.__cause__, "code", None) == UNFINISHED:
                self._unknown.append(_Attempt(scope, now, spend, None if task is None else task.id))
                if self._settler is None or self._settler.done():
                    self._settler = asyncio.ensure_future(self._settle_unknown())
            raise

    async def find(self, scope: KeyScope, fingerprint: str) -> bytes | None:
        """Return the answer of a request that has begun before, None for an unknown key."""
        return await super().find(_make_storable(scope), fingerprint)

    async def complete(self, scope: KeyScope, answer: bytes) -> None:
        """Store the answer of a request that `begin` has begun. Raises AIIPError `aiip.unavailable`."""
        await super().complete(_make_storable(scope), answer)

    async def interrupt(self, scope: KeyScope) -> None:
        """Record that the request ended without an answer. Raises AIIPError `aiip.unavailable`."""
        await super().interrupt(_make_storable(scope))

    def abandon(self, scope: KeyScope) -> None:
        """Interrupt without waiting, for a call that is being cancelled."""
        with suppress(StoreError):  # closed
            super().abandon(_make_storable(scope))

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of the work on the database, once it is committed with the others that wait."""
        try:
            return await super().transact(work)
        except StoreError as error:
            raise _make_unavailable_error(error) from error

    def open_tasks(self, clock: Callable[[], float]) -> TaskStore:
        """Open the store of long tasks that is in the same database. Raises ConfigError."""
        try:
            return PostgresTaskStore(self._writer, clock=clock)
        except AIIPError as error:
            raise ConfigError(error.message, code="config.bad-store", hint=error.hint) from None

    def close(self) -> None:
        """End the session. Requests that still run count as interrupted from now on."""
        self._stop()
        if self._settler is not None:
            self._settler.cancel()
        self._writer.close()

    async def _settle_unknown(self) -> None:
        """Take back what failed attempts may have left, as soon as the database is there again."""
        while self._unknown:
            attempts = [self._unknown.popleft() for _ in range(min(len(self._unknown), _MOST_SETTLED))]
            try:
                await self._writer.run(partial(_settle_attempts, self.owner, attempts))
            except StoreError as error:
                if error.code == "store.closed":
                    return
                self._unknown.extend(attempts)
                await asyncio.sleep(_SETTLE_SECONDS)

    def _begin(self, *args: Any) -> bytes | AIIPError | None:
        _require_same_time(args[-1])
        return super()._begin(*args)

    def _is_owner_alive(self, base: Any, owner: str) -> bool:
        return owner == self.owner or _is_owner_alive(base, owner)

    def _sweep(self, now: float) -> None:
        def sweep(base: Any) -> None:
            _require_same_time(base)
            self._sweep_keys(base, now)

        with suppress(StoreError):  # closed
            self._writer.post(sweep)


class PostgresTaskStore(SQLiteTaskStore):
    """The tasks in the database of a `PostgresIdempotencyStore`, through its writer."""

    _changes: tuple[int, bool] | None

    def __init__(self, writer: PostgresWriter, *, clock: Callable[[], float]) -> None:
        """Begin to show that this process is alive. Raises AIIPError `aiip.unavailable`."""
        self._writer = writer
        self._transaction: PostgresTransaction | None = None
        self.owner = writer.owner
        self._clock = clock
        self._closed = threading.Event()
        self._changes = None
        self._is_owner_alive = self._is_other_alive
        self._start_beating()

    async def has_foreign_changes(self) -> bool:
        """Report whether a process, which may be this one, has written since the last call."""

        def count(base: Any) -> tuple[int, bool]:
            # may run again, so it keeps nothing; the first change leaves `last_value` as it is
            changes: tuple[int, bool] = base.execute(
                "SELECT last_value, is_called FROM task_changes"
            ).fetchone()
            return changes

        before, self._changes = self._changes, await self._run(count)
        return before != self._changes

    def close(self) -> None:
        """End the thread. The writer belongs to the keys."""
        self._closed.set()
        self._heart.join()

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._closed.is_set():
            raise AIIPError("the endpoint was closed", code="aiip.unavailable")
        try:
            return await self._writer.run(partial(self._run_in, work, args))
        except StoreError as error:
            raise _make_unavailable_error(error) from error

    def _run_in(self, work: Callable[..., T], args: tuple[Any, ...], transaction: PostgresTransaction) -> T:
        _require_same_time(transaction)
        self._transaction = transaction
        try:
            return work(transaction, *args)
        finally:
            self._transaction = None

    def _has_surely_ended(self, silent: float) -> bool:
        # a lock may also end with the session: of one machine, or of all if the server was away
        return min(silent, self._writer.session_age) >= _LOST_BEATS * task_store.BEAT_SECONDS

    def _begin(self, base: Any) -> AbstractContextManager[object]:
        return nullcontext()  # the writer has begun the transaction

    def _beat(self, at: float) -> None:
        try:
            self._writer.call(partial(self._write_beat, at))
        except StoreError as error:
            raise _make_unavailable_error(error) from error

    def _write_beat(self, at: float, base: Any) -> None:
        # the database's time: a wrong clock of this machine does not make it look dead
        super()._write_beat(base.time, base)

    def _is_other_alive(self, owner: str) -> bool:
        # called by a work, in the writer's thread
        assert self._transaction is not None  # noqa: S101
        return _is_owner_alive(self._transaction, owner)


def _is_owner_alive(transaction: PostgresTransaction, owner: str) -> bool:
    """Report whether the owner lives. One that does not has lost its keys from now on."""
    if owner and is_owner_alive(transaction, owner):
        return True
    transaction.execute(_LOSE_KEYS, (owner,))
    return False


def _require_same_time(transaction: PostgresTransaction) -> None:
    """Raise AIIPError `aiip.unavailable` unless this machine has the time of the database.

    A machine that is ahead would delete valid keys, and take the tasks of others as interrupted.
    """
    try:
        require_same_time(transaction.clock_difference)
    except StoreError as error:
        raise _make_unavailable_error(error) from error


def _read_identity(transaction: PostgresTransaction) -> str:
    require_same_time(transaction.clock_difference)
    row = transaction.execute("SELECT value FROM about WHERE name = 'identity'").fetchone()
    return "" if row is None else str(row[0])


def _make_storable(scope: KeyScope) -> KeyScope:
    """Return the scope with the hash of each text that PostgreSQL does not store: NUL and halves of pairs."""
    parts = (scope.client, scope.principal, scope.holder)
    if all(part.isascii() and "\0" not in part for part in parts):
        return scope
    client, principal, holder = (_hash_unstorable(part) for part in parts)
    return replace(scope, client=client, principal=principal, holder=holder)


def _hash_unstorable(text: str) -> str:
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _make_unavailable_error(error: StoreError) -> AIIPError:
    return AIIPError(
        error.message,
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.11",
        retryable=True,
        hint=error.hint,
    )
