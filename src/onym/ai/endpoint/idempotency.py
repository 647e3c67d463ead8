"""The store of idempotency keys: a request with a key runs at most once (AIIP/HTTPS v1, 3.11).

The header field is that of draft-ietf-httpapi-idempotency-key-header-07 (expired). A row is written before
the side effect and completed with the answer. "Once" is a promise of one store: all processes that serve an
authority must use the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, TypeVar

from onym.ai.endpoint.task_store import SOON, NewTask, SQLiteTaskStore, TaskStore, insert_task
from onym.errors import AIIPError, ConfigError
from onym.store import sqlite

T = TypeVar("T")

#: the first word of a client without an access token
ANONYMOUS_PREFIX: Final = "anonymous "
#: seconds for which an answer is stored
RETENTION_SECONDS: Final = 24 * 3600.0
INTERRUPTED_HINT: Final = "The request was interrupted. Find out whether it took effect, then use a new key."
_CLAUSE: Final = "AIIP/HTTPS v1 3.11"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """An idempotency key with the client, the principal and the target (without query) that it belongs to.

    A client that begins with `ANONYMOUS_PREFIX` has shown no token. `holder` is the caller that the key
    counts for, and the only one that gets the stored answer: the client named in a token, or a network
    address ("address 192.0.2.1").
    """

    client: str
    principal: str
    target: str
    key: str = field(repr=False)
    holder: str

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller has shown no token."""
        return self.client.startswith(ANONYMOUS_PREFIX)

    @property
    def primary_key(self) -> tuple[str, str, str, str]:
        """The primary key of the row."""
        return self.client, self.principal, self.target, self.key


class IdempotencyStore(Protocol):
    """The keys of one endpoint. Times are seconds since the epoch."""

    #: names the store itself; the same for all processes that share it
    identity: str
    #: whether `close` was called
    closed: bool

    async def begin(
        self,
        scope: KeyScope,
        fingerprint: str,
        now: float,
        *,
        spend: str | None = None,
        task: NewTask | None = None,
    ) -> bytes | None:
        """Record that the request begins, and return None: the caller must run it now.

        If the request has ended before, return its answer. `spend` is the `txn` of an approval and `task` the
        task that runs the request; both are written in one transaction with the key. The answer of a task's
        key is the task's marker from the beginning.

        Raises AIIPError: `aiip.idempotency-mismatch` if the key belongs to another request or another
        anonymous caller, `aiip.idempotency-in-progress` while the request runs or if it was interrupted,
        `aiip.approval-mismatch` if the approval was spent for another key, `aiip.too-many-requests` if the
        caller has reached its quota, `aiip.unavailable` if the store is full or out of reach. Then nothing is
        written.
        """
        ...

    async def find(self, scope: KeyScope, fingerprint: str) -> bytes | None:
        """Return the answer of a request that has begun before, None for an unknown key.

        Raises AIIPError as `begin` does for a key that is known.
        """
        ...

    async def complete(self, scope: KeyScope, answer: bytes) -> None:
        """Store the answer of a request that `begin` has begun. Raises AIIPError `aiip.unavailable`."""
        ...

    async def interrupt(self, scope: KeyScope) -> None:
        """Record that the request ended without an answer, so that it is unknown how far it came.

        This process remembers it even if the store cannot be written. Raises AIIPError `aiip.unavailable`.
        """
        ...

    def abandon(self, scope: KeyScope) -> None:
        """Interrupt without waiting, for a call that is being cancelled."""
        ...

    def open_tasks(self, clock: Callable[[], float]) -> TaskStore:
        """Open the store of long tasks that is in the same database. Raises ConfigError."""
        ...

    def close(self) -> None:
        """Close the store. Requests that still run count as interrupted from now on."""
        ...


