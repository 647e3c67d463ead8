"""API formats: the interface of an API format, and the formats that Onym supports, by name.

An API format is one module of pure functions with the names of `Dialect`. It never reads a provider's name.
`get_dialect` imports a format on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from math import inf
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from onym import errors
from onym.common.text import is_printable_text, to_single_line
from onym.errors import ConfigError, NetError, ProviderError, UnsupportedError
from onym.llm.types import Carried, Completion, Event, ModelInfo, ModelPage, Request, Usage
from onym.net.limits import parse_retry_after
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.uri.secret import Secret


class HeaderMap(Protocol):
    """Response headers: look one up by name in any case, or iterate over pairs."""

    def get(self, name: str, /) -> str | None:
        """Return the first value of this header, None if it is absent."""

    def __iter__(self) -> Iterator[tuple[str, str]]: ...


@dataclass(init=False, slots=True)
class Routes:
    """Paths below the base path, by operation.

    The model, percent-encoded, replaces `{model}`; `model_prefix` is removed from its start first. `stream`
    is for APIs that stream at another path. `model` requests one model; without it Onym searches the list. A
    route without a body (`models`, `model`) is a GET, any other a POST; with `model_body`, `model` is a POST
    of `{"model": …}`.
    """

    paths: Mapping[str, str]
    model_body: bool
    model_prefix: str

    def __init__(self, *, model_body: bool = False, model_prefix: str = "", **paths: str) -> None:
        self.paths = paths
        self.model_body = model_body
        self.model_prefix = model_prefix

    def find(self, operation: str) -> str | None:
        """Return the path of an operation, None if the API does not have it."""
        return self.paths.get(operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSpec:
    """Settings of one endpoint for request bodies.

    `names` are wire names of standard parameters. `provider` is the name of the provider row: what another
    provider made is not sent to it. `reasons` tells whether the model certainly reasons in this call.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    reasons: bool = False

    def may_carry(self, carried: Carried | None, dialect: str) -> bool:
        """Report whether a turn's carried content belongs to this API format and provider."""
        return carried is not None and carried.dialect == dialect and carried.provider in ("", self.provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The exchange that an error reports. It never changes how a response is decoded.

    `endpoint` is redacted text, `secrets` must not appear in a message, `model` is used if the server names
    none, `now` (seconds since the epoch) turns a Retry-After date into seconds. `provider` is the name of the
    provider row, for `Carried`.
    """

    endpoint: str | None = None
    provider: str = ""
    secrets: tuple[Secret, ...] = ()
    model: str = ""
    now: float | None = None


NO_EXCHANGE = Exchange()


class Decoder(Protocol):
    """A push decoder of a streamed response: bytes in, events out, however the network splits the bytes.

    Events before a failure are returned first; then `error` contains the failure, to be raised after them.
    `done` is True after a complete response.
    """

    @property
    def error(self) -> NetError | ProviderError | None:
        """Why this stream has failed, None if it has not."""

    @property
    def done(self) -> bool:
        """Whether `Finish` has been returned."""

    @property
    def usage(self) -> Usage:
        """The tokens counted so far."""

    def feed(self, data: bytes, /) -> list[Event]:
        """Return the events that these bytes complete."""

    def close(self) -> list[Event]:
        """Return the last events at the end of the bytes; raises `error` if the response is incomplete."""


class Dialect(Protocol):
    """One API format. A module with these names is one.

    It may have `refuses_choice`: a reason for each kind of tool choice that the API does not have ("none",
    "required", or "named" for the name of a tool). It also has `encode_NAME` and `decode_NAME` for the other
    operations in `routes` (`onym.llm.types`).
    """

    @property
    def name(self) -> str:
        """The name in provider entries."""

    @property
    def routes(self) -> Routes:
        """The paths of its operations."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of every request, except those that authenticate it."""

    @property
    def parameters(self) -> Mapping[str, str | None]:
        """Wire names of the standard parameters, unless a provider entry has others.

        Dots nest; None means that the API does not support the parameter. Pass-through parameters are there
        if the API has them inside of an object.

        `system` and `stream` name their position in a request, for people. `cache`, if present, is the switch
        of the provider's own prompt cache.
        """

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Standard parameters that the API requires, with the values to send by default."""

    @property
    def formats(self) -> frozenset[str]:
        """The values of `format`, other than `text`, that the API supports."""

    def encode_chat(self, request: Request, spec: WireSpec) -> dict[str, Any]:
        """Return the body of an inference request."""

    def decode_chat(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Completion:
        """Decode a 2xx response; raises ProviderError."""

    def decode_models(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ModelPage:
        """Decode a 2xx response with a list of models; raises ProviderError."""

    def decode_model(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ModelInfo:
        """Decode a 2xx response about one model; raises ProviderError."""

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """Return the error in any other response. It is not raised."""

    def stream_decoder(self, status: int, headers: HeaderMap, exchange: Exchange) -> Decoder:
        """Return a decoder for the streamed body of this 2xx response."""


#: entry points of other distributions: modules, or objects, with the names of `Dialect`
GROUP = "onym.dialects"
#: the API formats of this version: the module, and for a variant of its format the object in the module
DIALECTS = {
    "anthropic_messages": "anthropic_messages",
    "anthropic_vertex": "anthropic_messages:VERTEX",
    "bedrock_converse": "bedrock_converse",
    "cohere_v2": "cohere_v2",
    "gemini": "gemini",
    "gemini_vertex": "gemini:VERTEX",
    "mistral_chat": "openai_chat:MISTRAL",
    "ollama": "ollama",
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
}


def make_variant(module: str, **members: Any) -> Dialect:
    """Return a variant of the format in `module`, which has been executed: `members` replace its own."""
    variant = ModuleType(members["name"])
    vars(variant).update({**vars(sys.modules[module]), **members})
    return cast("Dialect", variant)


@cache
def get_dialect(name: str) -> Dialect:
    """Return the API format of this name: one of Onym's, or one from an entry point.

    Raises UnsupportedError for an unknown name and ConfigError for an entry point that cannot be loaded.
    """
    if name in DIALECTS:
        module, _, variant = DIALECTS[name].partition(":")
        dialect = import_module(f"{__name__}.{module}")
        return cast("Dialect", getattr(dialect, variant) if variant else dialect)
    # late: 28 ms of imports, needed only for a name that is not one of Onym's
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        try:
            return cast("Dialect", point.load())
        except Exception as error:
            raise ConfigError(
                f"the API format {name} (entry point group {GROUP}) cannot be loaded: {type(error).__name__}",
                code="dialect.bad-plugin",
                hint="Uninstall or upgrade the package that provides it.",
            ) from error
    raise UnsupportedError(
        f"this version of Onym does not support the API format {name}",
        code="llm.no-dialect",
        hint=f"Supported formats: {', '.join(sorted(DIALECTS))}.",
    )


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
#: statuses with which other programs, such as the server of a web page, answer a POST
_NO_POST: Final = frozenset({405, 501})
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
        import msgspec  # late: `onym check` starts without it

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
        import msgspec  # late: see decode_json

        try:
            details = self.read(msgspec.json.decode(body)) or ErrorDetails()
        except (ValueError, RecursionError):
            details = ErrorDetails(
                f"the body is {_describe_media_type(headers)} instead of JSON" if body else ""
            )
        error = self._build_error(details, status, exchange, headers)
        if status in _NO_POST:
            error.hint = self.hint
        return error

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
