"""What each record changed of an entry: versions that are never reused, feeds, and entries before a removal.

A change keeps the entry as it was before. The entry after it is what the next change of that name found,
or the present entry. No history is therefore decided again to show a change, however long the history
is.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError
from onym.registry.codec import canonicalize_json, to_data
from onym.registry.records import Decision, Entry, Event, EventKind, LogRecord, Status
from onym.registry.registries import get_registry as registry_of
from onym.registry.store.rows import MOST_TEXT, EntryChange, decode_record
from onym.registry.store.schema import entries, entry_changes, log
from onym.store.sql import is_storable, require_limit

_FETCH_SIZE: Final = 20
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}\Z")


def continue_version(decision: Decision, before: Entry | None, last: int) -> Decision:
    """The decision; a row that was not there counts on from the last version that its name had."""
    if before is not None or decision.entry is None:
        return decision
    return replace(decision, entry=replace(decision.entry, version=last + 1))


def make_change_row(record: LogRecord, decision: Decision, before: Entry | None) -> dict[str, Any] | None:
    """The row of `entry_changes` for that record; None where it changed no entry."""
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
    """The highest version that an entry of that name has had; 0 where there was none."""
    statement = select(func.max(entry_changes.c.version)).where(
        entry_changes.c.registry == registry, entry_changes.c.name == name
    )
    return int((await connection.execute(statement)).scalar() or 0)


async def select_last_versions(connection: AsyncConnection, registry: str) -> dict[str, int]:
    """`select_last_version` of every name that is registered no longer."""
    gone = entry_changes.outerjoin(entries, _match_entry(entry_changes.c)).select()
    statement = (
        gone.with_only_columns(entry_changes.c.name, func.max(entry_changes.c.version).label("last"))
        .where(entry_changes.c.registry == registry, entries.c.name.is_(None))
        .group_by(entry_changes.c.name)
    )
    return {row.name: row.last for row in await connection.execute(statement)}


async def add_restored_entry(
    connection: AsyncConnection, event: Event, name: str | None, entry: Entry | None
) -> Event:
    """An override that undoes a record, with the entry as it was before that record as `restore`.

    The event holds it from then on, so that the log alone says what came back; what a caller brings as
    `restore` is not looked at. Other events come back as they are. `name` and `entry` are what the event is
    about. Raises RefusalError (field "undoes"): registry.bad-data for what is no number,
    registry.not-allowed where the record is no override of that name, found no entry, or the entry has
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
    # what each later change found is what the record left, if nothing has changed since
    changed = False
    # an error inside the block would leave the cursor open
    async with connection.stream_scalars(later.execution_options(yield_per=_FETCH_SIZE)) as rows:
        async for before in rows:
            changed = _decode_bare_entry(before) != _strip_pending(entry)
            if changed:
                break
    if changed:
        raise _make_undo_error(f"the entry has changed since record {number}", "Override what is wrong now.")
    if entry is not None and entry.status is Status.PENDING_REVIEW:
        raise _make_undo_error("a request for this name is under review", "Decide that request first.")
    restored = to_data(decode_record(Entry, first.before))
    return replace(event, data={**event.data, "undoes": number, "restore": restored})


def _decode_bare_entry(record: str | None) -> Entry | None:
    return None if record is None else _strip_pending(decode_record(Entry, record))


def _strip_pending(entry: Entry | None) -> Entry | None:
    """The entry but for what a request that waits leaves on it; None for a row that only waits."""
    if entry is None or entry.status is Status.PENDING_REVIEW:
        return None
    return replace(entry, pending=(), updated=None, version=0)


def _parse_number(given: object) -> int:
    text = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not _NUMBER.match(text):
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


async def select_shown_changes(
    connection: AsyncConnection, registry: str, limit: int
) -> tuple[EntryChange, ...]:
    """The last changes of a registry that its public columns show, the newest first."""
    conditions = (entry_changes.c.registry == registry_of(registry).id, entry_changes.c.shown)
    return await _fetch_changes(connection, _build_statement(conditions, limit))


async def select_changes_of_name(
    connection: AsyncConnection, registry: str, name: str, below: int | None, limit: int
) -> tuple[EntryChange, ...]:
    """The changes of one name before record `below`, the newest first."""
    key = registry_of(registry).normalize_name(name)
    if not is_storable(key):
        return ()
    conditions = [entry_changes.c.registry == registry, entry_changes.c.name == key]
    if below is not None:
        conditions.append(entry_changes.c.number < below)
    return await _fetch_changes(connection, _build_statement(conditions, limit))


def _match_entry(columns: Any) -> ColumnElement[bool]:
    return and_(entries.c.registry == columns.registry, entries.c.name == columns.name)


def _build_statement(conditions: Any, limit: int) -> Select[Any]:
    later = entry_changes.alias()
    following = (
        select(func.min(later.c.number))
        .where(
            later.c.registry == entry_changes.c.registry,
            later.c.name == entry_changes.c.name,
            later.c.number > entry_changes.c.number,
        )
        .scalar_subquery()
    )
    some = (
        select(entry_changes, following.label("following"))
        .where(*conditions)
        .order_by(entry_changes.c.number.desc())
        .limit(require_limit(limit))
        .subquery()
    )
    then = entry_changes.alias()
    after = case((some.c.following.is_(None), entries.c.record), else_=then.c.before)
    joined = some.join(log, log.c.number == some.c.number)
    joined = joined.outerjoin(then, then.c.number == some.c.following).outerjoin(
        entries, _match_entry(some.c)
    )
    return (
        select(
            some.c.number,
            log.c.at,
            log.c.kind,
            some.c.name,
            some.c.version,
            some.c.before,
            after.label("after"),
        )
        .select_from(joined)
        .order_by(some.c.number.desc())
    )


async def _fetch_changes(connection: AsyncConnection, statement: Select[Any]) -> tuple[EntryChange, ...]:
    """Fewer where they are long, as for `records_of`; the newest are there."""
    found: list[EntryChange] = []
    weight = 0
    async with connection.stream(statement.execution_options(yield_per=_FETCH_SIZE)) as rows:
        async for row in rows:
            weight += len(row.before or "") + len(row.after or "")
            if found and weight > MOST_TEXT:
                break
            found.append(
                EntryChange(
                    number=row.number,
                    at=row.at,
                    event=EventKind(row.kind),
                    name=row.name,
                    version=row.version,
                    before=None if row.before is None else decode_record(Entry, row.before),
                    after=None if row.after is None else decode_record(Entry, row.after),
                )
            )
    return tuple(found)
