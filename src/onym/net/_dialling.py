"""Connect to a target: to the first checked address that accepts a connection, or through a proxy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onym.errors import ConnectionFailed, DeadlineExceeded, NetError
from onym.net._inner_tls import InnerTLSConnection
from onym.net._tunnels import open_tunnel, translate_proxy_error
from onym.net.connections import (
    Backend,
    Connection,
    SystemResolver,
    TLSSettings,
    make_connect_timeout_error,
    make_tls_context,
)
from onym.net.limits import ClientIdentity, Deadline

if TYPE_CHECKING:
    import ssl

    from onym.net.config import NetConfig
    from onym.net.proxies import ProxyConfig
    from onym.uri.secret import Secret

T = TypeVar("T")

#: addresses of one name that are tried
_MOST_ADDRESSES: Final = 8
#: TLS contexts of one transport: one for each client certificate
_MOST_CONTEXTS: Final = 256


class Dialled(NamedTuple):
    """A connected socket or, through a proxy, an open tunnel; its address and the TLS settings for it."""

    sock: Any
    tunnel: Connection | None
    address: str
    security: TLSSettings | None


class Dialler:
    """Opens connections with the settings of one transport."""

    def __init__(self, backend: Backend, config: NetConfig) -> None:
        self._backend = backend
        self._limits = config.limits
        self._tls = config.tls
        self._contexts: dict[bool | ClientIdentity, ssl.SSLContext] = {}
        #: the addresses of the proxy, and when they are looked up again
        self._proxy_addresses: tuple[Sequence[str], float] | None = None
        self.resolver = config.resolver or SystemResolver()

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
        security = None if name is None else TLSSettings(self._get_context(own=True, identity=identity), name)
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
        security = TLSSettings(self._get_context(own=True, identity=identity), name)
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

    async def establish(self, dialled: Dialled, deadline: Deadline) -> Connection:
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
        self, proxy: ProxyConfig, host: str, port: int, security: TLSSettings, deadline: Deadline
    ) -> Dialled:
        outer = TLSSettings(self._get_context(own=False), proxy.host) if proxy.scheme == "https" else None
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
            context = make_tls_context(self._tls if key is True else config)
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
            raise make_connect_timeout_error() from None
