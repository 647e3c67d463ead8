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
from onym.uri.log_filter import install_logging_filter

#: bytes of a PEM file that are searched
_MAX_BYTES_READ: Final = 1024 * 1024
_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_ENCRYPTED_KEY: Final = re.compile(
    rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE
)


def explain_pem_error(error: Exception, certificate: str | Path, key: str | Path | None) -> str:
    """Return the reason why `load_cert_chain` failed for these PEM files, in a few words."""
    place = certificate if key is None else key
    try:
        chain = _read_file_start(certificate)
        secret = chain if key is None else _read_file_start(key)
    except OSError as unread:
        fault = "no such file" if isinstance(unread, FileNotFoundError) else unread.strerror
        return f"{fault}: {unread.filename}"
    if not _CERTIFICATE.search(chain):
        swapped = key is not None and _KEY.search(chain) and _CERTIFICATE.search(secret)
        return (
            f"{certificate} contains the key and {key} the certificate: the two are swapped"
            if swapped
            else f"{certificate} contains no PEM certificate"
        )
    if not _KEY.search(secret):
        return f"{place} contains no PEM private key"
    if _ENCRYPTED_KEY.search(secret):
        return f"the key in {place} is protected by a password"
    reason = getattr(error, "reason", None)  # OpenSSL's reason, if this is an ssl.SSLError
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {place} does not belong to the certificate in {certificate}"
    return str(reason or type(error).__name__)


def _read_file_start(file: str | Path) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(_MAX_BYTES_READ)


