"""Session IDs and API tokens."""

from __future__ import annotations

import pytest

from onym.accounts.records import hash_secret, is_session_id, is_token, make_id, make_session_id, make_token

TOKEN_PREFIX = "onym_reg_"


def test_tokens_and_sessions_are_random_and_have_their_form() -> None:
    one, two = make_token(TOKEN_PREFIX), make_token(TOKEN_PREFIX)
    assert one != two
    assert one.reveal().startswith(TOKEN_PREFIX)
    assert is_token(one.reveal(), TOKEN_PREFIX)
    assert not is_token(one.reveal(), "onym_gw_")
    assert is_session_id(make_session_id().reveal())
    assert len(hash_secret(one)) == 64
    assert hash_secret(one) != hash_secret(two)
    assert one.reveal() not in hash_secret(one)
    assert make_id("user") != make_id("user")


@pytest.mark.parametrize(
    "text",
    ["", "onym_reg_", "onym_reg_" + "A" * 42, "onym_reg_" + "A" * 44, "onym_reg_" + "A" * 43 + "\n", "x"],
)
def test_what_is_no_token_is_told_apart(text: str) -> None:
    assert not is_token(text, TOKEN_PREFIX)
