"""Accounts in a database: people who may sign in, sessions, API tokens and the audit log.

The tables have a MetaData of their own, so that any application can create them. They contain only digests
of session IDs and tokens, and argon2id hashes of passwords. Times are text of a fixed width in UTC, so that
they sort alike in every database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

from sqlalchemy import (
    Boolean,
    Column,
    Executable,
    ForeignKey,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.accounts.records import ALL_REALMS, Account, ApiToken, AuditHead, AuditRecord, Session
from onym.common.text import format_timestamp
from onym.errors import RegistryError, StoreError, UnknownEntryError
from onym.store import sql
from onym.uri.secret import Secret

METADATA: Final = MetaData()
_Result = TypeVar("_Result")


def _make_account_column(**options: Any) -> Column[Any]:
    return Column(
        "account",
        sql.make_text_type(),
        ForeignKey("accounts.id", ondelete="CASCADE"),
        nullable=False,
        **options,
    )


accounts: Final = Table(
    "accounts",
    METADATA,
    Column("id", sql.make_text_type(), primary_key=True),
    Column("login", sql.make_text_type(), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("email", Text),
    Column("password_hash", Text),
    Column("disabled", Boolean, nullable=False),
    Column("created", sql.Time, nullable=False),
)


subjects: Final = Table(
    "subjects",
    METADATA,
    Column("issuer", sql.make_text_type(), primary_key=True),
    Column("subject", sql.make_text_type(), primary_key=True),
    _make_account_column(index=True),
)

account_roles: Final = Table(
    "account_roles",
    METADATA,
    _make_account_column(primary_key=True),
    Column("realm", sql.make_text_type(), primary_key=True),
    Column("role", Text, primary_key=True),
)

sessions: Final = Table(
    "sessions",
    METADATA,
    Column("digest", String(64), primary_key=True),
    _make_account_column(index=True),
    Column("created", sql.Time, nullable=False),
    Column("expires", sql.Time, nullable=False, index=True),
    Column("seen", sql.Time, nullable=False),
)

tokens: Final = Table(
    "tokens",
    METADATA,
    Column("id", sql.make_text_type(), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    _make_account_column(index=True),
    Column("label", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created", sql.Time, nullable=False),
    Column("expires", sql.Time),
    Column("revoked", sql.Time),
    Column("last_used", sql.Time),
)

audit: Final = Table(
    "audit",
    METADATA,
    Column("id", sql.make_number_type(), primary_key=True, autoincrement=True),
    Column("at", sql.Time, nullable=False),
    Column("account", sql.make_text_type(), index=True),
    Column("action", Text, nullable=False),
    Column("subject", Text),
    Column("outcome", Text, nullable=False),
    Column("address", Text),
)

#: the hash chain of the audit log: each digest covers its record and the digest before
audit_digests: Final = Table(
    "audit_digests",
    METADATA,
    Column("id", sql.make_number_type(), ForeignKey("audit.id"), primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
)


class _Rows:
    """Rows of one database."""

    def __init__(self, database: sql.Database) -> None:
        self._database = database

    async def _run(self, statement: Executable, audit: AuditRecord | None = None) -> None:
        """Run one statement in a transaction."""
        await self._run_audited(lambda connection: connection.execute(statement), audit)

    async def _run_audited(
        self, work: Callable[[AsyncConnection], Awaitable[_Result]], audit: AuditRecord | None
    ) -> _Result:
        """Run `work` in a transaction that also writes the audit record: both happen, or neither."""

        async def work_and_record(connection: AsyncConnection) -> _Result:
            result = await work(connection)
            if audit is not None:
                await _append_audit_record(connection, audit)
            return result

        return await self._database.run_transaction(work_and_record)


class AccountStore(_Rows):
    """Accounts, sessions, tokens and audit log of one database."""

    def __init__(self, database: sql.Database) -> None:
        super().__init__(database)
        self.accounts = Accounts(database)
        self.sessions = Sessions(database)
        self.tokens = Tokens(database)
        self.audit = AuditLog(database)

    async def create_tables(self) -> None:
        """Create the tables that are missing. Applications with migrations create them there instead."""
        await self._database.run_transaction(lambda connection: connection.run_sync(METADATA.create_all))


class Accounts(_Rows):
    """The accounts of a database. If one is missing, lookups return None; changes raise UnknownEntryError.

    An `audit` record is written in the same transaction as the change.
    """

    async def add(self, account: Account, *, audit: AuditRecord | None = None) -> Account:
        """Add an account. Raises RegistryError (accounts.login-taken, field "login")."""
        await self._run_audited(lambda connection: _insert_account(connection, account), audit)
        return account

    async def add_linked(self, account: Account, issuer: str, subject: str) -> Account:
        """Return the account that is linked to that subject. If there is none, add and link `account`.

        Raises RegistryError as `add` does.
        """

        async def work(connection: AsyncConnection) -> Account:
            rows = (await connection.execute(_select_linked(issuer, subject))).all()
            if rows:
                return (await _fetch_accounts(connection, rows))[0]
            await _insert_account(connection, account)
            row = {"issuer": issuer, "subject": subject, "account": account.id}
            await connection.execute(insert(subjects), row)
            return account

        return await self._database.run_transaction(work)

    async def get(self, id: str) -> Account | None:  # noqa: A002 - what the caller has
        """Return the account with this ID, or None."""
        return await self._find_account(select(accounts).where(accounts.c.id == id), id)

    async def find_by_login(self, login: str) -> Account | None:
        """Return the account with this login, in any case, or None."""
        return await self._find_account(
            select(accounts).where(accounts.c.login == login.strip().lower()), login
        )

    async def find_by_subject(self, issuer: str, subject: str) -> Account | None:
        """Return the account that is linked to a subject of an OpenID provider, or None."""
        return await self._find_account(_select_linked(issuer, subject), issuer, subject)

    async def link(self, id: str, issuer: str, subject: str) -> None:  # noqa: A002
        """Let this subject sign in to the account. Raises RegistryError (accounts.subject-taken)."""

        async def work(connection: AsyncConnection) -> None:
            await _require_account(connection, id)
            statement = select(subjects.c.account).where(
                subjects.c.issuer == issuer, subjects.c.subject == subject
            )
            holder = (await connection.execute(statement)).scalar()
            if holder is None:
                row = {"issuer": issuer, "subject": subject, "account": id}
                await connection.execute(insert(subjects), row)
            elif holder != id:
                raise _make_taken_error("subject", "this subject already signs in to another account")

        await self._database.run_transaction(work)

    async def set_password(
        self,
        id: str,  # noqa: A002
        hash: Secret | None,  # noqa: A002
        *,
        audit: AuditRecord | None = None,
    ) -> None:
        """Set or remove the password hash. Sessions go on; end them with `Sessions.drop_all`."""
        await self._update_values(id, audit, password_hash=None if hash is None else hash.reveal())

    async def replace_password(self, id: str, old: Secret, new: Secret) -> bool:  # noqa: A002
        """Replace the password hash `old`. Return False, and change nothing, if it is not current."""
        same = (accounts.c.id == id, accounts.c.password_hash == old.reveal())
        statement = update(accounts).where(*same).values(password_hash=new.reveal())

        async def work(connection: AsyncConnection) -> bool:
            return (await connection.execute(statement)).rowcount == 1

        return await self._database.run_transaction(work)

    async def set_email(self, id: str, email: str | None, *, audit: AuditRecord | None = None) -> None:  # noqa: A002
        """Set or remove the address for notices."""
        await self._update_values(id, audit, email=email)

    async def set_name(self, id: str, name: str, *, audit: AuditRecord | None = None) -> None:  # noqa: A002
        """Set the name."""
        await self._update_values(id, audit, name=name)

    async def set_roles(
        self,
        id: str,  # noqa: A002
        realm: str,
        roles: Iterable[str],
        *,
        audit: AuditRecord | None = None,
    ) -> None:
        """Replace the account's roles in `realm`."""
        held = frozenset(roles)

        async def work(connection: AsyncConnection) -> None:
            await _require_account(connection, id)
            await connection.execute(
                delete(account_roles).where(account_roles.c.account == id, account_roles.c.realm == realm)
            )
            await _insert_roles(connection, id, {realm: held})

        await self._run_audited(work, audit)

    async def replace_group_roles(
        self,
        id: str,  # noqa: A002
        provider: str,
        roles: Mapping[str, frozenset[str]],
        *,
        audit: AuditRecord | None = None,
    ) -> None:
        """Replace the roles that groups of a provider give the account; the keys are `REALM@PROVIDER`."""
        of_provider = account_roles.c.realm.endswith(f"@{provider}", autoescape=True)

        async def work(connection: AsyncConnection) -> None:
            await _require_account(connection, id)
            await connection.execute(delete(account_roles).where(account_roles.c.account == id, of_provider))
            await _insert_roles(connection, id, roles)

        await self._run_audited(work, audit)

    async def drop_group_roles(self, granted: Collection[tuple[str, str]]) -> int:
        """Take every role of a group that is not `granted`, as (`REALM@PROVIDER`, role); return how many."""
        of_groups = account_roles.c.realm.contains("@")

        async def work(connection: AsyncConnection) -> int:
            found = select(account_roles.c.realm, account_roles.c.role).where(of_groups).distinct()
            left = 0
            for realm, role in (await connection.execute(found)).all():
                if (realm, role) not in granted:
                    same = (account_roles.c.realm == realm, account_roles.c.role == role)
                    left += (await connection.execute(delete(account_roles).where(*same))).rowcount
            return left

        return await self._database.run_transaction(work)

    async def disable(self, id: str, *, audit: AuditRecord | None = None) -> None:  # noqa: A002
        """Disable the account and end its sessions. Its past actions keep its ID."""

        async def work(connection: AsyncConnection) -> None:
            await _update_account(connection, id, disabled=True)
            await connection.execute(delete(sessions).where(sessions.c.account == id))

        await self._run_audited(work, audit)

    async def enable(self, id: str, *, audit: AuditRecord | None = None) -> None:  # noqa: A002
        """Enable the account."""
        await self._update_values(id, audit, disabled=False)

    async def list(
        self, *, realm: str | None = None, role: str | None = None, after: str = "", limit: int = 1000
    ) -> tuple[Account, ...]:
        """Return accounts with `role` in `realm`, by login, beyond the login `after`."""
        statement = select(accounts).where(accounts.c.login > after)
        if realm is not None or role is not None:
            held = select(account_roles.c.account)
            if realm is not None:
                names = (realm, ALL_REALMS)
                by_group = (account_roles.c.realm.startswith(f"{name}@", autoescape=True) for name in names)
                held = held.where(or_(account_roles.c.realm.in_(names), *by_group))
            if role is not None:
                held = held.where(account_roles.c.role == str(role))
            statement = statement.where(accounts.c.id.in_(held))
        async with self._database.open_reader(snapshot=True) as connection:
            found = await connection.execute(
                statement.order_by(accounts.c.login).limit(sql.require_limit(limit))
            )
            return await _fetch_accounts(connection, found.all())

    async def _find_account(self, statement: Select[Any], *texts: str) -> Account | None:
        if not all(map(sql.is_storable, texts)):
            return None
        async with self._database.open_reader() as connection:
            row = (await connection.execute(statement)).one_or_none()
            return None if row is None else (await _fetch_accounts(connection, [row]))[0]

    async def _update_values(self, id: str, audit: AuditRecord | None, **values: object) -> None:  # noqa: A002
        await self._run_audited(lambda connection: _update_account(connection, id, **values), audit)


