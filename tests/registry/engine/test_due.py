"""A clock that was stopped for long does, when it goes again, what it would have done day by day."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta

import pytest

from onym.errors import RefusalError
from onym.registry.engine import RegistryState, iter_due_events
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    DraftReference,
    Entry,
    Event,
    EventKind,
    RequestState,
    Role,
    Status,
)

from .table import ACTORS, AT, COMPLETE

K, S, T = EventKind, RequestState, Status
DRAFT = {"name": "draft-kite-00", "expires": "2026-03-20"}


def waiting() -> RegistryState:
    """Ten and two ask for one name; two, which was opened first, is asked of the expert ten days later."""
    book = RegistryState()
    people = {"uri-schemes-2": "mallory", "uri-schemes-10": "alice"}
    for number, who in people.items():
        actor = Actor(id=who, roles=frozenset({Role.REGISTRANT}))
        data = {"status": "provisional", "profile": "rfc4395", "fields": COMPLETE, "draft": DRAFT}
        ask = {"registry": "uri-schemes", "request": number, "name": "kite"}
        book.apply(Event(kind=K.OPEN, data=data, **ask), actor, AT)
        at = AT if who == "alice" else AT + timedelta(days=10)
        book.apply(Event(kind=K.SUBMIT, **ask), actor, at)
        book.apply(Event(kind=K.CHECK_COMPLETE, **ask), ACTORS["iana"], at)
    return book


def tick(book: RegistryState, at: datetime) -> list[str | None]:
    rang = []
    while events := list(iter_due_events(book.requests.values(), book.entries.values(), at)):
        for event in events:
            book.apply(event, IANA_CLOCK, at)
            # test_experts.py is about reminders
            if event.kind is not K.REMIND:
                rang.append(event.request or event.kind)
    return rang


def test_a_late_tick_does_what_daily_ticks_would_have_done() -> None:
    late, daily, last = waiting(), waiting(), AT + timedelta(days=60)
    assert tick(late, last) == ["uri-schemes-10", "uri-schemes-2", "draft-expired"]
    for day in range(61):
        tick(daily, AT + timedelta(days=day))
    for book in (late, daily):
        assert book.entries["uri-schemes", "kite"].registrant == "alice"
        assert book.requests["uri-schemes-10"].state is S.TIMED_OUT
        assert book.requests["uri-schemes-2"].state is S.EXPERT_REVIEW


def test_timers_of_one_moment_go_off_by_number() -> None:
    book = RegistryState()
    for number in ("uri-schemes-10", "uri-schemes-9", "uri-schemes-x"):
        ask = {"registry": "uri-schemes", "request": number, "name": "kite"}
        data = {"status": "provisional", "profile": "rfc4395", "fields": COMPLETE}
        book.apply(Event(kind=K.OPEN, data=data, **ask), ACTORS["owner"], AT)
        book.apply(Event(kind=K.SUBMIT, **ask), ACTORS["owner"], AT)
        book.apply(Event(kind=K.CHECK_COMPLETE, **ask), ACTORS["iana"], AT)
    for order in itertools.permutations(book.requests.values()):
        found = [event.request for event in iter_due_events(order, [], AT + timedelta(days=14))]
        assert found == ["uri-schemes-x", "uri-schemes-9", "uri-schemes-10"]


def test_a_registrant_is_told_once_30_days_before_a_draft_or_a_namespace_expires() -> None:
    last = date(2026, 6, 30)
    draft = DraftReference(name="draft-kite-00", expires=last)
    kite = Entry(registry="uri-schemes", name="kite", status=T.PROVISIONAL, registrant="alice", draft=draft)
    bank = Entry(registry="ai-namespaces", name="bank", status=T.ACTIVE, registrant="bob", expires=last)
    nobody = Entry(registry="uri-schemes", name="wind", status=T.PROVISIONAL, draft=draft)
    book = RegistryState({(row.registry, row.name): row for row in (kite, bank, nobody)})
    first = datetime.fromisoformat("2026-05-31T00:00:00+00:00")

    def due(at: datetime) -> list[tuple[str, str]]:
        return [(event.kind, event.name or "") for event in iter_due_events([], book.entries.values(), at)]

    assert due(first - timedelta(seconds=1)) == []
    assert due(first) == [(K.EXPIRY_NEAR, "bank"), (K.EXPIRY_NEAR, "kite")]
    # it is too late to tell when the day is over
    assert {kind for kind, _ in due(first + timedelta(days=31))} == {K.NAMESPACE_EXPIRED, K.DRAFT_EXPIRED}
    told = [
        book.apply(event, IANA_CLOCK, first) for event in iter_due_events([], book.entries.values(), first)
    ]
    assert [(notice.to, decision.rule) for decision in told for notice in decision.notices] == [
        ("bob", "T4"), ("alice", "T4"),
    ]  # fmt: skip
    assert all("2026-06-30" in decision.notices[0].subject for decision in told)
    assert "draft-kite-00" in told[1].notices[0].subject
    assert due(first) == []
    with pytest.raises(RefusalError) as caught:
        book.apply(Event(kind=K.EXPIRY_NEAR, registry="ai-namespaces", name="bank"), IANA_CLOCK, first)
    assert caught.value.code == "registry.not-allowed"
    # a new last day is told anew
    renew = Event(kind=K.RENEW, registry="ai-namespaces", name="bank", data={"expires": "2026-12-31"})
    book.apply(renew, ACTORS["iana"], first)
    assert due(first + timedelta(days=10)) == []
    assert (K.EXPIRY_NEAR, "bank") in due(first + timedelta(days=200))


@pytest.mark.parametrize("last", [date(2026, 3, 1), date.max])
def test_a_last_day_is_over_when_the_next_begins(last: date) -> None:
    rows = [
        Entry(registry="ai-namespaces", name="bank", status=T.ACTIVE, expires=last),
        Entry(
            registry="uri-schemes", name="kite", status=T.PROVISIONAL,
            draft=DraftReference(name="d", expires=last),
        ),
    ]  # fmt: skip
    midnight = datetime.fromisoformat("2026-03-02T00:00:00+00:00")
    assert list(iter_due_events([], rows, midnight - timedelta(seconds=1))) == []
    found = [event.kind for event in iter_due_events([], reversed(rows), midnight)]
    assert found == ([] if last == date.max else [K.NAMESPACE_EXPIRED, K.DRAFT_EXPIRED])
