"""What the procedures of 2006 and of 2015 have in common, step by step: who does it, and who may not."""

from __future__ import annotations

import pytest

from onym.registry.records import EventKind, Role

from .desk import BOTH, COMPLETE, FOUR_WEEKS, KIND, Desk, K, S, T

MAKERS = ("owner", "designee", "stranger", "iana", "expert", "iesg")
STEPS = {"rfc4395": "RFC 4395 5.2", "rfc7595": "RFC 7595 7.2"}


# -- the registrant's items


@pytest.mark.requirement("rfc4395-5.2-a", "rfc4395-5.2-m", "rfc7595-7.2-a", "rfc7595-7.2-q")
@BOTH
@pytest.mark.parametrize("status", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL, T.PENDING_REVIEW])
def test_a_name_in_the_registry_is_not_opened_anew(profile: str, status: T) -> None:
    desk = Desk(profile, entry=status, fields=COMPLETE)
    for name in ("demo", "DEMO"):
        refusal = desk.refuses(
            K.OPEN, "stranger", name=name, status=T.PERMANENT, fields=COMPLETE, profile=profile
        )
        assert (refusal.rule, refusal.clause) == ("R1", STEPS[profile])
        assert "Choose another name, or open an update" in (refusal.hint or "")
    desk.do(K.OPEN, "stranger", name="demo2", status=T.PERMANENT, fields=COMPLETE, profile=profile)


@pytest.mark.requirement("rfc7595-7.2-q")
def test_instead_the_entry_that_there_is_can_be_updated() -> None:
    desk = Desk("rfc7595", entry=T.PERMANENT, fields=COMPLETE)
    desk.opened(kind=KIND.UPDATE)
    assert desk.request().kind is KIND.UPDATE


@pytest.mark.requirement("rfc4395-5.1-e", "rfc4395-5.2-n", "rfc4395-5.2-c", "rfc7595-7.2-c", "rfc7595-7.2-s")
@BOTH
def test_the_registrant_posts_the_request_to_the_list_and_four_weeks_are_due(profile: str) -> None:
    desk = Desk(profile)
    desk.opened(T.PERMANENT)
    desk.only_for(("owner",), K.ANNOUNCE, archive="https://mailarchive.example/1")
    done = desk.do(K.ANNOUNCE, "owner", archive="https://mailarchive.example/1")
    assert (done.rule, done.clause) == ("R2", f"{STEPS[profile]} item 3")
    request = desk.request()
    assert (request.state, request.announced, request.archive) == (
        S.LIST_REVIEW,
        desk.at,
        "https://mailarchive.example/1",
    )
    assert request.due == desk.at + FOUR_WEEKS


@pytest.mark.requirement("rfc4395-5.2-c", "rfc7595-7.2-s")
@BOTH
def test_less_than_four_weeks_for_permanent_is_told_to_the_expert(profile: str) -> None:
    desk = Desk(profile)
    desk.opened(T.PERMANENT)
    desk.do(K.ANNOUNCE, "owner")
    desk.at += FOUR_WEEKS / 2
    said = desk.do(K.SUBMIT, "owner").notices
    assert [item.subject for item in said if item.to is Role.EXPERT] == [
        "demo: uri-schemes-1 had less than 28 days of list review"
    ]
    enough = Desk(profile)
    enough.opened(T.PERMANENT)
    enough.do(K.ANNOUNCE, "owner")
    enough.at += FOUR_WEEKS
    assert [notice.to for notice in enough.do(K.SUBMIT, "owner").notices] == [Role.IANA]


@pytest.mark.requirement("rfc4395-5.2-d", "rfc7595-7.2-d")
@BOTH
def test_the_registrant_answers_comments_by_revising_the_request(profile: str) -> None:
    desk = Desk(profile)
    desk.opened(T.PERMANENT)
    desk.do(K.ANNOUNCE, "owner")
    desk.only_for(("owner",), K.REVISE, fields={"contact": "Bo"})
    assert desk.do(K.REVISE, "owner", fields={"contact": "Bo"}, template="second").rule == "R3"
    assert (desk.request().fields["contact"], desk.request().template) == ("Bo", "second")
    desk.do(K.SUBMIT, "owner")
    assert desk.refuses(K.REVISE, "owner", fields={"contact": "Cy"}).code == "registry.not-allowed"
    desk.do(K.CHECK_COMPLETE, "iana")
    desk.do(K.ASK_MORE_REVIEW, "expert", reason="what of IRIs?")
    assert desk.do(K.REVISE, "owner", fields={"encoding": "as IRIs"}).rule == "R3"
    assert desk.state() is S.MORE_REVIEW


