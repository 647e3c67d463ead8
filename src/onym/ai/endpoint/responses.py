"""Responses of an endpoint: problem documents, header fields, bodies and event streams over ASGI.

Internal errors are reported without details. An exit, an interrupt or a cancellation inside a handler ends
its call and not the server. The last event of a stream is its receipt (AIIP/HTTPS v1, 3.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from onym.ai.endpoint.context import Answer, StreamEvent
from onym.ai.problems import CODES, ProblemCode, find_problem_code
from onym.ai.request_validation import bad_request
from onym.errors import (
    AIIPError,
    AIURIError,
    ConfigError,
    DiscoveryError,
    InvocationError,
    NetError,
    OnymError,
    ProvenanceError,
    ProviderError,
    RateLimitError,
    SignatureError,
    URIError,
)
from onym.sign.receipts import StreamChain, StreamEnd
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Limits

T = TypeVar("T")


@contextmanager
def contain_faults() -> Iterator[None]:
    """Around what a function does within the task that awaits it.

    Raises OnymError `aiip.internal` from an exit, an interrupt, or a cancel that nobody asked this task for:
    a loop hands the first two on to whoever runs it, and takes the third for the end of the task.
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
    """What the work gives, in a thread whose result is awaited elsewhere. Raises as `contain_faults`.

    A future does not hold StopIteration, so that whoever awaits it waits for ever; and GeneratorExit out of a
    future ends all who wait.
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
    """Does it come from outside? A task counts its cancels; a coroutine is thrown away from elsewhere."""
    try:
        running = asyncio.current_task()
    except RuntimeError:
        return True
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return running is not task


#: RFC 9457 3
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
#: the path at the anchor that the type of a problem begins with; the code follows
TYPES: Final = "/.well-known/aiip/problems/"
_LONGEST_DETAIL: Final = 500
#: seconds after which a caller may ask again, where it may
_RETRY: Final = (("Retry-After", "1"),)
#: an error of another family: the code that a stranger is told. What stands first counts
_FAMILIES: Final[tuple[tuple[type[OnymError], str], ...]] = (
    (AIURIError, "malformed-uri"),
    (URIError, "bad-request"),
    (RateLimitError, "unavailable"),
    (ProviderError, "upstream-unreachable"),
    (NetError, "upstream-unreachable"),
    (ConfigError, "internal"),
)
#: codes whose errors say themselves whether the same request may do better later
_SAID: Final = frozenset({"idempotency-in-progress"})
_SPELLING: Final = frozenset({"ai.non-canonical"})


def encode_problem(
    error: BaseException,
    *,
    anchor: str,
    target: str | None,
    instance: str,
    trace: str | None = None,
    final: bool = False,
) -> Answer:
    """The answer that tells of this error. `target` is the canonical URI without its query.

    `trace` is the id of the caller's trace (W3C Trace Context), where there is one. With `final`, nobody is
    asked to try again, whatever the error is.
    """
    elsewhere = _is_from_other_call(error, target)
    row = _get_upstream_code(error) if elsewhere else _get_problem_code(error)
    # what another server or library said is not for strangers
    tells = not (elsewhere or is_internal(row) or _is_provenance_code(row))
    known = error if tells and isinstance(error, AIIPError | URIError) else None
    retryable = not final and _is_retryable(known, row)
    body: dict[str, Any] = {
        "type": anchor + TYPES + row.name,
        "title": row.title,
        "status": row.status,
        "detail": row.title if known is None else _format_detail(known),
        "instance": f"urn:uuid:{instance}",
        "code": row.name,
        "retryable": retryable,
    }
    body |= _build_members(known, target) | ({} if trace is None else {"trace": trace})
    headers = _RETRY if retryable and row.retryable else ()
    challenge = getattr(known, "challenge", None)
    if isinstance(challenge, str):
        headers = (*headers, ("WWW-Authenticate", challenge))
    return Answer(
        status=row.status, content_type=PROBLEM_MEDIA_TYPE, body=msgspec.json.encode(body), headers=headers
    )


def is_internal(row: ProblemCode) -> bool:
    """Is this a failure of the endpoint, whose reason is for its log alone?"""
    return row.name == "internal"


def _is_from_other_call(error: BaseException, target: str | None) -> bool:
    """Does it tell of a call that a function made? It is about another resource, or only clients raise it."""
    if isinstance(error, InvocationError | DiscoveryError | ProvenanceError):
        return True
    about = error.target if isinstance(error, AIIPError) else None
    resource = None if target is None or not isinstance(about, str) else _normalize_target(about)
    return resource is not None and resource != target


def _normalize_target(text: str) -> str | None:
    """The canonical URI without its query; None for what names no resource."""
    try:
        return str(AIURI.parse(text).without_query)
    except URIError:
        return None


def _get_upstream_code(error: BaseException) -> ProblemCode:
    """A call of the function failed: that, and at most in which way. Its status there is no status here."""
    row = _get_problem_code(error)
    known = not isinstance(error, InvocationError) and (
        _is_provenance_code(row) or row.name.startswith("upstream-")
    )
    return row if known else CODES["upstream-failed"]


def _is_retryable(known: OnymError | None, row: ProblemCode) -> bool:
    return getattr(known, "retryable", False) or (row.retryable and row.name not in _SAID)


def _is_provenance_code(row: ProblemCode) -> bool:
    return row.name.startswith("provenance-")


def _get_problem_code(error: BaseException) -> ProblemCode:
    if not isinstance(error, OnymError):
        return CODES["internal"]
    if error.code in _SPELLING:
        return CODES["non-canonical-uri"]
    found = find_problem_code(error.code) if error.code.startswith("aiip.") else None
    if found is not None:
        # a handler that asked elsewhere: which check failed there is no stranger's business (3.8)
        return CODES["provenance-invalid"] if _is_provenance_code(found) else found
    name = next((name for kind, name in _FAMILIES if isinstance(error, kind)), "internal")
    return CODES[name]


def _format_detail(error: OnymError) -> str:
    text = error.message if error.hint is None else f"{error.message} ({error.hint})"
    return text[:_LONGEST_DETAIL]


def _build_members(error: OnymError | None, target: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if target is None else {"target": target}
    if error is None:
        return found
    if error.code in _SPELLING and error.hint:
        found["canonical"] = error.hint
    for name in ("clause", "offset"):
        value = getattr(error, name, None)
        if value is not None:
            found[name] = value
    return found


Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

#: what a resource understands (3.6)
ALLOWED: Final = "GET, HEAD, OPTIONS, POST"
#: on every answer: nothing is to be guessed, kept or run by a browser that comes here by itself
_FIXED_FIELDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
)
#: of a handler's header fields, those that go out (3.14)
_ALLOWED_FIELDS: Final = frozenset(
    {
        "accept-post", "allow", "cache-control", "content-language", "etag", "idempotency-replayed",
        "last-modified", "preference-applied", "retry-after", "vary", "www-authenticate",
    }
)  # fmt: skip
#: statuses whose answers end with their head (RFC 9110 6.4.1): more would be read as the next answer
_BODILESS: Final = frozenset({204, 304})
_VISIBLE: Final = re.compile(r"[\t\x20-\x7e]*")
_KEEP: Final = ("Cache-Control", "private, no-store, no-transform")


async def read_body(receive: Receive, length: int | None, most: int) -> bytes | None:
    """The whole body; None where the caller went away before it was. Raises AIIPError `aiip.too-large`."""
    if length is not None and length > most:
        raise _make_size_error(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _make_size_error(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _make_size_error(most: int) -> AIIPError:
    return bad_request(f"the body is longer than {most} octets", code="too-large")


def get_sent_body(answer: Answer, *, head: bool = False) -> bytes:
    """What of this answer's body is sent: nothing to HEAD, and nothing where its status has none."""
    return b"" if head or answer.status in _BODILESS else answer.body


