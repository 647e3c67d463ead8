"""One exchange: judge, look up, connect, send, read. Written once, for both transports.

Its coroutines wait in the backend alone; over one that blocks they never wait (see `drive`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onym.errors import ConnectionFailed, DeadlineExceeded, NetError, UsageError
from onym.net._deadline import Deadline
from onym.net._failures import late
from onym.net._http1 import Head, encode_request
from onym.net._incoming import Incoming
from onym.net._pool import Pool
from onym.net._targets import Place, Target, Targets
from onym.net._trust import make_context
from onym.net._wire import Backend, Connection, Security
from onym.net.hosts import is_loopback
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import ConnectionInfo, Origin, Send
from onym.net.policy import Policy
from onym.net.resolve import Resolver, SystemResolver

if TYPE_CHECKING:
    import ssl

__all__ = ["Answer", "Core"]

T = TypeVar("T")

#: of a name that has more addresses, the first are tried
_MOST_ADDRESSES: Final = 8


class Dialled(NamedTuple):
    """A connected socket, its address, and how it is to be secured."""

    sock: Any
    address: str
    security: Security | None


class Core:
    """What both transports share: decisions, idle connections, and how an exchange goes."""

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        resolver: Resolver | None,
        limits: NetLimits,
        tls: TLSConfig,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.resolver = resolver or SystemResolver()
        self.targets = Targets(policy, limits, backend.clock)
        self.pool: Pool[Any] = Pool(limits, backend.clock)
        self._tls = tls
        self._context: ssl.SSLContext | None = None

    async def exchange(self, send: Send) -> Answer:
        """Send a request and read the head of its answer; raises NetError, nothing left open then."""
        request = send.request
        deadline = None if send.timeout is None else self.backend.clock() + send.timeout
        place = request.origin if send.connect is None else (request.origin, send.connect)
        target = self.targets.get(place) or await self._judge(place, deadline)
        secure = request.origin.scheme == "https"
        # compressed, a stream would come in lumps; and to this machine it is not worth it
        octets = encode_request(
            request, target.host_field, "gzip" if secure and not send.stream else "identity"
        )
        key = (target.key, request.credential)
        try:
            connection = self.pool.take(key) or await self._connect(target, deadline)
            incoming = Incoming(request.method, self.limits, send.limit)
            try:
                await connection.write(octets, deadline)
                while incoming.head is None:
                    incoming.feed(await connection.read(deadline))
                return Answer(self, key, connection, incoming, incoming.head, target.endpoint, deadline)
            except BaseException:
                connection.close()
                raise
        except NetError as error:
            error.endpoint = target.endpoint
            raise

    async def look_up(self, origin: Origin, name: str, deadline: Deadline) -> list[str]:
        """What the resolver says of the name."""
        try:
            return await self.backend.lookup(self.resolver, name, deadline)
        except NetError as error:
            error.endpoint = str(origin)
            raise

    async def _judge(self, place: Place, deadline: Deadline) -> Target:
        """The checked target of this place; raises PolicyError before anything is connected."""
        judged = self.targets.judge(place)
        if isinstance(judged, str):
            connect = place[1] if isinstance(place, tuple) else place
            judged = self.targets.judge_answers(place, await self.look_up(connect, judged, deadline))
        return judged

    async def dial(self, target: Target, deadline: Deadline) -> Dialled:
        """A socket connected to the first of the checked addresses that takes one."""
        # before there is a socket that an unreadable file of authorities would leave open
        security = self._security(target)
        *others, last = target.addresses[:_MOST_ADDRESSES]
        try:
            for address in others:
                try:
                    sock = await self._dial(target, address, deadline, self.limits.connect_next)
                    return Dialled(sock, address, security)
                except ConnectionFailed:
                    continue
            return Dialled(await self._dial(target, last, deadline, self.limits.connect), last, security)
        except NetError as error:
            # whoever tries again shall not be sent to the same addresses unseen
            self.targets.forget(target.place)
            if error.code == "net.connection.refused" and is_loopback(target.host):
                error.hint = "is the server running there?"
            raise

    async def establish(self, dialled: Dialled, deadline: Deadline) -> Connection:
        """The connection on that socket, secured as it must be."""
        return await self._bounded(
            deadline, self.limits.connect, lambda until: self.backend.establish(*dialled, until)
        )

    async def _connect(self, target: Target, deadline: Deadline) -> Connection:
        try:
            return await self.establish(await self.dial(target, deadline), deadline)
        except NetError as error:
            error.sent = False
            raise

    def _security(self, target: Target) -> Security | None:
        """How a connection to the target is secured: by TLS, but for plain HTTP to this machine."""
        if target.origin.scheme == "http":
            return None
        self._context = self._context or make_context(self._tls)
        return Security(self._context, target.host)

    async def _dial(self, target: Target, address: str, deadline: Deadline, patience: float) -> Any:
        return await self._bounded(
            deadline, patience, lambda until: self.backend.dial(address, target.port, until)
        )

    async def _bounded(
        self, deadline: Deadline, patience: float, attempt: Callable[[Deadline], Awaitable[T]]
    ) -> T:
        """One attempt, given so many seconds: less is left for the call, or another may go better."""
        now = self.backend.clock()
        until = now + patience if deadline is None else min(deadline, now + patience)
        try:
            return await attempt(until)
        except DeadlineExceeded:
            if deadline is not None and self.backend.clock() >= deadline:
                raise
            raise late() from None


class Answer:
    """The answer to one request: its head, and its content piece by piece.

    Once the content is read to its end, the connection waits for another request.
    """

    __slots__ = ("_connection", "_core", "_deadline", "_endpoint", "_incoming", "_key", "_open", "head")

    def __init__(
        self,
        core: Core,
        key: Hashable,
        connection: Connection,
        incoming: Incoming,
        head: Head,
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

    @property
    def info(self) -> ConnectionInfo:
        """How the answer came."""
        connection = self._connection
        return ConnectionInfo(connection.address, connection.tls_version, f"1.{self.head.minor}")

    async def next(self) -> bytes:
        """The next octets of the content, b"" at the end; raises NetError."""
        incoming = self._incoming
        if not self._open and not incoming.done:
            raise UsageError("the stream is closed", code="usage.closed")
        try:
            while not (content := incoming.take()):
                if incoming.done:
                    self._end()
                    return b""
                incoming.feed(await self._connection.read(self._deadline))
        except BaseException as error:
            self.close()
            if isinstance(error, NetError):
                error.endpoint = self._endpoint
            raise
        return content

    async def whole(self) -> bytes:
        """All of the content; raises NetError."""
        parts = []
        while part := await self.next():
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def leave(self, patience: float) -> None:
        """Have done with it; the end of the content may take so many seconds to come, if that is worth it."""
        if patience and self._open and self._incoming.lasting:
            until = self._core.backend.clock() + patience
            self._deadline = until if self._deadline is None else min(self._deadline, until)
            with suppress(NetError):
                await self.next()
        self.close()

    def close(self) -> None:
        """Have done with it, wherever it stands."""
        if self._open:
            self._open = False
            self._connection.close()

    def __del__(self) -> None:
        # Ctrl-C came before somebody held it; or a stream was dropped half read, and the model would go on,
        # and be paid for
        if getattr(self, "_open", False):
            self._connection.drop()

    def _end(self) -> None:
        if self._open:
            self._open = False
            if self._incoming.reusable:
                self._core.pool.give(self._key, self._connection)
            else:
                self._connection.close()
