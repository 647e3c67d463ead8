"""Compact signatures: what holds, and everything that does not."""

from __future__ import annotations

import json
import math
import secrets
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.sign.jws import MAX_HEADER, MAX_TOKEN, sign_compact, verify, verify_compact
from onym.sign.keys import (
    MAX_KEY_SET,
    MAX_KEYS,
    TOKEN_ALGORITHMS,
    KeySet,
    SigningKey,
    decode_base64url,
    has_roca_fingerprint,
    parse_json_object,
    read_authority_keys,
    read_keys,
    thumbprint,
)
from onym.uri.secret import Secret
from support import as_subtests

KEYS = {name: SigningKey.generate(name, kid=name) for name in TOKEN_ALGORITHMS}
ALL = tuple(TOKEN_ALGORITHMS)


def keys_of(*keys: SigningKey) -> KeySet:
    return read_keys(json.dumps({"keys": [key.public() for key in keys]}).encode())


SET = keys_of(*KEYS.values())


def code_of(token: str, keys: KeySet = SET, algorithms: tuple[str, ...] = ALL, **more: Any) -> str:
    with pytest.raises(SignatureError) as caught:
        verify_compact(token, keys, algorithms=algorithms, **more)
    assert len(token) < 10 or token not in str(caught.value)
    return caught.value.code


def forged(header: dict[str, Any] | bytes, payload: bytes = b"{}", signature: bytes = b"x") -> str:
    octets = header if isinstance(header, bytes) else json.dumps(header).encode()
    return f"{encode_base64url(octets)}.{encode_base64url(payload)}.{encode_base64url(signature)}"


def signed(header: dict[str, Any] | bytes, key: SigningKey = KEYS["ES256"]) -> str:
    """A right signature over any header."""
    octets = header if isinstance(header, bytes) else json.dumps(header).encode()
    text = f"{encode_base64url(octets)}.{encode_base64url(b'{}')}"
    return f"{text}.{encode_base64url(key.sign(text.encode()))}"


@pytest.mark.parametrize("algorithm", ALL)
def test_what_was_signed_holds(algorithm: str) -> None:
    token = sign_compact(b"payload", KEYS[algorithm], algorithm=algorithm, header={"typ": "x"})
    assert verify_compact(token, SET, algorithms=[algorithm]) == b"payload"
    found = verify(token, SET, algorithms=[algorithm])
    assert (found.algorithm, found.header["typ"], found.header["kid"]) == (algorithm, "x", algorithm)


@pytest.mark.parametrize("algorithm", ALL)
def test_the_primitives_agree(algorithm: str) -> None:
    head, body, tail = sign_compact(b"payload", KEYS[algorithm]).split(".")
    octets, signature = f"{head}.{body}".encode(), decode_base64url(tail, "signature")
    public = KEYS[algorithm].public()
    numbers = {
        name: int.from_bytes(decode_base64url(public[name], name), "big") for name in "xyne" if name in public
    }
    if algorithm == "RS256":
        rsa.RSAPublicNumbers(numbers["e"], numbers["n"]).public_key().verify(
            signature, octets, padding.PKCS1v15(), hashes.SHA256()
        )
    elif algorithm == "PS256":
        salted = padding.PSS(padding.MGF1(hashes.SHA256()), 32)  # RFC 7518 3.5
        rsa.RSAPublicNumbers(numbers["e"], numbers["n"]).public_key().verify(
            signature, octets, salted, hashes.SHA256()
        )
    elif algorithm == "ES256":
        assert len(signature) == 64
        r, s = (int.from_bytes(signature[at : at + 32], "big") for at in (0, 32))
        ec.EllipticCurvePublicNumbers(numbers["x"], numbers["y"], ec.SECP256R1()).public_key().verify(
            utils.encode_dss_signature(r, s), octets, ec.ECDSA(hashes.SHA256())
        )
    else:
        key = ed25519.Ed25519PublicKey.from_public_bytes(decode_base64url(public["x"], "x"))
        key.verify(signature, octets)


