"""Approvals at a running endpoint: who is challenged, which evidence counts, and that it counts once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import Heard, Line, key_store, serve_authority
from approval_support import HandApprover, hand_approver
from onym.ai.endpoint import Caller, Endpoint
from onym.ai.endpoint.context import AccessRequest
from onym.ai.records import Approver
from onym.errors import AIIPError, ConfigError, UsageError
from onym.sign.approval import MAX_SHOWN, Challenge, Rule, make_transaction, verify_receipt_approval
from onym.sign.keys import SigningKey, read_authority_keys
from onym.sign.receipts import verify_filed
from support import as_subtests

NAME = "bank.test"
JSON = ("Content-Type", "application/json")
POLICY = """
@approval("person") @reason("payments are looked at")
permit(principal, action == Action::"financial", resource);
@approval("two") permit(principal, action == Action::"write", resource) when { context.input.amount > 1000 };
@approval("other") permit(principal, action == Action::"physical", resource);
@approval("person") @approval_body("any") permit(principal, action == Action::"read", resource);
permit(principal, action == Action::"write", resource);
"""
KEYS = {"ann": "A" * 43, "bob": "B" * 43, "plain": None}


class Tokens:
    """Knows callers by their tokens, as an authorization server would describe them."""

    def __init__(self, authority: str) -> None:
        self.resource = f"https://{authority}/.well-known/aiip/v1"

    async def authorize(self, request: AccessRequest) -> Caller:
        token = (request.headers.get("authorization") or "").removeprefix("Bearer ")
        if token not in KEYS:
            raise AIIPError("no such token", code="aiip.authentication-required")
        return Caller(
            audience="shop",
            client_id="shop",
            subject=token,
            token_hash="T" * 43,
            key=KEYS[token],
            certificate="C" * 43,  # payments need a caller that proves its token (3.10)
        )

    def metadata(self) -> dict[str, Any]:
        return {"resource": self.resource, "authorization_servers": ["https://as.test"]}


class Bank:
    """An authority whose payments need approvals, served; `become` changes its policy or its resources."""

    def __init__(self, authority: str, folder: Path, approver: HandApprover) -> None:
        self.authority, self.folder, self.approver = authority, folder, approver
        self.keys = key_store(folder)
        self.paid: list[float] = []
        self.lock = threading.Lock()
        self.apps: list[Endpoint] = []
        self.offset = 0.0
        self.become()

    def make(self, policy: str = POLICY, title: str = "Pay", **options: Any) -> Endpoint:
        given: dict[str, Any] = {
            "approvers": [self.approver.entry()],
            "network": self.approver.network,
            "authorization": Tokens(self.authority),
            "store": self.folder / "keys.sqlite",
            "clock": lambda: time.time() + self.offset,
        }
        app = Endpoint(self.authority, keys=self.keys, policy=policy, **given | options)

        @app.resource("/pay", effects="financial", title=title)
        def pay(amount: float, to: str = "", pin: str = "") -> int:
            with self.lock:
                self.paid.append(amount)
                return len(self.paid)

        @app.resource("/open", effects="physical")
        def open_door(door: str) -> str:
            return f"{door} is open"

        @app.resource("/note", effects="write")
        def note(amount: int) -> int:
            return amount

        @app.resource("/read")
        def read(opaque: str) -> str:
            return opaque

        return app

    def become(self, **options: Any) -> None:
        self.apps.append(self.make(**options))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.apps[-1](scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            for app in self.apps:
                await app.aclose()
            await send({"type": "lifespan.shutdown.complete"})

    @property
    def resource(self) -> str:
        return f"https://{self.authority}/.well-known/aiip/v1"

    @property
    def public(self) -> Any:
        return read_authority_keys(self.keys.jwks(time.time()))


@pytest.fixture(scope="module")
def bank(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    folder = tmp_path_factory.mktemp("bank")
    with (
        hand_approver(ca, folder) as approver,
        serve_authority(lambda authority: Bank(authority, folder, approver), NAME, ca=ca) as (bank, _),
    ):
        yield bank


@pytest.fixture
def line(bank: Bank, ca: trustme.CA) -> Iterator[Line]:
    with Line(bank.authority, ca) as line:
        yield line


_COUNT = iter(range(10**9))


def new_key() -> str:
    return f"key-{next(_COUNT)}"


def post(
    line: Line,
    target: str,
    given: Any,
    key: str | None,
    *fields: tuple[str, str],
    token: str = "plain",
    evidence: str | None = None,
) -> Heard:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    sent = [("Authorization", f"Bearer {token}"), ("AIIP-Nonce", "N" * 22), *fields]
    if key is not None:
        sent.append(("Idempotency-Key", f'"{key}"'))
    if evidence is not None:
        sent.append(("AIIP-Approval", evidence))
    if not any(name == "Content-Type" for name, _ in fields):
        sent.append(JSON)
    return line.ask("POST", target, body, *sent)


def challenge_of(bank: Bank, heard: Heard) -> Challenge:
    assert (heard.status, heard.json()["code"]) == (403, "approval-required"), heard.body
    return bank.approver.understand(heard.json()["transaction_challenge"], bank.public, bank.resource)


def asked(bank: Bank, line: Line, given: Any, key: str, target: str = "/pay", **terms: Any) -> Challenge:
    return challenge_of(bank, post(line, target, given, key, **terms))


def code(heard: Heard) -> tuple[int, str]:
    return heard.status, heard.json()["code"]


# who is challenged


def test_a_challenge_names_the_call_and_who_may_decide(bank: Bank, line: Line) -> None:
    key = new_key()
    heard = post(line, "/pay?to=shop", {"amount": 10}, key, token="ann")
    challenge = challenge_of(bank, heard)
    assert challenge.issuer == bank.resource
    assert challenge.approvers == (bank.approver.issuer,)
    assert challenge.reason == "payments are looked at"
    assert (challenge.requester, challenge.client, challenge.key) == ("ann", "shop", "A" * 43)
    assert challenge.expires - challenge.issued == 600
    call = challenge.call
    assert (call.uri, call.method) == (f"ai://{bank.authority}/pay?to=shop", "POST")
    assert (call.effects, call.rule) == ("financial", Rule.PERSON)
    receipt = verify_filed(heard.receipt, bank.public, body=heard.body)
    assert call.request == receipt.request
    assert receipt.approval is None
    assert heard.get("www-authenticate") is None


@pytest.mark.parametrize("capable", ["?1", "?1;a=b", " ?1 "])
def test_a_caller_who_can_pass_it_on_gets_the_challenge_of_the_draft(
    bank: Bank, line: Line, capable: str
) -> None:
    heard = post(line, "/pay", {"amount": 1}, new_key(), ("Accept-Txn-Challenge", capable))
    field = heard.get("www-authenticate") or ""
    assert field.startswith('Bearer error="transaction_authorization_required"')
    assert f'transaction_challenge="{heard.json()["transaction_challenge"]}"' in field


@pytest.mark.parametrize("capable", ["?0", "1", "true", "?1, ?1", '"?1"'])
def test_any_other_value_is_as_none(bank: Bank, line: Line, capable: str) -> None:
    heard = post(line, "/pay", {"amount": 1}, new_key(), ("Accept-Txn-Challenge", capable))
    assert code(heard) == (403, "approval-required")
    assert heard.get("www-authenticate") is None


@as_subtests(
    ("target", "given", "rule"),
    [
        ("/pay", {"amount": 1}, Rule.PERSON),
        ("/note", {"amount": 2000}, Rule.TWO),
        ("/open", {"door": "a"}, Rule.OTHER),
        ("/read", {"opaque": "x"}, Rule.PERSON),
    ],
)
def test_the_strictest_of_the_permits_that_match_counts(
    bank: Bank, line: Line, target: str, given: Any, rule: Rule
) -> None:
    assert asked(bank, line, given, new_key(), target).call.rule is rule


def test_what_no_annotated_permit_matches_needs_no_approval(bank: Bank, line: Line) -> None:
    assert post(line, "/note", {"amount": 1}, new_key()).body == b"1"


def test_descriptions_and_the_document_tell_of_approvals(bank: Bank, line: Line) -> None:
    assert line.ask("GET", "/pay").json()["approval"] is True
    document = line.ask("GET", "/.well-known/aiip", service=False).json()
    entry = bank.approver.entry()
    assert document["approvers"] == [{"issuer": entry.issuer, "jwks": entry.jwks, "pairwise": True}]
    assert {row["uri"].rpartition("/")[2]: row["approval"] for row in document["endpoints"]}["pay"]
    target = "/.well-known/oauth-protected-resource/.well-known/aiip/v1"
    metadata = line.ask("GET", target, service=False).json()
    assert metadata["txn_challenge_jwks_uri"] == document["jwks"]


def test_a_call_that_could_not_be_bound_or_shown_is_refused(bank: Bank, line: Line) -> None:
    assert code(post(line, "/pay", {"amount": 1}, None)) == (400, "idempotency-required")
    assert code(post(line, "/read", {"opaque": "x"}, None)) == (400, "idempotency-required")
    large = {"amount": 1, "to": "x" * MAX_SHOWN}
    assert code(post(line, "/pay", large, new_key())) == (413, "too-large")


# attack 84


@as_subtests(
    "body",
    [
        b'{"amount":1,"amount":2}',
        b'{"amount":1,"other":2}',
        b'{"amount":1e400}',
        b'{"amount":"1"}',
        b"{",
    ],
)
def test_attack_84_input_with_two_meanings_is_refused_before_anybody_is_asked(
    bank: Bank, line: Line, body: bytes
) -> None:
    heard = post(line, "/pay", body, new_key())
    assert code(heard) == (422, "invalid-input")
    assert "transaction_challenge" not in heard.json()


# what counts


def test_an_approved_call_runs_once_and_its_receipt_names_the_approval(bank: Bank, line: Line) -> None:
    key, before = new_key(), len(bank.paid)
    challenge = asked(bank, line, {"amount": 12}, key)
    evidence = bank.approver.approve(challenge)
    heard = post(line, "/pay", {"amount": 12}, key, evidence=evidence)
    assert heard.status == 200, heard.body
    assert bank.paid[before:] == [12]
    receipt = verify_filed(heard.receipt, bank.public, body=heard.body)
    keys = read_authority_keys(bank.approver.key_set())
    assert verify_receipt_approval(receipt, evidence, keys).by == ("person-0",)
    again = post(line, "/pay", {"amount": 12}, key, evidence=evidence)
    assert (again.body, again.get("idempotency-replayed")) == (heard.body, "?1")
    assert bank.paid[before:] == [12]


def test_the_lost_answer_of_an_approved_call_is_fetched_after_the_approval_has_ended(
    bank: Bank, line: Line
) -> None:
    """Otherwise people would approve the same payment again."""
    key, before = new_key(), len(bank.paid)
    evidence = bank.approver.approve(asked(bank, line, {"amount": 12}, key))
    first = post(line, "/pay", {"amount": 12}, key, evidence=evidence)
    assert first.status == 200
    bank.offset = 3600.0
    try:
        for given in (evidence, None):
            again = post(line, "/pay", {"amount": 12}, key, evidence=given)
            assert (again.status, again.body, again.get("idempotency-replayed")) == (200, first.body, "?1")
            receipt = verify_filed(again.receipt, bank.public, body=again.body)
            assert receipt.approval is None
        for amount, other in ((13, key), (12, new_key())):
            refused = post(line, "/pay", {"amount": amount}, other, evidence=evidence)
            assert code(refused) == (403, "approval-mismatch")
    finally:
        bank.offset = 0.0
    assert bank.paid[before:] == [12]


def test_reading_with_an_approval_is_done_once_too(bank: Bank, line: Line) -> None:
    key = new_key()
    evidence = bank.approver.approve(asked(bank, line, {"opaque": "x"}, key, "/read"))
    heard = post(line, "/read", {"opaque": "x"}, key, evidence=evidence)
    assert heard.status == 200
    again = post(line, "/read", {"opaque": "x"}, key, evidence=evidence)
    assert again.get("idempotency-replayed") == "?1"


def test_two_persons_approve_where_the_rule_wants_two(bank: Bank, line: Line) -> None:
    key = new_key()
    challenge = asked(bank, line, {"amount": 5000}, key, "/note")
    one = bank.approver.approve(challenge, by=("a",))
    assert code(post(line, "/note", {"amount": 5000}, key, evidence=one)) == (403, "approval-mismatch")
    two = bank.approver.approve(challenge, by=("a", "b"))
    heard = post(line, "/note", {"amount": 5000}, key, evidence=two)
    receipt = verify_filed(heard.receipt, bank.public, body=heard.body)
    assert receipt.approval is not None
    assert receipt.approval.by == ("a", "b")


# attacks 75, 85: another call than the approved one


@as_subtests(
    "changes",
    [
        {"given": {"amount": 120}},
        {"given": b'{"amount": 12 }'},
        {"given": {"amount": 12, "pin": "1235"}},
        {"target": "/pay?to=evil"},
        {"target": "/open", "given": {"door": "a"}},
        {"key": "another"},
        {"fields": [("Content-Type", "application/vnd.pay+json")]},
        {"token": "bob"},
    ],
)
def test_attack_75_evidence_of_another_call_is_refused(
    bank: Bank, line: Line, changes: dict[str, Any]
) -> None:
    key, before = new_key(), len(bank.paid)
    evidence = bank.approver.approve(asked(bank, line, {"amount": 12, "pin": "1234"}, key))
    heard = post(
        line,
        changes.get("target", "/pay"),
        changes.get("given", {"amount": 12, "pin": "1234"}),
        changes.get("key", "") + key,
        *changes.get("fields", []),
        token=changes.get("token", "plain"),
        evidence=evidence,
    )
    assert code(heard) == (403, "approval-mismatch")
    assert len(bank.paid) == before


# attack 77


def test_attack_77_another_persons_token_or_key_cannot_use_it(bank: Bank, line: Line) -> None:
    key, before = new_key(), len(bank.paid)
    challenge = asked(bank, line, {"amount": 12}, key, token="ann")
    evidence = bank.approver.approve(challenge)
    for token in ("bob", "plain"):
        heard = post(line, "/pay", {"amount": 12}, key, token=token, evidence=evidence)
        assert code(heard) == (403, "approval-mismatch")
    for other in ("B" * 43, None):
        copied = bank.approver.approve(challenge, key=other)
        heard = post(line, "/pay", {"amount": 12}, key, token="ann", evidence=copied)
        assert code(heard) == (403, "approval-mismatch")
    assert len(bank.paid) == before
    assert post(line, "/pay", {"amount": 12}, key, token="ann", evidence=evidence).status == 200


# attacks 78, 79, 81


def test_attack_78_79_81_evidence_that_an_honest_approver_would_not_give_is_refused(
    bank: Bank, line: Line
) -> None:
    key, before = new_key(), len(bank.paid)
    challenge = asked(bank, line, {"amount": 12}, key)
    sign, now = bank.approver.approve, int(time.time())
    stranger = SigningKey.generate("Ed25519").with_thumbprint()
    bad = {
        "expired": sign(challenge, at=now - 301),
        "from the future": sign(challenge, at=now + 120),
        "for another resource": sign(challenge, audience="https://shop.test/.well-known/aiip/v1"),
        "by an approver that is not listed": sign(challenge, issuer="https://evil.test"),
        "by a key that is not published": sign(challenge, signer=stranger),
        "for another transaction": sign(challenge, transaction=make_transaction(now)),
        "for an older transaction": sign(challenge, transaction=make_transaction(now - 601)),
        "with a transaction that is none": sign(challenge, transaction="x" * 32),
        "for another challenge": sign(challenge, challenge="C" * 43),
        "for another request": sign(challenge, request="R" * 43),
        "with a sign-in that is too old": sign(challenge, authenticated=now - 400),
        "by two persons": sign(challenge, by=("a", "b")),
        "of another kind": post(line, "/pay", {"amount": 12}, key).json()["transaction_challenge"],
        "a receipt": post(line, "/pay", {"amount": 12}, key).receipt or "",
        "unsigned": sign(challenge).rpartition(".")[0] + ".AAAA",
        "nothing": "x",
    }
    for why, evidence in bad.items():
        heard = post(line, "/pay", {"amount": 12}, key, evidence=evidence)
        assert code(heard) == (403, "approval-mismatch"), why
        assert verify_filed(heard.receipt, bank.public, body=heard.body).approval is None, why
    assert len(bank.paid) == before
    assert post(line, "/pay", {"amount": 12}, key, evidence=sign(challenge)).status == 200


def test_attack_81_the_requester_is_no_other_person(bank: Bank, line: Line) -> None:
    key = new_key()
    challenge = asked(bank, line, {"door": "a"}, key, "/open", token="ann")
    own = bank.approver.approve(challenge, by=("ann",))
    heard = post(line, "/open", {"door": "a"}, key, token="ann", evidence=own)
    assert code(heard) == (403, "approval-mismatch")


def test_attack_79_a_retired_key_is_refused_and_a_new_one_is_fetched(bank: Bank, line: Line) -> None:
    approver, key = bank.approver, new_key()
    challenge = asked(bank, line, {"amount": 12}, key)
    old, known = approver.key, list(approver.published)
    retired = approver.approve(challenge)
    fetched = [0.0]
    bank.become()
    bank.apps[-1]._approvals._keys[approver.issuer]._clock = lambda: fetched[0]
    try:
        unused = new_key()
        other = approver.approve(asked(bank, line, {"amount": 12}, unused))
        assert post(line, "/pay", {"amount": 12}, unused, evidence=other).status == 200
        approver.key = SigningKey.generate("ES256").with_thumbprint()
        approver.published = [approver.key.public()]
        # the process has the old keys, and believes them for a minute
        fetched[0] = 61.0
        heard = post(line, "/pay", {"amount": 12}, key, evidence=retired)
        assert code(heard) == (403, "approval-mismatch")
        heard = post(line, "/pay", {"amount": 12}, key, evidence=approver.approve(challenge))
        assert heard.status == 200, heard.body
    finally:
        approver.key, approver.published = old, known
        bank.become()


def test_keys_that_cannot_be_had_are_no_yes(bank: Bank, line: Line) -> None:
    key, before = new_key(), len(bank.paid)
    evidence = bank.approver.approve(asked(bank, line, {"amount": 12}, key))
    bank.approver.status = 500
    try:
        bank.become()
        asks = bank.approver.asked
        for _ in range(5):
            heard = post(line, "/pay", {"amount": 12}, key, evidence=evidence)
            assert code(heard) == (503, "unavailable")
        assert bank.approver.asked == asks + 1
    finally:
        bank.approver.status = 200
        bank.become()
    assert len(bank.paid) == before
    assert post(line, "/pay", {"amount": 12}, key, evidence=evidence).status == 200


def test_a_kind_of_sign_in_may_be_demanded(bank: Bank, line: Line) -> None:
    key = new_key()
    bank.become(approvers=[bank.approver.entry(acr=("urn:example:mfa",))])
    try:
        challenge = asked(bank, line, {"amount": 12}, key)
        for acr in (None, "urn:example:pwd"):
            evidence = bank.approver.approve(challenge, acr=acr)
            assert code(post(line, "/pay", {"amount": 12}, key, evidence=evidence)) == (
                403,
                "approval-mismatch",
            )
        evidence = bank.approver.approve(challenge)
        assert post(line, "/pay", {"amount": 12}, key, evidence=evidence).status == 200
    finally:
        bank.become()


# attacks 86, 87


@pytest.mark.parametrize(
    "change",
    [
        {"policy": POLICY + "// a comment"},
        {"policy": POLICY.replace("looked at", "seen")},
        {"title": "Pay twice"},
    ],
    ids=["policy", "reason", "description"],
)
def test_attack_86_87_a_change_while_the_call_waits_makes_the_approval_void(
    bank: Bank, line: Line, change: dict[str, str]
) -> None:
    key, before = new_key(), len(bank.paid)
    evidence = bank.approver.approve(asked(bank, line, {"amount": 12}, key))
    bank.become(**change)
    try:
        assert code(post(line, "/pay", {"amount": 12}, key, evidence=evidence)) == (403, "approval-mismatch")
    finally:
        bank.become()
    assert len(bank.paid) == before
    assert post(line, "/pay", {"amount": 12}, key, evidence=evidence).status == 200


def test_a_policy_that_asks_for_more_than_before_is_not_satisfied(bank: Bank, line: Line) -> None:
    key = new_key()
    evidence = bank.approver.approve(asked(bank, line, {"amount": 12}, key))
    bank.become(policy=POLICY.replace('@approval("person") @reason', '@approval("other") @reason'))
    try:
        assert code(post(line, "/pay", {"amount": 12}, key, evidence=evidence)) == (403, "approval-mismatch")
    finally:
        bank.become()


# attacks 32, 76


def test_attack_32_76_copies_of_an_approval_have_one_effect(bank: Bank, ca: trustme.CA) -> None:
    """Two clients with copies of the evidence, at once on two machines with one store, 200 times."""
    races, before = 200, len(bank.paid)
    other, app = bank.make(), bank.apps[-1]
    bank.apps.insert(0, other)  # closed with the server
    turn = iter(range(10**9))

    async def alternate(scope: Any, receive: Any, send: Any) -> None:
        await (app, other)[next(turn) % 2](scope, receive, send)

    bank.apps.append(alternate)  # type: ignore[arg-type]
    try:
        with (
            Line(bank.authority, ca) as one,
            Line(bank.authority, ca) as two,
            ThreadPoolExecutor(2) as pool,
        ):
            for number in range(races):
                key = new_key()
                evidence = bank.approver.approve(asked(bank, one, {"amount": number}, key))
                send = lambda line, key=key, evidence=evidence, number=number: post(  # noqa: E731
                    line, "/pay", {"amount": number}, key, evidence=evidence
                )
                heard = list(pool.map(send, (one, two)))
                codes = sorted(each.status for each in heard)
                assert codes in ([200, 200], [200, 409]), [each.body for each in heard]
                assert len(bank.paid) == before + number + 1
    finally:
        bank.apps.pop()
    assert bank.paid[before:] == list(range(races))


def test_attack_76_an_approval_is_spent_for_every_other_key(bank: Bank, line: Line) -> None:
    """An approver that signs twice for one transaction does not make two effects of it."""
    key = new_key()
    challenge = asked(bank, line, {"amount": 1}, key)
    evidence = bank.approver.approve(challenge)
    assert post(line, "/pay", {"amount": 1}, key, evidence=evidence).status == 200
    other = asked(bank, line, {"amount": 1}, key + "b")
    double = bank.approver.approve(other, transaction=challenge.transaction)
    heard = post(line, "/pay", {"amount": 1}, key + "b", evidence=double)
    assert code(heard) == (403, "approval-mismatch")


# configuration


def test_a_policy_that_nobody_could_satisfy_is_refused_at_the_start(tmp_path: Path) -> None:
    store, policy = tmp_path / "k", '@approval("person") permit(principal, action, resource);'
    with pytest.raises(ConfigError) as caught:
        Endpoint("bank.example", policy=policy, store=store)
    assert caught.value.code == "config.no-approvers"
    approver = Approver(issuer="https://gw.example", jwks="https://gw.example/jwks")
    with pytest.raises(ConfigError) as caught:
        Endpoint("bank.example", policy=policy, approvers=[approver])
    assert caught.value.code == "config.bad-store"
    Endpoint("bank.example", policy=policy, approvers=[approver], store=store)


@pytest.mark.parametrize(
    "approvers",
    [
        [Approver(issuer="https://a.example", jwks="https://a.example/jwks")] * 2,
        [Approver(issuer="http://a.example", jwks="https://a.example/jwks")],
        [Approver(issuer="https://a.example", jwks="http://a.example/jwks")],
        [Approver(issuer=f"https://a{n}.example", jwks="https://a.example/jwks") for n in range(9)],
    ],
)
def test_approvers_are_reached_over_tls_and_are_few(approvers: list[Approver]) -> None:
    with pytest.raises(UsageError):
        Endpoint("bank.example", approvers=approvers)


@as_subtests(
    "policy",
    [
        '@approval("nobody") permit(principal, action, resource);',
        "@approval permit(principal, action, resource);",
        '@approval("person") forbid(principal, action, resource);',
        '@approval("person") @approval_body("all") permit(principal, action, resource);',
        '@approval_body("any") permit(principal, action, resource);',
        '@approval("person") @reason("a\\nb") permit(principal, action, resource);',
    ],
)
def test_annotations_that_mean_nothing_are_refused(policy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint("bank.example", policy=policy)
    assert caught.value.code == "config.bad-policy"