#: rows of `quota` that count several holders: all, and those without a token
_ALL: Final = ""
_ALL_ANONYMOUS: Final = "anonymous"
_KEYS: Final = """
CREATE TABLE IF NOT EXISTS owners (id TEXT PRIMARY KEY, gone INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE IF NOT EXISTS keys (
    client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, created REAL NOT NULL, owner TEXT NOT NULL, answer BLOB,
    holder TEXT NOT NULL DEFAULT 'address ', expires REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (client, principal, target, key)
) STRICT, WITHOUT ROWID;
"""
#: the number of keys and the bytes of answers by holder, updated with the keys: to count them would read all
_COUNTING: Final = """
CREATE INDEX IF NOT EXISTS keys_expires ON keys (expires);
CREATE INDEX IF NOT EXISTS keys_holder ON keys (holder, expires);
CREATE TABLE IF NOT EXISTS spent (txn TEXT PRIMARY KEY, expires REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS spent_expires ON spent (expires);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO about VALUES ('identity', lower(hex(randomblob(16))));
CREATE TABLE IF NOT EXISTS quota (
    holder TEXT PRIMARY KEY, keys INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO quota (holder) VALUES (''), ('anonymous');
CREATE TRIGGER IF NOT EXISTS key_added AFTER INSERT ON keys BEGIN
    INSERT OR IGNORE INTO quota (holder) VALUES (new.holder);
    UPDATE quota SET keys = keys + 1, size = size + coalesce(length(new.answer), 0)
        WHERE holder IN (new.holder, '', CASE WHEN new.holder GLOB 'address *' THEN 'anonymous' END);
END;
CREATE TRIGGER IF NOT EXISTS answer_added AFTER UPDATE OF answer ON keys
WHEN old.answer IS NULL AND new.answer IS NOT NULL BEGIN
    UPDATE quota SET size = size + length(new.answer)
        WHERE holder IN (new.holder, '', CASE WHEN new.holder GLOB 'address *' THEN 'anonymous' END);
END;
CREATE TRIGGER IF NOT EXISTS key_released AFTER UPDATE OF holder ON keys
WHEN old.holder <> '' AND new.holder = '' BEGIN
    UPDATE quota SET keys = keys - 1
        WHERE holder IN (old.holder, CASE WHEN old.holder GLOB 'address *' THEN 'anonymous' END);
    DELETE FROM quota WHERE holder = old.holder AND keys <= 0;
END;
CREATE TRIGGER IF NOT EXISTS key_removed AFTER DELETE ON keys BEGIN
    UPDATE quota SET keys = keys - 1, size = size - coalesce(length(old.answer), 0)
        WHERE holder IN (old.holder, '', CASE WHEN old.holder GLOB 'address *' THEN 'anonymous' END);
    DELETE FROM quota WHERE holder = old.holder AND keys <= 0 AND holder <> '';
END;
"""
#: version 1 had no holders: a key without a token has an address that no caller has
_FROM_VERSION_1: Final = f"""
DROP TRIGGER kept_more;
DROP TRIGGER kept_less;
DROP TABLE kept;
DROP INDEX keys_client;
DROP INDEX keys_created;
ALTER TABLE keys ADD COLUMN holder TEXT NOT NULL DEFAULT 'address ';
ALTER TABLE keys ADD COLUMN expires REAL NOT NULL DEFAULT 0;
UPDATE keys SET expires = created + {RETENTION_SECONDS};
UPDATE keys SET holder = client WHERE client NOT GLOB '{ANONYMOUS_PREFIX}*';
{_COUNTING}
INSERT OR IGNORE INTO quota (holder) SELECT DISTINCT holder FROM keys;
UPDATE quota SET (keys, size) = (SELECT count(*), coalesce(sum(length(answer)), 0) FROM keys
    WHERE quota.holder IN (keys.holder, '', CASE WHEN keys.holder GLOB 'address *' THEN 'anonymous' END));
"""  # noqa: S608 - constants
_FORMAT: Final = sqlite.FileFormat(
    application_id=0x4F6E4B01, version=2, schema=_KEYS + _COUNTING, upgrades={1: _FROM_VERSION_1}
)
_OF_KEY: Final = "client = ? AND principal = ? AND target = ? AND key = ?"
#: the columns of `_SELECT_KEY`
_KeyRow = tuple[str, str, str, bytes | None]
#: with `KeyScope.primary_key`, and the owner for a key that has no answer yet
_SELECT_KEY: Final = f"SELECT fingerprint, holder, owner, answer FROM keys WHERE {_OF_KEY}"  # noqa: S608
_RUNNING: Final = f"{_OF_KEY} AND owner = ? AND answer IS NULL"
_SET_ANSWER: Final = f"UPDATE keys SET answer = ? WHERE {_RUNNING}"  # noqa: S608 - a constant
_CLEAR_OWNER: Final = f"UPDATE keys SET owner = '' WHERE {_RUNNING}"  # noqa: S608 - a constant
#: inserts nothing if the key exists or a quota is used up
_INSERT_KEY: Final = """
INSERT INTO keys (client, principal, target, key, fingerprint, created, owner, holder, expires, answer)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE
    NOT EXISTS (SELECT 1 FROM quota WHERE holder = ? AND (keys >= ? OR size >= ?)) AND
    NOT EXISTS (SELECT 1 FROM quota WHERE holder = ? AND (keys >= ? OR size >= ?))
ON CONFLICT DO NOTHING
"""
_SELECT_EXPIRED: Final = (
    "SELECT client, principal, target, key FROM keys WHERE expires < ? ORDER BY expires LIMIT ?"
)
_DELETE_KEY: Final = f"DELETE FROM keys WHERE {_OF_KEY}"  # noqa: S608 - a constant
_POSTPONE_KEY: Final = f"UPDATE keys SET expires = ? WHERE {_OF_KEY}"  # noqa: S608 - a constant
#: unanswered keys stay twice as long, so that an operator can examine them, but no longer count
_RELEASE_INTERRUPTED: Final = """
UPDATE keys SET holder = '', expires = expires + ? WHERE expires < ? AND answer IS NULL AND holder <> ''
"""

