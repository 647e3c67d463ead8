"""One HTTP exchange: check the policy, resolve, connect, send the request and read the response.

The code is written once for both transports. Its coroutines suspend only in the backend; on a blocking
backend they never suspend (see `drive_coroutine`). Checked targets are cached for a few seconds, and idle
connections are pooled by target, credential and client certificate.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from onym.errors import DeadlineExceeded, NetError, PolicyError, UsageError
from onym.net._dialling import Dialled, Dialler
from onym.net._http1 import ResponseHead, ResponseParser, encode_request
from onym.net.config import NetConfig
from onym.net.connections import Backend, Connection
from onym.net.hosts import is_loopback, parse_host
from onym.net.limits import ClientIdentity, Deadline, NetLimits
from onym.net.messages import ConnectionInfo, Origin, Send
from onym.net.policy import Decision, evaluate_policy

if TYPE_CHECKING:
    from onym.net.proxies import ProxyConfig

#: an origin, with where connections for it are opened if that is elsewhere
Destination: TypeAlias = Origin | tuple[Origin, Origin]

_MAX_TARGETS: Final = 1024
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class Target(NamedTuple):
    """Where a request goes: checked addresses, and the names for HTTP and TLS.

    Only connections with the same `key` are shared. `endpoint` is the origin in errors, `port` the port to
    connect to. If `resolved_by_proxy`, `addresses` is the name, which was checked only as a name.
    """

    place: Destination
    origin: Origin
    host: str
    addresses: tuple[str, ...]
    port: int
    host_field: str
    endpoint: str
    key: Hashable
    good_until: float | None
    proxy: ProxyConfig | None
    resolved_by_proxy: bool


class TargetCache:
    """Allowed targets by destination. A target that needed a lookup expires."""

    def __init__(self, config: NetConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._policy = config.policy
        self._limits = config.limits
        self._clock = clock
        self._known: OrderedDict[Destination, Target] = OrderedDict()

    def get_target(self, place: Destination) -> Target | None:
        """Return the target of this destination, unless it is unknown or expired."""
        target = self._known.get(place)
        if target is None or target.good_until is None or self._clock() < target.good_until:
            return target
        self.forget_target(place)
        return None

    def check_destination(self, place: Destination) -> Target | str:
        """Return the target, or the name to look up first. Raises PolicyError."""
        origin, connect = _split_destination(place)
        if connect is not origin:
            self._require_name_allowed(origin, connect)
        proxy = self._config.proxy and self._config.find_proxy(connect)
        decision = evaluate_policy(
            self._policy,
            connect.host,
            connect.port,
            scheme=connect.scheme,
            by_proxy=proxy is not None and proxy.resolves_host(connect.host),
        )
        if decision.reason == "no-address":
            return decision.host
        return self._store_target(place, decision, None)

    def check_answers(self, place: Destination, answers: list[str]) -> Target:
        """Return the target for the addresses of one lookup. Raises PolicyError."""
        _, connect = _split_destination(place)
        decision = evaluate_policy(
            self._policy, connect.host, connect.port, scheme=connect.scheme, answers=answers
        )
        return self._store_target(place, decision, self._clock() + self._limits.answers)

    def forget_target(self, place: Destination) -> None:
        """Forget the target, whose addresses are old or did not work; the next request is checked again."""
        self._known.pop(place, None)

    def _require_name_allowed(self, origin: Origin, connect: Origin) -> None:
        """Check the origin of a request that connects elsewhere; its own addresses are not used."""
        if origin.scheme != connect.scheme:
            raise UsageError("Send(connect=...) must have the scheme of its request", code="usage.http")
        decision = evaluate_policy(self._policy, origin.host, origin.port, scheme=origin.scheme)
        if not decision.allowed and decision.reason != "no-address":
            raise _make_refusal(origin, decision)

    def _store_target(self, place: Destination, decision: Decision, good_until: float | None) -> Target:
        origin, connect = _split_destination(place)
        if not decision.allowed:
            raise _make_refusal(connect, decision)
        name = decision.host if connect is origin else parse_host(origin.host).text
        host = f"[{name}]" if ":" in name else name
        endpoint = str(Origin(origin.scheme, name, origin.port))
        proxy = self._config.proxy and self._config.find_proxy(connect)
        target = Target(
            place=place,
            origin=origin,
            host=name,
            addresses=decision.connect_to or (decision.host,),
            port=connect.port,
            host_field=host if origin.port == _DEFAULT_PORTS[origin.scheme] else f"{host}:{origin.port}",
            endpoint=endpoint,
            key=(endpoint, decision.connect_to or decision.host, connect.port, proxy and proxy.text),
            good_until=good_until,
            proxy=proxy,
            resolved_by_proxy=not decision.connect_to,
        )
        self._known[place] = target
        if len(self._known) > _MAX_TARGETS:
            self._known.popitem(last=False)
        return target


def _split_destination(place: Destination) -> tuple[Origin, Origin]:
    """Return the origin, and the origin to connect to."""
    return place if isinstance(place, tuple) else (place, place)


def _make_refusal(origin: Origin, decision: Decision) -> PolicyError:
    # an invalid host is not printed
    return decision.to_error(
        str(Origin(origin.scheme, decision.host, origin.port)) if decision.host else None
    )


C = TypeVar("C", bound=Connection)


class _ForkCounter:
    """Counts forks, so that a pool notices one without a system call."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0
        # Windows has no forks
        getattr(os, "register_at_fork", dict)(after_in_child=self._count_fork)

    def _count_fork(self) -> None:
        self.number += 1


