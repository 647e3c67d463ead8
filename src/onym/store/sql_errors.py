"""Failures of SQL databases: what SQLite and PostgreSQL report, as `StoreError` with a hint.

Failures are classified by SQLite's result codes and PostgreSQL's SQLSTATE, never by the text of a message,
which may be in any language and may quote values. Errors contain no secret. Each application passes a
`DatabaseProfile` with its error codes, its hints and the number of its advisory lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onym.errors import StoreError


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
