"""Rules about those who oversee a decision: several experts, conflicts of interest, reminders and appeals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._rules import (
    OWN_CLAUSES,
    EventContext,
    Rule,
    build_common_clauses,
    change_request,
    get_text,
    is_temporary_expert,
    is_valid_id,
    make_decision,
    make_note,
    make_notice,
    move_request,
    reject,
    require_text,
    update_entry,
)
from onym.registry.records import (
    Appeal,
    AppealLevel,
    AppealState,
    Decision,
    Entry,
    EventKind,
    Notice,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import (
    APPEAL_TIME,
    APPEAL_WINDOW,
    APPEAL_WINDOW_OF_OTHERS,
    BUILTIN,
    REMINDER_PLANS,
    ReminderPlan,
    get_profile,
)
from onym.registry.words import name_role

_EXPERT_CLAUSES: Final = build_common_clauses("RFC 8126 5.2")
_REMINDER_CLAUSES: Final = build_common_clauses("docs/decisions/0054")
_ESCALATION_CLAUSES: Final = build_common_clauses("RFC 8126 5.3")
_REVIEWED: Final = (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW)
#: states in which experts can be chosen: before the review too
_OPEN: Final = (RequestState.SUBMITTED, *_REVIEWED)
#: people of one request
_MAX_PEOPLE: Final = 64


def get_expert_address(request: Request) -> str | Role:
    """Return the assigned expert, or the role of all experts."""
    return request.expert or Role.EXPERT


def _parse_expert(case: EventContext, rule: Rule) -> str:
    expert = require_text(case, "expert", clause=rule.get_clause(case))
    if not is_valid_id(expert):
        raise reject("expert", "this is not a valid account ID")
    if expert in case.current_request.recused:
        raise RefusalError(
            "this expert is recused from the request", code="registry.recused", field="expert",
            clause=rule.get_clause(case), rule=rule.id, hint="Choose another expert.",
        )  # fmt: skip
    return expert


def _require_room(people: frozenset[str], field: str) -> None:
    if len(people) > _MAX_PEOPLE:
        raise RefusalError(
            f"a request names at most {_MAX_PEOPLE} experts", code="registry.too-large", field=field
        )


def _assign_expert(case: EventContext, rule: Rule) -> Decision:
    expert, asked = _parse_expert(case, rule), case.current_request
    request = change_request(case, expert=expert)
    told = [make_notice(expert, f"{case.name}: {asked.id} was assigned to you", get_text(case, "reason"))]
    if asked.expert is not None and asked.expert not in (expert, case.actor.id):
        told.append(make_notice(asked.expert, f"{case.name}: another expert reviews {asked.id} now"))
    return make_decision(case, rule, request=request, notices=tuple(told))


def _recuse_expert(case: EventContext, rule: Rule) -> Decision:
    reason = require_text(case, "reason", clause=rule.get_clause(case))
    asked, actor = case.current_request, case.actor.id
    recused = asked.recused | {actor}
    _require_room(recused, "reason")
    request = change_request(
        case, recused=recused, temporary_experts=asked.temporary_experts - {actor},
        expert=None if asked.expert == actor else asked.expert,
    )  # fmt: skip
    said = f"{case.name}: an expert is recused from {asked.id}"
    told = [make_notice(get_expert_address(request), said, reason), make_notice(Role.IANA, said, reason)]
    if case.event.data.get("experts_left") == 0:
        alone = f"{case.name}: every expert is recused from {asked.id}; appoint a temporary one"
        told.append(make_notice(Role.IESG, alone, reason))
    return make_decision(case, rule, request=request, notices=tuple(told))


def _appoint_expert(case: EventContext, rule: Rule) -> Decision:
    reason = require_text(case, "reason", clause=rule.get_clause(case))
    expert, asked = _parse_expert(case, rule), case.current_request
    temporary = asked.temporary_experts | {expert}
    _require_room(temporary, "expert")
    request = change_request(case, expert=expert, temporary_experts=temporary)
    told = (
        make_notice(expert, f"{case.name}: you are the temporary expert for {asked.id}", reason),
        make_notice(Role.IANA, f"{case.name}: a temporary expert reviews {asked.id}", reason),
    )
    return make_decision(case, rule, request=request, notices=told)


# ---------- reminders


def find_reminder_time(request: Request) -> datetime | None:
    """Return when the next reminder about the request is due, or None if there is none."""
    plan = REMINDER_PLANS.get(request.state)
    if plan is None or request.reminded >= plan.most or _is_timer_running(request):
        return None
    if request.reminded_at is not None:
        return _add(request.reminded_at, plan.every)
    if plan.by_due and request.due is not None:
        return _add(request.due, plan.every) if request.timed_out else request.due
    return _add(request.since, plan.wait)


def _add(at: datetime, by: timedelta) -> datetime | None:
    try:
        return at + by
    except OverflowError:
        return None


def _is_timer_running(request: Request) -> bool:
    """Report whether silence itself decides the request at a known time (RFC 4395 5.2 step 6)."""
    timer = get_profile(request.profile).expert_timeout
    return timer is not None and request.state in _REVIEWED and not request.timed_out


def _is_reminder_due(case: EventContext) -> bool:
    moment = find_reminder_time(case.current_request)
    return moment is not None and moment <= case.at


def _get_plan(case: EventContext) -> ReminderPlan:
    return REMINDER_PLANS[case.current_request.state]


def _is_escalation_due(case: EventContext) -> bool:
    if not _is_reminder_due(case):
        return False
    plan = _get_plan(case)
    return bool(plan.escalate_to) and case.current_request.reminded + 1 >= plan.escalate


def _list_holders(request: Request) -> tuple[str | Role, ...]:
    if request.holder is Role.EXPERT:
        return (get_expert_address(request),)
    return (request.registrant if request.holder in (None, Role.REGISTRANT) else request.holder,)


def _remind_holder(case: EventContext, rule: Rule) -> Decision:
    asked = case.current_request
    days = (case.at - asked.since).days
    said = f"{case.name}: {asked.id} has waited for you for {days} days ({asked.state})"
    notices: list[Notice] = [make_notice(holder, said) for holder in _list_holders(asked)]
    if _is_escalation_due(case):
        holder = asked.holder or Role.REGISTRANT
        waited = f"for the {name_role(holder)} for {days} days"
        above = f"{case.name}: {asked.id} has waited {waited} ({asked.state})"
        notices += [make_notice(role, above) for role in _get_plan(case).escalate_to if role is not holder]
    request = change_request(case, reminded=asked.reminded + 1, reminded_at=case.at)
    return make_decision(case, rule, request=request, notices=tuple(notices))


_ReminderRule: Final = partial(
    Rule, event=EventKind.REMIND, states=tuple(REMINDER_PLANS), roles=(Role.IANA,), effect=_remind_holder
)

EXPERT_RULES: Final = (
    Rule(
        id="E7", event=EventKind.ASSIGN_EXPERT, states=_OPEN, clauses=_EXPERT_CLAUSES,
        roles=(Role.IANA, Role.EXPERT), who=is_temporary_expert, effect=_assign_expert,
        said="one of several experts coordinates the review",
    ),
    Rule(
        id="E8", event=EventKind.RECUSE, states=_OPEN, clauses=_EXPERT_CLAUSES, roles=(Role.EXPERT,),
        who=is_temporary_expert, effect=_recuse_expert, said="an expert has a conflict of interest",
    ),
    Rule(
        id="E9", event=EventKind.APPOINT_EXPERT, states=_OPEN, clauses=_EXPERT_CLAUSES, roles=(Role.IESG,),
        effect=_appoint_expert, said="the IESG appoints a temporary expert",
    ),
    _ReminderRule(
        id="T3", clauses=_ESCALATION_CLAUSES, when=_is_escalation_due,
        said="overdue again: those who oversee it are told too",
    ),
    _ReminderRule(
        id="T2", clauses=_REMINDER_CLAUSES, when=_is_reminder_due, said="overdue: its holder is reminded",
    ),
)  # fmt: skip


_CLAUSES: Final = build_common_clauses("RFC 8126 10")
#: an operator's board is the last instance of its registries
_IAB_CLAUSES: Final[Mapping[str, str]] = dict.fromkeys(BUILTIN.profiles, "RFC 8126 10")
_ANYONE: Final = (Role.REGISTRANT, Role.IANA, Role.EXPERT, Role.IESG)
#: decisions that can be appealed
_DECIDED: Final = (RequestState.REJECTED, RequestState.APPROVED, RequestState.TIMED_OUT)
_PENDING: Final = (RequestState.APPEAL,)
#: appeals of one request by people other than its registrant
_MAX_APPEALS: Final = 16
#: characters of the grounds, and of an answer
_MAX_GROUNDS: Final = 10_000
_ANSWERED: Final = (AppealState.UPHELD, AppealState.DISMISSED)
#: remedies beside the statuses of the registry
_NOTE, _REMOVE = "note", "remove"


def _get_last(request: Request) -> Appeal | None:
    return request.appeals[-1] if request.appeals else None


def _get_pending(case: EventContext) -> Appeal:
    return case.current_request.appeals[-1]


def _list_of_decision(request: Request) -> list[Appeal]:
    """Return the appeals against the decision that stands now."""
    return [appeal for appeal in request.appeals if appeal.decision == request.since]


def find_appeal_deadline(request: Request) -> datetime | None:
    """Return until when the decision can be appealed to the IESG, or None if it cannot be appealed."""
    if request.state not in _DECIDED or not get_profile(request.profile).appeals:
        return None
    answered = [appeal.decided for appeal in _list_of_decision(request) if appeal.decided is not None]
    end = request.since + APPEAL_WINDOW
    return max([end, *(at + APPEAL_WINDOW_OF_OTHERS for at in answered)])


def _is_too_late(case: EventContext) -> bool:
    end = find_appeal_deadline(case.current_request)
    return end is not None and case.at > end


def _has_appealed(case: EventContext) -> bool:
    """Report whether the actor's appeal against this decision was answered or withdrawn."""
    return any(appeal.by == case.actor.id for appeal in _list_of_decision(case.current_request))


