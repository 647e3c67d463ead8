"""Failures, told by status and typed fields: one case for each body that real servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from json_support import octets, visible
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    ContextLengthError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, openai_chat
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
AT = Exchange(endpoint="llm://api.openai.com/gpt-5", secrets=(Secret(KEY),), now=1_700_000_000.0)


def error(status: int, body: Any = None, headers: Any = (), *, at: Exchange = AT) -> ProviderError:
    return openai_chat.decode_error(status, Headers(headers), octets(body), at)


def openai(
    code: str | None = None, kind: str | None = "invalid_request_error", param: str | None = None
) -> Any:
    return {"error": {"message": "said", "type": kind, "param": param, "code": code}}


FILTERED = {
    "error": {
        "message": "filtered",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {}}},
    }
}
LLAMA_LONG = {
    "error": {
        "code": 400,
        "message": "too long",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9,
        "n_ctx": 4,
    }
}
VLLM_LONG = {"error": {"message": "m", "type": "BadRequestError", "param": "input_tokens", "code": 400}}
FASTAPI = {"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]}

CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "openai: wrong key": (401, openai("invalid_api_key"), AuthenticationError),
    "openai: deactivated": (401, openai("account_deactivated"), PermissionDeniedError),
    "openai: country": (403, openai("unsupported_country_region_territory"), PermissionDeniedError),
    "openai: no quota": (429, openai("insufficient_quota", "insufficient_quota"), QuotaError),
    "openai: rate": (429, openai("rate_limit_exceeded", "tokens"), RateLimitError),
    "openai: rate, type alone": (429, openai(None, "requests"), RateLimitError),
    "openai: too long": (400, openai("context_length_exceeded", param="messages"), ContextLengthError),
    "openai: no model": (404, openai("model_not_found"), NotFoundError),
    "openai: parameter": (400, openai("unsupported_parameter", param="temperature"), BadRequestError),
    "openai: policy": (400, openai("content_policy_violation"), ContentFilterError),
    "openai: server": (500, openai(None, "server_error"), ServerError),
    "openai: overloaded": (503, openai(None, "server_error"), OverloadedError),
    "azure: filter": (400, FILTERED, ContentFilterError),
    "azure: filter, inner code": (
        400,
        {"error": {"message": "m", "code": None, "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        ContentFilterError,
    ),
    "azure: deployment": (404, {"error": {"code": "DeploymentNotFound", "message": "m"}}, NotFoundError),
    "azure: gateway": (401, {"statusCode": 401, "message": "Access denied"}, AuthenticationError),
    "azure: number as text": (429, {"error": {"code": "429", "message": "m"}}, RateLimitError),
    "llama.cpp: too long": (400, LLAMA_LONG, ContextLengthError),
    "llama.cpp: no embeddings": (
        501,
        {"error": {"code": 501, "message": "m", "type": "not_supported_error"}},
        BadRequestError,
    ),
    "llama.cpp: key": (401, {"error": {"code": 401, "type": "authentication_error"}}, AuthenticationError),
    "llama.cpp: loading": (503, {"error": {"code": 503, "type": "unavailable_error"}}, OverloadedError),
    "vllm: too long": (400, VLLM_LONG, ContextLengthError),
    "vllm: no model": (404, {"error": {"type": "NotFoundError", "code": 404}}, NotFoundError),
    "vllm: flat": (
        400,
        {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
        BadRequestError,
    ),
    "vllm: key": (401, {"error": "Unauthorized"}, AuthenticationError),
    "litellm: key": (401, {"error": {"type": "auth_error", "code": "401"}}, AuthenticationError),
    "litellm: budget": (400, {"error": {"type": "budget_exceeded", "code": "400"}}, QuotaError),
    "litellm: model": (400, {"error": {"type": "invalid_request_error", "code": "400"}}, BadRequestError),
    "fastapi: text": (404, {"detail": "Not Found"}, NotFoundError),
    "fastapi: record": (422, {"detail": {"code": "model_not_found"}}, NotFoundError),
    "fastapi: list": (422, FASTAPI, BadRequestError),
    "fastapi: nothing": (422, {"detail": []}, BadRequestError),
    "fastapi: number": (422, {"detail": 5}, BadRequestError),
    "google: list": (
        400,
        [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "m"}}],
        BadRequestError,
    ),
    "tgi": (422, {"error": "m", "error_type": "validation"}, BadRequestError),
    "moonshot": (429, {"error": {"type": "exceeded_current_quota_error"}}, QuotaError),
    "anthropic behind a proxy": (529, {"error": {"type": "overloaded_error"}}, OverloadedError),
    "no credit": (402, {}, QuotaError),
    "request timeout": (408, b"", OverloadedError),
    "conflict": (409, {}, OverloadedError),
    "too large": (413, b"", BadRequestError),
    "no capacity": (498, {}, OverloadedError),
    "teapot": (418, {}, BadRequestError),
    "bad gateway": (502, b"<html>", ServerError),
    "a status that nobody uses": (777, {}, MalformedResponseError),
    "no body": (400, b"", BadRequestError),
    "null": (400, None, BadRequestError),
    "an empty list": (400, [], BadRequestError),
    "a text": (400, "no", BadRequestError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_a_failure_is_told_by_its_status_and_its_typed_code(
    status: int, body: Any, kind: type[ProviderError]
) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert found.status == status
    assert found.endpoint == AT.endpoint
    assert f"HTTP {status}" in found.message


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached",
        "This model's maximum context length is 8192 tokens",
        "Incorrect API key",
        "safety",
    ],
)
def test_what_a_message_says_in_prose_decides_nothing(text: str) -> None:
    assert type(error(400, {"error": {"message": text}})) is BadRequestError


def test_an_error_names_parameter_code_and_request() -> None:
    found = error(400, openai("unsupported_parameter", param="temperature"), [("x-request-id", "r-1")])
    assert (found.parameter, found.provider_code, found.request_id) == (
        "temperature",
        "unsupported_parameter",
        "r-1",
    )
    assert found.message.endswith(": said")


def test_a_type_is_the_code_where_there_is_no_other() -> None:
    assert error(400, LLAMA_LONG).provider_code == "exceed_context_size_error"
    assert error(429, {"error": {"code": "429"}}).provider_code is None


def test_fastapi_names_the_field() -> None:
    found = error(422, FASTAPI)
    assert found.parameter == "messages"
    assert "Field required" in found.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("Retry-After", "7")], 7.0),
        ([("retry-after-ms", "250"), ("retry-after", "7")], 0.25),
        ([("Retry-After", "Tue, 14 Nov 2023 22:13:30 GMT")], 10.0),
        ([("Retry-After", "soon")], None),
        ([], None),
    ],
)
def test_retry_after_is_seconds(headers: list[tuple[str, str]], seconds: float | None) -> None:
    assert error(429, openai(), headers).retry_after == seconds


def test_without_a_date_of_our_own_a_date_in_retry_after_counts_as_past() -> None:
    dated = [("Retry-After", "Tue, 14 Nov 2023 22:13:30 GMT")]
    assert error(429, openai(), dated, at=Exchange()).retry_after == 0.0


@pytest.mark.requirement("onym-secret-a", "llm-10.1-b")
def test_a_key_that_the_server_echoes_is_not_in_the_error() -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": f"bad_{KEY}", "param": KEY}}
    echo = [("x-request-id", KEY)]
    found = error(401, body, echo)
    assert KEY not in visible(found)
    assert "Incorrect API key provided" in found.message


@pytest.mark.requirement("onym-secret-a")
def test_a_key_of_no_known_shape_is_not_in_the_error_either() -> None:
    at = Exchange(secrets=(Secret("plain-old-password"),))
    assert "plain-old-password" not in error(401, {"error": "no plain-old-password"}, at=at).message


def test_a_message_cannot_steer_a_terminal_and_is_cut() -> None:
    found = error(400, {"error": {"message": "a\x1b[2J\r\nb\u202ec" + "x" * 5000}})
    assert found.message.isprintable()
    assert len(found.message) < 700


def test_a_page_is_called_one_and_not_quoted() -> None:
    found = error(502, b"<html>secret page</html>", [("content-type", "text/html")])
    assert "HTML" in found.message
    assert "secret page" not in found.message


def test_names_that_are_not_fit_to_print_are_left_out() -> None:
    found = error(
        400, {"error": {"message": "m", "code": "a\nb", "param": "x" * 300}}, [("x-request-id", "")]
    )
    assert (found.provider_code, found.parameter, found.request_id) == (None, None, None)


@as_subtests(
    ("body", "kind"),
    [
        ({"error": {"code": 429, "message": "m"}}, RateLimitError),
        ({"error": {"code": "402", "message": "m"}}, QuotaError),
        ({"error": {"code": "context_length_exceeded"}}, ContextLengthError),
        ({"error": {"type": "invalid_request_error"}}, BadRequestError),
        ({"error": {"type": "InternalServerError"}}, ServerError),
        ({"error": {"type": "never seen"}}, ServerError),
        ({"error": "out of order"}, ServerError),
        ({"error": {"code": 200}}, ServerError),
        ({"error": [1]}, ServerError),
        ({"object": "error", "code": 400, "message": "m"}, BadRequestError),
    ],
)
def test_inside_a_success_the_body_alone_says_what_failed(body: Any, kind: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        openai_chat.decode_chat(200, Headers(), json.dumps(body).encode(), AT)
    assert type(caught.value) is kind
