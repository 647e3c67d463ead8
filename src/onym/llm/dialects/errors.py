"""Provider errors, shared by all API formats.

Status codes and typed fields decide the class of an error. Onym never reads the text of a message for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from math import inf
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from onym.common.text import is_printable_text, to_single_line
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
from onym.llm.dialects import NO_EXCHANGE, Exchange, HeaderMap
from onym.llm.types import Usage
from onym.net.limits import parse_retry_after
from onym.uri.redact import redact

D = TypeVar("D", bound=Callable[..., Any])

_MAX_MESSAGE = 500
_MAX_IDENTIFIER = 200

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

_DEFAULT_MESSAGES: Mapping[type[ProviderError], str] = {
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


class ErrorDetails(NamedTuple):
    """What a body says of a failure, in one shape. `retry_after` is seconds."""

    text: str = ""
    codes: tuple[str, ...] = ()
    parameter: str | None = None
    status: int | None = None
    retry_after: float | None = None


def has_error(data: Mapping[str, Any]) -> bool:
    """Whether a body or an event whose status said success is an error all the same."""
    return bool(data.get("error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDecoder:
    """How one dialect says what went wrong.

    `read` brings a decoded body into one shape, None where it is in none. `codes` are decisive wherever
    they stand, in lower case; `wide` count only where no status says more (inside a stream, in a 200);
    `parameters` are names that by themselves say what is wrong; `statuses` differ from the usual ones.
    `is_failure` tells an error in a 2xx body or in an event. `hint` goes with an answer of another kind.
    """

    read: Callable[[Any], ErrorDetails | None]
    codes: Mapping[str, type[ProviderError]]
    wide: Mapping[str, type[ProviderError]] = field(default_factory=dict)
    parameters: Mapping[str, type[ProviderError]] = field(default_factory=dict)
    statuses: Mapping[int, type[ProviderError]] = field(default_factory=dict)
    is_failure: Callable[[Mapping[str, Any]], bool] = has_error
    hint: str | None = None

    def decode_json(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Any:
        """The body as JSON; MalformedResponseError where it is none."""
        try:
            return msgspec.json.decode(body)
        except (ValueError, RecursionError):
            pass
        raise self.make_malformed_error(
            f"{_describe_media_type(headers)} came instead of JSON", status, headers, exchange
        )

    def decode_object(
        self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange
    ) -> dict[str, Any]:
        """The body as an object that is no failure; raises MalformedResponseError, or the failure."""
        data = self.decode_json(status, headers, body, exchange)
        if not isinstance(data, dict):
            raise self.make_malformed_error("it is not a JSON object", status, headers, exchange)
        if self.is_failure(data):
            raise self.decode_body_error(data, status, headers, exchange)
        return data

    def locate_errors(self, decode: D) -> D:
        """A decoder of whole answers whose `wrong` members are told with the exchange that they came in."""

        @wraps(decode)
        def told(
            status: int,
            headers: HeaderMap,
            body: bytes,
            exchange: Exchange = NO_EXCHANGE,
            *,
            count: int | None = None,
        ) -> Any:
            # the usual call has nothing to pack or unpack, and costs next to nothing
            try:
                if count is None:
                    return decode(status, headers, body, exchange)
                return decode(status, headers, body, exchange, count=count)
            except MalformedResponseError as error:
                if error.status is not None:
                    raise
                reason = error.message
            raise self.make_malformed_error(reason, status, headers, exchange)

        return cast("D", told)

    def make_malformed_error(
        self,
        text: str,
        status: int | None,
        headers: HeaderMap | None,
        exchange: Exchange,
        *,
        usage: Usage | None = None,
    ) -> MalformedResponseError:
        """An answer that is not what the dialect promises; `text` is our own words."""
        return MalformedResponseError(
            f"{_DEFAULT_MESSAGES[MalformedResponseError]}: {text}",
            endpoint=exchange.endpoint,
            status=status,
            request_id=None if headers is None else find_request_id(headers, exchange),
            usage=usage,
            hint=self.hint if usage is None else None,
        )

    def decode_error(
        self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NO_EXCHANGE
    ) -> ProviderError:
        """The error that an answer outside 2xx means. It is returned, not raised."""
        try:
            said = self.read(msgspec.json.decode(body)) or ErrorDetails()
        except (ValueError, RecursionError):
            said = ErrorDetails(f"{_describe_media_type(headers)} came instead of JSON" if body else "")
        return self._build_error(
            said,
            status,
            exchange,
            request_id=find_request_id(headers, exchange),
            retry_after=_find_retry_after(headers, exchange),
        )

    def decode_body_error(
        self, data: Any, status: int, headers: HeaderMap, exchange: Exchange = NO_EXCHANGE
    ) -> ProviderError:
        """The error that a body says it is, though the status said success."""
        return self._build_error(
            self.read(data) or ErrorDetails(),
            status,
            exchange,
            request_id=find_request_id(headers, exchange),
            retry_after=_find_retry_after(headers, exchange),
        )

    def decode_stream_error(
        self,
        data: Any,
        *,
        status: int,
        request_id: str | None,
        usage: Usage,
        exchange: Exchange = NO_EXCHANGE,
    ) -> ProviderError:
        """The error that an event of a stream says it is; `usage` is what was counted before."""
        return self._build_error(
            self.read(data) or ErrorDetails(), status, exchange, request_id=request_id, usage=usage
        )

    def _build_error(
        self,
        said: ErrorDetails,
        status: int,
        exchange: Exchange,
        *,
        request_id: str | None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> ProviderError:
        kind = self._find_error_class(said, status)
        text = clean_message(said.text, exchange)
        codes = [name for code in said.codes if (name := clean_identifier(code, exchange)) is not None]
        return kind(
            f"{_DEFAULT_MESSAGES[kind]} (HTTP {status})" + (f": {text}" if text else ""),
            endpoint=exchange.endpoint,
            status=status,
            provider_code=codes[0] if codes else None,
            request_id=request_id,
            parameter=clean_identifier(said.parameter, exchange),
            retry_after=said.retry_after if retry_after is None else retry_after,
            usage=usage,
        )

    def _find_error_class(self, said: ErrorDetails, status: int) -> type[ProviderError]:
        for code in said.codes:
            if code.lower() in self.codes:
                return self.codes[code.lower()]
        if said.parameter is not None and said.parameter in self.parameters and status < 500:
            return self.parameters[said.parameter]
        if 200 <= status < 300:
            for code in said.codes:
                if code.lower() in self.wide:
                    return self.wide[code.lower()]
            # 200 or a stream: a status inside the body is the only one there is
            status = said.status or 500
        found = self.statuses.get(status) or _STATUSES.get(status)
        if found is not None:
            return found
        if 400 <= status < 500:
            return BadRequestError
        return ServerError if 500 <= status < 600 else MalformedResponseError


def find_request_id(headers: HeaderMap, exchange: Exchange) -> str | None:
    """The server's own name for the exchange, where a header bears one that is fit to print."""
    found = None
    for name, value in headers:
        lower = name.lower()
        if lower == _REQUEST_ID:
            return clean_identifier(value, exchange)
        if lower in _REQUEST_IDS:
            found = found or value
    return clean_identifier(found, exchange)


def parse_error_status(value: Any) -> int | None:
    """A failure status given as a number, or as three digits of text."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if type(value) is int and 400 <= value < 600 else None


def _find_retry_after(headers: HeaderMap, exchange: Exchange) -> float | None:
    # without a date of our own a Retry-After date says nothing, so it counts as past
    return parse_retry_after(headers, inf if exchange.now is None else exchange.now)


def _describe_media_type(headers: HeaderMap) -> str:
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    return "an HTML page" if media in ("text/html", "application/xhtml+xml") else "something"


def clean_identifier(text: str | None, exchange: Exchange) -> str | None:
    """A short identifier of the server's, None where it is not fit to print or holds the key."""
    if not is_printable_text(text, _MAX_IDENTIFIER):
        return None
    return None if any(secret.reveal() in text for secret in exchange.secrets) else text


def clean_message(text: str, exchange: Exchange) -> str:
    """Return a server's message as one printable line without secrets, at most 500 characters."""
    if not text:
        return ""
    return to_single_line(redact(text[: 8 * _MAX_MESSAGE], secrets=exchange.secrets))[:_MAX_MESSAGE]
