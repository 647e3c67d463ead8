"""Searching: what contains a text, and in which order it is shown.

Exact name, beginning of the name, part of the name, then part of description, applications, references or
notes; shorter names first within each. Case does not count. One or two letters are looked for in names
alone. SQLite answers from an index of trigrams (FTS5), PostgreSQL by LIKE, which pg_trgm serves where it is
installed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, insert, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import StoreError
from onym.registry.records import Entry, Status
from onym.registry.store._database import Database
from onym.registry.store._rows import MOST_TEXT, fold, read_value, storable
from onym.registry.store._tables import entries, entry_text

__all__ = [
    "CANDIDATES",
    "MAX_QUERY",
    "PROBE",
    "add_texts",
    "check_search",
    "has_trigrams",
    "names_with",
    "search_entries",
]

#: characters of a query; more are not read
MAX_QUERY: Final = 200
#: how many matches of one rank are sorted by length; of more, some may miss the first page
CANDIDATES: Final = 1000
_MANY: Final = 2 * CANDIDATES
#: letters that an index of trigrams needs
_TRIGRAM: Final = 3

#: succeeds where SQLite is 3.34 or newer and built with FTS5
PROBE: Final = "CREATE VIRTUAL TABLE probe USING fts5(x, tokenize='trigram')"

_INDEX: Final = text(
    "INSERT INTO entry_fts(rowid, folded, text) SELECT id, folded, text FROM entry_text WHERE id > :last"
)
_FOLDED: Final = entry_text.c.folded
_TEXT: Final = entry_text.c.text
_SHORTEST: Final = (func.length(_FOLDED), _FOLDED, entry_text.c.registry)


def check_search(database: Database) -> None:
    """Raises StoreError (registry.no-full-text) where this Python's SQLite cannot keep the index."""
    if database.dialect == "sqlite" and not has_trigrams():
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version}, which this Python has, lacks the index of trigrams (FTS5)",
            code="registry.no-full-text",
            field="url",
            hint="use a Python with SQLite 3.34 or newer built with FTS5 (those of uv, python.org and Debian "
            "have it), or a PostgreSQL database: postgresql+psycopg://USER@HOST/DATABASE",
        )


@cache
def has_trigrams() -> bool:
    """Can the SQLite of this process index trigrams?"""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(PROBE)
        except sqlite3.OperationalError:
            return False
    return True


async def search_entries(
    connection: AsyncConnection, registry: str | None, query: str, limit: int
) -> tuple[Entry, ...]:
    """Entries that contain `query`, best first. `registry` None: of all registries."""
    wanted = fold(query[:MAX_QUERY]).strip()
    if not wanted or not storable(query):
        return ()
    found: list[int] = []
    for rank in _ranks(connection.dialect.name, registry, wanted):
        # one more for each that an earlier rank has found already
        statement = _candidates(rank, limit + len(found))
        rows: list[int] = list((await connection.execute(statement)).scalars())
        found += [each for each in rows if each not in found]
        if len(found) >= limit:
            break
    return await _entries(connection, found[:limit])


async def add_texts(connection: AsyncConnection, rows: list[dict[str, Any]]) -> None:
    """Rows into `entry_text`, and into SQLite's index of it: in one statement, which is what FTS5 likes."""
    last = (await connection.execute(select(func.max(entry_text.c.id)))).scalar() or 0
    await connection.execute(insert(entry_text), rows)
    if connection.dialect.name == "sqlite":
        await connection.execute(_INDEX, {"last": last})


async def names_with(
    connection: AsyncConnection,
    registry: str,
    query: str,
    status: Status | None,
    beyond: str | None,
    limit: int,
) -> list[str]:
    """Names beyond `beyond`, in order, of entries that contain `query` in name or text."""
    wanted = fold(query[:MAX_QUERY]).strip()
    if not storable(query):
        return []
    dialect = connection.dialect.name
    columns = (_FOLDED,) if len(wanted) < _TRIGRAM else (_FOLDED, _TEXT)
    conditions = [or_(*(_part(dialect, column, wanted) for column in columns))]
    # of few matches all are fetched; where there are many, reading in order soon has enough of them
    if await _is_rare(connection, wanted):
        conditions.append(entry_text.c.id.in_(_matches(None, wanted)))
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


