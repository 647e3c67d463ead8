"""The state machine as the two RFCs tell it, written down a second time: what each step leads to.

A `Scene` is one kind of request beside one kind of entry. A `Step` says: this event, in these states, in
these scenes, under this profile, by these people, is that rule and leads there. What no step names is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onym.registry.engine import RegistryState
from onym.registry.records import (
    Actor,
    Appeal,
    AppealLevel,
    AppealState,
    Entry,
    EventKind,
    LogRecord,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)

K, S, R, T = EventKind, RequestState, RequestKind, Status

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ASKED = AT - timedelta(days=15)

COMPLETE = {
    "syntax": "the rule", "semantics": "a thing", "encoding": "UTF-8", "applications": "apps",
    "interoperability": "none known", "security": "as RFC 3986 7", "contact": "Ada <ada@example.com>",
    "change_controller": "Ada <ada@example.com>", "references": "[RFC3986]",
}  # fmt: skip

ACTORS = {
    "owner": Actor(id="owner", roles=frozenset({Role.REGISTRANT})),
    "designee": Actor(id="designee", roles=frozenset({Role.REGISTRANT})),
    "stranger": Actor(id="stranger", roles=frozenset({Role.REGISTRANT})),
    "iana": Actor(id="iana", roles=frozenset({Role.IANA})),
    "expert": Actor(id="expert", roles=frozenset({Role.EXPERT})),
    "iesg": Actor(id="iesg", roles=frozenset({Role.IESG})),
    "reader": Actor(id="reader", roles=frozenset({Role.READER})),
    "nobody": Actor(id="nobody"),
}

REVIEW = (S.EXPERT_REVIEW, S.MORE_REVIEW)
LIVE = (S.DRAFT, S.LIST_REVIEW, S.SUBMITTED, *REVIEW, S.IETF_REVIEW)
BOTH = ("rfc4395", "rfc7595")


def _appeal(against: RequestState, state: AppealState, decided: datetime | None) -> Appeal:
    return Appeal(
        by="owner", grounds="it was complete", level=AppealLevel.IESG, against=against, decision=ASKED,
        filed=ASKED, due=AT, for_registrant=True, state=state, decided=decided,
    )  # fmt: skip


#: the owner's appeal: pending against a rejection, or dismissed by the IESG
APPEALS = {
    S.APPEAL: _appeal(S.REJECTED, AppealState.PENDING, None),
    S.APPROVED: _appeal(S.APPROVED, AppealState.DISMISSED, ASKED),
}


@dataclass(frozen=True)
class Scene:
    """A request of `kind` for `wanted`, beside an entry of `status` (None: no entry)."""

    name: str
    kind: RequestKind
    wanted: Status
    status: Status | None = None
    iesg: bool = False
    complete: bool = True

    def entry(self, profile: str, state: RequestState) -> Entry | None:
        shown = profile == "rfc7595" and state in (*REVIEW, S.IETF_REVIEW)
        status, pending = self.status, ()
        if status is None and shown:
            # E4 makes the row provisional meanwhile
            status = T.PROVISIONAL if state is S.IETF_REVIEW else T.PENDING_REVIEW
        if status is None and state is S.IETF_REVIEW:
            status = T.PROVISIONAL
        if status is None:
            return None
        if shown or (self.status is None and state is S.IETF_REVIEW):
            pending = ("uri-schemes-1",)
        return Entry(
            registry="uri-schemes", name="demo", status=status, registrant="owner", pending=pending,
            designees=frozenset({"designee"}), iesg_approved=self.iesg, version=3,
        )  # fmt: skip

    def request(self, profile: str, state: RequestState, **changes: object) -> Request:
        asked = ASKED if state in (*REVIEW, S.IETF_REVIEW) else None
        base: dict[str, object] = {
            "id": "uri-schemes-1", "registry": "uri-schemes", "profile": profile, "kind": self.kind,
            "name": "demo", "status": self.wanted, "state": state, "registrant": "owner",
            "fields": COMPLETE if self.complete else {"contact": "Ada"}, "opened": ASKED, "since": ASKED,
            "announced": ASKED, "expert_asked": asked, "version": 4,
            "outcome": "incomplete" if state is S.REJECTED else None,
        }  # fmt: skip
        if state is S.EXPERT_REVIEW:
            # overdue, and its expert was reminded once
            base |= {"due": AT - timedelta(days=8), "reminded": 1, "reminded_at": AT - timedelta(days=8)}
        if state in APPEALS:
            base["appeals"] = (APPEALS[state],)
        return Request(**{**base, **changes})  # type: ignore[arg-type]


SCENES = {
    scene.name: scene
    for scene in (
        Scene("new permanent", R.NEW, T.PERMANENT),
        Scene("new provisional", R.NEW, T.PROVISIONAL),
        Scene("new historical", R.NEW, T.HISTORICAL),
        Scene("new, incomplete", R.NEW, T.PROVISIONAL, complete=False),
        Scene("new, taken", R.NEW, T.PROVISIONAL, T.PERMANENT),
        Scene("update provisional", R.UPDATE, T.PROVISIONAL, T.PROVISIONAL),
        Scene("update permanent", R.UPDATE, T.PERMANENT, T.PERMANENT),
        Scene("update of the IESG's", R.UPDATE, T.PERMANENT, T.PERMANENT, iesg=True),
        Scene("upgrade", R.STATUS_CHANGE, T.PERMANENT, T.PROVISIONAL),
        Scene("retire provisional", R.STATUS_CHANGE, T.HISTORICAL, T.PROVISIONAL),
        Scene("retire permanent", R.STATUS_CHANGE, T.HISTORICAL, T.PERMANENT),
        Scene("separate use", R.SEPARATE_USE, T.PROVISIONAL, T.PERMANENT),
        Scene("reassign", R.REASSIGN, T.PROVISIONAL, T.PROVISIONAL),
    )
}
NEW = ("new permanent", "new provisional", "new historical")
FREE = (*NEW, "new, incomplete")
EXISTING = tuple(name for name in SCENES if name not in FREE)
ALL = tuple(SCENES)


@dataclass(frozen=True)
class Step:
    """`entry` is the entry's status after it: a Status, "same" (untouched), "gone" or "kept" (touched)."""

    event: EventKind
    rule: str
    states: tuple[RequestState, ...]
    actors: tuple[str, ...]
    leads_to: RequestState | None
    entry: Status | str = "same"
    scenes: tuple[str, ...] = ALL
    profiles: tuple[str, ...] = BOTH


