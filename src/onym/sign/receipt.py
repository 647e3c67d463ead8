"""Receipts: who answered what to whom and when, signed (AIIP/HTTPS v1, 3.8).

A receipt is a compact JWS over a claims set. It binds the request by a hash and the content by a digest, so
that it can be kept and verified later without the message. What is wrong with one is said in one way,
whatever it is: the step is in `clause`, the reason in the error's cause, which is not for strangers.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from onym.errors import ProvenanceError, SignatureError, UsageError
from onym.sign._claims import MAX_LIFE, Receipt, claims_of, receipt_of
from onym.sign._jwk import RECEIPT_ALGORITHMS
from onym.sign._strict import encode, read_object
from onym.sign._token import accepted, in_force, signed, split
from onym.sign.authority import LEEWAY
from onym.sign.chain import StreamEnd

if TYPE_CHECKING:
    from onym.sign.authority import AuthorityKeys
    from onym.sign.keys import Signer

__all__ = [
    "DEFAULT_ALGORITHMS",
    "GATEWAY",
    "MAX_LIFE",
    "MAX_RECEIPT",
    "RECEIPT",
    "Expected",
    "Receipt",
    "StreamEnd",
    "access_token_hash",
    "content_digest",
    "kid_of",
    "new_id",
    "request_hash",
    "sign_receipt",
    "verify_filed",
    "verify_receipt",
]

#: octets of a receipt
MAX_RECEIPT: Final = 4096
#: `typ` of an endpoint's receipt, and of a gateway's
RECEIPT: Final = "aiip-receipt+jwt"
GATEWAY: Final = "aiip-gateway+jwt"
#: what is accepted where nobody says more; `EdDSA` goes with `Ed25519`, as its older name
DEFAULT_ALGORITHMS: Final = ("Ed25519", "ES256")
_WHAT: Final = "a receipt"
_REQUEST: Final = b"aiip-req-v1"
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"
#: octets of randomness of a receipt's id
_ID: Final = 16
#: claims that must be what the request says, and where (3.8 step 6)
_BOUND: Final = (
    ("iss", "issuer"),
    ("sub", "subject"),
    ("aud", "audience"),
    ("nonce", "nonce"),
    ("rqh", "request"),
    ("ath", "token_hash"),
    ("tsk", "task"),
    ("orq", "original"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a receipt must say, known from the request that went out and the answer that came.

    `issuer` is the anchor, `subject` the canonical ai URI without query, `audience` this caller, `request`
    the request hash. Exactly one of `body` (the octets as received) and `stream` is given. `token_hash` is
    None where no access token was used, `task` and `original` where no task was asked for.
    """

    issuer: str
    subject: str
    audience: str
    nonce: str
    request: str
    status: int
    content_type: str | None
    body: bytes | None = field(default=None, repr=False)
    stream: StreamEnd | None = None
    token_hash: str | None = None
    task: str | None = None
    original: str | None = None


def content_digest(body: bytes) -> str:
    """The SHA-256 of these octets as in a Content-Digest field (RFC 9530): `sha-256=:...:`."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode('ascii')}:"


def access_token_hash(token: str) -> str:
    """`ath` of an access token: its SHA-256 in base64url (the definition of RFC 9449 4.2)."""
    return encode(sha256(token.encode("ascii")).digest())


def new_id() -> str:
    """A receipt's id: 128 bits of randomness in base64url."""
    return secrets.token_urlsafe(_ID)


def kid_of(token: str) -> str:
    """The kid that a token names, on its own word: nothing is verified. Raises SignatureError."""
    kid = read_object(split(token, _WHAT, MAX_RECEIPT)[0], "header").get("kid")
    if not isinstance(kid, str):
        raise SignatureError("the token names no key", code="sign.bad-header")
    return kid


def request_hash(
    *,
    method: str,
    target: str,
    digest: str | None,
    content_type: str | None,
    idempotency_key: str | None,
) -> str:
    """`rqh`: what was asked, as a hash, so that a receipt can be shown without telling it.

    `target` is the canonical ai URI with its query, `digest` the Content-Digest of the body, `content_type`
    the field as sent, `idempotency_key` the key itself without quotes. Raises SignatureError for a part that
    is not ASCII or has line ends, which no HTTP request can have.
    """
    lines = (method, target, digest or "-", content_type or "-", idempotency_key or "-")
    if not all(each.isascii() and "\n" not in each and "\r" not in each for each in lines):
        raise SignatureError("a part of the request is not one line of ASCII", code="sign.bad-request")
    octets = b"\n".join((_REQUEST, *(each.encode("ascii") for each in lines)))
    return encode(sha256(octets).digest())


def sign_receipt(receipt: Receipt, signer: Signer) -> str:
    """The receipt in its compact form.

    Raises SignatureError for a key without kid, for one that would be refused by `verify_receipt` because of
    a claim's form, its life or its size, and where the key's device fails.
    """
    claims = claims_of(receipt)
    receipt_of(claims, receipt.kind)  # what nobody would accept is not signed
    token = signed(claims, _WHAT, receipt.kind, signer)
    if len(token) > MAX_RECEIPT:
        raise SignatureError(f"the receipt is longer than {MAX_RECEIPT} octets", code="sign.too-large")
    return token


