"""Connections: TLS contexts, name resolution, the backend interface, and blocking sockets.

Resolvers convert names to addresses. Onym does not trust their answers: the policy checks every address.
Names of this computer are never resolved; their addresses are known. `Backend` and `Connection` are the
interface between an exchange and its sockets. Both backends are coroutines; those of `BlockingBackend`
never suspend. A blocking wait is cut into slices, so that Ctrl-C works on every platform.

Errors of the operating system and of OpenSSL become Onym's own errors in `translate_error`. Their texts are
Onym's, because system messages can contain host names and paths.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from onym.errors import ConnectionFailed, NetError, ResolveError, TLSError, UsageError
from onym.net.limits import SLICE, Deadline, TLSConfig, compute_remaining, make_deadline_error

_NO_WAY: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH}
)
#: X509_V_ERR_*: what is wrong with a certificate, and what can be done about it
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
    """The error for an attempt to connect that took too long, while the call still has time."""
    return ConnectionFailed("no connection came about in time", code="net.connection.timeout")


def translate_error(error: Exception) -> NetError:
    """The error to raise for this one of the socket or TLS layer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text, hint = _CERTIFICATE.get(error.verify_code, ("the server's certificate cannot be trusted", None))
        return TLSError(text, code="net.tls.certificate", hint=hint)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ConnectionFailed("the connection broke", code="net.connection.broken")
    if isinstance(error, ssl.SSLError):
        return _translate_tls_error(error)
    if isinstance(error, ConnectionRefusedError):
        return ConnectionFailed("nothing takes connections there", code="net.connection.refused")
    if isinstance(error, ConnectionError):
        return ConnectionFailed("the connection broke", code="net.connection.broken")
    if isinstance(error, TimeoutError):
        return make_connect_timeout_error()
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return ConnectionFailed("there is no way to that address", code="net.connection.unreachable")
    return ConnectionFailed("no connection is possible", code="net.connection")


def _translate_tls_error(error: ssl.SSLError) -> TLSError:
    reason = getattr(error, "reason", None) or ""
    if "WRONG_VERSION" in reason or "HTTP_REQUEST" in reason:
        return TLSError("the server does not speak TLS on this port", code="net.tls.none")
    if "PROTOCOL" in reason and "VERSION" in reason:
        return TLSError("the server speaks no version of TLS that is allowed here", code="net.tls.version")
    return TLSError("no TLS session came about", code="net.tls.handshake")


#: where systems keep their authorities, for a Python that was built to look elsewhere
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def make_tls_context(config: TLSConfig) -> ssl.SSLContext:
    """A context that demands a certificate for the right name, and the version of TLS that `config` says.

    Raises UsageError where a file of authorities cannot be read.
    """
    if not config.ca_files:
        return _get_system_context(config.minimum)
    context = _make_base_context(_BUNDLES, config.minimum)
    for path in config.ca_files:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:
            what = "holds no certificates" if isinstance(error, ssl.SSLError) else "cannot be read"
            raise UsageError(
                f"{path}, a file of authorities, {what}",
                code="usage.tls",
                hint="PEM; TLSConfig(ca_files=...) and --ca name it",
            ) from None
    return context


@cache
def _get_system_context(minimum: str) -> ssl.SSLContext:
    """Reading the system's authorities takes about 20 ms, and contexts may be shared."""
    return _make_base_context(_BUNDLES, minimum)


def _make_base_context(bundles: tuple[str, ...], minimum: str = "1.2") -> ssl.SSLContext:
    # not create_default_context: it writes session keys to a file that a variable names
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[minimum]
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if not context.cert_store_stats()["x509_ca"]:
        bundle = next((path for path in bundles if Path(path).is_file()), None)
        if bundle is not None:
            context.load_verify_locations(cafile=bundle)
    return context


_LookupResult: TypeAlias = list[str] | ResolveError

#: seconds for one question to the name servers, as stub resolvers have it
_LOOKUP_TIMEOUT: Final = 5.0
_RECORD_TYPES: Final = ("A", "AAAA")


class AddressResolver(Protocol):
    """Looks names up, for blocking callers and for coroutines.

    `deadline` is a moment of `time.monotonic()`, None for never. Both raise ResolveError where the name has
    no address, and DeadlineExceeded.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """The addresses of `host`, in the order to try them."""
        ...

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """The addresses of `host`, in the order to try them."""
        ...


class SystemResolver:
    """The system's own look-up: hosts file, DNS, whatever this machine is set up for.

    It cannot be interrupted, so it runs in a thread of its own, which a deadline or Ctrl-C leaves behind.
    """

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask the system and wait."""
        done = threading.Event()
        found: list[_LookupResult] = []

        def put(answer: _LookupResult) -> None:
            found.append(answer)
            done.set()

        _resolve_in_thread(host, put)
        while not done.wait(compute_remaining(deadline, time.monotonic, SLICE)):
            pass
        return _unwrap_result(found[0])

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask the system without holding up the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[_LookupResult] = loop.create_future()

        def set_result(answer: _LookupResult) -> None:
            # nobody may wait any more
            with contextlib.suppress(asyncio.InvalidStateError):
                future.set_result(answer)

        def put(answer: _LookupResult) -> None:
            # the loop may be gone by now
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(set_result, answer)

        _resolve_in_thread(host, put)
        try:
            async with asyncio.timeout(compute_remaining(deadline, time.monotonic)):
                return _unwrap_result(await future)
        except TimeoutError:
            raise make_deadline_error() from None


