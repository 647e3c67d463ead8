"""Backups: SQLite's own online copy, or a portable file of JSON Lines that goes into either database.

The portable form is a heading, one line per log record, one per row of accounts, subjects, roles, tokens
and audit log, and an end that says how many. Sessions and the outbox are left out: they are of the day.
Both forms appear whole under their name or not at all, and only their owner may read them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Table, func, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import StoreError
from onym.registry.chain import canonical
from onym.registry.codec import from_data, from_time, to_time
from onym.registry.records import LogRecord
from onym.registry.store._database import Database
from onym.registry.store._errors import translated
from onym.registry.store._migrate import revision
from onym.registry.store._rows import log_row
from onym.registry.store._tables import (
    Time,
    account_roles,
    accounts,
    audit,
    log,
    subjects,
    tokens,
)
from onym.registry.store._types import Decide, Verified
from onym.registry.store._verify import Fold, rebuild_all

__all__ = ["copy_sqlite", "dump", "is_sqlite_file", "load"]

_FORMAT: Final = "onym-registry"
_VERSION: Final = 1
#: octets of one line
_MAX_LINE: Final = 32_000_000
_BATCH: Final = 1000
_TABLES: Final = (accounts, subjects, account_roles, tokens, audit)


async def copy_sqlite(source: Path, target: Path) -> None:
    """SQLite's online backup: consistent, while others read and write."""
    await asyncio.to_thread(_copy, source, target)


async def dump(database: Database, target: Path) -> None:
    """The portable form, of one moment."""
    with translated(), _appearing(target) as path, path.open("w", encoding="utf-8", newline="\n") as out:
        async with database.read(snapshot=True) as connection:
            async for line in _lines(connection):
                out.write(canonical(line) + "\n")
        await asyncio.to_thread(_sync, out)


async def load(database: Database, source: Path, decide: Decide) -> Verified:
    """Read the portable form into an empty registry; all of it, or nothing.

    The chain is followed and each record decided again on the way. Raises StoreError
    (registry.bad-backup, registry.not-empty, registry.broken-chain, registry.replay-failed).
    """

    async def work(connection: AsyncConnection) -> Verified:
        for table in (log, accounts):
            if (await connection.execute(select(func.count()).select_from(table))).scalar_one():
                raise StoreError(
                    "this registry is not empty",
                    code="registry.not-empty",
                    field="url",
                    hint="restore into a new database",
                )
        await _Loading(connection, decide).run(source)
        await _count_on(connection)
        return await rebuild_all(connection, decide)

    return await database.write(work)


async def _count_on(connection: AsyncConnection) -> None:
    """Let PostgreSQL number the next rows after those that came with numbers; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in _TABLES:
        column = table.autoincrement_column
        last = None if column is None else await connection.scalar(select(func.max(column)))
        if column is not None and last is not None:
            sequence = func.pg_get_serial_sequence(table.name, column.name)
            await connection.execute(select(func.setval(sequence, last)))


def check_target(database: Path | None, target: Path) -> None:
    """Refuse a backup over the database itself, or a file beside it that is a part of it.

    The copy would take its place, and what a service that runs still writes would be lost.
    """
    if not target.name:
        raise StoreError("the backup has no name", code="registry.io", field="file", hint="name a file")
    own = (
        ()
        if database is None
        else (database, *(Path(f"{database}{end}") for end in ("-wal", "-shm", "-journal")))
    )
    if any(
        each.resolve() == target.resolve() or (target.exists() and each.exists() and each.samefile(target))
        for each in own
    ):
        raise StoreError(
            "that is the database itself", code="registry.io", field="file", hint="name another file"
        )


async def check_registry(path: Path) -> None:
    """Raises StoreError (registry.bad-backup) unless the file of SQLite is a registry's."""
    database = Database(path)
    try:
        found = await revision(database)
    finally:
        await database.close()
    if found is None:
        raise StoreError(
            "that database is no registry",
            code="registry.bad-backup",
            hint="give a file of onym registry backup; nothing was written",
        )


