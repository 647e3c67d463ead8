"""What a call would send, as one value: `explain` prints it and the flow sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from onym.errors import NetError, ProviderError, UsageError
from onym.llm._learned import LESSONS, Lessons
from onym.llm.dialects import Exchange
from onym.llm.mapping import MappingNote, OnUnsupported
from onym.net.messages import HTTPRequest, Origin, Reply
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint
    from onym.llm.dialects import Dialect

__all__ = ["Frame", "Operation", "Plan", "encode"]

Operation: TypeAlias = Literal["chat", "embed", "models", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What all plans of one kind of call share, made once: everything but the body."""

    operation: Operation
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
    lessons: Lessons = field(default=LESSONS, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """One request, before it is sent.

    `body` may hold `Secret` values where the program put some, as `headers` does: `repr`, `str` and
    `as_dict()` show `***` there. `notes` say where each value came from and what became of it.
    """

    frame: Frame
    body: Mapping[str, Any] | None
    notes: tuple[MappingNote, ...] = ()

    def __repr__(self) -> str:
        return f"Plan({self.frame!r})"

    @property
    def operation(self) -> Operation:
        """What is asked for."""
        return self.frame.operation

    @property
    def endpoint(self) -> Endpoint:
        """Who is on the other side."""
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
        """What errors say of it."""
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
        """Sentences that the client hands to whoever makes the call."""
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
        apart = self.stream and self.dialect.routes.stream is not None
        return "stream" if apart else self.operation

    def following(self, query: str, left: float) -> Plan:
        """The plan of the next page of a list, for which so many seconds are left."""
        target = f"{self.target.partition('?')[0]}?{query}"
        return Plan(replace(self.frame, target=target, timeout=left), self.body, self.notes)

    def listing(self) -> Plan | None:
        """The plan for the list of models in the place of one for a single model, where there is a list."""
        target = self.endpoint.place.target(self.dialect.routes, "models")
        if target is None:
            return None
        origin = self.endpoint.origin_of("models")
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
        body = b"" if self.body is None else encode(self.body)
        headers = frame.headers
        if endpoint.signed:
            headers = endpoint.sign(frame.method, self.url, headers, body)
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
        self.explain(error)
        return error

    def explain(self, error: NetError | ProviderError) -> None:
        """Let the error's hint say what is known here of the model, the key and the host."""
        from onym.llm._hints import add_hint  # a failure alone needs it

        add_hint(error, self.endpoint, self.operation)

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
            "body": _masked(self.body, secrets),
            "timeout": self.timeout,
            "retries": self.retries,
            "stream": self.stream,
            "notes": [_masked(note.as_dict(), secrets) for note in self.notes],
            "warnings": list(self.warnings),
        }


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON, secrets of pass-through parameters included."""
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        pass  # its text would hold the prompt
    raise UsageError("a text holds a lone surrogate, which no request can carry", code="usage.bad-message")


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot stand in a request's body")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def _masked(value: Any, secrets: Sequence[Secret]) -> Any:
    """`value` as plain data for people: no secret in it, whoever put it there."""
    if isinstance(value, Secret):
        return MARK
    if isinstance(value, str):
        return redact(value, secrets=secrets)
    if isinstance(value, Mapping):
        return {name: _masked(item, secrets) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, secrets) for item in value]
    return value