class DNSResolver:
    """DNS and nothing else: A and AAAA, from the servers named or from those of this machine.

    `nameservers` are IP addresses, `port` is theirs. Search domains and the hosts file are not used.
    """

    def __init__(self, nameservers: Sequence[str] | None = None, port: int = 53) -> None:
        self._nameservers = None if nameservers is None else list(nameservers)
        self._port = port

    def lookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask and wait."""
        from dns.exception import DNSException
        from dns.resolver import Resolver

        found: list[str] = []
        for kind in _RECORD_TYPES:
            try:
                found += _list_record_addresses(
                    self._make_resolver(Resolver).resolve(host + ".", kind, **_build_options(deadline))
                )
            except DNSException:
                compute_remaining(deadline, time.monotonic)
        return _require_addresses(found)

    async def alookup(self, host: str, deadline: Deadline) -> list[str]:
        """Ask as a coroutine."""
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        found: list[str] = []
        for kind in _RECORD_TYPES:
            try:
                found += _list_record_addresses(
                    await self._make_resolver(Resolver).resolve(host + ".", kind, **_build_options(deadline))
                )
            except DNSException:
                compute_remaining(deadline, time.monotonic)
        return _require_addresses(found)

    def _make_resolver(self, make: Callable[..., Any]) -> Any:
        resolver = make(configure=self._nameservers is None)
        if self._nameservers is not None:
            resolver.nameservers = self._nameservers
            resolver.port = self._port
        return resolver


def _build_options(deadline: Deadline) -> dict[str, Any]:
    lifetime = compute_remaining(deadline, time.monotonic, _LOOKUP_TIMEOUT)
    return {"raise_on_no_answer": False, "search": False, "lifetime": lifetime}


def _list_record_addresses(answer: Any) -> list[str]:
    return [record.address for record in answer.rrset or ()]


def _require_addresses(found: list[str]) -> list[str]:
    if not found:
        raise _make_unknown_name_error()
    return found


def _make_unknown_name_error() -> ResolveError:
    return ResolveError(
        "the name cannot be looked up", hint="is it spelled right, and does this machine have a network?"
    )


def _unwrap_result(found: _LookupResult) -> list[str]:
    if isinstance(found, ResolveError):
        raise found
    return found


def _resolve_in_thread(host: str, put: Callable[[_LookupResult], None]) -> None:
    """Hand the system's answer to `put`, in a thread that an interpreter that ends does not wait for."""
    threading.Thread(
        target=lambda: put(_resolve_with_system(host)), name="onym-resolver", daemon=True
    ).start()


def _resolve_with_system(host: str) -> _LookupResult:
    """The addresses, or the error to raise: nobody may be there to catch one."""
    try:
        # octets, so that no codec has a say
        rows = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return _make_unknown_name_error()
    if any(row[0] not in (socket.AF_INET, socket.AF_INET6) for row in rows):
        return ResolveError("the look-up of the name gave something that is no address")
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


T = TypeVar("T")


class TLSSettings(NamedTuple):
    """How a connection is to be secured: whom to trust, and the name that the certificate must bear."""

    context: ssl.SSLContext
    name: str


class TLSSession(NamedTuple):
    """What TLS has agreed on: version ("1.3"), cipher, and the server's certificate as `ssl` has it."""

    version: str
    cipher: str
    subject: dict[str, Any]


class Connection(Protocol):
    """One connection to one address, used for one exchange at a time."""

    address: str
    tls_version: str | None

    async def write(self, data: bytes, deadline: Deadline) -> None:
        """Send it all; raises NetError. A peer that has gone away shows when reading."""
        ...

    async def read(self, deadline: Deadline) -> bytes:
        """The next octets, b"" at the end; raises NetError."""
        ...

    def is_usable(self) -> bool:
        """Whether an idle connection may be used again: it is open, and nothing has come unasked."""
        ...

    def certificate(self) -> TLSSession | None:
        """What TLS has agreed on, None over plain TCP."""
        ...

    def close(self) -> None:
        """Close at once, wherever an exchange stands. May be called again."""
        ...

    def drop(self) -> None:
        """Nobody holds its exchange any more: close it. Called from any thread."""
        ...