def _select_linked(issuer: str, subject: str) -> Select[Any]:
    linked = select(subjects.c.account).where(subjects.c.issuer == issuer, subjects.c.subject == subject)
    return select(accounts).where(accounts.c.id.in_(linked))


async def _insert_account(connection: AsyncConnection, account: Account) -> None:
    try:
        await connection.execute(insert(accounts), _make_account_row(account))
    except IntegrityError as error:
        if sql.is_duplicate(error):
            raise _make_taken_error("login", "the login is already taken") from None
        raise
    await _insert_roles(connection, account.id, account.roles)


async def _update_account(connection: AsyncConnection, identifier: str, **values: object) -> None:
    done = await connection.execute(update(accounts).where(accounts.c.id == identifier).values(**values))
    if done.rowcount == 0:
        raise _make_unknown_account_error()


async def _require_account(connection: AsyncConnection, identifier: str) -> None:
    found = await connection.execute(select(accounts.c.id).where(accounts.c.id == identifier))
    if found.scalar() is None:
        raise _make_unknown_account_error()


async def _insert_roles(
    connection: AsyncConnection, identifier: str, roles: Mapping[str, frozenset[str]]
) -> None:
    rows = [
        {"account": identifier, "realm": realm, "role": str(role)}
        for realm, held in roles.items()
        for role in held
    ]
    if rows:
        await connection.execute(insert(account_roles), rows)