async def send_answer(
    send: Send, answer: Answer, *, receipt: str | None = None, head: bool = False, close: bool = False
) -> None:
    """A whole answer; to HEAD without its body. With `close`, it is the last one of its connection."""
    length = None if answer.status in _BODILESS else len(answer.body)
    await send_head(send, answer, receipt=receipt, length=length, close=close)
    await send({"type": "http.response.body", "body": get_sent_body(answer, head=head)})


async def send_head(
    send: Send,
    answer: Answer,
    *,
    receipt: str | None = None,
    length: int | None = None,
    close: bool = False,
) -> None:
    """The head of an answer. A handler's field that no head can hold is left out."""
    given = [
        (name.lower(), value)
        for name, value in answer.headers
        if name.lower() in _ALLOWED_FIELDS and _VISIBLE.fullmatch(value)
    ]
    if all(name != "cache-control" for name, _ in given):
        given.append(_KEEP)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given]
    if answer.content_type is not None:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if length is not None:
        headers.append((b"content-length", str(length).encode("ascii")))
    if close:
        headers.append((b"connection", b"close"))
    if receipt is not None:
        headers.append((b"aiip-receipt", receipt.encode("ascii")))
    message = {"type": "http.response.start", "status": answer.status, "headers": [*headers, *_FIXED_FIELDS]}
    await send(message)


