"""One database, SQLite or PostgreSQL: how it is opened, read and written.

SQLite: one file in WAL mode, `synchronous=FULL` (what was committed outlives kill -9 and a power cut),
foreign keys on, and writers that begin with `BEGIN IMMEDIATE`, so that none finds out at its end that it
read something old. pysqlite's own transaction control is off: SQLAlchemy's events begin.
PostgreSQL: writers of the log wait for an advisory lock that ends with their transaction; a race lost all
the same is tried again, and after `TRIES` times it is a `StaleError`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from onym.errors import StaleError, StoreError
from onym.registry.store._errors import lost_race, translated
from onym.uri.secret import Secret

__all__ = ["TRIES", "Database"]

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
        self._url = _read_url(url)
        self.dialect = self._url.get_backend_name()
        self.path = Path(self._url.database or "") if self.dialect == "sqlite" else None
        make = _sqlite if self.path is not None else _postgresql
        self._plain, self._snapshot, self._writer = make(self._url)
        # one process need not wait by polling for itself
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Database {self.dialect} {self._url.database}>"

    async def close(self) -> None:
        """Give the connections back."""
        await self._plain.dispose()

    def exists(self) -> bool:
        """Is there a file to open? PostgreSQL answers for itself."""
        return self.path is None or self.path.is_file()

    def check_readable(self) -> None:
        """Raises StoreError (registry.io) for a file that is not ours to read.

        SQLite would say no more than that it cannot open it.
        """
        if self.path is not None and self.path.is_file() and not os.access(self.path, os.R_OK):
            raise StoreError(
                f"{self.path} is not for this user to read",
                code="registry.io",
                hint="check owner and mode of the file",
            )

    def make_file(self) -> None:
        """An empty file that its owner alone may read, where there is none: it will hold password hashes."""
        if self.path is not None:
            with translated():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            _to_wal(self.path)

    @asynccontextmanager
    async def read(self, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
        """A connection for reading. `snapshot`: several statements that see the same state."""
        with translated():
            async with (self._snapshot if snapshot else self._plain).connect() as connection:
                yield connection

    async def write(self, work: Callable[[AsyncConnection], Awaitable[_Result]]) -> _Result:
        """Run `work` in a transaction of its own, which no other writer's overlaps.

        It may be run again from the start, so it changes nothing but the database. Raises StaleError for a
        race lost `TRIES` times, StoreError for what the database cannot do; nothing is written then.
        """
        with translated():
            for _ in range(TRIES):
                try:
                    async with self._turn, self._writer.begin() as connection:
                        await self._wait(connection)
                        return await work(connection)
                except DBAPIError as error:
                    if not lost_race(error):
                        raise
        raise StaleError(
            "others were faster each time", code="registry.stale", hint="read it again, then try again"
        )

    async def _wait(self, connection: AsyncConnection) -> None:
        if self.dialect == "postgresql":
            await connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _to_wal(path: Path) -> None:
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


def _read_url(given: str | Path | Secret) -> URL:
    plain = given.reveal() if isinstance(given, Secret) else str(given)
    if isinstance(given, Path) or "://" not in plain:
        url = URL.create("sqlite", database=plain)
    else:
        try:
            url = make_url(plain)
        except (ArgumentError, ValueError):
            # their texts quote the URL
            raise _bad_url("not a database URL") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise _bad_url("neither SQLite nor PostgreSQL")
    if driver == _SQLITE and (not url.database or ":memory:" in url.database or url.query):
        raise _bad_url("SQLite needs a file, and takes no options")
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


def _bad_url(message: str) -> StoreError:
    return StoreError(
        message,
        code="registry.bad-url",
        field="url",
        hint="write a file name, or postgresql+psycopg://USER@HOST/DATABASE",
    )


_Engines = tuple[AsyncEngine, AsyncEngine, AsyncEngine]


def _sqlite(url: URL) -> _Engines:
    """Engines over one pool: without a transaction, with a read snapshot, for writing."""
    engine = create_async_engine(url, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return (
        engine,
        engine.execution_options(**{_BEGIN: "BEGIN"}),
        engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"}),
    )


def _prepare_sqlite(connection: Any, record: object) -> None:
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


def _postgresql(url: URL) -> _Engines:
    engine = create_async_engine(
        url, hide_parameters=True, pool_pre_ping=True, connect_args={"connect_timeout": _PATIENCE}
    )
    return (
        engine.execution_options(isolation_level="AUTOCOMMIT"),
        engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
        engine.execution_options(isolation_level="READ COMMITTED"),
    )
