"""Where the registry is kept: SQLite by default, PostgreSQL for a team. The one importer of SQLAlchemy.

async with await Store.open("registry.db", create=True) as store:
    await store.apply(event, actor, at)
"""

from __future__ import annotations

from onym.registry.store._cursor import MAX_LIMIT
from onym.registry.store._migrate import REVISION
from onym.registry.store._outbox import LEASE
from onym.registry.store._store import Store, restore
from onym.registry.store._types import (
    Applied,
    Decide,
    EntryChange,
    Head,
    ImportReport,
    Irregularity,
    OutboxNotice,
    Page,
    Verified,
)
from onym.registry.store._write import MAX_EVENT

__all__ = [
    "LEASE",
    "MAX_EVENT",
    "MAX_LIMIT",
    "REVISION",
    "Applied",
    "Decide",
    "EntryChange",
    "Head",
    "ImportReport",
    "Irregularity",
    "OutboxNotice",
    "Page",
    "Store",
    "Verified",
    "restore",
]