#: bytes of request line and header fields
MAX_HEAD_BYTES: Final = 128 * 1024
#: seconds until the head is complete, from the connection or the head's first byte
HEAD_SECONDS: Final = 20.0
#: seconds until the body is complete, from the end of its head
BODY_SECONDS: Final = 60.0
#: seconds that a client may stop reading a response
WRITE_SECONDS: Final = 60.0


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection if the head or body is too slow, or if the client does not read the response."""

    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    take_seconds: float = WRITE_SECONDS
    _taken = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer."""
        super().connection_made(transport)
        self._start_timer(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._cancel_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, and reject a head that is too long."""
        super().data_received(data)
        if self._in_head:
            self._taken += len(data)
            if self._taken > MAX_HEAD_BYTES:
                self._cancel_timer()
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Start the timer of the head."""
        super().on_message_begin()
        self._taken = 0
        self._in_head = True
        self._start_timer(self.head_seconds)

    def on_headers_complete(self) -> None:
        """Start the timer of the body."""
        if self.parser.should_upgrade() and self._has_body():
            # httptools does not read the body after such a head: it would parse it as the next request
            raise ValueError("a request with a body must not have Upgrade")
        self._in_head = False
        self._start_timer(self.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the timer: the request is complete."""
        self._cancel_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the timer of a client that does not read."""
        super().pause_writing()
        self._cancel_stall_timer()
        self._stalled = self.loop.call_later(self.take_seconds, self._abort_stalled)

    def resume_writing(self) -> None:
        """Stop the timer: the client reads again."""
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
    """Rejects targets that are not in origin-form, and trailer fields: an ASGI scope does not show them.

    An absolute-form target (RFC 9112 3.2.2) names a second host, a fragment must never be sent, a scope
    does not show an empty query, and it lists a trailer field with the header fields, although no proxy has
    seen it there.
    """

    def on_header(self, name: bytes, value: bytes) -> None:
        """Reject trailer fields."""
        if not self._in_head:
            raise ValueError("trailer fields are not accepted")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the target before it is decoded."""
        if self.url != b"*" and (self.url[:1] != b"/" or b"#" in self.url or self.url[-1:] == b"?"):
            # httptools reports this as a bad request: 400, and the connection is closed
            raise ValueError("the target is not in origin-form")
        super().on_headers_complete()


#: seconds for open requests to end, and for an idle connection to be reused
_GRACE: Final = 10
_IDLE: Final = 15
_MOST_CONNECTIONS: Final = 2000
#: errors if this computer does not support an address family
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_UNKNOWN_HOST: Final = "The host name is unknown. Use an address of this computer, such as 127.0.0.1."
_WHY: Final = {
    errno.EADDRINUSE: "Another program listens on this port. Stop it, or use another port.",
    errno.EADDRNOTAVAIL: "This computer does not have that address.",
    errno.EACCES: "Ports below 1024 need CAP_NET_BIND_SERVICE, or a proxy in front.",
}
_LOOPBACK: Final = frozenset({"localhost", "::1", "[::1]"})


class QueryRedactionFilter(logging.Filter):
    """Removes the query from access log lines: it may contain a code or a search text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the path in place. Return True."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                arg.partition("?")[0] if isinstance(arg, str) and arg.startswith("/") else arg
                for arg in record.args
            )
        return True


class _Server(uvicorn.Server):
    """A server that reports its port when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report the port."""
        await super().startup(sockets=sockets)
        if self._ready is not None and self.started:
            self._ready(int(self.servers[0].sockets[0].getsockname()[1]))


def run_app(app: Any, **options: Any) -> None:
    """Serve an ASGI app until SIGINT or SIGTERM, in a new loop; the options are those of `serve_app`."""
    with asyncio.Runner(loop_factory=get_loop_factory()) as runner:
        runner.run(serve_app(app, **options))


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
    """Serve in this loop until a signal arrives or `stop` is set.

    `certificate` and `key` are PEM files (one file may contain both). Without them the server speaks plain
    HTTP, on loopback only unless `plain`. Port 0 selects a free port; `ready` is called with the port when
    the server listens. `proxies` are addresses whose X-Forwarded-For and -Proto are trusted. `sockets`
    replace host and port. Raises ConfigError `config.plain-http`, `config.bad-certificate`,
    `config.cannot-listen`.
    """
    _require_tls_or_loopback(host, certificate is not None or plain)
    context = None if certificate is None else make_tls_context(certificate, key)
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
        # only the named proxies are trusted to report client addresses
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_GRACE,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    _install_log_filters()
    server = _Server(config, ready)
    opened = _bind_sockets(host, port) if sockets is None else list(sockets)
    watch = None if stop is None else asyncio.create_task(_stop_when_set(server, stop))
    try:
        await server.serve(sockets=opened)
    except SystemExit:
        if server.started:
            raise  # a signal stopped the running server
        # uvicorn exits if it cannot start; its log has the reason
        raise _make_listen_error(host, port, "The app did not start; the log has the reason.") from None
    finally:
        if watch is not None:
            watch.cancel()
        for opened_socket in opened:
            opened_socket.close()


def get_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the faster event loop, or None."""
    try:
        import uvloop  # uvloop does not support Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


def make_tls_context(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    """Return a context for TLS 1.3 only. Raises ConfigError `config.bad-certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        # an empty password: OpenSSL would ask the terminal for one
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"the certificate or its key cannot be used ({explain_pem_error(error, certificate, key)})",
            code="config.bad-certificate",
            hint="Use PEM files that belong together: the chain, and its private key without a password.",
        ) from None
    return context


def _bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for every address of `host` ("" for all); port 0 selects free ports."""
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
    """Raise ConfigError if plain HTTP would be reachable from other computers."""
    if allowed or host in _LOOPBACK or host.startswith("127."):
        return
    raise ConfigError(
        f"plain HTTP is allowed on loopback only, and {host or 'every address'} is not loopback",
        code="config.plain-http",
        hint="Set a certificate and its key (--tls-cert, --tls-key), or listen on 127.0.0.1.",
    )


async def _stop_when_set(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _install_log_filters() -> None:
    access = logging.getLogger("uvicorn.access")
    if not any(isinstance(log_filter, QueryRedactionFilter) for log_filter in access.filters):
        access.addFilter(QueryRedactionFilter())
    for name in ("uvicorn.access", "uvicorn.error", "onym.server", "onym.ai"):
        install_logging_filter(logging.getLogger(name))
