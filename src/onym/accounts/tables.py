"""The tables of accounts, in a MetaData of their own, so that any application can create them.

Times are text of a fixed width in UTC, so that they sort alike in every database.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Boolean, Column, ForeignKey, MetaData, String, Table, Text

from onym.store.sql import Time, make_number_type, make_text_type

METADATA: Final = MetaData()


def _make_account_column(**options: Any) -> Column[Any]:
    return Column(
        "account", make_text_type(), ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, **options
    )


accounts: Final = Table(
    "accounts",
    METADATA,
    Column("id", make_text_type(), primary_key=True),
    Column("login", make_text_type(), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("email", Text),
    Column("password_hash", Text),
    Column("disabled", Boolean, nullable=False),
    Column("created", Time, nullable=False),
)


subjects: Final = Table(
    "subjects",
    METADATA,
    Column("issuer", make_text_type(), primary_key=True),
    Column("subject", make_text_type(), primary_key=True),
    _make_account_column(index=True),
)

account_roles: Final = Table(
    "account_roles",
    METADATA,
    _make_account_column(primary_key=True),
    Column("realm", make_text_type(), primary_key=True),
    Column("role", Text, primary_key=True),
)

sessions: Final = Table(
    "sessions",
    METADATA,
    Column("digest", String(64), primary_key=True),
    _make_account_column(index=True),
    Column("created", Time, nullable=False),
    Column("expires", Time, nullable=False, index=True),
    Column("seen", Time, nullable=False),
)

tokens: Final = Table(
    "tokens",
    METADATA,
    Column("id", make_text_type(), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    _make_account_column(index=True),
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
    Column("id", make_number_type(), primary_key=True, autoincrement=True),
    Column("at", Time, nullable=False),
    Column("account", make_text_type(), index=True),
    Column("action", Text, nullable=False),
    Column("subject", Text),
    Column("outcome", Text, nullable=False),
    Column("address", Text),
)
