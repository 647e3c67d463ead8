"""IANA's steps on receipt: I1 to I4, and what the IESG decides without an expert."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._case import Case, Rule, clauses, needs_iesg, overtaken, text
from onym.registry.engine._effects import applied, decided, entry_of, later, moved, tell, touched
from onym.registry.records import (
    Decision,
    Entry,
    EventKind,
    RequestKind,
    RequestState,
    Role,
    Status,
)

__all__ = ["RULES", "missing_fields"]

_IANA: Final = (Role.IANA,)
_SUBMITTED: Final = (RequestState.SUBMITTED,)
_MISSING_LIMIT: Final = 64


def missing_fields(case: Case) -> tuple[str, ...]:
    """Labels of the fields that the template must have and has not.

    A new name and an upgrade need all of them, an upgrade together with what the row has; an update may
    not blank one.
    """
    asked, row = case.asked, case.entry
    given = {**asked.fields, "name": asked.name, "status": str(asked.status)}
    if asked.kind is RequestKind.NEW:
        return tuple(each.label for each in case.profile.missing(asked.status, given))
    if asked.kind is RequestKind.STATUS_CHANGE and asked.status is Status.PERMANENT:
        whole = {**(row.fields if row else {}), **given}
        whole.setdefault("references", whole.get("reference", ""))
        return tuple(each.label for each in case.profile.missing(asked.status, whole))
    return tuple(each.label for each in case.profile.missing(asked.status, given) if each.id in given)


def _incomplete(case: Case) -> bool:
    return bool(missing_fields(case))


def _taken(case: Case) -> bool:
    """Has another entry the name already?"""
    return case.asked.kind is RequestKind.NEW and case.entry is not None


def _overtaken(case: Case) -> bool:
    return overtaken(case) is not None


def _at_once(case: Case) -> bool:
    policy = case.profile.policies.get(case.asked.status)
    if case.asked.kind is RequestKind.NEW:
        return policy is not None and policy.at_once and case.entry is None
    # what its registrant may do alone; a provisional row stays provisional
    return (
        case.asked.kind is RequestKind.UPDATE
        and case.row.status is Status.PROVISIONAL
        and not case.row.iesg_approved
        and policy is not None
        and policy.at_once
    )


def _retires(case: Case) -> bool:
    return (
        case.asked.kind is RequestKind.STATUS_CHANGE
        and case.row.status is Status.PROVISIONAL
        and case.asked.status is Status.HISTORICAL
        and not needs_iesg(case)
    )


def _for_iesg(case: Case) -> bool:
    """What only the IESG decides: permanent to historical, reassignment, and in 2006 a separate use."""
    asked = case.asked
    historical = (
        asked.kind is RequestKind.STATUS_CHANGE
        and asked.status is Status.HISTORICAL
        and case.row.status is Status.PERMANENT
    )
    separate = asked.kind is RequestKind.SEPARATE_USE and case.profile.id == "rfc4395"
    return historical or separate or asked.kind is RequestKind.REASSIGN


def _reject(case: Case, rule: Rule) -> Decision:
    missing = ", ".join(missing_fields(case))
    return _sent_back(case, rule, f"missing: {missing}")


def _reject_by_hand(case: Case, rule: Rule) -> Decision:
    named = case.event.data.get("missing", ())
    good = isinstance(named, (list, tuple)) and len(named) <= _MISSING_LIMIT
    if not good or not all(isinstance(each, str) for each in named):
        raise RefusalError("`missing` is not a list of field ids", code="registry.bad-data", field="missing")
    said = "; ".join(
        part
        for part in (f"missing: {', '.join(named)}" if named else "", (text(case, "reason") or "").strip())
        if part
    )
    if not said:
        raise RefusalError(
            "say which fields are missing, or which citation is not correct",
            code="registry.missing-data", field="reason", clause=rule.clause(case),
        )  # fmt: skip
    return _sent_back(case, rule, said)


def _sent_back(case: Case, rule: Rule, reason: str) -> Decision:
    request = moved(case, RequestState.REJECTED, outcome="incomplete", reason=reason)
    return decided(
        case, rule, request=request,
        notices=(tell(request.registrant, f"{case.name}: {request.id} is not complete", reason),),
    )  # fmt: skip


def _duplicate(case: Case, rule: Rule) -> Decision:
    reason = f"there is an entry of that name, {case.row.status}"
    request = moved(case, RequestState.REJECTED, outcome="duplicate", reason=reason)
    notice = tell(request.registrant, f"{case.name}: {request.id} asks for a name in use", reason)
    return decided(case, rule, request=request, notices=(notice,))


def _vanished(case: Case, rule: Rule) -> Decision:
    reason = overtaken(case)
    request = moved(case, RequestState.REJECTED, outcome="declined", reason=reason)
    return decided(case, rule, request=request, notices=(tell(request.registrant, f"{case.name}: {reason}"),))


def _register(case: Case, rule: Rule) -> Decision:
    status = case.asked.status if case.asked.kind is RequestKind.NEW else case.row.status
    return applied(case, rule, entry_of(case, status), outcome="registered")


def _retire(case: Case, rule: Rule) -> Decision:
    return applied(case, rule, entry_of(case, Status.HISTORICAL), outcome="registered")


def _pending(case: Case) -> Entry | None:
    """The row that shows the review: a new one, or the one there is, marked (RFC 7595 7.2 step 3)."""
    asked = case.asked
    if case.profile.id != "rfc7595":
        return None
    if case.entry is not None:
        return touched(case, case.entry, pending=(*case.entry.pending, asked.id))
    fresh = entry_of(case, Status.PENDING_REVIEW, under_review=True)
    return replace(fresh, registered=None)


def _to_expert(case: Case, rule: Rule) -> Decision:
    request = moved(
        case, RequestState.EXPERT_REVIEW, expert_asked=case.at, due=later(case.at, case.profile.expert_time)
    )
    notice = tell(Role.EXPERT, f"{case.name}: {request.id} waits for Expert Review ({request.status})")
    return decided(case, rule, request=request, entry=_pending(case), notices=(notice,))


def _to_iesg(case: Case, rule: Rule) -> Decision:
    request = moved(case, RequestState.IETF_REVIEW)
    notice = tell(Role.IESG, f"{case.name}: {request.id} waits for the IESG ({request.kind})")
    return decided(case, rule, request=request, notices=(notice,))


_CHECK = EventKind.CHECK_COMPLETE
_POLICY = "RFC 8126 4.5"

RULES: Final = (
    Rule(
        id="I2", event=_CHECK, states=_SUBMITTED, clauses=clauses("5.3", "7.3", _POLICY),
        roles=_IANA, when=_overtaken, effect=_vanished, said="rejected: the entry has changed since",
    ),
    Rule(
        id="I1", event=_CHECK, states=_SUBMITTED, clauses=clauses("5.2 step 1", "7.2 step 1", _POLICY),
        roles=_IANA, when=_incomplete, effect=_reject, said="rejected: a required field is missing",
    ),
    Rule(
        id="I1", event=EventKind.REJECT_INCOMPLETE, states=_SUBMITTED,
        clauses=clauses("5.2 step 1", "7.2 step 1", _POLICY), roles=_IANA, effect=_reject_by_hand,
        said="rejected: incomplete, or a citation is not correct",
    ),
    Rule(
        id="I2", event=_CHECK, states=_SUBMITTED, clauses=clauses("5.2 step 2", None, _POLICY),
        roles=_IANA, when=_taken, effect=_duplicate, said="rejected: the name is in use",
    ),
    Rule(
        id="I3", event=_CHECK, states=_SUBMITTED, clauses=clauses(None, "7.2 step 2"), roles=_IANA,
        when=_at_once, effect=_register, said="registered at once, first come first served",
    ),
    Rule(
        id="S3", event=_CHECK, states=_SUBMITTED, clauses=clauses("5.3", "7.3"), roles=_IANA,
        when=_retires, effect=_retire, said="provisional to historical, as its registrant asked",
    ),
    Rule(
        id="S2", event=_CHECK, states=_SUBMITTED, clauses=clauses("5.3", "7.3"), roles=_IANA,
        when=_for_iesg, effect=_to_iesg, said="handed to the IESG, who alone may approve it",
    ),
    Rule(
        id="I4", event=_CHECK, states=_SUBMITTED, roles=_IANA,
        clauses=clauses("5.2 step 3", "7.2 steps 3 and 4", _POLICY), effect=_to_expert,
        said="handed to the Designated Expert",
    ),
)  # fmt: skip
