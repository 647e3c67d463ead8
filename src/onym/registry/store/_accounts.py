"""Accounts: who may sign in, by which login or OpenID subject, in which roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RegistryError, UnknownEntryError
from onym.registry.accounts import Account
from onym.registry.records import Role
from onym.registry.store._cursor import checked_limit
from onym.registry.store._database import Database
from onym.registry.store._errors import is_duplicate
from onym.registry.store._rows import storable
from onym.registry.store._tables import account_roles, accounts, sessions, subjects
from onym.uri.secret import Secret

__all__ = ["Accounts", "unknown_account"]


class Accounts:
    """`store.accounts`. What is looked for and not there is None; what is changed and not there raises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, account: Account) -> Account:
        """A new account. Raises RegistryError (registry.login-taken, field "login")."""
        await self._database.write(lambda connection: _add(connection, account))
        return account

    async def add_linked(self, account: Account, issuer: str, subject: str) -> Account:
        """The account that is linked to that subject; where none is, `account`, added and linked at once.

        Raises RegistryError as `add`.
        """

        async def work(connection: AsyncConnection) -> Account:
            rows = (await connection.execute(_linked(issuer, subject))).all()
            if rows:
                return (await _accounts(connection, rows))[0]
            await _add(connection, account)
            row = {"issuer": issuer, "subject": subject, "account": account.id}
            await connection.execute(insert(subjects), row)
            return account

        return await self._database.write(work)

    async def get(self, id: str) -> Account | None:  # noqa: A002 - what the caller has
        """The account of that id."""
        return await self._one(select(accounts).where(accounts.c.id == id), id)

    async def by_login(self, login: str) -> Account | None:
        """The account of that login, which is lower case."""
        return await self._one(select(accounts).where(accounts.c.login == login.strip().lower()), login)

    async def by_subject(self, issuer: str, subject: str) -> Account | None:
        """The account that is linked to that subject of that OpenID provider."""
        return await self._one(_linked(issuer, subject), issuer, subject)

    async def link(self, id: str, issuer: str, subject: str) -> None:  # noqa: A002
        """Let that subject sign in as this account. Raises RegistryError where it is somebody else."""

        async def work(connection: AsyncConnection) -> None:
            await _must_exist(connection, id)
            statement = select(subjects.c.account).where(
                subjects.c.issuer == issuer, subjects.c.subject == subject
            )
            holder = (await connection.execute(statement)).scalar()
            if holder is None:
                row = {"issuer": issuer, "subject": subject, "account": id}
                await connection.execute(insert(subjects), row)
            elif holder != id:
                raise _taken("subject", "that subject signs in to another account")

        await self._database.write(work)

    async def set_password(self, id: str, hash: Secret | None) -> None:  # noqa: A002
        """Another password hash, or none. Sessions go on: drop them where that is wanted."""
        await self._change(id, password_hash=None if hash is None else hash.reveal())

    async def replace_password(self, id: str, old: Secret, new: Secret) -> bool:  # noqa: A002
        """Another password hash for `old`; False, and nothing changed, where that is no longer the hash."""
        same = (accounts.c.id == id, accounts.c.password_hash == old.reveal())
        statement = update(accounts).where(*same).values(password_hash=new.reveal())

        async def work(connection: AsyncConnection) -> bool:
            return (await connection.execute(statement)).rowcount == 1

        return await self._database.write(work)

    async def set_email(self, id: str, email: str | None) -> None:  # noqa: A002
        """Another address for notices, or none."""
        await self._change(id, email=email)

    async def set_name(self, id: str, name: str) -> None:  # noqa: A002
        """Another name."""
        await self._change(id, name=name)

    async def set_roles(self, id: str, registry: str, roles: Iterable[Role]) -> None:  # noqa: A002
        """The roles held in `registry` from now on, instead of those before."""
        held = frozenset(roles)

        async def work(connection: AsyncConnection) -> None:
            await _must_exist(connection, id)
            await connection.execute(
                delete(account_roles).where(
                    account_roles.c.account == id, account_roles.c.registry == registry
                )
            )
            await _put_roles(connection, id, {registry: held})

        await self._database.write(work)

    async def disable(self, id: str) -> None:  # noqa: A002
        """No sign-in any more; its sessions end. What it did stays its own."""

        async def work(connection: AsyncConnection) -> None:
            await _update(connection, id, disabled=True)
            await connection.execute(delete(sessions).where(sessions.c.account == id))

        await self._database.write(work)

    async def enable(self, id: str) -> None:  # noqa: A002
        """Sign-in again."""
        await self._change(id, disabled=False)

    async def list(
        self, *, registry: str | None = None, role: Role | None = None, after: str = "", limit: int = 1000
    ) -> tuple[Account, ...]:
        """Accounts by login, beyond the login `after`; those that hold `role`, in `registry` or in all."""
        statement = select(accounts).where(accounts.c.login > after)
        if registry is not None or role is not None:
            held = select(account_roles.c.account)
            if registry is not None:
                held = held.where(account_roles.c.registry.in_((registry, "*")))
            if role is not None:
                held = held.where(account_roles.c.role == str(role))
            statement = statement.where(accounts.c.id.in_(held))
        async with self._database.read(snapshot=True) as connection:
            found = await connection.execute(statement.order_by(accounts.c.login).limit(checked_limit(limit)))
            return await _accounts(connection, found.all())

    async def _one(self, statement: Select[Any], *texts: str) -> Account | None:
        if not all(map(storable, texts)):
            return None
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).one_or_none()
            return None if row is None else (await _accounts(connection, [row]))[0]

    async def _change(self, id: str, **values: object) -> None:  # noqa: A002
        await self._database.write(lambda connection: _update(connection, id, **values))


