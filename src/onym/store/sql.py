"""SQL databases, SQLite or PostgreSQL: open, read and write one.

SQLite: one file in WAL mode with `synchronous=FULL` (a committed transaction survives kill -9 and a
power cut) and foreign keys on. Writers begin with `BEGIN IMMEDIATE`, so that a writer never finds at its
end that it read old data. The transaction control of pysqlite is off: SQLAlchemy's events begin
transactions.

PostgreSQL: writers wait for an advisory lock that ends with their transaction. A transaction that still
loses a race is tried again; after `TRIES` tries the result is a `StaleError`.

`sql_errors` turns the failures of both into StoreError. Each application passes a `DatabaseProfile` with
its error codes, its hints and the number of its advisory lock.

A cursor marks where the next page of a list begins. It belongs to one list with one set of filters, and is
checked when it comes back. It contains no secret and is not signed: queries only compare with its content.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Dialect,
    Integer,
    String,
    Text,
    TypeDecorator,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine  # noqa: TID251 - here only
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeEngine

from onym.common.strict_json import decode_base64url, encode_base64url
from onym.common.text import format_timestamp, parse_timestamp
from onym.errors import RegistryError, StaleError, StoreError
from onym.store.sql_errors import (
    NO_CONNECT,
    NO_MORE_CONNECTIONS,
    NO_PASSWORD,
    OLD_SERVER,
    REJECTED_USER,
    UNKNOWN_DATABASE,
    WRONG_PASSWORD,
    DatabaseProfile,
    Failure,
    is_lost_race,
    make_failure_error,
    translate_errors,
)
from onym.store.sqlite import create_private_file, enable_wal
from onym.uri.secret import Secret


class Time(TypeDecorator[datetime]):
    """A column of times in UTC, stored as 27 characters: `2026-01-02T03:04:05.000006Z`."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Return the text to store."""
        return None if value is None else format_timestamp(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return the time that was stored. Raises StoreError (store.bad-time)."""
        try:
            return None if value is None else parse_timestamp(value)
        except ValueError as error:
            raise StoreError(
                f"the database contains a time that cannot be read: {error}",
                code="store.bad-time",
                hint="Restore a backup: another program changed the database.",
            ) from None


def make_text_type() -> TypeEngine[str]:
    """Return the type of text that compares by code point, whatever the locale of the database."""
    return Text().with_variant(Text(collation="C"), "postgresql")


def make_number_type() -> TypeEngine[int]:
    """Return the type of row numbers. SQLite numbers rows by itself only if the key is INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


_Result = TypeVar("_Result")

#: how often one transaction is tried
TRIES: Final = 5
#: seconds that a writer waits for another one
_PATIENCE: Final = 15
#: the execution option that names the statement with which SQLite begins a transaction
_BEGIN: Final = "onym_begin"


class Database:
    """An open database. `dialect` is "sqlite" or "postgresql"; `path` is the file of a SQLite database.

    Raises StoreError (`bad-url`) for any other URL. The URL may contain a password and is never shown.
    """

    def __init__(self, url: str | Path | Secret, profile: DatabaseProfile) -> None:
        self.profile = profile
        self._url = _parse_url(url, profile)
        self.dialect = self._url.get_backend_name()
        self.path = Path(self._url.database or "") if self.dialect == "sqlite" else None
        create_engines = _create_sqlite_engines if self.path is not None else _create_postgresql_engines
        self._plain, self._snapshot, self._writer = create_engines(self._url)
        # writers of one process wait here, which needs no polling
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Database {self.dialect} {self._url.database}>"

    async def close(self) -> None:
        """Close all connections."""
        await self._plain.dispose()

    async def check_connection(self) -> None:
        """Connect to the PostgreSQL server; explain a failure better than a later call can.

        Raises StoreError: `unreachable`, `wrong-credentials`, `unknown-database`, `no-permission`,
        `too-many-connections`, `old-server`.
        """
        if self.path is not None:
            return
        with translate_errors(self.profile, self._url):
            try:
                async with self._plain.connect() as connection:
                    version = connection.dialect.server_version_info or ()
            except DBAPIError as error:
                failure = await _diagnose_connection(self._url, error)
                if failure is None:
                    raise
                raise make_failure_error(self.profile, failure, self._url) from None
        if tuple(version) < _OLDEST_SERVER:
            raise make_failure_error(self.profile, OLD_SERVER, self._url)

    def has_file(self) -> bool:
        """Report whether the SQLite file exists; a PostgreSQL database reports for itself."""
        return self.path is None or self.path.is_file()

    def require_readable(self) -> None:
        """Raise StoreError (`io`) if this user may not read the file.

        SQLite would only say that it cannot open the file.
        """
        if self.path is not None and self.path.is_file() and not os.access(self.path, os.R_OK):
            raise StoreError(
                f"this user may not read {self.path}",
                code=f"{self.profile.name}.io",
                hint="Check the owner and the mode of the file.",
            )

    def create_file(self) -> None:
        """Create an empty SQLite file that only its owner can read: it may contain password hashes."""
        if self.path is not None:
            with translate_errors(self.profile, self._url):
                create_private_file(self.path)
            # other faults of the file are reported when it is opened
            with (
                suppress(sqlite3.Error),
                closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as connection,
            ):
                enable_wal(connection, _PATIENCE)

    @asynccontextmanager
    async def open_reader(self, *, snapshot: bool = False) -> AsyncIterator[AsyncConnection]:
        """Open a connection for reading; with `snapshot`, several statements see the same state."""
        with translate_errors(self.profile, self._url):
            async with (self._snapshot if snapshot else self._plain).connect() as connection:
                yield connection

    async def run_transaction(self, work: Callable[[AsyncConnection], Awaitable[_Result]]) -> _Result:
        """Run `work` in a transaction that does not overlap with those of other writers.

        `work` may run again from the start, so it must change nothing but the database. Raises StaleError
        for a race lost `TRIES` times and StoreError for a failure; nothing is written then.
        """
        with translate_errors(self.profile, self._url):
            for _ in range(TRIES):
                try:
                    async with self._turn, self._writer.begin() as connection:
                        await self._lock_writers(connection)
                        return await work(connection)
                except DBAPIError as error:
                    if not is_lost_race(error):
                        raise
        raise StaleError(
            f"other writers changed the database first, {TRIES} times in a row",
            code=f"{self.profile.name}.stale",
            hint="Read the data again, then try again.",
        )

    async def forget_deleted(self) -> None:
        """Overwrite what a SQLite file keeps of deleted rows. PostgreSQL does so by itself (autovacuum)."""
        if self.path is None:
            return
        with translate_errors(self.profile, self._url):
            async with self._turn, self._plain.connect() as connection:
                await connection.exec_driver_sql("VACUUM")
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _lock_writers(self, connection: AsyncConnection) -> None:
        if self.dialect == "postgresql":
            await connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}s'"))
            await connection.execute(
                text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.profile.lock_key}
            )


