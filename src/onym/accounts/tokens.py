"""Session IDs and API tokens: random secrets of which the database stores only a digest.

A session ID or token has 32 random bytes, so a plain SHA-256 digest is safe for it.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from secrets import token_bytes
from typing import Final

from onym.uri.secret import Secret

_SECRET_BYTES: Final = 32
_RANDOM: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def make_session_id() -> Secret:
    """Return a session ID: 32 random bytes in base64url."""
    return Secret(_make_random_text())


def is_session_id(text: str) -> bool:
    """Report whether the text has the form of a session ID."""
    return _RANDOM.match(text) is not None


def make_token(prefix: str) -> Secret:
    """Return an API token, to be shown once. `prefix` lets scanners of published code find leaked tokens."""
    return Secret(prefix + _make_random_text())


def is_token(text: str, prefix: str) -> bool:
    """Report whether the text has the form of an API token with this prefix."""
    return text.startswith(prefix) and is_session_id(text.removeprefix(prefix))


def hash_secret(secret: Secret) -> str:
    """Return SHA-256 in lower-case hex: what the database stores of a session ID or token."""
    return hashlib.sha256(secret.reveal().encode("utf-8", "surrogatepass")).hexdigest()


def _make_random_text() -> str:
    return urlsafe_b64encode(token_bytes(_SECRET_BYTES)).rstrip(b"=").decode("ascii")
