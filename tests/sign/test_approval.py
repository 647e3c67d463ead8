"""Challenges and approvals: what is signed, that nothing may differ, what a receipt proves with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.sign.approval import (
    APPROVAL,
    CHALLENGE,
    MAX_APPROVAL,
    MAX_CHALLENGE,
    RULES,
    Approval,
    CallDetails,
    Challenge,
    Rule,
    get_approver,
    get_transaction_time,
    hash_approval,
    hash_challenge,
    make_transaction,
    sign_approval,
    sign_challenge,
    verify_approval,
    verify_challenge,
    verify_filed_approval,
    verify_receipt_approval,
)
from onym.sign.keys import RECEIPT_ALGORITHMS, AuthorityKeys, decode_base64url, read_authority_keys
from onym.sign.receipts import ApprovalReference, content_digest, sign_receipt
from sign_support import NOW, RECEIPT, authority, key
from support import as_subtests

GATEWAY = "https://gateway.example"
RESOURCE = "https://bank.example/.well-known/aiip/v1"
HASH = "A" * 43
ALL = tuple(RECEIPT_ALGORITHMS)
CHALLENGED = Challenge(
    issuer=RESOURCE,
    approvers=(GATEWAY,),
    issued=NOW,
    expires=NOW + 600,
    transaction=make_transaction(NOW),
    call=CallDetails(
        uri="ai://bank.example/payments?amount=10&currency=USD",
        method="POST",
        request=RECEIPT.request,
        effects="financial",
        rule=Rule.OTHER,
        description=HASH,
        policy="B" * 43,
        digest=content_digest(b"{}"),
        content_type="application/json",
    ),
    reason="payments need a second person",
    requester="user-7",
    client="client-1",
    key="C" * 43,
)
EVIDENCE = Approval(
    issuer=GATEWAY,
    audience=RESOURCE,
    issued=NOW,
    expires=NOW + 300,
    id="aWQtb2YtMTI4LWJpdHMtb3ItbW9yZQ",
    request=RECEIPT.request,
    transaction=CHALLENGED.transaction,
    challenge=hash_challenge(CHALLENGED),
    shown="D" * 43,
    by=("ann",),
    authenticated=NOW - 30,
    acr="urn:example:mfa",
    key="C" * 43,
)


def checked(token: str, keys: AuthorityKeys | None = None, **terms: Any) -> Approval:
    given = {"issuer": GATEWAY, "audience": RESOURCE, "at": NOW, **terms}
    return verify_approval(token, keys or authority(), **given)


def understood(token: str, keys: AuthorityKeys | None = None, **terms: Any) -> Challenge:
    return verify_challenge(token, keys or authority(), **{"issuer": RESOURCE, "at": NOW, **terms})


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(SignatureError) as caught:
        work()
    return caught.value.code


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(decode_base64url(token.split(".")[1], "payload"))
    return found


def forge(kind: str, claims: dict[str, Any] | bytes, **header: Any) -> str:
    """A token with these claims and a valid signature, which Onym's own functions might not make."""
    members = {"typ": kind, "alg": "Ed25519", "kid": key().kid, **header}
    head = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{encode_base64url(head)}.{encode_base64url(payload)}"
    return f"{signed}.{encode_base64url(key().sign(signed.encode()))}"


TOKEN = sign_approval(EVIDENCE, key())
ASKED = sign_challenge(CHALLENGED, key())


def test_the_claims_of_a_challenge_are_those_of_the_draft() -> None:
    assert claims_of(ASKED) == {
        "iss": RESOURCE,
        "aud": GATEWAY,
        "iat": 1_760_000_000,
        "exp": 1_760_000_600,
        "jti": CHALLENGED.transaction,
        "txn": CHALLENGED.transaction,
        "authorization_details": [
            {
                "type": "aiip_invoke",
                "uri": "ai://bank.example/payments?amount=10&currency=USD",
                "method": "POST",
                "rqh": RECEIPT.request,
                "effects": "financial",
                "rule": "other",
                "dsc": HASH,
                "pol": "B" * 43,
                "cd": content_digest(b"{}"),
                "ct": "application/json",
            }
        ],
        "reason": "payments need a second person",
        "act": {"sub": "user-7", "client_id": "client-1"},
        "cnf": {"jkt": "C" * 43},
    }
    assert json.loads(decode_base64url(ASKED.split(".")[0], "header"))["typ"] == CHALLENGE