def _is_full(case: EventContext) -> bool:
    asked = case.current_request
    others = sum(appeal.by != asked.registrant for appeal in asked.appeals)
    return case.actor.id != asked.registrant and others >= _MAX_APPEALS


def _is_answer_of_iesg(case: EventContext) -> bool:
    """Report whether the IESG's answer to an appeal led to the present state, in time for the IAB."""
    asked, last = case.current_request, _get_last(case.current_request)
    if last is None or last.level is not AppealLevel.IESG or last.state not in _ANSWERED:
        return False
    stands = asked.since in (last.decision, last.decided)
    return stands and last.decided is not None and case.at <= last.decided + APPEAL_WINDOW


def _may_go_to_iab(case: EventContext) -> bool:
    """Report whether the IESG's answer was against the actor: the appellant or the registrant."""
    last = _get_last(case.current_request)
    if last is None:
        return False
    if last.state is AppealState.DISMISSED:
        return case.actor.id == last.by
    return not last.for_registrant and case.actor.id == case.current_request.registrant


def _at_level(level: AppealLevel) -> Callable[[EventContext], bool]:
    def is_at_level(case: EventContext) -> bool:
        last = _get_last(case.current_request)
        return last is not None and last.level is level

    return is_at_level


def _is_appellant(case: EventContext) -> bool:
    last = _get_last(case.current_request)
    return last is not None and last.by == case.actor.id


