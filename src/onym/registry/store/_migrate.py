"""The schema: which revision a database has, and how it gets to another. Alembic, run from here.

The revisions are in `migrations/versions`; each goes up and down with the data that is there, in one
transaction on either database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import StoreError
from onym.registry.store._database import Database

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["BASE", "REVISION", "check_schema", "migrate", "revision"]

#: the revision that this code works with
REVISION: Final = "0004"
#: the revision of a database without tables
BASE: Final = "base"

_FOLDER: Final = Path(__file__).with_name("migrations")


async def revision(database: Database) -> str | None:
    """The revision of the schema; None where there is none."""
    async with database.read() as connection:
        return await connection.run_sync(_current)


async def check_schema(database: Database) -> None:
    """Raises StoreError (registry.no-database, registry.wrong-schema) unless the schema is `REVISION`."""
    if not database.exists():
        raise StoreError(
            "there is no registry at that place",
            code="registry.no-database",
            field="url",
            hint="run: onym registry init",
        )
    found = await revision(database)
    if found == REVISION:
        return
    newer = found is not None and found > REVISION
    raise StoreError(
        f"the schema is at revision {found or 'none'}, this version of Onym works with {REVISION}",
        code="registry.wrong-schema",
        field="url",
        hint="install a newer Onym" if newer else "take a backup, then run: onym registry init",
    )


async def migrate(
    database: Database,
    target: str = REVISION,
    *,
    then: Callable[[AsyncConnection], Awaitable[object]] | None = None,
) -> None:
    """Bring the schema up, or down, to `target`; `then` is for what is in a database that was there.

    Raises StoreError; nothing is changed then.
    """
    current = await revision(database)
    if current is not None and current > REVISION:
        await check_schema(database)
    if current == target:
        return

    async def work(connection: AsyncConnection) -> None:
        await connection.run_sync(_move, target)
        if then is not None and current is not None:
            await then(connection)

    await database.write(work)


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _move(connection: Connection, target: str) -> None:
    from alembic import command  # late: 0.2 s, and needed once in a database's life

    # read again: another process may have moved it while this one waited
    current = _current(connection) or ""
    config = _config(connection)
    if target == BASE or target < current:
        command.downgrade(config, target)
    else:
        command.upgrade(config, target)


def _config(connection: Connection) -> Config:
    from alembic.config import Config  # late: the same

    config = Config(attributes=_attributes(connection))
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _attributes(connection: Connection) -> dict[str, Any]:
    return {"connection": connection}
