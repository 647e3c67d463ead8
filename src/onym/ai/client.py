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
from typing import Any, Final, Generic, Self, TypeVar

from onym._lazy import require_extra
from onym.ai import client_flows, tasks
from onym.ai.credentials import Credentials
from onym.ai.discovery.resolution import resolve_uri
from onym.ai.discovery.well_known import fetch_key_history
from onym.ai.records import EVENTS, JSON, Description, Effects, Invocation, Resolution, Result, encode_json
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.settings import ResolverSettings
from onym.ai.telemetry import Telemetry, observe_call, observe_stream_call
from onym.errors import ProvenanceError, ResponseTooLarge, UsageError
from onym.net.config import NetConfig
from onym.net.limits import ClientIdentity, TLSConfig
from onym.net.messages import Flow, SSEEvent
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.uri.ai import AIURI

T = TypeVar("T")
AnyTransport = TypeVar("AnyTransport", bound=Transport | AsyncTransport)

#: bytes of a body that is stored
_LONGEST_BODY = 64 * 1024 * 1024


class _StreamState(Generic[AnyTransport]):
    """The state of a response that arrives in parts; no I/O."""

    def __init__(
        self,
        opened: client_flows.PendingAnswer,
        session: client_flows.Session,
        transport: AnyTransport,
        *,
        keep: bool = False,
    ) -> None:
        self._opened = opened
        self._keep = keep or opened.reader is None
        self._session = session
        self._transport = transport
        self._stream: Any = opened.reply.stream
        self._events: deque[SSEEvent] = deque()
        self._body: list[bytes] = []
        self._size = 0
        self._result = opened.result
        self._over = opened.result is not None

    @property
    def result(self) -> Result:
        """The result, after the stream has ended and its receipt was verified.

        Raises ProvenanceError before that.
        """
        if self._result is None:
            raise ProvenanceError(
                "the stream has not been read to its end, so its events are still provisional",
                code="aiip.provenance-missing",
                target=self._opened.attempt.target,
            )
        return self._result

    def _feed_bytes(self, data: bytes) -> Flow[Result] | None:
        """Take the next bytes; at the end (b"") return the verification of the whole response."""
        opened = self._opened
        if not data:
            self._over = True
            reply = replace(opened.reply, body=b"".join(self._body), stream=None)
            return client_flows.verify_answer(replace(opened, reply=reply), self._session)
        if opened.reader is not None:
            self._events.extend(opened.reader.feed(data))
        if self._keep:
            self._size += len(data)
            if self._size > _LONGEST_BODY:
                raise ResponseTooLarge(
                    f"the body is longer than {_LONGEST_BODY} bytes", endpoint=opened.attempt.target
                )
            self._body.append(data)
        return None

    def _end_call(self, error: BaseException | None = None) -> None:
        """End the observed call; without a result and an error it was abandoned."""
        call = self._opened.call
        if call is not None and error is None and self._result is None:
            call.abandon()
        elif call is not None:
            call.end(error)


class AIStream(_StreamState[Transport]):
    """The events of a response, provisional until `result` is available. Use it in a `with` statement.

    With `keep`, the bytes of the stream become the result's body, so that you can store them with the
    receipt.
    """

    def __iter__(self) -> Iterator[SSEEvent]:
        """Yield every event except the receipt; raise ProvenanceError at the end if it is invalid."""
        try:
            while not self._over:
                verification = self._feed_bytes(self._stream.read() if self._stream else b"")
                if verification is not None:
                    self._result = run_flow(verification, self._transport)
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._end_call(error)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Stop reading."""
        self._over = True
        self._end_call()
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAIStream(_StreamState[AsyncTransport]):
    """The async version of `AIStream`."""

    async def __aiter__(self) -> AsyncIterator[SSEEvent]:
        """Yield events as `AIStream` does."""
        try:
            while not self._over:
                verification = self._feed_bytes(await self._stream.aread() if self._stream else b"")
                if verification is not None:
                    self._result = await arun_flow(verification, self._transport)
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._end_call(error)
            raise
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop reading."""
        self._over = True
        self._end_call()
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


