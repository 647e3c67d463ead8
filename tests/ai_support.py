"""Authorities for the tests of ai names: servers with TLS 1.3 on loopback, names that lead there, keys."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import trustme

from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, KeyScope, SQLiteIdempotencyStore
from onym.common.text import encode_base64url
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.server.http_server import get_loop_factory, serve_app

if TYPE_CHECKING:
    from onym.sign.keystore import KeyStore

__all__ = [
    "LOOPBACK",
    "PATIENCE",
    "BlockingStore",
    "Heard",
    "Line",
    "ai_policy",
    "authority_ca",
    "client_cert",
    "key_scope",
    "key_store",
    "names_resolver",
    "serve_asgi",
    "serve_authority",
    "thumbprint",
    "trust",
]

#: seconds: how long a test waits for what must come; nothing waits so long when all is well
PATIENCE = 300.0
LOOPBACK = "127.0.0.1"


def authority_ca() -> trustme.CA:
    """A certificate authority of the test's own."""
    return trustme.CA()


def thumbprint(certificate: trustme.LeafCert) -> str:
    """`x5t#S256` of a certificate (RFC 8705 3.1)."""
    return encode_base64url(sha256(_get_der(certificate)).digest())


def client_cert(certificate: trustme.LeafCert) -> tuple[str, str]:
    """The field of RFC 9440 with a certificate."""
    return "Client-Cert", f":{b64encode(_get_der(certificate)).decode()}:"


def _get_der(certificate: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())


def trust(ca: trustme.CA, folder: Path) -> TLSConfig:
    """A configuration that trusts this authority alone, TLS 1.3 at least; its file is written to `folder`."""
    file = folder / "authority.pem"
    ca.cert_pem.write_to_path(str(file))
    return TLSConfig(ca_files=(str(file),), minimum="1.3")


