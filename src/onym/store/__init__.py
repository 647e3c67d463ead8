"""Opening databases: SQLite by default, PostgreSQL and Valkey for fleets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onym._lazy import require_extra
from onym.errors import StoreError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.store.shared import SharedStore, StoreLimits
    from onym.store.valkey import ValkeyOptions


def open_shared_store(
    url: str | Path | Secret | None = None,
    *,
    limits: StoreLimits | None = None,
    clock: Callable[[], float] = time.time,
    valkey: ValkeyOptions | None = None,
) -> SharedStore:
    """Return the store for a URL: None is memory, a path a SQLite file, else `postgresql://` or `valkey://`.

    It connects on first use; call `check` when the program starts. The URL may contain a password and is
    never shown. Raises StoreError (`store.bad-url`, `valkey.bad-url`, `valkey.bad-tls`), MissingExtraError.
    """
    # late: this package is loaded with each of its modules, and the stores need optional dependencies
    from onym.store.shared import DEFAULT_LIMITS, DEFAULT_VALKEY, MemoryStore, SQLiteStore
    from onym.store.valkey import VALKEY_SCHEMES

    limits = limits or DEFAULT_LIMITS
    plain = url.reveal() if isinstance(url, Secret) else url
    if plain is None:
        return MemoryStore(limits=limits, clock=clock)
    if isinstance(plain, Path) or "://" not in plain:
        return SQLiteStore(plain, limits=limits, clock=clock)
    scheme = plain.partition("://")[0]
    if scheme in VALKEY_SCHEMES:
        from onym.store.shared_servers import ValkeyStore

        return ValkeyStore(Secret(plain), options=valkey or DEFAULT_VALKEY, limits=limits, clock=clock)
    if scheme in {"postgres", "postgresql", "postgresql+psycopg"}:
        require_extra("sqlalchemy", "postgresql")
        require_extra("psycopg", "postgresql")
        from onym.store.shared_servers import PostgresStore

        return PostgresStore(Secret(plain), limits=limits, clock=clock)
    raise StoreError(
        "the URL of the shared store is neither for PostgreSQL nor for Valkey",
        code="store.bad-url",
        field="url",
        hint="Write a file name, postgresql://USER@HOST/DATABASE or valkeys://USER:PASSWORD@HOST/0.",
    )
