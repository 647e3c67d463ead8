"""Real DNS from Debian's packages on loopback: Knot signs, unbound validates; and a forwarder that lies."""

from __future__ import annotations

import atexit
import base64
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from model_support import unavailable
from support import free_port

__all__ = [
    "Forwarder",
    "NameServers",
    "give_dns_time",
    "knot",
    "name_servers",
    "shared_name_servers",
    "unbound",
]

T = TypeVar("T")

_GUARD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
#: seconds: how long a server may take to start
_STARTUP = 150.0
LOOPBACK = "127.0.0.1"

#: the zones of most tests. bank.test is signed; plain.test is not
ZONES: Mapping[str, str] = {
    "bank.test": """
_aiip._tcp      IN SRV 0 0 8443 aiip
_aiip           IN TXT "endpoint=ai://bank.test/serv" "ice/payments"
aiip            IN A 127.0.0.1
alias           IN CNAME aiip
_aiip._tcp.via  IN SRV 0 0 8443 alias
_aiip._tcp.no   IN SRV 0 0 0 .
_aiip._tcp.ssh  IN SRV 0 0 22 localhost.
_aiip.two       IN TXT "endpoint=ai://bank.test/a"
_aiip.two       IN TXT "endpoint=ai://bank.test/b"
_aiip.alias     IN CNAME _aiip
_aiip.out       IN CNAME _aiip.plain.test.
*.wild          IN TXT "endpoint=ai://bank.test/wild"
known.wild      IN A 127.0.0.1
deep.empty      IN A 127.0.0.1
big             IN TXT "{big}"
""".replace("{big}", '" "'.join(["x" * 250] * 12)),
    "plain.test": """
_aiip._tcp      IN SRV 0 0 8443 aiip
_aiip           IN TXT "endpoint=ai://plain.test/service"
aiip            IN A 127.0.0.1
""",
}


def give_dns_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer of a busy machine comes too late. Tests of silence say themselves how long they wait."""
    monkeypatch.setattr("onym.net.records._TRY_TIMEOUT", 60.0)
    monkeypatch.setattr("onym.net.records._QUESTION_TIMEOUT", 60.0)
    monkeypatch.setattr("onym.net.connections._LOOKUP_TIMEOUT", 60.0)


def program(name: str, package: str) -> str:
    """Where a server of Debian's is; the test is skipped where it is not, or fails in CI."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return found or unavailable(f"{name} is not installed: apt-get install {package}")


def free_dns_port() -> int:
    """A port of loopback that nobody listens on now, by UDP or TCP."""
    while True:
        port = free_port()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, contextlib.suppress(OSError):
            datagrams.bind((LOOPBACK, port))
            return port


@dataclass(frozen=True)
class Server:
    """A running name server. `keys` are the lines of the signed zones' keys that others are told to trust."""

    port: int
    keys: Mapping[str, str]

    @property
    def anchors(self) -> dict[str, list[str]]:
        """What `RecordResolver(anchors=...)` takes."""
        return {zone: [f"DNSKEY {key}"] for zone, key in self.keys.items()}


@contextmanager
def knot(
    zones: Mapping[str, str], *, unsigned: frozenset[str] = frozenset(), nsec3: bool = False
) -> Iterator[Server]:
    """Knot with these zones (records without SOA and NS), each signed with Ed25519 but for the unsigned."""
    daemon = program("knotd", "knot")
    yield from _attempts(lambda folder, port: _knot_once(daemon, folder, port, zones, unsigned, nsec3))


