"""Small transactions at PostgreSQL, one after the other in the whole fleet and committed in groups.

This module needs psycopg (extra `postgresql`), but not SQLAlchemy: see `onym.store.sql`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from onym._lazy import require_extra
from onym.common.concurrency import Job, TransactionQueue
from onym.errors import StoreError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

#: seconds for a connection to be made, for the lock of the fleet, and for one statement
_CONNECT_SECONDS: Final = 5
_LOCK_SECONDS: Final = 7
_STATEMENT_SECONDS: Final = 30
#: seconds without an answer after which a connection is given up: a bit longer than the lock of the fleet
ANSWER_SECONDS: Final = 8.0
#: seconds after a failure for which no new connection is tried
_PAUSE: Final = 1.0
#: how the server finds out that this machine is gone, or stopped in the middle of a transaction
_SETTINGS: Final = (
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 2",
    "SET tcp_user_timeout = 15000",
    "SET idle_in_transaction_session_timeout = '5s'",
    "SET idle_session_timeout = 0",
    f"SET lock_timeout = '{_LOCK_SECONDS}s'",
    f"SET statement_timeout = '{_STATEMENT_SECONDS}s'",
    # an acknowledged transaction survives a crash of the server
    "SET synchronous_commit = on",
)
_UNREACHABLE: Final = "store.unreachable"
#: the connection was lost, so that nobody knows whether a group was committed
UNFINISHED: Final = "store.unfinished"
_REJECTED: Final = "store.rejected"
#: waits for two seconds
_END_HOLDER: Final = """SELECT pg_terminate_backend(pid, 2000) FROM pg_locks WHERE locktype = 'advisory'
AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = ? AND pid <> pg_backend_pid()"""
_LOCK_FLEET: Final = """SELECT pg_advisory_xact_lock(?), pg_backend_pid(),
extract(epoch FROM clock_timestamp())::float8"""
_SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
#: the version of each format whose tables are in a database
FORMATS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS onym_formats (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup:
    """Tables in a schema of their own. `lock_key` is the advisory lock of their writers."""

    name: str
    schema: str
    version: int
    lock_key: int
    statements: Sequence[str]


class PostgresTransaction:
    """The statements of one transaction, written as for sqlite3: `?` stands for a parameter.

    `time` is the server's, in seconds since the epoch, when the transaction got its turn. `clock_difference`
    is how far it is from the clock of this process.
    """

    __slots__ = ("_connection", "_watchdog", "clock_difference", "time")

    def __init__(self, connection: Connection[Any], watchdog: _Watchdog) -> None:
        self._connection = connection
        self._watchdog = watchdog
        self.time = self.clock_difference = 0.0

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> Cursor[Any]:
        """Run a statement and return its cursor."""
        self._watchdog.note_progress()
        return self._connection.execute(_translate_query(query), parameters)

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> Cursor[Any]:
        """Run a statement once for each row. The cursor has the number of all rows."""
        self._watchdog.note_progress()
        cursor = self._connection.cursor()
        cursor.executemany(_translate_query(query), rows)
        return cursor


class _Watchdog:
    """Ends the connection of a server that does not answer.

    A server that is stopped keeps its connections, and libpq waits for its answer without a limit.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._watched: Connection[Any] | None = None
        self._last = 0.0
        self._thread = threading.Thread(target=self._watch, name=f"{name}-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watch(self, connection: Connection[Any]) -> Iterator[None]:
        """End this connection if it does nothing for too long in the time of the block."""
        self.note_progress()
        with self._lock:
            self._watched = connection
        try:
            yield
        finally:
            with self._lock:
                self._watched = None

    def note_progress(self) -> None:
        """Begin to wait anew: a statement is being sent."""
        self._last = time.monotonic()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(1.0):
            with self._lock:
                if self._watched is not None and time.monotonic() - self._last >= ANSWER_SECONDS:
                    _shut_down(self._watched)
                    self._watched = None


def _shut_down(connection: Connection[Any]) -> None:
    """End the connection under the thread that waits for it, as if the server had closed it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@lru_cache(maxsize=256)
def _translate_query(query: str) -> bytes:
    return query.replace("%", "%%").replace("?", "%s").encode()


def is_postgres_url(url: object) -> bool:
    """Report whether the text or secret is the URL of a PostgreSQL database."""
    plain = url.reveal() if isinstance(url, Secret) else url
    return isinstance(plain, str) and plain.startswith(_SCHEMES)


def _normalize_url(url: str | Secret) -> Secret:
    """Return the URL as libpq reads it."""
    if not is_postgres_url(url):
        raise StoreError(
            "not the URL of a PostgreSQL database",
            code="store.bad-url",
            field="url",
            hint="Write postgresql://USER@HOST/DATABASE.",
        )
    plain = url.reveal() if isinstance(url, Secret) else url
    return Secret("postgresql://" + plain.partition("://")[2])


def hash_lock(text: str) -> int:
    """Return the number of the advisory lock for a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


class PostgresWriter(TransactionQueue[PostgresTransaction]):
    """Runs small transactions and commits those that wait together.

    A transaction is a function of a `PostgresTransaction`. It may run again from the start, so it must change
    nothing but the database. If it raises, only its own changes are undone.

    `owner` is a random name of this process, whose lock it holds. After an interruption the lock is taken
    again; meanwhile others may have taken the process for dead. `clock` returns seconds since the epoch; each
    transaction compares it with the server's.

    Raises StoreError: `store.unreachable`, `store.unfinished` (it is unknown whether the transaction was
    committed), `store.rejected` (one statement), `store.newer`, `store.pooler` or `store.closed`.

    `PostgresWriter` has one connection and a thread of its own. Transactions that wait are committed
    together, so that many of them cost one write to the disk. An advisory lock makes the groups of all
    machines follow each other: a transaction may look before it writes, and none of them can lose a race or
    meet a deadlock.

    A server that stops answering fails the transactions that wait after eight seconds.

    A session lock shows that this process is alive. It ends with the process; of a machine that is lost, the
    server ends it after 15 seconds. A pooler in transaction mode is rejected, because its sessions change
    hands.
    """

    def __init__(
        self,
        url: str | Secret,
        tables: TableGroup,
        *,
        name: str,
        most: int = 256,
        clock: Callable[[], float] = time.time,
    ) -> None:
        require_extra("psycopg", "postgresql")
        super().__init__(name=name, most=most)
        self._url = _normalize_url(url)
        self._tables = tables
        self._clock = clock
        self.owner = secrets.token_hex(16)
        #: the number of the server's session, and when it began
        self._backend = 0
        self._connected = float("inf")
        self._failed = float("-inf")
        self._watchdog = _Watchdog(name)
        try:
            self._connection: Connection[Any] | None = self._connect()
        except BaseException:
            self._watchdog.close()
            raise
        self._thread.start()

    @property
    def session_age(self) -> float:
        """The seconds for which this process has had its session without an interruption."""
        return time.monotonic() - self._connected

    def _make_closed_error(self) -> StoreError:
        return _make_error("it is closed", code="store.closed")

    def _close_connection(self) -> None:
        if self._connection is not None:
            with self._watchdog.watch(self._connection):
                self._release_lock(self._connection)
            self._connection.close()
        self._watchdog.close()

    def _release_lock(self, connection: Connection[Any]) -> None:
        from psycopg import Error  # late: an optional dependency

        with suppress(Error):  # it ends with the connection, but a little later
            connection.execute("SELECT pg_advisory_unlock_all()")

    def _run_group(self, group: list[Job[PostgresTransaction]]) -> None:
        """Commit the group; if one of its transactions fails, run each alone."""
        try:
            self._commit(group)
        except Exception as error:  # noqa: BLE001 - told to the caller
            if len(group) > 1 and not (isinstance(error, StoreError) and error.code != _REJECTED):
                for job in group:
                    self._run_group([job])
                return
            for job in group:
                job.error = error

    def _commit(self, group: list[Job[PostgresTransaction]]) -> None:
        from psycopg import Error  # late: an optional dependency

        connection = self._get_connection()
        try:
            with self._watchdog.watch(connection), connection.transaction():
                transaction = PostgresTransaction(connection, self._watchdog)
                self._lock_fleet(transaction)
                for job in group:
                    job.result = job.work(transaction)
        except Error as error:
            if connection.closed or connection.broken:
                self._connection, self._failed = None, float("-inf")
                raise _convert_error(error, code=UNFINISHED) from None
            operational = error.sqlstate is not None and error.sqlstate[:2] in _OPERATIONAL
            raise _convert_error(error, code=_UNREACHABLE if operational else _REJECTED) from None

    def _lock_fleet(self, transaction: PostgresTransaction) -> None:
        began = self._clock()
        row = transaction.execute(_LOCK_FLEET, (self._tables.lock_key,)).fetchone()
        if row is None or row[1] != self._backend:
            raise _make_pooler_error()
        transaction.time = now = row[2]
        # 0 if it is between the readings of this process's clock
        transaction.clock_difference = min(now - began, 0.0) or max(now - self._clock(), 0.0)

    def _get_connection(self) -> Connection[Any]:
        if self._connection is None:
            if time.monotonic() - self._failed < _PAUSE:
                raise _make_error("the connection failed a moment ago")
            try:
                self._connection = self._connect()
            except StoreError:
                self._failed = time.monotonic()
                raise
        return self._connection

    def _connect(self) -> Connection[Any]:
        from psycopg import Error  # late: an optional dependency

        connection: Connection[Any] | None = None
        try:
            connection = self._open_connection()
            with self._watchdog.watch(connection):
                self._require_session(connection)
                for setting in (*_SETTINGS, f"SET search_path = {self._tables.schema}"):
                    connection.execute(setting.encode())
                with connection.transaction():
                    self._prepare(PostgresTransaction(connection, self._watchdog))
        except Error as error:
            if connection is not None:
                connection.close()
            raise _convert_error(error) from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        self._connected = time.monotonic()
        return connection

    def _open_connection(self) -> Connection[Any]:
        from psycopg import connect  # late: an optional dependency

        return connect(
            self._url.reveal(),
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            keepalives_idle=5,
            keepalives_interval=5,
            keepalives_count=2,
            tcp_user_timeout=15000,
            application_name=f"onym {self._tables.name}",
        )

    def _require_session(self, connection: Connection[Any]) -> None:
        """Find out whether this connection keeps one session of the server, and keep the session's number.

        A pooler in transaction mode gives the session to the next client as soon as a transaction has ended.
        """
        self._backend = _get_backend(connection)
        with self._open_connection() as other, other.transaction():
            if _get_backend(other) == self._backend:
                raise _make_pooler_error()

    def _prepare(self, transaction: PostgresTransaction) -> None:
        """Create the tables, and take the lock of this process."""
        self._lock_fleet(transaction)
        _create_tables(transaction, self._tables)
        # the server may not know yet that the connection before was lost
        lock = hash_lock(self.owner)
        transaction.execute(_END_HOLDER, (lock,))
        row = transaction.execute("SELECT pg_try_advisory_lock(?)", (lock,)).fetchone()
        if row is None or not row[0]:
            raise _make_error("the session before is still ending")


#: classes of SQLSTATE that are about the server and not about one transaction: connection, rejected user,
#: lost race, out of resources, operator's intervention, system error
_OPERATIONAL: Final = frozenset({"08", "28", "40", "53", "55", "57", "58"})


def is_owner_alive(transaction: PostgresTransaction, owner: str) -> bool:
    """Report whether a process holds the lock of this owner. Call it in a transaction of a writer."""
    row = transaction.execute("SELECT pg_try_advisory_xact_lock(?)", (hash_lock(owner),)).fetchone()
    return row is None or not row[0]


def _get_backend(connection: Connection[Any]) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return 0 if row is None else int(row[0])


def _create_tables(transaction: PostgresTransaction, tables: TableGroup) -> None:
    if transaction.execute("SELECT to_regnamespace(?) IS NULL", (tables.schema,)).fetchone() == (True,):
        transaction.execute(f"CREATE SCHEMA {tables.schema}")
    # first a look: a user who may not create tables uses those that are there
    found = _read_version(transaction, tables.name)
    if found is None:
        transaction.execute(FORMATS_TABLE)
        for statement in tables.statements:
            transaction.execute(statement)
        transaction.execute("INSERT INTO onym_formats VALUES (?, ?)", (tables.name, tables.version))
    elif found > tables.version:
        raise StoreError(
            f"a later version of Onym has changed the tables of the database (format {found}, not "
            f"{tables.version})",
            code="store.newer",
            hint="Upgrade Onym on this machine too.",
        )


def _read_version(transaction: PostgresTransaction, name: str) -> int | None:
    if transaction.execute("SELECT to_regclass('onym_formats') IS NULL").fetchone() == (True,):
        return None
    row = transaction.execute("SELECT version FROM onym_formats WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def _convert_error(error: Exception, *, code: str = _UNREACHABLE) -> StoreError:
    """Return an error with the class and the code of psycopg's: its text may quote values and the URL."""
    state = getattr(error, "sqlstate", None)
    return _make_error(f"{type(error).__name__} {state}" if state else type(error).__name__, code=code)


def _make_error(reason: str, *, code: str = _UNREACHABLE) -> StoreError:
    return StoreError(
        f"the database cannot be used now: {reason}",
        code=code,
        hint="Check that it runs, and the host and the user in the URL.",
    )


def _make_pooler_error() -> StoreError:
    return StoreError(
        "the connection changes its session of the server, as behind a pooler in transaction mode",
        code="store.pooler",
        hint="Use a URL that leads to PostgreSQL itself, or to a pooler in session mode.",
    )
