"""`AIClient` and `AsyncAIClient`: two thin drivers over the flows of resolution and of one exchange.

What they give out was verified before: who answered, for whom, to which request, and that no octet was
changed on the way.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from onym._lazy import require
from onym.ai import flow
from onym.ai._finite import encode
from onym.ai._observe import begun, call, observed, part
from onym.ai._stream import AIStream, AsyncAIStream
from onym.ai.exchange import EVENTS
from onym.ai.records import Description, Effects, Invocation, Resolution, Result
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.resolver import resolve
from onym.ai.session import HARMLESS, Session, Tokens
from onym.ai.settings import ResolverSettings
from onym.errors import UsageError
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport, arun, run
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from types import TracebackType

    from onym.ai.telemetry import Telemetry

__all__ = ["AIClient", "AsyncAIClient"]

#: the draft asks for "at least equivalent to TLS 1.3"
TLS: Final = TLSConfig(minimum="1.3")
_STREAM: Final = f"{EVENTS}, */*;q=0.5"


def _session(
    settings: ResolverSettings | None,
    origin: str | None,
    tokens: Tokens | None,
    allow_effects: Collection[Effects | str],
    replays: Replays | None,
    timeout: float,
    telemetry: Telemetry | None,
) -> Session:
    require("joserfc", "ai")  # now, and not when the first receipt has come
    return Session(
        settings=observed(settings or ResolverSettings(), telemetry),
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
        allow_effects: Collection[Effects | str] = HARMLESS,
        replays: Replays | None = None,
        timeout: float = 60.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.session = _session(settings, origin, tokens, allow_effects, replays, timeout, telemetry)
        self._telemetry = self.session.settings.telemetry
        self._locks: weakref.WeakValueDictionary[str, _Guard] = weakref.WeakValueDictionary()
        self._own = transport is None
        self._transport = transport or Transport(policy or Policy.untrusted(), tls=TLS)

    def resolve(self, uri: str | AIURI) -> Resolution:
        """Where the URI leads, and whose keys sign there. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        # one look-up at a time for an authority: the others find its answer in the cache
        guard = self._locks.setdefault(target.authority_text or "", _Guard())
        with guard.lock:
            return run(resolve(target, self.session.settings), self._transport)

    def describe(self, uri: str | AIURI) -> Description:
        """What the resource is, as its endpoint says and signs."""
        with call(self._telemetry, "GET"):
            description, _ = run(flow.describe(self.session, self.resolve(uri)), self._transport)
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
        asked = _invocation(uri, arguments, body, content_type, accept, idempotency_key)
        with call(self._telemetry, asked.method):
            return run(flow.invoke(self.session, asked, self.resolve(asked.uri)), self._transport)

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
        asked = _invocation(uri, arguments, body, content_type, _STREAM, idempotency_key)
        with begun(self._telemetry, asked.method) as whole:
            opened = run(flow.open_stream(self.session, asked, self.resolve(asked.uri)), self._transport)
        return AIStream(part(opened, whole), self.session, self._transport, keep=keep)

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
        allow_effects: Collection[Effects | str] = HARMLESS,
        replays: Replays | None = None,
        timeout: float = 60.0,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.session = _session(settings, origin, tokens, allow_effects, replays, timeout, telemetry)
        self._telemetry = self.session.settings.telemetry
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._own = transport is None
        self._transport = transport or AsyncTransport(policy or Policy.untrusted(), tls=TLS)

    async def resolve(self, uri: str | AIURI) -> Resolution:
        """Where the URI leads, and whose keys sign there. Raises AIURIError, DiscoveryError, NetError."""
        target = AIURI.parse(uri).target
        async with self._locks.setdefault(target.authority_text or "", asyncio.Lock()):
            return await arun(resolve(target, self.session.settings), self._transport)

    async def describe(self, uri: str | AIURI) -> Description:
        """What the resource is, as its endpoint says and signs."""
        with call(self._telemetry, "GET"):
            resolution = await self.resolve(uri)
            description, _ = await arun(flow.describe(self.session, resolution), self._transport)
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
        asked = _invocation(uri, arguments, body, content_type, accept, idempotency_key)
        with call(self._telemetry, asked.method):
            resolution = await self.resolve(asked.uri)
            return await arun(flow.invoke(self.session, asked, resolution), self._transport)

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
        asked = _invocation(uri, arguments, body, content_type, _STREAM, idempotency_key)
        with begun(self._telemetry, asked.method) as whole:
            resolution = await self.resolve(asked.uri)
            opened = await arun(flow.open_stream(self.session, asked, resolution), self._transport)
        return AsyncAIStream(part(opened, whole), self.session, self._transport, keep=keep)

    async def exchange(self, invocation: Invocation, resolution: Resolution | None = None) -> Result:
        """One request as it is given, its answer verified whatever its status; for gateways.

        The caller's own policy is not asked: whoever forwards requests has one of its own.
        """
        found = resolution or await self.resolve(invocation.uri)
        return await arun(flow.exchange(self.session, invocation, found), self._transport)

    async def exchange_stream(
        self, invocation: Invocation, resolution: Resolution | None = None
    ) -> AsyncAIStream:
        """`exchange`, with the events of a stream as they come; else its `result` is there at once."""
        found = resolution or await self.resolve(invocation.uri)
        opened = await arun(flow.begin(self.session, invocation, found), self._transport)
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


class _Guard:
    """A lock that a weak dictionary can hold."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


def _invocation(
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
        body, content_type = _encoded(arguments), "application/json"
    if body and content_type is None:
        raise UsageError("a body needs its content_type", code="usage.bad-argument")
    return Invocation(
        uri=AIURI.parse(uri).target,
        body=body or b"",
        content_type=content_type if body else None,
        accept=accept,
        idempotency_key=idempotency_key,
    )


def _encoded(arguments: Mapping[str, Any]) -> bytes:
    try:
        return encode(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("the arguments cannot be written as JSON", code="usage.bad-argument") from error
