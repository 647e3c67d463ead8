"""Text: printable on a terminal, timestamps that sort as time does, strict JSON and base64url.

The strict readers (RFC 8259 4, RFC 7515 2) raise a ValueError with a message such as "is not JSON", which
callers put after the name of the thing that they read.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeGuard


def is_printable_text(value: object, limit: int) -> TypeGuard[str]:
    """Whether `value` is text of 1 to `limit` characters, all of them printable."""
    return isinstance(value, str) and 0 < len(value) <= limit and value.isprintable()


def escape_unprintable(text: str) -> str:
    """`text` with an escape (`\\x1b`, `\\u202e`) for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def replace_unprintable(text: str, replacement: str = " ") -> str:
    """`text` with `replacement` for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else replacement for character in text)


def to_single_line(text: str) -> str:
    """`text` as one printable line: runs of blanks, line ends and control characters become one space."""
    return " ".join(replace_unprintable(text).split())


def shorten_text(text: str, limit: int) -> str:
    """`text` cut to `limit` characters; the last one is then an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_timestamp(value: datetime) -> str:
    """Return `2026-01-02T03:04:05.000006Z`. Raises ValueError for a time without an offset."""
    if value.utcoffset() is None:
        raise ValueError("a time needs an offset from UTC")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_timestamp(text: str) -> datetime:
    """Return the time, in UTC. Raises ValueError for text that is not ISO 8601 with an offset."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("not a time of ISO 8601") from None
    if value.utcoffset() is None:
        raise ValueError("a time needs an offset from UTC")
    return value.astimezone(UTC)


_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*\Z")
_CHARACTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#: the last characters of canonical base64url, by the length of the text modulo 4; no text has the length 1
_LAST: Final[tuple[frozenset[str], ...]] = (
    frozenset(_CHARACTERS) | {""},
    frozenset(),
    frozenset("AQgw"),
    frozenset(_CHARACTERS[::4]),
)
_MAX_DEPTH: Final = 16
_REPEATED: Final = "repeats a member"


def encode_base64url(content: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes:
    """The bytes of base64url without padding, in its one canonical spelling. Raises ValueError."""
    # the unused bits of the last character must be zero (RFC 4648 3.5)
    if _ALPHABET.match(text) and text[-1:] in _LAST[len(text) % 4]:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    raise ValueError("is not base64url")


def parse_json_object(content: bytes, *, max_depth: int = _MAX_DEPTH) -> dict[str, Any]:
    """A JSON object in UTF-8 without duplicate members, NaN or deep nesting. Raises ValueError."""
    value = parse_json_value(content)
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    if not _is_shallow(value, max_depth):
        raise ValueError(f"nests deeper than {max_depth} levels")
    return value


def parse_json_value(content: bytes | str) -> Any:
    """A JSON value, in UTF-8 if it is bytes, without duplicate members or NaN. Raises ValueError."""
    try:
        return _DECODER.decode(content.decode("utf-8") if isinstance(content, bytes) else content)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except RecursionError:
        raise ValueError("nests too deep") from None
    except ValueError as error:
        raise ValueError(_REPEATED if error.args == (_REPEATED,) else "is not JSON") from None


def _require_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(_REPEATED)
    return members


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_require_unique_members, parse_constant=_reject_constant, parse_float=_parse_finite
)


def _is_shallow(value: object, max_depth: int) -> bool:
    layer: list[object] = [value]
    for _ in range(max_depth):
        layer = [child for parent in layer for child in _list_children(parent)]
        if not layer:
            return True
    return False


def _list_children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
