"""The log and what it folds to. The log takes no UPDATE and no DELETE: the database refuses them itself.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_SQLITE_GUARDS = (
    (
        "CREATE TRIGGER log_no_update BEFORE UPDATE ON log "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
    (
        "CREATE TRIGGER log_no_delete BEFORE DELETE ON log "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
    # INSERT OR REPLACE deletes without asking the trigger above
    (
        "CREATE TRIGGER log_in_order BEFORE INSERT ON log "
        "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM log) "
        "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
    ),
)
_POSTGRESQL_GUARDS = (
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
    """Make the four tables and the guards of the log."""
    op.create_table(
        "log",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("registry", _KEY, nullable=False),
        sa.Column("name", _KEY),
        sa.Column("request", _KEY),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("log_by_name", "log", ["registry", "name", "number"])
    op.create_index("log_by_request", "log", ["request", "number"])
    op.create_table(
        "entries",
        sa.Column("registry", _KEY, primary_key=True),
        sa.Column("name", _KEY, primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("wake", sa.Date),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("entries_by_status", "entries", ["registry", "status", "name"])
    op.create_index("entries_by_wake", "entries", ["wake"])
    op.create_table(
        "requests",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("opened", _NUMBER, sa.ForeignKey("log.number"), nullable=False, unique=True),
        sa.Column("registry", _KEY, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("registrant", _KEY, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("requests_by_state", "requests", ["state", "registry", "opened"])
    op.create_index("requests_by_name", "requests", ["registry", "name", "opened"])
    op.create_index("requests_by_registrant", "requests", ["registrant", "opened"])
    op.create_table(
        "sequences",
        sa.Column("registry", _KEY, primary_key=True),
        sa.Column("last", _NUMBER, nullable=False),
    )
    guards = _SQLITE_GUARDS if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL_GUARDS
    for statement in guards:
        op.execute(statement)


def downgrade() -> None:
    """Drop everything: nothing is before this revision."""
    for table in ("sequences", "requests", "entries", "log"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION onym_log_guard()")
