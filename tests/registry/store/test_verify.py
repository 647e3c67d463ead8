"""Whoever changes the database behind the registry's back is found out, and the projections are made anew."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from onym.errors import StoreError
from onym.registry.records import Actor, Decision, Entry, Event, Request
from onym.registry.store import Store, restore
from registry.store.store_support import (
    AT,
    IANA,
    SCHEMES,
    entry,
    generated,
    in_store,
    registered,
    run,
    under_review,
)
from registry.store.test_accounts import ADA, people, token

TAMPERING = {
    "UPDATE entries SET status = 'permanent'": "entries",
    "UPDATE entries SET record = replace(record, 'Conti', 'Other')": "entries",
    "UPDATE entries SET wake = '2026-01-01'": "entries",
    "DELETE FROM entry_text": "entry_text",
    "UPDATE entry_text SET text = 'x'": "entry_text",
    "UPDATE requests SET holder = 'iana'": "requests",
    "DELETE FROM requests": "requests",
    "UPDATE sequences SET last = 0": "sequences",
    "DELETE FROM sequences": "sequences",
}


@pytest.mark.parametrize("statement", TAMPERING)
def test_a_projection_that_was_changed_is_found_and_made_anew(store_url: str, statement: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        await under_review(store, "other")
        await store._database.write(lambda connection: connection.execute(text(statement)))
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == (
            "registry.projection-differs",
            TAMPERING[statement],
        )
        assert await store.rebuild() == await store.verify()
        assert [each.name for each in await store.search(SCHEMES, "conti")] == ["conti", "other"]
        assert (await registered(store, "third")).record.event.request == f"{SCHEMES}-3"
        await store.verify()

    in_store(store_url, work)


LOG_TAMPERING = {
    "UPDATE log SET record = replace(record, 'user-ada', 'user-eve') WHERE number = 2": "2",
    "UPDATE log SET record = replace(record, '{\"actor', '{ \"actor') WHERE number = 2": "2",
    "UPDATE log SET record = 'x' WHERE number = 2": None,
    "UPDATE log SET kind = 'approve' WHERE number = 2": "2",
    "UPDATE log SET name = 'x' WHERE number = 3": "3",
    "DELETE FROM log WHERE number = 3": "3",
}


@pytest.mark.parametrize("statement", LOG_TAMPERING)
def test_a_log_that_was_changed_is_found_with_the_number(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "r.db"

    async def fill(store: Store) -> None:
        await registered(store)
        await under_review(store, "other")

    in_store(str(path), fill)
    with closing(sqlite3.connect(path)) as outside:
        for guard in ("log_no_update", "log_no_delete"):
            outside.execute(f"DROP TRIGGER {guard}")
        outside.execute(statement)
        outside.commit()

    async def work(store: Store) -> None:
        for check in (store.verify, store.rebuild):
            with pytest.raises(StoreError) as caught:
                await check()
            assert caught.value.code in {"registry.broken-chain", "registry.bad-record"}
            assert caught.value.field == LOG_TAMPERING[statement]

    in_store(str(path), work)


def test_rows_that_point_nowhere_are_found(tmp_path: Path) -> None:
    path = tmp_path / "r.db"

    async def work(store: Store) -> None:
        with closing(sqlite3.connect(path)) as outside:
            outside.execute("INSERT INTO account_roles VALUES ('nobody', '*', 'iana')")
            outside.commit()
        with pytest.raises(StoreError, match="points nowhere"):
            await store.verify()

    in_store(str(path), work)


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "r.db"

    async def fill(store: Store) -> None:
        await store.import_entries(SCHEMES, generated(300), IANA, AT, source="test")

    in_store(str(path), fill)
    data = bytearray(path.read_bytes())
    for page in range(40, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(data)

    async def work(store: Store) -> None:
        await store.verify()

    with pytest.raises(StoreError) as caught:
        in_store(str(path), work)
    assert caught.value.code == "registry.corrupt"


def other_engine(
    event: Event, actor: Actor, at: Any, *, request: Request | None, entry: Entry | None
) -> Decision:
    return Decision(rule="Z9", clause="none")


def test_a_log_that_the_engine_decides_otherwise_now_is_told(store_url: str) -> None:
    async def fill(store: Store) -> None:
        await registered(store)

    in_store(store_url, fill)

    async def work(store: Store) -> None:
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.replay-failed", "1")

    in_store(store_url, work, decide=other_engine)


# ---------- backups


async def fill_all(store: Store) -> None:
    await registered(store)
    await under_review(store, "other")
    await store.import_entries(SCHEMES, [entry("http", description="ü")], IANA, AT, source="test")
    await people(store)
    await store.accounts.link(ADA.id, "https://issuer.example", "s-1")
    await store.tokens.create(token(1, expires=AT + timedelta(days=9)))


async def state_of(store: Store) -> tuple[object, ...]:
    return (
        await store.log(),
        await store.entries(SCHEMES),
        (await store.requests()).items,
        await store.accounts.list(),
        await store.accounts.by_subject("https://issuer.example", "s-1"),
        await store.tokens.list(ADA.id),
        await store.verify(),
    )


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_backup_of_either_database_goes_into_either(
    store_url: str, postgres_url: str, tmp_path: Path, target: str, portable: bool
) -> None:
    backup = tmp_path / "backup"
    new = postgres_url if target == "postgresql" else str(tmp_path / "restored.db")

    async def save(store: Store) -> tuple[object, ...]:
        await fill_all(store)
        await store.backup(backup, portable=portable)
        before = await state_of(store)
        await store.backup(backup, portable=portable)
        return before

    before = in_store(store_url, save)
    assert backup.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir() if "part" in each.name] == []
    run(restore(backup, new))
    assert in_store(new, state_of, create=False) == before

    async def goes_on(store: Store) -> None:
        assert (await registered(store, "third")).record.event.request == f"{SCHEMES}-3"

    in_store(new, goes_on)
    with pytest.raises(StoreError) as caught:
        run(restore(backup, new))
    assert caught.value.code == "registry.not-empty"


def test_a_copy_of_sqlite_is_a_registry_of_its_own(tmp_path: Path) -> None:
    async def work(store: Store) -> tuple[object, ...]:
        await fill_all(store)
        writing = asyncio.gather(*(registered(store, f"while-{number}") for number in range(4)))
        await store.backup(tmp_path / "copy.db")
        await writing
        return await state_of(store)

    whole = in_store(str(tmp_path / "r.db"), work)
    copied = in_store(str(tmp_path / "copy.db"), state_of, create=False)
    log, some = whole[0], copied[0]
    assert isinstance(log, tuple)
    assert isinstance(some, tuple)
    assert log[: len(some)] == some


def change_line(number: int, new: bytes) -> Any:
    def change(lines: list[bytes]) -> list[bytes]:
        return [*lines[:number], new, *lines[number + 1 :]]

    return change


DAMAGE = {
    "heading": change_line(0, b'{"format":"other","v":1}'),
    "not JSON": change_line(2, b"{"),
    "not an object": change_line(2, b"[]"),
    "unknown": change_line(2, b'{"x":1}'),
    "a record gone": lambda lines: [*lines[:2], *lines[3:]],
    "an account gone": lambda lines: [each for each in lines if b'"login":"bob"' not in each],
    "other table": change_line(-2, b'{"table":"alembic_version","row":{}}'),
    "other columns": change_line(-2, b'{"table":"tokens","row":{"id":"x"}}'),
    "no end": lambda lines: lines[:-1],
    "more": lambda lines: [*lines, lines[-1]],
    "empty": lambda lines: [],
    "wrong type": lambda lines: [each.replace(b'"label":"ci"', b'"label":3') for each in lines],
    "null": lambda lines: [each.replace(b'"label":"ci"', b'"label":null') for each in lines],
    "bad time": lambda lines: [each.replace(b'"created":"2026', b'"created":"x026') for each in lines],
    "an account twice": lambda lines: [each.replace(b'"login":"bob"', b'"login":"ada"') for each in lines],
    "a changed record": lambda lines: [each.replace(b"Conti clients", b"Other clients") for each in lines],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_backup_writes_nothing(tmp_path: Path, damage: str) -> None:
    backup, new = tmp_path / "backup", str(tmp_path / "new.db")

    async def save(store: Store) -> None:
        await fill_all(store)
        await store.backup(backup, portable=True)

    in_store(str(tmp_path / "r.db"), save)
    lines = DAMAGE[damage](backup.read_bytes().splitlines())
    backup.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(StoreError) as caught:
        run(restore(backup, new))
    assert caught.value.code in {"registry.bad-backup", "registry.broken-chain", "registry.bad-record"}

    async def empty(store: Store) -> None:
        assert (await store.head()).number == 0
        assert await store.accounts.list() == ()

    in_store(new, empty)


def test_a_backup_that_is_not_there_or_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        run(restore(tmp_path / "none", tmp_path / "new.db"))
    assert caught.value.code == "registry.io"

    async def work(store: Store) -> None:
        for portable in (True, False):
            with pytest.raises(StoreError) as caught:
                await store.backup(tmp_path / "no" / "backup", portable=portable)
            assert caught.value.code == "registry.io"

    in_store(str(tmp_path / "r.db"), work)
