"""Programs bring calls to approve, and decide for their people, with tokens of a real server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from approval_house_support import POLICY, ApprovalHouse, approval_house
from onym.ai.approvals import ApprovalClient, OneGatewayToken
from onym.ai.credentials import Credential
from onym.ai.oauth import BackchannelFlow, Grant, OAuthClient, Target
from onym.ai.oauth_metadata import Registration, parse_url
from onym.ai.records import Level
from onym.common.text import decode_base64url
from onym.errors import AIIPError, AuthorizationError
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.transport import run_flow
from onym.sign.approval import verify_receipt_approval
from onym.sign.dpop import generate_dpop_key
from onym.sign.keys import read_authority_keys
from onym.uri.secret import Secret
from support import mentions

pytestmark = pytest.mark.xdist_group("gateway-approval-api")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovalHouse]:
    policy = POLICY + '@approval("other") permit(principal, action == Action::"read", resource);'
    with approval_house(tmp_path_factory.mktemp("approvals"), policy=policy) as found:
        yield found


def new_key() -> str:
    return str(uuid.uuid4())


def refused(house: ApprovalHouse, flow: Any) -> str:
    with pytest.raises(AIIPError) as caught:
        house.run(flow)
    return caught.value.code


def test_a_program_brings_a_call_and_another_person_approves_it_with_a_program(house: ApprovalHouse) -> None:
    ann, bob = house.approvals("ann"), house.approvals("bob", "approve", client="onym-cli")
    grant, key = house.bank_grant("ann"), new_key()
    with house.client(grant) as client:
        request = house.request(client, "/pay", {"amount": 10, "to": "shop"}, key)
        asked = house.run(ann.ask(request))
        assert (asked.state, asked.rule, asked.own, asked.may_decide) == ("waiting", "other", True, False)
        assert house.run(ann.ask(request)).id == asked.id
        assert refused(house, ann.fetch_evidence(asked.id)) == "aiip.task-not-found"
        row = next(row for row in house.run(bob.list_waiting()) if row.id == asked.id)
        assert (row.target, row.own) == (house.uri("/pay"), False)
        seen = house.run(bob.get(asked.id))
        assert (seen.review.client, seen.may_decide, seen.idempotency_key) == ("agent", True, None)
        done = house.run(bob.decide(asked.id, "approve", shown=seen.shown))
        assert (done.state, done.has_evidence) == ("approved", False)
        assert refused(house, bob.fetch_evidence(asked.id)) == "aiip.task-not-found"
        waited = house.run(ann.get(asked.id))
        assert (waited.state, waited.has_evidence, waited.idempotency_key) == ("approved", True, key)
        assert 200 < waited.seconds <= 300
        evidence = house.run(ann.fetch_evidence(asked.id))
        sent = {"idempotency_key": key, "approval": evidence}
        result = client.invoke(house.uri("/pay"), {"amount": 10, "to": "shop"}, **sent)
    assert result.json() == 10
    keys = read_authority_keys(house.gateway_keys.history(2e9), history=True)
    approval = verify_receipt_approval(result.receipt, evidence, keys)
    assert grant.dpop_key is not None
    assert approval.key == grant.dpop_key.thumbprint
    lines = [line for line in house.audit() if line["rqh"] == result.receipt.request]
    assert {(line["step"], line.get("client")) for line in lines} == {
        ("asked", "agent"),
        ("shown", "onym-cli"),
        ("approve", "onym-cli"),
    }
    assert not mentions(json.dumps(lines), "bob")


def test_attack_77_evidence_for_one_dpop_key_is_no_use_with_another(house: ApprovalHouse) -> None:
    ann, bob = house.approvals("ann"), house.approvals("bob", "approve")
    key, before = new_key(), len(house.paid)
    grant = house.bank_grant("ann")
    with house.client(grant) as own, house.client(house.bank_grant("ann")) as other:
        asked = house.run(ann.ask(house.request(own, "/pay", {"amount": 11}, key)))
        house.run(bob.decide(asked.id, "approve", shown=house.run(bob.get(asked.id)).shown))
        evidence = house.run(ann.fetch_evidence(asked.id))
        sent = {"idempotency_key": key, "approval": evidence}
        # the same person and the same program, with another key
        with pytest.raises(AIIPError) as caught:
            other.invoke(house.uri("/pay"), {"amount": 11}, **sent)
        assert caught.value.code == "aiip.approval-mismatch"
        assert len(house.paid) == before
        assert own.invoke(house.uri("/pay"), {"amount": 11}, **sent).json() == 11


@pytest.mark.parametrize(
    ("who", "scopes", "bound", "code"),
    [
        ("bob", (), True, "aiip.task-not-found"),
        ("bob", ("approve",), False, "aiip.sender-constraint"),
        ("tired", ("approve",), True, "aiip.step-up-required"),
        ("silent", ("approve",), True, "aiip.step-up-required"),
        ("dan", ("approve",), True, "aiip.task-not-found"),
        ("ann", ("approve",), True, "aiip.policy-denied"),
    ],
    ids=["no scope", "not bound", "an old sign-in", "an unknown sign-in", "no approver", "who asked"],
)
def test_attack_88_a_token_that_is_not_for_decisions_decides_nothing(
    house: ApprovalHouse, who: str, scopes: tuple[str, ...], bound: bool, code: str
) -> None:
    ann = house.approvals("ann", client="onym-cli")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 12}, new_key())))
    program = house.approvals(who, *scopes, bound=bound)
    with pytest.raises(AIIPError) as caught:
        house.run(program.decide(asked.id, "approve", shown=asked.shown))
    assert caught.value.code == code
    if code in {"aiip.sender-constraint", "aiip.step-up-required"}:
        assert caught.value.hint == f"Sign in again: onym ai login {house.gateway} --approve"
    assert house.run(ann.get(asked.id)).state == "waiting"
    assert house.run(ann.decide(asked.id, "withdraw")).state == "withdrawn"


def test_attack_88_an_unbound_token_sees_no_calls_of_others(house: ApprovalHouse) -> None:
    ann = house.approvals("ann", client="onym-cli")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 14}, new_key())))
    unbound, bound = (house.approvals("bob", "approve", bound=is_bound) for is_bound in (False, True))
    assert asked.id in {row.id for row in house.run(bound.list_waiting())}
    assert house.run(unbound.list_waiting()) == ()
    assert refused(house, unbound.get(asked.id)) == "aiip.task-not-found"


def test_attack_88_a_program_never_decides_about_the_call_that_it_has_brought(house: ApprovalHouse) -> None:
    ann = house.approvals("ann", "approve")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/door", {"name": "gate"}, new_key())))
    assert (asked.rule, asked.may_decide) == ("person", False)
    for decision in ("approve", "deny"):
        assert refused(house, ann.decide(asked.id, decision, shown=asked.shown)) == "aiip.policy-denied"
    # another program of the same person may: the rule is "a person"
    other = house.approvals("ann", "approve", client="onym-cli")
    assert house.run(other.get(asked.id)).may_decide
    assert house.run(other.decide(asked.id, "approve", shown=asked.shown)).state == "approved"
    assert refused(house, other.fetch_evidence(asked.id)) == "aiip.task-not-found"
    assert house.run(ann.fetch_evidence(asked.id)).count(".") == 2


def test_a_program_without_the_scope_sees_only_the_calls_that_it_has_brought(house: ApprovalHouse) -> None:
    ann, other = house.approvals("ann"), house.approvals("ann", client="onym-cli")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 13}, new_key())))
    assert asked.id in {row.id for row in house.run(ann.list_waiting())}
    assert asked.id not in {row.id for row in house.run(other.list_waiting())}
    for flow in (other.get(asked.id), other.decide(asked.id, "withdraw"), other.fetch_evidence(asked.id)):
        assert refused(house, flow) == "aiip.task-not-found"


def test_one_denial_ends_a_call_that_two_must_approve(house: ApprovalHouse) -> None:
    ann = house.approvals("ann")
    bob, cat = house.approvals("bob", "approve"), house.approvals("cat", "approve")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/close", {"account": "7"}, new_key())))
    first = house.run(bob.decide(asked.id, "approve", shown=asked.shown))
    assert (first.state, first.missing, first.may_decide) == ("waiting", 1, False)
    assert house.run(cat.decide(asked.id, "deny")).state == "denied"
    assert house.run(ann.get(asked.id)).state == "denied"
    assert refused(house, bob.decide(asked.id, "approve", shown=asked.shown)) == "aiip.approval-mismatch"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"decision": "approve"} x', b'{"decision": "send"}', b'{"decision": 1}']
)
def test_what_is_no_decision_is_refused(house: ApprovalHouse, body: bytes) -> None:
    ann = house.approvals("ann")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 14}, new_key())))
    with pytest.raises(AIIPError) as caught:
        house.run(ann._send("POST", f"/approvals/{asked.id}", body))  # it sends none of these itself
    assert caught.value.code in {"aiip.invalid-input", "aiip.unsupported-media-type"}
    assert house.run(ann.get(asked.id)).state == "waiting"


def test_what_was_changed_while_it_was_shown_is_not_approved(house: ApprovalHouse) -> None:
    ann, bob = house.approvals("ann"), house.approvals("bob", "approve")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 15}, new_key())))
    for shown in ("", "S" * 43):
        assert refused(house, bob.decide(asked.id, "approve", shown=shown)) == "aiip.approval-mismatch"
    assert house.run(ann.get(asked.id)).state == "waiting"


# --- through the gateway ---


def send_through_gateway(
    house: ApprovalHouse, program: ApprovalClient, path: str, given: Any, key: str
) -> Reply:
    """Send a call of the bank to the gateway, with the program's token there."""
    path, body = f"/gateway/{house.bank}{path}", json.dumps(given).encode()
    credential = house.run(program.credentials.obtain_token(house.gateway))
    headers = [*program._build_headers(credential, "POST", path, body)]
    headers.append(("Idempotency-Key", f'"{key}"'))
    origin, _ = parse_url(house.gateway)
    request = HTTPRequest(method="POST", origin=origin, target=path, headers=tuple(headers), body=body)
    reply: Reply = house.wire.send(Send(request, timeout=120))
    return reply


