"""What the readers of this package have in common: caps, and the errors that say where and how to fix."""

from __future__ import annotations

from onym.errors import SnapshotError
from onym.registry.iana._types import MAX_BYTES, MAX_FIELD, MAX_ROWS

__all__ = ["bad", "check_rows", "check_size", "decoded", "field_fits"]


def bad(
    message: str, code: str, *, line: int | None = None, field: str | None = None, hint: str | None = None
) -> SnapshotError:
    """The error for a file that cannot be imported."""
    return SnapshotError(message, code=f"registry.{code}", line=line, field=field, hint=hint)


def check_size(data: bytes, limit: int = MAX_BYTES) -> None:
    """Refuse a file beyond the cap before anything reads it."""
    if len(data) > limit:
        raise bad(f"{len(data)} octets, and at most {limit} are read", "snapshot-too-large")


def check_rows(count: int) -> None:
    """Refuse a file with too many rows."""
    if count > MAX_ROWS:
        raise bad(f"more than {MAX_ROWS} rows", "snapshot-too-large")


def field_fits(value: str, column: str, line: int | None) -> str:
    """The value, if it is not beyond the cap."""
    if len(value) > MAX_FIELD:
        raise bad(f"more than {MAX_FIELD} characters", "snapshot-too-large", field=column, line=line)
    return value


def decoded(data: bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise bad(
            "not UTF-8", "not-utf8", line=line, hint="convert it, for instance: iconv -t utf-8"
        ) from error
