"""Receipts for tests: one that holds, and ways to write others that a signer of ours would not."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from onym.errors import ProvenanceError, SignatureError
from onym.sign.keys import AuthorityKeys, SigningKey, read_authority_keys
from onym.sign.receipts import Expected, Receipt, content_digest, request_hash, sign_receipt, verify_receipt

__all__ = [
    "BODY",
    "EXPECTED",
    "NOW",
    "RECEIPT",
    "authority",
    "b64",
    "claims",
    "clause",
    "code",
    "forged",
    "header",
    "jwks",
    "key",
    "refusal",
    "verified",
]

NOW = 1_760_000_000.0
BODY = b'{"amount":10,"currency":"USD"}'
_NONCE = "bm9uY2Utb2YtdGhlLWNhbGxlcg"
_REQUEST = request_hash(
    method="POST",
    target="ai://bank.example/payments?amount=10&currency=USD",
    digest=None,
    content_type=None,
    idempotency_key=None,
)
RECEIPT = Receipt(
    issuer="https://bank.example",
    subject="ai://bank.example/payments",
    audience="https://app.example",
    issued=NOW,
    expires=NOW + 120,
    id="aWQtb2YtMTI4LWJpdHMtb3ItbW9yZQ",
    nonce=_NONCE,
    request=_REQUEST,
    status=200,
    content_type="application/json",
    digest=content_digest(BODY),
    length=len(BODY),
)
EXPECTED = Expected(
    issuer=RECEIPT.issuer,
    subject=RECEIPT.subject,
    audience=RECEIPT.audience,
    nonce=_NONCE,
    request=_REQUEST,
    status=200,
    content_type="application/json",
    body=BODY,
)


@cache
def key(algorithm: str = "Ed25519", number: int = 0) -> SigningKey:
    """A key of one's own for each algorithm and number, its kid the thumbprint."""
    del number
    return SigningKey.generate(algorithm).with_thumbprint()


def jwks(*members: SigningKey | dict[str, Any], **more: Any) -> bytes:
    """A key set of these keys, as it is served."""
    rows = [each.public() if isinstance(each, SigningKey) else each for each in members]
    return json.dumps({"keys": rows, **more}).encode()


def authority(*members: SigningKey | dict[str, Any], **more: Any) -> AuthorityKeys:
    """The same, read."""
    return read_authority_keys(jwks(*(members or (key(),)), **more))


def b64(value: object) -> str:
    """Octets, text or JSON in base64url."""
    octets = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else None
    octets = json.dumps(value).encode() if octets is None else octets
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def header(signer: SigningKey | None = None, **more: Any) -> dict[str, Any]:
    """The header that a receipt by that key has, and more; None takes a member away."""
    signer = signer or key()
    found = {"alg": signer.algorithm, "kid": signer.kid, "typ": "aiip-receipt+jwt", **more}
    return {name: value for name, value in found.items() if value is not None}


def claims(**more: Any) -> dict[str, Any]:
    """The claims of RECEIPT, and more; None takes one away."""
    _, payload, _ = sign_receipt(RECEIPT, key()).split(".")
    found = {**json.loads(_decoded(payload)), **more}
    return {name: value for name, value in found.items() if value is not None}


def _decoded(text: str) -> bytes:
    from onym.sign.keys import decode_base64url

    return decode_base64url(text, "part")


def forged(
    head: object = None,
    payload: object = None,
    signer: SigningKey | None = None,
    signature: bytes | None = None,
) -> str:
    """A token with a right signature of `signer` over any header and payload, or with that signature."""
    signer = signer or key()
    signed = (
        f"{b64(header(signer) if head is None else head)}.{b64(claims() if payload is None else payload)}"
    )
    return f"{signed}.{b64(signer.sign(signed.encode()) if signature is None else signature)}"


def verified(
    token: str | None,
    keys: AuthorityKeys | None = None,
    expected: Expected = EXPECTED,
    at: float = NOW,
    **more: Any,
) -> Receipt:
    """The receipt, verified against what was expected, in a world that has seen nothing yet."""
    more.setdefault("seen", lambda identity, until: False)
    return verify_receipt(token, authority() if keys is None else keys, expected, at=at, **more)


def refusal(token: str | None, *args: Any, **more: Any) -> ProvenanceError | SignatureError:
    """The error that rejects a token. Its message is the same for all tokens."""
    fresh = {name: more.pop(name) for name in list(more) if name in Expected.__dataclass_fields__}
    if fresh:
        more["expected"] = replace(EXPECTED, **fresh)
    with pytest.raises((ProvenanceError, SignatureError)) as caught:
        verified(token, *args, **more)
    error = caught.value
    if isinstance(error, ProvenanceError):
        assert error.message in {"the receipt is invalid", "the result has no receipt"}
        assert error.hint is None
        assert (error.clause or "").startswith("AIIP/HTTPS v1 3.8 step ")
    else:
        # the one failure that a caller acts on
        assert error.code == "sign.unknown-key"
    return error


def code(token: str | None, *args: Any, **more: Any) -> str:
    """The code of that error."""
    return refusal(token, *args, **more).code


def clause(token: str | None, *args: Any, **more: Any) -> str:
    """The step of 3.8 that refused, and the claim where there is one: "6 (aud)"."""
    found = refusal(token, *args, **more)
    assert isinstance(found, ProvenanceError)
    return str(found.clause).removeprefix("AIIP/HTTPS v1 3.8 step ")
