"""Failures of the Responses dialect, told by status and typed fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from json_support import octets
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    ContextLengthError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, openai_responses
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
AT = Exchange(endpoint="llm://api.openai.com/gpt-5", secrets=(Secret(KEY),), now=1_700_000_000.0)


def openai(code: str | None = None, kind: str = "invalid_request_error", param: str | None = None) -> Any:
    return {"error": {"message": "said", "type": kind, "param": param, "code": code}}


CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "wrong key": (401, openai("invalid_api_key"), AuthenticationError),
    "no quota": (429, openai("insufficient_quota", "insufficient_quota"), QuotaError),
    "rate": (429, openai("rate_limit_exceeded", "tokens"), RateLimitError),
    "too long": (400, openai("context_length_exceeded", param="input"), ContextLengthError),
    "no model": (404, openai("model_not_found"), NotFoundError),
    "parameter": (400, openai("unsupported_parameter", param="temperature"), BadRequestError),
    "include": (400, openai(None, param="include"), BadRequestError),
    "an image that cannot be had": (400, openai("failed_to_download_image"), BadRequestError),
    "an image against the policy": (400, openai("image_content_policy_violation"), ContentFilterError),
    "a policy": (400, openai("cyber_policy"), ContentFilterError),
    "overloaded": (503, openai("server_is_overloaded", "service_unavailable_error"), OverloadedError),
    "server": (500, openai(None, "server_error"), ServerError),
    "a page": (502, b"<html>", ServerError),
    "failed, with a status": (500, {"status": "failed", "error": {"code": "slow_down"}}, OverloadedError),
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error"}}, ContextLengthError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_an_answer_outside_2xx_is_typed(status: int, body: Any, kind: type[ProviderError]) -> None:
    error = openai_responses.decode_error(status, Headers([("x-request-id", "r")]), octets(body), AT)
    assert type(error) is kind
    assert (error.status, error.request_id) == (status, "r")


BODIES: dict[str, tuple[Any, type[ProviderError]]] = {
    "a prompt refused": ({"status": "failed", "error": {"code": "invalid_prompt"}}, BadRequestError),
    "an image refused": ({"status": "failed", "error": {"code": "image_too_large"}}, BadRequestError),
    "a tool of the server's": ({"error": {"code": "vector_store_timeout"}}, OverloadedError),
    "a policy": ({"status": "failed", "error": {"code": "bio_policy"}}, ContentFilterError),
    "a code that is new": ({"status": "failed", "error": {"code": "news"}}, ServerError),
    "an error record": ({"type": "error", "code": "rate_limit_exceeded", "message": "m"}, RateLimitError),
    "vllm's": ({"object": "error", "type": "BadRequestError", "message": "m"}, BadRequestError),
}


@pytest.mark.parametrize(("body", "kind"), BODIES.values(), ids=BODIES.keys())
def test_a_failure_with_status_200_is_typed(body: Any, kind: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        openai_responses.decode_chat(200, Headers(), json.dumps(body).encode(), AT)
    assert type(caught.value) is kind


def test_what_a_server_says_comes_back_without_the_key() -> None:
    data = json.dumps({"error": {"message": f"no such key {KEY}", "code": KEY, "param": KEY}}).encode()
    error = openai_responses.decode_error(401, Headers(), data, AT)
    assert KEY not in repr((str(error), error.provider_code, error.parameter))


def test_a_host_that_speaks_something_else_is_said_to() -> None:
    with pytest.raises(MalformedResponseError) as caught:
        openai_responses.decode_chat(200, Headers(), b"{}", AT)
    assert "Responses API" in str(caught.value.hint)
