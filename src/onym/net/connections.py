"""Connections: TLS contexts, name resolution, the backend interface, and blocking sockets.

The policy checks every address that a resolver returns. The coroutines of `BlockingBackend` never suspend;
a blocking wait is cut into slices, so that Ctrl-C works on every platform. Errors get Onym's own texts in
`translate_error`, because system messages can contain host names and paths.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import cache
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from onym.common.text import encode_base64url
from onym.errors import ConnectionFailed, NetError, ResolveError, TLSError, UsageError
from onym.net.limits import SLICE, ClientIdentity, Deadline, TLSConfig, compute_remaining, make_deadline_error
from onym.uri.secret import SecretBytes

_NO_WAY: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH}
)
#: X509_V_ERR_*: the fault of a certificate, and its hint
_CERTIFICATE: Final[dict[int, tuple[str, str | None]]] = {
    9: ("the server's certificate is not valid yet", "check this machine's clock"),
    10: ("the server's certificate has expired", "the operator renews it; or is this machine's clock wrong?"),
    18: ("the server's certificate is signed by itself", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    19: ("the server's certificate has an unknown authority", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    20: ("the server's certificate has an unknown authority", "trust it: --ca FILE, TLSConfig(ca_files=...)"),
    62: ("the server's certificate is for another host name", None),
    64: ("the server's certificate is for another IP address", None),
}


def make_connect_timeout_error() -> ConnectionFailed:
    """Return the error for an attempt to connect that took too long, while the call still has time."""
    return ConnectionFailed("connecting took too long", code="net.connection.timeout")


def translate_error(error: Exception) -> NetError:
    """Return Onym's error for an error of the socket or TLS layer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text, hint = _CERTIFICATE.get(error.verify_code, ("the server's certificate cannot be trusted", None))
        return TLSError(text, code="net.tls.certificate", hint=hint)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _translate_tls_error(error)
    if isinstance(error, ConnectionRefusedError):
        return ConnectionFailed("connection refused", code="net.connection.refused")
    if isinstance(error, ConnectionError | ssl.SSLError):
        return ConnectionFailed("the connection was lost", code="net.connection.broken")
    if isinstance(error, TimeoutError):
        return make_connect_timeout_error()
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return ConnectionFailed("the address cannot be reached", code="net.connection.unreachable")
    return ConnectionFailed("the connection failed", code="net.connection")


def _translate_tls_error(error: ssl.SSLError) -> TLSError:
    reason = getattr(error, "reason", None) or ""
    if "WRONG_VERSION" in reason or "HTTP_REQUEST" in reason:
        return TLSError("the server does not speak TLS on this port", code="net.tls.none")
    if "PROTOCOL" in reason and "VERSION" in reason:
        return TLSError("the server supports no TLS version that is allowed here", code="net.tls.version")
    return TLSError("the TLS handshake failed", code="net.tls.handshake")


#: where systems keep their authorities, for a Python that was built to look elsewhere
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)
_END: Final = "-----END CERTIFICATE-----"
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def make_tls_context(config: TLSConfig) -> ssl.SSLContext:
    """Return a context that requires a certificate for the host name, and the TLS version of `config`.

    Raises UsageError `usage.tls` if a file of authorities, certificates or keys cannot be used.
    """
    if not config.ca_files and config.client_cert is None:
        return _get_system_context(config.minimum)
    context = _make_base_context(_BUNDLES, config.minimum)
    for path in config.ca_files:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:
            fault = "contains no certificate" if isinstance(error, ssl.SSLError) else "cannot be read"
            raise UsageError(
                f"the file of certificate authorities {path} {fault}",
                code="usage.tls",
                hint="Use a PEM file with TLSConfig(ca_files=...) or --ca.",
            ) from (error if isinstance(error, FileNotFoundError) else None)
    if config.client_cert is not None:
        _load_client_certificate(context, config)
    return context


def _load_client_certificate(context: ssl.SSLContext, config: TLSConfig) -> None:
    """Load the client's certificate and key. The errors name the file and its fault."""
    cert = config.client_cert or ""
    key = config.client_key or cert
    for kind, path in (("certificate", cert), ("key", key)):
        try:
            Path(path).open("rb").close()
        except OSError:
            raise _make_client_error(f"the file of the client's {kind} {path} cannot be read") from None
    encrypted = False

    def get_password() -> str:
        # OpenSSL calls this only for an encrypted key; without it, OpenSSL would prompt on the terminal
        nonlocal encrypted
        encrypted = True
        return "" if config.client_key_password is None else config.client_key_password.reveal()

    try:
        context.load_cert_chain(cert, key, get_password)
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or ""
    if encrypted and config.client_key_password is None:
        raise _make_client_error(f"the client's key {key} is encrypted, and its password is missing")
    if encrypted:
        raise _make_client_error(f"the password does not decrypt the client's key {key}")
    if "MISMATCH" in reason:
        raise _make_client_error(f"the key {key} does not belong to the client's certificate {cert}")
    raise _make_client_error(f"{cert} and {key} are not a PEM certificate and its key")


