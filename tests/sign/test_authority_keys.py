"""The keys of an authority: which count, which are left out, which spoil the set (AIIP/HTTPS v1 3.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import SignatureError
from onym.sign.keys import (
    MAX_AUTHORITY_KEY_SET,
    MAX_AUTHORITY_KEYS,
    MAX_HISTORY,
    RECEIPT_ALGORITHMS,
    AuthorityKeys,
    SigningKey,
    read_authority_keys,
    read_keys,
    thumbprint,
)
from onym.uri.secret import Secret
from sign_support import NOW, authority, jwks, key
from support import as_subtests

ALL = tuple(RECEIPT_ALGORITHMS)


def error_of(octets: bytes, **more: Any) -> SignatureError:
    with pytest.raises(SignatureError) as caught:
        read_authority_keys(octets, **more)
    return caught.value


def find_code(keys: AuthorityKeys, kid: str, algorithm: str = "Ed25519", at: float = NOW) -> str:
    with pytest.raises(SignatureError) as caught:
        keys.find(kid, algorithm, at)
    return caught.value.code


@pytest.mark.parametrize("algorithm", ALL)
def test_a_key_of_each_algorithm_is_found_by_its_thumbprint(algorithm: str) -> None:
    signer = key(algorithm)
    keys = authority(*(key(each) for each in ALL))
    assert signer.kid == thumbprint(signer.public())
    found = keys.find(str(signer.kid), algorithm, NOW)
    assert found.verify(algorithm, b"octets", signer.sign(b"octets"))
    assert not found.verify(algorithm, b"other", signer.sign(b"octets"))
    assert keys.kids == {key(each).kid for each in ALL}
    assert "native" not in repr(found)


def test_a_private_key_is_kept_and_read_again_with_its_thumbprint() -> None:
    for algorithm in ALL:
        signer = key(algorithm)
        again = SigningKey.from_jwk(signer.secret(), algorithm=algorithm)
        assert again.public() == signer.public()
        with pytest.raises(SignatureError):
            SigningKey.from_jwk(Secret(json.dumps(signer.public())), algorithm=algorithm)
    other = {**json.loads(key("ES256").secret().reveal()), "alg": "ES384"}
    with pytest.raises(SignatureError):
        SigningKey.from_jwk(Secret(json.dumps(other)), algorithm="ES256")


def test_why_a_key_is_not_given_is_in_the_code() -> None:
    keys = authority(key(), key("ES256"), revoked=["gone"])
    assert find_code(keys, "nobody") == "sign.unknown-key"
    assert find_code(keys, "gone") == "sign.revoked-key"
    assert find_code(keys, str(key().kid), "ES256") == "sign.bad-algorithm"
    assert find_code(keys, str(key("ES256").kid), "EdDSA") == "sign.bad-algorithm"
    assert find_code(keys, str(key().kid), "none") == "sign.bad-algorithm"
    assert keys.find(str(key().kid), "EdDSA", NOW).algorithm == "Ed25519"


def test_a_key_counts_within_its_time_and_a_minute_around_it() -> None:
    keys = authority({**key().public(), "nbf": NOW, "exp": NOW + 100})
    kid = str(key().kid)
    for at in (NOW - 60, NOW, NOW + 160):
        assert keys.find(kid, "Ed25519", at)
    for at in (NOW - 61, NOW + 161, float("nan")):
        assert find_code(keys, kid, at=at) == "sign.key-not-in-force"
    assert keys.named(kid, "Ed25519")


def test_a_revoked_key_is_not_among_those_that_verify() -> None:
    kid = str(key().kid)
    for keys in (authority(revoked=[kid]), authority({**key().public(), "revoked": {"revoked_at": NOW}})):
        assert keys.kids == frozenset()
        assert keys.revoked == {kid}


def test_a_registry_may_say_which_keys_count() -> None:
    both = jwks(key(), key("ES256"))
    keys = read_authority_keys(both, only=[str(key("ES256").kid)])
    assert keys.kids == {key("ES256").kid}
    assert keys.ignored == ("key 1 is not allowed by the registry",)
    assert read_authority_keys(both, only=()).kids == frozenset()


@as_subtests(
    ("change", "why"),
    [
        ({"kid": None}, "has no kid or no alg"),
        ({"alg": None}, "has no kid or no alg"),
        ({"alg": "EdDSA"}, "is for an algorithm that receipts do not use"),
        ({"alg": "RS256"}, "is for an algorithm that receipts do not use"),
        ({"use": "enc"}, "is not for verifying signatures"),
        ({"key_ops": ["sign"]}, "is not for verifying signatures"),
        ({"alg": "ES256"}, "is not of its algorithm's kind"),
        ({"nbf": "1"}, "has a time that is not a number of seconds"),
        ({"exp": True}, "has a time that is not a number of seconds"),
        ({"exp": -1}, "has a time that is not a number of seconds"),
        ({"kid": "other"}, "has a kid that is not its thumbprint"),
    ],
)
def test_a_key_that_does_not_count_is_left_out_and_said_why(change: dict[str, Any], why: str) -> None:
    keys = authority({**key().public(), **change}, key("ES256"))
    assert keys.ignored == (f"key 1 {why}",)
    assert keys.kids == {key("ES256").kid}


@pytest.mark.parametrize("member", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
def test_one_private_member_spoils_the_whole_set(member: str) -> None:
    for spoilt in ({**key("ES256").public(), member: "AAAA"}, {"kty": "AKP", member: None}):
        error = error_of(jwks(key(), spoilt))
        assert (error.code, "replace" in str(error.hint)) == ("sign.bad-key", True)


@as_subtests(
    "octets",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[7]}',
        b'{"keys":[],"revoked":"x"}',
        b'{"keys":[],"revoked":[7]}',
        b'{"keys":[],"revoked":["a","a"]}',
        b'{"keys":[],"keys":[]}',
        jwks(key(), key()),
        jwks({**key().public(), "x": 7}),
        jwks({"kty": "RSA", "alg": "PS256", "kid": "x"}),
        jwks(*([{}] * (MAX_AUTHORITY_KEYS + 1))),
        b" " * (MAX_AUTHORITY_KEY_SET + 1),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(octets: bytes) -> None:
    assert error_of(octets).code in {"sign.bad-key", "sign.malformed", "sign.too-large"}


def test_coordinates_have_the_length_of_their_curve() -> None:
    for algorithm in ("Ed25519", "ES256", "ES384"):
        long = {**key(algorithm).public(), "x": "A" + str(key(algorithm).public()["x"]) + "AAA"}
        assert error_of(jwks({**long, "kid": thumbprint(long)})).code == "sign.bad-key"


def test_a_history_may_be_longer_than_a_set() -> None:
    many = jwks(*([{}] * (MAX_AUTHORITY_KEYS + 1)))
    assert len(read_authority_keys(many, history=True).ignored) == MAX_AUTHORITY_KEYS + 1
    assert (
        read_authority_keys(b'{"keys":[]}' + b" " * MAX_AUTHORITY_KEY_SET, history=True).kids == frozenset()
    )
    assert error_of(jwks(*([{}] * (MAX_HISTORY + 1))), history=True).code == "sign.bad-key"
    assert error_of(b" " * (4 * MAX_AUTHORITY_KEY_SET + 1), history=True).code == "sign.too-large"


def test_a_thumbprint_is_of_the_public_members_alone() -> None:
    private = json.loads(key("PS256").secret().reveal())
    assert thumbprint(private) == thumbprint(key("PS256").public()) == key("PS256").kid
    for broken in ({}, {"kty": "oct", "k": "AAAA"}, {"kty": "EC", "crv": "P-256", "x": "AAAA"}, {"kty": 7}):
        with pytest.raises(SignatureError):
            thumbprint(broken)


def test_a_signature_that_the_library_cannot_take_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict:
        def verify(self, *_: object) -> bool:
            raise ValueError("of a strange form")

    monkeypatch.setattr("onym.sign.keys.get_jws_model", lambda algorithm: Strict())
    assert not authority().find(str(key().kid), "Ed25519", NOW).verify("Ed25519", b"x", b"y")


def test_id_tokens_have_the_algorithms_that_they_had() -> None:
    """PS256 is for access tokens; the table of receipts adds nothing to that of OpenID Connect."""
    from onym.sign.jws import ID_TOKEN_ALGORITHMS
    from onym.sign.keys import TOKEN_ALGORITHMS

    assert set(ID_TOKEN_ALGORITHMS) == {"Ed25519", "EdDSA", "ES256", "RS256"}
    assert set(TOKEN_ALGORITHMS) == {*ID_TOKEN_ALGORITHMS, "PS256"}
    assert read_keys(jwks(key("ES384"))).keys == ()
    with pytest.raises(SignatureError):
        SigningKey.generate("RS384")


_MEMBER = st.dictionaries(
    st.sampled_from(["kty", "crv", "x", "y", "n", "e", "alg", "kid", "use", "nbf", "exp", "revoked"]),
    st.sampled_from(["EC", "OKP", "RSA", "P-256", "Ed25519", "AQAB", "", "PS256", "ES256", "sig"])
    | st.integers() | st.floats() | st.lists(st.text(max_size=4), max_size=2) | st.none(),
)  # fmt: skip


@given(st.lists(_MEMBER | st.integers() | st.none(), max_size=4), st.lists(st.text(max_size=4), max_size=3))
def test_any_set_is_read_or_refused(members: list[Any], revoked: list[str]) -> None:
    octets = json.dumps({"keys": members, "revoked": revoked}).encode()
    try:
        found = read_authority_keys(octets)
    except SignatureError:
        return
    assert len(found.ignored) == len(members)
