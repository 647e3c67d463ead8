"""Rules of the state machine: the context of an event, the form of a rule, and effects that rules share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeAlias

from onym.errors import RefusalError, SnapshotError
from onym.registry.records import (
    Actor,
    Decision,
    DraftReference,
    Entry,
    Event,
    EventKind,
    Note,
    Notice,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import BUILTIN, Profile, Registry
from onym.registry.words import apply_words

#: characters in one text that an event brings
MAX_TEXT: Final = 1_000_000

#: the changes of status that some clause defines (RFC 4395 5.3, RFC 7595 7.3): from, to
#: the changes of an entry's status that a request may ask for (RFC 4395 5.3, RFC 7595 7.3)
STATUS_CHANGES: Final = frozenset(
    {
        (Status.PROVISIONAL, Status.PERMANENT),
        (Status.PROVISIONAL, Status.HISTORICAL),
        (Status.PERMANENT, Status.HISTORICAL),
    }
)


def reject(
    field: str | None, message: str, *, hint: str | None = None, clause: str | None = None
) -> RefusalError:
    """Return the error for invalid data of an event."""
    return RefusalError(message, code="registry.bad-data", field=field, hint=hint, clause=clause)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContext:
    """An event, its actor and its time, beside the request and the entry that it is about."""

    event: Event
    actor: Actor
    at: datetime
    registry: Registry
    profile: Profile
    name: str
    request: Request | None
    entry: Entry | None

    @property
    def current_request(self) -> Request:
        """The request; rules that need one are reached only with one."""
        assert self.request is not None  # noqa: S101
        return self.request

    @property
    def current_entry(self) -> Entry:
        """The entry; rules that need one are reached only with one."""
        assert self.entry is not None  # noqa: S101
        return self.entry


_Condition: TypeAlias = Callable[[EventContext], bool]


def is_request_owner(case: EventContext) -> bool:
    """Report whether the actor opened the request."""
    return case.request is not None and case.request.registrant == case.actor.id


def is_recused(case: EventContext) -> bool:
    """Report whether the actor has a conflict of interest about the request (RFC 8126 5.2)."""
    return case.request is not None and case.actor.id in case.request.recused


def is_temporary_expert(case: EventContext) -> bool:
    """Report whether the IESG appointed the actor for this request (RFC 8126 5.2)."""
    return (
        case.request is not None
        and case.actor.id in case.request.temporary_experts
        and case.actor.id not in case.request.recused
    )


def is_entry_owner(case: EventContext) -> bool:
    """Report whether the actor is the registrant of the entry."""
    return case.entry is not None and case.entry.registrant == case.actor.id


def can_update(case: EventContext) -> bool:
    """Report whether the actor is the registrant or designated by it (RFC 4395 5.3, RFC 7595 7.3)."""
    return is_entry_owner(case) or (case.entry is not None and case.actor.id in case.entry.designees)


def has_entry(case: EventContext) -> bool:
    """Report whether there is an entry of the name."""
    return case.entry is not None


def has_conflict(case: EventContext) -> bool:
    """Report whether the request cannot be granted any more."""
    return describe_conflict(case) is not None


def entry_status_in(*statuses: Status) -> _Condition:
    """Return the condition that there is an entry with one of these statuses."""
    return lambda case: case.entry is not None and case.current_entry.status in statuses


def describe_conflict(case: EventContext) -> str | None:
    """Return how the entry has changed so that the request cannot be granted any more, or None."""
    asked, row = case.current_request, case.entry
    if row is None:
        return None if asked.kind is RequestKind.NEW else "the entry that it would change is gone"
    if not _CONFLICT_CHECKS[asked.kind](asked, row):
        return None
    return f"the entry has changed since: it is {row.status}, registered to {row.registrant or 'nobody'}"


def _is_new_conflicting(asked: Request, row: Entry) -> bool:
    """Report whether the entry is another request's, or is not provisional any more."""
    own = asked.id in row.pending
    if asked.state is RequestState.IETF_REVIEW:
        return not own or row.status is not Status.PROVISIONAL
    return asked.timed_out and own and row.status is not Status.PROVISIONAL


