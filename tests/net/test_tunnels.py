"""What a proxy may answer, and what Onym makes of it; proxies here are scripts."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable

import pytest

from net_support import (
    NAMED,
    OK,
    PATIENCE,
    TRIES,
    Authority,
    Face,
    FixedResolver,
    Peer,
    Server,
    answering,
    asking,
)
from onym.errors import ConnectionFailed, DeadlineExceeded, NetError, ProxyError, ResolveError
from onym.net._dialling import InnerTLSConnection
from onym.net.connections import BlockingConnection, TLSSettings, drive_coroutine, make_tls_context
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import Origin
from onym.net.proxies import ProxyConfig
from onym.uri.secret import SecretBytes
from proxy_support import relay

MakeFace = Callable[..., Face]
ORIGIN = Origin("https", "pub.example", 443)
PASSWORD = "pw-4711-never-shown"
GREETING_NO_LOGIN = b"\x05\x00"
SOCKS_OK = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


def receive(peer: Peer, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = peer.sock.recv(count - len(data))
        if not more:
            return data
        data += more
    return data


def http_proxy(answer: bytes) -> Callable[[Peer], None]:
    """A proxy that gives this answer to CONNECT and then waits for the client to close."""

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(answer)
        peer.wait_until_closed()

    return handle


def socks_proxy(*answers: bytes, seen: list[bytes] | None = None) -> Callable[[Peer], None]:
    """A SOCKS proxy that gives these answers to whatever it is sent, one after another."""

    def handle(peer: Peer) -> None:
        for answer in answers:
            data = peer.sock.recv(4096)
            if seen is not None:
                seen.append(data)
            peer.send(answer)
        peer.wait_until_closed()

    return handle


def fail(
    make_face: MakeFace, handler: Callable[[Peer], None], url: str = "http://", **options: object
) -> NetError:
    """The error of a request through such a proxy."""
    scheme, _, login = url.partition("://")
    with Server(handler) as proxy:
        config = ProxyConfig.parse(f"{scheme}://{login}127.0.0.1:{proxy.port}")
        face = make_face(NAMED, proxy=config, **options)
        with pytest.raises(NetError) as caught:
            face.send(asking(ORIGIN))
    assert caught.value.endpoint == "https://pub.example:443"
    assert caught.value.sent is False
    assert_hidden(caught.value)
    return caught.value


def assert_hidden(error: BaseException | None) -> None:
    """No frame of Onym's, of this error and of those before it, has the password."""
    while error is not None:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        ours = [frame.f_locals for frame in frames if "/src/onym/" in frame.f_code.co_filename]
        assert PASSWORD not in repr(ours) + repr(error.__dict__) + str(error)
        error = error.__cause__ or error.__context__


