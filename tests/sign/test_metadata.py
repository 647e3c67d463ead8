"""Signed metadata of an anchor document: what is taken, and every token that is not one."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.sign.keys import AuthorityKeys, SigningKey, decode_base64url, read_authority_keys
from onym.sign.receipts import (
    MAX_METADATA,
    METADATA,
    Receipt,
    content_digest,
    make_receipt_id,
    sign_metadata,
    sign_receipt,
    verify_metadata,
)
from support import as_subtests

AT = 1_800_000_000.0
ANCHOR = "https://bank.example"
KEY = SigningKey.generate("Ed25519").with_thumbprint()
OTHER = SigningKey.generate("Ed25519").with_thumbprint()
MEMBERS = {"jwks": f"{ANCHOR}/keys", "scopes": ["pay"]}


def keys_of(*keys: SigningKey, **more: Any) -> AuthorityKeys:
    return read_authority_keys(json.dumps({"keys": [{**key.public(), **more} for key in keys]}).encode())


KEYS = keys_of(KEY)


def token(claims: Any, key: SigningKey = KEY, **header: Any) -> str:
    """A token with any claims and header, signed by this key; a header member of None is left out."""
    head = {"typ": METADATA, "alg": key.algorithm, "kid": key.kid, **header}
    head = {name: value for name, value in head.items() if value is not None}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    text = f"{encode_base64url(json.dumps(head).encode())}.{encode_base64url(payload)}"
    return f"{text}.{encode_base64url(key.sign(text.encode()))}"


def refused(text: str, code: str, keys: AuthorityKeys = KEYS, **given: Any) -> None:
    with pytest.raises(SignatureError) as caught:
        verify_metadata(text, keys, **{"issuer": ANCHOR, "at": AT, **given})
    assert caught.value.code == f"sign.{code}"


def test_what_was_signed_is_read_without_the_claims_of_the_token() -> None:
    text = sign_metadata(MEMBERS, KEY, issuer=ANCHOR, issued=AT, expires=AT + 100)
    found = verify_metadata(text, KEYS, issuer=ANCHOR, at=AT)
    assert (found.members, found.expires, found.kid) == (MEMBERS, AT + 100, KEY.kid)


def test_a_token_need_not_say_when_it_was_made_or_ends() -> None:
    found = verify_metadata(token({"iss": ANCHOR, "sub": ANCHOR, **MEMBERS}), KEYS, issuer=ANCHOR, at=AT)
    assert (found.members, found.expires) == (MEMBERS, None)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "PS256"])
def test_the_algorithms_are_those_that_the_authority_names(algorithm: str) -> None:
    key = SigningKey.generate(algorithm).with_thumbprint()
    text = sign_metadata(MEMBERS, key, issuer=ANCHOR, issued=AT)
    found = verify_metadata(text, keys_of(key), issuer=ANCHOR, at=AT, algorithms=[algorithm])
    assert found.members == MEMBERS
    refused(text, "bad-algorithm", keys_of(key), algorithms=["Ed25519"])


# attacks 1 to 6 and 12


def test_another_key_under_the_name_of_a_good_one_is_refused() -> None:
    refused(token({"iss": ANCHOR}, OTHER, kid=KEY.kid), "bad-signature")


def test_a_key_that_the_authority_does_not_publish_is_refused() -> None:
    refused(token({"iss": ANCHOR}, OTHER), "unknown-key")


def test_a_token_without_a_signature_is_refused() -> None:
    head = encode_base64url(json.dumps({"typ": METADATA, "alg": "none", "kid": KEY.kid}).encode())
    body = encode_base64url(json.dumps({"iss": ANCHOR}).encode())
    refused(f"{head}.{body}.", "malformed")
    refused(f"{head}.{body}.{encode_base64url(b'x')}", "bad-algorithm")
    refused(token({"iss": ANCHOR}, alg="none"), "bad-algorithm", algorithms=["none", "Ed25519"])


def test_a_public_key_is_no_shared_secret() -> None:
    head = encode_base64url(json.dumps({"typ": METADATA, "alg": "HS256", "kid": KEY.kid}).encode())
    text = f"{head}.{encode_base64url(json.dumps({'iss': ANCHOR}).encode())}"
    secret = decode_base64url(KEY.public()["x"], "x")
    forged = f"{text}.{encode_base64url(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"
    refused(forged, "bad-algorithm")
    refused(forged, "bad-algorithm", algorithms=["HS256"])


@pytest.mark.parametrize("kind", ["aiip-receipt+jwt", "aiip-gateway+jwt", "at+jwt", "JWT", "dpop+jwt", "", 5])
def test_a_token_of_another_type_is_no_metadata(kind: Any) -> None:
    refused(token({"iss": ANCHOR}, typ=kind), "bad-header")


def test_a_receipt_is_no_metadata() -> None:
    receipt = Receipt(
        issuer=ANCHOR,
        subject="ai://bank.example/pay",
        audience="anonymous",
        issued=AT,
        expires=AT + 60,
        id=make_receipt_id(),
        nonce=make_receipt_id(),
        request="A" * 43,
        status=200,
        digest=content_digest(b""),
        length=0,
    )
    refused(sign_receipt(receipt, KEY), "bad-header")


@pytest.mark.parametrize("name", ["jwk", "jku", "x5c", "x5u", "crit", "b64", "zip", "cty"])
def test_a_header_says_no_more_than_it_must(name: str) -> None:
    refused(token({"iss": ANCHOR}, **{name: "x"}), "bad-header")


@pytest.mark.parametrize("name", ["typ", "alg", "kid"])
def test_a_header_says_no_less(name: str) -> None:
    refused(token({"iss": ANCHOR}, **{name: None}), "bad-header")


@as_subtests(
    ("changes", "code"),
    [
        ({"iss": "https://evil.example"}, "bad-issuer"),
        ({"iss": f"{ANCHOR}/"}, "bad-issuer"),
        ({"iss": "https://BANK.example"}, "bad-issuer"),
        ({"iss": "https://bank.example:443"}, "bad-issuer"),
        ({"iss": [ANCHOR]}, "bad-issuer"),
        ({"iss": None}, "bad-issuer"),
        ({"sub": "somebody"}, "bad-claim"),
        ({"sub": None}, "bad-claim"),
        ({"aud": "https://bank.example"}, "bad-audience"),
        ({"aud": None}, "bad-audience"),
        ({"exp": AT}, "expired"),
        ({"exp": AT - 1}, "expired"),
        ({"exp": str(AT + 9)}, "bad-claim"),
        ({"exp": True}, "bad-claim"),
        ({"exp": None}, "bad-claim"),
        ({"exp": 10**400}, "bad-claim"),
        ({"exp": -1}, "bad-claim"),
        ({"iat": AT + 61}, "not-yet"),
        ({"nbf": AT + 61}, "not-yet"),
        ({"nbf": []}, "bad-claim"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused(changes: dict[str, Any], code: str) -> None:
    refused(token({"iss": ANCHOR, **changes}), code)


def test_a_token_without_an_issuer_is_refused() -> None:
    refused(token(MEMBERS), "bad-issuer")


@pytest.mark.parametrize("changes", [{"exp": AT + 1}, {"iat": AT + 60}, {"nbf": AT + 60, "iat": 0}])
def test_at_the_edge_of_its_time_it_counts(changes: dict[str, Any]) -> None:
    assert verify_metadata(token({"iss": ANCHOR, **changes}), KEYS, issuer=ANCHOR, at=AT).members == {}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"iss":"%s","iss":"%s"}' % (ANCHOR.encode(), ANCHOR.encode()),
        b'{"iss":"%s","policy":{"mtls":true,"mtls":false}}' % ANCHOR.encode(),
        b"[]",
        b"",
        b'{"iss":"%s","x":NaN}' % ANCHOR.encode(),
        b'{"iss":"%s","x":%s}' % (ANCHOR.encode(), b"[" * 20 + b"]" * 20),
        b"\xff",
    ],
)
def test_claims_that_can_be_read_in_two_ways_are_refused(payload: bytes) -> None:
    refused(token(payload), "malformed")


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c.d", "...", "a.b.c=", " .a.b", "é.a.b"])
def test_what_is_no_token_is_refused(text: str) -> None:
    refused(text, "malformed")


def test_a_token_is_as_long_as_a_document_at_most() -> None:
    refused(token({"iss": ANCHOR, "x": "y" * MAX_METADATA}), "malformed")
    with pytest.raises(SignatureError) as caught:
        sign_metadata({"x": "y" * MAX_METADATA}, KEY, issuer=ANCHOR, issued=AT)
    assert caught.value.code == "sign.too-large"


def test_a_padded_or_respelt_token_is_refused() -> None:
    good = token({"iss": ANCHOR})
    refused(f"{good}=", "malformed")
    refused(f"{good}\n", "malformed")
    head, payload, signature = good.split(".")
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = signature[:-1] + last[last.index(signature[-1]) ^ 1]
    refused(f"{head}.{payload}.{other}", "malformed")


def test_a_key_out_of_its_time_does_not_count() -> None:
    refused(token({"iss": ANCHOR}), "unknown-key", keys_of(KEY, exp=AT - 61))
    refused(token({"iss": ANCHOR}), "unknown-key", keys_of(KEY, nbf=AT + 61))


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "iat", "nbf", "exp", "jti"])
def test_a_member_cannot_be_a_claim_of_the_token(name: str) -> None:
    with pytest.raises(SignatureError, match=rf"\b{name}\b") as caught:
        sign_metadata({name: "x"}, KEY, issuer=ANCHOR, issued=AT)
    assert caught.value.code == "sign.bad-claim"


def test_a_key_without_a_name_signs_no_metadata() -> None:
    with pytest.raises(SignatureError, match=r"\bkid\b") as caught:
        sign_metadata({}, SigningKey.generate("Ed25519"), issuer=ANCHOR, issued=AT)
    assert caught.value.code == "sign.bad-key"
