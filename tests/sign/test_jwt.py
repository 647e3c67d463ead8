"""ID tokens: every rule of OpenID Connect Core 3.1.3.7, each broken once."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.sign.jws import IDToken, sign_compact, verify_id_token
from onym.sign.keys import SigningKey, read_keys
from support import as_subtests

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SECONDS = NOW.timestamp()
KEY = SigningKey.generate("ES256", kid="k")
ED = SigningKey.generate("Ed25519", kid="ed")
KEYS = read_keys(json.dumps({"keys": [KEY.public(), ED.public()]}).encode())
CLAIMS: dict[str, Any] = {
    "iss": "https://id.example.org",
    "sub": "s-1",
    "aud": "client",
    "exp": SECONDS + 300,
    "iat": SECONDS,
    "nonce": "n-1",
}


def token(
    *, key: SigningKey = KEY, header: dict[str, Any] | None = None, drop: str = "", **claims: Any
) -> str:
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if name != drop}
    return sign_compact(json.dumps(merged).encode(), key, header=header)


def check(text: str, **changes: Any) -> IDToken:
    given: dict[str, Any] = {
        "issuer": "https://id.example.org",
        "client_id": "client",
        "nonce": "n-1",
        "at": NOW,
    }
    return verify_id_token(text, KEYS, **{**given, **changes})


def code_of(text: str, **changes: Any) -> str:
    with pytest.raises(SignatureError) as caught:
        check(text, **changes)
    assert "client" not in str(caught.value).replace("another client", "")
    return caught.value.code


def test_a_right_token_tells_who() -> None:
    found = check(token(name="Ann", empty="", number=7))
    assert (found.issuer, found.subject, found.expires) == ("https://id.example.org", "s-1", SECONDS + 300)
    assert (found.text("name"), found.text("empty"), found.text("number"), found.text("none")) == (
        "Ann",
        None,
        None,
        None,
    )
    with pytest.raises(TypeError):
        found.claims["sub"] = "other"  # type: ignore[index]


@as_subtests(
    ("claims", "code"),
    [
        ({"iss": "https://id.example.org/"}, "sign.bad-issuer"),
        ({"iss": ["https://id.example.org"]}, "sign.bad-issuer"),
        ({"drop": "iss"}, "sign.bad-issuer"),
        ({"aud": "other"}, "sign.bad-audience"),
        ({"aud": ["client", "other"]}, "sign.bad-audience"),
        ({"aud": []}, "sign.bad-audience"),
        ({"aud": None}, "sign.bad-audience"),
        ({"drop": "aud"}, "sign.bad-audience"),
        ({"azp": "other"}, "sign.bad-audience"),
        ({"exp": SECONDS - 60}, "sign.expired"),
        ({"iat": SECONDS + 61}, "sign.not-yet"),
        ({"nbf": SECONDS + 61}, "sign.not-yet"),
        ({"exp": "soon"}, "sign.bad-claim"),
        ({"exp": True}, "sign.bad-claim"),
        ({"exp": -1}, "sign.bad-claim"),
        ({"exp": 10**15}, "sign.bad-claim"),
        ({"nbf": "x"}, "sign.bad-claim"),
        ({"drop": "exp"}, "sign.bad-claim"),
        ({"drop": "iat"}, "sign.bad-claim"),
        ({"nonce": "n-2"}, "sign.bad-nonce"),
        ({"nonce": 7}, "sign.bad-nonce"),
        ({"drop": "nonce"}, "sign.bad-nonce"),
        ({"sub": ""}, "sign.bad-claim"),
        ({"sub": "x" * 256}, "sign.bad-claim"),
        ({"sub": 7}, "sign.bad-claim"),
        ({"drop": "sub"}, "sign.bad-claim"),
        ({"header": {"typ": "at+jwt"}}, "sign.bad-header"),
        ({"header": {"typ": 7}}, "sign.bad-header"),
    ],
)
def test_each_broken_rule_has_its_code(claims: dict[str, Any], code: str) -> None:
    assert code_of(token(**claims)) == code


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["client"]},
        {"azp": "client"},
        {"exp": SECONDS - 59},
        {"iat": SECONDS + 60},
        {"nbf": SECONDS - 5},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": "application/jwt"}},
    ],
)
def test_what_a_rule_allows_is_taken(claims: dict[str, Any]) -> None:
    assert check(token(**claims)).subject == "s-1"


def test_clocks_may_be_as_far_apart_as_the_caller_says() -> None:
    assert code_of(token(exp=SECONDS - 1), leeway=timedelta(0)) == "sign.expired"


@pytest.mark.parametrize(("key", "digest"), [(KEY, hashlib.sha256), (ED, hashlib.sha512)])
def test_the_access_token_is_the_one_that_came_along(key: SigningKey, digest: Any) -> None:
    half = digest(b"access").digest()
    right = encode_base64url(half[: len(half) // 2])
    assert check(token(key=key, at_hash=right), access_token="access").subject == "s-1"
    assert code_of(token(key=key, at_hash=right), access_token="other") == "sign.bad-hash"
    assert code_of(token(key=key, at_hash=7), access_token="access") == "sign.bad-hash"
    assert check(token(key=key), access_token="access").subject == "s-1"
    assert check(token(key=key, at_hash="x")).subject == "s-1"


@pytest.mark.parametrize("payload", [b"[]", b"x", b'{"iss":"a","iss":"b"}', b"", b"\xff"])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    assert code_of(sign_compact(payload, KEY)) == "sign.malformed"


def test_algorithms_are_the_callers() -> None:
    assert code_of(token(), algorithms=("RS256",)) == "sign.bad-algorithm"
