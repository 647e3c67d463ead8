"""The encodings of tokens and keys, strictly: base64url (RFC 7515 2) and JSON objects."""

from __future__ import annotations

from typing import Any

from onym.common import strict_json
from onym.errors import SignatureError


def decode_base64url(text: str, subject: str) -> bytes:
    """The bytes of base64url. Raises SignatureError `sign.malformed`, which names the subject."""
    try:
        return strict_json.decode_base64url(text)
    except ValueError as error:
        raise SignatureError(f"the {subject} {error}", code="sign.malformed") from None


def parse_json_object(content: bytes, subject: str) -> dict[str, Any]:
    """A JSON object without duplicate members. Raises SignatureError `sign.malformed`."""
    try:
        return strict_json.parse_json_object(content)
    except ValueError as error:
        hint = "check that this is the right file or token"
        raise SignatureError(f"the {subject} {error}", code="sign.malformed", hint=hint) from None
