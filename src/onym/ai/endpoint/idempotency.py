"""The store of idempotency keys: a request with a key runs at most once (AIIP/HTTPS v1, 3.11).

The header field is that of draft-ietf-httpapi-idempotency-key-header-07 (expired). A row is written before
the side effect and completed with the answer. Every process locks a file of its own until it ends; a row
without an answer whose process is gone was interrupted. Several processes may share one store.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onym.errors import AIIPError, ConfigError
from onym.store.sqlite import (
    FileFormat,
    SQLiteOptions,
    create_private_file,
    describe_error,
    open_sqlite,
    write_transaction,
)

#: the first word of a client without an access token
ANONYMOUS_PREFIX: Final = "anonymous "
#: the row that counts the bytes of all clients; no client has this name
ALL_CLIENTS: Final = ""
_KEYS: Final = """
CREATE TABLE IF NOT EXISTS owners (id TEXT PRIMARY KEY, gone INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE IF NOT EXISTS keys (
    client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, created REAL NOT NULL, owner TEXT NOT NULL, answer BLOB,
    PRIMARY KEY (client, principal, target, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_created ON keys (created);
CREATE INDEX IF NOT EXISTS keys_client ON keys (client, created);
"""
#: bytes of stored answers by client, updated with the keys: a sum would have to read all answers
_COUNTING: Final = """
CREATE TABLE IF NOT EXISTS kept (client TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS kept_more AFTER UPDATE OF answer ON keys
WHEN old.answer IS NULL AND new.answer IS NOT NULL BEGIN
    INSERT INTO kept VALUES (new.client, length(new.answer)), ('', length(new.answer))
        ON CONFLICT (client) DO UPDATE SET size = size + excluded.size;
END;
CREATE TRIGGER IF NOT EXISTS kept_less AFTER DELETE ON keys
WHEN old.answer IS NOT NULL BEGIN
    UPDATE kept SET size = size - length(old.answer) WHERE client IN (old.client, '');
    DELETE FROM kept WHERE client = old.client AND size <= 0;
END;
INSERT OR IGNORE INTO kept VALUES ('', 0);
"""
_FORMAT: Final = FileFormat(application_id=0x4F6E4B01, version=1, schema=_KEYS + _COUNTING)
_OF_KEY: Final = "client = ? AND principal = ? AND target = ? AND key = ?"
#: with `KeyScope.primary_key`, and the owner for a key that has no answer yet
_SELECT_KEY: Final = f"SELECT fingerprint, owner, answer FROM keys WHERE {_OF_KEY}"  # noqa: S608 - a constant
_RUNNING: Final = f"{_OF_KEY} AND owner = ? AND answer IS NULL"
_SET_ANSWER: Final = f"UPDATE keys SET answer = ? WHERE {_RUNNING}"  # noqa: S608 - a constant
_CLEAR_OWNER: Final = f"UPDATE keys SET owner = '' WHERE {_RUNNING}"  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """An idempotency key with the client, the principal and the target (without query) that it belongs to.

    A client that begins with `ANONYMOUS_PREFIX` has shown no token.
    """

    client: str
    principal: str
    target: str
    key: str = field(repr=False)

    @property
    def client_range(self) -> tuple[str, str]:
        """The first and last client that share one quota: all clients without a token share one."""
        if self.client.startswith(ANONYMOUS_PREFIX):
            return ANONYMOUS_PREFIX, ANONYMOUS_PREFIX + "\U0010ffff"
        return self.client, self.client

    @property
    def primary_key(self) -> tuple[str, str, str, str]:
        """The primary key of the row."""
        return self.client, self.principal, self.target, self.key


#: seconds for which an answer is stored
RETENTION_SECONDS: Final = 24 * 3600.0
#: bytes of answers that are stored for one caller, and for all callers
_SIZE: Final = 64 * 1024 * 1024
_TOTAL: Final = 1024 * 1024 * 1024
#: pages of the file that a sweep returns to the file system
_PAGES: Final = 2048
#: seconds between two sweeps
_SWEEP: Final = 600.0
_OPTIONS: Final = SQLiteOptions(
    timeout=10.0,
    # a key must survive a power cut, as its side effect does
    pragmas={"auto_vacuum": "INCREMENTAL", "synchronous": "FULL"},
)
_FULL_HINT: Final = "Nothing was done. Stored answers are deleted after 24 hours."
INTERRUPTED_HINT: Final = "The request was interrupted. Find out whether it took effect, then use a new key."
_CLAUSE: Final = "AIIP/HTTPS v1 3.11"


class IdempotencyStore:
    """The keys of one endpoint. Blocking; safe to call from several threads.

    With `path=None` the store is in memory, for an endpoint whose resources only read. A caller may use
    `most` keys in 24 hours. If its stored answers have `size` bytes, or those of all callers `total` bytes,
    new keys are rejected; answers of running requests are stored all the same.
    """

    def __init__(self, path: str | Path | None, *, most: int, size: int = _SIZE, total: int = _TOTAL) -> None:
        """Open the file, creating it if it is missing. Raises ConfigError `config.bad-store`."""
        self._path = None if path is None else Path(path)
        self._most = most
        self._size = size
        self._total = total
        self._lock = threading.Lock()
        self._swept = 0.0
        self._lost: set[KeyScope] = set()
        self.owner = secrets.token_hex(16)
        self._held: sqlite3.Connection | None = None
        try:
            self._base = self._open_database()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"the idempotency store {path} cannot be opened: {describe_error(error)}",
                code="config.bad-store",
                hint="Name a new file in a folder that you can write to.",
            ) from None

    def begin(self, scope: KeyScope, fingerprint: str, at: float) -> bytes | None:
        """Record that the request begins and return None, or return the answer if it has run before.

        Raises AIIPError: `aiip.idempotency-mismatch` if the key belongs to another request,
        `aiip.idempotency-in-progress` while the request runs or if it was interrupted,
        `aiip.too-many-requests` if the caller has reached its quota, `aiip.unavailable` if the store is full.
        """
        self._sweep(at)
        with self._lock, self._transaction() as base:
            row = base.execute(_SELECT_KEY, scope.primary_key).fetchone()
            if row is not None:
                return self._get_stored_answer(base, scope, fingerprint, row)
            self._require_key_room(base, scope, at)
            self._require_byte_room(base, scope)
            base.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                (*scope.primary_key, fingerprint, at, self.owner),
            )
            self._lost.discard(scope)
        return None

    def complete(self, scope: KeyScope, answer: bytes) -> None:
        """Store the answer of a request that `begin` has begun."""
        with self._lock, self._transaction() as base:
            base.execute(_SET_ANSWER, (answer, *scope.primary_key, self.owner))

    def interrupt(self, scope: KeyScope) -> None:
        """Record that the request ended without an answer, so that it is unknown how far it came.

        This process remembers it even if the file cannot be written. Raises AIIPError `aiip.unavailable`.
        """
        with self._lock:
            self._lost.add(scope)
            with self._transaction() as base:
                base.execute(_CLEAR_OWNER, (*scope.primary_key, self.owner))
            self._lost.discard(scope)

    def close(self) -> None:
        """Close the file. Requests that still run count as interrupted from now on."""
        with self._lock:
            self._base.close()
            if self._held is not None:
                self._held.close()
                _remove_lock_file(self._get_lock_path(self.owner))
                self._held = None

    def _open_database(self) -> sqlite3.Connection:
        base = open_sqlite(self._path, _FORMAT, _OPTIONS)
        try:
            if self._path is not None:
                # the locked file shows other processes that this one is alive
                file = self._get_lock_path(self.owner)
                create_private_file(file)
                self._held = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
                self._held.execute("BEGIN EXCLUSIVE")
            base.execute("INSERT INTO owners (id) VALUES (?)", (self.owner,))
        except BaseException:
            base.close()
            raise
        return base

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with write_transaction(self._base) as base:
                yield base
        except sqlite3.Error as error:
            raise AIIPError(
                f"idempotency keys cannot be stored now ({type(error).__name__})",
                code="aiip.unavailable",
                clause=_CLAUSE,
                retryable=True,
            ) from error

    def _get_stored_answer(
        self, base: sqlite3.Connection, scope: KeyScope, fingerprint: str, row: tuple[str, str, bytes | None]
    ) -> bytes:
        before, owner, answer = row
        if before != fingerprint:
            message, hint = (
                "the idempotency key was used for another request",
                "Use a new key for a new request.",
            )
            raise _make_error(scope, "idempotency-mismatch", message, hint, retryable=False)
        if answer is not None:
            return answer
        lost = owner == self.owner and scope in self._lost
        if not lost and self._is_owner_alive(base, owner):
            message = "the first request with this key is still running"
            raise _make_error(scope, "idempotency-in-progress", message)
        message = "the first request with this key was interrupted, and is not repeated automatically"
        raise _make_error(scope, "idempotency-in-progress", message, INTERRUPTED_HINT, retryable=False)

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

    def _require_key_room(self, base: sqlite3.Connection, scope: KeyScope, at: float) -> None:
        (count,) = base.execute(
            "SELECT count(*) FROM keys WHERE client BETWEEN ? AND ? AND created > ?",
            (*scope.client_range, at - RETENTION_SECONDS),
        ).fetchone()
        if count >= self._most:
            # no key is deleted early, because its request could then run twice
            message = f"the caller has used {self._most} idempotency keys in 24 hours"
            raise _make_error(scope, "too-many-requests", message)

    def _require_byte_room(self, base: sqlite3.Connection, scope: KeyScope) -> None:
        own = "SELECT coalesce(sum(size), 0) FROM kept WHERE client BETWEEN ? AND ?"
        (size,) = base.execute(own, scope.client_range).fetchone()
        if size >= self._size:
            message = f"the answers stored for this caller have more than {self._size} bytes"
            raise _make_error(scope, "too-many-requests", message, _FULL_HINT)
        (size,) = base.execute(own, (ALL_CLIENTS, ALL_CLIENTS)).fetchone()
        if size >= self._total:
            raise _make_error(scope, "unavailable", "the idempotency store is full", _FULL_HINT)

    def _sweep(self, at: float) -> None:
        """Delete expired keys and shrink the file, at most every 600 seconds."""
        with self._lock:
            if abs(at - self._swept) < _SWEEP:
                return
            with self._transaction() as base:
                self._delete_expired(base, at)
            self._swept = at
            with contextlib.suppress(sqlite3.Error):  # the next sweep tries again
                # `execute` would stop after the first page
                self._base.executescript(f"PRAGMA incremental_vacuum({_PAGES});")

    def _delete_expired(self, base: sqlite3.Connection, at: float) -> None:
        """Delete expired keys, and owners that are gone and have no unanswered key."""
        # unanswered keys stay twice as long, so that an operator can examine them
        base.execute("DELETE FROM keys WHERE created < ? AND answer IS NOT NULL", (at - RETENTION_SECONDS,))
        base.execute("DELETE FROM keys WHERE created < ?", (at - 2 * RETENTION_SECONDS,))
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


def _make_error(
    scope: KeyScope, code: str, message: str, hint: str | None = None, *, retryable: bool = True
) -> AIIPError:
    return AIIPError(
        message, code=f"aiip.{code}", target=scope.target, clause=_CLAUSE, retryable=retryable, hint=hint
    )


def _remove_lock_file(file: Path) -> None:
    for suffix in ("", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
