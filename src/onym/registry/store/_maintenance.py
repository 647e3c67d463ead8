"""Work on a whole registry: import entries, verify, rebuild the projections, back up and restore.

The engine replays the log, record by record, and the result is compared with the tables.

A backup is SQLite's own online copy, or a portable file of JSON Lines that either database can load. The
portable form has a heading, one line per log record, one per row of accounts, subjects, roles, tokens
and audit log, and an end line with the counts. Sessions and the outbox are left out. The target file is
replaced only when the backup is complete, and only its owner may read it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Table, delete, func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.accounts.store import account_roles, accounts, audit, audit_digests, subjects, tokens
from onym.common.files import replace_file
from onym.errors import RefusalError, RegistryError, StoreError
from onym.registry.codec import canonicalize_json, decode_time, encode_time, from_data, to_data, verify_link
from onym.registry.engine import Decide, RegistryState, decide_as_logged
from onym.registry.records import Actor, Entry, Event, EventKind, Head, LogRecord
from onym.registry.registries import BUILTIN, Catalog, use_catalog
from onym.registry.registries import get_registry as registry_of
from onym.registry.store._redaction import RedactionCheck
from onym.registry.store._writes import (
    EMPTY_HEAD,
    MOST_TEXT,
    Applied,
    ImportReport,
    Irregularity,
    PendingChanges,
    Verified,
    continue_version,
    decode_record,
    insert_texts,
    make_change_row,
    make_entry_row,
    make_log_row,
    make_notice_row,
    make_request_row,
    make_text_row,
    require_storable_event,
    seal_decision,
    select_head,
)
from onym.registry.store.queries import load_catalog, match_entry
from onym.registry.store.schema import (
    DATABASE_PROFILE,
    entries,
    entry_changes,
    entry_text,
    log,
    open_database,
    outbox,
    read_revision,
    requests,
    sequences,
)
from onym.store.sql import Database, Time, is_storable, replace_unstorable, translate_errors

_BATCH: Final = 1000
_OnChange: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class LogFold(RegistryState):
    """The registry that the log makes, and what its rows need beside entries and requests."""

    #: request -> the record that opened it
    opened: dict[str, int] = field(default_factory=dict)
    #: registry -> the highest request number
    sequences: dict[str, int] = field(default_factory=dict)
    last: LogRecord | None = None
    #: the last versions of names that are not registered any more
    gone: dict[tuple[str, str], int] = field(default_factory=dict)
    #: the row of `entry_changes` for the last record
    change: dict[str, Any] | None = None
    redactions: RedactionCheck = field(default_factory=RedactionCheck)
    #: the rows in force after the last record
    catalog: Catalog = BUILTIN

    def add_record(self, record: LogRecord) -> str | None:
        """Add a record and return the name of its subject. Raises StoreError if it does not follow."""
        with use_catalog(self.catalog):
            name = self._replay_record(record)
        if record.event.kind is EventKind.DEFINE:
            self.catalog = load_catalog(record)
        return name

    def _replay_record(self, record: LogRecord) -> str | None:
        verify_link(self.last, record)
        self.redactions.add_record(record)
        event = record.event
        request, before = self.find_subjects(event)
        name = event.name
        if request is not None:
            name = request.name
        elif name is not None:
            name = registry_of(event.registry).normalize_name(name)
        try:
            decision = self.decide(event, record.actor, record.at, request=request, entry=before)
        except RegistryError as error:
            older = decide_as_logged(
                event, record.actor, record.at, request=request, entry=before, rule=record.rule
            )
            if older is None:
                raise _make_replay_error(record, f"is rejected now: {error.code}") from None
            decision = older
        if (decision.rule, decision.clause) != (record.rule, record.clause):
            raise _make_replay_error(record, "was decided by another rule")
        decision = continue_version(decision, before, self.gone.get((event.registry, name or ""), 0))
        self.take_decision(decision, before)
        if decision.removed and before is not None:
            self.gone[before.registry, before.name] = before.version
        opened = decision.request
        if opened is not None and event.kind is EventKind.OPEN:
            self.opened[opened.id] = record.number
            number = int(opened.id.rpartition("-")[2])
            self.sequences[opened.registry] = max(number, self.sequences.get(opened.registry, 0))
        self.change = make_change_row(record, decision, before)
        self.last = record
        return name

    @property
    def head(self) -> Head:
        """The end of the log."""
        last = self.last
        return EMPTY_HEAD if last is None else Head(number=last.number, digest=last.digest, at=last.at)

    def make_result(self) -> Verified:
        """Return the counts of a log that was verified."""
        head = self.head
        return Verified(
            records=head.number, entries=len(self.entries), requests=len(self.requests), head=head
        )


async def fold_log(connection: AsyncConnection, decide: Decide, on_change: _OnChange) -> LogFold:
    """Replay the whole log, and check that each row equals its record.

    `on_change` is called with each row of `entry_changes`.
    """
    fold = LogFold(decide=decide)
    async for row in _iter_rows(connection, log, log.c.number):
        record = decode_record(LogRecord, row["record"])
        if canonicalize_json(to_data(record)) != row["record"]:
            raise _make_replay_error(record, "is not in canonical form", broken=True)
        name = fold.add_record(record)
        if make_log_row(record, name) != row:
            raise _make_replay_error(record, "differs from its columns", broken=True)
        if fold.change is not None:
            await on_change(fold.change)
    fold.redactions.require_complete()
    return fold


async def verify_database(connection: AsyncConnection, decide: Decide) -> Verified:
    """Verify the chain, the projections and the file. Raises StoreError at the first fault."""
    await _require_intact_file(connection)
    stored = _iter_rows(connection, entry_changes, entry_changes.c.number)

    async def compare(row: dict[str, Any]) -> None:
        if await anext(stored, None) != row:
            raise _make_difference_error("entry_changes", str(row["number"]))

    fold = await fold_log(connection, decide, compare)
    extra = await anext(stored, None)
    if extra is not None:
        raise _make_difference_error("entry_changes", str(extra["number"]))
    await _require_foreign_keys(connection)
    wanted = _build_projections(fold)
    for table, key, skip in _PROJECTED:
        await _compare_table(connection, table, key, skip, wanted[table.name])
    for registry, last in (await connection.execute(select(sequences.c.registry, sequences.c.last))).all():
        if last < fold.sequences.pop(registry, 0):
            raise _make_difference_error("sequences", registry)
    if fold.sequences:
        raise _make_difference_error("sequences", next(iter(fold.sequences)))
    return fold.make_result()


async def rebuild_projections(connection: AsyncConnection, decide: Decide) -> Verified:
    """Build the projections from the log. Sequences only grow, so that no ID is given twice."""
    for table in (entry_changes, entry_text, entries, requests):
        await connection.execute(delete(table))
    changes = _RowBuffer(connection, entry_changes)
    fold = await fold_log(connection, decide, changes.add)
    await changes.flush()
    wanted = _build_projections(fold)
    for table in (entries, entry_text, requests):
        rows = list(wanted[table.name].values())
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            if table is entry_text:
                await insert_texts(connection, some)
            else:
                await connection.execute(insert(table), some)
    given = (await connection.execute(select(sequences.c.registry, sequences.c.last))).all()
    known: dict[str, int] = {row.registry: row.last for row in given}
    await connection.execute(delete(sequences))
    for registry in known.keys() | fold.sequences.keys():
        last = max(known.get(registry, 0), fold.sequences.get(registry, 0))
        await connection.execute(insert(sequences), {"registry": registry, "last": last})
    return fold.make_result()


class _RowBuffer:
    """Inserts rows into a table, many at once."""

    def __init__(self, connection: AsyncConnection, table: Table) -> None:
        self._connection, self._table = connection, table
        self._rows: list[dict[str, Any]] = []
        self._weight = 0

    async def add(self, row: dict[str, Any]) -> None:
        """Add a row."""
        self._rows.append(row)
        self._weight += len(row["before"] or "")
        if len(self._rows) == _BATCH or self._weight > MOST_TEXT:
            await self.flush()

    async def flush(self) -> None:
        """Insert the remaining rows."""
        rows, self._rows, self._weight = self._rows, [], 0
        if rows:
            await self._connection.execute(insert(self._table), rows)


#: table, key columns, columns that the database fills
_PROJECTED: Final = (
    (entries, ("registry", "name"), ()),
    (entry_text, ("registry", "name"), ("id",)),
    (requests, ("id",), ()),
)


def _build_projections(fold: LogFold) -> Mapping[str, dict[tuple[str, ...], dict[str, Any]]]:
    return {
        "entries": {key: make_entry_row(entry) for key, entry in fold.entries.items()},
        "entry_text": {key: make_text_row(entry) for key, entry in fold.entries.items()},
        "requests": {
            (key,): make_request_row(request, fold.opened.get(key, 0))
            for key, request in fold.requests.items()
        },
    }


async def _compare_table(
    connection: AsyncConnection,
    table: Table,
    key: Iterable[str],
    skip: Iterable[str],
    wanted: dict[tuple[str, ...], dict[str, Any]],
) -> None:
    for row in (await connection.execute(select(table))).mappings():
        found = {name: item for name, item in row.items() if name not in skip}
        name = tuple(str(found[column]) for column in key)
        if wanted.pop(name, None) != found:
            raise _make_difference_error(table.name, " ".join(name))
    if wanted:
        raise _make_difference_error(table.name, " ".join(next(iter(wanted))))


async def _require_intact_file(connection: AsyncConnection) -> None:
    # PostgreSQL checks its own pages
    if connection.dialect.name != "sqlite":
        return
    if (await connection.execute(text("PRAGMA quick_check(1)"))).scalar() != "ok":
        raise StoreError(
            "the database file is damaged", code="registry.corrupt", hint="Restore a backup into a new file."
        )


async def _require_foreign_keys(connection: AsyncConnection) -> None:
    # PostgreSQL checks them at every write
    if connection.dialect.name != "sqlite":
        return
    orphan = (await connection.execute(text("PRAGMA foreign_key_check"))).first()
    if orphan is not None:
        raise _make_difference_error(str(orphan[0]), f"row {orphan[1]} refers to a missing row")


async def _iter_rows(connection: AsyncConnection, table: Table, number: Any) -> AsyncIterator[dict[str, Any]]:
    after = 0
    while True:
        statement = select(table).where(number > after).order_by(number).limit(_BATCH)
        rows = (await connection.execute(statement)).mappings().all()
        for row in rows:
            yield dict(row)
        if len(rows) < _BATCH:
            return
        after = rows[-1]["number"]


def _make_replay_error(record: LogRecord, reason: str, *, broken: bool = False) -> StoreError:
    message = f"record {record.number} of the log {reason}"
    field_name = str(record.number)
    hint = "Another release wrote the log, or a program changed it. Use that release, or restore a backup."
    if broken:
        return StoreError(message, code="registry.broken-chain", field=field_name, hint=hint)
    return StoreError(message, code="registry.replay-failed", field=field_name, hint=hint)


def _make_difference_error(table: str, key: str) -> StoreError:
    return StoreError(
        f"the table {table} differs from the log: {key}",
        code="registry.projection-differs",
        field=table,
        hint="Rebuild it from the log: Store.rebuild(), or onym registry verify --rebuild",
    )


_FORMAT: Final = "onym-registry"
_VERSION: Final = 1
#: bytes of one line
_MAX_LINE: Final = 32_000_000

_TABLES: Final = (accounts, subjects, account_roles, tokens, audit, audit_digests)
#: tables that backups of older releases lack
_NEW_TABLES: Final = (audit_digests,)


async def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a SQLite database consistently, while others read and write."""
    await asyncio.to_thread(_copy_sqlite_file, source, target)


