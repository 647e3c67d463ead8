"""Tokens of an authority: receipts of who answered what (AIIP/HTTPS v1, 3.8), and signed metadata (3.2).

A token is a compact JWS with a header of `typ`, `alg` and `kid`; a reader names the `typ` that it accepts.
All verification failures have the same message: `clause` names the step, and the cause of the error holds the
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

import msgspec

from onym.common.text import encode_base64url
from onym.errors import ProvenanceError, SignatureError, UsageError
from onym.sign import keys as signing_keys
from onym.sign.jws import make_claim_error, parse_time_claim

if TYPE_CHECKING:
    from onym.sign.keys import Key

_LABEL: Final = b"aiip-stream-v1"
#: characters that the id and type of an event cannot have (WHATWG HTML 9.2.5); in data CR becomes LF
_BROKEN: Final = re.compile(r"[\r\n\0]").search


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The number of events before the receipt of a stream, and the chain's value (as in Content-Digest)."""

    count: int
    digest: str


class StreamChain:
    """The hash chain of one stream. Add the events in order, as a reader of the stream decodes them.

    `c0 = SHA-256("aiip-stream-v1" LF rqh LF task)`, `ci = SHA-256(c(i-1) || SHA-256(id LF event LF data))`:
    an event that is changed, moved, removed or added changes every later value.

    `request_hash` is the `rqh` of the request; `task` the id of the task, `-` for none.
    """

    __slots__ = ("_count", "_value")

    def __init__(self, request_hash: str, task: str = "-") -> None:
        self._count = 0
        self._value = sha256(b"\n".join((_LABEL, request_hash.encode(), task.encode()))).digest()

    def add(self, id: str, event: str, data: str) -> None:  # noqa: A002 - the field's name in the standard
        """Add an event. An empty type is `message`, as readers see it.

        Raises SignatureError for fields that an event stream cannot carry unchanged: the receipt would verify
        on one side only.
        """
        if _BROKEN(id) or _BROKEN(event) or "\r" in data:
            message, hint = (
                "the id or type of an event has a line end, or its data a CR",
                "write line ends as LF",
            )
            raise SignatureError(message, code="sign.bad-event", hint=hint)
        try:
            content = "\n".join((id, event or "message", data)).encode("utf-8")
        except UnicodeEncodeError:
            raise SignatureError("an event's text is not Unicode", code="sign.bad-event") from None
        self._value = sha256(self._value + sha256(content).digest()).digest()
        self._count += 1

    @property
    def end(self) -> StreamEnd:
        """The chain after the events so far."""
        return StreamEnd(self._count, f"sha-256=:{b64encode(self._value).decode('ascii')}:")


_HEADER: Final = frozenset({"typ", "alg", "kid"})