def _knot_once(
    daemon: str, folder: Path, port: int, zones: Mapping[str, str], unsigned: frozenset[str], nsec3: bool
) -> tuple[list[str], Callable[[], Server | None]]:
    lines = [
        "server:",
        f"  rundir: {folder}",
        f"  listen: {LOOPBACK}@{port}",
        "  udp-workers: 1",
        "  tcp-workers: 1",
        "  background-workers: 1",
        "database:",
        f"  storage: {folder}",
        "log:",
        "- target: stderr",
        "  any: warning",
        "policy:",
        "- id: signed",
        "  algorithm: ed25519",
        "  rrsig-refresh: 1d",
        *(["  nsec3: on", "  nsec3-iterations: 0"] if nsec3 else []),
        "zone:",
    ]
    for zone, records in zones.items():
        head = (
            f"$ORIGIN {zone}.\n$TTL 60\n@ IN SOA ns.{zone}. admin.{zone}. 1 3600 600 86400 60\n@ IN NS ns\n"
        )
        (folder / f"{zone}.zone").write_text(f"{head}ns IN A {LOOPBACK}\n{records}", encoding="utf-8")
        lines += [f"- domain: {zone}", f"  storage: {folder}", f"  file: {zone}.zone"]
        lines += ["  zonefile-sync: -1"]
        if zone not in unsigned:
            lines += ["  dnssec-signing: on", "  dnssec-policy: signed"]
    (folder / "knot.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    signed = [zone for zone in zones if zone not in unsigned]

    def ready() -> Server | None:
        keys = {}
        for zone in zones:
            answer = asked(port, zone, "DNSKEY")
            if answer is None or answer.rcode() != dns.rcode.NOERROR:
                return None
            found = [
                record for rrset in answer.answer for record in rrset if getattr(record, "flags", 0) == 257
            ]
            if zone in signed and not found:
                return None
            keys.update({zone: found[0].to_text()} if found else {})
        return Server(port, keys)

    return [daemon, "-c", str(folder / "knot.conf")], ready


@contextmanager
def unbound(source: Server, zones: Mapping[str, str], *, corrupt: bool = False) -> Iterator[int]:
    """The port of an unbound that asks `source` and trusts its keys, or (`corrupt`) keys not its own."""
    daemon = program("unbound", "unbound")

    def once(folder: Path, port: int) -> tuple[list[str], Callable[[], int | None]]:
        anchors = folder / "anchors"
        keys = [
            f"{zone}. IN DNSKEY {_corrupted(key) if corrupt else key}" for zone, key in source.keys.items()
        ]
        anchors.write_text("\n".join(keys) + "\n", encoding="utf-8")
        stubs = [
            line
            for zone in zones
            for line in ("stub-zone:", f"  name: {zone}.", f"  stub-addr: {LOOPBACK}@{source.port}")
        ]
        lines = [
            "server:",
            f"  interface: {LOOPBACK}",
            f"  port: {port}",
            f'  directory: "{folder}"',
            '  chroot: ""',
            '  username: ""',
            '  pidfile: ""',
            "  do-daemonize: no",
            "  use-syslog: no",
            "  do-ip6: no",
            "  num-threads: 1",
            "  do-not-query-localhost: no",
            '  module-config: "validator iterator"',
            f'  trust-anchor-file: "{anchors}"',
            '  local-zone: "test." nodefault',
            # answers are not kept: tests change what lies behind
            "  cache-max-ttl: 0",
            "  cache-max-negative-ttl: 0",
            *stubs,
            "remote-control:",
            "  control-enable: no",
        ]
        (folder / "unbound.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

        def ready() -> int | None:
            # any answer will do, be it a failure
            return None if asked(port, next(iter(zones)), "SOA") is None else port

        return [daemon, "-d", "-c", str(folder / "unbound.conf")], ready

    yield from _attempts(once)


def _corrupted(key: str) -> str:
    """Another key in the same form."""
    *head, text = key.split()
    octets = bytearray(base64.b64decode(text))
    octets[0] ^= 0xFF
    return " ".join([*head, base64.b64encode(bytes(octets)).decode()])


def _attempts(once: Callable[[Path, int], tuple[list[str], Callable[[], T | None]]]) -> Iterator[T]:
    """What `ready` gives of the server started; the server is stopped after."""
    said = ""
    for _ in range(3):  # between our look and its start, somebody may take the port
        folder = Path(tempfile.mkdtemp(prefix="onym-dns-", dir="/tmp"))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            command, ready = once(folder, free_dns_port())
            process = stack.enter_context(_guarded(command, folder))
            found = _wait(process, ready)
            if found is not None:
                yield found
                return
            said = (folder / "log").read_text(errors="replace")[-2000:]
    pytest.fail(f"a name server did not start: {said}")


@contextmanager
def _guarded(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*_GUARD, "SIGTERM", "", str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=600)


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], T | None]) -> T | None:
    until = time.monotonic() + _STARTUP
    while time.monotonic() < until:
        found = ready()
        if found is not None:
            return found
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            return None
    return None


