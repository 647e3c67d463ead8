"""The registry's database: SQLite by default, PostgreSQL for a team.

async with await Store.open("registry.db", create=True) as store:
    await store.apply(event, actor, at)
"""

from __future__ import annotations

from onym.registry.engine import Decide
from onym.registry.records import Head
from onym.registry.store._redaction import MAX_REMOVED, MIN_REMOVED, Redaction
from onym.registry.store._store import LEASE, Deliveries, Store, restore
from onym.registry.store._writes import (
    MAX_EVENT,
    Applied,
    EntryChange,
    ImportReport,
    Irregularity,
    OutboxNotice,
    Verified,
)
from onym.registry.store.queries import MonthCounts, RegistryStatistics, StageTime, Statistics
from onym.registry.store.schema import REVISION
from onym.store.sql import MAX_LIMIT, Page

__all__ = [
    "LEASE",
    "MAX_EVENT",
    "MAX_LIMIT",
    "MAX_REMOVED",
    "MIN_REMOVED",
    "REVISION",
    "Applied",
    "Decide",
    "Deliveries",
    "EntryChange",
    "Head",
    "ImportReport",
    "Irregularity",
    "MonthCounts",
    "OutboxNotice",
    "Page",
    "Redaction",
    "RegistryStatistics",
    "StageTime",
    "Statistics",
    "Store",
    "Verified",
    "restore",
]