def _linked(issuer: str, subject: str) -> Select[Any]:
    linked = select(subjects.c.account).where(subjects.c.issuer == issuer, subjects.c.subject == subject)
    return select(accounts).where(accounts.c.id.in_(linked))


async def _add(connection: AsyncConnection, account: Account) -> None:
    try:
        await connection.execute(insert(accounts), _row(account))
    except IntegrityError as error:
        if is_duplicate(error):
            raise _taken("login", "there is an account of that login") from None
        raise
    await _put_roles(connection, account.id, account.roles)


async def _update(connection: AsyncConnection, identifier: str, **values: object) -> None:
    done = await connection.execute(update(accounts).where(accounts.c.id == identifier).values(**values))
    if done.rowcount == 0:
        raise unknown_account()


async def _must_exist(connection: AsyncConnection, identifier: str) -> None:
    found = await connection.execute(select(accounts.c.id).where(accounts.c.id == identifier))
    if found.scalar() is None:
        raise unknown_account()


async def _put_roles(
    connection: AsyncConnection, identifier: str, roles: Mapping[str, frozenset[Role]]
) -> None:
    rows = [
        {"account": identifier, "registry": registry, "role": str(role)}
        for registry, held in roles.items()
        for role in held
    ]
    if rows:
        await connection.execute(insert(account_roles), rows)


async def _accounts(connection: AsyncConnection, rows: Iterable[Row[Any]]) -> tuple[Account, ...]:
    found = list(rows)
    statement = select(account_roles).where(account_roles.c.account.in_([row.id for row in found]))
    roles: dict[str, dict[str, frozenset[Role]]] = {}
    for account, registry, role in await connection.execute(statement):
        held = roles.setdefault(account, {})
        held[registry] = held.get(registry, frozenset()) | {Role(role)}
    return tuple(_account(row, roles.get(row.id, {})) for row in found)


def _row(account: Account) -> dict[str, Any]:
    password = account.password_hash
    return {
        "id": account.id,
        "login": account.login,
        "name": account.name,
        "email": account.email,
        "password_hash": None if password is None else password.reveal(),
        "disabled": account.disabled,
        "created": account.created,
    }


def _account(row: Row[Any], roles: Mapping[str, frozenset[Role]]) -> Account:
    return Account(
        id=row.id,
        login=row.login,
        name=row.name,
        email=row.email,
        password_hash=None if row.password_hash is None else Secret(row.password_hash),
        roles=MappingProxyType(dict(roles)),
        disabled=row.disabled,
        created=row.created,
    )


def unknown_account() -> UnknownEntryError:
    """What is raised where an account is to be changed that is not there."""
    return UnknownEntryError(
        "there is no account of that id", code="registry.unknown-account", field="account"
    )


def _taken(field: str, message: str) -> RegistryError:
    return RegistryError(message, code=f"registry.{field}-taken", field=field, hint="choose another one")
