"""The state machine: an event, an actor and a time, beside what stands; a decision or a refusal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, TypeAlias

from onym.errors import RefusalError
from onym.registry.engine import _entries, _intake, _namespaces, _outside, _requests, _review
from onym.registry.engine._case import Case, Rule
from onym.registry.engine._effects import UNREVIEWED
from onym.registry.profiles import profile
from onym.registry.records import (
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    Request,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import registry

__all__ = ["RULES", "allowed", "decide", "due", "publication_refusal"]

#: the whole table, in the order in which rows are tried
RULES: Final[tuple[Rule, ...]] = (
    *_requests.RULES,
    *_intake.RULES,
    *_review.RULES,
    *_entries.RULES,
    *_outside.RULES,
    *_namespaces.RULES,
)

_BY_EVENT: Final[dict[EventKind, tuple[Rule, ...]]] = {
    kind: tuple(rule for rule in RULES if rule.event is kind) for kind in EventKind
}
#: what time brings, and a person does not press
_CLOCK: Final = (
    EventKind.REVIEW_TIMEOUT,
    EventKind.DRAFT_EXPIRED,
    EventKind.NAMESPACE_EXPIRED,
)
#: needs an entry or a file, not a button
_NO_BUTTON: Final = frozenset({*_CLOCK, EventKind.OPEN, EventKind.IMPORT})
_REQUEST_EVENTS: Final = frozenset(
    rule.event for rule in RULES if any(state is not None for state in rule.states)
)


def decide(
    event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
) -> Decision:
    """What `event`, asked by `actor` at `at` (aware), does to `request` and `entry`.

    `request` is the one that the event names, None when it opens one; `entry` the one of that name, if
    any. Raises `RefusalError` with the row and the clause where the procedure does not allow it: first
    for the state, then for the actor, then for what the event brings.
    """
    case = _case(event, actor, at, request, entry)
    rule = next((rule for rule in _BY_EVENT[event.kind] if rule.selects(case)), None)
    if rule is None:
        raise _out_of_place(case)
    if not rule.lets(case):
        raise RefusalError(
            f"{event.kind} is not for {_whom(actor)} to do here",
            code="registry.wrong-role", clause=rule.clause(case), rule=rule.id, hint=_for_whom(rule),
        )  # fmt: skip
    if rule.effect is None:
        raise RefusalError(
            rule.said, code="registry.not-allowed", clause=rule.clause(case), rule=rule.id, hint=rule.hint
        )
    return rule.effect(case, rule)


def allowed(
    request: Request | None, entry: Entry | None, actor: Actor, at: datetime, *, profile_id: str | None = None
) -> tuple[EventKind, ...]:
    """The events that `actor` may ask for now, about a request or (request None) about an entry."""
    about = request or entry
    if about is None:
        return ()
    found = []
    for kind in EventKind:
        if kind in _NO_BUTTON or (kind in _REQUEST_EVENTS) is not (request is not None):
            continue
        data = {} if profile_id is None else {"profile": profile_id}
        event = Event(kind=kind, registry=about.registry, name=about.name, data=data)
        case = _case(event, actor, at, request, entry)
        rule = next((rule for rule in _BY_EVENT[kind] if rule.selects(case)), None)
        if rule is not None and rule.effect is not None and rule.lets(case):
            found.append(kind)
    return tuple(found)


def due(requests: Iterable[Request], entries: Iterable[Entry], at: datetime) -> Iterator[Event]:
    """What the clock brings at `at`: an event for every timer that has gone off, for `IANA_CLOCK`.

    In the order in which they went off, ties by number and name: so a clock that was stopped does in one
    go what it would have done day by day. What these events start themselves can be due too: ask again
    until nothing is.
    """
    found = [each for request in requests for each in _due_request(request)]
    found += [each for entry in entries for each in _due_entry(entry)]
    for moment, _, event in sorted(found, key=lambda each: each[:2]):
        if moment <= at:
            yield event


#: when it goes off, what parts those of the same moment, and the event
_Timer: TypeAlias = tuple[datetime, tuple[int, int, str], Event]


def _due_request(request: Request) -> Iterator[_Timer]:
    wait = profile(request.profile).expert_timeout
    waiting = request.state in (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW)
    if wait is None or not waiting or request.timed_out or request.expert_asked is None:
        return
    number = request.id.rpartition("-")[2]
    order = (0, int(number) if number.isdecimal() else 0, request.id)
    yield (
        request.expert_asked + wait, order,
        Event(
            kind=EventKind.REVIEW_TIMEOUT, registry=request.registry, request=request.id, name=request.name
        ),
    )  # fmt: skip


def _due_entry(entry: Entry) -> Iterator[_Timer]:
    order = (1, 0, f"{entry.registry} {entry.name}")
    if entry.draft is not None:
        event = Event(kind=EventKind.DRAFT_EXPIRED, registry=entry.registry, name=entry.name)
        yield _day_after(entry.draft.expires), order, event
    running = entry.status in (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)
    if running and entry.expires is not None:
        event = Event(kind=EventKind.NAMESPACE_EXPIRED, registry=entry.registry, name=entry.name)
        yield _day_after(entry.expires), order, event


def _day_after(day: date) -> datetime:
    # the last day of all has none after it
    last = day == date.max
    return datetime.combine(day if last else day + timedelta(days=1), time.max if last else time.min, UTC)


def publication_refusal(
    entry: Entry | None, *, standards_track: bool, document: str, profile_id: str = "rfc7595"
) -> str | None:
    """Why an IETF document that defines or relies on the scheme can't be published yet (C1), or None.

    A Standards Track document needs a permanent entry (RFC 4395 5.1, RFC 7595 3). Under RFC 4395 5.1 any
    RFC that defines a scheme needs Expert Review, and two weeks of silence are none.
    """
    if standards_track and (entry is None or entry.status is not Status.PERMANENT):
        clause = "RFC 4395 5.1" if profile_id == "rfc4395" else "RFC 7595 3"
        return f"{document} is on the Standards Track, and its scheme is not permanent [{clause}]"
    reviewed = (
        entry is not None
        and entry.status is not Status.PENDING_REVIEW
        and not any(note.kind == UNREVIEWED for note in entry.notes)
    )
    if profile_id == "rfc4395" and not reviewed:
        return f"{document} defines a scheme that has not passed Expert Review [RFC 4395 5.1]"
    return None


def _case(event: Event, actor: Actor, at: datetime, request: Request | None, entry: Entry | None) -> Case:
    if at.utcoffset() != timedelta(0):
        raise RefusalError("the time is not in UTC", code="registry.bad-data", field="at")
    row = registry(event.registry)
    chosen = request.profile if request is not None else event.data.get("profile", row.default_profile)
    if chosen not in row.profiles:
        raise RefusalError(
            "no profile of this registry", code="registry.bad-data", field="profile",
            hint=f"one of {', '.join(row.profiles)}",
        )  # fmt: skip
    name = request.name if request is not None else row.key(event.name or "")
    return Case(
        event=event, actor=actor, at=at, registry=row, profile=profile(chosen), name=name,
        request=request, entry=entry,
    )  # fmt: skip


def _out_of_place(case: Case) -> RefusalError:
    kind = case.event.kind
    if kind in _REQUEST_EVENTS and case.request is None:
        return RefusalError(
            f"{kind} is about a request; name one", code="registry.missing-data", field="request"
        )
    about = case.request.state if case.request is not None else case.entry.status if case.entry else "absent"
    possible = ", ".join(allowed(case.request, case.entry, case.actor, case.at, profile_id=case.profile.id))
    return RefusalError(
        f"{kind} is not possible: {case.name} is {about}",
        code="registry.not-allowed",
        clause=next(
            (rule.clauses[case.profile.id] for rule in _BY_EVENT[kind] if case.profile.id in rule.clauses),
            None,
        ),
        rule="X",
        hint=f"possible now: {possible}" if possible else None,
    )


def _whom(actor: Actor) -> str:
    roles = ", ".join(sorted(actor.roles - {Role.READER}))
    return f"the role {roles}" if roles else "a reader"


def _for_whom(rule: Rule) -> str:
    who = [str(role) for role in rule.roles] + (["its registrant"] if rule.who is not None else [])
    return f"it is for {' or '.join(who)}"