def split_token(token: str, subject: str, limit: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Header, payload, signature and signed bytes of a token of three parts.

    `subject` is the token's name in messages. Raises SignatureError for another form and above `limit` bytes.
    """
    parts = token.split(".", 3)
    if len(token) > limit or len(parts) != 3 or not all(parts):
        message = f"{subject} must be a JWS of three parts and at most {limit} bytes"
        raise SignatureError(message, code="sign.malformed")
    head, payload, signature = parts
    return (
        signing_keys.decode_base64url(head, "header"),
        signing_keys.decode_base64url(payload, "payload"),
        signing_keys.decode_base64url(signature, "signature"),
        f"{head}.{payload}".encode("ascii"),
    )


def parse_token_header(
    header: Mapping[str, Any], subject: str, kind: str, algorithms: Collection[str]
) -> tuple[str, str]:
    """Algorithm and kid of a header with an accepted type and algorithm and no other members."""
    if header.keys() != _HEADER or not all(isinstance(value, str) for value in header.values()):
        raise SignatureError("the header must have only typ, alg and kid", code="sign.bad-header")
    if header["typ"] != kind:
        raise SignatureError("the token is of another type", code="sign.bad-header")
    algorithm = header["alg"]
    name = signing_keys.normalize_algorithm(algorithm)
    if name not in algorithms or name not in signing_keys.RECEIPT_ALGORITHMS:
        raise SignatureError(
            f"{subject} is signed with an algorithm that is not allowed here",
            code="sign.bad-algorithm",
            hint=f"allowed: {', '.join(sorted(algorithms))}",
        )
    return algorithm, header["kid"]


def find_key_in_force(keys: signing_keys.AuthorityKeys, kid: str, algorithm: str, at: float) -> Key:
    """The key, which must be in force now by the cached key set.

    The cached set may be too old: after a revocation the next key signs before its announced time.
    """
    try:
        return keys.find(kid, algorithm, at)
    except SignatureError as error:
        if error.code != "sign.key-not-in-force":
            raise
        message = "the key is not in force now by the cached key set of the authority"
        raise SignatureError(message, code="sign.unknown-key", hint=signing_keys.FETCH_AGAIN) from error


def sign_token(
    claims: Mapping[str, Any] | bytes, subject: str, kind: str, signer: signing_keys.Signer
) -> str:
    """Sign these claims, or this payload, as a token of type `kind`. Raises SignatureError for no kid."""
    if signer.kid is None:
        hint = "use SigningKey.with_thumbprint()"
        raise SignatureError(f"the key for {subject} has no kid", code="sign.bad-key", hint=hint)
    payload = claims if isinstance(claims, bytes) else _encode_payload(claims)
    text = f"{_encode_header(kind, signer.algorithm, signer.kid)}.{encode_base64url(payload)}"
    return f"{text}.{encode_base64url(signer.sign(text.encode('ascii')))}"


def _encode_payload(claims: Mapping[str, Any]) -> bytes:
    return json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


@lru_cache(maxsize=64)
def _encode_header(kind: str, algorithm: str, kid: str) -> str:
    return encode_base64url(
        json.dumps({"alg": algorithm, "kid": kid, "typ": kind}, separators=(",", ":")).encode()
    )


#: seconds between `iat` and `exp`, at most
MAX_LIFE: Final = 300
_ENCODE: Final = msgspec.json.Encoder().encode
_LARGEST: Final = 2**53 - 1  # the largest integer of every JSON reader (RFC 8259 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalReference:
    """The approval of a call: the hash of the evidence, its issuer and the persons who approved (3.13)."""

    hash: str
    issuer: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The statement of an authority about one answer.

    `issuer` is the anchor, `subject` the canonical ai URI without query, `audience` the caller, `issued` and
    `expires` seconds since the epoch, `id` and `nonce` of 128 bits or more, `request` the request hash. The
    content is `digest` (as in Content-Digest) and `length` in bytes; a stream has `stream` instead.
    `token_hash` is of the access token, `task` and `original` bind the result of a task to its request,
    `policy` names the rule that allowed it and `approval` the evidence that people approved it, `upstream`
    (in a gateway's receipt) is the hash of the endpoint's receipt.
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
    approval: ApprovalReference | None = None
    upstream: str | None = None


def _make_text_check(pattern: str) -> Callable[[object], bool]:
    matches = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and matches(value) is not None


def _make_integer_check(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_VISIBLE: Final = _make_text_check(r"[\x20-\x7e]{1,1024}")
_WORD: Final = _make_text_check(r"[\x21-\x7e]{1,256}")
_RANDOM: Final = _make_text_check(r"[A-Za-z0-9_-]{22,128}")
_HASH: Final = _make_text_check(r"[A-Za-z0-9_-]{43}")
_DIGEST: Final = _make_text_check(r"sha-256=:[A-Za-z0-9+/]{43}=:")

#: claim, field of Receipt, check of its form, whether it is required
_Row = tuple[str, str, Callable[[object], bool], bool]
_CLAIMS: Final[tuple[_Row, ...]] = (
    ("iss", "issuer", _VISIBLE, True),
    ("sub", "subject", _make_text_check(r"ai:[\x21\x22\x24-\x3e\x40-\x7e]{1,2048}"), True),  # neither # nor ?
    ("aud", "audience", _VISIBLE, True),
    ("iat", "issued", signing_keys.is_time, True),
    ("exp", "expires", signing_keys.is_time, True),
    ("jti", "id", _RANDOM, True),
    ("nonce", "nonce", _RANDOM, False),
    ("rqh", "request", _HASH, True),
    ("ath", "token_hash", _HASH, False),
    ("tsk", "task", _WORD, False),
    ("orq", "original", _HASH, False),
    ("pol", "policy", _WORD, False),
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
_APPROVAL: Final[tuple[_Row, ...]] = (
    ("h", "hash", _HASH, True),
    ("iss", "issuer", _VISIBLE, True),
    ("by", "by", lambda value: isinstance(value, list | tuple) and _are_persons(value), True),
)
_PERSON: Final = _make_text_check(r"[\x20-\x7e]{1,128}")


def _are_persons(names: Collection[object]) -> bool:
    """Whether these are the names of one person or of two."""
    return 0 < len(names) <= 2 and all(_PERSON(name) for name in names) and len(set(names)) == len(names)


def encode_claims(receipt: Receipt) -> dict[str, Any]:
    """The claims set, for signing. Raises SignatureError for claims that `decode_claims` would reject."""
    claims = _encode_rows(receipt, _CLAIMS)
    claims["res"] = _encode_rows(receipt, _RESULT)
    if receipt.stream is not None:
        claims["str"] = _encode_rows(receipt.stream, _STREAM)
    if receipt.approval is not None:
        claims["apr"] = _encode_rows(receipt.approval, _APPROVAL)
    _require_one_content(claims)
    _require_lifetime(claims)
    return claims


def decode_claims(claims: Mapping[str, Any], kind: str) -> Receipt:
    """The receipt with these claims; unknown claims are ignored. Raises SignatureError."""
    fields = _decode_rows(claims, _CLAIMS)
    fields |= _decode_rows(_get_object(claims, "res"), _RESULT)
    if "str" in claims:
        fields["stream"] = StreamEnd(**_decode_rows(_get_object(claims, "str"), _STREAM))
    if "apr" in claims:
        approval = _decode_rows(_get_object(claims, "apr"), _APPROVAL)
        fields["approval"] = ApprovalReference(**{**approval, "by": tuple(approval["by"])})
    _require_one_content(claims)
    _require_lifetime(claims)
    return Receipt(kind=kind, **{"nonce": None, **fields})


def _require_one_content(claims: Mapping[str, Any]) -> None:
    result = claims["res"]
    if ("cd" in result, "len" in result) != (("str" not in claims),) * 2:
        raise make_claim_error("res", "bad-claim", "the content must be bound either by cd and len or by str")


def _require_lifetime(claims: Mapping[str, Any]) -> None:
    begins, ends = claims["iat"], claims["exp"]
    if not 0 < ends - begins <= MAX_LIFE:
        raise make_claim_error("exp", "bad-claim", f"a receipt is valid for at most {MAX_LIFE} seconds")
    if "nbf" in claims and not (signing_keys.is_time(claims["nbf"]) and claims["nbf"] <= begins):
        raise make_claim_error("nbf", "bad-claim", "a receipt is valid from iat on")


def _encode_rows(source: object, rows: tuple[_Row, ...]) -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for claim, name, fits, needed in rows:
        value = getattr(source, name)
        if value is not None:
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # some readers do not expect a fraction
            if not fits(value):
                raise make_claim_error(claim, "bad-claim", "the claim has the wrong form")
            claims[claim] = value
        elif needed:
            raise make_claim_error(claim, "bad-claim", "the claim is missing")
    return claims


def _decode_rows(claims: Mapping[str, Any], rows: tuple[_Row, ...]) -> dict[str, Any]:
    found = {}
    for claim, name, fits, needed in rows:
        if claim in claims:
            if not fits(claims[claim]):
                raise make_claim_error(claim, "bad-claim", "the claim has the wrong form")
            found[name] = claims[claim]
        elif needed:
            raise make_claim_error(claim, "bad-claim", "the claim is missing")
    return found


def _get_object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = claims.get(name)
    if not isinstance(value, dict):
        raise make_claim_error(name, "bad-claim", "the claim is missing, or is not an object")
    return value


#: bytes of a receipt
MAX_RECEIPT: Final = 4096
#: `typ` of an endpoint's receipt, and of a gateway's
RECEIPT: Final = "aiip-receipt+jwt"
GATEWAY: Final = "aiip-gateway+jwt"
#: the algorithms that are accepted by default; `EdDSA` is the older name of `Ed25519`
DEFAULT_ALGORITHMS: Final = signing_keys.USUAL_ALGORITHMS
_SUBJECT: Final = "a receipt"
_REQUEST: Final = b"aiip-req-v1"
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"
#: random bytes of a receipt's id
_ID: Final = 16
#: claims that must match the request, and their fields (3.8 step 6)
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
    """The expected content of a receipt, from the request that was sent and the answer that was received.

    `issuer` is the anchor, `subject` the canonical ai URI without query, `audience` this caller, `request`
    the request hash. Exactly one of `body` (the bytes as received) and `stream` is given. `token_hash` is
    None without an access token, `task` and `original` are None without a task.
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
    """The SHA-256 of a body as in a Content-Digest field (RFC 9530): `sha-256=:...:`."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode('ascii')}:"


def access_token_hash(token: str) -> str:
    """`ath` of an access token: its SHA-256 in base64url (the definition of RFC 9449 4.2)."""
    return encode_base64url(sha256(token.encode("ascii")).digest())


def make_receipt_id() -> str:
    """A receipt's id: 128 bits of randomness in base64url."""
    return secrets.token_urlsafe(_ID)


def get_kid(token: str) -> str:
    """The kid in a token, without verification. Raises SignatureError."""
    kid = signing_keys.parse_json_object(split_token(token, _SUBJECT, MAX_RECEIPT)[0], "header").get("kid")
    if not isinstance(kid, str):
        raise SignatureError("the token names no key", code="sign.bad-header")
    return kid


def request_hash(
    *, method: str, target: str, digest: str | None, content_type: str | None, idempotency_key: str | None
) -> str:
    """`rqh`: the hash of a request, so that a receipt can be shown without the request.

    `target` is the canonical ai URI with its query, `digest` the Content-Digest of the body, `content_type`
    the field as sent, `idempotency_key` the key without quotes. Raises SignatureError for a part that is not
    ASCII or has line ends, which an HTTP request cannot have.
    """
    lines = (method, target, digest or "-", content_type or "-", idempotency_key or "-")
    if not all(line.isascii() and "\n" not in line and "\r" not in line for line in lines):
        raise SignatureError("a part of the request is not one line of ASCII", code="sign.bad-request")
    content = b"\n".join((_REQUEST, *(line.encode("ascii") for line in lines)))
    return encode_base64url(sha256(content).digest())


def sign_receipt(receipt: Receipt, signer: signing_keys.Signer) -> str:
    """Sign a receipt.

    Raises SignatureError for a key without kid, for a receipt that `verify_receipt` would reject because of
    the form of a claim, its lifetime or its size, and if the key's device fails.
    """
    # the same bytes as those of `json.dumps` for these claims, in a fifth of the time
    payload = _ENCODE(encode_claims(receipt))
    token = sign_token(payload, _SUBJECT, receipt.kind, signer)
    if len(token) > MAX_RECEIPT:
        raise SignatureError(f"the receipt is longer than {MAX_RECEIPT} bytes", code="sign.too-large")
    return token


def verify_receipt(
    token: str | None,
    keys: signing_keys.AuthorityKeys,
    expected: Expected,
    *,
    at: float,
    seen: Callable[[str, float], bool],
    kind: str = RECEIPT,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
) -> Receipt:
    """Verify a receipt for this request and this answer, now (`at`, seconds).

    `keys` are only those of the expected authority. `seen(identity, until)` records the id of a receipt with
    a valid signature and valid claims, and returns whether it was recorded before. `algorithms` are those
    that the authority and local policy allow. The order of the checks is that of 3.8.

    Raises ProvenanceError with the codes `aiip.provenance-missing`, `aiip.provenance-invalid` and
    `aiip.provenance-stale` (time, or seen before), and SignatureError `sign.unknown-key` if the caller's copy
    of the keys may be too old.
    """
    if (expected.body is None) == (expected.stream is None):
        raise UsageError("a receipt is verified against a body or a stream", code="usage.bad-argument")
    receipt, kid = _open_receipt(token, keys, at, kind, algorithms)
    _require_claims(receipt, expected)
    _require_time(receipt, at)
    if seen(f"{kid}.{receipt.id}", receipt.expires + signing_keys.LEEWAY):
        raise _make_refusal(6, "jti", "the receipt was used before", "aiip.provenance-stale")
    _require_content(receipt, expected)
    return receipt


def verify_filed(
    token: str | None,
    keys: signing_keys.AuthorityKeys,
    *,
    body: bytes | None = None,
    subject: str | None = None,
    issuer: str | None = None,
    at: float | None = None,
    kind: str = RECEIPT,
    algorithms: Collection[str] = signing_keys.RECEIPT_ALGORITHMS,
) -> Receipt:
    """Verify a stored receipt by the time in it and the history of the authority's keys.

    `body` is the stored content, `subject` and `issuer` are the expected ones, all if known. `at` is the time
    of the verification: a later receipt is rejected. Audience, nonce, request and replay are not checked,
    because they need the request. Raises as `verify_receipt` does.
    """
    receipt, _ = _open_receipt(token, keys, None, kind, algorithms)
    for name, value, expected in (("iss", receipt.issuer, issuer), ("sub", receipt.subject, subject)):
        if expected is not None and value != expected:
            raise _make_refusal(6, name, "the receipt is from another issuer or for another resource")
    if at is not None and receipt.issued > at + signing_keys.LEEWAY:
        raise _make_refusal(6, "iat", "the receipt is from after that time", "aiip.provenance-stale")
    if body is not None:
        _require_body(receipt, body)
    return receipt


def _open_receipt(
    token: str | None,
    keys: signing_keys.AuthorityKeys,
    at: float | None,
    kind: str,
    algorithms: Collection[str],
) -> tuple[Receipt, str]:
    """Steps 1 to 5 and the form of the claims; returns the kid too. Without `at`, uses the receipt's time."""
    if not token:
        code, clause = "aiip.provenance-missing", f"{_CLAUSE} step 1"
        raise ProvenanceError("the result has no receipt", code=code, clause=clause)
    step = 1
    try:
        head, payload, signature, signed = split_token(token, _SUBJECT, MAX_RECEIPT)
        step = 2
        header = signing_keys.parse_json_object(head, "header")
        step = 3
        algorithm, kid = parse_token_header(header, "the receipt", kind, algorithms)
        step = 4
        key = keys.named(kid, algorithm) if at is None else find_key_in_force(keys, kid, algorithm, at)
        step = 5
        if not key.verify(algorithm, signed, signature):
            raise SignatureError("the signature is invalid", code="sign.bad-signature")
        step = 6
        receipt = decode_claims(signing_keys.parse_json_object(payload, "claims set"), kind)
        if at is None:
            keys.find(kid, algorithm, receipt.issued)
    except SignatureError as error:
        if error.code == "sign.unknown-key":
            raise
        raise _make_refusal(step) from error
    return receipt, kid


def _require_claims(receipt: Receipt, expected: Expected) -> None:
    """Step 6: the receipt must be from this authority and resource, for this caller and request."""
    for claim, name in _BOUND:
        if getattr(receipt, name) != getattr(expected, name):
            raise _make_refusal(6, claim, "the receipt is for another request")


def _require_time(receipt: Receipt, at: float) -> None:
    if not abs(at - receipt.issued) <= signing_keys.LEEWAY:  # also true for NaN
        reason = "the receipt is not from now: are both clocks right?"
        raise _make_refusal(6, "iat", reason, "aiip.provenance-stale")
    if at >= receipt.expires:
        raise _make_refusal(6, "exp", "the receipt has expired", "aiip.provenance-stale")


def _require_content(receipt: Receipt, expected: Expected) -> None:
    """Step 7: the receipt must be for the status, content type and content that were received."""
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
    step: int, claim: str | None = None, reason: str | None = None, code: str = "aiip.provenance-invalid"
) -> ProvenanceError:
    """The same message for all failures; the step and claim are in the clause, the reason is in the cause."""
    clause = f"{_CLAUSE} step {step}" + ("" if claim is None else f" ({claim})")
    error = ProvenanceError("the receipt is invalid", code=code, clause=clause)
    if reason is not None:
        error.__cause__ = SignatureError(f"{claim}: {reason}", code="sign.bad-claim")
    return error


