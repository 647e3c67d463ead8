"""The hash chain of the audit log, the usage of registrants, and the files of imports.

A database of revision 0001 that this release creates has the tables already: that revision creates the tables
of the code.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

from onym.accounts.store import audit_digests
from onym.registry.store.schema import frames, usage

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables unless they exist."""
    for table in (audit_digests, usage, frames):
        table.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """Drop the tables."""
    for table in (frames, usage, audit_digests):
        table.drop(op.get_bind(), checkfirst=True)