@pytest.mark.requirement("rfc4395-5.2-e", "rfc7595-7.2-e")
@BOTH
@pytest.mark.parametrize("status", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL])
def test_the_registrant_submits_to_iana_and_says_for_which_status(profile: str, status: T) -> None:
    desk = Desk(profile)
    desk.opened(status)
    desk.do(K.ANNOUNCE, "owner")
    desk.only_for(("owner",), K.SUBMIT)
    done = desk.do(K.SUBMIT, "owner")
    assert (done.rule, Role.IANA in {notice.to for notice in done.notices}) == ("R4", True)
    assert (desk.request().status, desk.request().holder) == (status, Role.IANA)


@BOTH
def test_readers_open_nothing(profile: str) -> None:
    Desk(profile).only_for(MAKERS, K.OPEN, status=T.PERMANENT, fields=COMPLETE, profile=profile)


# -- IANA's steps


@pytest.mark.requirement("rfc4395-5.2-f", "rfc7595-7.2-f")
@BOTH
def test_iana_rejects_what_is_not_complete_or_cites_what_is_not_there(profile: str) -> None:
    clause = f"{STEPS[profile]} step 1"
    for field in ("contact", "change_controller", "applications", "references"):
        desk = Desk(profile)
        desk.submitted(T.PROVISIONAL, fields={**COMPLETE, field: " "})
        desk.only_for(("iana",), K.CHECK_COMPLETE)
        error = desk.refuses(K.CHECK_COMPLETE, "iana")
        assert (error.code, error.rule, error.clause) == ("registry.incomplete", "I1", clause)
        done = desk.do(K.REJECT_INCOMPLETE, "iana")
        assert (done.rule, done.clause, desk.state(), desk.status) == ("I1", clause, S.REJECTED, None)
        assert (desk.request().outcome, "missing: " in (desk.request().reason or "")) == ("incomplete", True)
    desk = Desk(profile)
    desk.submitted(T.PROVISIONAL)
    desk.only_for(("iana",), K.REJECT_INCOMPLETE, reason="[SPEC] leads nowhere")
    assert desk.refuses(K.REJECT_INCOMPLETE, "iana").code == "registry.missing-data"
    assert desk.do(K.REJECT_INCOMPLETE, "iana", reason="[SPEC] leads nowhere").clause == clause
    assert (desk.state(), desk.status) == (S.REJECTED, None)


@pytest.mark.requirement("rfc4395-5.1-e", "rfc4395-5.2-h", "rfc7595-7.1-c", "rfc7595-7.1-d", "rfc7595-7.2-j")
@BOTH
@pytest.mark.parametrize("status", [T.PERMANENT, T.HISTORICAL])
def test_iana_asks_for_expert_review(profile: str, status: T) -> None:
    desk = Desk(profile)
    desk.submitted(status)
    desk.only_for(("iana",), K.CHECK_COMPLETE)
    done = desk.do(K.CHECK_COMPLETE, "iana")
    assert (done.rule, [notice.to for notice in done.notices]) == ("I4", [Role.EXPERT])
    assert (desk.state(), desk.request().holder) == (S.EXPERT_REVIEW, Role.EXPERT)
    assert desk.status in (None, T.PENDING_REVIEW)


# -- the expert


def _decisions(profile: str) -> Desk:
    desk = Desk(profile)
    desk.received(T.PERMANENT)
    return desk


@pytest.mark.requirement("rfc4395-5.1-a", "rfc7595-7.2-k")
@BOTH
def test_the_expert_alone_evaluates_a_request_under_review(profile: str) -> None:
    events: dict[EventKind, dict[str, str]] = {
        K.APPROVE: {},
        K.APPROVE_AS_PROVISIONAL: {},
        K.ASK_IETF_REVIEW: {},
        K.ASK_MORE_REVIEW: {"reason": "why?"},
        K.REJECT: {"reason": "no"},
    }
    for kind, data in events.items():
        desk = _decisions(profile)
        desk.only_for(("expert",), kind, **data)
        desk.do(kind, "expert", **data)


