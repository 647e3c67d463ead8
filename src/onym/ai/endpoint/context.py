"""The interface between an endpoint and its handlers: calls, answers, protocols, limits. No I/O."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.ai.content import JSON
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.net.messages import Headers
    from onym.uri.ai import AIURI


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps of one endpoint. Sizes are octets, times seconds.

    `concurrent` counts invocations that run, streams until they end; `share` those of them that one caller
    may have (a client with a token, else a network address), where it is None half of `concurrent` or of
    `threads`, whichever is less; `threads` those that are plain functions and are at work at one time. One
    that is out of its time keeps its thread until it returns; it counts on where an idempotency key waits
    for its result, and else no more. `seconds` is for a whole
    result, `stream_seconds` for a streaming one. `depth` is that of arrays and objects in JSON. `keys` are
    the idempotency keys that one caller may use in 24 hours, `kept` the octets of answers kept under them,
    `kept_total` those of all callers.
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
            raise UsageError("a limit is greater than zero")

    @property
    def of_one_caller(self) -> int:
        """Invocations that one caller may have at once."""
        # all of the threads in the hands of one caller would leave the others none
        return (min(self.concurrent, self.threads) + 1) // 2 if self.share is None else self.share


#: what a content type is made of; longer ones would not leave a receipt its room
CONTENT_TYPE: Final = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who invokes. `audience` is the `aud` of receipts: a client, an anonymous caller's origin, "anonymous".

    `client_id`, `subject` and `token_hash` (`ath`, RFC 9449) come from an access token; None without one.
    """

    audience: str
    client_id: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    token_hash: str | None = None


#: a caller that shows nothing of itself
ANONYMOUS: Final = Caller(audience="anonymous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One invocation, checked: the target is canonical, the body within its cap, the caller allowed.

    `uri` has its query and no fragment; `parameters` are those of the query, decoded, in order. `nonce` is
    what the caller sent in AIIP-Nonce. `headers` are all fields of the request.
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
    """A whole result. `headers` are further fields of those that 3.14 lets through (ETag, Retry-After)."""

    status: int = 200
    content_type: str | None = JSON
    body: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of a streaming result. `event` is its name; "receipt" is the endpoint's own and refused.

    Events without an id are numbered from 1.
    """

    data: str
    event: str = "message"
    id: str | None = None


class ResourceHandler(Protocol):
    """What stands behind one resource: a Python function, a model, a tool, an agent."""

    def describe(self) -> Mapping[str, Any]:
        """Members of the description that the handler knows: title, input, output (JSON Schemas)."""
        ...

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """The result, or the events of a streaming one.

        Raises OnymError, whose code the caller is told; any other exception is told as `internal`, without
        its text. Whatever can refuse the input does so before the first event.
        """
        ...


class Authorization(Protocol):
    """Who may call. `onym.ai.endpoint.oauth.JWTAuthorization` is one."""

    async def authorize(self, headers: Headers, scopes: frozenset[str]) -> Caller:
        """The caller, with all of these scopes.

        Raises AIIPError `aiip.authentication-required` or `aiip.insufficient-scope`. Two attributes of the
        error are read where they are set: `challenge`, what WWW-Authenticate says, and `caller`, who it was
        all the same, so that the refusal can be signed.
        """
        ...

    def metadata(self) -> Mapping[str, Any]:
        """The protected resource's metadata (RFC 9728): `resource`, `authorization_servers`, ..."""
        ...
