"""The approvals of a gateway: who may decide, what counts once, what ends as no."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from onym.ai.gateway.approvals import (
    MAX_WAITING,
    ApprovalDesk,
    ApprovalRecord,
    ApprovalState,
    ApproverIdentity,
    Person,
    StoredCall,
    hash_description,
)
from onym.ai.records import Effects
from onym.errors import AIIPError, OnymError, StoreError
from onym.sign.approval import (
    CallDetails,
    Challenge,
    Rule,
    hash_challenge,
    make_transaction,
    sign_challenge,
    verify_approval,
)
from onym.sign.keys import read_authority_keys
from onym.sign.sealing import TemporarySecrets
from onym.store.shared import MemoryStore
from onym.uri.secret import Secret
from sign_support import jwks, key
from support import holds_a_token

T = TypeVar("T")

NOW = 1_760_000_000.0
GATEWAY = "https://gateway.example"
RESOURCE = "https://bank.example/.well-known/aiip/v1"
DESCRIPTION = hash_description(b'{"effects":"financial"}')
ANN = Person(id="https://op ann", name="Ann", subject="ann", acr="mfa", signed_in=NOW - 60)
BOB = Person(id="https://op bob", name="Bob", subject="bob", acr="mfa", signed_in=NOW - 60)
CAT = Person(id="https://op cat", name="Cät", subject="cat", acr="mfa", signed_in=NOW - 60)


def make_call(number: int = 1, **changes: Any) -> StoredCall:
    known: dict[str, Any] = {
        "uri": "ai://bank.example/payments",
        "method": "POST",
        "body": json.dumps({"amount": 10}).encode(),
        "content_type": "application/json",
        "idempotency_key": f"key-{number}",
        "title": "Pay",
        "schema": {"properties": {"amount": {"type": "number", "title": "Amount"}}},
        "effects": Effects.FINANCIAL,
        "reversible": False,
        "proof": "TLS",
    }
    return StoredCall(**known | changes)


def make_challenge(call: StoredCall, rule: Rule = Rule.OTHER, **changes: Any) -> Challenge:
    details = CallDetails(
        uri=call.uri,
        method=call.method,
        request=call.request_hash,
        effects=call.effects.value,
        rule=rule,
        description=DESCRIPTION,
        policy="P" * 43,
    )
    challenge = Challenge(
        issuer=RESOURCE,
        approvers=(GATEWAY,),
        issued=NOW,
        expires=NOW + 600,
        transaction=make_transaction(NOW),
        call=details,
        reason="why",
        requester="token-subject",
    )
    challenge = replace(challenge, **changes)
    return replace(challenge, digest=hash_challenge(challenge))


class Bench:
    """A desk on a store in memory, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = MemoryStore(clock=lambda: self.now)
        self.secrets = TemporarySecrets()
        identity = ApproverIdentity(issuer=GATEWAY, signer=key, pseudonyms=Secret("s"))
        self.desk = ApprovalDesk(self.store, self.secrets, identity, lambda: self.now)

    async def ask(
        self, number: int = 1, rule: Rule = Rule.OTHER, person: Person = ANN, **changes: Any
    ) -> ApprovalRecord:
        call = make_call(number)
        challenge = make_challenge(call, rule, **changes)
        return await self.desk.ask(call, challenge, sign_challenge(challenge, key()), person, "shop")

    async def approve(self, record: ApprovalRecord, person: Person, **changes: Any) -> ApprovalRecord:
        shown = (await self.desk.review(record)).shown
        terms: dict[str, Any] = {
            "shown": shown,
            "description": DESCRIPTION,
            "approver": True,
            "pairwise": False,
        }
        return await self.desk.approve(record.id, person, **terms | changes)