def test_the_claims_of_an_approval_are_those_of_the_binding() -> None:
    assert claims_of(TOKEN) == {
        "iss": GATEWAY,
        "aud": RESOURCE,
        "iat": 1_760_000_000,
        "exp": 1_760_000_300,
        "jti": EVIDENCE.id,
        "rqh": RECEIPT.request,
        "txn": CHALLENGED.transaction,
        "cht": EVIDENCE.challenge,
        "smd": "D" * 43,
        "by": ["ann"],
        "auth_time": 1_759_999_970,
        "acr": "urn:example:mfa",
        "cnf": {"jkt": "C" * 43},
    }
    assert json.loads(decode_base64url(TOKEN.split(".")[0], "header"))["typ"] == APPROVAL


@pytest.mark.parametrize("algorithm", ALL)
def test_every_algorithm_signs_and_verifies_both(algorithm: str) -> None:
    keys = authority(key(algorithm))
    assert checked(sign_approval(EVIDENCE, key(algorithm)), keys, algorithms=ALL) == EVIDENCE
    found = understood(sign_challenge(CHALLENGED, key(algorithm)), keys, algorithms=ALL)
    assert replace(found, digest="") == CHALLENGED
    assert found.digest == hash_challenge(CHALLENGED)


def test_only_what_is_set_is_written() -> None:
    plain = replace(CHALLENGED, key=None, client=None, approvers=(GATEWAY, "https://other.example"))
    plain = replace(plain, call=replace(plain.call, digest=None, content_type=None))
    token = sign_challenge(plain, key())
    assert replace(understood(token), digest="") == plain
    assert not {"cnf"} & claims_of(token).keys()
    assert claims_of(token)["aud"] == [GATEWAY, "https://other.example"]
    bare = replace(EVIDENCE, acr=None, key=None, by=("ann", "bob"))
    assert checked(sign_approval(bare, key())) == bare
    assert not {"acr", "cnf"} & claims_of(sign_approval(bare, key())).keys()


@given(st.integers(0, 253402300799))
def test_the_time_of_a_challenge_is_in_its_transaction(at: int) -> None:
    assert get_transaction_time(make_transaction(at)) == at
    assert make_transaction(at) != make_transaction(at)


@pytest.mark.parametrize("text", ["", "x", "A" * 31, "A" * 33, "=" * 32, "ü" * 32])
def test_the_transaction_of_another_is_none_of_this_endpoint(text: str) -> None:
    assert refusal(lambda: get_transaction_time(text)) == "sign.bad-claim"


CHANGES: dict[str, Any] = {
    "issuer": "https://bank.example/other",
    "approvers": (GATEWAY, "https://other.example"),
    "issued": NOW - 1,
    "expires": NOW + 599,
    "transaction": make_transaction(NOW),
    "reason": "another reason",
    "requester": "user-8",
    "client": "client-2",
    "key": None,
}
CALL_CHANGES: dict[str, Any] = {
    "uri": "ai://bank.example/payments?amount=100&currency=USD",
    "method": "PUT",
    "request": "E" * 43,
    "effects": "write",
    "rule": Rule.TWO,
    "description": "E" * 43,
    "policy": "E" * 43,
    "digest": content_digest(b"{ }"),
    "content_type": "application/json; charset=utf-8",
}


