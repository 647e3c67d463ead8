"""Events go into the log, and what follows from them into the tables: whole, in order, and once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from chain_support import verify_chain
from onym.errors import RefusalError, RegistryError, StaleError, UnknownEntryError
from onym.registry.codec import GENESIS
from onym.registry.records import IANA_CLOCK, DraftReference, Event, EventKind, RequestState, Role, Status
from onym.registry.store import MAX_EVENT, Head, Store, queries
from onym.store import sql
from registry.engine.table import replay
from registry.store.store_support import (
    AT,
    ELEVEN,
    EXPERT,
    IANA,
    REGISTRANT,
    SCHEMES,
    ask,
    entry,
    in_store,
    open_event,
    opened,
    registered,
    run,
    under_review,
)


def test_a_request_goes_from_draft_to_a_published_entry(store_url: str) -> None:
    async def work(store: Store) -> None:
        applied = await registered(store)
        entry = await store.entry(SCHEMES, " Conti ")
        assert entry is not None
        assert entry == applied.decision.entry
        assert (entry.status, entry.name) == (Status.PROVISIONAL, "conti")
        request = await store.request(f"{SCHEMES}-1")
        assert request is not None
        assert request.state is RequestState.APPROVED
        assert [item.rule for item in await store.history(SCHEMES, "CONTI")] == ["R1", "R4", "I3"]
        assert await store.request_history(request.id) == await store.log()
        assert (await store.verify()).records == 3

    in_store(store_url, work)


def test_the_log_makes_the_same_registry_as_the_engine_says(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        await under_review(store, "pending")
        records = await store.log()
        assert verify_chain(records) == len(records) == 6
        book = replay(records)
        for (registry, name), row in book.entries.items():
            assert await store.entry(registry, name) == row
        for identifier, request in book.requests.items():
            assert await store.request(identifier) == request
        assert len(book.entries) == len((await store.entries(SCHEMES)).items) == 2

    in_store(store_url, work)


def test_an_empty_log_has_a_head_of_number_zero(store_url: str) -> None:
    async def work(store: Store) -> None:
        assert await store.head() == Head(number=0, digest=GENESIS)
        applied = await store.apply(open_event(), REGISTRANT, AT)
        assert await store.head() == Head(number=1, digest=applied.record.digest, at=AT)

    in_store(store_url, work)


def test_a_refused_event_leaves_nothing_behind(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store)
        before = await store.head()
        for actor, event in (
            (REGISTRANT, ask(EventKind.APPROVE, identifier, reason="mine")),
            (REGISTRANT, open_event("UPPER_CASE?")),
            (IANA, ask(EventKind.OVERRIDE, name="nothing", status="historical", reason="x")),
        ):
            with pytest.raises(RefusalError):
                await store.apply(event, actor, AT)
        assert await store.head() == before
        assert await opened(store, "next") == f"{SCHEMES}-2"
        await store.verify()

    in_store(store_url, work)


def test_ids_count_up_per_registry_and_are_never_given_twice(store_url: str) -> None:
    async def work(store: Store) -> None:
        assert await opened(store) == "uri-schemes-1"
        assert await store.next_request_id(SCHEMES) == "uri-schemes-2"
        assert await store.next_request_id("llm-parameters") == "llm-parameters-1"
        assert await opened(store, "second") == "uri-schemes-3"
        reserved = replace(open_event("third"), request="uri-schemes-2")
        assert (await store.apply(reserved, REGISTRANT, AT)).record.event.request == "uri-schemes-2"
        following = replace(open_event("fourth"), request="uri-schemes-4")
        assert (await store.apply(following, REGISTRANT, AT)).record.number == 4
        await store.verify()
        await store.rebuild()
        assert await opened(store, "fifth") == "uri-schemes-5"

    in_store(store_url, work)


@pytest.mark.parametrize(
    "identifier", ["uri-schemes-9", "uri-schemes-0", "llm-parameters-1", "17", "uri-schemes-x"]
)
def test_an_id_that_was_not_given_out_is_refused(store_url: str, identifier: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(RegistryError) as caught:
            await store.apply(replace(open_event(), request=identifier), REGISTRANT, AT)
        assert (caught.value.code, caught.value.field) == ("registry.bad-id", "request")

    in_store(store_url, work)


def test_an_id_in_use_is_not_opened_again(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store)
        with pytest.raises(StaleError) as caught:
            await store.apply(replace(open_event("other"), request=identifier), REGISTRANT, AT)
        assert caught.value.version == 1

    in_store(store_url, work)


@pytest.mark.parametrize("identifier", ["uri-schemes-7", "uri-schemes-1\0", "\ud800"])
def test_a_request_that_is_not_there_is_unknown(store_url: str, identifier: str) -> None:
    async def work(store: Store) -> None:
        assert await store.request(identifier) is None
        assert (await store.requests(name=identifier)).items == ()
        with pytest.raises(UnknownEntryError):
            await store.request_history(identifier)
        with pytest.raises((UnknownEntryError, RefusalError)):
            await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT)

    in_store(store_url, work)


def test_a_request_of_another_registry_is_unknown_in_this_one(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store)
        event = Event(kind=EventKind.SUBMIT, registry="llm-parameters", request=identifier)
        with pytest.raises(UnknownEntryError) as caught:
            await store.apply(event, REGISTRANT, AT)
        assert caught.value.code == "registry.unknown-request"

    in_store(store_url, work)


def test_an_entry_that_is_not_there_is_none(store_url: str) -> None:
    async def work(store: Store) -> None:
        for name in ("nothing", "no\0thing", "\udfff", "../../etc/passwd", "' OR 1=1 --"):
            assert await store.entry(SCHEMES, name) is None
            assert await store.history(SCHEMES, name) == ()
        with pytest.raises(UnknownEntryError):
            await store.entry("no-registry", "x")

    in_store(store_url, work)


def test_an_expected_version_that_is_not_in_force_is_stale(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store)
        with pytest.raises(StaleError) as caught:
            await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT, expected=2)
        assert (caught.value.version, caught.value.field) == (1, "request")
        await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT, expected=1)
        note = ask(EventKind.OVERRIDE, name="conti", status="historical", reason="for the test")
        with pytest.raises(StaleError) as caught:
            await store.apply(note, IANA, AT, expected=1)
        assert (caught.value.version, caught.value.field) == (0, "entry")

    in_store(store_url, work)


def test_of_two_reviewers_one_wins_and_the_other_is_told(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await under_review(store)
        request = await store.request(identifier)
        assert request is not None
        later = AT + timedelta(days=1)
        verdicts = (EventKind.APPROVE, EventKind.REJECT)
        found = await asyncio.gather(
            *(
                store.apply(ask(kind, identifier, reason="because"), EXPERT, later, expected=request.version)
                for kind in verdicts
            ),
            return_exceptions=True,
        )
        (stale,) = (item for item in found if isinstance(item, StaleError))
        assert stale.version == request.version + 1
        assert (await store.verify()).records == 4

    in_store(store_url, work)


def test_many_at_once_are_all_taken_and_form_one_chain(store_url: str) -> None:
    async def two(first: Store, second: Store) -> None:
        stores = [first, second] * 10
        found = await asyncio.gather(
            *(opened(store, f"scheme-{number}") for number, store in enumerate(stores))
        )
        assert sorted(found) == sorted(f"{SCHEMES}-{number}" for number in range(1, 21))
        assert (await first.verify()).records == 20

    async def main() -> None:
        async with await Store.open(store_url, create=True) as first, await Store.open(store_url) as second:
            await two(first, second)

    run(main())


def test_text_that_no_database_holds_is_kept_in_the_log_or_refused_by_name(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store, template="a\0b \u2028 <script> \U0001f600")
        request = await store.request(identifier)
        assert request is not None
        assert request.template == "a\0b \u2028 <script> \U0001f600"
        with pytest.raises(RefusalError) as caught:
            await opened(store, "other", template="half \ud800")
        assert (caught.value.code, caught.value.field) == ("registry.bad-data", "event.data.template")
        await store.verify()

    in_store(store_url, work)


def test_an_event_of_too_much_text_is_refused(store_url: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(RefusalError) as caught:
            await opened(store, template="x" * MAX_EVENT)
        assert caught.value.code == "registry.too-large"
        assert (await store.head()).number == 0

    in_store(store_url, work)


def test_an_override_that_removes_takes_the_entry_out_of_every_table(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        event = ask(EventKind.OVERRIDE, name="conti", remove=True, reason="registered by mistake")
        assert (await store.apply(event, IANA, AT + timedelta(days=2), expected=1)).decision.removed
        assert await store.entry(SCHEMES, "conti") is None
        assert await store.search(SCHEMES, "conti") == ()
        assert (await store.verify()).entries == 0
        await registered(store)
        assert (await store.search(SCHEMES, "conti"))[0].name == "conti"
        await store.verify()

    in_store(store_url, work)


def test_long_records_come_in_shorter_pages_and_none_is_left_out(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_TEXT", 5_000)

    async def work(store: Store) -> None:
        for number in range(6):
            await opened(store, f"scheme-{number}", template="x" * 2_000 * number)
        found: list[int] = []
        pages = 0
        while some := await store.log(after=found[-1] if found else 0):
            found += [item.number for item in some]
            pages += 1
        assert found == [1, 2, 3, 4, 5, 6]
        # one that is longer than a page comes alone
        assert 3 <= pages <= 6

    in_store(store_url, work)


def test_an_event_that_names_nothing_is_refused(store_url: str) -> None:
    async def work(store: Store) -> None:
        for name in (None, "half \0"):
            with pytest.raises(RefusalError):
                await store.apply(ask(EventKind.RETIRE, name=name, reason="r"), IANA, AT)
        assert (await store.head()).number == 0

    in_store(store_url, work)


def test_a_race_lost_each_time_is_stale(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What serialisation failures look like: the work is tried again, and then given up."""
    tries = []

    def lost(error: BaseException) -> bool:
        tries.append(error)
        return True

    async def work(store: Store) -> None:
        await opened(store)
        row = {"id": "x"}
        from sqlalchemy import insert

        from onym.accounts.store import accounts

        monkeypatch.setattr(sql, "is_lost_race", lost)
        with pytest.raises(StaleError, match=rf"\b{sql.TRIES}\b") as caught:
            await store._database.run_transaction(
                lambda connection: connection.execute(insert(accounts), row)
            )
        assert caught.value.code == "registry.stale"
        assert len(tries) == sql.TRIES
        assert (await store.verify()).records == 1

    in_store(store_url, work)


def test_notices_go_into_the_outbox_with_their_event(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await under_review(store)
        notices = await store.outbox.claim(AT + timedelta(days=1))
        assert {notice.to for notice in notices} >= {Role.EXPERT}
        assert {notice.request for notice in notices} == {identifier}

    in_store(store_url, work)


def test_timers_that_have_gone_off_are_handed_out(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store, status="provisional", profile="rfc4395", fields=ELEVEN)
        await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT)
        await store.apply(ask(EventKind.CHECK_COMPLETE, identifier), IANA, AT)
        draft = DraftReference(name="draft-x-00", expires=(AT + timedelta(days=10)).date())
        drafted = [replace(entry("drafted"), draft=draft)]
        await store.import_entries(SCHEMES, drafted, IANA, AT, source="test")
        assert await store.list_due_events(AT + timedelta(days=9)) == ()
        found = await store.list_due_events(AT + timedelta(days=14))
        assert {item.kind for item in found} == {EventKind.REVIEW_TIMEOUT, EventKind.DRAFT_EXPIRED}
        for event in found:
            await store.apply(event, IANA_CLOCK, AT + timedelta(days=14))
        assert await store.list_due_events(AT + timedelta(days=400)) == ()
        await store.verify()

    in_store(store_url, work)
