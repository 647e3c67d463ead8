"""Accounts and tokens: roles, and what people may enter."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.accounts.records import (
    ALL_REALMS,
    Account,
    ApiToken,
    validate_email,
    validate_label,
    validate_login,
    validate_name,
)
from onym.errors import RegistryError
from support import as_subtests

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DAY = timedelta(days=1)


def test_roles_in_every_realm_are_roles_in_each() -> None:
    roles = {"here": frozenset({"editor"}), ALL_REALMS: frozenset({"reader"})}
    person = Account(id="u", login="u", name="U", email=None, roles=roles, created=NOW)
    assert person.get_roles("here") == {"editor", "reader"}
    assert person.get_roles("elsewhere") == {"reader"}


def test_a_token_is_live_until_it_expires_or_is_revoked() -> None:
    token = ApiToken(
        id="t", digest="", account="u", label="ci", scopes=frozenset(), created=NOW, expires=NOW + DAY
    )
    assert token.is_live(NOW)
    assert not token.is_live(NOW + DAY)
    assert replace(token, expires=None).is_live(NOW + DAY)
    assert not replace(token, revoked=NOW).is_live(NOW)


def test_a_label_is_one_line_of_printable_characters() -> None:
    assert validate_label("  my \n ci ") == "my ci"
    for text in ("", " ", "x" * 101, "a\x00b"):
        with pytest.raises(RegistryError) as caught:
            validate_label(text)
        assert (caught.value.code, caught.value.field) == ("accounts.bad-label", "label")


def test_logins_are_lower_case() -> None:
    assert validate_login(" Alice.B@example.org ") == "alice.b@example.org"


@as_subtests("text", ["", " ", ".a", "a b", "ä", "a" * 65, "a/b", "a\n", "-a", "\u0130"])
def test_a_login_that_is_none_is_refused(text: str) -> None:
    if text.strip() == "a":
        assert validate_login(text) == "a"
        return
    with pytest.raises(RegistryError) as caught:
        validate_login(text)
    assert caught.value.field == "login"


def test_names_are_one_line() -> None:
    assert validate_name("  Ann \n  Example ") == "Ann Example"
    assert validate_name("e\u0301") == "é"


@pytest.mark.parametrize("text", ["", " ", "x" * 201, "a\x00b", "a\u202eb", "a\u200bb"])
def test_a_name_that_hides_something_is_refused(text: str) -> None:
    with pytest.raises(RegistryError) as caught:
        validate_name(text)
    assert caught.value.field == "name"


@pytest.mark.parametrize("text", ["a@b", "first.last+tag@sub.example.org", "o'brien@example.org"])
def test_addresses_are_taken(text: str) -> None:
    assert validate_email(f" {text} ") == text


@as_subtests(
    "text",
    [
        "",
        "a",
        "a@",
        "@b",
        "a@b@c",
        "a b@c",
        '"a"@b',
        "a@[127.0.0.1]",
        "a@-b",
        "a@b-",
        "a..b@c",
        "a@b..c",
        "a@b\r\nBcc: c@d",
        "ä@b",
        "a" * 250 + "@b.cd",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RegistryError) as caught:
        validate_email(text)
    assert caught.value.field == "email"


@given(st.text(max_size=100))
def test_no_address_holds_a_line_end_or_a_comma(text: str) -> None:
    try:
        found = validate_email(text)
    except RegistryError:
        return
    assert not set(found) & set("\r\n,<>; ")
