"""What the service needs: accounts, sessions, tokens, the audit log and the outbox.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_TIME = sa.String(27)


def _account(**options: Any) -> sa.Column[Any]:
    return sa.Column(
        "account", _KEY, sa.ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, **options
    )


def upgrade() -> None:
    """Make the tables."""
    _people()
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("account", _KEY),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
    )
    op.create_index("ix_audit_account", "audit", ["account"])
    op.create_table(
        "outbox",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("number", _NUMBER, sa.ForeignKey("log.number"), nullable=False),
        sa.Column("registry", _KEY, nullable=False),
        sa.Column("request", _KEY),
        sa.Column("recipient", _KEY, nullable=False),
        sa.Column("is_role", sa.Boolean, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("ready", _TIME),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("sent", _TIME),
        sa.Column("reason", sa.Text),
    )
    op.create_index("ix_outbox_ready", "outbox", ["ready"])


def _people() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("login", _KEY, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.Text),
        sa.Column("password_hash", sa.Text),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("created", _TIME, nullable=False),
    )
    op.create_table(
        "subjects",
        sa.Column("issuer", _KEY, primary_key=True),
        sa.Column("subject", _KEY, primary_key=True),
        _account(),
    )
    op.create_index("ix_subjects_account", "subjects", ["account"])
    op.create_table(
        "account_roles",
        _account(primary_key=True),
        sa.Column("registry", _KEY, primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        _account(),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("expires", _TIME, nullable=False),
        sa.Column("seen", _TIME, nullable=False),
    )
    op.create_index("ix_sessions_account", "sessions", ["account"])
    op.create_index("ix_sessions_expires", "sessions", ["expires"])
    op.create_table(
        "tokens",
        sa.Column("id", _KEY, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        _account(),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("expires", _TIME),
        sa.Column("revoked", _TIME),
        sa.Column("last_used", _TIME),
    )
    op.create_index("ix_tokens_account", "tokens", ["account"])


def downgrade() -> None:
    """Drop the tables, with the accounts in them."""
    for table in ("outbox", "audit", "tokens", "sessions", "account_roles", "subjects", "accounts"):
        op.drop_table(table)
