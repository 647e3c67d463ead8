"""The store's values, their rows, and the writes of one event inside a transaction.

An event writes its log row, the projections, the sequence of request IDs and the notices. What a record
changed of an entry keeps the entry as it was before; the entry after it is what the next change of that
name found, or the present entry. No history is therefore decided again to show a change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from secrets import token_hex
from typing import Any, Final, TypeVar
from unicodedata import normalize

from sqlalchemy import Table, and_, bindparam, delete, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError, RegistryError, StaleError, StoreError, UnknownEntryError
from onym.registry.codec import GENESIS, Codable, canonicalize_json, from_data, seal_record, to_data
from onym.registry.engine import Decide
from onym.registry.records import (
    STAFF,
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    Head,
    LogRecord,
    Notice,
    Quota,
    Request,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import get_registry as registry_of
from onym.registry.store.schema import (
    entries,
    entry_changes,
    entry_text,
    find_wake_day,
    log,
    outbox,
    requests,
    sequences,
    usage,
)
from onym.store.sql import is_storable

EMPTY_HEAD: Final = Head(number=0, digest=GENESIS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An accepted event: its log record, and what the engine decided."""

    record: LogRecord
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """The change of an entry by one record: `before` is None for a new entry, `after` for a removed one."""

    #: the log record's
    number: int
    at: datetime
    event: EventKind
    name: str
    #: the version of the entry after it, or of the removed one
    version: int
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregularity:
    """A row of an import that was not `taken`, or not completely, and why."""

    name: str
    reason: str
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import. `absent` are names that the source lacks; they do not change."""

    added: int
    changed: int
    same: int
    absent: tuple[str, ...] = ()
    irregular: tuple[Irregularity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxNotice:
    """A notice that its sender has claimed. `attempts` includes the current one."""

    id: int
    registry: str
    request: str | None
    #: an account ID, or a role of the registry
    to: str | Role
    subject: str
    text: str
    attempts: int
    #: the number of its log record
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The counts of verified log records, entries and requests, and the head."""

    records: int
    entries: int
    requests: int
    head: Head


_Value = TypeVar("_Value", bound=Codable)
#: characters of one field that are searched
MAX_TEXT: Final = 4000
#: characters of the records on one page, after the first record
MOST_TEXT: Final = 8_000_000
_TEXT_FIELDS: Final = ("description", "applications", "reference", "references", "notes")


def decode_record(cls: type[_Value], record: str) -> _Value:
    """Return the value in a `record` column. Raises StoreError (registry.bad-record)."""
    try:
        data = json.loads(record)
    except (ValueError, RecursionError):
        raise StoreError(
            f"a {cls.__name__.lower()} in the database is not JSON",
            code="registry.bad-record",
            hint="Run: onym registry verify",
        ) from None
    return from_data(cls, data)


def make_log_row(record: LogRecord, name: str | None) -> dict[str, Any]:
    """Return a row of `log`; `name` is the name of the record's subject."""
    return {
        "number": record.number,
        "at": record.at,
        "registry": record.event.registry,
        "name": name,
        "request": record.event.request,
        "kind": str(record.event.kind),
        "digest": record.digest,
        "record": canonicalize_json(to_data(record)),
    }


def make_entry_row(entry: Entry) -> dict[str, Any]:
    """Return a row of `entries`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "version": entry.version,
        "wake": find_wake_day(entry.expires, None if entry.draft is None else entry.draft.expires),
        "record": canonicalize_json(to_data(entry)),
    }


def make_text_row(entry: Entry) -> dict[str, Any]:
    """Return a row of `entry_text`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "folded": fold_text(entry.name),
        "text": fold_text("\n".join(filter(None, map(entry.fields.get, _TEXT_FIELDS)))),
    }


def make_request_row(request: Request, opened: int) -> dict[str, Any]:
    """Return a row of `requests`; `opened` is the number of the log record that opened it."""
    return {
        "id": request.id,
        "opened": opened,
        "registry": request.registry,
        "name": request.name,
        "state": str(request.state),
        "holder": None if request.holder is None else str(request.holder),
        "registrant": request.registrant,
        "version": request.version,
        "record": canonicalize_json(to_data(request)),
    }


