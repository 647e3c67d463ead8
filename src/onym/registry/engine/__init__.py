"""The state machine of RFC 4395 and RFC 7595: pure functions over an append-only log.

`decide` decides one event; `list_allowed_events` lists the events that an actor may send now;
`iter_due_events` yields an event for each timer that has expired; `RegistryState` is a registry in memory.
`RULES` is the table of the state machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Protocol, TypeAlias

from onym.errors import RefusalError
from onym.registry.engine import _entry_rules, _oversight, _review, _submission
from onym.registry.engine._entry_rules import EXPIRY_NOTICE_DAYS, find_expiry_notice
from onym.registry.engine._oversight import find_appeal_deadline, find_reminder_time
from onym.registry.engine._rules import (
    STATUS_CHANGES,
    UNREVIEWED,
    EventContext,
    Rule,
    is_recused,
    is_temporary_expert,
    reject,
)
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
from onym.registry.registries import Profile, get_profile, get_registry
from onym.registry.words import apply_words, name_role

__all__ = [
    "EXPIRY_NOTICE_DAYS",
    "RULES",
    "STATUS_CHANGES",
    "TIMER_EVENTS",
    "Decide",
    "RegistryState",
    "Rule",
    "decide",
    "decide_as_logged",
    "find_appeal_deadline",
    "iter_due_events",
    "list_allowed_events",
    "list_request_states",
    "publication_refusal",
]

#: the whole table, in the order in which rows are tried
RULES: Final[tuple[Rule, ...]] = (
    *_submission.REQUEST_RULES,
    *_submission.ARCHIVE_RULES,
    *_submission.INTAKE_RULES,
    *_review.REVIEW_RULES,
    *_oversight.EXPERT_RULES,
    *_oversight.APPEAL_RULES,
    *_entry_rules.ENTRY_RULES,
    *_entry_rules.OVERRIDE_RULES,
    *_entry_rules.NAMESPACE_RULES,
)

_BY_EVENT: Final[dict[EventKind, tuple[Rule, ...]]] = {
    kind: tuple(rule for rule in RULES if rule.event is kind and not rule.retired) for kind in EventKind
}
_DEFINE_CLAUSE: Final = "docs/decisions/0057"
#: events that the clock causes, and no person
TIMER_EVENTS: Final = (
    EventKind.REVIEW_TIMEOUT,
    EventKind.REMIND,
    EventKind.EXPIRY_NEAR,
    EventKind.DRAFT_EXPIRED,
    EventKind.NAMESPACE_EXPIRED,
)
#: events that no form offers
_NOT_OFFERED: Final = frozenset(
    {*TIMER_EVENTS, EventKind.OPEN, EventKind.IMPORT, EventKind.DEFINE, EventKind.REDACT}
)
_REQUEST_EVENTS: Final = frozenset(
    rule.event for rule in RULES if any(state is not None for state in rule.states)
)


def decide(
    event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
) -> Decision:
    """Return the effect of an event by `actor` at `at` (in UTC) on `request` and `entry`.

    `request` is the one that the event names (None if it opens one), `entry` the one of that name. Raises
    RefusalError with the rule and the clause: first for the state, then the actor, then the event's data.
    The registry and its profile are the rows in force (`registries.use_catalog`).
    """
    if event.kind is EventKind.DEFINE:
        return _define_registries(event, actor)
    case = _build_context(event, actor, at, request, entry)
    rule = next((rule for rule in _BY_EVENT[event.kind] if rule.matches(case)), None)
    if rule is None:
        raise _make_not_allowed_error(case)
    if not rule.permits(case):
        if is_recused(case) and Role.EXPERT in rule.roles and case.actor.has_role(Role.EXPERT):
            raise RefusalError(
                f"you are recused from {case.current_request.id}", code="registry.recused",
                clause=case.profile.cite("RFC 8126 5.2"), rule=rule.id,
                hint=apply_words("Another Designated Expert decides; the IESG can appoint a temporary one."),
            )  # fmt: skip
        raise RefusalError(
            f"{_format_actor(actor)} may not {event.kind} here",
            code="registry.wrong-role", clause=rule.get_clause(case), rule=rule.id,
            hint=_format_permitted(rule),
        )  # fmt: skip
    if rule.effect is None and rule.refuse is not None:
        raise rule.refuse(case, rule)
    if rule.effect is None:
        raise RefusalError(
            apply_words(rule.said), code="registry.not-allowed", clause=rule.get_clause(case), rule=rule.id,
            hint=None if rule.hint is None else apply_words(rule.hint),
        )  # fmt: skip
    return rule.effect(case, rule)


def _define_registries(event: Event, actor: Actor) -> Decision:
    """Return the decision about a definition, which replaces the rows in force. Raises RefusalError."""
    from onym.registry.definitions import build_next_catalog  # late: few logs have a definition

    if not actor.has_role(Role.IANA):
        raise RefusalError(
            f"{_format_actor(actor)} may not define registries", code="registry.wrong-role",
            clause=_DEFINE_CLAUSE, rule="DEF", hint="Only an administrator may do this.",
        )  # fmt: skip
    build_next_catalog(event.data.get("definition"))
    return Decision(rule="DEF", clause=_DEFINE_CLAUSE)


def decide_as_logged(
    event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None, rule: str
) -> Decision | None:
    """Return the effect of a logged event that a retired rule decided, or None if there is no such rule.

    The procedure may become stricter; a log that an older release wrote must still replay.
    """
    if event.kind is EventKind.DEFINE:
        return None
    case = _build_context(event, actor, at, request, entry)
    for retired in RULES:
        found = retired.retired and retired.id == rule and retired.event is event.kind
        if found and retired.effect is not None and retired.matches(case) and retired.permits(case):
            return retired.effect(case, retired)
    return None


def list_allowed_events(
    request: Request | None, entry: Entry | None, actor: Actor, at: datetime, *, profile_id: str | None = None
) -> tuple[EventKind, ...]:
    """Return the events that `actor` may cause now, of a request or (request None) of an entry."""
    about = request or entry
    if about is None:
        return ()
    found = []
    for kind in EventKind:
        if kind in _NOT_OFFERED or (kind in _REQUEST_EVENTS) is not (request is not None):
            continue
        data = {} if profile_id is None else {"profile": profile_id}
        event = Event(kind=kind, registry=about.registry, name=about.name, data=data)
        case = _build_context(event, actor, at, request, entry)
        rule = next((rule for rule in _BY_EVENT[kind] if rule.matches(case)), None)
        if rule is not None and rule.effect is not None and rule.permits(case):
            found.append(kind)
    return tuple(found)


def list_request_states(profile: Profile) -> tuple[RequestState, ...]:
    """Return the states that requests under a profile can be in, in the order of the procedure."""
    deciders = {policy.decided_by for policy in profile.policies.values() if not policy.at_once}
    # the IESG decides upgrades, reassignments and what becomes historical
    staged = profile.rules in ("rfc4395", "rfc7595", "staged")
    used = {
        RequestState.LIST_REVIEW: bool(profile.list_review),
        RequestState.IETF_REVIEW: staged or Role.IESG in deciders,
        RequestState.TIMED_OUT: profile.expert_timeout is not None,
        RequestState.APPEAL: profile.appeals,
    }
    return tuple(state for state in RequestState if used.get(state, True))


def iter_due_events(requests: Iterable[Request], entries: Iterable[Entry], at: datetime) -> Iterator[Event]:
    """Yield an event for every timer that is due at `at`, for `IANA_CLOCK`, in the order of their times.

    The events can start timers that are due too: call again until there are no events.
    """
    found = [timer for request in requests for timer in _iter_request_timers(request)]
    found += [timer for entry in entries for timer in _iter_entry_timers(entry, at.date())]
    for moment, _, event in sorted(found, key=lambda item: item[:2]):
        if moment <= at:
            yield event


#: due time, order among timers of the same time, event
_Timer: TypeAlias = tuple[datetime, tuple[int, int, str], Event]


def _iter_request_timers(request: Request) -> Iterator[_Timer]:
    wait = get_profile(request.profile).expert_timeout
    waiting = request.state in (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW)
    number = request.id.rpartition("-")[2]
    order = (0, int(number) if number.isdecimal() else 0, request.id)
    if wait is not None and waiting and not request.timed_out and request.expert_asked is not None:
        yield request.expert_asked + wait, order, _make_timer_event(EventKind.REVIEW_TIMEOUT, request)
    moment = find_reminder_time(request)
    if moment is not None:
        yield moment, (2, *order[1:]), _make_timer_event(EventKind.REMIND, request)


def _make_timer_event(kind: EventKind, request: Request) -> Event:
    return Event(kind=kind, registry=request.registry, request=request.id, name=request.name)


def _iter_entry_timers(entry: Entry, today: date) -> Iterator[_Timer]:
    order = (1, 0, f"{entry.registry} {entry.name}")
    notice = find_expiry_notice(entry, today)
    if notice is not None:
        event = Event(kind=EventKind.EXPIRY_NEAR, registry=entry.registry, name=entry.name)
        yield datetime.combine(notice, time.min, UTC), order, event
    if entry.draft is not None:
        event = Event(kind=EventKind.DRAFT_EXPIRED, registry=entry.registry, name=entry.name)
        yield _start_of_next_day(entry.draft.expires), order, event
    running = entry.status in (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)
    if running and entry.expires is not None:
        event = Event(kind=EventKind.NAMESPACE_EXPIRED, registry=entry.registry, name=entry.name)
        yield _start_of_next_day(entry.expires), order, event


def _start_of_next_day(day: date) -> datetime:
    # the last day of all has none after it
    last = day == date.max
    return datetime.combine(day if last else day + timedelta(days=1), time.max if last else time.min, UTC)


def publication_refusal(
    entry: Entry | None, *, standards_track: bool, document: str, profile_id: str = "rfc7595"
) -> str | None:
    """Return why an IETF document that uses the scheme cannot be published yet, or None.

    A Standards Track document needs a permanent entry (RFC 4395 5.1, RFC 7595 3). Under RFC 4395 5.1 any
    RFC that defines a scheme needs Expert Review; a review timeout is not a review.
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


