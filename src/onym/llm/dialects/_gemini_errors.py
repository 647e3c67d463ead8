"""Failures of the Gemini dialect: google.rpc.Status, told by its status and the details' typed fields.

Bodies seen: AI Studio and Vertex AI (also inside a list), OAuth's (`error` is a code), and gateways that
answer in OpenAI's shape. A prompt that was blocked is a failure in a body whose status says success.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects._errors import Failures, Said, has_error, status_number
from onym.llm.dialects._openai_errors import CODES as GATEWAY_CODES

__all__ = ["FAILURES"]

#: what a blocked prompt is called here, beside the API's own reason
_BLOCKED = "prompt_blocked"

#: google.rpc.Code, and google.api.ErrorReason, which says more than the status beside it
_CODES: Mapping[str, type[ProviderError]] = {
    **GATEWAY_CODES,
    _BLOCKED: ContentFilterError,
    "api_key_invalid": AuthenticationError,
    "access_token_expired": AuthenticationError,
    "access_token_type_unsupported": AuthenticationError,
    "account_state_invalid": AuthenticationError,
    "credentials_missing": AuthenticationError,
    "api_key_service_blocked": PermissionDeniedError,
    "api_key_http_referrer_blocked": PermissionDeniedError,
    "api_key_ip_address_blocked": PermissionDeniedError,
    "consumer_invalid": PermissionDeniedError,
    "consumer_suspended": PermissionDeniedError,
    "service_disabled": PermissionDeniedError,
    "user_project_denied": PermissionDeniedError,
    "iam_permission_denied": PermissionDeniedError,
    "billing_disabled": QuotaError,
    "unauthenticated": AuthenticationError,
    "permission_denied": PermissionDeniedError,
    "not_found": NotFoundError,
    # a quota by the minute or the day: waiting helps
    "resource_exhausted": RateLimitError,
    "unavailable": OverloadedError,
    "unimplemented": BadRequestError,
    "cancelled": ServerError,
}
_WIDE: Mapping[str, type[ProviderError]] = {
    "invalid_argument": BadRequestError,
    "failed_precondition": BadRequestError,
    "out_of_range": BadRequestError,
    "aborted": OverloadedError,
    "deadline_exceeded": ServerError,
    "internal": ServerError,
    "unknown": ServerError,
    "data_loss": ServerError,
}
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s", re.ASCII)


def _is_failure(data: Mapping[str, Any]) -> bool:
    return has_error(data) or (not data.get("candidates") and _block(data) is not None)


def _block(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What is said of a prompt that was blocked."""
    feedback = data.get("promptFeedback")
    return feedback if isinstance(feedback, dict) and feedback.get("blockReason") else None


def _read(data: Any) -> Said | None:
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _status(error)
    if isinstance(error, str):
        return Said(_text(data.get("error_description")) or error, (error,))
    block = _block(data)
    if block is not None:
        reason = _text(block.get("blockReason"))
        return Said(_text(block.get("blockReasonMessage")), (*([reason] if reason else ()), _BLOCKED))
    return _status(data)


def _status(error: Mapping[str, Any]) -> Said:
    details = error.get("details")
    details = [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    code = error.get("code")
    named = (error.get("status"), code if status_number(code) is None else None, error.get("type"))
    return Said(
        _text(error.get("message")),
        (*_reasons(details), *(each for each in named if isinstance(each, str) and each)),
        _field(details),
        status_number(code),
        _retry_delay(details),
    )


def _of_kind(details: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    for each in details:
        if _text(each.get("@type")).endswith(f"google.rpc.{kind}"):
            yield each


def _reasons(details: list[dict[str, Any]]) -> Iterator[str]:
    for each in _of_kind(details, "ErrorInfo"):
        if reason := _text(each.get("reason")):
            yield reason


def _field(details: list[dict[str, Any]]) -> str | None:
    """The first member that the server calls wrong."""
    for each in _of_kind(details, "BadRequest"):
        violations = each.get("fieldViolations")
        for violation in violations if isinstance(violations, list) else ():
            field = _text(violation.get("field")) if isinstance(violation, dict) else ""
            if field:
                return field
    return None


def _retry_delay(details: list[dict[str, Any]]) -> float | None:
    """Seconds to wait, from a duration such as "7s" or "0.5s"."""
    for each in _of_kind(details, "RetryInfo"):
        found = _DELAY.fullmatch(_text(each.get("retryDelay")))
        if found is not None:
            return float(found[1])
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


FAILURES = Failures(
    read=_read,
    codes=_CODES,
    wide=_WIDE,
    is_failure=_is_failure,
    hint="does this host speak Google's generateContent?",
)
