"""The tables, as SQLAlchemy sees them. The migrations make them; a test compares the two.

`log` is the truth. `entries`, `requests`, `entry_text` and `entry_changes` are what the log folds to, kept
for reading: whole values as JSON (`record`), and beside it the columns that are searched or sorted by. Times
are text of a fixed width in UTC, so that they sort alike in every database. Names compare by code point.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from onym.registry.codec import from_time, to_time

__all__ = [
    "METADATA",
    "Time",
    "account_roles",
    "accounts",
    "audit",
    "code_points",
    "entries",
    "entry_changes",
    "entry_text",
    "log",
    "outbox",
    "requests",
    "sequences",
    "sessions",
    "subjects",
    "tokens",
    "wake_day",
]


class Time(TypeDecorator[datetime]):
    """A time in UTC as 27 characters, `2026-01-02T03:04:05.000006Z`."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else to_time(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """From the database."""
        return None if value is None else from_time(value)


def code_points() -> String:
    """Text that compares by code point, whatever the locale of the database."""
    return Text().with_variant(Text(collation="C"), "postgresql")


METADATA: Final = MetaData()
#: SQLite numbers rows by itself only where the key is INTEGER
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")

log: Final = Table(
    "log",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", Time, nullable=False),
    Column("registry", code_points(), nullable=False),
    # what it was about, the request's name where the event has none; an index into `record`, no more
    Column("name", code_points()),
    Column("request", code_points()),
    Column("kind", Text, nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("record", Text, nullable=False),
    Index("log_by_name", "registry", "name", "number"),
    Index("log_by_request", "request", "number"),
)

entries: Final = Table(
    "entries",
    METADATA,
    Column("registry", code_points(), primary_key=True),
    Column("name", code_points(), primary_key=True),
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
    Column("registry", code_points(), nullable=False),
    Column("name", code_points(), nullable=False),
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
    Column("id", code_points(), primary_key=True),
    # the log record that opened it: what lists are sorted by
    Column("opened", _NUMBER, ForeignKey("log.number"), nullable=False, unique=True),
    Column("registry", code_points(), nullable=False),
    Column("name", code_points(), nullable=False),
    Column("state", Text, nullable=False),
    Column("holder", Text),
    Column("registrant", code_points(), nullable=False),
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
    Column("registry", code_points(), primary_key=True),
    Column("last", _NUMBER, nullable=False),
)

#: what is searched: name and text, folded. SQLite has a trigram index beside it (`entry_fts`)
entry_text: Final = Table(
    "entry_text",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("registry", code_points(), nullable=False),
    Column("name", code_points(), nullable=False),
    Column("status", Text, nullable=False),
    Column("folded", code_points(), nullable=False),
    Column("text", code_points(), nullable=False),
    UniqueConstraint("registry", "name", name="entry_text_of_entry"),
    ForeignKeyConstraint(
        ["registry", "name"],
        ["entries.registry", "entries.name"],
        name="entry_text_entry",
        ondelete="CASCADE",
    ),
    Index("entry_text_by_folded", "registry", "folded"),
)

accounts: Final = Table(
    "accounts",
    METADATA,
    Column("id", code_points(), primary_key=True),
    Column("login", code_points(), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("email", Text),
    Column("password_hash", Text),
    Column("disabled", Boolean, nullable=False),
    Column("created", Time, nullable=False),
)


def _account(**options: Any) -> Column[Any]:
    return Column(
        "account", code_points(), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, **options
    )


subjects: Final = Table(
    "subjects",
    METADATA,
    Column("issuer", code_points(), primary_key=True),
    Column("subject", code_points(), primary_key=True),
    _account(index=True),
)

account_roles: Final = Table(
    "account_roles",
    METADATA,
    _account(primary_key=True),
    Column("registry", code_points(), primary_key=True),
    Column("role", Text, primary_key=True),
)

sessions: Final = Table(
    "sessions",
    METADATA,
    Column("digest", String(64), primary_key=True),
    _account(index=True),
    Column("created", Time, nullable=False),
    Column("expires", Time, nullable=False, index=True),
    Column("seen", Time, nullable=False),
)

tokens: Final = Table(
    "tokens",
    METADATA,
    Column("id", code_points(), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    _account(index=True),
    Column("label", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created", Time, nullable=False),
    Column("expires", Time),
    Column("revoked", Time),
    Column("last_used", Time),
)

audit: Final = Table(
    "audit",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("at", Time, nullable=False),
    Column("account", code_points(), index=True),
    Column("action", Text, nullable=False),
    Column("subject", Text),
    Column("outcome", Text, nullable=False),
    Column("address", Text),
)

outbox: Final = Table(
    "outbox",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    # the log record that it tells of
    Column("number", _NUMBER, ForeignKey("log.number"), nullable=False),
    Column("registry", code_points(), nullable=False),
    Column("request", code_points()),
    Column("recipient", code_points(), nullable=False),
    Column("is_role", Boolean, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    # when it may be tried: NULL once it was sent or given up
    Column("ready", Time, index=True),
    Column("attempts", Integer, nullable=False),
    Column("sent", Time),
    Column("reason", Text),
)


def wake_day(expires: date | None, draft: date | None) -> date | None:
    """The earlier of two days, of which either may be missing."""
    return min((day for day in (expires, draft) if day is not None), default=None)