HTTP_ANSWERS = [
    (b"HTTP/1.1 407 No\r\n\r\n", "net.proxy.auth"),
    (b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", "net.proxy.auth"),
    (
        b"HTTP/1.1 407 No\r\nPROXY-AUTHENTICATE:NTLM\r\nproxy-authenticate: Negotiate\r\n\r\n",
        "net.proxy.auth",
    ),
    (b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nforbidden", "net.proxy.refused"),
    (b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/login\r\n\r\n", "net.proxy.refused"),
    (b"HTTP/1.1 405\r\n\r\n", "net.proxy.refused"),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "net.proxy.unreachable"),
    (b"HTTP/1.1 503 No\r\n\r\n", "net.proxy.unreachable"),
    (b"HTTP/1.1 504 No\r\n\r\n", "net.proxy.unreachable"),
    (b"HTTP/1.1 200 OK\r\n\r\nx", "net.proxy.protocol"),
    (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "net.proxy.protocol"),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\x15", "net.proxy.protocol"),
    (b"HTTP/2 200\r\n\r\n", "net.proxy.protocol"),
    (b"HTTP/1.1 20 OK\r\n\r\n", "net.proxy.protocol"),
    (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "net.proxy.protocol"),
    (b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", "net.proxy.protocol"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "net.proxy.protocol"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "net.proxy.protocol"),
]


def test_what_a_http_proxy_answers_has_a_code(make_face: MakeFace, subtests: pytest.Subtests) -> None:
    for answer, code in HTTP_ANSWERS:
        for login in ("", f"app:{PASSWORD}@"):
            with subtests.test(answer=answer[:40], login=bool(login)):
                error = fail(make_face, http_proxy(answer), f"http://{login}")
                assert error.code == code
                assert error.retryable is (code == "net.proxy.unreachable")


def test_an_authentication_that_onym_has_not_is_told_from_a_wrong_password(make_face: MakeFace) -> None:
    answer = b"HTTP/1.1 407 No\r\nProxy-Authenticate: %s\r\n\r\n"
    hints = {
        scheme: fail(make_face, http_proxy(answer % scheme), f"http://app:{PASSWORD}@").hint or ""
        for scheme in (b"Basic", b"NTLM")
    }
    assert "cntlm" in hints[b"NTLM"]
    assert "cntlm" not in hints[b"Basic"]


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_proxy_that_closes_without_an_answer_is_told(make_face: MakeFace, scheme: str) -> None:
    error = fail(make_face, lambda peer: peer.send(b""), f"{scheme}://")
    assert error.code in ("net.proxy.protocol", "net.proxy.connection")


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_proxy_that_resets_the_connection_is_told(make_face: MakeFace, scheme: str) -> None:
    error = fail(make_face, Peer.reset, f"{scheme}://")
    assert error.code == "net.proxy.connection"


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("http", b""),
        ("http", b"HTTP/1.1 200 OK\r\nX: y"),
        ("https", b""),
        ("socks5h", b""),
        ("socks5h", b"\x05"),
    ],
)
def test_a_proxy_that_keeps_silent_is_not_waited_for_longer_than_to_connect(
    make_face: MakeFace, scheme: str, answer: bytes
) -> None:
    def handle(peer: Peer) -> None:
        peer.send(answer)
        peer.wait_until_closed()

    error = fail(make_face, handle, f"{scheme}://", limits=NetLimits(connect=0.05))
    assert error.code == "net.proxy.timeout"


def test_the_time_of_a_call_ends_a_wait_for_the_proxy(make_face: MakeFace) -> None:
    with Server(Peer.wait_until_closed) as proxy:
        face = make_face(NAMED, proxy=ProxyConfig.parse(f"http://127.0.0.1:{proxy.port}"))
        for seconds in TRIES:
            with pytest.raises(DeadlineExceeded):
                face.send(asking(ORIGIN, timeout=seconds))
            if proxy.connections:
                break
        assert proxy.closed.wait(PATIENCE)


SOCKS_ANSWERS = [
    ((b"\x04\x00",), "net.proxy.protocol"),
    ((b"HT",), "net.proxy.protocol"),
    ((b"\x05\xff",), "net.proxy.auth"),
    ((b"\x05\x02", b"\x01\x01"), "net.proxy.auth"),
    ((b"\x05\x01",), "net.proxy.protocol"),
    ((b"\x05\x00", b"\x04\x00\x00\x01"), "net.proxy.protocol"),
    ((b"\x05\x00", b"\x05\x00\x00\x02"), "net.proxy.protocol"),
    ((b"\x05\x00", SOCKS_OK + b"x"), "net.proxy.protocol"),
    ((b"\x05\x00", b"\x05\x01\x00\x01"), "net.proxy.unreachable"),
    ((b"\x05\x00", b"\x05\x03\x00\x01"), "net.proxy.unreachable"),
    ((b"\x05\x00", b"\x05\x04\x00\x01"), "net.proxy.unreachable"),
    ((b"\x05\x00", b"\x05\x05\x00\x01"), "net.proxy.unreachable"),
    ((b"\x05\x00", b"\x05\x06\x00\x01"), "net.proxy.unreachable"),
    ((b"\x05\x00", b"\x05\x02\x00\x01"), "net.proxy.refused"),
    ((b"\x05\x00", b"\x05\x07\x00\x01"), "net.proxy.refused"),
    ((b"\x05\x00", b"\x05\x63\x00\x01"), "net.proxy.refused"),
]


def test_what_a_socks_proxy_answers_has_a_code(make_face: MakeFace, subtests: pytest.Subtests) -> None:
    for answers, code in SOCKS_ANSWERS:
        with subtests.test(answers=answers):
            error = fail(make_face, socks_proxy(*answers), f"socks5h://app:{PASSWORD}@")
            assert error.code == code


def test_a_proxy_without_login_is_not_sent_one_and_one_that_requires_it_is_told(make_face: MakeFace) -> None:
    seen: list[bytes] = []
    error = fail(make_face, socks_proxy(b"\x05\xff", seen=seen), "socks5h://")
    assert (error.code, seen) == ("net.proxy.auth", [b"\x05\x01\x00"])
    error = fail(make_face, socks_proxy(b"\x05\x02", seen=[]), "socks5h://")
    assert error.code == "net.proxy.protocol"


def test_what_is_sent_is_that_of_rfc_1928_and_rfc_1929(make_face: MakeFace) -> None:
    seen: list[bytes] = []
    refuse = b"\x05\x02\x00\x01"
    fail(make_face, socks_proxy(b"\x05\x02", b"\x01\x00", refuse, seen=seen), "socks5h://app:pw@")
    assert seen == [
        b"\x05\x02\x00\x02",
        b"\x01\x03app\x02pw",
        b"\x05\x01\x00\x03\x0bpub.example\x01\xbb",
    ]


@pytest.mark.parametrize(
    ("addresses", "requests"),
    [
        (["127.0.0.1"], [b"\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb"]),
        (["::ffff:8.8.8.8"], [b"\x05\x01\x00\x01\x08\x08\x08\x08\x01\xbb"]),
        (
            ["2001:4860::1", "127.0.0.1"],
            [
                b"\x05\x01\x00\x04\x20\x01\x48\x60" + bytes(11) + b"\x01\x01\xbb",
                b"\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb",
            ],
        ),
    ],
)
def test_every_checked_address_is_tried_until_the_proxy_reaches_one(
    make_face: MakeFace, addresses: list[str], requests: list[bytes]
) -> None:
    seen: list[bytes] = []
    unreachable = b"\x05\x04\x00\x01"
    error = fail(
        make_face,
        socks_proxy(GREETING_NO_LOGIN, unreachable, seen=seen),
        "socks5://",
        resolver=FixedResolver({"pub.example": [addresses]}),
    )
    assert error.code == "net.proxy.unreachable"
    assert seen[1::2] == requests


def test_a_refusal_is_not_tried_again_with_the_next_address(make_face: MakeFace) -> None:
    seen: list[bytes] = []
    error = fail(
        make_face,
        socks_proxy(GREETING_NO_LOGIN, b"\x05\x02\x00\x01", seen=seen),
        "socks5://",
        resolver=FixedResolver({"pub.example": [["127.0.0.1", "127.0.0.2"]]}),
    )
    assert (error.code, len(seen)) == ("net.proxy.refused", 2)
    down = fail(
        make_face,
        Peer.reset,
        "socks5://",
        resolver=FixedResolver({"pub.example": [["127.0.0.1", "127.0.0.2"]]}),
    )
    assert down.code == "net.proxy.connection"


@pytest.mark.parametrize(
    ("scheme", "answers"),
    [
        ("http", (b"HTTP/1.0 200 Connection established\r\nContent-Length: 5\r\n\r\n",)),
        ("http", (b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 201\r\nTransfer-Encoding: chunked\r\n\r\n",)),
        ("socks5h", (b"\x05\x00", SOCKS_OK)),
        ("socks5h", (b"\x05\x00", b"\x05\x00\x00\x03\x04host\x00\x50")),
        ("socks5h", (b"\x05\x00", b"\x05\x00\x00\x04" + bytes(18))),
    ],
)
def test_answers_in_single_bytes_are_read(
    make_face: MakeFace, authority: Authority, tls: TLSConfig, scheme: str, answers: tuple[bytes, ...]
) -> None:
    with (
        Server(answering(OK), tls=authority.server("pub.example")) as server,
        Server(relay(server, *answers, size=7)) as proxy,
    ):
        config = ProxyConfig.parse(f"{scheme}://127.0.0.1:{proxy.port}")
        face = make_face(NAMED, proxy=config, tls=tls)
        assert [face.send(asking(ORIGIN)).body for _ in range(2)] == [b"{}", b"{}"]
        assert (proxy.connections, server.connections) == (1, 1)


def test_an_ipv6_address_is_written_in_brackets(make_face: MakeFace) -> None:
    policy = NAMED.replace(ip_literals="allow")
    with Server(http_proxy(b"HTTP/1.1 403 No\r\n\r\n")) as proxy:
        face = make_face(policy, proxy=ProxyConfig.parse(f"http://127.0.0.1:{proxy.port}"))
        with pytest.raises(ProxyError):
            face.send(asking(Origin("https", "2001:4860::1", 443)))
        line, headers, _ = proxy.requests[0]
    assert line == "CONNECT [2001:4860::1]:443 HTTP/1.1"
    assert headers == {"host": "[2001:4860::1]:443"}


def test_the_login_is_sent_to_the_proxy(make_face: MakeFace) -> None:
    with Server(http_proxy(b"HTTP/1.1 407 No\r\n\r\n")) as proxy:
        face = make_face(
            NAMED, proxy=ProxyConfig.parse(f"http://Aladdin:open%20sesame@127.0.0.1:{proxy.port}")
        )
        with pytest.raises(ProxyError):
            face.send(asking(ORIGIN))
        assert proxy.requests[0][1]["proxy-authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


@pytest.fixture
def tls(authority: Authority, tmp_path: object) -> TLSConfig:
    return authority.trust(tmp_path)


def test_a_server_that_ends_the_connection_within_the_tunnel_is_told(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    def end_orderly(peer: Peer) -> None:
        peer.request()
        assert isinstance(peer.sock, ssl.SSLSocket)
        peer.sock.unwrap()

    def end_suddenly(peer: Peer) -> None:
        peer.request()

    for handler in (end_orderly, end_suddenly):
        with (
            Server(handler, tls=authority.server("pub.example")) as server,
            Server(relay(server, b"HTTP/1.1 200 OK\r\n\r\n")) as proxy,
        ):
            face = make_face(NAMED, proxy=ProxyConfig.parse(f"http://127.0.0.1:{proxy.port}"), tls=tls)
            with pytest.raises(ConnectionFailed) as caught:
                face.send(asking(ORIGIN))
            assert (caught.value.code, caught.value.sent) == ("net.connection.broken", True)


def test_a_server_that_keeps_silent_within_the_tunnel_is_waited_for_as_long_as_the_call_has(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    with (
        Server(Peer.wait_until_closed, tls=authority.server("pub.example")) as server,
        Server(relay(server, b"HTTP/1.1 200 OK\r\n\r\n")) as proxy,
    ):
        face = make_face(NAMED, proxy=ProxyConfig.parse(f"http://127.0.0.1:{proxy.port}"), tls=tls)
        for seconds in TRIES:
            with pytest.raises(DeadlineExceeded):
                face.send(asking(ORIGIN, timeout=seconds))
            if server.connections:
                break


def test_a_stream_that_is_dropped_closes_the_tunnel(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    def begin(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
        peer.wait_until_closed()

    with (
        Server(begin, tls=authority.server("pub.example")) as server,
        Server(relay(server, b"HTTP/1.1 200 OK\r\n\r\n")) as proxy,
    ):
        face = make_face(NAMED, proxy=ProxyConfig.parse(f"http://127.0.0.1:{proxy.port}"), tls=tls)
        reply = face.send(asking(ORIGIN, stream=True))
        assert face.read(reply) == b"x"
        del reply
        face.turn()
        assert server.closed.wait(PATIENCE)


def test_the_addresses_of_a_proxy_that_failed_are_looked_up_again(
    make_face: MakeFace, closed_port: int
) -> None:
    resolver = FixedResolver({"proxy.corp": [["127.0.0.1"]]})
    proxy = ProxyConfig.parse(f"http://proxy.corp:{closed_port}")
    face = make_face(NAMED, proxy=proxy, resolver=resolver)
    for _ in range(2):
        with pytest.raises(ConnectionFailed):
            face.send(asking(ORIGIN))
    assert resolver.asked == ["proxy.corp", "proxy.corp"]


def test_a_proxy_without_an_address_is_told(make_face: MakeFace) -> None:
    class NoAnswer(FixedResolver):
        def lookup(self, host: str, deadline: float | None) -> list[str]:
            raise ResolveError("the host name cannot be resolved")

    face = make_face(NAMED, proxy=ProxyConfig.parse("http://proxy.corp"), resolver=NoAnswer({}))
    with pytest.raises(ResolveError) as caught:
        face.send(asking(ORIGIN))
    assert caught.value.code == "net.proxy.resolve"
    assert "proxy.corp" in caught.value.message


def test_the_session_in_a_tunnel_is_the_servers_and_a_dropped_connection_closes_it() -> None:
    dropped: list[str] = []

    class Outer:
        address = "127.0.0.1"

        def drop(self) -> None:
            dropped.append("outer")

        def close(self) -> None:
            dropped.append("closed")

        def abandon(self) -> None:
            dropped.append("abandoned")

        def is_usable(self) -> bool:
            return True

    settings = TLSSettings(make_tls_context(TLSConfig()), "pub.example")
    connection = InnerTLSConnection(Outer(), settings)  # type: ignore[arg-type]
    connection.drop()
    connection.close()
    connection.abandon()
    assert dropped == ["outer", "closed", "abandoned"]
    assert (connection.is_usable(), connection.tls_version) == (True, None)


def test_what_is_written_before_the_session_is_open_opens_it(authority: Authority, tls: TLSConfig) -> None:
    ours, theirs = socket.socketpair()
    received: list[bytes] = []

    def serve() -> None:
        with authority.server("pub.example").wrap_socket(theirs, server_side=True) as peer:
            received.append(peer.recv(100))

    server = threading.Thread(target=serve)
    server.start()
    outer = BlockingConnection(ours, "127.0.0.1", time.monotonic)
    connection = InnerTLSConnection(outer, TLSSettings(make_tls_context(tls), "pub.example"))
    drive_coroutine(connection.write(SecretBytes(b"hello"), time.monotonic() + PATIENCE))
    server.join()
    connection.close()
    assert received == [b"hello"]


def test_a_peer_that_is_gone_while_something_is_written_is_told(tls: TLSConfig) -> None:
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_WR)
    outer = BlockingConnection(ours, "127.0.0.1", time.monotonic)
    connection = InnerTLSConnection(outer, TLSSettings(make_tls_context(tls), "pub.example"))
    with theirs, pytest.raises(ConnectionFailed) as caught:
        drive_coroutine(connection.write(SecretBytes(b"hello"), time.monotonic() + PATIENCE))
    connection.close()
    assert caught.value.code == "net.connection.broken"


def test_an_error_of_tls_while_something_is_written_has_no_frame_that_holds_it(tls: TLSConfig) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    outer = BlockingConnection(ours, "127.0.0.1", time.monotonic)
    connection = InnerTLSConnection(outer, TLSSettings(make_tls_context(tls), "pub.example"))
    with theirs, pytest.raises(NetError) as caught:
        drive_coroutine(connection.write(SecretBytes(PASSWORD.encode()), time.monotonic() + PATIENCE))
    connection.close()
    assert_hidden(caught.value)
