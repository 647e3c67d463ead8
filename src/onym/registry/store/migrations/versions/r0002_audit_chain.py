"""The hash chain of the audit log.

A database of revision 0001 that this release creates has the table already: that revision creates the tables
of the code.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

from onym.accounts.store import audit_digests

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table unless it exists."""
    audit_digests.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """Drop the table."""
    audit_digests.drop(op.get_bind(), checkfirst=True)
