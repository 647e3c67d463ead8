"""Statistics: counted from the log and its tables, the same on both databases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, Actor, Event, EventKind, RequestState, Status
from onym.registry.store import MonthCounts, StageTime, Statistics, Store
from registry.store.store_support import AT, EXPERT, FIELDS, IANA, REGISTRANT, SCHEMES, in_store, run


async def _apply(
    store: Store, kind: EventKind, actor: Actor, at: datetime, request: str | None = None, **data: Any
) -> None:
    await store.apply(Event(kind=kind, registry=SCHEMES, request=request, data=data), actor, at)


async def _open(store: Store, name: str, status: str, at: datetime) -> str:
    fields = {**FIELDS, "name": name}
    event = Event(
        kind=EventKind.OPEN,
        registry=SCHEMES,
        name=name,
        data={"kind": "new", "status": status, "fields": fields, "template": "x"},
    )
    applied = await store.apply(event, REGISTRANT, at)
    assert applied.decision.request is not None
    return applied.decision.request.id


async def _work(store: Store) -> Statistics:
    day = timedelta(days=1)
    # one is approved, one rejected, one registered at once, and one stays a draft
    for index, (name, decision) in enumerate((("one", EventKind.APPROVE), ("two", EventKind.REJECT))):
        request = await _open(store, name, "permanent", AT)
        await _apply(
            store, EventKind.ANNOUNCE, REGISTRANT, AT + day, request, archive="https://list.example/1"
        )
        await _apply(store, EventKind.SUBMIT, REGISTRANT, AT + 31 * day, request)
        await _apply(store, EventKind.CHECK_COMPLETE, IANA, AT + 32 * day, request)
        await _apply(store, decision, EXPERT, AT + (34 + 2 * index) * day, request, reason="for a reason")
    request = await _open(store, "three", "provisional", AT + 40 * day)
    await _apply(store, EventKind.SUBMIT, REGISTRANT, AT + 40 * day + timedelta(hours=2), request)
    await _apply(store, EventKind.CHECK_COMPLETE, IANA, AT + 40 * day + timedelta(hours=5), request)
    await _open(store, "four", "provisional", AT + 41 * day)
    return await store.compute_statistics()


def test_statistics_count_entries_requests_stages_and_months(store_url: str) -> None:
    found = in_store(store_url, _work)
    schemes = found.registries[0]
    assert schemes.registry == SCHEMES
    assert schemes.entries == {Status.PERMANENT: 1, Status.PROVISIONAL: 1}
    assert schemes.requests == {RequestState.DRAFT: 1, RequestState.APPROVED: 2, RequestState.REJECTED: 1}
    day = 86_400
    assert schemes.stages == (
        StageTime(stage="draft", count=3, median_seconds=day),
        StageTime(stage="list", count=2, median_seconds=30 * day),
        StageTime(stage="iana", count=3, median_seconds=day),
        StageTime(stage="expert", count=2, median_seconds=3 * day),
    )
    assert [month.month for month in schemes.months] == ["2026-01", "2026-02"]
    first, second = schemes.months
    assert first == MonthCounts(month="2026-01", opened=2)
    assert (second.opened, second.ended) == (2, 3)
    # the rows that wait for review are public too
    assert second.added == 3
    assert found.number == 14
    assert [numbers.entries for numbers in found.registries[1:]] == [{}, {}]


def test_an_import_counts_as_new_entries(store_url: str) -> None:
    rows = load_builtin_snapshot(SCHEMES).entries

    async def work(store: Store) -> Statistics:
        await store.import_entries(SCHEMES, rows, IANA_CLOCK, AT, source="seed")
        return await store.compute_statistics()

    schemes = in_store(store_url, work).registries[0]
    assert sum(schemes.entries.values()) == len(rows)
    assert schemes.months == (MonthCounts(month="2026-01", added=len(rows)),)
    assert schemes.stages == ()


def test_an_empty_registry_has_empty_statistics(store_url: str) -> None:
    async def work() -> Statistics:
        async with await Store.open(store_url) as store:
            return await store.compute_statistics()

    found = run(work())
    assert found.number == 0
    assert found.at is None
    assert all(not numbers.entries and not numbers.months for numbers in found.registries)