#: bytes of answers that are stored for one caller, and for all callers
STORED_BYTES: Final = 64 * 1024 * 1024
STORED_BYTES_TOTAL: Final = 1024 * 1024 * 1024
#: callers without a token may use so many times the keys of one caller, and this part of all bytes
_ANONYMOUS_KEYS: Final = 100
_ANONYMOUS_PART: Final = 0.5
#: pages of the file that a sweep returns to the file system, and keys that it deletes
_PAGES: Final = 2048
_CHUNK: Final = 5000
#: seconds between two sweeps
_SWEEP: Final = 600.0
#: seconds between two attempts to write what could not be written
_RETRY_SECONDS: Final = 1.0
#: seconds to wait for a process that only looks at the note of a store, and between two attempts
_CLAIM_SECONDS: Final = 1.0
_CLAIM_PAUSE: Final = 0.02
_OPTIONS: Final = sqlite.SQLiteOptions(
    timeout=10.0,
    # a key must survive a power cut, as its side effect does
    pragmas={"auto_vacuum": "INCREMENTAL", "synchronous": "FULL"},
)


class SQLiteIdempotencyStore:
    """The keys of one endpoint in a SQLite file.

    With `path=None` the store is in memory, for an endpoint whose resources only read. A caller may use
    `most` keys in 24 hours. If its stored answers have `size` bytes, or those of all callers `total` bytes,
    new keys are rejected; answers of running requests are stored all the same. Callers without a token may
    together use 100 times `most` keys and half of `total`, so that they cannot keep out the others.

    Requests that begin or end at the same time are committed together, with one write to the disk.

    `IdempotencyStore` is the interface. `SQLiteIdempotencyStore` keeps the keys in a file that the processes
    of one machine may share. Every process locks a file of its own until it ends; a row without an answer
    whose process is gone was interrupted.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        most: int,
        size: int = STORED_BYTES,
        total: int = STORED_BYTES_TOTAL,
    ) -> None:
        """Open the file, creating it if it is missing. Raises ConfigError `config.bad-store`."""
        self._set_limits(most=most, size=size, total=total)
        self._path = None if path is None else Path(path)
        self.owner = secrets.token_hex(16)
        self._held: sqlite3.Connection | None = None
        try:
            base = self._open_database()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"the idempotency store {path} cannot be opened: {sqlite.describe_error(error)}",
                code="config.bad-store",
                hint="Name a new file in a folder that you can write to.",
            ) from None
        self._writer = sqlite.GroupWriter(base, name="onym-idempotency")

    def _set_limits(self, *, most: int, size: int, total: int) -> None:
        self._most = most
        self._size = size
        self._total = total
        self._swept = 0.0
        #: interrupted requests that other processes do not know of yet, and what tells them
        self._lost: set[KeyScope] = set()
        self._telling: asyncio.Task[None] | None = None
        self.closed = False

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
        if abs(now - self._swept) >= _SWEEP:
            self._swept = now
            self._sweep(now)
            if self._lost:
                self._retry_lost()
        found = await self.transact(partial(self._begin, scope, fingerprint, now, spend, task))
        if isinstance(found, AIIPError):
            raise found
        return found

    async def find(self, scope: KeyScope, fingerprint: str) -> bytes | None:
        """Return the answer of a request that has begun before, None for an unknown key."""

        def find(base: sqlite3.Connection) -> bytes | AIIPError | None:
            row = base.execute(_SELECT_KEY, scope.primary_key).fetchone()
            return None if row is None else self._find_outcome(base, scope, fingerprint, row)

        found = await self.transact(find)
        if isinstance(found, AIIPError):
            raise found
        return found

    async def complete(self, scope: KeyScope, answer: bytes) -> None:
        """Store the answer of a request that `begin` has begun. Raises AIIPError `aiip.unavailable`."""
        row = (answer, *scope.primary_key, self.owner)
        await self.transact(lambda base: base.execute(_SET_ANSWER, row).rowcount)

    async def interrupt(self, scope: KeyScope) -> None:
        """Record that the request ended without an answer. Raises AIIPError `aiip.unavailable`."""
        self._lost.add(scope)
        try:
            await self._write_lost()
        except AIIPError:
            self._retry_lost()
            raise

    def abandon(self, scope: KeyScope) -> None:
        """Interrupt without waiting, for a call that is being cancelled."""
        self._lost.add(scope)
        with contextlib.suppress(sqlite3.Error):  # closed
            self._writer.post(partial(self._clear_owner, scope))

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of the work on the file, once it is committed with the others that wait.

        Raises the work's exception, and AIIPError `aiip.unavailable` if the file cannot be written.
        """
        if self.closed:
            raise AIIPError("the endpoint was closed", code="aiip.unavailable")
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            raise _make_unavailable_error(error) from error

    def close(self) -> None:
        """Close the file. Requests that still run count as interrupted from now on."""
        self._stop()
        self._writer.close()
        if self._held is not None:
            self._held.close()
            _remove_lock_file(self._get_lock_path(self.owner))
            self._held = None

    def _stop(self) -> None:
        self.closed = True
        if self._telling is not None:
            self._telling.cancel()

    def _open_database(self) -> sqlite3.Connection:
        base = sqlite.open_sqlite(self._path, _FORMAT, _OPTIONS)
        try:
            if self._path is not None:
                # the locked file shows other processes that this one is alive
                file = self._get_lock_path(self.owner)
                sqlite.create_private_file(file)
                self._held = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
                # an app that runs without a lifespan is never closed
                sqlite.close_at_end(self, self._held)
                self._held.execute("BEGIN EXCLUSIVE")
            base.execute("INSERT INTO owners (id) VALUES (?)", (self.owner,))
            (self.identity,) = base.execute("SELECT value FROM about WHERE name = 'identity'").fetchone()
        except BaseException:
            base.close()
            raise
        return base

    def _begin(
        self,
        scope: KeyScope,
        fingerprint: str,
        now: float,
        spend: str | None,
        task: NewTask | None,
        base: sqlite3.Connection,
    ) -> bytes | AIIPError | None:
        """The transaction of `begin`. A refusal is returned, because raising it would undo deletions."""
        if not self._insert_key(base, scope, fingerprint, now, task):
            row = base.execute(_SELECT_KEY, scope.primary_key).fetchone()
            if row is not None:
                return self._find_outcome(base, scope, fingerprint, row)
            self._delete_expired(base, now)
            if not self._insert_key(base, scope, fingerprint, now, task):
                return self._make_quota_error(base, scope, now)
        if spend is not None:
            _spend_approval(base, scope, spend, now)
        if task is not None:
            row = {"request": fingerprint, "owner": self.owner}
            insert_task(base, task, scope.primary_key, holder=scope.holder, at=now, **row)
        self._lost.discard(scope)
        return None

    def _insert_key(
        self, base: sqlite3.Connection, scope: KeyScope, fingerprint: str, now: float, task: NewTask | None
    ) -> bool:
        expires, answer = now + RETENTION_SECONDS, None if task is None else task.marker
        row = (*scope.primary_key, fingerprint, now, self.owner, scope.holder, expires, answer)
        own = (scope.holder, self._most, self._size)
        return base.execute(_INSERT_KEY, (*row, *own, *self._get_common_quota(scope))).rowcount == 1

    def _get_common_quota(self, scope: KeyScope) -> tuple[str, int, float]:
        """The row of `quota` that several callers share, and their keys and bytes."""
        if scope.is_anonymous:
            return _ALL_ANONYMOUS, self._most * _ANONYMOUS_KEYS, self._total * _ANONYMOUS_PART
        return _ALL, 2**62, self._total  # the number of known clients is limited elsewhere

    def _find_outcome(
        self, base: sqlite3.Connection, scope: KeyScope, fingerprint: str, row: _KeyRow
    ) -> bytes | AIIPError:
        before, holder, owner, answer = row
        if before != fingerprint:
            message = "the idempotency key was used for another request"
            hint = "Use a new key for a new request."
            return _make_error(scope, "idempotency-mismatch", message, hint, retryable=False)
        if holder not in ("", scope.holder):
            # the answer is not for somebody who has learned the key and the request
            message = "the idempotency key was used by another caller without an access token"
            hint = "Retry from the network of the first request, or use a new key and an access token."
            return _make_error(scope, "idempotency-mismatch", message, hint, retryable=False)
        if answer is not None:
            return answer
        lost = owner == self.owner and scope in self._lost
        if not lost and self._is_owner_alive(base, owner):
            message = "the first request with this key is still running"
            return _make_error(scope, "idempotency-in-progress", message)
        message = "the first request with this key was interrupted, and is not repeated automatically"
        return _make_error(scope, "idempotency-in-progress", message, INTERRUPTED_HINT, retryable=False)

    def is_owner_alive(self, owner: str) -> bool:
        """Report whether a process still holds its lock. Blocks. Raises AIIPError `aiip.unavailable`."""
        try:
            return self._writer.call(lambda base: self._is_owner_alive(base, owner))
        except sqlite3.Error as error:
            raise _make_unavailable_error(error) from error

    def open_tasks(self, clock: Callable[[], float]) -> TaskStore:
        """Open the store of long tasks that is in the same file. Raises ConfigError `config.bad-store`."""
        assert self._path is not None  # noqa: S101 - a task needs a file (`Endpoint.add`)
        try:
            return SQLiteTaskStore(
                self._path, owner=self.owner, is_owner_alive=self.is_owner_alive, clock=clock
            )
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"the tasks in {self._path} cannot be opened: {sqlite.describe_error(error)}",
                code="config.bad-store",
                hint="Name a new file in a folder that you can write to.",
            ) from None

    def _clear_owner(self, scope: KeyScope, base: sqlite3.Connection) -> None:
        base.execute(_CLEAR_OWNER, (*scope.primary_key, self.owner))

    async def _write_lost(self) -> None:
        lost = tuple(self._lost)
        rows = [(*scope.primary_key, self.owner) for scope in lost]
        await self.transact(lambda base: base.executemany(_CLEAR_OWNER, rows).rowcount)
        self._lost.difference_update(lost)

    def _retry_lost(self) -> None:
        """Tell the other processes of interruptions in the background, until that succeeds."""
        if not self.closed and (self._telling is None or self._telling.done()):
            self._telling = asyncio.ensure_future(self._keep_writing_lost())

    async def _keep_writing_lost(self) -> None:
        while self._lost and not self.closed:
            await asyncio.sleep(_RETRY_SECONDS)
            with contextlib.suppress(AIIPError):
                await self._write_lost()

    def _is_owner_alive(self, base: sqlite3.Connection, owner: str) -> bool:
        """Report whether the process that began the request still holds its lock."""
        if owner == self.owner:
            return True
        row = base.execute("SELECT gone FROM owners WHERE id = ?", (owner,)).fetchone()
        file = self._get_lock_path(owner)
        if row is None or row[0] or not file.exists():
            return False
        probe = sqlite3.connect(str(file), timeout=0, isolation_level=None)
        try:
            probe.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return True
        finally:
            probe.close()
        base.execute("UPDATE owners SET gone = 1 WHERE id = ?", (owner,))
        _remove_lock_file(file)
        return False

    def _make_quota_error(self, base: sqlite3.Connection, scope: KeyScope, now: float) -> AIIPError:
        """Return the error for the quota that is used up, with the time at which there will be room again."""
        # no key is deleted early, because its request could then run twice
        quotas = "SELECT keys, size FROM quota WHERE holder = ?"
        keys, size = base.execute(quotas, (scope.holder,)).fetchone() or (0, 0)
        own = keys >= self._most or size >= self._size
        if own:
            row = base.execute("SELECT min(expires) FROM keys WHERE holder = ?", (scope.holder,)).fetchone()
        else:
            row = base.execute("SELECT min(expires) FROM keys").fetchone()
        expires = now if row[0] is None else row[0]
        wait = max(1, math.floor(expires - now) + 1)
        code = "too-many-requests" if own else "unavailable"
        if keys >= self._most:
            message = f"the caller has used {self._most} idempotency keys in 24 hours"
        elif own:
            message = f"the answers stored for this caller have more than {self._size} bytes"
        elif scope.is_anonymous:
            message = "callers without an access token have used all idempotency keys that are for them"
        else:
            message = "the idempotency store is full"
        hint = "Nothing was done. Stored answers are deleted after 24 hours."
        error = _make_error(scope, code, message, hint, retryable=wait <= SOON)
        error.retry_after = wait
        return error

    def _sweep(self, now: float) -> None:
        """Delete expired keys and shrink the file, in the background."""

        def sweep(base: sqlite3.Connection) -> None:
            self._sweep_keys(base, now)
            self._delete_owners(base)
            (free,) = base.execute("PRAGMA freelist_count").fetchone()
            for _ in range(min(free, _PAGES)):
                base.execute("PRAGMA incremental_vacuum")  # `execute` takes one step: one page

        with contextlib.suppress(sqlite3.Error):  # closed
            self._writer.post(sweep)

    def _sweep_keys(self, base: sqlite3.Connection, now: float) -> None:
        if self._delete_expired(base, now) == _CHUNK:
            self._swept = 0.0  # the next request goes on

    def _delete_expired(self, base: sqlite3.Connection, now: float) -> int:
        """Delete expired keys and approvals. Returns the number of expired keys, at most `_CHUNK`."""
        base.execute(_RELEASE_INTERRUPTED, (RETENTION_SECONDS, now))
        base.execute("DELETE FROM spent WHERE expires < ?", (now,))
        expired = base.execute(_SELECT_EXPIRED, (now, _CHUNK)).fetchall()
        if base.executemany(_DELETE_KEY, expired).rowcount < len(expired):
            # a trigger keeps the keys of tasks that are not over
            base.executemany(_POSTPONE_KEY, [(now + _SWEEP, *key) for key in expired])
        return len(expired)

    def _delete_owners(self, base: sqlite3.Connection) -> None:
        """Delete owners that are gone and have no unanswered key."""
        idle = base.execute(
            "SELECT id FROM owners WHERE id <> ? AND id NOT IN (SELECT owner FROM keys WHERE answer IS NULL)",
            (self.owner,),
        ).fetchall()
        for (owner,) in idle:
            if not self._is_owner_alive(base, owner):
                base.execute("DELETE FROM owners WHERE id = ?", (owner,))

    def _get_lock_path(self, owner: str) -> Path:
        path = self._path or Path("memory")
        return path.with_name(f"{path.name}.{owner}.lock")


