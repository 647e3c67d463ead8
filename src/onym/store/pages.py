"""Pages of a list: items, the cursor of the next page, and the limits of both.

A cursor marks where the next page begins. It belongs to one list with one set of filters, and is checked
when it comes back. It contains no secret and is not signed: queries only compare with its content.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from onym.errors import RegistryError

#: the largest page
MAX_LIMIT: Final = 1000
_MAX_CURSOR: Final = 1024
_Item = TypeVar("_Item", covariant=True)
_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_Item]):
    """Some items in order; `next` is the cursor of the next page, None at the end."""

    items: tuple[_Item, ...]
    next: str | None = None


def encode_cursor(filters: tuple[object, ...], key: int | str) -> str:
    """Return the cursor of the page after the item with this key."""
    data = json.dumps([_hash_filters(filters), key], ensure_ascii=False, separators=(",", ":")).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_cursor(cursor: str, filters: tuple[object, ...], kind: type[_Key]) -> _Key:
    """Return the key in a cursor. Raises RegistryError (store.bad-cursor, field "after")."""
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError
        data = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        digest, key = json.loads(data)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _make_cursor_error() from None
    if digest != _hash_filters(filters) or type(key) is not kind or not _is_usable_key(key):
        raise _make_cursor_error()
    checked: _Key = key
    return checked


def require_limit(limit: int) -> int:
    """Return the limit. Raises RegistryError (store.bad-limit) unless it is 1 to `MAX_LIMIT`."""
    if not 1 <= limit <= MAX_LIMIT:
        raise RegistryError(
            f"a page cannot have {limit} items",
            code="store.bad-limit",
            field="limit",
            hint=f"Use a limit from 1 to {MAX_LIMIT}.",
        )
    return limit


def is_storable(text: str) -> bool:
    """Report whether every database can store the text.

    PostgreSQL does not store NUL, and UTF-8 cannot encode half of a surrogate pair.
    """
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def replace_unstorable(text: str) -> str:
    """Return the text with a question mark for each character that some database cannot store."""
    return text if is_storable(text) else text.encode("utf-8", "replace").decode().replace("\0", "?")


def _is_usable_key(key: int | str) -> bool:
    return is_storable(key) if isinstance(key, str) else 0 <= key < 1 << 62


def _hash_filters(filters: tuple[object, ...]) -> str:
    text = json.dumps([None if value is None else str(value) for value in filters])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _make_cursor_error() -> RegistryError:
    return RegistryError(
        "the cursor does not belong to this list",
        code="store.bad-cursor",
        field="after",
        hint="Take it from `next` of the previous page, with the same filters, or leave it out.",
    )