#: the oldest PostgreSQL that the tests cover
_OLDEST_SERVER: Final = (14,)
#: databases that every PostgreSQL server has
_MAINTENANCE: Final = ("postgres", "template1")
#: seconds for each step of a diagnosis
_DIAGNOSIS_SECONDS: Final = 3


async def _diagnose_connection(url: URL, error: DBAPIError) -> Failure | None:
    """Return why the server rejected a connection, or None if it did not answer.

    The driver reports only a text. Its flags, the server's other databases and its port show the cause.
    """
    attempt = getattr(error.orig, "pgconn", None)
    if attempt is None:
        return None
    for database in _MAINTENANCE:
        engine = create_async_engine(
            url.set(database=database),
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={"connect_timeout": _DIAGNOSIS_SECONDS},
        )
        query = text(
            "SELECT has_database_privilege(datname, 'CONNECT') FROM pg_database WHERE datname = :name"
        )
        with suppress(SQLAlchemyError):
            async with engine.connect() as connection:
                allowed = (await connection.execute(query, {"name": url.database or url.username})).scalar()
            return UNKNOWN_DATABASE if allowed is None else NO_MORE_CONNECTIONS if allowed else NO_CONNECT
    if attempt.needs_password:
        return NO_PASSWORD
    if attempt.used_password:
        return WRONG_PASSWORD
    return REJECTED_USER if await _is_listening(url) else None


async def _is_listening(url: URL) -> bool:
    """Report whether a server accepts connections at the first host of the URL."""
    host = str(url.host or url.normalized_query.get("host", ("localhost",))[0])
    port = url.port or int(url.normalized_query.get("port", ("5432",))[0])
    try:
        async with asyncio.timeout(_DIAGNOSIS_SECONDS):
            if host.startswith("/"):
                _, writer = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


_FORMATS: Final = "CREATE TABLE IF NOT EXISTS onym_formats (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"


