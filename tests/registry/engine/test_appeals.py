"""Appeals (RFC 8126 10): for the registrant and against the case, to the IESG and then to the IAB."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onym.registry import codec
from onym.registry.records import Actor, Event, EventKind, Request, RequestState, Role, Status
from onym.registry.registries import APPEAL_TIME, APPEAL_WINDOW

from .table import ACTORS
from .test_experts import DAY, PEOPLE, Desk

K, S, T = EventKind, RequestState, Status
IAB = "https://iab.example/appeals/1"


def rejected() -> Desk:
    desk = Desk().to_expert()
    desk.ask(K.REJECT, "eve", reason="too general")
    return desk


def approved() -> Desk:
    desk = Desk().to_expert()
    desk.ask(K.APPROVE, "eve", reason="clear")
    return desk


@pytest.mark.requirement("rfc8126-10-a")
def test_a_registrant_appeals_a_rejection_and_wins_a_new_check() -> None:
    desk = rejected()
    desk.at += 10 * DAY
    done = desk.ask(K.APPEAL, "owner", reason="the expert read another draft")
    assert (done.rule, done.clause) == ("A1", "RFC 8126 10")
    assert {Role.IESG, Role.EXPERT} == {notice.to for notice in done.notices}
    assert all(notice.text == "the expert read another draft" for notice in done.notices)
    appeal = desk.request.appeals[0]
    assert (desk.request.state, desk.request.holder, desk.request.due) == (
        S.APPEAL, Role.IESG, desk.at + APPEAL_TIME,
    )  # fmt: skip
    assert (appeal.for_registrant, appeal.against, appeal.state) == (True, S.REJECTED, "pending")
    for who in ("owner", "eve", "iana", "stranger"):
        assert desk.refuses(K.UPHOLD_APPEAL, who, reason="x").code == "registry.wrong-role", who
    desk.ask(K.UPHOLD_APPEAL, "iesg", reason="it was another draft")
    assert (desk.request.state, desk.request.holder, desk.request.outcome) == (S.SUBMITTED, Role.IANA, None)
    assert desk.request.appeals[0].state == "upheld"
    assert codec.from_data(Request, codec.to_data(desk.request)) == desk.request
    desk.ask(K.CHECK_COMPLETE, "iana")
    desk.ask(K.APPROVE, "emil")
    assert desk.book.entries["uri-schemes", "demo"].status is T.PERMANENT


@pytest.mark.parametrize(
    ("remedy", "state", "status"),
    [
        ("note", S.APPROVED, T.PERMANENT), ("provisional", S.APPROVED, T.PROVISIONAL),
        ("remove", S.REJECTED, None),
    ],
)  # fmt: skip
def test_somebody_else_appeals_against_a_registration(
    remedy: str, state: RequestState, status: Status | None
) -> None:
    desk = approved()
    done = desk.ask(K.APPEAL, "stranger", reason="the name is our trademark")
    assert {notice.to for notice in done.notices} == {"owner", Role.IESG, Role.EXPERT}
    assert desk.request.appeals[0].for_registrant is False
    # the registration stands until the answer
    assert desk.book.entries["uri-schemes", "demo"].status is T.PERMANENT
    assert desk.refuses(K.UPHOLD_APPEAL, "iesg", reason="it is").code == "registry.missing-data"
    for wrong in ("pending-review", "erase", "active"):
        assert desk.refuses(K.UPHOLD_APPEAL, "iesg", reason="it is", remedy=wrong).code == "registry.bad-data"
    desk.ask(K.UPHOLD_APPEAL, "iesg", reason="it is a trademark", remedy=remedy)
    entry = desk.book.entries.get(("uri-schemes", "demo"))
    assert (desk.request.state, None if entry is None else entry.status) == (state, status)
    assert entry is None or [(note.kind, note.text) for note in entry.notes] == [
        ("appeal", "it is a trademark")
    ]


def test_an_entry_that_the_request_did_not_make_is_not_removed_by_an_appeal() -> None:
    desk = approved()
    other = {"registry": "uri-schemes", "request": "uri-schemes-2", "name": "demo"}

    def step(kind: EventKind, who: str, /, **data: Any) -> None:
        desk.book.apply(Event(kind=kind, data=data, **other), ACTORS[who], desk.at)

    step(K.OPEN, "owner", kind="update", fields={"contact": "Bo <bo@example.com>"})
    step(K.ANNOUNCE, "owner")
    step(K.SUBMIT, "owner")
    step(K.CHECK_COMPLETE, "iana")
    step(K.APPROVE, "expert")
    step(K.APPEAL, "stranger", reason="Bo is unknown")
    with pytest.raises(Exception, match="is removed") as caught:
        step(K.UPHOLD_APPEAL, "iesg", reason="so it is", remedy="remove")
    assert getattr(caught.value, "code", "") == "registry.bad-data"


@pytest.mark.requirement("rfc8126-10-b")
def test_after_the_iesg_the_appellant_goes_to_the_iab_whose_answer_iana_records() -> None:
    desk = rejected()
    decided = desk.request.since
    desk.ask(K.APPEAL, "owner", reason="no")
    desk.at += 20 * DAY
    desk.ask(K.DISMISS_APPEAL, "iesg", reason="the expert was right")
    assert (desk.request.state, desk.request.since, desk.request.reason) == (
        S.REJECTED, decided, "too general",
    )  # fmt: skip
    # once is enough, and another person's way to the IAB is an appeal of their own
    assert desk.refuses(K.APPEAL, "owner", reason="again").code == "registry.not-allowed"
    assert desk.refuses(K.APPEAL_TO_IAB, "stranger", reason="x").code == "registry.wrong-role"
    desk.ask(K.APPEAL_TO_IAB, "owner", reason="the IESG missed the point")
    assert (desk.request.state, desk.request.holder) == (S.APPEAL, Role.IANA)
    assert desk.refuses(K.DISMISS_APPEAL, "iesg", reason="x").code == "registry.wrong-role"
    assert desk.refuses(K.DISMISS_APPEAL, "iana", reason="x").field == "reference"
    desk.ask(K.DISMISS_APPEAL, "iana", reason="the IAB agrees", reference=IAB)
    assert desk.request.appeals[-1].reason == f"the IAB agrees [{IAB}]"
    assert desk.refuses(K.APPEAL_TO_IAB, "owner", reason="x").code == "registry.not-allowed"


def test_a_registrant_whose_registration_was_overturned_goes_to_the_iab() -> None:
    desk = approved()
    desk.ask(K.APPEAL, "stranger", reason="a trademark")
    desk.at += DAY
    desk.ask(K.UPHOLD_APPEAL, "iesg", reason="so it is", remedy="remove")
    assert desk.refuses(K.APPEAL_TO_IAB, "stranger", reason="x").code == "registry.wrong-role"
    desk.ask(K.APPEAL_TO_IAB, "owner", reason="the trademark has lapsed")
    desk.ask(K.UPHOLD_APPEAL, "iana", reason="it has", reference=IAB)
    desk.ask(K.CHECK_COMPLETE, "iana")
    desk.ask(K.APPROVE, "emil")
    assert desk.book.entries["uri-schemes", "demo"].status is T.PERMANENT


def test_the_time_to_appeal_ends_and_another_persons_appeal_extends_it() -> None:
    desk = rejected()
    start = desk.at
    desk.at = start + APPEAL_WINDOW + timedelta(seconds=1)
    late = desk.refuses(K.APPEAL, "owner", reason="x")
    assert (late.code, late.clause) == ("registry.not-allowed", "RFC 8126 10")
    assert K.APPEAL not in desk.buttons("owner")
    desk.at = start + APPEAL_WINDOW
    desk.ask(K.APPEAL, "stranger", reason="it served us")
    desk.at += 60 * DAY
    desk.ask(K.DISMISS_APPEAL, "iesg", reason="no")
    desk.ask(K.APPEAL, "owner", reason="I waited for that answer")
    assert desk.request.state is S.APPEAL


def test_an_appeal_is_withdrawn_by_its_appellant_and_the_decision_stands() -> None:
    desk = rejected()
    desk.ask(K.APPEAL, "owner", reason="no")
    assert desk.refuses(K.WITHDRAW_APPEAL, "stranger").code == "registry.wrong-role"
    desk.ask(K.WITHDRAW_APPEAL, "owner")
    assert (desk.request.state, desk.request.appeals[0].state) == (S.REJECTED, "withdrawn")


def test_strangers_cannot_fill_the_appeals_of_a_request_so_that_its_registrant_has_none_left() -> None:
    desk = rejected()
    for number in range(16):
        PEOPLE[f"p{number}"] = Actor(id=f"p{number}", roles=frozenset({Role.REGISTRANT}))
        desk.ask(K.APPEAL, f"p{number}", reason="spam")
        desk.ask(K.DISMISS_APPEAL, "iesg", reason="no")
    assert desk.refuses(K.APPEAL, "stranger", reason="x").code == "registry.not-allowed"
    desk.ask(K.APPEAL, "owner", reason="mine counts")


def test_an_appeal_that_waits_too_long_is_reminded_of() -> None:
    desk = rejected()
    desk.ask(K.APPEAL, "owner", reason="no")
    desk.at += APPEAL_TIME
    (done,) = desk.tick()
    assert (done.rule, [notice.to for notice in done.notices]) == ("T2", [Role.IESG])
    desk.at += 14 * DAY
    (again,) = desk.tick()
    assert (again.rule, [notice.to for notice in again.notices]) == ("T3", [Role.IESG, Role.IANA])


@pytest.mark.parametrize("reason", ["", " ", "\u200b", "x" * 10_001, 5, None])
def test_an_appeal_has_grounds(reason: Any) -> None:
    code = rejected().refuses(K.APPEAL, "owner", reason=reason).code
    assert code in {"registry.missing-data", "registry.too-large", "registry.bad-data"}
