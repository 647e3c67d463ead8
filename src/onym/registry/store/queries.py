"""Queries: pages of entries and requests, the log, changes of entries, search, and statistics.

Search order: exact name, beginning of the name, part of the name, then part of description,
applications, references or notes; shorter names first within each. If nothing contains the text, the
result is the names that are one letter away from it. Search ignores case. One or two letters are searched
for in names only. SQLite uses an index of trigrams (FTS5); PostgreSQL uses LIKE, which pg_trgm serves if
it is installed.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from itertools import accumulate
from statistics import median
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Text,
    and_,
    any_,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.accounts.records import ALL_REALMS
from onym.errors import ConfigError, RefusalError, StoreError
from onym.registry.engine import EXPIRY_NOTICE_DAYS
from onym.registry.records import Entry, EventKind, Head, LogRecord, Request, RequestState, Status
from onym.registry.registries import BUILTIN, REGISTRIES, Catalog, list_near_spellings
from onym.registry.registries import get_registry as registry_of
from onym.registry.store._writes import MOST_TEXT, EntryChange, decode_record, fold_text, select_head
from onym.registry.store.schema import entries, entry_changes, entry_text, log, requests
from onym.store.sql import Database, Page, decode_cursor, encode_cursor, is_storable, require_limit

#: characters of a query that are used
MAX_QUERY: Final = 200
#: matches of one rank that are sorted by length; if there are more, the first page may lack some
CANDIDATES: Final = 1000
_MANY: Final = 2 * CANDIDATES
#: letters that a trigram index needs
_TRIGRAM: Final = 3


#: succeeds if SQLite is 3.34 or newer and built with FTS5
PROBE: Final = "CREATE VIRTUAL TABLE probe USING fts5(x, tokenize='trigram')"

_FOLDED: Final = entry_text.c.folded
_TEXT: Final = entry_text.c.text
_SHORTEST: Final = (func.length(_FOLDED), _FOLDED, entry_text.c.registry)


def require_search(database: Database) -> None:
    """Raise StoreError (registry.no-full-text) if this Python's SQLite has no trigram index."""
    if database.dialect == "sqlite" and not has_trigrams():
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} of this Python has no trigram index (FTS5)",
            code="registry.no-full-text",
            field="url",
            hint="Use a Python with SQLite 3.34 or newer built with FTS5 (those of uv, python.org and Debian "
            "have it), or a PostgreSQL database: postgresql+psycopg://USER@HOST/DATABASE",
        )


