"""One event, applied inside a transaction: log row, projections, sequence, outbox."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Table, and_, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError, RegistryError, StaleError, StoreError, UnknownEntryError
from onym.registry.chain import GENESIS, canonical, seal
from onym.registry.codec import to_data
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, LogRecord, Request
from onym.registry.registries import registry as registry_of
from onym.registry.store._changes import change_row, last_version, numbered, undoing
from onym.registry.store._rows import (
    entry_row,
    log_row,
    notice_row,
    read_value,
    request_row,
    storable,
    text_row,
)
from onym.registry.store._search import add_texts
from onym.registry.store._tables import (
    entries,
    entry_changes,
    entry_text,
    log,
    outbox,
    requests,
    sequences,
)
from onym.registry.store._types import Applied, Decide, Head

__all__ = ["MAX_EVENT", "Changes", "apply_event", "checked_event", "head_of", "reserve"]

#: characters of one event's JSON
MAX_EVENT: Final = 4_000_000


def checked_event(event: Event) -> Event:
    """The event itself, if the log can hold it. Raises RefusalError."""
    try:
        size = len(canonical(to_data(event)))
    except StoreError as error:
        raise RefusalError(
            error.message, code="registry.bad-data", field=error.field, hint="send JSON values in UTF-8"
        ) from None
    if size > MAX_EVENT:
        raise RefusalError(
            "more text than one event may bring", code="registry.too-large", field="data",
            hint=f"{MAX_EVENT} characters at most; put the rest into the specification",
        )  # fmt: skip
    return event


async def head_of(connection: AsyncConnection) -> Head:
    """The end of the log."""
    statement = select(log.c.number, log.c.digest, log.c.at).order_by(log.c.number.desc()).limit(1)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return Head(number=0, digest=GENESIS)
    return Head(number=row.number, digest=row.digest, at=row.at)


async def reserve(connection: AsyncConnection, registry: str) -> str:
    """The next request id, which nobody else gets."""
    return f"{registry}-{await _advance(connection, registry_of(registry).id, None)}"


async def apply_event(
    connection: AsyncConnection,
    decide: Decide,
    event: Event,
    actor: Actor,
    at: datetime,
    expected: int | None,
    *,
    exact: bool,
) -> Applied:
    """Decide, seal, and write all that follows from it."""
    event = await _numbered(connection, event)
    request = None if event.kind is EventKind.OPEN else await _request(connection, event)
    name = request.name if request is not None else _key(event)
    entry = None if name is None else await _entry(connection, event.registry, name)
    _check_version(expected, event, request, entry)
    at = await _moment(connection, event, name, at, exact=exact)
    event = await undoing(connection, event, name, entry)
    decision = await _decided(connection, decide(event, actor, at, request=request, entry=entry), entry)
    head = await head_of(connection)
    record = seal(head, at=at, actor=actor, event=event, rule=decision.rule, clause=decision.clause)
    await connection.execute(insert(log), log_row(record, name))
    changes = Changes()
    changes.take(decision, entry, record)
    await changes.write(connection)
    if decision.notices:
        await connection.execute(insert(outbox), [notice_row(each, record) for each in decision.notices])
    return Applied(record=record, decision=decision)


async def _numbered(connection: AsyncConnection, event: Event) -> Event:
    """An OPEN event with the id of its request: the one it brings, if that was reserved, or the next."""
    if event.kind is not EventKind.OPEN:
        return event
    identifier = registry_of(event.registry).id
    if event.request is None:
        return replace(event, request=f"{identifier}-{await _advance(connection, identifier, None)}")
    match = re.fullmatch(re.escape(identifier) + r"-([1-9][0-9]{0,17})", event.request)
    if match is None:
        raise RegistryError(
            "not an id of a request in that registry", code="registry.bad-id", field="request",
            hint=f"leave it out, or ask for the next one: {identifier}-NUMBER",
        )  # fmt: skip
    found = await connection.execute(select(requests.c.version).where(requests.c.id == event.request))
    version = found.scalar()
    if version is not None:
        raise StaleError("there is a request of that id", field="request", version=version)
    await _advance(connection, identifier, int(match[1]))
    return event


async def _advance(connection: AsyncConnection, registry: str, wanted: int | None) -> int:
    """Count on by one; or, where `wanted` is not given out yet, up to it, and no further than one."""
    where = sequences.c.registry == registry
    last = (await connection.execute(select(sequences.c.last).where(where))).scalar()
    number = (last or 0) + 1 if wanted is None else wanted
    if number <= (last or 0):
        return number
    if number > (last or 0) + 1:
        raise RegistryError(
            "that id was not given out", code="registry.bad-id", field="request",
            hint=f"the next one is {registry}-{(last or 0) + 1}",
        )  # fmt: skip
    if last is None:
        await connection.execute(insert(sequences), {"registry": registry, "last": number})
    else:
        await connection.execute(update(sequences).where(where).values(last=number))
    return number


async def _request(connection: AsyncConnection, event: Event) -> Request | None:
    if event.request is None:
        return None
    statement = select(requests.c.record).where(
        requests.c.id == event.request, requests.c.registry == event.registry
    )
    known = storable(event.request)
    record = (await connection.execute(statement)).scalar() if known else None
    if record is None:
        raise UnknownEntryError(
            "there is no request of that id in this registry",
            code="registry.unknown-request",
            field="request",
        )
    return read_value(Request, record)


async def _entry(connection: AsyncConnection, registry: str, name: str) -> Entry | None:
    statement = select(entries.c.record).where(entries.c.registry == registry, entries.c.name == name)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else read_value(Entry, record)


def _key(event: Event) -> str | None:
    if event.name is None or not storable(event.name):
        return None
    return registry_of(event.registry).key(event.name)


def _check_version(expected: int | None, event: Event, request: Request | None, entry: Entry | None) -> None:
    about = entry if request is None else request
    version = 0 if about is None else about.version
    if expected is not None and expected != version:
        field = "entry" if request is None else "request"
        raise StaleError(
            f"the {field} has changed since it was read", field=field, version=version,
            hint="read it again, and decide on what it says now",
        )  # fmt: skip


async def _moment(
    connection: AsyncConnection, event: Event, name: str | None, at: datetime, *, exact: bool
) -> datetime:
    """When it happens: not before the last record about the request, or, where none is named, the entry.

    Spans are counted from record to record, and clocks differ by a little, or are put right: then it happens
    at the moment of the last one. Somebody who names the time himself is told instead. Imports are as old as
    their file. The log as a whole is not compared, for others write at once.
    """
    if event.kind is EventKind.IMPORT or name is None:
        return at
    about = (
        and_(log.c.registry == event.registry, log.c.name == name, log.c.kind != EventKind.IMPORT)
        if event.request is None
        else log.c.request == event.request
    )
    statement = select(log.c.at).where(about).order_by(log.c.number.desc()).limit(1)
    last: datetime | None = (await connection.execute(statement)).scalar()
    if last is None or at >= last:
        return at
    if not exact:
        return last
    raise RefusalError(
        "that time is before the last record about it", code="registry.time-goes-back", field="at",
        hint=f"the last one is of {last.isoformat()}: not before that",
    )  # fmt: skip


async def _decided(connection: AsyncConnection, decision: Decision, before: Entry | None) -> Decision:
    new = None if before is not None else decision.entry
    last = 0 if new is None else await last_version(connection, new.registry, new.name)
    return numbered(decision, before, last)


@dataclass(slots=True)
class Changes:
    """Rows that decisions change, gathered, so that many go to the database together."""

    added: dict[tuple[str, str], Entry] = field(default_factory=dict)
    changed: dict[tuple[str, str], Entry] = field(default_factory=dict)
    removed: list[tuple[str, str]] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    moved: list[dict[str, Any]] = field(default_factory=list)
    happened: list[dict[str, Any]] = field(default_factory=list)

    def take(self, decision: Decision, before: Entry | None, record: LogRecord) -> None:
        """One more decision, and its record; `before` is the entry as it was."""
        request = decision.request
        if request is not None and record.event.kind is EventKind.OPEN:
            self.opened.append(request_row(request, record.number))
        elif request is not None:
            self.moved.append(request_row(request, 0))
        if decision.removed and before is not None:
            self.removed.append((before.registry, before.name))
        elif decision.entry is not None:
            key = (decision.entry.registry, decision.entry.name)
            (self.added if before is None else self.changed)[key] = decision.entry
        row = change_row(record, decision, before)
        if row is not None:
            self.happened.append(row)

    async def write(self, connection: AsyncConnection) -> None:
        """To the database, where the records are already."""
        if self.happened:
            await connection.execute(insert(entry_changes), self.happened)
        for key in self.removed:
            await connection.execute(delete(entry_text).where(_is_key(entry_text, *key)))
            await connection.execute(delete(entries).where(_is_key(entries, *key)))
        if self.added:
            await connection.execute(insert(entries), [entry_row(each) for each in self.added.values()])
            await add_texts(connection, [text_row(each) for each in self.added.values()])
        if self.changed:
            await _update(connection, entries, [entry_row(each) for each in self.changed.values()])
            await _update(connection, entry_text, [text_row(each) for each in self.changed.values()])
        if self.opened:
            await connection.execute(insert(requests), self.opened)
        if self.moved:
            rows = [{f"new_{name}": each for name, each in row.items()} for row in self.moved]
            await connection.execute(_BY_ID, rows)


def _is_key(table: Table, registry: str, name: str) -> Any:
    return and_(table.c.registry == registry, table.c.name == name)


async def _update(connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    columns = [each for each in rows[0] if each not in {"registry", "name"}]
    statement = (
        update(table)
        .where(_is_key(table, bindparam("new_registry"), bindparam("new_name")))  # type: ignore[arg-type]
        .values({each: bindparam(f"new_{each}") for each in columns})
    )
    await connection.execute(statement, [{f"new_{name}": each for name, each in row.items()} for row in rows])


_BY_ID: Final = (
    update(requests)
    .where(requests.c.id == bindparam("new_id"))
    .values(
        {
            each: bindparam(f"new_{each}")
            for each in ("name", "state", "holder", "registrant", "version", "record")
        }
    )
)
