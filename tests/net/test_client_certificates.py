"""Client certificates, `SSL_CERT_FILE`, and TLS to this computer, with real servers and real files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import subprocess
import sys
import traceback
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from net_support import (
    NAMED,
    OK,
    PATIENCE,
    Authority,
    Face,
    FixedResolver,
    Handler,
    Peer,
    Server,
    answering,
    asking,
)
from onym.errors import NetError, UsageError
from onym.net.connections import hash_client_certificate, list_authorities, make_tls_context
from onym.net.limits import ClientIdentity, TLSConfig
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.net.proxies import ProxyConfig
from onym.uri.secret import Secret
from proxy_support import tinyproxy, tls_relay

MakeFace = Callable[..., Face]
PASSWORD = "pw-4711-never-shown"


def demanding(authority: Authority) -> ssl.SSLContext:
    """A server's context that requires a client certificate of this authority."""
    context = authority.server("pub.example", "localhost", "127.0.0.1")
    authority.ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class Files:
    """A client's certificate and key, as one makes them."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        issued: trustme.LeafCert = authority.ca.issue_cert("client.example", common_name="batch-17")
        self.both, self.cert, self.key, self.encrypted = (
            str(folder / name) for name in ("both.pem", "cert.pem", "key.pem", "encrypted.pem")
        )
        issued.private_key_and_cert_chain_pem.write_to_path(self.both)
        issued.cert_chain_pems[0].write_to_path(self.cert)
        issued.private_key_pem.write_to_path(self.key)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        Path(self.encrypted).write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
        )


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Files:
    return Files(tmp_path, authority)


def call(make_face: MakeFace, context: ssl.SSLContext, tls: TLSConfig) -> int:
    with Server(answering(OK), tls=context) as server:
        face = make_face(NAMED, resolver=FixedResolver({"pub.example": [["127.0.0.1"]]}), tls=tls)
        return face.send(asking(Origin("https", "pub.example", server.port))).status


def test_a_server_that_requires_a_client_certificate_gets_it(
    make_face: MakeFace, authority: Authority, tmp_path: Path, files: Files
) -> None:
    (ca,) = authority.trust(tmp_path).ca_files
    for tls in (
        TLSConfig(ca_files=(ca,), client_cert=files.both),
        TLSConfig(ca_files=(ca,), client_cert=files.cert, client_key=files.key),
        TLSConfig(
            ca_files=(ca,),
            client_cert=files.cert,
            client_key=files.encrypted,
            client_key_password=Secret(PASSWORD),
        ),
    ):
        assert call(make_face, demanding(authority), tls) == 200


def test_a_server_refuses_a_client_without_certificate_even_after_one_that_had_it(
    make_face: MakeFace, authority: Authority, tmp_path: Path, files: Files
) -> None:
    trust = authority.trust(tmp_path)
    tls = TLSConfig(ca_files=trust.ca_files, client_cert=files.both)
    assert call(make_face, demanding(authority), tls) == 200
    with pytest.raises(NetError):
        call(make_face, demanding(authority), trust)


def test_the_system_authorities_are_enough_beside_a_client_certificate(files: Files) -> None:
    context = make_tls_context(TLSConfig(client_cert=files.both))
    assert context is not make_tls_context(TLSConfig(client_cert=files.both))
    assert context is not make_tls_context(TLSConfig())
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_an_unusable_file_is_named_with_its_fault(
    files: Files, tmp_path: Path, authority: Authority, subtests: pytest.Subtests
) -> None:
    other = Files(tmp_path_below(tmp_path), authority)
    missing = str(tmp_path / "missing.pem")
    text = tmp_path / "text.pem"
    text.write_text("no PEM")
    rows = [
        (TLSConfig(client_cert=missing), missing, "cannot be read"),
        (TLSConfig(client_cert=files.cert, client_key=missing), missing, "cannot be read"),
        (TLSConfig(client_cert=str(tmp_path)), str(tmp_path), "cannot be read"),
        (TLSConfig(client_cert=str(text)), str(text), "PEM"),
        (TLSConfig(client_cert=files.cert), files.cert, "PEM"),
        (TLSConfig(client_cert=files.cert, client_key=other.key), other.key, "does not belong"),
        (TLSConfig(client_cert=files.cert, client_key=files.encrypted), files.encrypted, "encrypted"),
        (
            TLSConfig(
                client_cert=files.cert,
                client_key=files.encrypted,
                client_key_password=Secret(f"not {PASSWORD}"),
            ),
            files.encrypted,
            "does not decrypt",
        ),
    ]
    for tls, path, fault in rows:
        with subtests.test(path=path, fault=fault):
            with pytest.raises(UsageError) as caught:
                make_tls_context(tls)
            assert caught.value.code == "usage.tls"
            assert path in caught.value.message
            assert fault in caught.value.message
            frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
            ours = [frame.f_locals for frame in frames if "/src/onym/" in frame.f_code.co_filename]
            assert PASSWORD not in repr(ours) + str(caught.value)


def tmp_path_below(folder: Path) -> Path:
    below = folder / "other"
    below.mkdir()
    return below


@pytest.mark.parametrize("fields", [{"client_key": "k.pem"}, {"client_key_password": Secret("x")}])
def test_a_key_without_certificate_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        TLSConfig(**fields)  # type: ignore[arg-type]
    assert caught.value.code == "usage.tls"


def test_the_client_certificate_goes_to_the_server_and_not_to_the_proxy(
    make_face: MakeFace, authority: Authority, tmp_path: Path, files: Files
) -> None:
    tls = TLSConfig(ca_files=authority.trust(tmp_path).ca_files, client_cert=files.both)
    with (
        Server(answering(OK), tls=demanding(authority)) as server,
        tinyproxy() as proxy,
        tls_relay(proxy.port, demanding(authority)) as strict,
        tls_relay(proxy.port, authority.server("localhost")) as relaxed,
    ):
        origin = Origin("https", "pub.example", server.port)
        through = [ProxyConfig.parse(f"https://localhost:{port}") for port in (relaxed, strict)]
        assert make_face(NAMED, tls=tls, proxy=through[0]).send(asking(origin)).status == 200
        with pytest.raises(NetError) as caught:
            make_face(NAMED, tls=tls, proxy=through[1]).send(asking(origin))
        assert caught.value.code.startswith("net.proxy")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "app.localhost"])
def test_https_to_this_computer_is_verified_as_to_others(
    make_face: MakeFace, authority: Authority, tmp_path: Path, host: str
) -> None:
    trust = authority.trust(tmp_path)
    with Server(answering(OK), tls=authority.server(host)) as server:
        origin = Origin("https", host, server.port)
        reply = make_face(Policy.local(), tls=trust).send(asking(origin))
        assert (reply.status, reply.info.tls_version) == (200, "1.3")
        with pytest.raises(NetError) as caught:
            make_face(Policy.local()).send(asking(origin))
        assert caught.value.code == "net.tls.certificate"


_CHILD = """
import sys
from onym.net import NetConfig, Origin, HTTPRequest, Policy, Send, Transport

