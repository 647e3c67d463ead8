"""The guarded transport, for blocking callers and for coroutines, and the two drivers of flows.

Every request goes the same way: the policy judges host, port and scheme; the name is looked up once; if one
of its addresses is refused, the name is; connections go to the checked addresses alone, while TLS and `Host`
keep the name. No redirect is followed; no proxy, `.netrc` or other setting of the environment is read.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Self, TypeVar

from onym.errors import NetError, UsageError
from onym.net._core import Answer, Core
from onym.net._wire import drive
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import Ask, Flow, Headers, Origin, Records, Reply, Send, Work
from onym.net.probe import ProbeReport, probe

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from onym.net.messages import AsyncStreamBody, StreamBody
    from onym.net.policy import Policy
    from onym.net.records import RecordResolver
    from onym.net.resolve import Resolver

__all__ = ["AsyncTransport", "NetLimits", "TLSConfig", "Transport", "arun", "run"]

T = TypeVar("T")

_LIMITS: Final = NetLimits()
_TLS: Final = TLSConfig()
_UNASKED: Final = Records(status="failed", detail="this transport asks no DNS: it was given no records=...")


class Transport:
    """Sends requests and waits for the answers. Threads may share it; Ctrl-C closes what it interrupts.

    `resolver` looks names up (the system's by default), `limits` bounds what is taken, `tls` says whom to
    trust besides the system's authorities, `clock` gives seconds that only grow. `records` answers what flows
    ask of DNS; without it, every `Ask` fails.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        resolver: Resolver | None = None,
        limits: NetLimits = _LIMITS,
        tls: TLSConfig = _TLS,
        clock: Callable[[], float] | None = None,
        records: RecordResolver | None = None,
    ) -> None:
        from onym.net._blocking import BlockingBackend

        self._core = Core(BlockingBackend(clock or time.monotonic), policy, resolver, limits, tls)
        self._records = records
        self._closed = False

    def send(self, send: Send) -> Reply:
        """The answer to this request; raises NetError, or UsageError for what HTTP cannot carry."""
        _check_open(self._closed)
        answer = drive(self._core.exchange(send))
        if _is_open(send, answer):
            return _reply(answer, b"", _BlockingBody(answer))
        return _reply(answer, drive(answer.whole()), None)

    def ask(self, ask: Ask) -> Records:
        """What DNS says; UsageError once the transport is closed."""
        _check_open(self._closed)
        return _UNASKED if self._records is None else self._records.ask(ask)

    def probe(self, origin: Origin, timeout: float | None = None) -> ProbeReport:
        """Connect to the origin and say what was found on the way, in at most `timeout` seconds."""
        _check_open(self._closed)
        return drive(probe(self._core, origin, timeout))

    def close(self) -> None:
        """Close the connections that wait to be used again. May be called again."""
        self._closed = True
        self._core.pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncTransport:
    """Sends requests from coroutines. Cancelling one closes its connection.

    It takes what `Transport` takes. Connections belong to the event loop that made them: in another loop it
    starts anew.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        resolver: Resolver | None = None,
        limits: NetLimits = _LIMITS,
        tls: TLSConfig = _TLS,
        clock: Callable[[], float] | None = None,
        records: RecordResolver | None = None,
    ) -> None:
        self._settings = (policy, resolver, limits, tls)
        self._clock = clock or time.monotonic
        self._records = records
        self._loop: asyncio.AbstractEventLoop | None = None
        self._core: Core
        self._closed = False

    async def send(self, send: Send) -> Reply:
        """The answer to this request; raises NetError, or UsageError for what HTTP cannot carry."""
        answer = await self._here().exchange(send)
        if _is_open(send, answer):
            return _reply(answer, b"", _WaitingBody(answer))
        return _reply(answer, await answer.whole(), None)

    async def ask(self, ask: Ask) -> Records:
        """What DNS says; UsageError once the transport is closed."""
        _check_open(self._closed)
        return _UNASKED if self._records is None else await self._records.aask(ask)

    async def probe(self, origin: Origin, timeout: float | None = None) -> ProbeReport:  # noqa: ASYNC109
        """Connect to the origin and say what was found on the way, in at most `timeout` seconds."""
        return await probe(self._here(), origin, timeout)

    async def close(self) -> None:
        """Close the connections that wait to be used again. May be called again."""
        import asyncio

        self._closed = True
        if self._loop is asyncio.get_running_loop():
            self._core.pool.clear()
            self._core.backend.close()
            # asyncio closes sockets one step later
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _here(self) -> Core:
        """The core of the running loop."""
        import asyncio

        _check_open(self._closed)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            from onym.net._waiting import WaitingBackend

            self._loop = loop
            self._core = Core(WaitingBackend(self._clock), *self._settings)
        return self._core


def run(flow: Flow[T], transport: Transport, *, sleep: Callable[[float], object] = time.sleep) -> T:
    """Drive a flow to its end and return what it returns. NetError is thrown into it, it may go on."""
    try:
        step = flow.send(None)
        while True:
            if isinstance(step, Send):
                try:
                    reply = transport.send(step)
                except NetError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
            elif isinstance(step, Ask):
                step = flow.send(transport.ask(step))
            elif isinstance(step, Work):
                step = flow.send(step.call())
            else:
                sleep(max(0.0, step.seconds))
                step = flow.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def arun(
    flow: Flow[T], transport: AsyncTransport, *, sleep: Callable[[float], Awaitable[object]] | None = None
) -> T:
    """`run`, for coroutines."""
    import asyncio

    pause = sleep or asyncio.sleep
    try:
        step = flow.send(None)
        while True:
            if isinstance(step, Send):
                try:
                    reply = await transport.send(step)
                except NetError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
            elif isinstance(step, Ask):
                step = flow.send(await transport.ask(step))
            elif isinstance(step, Work):
                step = flow.send(await asyncio.to_thread(step.call))
            else:
                await pause(max(0.0, step.seconds))
                step = flow.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


class _BlockingBody:
    """A `StreamBody`."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def read(self) -> bytes:
        """The next octets, or b"" at the end."""
        return drive(self._answer.next())

    def close(self, patience: float = 0) -> None:
        """Close the connection, unless the end was read or comes soon."""
        drive(self._answer.leave(patience))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _WaitingBody:
    """An `AsyncStreamBody`."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def aread(self) -> bytes:
        """The next octets, or b"" at the end."""
        return await self._answer.next()

    async def aclose(self, patience: float = 0) -> None:
        """Close the connection, unless the end was read or comes soon."""
        await self._answer.leave(patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _is_open(send: Send, answer: Answer) -> bool:
    return send.stream and 200 <= answer.head.status < 300


def _reply(answer: Answer, body: bytes, stream: StreamBody | AsyncStreamBody | None) -> Reply:
    return Reply(answer.head.status, Headers(answer.head.fields), body, stream, answer.info)


def _check_open(closed: bool) -> None:
    if closed:
        raise UsageError("the transport is closed", code="usage.closed")