async def _fetch_accounts(connection: AsyncConnection, rows: Iterable[Row[Any]]) -> tuple[Account, ...]:
    rows = list(rows)
    statement = select(account_roles).where(account_roles.c.account.in_([row.id for row in rows]))
    roles: dict[str, dict[str, frozenset[str]]] = {}
    for account, realm, role in await connection.execute(statement):
        held = roles.setdefault(account, {})
        held[realm] = held.get(realm, frozenset()) | {role}
    return tuple(_decode_account(row, roles.get(row.id, {})) for row in rows)


def _make_account_row(account: Account) -> dict[str, Any]:
    row = {column.name: getattr(account, column.name) for column in accounts.c}
    password = account.password_hash
    return {**row, "password_hash": None if password is None else password.reveal()}


def _decode_account(row: Row[Any], roles: Mapping[str, frozenset[str]]) -> Account:
    password = None if row.password_hash is None else Secret(row.password_hash)
    return Account(**{**row._mapping, "password_hash": password, "roles": MappingProxyType(dict(roles))})


def _make_unknown_account_error() -> UnknownEntryError:
    return UnknownEntryError("no account has this ID", code="accounts.unknown-account", field="account")


def _make_taken_error(field: str, message: str) -> RegistryError:
    return RegistryError(message, code=f"accounts.{field}-taken", field=field, hint="Choose another one.")


