"""Receipts: signed statements of who answered what to whom and when (AIIP/HTTPS v1, 3.8).

A receipt is a compact JWS over a claims set. It binds the request by a hash and the content by a digest, so
it can be stored and verified later without the message. A stream's receipt ends a hash chain over its
events: `c0 = SHA-256("aiip-stream-v1" LF rqh LF task)`,
`ci = SHA-256(c(i-1) || SHA-256(id LF event LF data))`.
An event that is changed, moved, removed or added changes every later value.

The tokens of an authority (receipts and signed metadata) have three parts and a header with only `typ`,
`alg` and `kid`. `typ` separates the kinds of tokens: a reader names the one that it accepts (RFC 8725 3.11).

All verification failures have the same message. `clause` names the step; the cause of the error holds the
reason, which must not be shown to people you do not trust.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from onym.common.strict_json import encode_base64url
from onym.errors import ProvenanceError, SignatureError, UsageError
from onym.sign.algorithms import RECEIPT_ALGORITHMS, USUAL_ALGORITHMS, normalize_algorithm
from onym.sign.encoding import decode_base64url, parse_json_object
from onym.sign.keys import LEEWAY

if TYPE_CHECKING:
    from onym.sign.keys import AuthorityKeys, Key, Signer

_LABEL: Final = b"aiip-stream-v1"
#: what no id or type of an event holds (WHATWG HTML 9.2.5); in data a CR would come out as LF
_BROKEN: Final = re.compile(r"[\r\n\0]").search


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How many events a stream had before its receipt, and the chain's value there (as in Content-Digest)."""

    count: int
    digest: str


class StreamChain:
    """The chain of one stream: events in, in the order of the wire, as a reader of the stream decodes them.

    `request_hash` is the `rqh` of the request; `task` the id of the task, `-` for none.
    """

    __slots__ = ("_count", "_value")

    def __init__(self, request_hash: str, task: str = "-") -> None:
        self._count = 0
        self._value = sha256(b"\n".join((_LABEL, request_hash.encode(), task.encode()))).digest()

    def add(self, id: str, event: str, data: str) -> None:  # noqa: A002 - the field's name in the standard
        """One event. An empty type is `message`, as readers see it. Raises SignatureError.

        Fields that an event stream cannot carry unchanged are refused: they would verify on one side only.
        """
        if _BROKEN(id) or _BROKEN(event) or "\r" in data:
            raise SignatureError(
                "an event's id and type have no line ends, and its data no CR",
                code="sign.bad-event",
                hint="write line ends in data as LF",
            )
        try:
            octets = "\n".join((id, event or "message", data)).encode("utf-8")
        except UnicodeEncodeError:
            raise SignatureError("an event's text is not Unicode", code="sign.bad-event") from None
        self._value = sha256(self._value + sha256(octets).digest()).digest()
        self._count += 1

    @property
    def end(self) -> StreamEnd:
        """The chain up to here."""
        return StreamEnd(self._count, f"sha-256=:{b64encode(self._value).decode('ascii')}:")


_HEADER: Final = frozenset({"typ", "alg", "kid"})
_READ_AGAIN: Final = "has the authority changed keys? Read its set again"


