"""The interface between an endpoint and its handlers: calls, answers, protocols, limits. No I/O."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from onym.ai.records import ANONYMOUS_AUDIENCE, JSON
from onym.errors import UsageError
from onym.net.messages import Headers
from onym.uri.ai import AIURI


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
class Caller:
    """A caller.

    `audience` is the `aud` of its receipts: the client, an anonymous caller's origin, or "anonymous".

    `client_id`, `subject` and `token_hash` (`ath`, RFC 9449) come from an access token; None without one.
    """

    audience: str
    client_id: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    token_hash: str | None = None


#: a caller with neither token nor origin
ANONYMOUS: Final = Caller(audience=ANONYMOUS_AUDIENCE)


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


class Authorization(Protocol):
    """Authenticates callers. `onym.ai.endpoint.oauth.JWTAuthorization` is one."""

    async def authorize(self, headers: Headers, scopes: frozenset[str]) -> Caller:
        """Return the caller, who has all of these scopes.

        Raises AIIPError `aiip.authentication-required` or `aiip.insufficient-scope`. The endpoint uses two
        attributes of the error if they are set: `challenge`, the value of WWW-Authenticate, and `caller`, the
        caller if it is known, so that the error response can be signed.
        """
        ...

    def metadata(self) -> Mapping[str, Any]:
        """Return the protected resource's metadata (RFC 9728): `resource`, `authorization_servers`, ..."""
        ...
