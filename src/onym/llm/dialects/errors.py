"""Provider errors, shared by all API formats.

Status codes and typed fields decide the class of an error. Onym never reads the text of a message for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from math import inf
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from onym import errors
from onym.common.text import is_printable_text, to_single_line
from onym.llm.dialects import NO_EXCHANGE, Exchange, HeaderMap
from onym.llm.types import Usage
from onym.net.limits import parse_retry_after
from onym.uri.redact import redact

D = TypeVar("D", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

_MAX_MESSAGE = 500
_MAX_IDENTIFIER = 200

_STATUSES: Mapping[int, type[errors.ProviderError]] = {
    401: errors.AuthenticationError,
    402: errors.QuotaError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    408: errors.OverloadedError,
    409: errors.OverloadedError,
    429: errors.RateLimitError,
    498: errors.OverloadedError,
    503: errors.OverloadedError,
    529: errors.OverloadedError,
}

_DEFAULT_MESSAGES: Mapping[type[errors.ProviderError], str] = {
    errors.AuthenticationError: "the server rejected the API key, or the key is missing",
    errors.PermissionDeniedError: "the API key does not have this permission",
    errors.NotFoundError: "the server does not have this model or path",
    errors.RateLimitError: "too many requests or tokens",
    errors.QuotaError: "the credit or quota is used up",
    errors.ContextLengthError: "the prompt and the completion exceed the model's context window",
    errors.BadRequestError: "the server rejected the request",
    errors.ContentFilterError: "the server filtered the content",
    errors.OverloadedError: "the server is overloaded or unavailable",
    errors.ServerError: "the server failed",
    errors.MalformedResponseError: "the response does not match the API format",
}

#: the usual name of the header, and other names
_REQUEST_ID = "x-request-id"
_REQUEST_IDS = frozenset({"request-id", "apim-request-id", "x-amzn-requestid", "x-litellm-call-id"})


class ErrorDetails(NamedTuple):
    """What a body says about a failure. `retry_after` is in seconds."""

    text: str = ""
    codes: tuple[str, ...] = ()
    parameter: str | None = None
    status: int | None = None
    retry_after: float | None = None


def has_error(data: Mapping[str, Any]) -> bool:
    """Whether a body or event contains an error although the HTTP status was a success."""
    return bool(data.get("error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDecoder:
    """How one API format reports failures.

    `read` converts a decoded body, or returns None for an unknown format. `codes` (lower case) always decide;
    `wide` decide only without an error status (inside a stream, or in a 200 response). `parameters` are
    names that identify the error by themselves. `statuses` replace the usual ones. `is_failure` finds an
    error in a 2xx body or in an event. `hint` is shown if the response is not of this format.
    """

    read: Callable[[Any], ErrorDetails | None]
    codes: Mapping[str, type[errors.ProviderError]]
    wide: Mapping[str, type[errors.ProviderError]] = field(default_factory=dict)
    parameters: Mapping[str, type[errors.ProviderError]] = field(default_factory=dict)
    statuses: Mapping[int, type[errors.ProviderError]] = field(default_factory=dict)
    is_failure: Callable[[Mapping[str, Any]], bool] = has_error
    hint: str | None = None

    def decode_json(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Any:
        """Return the body as JSON; MalformedResponseError if it is not JSON."""
        try:
            return msgspec.json.decode(body)
        except (ValueError, RecursionError):
            pass
        raise self.make_malformed_error(
            f"the body is {_describe_media_type(headers)} instead of JSON", status, headers, exchange
        )

    def decode_object(
        self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange
    ) -> dict[str, Any]:
        """Return the body as an object; raises MalformedResponseError, or the error in the object."""
        data = self.decode_json(status, headers, body, exchange)
        if not isinstance(data, dict):
            raise self.make_malformed_error("it is not a JSON object", status, headers, exchange)
        if self.is_failure(data):
            raise self.decode_body_error(data, status, headers, exchange)
        return data

    def decode_objects(
        self, decode: Callable[Concatenate[dict[str, Any], HeaderMap, Exchange, P], T]
    ) -> Callable[Concatenate[int, HeaderMap, bytes, Exchange, P], T]:
        """Decorate a decoder of objects: it decodes whole responses. Its errors get their exchange's data."""
        return cast(
            "Callable[Concatenate[int, HeaderMap, bytes, Exchange, P], T]", self._locate(decode, parse=True)
        )

    def locate_errors(self, decode: D) -> D:
        """Decorate a decoder of whole responses: its errors get the data of their exchange."""
        return cast("D", self._locate(decode, parse=False))

    def _locate(self, decode: Callable[..., Any], *, parse: bool) -> Callable[..., Any]:
        @wraps(decode)
        def decode_located(
            status: int,
            headers: HeaderMap,
            body: bytes,
            exchange: Exchange = NO_EXCHANGE,
            *,
            count: int | None = None,
        ) -> Any:
            try:
                if not parse:
                    return decode(status, headers, body, exchange)
                data = self.decode_object(status, headers, body, exchange)
                # most calls have no `count`; packing and unpacking arguments would cost time
                if count is None:
                    return decode(data, headers, exchange)
                return decode(data, headers, exchange, count=count)
            except errors.MalformedResponseError as error:
                if error.status is not None:
                    raise
                reason = error.message
            raise self.make_malformed_error(reason, status, headers, exchange)

        return decode_located

    def make_malformed_error(
        self,
        text: str,
        status: int | None,
        headers: HeaderMap | None,
        exchange: Exchange,
        *,
        usage: Usage | None = None,
    ) -> errors.MalformedResponseError:
        """Return the error for a response that is not of this format; `text` is Onym's description."""
        return errors.MalformedResponseError(
            f"{_DEFAULT_MESSAGES[errors.MalformedResponseError]}: {text}",
            endpoint=exchange.endpoint,
            status=status,
            request_id=None if headers is None else find_request_id(headers, exchange),
            usage=usage,
            hint=self.hint if usage is None else None,
        )

    def decode_error(
        self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NO_EXCHANGE
    ) -> errors.ProviderError:
        """Return the error in a response outside 2xx. It is not raised."""
        try:
            details = self.read(msgspec.json.decode(body)) or ErrorDetails()
        except (ValueError, RecursionError):
            details = ErrorDetails(
                f"the body is {_describe_media_type(headers)} instead of JSON" if body else ""
            )
        return self._build_error(details, status, exchange, headers)

    def decode_body_error(
        self, data: Any, status: int, headers: HeaderMap | None, exchange: Exchange = NO_EXCHANGE
    ) -> errors.ProviderError:
        """Return the error in a body or an event whose HTTP status was a success."""
        return self._build_error(self.read(data) or ErrorDetails(), status, exchange, headers)

    def _build_error(
        self, details: ErrorDetails, status: int, exchange: Exchange, headers: HeaderMap | None
    ) -> errors.ProviderError:
        kind = self._find_error_class(details, status)
        text = clean_message(details.text, exchange)
        # without the current time a Retry-After date is treated as past
        now = inf if exchange.now is None else exchange.now
        retry_after = None if headers is None else parse_retry_after(headers, now)
        codes = [name for code in details.codes if (name := clean_identifier(code, exchange)) is not None]
        return kind(
            f"{_DEFAULT_MESSAGES[kind]} (HTTP {status})" + (f": {text}" if text else ""),
            endpoint=exchange.endpoint,
            status=status,
            provider_code=codes[0] if codes else None,
            request_id=None if headers is None else find_request_id(headers, exchange),
            parameter=clean_identifier(details.parameter, exchange),
            retry_after=details.retry_after if retry_after is None else retry_after,
        )

    def _find_error_class(self, details: ErrorDetails, status: int) -> type[errors.ProviderError]:
        for code in details.codes:
            if code.lower() in self.codes:
                return self.codes[code.lower()]
        if details.parameter is not None and details.parameter in self.parameters and status < 500:
            return self.parameters[details.parameter]
        if 200 <= status < 300:
            for code in details.codes:
                if code.lower() in self.wide:
                    return self.wide[code.lower()]
            # in a 200 response or a stream, a status in the body is the only one
            status = details.status or 500
        kind = self.statuses.get(status) or _STATUSES.get(status)
        if kind is not None:
            return kind
        if 400 <= status < 500:
            return errors.BadRequestError
        return errors.ServerError if 500 <= status < 600 else errors.MalformedResponseError


def find_request_id(headers: HeaderMap, exchange: Exchange) -> str | None:
    """Return the server's identifier of the exchange from a header, None if missing or unprintable."""
    identifier = None
    for name, value in headers:
        lower = name.lower()
        if lower == _REQUEST_ID:
            return clean_identifier(value, exchange)
        if lower in _REQUEST_IDS:
            identifier = identifier or value
    return clean_identifier(identifier, exchange)


def parse_error_status(value: Any) -> int | None:
    """Return an error status given as a number or as three digits, else None."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None


def _describe_media_type(headers: HeaderMap) -> str:
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    return "an HTML page" if media in ("text/html", "application/xhtml+xml") else "other data"


def clean_identifier(text: str | None, exchange: Exchange) -> str | None:
    """Return a server's short identifier, None if it is not printable or contains the key."""
    if not is_printable_text(text, _MAX_IDENTIFIER):
        return None
    return None if any(secret.reveal() in text for secret in exchange.secrets) else text


def clean_message(text: str, exchange: Exchange) -> str:
    """Return a server's message as one printable line without secrets, at most 500 characters."""
    if not text:
        return ""
    return to_single_line(redact(text[: 8 * _MAX_MESSAGE], secrets=exchange.secrets))[:_MAX_MESSAGE]
