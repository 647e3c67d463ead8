"""The interface between an endpoint and its handlers: limits, calls, answers and protocols."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import msgspec

from onym.ai.records import ANONYMOUS_AUDIENCE, JSON
from onym.errors import UsageError
from onym.net.messages import Headers
from onym.sign.receipts import ApprovalReference
from onym.uri.ai import AIURI

FormT = TypeVar("FormT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one endpoint. Sizes are in bytes, times in seconds.

    `concurrent` limits the running invocations; a stream counts until it ends. `share` limits those of one
    caller (a client with a token, or a network address); the default is half of `concurrent` or of `threads`,
    whichever is less. `threads` limits the synchronous functions that run at the same time. When one of them
    exceeds its time limit, it keeps its thread until it returns; it counts as running only if an idempotency
    key waits for its result. `seconds` is the time limit of a whole result, `stream_seconds` that of a
    stream. `depth` is the nesting of arrays and objects in JSON. `keys` limits the idempotency keys of one
    caller in 24 hours, `kept` the bytes of the answers stored for them, `kept_total` those of all callers.

    `tasks_running` and `tasks_kept` limit the unfinished and the stored tasks of one caller, `tasks_total`
    those of all callers; those without a token may have half of them. `task_slots` limits the tasks that one
    process runs at the same time; the others wait. `task_seconds` is the time limit of a task, `task_events`
    and `task_bytes` those of its events. A task without room for more events cannot ask for input.
    """

    body: int = 1024 * 1024
    answer: int = 16 * 1024 * 1024
    depth: int = 32
    concurrent: int = 128
    share: int | None = None
    threads: int = 128
    seconds: float = 60.0
    stream_seconds: float = 600.0
    stream_events: int = 100_000
    stream_bytes: int = 16 * 1024 * 1024
    event_bytes: int = 256 * 1024
    keys: int = 10_000
    kept: int = 64 * 1024 * 1024
    kept_total: int = 1024 * 1024 * 1024
    tasks_running: int = 100
    tasks_kept: int = 1_000
    tasks_total: int = 10_000
    task_slots: int = 64
    task_seconds: float = 24 * 3600.0
    task_events: int = 10_000
    task_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        if any((value := getattr(self, name)) is not None and value <= 0 for name in self.__slots__):
            raise UsageError("a limit must be greater than zero")

    @property
    def of_one_caller(self) -> int:
        """The invocations that one caller may have at the same time."""
        # one caller must not occupy all threads
        return (min(self.concurrent, self.threads) + 1) // 2 if self.share is None else self.share


#: a valid content type; longer ones would not fit into a receipt
CONTENT_TYPE: Final = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A party that acts for the subject of an access token (RFC 8693 4.1), by its issuer if that is named."""

    subject: str
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller.

    `audience` is the `aud` of its receipts: the client, an anonymous caller's origin, or "anonymous".

    `client_id`, `subject` and `token_hash` (`ath`, RFC 9449) come from an access token; None without one.
    `actors` act for the subject; the first one is the current actor, and each acts for the next.
    `acr` and `auth_time` (seconds since the epoch) are about the sign-in of the subject (RFC 9470), if known.

    `key` is the thumbprint of the DPoP key that the token is bound to (`cnf.jkt`), and `certificate` that of
    the client certificate (`cnf.x5t#S256`); the caller has proved them. `proof_request_hash` is
    the request (`rqh`) that its DPoP proof is for, if the proof names one. `next_nonce` is sent to the caller
    for its next proof.
    """

    audience: str
    client_id: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    token_hash: str | None = None
    actors: tuple[Actor, ...] = ()
    acr: str | None = None
    auth_time: float | None = None
    key: str | None = None
    certificate: str | None = None
    proof_request_hash: str | None = field(default=None, repr=False)
    next_nonce: str | None = field(default=None, repr=False, compare=False)


#: a caller with neither token nor origin
ANONYMOUS: Final = Caller(audience=ANONYMOUS_AUDIENCE)


class Task(Protocol):
    """The long task in which a coroutine function runs: a parameter of this type gets it (3.12).

    The same function may be called without a task, by a caller that waits for the result: then `progress` and
    `checkpoint` do nothing, and `ask` raises AIIPError.
    """

    @property
    def id(self) -> str | None:
        """The ID of the task; None if the caller waits for the result."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked to cancel the task."""
        ...

    @property
    def restored(self) -> Any:
        """The value of the last checkpoint, if this call continues an interrupted one; else None."""
        ...

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress. Onym may skip reports that follow each other quickly."""
        ...

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the caller has asked to cancel the task."""
        ...

    async def checkpoint(self, value: Any) -> None:
        """Store a JSON value, from which the function can continue after a crash; durable on return.

        With this call the function declares that it may be called again with `restored`. Raises AIIPError
        `aiip.too-large` for more than 64 KiB, and `aiip.interrupted` if another process has taken over.
        """
        ...

    async def ask(self, form: type[FormT], question: str) -> FormT:
        """Ask the caller for input of this type, which msgspec supports, and return it.

        Raises TaskCancelled, and AIIPError `aiip.bad-request` if the caller waits for the result.
        """
        ...


