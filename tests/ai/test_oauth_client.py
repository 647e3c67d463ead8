"""The OAuth client against a real authorization server (npm's oidc-provider), which demands DPoP nonces.

The server and the client share nothing but the standards: what it accepts and what it issues is its own code.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import authority_ca, trust
from oauth_support import AuthorizationServer, authorization_server
from onym.ai.exchange import DPoPNonces
from onym.ai.oauth import OAuthClient, Target
from onym.ai.oauth_metadata import Registration, fetch_server_metadata
from onym.ai.records import Level
from onym.ai.settings import ResolverSettings
from onym.errors import AuthorizationError
from onym.net.config import NetConfig
from onym.net.connections import hash_client_certificate
from onym.net.limits import ClientIdentity
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.sign.dpop import generate_dpop_key
from onym.sign.keys import SigningKey
from onym.uri.secret import Secret

pytestmark = pytest.mark.xdist_group("oauth client")

BANK = "https://bank.example/.well-known/aiip/v1"
GATEWAY = "https://gw.example"
SECRET = "a-secret-of-the-tests-4711"
REDIRECT = "https://gw.example/auth/callback"
LOOPBACK = "http://127.0.0.1:4711/callback"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
READ = Target(resource=BANK, scopes=("balance:read",), dpop=Level.REQUIRED)


class World:
    """The authority's server, the OpenID provider of the people, and a client of both."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.ca: trustme.CA = authority_ca()
        self.key = SigningKey.generate("ES256", kid="of-the-client")
        issued = self.ca.issue_cert("client.example")
        self.identity = ClientIdentity(cert=str(folder / "client.pem"))
        issued.private_key_and_cert_chain_pem.write_to_path(self.identity.cert)
        der = ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())
        grants = ["client_credentials", "authorization_code", "refresh_token", EXCHANGE, BEARER, DEVICE]
        web = {
            "grant_types": grants,
            "redirect_uris": [REDIRECT],
            "response_types": ["code"],
            "authorization_details_types": ["aiip_invoke"],
        }
        clients: list[dict[str, Any]] = [
            {"client_id": "shop", "client_secret": SECRET, **web},
            {
                "client_id": "poster",
                "client_secret": SECRET,
                "token_endpoint_auth_method": "client_secret_post",
                **web,
            },
            {
                "client_id": "signer",
                "token_endpoint_auth_method": "private_key_jwt",
                "jwks": {"keys": [self.key.public()]},
                **web,
            },
            {
                "client_id": "certified",
                "token_endpoint_auth_method": "self_signed_tls_client_auth",
                "tls_client_certificate_bound_access_tokens": True,
                "jwks": {"keys": [_certificate_jwk(issued, der)]},
                "grant_types": ["client_credentials"],
                "redirect_uris": [],
                "response_types": [],
            },
            {
                "client_id": "cli",
                "token_endpoint_auth_method": "none",
                "application_type": "native",
                "grant_types": ["authorization_code", "refresh_token", DEVICE],
                "redirect_uris": ["http://127.0.0.1/callback"],
                "response_types": ["code"],
            },
        ]
        self.settings = ResolverSettings(timeout=120)
        self.wire = stack.enter_context(
            Transport(NetConfig(policy=Policy.local(), tls=trust(self.ca, folder)))
        )
        self.folder = folder
        self.provider: AuthorizationServer = stack.enter_context(
            authorization_server(
                self.ca,
                clients=clients[:1],
                resources={},
                audiences={"https://localhost": "shop"},
                id_jag=FAULTS,
            )
        )
        self.server: AuthorizationServer = stack.enter_context(
            authorization_server(
                self.ca,
                clients=clients,
                resources={BANK: "balance:read pay", GATEWAY: "use"},
                identity_provider={"issuer": self.provider.issuer, "jwks": self.provider.jwks},
                client_ca=self.ca.cert_pem.bytes().decode(),
            )
        )

    def client(
        self, name: str = "shop", *, server: AuthorizationServer | None = None, **more: Any
    ) -> OAuthClient:
        keys: dict[str, Any] = {
            "shop": {"secret": Secret(SECRET)},
            "poster": {"secret": Secret(SECRET), "method": "client_secret_post"},
            "signer": {"key": self.key},
            "certified": {"identity": self.identity, "method": "self_signed_tls_client_auth"},
            "cli": {},
        }[name]
        issuer = (server or self.server).issuer
        row = Registration(issuer=issuer, client_id=name, **{**keys, **more.pop("row", {})})
        return OAuthClient(
            **{"registration": row, "settings": self.settings, "dpop_key": generate_dpop_key(), **more}
        )

    def run(self, flow: Any) -> Any:
        return run_flow(flow, self.wire)

    def sign_in(
        self, client: OAuthClient, target: Target, login: str = "ada", redirect: str = REDIRECT, **more: str
    ) -> Any:
        begun = self.run(client.begin_code_flow(target, redirect_uri=redirect, parameters=more))
        return self.run(client.finish_code_flow(begun, Secret(self.server.sign_in(begun.url, login))))