def _require_grounds(case: EventContext, rule: Rule) -> str:
    grounds = require_text(case, "reason", clause=rule.get_clause(case))
    if len(grounds) > _MAX_GROUNDS:
        raise RefusalError(
            f"the reason has more than {_MAX_GROUNDS:,} characters", code="registry.too-large",
            field="reason", hint="Publish the rest elsewhere and give its URL.",
        )  # fmt: skip
    return grounds


def _make_notices(case: EventContext, subject: str, text: str, *others: str | Role) -> tuple[Notice, ...]:
    """Return notices to the registrant, the appellant and others, but not to the actor."""
    asked = case.current_request
    appellant = [asked.appeals[-1].by] if asked.appeals else []
    people = dict.fromkeys((asked.registrant, *appellant, *others))
    return tuple(
        make_notice(person, f"{case.name}: {subject}", text) for person in people if person != case.actor.id
    )


def _file_appeal(case: EventContext, rule: Rule) -> Decision:
    grounds, asked = _require_grounds(case, rule), case.current_request
    to_iab = case.event.kind is EventKind.APPEAL_TO_IAB
    level = AppealLevel.IAB if to_iab else AppealLevel.IESG
    appeal = Appeal(
        by=case.actor.id, grounds=grounds, level=level, against=asked.state, decision=asked.since,
        filed=case.at, due=case.at + APPEAL_TIME, for_registrant=case.actor.id == asked.registrant,
    )  # fmt: skip
    request = move_request(
        case, RequestState.APPEAL, due=appeal.due, appeals=(*asked.appeals, appeal),
        holder=Role.IANA if to_iab else Role.IESG,
    )  # fmt: skip
    body = "the IAB; IANA records its answer" if to_iab else "the IESG"
    told = _make_notices(
        case, f"an appeal about {asked.id} waits for {body}", grounds,
        *((Role.IANA, Role.IESG) if to_iab else (Role.IESG, Role.EXPERT)),
    )  # fmt: skip
    return make_decision(case, rule, request=request, notices=told)


