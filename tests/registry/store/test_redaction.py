"""Personal data leaves the log, the chain stays valid, and anyone can see that nothing else was changed."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from onym.errors import RefusalError, StoreError
from onym.registry.codec import REMOVED_TEXT, canonicalize_json, compute_digest, remove_lines, to_data
from onym.registry.records import EventKind, LogRecord
from onym.registry.store import Store, restore
from registry.store.store_support import AT, IANA, REGISTRANT, SCHEMES, ask, in_store, opened, registered, run

ADDRESS = "ada@example.org"
TEMPLATE = f"Scheme name: conti\n\nContact: Ada <{ADDRESS}>\n\nStatus: provisional\n"


@pytest.fixture(params=["now", "older release"])
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes the log: this release, or one whose records have no salts."""
    if request.param != "now":
        monkeypatch.setattr("onym.registry.store._writes.token_hex", lambda _: "")
    return str(request.param)


async def records_of(store: Store) -> list[LogRecord]:
    return list(await store.log(limit=500))


async def redacted(store: Store) -> list[LogRecord]:
    """A registry with two requests and a redaction; its records as they were before."""
    await registered(store)
    await opened(store, "second", template=TEMPLATE)
    before = await records_of(store)
    await store.redact(SCHEMES, ADDRESS.upper(), IANA, AT, reason="ticket 7")
    return before


async def rewrite(store: Store, number: int, change: Any) -> None:
    """Change a record as a program could that may write the database."""
    found = (await records_of(store))[number - 1]
    data = json.loads(canonicalize_json(to_data(found)))
    change(data)

    async def work(connection: Any) -> None:
        if store._database.dialect == "sqlite":
            await connection.execute(text("DROP TRIGGER IF EXISTS log_no_update"))
        else:
            await connection.execute(text("ALTER TABLE log DISABLE TRIGGER log_no_change"))
        statement = text("UPDATE log SET record = :record WHERE number = :number")
        await connection.execute(statement, {"record": canonicalize_json(data), "number": number})
        if store._database.dialect != "sqlite":
            await connection.execute(text("ALTER TABLE log ENABLE TRIGGER log_no_change"))

    await store._database.run_transaction(work)


def test_the_text_is_gone_everywhere_and_the_log_stays_valid(store_url: str, release: str) -> None:
    async def work(store: Store) -> None:
        before = await redacted(store)
        after = await records_of(store)
        # the chain is the same, record by record, and has one more
        assert [record.digest for record in after[:-1]] == [record.digest for record in before]
        assert (after[-1].event.kind, after[-1].rule) == (EventKind.REDACT, "REDACT")
        assert (await store.verify()).records == len(before) + 1
        assert ADDRESS not in str([to_data(record) for record in after])
        entry = await store.entry(SCHEMES, "conti")
        assert entry is not None
        assert entry.fields["contact"] == REMOVED_TEXT
        request = await store.request(f"{SCHEMES}-2")
        assert request is not None
        assert ADDRESS not in str(request)
        assert await store.search(SCHEMES, ADDRESS) == ()
        notices = await store.outbox.claim(AT.replace(year=2030), 50)
        assert notices
        assert ADDRESS not in str(notices)
        # only lines with the text were removed
        changed = [
            (old.number, place)
            for old, new in zip(before, after, strict=False)
            for place, line in lines_of(old.event.data).items()
            if lines_of(new.event.data)[place] != line
        ]
        assert changed == [
            (1, "/fields/change_controller#0"),
            (1, "/fields/contact#0"),
            (4, "/fields/change_controller#0"),
            (4, "/fields/contact#0"),
            (4, "/template#2"),
        ]

    in_store(store_url, work)


