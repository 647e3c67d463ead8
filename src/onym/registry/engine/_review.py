"""The Designated Expert's and the IESG's decisions: E1 to E6, S1 and S2 by request, and the timer T1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onym.registry.engine._case import Case, Rule, clauses, needs_iesg, overtaken, required_text, text
from onym.registry.engine._effects import (
    applied,
    day_of,
    decided,
    entry_of,
    moved,
    noted,
    tell,
    touched,
    unreviewed,
    without_pending,
)
from onym.registry.records import (
    Decision,
    Entry,
    EventKind,
    RequestKind,
    RequestState,
    Role,
    Status,
)

__all__ = ["RULES"]

_EXPERT: Final = (Role.EXPERT,)
_IESG: Final = (Role.IESG,)
_REVIEWED: Final = (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW)
_IETF: Final = (RequestState.IETF_REVIEW,)
_POLICY: Final = "RFC 8126 4.5"
#: characters of a separate use that the row's note has
_USE: Final = 4_000


def _taken(case: Case) -> bool:
    """A new name that another entry holds already, so that only a note is left (E6)."""
    asked = case.asked
    if asked.kind is RequestKind.SEPARATE_USE:
        return True
    own = asked.timed_out and case.entry is not None and asked.id in case.row.pending
    return (
        asked.kind is RequestKind.NEW
        and case.entry is not None
        and case.row.status is not Status.PENDING_REVIEW
        and not own
    )


def _still_pending(case: Case) -> bool:
    """A separate use of a name that is itself under review."""
    separate = case.asked.kind is RequestKind.SEPARATE_USE
    return separate and case.entry is not None and case.row.status is Status.PENDING_REVIEW


def _overtaken(case: Case) -> bool:
    return overtaken(case) is not None


def _lapsed(case: Case) -> bool:
    """Is the last day that was asked for past?"""
    expires = day_of(case.asked.fields.get("expires"))
    return expires is not None and expires < case.at.date()


def _permanent_asked(case: Case) -> bool:
    return case.asked.status is Status.PERMANENT and case.asked.kind in (
        RequestKind.NEW,
        RequestKind.STATUS_CHANGE,
    )


def _new_permanent(case: Case) -> bool:
    return case.asked.kind is RequestKind.NEW and _may_go_to_ietf(case)


def _may_go_to_ietf(case: Case) -> bool:
    return _permanent_asked(case) and not _taken(case) and not _overtaken(case)


def _reason(case: Case) -> str | None:
    return text(case, "reason")


def _result(case: Case) -> Entry:
    """The row that an approval makes."""
    asked = case.asked
    keeps = asked.kind is RequestKind.UPDATE and case.entry is not None
    return entry_of(case, case.row.status if keeps else asked.status)


def _approve(case: Case, rule: Rule) -> Decision:
    return applied(case, rule, _result(case), outcome="registered", reason=_reason(case))


def _note_use(case: Case, rule: Rule) -> Decision:
    asked = case.asked
    use = asked.fields.get("description") or asked.fields.get("applications") or "another use of the name"
    # what the request asks for can be long, and is kept with it
    note = noted(case, "separate-use", f"{use if len(use) <= _USE else use[:_USE] + ' ...'} ({asked.id})")
    pending = tuple(each for each in case.row.pending if each != asked.id)
    row = touched(case, case.row, notes=(*case.row.notes, note), pending=pending)
    return applied(case, rule, row, outcome="noted", reason=_reason(case))


def _ask_iesg(case: Case, rule: Rule) -> Decision:
    request = moved(case, RequestState.IETF_REVIEW, reason=_reason(case))
    return decided(
        case,
        rule,
        request=request,
        notices=(tell(Role.IESG, f"{case.name}: {request.id} waits for the IESG"),),
    )


def _provisional(case: Case, rule: Rule) -> Decision:
    return applied(
        case, rule, entry_of(case, Status.PROVISIONAL), outcome="provisional", reason=_reason(case)
    )


def _ietf(case: Case, rule: Rule) -> Decision:
    request = moved(case, RequestState.IETF_REVIEW, reason=_reason(case))
    told = (
        tell(Role.IESG, f"{case.name}: {request.id} waits for IETF review and IESG approval"),
        tell(
            request.registrant, f"{case.name}: provisional while the IETF reviews {request.id}", _reason(case)
        ),
    )
    if _upgrade(case):
        # what it asks for waits for the approval: the row only shows the review
        pending = tuple(dict.fromkeys((*case.row.pending, request.id)))
        entry = touched(case, case.row, pending=pending)
    else:
        entry = entry_of(case, Status.PROVISIONAL, under_review=True)
    return decided(case, rule, request=request, notices=told, entry=entry)


def _more(case: Case, rule: Rule) -> Decision:
    reason = required_text(case, "reason", clause=rule.clause(case))
    # the date due stays: a wish for more review does not stop the 14 days (docs/decisions/0026)
    request = moved(case, RequestState.MORE_REVIEW, reason=reason, due=case.asked.due)
    notice = tell(request.registrant, f"{case.name}: more review of {request.id} is asked for", reason)
    return decided(case, rule, request=request, notices=(notice,))


def _resume(case: Case, rule: Rule) -> Decision:
    request = moved(case, RequestState.EXPERT_REVIEW, due=case.asked.due)
    notice = tell(Role.EXPERT, f"{case.name}: {request.id} is ready for review again")
    return decided(case, rule, request=request, notices=(notice,))


def _reject(case: Case, rule: Rule) -> Decision:
    reason = required_text(case, "reason", clause=rule.clause(case))
    entry, removed = without_pending(case)
    request = moved(case, RequestState.REJECTED, outcome="declined", reason=reason)
    notice = tell(request.registrant, f"{case.name}: {request.id} was rejected", reason)
    return decided(case, rule, request=request, entry=entry, removed=removed, notices=(notice,))


def _reassign(case: Case, rule: Rule) -> Decision:
    asked = case.asked
    controller = asked.fields.get("change_controller")
    fields = {**case.row.fields, **({"change_controller": controller} if controller else {})}
    row = touched(case, case.row, registrant=asked.registrant, designees=frozenset(), fields=fields)
    return applied(case, rule, row, outcome="reassigned", reason=_reason(case))


def _upgrade(case: Case) -> bool:
    return case.asked.kind is RequestKind.STATUS_CHANGE and case.asked.status is Status.PERMANENT


def _new_historical(case: Case) -> bool:
    return case.asked.kind is RequestKind.NEW and case.asked.status is Status.HISTORICAL


def _to_historical(case: Case) -> bool:
    return case.asked.kind is RequestKind.STATUS_CHANGE and case.asked.status is Status.HISTORICAL


def _asks(kind: RequestKind) -> Callable[[Case], bool]:
    return lambda case: case.asked.kind is kind


# ---------- the timer of RFC 4395 5.2 step 6


def _timer_off(case: Case) -> bool:
    wait, asked = case.profile.expert_timeout, case.asked
    return (
        wait is not None
        and asked.expert_asked is not None
        and not asked.timed_out
        and case.at >= asked.expert_asked + wait
    )


def _registers(case: Case) -> bool:
    """Does silence register it, and end the request?"""
    asked = case.asked
    provisional = asked.status is Status.PROVISIONAL
    new = asked.kind is RequestKind.NEW and case.entry is None
    update = asked.kind is RequestKind.UPDATE and case.entry is not None
    quietly = update and case.row.status is Status.PROVISIONAL and not case.row.iesg_approved
    return _timer_off(case) and provisional and (new or (quietly and not _overtaken(case)))


def _registers_meanwhile(case: Case) -> bool:
    asked = case.asked
    new = asked.kind is RequestKind.NEW and case.entry is None
    return _timer_off(case) and new and asked.status is Status.PERMANENT


def _time_out(case: Case, rule: Rule) -> Decision:
    request = moved(case, RequestState.TIMED_OUT, timed_out=True, outcome="provisional")
    notice = tell(request.registrant, f"{case.name}: provisional, for two weeks brought no rejection")
    entry = unreviewed(case, entry_of(case, Status.PROVISIONAL))
    return decided(case, rule, request=request, entry=entry, notices=(notice,))


def _time_out_meanwhile(case: Case, rule: Rule) -> Decision:
    state = case.asked.state
    request = moved(case, state, timed_out=True, since=case.asked.since)
    told = (
        tell(request.registrant, f"{case.name}: provisional; {request.id} stays open for permanent"),
        tell(Role.EXPERT, f"{case.name}: {request.id} still waits for a decision on permanent"),
    )
    return decided(
        case,
        rule,
        request=request,
        entry=unreviewed(case, entry_of(case, Status.PROVISIONAL, under_review=True)),
        notices=told,
    )


def _escalate(case: Case, rule: Rule) -> Decision:
    request = moved(case, case.asked.state, timed_out=True, since=case.asked.since)
    said = f"{case.name}: two weeks without a decision on {request.id} ({request.kind}, {request.status})"
    return decided(case, rule, request=request, notices=(tell(Role.EXPERT, said), tell(Role.IESG, said)))


def _owner(case: Case) -> bool:
    return case.owns_request


_SILENCE: Final = clauses("5.2 step 6", None)

RULES: Final = (
    Rule(
        id="E1", event=EventKind.ASK_MORE_REVIEW, states=(RequestState.EXPERT_REVIEW,), roles=_EXPERT,
        clauses=clauses("5.2 step 4", "7.2 step 6", _POLICY), effect=_more,
        said="more review or discussion is asked for",
    ),
    Rule(
        id="E1", event=EventKind.RESUME_REVIEW, states=(RequestState.MORE_REVIEW,), roles=_EXPERT,
        who=_owner, clauses=clauses("5.2 step 4", "7.2 step 6", _POLICY), effect=_resume,
        said="back to the expert",
    ),
    Rule(
        id="E2", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_overtaken,
        clauses=clauses("5.3", "7.3", _POLICY), said="the entry has changed since it was asked",
        hint="reject it",
    ),
    Rule(
        id="E2", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_lapsed,
        clauses={"expert-review": "docs/decisions/0027"}, said="the last day that it asks for is past",
        hint="ask for more review, so that its registrant can name a later one",
    ),
    Rule(
        id="E6", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_still_pending,
        clauses=clauses(None, "7.2 step 7"), said="the name is itself under review",
        hint="decide the other request first",
    ),
    Rule(
        id="E6", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_taken,
        clauses=clauses(None, "7.2 step 7"), effect=_note_use, said="the entry notes the separate use",
    ),
    Rule(
        id="E6", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_taken,
        clauses=clauses("5.2 step 2", None, _POLICY), said="the name has been registered meanwhile",
        hint="reject it; a separate use is noted by the IESG (kind note-separate-use)",
    ),
    Rule(
        id="U2", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=needs_iesg,
        clauses=clauses("5.3", "7.3"), effect=_ask_iesg,
        said="an IESG-approved document defines it: the IESG must approve too",
    ),
    Rule(
        id="S1", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_upgrade,
        clauses=clauses("5.3", "7.3"), effect=_approve, said="provisional to permanent",
    ),
    Rule(
        id="S4", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT, when=_new_historical,
        clauses=clauses("4, 5.1", "5, 7.1"), effect=_approve, said="registered as historical",
    ),
    Rule(
        id="E2", event=EventKind.APPROVE, states=_REVIEWED, roles=_EXPERT,
        clauses=clauses("5.2 step 5", "7.2 steps 5 and 8", _POLICY), effect=_approve,
        said="recommended by the expert, registered by IANA",
    ),
    Rule(
        id="E3", event=EventKind.APPROVE_AS_PROVISIONAL, states=_REVIEWED, roles=_EXPERT,
        when=_new_permanent, clauses=clauses("5.1", "7.2 step 6"), effect=_provisional,
        said="provisional instead of permanent",
    ),
    Rule(
        id="E4", event=EventKind.ASK_IETF_REVIEW, states=_REVIEWED, roles=_EXPERT,
        when=_may_go_to_ietf, clauses=clauses("5.1", "7.2 step 6"),
        effect=_ietf, said="IETF review and IESG approval asked for; provisional meanwhile",
    ),
    Rule(
        id="E5", event=EventKind.REJECT, states=_REVIEWED, roles=_EXPERT,
        clauses=clauses("5.2 step 6", "7.2 step 8", _POLICY), effect=_reject, said="rejected by the expert",
    ),
    Rule(
        id="E4", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG, when=_overtaken,
        clauses=clauses("5.3", "7.3"), said="the entry has changed since it was asked", hint="decline it",
    ),
    Rule(
        id="E6", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG,
        when=_asks(RequestKind.SEPARATE_USE), clauses=clauses("3", None), effect=_note_use,
        said="the entry notes the separate use",
    ),
    Rule(
        id="U3", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG, when=_asks(RequestKind.REASSIGN),
        clauses=clauses("5.3", "7.3"), effect=_reassign, said="reassigned to the one who asked",
    ),
    Rule(
        id="U2", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG, when=_asks(RequestKind.UPDATE),
        clauses=clauses("5.3", "7.3"), effect=_approve, said="updated, with the IESG's approval",
    ),
    Rule(
        id="S2", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG, when=_to_historical,
        clauses=clauses("5.3", "7.3"), effect=_approve, said="permanent to historical",
    ),
    Rule(
        id="E4", event=EventKind.IESG_APPROVE, states=_IETF, roles=_IESG, when=_permanent_asked,
        clauses=clauses("5.1", "7.2 step 6"), effect=_approve, said="permanent, approved by the IESG",
    ),
    Rule(
        id="E4", event=EventKind.IESG_DECLINE, states=_IETF, roles=_IESG,
        clauses=clauses("5.1, 5.3", "7.2 step 6, 7.3"), effect=_reject, said="declined by the IESG",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, roles=(Role.IANA,), when=_registers,
        clauses=_SILENCE, effect=_time_out, said="two weeks without rejection: provisional",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, roles=(Role.IANA,),
        when=_registers_meanwhile, clauses=_SILENCE, effect=_time_out_meanwhile,
        said="two weeks without rejection: provisional, and the request for permanent stays open",
    ),
    Rule(
        id="T1", event=EventKind.REVIEW_TIMEOUT, states=_REVIEWED, roles=(Role.IANA,), when=_timer_off,
        clauses=_SILENCE, effect=_escalate, said="two weeks of silence: the expert and the IESG are told",
    ),
)  # fmt: skip
