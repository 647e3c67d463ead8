"""Failures of the Anthropic Messages dialect: one case for each body that real servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from json_support import octets, visible
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContextLengthError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, anthropic_messages
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
AT = Exchange(endpoint="llm://api.anthropic.com/claude", secrets=(Secret(KEY),), now=1_700_000_000.0)


def said(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "said", **more}, "request_id": "req_1"}


def error(status: int, body: Any = None, headers: Any = (), *, at: Exchange = AT) -> ProviderError:
    return anthropic_messages.decode_error(status, Headers(headers), octets(body), at)


def spent(code: str) -> dict[str, Any]:
    return {"details": {"error_code": code}}


CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "key": (401, said("authentication_error"), AuthenticationError),
    "billing": (402, said("billing_error"), QuotaError),
    "billing with another status": (400, said("billing_error"), QuotaError),
    "permission": (403, said("permission_error"), PermissionDeniedError),
    "no model": (404, said("not_found_error"), NotFoundError),
    "too large": (413, said("request_too_large"), BadRequestError),
    "rate": (429, said("rate_limit_error"), RateLimitError),
    "spend limit": (429, said("rate_limit_error", **spent("enforced_spend_limit_reached")), QuotaError),
    "contract": (429, said("rate_limit_error", **spent("contract_spend_limit_reached")), QuotaError),
    "ramp": (429, said("rate_limit_error", **spent("ramp_limit_exceeded")), RateLimitError),
    "on hold": (400, said("invalid_request_error", **spent("organization_on_hold")), PermissionDeniedError),
    "server": (500, said("api_error"), ServerError),
    "slow": (504, said("timeout_error"), ServerError),
    "overloaded": (529, said("overloaded_error"), OverloadedError),
    "overloaded with another status": (503, said("overloaded_error"), OverloadedError),
    "request": (400, said("invalid_request_error"), BadRequestError),
    "details that are no object": (400, said("invalid_request_error", details=[1]), BadRequestError),
    "llama.cpp": (400, {"error": {"code": 400, "message": "m", "type": "x"}}, BadRequestError),
    "llama.cpp: a prompt that does not fit": (
        400,
        {"error": {"code": 400, "message": "m", "type": "exceed_context_size_error", "n_ctx": 4096}},
        ContextLengthError,
    ),
    "litellm: key": (
        401,
        {"error": {"message": "m", "type": "auth_error", "code": "401"}},
        AuthenticationError,
    ),
    "litellm: no model": (400, {"detail": {"code": "not_found_error"}}, NotFoundError),
    "vertex": (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, RateLimitError),
    "bedrock": (403, {"message": "not authorized"}, PermissionDeniedError),
    "fastapi": (404, {"detail": "Not Found"}, NotFoundError),
    "fastapi: list": (422, {"detail": [{"msg": "m"}]}, BadRequestError),
    "text": (401, {"error": "Unauthorized"}, AuthenticationError),
    "a list": (400, [], BadRequestError),
    "no body": (400, b"", BadRequestError),
    "html": (502, b"<html>", ServerError),
    "an error that is a number": (400, {"error": 5}, BadRequestError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_a_failure_is_told_by_its_status_and_its_typed_code(
    status: int, body: Any, kind: type[ProviderError]
) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert (found.status, found.endpoint) == (status, AT.endpoint)


@pytest.mark.parametrize(
    "text", ["prompt is too long: 9 tokens > 4 maximum", "Your credit balance is too low", "Overloaded"]
)
def test_what_a_message_says_in_prose_decides_nothing(text: str) -> None:
    assert type(error(400, {"error": {"type": "invalid_request_error", "message": text}})) is BadRequestError


def test_an_error_names_code_request_and_when_to_come_back() -> None:
    found = error(429, said("rate_limit_error"), [("request-id", "req_1"), ("retry-after", "7")])
    assert (found.provider_code, found.request_id, found.retry_after) == ("rate_limit_error", "req_1", 7.0)
    assert found.message.endswith(": said")


def test_the_cause_is_the_code_where_the_server_names_it() -> None:
    found = error(429, said("rate_limit_error", **spent("ramp_limit_exceeded")))
    assert found.provider_code == "ramp_limit_exceeded"


def test_a_body_that_only_says_that_it_is_an_error_has_no_code() -> None:
    assert error(400, {"type": "error", "message": "m"}).provider_code is None


@pytest.mark.requirement("onym-secret-a", "llm-10.1-b")
def test_a_key_that_the_server_echoes_is_not_in_the_error() -> None:
    body = {"error": {"type": f"bad_{KEY}", "message": f"invalid x-api-key {KEY}"}}
    found = error(401, body, [("request-id", KEY)])
    assert KEY not in visible(found)
    assert "invalid x-api-key" in found.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (said("overloaded_error"), OverloadedError),
        (said("invalid_request_error"), BadRequestError),
        (said("request_too_large"), BadRequestError),
        (said("timeout_error"), ServerError),
        (said("api_error"), ServerError),
        (said("never seen"), ServerError),
        ({"type": "error"}, ServerError),
        ({"error": {"code": 429}}, RateLimitError),
        ({"error": "out of order"}, ServerError),
    ],
)
def test_inside_a_success_the_body_alone_says_what_failed(body: Any, kind: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        anthropic_messages.decode_chat(200, Headers(), json.dumps(body).encode(), AT)
    assert type(caught.value) is kind