def lines_of(value: Any, place: str = "") -> dict[str, str]:
    """The lines of a JSON value by place, by this test's own reading of decision 0056."""
    if isinstance(value, str):
        return {f"{place}#{number}": line for number, line in enumerate(value.split("\n"))}
    items: list[tuple[Any, Any]] = []
    if hasattr(value, "items"):
        items = sorted(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    return {key: line for name, item in items for key, line in lines_of(item, f"{place}/{name}").items()}


def compute_independently(data: dict[str, Any]) -> str:
    """The digest of a record's JSON, without the project's code."""
    salt, salts, removed = (data.pop(name, None) for name in ("salt", "salts", "removed"))
    data.pop("digest")

    def mac(key: str, message: str) -> str:
        return hmac.new(key.encode(), message.encode(), hashlib.sha256).hexdigest()

    def commit(value: Any, place: str) -> Any:
        if isinstance(value, str):
            return [
                (removed or {}).get(key) or mac((salts or {}).get(key) or mac(salt, key), line)
                for key, line in lines_of(value, place).items()
            ]
        if isinstance(value, dict):
            return {key: commit(item, f"{place}/{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [commit(item, f"{place}/{number}") for number, item in enumerate(value)]
        return value

    data["event"]["data"] = commit(data["event"].get("data", {}), "")
    plain = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def test_anyone_can_compute_the_digests_without_the_removed_text(store_url: str) -> None:
    async def work(store: Store) -> None:
        await redacted(store)
        for record in await records_of(store):
            assert compute_independently(to_data(record)) == record.digest

    in_store(store_url, work)


@pytest.mark.parametrize(
    "change",
    [
        # something else is changed together with the redaction
        lambda data: data["event"]["data"]["fields"].update(applications="Other clients"),
        # more is removed than the log says
        lambda data: (
            data["event"]["data"]["fields"].update(description=REMOVED_TEXT),
            data["removed"].update({"/fields/description#0": "0" * 64}),
        ),
        # another text in place of the removed one
        lambda data: data["event"]["data"]["fields"].update(contact="Eve <eve@example.org>"),
        # the removed text is back, as if nothing had been removed
        lambda data: data.pop("removed"),
    ],
)
def test_any_other_change_is_found(store_url: str, release: str, change: Any) -> None:
    async def work(store: Store) -> None:
        await redacted(store)
        await rewrite(store, 1, change)
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.broken-chain", "1")

    in_store(store_url, work)


def test_a_text_that_was_removed_without_a_record_is_found(store_url: str, release: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        first = (await records_of(store))[0]
        remainder = to_data(remove_lines(first, frozenset({"/fields/contact#0"})))
        await rewrite(store, 1, lambda data: (data.clear(), data.update(remainder)))
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.broken-chain", "1")

    in_store(store_url, work)


def test_a_record_can_lose_one_text_after_another(store_url: str, release: str) -> None:
    async def work(store: Store) -> None:
        before = await redacted(store)
        await store.redact(SCHEMES, "Conti clients", IANA, AT, reason="ticket 8")
        assert (await store.verify()).records == len(before) + 2
        entry = await store.entry(SCHEMES, "conti")
        assert entry is not None
        assert (entry.fields["applications"], entry.fields["contact"]) == (REMOVED_TEXT, REMOVED_TEXT)

    in_store(store_url, work)


@pytest.mark.parametrize(
    ("wanted", "actor", "code"),
    [
        ("provisional", IANA, "registry.not-removable"),
        ("nobody@example.org", IANA, "registry.nothing-to-remove"),
        ("abc", IANA, "registry.bad-data"),
        (f"two\n{ADDRESS}", IANA, "registry.bad-data"),
        (ADDRESS, REGISTRANT, "registry.wrong-role"),
    ],
)
def test_what_cannot_be_removed_changes_nothing(store_url: str, wanted: str, actor: Any, code: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        before = await records_of(store)
        with pytest.raises(RefusalError) as caught:
            await store.redact(SCHEMES, wanted, actor, AT, reason="ticket 7")
        assert caught.value.code == code
        assert await records_of(store) == before
        await store.verify()
        # the guard of the log works again
        with pytest.raises(StoreError) as refused:
            await store._database.run_transaction(
                lambda connection: connection.execute(text("UPDATE log SET kind = 'x'"))
            )
        assert refused.value.code == "registry.append-only"

    in_store(store_url, work)


def test_a_redaction_cannot_be_sent_as_an_event(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        with pytest.raises(RefusalError) as caught:
            await store.apply(ask(EventKind.REDACT, name="conti", reason="x", records={}), IANA, AT)
        assert caught.value.code == "registry.not-allowed"

    in_store(store_url, work)


def test_nothing_of_the_text_stays_in_the_file(sqlite_path: Path) -> None:
    async def work(store: Store) -> None:
        await redacted(store)

    in_store(str(sqlite_path), work)
    left = b"".join(path.read_bytes() for path in sqlite_path.parent.glob(f"{sqlite_path.name}*"))
    assert ADDRESS.encode() not in left
    assert b"example clients" not in left
    assert b"Conti clients" in left


def test_a_redacted_log_survives_a_backup(store_url: str, release: str, tmp_path: Path) -> None:
    async def work(store: Store) -> Any:
        await redacted(store)
        await store.backup(tmp_path / "copy.jsonl", portable=True)
        return (await store.head()).digest

    digest = in_store(store_url, work)
    assert run(restore(tmp_path / "copy.jsonl", tmp_path / "copy.db")).head.digest == digest


def test_logs_of_older_releases_and_new_records_verify_together(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: Store) -> None:
        with monkeypatch.context() as older:
            older.setattr("onym.registry.store._writes.token_hex", lambda _: "")
            await registered(store)
        await opened(store, "second")
        first, *_, last = await records_of(store)
        assert (first.salt, len(last.salt)) == ("", 32)
        # an older record's digest is over its JSON, as it ever was
        data = to_data(first)
        del data["digest"]
        assert hashlib.sha256(canonicalize_json(data).encode()).hexdigest() == first.digest
        assert compute_digest(replace(last, salt="0" * 32)) != last.digest
        await store.redact(SCHEMES, ADDRESS, IANA, AT, reason="ticket 7")
        await store.verify()

    in_store(store_url, work)
