"""What happens to a row without a request: S1, S3, U1, U3 to U5, and deprecation."""

from __future__ import annotations

from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._case import Case, Rule, clauses, required_text, row_is, text
from onym.registry.engine._effects import (
    decided,
    expiry_of,
    is_word,
    noted,
    room_for_note,
    tell,
    touched,
    with_status,
)
from onym.registry.records import Decision, EventKind, Role, Status

__all__ = ["RULES"]

_IANA: Final = (Role.IANA,)
_IESG: Final = (Role.IESG,)
_DECISION: Final = "docs/decisions/0026"
_DESIGNEES: Final = 64


def _exists(case: Case) -> bool:
    return case.entry is not None


def _under_review(case: Case) -> bool:
    return case.entry is not None and case.row.status is Status.PROVISIONAL and bool(case.row.pending)


def _may_update(case: Case) -> bool:
    return case.may_update


def _owns(case: Case) -> bool:
    return case.owns_entry


def _upgrade(case: Case, rule: Rule) -> Decision:
    return with_status(case, rule, Status.PERMANENT)


def _retire(case: Case, rule: Rule) -> Decision:
    return with_status(case, rule, Status.HISTORICAL)


def _deprecate(case: Case, rule: Rule) -> Decision:
    return with_status(case, rule, Status.DEPRECATED)


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


_SCHEME: Final = clauses("5.3", "7.3")
_PARAMETER: Final = {"specification-required": "RFC 8126 4.6"}

RULES: Final = (
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=clauses("5.2", "7.2"), roles=(Role.EXPERT, Role.IESG),
        when=_under_review, said="a request about the entry is under review", hint="decide that request",
    ),
    Rule(
        id="S1", event=EventKind.ASK_UPGRADE, clauses=clauses("5.2", "7.2"), roles=(Role.EXPERT, Role.IESG),
        when=row_is(Status.PROVISIONAL), effect=_upgrade, said="provisional to permanent, unprompted",
    ),
    Rule(
        id="S3", event=EventKind.RETIRE, clauses=_SCHEME, who=_may_update, when=row_is(Status.PROVISIONAL),
        effect=_retire, said="provisional to historical, by who may update it",
    ),
    Rule(
        id="X", event=EventKind.RETIRE, clauses=_SCHEME, roles=tuple(Role), when=row_is(Status.PERMANENT),
        said="permanent to historical needs the IESG's approval", hint="open a status-change to historical",
    ),
    Rule(
        id="D1", event=EventKind.RETIRE, clauses=_PARAMETER, roles=(Role.EXPERT,), who=_may_update,
        when=row_is(Status.REGISTERED), effect=_deprecate, said="deprecated; the name stays taken",
    ),
    Rule(
        id="U3", event=EventKind.REASSIGN, clauses=_SCHEME, roles=_IESG, when=row_is(Status.PROVISIONAL),
        effect=_reassign, said="reassigned by the IESG",
    ),
    Rule(
        id="U3", event=EventKind.DEMAND_CHANGES, clauses=_SCHEME, roles=_IESG, when=_exists, effect=_demand,
        said="the IESG asks for changes",
    ),
    Rule(
        id="U1", event=EventKind.DESIGNATE, clauses=clauses("5.3", "7.3", _DECISION), who=_owns,
        when=row_is(Status.PENDING_REVIEW), said="the entry only shows a request, and is nobody's yet",
        hint="wait until it is registered",
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
)  # fmt: skip
