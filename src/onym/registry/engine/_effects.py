"""What rules do, in a few verbs: move a request, write a row, tell somebody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, Final

from onym.errors import RefusalError, SnapshotError
from onym.registry.engine._case import TEXT_LIMIT, Case, Rule, text
from onym.registry.records import (
    Decision,
    DraftReference,
    Entry,
    EventKind,
    Note,
    Notice,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)

__all__ = [
    "UNREVIEWED",
    "applied",
    "blank",
    "day_of",
    "decided",
    "draft_of",
    "entry_of",
    "expiry_of",
    "fields_of",
    "is_word",
    "later",
    "moved",
    "noted",
    "notes_of",
    "room_for_note",
    "tell",
    "touched",
    "unreviewed",
    "with_status",
    "without_pending",
]

_HOLDERS: Mapping[RequestState, Role] = {
    RequestState.DRAFT: Role.REGISTRANT,
    RequestState.LIST_REVIEW: Role.REGISTRANT,
    RequestState.SUBMITTED: Role.IANA,
    RequestState.EXPERT_REVIEW: Role.EXPERT,
    RequestState.MORE_REVIEW: Role.REGISTRANT,
    RequestState.IETF_REVIEW: Role.IESG,
}

#: the kind of note on a row that two weeks of silence registered (RFC 4395 5.2 step 6)
UNREVIEWED: Final = "unreviewed"
#: by which the expert or the IESG approves the row; who happens to have the role as well does not
_APPROVALS: Final = frozenset(
    {
        EventKind.APPROVE,
        EventKind.APPROVE_AS_PROVISIONAL,
        EventKind.ASK_IETF_REVIEW,
        EventKind.IESG_APPROVE,
        EventKind.ASK_UPGRADE,
    }
)

#: fields of a template that are the row's own members, not columns
_NOT_COLUMNS = frozenset({"name", "status", "expires"})
#: columns that are not the registrant's to fill (RFC 7595 9; IANA assigns paths and numbers)
_IANAS = frozenset({"notes", "template", "cri_number"})
_FIELD_COUNT = 64
_NAMESPACES = "docs/decisions/0027"
#: characters in a note of a row, in a draft's name and in an account's id
_NOTE: Final = 10_000
_NAME: Final = 200
#: notes of one row, beyond which whoever may update it adds none
_NOTES: Final = 100


def moved(case: Case, state: RequestState, **changes: Any) -> Request:
    """The request in `state`: who holds it now, since when, one version on."""
    asked = case.asked
    changes.setdefault("due", None)
    changes.setdefault("since", case.at)
    return replace(asked, state=state, holder=_HOLDERS.get(state), version=asked.version + 1, **changes)


def touched(case: Case, entry: Entry, **changes: Any) -> Entry:
    """The row with these changes, dated, one version on."""
    return replace(entry, updated=case.at, version=entry.version + 1, **changes)


def entry_of(case: Case, status: Status, *, under_review: bool = False) -> Entry:
    """The row that the request asks for: a new one, or the one there is with the request's fields over it.

    `under_review`: the request goes on, and the row shows it.
    """
    asked, base = case.asked, _base(case, status)
    return touched(
        case,
        base,
        status=status,
        fields=_fields(case),
        draft=_draft(case, base),
        expires=day_of(asked.fields.get("expires")) or base.expires,
        notes=notes_of(case, base),
        pending=(*_others(case), asked.id) if under_review else _others(case),
    )


def _base(case: Case, status: Status) -> Entry:
    """What the request's fields are laid over."""
    asked, row = case.asked, case.entry
    # an imported row has no date either, and is not for whoever asks about it
    if row is not None and row.status is not Status.PENDING_REVIEW:
        return row
    fresh = Entry(registry=asked.registry, name=asked.name, status=status)
    if row is not None:
        fresh = row if _shows(row, asked) else blank(row)
    return replace(fresh, registrant=asked.registrant, registered=case.at)


def _shows(row: Entry, asked: Request) -> bool:
    """Does the row of status Pending Review show that request, and no rival's?"""
    return row.pending[:1] == (asked.id,)


def blank(row: Entry) -> Entry:
    """The row without what the request said that it showed."""
    return Entry(
        registry=row.registry, name=row.name, status=row.status, pending=row.pending, version=row.version
    )


