"""Accounts, tokens and passwords."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import RegistryError
from onym.registry import accounts
from onym.registry.accounts import (
    ALL_REGISTRIES,
    MAX_PASSWORD,
    TOKEN_PREFIX,
    Account,
    Scope,
    hash_password,
    hash_secret,
    is_api_token,
    limit_roles,
    make_id,
    make_session_id,
    make_token,
    parse_scopes,
    validate_email,
    validate_login,
    validate_name,
    validate_password,
    verify_password,
)
from onym.registry.records import Role
from onym.uri.secret import Secret
from support import as_subtests

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def account(**roles: frozenset[Role]) -> Account:
    named = {name.replace("_", "-").replace("every", ALL_REGISTRIES): held for name, held in roles.items()}
    return Account(id="u", login="u", name="U", email=None, roles=named, created=NOW)


def test_roles_for_every_registry_count_in_each() -> None:
    found = account(uri_schemes=frozenset({Role.EXPERT}), every=frozenset({Role.IESG}))
    assert found.get_roles("uri-schemes") == {Role.EXPERT, Role.IESG}
    assert found.get_roles("ai-namespaces") == {Role.IESG}


def test_whoever_is_iana_everywhere_administers() -> None:
    assert account(every=frozenset({Role.IANA})).is_administrator
    assert not account(uri_schemes=frozenset({Role.IANA})).is_administrator
    assert not account().is_administrator


def test_a_password_fits_its_hash_and_no_other() -> None:
    stored = hash_password(Secret("four unrelated words"))
    assert stored.reveal().startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    found = verify_password(stored, Secret("four unrelated words"))
    assert (found.ok, found.rehash) == (True, None)
    assert not verify_password(stored, Secret("four unrelated word")).ok
    assert stored != hash_password(Secret("four unrelated words"))
    assert "four" not in repr(stored)


def test_the_same_password_typed_otherwise_fits() -> None:
    stored = hash_password(Secret("pa\u0308sswort mit Raum"))
    assert verify_password(stored, Secret("p\u00e4sswort\u00a0mit Raum")).ok


@pytest.mark.parametrize("stored", [None, Secret("x"), Secret("$argon2id$broken"), Secret("")])
def test_without_a_usable_hash_nothing_fits(stored: Secret | None) -> None:
    assert not verify_password(stored, Secret("four unrelated words")).ok


def test_too_long_a_password_never_fits_and_is_not_cut() -> None:
    stored = hash_password(Secret("x" * MAX_PASSWORD))
    assert verify_password(stored, Secret("x" * MAX_PASSWORD)).ok
    assert not verify_password(stored, Secret("x" * (MAX_PASSWORD + 1))).ok


def test_the_dummy_costs_what_a_hash_costs() -> None:
    assert "m=65536,t=3,p=4" in accounts._get_dummy_hash().reveal()


def test_an_outdated_hash_is_made_anew() -> None:
    from argon2 import PasswordHasher

    weak = Secret(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("four unrelated words"))
    found = verify_password(weak, Secret("four unrelated words"))
    assert found.ok
    assert found.rehash is not None
    assert verify_password(found.rehash, Secret("four unrelated words")).rehash is None


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "x" * 1025,
        "password1234",
        "PassWord1234",
        "aaaaaaaaaaaaaa",
        "abababababab",
        "alice-example",
        "Alice Example",
        "alice-example1",
    ],
)
def test_a_weak_password_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(RegistryError) as caught:
        validate_password(Secret(text), login="alice-example", name="Alice Example")
    assert caught.value.field == "password"
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "four unrelated words",
        "Ünïcödé-pässwörd",
        "😀😃😄😁 twelve or so",
        "x7!kQ9$mZ2@w",
        "x" * 3 + "abcdefgh9",
    ],
)
def test_a_good_password_is_taken(text: str) -> None:
    validate_password(Secret(text), login="alice")


def test_tokens_and_sessions_are_random_and_have_their_form() -> None:
    one, two = make_token(), make_token()
    assert one != two
    assert one.reveal().startswith(TOKEN_PREFIX)
    assert is_api_token(one.reveal())
    assert len(make_session_id().reveal()) == 43
    assert len(hash_secret(one)) == 64
    assert hash_secret(one) != hash_secret(two)
    assert one.reveal() not in hash_secret(one)
    assert make_id("user") != make_id("user")


@pytest.mark.parametrize(
    "text",
    ["", "onym_reg_", "onym_reg_" + "A" * 42, "onym_reg_" + "A" * 44, "onym_reg_" + "A" * 43 + "\n", "x"],
)
def test_what_is_no_token_is_told_apart(text: str) -> None:
    assert not is_api_token(text)


def test_scopes_open_the_way_to_roles_that_are_held() -> None:
    held = frozenset({Role.EXPERT, Role.REGISTRANT})
    assert limit_roles(held, ["review"]) == {Role.EXPERT}
    assert limit_roles(held, ["iana", "iesg", "admin", "read"]) == frozenset()
    assert limit_roles(held, list(Scope)) == held


@pytest.mark.parametrize("words", [[], ["root"], ["read", "root"], [""]])
def test_scopes_that_do_not_exist_are_refused(words: list[str]) -> None:
    with pytest.raises(RegistryError) as caught:
        parse_scopes(words)
    assert caught.value.field == "scopes"
    assert parse_scopes(["read", "read"]) == {"read"}


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