@cache
def has_trigrams() -> bool:
    """Report whether the SQLite of this process can index trigrams."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(PROBE)
        except sqlite3.OperationalError:
            return False
    return True


async def select_definition_number(connection: AsyncConnection) -> int:
    """Return the number of the record that defined the rows in force; 0 for the built-in rows."""
    statement = (
        select(log.c.number)
        .where(log.c.registry == ALL_REALMS, log.c.name.is_(None))
        .order_by(log.c.number.desc())
        .limit(1)
    )
    return int((await connection.execute(statement)).scalar() or 0)


async def select_catalog(connection: AsyncConnection, number: int) -> Catalog:
    """Return the rows that the record defined; for number 0 the built-in ones."""
    if not number:
        return BUILTIN
    record = (await connection.execute(select(log.c.record).where(log.c.number == number))).scalar_one()
    return load_catalog(decode_record(LogRecord, record))


def load_catalog(record: LogRecord) -> Catalog:
    """Return the rows that a DEFINE record put in force."""
    from onym.registry.definitions import parse_definition  # late: few logs have a definition

    def make_error(message: str, *keys: str, code: str = "", hint: str | None = None) -> ConfigError:
        place = f"record {record.number}: {'.'.join(keys)}"
        return ConfigError(f"{place}: {message}", code=code or "config.invalid", hint=hint)

    return parse_definition(record.event.data["definition"], make_error).catalog


async def require_rows_of_entries(connection: AsyncConnection, catalog: Catalog) -> None:
    """Raise RefusalError if entries or requests are in a registry that the catalog does not have."""
    for table in (entries, requests):
        statement = (
            select(table.c.registry).where(table.c.registry.not_in(tuple(catalog.registries))).limit(1)
        )
        left_out = (await connection.execute(statement)).scalar()
        if left_out is not None:
            raise RefusalError(
                f"the definition leaves out the registry {left_out}, which has entries or requests",
                code="registry.bad-definition",
                field="registries",
                hint=f'Keep it: add "{left_out}" to builtin, or use a new database.',
            )


async def search_entries(
    connection: AsyncConnection, registry: str | None, query: str, limit: int, *, near: bool
) -> tuple[Entry, ...]:
    """Return entries that contain `query`, best first; with `near`, else those of similar names.

    `registry` None searches all registries.
    """
    wanted = fold_text(query[:MAX_QUERY]).strip()
    if not wanted or not is_storable(query):
        return ()
    found: list[int] = []
    for rank in _build_ranks(connection.dialect.name, registry, wanted):
        # earlier ranks may have found the first ones already
        statement = _select_candidates(rank, limit + len(found))
        rows: list[int] = list((await connection.execute(statement)).scalars())
        found += [row for row in rows if row not in found]
        if len(found) >= limit:
            break
    if near and not found and (spellings := list_near_spellings(wanted)):
        statement = _select_candidates(_is_one_of(connection.dialect.name, registry, spellings), limit)
        found = list((await connection.execute(statement)).scalars())
    return await _fetch_entries(connection, found[:limit])


def _is_one_of(dialect: str, registry: str | None, names: Collection[str]) -> ColumnElement[bool]:
    # each name is looked up in the index on registry and folded name; hundreds of parameters would take
    # longer than the search, so all names are one
    somewhere = REGISTRIES if registry is None else (registry,)
    if dialect == "sqlite":
        listed = func.json_each(json.dumps(sorted(names))).table_valued("value")
        return and_(entry_text.c.registry.in_(somewhere), _FOLDED.in_(select(listed.c.value)))
    return and_(entry_text.c.registry.in_(somewhere), any_(literal(sorted(names), ARRAY(Text))) == _FOLDED)


async def search_names(
    connection: AsyncConnection,
    registry: str,
    query: str,
    status: Status | None,
    beyond: str | None,
    limit: int,
) -> list[str]:
    """Return names after `beyond`, in order, of entries that contain `query` in name or text."""
    wanted = fold_text(query[:MAX_QUERY]).strip()
    if not is_storable(query):
        return []
    dialect = connection.dialect.name
    columns = (_FOLDED,) if len(wanted) < _TRIGRAM else (_FOLDED, _TEXT)
    conditions = [or_(*(_contains_text(dialect, column, wanted) for column in columns))]
    # few matches are all fetched; if there are many, reading in order soon has enough
    if await _has_few_matches(connection, wanted):
        conditions.append(entry_text.c.id.in_(_select_matches(None, wanted)))
        statement = select(entry_text.c.registry, entry_text.c.status, entry_text.c.name).where(*conditions)
        rows = (await connection.execute(statement)).all()
        some = (row.name for row in rows if row.registry == registry and status in {None, row.status})
        return sorted(name for name in some if beyond is None or name > beyond)[:limit]
    conditions.append(entry_text.c.registry == registry)
    if status is not None:
        conditions.append(entry_text.c.status == str(status))
    if beyond is not None:
        conditions.append(entry_text.c.name > beyond)
    names = select(entry_text.c.name).where(*conditions).order_by(entry_text.c.name).limit(limit)
    return list((await connection.execute(names)).scalars())


async def _has_few_matches(connection: AsyncConnection, wanted: str) -> bool:
    """Report whether SQLite's index has few matches; PostgreSQL plans the query itself."""
    if connection.dialect.name != "sqlite" or len(wanted) < _TRIGRAM:
        return False
    some = _select_matches(None, wanted).limit(_MANY).subquery()
    return int((await connection.execute(select(func.count()).select_from(some))).scalar_one()) < _MANY


def _build_ranks(dialect: str, registry: str | None, wanted: str) -> list[ColumnElement[bool]]:
    here = [] if registry is None else [entry_text.c.registry == registry]
    short = len(wanted) < _TRIGRAM
    columns = (_FOLDED,) if short else (_FOLDED, _TEXT)
    parts = [_contains_text(dialect, column, wanted) for column in columns]
    names = [_FOLDED.in_((wanted,)), _starts_with(wanted)]
    if short or dialect != "sqlite":
        return [and_(rank, *here) for rank in (*names, *parts)]
    # an expression instead of the column, so that SQLite uses the trigrams and not the column's index
    there = [] if registry is None else [entry_text.c.registry + "" == registry]
    matches = [entry_text.c.id.in_(_select_matches(column.name, wanted)) for column in columns]
    return [
        *(and_(rank, *here) for rank in names),
        *(and_(match, part, *there) for match, part in zip(matches, parts, strict=True)),
    ]


