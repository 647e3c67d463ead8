"""Rules for entries without a request: status changes, drafts, `ai` namespaces, imports and overrides.

S1, S3, U1, U3 to U5 and D1 are about any entry; N1 to N6 about namespaces in operation
(docs/decisions/0027); IMPORT and X are recorded by IANA or the IESG outside the procedure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any, Final

from onym.errors import RefusalError, StoreError
from onym.registry import codec
from onym.registry.engine._rules import (
    OWN_CLAUSES,
    EventContext,
    Rule,
    add_note,
    build_clauses,
    build_common_clauses,
    can_update,
    change_status,
    clear_entry,
    decide_entry,
    entry_status_in,
    format_draft_expiry,
    get_text,
    has_entry,
    is_entry_owner,
    is_valid_id,
    make_decision,
    make_note,
    make_notice,
    parse_date,
    reject,
    require_room_for_note,
    require_text,
    update_entry,
)
from onym.registry.records import Decision, Entry, EventKind, Note, Role, Status
from onym.registry.words import apply_words

_IANA: Final = (Role.IANA,)
#: statuses of a namespace whose last day ends it
_RUNNING: Final = (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)
_IESG: Final = (Role.IESG,)
_DECISION: Final = "docs/decisions/0026"
_MAX_DESIGNEES: Final = 64


def _is_under_review(case: EventContext) -> bool:
    return (
        case.entry is not None
        and case.current_entry.status is Status.PROVISIONAL
        and bool(case.current_entry.pending)
    )


def _make_status_change(status: Status) -> Callable[[EventContext, Rule], Decision]:
    return lambda case, rule: change_status(case, rule, status)


def _reassign_entry(case: EventContext, rule: Rule) -> Decision:
    to, reason = require_text(case, "to"), require_text(case, "reason", clause=rule.get_clause(case))
    if not is_valid_id(to):
        raise reject("to", "this is not a valid account ID")
    controller = get_text(case, "change_controller")
    fields = {**case.current_entry.fields, **({"change_controller": controller} if controller else {})}
    entry = add_note(case, "reassigned", reason, registrant=to, designees=frozenset(), fields=fields)
    notices = [make_notice(to, f"{case.name}: the entry is yours now", reason)]
    former = case.current_entry.registrant
    if former and former != to:
        notices.append(make_notice(former, f"{case.name}: the entry was reassigned", reason))
    return make_decision(case, rule, entry=entry, notices=tuple(notices))


def _demand_changes(case: EventContext, rule: Rule) -> Decision:
    reason = require_text(case, "reason", clause=rule.get_clause(case))
    entry = add_note(case, "changes-demanded", reason)
    return decide_entry(case, rule, entry, "the IESG asks for changes", reason)


def _attach_security_note(case: EventContext, rule: Rule) -> Decision:
    text = require_text(case, "text", clause=rule.get_clause(case))
    reference = get_text(case, "reference")
    require_room_for_note(case)
    entry = add_note(case, "security", f"{text} [{reference}]" if reference else text)
    return decide_entry(case, rule, entry, "a security note", text)


def _change_designees(case: EventContext, rule: Rule) -> Decision:
    lists = [case.event.data.get(member, ()) for member in ("add", "remove")]
    for given in lists:
        if not isinstance(given, (list, tuple)) or not all(map(is_valid_id, given)):
            raise reject("add", "`add` and `remove` must be lists of account IDs")
    named = (case.current_entry.designees | set(lists[0])) - set(lists[1])
    if len(named) > _MAX_DESIGNEES:
        raise reject("add", f"an entry has at most {_MAX_DESIGNEES} designees")
    return make_decision(case, rule, entry=update_entry(case, case.current_entry, designees=frozenset(named)))


#: days before a draft or a namespace expires, at which its registrant is notified
EXPIRY_NOTICE_DAYS: Final = 30


def find_expiry_notice(entry: Entry, today: date) -> date | None:
    """Return the day from which the registrant is notified that the draft or the entry expires.

    None if nothing expires, if that day is past, or if the registrant was notified.
    """
    last = _find_last_day(entry)
    if last is None or last < today or entry.registrant is None or entry.notified_expiry == last:
        return None
    return date.fromordinal(max(last.toordinal() - EXPIRY_NOTICE_DAYS, 1))


def _find_last_day(entry: Entry) -> date | None:
    days = [] if entry.draft is None else [entry.draft.expires]
    if entry.status in _RUNNING and entry.expires is not None:
        days.append(entry.expires)
    return min(days, default=None)


def _is_expiry_near(case: EventContext) -> bool:
    today = case.at.date()
    day = None if case.entry is None else find_expiry_notice(case.entry, today)
    return day is not None and day <= today


def _notify_of_expiry(case: EventContext, rule: Rule) -> Decision:
    entry = case.current_entry
    last = _find_last_day(entry)
    assert last is not None  # noqa: S101
    if entry.draft is not None and entry.draft.expires == last:
        what = entry.draft.name
        step = "Submit a new version of the draft, or ask IANA to cite what replaces it."
    else:
        what, step = "the registration", "Ask for a renewal if you still need it."
    subject = f"the last day of {what} is {last.isoformat()}"
    return decide_entry(
        case, rule, update_entry(case, entry, notified_expiry=last), subject, apply_words(step)
    )


def _is_draft_expired(case: EventContext) -> bool:
    draft = None if case.entry is None else case.entry.draft
    return draft is not None and draft.expires < case.at.date()


def _remove_expired_draft(case: EventContext, rule: Rule) -> Decision:
    draft = case.current_entry.draft
    assert draft is not None  # noqa: S101
    text = format_draft_expiry(draft)
    return decide_entry(case, rule, add_note(case, "draft-expired", text, draft=None), text, text)


def _cite_published_draft(case: EventContext, rule: Rule) -> Decision:
    reference = require_text(case, "reference", clause=rule.get_clause(case))
    fields = {**case.current_entry.fields, "reference": reference}
    if case.event.data.get("standards_track") is True and case.current_entry.status is not Status.PERMANENT:
        raise RefusalError(
            f"a Standards Track document defines the scheme, but the entry is {case.current_entry.status}",
            code="registry.not-allowed", rule="C1",
            clause="RFC 4395 5.1" if case.profile.id == "rfc4395" else "RFC 7595 3",
            hint="Upgrade the entry first.",
        )  # fmt: skip
    approved = case.current_entry.iesg_approved or case.event.data.get("iesg_approved") is True
    entry = update_entry(case, case.current_entry, draft=None, fields=fields, iesg_approved=approved)
    return decide_entry(case, rule, entry, f"now refers to {reference}")


_SCHEME_CLAUSES: Final = build_clauses("5.3", "7.3")
_PARAMETER_CLAUSES: Final = {"specification-required": "RFC 8126 4.6", "simple": "docs/decisions/0057"}
#: nobody publishes an RFC in a registry that an operator defined
_DRAFT_CLAUSES: Final = {
    name: clause for name, clause in build_clauses("5.4", "7.4", _DECISION).items() if name not in OWN_CLAUSES
}

ENTRY_RULES: Final = (
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=build_clauses("5.2", "7.2"),
        roles=(Role.EXPERT, Role.IESG), when=_is_under_review,
        said="a request about the entry is under review", hint="Decide that request.",
    ),
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=build_clauses("5.2", "7.2"),
        roles=(Role.EXPERT, Role.IESG), when=entry_status_in(Status.PROVISIONAL),
        effect=_make_status_change(Status.PERMANENT), said="provisional to permanent, unprompted",
    ),
    Rule(
        id="S3", event=EventKind.RETIRE, clauses=_SCHEME_CLAUSES, who=can_update,
        when=entry_status_in(Status.PROVISIONAL), effect=_make_status_change(Status.HISTORICAL),
        said="provisional to historical, by who may update it",
    ),
    Rule(
        id="X", event=EventKind.RETIRE, clauses=_SCHEME_CLAUSES, roles=tuple(Role),
        when=entry_status_in(Status.PERMANENT), said="permanent to historical needs the IESG's approval",
        hint="Open a status-change to historical.",
    ),
    Rule(
        id="D1", event=EventKind.RETIRE, clauses=_PARAMETER_CLAUSES, roles=(Role.EXPERT,), who=can_update,
        when=entry_status_in(Status.REGISTERED), effect=_make_status_change(Status.DEPRECATED),
        said="deprecated; the name stays taken",
    ),
    Rule(
        id="U3", event=EventKind.REASSIGN, clauses=_SCHEME_CLAUSES, roles=_IESG,
        when=entry_status_in(Status.PROVISIONAL), effect=_reassign_entry, said="reassigned by the IESG",
    ),
    Rule(
        id="U3", event=EventKind.DEMAND_CHANGES, clauses=_SCHEME_CLAUSES, roles=_IESG, when=has_entry,
        effect=_demand_changes, said="the IESG asks for changes",
    ),
    Rule(
        id="U1", event=EventKind.DESIGNATE, clauses=build_clauses("5.3", "7.3", _DECISION),
        who=is_entry_owner, when=entry_status_in(Status.PENDING_REVIEW),
        said="the entry only shows a request and has no registrant yet", hint="Wait until it is registered.",
    ),
    Rule(
        id="U1", event=EventKind.DESIGNATE, clauses=build_clauses("5.3", "7.3", _DECISION),
        who=is_entry_owner, when=has_entry, effect=_change_designees, said="who else may update it",
    ),
    Rule(
        id="T4", event=EventKind.EXPIRY_NEAR, clauses=build_common_clauses("docs/decisions/0054"),
        roles=_IANA, when=_is_expiry_near, effect=_notify_of_expiry,
        said="its draft or its registration expires within 30 days: the registrant is notified once",
    ),
    Rule(
        id="U4", event=EventKind.DRAFT_EXPIRED, clauses=build_clauses("5.4", "7.4", _DECISION), roles=_IANA,
        when=_is_draft_expired, effect=_remove_expired_draft,
        said="the draft has expired, and the entry notes it",
    ),
    Rule(
        id="U4", event=EventKind.DRAFT_PUBLISHED, clauses=_DRAFT_CLAUSES, roles=_IANA,
        when=has_entry, effect=_cite_published_draft,
        said="the draft has become an RFC; the row refers to it",
    ),
    Rule(
        id="U5", event=EventKind.ATTACH_SECURITY_NOTE, clauses=build_clauses("7", "10", _DECISION),
        roles=(Role.IANA, Role.EXPERT, Role.IESG), who=can_update, when=has_entry,
        effect=_attach_security_note, said="security information attached",
    ),
)  # fmt: skip

_NAMESPACE_CLAUSES: Final = {"expert-review": "docs/decisions/0027"}
#: statuses that only a reinstatement ends, and the notes about a namespace's status
_HELD: Final = (Status.SAFE_MODE, Status.SUSPENDED)
_EXPIRED: Final = "expired"
_STATE_NOTES: Final = frozenset({*map(str, _HELD), "reinstated", "override", _EXPIRED})


def _make_status_effect(status: Status, *, note: str) -> Any:
    def effect(case: EventContext, rule: Rule) -> Decision:
        require_text(case, "reason", clause=rule.get_clause(case))
        return change_status(case, rule, status, note=note)

    return effect


def _is_past_expiry(case: EventContext) -> bool:
    ends = case.current_entry.expires if entry_status_in(*_RUNNING)(case) else None
    return ends is not None and ends < case.at.date()


def _expire_namespace(case: EventContext, rule: Rule) -> Decision:
    before = case.current_entry.status
    held = before in _HELD
    # a renewal finds the former status in this note
    said = f"expired; {before} until reinstated" if held else _EXPIRED
    note = make_note(case, str(before) if held else _EXPIRED, said)
    row = replace(case.current_entry, notes=(*case.current_entry.notes, note))
    return change_status(replace(case, entry=row), rule, Status.EXPIRED)


def _find_status_before_expiry(case: EventContext) -> Status:
    last = next((note.kind for note in reversed(case.current_entry.notes) if note.kind in _STATE_NOTES), "")
    return next((status for status in _HELD if status == last), Status.ACTIVE)


def _renew_namespace(case: EventContext, rule: Rule) -> Decision:
    expires, row = parse_date(require_text(case, "expires", clause=rule.get_clause(case))), case.current_entry
    if expires is None or expires <= case.at.date():
        raise reject("expires", "the new expiry day is not in the future")
    expired = row.status is Status.EXPIRED
    if not expired and (row.expires is None or expires <= row.expires):
        until = "without an end" if row.expires is None else f"until {row.expires.isoformat()}"
        raise reject(
            "expires",
            f"the namespace is already registered {until}",
            clause=rule.get_clause(case),
            hint="Renew it to a later day. To choose an earlier one, its registrant opens an update.",
        )
    status = _find_status_before_expiry(case) if expired else row.status
    return make_decision(case, rule, entry=update_entry(case, row, expires=expires, status=status))


_NamespaceRule: Final = partial(Rule, clauses=_NAMESPACE_CLAUSES, roles=_IANA)

NAMESPACE_RULES: Final = (
    _NamespaceRule(
        id="N1", event=EventKind.ENTER_SAFE_MODE, who=can_update, when=entry_status_in(Status.ACTIVE),
        effect=_make_status_effect(Status.SAFE_MODE, note="safe-mode"), said="safe mode until reinstated",
    ),
    _NamespaceRule(
        id="N2", event=EventKind.SUSPEND, when=entry_status_in(Status.ACTIVE, Status.SAFE_MODE),
        effect=_make_status_effect(Status.SUSPENDED, note="suspended"), said="suspended until reinstated",
    ),
    _NamespaceRule(
        id="N3", event=EventKind.REINSTATE, when=entry_status_in(*_HELD),
        effect=_make_status_effect(Status.ACTIVE, note="reinstated"), said="active again",
    ),
    _NamespaceRule(
        id="N4", event=EventKind.REVOKE, when=entry_status_in(*_RUNNING, Status.EXPIRED),
        effect=_make_status_effect(Status.REVOKED, note="revoked"), said="revoked; the name stays taken",
    ),
    _NamespaceRule(
        id="N5", event=EventKind.RENEW, when=entry_status_in(*_RUNNING, Status.EXPIRED),
        effect=_renew_namespace, said="holds longer",
    ),
    _NamespaceRule(
        id="N6", event=EventKind.NAMESPACE_EXPIRED, when=_is_past_expiry, effect=_expire_namespace,
        said="its last day is past",
    ),
)  # fmt: skip

_OVERRIDE_CLAUSES: Final = build_clauses(_DECISION, _DECISION, _DECISION)
#: spellings of yes and no
_YES: Final = (True, "yes", "true")
_NO: Final = (None, False, "", "no", "false")
#: a word in a file's status column that is not a status; an import replaces it like a column
_PUBLISHED_STATUS: Final = "published_status"
#: members that change the controllers, and all members that an override sets beside the status
_CONTROL: Final = ("registrant", "change_controller")
_SETTINGS: Final = (*_CONTROL, "iesg_approved")


def _parse_entry(case: EventContext, member: str) -> Entry:
    given = case.event.data.get(member)
    if not isinstance(given, Mapping):
        raise reject(member, f"`{member}` is not a valid entry")
    try:
        entry = codec.from_data(Entry, given)
    except StoreError as error:
        raise reject(member, error.message, hint=error.hint) from error
    if (entry.registry, case.registry.normalize_name(entry.name)) != (case.registry.id, case.name):
        raise reject(member, "the entry has a different name")
    if entry.status not in case.registry.statuses:
        raise RefusalError(
            "this registry does not use that status", code="registry.bad-status", field="status",
            hint=f"Choose one of {', '.join(case.registry.statuses)}.",
        )  # fmt: skip
    if entry.name != case.name:
        return replace(entry, name=case.name, spelling=entry.spelling or entry.name)
    return entry


def _import_entry(case: EventContext, rule: Rule) -> Decision:
    given, old = _parse_entry(case, "entry"), case.entry
    if old is None:
        return make_decision(case, rule, entry=replace(given, version=1, pending=()))
    if old.status is Status.PENDING_REVIEW and given.status is not Status.PENDING_REVIEW:
        # the entry only showed a request, so its people do not control the imported entry
        old = clear_entry(old)
    # a file does not change fields outside the registry's columns
    shown = {column.id for column in case.registry.columns} | {_PUBLISHED_STATUS}
    own = {name: value for name, value in old.fields.items() if name not in shown}
    kept = replace(
        given, fields={**own, **given.fields},
        registrant=given.registrant or old.registrant, designees=given.designees or old.designees,
        notes=given.notes or old.notes, pending=old.pending, registered=given.registered or old.registered,
        iesg_approved=given.iesg_approved or old.iesg_approved, draft=given.draft or old.draft,
    )  # fmt: skip
    return make_decision(case, rule, entry=update_entry(case, replace(kept, version=old.version)))


# ---------- overrides


def _has_value(case: EventContext, member: str) -> bool:
    return case.event.data.get(member) not in (None, "")


def _parse_flag(case: EventContext, member: str) -> bool:
    value = case.event.data.get(member)
    if value in _YES:
        return True
    if value in _NO:
        return False
    raise reject(member, f"`{member}` must be true or false", hint=f"{member}=yes")


def _override_entry(case: EventContext, rule: Rule) -> Decision:
    note = make_note(case, "override", require_text(case, "reason", clause=rule.get_clause(case)))
    said = [member for member in ("status", "undoes") if _has_value(case, member)]
    said += ["remove"] if _parse_flag(case, "remove") else []
    said += ["set"] if any(_has_value(case, member) for member in _SETTINGS) else []
    if len(said) != 1:
        raise reject(
            "status",
            "an override changes one thing at a time",
            hint=f"Give one of status, remove and undoes, or any of {', '.join(_SETTINGS)}.",
        )
    return _OVERRIDES[said[0]](case, rule, note)


def _make_notices(case: EventContext, subject: str, note: Note, *others: str | None) -> tuple[Any, ...]:
    known = case.entry.registrant if case.entry is not None else None
    people = dict.fromkeys(identifier for identifier in (*others, known) if identifier)
    return tuple(make_notice(person, f"{case.name}: {subject}", note.text) for person in people)


def _override_status(case: EventContext, rule: Rule, note: Note) -> Decision:
    wanted = case.event.data["status"]
    status = next((known for known in case.registry.statuses if known == wanted), None)
    if status is None or status is Status.PENDING_REVIEW:
        raise RefusalError(
            "an override cannot set that status", code="registry.bad-status", field="status",
            hint=f"Choose one of {', '.join(case.registry.statuses)}.",
        )  # fmt: skip
    row = update_entry(case, case.current_entry, status=status, notes=(*case.current_entry.notes, note))
    return make_decision(case, rule, entry=row, notices=_make_notices(case, f"{status} by override", note))


def _remove_entry(case: EventContext, rule: Rule, note: Note) -> Decision:
    return make_decision(case, rule, removed=True, notices=_make_notices(case, "removed by override", note))


def _override_control(case: EventContext, rule: Rule, note: Note) -> Decision:
    row = case.current_entry
    if row.status is Status.PENDING_REVIEW:
        raise RefusalError(
            "the entry only shows a pending request", code="registry.not-allowed", rule=rule.id,
            clause=rule.get_clause(case), hint="Decide the request first.",
        )  # fmt: skip
    changes: dict[str, Any] = {}
    told = _make_notices(case, "changed by override", note)
    if _has_value(case, "registrant"):
        heir = case.event.data["registrant"]
        if not is_valid_id(heir):
            raise reject("registrant", "this is not a valid account ID")
        changes |= {"registrant": heir, "designees": frozenset()}
        if heir != row.registrant:
            told = (make_notice(heir, f"{case.name}: the entry is yours now", note.text), *told)
    if _has_value(case, "change_controller"):
        controller = require_text(case, "change_controller")
        changes["fields"] = {**row.fields, "change_controller": controller}
    if _has_value(case, "iesg_approved"):
        changes["iesg_approved"] = _parse_flag(case, "iesg_approved")
    after = update_entry(case, row, notes=(*row.notes, note), **changes)
    return make_decision(case, rule, entry=after, notices=told)


def _undo_record(case: EventContext, rule: Rule, note: Note) -> Decision:
    """Restore the entry of `restore`, which the store adds from its log."""
    number = case.event.data["undoes"]
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise reject("undoes", "`undoes` is not the number of a record")
    if not _has_value(case, "restore"):
        raise RefusalError(
            "the earlier state of the entry is missing", code="registry.missing-data", field="restore",
            hint="The store reads it from its log.",
        )  # fmt: skip
    base, row = _parse_entry(case, "restore"), case.entry
    if Status.PENDING_REVIEW in (base.status, row.status if row else None):
        raise reject(
            "undoes", "an entry that only showed a request cannot be restored", hint="Open the request again."
        )
    if row is None:
        # the requests about it may have ended
        after = replace(base, pending=(), notes=(*base.notes, note))
    else:
        after = replace(base, pending=row.pending, notes=(*row.notes, note), version=row.version)
    told = _make_notices(case, f"{base.status} again, record {number} undone", note, base.registrant)
    return make_decision(case, rule, entry=update_entry(case, after), notices=told)


_Override = Callable[[EventContext, Rule, Note], Decision]
_OVERRIDES: Final[Mapping[str, _Override]] = {
    "status": _override_status,
    "remove": _remove_entry,
    "undoes": _undo_record,
    "set": _override_control,
}


def _is_control_override(case: EventContext) -> bool:
    """Report whether the override changes who controls an existing entry."""
    if any(_has_value(case, member) for member in _CONTROL):
        return True
    before = case.event.data.get("restore")
    if case.entry is None or not _has_value(case, "undoes") or not isinstance(before, Mapping):
        return False
    fields = before.get("fields", {})
    controller = fields.get("change_controller") if isinstance(fields, Mapping) else None
    now = (case.current_entry.registrant, case.current_entry.fields.get("change_controller"))
    return (before.get("registrant"), controller) != now


#: the IESG decides who controls an entry (RFC 8126 2.3, 9.5)
_IESG_CLAUSES: Final = {
    "rfc4395": "RFC 8126 9.5",
    "rfc7595": "RFC 7595 7.1",
    "specification-required": "RFC 8126 9.5",
}
#: for a namespace and a defined registry also the operator, whom IANA represents
_OPERATOR_CLAUSES: Final = {"expert-review": "docs/decisions/0027", **OWN_CLAUSES}
_CONTROL_SAID: Final = "who controls the entry, set by an override with a name and a reason"

_REDACTION_CLAUSES: Final = dict.fromkeys(_OVERRIDE_CLAUSES, "docs/decisions/0056")


def _redact(case: EventContext, rule: Rule) -> Decision:
    require_text(case, "reason")
    return make_decision(case, rule)


OVERRIDE_RULES: Final = (
    Rule(
        id="REDACT", event=EventKind.REDACT, clauses=_REDACTION_CLAUSES, roles=(Role.IANA,),
        effect=_redact, said="personal data that was removed from the log, with a reason",
    ),
    Rule(
        id="IMPORT", event=EventKind.IMPORT, clauses=_OVERRIDE_CLAUSES, roles=(Role.IANA,),
        effect=_import_entry, said="a row of a published registry",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OVERRIDE_CLAUSES, roles=(Role.IANA, Role.IESG),
        when=lambda case: case.entry is None and not _has_value(case, "undoes"),
        said="there is no entry with this name",
        hint="To restore an entry, undo the record that removed it.",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_IESG_CLAUSES, roles=(Role.IESG,),
        when=_is_control_override, effect=_override_entry, said=_CONTROL_SAID,
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OPERATOR_CLAUSES, roles=(Role.IANA, Role.IESG),
        when=_is_control_override, effect=_override_entry, said=_CONTROL_SAID,
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OVERRIDE_CLAUSES, roles=(Role.IANA, Role.IESG),
        effect=_override_entry, said="an override, with a name and a reason",
    ),
)  # fmt: skip