#: `typ` of the token
METADATA: Final = "aiip-anchor+jwt"
#: bytes of the token, and of the document that contains it
MAX_METADATA: Final = 64 * 1024
_METADATA_SUBJECT: Final = "signed metadata"
#: claims about the token itself (RFC 7519 4.1), which are not members of the document
_METADATA_CLAIMS: Final = frozenset({"iss", "sub", "aud", "iat", "nbf", "exp", "jti"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Signed members of the anchor document, valid until `expires` (seconds, None for no end).

    `kid` is the key's.
    """

    members: Mapping[str, Any] = field(repr=False)
    expires: float | None
    kid: str


def sign_metadata(
    members: Mapping[str, Any],
    signer: signing_keys.Signer,
    *,
    issuer: str,
    issued: float,
    expires: float | None = None,
) -> str:
    """Sign these members of an anchor document. `issuer` is the anchor; times are seconds.

    Raises SignatureError for a key without kid, for members that are claims of the token itself, for a token
    that is too long, and if the key's device fails.
    """
    taken = sorted(_METADATA_CLAIMS & members.keys())
    if taken:
        raise SignatureError(f"{taken[0]} cannot be a member of an anchor document", code="sign.bad-claim")
    times = {"iat": int(issued)} | ({} if expires is None else {"exp": int(expires)})
    token = sign_token({"iss": issuer, **times, **members}, _METADATA_SUBJECT, METADATA, signer)
    if len(token) > MAX_METADATA:
        raise SignatureError(
            f"{_METADATA_SUBJECT} is longer than {MAX_METADATA} bytes", code="sign.too-large"
        )
    return token


def verify_metadata(
    token: str,
    keys: signing_keys.AuthorityKeys,
    *,
    issuer: str,
    at: float,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
) -> Metadata:
    """Verify a token that the anchor `issuer` signed and that is valid `at` (seconds).

    `keys` are only those of the expected authority. Raises SignatureError: `sign.unknown-key` if the copy of
    the keys may be too old, `sign.expired` and `sign.not-yet` if the token is too old or too new.
    """
    head, payload, signature, signed = split_token(token, _METADATA_SUBJECT, MAX_METADATA)
    algorithm, kid = parse_token_header(
        signing_keys.parse_json_object(head, "header"), _METADATA_SUBJECT, METADATA, algorithms
    )
    if not find_key_in_force(keys, kid, algorithm, at).verify(algorithm, signed, signature):
        raise SignatureError("the signature is invalid", code="sign.bad-signature")
    claims = signing_keys.parse_json_object(payload, "claims set")
    _require_parties(claims, issuer)
    expires = _require_times(claims, at)
    members = {name: value for name, value in claims.items() if name not in _METADATA_CLAIMS}
    return Metadata(members=members, expires=expires, kid=kid)


def _require_parties(claims: Mapping[str, Any], issuer: str) -> None:
    if claims.get("iss") != issuer:
        raise make_claim_error("iss", "bad-issuer", "the metadata is from another anchor")
    if claims.get("sub", issuer) != issuer:
        raise make_claim_error("sub", "bad-claim", "the subject must be the anchor itself")
    if "aud" in claims:
        # RFC 7519 4.1.3: no reader would be in the audience
        raise make_claim_error("aud", "bad-audience", "metadata has no audience")


def _require_times(claims: Mapping[str, Any], at: float) -> float | None:
    """Return when the metadata expires. Raises SignatureError if it is not valid now."""
    issued, starts, expires = (
        parse_time_claim(claims, name) if name in claims else None for name in ("iat", "nbf", "exp")
    )
    if expires is not None and not at < expires:
        raise make_claim_error("exp", "expired", "the metadata has expired")
    if max(issued or 0.0, starts or 0.0) > at + signing_keys.LEEWAY:
        raise make_claim_error("iat", "not-yet", "the metadata is from the future: are both clocks right?")
    return expires
