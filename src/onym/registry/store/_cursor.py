"""Cursors: where the next page begins, opaque to whoever carries them, and checked when they come back.

A cursor is bound to the list and filters that it was made for. It holds no secret and is not signed: what
it holds is compared with, in the query, and nothing else.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, TypeVar

from onym.errors import RegistryError
from onym.registry.store._rows import storable

__all__ = ["MAX_LIMIT", "checked_limit", "read_cursor", "write_cursor"]

#: items on one page, at most
MAX_LIMIT: Final = 1000
_MAX_CURSOR: Final = 1024
_Key = TypeVar("_Key", int, str)


def write_cursor(filters: tuple[object, ...], key: int | str) -> str:
    """The cursor of the page after the item of that key."""
    octets = json.dumps([_mark(filters), key], ensure_ascii=False, separators=(",", ":")).encode()
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def read_cursor(cursor: str, filters: tuple[object, ...], kind: type[_Key]) -> _Key:
    """The key in a cursor. Raises RegistryError (registry.bad-cursor, field "after")."""
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError
        octets = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        mark, key = json.loads(octets)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _bad() from None
    if mark != _mark(filters) or type(key) is not kind or not _usable(key):
        raise _bad()
    found: _Key = key
    return found


def checked_limit(limit: int) -> int:
    """The limit itself. Raises RegistryError (registry.bad-limit) outside 1 to `MAX_LIMIT`."""
    if not 1 <= limit <= MAX_LIMIT:
        raise RegistryError(
            "that many items are not on one page",
            code="registry.bad-limit",
            field="limit",
            hint=f"1 to {MAX_LIMIT}",
        )
    return limit


def _usable(key: int | str) -> bool:
    return storable(key) if isinstance(key, str) else 0 <= key < 1 << 62


def _mark(filters: tuple[object, ...]) -> str:
    text = json.dumps([None if each is None else str(each) for each in filters])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _bad() -> RegistryError:
    return RegistryError(
        "not a cursor of this list",
        code="registry.bad-cursor",
        field="after",
        hint="take it from `next` of the page before, with the same filters, or leave it out",
    )
