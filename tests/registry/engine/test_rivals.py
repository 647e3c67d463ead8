"""Two ask for one name, or one asks about what has become another's: nobody's request touches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.engine import RegistryState
from onym.registry.records import (
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    RequestKind,
    RequestState,
    Role,
    Status,
)

from .table import AT, COMPLETE

K, R, S, T = EventKind, RequestKind, RequestState, Status
ONE, TWO, THREE = "uri-schemes-1", "uri-schemes-2", "uri-schemes-3"
REGISTRANT = frozenset({Role.REGISTRANT})
PEOPLE = {
    "iana": Actor(id="iana", roles=frozenset({Role.IANA})),
    "expert": Actor(id="expert", roles=frozenset({Role.EXPERT})),
    "iesg": Actor(id="iesg", roles=frozenset({Role.IESG})),
}


class Counter:
    """Where anybody asks for `kite`, under RFC 7595."""

    def __init__(self) -> None:
        self.book = RegistryState()

    def ask(self, kind: EventKind, who: str, request: str | None = None, /, **data: Any) -> Decision:
        actor = PEOPLE.get(who) or Actor(id=who, roles=REGISTRANT)
        event = Event(kind=kind, registry="uri-schemes", request=request, name="kite", data=data)
        return self.book.apply(event, actor, AT)

    def opened(self, who: str, request: str, /, **data: Any) -> None:
        given = {"status": T.PERMANENT, "fields": {**COMPLETE, "contact": who}, **data}
        self.ask(K.OPEN, who, request, **given)

    def handed_in(self, who: str, request: str, /) -> Decision:
        self.ask(K.ANNOUNCE, who, request)
        self.ask(K.SUBMIT, who, request)
        return self.ask(K.CHECK_COMPLETE, "iana", request)

    def received(self, who: str, request: str, /, **data: Any) -> Decision:
        self.opened(who, request, **data)
        return self.handed_in(who, request)

    def refuses(self, kind: EventKind, who: str, request: str | None = None, /, **data: Any) -> RefusalError:
        with pytest.raises(RefusalError) as caught:
            self.ask(kind, who, request, **data)
        return caught.value

    @property
    def row(self) -> Entry:
        return self.book.entries["uri-schemes", "kite"]


@pytest.fixture
def both() -> Counter:
    """Mallory's request was first, and the row shows it; Alice's waits beside it."""
    counter = Counter()
    draft = {"name": "draft-mallory-00", "expires": "2026-09-01"}
    counter.opened("mallory", ONE, draft=draft)
    counter.opened("alice", TWO)
    for who, request in (("mallory", ONE), ("alice", TWO)):
        counter.handed_in(who, request)
    assert (counter.row.registrant, counter.row.pending) == ("mallory", (ONE, TWO))
    return counter


# ---------- rivals for a name under review


@pytest.mark.parametrize("end", [K.REJECT, K.WITHDRAW])
def test_a_row_under_review_no_longer_shows_a_request_that_has_gone(both: Counter, end: EventKind) -> None:
    both.ask(K.ATTACH_SECURITY_NOTE, "mallory", text="use mine")
    both.ask(end, "expert" if end is K.REJECT else "mallory", ONE, reason="no")
    row = both.row
    assert (row.status, row.pending) == (T.PENDING_REVIEW, (TWO,))
    assert (row.registrant, row.fields, row.draft, row.notes) == (None, {}, None, ())
    assert both.refuses(K.ATTACH_SECURITY_NOTE, "mallory", text="mine").code == "registry.wrong-role"


def test_the_row_goes_on_showing_its_request_when_a_rival_has_gone(both: Counter) -> None:
    before = both.row
    both.ask(K.REJECT, "expert", TWO, reason="no")
    assert both.row.fields == before.fields
    assert (both.row.registrant, both.row.pending) == ("mallory", (ONE,))


@pytest.mark.parametrize("rejected_first", [True, False])
@pytest.mark.parametrize("way", [K.APPROVE, K.APPROVE_AS_PROVISIONAL, K.ASK_IETF_REVIEW])
def test_a_registered_name_has_nothing_of_its_rival(
    both: Counter, way: EventKind, rejected_first: bool
) -> None:
    both.ask(K.ATTACH_SECURITY_NOTE, "mallory", text="use mine")
    if rejected_first:
        both.ask(K.REJECT, "expert", ONE, reason="no")
    both.ask(way, "expert", TWO)
    row = both.row
    assert (row.registrant, row.fields["contact"], row.designees) == ("alice", "alice", frozenset())
    assert (row.notes, row.draft, row.registered) == ((), None, AT)
    assert both.refuses(K.RETIRE, "mallory", reason="mine").code in (
        "registry.wrong-role", "registry.not-allowed",
    )  # fmt: skip
    if not rejected_first:
        both.ask(K.REJECT, "expert", ONE, reason="no")
        assert (both.row.registrant, both.row.fields) == ("alice", row.fields)


def test_what_officials_noted_on_the_row_that_shows_a_request_stays_with_it() -> None:
    counter = Counter()
    counter.received("alice", ONE, draft={"name": "draft-kite-00", "expires": "2026-09-01"})
    counter.ask(K.ATTACH_SECURITY_NOTE, "expert", text="weak")
    counter.ask(K.APPROVE, "expert", ONE)
    assert [note.text for note in counter.row.notes] == ["weak"]
    assert counter.row.draft is not None


def test_nobody_is_designated_for_a_row_that_only_shows_a_request(both: Counter) -> None:
    error = both.refuses(K.DESIGNATE, "mallory", add=["mallory-2"])
    assert (error.rule, error.code, error.clause) == ("U1", "registry.not-allowed", "RFC 7595 7.3")


def test_an_import_over_a_row_under_review_gives_its_registrant_nothing(both: Counter) -> None:
    file = Entry(registry="uri-schemes", name="kite", status=T.PERMANENT, fields={"description": "d"})
    both.ask(K.IMPORT, "iana", entry=codec.to_data(file))
    row = both.row
    assert (row.status, row.registrant, row.fields, row.pending) == (
        T.PERMANENT, None, {"description": "d"}, (ONE, TWO),
    )  # fmt: skip
    again = replace(file, status=T.PENDING_REVIEW)
    other = Counter()
    other.received("alice", ONE)
    other.ask(K.IMPORT, "iana", entry=codec.to_data(again))
    assert other.row.registrant == "alice"


# ---------- a row that has become another's


def provisional(counter: Counter, who: str, request: str) -> None:
    counter.received(who, request, status=T.PROVISIONAL)
    assert counter.row.registrant == who


def change(counter: Counter, who: str, kind: RequestKind, /, **data: Any) -> Decision:
    fields = {"change_controller": f"{who} keeps it", "contact": who}
    return counter.received(who, TWO, kind=kind, **{"status": None, "fields": fields, **data})


def test_an_upgrade_by_a_registrant_whom_the_iesg_has_replaced_is_not_granted() -> None:
    counter = Counter()
    provisional(counter, "alice", ONE)
    change(counter, "alice", R.STATUS_CHANGE, status=T.PERMANENT)
    counter.ask(K.REASSIGN, "iesg", to="bob", change_controller="Bob", reason="gone")
    error = counter.refuses(K.APPROVE, "expert", TWO)
    assert (error.rule, error.hint) == ("E2", "Reject it.")
    counter.refuses(K.ASK_IETF_REVIEW, "expert", TWO)
    counter.ask(K.REJECT, "expert", TWO, reason="it is another's")
    assert (counter.row.registrant, counter.row.fields["change_controller"]) == ("bob", "Bob")


def test_an_upgrade_by_a_former_registrant_is_sent_back_on_receipt() -> None:
    counter = Counter()
    provisional(counter, "alice", ONE)
    counter.ask(K.OPEN, "alice", TWO, kind=R.STATUS_CHANGE, status=T.PERMANENT)
    counter.ask(K.ANNOUNCE, "alice", TWO)
    counter.ask(K.SUBMIT, "alice", TWO)
    counter.ask(K.REASSIGN, "iesg", to="bob", reason="gone")
    done = counter.ask(K.CHECK_COMPLETE, "iana", TWO)
    assert (done.rule, done.request and done.request.outcome) == ("I2", "declined")


def test_an_upgrade_that_the_iesg_approves_is_not_a_former_registrants() -> None:
    counter = Counter()
    provisional(counter, "alice", ONE)
    change(counter, "alice", R.STATUS_CHANGE, status=T.PERMANENT)
    counter.ask(K.ASK_IETF_REVIEW, "expert", TWO)
    counter.ask(K.REASSIGN, "iesg", to="bob", reason="gone")
    error = counter.refuses(K.IESG_APPROVE, "iesg", TWO)
    assert (error.rule, error.hint) == ("E4", "Decline it.")


def test_an_upgrade_that_the_expert_asked_for_outlasts_a_reassignment() -> None:
    counter = Counter()
    provisional(counter, "alice", ONE)
    change(counter, "expert", R.STATUS_CHANGE, status=T.PERMANENT, fields={})
    assert not counter.book.requests[TWO].as_registrant
    counter.ask(K.REASSIGN, "iesg", to="bob", reason="gone")
    assert counter.ask(K.APPROVE, "expert", TWO).rule == "S1"
    assert (counter.row.status, counter.row.registrant) == (T.PERMANENT, "bob")


def test_an_update_of_a_permanent_row_by_a_former_registrant_is_not_granted() -> None:
    counter = Counter()
    counter.received("alice", ONE)
    counter.ask(K.APPROVE, "expert", ONE)
    change(counter, "alice", R.UPDATE)
    counter.ask(K.OVERRIDE, "iesg", registrant="bob", reason="alice is gone")
    error = counter.refuses(K.APPROVE, "expert", TWO)
    assert (error.rule, error.hint) == ("E2", "Reject it.")


def test_an_ietf_approval_does_not_touch_a_row_that_was_removed_and_is_anothers_now() -> None:
    counter = Counter()
    counter.received("alice", ONE)
    counter.ask(K.ASK_IETF_REVIEW, "expert", ONE)
    counter.ask(K.OVERRIDE, "iana", remove=True, reason="by mistake")
    provisional(counter, "bob", TWO)
    before = counter.row
    error = counter.refuses(K.IESG_APPROVE, "iesg", ONE)
    assert (error.rule, error.hint) == ("E4", "Decline it.")
    assert counter.row == before
    counter.ask(K.IESG_DECLINE, "iesg", ONE, reason="another's")
    assert counter.row == before


def test_an_update_does_not_make_a_row_under_review_its_own() -> None:
    counter = Counter()
    counter.received("alice", ONE)
    counter.ask(K.APPROVE, "expert", ONE)
    change(counter, "stranger", R.UPDATE)
    counter.ask(K.OVERRIDE, "iana", remove=True, reason="by mistake")
    counter.received("bob", THREE)
    assert counter.row.status is T.PENDING_REVIEW
    counter.refuses(K.APPROVE, "expert", TWO)
    assert counter.row.registrant == "bob"
