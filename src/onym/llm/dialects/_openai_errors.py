"""Failures of the OpenAI chat dialect, told by status and by the body's typed fields, never by its prose.

Bodies seen: OpenAI, Azure (`innererror`), llama.cpp (`type`), vLLM (`type`, `param`), LiteLLM's proxy
(numbers as text in `code`), OpenRouter (a status in `code`, also inside a stream), FastAPI (`detail`),
Google (a list), TGI and Ollama (`error` is text).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

import msgspec

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
from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.types import Usage
from onym.net.retry import parse_retry_after
from onym.uri.redact import redact

__all__ = [
    "body_error",
    "decode_error",
    "find_request_id",
    "is_failure",
    "load_json",
    "malformed",
    "stream_error",
]

_LONGEST_SAID = 500
_LONGEST_NAME = 200

#: decisive wherever they stand: in `code`, in `innererror.code` or in `type`
_CODES: Mapping[str, type[ProviderError]] = {
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
_WIDE_TYPES: Mapping[str, type[ProviderError]] = {
    "invalid_request_error": BadRequestError,
    "badrequesterror": BadRequestError,
    "server_error": ServerError,
    "internal_server_error": ServerError,
    "internalservererror": ServerError,
    "api_error": ServerError,
}

#: a `param` that by itself says what is wrong: vLLM's name for a prompt beyond the context
_PARAMETERS: Mapping[str, type[ProviderError]] = {"input_tokens": ContextLengthError}

_STATUSES: Mapping[int, type[ProviderError]] = {
    401: AuthenticationError,
    402: QuotaError,
    403: PermissionDeniedError,
    404: NotFoundError,
    408: OverloadedError,
    409: OverloadedError,
    429: RateLimitError,
    498: OverloadedError,
    503: OverloadedError,
    529: OverloadedError,
}

_SENTENCES: Mapping[type[ProviderError], str] = {
    AuthenticationError: "the server refused the key, or misses one",
    PermissionDeniedError: "the key may not do this",
    NotFoundError: "the server knows no such model or route",
    RateLimitError: "too many requests or tokens",
    QuotaError: "no credit or quota is left",
    ContextLengthError: "prompt and completion do not fit the model's context",
    BadRequestError: "the server refused the request",
    ContentFilterError: "the server filtered the content",
    OverloadedError: "the server is busy or down",
    ServerError: "the server failed",
    MalformedResponseError: "the server's answer is not one of this dialect",
}

#: the usual name, and what others call it
_REQUEST_ID = "x-request-id"
_REQUEST_IDS = frozenset({"request-id", "apim-request-id", "x-amzn-requestid", "x-litellm-call-id"})


class _Said(NamedTuple):
    """What a body says of a failure, in one shape."""

    text: str = ""
    codes: tuple[str, ...] = ()
    parameter: str | None = None
    status: int | None = None


def find_request_id(headers: HeaderMap, exchange: Exchange) -> str | None:
    """The server's own name for the exchange, where a header bears one that is fit to print."""
    found = None
    for name, value in headers:
        lower = name.lower()
        if lower == _REQUEST_ID:
            return _name(value, exchange)
        if lower in _REQUEST_IDS:
            found = found or value
    return _name(found, exchange)