async def prepare_tables(database: Database, name: str, version: int, statements: Sequence[str]) -> None:
    """Create a group of tables of a PostgreSQL database, unless this or an older version of Onym did.

    The table `onym_formats` has the version of each group. Raises StoreError (`newer`) for a later one.
    """

    async def read_version(connection: AsyncConnection) -> int | None:
        exists = await connection.execute(text("SELECT to_regclass('onym_formats') IS NOT NULL"))
        if not exists.scalar_one():
            return None
        query = text("SELECT version FROM onym_formats WHERE name = :name")
        found: int | None = (await connection.execute(query, {"name": name})).scalar_one_or_none()
        return found

    async def create_tables(connection: AsyncConnection) -> int:
        # first a look: a user who may not create tables uses those that are there
        found = await read_version(connection)
        if found is None:
            await connection.execute(text(_FORMATS))
            for statement in statements:
                await connection.exec_driver_sql(statement)
            query = text("INSERT INTO onym_formats VALUES (:name, :version)")
            await connection.execute(query, {"name": name, "version": version})
        return version if found is None else found

    async with database.open_reader() as connection:
        found = await read_version(connection)
    if found is None:
        found = await database.run_transaction(create_tables)
    if found > version:
        raise StoreError(
            f"a later version of Onym has changed the tables of the database (format {found}, not {version})",
            code=f"{database.profile.name}.newer",
            hint="Upgrade Onym on this machine too.",
        )


def _parse_url(address: str | Path | Secret, profile: DatabaseProfile) -> URL:
    plain = address.reveal() if isinstance(address, Secret) else str(address)
    if isinstance(address, Path) or "://" not in plain:
        url = URL.create("sqlite", database=plain)
    else:
        try:
            url = make_url(plain)
        except (ArgumentError, ValueError):
            # SQLAlchemy's messages quote the URL
            raise _make_url_error(profile, "not a database URL") from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise _make_url_error(profile, "the database URL is neither for SQLite nor for PostgreSQL")
    if driver == _SQLITE and (not url.database or ":memory:" in url.database or url.query):
        raise _make_url_error(profile, "a SQLite URL needs a file and has no options")
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


def _make_url_error(profile: DatabaseProfile, message: str) -> StoreError:
    return StoreError(
        message,
        code=f"{profile.name}.bad-url",
        field="url",
        hint="Write a file name, or postgresql+psycopg://USER@HOST/DATABASE.",
    )


_Engines = tuple[AsyncEngine, AsyncEngine, AsyncEngine]


def _create_sqlite_engines(url: URL) -> _Engines:
    """Return three engines over one pool: without transactions, for read snapshots and for writing."""
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


#: the largest page
MAX_LIMIT: Final = 1000
_MAX_CURSOR: Final = 1024
_Item = TypeVar("_Item", covariant=True)
_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_Item]):
    """Some items in order; `next` is the cursor of the next page, None at the end."""

    items: tuple[_Item, ...]
    next: str | None = None


def encode_cursor(filters: tuple[object, ...], key: int | str) -> str:
    """Return the cursor of the page after the item with this key."""
    data = json.dumps([_hash_filters(filters), key], ensure_ascii=False, separators=(",", ":"))
    return encode_base64url(data.encode())


def decode_cursor(cursor: str, filters: tuple[object, ...], kind: type[_Key]) -> _Key:
    """Return the key in a cursor. Raises RegistryError (store.bad-cursor, field "after")."""
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError
        digest, key = json.loads(decode_base64url(cursor))
    except (ValueError, TypeError, RecursionError):
        raise _make_cursor_error() from None
    if digest != _hash_filters(filters) or type(key) is not kind or not _is_usable_key(key):
        raise _make_cursor_error()
    checked: _Key = key
    return checked


def require_limit(limit: int) -> int:
    """Return the limit. Raises RegistryError (store.bad-limit) unless it is 1 to `MAX_LIMIT`."""
    if not 1 <= limit <= MAX_LIMIT:
        raise RegistryError(
            f"a page cannot have {limit} items",
            code="store.bad-limit",
            field="limit",
            hint=f"Use a limit from 1 to {MAX_LIMIT}.",
        )
    return limit


def is_storable(text: str) -> bool:
    """Report whether every database can store the text.

    PostgreSQL does not store NUL, and UTF-8 cannot encode half of a surrogate pair.
    """
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def replace_unstorable(text: str) -> str:
    """Return the text with a question mark for each character that some database cannot store."""
    return text if is_storable(text) else text.encode("utf-8", "replace").decode().replace("\0", "?")


def _is_usable_key(key: int | str) -> bool:
    return is_storable(key) if isinstance(key, str) else 0 <= key < 1 << 62


def _hash_filters(filters: tuple[object, ...]) -> str:
    text = json.dumps([None if value is None else str(value) for value in filters])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _make_cursor_error() -> RegistryError:
    return RegistryError(
        "the cursor does not belong to this list",
        code="store.bad-cursor",
        field="after",
        hint="Take it from `next` of the previous page, with the same filters, or leave it out.",
    )