def enter(house: ApprovalHouse, who: str, *scopes: str, client: str = "agent") -> ApprovalClient:
    """A program that has the nonce for its next proof."""
    program = house.approvals(who, *scopes, client=client)
    house.run(program.list_waiting())
    return program


def test_a_call_through_the_gateway_is_brought_for_approval_and_sent_again(house: ApprovalHouse) -> None:
    ann, bob, key = enter(house, "ann"), enter(house, "bob", "approve"), new_key()

    def send(program: ApprovalClient) -> Reply:
        return send_through_gateway(house, program, "/file", {"name": "x"}, key)

    first, again = send(ann), send(ann)
    assert (first.status, json.loads(first.body)["code"]) == (403, "approval-required"), first.body
    location = first.headers.get("location") or ""
    assert location.startswith("/approvals/")
    assert again.headers.get("location") == location
    name = location.rpartition("/")[2]
    seen = house.run(bob.get(name))
    assert (seen.review.client, seen.idempotency_key) == ("agent", None)
    house.run(bob.decide(name, "approve", shown=seen.shown))
    # another program of the same person does not benefit from it, and asks for its own approval
    assert send(enter(house, "ann", client="onym-cli")).headers.get("location") != location
    assert "x" not in house.read
    done = send(ann)
    assert (done.status, done.body) == (200, b"the file x"), done.body
    receipt = done.headers.get("aiip-receipt") or ""
    assert b'"apr"' in decode_base64url(receipt.split(".")[1])
    assert send(ann).body == b"the file x"  # the stored answer
    assert house.read.count("x") == 1
    assert house.run(ann.get(name)).state == "used"


