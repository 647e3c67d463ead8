"""Timestamps: one width, in UTC, and text that sorts as time does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.common.text import format_timestamp, parse_timestamp

NOON = datetime(2026, 1, 2, 12, 0, 0, 5, tzinfo=UTC)
TIMES = st.datetimes(timezones=st.just(UTC))


def test_a_time_of_any_zone_is_written_in_utc() -> None:
    assert format_timestamp(NOON) == "2026-01-02T12:00:00.000005Z"
    assert format_timestamp(NOON.astimezone(timezone(timedelta(hours=5)))) == "2026-01-02T12:00:00.000005Z"
    assert parse_timestamp("2026-01-02T14:00:00.000005+02:00") == NOON
    assert parse_timestamp("2026-01-02T14:00:00.000005+02:00").tzinfo is UTC


@given(TIMES, TIMES)
def test_text_sorts_as_time_does_and_reads_back(one: datetime, other: datetime) -> None:
    assert parse_timestamp(format_timestamp(one)) == one
    assert (format_timestamp(one) < format_timestamp(other)) == (one < other)


@pytest.mark.parametrize("text", ["", "noon", "2026-01-02T12:00:00", "2026-13-02T12:00:00Z"])
def test_text_that_is_not_a_time_with_an_offset_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_timestamp(text)


def test_a_time_without_an_offset_is_not_written() -> None:
    with pytest.raises(ValueError, match="offset"):
        format_timestamp(NOON.replace(tzinfo=None))