def play(scenario: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(scenario)


async def refusal(work: Coroutine[Any, Any, object]) -> str:
    with pytest.raises(OnymError) as caught:
        await work
    return caught.value.code


def test_an_approved_call_has_evidence_for_this_very_call() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask()
        assert (record.state, record.evidence, record.missing) == (ApprovalState.WAITING, None, 1)
        bench.now += 30
        done = await bench.approve(record, BOB)
        assert done.state is ApprovalState.APPROVED
        keys = read_authority_keys(jwks(key()))
        found = verify_approval(done.evidence or "", keys, issuer=GATEWAY, audience=RESOURCE, at=bench.now)
        assert found.request == record.call.request_hash
        assert (found.transaction, found.challenge) == (record.transaction, record.challenge)
        assert (found.by, found.acr, found.authenticated) == (("Bob",), "mfa", NOW - 60)
        assert found.shown == done.decisions[0].shown
        assert found.expires == bench.now + 300

    play(scenario())


def test_people_have_a_pseudonym_for_each_authority() -> None:
    identity = ApproverIdentity(issuer=GATEWAY, signer=key, pseudonyms=Secret("s"))
    one, other = identity.name_person(BOB, RESOURCE), identity.name_person(BOB, "https://shop.example")
    assert one == identity.name_person(BOB, RESOURCE)
    assert len({one, other, identity.name_person(ANN, RESOURCE)}) == 3
    assert len(one) == 43
    assert identity.name_person(CAT, RESOURCE, pairwise=False) == "C\\xe4t"
    assert identity.name_person(Person(id="x", name="\x1b"), RESOURCE, pairwise=False) == "unnamed"


# attacks 81, 82


@pytest.mark.parametrize(
    ("rule", "person", "approver", "expected"),
    [
        (Rule.PERSON, ANN, False, None),
        (Rule.PERSON, BOB, True, None),
        (Rule.PERSON, BOB, False, "aiip.task-not-found"),
        (Rule.OTHER, ANN, True, "aiip.policy-denied"),
        (Rule.OTHER, ANN, False, "aiip.policy-denied"),
        (Rule.OTHER, BOB, True, None),
        (Rule.TWO, ANN, True, "aiip.policy-denied"),
    ],
)
def test_the_rule_says_who_may_decide(
    rule: Rule, person: Person, approver: bool, expected: str | None
) -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask(rule=rule)
        if expected is None:
            done = await bench.approve(record, person, approver=approver)
            assert done.state is ApprovalState.APPROVED
        else:
            assert await refusal(bench.approve(record, person, approver=approver)) == expected
            assert await refusal(bench.desk.deny(record.id, person, approver=approver)) == expected

    play(scenario())


def test_the_subject_of_the_token_cannot_approve_from_another_account() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask(requester="bob")
        assert await refusal(bench.approve(record, BOB)) == "aiip.policy-denied"

    play(scenario())


def test_two_needs_two_different_persons() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask(rule=Rule.TWO)
        half = await bench.approve(record, BOB)
        assert (half.state, half.missing, half.evidence) == (ApprovalState.WAITING, 1, None)
        assert await refusal(bench.approve(record, BOB)) == "aiip.policy-denied"
        done = await bench.approve(record, CAT)
        assert done.state is ApprovalState.APPROVED
        claims = verify_approval(
            done.evidence or "",
            read_authority_keys(jwks(key())),
            issuer=GATEWAY,
            audience=RESOURCE,
            at=bench.now,
        )
        assert claims.by == ("Bob", "C\\xe4t")

    play(scenario())


def test_the_same_call_attaches_and_others_wait_up_to_the_limit() -> None:
    async def scenario() -> None:
        bench = Bench()
        first = await bench.ask(1)
        again = await asyncio.gather(*(bench.ask(1) for _ in range(100)))
        assert {record.id for record in again} == {first.id}
        for number in range(2, MAX_WAITING + 1):
            await bench.ask(number)
        assert await refusal(bench.ask(99)) == "aiip.too-many-requests"
        assert (await bench.ask(1)).id == first.id
        other = await bench.ask(1, person=BOB)
        assert other.id != first.id
        assert len(await bench.desk.list_open(ANN, approver=False)) == MAX_WAITING
        assert len(await bench.desk.list_open(CAT, approver=True)) == MAX_WAITING + 1
        await bench.desk.withdraw(first.id, ANN)
        await bench.ask(99)

    play(scenario())


def test_of_many_requests_at_once_twenty_wait() -> None:
    async def scenario() -> None:
        bench = Bench()
        found = await asyncio.gather(*(bench.ask(number) for number in range(60)), return_exceptions=True)
        waiting = [record for record in found if isinstance(record, ApprovalRecord)]
        refused = {error.code for error in found if isinstance(error, AIIPError)}
        assert len(waiting) <= MAX_WAITING
        assert refused == {"aiip.too-many-requests"}
        assert len(await bench.desk.list_open(ANN, approver=False)) == len(waiting)

    play(scenario())


def test_one_of_the_same_requests_at_once_becomes_a_record() -> None:
    async def scenario() -> None:
        bench = Bench()
        found = await asyncio.gather(*(bench.ask(1) for _ in range(50)))
        assert len({record.id for record in found}) == 1
        assert len(await bench.desk.list_open(CAT, approver=True)) == 1

    play(scenario())


# attacks 75, 78, 80, 86, 87


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b'{"amount":100}'},
        {"uri": "ai://bank.example/payments?amount=1"},
        {"content_type": "application/problem+json"},
        {"idempotency_key": "another"},
        {"method": "PUT"},
        {"effects": Effects.READ},
    ],
)
def test_the_challenge_of_another_call_is_not_shown(changes: dict[str, Any]) -> None:
    async def scenario() -> None:
        bench = Bench()
        challenge = make_challenge(make_call())
        asked = bench.desk.ask(make_call(**changes), challenge, "token", ANN, "shop")
        assert await refusal(asked) == "aiip.approval-mismatch"
        assert await bench.desk.list_open(CAT, approver=True) == []

    play(scenario())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"body": b'{"amount":1,"amount":2}'}, "aiip.invalid-input"),
        ({"body": b'{"other":1}'}, "aiip.invalid-input"),
        ({"body": b'"' + b"x" * 65_536 + b'"'}, "aiip.too-large"),
        ({"schema": {"title": "x" * 200_000}}, "aiip.too-large"),
    ],
)
def test_what_cannot_be_shown_is_not_asked(changes: dict[str, Any], expected: str) -> None:
    async def scenario() -> None:
        bench, call = Bench(), make_call(**changes)
        assert await refusal(bench.desk.ask(call, make_challenge(call), "t", ANN, "shop")) == expected
        assert await bench.desk.list_open(CAT, approver=True) == []

    play(scenario())