def make_notice_row(notice: Notice, record: LogRecord) -> dict[str, Any]:
    """Return a row of `outbox`, to be sent at once."""
    return {
        "number": record.number,
        "registry": record.event.registry,
        "request": record.event.request,
        "recipient": str(notice.to),
        "is_role": isinstance(notice.to, Role),
        "subject": notice.subject.replace("\0", " "),
        "text": notice.text.replace("\0", " "),
        "ready": record.at,
        "attempts": 0,
    }


def fold_text(text: str) -> str:
    """Return the text for comparisons: NFC, without case and NUL, at most `MAX_TEXT` characters."""
    # folding can decompose letters, so they are composed again (UAX #15, 3.13 of Unicode)
    folded = normalize("NFC", normalize("NFC", text[:MAX_TEXT]).casefold())
    return folded.replace("\0", " ")


_INDEX: Final = text(
    "INSERT INTO entry_fts(rowid, folded, text) SELECT id, folded, text FROM entry_text WHERE id > :last"
)


async def insert_texts(connection: AsyncConnection, rows: list[dict[str, Any]]) -> None:
    """Insert rows into `entry_text` and, in one statement, into SQLite's index of it."""
    last = (await connection.execute(select(func.max(entry_text.c.id)))).scalar() or 0
    await connection.execute(insert(entry_text), rows)
    if connection.dialect.name == "sqlite":
        await connection.execute(_INDEX, {"last": last})


async def select_entry(connection: AsyncConnection, registry: str, name: str) -> Entry | None:
    """Return the entry of a name, or None."""
    key = registry_of(registry).normalize_name(name)
    if not is_storable(key):
        return None
    statement = select(entries.c.record).where(entries.c.registry == registry, entries.c.name == key)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else decode_record(Entry, record)


async def select_request(connection: AsyncConnection, identifier: str) -> Request | None:
    """Return the request with this ID, or None."""
    if not is_storable(identifier):
        return None
    statement = select(requests.c.record).where(requests.c.id == identifier)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else decode_record(Request, record)


def continue_version(decision: Decision, before: Entry | None, last: int) -> Decision:
    """Return the decision; a new entry continues after the last version of its name."""
    if before is not None or decision.entry is None:
        return decision
    return replace(decision, entry=replace(decision.entry, version=last + 1))


def make_change_row(record: LogRecord, decision: Decision, before: Entry | None) -> dict[str, Any] | None:
    """Return the row of `entry_changes` for a record, or None if it changed no entry."""
    from onym.registry.iana import compare_entries  # late: reading an entry needs none of it

    after = None if decision.removed else decision.entry
    about = after or (before if decision.removed else None)
    if about is None:
        return None
    return {
        "number": record.number,
        "registry": about.registry,
        "name": about.name,
        "version": about.version,
        "shown": compare_entries(before, after) is not None,
        "before": None if before is None else canonicalize_json(to_data(before)),
    }


async def select_last_version(connection: AsyncConnection, registry: str, name: str) -> int:
    """Return the highest version of the entries of a name; 0 if there was none."""
    statement = select(func.max(entry_changes.c.version)).where(
        entry_changes.c.registry == registry, entry_changes.c.name == name
    )
    return int((await connection.execute(statement)).scalar() or 0)


async def add_restored_entry(
    connection: AsyncConnection, event: Event, name: str | None, entry: Entry | None
) -> Event:
    """Add the earlier entry as `restore` to an override that undoes a record; return other events unchanged.

    The log then contains the restored entry; a `restore` of the caller is replaced. `name` and `entry` are
    the subject of the event. Raises RefusalError (field "undoes"): registry.bad-data if it is not a number,
    registry.not-allowed if the record is not an override of the name, found no entry, or the entry has
    changed since.
    """
    given = event.data.get("undoes")
    if event.kind is not EventKind.OVERRIDE or given is None or name is None:
        return event
    number = _parse_number(given)
    of_name = (entry_changes.c.registry == event.registry, entry_changes.c.name == name)
    one = select(log.c.kind, entry_changes.c.before).join(log, log.c.number == entry_changes.c.number)
    first = (await connection.execute(one.where(*of_name, entry_changes.c.number == number))).one_or_none()
    if first is None or first.kind != EventKind.OVERRIDE:
        raise _make_undo_error(
            f"record {number} is not an override of this name",
            "List the records of the name: onym registry show NAME",
        )
    if first.before is None:
        raise _make_undo_error(
            f"there was no entry before record {number}", "Remove the entry with an override: remove=yes"
        )
    later = select(entry_changes.c.before).where(*of_name, entry_changes.c.number > number)
    # if nothing has changed since, every later change found the entry that the record left
    changed = False
    # an error inside the block would leave the cursor open
    async with connection.stream_scalars(later.execution_options(yield_per=_FETCH_SIZE)) as rows:
        async for before in rows:
            old = None if before is None else decode_record(Entry, before)
            changed = _strip_pending(old) != _strip_pending(entry)
            if changed:
                break
    if changed:
        raise _make_undo_error(f"the entry has changed since record {number}", "Override what is wrong now.")
    if entry is not None and entry.status is Status.PENDING_REVIEW:
        raise _make_undo_error("a request for this name is under review", "Decide that request first.")
    restored = to_data(decode_record(Entry, first.before))
    return replace(event, data={**event.data, "undoes": number, "restore": restored})


