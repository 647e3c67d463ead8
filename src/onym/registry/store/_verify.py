"""Does the database hold together: chain, projections, and the facts that neither covers? And making anew.

The log is folded by the engine, record by record, and compared with what the tables say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlalchemy import Table, delete, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RegistryError, StoreError
from onym.registry.chain import GENESIS, canonical, check_link
from onym.registry.codec import to_data
from onym.registry.records import Decision, Entry, EventKind, LogRecord, Request
from onym.registry.registries import registry as registry_of
from onym.registry.store._changes import change_row, numbered
from onym.registry.store._rows import MOST_TEXT, entry_row, log_row, read_value, request_row, text_row
from onym.registry.store._search import add_texts
from onym.registry.store._tables import entries, entry_changes, entry_text, log, requests, sequences
from onym.registry.store._types import Decide, Head, Verified

__all__ = ["Fold", "fold_log", "rebuild_all", "verify_all"]

_BATCH: Final = 1000
_Told: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Fold:
    """What the log makes: entries, requests with the record that opened each, the highest ids."""

    decide: Decide
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    last: LogRecord | None = None
    #: the last versions of names that are registered no longer
    gone: dict[tuple[str, str], int] = field(default_factory=dict)
    #: what the last record changed of an entry
    change: dict[str, Any] | None = None

    def take(self, record: LogRecord) -> str | None:
        """One more record; the name that it is about. Raises StoreError for one that does not follow."""
        check_link(self.last, record)
        event = record.event
        request = self.requests.get(event.request or "")
        name = event.name
        if request is not None:
            name = request.name
        elif name is not None:
            name = registry_of(event.registry).key(name)
        before = self.entries.get((event.registry, name or ""))
        try:
            decision = self.decide(event, record.actor, record.at, request=request, entry=before)
        except RegistryError as error:
            raise _replay(record, f"is refused now: {error.code}") from None
        if (decision.rule, decision.clause) != (record.rule, record.clause):
            raise _replay(record, "was decided by another rule")
        decision = numbered(decision, before, self.gone.get((event.registry, name or ""), 0))
        self._keep(record, decision, before)
        self.change = change_row(record, decision, before)
        self.last = record
        return name

    def _keep(self, record: LogRecord, decision: Decision, before: Entry | None) -> None:
        request = decision.request
        if request is not None:
            self.requests[request.id] = request
            if record.event.kind is EventKind.OPEN:
                self.opened[request.id] = record.number
                given = int(request.id.rpartition("-")[2])
                self.sequences[request.registry] = max(given, self.sequences.get(request.registry, 0))
        if decision.removed and before is not None:
            del self.entries[before.registry, before.name]
            self.gone[before.registry, before.name] = before.version
        elif decision.entry is not None:
            self.entries[decision.entry.registry, decision.entry.name] = decision.entry

    @property
    def head(self) -> Head:
        """The end of the log."""
        if self.last is None:
            return Head(number=0, digest=GENESIS)
        return Head(number=self.last.number, digest=self.last.digest, at=self.last.at)


async def fold_log(connection: AsyncConnection, decide: Decide, told: _Told) -> Fold:
    """Fold the whole log, and check on the way that each row says what its record says.

    `told` is given each row of `entry_changes` that it makes.
    """
    fold = Fold(decide)
    async for row in _all(connection, log, log.c.number):
        record = read_value(LogRecord, row["record"])
        if canonical(to_data(record)) != row["record"]:
            raise _replay(record, "is not in its exact form", code="registry.broken-chain")
        name = fold.take(record)
        if log_row(record, name) != row:
            raise _replay(record, "has columns that say something else", code="registry.broken-chain")
        if fold.change is not None:
            await told(fold.change)
    return fold


async def verify_all(connection: AsyncConnection, decide: Decide) -> Verified:
    """Chain, projections and the rest. Raises StoreError at the first fault."""
    await _sound(connection)
    stored = _all(connection, entry_changes, entry_changes.c.number)

    async def compare(row: dict[str, Any]) -> None:
        if await anext(stored, None) != row:
            raise _differs("entry_changes", str(row["number"]))

    fold = await fold_log(connection, decide, compare)
    extra = await anext(stored, None)
    if extra is not None:
        raise _differs("entry_changes", str(extra["number"]))
    await _foreign(connection)
    wanted = _projections(fold)
    for table, key, skip in _PROJECTED:
        await _compare(connection, table, key, skip, wanted[table.name])
    for registry, last in (await connection.execute(select(sequences.c.registry, sequences.c.last))).all():
        if last < fold.sequences.pop(registry, 0):
            raise _differs("sequences", registry)
    if fold.sequences:
        raise _differs("sequences", next(iter(fold.sequences)))
    return Verified(
        records=fold.head.number, entries=len(fold.entries), requests=len(fold.requests), head=fold.head
    )


async def rebuild_all(connection: AsyncConnection, decide: Decide) -> Verified:
    """Make the projections anew from the log. Sequences only ever grow: an id is never given twice."""
    for table in (entry_changes, entry_text, entries, requests):
        await connection.execute(delete(table))
    changes = _Buffer(connection, entry_changes)
    fold = await fold_log(connection, decide, changes.take)
    await changes.write()
    wanted = _projections(fold)
    for table in (entries, entry_text, requests):
        rows = list(wanted[table.name].values())
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            if table is entry_text:
                await add_texts(connection, some)
            else:
                await connection.execute(insert(table), some)
    given = (await connection.execute(select(sequences.c.registry, sequences.c.last))).all()
    known: dict[str, int] = {row.registry: row.last for row in given}
    await connection.execute(delete(sequences))
    for registry in known.keys() | fold.sequences.keys():
        last = max(known.get(registry, 0), fold.sequences.get(registry, 0))
        await connection.execute(insert(sequences), {"registry": registry, "last": last})
    return Verified(
        records=fold.head.number, entries=len(fold.entries), requests=len(fold.requests), head=fold.head
    )


class _Buffer:
    """Rows on their way into a table, many at once."""

    def __init__(self, connection: AsyncConnection, table: Table) -> None:
        self._connection, self._table = connection, table
        self._rows: list[dict[str, Any]] = []
        self._weight = 0

    async def take(self, row: dict[str, Any]) -> None:
        """One more."""
        self._rows.append(row)
        self._weight += len(row["before"] or "")
        if len(self._rows) == _BATCH or self._weight > MOST_TEXT:
            await self.write()

    async def write(self) -> None:
        """What is left."""
        rows, self._rows, self._weight = self._rows, [], 0
        if rows:
            await self._connection.execute(insert(self._table), rows)


#: tables, the columns that name a row, and columns that the database fills
_PROJECTED: Final = (
    (entries, ("registry", "name"), ()),
    (entry_text, ("registry", "name"), ("id",)),
    (requests, ("id",), ()),
)


def _projections(fold: Fold) -> Mapping[str, dict[tuple[str, ...], dict[str, Any]]]:
    return {
        "entries": {key: entry_row(each) for key, each in fold.entries.items()},
        "entry_text": {key: text_row(each) for key, each in fold.entries.items()},
        "requests": {
            (key,): request_row(each, fold.opened.get(key, 0)) for key, each in fold.requests.items()
        },
    }


async def _compare(
    connection: AsyncConnection,
    table: Table,
    key: Iterable[str],
    skip: Iterable[str],
    wanted: dict[tuple[str, ...], dict[str, Any]],
) -> None:
    for row in (await connection.execute(select(table))).mappings():
        found = {name: each for name, each in row.items() if name not in skip}
        name = tuple(str(found[each]) for each in key)
        if wanted.pop(name, None) != found:
            raise _differs(table.name, " ".join(name))
    if wanted:
        raise _differs(table.name, " ".join(next(iter(wanted))))


async def _sound(connection: AsyncConnection) -> None:
    """Are SQLite's pages whole? PostgreSQL looks after its own."""
    if connection.dialect.name != "sqlite":
        return
    if (await connection.execute(text("PRAGMA quick_check(1)"))).scalar() != "ok":
        raise StoreError(
            "the database file is damaged", code="registry.corrupt", hint="restore a backup into a new file"
        )