def _spend_approval(base: sqlite3.Connection, scope: KeyScope, txn: str, now: float) -> None:
    """Raise AIIPError `aiip.approval-mismatch` if the approval is spent already."""
    # an approval is valid for minutes, so its row may go after two days
    row = (txn, now + 2 * RETENTION_SECONDS)
    if base.execute("INSERT INTO spent VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount != 1:
        raise _make_error(
            scope,
            "approval-mismatch",
            "the approval was used for another request",
            "An approval is for one request. Ask for a new one.",
            retryable=False,
        )


def _make_unavailable_error(error: sqlite3.Error) -> AIIPError:
    return AIIPError(
        f"idempotency keys cannot be stored now ({type(error).__name__})",
        code="aiip.unavailable",
        clause=_CLAUSE,
        retryable=True,
    )


def _make_error(
    scope: KeyScope, code: str, message: str, hint: str | None = None, *, retryable: bool = True
) -> AIIPError:
    return AIIPError(
        message, code=f"aiip.{code}", target=scope.target, clause=_CLAUSE, retryable=retryable, hint=hint
    )


def _remove_lock_file(file: Path) -> None:
    for suffix in ("", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


class StoreClaim:
    """A note in the folder of an authority's signing keys that names the store of its idempotency keys.

    Processes that serve one authority with different stores would run a key once each. All processes of one
    machine that use the same keys see the note, so that the second store is rejected while the first is in
    use. The note is a SQLite file, because its locks end with the process.
    """

    def __init__(self, folder: Path, authority: str, identity: str) -> None:
        """Write the note, or find the same one. Raises ConfigError `config.other-store`.

        A folder that cannot be written (a read-only mount) has no note, and nothing is checked.
        """
        self._note: sqlite3.Connection | None = None
        self._file = folder / f"store-{sha256(authority.encode()).hexdigest()[:16]}.lock"
        try:
            sqlite.create_private_file(self._file)
            note = sqlite3.connect(self._file, timeout=0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error):
            return
        try:
            found = _claim_note(note, identity)
        except sqlite3.Error:
            note.close()
            return
        if found != identity:
            note.close()
            raise ConfigError(
                f"another process serves {authority} with the keys in {folder} and another idempotency store",
                code="config.other-store",
                hint="Use one store for all processes of an authority, or stop the other process first.",
            )
        self._note = note
        sqlite.close_at_end(self, note)

    def close(self) -> None:
        """Release the note: another store may be used if no other process holds it."""
        if self._note is not None:
            self._note.close()
            self._note = None


def _claim_note(note: sqlite3.Connection, identity: str) -> str:
    """Return the identity in the note, which is locked for reading until it is closed.

    Another identity is replaced, unless a process holds the note.
    """
    until = time.monotonic() + _CLAIM_SECONDS
    while True:
        note.execute("BEGIN")  # the first read takes a shared lock, which stays
        found = _read_note(note)
        if found == identity:
            return found
        note.execute("COMMIT")
        try:
            note.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            # a process that is just starting may only look at the note
            if found is not None and sqlite.is_busy(error) and time.monotonic() >= until:
                return found
            if not sqlite.is_busy(error):
                raise
            time.sleep(_CLAIM_PAUSE)
            continue
        note.execute("CREATE TABLE IF NOT EXISTS store (identity TEXT NOT NULL)")
        note.execute("DELETE FROM store")
        note.execute("INSERT INTO store VALUES (?)", (identity,))
        note.execute("COMMIT")


def _read_note(note: sqlite3.Connection) -> str | None:
    if note.execute("SELECT 1 FROM sqlite_master WHERE name = 'store'").fetchone() is None:
        return None
    row = note.execute("SELECT identity FROM store").fetchone()
    return None if row is None else str(row[0])
