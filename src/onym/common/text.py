"""Text for people and databases: nothing unprintable reaches a terminal, and timestamps sort as time does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeGuard


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


def to_single_line(text: str, limit: int | None = None) -> str:
    """`text` as one printable line: runs of blanks, line ends and control characters become one space."""
    line = " ".join(replace_unprintable(text).split())
    return line if limit is None else shorten_text(line, limit)


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
