"""Connect to a target: to the first checked address that accepts a connection, or through a proxy.

A tunnel is HTTP CONNECT (RFC 9110 9.3.6) or SOCKS5 (RFC 1928, RFC 1929). The proxy must not send a byte more
than its answers: what follows is the server's, and a server that speaks TLS waits for the client.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onym.errors import ConnectionFailed, DeadlineExceeded, NetError, ProxyError, ResolveError, TLSError
from onym.net import connections
from onym.net.hosts import parse_address
from onym.net.limits import ClientIdentity, Deadline
from onym.uri.secret import Secret, SecretBytes

if TYPE_CHECKING:
    from onym.net.config import NetConfig
    from onym.net.proxies import ProxyConfig

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n").match
_CHALLENGE = re.compile(rb"\r\nproxy-authenticate:[ \t]*([!#$%&'*+.^_`|~0-9a-z-]+)", re.IGNORECASE).findall
_HEAD_END: Final = b"\r\n\r\n"
#: statuses by which a proxy says that it does not reach the server
_UNREACHABLE: Final = frozenset({500, 502, 503, 504})

#: 407, and what tinyproxy sends for a wrong password
_LOGIN_STATUS: Final = frozenset({401, 407})

_NO_LOGIN, _LOGIN, _NO_METHOD = 0, 2, 255
#: the replies of RFC 1928 6 by which a proxy says that it does not reach the server
_SOCKS_UNREACHABLE: Final[dict[int, str]] = {
    1: "general failure",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
}
_SOCKS_REFUSED: Final[dict[int, str]] = {
    2: "not allowed by its rules",
    7: "command not supported",
    8: "type of address not supported",
}


async def open_tunnel(
    connection: connections.Connection,
    proxy: ProxyConfig,
    host: str,
    port: int,
    most: int,
    deadline: Deadline,
) -> None:
    """Have the proxy connect to this name or address. Its answers have at most `most` bytes.

    Raises ProxyError, ConnectionFailed if the proxy does not reach the host, and other NetErrors.
    """
    answers = _Answers(connection, proxy, most, deadline)
    if proxy.scheme in ("http", "https"):
        await connection.write(_encode_connect(proxy, host, port), deadline)
        await _read_connect_answer(answers, proxy)
    else:
        await _open_socks(connection, answers, proxy, host, port, deadline)
    if answers.rest:
        raise _make_protocol_error(proxy, "it sent data before the server was asked")


def translate_proxy_error(error: NetError, proxy: ProxyConfig) -> NetError:
    """Return the error of a connection to a proxy, which names the proxy."""
    if isinstance(error, ResolveError):
        hint = "Check the proxy's name and this computer's network connection."
        message = f"the name of the proxy {proxy.text} cannot be resolved"
        return ResolveError(message, code="net.proxy.resolve", hint=hint)
    if isinstance(error, TLSError):
        message = f"TLS to the proxy {proxy.text} failed: {error.message}"
        return TLSError(message, code="net.proxy.tls", hint=error.hint)
    if isinstance(error, DeadlineExceeded) or error.code.startswith("net.proxy"):
        return error
    if error.code == "net.connection.timeout":
        message = f"the proxy {proxy.text} took too long to open the connection"
        return ConnectionFailed(message, code="net.proxy.timeout")
    return ConnectionFailed(
        f"the connection to the proxy {proxy.text} failed: {error.message}",
        code="net.proxy.connection",
        hint="Is the proxy running?" if error.code == "net.connection.refused" else None,
    )


class _Answers:
    """Reads what a proxy sends, up to a number of bytes. `rest` are bytes that were not read."""

    def __init__(
        self, connection: connections.Connection, proxy: ProxyConfig, most: int, deadline: Deadline
    ) -> None:
        self._connection = connection
        self._proxy = proxy
        self._left = most
        self._deadline = deadline
        self.rest = b""

    async def read_bytes(self, count: int) -> bytes:
        """Return exactly this number of bytes."""
        while len(self.rest) < count:
            await self._receive()
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    async def read_head(self) -> bytes:
        """Return the head of an HTTP response, with the empty line."""
        while (end := self.rest.find(_HEAD_END)) < 0:
            await self._receive()
        return await self.read_bytes(end + len(_HEAD_END))

    async def _receive(self) -> None:
        data = await self._connection.read(self._deadline)
        if not data:
            raise _make_protocol_error(self._proxy, "it closed the connection")
        self._left -= len(data)
        if self._left < 0:
            raise _make_protocol_error(self._proxy, "its answer is too long")
        self.rest += data


def _encode_connect(proxy: ProxyConfig, host: str, port: int) -> SecretBytes:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
    login = proxy.build_authorization()
    if login is None:
        return SecretBytes(f"{head}\r\n".encode())
    # never in a variable, which tools that report errors would show
    return SecretBytes(f"{head}Proxy-Authorization: {login.reveal()}\r\n\r\n".encode())


async def _read_connect_answer(answers: _Answers, proxy: ProxyConfig) -> None:
    """Read the response to CONNECT, after interim responses. Raises an error unless it is 2xx."""
    status = 100
    head = b""
    while status < 200:
        head = await answers.read_head()
        line = _STATUS_LINE(head)
        if line is None:
            raise _make_protocol_error(proxy, "its answer is not HTTP")
        status = int(line[1])
    if status >= 300:
        raise _make_status_error(status, head, proxy)


def _make_status_error(status: int, head: bytes, proxy: ProxyConfig) -> NetError:
    if status in _LOGIN_STATUS:
        schemes = {scheme.lower() for scheme in _CHALLENGE(head)}
        return _make_login_error(proxy, supported=not schemes or b"basic" in schemes)
    if status in _UNREACHABLE:
        return _make_unreachable_error(proxy, f"HTTP status {status}")
    return _make_refused_error(proxy, f"HTTP status {status}")


async def _open_socks(
    connection: connections.Connection,
    answers: _Answers,
    proxy: ProxyConfig,
    host: str,
    port: int,
    deadline: Deadline,
) -> None:
    methods = bytes([_NO_LOGIN] if proxy.username is None else [_NO_LOGIN, _LOGIN])
    await connection.write(SecretBytes(bytes([5, len(methods)]) + methods), deadline)
    version, method = await answers.read_bytes(2)
    if version != 5:
        raise _make_protocol_error(proxy, "its answer is not SOCKS5")
    if method == _NO_METHOD:
        raise _make_login_error(proxy, supported=proxy.username is None)
    if method not in methods:
        raise _make_protocol_error(proxy, "it chose a method that was not offered")
    if method == _LOGIN:
        await connection.write(_encode_login(proxy), deadline)
        _, status = await answers.read_bytes(2)
        if status != 0:
            raise _make_login_error(proxy, supported=True)
    await connection.write(_encode_socks_request(host, port), deadline)
    version, reply, _, kind = await answers.read_bytes(4)
    if version != 5:
        raise _make_protocol_error(proxy, "its answer is not SOCKS5")
    if reply in _SOCKS_UNREACHABLE:
        raise _make_unreachable_error(proxy, _SOCKS_UNREACHABLE[reply])
    if reply != 0:
        raise _make_refused_error(proxy, _SOCKS_REFUSED.get(reply, "unknown reason"))
    await _skip_socks_address(answers, proxy, kind)


async def _skip_socks_address(answers: _Answers, proxy: ProxyConfig, kind: int) -> None:
    """Read the address from which the proxy connects, which is not used."""
    if kind == 3:
        (length,) = await answers.read_bytes(1)
    elif kind in (1, 4):
        length = 4 * kind
    else:
        raise _make_protocol_error(proxy, "its answer is not SOCKS5")
    await answers.read_bytes(length + 2)


def _encode_login(proxy: ProxyConfig) -> SecretBytes:
    """Return the request of RFC 1929."""
    username, password = proxy.username or Secret(""), proxy.password or Secret("")
    # never in a variable, which tools that report errors would show
    return SecretBytes(b"\x01" + _encode_field(username).reveal() + _encode_field(password).reveal())


def _encode_field(secret: Secret) -> SecretBytes:
    return SecretBytes(bytes([len(secret.reveal().encode())]) + secret.reveal().encode())


def _encode_socks_request(host: str, port: int) -> SecretBytes:
    address = parse_address(host)
    if address is None:
        where = bytes([3, len(host)]) + host.encode()
    elif address.version == 4:
        where = b"\x01" + address.value.to_bytes(4)
    else:
        where = b"\x04" + address.value.to_bytes(16)
    return SecretBytes(b"\x05\x01\x00" + where + port.to_bytes(2))


def _make_login_error(proxy: ProxyConfig, *, supported: bool) -> ProxyError:
    if not supported:
        message = f"the proxy {proxy.text} supports no authentication that Onym has"
        hint = (
            "Onym has Basic (HTTP) and user name with password (SOCKS5). For others run a local proxy, such "
        )
        return ProxyError(message, code="net.proxy.auth", hint=f"{hint}as cntlm or px.")
    if proxy.username is None:
        message = f"the proxy {proxy.text} requires a user name and a password"
        return ProxyError(message, code="net.proxy.auth", hint="Write http://user:password@host:port.")
    message = f"the proxy {proxy.text} rejected the user name or the password"
    hint = "Check both. In a URL, special characters of a password are percent-encoded."
    return ProxyError(message, code="net.proxy.auth", hint=hint)


def _make_refused_error(proxy: ProxyConfig, reason: str) -> ProxyError:
    message = f"the proxy {proxy.text} does not allow a connection to this host ({reason})"
    hint = "Ask its operator, or list the host in NO_PROXY if it can be reached directly."
    if not proxy.resolves_host("name.example"):
        hint = f"{hint} Some proxies allow names only, not the addresses that Onym has checked."
    return ProxyError(message, code="net.proxy.refused", hint=hint)


def _make_unreachable_error(proxy: ProxyConfig, reason: str) -> ConnectionFailed:
    message = f"the proxy {proxy.text} cannot reach the host ({reason})"
    return ConnectionFailed(message, code="net.proxy.unreachable")


def _make_protocol_error(proxy: ProxyConfig, fault: str) -> ProxyError:
    return ProxyError(
        f"the proxy {proxy.text} does not behave as a proxy of this scheme: {fault}",
        code="net.proxy.protocol",
        hint="Check the scheme and the port: http, https, socks5 and socks5h are different protocols.",
    )


#: bytes of one TLS record (RFC 8446 5.1)
_RECORD: Final = 16 * 1024
#: bytes that are encrypted before they are sent
_BATCH: Final = 256 * 1024


class InnerTLSConnection:
    """A `Connection` with a TLS session of its own inside another connection, which may have TLS too."""

    __slots__ = ("_incoming", "_outer", "_outgoing", "_session", "address", "tls_version")

    def __init__(self, outer: connections.Connection, security: connections.TLSSettings) -> None:
        self._outer = outer
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = security.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=security.name
        )
        self.address = outer.address
        self.tls_version: str | None = None

    async def do_handshake(self, deadline: Deadline) -> None:
        """Open the session. Raises NetError."""
        while not self._run_step(self._session.do_handshake):
            await self._flush(deadline)
            await self._receive(deadline)
        await self._flush(deadline)
        self.tls_version = connections.get_tls_version(self._session)

    async def write(self, message: SecretBytes, deadline: Deadline) -> None:
        """Send the message."""
        sent, size = 0, len(message)

        def encrypt() -> None:
            nonlocal sent
            # never in a variable, which tools that report errors would show
            sent += self._session.write(memoryview(message.reveal())[sent : sent + _BATCH])

        while sent < size:
            done = self._run_step(encrypt)
            await self._flush(deadline)
            if not done:
                await self._receive(deadline)

    async def read(self, deadline: Deadline) -> bytes:
        """Return the next bytes."""
        parts: list[bytes] = []

        def decrypt() -> None:
            while part := self._session.read(_RECORD):
                parts.append(part)

        # all that has arrived: what stays here would not make the socket readable
        while not self._run_step(decrypt):
            if parts:
                break
            await self._receive(deadline)
        return b"".join(parts)

    def is_usable(self) -> bool:
        """Report whether the outer connection is open, and no data arrived without a request."""
        return self._outer.is_usable()

    def certificate(self) -> connections.TLSSession | None:
        """Return the inner TLS session, which is the server's."""
        return connections.get_tls_session(self._session)

    def close(self) -> None:
        """Close the outer connection at once."""
        self._outer.close()

    def drop(self) -> None:
        """Close the outer connection, from any thread."""
        self._outer.drop()

    def abandon(self) -> None:
        """Close this process's copy of the outer connection after a fork."""
        self._outer.abandon()

    def _run_step(self, step: Callable[[], None]) -> bool:
        """Run a step, and report whether it is complete; if not, it needs more data of the server."""
        try:
            step()
        except ssl.SSLWantReadError:
            return False
        except (OSError, ValueError) as error:
            # the frames of `ssl` hold what was to be sent
            raise connections.translate_error(error) from error.with_traceback(None)
        return True

    async def _flush(self, deadline: Deadline) -> None:
        """Send what the session has produced."""
        if self._outgoing.pending:
            await self._outer.write(SecretBytes(self._outgoing.read()), deadline)

    async def _receive(self, deadline: Deadline) -> None:
        """Pass what arrives to the session."""
        data = await self._outer.read(deadline)
        if not data:
            raise ConnectionFailed("the connection was lost", code="net.connection.broken")
        self._incoming.write(data)


