"""What the RFCs leave open, settled in docs/decisions/0026: (a) to (f), and a few of our own."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry.engine import RegistryState, iter_due_events
from onym.registry.records import (
    IANA_CLOCK,
    Decision,
    Entry,
    Event,
    EventKind,
    RequestKind,
    RequestState,
    Role,
    Status,
)

from .table import ACTORS, AT, COMPLETE

K, S, T = EventKind, RequestState, Status
FORTNIGHT = timedelta(days=14)


class Desk:
    """A book, and a clock that goes when it is told to."""

    def __init__(self, profile: str = "rfc4395") -> None:
        self.book, self.at, self.profile = RegistryState(), AT, profile

    def ask(
        self, event: EventKind, actor: str, /, *, request: str | None = "uri-schemes-1", **data: Any
    ) -> Decision:
        asked = Event(kind=event, registry="uri-schemes", request=request, name="demo", data=data)
        return self.book.apply(asked, ACTORS[actor], self.at)

    def open(self, status: Status, *, request: str = "uri-schemes-1", **data: Any) -> None:
        given = {"status": status, "fields": COMPLETE, "profile": self.profile, **data}
        self.ask(K.OPEN, "owner", request=request, **given)

    def submitted(self, status: Status, **data: Any) -> None:
        self.open(status, **data)
        self.ask(K.ANNOUNCE, "owner")
        self.ask(K.SUBMIT, "owner")

    def to_expert(self, status: Status, **data: Any) -> None:
        self.submitted(status, **data)
        self.ask(K.CHECK_COMPLETE, "iana")

    def tick(self) -> list[Decision]:
        events = list(iter_due_events(self.book.requests.values(), self.book.entries.values(), self.at))
        # reminders change nothing of this: tests/registry/engine/test_experts.py
        return [self.book.apply(event, IANA_CLOCK, self.at) for event in events if event.kind is not K.REMIND]

    @property
    def state(self) -> RequestState:
        return self.book.requests["uri-schemes-1"].state

    @property
    def status(self) -> Status | None:
        entry = self.book.entries.get(("uri-schemes", "demo"))
        return None if entry is None else entry.status


def test_a_the_fortnight_counts_from_the_request_to_the_expert() -> None:
    desk = Desk()
    desk.submitted(T.PROVISIONAL)
    desk.at += timedelta(days=10)  # IANA took its time
    desk.ask(K.CHECK_COMPLETE, "iana")
    desk.at += FORTNIGHT - timedelta(seconds=1)
    assert desk.tick() == []
    desk.at += timedelta(seconds=1)
    assert [d.rule for d in desk.tick()] == ["T1"]
    assert (desk.state, desk.status) == (S.TIMED_OUT, T.PROVISIONAL)


def test_b_a_wish_for_more_review_does_not_stop_the_fortnight() -> None:
    desk = Desk()
    desk.to_expert(T.PROVISIONAL)
    desk.at += timedelta(days=7)
    desk.ask(K.ASK_MORE_REVIEW, "expert", reason="ask the group")
    desk.at += timedelta(days=7)
    assert [d.rule for d in desk.tick()] == ["T1"]
    assert desk.status is T.PROVISIONAL


def test_c_a_permanent_request_that_times_out_is_provisional_and_stays_open() -> None:
    desk = Desk()
    desk.to_expert(T.PERMANENT)
    desk.at += FORTNIGHT
    desk.tick()
    assert (desk.state, desk.status) == (S.EXPERT_REVIEW, T.PROVISIONAL)
    assert desk.tick() == []  # once
    desk.ask(K.APPROVE, "expert")
    assert (desk.state, desk.status) == (S.APPROVED, T.PERMANENT)


def test_c_a_rejection_after_the_fortnight_leaves_the_provisional_entry() -> None:
    desk = Desk()
    desk.to_expert(T.PERMANENT)
    desk.at += FORTNIGHT
    desk.tick()
    desk.ask(K.REJECT, "expert", reason="not permanent")
    assert (desk.state, desk.status) == (S.REJECTED, T.PROVISIONAL)
    assert desk.book.entries["uri-schemes", "demo"].pending == ()


def test_d_a_historical_request_that_times_out_is_escalated_and_registers_nothing() -> None:
    desk = Desk()
    desk.to_expert(T.HISTORICAL)
    desk.at += FORTNIGHT
    (decision,) = desk.tick()
    assert {notice.to for notice in decision.notices} == {Role.EXPERT, Role.IESG}
    assert (desk.state, desk.status) == (S.EXPERT_REVIEW, None)


def test_e_an_update_is_no_duplicate_of_the_entry_that_it_updates() -> None:
    desk = Desk()
    desk.to_expert(T.PROVISIONAL)
    desk.ask(K.APPROVE, "expert")
    desk.ask(
        K.OPEN,
        "owner",
        request="uri-schemes-2",
        kind=RequestKind.UPDATE,
        fields={"contact": "Bo"},
        profile="rfc4395",
    )
    desk.ask(K.SUBMIT, "owner", request="uri-schemes-2")
    assert desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-2").rule == "I4"


def test_f_a_shortfall_of_list_review_is_told_to_the_expert_who_may_reject_for_it() -> None:
    desk = Desk()
    desk.open(T.PERMANENT)
    decision = desk.ask(K.SUBMIT, "owner")
    assert any(notice.to is Role.EXPERT for notice in decision.notices)
    desk.ask(K.CHECK_COMPLETE, "iana")
    assert desk.ask(K.REJECT, "expert", reason="no list review").rule == "E5"


def test_f_four_weeks_of_list_review_need_no_remark() -> None:
    desk = Desk()
    desk.open(T.PERMANENT)
    desk.ask(K.ANNOUNCE, "owner")
    desk.at += timedelta(days=28)
    assert [n.to for n in desk.ask(K.SUBMIT, "owner").notices] == [Role.IANA]


def test_a_permanent_request_of_2015_is_not_submitted_without_list_review() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PERMANENT)
    with pytest.raises(RefusalError) as caught:
        desk.ask(K.SUBMIT, "owner")
    assert (caught.value.rule, caught.value.clause) == ("R4", "RFC 7595 7.2 item 3")
    desk.ask(K.ANNOUNCE, "owner")
    assert desk.ask(K.SUBMIT, "owner").rule == "R4"


def test_a_change_of_the_text_does_not_start_list_review_anew() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PERMANENT)
    desk.ask(K.ANNOUNCE, "owner", archive="https://mailarchive.example/1")
    began = desk.at
    desk.at += timedelta(days=20)
    desk.ask(K.REVISE, "owner", fields={"contact": "Bo"}, template="new")
    desk.ask(K.ANNOUNCE, "owner")
    request = desk.book.requests["uri-schemes-1"]
    assert (request.announced, request.archive) == (began, "https://mailarchive.example/1")
    assert (request.fields["contact"], request.template) == ("Bo", "new")


def test_silence_never_registers_under_rfc_7595() -> None:
    desk = Desk("rfc7595")
    desk.to_expert(T.PERMANENT)
    desk.at += timedelta(days=3650)
    assert desk.tick() == []
    assert desk.status is T.PENDING_REVIEW


def test_two_requests_for_one_name_end_as_an_entry_and_a_note() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PERMANENT)
    desk.open(T.PERMANENT, request="uri-schemes-2")
    for number in ("uri-schemes-1", "uri-schemes-2"):
        desk.ask(K.ANNOUNCE, "owner", request=number)
        desk.ask(K.SUBMIT, "owner", request=number)
        desk.ask(K.CHECK_COMPLETE, "iana", request=number)
    desk.ask(K.APPROVE, "expert")
    second = desk.ask(K.APPROVE, "expert", request="uri-schemes-2")
    assert second.rule == "E6"
    assert second.entry is not None
    assert (second.entry.status, len(second.entry.notes)) == (T.PERMANENT, 1)
    assert second.entry.pending == ()


def test_two_requests_for_one_name_end_as_an_entry_and_a_rejection_in_2006() -> None:
    desk = Desk("rfc4395")
    desk.open(T.PROVISIONAL)
    desk.open(T.PROVISIONAL, request="uri-schemes-2")
    for number in ("uri-schemes-1", "uri-schemes-2"):
        desk.ask(K.SUBMIT, "owner", request=number)
    desk.ask(K.CHECK_COMPLETE, "iana")
    desk.ask(K.APPROVE, "expert")
    second = desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-2")
    assert (second.rule, second.request and second.request.outcome) == ("I2", "duplicate")


def test_names_under_review_twice_in_2006_cannot_both_be_approved() -> None:
    desk = Desk("rfc4395")
    desk.open(T.PROVISIONAL)
    desk.open(T.PROVISIONAL, request="uri-schemes-2")
    for number in ("uri-schemes-1", "uri-schemes-2"):
        desk.ask(K.SUBMIT, "owner", request=number)
        desk.ask(K.CHECK_COMPLETE, "iana", request=number)
    desk.ask(K.APPROVE, "expert")
    with pytest.raises(RefusalError) as caught:
        desk.ask(K.APPROVE, "expert", request="uri-schemes-2")
    assert (caught.value.rule, caught.value.clause) == ("E6", "RFC 4395 5.2 step 2")
    desk.at += FORTNIGHT
    assert [notice.to for notice in desk.tick()[0].notices] == [Role.EXPERT, Role.IESG]
    desk.ask(K.REJECT, "expert", request="uri-schemes-2", reason="taken")


def test_a_request_about_an_entry_that_went_is_sent_back_or_declined() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PROVISIONAL)
    desk.ask(K.SUBMIT, "owner")
    desk.ask(K.CHECK_COMPLETE, "iana")
    for number, status in (("uri-schemes-2", T.PERMANENT), ("uri-schemes-3", T.PERMANENT)):
        desk.ask(K.OPEN, "owner", request=number, kind=RequestKind.STATUS_CHANGE, status=status)
        desk.ask(K.ANNOUNCE, "owner", request=number)
        desk.ask(K.SUBMIT, "owner", request=number)
    desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-2")
    desk.ask(K.OVERRIDE, "iana", request=None, remove=True, reason="never existed")
    with pytest.raises(RefusalError) as caught:
        desk.ask(K.APPROVE, "expert", request="uri-schemes-2")
    assert (caught.value.rule, caught.value.clause) == ("E2", "RFC 7595 7.3")
    gone = desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-3")
    assert (gone.request and gone.request.outcome) == "declined"
    desk.ask(K.REJECT, "expert", request="uri-schemes-2", reason="nothing is left to change")


def test_a_third_partys_registration_can_be_reassigned_to_its_maker_by_the_iesg() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PROVISIONAL, on_behalf_of="its maker")
    desk.ask(K.SUBMIT, "owner")
    desk.ask(K.CHECK_COMPLETE, "iana")
    desk.ask(
        K.OPEN,
        "stranger",
        request="uri-schemes-2",
        kind=RequestKind.REASSIGN,
        fields={"change_controller": "Maker"},
    )
    desk.ask(K.SUBMIT, "stranger", request="uri-schemes-2")
    desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-2")
    done = desk.ask(K.IESG_APPROVE, "iesg", request="uri-schemes-2")
    assert done.entry is not None
    assert (done.entry.registrant, done.entry.fields["change_controller"]) == ("stranger", "Maker")


def test_a_rejection_by_hand_says_what_is_missing() -> None:
    desk = Desk("rfc7595")
    desk.submitted(T.PROVISIONAL)
    for data in ({}, {"missing": "contact"}, {"missing": [5]}, {"missing": ["x"] * 65}):
        with pytest.raises(RefusalError):
            desk.ask(K.REJECT_INCOMPLETE, "iana", **data)
    done = desk.ask(K.REJECT_INCOMPLETE, "iana", missing=["contact"], reason="[1] leads nowhere")
    assert done.request is not None
    assert done.request.reason == "missing: contact; [1] leads nowhere"


def test_an_incomplete_template_comes_back_with_the_labels_that_it_lacks_and_may_come_again() -> None:
    desk = Desk("rfc7595")
    desk.submitted(T.PROVISIONAL, fields={"contact": "Ada"})
    with pytest.raises(RefusalError) as caught:
        desk.ask(K.CHECK_COMPLETE, "iana")
    assert caught.value.code == "registry.incomplete"
    assert "change controller" in caught.value.message
    # whoever returns it need not list the fields again
    done = desk.ask(K.REJECT_INCOMPLETE, "iana")
    assert done.request is not None
    assert "change controller" in (done.request.reason or "")
    assert "contact," not in (done.request.reason or "")
    desk.ask(K.RESUBMIT, "owner", fields=COMPLETE, status="provisional")
    assert desk.ask(K.CHECK_COMPLETE, "iana").rule == "I3"


def test_the_row_of_a_draft_carries_when_it_expires_and_where_it_is_defined() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PROVISIONAL, draft={"name": "draft-demo-00", "expires": "2026-08-10"})
    desk.ask(K.SUBMIT, "owner")
    desk.ask(K.CHECK_COMPLETE, "iana")
    entry = desk.book.entries["uri-schemes", "demo"]
    assert entry.draft is not None
    assert entry.fields["reference"] == "[RFC3986]"
    assert "name" not in entry.fields
    desk.at = datetime.fromisoformat("2026-08-11T00:00:00+00:00")
    assert [d.rule for d in desk.tick()] == ["U4"]
    assert desk.tick() == []


def test_an_update_keeps_what_it_does_not_name() -> None:
    desk = Desk("rfc7595")
    desk.open(T.PROVISIONAL)
    desk.ask(K.SUBMIT, "owner")
    desk.ask(K.CHECK_COMPLETE, "iana")
    before: Entry = desk.book.entries["uri-schemes", "demo"]
    desk.ask(K.OPEN, "owner", request="uri-schemes-2", kind=RequestKind.UPDATE, fields={"contact": "Bo"})
    desk.ask(K.SUBMIT, "owner", request="uri-schemes-2")
    done = desk.ask(K.CHECK_COMPLETE, "iana", request="uri-schemes-2")
    assert done.rule == "I3"
    assert done.entry is not None
    assert done.entry.fields == {**before.fields, "contact": "Bo"}
    assert (done.entry.registered, done.entry.version) == (before.registered, before.version + 1)
