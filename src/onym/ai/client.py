"""The AIIP client: `AIClient`, `AsyncAIClient` and the event streams that they return.

Both clients drive the generators of `client_flows`. They release a result only after its receipt has been
verified: who answered, for which caller, to which request, and that no byte was changed.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, cast

from onym._lazy import require_extra
from onym.ai import client_flows
from onym.ai.client_flows import DEFAULT_EFFECTS, PendingAnswer, Session, Tokens, resolve_uri, verify_answer
from onym.ai.exchange import EVENTS
from onym.ai.json_encoding import encode_json
from onym.ai.records import Description, Effects, Invocation, Resolution, Result
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.settings import ResolverSettings
from onym.ai.telemetry import add_telemetry, attach_call, observe_call, observe_stream_call
from onym.errors import ProvenanceError, ResponseTooLarge, UsageError
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from types import TracebackType

    from onym.ai.telemetry import Telemetry
    from onym.net.messages import AsyncStreamBody, StreamBody
    from onym.net.sse import SSEEvent

#: octets of a body that is kept
_LONGEST_BODY = 64 * 1024 * 1024


class _StreamState:
    """How far an answer has come; no I/O."""

    def __init__(self, opened: PendingAnswer, session: Session, keep: bool) -> None:
        self._opened = opened
        self._keep = keep or opened.reader is None
        self._session = session
        self._events: deque[SSEEvent] = deque()
        self._body: list[bytes] = []
        self._size = 0
        self._result = opened.result
        self._over = opened.result is not None

    @property
    def result(self) -> Result:
        """The result, once the stream has ended and its receipt holds. Raises ProvenanceError before."""
        if self._result is None:
            raise ProvenanceError(
                "the stream has not been read to its end: what came is provisional",
                code="aiip.provenance-missing",
                target=self._opened.question.target,
            )
        return self._result

    def _feed_bytes(self, data: bytes) -> None:
        if self._opened.reader is not None:
            self._events.extend(self._opened.reader.feed(data))
        if not self._keep:
            return
        self._size += len(data)
        if self._size > _LONGEST_BODY:
            raise ResponseTooLarge("the body is too large", endpoint=self._opened.question.target)
        self._body.append(data)

    def _end_call(self, error: BaseException | None = None) -> None:
        """Tell whoever observes the call; without an error it is good, or left before its end."""
        call = self._opened.call
        if call is None:
            return
        if error is None and self._result is None:
            call.abandon()
        else:
            call.end(error)

    def _get_buffered_answer(self) -> PendingAnswer:
        """What was opened, with the body that has come."""
        return replace(
            self._opened, reply=replace(self._opened.reply, body=b"".join(self._body), stream=None)
        )


class AIStream(_StreamState):
    """The events of an answer, provisional until `result` is there. Use it in a `with` statement.

    With `keep`, the octets of the stream are the result's body, to be filed with its receipt.
    """

    def __init__(
        self, opened: PendingAnswer, session: Session, transport: Transport, *, keep: bool = False
    ) -> None:
        super().__init__(opened, session, keep)
        self._transport = transport
        self._stream = cast("StreamBody | None", opened.reply.stream)

    def __iter__(self) -> Iterator[SSEEvent]:
        """Every event but the receipt; raises ProvenanceError at the end of a stream that does not hold."""
        try:
            while not self._over:
                data = self._stream.read() if self._stream else b""
                if data:
                    self._feed_bytes(data)
                else:
                    self._over = True
                    self._result = run_flow(
                        verify_answer(self._get_buffered_answer(), self._session), self._transport
                    )
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._end_call(error)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Read no more of it."""
        self._over = True
        self._end_call()
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncAIStream(_StreamState):
    """`AIStream`, for coroutines."""

    def __init__(
        self, opened: PendingAnswer, session: Session, transport: AsyncTransport, *, keep: bool = False
    ) -> None:
        super().__init__(opened, session, keep)
        self._transport = transport
        self._stream = cast("AsyncStreamBody | None", opened.reply.stream)

    async def __aiter__(self) -> AsyncIterator[SSEEvent]:
        """As `AIStream`."""
        try:
            while not self._over:
                data = await self._stream.aread() if self._stream else b""
                if data:
                    self._feed_bytes(data)
                else:
                    self._over = True
                    self._result = await arun_flow(
                        verify_answer(self._get_buffered_answer(), self._session), self._transport
                    )
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._end_call(error)
            raise
        finally:
            await self.close()

    async def close(self) -> None:
        """Read no more of it."""
        self._over = True
        self._end_call()
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


