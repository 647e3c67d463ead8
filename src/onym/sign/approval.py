"""Approvals: an endpoint's challenge, and the evidence that people approved a call (AIIP/HTTPS v1, 3.13).

An endpoint that wants a call approved signs a challenge (draft-rosomakho-oauth-txn-challenge-00; only this
module knows its claims). The challenge describes the call by its request hash, and by the digests of the
policy and the description that are in force. An approver that the authority lists shows the call to people
and signs evidence. The evidence is valid for five minutes, for one call by one caller, and is spent once.

The endpoint keeps no list of its challenges. It makes the challenge again from the request that comes with
the evidence and compares `cht`, the SHA-256 of the challenge's payload: whatever has changed since then
makes another hash. So everything in a challenge follows from the request, the configuration and `txn`, which
contains the time.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from onym.common.text import decode_base64url, encode_base64url
from onym.errors import SignatureError
from onym.sign import receipts
from onym.sign.jws import make_claim_error, require_parties
from onym.sign.keys import LEEWAY, AuthorityKeys, Key, Signer, parse_json_object

T = TypeVar("T")

#: `typ` of a challenge, and of evidence
CHALLENGE: Final = "txn-authz-challenge+jwt"
APPROVAL: Final = "aiip-approval+jwt"
#: bytes of each; a challenge contains a URI of at most 2,048 characters
MAX_CHALLENGE: Final = 8 * 1024
MAX_APPROVAL: Final = 4 * 1024
#: seconds from `iat` to `exp`, at most
CHALLENGE_SECONDS: Final = 600
APPROVAL_SECONDS: Final = 300
#: the type of the one member of `authorization_details` (RFC 9396 2)
DETAILS: Final = "aiip_invoke"
#: approvers that one challenge may name
MAX_APPROVERS: Final = 8
#: bytes of a body that people can be shown
MAX_SHOWN: Final = 64 * 1024
#: seconds between a sign-in and the decision that it allows (4.5)
SIGN_IN_SECONDS: Final = 300.0
_CHALLENGE_SUBJECT: Final = "a challenge"
_APPROVAL_SUBJECT: Final = "an approval"
#: bytes of the time and of the randomness in `txn`
_TIME_BYTES: Final = 6
_RANDOM_BYTES: Final = 18
_TIMES: Final = range(253402300800)


class Rule(StrEnum):
    """Who must approve: a person, a person other than the requester, or two such persons."""

    PERSON = "person"
    OTHER = "other"
    TWO = "two"

    @property
    def persons(self) -> int:
        """The number of different persons that must approve."""
        return 2 if self is Rule.TWO else 1


#: from the weakest to the strictest
RULES: Final = tuple(Rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDetails:
    """The call that is to be approved. `uri` is canonical, with its query, and `request` its hash (3.8).

    `digest` and `content_type` are those of the body, if it has one. `description` and `policy` are hashes of
    the resource's description and of the policy that asks for the approval.
    """

    uri: str
    method: str
    request: str
    effects: str
    rule: Rule
    description: str
    policy: str
    digest: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What an endpoint wants to have approved, and by whom.

    `issuer` is the resource's identifier (RFC 9728), `approvers` are the issuers that may decide. Times are
    seconds. `requester` and `client` are the subject and the client of the caller's token; without a token,
    `requester` is the caller's origin or "anonymous". `key` is the thumbprint of the caller's key, if its
    token is bound to one. `digest` is `cht`, the hash of the payload.
    """

    issuer: str
    approvers: tuple[str, ...]
    issued: float
    expires: float
    transaction: str
    call: CallDetails
    reason: str
    requester: str
    client: str | None = None
    key: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The statement of an approver that people approved one call.

    `by` names them: one, or two for the rule `two`, as pseudonyms for this authority or by name. `shown` is
    the hash of what they were shown, `challenge` that of the challenge. `acr` and `authenticated` tell how
    and when the last of them signed in. `key` is the thumbprint of the only key that may use the approval.
    """

    issuer: str
    audience: str
    issued: float
    expires: float
    id: str
    request: str
    transaction: str
    challenge: str
    shown: str
    by: tuple[str, ...]
    authenticated: float
    acr: str | None = None
    key: str | None = None


_Visible: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\x20-\x7e]{1,1024}\Z")]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\x20-\x7e]{1,128}\Z")]
_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_URI: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^ai:[\x21\x22\x24-\x7e]{1,2048}\Z")]  # no fragment
_Random: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{22,128}\Z")]
_Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{43}\Z")]
_Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^sha-256=:[A-Za-z0-9+/]{43}=:\Z")]
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=_TIMES.stop)]


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cnf`: only a thumbprint. Another member would be a condition that nobody checks (RFC 7800 3.1)."""

    jkt: _Hash


