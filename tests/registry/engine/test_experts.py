"""The people of a review, the reminders that they get, and the messages of the list review."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.engine import RegistryState, decide_as_logged, iter_due_events, list_allowed_events
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    Decision,
    Event,
    EventKind,
    Request,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import REMINDER_PLANS

from .table import ACTORS, AT, COMPLETE

K, S, T = EventKind, RequestState, Status
ONE = "uri-schemes-1"
DAY = timedelta(days=1)
EVE, EMIL = (Actor(id=name, roles=frozenset({Role.EXPERT})) for name in ("eve", "emil"))
TESS = Actor(id="tess", roles=frozenset({Role.REGISTRANT}))
PEOPLE = {**ACTORS, "eve": EVE, "emil": EMIL, "tess": TESS}


class Desk:
    """A request for permanent, and a clock."""

    def __init__(self, profile: str = "rfc7595") -> None:
        self.book, self.at = RegistryState(), AT
        self.ask(K.OPEN, "owner", status=T.PERMANENT, fields=COMPLETE, profile=profile)

    def ask(self, kind: EventKind, who: str, **data: Any) -> Decision:
        event = Event(kind=kind, registry="uri-schemes", request=ONE, name="demo", data=data)
        return self.book.apply(event, PEOPLE[who], self.at)

    def refuses(self, kind: EventKind, who: str, **data: Any) -> RefusalError:
        before = self.book.requests[ONE]
        with pytest.raises(RefusalError) as caught:
            self.ask(kind, who, **data)
        assert self.book.requests[ONE] == before
        return caught.value

    def to_expert(self) -> Desk:
        self.ask(K.ANNOUNCE, "owner")
        self.at += 28 * DAY
        self.ask(K.SUBMIT, "owner")
        self.ask(K.CHECK_COMPLETE, "iana")
        return self

    def tick(self) -> list[Decision]:
        due = iter_due_events(self.book.requests.values(), self.book.entries.values(), self.at)
        return [self.book.apply(event, IANA_CLOCK, self.at) for event in list(due)]

    @property
    def request(self) -> Request:
        return self.book.requests[ONE]

    def buttons(self, who: str) -> set[EventKind]:
        entry = self.book.entries.get(("uri-schemes", "demo"))
        return set(list_allowed_events(self.request, entry, PEOPLE[who], self.at))


# -- experts


def test_a_request_is_assigned_to_one_expert_who_hands_it_on_and_others_may_still_decide() -> None:
    desk = Desk().to_expert()
    done = desk.ask(K.ASSIGN_EXPERT, "iana", expert="eve")
    assert (desk.request.expert, [notice.to for notice in done.notices]) == ("eve", ["eve"])
    assert desk.request.due is not None
    handed = desk.ask(K.ASSIGN_EXPERT, "eve", expert="emil", reason="away until June")
    assert (desk.request.expert, handed.notices[0].text) == ("emil", "away until June")
    desk.ask(K.ASK_MORE_REVIEW, "eve", reason="how is the host found?")
    assert [notice.to for notice in desk.ask(K.RESUME_REVIEW, "owner").notices] == ["emil"]
    assert desk.ask(K.APPROVE, "eve").rule == "E2"
    assert desk.request.state is S.APPROVED


@pytest.mark.requirement("rfc8126-5.2-a")
def test_an_expert_with_a_conflict_of_interest_decides_nothing_about_that_request() -> None:
    desk = Desk().to_expert()
    desk.ask(K.ASSIGN_EXPERT, "iana", expert="eve")
    done = desk.ask(K.RECUSE, "eve", reason="I wrote the specification", experts_left=1)
    assert (desk.request.recused, desk.request.expert) == (frozenset({"eve"}), None)
    assert {notice.to for notice in done.notices} == {Role.EXPERT, Role.IANA}
    assert desk.buttons("eve").isdisjoint({K.APPROVE, K.REJECT, K.ASK_MORE_REVIEW, K.ASSIGN_EXPERT, K.RECUSE})
    for kind in (K.APPROVE, K.REJECT, K.RECUSE, K.ASK_IETF_REVIEW):
        assert desk.refuses(kind, "eve", reason="x").code == "registry.recused", kind
    assert desk.refuses(K.ASSIGN_EXPERT, "iana", expert="eve").code == "registry.recused"
    assert desk.refuses(K.APPOINT_EXPERT, "iesg", expert="eve", reason="x").code == "registry.recused"
    assert desk.ask(K.APPROVE, "emil").rule == "E2"


@pytest.mark.requirement("rfc8126-5.2-b")
def test_where_every_expert_is_recused_the_iesg_appoints_one_for_the_request() -> None:
    desk = Desk().to_expert()
    done = desk.ask(K.RECUSE, "eve", reason="an author", experts_left=0)
    assert {notice.to for notice in done.notices} == {Role.EXPERT, Role.IANA, Role.IESG}
    assert desk.refuses(K.APPROVE, "tess").code == "registry.wrong-role"
    assert desk.refuses(K.APPOINT_EXPERT, "iana", expert="tess", reason="x").code == "registry.wrong-role"
    desk.ask(K.APPOINT_EXPERT, "iesg", expert="tess", reason="knows the protocol")
    assert {K.APPROVE, K.REJECT, K.ASK_MORE_REVIEW, K.RECUSE} <= desk.buttons("tess")
    assert K.CHECK_COMPLETE not in desk.buttons("tess")
    desk.ask(K.RECUSE, "tess", reason="an author too")
    assert desk.refuses(K.APPROVE, "tess").code in {"registry.recused", "registry.wrong-role"}
    desk.ask(K.APPOINT_EXPERT, "iesg", expert="owner", reason="nobody else is left")
    assert desk.ask(K.APPROVE, "owner").rule == "E2"


@pytest.mark.parametrize("data", [{}, {"expert": ""}, {"expert": "a b"}, {"expert": 5}, {"expert": ["eve"]}])
def test_an_assignment_names_one_account(data: dict[str, Any]) -> None:
    desk = Desk().to_expert()
    assert desk.refuses(K.ASSIGN_EXPERT, "iana", **data).code in {
        "registry.bad-data", "registry.missing-data",
    }  # fmt: skip


# -- reminders


@pytest.mark.requirement("rfc8126-5.3-a")
def test_an_overdue_expert_is_reminded_and_then_iana_and_the_iesg_are_told() -> None:
    desk = Desk().to_expert()
    desk.ask(K.ASSIGN_EXPERT, "iana", expert="eve")
    due = desk.request.due
    assert due is not None
    desk.at = due - DAY
    assert desk.tick() == []
    desk.at = due
    first = desk.tick()
    assert [(done.rule, [notice.to for notice in done.notices]) for done in first] == [("T2", ["eve"])]
    assert desk.tick() == []
    desk.at += 7 * DAY
    second = desk.tick()
    assert [done.rule for done in second] == ["T3"]
    assert [notice.to for notice in second[0].notices] == ["eve", Role.IANA, Role.IESG]
    assert (desk.request.state, desk.request.due, desk.request.reminded) == (S.EXPERT_REVIEW, due, 2)


def test_reminders_end_and_start_anew_with_the_next_step() -> None:
    desk = Desk()
    sent = 0
    for _ in range(400):
        desk.at += DAY
        sent += len(desk.tick())
    assert sent == REMINDER_PLANS[S.DRAFT].most
    desk.ask(K.ANNOUNCE, "owner")
    assert desk.request.reminded == 0
    desk.at += 28 * DAY
    (done,) = desk.tick()
    assert [notice.to for notice in done.notices] == ["owner"]


def test_a_clock_that_stood_still_sends_one_reminder_not_all_of_them() -> None:
    desk = Desk().to_expert()
    desk.at += 400 * DAY
    assert len(desk.tick()) == 1
    assert desk.tick() == []


def test_nobody_is_reminded_while_silence_itself_decides() -> None:
    desk = Desk("rfc4395").to_expert()
    desk.at += 14 * DAY
    assert [done.rule for done in desk.tick()] == ["T1"]
    assert desk.tick() == []
    desk.at += 7 * DAY
    assert [done.rule for done in desk.tick()] == ["T2"]


def test_a_reminder_that_is_not_due_is_refused_and_nobody_may_send_one_by_hand() -> None:
    desk = Desk()
    assert desk.refuses(K.REMIND, "iana").code == "registry.not-allowed"
    desk.at += 31 * DAY
    assert desk.refuses(K.REMIND, "owner").code == "registry.wrong-role"


# -- the list's archive


def message(number: int, at: str = "2026-02-01T00:00:00Z", **changes: Any) -> dict[str, Any]:
    return {"url": f"https://list.example/{number}", "subject": f"Re: {number}", "at": at, **changes}


def test_messages_of_the_archive_start_list_review_and_are_linked_once() -> None:
    desk = Desk()
    later = (desk.at + 5 * DAY).isoformat().replace("+00:00", "Z")
    desk.at += 10 * DAY
    done = desk.ask(K.LINK_MESSAGES, "iana", messages=[message(1, later)], announce=True)
    request = desk.request
    assert (done.rule, request.state, request.archive) == ("R2", S.LIST_REVIEW, "https://list.example/1")
    assert request.announced == AT + 5 * DAY
    assert request.due == AT + 33 * DAY
    desk.ask(K.LINK_MESSAGES, "iana", messages=[message(2), message(1)])
    assert [item.url for item in desk.request.messages] == [
        "https://list.example/2",
        "https://list.example/1",
    ]
    assert desk.refuses(K.LINK_MESSAGES, "iana", messages=[message(1)]).code == "registry.bad-data"
    assert codec.from_data(Request, codec.to_data(desk.request)) == desk.request


@pytest.mark.parametrize("day", ["1999-01-01T00:00:00Z", "2199-01-01T00:00:00Z"])
def test_a_message_cannot_move_the_start_of_list_review_out_of_the_life_of_the_request(day: str) -> None:
    desk = Desk()
    desk.at += DAY
    desk.ask(K.LINK_MESSAGES, "iana", messages=[message(1, day)], announce=True)
    assert desk.request.announced in (AT, AT + DAY)


@pytest.mark.parametrize(
    "messages",
    [
        [], "x", {}, [5], [{}], [message(1, url="http://list.example/")], [message(1, url="https://a b/")],
        [message(1, url="https://" + "a" * 600)], [message(1, subject="a\nb")],
        [message(1, subject="x" * 301)],
        [message(1, at="yesterday")], [message(1, at=None)], [message(1, at="2026-01-01T00:00:00")],
        [message(1, more="x")], [message(n) for n in range(201)],
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(messages: Any) -> None:
    assert Desk().refuses(K.LINK_MESSAGES, "iana", messages=messages).code == "registry.bad-data"


def test_a_request_has_at_most_200_messages() -> None:
    desk = Desk()
    desk.ask(K.LINK_MESSAGES, "iana", messages=[message(number) for number in range(200)])
    assert desk.refuses(K.LINK_MESSAGES, "iana", messages=[message(200)]).code == "registry.too-large"


# -- older logs


def test_a_log_in_which_an_incomplete_request_was_checked_still_replays() -> None:
    book = RegistryState()
    about: dict[str, Any] = {"registry": "uri-schemes", "request": ONE, "name": "demo"}
    book.apply(
        Event(kind=K.OPEN, data={"status": "provisional", "fields": {"contact": "Ada"}}, **about),
        ACTORS["owner"], AT,
    )  # fmt: skip
    book.apply(Event(kind=K.SUBMIT, **about), ACTORS["owner"], AT)
    checked = Event(kind=K.CHECK_COMPLETE, **about)
    with pytest.raises(RefusalError) as caught:
        book.apply(checked, ACTORS["iana"], AT)
    assert caught.value.code == "registry.incomplete"
    subjects = dict(zip(("request", "entry"), book.find_subjects(checked), strict=True))
    older = decide_as_logged(checked, ACTORS["iana"], AT, rule="I1", **subjects)
    assert older is not None
    assert older.request is not None
    assert (older.request.state, older.request.outcome) == (S.REJECTED, "incomplete")
    for rule, who in (("I3", "iana"), ("I1", "owner")):
        assert decide_as_logged(checked, ACTORS[who], AT, rule=rule, **subjects) is None