_process = _ForkCounter()


class ConnectionPool(Generic[C]):
    """Idle connections by key, the newest first. Threads may share it.

    A forked process starts with an empty pool: it must not use the connections of its parent.
    """

    def __init__(self, limits: NetLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: OrderedDict[Hashable, deque[tuple[C, float]]] = OrderedDict()
        self._count = 0
        self._process = _process.number

    def acquire(self, key: Hashable) -> C | None:
        """Return a usable connection for this key, or None."""
        with self._lock:
            self._clear_after_fork()
            waiting = self._idle.get(key)
            while waiting:
                connection, since = waiting.pop()
                self._count -= 1
                if not waiting:
                    del self._idle[key]
                if self._clock() - since < self._limits.idle and connection.is_usable():
                    return connection
                connection.close()
            return None

    def release(self, key: Hashable, connection: C) -> None:
        """Keep a connection whose exchange is complete. The connections idle for longest may be closed."""
        with self._lock:
            self._clear_after_fork()
            self._idle.setdefault(key, deque()).append((connection, self._clock()))
            self._idle.move_to_end(key)
            self._count += 1
            self._close_excess()

    def _close_excess(self) -> None:
        """Close connections beyond the limits, first those of the key that was not used for longest."""
        while self._idle:
            key, waiting = next(iter(self._idle.items()))
            connection, since = waiting[0]
            if self._count <= self._limits.idle_connections and self._clock() - since < self._limits.idle:
                return
            connection.close()
            waiting.popleft()
            self._count -= 1
            if not waiting:
                del self._idle[key]

    def clear(self) -> None:
        """Close all connections."""
        with self._lock:
            self._clear_after_fork()
            for waiting in self._idle.values():
                for connection, _ in waiting:
                    connection.close()
            self._idle.clear()
            self._count = 0

    def _clear_after_fork(self) -> None:
        if self._process != _process.number:
            self._process = _process.number
            for waiting in self._idle.values():
                for connection, _ in waiting:
                    connection.abandon()
            self._idle.clear()
            self._count = 0


class ExchangeCore:
    """The part that both transports share: targets, idle connections and the exchange."""

    def __init__(self, backend: Backend, config: NetConfig) -> None:
        self.backend = backend
        self.limits = config.limits
        self.dialler = Dialler(backend, config)
        self.targets = TargetCache(config, backend.clock)
        self.pool: ConnectionPool[Any] = ConnectionPool(config.limits, backend.clock)

    async def exchange(self, send: Send) -> Response:
        """Send a request and read the head of its response. After NetError no connection is open."""
        request = send.request
        deadline = None if send.timeout is None else self.backend.clock() + send.timeout
        place = request.origin if send.connect is None else (request.origin, send.connect)
        target = self.targets.get_target(place) or await self._find_target(place, deadline)
        secure = request.origin.scheme == "https"
        # a compressed stream would arrive in large pieces, and loopback does not need compression
        message = encode_request(
            request, target.host_field, "gzip" if secure and not send.stream else "identity"
        )
        # a connection proves one client certificate, so it serves no request with another one
        key = (target.key, request.credential, send.identity)
        try:
            connection = self.pool.acquire(key) or await self._open_connection(
                target, deadline, send.identity
            )
            incoming = ResponseParser(request.method, self.limits, send.limit)
            try:
                await connection.write(message, deadline)
                while incoming.head is None:
                    incoming.feed(await connection.read(deadline))
                response = Response(self, key, connection, incoming, incoming.head, target.endpoint, deadline)
                if send.stream:
                    response.idle_timeout = send.idle_timeout or self.limits.stream_idle
                return response
            except BaseException:
                connection.close()
                raise
        except NetError as error:
            error.endpoint = target.endpoint
            raise

    async def look_up(self, origin: Origin, name: str, deadline: Deadline) -> list[str]:
        """Return the addresses of the name, with the origin in errors."""
        try:
            return await self.backend.lookup(self.dialler.resolver, name, deadline)
        except NetError as error:
            error.endpoint = str(origin)
            error.sent = False
            raise

    async def _find_target(self, place: Destination, deadline: Deadline) -> Target:
        """Return the checked target. Raises PolicyError before any connection is opened."""
        target = self.targets.check_destination(place)
        if isinstance(target, str):
            _, connect = _split_destination(place)
            target = self.targets.check_answers(place, await self.look_up(connect, target, deadline))
        return target

    async def dial(
        self, target: Target, deadline: Deadline, identity: ClientIdentity | None = None
    ) -> Dialled:
        """Return a socket that is connected to the target, or a tunnel to it through its proxy."""
        name = target.host if target.origin.scheme == "https" else None
        try:
            if target.proxy is not None:
                return await self.dialler.dial_through(
                    target.proxy, target.addresses, target.port, target.host, deadline, identity
                )
            return await self.dialler.dial_addresses(target.addresses, target.port, name, deadline, identity)
        except NetError as error:
            # a retry must not use the same addresses unchecked
            self.targets.forget_target(target.place)
            if error.code == "net.connection.refused" and is_loopback(target.host):
                error.hint = "Is the server running?"
            raise

    async def _open_connection(
        self, target: Target, deadline: Deadline, identity: ClientIdentity | None
    ) -> Connection:
        try:
            return await self.dialler.establish(await self.dial(target, deadline, identity), deadline)
        except NetError as error:
            error.sent = False
            raise


class Response:
    """The response to one request: its head, and its content in chunks.

    When the content has been read completely, the connection returns to the pool. `idle_timeout` is the
    longest wait for its next byte, in seconds; None is no limit besides the deadline.
    """

    __slots__ = (
        *("_connection", "_core", "_deadline", "_endpoint", "_incoming", "_key", "_open"),
        *("head", "idle_timeout"),
    )

    def __init__(
        self,
        core: ExchangeCore,
        key: Hashable,
        connection: Connection,
        incoming: ResponseParser,
        head: ResponseHead,
        endpoint: str,
        deadline: Deadline,
    ) -> None:
        self._core = core
        self._key = key
        self._connection = connection
        self._incoming = incoming
        self._endpoint = endpoint
        self._deadline = deadline
        self._open = True
        self.head = head
        self.idle_timeout: float | None = None

    @property
    def info(self) -> ConnectionInfo:
        """The address and the versions of the connection."""
        connection = self._connection
        return ConnectionInfo(connection.address, connection.tls_version, f"1.{self.head.minor}")

    async def read_chunk(self) -> bytes:
        """Return the next chunk of the content, b"" at the end. Raises NetError."""
        incoming = self._incoming
        if not self._open and not incoming.done:
            raise UsageError("the stream is closed", code="usage.closed")
        try:
            while not (content := incoming.take_content()):
                if incoming.done:
                    self._return_connection()
                    return b""
                if self.idle_timeout is None:
                    incoming.feed(await self._connection.read(self._deadline))
                else:
                    incoming.feed(await self._read_before_idle(self.idle_timeout))
        except BaseException as error:
            self.close()
            if isinstance(error, NetError):
                error.endpoint = self._endpoint
            raise
        return content

    async def _read_before_idle(self, seconds: float) -> bytes:
        """Return the next bytes. Raises DeadlineExceeded `net.timeout.idle` if none come for so long."""
        until = self._core.backend.clock() + seconds
        if self._deadline is not None and self._deadline <= until:
            return await self._connection.read(self._deadline)
        try:
            return await self._connection.read(until)
        except DeadlineExceeded:
            raise DeadlineExceeded(
                f"the server sent nothing for {round(seconds * 1000)} ms in the middle of a stream",
                code="net.timeout.idle",
                hint="Set a longer idle_timeout=, or NetLimits(stream_idle=...).",
            ) from None

    async def read_all(self) -> bytes:
        """Return all of the content. Raises NetError."""
        parts = []
        while part := await self.read_chunk():
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def finish(self, patience: float) -> None:
        """Close the response. Wait `patience` seconds for its end if the connection can be reused."""
        if patience and self._open and self._incoming.will_be_reusable:
            until = self._core.backend.clock() + patience
            self._deadline = until if self._deadline is None else min(self._deadline, until)
            with suppress(NetError):
                await self.read_chunk()
        self.close()

    def close(self) -> None:
        """Close the connection unless the content was read completely."""
        if self._open:
            self._open = False
            self._connection.close()

    def __del__(self) -> None:
        # Ctrl-C came before the caller had it, or a stream was dropped half read: the model must not go on
        if getattr(self, "_open", False):
            self._connection.drop()

    def _return_connection(self) -> None:
        if self._open:
            self._open = False
            if self._incoming.is_reusable:
                self._core.pool.release(self._key, self._connection)
            else:
                self._connection.close()
