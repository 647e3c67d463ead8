"""Failures of the Gemini dialect, told by status and typed fields: bodies that real servers send."""

from __future__ import annotations

from typing import Any

from json_support import octets
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
from onym.llm.dialects import Exchange, gemini
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "AIzaSyTESTTESTTESTTESTTESTTESTTESTTEST0"
AT = Exchange(endpoint="llm://host/gemini", secrets=(Secret(KEY),), now=1_700_000_000.0)


def error(status: int, body: Any = None, headers: Any = (), *, at: Exchange = AT) -> ProviderError:
    return gemini.decode_error(status, Headers(headers), octets(body), at)


def google(code: int, status: str, *details: Any) -> Any:
    said: dict[str, Any] = {"code": code, "message": "said", "status": status}
    return {"error": {**said, "details": list(details)} if details else said}


def detail(kind: str, **members: Any) -> Any:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **members}


def info(reason: str) -> Any:
    return detail("ErrorInfo", reason=reason, domain="googleapis.com", metadata={"service": "x"})


QUOTA = detail("QuotaFailure", violations=[{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}])
HELP = detail("Help", links=[{"description": "Learn more", "url": "https://ai.google.dev"}])

CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "key invalid": (400, google(400, "INVALID_ARGUMENT", info("API_KEY_INVALID")), AuthenticationError),
    "no key": (401, google(401, "UNAUTHENTICATED", info("CREDENTIALS_MISSING")), AuthenticationError),
    "token expired": (401, google(401, "UNAUTHENTICATED", info("ACCESS_TOKEN_EXPIRED")), AuthenticationError),
    "unauthenticated": (401, google(401, "UNAUTHENTICATED"), AuthenticationError),
    "denied": (403, google(403, "PERMISSION_DENIED", info("IAM_PERMISSION_DENIED")), PermissionDeniedError),
    "service off": (403, google(403, "PERMISSION_DENIED", info("SERVICE_DISABLED")), PermissionDeniedError),
    "key bound": (
        403,
        google(403, "PERMISSION_DENIED", info("API_KEY_SERVICE_BLOCKED")),
        PermissionDeniedError,
    ),
    "billing": (403, google(403, "PERMISSION_DENIED", info("BILLING_DISABLED")), QuotaError),
    "no model": (404, google(404, "NOT_FOUND"), NotFoundError),
    "rate": (429, google(429, "RESOURCE_EXHAUSTED"), RateLimitError),
    "rate, reason": (429, google(429, "RESOURCE_EXHAUSTED", info("RATE_LIMIT_EXCEEDED")), RateLimitError),
    "quota of the day": (429, google(429, "RESOURCE_EXHAUSTED", HELP, QUOTA), RateLimitError),
    "argument": (400, google(400, "INVALID_ARGUMENT"), BadRequestError),
    "precondition": (400, google(400, "FAILED_PRECONDITION"), BadRequestError),
    "range": (400, google(400, "OUT_OF_RANGE"), BadRequestError),
    "deadline": (504, google(504, "DEADLINE_EXCEEDED"), ServerError),
    "unavailable": (503, google(503, "UNAVAILABLE"), OverloadedError),
    "internal": (500, google(500, "INTERNAL"), ServerError),
    "unimplemented": (501, google(501, "UNIMPLEMENTED"), BadRequestError),
    "cancelled": (499, google(499, "CANCELLED"), ServerError),
    "in a list": (400, [google(400, "INVALID_ARGUMENT", info("API_KEY_INVALID"))], AuthenticationError),
    "status alone": (403, {"error": {"status": "PERMISSION_DENIED"}}, PermissionDeniedError),
    "code alone": (200, {"error": {"code": 503}}, OverloadedError),
    "flat": (400, {"code": 404, "message": "m", "status": "NOT_FOUND"}, NotFoundError),
    "oauth": (401, {"error": "invalid_grant", "error_description": "m"}, AuthenticationError),
    "gateway": (400, {"error": {"message": "m", "type": "context_length_exceeded"}}, ContextLengthError),
    "gateway, code": (400, {"error": {"message": "m", "code": "insufficient_quota"}}, QuotaError),
    "wide in a 200": (200, google(400, "INVALID_ARGUMENT"), BadRequestError),
    "wide in a 200, no code": (200, {"error": {"status": "FAILED_PRECONDITION"}}, BadRequestError),
    "blocked": (200, {"promptFeedback": {"blockReason": "SAFETY"}}, ContentFilterError),
    "blocked for what nobody knows": (200, {"promptFeedback": {"blockReason": "NEW"}}, ContentFilterError),
    "blocked, no text": (200, {"promptFeedback": {"blockReason": 5}}, ContentFilterError),
    "empty list": (503, [], OverloadedError),
    "text": (500, "no", ServerError),
    "nothing": (502, b"", ServerError),
    "html": (404, b"<html>404</html>", NotFoundError),
    "a redirect": (302, b"", MalformedResponseError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_a_failure_is_of_the_class_that_its_typed_fields_say(
    status: int, body: Any, kind: type[ProviderError]
) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert (found.status, found.endpoint) == (status, "llm://host/gemini")


def test_both_dialects_read_failures_alike() -> None:
    assert gemini.VERTEX.decode_error == gemini.decode_error


def test_the_reason_comes_before_the_status() -> None:
    assert (
        error(400, google(400, "INVALID_ARGUMENT", info("API_KEY_INVALID"))).provider_code
        == "API_KEY_INVALID"
    )
    assert error(400, google(400, "INVALID_ARGUMENT")).provider_code == "INVALID_ARGUMENT"


@as_subtests(
    ("delay", "seconds"),
    [
        ("7s", 7.0),
        ("0.5s", 0.5),
        ("37.826266380s", 37.82626638),
        ("0s", 0.0),
        ("7", None),
        ("-7s", None),
        ("1e9s", None),
        ("7m", None),
        ("\u0667s", None),
        (7, None),
        ({"seconds": 7}, None),
    ],
)
def test_a_retry_delay_is_seconds_to_wait(delay: Any, seconds: float | None) -> None:
    found = error(429, google(429, "RESOURCE_EXHAUSTED", HELP, QUOTA, detail("RetryInfo", retryDelay=delay)))
    assert type(found) is RateLimitError
    assert found.retry_after == seconds


def test_a_retry_after_header_is_stronger_than_the_body() -> None:
    said = google(429, "RESOURCE_EXHAUSTED", detail("RetryInfo", retryDelay="7s"))
    assert error(429, said, [("retry-after", "2")]).retry_after == 2


def test_the_member_that_is_wrong_is_named() -> None:
    wrong = detail(
        "BadRequest", fieldViolations=[{}, 5, {"field": "generation_config.top_k", "description": "d"}]
    )
    found = error(400, google(400, "INVALID_ARGUMENT", wrong))
    assert (type(found), found.parameter) == (BadRequestError, "generation_config.top_k")


@as_subtests(
    "details",
    [5, {}, [5], [{}], [{"@type": 5}], [detail("ErrorInfo")], [detail("ErrorInfo", reason=5)],
     [detail("BadRequest")], [detail("BadRequest", fieldViolations=[])], [detail("RetryInfo")]],
)  # fmt: skip
def test_details_of_a_wrong_kind_say_nothing(details: Any) -> None:
    found = error(429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})
    assert type(found) is RateLimitError
    assert (found.retry_after, found.parameter) == (None, None)


def test_the_key_does_not_come_back_in_a_message() -> None:
    found = error(
        400, {"error": {"code": 400, "message": f"API key {KEY} not valid", "status": "INVALID_ARGUMENT"}}
    )
    assert KEY not in str(found)
    assert "not valid" in str(found)
    assert error(400, {"error": {"status": KEY}}).provider_code is None
