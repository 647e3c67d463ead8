"""SQL databases, SQLite or PostgreSQL: open, read and write one, and report its failures as `StoreError`.

SQLite is one file in WAL mode with `synchronous=FULL`; writers begin with `BEGIN IMMEDIATE`. PostgreSQL's
writers wait for an advisory lock; a transaction that loses a race is tried again. Failures are classified by
their codes, never by the text of a message. Each application passes a `DatabaseProfile` with its error codes
and hints.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
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

from onym.common.text import decode_base64url, encode_base64url, format_timestamp, parse_timestamp
from onym.errors import RegistryError, StaleError, StoreError
from onym.store.postgres import FORMATS_TABLE
from onym.store.sqlite import create_private_file, enable_wal
from onym.uri.secret import Secret


@dataclass(frozen=True, slots=True)
class Failure:
    """One class of database failures: the last part of its code, what happened and what to do.

    `{user}` and `{database}` in message and hint become the names in the URL of a PostgreSQL database.
    """

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseProfile:
    """What an application says about its database.

    Error codes begin with `name` ("registry" gives `registry.busy`). `lock_key` is the PostgreSQL advisory
    lock of its writers: applications that share a database use different keys. `failures` are by SQLite
    result code (int) or SQLSTATE (str) and take precedence over the general ones.
    """

    name: str
    lock_key: int
    failures: Mapping[int | str, Failure] = field(default_factory=dict)


_BUSY: Final = Failure(
    "busy",
    "the database is busy with another writer",
    "Try again. If it stays busy, look for a stuck writer.",
)
_FULL: Final = Failure(
    "full", "the disk of the database is full", "Free some space; nothing was half-written."
)
_READ_ONLY: Final = Failure(
    "read-only", "the database is read-only", "Check the owner and the mode of the file."
)
_READ_ONLY_SERVER: Final = Failure(
    "read-only",
    "the database is read-only",
    "Name the primary server in the URL if this is a standby; otherwise run in psql, as the owner of the "
    "database: ALTER DATABASE {database} RESET default_transaction_read_only",
)
_DISK: Final = Failure("io", "the disk reported an error", "Check the disk and the file system.")
_CORRUPT: Final = Failure(
    "corrupt", "the file is damaged or not a database", "Restore a backup into a new file."
)
_UNREACHABLE: Final = "unreachable"
_CONNECTION: Final = Failure(
    _UNREACHABLE,
    "the database cannot be reached",
    "Check that it runs, and the host and the port in the URL.",
)
#: failures of the first connection, which have no SQLSTATE; `Database.check_connection` tells them apart
WRONG_PASSWORD: Final = Failure(
    "wrong-credentials",
    "the database server rejected the user or the password",
    "Check both in the URL; as an administrator, set a password in psql: \\password {user}",
)
NO_PASSWORD: Final = Failure(
    "wrong-credentials",
    "the database server asks for a password, and the URL has none",
    "Write postgresql://USER:PASSWORD@HOST/DATABASE, or put the password into ~/.pgpass.",
)
REJECTED_USER: Final = Failure(
    "wrong-credentials",
    "the database server is running, but rejects the user {user}",
    "If the user is missing, run as an administrator: createuser {user}; otherwise allow the user, the "
    "database and this host in pg_hba.conf.",
)
UNKNOWN_DATABASE: Final = Failure(
    "unknown-database",
    "the database server has no database {database}",
    "Check the last part of the URL, or run as an administrator: createdb -O {user} {database}",
)
NO_CONNECT: Final = Failure(
    "no-permission",
    "the user {user} may not connect to the database {database}",
    "Run in psql, as the owner of the database: GRANT CONNECT ON DATABASE {database} TO {user}",
)
NO_MORE_CONNECTIONS: Final = Failure(
    "too-many-connections",
    "the database accepts no further connections",
    "Stop other clients, or raise max_connections of the server or the limit of the database or the user.",
)
OLD_SERVER: Final = Failure(
    "old-server",
    "the database server is older than PostgreSQL 14",
    "Upgrade the server, or use a SQLite file.",
)
_OTHER: Final = Failure("store", "the database reported an error", "Look at the log of the database.")

#: by SQLite's result code (sqlite3.h), whole or primary, and by SQLSTATE (PostgreSQL, appendix A), whole or
#: its class
_FAILURES: Final[Mapping[int | str, Failure]] = MappingProxyType(
    {
        5: _BUSY,
        6: _BUSY,
        8: _READ_ONLY,
        10: _DISK,
        11: _CORRUPT,
        13: _FULL,
        14: Failure(
            _UNREACHABLE,
            "the database file cannot be opened",
            "Check that the folder exists and can be written to.",
        ),
        26: _CORRUPT,
        "08": _CONNECTION,
        "28": WRONG_PASSWORD,
        "3D": UNKNOWN_DATABASE,
        "40": _BUSY,
        "42501": Failure(
            "no-permission",
            "the user {user} lacks a permission in the database {database}",
            "Run in psql, as the owner of the database: GRANT USAGE, CREATE ON SCHEMA public TO {user}; "
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}; "
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {user};",
        ),
        "25006": _READ_ONLY_SERVER,
        "53": Failure(
            "no-resources", "the database server lacks memory or another resource", "Look at its log."
        ),
        "53100": _FULL,
        "53300": NO_MORE_CONNECTIONS,
        "55P03": _BUSY,
        "57": _CONNECTION,
        "57014": Failure(
            "busy",
            "the database server canceled the statement",
            "Try again. Raise statement_timeout of the user {user} if it is set.",
        ),
        "58": _DISK,
        "58P01": Failure(
            "missing-file",
            "the database server misses one of its files",
            "Look at its log for the name of the file, and install the package that contains it.",
        ),
        "XX001": _CORRUPT,
        "XX002": _CORRUPT,
    }
)
#: serialisation failure, deadlock, lock timeout
_RACES: Final = frozenset({"40001", "40P01", "55P03"})
_UNIQUE: Final = frozenset({"23505"})
_SQLITE_UNIQUE: Final = frozenset({1555, 2067})


@contextmanager
def translate_errors(profile: DatabaseProfile, url: URL | None = None) -> Iterator[None]:
    """Turn driver errors that leave the block into StoreError; all others pass."""
    try:
        yield
    except SQLAlchemyError as error:
        raise make_failure_error(
            profile, find_failure(profile, error), url, cause=_format_cause(error)
        ) from None
    except OSError as error:
        raise StoreError(
            f"the database file cannot be used: {error.strerror or type(error).__name__}",
            code=f"{profile.name}.io",
            hint="Check the path, the owner and the free space.",
        ) from None


def make_failure_error(
    profile: DatabaseProfile, failure: Failure, url: URL | None, *, cause: str = ""
) -> StoreError:
    """Return the error of a failure. `cause` is the class and code of the driver's error."""
    names = {
        "{user}": _quote_name(None if url is None else url.username, "USER"),
        "{database}": _quote_name(None if url is None else url.database or url.username, "DATABASE"),
    }
    message, hint = failure.message, failure.hint
    for placeholder, name in names.items():
        message, hint = message.replace(placeholder, name), hint.replace(placeholder, name)
    return StoreError(
        f"{message}: {cause}" if cause else message, code=f"{profile.name}.{failure.code}", hint=hint
    )


