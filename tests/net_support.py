"""Real sockets for the tests of `onym.net`: an HTTP peer, an authority; both transports behind one face."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import trustme

from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Origin, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, ProbeReport, Transport

#: seconds: how long a test waits for what must come; nothing waits so long when all is well
PATIENCE = 300.0
#: seconds: what a call has whose time is to end once the server is reached; mostly the first is enough
TRIES = (0.1, 1.0, 10.0, 100.0)

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, server: Server) -> None:
        self.sock = sock
        self.server = server
        self._buffer = b""

    def request(self) -> tuple[str, dict[str, str], bytes] | None:
        """The next request: its first line, its headers by lower-case name, its body; None at the end."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            if not self._more():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        self.server.requests.append((line, headers, body))
        return line, headers, body

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def wait_until_closed(self) -> None:
        """Until the client has closed the connection, in whatever way."""
        with contextlib.suppress(OSError):
            while self.sock.recv(65536):
                pass
        self.server.closed.set()

    def reset(self) -> None:
        """Close with RST."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.sock.close()

    def _more(self) -> bool:
        data = self.sock.recv(65536)
        self._buffer += data
        return bool(data)


Handler = Callable[[Peer], None]


def answering(*replies: bytes) -> Handler:
    """One connection, one reply after another; the last is given again and again."""

    def handle(peer: Peer) -> None:
        rest = list(replies)
        while peer.request() is not None:
            peer.send(rest.pop(0) if len(rest) > 1 else rest[0])

    return handle


def once(reply: bytes) -> Handler:
    """One reply, then the end of the connection."""

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(reply)

    return handle


class Server:
    """Takes connections on loopback, each handled in a thread of its own."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.handler = handler
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.closed = threading.Event()
        self.names: list[str | None] = []
        self._tls = tls
        if tls is not None:
            tls.sni_callback = lambda _sock, name, _context: self.names.append(name)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sock.bind((address, port))
        self._sock.listen(128)
        self.address = address
        self.port: int = self._sock.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        plain = sock
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._open.add(sock)
            self.handler(Peer(sock, self))
        except OSError:
            pass
        finally:
            sock.close()
            plain.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._accepting.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    """A port of 127.0.0.1 that nobody listens on, and that stays ours."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@dataclass
class Authority:
    """A certificate authority of the test's own."""

    ca: trustme.CA = field(default_factory=trustme.CA)

    def server(self, *names: str, **options: Any) -> ssl.SSLContext:
        """A server's context with a certificate for these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*names, **options).configure_cert(context)
        return context

    def trust(self, path: Any) -> TLSConfig:
        """A configuration that trusts this authority; `path` is a folder for its file."""
        file = path / "authority.pem"
        self.ca.cert_pem.write_to_path(str(file))
        return TLSConfig(ca_files=(str(file),))


class FixedResolver:
    """Answers from a table: each look-up takes the next of the answers, the last again and again."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self._answers = {name: list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    def lookup(self, host: str, deadline: float | None) -> list[str]:
        self.asked.append(host)
        rest = self._answers[host]
        return rest.pop(0) if len(rest) > 1 else rest[0]

    async def alookup(self, host: str, deadline: float | None) -> list[str]:
        return self.lookup(host, deadline)


class Face:
    """One transport, blocking or not, as plain calls: a test written once runs on both."""

    def __init__(self, kind: str, policy: Policy, **options: Any) -> None:
        self.kind = kind
        self._runner = asyncio.Runner()
        self.transport: Any = (
            Transport(NetConfig(policy=policy, **options))
            if kind == "sync"
            else AsyncTransport(NetConfig(policy=policy, **options))
        )

    def _do(self, result: Any) -> Any:
        return result if self.kind == "sync" else self._runner.run(result)

    def send(self, send: Send) -> Reply:
        reply: Reply = self._do(self.transport.send(send))
        return reply

    def read(self, reply: Reply) -> bytes:
        stream: Any = reply.stream
        data: bytes = stream.read() if self.kind == "sync" else self._runner.run(stream.aread())
        return data

    def read_all(self, reply: Reply) -> bytes:
        return b"".join(iter(lambda: self.read(reply), b""))

    def close_stream(self, reply: Reply, patience: float = 0) -> None:
        stream: Any = reply.stream
        self._do(stream.close(patience) if self.kind == "sync" else stream.aclose(patience))

    def probe(self, origin: Origin, timeout: float | None = PATIENCE) -> ProbeReport:
        report: ProbeReport = self._do(self.transport.probe(origin, timeout))
        return report

    def turn(self) -> None:
        """Let the event loop see what has come meanwhile."""
        if self.kind == "async":
            self._runner.run(asyncio.sleep(0))

    def close(self) -> None:
        self._do(self.transport.close())
        self._runner.close()


def post(origin: Origin, target: str = "/v1/chat", body: bytes = b"{}", **options: Any) -> HTTPRequest:
    """A request like those that the dialects make."""
    return HTTPRequest(method="POST", origin=origin, target=target, body=body, **options)


def asking(origin: Origin, *, timeout: float | None = PATIENCE, stream: bool = False, **options: Any) -> Send:
    """A `Send` of such a request."""
    return Send(post(origin, **options), timeout, stream)


#: names lead to 127.0.0.1 in tests; that network must be listed, for the names are none of this machine
NAMED = Policy.trusted().replace(allow_networks=("127.0.0.0/8",))

SMALL = NetLimits(header_bytes=2048, header_count=8, body=64 * 1024, error_body=1024)


class NameServer:
    """A DNS server on loopback: each look-up takes the next of the name's answers, the last again and again.

    An answer is a list of addresses; None is NXDOMAIN, "silence" is no answer at all.
    """

    def __init__(self, table: dict[str, list[list[str] | str | None]]) -> None:
        self._table = {f"{name}.": list(each) for name, each in table.items()}
        self.asked: list[tuple[str, str]] = []
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            data, client = self._sock.recvfrom(4096)
            if not data:
                return
            reply = self._answer(data)
            if reply is not None:
                self._sock.sendto(reply, client)

    def _answer(self, data: bytes) -> bytes | None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        rest = self._table.get(name, [None])
        # a look-up asks for A and then for AAAA: the second ends it
        found = rest.pop(0) if kind == "AAAA" and len(rest) > 1 else rest[0]
        reply = dns.message.make_response(query)
        if found == "silence":
            return None
        if found is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        else:
            texts = [text for text in found if (":" in text) == (kind == "AAAA")]
            if texts:
                reply.answer.append(dns.rrset.from_text(question.name, 0, "IN", kind, *texts))
        return reply.to_wire()

    def __enter__(self) -> NameServer:
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(PATIENCE)
        self._sock.close()
