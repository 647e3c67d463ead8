"""Content of requests and responses: media types, and JSON that every reader understands alike. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

JSON: Final = "application/json"
#: a stream of events (WHATWG HTML 9.2)
EVENTS: Final = "text/event-stream"
#: the description of a resource (3.6)
DESCRIPTION: Final = "application/aiip+json"
#: RFC 9457 3
PROBLEM: Final = "application/problem+json"

_ENCODER: Final = msgspec.json.Encoder()


def parse_media_type(content_type: str | None) -> str:
    """Return the type and subtype of a Content-Type in lower case; "" without one."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_json(content_type: str | None) -> bool:
    """Report whether this is a media type of JSON (RFC 6839 3.1)."""
    media_type = parse_media_type(content_type)
    return media_type == JSON or media_type.endswith("+json")


def encode_json(value: Any) -> bytes:
    """Encode the value as JSON (RFC 8259 6).

    Raises TypeError, ValueError or RecursionError for a value without a JSON form. msgspec would write NaN
    and infinity as `null`, which is another value.
    """
    body = _ENCODER.encode(value)
    if b"null" in body:  # rare, and much cheaper than to check every number
        require_finite_numbers(msgspec.to_builtins(value, str_keys=True, enc_hook=_ignore_raw))
    return body


def require_finite_numbers(value: Any) -> None:
    """Raise ValueError if a value of plain Python contains NaN or infinity."""
    json.dumps(value, allow_nan=False)


def _ignore_raw(_: Any) -> None:
    """Skip a `msgspec.Raw`, which is JSON already; the encoder has rejected all other unknown types."""
