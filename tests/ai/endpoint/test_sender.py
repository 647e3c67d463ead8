"""Tokens that are bound to their sender, at a running endpoint: DPoP (RFC 9449) and step-up (RFC 9470).

The server of these tests knows an issuer in the test's hand, so that every token and every proof can be made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import Heard, Line, key_store, serve_authority
from oauth_support import HandIssuer, issuer_network, secure_issuer
from onym.ai.endpoint import Endpoint, Task
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.errors import CredentialError, StoreError
from onym.sign.dpop import DPoPKey, generate_dpop_key, sign_dpop_proof
from onym.sign.keys import SigningKey, read_authority_keys
from onym.sign.receipts import access_token_hash, content_digest, request_hash, verify_filed
from onym.sign.sealing import TemporarySecrets
from onym.store.shared import MemoryStore, SQLiteStore, StoreLimits
from onym.uri.secret import Secret
from sign_support import b64

NAME = "bank.test"
POLICY = "permit(principal, action, resource);"
JSON = ("Content-Type", "application/json")


class Store(MemoryStore):
    """A store in memory that a test can break, empty and look into."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.broken = False
        self.lost = False
        self.marked: list[str] = []

    async def mark(self, key: str, until: float, *, epoch: str | None = None) -> bool:
        if self.broken:
            raise StoreError("gone", code="store.unreachable")
        if self.lost:
            self.lost = False
            raise StoreError("lost", code="store.epoch")
        self.marked.append(key)
        return await super().mark(key, until, epoch=epoch)

    async def epoch(self) -> str:
        if self.broken:
            raise StoreError("gone", code="store.unreachable")
        return await super().epoch()


class SecretsAway:
    """A folder of fleet secrets that could not be read for ten minutes."""

    def list_secrets(self) -> Sequence[Secret]:
        raise CredentialError("the secrets cannot be read", code="credential.unreadable")


@dataclass
class Amount:
    amount: int


@dataclass
class Bank:
    """A running bank, a connection to it, and a client that has a token and a key."""

    app: Endpoint
    line: Line
    server: HandIssuer
    store: Store
    clock: Clock
    keys: Any
    ca: trustme.CA
    key: DPoPKey = field(default_factory=generate_dpop_key)
    nonce: str | None = None

    @property
    def resource(self) -> str:
        return f"https://{self.line.authority}/.well-known/aiip/v1"

    def url(self, path: str) -> str:
        return f"{self.resource}/{self.line.authority}{path.partition('?')[0]}"

    def token(self, key: DPoPKey | None = None, **claims: Any) -> str:
        """A token that is bound to this key, unless `cnf` says otherwise."""
        cnf = {"jkt": (key or self.key).thumbprint}
        now = int(self.clock())
        return self.server.token(
            **{"aud": self.resource, "cnf": cnf, "iat": now, "exp": now + 3600, "scope": "read", **claims}
        )

    def proof(self, path: str, token: str, **changes: Any) -> str:
        given = {
            "key": self.key,
            "method": "POST",
            "url": self.url(path),
            "at": self.clock(),
            "access_token": token,
            "nonce": self.nonce,
        }
        given |= changes
        return sign_dpop_proof(given.pop("key"), **given)

    def hash(self, path: str, body: bytes, key: str | None = None, method: str = "POST") -> str:
        """`rqh` of a request to this path."""
        return request_hash(
            method=method,
            target=f"ai://{self.line.authority}{path}",
            digest=content_digest(body) if body else None,
            content_type="application/json" if body else None,
            idempotency_key=key,
        )

    def renew(self) -> None:
        """Take the server's current nonce."""
        token = self.token()
        heard = self.send("/open", token, self.proof("/open", token, nonce=None))
        assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
        self.nonce = heard.get("dpop-nonce")

    def send(
        self,
        path: str,
        token: str,
        proof: str | None,
        *fields: tuple[str, str],
        body: bytes = b"",
        scheme: str = "DPoP",
        method: str = "POST",
    ) -> Heard:
        given = [("Authorization", f"{scheme} {token}"), *fields]
        given += [] if proof is None else [("DPoP", proof)]
        given += [JSON] if body else []
        return self.line.ask(method, path, body, *given)

    def call(self, path: str, *fields: tuple[str, str], body: bytes = b"", **changes: Any) -> Heard:
        """A call as a good client makes it; `changes` are of the proof."""
        token = changes.pop("token", None) or self.token()
        return self.send(path, token, self.proof(path, token, **changes), *fields, body=body)


