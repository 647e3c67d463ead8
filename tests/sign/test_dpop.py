"""DPoP proofs: the examples of RFC 9449, a proof that breaks each rule of 4.3, and independent libraries."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jwcrypto import jwk as peer_jwk
from jwcrypto import jwt as peer_jwt

from onym.errors import SecretError, SignatureError
from onym.sign.dpop import DPoPKey, DPoPProof, generate_dpop_key, sign_dpop_proof, verify_dpop_proof
from onym.sign.keys import SigningKey, thumbprint
from onym.sign.receipts import access_token_hash
from onym.uri.secret import Secret
from peer_install import node, npm_package
from sign_support import NOW, b64

URL = "https://bank.example/.well-known/aiip/v1/payments"
TOKEN = "eyJ.access.token"
RQH = "A" * 43
#: RFC 9449 4.2 and 7.1, with the line wraps of RFC 8792 removed
_HEAD = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6Ik"
    "VDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR"
    "nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JE"
    "QSIsImNydiI6IlAtMjU2In19"
)
TOKEN_PROOF = (
    f"{_HEAD}.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIj"
    "oiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwia"
    "WF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg"
    "4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg"
)
RESOURCE_PROOF = (
    f"{_HEAD}.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIj"
    "oiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0Z"
    "WRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNF"
    "c05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71E"
    "OptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
)
RFC_TOKEN = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
#: `cnf.jkt` of the example in RFC 9449 6.1
RFC_THUMBPRINT = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
_PEER = Path(__file__).with_name("jose")


@cache
def signer(algorithm: str = "ES256") -> SigningKey:
    return SigningKey.generate(algorithm)


def public(algorithm: str = "ES256") -> dict[str, Any]:
    return {name: value for name, value in signer(algorithm).public().items() if name not in {"alg", "use"}}


def forge(
    head: dict[str, Any] | None = None,
    claims: dict[str, Any] | None = None,
    *,
    algorithm: str = "ES256",
    raw_head: bytes | None = None,
    raw_claims: bytes | None = None,
    signature: bytes | None = None,
) -> str:
    """A proof with a right signature; `head` and `claims` change members, and None removes one."""
    header = {"typ": "dpop+jwt", "alg": algorithm, "jwk": public(algorithm), **(head or {})}
    body = {"jti": "id-1", "htm": "POST", "htu": URL, "iat": NOW, "ath": access_token_hash(TOKEN)}
    body |= claims or {}
    header, body = ({k: v for k, v in part.items() if v is not None} for part in (header, body))
    text = (
        f"{b64(header if raw_head is None else raw_head)}.{b64(body if raw_claims is None else raw_claims)}"
    )
    return f"{text}.{b64(signer(algorithm).sign(text.encode()) if signature is None else signature)}"


def verified(proof: str, **more: Any) -> DPoPProof:
    return verify_dpop_proof(
        proof, **{"method": "POST", "url": URL, "at": NOW, "access_token": TOKEN, **more}
    )


def code(proof: str, **more: Any) -> str:
    with pytest.raises(SignatureError) as caught:
        verified(proof, **more)
    return caught.value.code


# what holds


def test_a_proof_of_ours_is_verified_with_all_its_claims() -> None:
    key = generate_dpop_key()
    proof = sign_dpop_proof(
        key,
        method="POST",
        url=f"{URL}?a=1#f",
        at=NOW + 0.9,
        access_token=TOKEN,
        nonce="n-1",
        request_hash=RQH,
    )
    found = verified(proof)
    assert found.thumbprint == key.thumbprint == thumbprint(key.public_jwk)
    assert (found.nonce, found.request_hash, found.issued) == ("n-1", RQH, NOW)
    assert found.token_hash == access_token_hash(TOKEN)
    claims = json.loads(_decoded(proof.split(".")[1]))
    assert claims["htu"] == URL
    assert len(found.id) >= 22  # 128 bits


def test_two_proofs_of_one_request_have_different_ids() -> None:
    key = generate_dpop_key()
    first, second = (
        verified(sign_dpop_proof(key, method="POST", url=URL, at=NOW, access_token=TOKEN)) for _ in "ab"
    )
    assert first.id != second.id


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519", "EdDSA"])
def test_each_algorithm_that_is_offered_is_verified(algorithm: str) -> None:
    assert verified(forge(algorithm=algorithm)).thumbprint == thumbprint(public(algorithm))


def test_the_examples_of_rfc_9449_hold() -> None:
    """RFC 9449 4.2 (at a token endpoint) and 7.1 (with an access token), and the thumbprint of 6.1."""
    at_token = {"url": "https://server.example.com/token", "at": 1562262616, "access_token": None}
    found = verified(TOKEN_PROOF, **at_token)
    assert (found.id, found.thumbprint, found.token_hash) == ("-BwC3ESc6acc2lTc", RFC_THUMBPRINT, None)
    at_resource = {"url": "https://resource.example.org/protectedresource", "at": 1562262618}
    found = verified(RESOURCE_PROOF, method="GET", access_token=RFC_TOKEN, **at_resource)
    assert (found.id, found.thumbprint) == ("e1j3V_bKic8-LAEB", RFC_THUMBPRINT)
    assert code(RESOURCE_PROOF, method="GET", **at_resource) == "sign.bad-hash"
    assert code(TOKEN_PROOF, **{**at_token, "access_token": RFC_TOKEN}) == "sign.bad-hash"


@pytest.mark.parametrize(
    "written",
    [
        "HTTPS://BANK.example:443/.well-known/aiip/v1/payments",
        "https://bank.example/.well-known/aiip/v1/%70ayments",
        "https://bank.example/.well-known/./aiip/v1/payments",
    ],
)
def test_urls_are_compared_in_normal_form(written: str) -> None:
    """RFC 9449 4.3: normalization by syntax and scheme (RFC 3986 6.2.2, 6.2.3)."""
    assert verified(forge(claims={"htu": written})).issued == NOW


def test_unknown_members_of_header_and_claims_are_ignored() -> None:
    """RFC 9449 4.2: a proof may contain other parameters and claims."""
    assert verified(forge({"kid": "k"}, {"https://x.example": [1], "exp": NOW + 1, "nbf": NOW})).id == "id-1"


@pytest.mark.parametrize("issued", [NOW - 60, NOW + 60])
def test_a_proof_may_be_a_minute_old_or_early(issued: float) -> None:
    assert verified(forge(claims={"iat": issued})).issued == issued


# what does not


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ({"typ": "JWT"}, "sign.bad-header"),
        ({"typ": None}, "sign.bad-header"),
        ({"typ": "aiip-receipt+jwt"}, "sign.bad-header"),
        ({"alg": "none"}, "sign.bad-algorithm"),
        ({"alg": "HS256"}, "sign.bad-algorithm"),
        ({"alg": "RS256"}, "sign.bad-algorithm"),
        ({"alg": "ES384"}, "sign.bad-algorithm"),
        ({"alg": ["ES256"]}, "sign.bad-algorithm"),
        ({"alg": None}, "sign.bad-algorithm"),
        ({"jwk": None}, "sign.bad-header"),
        ({"jwk": "key"}, "sign.bad-header"),
        ({"crit": ["b64"], "b64": False}, "sign.bad-header"),
        ({"jku": "https://evil.example/jwks"}, "sign.bad-header"),
        ({"x5c": ["MII"]}, "sign.bad-header"),
    ],
)
def test_a_header_that_is_not_that_of_a_proof_is_rejected(head: dict[str, Any], expected: str) -> None:
    assert code(forge(head)) == expected


def _jwk(algorithm: str = "ES256", **more: Any) -> dict[str, Any]:
    return {k: v for k, v in {**public(algorithm), **more}.items() if v is not None}


@pytest.mark.parametrize(
    ("jwk", "expected"),
    [
        ({"kty": "oct", "k": "AAAA"}, "sign.bad-key"),
        (_jwk(d="AAAA"), "sign.bad-key"),
        (_jwk("Ed25519"), "sign.bad-key"),
        (_jwk(alg="ES384"), "sign.bad-key"),
        (_jwk(alg=["ES256"]), "sign.bad-key"),
        (_jwk(crv="P-384"), "sign.bad-key"),
        (_jwk(y=None), "sign.bad-key"),
        (_jwk(x=5), "sign.bad-key"),
        (_jwk(x="AA"), "sign.bad-key"),
        (_jwk(x="!"), "sign.malformed"),
        (_jwk(x=b64(b"\1" * 32)), "sign.bad-key"),  # not on the curve
        ({"kty": "RSA", "n": "AQAB", "e": "AQAB"}, "sign.bad-key"),
    ],
)
def test_a_key_that_cannot_be_trusted_is_rejected(jwk: dict[str, Any], expected: str) -> None:
    assert code(forge({"jwk": jwk})) == expected


def test_an_ed25519_key_of_small_order_is_rejected() -> None:
    """It would verify any message."""
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64(b"\1" + b"\0" * 31)}
    assert code(forge({"jwk": jwk}, algorithm="Ed25519")) == "sign.weak-key"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"htm": "GET"}, "sign.bad-claim"),
        ({"htm": "post"}, "sign.bad-claim"),
        ({"htm": None}, "sign.bad-claim"),
        ({"htu": None}, "sign.bad-claim"),
        ({"htu": 5}, "sign.bad-claim"),
        ({"htu": "https://bank.example/" + "a" * 5_000}, "sign.bad-claim"),
        ({"htu": f"{URL}?amount=10"}, "sign.bad-claim"),
        ({"htu": f"{URL}#part"}, "sign.bad-claim"),
        ({"htu": f"{URL}/"}, "sign.bad-claim"),
        ({"htu": URL.upper()}, "sign.bad-claim"),
        ({"htu": URL.replace("https", "http")}, "sign.bad-claim"),
        ({"htu": URL.replace("bank.example", "bank.example:8443")}, "sign.bad-claim"),
        ({"htu": URL.replace("bank.example", "evil.example")}, "sign.bad-claim"),
        ({"htu": URL.replace("bank.example", "bank.example@evil.example")}, "sign.bad-claim"),
        ({"htu": "not a URL"}, "sign.bad-claim"),
        ({"htu": "/.well-known/aiip/v1/payments"}, "sign.bad-claim"),
        ({"iat": None}, "sign.bad-claim"),
        ({"iat": "now"}, "sign.bad-claim"),
        ({"iat": True}, "sign.bad-claim"),
        ({"iat": NOW - 61}, "sign.expired"),
        ({"iat": NOW + 61}, "sign.not-yet"),
        ({"exp": NOW - 60}, "sign.expired"),
        ({"nbf": NOW + 61}, "sign.not-yet"),
        ({"jti": None}, "sign.bad-claim"),
        ({"jti": ""}, "sign.bad-claim"),
        ({"jti": 7}, "sign.bad-claim"),
        ({"jti": "i" * 257}, "sign.bad-claim"),
        ({"nonce": 7}, "sign.bad-claim"),
        ({"nonce": "a b"}, "sign.bad-claim"),
        ({"nonce": "n" * 513}, "sign.bad-claim"),
        ({"ath": None}, "sign.bad-hash"),
        ({"ath": "short"}, "sign.bad-claim"),
        ({"ath": access_token_hash("another")}, "sign.bad-hash"),
        ({"rqh": "short"}, "sign.bad-claim"),
        ({"rqh": 5}, "sign.bad-claim"),
    ],
)
def test_a_claim_for_another_request_is_rejected(claims: dict[str, Any], expected: str) -> None:
    """RFC 9449 4.3, and 3.10 of AIIP/HTTPS v1."""
    assert code(forge(claims=claims)) == expected


def test_a_null_claim_is_not_a_missing_one() -> None:
    body = {"jti": "i", "htm": "POST", "htu": URL, "iat": NOW, "ath": access_token_hash(TOKEN)}
    for name in ("nonce", "rqh", "exp", "nbf"):
        assert code(forge(raw_claims=json.dumps({**body, name: None}).encode())) == "sign.bad-claim"


def test_repeated_members_are_rejected() -> None:
    repeated = b'{"typ":"dpop+jwt","typ":"dpop+jwt","alg":"ES256","jwk":{}}'
    assert code(forge(raw_head=repeated)) == "sign.malformed"
    assert code(forge(raw_claims=b'{"jti":"a","jti":"b"}')) == "sign.malformed"
    inner = json.dumps({"typ": "dpop+jwt", "alg": "ES256"})[:-1] + ',"jwk":{"kty":"EC","kty":"EC"}}'
    assert code(forge(raw_head=inner.encode())) == "sign.malformed"


def test_a_text_that_is_not_one_short_jws_is_rejected() -> None:
    good = forge()
    for text in ("", ".", "a.b", f"{good}.x", f"{good},{good}", f"{good} ", "é" + good, "..", f"{good}="):
        assert code(text) == "sign.malformed"
    assert code(forge({"kid": "k" * 2_000})) == "sign.malformed"
    assert code(forge(claims={"more": "m" * 9_000})) == "sign.too-large"


def test_a_changed_proof_is_rejected() -> None:
    head, body, tail = forge().split(".")
    assert code(f"{head}.{b64({'jti': 'other'})}.{tail}") == "sign.bad-signature"
    assert code(forge(signature=b"\0" * 64)) == "sign.bad-signature"
    assert code(forge(signature=b"short")) == "sign.bad-signature"
    other = forge({"jwk": generate_dpop_key().public_jwk}).split(".")[0]
    assert code(f"{other}.{body}.{tail}") == "sign.bad-signature"


def test_a_caller_can_allow_fewer_algorithms() -> None:
    assert code(forge(algorithm="Ed25519"), algorithms=["ES256"]) == "sign.bad-algorithm"
    assert verified(forge(), algorithms=["ES256"]).id == "id-1"


def test_a_nonce_of_a_hostile_server_is_not_signed() -> None:
    with pytest.raises(SignatureError) as caught:
        sign_dpop_proof(generate_dpop_key(), method="POST", url=URL, at=NOW, nonce='a"b')
    assert caught.value.code == "sign.bad-claim"


# keys


def test_a_key_is_stored_and_loaded_and_never_shown() -> None:
    key = generate_dpop_key()
    again = DPoPKey.from_jwk(key.export_key())
    assert (again.thumbprint, again.public_jwk) == (key.thumbprint, key.public_jwk)
    proof = sign_dpop_proof(again, method="POST", url=URL, at=NOW, access_token=TOKEN)
    assert verified(proof).thumbprint == key.thumbprint
    private = json.loads(key.export_key().reveal())["d"]
    assert not any(private in text for text in (repr(key), str(key.public_jwk), proof))
    assert set(key.public_jwk) == {"kty", "crv", "x", "y"}
    with pytest.raises(SecretError):
        pickle.dumps(key)
    with pytest.raises(SecretError):
        copy.deepcopy(key)


def test_only_a_private_es256_key_is_loaded() -> None:
    for text in (json.dumps(public()), SigningKey.generate("Ed25519").secret().reveal(), "{"):
        with pytest.raises(SignatureError):
            DPoPKey.from_jwk(Secret(text))


# independent libraries


def test_jwcrypto_verifies_a_proof_of_ours() -> None:
    key = generate_dpop_key()
    proof = sign_dpop_proof(key, method="POST", url=URL, at=NOW, access_token=TOKEN)
    peer = peer_jwt.JWT(algs=["ES256"])
    peer.deserialize(proof, peer_jwk.JWK(**key.public_jwk))
    assert json.loads(peer.claims)["ath"] == access_token_hash(TOKEN)
    assert peer_jwk.JWK(**key.public_jwk).thumbprint() == key.thumbprint


@pytest.mark.parametrize(("algorithm", "made"), [("ES256", {"kty": "EC", "crv": "P-256"})])
def test_we_verify_a_proof_of_jwcrypto(algorithm: str, made: dict[str, str]) -> None:
    private = peer_jwk.JWK.generate(**made)
    head = {"typ": "dpop+jwt", "alg": algorithm, "jwk": private.export_public(as_dict=True)}
    claims = {"jti": "peer", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": access_token_hash(TOKEN)}
    token = peer_jwt.JWT(header=head, claims=claims)
    token.make_signed_token(private)
    assert verified(token.serialize()).thumbprint == private.thumbprint()


def ask_peer(**asked: Any) -> dict[str, Any]:
    modules, runtime = npm_package(_PEER), node()
    done = subprocess.run(
        [runtime.program, str(_PEER / "peer.mjs"), str(modules)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.peers
def test_jose_verifies_a_proof_of_ours() -> None:
    key = generate_dpop_key()
    proof = sign_dpop_proof(
        key, method="POST", url=URL, at=NOW, access_token=TOKEN, nonce="n", request_hash=RQH
    )
    found = ask_peer(do="embedded", token=proof, typ="dpop+jwt", at=NOW)
    assert found["thumbprint"] == key.thumbprint
    assert found["protectedHeader"] == {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.public_jwk}
    assert found["payload"] == {
        "jti": verified(proof).id,
        "htm": "POST",
        "htu": URL,
        "iat": NOW,
        "ath": access_token_hash(TOKEN),
        "nonce": "n",
        "rqh": RQH,
    }
    head, body, tail = proof.split(".")
    assert ask_peer(do="embedded", token=f"{head}.{body[:-2]}AA.{tail}", typ="dpop+jwt", at=NOW)["refused"]


@pytest.mark.peers
@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
def test_we_verify_a_proof_of_the_npm_package_dpop(algorithm: str) -> None:
    """It is by the author of oauth4webapi, and shares no code with us."""
    found = ask_peer(do="proof", algorithm=algorithm, method="POST", url=URL, nonce="n-2", token=TOKEN)
    proof = verified(found["proof"], at=found["at"])
    assert (proof.thumbprint, proof.nonce) == (found["thumbprint"], "n-2")
    assert code(found["proof"], at=found["at"], method="GET") == "sign.bad-claim"


def _decoded(text: str) -> bytes:
    from onym.sign.keys import decode_base64url

    return decode_base64url(text, "part")
