"""The plan of one call: the request, its notes, and the errors that its answer means.

`explain` prints a `Plan`, and the flow sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from onym.errors import (
    AuthenticationError,
    NetError,
    NotFoundError,
    ProviderError,
    ResolveError,
    UsageError,
)
from onym.llm.dialects import Exchange
from onym.llm.mapping import REJECTED_PARAMETERS, MappingNote, OnUnsupported, RejectedParameters
from onym.llm.operations import OPERATIONS, OperationName
from onym.llm.providers import ProviderTable, format_suggestion
from onym.net.messages import HTTPRequest, Origin, Reply
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from onym.llm.dialects import Dialect
    from onym.llm.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFrame:
    """What all plans of one kind of call share, made once: everything but the body."""

    operation: OperationName
    endpoint: Endpoint
    #: None for the embedded model before it runs
    origin: Origin | None
    method: str
    target: str
    headers: tuple[tuple[str, str | Secret], ...] = field(repr=False)
    exchange: Exchange = field(repr=False)
    timeout: float
    retries: int
    stream: bool = False
    warnings: tuple[str, ...] = ()
    on_unsupported: OnUnsupported = "error"
    lessons: RejectedParameters = field(default=REJECTED_PARAMETERS, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """One request, before it is sent.

    `body` may hold `Secret` values where the program put some, as `headers` does: `repr`, `str` and
    `as_dict()` show `***` there. `notes` say where each value came from and what became of it.
    """

    frame: PlanFrame
    body: Mapping[str, Any] | None
    notes: tuple[MappingNote, ...] = ()
    #: how many results the answer must have, for an operation with one per input
    expected: int | None = None

    def __repr__(self) -> str:
        return f"Plan({self.frame!r})"

    @property
    def operation(self) -> OperationName:
        """The name of the operation."""
        return self.frame.operation

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint: provider, model, format and credential."""
        return self.frame.endpoint

    @property
    def method(self) -> str:
        """The request's method."""
        return self.frame.method

    @property
    def target(self) -> str:
        """The request's path."""
        return self.frame.target

    @property
    def headers(self) -> tuple[tuple[str, str | Secret], ...]:
        """The request's headers, the key among them as a `Secret`."""
        return self.frame.headers

    @property
    def exchange(self) -> Exchange:
        """The facts that errors show."""
        return self.frame.exchange

    @property
    def timeout(self) -> float:
        """Seconds for the whole call."""
        return self.frame.timeout

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return self.frame.retries

    @property
    def stream(self) -> bool:
        """Whether the answer is streamed on the wire."""
        return self.frame.stream

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that the client emits as warnings."""
        return self.frame.warnings

    @property
    def dialect(self) -> Dialect:
        """The wire format."""
        return self.endpoint.dialect

    @property
    def url(self) -> str:
        """Where the request goes."""
        origin = self.frame.origin
        if origin is None:
            return f"http://127.0.0.1:(a port chosen at the start){self.target}"
        usual = {"https": 443, "http": 80}[origin.scheme]
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        return f"{origin.scheme}://{host}" + (f":{origin.port}" if origin.port != usual else "") + self.target

    @property
    def expires(self) -> float | None:
        """When the credential ends, in seconds since the epoch; None for one that does not."""
        credential = self.endpoint.credential
        return None if credential is None else credential.expires

    @property
    def route(self) -> str:
        """The operation's name among the routes: a stream may have one of its own."""
        apart = self.stream and self.dialect.routes.find("stream") is not None
        return "stream" if apart else self.operation

    def with_next_page(self, query: str, left: float) -> Plan:
        """The plan of the next page of a list, for which so many seconds are left."""
        target = f"{self.target.partition('?')[0]}?{query}"
        return Plan(replace(self.frame, target=target, timeout=left), self.body, self.notes)

    def with_model_list(self) -> Plan | None:
        """The plan for the list of models in the place of one for a single model, where there is a list."""
        target = self.endpoint.place.build_target(self.dialect.routes, "models")
        if target is None:
            return None
        origin = self.endpoint.get_origin("models")
        frame = replace(self.frame, operation="models", method="GET", target=target, origin=origin)
        return Plan(frame, None, self.notes)

    @property
    def request(self) -> HTTPRequest:
        """The request itself, with the key in it. Raises CredentialError where the provider wants one."""
        frame = self.frame
        endpoint = frame.endpoint
        if frame.origin is None:
            raise UsageError("the model on this machine does not run yet", code="usage.not-running")
        if endpoint.unkeyed is not None:
            raise copy(endpoint.unkeyed)
        body = b"" if self.body is None else encode_body(self.body)
        headers = frame.headers
        if endpoint.is_signed:
            headers = endpoint.sign_request(frame.method, self.url, headers, body)
        return HTTPRequest(
            method=frame.method,
            origin=frame.origin,
            target=frame.target,
            headers=headers,
            body=body,
            credential=endpoint.credential_name,
        )

    def decode_error(self, reply: Reply, now: float) -> ProviderError:
        """The error that this reply means."""
        known = self.exchange
        dated = Exchange(endpoint=known.endpoint, secrets=known.secrets, model=known.model, now=now)
        error = self.dialect.decode_error(reply.status, reply.headers, reply.body, dated)
        self.add_hint(error)
        return error

    def add_hint(self, error: NetError | ProviderError) -> None:
        """Let the error's hint say what is known here of the model, the key and the host."""
        set_error_hint(error, self.endpoint, self.operation)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON, secrets masked."""
        endpoint, secrets = self.endpoint, self.endpoint.secrets
        return {
            "operation": self.operation,
            "endpoint": endpoint.text,
            "provider": endpoint.provider.name,
            "dialect": endpoint.dialect.name,
            "profile": endpoint.profile.family,
            "model": endpoint.model,
            "credential": None if endpoint.credential is None else endpoint.credential.source,
            "unkeyed": None if endpoint.unkeyed is None else str(endpoint.unkeyed),
            "method": self.method,
            "url": self.url,
            "headers": {name: MARK if isinstance(value, Secret) else value for name, value in self.headers},
            "body": _mask_secrets(self.body, secrets),
            "timeout": self.timeout,
            "retries": self.retries,
            "stream": self.stream,
            "notes": [_mask_secrets(note.as_dict(), secrets) for note in self.notes],
            "warnings": list(self.warnings),
        }


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The body as JSON, secrets of pass-through parameters included."""
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        pass  # its text would hold the prompt
    raise UsageError("a text contains a lone surrogate, which UTF-8 cannot encode", code="usage.bad-message")


