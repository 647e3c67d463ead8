"""Compact JWS (RFC 7515) and the claims of JWTs such as ID tokens (OpenID Connect Core 1.0, 3.1.3.7).

The caller, not the token, chooses the accepted algorithms (RFC 8725). The current time is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from onym.common.strict_json import encode_base64url
from onym.errors import SignatureError
from onym.sign.algorithms import ALGORITHMS, ID_TOKEN_ALGORITHMS, TOKEN_ALGORITHMS
from onym.sign.keys import Key, KeySet, SigningKey, decode_base64url, is_time, parse_json_object

#: bytes of a token, and of its header
MAX_TOKEN: Final = 64 * 1024
MAX_HEADER: Final = 4 * 1024
#: keys that are tried for a token without a kid
_MOST_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """The payload of a valid token, and its protected header."""

    payload: bytes
    header: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """The algorithm of the signature."""
        return str(self.header["alg"])


def sign_compact(
    payload: bytes,
    key: SigningKey,
    *,
    algorithm: str | None = None,
    header: Mapping[str, Any] | None = None,
) -> str:
    """Sign a payload. `algorithm` must be the key's; `header` adds members such as `typ`.

    Raises SignatureError for another algorithm, and for `crit` and `b64`, which are not supported.
    """
    if algorithm not in {None, key.algorithm}:
        raise SignatureError(f"this key signs only with {key.algorithm}", code="sign.bad-algorithm")
    protected: dict[str, Any] = dict(header or {})
    if not {"alg", "crit", "b64", "kid"}.isdisjoint(protected):
        message = "alg and kid come from the key; crit and b64 are not supported"
        raise SignatureError(message, code="sign.bad-header")
    protected["alg"] = key.algorithm
    if key.kid is not None:
        protected["kid"] = key.kid
    head = json.dumps(protected, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    text = f"{encode_base64url(head.encode())}.{encode_base64url(payload)}"
    return f"{text}.{encode_base64url(key.sign(text.encode('ascii')))}"


def verify_compact(token: str, keys: KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN) -> bytes:
    """Return the payload of a valid token. Raises SignatureError as `verify` does."""
    return verify(token, keys, algorithms=algorithms, limit=limit).payload


def verify(token: str, keys: KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN) -> Verified:
    """Verify a token with one of `keys` and `algorithms`.

    Keys in the token itself (jwk, jku, x5c, x5u) are ignored. Raises SignatureError with the
    codes `sign.too-large`, `sign.malformed`, `sign.bad-header`, `sign.bad-algorithm`, `sign.unknown-key`
    and `sign.bad-signature`.
    """
    if len(token) > limit:
        raise SignatureError(f"the token is longer than {limit} bytes", code="sign.too-large")
    head, body, tail = _split_segments(token)
    header = parse_json_object(decode_base64url(head, "header"), "header")
    algorithm = _require_algorithm(header, algorithms)
    payload, signature = decode_base64url(body, "payload"), decode_base64url(tail, "signature")
    signed = f"{head}.{body}".encode("ascii")
    for key in _find_candidates(header, algorithm, keys):
        if key.verify(algorithm, signed, signature):
            return Verified(payload, header)
    raise SignatureError("the signature is invalid", code="sign.bad-signature")


def _split_segments(token: str) -> list[str]:
    parts = token.split(".", 3)
    if len(parts) != 3 or len(parts[0]) > MAX_HEADER or not all((parts[0], parts[2])):
        hint = "a compact JWS is header.payload.signature"
        raise SignatureError("the token is not a JWS of three parts", code="sign.malformed", hint=hint)
    return parts


def _require_algorithm(header: Mapping[str, Any], algorithms: Collection[str]) -> str:
    """The header's algorithm, if the caller allows it and the header needs no extension (RFC 7515 4.1.11)."""
    if "crit" in header or "b64" in header:
        raise SignatureError("the header needs extensions that are not supported", code="sign.bad-header")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms or algorithm not in TOKEN_ALGORITHMS:
        raise SignatureError(
            "the token is signed with an algorithm that is not allowed here",
            code="sign.bad-algorithm",
            hint=f"allowed: {', '.join(sorted(algorithms))}",
        )
    return algorithm


def _find_candidates(header: Mapping[str, Any], algorithm: str, keys: KeySet) -> tuple[Key, ...]:
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise SignatureError("kid must be a string", code="sign.bad-header")
    candidates = keys.candidates(algorithm, kid)
    if not candidates:
        hint = "the signer may have changed keys: fetch its key set again"
        raise SignatureError("no key fits this token", code="sign.unknown-key", hint=hint)
    return candidates[:_MOST_TRIES]


#: how far two clocks may be apart
LEEWAY: Final = timedelta(seconds=60)
_LONGEST_SUBJECT: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class IDToken:
    """The person who signed in, by the issuer. (issuer, subject) is the only key of an account."""

    issuer: str
    subject: str
    expires: float
    issued: float
    claims: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        """A claim, if it is a string that is not empty."""
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
    """Verify an ID token for this client and this sign-in.

    `at` is the time, aware. `at_hash` is checked if the token has one and `access_token` is given. Raises
    SignatureError; its code tells the rule: `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`,
    `sign.not-yet`, `sign.bad-nonce`, `sign.bad-hash`, `sign.bad-claim`, or a code of `verify`.
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
        raise make_claim_error("sub", "bad-claim", f"sub must have 1 to {_LONGEST_SUBJECT} characters")
    public = MappingProxyType(claims)
    return IDToken(issuer=issuer, subject=subject, expires=expires, issued=issued, claims=public)


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
    expires, issued = parse_time_claim(claims, "exp"), parse_time_claim(claims, "iat")
    starts = parse_time_claim(claims, "nbf") if "nbf" in claims else issued
    if now >= expires + leeway:
        raise make_claim_error("exp", "expired", "the token has expired")
    if max(issued, starts) > now + leeway:
        raise make_claim_error("iat", "not-yet", "the token is from the future: are both clocks right?")
    return expires, issued


def parse_time_claim(claims: Mapping[str, Any], name: str) -> float:
    """Return a time in seconds since the epoch. Raises SignatureError if it is missing or not a time."""
    value = claims.get(name)
    if not is_time(value):
        raise make_claim_error(name, "bad-claim", f"{name} must be a number of seconds")
    return float(value)


def _require_nonce(claims: Mapping[str, Any], nonce: str) -> None:
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise make_claim_error("nonce", "bad-nonce", "the token belongs to another sign-in")


def _require_hash(given: object, access_token: str, algorithm: str) -> None:
    digest = hashlib.new(ALGORITHMS[algorithm].hash_name, access_token.encode()).digest()
    expected = encode_base64url(digest[: len(digest) // 2])
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), expected.encode()):
        message = "the access token was not issued with this token"
        raise make_claim_error("at_hash", "bad-hash", message)


def make_claim_error(claim: str, code: str, message: str) -> SignatureError:
    """Return the error of one claim."""
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
