"""The form of an authority's tokens: three parts, and a header that says no more than it must.

What tells them apart is `typ`, and a reader names the one that it takes (RFC 8725 3.11).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from onym.errors import SignatureError
from onym.sign._jwk import RECEIPT_ALGORITHMS
from onym.sign._strict import decode, encode

if TYPE_CHECKING:
    from onym.sign._jwk import Key
    from onym.sign.authority import AuthorityKeys
    from onym.sign.keys import Signer

__all__ = ["accepted", "in_force", "signed", "split"]

_HEADER: Final = frozenset({"typ", "alg", "kid"})
_READ_AGAIN: Final = "has the authority changed keys? Read its set again"


def split(token: str, what: str, limit: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Header, payload, signature and what is signed, of a token of three parts in their one spelling.

    `what` is the token's name in messages. Raises SignatureError for more than `limit` octets, too.
    """
    parts = token.split(".", 3)
    if len(token) > limit or len(parts) != 3 or not all(parts):
        raise SignatureError(
            f"{what} is a JWS of three parts and at most {limit} octets", code="sign.malformed"
        )
    head, payload, signature = parts
    return (
        decode(head, "header"),
        decode(payload, "payload"),
        decode(signature, "signature"),
        f"{head}.{payload}".encode("ascii"),
    )


def accepted(header: Mapping[str, Any], what: str, kind: str, algorithms: Collection[str]) -> tuple[str, str]:
    """Algorithm and kid of a header that says nothing else, of a type and algorithm that are accepted."""
    if header.keys() != _HEADER or not all(isinstance(value, str) for value in header.values()):
        raise SignatureError("the header has typ, alg and kid, and nothing else", code="sign.bad-header")
    if header["typ"] != kind:
        raise SignatureError("the token is of another type", code="sign.bad-header")
    algorithm = header["alg"]
    name = "Ed25519" if algorithm == "EdDSA" else algorithm
    if name not in algorithms or name not in RECEIPT_ALGORITHMS:
        raise SignatureError(
            f"{what} is signed with an algorithm that is not allowed here",
            code="sign.bad-algorithm",
            hint=f"allowed: {', '.join(sorted(algorithms))}",
        )
    return algorithm, header["kid"]


def in_force(keys: AuthorityKeys, kid: str, algorithm: str, at: float) -> Key:
    """The key, which must be in force now by the copy of the set at hand.

    A copy may be too old to tell: where a key is revoked, the next one signs before the time that was said.
    """
    try:
        return keys.find(kid, algorithm, at)
    except SignatureError as error:
        if error.code != "sign.key-not-in-force":
            raise
        raise SignatureError(
            "by the copy at hand of the authority's key set, the key is not in force now",
            code="sign.unknown-key",
            hint=_READ_AGAIN,
        ) from error


def signed(claims: Mapping[str, Any], what: str, kind: str, signer: Signer) -> str:
    """These claims as a token of that type. Raises SignatureError for a key without kid."""
    if signer.kid is None:
        raise SignatureError(
            f"{what} is signed with a key that has a kid",
            code="sign.bad-key",
            hint="SigningKey.with_thumbprint()",
        )
    payload = json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text = f"{_header(kind, signer.algorithm, signer.kid)}.{encode(payload)}"
    return f"{text}.{encode(signer.sign(text.encode('ascii')))}"


@lru_cache(maxsize=64)
def _header(kind: str, algorithm: str, kid: str) -> str:
    return encode(json.dumps({"alg": algorithm, "kid": kid, "typ": kind}, separators=(",", ":")).encode())
