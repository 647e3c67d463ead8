"""The guarded transport, blocking and async, and the two drivers of flows.

The policy checks host, port, scheme and every address of the name; TLS and `Host` keep the name. Redirects
are not followed, and no setting of the environment is read. If a proxy looks up names, their addresses are
not checked. A probe opens one connection only to report on it (`onym ping`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from onym.errors import NetError, UsageError
from onym.net._exchange import ExchangeCore, Response
from onym.net.config import NetConfig
from onym.net.connections import BlockingBackend, drive_coroutine
from onym.net.messages import Ask, Flow, Headers, Origin, Records, Reply, Send, Work
from onym.net.proxies import ProxyConfig

if TYPE_CHECKING:
    import asyncio

    from onym.net.connections import TLSSession
    from onym.net.messages import AsyncStreamBody, StreamBody
    from onym.net.policy import Policy

__all__ = ["AsyncTransport", "ProbeReport", "Transport", "arun_flow", "probe_origin", "run_flow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The steps of a connection to an origin, up to one that failed. Times are in seconds.

    `answers` are the addresses of the lookup, or of the host itself; `address` is the connected one, which is
    the proxy's if `proxy` (its URL) is set. With `resolved_by_proxy` the proxy looks up the name, so that
    there are no `answers`, and the policy could not check them. `connect_seconds` includes the tunnel through
    a proxy. Steps that were not reached are None.

    `subject` is the name on the certificate, `names` are the names that it is valid for, `issuer` signed it,
    `not_after` is its end. `error` is the failure.
    """

    origin: Origin
    answers: tuple[str, ...] = ()
    lookup_seconds: float | None = None
    address: str | None = None
    connect_seconds: float | None = None
    tls_seconds: float | None = None
    tls_version: str | None = None
    cipher: str | None = None
    subject: str | None = None
    names: tuple[str, ...] = ()
    issuer: str | None = None
    not_after: str | None = None
    proxy: str | None = None
    resolved_by_proxy: bool = False
    error: NetError | None = None


async def probe_origin(core: ExchangeCore, origin: Origin, seconds: float | None) -> ProbeReport:
    """Check the policy, look up, connect, do the TLS handshake and close. The report contains a NetError."""
    clock = core.backend.clock
    deadline = None if seconds is None else clock() + seconds
    report: dict[str, Any] = {}
    try:
        start = clock()
        target = core.targets.check_destination(origin)
        if isinstance(target, str):
            answers = await core.look_up(origin, target, deadline)
            report.update(answers=tuple(answers), lookup_seconds=clock() - start)
            target = core.targets.check_answers(origin, answers)
        if target.proxy is not None:
            report.update(proxy=target.proxy.text, resolved_by_proxy=target.resolved_by_proxy)
        report.setdefault("answers", () if target.resolved_by_proxy else target.addresses)
        start = clock()
        dialled = await core.dial(target, deadline)
        report.update(address=dialled.address, connect_seconds=clock() - start)
        start = clock()
        connection = await core.dialler.establish(dialled, deadline)
        try:
            session = connection.certificate()
            if session is not None:
                report.update(_describe_session(session), tls_seconds=clock() - start)
        finally:
            connection.close()
    except NetError as error:
        error.endpoint = error.endpoint or str(origin)
        report["error"] = error
    return ProbeReport(origin=origin, **report)


def _describe_session(session: TLSSession) -> dict[str, Any]:
    subject = session.subject
    return {
        "tls_version": session.version,
        "cipher": session.cipher,
        "subject": _get_common_name(subject.get("subject")),
        "names": tuple(value for _, value in subject.get("subjectAltName", ())),
        "issuer": _get_common_name(subject.get("issuer")),
        "not_after": subject.get("notAfter"),
    }


def _get_common_name(name: Any) -> str | None:
    """Return the most specific part of a distinguished name, which `ssl` gives as tuples of pairs."""
    parts = {key: value for pairs in name or () for key, value in pairs}
    for key in ("commonName", "organizationName", "organizationalUnitName"):
        if key in parts:
            return str(parts[key])
    return None


T = TypeVar("T")

_NO_RESOLVER: Final = Records(status="failed", detail="the transport has no resolver: NetConfig(records=...)")