def _strip_pending(entry: Entry | None) -> Entry | None:
    """Return the entry without its pending requests; None if it only shows a request."""
    if entry is None or entry.status is Status.PENDING_REVIEW:
        return None
    return replace(entry, pending=(), updated=None, version=0)


def _parse_number(given: object) -> int:
    text = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not _NUMBER.fullmatch(text):
        raise RefusalError("`undoes` is not the number of a record", code="registry.bad-data", field="undoes")
    return int(text)


def _make_undo_error(message: str, hint: str) -> RefusalError:
    return RefusalError(
        message,
        code="registry.not-allowed",
        field="undoes",
        clause="docs/decisions/0026",
        rule="X",
        hint=hint,
    )


#: log records and changes that the database returns at once
_FETCH_SIZE: Final = 20
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
#: characters of one event's JSON
MAX_EVENT: Final = 4_000_000


def require_storable_event(event: Event) -> Event:
    """Return the event if the log can store it. Raises RefusalError."""
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
    """Return the end of the log."""
    statement = select(log.c.number, log.c.digest, log.c.at).order_by(log.c.number.desc()).limit(1)
    row = (await connection.execute(statement)).one_or_none()
    return EMPTY_HEAD if row is None else Head(number=row.number, digest=row.digest, at=row.at)


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
    quota: Quota | None = None,
) -> Applied:
    """Decide an event, and write its log record and all that follows from it."""
    day = at.date()
    event = await _assign_request_id(connection, event)
    request = None if event.kind is EventKind.OPEN else await _find_request(connection, event)
    name = request.name if request is not None else _normalize_name(event)
    entry = None if name is None else await select_entry(connection, event.registry, name)
    _require_version(expected, event, request, entry)
    at = await _choose_time(connection, event, name, at, exact=exact)
    event = await add_restored_entry(connection, event, name, entry)
    decision = decide(event, actor, at, request=request, entry=entry)
    if entry is None and decision.entry is not None:
        last = await select_last_version(connection, decision.entry.registry, decision.entry.name)
        decision = continue_version(decision, entry, last)
    record = seal_decision(await select_head(connection), decision, at=at, actor=actor, event=event)
    row = make_log_row(record, name)
    if quota is not None and not actor.roles & STAFF:
        await _charge_quota(connection, quota, decision, event, actor, day, len(row["record"].encode()))
    await connection.execute(insert(log), row)
    changes = PendingChanges()
    changes.add(decision, entry, record)
    await changes.write(connection)
    if decision.notices:
        await connection.execute(
            insert(outbox), [make_notice_row(notice, record) for notice in decision.notices]
        )
    return Applied(record=record, decision=decision)


#: states of requests that have ended
_ENDED: Final = tuple(str(state) for state in RequestState if state.is_final)


