"""What a caller must do before the gateway forwards a call, and consents (AIIP/HTTPS v1 3.13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onym.ai.gateway.permissions import (
    CONSENT_SECONDS,
    MAX_CONSENTS,
    MAX_QUESTIONS,
    QUESTION_SECONDS,
    CallState,
    ConsentQuestion,
    ConsentScope,
    ConsentStore,
    Step,
    find_next_step,
    make_step_error,
)
from onym.ai.records import Description, Effects
from onym.errors import AIIPError, DeniedError, StoreError
from onym.store.shared import MemoryStore

NOW = 1_000_000.0
URI = "ai://bank.example/pay"
PERSON = "https://login.example\nalice"


def described(effects: str, *, reversible: bool = False, approval: bool = False) -> Description:
    return Description(uri=URI, effects=Effects(effects), reversible=reversible, approval=approval)


OUT, FRESH, OLD = None, NOW - 10, NOW - 301
#: effects, reversible, sign-in -> the step in a browser, and for a program
STEPS = [
    ("read", False, OUT, "forward", "forward"),
    ("read", False, OLD, "forward", "forward"),
    ("write", True, OUT, "sign-in", "sign-in"),
    ("write", True, OLD, "forward", "consent"),
    ("write", False, OUT, "sign-in", "sign-in"),
    ("write", False, OLD, "review", "approve"),
    ("financial", False, OUT, "sign-in", "sign-in"),
    # a program has no sign-in of its own: the person who approves has a fresh one
    ("financial", False, OLD, "step-up", "approve"),
    ("financial", False, FRESH, "approve", "approve"),
    ("physical", False, OLD, "step-up", "approve"),
    ("physical", False, FRESH, "approve", "approve"),
]


@pytest.mark.parametrize(("effects", "reversible", "signed_in", "browser", "program"), STEPS)
def test_effects_decide_what_comes_next(
    effects: str, reversible: bool, signed_in: float | None, browser: str, program: str
) -> None:
    resource = described(effects, reversible=reversible)
    for is_program, wanted in ((False, browser), (True, program)):
        state = CallState(signed_in_at=signed_in, is_program=is_program)
        assert find_next_step(resource, state, at=NOW) == wanted


def test_a_sign_in_from_the_future_is_not_a_fresh_one() -> None:
    payment = described("financial")
    assert find_next_step(payment, CallState(signed_in_at=NOW + 59), at=NOW) is Step.APPROVE
    assert find_next_step(payment, CallState(signed_in_at=NOW + 61), at=NOW) is Step.STEP_UP


def test_an_authority_that_wants_a_token_needs_a_person_for_reads_too() -> None:
    reading = described("read")
    assert find_next_step(reading, CallState(signed_in_at=None), at=NOW, token=True) is Step.SIGN_IN
    assert find_next_step(reading, CallState(signed_in_at=OLD), at=NOW, token=True) is Step.FORWARD


def test_each_step_that_was_done_leads_on_and_no_other_does() -> None:
    state = CallState(signed_in_at=FRESH)
    write, draft, payment = described("write"), described("write", reversible=True), described("financial")
    reviewed = CallState(signed_in_at=FRESH, reviewed=True)
    approved = CallState(signed_in_at=FRESH, approved=True)
    consented = CallState(signed_in_at=FRESH, is_program=True, consented=True)
    assert find_next_step(write, state, at=NOW) is Step.REVIEW
    assert find_next_step(write, reviewed, at=NOW) is Step.FORWARD
    assert find_next_step(write, approved, at=NOW) is Step.FORWARD
    assert find_next_step(payment, reviewed, at=NOW) is Step.APPROVE
    assert find_next_step(payment, approved, at=NOW) is Step.FORWARD
    assert find_next_step(draft, consented, at=NOW) is Step.FORWARD
    # a consent never covers what cannot be undone
    assert find_next_step(write, consented, at=NOW) is Step.APPROVE
    assert find_next_step(payment, consented, at=NOW) is Step.APPROVE


def test_an_authority_that_wants_an_approval_gets_one_for_any_effects() -> None:
    for effects in ("read", "write"):
        resource = described(effects, reversible=effects == "write", approval=True)
        assert find_next_step(resource, CallState(signed_in_at=FRESH), at=NOW) is Step.APPROVE


def test_every_step_but_the_last_has_an_error_with_a_code() -> None:
    codes = {step: make_step_error(step, URI).code for step in Step if step is not Step.FORWARD}
    assert codes == {
        Step.SIGN_IN: "aiip.sign-in-required",
        Step.STEP_UP: "aiip.step-up-required",
        Step.CONSENT: "aiip.consent-required",
        Step.REVIEW: "aiip.approval-required",
        Step.APPROVE: "aiip.approval-required",
    }


def scope(**changes: Any) -> ConsentScope:
    given = {"client": "https://app.example/client", "authority": "bank.example", "bound": True}
    return ConsentScope(**{**given, "effects": Effects.WRITE, **changes})


def question(asked: ConsentScope, at: float = NOW) -> ConsentQuestion:
    return ConsentQuestion(
        scope=asked,
        target=URI,
        scopes=("pay",),
        proof="dpop",
        thumbprint="k" * 43,
        created=at,
        until=at + QUESTION_SECONDS,
    )


def test_a_consent_is_for_one_person_program_authority_and_kind_of_effects() -> None:
    async def check() -> None:
        consents = ConsentStore(MemoryStore(clock=lambda: NOW))
        kept = await consents.allow(PERSON, scope(), at=NOW)

        async def allowed(person: str = PERSON, at: float = NOW, **changed: Any) -> bool:
            return await consents.find(person, scope(**changed), at=at) is not None

        assert await allowed()
        assert not await allowed("https://login.example\nbob")
        assert not await allowed(client="https://other.example/client")
        assert not await allowed(authority="bank.example.evil.example")
        assert not await allowed(effects=Effects.READ)
        assert not await allowed(at=NOW + CONSENT_SECONDS)
        # a program that proved a key was allowed, and somebody with a stolen token was not
        assert not await allowed(bound=False)
        await consents.revoke("https://login.example\nbob", kept.scope.id)
        assert await allowed()
        for identifier in (kept.scope.id, kept.scope.id, "", "../x", "é" * 1000):
            await consents.revoke(PERSON, identifier)
        assert not await allowed()
        assert await consents.list_consents(PERSON, at=NOW) == ()

    asyncio.run(check())


def test_a_consent_without_a_key_covers_the_same_program_with_one() -> None:
    async def check() -> None:
        consents = ConsentStore(MemoryStore(clock=lambda: NOW))
        await consents.allow(PERSON, scope(bound=False), at=NOW)
        assert await consents.find(PERSON, scope(bound=True), at=NOW) is not None
        await consents.allow(PERSON, scope(bound=True), at=NOW)
        assert await consents.find(PERSON, scope(bound=False), at=NOW) is None
        assert len(await consents.list_consents(PERSON, at=NOW)) == 1

    asyncio.run(check())


@pytest.mark.parametrize("effects", ["financial", "physical"])
def test_no_consent_covers_financial_and_physical_effects(effects: str) -> None:
    consents = ConsentStore(MemoryStore(clock=lambda: NOW))
    with pytest.raises(DeniedError) as refusal:
        asyncio.run(consents.allow(PERSON, scope(effects=Effects(effects)), at=NOW))
    assert refusal.value.code == "aiip.approval-required"


def test_a_person_has_a_bounded_number_of_consents_and_may_renew_them() -> None:
    async def check() -> None:
        consents = ConsentStore(MemoryStore(clock=lambda: NOW))
        for number in range(MAX_CONSENTS):
            await consents.allow(PERSON, scope(client=f"app-{number}"), at=NOW)
        with pytest.raises(AIIPError) as refusal:
            await consents.allow(PERSON, scope(client="one-more"), at=NOW)
        assert refusal.value.code == "aiip.policy-denied"
        await consents.allow(PERSON, scope(client="app-3"), at=NOW + 1)
        listed = await consents.list_consents(PERSON, at=NOW)
        assert (len(listed), listed[0].scope.client) == (MAX_CONSENTS, "app-3")

    asyncio.run(check())


def test_a_question_is_one_for_each_scope_and_of_one_person() -> None:
    async def check() -> None:
        consents = ConsentStore(MemoryStore(clock=lambda: NOW))
        for _ in range(3):
            asked = await consents.ask(PERSON, question(scope()))
        assert await consents.list_questions(PERSON, at=NOW) == (asked,)
        name = asked.scope.id
        assert await consents.find_question("https://login.example\nbob", name, at=NOW) is None
        assert await consents.find_question(PERSON, "../x", at=NOW) is None
        assert await consents.find_question(PERSON, name, at=NOW + QUESTION_SECONDS) is None
        for number in range(MAX_QUESTIONS - 1):
            await consents.ask(PERSON, question(scope(client=f"app-{number}")))
        with pytest.raises(AIIPError) as refusal:
            await consents.ask(PERSON, question(scope(client="one-more")))
        assert refusal.value.code == "aiip.consent-required"
        # the known one can still be asked and answered
        await consents.ask(PERSON, question(scope()))
        await consents.allow(PERSON, asked.scope, at=NOW)
        assert await consents.find_question(PERSON, name, at=NOW) is None

    asyncio.run(check())


def test_a_denied_question_is_not_asked_again() -> None:
    async def check() -> None:
        consents = ConsentStore(MemoryStore(clock=lambda: NOW))
        asked = await consents.ask(PERSON, question(scope()))
        await consents.deny(PERSON, asked)
        again = await consents.ask(PERSON, question(scope(), NOW + 60))
        assert (again.denied, again.created) == (True, NOW)
        later = await consents.ask(PERSON, question(scope(), NOW + QUESTION_SECONDS))
        assert not later.denied

    asyncio.run(check())


def test_a_damaged_consent_is_told_and_never_taken_for_one() -> None:
    async def check() -> None:
        store = MemoryStore(clock=lambda: NOW)
        consents = ConsentStore(store)
        kept = await consents.allow(PERSON, scope(), at=NOW)
        ((key, _),) = await store.find("consent/", limit=10)
        await store.put(key, b"\xc1", NOW + 100)
        with pytest.raises(StoreError) as damage:
            await consents.find(PERSON, scope(), at=NOW)
        assert damage.value.code == "store.damaged"
        await consents.revoke(PERSON, kept.scope.id)
        assert await consents.list_consents(PERSON, at=NOW) == ()

    asyncio.run(check())