def test_whatever_changes_makes_another_challenge() -> None:
    assert set(CHANGES) | {"call", "digest"} == set(Challenge.__dataclass_fields__)
    assert set(CALL_CHANGES) == set(CallDetails.__dataclass_fields__)
    changed = [
        *(replace(CHALLENGED, **{name: value}) for name, value in CHANGES.items()),
        *(
            replace(CHALLENGED, call=replace(CHALLENGED.call, **{name: value}))
            for name, value in CALL_CHANGES.items()
        ),
    ]
    hashes = {hash_challenge(challenge) for challenge in (CHALLENGED, *changed)}
    assert len(hashes) == len(changed) + 1


def test_rules_are_in_order_and_one_of_them_needs_two_persons() -> None:
    assert [(str(rule), rule.persons) for rule in RULES] == [("person", 1), ("other", 1), ("two", 2)]


@as_subtests(
    ("changes", "expected"),
    [
        ({"iss": None}, "sign.bad-claim"),
        ({"iss": 7}, "sign.bad-claim"),
        ({"iss": "https://evil.example"}, "sign.bad-issuer"),
        ({"aud": "https://other.example"}, "sign.bad-audience"),
        ({"aud": [RESOURCE]}, "sign.bad-claim"),
        ({"rqh": "short"}, "sign.bad-claim"),
        ({"rqh": HASH + "\n"}, "sign.bad-claim"),
        ({"cht": None}, "sign.bad-claim"),
        ({"smd": None}, "sign.bad-claim"),
        ({"txn": "x y" * 10}, "sign.bad-claim"),
        ({"jti": "short"}, "sign.bad-claim"),
        ({"by": "ann"}, "sign.bad-claim"),
        ({"by": []}, "sign.bad-claim"),
        ({"by": ["ann", "ann"]}, "sign.bad-claim"),
        ({"by": ["a", "b", "c"]}, "sign.bad-claim"),
        ({"by": ["an\u202en"]}, "sign.bad-claim"),
        ({"by": ["x" * 129]}, "sign.bad-claim"),
        ({"auth_time": None}, "sign.bad-claim"),
        ({"auth_time": True}, "sign.bad-claim"),
        ({"auth_time": NOW + 61}, "sign.bad-claim"),
        ({"acr": ""}, "sign.bad-claim"),
        ({"cnf": {}}, "sign.bad-claim"),
        ({"cnf": {"jkt": HASH, "x5t#S256": HASH}}, "sign.bad-claim"),
        ({"cnf": {"kid": "x"}}, "sign.bad-claim"),
        ({"iat": "1760000000"}, "sign.bad-claim"),
        ({"iat": -1}, "sign.bad-claim"),
        ({"exp": 253402300800 * 10}, "sign.bad-claim"),
        ({"exp": NOW + 301}, "sign.bad-claim"),
        ({"exp": NOW}, "sign.bad-claim"),
        ({"nbf": NOW + 1}, "sign.bad-claim"),
        ({"iat": NOW - 300, "exp": NOW, "auth_time": NOW - 400}, "sign.expired"),
        ({"iat": NOW + 61, "exp": NOW + 100}, "sign.not-yet"),
    ],
)
def test_an_approval_with_a_wrong_claim_is_refused(changes: dict[str, Any], expected: str) -> None:
    claims = {name: value for name, value in (claims_of(TOKEN) | changes).items() if value is not None}
    assert refusal(lambda: checked(forge(APPROVAL, claims))) == expected


