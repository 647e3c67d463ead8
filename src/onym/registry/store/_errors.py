"""The seam: what database and driver raise becomes `StoreError`, and nothing secret comes through.

Told apart by SQLite's result codes and PostgreSQL's SQLSTATE, never by the text of a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from onym.errors import StoreError

__all__ = ["is_duplicate", "lost_race", "translated"]


class _Row(NamedTuple):
    """What one class of failures means, and what to do."""

    code: str
    message: str
    hint: str


_BUSY: Final = _Row(
    "registry.busy", "the database is busy with another writer", "try again; look for a writer that hangs"
)
_FULL: Final = _Row(
    "registry.full", "no room is left for the database", "make room; nothing was half-written"
)
_READ_ONLY: Final = _Row(
    "registry.read-only", "the database does not let itself be written", "check owner and mode of the file"
)
_CORRUPT: Final = _Row(
    "registry.corrupt", "the database file is damaged, or no database", "restore a backup into a new file"
)
_UNREACHABLE: Final = _Row(
    "registry.unreachable",
    "the database cannot be reached",
    "check that it runs, and the URL's host and user",
)
_GUARDED: Final = _Row(
    "registry.append-only", "the log takes no change and no deletion", "record an override instead"
)
_NO_SCHEMA: Final = _Row(
    "registry.wrong-schema", "the database has not the tables of a registry", "run: onym registry init"
)
_OTHER: Final = _Row("registry.store", "the database refused", "see the cause above; the log has more")

#: SQLite's primary result codes (sqlite3.h); SQLITE_CONSTRAINT_TRIGGER is looked up whole
_SQLITE: Final = MappingProxyType(
    {
        5: _BUSY,
        6: _BUSY,
        8: _READ_ONLY,
        10: _Row("registry.io", "the disk does not do what it should", "check disk and file system"),
        11: _CORRUPT,
        13: _FULL,
        14: _UNREACHABLE._replace(hint="check that the folder exists and may be written"),
        26: _CORRUPT,
        1811: _GUARDED,
    }
)

#: SQLSTATE, whole or by its class (PostgreSQL, appendix A)
_SQLSTATE: Final = MappingProxyType(
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
def translated() -> Iterator[None]:
    """Driver errors that leave the block do so as StoreError; all others pass."""
    try:
        yield
    except SQLAlchemyError as error:
        row = _row(error)
        raise StoreError(f"{row.message}: {_what(error)}", code=row.code, hint=row.hint) from None
    except OSError as error:
        raise StoreError(
            f"the file cannot be used: {error.strerror or type(error).__name__}",
            code="registry.io",
            hint="check path, owner and room",
        ) from None


def lost_race(error: BaseException) -> bool:
    """Did another transaction come between, so that the same again may succeed?"""
    return isinstance(error, DBAPIError) and _sqlstate(error) in _RACES


def is_duplicate(error: BaseException) -> bool:
    """Did a unique key refuse the row?"""
    if not isinstance(error, DBAPIError):
        return False
    return _sqlstate(error) in _UNIQUE or _sqlite_code(error) in _SQLITE_UNIQUE


def _row(error: SQLAlchemyError) -> _Row:
    if not isinstance(error, DBAPIError):
        return _OTHER
    code, state = _sqlite_code(error), _sqlstate(error)
    if code is not None:
        return _SQLITE.get(code) or _SQLITE.get(code & 0xFF, _OTHER)
    if state:
        return _SQLSTATE.get(state) or _SQLSTATE.get(state[:2], _OTHER)
    # psycopg has no SQLSTATE where no server answered
    return _UNREACHABLE if error.connection_invalidated or _never_connected(error) else _OTHER


def _never_connected(error: DBAPIError) -> bool:
    return type(error.orig).__name__ in {"OperationalError", "ConnectionTimeout", "PoolTimeout"}


def _what(error: SQLAlchemyError) -> str:
    """Class and code, not the text: that may quote values, file names and connection strings."""
    if not isinstance(error, DBAPIError):
        return type(error).__name__
    name: Any = getattr(error.orig, "sqlite_errorname", None) or _sqlstate(error)
    return f"{type(error.orig).__name__} {name}" if name else type(error.orig).__name__


def _sqlite_code(error: DBAPIError) -> int | None:
    code: int | None = getattr(error.orig, "sqlite_errorcode", None)
    return code


def _sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