def _certificate_jwk(issued: trustme.LeafCert, der: bytes) -> dict[str, Any]:
    """The public key of a certificate as a JWK with `x5c`, as RFC 8705 2.2 has it."""
    from base64 import b64encode

    from joserfc.jwk import ECKey

    public = ECKey.import_key(issued.private_key_pem.bytes()).as_dict(private=False)
    return {**public, "x5c": [b64encode(der).decode()]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("oauth"), stack)


def claims(token: Secret) -> dict[str, Any]:
    body = token.reveal().split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


@pytest.mark.parametrize("name", ["shop", "poster", "signer"])
def test_a_client_gets_a_bound_token_by_each_way_to_prove_who_it_is(world: World, name: str) -> None:
    client = world.client(name)
    grant = world.run(client.request_client_credentials(READ))
    assert client.dpop_key is not None
    found = claims(grant.token)
    assert found["cnf"] == {"jkt": client.dpop_key.thumbprint}
    assert (found["aud"], found["scope"], found["client_id"]) == (BANK, "balance:read", name)
    assert (grant.scopes, grant.dpop_key) == ({"balance:read"}, client.dpop_key)
    assert 0 < grant.expires - time.time() <= 600


def test_a_nonce_is_answered_once_and_kept_for_the_next_proof(world: World) -> None:
    sent: list[Any] = []
    client = world.client()
    for _ in range(2):
        flow = client.request_client_credentials(READ)
        step = next(flow)
        while True:
            sent.append(step.request)
            try:
                step = flow.send(world.wire.send(step))
            except StopIteration:
                break
    posts = [request for request in sent if request.method == "POST"]
    assert len(posts) == 3  # refused for its nonce, again with it; the second token at once
    proofs = [dict(request.headers)["DPoP"] for request in posts]
    nonces = [claims(proof).get("nonce") for proof in proofs]
    assert nonces[0] is None
    assert nonces[1] == nonces[2] is not None
    assert len({claims(proof)["jti"] for proof in proofs}) == 3
    assert all(claims(proof)["htu"] == f"{world.server.issuer}/token" for proof in proofs)


def test_coroutines_get_tokens_by_the_same_flows(world: World) -> None:
    async def ask() -> Any:
        network = NetConfig(policy=Policy.local(), tls=trust(world.ca, world.folder))
        async with AsyncTransport(network) as wire:
            return await arun_flow(world.client().request_client_credentials(READ), wire)

    assert asyncio.run(ask()).scopes == {"balance:read"}


def test_without_a_key_the_token_is_a_bearer_token_and_never_one_where_dpop_is_required(world: World) -> None:
    client = world.client(dpop_key=None)
    plain = replace(READ, dpop=Level.SUPPORTED)
    grant = world.run(client.request_client_credentials(plain))
    assert (grant.dpop_key, "cnf" in claims(grant.token)) == (None, False)
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.request_client_credentials(READ))
    assert caught.value.code == "aiip.downgrade-detected"


def test_a_certificate_authenticates_the_client_and_binds_its_token(world: World) -> None:
    client = world.client("certified", dpop_key=None)
    target = replace(READ, dpop=Level.NONE, mtls=True)
    grant = world.run(client.request_client_credentials(target))
    assert claims(grant.token)["cnf"] == {"x5t#S256": hash_client_certificate(world.identity)}
    # the same client without the certificate is nobody
    with pytest.raises(AuthorizationError) as caught:
        world.run(
            world.client(
                "certified", dpop_key=None, row={"identity": None, "method": "none"}
            ).request_client_credentials(target)
        )
    assert caught.value.oauth_error == "invalid_client"


