"""The HTTP listener: one uvicorn server in this process, with TLS 1.3 and limits on header size and time.

The listener speaks plain HTTP on loopback addresses only, unless `plain` says that a proxy terminates TLS
(AIIP/HTTPS 3.6). Clients that send a request byte by byte, or do not read a response, are disconnected.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onym.errors import ConfigError
from onym.uri.redact import install_logging_filter

#: octets of a file that are looked at for what it holds
_MAX_BYTES_READ: Final = 1024 * 1024
_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_ENCRYPTED_KEY: Final = re.compile(
    rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE
)


def explain_pem_error(error: Exception, certificate: str | Path, key: str | Path | None) -> str:
    """What is known of why `load_cert_chain` of these PEM files ended with this error, in a few words."""
    place = certificate if key is None else key
    try:
        chain = _read_file_start(certificate)
        secret = chain if key is None else _read_file_start(key)
    except OSError as unread:
        return f"{_describe_missing_file(unread)} {unread.filename}"
    if not _CERTIFICATE.search(chain):
        swapped = key is not None and _KEY.search(chain) and _CERTIFICATE.search(secret)
        return (
            f"{certificate} holds the key and {key} the certificate: the two are swapped"
            if swapped
            else f"there is no PEM certificate in {certificate}"
        )
    if not _KEY.search(secret):
        return f"there is no PEM private key in {place}"
    if _ENCRYPTED_KEY.search(secret):
        return f"the key in {place} has a password"
    reason = getattr(error, "reason", None)  # of an ssl.SSLError: OpenSSL's word
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {place} is that of another certificate than the one in {certificate}"
    return str(reason or type(error).__name__)


def _describe_missing_file(error: OSError) -> str:
    return "there is no file" if isinstance(error, FileNotFoundError) else f"{error.strerror}:"


def _read_file_start(file: str | Path) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(_MAX_BYTES_READ)


#: octets of request line and header fields
MAX_HEAD_BYTES: Final = 128 * 1024
#: seconds until a head is there, from the connection or the head's first octet
HEAD_SECONDS: Final = 20.0
#: seconds until a body is there, from the end of its head
BODY_SECONDS: Final = 60.0
#: seconds that a client may take nothing of an answer that waits for it
WRITE_SECONDS: Final = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose head or body never ends, and one that takes no answer."""

    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    take_seconds: float = WRITE_SECONDS
    _taken = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self._start_timer(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._cancel_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless the head is too long by now."""
        super().data_received(data)
        if self._in_head:
            self._taken += len(data)
            if self._taken > MAX_HEAD_BYTES:
                self._cancel_timer()
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._taken = 0
        self._in_head = True
        self._start_timer(self.head_seconds)

    def on_headers_complete(self) -> None:
        """A head is whole; a body may follow."""
        if self.parser.should_upgrade() and self._has_body():
            # httptools takes what is behind such a head for no body of it: in a segment of its own that
            # would be read as the next request
            raise ValueError("a request with a body goes on as HTTP, without Upgrade")
        self._in_head = False
        self._start_timer(self.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._cancel_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """More of an answer waits than the client takes."""
        super().pause_writing()
        self._cancel_stall_timer()
        self._stalled = self.loop.call_later(self.take_seconds, self._abort_stalled)

    def resume_writing(self) -> None:
        """It takes again."""
        self._cancel_stall_timer()
        super().resume_writing()

    def _has_body(self) -> bool:
        fields = dict(self.headers)
        return b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"

    def _cancel_stall_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _abort_stalled(self) -> None:
        self._stalled = None
        self.transport.abort()

    def _start_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(seconds, self._close_late)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_late(self) -> None:
        self._timer = None
        self.transport.close()


class OriginFormProtocol(BoundedProtocol):
    """Refuses what an app cannot tell from its scope: targets not in origin-form, fields behind the body.

    An absolute-form target (RFC 9112 3.2.2) names a second host beside the field Host, a fragment is never
    sent, a `?` with nothing behind it is lost in a scope, and a trailer field would stand among those of the
    head, where no proxy in front has seen it.
    """

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field: of the head, or it is refused."""
        if not self._in_head:
            raise ValueError("trailer fields are not taken")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Look at the target as it came."""
        if self.url != b"*" and (self.url[:1] != b"/" or b"#" in self.url or self.url[-1:] == b"?"):
            # httptools hands this on as an error of the request: 400, and the connection is closed
            raise ValueError("the target is not in origin-form")
        super().on_headers_complete()


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


class QueryRedactionFilter(logging.Filter):
    """Takes the query out of an access log's line: it may hold a code or what somebody searched for."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the path in place; always True."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg.partition("?")[0] if isinstance(arg, str) and arg.startswith("/") else arg
                for arg in record.args
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


def run_app(
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
    """Serve an ASGI app until SIGINT or SIGTERM, in a loop of its own; the arguments are those of `serve_app`."""
    with asyncio.Runner(loop_factory=get_loop_factory()) as runner:
        runner.run(
            serve_app(
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


async def serve_app(
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
    _require_tls_or_loopback(host, certificate is not None or plain)
    context = None if certificate is None else make_tls_context(certificate, key)
    server = _Server(_make_uvicorn_config(app, host, port, context, tuple(proxies), protocol), ready)
    opened = _bind_sockets(host, port) if sockets is None else list(sockets)
    watch = None if stop is None else asyncio.create_task(_stop_when_set(server, stop))
    try:
        await server.serve(sockets=opened)
    except SystemExit:
        if server.started:
            raise  # it served, and a signal ended it
        # uvicorn ends the process where it cannot start; its log has the reason
        raise _make_listen_error(host, port, "the app did not start") from None
    finally:
        if watch is not None:
            watch.cancel()
        for opened_socket in opened:
            opened_socket.close()


def get_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where there is one."""
    try:
        import uvloop  # Windows has none
    except ImportError:
        return None
    return uvloop.new_event_loop


def make_tls_context(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    """TLS 1.3 and nothing older, with this certificate. Raises ConfigError `config.bad-certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        # an empty password: OpenSSL would ask the terminal for one
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"the certificate or its key cannot be used ({explain_pem_error(error, certificate, key)})",
            code="config.bad-certificate",
            hint="PEM files that belong together: the chain, and its private key without a password",
        ) from None
    return context


def _bind_sockets(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host` ("" for all), bound to `port`; 0 takes a free one for each."""
    with ExitStack() as opened:
        found, failure = [], None
        for family, address in _resolve_addresses(host, port):
            try:
                found.append(opened.enter_context(socket.create_server(address, family=family)))
            except OSError as error:
                failure = error
                if error.errno not in _ABSENT:
                    break
        if failure is not None and (not found or failure.errno not in _ABSENT):
            raise _make_listen_error(host, port, _WHY.get(failure.errno or 0, failure.strerror))
        opened.pop_all()
        return found


def _resolve_addresses(host: str, port: int) -> list[tuple[int, Any]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # UnicodeError: a label that is empty or too long
        raise _make_listen_error(host, port, _UNKNOWN_HOST) from None
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def _make_listen_error(host: str, port: int, why: str | None) -> ConfigError:
    return ConfigError(f"cannot listen on {host} port {port}", code="config.cannot-listen", hint=why)


def _require_tls_or_loopback(host: str, allowed: bool) -> None:
    """Refuses plain HTTP where others can reach it."""
    if allowed or host in _LOOPBACK or host.startswith("127."):
        return
    raise ConfigError(
        "plain HTTP is served on loopback only",
        code="config.plain-http",
        hint="give a certificate and its key (--tls-cert, --tls-key), or listen on 127.0.0.1",
    )


async def _stop_when_set(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _make_uvicorn_config(
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
    if not any(isinstance(log_filter, QueryRedactionFilter) for log_filter in access.filters):
        access.addFilter(QueryRedactionFilter())
    for name in ("uvicorn.access", "uvicorn.error", "onym.server", "onym.ai"):
        install_logging_filter(logging.getLogger(name))
    return config
