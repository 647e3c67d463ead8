"""A registry of one name, `demo`, and the people around it: each call is one event at the desk's clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry.engine import RegistryState, iter_due_events
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)

K, S, T, KIND = EventKind, RequestState, Status, RequestKind

#: a request, and the second and third of a story
ONE, TWO, THREE = "uri-schemes-1", "uri-schemes-2", "uri-schemes-3"
FORTNIGHT = timedelta(days=14)
FOUR_WEEKS = timedelta(days=28)

#: a template with every field of both RFCs
COMPLETE = {
    "syntax": "Section 2 of [SPEC]",
    "semantics": "Section 3 of [SPEC]",
    "encoding": "UTF-8",
    "applications": "demonstrations",
    "interoperability": "none known",
    "security": "Section 4 of [SPEC]",
    "contact": "Ada Example <ada@example.com>",
    "change_controller": "Ada Example <ada@example.com>",
    "references": "[SPEC] Demo, https://demo.example/spec",
}

PEOPLE = {
    "owner": Actor(id="owner", roles=frozenset({Role.REGISTRANT})),
    "designee": Actor(id="designee", roles=frozenset({Role.REGISTRANT})),
    "stranger": Actor(id="stranger", roles=frozenset({Role.REGISTRANT})),
    "iana": Actor(id="iana", roles=frozenset({Role.IANA})),
    "expert": Actor(id="expert", roles=frozenset({Role.EXPERT})),
    "iesg": Actor(id="iesg", roles=frozenset({Role.IESG})),
    "reader": Actor(id="reader", roles=frozenset({Role.READER})),
    "nobody": Actor(id="nobody"),
}
BOTH = pytest.mark.parametrize("profile", ["rfc4395", "rfc7595"])


class Desk:
    """A book under one profile, with a clock that goes when it is told to."""

    def __init__(self, profile: str, *, entry: Status | None = None, **about: Any) -> None:
        self.book, self.profile = RegistryState(), profile
        self.at = datetime(2026, 3, 1, 12, tzinfo=UTC)
        if entry is not None:
            row = Entry(registry="uri-schemes", name="demo", status=entry, **{"registrant": "owner", **about})
            self.book.entries["uri-schemes", "demo"] = row

    # -- events

    def do(self, kind: EventKind, actor: str, /, request: str | None = ONE, **data: Any) -> Decision:
        """An event about a request, or (request None) about the entry."""
        name = data.pop("name", "demo")
        if request is None:
            data.setdefault("profile", self.profile)
        event = Event(kind=kind, registry="uri-schemes", request=request, name=name, data=data)
        return self.book.apply(event, PEOPLE[actor], self.at)

    def refuses(self, kind: EventKind, actor: str, /, request: str | None = ONE, **data: Any) -> RefusalError:
        """The same, where it must be refused; and nothing may have changed."""
        before = (dict(self.book.entries), dict(self.book.requests))
        with pytest.raises(RefusalError) as caught:
            self.do(kind, actor, request, **data)
        assert (self.book.entries, self.book.requests) == before
        return caught.value

    def only_for(
        self, allowed: Iterable[str], kind: EventKind, request: str | None = ONE, **data: Any
    ) -> None:
        """Everybody else is refused it, for what they are."""
        for item in PEOPLE.keys() - set(allowed):
            assert self.refuses(kind, item, request, **data).code == "registry.wrong-role", item

    # -- the usual ways

    def opened(
        self, status: Status | None = None, *, by: str = "owner", request: str = ONE, **data: Any
    ) -> None:
        asked = {"fields": COMPLETE, "profile": self.profile, **data}
        if status is not None:
            asked["status"] = status
        self.do(K.OPEN, by, request, **asked)

    def submitted(
        self, status: Status | None = None, *, by: str = "owner", request: str = ONE, **data: Any
    ) -> None:
        """Opened, posted to the list for four weeks, handed in."""
        self.opened(status, by=by, request=request, **data)
        self.do(K.ANNOUNCE, by, request)
        self.at += FOUR_WEEKS
        self.do(K.SUBMIT, by, request)

    def received(
        self, status: Status | None = None, *, by: str = "owner", request: str = ONE, **data: Any
    ) -> Decision:
        """And checked by IANA."""
        self.submitted(status, by=by, request=request, **data)
        return self.do(K.CHECK_COMPLETE, "iana", request)

    def tick(self) -> list[Decision]:
        """What the clock brings now."""
        events = list(iter_due_events(self.book.requests.values(), self.book.entries.values(), self.at))
        # reminders change nothing of this: tests/registry/engine/test_experts.py
        return [self.book.apply(event, IANA_CLOCK, self.at) for event in events if event.kind is not K.REMIND]

    # -- what stands

    def request(self, name: str = ONE) -> Request:
        return self.book.requests[name]

    def state(self, name: str = ONE) -> RequestState:
        return self.request(name).state

    @property
    def entry(self) -> Entry:
        return self.book.entries["uri-schemes", "demo"]

    @property
    def status(self) -> Status | None:
        found = self.book.entries.get(("uri-schemes", "demo"))
        return None if found is None else found.status