def is_sqlite_file(path: Path) -> bool:
    """Is that a database of SQLite, rather than the portable form? Raises StoreError."""
    with translated(), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _copy(source: Path, target: Path) -> None:
    with translated(), _appearing(target) as path:
        try:
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(path)) as new:
                old.backup(new)
                # a file of its own, without the two that WAL has beside it
                new.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise StoreError(
                f"the copy failed: {getattr(error, 'sqlite_errorname', type(error).__name__)}",
                code="registry.io",
                hint="check room and owner of the folder",
            ) from None
        with path.open("rb") as file:
            _sync(file)


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of `target` when the block ends well."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _lines(connection: AsyncConnection) -> AsyncIterator[dict[str, Any]]:
    yield {"format": _FORMAT, "v": _VERSION}
    counts: dict[str, int] = {"log": 0}
    async for record in await connection.stream_scalars(select(log.c.record).order_by(log.c.number)):
        counts["log"] += 1
        yield {"log": json.loads(record)}
    for table in _TABLES:
        counts[table.name] = 0
        statement = select(table).order_by(*table.primary_key.columns)
        async for row in (await connection.stream(statement)).mappings():
            counts[table.name] += 1
            yield {"table": table.name, "row": {name: _plain(table, name, row[name]) for name in row}}
    yield {"end": counts}


def _plain(table: Table, name: str, value: Any) -> Any:
    return to_time(value) if isinstance(table.c[name].type, Time) and value is not None else value


class _Loading:
    """A portable file on its way into a database."""

    def __init__(self, connection: AsyncConnection, decide: Decide) -> None:
        self._connection = connection
        self._fold = Fold(decide)
        self._tables = {table.name: table for table in _TABLES}
        self._counts = dict.fromkeys(["log", *self._tables], 0)
        self._line = 0
        self._rows: list[dict[str, Any]] = []
        self._into: Table = log

    async def run(self, source: Path) -> None:
        """Every line, into the database."""
        ended = False
        with translated(), source.open("rb") as file:
            for line in iter(lambda: file.readline(_MAX_LINE + 1), b""):
                self._line += 1
                data = self._read(line)
                if ended:
                    raise self._bad("more lines after the end")
                if "end" in data:
                    ended = data == {"end": self._counts}
                    if not ended:
                        raise self._bad("the end counts other lines than there are")
                elif self._line == 1:
                    if data != {"format": _FORMAT, "v": _VERSION}:
                        raise self._bad("no heading of this format and version")
                else:
                    await self._take(data)
        if not ended:
            raise self._bad("cut off: there is no end")
        await self._flush()

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            data = json.loads(line) if len(line) <= _MAX_LINE else None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise self._bad("not a JSON object")
        return data

    async def _take(self, data: dict[str, Any]) -> None:
        table, row = self._row(data)
        if table is not self._into or len(self._rows) == _BATCH:
            await self._flush()
            self._into = table
        self._rows.append(row)
        self._counts[table.name] += 1

    def _row(self, data: dict[str, Any]) -> tuple[Table, dict[str, Any]]:
        if data.keys() == {"log"}:
            record = from_data(LogRecord, data["log"])
            return log, log_row(record, self._fold.take(record))
        table = self._tables.get(str(data.get("table")))
        row = data.get("row")
        if data.keys() != {"table", "row"} or table is None or not isinstance(row, dict):
            raise self._bad("neither a log record nor a row of a table")
        if row.keys() != {column.name for column in table.columns}:
            raise self._bad("a row with other columns")
        return table, {name: self._value(table, name, value) for name, value in row.items()}

    def _value(self, table: Table, name: str, value: Any) -> Any:
        column = table.c[name]
        if value is None and column.nullable:
            return None
        if isinstance(column.type, Time):
            return from_time(value, f"{table.name}.{name}")
        if type(value) is not column.type.python_type:
            raise self._bad(f"{name} is of another type")
        return value

    async def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            await self._connection.execute(insert(self._into), rows)
        except SQLAlchemyError:
            raise self._bad(f"rows of {self._into.name} that do not fit together") from None

    def _bad(self, message: str) -> StoreError:
        return StoreError(
            f"line {self._line} of the backup: {message}",
            code="registry.bad-backup",
            field=str(self._line),
            hint="take an older backup; nothing was written",
        )
