"""`signed_metadata`: what an anchor document says, signed with a key of its authority (AIIP/HTTPS v1, 3.2).

A JWT as in RFC 8414 2.1 and RFC 9728 2.2, of a type of its own: neither a receipt nor an access token can be
shown as one. Its key comes from the authority's set, as that of a receipt does, and so it moves no trust.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from onym.errors import SignatureError
from onym.sign._strict import read_object
from onym.sign._token import accepted, in_force, signed, split
from onym.sign.authority import LEEWAY
from onym.sign.receipt import DEFAULT_ALGORITHMS

if TYPE_CHECKING:
    from onym.sign.authority import AuthorityKeys
    from onym.sign.keys import Signer

__all__ = ["MAX_METADATA", "METADATA", "Metadata", "sign_metadata", "verify_metadata"]

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
    token = signed({"iss": issuer, **times, **members}, _WHAT, METADATA, signer)
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
    head, payload, signature, octets = split(token, _WHAT, MAX_METADATA)
    algorithm, kid = accepted(read_object(head, "header"), _WHAT, METADATA, algorithms)
    if not in_force(keys, kid, algorithm, at).holds(algorithm, octets, signature):
        raise SignatureError("the signature does not hold", code="sign.bad-signature")
    claims = read_object(payload, "claims set")
    _check_parties(claims, issuer)
    expires = _check_times(claims, at)
    members = {name: value for name, value in claims.items() if name not in _CLAIMS}
    return Metadata(members=members, expires=expires, kid=kid)


def _check_parties(claims: Mapping[str, Any], issuer: str) -> None:
    if claims.get("iss") != issuer:
        raise _wrong("iss", "bad-issuer", "the metadata is of another anchor")
    if claims.get("sub", issuer) != issuer:
        raise _wrong("sub", "bad-claim", "an anchor speaks of itself alone")
    if "aud" in claims:
        # RFC 7519 4.1.3: nobody who reads it is named there
        raise _wrong("aud", "bad-audience", "metadata is for everybody")


def _check_times(claims: Mapping[str, Any], at: float) -> float | None:
    """Raises unless it counts now; gives the time from which on it does not."""
    issued, starts, expires = (_time(claims, name) for name in ("iat", "nbf", "exp"))
    if expires is not None and not at < expires:
        raise _wrong("exp", "expired", "the metadata has expired")
    if max(issued or 0.0, starts or 0.0) > at + LEEWAY:
        raise _wrong("iat", "not-yet", "the metadata is from the future: are both clocks right?")
    return expires


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise _wrong(name, "bad-claim", f"{name} is a number of seconds")
    return float(value)


def _wrong(claim: str, code: str, message: str) -> SignatureError:
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