class Transport:
    """Sends requests and waits for the responses. Threads may share it. Ctrl-C closes its connection.

    A `Policy` is short for `NetConfig(policy=...)`.
    """

    def __init__(self, config: NetConfig | Policy) -> None:
        config = _to_config(config)
        self._core = ExchangeCore(BlockingBackend(config.clock or time.monotonic), config)
        self._records = config.records
        self._closed = False

    def send(self, send: Send) -> Reply:
        """Return the response. Raises NetError, and UsageError for a request that is not valid in HTTP."""
        _require_open(self._closed)
        answer = drive_coroutine(self._core.exchange(send))
        if _stays_open(send, answer):
            return _make_reply(answer, b"", _BlockingBody(answer))
        return _make_reply(answer, drive_coroutine(answer.read_all()), None)

    def ask(self, ask: Ask) -> Records:
        """Return the DNS records. Raises UsageError if the transport is closed."""
        _require_open(self._closed)
        return _NO_RESOLVER if self._records is None else self._records.ask(ask)

    def probe(self, origin: Origin, timeout: float | None = None) -> ProbeReport:
        """Connect to the origin within `timeout` seconds and report the steps."""
        _require_open(self._closed)
        return drive_coroutine(probe_origin(self._core, origin, timeout))

    def close(self) -> None:
        """Close the idle connections. May be called again."""
        self._closed = True
        self._core.pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTransport:
    """Sends requests from coroutines. Cancelling one closes its connection.

    Connections belong to the event loop that opened them; in another loop the transport opens new ones.
    """

    def __init__(self, config: NetConfig | Policy) -> None:
        self._config = _to_config(config)
        self._records = self._config.records
        self._loop: asyncio.AbstractEventLoop | None = None
        self._core: ExchangeCore
        self._closed = False

    async def send(self, send: Send) -> Reply:
        """Return the response. Raises NetError, and UsageError for a request that is not valid in HTTP."""
        answer = await self._get_core().exchange(send)
        if _stays_open(send, answer):
            return _make_reply(answer, b"", _AsyncBody(answer))
        return _make_reply(answer, await answer.read_all(), None)

    async def ask(self, ask: Ask) -> Records:
        """Return the DNS records. Raises UsageError if the transport is closed."""
        _require_open(self._closed)
        return _NO_RESOLVER if self._records is None else await self._records.aask(ask)

    async def probe(self, origin: Origin, timeout: float | None = None) -> ProbeReport:  # noqa: ASYNC109 - of all steps
        """Connect to the origin within `timeout` seconds and report the steps."""
        return await probe_origin(self._get_core(), origin, timeout)

    async def close(self) -> None:
        """Close the idle connections. May be called again."""
        import asyncio

        self._closed = True
        if self._loop is asyncio.get_running_loop():
            self._core.pool.clear()
            self._core.backend.close()
            # asyncio closes sockets in the next iteration of the loop
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _get_core(self) -> ExchangeCore:
        import asyncio

        _require_open(self._closed)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            from onym.net._async_connections import AsyncBackend  # late: it loads asyncio, 20 ms

            self._loop = loop
            backend = AsyncBackend(self._config.clock or time.monotonic)
            self._core = ExchangeCore(backend, self._config)
        return self._core


def run_flow(flow: Flow[T], transport: Transport, *, sleep: Callable[[float], object] = time.sleep) -> T:
    """Drive a flow and return its result. Every error is thrown into the flow, which may go on."""
    result: Any
    try:
        step = flow.send(None)
        while True:
            try:
                if isinstance(step, Send):
                    result = transport.send(step)
                elif isinstance(step, Ask):
                    result = transport.ask(step)
                elif isinstance(step, Work):
                    result = step.call()
                else:
                    result = sleep(max(0.0, step.seconds))
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome
    finally:
        flow.close()


async def arun_flow(
    flow: Flow[T], transport: AsyncTransport, *, sleep: Callable[[float], Awaitable[object]] | None = None
) -> T:
    """Do what `run_flow` does, in a coroutine."""
    import asyncio

    pause = sleep or asyncio.sleep
    result: Any
    try:
        step = flow.send(None)
        while True:
            try:
                if isinstance(step, Send):
                    result = await transport.send(step)
                elif isinstance(step, Ask):
                    result = await transport.ask(step)
                elif isinstance(step, Work):
                    result = await (asyncio.to_thread(step.call) if step.acall is None else step.acall())
                else:
                    result = await pause(max(0.0, step.seconds))
            except BaseException as error:  # noqa: BLE001 - the flow raises it again
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome
    finally:
        flow.close()


class _BlockingBody:
    """A `StreamBody`."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Response) -> None:
        self._answer = answer

    def read(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        return drive_coroutine(self._answer.read_chunk())

    def close(self, patience: float = 0) -> None:
        """Close the connection, unless the end was read or comes within `patience` seconds."""
        drive_coroutine(self._answer.finish(patience))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _AsyncBody:
    """An `AsyncStreamBody`."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Response) -> None:
        self._answer = answer

    async def aread(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        return await self._answer.read_chunk()

    async def aclose(self, patience: float = 0) -> None:
        """Close the connection, unless the end was read or comes within `patience` seconds."""
        await self._answer.finish(patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _stays_open(send: Send, answer: Response) -> bool:
    return send.stream and 200 <= answer.head.status < 300


def _make_reply(answer: Response, body: bytes, stream: StreamBody | AsyncStreamBody | None) -> Reply:
    return Reply(answer.head.status, Headers(answer.head.fields), body, stream, answer.info)


def _to_config(config: NetConfig | Policy) -> NetConfig:
    config = config if isinstance(config, NetConfig) else NetConfig(policy=config)
    if not isinstance(config.proxy, ProxyConfig | None):
        raise UsageError(
            "NetConfig(proxy=...) must be a ProxyConfig",
            code="usage.proxy",
            hint="Use ProxyConfig.parse(URL), or ProxyConfig.from_environment(os.environ).",
        )
    return config


def _require_open(closed: bool) -> None:
    if closed:
        raise UsageError("the transport is closed", code="usage.closed")
