"""Failures of the Anthropic Messages dialect, told by status and by the body's typed fields alone.

Bodies seen: Anthropic (`{"type": "error", "error": {"type", "message", "details"}, "request_id"}`), llama.cpp
and LiteLLM's proxy on their Messages routes (`error` with `code`), Vertex (`error` with a status in `code`),
Bedrock (`message` alone), FastAPI (`detail`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
from onym.llm.dialects._errors import Failures, Said, has_error, status_number

__all__ = ["CODES", "FAILURES", "WIDE"]

#: decisive wherever they stand: in `details.error_code`, which names the cause, in `type` or in `code`
CODES: Mapping[str, type[ProviderError]] = {
    "authentication_error": AuthenticationError,
    "billing_error": QuotaError,
    "permission_error": PermissionDeniedError,
    "not_found_error": NotFoundError,
    "rate_limit_error": RateLimitError,
    "overloaded_error": OverloadedError,
    # llama.cpp, which says so on each of its routes
    "exceed_context_size_error": ContextLengthError,
    "contract_spend_limit_reached": QuotaError,
    "enforced_spend_limit_reached": QuotaError,
    "linked_organization_billing_unavailable": QuotaError,
    "linked_organization_spend_limit_reached": QuotaError,
    "organization_on_hold": PermissionDeniedError,
}

#: said of many failures: they count only where no status says more (inside a stream, in a 200)
WIDE: Mapping[str, type[ProviderError]] = {
    "invalid_request_error": BadRequestError,
    "request_too_large": BadRequestError,
    "timeout_error": ServerError,
    "api_error": ServerError,
}


def _is_failure(data: Mapping[str, Any]) -> bool:
    return has_error(data) or data.get("type") == "error"


def _read(data: Any) -> Said | None:
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _record(error)
    if isinstance(error, str):
        return Said(error)
    detail = data.get("detail")
    if isinstance(detail, dict):
        return _record(detail)
    return Said(detail) if isinstance(detail, str) else _record(data)


def _record(error: Mapping[str, Any]) -> Said:
    text = error.get("message")
    return Said(
        text if isinstance(text, str) else "",
        tuple(_codes(error)),
        status=status_number(error.get("code")),
    )


def _codes(error: Mapping[str, Any]) -> Iterator[str]:
    details = error.get("details")
    for value in (
        details.get("error_code") if isinstance(details, dict) else None,
        error.get("type"),
        error.get("code"),
    ):
        if isinstance(value, str) and value not in ("", "error") and status_number(value) is None:
            yield value


FAILURES = Failures(
    read=_read,
    codes=CODES,
    wide=WIDE,
    is_failure=_is_failure,
    hint="does this host speak Anthropic's Messages API?",
)