def _answer(case: EventContext, state: AppealState, reason: str | None) -> tuple[Appeal, ...]:
    """Return the appeals with an answer to the pending one."""
    answered = replace(_get_pending(case), state=state, decided=case.at, reason=reason)
    return (*case.current_request.appeals[:-1], answered)


def _withdraw_appeal(case: EventContext, rule: Rule) -> Decision:
    reason, appeal = get_text(case, "reason"), _get_pending(case)
    appeals = _answer(case, AppealState.WITHDRAWN, reason)
    request = move_request(case, appeal.against, since=appeal.decision, appeals=appeals)
    subject = f"the appeal about {request.id} was withdrawn"
    told = _make_notices(case, subject, reason or subject, case.current_request.holder or Role.IESG)
    return make_decision(case, rule, request=request, notices=told)


def _require_answer(case: EventContext, rule: Rule) -> str:
    """Return the reason; an answer of the IAB needs the address of its text too."""
    reason = _require_grounds(case, rule)
    if _get_pending(case).level is not AppealLevel.IAB:
        return reason
    reference = require_text(case, "reference", clause=rule.get_clause(case))
    return f"{reason} [{reference[:500]}]"


def _dismiss_appeal(case: EventContext, rule: Rule) -> Decision:
    reason, appeal = _require_answer(case, rule), _get_pending(case)
    appeals = _answer(case, AppealState.DISMISSED, reason)
    request = move_request(case, appeal.against, since=appeal.decision, appeals=appeals)
    told = _make_notices(case, f"the appeal about {request.id} was dismissed", reason, Role.IANA, Role.EXPERT)
    return make_decision(case, rule, request=request, notices=told)


def _uphold_appeal(case: EventContext, rule: Rule) -> Decision:
    reason, appeal = _require_answer(case, rule), _get_pending(case)
    appeals = _answer(case, AppealState.UPHELD, reason)
    if appeal.against is RequestState.REJECTED:
        return _reopen_request(case, rule, appeals, reason)
    remedy = require_text(case, "remedy", clause=rule.get_clause(case))
    entry, removed = _apply_remedy(case, remedy, reason)
    request = move_request(
        case, RequestState.REJECTED if removed else appeal.against, appeals=appeals,
        outcome="overturned" if removed else "amended", reason=reason,
    )  # fmt: skip
    told = _make_notices(
        case, f"the appeal about {request.id} was upheld ({remedy})", reason, Role.IANA, Role.EXPERT
    )
    return make_decision(case, rule, request=request, entry=entry, removed=removed, notices=told)


def _reopen_request(case: EventContext, rule: Rule, appeals: tuple[Appeal, ...], reason: str) -> Decision:
    request = move_request(
        case, RequestState.SUBMITTED, appeals=appeals, outcome=None, reason=None,
        expert_asked=None, timed_out=False, expert=None,
    )  # fmt: skip
    told = _make_notices(
        case, f"the appeal about {request.id} was upheld: it is checked again", reason, Role.IANA, Role.EXPERT
    )
    return make_decision(case, rule, request=request, notices=told)


