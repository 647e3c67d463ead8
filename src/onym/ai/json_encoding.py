"""JSON encoding that rejects NaN and infinity (RFC 8259 6). Pure."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

_ENCODER: Final = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    """The value as JSON.

    Raises TypeError, ValueError or RecursionError for one that JSON cannot say: msgspec would write NaN and
    infinity as `null`, which is another value.
    """
    body = _ENCODER.encode(value)
    if b"null" in body:  # seldom, and much cheaper than to look at every number
        require_finite_numbers(msgspec.to_builtins(value, str_keys=True, enc_hook=_ignore_raw))
    return body


def require_finite_numbers(value: Any) -> None:
    """Raises ValueError where a value of plain Python has NaN or an infinity in it."""
    json.dumps(value, allow_nan=False)


def _ignore_raw(_: Any) -> None:
    """A `msgspec.Raw`, which is JSON already; whatever else has no plain form was refused before."""
