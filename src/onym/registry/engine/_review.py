"""Rules for review: decisions of the Designated Expert and the IESG (E1 to E6, S1, S2), and the timer T1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from onym.registry.engine._rules import (
    OWN_CLAUSES,
    EventContext,
    Rule,
    add_note,
    approve_request,
    build_clauses,
    build_entry,
    get_text,
    has_conflict,
    is_for_board,
    is_request_owner,
    is_temporary_expert,
    list_other_pending,
    make_decision,
    make_notice,
    mark_unreviewed,
    move_request,
    needs_iesg_approval,
    parse_date,
    remove_pending,
    require_text,
    update_entry,
)
from onym.registry.records import Decision, Entry, EventKind, RequestKind, RequestState, Role, Status

_REVIEWED: Final = (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW)
_POLICY: Final = "RFC 8126 4.5"
#: characters of a separate use in the entry's note
_MAX_USE: Final = 4_000


def _request_is(kind: RequestKind, status: Status | None = None) -> Callable[[EventContext], bool]:
    return lambda case: case.current_request.kind is kind and status in (None, case.current_request.status)


_is_upgrade: Final = _request_is(RequestKind.STATUS_CHANGE, Status.PERMANENT)
_is_new_historical: Final = _request_is(RequestKind.NEW, Status.HISTORICAL)
_is_change_to_historical: Final = _request_is(RequestKind.STATUS_CHANGE, Status.HISTORICAL)


def _is_separate_use(case: EventContext) -> bool:
    """Report whether the request can only become a note, because the name is taken (E6)."""
    asked = case.current_request
    if asked.kind is RequestKind.SEPARATE_USE:
        return True
    own = asked.timed_out and case.entry is not None and asked.id in case.current_entry.pending
    return (
        asked.kind is RequestKind.NEW
        and case.entry is not None
        and case.current_entry.status is not Status.PENDING_REVIEW
        and not own
    )


def _is_name_under_review(case: EventContext) -> bool:
    """Report whether it is a separate use of a name that is under review."""
    separate = case.current_request.kind is RequestKind.SEPARATE_USE
    return separate and case.entry is not None and case.current_entry.status is Status.PENDING_REVIEW


def _is_expiry_past(case: EventContext) -> bool:
    expires = parse_date(case.current_request.fields.get("expires"))
    return expires is not None and expires < case.at.date()


def _is_permanent_requested(case: EventContext) -> bool:
    return case.current_request.status is Status.PERMANENT and case.current_request.kind in (
        RequestKind.NEW,
        RequestKind.STATUS_CHANGE,
    )


def _is_new_permanent(case: EventContext) -> bool:
    return case.current_request.kind is RequestKind.NEW and _can_go_to_ietf(case)


def _can_go_to_ietf(case: EventContext) -> bool:
    return _is_permanent_requested(case) and not _is_separate_use(case) and not has_conflict(case)


def _get_reason(case: EventContext) -> str | None:
    return get_text(case, "reason")


def _build_approved_entry(case: EventContext) -> Entry:
    asked = case.current_request
    keeps = asked.kind is RequestKind.UPDATE and case.entry is not None
    return build_entry(case, case.current_entry.status if keeps else asked.status)


def _approve_as_requested(case: EventContext, rule: Rule) -> Decision:
    return approve_request(
        case, rule, _build_approved_entry(case), outcome="registered", reason=_get_reason(case)
    )


def _note_separate_use(case: EventContext, rule: Rule) -> Decision:
    asked = case.current_request
    use = asked.fields.get("description") or asked.fields.get("applications") or "another use of the name"
    # what the request asks for can be long, and is kept with it
    text = f"{use if len(use) <= _MAX_USE else use[:_MAX_USE] + ' ...'} ({asked.id})"
    entry = add_note(case, "separate-use", text, pending=list_other_pending(case))
    return approve_request(case, rule, entry, outcome="noted", reason=_get_reason(case))


def _request_iesg_approval(case: EventContext, rule: Rule) -> Decision:
    request = move_request(case, RequestState.IETF_REVIEW, reason=_get_reason(case))
    return make_decision(
        case,
        rule,
        request=request,
        notices=(make_notice(Role.IESG, f"{case.name}: {request.id} waits for the IESG"),),
    )


def _approve_as_provisional(case: EventContext, rule: Rule) -> Decision:
    return approve_request(
        case, rule, build_entry(case, Status.PROVISIONAL), outcome="provisional", reason=_get_reason(case)
    )


def _request_ietf_review(case: EventContext, rule: Rule) -> Decision:
    request = move_request(case, RequestState.IETF_REVIEW, reason=_get_reason(case))
    told = (
        make_notice(Role.IESG, f"{case.name}: {request.id} waits for IETF review and IESG approval"),
        make_notice(
            request.registrant,
            f"{case.name}: provisional while the IETF reviews {request.id}",
            _get_reason(case),
        ),
    )
    if _is_upgrade(case):
        # what it asks for waits for the approval: the row only shows the review
        pending = tuple(dict.fromkeys((*case.current_entry.pending, request.id)))
        entry = update_entry(case, case.current_entry, pending=pending)
    else:
        entry = build_entry(case, Status.PROVISIONAL, under_review=True)
    return make_decision(case, rule, request=request, notices=told, entry=entry)


def _request_more_review(case: EventContext, rule: Rule) -> Decision:
    reason = require_text(case, "reason", clause=rule.get_clause(case))
    # the due date stays: more review does not stop the 14 days (docs/decisions/0026)
    request = move_request(case, RequestState.MORE_REVIEW, reason=reason, due=case.current_request.due)
    notice = make_notice(request.registrant, f"{case.name}: more review of {request.id} is asked for", reason)
    return make_decision(case, rule, request=request, notices=(notice,))


def _resume_review(case: EventContext, rule: Rule) -> Decision:
    request = move_request(case, RequestState.EXPERT_REVIEW, due=case.current_request.due)
    to = request.expert or Role.EXPERT
    notice = make_notice(to, f"{case.name}: {request.id} is ready for review again")
    return make_decision(case, rule, request=request, notices=(notice,))


def _reject_request(case: EventContext, rule: Rule) -> Decision:
    reason = require_text(case, "reason", clause=rule.get_clause(case))
    entry, removed = remove_pending(case)
    request = move_request(case, RequestState.REJECTED, outcome="declined", reason=reason)
    notice = make_notice(request.registrant, f"{case.name}: {request.id} was rejected", reason)
    return make_decision(case, rule, request=request, entry=entry, removed=removed, notices=(notice,))


def _reassign_entry(case: EventContext, rule: Rule) -> Decision:
    asked = case.current_request
    controller = asked.fields.get("change_controller")
    fields = {**case.current_entry.fields, **({"change_controller": controller} if controller else {})}
    row = update_entry(
        case, case.current_entry, registrant=asked.registrant, designees=frozenset(), fields=fields
    )
    return approve_request(case, rule, row, outcome="reassigned", reason=_get_reason(case))


# ---------- the timer of RFC 4395 5.2 step 6


def _is_timer_due(case: EventContext) -> bool:
    wait, asked = case.profile.expert_timeout, case.current_request
    return (
        wait is not None
        and asked.expert_asked is not None
        and not asked.timed_out
        and case.at >= asked.expert_asked + wait
    )


def _can_register_by_timeout(case: EventContext) -> bool:
    """Report whether the timeout registers the entry and ends the request."""
    asked = case.current_request
    provisional = asked.status is Status.PROVISIONAL
    new = asked.kind is RequestKind.NEW and case.entry is None
    update = asked.kind is RequestKind.UPDATE and case.entry is not None
    quietly = (
        update and case.current_entry.status is Status.PROVISIONAL and not case.current_entry.iesg_approved
    )
    return _is_timer_due(case) and provisional and (new or (quietly and not has_conflict(case)))


def _can_register_meanwhile(case: EventContext) -> bool:
    asked = case.current_request
    new = asked.kind is RequestKind.NEW and case.entry is None
    return _is_timer_due(case) and new and asked.status is Status.PERMANENT


def _register_by_timeout(case: EventContext, rule: Rule) -> Decision:
    request = move_request(case, RequestState.TIMED_OUT, timed_out=True, outcome="provisional")
    notice = make_notice(request.registrant, f"{case.name}: provisional, for two weeks brought no rejection")
    entry = mark_unreviewed(case, build_entry(case, Status.PROVISIONAL))
    return make_decision(case, rule, request=request, entry=entry, notices=(notice,))


def _register_meanwhile(case: EventContext, rule: Rule) -> Decision:
    state = case.current_request.state
    request = move_request(case, state, timed_out=True, since=case.current_request.since)
    told = (
        make_notice(request.registrant, f"{case.name}: provisional; {request.id} stays open for permanent"),
        make_notice(Role.EXPERT, f"{case.name}: {request.id} still waits for a decision on permanent"),
    )
    return make_decision(
        case,
        rule,
        request=request,
        entry=mark_unreviewed(case, build_entry(case, Status.PROVISIONAL, under_review=True)),
        notices=told,
    )


def _escalate_timeout(case: EventContext, rule: Rule) -> Decision:
    request = move_request(case, case.current_request.state, timed_out=True, since=case.current_request.since)
    said = f"{case.name}: two weeks without a decision on {request.id} ({request.kind}, {request.status})"
    return make_decision(
        case, rule, request=request, notices=(make_notice(Role.EXPERT, said), make_notice(Role.IESG, said))
    )


_TIMEOUT_CLAUSES: Final = build_clauses("5.2 step 6", None)

_ExpertRule: Final = partial(Rule, states=_REVIEWED, roles=(Role.EXPERT,), who=is_temporary_expert)
_IESGRule: Final = partial(Rule, states=(RequestState.IETF_REVIEW,), roles=(Role.IESG,))

REVIEW_RULES: Final = (
    Rule(
        id="E1", event=EventKind.ASK_MORE_REVIEW, states=(RequestState.EXPERT_REVIEW,),
        clauses=build_clauses("5.2 step 4", "7.2 step 6", _POLICY), roles=(Role.EXPERT,),
        who=is_temporary_expert, effect=_request_more_review, said="more review or discussion is asked for",
    ),
    Rule(
        id="E1", event=EventKind.RESUME_REVIEW, states=(RequestState.MORE_REVIEW,),
        clauses=build_clauses("5.2 step 4", "7.2 step 6", _POLICY), roles=(Role.EXPERT,),
        who=lambda case: is_request_owner(case) or is_temporary_expert(case), effect=_resume_review,
        said="back to the expert",
    ),
    _ExpertRule(
        id="E2", event=EventKind.APPROVE, clauses=build_clauses("5.3", "7.3", _POLICY), when=has_conflict,
        said="the entry has changed since the request", hint="Reject it.",
    ),
    _ExpertRule(
        id="E2", event=EventKind.APPROVE, clauses={"expert-review": "docs/decisions/0027"},
        when=_is_expiry_past, said="the expiry day of the request is past",
        hint="Ask for more review, so that the registrant can choose a later day.",
    ),
    _ExpertRule(
        id="E6", event=EventKind.APPROVE, clauses=build_clauses(None, "7.2 step 7"),
        when=_is_name_under_review, said="the name is itself under review",
        hint="Decide the other request first.",
    ),
    _ExpertRule(
        id="E6", event=EventKind.APPROVE, clauses=build_clauses(None, "7.2 step 7"), when=_is_separate_use,
        effect=_note_separate_use, said="the entry notes the separate use",
    ),
    _ExpertRule(
        id="E6", event=EventKind.APPROVE, clauses=build_clauses("5.2 step 2", None, _POLICY),
        when=_is_separate_use, said="the name has been registered meanwhile",
        hint="Reject it. The IESG notes a separate use (kind note-separate-use).",
    ),
    _ExpertRule(
        id="U2", event=EventKind.APPROVE, clauses=build_clauses("5.3", "7.3"), when=needs_iesg_approval,
        effect=_request_iesg_approval, said="an IESG-approved document defines it: the IESG must approve too",
    ),
    _ExpertRule(
        id="S1", event=EventKind.APPROVE, clauses=build_clauses("5.3", "7.3"), when=_is_upgrade,
        effect=_approve_as_requested, said="provisional to permanent",
    ),
    _ExpertRule(
        id="S4", event=EventKind.APPROVE, clauses=build_clauses("4, 5.1", "5, 7.1"), when=_is_new_historical,
        effect=_approve_as_requested, said="registered as historical",
    ),
    _ExpertRule(
        id="E2", event=EventKind.APPROVE, clauses=build_clauses("5.2 step 5", "7.2 steps 5 and 8", _POLICY),
        effect=_approve_as_requested, said="recommended by the expert, registered by IANA",
    ),
    _ExpertRule(
        id="E3", event=EventKind.APPROVE_AS_PROVISIONAL, clauses=build_clauses("5.1", "7.2 step 6"),
        when=_is_new_permanent, effect=_approve_as_provisional, said="provisional instead of permanent",
    ),
    _ExpertRule(
        id="E4", event=EventKind.ASK_IETF_REVIEW, clauses=build_clauses("5.1", "7.2 step 6"),
        when=_can_go_to_ietf, effect=_request_ietf_review,
        said="IETF review and IESG approval asked for; provisional meanwhile",
    ),
    _ExpertRule(
        id="E5", event=EventKind.REJECT, clauses=build_clauses("5.2 step 6", "7.2 step 8", _POLICY),
        effect=_reject_request, said="rejected by the expert",
    ),
    _IESGRule(
        id="E4", event=EventKind.IESG_APPROVE, clauses=build_clauses("5.3", "7.3"), when=has_conflict,
        said="the entry has changed since the request", hint="Decline it.",
    ),
    _IESGRule(
        id="E6", event=EventKind.IESG_APPROVE, clauses=build_clauses("3", None),
        when=_request_is(RequestKind.SEPARATE_USE), effect=_note_separate_use,
        said="the entry notes the separate use",
    ),
    _IESGRule(
        id="U3", event=EventKind.IESG_APPROVE, clauses=build_clauses("5.3", "7.3"),
        when=_request_is(RequestKind.REASSIGN), effect=_reassign_entry,
        said="reassigned to the one who asked",
    ),
    _IESGRule(
        id="U2", event=EventKind.IESG_APPROVE, clauses=build_clauses("5.3", "7.3"),
        when=_request_is(RequestKind.UPDATE), effect=_approve_as_requested,
        said="updated, with the IESG's approval",
    ),
    _IESGRule(
        id="S2", event=EventKind.IESG_APPROVE, clauses=build_clauses("5.3", "7.3"),
        when=_is_change_to_historical, effect=_approve_as_requested, said="permanent to historical",
    ),
    _IESGRule(
        id="E4", event=EventKind.IESG_APPROVE, clauses=build_clauses("5.1", "7.2 step 6"),
        when=_is_permanent_requested, effect=_approve_as_requested, said="permanent, approved by the IESG",
    ),
    _IESGRule(
        id="B1", event=EventKind.IESG_APPROVE, clauses=OWN_CLAUSES, when=has_conflict,
        said="the entry has changed since the request", hint="Decline it.",
    ),
    _IESGRule(
        id="B1", event=EventKind.IESG_APPROVE, clauses=OWN_CLAUSES, when=is_for_board,
        effect=_approve_as_requested, said="approved by the IESG, as the policy says",
    ),
    _IESGRule(
        id="B1", event=EventKind.IESG_DECLINE, clauses={"simple": OWN_CLAUSES["simple"]},
        effect=_reject_request, said="declined by the IESG",
    ),
    _IESGRule(
        id="E4", event=EventKind.IESG_DECLINE, clauses=build_clauses("5.1, 5.3", "7.2 step 6, 7.3"),
        effect=_reject_request, said="declined by the IESG",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, clauses=_TIMEOUT_CLAUSES,
        roles=(Role.IANA,), when=_can_register_by_timeout, effect=_register_by_timeout,
        said="two weeks without rejection: provisional",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, clauses=_TIMEOUT_CLAUSES,
        roles=(Role.IANA,), when=_can_register_meanwhile, effect=_register_meanwhile,
        said="two weeks without rejection: provisional, and the request for permanent stays open",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, clauses=_TIMEOUT_CLAUSES,
        roles=(Role.IANA,), when=_is_timer_due, effect=_escalate_timeout,
        said="two weeks of silence: the expert and the IESG are told",
    ),
)  # fmt: skip
