"""Text from outside, safe to print."""

from __future__ import annotations

import pytest

from onym.common.text import (
    escape_unprintable,
    is_printable_text,
    replace_unprintable,
    shorten_text,
    to_single_line,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", True), ("é 中", True), ("", False), ("abcdef", False), ("a\n", False), (1, False), (None, False)],
)
def test_printable_text_of_bounded_length(value: object, expected: bool) -> None:
    assert is_printable_text(value, 5) is expected


def test_what_does_not_print_becomes_an_escape() -> None:
    assert escape_unprintable("plain é") == "plain é"
    assert escape_unprintable("\x1b[1m\u202e\U000e0001") == "\\x1b[1m\\u202e\\U000e0001"


def test_what_does_not_print_is_replaced() -> None:
    assert replace_unprintable("a b") == "a b"
    assert replace_unprintable("a\x07b") == "a b"
    assert replace_unprintable("a\x07b", "?") == "a?b"


def test_a_single_line() -> None:
    assert to_single_line(" two\r\n  lines\t") == "two lines"


def test_a_long_text_is_cut() -> None:
    assert shorten_text("12345", 5) == "12345"
    assert shorten_text("123456", 5) == "1234…"
