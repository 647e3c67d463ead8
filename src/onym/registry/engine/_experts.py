"""Rules for the people of a review: several experts, conflicts of interest, temporary experts, reminders."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from onym.errors import RefusalError
from onym.registry.engine._rules import (
    EventContext,
    Rule,
    build_common_clauses,
    change_request,
    get_text,
    is_temporary_expert,
    is_valid_id,
    make_decision,
    make_notice,
    reject,
    require_text,
)
from onym.registry.records import Decision, EventKind, Notice, Request, RequestState, Role
from onym.registry.registries import REMINDER_PLANS, ReminderPlan, get_profile
from onym.registry.words import name_role

_CLAUSES: Final = build_common_clauses("RFC 8126 5.2")
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
        id="E7", event=EventKind.ASSIGN_EXPERT, states=_OPEN, clauses=_CLAUSES,
        roles=(Role.IANA, Role.EXPERT), who=is_temporary_expert, effect=_assign_expert,
        said="one of several experts coordinates the review",
    ),
    Rule(
        id="E8", event=EventKind.RECUSE, states=_OPEN, clauses=_CLAUSES, roles=(Role.EXPERT,),
        who=is_temporary_expert, effect=_recuse_expert, said="an expert has a conflict of interest",
    ),
    Rule(
        id="E9", event=EventKind.APPOINT_EXPERT, states=_OPEN, clauses=_CLAUSES, roles=(Role.IESG,),
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
