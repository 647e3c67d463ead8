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

from accounts.test_store import ADA, people, token
from onym.accounts.records import AuditRecord
from onym.errors import RefusalError, StoreError
from onym.registry.engine import decide, decide_as_logged
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, Request
from onym.registry.store import Decide, Store, restore
from registry.store.store_support import (
    AT,
    IANA,
    REGISTRANT,
    SCHEMES,
    ask,
    entry,
    generated,
    in_store,
    open_event,
    registered,
    run,
    under_review,
)

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
        await store._database.run_transaction(lambda connection: connection.execute(text(statement)))
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == (
            "registry.projection-differs",
            TAMPERING[statement],
        )
        assert await store.rebuild() == await store.verify()
        assert [item.name for item in await store.search(SCHEMES, "conti")] == ["conti", "other"]
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
def test_a_log_that_was_changed_is_found_with_the_number(sqlite_path: Path, statement: str) -> None:
    path = sqlite_path

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


def test_rows_that_point_nowhere_are_found(sqlite_path: Path) -> None:
    path = sqlite_path

    async def work(store: Store) -> None:
        with closing(sqlite3.connect(path)) as outside:
            outside.execute("INSERT INTO account_roles VALUES ('nobody', '*', 'iana')")
            outside.commit()
        with pytest.raises(StoreError, match=r"\brow 1\b") as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.projection-differs", "account_roles")

    in_store(str(path), work)


def test_a_damaged_file_is_found(sqlite_path: Path) -> None:
    path = sqlite_path

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


def refusing_engine(
    event: Event, actor: Actor, at: Any, *, request: Request | None, entry: Entry | None
) -> Decision:
    raise RefusalError("no more", code="registry.not-allowed")


@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        (other_engine, "another rule"),
        (refusing_engine, "registry.not-allowed"),
    ],
)
def test_a_log_that_the_engine_decides_otherwise_now_is_told(
    store_url: str, engine: Decide, cause: str
) -> None:
    async def fill(store: Store) -> None:
        await registered(store)

    in_store(store_url, fill)

    async def work(store: Store) -> None:
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.replay-failed", "1")
        assert cause in caught.value.message

    in_store(store_url, work, decide=engine)


def engine_of_an_older_release(
    event: Event, actor: Actor, at: Any, *, request: Request | None, entry: Entry | None
) -> Decision:
    """It rejected an incomplete request when IANA said that it is complete."""
    subjects = {"request": request, "entry": entry}
    older = decide_as_logged(event, actor, at, rule="I1", **subjects) if request else None
    return older or decide(event, actor, at, **subjects)


def test_a_log_of_a_release_with_looser_rules_verifies_and_rebuilds(store_url: str) -> None:
    number = f"{SCHEMES}-1"

    async def fill(store: Store) -> None:
        await store.apply(open_event("lacky", fields={"contact": "Ada"}), REGISTRANT, AT)
        for kind, actor in ((EventKind.SUBMIT, REGISTRANT), (EventKind.CHECK_COMPLETE, IANA)):
            await store.apply(ask(kind, number), actor, AT)

    in_store(store_url, fill, decide=engine_of_an_older_release)

    async def work(store: Store) -> None:
        assert (await store.log())[-1].rule == "I1"
        found = await store.verify()
        assert (found.records, found.requests) == (3, 1)
        await store.rebuild()
        request = await store.request(number)
        assert request is not None
        assert (request.state, request.outcome) == ("rejected", "incomplete")

    in_store(store_url, work)


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
        await store.accounts.find_by_subject("https://issuer.example", "s-1"),
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
    assert [item.name for item in tmp_path.iterdir() if "part" in item.name] == []
    run(restore(backup, new))
    assert in_store(new, state_of, create=False) == before

    async def goes_on(store: Store) -> None:
        assert (await registered(store, "third")).record.event.request == f"{SCHEMES}-3"

    in_store(new, goes_on)
    with pytest.raises(StoreError) as caught:
        run(restore(backup, new))
    assert caught.value.code == "registry.not-empty"


def test_the_audit_log_goes_on_where_a_backup_ended(
    store_url: str, postgres_url: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    lines = [
        AuditRecord(
            at=AT + timedelta(minutes=number), account=None, action="sign-in.password", subject=str(number),
            outcome="ok", address="192.0.2.1",
        )
        for number in range(3)
    ]  # fmt: skip

    async def save(store: Store) -> None:
        await store.audit.write(lines[0])
        await store.audit.write(lines[1])
        await store.backup(backup, portable=True)

    async def goes_on(store: Store) -> tuple[AuditRecord, ...]:
        await store.audit.write(lines[2])
        return (await store.audit.page()).items

    in_store(store_url, save)
    for new in (postgres_url, str(tmp_path / "restored.db")):
        run(restore(backup, new))
        assert in_store(new, goes_on, create=False) == tuple(reversed(lines))


def test_a_copy_of_sqlite_is_a_registry_of_its_own(sqlite_path: Path, tmp_path: Path) -> None:
    async def work(store: Store) -> tuple[object, ...]:
        await fill_all(store)
        writing = asyncio.gather(*(registered(store, f"while-{number}") for number in range(4)))
        await store.backup(tmp_path / "copy.db")
        await writing
        return await state_of(store)

    whole = in_store(str(sqlite_path), work)
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
    "an account gone": lambda lines: [line for line in lines if b'"login":"bob"' not in line],
    "other table": change_line(-2, b'{"table":"alembic_version","row":{}}'),
    "other columns": change_line(-2, b'{"table":"tokens","row":{"id":"x"}}'),
    "no end": lambda lines: lines[:-1],
    "more": lambda lines: [*lines, lines[-1]],
    "empty": lambda lines: [],
    "wrong type": lambda lines: [line.replace(b'"label":"ci"', b'"label":3') for line in lines],
    "null": lambda lines: [line.replace(b'"label":"ci"', b'"label":null') for line in lines],
    "bad time": lambda lines: [line.replace(b'"created":"2026', b'"created":"x026') for line in lines],
    "an account twice": lambda lines: [line.replace(b'"login":"bob"', b'"login":"ada"') for line in lines],
    "a changed record": lambda lines: [line.replace(b"Conti clients", b"Other clients") for line in lines],
}


