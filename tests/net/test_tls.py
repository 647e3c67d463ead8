"""TLS: whom to trust, for which name, from which version on, and what is said when it fails."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from net_support import NAMED, OK, Authority, Face, FixedResolver, Peer, Server, answering, asking
from onym.errors import ConnectionFailed, NetError, TLSError, UsageError
from onym.net import connections
from onym.net.connections import translate_error
from onym.net.limits import TLSConfig
from onym.net.messages import Origin, Reply
from onym.net.policy import Policy

MakeFace = Callable[..., Face]
RESOLVER = {"pub.example": [["127.0.0.1"]]}


@pytest.fixture
def tls(authority: Authority, tmp_path: Path) -> TLSConfig:
    return authority.trust(tmp_path)


def call(make_face: MakeFace, server: Server, tls: TLSConfig) -> Reply:
    face = make_face(NAMED, resolver=FixedResolver(RESOLVER), tls=tls)
    return face.send(asking(Origin("https", "pub.example", server.port)))


def failure(make_face: MakeFace, context: ssl.SSLContext | None, tls: TLSConfig) -> NetError:
    with Server(answering(OK), tls=context) as server, pytest.raises(NetError) as caught:
        call(make_face, server, tls)
    assert not server.requests
    assert caught.value.endpoint == f"https://pub.example:{server.port}"
    return caught.value


@pytest.mark.requirement("llm-10.2-b")
def test_tls_1_3_is_preferred(make_face: MakeFace, authority: Authority, tls: TLSConfig) -> None:
    with Server(answering(OK), tls=authority.server("pub.example")) as server:
        assert call(make_face, server, tls).info.tls_version == "1.3"


@pytest.mark.requirement("llm-10.2-a")
def test_tls_1_2_is_spoken(make_face: MakeFace, authority: Authority, tls: TLSConfig) -> None:
    context = authority.server("pub.example")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Server(answering(OK), tls=context) as server:
        assert call(make_face, server, tls).info.tls_version == "1.2"


@pytest.mark.requirement("llm-10.2-a")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused(make_face: MakeFace, authority: Authority, tls: TLSConfig) -> None:
    context = authority.server("pub.example")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    error = failure(make_face, context, tls)
    assert (type(error), error.code) == (TLSError, "net.tls.version")


@pytest.mark.requirement("ai-gateway-j")
def test_tls_1_2_is_refused_where_1_3_is_the_least(
    make_face: MakeFace, authority: Authority, tmp_path: Path
) -> None:
    tls = dataclasses.replace(authority.trust(tmp_path), minimum="1.3")
    with Server(answering(OK), tls=authority.server("pub.example")) as server:
        assert call(make_face, server, tls).info.tls_version == "1.3"
    context = authority.server("pub.example")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    error = failure(make_face, context, tls)
    assert (type(error), error.code) == (TLSError, "net.tls.version")


def test_the_least_version_holds_without_authorities_of_ones_own_too() -> None:
    assert connections.make_tls_context(TLSConfig(minimum="1.3")).minimum_version == ssl.TLSVersion.TLSv1_3
    assert connections.make_tls_context(TLSConfig()).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError):
        TLSConfig(minimum="1.1")  # type: ignore[arg-type]


def test_a_certificate_for_another_name_is_refused(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    error = failure(make_face, authority.server("other.example"), tls)
    assert (error.code, error.retryable) == ("net.tls.certificate", False)
    assert "host name" in error.message


def test_a_certificate_whose_time_is_over_is_refused(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    past = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
    context = authority.server("pub.example", not_before=past - dt.timedelta(1), not_after=past)
    error = failure(make_face, context, tls)
    assert error.code == "net.tls.certificate"
    assert "expired" in error.message


def test_a_certificate_of_an_unknown_authority_is_refused(make_face: MakeFace, authority: Authority) -> None:
    error = failure(make_face, authority.server("pub.example"), TLSConfig())
    assert error.code == "net.tls.certificate"
    assert "TLSConfig(ca_files=...)" in (error.hint or "")


def test_the_systems_authorities_are_trusted_beside_ones_own(
    make_face: MakeFace,
    authority: Authority,
    tls: TLSConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = trustme.CA()
    other.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.issue_cert("pub.example").configure_cert(context)
    for server_context in (context, authority.server("pub.example")):
        with Server(answering(OK), tls=server_context) as server:
            assert call(make_face, server, tls).status == 200


def test_session_keys_are_not_written_where_a_variable_says(
    make_face: MakeFace,
    authority: Authority,
    tls: TLSConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    with Server(answering(OK), tls=authority.server("pub.example")) as server:
        call(make_face, server, tls)
    assert not (tmp_path / "keys").exists()


def test_an_ip_literal_is_verified_as_such(make_face: MakeFace, authority: Authority, tls: TLSConfig) -> None:
    policy = Policy.trusted().replace(allow_networks=("127.0.0.0/8",), ip_literals="allow")
    with Server(answering(OK), tls=authority.server("127.0.0.1")) as server:
        face = make_face(policy, tls=tls)
        assert face.send(asking(Origin("https", "127.0.0.1", server.port))).status == 200
        assert server.names == [None]
    with Server(answering(OK), tls=authority.server("127.0.0.2")) as server:
        with pytest.raises(TLSError) as caught:
            make_face(policy, tls=tls).send(asking(Origin("https", "127.0.0.1", server.port)))
        assert caught.value.code == "net.tls.certificate"
        assert "IP address" in caught.value.message


def test_a_connection_over_tls_is_used_again(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    with Server(answering(OK), tls=authority.server("pub.example")) as server:
        face = make_face(NAMED, resolver=FixedResolver(RESOLVER), tls=tls)
        for _ in range(3):
            face.send(asking(Origin("https", "pub.example", server.port)))
        assert server.connections == 1
        assert server.requests[0][1]["accept-encoding"] == "gzip"


def test_a_server_without_tls_is_told_from_a_broken_one(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    def plain(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Server(plain) as server, pytest.raises(TLSError) as caught:
        call(make_face, server, tls)
    assert caught.value.code == "net.tls.none"


def test_a_server_that_hangs_up_in_the_handshake_is_a_failed_connection(
    make_face: MakeFace, tls: TLSConfig
) -> None:
    with Server(lambda peer: None) as server, pytest.raises(ConnectionFailed):
        call(make_face, server, tls)


def test_a_server_that_demands_a_certificate_of_ours_is_refused(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    context = authority.server("pub.example")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(context)
    with Server(answering(OK), tls=context) as server, pytest.raises(NetError) as caught:
        call(make_face, server, tls)
    assert caught.value.code in ("net.tls.handshake", "net.connection.broken")


def test_a_connection_over_tls_that_breaks_off_is_no_end_of_an_answer(
    make_face: MakeFace, authority: Authority, tls: TLSConfig
) -> None:
    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\none")
        peer.sock.shutdown(2)

    with Server(handle, tls=authority.server("pub.example")) as server, pytest.raises(ConnectionFailed):
        call(make_face, server, tls)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_of_authorities_that_cannot_be_read_is_an_error_of_ours(
    make_face: MakeFace, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "authority.pem"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with Server(answering(OK)) as server, pytest.raises(UsageError) as caught:
        call(make_face, server, TLSConfig(ca_files=(str(file),)))
    assert caught.value.code == "usage.tls"


def test_a_python_that_finds_no_authorities_is_shown_where_systems_keep_them(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    bundle = tmp_path / "bundle.pem"
    authority.ca.cert_pem.write_to_path(str(bundle))
    found = connections._make_base_context((str(tmp_path / "missing.pem"), str(bundle)))
    assert found.cert_store_stats()["x509_ca"] == 1
    assert connections._make_base_context(()).cert_store_stats()["x509_ca"] == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ssl.SSLZeroReturnError(), "net.connection.broken"),
        (ssl.SSLError(), "net.tls.handshake"),
        (ConnectionResetError(), "net.connection.broken"),
        (ConnectionRefusedError(), "net.connection.refused"),
        (TimeoutError(), "net.connection.timeout"),
        (OSError(101, "Network is unreachable"), "net.connection.unreachable"),
        (OSError(24, "Too many open files"), "net.connection"),
        (ValueError("server_hostname cannot start with a leading dot."), "net.connection"),
    ],
)
def test_what_the_system_raises_has_a_class_and_a_code_of_ours(error: Exception, code: str) -> None:
    assert translate_error(error).code == code