class _Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    sub: _Visible
    client_id: _Visible | None = None


class _Details(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=DETAILS):
    uri: _URI
    method: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{1,16}\Z")]
    rqh: _Hash
    effects: Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,16}\Z")]
    rule: Rule
    dsc: _Hash
    pol: _Hash
    cd: _Digest | None = None
    ct: _Visible | None = None


class _ChallengeClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    iss: _Visible
    aud: _Visible | Annotated[tuple[_Visible, ...], msgspec.Meta(min_length=1, max_length=MAX_APPROVERS)]
    iat: _Time
    exp: _Time
    jti: _Random
    txn: _Random
    authorization_details: tuple[_Details]
    reason: _Text
    act: _Actor
    cnf: _Key | None = None
    nbf: _Time | None = None


class _ApprovalClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    iss: _Visible
    aud: _Visible
    iat: _Time
    exp: _Time
    jti: _Random
    rqh: _Hash
    txn: _Random
    cht: _Hash
    smd: _Hash
    by: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1, max_length=2)]
    auth_time: _Time
    acr: _Visible | None = None
    cnf: _Key | None = None
    nbf: _Time | None = None


def make_transaction(at: float) -> str:
    """Return a new `txn`, which contains the time of its challenge (whole seconds) and 144 random bits."""
    return encode_base64url(int(at).to_bytes(_TIME_BYTES) + secrets.token_bytes(_RANDOM_BYTES))


def get_transaction_time(transaction: str) -> int:
    """Return the time in a `txn` that `make_transaction` made. Raises SignatureError for any other text."""
    try:
        content = decode_base64url(transaction)
    except ValueError:
        content = b""
    if len(content) != _TIME_BYTES + _RANDOM_BYTES:
        raise make_claim_error("txn", "bad-claim", "the transaction is not one of this endpoint")
    return int.from_bytes(content[:_TIME_BYTES])


def hash_approval(token: str) -> str:
    """Return the hash of evidence, as a receipt contains it (`apr.h`): SHA-256 in base64url."""
    return encode_base64url(sha256(token.encode("ascii", "replace")).digest())


def hash_challenge(challenge: Challenge) -> str:
    """Return `cht`, the hash of the payload of this challenge."""
    return encode_base64url(sha256(_encode_challenge(challenge)).digest())


def sign_challenge(challenge: Challenge, signer: Signer) -> str:
    """Sign a challenge. Raises SignatureError for one that `verify_challenge` would reject."""
    payload = _encode_challenge(challenge)
    _decode_challenge(payload)
    return _sign(payload, _CHALLENGE_SUBJECT, CHALLENGE, signer, MAX_CHALLENGE)


def verify_challenge(
    token: str,
    keys: AuthorityKeys,
    *,
    issuer: str,
    at: float,
    approver: str | None = None,
    algorithms: Collection[str] = receipts.DEFAULT_ALGORITHMS,
) -> Challenge:
    """Verify a challenge of the resource `issuer` that is valid `at` (seconds), and for `approver` if given.

    `keys` are only those of the expected authority. Raises SignatureError: `sign.unknown-key` if the copy of
    the keys may be too old, `sign.expired`, `sign.not-yet`, `sign.bad-issuer`, `sign.bad-audience`.
    """
    payload, algorithm, kid, check = _open(token, _CHALLENGE_SUBJECT, CHALLENGE, MAX_CHALLENGE, algorithms)
    check(receipts.find_key_in_force(keys, kid, algorithm, at))
    challenge = _decode_challenge(payload)
    if challenge.issuer != issuer:
        raise make_claim_error("iss", "bad-issuer", "the challenge is from another resource")
    if approver is not None and approver not in challenge.approvers:
        raise make_claim_error("aud", "bad-audience", "the challenge is for another approver")
    _require_now(challenge.issued, challenge.expires, at)
    return challenge


def sign_approval(approval: Approval, signer: Signer) -> str:
    """Sign evidence. Raises SignatureError for evidence that `verify_approval` would reject."""
    payload = _encode_approval(approval)
    _decode_approval(payload)
    return _sign(payload, _APPROVAL_SUBJECT, APPROVAL, signer, MAX_APPROVAL)


