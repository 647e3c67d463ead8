"""The tables, the guards of the log and the search index.

Until the first release the tables are those of the code. The release copies their definitions here, so
that later revisions build on tables that do not change any more.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

from onym.accounts.store import METADATA as ACCOUNT_TABLES
from onym.registry.store.schema import METADATA as REGISTRY_TABLES

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE = (
    (
        "CREATE TRIGGER log_no_update BEFORE UPDATE ON log "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
    (
        "CREATE TRIGGER log_no_delete BEFORE DELETE ON log "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
    # INSERT OR REPLACE deletes rows without firing the trigger above
    (
        "CREATE TRIGGER log_in_order BEFORE INSERT ON log "
        "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM log) "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
    (
        "CREATE VIRTUAL TABLE entry_fts USING fts5"
        "(folded, text, content='entry_text', content_rowid='id', tokenize='trigram')"
    ),
    # no trigger on INSERT: FTS5 writes its pages at the end of every one, and an import would take three
    # times as long; the code that adds rows adds them here too
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
_POSTGRESQL = (
    (
        "CREATE FUNCTION onym_log_guard() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the log is append-only' USING ERRCODE = 'ON001'; END $$"
    ),
    (
        "CREATE TRIGGER log_no_change BEFORE UPDATE OR DELETE ON log "
        "FOR EACH ROW EXECUTE FUNCTION onym_log_guard()"
    ),
    (
        "CREATE TRIGGER log_no_truncate BEFORE TRUNCATE ON log "
        "FOR EACH STATEMENT EXECUTE FUNCTION onym_log_guard()"
    ),
)


def upgrade() -> None:
    """Create everything."""
    connection = op.get_bind()
    for tables in (ACCOUNT_TABLES, REGISTRY_TABLES):
        tables.create_all(connection, checkfirst=False)
    for statement in _POSTGRESQL if connection.dialect.name == "postgresql" else _SQLITE:
        op.execute(statement)


def downgrade() -> None:
    """Drop everything. The extension stays: others may use it."""
    connection = op.get_bind()
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        op.execute("DROP TABLE entry_fts")
    for tables in (REGISTRY_TABLES, ACCOUNT_TABLES):
        tables.drop_all(connection)
    if not is_sqlite:
        op.execute("DROP FUNCTION onym_log_guard()")