@pytest.mark.requirement("rfc4395-5.1-g", "rfc7595-7.2-l", "rfc7595-7.2-t", "rfc7595-7.2-n")
@BOTH
def test_the_expert_may_accept_a_request_for_permanent(profile: str) -> None:
    desk = _decisions(profile)
    assert desk.do(K.APPROVE, "expert").rule == "E2"
    assert (desk.state(), desk.status, desk.entry.pending) == (S.APPROVED, T.PERMANENT, ())


@pytest.mark.requirement("rfc4395-5.1-b", "rfc7595-7.2-l", "rfc7595-7.2-u", "rfc7595-7.1-d")
@BOTH
def test_the_expert_may_make_it_provisional_instead(profile: str) -> None:
    desk = _decisions(profile)
    assert desk.do(K.APPROVE_AS_PROVISIONAL, "expert", reason="no standard yet").rule == "E3"
    assert (desk.state(), desk.status) == (S.APPROVED, T.PROVISIONAL)
    other = Desk(profile)
    other.received(T.HISTORICAL)
    assert other.refuses(K.APPROVE_AS_PROVISIONAL, "expert").code == "registry.not-allowed"


@pytest.mark.requirement("rfc4395-5.1-c", "rfc7595-7.2-l", "rfc7595-7.2-v")
@BOTH
def test_the_expert_may_ask_the_ietf_and_the_entry_is_provisional_meanwhile(profile: str) -> None:
    desk = _decisions(profile)
    assert desk.do(K.ASK_IETF_REVIEW, "expert").rule == "E4"
    assert (desk.state(), desk.status, desk.request().holder) == (S.IETF_REVIEW, T.PROVISIONAL, Role.IESG)
    desk.only_for(("iesg",), K.IESG_APPROVE)
    desk.only_for(("iesg",), K.IESG_DECLINE, reason="no consensus")
    assert desk.do(K.IESG_APPROVE, "iesg").rule == "E4"
    assert (desk.state(), desk.status) == (S.APPROVED, T.PERMANENT)


@pytest.mark.requirement("rfc4395-5.1-c", "rfc7595-7.2-v")
@BOTH
def test_what_the_iesg_declines_stays_provisional(profile: str) -> None:
    desk = _decisions(profile)
    desk.do(K.ASK_IETF_REVIEW, "expert")
    desk.do(K.IESG_DECLINE, "iesg", reason="no consensus")
    assert (desk.state(), desk.status, desk.entry.pending) == (S.REJECTED, T.PROVISIONAL, ())


@pytest.mark.requirement("rfc4395-5.2-i", "rfc7595-7.2-l", "rfc7595-7.2-w")
@BOTH
def test_the_expert_may_ask_for_more_review(profile: str) -> None:
    desk = _decisions(profile)
    assert desk.refuses(K.ASK_MORE_REVIEW, "expert").code == "registry.missing-data"
    done = desk.do(K.ASK_MORE_REVIEW, "expert", reason="ask the group")
    assert (done.rule, [notice.to for notice in done.notices]) == ("E1", ["owner"])
    assert (desk.state(), desk.request().holder) == (S.MORE_REVIEW, Role.REGISTRANT)
    desk.only_for(("expert", "owner"), K.RESUME_REVIEW)
    desk.do(K.RESUME_REVIEW, "owner")
    assert desk.state() is S.EXPERT_REVIEW


@pytest.mark.requirement("rfc7595-7.1-f")
def test_the_expert_overrides_neither_the_iesg_nor_the_registry() -> None:
    desk = _decisions("rfc7595")
    desk.do(K.ASK_IETF_REVIEW, "expert")
    for kind in (K.APPROVE, K.APPROVE_AS_PROVISIONAL, K.REJECT, K.IESG_APPROVE, K.IESG_DECLINE):
        desk.refuses(kind, "expert", reason="mine is the last word")
    assert (
        desk.refuses(K.OVERRIDE, "expert", None, status="permanent", reason="so").code
        == "registry.wrong-role"
    )