def _build_context(
    event: Event, actor: Actor, at: datetime, request: Request | None, entry: Entry | None
) -> EventContext:
    if at.utcoffset() != timedelta(0):
        raise reject("at", f"the time {at.isoformat()} is not in UTC")
    row = get_registry(event.registry)
    chosen = request.profile if request is not None else event.data.get("profile", row.default_profile)
    if chosen not in row.profiles:
        raise reject(
            "profile",
            f"registry {row.id} has no such profile",
            hint=f"Choose one of {', '.join(row.profiles)}.",
        )
    name = request.name if request is not None else row.normalize_name(event.name or "")
    return EventContext(
        event=event, actor=actor, at=at, registry=row, profile=get_profile(chosen), name=name,
        request=request, entry=entry,
    )  # fmt: skip


#: steps of a registrant that correct a request
_CORRECTIONS: Final = frozenset({EventKind.REVISE, EventKind.SUBMIT, EventKind.RESUBMIT})


def _make_not_allowed_error(case: EventContext) -> RefusalError:
    kind = case.event.kind
    if kind in _REQUEST_EVENTS and case.request is None:
        return RefusalError(f"{kind} needs a request", code="registry.missing-data", field="request")
    about = case.request.state if case.request is not None else case.entry.status if case.entry else "absent"
    possible = ", ".join(
        list_allowed_events(case.request, case.entry, case.actor, case.at, profile_id=case.profile.id)
    )
    hint = f"Possible now: {possible}." if possible else None
    if kind in _CORRECTIONS and about is RequestState.REJECTED:
        hint = "Only an incomplete request can be corrected. Request the name again with a new request."
    return RefusalError(
        f"cannot {kind} {case.request.id if case.request is not None else case.name}: it is {about}",
        code="registry.not-allowed",
        clause=next(
            (rule.get_clause(case) for rule in _BY_EVENT[kind] if case.profile.rules in rule.clauses),
            None,
        ),
        rule="X",
        hint=hint,
    )