EVENTS: Final = "text/event-stream"
_RESERVED: Final = frozenset({"receipt", "problem"})


class EventEncoder:
    """Events in, octets out, within the limits; keeps the chain."""

    def __init__(self, request_hash: str, limits: Limits) -> None:
        self._chain = StreamChain(request_hash)
        self._limits = limits
        self._count = 0
        self._octets = 0

    def encode(self, event: StreamEvent) -> bytes:
        """The octets of one event.

        Raises AIIPError `aiip.too-large`, and SignatureError for an event that a stream cannot carry.
        """
        if event.event in _RESERVED:
            raise SignatureError(
                f"an event of the type {event.event} is the endpoint's", code="sign.bad-event"
            )
        self._count += 1
        name = event.id or str(self._count)
        octets = encode_event(event.event, event.data, name)
        self._octets += len(octets)
        too_much = self._count > self._limits.stream_events or self._octets > self._limits.stream_bytes
        if too_much or len(octets) > self._limits.event_bytes:
            raise AIIPError("the stream is longer than the endpoint sends", code="aiip.too-large")
        self._chain.add(name, event.event, event.data)
        return octets

    @property
    def chain_end(self) -> StreamEnd:
        """The chain's end."""
        return self._chain.end


def encode_event(event: str, data: str, name: str | None = None) -> bytes:
    """One event as octets (WHATWG HTML 9.2.5)."""
    lines = [] if name is None else [f"id: {name}"]
    if event not in {"", "message"}:
        lines.append(f"event: {event}")
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "surrogatepass")


#: seconds that a caller may take for one piece; longer than servers wait that cut off idle ones themselves
_SEND_SECONDS: Final = 120.0
#: told the events that were sent, or None after a failure
StreamEndCallback: TypeAlias = Callable[[list[StreamEvent] | None], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class StreamingAnswer:
    """Events that are about to be sent. `release` gives their place back, `deadline` is of the loop's clock.

    `ends` is there where a key binds the endpoint to what it has begun.
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
        """Take the first event, if there is one: what fails before it is an answer of its own."""
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
    """The server's `send`, until it is closed: then nothing goes out. `lasting` survives a broken one."""

    def __init__(self, send: Send | None, *, lasting: bool) -> None:
        self._send = send
        self._lasting = lasting

    async def __call__(self, message: Any) -> None:
        """Send it, if anybody is there and takes it."""
        if self._send is None:
            return
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._send(message)
        except OSError:
            # ASGI 2.4: the caller has gone; or it reads nothing (TimeoutError is an OSError)
            self.close()
            if not self._lasting:
                raise

    def close(self) -> None:
        """Nothing more goes out: somebody else answers, or nobody."""
        self._send = None


async def send_events(stream: StreamingAnswer, wire: EventEncoder, send: Send) -> None:
    """Send the events, and tell `stream.ends` of them. Raises their error, and `aiip.upstream-timeout`."""
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
    """Close the events; what was not told of as sent was interrupted."""
    await close_events(stream.events)
    ends, stream.ends = stream.ends, None
    if ends is not None:
        await ends(None)


async def send_body_part(send: Send, octets: bytes, *, more: bool = True) -> None:
    """A piece of the body."""
    await send({"type": "http.response.body", "body": octets, "more_body": more})


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the caller has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def close_events(events: AsyncIterator[StreamEvent]) -> None:
    """Let the function behind the events clean up."""
    close = getattr(events, "aclose", None)
    if close is not None:
        # it has been told already, or nobody listens
        with contextlib.suppress(Exception), contain_faults():
            await close()
