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
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onym.errors import ConfigError
from onym.net.hosts import get_client_network
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


#: fields in which a proxy passes a client certificate on (RFC 9440 2)
_CLIENT_CERT: Final = b"client-cert"
_CLIENT_CERT_FIELDS: Final = frozenset({_CLIENT_CERT, b"client-cert-chain"})
#: a byte sequence of RFC 9651 3.3.5
_BYTE_SEQUENCE: Final = re.compile(rb" *:([A-Za-z0-9+/]+={0,2}): *")
_TLS_1_3: Final = 0x0304


def _make_tls_extension(der: bytes) -> dict[str, Any]:
    """Return the value of `tls` in the extensions of a scope, with the client's certificate in PEM."""
    return {
        "server_cert": None,
        "client_cert_chain": [ssl.DER_cert_to_PEM_cert(der)],
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": _TLS_1_3,
        "cipher_suite": None,
    }


#: the answer to a connection beyond the limit
_TOO_MANY_CONNECTIONS: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection if the head or body is too slow, or if the client does not read the response.

    It also puts the client certificate into the scope. Only the `certificate_proxies` may forward one.
    """

    certificate_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    #: connections of one client at once; peers in `unlimited` (proxies that bring many clients) have no limit
    connections_per_address: int | None = None
    unlimited: tuple[IPv4Network | IPv6Network, ...] = ()
    #: open connections by client; a class with a limit has its own
    open_connections: ClassVar[Counter[str]] = Counter()
    _counted: str | None = None
    _tls: dict[str, Any] | None = None
    _is_proxy = False

    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    take_seconds: float = WRITE_SECONDS
    _taken = 0
    _in_head = False
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and take the client certificate of the connection."""
        super().connection_made(transport)
        if not self._count_connection():
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
            return
        self._is_proxy = _is_within(self.client, self.certificate_proxies)
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        # the certificate of a proxy says nothing about the client
        if certificate is not None and not self._is_proxy:
            self._tls = _make_tls_extension(certificate)
        self._start_timer(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        if self._counted is not None:
            self.open_connections[self._counted] -= 1
            if self.open_connections[self._counted] <= 0:
                del self.open_connections[self._counted]
            self._counted = None
        self._cancel_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def _count_connection(self) -> bool:
        """Count the connection; report False if its client has too many."""
        limit = self.connections_per_address
        if limit is None or self.client is None or _is_within(self.client, self.unlimited):
            return True
        client = get_client_network(self.client[0])
        if self.open_connections[client] >= limit:
            return False
        self._counted = client
        self.open_connections[client] += 1
        return True

    def data_received(self, data: bytes) -> None:
        """Parse the data, and reject a head that is too long."""
        if self.transport.is_closing():
            return
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
        forwarded = self._take_forwarded_certificate()
        tls = forwarded if self._is_proxy else self._tls
        if tls is not None:
            self.scope["extensions"] = {"tls": tls}  # type: ignore[dict-item]  # uvicorn allows only empty ones
        super().on_headers_complete()

    def _take_forwarded_certificate(self) -> dict[str, Any] | None:
        """Remove the fields of RFC 9440, and return the certificate in them if the peer is a known proxy."""
        if not any(name in _CLIENT_CERT_FIELDS for name, _ in self.headers):
            return None
        values = [value for name, value in self.headers if name == _CLIENT_CERT]
        self.headers[:] = [field for field in self.headers if field[0] not in _CLIENT_CERT_FIELDS]
        if not (self._is_proxy and values):
            return None
        match = _BYTE_SEQUENCE.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            raise ValueError("the field Client-Cert is not one byte sequence")
        der = b64decode(match[1], validate=True)
        begins, ends = _read_validity(der)
        return _make_tls_extension(der) if begins <= datetime.now(UTC) <= ends else None

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


def _is_within(client: tuple[str, int] | None, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether the peer of a connection has an address in one of these networks."""
    if client is None or not networks:
        return False
    address = ip_address(client[0].partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address.version == network.version and address in network for network in networks)


@lru_cache(maxsize=256)
def _read_validity(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when and until when a certificate is valid. Raises ValueError if it is not one."""
    from cryptography import x509  # late: only proxies with client certificates need it

    found = x509.load_der_x509_certificate(certificate)
    return found.not_valid_before_utc, found.not_valid_after_utc


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
GRACE_SECONDS: Final = 10
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
    client_ca: str | Path | None = None,
    certificate_proxies: Sequence[str] = (),
    reuse_port: bool = False,
    connections_per_address: int | None = None,
    unlimited: Sequence[str] = (),
) -> None:
    """Serve in this loop until a signal arrives or `stop` is set.

    `certificate` and `key` are PEM files (one file may contain both). Without them the server speaks plain
    HTTP, on loopback only unless `plain`. Port 0 selects a free port; `ready` is called with the port when
    the server listens. `proxies` are addresses whose X-Forwarded-For and -Proto are trusted. `sockets`
    replace host and port. With `reuse_port`, several processes serve the port (`onym.server.workers`).

    `client_ca` is a PEM file of the authorities that issue client certificates: clients may then show one,
    and the app decides who must. `certificate_proxies` are addresses and networks of proxies that verify
    client certificates and send them in the field Client-Cert. A client (an IPv4 address or an IPv6 /64
    network) has at most `connections_per_address` connections, except those in the CIDR blocks of
    `unlimited`. Raises ConfigError `config.plain-http`,
    `config.bad-certificate`, `config.bad-proxy`, `config.cannot-listen`.

    A client certificate that TLS has verified is in `scope["extensions"]["tls"]`, as ASGI's TLS extension has
    it. A proxy that terminates TLS passes the certificate on in the field `Client-Cert` (RFC 9440), which is
    removed from all requests and read only from the proxies that `certificate_proxies` lists.
    """
    _require_tls_or_loopback(host, certificate is not None or plain)
    context = None if certificate is None else make_tls_context(certificate, key, client_ca=client_ca)
    if client_ca is not None and context is None:
        raise ConfigError(
            "client certificates need TLS, and the server has no certificate of its own",
            code="config.bad-certificate",
            hint="Set a certificate and its key (--tls-cert, --tls-key), or let a proxy verify the clients.",
        )
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_limit_connections(
            _with_certificate_proxies(protocol, certificate_proxies), connections_per_address, unlimited
        ),
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
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_context_factory=None if context is None else lambda _config, _default: context,
    )
    _install_log_filters()
    server = _Server(config, ready)
    opened = bind_sockets(host, port, reuse_port=reuse_port) if sockets is None else list(sockets)
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


