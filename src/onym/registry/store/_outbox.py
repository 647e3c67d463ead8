"""The outbox: notices that wait to be sent. Their rows are written with the event that they tell of.

A sender claims some for a while; if it dies, they are there again when the lease is over. So a notice is
sent at least once, and by one sender at a time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import UnknownEntryError
from onym.registry.records import Role
from onym.registry.store._cursor import checked_limit
from onym.registry.store._database import Database
from onym.registry.store._tables import outbox
from onym.registry.store._types import OutboxNotice

__all__ = ["LEASE", "Outbox"]

#: how long a claimed notice is nobody else's
LEASE: Final = timedelta(minutes=5)
#: characters of a reason that are kept
_MAX_REASON: Final = 500


class Outbox:
    """`store.outbox`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, at: datetime, limit: int = 50, *, lease: timedelta = LEASE
    ) -> tuple[OutboxNotice, ...]:
        """Notices that are ready at `at`, the oldest first; nobody else gets them before `at + lease`."""
        checked_limit(limit)

        async def work(connection: AsyncConnection) -> tuple[OutboxNotice, ...]:
            ready = select(outbox).where(outbox.c.ready <= at).order_by(outbox.c.id).limit(limit)
            rows = (await connection.execute(ready)).all()
            claimed = update(outbox).where(outbox.c.id.in_([row.id for row in rows]))
            await connection.execute(claimed.values(ready=at + lease, attempts=outbox.c.attempts + 1))
            return tuple(_notice(row) for row in rows)

        return await self._database.write(work)

    async def sent(self, id: int, at: datetime) -> None:  # noqa: A002 - what the caller has
        """It is out. Raises UnknownEntryError."""
        await self._set(id, ready=None, sent=at, reason=None)

    async def failed(self, id: int, at: datetime, retry_at: datetime | None, reason: str) -> None:  # noqa: A002
        """It failed at `at`: again at `retry_at`, or (None) never. Raises UnknownEntryError."""
        said = reason[:_MAX_REASON].encode("utf-8", "replace").decode().replace("\0", "?")
        await self._set(id, ready=retry_at, reason=said)

    async def waiting(self) -> int:
        """How many are still to be sent."""
        async with self._database.read() as connection:
            rows = await connection.execute(select(outbox.c.id).where(outbox.c.ready.is_not(None)))
            return len(rows.all())

    async def _set(self, identifier: int, **values: object) -> None:
        async def work(connection: AsyncConnection) -> None:
            # what was sent stays sent, whatever a slow second sender says
            statement = update(outbox).where(outbox.c.id == identifier, outbox.c.sent.is_(None))
            done = await connection.execute(statement.values(**values))
            if done.rowcount:
                return
            known = await connection.execute(select(outbox.c.id).where(outbox.c.id == identifier))
            if known.scalar() is None:
                raise UnknownEntryError(
                    "there is no notice of that id", code="registry.unknown-notice", field="id"
                )

        await self._database.write(work)


def _notice(row: Row[Any]) -> OutboxNotice:
    return OutboxNotice(
        id=row.id,
        registry=row.registry,
        request=row.request,
        to=Role(row.recipient) if row.is_role else row.recipient,
        subject=row.subject,
        text=row.text,
        attempts=row.attempts + 1,
        number=row.number,
    )
