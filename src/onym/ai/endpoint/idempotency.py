"""The store of idempotency keys: a request that began under a key never begins again (AIIP/HTTPS v1, 3.11).

The header field is that of draft-ietf-httpapi-idempotency-key-header-07 (expired). A row is written before
the side effect and completed with the answer. The process that began a request holds a lock until it ends;
a row without an answer whose process is gone was interrupted. Several processes may share one file.
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

#: what the clients begin with that nobody vouches for
ANONYMOUS_PREFIX: Final = "anonymous "
#: whose octets those of all callers are counted as; no client has this name
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
#: octets of answers by client, kept in step with the keys: to sum them up would be to read them all
_COUNTING: Final = """
CREATE TABLE IF NOT EXISTS kept (client TEXT PRIMARY KEY, octets INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS kept_more AFTER UPDATE OF answer ON keys
WHEN old.answer IS NULL AND new.answer IS NOT NULL BEGIN
    INSERT INTO kept VALUES (new.client, length(new.answer)), ('', length(new.answer))
        ON CONFLICT (client) DO UPDATE SET octets = octets + excluded.octets;
END;
CREATE TRIGGER IF NOT EXISTS kept_less AFTER DELETE ON keys
WHEN old.answer IS NOT NULL BEGIN
    UPDATE kept SET octets = octets - length(old.answer) WHERE client IN (old.client, '');
    DELETE FROM kept WHERE client = old.client AND octets <= 0;
END;
INSERT INTO kept SELECT client, sum(length(answer)) FROM keys
    WHERE answer IS NOT NULL AND NOT EXISTS (SELECT 1 FROM kept WHERE client = '') GROUP BY client;
INSERT OR IGNORE INTO kept SELECT '', coalesce(sum(octets), 0) FROM kept;
"""
#: run once by each process that opens the file
SCHEMA: Final = f"BEGIN IMMEDIATE; {_KEYS} {_COUNTING} COMMIT;"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """What a key belongs to. `client` and `principal` say who; `target` has no query.

    A client that begins with `ANONYMOUS_PREFIX` is one that showed no token.
    """

    client: str
    principal: str
    target: str
    key: str = field(repr=False)

    @property
    def is_anonymous(self) -> bool:
        """Is the client one that nobody vouches for?"""
        return self.client.startswith(ANONYMOUS_PREFIX)

    @property
    def client_range(self) -> tuple[str, str]:
        """The first and the last of those that share one allowance: all who showed no token do."""
        return (
            (ANONYMOUS_PREFIX, ANONYMOUS_PREFIX + "\U0010ffff")
            if self.is_anonymous
            else (self.client, self.client)
        )

    @property
    def primary_key(self) -> tuple[str, str, str, str]:
        """The primary key."""
        return self.client, self.principal, self.target, self.key


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What became of a key: `answer` is what to give again, None where the side effect is now to begin."""

    answer: bytes | None


#: seconds that an answer is kept
RETENTION_SECONDS: Final = 24 * 3600.0
#: octets of answers that are kept for one caller, and for all
_OCTETS: Final = 64 * 1024 * 1024
_TOTAL: Final = 1024 * 1024 * 1024
#: pages of the file that a sweep gives back
_PAGES: Final = 2048
#: seconds between two sweeps, and that one waits for another process
_SWEEP: Final = 600.0
_BUSY: Final = 10.0
_CLAUSE: Final = "AIIP/HTTPS v1 3.11"


class IdempotencyStore:
    """The keys of one endpoint. Blocking; safe to call from several threads.

    `path` None keeps them in memory, for an endpoint whose resources only read. A caller has at most `most`
    keys in 24 hours; one whose kept answers have `octets` octets begins nothing new, and nobody does where
    all have `total`. What runs at that moment is kept all the same.
    """

    def __init__(
        self, path: str | Path | None, *, most: int, octets: int = _OCTETS, total: int = _TOTAL
    ) -> None:
        """Open the file, made if need be. Raises ConfigError `config.bad-store`."""
        self._path = None if path is None else Path(path)
        self._most = most
        self._octets = octets
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
                f"the store of idempotency keys cannot be opened ({error})",
                code="config.bad-store",
                hint="a file of SQLite in a folder that can be written to",
            ) from None

    def begin(self, scope: KeyScope, fingerprint: str, at: float) -> StoredAnswer:
        """Write down that this is about to happen, unless it has.

        Raises AIIPError: `aiip.idempotency-mismatch` for another request under this key,
        `aiip.idempotency-in-progress` while it runs or where it was interrupted, `aiip.too-many-requests`
        where the caller has as many keys or octets as it may, `aiip.unavailable` where all have.
        """
        self._sweep(at)
        with self._lock, self._transaction() as base:
            row = base.execute(
                "SELECT fingerprint, owner, answer FROM keys"
                " WHERE client = ? AND principal = ? AND target = ? AND key = ?",
                scope.primary_key,
            ).fetchone()
            if row is not None:
                return self._get_stored_answer(base, scope, fingerprint, row)
            self._require_key_room(base, scope, at)
            self._require_byte_room(base, scope)
            base.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                (*scope.primary_key, fingerprint, at, self.owner),
            )
            self._lost.discard(scope)
        return StoredAnswer(None)

    def complete(self, scope: KeyScope, answer: bytes) -> None:
        """Keep the answer. Called once, by whoever began."""
        with self._lock, self._transaction() as base:
            base.execute(
                "UPDATE keys SET answer = ? WHERE client = ? AND principal = ? AND target = ? AND key = ?"
                " AND owner = ? AND answer IS NULL",
                (answer, *scope.primary_key, self.owner),
            )

    def interrupt(self, scope: KeyScope) -> None:
        """The run ended without an answer, and nobody knows how far it came.

        This process goes by that even where it cannot be written down. Raises AIIPError `aiip.unavailable`.
        """
        with self._lock:
            self._lost.add(scope)
            self._clear_owner(scope)
            self._lost.discard(scope)

    def _clear_owner(self, scope: KeyScope) -> None:
        with self._transaction() as base:
            base.execute(
                "UPDATE keys SET owner = '' WHERE client = ? AND principal = ? AND target = ? AND key = ?"
                " AND owner = ? AND answer IS NULL",
                (*scope.primary_key, self.owner),
            )

    def close(self) -> None:
        """Let go of the file. What runs on is interrupted from now on."""
        with self._lock:
            self._base.close()
            if self._held is not None:
                self._held.close()
                _remove_lock_file(self._get_lock_path(self.owner))
                self._held = None

    def _open_database(self) -> sqlite3.Connection:
        base = self._connect(":memory:" if self._path is None else str(self._path))
        if self._path is not None:
            self._path.chmod(0o600)  # answers are somebody's
            # before the first page is written: space that was given up goes back to the file system
            base.execute("PRAGMA auto_vacuum = INCREMENTAL")
            base.execute("PRAGMA journal_mode = WAL")
            # a key must outlive a loss of power: its side effect does
            base.execute("PRAGMA synchronous = FULL")
            self._held = self._connect(str(self._get_lock_path(self.owner)))
            self._held.execute("BEGIN EXCLUSIVE")
        base.executescript(SCHEMA)
        base.execute("INSERT INTO owners (id) VALUES (?)", (self.owner,))
        return base

    def _connect(self, where: str) -> sqlite3.Connection:
        if self._path is not None:
            # nobody else may open it before its mode is set, and keep it open
            Path(where).touch(mode=0o600)
        return sqlite3.connect(where, timeout=_BUSY, isolation_level=None, check_same_thread=False)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            raise AIIPError(
                f"idempotency keys cannot be kept now ({type(error).__name__})",
                code="aiip.unavailable",
                clause=_CLAUSE,
                retryable=True,
            ) from error

    def _get_stored_answer(
        self, base: sqlite3.Connection, scope: KeyScope, fingerprint: str, row: tuple[str, str, bytes | None]
    ) -> StoredAnswer:
        before, owner, answer = row
        if before != fingerprint:
            raise AIIPError(
                "this idempotency key was used for another request",
                code="aiip.idempotency-mismatch",
                target=scope.target,
                clause=_CLAUSE,
                hint="a new request has a new key",
            )
        if answer is not None:
            return StoredAnswer(answer)
        lost = owner == self.owner and scope in self._lost
        if not lost and self._is_owner_alive(base, owner):
            raise AIIPError(
                "the first request with this key is still running",
                code="aiip.idempotency-in-progress",
                target=scope.target,
                clause=_CLAUSE,
                retryable=True,
            )
        raise AIIPError(
            "the first request with this key was interrupted, and is not run again by itself",
            code="aiip.idempotency-in-progress",
            target=scope.target,
            clause=_CLAUSE,
            hint="interrupted: find out whether it took effect, then use a new key",
        )

    def _is_owner_alive(self, base: sqlite3.Connection, owner: str) -> bool:
        """Is the process that began it still there? Its lock says so."""
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
            # none is given up early: that would let its request run twice
            raise AIIPError(
                f"more than {self._most} idempotency keys in 24 hours",
                code="aiip.too-many-requests",
                target=scope.target,
                clause=_CLAUSE,
                retryable=True,
            )

    def _require_byte_room(self, base: sqlite3.Connection, scope: KeyScope) -> None:
        own = "SELECT coalesce(sum(octets), 0) FROM kept WHERE client BETWEEN ? AND ?"
        (octets,) = base.execute(own, scope.client_range).fetchone()
        if octets >= self._octets:
            raise AIIPError(
                f"the answers kept for this caller have more than {self._octets} octets",
                code="aiip.too-many-requests",
                target=scope.target,
                clause=_CLAUSE,
                retryable=True,
                hint="nothing was done; the answers of a day ago make room",
            )
        (octets,) = base.execute(own, (ALL_CLIENTS, ALL_CLIENTS)).fetchone()
        if octets >= self._total:
            raise AIIPError(
                "no more answers can be kept at this moment",
                code="aiip.unavailable",
                target=scope.target,
                clause=_CLAUSE,
                retryable=True,
                hint="nothing was done; the answers of a day ago make room",
            )

    def _sweep(self, at: float) -> None:
        """From time to time forget and give space back: what is refused after that does not undo it."""
        with self._lock:
            if abs(at - self._swept) < _SWEEP:
                return
            with self._transaction() as base:
                self._delete_expired(base, at)
            self._swept = at
            with contextlib.suppress(sqlite3.Error):  # later, then
                # a script: `execute` would stop after the first page
                self._base.executescript(f"PRAGMA incremental_vacuum({_PAGES});")

    def _delete_expired(self, base: sqlite3.Connection, at: float) -> None:
        """Forget what is older than is kept, and the owners of nothing that runs."""
        # what was never answered stays as long again: somebody may look into it
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


def _remove_lock_file(file: Path) -> None:
    for suffix in ("", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