def verify_receipt(
    token: str | None,
    keys: AuthorityKeys,
    expected: Expected,
    *,
    at: float,
    seen: Callable[[str, float], bool],
    kind: str = RECEIPT,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
) -> Receipt:
    """The receipt, once all of it holds for this request and this answer, now (`at`, seconds).

    `keys` are those of the expected authority alone. `seen(identity, until)` records the id of a receipt
    whose signature and claims hold and says whether it was there already. `algorithms` are what the authority
    and local policy allow. The order is that of 3.8; the first failure ends it.

    Raises ProvenanceError with the codes `aiip.provenance-missing`, `aiip.provenance-invalid` and
    `aiip.provenance-stale` (time, or seen before). One failure is a SignatureError: `sign.unknown-key`, by
    which a caller knows that its copy of the keys may be too old.
    """
    if (expected.body is None) == (expected.stream is None):
        raise UsageError("a receipt is verified against a body or a stream", code="usage.bad-argument")
    receipt, kid = _opened(token, keys, at, kind, algorithms)
    _check_claims(receipt, expected)
    _check_time(receipt, at)
    if seen(f"{kid}.{receipt.id}", receipt.expires + LEEWAY):
        raise _refused(6, "jti", "the receipt was shown before", "aiip.provenance-stale")
    _check_content(receipt, expected)
    return receipt


def verify_filed(
    token: str | None,
    keys: AuthorityKeys,
    *,
    body: bytes | None = None,
    subject: str | None = None,
    issuer: str | None = None,
    at: float | None = None,
    kind: str = RECEIPT,
    algorithms: Collection[str] = tuple(RECEIPT_ALGORITHMS),
) -> Receipt:
    """A receipt out of a file, judged by the time that it names and the history of the authority's keys.

    `body` is the content that was filed with it, if it was; `subject` and `issuer` what they must be, where
    that is known; `at` the time of judging: a receipt from after it is refused. Audience, nonce, request and
    replay are not judged: they need the request. Raises as `verify_receipt` does.
    """
    receipt, _ = _opened(token, keys, None, kind, algorithms)
    for name, given, wanted in (("iss", receipt.issuer, issuer), ("sub", receipt.subject, subject)):
        if wanted is not None and given != wanted:
            raise _refused(6, name, "the receipt is not of this issuer or resource")
    if at is not None and receipt.issued > at + LEEWAY:
        raise _refused(6, "iat", "the receipt is from after that time", "aiip.provenance-stale")
    if body is not None:
        _check_body(receipt, body)
    return receipt


def _opened(
    token: str | None,
    keys: AuthorityKeys,
    at: float | None,
    kind: str,
    algorithms: Collection[str],
) -> tuple[Receipt, str]:
    """Steps 1 to 5, the form of the claims, and the kid. Without `at`, the receipt's own time counts."""
    if not token:
        raise ProvenanceError(
            "there is no receipt", code="aiip.provenance-missing", clause=f"{_CLAUSE} step 1"
        )
    step = 1
    try:
        head, payload, signature, octets = split(token, _WHAT, MAX_RECEIPT)
        step = 2
        header = read_object(head, "header")
        step = 3
        algorithm, kid = accepted(header, "the receipt", kind, algorithms)
        step = 4
        key = keys.named(kid, algorithm) if at is None else in_force(keys, kid, algorithm, at)
        step = 5
        if not key.holds(algorithm, octets, signature):
            raise SignatureError("the signature does not hold", code="sign.bad-signature")
        step = 6
        receipt = receipt_of(read_object(payload, "claims set"), kind)
        if at is None:
            keys.find(kid, algorithm, receipt.issued)
    except SignatureError as error:
        if error.code == "sign.unknown-key":
            raise
        raise _refused(step) from error
    return receipt, kid


def _check_claims(receipt: Receipt, expected: Expected) -> None:
    """Step 6: is it of this authority and resource, for this caller and request?"""
    for claim, name in _BOUND:
        if getattr(receipt, name) != getattr(expected, name):
            raise _refused(6, claim, "the receipt is not of this request")


def _check_time(receipt: Receipt, at: float) -> None:
    if not abs(at - receipt.issued) <= LEEWAY:  # so that NaN is no time either
        why = "the receipt is not of this moment: are both clocks right?"
        raise _refused(6, "iat", why, "aiip.provenance-stale")
    if at >= receipt.expires:
        raise _refused(6, "exp", "the receipt has expired", "aiip.provenance-stale")


def _check_content(receipt: Receipt, expected: Expected) -> None:
    """Step 7: is it of the status, content type and octets that came?"""
    if receipt.status != expected.status:
        raise _refused(7, "res.st", "the receipt is for another status")
    if receipt.content_type != expected.content_type:
        raise _refused(7, "res.ct", "the receipt is for another content type")
    if expected.body is not None:
        _check_body(receipt, expected.body)
    elif receipt.stream != expected.stream:
        raise _refused(7, "str", "the receipt is for other events, or for more or fewer")


def _check_body(receipt: Receipt, body: bytes) -> None:
    if receipt.length != len(body):
        raise _refused(7, "res.len", "the receipt is for content of another length, or for a stream")
    if receipt.digest != content_digest(body):
        raise _refused(7, "res.cd", "the receipt is for other content")


def _refused(
    step: int, what: str | None = None, why: str | None = None, code: str = "aiip.provenance-invalid"
) -> ProvenanceError:
    """One sentence for all failures; which it was is in the clause, and why in the cause."""
    place = f"{_CLAUSE} step {step}" + ("" if what is None else f" ({what})")
    error = ProvenanceError("the receipt does not hold", code=code, clause=place)
    if why is not None:
        error.__cause__ = SignatureError(f"{what}: {why}", code="sign.bad-claim")
    return error
