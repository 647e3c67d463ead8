"""What happens to a row without a request: S1, S3, U1, U3 to U5, deprecation, and IANA's own X."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, Final

from onym.errors import RefusalError, StoreError
from onym.registry import codec
from onym.registry.engine._case import Case, Rule, clauses, required_text, text
from onym.registry.engine._effects import (
    decided,
    expiry_of,
    is_word,
    noted,
    notes_of,
    room_for_note,
    tell,
    touched,
)
from onym.registry.records import Decision, Entry, EventKind, Role, Status

__all__ = ["RULES"]

_IANA: Final = (Role.IANA,)
_IESG: Final = (Role.IESG,)
_DECISION: Final = "docs/decisions/0026"
_OURS: Final = clauses(_DECISION, _DECISION, _DECISION)
_NAMESPACE: Final = {"expert-review": "docs/decisions/0027"}
_DESIGNEES: Final = 64
#: how `remove` is said, and left unsaid
_YES: Final = (True, "yes", "true")
_NO: Final = (None, False, "", "no", "false")
#: a word in a file's column of statuses that is no status: as much the file's as the column
_PUBLISHED_STATUS: Final = "published_status"
#: what only a reinstatement ends (docs/decisions/0027), and the notes that tell of a namespace's state
_HELD: Final = (Status.SAFE_MODE, Status.SUSPENDED)
_EXPIRED: Final = "expired"
_OF_STATE: Final = frozenset({*map(str, _HELD), "reinstated", "override", _EXPIRED})


def _is(*statuses: Status) -> Any:
    """A test: does the row have one of these?"""
    return lambda case: case.entry is not None and case.row.status in statuses


def _exists(case: Case) -> bool:
    return case.entry is not None


def _under_review(case: Case) -> bool:
    return case.entry is not None and case.row.status is Status.PROVISIONAL and bool(case.row.pending)


def _may_update(case: Case) -> bool:
    return case.may_update


def _owns(case: Case) -> bool:
    return case.owns_entry


def _with_status(case: Case, rule: Rule, status: Status, *, note: str | None = None) -> Decision:
    reason = text(case, "reason")
    notes = notes_of(case, case.row) + ((noted(case, note, reason),) if note and reason else ())
    row = touched(case, case.row, status=status, notes=notes)
    told = (tell(row.registrant, f"{case.name}: now {status}", reason),) if row.registrant else ()
    return decided(case, rule, entry=row, notices=told)


def _upgrade(case: Case, rule: Rule) -> Decision:
    return _with_status(case, rule, Status.PERMANENT)


def _retire(case: Case, rule: Rule) -> Decision:
    return _with_status(case, rule, Status.HISTORICAL)


def _deprecate(case: Case, rule: Rule) -> Decision:
    return _with_status(case, rule, Status.DEPRECATED)


def _reassign(case: Case, rule: Rule) -> Decision:
    to, reason = required_text(case, "to"), required_text(case, "reason", clause=rule.clause(case))
    if not is_word(to):
        raise RefusalError("that is no account id", code="registry.bad-data", field="to")
    controller = text(case, "change_controller")
    fields = {**case.row.fields, **({"change_controller": controller} if controller else {})}
    row = touched(
        case, case.row, registrant=to, designees=frozenset(), fields=fields,
        notes=(*case.row.notes, noted(case, "reassigned", reason)),
    )  # fmt: skip
    told = [tell(to, f"{case.name}: the entry is yours now", reason)]
    if case.row.registrant and case.row.registrant != to:
        told.append(tell(case.row.registrant, f"{case.name}: the entry was reassigned", reason))
    return decided(case, rule, entry=row, notices=tuple(told))


def _demand(case: Case, rule: Rule) -> Decision:
    reason = required_text(case, "reason", clause=rule.clause(case))
    row = touched(case, case.row, notes=(*case.row.notes, noted(case, "changes-demanded", reason)))
    told = (
        (tell(row.registrant, f"{case.name}: the IESG asks for changes", reason),) if row.registrant else ()
    )
    return decided(case, rule, entry=row, notices=told)


def _security(case: Case, rule: Rule) -> Decision:
    said = required_text(case, "text", clause=rule.clause(case))
    reference = text(case, "reference")
    room_for_note(case)
    note = noted(case, "security", f"{said} [{reference}]" if reference else said)
    row = touched(case, case.row, notes=(*case.row.notes, note))
    told = (tell(row.registrant, f"{case.name}: a security note", said),) if row.registrant else ()
    return decided(case, rule, entry=row, notices=told)


def _designate(case: Case, rule: Rule) -> Decision:
    lists = [case.event.data.get(member, ()) for member in ("add", "remove")]
    for given in lists:
        if not isinstance(given, (list, tuple)) or not all(map(is_word, given)):
            raise RefusalError(
                "`add` and `remove` are lists of account ids", code="registry.bad-data", field="add"
            )
    named = (case.row.designees | set(lists[0])) - set(lists[1])
    if len(named) > _DESIGNEES:
        raise RefusalError(f"more than {_DESIGNEES} designees", code="registry.bad-data", field="add")
    return decided(case, rule, entry=touched(case, case.row, designees=frozenset(named)))


def _draft_over(case: Case) -> bool:
    return case.entry is not None and case.row.draft is not None and case.row.draft.expires < case.at.date()


def _draft_expired(case: Case, rule: Rule) -> Decision:
    draft = case.row.draft
    assert draft is not None  # noqa: S101
    said = expiry_of(draft)
    row = touched(case, case.row, draft=None, notes=(*case.row.notes, noted(case, "draft-expired", said)))
    told = (tell(row.registrant, f"{case.name}: {said}", said),) if row.registrant else ()
    return decided(case, rule, entry=row, notices=told)


def _draft_published(case: Case, rule: Rule) -> Decision:
    reference = required_text(case, "reference", clause=rule.clause(case))
    fields = {**case.row.fields, "reference": reference}
    if case.event.data.get("standards_track") is True and case.row.status is not Status.PERMANENT:
        raise RefusalError(
            f"a Standards Track document defines it, and the entry is {case.row.status}",
            code="registry.not-allowed", rule="C1",
            clause="RFC 4395 5.1" if case.profile.id == "rfc4395" else "RFC 7595 3", hint="upgrade it first",
        )  # fmt: skip
    approved = case.row.iesg_approved or case.event.data.get("iesg_approved") is True
    row = touched(case, case.row, draft=None, fields=fields, iesg_approved=approved)
    told = (tell(row.registrant, f"{case.name}: now refers to {reference}"),) if row.registrant else ()
    return decided(case, rule, entry=row, notices=told)


# ---------- outside the procedure


def _entry_given(case: Case, member: str) -> Entry:
    given = case.event.data.get(member)
    if not isinstance(given, Mapping):
        raise RefusalError(f"`{member}` is not an entry", code="registry.bad-data", field=member)
    try:
        entry = codec.from_data(Entry, given)
    except StoreError as error:
        raise RefusalError(error.message, code="registry.bad-data", field=member, hint=error.hint) from error
    if (entry.registry, case.registry.key(entry.name)) != (case.registry.id, case.name):
        raise RefusalError("the entry has another name", code="registry.bad-data", field=member)
    if entry.status not in case.registry.statuses:
        raise RefusalError(
            "no entry of this registry has that status", code="registry.bad-status", field="status",
            hint=f"one of {', '.join(case.registry.statuses)}",
        )  # fmt: skip
    if entry.name != case.name:
        return replace(entry, name=case.name, spelling=entry.spelling or entry.name)
    return entry


def _import(case: Case, rule: Rule) -> Decision:
    given, old = _entry_given(case, "entry"), case.entry
    if old is None:
        return decided(case, rule, entry=replace(given, version=1, pending=()))
    # the registry's own memory is not the file's to change, nor what registrants said outside its columns
    shown = {each.id for each in case.registry.columns} | {_PUBLISHED_STATUS}
    own = {name: value for name, value in old.fields.items() if name not in shown}
    kept = replace(
        given, fields={**own, **given.fields},
        registrant=given.registrant or old.registrant, designees=given.designees or old.designees,
        notes=given.notes or old.notes, pending=old.pending, registered=given.registered or old.registered,
        iesg_approved=given.iesg_approved or old.iesg_approved, draft=given.draft or old.draft,
    )  # fmt: skip
    return decided(case, rule, entry=touched(case, replace(kept, version=old.version)))


def _is_yes(value: object) -> bool:
    if value in _YES:
        return True
    if value in _NO:
        return False
    raise RefusalError(
        "`remove` is yes, or is left out", code="registry.bad-data", field="remove", hint="remove=yes"
    )


def _override(case: Case, rule: Rule) -> Decision:
    reason = required_text(case, "reason", clause=rule.clause(case))
    note = noted(case, "override", reason)
    given = {**case.event.data, "remove": _is_yes(case.event.data.get("remove"))}
    asked = [member for member in ("status", "remove", "restore") if given.get(member)]
    if len(asked) != 1:
        raise RefusalError(
            "an override says one of status, remove and restore", code="registry.bad-data", field="status"
        )
    if asked == ["remove"]:
        return decided(
            case, rule, removed=True, notices=_told(case, f"{case.name}: removed by override", reason)
        )
    if asked == ["restore"]:
        if case.entry is not None:
            raise RefusalError(
                "there is an entry of that name", code="registry.bad-data", field="restore",
                hint="override its status instead",
            )  # fmt: skip
        base = _entry_given(case, "restore")
        row = touched(case, base, notes=(*base.notes, note), pending=())
        return decided(case, rule, entry=row)
    status = next((each for each in case.registry.statuses if each == case.event.data["status"]), None)
    if status is None or status is Status.PENDING_REVIEW:
        raise RefusalError(
            "no entry can be set to that status", code="registry.bad-status", field="status",
            hint=f"one of {', '.join(case.registry.statuses)}",
        )  # fmt: skip
    row = touched(case, case.row, status=status, notes=(*case.row.notes, note))
    return decided(case, rule, entry=row, notices=_told(case, f"{case.name}: {status} by override", reason))


def _told(case: Case, subject: str, reason: str) -> tuple[Any, ...]:
    known = case.entry is not None and case.row.registrant
    return (tell(str(case.row.registrant), subject, reason),) if known else ()


def _nothing_to_override(case: Case) -> bool:
    return case.entry is None and not case.event.data.get("restore")


# ---------- ai namespaces, in operation


def _to(status: Status, *, note: str) -> Any:
    def effect(case: Case, rule: Rule) -> Decision:
        required_text(case, "reason", clause=rule.clause(case))
        return _with_status(case, rule, status, note=note)

    return effect


def _over(case: Case) -> bool:
    """Past the last day it holds?"""
    row = case.entry
    running = (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)
    return (
        row is not None and row.expires is not None and row.expires < case.at.date() and row.status in running
    )


def _expire(case: Case, rule: Rule) -> Decision:
    before = case.row.status
    held = before in _HELD
    # the note tells a renewal what the namespace was, whoever made it so
    said = f"expired; {before} until reinstated" if held else _EXPIRED
    note = noted(case, str(before) if held else _EXPIRED, said)
    row = replace(case.row, notes=(*case.row.notes, note))
    return _with_status(replace(case, entry=row), rule, Status.EXPIRED)


def _before_expiry(case: Case) -> Status:
    last = next((note.kind for note in reversed(case.row.notes) if note.kind in _OF_STATE), "")
    return next((status for status in _HELD if status == last), Status.ACTIVE)


def _renew(case: Case, rule: Rule) -> Decision:
    given = required_text(case, "expires", clause=rule.clause(case))
    try:
        expires = date.fromisoformat(given)
    except ValueError:
        raise RefusalError(
            "that is no date", code="registry.bad-data", field="expires", hint="write it as 2027-01-31"
        ) from None
    if expires <= case.at.date():
        raise RefusalError("that day is not to come", code="registry.bad-data", field="expires")
    status = _before_expiry(case) if case.row.status is Status.EXPIRED else case.row.status
    return decided(case, rule, entry=touched(case, case.row, expires=expires, status=status))


_SCHEME: Final = clauses("5.3", "7.3")
_PARAMETER: Final = {"specification-required": "RFC 8126 4.6"}

RULES: Final = (
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=clauses("5.2", "7.2"), roles=(Role.EXPERT, Role.IESG),
        when=_under_review, said="a request about the entry is under review", hint="decide that request",
    ),
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=clauses("5.2", "7.2"), roles=(Role.EXPERT, Role.IESG),
        when=_is(Status.PROVISIONAL), effect=_upgrade, said="provisional to permanent, unprompted",
    ),
    Rule(
        id="S3", event=EventKind.RETIRE, clauses=_SCHEME, who=_may_update, when=_is(Status.PROVISIONAL),
        effect=_retire, said="provisional to historical, by who may update it",
    ),
    Rule(
        id="X", event=EventKind.RETIRE, clauses=_SCHEME, roles=tuple(Role), when=_is(Status.PERMANENT),
        said="permanent to historical needs the IESG's approval", hint="open a status-change to historical",
    ),
    Rule(
        id="D1", event=EventKind.RETIRE, clauses=_PARAMETER, roles=(Role.EXPERT,), who=_may_update,
        when=_is(Status.REGISTERED), effect=_deprecate, said="deprecated; the name stays taken",
    ),
    Rule(
        id="U3", event=EventKind.REASSIGN, clauses=_SCHEME, roles=_IESG, when=_is(Status.PROVISIONAL),
        effect=_reassign, said="reassigned by the IESG",
    ),
    Rule(
        id="U3", event=EventKind.DEMAND_CHANGES, clauses=_SCHEME, roles=_IESG, when=_exists, effect=_demand,
        said="the IESG asks for changes",
    ),
    Rule(
        id="U1", event=EventKind.DESIGNATE, clauses=clauses("5.3", "7.3", _DECISION), when=_exists, who=_owns,
        effect=_designate, said="who else may update it",
    ),
    Rule(
        id="U4", event=EventKind.DRAFT_EXPIRED, clauses=clauses("5.4", "7.4", _DECISION), roles=_IANA,
        when=_draft_over, effect=_draft_expired, said="the draft has expired; the row says so",
    ),
    Rule(
        id="U4", event=EventKind.DRAFT_PUBLISHED, clauses=clauses("5.4", "7.4", _DECISION), roles=_IANA,
        when=_exists, effect=_draft_published, said="the draft has become an RFC; the row refers to it",
    ),
    Rule(
        id="U5", event=EventKind.ATTACH_SECURITY_NOTE, clauses=clauses("7", "10", _DECISION),
        roles=(Role.IANA, Role.EXPERT, Role.IESG), who=_may_update, when=_exists, effect=_security,
        said="security information attached",
    ),
    Rule(
        id="IMPORT", event=EventKind.IMPORT, clauses=_OURS, roles=_IANA, effect=_import,
        said="a row of a published registry",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OURS, roles=(Role.IANA, Role.IESG),
        when=_nothing_to_override, said="there is no entry of that name", hint="restore one",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OURS, roles=(Role.IANA, Role.IESG), effect=_override,
        said="an override, with a name and a reason",
    ),
    Rule(
        id="N1", event=EventKind.ENTER_SAFE_MODE, clauses=_NAMESPACE, roles=_IANA, who=_may_update,
        when=_is(Status.ACTIVE), effect=_to(Status.SAFE_MODE, note="safe-mode"),
        said="safe mode until reinstated",
    ),
    Rule(
        id="N2", event=EventKind.SUSPEND, clauses=_NAMESPACE, roles=_IANA,
        when=_is(Status.ACTIVE, Status.SAFE_MODE), effect=_to(Status.SUSPENDED, note="suspended"),
        said="suspended until reinstated",
    ),
    Rule(
        id="N3", event=EventKind.REINSTATE, clauses=_NAMESPACE, roles=_IANA,
        when=_is(Status.SAFE_MODE, Status.SUSPENDED), effect=_to(Status.ACTIVE, note="reinstated"),
        said="active again",
    ),
    Rule(
        id="N4", event=EventKind.REVOKE, clauses=_NAMESPACE, roles=_IANA,
        when=_is(Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED, Status.EXPIRED),
        effect=_to(Status.REVOKED, note="revoked"), said="revoked; the name stays taken",
    ),
    Rule(
        id="N5", event=EventKind.RENEW, clauses=_NAMESPACE, roles=_IANA,
        when=_is(Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED, Status.EXPIRED), effect=_renew,
        said="holds longer",
    ),
    Rule(
        id="N6", event=EventKind.NAMESPACE_EXPIRED, clauses=_NAMESPACE, roles=_IANA, when=_over,
        effect=_expire, said="its last day is past",
    ),
)  # fmt: skip
