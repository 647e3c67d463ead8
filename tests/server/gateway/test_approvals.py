"""People approve calls at a running gateway: a payment of a real endpoint, a session for each person."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trustme

from ai_support import Heard, Line, authority_ca, key_store, names_resolver, serve_authority, trust
from onym.accounts.oidc import Person, ProviderTokens
from onym.ai.endpoint import Endpoint
from onym.ai.records import Approver
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.server.gateway import GatewaySettings, create_gateway
from onym.server.gateway.factory import end_person_sessions
from onym.server.gateway.sessions import PersonSessions
from onym.server.settings import IssuerTable
from onym.sign.approval import verify_receipt_approval
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey, read_authority_keys
from onym.sign.receipts import verify_filed
from onym.sign.sealing import FleetSecrets, rotate_secrets
from onym.store import open_shared_store
from onym.uri.secret import Secret
from support import mentions
from telemetry_support import Seen

GATEWAY, BANK = "gateway.test", "bank.test"
ISSUER = "https://login.test"
POLICY = """
@approval("other") @reason("payments need a second person")
permit(principal, action == Action::"financial", resource);
@approval("two") permit(principal, action == Action::"physical", resource);
"""


SEEN = Seen()


@dataclass
class Town:
    """A gateway with sign-in, and a bank that lists it as an approver."""

    gateway: str
    bank: str
    folder: Path
    ca: trustme.CA
    keys: Any
    gateway_keys: Any
    paid: list[int]
    settings: GatewaySettings
    apps: dict[str, Any] = field(default_factory=dict)

    def person(self, name: str, *, age: float = 10.0) -> Browser:
        """A browser in which this person signed in `age` seconds ago."""

        async def sign_in() -> str:
            store = open_shared_store(str(self.folder / "shared.sqlite"))
            sessions = PersonSessions(
                store,
                FleetSecrets(str(self.folder / "secrets")),
                lambda: datetime.now(UTC),
                idle=600,
                life=3600,
            )
            person = Person(
                issuer=ISSUER,
                subject=name,
                name=name.title(),
                email=f"{name}@example.net",
                acr="urn:test:mfa",
                auth_time=time.time() - age,
            )
            tokens = ProviderTokens(
                access=Secret("a"), id_token=Secret("i"), refresh=None, expires=time.time() + 600
            )
            session = await sessions.create(
                person, tokens, provider="real", client_id="onym", began=time.time()
            )
            await store.close()
            assert session.secret is not None
            return session.secret.reveal()

        return Browser(self, asyncio.run(sign_in()))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in (self.folder / "audit.jsonl").read_bytes().splitlines()]
        return [line for line in found if line["event"] == kind]

    @property
    def signer(self) -> Any:
        """The key of the bank."""
        return self.keys.signer(time.time())

    def call(self, path: str, given: Any, key: str, evidence: str | None = None) -> Heard:
        fields = [
            ("Idempotency-Key", f'"{key}"'),
            ("Content-Type", "application/json"),
            ("AIIP-Nonce", "N" * 22),
        ]
        if evidence is not None:
            fields.append(("AIIP-Approval", evidence))
        with Line(self.bank, self.ca) as line:
            return line.ask("POST", path, json.dumps(given).encode(), *fields)

    def request(self, path: str, given: Any, key: str, **changes: Any) -> str:
        """What `onym ai invoke --save` writes."""
        heard = self.call(path, given, key)
        assert heard.status == 403, heard.body
        known = {
            "transaction_challenge": heard.json()["transaction_challenge"],
            "uri": f"ai://{self.bank}{path}",
            "idempotency_key": key,
            "body_base64": base64.b64encode(json.dumps(given).encode()).decode(),
            "content_type": "application/json",
        }
        return json.dumps(known | changes)


@dataclass
class Browser:
    """A browser with a session at the gateway."""

    town: Town
    cookie: str

    def open(self, method: str, path: str, form: dict[str, str] | None = None, *, page: bool = True) -> Heard:
        fields = [("Accept", "text/html" if page else "application/json"), ("Sec-Fetch-Site", "same-origin")]
        if self.cookie:
            fields.append(("Cookie", f"__Host-onym-session={self.cookie}"))
        body = b""
        if form is not None:
            body = urlencode(form).encode()
            fields.append(("Content-Type", "application/x-www-form-urlencoded"))
        with Line(self.town.gateway, self.town.ca) as line:
            return line.ask(method, path, body, *fields, service=False)

    def view(self, path: str) -> Any:
        heard = self.open("GET", path, page=False)
        assert heard.status == 200, heard.body
        return heard.json()

    def token(self) -> str:
        page = self.open("GET", "/approvals").body.decode()
        return re.findall(r'name="csrf_token" value="([^"]+)"', page)[0]

    def ask(self, request: str) -> Heard:
        return self.open("POST", "/approvals", {"csrf_token": self.token(), "request": request})

    def asked(self, request: str) -> str:
        """The path of the new approval."""
        heard = self.ask(request)
        assert heard.status == 303, heard.body
        return heard.get("location") or ""

    def decide(self, path: str, decision: str, **changes: str) -> Heard:
        shown = self.open("GET", path, page=False)
        given = {"shown": shown.json().get("shown", ""), "decision": decision, "csrf_token": self.token()}
        return self.open("POST", path, given | changes)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    (folder / "gateway").mkdir()
    ca, keys, gateway_keys = authority_ca(), key_store(folder), key_store(folder / "gateway")
    tls, paid = trust(ca, folder), list[int]()
    rotate_secrets(folder / "secrets")
    resolver = names_resolver({GATEWAY: "127.0.0.1", BANK: "127.0.0.1"})
    made: dict[str, Any] = {}

    def make_gateway(authority: str) -> Any:
        made["settings"] = GatewaySettings(
            base_url=f"https://{authority}",
            behind_proxy=True,
            keys=str(folder / "gateway" / "keys"),
            audit=str(folder / "audit.jsonl"),
            network="local",
            dns=False,
            ca_files=tls.ca_files,
            providers=(
                IssuerTable(
                    id="real", title="Works", issuer=ISSUER, client_id="onym", client_secret=Secret("s")
                ),
            ),
            store=Secret(str(folder / "shared.sqlite")),
            secrets=str(folder / "secrets"),
            approvers=("real bob@example.net", "real cat"),
            pseudonym_key=Secret("pseudonyms"),
        )
        return create_gateway(made["settings"], resolver=resolver, telemetry=SEEN.telemetry)

    def make_bank(authority: str) -> Endpoint:
        issuer = made["settings"].base_url
        network = NetConfig(policy=Policy.untrusted().replace(ports=None, allow_networks=("127.0.0.0/8",)),
                            resolver=resolver, tls=tls)  # fmt: skip
        app = Endpoint(
            authority,
            keys=keys,
            store=folder / "keys.sqlite",
            policy=POLICY,
            approvers=[Approver(issuer=issuer, jwks=f"{issuer}/.well-known/jwks.json")],
            network=network,
        )

        @app.resource("/pay", effects="financial", title="Pay <b>now</b>")
        def pay(amount: int, to: str = "", pin: str = "") -> int:
            paid.append(amount)
            return len(paid)

        @app.resource("/ship", effects="physical", task=True)
        async def ship(name: str) -> str:
            await asyncio.Event().wait()
            return name

        @app.resource("/door", effects="physical")
        def door(name: str) -> str:
            return name

        return app

    with (
        serve_authority(make_gateway, GATEWAY, ca=ca) as (_, gateway),
        serve_authority(make_bank, BANK, ca=ca) as (_, bank),
    ):
        yield Town(gateway, bank, folder, ca, keys, gateway_keys, paid, made["settings"])


def code(heard: Heard) -> int:
    return heard.status


def test_a_payment_is_approved_by_another_person_and_happens_once(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob")
    path = ann.asked(town.request("/pay", {"amount": 10, "to": "<i>shop</i>"}, "k1"))
    view = bob.view(path)
    assert (view["state"], view["rule"], view["may_decide"], view["own"]) == ("waiting", "other", True, False)
    assert {row["label"]: row["value"] for row in view["review"]["rows"]} == {
        "amount": "10",
        "to": "<i>shop</i>",
    }
    assert view["review"]["person"] == "Ann"
    page = bob.open("GET", path)
    assert b"&lt;i&gt;shop&lt;/i&gt;" in page.body
    assert b"<i>shop" not in page.body
    assert b"Pay &lt;b&gt;now&lt;/b&gt;" in page.body
    assert " ".join(view["review"]["digest_groups"]).encode() in page.body
    assert "script" not in (page.get("content-security-policy") or "")
    # the page of the one who waits looks again by itself, until that is switched off; the other one does not
    pages = (ann.open("GET", path), ann.open("GET", f"{path}?reload=off"), page)
    assert [found.get("refresh") for found in pages] == ["5", None, None]
    waiting = ann.view(path)
    assert (waiting["may_decide"], waiting["has_evidence"]) == (False, False)
    assert code(ann.open("GET", f"{path}/approval.jwt")) == 404
    assert code(bob.decide(path, "approve")) == 303
    assert bob.view(path)["has_evidence"] is False
    assert code(bob.open("GET", f"{path}/approval.jwt")) == 404
    assert ann.view(path)["idempotency_key"] == "k1"
    evidence = ann.open("GET", f"{path}/approval.jwt").body.decode()
    before = len(town.paid)
    heard = town.call("/pay", {"amount": 10, "to": "<i>shop</i>"}, "k1", evidence)
    assert heard.status == 200, heard.body
    assert town.paid[before:] == [10]
    receipt = verify_filed(heard.receipt, read_authority_keys(town.keys.jwks(time.time())), body=heard.body)
    approver = read_authority_keys(town.gateway_keys.history(time.time()), history=True)
    approval = verify_receipt_approval(receipt, evidence, approver)
    assert not mentions(str(approval.by), "Bob")
    steps = [line["step"] for line in town.lines("approval")]
    assert {"asked", "shown", "approve"} <= set(steps)
    assert not mentions(json.dumps(town.lines("approval")), "Ann")


def test_attack_81_who_asked_cannot_approve_and_strangers_see_nothing(town: Town) -> None:
    bob, dan = town.person("bob"), town.person("dan")
    path = bob.asked(town.request("/pay", {"amount": 1}, "k2"))
    assert code(bob.decide(path, "approve")) == 403
    assert code(dan.open("GET", path)) == 404
    assert code(dan.decide(path, "approve")) == 404
    assert code(Browser(town, "").open("GET", path)) == 401
    assert code(Browser(town, "").open("GET", "/approvals")) == 401
    assert all(row["id"] not in path for row in dan.view("/approvals")["rows"])
    assert any(row["id"] in path for row in bob.view("/approvals")["rows"])


def test_two_persons_open_a_door(town: Town) -> None:
    ann, bob, cat = town.person("ann"), town.person("bob"), town.person("cat")
    path = ann.asked(town.request("/door", {"name": "gate"}, "k3"))
    assert code(bob.decide(path, "approve")) == 303
    assert bob.view(path)["missing"] == 1
    assert code(bob.decide(path, "approve")) == 403
    assert code(cat.decide(path, "approve")) == 303
    evidence = ann.open("GET", f"{path}/approval.jwt").body.decode()
    assert town.call("/door", {"name": "gate"}, "k3", evidence).body == b"gate"


def test_a_denial_and_a_withdrawal_are_final(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob")
    path = ann.asked(town.request("/pay", {"amount": 2}, "k4"))
    assert code(bob.decide(path, "deny")) == 303
    assert ann.view(path)["state"] == "denied"
    assert b"invoke the resource again" in ann.open("GET", path).body
    assert code(bob.decide(path, "approve")) == 403
    path = ann.asked(town.request("/pay", {"amount": 2}, "k5"))
    assert code(bob.decide(path, "approve")) == 303
    assert code(ann.decide(path, "withdraw")) == 303
    assert code(ann.open("GET", f"{path}/approval.jwt")) == 404


def test_a_sign_in_that_is_too_old_is_asked_for_again(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob", age=400)
    path = ann.asked(town.request("/pay", {"amount": 3}, "k6"))
    shown = bob.view(path)["shown"]
    form = {"shown": shown, "decision": "approve", "csrf_token": bob.token()}
    heard = bob.open("POST", path, form, page=False)
    assert (heard.status, heard.json()["code"]) == (403, "step-up-required")
    assert ann.view(path)["state"] == "waiting"


def test_attack_73_a_decision_needs_the_form_of_this_browser_and_what_was_shown(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob")
    path = ann.asked(town.request("/pay", {"amount": 4}, "k7"))
    assert code(bob.decide(path, "approve", csrf_token=ann.token())) == 403
    assert code(bob.decide(path, "approve", shown="x" * 43)) == 403
    assert code(bob.decide(path, "maybe")) == 400
    assert code(bob.open("GET", f"{path}?decision=approve")) == 200
    assert ann.view(path)["state"] == "waiting"


@pytest.mark.parametrize(
    "changes",
    [
        {"body_base64": base64.b64encode(b'{"amount": 500}').decode()},
        {"idempotency_key": "another"},
        {"content_type": "application/vnd.pay+json"},
        {"transaction_challenge": "a.b.c"},
    ],
)
def test_attack_75_80_a_challenge_of_another_call_is_not_shown(town: Town, changes: dict[str, str]) -> None:
    ann = town.person("ann")
    before = {row["id"] for row in ann.view("/approvals")["rows"]}
    heard = ann.ask(town.request("/pay", {"amount": 5}, "k8", **changes))
    assert code(heard) == 403
    assert {row["id"] for row in ann.view("/approvals")["rows"]} <= before


@pytest.mark.parametrize("how", ["altered", "of another key", "expired", "for another gateway"])
def test_attack_80_a_challenge_that_the_authority_has_not_made_now_is_not_shown(town: Town, how: str) -> None:
    ann = town.person("ann")
    before = ann.view("/approvals")["rows"]
    request = json.loads(town.request("/pay", {"amount": 6}, f"k80-{how}"))
    head, body, signature = request["transaction_challenge"].split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    signer = SigningKey.generate("Ed25519").with_thumbprint() if how == "of another key" else town.signer
    claims |= {
        "altered": {"reason": "changed on the way"},
        "expired": {"iat": claims["iat"] - 2000, "exp": claims["iat"] - 1400},
        "for another gateway": {"aud": ["https://other.test"]},
    }.get(how, {})
    content = json.dumps(claims).encode()
    token = sign_compact(content, signer, header={"typ": "txn-authz-challenge+jwt"})
    if how == "altered":
        token = f"{head}.{base64.urlsafe_b64encode(content).decode().rstrip('=')}.{signature}"
    heard = ann.ask(json.dumps(request | {"transaction_challenge": token}))
    assert code(heard) == 403
    assert ann.view("/approvals")["rows"] == before
    # with the claims and the key of the authority itself, the same document is shown
    assert code(ann.ask(json.dumps(request))) == 303


@pytest.mark.parametrize("request_text", ["", "{}", "[]", '{"a":1,"a":2}', "x" * 200_000])
def test_what_is_no_request_is_refused(town: Town, request_text: str) -> None:
    assert code(town.person("ann").ask(request_text)) in {413, 422}


def test_attack_82_the_same_call_is_one_record_and_twenty_wait(town: Town) -> None:
    eve = town.person("eve")
    request = town.request("/pay", {"amount": 6}, "e0")
    assert len({eve.asked(request) for _ in range(5)}) == 1
    for number in range(1, 20):
        eve.asked(town.request("/pay", {"amount": 6}, f"e{number}"))
    assert code(eve.ask(town.request("/pay", {"amount": 6}, "e20"))) == 429


def test_the_body_is_a_download(town: Town) -> None:
    ann = town.person("ann")
    path = ann.asked(town.request("/pay", {"amount": 7}, "k9"))
    heard = ann.open("GET", f"{path}/body")
    assert heard.body == b'{"amount": 7}'
    assert "attachment" in (heard.get("content-disposition") or "")


def fill_in(town: Town, browser: Browser, path: str, *values: str) -> dict[str, str]:
    """The fields of a resource's form, filled in."""
    page = html.unescape(browser.open("GET", f"/gateway/{town.bank}{path}").body.decode())
    form = dict(re.findall(r'name="(csrf_token|uri|key)" value="([^"]+)"', page))
    return form | {f"in{index}": value for index, value in enumerate(values)}