def test_a_person_signs_in_with_par_and_pkce_and_the_token_is_refreshed(world: World) -> None:
    client = world.client("cli")
    target = Target(
        resource=BANK, scopes=("balance:read", "pay", "openid", "offline_access"), dpop=Level.REQUIRED
    )
    begun = world.run(client.begin_code_flow(target, redirect_uri=LOOPBACK, parameters={"prompt": "consent"}))
    assert "request_uri=" in begun.url
    assert begun.state.reveal() not in begun.url
    grant = world.run(client.finish_code_flow(begun, Secret(world.server.sign_in(begun.url, "ada"))))
    assert claims(grant.token)["sub"] == world.server.subject("ada")
    assert grant.scopes == {"balance:read", "pay"}
    renewed = world.run(client.refresh(grant.refresh_token, READ))
    assert renewed.scopes == {"balance:read"}
    assert renewed.token != grant.token
    # the refresh token was used: the server takes neither it nor its successor again
    for token in (grant.refresh_token, renewed.refresh_token):
        with pytest.raises(AuthorizationError) as caught:
            world.run(client.refresh(token, READ))
        assert (caught.value.code, caught.value.oauth_error) == (
            "aiip.authentication-required",
            "invalid_grant",
        )


def test_a_code_is_good_once_for_its_own_client_and_verifier(world: World) -> None:
    client = world.client()
    target = Target(resource=GATEWAY, scopes=("use",))
    begun = world.run(client.begin_code_flow(target, redirect_uri=REDIRECT))
    back = world.server.sign_in(begun.url, "ada")
    # injected into a sign-in of somebody else: state, then the verifier
    other = world.run(client.begin_code_flow(target, redirect_uri=REDIRECT))
    with pytest.raises(AuthorizationError):
        world.run(client.finish_code_flow(other, Secret(back)))
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.finish_code_flow(replace(other, state=begun.state), Secret(back)))
    assert caught.value.oauth_error == "invalid_grant"
    # replayed
    begun = world.run(client.begin_code_flow(target, redirect_uri=REDIRECT))
    back = world.server.sign_in(begun.url, "ada")
    assert world.run(client.finish_code_flow(begun, Secret(back))).scopes == {"use"}
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.finish_code_flow(begun, Secret(back)))
    assert caught.value.oauth_error == "invalid_grant"


def test_a_redirect_to_another_url_or_from_another_issuer_is_not_redeemed(world: World) -> None:
    client = world.client()
    target = Target(resource=GATEWAY, scopes=("use",))
    begun = world.run(client.begin_code_flow(target, redirect_uri=REDIRECT))
    back = world.server.sign_in(begun.url, "ada")
    issuer = f"iss={world.server.issuer.replace(':', '%3A').replace('/', '%2F')}"
    assert issuer in back  # RFC 9207
    wrong = [
        back.replace("/auth/callback", "/auth/callback/evil"),
        back.replace("/auth/callback", "/auth/callbackevil"),
        back.replace("gw.example", "gw.example.evil.example"),
        back.replace(issuer, "iss=https%3A%2F%2Fevil.example"),
        back.replace(f"&{issuer}", ""),
        f"{back}&code=another",
        f"{back}{'&a=b' * 40}",
        f"{REDIRECT}?state={begun.state.reveal()}&{issuer}",
        f"{REDIRECT}?error=access_denied&state={begun.state.reveal()}&{issuer}",
    ]
    for url in wrong:
        with pytest.raises(AuthorizationError) as caught:
            world.run(client.finish_code_flow(begun, Secret(url)))
        assert caught.value.code == "aiip.authorization-unavailable"
        assert begun.state.reveal() not in str(caught.value)
    assert world.run(client.finish_code_flow(begun, Secret(back))).scopes == {"use"}


def test_pkce_cannot_be_left_out_of_a_request(world: World) -> None:
    # a server that takes no S256, and the real one for a request without a challenge
    client = world.client()
    server = world.run(client.fetch_server())
    assert server.challenge_methods == {"S256"}
    reply = world.run(
        client._post(
            server,
            "pushed_authorization_request_endpoint",
            {"client_id": "shop", "response_type": "code", "redirect_uri": REDIRECT},
        )
    )
    assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_request")


def test_a_person_may_refuse(world: World) -> None:
    client = world.client()
    begun = world.run(
        client.begin_code_flow(Target(resource=GATEWAY, scopes=("use",)), redirect_uri=REDIRECT)
    )
    back = world.server.sign_in(begun.url, "refuses")
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.finish_code_flow(begun, Secret(back)))
    assert "access_denied" in caught.value.message


