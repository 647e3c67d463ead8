"""Accounts in a database without registry tables: people, sessions, tokens and the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from onym.accounts.records import Account, ApiToken, AuditRecord, Session
from onym.accounts.store import AccountStore
from onym.errors import RegistryError, StoreError, UnknownEntryError
from onym.store.sql import Database, DatabaseProfile
from onym.uri.secret import Secret

SCHEMES = "uri-schemes"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
PROFILE = DatabaseProfile(name="shop", lock_key=7)


def in_store(url: str, work: Callable[[AccountStore], Awaitable[None]]) -> None:
    """Run `work` on the accounts of a database that contains nothing else."""

    async def main() -> None:
        database = Database(url, PROFILE)
        database.create_file()
        store = AccountStore(database)
        await store.create_tables()
        try:
            await work(store)
        finally:
            await database.close()

    asyncio.run(main())


ADA = Account(
    id="user-ada",
    login="ada",
    name="Ada Lovelace",
    email="ada@example.org",
    password_hash=Secret("$argon2id$hash"),
    roles={SCHEMES: frozenset({"expert", "registrant"}), "*": frozenset({"iana"})},
    created=AT,
)
BOB = Account(id="user-bob", login="bob", name="Bob", email=None, created=AT)
DAY = timedelta(days=1)


def session(number: int, account: str = ADA.id) -> Session:
    return Session(digest=f"{number:064x}", account=account, created=AT, expires=AT + DAY, seen=AT)


def token(number: int, **more: object) -> ApiToken:
    made = ApiToken(
        id=f"token-{number}",
        digest=f"{number:064x}",
        account=ADA.id,
        label="ci",
        scopes=frozenset({"read", "submit"}),
        created=AT,
        expires=None,
    )
    return replace(made, **more)  # type: ignore[arg-type]


async def people(store: AccountStore) -> None:
    await store.accounts.add(ADA)
    await store.accounts.add(BOB)


def test_an_account_comes_back_as_it_was_added(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        assert await store.accounts.get(ADA.id) == await store.accounts.find_by_login(" ADA ") == ADA
        assert await store.accounts.get("nobody") is None
        assert await store.accounts.find_by_login("no\0body") is None

    in_store(store_url, work)


def test_a_login_is_taken_once(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        with pytest.raises(RegistryError) as caught:
            await store.accounts.add(replace(BOB, id="user-other"))
        assert (caught.value.code, caught.value.field) == ("accounts.login-taken", "login")
        with pytest.raises(StoreError):
            await store.accounts.add(replace(BOB, id="user-c", login="c", name=None))  # type: ignore[arg-type]

    in_store(store_url, work)


def test_accounts_are_listed_by_login_and_by_role(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        accounts = store.accounts
        assert await accounts.list() == (ADA, BOB)
        assert await accounts.list(after="ada") == (BOB,)
        assert await accounts.list(limit=1) == (ADA,)
        assert await accounts.list(role="expert") == (ADA,)
        assert await accounts.list(realm="llm-parameters", role="iana") == (ADA,)
        assert await accounts.list(realm="llm-parameters", role="expert") == ()
        assert await accounts.list(realm=SCHEMES) == (ADA,)

    in_store(store_url, work)


def test_what_is_changed_is_changed_and_nothing_else(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        accounts = store.accounts
        await accounts.set_password(BOB.id, Secret("new"))
        await accounts.set_email(BOB.id, "bob@example.org")
        await accounts.set_name(BOB.id, "Robert")
        await accounts.set_roles(BOB.id, SCHEMES, ["iesg"])
        await accounts.set_roles(ADA.id, SCHEMES, [])
        wanted = replace(
            BOB,
            password_hash=Secret("new"),
            email="bob@example.org",
            name="Robert",
            roles={SCHEMES: frozenset({"iesg"})},
        )
        assert await accounts.get(BOB.id) == wanted
        await accounts.set_password(BOB.id, None)
        assert await accounts.get(BOB.id) == replace(wanted, password_hash=None)
        assert await accounts.get(ADA.id) == replace(ADA, roles={"*": frozenset({"iana"})})

    in_store(store_url, work)


def test_an_account_that_is_not_there_is_not_changed(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        accounts = store.accounts
        for call in (
            lambda: accounts.set_password("nobody", None),
            lambda: accounts.set_roles("nobody", SCHEMES, ["iana"]),
            lambda: accounts.link("nobody", "https://issuer.example", "1"),
            lambda: accounts.disable("nobody"),
            lambda: store.sessions.create(session(1)),
            lambda: store.tokens.create(token(1)),
        ):
            with pytest.raises(UnknownEntryError) as caught:
                await call()
            assert caught.value.code == "accounts.unknown-account"

    in_store(store_url, work)


def test_a_subject_signs_in_to_one_account(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        issuer = "https://issuer.example"
        await store.accounts.link(ADA.id, issuer, "s-1")
        await store.accounts.link(ADA.id, issuer, "s-1")
        assert await store.accounts.find_by_subject(issuer, "s-1") == ADA
        assert await store.accounts.find_by_subject("https://other.example", "s-1") is None
        with pytest.raises(RegistryError) as caught:
            await store.accounts.link(BOB.id, issuer, "s-1")
        assert caught.value.code == "accounts.subject-taken"

    in_store(store_url, work)


def test_a_subject_without_an_account_gets_one_however_many_ask_at_once(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        issuer = "https://issuer.example"
        found = await asyncio.gather(
            *(store.accounts.add_linked(item, issuer, "s-1") for item in (ADA, BOB, replace(BOB, id="c")))
        )
        assert len({item.id for item in found}) == 1
        assert await store.accounts.list() == (found[0],)
        assert await store.accounts.find_by_subject(issuer, "s-1") == found[0]

    in_store(store_url, work)


def test_an_account_that_cannot_be_linked_is_not_added(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: AccountStore) -> None:
        with pytest.raises(StoreError):
            await store.accounts.add_linked(ADA, "https://issuer.example", None)  # type: ignore[arg-type]
        assert await store.accounts.list() == ()

    in_store(store_url, work)


def test_a_password_is_replaced_only_while_it_is_still_the_old_one(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        accounts, old = store.accounts, ADA.password_hash
        assert old is not None
        assert await accounts.replace_password(ADA.id, old, Secret("new"))
        assert not await accounts.replace_password(ADA.id, old, Secret("late"))
        assert not await accounts.replace_password(BOB.id, old, Secret("late"))
        assert await accounts.get(ADA.id) == replace(ADA, password_hash=Secret("new"))
        assert await accounts.get(BOB.id) == BOB

    in_store(store_url, work)


def test_a_session_by_password_begins_only_while_that_password_holds(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        old, sessions = ADA.password_hash, store.sessions
        assert await sessions.create(session(1), password=old)
        await store.accounts.set_password(ADA.id, Secret("new"))
        assert not await sessions.create(session(2), password=old)
        assert await sessions.find(session(2).digest, AT) is None
        assert await sessions.create(session(3), password=Secret("new"))
        await store.accounts.disable(ADA.id)
        assert not await sessions.create(session(4), password=Secret("new"))

    in_store(store_url, work)


def test_a_session_lasts_until_it_expires_or_is_dropped(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        sessions = store.sessions
        first, second, third = (session(number) for number in (1, 2, 3))
        for item in (first, second, third):
            await sessions.create(item)
        assert await sessions.find(first.digest, AT) == first
        assert await sessions.find(first.digest, AT + DAY) is None
        await sessions.touch(first.digest, AT + timedelta(hours=1))
        await sessions.touch(first.digest, AT)
        seen = await sessions.find(first.digest, AT)
        assert seen is not None
        assert seen.seen == AT + timedelta(hours=1)
        await sessions.drop(first.digest)
        await sessions.drop(first.digest)
        assert await sessions.find(first.digest, AT) is None
        await sessions.drop_all(ADA.id)
        assert await sessions.find(second.digest, AT) is None
        await sessions.create(third)
        with pytest.raises(StoreError):
            await sessions.create(third)

    in_store(store_url, work)


def test_disabling_an_account_ends_its_sessions(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        await store.sessions.create(session(1))
        await store.accounts.disable(ADA.id)
        assert await store.sessions.find(session(1).digest, AT) is None
        assert await store.accounts.get(ADA.id) == replace(ADA, disabled=True)
        await store.accounts.enable(ADA.id)
        assert await store.accounts.get(ADA.id) == ADA

    in_store(store_url, work)


def test_sessions_that_are_over_are_swept_out_by_the_next_one(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        await store.sessions.create(session(1))
        later = replace(session(2), created=AT + 2 * DAY, expires=AT + 3 * DAY)
        await store.sessions.create(later)
        assert await store.sessions.find(session(1).digest, AT) is None

    in_store(store_url, work)


def test_a_token_works_until_it_expires_or_is_revoked(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        await people(store)
        tokens = store.tokens
        forever, short = token(1), token(2, expires=AT + DAY)
        await tokens.create(forever)
        await tokens.create(short)
        assert await tokens.find(forever.digest, AT + 1000 * DAY) == forever
        assert await tokens.find(short.digest, AT) == short
        assert await tokens.find(short.digest, AT + DAY) is None
        assert await tokens.find("0" * 64, AT) is None
        await tokens.touch(forever.id, AT + DAY)
        await tokens.revoke(forever.id, AT + DAY)
        await tokens.revoke(forever.id, AT + 2 * DAY)
        assert await tokens.find(forever.digest, AT) is None
        revoked = replace(forever, last_used=AT + DAY, revoked=AT + DAY)
        assert await tokens.list(ADA.id) == (revoked, short)
        assert await tokens.list(BOB.id) == ()
        with pytest.raises(UnknownEntryError):
            await tokens.revoke("token-9", AT)

    in_store(store_url, work)


def test_the_audit_log_is_read_from_the_newest_on(store_url: str) -> None:
    async def work(store: AccountStore) -> None:
        lines = [
            AuditRecord(
                at=AT + timedelta(minutes=number),
                account=ADA.id if number % 2 else None,
                action="sign-in.password",
                subject="half \ud800 and \0" if number == 4 else None,
                outcome="ok",
                address="192.0.2.1",
            )
            for number in range(5)
        ]
        for line in lines:
            await store.audit.write(line)
        lines[4] = replace(lines[4], subject="half ? and ?")
        first = await store.audit.page(limit=3)
        assert first.items == tuple(reversed(lines[2:]))
        assert (await store.audit.page(limit=3, after=first.next)).items == (lines[1], lines[0])
        assert (await store.audit.page(account=ADA.id, action="sign-in.password")).items == (
            lines[3],
            lines[1],
        )
        assert (await store.audit.page(action="other")).items == ()

    in_store(store_url, work)
