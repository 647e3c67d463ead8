"""The schema: the tables as SQLAlchemy knows them, the revision of a database, and migrations with Alembic.

`log` is the source of truth. `entries`, `requests`, `entry_text` and `entry_changes` are projections of
the log for reading: whole values as JSON (`record`), and beside it the columns that queries search or
sort by. Times are text of a fixed width in UTC, so that they sort alike in every database. Names compare
by code point.

The revisions are in `migrations/versions`, which Alembic loads by path; a revision that was released is never
edited. Each upgrades and downgrades existing data in one transaction
on either database. A test compares the tables here with those that the migrations create.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Date,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import StoreError
from onym.store import sql
from onym.uri.secret import Secret

if TYPE_CHECKING:
    pass


METADATA: Final = MetaData()
_NUMBER: Final = sql.make_number_type()

_GUARDED: Final = sql.Failure(
    "append-only", "log records cannot be changed or deleted", "Record an override instead."
)
#: error codes and hints of the registry's database
DATABASE_PROFILE: Final = sql.DatabaseProfile(
    name="registry",
    lock_key=int.from_bytes(b"onym"),
    failures={
        # SQLITE_CONSTRAINT_TRIGGER, and the SQLSTATE that the guard of PostgreSQL raises
        1811: _GUARDED,
        "ON001": _GUARDED,
        "42P01": sql.Failure(
            "wrong-schema", "the database does not contain a registry", "Run: onym registry init"
        ),
        "42703": sql.Failure(
            "wrong-schema",
            "the tables of the database are not those of this version of Onym",
            "Restore a backup into an empty database: another program changed the tables.",
        ),
        "58P01": sql.Failure(
            "missing-library",
            "the database server has no library for the extension pg_trgm, which the search index uses",
            "Install the contrib modules on the database server (Debian and Ubuntu: apt-get install "
            "postgresql-contrib), or remove the index in psql: DROP EXTENSION pg_trgm CASCADE",
        ),
    },
)

log: Final = Table(
    "log",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", sql.Time, nullable=False),
    Column("registry", sql.make_text_type(), nullable=False),
    # what it was about, the request's name where the event has none; an index into `record`, no more
    Column("name", sql.make_text_type()),
    Column("request", sql.make_text_type()),
    Column("kind", Text, nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("record", Text, nullable=False),
    Index("log_by_name", "registry", "name", "number"),
    Index("log_by_request", "request", "number"),
)

entries: Final = Table(
    "entries",
    METADATA,
    Column("registry", sql.make_text_type(), primary_key=True),
    Column("name", sql.make_text_type(), primary_key=True),
    Column("status", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # the first day on which a timer may go off: of the draft, or of the entry
    Column("wake", Date),
    Column("record", Text, nullable=False),
    Index("entries_by_status", "registry", "status", "name"),
    Index("entries_by_wake", "wake"),
)

#: what each record changed of an entry; a record that changed none has no row
entry_changes: Final = Table(
    "entry_changes",
    METADATA,
    Column("number", _NUMBER, ForeignKey("log.number"), primary_key=True, autoincrement=False),
    Column("registry", sql.make_text_type(), nullable=False),
    Column("name", sql.make_text_type(), nullable=False),
    # of the entry after it; of the one that it removed
    Column("version", Integer, nullable=False),
    # does a public column show it?
    Column("shown", Boolean, nullable=False),
    # the entry as it was: NULL where there was none
    Column("before", Text),
    Index("entry_changes_by_name", "registry", "name", "number"),
    Index("entry_changes_shown", "registry", "shown", "number"),
)

requests: Final = Table(
    "requests",
    METADATA,
    Column("id", sql.make_text_type(), primary_key=True),
    # the log record that opened it: what lists are sorted by
    Column("opened", _NUMBER, ForeignKey("log.number"), nullable=False, unique=True),
    Column("registry", sql.make_text_type(), nullable=False),
    Column("name", sql.make_text_type(), nullable=False),
    Column("state", Text, nullable=False),
    Column("holder", Text),
    Column("registrant", sql.make_text_type(), nullable=False),
    Column("version", Integer, nullable=False),
    Column("record", Text, nullable=False),
    Index("requests_by_state", "state", "registry", "opened"),
    Index("requests_by_name", "registry", "name", "opened"),
    Index("requests_by_registrant", "registrant", "opened"),
)

#: the last number given to a request, per registry
sequences: Final = Table(
    "sequences",
    METADATA,
    Column("registry", sql.make_text_type(), primary_key=True),
    Column("last", _NUMBER, nullable=False),
)

#: what is searched: name and text, folded. SQLite has a trigram index beside it (`entry_fts`)
entry_text: Final = Table(
    "entry_text",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("registry", sql.make_text_type(), nullable=False),
    Column("name", sql.make_text_type(), nullable=False),
    Column("status", Text, nullable=False),
    Column("folded", sql.make_text_type(), nullable=False),
    Column("text", sql.make_text_type(), nullable=False),
    UniqueConstraint("registry", "name", name="entry_text_of_entry"),
    ForeignKeyConstraint(
        ["registry", "name"],
        ["entries.registry", "entries.name"],
        name="entry_text_entry",
        ondelete="CASCADE",
    ),
    Index("entry_text_by_folded", "registry", "folded"),
)

#: bytes of log records by actor and day, for quotas; counted beside the log, and not rebuilt from it
usage: Final = Table(
    "usage",
    METADATA,
    Column("actor", sql.make_text_type(), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("bytes", _NUMBER, nullable=False),
)

#: the XML file that was imported last: the form of an export, whose content is the entries
frames: Final = Table(
    "frames",
    METADATA,
    Column("registry", sql.make_text_type(), primary_key=True),
    Column("document", Text, nullable=False),
)

outbox: Final = Table(
    "outbox",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    # the log record that it tells of
    Column("number", _NUMBER, ForeignKey("log.number"), nullable=False),
    Column("registry", sql.make_text_type(), nullable=False),
    Column("request", sql.make_text_type()),
    Column("recipient", sql.make_text_type(), nullable=False),
    Column("is_role", Boolean, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    # when it may be tried: NULL once it was sent or given up
    Column("ready", sql.Time, index=True),
    Column("attempts", Integer, nullable=False),
    Column("sent", sql.Time),
    Column("reason", Text),
)


def find_wake_day(expires: date | None, draft: date | None) -> date | None:
    """The earlier of two days, of which either may be missing."""
    return min((day for day in (expires, draft) if day is not None), default=None)


def open_database(url: str | Path | Secret) -> sql.Database:
    """Open the database of a registry. Raises StoreError (registry.bad-url)."""
    return sql.Database(url, DATABASE_PROFILE)


#: the revision that this code works with
REVISION: Final = "0002"
#: the revision of a database without tables
BASE: Final = "base"

_FOLDER: Final = Path(__file__).with_name("migrations")


async def read_revision(database: sql.Database) -> str | None:
    """The revision of the schema; None where there is none."""
    async with database.open_reader() as connection:
        return await connection.run_sync(_read_current_revision)


async def require_schema(database: sql.Database) -> None:
    """Raises StoreError (registry.no-database, registry.wrong-schema) unless the schema is `REVISION`."""
    if not database.has_file():
        raise StoreError(
            "the database does not exist",
            code="registry.no-database",
            field="url",
            hint="Run: onym registry init",
        )
    found = await read_revision(database)
    if found == REVISION:
        return
    newer = found is not None and found > REVISION
    raise StoreError(
        f"the schema has revision {found or 'none'}, but this version of Onym needs {REVISION}",
        code="registry.wrong-schema",
        field="url",
        hint="Install a newer Onym." if newer else "Take a backup, then run: onym registry init",
    )


async def migrate_schema(database: sql.Database, target: str = REVISION) -> None:
    """Bring the schema to `target`, in one transaction. Raises StoreError."""
    current = await read_revision(database)
    if current is not None and current > REVISION:
        await require_schema(database)
    if current != target:
        await database.run_transaction(lambda connection: connection.run_sync(_run_alembic, target))


#: what makes PostgreSQL's search fast; it works without, and reads through the texts
_TRIGRAMS: Final = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX IF NOT EXISTS entry_text_folded_trigrams ON entry_text USING gin (folded gin_trgm_ops)",
    "CREATE INDEX IF NOT EXISTS entry_text_text_trigrams ON entry_text USING gin (text gin_trgm_ops)",
)
_MISSING_EXTENSION: Final = sql.Failure(
    "no-extension",
    "searches use no index, because the database server has no extension pg_trgm",
    "Install it on the database server (Debian and Ubuntu: apt-get install postgresql-contrib), then run: "
    "onym registry init",
)
_FORBIDDEN_EXTENSION: Final = sql.Failure(
    "no-extension",
    "searches use no index, because this user may not install the extension pg_trgm",
    "Run in psql, as an administrator: CREATE EXTENSION pg_trgm; then run: onym registry init",
)


async def create_search_index(database: sql.Database) -> sql.Failure | None:
    """Create PostgreSQL's index for searches, if it is missing. Return why there is none, if so."""
    if database.dialect != "postgresql":
        return None

    async def work(connection: AsyncConnection) -> sql.Failure | None:
        found = await connection.execute(text("SELECT to_regclass('entry_text_text_trigrams') IS NOT NULL"))
        if found.scalar_one():
            return None
        try:
            async with connection.begin_nested():
                for statement in _TRIGRAMS:
                    await connection.execute(text(statement))
        except DBAPIError as error:
            forbidden = sql.find_failure(DATABASE_PROFILE, error).code == "no-permission"
            return _FORBIDDEN_EXTENSION if forbidden else _MISSING_EXTENSION
        return None

    return await database.run_transaction(work)


def _read_current_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _run_alembic(connection: Connection, target: str) -> None:
    # late: 0.2 s, and needed once in a database's life
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    # read again: another process may have changed it while this one waited
    current = _read_current_revision(connection) or ""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    move = command.downgrade if target == BASE or target < current else command.upgrade
    try:
        move(config, target)
    except CommandError:
        raise StoreError(
            f"the schema has revision {current!r}, which this version of Onym does not know",
            code="registry.wrong-schema",
            field="url",
            hint="Another application or release made this database. Name another one, or restore a backup.",
        ) from None
