"""Sessions, API tokens and the audit log. Of sessions and tokens the database has digests alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import UnknownEntryError
from onym.registry.accounts import ApiToken, AuditRecord, Session
from onym.registry.store._accounts import unknown_account
from onym.registry.store._cursor import checked_limit, read_cursor, write_cursor
from onym.registry.store._database import Database
from onym.registry.store._errors import is_duplicate
from onym.registry.store._rows import storable
from onym.registry.store._tables import accounts, audit, sessions, tokens
from onym.registry.store._types import Page
from onym.uri.secret import Secret

__all__ = ["Audit", "Sessions", "Tokens"]


class Sessions:
    """`store.sessions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, session: Session, *, password: Secret | None = None) -> bool:
        """A new session; sessions that are over by its `created` are swept out on the way.

        With `password`, a hash: False, and no session, where the account is closed or has another one by now.
        """

        async def work(connection: AsyncConnection) -> bool:
            await connection.execute(delete(sessions).where(sessions.c.expires <= session.created))
            if password is not None and not await _holds(connection, session.account, password):
                return False
            row = {
                "digest": session.digest,
                "account": session.account,
                "created": session.created,
                "expires": session.expires,
                "seen": session.seen,
            }
            await _insert(connection, sessions, row)
            return True

        return await self._database.write(work)

    async def find(self, digest: str, at: datetime) -> Session | None:
        """The session of that digest; None where there is none, or it is over at `at`."""
        statement = select(sessions).where(sessions.c.digest == digest, sessions.c.expires > at)
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).one_or_none()
        return None if row is None else Session(**row._mapping)

    async def touch(self, digest: str, at: datetime) -> None:
        """It was used at `at`."""
        statement = update(sessions).where(sessions.c.digest == digest, sessions.c.seen < at).values(seen=at)
        await self._database.write(lambda connection: connection.execute(statement))

    async def drop(self, digest: str) -> None:
        """End it; nothing happens where there is none."""
        statement = delete(sessions).where(sessions.c.digest == digest)
        await self._database.write(lambda connection: connection.execute(statement))

    async def drop_all(self, account: str) -> None:
        """End all sessions of that account."""
        statement = delete(sessions).where(sessions.c.account == account)
        await self._database.write(lambda connection: connection.execute(statement))


class Tokens:
    """`store.tokens`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, token: ApiToken) -> None:
        """A new token."""
        row = {name: getattr(token, name) for name in _TOKEN if name != "scopes"}
        row["scopes"] = " ".join(sorted(token.scopes))
        await self._database.write(lambda connection: _insert(connection, tokens, row))

    async def find(self, digest: str, at: datetime) -> ApiToken | None:
        """The token of that digest; None where there is none, or it is revoked or expired at `at`."""
        async with self._database.read() as connection:
            row = (await connection.execute(select(tokens).where(tokens.c.digest == digest))).one_or_none()
        if row is None or row.revoked is not None or (row.expires is not None and row.expires <= at):
            return None
        return _token(row)

    async def touch(self, id: str, at: datetime) -> None:  # noqa: A002 - what the caller has
        """It was used at `at`."""
        statement = update(tokens).where(tokens.c.id == id).values(last_used=at)
        await self._database.write(lambda connection: connection.execute(statement))

    async def list(self, account: str) -> tuple[ApiToken, ...]:
        """All tokens of that account, the revoked too, in the order in which they were made."""
        statement = select(tokens).where(tokens.c.account == account).order_by(tokens.c.created, tokens.c.id)
        async with self._database.read() as connection:
            return tuple(_token(row) for row in await connection.execute(statement))

    async def revoke(self, id: str, at: datetime) -> None:  # noqa: A002
        """It works no more; the first time counts. Raises UnknownEntryError."""

        async def work(connection: AsyncConnection) -> None:
            found = (
                await connection.execute(select(tokens.c.revoked).where(tokens.c.id == id))
            ).one_or_none()
            if found is None:
                raise UnknownEntryError(
                    "there is no token of that id", code="registry.unknown-token", field="token"
                )
            if found.revoked is None:
                await connection.execute(update(tokens).where(tokens.c.id == id).values(revoked=at))

        await self._database.write(work)


class Audit:
    """`store.audit`: appended to, and read from the newest on."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, record: AuditRecord) -> None:
        """One more line. Text that no database holds is written with a question mark."""
        row: dict[str, Any] = {"at": record.at}
        for name in ("account", "action", "subject", "outcome", "address"):
            row[name] = _clean(getattr(record, name))
        await self._database.write(lambda connection: connection.execute(insert(audit), row))

    async def page(
        self,
        *,
        account: str | None = None,
        action: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[AuditRecord]:
        """Lines, the newest first; those of that account, of that action."""
        filters = ("audit", account, action)
        statement = select(audit).order_by(audit.c.id.desc()).limit(checked_limit(limit) + 1)
        for column, wanted in ((audit.c.account, account), (audit.c.action, action)):
            if wanted is not None:
                statement = statement.where(column == _clean(wanted))
        if after is not None:
            statement = statement.where(audit.c.id < read_cursor(after, filters, int))
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).mappings().all()
        following = write_cursor(filters, rows[limit - 1]["id"]) if len(rows) > limit else None
        lines = ({name: row[name] for name in row if name != "id"} for row in rows[:limit])
        return Page(items=tuple(AuditRecord(**line) for line in lines), next=following)


_TOKEN = ("id", "digest", "account", "label", "scopes", "created", "expires", "revoked", "last_used")


def _token(row: Row[Any]) -> ApiToken:
    values = {name: getattr(row, name) for name in _TOKEN}
    return ApiToken(**{**values, "scopes": frozenset(row.scopes.split())})


def _clean(text: str | None) -> str | None:
    if text is None or storable(text):
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


async def _holds(connection: AsyncConnection, account: str, password: Secret) -> bool:
    same = (accounts.c.id == account, accounts.c.password_hash == password.reveal(), ~accounts.c.disabled)
    return (await connection.execute(select(accounts.c.id).where(*same))).scalar() is not None


async def _insert(connection: AsyncConnection, table: Any, row: dict[str, Any]) -> None:
    try:
        await connection.execute(insert(table), row)
    except IntegrityError as error:
        # the only other key is the account
        if is_duplicate(error):
            raise
        raise unknown_account() from None