@dataclass
class Clock:
    """The time of the server, which stands still in a test, because each minute has its own nonce."""

    ahead: float = 0.0
    begin: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.begin + self.ahead


@pytest.fixture(scope="module")
def server(ca: trustme.CA) -> Iterator[HandIssuer]:
    with secure_issuer(ca) as found:
        yield found


Open = Callable[..., contextlib.AbstractContextManager[Bank]]


@contextlib.contextmanager
def open_bank(folder: Path, ca: trustme.CA, server: HandIssuer, **options: Any) -> Iterator[Bank]:
    clock = Clock()
    store = options.pop("store", None) or Store(clock=clock)
    keys = key_store(folder)
    seen: list[Call] = options.pop("seen", [])
    policy = options.pop("policy", POLICY)
    telemetry = options.pop("telemetry", None)

    def make(authority: str) -> Endpoint:
        guard = JWTAuthorization(
            server.issuer,
            f"https://{authority}/.well-known/aiip/v1",
            network=issuer_network(server, ca, folder),
            clock=clock,
            store=store,
            **options,
        )
        app = Endpoint(
            authority,
            keys=keys,
            authorization=guard,
            store=folder / "keys.sqlite",
            policy=policy,
            clock=clock,
            telemetry=telemetry,
        )

        @app.resource("/open")
        async def opened(call: Call) -> str:
            seen.append(call)
            return "done"

        @app.resource("/stream")
        async def stream() -> Any:
            yield "one"

        @app.resource("/scoped", scopes=["write"])
        async def scoped() -> str:
            return "done"

        if options.get("dpop") != "none":

            @app.resource("/pay", effects="financial")
            async def pay(call: Call, amount: int = 0) -> int:
                seen.append(call)
                return amount

            @app.resource("/order", effects="financial", task=True, max_age=300)
            async def order(task: Task) -> int:
                return (await task.ask(Amount, "How much?")).amount

        @app.resource("/fresh", max_age=300)
        async def fresh() -> str:
            return "done"

        @app.resource("/strong", acr_values=["gold", "silver"], max_age=300)
        async def strong() -> str:
            return "done"

        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority), Line(authority, ca) as line:
        yield Bank(app, line, server, store, clock, keys, ca)


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    return []


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA, server: HandIssuer, calls: list[Call]
) -> Iterator[Bank]:
    with open_bank(tmp_path_factory.mktemp("bank"), ca, server, seen=calls) as found:
        yield found


@pytest.fixture
def bank(shared: Bank, calls: list[Call]) -> Iterator[Bank]:
    """The shared bank, with a client that has the current nonce, and a time that is now."""
    calls.clear()
    shared.clock.ahead, shared.clock.begin = 0.0, time.time()
    shared.renew()
    yield shared
    shared.store.broken = shared.store.lost = False


def challenge(heard: Heard) -> str:
    return ", ".join(value for name, value in heard.fields if name == "www-authenticate")


def refused(heard: Heard, error: str, code: str = "sender-constraint") -> None:
    """The answer is 401 with this error of OAuth in the challenge of DPoP, and nothing was signed."""
    assert (heard.status, heard.json()["code"]) == (401, code), heard
    assert f'error="{error}"' in challenge(heard)
    assert 'algs="ES256 Ed25519"' in challenge(heard)
    assert heard.receipt is None


# what holds


def test_a_bound_token_with_its_proof_is_accepted_and_the_caller_known(bank: Bank, calls: list[Call]) -> None:
    token = bank.token(act={"sub": "gateway", "act": {"sub": "agent", "iss": "https://other.example"}})
    heard = bank.call("/open", token=token)
    assert (heard.status, heard.body) == (200, b"done")
    caller = calls[-1].caller
    assert caller.key == bank.key.thumbprint
    assert caller.token_hash == access_token_hash(token)
    assert [(actor.subject, actor.issuer) for actor in caller.actors] == [
        ("gateway", None),
        ("agent", "https://other.example"),
    ]
    receipt = verify_filed(heard.receipt, read_authority_keys(bank.keys.jwks(time.time())), body=heard.body)
    assert (receipt.token_hash, receipt.audience) == (access_token_hash(token), "client-1")
    assert heard.get("dpop-nonce") is None  # the client has the newest