def get_approver(token: str) -> str:
    """Return the issuer that evidence names, without verification. Raises SignatureError."""
    return _decode_approval(receipts.split_token(token, _APPROVAL_SUBJECT, MAX_APPROVAL)[1]).issuer


def verify_approval(
    token: str,
    keys: AuthorityKeys,
    *,
    issuer: str,
    audience: str,
    at: float,
    algorithms: Collection[str] = receipts.DEFAULT_ALGORITHMS,
) -> Approval:
    """Verify evidence of the approver `issuer` for the resource `audience`, now (`at`, seconds).

    `keys` are only those of that approver. The caller must check that the evidence is for its request and was
    not used before. Raises SignatureError as `verify_challenge` does.
    """
    payload, algorithm, kid, check = _open(token, _APPROVAL_SUBJECT, APPROVAL, MAX_APPROVAL, algorithms)
    check(receipts.find_key_in_force(keys, kid, algorithm, at))
    approval = _decode_approval(payload)
    require_parties({"iss": approval.issuer, "aud": approval.audience}, issuer, audience)
    _require_now(approval.issued, approval.expires, at)
    return approval


def verify_filed_approval(
    token: str, keys: AuthorityKeys, *, algorithms: Collection[str] = receipts.DEFAULT_ALGORITHMS
) -> Approval:
    """Verify stored evidence by the time in it and the approver's key history. Raises SignatureError."""
    payload, algorithm, kid, check = _open(token, _APPROVAL_SUBJECT, APPROVAL, MAX_APPROVAL, algorithms)
    check(keys.named(kid, algorithm))
    approval = _decode_approval(payload)
    keys.find(kid, algorithm, approval.issued)
    return approval


def verify_receipt_approval(
    receipt: receipts.Receipt,
    token: str,
    keys: AuthorityKeys,
    *,
    algorithms: Collection[str] = receipts.DEFAULT_ALGORITHMS,
) -> Approval:
    """Verify that this evidence approved the call of a receipt that was verified before.

    `keys` are the history of the approver's keys. Raises SignatureError if the evidence is invalid, or if the
    receipt names no evidence or other evidence.
    """
    approval = verify_filed_approval(token, keys, algorithms=algorithms)
    named = receipt.approval
    if named is None:
        raise make_claim_error("apr", "bad-claim", "the receipt names no approval")
    if named.hash != hash_approval(token):
        raise make_claim_error("apr", "bad-claim", "the receipt names another approval")
    for claim, given, expected in (
        ("iss", approval.issuer, named.issuer),
        ("by", approval.by, named.by),
        ("rqh", approval.request, receipt.original or receipt.request),
    ):
        if given != expected:
            raise make_claim_error(claim, "bad-claim", "the receipt and the approval differ")
    # the resource of RFC 9728 is at the anchor's origin
    if approval.audience != receipt.issuer and not approval.audience.startswith(f"{receipt.issuer}/"):
        raise make_claim_error("aud", "bad-audience", "the approval is for another authority")
    if approval.issued > receipt.issued + LEEWAY:
        raise make_claim_error("iat", "not-yet", "the approval is later than the answer")
    return approval


@dataclass(frozen=True, slots=True)
class _SignatureCheck:
    algorithm: str
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def __call__(self, key: Key) -> None:
        """Raise SignatureError unless this key made the signature."""
        if not key.verify(self.algorithm, self.signed, self.signature):
            raise SignatureError("the signature is invalid", code="sign.bad-signature")


def _open(
    token: str, subject: str, kind: str, limit: int, algorithms: Collection[str]
) -> tuple[bytes, str, str, _SignatureCheck]:
    """Return the payload, algorithm and kid of a token of this kind, and the check of its signature."""
    if not token.isascii():
        raise SignatureError(f"{subject} must be ASCII", code="sign.malformed")
    head, payload, signature, signed = receipts.split_token(token, subject, limit)
    algorithm, kid = receipts.parse_token_header(parse_json_object(head, "header"), subject, kind, algorithms)
    return payload, algorithm, kid, _SignatureCheck(algorithm, signed, signature)


def _sign(payload: bytes, subject: str, kind: str, signer: Signer, limit: int) -> str:
    token = receipts.sign_token(payload, subject, kind, signer)
    if len(token) > limit:
        raise SignatureError(f"{subject} is longer than {limit} bytes", code="sign.too-large")
    return token


