"""Anybody does anything at any time: no promise becomes unreachable, and the log tells the same story."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from chain_support import verify_chain
from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.codec import seal_record
from onym.registry.engine import RegistryState, iter_due_events, list_allowed_events
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    Entry,
    Event,
    EventKind,
    LogRecord,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import REGISTRIES

from .table import AT, COMPLETE, replay

K, S, T = EventKind, RequestState, Status
FINAL = {S.APPROVED, S.REJECTED, S.WITHDRAWN, S.TIMED_OUT}
PEOPLE = [
    Actor(id=name, roles=roles)
    for name, roles in (
        ("ada", frozenset({Role.REGISTRANT})),
        ("bo", frozenset({Role.REGISTRANT})),
        ("iana", frozenset({Role.IANA})),
        ("expert", frozenset({Role.EXPERT, Role.REGISTRANT})),
        ("iesg", frozenset({Role.IESG})),
        ("reader", frozenset({Role.READER})),
    )
]
BY_ROLE = {Role.IANA: PEOPLE[2], Role.EXPERT: PEOPLE[3], Role.IESG: PEOPLE[4]}
NAMES = {
    "uri-schemes": ["llm", "ai", "coap"],
    "llm-parameters": ["temp", "Temp"],
    "ai-namespaces": ["bank", "shop"],
}
FIELDS = {
    "uri-schemes": COMPLETE,
    "llm-parameters": {
        "type": "int", "description": "d", "contact": "c", "change_controller": "c", "reference": "r",
    },
    "ai-namespaces": {
        "anchor": "https://a.example", "description": "d", "contact": "c", "change_controller": "c",
        "expires": "2026-09-01",
    },
}  # fmt: skip
#: what events of experts and appeals bring
REVIEW_DATA: dict[str, Any] = {"expert": "bo", "remedy": "note", "reference": "https://iab.example/1"}
REASONS = st.sampled_from(["", "because", "<b>no</b>"])


class RegistryMachine(RuleBasedStateMachine):
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.book = RegistryState()
        self.log: list[LogRecord] = []
        self.at = AT
        self.numbers = self.messages = 0
        #: the entries as each record found them
        self.found: list[dict[tuple[str, str], Entry]] = []

    def ask(self, event: Event, actor: Actor) -> bool:
        """Was it accepted? A refusal changes nothing."""
        before = (dict(self.book.entries), dict(self.book.requests))
        try:
            decision = self.book.apply(event, actor, self.at)
        except RefusalError:
            assert (self.book.entries, self.book.requests) == before
            return False
        self._judge(before[0], event, decision.rule)
        self.found.append(before[0])
        last = self.log[-1] if self.log else None
        self.log.append(
            seal_record(
                last, at=self.at, actor=actor, event=event, rule=decision.rule, clause=decision.clause
            )
        )
        return True

    def _judge(self, before: dict[tuple[str, str], Entry], event: Event, by: str) -> None:
        """Permanent entries never sink, nothing historical wakes up: save by override, import or appeal."""
        if event.kind in (K.OVERRIDE, K.IMPORT, K.UPHOLD_APPEAL):
            return
        for key, old in before.items():
            new = self.book.entries.get(key)
            if new is None:
                assert old.status is T.PENDING_REVIEW, by
            elif old.status is T.PERMANENT:
                assert new.status in (T.PERMANENT, T.HISTORICAL), by
            elif old.status in (T.HISTORICAL, T.REVOKED, T.DEPRECATED):
                assert new.status is old.status, by

    @initialize()
    def seed(self) -> None:
        for name, status in (("http", T.PERMANENT), ("old", T.HISTORICAL), ("coap", T.PROVISIONAL)):
            entry = Entry(registry="uri-schemes", name=name, status=status, registrant="ada")
            event = Event(
                kind=K.IMPORT, registry="uri-schemes", name=name, data={"entry": codec.to_data(entry)}
            )
            assert self.ask(event, PEOPLE[2])

    @rule(
        target=requests, registry=st.sampled_from(list(REGISTRIES)), data=st.data(),
        kind=st.sampled_from(list(RequestKind)), actor=st.sampled_from(PEOPLE), whole=st.booleans(),
    )  # fmt: skip
    def open(self, registry: str, data: st.DataObject, kind: RequestKind, actor: Actor, whole: bool) -> Any:
        row = REGISTRIES[registry]
        name = data.draw(st.sampled_from([*NAMES[registry], "http", "old"]))
        profile = data.draw(st.sampled_from(row.profiles))
        status = data.draw(st.sampled_from([None, *row.statuses]))
        self.numbers += 1
        number = f"{registry}-{self.numbers}"
        brought = {
            "kind": kind, "status": status, "profile": profile, "fields": FIELDS[registry] if whole else {},
        }  # fmt: skip
        event = Event(kind=K.OPEN, registry=registry, request=number, name=name, data=brought)
        return number if self.ask(event, actor) else multiple()

    @rule(
        number=requests, kind=st.sampled_from(list(EventKind)), actor=st.sampled_from(PEOPLE), reason=REASONS,
        fields=st.sampled_from([{}, {"contact": "Bo <bo@example.com>"}]),
    )  # fmt: skip
    def act(self, number: str, kind: EventKind, actor: Actor, reason: str, fields: dict[str, str]) -> None:
        if kind is K.OPEN:
            return
        about = self.book.requests[number]
        data = {"reason": reason, "fields": fields, **REVIEW_DATA}
        self.ask(Event(kind=kind, registry=about.registry, request=number, name=about.name, data=data), actor)

    @rule(number=requests, reason=REASONS, data=st.data())
    def the_holder_acts(self, number: str, reason: str, data: st.DataObject) -> None:
        """What the one who holds it may do, chosen from the buttons."""
        about = self.book.requests[number]
        entry = self.book.entries.get((about.registry, about.name))
        actor = self._holder(about)
        if actor is None:
            return
        kind = data.draw(st.sampled_from(list_allowed_events(about, entry, actor, self.at)))
        brought = {"reason": reason or "because", **REVIEW_DATA}
        if kind is K.LINK_MESSAGES:
            self.messages += 1
            url = f"https://list.example/{self.messages}"
            brought["messages"] = [{"url": url, "subject": "", "at": "2026-01-01T00:00:00Z"}]
        if kind in (K.ASSIGN_EXPERT, K.APPOINT_EXPERT):
            # one who is not recused
            brought["expert"] = f"expert-{len(about.recused)}"
        assert self.ask(
            Event(kind=kind, registry=about.registry, request=number, name=about.name, data=brought), actor
        )

    @rule(
        registry=st.sampled_from(list(REGISTRIES)), data=st.data(), kind=st.sampled_from(list(EventKind)),
        actor=st.sampled_from(PEOPLE), reason=REASONS,
    )  # fmt: skip
    def touch(self, registry: str, data: st.DataObject, kind: EventKind, actor: Actor, reason: str) -> None:
        if kind in (K.OPEN, K.IMPORT):
            return
        name = data.draw(st.sampled_from([*NAMES[registry], "http", "old"]))
        brought: dict[str, Any] = {"reason": reason, "to": "bo", "text": "t", "reference": "r", "add": ["bo"]}
        brought["expires"] = (self.at.date() + timedelta(days=90)).isoformat()
        if kind is K.OVERRIDE:
            deed = data.draw(st.sampled_from(["remove", "set", *REGISTRIES[registry].statuses]))
            if deed == "set":
                brought |= {"registrant": "bo", "iesg_approved": True}
            else:
                brought |= {"remove": True} if deed == "remove" else {"status": deed}
        self.ask(Event(kind=kind, registry=registry, name=name, data=brought), actor)

    @rule(actor=st.sampled_from(PEOPLE), data=st.data())
    def undo(self, actor: Actor, data: st.DataObject) -> None:
        overrides = [record for record in self.log if record.event.kind is K.OVERRIDE]
        if not overrides:
            return
        wrong = data.draw(st.sampled_from(overrides))
        key = registry, name = wrong.event.registry, wrong.event.name or ""
        before = self.found[wrong.number - 1].get(key)
        if before is None:
            return
        brought = {"undoes": wrong.number, "restore": codec.to_data(before), "reason": "wrong"}
        if self.ask(Event(kind=K.OVERRIDE, registry=registry, name=name, data=brought), actor):
            now = self.book.entries[key]
            assert (now.status, now.registrant, now.fields) == (
                before.status, before.registrant, before.fields,
            )  # fmt: skip

    @rule(days=st.integers(1, 60))
    def time_passes(self, days: int) -> None:
        self.at += timedelta(days=days)
        # what a timer starts can be due at once: a row with a draft that is long over
        for _ in range(3):
            for event in list(
                iter_due_events(self.book.requests.values(), self.book.entries.values(), self.at)
            ):
                assert self.ask(event, IANA_CLOCK)
        assert list(iter_due_events(self.book.requests.values(), self.book.entries.values(), self.at)) == []

    def _holder(self, about: Request) -> Actor | None:
        if about.holder is Role.REGISTRANT:
            return next(person for person in PEOPLE if person.id == about.registrant)
        if about.holder is Role.EXPERT and BY_ROLE[Role.EXPERT].id in about.recused:
            # the only expert has a conflict of interest: the IESG appoints another one (RFC 8126 5.2)
            temporary = min(about.temporary_experts, default=None)
            return BY_ROLE[Role.IESG] if temporary is None else Actor(id=temporary)
        return None if about.holder is None else BY_ROLE[about.holder]

    @invariant()
    def whoever_holds_a_request_can_move_it(self) -> None:
        for about in self.book.requests.values():
            holder = self._holder(about)
            assert (holder is None) is (about.state in FINAL)
            if holder is not None:
                entry = self.book.entries.get((about.registry, about.name))
                assert list_allowed_events(about, entry, holder, self.at), about.state

    @invariant()
    def a_row_under_review_is_under_a_review_that_goes_on(self) -> None:
        for entry in self.book.entries.values():
            assert entry.status in REGISTRIES[entry.registry].statuses
            if entry.status is T.PENDING_REVIEW:
                assert entry.pending
                # it shows the first of them or none, and nobody else has a say in it
                assert entry.registrant in (None, self.book.requests[entry.pending[0]].registrant)
                assert not entry.designees
            for number in entry.pending:
                assert self.book.requests[number].state not in FINAL

    def teardown(self) -> None:
        assert verify_chain(self.log) == len(self.log)
        again = replay(self.log)
        assert again.entries == self.book.entries
        assert again.requests == self.book.requests


RegistryMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestRegistry = RegistryMachine.TestCase
