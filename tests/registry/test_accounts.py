"""Roles and scopes of accounts in the registry."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onym.accounts.records import ALL_REALMS, Account
from onym.errors import RegistryError
from onym.registry.records import Role, Scope, get_registry_roles, is_administrator, limit_roles, parse_scopes

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def account(**roles: frozenset[str]) -> Account:
    named = {name.replace("_", "-").replace("every", ALL_REALMS): held for name, held in roles.items()}
    return Account(id="u", login="u", name="U", email=None, roles=named, created=NOW)


def test_roles_for_every_registry_count_in_each() -> None:
    found = account(uri_schemes=frozenset({"expert", "unknown"}), every=frozenset({Role.IESG}))
    assert get_registry_roles(found, "uri-schemes") == {Role.EXPERT, Role.IESG}
    assert get_registry_roles(found, "ai-namespaces") == {Role.IESG}


def test_whoever_is_iana_everywhere_administers() -> None:
    assert is_administrator(account(every=frozenset({Role.IANA})))
    assert not is_administrator(account(uri_schemes=frozenset({Role.IANA})))
    assert not is_administrator(account())


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
