"""Writes inside a transaction: one event, an import of many entries, and the outbox of notices.

An event writes its log row, the projections, the sequence of request IDs and the notices. An import
writes each entry as an IMPORT event, all in one transaction. A sender claims notices for a limited time;
if it dies, they are available again when the lease ends. A notice is therefore sent at least once, and
by one sender at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, Table, and_, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError, RegistryError, StaleError, StoreError, UnknownEntryError
from onym.registry.codec import GENESIS, canonicalize_json, seal_record, to_data
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, LogRecord, Request, Role
from onym.registry.registries import get_registry as registry_of
from onym.registry.store._history import (
    add_restored_entry,
    continue_version,
    make_change_row,
    select_last_version,
    select_last_versions,
)
from onym.registry.store.queries import insert_texts
from onym.registry.store.rows import (
    Applied,
    Decide,
    Head,
    ImportReport,
    Irregularity,
    OutboxNotice,
    decode_record,
    make_entry_row,
    make_log_row,
    make_notice_row,
    make_request_row,
    make_text_row,
)
from onym.registry.store.schema import entries, entry_changes, entry_text, log, outbox, requests, sequences
from onym.store.sql import Database, is_storable, require_limit

#: characters of one event's JSON
MAX_EVENT: Final = 4_000_000


def require_storable_event(event: Event) -> Event:
    """The event itself, if the log can hold it. Raises RefusalError."""
    try:
        size = len(canonicalize_json(to_data(event)))
    except StoreError as error:
        raise RefusalError(
            error.message, code="registry.bad-data", field=error.field, hint="Send JSON values in UTF-8."
        ) from None
    if size > MAX_EVENT:
        raise RefusalError(
            "the event has too much text", code="registry.too-large", field="data",
            hint=f"An event has at most {MAX_EVENT} characters. Put the rest into the specification.",
        )  # fmt: skip
    return event


async def select_head(connection: AsyncConnection) -> Head:
    """The end of the log."""
    statement = select(log.c.number, log.c.digest, log.c.at).order_by(log.c.number.desc()).limit(1)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return Head(number=0, digest=GENESIS)
    return Head(number=row.number, digest=row.digest, at=row.at)


async def reserve_request_id(connection: AsyncConnection, registry: str) -> str:
    """Reserve the next request ID."""
    return f"{registry}-{await _advance_sequence(connection, registry_of(registry).id, None)}"


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
    event = await _assign_request_id(connection, event)
    request = None if event.kind is EventKind.OPEN else await _select_request(connection, event)
    name = request.name if request is not None else _normalize_name(event)
    entry = None if name is None else await _select_entry(connection, event.registry, name)
    _require_version(expected, event, request, entry)
    at = await _choose_time(connection, event, name, at, exact=exact)
    event = await add_restored_entry(connection, event, name, entry)
    decision = await _continue_entry_version(
        connection, decide(event, actor, at, request=request, entry=entry), entry
    )
    head = await select_head(connection)
    record = seal_record(head, at=at, actor=actor, event=event, rule=decision.rule, clause=decision.clause)
    await connection.execute(insert(log), make_log_row(record, name))
    changes = PendingChanges()
    changes.add(decision, entry, record)
    await changes.write(connection)
    if decision.notices:
        await connection.execute(
            insert(outbox), [make_notice_row(notice, record) for notice in decision.notices]
        )
    return Applied(record=record, decision=decision)


async def _assign_request_id(connection: AsyncConnection, event: Event) -> Event:
    """An OPEN event with the id of its request: the one it brings, if that was reserved, or the next."""
    if event.kind is not EventKind.OPEN:
        return event
    identifier = registry_of(event.registry).id
    if event.request is None:
        return replace(event, request=f"{identifier}-{await _advance_sequence(connection, identifier, None)}")
    match = re.fullmatch(re.escape(identifier) + r"-([1-9][0-9]{0,17})", event.request)
    if match is None:
        raise RegistryError(
            "this is not the ID of a request in this registry", code="registry.bad-id", field="request",
            hint=f"Leave it out, or reserve the next one: {identifier}-NUMBER.",
        )  # fmt: skip
    found = await connection.execute(select(requests.c.version).where(requests.c.id == event.request))
    version = found.scalar()
    if version is not None:
        raise StaleError("there is already a request with this ID", field="request", version=version)
    await _advance_sequence(connection, identifier, int(match[1]))
    return event


async def _advance_sequence(connection: AsyncConnection, registry: str, wanted: int | None) -> int:
    """Count on by one; or, where `wanted` is not given out yet, up to it, and no further than one."""
    where = sequences.c.registry == registry
    last = (await connection.execute(select(sequences.c.last).where(where))).scalar()
    number = (last or 0) + 1 if wanted is None else wanted
    if number <= (last or 0):
        return number
    if number > (last or 0) + 1:
        raise RegistryError(
            "this ID was not reserved", code="registry.bad-id", field="request",
            hint=f"The next ID is {registry}-{(last or 0) + 1}.",
        )  # fmt: skip
    if last is None:
        await connection.execute(insert(sequences), {"registry": registry, "last": number})
    else:
        await connection.execute(update(sequences).where(where).values(last=number))
    return number


async def _select_request(connection: AsyncConnection, event: Event) -> Request | None:
    if event.request is None:
        return None
    statement = select(requests.c.record).where(
        requests.c.id == event.request, requests.c.registry == event.registry
    )
    known = is_storable(event.request)
    record = (await connection.execute(statement)).scalar() if known else None
    if record is None:
        raise UnknownEntryError(
            "this registry has no request with this ID",
            code="registry.unknown-request",
            field="request",
        )
    return decode_record(Request, record)


async def _select_entry(connection: AsyncConnection, registry: str, name: str) -> Entry | None:
    statement = select(entries.c.record).where(entries.c.registry == registry, entries.c.name == name)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else decode_record(Entry, record)


def _normalize_name(event: Event) -> str | None:
    if event.name is None or not is_storable(event.name):
        return None
    return registry_of(event.registry).normalize_name(event.name)


def _require_version(
    expected: int | None, event: Event, request: Request | None, entry: Entry | None
) -> None:
    about = entry if request is None else request
    version = 0 if about is None else about.version
    if expected is not None and expected != version:
        field = "entry" if request is None else "request"
        raise StaleError(
            f"the {field} has changed since it was read", field=field, version=version,
            hint="Read it again and decide on its current state.",
        )  # fmt: skip


async def _choose_time(
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
        "the time is before the last record about it", code="registry.time-goes-back", field="at",
        hint=f"Give a time that is not before {last.isoformat()}.",
    )  # fmt: skip


async def _continue_entry_version(
    connection: AsyncConnection, decision: Decision, before: Entry | None
) -> Decision:
    new = None if before is not None else decision.entry
    last = 0 if new is None else await select_last_version(connection, new.registry, new.name)
    return continue_version(decision, before, last)


@dataclass(slots=True)
class PendingChanges:
    """Rows that decisions change, gathered, so that many go to the database together."""

    added: dict[tuple[str, str], Entry] = field(default_factory=dict)
    changed: dict[tuple[str, str], Entry] = field(default_factory=dict)
    removed: list[tuple[str, str]] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    moved: list[dict[str, Any]] = field(default_factory=list)
    happened: list[dict[str, Any]] = field(default_factory=list)

    def add(self, decision: Decision, before: Entry | None, record: LogRecord) -> None:
        """One more decision, and its record; `before` is the entry as it was."""
        request = decision.request
        if request is not None and record.event.kind is EventKind.OPEN:
            self.opened.append(make_request_row(request, record.number))
        elif request is not None:
            self.moved.append(make_request_row(request, 0))
        if decision.removed and before is not None:
            self.removed.append((before.registry, before.name))
        elif decision.entry is not None:
            key = (decision.entry.registry, decision.entry.name)
            (self.added if before is None else self.changed)[key] = decision.entry
        row = make_change_row(record, decision, before)
        if row is not None:
            self.happened.append(row)

    async def write(self, connection: AsyncConnection) -> None:
        """To the database, where the records are already."""
        if self.happened:
            await connection.execute(insert(entry_changes), self.happened)
        for key in self.removed:
            await connection.execute(delete(entry_text).where(_match_key(entry_text, *key)))
            await connection.execute(delete(entries).where(_match_key(entries, *key)))
        if self.added:
            await connection.execute(
                insert(entries), [make_entry_row(entry) for entry in self.added.values()]
            )
            await insert_texts(connection, [make_text_row(entry) for entry in self.added.values()])
        if self.changed:
            await _update_rows(
                connection, entries, [make_entry_row(entry) for entry in self.changed.values()]
            )
            await _update_rows(
                connection, entry_text, [make_text_row(entry) for entry in self.changed.values()]
            )
        if self.opened:
            await connection.execute(insert(requests), self.opened)
        if self.moved:
            rows = [{f"new_{name}": item for name, item in row.items()} for row in self.moved]
            await connection.execute(_UPDATE_REQUEST, rows)


def _match_key(table: Table, registry: str, name: str) -> Any:
    return and_(table.c.registry == registry, table.c.name == name)


async def _update_rows(connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    columns = [record for record in rows[0] if record not in {"registry", "name"}]
    statement = (
        update(table)
        .where(_match_key(table, bindparam("new_registry"), bindparam("new_name")))  # type: ignore[arg-type]
        .values({column: bindparam(f"new_{column}") for column in columns})
    )
    await connection.execute(statement, [{f"new_{name}": item for name, item in row.items()} for row in rows])


_UPDATE_REQUEST: Final = (
    update(requests)
    .where(requests.c.id == bindparam("new_id"))
    .values(
        {
            word: bindparam(f"new_{word}")
            for word in ("name", "state", "holder", "registrant", "version", "record")
        }
    )
)


#: rows that go to the database together
BATCH: Final = 1000


async def import_entries(
    connection: AsyncConnection,
    decide: Decide,
    registry: str,
    given: Iterable[Entry],
    actor: Actor,
    at: datetime,
    source: str,
    progress: Callable[[int], object] | None = None,
) -> ImportReport:
    """Every entry through the engine as an IMPORT event; all of it, or nothing.

    `progress` is told after each batch how many entries are done.
    """
    run = _ImportRun(decide, registry_of(registry).id, actor, at, source, await select_head(connection))
    statement = select(entries.c.name, entries.c.record).where(entries.c.registry == registry)
    for name, record in (await connection.execute(statement)).all():
        run.present[name] = decode_record(Entry, record)
    run.last = await select_last_versions(connection, registry)
    done = 0
    for batch in _iter_batches(given):
        rows, notices, changes = run.decide_all(batch)
        if rows:
            await connection.execute(insert(log), rows)
        await changes.write(connection)
        if notices:
            await connection.execute(insert(outbox), notices)
        done += len(batch)
        if progress is not None:
            progress(done)
    return run.make_report()


class _ImportRun:
    """An import under way: what was there, what the source brought, how it went."""

    def __init__(
        self, decide: Decide, registry: str, actor: Actor, at: datetime, source: str, head: Head
    ) -> None:
        self._decide, self._registry, self._actor = decide, registry, actor
        self._at, self._source, self._head = at, source, head
        self.present: dict[str, Entry] = {}
        #: the last versions of names that were registered once
        self.last: dict[str, int] = {}
        self._seen: set[str] = set()
        self._counts = {"added": 0, "changed": 0, "same": 0}
        self._irregular: list[Irregularity] = []

    def decide_all(
        self, batch: Sequence[Entry]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], PendingChanges]:
        """Rows of the log and of the outbox, and the changes, that these entries make."""
        rows: list[dict[str, Any]] = []
        notices: list[dict[str, Any]] = []
        changes = PendingChanges()
        for entry in batch:
            try:
                found = self._import_entry(entry, changes)
            except RefusalError as error:
                if error.code == "registry.wrong-role":
                    # of the actor, and so of every row
                    raise
                self._add_irregularity(entry, str(error), taken=False)
                continue
            if found is not None:
                rows.append(make_log_row(found.record, found.record.event.name))
                notices += [make_notice_row(notice, found.record) for notice in found.decision.notices]
        return rows, notices, changes

    def _import_entry(self, entry: Entry, changes: PendingChanges) -> Applied | None:
        from onym.registry.iana import prepare_import  # late: an import alone needs it

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
        if _is_unchanged(before, decision):
            self._counts["same"] += 1
            return None
        record = seal_record(
            self._head,
            at=self._at,
            actor=self._actor,
            event=event,
            rule=decision.rule,
            clause=decision.clause,
        )
        changes.add(decision, before, record)
        self._head = Head(number=record.number, digest=record.digest, at=record.at)
        self._counts["added" if before is None else "changed"] += 1
        return Applied(record=record, decision=decision)

    def _add_irregularity(self, entry: Entry, reason: str, *, taken: bool) -> None:
        name = entry.name.encode("utf-8", "replace").decode().replace("\0", "?")
        self._irregular.append(Irregularity(name=name, reason=reason, taken=taken))

    def _make_event(self, key: str, entry: Entry) -> Event:
        try:
            data = {"entry": to_data(entry), "source": self._source}
        except StoreError as error:
            raise RefusalError(error.message, code="registry.bad-data", field=error.field) from None
        return require_storable_event(
            Event(kind=EventKind.IMPORT, registry=self._registry, name=key, data=data)
        )

    def make_report(self) -> ImportReport:
        """How it went."""
        absent = tuple(sorted(self.present.keys() - self._seen))
        return ImportReport(**self._counts, absent=absent, irregular=tuple(self._irregular))


def _is_unchanged(before: Entry | None, decision: Decision) -> bool:
    """Would nothing change but the count of changes?"""
    after = decision.entry
    if before is None or after is None:
        return False
    return replace(after, version=before.version, updated=before.updated) == before


def _iter_batches(given: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    for entry in given:
        batch.append(entry)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


#: how long a claimed notice belongs to one sender
LEASE: Final = timedelta(minutes=5)
#: characters of a reason that are kept
_MAX_REASON: Final = 500


class Outbox:
    """`store.outbox`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, at: datetime, limit: int = 50, *, lease: timedelta = LEASE
    ) -> tuple[OutboxNotice, ...]:
        """Claim notices that are ready at `at`, the oldest first, for one sender until `at + lease`."""
        require_limit(limit)

        async def work(connection: AsyncConnection) -> tuple[OutboxNotice, ...]:
            ready = select(outbox).where(outbox.c.ready <= at).order_by(outbox.c.id).limit(limit)
            rows = (await connection.execute(ready)).all()
            claimed = update(outbox).where(outbox.c.id.in_([row.id for row in rows]))
            await connection.execute(claimed.values(ready=at + lease, attempts=outbox.c.attempts + 1))
            return tuple(_decode_notice(row) for row in rows)

        return await self._database.run_transaction(work)

    async def mark_sent(self, id: int, at: datetime) -> None:  # noqa: A002 - what the caller has
        """It is out. Raises UnknownEntryError."""
        await self._update_notice(id, ready=None, sent=at, reason=None)

    async def mark_failed(self, id: int, at: datetime, retry_at: datetime | None, reason: str) -> None:  # noqa: A002
        """It failed at `at`: again at `retry_at`, or (None) never. Raises UnknownEntryError."""
        said = reason[:_MAX_REASON].encode("utf-8", "replace").decode().replace("\0", "?")
        await self._update_notice(id, ready=retry_at, reason=said)

    async def count_waiting(self) -> int:
        """How many are still to be sent."""
        async with self._database.open_reader() as connection:
            rows = await connection.execute(select(outbox.c.id).where(outbox.c.ready.is_not(None)))
            return len(rows.all())

    async def _update_notice(self, identifier: int, **values: object) -> None:
        async def work(connection: AsyncConnection) -> None:
            # what was sent stays sent, whatever a slow second sender says
            statement = update(outbox).where(outbox.c.id == identifier, outbox.c.sent.is_(None))
            done = await connection.execute(statement.values(**values))
            if done.rowcount:
                return
            known = await connection.execute(select(outbox.c.id).where(outbox.c.id == identifier))
            if known.scalar() is None:
                raise UnknownEntryError(
                    "there is no notice with this ID", code="registry.unknown-notice", field="id"
                )

        await self._database.run_transaction(work)


def _decode_notice(row: Row[Any]) -> OutboxNotice:
    return OutboxNotice(
        id=row.id,
        registry=row.registry,
        request=row.request,
        to=Role(row.recipient) if row.is_role else row.recipient,
        subject=row.subject,
        text=row.text,
        attempts=row.attempts + 1,
        number=row.number,
    )
