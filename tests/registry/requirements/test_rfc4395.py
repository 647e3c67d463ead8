"""What RFC 4395 alone says: duplicates are rejected, silence registers, the IESG notes a separate use."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onym.registry.records import Role

from .desk import COMPLETE, FORTNIGHT, FOUR_WEEKS, KIND, TWO, Desk, K, S, T

P = "rfc4395"


@pytest.mark.requirement("rfc4395-3-d", "rfc4395-5.2-g")
def test_iana_rejects_a_new_request_for_a_name_that_was_registered_meanwhile() -> None:
    desk = Desk(P)
    desk.opened(T.PERMANENT)
    desk.opened(T.PROVISIONAL, by="stranger", request=TWO)
    for number, who in (("uri-schemes-1", "owner"), (TWO, "stranger")):
        desk.do(K.SUBMIT, who, number)
    desk.do(K.CHECK_COMPLETE, "iana")
    desk.do(K.APPROVE, "expert")
    before = desk.entry
    desk.only_for(("iana",), K.CHECK_COMPLETE, TWO)
    done = desk.do(K.CHECK_COMPLETE, "iana", TWO)
    assert (done.rule, done.clause) == ("I2", "RFC 4395 5.2 step 2")
    assert (desk.state(TWO), desk.request(TWO).outcome) == (S.REJECTED, "duplicate")
    assert (desk.entry, [notice.to for notice in done.notices]) == (before, ["stranger"])


@pytest.mark.requirement("rfc4395-3-d")
def test_two_requests_for_one_name_under_review_are_not_both_approved() -> None:
    desk = Desk(P)
    for number, who in (("uri-schemes-1", "owner"), (TWO, "stranger")):
        desk.received(T.PROVISIONAL, by=who, request=number)
        desk.at -= FOUR_WEEKS
    desk.do(K.APPROVE, "expert")
    refusal = desk.refuses(K.APPROVE, "expert", TWO)
    assert (refusal.rule, refusal.clause) == ("E6", "RFC 4395 5.2 step 2")


@pytest.mark.requirement("rfc4395-5.2-g")
def test_an_update_is_no_duplicate() -> None:
    desk = Desk(P, entry=T.PERMANENT, fields=COMPLETE)
    assert desk.received(kind=KIND.UPDATE, fields={"contact": "Bo"}).rule == "I4"


@pytest.mark.requirement("rfc4395-3-e")
@pytest.mark.parametrize("status", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL])
def test_the_iesg_alone_approves_that_an_entry_notes_a_separate_use(status: T) -> None:
    desk = Desk(P, entry=status, fields=COMPLETE)
    asked = {"description": "kites of another make"}
    assert desk.received(by="stranger", kind=KIND.SEPARATE_USE, fields=asked).rule == "S2"
    assert (desk.state(), desk.request().holder) == (S.IETF_REVIEW, Role.IESG)
    desk.refuses(K.APPROVE, "expert")
    desk.only_for(("iesg",), K.IESG_APPROVE)
    done = desk.do(K.IESG_APPROVE, "iesg")
    assert (done.rule, done.clause) == ("E6", "RFC 4395 3")
    assert (desk.status, desk.entry.registrant, desk.entry.fields) == (status, "owner", COMPLETE)
    assert [(note.kind, note.text) for note in desk.entry.notes] == [
        ("separate-use", "kites of another make (uri-schemes-1)")
    ]
    declined = Desk(P, entry=status, fields=COMPLETE)
    declined.received(by="stranger", kind=KIND.SEPARATE_USE, fields=asked)
    declined.do(K.IESG_DECLINE, "iesg", reason="one use is enough")
    assert (declined.status, declined.entry.notes) == (status, ())


@pytest.mark.requirement("rfc4395-5.1-e", "rfc4395-5.2-h", "rfc4395-5.2-j")
@pytest.mark.parametrize("status", [T.PERMANENT, T.PROVISIONAL])
def test_what_the_expert_recommends_is_added_and_list_review_is_optional(status: T) -> None:
    desk = Desk(P)
    desk.opened(status)
    desk.do(K.SUBMIT, "owner")
    assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I4"
    assert desk.status is None
    desk.only_for(("expert",), K.APPROVE)
    done = desk.do(K.APPROVE, "expert")
    assert (done.rule, done.clause) == ("E2", "RFC 4395 5.2 step 5")
    assert (desk.state(), desk.status, desk.entry.registrant) == (S.APPROVED, status, "owner")


@pytest.mark.requirement("rfc4395-5.2-k")
@pytest.mark.parametrize("asked", [T.PROVISIONAL, T.PERMANENT])
def test_two_weeks_without_a_rejection_register_provisionally(asked: T) -> None:
    desk = Desk(P)
    desk.received(asked)
    desk.at += FORTNIGHT - timedelta(seconds=1)
    assert (desk.tick(), desk.status) == ([], None)
    desk.refuses(K.REVIEW_TIMEOUT, "iana")
    desk.at += timedelta(seconds=1)
    desk.only_for(("iana",), K.REVIEW_TIMEOUT)
    (done,) = desk.tick()
    assert (done.rule, done.clause, desk.status) == ("T1", "RFC 4395 5.2 step 6", T.PROVISIONAL)
    assert desk.tick() == []


@pytest.mark.requirement("rfc4395-5.2-k")
@pytest.mark.parametrize("asked", [T.PROVISIONAL, T.PERMANENT])
def test_an_explicit_rejection_within_two_weeks_registers_nothing(asked: T) -> None:
    desk = Desk(P)
    desk.received(asked)
    desk.at += FORTNIGHT - timedelta(seconds=1)
    desk.do(K.REJECT, "expert", reason="too general")
    desk.at += FORTNIGHT
    assert (desk.tick(), desk.state(), desk.status) == ([], S.REJECTED, None)


@pytest.mark.requirement("rfc4395-5.2-k")
def test_a_wish_for_more_review_is_no_rejection() -> None:
    desk = Desk(P)
    desk.received(T.PROVISIONAL)
    desk.do(K.ASK_MORE_REVIEW, "expert", reason="ask the group")
    desk.at += FORTNIGHT
    assert [item.rule for item in desk.tick()] == ["T1"]
    assert (desk.state(), desk.status) == (S.TIMED_OUT, T.PROVISIONAL)
