"""Authorization servers and resources that lie: what they say is refused, and nothing goes to a stranger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from oauth_support import (
    BANK,
    KEY,
    METADATA,
    REFRESH,
    SECRET,
    SUBJECT,
    Liar,
    hand_issuer,
    obtain,
    refused,
    resolution,
)
from onym.ai.credentials import AssertedCredentials, ClientCredentials, ExchangedCredentials, TokenCache
from onym.ai.exchange import explain_challenge, find_challenge, parse_challenges
from onym.ai.oauth import ACCESS_TOKEN_TYPE, ID_JAG_TYPE, OAuthClient, Target
from onym.ai.oauth_metadata import (
    Registration,
    choose_registration,
    fetch_resource_metadata,
    fetch_server_metadata,
)
from onym.ai.records import Auth, Level
from onym.ai.settings import ResolverSettings
from onym.errors import AuthorizationError, DeadlineExceeded, InvocationError, UsageError
from onym.net.config import NetConfig
from onym.net.messages import Headers
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.sign.dpop import generate_dpop_key
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey
from onym.uri.secret import Secret

pytestmark = pytest.mark.xdist_group("oauth client")

READ = Target(resource=BANK, scopes=("read",), dpop=Level.REQUIRED)
OTHER_KEY = generate_dpop_key()


@pytest.fixture
def liar() -> Iterator[Liar]:
    with hand_issuer(Liar) as server:
        assert isinstance(server, Liar)
        server.publish()
        yield server


@pytest.fixture(scope="module")
def wire() -> Iterator[Transport]:
    with Transport(NetConfig(policy=Policy.local())) as found:
        yield found


def client(liar: Liar, **more: Any) -> OAuthClient:
    row = Registration(issuer=liar.issuer, client_id="shop", secret=Secret(SECRET), **more.pop("row", {}))
    return OAuthClient(
        **{"registration": row, "dpop_key": KEY, "settings": ResolverSettings(timeout=120), **more}
    )


# --- attack 55: who is asked at all ---


def every_kind(rows: list[Registration]) -> list[Any]:
    subject = Secret(SUBJECT)
    return [
        ClientCredentials(rows),
        ExchangedCredentials(rows, subject),
        AssertedCredentials(rows, rows[0], subject),
    ]


def test_nothing_is_sent_to_a_server_that_only_the_discovery_document_knows(
    liar: Liar, wire: Transport
) -> None:
    stranger = Registration(issuer="https://login.example", client_id="shop", secret=Secret(SECRET))
    for credentials in every_kind([stranger]):
        error = refused(obtain(credentials, resolution(liar.issuer)), wire, "aiip.authorization-unavailable")
        assert error.status == 403
    assert not liar.asked


def test_nothing_is_sent_to_a_server_that_the_discovery_document_does_not_name(
    liar: Liar, wire: Transport
) -> None:
    known = Registration(issuer=liar.issuer, client_id="shop", secret=Secret(SECRET))
    for credentials in every_kind([known]):
        refused(
            obtain(credentials, resolution("https://login.example")), wire, "aiip.authorization-unavailable"
        )
        # with a slash it is another issuer
        refused(obtain(credentials, resolution(f"{liar.issuer}/")), wire, "aiip.authorization-unavailable")
    assert not liar.asked


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://evil.example"},
        {"issuer": "http://127.0.0.1/"},
        {"issuer": None},
        {"token_endpoint": "https://evil.example/token"},
        {"token_endpoint": "http://127.0.0.1:1/token"},
        {"token_endpoint": "http://user@127.0.0.1/token"},
        {"token_endpoint": None},
        {"token_endpoint": 7},
        {"authorization_endpoint": "https://evil.example/auth"},
        {"revocation_endpoint": "javascript:alert(1)"},
        {"jwks_uri": "https://evil.example/jwks"},
        {"mtls_endpoint_aliases": {"token_endpoint": "https://evil.example/token"}},
    ],
    ids=str,
)
def test_metadata_of_a_foreign_issuer_or_with_foreign_urls_is_refused_before_a_secret_is_sent(
    liar: Liar, wire: Transport, changes: Mapping[str, Any]
) -> None:
    liar.publish(**changes)
    liar.grant()
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert set(liar.asked) <= {METADATA}


def test_a_listed_origin_may_have_the_urls_of_a_server(liar: Liar, wire: Transport) -> None:
    with hand_issuer(Liar) as other:
        liar.publish(token_endpoint=f"{other.issuer}/token")
        assert isinstance(other, Liar)
        other.grant(liar.access_token())
        row = {"origins": (other.issuer,)}
        assert run_flow(client(liar, row=row).request_client_credentials(READ), wire).scopes == {"read"}


@pytest.mark.parametrize(
    "answer", [b"{", b"[]", b'{"issuer": "a", "issuer": "b"}', b"{" + b" " * 70_000 + b"}"]
)
def test_metadata_that_is_not_one_object_is_refused(liar: Liar, wire: Transport, answer: bytes) -> None:
    liar.answer(METADATA, answer)
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")


def test_a_server_with_openid_metadata_only_is_known_too(liar: Liar, wire: Transport) -> None:
    (_, body, _) = liar.answers.pop(METADATA)
    liar.answer(METADATA, {}, 404)
    liar.answer("/.well-known/openid-configuration", body)
    found = run_flow(fetch_server_metadata(client(liar).registration, ResolverSettings()), wire)
    assert found.token_endpoint == f"{liar.issuer}/token"
    liar.answer("/.well-known/openid-configuration", {}, 404)
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")


@pytest.mark.parametrize("status", [500, 429, 302])
def test_a_server_that_is_down_is_told_as_unavailable(liar: Liar, wire: Transport, status: int) -> None:
    liar.answer(METADATA, {}, status, location="https://evil.example")
    error = refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert (error.status, error.retryable) == (503, status != 302)
    liar.publish()
    liar.answer("/token", {}, status, location="https://evil.example")
    error = refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert error.retryable == (status != 302)


def test_a_server_that_cannot_be_reached_is_told_as_unavailable(wire: Transport) -> None:
    with hand_issuer(Liar) as gone:
        pass
    assert isinstance(gone, Liar)
    error = refused(client(gone).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert (error.status, error.retryable) == (503, True)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_does_not_answer_in_time_is_told_as_unavailable(
    liar: Liar, wire: Transport, method: str
) -> None:
    """Its metadata, or a token: nothing has an effect twice, so the request may be sent again."""
    flow = client(liar).request_client_credentials(READ)
    step = next(flow)
    while step.request.method != method:
        step = flow.send(wire.send(step))
    with pytest.raises(AuthorizationError) as caught:
        flow.throw(DeadlineExceeded("the request timed out"))
    assert caught.value.code == "aiip.authorization-unavailable"
    assert (caught.value.status, caught.value.retryable) == (503, True)


def test_the_first_known_server_of_a_resource_is_chosen() -> None:
    rows = [Registration(issuer=f"https://{name}.example", client_id=name) for name in ("a", "b")]
    issuers = ["https://c.example", "https://b.example", "https://a.example"]
    assert choose_registration(issuers, rows, target="bank.example") is rows[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"issuer": "https://a.example?x=1"},
        {"issuer": "ftp://a.example"},
        {"client_id": "ä"},
        {"client_id": ""},
        {"method": "client_secret_basic"},
        {"method": "private_key_jwt"},
        {"method": "tls_client_auth"},
        {"origins": ("nothing",)},
    ],
    ids=str,
)
def test_a_registration_that_cannot_be_right_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Registration(**{"issuer": "https://a.example", "client_id": "shop", **fields})


# --- attack 57: what a server grants ---


GRANTS: dict[str, dict[str, Any]] = {
    "another type": {"token_type": "MAC"},
    "a wider scope": {"scope": "read write"},
    "a scope with two spaces": {"scope": "read  write"},
    "a scope that is no string": {"scope": ["read"]},
    "no token": {"access_token": None},
    "an empty token": {"access_token": ""},
    "a token with a line break": {"access_token": "a\nb"},
    "a long token": {"access_token": "a" * 20_000},
    "a token that is no string": {"access_token": 7},
    "no type": {"token_type": None},
    "a life that is no number": {"expires_in": "soon"},
    "a negative life": {"expires_in": -1},
    "a refresh token that is no string": {"refresh_token": 7},
}
CLAIMS: dict[str, dict[str, Any]] = {
    "another resource": {"aud": "https://other.example"},
    "two resources": {"aud": [BANK, "https://other.example"]},
    "another issuer": {"iss": "https://evil.example"},
    "another client": {"client_id": "other"},
    "a wider scope": {"scope": "read write"},
    "a scope that is no string": {"scope": ["read"]},
    "a foreign key": {"cnf": {"jkt": OTHER_KEY.thumbprint}},
    "no key": {"cnf": None},
    "a binding that is no object": {"cnf": "key"},
    "an actor that is no object": {"act": "shop"},
    "an actor without a subject": {"act": {"client_id": "shop"}},
}


@pytest.mark.parametrize("name", GRANTS)
def test_a_token_response_is_not_used_with(liar: Liar, wire: Transport, name: str) -> None:
    liar.grant(**GRANTS[name])
    refused(client(liar).request_client_credentials(READ), wire)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_token_is_not_used_with(liar: Liar, wire: Transport, name: str) -> None:
    liar.grant(liar.access_token(**CLAIMS[name]))
    cache = TokenCache()
    credentials = ExchangedCredentials(
        [replace(client(liar).registration, impersonation=True)], Secret(SUBJECT), cache=cache
    )
    # the same for a grant with a key of ours
    flow = client(liar, row={"impersonation": True}).exchange_token(Secret(SUBJECT), READ)
    refused(flow, wire)
    refused(obtain(credentials, resolution(liar.issuer)), wire)
    assert not cache._tokens


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"access_token": 1, "access_token": 2}', b"{" * 100])
def test_a_token_response_that_is_not_one_object_is_not_used(
    liar: Liar, wire: Transport, body: bytes
) -> None:
    liar.answer("/token", body)
    refused(client(liar).request_client_credentials(READ), wire)


def test_a_response_without_end_is_cut_off(liar: Liar, wire: Transport) -> None:
    liar.answer("/token", b'{"access_token": "' + b"a" * 200_000 + b'"}')
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")


def test_a_bearer_token_for_a_proof_is_a_downgrade_where_the_resource_requires_dpop(
    liar: Liar, wire: Transport
) -> None:
    liar.grant(liar.access_token(cnf=None), token_type="Bearer")
    refused(client(liar).request_client_credentials(READ), wire, "aiip.downgrade-detected")
    supported = replace(READ, dpop=Level.SUPPORTED)
    assert run_flow(client(liar).request_client_credentials(supported), wire).dpop_key is None
    # a Bearer token that is bound to a key could not be used
    liar.grant(liar.access_token(), token_type="Bearer")
    refused(client(liar).request_client_credentials(supported), wire)


def test_a_dpop_token_for_a_request_without_proof_is_not_used(liar: Liar, wire: Transport) -> None:
    liar.grant()
    plain = replace(READ, dpop=Level.NONE)
    refused(client(liar, dpop_key=None).request_client_credentials(plain), wire)


def test_an_exchanged_token_names_its_actor_unless_the_row_allows_impersonation(
    liar: Liar, wire: Transport
) -> None:
    def exchange(**row: Any) -> Any:
        return client(liar, row=row).exchange_token(Secret(SUBJECT), READ)

    liar.grant(liar.access_token())
    refused(exchange(), wire)
    assert run_flow(exchange(impersonation=True), wire).scopes == {"read"}
    liar.grant("an-opaque-token")
    refused(exchange(), wire)
    assert run_flow(exchange(impersonation=True), wire).token.reveal() == "an-opaque-token"
    actor: dict[str, Any] = {"sub": "shop"}
    for depth in range(1, 6):
        liar.grant(liar.access_token(act=actor))
        if depth <= 4:
            assert run_flow(exchange(), wire).scopes == {"read"}
        else:
            refused(exchange(), wire)
        actor = {"sub": f"agent-{depth}", "act": actor}


def test_an_identity_assertion_of_another_kind_or_with_a_foreign_signature_is_not_redeemed(
    liar: Liar, wire: Transport
) -> None:
    now = int(time.time())
    claims = {
        "iss": liar.issuer,
        "sub": "ada",
        "aud": "https://as.example",
        "client_id": "shop-there",
        "jti": "1",
        "iat": now,
        "exp": now + 300,
    }

    def ask(key: SigningKey, issued_type: str = ID_JAG_TYPE, **changes: Any) -> Any:
        found = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        token = sign_compact(json.dumps(found).encode(), key, header={"typ": "oauth-id-jag+jwt"})
        liar.answer("/token", {"access_token": token, "token_type": "N_A", "issued_token_type": issued_type})
        return client(liar).request_id_jag(
            Secret(SUBJECT), READ, audience="https://as.example", client_id="shop-there"
        )

    assert run_flow(ask(liar.key), wire)
    refused(ask(liar.key, ACCESS_TOKEN_TYPE), wire)
    refused(ask(SigningKey.generate("ES256", kid="first")), wire)
    for changes in (
        {"sub": None},
        {"jti": ""},
        {"scope": 7},
        {"cnf": {}},
        {"cnf": {"jkt": 1}},
        {"iat": "now"},
    ):
        refused(ask(liar.key, **changes), wire)
    liar.answer("/jwks", b"{}")
    refused(ask(liar.key), wire, "aiip.authorization-unavailable")
    liar.answer("/jwks", {}, 503)
    refused(ask(liar.key), wire, "aiip.authorization-unavailable")
    # a provider without published keys: who has issued the grant is known by TLS, the claims are checked
    for without_keys in (lambda: liar.answer("/jwks", {}, 404), lambda: liar.publish(jwks_uri=None)):
        without_keys()
        assert run_flow(ask(SigningKey.generate("ES256", kid="unpublished")), wire)
        for changes in ({"iss": "https://evil.example"}, {"aud": "https://evil.example"}, {"client_id": "x"}):
            refused(ask(liar.key, **changes), wire)
        refused(ask(liar.key, exp=now - 3600, iat=now - 3900), wire)
        refused(ask(liar.key, resource="https://evil.example"), wire)


# --- errors of a server ---


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ("invalid_grant", "aiip.authentication-required", 401),
        ("invalid_client", "aiip.authorization-unavailable", 403),
        ("invalid_scope", "aiip.insufficient-scope", 403),
        ("insufficient_user_authentication", "aiip.step-up-required", 403),
        ("temporarily_unavailable", "aiip.authorization-unavailable", 503),
        ("something_else", "aiip.authorization-unavailable", 403),
        ("Not a Code", "aiip.authorization-unavailable", 403),
    ],
)
def test_an_error_of_the_server_has_a_code_of_ours(
    liar: Liar, wire: Transport, error: str, code: str, status: int
) -> None:
    prose = f"the token {REFRESH} and the secret {SECRET} are wrong"
    members = {"error": error, "error_description": prose, "acr_values": "gold", "max_age": 300}
    liar.answer("/token", members, 400)
    found = refused(client(liar).refresh(Secret(REFRESH), READ), wire, code)
    assert found.status == status
    assert found.oauth_error == (None if error == "Not a Code" else error)
    if code == "aiip.step-up-required":
        assert "gold" in (found.hint or "")
        assert "300" in (found.hint or "")


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"error": 7}', b"<html>", b"x" * 100_000])
def test_an_error_without_a_code_is_told_with_its_status(liar: Liar, wire: Transport, body: bytes) -> None:
    liar.answer("/token", body, 400)
    error = refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert "400" in error.message


def test_a_nonce_is_answered_only_once(liar: Liar, wire: Transport) -> None:
    liar.answer("/token", {"error": "use_dpop_nonce"}, 400, dpop_nonce="again")
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert liar.asked["/token"] == 2
    # without a new nonce another attempt could not end better
    liar.answer("/token", {"error": "use_dpop_nonce"}, 400)
    refused(client(liar).request_client_credentials(READ), wire, "aiip.authorization-unavailable")
    assert liar.asked["/token"] == 3


# --- attack 89: a sign-in on a person's own device (CIBA) ---


def sign_in_elsewhere(liar: Liar, wire: Transport) -> Any:
    liar.answer("/backchannel", {"auth_req_id": "req-1", "expires_in": 60, "interval": 7})
    flow = client(liar).begin_backchannel_flow(READ, login_hint="bob", binding_message="1a2b3c4d")
    return client(liar).finish_backchannel_flow(run_flow(flow, wire))


@pytest.mark.parametrize(
    ("token", "response", "code"),
    [
        ({"aud": "https://other.example"}, {}, "aiip.authorization-invalid"),
        ({"client_id": "other"}, {}, "aiip.authorization-invalid"),
        ({"cnf": {"jkt": OTHER_KEY.thumbprint}}, {}, "aiip.authorization-invalid"),
        ({}, {"token_type": "Bearer"}, "aiip.downgrade-detected"),
    ],
    ids=["another resource", "another client", "another key", "a bearer token"],
)
def test_attack_89_an_answer_for_another_request_or_without_a_key_is_not_used(
    liar: Liar, wire: Transport, token: dict[str, Any], response: dict[str, Any], code: str
) -> None:
    flow = sign_in_elsewhere(liar, wire)
    liar.grant(liar.access_token(**token), **response)
    with pytest.raises(AuthorizationError) as caught:
        run_flow(flow, wire, sleep=lambda seconds: None)
    assert caught.value.code == code


@pytest.mark.parametrize("error", ["expired_token", "access_denied", "invalid_grant", "transaction_failed"])
def test_attack_89_a_sign_in_elsewhere_that_has_ended_is_not_asked_for_again(
    liar: Liar, wire: Transport, error: str
) -> None:
    flow, waits = sign_in_elsewhere(liar, wire), list[float]()
    liar.answer("/token", {"error": error}, 400)
    with pytest.raises(AuthorizationError) as caught:
        run_flow(flow, wire, sleep=waits.append)
    assert caught.value.oauth_error == error
    assert waits == [7.0]


@pytest.mark.parametrize("code", [None, "", "a b\n", 7])
def test_a_sign_in_elsewhere_without_a_usable_code_is_refused(
    liar: Liar, wire: Transport, code: object
) -> None:
    liar.answer("/backchannel", {} if code is None else {"auth_req_id": code})
    refused(client(liar).begin_backchannel_flow(READ, login_hint="bob", binding_message="1a2b"), wire)


@pytest.mark.parametrize(
    "changes",
    [
        {"device_code": None},
        {"user_code": 7},
        {"user_code": "A" * 300},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri_complete": 7},
    ],
    ids=str,
)
def test_a_device_sign_in_without_a_usable_code_or_page_is_refused(
    liar: Liar, wire: Transport, changes: Mapping[str, Any]
) -> None:
    known = {
        "device_code": "abc",
        "user_code": "WDJB",
        "verification_uri": f"{liar.issuer}/d",
        "expires_in": 60,
    }
    liar.answer("/device", {name: value for name, value in {**known, **changes}.items() if value is not None})
    refused(client(liar).begin_device_flow(READ), wire)


def test_a_server_that_wants_slower_questions_gets_them(liar: Liar, wire: Transport) -> None:
    known = {"device_code": "abc", "user_code": "WDJB", "verification_uri": f"{liar.issuer}/d", "interval": 7}
    liar.answer("/device", known)
    begun = run_flow(client(liar).begin_device_flow(READ), wire)
    liar.answer("/token", {"error": "slow_down"}, 400)
    waits: list[float] = []

    def decide(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            liar.answer("/token", {"error": "access_denied"}, 400)

    with pytest.raises(AuthorizationError) as caught:
        run_flow(client(liar).finish_device_flow(begun), wire, sleep=decide)
    assert (caught.value.oauth_error, waits) == ("access_denied", [7.0, 12.0, 17.0])


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({"authorization_endpoint": None}, "code"),
        ({"code_challenge_methods_supported": ["plain"]}, "code"),
        ({"require_pushed_authorization_requests": True}, "code"),
        ({"device_authorization_endpoint": None}, "device"),
        ({"backchannel_authentication_endpoint": None}, "backchannel"),
    ],
    ids=str,
)
def test_a_sign_in_that_the_server_does_not_offer_is_not_begun(
    liar: Liar, wire: Transport, changes: Mapping[str, Any], begin: str
) -> None:
    liar.publish(**changes)
    asked = client(liar)
    flow: Any = {
        "code": lambda: asked.begin_code_flow(READ, redirect_uri=BANK),
        "device": lambda: asked.begin_device_flow(READ),
        "backchannel": lambda: asked.begin_backchannel_flow(READ, login_hint="bob", binding_message="1a"),
    }[begin]()
    refused(flow, wire, "aiip.authorization-unavailable")


def test_a_pushed_request_without_a_uri_is_refused(liar: Liar, wire: Transport) -> None:
    liar.publish(pushed_authorization_request_endpoint=f"{liar.issuer}/par")
    for answer in ({"request_uri": 7}, b"nothing"):
        liar.answer("/par", answer, 201)
        refused(client(liar).begin_code_flow(READ, redirect_uri=BANK), wire)
    liar.answer("/par", {"error": "invalid_request"}, 400)
    flow = client(liar).begin_code_flow(READ, redirect_uri=BANK)
    refused(flow, wire, "aiip.authorization-unavailable")


def test_a_token_cannot_be_revoked_where_the_server_has_no_place_for_it(liar: Liar, wire: Transport) -> None:
    liar.answer("/revoke", {"error": "invalid_client"}, 401)
    refused(client(liar).revoke(Secret(REFRESH)), wire, "aiip.authorization-unavailable")
    liar.publish(revocation_endpoint=None)
    assert run_flow(client(liar).revoke(Secret(REFRESH)), wire) is False


# --- attack 54 and 60: whose token it is ---


def test_two_people_get_two_tokens_and_one_person_one(liar: Liar, wire: Transport) -> None:
    cache, issued = TokenCache(), []
    row = replace(client(liar).registration, impersonation=True)
    found = resolution(liar.issuer, dpop=Level.NONE)
    for subject in ("ada", "bob", "ada"):
        liar.grant(f"token-{len(issued)}", token_type="Bearer")
        credentials = ExchangedCredentials([row], Secret(f"{SUBJECT}-{subject}"), cache=cache)
        issued.append(run_flow(obtain(credentials, found), wire).token.reveal())
        # another scope or another resource is another token
        assert run_flow(obtain(credentials, found, scopes=["read", "write"]), wire)
    assert issued == ["token-0", "token-1", "token-0"]
    assert liar.asked["/token"] == 4
    credentials.forget(Secret("token-0"))
    liar.grant("token-3", token_type="Bearer")
    assert run_flow(obtain(credentials, found), wire).token.reveal() == "token-3"


def test_a_token_that_ends_within_30_seconds_is_replaced(liar: Liar, wire: Transport) -> None:
    now = time.time()
    clock = [now]
    settings = ResolverSettings(clock=lambda: clock[0])
    credentials = ClientCredentials([client(liar).registration], settings=settings)
    found = resolution(liar.issuer, dpop=Level.NONE)
    seen = []
    for later in (0, 269, 271):
        clock[0] = now + later
        liar.grant(f"token-at-{later}", token_type="Bearer")
        seen.append(run_flow(obtain(credentials, found), wire).token.reveal())
    assert seen == ["token-at-0", "token-at-0", "token-at-271"]


def test_an_open_read_is_not_made_in_anybodys_name(liar: Liar, wire: Transport) -> None:
    credentials = ClientCredentials([client(liar).registration])
    open_read = resolution(liar.issuer, auth=Auth.NONE)
    assert run_flow(obtain(credentials, open_read, scopes=[]), wire) is None
    assert run_flow(obtain(credentials, resolution()), wire) is None  # no server is named
    assert not liar.asked


def test_tokens_and_keys_of_a_session_that_has_ended_are_gone() -> None:
    from onym.ai.credentials import Credential

    cache = TokenCache(limit=2)
    kept = [Credential(token=Secret(str(at)), client_id="shop", expires=1e12) for at in range(3)]
    for owner, credential in zip("abc", kept, strict=True):
        cache.put((owner, "bank.example"), credential)
    keys = [cache.get_dpop_key(owner, "bank.example", "https://a.example") for owner in "abc"]
    assert len({key.thumbprint for key in keys}) == 3
    assert [cache.get((owner, "bank.example"), 0) for owner in "abc"] == [None, *kept[1:]]
    cache.forget_owner("b")
    assert [cache.get((owner, "bank.example"), 0) for owner in "bc"] == [None, kept[2]]
    assert cache.get_dpop_key("c", "bank.example", "https://a.example") is keys[2]
    assert cache.get_dpop_key("b", "bank.example", "https://a.example") is not keys[1]


# --- documents of resources, and challenges ---


def test_a_resource_names_itself_exactly(liar: Liar, wire: Transport) -> None:
    path = "/.well-known/oauth-protected-resource/mcp"
    resource = f"{liar.issuer}/mcp"
    good = {
        "resource": resource,
        "authorization_servers": ["https://login.example", 7],
        "scopes_supported": ["read", "a b"],
        "dpop_bound_access_tokens_required": True,
    }
    liar.answer(path, good)
    found = run_flow(fetch_resource_metadata(resource, ResolverSettings()), wire)
    assert found.authorization_servers == ("https://login.example",)
    assert (found.scopes, found.dpop_required) == (("read",), True)
    liar.answer("/elsewhere", good)
    url = f"{liar.issuer}/elsewhere"
    assert run_flow(fetch_resource_metadata(resource, ResolverSettings(), url=url), wire) == found
    flow = fetch_resource_metadata(resource, ResolverSettings(), url="https://evil.example/x")
    refused(flow, wire, "aiip.authorization-unavailable")
    for wrong in (f"{resource}/", liar.issuer, None):
        liar.answer(path, {**good, "resource": wrong})
        refused(fetch_resource_metadata(resource, ResolverSettings()), wire, "aiip.authorization-unavailable")
    liar.answer(path, {}, 404)
    refused(fetch_resource_metadata(resource, ResolverSettings()), wire, "aiip.authorization-unavailable")


CHALLENGES: dict[str, list[tuple[str, dict[str, str]]]] = {
    "": [],
    'Bearer realm="a, b", error="invalid_token"': [("bearer", {"realm": "a, b", "error": "invalid_token"})],
    'DPoP algs="ES256", Bearer scope="a b"': [("dpop", {"algs": "ES256"}), ("bearer", {"scope": "a b"})],
    'Basic, Negotiate YWJj==, DPoP error = "x"': [("basic", {}), ("negotiate", {}), ("dpop", {"error": "x"})],
    'bearer error=invalid_token, error="second"': [("bearer", {"error": "invalid_token"})],
    r'Bearer error="a\"b"': [("bearer", {"error": 'a"b'})],
    "Bearer \x7f": [("bearer", {})],
    ", , Bearer": [("bearer", {})],
}


@pytest.mark.parametrize("text", CHALLENGES)
def test_challenges_are_read_as_rfc_9110_has_them(text: str) -> None:
    found = parse_challenges(Headers([("WWW-Authenticate", text)]))
    assert [(scheme, dict(parameters)) for scheme, parameters in found] == CHALLENGES[text]


def test_a_challenge_is_bounded_and_the_one_with_an_error_is_chosen() -> None:
    long = Headers([("WWW-Authenticate", "Bearer " + 'a="b", ' * 100_000)])
    assert parse_challenges(long) == ()
    two = Headers(
        [("WWW-Authenticate", 'DPoP algs="ES256"'), ("WWW-Authenticate", 'Bearer error="invalid_token"')]
    )
    chosen = find_challenge(two)
    assert chosen is not None
    assert chosen.scheme == "bearer"
    assert find_challenge(Headers([("WWW-Authenticate", "Basic")])) is None


@pytest.mark.parametrize(
    ("challenge", "code", "words"),
    [
        ('DPoP error="insufficient_scope", scope="pay read"', "aiip.insufficient-scope", ["pay read"]),
        (
            'Bearer error="insufficient_user_authentication", acr_values="gold", max_age="300"',
            "aiip.step-up-required",
            ["gold", "300"],
        ),
        ('Bearer error="invalid_token"', "aiip.authentication-required", ["onym ai login"]),
        ('Bearer error="other"', "aiip.invocation-failed", []),
    ],
)
def test_what_a_challenge_asks_for_is_told(challenge: str, code: str, words: list[str]) -> None:
    error = InvocationError("refused")
    explain_challenge(error, Headers([("WWW-Authenticate", challenge)]))
    assert error.code == code
    assert all(word in (error.hint or "") for word in words)
    assert error.challenge == challenge