@pytest.fixture(scope="module")
def backup_lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of one sound backup."""
    folder = tmp_path_factory.mktemp("backup")

    async def save(store: Store) -> None:
        await fill_all(store)
        await store.backup(folder / "backup", portable=True)

    in_store(str(folder / "registry.db"), save)
    return (folder / "backup").read_bytes().splitlines()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_backup_writes_nothing(
    backup_lines: list[bytes], sqlite_path: Path, tmp_path: Path, damage: str
) -> None:
    backup, new = tmp_path / "backup", str(sqlite_path)
    lines = DAMAGE[damage](backup_lines)
    backup.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(StoreError) as caught:
        run(restore(backup, new))
    assert caught.value.code in {"registry.bad-backup", "registry.broken-chain", "registry.bad-record"}

    async def empty(store: Store) -> None:
        assert (await store.head()).number == 0
        assert await store.accounts.list() == ()

    in_store(new, empty)


def test_a_damaged_file_of_sqlite_is_no_backup(sqlite_path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.write_bytes(sqlite_path.read_bytes()[:6000])
    with pytest.raises(StoreError) as caught:
        run(restore(backup, tmp_path / "new.db"))
    assert caught.value.code in {"registry.io", "registry.corrupt"}
    assert not (tmp_path / "new.db").exists()


def test_a_backup_of_an_empty_registry_is_restored(store_url: str, tmp_path: Path) -> None:
    async def save(store: Store) -> None:
        await store.backup(tmp_path / "backup", portable=True)

    in_store(store_url, save)
    assert run(restore(tmp_path / "backup", store_url)).records == 0


def test_more_than_one_batch_is_verified_made_anew_and_backed_up_whole(
    sqlite_path: Path, tmp_path: Path
) -> None:
    rows = generated(1001)

    async def work(store: Store) -> None:
        await store.import_entries(SCHEMES, rows, IANA, AT, source="test")
        found = await store.verify()
        assert (found.records, found.entries) == (1001, 1001)
        assert await store.rebuild() == found
        assert [item.name for item in await store.search(SCHEMES, rows[1000].name)] == [rows[1000].name]
        await store.backup(tmp_path / "backup", portable=True)
        assert await restore(tmp_path / "backup", tmp_path / "new.db") == found

    in_store(str(sqlite_path), work)


def test_a_backup_that_is_not_there_or_cannot_be_written_is_told(sqlite_path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        run(restore(tmp_path / "none", tmp_path / "new.db"))
    assert caught.value.code == "registry.io"

    async def work(store: Store) -> None:
        for portable in (True, False):
            with pytest.raises(StoreError) as caught:
                await store.backup(tmp_path / "no" / "backup", portable=portable)
            assert caught.value.code == "registry.io"

    in_store(str(sqlite_path), work)


@pytest.mark.parametrize("name", ["new.db", "new.db-wal", "./folder/../new.db", "link.db", "hard.db"])
def test_a_backup_does_not_take_the_place_of_the_database_itself(tmp_path: Path, name: str) -> None:
    place = tmp_path / "new.db"
    (tmp_path / "folder").mkdir()

    async def work(store: Store) -> None:
        await registered(store)
        (tmp_path / "link.db").symlink_to(place)
        (tmp_path / "hard.db").hardlink_to(place)
        before = place.stat().st_ino
        for portable in (False, True):
            with pytest.raises(StoreError) as caught:
                await store.backup(tmp_path / name, portable=portable)
            assert (caught.value.code, caught.value.field) == ("registry.io", "file")
        assert place.stat().st_ino == before

    in_store(str(place), work)


def test_a_backup_without_a_name_is_refused(store_url: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(StoreError) as caught:
            await store.backup("")
        assert (caught.value.code, caught.value.field) == ("registry.io", "file")
        assert caught.value.hint == "Give a file name."

    in_store(store_url, work)


def test_another_database_of_sqlite_is_no_backup(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "photos.db")) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
        other.commit()
    with pytest.raises(StoreError) as caught:
        run(restore(tmp_path / "photos.db", tmp_path / "new.db"))
    assert caught.value.code == "registry.bad-backup"
    assert not (tmp_path / "new.db").exists()
