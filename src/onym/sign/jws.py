"""Compact JWS (RFC 7515), and the claims of JWTs: ID tokens, ID-JAGs, access tokens, client assertions.

The caller, not the token, chooses the accepted algorithms (RFC 8725). The current time is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from onym.common import text as strict_text
from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.sign import keys as signing_keys
from onym.sign.keys import ID_TOKEN_ALGORITHMS
from onym.uri.secret import Secret

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
    key: signing_keys.Signer,
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


def verify_compact(
    token: str, keys: signing_keys.KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN
) -> bytes:
    """Return the payload of a valid token. Raises SignatureError as `verify` does."""
    return verify(token, keys, algorithms=algorithms, limit=limit).payload


def verify(
    token: str, keys: signing_keys.KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN
) -> Verified:
    """Verify a token with one of `keys` and `algorithms`.

    Keys in the token itself (jwk, jku, x5c, x5u) are ignored. Raises SignatureError with the
    codes `sign.too-large`, `sign.malformed`, `sign.bad-header`, `sign.bad-algorithm`, `sign.unknown-key`
    and `sign.bad-signature`.
    """
    if len(token) > limit:
        raise SignatureError(f"the token is longer than {limit} bytes", code="sign.too-large")
    head, body, tail = _split_segments(token)
    header = signing_keys.parse_json_object(signing_keys.decode_base64url(head, "header"), "header")
    algorithm = _require_algorithm(header, algorithms)
    payload, signature = (
        signing_keys.decode_base64url(body, "payload"),
        signing_keys.decode_base64url(tail, "signature"),
    )
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
    if (
        not isinstance(algorithm, str)
        or algorithm not in algorithms
        or algorithm not in signing_keys.TOKEN_ALGORITHMS
    ):
        raise SignatureError(
            "the token is signed with an algorithm that is not allowed here",
            code="sign.bad-algorithm",
            hint=f"allowed: {', '.join(sorted(algorithms))}",
        )
    return algorithm


def _find_candidates(
    header: Mapping[str, Any], algorithm: str, keys: signing_keys.KeySet
) -> tuple[signing_keys.Key, ...]:
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
_MOST_METHODS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class IDToken:
    """The person who signed in, by the issuer. (issuer, subject) is the only key of an account."""

    issuer: str
    subject: str
    expires: float
    issued: float
    claims: Mapping[str, Any]

    @property
    def authenticated(self) -> float | None:
        """When the person authenticated (`auth_time`), in seconds since the epoch."""
        value = self.claims.get("auth_time")
        return float(value) if value is not None else None

    @property
    def methods(self) -> tuple[str, ...]:
        """How the person authenticated (`amr`, RFC 8176)."""
        return tuple(self.claims.get("amr") or ())

    def text(self, name: str) -> str | None:
        """A claim, if it is a string that is not empty."""
        value = self.claims.get(name)
        return value if isinstance(value, str) and value else None


def verify_id_token(
    token: str,
    keys: signing_keys.KeySet,
    *,
    issuer: str,
    client_id: str,
    nonce: str | None,
    at: datetime,
    access_token: str | None = None,
    algorithms: Collection[str] = ID_TOKEN_ALGORITHMS,
    leeway: timedelta = LEEWAY,
    limit: int = MAX_TOKEN,
) -> IDToken:
    """Verify an ID token for this client and this sign-in.

    `at` is the time, aware. `nonce` is None for the token of a refresh (Core 12.2). `at_hash` is checked if
    the token has one and `access_token` is given. Raises SignatureError; its code tells the rule:
    `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`, `sign.not-yet`, `sign.bad-nonce`,
    `sign.bad-hash`, `sign.bad-claim`, or a code of `verify`.
    """
    verified = verify(token, keys, algorithms=algorithms, limit=limit)
    require_type(verified.header, "JWT", default="JWT")
    claims = signing_keys.parse_json_object(verified.payload, "ID token")
    require_parties(claims, issuer, client_id)
    if "azp" in claims and claims["azp"] != client_id:
        raise make_claim_error("azp", "bad-audience", "the token was given to another client")
    expires, issued = require_times(claims, at.timestamp(), leeway.total_seconds())
    if nonce is not None:
        _require_nonce(claims, nonce)
    if access_token is not None and "at_hash" in claims:
        _require_hash(claims["at_hash"], access_token, verified.algorithm)
    subject = _parse_short_text(claims, "sub")
    _require_authentication_claims(claims)
    public = MappingProxyType(claims)
    return IDToken(issuer=issuer, subject=subject, expires=expires, issued=issued, claims=public)


def _parse_short_text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_SUBJECT:
        raise make_claim_error(name, "bad-claim", f"{name} must have 1 to {_LONGEST_SUBJECT} characters")
    return value


def _require_authentication_claims(claims: Mapping[str, Any]) -> None:
    """Raise SignatureError if a claim about the authentication is not what Core 2 and RFC 8176 say."""
    for name in ("acr", "sid"):
        if claims.get(name) is not None:
            _parse_short_text(claims, name)
    if claims.get("auth_time") is not None:
        parse_time_claim(claims, "auth_time")
    methods = claims.get("amr")
    if methods is not None and not (
        isinstance(methods, list)
        and len(methods) <= _MOST_METHODS
        and all(isinstance(method, str) and 0 < len(method) <= _LONGEST_SUBJECT for method in methods)
    ):
        raise make_claim_error("amr", "bad-claim", "amr must be a list of strings")


#: seconds for which a logout token is accepted after it was issued
LOGOUT_TOKEN_SECONDS: Final = 600
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_LOGOUT_TYPE: Final = "logout+jwt"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutToken:
    """A provider's message that a person signed out (OpenID Connect Back-Channel Logout 1.0, 2.4).

    It names a session of the provider (`session`), a person (`subject`), or both. `id` is its `jti`.
    """

    issuer: str
    subject: str | None
    session: str | None
    id: str
    issued: float


def verify_logout_token(
    token: str,
    keys: signing_keys.KeySet,
    *,
    issuer: str,
    client_id: str,
    at: datetime,
    leeway: timedelta = LEEWAY,
) -> LogoutToken:
    """Verify a logout token for this client (2.6). The caller checks that its `id` is new.

    A token without `typ` and without `exp` is accepted, because widely used providers leave them out; it is
    valid for `LOGOUT_TOKEN_SECONDS`. Raises SignatureError, as `verify_id_token` does.
    """
    verified = verify(token, keys, algorithms=ID_TOKEN_ALGORITHMS)
    require_type(verified.header, _LOGOUT_TYPE, default=_LOGOUT_TYPE)
    claims = signing_keys.parse_json_object(verified.payload, "logout token")
    require_parties(claims, issuer, client_id)
    now, slack = at.timestamp(), leeway.total_seconds()
    issued = parse_time_claim(claims, "iat")
    if issued > now + slack:
        raise make_claim_error("iat", "not-yet", "the token is from the future: are both clocks right?")
    expires = parse_time_claim(claims, "exp") if "exp" in claims else issued + LOGOUT_TOKEN_SECONDS
    if now >= min(expires, issued + LOGOUT_TOKEN_SECONDS) + slack:
        raise make_claim_error("exp", "expired", "the token has expired")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(_LOGOUT_EVENT), dict):
        raise make_claim_error("events", "bad-claim", "the token is not a logout token")
    if "nonce" in claims:
        raise make_claim_error("nonce", "bad-claim", "a logout token has no nonce")
    subject, session = (
        _parse_short_text(claims, name) if name in claims else None for name in ("sub", "sid")
    )
    if subject is None and session is None:
        raise make_claim_error("sub", "bad-claim", "the token names neither a person nor a session")
    return LogoutToken(
        issuer=issuer,
        subject=subject,
        session=session,
        id=_parse_short_text(claims, "jti"),
        issued=issued,
    )


#: `typ` of an identity assertion grant (draft-ietf-oauth-identity-assertion-authz-grant, ID-JAG)
ID_JAG: Final = "oauth-id-jag+jwt"
#: the longest life of an ID-JAG that is believed, and of a client assertion, in seconds
_ID_JAG_SECONDS: Final = 3600.0
_ASSERTION_SECONDS: Final = 60
_LONGEST_CLAIM: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class IDJAG:
    """The claims of a verified identity assertion grant. `expires` is in seconds since the epoch.

    `thumbprint` is that of the DPoP key that it is bound to, None for a grant that any sender may use.
    """

    issuer: str
    subject: str
    client_id: str
    id: str
    expires: float
    resource: str | None
    scopes: frozenset[str]
    thumbprint: str | None


def verify_id_jag(
    token: str,
    keys: signing_keys.KeySet,
    *,
    issuer: str,
    audience: str,
    client_id: str,
    at: float,
    algorithms: Collection[str] = ID_TOKEN_ALGORITHMS,
    limit: int = MAX_TOKEN,
) -> IDJAG:
    """Verify an ID-JAG of this issuer for this authorization server and this client (draft, section 4.4.1).

    `at` is the time in seconds since the epoch. Who redeems it must see to it that its `id` is used once.
    Raises SignatureError: `sign.bad-header` for a token of another type, `sign.bad-issuer`,
    `sign.bad-audience` (also for another client), `sign.expired`, `sign.not-yet`, `sign.bad-claim`, or a code
    of `verify`.
    """
    verified = verify(token, keys, algorithms=algorithms, limit=limit)
    return _check_id_jag(verified.header, verified.payload, issuer, audience, client_id, at)


def read_id_jag(
    token: str, *, issuer: str, audience: str, client_id: str, at: float, limit: int = MAX_TOKEN
) -> IDJAG:
    """Check an ID-JAG as `verify_id_jag` does, but not its signature.

    Only for a client that the issuer itself has sent the grant to over TLS, if the issuer publishes no keys:
    the authorization server that redeems the grant verifies the signature. Raises SignatureError.
    """
    if len(token) > limit:
        raise SignatureError(f"the token is longer than {limit} bytes", code="sign.too-large")
    head, body, _ = _split_segments(token)
    header = signing_keys.parse_json_object(signing_keys.decode_base64url(head, "header"), "header")
    _require_algorithm(header, ID_TOKEN_ALGORITHMS)
    payload = signing_keys.decode_base64url(body, "payload")
    return _check_id_jag(header, payload, issuer, audience, client_id, at)


def _check_id_jag(
    header: Mapping[str, Any], payload: bytes, issuer: str, audience: str, client_id: str, at: float
) -> IDJAG:
    require_type(header, ID_JAG)
    claims = signing_keys.parse_json_object(payload, "ID-JAG")
    require_parties(claims, issuer, audience)
    if claims.get("client_id") != client_id:
        raise make_claim_error("client_id", "bad-audience", "the grant is for another client")
    expires, issued = require_times(claims, at, LEEWAY.total_seconds())
    if not 0 < expires - issued <= _ID_JAG_SECONDS:
        raise make_claim_error("exp", "bad-claim", f"the lifetime is not 1 to {_ID_JAG_SECONDS:.0f} seconds")
    confirmation = claims.get("cnf", {})
    if (
        not isinstance(confirmation, dict)
        or set(confirmation) - {"jkt"}
        or ("cnf" in claims) > bool(confirmation)
    ):
        raise make_claim_error("cnf", "bad-claim", "the grant is bound in a way that is not supported")
    texts: dict[str, Any] = {name: claims[name] for name in ("resource", "scope") if name in claims}
    texts |= {"sub": claims.get("sub"), "jti": claims.get("jti"), **confirmation}
    for name, value in texts.items():
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_CLAIM:
            raise make_claim_error(name, "bad-claim", f"it is not 1 to {_LONGEST_CLAIM} characters")
    return IDJAG(
        issuer=issuer,
        subject=texts["sub"],
        client_id=client_id,
        id=texts["jti"],
        expires=expires,
        resource=texts.get("resource"),
        scopes=frozenset(texts.get("scope", "").split()),
        thumbprint=texts.get("jkt"),
    )


#: how deep `act` may nest: the caller, and three that called it (RFC 8693 4.1)
MAX_ACTORS: Final = 4


def find_token_fault(
    token: Secret,
    *,
    issuer: str,
    client_id: str,
    resource: str | None,
    scopes: Collection[str] = (),
    thumbprint: str | None = None,
    certificate: str | None = None,
    actor: bool = False,
) -> str | None:
    """Return what is wrong with an access token that a client received, None if nothing is known.

    The claims of a JWT must not contradict what the client asked for. `thumbprint` is that of the DPoP key
    and `certificate` the hash of the certificate that the token must be bound to. With `actor`, it must name
    an actor in `act`. The signature is not verified: that is up to the resource. A token that is not a JWT
    can only be read by its server; then only a missing actor is reported.
    """
    claims = read_unverified_claims(token)
    if claims is None:
        return "issued an opaque token, which does not name the actor" if actor else None
    if claims.get("iss", issuer) != issuer:
        return "issued a token of another issuer"
    if resource is not None and claims.get("aud", resource) not in (resource, [resource]):
        return "issued a token for another resource"
    if claims.get("client_id", client_id) != client_id:
        return "issued a token for another client"
    granted = claims.get("scope", "")
    if not isinstance(granted, str) or (scopes and not set(granted.split()) <= set(scopes)):
        return "issued a token with a wider scope than was asked for"
    confirmation = claims.get("cnf", {})
    if not isinstance(confirmation, dict) or confirmation.get("jkt") != thumbprint:
        return "issued a token that is bound to another key, or to none"
    if certificate is not None and confirmation.get("x5t#S256") != certificate:
        return "issued a token that is not bound to the client's certificate"
    return _find_actor_fault(claims, required=actor)


def read_unverified_claims(token: Secret) -> dict[str, Any] | None:
    """Return the claims of a signed JWT, for reading only; None for another token."""
    try:
        head, body, _ = token.reveal().split(".")
        header = strict_text.parse_json_object(strict_text.decode_base64url(head))
        claims = strict_text.parse_json_object(strict_text.decode_base64url(body))
    except ValueError:
        return None
    return claims if "alg" in header else None


def _find_actor_fault(claims: Mapping[str, Any], *, required: bool) -> str | None:
    """Return what is wrong with `act`: the actor who asked for the token, with earlier ones inside."""
    actor, depth = claims.get("act"), 0
    if actor is None:
        return "issued a token that does not name the actor (`act`)" if required else None
    while actor is not None:
        depth += 1
        if not isinstance(actor, dict) or not isinstance(actor.get("sub"), str) or depth > MAX_ACTORS:
            return "issued a token with an invalid chain of actors (`act`)"
        actor = actor.get("act")
    return None


def sign_client_assertion(key: signing_keys.Signer, *, client_id: str, audience: str, at: float) -> Secret:
    """Return a JWT that authenticates a client at an authorization server for one minute (RFC 7523 2.2).

    `audience` is the server's issuer identifier, `at` the time in seconds since the epoch.
    """
    now = int(at)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": secrets.token_urlsafe(24),
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
    }
    content = json.dumps(claims, separators=(",", ":")).encode()
    return Secret(sign_compact(content, key, header={"typ": "JWT"}))


def require_type(header: Mapping[str, Any], expected: str, *, default: str | None = None) -> None:
    """Raise SignatureError for a token of another type, such as a receipt or a proof (RFC 8725 3.11)."""
    kind = header.get("typ", default)
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
    if not signing_keys.is_time(value):
        raise make_claim_error(name, "bad-claim", f"{name} must be a number of seconds")
    return float(value)


def _require_nonce(claims: Mapping[str, Any], nonce: str) -> None:
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise make_claim_error("nonce", "bad-nonce", "the token belongs to another sign-in")


def _require_hash(given: object, access_token: str, algorithm: str) -> None:
    digest = hashlib.new(signing_keys.ALGORITHMS[algorithm].hash_name, access_token.encode()).digest()
    expected = encode_base64url(digest[: len(digest) // 2])
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), expected.encode()):
        message = "the access token was not issued with this token"
        raise make_claim_error("at_hash", "bad-hash", message)


def make_claim_error(claim: str, code: str, message: str) -> SignatureError:
    """Return the error of one claim."""
    return SignatureError(f"{claim}: {message}", code=f"sign.{code}")
