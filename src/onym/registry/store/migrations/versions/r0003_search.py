"""The text that is searched, filled from the entries that are there, and an index of its trigrams.

SQLite has one built in (FTS5); PostgreSQL takes pg_trgm where the server offers it and lets it be
installed, and reads through the texts where not.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_FIELDS = ("description", "applications", "reference", "references", "notes")
_CAP = 4000

_SQLITE_INDEX = (
    (
        "CREATE VIRTUAL TABLE entry_fts USING fts5"
        "(folded, text, content='entry_text', content_rowid='id', tokenize='trigram')"
    ),
    # no trigger on INSERT: FTS5 writes its pages out at the end of every one, which makes an import three
    # times as slow; whoever adds rows adds them here too
    (
        "CREATE TRIGGER entry_fts_delete AFTER DELETE ON entry_text BEGIN "
        "INSERT INTO entry_fts(entry_fts, rowid, folded, text) "
        "VALUES ('delete', OLD.id, OLD.folded, OLD.text); END"
    ),
    (
        "CREATE TRIGGER entry_fts_update AFTER UPDATE OF id, folded, text ON entry_text BEGIN "
        "INSERT INTO entry_fts(entry_fts, rowid, folded, text) "
        "VALUES ('delete', OLD.id, OLD.folded, OLD.text); "
        "INSERT INTO entry_fts(rowid, folded, text) VALUES (NEW.id, NEW.folded, NEW.text); END"
    ),
)
_TRIGRAMS = (
    "CREATE INDEX entry_text_folded_trigrams ON entry_text USING gin (folded gin_trgm_ops)",
    "CREATE INDEX entry_text_text_trigrams ON entry_text USING gin (text gin_trgm_ops)",
)


def upgrade() -> None:
    """Make the table, its index, and fill it."""
    table = op.create_table(
        "entry_text",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("registry", _KEY, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("folded", _KEY, nullable=False),
        sa.Column("text", _KEY, nullable=False),
        sa.UniqueConstraint("registry", "name", name="entry_text_of_entry"),
        sa.ForeignKeyConstraint(
            ["registry", "name"],
            ["entries.registry", "entries.name"],
            name="entry_text_entry",
            ondelete="CASCADE",
        ),
    )
    op.create_index("entry_text_by_folded", "entry_text", ["registry", "folded"])
    connection = op.get_bind()
    statements: tuple[str, ...] = _SQLITE_INDEX
    if connection.dialect.name == "postgresql":
        statements = _TRIGRAMS if _has_trigrams(connection) else ()
    for statement in statements:
        op.execute(statement)
    found = connection.execute(sa.text("SELECT record FROM entries ORDER BY registry, name")).scalars()
    for rows in _batches(_row(json.loads(record)) for record in found):
        connection.execute(table.insert(), rows)
    if connection.dialect.name == "sqlite":
        op.execute("INSERT INTO entry_fts(entry_fts) VALUES ('rebuild')")


def downgrade() -> None:
    """Drop both. The extension stays: others may use it."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE entry_fts")
    op.drop_table("entry_text")


def _has_trigrams(connection: sa.Connection) -> bool:
    try:
        with connection.begin_nested():
            connection.execute(sa.text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
    except sa.exc.DBAPIError:
        return False
    return True


def _row(entry: dict[str, Any]) -> dict[str, str]:
    fields = entry.get("fields", {})
    text = "\n".join(fields[each] for each in _FIELDS if fields.get(each))
    return {
        "registry": entry["registry"],
        "name": entry["name"],
        "status": entry["status"],
        "folded": _fold(entry["name"]),
        "text": _fold(text),
    }


def _fold(text: str) -> str:
    return text[:_CAP].casefold().replace("\0", " ")


def _batches(rows: Iterator[dict[str, str]]) -> Iterator[list[dict[str, str]]]:
    while batch := list(islice(rows, 1000)):
        yield batch