class Sessions(_Rows):
    """The sessions of a database."""

    async def create(self, session: Session, *, password: Secret | None = None) -> bool:
        """Add a session, and delete those that ended before it was `created`.

        Return False, without a session, if `password` (a hash) is given and the account is disabled or has
        another hash now.
        """

        async def work(connection: AsyncConnection) -> bool:
            await connection.execute(delete(sessions).where(sessions.c.expires <= session.created))
            if password is not None and not await _has_password(connection, session.account, password):
                return False
            await _insert_owned_row(connection, sessions, asdict(session))
            return True

        return await self._database.run_transaction(work)

    async def find(self, digest: str, at: datetime) -> Session | None:
        """Return the session with this digest, or None if there is none or it ended before `at`."""
        statement = select(sessions).where(sessions.c.digest == digest, sessions.c.expires > at)
        async with self._database.open_reader() as connection:
            row = (await connection.execute(statement)).one_or_none()
        return None if row is None else Session(**row._mapping)

    async def touch(self, digest: str, at: datetime) -> None:
        """Record the last use."""
        statement = update(sessions).where(sessions.c.digest == digest, sessions.c.seen < at).values(seen=at)
        await self._run(statement)

    async def drop(self, digest: str) -> None:
        """End the session, if there is one."""
        await self._run(delete(sessions).where(sessions.c.digest == digest))

    async def drop_all(self, account: str) -> None:
        """End all sessions of the account."""
        await self._run(delete(sessions).where(sessions.c.account == account))


