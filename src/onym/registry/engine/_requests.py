"""The registrant's steps: R1 to R4, resubmission and withdrawal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._case import Case, Rule, clauses, text
from onym.registry.engine._effects import (
    decided,
    draft_of,
    fields_of,
    later,
    moved,
    tell,
    without_pending,
)
from onym.registry.records import (
    Decision,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)

__all__ = ["RULES"]

_ANYONE: Final = (Role.REGISTRANT, Role.IANA, Role.EXPERT, Role.IESG)
_OPEN: Final = clauses("5.2", "7.2", "RFC 8126 4.5")
_EXISTING: Final = frozenset(RequestKind) - {RequestKind.NEW}
#: statuses of a row, and what a status-change request may ask of it (RFC 4395 5.3, RFC 7595 7.3)
_STATUS_CHANGES: Final[Mapping[Status, Status]] = {
    Status.PROVISIONAL: Status.PERMANENT,
    Status.PERMANENT: Status.HISTORICAL,
}


def _kind(case: Case) -> RequestKind:
    given = case.event.data.get("kind", RequestKind.NEW)
    try:
        return RequestKind(given)
    except ValueError:
        raise RefusalError(
            "no such kind of request",
            code="registry.bad-data",
            field="kind",
            hint=f"one of {', '.join(RequestKind)}",
        ) from None


def _wanted(case: Case) -> Status:
    """The status asked for: said, else the row's own for a change of its fields, else the default."""
    given = case.event.data.get("status")
    if given is None:
        return case.registry.default_status if case.entry is None else case.entry.status
    allowed = tuple(case.profile.policies)
    found = next((each for each in allowed if str(each) == str(given).strip().lower()), None)
    if found is None:
        raise RefusalError(
            "that status cannot be asked for",
            code="registry.bad-status",
            field="status",
            clause=case.profile.status_clause,
            hint=f"one of {', '.join(case.profile.status_words)}",
        )
    return found


def _taken(case: Case) -> bool:
    return _kind(case) is RequestKind.NEW and case.entry is not None


def _absent(case: Case) -> bool:
    return _kind(case) in _EXISTING and (case.entry is None or case.row.status is Status.PENDING_REVIEW)


def _foreign_update(case: Case) -> bool:
    """An update of a provisional row by somebody who may not (U1)."""
    kind = _kind(case)
    return (
        kind in (RequestKind.UPDATE, RequestKind.STATUS_CHANGE)
        and case.row.status is Status.PROVISIONAL
        and not case.may_update
        and not (kind is RequestKind.STATUS_CHANGE and case.actor.has(Role.EXPERT, Role.IESG))
    )


def _no_way(case: Case) -> bool:
    """A status change that no clause defines (X)."""
    if _kind(case) is not RequestKind.STATUS_CHANGE:
        return False
    wanted, now = _wanted(case), case.row.status
    retiring = now is Status.PROVISIONAL and wanted is Status.HISTORICAL
    return not retiring and _STATUS_CHANGES.get(now) is not wanted


def _not_provisional(case: Case) -> bool:
    return _kind(case) is RequestKind.REASSIGN and case.row.status is not Status.PROVISIONAL


def _open(case: Case, rule: Rule) -> Decision:
    number = case.event.request
    if number is None:
        raise RefusalError("a request needs its id", code="registry.bad-data", field="request")
    if not case.registry.allows(case.name):
        raise RefusalError(
            f"that is no name for a {case.registry.noun}",
            code="registry.bad-name",
            field="name",
            clause=case.registry.name_clause,
            hint=case.registry.name_rule,
        )
    kind = _kind(case)
    opened = Request(
        id=number, registry=case.registry.id, profile=case.profile.id, kind=kind, name=case.name,
        status=_wanted(case), state=RequestState.DRAFT, registrant=case.actor.id,
        fields=fields_of(case, {}), template=text(case, "template") or "",
        on_behalf_of=text(case, "on_behalf_of"), draft=draft_of(case, None),
        opened=case.at, since=case.at, holder=Role.REGISTRANT, version=1,
    )  # fmt: skip
    return decided(case, rule, request=opened)


def _revised(case: Case) -> Request:
    """The request with what the event brings over it."""
    asked = case.asked
    return replace(
        asked,
        fields=fields_of(case, asked.fields),
        template=text(case, "template") or asked.template,
        status=_wanted(case) if "status" in case.event.data else asked.status,
        draft=draft_of(case, asked.draft),
    )


def _revise(case: Case, rule: Rule) -> Decision:
    revised = _revised(case)
    if case.asked.state is RequestState.MORE_REVIEW:
        notice = tell(Role.EXPERT, f"{case.name}: {case.asked.id} was revised")
        return decided(case, rule, request=replace(revised, version=revised.version + 1), notices=(notice,))
    return decided(case, rule, request=moved(replace(case, request=revised), RequestState.DRAFT))


def _announce(case: Case, rule: Rule) -> Decision:
    review = case.profile.list_review.get(case.asked.status)
    request = moved(
        case,
        RequestState.LIST_REVIEW,
        announced=case.asked.announced or case.at,
        archive=text(case, "archive") or case.asked.archive,
        due=later(case.at, review.reasonable if review else None),
    )
    return decided(case, rule, request=request)


