"""Listening: one uvicorn in this process, TLS 1.3, bounds on heads and on time, stopped gracefully.

Off loopback only TLS is spoken, unless `plain` says that a proxy in front speaks it (aiip 3.6).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvicorn

from onym.errors import ConfigError
from onym.server._pem import why_unusable
from onym.server._protocol import BoundedProtocol, OriginFormProtocol
from onym.uri.redact import install_logging_filter

__all__ = ["QueryFilter", "listen", "serve", "tls_context"]

#: seconds for open requests to end, and for an idle connection to be used again
_GRACE: Final = 10
_IDLE: Final = 15
_MOST_CONNECTIONS: Final = 2000
#: errors of a kind of address that this machine does not have
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_UNKNOWN_HOST: Final = "the host is unknown: give an address of this machine, such as 127.0.0.1"
_WHY: Final = {
    errno.EADDRINUSE: "something else listens there: end it, or take another port",
    errno.EADDRNOTAVAIL: "that is no address of this machine",
    errno.EACCES: "ports below 1024 need a right of their own (CAP_NET_BIND_SERVICE), or a proxy in front",
}
_LOOPBACK: Final = frozenset({"localhost", "::1", "[::1]"})


class QueryFilter(logging.Filter):
    """Takes the query out of an access log's line: it may hold a code or what somebody searched for."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the path in place; always True."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                each.partition("?")[0] if isinstance(each, str) and each.startswith("/") else each
                for each in record.args
            )
        return True


class _Server(uvicorn.Server):
    """A server that tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell the port."""
        await super().startup(sockets=sockets)
        if self._ready is not None and self.started:
            self._ready(int(self.servers[0].sockets[0].getsockname()[1]))


def listen(
    app: Any,
    *,
    host: str,
    port: int,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    ready: Callable[[int], object] | None = None,
    stop: asyncio.Event | None = None,
    proxies: Sequence[str] = (),
    plain: bool = False,
) -> None:
    """Serve an ASGI app until SIGINT or SIGTERM, in a loop of its own; the arguments are those of `serve`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(
            serve(
                app,
                host=host,
                port=port,
                certificate=certificate,
                key=key,
                ready=ready,
                stop=stop,
                proxies=proxies,
                plain=plain,
            )
        )


async def serve(
    app: Any,
    *,
    host: str,
    port: int,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    ready: Callable[[int], object] | None = None,
    stop: asyncio.Event | None = None,
    proxies: Sequence[str] = (),
    plain: bool = False,
    sockets: Sequence[socket.socket] | None = None,
    protocol: type[BoundedProtocol] = OriginFormProtocol,
) -> None:
    """Serve in this loop until a signal comes or `stop` is set.

    `certificate` and `key` are PEM files (the key may be in the certificate's); without them plain HTTP is
    spoken, on loopback only unless `plain`. Port 0 takes a free one; `ready` is called with the port once the
    server listens. `proxies` are the addresses whose X-Forwarded-For and -Proto count. `sockets` are listened
    on instead of host and port. Raises ConfigError `config.plain-http`, `config.bad-certificate`,
    `config.cannot-listen`.
    """
    _check_plain(host, certificate is not None or plain)
    context = None if certificate is None else tls_context(certificate, key)
    server = _Server(_config(app, host, port, context, tuple(proxies), protocol), ready)
    opened = _bound(host, port) if sockets is None else list(sockets)
    watch = None if stop is None else asyncio.create_task(_stop(server, stop))
    try:
        await server.serve(sockets=opened)
    except SystemExit:
        if server.started:
            raise  # it served, and a signal ended it
        # uvicorn ends the process where it cannot start; its log has the reason
        raise _cannot_listen(host, port, "the app did not start") from None
    finally:
        if watch is not None:
            watch.cancel()
        for each in opened:
            each.close()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where there is one."""
    try:
        import uvloop  # Windows has none
    except ImportError:
        return None
    return uvloop.new_event_loop


def tls_context(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    """TLS 1.3 and nothing older, with this certificate. Raises ConfigError `config.bad-certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        # an empty password: OpenSSL would ask the terminal for one
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"the certificate or its key cannot be used ({why_unusable(error, certificate, key)})",
            code="config.bad-certificate",
            hint="PEM files that belong together: the chain, and its private key without a password",
        ) from None
    return context


def _bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host` ("" for all), bound to `port`; 0 takes a free one for each."""
    with ExitStack() as opened:
        found, failure = [], None
        for family, address in _addresses(host, port):
            try:
                found.append(opened.enter_context(socket.create_server(address, family=family)))
            except OSError as error:
                failure = error
                if error.errno not in _ABSENT:
                    break
        if failure is not None and (not found or failure.errno not in _ABSENT):
            raise _cannot_listen(host, port, _WHY.get(failure.errno or 0, failure.strerror))
        opened.pop_all()
        return found


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # UnicodeError: a label that is empty or too long
        raise _cannot_listen(host, port, _UNKNOWN_HOST) from None
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def _cannot_listen(host: str, port: int, why: str | None) -> ConfigError:
    return ConfigError(f"cannot listen on {host} port {port}", code="config.cannot-listen", hint=why)


def _check_plain(host: str, allowed: bool) -> None:
    """Refuses plain HTTP where others can reach it."""
    if allowed or host in _LOOPBACK or host.startswith("127."):
        return
    raise ConfigError(
        "plain HTTP is served on loopback only",
        code="config.plain-http",
        hint="give a certificate and its key (--tls-cert, --tls-key), or listen on 127.0.0.1",
    )


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _config(
    app: Any,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    proxies: tuple[str, ...],
    protocol: type[BoundedProtocol],
) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        loop="none",
        lifespan="on",
        workers=1,
        log_config=None,
        # nobody's word on addresses is taken but that of proxies named
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_GRACE,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    access = logging.getLogger("uvicorn.access")
    if not any(isinstance(each, QueryFilter) for each in access.filters):
        access.addFilter(QueryFilter())
    for name in ("uvicorn.access", "uvicorn.error", "onym.server", "onym.ai"):
        install_logging_filter(logging.getLogger(name))
    return config