class Tokens(_Rows):
    """The API tokens of a database."""

    async def create(self, token: ApiToken, *, audit: AuditRecord | None = None) -> None:
        """Add a token."""
        row = {**asdict(token), "scopes": " ".join(sorted(token.scopes))}
        await self._run_audited(lambda connection: _insert_owned_row(connection, tokens, row), audit)

    async def find(self, digest: str, at: datetime) -> ApiToken | None:
        """Return the token with this digest, or None if there is none or it is revoked or expired at `at`."""
        async with self._database.open_reader() as connection:
            row = (await connection.execute(select(tokens).where(tokens.c.digest == digest))).one_or_none()
        if row is None or row.revoked is not None or (row.expires is not None and row.expires <= at):
            return None
        return _decode_token(row)

    async def touch(self, id: str, at: datetime) -> None:  # noqa: A002 - what the caller has
        """Record the last use."""
        await self._run(update(tokens).where(tokens.c.id == id).values(last_used=at))

    async def list(self, account: str) -> tuple[ApiToken, ...]:
        """Return all tokens of the account, including revoked ones, the oldest first."""
        statement = select(tokens).where(tokens.c.account == account).order_by(tokens.c.created, tokens.c.id)
        async with self._database.open_reader() as connection:
            return tuple(_decode_token(row) for row in await connection.execute(statement))

    async def revoke(self, id: str, at: datetime, *, audit: AuditRecord | None = None) -> None:  # noqa: A002
        """Revoke the token; a second call changes nothing. Raises UnknownEntryError."""

        async def work(connection: AsyncConnection) -> None:
            found = (
                await connection.execute(select(tokens.c.revoked).where(tokens.c.id == id))
            ).one_or_none()
            if found is None:
                raise UnknownEntryError("no token has this ID", code="accounts.unknown-token", field="token")
            if found.revoked is None:
                await connection.execute(update(tokens).where(tokens.c.id == id).values(revoked=at))

        await self._run_audited(work, audit)