def _encode_special(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be part of a request's body")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_special)


def _mask_secrets(value: Any, secrets: Sequence[Secret]) -> Any:
    """Return `value` as plain data with every secret masked."""
    if isinstance(value, Secret):
        return MARK
    if isinstance(value, str):
        return redact(value, secrets=secrets)
    if isinstance(value, Mapping):
        return {name: _mask_secrets(item, secrets) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_secrets(item, secrets) for item in value]
    return value


def set_error_hint(error: NetError | ProviderError, endpoint: Endpoint, operation: OperationName) -> None:
    """Put into the error's hint how to go on, where the endpoint knows better than the error did."""
    hint = None
    if isinstance(error, ResolveError):
        hint = _suggest_alias(endpoint)
    elif isinstance(error, NotFoundError):
        if OPERATIONS[operation].names_model and endpoint.provider.capabilities["models"] != "no":
            hint = f"onym models list {endpoint.text} shows what there is"
    elif isinstance(error, AuthenticationError):
        hint = _describe_key_origin(endpoint)
    error.hint = hint or error.hint


def _suggest_alias(endpoint: Endpoint) -> str | None:
    """Aliases that a host of one word may have been meant for."""
    if endpoint.origin is None or "." in endpoint.origin.host:
        return None
    return format_suggestion(endpoint.origin.host, ProviderTable.builtin().aliases())


def _describe_key_origin(endpoint: Endpoint) -> str:
    if endpoint.credential is not None:
        return f"the key came from {redact(endpoint.credential.source, secrets=endpoint.secrets)}"
    names = endpoint.provider.key_variables
    return f"no key was sent; {f'export {names[0]}=… or ' if names else ''}point at one with ?auth=env:NAME"
