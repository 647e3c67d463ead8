"""What RFC 7595 alone says: first come first served, Pending Review, the expert settles conflicts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onym.registry.records import RequestKind, Role, Status
from onym.registry.registries import PROFILES
from support import as_subtests

from .desk import COMPLETE, KIND, ONE, TWO, Desk, K, S, T

P = "rfc7595"


# -- 7.1


@pytest.mark.requirement("rfc7595-7.1-a")
def test_the_iesg_is_the_last_to_decide_a_contested_registration() -> None:
    for status, wanted in (
        (T.PERMANENT, "provisional"),
        (T.HISTORICAL, "permanent"),
        (T.PROVISIONAL, "historical"),
    ):
        desk = Desk(P, entry=status, fields=COMPLETE)
        desk.only_for(("iesg", "iana"), K.OVERRIDE, None, status=wanted, reason="appeal 12")
        assert desk.refuses(K.OVERRIDE, "iesg", None, status=wanted).code == "registry.missing-data"
        done = desk.do(K.OVERRIDE, "iesg", None, status=wanted, reason="appeal 12")
        assert (done.rule, desk.status) == ("X", wanted)
        assert [(note.text, note.by) for note in desk.entry.notes] == [("appeal 12", "iesg")]
        assert [notice.to for notice in done.notices] == ["owner"]


@pytest.mark.requirement("rfc7595-7.1-b", "rfc7595-7.2-h")
def test_a_free_name_is_provisional_at_once_and_first_come_first_served() -> None:
    assert PROFILES[P].policies[T.PROVISIONAL].name == "First Come First Served"
    desk = Desk(P)
    desk.opened(T.PROVISIONAL)
    desk.do(K.SUBMIT, "owner")
    assert desk.status is None
    desk.only_for(("iana",), K.CHECK_COMPLETE)
    done = desk.do(K.CHECK_COMPLETE, "iana")
    assert (done.rule, done.clause) == ("I3", "RFC 7595 7.2 step 2")
    assert (desk.state(), desk.status, desk.entry.registrant) == (S.APPROVED, T.PROVISIONAL, "owner")


@pytest.mark.requirement("rfc7595-7.1-b", "rfc7595-7.2-h")
def test_who_comes_second_is_not_served_at_once() -> None:
    desk = Desk(P)
    for number, who in ((ONE, "stranger"), (TWO, "owner")):
        desk.opened(T.PROVISIONAL, by=who, request=number)
        desk.do(K.SUBMIT, who, number)
    desk.do(K.CHECK_COMPLETE, "iana", TWO)
    assert desk.do(K.CHECK_COMPLETE, "iana", ONE).rule == "I4"
    assert (desk.state(ONE), desk.entry.registrant, desk.status) == (S.EXPERT_REVIEW, "owner", T.PROVISIONAL)


@pytest.mark.requirement("rfc7595-7.1-c")
@pytest.mark.parametrize("status", [T.PERMANENT, T.HISTORICAL])
def test_permanent_and_historical_need_expert_review_and_silence_gives_neither(status: Status) -> None:
    assert PROFILES[P].policies[status].name == "Expert Review"
    desk = Desk(P)
    assert desk.received(status).rule == "I4"
    desk.at += timedelta(days=3650)
    assert (desk.tick(), desk.status) == ([], T.PENDING_REVIEW)
    desk.refuses(K.REVIEW_TIMEOUT, "iana")


@pytest.mark.requirement("rfc7595-7.1-d", "rfc7595-7.1-e")
def test_an_early_request_is_provisional_until_the_standard_is_there() -> None:
    desk = Desk(P)
    desk.received(T.PERMANENT)
    desk.do(K.APPROVE_AS_PROVISIONAL, "expert", reason="until the specification is approved")
    assert desk.status is T.PROVISIONAL
    desk.received(T.PERMANENT, request=TWO, kind=KIND.STATUS_CHANGE)
    desk.do(K.APPROVE, "expert", TWO)
    assert desk.status is T.PERMANENT


# -- 7.2: the registrant's items


@pytest.mark.requirement("rfc7595-7.2-c")
def test_a_permanent_request_is_not_submitted_before_it_was_sent_to_the_list() -> None:
    desk = Desk(P)
    desk.opened(T.PERMANENT)
    refusal = desk.refuses(K.SUBMIT, "owner")
    assert (refusal.rule, refusal.clause) == ("R4", "RFC 7595 7.2 item 3")
    desk.do(K.ANNOUNCE, "owner")
    assert desk.do(K.SUBMIT, "owner").clause == "RFC 7595 7.2 item 4"
    for status in (T.PROVISIONAL, T.HISTORICAL):
        other = Desk(P)
        other.opened(status)
        assert other.do(K.SUBMIT, "owner").rule == "R4"


# -- 7.2: the steps on receipt


@pytest.mark.requirement("rfc7595-7.2-g")
def test_what_was_incomplete_can_be_corrected_and_handed_in_again_by_its_registrant() -> None:
    desk = Desk(P)
    desk.submitted(T.PROVISIONAL, fields={**COMPLETE, "contact": ""})
    desk.do(K.REJECT_INCOMPLETE, "iana")
    desk.only_for(("owner",), K.RESUBMIT, fields=COMPLETE)
    done = desk.do(K.RESUBMIT, "owner", fields=COMPLETE)
    assert (done.rule, done.clause, desk.state()) == ("I1", "RFC 7595 7.2 step 1", S.SUBMITTED)
    assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I3"
    rejected = Desk(P)
    rejected.received(T.PERMANENT)
    rejected.do(K.REJECT, "expert", reason="too general")
    rejected.refuses(K.RESUBMIT, "owner", fields=COMPLETE)


@pytest.mark.requirement("rfc7595-7.2-i")
@pytest.mark.parametrize("status", [T.PERMANENT, T.HISTORICAL])
def test_any_other_request_is_entered_as_pending_review(status: Status) -> None:
    desk = Desk(P)
    done = desk.received(status)
    assert (done.rule, done.clause) == ("I4", "RFC 7595 7.2 steps 3 and 4")
    assert (desk.status, desk.entry.pending) == (T.PENDING_REVIEW, (ONE,))
    known = Desk(P, entry=T.PERMANENT, fields=COMPLETE)
    known.received(T.PERMANENT, kind=KIND.UPDATE)
    assert (known.status, known.entry.pending) == (T.PERMANENT, (ONE,))
    free = Desk(P)
    free.received(T.PROVISIONAL)
    assert free.entry.pending == ()


@pytest.mark.requirement("rfc7595-7.2-m", "rfc7595-7.2-x")
@pytest.mark.parametrize("wanted", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL])
@as_subtests("status", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL])
@pytest.mark.parametrize("kind", [RequestKind.SEPARATE_USE, RequestKind.NEW])
def test_the_expert_settles_a_conflict_of_names_whatever_the_statuses(
    kind: RequestKind, status: Status, wanted: Status
) -> None:
    asked = {"description": "kites of another make", **COMPLETE}
    for approves in (True, False):
        desk = Desk(P, entry=status, fields=COMPLETE)
        if kind is RequestKind.NEW:  # opened before the other entry was there
            other = desk.book.entries.pop(("uri-schemes", "demo"))
            desk.submitted(wanted, by="stranger", fields=asked)
            desk.book.entries["uri-schemes", "demo"] = other
        else:
            desk.submitted(wanted, by="stranger", kind=kind, fields=asked)
        assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I4"
        desk.only_for(("expert",), K.APPROVE)
        if approves:
            done = desk.do(K.APPROVE, "expert")
            assert (done.rule, done.clause) == ("E6", "RFC 7595 7.2 step 7")
            assert [(n.kind, "another make" in n.text) for n in desk.entry.notes] == [("separate-use", True)]
        else:
            desk.do(K.REJECT, "expert", reason="one use is enough")
            assert desk.entry.notes == ()
        assert (desk.status, desk.entry.registrant, desk.entry.pending) == (status, "owner", ())


@pytest.mark.requirement("rfc7595-7.2-n")
@pytest.mark.parametrize("status", [T.PERMANENT, T.HISTORICAL])
def test_the_entry_gets_the_status_that_the_expert_approves(status: Status) -> None:
    desk = Desk(P)
    desk.received(status)
    desk.only_for(("expert",), K.APPROVE)
    done = desk.do(K.APPROVE, "expert")
    assert (desk.state(), desk.status, desk.entry.pending) == (S.APPROVED, status, ())
    assert [notice.to for notice in done.notices] == ["owner"]


@pytest.mark.requirement("rfc7595-7.2-o")
@pytest.mark.parametrize("status", [T.PERMANENT, T.HISTORICAL])
def test_a_rejected_request_leaves_no_pending_entry(status: Status) -> None:
    desk = Desk(P)
    desk.received(status)
    desk.only_for(("expert",), K.REJECT, reason="too general")
    done = desk.do(K.REJECT, "expert", reason="too general")
    assert (done.rule, done.removed, desk.status, desk.state()) == ("E5", True, None, S.REJECTED)
    known = Desk(P, entry=T.PERMANENT, fields=COMPLETE)
    known.received(T.PERMANENT, kind=KIND.UPDATE)
    known.do(K.REJECT, "expert", reason="not better")
    assert (known.status, known.entry.pending) == (T.PERMANENT, ())


@pytest.mark.requirement("rfc7595-7.2-j")
def test_the_expert_is_asked_once_iana_has_checked() -> None:
    desk = Desk(P)
    desk.submitted(T.PERMANENT)
    desk.refuses(K.APPROVE, "expert")
    done = desk.do(K.CHECK_COMPLETE, "iana")
    assert [notice.to for notice in done.notices] == [Role.EXPERT]
    assert desk.request().expert_asked == desk.at
