"""OAuth on the wire: the values of a token response that servers write in several ways."""

from __future__ import annotations

import pytest

from onym.net.oauth import parse_error_code, parse_scope, parse_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (3600, 3600.0), (0.5, 0.5), ("3600", 3600.0), ("0", None), (0, None), (-1, None), (1e10, None),
        ("1e3", None), ("3600 ", None), ("9" * 10, None), (True, None), (None, None), ([3600], None),
    ],
)  # fmt: skip
def test_seconds_are_a_number_greater_than_zero_or_its_digits(value: object, seconds: float | None) -> None:
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        ("read", {"read"}), ("read write", {"read", "write"}), ("", set()), ("read  write", None),
        (" read", None), ('re"ad', None), ("r\u00e9ad", None), (["read"], None), (None, None),
        (" ".join(f"s{number}" for number in range(129)), None),
    ],
)  # fmt: skip
def test_a_scope_is_words_between_single_spaces(scope: object, scopes: set[str] | None) -> None:
    assert parse_scope(scope) == (None if scopes is None else frozenset(scopes))


@pytest.mark.parametrize(
    ("code", "shown"),
    [("invalid_grant", "invalid_grant"), ("a b", None), ("<script>", None), ("a" * 65, None), (7, None)],
)
def test_only_what_looks_like_an_error_code_is_shown(code: object, shown: str | None) -> None:
    assert parse_error_code(code) == shown