def _is_update_conflicting(asked: Request, row: Entry) -> bool:
    of_schemes = {status for pair in STATUS_CHANGES for status in pair}
    moved = asked.status is not row.status and {asked.status, row.status} <= of_schemes
    closed = row.status in (Status.PENDING_REVIEW, Status.REVOKED)
    needed = asked.as_registrant or row.status is Status.PROVISIONAL
    return moved or closed or (needed and not _is_authorised(asked, row))


def _is_status_change_conflicting(asked: Request, row: Entry) -> bool:
    retires = row.status is Status.PROVISIONAL and asked.status is Status.HISTORICAL
    needed = asked.as_registrant or retires
    return (row.status, asked.status) not in STATUS_CHANGES or (needed and not _is_authorised(asked, row))


def _is_authorised(asked: Request, row: Entry) -> bool:
    return asked.registrant == row.registrant or asked.registrant in row.designees


_CONFLICT_CHECKS: Final[dict[RequestKind, Callable[[Request, Entry], bool]]] = {
    RequestKind.NEW: _is_new_conflicting,
    RequestKind.UPDATE: _is_update_conflicting,
    RequestKind.STATUS_CHANGE: _is_status_change_conflicting,
    RequestKind.SEPARATE_USE: lambda asked, row: False,
    RequestKind.REASSIGN: lambda asked, row: row.status is not Status.PROVISIONAL,
}

#: a reference to an RFC, or to what the IESG has approved as one
_RFC: Final = re.compile(r"\bRFC[ -]?(?:\d|ietf-)", re.IGNORECASE)
_ENTRY_MEMBERS: Final = frozenset({"name", "status"})