#: the draft requires "at least equivalent to TLS 1.3"
TLS: Final = TLSConfig(minimum="1.3")
_NETWORK: Final = NetConfig(policy=Policy.untrusted(), tls=TLS)
_STREAM: Final = f"{EVENTS}, */*;q=0.5"


class _Client(Generic[AnyTransport]):
    """The settings of a client; no I/O."""

    _transport_class: type[AnyTransport]

    def __init__(
        self,
        settings: ResolverSettings | None = None,
        *,
        policy: Policy | None = None,
        network: NetConfig | None = None,
        transport: AnyTransport | None = None,
        origin: str | None = None,
        credentials: Credentials | None = None,
        identity: ClientIdentity | None = None,
        identities: Mapping[str, ClientIdentity] | None = None,
        allow_effects: Collection[Effects | str] = client_flows.DEFAULT_EFFECTS,
        replays: Replays | None = None,
        timeout: float = 60.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        require_extra("joserfc", "ai")  # fail now, not when the first receipt arrives
        self.session = client_flows.Session(
            settings=client_flows.add_telemetry(settings or ResolverSettings(), telemetry),
            origin=origin,
            credentials=credentials,
            identity=identity or _get_own_identity(network),
            identities=dict(identities or {}),
            allow_effects=allow_effects,
            replays=replays or MemoryReplays(),
            timeout=timeout,
        )
        self._telemetry = self.session.settings.telemetry
        self._locks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._owns_transport = transport is None
        self._transport = transport or self._transport_class(_choose_network(policy, network))


def _get_own_identity(network: NetConfig | None) -> ClientIdentity | None:
    """Return the certificate that the transport itself has, for authorities without one of their own."""
    tls = None if network is None else network.tls
    if tls is None or tls.client_cert is None:
        return None
    return ClientIdentity(cert=tls.client_cert, key=tls.client_key, password=tls.client_key_password)


def _choose_network(policy: Policy | None, network: NetConfig | None) -> NetConfig:
    chosen = _NETWORK if network is None else replace(network, tls=replace(network.tls, minimum="1.3"))
    return chosen if policy is None else replace(chosen, policy=policy)


class AIClient(_Client[Transport]):
    """Resolves, describes and invokes ai URIs. Threads may share it; close it, or use it in a `with` block.

    `settings` control how authorities are found and what they must offer; `origin`, `credentials`,
    `identity`, `identities`, `allow_effects`, `replays` and `timeout` are those of `Session`. `policy` limits
    where requests may go (default: `Policy.untrusted()`, port 443 of public addresses). `network` sets
    certificate authorities, limits and more; TLS 1.3 is always required. The client does not close a
    `transport` that you pass. `telemetry` reports calls; the default is that of `settings`, or of
    `ONYM_TELEMETRY=1`.
    """

    _transport_class = Transport

    def resolve(self, uri: str | AIURI) -> Resolution:
        """Find the URI's service and keys. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        # one lookup at a time for an authority, so that the others find its result in the cache
        with self._locks.setdefault(target.authority_text or "", threading.Lock()):
            return run_flow(resolve_uri(target, self.session.settings), self._transport)

    def describe(self, uri: str | AIURI) -> Description:
        """Return the resource's description, which its endpoint has signed."""
        with observe_call(self._telemetry, "GET"):
            flow = client_flows.describe_resource(self.session, self.resolve(uri))
            return run_flow(flow, self._transport)

    def fetch_key_history(self, uri: str | AIURI) -> bytes:
        """Return the keys that the URI's authority has ever used, to verify saved receipts offline.

        The JWK Set is for `onym.sign.read_authority_keys(..., history=True)` and `onym ai verify --history`.
        Raises AIURIError, DiscoveryError, NetError.
        """
        flow = fetch_key_history(self.resolve(uri).document, self.session.settings)
        return run_flow(flow, self._transport)

    def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
    ) -> Result:
        """Invoke the resource with these arguments, or with a body of any type; return the verified result.

        `approval` is the evidence that people approved this very request, with this idempotency key. Raises
        AIURIError, DiscoveryError, DeniedError, ProvenanceError, InvocationError, NetError. ApprovalRequired
        has what people must approve, and the key of the request.
        """
        invocation = _build_invocation(uri, arguments, body, content_type, accept, idempotency_key, approval)
        with observe_call(self._telemetry, invocation.method):
            flow = client_flows.invoke_resource(self.session, invocation, self.resolve(invocation.uri))
            return run_flow(flow, self._transport)

    def stream(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        keep: bool = False,
    ) -> AIStream:
        """Invoke the resource and stream its events, which are provisional until the receipt is verified.

        `keep` stores the stream's bytes as the body of its `result`, up to 64 MiB. Raises what `invoke`
        raises. An InvocationError after the first event is unsigned.
        """
        invocation = _build_invocation(uri, arguments, body, content_type, _STREAM, idempotency_key, approval)
        with observe_stream_call(self._telemetry, invocation.method) as call:
            flow = client_flows.open_stream(self.session, invocation, self.resolve(invocation.uri))
            opened = run_flow(flow, self._transport)
        return AIStream(client_flows.attach_call(opened, call), self.session, self._transport, keep=keep)

    def start(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        wait: float | None = None,
    ) -> tasks.TaskHandle:
        """Invoke the resource as a long task, and return a handle of it.

        With `wait`, the endpoint may return the result if it comes within these seconds, and so may an
        endpoint without tasks; then the handle has the result, and no task. Raises what `invoke` raises.
        """
        invocation = _build_invocation(uri, arguments, body, content_type, None, idempotency_key, approval)
        with observe_call(self._telemetry, invocation.method):
            resolution = self.resolve(invocation.uri)
            flow = client_flows.start_task(self.session, tasks.ask_for_task(invocation, wait), resolution)
            result = self.run(flow)
        if not tasks.is_task_result(result):
            return tasks.TaskHandle(None, None, None, result, self)
        status = tasks.parse_task_status(result, request=result.receipt.request)
        reference = tasks.build_reference(resolution, status)
        return tasks.TaskHandle(
            reference, status, tasks.TaskFlows(self.session, resolution, reference), None, self
        )

    def task(self, reference: tasks.TaskReference) -> tasks.TaskHandle:
        """Return a handle of a task that was begun earlier, perhaps by another process."""
        resolution = self.resolve(reference.uri)
        return tasks.TaskHandle(
            reference, None, tasks.TaskFlows(self.session, resolution, reference), None, self
        )

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow of `onym.ai.client_flows` or `onym.ai.tasks` with this client's connections."""
        return run_flow(flow, self._transport)

    def read_stream(self, opened: client_flows.PendingAnswer) -> AIStream:
        """Return the events of a response that a flow has opened."""
        return AIStream(opened, self.session, self._transport)

    def close(self) -> None:
        """Close the connections."""
        if self._owns_transport:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAIClient(_Client[AsyncTransport]):
    """The async version of `AIClient`, with the same arguments."""

    _transport_class = AsyncTransport

    async def resolve(self, uri: str | AIURI) -> Resolution:
        """Find the URI's service and keys. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        async with self._locks.setdefault(target.authority_text or "", asyncio.Lock()):
            return await arun_flow(resolve_uri(target, self.session.settings), self._transport)

    async def describe(self, uri: str | AIURI) -> Description:
        """Return the resource's description, which its endpoint has signed."""
        with observe_call(self._telemetry, "GET"):
            flow = client_flows.describe_resource(self.session, await self.resolve(uri))
            return await arun_flow(flow, self._transport)

    async def fetch_key_history(self, uri: str | AIURI) -> bytes:
        """Return the keys that the URI's authority has ever used, to verify saved receipts offline."""
        flow = fetch_key_history((await self.resolve(uri)).document, self.session.settings)
        return await arun_flow(flow, self._transport)

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
    ) -> Result:
        """Invoke the resource and return the verified result; see `AIClient.invoke`."""
        invocation = _build_invocation(uri, arguments, body, content_type, accept, idempotency_key, approval)
        with observe_call(self._telemetry, invocation.method):
            resolution = await self.resolve(invocation.uri)
            flow = client_flows.invoke_resource(self.session, invocation, resolution)
            return await arun_flow(flow, self._transport)

    async def stream(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        keep: bool = False,
    ) -> AsyncAIStream:
        """Invoke the resource and stream its events; see `AIClient.stream`."""
        invocation = _build_invocation(uri, arguments, body, content_type, _STREAM, idempotency_key, approval)
        with observe_stream_call(self._telemetry, invocation.method) as call:
            flow = client_flows.open_stream(self.session, invocation, await self.resolve(invocation.uri))
            opened = await arun_flow(flow, self._transport)
        return AsyncAIStream(client_flows.attach_call(opened, call), self.session, self._transport, keep=keep)

    async def exchange(
        self,
        invocation: Invocation,
        resolution: Resolution | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> Result:
        """Send one request and verify its response, whatever its status.

        This is for gateways: they have a policy of their own, so the session's policy is not checked, and
        `credentials` of the person who asks, which replace those of the client.
        """
        resolution = resolution or await self.resolve(invocation.uri)
        session = self.session if credentials is None else replace(self.session, credentials=credentials)
        flow = client_flows.run_exchange(session, invocation, resolution)
        return await arun_flow(flow, self._transport)

    async def exchange_stream(
        self,
        invocation: Invocation,
        resolution: Resolution | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> AsyncAIStream:
        """Do what `exchange` does, with the events of a stream as they arrive."""
        resolution = resolution or await self.resolve(invocation.uri)
        session = self.session if credentials is None else replace(self.session, credentials=credentials)
        flow = client_flows.begin_exchange(session, invocation, resolution)
        return AsyncAIStream(await arun_flow(flow, self._transport), self.session, self._transport)

    async def start(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        wait: float | None = None,
    ) -> tasks.AsyncTaskHandle:
        """Invoke the resource as a long task; see `AIClient.start`."""
        invocation = _build_invocation(uri, arguments, body, content_type, None, idempotency_key, approval)
        with observe_call(self._telemetry, invocation.method):
            resolution = await self.resolve(invocation.uri)
            flow = client_flows.start_task(self.session, tasks.ask_for_task(invocation, wait), resolution)
            result = await self.run(flow)
        if not tasks.is_task_result(result):
            return tasks.AsyncTaskHandle(None, None, None, result, self)
        status = tasks.parse_task_status(result, request=result.receipt.request)
        reference = tasks.build_reference(resolution, status)
        return tasks.AsyncTaskHandle(
            reference, status, tasks.TaskFlows(self.session, resolution, reference), None, self
        )

    async def task(self, reference: tasks.TaskReference) -> tasks.AsyncTaskHandle:
        """Return a handle of a task that was begun earlier."""
        resolution = await self.resolve(reference.uri)
        return tasks.AsyncTaskHandle(
            reference, None, tasks.TaskFlows(self.session, resolution, reference), None, self
        )

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow of `onym.ai.client_flows` or `onym.ai.tasks` with this client's connections."""
        return await arun_flow(flow, self._transport)

    def read_stream(self, opened: client_flows.PendingAnswer) -> AsyncAIStream:
        """Return the events of a response that a flow has opened."""
        return AsyncAIStream(opened, self.session, self._transport)

    async def close(self) -> None:
        """Close the connections."""
        if self._owns_transport:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _build_invocation(
    uri: str | AIURI,
    arguments: Mapping[str, Any] | None,
    body: bytes | None,
    content_type: str | None,
    accept: str | None,
    idempotency_key: str | None,
    approval: str | None = None,
) -> Invocation:
    if arguments is not None:
        if body is not None:
            raise UsageError("arguments and body cannot both be given", code="usage.bad-argument")
        try:
            body, content_type = encode_json(dict(arguments)), JSON
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError("the arguments cannot be encoded as JSON", code="usage.bad-argument") from error
    if body and content_type is None:
        raise UsageError("a body needs a content_type", code="usage.bad-argument")
    return Invocation(
        uri=AIURI.parse(uri).target,
        body=body or b"",
        content_type=content_type if body else None,
        accept=accept,
        idempotency_key=idempotency_key,
        approval=approval,
    )
