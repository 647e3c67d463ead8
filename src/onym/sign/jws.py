"""Compact JWS (RFC 7515), by RFC 8725: the caller, not the token, chooses the accepted algorithms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onym.common.strict_json import encode_base64url
from onym.errors import SignatureError
from onym.sign.algorithms import TOKEN_ALGORITHMS
from onym.sign.encoding import decode_base64url, parse_json_object
from onym.sign.keys import Key, KeySet, SigningKey

#: octets of a token, and of its header
MAX_TOKEN: Final = 64 * 1024
MAX_HEADER: Final = 4 * 1024
#: keys tried for a token that names none
_MOST_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """A payload whose signature holds, and its protected header."""

    payload: bytes
    header: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """The algorithm that the signature was made with."""
        return str(self.header["alg"])


def sign_compact(
    payload: bytes,
    key: SigningKey,
    *,
    algorithm: str | None = None,
    header: Mapping[str, Any] | None = None,
) -> str:
    """The payload, signed. `algorithm` must be the key's own; `header` adds members such as `typ`.

    Raises SignatureError for another algorithm, and for `crit` and `b64`, which are not supported.
    """
    import json

    if algorithm not in {None, key.algorithm}:
        raise SignatureError(f"this key signs with {key.algorithm} alone", code="sign.bad-algorithm")
    protected: dict[str, Any] = dict(header or {})
    if not {"alg", "crit", "b64", "kid"}.isdisjoint(protected):
        raise SignatureError(
            "alg and kid are the key's; crit and b64 are unsupported", code="sign.bad-header"
        )
    protected["alg"] = key.algorithm
    if key.kid is not None:
        protected["kid"] = key.kid
    head = json.dumps(protected, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    octets = f"{encode_base64url(head.encode())}.{encode_base64url(payload)}"
    return f"{octets}.{encode_base64url(key.sign(octets.encode('ascii')))}"


def verify_compact(token: str, keys: KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN) -> bytes:
    """The payload of a token whose signature holds. Raises SignatureError; see `verify`."""
    return verify(token, keys, algorithms=algorithms, limit=limit).payload


def verify(token: str, keys: KeySet, *, algorithms: Collection[str], limit: int = MAX_TOKEN) -> Verified:
    """Payload and header of a token whose signature holds under one of `keys` and `algorithms`.

    Keys that the token brings along (jwk, jku, x5c, x5u) are not looked at. Raises SignatureError with the
    codes `sign.too-large`, `sign.malformed`, `sign.bad-header`, `sign.bad-algorithm`, `sign.unknown-key`
    and `sign.bad-signature`.
    """
    if len(token) > limit:
        raise SignatureError(f"the token is longer than {limit} octets", code="sign.too-large")
    head, body, tail = _split_segments(token)
    header = parse_json_object(decode_base64url(head, "header"), "header")
    algorithm = _require_algorithm(header, algorithms)
    payload, signature = decode_base64url(body, "payload"), decode_base64url(tail, "signature")
    signed = f"{head}.{body}".encode("ascii")
    for key in _find_candidates(header, algorithm, keys):
        if key.verify(algorithm, signed, signature):
            return Verified(payload, header)
    raise SignatureError("the signature does not hold", code="sign.bad-signature")


def _split_segments(token: str) -> list[str]:
    parts = token.split(".", 3)
    if len(parts) != 3 or len(parts[0]) > MAX_HEADER or not all((parts[0], parts[2])):
        raise SignatureError(
            "this is not a JWS of three parts", code="sign.malformed", hint="header.payload.signature"
        )
    return parts


def _require_algorithm(header: Mapping[str, Any], algorithms: Collection[str]) -> str:
    """The header's algorithm, if the caller allows it and the header asks for nothing unknown."""
    if "crit" in header or "b64" in header:
        # RFC 7515 4.1.11: what must be understood and is not, is refused
        raise SignatureError("the header asks for extensions that are not supported", code="sign.bad-header")
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
        raise SignatureError("kid is a text", code="sign.bad-header")
    found = keys.candidates(algorithm, kid)
    if not found:
        raise SignatureError(
            "no key fits this token", code="sign.unknown-key", hint="has the signer changed keys?"
        )
    return found[:_MOST_TRIES]