def split_token(token: str, what: str, limit: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Header, payload, signature and what is signed, of a token of three parts in their one spelling.

    `what` is the token's name in messages. Raises SignatureError for more than `limit` octets, too.
    """
    parts = token.split(".", 3)
    if len(token) > limit or len(parts) != 3 or not all(parts):
        raise SignatureError(
            f"{what} is a JWS of three parts and at most {limit} octets", code="sign.malformed"
        )
    head, payload, signature = parts
    return (
        decode_base64url(head, "header"),
        decode_base64url(payload, "payload"),
        decode_base64url(signature, "signature"),
        f"{head}.{payload}".encode("ascii"),
    )


def parse_token_header(
    header: Mapping[str, Any], what: str, kind: str, algorithms: Collection[str]
) -> tuple[str, str]:
    """Algorithm and kid of a header that says nothing else, of a type and algorithm that are accepted."""
    if header.keys() != _HEADER or not all(isinstance(value, str) for value in header.values()):
        raise SignatureError("the header has typ, alg and kid, and nothing else", code="sign.bad-header")
    if header["typ"] != kind:
        raise SignatureError("the token is of another type", code="sign.bad-header")
    algorithm = header["alg"]
    name = normalize_algorithm(algorithm)
    if name not in algorithms or name not in RECEIPT_ALGORITHMS:
        raise SignatureError(
            f"{what} is signed with an algorithm that is not allowed here",
            code="sign.bad-algorithm",
            hint=f"allowed: {', '.join(sorted(algorithms))}",
        )
    return algorithm, header["kid"]


def find_key_in_force(keys: AuthorityKeys, kid: str, algorithm: str, at: float) -> Key:
    """The key, which must be in force now by the copy of the set at hand.

    A copy may be too old to tell: where a key is revoked, the next one signs before the time that was said.
    """
    try:
        return keys.find(kid, algorithm, at)
    except SignatureError as error:
        if error.code != "sign.key-not-in-force":
            raise
        raise SignatureError(
            "by the copy at hand of the authority's key set, the key is not in force now",
            code="sign.unknown-key",
            hint=_READ_AGAIN,
        ) from error


def sign_token(claims: Mapping[str, Any], what: str, kind: str, signer: Signer) -> str:
    """These claims as a token of that type. Raises SignatureError for a key without kid."""
    if signer.kid is None:
        raise SignatureError(
            f"{what} is signed with a key that has a kid",
            code="sign.bad-key",
            hint="SigningKey.with_thumbprint()",
        )
    payload = json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text = f"{_encode_header(kind, signer.algorithm, signer.kid)}.{encode_base64url(payload)}"
    return f"{text}.{encode_base64url(signer.sign(text.encode('ascii')))}"


@lru_cache(maxsize=64)
def _encode_header(kind: str, algorithm: str, kid: str) -> str:
    return encode_base64url(
        json.dumps({"alg": algorithm, "kid": kid, "typ": kind}, separators=(",", ":")).encode()
    )


#: seconds between `iat` and `exp`, at most
MAX_LIFE: Final = 300
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds
_LARGEST: Final = 2**53 - 1  # the last integer that every reader of JSON has (RFC 8259 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an authority says of one answer.

    `issuer` is the anchor, `subject` the canonical ai URI without query, `audience` the caller, `issued` and
    `expires` seconds since the epoch, `id` and `nonce` of 128 bits or more, `request` the request hash. The
    content is `digest` (as in Content-Digest) and `length` in octets; a stream has `stream` instead.
    `token_hash` is of the access token, `task` and `original` tie the result of a task to what was asked,
    `policy` and `approval` name what allowed it, `upstream` (a gateway's receipt) the hash of the endpoint's.
    """

    kind: str = "aiip-receipt+jwt"
    issuer: str
    subject: str
    audience: str
    issued: float
    expires: float
    id: str
    nonce: str | None
    request: str
    status: int
    content_type: str | None = None
    digest: str | None = None
    length: int | None = None
    stream: StreamEnd | None = None
    token_hash: str | None = None
    task: str | None = None
    original: str | None = None
    policy: str | None = None
    approval: str | None = None
    upstream: str | None = None


def _make_text_check(pattern: str) -> Callable[[object], bool]:
    matches = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and matches(value) is not None


def _make_integer_check(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST


_VISIBLE: Final = _make_text_check(r"[\x20-\x7e]{1,1024}")
_WORD: Final = _make_text_check(r"[\x21-\x7e]{1,256}")
_RANDOM: Final = _make_text_check(r"[A-Za-z0-9_-]{22,128}")
_HASH: Final = _make_text_check(r"[A-Za-z0-9_-]{43}")
_DIGEST: Final = _make_text_check(r"sha-256=:[A-Za-z0-9+/]{43}=:")

#: claim, field of Receipt, its form, must it be there
_Row = tuple[str, str, Callable[[object], bool], bool]
_CLAIMS: Final[tuple[_Row, ...]] = (
    ("iss", "issuer", _VISIBLE, True),
    ("sub", "subject", _make_text_check(r"ai:[\x21\x22\x24-\x3e\x40-\x7e]{1,2048}"), True),  # neither # nor ?
    ("aud", "audience", _VISIBLE, True),
    ("iat", "issued", _is_time, True),
    ("exp", "expires", _is_time, True),
    ("jti", "id", _RANDOM, True),
    ("nonce", "nonce", _RANDOM, False),
    ("rqh", "request", _HASH, True),
    ("ath", "token_hash", _HASH, False),
    ("tsk", "task", _WORD, False),
    ("orq", "original", _HASH, False),
    ("pol", "policy", _WORD, False),
    ("apr", "approval", _WORD, False),
    ("up", "upstream", _WORD, False),
)
_RESULT: Final[tuple[_Row, ...]] = (
    ("st", "status", _make_integer_check(100, 599), True),
    ("ct", "content_type", _VISIBLE, False),
    ("cd", "digest", _DIGEST, False),
    ("len", "length", _make_integer_check(0, _LARGEST), False),
)
_STREAM: Final[tuple[_Row, ...]] = (
    ("n", "count", _make_integer_check(0, _LARGEST), True),
    ("cd", "digest", _DIGEST, True),
)


def encode_claims(receipt: Receipt) -> dict[str, Any]:
    """The claims set, to be signed."""
    claims = _encode_rows(receipt, _CLAIMS)
    claims["res"] = _encode_rows(receipt, _RESULT)
    if receipt.stream is not None:
        claims["str"] = _encode_rows(receipt.stream, _STREAM)
    return claims


def decode_claims(claims: Mapping[str, Any], kind: str) -> Receipt:
    """The receipt that these claims are; claims that are not known are left alone. Raises SignatureError."""
    fields = _decode_rows(claims, _CLAIMS)
    fields |= _decode_rows(_get_object(claims, "res"), _RESULT)
    if "str" in claims:
        fields["stream"] = StreamEnd(**_decode_rows(_get_object(claims, "str"), _STREAM))
    whole = {"digest", "length"} & fields.keys()
    if ("stream" in fields and whole) or ("stream" not in fields and len(whole) < 2):
        raise _make_claim_error("res", "the content is bound by cd and len, or by str, and not by both")
    _require_lifetime(claims)
    return Receipt(kind=kind, **{"nonce": None, **fields})


def _require_lifetime(claims: Mapping[str, Any]) -> None:
    begins, ends = claims["iat"], claims["exp"]
    if not 0 < ends - begins <= MAX_LIFE:
        raise _make_claim_error("exp", f"a receipt lives for {MAX_LIFE} seconds at most")
    if "nbf" in claims and not (_is_time(claims["nbf"]) and claims["nbf"] <= begins):
        raise _make_claim_error("nbf", "a receipt counts from iat on")


def _encode_rows(source: object, rows: tuple[_Row, ...]) -> dict[str, Any]:
    found = {claim: getattr(source, name) for claim, name, _, _ in rows}
    return {claim: _drop_fraction(value) for claim, value in found.items() if value is not None}


def _drop_fraction(value: object) -> object:
    """Whole seconds without a fraction, which some readers do not expect."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _decode_rows(claims: Mapping[str, Any], rows: tuple[_Row, ...]) -> dict[str, Any]:
    found = {}
    for claim, name, fits, needed in rows:
        if claim in claims:
            if not fits(claims[claim]):
                raise _make_claim_error(claim, "the claim is not of its form")
            found[name] = claims[claim]
        elif needed:
            raise _make_claim_error(claim, "the claim is missing")
    return found


def _get_object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = claims.get(name)
    if not isinstance(found, dict):
        raise _make_claim_error(name, "the claim is missing, or no object")
    return found


def _make_claim_error(claim: str, message: str) -> SignatureError:
    return SignatureError(f"{claim}: {message}", code="sign.bad-claim")


#: octets of a receipt
MAX_RECEIPT: Final = 4096
#: `typ` of an endpoint's receipt, and of a gateway's
RECEIPT: Final = "aiip-receipt+jwt"
GATEWAY: Final = "aiip-gateway+jwt"
#: what is accepted where nobody says more; `EdDSA` goes with `Ed25519`, as its older name
DEFAULT_ALGORITHMS: Final = USUAL_ALGORITHMS
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
    return encode_base64url(sha256(token.encode("ascii")).digest())


def make_receipt_id() -> str:
    """A receipt's id: 128 bits of randomness in base64url."""
    return secrets.token_urlsafe(_ID)


def get_kid(token: str) -> str:
    """The kid that a token names, on its own word: nothing is verified. Raises SignatureError."""
    kid = parse_json_object(split_token(token, _WHAT, MAX_RECEIPT)[0], "header").get("kid")
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
    return encode_base64url(sha256(octets).digest())


def sign_receipt(receipt: Receipt, signer: Signer) -> str:
    """The receipt in its compact form.

    Raises SignatureError for a key without kid, for one that would be refused by `verify_receipt` because of
    a claim's form, its life or its size, and where the key's device fails.
    """
    claims = encode_claims(receipt)
    decode_claims(claims, receipt.kind)  # what nobody would accept is not signed
    token = sign_token(claims, _WHAT, receipt.kind, signer)
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
    receipt, kid = _open_receipt(token, keys, at, kind, algorithms)
    _require_claims(receipt, expected)
    _require_time(receipt, at)
    if seen(f"{kid}.{receipt.id}", receipt.expires + LEEWAY):
        raise _make_refusal(6, "jti", "the receipt was shown before", "aiip.provenance-stale")
    _require_content(receipt, expected)
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
    algorithms: Collection[str] = RECEIPT_ALGORITHMS,
) -> Receipt:
    """A receipt out of a file, judged by the time that it names and the history of the authority's keys.

    `body` is the content that was filed with it, if it was; `subject` and `issuer` what they must be, where
    that is known; `at` the time of judging: a receipt from after it is refused. Audience, nonce, request and
    replay are not judged: they need the request. Raises as `verify_receipt` does.
    """
    receipt, _ = _open_receipt(token, keys, None, kind, algorithms)
    for name, given, wanted in (("iss", receipt.issuer, issuer), ("sub", receipt.subject, subject)):
        if wanted is not None and given != wanted:
            raise _make_refusal(6, name, "the receipt is not of this issuer or resource")
    if at is not None and receipt.issued > at + LEEWAY:
        raise _make_refusal(6, "iat", "the receipt is from after that time", "aiip.provenance-stale")
    if body is not None:
        _require_body(receipt, body)
    return receipt


def _open_receipt(
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
        head, payload, signature, octets = split_token(token, _WHAT, MAX_RECEIPT)
        step = 2
        header = parse_json_object(head, "header")
        step = 3
        algorithm, kid = parse_token_header(header, "the receipt", kind, algorithms)
        step = 4
        key = keys.named(kid, algorithm) if at is None else find_key_in_force(keys, kid, algorithm, at)
        step = 5
        if not key.verify(algorithm, octets, signature):
            raise SignatureError("the signature does not hold", code="sign.bad-signature")
        step = 6
        receipt = decode_claims(parse_json_object(payload, "claims set"), kind)
        if at is None:
            keys.find(kid, algorithm, receipt.issued)
    except SignatureError as error:
        if error.code == "sign.unknown-key":
            raise
        raise _make_refusal(step) from error
    return receipt, kid


def _require_claims(receipt: Receipt, expected: Expected) -> None:
    """Step 6: is it of this authority and resource, for this caller and request?"""
    for claim, name in _BOUND:
        if getattr(receipt, name) != getattr(expected, name):
            raise _make_refusal(6, claim, "the receipt is not of this request")


def _require_time(receipt: Receipt, at: float) -> None:
    if not abs(at - receipt.issued) <= LEEWAY:  # so that NaN is no time either
        why = "the receipt is not of this moment: are both clocks right?"
        raise _make_refusal(6, "iat", why, "aiip.provenance-stale")
    if at >= receipt.expires:
        raise _make_refusal(6, "exp", "the receipt has expired", "aiip.provenance-stale")


def _require_content(receipt: Receipt, expected: Expected) -> None:
    """Step 7: is it of the status, content type and octets that came?"""
    if receipt.status != expected.status:
        raise _make_refusal(7, "res.st", "the receipt is for another status")
    if receipt.content_type != expected.content_type:
        raise _make_refusal(7, "res.ct", "the receipt is for another content type")
    if expected.body is not None:
        _require_body(receipt, expected.body)
    elif receipt.stream != expected.stream:
        raise _make_refusal(7, "str", "the receipt is for other events, or for more or fewer")


def _require_body(receipt: Receipt, body: bytes) -> None:
    if receipt.length != len(body):
        raise _make_refusal(7, "res.len", "the receipt is for content of another length, or for a stream")
    if receipt.digest != content_digest(body):
        raise _make_refusal(7, "res.cd", "the receipt is for other content")


def _make_refusal(
    step: int, what: str | None = None, why: str | None = None, code: str = "aiip.provenance-invalid"
) -> ProvenanceError:
    """One sentence for all failures; which it was is in the clause, and why in the cause."""
    place = f"{_CLAUSE} step {step}" + ("" if what is None else f" ({what})")
    error = ProvenanceError("the receipt does not hold", code=code, clause=place)
    if why is not None:
        error.__cause__ = SignatureError(f"{what}: {why}", code="sign.bad-claim")
    return error