def _unreviewed(case: Case) -> bool:
    """Was list review demanded, and none begun?"""
    review = case.profile.list_review.get(case.asked.status)
    return review is not None and review.required and case.asked.announced is None


def _submit(case: Case, rule: Rule) -> Decision:
    review = case.profile.list_review.get(case.asked.status)
    notices = [tell(Role.IANA, f"{case.name}: {case.asked.id} was submitted")]
    short = review is not None and (
        case.asked.announced is None or case.at - case.asked.announced < review.reasonable
    )
    if short:
        notices.append(
            tell(Role.EXPERT, f"{case.name}: {case.asked.id} had less than four weeks of list review")
        )
    request = moved(case, RequestState.SUBMITTED, outcome=None, reason=None)
    return decided(case, rule, request=request, notices=tuple(notices))


def _resubmit(case: Case, rule: Rule) -> Decision:
    request = moved(replace(case, request=_revised(case)), RequestState.SUBMITTED, outcome=None, reason=None)
    notice = tell(Role.IANA, f"{case.name}: {case.asked.id} was submitted again, corrected")
    return decided(case, rule, request=request, notices=(notice,))


def _withdraw(case: Case, rule: Rule) -> Decision:
    entry, removed = without_pending(case)
    request = moved(case, RequestState.WITHDRAWN, outcome="withdrawn", reason=text(case, "reason"))
    told = tell(case.asked.holder or Role.IANA, f"{case.name}: {case.asked.id} was withdrawn")
    return decided(case, rule, request=request, entry=entry, removed=removed, notices=(told,))


def _owner(case: Case) -> bool:
    return case.owns_request


def _incomplete(case: Case) -> bool:
    return case.asked.outcome == "incomplete"


RULES: Final = (
    Rule(
        id="R1", event=EventKind.OPEN, clauses=_OPEN, roles=_ANYONE, when=_taken,
        said="the name is registered or under review",
        hint="choose another name, or open an update, or a note-separate-use",
    ),
    Rule(
        id="R1", event=EventKind.OPEN, clauses=_OPEN, roles=_ANYONE, when=_absent,
        said="there is no entry of that name to change", hint="open a request of kind new",
    ),
    Rule(
        id="X", event=EventKind.OPEN, clauses=clauses("5.3", "7.3", "docs/decisions/0026"), roles=_ANYONE,
        when=_no_way, said="no clause defines that change of status",
        hint="IANA or the IESG can record an override, with a reason",
    ),
    Rule(
        id="U1", event=EventKind.OPEN, clauses=clauses("5.3", "7.3"), roles=_ANYONE, when=_foreign_update,
        said="a provisional entry is updated by its registrant, or whom the registrant has designated",
        hint="if the registrant is out of contact, ask the IESG to reassign it (kind reassign)",
    ),
    Rule(
        id="U3", event=EventKind.OPEN, clauses=clauses("5.3", "7.3"), roles=_ANYONE, when=_not_provisional,
        said="only a provisional entry can be reassigned",
    ),
    Rule(id="R1", event=EventKind.OPEN, clauses=_OPEN, roles=_ANYONE, effect=_open, said="a draft request"),
    Rule(
        id="R2", event=EventKind.ANNOUNCE, states=(RequestState.DRAFT,),
        clauses=clauses("5.2 item 3", "7.2 item 3"), who=_owner, effect=_announce,
        said="posted to uri-review for list review",
    ),
    Rule(
        id="R3", event=EventKind.REVISE,
        states=(RequestState.DRAFT, RequestState.LIST_REVIEW, RequestState.MORE_REVIEW),
        clauses=clauses("5.2 item 4", "7.2 item 3.3", "RFC 8126 4.5"), who=_owner, effect=_revise,
        said="comments answered, text revised",
    ),
    Rule(
        id="R4", event=EventKind.SUBMIT, states=(RequestState.DRAFT, RequestState.LIST_REVIEW),
        clauses=clauses(None, "7.2 item 3"), who=_owner, when=_unreviewed,
        said="a permanent registration needs list review first",
        hint="announce it on uri-review@ietf.org; four weeks is reasonable",
    ),
    Rule(
        id="R4", event=EventKind.SUBMIT, states=(RequestState.DRAFT, RequestState.LIST_REVIEW),
        clauses=clauses("5.2 item 5", "7.2 item 4", "RFC 8126 4.5"), who=_owner, effect=_submit,
        said="handed to IANA",
    ),
    Rule(
        id="I1", event=EventKind.RESUBMIT, states=(RequestState.REJECTED,), when=_incomplete,
        clauses=clauses(None, "7.2 step 1", "RFC 8126 4.5"), who=_owner, effect=_resubmit,
        said="corrected and handed in again",
    ),
    Rule(
        id="W1", event=EventKind.WITHDRAW,
        states=(
            RequestState.DRAFT, RequestState.LIST_REVIEW, RequestState.SUBMITTED,
            RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW, RequestState.IETF_REVIEW,
        ),
        clauses=clauses("docs/decisions/0026", "docs/decisions/0026", "docs/decisions/0026"), who=_owner,
        effect=_withdraw, said="withdrawn by its registrant",
    ),
)  # fmt: skip