@as_subtests(
    ("changes", "expected"),
    [
        ({"iss": "https://evil.example"}, "sign.bad-issuer"),
        ({"aud": "https://other.example"}, "sign.bad-audience"),
        ({"aud": []}, "sign.bad-claim"),
        ({"aud": [GATEWAY] * 9}, "sign.bad-claim"),
        ({"exp": NOW + 601}, "sign.bad-claim"),
        ({"iat": NOW - 600, "exp": NOW}, "sign.expired"),
        ({"iat": NOW + 61, "exp": NOW + 100}, "sign.not-yet"),
        ({"reason": ""}, "sign.bad-claim"),
        ({"reason": "x" * 513}, "sign.bad-claim"),
        ({"act": None}, "sign.bad-claim"),
        ({"authorization_details": []}, "sign.bad-claim"),
        ({"authorization_details": claims_of(ASKED)["authorization_details"] * 2}, "sign.bad-claim"),
        ({"authorization_details": [{"type": "payment"}]}, "sign.bad-claim"),
        (
            {"authorization_details": [claims_of(ASKED)["authorization_details"][0] | {"rule": "nobody"}]},
            "sign.bad-claim",
        ),
        (
            {"authorization_details": [claims_of(ASKED)["authorization_details"][0] | {"uri": "ai://a/#b"}]},
            "sign.bad-claim",
        ),
        ({"cnf": {"jwk": {}}}, "sign.bad-claim"),
    ],
)
def test_a_challenge_with_a_wrong_claim_is_refused(changes: dict[str, Any], expected: str) -> None:
    claims = {name: value for name, value in (claims_of(ASKED) | changes).items() if value is not None}
    assert refusal(lambda: understood(forge(CHALLENGE, claims), approver=GATEWAY)) == expected


def test_unknown_claims_are_ignored() -> None:
    assert checked(forge(APPROVAL, claims_of(TOKEN) | {"new": 1})) == EVIDENCE
    assert understood(forge(CHALLENGE, claims_of(ASKED) | {"new": 1})).call == CHALLENGED.call


@as_subtests(
    ("header", "expected"),
    [
        ({"typ": "JWT"}, "sign.bad-header"),
        ({"typ": CHALLENGE}, "sign.bad-header"),
        ({"typ": "aiip-receipt+jwt"}, "sign.bad-header"),
        ({"typ": None}, "sign.bad-header"),
        ({"alg": "none"}, "sign.bad-algorithm"),
        ({"alg": "HS256"}, "sign.bad-algorithm"),
        ({"alg": "PS256"}, "sign.bad-algorithm"),
        ({"alg": "ES256"}, "sign.bad-algorithm"),
        ({"kid": None}, "sign.bad-header"),
        ({"kid": "another"}, "sign.unknown-key"),
        ({"jwk": {}}, "sign.bad-header"),
        ({"crit": ["exp"]}, "sign.bad-header"),
        ({"jku": "https://evil.example"}, "sign.bad-header"),
    ],
)
def test_an_approval_with_another_header_is_refused(header: dict[str, Any], expected: str) -> None:
    assert refusal(lambda: checked(forge(APPROVAL, claims_of(TOKEN), **header))) == expected


def test_a_key_of_another_approver_and_a_retired_key_are_refused() -> None:
    assert refusal(lambda: checked(TOKEN, authority(key(number=1)))) == "sign.unknown-key"
    ended = read_authority_keys(json.dumps({"keys": [key().public() | {"exp": NOW - 61}]}).encode())
    assert refusal(lambda: checked(TOKEN, ended)) == "sign.unknown-key"
    assert refusal(lambda: verify_filed_approval(TOKEN, ended)) == "sign.key-not-in-force"
    revoked = json.dumps({"keys": [key().public()], "revoked": [key().kid]}).encode()
    assert refusal(lambda: checked(TOKEN, read_authority_keys(revoked))) == "sign.revoked-key"
    assert refusal(lambda: verify_filed_approval(TOKEN, read_authority_keys(revoked))) == "sign.revoked-key"


def test_a_member_that_is_given_twice_is_refused() -> None:
    payload = json.dumps(claims_of(TOKEN))[:-1] + ',"rqh":"' + HASH + '"}'
    assert refusal(lambda: checked(forge(APPROVAL, payload.encode()))) == "sign.malformed"


@pytest.mark.parametrize("place", range(3))
def test_one_changed_character_is_seen(place: int) -> None:
    parts = TOKEN.split(".")
    parts[place] = ("A" if parts[place][5] != "A" else "B").join((parts[place][:5], parts[place][6:]))
    with pytest.raises(SignatureError):
        checked(".".join(parts))


