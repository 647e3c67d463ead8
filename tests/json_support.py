"""What tests of answers share: any JSON, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from onym.errors import MalformedResponseError, OnymError, ProviderError, UnsupportedError
from onym.llm.dialects import Dialect, Exchange
from onym.net.messages import Headers

__all__ = [
    "any_json",
    "check_malformed",
    "check_page",
    "check_read_or_refused",
    "check_refused",
    "octets",
    "reads",
    "visible",
]

AT = Exchange(endpoint="llm://host/m", model="asked")
JSON = Headers([("Content-Type", "application/json"), ("X-Request-Id", "req-1")])


def octets(body: Any) -> bytes:
    """Bytes as they are, anything else as JSON."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def any_json(members: Sequence[str], *more: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """JSON of any shape whose objects have these members, with values that mean more among its own."""
    plain = st.none() | st.booleans() | st.integers(-1, 3) | st.integers() | st.text(max_size=5)
    finite = st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.one_of(plain, finite, *more),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(members), inner, max_size=4)
        ),
        max_leaves=12,
    )


def reads(dialect: Dialect, data: bytes) -> tuple[Callable[[], object], ...]:
    """This body with status 200, read in each of the ways in which a dialect reads one."""
    # a format without embeddings has no decoder for them
    embed = getattr(dialect, "decode_embed", None)
    return (
        lambda: dialect.decode_chat(200, JSON, data, AT),
        *([] if embed is None else [lambda: embed(200, JSON, data, AT, count=1)]),
        lambda: dialect.decode_models(200, JSON, data, AT),
        lambda: dialect.decode_model(200, JSON, data, AT),
    )


def check_read_or_refused(dialect: Dialect, data: bytes) -> None:
    """Whatever the body holds, it is an answer or an error of Onym's, and with status 500 an error."""
    for read in reads(dialect, data):
        try:
            read()
        except (ProviderError, UnsupportedError) as error:
            assert error.message  # noqa: PT017 - both outcomes are right, nothing else is
    assert dialect.decode_error(500, JSON, data, AT).message


def check_refused(dialect: Dialect, data: bytes) -> None:
    """This is no completion, and with status 400 it is an error as well."""
    with pytest.raises(OnymError):
        dialect.decode_chat(200, JSON, data, AT)
    assert dialect.decode_error(400, JSON, data, AT).message


def check_malformed(read: Callable[[], object]) -> MalformedResponseError:
    """It is no answer, and the error says whose."""
    with pytest.raises(MalformedResponseError) as caught:
        read()
    error = caught.value
    assert (error.endpoint, error.status, error.request_id) == ("llm://host/m", 200, "req-1")
    return error


def check_page(decode: Callable[[bytes, Headers], object]) -> None:
    """A page that comes with status 200 is called one, and nothing of it is quoted."""
    page = Headers([("content-type", "text/html; charset=utf-8")])
    with pytest.raises(MalformedResponseError, match="HTML") as caught:
        decode(b"<html>sk-secret-in-page</html>", page)
    assert "sk-secret" not in str(caught.value)


def visible(error: ProviderError) -> str:
    """All that an error shows of itself."""
    return repr(error) + str(error) + json.dumps(error.as_dict())