def test_a_decision_needs_what_was_shown_the_description_and_a_fresh_sign_in() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask()
        assert await refusal(bench.approve(record, BOB, shown="x" * 43)) == "aiip.approval-mismatch"
        assert await refusal(bench.approve(record, BOB, description="x" * 43)) == "aiip.approval-mismatch"
        old = Person(id=BOB.id, name="Bob", subject="bob", signed_in=NOW - 301)
        assert await refusal(bench.approve(record, old)) == "aiip.step-up-required"
        assert (await bench.desk.get(record.id)) == record

    play(scenario())


def test_a_record_that_is_not_decided_in_time_is_expired() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask()
        bench.now = record.expires
        found = await bench.desk.get(record.id)
        assert found is not None
        assert found.state is ApprovalState.EXPIRED
        fresh = Person(id=BOB.id, name="Bob", subject="bob", signed_in=bench.now)
        assert await refusal(bench.approve(record, fresh)) == "aiip.approval-mismatch"
        assert await bench.desk.list_open(CAT, approver=True) == []
        bench.now += 7200
        assert await bench.desk.get(record.id) is None

    play(scenario())


def test_evidence_that_is_not_used_in_time_is_expired() -> None:
    async def scenario() -> None:
        bench = Bench()
        done = await bench.approve(await bench.ask(), BOB)
        assert (await bench.ask()).evidence == done.evidence
        bench.now += 300
        found = await bench.desk.get(done.id)
        assert found is not None
        assert (found.state, found.evidence) == (ApprovalState.EXPIRED, None)
        assert (await bench.ask()).id != done.id

    play(scenario())


def test_one_denial_is_final_and_the_same_call_is_not_asked_again() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask(rule=Rule.TWO)
        await bench.approve(record, BOB)
        denied = await bench.desk.deny(record.id, CAT, approver=True)
        assert denied.state is ApprovalState.DENIED
        assert await refusal(bench.approve(record, CAT)) == "aiip.approval-mismatch"
        assert (await bench.ask(rule=Rule.TWO)).state is ApprovalState.DENIED
        assert (await bench.ask(2)).state is ApprovalState.WAITING

    play(scenario())


def test_who_asked_may_withdraw_and_nobody_else() -> None:
    async def scenario() -> None:
        bench = Bench()
        record = await bench.ask()
        assert await refusal(bench.desk.withdraw(record.id, BOB)) == "aiip.task-not-found"
        done = await bench.approve(record, BOB)
        gone = await bench.desk.withdraw(done.id, ANN)
        assert (gone.state, gone.evidence) == (ApprovalState.WITHDRAWN, None)
        assert await refusal(bench.desk.withdraw(done.id, ANN)) == "aiip.approval-mismatch"
        for number in range(3):
            await bench.ask(number + 2)
        assert await bench.desk.withdraw_all(ANN) == 3
        assert await bench.desk.list_open(CAT, approver=True) == []

    play(scenario())


