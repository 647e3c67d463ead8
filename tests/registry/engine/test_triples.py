"""Every (state, event, actor) triple, in every scene, under both profiles."""

from __future__ import annotations

import itertools

import pytest

from onym.errors import RefusalError
from onym.registry.engine import decide, list_allowed_events
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, RequestState, Role, Status
from onym.registry.registries import PROFILES
from support import as_subtests

from .table import ACTORS, AT, DATA, REQUEST_EVENTS, SCENES, STEPS, cases, expected

REFUSALS = {"registry.not-allowed", "registry.wrong-role", "registry.incomplete"}


def ask(event: EventKind, scene: str, profile: str, state: RequestState, actor: Actor) -> Decision:
    place = SCENES[scene]
    asked = Event(
        kind=event, registry="uri-schemes", request="uri-schemes-1", name="demo", data=DATA.get(event, {})
    )
    return decide(asked, actor, AT, request=place.request(profile, state), entry=place.entry(profile, state))


def entry_after(decision: Decision, before: Entry | None) -> Status | str:
    if decision.removed:
        return "gone"
    if decision.entry is None:
        return "same"
    if before is not None and decision.entry.status is before.status:
        return "kept"
    return decision.entry.status


def agrees(said: Status | str, decision: Decision, before: Entry | None) -> bool:
    """Is that what the step says of the entry?"""
    found = entry_after(decision, before)
    if said == "released":
        # a row that only showed the request goes with it; one that it marked loses the mark
        if before is None or not before.pending:
            return found == "same"
        if before.status is Status.PENDING_REVIEW:
            return found == "gone"
        return decision.entry is not None and not decision.entry.pending and found == "kept"
    if isinstance(said, Status):
        return decision.entry is not None and decision.entry.status is said
    return found == said


@as_subtests(("scene", "profile"), list(cases()))
@pytest.mark.parametrize("state", list(RequestState), ids=str)
def test_each_event_by_each_actor_leads_where_the_procedure_says_or_is_refused(
    state: RequestState, scene: str, profile: str
) -> None:
    before = SCENES[scene].entry(profile, state)
    for event, (name, actor) in itertools.product(REQUEST_EVENTS, ACTORS.items()):
        step = expected(event, scene, profile, state, name)
        where = f"{event} by {name}"
        if step is None:
            with pytest.raises(RefusalError) as caught:
                ask(event, scene, profile, state, actor)
            assert caught.value.rule is not None, where
            assert caught.value.code in REFUSALS, where
            continue
        decision = ask(event, scene, profile, state, actor)
        assert decision.request is not None, where
        assert decision.rule == step.rule, where
        assert decision.request.state is (step.leads_to or state), where
        assert decision.request.version == 5, where
        assert agrees(step.entry, decision, before), (where, entry_after(decision, before))


@as_subtests(("scene", "profile"), list(cases()))
@pytest.mark.parametrize("state", list(RequestState), ids=str)
def test_the_buttons_are_what_may_be_asked_for(state: RequestState, scene: str, profile: str) -> None:
    place = SCENES[scene]
    request, entry = place.request(profile, state), place.entry(profile, state)
    for name, actor in ACTORS.items():
        shown = set(list_allowed_events(request, entry, actor, AT))
        for event in REQUEST_EVENTS:
            if event in (EventKind.REVIEW_TIMEOUT, EventKind.REMIND):
                assert event not in shown
                continue
            try:
                ask(event, scene, profile, state, actor)
            except RefusalError:
                assert event not in shown, (event, name)
            else:
                assert event in shown, (event, name)


def test_every_rule_of_the_table_about_requests_is_reached_by_a_step() -> None:
    from onym.registry.engine import RULES

    # rules for registries that an operator defines are tested in test_definitions.py
    live = (rule for rule in RULES if rule.effect is not None and not rule.retired)
    rules = {
        (rule.event, rule.id) for rule in live if rule.states != (None,) and set(rule.clauses) & set(PROFILES)
    }
    steps = {(step.event, step.rule) for step in STEPS}
    assert rules - steps == set()


def test_roles_do_not_add_up_across_registries_or_to_readers() -> None:
    reader = Actor(id="owner-of-nothing", roles=frozenset({Role.READER}))
    for state in RequestState:
        assert list_allowed_events(SCENES["new permanent"].request("rfc7595", state), None, reader, AT) == ()