async def dump_portable(database: Database, target: Path) -> None:
    """Write the portable form of one moment."""
    with translate_errors(DATABASE_PROFILE), replace_file(target, mode=0o600) as stream:
        async with database.open_reader(snapshot=True) as connection:
            async for line in _iter_lines(connection):
                stream.write(canonicalize_json(line).encode() + b"\n")


async def load_portable(database: Database, source: Path, decide: Decide) -> Verified:
    """Load the portable form into an empty registry, completely or not at all.

    The chain is checked and each record is decided again. Raises StoreError
    (registry.bad-backup, registry.not-empty, registry.broken-chain, registry.replay-failed).
    """

    async def work(connection: AsyncConnection) -> Verified:
        for table in (log, accounts):
            if (await connection.execute(select(func.count()).select_from(table))).scalar_one():
                raise StoreError(
                    "the registry is not empty",
                    code="registry.not-empty",
                    field="url",
                    hint="Restore into a new database.",
                )
        await _PortableLoader(connection, decide).load_file(source)
        await _advance_postgresql_sequences(connection)
        return await rebuild_projections(connection, decide)

    return await database.run_transaction(work)


async def _advance_postgresql_sequences(connection: AsyncConnection) -> None:
    """Let PostgreSQL number new rows after the loaded ones; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in _TABLES:
        column = table.autoincrement_column
        last = None if column is None else await connection.scalar(select(func.max(column)))
        if column is not None and last is not None:
            sequence = func.pg_get_serial_sequence(table.name, column.name)
            await connection.execute(select(func.setval(sequence, last)))


def require_other_target(database: Path | None, target: Path) -> None:
    """Reject a backup over the database or one of its files, which would lose later writes."""
    if not target.name:
        raise StoreError(
            "the backup needs a file name", code="registry.io", field="file", hint="Give a file name."
        )
    ends = () if database is None else ("", "-wal", "-shm", "-journal")
    own = [Path(f"{database}{end}") for end in ends]
    if any(
        path.resolve() == target.resolve() or (target.exists() and path.exists() and path.samefile(target))
        for path in own
    ):
        raise StoreError(
            "the backup cannot replace the database itself",
            code="registry.io",
            field="file",
            hint="Choose another file.",
        )


async def require_registry(path: Path) -> None:
    """Raise StoreError (registry.bad-backup) unless the SQLite file contains a registry."""
    database = open_database(path)
    try:
        found = await read_revision(database)
    finally:
        await database.close()
    if found is None:
        raise StoreError(
            "the SQLite file does not contain a registry",
            code="registry.bad-backup",
            hint="Give a file that onym registry backup wrote. Nothing was restored.",
        )


def is_sqlite_file(path: Path) -> bool:
    """Report whether the file is a SQLite database, not the portable form. Raises StoreError."""
    with translate_errors(DATABASE_PROFILE), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _copy_sqlite_file(source: Path, target: Path) -> None:
    with (
        translate_errors(DATABASE_PROFILE),
        tempfile.TemporaryDirectory(prefix=".onym-part-", dir=target.parent) as folder,
        replace_file(target, mode=0o600) as stream,
    ):
        copy = Path(folder) / "copy.db"
        try:
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(copy)) as new:
                old.backup(new)
                # one file, without the two that WAL keeps beside it
                new.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise StoreError(
                f"the copy failed: {getattr(error, 'sqlite_errorname', type(error).__name__)}",
                code="registry.io",
                hint="Check the free space and the owner of the folder.",
            ) from None
        with copy.open("rb") as file:
            shutil.copyfileobj(file, stream)


async def _iter_lines(connection: AsyncConnection) -> AsyncIterator[dict[str, Any]]:
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
            cells = {key: encode_time(it) if isinstance(it, datetime) else it for key, it in row.items()}
            yield {"table": table.name, "row": cells}
    yield {"end": counts}


class _PortableLoader:
    """Loads a portable file into a database."""

    def __init__(self, connection: AsyncConnection, decide: Decide) -> None:
        self._connection = connection
        self._fold = LogFold(decide=decide)
        self._tables = {table.name: table for table in _TABLES}
        self._counts = dict.fromkeys(["log", *self._tables], 0)
        self._line = 0
        self._rows: list[dict[str, Any]] = []
        self._into: Table = log

    async def load_file(self, source: Path) -> None:
        """Load every line."""
        ended = False
        with translate_errors(DATABASE_PROFILE), source.open("rb") as file:
            for line in iter(lambda: file.readline(_MAX_LINE + 1), b""):
                self._line += 1
                data = self._parse_line(line)
                if ended:
                    raise self._make_error("there are lines after the end")
                if "end" in data:
                    older = {table.name: 0 for table in _NEW_TABLES}
                    given = data["end"] if isinstance(data["end"], dict) else {}
                    ended = data.keys() == {"end"} and {**older, **given} == self._counts
                    if not ended:
                        raise self._make_error("the number of lines differs from the count at the end")
                elif self._line == 1:
                    if data != {"format": _FORMAT, "v": _VERSION}:
                        raise self._make_error("the header of this format and version is missing")
                else:
                    await self._add_row(data)
        if not ended:
            raise self._make_error("the file is cut off")
        await self._flush_rows()

    def _parse_line(self, line: bytes) -> dict[str, Any]:
        try:
            data = json.loads(line) if len(line) <= _MAX_LINE else None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise self._make_error("the line is not a JSON object")
        return data

    async def _add_row(self, data: dict[str, Any]) -> None:
        table, row = self._decode_row(data)
        if table is not self._into or len(self._rows) == _BATCH:
            await self._flush_rows()
            self._into = table
        self._rows.append(row)
        self._counts[table.name] += 1

    def _decode_row(self, data: dict[str, Any]) -> tuple[Table, dict[str, Any]]:
        if data.keys() == {"log"}:
            record = from_data(LogRecord, data["log"])
            return log, make_log_row(record, self._fold.add_record(record))
        table = self._tables.get(str(data.get("table")))
        row = data.get("row")
        if data.keys() != {"table", "row"} or table is None or not isinstance(row, dict):
            raise self._make_error("this is neither a log record nor a row of a table")
        if row.keys() != {column.name for column in table.columns}:
            raise self._make_error("the row has other columns")
        return table, {name: self._decode_column(table, name, value) for name, value in row.items()}

    def _decode_column(self, table: Table, name: str, value: Any) -> Any:
        column = table.c[name]
        if value is None and column.nullable:
            return None
        if isinstance(column.type, Time):
            return decode_time(value, f"{table.name}.{name}")
        if type(value) is not column.type.python_type:
            raise self._make_error(f"{name} has the wrong type")
        return value

    async def _flush_rows(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            await self._connection.execute(insert(self._into), rows)
        except SQLAlchemyError:
            raise self._make_error(f"the rows of {self._into.name} contradict each other") from None

    def _make_error(self, message: str) -> StoreError:
        return StoreError(
            f"line {self._line} of the backup: {message}",
            code="registry.bad-backup",
            field=str(self._line),
            hint="Use an older backup. Nothing was restored.",
        )


async def select_last_versions(connection: AsyncConnection, registry: str) -> dict[str, int]:
    """Return the last versions of names that are not registered any more."""
    gone = entry_changes.outerjoin(entries, match_entry(entry_changes.c)).select()
    statement = (
        gone.with_only_columns(entry_changes.c.name, func.max(entry_changes.c.version).label("last"))
        .where(entry_changes.c.registry == registry, entries.c.name.is_(None))
        .group_by(entry_changes.c.name)
    )
    return {row.name: row.last for row in await connection.execute(statement)}


async def import_entries(
    connection: AsyncConnection,
    decide: Decide,
    registry: str,
    given: Sequence[Entry],
    actor: Actor,
    at: datetime,
    source: str,
    progress: Callable[[int], object] | None = None,
) -> ImportReport:
    """Import all entries as IMPORT events, completely or not at all.

    `progress` is told after each batch how many entries are done.
    """
    run = _ImportRun(decide, registry_of(registry).id, actor, at, source, await select_head(connection))
    statement = select(entries.c.name, entries.c.record).where(entries.c.registry == registry)
    for name, record in (await connection.execute(statement)).all():
        run.present[name] = decode_record(Entry, record)
    run.last = await select_last_versions(connection, registry)
    for start in range(0, len(given), _BATCH):
        batch = given[start : start + _BATCH]
        rows, notices, changes = run.decide_all(batch)
        if rows:
            await connection.execute(insert(log), rows)
        await changes.write(connection)
        if notices:
            await connection.execute(insert(outbox), notices)
        if progress is not None:
            progress(start + len(batch))
    return run.make_report()


class _ImportRun:
    """The state of one import."""

    def __init__(
        self, decide: Decide, registry: str, actor: Actor, at: datetime, source: str, head: Head
    ) -> None:
        self._decide, self._registry, self._actor = decide, registry, actor
        self._at, self._source, self._head = at, source, head
        self.present: dict[str, Entry] = {}
        #: the last versions of names that are not registered any more
        self.last: dict[str, int] = {}
        self._seen: set[str] = set()
        self._counts = {"added": 0, "changed": 0, "same": 0}
        self._irregular: list[Irregularity] = []

    def decide_all(
        self, batch: Sequence[Entry]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], PendingChanges]:
        """Return the rows of log and outbox, and the changes, for these entries."""
        rows: list[dict[str, Any]] = []
        notices: list[dict[str, Any]] = []
        changes = PendingChanges()
        for entry in batch:
            try:
                found = self._import_entry(entry, changes)
            except RefusalError as error:
                if error.code == "registry.wrong-role":
                    # the same for every row
                    raise
                self._add_irregularity(entry, str(error), taken=False)
                continue
            if found is not None:
                rows.append(make_log_row(found.record, found.record.event.name))
                notices += [make_notice_row(notice, found.record) for notice in found.decision.notices]
        return rows, notices, changes

    def _import_entry(self, entry: Entry, changes: PendingChanges) -> Applied | None:
        from onym.registry.iana import prepare_import  # late: only an import needs it

        key = registry_of(self._registry).normalize_name(entry.name)
        if not is_storable(key):
            raise RefusalError(
                "the name contains characters that databases cannot store",
                code="registry.bad-data",
                field="name",
            )
        if entry.registry != self._registry:
            raise RefusalError(
                "the row belongs to another registry", code="registry.bad-data", field="registry"
            )
        if key in self._seen:
            raise RefusalError("the source contains the name twice", code="registry.duplicate", field="name")
        self._seen.add(key)
        before = self.present.get(key)
        entry, left_out = prepare_import(entry, before)
        if left_out is not None:
            self._add_irregularity(entry, left_out, taken=True)
        event = self._make_event(key, entry)
        decision = self._decide(event, self._actor, self._at, request=None, entry=before)
        decision = continue_version(decision, before, self.last.get(key, 0))
        after = decision.entry
        if before and after and replace(after, version=before.version, updated=before.updated) == before:
            self._counts["same"] += 1
            return None
        record = seal_decision(self._head, decision, at=self._at, actor=self._actor, event=event)
        changes.add(decision, before, record)
        self._head = Head(number=record.number, digest=record.digest, at=record.at)
        self._counts["added" if before is None else "changed"] += 1
        return Applied(record=record, decision=decision)

    def _add_irregularity(self, entry: Entry, reason: str, *, taken: bool) -> None:
        self._irregular.append(Irregularity(name=replace_unstorable(entry.name), reason=reason, taken=taken))

    def _make_event(self, key: str, entry: Entry) -> Event:
        try:
            data = {"entry": to_data(entry), "source": self._source}
        except StoreError as error:
            raise RefusalError(error.message, code="registry.bad-data", field=error.field) from None
        return require_storable_event(
            Event(kind=EventKind.IMPORT, registry=self._registry, name=key, data=data)
        )

    def make_report(self) -> ImportReport:
        """Return the result of the import."""
        absent = tuple(sorted(self.present.keys() - self._seen))
        return ImportReport(**self._counts, absent=absent, irregular=tuple(self._irregular))