#: the draft asks for "at least equivalent to TLS 1.3"
TLS: Final = TLSConfig(minimum="1.3")
_STREAM: Final = f"{EVENTS}, */*;q=0.5"


def _build_session(
    settings: ResolverSettings | None,
    origin: str | None,
    tokens: Tokens | None,
    allow_effects: Collection[Effects | str],
    replays: Replays | None,
    timeout: float,
    telemetry: Telemetry | None,
) -> Session:
    require_extra("joserfc", "ai")  # now, and not when the first receipt has come
    return Session(
        settings=add_telemetry(settings or ResolverSettings(), telemetry),
        origin=origin,
        tokens=tokens,
        allow_effects=allow_effects,
        replays=replays or MemoryReplays(),
        timeout=timeout,
    )


class AIClient:
    """Resolves, describes and invokes ai URIs. Threads may share it; close it, or use it in a `with` block.

    `settings` say how authorities are found and what they must offer; `origin`, `tokens`, `allow_effects`,
    `replays` and `timeout` are those of `Session`. `policy` says where requests may go
    (`Policy.untrusted()` by default: port 443 of public addresses). A `transport` of your own is not closed.
    `telemetry` reports calls; without it, and without that of `settings`, only `ONYM_TELEMETRY=1` does.
    """

    def __init__(
        self,
        settings: ResolverSettings | None = None,
        *,
        policy: Policy | None = None,
        transport: Transport | None = None,
        origin: str | None = None,
        tokens: Tokens | None = None,
        allow_effects: Collection[Effects | str] = DEFAULT_EFFECTS,
        replays: Replays | None = None,
        timeout: float = 60.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.session = _build_session(settings, origin, tokens, allow_effects, replays, timeout, telemetry)
        self._telemetry = self.session.settings.telemetry
        self._locks: weakref.WeakValueDictionary[str, _WeakLock] = weakref.WeakValueDictionary()
        self._own = transport is None
        self._transport = transport or Transport(policy or Policy.untrusted(), tls=TLS)

    def resolve(self, uri: str | AIURI) -> Resolution:
        """Where the URI leads, and whose keys sign there. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        # one look-up at a time for an authority: the others find its answer in the cache
        guard = self._locks.setdefault(target.authority_text or "", _WeakLock())
        with guard.lock:
            return run_flow(resolve_uri(target, self.session.settings), self._transport)

    def describe(self, uri: str | AIURI) -> Description:
        """What the resource is, as its endpoint says and signs."""
        with observe_call(self._telemetry, "GET"):
            description, _ = run_flow(
                client_flows.describe_resource(self.session, self.resolve(uri)), self._transport
            )
        return description

    def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """The verified result of an invocation with these arguments, or with a body of any type.

        Raises AIURIError, DiscoveryError, DeniedError, ProvenanceError, InvocationError, NetError.
        """
        asked = _build_invocation(uri, arguments, body, content_type, accept, idempotency_key)
        with observe_call(self._telemetry, asked.method):
            return run_flow(
                client_flows.invoke_resource(self.session, asked, self.resolve(asked.uri)), self._transport
            )

    def stream(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        keep: bool = False,
    ) -> AIStream:
        """The same as events while they come: provisional, until the stream's own receipt has proved them.

        `keep` keeps the stream's octets as the body of its `result`, up to 64 MiB. Raises as `invoke`, here
        for what comes before the first event; while the events come InvocationError is unsigned.
        """
        asked = _build_invocation(uri, arguments, body, content_type, _STREAM, idempotency_key)
        with observe_stream_call(self._telemetry, asked.method) as whole:
            opened = run_flow(
                client_flows.open_stream(self.session, asked, self.resolve(asked.uri)), self._transport
            )
        return AIStream(attach_call(opened, whole), self.session, self._transport, keep=keep)

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncAIClient:
    """`AIClient` for coroutines; the arguments mean the same."""

    def __init__(
        self,
        settings: ResolverSettings | None = None,
        *,
        policy: Policy | None = None,
        transport: AsyncTransport | None = None,
        origin: str | None = None,
        tokens: Tokens | None = None,
        allow_effects: Collection[Effects | str] = DEFAULT_EFFECTS,
        replays: Replays | None = None,
        timeout: float = 60.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.session = _build_session(settings, origin, tokens, allow_effects, replays, timeout, telemetry)
        self._telemetry = self.session.settings.telemetry
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._own = transport is None
        self._transport = transport or AsyncTransport(policy or Policy.untrusted(), tls=TLS)

    async def resolve(self, uri: str | AIURI) -> Resolution:
        """Where the URI leads, and whose keys sign there. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        async with self._locks.setdefault(target.authority_text or "", asyncio.Lock()):
            return await arun_flow(resolve_uri(target, self.session.settings), self._transport)

    async def describe(self, uri: str | AIURI) -> Description:
        """What the resource is, as its endpoint says and signs."""
        with observe_call(self._telemetry, "GET"):
            resolution = await self.resolve(uri)
            description, _ = await arun_flow(
                client_flows.describe_resource(self.session, resolution), self._transport
            )
        return description

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """The verified result of an invocation; see `AIClient.invoke`."""
        asked = _build_invocation(uri, arguments, body, content_type, accept, idempotency_key)
        with observe_call(self._telemetry, asked.method):
            resolution = await self.resolve(asked.uri)
            return await arun_flow(
                client_flows.invoke_resource(self.session, asked, resolution), self._transport
            )

    async def stream(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        keep: bool = False,
    ) -> AsyncAIStream:
        """The same as events while they come: provisional, until the stream's own receipt has proved them.

        `keep` keeps the stream's octets as the body of its `result`, up to 64 MiB.
        """
        asked = _build_invocation(uri, arguments, body, content_type, _STREAM, idempotency_key)
        with observe_stream_call(self._telemetry, asked.method) as whole:
            resolution = await self.resolve(asked.uri)
            opened = await arun_flow(
                client_flows.open_stream(self.session, asked, resolution), self._transport
            )
        return AsyncAIStream(attach_call(opened, whole), self.session, self._transport, keep=keep)

    async def exchange(self, invocation: Invocation, resolution: Resolution | None = None) -> Result:
        """One request as it is given, its answer verified whatever its status; for gateways.

        The caller's own policy is not asked: whoever forwards requests has one of its own.
        """
        found = resolution or await self.resolve(invocation.uri)
        return await arun_flow(client_flows.run_exchange(self.session, invocation, found), self._transport)

    async def exchange_stream(
        self, invocation: Invocation, resolution: Resolution | None = None
    ) -> AsyncAIStream:
        """`exchange`, with the events of a stream as they come; else its `result` is there at once."""
        found = resolution or await self.resolve(invocation.uri)
        opened = await arun_flow(
            client_flows.begin_exchange(self.session, invocation, found), self._transport
        )
        return AsyncAIStream(opened, self.session, self._transport)

    async def close(self) -> None:
        """Close the connections."""
        if self._own:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _WeakLock:
    """A lock that a weak dictionary can hold."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


def _build_invocation(
    uri: str | AIURI,
    arguments: Mapping[str, Any] | None,
    body: bytes | None,
    content_type: str | None,
    accept: str | None,
    idempotency_key: str | None,
) -> Invocation:
    if arguments is not None:
        if body is not None:
            raise UsageError("arguments or a body, not both", code="usage.bad-argument")
        body, content_type = _encode_arguments(arguments), "application/json"
    if body and content_type is None:
        raise UsageError("a body needs its content_type", code="usage.bad-argument")
    return Invocation(
        uri=AIURI.parse(uri).target,
        body=body or b"",
        content_type=content_type if body else None,
        accept=accept,
        idempotency_key=idempotency_key,
    )


def _encode_arguments(arguments: Mapping[str, Any]) -> bytes:
    try:
        return encode_json(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("the arguments cannot be written as JSON", code="usage.bad-argument") from error