def test_a_person_signs_in_on_another_device(world: World) -> None:
    client = world.client("cli")
    begun = world.run(client.begin_device_flow(READ))
    assert begun.verification_uri == f"{world.server.issuer}/device"
    waits: list[float] = []

    def decide(seconds: float) -> None:
        # the first question comes before the person has decided
        waits.append(seconds)
        if len(waits) == 2:
            world.server.approve_device(begun.verification_uri_complete or "", "bob")

    grant = run_flow(client.finish_device_flow(begun), world.wire, sleep=decide)
    assert claims(grant.token)["sub"] == world.server.subject("bob")
    assert waits == [5.0, 5.0]
    assert grant.dpop_key is client.dpop_key


def test_a_device_sign_in_ends_when_its_time_is_over(world: World) -> None:
    client = world.client("cli")
    begun = replace(world.run(client.begin_device_flow(READ)), expires=time.time() - 1)
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.finish_device_flow(begun))
    assert caught.value.code == "aiip.authorization-unavailable"


@pytest.mark.requirement("ai-gateway-i")
def test_a_persons_token_is_exchanged_for_one_that_names_the_actor(world: World) -> None:
    client = world.client()
    mine = world.sign_in(client, Target(resource=GATEWAY, scopes=("use",)))
    details = ({"type": "aiip_invoke", "uri": "ai://bank.example/account/pay", "effects": "financial"},)
    target = Target(resource=BANK, scopes=("pay",), dpop=Level.REQUIRED, details=details)
    grant = world.run(client.exchange_token(mine.token, target))
    found = claims(grant.token)
    assert (found["sub"], found["act"]["sub"], found["aud"]) == (world.server.subject("ada"), "shop", BANK)
    assert found["authorization_details"] == list(details)
    assert client.dpop_key is not None
    assert found["cnf"] == {"jkt": client.dpop_key.thumbprint}
    # a resource that the server does not know
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.exchange_token(mine.token, replace(target, resource="https://other.example")))
    assert (caught.value.code, caught.value.oauth_error) == (
        "aiip.authorization-unavailable",
        "invalid_target",
    )