def test_a_record_is_marked_as_used_once() -> None:
    async def scenario() -> None:
        bench = Bench()
        done = await bench.approve(await bench.ask(), BOB)
        await bench.desk.mark_used(done.id)
        await bench.desk.mark_used(done.id)
        found = await bench.desk.get(done.id)
        assert found is not None
        assert found.state is ApprovalState.USED
        assert await refusal(bench.desk.withdraw(done.id, ANN)) == "aiip.approval-mismatch"

    play(scenario())


def test_of_two_decisions_at_the_same_moment_one_counts() -> None:
    async def scenario() -> None:
        for number in range(50):
            bench = Bench()
            record = await bench.ask(number)
            found = await asyncio.gather(
                bench.approve(record, BOB),
                bench.approve(record, CAT),
                bench.desk.deny(record.id, CAT, approver=True),
                return_exceptions=True,
            )
            assert len([done for done in found if isinstance(done, ApprovalRecord)]) == 1

    play(scenario())


def test_changes_against_the_last_approved_call_are_shown() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.approve(await bench.ask(), BOB)
        call = make_call(2, body=b'{"amount":1000}')
        challenge = make_challenge(call)
        record = await bench.desk.ask(call, challenge, "t", ANN, "shop")
        (row,) = (await bench.desk.review(record)).rows
        assert (row.value, row.change, row.before) == ("1000", "changed", "10")

    play(scenario())


def test_an_approved_call_is_not_compared_with_itself() -> None:
    async def scenario() -> None:
        bench = Bench()
        first = await bench.ask()
        assert not (await bench.desk.review(first)).compared
        approved = await bench.approve(first, BOB)
        assert approved.state is ApprovalState.APPROVED
        assert not (await bench.desk.review(approved)).compared
        assert (await bench.desk.review(await bench.ask(2))).compared

    play(scenario())


def test_a_last_call_whose_secret_is_gone_is_no_obstacle() -> None:
    """It is kept for months, and the secrets that seal it for two rotations."""

    async def scenario() -> None:
        bench = Bench()
        await bench.approve(await bench.ask(), BOB)
        bench.desk._secrets = TemporarySecrets()
        record = await bench.ask(2)
        (row,) = (await bench.desk.review(record)).rows
        assert (row.value, row.change) == ("10", "")
        assert (await bench.approve(record, BOB)).state is ApprovalState.APPROVED

    play(scenario())


def test_the_oldest_calls_are_listed_if_more_wait_than_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench, asked = Bench(), []
        for number in range(6):
            asked.append((await bench.ask(number)).id)
            bench.now += 1
        monkeypatch.setattr("onym.ai.gateway.approvals.MAX_LISTED", 4)
        listed = [record.id for record in await bench.desk.list_open(BOB, approver=True)]
        assert listed == asked[:4]

    play(scenario())


def test_records_show_nothing_of_the_call() -> None:
    async def scenario() -> str:
        record = await Bench().ask()
        return repr(record) + repr(record.call)

    shown = play(scenario())
    assert "amount" not in shown
    assert not holds_a_token(shown)


def test_the_store_holds_nothing_readable_and_no_record_can_be_moved() -> None:
    async def scenario() -> None:
        bench = Bench()
        ann = Person(id=ANN.id, name="Ann-of-the-tests", subject="ann", acr="mfa", signed_in=NOW - 60)
        one, two = await bench.ask(1, person=ann), await bench.ask(2, person=ann)
        rows = await bench.store.find("approval", limit=100)
        assert rows
        for _, stored in rows:
            assert b"bank.example" not in stored.value
            assert ann.name.encode() not in stored.value
        moved = await bench.store.get(f"approval/{one.id}")
        assert moved is not None
        await bench.store.put(f"approval/{two.id}", moved.value, moved.until)
        with pytest.raises(StoreError):
            await bench.desk.get(two.id)

    play(scenario())


@pytest.mark.parametrize("identifier", ["", "x", "../approval-open/x", "a" * 24])
def test_an_unknown_record_is_not_found(identifier: str) -> None:
    async def scenario() -> None:
        bench = Bench()
        assert await bench.desk.get(identifier) is None
        assert await refusal(bench.desk.deny(identifier, BOB, approver=True)) == "aiip.task-not-found"

    play(scenario())