with Transport(NetConfig(policy=Policy.local())) as transport:
    request = HTTPRequest(method="GET", origin=Origin("https", "localhost", int(sys.argv[1])), target="/")
    print(transport.send(Send(request, 300.0)).status)
"""


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "none"])
def test_ssl_cert_file_and_ssl_cert_dir_name_the_systems_authorities(
    authority: Authority, tmp_path: Path, variable: str
) -> None:
    folder = tmp_path / "certs"
    folder.mkdir()
    (file,) = authority.trust(folder).ca_files
    subprocess.run(["openssl", "rehash", str(folder)], check=True, capture_output=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT")}
    environ[variable] = str(folder) if variable == "SSL_CERT_DIR" else file
    with Server(answering(OK), tls=authority.server("localhost")) as server:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(server.port)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    if variable == "none":
        assert "unknown authority" in done.stderr
    else:
        assert done.stdout == "200\n", done.stderr


def test_the_authorities_are_listed(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path
) -> None:
    (file,) = authority.trust(tmp_path).ca_files
    monkeypatch.setenv("SSL_CERT_FILE", file)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert list_authorities(TLSConfig(ca_files=("more.pem",))) == (file, "more.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setattr("onym.net.connections._BUNDLES", (file,))
    assert list_authorities(TLSConfig()) == (file,)
    monkeypatch.setattr("onym.net.connections._BUNDLES", ())
    assert list_authorities(TLSConfig()) == ()


def naming(authority: Authority, seen: list[bytes]) -> Handler:
    """Answers every request; `seen` gets the client certificate of each connection, in DER."""

    def handle(peer: Peer) -> None:
        seen.append(peer.sock.getpeercert(binary_form=True) or b"")  # type: ignore[attr-defined]
        while peer.request() is not None:
            peer.send(OK)

    return handle


@pytest.mark.parametrize("proxied", [False, True])
def test_a_connection_with_one_client_certificate_is_never_used_for_another(
    make_face: MakeFace, authority: Authority, tmp_path: Path, files: Files, proxied: bool
) -> None:
    other = Files(tmp_path_below(tmp_path), authority)
    first = ClientIdentity(cert=files.both)
    second = ClientIdentity(cert=other.cert, key=other.encrypted, password=Secret(PASSWORD))
    context = authority.server("pub.example", "localhost", "127.0.0.1")
    authority.ca.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    seen: list[bytes] = []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(naming(authority, seen), tls=context))
        options: dict[str, Any] = {"tls": authority.trust(tmp_path)}
        if proxied:
            options["proxy"] = ProxyConfig.parse(f"http://127.0.0.1:{stack.enter_context(tinyproxy()).port}")
        face = make_face(NAMED, resolver=FixedResolver({"pub.example": [["127.0.0.1"]]}), **options)
        send = asking(Origin("https", "pub.example", server.port))
        # the last three find the connections of the first three in the pool
        for identity in (first, second, None, first, second, None):
            assert face.send(replace(send, identity=identity)).status == 200
    ders = [ssl.PEM_cert_to_DER_cert(Path(each.cert).read_text()) for each in (files, other)]
    assert seen == [*ders, b""]


def test_an_identity_replaces_the_certificate_of_the_transport(
    make_face: MakeFace,
    authority: Authority,
    tmp_path: Path,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Files(tmp_path_below(tmp_path), authority)
    # old contexts make room: a server that names one authority after another fills no memory
    monkeypatch.setattr("onym.net._dialling._MOST_CONTEXTS", 1)
    tls = TLSConfig(ca_files=authority.trust(tmp_path).ca_files, client_cert=files.both)
    seen: list[bytes] = []
    with Server(naming(authority, seen), tls=demanding(authority)) as server:
        face = make_face(NAMED, resolver=FixedResolver({"pub.example": [["127.0.0.1"]]}), tls=tls)
        send = asking(Origin("https", "pub.example", server.port))
        for identity in (None, ClientIdentity(cert=other.both)):
            assert face.send(replace(send, identity=identity)).status == 200
        with pytest.raises(UsageError) as caught:
            face.send(replace(send, identity=ClientIdentity(cert=str(tmp_path / "missing.pem"))))
    assert caught.value.code == "usage.tls"
    assert seen == [ssl.PEM_cert_to_DER_cert(Path(each.cert).read_text()) for each in (files, other)]


def test_the_hash_of_a_client_certificate_is_that_of_its_own_der(files: Files, tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(Path(files.cert).read_text())
    expected = urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
    # in one file with its key, and before its intermediates
    assert [hash_client_certificate(ClientIdentity(cert=file)) for file in (files.cert, files.both)] == [
        expected
    ] * 2
    for path in (files.key, str(tmp_path / "missing.pem")):
        with pytest.raises(UsageError) as caught:
            hash_client_certificate(ClientIdentity(cert=path))
        assert caught.value.code == "usage.tls"