class Backend(Protocol):
    """Where connections come from."""

    clock: Callable[[], float]

    async def lookup(self, resolver: AddressResolver, host: str, deadline: Deadline) -> list[str]:
        """The addresses of the name; raises NetError."""
        ...

    async def dial(self, address: str, port: int, deadline: Deadline) -> Any:
        """A connected TCP socket; raises NetError."""
        ...

    async def establish(
        self, sock: Any, address: str, security: TLSSettings | None, deadline: Deadline
    ) -> Connection:
        """The connection on that socket, secured where asked for; raises NetError, the socket closed then."""
        ...

    def close(self) -> None:
        """Stop what goes on beside the exchanges."""
        ...


def drive_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the core over a backend that blocks: it never waits, so one step ends it."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a blocking transport was driven through something that waits")


_READ: Final = 64 * 1024
#: Windows has no poll
_POLL: Final = getattr(select, "poll", None)


class BlockingConnection:
    """A `Connection` on a socket of the standard library.

    The socket itself does not block: waiting costs a system call only where there is something to wait for.
    """

    __slots__ = ("_clock", "_readable", "_sock", "_writable", "address", "tls_version")

    def __init__(self, sock: socket.socket, address: str, clock: Callable[[], float]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._clock = clock
        self._readable = make_readiness_check(sock, reading=True)
        self._writable = make_readiness_check(sock, reading=False)
        self.address = address
        self.tls_version = get_tls_version(sock)

    async def write(self, data: bytes, deadline: Deadline) -> None:
        """Send it all."""
        compute_remaining(deadline, self._clock)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait_until_ready(self._writable, deadline)
            except ConnectionError:
                # the server may have answered before it went away: reading tells
                return
            except OSError as error:
                raise translate_error(error) from error

    async def read(self, deadline: Deadline) -> bytes:
        """The next octets."""
        while True:
            # a read takes a record of TLS whole: nothing is left over in OpenSSL
            self._wait_until_ready(self._readable, deadline)
            try:
                return self._sock.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError as error:
                raise translate_error(error) from error

    def is_usable(self) -> bool:
        """An idle connection on which anything can be read has ended, or is out of step."""
        try:
            return not self._readable(0)
        except (OSError, ValueError):
            return False

    def certificate(self) -> TLSSession | None:
        """What TLS has agreed on."""
        return get_tls_session(self._sock) if isinstance(self._sock, ssl.SSLSocket) else None

    def close(self) -> None:
        """Close the socket, without a farewell."""
        self._sock.close()

    drop = close

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
        """Ask the resolver."""
        return resolver.lookup(host, deadline)

    async def dial(self, address: str, port: int, deadline: Deadline) -> socket.socket:
        """Connect."""
        sock = make_socket(address)
        try:
            sock.settimeout(compute_remaining(deadline, self.clock))
            sock.connect((address, port))
        except TimeoutError:
            sock.close()
            raise make_deadline_error() from None
        except OSError as error:
            sock.close()
            raise translate_error(error) from error
        except BaseException:
            sock.close()
            raise
        return sock

    async def establish(
        self, sock: Any, address: str, security: TLSSettings | None, deadline: Deadline
    ) -> BlockingConnection:
        """Agree on TLS where asked for."""
        try:
            if security is not None:
                # a connection that ends without a farewell is an error, not the end of the answer
                sock = security.context.wrap_socket(
                    sock,
                    server_hostname=security.name,
                    do_handshake_on_connect=False,
                    suppress_ragged_eofs=False,
                )
                self._do_handshake(sock, deadline)
            return BlockingConnection(sock, address, self.clock)
        except (OSError, ValueError) as error:
            sock.close()
            raise translate_error(error) from error
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Nothing goes on beside the exchanges."""

    def _do_handshake(self, sock: ssl.SSLSocket, deadline: Deadline) -> None:
        while True:
            sock.settimeout(compute_remaining(deadline, self.clock, SLICE))
            with contextlib.suppress(TimeoutError):
                sock.do_handshake()
                return


def make_socket(address: str) -> socket.socket:
    """A TCP socket for connections to this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def get_tls_version(sock: socket.socket | ssl.SSLObject) -> str | None:
    """ "1.3" for a session of TLS 1.3; None over plain TCP."""
    if not isinstance(sock, ssl.SSLSocket | ssl.SSLObject):
        return None
    return (sock.version() or "").removeprefix("TLSv")


def get_tls_session(session: ssl.SSLSocket | ssl.SSLObject) -> TLSSession:
    """What TLS has agreed on."""
    cipher = session.cipher()
    return TLSSession(
        get_tls_version(session) or "", cipher[0] if cipher else "", session.getpeercert() or {}
    )


def make_readiness_check(sock: socket.socket, *, reading: bool) -> Callable[[float], bool]:
    """A function that waits so many seconds for the socket, and says whether it is ready."""
    if _POLL is None:
        watched = ([sock], []) if reading else ([], [sock])
        return lambda seconds: any(select.select(*watched, [], seconds))
    poll = _POLL()
    poll.register(sock, select.POLLIN if reading else select.POLLOUT)
    return lambda seconds: bool(poll.poll(ceil(seconds * 1000)))
