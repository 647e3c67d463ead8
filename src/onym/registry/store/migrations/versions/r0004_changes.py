"""What each record changed of an entry. It is made from the log by whoever brings the schema up.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "entry_changes",
        sa.Column("number", _NUMBER, sa.ForeignKey("log.number"), primary_key=True, autoincrement=False),
        sa.Column("registry", _KEY, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("shown", sa.Boolean, nullable=False),
        sa.Column("before", sa.Text),
    )
    op.create_index("entry_changes_by_name", "entry_changes", ["registry", "name", "number"])
    op.create_index("entry_changes_shown", "entry_changes", ["registry", "shown", "number"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("entry_changes")