def asked(port: int, name: str, kind: str) -> dns.message.Message | None:
    """One question, by UDP; None where nobody answers."""
    query = dns.message.make_query(name, kind, want_dnssec=True, payload=4096)
    try:
        return dns.query.udp(query, LOOPBACK, 0.5, port)
    except (OSError, dns.exception.DNSException):
        return None


@dataclass(frozen=True)
class NameServers:
    """Knot, an unbound that trusts its keys, and one that trusts others: for it, all is bogus."""

    knot: Server
    validating: int
    misled: int


@contextmanager
def name_servers(
    zones: Mapping[str, str] = ZONES, *, unsigned: frozenset[str] = frozenset({"plain.test"})
) -> Iterator[NameServers]:
    """All three, for the time of the block."""
    with (
        knot(zones, unsigned=unsigned) as source,
        unbound(source, zones) as validating,
        unbound(source, zones, corrupt=True) as misled,
    ):
        yield NameServers(source, validating, misled)


_shared = ExitStack()
atexit.register(_shared.close)


@cache
def shared_name_servers() -> NameServers:
    """Those of `ZONES`, one set for all tests of this process. They must not be changed."""
    return _shared.enter_context(name_servers())


#: what a forwarder makes of a question and of the answer that its upstream gave; None is silence
Lie = Callable[[dns.message.Message, dns.message.Message | None], dns.message.Message | bytes | None]


class Forwarder:
    """A DNS server on loopback that hands questions on, and does to the answers what the test says.

    Without an upstream the lie is handed None. It speaks UDP, and TCP on the same port.
    """

    def __init__(self, upstream: int | None, lie: Lie) -> None:
        self._upstream = upstream
        self._lie = lie
        self.asked: list[tuple[str, str]] = []
        self.port = free_dns_port()
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind((LOOPBACK, self.port))
        self._streams = socket.create_server((LOOPBACK, self.port))
        self._threads = [
            threading.Thread(target=serve, daemon=True)
            for serve in (self._serve_datagrams, self._serve_streams)
        ]
        for thread in self._threads:
            thread.start()

    def _answer(self, data: bytes, *, tcp: bool) -> bytes | None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        self.asked.append((question.name.to_text(), dns.rdatatype.to_text(question.rdtype)))
        real = None
        if self._upstream is not None:
            try:
                real = dns.query.tcp(query, LOOPBACK, 60, self._upstream)
            except dns.exception.Timeout:  # which is no OSError, and would end the thread
                return None
        answer = self._lie(query, real)
        if answer is None or isinstance(answer, bytes):
            return answer
        with contextlib.suppress(dns.exception.TooBig):
            return answer.to_wire(max_size=65535 if tcp else 1232)
        cut = dns.message.make_response(query)
        cut.flags |= dns.flags.TC
        return cut.to_wire()

    def _serve_datagrams(self) -> None:
        while True:
            data, client = self._datagrams.recvfrom(4096)
            if not data:
                return
            reply = self._answer(data, tcp=False)
            if reply is not None:
                self._datagrams.sendto(reply, client)

    def _serve_streams(self) -> None:
        while True:
            try:
                sock, _ = self._streams.accept()
            except OSError:
                return
            # a client that gave up sends nothing, or less than it said
            failures = (OSError, EOFError, dns.exception.DNSException)
            with sock, sock.makefile("rb") as stream, contextlib.suppress(*failures):
                size = int.from_bytes(stream.read(2), "big")
                reply = self._answer(stream.read(size), tcp=True)
                if reply is not None:
                    sock.sendall(len(reply).to_bytes(2, "big") + reply)

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", (LOOPBACK, self.port))
        self._streams.shutdown(socket.SHUT_RDWR)
        self._streams.close()
        for thread in self._threads:
            thread.join(300)
        self._datagrams.close()