def load_json(status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Any:
    """The body as JSON; MalformedResponseError where it is none."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        pass
    raise malformed(f"{_kind(headers)} came instead of JSON", status, headers, exchange)


def malformed(
    text: str,
    status: int | None,
    headers: HeaderMap | None,
    exchange: Exchange,
    *,
    usage: Usage | None = None,
) -> MalformedResponseError:
    """An answer that is not what the dialect promises; `text` is our own words."""
    return MalformedResponseError(
        f"{_SENTENCES[MalformedResponseError]}: {text}",
        endpoint=exchange.endpoint,
        status=status,
        request_id=None if headers is None else find_request_id(headers, exchange),
        usage=usage,
        hint="is this host an OpenAI-compatible server?" if usage is None else None,
    )


def decode_error(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ProviderError:
    """The error that an answer outside 2xx means. It is returned, not raised."""
    try:
        said = _read(msgspec.json.decode(body)) or _Said()
    except (ValueError, RecursionError):
        kind = _kind(headers)
        said = _Said(f"{kind} came instead of JSON" if body else "")
    return _build(
        said,
        status,
        exchange,
        request_id=find_request_id(headers, exchange),
        retry_after=_retry_after(headers, exchange),
    )


def is_failure(data: Mapping[str, Any]) -> bool:
    """Whether a body or an event whose status said success is an error all the same."""
    return bool(data.get("error")) or data.get("object") == "error"


def body_error(
    data: Mapping[str, Any], status: int, headers: HeaderMap, exchange: Exchange = NOWHERE
) -> ProviderError:
    """The error that a body says it is, though the status said success."""
    return _build(
        _read(data) or _Said(),
        status,
        exchange,
        request_id=find_request_id(headers, exchange),
        retry_after=_retry_after(headers, exchange),
    )


def stream_error(
    data: Mapping[str, Any],
    *,
    status: int,
    request_id: str | None,
    usage: Usage,
    exchange: Exchange = NOWHERE,
) -> ProviderError:
    """The error that an event of a stream says it is; `usage` is what was counted before."""
    return _build(_read(data) or _Said(), status, exchange, request_id=request_id, usage=usage)


def _retry_after(headers: HeaderMap, exchange: Exchange) -> float | None:
    # without a date of our own a Retry-After date says nothing, so it counts as past
    return parse_retry_after(headers, inf if exchange.now is None else exchange.now)


def _build(
    said: _Said,
    status: int,
    exchange: Exchange,
    *,
    request_id: str | None,
    retry_after: float | None = None,
    usage: Usage | None = None,
) -> ProviderError:
    kind = _class(said, status)
    text = redact(said.text[: 8 * _LONGEST_SAID], secrets=exchange.secrets) if said.text else ""
    text = _printable(text)[:_LONGEST_SAID]
    codes = [name for code in said.codes if (name := _name(code, exchange)) is not None]
    return kind(
        f"{_SENTENCES[kind]} (HTTP {status})" + (f": {text}" if text else ""),
        endpoint=exchange.endpoint,
        status=status,
        provider_code=codes[0] if codes else None,
        request_id=request_id,
        parameter=_name(said.parameter, exchange),
        retry_after=retry_after,
        usage=usage,
    )


def _class(said: _Said, status: int) -> type[ProviderError]:
    for code in said.codes:
        if code.lower() in _CODES:
            return _CODES[code.lower()]
    if said.parameter is not None and said.parameter in _PARAMETERS and status < 500:
        return _PARAMETERS[said.parameter]
    if 200 <= status < 300:
        for code in said.codes:
            if code.lower() in _WIDE_TYPES:
                return _WIDE_TYPES[code.lower()]
        # 200 or a stream: a status inside the body is the only one there is
        status = said.status or 500
    if status in _STATUSES:
        return _STATUSES[status]
    if 400 <= status < 500:
        return BadRequestError
    return ServerError if 500 <= status < 600 else MalformedResponseError


def _read(data: Any) -> _Said | None:
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


def _record(error: Mapping[str, Any]) -> _Said:
    text = error.get("message")
    parameter = error.get("param")
    return _Said(
        text if isinstance(text, str) else "",
        tuple(_codes(error)),
        parameter if isinstance(parameter, str) else None,
        _number(error.get("code")),
    )


def _codes(error: Mapping[str, Any]) -> Iterator[str]:
    inner = error.get("innererror")
    for value in (
        error.get("code"),
        inner.get("code") if isinstance(inner, dict) else None,
        error.get("type"),
    ):
        if isinstance(value, str) and value and _number(value) is None:
            yield value


def _number(value: Any) -> int | None:
    """A failure status given as a number, or as three digits of text."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None


def _detail(detail: Any) -> _Said:
    """FastAPI's: a text, a record, or a list of {loc, msg, type}."""
    if isinstance(detail, list):
        detail = detail[0] if detail else None
    if isinstance(detail, str):
        return _Said(detail)
    if not isinstance(detail, dict):
        return _Said()
    place, text = detail.get("loc"), detail.get("msg")
    if isinstance(place, list) and place and isinstance(text, str):
        return _Said(text, parameter=str(place[-1]))
    return _record(detail)


def _kind(headers: HeaderMap) -> str:
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    return "an HTML page" if media in ("text/html", "application/xhtml+xml") else "something"


def _name(text: str | None, exchange: Exchange) -> str | None:
    """A short identifier of the server's, None where it is not fit to print or holds the key."""
    if not text or len(text) > _LONGEST_NAME or not text.isprintable():
        return None
    for secret in exchange.secrets:
        if secret.reveal() in text:
            return None
    return text


def _printable(text: str) -> str:
    """One line that cannot steer a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
