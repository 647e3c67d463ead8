"""Resources of an endpoint, the documents at its anchor, and its responses over ASGI.

Internal errors are reported without details. An exit, an interrupt or a cancellation inside a handler ends
its call and not the server. The last event of a stream is its receipt (AIIP/HTTPS v1, 3.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from onym.ai import discovery_document
from onym.ai.endpoint.context import Answer, Limits, ResourceHandler, StreamEvent
from onym.ai.endpoint.signing import ALGORITHMS, METADATA_LIFE, ReceiptSigner
from onym.ai.messages import (
    CODES,
    LONGEST_DETAIL,
    ProblemCode,
    bad_request,
    build_problem_document,
    get_problem_code,
)
from onym.ai.records import JSON, PROBLEM, AnchorDocument, Approver, Effects, EndpointEntry, Requirements
from onym.errors import (
    AIIPError,
    AIURIError,
    DiscoveryError,
    InvocationError,
    NetError,
    OnymError,
    ProvenanceError,
    SignatureError,
    URIError,
    UsageError,
)
from onym.sign.receipts import StreamChain
from onym.uri.ai import AIURI

T = TypeVar("T")


@contextmanager
def contain_faults() -> Iterator[None]:
    """Contain the faults of a function that runs in the task that awaits it.

    Raises OnymError `aiip.internal` from an exit, an interrupt, or a cancellation that was not requested for
    this task. An event loop would pass on the first two to its caller and end the task for the third.
    """
    task = asyncio.current_task()
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if _is_external(task, error):
            raise
        raise _make_fault(error) from error


def call_contained(work: Callable[..., T], *args: Any) -> T:
    """Run the work in a thread whose result is awaited elsewhere. Raises as `contain_faults` does.

    A future cannot contain StopIteration, so its waiter would wait for ever; GeneratorExit from a future
    would end every waiter.
    """
    try:
        return work(*args)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise _make_fault(error) from error


def _make_fault(error: BaseException) -> OnymError:
    return OnymError(f"the function raised {type(error).__name__}", code="aiip.internal")


def _is_external(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """Report whether the error comes from outside: a cancellation of the task, or a closed coroutine."""
    try:
        running = asyncio.current_task()
    except RuntimeError:
        return True
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return running is not task


#: the prefix of a problem's type, a path at the anchor; the code follows
TYPES: Final = "/.well-known/aiip/problems/"
#: seconds after which a caller may retry
_RETRY: Final = (("Retry-After", "1"),)
#: where an endpoint differs from the common table: failures of its own work, without details for the caller
_EXCEPTIONS: Final[tuple[tuple[type[OnymError], str], ...]] = (
    (AIURIError, "malformed-uri"),
    (URIError, "bad-request"),
    (NetError, "upstream-unreachable"),
    (SignatureError, "internal"),
)
#: codes whose errors know whether a retry may help
_SELF_REPORTED: Final = frozenset({"idempotency-in-progress"})
_NON_CANONICAL: Final = "ai.non-canonical"


def encode_problem(
    error: BaseException,
    *,
    anchor: str,
    target: str | None,
    instance: str,
    trace: str | None = None,
    final: bool = False,
) -> Answer:
    """Return the error response. `target` is the canonical URI without its query.

    `trace` is the ID of the caller's trace (W3C Trace Context), or None. With `final`, the response does not
    ask for a retry.
    """
    elsewhere = _is_from_other_call(error, target)
    row = _get_upstream_code(error) if elsewhere else _get_row(error)
    # messages of other servers and libraries are not for untrusted callers
    is_public = not (elsewhere or row.name == "internal" or _is_provenance_code(row))
    public = error if is_public and isinstance(error, AIIPError | URIError) else None
    wait = getattr(public, "retry_after", None)
    by_code = row.retryable and row.name not in _SELF_REPORTED and wait is None
    retryable = not final and (getattr(public, "retryable", False) or by_code)
    hint = "" if public is None or public.hint is None else f" ({public.hint})"
    body = build_problem_document(
        row,
        type_uri=anchor + TYPES + row.name,
        detail=row.title if public is None else f"{public.message}{hint}"[:LONGEST_DETAIL],
        request_id=instance,
        retryable=retryable,
        target=target,
        canonical=None if public is None or public.code != _NON_CANONICAL else public.hint or None,
        clause=getattr(public, "clause", None),
        offset=getattr(public, "offset", None),
        trace=trace,
        transaction_challenge=getattr(public, "transaction_challenge", None),
    )
    headers: tuple[tuple[str, str], ...] = _RETRY if retryable and row.retryable else ()
    if wait is not None and not final:
        headers = (("Retry-After", str(wait)),)
    challenge = getattr(public, "challenge", None)
    challenges = (challenge,) if isinstance(challenge, str) else challenge or ()
    headers = (*headers, *(("WWW-Authenticate", value) for value in challenges))
    nonce = getattr(public, "dpop_nonce", None)
    if isinstance(nonce, str):
        headers = (*headers, ("DPoP-Nonce", nonce))
    return Answer(status=row.status, content_type=PROBLEM, body=msgspec.json.encode(body), headers=headers)


def _is_from_other_call(error: BaseException, target: str | None) -> bool:
    """Report whether a call of the function failed: another resource is named, or a client raised it."""
    if isinstance(error, InvocationError | DiscoveryError | ProvenanceError):
        return True
    if target is None or not isinstance(error, AIIPError) or not isinstance(error.target, str):
        return False
    try:
        return str(AIURI.parse(error.target).without_query) != target
    except URIError:
        return False


def _get_upstream_code(error: BaseException) -> ProblemCode:
    """Return the row for a call of the function that failed; only its kind is public."""
    row = _get_row(error)
    known = _is_provenance_code(row) or row.name.startswith("upstream-")
    return row if known and not isinstance(error, InvocationError) else CODES["upstream-failed"]


def _is_provenance_code(row: ProblemCode) -> bool:
    return row.name.startswith("provenance-")


def _get_row(error: BaseException) -> ProblemCode:
    row = get_problem_code(error, _EXCEPTIONS)
    # untrusted callers do not learn which check of a receipt failed (3.8)
    return CODES["provenance-invalid"] if _is_provenance_code(row) else row


Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

#: the methods of a resource (3.6)
ALLOWED: Final = "GET, HEAD, OPTIONS, POST"
#: on every response: a browser must not guess its type or run anything
_FIXED_FIELDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
)
#: a handler's header fields that are sent (3.14)
_ALLOWED_FIELDS: Final = frozenset(
    {
        "accept-post", "allow", "cache-control", "content-language", "dpop-nonce", "etag",
        "idempotency-replayed", "last-modified", "preference-applied", "retry-after", "vary",
        "www-authenticate",
    }
)  # fmt: skip
#: statuses without a body (RFC 9110 6.4.1): a body would be parsed as the next response
_BODILESS: Final = frozenset({204, 304})
_VISIBLE: Final = re.compile(r"[\t\x20-\x7e]*")
_NO_STORE: Final = (b"cache-control", b"private, no-store, no-transform")


def add_nonce(send: Send, nonce: str | None) -> Send:
    """Return a `send` that gives the caller the nonce for its next proof, if it needs one (RFC 9449 8.2)."""
    if nonce is None:
        return send

    async def send_with_nonce(message: Any) -> None:
        if message["type"] == "http.response.start":
            fields = [field for field in message["headers"] if field[0].lower() != b"dpop-nonce"]
            message = {**message, "headers": [*fields, (b"dpop-nonce", nonce.encode("ascii"))]}
        await send(message)

    return send_with_nonce


async def read_body(receive: Receive, length: int | None, most: int) -> bytes | None:
    """Return the whole body, or None if the caller disconnected. Raises AIIPError `aiip.too-large`."""
    parts: list[bytes] = []
    size = 0
    while size <= most and (length is None or length <= most):
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size <= most and not message.get("more_body", False):
            return b"".join(parts)
    raise bad_request(f"the body is longer than {most} bytes", code="too-large")


def get_sent_body(answer: Answer, *, head: bool = False) -> bytes:
    """Return the part of the body that is sent: nothing for HEAD and for a status without a body."""
    return b"" if head or answer.status in _BODILESS else answer.body


async def send_answer(
    send: Send, answer: Answer, *, receipt: str | None = None, head: bool = False, close: bool = False
) -> None:
    """Send a whole response, to HEAD without its body. With `close`, the connection ends after it."""
    length = None if answer.status in _BODILESS else len(answer.body)
    await send_head(send, answer, receipt=receipt, length=length, close=close)
    await send({"type": "http.response.body", "body": get_sent_body(answer, head=head)})


async def send_head(
    send: Send, answer: Answer, *, receipt: str | None = None, length: int | None = None, close: bool = False
) -> None:
    """Send the head of a response, without fields that are not allowed or not valid."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.headers
        if _is_allowed(name.lower(), answer.status) and _VISIBLE.fullmatch(value)
    ]
    if all(name != b"cache-control" for name, _ in headers):
        headers.append(_NO_STORE)
    if answer.content_type is not None:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if length is not None:
        headers.append((b"content-length", str(length).encode("ascii")))
    if close:
        headers.append((b"connection", b"close"))
    if receipt is not None:
        headers.append((b"aiip-receipt", receipt.encode("ascii")))
    headers += _FIXED_FIELDS
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