async def _foreign(connection: AsyncConnection) -> None:
    """Does every row point at one that is there? PostgreSQL checks that at every write."""
    if connection.dialect.name != "sqlite":
        return
    orphan = (await connection.execute(text("PRAGMA foreign_key_check"))).first()
    if orphan is not None:
        raise _differs(str(orphan[0]), f"row {orphan[1]} points nowhere")


async def _all(connection: AsyncConnection, table: Table, number: Any) -> AsyncIterator[dict[str, Any]]:
    after = 0
    while True:
        statement = select(table).where(number > after).order_by(number).limit(_BATCH)
        rows = (await connection.execute(statement)).mappings().all()
        for row in rows:
            yield dict(row)
        if len(rows) < _BATCH:
            return
        after = rows[-1]["number"]


def _replay(record: LogRecord, said: str, *, code: str = "registry.replay-failed") -> StoreError:
    return StoreError(
        f"record {record.number} of the log {said}",
        code=code,
        field=str(record.number),
        hint="the log is of another release, or was changed from outside: open it with the release that "
        "wrote it, or restore a backup",
    )


def _differs(table: str, key: str) -> StoreError:
    return StoreError(
        f"the table {table} is not what the log makes: {key}",
        code="registry.projection-differs",
        field=table,
        hint="make it anew from the log: Store.rebuild(), or onym registry verify --rebuild",
    )