def test_the_example_of_rfc_7515_a_3_holds() -> None:
    key = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }
    token = (
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        "cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
    keys = read_keys(json.dumps({"keys": [key]}).encode())
    assert b'"iss":"joe"' in verify_compact(token, keys, algorithms=["ES256"])


def test_no_algorithm_means_none() -> None:
    for spelling in ("none", "None", "NONE", "nOnE", ""):
        assert code_of(forged({"alg": spelling}, signature=b"")) in {"sign.malformed", "sign.bad-algorithm"}
        assert code_of(forged({"alg": spelling}), algorithms=(*ALL, spelling)) == "sign.bad-algorithm"


def test_a_public_key_is_no_shared_secret() -> None:
    import hashlib
    import hmac

    public = json.dumps(KEYS["RS256"].public()).encode()
    text = f"{encode_base64url(json.dumps({'alg': 'HS256'}).encode())}.{encode_base64url(b'{}')}"
    token = f"{text}.{encode_base64url(hmac.new(public, text.encode(), hashlib.sha256).digest())}"
    assert code_of(token, algorithms=(*ALL, "HS256")) == "sign.bad-algorithm"


@pytest.mark.parametrize("algorithm", ["ES384", "PS384", "RS512", "HS256", "ES256K", 7, None, ["ES256"]])
def test_algorithms_that_are_not_allowed_are_refused(algorithm: object) -> None:
    assert code_of(forged({"alg": algorithm})) == "sign.bad-algorithm"


def test_the_caller_says_which_algorithms_count() -> None:
    token = sign_compact(b"{}", KEYS["RS256"])
    assert code_of(token, algorithms=("ES256",)) == "sign.bad-algorithm"


def test_a_key_serves_its_own_algorithm_alone() -> None:
    assert code_of(signed({"alg": "RS256"}), keys_of(KEYS["ES256"])) == "sign.unknown-key"
    public = {**KEYS["ES256"].public(), "alg": "ES384"}
    keys = read_keys(json.dumps({"keys": [public]}).encode())
    assert code_of(sign_compact(b"{}", KEYS["ES256"]), keys) == "sign.unknown-key"


def test_both_names_of_ed25519_mean_the_same_key() -> None:
    token = sign_compact(b"{}", SigningKey("EdDSA", "Ed25519", KEYS["Ed25519"].native))
    assert verify_compact(token, keys_of(KEYS["Ed25519"]), algorithms=["EdDSA"]) == b"{}"
    assert code_of(token, keys_of(KEYS["Ed25519"]), ("Ed25519",)) == "sign.bad-algorithm"


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "ES256", "crit": ["exp"], "exp": 1},
        {"alg": "ES256", "crit": []},
        {"alg": "ES256", "crit": ["b64"], "b64": False},
        {"alg": "ES256", "b64": True},
        {"alg": "ES256", "kid": 7},
    ],
)
def test_headers_that_ask_for_more_are_refused_though_the_signature_holds(header: dict[str, Any]) -> None:
    assert code_of(signed(header)) == "sign.bad-header"


@as_subtests(
    "header",
    [
        b'{"alg":"ES256","alg":"ES256"}',
        b'{"alg":"ES256","x":{"a":1,"a":1}}',
        b'{"alg":"ES256","x":NaN}',
        b'{"alg":"ES256","x":1e999}',
        b'["ES256"]',
        b'"ES256"',
        b"",
        b"\xff\xfe{\x00}\x00",
        '{"alg":"ES256"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"alg":"ES256"}',
        b'{"alg":"ES256","x":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"alg":"ES256","x":' + b"9" * 2900 + b"}x",
    ],
)
def test_headers_with_more_than_one_reading_are_refused(header: bytes) -> None:
    assert code_of(signed(header)) == "sign.malformed"