def ask_by_form(town: Town, person: Browser, path: str, *values: str) -> str:
    """Send the form and its review page; return the path of the approval that the call needs."""
    review = person.open("POST", "/invoke", fill_in(town, person, path, *values))
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', review.body.decode()))
    sent = person.open("POST", "/invoke", {name: html.unescape(value) for name, value in fields.items()})
    assert sent.status == 303, sent.body
    return sent.get("location") or ""


def test_a_payment_from_a_form_is_reviewed_approved_by_another_person_and_sent_once(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob")
    before = len(town.paid)
    form = fill_in(town, ann, "/pay", "30", "the shop")
    review = ann.open("POST", "/invoke", form)
    assert review.status == 200
    assert b"the shop" in review.body
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', review.body.decode()))
    sent = ann.open("POST", "/invoke", {name: html.unescape(value) for name, value in fields.items()})
    assert sent.status == 303, sent.body
    path = sent.get("location") or ""
    assert path.startswith("/approvals/")
    assert town.paid[before:] == []
    # the same form again is the same approval, and nothing is sent before it is given
    again = ann.open("POST", "/invoke", {name: html.unescape(value) for name, value in fields.items()})
    assert again.get("location") == path
    assert code(ann.decide(path, "send")) == 404
    assert code(bob.decide(path, "send")) == 404
    assert code(bob.decide(path, "approve")) == 303
    assert code(bob.decide(path, "send")) == 404
    assert town.paid[before:] == []
    assert b"Send the call" in ann.open("GET", path).body
    result = ann.decide(path, "send")
    assert result.status == 303, result.body
    assert town.paid[before:] == [30]
    shown = ann.open("GET", f"{result.get('location')}/body")
    assert shown.body.strip() == str(len(town.paid)).encode()
    receipt = ann.open("GET", f"{result.get('location')}/receipt").body.decode()
    assert '"apr"' in base64.urlsafe_b64decode(receipt.split(".")[1] + "==").decode()
    assert ann.view(path)["state"] == "used"
    twice = ann.decide(path, "send")
    assert town.paid[before:] == [30], twice.body


def test_a_result_is_gone_with_the_session_of_its_person(town: Town) -> None:
    """The browser that is left behind shows nothing more after a sign-out elsewhere."""
    ann, bob = town.person("ann"), town.person("bob")
    path = ask_by_form(town, ann, "/pay", "31")
    assert code(bob.decide(path, "approve")) == 303
    result = ann.decide(path, "send").get("location") or ""
    for part in ("", "/body", "/receipt"):
        assert code(ann.open("GET", result + part)) == 200
    (row,) = ann.view("/results")["results"]
    assert (row["url"], row["uri"], row["status"]) == (result, f"ai://{town.bank}/pay", 200)
    assert bob.view("/results") == {"results": []}
    asyncio.run(end_person_sessions(town.settings, "real ann@example.net"))
    for part in ("", "/body", "/receipt", "/gateway-receipt"):
        assert code(ann.open("GET", result + part)) == 401
    assert ann.view("/results") == {"results": []}


def test_an_approved_payment_is_sent_only_after_a_sign_in_of_the_last_minutes(town: Town) -> None:
    """draft-sogomonian-ai-uri-scheme-01, Security Considerations: authorization as in the web session."""
    ann, bob = town.person("ann"), town.person("bob")
    before = len(town.paid)
    path = ask_by_form(town, ann, "/pay", "32")
    assert code(bob.decide(path, "approve")) == 303
    old = town.person("ann", age=400).decide(path, "send")
    assert old.status == 403
    link = f"/auth/step-up?{urlencode({'max_age': 300, 'next': path})}"
    assert link in html.unescape(old.body.decode())
    assert (town.paid[before:], ann.view(path)["state"]) == ([], "approved")
    assert code(ann.decide(path, "send")) == 303
    assert town.paid[before:] == [32]


def test_only_the_person_who_asked_withdraws_a_call(town: Town) -> None:
    ann, bob = town.person("ann"), town.person("bob")
    path = ann.asked(town.request("/pay", {"amount": 33}, "k33"))
    form = {"decision": "withdraw", "csrf_token": bob.token()}
    heard = bob.open("POST", path, form, page=False)
    assert (heard.status, heard.json()["code"]) == (403, "policy-denied")
    assert ann.view(path)["state"] == "waiting"


def test_an_approved_task_is_sent_as_a_task(town: Town) -> None:
    ann = town.person("ann")
    path = ask_by_form(town, ann, "/ship", "crate")
    for approver in ("bob", "cat"):
        assert code(town.person(approver).decide(path, "approve")) == 303
    sent = ann.decide(path, "send")
    assert sent.status == 303
    assert "/tasks/" in (sent.get("location") or ""), sent.get("location")


def test_a_payment_needs_a_sign_in_of_the_last_minutes(town: Town) -> None:
    old = town.person("ann", age=400)
    page = html.unescape(old.open("GET", f"/gateway/{town.bank}/pay").body.decode())
    assert "step-up-required" in page
    assert "/auth/step-up?max_age=300&next=" in page


def test_a_person_who_signs_out_everywhere_withdraws_what_waits(town: Town) -> None:
    dee, elsewhere, bob = town.person("dee"), town.person("dee"), town.person("bob")
    path = dee.asked(town.request("/pay", {"amount": 3}, "k-sign-out"))
    dee.open("POST", "/auth/logout", {"csrf_token": dee.token()})
    assert elsewhere.view(path)["state"] == "waiting"  # another browser is still signed in
    elsewhere.open("POST", "/auth/logout", {"csrf_token": elsewhere.token()})
    assert bob.view(path)["state"] == "withdrawn"
    assert code(bob.decide(path, "approve")) in {403, 409}


def test_an_operator_who_ends_sessions_withdraws_what_waits(town: Town) -> None:
    eli, bob = town.person("eli"), town.person("bob")
    path = eli.asked(town.request("/pay", {"amount": 3}, "k-operator"))
    (ended,) = asyncio.run(end_person_sessions(town.settings, "real eli@example.net"))
    assert (ended.subject, ended.sessions) == ("eli", 1)
    assert bob.view(path)["state"] == "withdrawn"


def test_an_operator_withdraws_the_calls_of_a_person_without_a_session(town: Town) -> None:
    """Their program may have brought them."""
    path = town.person("flo").asked(town.request("/pay", {"amount": 3}, "k-no-session"))

    async def forget_sessions() -> None:
        store = open_shared_store(str(town.folder / "shared.sqlite"))
        for kind in ("session", "person"):
            for key, _ in await store.find(f"{kind}/", limit=200):
                await store.delete(key)
        await store.close()

    asyncio.run(forget_sessions())
    (ended,) = asyncio.run(end_person_sessions(town.settings, "real flo"))
    assert ended.sessions == 0
    assert town.person("bob").view(path)["state"] == "withdrawn"


def test_steps_of_approvals_are_counted_and_name_nobody(town: Town) -> None:
    def count(step: str) -> int:
        points = SEEN.points("aiip.approvals")
        return sum(point.value for point in points if dict(point.attributes) == {"aiip.approval.step": step})

    before = {step: count(step) for step in ("asked", "shown", "deny")}
    ann, bob = town.person("ann"), town.person("bob")
    path = ann.asked(town.request("/pay", {"amount": 2}, "k-counted"))
    bob.decide(path, "deny")
    assert count("asked") == before["asked"] + 1
    assert count("shown") > before["shown"]
    assert count("deny") == before["deny"] + 1
    assert SEEN.named("approve", "gateway")
    told = SEEN.everything()
    assert path.rpartition("/")[2] not in told
    assert not mentions(told, "bob")