def _apply_remedy(case: EventContext, remedy: str, reason: str) -> tuple[Entry | None, bool]:
    """Return (entry or None, is it removed)."""
    asked, row = case.current_request, case.entry
    offered = [status for status in case.registry.statuses if status is not Status.PENDING_REVIEW]
    if remedy not in (_NOTE, _REMOVE, *offered):
        raise reject(
            "remedy", f"{remedy[:40]!r} is not a remedy",
            hint=f"Choose one of {_NOTE}, {_REMOVE}, {', '.join(offered)}.",
        )  # fmt: skip
    if row is None:
        if remedy == _NOTE:
            return None, False
        raise reject("remedy", "the entry does not exist any more", hint=f"Use remedy={_NOTE}.")
    if remedy == _REMOVE:
        made = asked.kind is RequestKind.NEW and row.registrant == asked.registrant
        if made and asked.outcome != "noted" and not row.pending:
            return None, True
        raise reject(
            "remedy", "only an entry that this request made, and that no other request is about, is removed",
            hint=f"Use remedy={_NOTE}; IANA or the IESG can then record an override.",
        )  # fmt: skip
    note = make_note(case, "appeal", reason)
    status = row.status if remedy == _NOTE else Status(remedy)
    return update_entry(case, row, status=status, notes=(*row.notes, note)), False


APPEAL_RULES: Final = (
    Rule(
        id="A1", event=EventKind.APPEAL, states=_DECIDED, clauses=OWN_CLAUSES, roles=_ANYONE,
        when=lambda case: not case.profile.appeals, said="the definition of this registry has no appeals",
        hint="Open another request, or an update of the entry.",
    ),
    Rule(
        id="A1", event=EventKind.APPEAL, states=_DECIDED, clauses=_CLAUSES, roles=_ANYONE, when=_is_too_late,
        said="the two months in which the decision could be appealed are over (RFC 2026 6.5.4)",
        hint="Open another request, or an update of the entry.",
    ),
    Rule(
        id="A1", event=EventKind.APPEAL, states=_DECIDED, clauses=_CLAUSES, roles=_ANYONE,
        when=lambda case: _has_appealed(case) or _is_full(case),
        said="you have appealed this decision already, or it has 16 appeals",
        hint="After the IESG's answer, the appellant can appeal to the IAB (appeal-to-iab).",
    ),
    Rule(
        id="A1", event=EventKind.APPEAL, states=_DECIDED, clauses=_CLAUSES, roles=_ANYONE,
        effect=_file_appeal, said="an appeal to the IESG",
    ),
    Rule(
        id="A2", event=EventKind.APPEAL_TO_IAB, states=_DECIDED, clauses=_IAB_CLAUSES, who=_may_go_to_iab,
        when=_is_answer_of_iesg, effect=_file_appeal, said="an appeal to the IAB",
    ),
    Rule(
        id="A3", event=EventKind.WITHDRAW_APPEAL, states=_PENDING, clauses=_CLAUSES, who=_is_appellant,
        effect=_withdraw_appeal, said="the appeal is withdrawn",
    ),
    Rule(
        id="A4", event=EventKind.UPHOLD_APPEAL, states=_PENDING, clauses=_CLAUSES, roles=(Role.IESG,),
        when=_at_level(AppealLevel.IESG), effect=_uphold_appeal, said="the appeal is upheld by the IESG",
    ),
    Rule(
        id="A4", event=EventKind.UPHOLD_APPEAL, states=_PENDING, clauses=_IAB_CLAUSES, roles=(Role.IANA,),
        when=_at_level(AppealLevel.IAB), effect=_uphold_appeal,
        said="the appeal is upheld by the IAB; IANA records it",
    ),
    Rule(
        id="A5", event=EventKind.DISMISS_APPEAL, states=_PENDING, clauses=_CLAUSES, roles=(Role.IESG,),
        when=_at_level(AppealLevel.IESG), effect=_dismiss_appeal, said="the appeal is dismissed by the IESG",
    ),
    Rule(
        id="A5", event=EventKind.DISMISS_APPEAL, states=_PENDING, clauses=_IAB_CLAUSES, roles=(Role.IANA,),
        when=_at_level(AppealLevel.IAB), effect=_dismiss_appeal,
        said="the appeal is dismissed by the IAB; IANA records it",
    ),
)  # fmt: skip