def _starts_with(wanted: str) -> ColumnElement[bool]:
    # names with this beginning are one range of the index on `folded`
    return and_(wanted <= _FOLDED, wanted + "\U0010ffff" > _FOLDED)


def _contains_text(dialect: str, column: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
    if dialect == "sqlite":
        return func.instr(column, wanted) > 0
    return column.contains(wanted, autoescape=True)


def _select_matches(column: str | None, wanted: str) -> Select[Any]:
    """Return the query for IDs of rows that the trigram index has for `wanted`, in one column or in any."""
    # one phrase of FTS5: only quotes have a meaning and are doubled
    phrase = '"' + wanted.replace('"', '""') + '"'
    query = phrase if column is None else f"{column} : {phrase}"
    rows: Select[Any] = select(literal_column("rowid")).select_from(text("entry_fts"))
    return rows.where(literal_column("entry_fts").op("MATCH")(query))


def _select_candidates(condition: ColumnElement[bool], limit: int) -> Select[Any]:
    some = select(entry_text.c.id).where(condition).limit(max(CANDIDATES, limit))
    return (
        select(entry_text.c.id)
        .where(entry_text.c.id.in_(some.scalar_subquery()))
        .order_by(*_SHORTEST)
        .limit(limit)
    )


async def _fetch_entries(connection: AsyncConnection, found: list[int]) -> tuple[Entry, ...]:
    same = and_(entries.c.registry == entry_text.c.registry, entries.c.name == entry_text.c.name)
    lengths = select(entry_text.c.id, func.length(entries.c.record).label("size")).join(entries, same)
    sizes = {row.id: row.size for row in await connection.execute(lengths.where(entry_text.c.id.in_(found)))}
    weights = accumulate(sizes[item] for item in found)
    # the first one has any length, as in lists
    shown = [
        item for item, weight in zip(found, weights, strict=True) if item is found[0] or weight <= MOST_TEXT
    ]
    statement = (
        select(entry_text.c.id, entries.c.record).join(entries, same).where(entry_text.c.id.in_(shown))
    )
    records = {row.id: row.record for row in await connection.execute(statement)}
    return tuple(decode_record(Entry, records[identifier]) for identifier in shown)


#: records that the database returns at once
_FETCH_SIZE: Final = 50


async def count_by_status(connection: AsyncConnection, registry: str) -> dict[Status, int]:
    """Return the number of entries by status, without unused statuses."""
    statement = select(entries.c.status, func.count()).where(entries.c.registry == registry_of(registry).id)
    rows = await connection.execute(statement.group_by(entries.c.status))
    return {Status(status): number for status, number in rows}


async def select_names(connection: AsyncConnection, registry: str) -> tuple[str, ...]:
    """Return every name, in order."""
    statement = select(entries.c.name).where(entries.c.registry == registry_of(registry).id)
    return tuple((await connection.execute(statement.order_by(entries.c.name))).scalars())


async def select_entries(
    connection: AsyncConnection,
    registry: str,
    query: str,
    status: Status | None,
    after: str | None,
    limit: int,
) -> Page[Entry]:
    """Return entries by name that contain `query` and have `status`; long entries make shorter pages."""
    filters = ("entries", registry_of(registry).id, query, status)
    beyond = None if after is None else decode_cursor(after, filters, str)
    statement = select(entries.c.name, entries.c.record).where(entries.c.registry == registry)
    statement = statement.order_by(entries.c.name)
    if query.strip():
        names = await search_names(connection, registry, query, status, beyond, require_limit(limit) + 1)
        statement = statement.where(entries.c.name.in_(names))
    else:
        if status is not None:
            statement = statement.where(entries.c.status == str(status))
        if beyond is not None:
            statement = statement.where(entries.c.name > beyond)
    return _make_page(Entry, *await _fetch_rows(connection, statement, limit), filters)


async def select_open_requests(
    connection: AsyncConnection, registry: str, name: str, limit: int
) -> tuple[Request, ...]:
    """Return the requests about a name that have not ended, oldest first; long ones make fewer."""
    if not is_storable(name):
        return ()
    statement = select(requests.c.opened, requests.c.record).where(
        requests.c.registry == registry,
        requests.c.name == name,
        requests.c.state.not_in([str(state) for state in RequestState if state.is_final]),
    )
    rows, _ = await _fetch_rows(connection, statement.order_by(requests.c.opened), limit)
    return tuple(decode_record(Request, record) for _, record in rows)


async def select_requests(
    connection: AsyncConnection, conditions: dict[str, str | None], after: str | None, limit: int
) -> Page[Request]:
    """Return requests, newest first; `conditions` are values of columns (None: any value).

    Long requests make shorter pages.
    """
    filters = ("requests", *conditions.values())
    given = {name: str(condition) for name, condition in conditions.items() if condition is not None}
    if not all(map(is_storable, given.values())):
        return Page(items=())
    statement = select(requests.c.opened, requests.c.record)
    statement = statement.where(*(requests.c[name] == item for name, item in given.items()))
    if after is not None:
        statement = statement.where(requests.c.opened < decode_cursor(after, filters, int))
    rows, more = await _fetch_rows(connection, statement.order_by(requests.c.opened.desc()), limit)
    return _make_page(Request, rows, more, filters)


async def select_records(
    connection: AsyncConnection, /, after: int, limit: int, **about: str
) -> tuple[LogRecord, ...]:
    """Return log records after number `after`, oldest first; `about` are values of columns.

    Long records make shorter pages: only an empty page is the end. The connection must be in a transaction,
    because PostgreSQL streams only in transactions.
    """
    if not all(map(is_storable, about.values())):
        return ()
    statement = select(log.c.record).where(log.c.number > after)
    statement = statement.where(*(log.c[name] == item for name, item in about.items()))
    statement = statement.order_by(log.c.number).limit(require_limit(limit))
    found: list[LogRecord] = []
    weight = 0
    async with connection.stream_scalars(statement.execution_options(yield_per=_FETCH_SIZE)) as rows:
        async for record in rows:
            weight += len(record)
            if found and weight > MOST_TEXT:
                break
            found.append(decode_record(LogRecord, record))
    return tuple(found)


async def select_timed(connection: AsyncConnection, day: date) -> tuple[list[Request], list[Entry]]:
    """Return the open requests, and the entries with a timer that may be due on `day`."""
    noticed = date.fromordinal(min(day.toordinal() + EXPIRY_NOTICE_DAYS, date.max.toordinal()))
    final = [str(state) for state in RequestState if state.is_final]
    waiting = select(requests.c.record).where(requests.c.state.not_in(final))
    timed = select(entries.c.record).where(entries.c.wake <= noticed)
    open_ones = (await connection.execute(waiting.order_by(requests.c.opened))).scalars()
    ripe = (await connection.execute(timed.order_by(entries.c.registry, entries.c.name))).scalars()
    return [decode_record(Request, record) for record in open_ones], [
        decode_record(Entry, record) for record in ripe
    ]


async def _fetch_rows(
    connection: AsyncConnection, statement: Select[Any], limit: int
) -> tuple[list[tuple[Any, str]], bool]:
    """Return at least one and at most `limit` rows, fewer if they are long, and whether more follow."""
    # one more than asked, to know whether a page follows
    statement = statement.limit(require_limit(limit) + 1)
    found: list[tuple[Any, str]] = []
    weight = 0
    async with connection.stream(statement.execution_options(yield_per=_FETCH_SIZE)) as rows:
        async for key, record in rows:
            weight += len(record)
            if len(found) == limit or (found and weight > MOST_TEXT):
                return found, True
            found.append((key, record))
    return found, False


def _make_page(cls: Any, rows: list[tuple[Any, str]], more: bool, filters: tuple[object, ...]) -> Page[Any]:
    following = encode_cursor(filters, rows[-1][0]) if more else None
    return Page(items=tuple(decode_record(cls, record) for _, record in rows), next=following)


async def select_shown_changes(
    connection: AsyncConnection, registry: str | None, limit: int
) -> tuple[EntryChange, ...]:
    """Return the last changes that the public columns of a registry (None: of any) show, newest first."""
    conditions: list[ColumnElement[bool]] = [entry_changes.c.shown]
    if registry is not None:
        conditions.append(entry_changes.c.registry == registry_of(registry).id)
    return await _fetch_changes(connection, _build_statement(conditions, limit))


async def select_changes_after(
    connection: AsyncConnection, registries: Sequence[str], after: int, limit: int
) -> tuple[EntryChange, ...]:
    """Return the first changes after record `after` that public columns show, oldest first.

    Without `registries`, the changes of all of them. Long changes make fewer, with at least one change.
    """
    conditions: list[ColumnElement[bool]] = [entry_changes.c.shown, entry_changes.c.number > after]
    if registries:
        conditions.append(entry_changes.c.registry.in_(registries))
    return await _fetch_changes(connection, _build_statement(conditions, limit, oldest_first=True))


#: endings of requests that change no entry
_ENDINGS: Final = (
    EventKind.REJECT,
    EventKind.REJECT_INCOMPLETE,
    EventKind.IESG_DECLINE,
    EventKind.WITHDRAW,
)


async def select_outcomes(
    connection: AsyncConnection, limit: int
) -> tuple[tuple[LogRecord, EntryChange | None], ...]:
    """Return the last records that changed an entry or ended a request, newest first, without imports."""
    known = select(entry_changes.c.number).where(entry_changes.c.number == log.c.number).exists()
    statement = (
        select(log.c.number, log.c.record)
        .where(log.c.kind != str(EventKind.IMPORT), or_(log.c.kind.in_(map(str, _ENDINGS)), known))
        .order_by(log.c.number.desc())
    )
    rows, _ = await _fetch_rows(connection, statement, limit)
    numbers = [number for number, _ in rows]
    conditions = (entry_changes.c.number.in_(numbers),)
    changes = await _fetch_changes(connection, _build_statement(conditions, limit)) if numbers else ()
    by_number = {change.number: change for change in changes}
    return tuple((decode_record(LogRecord, record), by_number.get(number)) for number, record in rows)


async def select_changes_of_name(
    connection: AsyncConnection, registry: str, name: str, below: int | None, limit: int
) -> tuple[EntryChange, ...]:
    """Return the changes of a name before record `below`, newest first."""
    key = registry_of(registry).normalize_name(name)
    if not is_storable(key):
        return ()
    conditions = [entry_changes.c.registry == registry, entry_changes.c.name == key]
    if below is not None:
        conditions.append(entry_changes.c.number < below)
    return await _fetch_changes(connection, _build_statement(conditions, limit))


def match_entry(columns: Any) -> ColumnElement[bool]:
    """Return the condition that a row is about an entry of `entries`."""
    return and_(entries.c.registry == columns.registry, entries.c.name == columns.name)


def _build_statement(conditions: Any, limit: int, *, oldest_first: bool = False) -> Select[Any]:
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
        .order_by(entry_changes.c.number if oldest_first else entry_changes.c.number.desc())
        .limit(require_limit(limit))
        .subquery()
    )
    then = entry_changes.alias()
    after = case((some.c.following.is_(None), entries.c.record), else_=then.c.before)
    joined = some.join(log, log.c.number == some.c.number)
    joined = joined.outerjoin(then, then.c.number == some.c.following).outerjoin(entries, match_entry(some.c))
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
        .order_by(some.c.number if oldest_first else some.c.number.desc())
    )


