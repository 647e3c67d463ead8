"""Strict JSON and base64url: each text has one meaning or is rejected (RFC 8259 4, RFC 7515 2)."""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, NoReturn

from onym.errors import SignatureError

_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*\Z")
_DEEPEST: Final = 16


def encode_base64url(octets: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def decode_base64url(text: str, what: str) -> bytes:
    """The octets of base64url without padding, in its one canonical spelling. Raises SignatureError."""
    if _ALPHABET.match(text) and len(text) % 4 != 1:
        octets = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if encode_base64url(octets) == text:
            return octets
    raise SignatureError(f"the {what} is not base64url", code="sign.malformed")


def parse_json_object(octets: bytes, what: str) -> dict[str, Any]:
    """A JSON object in UTF-8 without duplicate members, NaN or deep nesting. Raises SignatureError."""
    found = parse_json_value(octets, what)
    if not isinstance(found, dict) or not _is_shallow(found):
        raise _make_json_error(f"the {what} is not a JSON object with each member once")
    return found


def parse_json_value(octets: bytes, what: str) -> Any:
    """A JSON value in UTF-8 without duplicate members and NaN. Raises SignatureError."""
    try:
        return json.loads(
            octets.decode("utf-8"),
            object_pairs_hook=_require_unique_members,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
        )
    except (ValueError, RecursionError):
        raise _make_json_error(f"the {what} is not JSON with each member once") from None


def _make_json_error(message: str) -> SignatureError:
    hint = "is it the right file? Whoever makes it writes JSON, repeats no member and does not nest deeply"
    return SignatureError(message, code="sign.malformed", hint=hint)


def _require_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate member")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _is_shallow(value: object) -> bool:
    layer: list[object] = [value]
    for _ in range(_DEEPEST):
        layer = [inner for each in layer for inner in _list_children(each)]
        if not layer:
            return True
    return False


def _list_children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