P4, P7 = ("rfc4395",), ("rfc7595",)
OWNER, IANA, EXPERT, IESG = ("owner",), ("iana",), ("expert",), ("iesg",)
OTHERS = ("designee", "stranger", "iana", "expert", "iesg")
ASKED_OF_EXPERTS = (S.SUBMITTED, *REVIEW)
#: 7595: what goes to the expert on receipt, and what it does to the row
_ON_RECEIPT = (S.SUBMITTED,)

STEPS: tuple[Step, ...] = (
    # the registrant's
    Step(K.ANNOUNCE, "R2", (S.DRAFT,), OWNER, S.LIST_REVIEW),
    Step(K.REVISE, "R3", (S.DRAFT, S.LIST_REVIEW), OWNER, S.DRAFT),
    Step(K.REVISE, "R3", (S.MORE_REVIEW,), OWNER, S.MORE_REVIEW),
    Step(K.SUBMIT, "R4", (S.DRAFT, S.LIST_REVIEW), OWNER, S.SUBMITTED),
    Step(K.RESUBMIT, "I1", (S.REJECTED,), OWNER, S.SUBMITTED, profiles=P7),
    Step(K.WITHDRAW, "W1", LIVE, OWNER, S.WITHDRAWN, "released"),
    # IANA's
    Step(K.REJECT_INCOMPLETE, "I1", _ON_RECEIPT, IANA, S.REJECTED),
    Step(K.CHECK_COMPLETE, "I2", _ON_RECEIPT, IANA, S.REJECTED, scenes=("new, taken",), profiles=P4),
    Step(K.CHECK_COMPLETE, "I3", _ON_RECEIPT, IANA, S.APPROVED, T.PROVISIONAL,
         scenes=("new provisional", "update provisional"), profiles=P7),
    Step(K.CHECK_COMPLETE, "S3", _ON_RECEIPT, IANA, S.APPROVED, T.HISTORICAL, scenes=("retire provisional",)),
    Step(K.CHECK_COMPLETE, "S2", _ON_RECEIPT, IANA, S.IETF_REVIEW, scenes=("retire permanent", "reassign")),
    Step(K.CHECK_COMPLETE, "S2", _ON_RECEIPT, IANA, S.IETF_REVIEW, scenes=("separate use",), profiles=P4),
    Step(K.CHECK_COMPLETE, "I4", _ON_RECEIPT, IANA, S.EXPERT_REVIEW, profiles=P4,
         scenes=(*NEW, "update provisional", "update permanent", "update of the IESG's", "upgrade")),
    Step(K.CHECK_COMPLETE, "I4", _ON_RECEIPT, IANA, S.EXPERT_REVIEW, T.PENDING_REVIEW, profiles=P7,
         scenes=("new permanent", "new historical")),
    Step(K.CHECK_COMPLETE, "I4", _ON_RECEIPT, IANA, S.EXPERT_REVIEW, "kept", profiles=P7,
         scenes=("new, taken", "update permanent", "update of the IESG's", "upgrade", "separate use")),
    # the expert's
    Step(K.ASK_MORE_REVIEW, "E1", (S.EXPERT_REVIEW,), EXPERT, S.MORE_REVIEW),
    Step(K.RESUME_REVIEW, "E1", (S.MORE_REVIEW,), ("expert", "owner"), S.EXPERT_REVIEW),
    Step(K.REJECT, "E5", REVIEW, EXPERT, S.REJECTED, "released"),
    Step(K.APPROVE, "E6", REVIEW, EXPERT, S.APPROVED, "kept", ("new, taken", "separate use"), P7),
    Step(K.APPROVE, "U2", REVIEW, EXPERT, S.IETF_REVIEW, scenes=("update of the IESG's",)),
    Step(K.APPROVE, "S1", REVIEW, EXPERT, S.APPROVED, T.PERMANENT, scenes=("upgrade",)),
    Step(K.APPROVE, "S4", REVIEW, EXPERT, S.APPROVED, T.HISTORICAL, scenes=("new historical",)),
    Step(K.APPROVE, "E2", REVIEW, EXPERT, S.APPROVED, T.PERMANENT,
         scenes=("new permanent", "update permanent")),
    Step(K.APPROVE, "E2", REVIEW, EXPERT, S.APPROVED, T.PROVISIONAL,
         scenes=("new provisional", "new, incomplete", "update provisional", "reassign")),
    Step(K.APPROVE, "E2", REVIEW, EXPERT, S.APPROVED, T.HISTORICAL,
         scenes=("retire provisional", "retire permanent")),
    Step(K.APPROVE_AS_PROVISIONAL, "E3", REVIEW, EXPERT, S.APPROVED, T.PROVISIONAL,
         scenes=("new permanent",)),
    Step(K.ASK_IETF_REVIEW, "E4", REVIEW, EXPERT, S.IETF_REVIEW, T.PROVISIONAL,
         scenes=("new permanent", "upgrade")),
    # the IESG's
    Step(K.IESG_DECLINE, "E4", (S.IETF_REVIEW,), IESG, S.REJECTED, "released"),
    Step(K.IESG_APPROVE, "E6", (S.IETF_REVIEW,), IESG, S.APPROVED, "kept", ("separate use",), P4),
    Step(K.IESG_APPROVE, "U3", (S.IETF_REVIEW,), IESG, S.APPROVED, "kept", ("reassign",)),
    Step(K.IESG_APPROVE, "U2", (S.IETF_REVIEW,), IESG, S.APPROVED, T.PROVISIONAL, ("update provisional",)),
    Step(K.IESG_APPROVE, "U2", (S.IETF_REVIEW,), IESG, S.APPROVED, T.PERMANENT,
         ("update permanent", "update of the IESG's")),
    Step(K.IESG_APPROVE, "S2", (S.IETF_REVIEW,), IESG, S.APPROVED, T.HISTORICAL,
         ("retire provisional", "retire permanent")),
    Step(K.IESG_APPROVE, "E4", (S.IETF_REVIEW,), IESG, S.APPROVED, T.PERMANENT, ("new permanent", "upgrade")),
    # the clock's: 14 days have passed in each scene
    Step(K.REVIEW_TIMEOUT, "T1", REVIEW, IANA, S.TIMED_OUT, T.PROVISIONAL,
         ("new provisional", "new, incomplete", "update provisional"), P4),
    Step(K.REVIEW_TIMEOUT, "T1", REVIEW, IANA, None, T.PROVISIONAL, ("new permanent",), P4),
    Step(K.REVIEW_TIMEOUT, "T1", REVIEW, IANA, None, "same",
         ("new historical", "new, taken", "update permanent", "update of the IESG's", "upgrade",
          "retire provisional", "retire permanent", "separate use", "reassign"), P4),
    Step(K.REMIND, "T2", (S.SUBMITTED,), IANA, None),
    Step(K.REMIND, "T3", (S.EXPERT_REVIEW,), IANA, None, profiles=P7),
    # the people of the review
    Step(K.ASSIGN_EXPERT, "E7", ASKED_OF_EXPERTS, ("iana", "expert"), None),
    Step(K.RECUSE, "E8", ASKED_OF_EXPERTS, EXPERT, None),
    Step(K.APPOINT_EXPERT, "E9", ASKED_OF_EXPERTS, IESG, None),
    Step(K.LINK_MESSAGES, "R2", LIVE, ("iana", "expert"), None),
    # appeals
    Step(K.APPEAL, "A1", (S.REJECTED, S.TIMED_OUT), (*OWNER, *OTHERS), S.APPEAL),
    Step(K.APPEAL, "A1", (S.APPROVED,), OTHERS, S.APPEAL),
    Step(K.APPEAL_TO_IAB, "A2", (S.APPROVED,), OWNER, S.APPEAL),
    Step(K.WITHDRAW_APPEAL, "A3", (S.APPEAL,), OWNER, S.REJECTED),
    Step(K.UPHOLD_APPEAL, "A4", (S.APPEAL,), IESG, S.SUBMITTED),
    Step(K.DISMISS_APPEAL, "A5", (S.APPEAL,), IESG, S.REJECTED),
)  # fmt: skip

