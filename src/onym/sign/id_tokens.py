"""Verify ID tokens of OpenID Connect (Core 1.0, 3.1.3.7). The current time is an argument."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from onym.common.strict_json import encode_base64url
from onym.errors import SignatureError
from onym.sign.algorithms import ALGORITHMS, ID_TOKEN_ALGORITHMS
from onym.sign.encoding import parse_json_object
from onym.sign.jws import MAX_TOKEN, Verified, verify
from onym.sign.keys import KeySet

#: how far two clocks may be apart
LEEWAY: Final = timedelta(seconds=60)
_LONGEST_SUBJECT: Final = 255
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds


@dataclass(frozen=True, slots=True, kw_only=True)
class IDToken:
    """Who signed in, as an issuer vouches. (issuer, subject) is the only key to an account."""

    issuer: str
    subject: str
    expires: float
    issued: float
    claims: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        """A claim, if it is a text that is not empty."""
        value = self.claims.get(name)
        return value if isinstance(value, str) and value else None


def verify_id_token(
    token: str,
    keys: KeySet,
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    at: datetime,
    access_token: str | None = None,
    algorithms: Collection[str] = ID_TOKEN_ALGORITHMS,
    leeway: timedelta = LEEWAY,
    limit: int = MAX_TOKEN,
) -> IDToken:
    """The claims of an ID token that is meant for this client and this sign-in, now.

    `at` is the time, aware. `at_hash` is tested where the token has one and `access_token` is given. Raises
    SignatureError; its code says which rule: `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`,
    `sign.not-yet`, `sign.bad-nonce`, `sign.bad-hash`, `sign.bad-claim`, or one of `jws.verify`.
    """
    verified = verify(token, keys, algorithms=algorithms, limit=limit)
    require_type(verified, "JWT", default="JWT")
    claims = parse_json_object(verified.payload, "ID token")
    require_parties(claims, issuer, client_id)
    if "azp" in claims and claims["azp"] != client_id:
        raise make_claim_error("azp", "bad-audience", "the token was given to another client")
    expires, issued = require_times(claims, at.timestamp(), leeway.total_seconds())
    _require_nonce(claims, nonce)
    if access_token is not None and "at_hash" in claims:
        _require_hash(claims["at_hash"], access_token, verified.algorithm)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT:
        raise make_claim_error("sub", "bad-claim", f"sub is a text of 1 to {_LONGEST_SUBJECT} characters")
    return IDToken(
        issuer=issuer, subject=subject, expires=expires, issued=issued, claims=MappingProxyType(claims)
    )


def require_type(verified: Verified, expected: str, *, default: str | None = None) -> None:
    """Raise SignatureError for a token of another type, such as a receipt or a proof (RFC 8725 3.11)."""
    kind = verified.header.get("typ", default)
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") != expected.lower():
        raise SignatureError(f"the type of the token is not {expected}", code="sign.bad-header")


def require_parties(claims: Mapping[str, Any], issuer: str, audience: str) -> None:
    """Raise SignatureError unless the token is from this issuer and only for this audience."""
    if claims.get("iss") != issuer:
        raise make_claim_error("iss", "bad-issuer", "the token is from another issuer")
    named = claims.get("aud")
    # another recipient of the token could replay it here (Core 3.1.3.7 item 3)
    if ([named] if isinstance(named, str) else named) != [audience]:
        raise make_claim_error("aud", "bad-audience", "the token is for another audience")


def require_times(claims: Mapping[str, Any], now: float, leeway: float) -> tuple[float, float]:
    """Return when the token expires and when it was issued. Raises SignatureError if it is not valid now."""
    expires, issued = _parse_time(claims, "exp"), _parse_time(claims, "iat")
    starts = _parse_time(claims, "nbf") if "nbf" in claims else issued
    if now >= expires + leeway:
        raise make_claim_error("exp", "expired", "the token has expired")
    if max(issued, starts) > now + leeway:
        raise make_claim_error("iat", "not-yet", "the token is from the future: are both clocks right?")
    return expires, issued


def _parse_time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise make_claim_error(name, "bad-claim", f"{name} is a number of seconds")
    return float(value)


def _require_nonce(claims: Mapping[str, Any], nonce: str) -> None:
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise make_claim_error("nonce", "bad-nonce", "the token belongs to another sign-in")


def _require_hash(given: object, access_token: str, algorithm: str) -> None:
    digest = hashlib.new(ALGORITHMS[algorithm].hash_name, access_token.encode()).digest()
    expected = encode_base64url(digest[: len(digest) // 2])
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), expected.encode()):
        raise make_claim_error(
            "at_hash", "bad-hash", "the access token is not the one that came with this token"
        )


def make_claim_error(claim: str, code: str, message: str) -> SignatureError:
    """Return the error of one claim."""
    """Return the error of one claim."""
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
