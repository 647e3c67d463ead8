"""Listening: where plain HTTP is refused, TLS 1.3, targets that are no path, and an end without losses."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import PATIENCE, authority_ca, serve_asgi, trust
from onym.errors import ConfigError
from onym.server import http_server as listening
from onym.server.http_server import QueryRedactionFilter, make_tls_context, run_app, serve_app

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says who asked, by which scheme."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = f"{scope['client'][0]} {scope['scheme']} {scope['raw_path'].decode()}".encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def exchange(port: int, octets: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        sock = plain if context is None else context.wrap_socket(plain, server_hostname="factory.test")
        with sock:
            sock.sendall(octets)
            return b"".join(iter(lambda: sock.recv(65536), b""))


def client(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


def test_an_app_is_served_with_tls_1_3() -> None:
    ca = authority_ca()
    with serve_asgi(app, "factory.test", ca=ca) as port:
        answer = exchange(port, GET, client(ca))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"127.0.0.1 https /")
    assert b"server:" not in answer.lower()


@pytest.mark.requirement("ai-security-e")
def test_an_older_tls_is_turned_away() -> None:
    ca = authority_ca()
    old = client(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serve_asgi(app, "factory.test", ca=ca) as port, pytest.raises(ssl.SSLError):
        exchange(port, GET, old)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "factory.test", ""])
def test_plain_http_is_refused_off_loopback(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_app(app, host=host, port=0)
    assert caught.value.code == "config.plain-http"
    assert "--tls-cert" in (caught.value.hint or "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_plain_http_is_served_on_loopback(host: str) -> None:
    assert with_listener(lambda port: asyncio.to_thread(exchange_on, host, port), host=host) == 200


def exchange_on(host: str, port: int) -> int:
    with socket.create_connection((host, port), PATIENCE) as sock:
        sock.sendall(GET)
        return int(b"".join(iter(lambda: sock.recv(65536), b"")).split()[1])


def with_listener(work: Callable[[int], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve_app(app, port=0, ready=ready.set_result, stop=stop, **options))
        try:
            return await work(await ready)
        finally:
            stop.set()
            await asyncio.wait_for(task, PATIENCE)

    return asyncio.run(main())


def test_plain_http_behind_a_proxy_is_asked_for_by_name() -> None:
    with serve_asgi(app, plain=True) as port:
        assert exchange(port, GET).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("proxies", "seen"), [((), b"127.0.0.1 http /"), (("127.0.0.1",), b"192.0.2.9 https /")]
)
def test_forwarded_addresses_count_from_named_proxies_alone(proxies: tuple[str, ...], seen: bytes) -> None:
    forwarded = b"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n"
    with serve_asgi(app, proxies=proxies) as port:
        assert exchange(port, GET.replace(b"Host: a\r\n", b"Host: a\r\n" + forwarded)).endswith(seen)


@pytest.mark.parametrize(
    "target",
    [
        b"http://other.example/",
        b"HTTPS://other.example/x",
        b"/a#fragment",
        b"other.example:443",
        b"/a?b#",
        b"/\xc3\xa9",
    ],
)
def test_a_target_that_is_no_path_is_refused(target: bytes) -> None:
    with serve_asgi(app) as port:
        answer = exchange(port, GET.replace(b" / ", b" " + target + b" "))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_the_bytes_of_a_path_stay_as_they_came() -> None:
    with serve_asgi(app) as port:
        assert exchange(port, GET.replace(b" / ", b" /a%2Fb/%2e%2e/c?q ")).endswith(b" /a%2Fb/%2e%2e/c")


def test_options_may_ask_about_the_server_as_a_whole() -> None:
    with serve_asgi(app) as port:
        answer = exchange(port, GET.replace(b"GET / ", b"OPTIONS * "))
    assert not answer.startswith(b"HTTP/1.1 5")


@pytest.mark.parametrize(
    "octets",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n  folded\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_what_another_server_could_read_otherwise_is_refused(octets: bytes) -> None:
    with serve_asgi(app) as port:
        answer = exchange(port, octets)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_certificate_without_its_key_is_told(tmp_path: Path) -> None:
    issued = authority_ca().issue_cert("factory.test")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    for certificate in (tmp_path / "cert.pem", tmp_path / "none.pem"):
        with pytest.raises(ConfigError) as caught:
            make_tls_context(certificate)
        assert caught.value.code == "config.bad-certificate"


def pems(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    issued = authority_ca().issue_cert("factory.test")
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder / "cert.pem", folder / "key.pem"


def why(certificate: Path, key: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        make_tls_context(certificate, key)
    assert caught.value.code == "config.bad-certificate"
    return caught.value.message


def test_what_is_wrong_with_a_certificate_or_its_key_is_said(tmp_path: Path) -> None:
    cert, key = pems(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = pems(tmp_path / "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    assert f"{other} does not belong to the certificate" in why(cert, other)
    assert "the two are swapped" in why(key, cert)
    assert f"{junk} contains no PEM certificate" in why(junk, key)
    assert f"{key} contains no PEM certificate" in why(key, key)
    assert f"{junk} contains no PEM private key" in why(cert, junk)
    assert f"{cert} contains no PEM private key" in why(cert)
    assert f"no such file: {tmp_path / 'none'}" in why(cert, tmp_path / "none")
    assert f"Is a directory: {tmp_path}" in why(tmp_path, key)
    junk.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert "(" in why(junk, key)


def test_a_key_under_a_password_is_told_and_asks_nobody(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    issued = authority_ca().issue_cert("factory.test")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"sekret"),
    )
    (tmp_path / "key.pem").write_bytes(locked)
    with pytest.raises(ConfigError) as caught:
        make_tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert caught.value.code == "config.bad-certificate"
    assert "password" in caught.value.message


def test_certificate_and_key_may_be_two_files(tmp_path: Path) -> None:
    issued = authority_ca().issue_cert("factory.test")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    context = make_tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_port_that_is_taken_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            run_app(app, host="127.0.0.1", port=port)
    assert caught.value.code == "config.cannot-listen"
    assert f"127.0.0.1 port {port}" in caught.value.message
    assert "Another program" in (caught.value.hint or "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ("nowhere.invalid", "host name"),
        (f"{'x' * 64}.example", "host name"),
        ("192.0.2.1", "address"),
    ],
)
def test_a_host_that_cannot_be_listened_on_is_told(
    host: str, cause: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if host == "nowhere.invalid":  # no resolver is asked
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigError) as caught:
        run_app(app, host=host, port=0, plain=True)
    assert caught.value.code == "config.cannot-listen"
    assert host in caught.value.message
    assert cause in (caught.value.hint or "")
    assert capfd.readouterr() == ("", "")


def unknown(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_a_port_that_needs_a_right_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", forbidden)
    with pytest.raises(ConfigError) as caught:
        run_app(app, host="127.0.0.1", port=443)
    assert caught.value.code == "config.cannot-listen"
    assert "CAP_NET_BIND_SERVICE" in (caught.value.hint or "")


def test_an_address_of_a_kind_that_this_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def both(*given: Any, **more: Any) -> Any:
        v6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
        return [v6, *real(*given, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    stop, found = asyncio.Event(), list[int]()

    def ready(port: int) -> None:
        found.append(port)
        stop.set()

    run_app(app, host="127.0.0.1", port=0, ready=ready, stop=stop)
    assert found[0] > 0


def test_an_app_that_does_not_start_is_told_and_its_port_is_free_again() -> None:
    async def torn(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": ""})

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConfigError) as caught:
        run_app(torn, host="127.0.0.1", port=port)
    assert caught.value.code == "config.cannot-listen"
    assert "The app" in (caught.value.hint or "")
    socket.create_server(("127.0.0.1", port)).close()


def test_a_signal_ends_it_after_the_open_request(monkeypatch: pytest.MonkeyPatch) -> None:
    # a request that a busy machine is slow with is open for longer than the ten seconds of grace
    monkeypatch.setattr("onym.server.http_server.GRACE_SECONDS", int(PATIENCE))
    began, go = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        began.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        await app(scope, receive, send)

    async def main() -> bytes:
        ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(
            serve_app(slow, host="127.0.0.1", port=0, ready=ready.set_result, stop=stop)
        )
        asked = asyncio.create_task(asyncio.to_thread(exchange, await ready, GET))
        await asyncio.to_thread(began.wait, PATIENCE)
        stop.set()
        go.set()
        answer = await asyncio.wait_for(asked, PATIENCE)
        await asyncio.wait_for(task, PATIENCE)
        return answer

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200")


def test_the_blocking_form_serves_until_it_is_told_to_stop() -> None:
    stop, found = asyncio.Event(), []

    def ready(port: int) -> None:
        found.append(port)
        stop.set()

    run_app(app, host="127.0.0.1", port=0, ready=ready, stop=stop)
    assert found[0] > 0


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_is_a_graceful_end() -> None:
    # uvicorn raises the signal again once all is closed, for whoever started it
    caught = []
    before = signal.signal(signal.SIGTERM, lambda *_: caught.append("again"))
    try:
        run_app(app, host="127.0.0.1", port=0, ready=lambda _port: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == ["again"]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_that_ends_the_process_is_not_told_as_a_port_in_use() -> None:
    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit) as caught:
            run_app(app, host="127.0.0.1", port=0, ready=lambda _port: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == 143


def test_another_loop_is_used_where_uvloop_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert listening.get_loop_factory() is None


def test_a_path_in_the_access_log_has_no_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serve_asgi(app) as port:
        exchange(port, GET.replace(b" / ", b" /seen?sekret "))
    assert "/seen" in caplog.text
    assert "sekret" not in caplog.text


def test_the_filter_leaves_other_records_alone() -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%(a)s", ({"a": "/x?y"},), None)
    assert QueryRedactionFilter().filter(record)
    assert record.getMessage() == "/x?y"


def test_trust_in_an_authority_is_a_file_and_tls_1_3(tmp_path: Path) -> None:
    found = trust(authority_ca(), tmp_path)
    assert Path(found.ca_files[0]).read_text(encoding="ascii").startswith("-----BEGIN CERTIFICATE-----")
    assert found.minimum == "1.3"