def test_a_denied_call_through_the_gateway_stays_denied(house: ApprovalHouse) -> None:
    ann, bob, key = enter(house, "ann"), enter(house, "bob", "approve"), new_key()
    first = send_through_gateway(house, ann, "/file", {"name": "y"}, key)
    house.run(bob.decide((first.headers.get("location") or "").rpartition("/")[2], "deny"))
    again = send_through_gateway(house, ann, "/file", {"name": "y"}, key)
    assert again.status == 403
    assert b"denied" in again.body
    assert "y" not in house.read


def test_what_the_endpoint_might_run_unapproved_is_not_forwarded_for_a_program(house: ApprovalHouse) -> None:
    before = len(house.paid)
    for path, given in (("/pay", {"amount": 19}), ("/close", {"account": "7"})):
        answer = send_through_gateway(house, enter(house, "ann"), path, given, new_key())
        assert (answer.status, json.loads(answer.body)["code"]) == (403, "approval-required")
        assert answer.headers.get("location") is None
    assert len(house.paid) == before


# --- a sign-in on the approver's own device (CIBA) ---


def make_login(house: ApprovalHouse, client: str = "onym-cli") -> OAuthClient:
    row = Registration(issuer=house.login.issuer, client_id=client, method="none")
    return OAuthClient(registration=row, settings=house.settings, dpop_key=generate_dpop_key())