class AuditLog(_Rows):
    """The audit log of a database: append-only, a hash chain, read from the newest record on."""

    async def write(self, record: AuditRecord) -> None:
        """Append a record. Characters that databases cannot store become question marks."""
        await self._database.run_transaction(lambda connection: _append_audit_record(connection, record))

    async def verify(self) -> AuditHead:
        """Verify the hash chain, and return its end. Raises StoreError (accounts.broken-audit).

        Records of releases without a chain are counted, and become a part of it with the next record.
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await _verify_audit_chain(connection)

    async def check_anchor(self, head: AuditHead) -> None:
        """Compare a record's digest with one that was saved. Raises StoreError (accounts.broken-audit)."""
        statement = select(audit_digests.c.digest).where(audit_digests.c.id == head.number)
        async with self._database.open_reader() as connection:
            digest = (await connection.execute(statement)).scalar()
        if digest != head.digest and (head.number, head.digest) != (0, _AUDIT_GENESIS):
            raise _make_broken_audit_error(head.number, "is missing or has another digest than the saved one")

    async def page(
        self,
        *,
        account: str | None = None,
        action: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> sql.Page[AuditRecord]:
        """Return a page of records, the newest first, optionally of one account or action."""
        filters = ("audit", account, action)
        statement = select(audit).order_by(audit.c.id.desc()).limit(sql.require_limit(limit) + 1)
        for column, wanted in ((audit.c.account, account), (audit.c.action, action)):
            if wanted is not None:
                statement = statement.where(column == sql.replace_unstorable(wanted))
        if after is not None:
            statement = statement.where(audit.c.id < sql.decode_cursor(after, filters, int))
        async with self._database.open_reader() as connection:
            rows = (await connection.execute(statement)).mappings().all()
        following = sql.encode_cursor(filters, rows[limit - 1]["id"]) if len(rows) > limit else None
        lines = ({name: row[name] for name in row if name != "id"} for row in rows[:limit])
        return sql.Page(items=tuple(AuditRecord(**line) for line in lines), next=following)


#: what the first digest of the chain covers in place of an earlier one
_AUDIT_GENESIS: Final = "0" * 64
#: audit records that are read at once
_AUDIT_BATCH: Final = 1000


async def _append_audit_record(connection: AsyncConnection, record: AuditRecord) -> None:
    row = {
        name: sql.replace_unstorable(value) if isinstance(value, str) else value
        for name, value in asdict(record).items()
    }
    await connection.execute(insert(audit).values(row))
    last = audit_digests.select().order_by(audit_digests.c.id.desc()).limit(1)
    end = (await connection.execute(last)).one_or_none()
    number, previous = (0, _AUDIT_GENESIS) if end is None else (end.id, end.digest)
    # the new record; before it, at the first call, those that an older release wrote
    async for identifier, digest in _iter_audit_digests(connection, number, previous):
        await connection.execute(insert(audit_digests).values(id=identifier, digest=digest))


async def _iter_audit_digests(
    connection: AsyncConnection, number: int, digest: str
) -> AsyncIterator[tuple[int, str]]:
    """Yield the number and the digest of each record after `number`, whose digest is `digest`."""
    while True:
        statement = select(audit).where(audit.c.id > number).order_by(audit.c.id).limit(_AUDIT_BATCH)
        rows = (await connection.execute(statement)).mappings().all()
        for row in rows:
            number, digest = row["id"], _compute_audit_digest(dict(row), digest)
            yield number, digest
        if len(rows) < _AUDIT_BATCH:
            return


def _compute_audit_digest(row: dict[str, Any], previous: str) -> str:
    data = {**row, "at": format_timestamp(row["at"]), "previous": previous}
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


async def _verify_audit_chain(connection: AsyncConnection) -> AuditHead:
    stored = {row.id: row.digest for row in await connection.execute(select(audit_digests))}
    first, last = min(stored, default=None), max(stored, default=0)
    head, records = (0, _AUDIT_GENESIS), 0
    async for number, digest in _iter_audit_digests(connection, 0, _AUDIT_GENESIS):
        records += 1
        if first is None:
            continue
        if stored.pop(number, None) != digest:
            raise _make_broken_audit_error(number, "was changed, or a record before it is missing")
        head = (number, digest)
    if stored:
        raise _make_broken_audit_error(last, "is missing")
    return AuditHead(number=head[0], digest=head[1], records=records)


def _make_broken_audit_error(number: int, reason: str) -> StoreError:
    return StoreError(
        f"record {number} of the audit log {reason}",
        code="accounts.broken-audit",
        field=str(number),
        hint="Another program changed the audit log. Restore a backup and keep this database as evidence.",
    )


def _decode_token(row: Row[Any]) -> ApiToken:
    return ApiToken(**{**row._mapping, "scopes": frozenset(row.scopes.split())})


async def _has_password(connection: AsyncConnection, account: str, password: Secret) -> bool:
    same = (accounts.c.id == account, accounts.c.password_hash == password.reveal(), ~accounts.c.disabled)
    return (await connection.execute(select(accounts.c.id).where(*same))).scalar() is not None


async def _insert_owned_row(connection: AsyncConnection, table: Any, row: dict[str, Any]) -> None:
    try:
        await connection.execute(insert(table), row)
    except IntegrityError as error:
        # the only other key is the account
        if sql.is_duplicate(error):
            raise
        raise _make_unknown_account_error() from None
