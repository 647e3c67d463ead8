"""Timestamps as text: ISO 8601 in UTC with a fixed width, so that text sorts as time does."""

from __future__ import annotations

from datetime import UTC, datetime


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