@pytest.mark.parametrize(
    "token",
    ["", ".", "a.b", "a.b.c.d", "ü.b.c", TOKEN + "=", TOKEN + "x" * MAX_APPROVAL],
    # the token is another one in each process
    ids=["empty", "dot", "two parts", "four parts", "beyond ASCII", "padded", "too long"],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    for work in (lambda: checked(token), lambda: get_approver(token)):
        assert refusal(work) in {"sign.malformed", "sign.bad-signature"} or token.startswith(TOKEN)


def test_the_issuer_is_read_before_its_keys_are_known() -> None:
    assert get_approver(TOKEN) == GATEWAY


def test_what_would_be_refused_is_not_signed() -> None:
    assert refusal(lambda: sign_approval(replace(EVIDENCE, by=("ann", "ann")), key())) == "sign.bad-claim"
    long = tuple("https://" + "x" * 1010 + str(number) for number in range(8))
    assert refusal(lambda: sign_challenge(replace(CHALLENGED, approvers=long), key())) == "sign.too-large"
    assert refusal(lambda: sign_challenge(replace(CHALLENGED, reason="\ud800"), key())) == "sign.malformed"
    unnamed = replace(key(), kid=None)
    assert refusal(lambda: sign_approval(EVIDENCE, unnamed)) == "sign.bad-key"


def test_a_challenge_with_the_longest_uri_fits() -> None:
    uri = ("ai://bank.example/" + "x" * 2048)[:2048]
    longest = replace(CHALLENGED, call=replace(CHALLENGED.call, uri=uri), reason="ü" * 512)
    assert len(sign_challenge(longest, key())) < MAX_CHALLENGE


NAMED = replace(RECEIPT, approval=ApprovalReference(hash=hash_approval(TOKEN), issuer=GATEWAY, by=("ann",)))


def test_a_receipt_and_its_approval_verify_together() -> None:
    assert verify_receipt_approval(NAMED, TOKEN, authority()) == EVIDENCE
    # the answer of a key that was sent again is signed later than the approval lasts
    late = replace(NAMED, issued=NOW + 3600)
    assert verify_receipt_approval(late, TOKEN, authority()) == EVIDENCE
    of_task = replace(NAMED, task="t", original=RECEIPT.request, request="Z" * 43)
    assert verify_receipt_approval(of_task, TOKEN, authority()) == EVIDENCE


@as_subtests(
    "changes",
    [
        {"approval": None},
        {"approval": replace(NAMED.approval, hash=HASH)},
        {"approval": replace(NAMED.approval, issuer="https://other.example")},
        {"approval": replace(NAMED.approval, by=("bob",))},
        {"request": "Z" * 43},
        {"original": "Z" * 43},
        {"issuer": "https://bank.exampl"},
        {"issued": NOW - 61},
    ],
)
def test_a_receipt_of_another_call_is_not_proved_by_it(changes: dict[str, Any]) -> None:
    with pytest.raises(SignatureError):
        verify_receipt_approval(replace(NAMED, **changes), TOKEN, authority())


@pytest.mark.parametrize(
    "reference",
    [
        "a-1",
        {},
        {"h": HASH, "iss": GATEWAY},
        {"h": HASH, "iss": GATEWAY, "by": "ann"},
        {"h": HASH, "iss": GATEWAY, "by": ["ann", "ann"]},
        {"h": HASH, "iss": GATEWAY, "by": []},
        {"h": "x", "iss": GATEWAY, "by": ["ann"]},
    ],
)
def test_a_receipt_with_a_malformed_reference_is_refused(reference: Any) -> None:
    from sign_support import claims, code, forged

    assert code(forged(payload=claims(apr=reference))) == "aiip.provenance-invalid"


def test_a_receipt_with_an_approval_has_its_claim() -> None:
    claims = claims_of(sign_receipt(NAMED, key()))
    assert claims["apr"] == {"h": hash_approval(TOKEN), "iss": GATEWAY, "by": ["ann"]}