@as_subtests(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "a.b.",
        ".b.c",
        "é.b.c",
        "e30=.e30.AA",
        "e30.e30 .AA",
        "e30.e30.A",
        "e31.e30.AA",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert code_of(token) in {"sign.malformed", "sign.bad-algorithm"}


def test_sizes_have_limits() -> None:
    token = sign_compact(b"x" * 1000, KEYS["ES256"])
    assert code_of(token, limit=100) == "sign.too-large"
    assert code_of("x" * (MAX_TOKEN + 1)) == "sign.too-large"
    assert code_of(f"{'e' * (MAX_HEADER + 1)}.e30.AA") == "sign.malformed"


def test_keys_that_the_token_brings_along_do_not_count() -> None:
    stranger = SigningKey.generate("ES256")
    token = signed({"alg": "ES256", "jwk": stranger.public(), "jku": "https://evil.example/"}, stranger)
    assert code_of(token) == "sign.bad-signature"


def test_a_kid_chooses_its_key_alone() -> None:
    one, two = SigningKey.generate("ES256", kid="one"), SigningKey.generate("ES256", kid="two")
    keys = keys_of(one, two)
    assert code_of(signed({"alg": "ES256", "kid": "one"}, two), keys) == "sign.bad-signature"
    assert code_of(signed({"alg": "ES256", "kid": "three"}, two), keys) == "sign.unknown-key"
    assert verify_compact(signed({"alg": "ES256"}, two), keys, algorithms=["ES256"]) == b"{}"


@hypothesis_settings(max_examples=60)
@given(st.data())
def test_no_changed_octet_holds(data: st.DataObject) -> None:
    token = sign_compact(b'{"a":1}', KEYS["Ed25519"])
    place = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.sampled_from("ABab01-_."))
    changed = token[:place] + character + token[place + 1 :]
    if changed != token:
        with pytest.raises(SignatureError):
            verify(changed, SET, algorithms=ALL)


@given(st.text(max_size=200))
def test_any_text_is_refused_and_breaks_nothing(token: str) -> None:
    with pytest.raises(SignatureError):
        verify(token, SET, algorithms=ALL)


def test_signing_takes_no_header_of_its_own_kind() -> None:
    for header in ({"alg": "none"}, {"crit": []}, {"b64": False}, {"kid": "x"}):
        with pytest.raises(SignatureError) as caught:
            sign_compact(b"", KEYS["ES256"], header=header)
        assert caught.value.code == "sign.bad-header"
    with pytest.raises(SignatureError) as caught:
        sign_compact(b"", KEYS["ES256"], algorithm="RS256")
    assert caught.value.code == "sign.bad-algorithm"


# keys


def test_a_private_key_is_kept_and_read_again() -> None:
    for algorithm, key in KEYS.items():
        again = SigningKey.from_jwk(key.secret(), algorithm=algorithm)
        assert again.public() == key.public()
        assert again.kid == algorithm
        assert "d" not in key.public()
        assert "native" not in repr(key)


@pytest.mark.parametrize("text", ["{}", "x", "[]"])
def test_a_private_key_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SignatureError):
        SigningKey.from_jwk(Secret(text), algorithm="ES256")


def test_a_public_key_does_not_sign() -> None:
    with pytest.raises(SignatureError):
        SigningKey.from_jwk(Secret(json.dumps(KEYS["ES256"].public())), algorithm="ES256")
    with pytest.raises(SignatureError):
        SigningKey.from_jwk(KEYS["ES256"].secret(), algorithm="RS256")


def test_a_key_of_an_unknown_algorithm_is_not_made() -> None:
    with pytest.raises(SignatureError) as caught:
        SigningKey.generate("none")
    assert caught.value.code == "sign.bad-algorithm"


@pytest.mark.parametrize("member", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
def test_a_set_with_a_private_member_is_refused(member: str) -> None:
    public = {**KEYS["ES256"].public(), member: "AAAA"}
    with pytest.raises(SignatureError) as caught:
        read_keys(json.dumps({"keys": [public]}).encode())
    assert (caught.value.code, "replace" in (caught.value.hint or "")) == ("sign.bad-key", True)


@as_subtests(
    "key",
    [
        {"kty": "oct"},
        {"kty": "EC", "crv": "P-384"},
        {"kty": "OKP", "crv": "X25519"},
        {"kty": "OKP", "crv": ["Ed25519"]},
        {"kty": "AKP"},
        {"kty": 7},
        {},
        {**KEYS["ES256"].public(), "use": "enc"},
        {**KEYS["ES256"].public(), "key_ops": ["encrypt"]},
        {**KEYS["ES256"].public(), "key_ops": 7},
    ],
)
def test_keys_for_other_things_are_left_out(key: dict[str, Any]) -> None:
    keys = read_keys(json.dumps({"keys": [key, KEYS["RS256"].public()]}).encode())
    assert [key.kid for key in keys.keys] == ["RS256"]


@as_subtests(
    "keys",
    [
        None,
        {},
        "x",
        [7],
        [{}] * (MAX_KEYS + 1),
        [{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}],
        [{"kty": "EC", "crv": "P-256", "x": 7, "y": "AAAA"}],
        [{"kty": "EC", "crv": "P-256"}],
        [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}],
        [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}],
        [{"kty": "RSA", "n": "!", "e": "AQAB"}],
        [{**KEYS["ES256"].public(), "kid": "x" * 600}],
        [{**KEYS["ES256"].public(), "alg": 7}],
    ],
)
def test_a_set_that_cannot_be_used_is_refused(keys: object) -> None:
    with pytest.raises(SignatureError):
        read_keys(json.dumps({"keys": keys}).encode())


