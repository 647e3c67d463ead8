"""What records changed: versions that never come back, the last changes, and what an override gives back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from onym.accounts.records import Account
from onym.errors import RefusalError, StaleError, StoreError, UnknownEntryError
from onym.registry.records import Actor, Event, EventKind, Role, Status
from onym.registry.service import resolve_accounts
from onym.registry.store import Store
from registry.store.store_support import (
    AT,
    EXPERT,
    IANA,
    IESG,
    REGISTRANT,
    SCHEMES,
    ask,
    entry,
    in_store,
    opened,
    registered,
    under_review,
)

LATER = AT + timedelta(days=3)
BOTH = Actor(id="user-root", roles=frozenset({Role.IANA, Role.IESG}))


async def remove(store: Store, name: str = "conti", *, expected: int | None = None) -> int:
    event = ask(EventKind.OVERRIDE, name=name, remove=True, reason="never used")
    return (await store.apply(event, IANA, LATER, expected=expected)).record.number


async def undo(store: Store, number: object, name: str = "conti", **more: Any) -> Any:
    event = ask(EventKind.OVERRIDE, name=name, undoes=number, reason="it is used", **more)
    return await store.apply(event, BOTH, LATER + timedelta(days=1))


def test_a_name_that_is_registered_again_goes_on_counting_versions(store_url: str) -> None:
    async def work(store: Store) -> None:
        first = (await registered(store)).decision.entry
        await store.import_entries(SCHEMES, [entry("http")], IANA, AT, source="x")
        for name in ("conti", "http"):
            await remove(store, name, expected=1)
        second = (await registered(store)).decision.entry
        assert (first.version, second.version) == (1, 2)  # type: ignore[union-attr]
        with pytest.raises(StaleError) as caught:
            await remove(store, expected=1)
        assert caught.value.version == 2
        await store.import_entries(SCHEMES, [entry("http")], IANA, LATER, source="x")
        assert (await store.entry(SCHEMES, "http")).version == 2  # type: ignore[union-attr]
        page = await store.entries(SCHEMES)
        await store.verify()
        await store.rebuild()
        assert await store.entries(SCHEMES) == page

    in_store(store_url, work)


def test_outcomes_are_changes_and_endings_without_imports(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        refused = await under_review(store, name="other")
        await store.apply(ask(EventKind.REJECT, request=refused, reason="no"), EXPERT, LATER)
        await store.import_entries(SCHEMES, [entry(f"n{at}") for at in range(300)], IANA, LATER, source="x")
        outcomes = await store.list_outcomes(10)
        kinds = [record.event.kind for record, _ in outcomes]
        assert kinds[0] is EventKind.REJECT
        assert EventKind.IMPORT not in kinds
        assert not {EventKind.OPEN, EventKind.ANNOUNCE, EventKind.SUBMIT} & set(kinds)
        new = [change for _, change in outcomes if change is not None and change.before is None]
        assert "conti" in [change.name for change in new]
        assert await store.list_outcomes(1) == outcomes[:1]

    in_store(store_url, work)


def test_the_last_changes_are_of_one_registry_and_of_its_columns(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        for number in range(3):
            event = ask(EventKind.DESIGNATE, name="conti", add=[f"u{number}"])
            await store.apply(event, REGISTRANT, LATER)
        event = ask(EventKind.RETIRE, name="conti", reason="old")
        await store.apply(event, REGISTRANT, LATER)
        rows = [
            type(entry("x"))(registry="llm-parameters", name=f"p{number}", status=Status.REGISTERED)
            for number in range(60)
        ]
        await store.import_entries("llm-parameters", rows, IANA, LATER, source="x")
        last = await store.changes(SCHEMES)
        assert [item.event for item in last] == [EventKind.RETIRE, EventKind.CHECK_COMPLETE]
        retired, added = last
        assert added.before is None
        # what a change left is what the next one found, shown or not
        assert added.after is not None
        assert added.after.designees == frozenset()
        assert retired.before is not None
        assert retired.before.designees == {"u0", "u1", "u2"}
        assert retired.after == await store.entry(SCHEMES, "conti")
        assert [change.name for change in await store.changes("llm-parameters", limit=2)] == ["p59", "p58"]
        every = await store.list_changes_of_name(SCHEMES, "CONTI")
        assert [item.version for item in every] == [5, 4, 3, 2, 1]
        below = await store.list_changes_of_name(SCHEMES, "conti", below=every[1].number, limit=2)
        assert [item.version for item in below] == [3, 2]
        assert await store.list_changes_of_name(SCHEMES, "no\0name") == ()

    in_store(store_url, work)


def test_the_newest_changes_are_there_however_long_entries_are(
    sqlite_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.registry.store.queries.MOST_TEXT", 3000)

    async def work(store: Store) -> None:
        rows = [entry(f"e{number}", description="x" * 1000) for number in range(9)]
        await store.import_entries(SCHEMES, rows, IANA, AT, source="x")
        assert [change.name for change in await store.changes(SCHEMES)] == ["e8", "e7"]

    in_store(str(sqlite_path), work)


def test_what_an_override_removed_comes_back_from_the_log(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        before = await store.entry(SCHEMES, "conti")
        assert before is not None
        number = await remove(store)
        assert (await store.changes(SCHEMES))[0].after is None
        forged = {"v": 1, "registry": SCHEMES, "name": "conti", "status": "permanent"}
        applied = await undo(store, str(number), restore=forged)
        assert applied.record.event.data["undoes"] == number
        after = await store.entry(SCHEMES, "conti")
        assert after is not None
        assert (after.fields, after.status, after.registrant) == (
            before.fields, before.status, before.registrant,
        )  # fmt: skip
        assert after.version == before.version + 1
        await store.verify()

    in_store(store_url, work)


def test_a_status_that_an_override_set_is_undone_once(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        event = ask(EventKind.OVERRIDE, name="conti", status="historical", reason="by mistake")
        number = (await store.apply(event, IANA, LATER)).record.number
        await undo(store, number)
        assert (await store.entry(SCHEMES, "conti")).status is Status.PROVISIONAL  # type: ignore[union-attr]
        with pytest.raises(RefusalError) as caught:
            await undo(store, number)
        assert caught.value.field == "undoes"

    in_store(store_url, work)


@pytest.mark.parametrize("number", [0, -1, True, "x", "", "9" * 30, 1.5, [1], 3, 4, 99])
def test_what_is_no_override_of_the_name_is_not_undone(store_url: str, number: object) -> None:
    async def work(store: Store) -> None:
        await registered(store)  # records 1 to 3
        await registered(store, "other")
        await remove(store, "other")  # record 7
        head = await store.head()
        with pytest.raises(RefusalError):
            await undo(store, number)
        with pytest.raises(RefusalError):
            await undo(store, 7)
        assert await store.head() == head

    in_store(store_url, work)


def test_a_removal_is_not_undone_over_somebody_elses_registration(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        number = await remove(store)
        await registered(store)
        await remove(store)
        with pytest.raises(RefusalError) as caught:
            await undo(store, number)
        assert (caught.value.code, caught.value.field) == ("registry.not-allowed", "undoes")
        assert "record 4" in caught.value.message

    in_store(store_url, work)


def test_a_request_that_was_rejected_meanwhile_keeps_no_removal_from_being_undone(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        number = await remove(store)
        identifier = await under_review(store)
        with pytest.raises(RefusalError) as caught:
            await undo(store, number)
        assert (caught.value.field, caught.value.hint) == ("undoes", "Decide that request first.")
        await store.apply(ask(EventKind.REJECT, identifier, reason="no"), EXPERT, LATER)
        assert await store.entry(SCHEMES, "conti") is None
        await undo(store, number)
        found = await store.entry(SCHEMES, "conti")
        assert found is not None
        assert found.registrant == REGISTRANT.id
        await store.verify()

    in_store(store_url, work)


def test_who_may_not_override_undoes_nothing(sqlite_path: Any) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        number = await remove(store)
        event = ask(EventKind.OVERRIDE, name="conti", undoes=number, reason="mine")
        for actor in (REGISTRANT, EXPERT):
            with pytest.raises(RefusalError) as caught:
                await store.apply(event, actor, LATER)
            assert caught.value.code == "registry.wrong-role"

    in_store(str(sqlite_path), work)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry_changes SET version = 9",
        "UPDATE entry_changes SET shown = NOT shown",
        "DELETE FROM entry_changes WHERE number = (SELECT max(number) FROM entry_changes)",
        "DELETE FROM entry_changes WHERE number = (SELECT min(number) FROM entry_changes)",
        "INSERT INTO entry_changes SELECT 5, 'x', 'x', 1, shown, NULL FROM entry_changes WHERE number = 4",
    ],
)
def test_changes_that_the_log_does_not_make_are_found_and_made_anew(store_url: str, statement: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        await store.apply(ask(EventKind.RETIRE, name="conti", reason="old"), REGISTRANT, LATER)
        await opened(store, "draft")
        changes = await store.changes(SCHEMES)
        await store._database.run_transaction(lambda connection: connection.execute(text(statement)))
        with pytest.raises(StoreError) as caught:
            await store.verify()
        assert (caught.value.code, caught.value.field) == ("registry.projection-differs", "entry_changes")
        await store.rebuild()
        await store.verify()
        assert await store.changes(SCHEMES) == changes

    in_store(store_url, work)


# who is given a say

PEOPLE = [
    Account(id="user-1", login="ann", name="Ann", email=None, created=AT),
    Account(id="user-2", login="user-1", name="Eve", email=None, created=AT),
    Account(id="user-3", login="off", name="Off", email=None, created=AT, disabled=True),
]
REASSIGN, DESIGNATE, OVERRIDE = EventKind.REASSIGN, EventKind.DESIGNATE, EventKind.OVERRIDE


def named(url: str, kind: EventKind, **data: Any) -> Event:
    async def work(store: Store) -> Event:
        for account in PEOPLE:
            await store.accounts.add(account)
        return await resolve_accounts(store, ask(kind, name="conti", **data))

    return in_store(url, work)


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        (REASSIGN, {"to": "Ann"}, {"to": "user-1"}),
        (REASSIGN, {"to": "user-1", "reason": "r"}, {"to": "user-1", "reason": "r"}),
        (REASSIGN, {"to": 7}, {"to": 7}),
        (REASSIGN, {"to": " "}, {"to": " "}),
        (OVERRIDE, {"registrant": "ann"}, {"registrant": "user-1"}),
        (OVERRIDE, {"remove": True}, {"remove": True}),
        (DESIGNATE, {"add": ["ann"], "remove": ["gone", "ann"]},
         {"add": ["user-1"], "remove": ["gone", "ann", "user-1"]}),
        (DESIGNATE, {"add": [7], "remove": "x"}, {"add": [7], "remove": "x"}),
        (EventKind.RETIRE, {"to": "nobody"}, {"to": "nobody"}),
    ],
)  # fmt: skip
def test_a_login_or_id_becomes_an_id(sqlite_path: Any, kind: EventKind, given: Any, made: Any) -> None:
    assert named(str(sqlite_path), kind, **given).data == made


@pytest.mark.parametrize(
    ("kind", "given", "code"),
    [
        (REASSIGN, {"to": "nobody-at-all"}, "accounts.unknown-account"),
        (REASSIGN, {"to": "no\0body"}, "accounts.unknown-account"),
        (REASSIGN, {"to": "off"}, "registry.disabled-account"),
        (DESIGNATE, {"add": ["ann", "nobody"]}, "accounts.unknown-account"),
        (DESIGNATE, {"add": ["ann"] * 65}, "registry.bad-data"),
        (DESIGNATE, {"remove": ["ann"] * 65}, "registry.bad-data"),
        (OVERRIDE, {"registrant": "user-3"}, "registry.disabled-account"),
    ],
)
def test_nobody_and_who_is_disabled_get_no_say(
    store_url: str, kind: EventKind, given: Any, code: str
) -> None:
    with pytest.raises((UnknownEntryError, RefusalError)) as caught:
        named(store_url, kind, **given)
    assert (caught.value.code, caught.value.field) == (code, next(iter(given)))


def test_the_iesg_reassigns_to_an_account(sqlite_path: Any) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        await store.accounts.add(PEOPLE[0])
        event = await resolve_accounts(store, ask(REASSIGN, name="conti", to="ann", reason="gone"))
        await store.apply(event, IESG, LATER)
        assert (await store.entry(SCHEMES, "conti")).registrant == "user-1"  # type: ignore[union-attr]

    in_store(str(sqlite_path), work)


# imports


def test_a_file_gives_nobody_a_say_in_an_entry_that_is_there(store_url: str) -> None:
    from dataclasses import replace

    async def work(store: Store) -> None:
        row = entry("http", description="d")
        own = replace(row, registrant="user-9", designees=frozenset({"user-8"}), iesg_approved=True)
        await store.import_entries(SCHEMES, [row, replace(own, name="new")], IANA, AT, source="x")
        new = await store.entry(SCHEMES, "new")
        assert new is not None
        assert (new.registrant, new.iesg_approved) == ("user-9", True)
        edited = replace(own, fields={"description": "other"})
        report = await store.import_entries(SCHEMES, [edited], IANA, LATER, source="edited")
        assert (report.changed, [record.name for record in report.irregular]) == (1, ["http"])
        found = await store.entry(SCHEMES, "http")
        assert found is not None
        assert (found.registrant, found.designees, found.iesg_approved) == (None, frozenset(), False)
        assert found.fields["description"] == "other"
        # what says what is there already is nothing new
        report = await store.import_entries(SCHEMES, [new], IANA, LATER, source="again")
        assert (report.same, report.irregular) == (1, ())

    in_store(store_url, work)


def test_a_name_that_no_database_holds_is_reported_and_the_others_are_taken(store_url: str) -> None:
    async def work(store: Store) -> None:
        rows = [entry("ki\0te"), entry("k\ud800"), entry("good")]
        report = await store.import_entries(SCHEMES, rows, IANA, AT, source="x")
        assert report.added == 1
        assert [row.name for row in report.irregular] == ["ki?te", "k?"]
        await store.verify()

    in_store(store_url, work)


@pytest.mark.parametrize("query", ["café", "cafe\u0301", "CAFÉ", "CAFE\u0301"])
def test_a_letter_is_found_however_it_is_composed(store_url: str, query: str) -> None:
    async def work(store: Store) -> None:
        rows = [entry("one", description="Le café"), entry("two", description="Le cafe\u0301")]
        await store.import_entries(SCHEMES, rows, IANA, AT, source="x")
        assert [item.name for item in await store.search(SCHEMES, query)] == ["one", "two"]
        assert [item.name for item in (await store.entries(SCHEMES, query=query)).items] == ["one", "two"]

    in_store(store_url, work)
