"""Imports: each row an event, all in one transaction, and the same again changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onym.errors import RefusalError, StoreError, UnknownEntryError
from onym.registry.records import (
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    Note,
    Notice,
    Request,
    Role,
    Status,
)
from onym.registry.store import ImportReport, Irregularity, Store
from registry.store.store_support import AT, IANA, REGISTRANT, SCHEMES, entry, generated, in_store, registered

LATER = AT + timedelta(days=30)


def test_rows_are_added_changed_or_the_same(store_url: str) -> None:
    async def work(store: Store) -> None:
        rows = [
            entry("http", reference="[RFC7230]"),
            entry("conti"),
            entry("gopher", status=Status.HISTORICAL),
        ]
        report = await store.import_entries(SCHEMES, rows, IANA, AT, source="2015.csv")
        assert report == ImportReport(added=3, changed=0, same=0)
        number = (await store.head()).number
        assert await store.import_entries(SCHEMES, rows, IANA, LATER, source="2015.csv") == ImportReport(
            added=0, changed=0, same=3
        )
        assert (await store.head()).number == number == 3
        newer = [entry("http", reference="[RFC9110]"), rows[2], entry("ai")]
        report = await store.import_entries(SCHEMES, iter(newer), IANA, LATER, source="2022.csv")
        assert report == ImportReport(added=1, changed=1, same=1, absent=("conti",))
        http = await store.entry(SCHEMES, "http")
        assert http is not None
        assert (http.fields["reference"], http.version) == ("[RFC9110]", 2)
        (first, second) = await store.history(SCHEMES, "http")
        assert (first.event.data["source"], second.event.data["source"]) == ("2015.csv", "2022.csv")
        assert (await store.verify()).entries == 4

    in_store(store_url, work)


def test_rows_that_the_engine_refuses_are_reported_and_the_rest_is_taken(store_url: str) -> None:
    async def work(store: Store) -> None:
        rows = [
            entry("good"),
            replace(entry("bad"), registry="llm-parameters"),
            entry("GOOD", reference="again"),
            entry("half \ud800"),
            replace(entry("odd"), status=Status.REVOKED),
        ]
        report = await store.import_entries(SCHEMES, rows, IANA, AT, source="test")
        assert (report.added, len(report.irregular)) == (1, 4)
        assert report.irregular[0] == Irregularity(name="bad", reason="the row belongs to another registry")
        assert "twice" in report.irregular[1].reason
        await store.verify()

    in_store(store_url, work)


def test_whoever_may_not_import_imports_nothing(store_url: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(RefusalError) as caught:
            await store.import_entries(SCHEMES, [entry("http")], REGISTRANT, AT, source="test")
        assert caught.value.code == "registry.wrong-role"
        assert (await store.head()).number == 0
        with pytest.raises(UnknownEntryError):
            await store.import_entries("nope", [], IANA, AT, source="test")

    in_store(store_url, work)


def test_an_import_keeps_what_the_procedure_made(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        rows = [entry("conti", status=Status.PROVISIONAL, reference="[RFC9999]")]
        report = await store.import_entries(SCHEMES, rows, IANA, LATER, source="test")
        assert report.changed == 1
        conti = await store.entry(SCHEMES, "conti")
        assert conti is not None
        assert conti.registrant == REGISTRANT.id

    in_store(store_url, work)


def test_an_import_that_fails_half_way_leaves_nothing(store_url: str) -> None:
    rows = generated(2500)

    def breaks(
        event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
    ) -> Decision:
        if event.name == rows[2200].name:
            raise StoreError("the disk is gone")
        return Decision(rule="I", clause="test", entry=replace(rows[0], name=str(event.name), version=1))

    async def work(store: Store) -> None:
        with pytest.raises(StoreError, match="the disk is gone"):
            await store.import_entries(SCHEMES, rows, IANA, AT, source="test")
        assert (await store.head()).number == 0
        assert (await store.entries(SCHEMES)).items == ()

    in_store(store_url, work, decide=breaks)


def test_an_import_tells_how_far_it_is(sqlite_path: Path) -> None:
    told: list[int] = []

    async def work(store: Store) -> None:
        await store.import_entries(SCHEMES, generated(1001), IANA, AT, source="test", progress=told.append)

    in_store(str(sqlite_path), work)
    assert told == sorted(told)
    assert told[-1] == 1001


def test_notices_of_an_import_wait_in_the_outbox(store_url: str) -> None:
    def tells(
        event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
    ) -> Decision:
        row = Entry(registry=SCHEMES, name=str(event.name), status=Status.PERMANENT, version=1)
        return Decision(
            rule="I", clause="test", entry=row, notices=(Notice(to=Role.IANA, subject="s", text="t"),)
        )

    async def work(store: Store) -> None:
        await store.import_entries(SCHEMES, [entry("a1"), entry("b1")], IANA, AT, source="test")
        assert [item.number for item in await store.outbox.claim(AT)] == [1, 2]

    in_store(store_url, work, decide=tells)


def test_the_shipped_snapshot_goes_in(store_url: str) -> None:
    from onym.registry.iana import load_builtin_snapshot

    snapshot = load_builtin_snapshot(SCHEMES)

    async def work(store: Store) -> None:
        report = await store.import_entries(SCHEMES, snapshot.entries, IANA, AT, source=snapshot.source)
        assert (report.added, report.irregular) == (len(snapshot.entries), ())
        http = await store.entry(SCHEMES, "http")
        assert http is not None
        assert http.status is Status.PERMANENT
        assert (await store.search(SCHEMES, "http"))[0].name == "http"
        await store.verify()

    in_store(store_url, work)


def test_every_member_of_an_entry_goes_in_and_comes_out(store_url: str) -> None:
    def pairs() -> Iterator[Entry]:
        yield replace(
            entry("full", description="d"),
            spelling="Full",
            registrant="user-1",
            designees=frozenset({"user-2"}),
            iesg_approved=True,
            notes=(Note(kind="security", text="n", at=AT, by="user-3"),),
            expires=datetime(2027, 1, 1, tzinfo=UTC).date(),
            registered=AT,
            version=1,
        )

    async def work(store: Store) -> None:
        await store.import_entries(SCHEMES, pairs(), IANA, AT, source="test")
        assert await store.entry(SCHEMES, "full") == next(pairs())
        (record,) = await store.log()
        assert record.event.kind is EventKind.IMPORT

    in_store(store_url, work)


def test_time_does_not_go_back_but_for_an_import(store_url: str) -> None:
    async def work(store: Store) -> None:
        made = (await registered(store)).record
        override = Event(
            kind=EventKind.OVERRIDE, registry=SCHEMES, name="conti", data={"remove": "yes", "reason": "no"}
        )
        with pytest.raises(RefusalError) as caught:
            await store.apply(override, IANA, made.at - timedelta(seconds=1), exact=True)
        assert caught.value.code == "registry.time-goes-back"
        assert (await store.head()).number == made.number
        old = datetime(2015, 6, 1, tzinfo=UTC)
        report = await store.import_entries(SCHEMES, [entry("http")], IANA, old, source="2015")
        assert report.added == 1
        # a clock that is a little behind: it happens at the moment of the last record
        removed = await store.apply(override, IANA, made.at - timedelta(seconds=1))
        assert removed.record.at == made.at
        await store.verify()

    in_store(store_url, work)


def test_an_import_that_is_dated_too_late_stops_nothing(store_url: str) -> None:
    async def work(store: Store) -> None:
        far = AT + timedelta(days=3650)
        await store.import_entries(SCHEMES, [entry("http")], IANA, far, source="misdated")
        override = Event(
            kind=EventKind.OVERRIDE, registry=SCHEMES, name="http", data={"remove": "yes", "reason": "no"}
        )
        assert (await store.apply(override, IANA, AT, exact=True)).record.at == AT

    in_store(store_url, work)


def test_a_row_that_waits_for_review_takes_nothing_from_the_imported_one(store_url: str) -> None:
    async def work(store: Store) -> None:
        await store.import_entries(
            SCHEMES, [entry("conti", status=Status.PENDING_REVIEW)], IANA, AT, source="x"
        )
        row = replace(
            entry("conti"), registrant="user-1", designees=frozenset({"user-2"}), iesg_approved=True
        )
        report = await store.import_entries(SCHEMES, [row], IANA, LATER, source="own.json")
        assert report.irregular == ()
        found = await store.entry(SCHEMES, "conti")
        assert found is not None
        assert (found.registrant, found.designees, found.iesg_approved) == ("user-1", {"user-2"}, True)

    in_store(store_url, work)