def _format_actor(actor: Actor) -> str:
    roles = ", ".join(sorted(name_role(role) for role in actor.roles - {Role.READER}))
    return f"the role {roles}" if roles else "a reader"


def _format_permitted(rule: Rule) -> str:
    owner = rule.who is not None and rule.who is not is_temporary_expert
    who = [name_role(role) for role in rule.roles] + (["its registrant"] if owner else [])
    return f"Only {' or '.join(who)} may do this."


class Decide(Protocol):
    """The type of `decide`."""

    def __call__(
        self, event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
    ) -> Decision:
        """Return the effect of the event. Raises RefusalError."""


@dataclass(slots=True)
class RegistryState:
    """A registry in memory: entries by (registry, name) and requests by ID. Only events change it."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    decide: Decide = decide

    def find_subjects(self, event: Event) -> tuple[Request | None, Entry | None]:
        """Return the request and the entry that an event is about."""
        if event.kind is EventKind.DEFINE:
            return None, None
        request = self.requests.get(event.request or "")
        name = (
            request.name
            if request is not None
            else get_registry(event.registry).normalize_name(event.name or "")
        )
        return request, self.entries.get((event.registry, name))

    def apply(self, event: Event, actor: Actor, at: datetime) -> Decision:
        """Decide an event and store the result. Raises RefusalError; nothing changes then."""
        request, entry = self.find_subjects(event)
        decision = self.decide(event, actor, at, request=request, entry=entry)
        self.take_decision(decision, entry)
        return decision

    def take_decision(self, decision: Decision, before: Entry | None) -> None:
        """Store the request and the entry of a decision; `before` is the entry as it was."""
        if decision.request is not None:
            self.requests[decision.request.id] = decision.request
        if decision.removed and before is not None:
            del self.entries[before.registry, before.name]
        elif decision.entry is not None:
            self.entries[decision.entry.registry, decision.entry.name] = decision.entry
