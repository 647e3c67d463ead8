"""The vectors of the standards: RFC 7515 A, 7638 3.1, 7797 4, 8037 A and RFC 9421 B.2.6.

What Onym does not take (shared keys, ES512, unencoded payloads, JSON forms, no signature) is shown refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms
from http_message_signatures.exceptions import InvalidSignature

from onym.common.text import encode_base64url
from onym.errors import ProvenanceError, SignatureError
from onym.sign.jws import sign_compact, verify_compact
from onym.sign.keys import (
    TOKEN_ALGORITHMS,
    SigningKey,
    decode_base64url,
    read_authority_keys,
    read_keys,
    thumbprint,
)
from onym.sign.receipts import verify_filed
from onym.uri.secret import Secret

ALL = tuple(TOKEN_ALGORITHMS)
EVERY = (*ALL, "HS256", "ES512", "none")
PAYLOAD = b'{"iss":"joe",\r\n "exp":1300819380,\r\n "http://example.com/is_root":true}'
# of RFC 7515 A.1.1, which RFC 7797 4 uses too
SHARED = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
A_1 = (
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA"
    "6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
)
A_2 = (
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9"
    "pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Q"
    "c_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARN"
    "PvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6I"
    "eYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
)
A_2_N = (
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4Ql"
    "L-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUs"
    "LA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoud"
    "F8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
)
A_3 = (
    "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9"
    "pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqP"
    "P3-Kg6NU1Q"
)
A_4 = (
    "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZq"
    "wqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9E"
    "RBXukOXolLzeO_Jn"
)
RFC_7638_N = (
    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWK"
    "RXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMic"
    "AtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3"
    "XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
)
NONE = f"eyJhbGciOiJub25lIn0.{encode_base64url(PAYLOAD)}."
P521 = {
    "kty": "EC",
    "crv": "P-521",
    "x": "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
    "y": "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2",
}
P256 = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}


def keys_of(*members: dict[str, Any]) -> Any:
    return read_keys(json.dumps({"keys": members}).encode())


def refused(token: str, *members: dict[str, Any]) -> str:
    with pytest.raises(SignatureError) as caught:
        verify_compact(token, keys_of(*members), algorithms=EVERY)
    with pytest.raises((ProvenanceError, SignatureError)):
        verify_filed(token, read_authority_keys(json.dumps({"keys": members}).encode()))
    return caught.value.code


def mac(signed: str) -> str:
    return encode_base64url(
        hmac.new(decode_base64url(SHARED, "key"), signed.encode(), hashlib.sha256).digest()
    )


# RFC 7515 A


def test_rfc_7515_a_1_is_refused_since_its_key_is_shared() -> None:
    signed, _, tail = A_1.rpartition(".")
    assert mac(signed) == tail  # the vector as it is in the RFC
    assert decode_base64url(signed.partition(".")[2], "payload") == PAYLOAD
    assert refused(A_1, P256) == "sign.bad-algorithm"
    with pytest.raises(SignatureError):
        keys_of({"kty": "oct", "k": SHARED})
    with pytest.raises(SignatureError):
        read_authority_keys(json.dumps({"keys": [{"kty": "oct", "k": SHARED}]}).encode())


def test_rfc_7515_a_2_holds() -> None:
    keys = keys_of({"kty": "RSA", "n": A_2_N, "e": "AQAB"})
    assert verify_compact(A_2, keys, algorithms=["RS256"]) == PAYLOAD
    signed, _, tail = A_2.rpartition(".")
    assert keys.keys[0].verify("RS256", signed.encode(), decode_base64url(tail, "signature"))


def test_rfc_7515_a_3_holds() -> None:
    assert verify_compact(A_3, keys_of(P256), algorithms=["ES256"]) == PAYLOAD
    # the key of the RFC as an authority's, named by its thumbprint
    jwk = {**P256, "alg": "ES256", "kid": thumbprint(P256)}
    key = read_authority_keys(json.dumps({"keys": [jwk]}).encode()).find(jwk["kid"], "ES256", 0)
    signed, _, tail = A_3.rpartition(".")
    assert key.verify("ES256", signed.encode(), decode_base64url(tail, "signature"))
    assert not key.verify("ES256", signed.encode() + b" ", decode_base64url(tail, "signature"))


def test_rfc_7515_a_4_is_refused_since_es512_is_not_taken() -> None:
    assert refused(A_4, P521, P256) == "sign.bad-algorithm"


def test_rfc_7515_a_5_is_refused_since_nobody_signed_it() -> None:
    assert refused(NONE, P256) == "sign.malformed"
    assert refused(f"{NONE}AA", P256) == "sign.bad-algorithm"


def test_rfc_7515_a_6_and_a_7_are_refused_since_the_form_is_not_the_compact_one() -> None:
    rows = [{"protected": each.split(".")[0], "signature": each.split(".")[2]} for each in (A_2, A_3)]
    general = {"payload": encode_base64url(PAYLOAD), "signatures": rows}
    flat = {
        "payload": encode_base64url(PAYLOAD),
        "header": {"kid": "e9bc097a-ce51-4036-9562-d2ade882db0d"},
        **rows[1],
    }
    for each in (general, flat):
        assert refused(json.dumps(each), P256) in {"sign.malformed", "sign.too-large"}


# RFC 7638 3.1


def test_rfc_7638_3_1_has_its_thumbprint() -> None:
    jwk = {"kty": "RSA", "n": RFC_7638_N, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}
    assert thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


# RFC 7797 4


def test_rfc_7797_4_1_is_refused_since_its_key_is_shared() -> None:
    control = "eyJhbGciOiJIUzI1NiJ9.JC4wMg.5mvfOroL-g7HyqJoozehmsaqmvTYGEq5jTI1gVvoEoQ"
    assert mac(control.rpartition(".")[0]) == control.rpartition(".")[2]
    assert refused(control, P256) == "sign.bad-algorithm"


def test_rfc_7797_4_2_is_refused_attached_detached_and_with_a_key_of_ours() -> None:
    head = "eyJhbGciOiJIUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19"
    tail = "A5dxf2s96_n5FLueVuW1Z_vh161FwXZC4YLPff6dmDY"
    assert mac(f"{head}.$.02") == tail  # the vector as it is in the RFC
    for payload in ("", "JC4wMg", "$.02"):
        assert refused(f"{head}.{payload}.{tail}", P256) in {"sign.bad-header", "sign.malformed"}
    own = SigningKey.generate("ES256")
    for payload, signed in (("", "$.02"), ("JC4wMg", "JC4wMg")):
        ours = encode_base64url(b'{"alg":"ES256","b64":false,"crit":["b64"]}')
        token = f"{ours}.{payload}.{encode_base64url(own.sign(f'{ours}.{signed}'.encode()))}"
        assert refused(token, own.public()) == "sign.bad-header"


# RFC 8037 A

OKP = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
OKP_PRIVATE = Secret(json.dumps({**OKP, "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}))
A_5 = (
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCj"
    "P0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_Mu"
    "M0KAg"
)


def test_rfc_8037_a_1_and_a_2_are_one_key() -> None:
    key = SigningKey.from_jwk(OKP_PRIVATE, algorithm="Ed25519")
    assert key.public() == {**OKP, "alg": "Ed25519", "use": "sig"}
    assert (
        decode_base64url(OKP["x"], "x").hex()
        == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )


def test_rfc_8037_a_3_has_its_thumbprint() -> None:
    assert thumbprint(OKP) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    key = SigningKey.from_jwk(OKP_PRIVATE, algorithm="Ed25519").with_thumbprint()
    assert key.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_rfc_8037_a_4_is_what_the_key_signs() -> None:
    key = SigningKey.from_jwk(OKP_PRIVATE, algorithm="EdDSA")
    assert sign_compact(b"Example of Ed25519 signing", key) == A_5


def test_rfc_8037_a_5_holds() -> None:
    assert verify_compact(A_5, keys_of(OKP), algorithms=["EdDSA"]) == b"Example of Ed25519 signing"
    jwk = {**OKP, "alg": "Ed25519", "kid": thumbprint(OKP)}
    key = read_authority_keys(json.dumps({"keys": [jwk]}).encode()).find(jwk["kid"], "EdDSA", 0)
    signed, _, tail = A_5.rpartition(".")
    assert key.verify("EdDSA", signed.encode(), decode_base64url(tail, "signature"))


# RFC 9421 B.2.6

ED25519 = {
    "kty": "OKP",
    "crv": "Ed25519",
    "x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs",
}
ED25519_D = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"
PARAMS = (
    '("date" "@method" "@path" "@authority" "content-type" "content-length")'
    ';created=1618884473;keyid="test-key-ed25519"'
)
BASE = f"""\
"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": {PARAMS}"""
SIGNATURE = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="


def test_rfc_9421_b_2_6_holds_by_the_key_and_is_what_it_signs() -> None:
    jwk = {**ED25519, "alg": "Ed25519", "kid": thumbprint(ED25519)}
    key = read_authority_keys(json.dumps({"keys": [jwk]}).encode()).find(jwk["kid"], "Ed25519", 0)
    signature = decode_base64url(SIGNATURE.rstrip("=").replace("+", "-").replace("/", "_"), "signature")
    assert key.verify("Ed25519", BASE.encode(), signature)
    assert not key.verify("Ed25519", BASE.replace("POST", "GET").encode(), signature)
    private = SigningKey.from_jwk(Secret(json.dumps({**ED25519, "d": ED25519_D})), algorithm="Ed25519")
    assert private.sign(BASE.encode()) == signature


class _Resolver(HTTPSignatureKeyResolver):
    def resolve_public_key(self, key_id: str) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        assert key_id == "test-key-ed25519"
        return Ed25519PublicKey.from_public_bytes(decode_base64url(ED25519["x"], "x"))

    def resolve_private_key(self, key_id: str) -> Any:
        raise AssertionError(key_id)


def test_http_message_signatures_agrees_on_rfc_9421_b_2_6() -> None:
    headers = {
        "Host": "example.com",
        "Date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "Content-Type": "application/json",
        "Content-Length": "18",
        "Signature-Input": f"sig-b26={PARAMS}",
        "Signature": f"sig-b26=:{SIGNATURE}:",
    }
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=_Resolver())
    url = "https://example.com/foo?param=Value&Pet=dog"
    asked = SimpleNamespace(method="POST", url=url, headers=headers)
    found = verifier.verify(asked, max_age=timedelta(days=36500))
    assert [each.label for each in found] == ["sig-b26"]
    with pytest.raises(InvalidSignature):
        verifier.verify(
            SimpleNamespace(method="PUT", url=url, headers=headers), max_age=timedelta(days=36500)
        )
