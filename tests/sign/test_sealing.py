"""Sealed values open with the secrets, purpose and context that they were sealed with, and with no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import SignatureError
from onym.sign.sealing import MAX_SEALED, TemporarySecrets, open_sealed, seal
from onym.uri.secret import Secret


class Rotated:
    """Secrets that a test changes."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = [Secret(secret) for secret in secrets]

    def list_secrets(self) -> Sequence[Secret]:
        return self.secrets


def code_of(*args: object, **more: object) -> str:
    with pytest.raises(SignatureError) as caught:
        open_sealed(*args, **more)  # type: ignore[arg-type]
    return caught.value.code


@given(st.binary(max_size=300), st.text(max_size=20), st.text(max_size=20))
def test_what_is_sealed_opens_again(data: bytes, context: str, own: str) -> None:
    secrets = TemporarySecrets()
    sealed = seal(secrets, "session", data, context=context, own=Secret(own))
    assert open_sealed(secrets, "session", sealed, context=context, own=Secret(own)) == data


def test_no_other_secret_purpose_context_or_own_secret_opens_it() -> None:
    secrets = TemporarySecrets()
    sealed = seal(secrets, "session", b"token", context="one", own=Secret("cookie"))
    given: dict[str, object] = {"context": "one", "own": Secret("cookie")}
    assert code_of(TemporarySecrets(), "session", sealed, **given) == "sign.bad-seal"
    assert code_of(secrets, "flow", sealed, **given) == "sign.bad-seal"
    assert code_of(secrets, "session", sealed, **{**given, "context": "two"}) == "sign.bad-seal"
    assert code_of(secrets, "session", sealed, **{**given, "own": Secret("other")}) == "sign.bad-seal"
    assert code_of(secrets, "session", sealed, context="one") == "sign.bad-seal"


def test_texts_that_join_to_the_same_bytes_are_different() -> None:
    secrets = TemporarySecrets()
    sealed = seal(secrets, "ab", b"token", context="c")
    assert code_of(secrets, "a", sealed, context="bc") == "sign.bad-seal"


@given(st.data())
def test_a_changed_byte_does_not_open(data: st.DataObject) -> None:
    secrets = TemporarySecrets()
    sealed = bytearray(seal(secrets, "session", b"token"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    assert code_of(secrets, "session", bytes(sealed)) == "sign.bad-seal"


def test_a_cut_value_does_not_open() -> None:
    secrets = TemporarySecrets()
    sealed = seal(secrets, "session", b"token")
    for length in range(len(sealed)):
        assert code_of(secrets, "session", sealed[:length]) == "sign.bad-seal"
    assert code_of(secrets, "session", sealed + b"\0") == "sign.bad-seal"


def test_a_rotated_secret_opens_until_it_is_dropped() -> None:
    old = Rotated("first")
    sealed = seal(old, "session", b"token")
    assert open_sealed(Rotated("second", "first"), "session", sealed) == b"token"
    assert code_of(Rotated("third", "second"), "session", sealed) == "sign.bad-seal"


def test_a_value_has_a_size() -> None:
    secrets = TemporarySecrets()
    assert len(open_sealed(secrets, "x", seal(secrets, "x", bytes(MAX_SEALED)))) == MAX_SEALED
    with pytest.raises(SignatureError) as caught:
        seal(secrets, "x", bytes(MAX_SEALED + 1))
    assert caught.value.code == "sign.too-large"


def test_two_seals_of_one_value_differ_and_show_nothing() -> None:
    secrets = TemporarySecrets()
    first, second = (seal(secrets, "session", b"a planted token") for _ in range(2))
    assert first != second
    assert b"planted" not in first