def test_a_proof_without_a_query_is_for_a_url_with_one(bank: Bank) -> None:
    """The query of a request is bound by `rqh`, and `htu` never has one (RFC 9449 4.2)."""
    assert (
        bank.call(
            "/pay?amount=5", ("Idempotency-Key", '"q"'), request_hash=bank.hash("/pay?amount=5", b"", "q")
        ).json()
        == 5
    )
    token = bank.token()
    assert bank.send("/open?a=1", token, bank.proof("/open", token)).status in {200, 422}


def test_a_description_is_read_with_a_proof_for_get(bank: Bank) -> None:
    token = bank.token()
    proof = bank.proof("/open", token, method="GET")
    assert bank.send("/open", token, proof, method="GET").status == 200
    refused(bank.send("/open", token, bank.proof("/open", token), method="GET"), "invalid_dpop_proof")


def test_a_client_gets_the_next_nonce_before_it_needs_one(bank: Bank) -> None:
    """RFC 9449 8.2: with every kind of response."""
    old = bank.nonce
    bank.clock.ahead = 60
    for path, status in (
        ("/open", 200),
        ("/stream", 200),
        ("/scoped", 403),
        ("/nothing", 404),
        ("/fresh", 401),
    ):
        heard = bank.call(path)
        assert heard.status == status
        assert heard.get("dpop-nonce") not in {None, old}
    bank.nonce = heard.get("dpop-nonce")
    assert bank.call("/open").get("dpop-nonce") is None


# attacks


def test_attack_59_a_chain_of_actors_that_does_not_tell_who_acts_is_refused(bank: Bank) -> None:
    def nest(*subjects: Any) -> Any:
        found: Any = None
        for subject in reversed(subjects):
            found = {"sub": subject} | ({} if found is None else {"act": found})
        return found

    assert bank.call("/open", token=bank.token(act=nest("a", "b", "c", "d"))).status == 200
    for act in (
        nest("a", "b", "c", "d", "e"),
        nest("a", "b", "a"),
        nest("user-7"),
        {"act": {"sub": "a"}},
        {"sub": ""},
        {"sub": 5},
        {"sub": "a", "iss": 5},
        "gateway",
        None,
        [],
    ):
        token = _sign(bank, act=act)
        refused(bank.call("/open", token=token), "invalid_token", "authentication-required")


def _sign(bank: Bank, **claims: Any) -> str:
    """A token with these claims, also those that are null."""
    from onym.sign.jws import sign_compact

    known = {**bank.server.claims(aud=bank.resource, cnf={"jkt": bank.key.thumbprint}), **claims}
    return sign_compact(json.dumps(known).encode(), bank.server.key, header={"typ": "at+jwt"})


def test_attack_60_a_token_for_another_authority_is_refused(bank: Bank) -> None:
    for audience in (
        "https://other.test/.well-known/aiip/v1",
        "https://gateway.test",
        [bank.resource, "https://x.test"],
    ):
        token = bank.token(aud=audience)
        refused(bank.call("/open", token=token), "invalid_token", "authentication-required")


def test_attack_61_a_proof_that_is_not_one_public_key_is_refused(bank: Bank) -> None:
    token = bank.token()
    good = bank.proof("/open", token)
    with Line(bank.line.authority, bank.ca) as line:  # the server closes it
        heard = line.ask("POST", "/open", b"", ("Authorization", f"DPoP {token}"), *[("DPoP", good)] * 2)
    assert (heard.status, heard.receipt) == (400, None)  # two fields have two meanings (3.14)
    for proof in (
        f"{good}, {good}",
        "",
        "a.b.c",
        forge(bank, token, {"jwk": {**bank.key.public_jwk, "d": "AAAA"}}),
        forge(bank, token, {"alg": "HS256"}),
        forge(bank, token, {"alg": "none"}, signature=b""),
        forge(bank, token, {"alg": "RS256"}),
        forge(bank, token, {"typ": "JWT"}),
        forge(bank, token, {"typ": "at+jwt"}),
        forge(bank, token, {"jwk": None, "kid": "a-key-of-the-server"}),
        forge(bank, token, {"jwk": {"kty": "oct", "k": "AAAA"}}),
        rsa_proof(bank, token),
    ):
        refused(bank.send("/open", token, proof), "invalid_dpop_proof")
    refused(bank.send("/open", token, None), "invalid_dpop_proof")


