"""Failures of the OpenAI chat dialect, told by status and by the body's typed fields, never by its prose.

Bodies seen: OpenAI, Azure (`innererror`), llama.cpp (`type`), vLLM (`type`, `param`), LiteLLM's proxy
(numbers as text in `code`), OpenRouter (a status in `code`, also inside a stream), FastAPI (`detail`),
Google (a list), TGI and Ollama (`error` is text).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
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

#: decisive wherever they stand: in `code`, in `innererror.code` or in `type`
CODES: Mapping[str, type[ProviderError]] = {
    "invalid_api_key": AuthenticationError,
    "authentication_error": AuthenticationError,
    "auth_error": AuthenticationError,
    "account_deactivated": PermissionDeniedError,
    "permission_error": PermissionDeniedError,
    "permission_denied": PermissionDeniedError,
    "insufficient_permissions": PermissionDeniedError,
    "unsupported_country_region_territory": PermissionDeniedError,
    "model_not_found": NotFoundError,
    "not_found_error": NotFoundError,
    "notfounderror": NotFoundError,
    "deploymentnotfound": NotFoundError,
    "insufficient_quota": QuotaError,
    "exceeded_current_quota_error": QuotaError,
    "billing_hard_limit_reached": QuotaError,
    "billing_not_active": QuotaError,
    "budget_exceeded": QuotaError,
    "rate_limit_exceeded": RateLimitError,
    "rate_limit_error": RateLimitError,
    "context_length_exceeded": ContextLengthError,
    "exceed_context_size_error": ContextLengthError,
    "content_filter": ContentFilterError,
    "content_policy_violation": ContentFilterError,
    "responsibleaipolicyviolation": ContentFilterError,
    "not_supported_error": BadRequestError,
    "overloaded_error": OverloadedError,
    "engine_overloaded_error": OverloadedError,
    "unavailable_error": OverloadedError,
}

#: said of many failures: they count only where no status says more (inside a stream, in a 200)
WIDE: Mapping[str, type[ProviderError]] = {
    "invalid_request_error": BadRequestError,
    "badrequesterror": BadRequestError,
    "server_error": ServerError,
    "internal_server_error": ServerError,
    "internalservererror": ServerError,
    "api_error": ServerError,
}

#: a `param` that by itself says what is wrong: vLLM's name for a prompt beyond the context
_PARAMETERS: Mapping[str, type[ProviderError]] = {"input_tokens": ContextLengthError}


def _is_failure(data: Mapping[str, Any]) -> bool:
    return has_error(data) or data.get("object") == "error"


def _read(data: Any) -> Said | None:
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _record(error)
    if isinstance(error, str):
        return _record({"message": error, "type": data.get("error_type"), "code": data.get("code")})
    if "detail" in data:
        return _detail(data["detail"])
    return _record(data)


def _record(error: Mapping[str, Any]) -> Said:
    text = error.get("message")
    parameter = error.get("param")
    return Said(
        text if isinstance(text, str) else "",
        tuple(_codes(error)),
        parameter if isinstance(parameter, str) else None,
        status_number(error.get("code")),
    )


def _codes(error: Mapping[str, Any]) -> Iterator[str]:
    inner = error.get("innererror")
    for value in (
        error.get("code"),
        inner.get("code") if isinstance(inner, dict) else None,
        error.get("type"),
    ):
        if isinstance(value, str) and value and status_number(value) is None:
            yield value


def _detail(detail: Any) -> Said:
    """FastAPI's: a text, a record, or a list of {loc, msg, type}."""
    if isinstance(detail, list):
        detail = detail[0] if detail else None
    if isinstance(detail, str):
        return Said(detail)
    if not isinstance(detail, dict):
        return Said()
    place, text = detail.get("loc"), detail.get("msg")
    if isinstance(place, list) and place and isinstance(text, str):
        return Said(text, parameter=str(place[-1]))
    return _record(detail)


FAILURES = Failures(
    read=_read,
    codes=CODES,
    wide=WIDE,
    parameters=_PARAMETERS,
    is_failure=_is_failure,
    hint="is this host an OpenAI-compatible server?",
)
