"""Passwords: hashes, weak ones, and the same work for every login."""

from __future__ import annotations

import pytest

from onym.accounts import sign_in
from onym.accounts.sign_in import MAX_PASSWORD, hash_password, validate_password, verify_password
from onym.errors import RegistryError
from onym.uri.secret import Secret


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
    assert "m=65536,t=3,p=4" in sign_in._get_dummy_hash().reveal()


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
    assert (caught.value.code, caught.value.field) == ("accounts.weak-password", "password")
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