async def _is_rare(connection: AsyncConnection, wanted: str) -> bool:
    """Has SQLite's index few matches? Without one, the database itself chooses its way."""
    if connection.dialect.name != "sqlite" or len(wanted) < _TRIGRAM:
        return False
    some = _matches(None, wanted).limit(_MANY).subquery()
    return int((await connection.execute(select(func.count()).select_from(some))).scalar_one()) < _MANY


def _ranks(dialect: str, registry: str | None, wanted: str) -> list[ColumnElement[bool]]:
    here = [] if registry is None else [entry_text.c.registry == registry]
    short = len(wanted) < _TRIGRAM
    columns = (_FOLDED,) if short else (_FOLDED, _TEXT)
    parts = [_part(dialect, column, wanted) for column in columns]
    names = [_FOLDED.in_((wanted,)), _begins(wanted)]
    if short or dialect != "sqlite":
        return [and_(rank, *here) for rank in (*names, *parts)]
    # an expression instead of the column: SQLite would go through the whole registry by the column's index,
    # and not to the few rows that the trigrams give
    there = [] if registry is None else [entry_text.c.registry + "" == registry]
    matches = [entry_text.c.id.in_(_matches(column.name, wanted)) for column in columns]
    return [
        *(and_(rank, *here) for rank in names),
        *(and_(match, part, *there) for match, part in zip(matches, parts, strict=True)),
    ]


def _begins(wanted: str) -> ColumnElement[bool]:
    # by code point the names that begin so are one range, which the index on `folded` knows
    return and_(wanted <= _FOLDED, wanted + "\U0010ffff" > _FOLDED)


def _part(dialect: str, column: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
    if dialect == "sqlite":
        return func.instr(column, wanted) > 0
    return column.contains(wanted, autoescape=True)


def _matches(column: str | None, wanted: str) -> Select[Any]:
    """Ids of rows that the trigram index has for `wanted`, in one column or in any."""
    # one phrase in the language of FTS5: quotes are doubled, nothing else means anything
    phrase = '"' + wanted.replace('"', '""') + '"'
    query = phrase if column is None else f"{column} : {phrase}"
    rows: Select[Any] = select(literal_column("rowid")).select_from(text("entry_fts"))
    return rows.where(literal_column("entry_fts").op("MATCH")(query))


def _candidates(condition: ColumnElement[bool], limit: int) -> Select[Any]:
    some = select(entry_text.c.id).where(condition).limit(max(CANDIDATES, limit))
    return (
        select(entry_text.c.id)
        .where(entry_text.c.id.in_(some.scalar_subquery()))
        .order_by(*_SHORTEST)
        .limit(limit)
    )


async def _entries(connection: AsyncConnection, found: list[int]) -> tuple[Entry, ...]:
    same = and_(entries.c.registry == entry_text.c.registry, entries.c.name == entry_text.c.name)
    lengths = select(entry_text.c.id, func.length(entries.c.record).label("size")).join(entries, same)
    sizes = {row.id: row.size for row in await connection.execute(lengths.where(entry_text.c.id.in_(found)))}
    weights = accumulate(sizes[each] for each in found)
    # the first one whatever its length, as in lists
    shown = [
        each for each, weight in zip(found, weights, strict=True) if each is found[0] or weight <= MOST_TEXT
    ]
    statement = (
        select(entry_text.c.id, entries.c.record).join(entries, same).where(entry_text.c.id.in_(shown))
    )
    records = {row.id: row.record for row in await connection.execute(statement)}
    return tuple(read_value(Entry, records[each]) for each in shown)