@cache
def forger() -> SigningKey:
    return SigningKey.generate("ES256")


def forge(bank: Bank, token: str, head: dict[str, Any], signature: bytes | None = None, **claims: Any) -> str:
    """A proof of the forger's own key, with a right signature; its header is changed by `head`."""
    public = {name: forger().public()[name] for name in ("kty", "crv", "x", "y")}
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public, **head}
    header = {name: value for name, value in header.items() if value is not None}
    body = {
        "jti": secrets.token_hex(8),
        "htm": "POST",
        "htu": bank.url("/open"),
        "iat": int(bank.clock()),
        "ath": access_token_hash(token),
        "nonce": bank.nonce,
        **claims,
    }
    text = f"{b64(header)}.{b64(body)}"
    return f"{text}.{b64(forger().sign(text.encode()) if signature is None else signature)}"


def rsa_proof(bank: Bank, token: str) -> str:
    """A proof with a weak key of RSA."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    numbers = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    octets = numbers.n.to_bytes(128, "big")
    return forge(bank, token, {"alg": "RS256", "jwk": {"kty": "RSA", "n": b64(octets), "e": "AQAB"}})


def test_attack_62_a_proof_for_another_request_is_refused_whatever_host_is_named(bank: Bank) -> None:
    token, here = bank.token(), bank.url("/open")
    port = bank.line.authority.partition(":")[2]
    for changes in (
        {"method": "GET"},
        {"method": "post"},
        {"url": bank.url("/pay")},
        {"url": f"{here}/"},
        {"url": here.replace("https:", "http:")},
        {"url": here.replace(f":{port}", "")},
        {"url": here.replace(f":{port}", ":1")},
        {"url": here.replace(NAME, "evil.test")},
        {"url": here.replace("/v1/", "/v1/./")},
    ):
        heard = bank.send("/open", token, bank.proof("/open", token, **changes))
        if "./" in str(changes):
            assert heard.status == 200  # the same URL, in another spelling (RFC 9449 4.3)
        else:
            refused(heard, "invalid_dpop_proof")
    for part in ("?amount=1", "#part"):  # what a URL in a proof would promise, and nothing would check
        refused(bank.send("/open", token, forge(bank, token, {}, htu=here + part)), "invalid_dpop_proof")
    evil = bank.proof("/open", token, url=here.replace(bank.line.authority, "evil.test"))
    for name in ("Forwarded", "X-Forwarded-Host", "X-Original-Host"):
        value = "host=evil.test" if name == "Forwarded" else "evil.test"
        refused(bank.send("/open", token, evil, (name, value)), "invalid_dpop_proof")


def test_attack_63_a_proof_for_another_token_or_of_another_key_is_refused(bank: Bank) -> None:
    token = bank.token()
    refused(bank.send("/open", token, bank.proof("/open", token, access_token=None)), "invalid_dpop_proof")
    refused(bank.send("/open", token, bank.proof("/open", bank.token(jti="b"))), "invalid_dpop_proof")
    other = bank.proof("/open", token, key=generate_dpop_key())
    before = len(bank.store.marked)
    refused(bank.send("/open", token, other), "invalid_token")
    assert len(bank.store.marked) == before  # a thief cannot fill the store


def test_attack_64_a_proof_of_another_time_or_without_a_current_nonce_is_refused(bank: Bank) -> None:
    token = bank.token()
    now = int(bank.clock())
    for seconds in (-63, 63):
        refused(bank.send("/open", token, bank.proof("/open", token, at=now + seconds)), "invalid_dpop_proof")
    for nonce in (None, "A" * 22, "é".encode().hex()):
        heard = bank.send("/open", token, bank.proof("/open", token, nonce=nonce))
        refused(heard, "use_dpop_nonce")
        assert heard.get("dpop-nonce") == bank.nonce
    held, newest = bank.nonce, ""
    for ahead, status in ((60, 200), (120, 200), (180, 401)):
        bank.clock.ahead = ahead
        heard = bank.send("/open", token, bank.proof("/open", token, nonce=held))
        assert heard.status == status
        newest = str(heard.get("dpop-nonce"))
    refused(heard, "use_dpop_nonce")
    assert bank.send("/open", token, bank.proof("/open", token, nonce=newest)).status == 200


def test_attack_65_of_many_copies_of_one_proof_one_is_accepted(
    bank: Bank, tmp_path: Path, ca: trustme.CA, server: HandIssuer
) -> None:
    token = bank.token()
    proof = bank.proof("/open", token)
    assert bank.send("/open", token, proof).status == 200
    for _ in range(3):
        refused(bank.send("/open", token, proof), "invalid_dpop_proof")
    # two machines that share store and secrets, at once
    store, fleet = SQLiteStore(tmp_path / "shared.sqlite"), TemporarySecrets()
    guards = [
        JWTAuthorization(
            server.issuer,
            bank.resource,
            network=issuer_network(server, ca, tmp_path),
            store=store,
            secrets=fleet,
        )
        for _ in range(2)
    ]
    asyncio.run(_race(bank, guards, token))
    # and one that shares nothing asks for a nonce of its own
    with open_bank(tmp_path, ca, server) as other:
        own = other.token(key=bank.key)
        refused(other.send("/open", own, bank.proof("/open", own, url=other.url("/open"))), "use_dpop_nonce")


async def _race(bank: Bank, guards: list[JWTAuthorization], token: str) -> None:
    from onym.ai.endpoint.context import AccessRequest
    from onym.errors import AIIPError
    from onym.net.messages import Headers

    def ask(proof: str) -> AccessRequest:
        fields = Headers([("Authorization", f"DPoP {token}"), ("DPoP", proof)])
        return AccessRequest(method="POST", url=bank.url("/open"), headers=fields)

    with pytest.raises(AIIPError) as stale:
        await guards[0].authorize(ask(bank.proof("/open", token)))
    for _ in range(5):
        proof = bank.proof("/open", token, nonce=stale.value.dpop_nonce)
        copies = [guards[number % 2].authorize(ask(proof)) for number in range(100)]
        ends = await asyncio.gather(*copies, return_exceptions=True)
        errors = [end for end in ends if isinstance(end, AIIPError)]
        assert len(errors) == 99
        assert {error.code for error in errors} == {"aiip.sender-constraint"}
    for guard in guards:
        await guard.close()


def test_attack_66_a_store_that_is_full_or_away_refuses_all_and_forgets_nothing(
    tmp_path: Path, ca: trustme.CA, server: HandIssuer
) -> None:
    clock = Clock()
    store = Store(limits=StoreLimits(marks=3), clock=clock)
    with open_bank(tmp_path, ca, server, store=store) as bank:
        bank.renew()
        token = bank.token()
        proofs = [bank.proof("/open", token) for _ in range(4)]
        assert [bank.send("/open", token, proof).status for proof in proofs] == [200, 200, 200, 503]
        full = bank.call("/open")
        assert (full.json()["code"], full.json()["retryable"]) == ("unavailable", True)
        for proof in proofs[:3]:
            refused(bank.send("/open", token, proof), "invalid_dpop_proof")
        assert bank.send("/open", bank.token(cnf=None), None, scheme="Bearer").status == 200
        store.broken = True
        assert bank.call("/open").json()["code"] == "unavailable"
        store.broken = False
        nonces = bank.app._exchanges.authorization._proofs._nonces
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nonces, "_secrets", SecretsAway())
            assert bank.call("/open").json()["code"] == "unavailable"
        # a store that lost its content makes the proofs of before stale
        store.lost = True
        refused(bank.call("/open"), "use_dpop_nonce")


def test_attack_66_an_id_is_short(bank: Bank) -> None:
    token = bank.token()
    for length, status in ((257, 401), (4_000, 401)):
        proof = forge(bank, token, {}, jti="i" * length)
        heard = bank.send("/open", token, proof)
        assert (heard.status, heard.json()["code"]) == (status, "sender-constraint")
    with Line(bank.line.authority, bank.ca) as line:
        fields = (("Authorization", f"DPoP {token}"), ("DPoP", forge(bank, token, {}, jti="i" * 1_000_000)))
        with contextlib.suppress(OSError):  # it may be closed before all of it was read
            assert line.ask("POST", "/open", b"", *fields).status in {400, 401}


def test_attack_67_a_token_is_not_accepted_in_another_way_than_it_is_bound(bank: Bank) -> None:
    bound, unbound = bank.token(), bank.token(cnf=None)
    refused(bank.send("/open", bound, None, scheme="Bearer"), "invalid_token")
    refused(bank.send("/open", bound, bank.proof("/open", bound), scheme="Bearer"), "invalid_token")
    refused(bank.send("/open", unbound, bank.proof("/open", unbound)), "invalid_token")
    certified = bank.token(cnf={"x5t#S256": "A" * 43})
    heard = bank.send("/open", certified, None, scheme="Bearer")
    assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
    assert 'Bearer error="invalid_token"' in challenge(heard)
    both = bank.token(cnf={"jkt": bank.key.thumbprint, "x5t#S256": "A" * 43})
    assert bank.send("/open", both, bank.proof("/open", both)).status == 401
    for cnf in ({}, {"kid": "a"}, {"jkt": bank.key.thumbprint, "jwk": {}}, {"jkt": 5}, "A" * 43):
        token = _sign(bank, cnf=cnf)
        assert bank.send("/open", token, bank.proof("/open", token)).json()["code"] == "sender-constraint"
    assert bank.send("/open", unbound, None, scheme="Bearer").status == 200


def test_attack_68_a_proof_for_another_body_or_query_has_no_effect(bank: Bank, calls: list[Call]) -> None:
    once = ("Idempotency-Key", '"pay-1"')
    cheap, dear = b'{"amount": 10}', b'{"amount": 100}'
    claim = bank.hash("/pay", cheap, "pay-1")
    for body, path, key in (
        (dear, "/pay", once),
        (cheap, "/pay?currency=EUR", once),
        (cheap, "/pay", ("Idempotency-Key", '"pay-2"')),
    ):
        heard = bank.call(path, key, body=body, request_hash=claim)
        assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
        assert heard.receipt is not None  # the caller is known
        assert 'error="invalid_dpop_proof"' in challenge(heard)
    assert calls == []
    heard = bank.call("/pay", once, body=cheap, request_hash=claim)
    assert (heard.status, heard.json()) == (200, 10)
    # wherever the claim stands, it is checked
    assert bank.call("/open", request_hash=claim).status == 401
    token = bank.token()
    described = bank.proof("/open", token, method="GET", request_hash=claim)
    assert bank.send("/open", token, described, method="GET").status == 401


def test_a_payment_needs_a_proof_of_its_body(bank: Bank, calls: list[Call]) -> None:
    once, body = ("Idempotency-Key", '"pay-3"'), b'{"amount": 1}'
    heard = bank.call("/pay", once, body=body)
    assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
    heard = bank.send("/pay", bank.token(cnf=None), None, once, body=body, scheme="Bearer")
    assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
    assert calls == []


def sign_message(
    bank: Bank, path: str, *, covered: tuple[str, ...], key: SigningKey, labels: int = 1, **parameters: Any
) -> list[tuple[str, str]]:
    """The fields of a request that is signed by RFC 9421, with a digest of its empty body."""
    url = bank.url(path)
    values = {
        "@method": "POST",
        "@target-uri": url,
        "content-digest": content_digest(b""),
        "authorization": "",
    }
    now = int(bank.clock())
    given = {"created": now, "expires": now + 60, "keyid": key.kid, "alg": "ed25519", **parameters}
    shown = ";".join(
        f"{name}={value}" if isinstance(value, int) else f'{name}="{value}"' for name, value in given.items()
    )
    input_ = f"({' '.join(f'{chr(34)}{name}{chr(34)}' for name in covered)});{shown}"
    base = "".join(f'"{name}": {values[name]}\n' for name in covered) + f'"@signature-params": {input_}'
    signature = b64encode(key.sign(base.encode())).decode()
    names = [f"sig{number}" for number in range(1, labels + 1)]
    return [
        ("Content-Digest", content_digest(b"")),
        ("Signature-Input", ", ".join(f"{name}={input_}" for name in names)),
        ("Signature", ", ".join(f"{name}=:{signature}:" for name in names)),
    ]


def test_attack_71_a_signature_of_the_message_authenticates_nobody(bank: Bank, calls: list[Call]) -> None:
    """RFC 9421: the endpoint takes no request signatures, so that no fault of one can let anybody in."""
    key = SigningKey.generate("Ed25519", kid="of-the-directory")
    every = ("@method", "@target-uri", "content-digest")
    tag = {"tag": "aiip"}
    for fields in (
        sign_message(bank, "/open", covered=every, key=key, **tag),  # as right as one can be
        sign_message(bank, "/open", covered=every[:2], key=key, **tag),  # the digest is not covered
        sign_message(bank, "/open", covered=every, key=key, tag="web-bot-auth"),  # the tag of another use
        sign_message(bank, "/open", covered=every, key=key, expires=int(bank.clock()) - 1, **tag),
        [  # a key of another directory
            *sign_message(bank, "/open", covered=every, key=key, **tag),
            ("Signature-Agent", '"https://other.example"'),
        ],
        sign_message(bank, "/open", covered=every, key=key, labels=2, **tag),
    ):
        heard = bank.line.ask("POST", "/open", b"", *fields)
        assert (heard.status, heard.json()["code"], heard.receipt) == (401, "authentication-required", None)
        assert challenge(heard).startswith("Bearer ")
        # it does not make up for what a token lacks, and a caller with a token stays who it is
        bound = bank.token()
        refused(bank.send("/open", bound, None, *fields, scheme="Bearer"), "invalid_token")
        assert calls == []
        assert bank.call("/open", *fields).status == 200
        assert calls.pop().caller.key == bank.key.thumbprint
        description = bank.line.ask("GET", "/open", b"", *fields)
        assert description.status == 200
        assert description.receipt is not None
        assert read_audience(description.receipt) == "anonymous"


def read_audience(receipt: str) -> Any:
    payload = receipt.split(".")[1]
    return json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]


def test_metrics_tell_why_proofs_are_refused_and_nothing_else(
    tmp_path: Path, ca: trustme.CA, server: HandIssuer
) -> None:
    """AIIP/HTTPS v1 3.16, and no person, token, proof or URI is a label."""
    pytest.importorskip("opentelemetry.sdk")
    from telemetry_support import Seen

    seen = Seen()
    with open_bank(tmp_path, ca, server, telemetry=seen.telemetry) as bank:
        bank.renew()
        token, unbound = bank.token(), bank.token(cnf=None)
        proof = bank.proof("/open", token)
        assert bank.send("/open", token, proof).status == 200
        for heard in (
            bank.send("/open", token, proof),
            bank.send("/open", token, bank.proof("/open", token, at=1)),
            bank.send("/open", token, bank.proof("/open", token, access_token=unbound)),
            bank.send("/open", token, "a.b.c"),
            bank.send("/open", token, forge(bank, token, {})),
            bank.send("/open", token, None, scheme="Bearer"),
            bank.send("/open", unbound, bank.proof("/open", unbound)),
            bank.send("/open", bank.token(cnf={"x5t#S256": "A" * 43}), None, scheme="Bearer"),
            bank.call("/open", token=bank.token(cnf={"kid": "a"})),
            bank.call("/open", request_hash="A" * 43),
            bank.send("/open", token, bank.proof("/open", token, nonce=None)),
        ):
            assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
        assert bank.send("/open", "no-token", None).json()["code"] == "authentication-required"
        authority = {"aiip.authority": NAME if ":" not in bank.line.authority else bank.line.authority}
        reasons = (
            "replayed", "expired", "bad-hash", "malformed", "unknown-key", "bearer", "unbound", "certificate",
            "bad-binding", "request-hash",
        )  # fmt: skip
        refusals = seen.counted("aiip.proofs.refused")
        assert {labels["aiip.proof.reason"]: count for labels, count in refusals} == dict.fromkeys(reasons, 1)
        assert all(labels.keys() == {"aiip.authority", "aiip.proof.reason"} for labels, _ in refusals)
        assert seen.counted("aiip.nonces.asked") == [(authority, 2)]
        assert seen.counted("aiip.replay.hits") == [({**authority, "aiip.replay.kind": "proof"}, 1)]
        everything = seen.everything()
        for secret in (token, proof, "user-7", str(bank.nonce), bank.key.thumbprint, "/open"):
            assert secret not in everything


# step-up


def test_a_resource_can_ask_for_a_recent_and_strong_sign_in(bank: Bank) -> None:
    """RFC 9470 3."""
    now = int(bank.clock())
    heard = bank.call("/fresh", token=bank.token(auth_time=now - 1_000))
    assert (heard.status, heard.json()["code"]) == (401, "step-up-required")
    assert 'DPoP error="insufficient_user_authentication"' in challenge(heard)
    assert 'max_age="300"' in challenge(heard)
    assert "acr_values" not in challenge(heard)
    assert heard.receipt is not None
    assert bank.call("/fresh", token=bank.token(auth_time=now - 200)).status == 200
    # AIIP/HTTPS v1 3.15, attack 40: a sign-in far in the future would stay recent for years
    assert bank.call("/fresh", token=bank.token(auth_time=now + 30)).status == 200
    assert bank.call("/fresh", token=bank.token(auth_time=now + 1_000)).status == 401
    heard = bank.call("/strong", token=bank.token(auth_time=now, acr="bronze"))
    assert 'acr_values="gold silver", max_age="300"' in challenge(heard)
    assert bank.call("/strong", token=bank.token(auth_time=now, acr="silver")).status == 200
    assert bank.call("/strong", token=bank.token(auth_time=now)).status == 401
    assert bank.call("/strong", token=bank.token(acr="gold")).status == 401
    bearer = bank.send("/fresh", bank.token(cnf=None), None, scheme="Bearer")
    assert challenge(bearer).startswith('Bearer error="insufficient_user_authentication"')
    # a description demands nothing
    token = bank.token()
    assert bank.send("/fresh", token, bank.proof("/fresh", token, method="GET"), method="GET").status == 200
    for claims in ({"acr": 5}, {"auth_time": "now"}):
        refused(bank.call("/open", token=bank.token(**claims)), "invalid_token", "authentication-required")


def test_the_result_of_a_task_asks_for_the_sign_in_of_its_resource(bank: Bank) -> None:
    """RFC 9470 3: a sign-in that is too old to begin a task does not read its result and events either."""
    now = int(bank.clock())
    new, old = (bank.token(auth_time=now - age) for age in (0, 1_000))
    task = _begin_order(bank, new)
    assert _ask_task(bank, old, "GET", task).status == 200
    for part in ("/result", "/events"):
        heard = _ask_task(bank, old, "GET", task, part)
        assert (heard.status, heard.json()["code"]) == (401, "step-up-required")
        assert 'max_age="300"' in challenge(heard)
        assert heard.receipt is not None
        assert _ask_task(bank, new, "HEAD", task, part).status in {200, 202}
        # another person learns nothing
        foreign = [
            _ask_task(bank, bank.token(auth_time=at, sub="user-8"), "GET", name, part)
            for at in (now, now - 1_000)
            for name in (task, "x" * 32)
        ]
        told = {(one.status, one.receipt, json.dumps(one.json() | {"instance": None})) for one in foreign}
        assert len(told) == 1
        assert foreign[0].json()["code"] == "task-not-found"


def test_what_changes_a_task_is_bound_as_closely_as_its_resource_demands(bank: Bank) -> None:
    """Financial and physical effects: DELETE and input need a proof that covers them."""
    token = bank.token(auth_time=int(bank.clock()))
    task = _begin_order(bank, token)
    while _ask_task(bank, token, "GET", task).json()["state"] != "input-required":
        pass
    changes = [("POST", "/input", b'{"amount": 5}'), ("DELETE", "", b"")]
    for method, part, body in changes:
        heard = _ask_task(bank, token, method, task, part, body)
        assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
    assert _ask_task(bank, token, "GET", task).json()["state"] == "input-required"
    for method, part, body in changes:
        rqh = request_hash(
            method=method,
            target=f"task:{task}{part}",
            digest=content_digest(body) if body else None,
            content_type="application/json" if body else None,
            idempotency_key=None,
        )
        assert _ask_task(bank, token, method, task, part, body, request_hash=rqh).status in {202, 409}


def _begin_order(bank: Bank, token: str) -> str:
    name = secrets.token_hex(8)
    proof = bank.proof("/order", token, request_hash=bank.hash("/order", b"", name))
    fields = (("Prefer", "respond-async"), ("Idempotency-Key", f'"{name}"'))
    heard = bank.send("/order", token, proof, *fields)
    assert heard.status == 202
    return str(heard.json()["id"])


def _ask_task(
    bank: Bank, token: str, method: str, task: str, part: str = "", body: bytes = b"", **changes: Any
) -> Heard:
    target = f"/.well-known/aiip/tasks/{task}{part}"
    proof = bank.proof("", token, method=method, url=f"https://{bank.line.authority}{target}", **changes)
    fields = [("Authorization", f"DPoP {token}"), ("DPoP", proof), *([JSON] if body else [])]
    # a connection of its own, because a refusal closes it if the body was not read
    with Line(bank.line.authority, bank.ca) as line:
        return line.ask(method, target, body, *fields, service=False)