#: what an event must bring, so that it is refused for no other reason
DATA: dict[EventKind, dict[str, object]] = {
    K.REJECT_INCOMPLETE: {"reason": "a citation is wrong"},
    K.ASK_MORE_REVIEW: {"reason": "ask the group"},
    K.REJECT: {"reason": "too general"},
    K.IESG_DECLINE: {"reason": "no consensus"},
    K.ASSIGN_EXPERT: {"expert": "eve"},
    K.APPOINT_EXPERT: {"expert": "eve", "reason": "all are authors"},
    K.RECUSE: {"reason": "an author"},
    K.LINK_MESSAGES: {
        "messages": [{"url": "https://list.example/1", "subject": "demo", "at": "2026-02-20T00:00:00Z"}]
    },
    K.APPEAL: {"reason": "it was complete"},
    K.APPEAL_TO_IAB: {"reason": "the IESG did not answer the point"},
    K.UPHOLD_APPEAL: {"reason": "it was complete"},
    K.DISMISS_APPEAL: {"reason": "it was not complete"},
}
#: events about requests; the rest are about entries
REQUEST_EVENTS = tuple(dict.fromkeys(step.event for step in STEPS))


def expected(event: EventKind, scene: str, profile: str, state: RequestState, actor: str) -> Step | None:
    """The one step that says what happens, None where it must be refused."""
    found = [
        step for step in STEPS
        if step.event is event and state in step.states and scene in step.scenes
        and profile in step.profiles and actor in step.actors
    ]  # fmt: skip
    assert len(found) < 2, found
    return found[0] if found else None


def cases() -> Iterator[tuple[str, str]]:
    """Every (scene, profile)."""
    for scene in SCENES:
        for profile in BOTH:
            yield scene, profile


def replay(log: Iterable[LogRecord]) -> RegistryState:
    """The registry that the log makes; each record is decided by the rule that it names."""
    book = RegistryState()
    for record in log:
        assert book.apply(record.event, record.actor, record.at).rule == record.rule
    return book