class Serving:
    """An app on uvicorn in a thread of its own; TLS for `names`, plain HTTP without a CA."""

    def __init__(
        self, app: Any, names: Iterable[str], ca: trustme.CA | None, options: Mapping[str, Any]
    ) -> None:
        self._app = app
        self._names = tuple(names)
        self._ca = ca
        self._options = dict(options)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def start(self) -> int:
        """Its port, once it listens."""
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the server did not start"
        if self._failure is not None:
            raise self._failure
        return self.port

    def stop(self) -> None:
        """End it, gracefully."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # it may have ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the server did not end"

    def _run(self) -> None:
        try:
            with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=get_loop_factory()) as runner:
                runner.run(self._serve(Path(folder)))
        except BaseException as error:  # noqa: BLE001 - told to the test's thread
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, folder: Path) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tls: dict[str, Any] = {}
        if self._ca is not None:
            tls = {"certificate": str(folder / "server.pem")}
            self._ca.issue_cert(*self._names).private_key_and_cert_chain_pem.write_to_path(tls["certificate"])
        await serve_app(
            self._app, host=LOOPBACK, port=0, ready=self._listens, stop=self._stop, **tls, **self._options
        )

    def _listens(self, port: int) -> None:
        self.port = port
        self._ready.set()


@contextlib.contextmanager
def serve_asgi(app: Any, *names: str, ca: trustme.CA | None = None, **options: Any) -> Iterator[int]:
    """The port of a server for this app with a certificate for `names`; it ends with the block.

    Without a CA it speaks plain HTTP. `options` go to `onym.server.http_server.serve_app`.
    """
    server = Serving(app, names, ca, options)
    try:
        yield server.start()
    finally:
        server.stop()


@contextlib.contextmanager
def serve_authority(
    make: Callable[[str], Any], name: str, *, ca: trustme.CA, **options: Any
) -> Iterator[tuple[Any, str]]:
    """An app made for its own authority ("factory.test:40123"), served with TLS; gives the app and that text.

    For apps that must know the port that they are reached at.
    """
    with socket.create_server((LOOPBACK, 0)) as listener:
        authority = f"{name}:{listener.getsockname()[1]}"
        app = make(authority)
        with serve_asgi(app, name, ca=ca, sockets=[listener], **options):
            yield app, authority


@dataclass(frozen=True)
class Heard:
    """An answer as it came."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def get(self, name: str) -> str | None:
        """The first field of this name."""
        return next((value for each, value in self.fields if each == name), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def receipt(self) -> str | None:
        return self.get("aiip-receipt")


class Line:
    """One TLS connection to an authority on this machine; HTTP/1.1 as it is written.

    `certificate` is the client's. `port` is that of a proxy in between.
    """

    def __init__(
        self,
        authority: str,
        ca: trustme.CA,
        certificate: trustme.LeafCert | None = None,
        port: int | None = None,
    ) -> None:
        self.authority = authority
        host, _, own_port = authority.partition(":")
        context = ssl.create_default_context()
        ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        plain = socket.create_connection((LOOPBACK, port or int(own_port)), PATIENCE)
        self.sock = context.wrap_socket(plain, server_hostname=host)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(
        self, method: str, target: str, body: bytes = b"", *fields: tuple[str, str], service: bool = True
    ) -> Heard:
        """One request; `target` is under the service's base for this authority, unless `service` is False."""
        if service:
            target = f"/.well-known/aiip/v1/{self.authority}{target}"
        return self.say(self.head(method, target, body, *fields) + body, method)

    def head(self, method: str, target: str, body: bytes, *fields: tuple[str, str]) -> bytes:
        given = [("Host", self.authority), *fields]
        if body:
            given.append(("Content-Length", str(len(body))))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def say(self, octets: bytes, method: str = "POST") -> Heard:
        """What is answered to these octets."""
        self.sock.sendall(octets)
        reply = http.client.HTTPResponse(self.sock, method=method)
        reply.begin()
        body = reply.read()
        fields = tuple((name.lower(), value) for name, value in reply.getheaders())
        reply.close()
        return Heard(reply.status, fields, body)

    def rest(self, octets: bytes = b"") -> bytes:
        """All that comes until the server closes."""
        self.sock.sendall(octets)
        try:
            return b"".join(iter(lambda: self.sock.recv(65536), b""))
        except ConnectionResetError:
            return b""


class NamesResolver:
    """Looks names up in a table; each look-up is kept in `asked`."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = dict(table)
        self.asked: list[str] = []

    def lookup(self, host: str, deadline: float | None) -> list[str]:
        from onym.errors import ResolveError

        self.asked.append(host)
        if host not in self._table:
            raise ResolveError("the name has no address")
        return [self._table[host]]

    async def alookup(self, host: str, deadline: float | None) -> list[str]:
        return self.lookup(host, deadline)


def names_resolver(table: Mapping[str, str]) -> NamesResolver:
    """A resolver of `onym.net` that knows these names alone."""
    return NamesResolver(table)


def ai_policy(ports: Iterable[int], **changes: Any) -> Policy:
    """The policy for strangers' names, and the loopback network on these ports."""
    return Policy.untrusted().replace(ports=frozenset(ports), allow_networks=("127.0.0.0/8",), **changes)


def key_store(folder: Path, *, algorithm: str = "Ed25519", at: float | None = None) -> KeyStore:
    """A store of keys under `folder` with one key in it."""
    from onym.sign.keystore import KeyStore

    store = KeyStore(folder / "keys")
    store.new(algorithm, at=time.time() if at is None else at)
    return store


def in_thread(work: Callable[[], Any]) -> Any:
    """What `work` gives in a thread of its own: for a test that has a loop running."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "the thread did not end"
    return found[0]


class BlockingStore:
    """A store of idempotency keys in a file, for tests that wait for each call."""

    def __init__(self, path: str | Path | None, **limits: int) -> None:
        self.store = SQLiteIdempotencyStore(path, **{"most": 9, **limits})
        self.owner = self.store.owner
        self.close = self.store.close

    def begin(self, scope: KeyScope, fingerprint: str, now: float, **given: Any) -> Any:
        return asyncio.run(self.store.begin(scope, fingerprint, now, **given))

    def complete(self, scope: KeyScope, answer: bytes) -> None:
        asyncio.run(self.store.complete(scope, answer))

    def interrupt(self, scope: KeyScope) -> None:
        asyncio.run(self.store.interrupt(scope))


def key_scope(key: object, client: str = "client shop", address: str = "192.0.2.1") -> KeyScope:
    """The scope of a key; a client that is anonymous pays by its network address."""
    anonymous = client.startswith(ANONYMOUS_PREFIX)
    holder = f"address {address}" if anonymous else client
    return KeyScope(client=client, principal="", target="ai://a.example/x", key=str(key), holder=holder)
