"""Broken off in the middle: Ctrl-C and cancellation end at once, and take the connection with them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from net_support import NAMED, PATIENCE, TRIES, Authority, FixedResolver, Peer, Server, asking
from onym.errors import DeadlineExceeded
from onym.net.config import NetConfig
from onym.net.connections import SystemResolver
from onym.net.limits import TLSConfig
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from support import untraced

CHILD = """
import sys
from onym.net import *

scheme, port, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "stream"
request = HTTPRequest(method="POST", origin=Origin(scheme, "localhost", port), target="/v1", body=b"{}")
try:
    reply = Transport(Policy.local()).send(Send(request, 3600.0, stream))
    while reply.stream.read():
        pass
except KeyboardInterrupt:
    print("interrupted")
"""
#: what CPython says of an interrupt between the making of a coroutine and its first step
UNAWAITED = "ignore:coroutine 'Response.read_chunk' was never awaited:RuntimeWarning"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal that one process sends as Ctrl-C")
@pytest.mark.parametrize("where", ["head", "stream", "handshake"])
def test_ctrl_c_ends_a_blocking_call_at_once(where: str) -> None:
    reached = threading.Event()

    def handle(peer: Peer) -> None:
        if where == "handshake":
            peer.sock.recv(1000)
        else:
            peer.request()
        if where == "stream":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none")
        reached.set()
        peer.wait_until_closed()

    with Server(handle) as server:
        scheme = "https" if where == "handshake" else "http"
        child = subprocess.Popen(
            [sys.executable, "-W", UNAWAITED, "-c", CHILD, scheme, str(server.port), where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # coverage takes locks that do not outlive an interrupt
            env=untraced(),
        )
        try:
            assert reached.wait(PATIENCE), child.communicate()
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=PATIENCE)
            assert (out, err, child.returncode) == ("interrupted\n", "", 0)
            assert server.closed.wait(PATIENCE)
        finally:
            child.kill()
            child.communicate()


def cancel_when(reached: threading.Event, work: Callable[[], Any]) -> None:
    """Start `work`, cancel it once the server has got so far, and see that it ends so."""

    async def scenario() -> None:
        task = asyncio.ensure_future(work())
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none"]
)
def test_cancelling_a_call_closes_its_connection(sent: bytes) -> None:
    reached = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(sent)
        reached.set()
        peer.wait_until_closed()

    with Server(handle) as server:
        transport = AsyncTransport(Policy.local())
        cancel_when(reached, lambda: transport.send(asking(Origin("http", "127.0.0.1", server.port))))
        assert server.closed.wait(PATIENCE)


def test_cancelling_the_reading_of_a_stream_closes_its_connection() -> None:
    reached = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none")
        peer.wait_until_closed()

    async def work(server: Server) -> None:
        origin = Origin("http", "127.0.0.1", server.port)
        reply = await AsyncTransport(Policy.local()).send(asking(origin, stream=True))
        stream: Any = reply.stream
        while True:
            await stream.aread()
            reached.set()

    with Server(handle) as server:
        cancel_when(reached, lambda: work(server))
        assert server.closed.wait(PATIENCE)


def test_scn_032_cancelling_during_the_handshake_closes_the_socket(
    authority: Authority, tmp_path: Path
) -> None:
    reached = threading.Event()

    def handle(peer: Peer) -> None:
        peer.sock.recv(1000)
        reached.set()
        peer.wait_until_closed()

    with Server(handle) as server:
        transport = AsyncTransport(
            NetConfig(
                policy=NAMED,
                resolver=FixedResolver({"pub.example": [["127.0.0.1"]]}),
                tls=authority.trust(tmp_path),
            )
        )
        origin = Origin("https", "pub.example", server.port)
        cancel_when(reached, lambda: transport.send(asking(origin)))
        assert server.closed.wait(PATIENCE)


class SlowResolver:
    """Never answers; says when it is asked, and how often."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.times = 0
        self.cancelled = False

    def lookup(self, host: str, deadline: float | None) -> list[str]:
        raise NotImplementedError

    async def alookup(self, host: str, deadline: float | None) -> list[str]:
        self.times += 1
        self.asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError


def test_cancelling_during_the_lookup_ends_the_call() -> None:
    resolver = SlowResolver()
    transport = AsyncTransport(NetConfig(policy=NAMED, resolver=resolver))
    cancel_when(resolver.asked, lambda: transport.send(asking(Origin("https", "pub.example", 443))))


def test_a_lookup_that_takes_too_long_ends_the_call_and_closing_ends_the_lookup() -> None:
    resolver = SlowResolver()

    async def scenario() -> None:
        # time stands still, so that none of them is too late to ask
        async with AsyncTransport(NetConfig(policy=NAMED, resolver=resolver, clock=lambda: 0.0)) as transport:
            sends = [asking(Origin("https", "pub.example", 443), timeout=0.02) for _ in range(3)]
            outcomes = await asyncio.gather(*map(transport.send, sends), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 3

    asyncio.run(scenario())
    assert (resolver.times, resolver.cancelled) == (1, True)


def test_a_deadline_during_the_handshake_ends_the_call(authority: Authority, tmp_path: Path) -> None:
    def handle(peer: Peer) -> None:
        peer.sock.recv(1000)
        reached.set()
        peer.wait_until_closed()

    async def scenario(tls: TLSConfig, port: int, seconds: float) -> None:
        resolver = FixedResolver({"pub.example": [["127.0.0.1"]]})
        async with AsyncTransport(NetConfig(policy=NAMED, resolver=resolver, tls=tls)) as transport:
            with pytest.raises(DeadlineExceeded):
                await transport.send(asking(Origin("https", "pub.example", port), timeout=seconds))

    for seconds in TRIES:
        reached = threading.Event()
        with Server(handle) as server:
            asyncio.run(scenario(authority.trust(tmp_path), server.port, seconds))
            if reached.is_set():
                assert server.closed.wait(PATIENCE)
                return
    pytest.fail("no try got as far as the handshake")


def test_closing_a_transport_of_another_loop_is_harmless() -> None:
    with Server(Peer.wait_until_closed) as server:
        transport = AsyncTransport(NetConfig(policy=Policy.local(), resolver=SystemResolver()))

        async def scenario() -> None:
            with pytest.raises(DeadlineExceeded):
                await transport.send(asking(Origin("http", "127.0.0.1", server.port), timeout=0.01))

        asyncio.run(scenario())
        asyncio.run(transport.close())