#: what is wrong with an ID-JAG, by the login of the person whom it is for
FAULTS: dict[str, dict[str, Any]] = {
    "wrong-type": {"typ": "JWT"},
    "wrong-audience": {"aud": "https://other.example"},
    "two-audiences": {"aud": ["https://localhost", "https://other.example"]},
    "wrong-client": {"client_id": "other"},
    "wrong-issuer": {"iss": "https://other.example"},
    "expired": {"seconds": -120},
    "too-long": {"seconds": 86400},
    "wider-scope": {"scope": "balance:read pay"},
    "other-resource": {"resource": "https://other.example"},
    "other-key": {"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}},
    "unknown-binding": {"cnf": {"kid": "1"}},
}


def assert_person(world: World, login: str) -> tuple[OAuthClient, Any]:
    """The client at the authority's server, and the flow that gets a person's ID-JAG from the provider."""
    key = generate_dpop_key()
    there, home = world.client(dpop_key=key), world.client(dpop_key=key, server=world.provider)
    begun = world.run(home.begin_code_flow(Target(resource=None, scopes=("openid",)), redirect_uri=REDIRECT))
    person = world.run(home.finish_code_flow(begun, Secret(world.provider.sign_in(begun.url, login))))
    flow = home.request_id_jag(person.id_token, READ, audience=world.server.issuer, client_id="shop")
    return there, flow


@pytest.mark.requirement("ai-gateway-i")
def test_an_identity_assertion_of_the_provider_is_redeemed_once_at_the_authoritys_server(
    world: World,
) -> None:
    client, flow = assert_person(world, "ada")
    assertion = world.run(flow)
    found = claims(assertion)
    assert (found["aud"], found["client_id"], found["resource"]) == (world.server.issuer, "shop", BANK)
    grant = world.run(client.redeem_id_jag(assertion, READ))
    assert claims(grant.token)["sub"] == world.server.subject("ada")
    assert grant.dpop_key is client.dpop_key
    for again in (client, replace(client, dpop_key=generate_dpop_key())):  # used, and with another key
        with pytest.raises(AuthorizationError) as caught:
            world.run(again.redeem_id_jag(assertion, READ))
        assert (caught.value.code, caught.value.oauth_error) == (
            "aiip.authentication-required",
            "invalid_grant",
        )


def test_a_wrong_identity_assertion_is_refused_by_us_and_by_the_server(
    world: World, subtests: pytest.Subtests
) -> None:
    ours_alone = {"too-long", "wider-scope", "other-resource", "two-audiences", "unknown-binding"}
    for login in FAULTS:
        with subtests.test(login):
            client, flow = assert_person(world, login)
            kept: list[Secret] = []
            with pytest.raises(AuthorizationError) as caught:
                world.run(spy_on_token(flow, kept))
            assert caught.value.code == "aiip.authorization-invalid"
            (assertion,) = kept
            assert assertion.reveal() not in repr(vars(caught.value)) + str(caught.value)
            if login in ours_alone:
                continue
            with pytest.raises(AuthorizationError) as caught:
                world.run(client.redeem_id_jag(assertion, READ))
            assert caught.value.oauth_error == "invalid_grant"


def spy_on_token(flow: Any, kept: list[Secret]) -> Any:
    """The flow; `kept` gets the token of the response to its token request."""
    step = next(flow)
    while True:
        reply = yield step
        if step.request.method == "POST" and reply.status == 200:
            kept.append(Secret(json.loads(reply.body)["access_token"]))
        try:
            step = flow.send(reply)
        except StopIteration as stop:
            return stop.value


def test_a_server_that_does_not_know_the_audience_issues_no_assertion(world: World) -> None:
    home = world.client(server=world.provider)
    begun = world.run(home.begin_code_flow(Target(resource=None, scopes=("openid",)), redirect_uri=REDIRECT))
    person = world.run(home.finish_code_flow(begun, Secret(world.provider.sign_in(begun.url, "ada"))))
    with pytest.raises(AuthorizationError) as caught:
        world.run(
            home.request_id_jag(person.id_token, READ, audience="https://unknown.example", client_id="shop")
        )
    assert caught.value.oauth_error == "invalid_target"


def test_a_token_is_revoked(world: World) -> None:
    client = world.client("cli")
    target = Target(resource=BANK, scopes=("balance:read", "openid", "offline_access"))
    grant = world.sign_in(client, target, redirect=LOOPBACK, prompt="consent")
    assert world.run(client.revoke(grant.refresh_token)) is True
    with pytest.raises(AuthorizationError) as caught:
        world.run(client.refresh(grant.refresh_token, READ))
    assert caught.value.oauth_error == "invalid_grant"


def test_a_wrong_secret_is_told_without_the_secret(world: World) -> None:
    wrong = "not-the-secret-of-anybody-0815"
    with pytest.raises(AuthorizationError) as caught:
        world.run(world.client(row={"secret": Secret(wrong)}).request_client_credentials(READ))
    assert caught.value.oauth_error == "invalid_client"
    assert wrong not in repr(vars(caught.value)) + str(caught.value)


def test_a_scope_that_the_client_may_not_have_is_not_granted(world: World) -> None:
    grant = world.run(
        world.client().request_client_credentials(replace(READ, scopes=("balance:read", "root")))
    )
    assert grant.scopes == {"balance:read"}  # fewer than asked for: the resource decides


def test_the_metadata_is_fetched_once(world: World) -> None:
    settings = ResolverSettings(timeout=120)
    row = Registration(issuer=world.server.issuer, client_id="shop")
    first = world.run(fetch_server_metadata(row, settings))
    flow = fetch_server_metadata(row, settings)
    with pytest.raises(StopIteration) as stopped:
        next(flow)
    assert stopped.value.value == first
    assert first.token_endpoint == f"{world.server.issuer}/token"
    assert first.names_issuer


def test_nonces_are_kept_by_origin_and_only_good_ones() -> None:
    from onym.net.messages import Headers, Origin

    nonces, here, there = (
        DPoPNonces(limit=1),
        Origin("https", "a.example", 443),
        Origin("https", "b.example", 443),
    )
    assert nonces.update(here, Headers([("DPoP-Nonce", "one")]))
    assert nonces.update(here, Headers([("DPoP-Nonce", "one")]))  # another request may have got it first
    for bad in ("", 'a"b', "x" * 600, "a b"):
        assert not nonces.update(here, Headers([("DPoP-Nonce", bad)]))
    assert not nonces.update(here, Headers([("DPoP-Nonce", "one"), ("DPoP-Nonce", "two")]))
    assert (nonces.get(here), nonces.get(there)) == ("one", None)
    assert nonces.update(there, Headers([("DPoP-Nonce", "two")]))
    assert (nonces.get(here), nonces.get(there)) == (None, "two")