def _encode_challenge(challenge: Challenge) -> bytes:
    call, approvers = challenge.call, challenge.approvers
    details = _Details(
        uri=call.uri,
        method=call.method,
        rqh=call.request,
        effects=call.effects,
        rule=call.rule,
        dsc=call.description,
        pol=call.policy,
        cd=call.digest,
        ct=call.content_type,
    )
    claims = _ChallengeClaims(
        iss=challenge.issuer,
        aud=approvers[0] if len(approvers) == 1 else approvers,
        iat=challenge.issued,
        exp=challenge.expires,
        jti=challenge.transaction,  # one object for one transaction
        txn=challenge.transaction,
        authorization_details=(details,),
        reason=challenge.reason,
        act=_Actor(challenge.requester, challenge.client),
        cnf=None if challenge.key is None else _Key(challenge.key),
    )
    return _encode(claims)


def _decode_challenge(payload: bytes) -> Challenge:
    claims = _decode(payload, "challenge", _ChallengeClaims)
    _require_lifetime(claims, CHALLENGE_SECONDS)
    (details,) = claims.authorization_details
    return Challenge(
        issuer=claims.iss,
        approvers=(claims.aud,) if isinstance(claims.aud, str) else claims.aud,
        issued=claims.iat,
        expires=claims.exp,
        transaction=claims.txn,
        call=CallDetails(
            uri=details.uri,
            method=details.method,
            request=details.rqh,
            effects=details.effects,
            rule=details.rule,
            description=details.dsc,
            policy=details.pol,
            digest=details.cd,
            content_type=details.ct,
        ),
        reason=claims.reason,
        requester=claims.act.sub,
        client=claims.act.client_id,
        key=None if claims.cnf is None else claims.cnf.jkt,
        digest=encode_base64url(sha256(payload).digest()),
    )


def _encode_approval(approval: Approval) -> bytes:
    claims = _ApprovalClaims(
        iss=approval.issuer,
        aud=approval.audience,
        iat=approval.issued,
        exp=approval.expires,
        jti=approval.id,
        rqh=approval.request,
        txn=approval.transaction,
        cht=approval.challenge,
        smd=approval.shown,
        by=approval.by,
        auth_time=approval.authenticated,
        acr=approval.acr,
        cnf=None if approval.key is None else _Key(approval.key),
    )
    return _encode(claims)


def _decode_approval(payload: bytes) -> Approval:
    claims = _decode(payload, "approval", _ApprovalClaims)
    _require_lifetime(claims, APPROVAL_SECONDS)
    if len(set(claims.by)) < len(claims.by):
        raise make_claim_error("by", "bad-claim", "one person is named twice")
    if claims.auth_time > claims.iat + LEEWAY:
        raise make_claim_error("auth_time", "bad-claim", "the sign-in is later than the approval")
    return Approval(
        issuer=claims.iss,
        audience=claims.aud,
        issued=claims.iat,
        expires=claims.exp,
        id=claims.jti,
        request=claims.rqh,
        transaction=claims.txn,
        challenge=claims.cht,
        shown=claims.smd,
        by=claims.by,
        authenticated=claims.auth_time,
        acr=claims.acr,
        key=None if claims.cnf is None else claims.cnf.jkt,
    )


def _encode(claims: msgspec.Struct) -> bytes:
    """Encode claims, always in the same way: an endpoint compares the hash of what it encodes later."""
    members: Mapping[str, Any] = msgspec.to_builtins(claims)
    whole = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in members.items()
    }
    # a lone surrogate is rejected when the claims are read back
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _decode(payload: bytes, subject: str, kind: type[T]) -> T:
    members = parse_json_object(payload, f"{subject}'s claims set")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        # the message names the claim and its rule, and never quotes the value
        raise SignatureError(f"a claim of the {subject} is invalid: {error}", code="sign.bad-claim") from None


def _require_lifetime(claims: _ChallengeClaims | _ApprovalClaims, most: int) -> None:
    if not 0 < claims.exp - claims.iat <= most:
        raise make_claim_error("exp", "bad-claim", f"it must be valid for at most {most} seconds")
    if claims.nbf is not None and claims.nbf > claims.iat:
        raise make_claim_error("nbf", "bad-claim", "it must be valid from iat on")


def _require_now(begins: float, ends: float, at: float) -> None:
    if not at < ends:  # also true for NaN
        raise make_claim_error("exp", "expired", "it has expired")
    if begins > at + LEEWAY:
        raise make_claim_error("iat", "not-yet", "it is from the future: are both clocks right?")