def needs_iesg_approval(case: EventContext) -> bool:
    """Report whether the request changes what the IESG has approved (RFC 4395 5.3, RFC 7595 7.3).

    For an entry without a registrant every RFC is treated as IESG-approved, and only the IESG can change
    its controller (RFC 8126 2.3, 9.5).
    """
    asked, row = case.current_request, case.entry
    if row is None or asked.kind not in (RequestKind.UPDATE, RequestKind.STATUS_CHANGE):
        return False
    changed = {name for name, value in asked.fields.items() if row.fields.get(name) != value} - _ENTRY_MEMBERS
    if asked.kind is RequestKind.STATUS_CHANGE and not changed and asked.draft is None:
        return False
    if row.iesg_approved:
        return True
    defined = any(_RFC.search(row.fields.get(key, "")) for key in ("reference", "references"))
    return row.registrant is None and (defined or "change_controller" in changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the state machine.

    It applies to `event` if the request is in one of `states` (None: the event is about an entry, or opens
    a request) and `when` is true. `clauses` has the source for each profile with the rule. Actors with one
    of `roles`, or for whom `who` is true, may cause the event; an expert who is recused has not the role
    there. A rule without `effect` rejects the event with the error of `refuse`, else with `said` and `hint`.
    A `retired` rule decided events of older releases: only their log records reach it.
    """

    id: str
    event: EventKind
    states: tuple[RequestState | None, ...] = (None,)
    clauses: Mapping[str, str]
    roles: tuple[Role, ...] = ()
    who: _Condition | None = None
    when: _Condition = lambda case: True
    effect: Callable[[EventContext, Rule], Decision] | None = None
    said: str
    hint: str | None = None
    refuse: Callable[[EventContext, Rule], RefusalError] | None = None
    retired: bool = False

    def matches(self, case: EventContext) -> bool:
        """Report whether this rule applies to the event of any actor."""
        state = None if case.request is None else case.request.state
        return case.profile.rules in self.clauses and state in self.states and self.when(case)

    def permits(self, case: EventContext) -> bool:
        """Report whether the actor may cause the event."""
        roles = self.roles
        if is_recused(case):
            roles = tuple(role for role in roles if role is not Role.EXPERT)
        return case.actor.has_role(*roles) or (self.who is not None and self.who(case))

    def get_clause(self, case: EventContext) -> str:
        """Return the source under the profile of the request."""
        return case.profile.cite(self.clauses[case.profile.rules])


def build_clauses(rfc4395: str | None, rfc7595: str | None, other: str | None = None) -> Mapping[str, str]:
    """Return clauses by profile: sections of the two RFCs, and one text for the other profiles.

    Profiles that an operator defined follow RFC 7595 ("staged") or the other profiles ("simple").
    """
    clauses = {
        f"rfc{number}": text if text.startswith("docs/") else f"RFC {number} {text}"
        for number, text in ((4395, rfc4395), (7595, rfc7595))
        if text is not None
    }
    if "rfc7595" in clauses:
        clauses["staged"] = clauses["rfc7595"]
    return clauses | (
        {} if other is None else dict.fromkeys(("specification-required", "expert-review", "simple"), other)
    )


#: clauses of rules for defined profiles only; the profile cites its own document
OWN_CLAUSES: Final = {"simple": "docs/decisions/0057", "staged": "docs/decisions/0057"}


def build_common_clauses(clause: str) -> Mapping[str, str]:
    """Return the clause of a rule that every profile has."""
    return dict.fromkeys((*BUILTIN.profiles, *OWN_CLAUSES), clause)


def is_for_board(case: EventContext) -> bool:
    """Report whether the policy of the requested status leaves the decision to the IESG's role."""
    policy = case.profile.policies.get(case.current_request.status)
    return policy is not None and policy.decided_by is Role.IESG


def get_text(case: EventContext, member: str) -> str | None:
    """Return a text of the event's data, or None. Raises RefusalError for another type."""
    value: Any = case.event.data.get(member)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise reject(member, f"`{member}` is not a text of at most {MAX_TEXT:,} characters")
    return value


def require_text(case: EventContext, member: str, *, clause: str | None = None) -> str:
    """Return a text that the event must have. Raises RefusalError (registry.missing-data)."""
    value = get_text(case, member)
    # invisible characters are not a text
    if value is None or not any(character.isprintable() and not character.isspace() for character in value):
        raise RefusalError(
            f"`{member}` is missing",
            code="registry.missing-data",
            field=member,
            clause=clause,
            hint=f"Add {member} to the event.",
        )
    return value.strip()


_HOLDERS: Mapping[RequestState, Role] = {
    RequestState.DRAFT: Role.REGISTRANT,
    RequestState.LIST_REVIEW: Role.REGISTRANT,
    RequestState.SUBMITTED: Role.IANA,
    RequestState.EXPERT_REVIEW: Role.EXPERT,
    RequestState.MORE_REVIEW: Role.REGISTRANT,
    RequestState.IETF_REVIEW: Role.IESG,
    RequestState.APPEAL: Role.IESG,
}

#: the kind of note on an entry that a review timeout registered (RFC 4395 5.2 step 6)
UNREVIEWED: Final = "unreviewed"
#: events with which the expert or the IESG approves an entry
_APPROVALS: Final = frozenset(
    {
        EventKind.APPROVE,
        EventKind.APPROVE_AS_PROVISIONAL,
        EventKind.ASK_IETF_REVIEW,
        EventKind.IESG_APPROVE,
        EventKind.ASK_UPGRADE,
    }
)

#: fields of a template that are members of an entry, not columns
_NOT_COLUMNS = frozenset({"name", "status", "expires"})
#: fields that say who controls an entry; the upgrade of a third party leaves those of the entry
CONTROL_FIELDS: Final = ("contact", "change_controller")
#: columns that only IANA fills (RFC 7595 9; IANA assigns paths and numbers)
_IANA_COLUMNS = frozenset({"notes", "template", "cri_number"})
_MAX_FIELDS = 64
_NAMESPACE_CLAUSE = "docs/decisions/0027"
#: characters in a note of a row, in a draft's name and in an account's id
_MAX_NOTE: Final = 10_000
_MAX_NAME: Final = 200
#: notes of one entry that its registrant and designees may add
_MAX_NOTES: Final = 100


def move_request(case: EventContext, state: RequestState, **changes: Any) -> Request:
    """Return the request in another state, with its holder, time and next version."""
    asked = case.current_request
    changes.setdefault("due", None)
    changes.setdefault("since", case.at)
    changes.setdefault("holder", _HOLDERS.get(state))
    return replace(asked, state=state, version=asked.version + 1, reminded=0, reminded_at=None, **changes)


def change_request(case: EventContext, **changes: Any) -> Request:
    """Return the request in the same state, with these changes and the next version."""
    return replace(case.current_request, version=case.current_request.version + 1, **changes)


def update_entry(case: EventContext, entry: Entry, **changes: Any) -> Entry:
    """Return the entry with these changes, the time and the next version."""
    return replace(entry, updated=case.at, version=entry.version + 1, **changes)


def build_entry(case: EventContext, status: Status, *, under_review: bool = False) -> Entry:
    """Return the entry that the request asks for: a new one, or the present one with the request's fields.

    With `under_review` the request continues, and the entry shows it.
    """
    asked, base = case.current_request, _select_base_entry(case, status)
    return update_entry(
        case,
        base,
        status=status,
        fields=_merge_fields(case),
        draft=_select_draft(case, base),
        expires=parse_date(asked.fields.get("expires")) or base.expires,
        notes=list_kept_notes(case, base),
        pending=(*list_other_pending(case), asked.id) if under_review else list_other_pending(case),
    )


def _select_base_entry(case: EventContext, status: Status) -> Entry:
    asked, row = case.current_request, case.entry
    # an imported entry has no date either, and does not become the requester's
    if row is not None and row.status is not Status.PENDING_REVIEW:
        return row
    fresh = Entry(registry=asked.registry, name=asked.name, status=status)
    if row is not None:
        fresh = row if _shows_request(row, asked) else clear_entry(row)
    return replace(fresh, registrant=asked.registrant, registered=case.at)


def _shows_request(row: Entry, asked: Request) -> bool:
    """Report whether the entry of status Pending Review shows this request, not another one."""
    return row.pending[:1] == (asked.id,)


def clear_entry(row: Entry) -> Entry:
    """Return an entry of status Pending Review without the fields of the request that it showed."""
    return Entry(
        registry=row.registry, name=row.name, status=row.status, pending=row.pending, version=row.version
    )


def _has_own_entry(case: EventContext) -> bool:
    """Report whether the new name has had its entry since IETF review began (E4)."""
    asked, old = case.current_request, case.entry
    in_review = asked.kind is RequestKind.NEW and asked.state is RequestState.IETF_REVIEW
    return in_review and old is not None and asked.id in old.pending


def _merge_fields(case: EventContext) -> dict[str, str]:
    asked, old = case.current_request, case.entry
    if _has_own_entry(case):
        return dict(case.current_entry.fields)
    # a new name takes nothing over from the row that showed another request for it
    fields = dict(old.fields) if old is not None and asked.kind is not RequestKind.NEW else {}
    kept = {name for name in CONTROL_FIELDS if asked.third_party and fields.get(name)}
    fields |= {name: value for name, value in asked.fields.items() if name not in _NOT_COLUMNS | kept}
    if "references" in fields and not fields.get("reference"):
        fields["reference"] = " ".join(fields["references"].split())
    if any(column.id == "description" for column in case.registry.columns):
        fields.setdefault("description", asked.name)
    return fields


def _select_draft(case: EventContext, base: Entry) -> DraftReference | None:
    """Return the request's draft unless the entry notes that it has expired, else the entry's draft."""
    given = case.current_request.draft
    if given is None or _has_own_entry(case):
        return base.draft
    told = {note.text for note in base.notes if note.kind == EventKind.DRAFT_EXPIRED}
    return base.draft if format_draft_expiry(given) in told else given


def format_draft_expiry(draft: DraftReference) -> str:
    """Return the text of the note about an expired draft (U4)."""
    return f"{draft.name} expired on {draft.expires.isoformat()}"


def list_kept_notes(case: EventContext, entry: Entry) -> tuple[Note, ...]:
    """Return the entry's notes; an approval by the expert or the IESG removes the note `unreviewed`."""
    if case.event.kind not in _APPROVALS:
        return entry.notes
    return tuple(note for note in entry.notes if note.kind != UNREVIEWED)


def list_other_pending(case: EventContext) -> tuple[str, ...]:
    """Return the other pending requests about the entry."""
    pending = () if case.entry is None else case.entry.pending
    return tuple(identifier for identifier in pending if identifier != case.current_request.id)


def mark_unreviewed(case: EventContext, entry: Entry) -> Entry:
    """Return the entry with one note that a review timeout registered it."""
    note = Note(kind=UNREVIEWED, text="registered without Expert Review", at=case.at, by=case.actor.id)
    return replace(entry, notes=(*(old for old in entry.notes if old.kind != UNREVIEWED), note))


def remove_pending(case: EventContext) -> tuple[Entry | None, bool]:
    """Return (entry or None, is it removed) after the request has ended."""
    row = case.entry
    if row is None or case.current_request.id not in row.pending:
        return None, False
    left = list_other_pending(case)
    if row.status is Status.PENDING_REVIEW and not left:
        return None, True
    # the fields of the ended request are not those of the waiting requests
    gone = row.status is Status.PENDING_REVIEW and _shows_request(row, case.current_request)
    return update_entry(case, clear_entry(row) if gone else row, pending=left), False


def make_decision(case: EventContext, rule: Rule, **changes: Any) -> Decision:
    """Return a decision by this rule."""
    return Decision(rule=rule.id, clause=rule.get_clause(case), **changes)


def approve_request(
    case: EventContext, rule: Rule, entry: Entry, *, outcome: str, reason: str | None = None
) -> Decision:
    """Return the decision that approves the request with this entry."""
    request = move_request(case, RequestState.APPROVED, outcome=outcome, reason=reason)
    subject = f"{case.name}: registered as {entry.status}" if outcome != "noted" else f"{case.name}: noted"
    return make_decision(
        case, rule, request=request, entry=entry, notices=(make_notice(request.registrant, subject, reason),)
    )


def change_status(case: EventContext, rule: Rule, status: Status, *, note: str | None = None) -> Decision:
    """Return the decision for another status; the reason becomes a note of the kind `note`."""
    reason = get_text(case, "reason")
    notes = list_kept_notes(case, case.current_entry) + (
        (make_note(case, note, reason),) if note and reason else ()
    )
    entry = update_entry(case, case.current_entry, status=status, notes=notes)
    return decide_entry(case, rule, entry, f"now {status}", reason)


def make_notice(to: str | Role, subject: str, body: str | None = None) -> Notice:
    """Return a notice; without a text the subject is the text."""
    said = apply_words(subject)
    return Notice(to=to, subject=said, text=body or said)


def decide_entry(
    case: EventContext, rule: Rule, entry: Entry, subject: str, text: str | None = None
) -> Decision:
    """Return the decision about an entry, with a notice to its registrant if it has one."""
    notices = (make_notice(entry.registrant, f"{case.name}: {subject}", text),) if entry.registrant else ()
    return make_decision(case, rule, entry=entry, notices=notices)


def add_note(case: EventContext, kind: str, text: str, **changes: Any) -> Entry:
    """Return the entry with another note by the actor. Raises RefusalError if the note is too long."""
    entry = case.current_entry
    return update_entry(case, entry, notes=(*entry.notes, make_note(case, kind, text)), **changes)


def make_note(case: EventContext, kind: str, said: str) -> Note:
    """Return a note by the actor. Raises RefusalError (registry.too-large)."""
    if len(said) > _MAX_NOTE:
        raise RefusalError(
            f"a note has at most {_MAX_NOTE:,} characters",
            code="registry.too-large",
            field="notes",
            hint="Publish the rest elsewhere and give its URL.",
        )
    return Note(kind=kind, text=said, at=case.at, by=case.actor.id)


def require_room_for_note(case: EventContext) -> None:
    """Raise RefusalError if the entry is full of notes and the actor is only its registrant or designee."""
    if len(case.current_entry.notes) >= _MAX_NOTES and not case.actor.has_role(
        Role.IANA, Role.EXPERT, Role.IESG
    ):
        raise RefusalError(
            f"the entry has {_MAX_NOTES} notes already",
            code="registry.too-large",
            field="notes",
            hint="Ask IANA to add the note.",
        )


def is_valid_id(value: object) -> bool:
    """Report whether a value is a name or an ID: short, printable and without spaces."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable() and " " not in value


def parse_fields(case: EventContext, old: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the event over the old ones. Raises RefusalError for an unknown field."""
    given = case.event.data.get("fields", {})
    if not isinstance(given, Mapping) or len(given) > _MAX_FIELDS:
        raise reject("fields", f"`fields` must be an object of at most {_MAX_FIELDS} texts")
    known = _list_known_fields(case)
    for name, value in given.items():
        if name not in known:
            raise reject(
                str(name)[:64],
                "a request does not have this field",
                hint=f"Choose one of {', '.join(sorted(known))}.",
            )
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise reject(name, f"the field is not a text of at most {MAX_TEXT:,} characters")
    merged = {**old, **given}
    if sum(map(len, merged.values())) > MAX_TEXT:
        raise RefusalError(
            f"the fields have more than {MAX_TEXT:,} characters together",
            code="registry.too-large",
            field="fields",
            hint="Put the rest into the specification.",
        )
    _validate_namespace(case, given)
    return merged


def _validate_namespace(case: EventContext, given: Mapping[str, str]) -> None:
    """Reject fields that resolvers cannot use; one such entry would prevent signing the file."""
    if case.registry.id != "ai-namespaces":
        return
    from onym.registry.iana import check_namespace_fields  # late: the engine imports nothing else of it

    try:
        check_namespace_fields(given)
    except SnapshotError as error:
        raise reject(error.field, error.message, clause=_NAMESPACE_CLAUSE, hint=error.hint) from None
    expires = parse_date(given.get("expires"))
    if expires is not None and expires < case.at.date():
        raise reject(
            "expires",
            f"the expiry day {expires} is past",
            clause=_NAMESPACE_CLAUSE,
            hint="Give the last day of the registration.",
        )


def _list_known_fields(case: EventContext) -> frozenset[str]:
    template = {field.id for field in case.profile.all_fields}
    return frozenset(template | {column.id for column in case.registry.columns} | {"service"}) - _IANA_COLUMNS


def parse_draft(case: EventContext, old: DraftReference | None) -> DraftReference | None:
    """Return the draft that the event names, or the old one. Raises RefusalError."""
    given = case.event.data.get("draft")
    if given is None:
        return old
    expires = parse_date(given.get("expires")) if isinstance(given, Mapping) else None
    if expires is None or not is_valid_id(given.get("name")):
        raise reject(
            "draft",
            f"`draft` needs an expiry day, and a name without spaces of at most {_MAX_NAME} characters",
        )
    return DraftReference(name=given["name"], expires=expires)


def parse_date(value: object) -> date | None:
    """Return the date in a text, or None if the text is empty. Raises RefusalError."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        raise reject("expires", f"{value[:40]!r} is not a date", hint="Write it as 2027-01-31.") from None


def add_duration(at: datetime, by: timedelta | None) -> datetime | None:
    """Return `at` plus a duration, or None if there is no duration."""
    return None if by is None else at + by