def _faulty_prime() -> int:
    """A prime of 1024 bits as the chips made them: k * M + (65537 ** a mod M); M is 126 primes."""
    small = [n for n in range(2, 702) if all(n % d for d in range(2, int(n**0.5) + 1))]
    product = math.prod(small)
    assert len(small) == 126
    least, most = 3 * 2**1022 // product + 1, 2**1024 // product - 1
    while True:
        number = (least + secrets.randbelow(most - least)) * product + pow(
            65537, secrets.randbits(256), product
        )
        if pow(2, number - 1, number) == 1:
            return number


@pytest.mark.parametrize("read", [read_keys, read_authority_keys])
def test_an_rsa_key_of_a_faulty_chip_is_refused(read: Any) -> None:
    """CVE-2017-15361 (ROCA): the factors of such a modulus can be found."""
    modulus = _faulty_prime() * _faulty_prime()
    assert modulus.bit_length() == 2048
    jwk = {"kty": "RSA", "e": "AQAB", "n": encode_base64url(modulus.to_bytes(256, "big"))}
    jwk |= {"alg": "PS256", "kid": thumbprint(jwk)}
    with pytest.raises(SignatureError) as caught:
        read(json.dumps({"keys": [jwk]}).encode())
    assert caught.value.code == "sign.weak-key"
    assert "ROCA" in caught.value.message
    assert has_roca_fingerprint(modulus)
    for _ in range(3):
        good = SigningKey.generate("PS256").public()
        assert not has_roca_fingerprint(int.from_bytes(decode_base64url(good["n"], "n"), "big"))


def test_weak_and_huge_rsa_keys_are_refused() -> None:
    def modulus(bits: int, exponent: int) -> bytes:
        n = encode_base64url(((1 << bits) - 1 - (1 << 64)).to_bytes(bits // 8, "big"))
        e = encode_base64url(exponent.to_bytes((exponent.bit_length() + 7) // 8, "big"))
        return json.dumps({"keys": [{"kty": "RSA", "n": n, "e": e}]}).encode()

    for bits, exponent in ((1024, 65537), (16384, 65537), (2048, (1 << 40) + 1)):
        with pytest.raises(SignatureError) as caught:
            read_keys(modulus(bits, exponent))
        assert caught.value.code == "sign.weak-key"
    assert len(read_keys(modulus(2048, 65537)).keys) == 1


def test_a_long_set_is_refused() -> None:
    with pytest.raises(SignatureError) as caught:
        read_keys(b" " * (MAX_KEY_SET + 1))
    assert caught.value.code == "sign.too-large"


@given(st.binary(max_size=60))
def test_base64url_has_one_spelling(octets: bytes) -> None:
    text = encode_base64url(octets)
    assert decode_base64url(text, "x") == octets
    for other in (text + "=", text + "A"):
        if len(other) % 4 == 1 or "=" in other:
            with pytest.raises(SignatureError):
                decode_base64url(other, "x")


def test_objects_nest_so_deep_and_no_deeper() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * depth + b"1" + b"}" * depth

    assert parse_json_object(nested(15), "x")
    with pytest.raises(SignatureError):
        parse_json_object(nested(17), "x")


def test_names_are_loaded_late() -> None:
    import onym.sign

    assert set(onym.sign.__all__) <= set(dir(onym.sign))
    assert all(getattr(onym.sign, name) for name in onym.sign.__all__)
    with pytest.raises(AttributeError):
        _ = onym.sign.nothing