#: names that can stand in SQL and in a shell as they are; another one may be a part of a password with "/"
_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


def _quote_name(name: str | None, placeholder: str) -> str:
    return name if name is not None and _PLAIN_NAME.match(name) else placeholder


def is_lost_race(error: BaseException) -> bool:
    """Report whether another transaction came between, so that the same one may succeed now."""
    return isinstance(error, DBAPIError) and _get_sqlstate(error) in _RACES


def is_duplicate(error: BaseException) -> bool:
    """Report whether a unique key rejected the row."""
    if not isinstance(error, DBAPIError):
        return False
    return _get_sqlstate(error) in _UNIQUE or _get_sqlite_code(error) in _SQLITE_UNIQUE


def find_failure(profile: DatabaseProfile, error: SQLAlchemyError) -> Failure:
    """Return the failure that an error of SQLAlchemy or its driver reports."""
    if not isinstance(error, DBAPIError):
        return _OTHER
    code, state = _get_sqlite_code(error), _get_sqlstate(error)
    keys: tuple[int | str, ...] = ()
    if code is not None:
        keys = (code, code & 0xFF)
    elif state:
        keys = (state, state[:2])
    elif error.connection_invalidated or _is_connection_failure(error):
        return _CONNECTION  # psycopg has no SQLSTATE if no server answered
    for table in (profile.failures, _FAILURES):
        for key in keys:
            if key in table:
                return table[key]
    return _OTHER


def _is_connection_failure(error: DBAPIError) -> bool:
    return type(error.orig).__name__ in {"OperationalError", "ConnectionTimeout", "PoolTimeout"}


def _format_cause(error: SQLAlchemyError) -> str:
    """Return class and code, not the text, which may quote values, file names and connection strings."""
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
            await connection.execute(text(FORMATS_TABLE))
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