async def _fetch_changes(connection: AsyncConnection, statement: Select[Any]) -> tuple[EntryChange, ...]:
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


#: months that are shown, the last ones with an event
MAX_MONTHS: Final = 120

#: the stages of a request, in order
STAGES: Final = ("draft", "list", "iana", "expert", "iesg")
#: event -> the stage that it ends; a submission ends the list review if there was one
_ENDED_STAGES: Final[Mapping[EventKind, str]] = {
    EventKind.ANNOUNCE: "draft",
    EventKind.SUBMIT: "draft",
    EventKind.CHECK_COMPLETE: "iana",
    EventKind.REJECT_INCOMPLETE: "iana",
    EventKind.APPROVE: "expert",
    EventKind.APPROVE_AS_PROVISIONAL: "expert",
    EventKind.ASK_IETF_REVIEW: "expert",
    EventKind.REJECT: "expert",
    EventKind.REVIEW_TIMEOUT: "expert",
    EventKind.IESG_APPROVE: "iesg",
    EventKind.IESG_DECLINE: "iesg",
}
#: events with which a stage begins, without ending one that is counted
_BEGINNINGS: Final = frozenset({EventKind.OPEN, EventKind.RESUBMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """How long requests were in a stage: how often one ended, and the median in seconds."""

    stage: str
    count: int
    median_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthCounts:
    """What happened in a month (UTC, "2026-11"): new entries, other changes of entries, and requests.

    New entries include names that only wait for review. `ended` counts the requests that were decided or
    withdrawn in the month, also those of earlier months.
    """

    month: str
    added: int = 0
    changed: int = 0
    opened: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStatistics:
    """The statistics of one registry; statuses and states without an entry or request are left out."""

    registry: str
    entries: Mapping[Status, int]
    requests: Mapping[RequestState, int]
    stages: tuple[StageTime, ...]
    months: tuple[MonthCounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The statistics of all registries, and the last log record that they include."""

    number: int
    at: datetime | None
    registries: tuple[RegistryStatistics, ...]


@dataclass(slots=True)
class _Counts:
    """What is counted of one registry."""

    entries: dict[Status, int] = field(default_factory=dict)
    requests: dict[RequestState, int] = field(default_factory=dict)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    months: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))


async def compute_statistics(connection: AsyncConnection) -> Statistics:
    """Return the statistics. The connection must be in a transaction, so that the queries see one state."""
    head: Head = await select_head(connection)
    counts: dict[str, _Counts] = defaultdict(_Counts)
    by_status = select(entries.c.registry, entries.c.status, func.count().label("total"))
    for row in await connection.execute(by_status.group_by(entries.c.registry, entries.c.status)):
        counts[row.registry].entries[Status(row.status)] = row.total
    by_state = select(requests.c.registry, requests.c.state, func.count().label("total"))
    for row in await connection.execute(by_state.group_by(requests.c.registry, requests.c.state)):
        counts[row.registry].requests[RequestState(row.state)] = row.total
    await _count_changes(connection, counts)
    await _count_requests(connection, counts)
    return Statistics(
        number=head.number,
        at=head.at,
        registries=tuple(_build_statistics(registry, counts[registry]) for registry in REGISTRIES),
    )


async def _count_changes(connection: AsyncConnection, counts: Mapping[str, _Counts]) -> None:
    """Count the changes that a public column shows, by month."""
    # times are text of a fixed width
    month = func.substr(log.c.at, 1, 7)
    kind = case((entry_changes.c.before.is_(None), "added"), else_="changed")
    shown = (
        select(entry_changes.c.registry, month.label("month"), kind.label("kind"))
        .join(log, log.c.number == entry_changes.c.number)
        .where(entry_changes.c.shown)
        .subquery()
    )
    for row in await connection.execute(select(shown, func.count().label("total")).group_by(*shown.c)):
        counts[row.registry].months[row.month][row.kind] += row.total


async def _count_requests(connection: AsyncConnection, counts: Mapping[str, _Counts]) -> None:
    """Count opened and ended requests by month, and measure the stages of each."""
    final = [str(state) for state in RequestState if state.is_final]
    ended = set(
        (await connection.execute(select(requests.c.id).where(requests.c.state.in_(final)))).scalars()
    )
    steps = select(log.c.request, log.c.registry, log.c.at, log.c.kind).where(log.c.request.is_not(None))
    request, registry, rows = None, "", list[tuple[datetime, EventKind]]()
    async with connection.stream(steps.order_by(log.c.request, log.c.number)) as found:
        async for row in found:
            if row.request != request:
                _count_steps(counts, registry, rows, ended=request in ended)
                request, registry, rows = row.request, row.registry, []
            rows.append((row.at, EventKind(row.kind)))
    _count_steps(counts, registry, rows, ended=request in ended)


def _count_steps(
    counts_by_registry: Mapping[str, _Counts],
    registry: str,
    steps: Sequence[tuple[datetime, EventKind]],
    *,
    ended: bool,
) -> None:
    """Count the steps of one request, oldest first."""
    if not steps:
        return
    counts = counts_by_registry[registry]
    counts.months[_format_month(steps[0][0])]["opened"] += 1
    if ended:
        counts.months[_format_month(steps[-1][0])]["ended"] += 1
    since: datetime | None = None
    last: EventKind | None = None
    for at, kind in steps:
        stage = _ENDED_STAGES.get(kind)
        if stage is not None and since is not None:
            stage = "list" if kind is EventKind.SUBMIT and last is EventKind.ANNOUNCE else stage
            counts.stages[stage].append((at - since).total_seconds())
        if stage is not None or kind in _BEGINNINGS:
            since, last = at, kind


def _format_month(at: datetime) -> str:
    return f"{at.year:04}-{at.month:02}"


def _build_statistics(registry: str, counts: _Counts) -> RegistryStatistics:
    row = REGISTRIES[registry]
    months = sorted(counts.months)[-MAX_MONTHS:]
    return RegistryStatistics(
        registry=registry,
        entries={status: counts.entries[status] for status in row.statuses if status in counts.entries},
        requests={state: counts.requests[state] for state in RequestState if state in counts.requests},
        stages=tuple(
            StageTime(stage=stage, count=len(times), median_seconds=round(median(times)))
            for stage in STAGES
            if (times := counts.stages.get(stage))
        ),
        months=tuple(MonthCounts(month=month, **counts.months[month]) for month in months),
    )
