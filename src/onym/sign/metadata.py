"""`signed_metadata`: the discovery document, signed with a key of its authority (AIIP/HTTPS v1, 3.2).

The token is a JWT as in RFC 8414 2.1 and RFC 9728 2.2 with its own type, so that a receipt or an access token
cannot be mistaken for it. Its key comes from the authority's key set, like that of a receipt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onym.errors import SignatureError
from onym.sign.jws import make_claim_error, parse_time_claim
from onym.sign.keys import LEEWAY, AuthorityKeys, Signer, parse_json_object
from onym.sign.receipts import (
    DEFAULT_ALGORITHMS,
    find_key_in_force,
    parse_token_header,
    sign_token,
    split_token,
)

#: `typ` of the token
METADATA: Final = "aiip-anchor+jwt"
#: bytes of the token, and of the document that contains it
MAX_METADATA: Final = 64 * 1024
_SUBJECT: Final = "signed metadata"
#: claims about the token itself (RFC 7519 4.1), which are not members of the document
_CLAIMS: Final = frozenset({"iss", "sub", "aud", "iat", "nbf", "exp", "jti"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Signed members of the anchor document, valid until `expires` (seconds, None for no end).

    `kid` is the key's.
    """

    members: Mapping[str, Any] = field(repr=False)
    expires: float | None
    kid: str


def sign_metadata(
    members: Mapping[str, Any], signer: Signer, *, issuer: str, issued: float, expires: float | None = None
) -> str:
    """Sign these members of an anchor document. `issuer` is the anchor; times are seconds.

    Raises SignatureError for a key without kid, for members that are claims of the token itself, for a token
    that is too long, and if the key's device fails.
    """
    taken = sorted(_CLAIMS & members.keys())
    if taken:
        raise SignatureError(f"{taken[0]} cannot be a member of an anchor document", code="sign.bad-claim")
    times = {"iat": int(issued)} | ({} if expires is None else {"exp": int(expires)})
    token = sign_token({"iss": issuer, **times, **members}, _SUBJECT, METADATA, signer)
    if len(token) > MAX_METADATA:
        raise SignatureError(f"{_SUBJECT} is longer than {MAX_METADATA} bytes", code="sign.too-large")
    return token


def verify_metadata(
    token: str,
    keys: AuthorityKeys,
    *,
    issuer: str,
    at: float,
    algorithms: Collection[str] = DEFAULT_ALGORITHMS,
) -> Metadata:
    """Verify a token that the anchor `issuer` signed and that is valid `at` (seconds).

    `keys` are only those of the expected authority. Raises SignatureError: `sign.unknown-key` if the copy of
    the keys may be too old, `sign.expired` and `sign.not-yet` if the token is too old or too new.
    """
    head, payload, signature, signed = split_token(token, _SUBJECT, MAX_METADATA)
    algorithm, kid = parse_token_header(parse_json_object(head, "header"), _SUBJECT, METADATA, algorithms)
    if not find_key_in_force(keys, kid, algorithm, at).verify(algorithm, signed, signature):
        raise SignatureError("the signature is invalid", code="sign.bad-signature")
    claims = parse_json_object(payload, "claims set")
    _require_parties(claims, issuer)
    expires = _require_times(claims, at)
    members = {name: value for name, value in claims.items() if name not in _CLAIMS}
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
    if max(issued or 0.0, starts or 0.0) > at + LEEWAY:
        raise make_claim_error("iat", "not-yet", "the metadata is from the future: are both clocks right?")
    return expires
