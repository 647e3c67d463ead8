"""Failures of the Bedrock Converse dialect: told by the exception's name, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from json_support import octets
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, bedrock_converse
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

AT = Exchange(endpoint="llm://host/m", model="asked", secrets=(Secret("key-0123456789"),))
TAIL = ":http://internal.amazon.com/coral/com.amazon.bedrock/"


def error(status: int, body: Any, *headers: tuple[str, str]) -> ProviderError:
    return bedrock_converse.decode_error(status, Headers(list(headers)), octets(body), AT)


NAMES: list[tuple[int, str, type[ProviderError]]] = [
    (429, "ThrottlingException", RateLimitError),
    (400, "ThrottlingException", RateLimitError),
    (400, "ServiceQuotaExceededException", QuotaError),
    (403, "AccessDeniedException", PermissionDeniedError),
    (403, "UnrecognizedClientException", AuthenticationError),
    (403, "InvalidSignatureException", AuthenticationError),
    (403, "ExpiredTokenException", AuthenticationError),
    (403, "MissingAuthenticationToken", AuthenticationError),
    (403, "MissingAuthenticationTokenException", AuthenticationError),
    (404, "ResourceNotFoundException", NotFoundError),
    (400, "ValidationException", BadRequestError),
    (408, "ModelTimeoutException", OverloadedError),
    (429, "ModelNotReadyException", OverloadedError),
    (503, "ServiceUnavailableException", OverloadedError),
    (424, "ModelErrorException", ServerError),
    (500, "InternalServerException", ServerError),
    (424, "ModelStreamErrorException", ServerError),
]


@as_subtests(("status", "name", "kind"), NAMES)
def test_the_name_decides_in_the_header_and_in_the_body(
    status: int, name: str, kind: type[ProviderError]
) -> None:
    said = {"message": "no"}
    for found in (
        error(status, said, ("x-amzn-errortype", name + TAIL), ("x-amzn-requestid", "r1")),
        error(status, said, ("X-Amzn-ErrorType", name), ("x-amzn-requestid", "r1")),
        error(status, {**said, "__type": f"com.amazon.coral.service#{name}"}, ("x-amzn-requestid", "r1")),
    ):
        assert type(found) is kind
        assert (found.provider_code, found.status, found.request_id) == (name, status, "r1")
        assert found.endpoint == "llm://host/m"
        assert str(found).startswith(found.message)
        assert ": no" in found.message


def test_the_header_goes_before_the_body_and_needs_none() -> None:
    header = ("x-amzn-errortype", "ThrottlingException")
    assert type(error(400, {"__type": "ValidationException"}, header)) is RateLimitError
    for body in (b"", b"<html>", b"[]", b"\xff"):
        assert type(error(400, body, header)) is RateLimitError


def test_the_status_decides_where_no_name_is_known() -> None:
    assert type(error(403, {"Message": "no"})) is PermissionDeniedError
    assert "no" in error(403, {"Message": "no"}).message
    assert type(error(429, {"message": "no", "__type": 5})) is RateLimitError
    assert type(error(418, {"message": 5}, ("x-amzn-errortype", "NewException"))) is BadRequestError
    assert type(error(502, b"<html>key-0123456789</html>", ("content-type", "text/html"))) is ServerError
    assert type(error(400, [])) is BadRequestError
    assert type(error(302, b"")) is MalformedResponseError


def test_an_unknown_operation_is_told_in_a_shape_of_its_own() -> None:
    body = {"Output": {"__type": "com.amazon.coral.service#UnknownOperationException"}, "Version": "1.0"}
    assert type(error(404, body)) is NotFoundError
    with pytest.raises(NotFoundError):
        bedrock_converse.decode_chat(200, Headers(), json.dumps(body).encode(), AT)


def test_a_key_in_the_servers_words_does_not_come_back() -> None:
    found = error(400, {"message": "bad key-0123456789"}, ("x-amzn-errortype", "key-0123456789"))
    assert "key-0123456789" not in str(found)
    assert found.provider_code is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["__type", "message", "Output", "Message", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(anything, st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20))
def test_any_body_and_any_header_are_some_error(body: Any, kind: str | None) -> None:
    found = error(400, body, *([] if kind is None else [("x-amzn-errortype", kind)]))
    assert isinstance(found, ProviderError)
    assert found.status == 400
