"""Clients with tokens that are bound to them, at a running endpoint: Onym's own, and npm `oauth4webapi`.

The authorization server is npm `oidc-provider`, which binds its tokens and demands DPoP nonces as well.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trustme

from ai_factory import Factory
from ai_support import authority_ca, key_store, names_resolver, serve_asgi, trust
from nginx_support import forward_client_certificates, nginx
from oauth_support import AuthorizationServer, authorization_server
from onym.ai import AIClient, ResolverSettings
from onym.ai.credentials import ClientCredentials
from onym.ai.endpoint import Call, Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.oauth_metadata import Registration
from onym.errors import AIIPError, InvocationError
from onym.net.config import NetConfig
from onym.net.connections import hash_client_certificate
from onym.net.limits import ClientIdentity
from onym.net.policy import Policy
from onym.net.transport import Transport
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import access_token_hash, verify_filed
from onym.uri.secret import Secret
from openid_support import independent_client

pytestmark = pytest.mark.xdist_group("oauth client")

NAME = "bank.localhost"
SECRET = "a-secret-of-the-tests-4711"
POLICY = "permit(principal, action, resource);"
#: how a bank is reached: its own TLS, or nginx that passes client certificates on
Front = Literal["dpop", "mtls", "nginx"]


#: what the examples show, and the tests replace
SHOWN = {"authority": "bank.localhost:8443", "certificate": "client.pem"}
EXAMPLES = Path(__file__).parents[3] / "docs_src"


class Door:
    """An ASGI app that knows its endpoint only when the port is known."""

    app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.app(scope, receive, send)


@dataclass
class Bank:
    """A running endpoint, its authorization server, and the certificate of its client."""

    front: Front
    authority: str
    server: AuthorizationServer
    identity: ClientIdentity
    folder: Path
    ca: trustme.CA
    keys: Any
    door: Door
    calls: list[Call] = field(default_factory=list)

    @property
    def resource(self) -> str:
        return f"https://{self.authority}/.well-known/aiip/v1"

    @property
    def factory(self) -> Factory:
        return Factory(self.door.app, self.authority, self.keys, self.folder, self.ca)

    @property
    def settings(self) -> ResolverSettings:
        return ResolverSettings(dns=False, timeout=600.0)

    def options(self) -> dict[str, Any]:
        """The options of a client that has a token of its own."""
        if self.front == "dpop":
            row = Registration(issuer=self.server.issuer, client_id="shop", secret=Secret(SECRET))
            return {"credentials": ClientCredentials([row], settings=self.settings)}
        row = Registration(
            issuer=self.server.issuer,
            client_id="certified",
            method="self_signed_tls_client_auth",
            identity=self.identity,
        )
        credentials = ClientCredentials([row], settings=self.settings)
        return {"credentials": credentials, "identity": self.identity}

    def check_caller(self, call: Call) -> None:
        """The endpoint knows the sender by its key or its certificate."""
        if self.front == "dpop":
            assert call.caller.client_id == "shop"
            assert call.caller.key is not None
            assert call.caller.proof_request_hash == call.request_hash
        else:
            assert call.caller.client_id == "certified"
            assert call.caller.certificate == hash_client_certificate(self.identity)


def _certificate_jwk(issued: trustme.LeafCert) -> dict[str, Any]:
    """The public key of a certificate as a JWK with `x5c` (RFC 8705 2.2)."""
    from joserfc.jwk import ECKey

    der = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
    public = ECKey.import_key(issued.private_key_pem.bytes()).as_dict(private=False)
    return {**public, "x5c": [b64encode(der).decode()]}


def open_bank(front: Front, folder: Path, stack: ExitStack) -> Bank:
    ca = authority_ca()
    authorities, own = folder / "clients.pem", folder / "server.pem"
    ca.cert_pem.write_to_path(str(authorities))
    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(str(own))
    issued = ca.issue_cert("client.example")
    identity = ClientIdentity(cert=str(folder / "client.pem"))
    issued.private_key_and_cert_chain_pem.write_to_path(identity.cert)
    door = Door()
    if front == "nginx":
        inner = stack.enter_context(serve_asgi(door, NAME, certificate_proxies=["127.0.0.1"]))
        port = stack.enter_context(nginx(inner, **forward_client_certificates(own, authorities)))
    else:
        more = {"client_ca": authorities} if front == "mtls" else {}
        port = stack.enter_context(serve_asgi(door, NAME, ca=ca, **more))
    authority = f"{NAME}:{port}"
    resource = f"https://{authority}/.well-known/aiip/v1"
    clients: list[dict[str, Any]] = [
        {"client_id": "shop", "client_secret": SECRET, "dpop_bound_access_tokens": front == "dpop"},
        {
            "client_id": "certified",
            "token_endpoint_auth_method": "self_signed_tls_client_auth",
            "tls_client_certificate_bound_access_tokens": True,
            "jwks": {"keys": [_certificate_jwk(issued)]},
        },
    ]
    grants = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    server = stack.enter_context(
        authorization_server(
            ca,
            clients=[{**client, **grants} for client in clients],
            resources={resource: "pay transfer"},
            client_ca=authorities.read_text(),
        )
    )
    guard = JWTAuthorization(
        server.issuer,
        resource,
        scopes=["pay"],
        network=NetConfig(policy=Policy.local(), tls=trust(ca, folder)),
        dpop="required" if front == "dpop" else "none",
        mtls=front != "dpop",
    )
    keys, calls = key_store(folder), list[Call]()
    app = Endpoint(authority, keys=keys, authorization=guard, store=folder / "keys.sqlite", policy=POLICY)

    @app.resource("/tool/add", scopes=["pay"])
    async def add(call: Call, a: int, b: int) -> int:
        calls.append(call)
        return a + b

    @app.resource("/agent/pay", effects="financial", scopes=["pay"])
    async def pay(call: Call, amount: int) -> int:
        calls.append(call)
        return amount

    door.app = app
    return Bank(front, authority, server, identity, folder, ca, keys, door, calls)


@pytest.fixture(scope="module", params=["dpop", "mtls", "nginx"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with ExitStack() as stack:
        yield open_bank(request.param, tmp_path_factory.mktemp(request.param), stack)


@pytest.fixture
def bank(shared: Bank) -> Bank:
    shared.calls.clear()
    return shared


def test_our_client_proves_itself_and_pays(bank: Bank) -> None:
    """A5 and 4.4: with a DPoP key, nonces and `rqh`, or with a certificate, which nginx may pass on."""
    factory = bank.factory
    with factory.client(allow_effects=["read", "financial"], **bank.options()) as client:
        result = client.invoke(factory.uri("/tool/add"), {"a": 2, "b": 3})
        assert (result.status, result.json()) == (200, 5)
        for amount in (10, 20):
            paid = client.invoke(factory.uri("/agent/pay"), {"amount": amount})
            assert paid.json() == amount
        assert paid.receipt is not None
        assert paid.receipt.token_hash == bank.calls[-1].caller.token_hash
    assert len(bank.calls) == 3
    for call in bank.calls:
        bank.check_caller(call)


def test_our_client_of_coroutines_proves_itself_and_pays(bank: Bank) -> None:
    factory = bank.factory

    async def work() -> None:
        async with factory.aclient(allow_effects=["read", "financial"], **bank.options()) as client:
            assert (await client.invoke(factory.uri("/agent/pay"), {"amount": 7})).json() == 7
            assert (await client.invoke(factory.uri("/tool/add?a=1"), {"b": 1})).json() == 2

    asyncio.run(work())
    for call in bank.calls:
        bank.check_caller(call)


def test_our_client_without_a_way_to_prove_itself_calls_nothing(bank: Bank) -> None:
    factory = bank.factory
    options = bank.options() if bank.front != "dpop" else {}
    options.pop("identity", None)
    with factory.client(**options) as client, pytest.raises((AIIPError, InvocationError)) as caught:
        client.invoke(factory.uri("/tool/add"), {"a": 2, "b": 3})
    assert caught.value.code in {
        "aiip.authentication-required",
        "aiip.sender-constraint",
        "aiip.authorization-unavailable",
    }
    assert bank.calls == []


@pytest.mark.parametrize("shared", ["dpop"], indirect=True)
def test_an_independent_client_proves_itself_with_a_nonce_of_each_server(bank: Bank) -> None:
    """A4: oauth4webapi gets a token that is bound to its key, is asked for a nonce, and is answered."""
    bank.ca.cert_pem.write_to_path(str(bank.folder / "ca.pem"))
    nonce = secrets.token_urlsafe(16)
    said = independent_client(
        "client.mjs",
        {
            "url": f"{bank.resource}/{bank.authority}/tool/add",
            "resource": bank.resource,
            "client_id": "shop",
            "client_secret": SECRET,
            "scope": "pay",
            "body": '{"a":2,"b":3}',
            "nonce": nonce,
            "dpop": True,
        },
        bank.folder / "ca.pem",
    )
    assert said["bare"] == 401
    assert said["metadata"]["dpop_bound_access_tokens_required"] is True
    # each server asked once; the second call had the nonce already
    assert said["retries"] == {"token": 1, "resource": 1}
    assert (said["status"], json.loads(said["body"]), said["again"]) == (200, 5, 200)
    claims = json.loads(urlsafe_b64decode(said["token"].split(".")[1] + "=="))
    call = bank.calls[-1]
    assert claims["cnf"] == {"jkt": call.caller.key}
    assert call.caller.proof_request_hash is None  # a foreign client knows no `rqh`, and reads without it
    keys = read_authority_keys(bank.keys.jwks(time.time()))
    receipt = verify_filed(said["headers"]["aiip-receipt"], keys, body=said["body"].encode())
    assert (receipt.audience, receipt.nonce) == ("shop", nonce)
    assert receipt.token_hash == access_token_hash(said["token"])


# the examples of docs/how-to/protect-a-resource.md


def load_example(name: str, **changes: str) -> dict[str, Any]:
    """The names of an example whose texts are changed; it sees the environment as it is."""
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        source = source.replace(SHOWN[old], new)
    found: dict[str, Any] = {}
    exec(compile(source, name, "exec"), found)
    return found


def load_client(bank: Bank, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> dict[str, Any]:
    """The client of the page, which finds and trusts this bank."""
    network = NetConfig(
        policy=Policy.local(),
        tls=trust(bank.ca, bank.folder),
        resolver=names_resolver({NAME: "127.0.0.1", "localhost": "127.0.0.1"}),
    )
    wire = stack.enter_context(Transport(network))
    monkeypatch.setattr("onym.ai.AIClient", partial(AIClient, bank.settings, transport=wire))
    monkeypatch.setenv("ISSUER", bank.server.issuer)
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    return load_example("ai_transfer_client.py", certificate=bank.identity.cert)


def test_the_client_of_the_page_proves_itself_with_a_key_or_a_certificate(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        client = load_client(bank, monkeypatch, stack)
        call = client["call_with_proof" if bank.front == "dpop" else "call_with_certificate"]
        assert call(f"ai://{bank.authority}/tool/add", {"a": 2, "b": 3}) == 5
    bank.check_caller(bank.calls[-1])


@pytest.mark.parametrize("shared", ["dpop"], indirect=True)
def test_the_bank_of_the_page_wants_proofs_and_recent_sign_ins(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = NetConfig(policy=Policy.local(), tls=trust(bank.ca, tmp_path))
    own = partial(JWTAuthorization, network=network)
    monkeypatch.setattr("onym.ai.endpoint.oauth.JWTAuthorization", own)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        client = load_client(bank, monkeypatch, stack)
        page = load_example("ai_transfers.py", authority=bank.authority)["app"]
        page.sign_with(key_store(tmp_path))
        before, bank.door.app = bank.door.app, page
        stack.callback(setattr, bank.door, "app", before)
        stack.callback(page.close)
        base = f"ai://{bank.authority}/account"
        paid = client["call_with_proof"](f"{base}/transfer", {"cents": 5, "to": "ann"})
        assert paid == {"client": "shop", "cents": 5, "to": "ann"}
        with pytest.raises(InvocationError) as caught:
            client["call_with_proof"](f"{base}/limit", {})
        assert caught.value.code == "aiip.step-up-required"
        assert "urn:example:mfa" in str(caught.value.hint)
