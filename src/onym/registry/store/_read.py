"""Reading: entries, requests, pages of them, and the log."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.registry.records import Entry, LogRecord, Request, RequestState, Role, Status
from onym.registry.registries import registry as registry_of
from onym.registry.store._cursor import checked_limit, read_cursor, write_cursor
from onym.registry.store._rows import MOST_TEXT, read_value, storable
from onym.registry.store._search import names_with
from onym.registry.store._tables import entries, log, requests
from onym.registry.store._types import Page

__all__ = [
    "FINAL",
    "counts_by_status",
    "due_values",
    "entries_page",
    "names_of",
    "one_entry",
    "one_request",
    "records_of",
    "requests_page",
]

#: records that the database hands over together
_AT_ONCE: Final = 50
#: states in which no timer runs
FINAL: Final = (
    RequestState.APPROVED,
    RequestState.REJECTED,
    RequestState.WITHDRAWN,
    RequestState.TIMED_OUT,
)


async def one_entry(connection: AsyncConnection, registry: str, name: str) -> Entry | None:
    """The entry of that name, as the registry files names; None where there is none."""
    key = registry_of(registry).key(name)
    if not storable(key):
        return None
    statement = select(entries.c.record).where(entries.c.registry == registry, entries.c.name == key)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else read_value(Entry, record)


async def counts_by_status(connection: AsyncConnection, registry: str) -> dict[Status, int]:
    """How many entries have each status; statuses that none has are left out."""
    statement = select(entries.c.status, func.count()).where(entries.c.registry == registry_of(registry).id)
    rows = await connection.execute(statement.group_by(entries.c.status))
    return {Status(status): number for status, number in rows}


async def names_of(connection: AsyncConnection, registry: str) -> tuple[str, ...]:
    """Every name, in order."""
    statement = select(entries.c.name).where(entries.c.registry == registry_of(registry).id)
    return tuple((await connection.execute(statement.order_by(entries.c.name))).scalars())


async def one_request(connection: AsyncConnection, identifier: str) -> Request | None:
    """The request of that id; None where there is none."""
    if not storable(identifier):
        return None
    statement = select(requests.c.record).where(requests.c.id == identifier)
    record = (await connection.execute(statement)).scalar()
    return None if record is None else read_value(Request, record)


async def entries_page(
    connection: AsyncConnection,
    registry: str,
    query: str,
    status: Status | None,
    after: str | None,
    limit: int,
) -> Page[Entry]:
    """Entries by name that contain `query` and have `status`; fewer than `limit` where they are long."""
    filters = ("entries", registry_of(registry).id, query, status)
    beyond = None if after is None else read_cursor(after, filters, str)
    statement = select(entries.c.name, entries.c.record).where(entries.c.registry == registry)
    statement = statement.order_by(entries.c.name)
    if query.strip():
        names = await names_with(connection, registry, query, status, beyond, checked_limit(limit) + 1)
        statement = statement.where(entries.c.name.in_(names))
    else:
        if status is not None:
            statement = statement.where(entries.c.status == str(status))
        if beyond is not None:
            statement = statement.where(entries.c.name > beyond)
    return _page(Entry, *await _rows(connection, statement, limit), filters)


async def requests_page(
    connection: AsyncConnection, conditions: dict[str, object], after: str | None, limit: int
) -> Page[Request]:
    """Requests, the newest first; `conditions` are columns and what they must be (None: anything).

    Fewer than `limit` where they are long.
    """
    filters = ("requests", *conditions.values())
    given = {name: str(each) for name, each in conditions.items() if each is not None}
    if not all(map(storable, given.values())):
        return Page(items=())
    statement = select(requests.c.opened, requests.c.record)
    statement = statement.where(*(requests.c[name] == each for name, each in given.items()))
    if after is not None:
        statement = statement.where(requests.c.opened < read_cursor(after, filters, int))
    rows, more = await _rows(connection, statement.order_by(requests.c.opened.desc()), limit)
    return _page(Request, rows, more, filters)


async def records_of(
    connection: AsyncConnection, after: int, limit: int, **about: str
) -> tuple[LogRecord, ...]:
    """Log records beyond number `after`, the oldest first; `about` are columns and what they must be.

    Fewer than `limit` where they are long: whoever wants all asks until there are none. The connection is
    in a transaction: PostgreSQL streams in none but those.
    """
    if not all(map(storable, about.values())):
        return ()
    statement = select(log.c.record).where(log.c.number > after)
    statement = statement.where(*(log.c[name] == each for name, each in about.items()))
    statement = statement.order_by(log.c.number).limit(checked_limit(limit))
    found: list[LogRecord] = []
    weight = 0
    async with connection.stream_scalars(statement.execution_options(yield_per=_AT_ONCE)) as rows:
        async for record in rows:
            weight += len(record)
            if found and weight > MOST_TEXT:
                break
            found.append(read_value(LogRecord, record))
    return tuple(found)


async def due_values(connection: AsyncConnection, day: Any) -> tuple[list[Request], list[Entry]]:
    """The requests that are open, and the entries with a timer that may have gone off by `day`."""
    waiting = select(requests.c.record).where(requests.c.state.not_in([str(each) for each in FINAL]))
    timed = select(entries.c.record).where(entries.c.wake <= day)
    open_ones = (await connection.execute(waiting.order_by(requests.c.opened))).scalars()
    ripe = (await connection.execute(timed.order_by(entries.c.registry, entries.c.name))).scalars()
    return [read_value(Request, each) for each in open_ones], [read_value(Entry, each) for each in ripe]


def request_conditions(
    registry: str | None,
    state: RequestState | None,
    holder: Role | None,
    registrant: str | None,
    name: str | None,
) -> dict[str, object]:
    """What `requests_page` takes. A name is compared as its registry files it, or as it is."""
    if registry is not None:
        name = None if name is None else registry_of(registry).key(name)
    return {"registry": registry, "state": state, "holder": holder, "registrant": registrant, "name": name}


async def _rows(
    connection: AsyncConnection, statement: Select[Any], limit: int
) -> tuple[list[tuple[Any, str]], bool]:
    """`limit` rows at most, fewer where their records are long, and at least one; do others follow?

    The connection is in a transaction, as for `records_of`.
    """
    # one more than asked, to know whether a page follows
    statement = statement.limit(checked_limit(limit) + 1)
    found: list[tuple[Any, str]] = []
    weight = 0
    async with connection.stream(statement.execution_options(yield_per=_AT_ONCE)) as rows:
        async for key, record in rows:
            weight += len(record)
            if len(found) == limit or (found and weight > MOST_TEXT):
                return found, True
            found.append((key, record))
    return found, False


def _page(cls: Any, rows: list[tuple[Any, str]], more: bool, filters: tuple[object, ...]) -> Page[Any]:
    following = write_cursor(filters, rows[-1][0]) if more else None
    return Page(items=tuple(read_value(cls, record) for _, record in rows), next=following)