T = TypeVar("T")

#: addresses of one name that are tried
_MOST_ADDRESSES: Final = 8
#: TLS contexts of one transport: one for each client certificate
_MOST_CONTEXTS: Final = 256


class Dialled(NamedTuple):
    """A connected socket or, through a proxy, an open tunnel; its address and the TLS settings for it."""

    sock: Any
    tunnel: connections.Connection | None
    address: str
    security: connections.TLSSettings | None


class Dialler:
    """Opens connections with the settings of one transport."""

    def __init__(self, backend: connections.Backend, config: NetConfig) -> None:
        self._backend = backend
        self._limits = config.limits
        self._tls = config.tls
        self._contexts: dict[bool | ClientIdentity, ssl.SSLContext] = {}
        #: the addresses of the proxy, and when they are looked up again
        self._proxy_addresses: tuple[Sequence[str], float] | None = None
        self.resolver = config.resolver or connections.SystemResolver()

    async def dial_addresses(
        self,
        addresses: Sequence[str],
        port: int,
        name: str | None,
        deadline: Deadline,
        identity: ClientIdentity | None = None,
    ) -> Dialled:
        """Return a socket that is connected to the first of the addresses that accepts a connection.

        `name` is the name for TLS, None for plain HTTP. `identity` replaces the transport's own certificate.
        """
        # first, because an unreadable file of authorities would leave the socket open
        security = (
            None
            if name is None
            else connections.TLSSettings(self._get_context(own=True, identity=identity), name)
        )
        sock, address = await self._dial_first(addresses, port, deadline)
        return Dialled(sock, None, address, security)

    async def dial_through(
        self,
        proxy: ProxyConfig,
        hosts: Sequence[str],
        port: int,
        name: str,
        deadline: Deadline,
        identity: ClientIdentity | None = None,
    ) -> Dialled:
        """Return a tunnel through the proxy to the first of the hosts that it reaches.

        `hosts` are checked addresses, or the name if the proxy looks it up. `name` is the name for TLS.
        """
        security = connections.TLSSettings(self._get_context(own=True, identity=identity), name)
        *others, last = hosts[:_MOST_ADDRESSES]
        try:
            for host in others:
                try:
                    return await self._dial_tunnel(proxy, host, port, security, deadline)
                except ConnectionFailed as error:
                    if error.code != "net.proxy.unreachable":
                        raise
            return await self._dial_tunnel(proxy, last, port, security, deadline)
        except NetError as error:
            translated = translate_proxy_error(error, proxy)
            if translated is error:
                raise
            raise translated from error

    async def establish(self, dialled: Dialled, deadline: Deadline) -> connections.Connection:
        """Return the connection on that socket or tunnel, with TLS if it has TLS settings."""
        sock, tunnel, address, security = dialled
        if tunnel is None:
            return await self._run_with_timeout(
                deadline,
                self._limits.connect,
                lambda until: self._backend.establish(sock, address, security, until),
            )
        assert security is not None  # noqa: S101 - plain HTTP never goes through a proxy
        try:
            connection = InnerTLSConnection(tunnel, security)
            await self._run_with_timeout(deadline, self._limits.connect, connection.do_handshake)
        except BaseException:
            tunnel.close()
            raise
        return connection

    async def _dial_tunnel(
        self, proxy: ProxyConfig, host: str, port: int, security: connections.TLSSettings, deadline: Deadline
    ) -> Dialled:
        outer = (
            connections.TLSSettings(self._get_context(own=False), proxy.host)
            if proxy.scheme == "https"
            else None
        )
        addresses = await self._find_proxy_addresses(proxy, deadline)
        try:
            sock, address = await self._dial_first(addresses, proxy.port, deadline)
        except NetError:
            self._proxy_addresses = None
            raise
        tunnel = await self.establish(Dialled(sock, None, address, outer), deadline)
        most = self._limits.header_bytes
        try:
            await self._run_with_timeout(
                deadline,
                self._limits.connect,
                lambda until: open_tunnel(tunnel, proxy, host, port, most, until),
            )
        except BaseException:
            tunnel.close()
            raise
        return Dialled(None, tunnel, address, security)

    async def _find_proxy_addresses(self, proxy: ProxyConfig, deadline: Deadline) -> Sequence[str]:
        """Return the addresses of the proxy. The operator chose it, so that every address is allowed."""
        fixed = proxy.list_fixed_addresses()
        if fixed:
            return fixed
        known = self._proxy_addresses
        if known is None or self._backend.clock() >= known[1]:
            found = await self._backend.lookup(self.resolver, proxy.host, deadline)
            known = self._proxy_addresses = found, self._backend.clock() + self._limits.answers
        return known[0]

    async def _dial_first(self, addresses: Sequence[str], port: int, deadline: Deadline) -> tuple[Any, str]:
        *others, last = addresses[:_MOST_ADDRESSES]
        for address in others:
            try:
                return await self._dial_address(address, port, deadline, self._limits.connect_next), address
            except ConnectionFailed:
                continue
        return await self._dial_address(last, port, deadline, self._limits.connect), last

    async def _dial_address(self, address: str, port: int, deadline: Deadline, patience: float) -> Any:
        return await self._run_with_timeout(
            deadline, patience, lambda until: self._backend.dial(address, port, until)
        )

    def _get_context(self, *, own: bool, identity: ClientIdentity | None = None) -> ssl.SSLContext:
        """Return the TLS context with a client certificate: that of `identity`, or the transport's `own` one.

        Without either it has no certificate, as for the proxy.
        """
        key = own if identity is None else identity
        context = self._contexts.get(key)
        if context is None:
            files: tuple[str | None, str | None, Secret | None] = (None, None, None)
            if identity is not None:
                files = (identity.cert, identity.key, identity.password)
            config = replace(
                self._tls, client_cert=files[0], client_key=files[1], client_key_password=files[2]
            )
            context = connections.make_tls_context(self._tls if key is True else config)
            self._contexts[key] = context
            if len(self._contexts) > _MOST_CONTEXTS:
                self._contexts.pop(next(iter(self._contexts)), None)
        return context

    async def _run_with_timeout(
        self, deadline: Deadline, patience: float, attempt: Callable[[Deadline], Awaitable[T]]
    ) -> T:
        """Run one attempt with `patience` seconds, or with the time that is left if that is less."""
        now = self._backend.clock()
        until = now + patience if deadline is None else min(deadline, now + patience)
        try:
            return await attempt(until)
        except DeadlineExceeded:
            if deadline is not None and self._backend.clock() >= deadline:
                raise
            raise connections.make_connect_timeout_error() from None
