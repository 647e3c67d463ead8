"""The claims of a receipt: a frozen value, how it is written, how it is read (AIIP/HTTPS v1, 3.8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onym.errors import SignatureError
from onym.sign.chain import StreamEnd

__all__ = ["MAX_LIFE", "Receipt", "claims_of", "receipt_of"]

#: seconds between `iat` and `exp`, at most
MAX_LIFE: Final = 300
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds
_LARGEST: Final = 2**53 - 1  # the last integer that every reader of JSON has (RFC 8259 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an authority says of one answer.

    `issuer` is the anchor, `subject` the canonical ai URI without query, `audience` the caller, `issued` and
    `expires` seconds since the epoch, `id` and `nonce` of 128 bits or more, `request` the request hash. The
    content is `digest` (as in Content-Digest) and `length` in octets; a stream has `stream` instead.
    `token_hash` is of the access token, `task` and `original` tie the result of a task to what was asked,
    `policy` and `approval` name what allowed it, `upstream` (a gateway's receipt) the hash of the endpoint's.
    """

    kind: str = "aiip-receipt+jwt"
    issuer: str
    subject: str
    audience: str
    issued: float
    expires: float
    id: str
    nonce: str | None
    request: str
    status: int
    content_type: str | None = None
    digest: str | None = None
    length: int | None = None
    stream: StreamEnd | None = None
    token_hash: str | None = None
    task: str | None = None
    original: str | None = None
    policy: str | None = None
    approval: str | None = None
    upstream: str | None = None


def _text(pattern: str) -> Callable[[object], bool]:
    matches = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and matches(value) is not None


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST


_VISIBLE: Final = _text(r"[\x20-\x7e]{1,1024}")
_WORD: Final = _text(r"[\x21-\x7e]{1,256}")
_RANDOM: Final = _text(r"[A-Za-z0-9_-]{22,128}")
_HASH: Final = _text(r"[A-Za-z0-9_-]{43}")
_DIGEST: Final = _text(r"sha-256=:[A-Za-z0-9+/]{43}=:")

#: claim, field of Receipt, its form, must it be there
_Row = tuple[str, str, Callable[[object], bool], bool]
_CLAIMS: Final[tuple[_Row, ...]] = (
    ("iss", "issuer", _VISIBLE, True),
    ("sub", "subject", _text(r"ai:[\x21\x22\x24-\x3e\x40-\x7e]{1,2048}"), True),  # neither # nor ?
    ("aud", "audience", _VISIBLE, True),
    ("iat", "issued", _is_time, True),
    ("exp", "expires", _is_time, True),
    ("jti", "id", _RANDOM, True),
    ("nonce", "nonce", _RANDOM, False),
    ("rqh", "request", _HASH, True),
    ("ath", "token_hash", _HASH, False),
    ("tsk", "task", _WORD, False),
    ("orq", "original", _HASH, False),
    ("pol", "policy", _WORD, False),
    ("apr", "approval", _WORD, False),
    ("up", "upstream", _WORD, False),
)
_RESULT: Final[tuple[_Row, ...]] = (
    ("st", "status", _whole(100, 599), True),
    ("ct", "content_type", _VISIBLE, False),
    ("cd", "digest", _DIGEST, False),
    ("len", "length", _whole(0, _LARGEST), False),
)
_STREAM: Final[tuple[_Row, ...]] = (
    ("n", "count", _whole(0, _LARGEST), True),
    ("cd", "digest", _DIGEST, True),
)


def claims_of(receipt: Receipt) -> dict[str, Any]:
    """The claims set, to be signed."""
    claims = _written(receipt, _CLAIMS)
    claims["res"] = _written(receipt, _RESULT)
    if receipt.stream is not None:
        claims["str"] = _written(receipt.stream, _STREAM)
    return claims


def receipt_of(claims: Mapping[str, Any], kind: str) -> Receipt:
    """The receipt that these claims are; claims that are not known are left alone. Raises SignatureError."""
    fields = _read(claims, _CLAIMS)
    fields |= _read(_inside(claims, "res"), _RESULT)
    if "str" in claims:
        fields["stream"] = StreamEnd(**_read(_inside(claims, "str"), _STREAM))
    whole = {"digest", "length"} & fields.keys()
    if ("stream" in fields and whole) or ("stream" not in fields and len(whole) < 2):
        raise _wrong("res", "the content is bound by cd and len, or by str, and not by both")
    _check_life(claims)
    return Receipt(kind=kind, **{"nonce": None, **fields})


def _check_life(claims: Mapping[str, Any]) -> None:
    begins, ends = claims["iat"], claims["exp"]
    if not 0 < ends - begins <= MAX_LIFE:
        raise _wrong("exp", f"a receipt lives for {MAX_LIFE} seconds at most")
    if "nbf" in claims and not (_is_time(claims["nbf"]) and claims["nbf"] <= begins):
        raise _wrong("nbf", "a receipt counts from iat on")


def _written(source: object, rows: tuple[_Row, ...]) -> dict[str, Any]:
    found = {claim: getattr(source, name) for claim, name, _, _ in rows}
    return {claim: _plain(value) for claim, value in found.items() if value is not None}


def _plain(value: object) -> object:
    """Whole seconds without a fraction, which some readers do not expect."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read(claims: Mapping[str, Any], rows: tuple[_Row, ...]) -> dict[str, Any]:
    found = {}
    for claim, name, fits, needed in rows:
        if claim in claims:
            if not fits(claims[claim]):
                raise _wrong(claim, "the claim is not of its form")
            found[name] = claims[claim]
        elif needed:
            raise _wrong(claim, "the claim is missing")
    return found


def _inside(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = claims.get(name)
    if not isinstance(found, dict):
        raise _wrong(name, "the claim is missing, or no object")
    return found


def _wrong(claim: str, message: str) -> SignatureError:
    return SignatureError(f"{claim}: {message}", code="sign.bad-claim")
