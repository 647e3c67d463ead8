"""Independent libraries read our receipts, and we read theirs: jwcrypto in Python, jose in JavaScript."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jwcrypto import jwk as peer_jwk
from jwcrypto import jws as peer_jws

from onym.common.text import encode_base64url
from onym.errors import ProvenanceError
from onym.sign.keys import RECEIPT_ALGORITHMS, thumbprint
from onym.sign.receipts import sign_receipt
from peer_install import node, npm_package
from sign_support import NOW, RECEIPT, authority, claims, code, forged, header, jwks, key, verified

ALL = tuple(RECEIPT_ALGORITHMS)
#: jwcrypto's name of Ed25519 is the older one
FOR_JWCRYPTO = ("EdDSA", "ES256", "ES384", "PS256")
_HERE = Path(__file__).with_name("jose")


# jwcrypto


def by_jwcrypto(token: str, public: dict[str, Any]) -> dict[str, Any]:
    known = peer_jws.JWS()
    known.allowed_algs = list(FOR_JWCRYPTO)
    known.deserialize(token, peer_jwk.JWK(**public))
    found: dict[str, Any] = json.loads(known.payload)
    return found


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "PS256"])
def test_jwcrypto_verifies_a_receipt_of_ours(algorithm: str) -> None:
    token = sign_receipt(RECEIPT, key(algorithm))
    assert by_jwcrypto(token, key(algorithm).public()) == claims()
    with pytest.raises(peer_jws.InvalidJWSSignature):
        by_jwcrypto(_with_other_claims(token), key(algorithm).public())


def test_jwcrypto_verifies_an_ed25519_receipt_under_the_older_name() -> None:
    """It knows no `Ed25519` (RFC 9864), so that the same signature is asked for under `EdDSA`."""
    public = {name: value for name, value in key().public().items() if name != "alg"}
    assert by_jwcrypto(forged(header(alg="EdDSA")), public) == claims()
    with pytest.raises(peer_jws.InvalidJWSSignature):
        by_jwcrypto(_with_other_claims(forged(header(alg="EdDSA"))), public)


@pytest.mark.parametrize("algorithm", FOR_JWCRYPTO)
def test_we_verify_what_jwcrypto_signed_and_thumbprints_agree(algorithm: str) -> None:
    made = {
        "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
        "ES256": {"kty": "EC", "crv": "P-256"},
        "ES384": {"kty": "EC", "crv": "P-384"},
        "PS256": {"kty": "RSA", "size": 2048},
    }[algorithm]
    private = peer_jwk.JWK.generate(**made)
    public = json.loads(private.export_public())
    kid = private.thumbprint()
    assert thumbprint(public) == kid
    signed = peer_jws.JWS(json.dumps(claims()).encode())
    signed.allowed_algs = list(FOR_JWCRYPTO)
    head = {"alg": algorithm, "kid": kid, "typ": "aiip-receipt+jwt"}
    signed.add_signature(private, None, json.dumps(head))
    name = "Ed25519" if algorithm == "EdDSA" else algorithm
    keys = authority({**public, "alg": name, "kid": kid})
    token = signed.serialize(compact=True)
    assert verified(token, keys, algorithms=ALL) == RECEIPT
    assert code(_with_other_claims(token), keys, algorithms=ALL) == "aiip.provenance-invalid"


def _with_other_claims(token: str) -> str:
    head, _, tail = token.split(".")
    return ".".join((head, encode_base64url(json.dumps(claims(iss="https://evil.example")).encode()), tail))


# npm jose


def ask_jose(**asked: Any) -> dict[str, Any]:
    modules, runtime = npm_package(_HERE), node()
    done = subprocess.run(
        [runtime.program, str(_HERE / "peer.mjs"), str(modules)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.peers
@pytest.mark.parametrize("algorithm", ALL)
def test_jose_verifies_a_receipt_of_ours(algorithm: str) -> None:
    token = sign_receipt(RECEIPT, key(algorithm))
    asked = {
        "do": "verify",
        "jwks": json.loads(jwks(*(key(each) for each in ALL))),
        "algorithms": ALL,
        "typ": "aiip-receipt+jwt",
        "at": NOW,
    }
    found = ask_jose(token=token, **asked)
    assert found == {"payload": claims(), "protectedHeader": header(key(algorithm))}
    assert ask_jose(token=_with_other_claims(token), **asked)["refused"]
    assert ask_jose(token=token, **{**asked, "typ": "JWT"})["refused"]


@pytest.mark.peers
@pytest.mark.parametrize("algorithm", ALL)
def test_we_verify_what_jose_signed(algorithm: str) -> None:
    found = ask_jose(do="sign", claims=claims(), algorithm=algorithm, typ="aiip-receipt+jwt")
    keys = authority(found["jwk"])
    assert keys.kids == {found["jwk"]["kid"]}
    assert verified(found["token"], keys, algorithms=ALL) == RECEIPT
    with pytest.raises(ProvenanceError):
        verified(_with_other_claims(found["token"]), keys, algorithms=ALL)