def _is_allowed(name: str, status: int) -> bool:
    # the Location of a redirect would lead callers to another server; that of a task does not (3.12)
    return name in _ALLOWED_FIELDS or (name == "location" and status == 202)


_RESERVED: Final = frozenset({"receipt", "problem"})


class EventEncoder:
    """Encodes events within the limits, and updates the hash chain."""

    def __init__(self, request_hash: str, limits: Limits) -> None:
        self.chain = StreamChain(request_hash)
        self._limits = limits
        self._count = 0
        self._octets = 0

    def encode(self, event: StreamEvent) -> bytes:
        """Encode one event.

        Raises AIIPError `aiip.too-large`, and SignatureError for an event that a stream cannot contain.
        """
        if event.event in _RESERVED:
            raise SignatureError(
                f"the event type {event.event} is reserved for the endpoint", code="sign.bad-event"
            )
        self._count += 1
        name = event.id or str(self._count)
        octets = encode_event(event.event, event.data, name)
        self._octets += len(octets)
        too_much = self._count > self._limits.stream_events or self._octets > self._limits.stream_bytes
        if too_much or len(octets) > self._limits.event_bytes:
            raise AIIPError("the stream exceeds the endpoint's limits", code="aiip.too-large")
        self.chain.add(name, event.event, event.data)
        return octets