def _stands(case: Case) -> bool:
    """Has the new name had its row since IETF review began (E4), so that what happened to it since holds?"""
    asked, old = case.asked, case.entry
    in_review = asked.kind is RequestKind.NEW and asked.state is RequestState.IETF_REVIEW
    return in_review and old is not None and asked.id in old.pending


def _fields(case: Case) -> dict[str, str]:
    """The fields that the request asks for, over those of the row where it has some to keep."""
    asked, old = case.asked, case.entry
    if _stands(case):
        return dict(case.row.fields)
    # a new name takes nothing over from the row that showed another request for it
    fields = dict(old.fields) if old is not None and asked.kind is not RequestKind.NEW else {}
    fields |= {name: value for name, value in asked.fields.items() if name not in _NOT_COLUMNS}
    if "references" in fields and not fields.get("reference"):
        fields["reference"] = " ".join(fields["references"].split())
    fields.setdefault("description", asked.name)
    return fields


def _draft(case: Case, base: Entry) -> DraftReference | None:
    """The draft that the request names, else the row's. One whose end the row tells already stays away."""
    given = case.asked.draft
    if given is None or _stands(case):
        return base.draft
    told = {note.text for note in base.notes if note.kind == EventKind.DRAFT_EXPIRED}
    return base.draft if expiry_of(given) in told else given


def expiry_of(draft: DraftReference) -> str:
    """How the row tells that the draft has expired (U4)."""
    return f"{draft.name} expired on {draft.expires.isoformat()}"


def notes_of(case: Case, entry: Entry) -> tuple[Note, ...]:
    """The row's notes; an approval by expert or IESG takes away that nobody has reviewed it."""
    if case.event.kind not in _APPROVALS:
        return entry.notes
    return tuple(note for note in entry.notes if note.kind != UNREVIEWED)


def _others(case: Case) -> tuple[str, ...]:
    """The other requests under review about the row."""
    return () if case.entry is None else tuple(each for each in case.entry.pending if each != case.asked.id)


def unreviewed(case: Case, entry: Entry) -> Entry:
    """The row, marked as one that silence registered; a mark that it has already is made anew."""
    note = Note(kind=UNREVIEWED, text="registered without Expert Review", at=case.at, by=case.actor.id)
    return replace(entry, notes=(*(each for each in entry.notes if each.kind != UNREVIEWED), note))


def without_pending(case: Case) -> tuple[Entry | None, bool]:
    """The row after its request has gone: (row or None, is it removed?)."""
    row = case.entry
    if row is None or case.asked.id not in row.pending:
        return None, False
    left = _others(case)
    if row.status is Status.PENDING_REVIEW and not left:
        return None, True
    # what the request that has gone said does not stand for those that wait
    gone = row.status is Status.PENDING_REVIEW and _shows(row, case.asked)
    return touched(case, blank(row) if gone else row, pending=left), False


def decided(case: Case, rule: Rule, **changes: Any) -> Decision:
    """A decision by that rule."""
    return Decision(rule=rule.id, clause=rule.clause(case), **changes)


def applied(case: Case, rule: Rule, entry: Entry, *, outcome: str, reason: str | None = None) -> Decision:
    """The request has got what `entry` says, and is done."""
    request = moved(case, RequestState.APPROVED, outcome=outcome, reason=reason)
    subject = f"{case.name}: registered as {entry.status}" if outcome != "noted" else f"{case.name}: noted"
    return decided(
        case, rule, request=request, entry=entry, notices=(tell(request.registrant, subject, reason),)
    )


def with_status(case: Case, rule: Rule, status: Status, *, note: str | None = None) -> Decision:
    """The row with another status; the event's reason is told, and kept as a note of the kind `note`."""
    reason = text(case, "reason")
    notes = notes_of(case, case.row) + ((noted(case, note, reason),) if note and reason else ())
    row = touched(case, case.row, status=status, notes=notes)
    told = (tell(row.registrant, f"{case.name}: now {status}", reason),) if row.registrant else ()
    return decided(case, rule, entry=row, notices=told)


def tell(to: str | Role, subject: str, body: str | None = None) -> Notice:
    """A notice; its text is the reason where one was given."""
    return Notice(to=to, subject=subject, text=body or subject)