async def _charge_quota(
    connection: AsyncConnection,
    quota: Quota,
    decision: Decision,
    event: Event,
    actor: Actor,
    day: date,
    size: int,
) -> None:
    """Count the bytes of a registrant's record. Raises RefusalError (registry.quota)."""
    if event.kind is EventKind.OPEN and decision.request is not None:
        own = (requests.c.registrant == actor.id, requests.c.state.not_in(_ENDED))
        count = (
            await connection.execute(select(func.count()).select_from(requests).where(*own))
        ).scalar_one()
        if count >= quota.open_requests:
            raise RefusalError(
                f"this account has {count} open requests, and may have {quota.open_requests}",
                code="registry.quota",
                field="request",
                hint="Withdraw requests that you do not need, or wait until others are decided.",
            )
    own_day = (usage.c.actor == actor.id, usage.c.day == day)
    used = (await connection.execute(select(usage.c.bytes).where(*own_day))).scalar() or 0
    if used + size > quota.daily_bytes:
        raise RefusalError(
            f"this account has stored {used} bytes today, and may store {quota.daily_bytes}",
            code="registry.quota",
            field="data",
            hint="Try again tomorrow (UTC), or put the text into the specification and refer to it.",
        )
    if used:
        await connection.execute(update(usage).where(*own_day).values(bytes=used + size))
    else:
        await connection.execute(insert(usage).values(actor=actor.id, day=day, bytes=size))
        await connection.execute(delete(usage).where(usage.c.actor == actor.id, usage.c.day < day))


def seal_decision(head: Head, decision: Decision, *, at: datetime, actor: Actor, event: Event) -> LogRecord:
    """Return the log record of a decision, after `head`."""
    return seal_record(
        head,
        at=at,
        actor=actor,
        event=event,
        rule=decision.rule,
        clause=decision.clause,
        salt=token_hex(16),
    )


async def _assign_request_id(connection: AsyncConnection, event: Event) -> Event:
    """Return an OPEN event with a request ID: its own, if it was reserved, or the next."""
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
    """Return the next number, or `wanted` if it was reserved or is the next."""
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


async def _find_request(connection: AsyncConnection, event: Event) -> Request | None:
    if event.request is None:
        return None
    request = await select_request(connection, event.request)
    if request is None or request.registry != event.registry:
        raise UnknownEntryError(
            "this registry has no request with this ID", code="registry.unknown-request", field="request"
        )
    return request


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
    """Return the time of the event: not before the last record about the request or the entry.

    Deadlines are computed from record to record, and clocks differ: an earlier time becomes that of the last
    record, unless it is `exact`. Imports are as old as their file. Records about other subjects are ignored.
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


@dataclass(slots=True)
class PendingChanges:
    """The rows that decisions change, collected, so that one statement writes many."""

    added: dict[tuple[str, str], Entry] = field(default_factory=dict)
    changed: dict[tuple[str, str], Entry] = field(default_factory=dict)
    removed: list[tuple[str, str]] = field(default_factory=list)
    opened: list[dict[str, Any]] = field(default_factory=list)
    moved: list[dict[str, Any]] = field(default_factory=list)
    happened: list[dict[str, Any]] = field(default_factory=list)

    def add(self, decision: Decision, before: Entry | None, record: LogRecord) -> None:
        """Add a decision and its record; `before` is the entry before it."""
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
        """Write the rows to the database, which has the records already."""
        if self.happened:
            await connection.execute(insert(entry_changes), self.happened)
        for key in self.removed:
            await connection.execute(delete(entry_text).where(_match_key(entry_text, *key)))
            await connection.execute(delete(entries).where(_match_key(entries, *key)))
        if self.added:
            await connection.execute(insert(entries), list(map(make_entry_row, self.added.values())))
            await insert_texts(connection, list(map(make_text_row, self.added.values())))
        if self.changed:
            await _update_rows(connection, entries, list(map(make_entry_row, self.changed.values())))
            await _update_rows(connection, entry_text, list(map(make_text_row, self.changed.values())))
        if self.opened:
            await connection.execute(insert(requests), self.opened)
        if self.moved:
            await _update_rows(connection, requests, self.moved, by=("id",), fixed=("opened", "registry"))


def _match_key(table: Table, registry: str, name: str) -> Any:
    return and_(table.c.registry == registry, table.c.name == name)


async def _update_rows(
    connection: AsyncConnection,
    table: Table,
    rows: Sequence[dict[str, Any]],
    *,
    by: Sequence[str] = ("registry", "name"),
    fixed: Sequence[str] = (),
) -> None:
    """Update the rows of the table that have the same values in the columns `by`, except `fixed` columns."""
    statement = update(table).where(*(table.c[name] == bindparam(f"new_{name}") for name in by))
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in rows[0] if name not in {*by, *fixed}}
    parameters = [{f"new_{name}": item for name, item in row.items()} for row in rows]
    await connection.execute(statement.values(values), parameters)
