"""SQL databases, SQLite or PostgreSQL: open, read and write one, and turn driver errors into `StoreError`.

SQLite: one file in WAL mode with `synchronous=FULL` (a committed transaction survives kill -9 and a
power cut) and foreign keys on. Writers begin with `BEGIN IMMEDIATE`, so that no writer finds at its end
that it read old data. The transaction control of pysqlite is off: SQLAlchemy's events begin
transactions.

PostgreSQL: writers wait for an advisory lock that ends with their transaction. A transaction that still
loses a race is tried again; after `TRIES` tries the result is a `StaleError`.

Failures are told apart by SQLite's result codes and PostgreSQL's SQLSTATE, never by the text of a
message, and no secret appears in an error.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from onym.errors import StaleError, StoreError
from onym.uri.secret import Secret


class _Failure(NamedTuple):
    """What one class of failures means, and what to do."""

    code: str
    message: str
    hint: str


_BUSY: Final = _Failure(
    "registry.busy", "the database is busy with another writer", "try again; look for a writer that hangs"
)
_FULL: Final = _Failure(
    "registry.full", "no room is left for the database", "make room; nothing was half-written"
)
_READ_ONLY: Final = _Failure(
    "registry.read-only", "the database does not let itself be written", "check owner and mode of the file"
)
_CORRUPT: Final = _Failure(
    "registry.corrupt", "the database file is damaged, or no database", "restore a backup into a new file"
)
_UNREACHABLE: Final = _Failure(
    "registry.unreachable",
    "the database cannot be reached",
    "check that it runs, and the URL's host and user",
)
_GUARDED: Final = _Failure(
    "registry.append-only", "the log takes no change and no deletion", "record an override instead"
)
_NO_SCHEMA: Final = _Failure(
    "registry.wrong-schema", "the database has not the tables of a registry", "run: onym registry init"
)
_OTHER: Final = _Failure("registry.store", "the database refused", "see the cause above; the log has more")

#: SQLite's primary result codes (sqlite3.h); SQLITE_CONSTRAINT_TRIGGER is looked up whole
_SQLITE_FAILURES: Final = MappingProxyType(
    {
        5: _BUSY,
        6: _BUSY,
        8: _READ_ONLY,
        10: _Failure("registry.io", "the disk does not do what it should", "check disk and file system"),
        11: _CORRUPT,
        13: _FULL,
        14: _UNREACHABLE._replace(hint="check that the folder exists and may be written"),
        26: _CORRUPT,
        1811: _GUARDED,
    }
)

#: SQLSTATE, whole or by its class (PostgreSQL, appendix A)
_SQLSTATE_FAILURES: Final = MappingProxyType(
    {
        "08": _UNREACHABLE,
        "28": _UNREACHABLE._replace(message="the database does not let this user in"),
        "3D": _UNREACHABLE._replace(message="there is no database of that name"),
        "40": _BUSY,
        "42P01": _NO_SCHEMA,
        "42501": _READ_ONLY._replace(hint="grant the user its rights"),
        "25006": _READ_ONLY,
        "53": _FULL,
        "55P03": _BUSY,
        "57": _UNREACHABLE,
        "ON001": _GUARDED,
        "XX001": _CORRUPT,
        "XX002": _CORRUPT,
    }
)
#: serialisation failure, deadlock, lock not had in time
_RACES: Final = frozenset({"40001", "40P01", "55P03"})
_UNIQUE: Final = frozenset({"23505"})
_SQLITE_UNIQUE: Final = frozenset({1555, 2067})


@contextmanager
def translate_errors() -> Iterator[None]:
    """Driver errors that leave the block do so as StoreError; all others pass."""
    try:
        yield
    except SQLAlchemyError as error:
        row = _find_failure(error)
        raise StoreError(f"{row.message}: {_format_cause(error)}", code=row.code, hint=row.hint) from None
    except OSError as error:
        raise StoreError(
            f"the file cannot be used: {error.strerror or type(error).__name__}",
            code="registry.io",
            hint="check path, owner and room",
        ) from None


def is_lost_race(error: BaseException) -> bool:
    """Did another transaction come between, so that the same again may succeed?"""
    return isinstance(error, DBAPIError) and _get_sqlstate(error) in _RACES


def is_duplicate(error: BaseException) -> bool:
    """Did a unique key refuse the row?"""
    if not isinstance(error, DBAPIError):
        return False
    return _get_sqlstate(error) in _UNIQUE or _get_sqlite_code(error) in _SQLITE_UNIQUE


def _find_failure(error: SQLAlchemyError) -> _Failure:
    if not isinstance(error, DBAPIError):
        return _OTHER
    code, state = _get_sqlite_code(error), _get_sqlstate(error)
    if code is not None:
        return _SQLITE_FAILURES.get(code) or _SQLITE_FAILURES.get(code & 0xFF, _OTHER)
    if state:
        return _SQLSTATE_FAILURES.get(state) or _SQLSTATE_FAILURES.get(state[:2], _OTHER)
    # psycopg has no SQLSTATE where no server answered
    return _UNREACHABLE if error.connection_invalidated or _is_connection_failure(error) else _OTHER


def _is_connection_failure(error: DBAPIError) -> bool:
    return type(error.orig).__name__ in {"OperationalError", "ConnectionTimeout", "PoolTimeout"}


def _format_cause(error: SQLAlchemyError) -> str:
    """Class and code, not the text: that may quote values, file names and connection strings."""
    if not isinstance(error, DBAPIError):
        return type(error).__name__
    name: Any = getattr(error.orig, "sqlite_errorname", None) or _get_sqlstate(error)
    return f"{type(error.orig).__name__} {name}" if name else type(error.orig).__name__


def _get_sqlite_code(error: DBAPIError) -> int | None:
    code: int | None = getattr(error.orig, "sqlite_errorcode", None)
    return code


def _get_sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state


_Result = TypeVar("_Result")

#: how often one transaction is tried
TRIES: Final = 5
#: seconds that a writer waits for another one
_PATIENCE: Final = 15
#: and between two looks, where SQLite does not wait by itself
_PAUSE: Final = 0.01
#: the key of the advisory lock: the letters "onym"
_LOCK: Final = int.from_bytes(b"onym")
#: the execution option that names how SQLite begins
_BEGIN: Final = "onym_begin"


class Database:
    """An open database. `dialect` is "sqlite" or "postgresql"; `path` the file of the former.

    Raises StoreError (registry.bad-url) for a URL that is neither. The URL may hold a password and is
    shown nowhere.
    """

    def __init__(self, url: str | Path | Secret) -> None:
        self._url = _parse_url(url)
        self.dialect = self._url.get_backend_name()
        self.path = Path(self._url.database or "") if self.dialect == "sqlite" else None
        make = _create_sqlite_engines if self.path is not None else _create_postgresql_engines
        self._plain, self._snapshot, self._writer = make(self._url)
        # one process need not wait by polling for itself
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Database {self.dialect} {self._url.database}>"

    async def close(self) -> None:
        """Give the connections back."""
        await self._plain.dispose()

    def has_file(self) -> bool:
        """Is there a file to open? PostgreSQL answers for itself."""
        return self.path is None or self.path.is_file()

    def require_readable(self) -> None:
        """Raises StoreError (registry.io) for a file that is not ours to read.

        SQLite would say no more than that it cannot open it.
        """
        if self.path is not None and self.path.is_file() and not os.access(self.path, os.R_OK):
            raise StoreError(
                f"{self.path} is not for this user to read",
                code="registry.io",
                hint="check owner and mode of the file",
            )

    def create_file(self) -> None:
        """An empty file that its owner alone may read, where there is none: it will hold password hashes."""
        if self.path is not None:
            with translate_errors():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            _enable_wal(self.path)

    @asynccontextmanager
    async def open_reader(self, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
        """A connection for reading. `snapshot`: several statements that see the same state."""
        with translate_errors():
            async with (self._snapshot if snapshot else self._plain).connect() as connection:
                yield connection

    async def run_transaction(self, work: Callable[[AsyncConnection], Awaitable[_Result]]) -> _Result:
        """Run `work` in a transaction of its own, which no other writer's overlaps.

        It may be run again from the start, so it changes nothing but the database. Raises StaleError for a
        race lost `TRIES` times, StoreError for what the database cannot do; nothing is written then.
        """
        with translate_errors():
            for _ in range(TRIES):
                try:
                    async with self._turn, self._writer.begin() as connection:
                        await self._lock_writers(connection)
                        return await work(connection)
                except DBAPIError as error:
                    if not is_lost_race(error):
                        raise
        raise StaleError(
            "others were faster each time", code="registry.stale", hint="read it again, then try again"
        )

    async def _lock_writers(self, connection: AsyncConnection) -> None:
        if self.dialect == "postgresql":
            await connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _enable_wal(path: Path) -> None:
    """Write-ahead logging, which stays with the file.

    SQLite's patience does not cover this change: of two that made it at once, one would be told "locked".
    What else is wrong with a file is told when it is opened.
    """
    until = time.monotonic() + _PATIENCE
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as base:
        while True:
            try:
                base.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE)


def _parse_url(given: str | Path | Secret) -> URL:
    plain = given.reveal() if isinstance(given, Secret) else str(given)
    if isinstance(given, Path) or "://" not in plain:
        url = URL.create("sqlite", database=plain)
    else:
        try:
            url = make_url(plain)
        except (ArgumentError, ValueError):
            # their texts quote the URL
            raise _make_url_error("not a database URL") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise _make_url_error("neither SQLite nor PostgreSQL")
    if driver == _SQLITE and (not url.database or ":memory:" in url.database or url.query):
        raise _make_url_error("SQLite needs a file, and takes no options")
    return url.set(drivername=driver)


_SQLITE: Final = "sqlite+aiosqlite"
_POSTGRESQL: Final = "postgresql+psycopg"
_DRIVERS: Final = {
    "sqlite": _SQLITE,
    _SQLITE: _SQLITE,
    "postgres": _POSTGRESQL,
    "postgresql": _POSTGRESQL,
    _POSTGRESQL: _POSTGRESQL,
}


def _make_url_error(message: str) -> StoreError:
    return StoreError(
        message,
        code="registry.bad-url",
        field="url",
        hint="write a file name, or postgresql+psycopg://USER@HOST/DATABASE",
    )


_Engines = tuple[AsyncEngine, AsyncEngine, AsyncEngine]


def _create_sqlite_engines(url: URL) -> _Engines:
    """Engines over one pool: without a transaction, with a read snapshot, for writing."""
    engine = create_async_engine(url, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _configure_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return (
        engine,
        engine.execution_options(**{_BEGIN: "BEGIN"}),
        engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"}),
    )


def _configure_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {_PATIENCE * 1000}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    begin = connection.get_execution_options().get(_BEGIN)
    if begin:
        connection.exec_driver_sql(begin)


def _create_postgresql_engines(url: URL) -> _Engines:
    engine = create_async_engine(
        url, hide_parameters=True, pool_pre_ping=True, connect_args={"connect_timeout": _PATIENCE}
    )
    return (
        engine.execution_options(isolation_level="AUTOCOMMIT"),
        engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
        engine.execution_options(isolation_level="READ COMMITTED"),
    )
