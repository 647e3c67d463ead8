"""`signed_metadata`: the discovery document, signed with a key of its authority (AIIP/HTTPS v1, 3.2).

The token is a JWT as in RFC 8414 2.1 and RFC 9728 2.2 with a type of its own, so that a receipt or an access
token cannot be mistaken for it. Its key comes from the authority's key set, like that of a receipt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onym.errors import SignatureError
from onym.sign.encoding import parse_json_object
from onym.sign.keys import LEEWAY
from onym.sign.receipts import (
    DEFAULT_ALGORITHMS,
    find_key_in_force,
    parse_token_header,
    sign_token,
    split_token,
)

if TYPE_CHECKING:
    from onym.sign.keys import AuthorityKeys, Signer

#: `typ` of the token
METADATA: Final = "aiip-anchor+jwt"
#: octets of the token; it is part of a document of no more
MAX_METADATA: Final = 64 * 1024
_WHAT: Final = "signed metadata"
#: claims that speak of the token itself (RFC 7519 4.1), and are no members of the document
_CLAIMS: Final = frozenset({"iss", "sub", "aud", "iat", "nbf", "exp", "jti"})
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What was attested: members of the anchor document, until `expires` (seconds, None for no end).

    `kid` is the key's.
    """

    members: Mapping[str, Any] = field(repr=False)
    expires: float | None
    kid: str


def sign_metadata(
    members: Mapping[str, Any],
    signer: Signer,
    *,
    issuer: str,
    issued: float,
    expires: float | None = None,
) -> str:
    """These members of an anchor document, signed. `issuer` is the anchor; times are seconds.

    Raises SignatureError for a key without kid, for members that are claims of the token itself, for a token
    that is too long, and where the key's device fails.
    """
    taken = sorted(_CLAIMS & members.keys())
    if taken:
        raise SignatureError(f"{taken[0]} is no member of an anchor document", code="sign.bad-claim")
    times = {"iat": int(issued)} | ({} if expires is None else {"exp": int(expires)})
    token = sign_token({"iss": issuer, **times, **members}, _WHAT, METADATA, signer)
    if len(token) > MAX_METADATA:
        raise SignatureError(f"{_WHAT} is longer than {MAX_METADATA} octets", code="sign.too-large")
    return token


def verify_metadata(
    token: str,
    keys: AuthorityKeys,
    *,
    issuer: str,
    at: float,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
) -> Metadata:
    """The members of a token that the anchor `issuer` signed, and that counts `at` (seconds).

    `keys` are those of the expected authority alone. Raises SignatureError; `sign.unknown-key` says that the
    copy of the keys may be too old, `sign.expired` and `sign.not-yet` that of the token is.
    """
    head, payload, signature, octets = split_token(token, _WHAT, MAX_METADATA)
    algorithm, kid = parse_token_header(parse_json_object(head, "header"), _WHAT, METADATA, algorithms)
    if not find_key_in_force(keys, kid, algorithm, at).verify(algorithm, octets, signature):
        raise SignatureError("the signature does not hold", code="sign.bad-signature")
    claims = parse_json_object(payload, "claims set")
    _require_parties(claims, issuer)
    expires = _require_times(claims, at)
    members = {name: value for name, value in claims.items() if name not in _CLAIMS}
    return Metadata(members=members, expires=expires, kid=kid)


def _require_parties(claims: Mapping[str, Any], issuer: str) -> None:
    if claims.get("iss") != issuer:
        raise _make_claim_error("iss", "bad-issuer", "the metadata is of another anchor")
    if claims.get("sub", issuer) != issuer:
        raise _make_claim_error("sub", "bad-claim", "an anchor speaks of itself alone")
    if "aud" in claims:
        # RFC 7519 4.1.3: nobody who reads it is named there
        raise _make_claim_error("aud", "bad-audience", "metadata is for everybody")


def _require_times(claims: Mapping[str, Any], at: float) -> float | None:
    """Raises unless it counts now; gives the time from which on it does not."""
    issued, starts, expires = (_parse_time(claims, name) for name in ("iat", "nbf", "exp"))
    if expires is not None and not at < expires:
        raise _make_claim_error("exp", "expired", "the metadata has expired")
    if max(issued or 0.0, starts or 0.0) > at + LEEWAY:
        raise _make_claim_error("iat", "not-yet", "the metadata is from the future: are both clocks right?")
    return expires


def _parse_time(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise _make_claim_error(name, "bad-claim", f"{name} is a number of seconds")
    return float(value)


def _make_claim_error(claim: str, code: str, message: str) -> SignatureError:
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