def _make_client_error(message: str) -> UsageError:
    return UsageError(
        message,
        code="usage.tls",
        hint="Use PEM files with TLSConfig(client_cert=..., client_key=..., client_key_password=...), or "
        "with --cert and --cert-key.",
    )


def hash_client_certificate(identity: ClientIdentity) -> str:
    """Return the SHA-256 of the identity's own certificate, as tokens name it (RFC 8705 3.1).

    Raises UsageError `usage.tls` if the file cannot be read or contains no certificate.
    """
    try:
        text = Path(identity.cert).read_text(encoding="ascii")
        start = text.index("-----BEGIN CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(text[start : text.index(_END, start) + len(_END)])
    except (OSError, ValueError):
        raise _make_client_error(f"{identity.cert} is not a readable PEM certificate") from None
    return encode_base64url(sha256(der).digest())


def list_authorities(config: TLSConfig) -> tuple[str, ...]:
    """Return the files and folders of the authorities that a connection trusts, the system's first.

    OpenSSL reads `SSL_CERT_FILE` and `SSL_CERT_DIR` instead of the system's own, if they are set.
    """
    system = ssl.get_default_verify_paths()
    places = [place for place in (system.cafile, system.capath) if place]
    bundle = None if places else _find_bundle(_BUNDLES)
    return (*places, *(() if bundle is None else (bundle,)), *config.ca_files)


@cache
def _get_system_context(minimum: str) -> ssl.SSLContext:
    # reading the system's authorities takes about 20 ms, and contexts may be shared
    return _make_base_context(_BUNDLES, minimum)


def _find_bundle(bundles: tuple[str, ...]) -> str | None:
    return next((path for path in bundles if Path(path).is_file()), None)


def _make_base_context(bundles: tuple[str, ...], minimum: str = "1.2") -> ssl.SSLContext:
    # not create_default_context: it writes session keys to a file that a variable names
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[minimum]
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if not context.cert_store_stats()["x509_ca"]:
        bundle = _find_bundle(bundles)
        if bundle is not None:
            context.load_verify_locations(cafile=bundle)
    return context


_LookupResult: TypeAlias = list[str] | ResolveError

#: seconds for one query, as in stub resolvers
_LOOKUP_TIMEOUT: Final = 5.0
_RECORD_TYPES: Final = ("A", "AAAA")


class AddressResolver(Protocol):
    """Looks up names, for blocking callers and for coroutines.

    `deadline` is a time of `time.monotonic()`, or None. Both methods raise ResolveError if the name has no
    address, and DeadlineExceeded.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Return the addresses of `host`, in the order to try them."""

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Return the addresses of `host`, in the order to try them."""


class SystemResolver:
    """The system's resolver: hosts file, DNS and whatever else is configured.

    It cannot be interrupted, so it runs in a thread, which outlives a deadline or Ctrl-C.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Look up the name and wait."""
        done = threading.Event()
        answers: list[_LookupResult] = []

        def put(answer: _LookupResult) -> None:
            answers.append(answer)
            done.set()

        _resolve_in_thread(host, put)
        while not done.wait(compute_remaining(deadline, time.monotonic, SLICE)):
            pass
        return _unwrap_result(answers[0])

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Look up the name without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[_LookupResult] = loop.create_future()

        def set_result(answer: _LookupResult) -> None:
            # the caller may have been cancelled
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_result(answer)

        def put(answer: _LookupResult) -> None:
            # the loop may be closed by now
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_result, answer)

        _resolve_in_thread(host, put)
        try:
            async with asyncio.timeout(compute_remaining(deadline, time.monotonic)):
                return _unwrap_result(await future)
        except TimeoutError:
            raise make_deadline_error() from None


class DNSResolver:
    """A resolver that uses only DNS: A and AAAA records, without hosts file and search domains.

    `nameservers` are IP addresses (default: the system's name servers), `port` is their port.
    """

    def __init__(self, nameservers: Sequence[str] | None = None, port: int = 53) -> None:
        self._nameservers = None if nameservers is None else list(nameservers)
        self._port = port

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Query the name servers and wait."""
        from dns.resolver import Resolver

        return drive_coroutine(self._query_addresses(Resolver, host, deadline))

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Query the name servers as a coroutine."""
        from dns.asyncresolver import Resolver

        return await self._query_addresses(Resolver, host, deadline)

    async def _query_addresses(self, make: Callable[..., Any], host: str, deadline: Deadline) -> list[str]:
        from dns.exception import DNSException

        addresses: list[str] = []
        for kind in _RECORD_TYPES:
            lifetime = compute_remaining(deadline, time.monotonic, _LOOKUP_TIMEOUT)
            options = {"raise_on_no_answer": False, "search": False, "lifetime": lifetime}
            try:
                answer = self._make_resolver(make).resolve(host + ".", kind, **options)
                if isinstance(answer, Awaitable):
                    answer = await answer
            except DNSException:
                compute_remaining(deadline, time.monotonic)
            else:
                addresses += [record.address for record in answer.rrset or ()]
        if not addresses:
            raise _make_unknown_name_error()
        return addresses

    def _make_resolver(self, make: Callable[..., Any]) -> Any:
        resolver = make(configure=self._nameservers is None)
        if self._nameservers is not None:
            resolver.nameservers = self._nameservers
            resolver.port = self._port
        return resolver


def _make_unknown_name_error() -> ResolveError:
    return ResolveError(
        "the host name cannot be resolved", hint="Check its spelling and this computer's network connection."
    )


def _unwrap_result(result: _LookupResult) -> list[str]:
    if isinstance(result, ResolveError):
        raise result
    return result


def _resolve_in_thread(host: str, put: Callable[[_LookupResult], None]) -> None:
    """Pass the system's answer to `put`, in a thread that does not keep the interpreter alive."""
    threading.Thread(
        target=lambda: put(_resolve_with_system(host)), name="onym-resolver", daemon=True
    ).start()


def _resolve_with_system(host: str) -> _LookupResult:
    """Return the addresses, or the error for the caller to raise."""
    try:
        # bytes, so that no codec changes the name
        rows = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return _make_unknown_name_error()
    if any(row[0] not in (socket.AF_INET, socket.AF_INET6) for row in rows):
        return ResolveError("the lookup of the name returned something that is not an IP address")
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


T = TypeVar("T")


class TLSSettings(NamedTuple):
    """How to secure a connection: the context, and the name that the certificate must have."""

    context: ssl.SSLContext
    name: str


class TLSSession(NamedTuple):
    """A TLS session: version ("1.3"), cipher, and the server's certificate as `ssl` returns it."""

    version: str
    cipher: str
    subject: dict[str, Any]


class Connection(Protocol):
    """One connection to one address, used for one exchange at a time."""

    address: str
    tls_version: str | None

    async def write(self, message: SecretBytes, deadline: Deadline) -> None:
        """Send the message. Raises NetError; a closed connection is reported by `read`.

        No frame of an error's traceback contains the message.
        """

    async def read(self, deadline: Deadline) -> bytes:
        """Return the next bytes, b"" at the end. Raises NetError."""

    def is_usable(self) -> bool:
        """Report whether an idle connection is open, and no data arrived without a request."""

    def certificate(self) -> TLSSession | None:
        """Return the TLS session, None over plain TCP."""

    def close(self) -> None:
        """Close at once, even during an exchange. May be called again."""

    def drop(self) -> None:
        """Close a connection whose exchange was garbage-collected. Called from any thread."""

    def abandon(self) -> None:
        """Close this process's copy of the connection after a fork: the parent goes on using its own."""


class Backend(Protocol):
    """Opens connections."""

    clock: Callable[[], float]

    async def lookup(self, resolver: AddressResolver, host: str, deadline: Deadline) -> list[str]:
        """Return the addresses of the name. Raises NetError."""

    async def dial(self, address: str, port: int, deadline: Deadline) -> Any:
        """Return a connected TCP socket. Raises NetError."""

    async def establish(
        self, sock: Any, address: str, security: TLSSettings | None, deadline: Deadline
    ) -> Connection:
        """Return the connection on the socket, which is closed on failure. Raises NetError."""

    def close(self) -> None:
        """Stop background work."""


def drive_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking backend: it never suspends, so one step completes it."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        outcome: T = stop.value
        return outcome
    coroutine.close()
    raise RuntimeError("a coroutine of a blocking transport was suspended")


_READ: Final = 64 * 1024
#: Windows has no poll
_POLL: Final = getattr(select, "poll", None)


class BlockingConnection:
    """A `Connection` on a non-blocking socket: a wait costs a system call only if it is necessary."""

    __slots__ = ("_clock", "_readable", "_sock", "_writable", "address", "tls_version")

    def __init__(self, sock: socket.socket, address: str, clock: Callable[[], float]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._clock = clock
        self._readable = make_readiness_check(sock, reading=True)
        self._writable = make_readiness_check(sock, reading=False)
        self.address = address
        self.tls_version = get_tls_version(sock)

    async def write(self, message: SecretBytes, deadline: Deadline) -> None:
        """Send the message."""
        compute_remaining(deadline, self._clock)
        sent, size = 0, len(message)
        while sent < size:
            try:
                # never in a variable, which tools that report errors would show
                sent += self._sock.send(memoryview(message.reveal())[sent:])
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass  # outside of this clause, because the frames of `ssl` would stay with a later error
            except ConnectionError:
                return  # the server may have responded before it closed: reading shows
            except OSError as error:
                raise translate_error(error) from error.with_traceback(None)
            except BaseException as error:
                error.__traceback__ = None
                raise
            self._wait_until_ready(self._writable, deadline)

    async def read(self, deadline: Deadline) -> bytes:
        """Return the next bytes."""
        while True:
            # a read takes a whole TLS record, so that nothing stays in OpenSSL's buffer
            self._wait_until_ready(self._readable, deadline)
            try:
                return self._sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError as error:
                raise translate_error(error) from error

    def is_usable(self) -> bool:
        """Report whether an idle connection has nothing to read: data, or its end, makes it unusable."""
        try:
            return not self._readable(0)
        except (OSError, ValueError):
            return False

    def certificate(self) -> TLSSession | None:
        """Return the TLS session."""
        return get_tls_session(self._sock) if isinstance(self._sock, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket at once."""
        self._sock.close()

    # neither ends TLS, so the server does not notice, and the parent's connection stays open
    drop = abandon = close

    def _wait_until_ready(self, ready: Callable[[float], bool], deadline: Deadline) -> None:
        try:
            while not ready(compute_remaining(deadline, self._clock, SLICE) or SLICE):
                pass
        except (OSError, ValueError) as error:
            raise translate_error(error) from error


class BlockingBackend:
    """A `Backend` on blocking sockets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock

    async def lookup(self, resolver: AddressResolver, host: str, deadline: Deadline) -> list[str]:
        """Look up the name."""
        return resolver.lookup(host, deadline)

    async def dial(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        """Connect."""
        sock = make_socket(address)
        with close_on_failure(sock):
            sock.settimeout(compute_remaining(deadline, self.clock))
            sock.connect((address, port))
        return sock

    async def establish(
        self, sock: Any, address: str, security: TLSSettings | None, deadline: Deadline
    ) -> BlockingConnection:
        """Return the connection on this socket, with TLS if `security` is given."""
        if security is not None:
            with close_on_failure(sock):
                # TCP that ends without a TLS closure is an error, not the end of the response
                sock = security.context.wrap_socket(
                    sock,
                    server_hostname=security.name,
                    do_handshake_on_connect=False,
                    suppress_ragged_eofs=False,
                )
        with close_on_failure(sock):
            if security is not None:
                self._do_handshake(sock, deadline)
            return BlockingConnection(sock, address, self.clock)

    def close(self) -> None:
        """Do nothing: a blocking backend has no background work."""

    def _do_handshake(self, sock: ssl.SSLSocket, deadline: Deadline) -> None:
        while True:
            sock.settimeout(compute_remaining(deadline, self.clock, SLICE))
            with contextlib.suppress(TimeoutError):
                sock.do_handshake()
                return


@contextlib.contextmanager
def close_on_failure(sock: socket.socket) -> Iterator[None]:
    """Close the socket if the block fails. A timeout becomes DeadlineExceeded, other errors NetError."""
    try:
        yield
    except TimeoutError:
        sock.close()
        raise make_deadline_error() from None
    except (OSError, ValueError) as error:
        sock.close()
        raise translate_error(error) from error
    except BaseException:
        sock.close()
        raise


def make_socket(address: str) -> socket.socket:
    """Return a TCP socket for connections to this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def get_tls_version(sock: socket.socket | ssl.SSLObject) -> str | None:
    """Return "1.3" for TLS 1.3, None over plain TCP."""
    if not isinstance(sock, ssl.SSLSocket | ssl.SSLObject):
        return None
    return (sock.version() or "").removeprefix("TLSv")


def get_tls_session(session: ssl.SSLSocket | ssl.SSLObject) -> TLSSession:
    """Return the TLS session."""
    cipher = session.cipher()
    return TLSSession(
        get_tls_version(session) or "", cipher[0] if cipher else "", session.getpeercert() or {}
    )


def make_readiness_check(sock: socket.socket, *, reading: bool) -> Callable[[float], bool]:
    """Return a function that waits for the socket, in seconds, and reports whether it is ready."""
    if _POLL is None:
        watched = ([sock], []) if reading else ([], [sock])
        return lambda seconds: any(select.select(*watched, [], seconds))
    poll = _POLL()
    poll.register(sock, select.POLLIN if reading else select.POLLOUT)
    return lambda seconds: bool(poll.poll(ceil(seconds * 1000)))
