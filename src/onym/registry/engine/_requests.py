"""The registrant's steps: R1 to R4, resubmission and withdrawal."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._case import STATUS_CHANGES, Case, Rule, clauses, text
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
_NAMESPACE: Final = {"expert-review": "docs/decisions/0027"}
_OPEN: Final = clauses("5.2", "7.2", "RFC 8126 4.5")
#: events of one request, after which it is not revised any more
_VERSIONS: Final = 500
#: who hears of a withdrawal: whoever was asked to decide. Before that it is the registrant's alone
_ASKED: Final = {
    RequestState.SUBMITTED: Role.IANA,
    RequestState.EXPERT_REVIEW: Role.EXPERT,
    RequestState.MORE_REVIEW: Role.EXPERT,
    RequestState.IETF_REVIEW: Role.IESG,
}
_EXISTING: Final = frozenset(RequestKind) - {RequestKind.NEW}


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
    """The status asked for. Only a new name or a change of status asks for one; others keep the row's."""
    given = case.event.data.get("status")
    chosen = _kind(case) in (RequestKind.NEW, RequestKind.STATUS_CHANGE)
    askable = tuple(case.profile.policies)
    if not chosen and case.entry is not None:
        return _kept(case, given)
    if given is None and len(askable) == 1:
        return askable[0]
    found = next((each for each in askable if str(each) == str(given).strip().lower()), None)
    if found is None:
        raise RefusalError(
            "that status cannot be asked for" if given is not None else "no status is asked for",
            code="registry.bad-status", field="status", clause=case.profile.status_clause,
            hint=f"one of {', '.join(case.profile.status_words)}",
        )  # fmt: skip
    return found


def _kept(case: Case, given: object) -> Status:
    other = given is not None and str(given).strip().lower() != case.row.status
    if other and _kind(case) is RequestKind.UPDATE:
        raise RefusalError(
            f"the entry is {case.row.status}; this kind of request leaves that as it is",
            code="registry.bad-status", field="status", clause=case.profile.status_clause,
            hint="open a status-change",
        )  # fmt: skip
    return case.row.status


def _taken(case: Case) -> bool:
    return _kind(case) is RequestKind.NEW and case.entry is not None


def _absent(case: Case) -> bool:
    kind = _kind(case)
    # the conflict process is for names under review as well (RFC 7595 7.2 step 7)
    shown = case.entry is not None and (
        kind is RequestKind.SEPARATE_USE or case.row.status is not Status.PENDING_REVIEW
    )
    return kind in _EXISTING and not shown


def _foreign_update(case: Case) -> bool:
    """A change of a provisional row by somebody who may not (U1); expert and IESG may ask for upgrades."""
    kind = _kind(case)
    if kind not in (RequestKind.UPDATE, RequestKind.STATUS_CHANGE):
        return False
    upgrade = kind is RequestKind.STATUS_CHANGE and _wanted(case) is Status.PERMANENT
    return (
        case.row.status is Status.PROVISIONAL
        and not case.may_update
        and not (upgrade and case.actor.has(Role.EXPERT, Role.IESG))
    )


def _revoked(case: Case) -> bool:
    return _kind(case) in _EXISTING and case.row.status is Status.REVOKED


def _foreign(case: Case) -> bool:
    return _kind(case) is RequestKind.UPDATE and not case.may_update


def _no_way(case: Case) -> bool:
    """A status change that no clause defines (X)."""
    return _kind(case) is RequestKind.STATUS_CHANGE and (case.row.status, _wanted(case)) not in STATUS_CHANGES


def _not_provisional(case: Case) -> bool:
    return _kind(case) is RequestKind.REASSIGN and case.row.status is not Status.PROVISIONAL


def _open(case: Case, rule: Rule) -> Decision:
    number = case.event.request
    if number is None:
        raise RefusalError("a request needs its id", code="registry.bad-data", field="request")
    if len(case.name) > case.registry.name_limit:
        raise RefusalError(
            f"a name of more than {case.registry.name_limit} characters", code="registry.bad-name",
            field="name", clause=case.registry.limit_clause, hint="choose a shorter one",
        )  # fmt: skip
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
        as_registrant=kind is not RequestKind.NEW and case.may_update,
        opened=case.at, since=case.at, holder=Role.REGISTRANT, version=1,
    )  # fmt: skip
    return decided(case, rule, request=opened)


def _revised(case: Case) -> Request:
    """The request with what the event brings over it."""
    asked = case.asked
    if asked.version >= _VERSIONS:
        raise RefusalError(
            f"a request is not revised more than {_VERSIONS} times",
            code="registry.too-large",
            field="request",
            hint="withdraw it and open another",
        )
    return replace(
        asked,
        fields=fields_of(case, asked.fields),
        template=text(case, "template") or asked.template,
        status=_revised_status(case),
        draft=draft_of(case, asked.draft),
    )


def _revised_status(case: Case) -> Status:
    """The status asked for after a revision: another one for a new name alone, and not under review."""
    asked, given = case.asked, case.event.data.get("status")
    if given is None or str(given).strip().lower() == asked.status:
        return asked.status
    if asked.kind is not RequestKind.NEW or asked.state is RequestState.MORE_REVIEW:
        raise RefusalError(
            "the status asked for cannot change now", code="registry.bad-status", field="status",
            clause=case.profile.status_clause, hint="withdraw the request and open another",
        )  # fmt: skip
    return _wanted(replace(case, event=replace(case.event, data={"status": given})))


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
    first = case.asked.submitted or case.at
    request = moved(case, RequestState.SUBMITTED, submitted=first, outcome=None, reason=None)
    return decided(case, rule, request=request, notices=tuple(notices))


def _resubmit(case: Case, rule: Rule) -> Decision:
    revised = replace(case, request=_revised(case))
    if _unreviewed(revised):
        raise RefusalError(
            "a permanent registration needs list review first", code="registry.not-allowed", rule="R4",
            clause=f"{case.profile.document} 7.2 item 3", hint="open a new request, and announce it",
        )  # fmt: skip
    request = moved(revised, RequestState.SUBMITTED, outcome=None, reason=None)
    notice = tell(Role.IANA, f"{case.name}: {case.asked.id} was submitted again, corrected")
    return decided(case, rule, request=request, notices=(notice,))


def _withdraw(case: Case, rule: Rule) -> Decision:
    entry, removed = without_pending(case)
    request = moved(case, RequestState.WITHDRAWN, outcome="withdrawn", reason=text(case, "reason"))
    to = _ASKED.get(case.asked.state)
    told = () if to is None else (tell(to, f"{case.name}: {case.asked.id} was withdrawn"),)
    return decided(case, rule, request=request, entry=entry, removed=removed, notices=told)


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
        id="N4", event=EventKind.OPEN, clauses=_NAMESPACE, roles=_ANYONE, when=_revoked,
        said="it was revoked for good", hint="choose another name",
    ),
    Rule(
        id="U1", event=EventKind.OPEN, clauses=_NAMESPACE, roles=_ANYONE, when=_foreign,
        said="a namespace is updated by its registrant, or whom the registrant has designated",
        hint="if it has none, IANA can record one (override with registrant)",
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