def _with_certificate_proxies(
    protocol: type[BoundedProtocol], addresses: Sequence[str]
) -> type[BoundedProtocol]:
    """Return the protocol that trusts these proxies. Raises ConfigError `config.bad-proxy`."""
    try:
        networks = tuple(ip_network(address) for address in addresses)
    except ValueError as error:
        raise ConfigError(
            f"a proxy of client certificates is not an address or a network: {error}",
            code="config.bad-proxy",
            hint="Write addresses such as 127.0.0.1, or networks such as 10.0.0.0/8.",
        ) from None
    members = {"certificate_proxies": networks}
    return type(protocol.__name__, (protocol,), members) if networks else protocol


def _limit_connections(
    protocol: type[BoundedProtocol], limit: int | None, unlimited: Sequence[str]
) -> type[BoundedProtocol]:
    """Return the protocol that limits the connections of an address."""
    if limit is None:
        return protocol
    members = {
        "connections_per_address": limit,
        "unlimited": tuple(ip_network(block, strict=False) for block in unlimited),
        "open_connections": Counter[str](),
    }
    return type(protocol.__name__, (protocol,), members)


def get_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the faster event loop, or None."""
    try:
        import uvloop  # uvloop does not support Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


def make_tls_context(
    certificate: str | Path, key: str | Path | None = None, *, client_ca: str | Path | None = None
) -> ssl.SSLContext:
    """Return a context for TLS 1.3 only. Raises ConfigError `config.bad-certificate`.

    With `client_ca`, a client may show a certificate of one of these authorities; another certificate ends
    the connection.
    """
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
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, FileNotFoundError) else "no PEM certificates"
            raise ConfigError(
                f"the certificates of client authorities in {client_ca} cannot be used ({reason})",
                code="config.bad-certificate",
                hint="Use a PEM file with the certificates of the authorities that your clients have.",
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def bind_sockets(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Return a bound socket for every address of `host` ("" for all); port 0 selects free ports.

    The sockets listen, except those with `reuse_port`, which other sockets of this user may share: a socket
    gets connections as soon as it listens. Raises ConfigError `config.cannot-listen`.
    """
    with ExitStack() as opened:
        found: list[socket.socket] = []
        failure = None
        for family, address in _resolve_addresses(host, port):
            # of port 0, all addresses get the same port if processes must find it again
            if reuse_port and found:
                address = (address[0], found[0].getsockname()[1], *address[2:])
            try:
                bound = (
                    _bind_shared(family, address)
                    if reuse_port
                    else socket.create_server(address, family=family)
                )
                found.append(opened.enter_context(bound))
            except OSError as error:
                failure = error
                if error.errno not in _ABSENT:
                    break
        if failure is not None and (not found or failure.errno not in _ABSENT):
            raise _make_listen_error(host, port, _WHY.get(failure.errno or 0, failure.strerror))
        opened.pop_all()
        return found


def _bind_shared(family: int, address: Any) -> socket.socket:
    """Return a socket that is bound to an address together with others, and does not listen yet."""
    with ExitStack() as stack:
        bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        stack.pop_all()
        return bound


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