def encode_event(event: str, data: str, name: str | None = None) -> bytes:
    """Encode one event (WHATWG HTML 9.2.5)."""
    lines = [] if name is None else [f"id: {name}"]
    if event not in {"", "message"}:
        lines.append(f"event: {event}")
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "surrogatepass")


#: seconds that a caller may take to read one part; longer than the idle timeouts of servers
_SEND_SECONDS: Final = 120.0
#: called with the events that were sent, or with None after a failure
StreamEndCallback: TypeAlias = Callable[[list[StreamEvent] | None], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class StreamingAnswer:
    """Events to be sent. `release` frees their slot, `deadline` is a time of the event loop's clock.

    `ends` is set if an idempotency key obliges the endpoint to complete the stream.
    """

    events: AsyncIterator[StreamEvent]
    headers: tuple[tuple[str, str], ...] = ()
    ends: StreamEndCallback | None = None
    deadline: float = 0.0
    release: Callable[[], None] = field(default=lambda: None)


class HandlerEvents:
    """The events of a handler, which may fail in any way."""

    def __init__(self, source: AsyncIterator[StreamEvent]) -> None:
        self._source = source
        self._ahead: list[StreamEvent] = []
        self._over = False

    async def prefetch(self) -> None:
        """Fetch the first event, so that an earlier failure becomes a response of its own."""
        try:
            self._ahead.append(await self._get_next())
        except StopAsyncIteration:
            self._over = True

    def __aiter__(self) -> HandlerEvents:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._over:
            raise StopAsyncIteration
        return self._ahead.pop() if self._ahead else await self._get_next()

    async def aclose(self) -> None:
        """Let the function clean up."""
        await close_events(self._source)

    async def _get_next(self) -> StreamEvent:
        with contain_faults():
            return await anext(self._source)


class ResponseSender:
    """Sends messages with the server's `send`. With `lasting`, a broken connection is not an error."""

    def __init__(self, send: Send | None, *, lasting: bool) -> None:
        self._send = send
        self._lasting = lasting

    async def __call__(self, message: Any) -> None:
        """Send the message, unless the sender is closed."""
        if self._send is None:
            return
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._send(message)
        except OSError:
            # the caller has disconnected (ASGI 2.4), or reads nothing (TimeoutError is an OSError)
            self.close()
            if not self._lasting:
                raise

    def close(self) -> None:
        """Stop sending, because another response may be sent."""
        self._send = None


async def send_events(stream: StreamingAnswer, wire: EventEncoder, send: Send) -> None:
    """Send the events and pass them to `stream.ends`. Raises their error, and `aiip.upstream-timeout`."""
    sent: list[StreamEvent] = []
    limit = asyncio.timeout_at(stream.deadline)
    try:
        async with limit:
            async for event in stream.events:
                octets = wire.encode(event)
                if stream.ends is not None:
                    sent.append(event)
                await send_body_part(send, octets)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AIIPError(
            "the stream took longer than the endpoint allows", code="aiip.upstream-timeout"
        ) from error
    if stream.ends is not None:
        await stream.ends(sent)
        stream.ends = None


async def close_stream(stream: StreamingAnswer) -> None:
    """Close the events; without a report to `stream.ends` before, the stream was interrupted."""
    await close_events(stream.events)
    ends, stream.ends = stream.ends, None
    if ends is not None:
        await ends(None)


async def send_body_part(send: Send, octets: bytes, *, more: bool = True) -> None:
    """Send a part of the body."""
    await send({"type": "http.response.body", "body": octets, "more_body": more})


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the caller disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def close_events(events: AsyncIterator[StreamEvent]) -> None:
    """Let the function behind the events clean up."""
    close = getattr(events, "aclose", None)
    if close is not None:
        # the error was reported before, or the caller has disconnected
        with contextlib.suppress(Exception), contain_faults():
            await close()


#: paths at the anchor
JWKS: Final = "/.well-known/aiip.jwks.json"
PREFIX: Final = "/.well-known/aiip/v1"
_PROTECTED: Final = "/.well-known/oauth-protected-resource"
_KEYS: Final = "application/jwk-set+json"
#: seconds for which clients may cache a document
_ANCHOR_AGE: Final = 300
_KEYS_AGE: Final = 3600
#: bytes of a token without the signed members: its other claims, its header, a signature of RSA 8192
_TOKEN_ROOM: Final = 2_048
#: effects that need idempotency keys (3.11)
KEYED_EFFECTS: Final = frozenset({Effects.WRITE, Effects.FINANCIAL, Effects.PHYSICAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource. `uri` is canonical, without a query. `reversible` is about `write` effects.

    `approval` tells that its calls may need an approval (3.13). Callers must have signed in with one of
    `acr_values`, and at most `max_age` seconds ago (RFC 9470); empty and None demand nothing.
    """

    uri: str
    handler: ResourceHandler
    title: str | None = None
    effects: Effects = Effects.READ
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    accepts: str = JSON
    reversible: bool = False
    #: may a call run as a long task (3.12)?
    task: bool = False
    approval: bool = False
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None

    @property
    def entry(self) -> EndpointEntry:
        """Its entry in the discovery document."""
        return EndpointEntry(
            uri=self.uri,
            title=self.title,
            effects=self.effects,
            scopes=self.scopes,
            idempotency=self.idempotency,
            reversible=self.reversible,
            asynchronous=self.task,
            approval=self.approval,
        )

    def encode_description(self) -> bytes:
        """Return the resource's description (3.6)."""
        known = dict(self.handler.describe())
        title = known.pop("title", None)
        members = known | {
            "uri": self.uri,
            "title": self.title or title,
            "methods": ["GET", "POST"],
            "effects": self.effects.value,
            "scopes": list(self.scopes),
            "idempotency": self.idempotency,
            "async": self.task,
            "approval": self.approval,
            "reversible": self.reversible or None,
        }
        return msgspec.json.encode({name: value for name, value in members.items() if value is not None})


def build_resource_uri(authority: str, path: object) -> AIURI:
    """Return the URI of a path of this authority.

    Raises UsageError for a path that is not canonical or has a query, and for other types: a decorator
    without parentheses gets the function.
    """
    if not isinstance(path, str):
        raise UsageError("a resource needs a path", hint='Write @app.resource("/tool/...").')
    if not path.startswith("/"):
        # the URI would continue the authority's name
        raise UsageError(f"the path {path!r} does not begin with a slash", hint=f"Write /{path}.")
    uri = AIURI.parse(f"ai://{authority}{path}")
    if uri.query is not None or uri.fragment is not None or uri.canonical() != str(uri):
        hint = f"Write {str(uri.without_query).removeprefix(f'ai://{authority}')}."
        raise UsageError(f"the path {path!r} is not in canonical form, or has a query", hint=hint)
    return uri


@dataclass(slots=True, kw_only=True)
class Site:
    """The documents of one anchor; `protected` is the RFC 9728 metadata if callers need tokens.

    `requirements` are those for callers.

    With `signed`, the discovery document has `signed_metadata`.
    """

    anchor: str
    authority: str
    protected: Mapping[str, Any] | None
    origins: tuple[str, ...]
    pin_max_age: int
    requirements: Requirements
    keys_age: int = _KEYS_AGE
    signed: bool = False
    approvers: tuple[Approver, ...] = ()
    resources: dict[str, Resource] = field(default_factory=dict)
    _written: dict[tuple[str, ...], bytes] = field(default_factory=dict, init=False)
    #: the key ID and the content of the last signed document, when it was signed, and its bytes
    _signed: tuple[tuple[str | None, bytes], float, bytes] | None = field(default=None, init=False)

    @property
    def identifier(self) -> str:
        """The identifier of the service as a resource (RFC 9728)."""
        return str((self.protected or {}).get("resource") or self.anchor + PREFIX)

    def has_target(self, target: str) -> bool:
        """Report whether a URI belongs to this authority, since endpoints of others may share a store."""
        return target.startswith(f"ai://{self.authority}/")

    def add(self, resource: Resource) -> None:
        """Add a resource.

        Raises UsageError for a URI that exists and if the discovery document becomes too large.
        """
        if resource.uri in self.resources:
            raise UsageError(f"the resource {resource.uri} exists already")
        self.resources[resource.uri] = resource
        self._written.clear()
        try:
            # clients must be able to parse what is published
            discovery_document.parse_discovery_document(
                self._encode_largest(), anchor=self.anchor, authority=self.authority
            )
        except OnymError as error:
            del self.resources[resource.uri]
            self._written.clear()
            raise UsageError(f"the discovery document cannot list {resource.uri}: {error.message}") from error

    def encode_document(self, algorithms: tuple[str, ...] = ALGORITHMS) -> bytes:
        """Return the discovery document. `algorithms` are those of receipts."""
        written = self._written.get(algorithms)
        if written is None:
            written = self._written[algorithms] = discovery_document.encode_discovery_document(
                self._build_document(algorithms)
            )
        return written

    def _encode_largest(self) -> bytes:
        """Return the document with room for the largest signature."""
        plain = self.encode_document()
        if not self.signed:
            return plain
        # base64url of the same members, the token's own claims and the longest signature
        room = min((len(plain) + _TOKEN_ROOM) * 4 // 3, discovery_document.MAX_OCTETS)
        return discovery_document.encode_discovery_document(self._build_document(ALGORITHMS), "x" * room)

    def encode_published(self, keys: ReceiptSigner) -> bytes:
        """Return the discovery document as it is served.

        Raises AIIPError if it must be signed and cannot be.
        """
        plain = self.encode_document(algorithms := keys.list_algorithms())
        if not self.signed:
            return plain
        key, now = (keys.get_signer().kid, plain), keys.clock()
        # a change, or half its life, needs a new signature
        if (
            self._signed is not None
            and self._signed[0] == key
            and 0 <= now - self._signed[1] < METADATA_LIFE / 2
        ):
            return self._signed[2]
        document = self._build_document(algorithms)
        token = keys.sign_document_members(discovery_document.document_to_members(document))
        octets = discovery_document.encode_discovery_document(document, token)
        self._signed = (key, now, octets)
        return octets

    def _build_document(self, algorithms: tuple[str, ...]) -> AnchorDocument:
        rows = tuple(resource.entry for resource in self.resources.values())
        protected = self.protected or {}
        return AnchorDocument(
            anchor=self.anchor,
            authority=self.authority,
            service=self.anchor + PREFIX,
            jwks=self.anchor + JWKS,
            endpoints=rows,
            scopes=tuple(sorted({scope for row in rows for scope in row.scopes})),
            requirements=self.requirements,
            authorization_servers=tuple(protected.get("authorization_servers", ())),
            resource=protected.get("resource"),
            algorithms=algorithms,
            origins=self.origins,
            pin_max_age=self.pin_max_age,
            approvers=self.approvers,
        )

    def find_document(self, path: str, query: str, keys: ReceiptSigner) -> Answer | None:
        """Return the document at this path, or None. `keys` publishes the key sets."""
        if path == JWKS and query in {"", "history"}:
            return _make_public_answer(keys.encode_keys("history" if query else "jwks"), _KEYS, self.keys_age)
        if query:
            return None
        if path == discovery_document.WELL_KNOWN:
            return _make_public_answer(self.encode_published(keys), JSON, _ANCHOR_AGE)
        if self.protected is not None and path == self._get_metadata_path():
            return _make_public_answer(msgspec.json.encode(self.protected), JSON, _ANCHOR_AGE)
        row = CODES.get(path.removeprefix(TYPES)) if path.startswith(TYPES) else None
        if row is None:
            return None
        text = f"{row.name}: {row.title}\n".encode()
        return _make_public_answer(text, "text/plain; charset=utf-8", _ANCHOR_AGE)

    def _get_metadata_path(self) -> str:
        # RFC 9728 3.1: the well-known part comes before the resource's path
        path = str((self.protected or {}).get("resource", "")).removeprefix(self.anchor)
        return _PROTECTED + ("" if path == "/" else path)


def apply_if_none_match(answer: Answer, conditions: Iterable[str]) -> Answer:
    """Return the document, or 304 if the caller has it by the fields If-None-Match (RFC 9110 13.1.2)."""
    tag = next((value for name, value in answer.headers if name == "ETag"), None)
    known = {item.strip().removeprefix("W/") for value in conditions for item in value.split(",")}
    if tag is None or known.isdisjoint({tag, "*"}):
        return answer
    return replace(answer, status=304, content_type=None, body=b"")


def _make_public_answer(body: bytes, content_type: str, age: int) -> Answer:
    tag = urlsafe_b64encode(sha256(body).digest()[:18]).decode("ascii")
    headers = (("Cache-Control", f"public, max-age={age}"), ("ETag", f'"{tag}"'))
    return Answer(content_type=content_type, body=body, headers=headers)