def begin(house: ApprovalHouse, login: OAuthClient, who: str, *scopes: str) -> BackchannelFlow:
    target = Target(resource=house.gateway, scopes=("use", *scopes), dpop=Level.REQUIRED)
    begun = house.run(login.begin_backchannel_flow(target, login_hint=who, binding_message="1a2b3c4d"))
    assert isinstance(begun, BackchannelFlow)
    return begun


def finish(house: ApprovalHouse, login: OAuthClient, begun: BackchannelFlow) -> Grant:
    return run_flow(login.finish_backchannel_flow(begun), house.wire, sleep=lambda seconds: None)


def test_a_sign_in_on_another_device_decides_and_proves_only_the_sign_in(house: ApprovalHouse) -> None:
    ann, old = house.approvals("ann"), house.approvals("tired", "approve")
    with house.client(house.bank_grant("ann")) as client:
        asked = house.run(ann.ask(house.request(client, "/pay", {"amount": 16}, new_key())))
    assert refused(house, old.decide(asked.id, "approve", shown=asked.shown)) == "aiip.step-up-required"
    for scopes, outcome in (((), "aiip.task-not-found"), (("approve",), "approved")):
        login = make_login(house)
        grant = finish(house, login, begin(house, login, "tired", *scopes))
        # the person has signed in, and has approved nothing yet
        assert house.run(ann.get(asked.id)).state == "waiting"
        credential = Credential(token=grant.token, client_id="onym-cli", dpop_key=grant.dpop_key)
        fresh = replace(old, credentials=OneGatewayToken(house.gateway, credential))
        if scopes:
            assert house.run(fresh.decide(asked.id, "approve", shown=asked.shown)).state == outcome
        else:
            assert refused(house, fresh.decide(asked.id, "approve", shown=asked.shown)) == outcome


def test_attack_89_the_answer_to_another_request_is_not_given(house: ApprovalHouse) -> None:
    login, other = make_login(house), make_login(house, "agent")
    begun = begin(house, login, "bob", "approve")
    with pytest.raises(AuthorizationError) as caught:
        finish(house, other, begun)  # of another client
    assert caught.value.oauth_error == "invalid_grant"
    with pytest.raises(AuthorizationError) as caught:
        finish(house, login, replace(begun, auth_req_id=Secret("x" * 43)))
    assert caught.value.oauth_error == "invalid_grant"
    assert finish(house, login, begun).dpop_key == login.dpop_key
    with pytest.raises(AuthorizationError) as caught:
        finish(house, login, begun)  # once
    assert caught.value.oauth_error == "invalid_grant"


def test_attack_89_a_refusal_and_a_request_without_an_answer_end(house: ApprovalHouse) -> None:
    login = make_login(house)
    with pytest.raises(AuthorizationError) as caught:
        finish(house, login, begin(house, login, "refuses", "approve"))
    assert caught.value.oauth_error == "access_denied"
    begun = begin(house, login, "away", "approve")
    with pytest.raises(AuthorizationError) as caught:
        finish(house, login, replace(begun, expires=0.0))
    assert caught.value.code == "aiip.authorization-unavailable"
