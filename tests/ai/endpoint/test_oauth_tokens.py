"""Access tokens at an endpoint: which are taken, and what a caller is told (RFC 9068, RFC 6750)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oauth_support import RESOURCE, HandIssuer, access, authorization, bearer, hand_issuer, run
from onym.ai.endpoint.context import Caller
from onym.errors import AIIPError, SignatureError
from onym.net.messages import Headers
from onym.sign.keys import SigningKey

SCOPES = frozenset({"agents:invoke"})
METADATA = 'resource_metadata="https://bank.example/.well-known/oauth-protected-resource/.well-known/aiip/v1"'


@pytest.fixture(scope="module")
def server() -> Iterator[HandIssuer]:
    with hand_issuer() as found:
        yield found


def ask(server: HandIssuer, headers: Headers, scopes: frozenset[str] = SCOPES, **settings: Any) -> Caller:
    async def work() -> Caller:
        guard = authorization(server, **settings)
        try:
            return await guard.authorize(access(headers, scopes))
        finally:
            await guard.close()

    return run(work())


def refused(
    server: HandIssuer, headers: Headers, scopes: frozenset[str] = SCOPES, **settings: Any
) -> AIIPError:
    with pytest.raises(AIIPError) as found:
        ask(server, headers, scopes, **settings)
    return found.value


def raw(header: dict[str, Any] | bytes, payload: dict[str, Any] | bytes, signature: bytes = b"x" * 64) -> str:
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, signature))


def test_a_token_of_the_issuer_for_this_resource_names_its_caller(server: HandIssuer) -> None:
    token = server.token()
    caller = ask(server, bearer(token))
    digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
    assert caller == Caller(
        audience="client-1",
        client_id="client-1",
        subject="user-7",
        scopes=frozenset({"agents:invoke", "agents:read"}),
        token_hash=digest,
    )


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt"])
def test_the_type_of_an_access_token_is_a_media_type_in_any_case(server: HandIssuer, typ: str) -> None:
    assert ask(server, bearer(server.token(typ))).client_id == "client-1"


def test_the_scheme_is_read_in_any_case(server: HandIssuer) -> None:
    assert ask(server, Headers([("authorization", f"bEARER {server.token()}")])).subject == "user-7"


@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256", "PS256", "RS256"])
def test_every_signature_of_the_list_is_taken(server: HandIssuer, algorithm: str) -> None:
    key = SigningKey.generate(algorithm, kid=f"own-{algorithm}")
    server.published.append(key.public())
    assert ask(server, bearer(server.token(key=key))).client_id == "client-1"


def test_an_operator_may_shorten_the_list_of_signatures(server: HandIssuer) -> None:
    assert (
        refused(server, bearer(server.token()), algorithms=("Ed25519",)).code
        == "aiip.authentication-required"
    )


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "http://127.0.0.1:1"}, "sign.bad-issuer"),
    "an issuer with a slash more": ({"iss": "slash"}, "sign.bad-issuer"),
    "no issuer": ({"iss": None}, "sign.bad-issuer"),
    "another resource": ({"aud": "https://evil.example"}, "sign.bad-audience"),
    "a resource with a slash more": ({"aud": RESOURCE + "/"}, "sign.bad-audience"),
    "a second audience": ({"aud": [RESOURCE, "https://evil.example"]}, "sign.bad-audience"),
    "no audience": ({"aud": None}, "sign.bad-audience"),
    "the client as audience, as an ID token has it": ({"aud": "client-1"}, "sign.bad-audience"),
    "a time that is over": ({"iat": 1_000_000_000, "exp": 1_000_000_300}, "sign.expired"),
    "no end": ({"exp": None}, "sign.bad-claim"),
    "no beginning": ({"iat": None}, "sign.bad-claim"),
    "an end that is a text": ({"exp": "9999999999"}, "sign.bad-claim"),
    "an end that is true": ({"exp": True}, "sign.bad-claim"),
    "an end before time": ({"exp": -1}, "sign.bad-claim"),
    "an end behind all dates": ({"exp": 10**300}, "sign.bad-claim"),
    "ten years": ({"exp": int(time.time()) + 10 * 365 * 86400}, "sign.bad-claim"),
    # far enough ahead of the time of collection: the test may run hours after
    "a beginning in ten days": (
        {"iat": int(time.time()) + 864_000, "exp": int(time.time()) + 864_300},
        "sign.not-yet",
    ),
    "a start in ten days": (
        {"nbf": int(time.time()) + 864_000, "exp": int(time.time()) + 864_300},
        "sign.not-yet",
    ),
    "no subject": ({"sub": None}, "sign.bad-claim"),
    "a subject with a line feed": ({"sub": "a\nb"}, "sign.bad-claim"),
    "no client": ({"client_id": None}, "sign.bad-claim"),
    "a client that is an object": ({"client_id": {"$ne": None}}, "sign.bad-claim"),
    "a client that no receipt can name": ({"client_id": "büro"}, "sign.bad-claim"),
    "a client with a line end": ({"client_id": "a\n"}, "sign.bad-claim"),
    "no name of its own": ({"jti": None}, "sign.bad-claim"),
    "scopes as a list": ({"scope": ["agents:invoke"]}, "sign.bad-claim"),
    "scopes with two spaces": ({"scope": "agents:invoke  b"}, "sign.bad-claim"),
    "scopes without end": ({"scope": " ".join(f"s{n}" for n in range(129))}, "sign.bad-claim"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_token_with(server: HandIssuer, case: str) -> None:
    changes, code = WRONG[case]
    if changes.get("iss") == "slash":
        changes = {"iss": server.issuer + "/"}
    error = refused(server, bearer(server.token(**changes)))
    assert (error.code, error.status) == ("aiip.authentication-required", 401)
    assert isinstance(error.__cause__, SignatureError)
    assert error.__cause__.code == code


@pytest.mark.parametrize(
    "typ", [None, "JWT", "aiip-receipt+jwt", "dpop+jwt", "logout+jwt", "id+jwt", "at+jwt2"]
)
def test_a_token_of_another_type_is_no_access_token(server: HandIssuer, typ: str | None) -> None:
    error = refused(server, bearer(server.token(typ)))
    assert isinstance(error.__cause__, SignatureError)
    assert error.__cause__.code == "sign.bad-header"


def test_a_receipt_of_the_endpoint_is_no_access_token_even_with_its_claims(server: HandIssuer) -> None:
    own = SigningKey.generate("Ed25519", kid="endpoint")
    error = refused(server, bearer(server.token(key=own)))
    assert isinstance(error.__cause__, SignatureError)
    assert error.__cause__.code == "sign.unknown-key"


def forged(server: HandIssuer) -> dict[str, str]:
    """Tokens that nobody signed, or somebody else."""
    claims, good = server.claims(), server.token()
    head, _, tail = good.split(".")
    mine = SigningKey.generate("ES256", kid="first")
    public = json.dumps(server.key.public()).encode()
    signed = raw({"alg": "HS256", "typ": "at+jwt", "kid": "first"}, claims).rsplit(".", 1)[0]
    mac = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), "sha256")).rstrip(b"=").decode()
    return {
        "none": raw({"alg": "none", "typ": "at+jwt"}, claims, b""),
        "none, signed": raw({"alg": "none", "typ": "at+jwt"}, claims),
        "NONE": raw({"alg": "NONE", "typ": "at+jwt", "kid": "first"}, claims),
        "HS256 with the public key": f"{signed}.{mac}",
        "same kid, other key": server.token(key=mine),
        "own key in the header": raw({"alg": "ES256", "typ": "at+jwt", "jwk": mine.public()}, claims),
        "keys at a URL": raw({"alg": "ES256", "typ": "at+jwt", "jku": "http://127.0.0.1:1/"}, claims),
        "kid that is a path": raw({"alg": "ES256", "typ": "at+jwt", "kid": "../../dev/null"}, claims),
        "kid that is an object": raw({"alg": "ES256", "typ": "at+jwt", "kid": {"$ne": 1}}, claims),
        "an unknown crit": raw(
            {"alg": "ES256", "typ": "at+jwt", "kid": "first", "crit": ["x"], "x": 1}, claims
        ),
        "zeros for a signature": raw({"alg": "ES256", "typ": "at+jwt", "kid": "first"}, claims, b"\0" * 64),
        "another body": f"{head}.{raw({}, server.claims(sub='root')).split('.')[1]}.{tail}",
        "alg twice": raw(b'{"alg":"none","alg":"ES256","typ":"at+jwt","kid":"first"}', claims),
        "padding": f"{good}=",
        "five parts": f"{good}.a.b",
        "one part": "abc",
        "too long": raw({"alg": "ES256", "typ": "at+jwt", "kid": "first"}, {**claims, "x": "y" * 20_000}),
    }


def test_what_the_issuer_did_not_sign_is_refused_in_one_and_the_same_way(server: HandIssuer) -> None:
    for case, token in forged(server).items():
        error = refused(server, bearer(token))
        assert error.code == "aiip.authentication-required", case
        assert isinstance(error.__cause__, SignatureError), case
        expired = refused(server, bearer(server.token(iat=1, exp=300)))
        assert error.message == expired.message
        assert error.challenge == expired.challenge
        assert token not in f"{error}{error.challenge}"


def test_a_claim_that_is_there_twice_is_refused(server: HandIssuer) -> None:
    from onym.sign.jws import sign_compact

    text = json.dumps(server.claims()).encode()
    token = sign_compact(b'{"iss":"evil",' + text[1:], server.key, header={"typ": "at+jwt"})
    assert refused(server, bearer(token)).code == "aiip.authentication-required"


@pytest.mark.parametrize(
    "cnf", [{"jkt": "A" * 43}, {"x5t#S256": "A" * 43}, {"jkt": "short"}, {"kid": "a"}, {}, None, "A" * 43]
)
def test_a_token_that_is_bound_to_its_sender_does_not_count_as_bearer(server: HandIssuer, cnf: Any) -> None:
    from onym.sign.jws import sign_compact

    claims = {**server.claims(), "cnf": cnf}
    error = refused(
        server, bearer(sign_compact(json.dumps(claims).encode(), server.key, header={"typ": "at+jwt"}))
    )
    assert (error.code, error.status) == ("aiip.sender-constraint", 401)
    assert 'error="invalid_token"' in str(error.challenge)


def test_who_shows_nothing_is_told_where_to_get_a_token_and_of_no_error(server: HandIssuer) -> None:
    error = refused(server, Headers([]))
    assert (error.code, error.status) == ("aiip.authentication-required", 401)
    offered = f'DPoP algs="ES256 Ed25519", scope="agents:invoke", {METADATA}'
    assert error.challenge == (f'Bearer scope="agents:invoke", {METADATA}', offered)


@pytest.mark.parametrize("value", ["Basic YTpi", "DPoPabc.def.ghi", "Bearerabc"])
def test_another_scheme_is_as_good_as_nothing(server: HandIssuer, value: str) -> None:
    error = refused(server, Headers([("Authorization", value)]), frozenset())
    assert error.code == "aiip.authentication-required"
    assert error.challenge == (f"Bearer {METADATA}", f'DPoP algs="ES256 Ed25519", {METADATA}')


@pytest.mark.parametrize(
    "values", [("Bearer a.b.c", "Bearer a.b.c"), ("Bearer",), ("Bearer a b",), ("Bearer a,b",)]
)
def test_a_malformed_authorization_is_a_bad_request(server: HandIssuer, values: tuple[str, ...]) -> None:
    error = refused(server, Headers([("Authorization", value) for value in values]))
    assert (error.code, error.status) == ("aiip.bad-request", 400)
    assert 'error="invalid_request"' in str(error.challenge)


def test_a_token_in_another_field_or_in_the_query_is_never_read(server: HandIssuer) -> None:
    headers = Headers([("X-Authorization", f"Bearer {server.token()}"), ("Cookie", server.token())])
    assert refused(server, headers).code == "aiip.authentication-required"


@pytest.mark.requirement("ai-privacy-d")
def test_missing_scopes_are_asked_for_all_at_once(server: HandIssuer) -> None:
    error = refused(server, bearer(server.token(scope="agents:read")), frozenset({"b", "a", "agents:read"}))
    assert (error.code, error.status) == ("aiip.insufficient-scope", 403)
    why = 'error="insufficient_scope", error_description="a scope is missing"'
    assert error.challenge == (f'Bearer {why}, scope="a agents:read b", {METADATA}',)


@pytest.mark.requirement("ai-privacy-d")
def test_a_token_without_scopes_serves_a_resource_that_asks_for_none(server: HandIssuer) -> None:
    for scope in (None, ""):
        assert ask(server, bearer(server.token(scope=scope)), frozenset()).scopes == frozenset()


@pytest.mark.parametrize(("late", "taken"), [(59.0, True), (61.0, False)])
def test_clocks_may_be_a_minute_apart(server: HandIssuer, late: float, taken: bool) -> None:
    now = int(time.time())
    token = server.token(iat=now, exp=now + 300)
    if taken:
        assert ask(server, bearer(token), clock=lambda: now + 300 + late)
        assert ask(server, bearer(token), clock=lambda: now - late)
    else:
        assert refused(server, bearer(token), clock=lambda: now + 300 + late)
        assert refused(server, bearer(token), clock=lambda: now - late)
