"""Access tokens as JWTs (RFC 9068), tested in full; the clock is an argument."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onym.errors import SignatureError
from onym.sign._strict import decode, read_object
from onym.sign.jws import verify

if TYPE_CHECKING:
    from onym.sign.keys import KeySet

__all__ = [
    "LEEWAY",
    "LONGEST_LIFE",
    "MAX_ACCESS_TOKEN",
    "TOKEN_ALGORITHMS",
    "AccessToken",
    "names_key",
    "verify_access_token",
]

#: signatures that count; "EdDSA" is the older name of Ed25519 (RFC 9864)
TOKEN_ALGORITHMS: Final = ("Ed25519", "EdDSA", "ES256", "PS256", "RS256")
#: octets of a token
MAX_ACCESS_TOKEN: Final = 16 * 1024
#: seconds that two clocks may be apart
LEEWAY: Final = 60.0
#: seconds between iat and exp: a token that is good for longer is nobody's
LONGEST_LIFE: Final = 24 * 3600.0
_LATEST: Final = 253402300799  # the last second of 9999
_LONGEST_TEXT: Final = 255
_MOST_SCOPES: Final = 128
#: RFC 6749 3.3
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}\Z")
#: RFC 6749 A.1; a receipt is made out to it, and is ASCII (aiip 3.8)
_CLIENT: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """What an authorization server vouches for. Times are seconds since the epoch.

    `bound` says that the token counts only with a proof of its key (RFC 7800 `cnf`: DPoP, mutual TLS).
    """

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    issued: float
    expires: float
    id: str
    bound: bool


def verify_access_token(
    token: str,
    keys: KeySet,
    *,
    issuer: str,
    resource: str,
    at: float,
    algorithms: Collection[str] = TOKEN_ALGORITHMS,
) -> AccessToken:
    """The claims of an access token that this issuer gave for this resource alone, and that is good now.

    Raises SignatureError, whose code says which rule (RFC 9068 4): those of `jws.verify`, and
    `sign.bad-header` for a token of another type, `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`,
    `sign.not-yet`, `sign.bad-claim`.
    """
    verified = verify(token, keys, algorithms=algorithms, limit=MAX_ACCESS_TOKEN)
    _check_type(verified.header)
    claims = read_object(verified.payload, "access token")
    _check_parties(claims, issuer, resource)
    issued, expires = _check_times(claims, at)
    return AccessToken(
        issuer=issuer,
        subject=_text(claims, "sub"),
        client_id=_client(claims),
        scopes=_scopes(claims),
        issued=issued,
        expires=expires,
        id=_text(claims, "jti"),
        bound="cnf" in claims,
    )


def names_key(token: str) -> bool:
    """Does the token say which key it is signed with? Raises SignatureError for what is no token."""
    return read_object(decode(token.partition(".")[0], "header"), "header").get("kid") is not None


def _check_type(header: Mapping[str, Any]) -> None:
    # RFC 9068 4: an ID token, a receipt or a proof of the same key is no access token
    kind = header.get("typ")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") != "at+jwt":
        raise SignatureError("this is no access token but of another type", code="sign.bad-header")


def _check_parties(claims: Mapping[str, Any], issuer: str, resource: str) -> None:
    if claims.get("iss") != issuer:
        raise _wrong("iss", "bad-issuer", "the token is another issuer's")
    audience = claims.get("aud")
    # one audience: a token that others take as well could be theirs to replay here
    if ([audience] if isinstance(audience, str) else audience) != [resource]:
        raise _wrong("aud", "bad-audience", "the token is not for this resource alone")


def _check_times(claims: Mapping[str, Any], now: float) -> tuple[float, float]:
    issued, expires = _time(claims, "iat"), _time(claims, "exp")
    starts = _time(claims, "nbf") if "nbf" in claims else issued
    if now >= expires + LEEWAY:
        raise _wrong("exp", "expired", "the token has expired")
    if max(issued, starts) > now + LEEWAY:
        raise _wrong("iat", "not-yet", "the token is from the future: are both clocks right?")
    if not 0 < expires - issued <= LONGEST_LIFE:
        raise _wrong("exp", "bad-claim", f"the token is good for 1 to {LONGEST_LIFE:.0f} seconds")
    return issued, expires


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise _wrong(name, "bad-claim", f"{name} is a number of seconds")
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_TEXT or not value.isprintable():
        raise _wrong(name, "bad-claim", f"{name} is a text of 1 to {_LONGEST_TEXT} characters")
    return value


def _client(claims: Mapping[str, Any]) -> str:
    value = claims.get("client_id")
    if not isinstance(value, str) or not _CLIENT.match(value):
        raise _wrong("client_id", "bad-claim", "client_id is 1 to 255 visible ASCII characters and spaces")
    return value


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """`scope` (RFC 8693 4.2): texts between single spaces; none where it is not there."""
    value = claims.get("scope", "")
    found = value.split(" ") if isinstance(value, str) and value else []
    fits = isinstance(value, str) and len(found) <= _MOST_SCOPES and all(_SCOPE.match(each) for each in found)
    if not fits:
        raise _wrong("scope", "bad-claim", f"scope is a list of at most {_MOST_SCOPES} scopes")
    return frozenset(found)


def _wrong(claim: str, code: str, message: str) -> SignatureError:
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