def noted(case: Case, kind: str, said: str) -> Note:
    """A note by the actor, now. Raises RefusalError where it is longer than a row shows."""
    if len(said) > _NOTE:
        raise RefusalError(
            f"a note has at most {_NOTE:,} characters",
            code="registry.too-large",
            field="notes",
            hint="put the rest elsewhere, and name the place",
        )
    return Note(kind=kind, text=said, at=case.at, by=case.actor.id)


def room_for_note(case: Case) -> None:
    """Refuse a further note by whoever may update a row that has many. Raises RefusalError."""
    if len(case.row.notes) >= _NOTES and not case.actor.has(Role.IANA, Role.EXPERT, Role.IESG):
        raise RefusalError(
            f"the entry has {_NOTES} notes already",
            code="registry.too-large",
            field="notes",
            hint="ask IANA to add it",
        )


def is_word(value: object) -> bool:
    """Is it a name or an id: short, seen, and without spaces?"""
    return isinstance(value, str) and 0 < len(value) <= _NAME and value.isprintable() and " " not in value


def fields_of(case: Case, old: Mapping[str, str]) -> dict[str, str]:
    """The fields that the event brings over `old`, each a text under an id of its template or registry."""
    given = case.event.data.get("fields", {})
    if not isinstance(given, Mapping) or len(given) > _FIELD_COUNT:
        raise RefusalError("`fields` is not an object of texts", code="registry.bad-data", field="fields")
    known = _known_fields(case)
    for name, value in given.items():
        if name not in known:
            raise RefusalError(
                "a request has no such field",
                code="registry.bad-data",
                field=str(name)[:64],
                hint=f"one of {', '.join(sorted(known))}",
            )
        if not isinstance(value, str) or len(value) > TEXT_LIMIT:
            raise RefusalError(
                f"the field is not a text of at most {TEXT_LIMIT:,} characters",
                code="registry.bad-data",
                field=name,
            )
    merged = {**old, **given}
    if sum(map(len, merged.values())) > TEXT_LIMIT:
        raise RefusalError(
            f"the fields have more than {TEXT_LIMIT:,} characters together",
            code="registry.too-large",
            field="fields",
            hint="put the rest into the specification",
        )
    _check_namespace(case, given)
    return merged


def _check_namespace(case: Case, given: Mapping[str, str]) -> None:
    """What no resolver could use is not asked for: one such row would keep the file from being signed."""
    if case.registry.id != "ai-namespaces":
        return
    from onym.registry.iana import check_namespace_fields  # late: the engine imports nothing else of it

    try:
        check_namespace_fields(given)
    except SnapshotError as error:
        raise RefusalError(
            error.message, code="registry.bad-data", field=error.field, clause=_NAMESPACES, hint=error.hint
        ) from None
    expires = day_of(given.get("expires"))
    if expires is not None and expires < case.at.date():
        raise RefusalError(
            "that day is past", code="registry.bad-data", field="expires", clause=_NAMESPACES,
            hint="name the last day on which it holds",
        )  # fmt: skip


def _known_fields(case: Case) -> frozenset[str]:
    profile = case.profile
    template = {each.id for each in (*profile.fields, *profile.elsewhere)}
    return frozenset(template | {each.id for each in case.registry.columns} | {"service"}) - _IANAS


def draft_of(case: Case, old: DraftReference | None) -> DraftReference | None:
    """The draft that the event names, else `old`."""
    given = case.event.data.get("draft")
    if given is None:
        return old
    expires = day_of(given.get("expires")) if isinstance(given, Mapping) else None
    if expires is None or not is_word(given.get("name")):
        raise RefusalError(
            f"`draft` needs a name of at most {_NAME} characters without spaces, and the day it expires",
            code="registry.bad-data",
            field="draft",
        )
    return DraftReference(name=given["name"], expires=expires)


def day_of(value: object) -> date | None:
    """The day that a text names, None for none. Raises RefusalError."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        raise RefusalError(
            "that is no date", code="registry.bad-data", field="expires", hint="write it as 2027-01-31"
        ) from None


def later(at: datetime, by: timedelta | None) -> datetime | None:
    """`at` plus a time, where there is one."""
    return None if by is None else at + by