class ThreadTask(Protocol):
    """The long task in which a plain function runs, in a thread: `Task` with methods that wait."""

    @property
    def id(self) -> str | None:
        """The ID of the task; None if the caller waits for the result."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked to cancel the task."""
        ...

    @property
    def restored(self) -> Any:
        """The value of the last checkpoint, if this call continues an interrupted one; else None."""
        ...

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress. Onym may skip reports that follow each other quickly."""
        ...

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the caller has asked to cancel the task."""
        ...

    def checkpoint(self, value: Any) -> None:
        """Store a JSON value; see `Task.checkpoint`."""
        ...

    def ask(self, form: type[FormT], question: str) -> FormT:
        """Ask the caller for input; see `Task.ask`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One validated invocation: the target is canonical, the body within its limit, the caller authorised.

    `uri` contains the query but no fragment; `parameters` are those of the query, decoded, in order. `nonce`
    is the value of AIIP-Nonce. `headers` are all fields of the request.
    """

    uri: AIURI
    caller: Caller
    method: str = "POST"
    parameters: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str | None = None
    headers: Headers = field(repr=False)
    nonce: str | None = None
    idempotency_key: str | None = None
    #: the hash that binds the answer to this request (`rqh`, 3.8)
    request_hash: str
    #: set if the call runs as a long task (3.12)
    task: Task | None = field(default=None, repr=False, compare=False)


def identify_caller(caller: Caller) -> str:
    """Return the client and the person that a task belongs to."""
    return msgspec.json.encode([caller.client_id, caller.subject, caller.audience]).decode()


class _StoredCall(msgspec.Struct, array_like=True):
    """The request of a task. The header fields are not stored, because they contain the access token."""

    uri: str
    body: bytes
    content_type: str | None
    key: str | None
    request: str
    audience: str
    client_id: str | None
    subject: str | None
    scopes: tuple[str, ...]
    token_hash: str | None
    approval: ApprovalReference | None = None


def encode_call(call: Call, approval: ApprovalReference | None = None) -> bytes:
    """Encode the call for the store, with the approval that it spends."""
    caller = call.caller
    return msgspec.msgpack.encode(
        _StoredCall(
            uri=str(call.uri),
            body=call.body,
            content_type=call.content_type,
            key=call.idempotency_key,
            request=call.request_hash,
            audience=caller.audience,
            client_id=caller.client_id,
            subject=caller.subject,
            scopes=tuple(sorted(caller.scopes)),
            token_hash=caller.token_hash,
            approval=approval,
        )
    )


def decode_approval(octets: bytes) -> ApprovalReference | None:
    """Return the approval of a stored call, which the receipts of its result name."""
    return msgspec.msgpack.decode(octets, type=_StoredCall).approval


def decode_call(octets: bytes) -> Call:
    """Decode a stored call, which has no header fields."""
    stored = msgspec.msgpack.decode(octets, type=_StoredCall)
    uri = AIURI.parse(stored.uri)
    return Call(
        uri=uri,
        caller=Caller(
            audience=stored.audience,
            client_id=stored.client_id,
            subject=stored.subject,
            scopes=frozenset(stored.scopes),
            token_hash=stored.token_hash,
        ),
        parameters=uri.parameters,
        body=stored.body,
        content_type=stored.content_type,
        headers=Headers([]),
        idempotency_key=stored.key,
        request_hash=stored.request,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole result. `headers` are more fields, of those that 3.14 allows (ETag, Retry-After)."""

    status: int = 200
    content_type: str | None = JSON
    body: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of a streaming result. `event` is its type; "receipt" and "problem" are reserved.

    Events without an ID are numbered from 1.
    """

    data: str
    event: str = "message"
    id: str | None = None


class ResourceHandler(Protocol):
    """The implementation of one resource: a Python function, a model, a tool or an agent."""

    def describe(self) -> Mapping[str, Any]:
        """Return members of the description: title, input, output (JSON Schemas)."""
        ...

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Return the result, or the events of a streaming result.

        Raises OnymError, whose code the caller sees; any other exception is reported as `internal`, without
        its text. Invalid input is rejected before the first event.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """The part of a request that decides who the caller is, and what the caller must have.

    `url` is the configured URL of the request without its query. `certificate` is the client's, in DER, if
    TLS has verified one. The caller must have all of `scopes`, a sign-in of one of `acr_values`, and one that
    is at most `max_age` seconds old (RFC 9470); empty and None demand nothing.
    """

    method: str
    url: str
    headers: Headers = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    scopes: frozenset[str] = frozenset()
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None


class Authorization(Protocol):
    """Authenticates callers. `onym.ai.endpoint.oauth.JWTAuthorization` is one.

    An authorization may have an attribute `requirements` (`onym.ai.records.Requirements`), which the endpoint
    publishes in its discovery document; the default is that callers need a token.
    """

    async def authorize(self, request: AccessRequest) -> Caller:
        """Return the caller, who has everything that the request demands.

        Raises AIIPError `aiip.authentication-required`, `aiip.sender-constraint`, `aiip.insufficient-scope`
        or `aiip.step-up-required`. The endpoint uses three attributes of the error if they are set:
        `challenge`, the value or values of WWW-Authenticate, `dpop_nonce`, the value of DPoP-Nonce, and
        `caller`, the caller if it is known, so that the error response can be signed.
        """
        ...

    def metadata(self) -> Mapping[str, Any]:
        """Return the protected resource's metadata (RFC 9728): `resource`, `authorization_servers`, ..."""
        ...
