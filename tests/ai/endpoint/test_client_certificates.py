"""Tokens that are bound to a client certificate (RFC 8705), over our TLS and behind a proxy (RFC 9440)."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import (
    LOOPBACK,
    PATIENCE,
    Heard,
    Line,
    client_cert,
    key_store,
    serve_asgi,
    serve_authority,
    thumbprint,
)
from nginx_support import forward_client_certificates, nginx
from oauth_support import HandIssuer, issuer_network, secure_issuer
from onym.ai.discovery_document import parse_discovery_document
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.errors import ConfigError
from onym.server.http_server import serve_app

NAME = "bank.test"
POLICY = "permit(principal, action, resource);"


@dataclass
class Bank:
    """A running bank that wants client certificates."""

    authority: str
    server: HandIssuer
    ca: trustme.CA
    calls: list[Call]
    client: trustme.LeafCert
    clients: trustme.CA
    app: Endpoint

    def token(self, certificate: trustme.LeafCert | None = None, **claims: Any) -> str:
        bound = {"x5t#S256": thumbprint(certificate or self.client)}
        return self.server.token(
            aud=f"https://{self.authority}/.well-known/aiip/v1", **{"cnf": bound, **claims}
        )

    def call(
        self,
        certificate: trustme.LeafCert | None,
        *fields: tuple[str, str],
        token: str | None = None,
        port: int | None = None,
        path: str = "/open",
    ) -> Heard:
        """A call over a connection of its own, with this client certificate."""
        given = (("Authorization", f"Bearer {token or self.token()}"), *fields)
        with Line(self.authority, self.ca, certificate, port) as line:
            return line.ask("POST", path, b"", *given)


@pytest.fixture(scope="module")
def clients() -> trustme.CA:
    """The authority of the clients' certificates."""
    return trustme.CA()


@pytest.fixture(scope="module")
def server(ca: trustme.CA) -> Iterator[HandIssuer]:
    with secure_issuer(ca) as found:
        yield found


def make_app(
    authority: str, server: HandIssuer, ca: trustme.CA, folder: Path, calls: list[Call], **options: Any
) -> Endpoint:
    resource = f"https://{authority}/.well-known/aiip/v1"
    guard = JWTAuthorization(
        server.issuer, resource, network=issuer_network(server, ca, folder), **{"mtls": True, **options}
    )
    app = Endpoint(
        authority, keys=key_store(folder), authorization=guard, store=folder / "keys.sqlite", policy=POLICY
    )

    @app.resource("/open")
    async def opened(call: Call) -> str:
        calls.append(call)
        return "done"

    @app.resource("/pay", effects="financial")
    async def pay(call: Call) -> str:
        calls.append(call)
        return "paid"

    return app


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA, clients: trustme.CA, server: HandIssuer
) -> Iterator[Bank]:
    folder, calls = tmp_path_factory.mktemp("bank"), list[Call]()
    clients.cert_pem.write_to_path(str(folder / "clients.pem"))

    def make(authority: str) -> Endpoint:
        return make_app(authority, server, ca, folder, calls)

    with serve_authority(make, NAME, ca=ca, client_ca=folder / "clients.pem") as (app, authority):
        yield Bank(authority, server, ca, calls, clients.issue_cert("shop@client.test"), clients, app)


@pytest.fixture
def bank(shared: Bank) -> Bank:
    shared.calls.clear()
    return shared


def refused(heard: Heard) -> None:
    assert (heard.status, heard.json()["code"]) == (401, "sender-constraint")
    assert 'Bearer error="invalid_token"' in str(heard.get("www-authenticate"))


def test_the_certificate_of_the_token_is_accepted_and_the_caller_known(bank: Bank) -> None:
    assert bank.call(bank.client).body == b"done"
    assert bank.calls[0].caller.certificate == thumbprint(bank.client)
    assert bank.calls[0].caller.key is None
    # and a connection without a certificate may read what is public
    with Line(bank.authority, bank.ca) as line:
        assert line.ask("GET", "/open").status == 200


def test_a_payment_needs_no_proof_beside_a_certificate(bank: Bank) -> None:
    assert bank.call(bank.client, ("Idempotency-Key", '"one"'), path="/pay").body == b"paid"


def test_attack_67_a_bound_token_without_its_certificate_is_refused(bank: Bank) -> None:
    refused(bank.call(None))
    refused(bank.call(bank.client, token=bank.token(cnf=None)))  # an unbound token is not enough here
    assert bank.calls == []


def test_attack_69_another_certificate_is_refused(bank: Bank) -> None:
    other = bank.clients.issue_cert("thief@client.test")
    refused(bank.call(other))
    # a stranger's field is removed, and the handler does not see it either
    refused(bank.call(None, client_cert(bank.client)))
    refused(bank.call(other, client_cert(bank.client), ("Client-Cert-Chain", client_cert(other)[1])))
    assert bank.call(bank.client, client_cert(other)).status == 200
    assert "client-cert" not in bank.calls[-1].headers


def test_attack_69_a_certificate_that_no_authority_vouches_for_now_ends_the_connection(bank: Bank) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    expired = bank.clients.issue_cert("shop@client.test", not_after=past)
    stranger = trustme.CA().issue_cert("shop@client.test")
    for certificate in (expired, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            bank.call(certificate, token=bank.token(certificate))
    assert bank.calls == []


def test_the_demand_is_published(bank: Bank) -> None:
    """RFC 9728 2, and the policy of the discovery document."""
    with Line(bank.authority, bank.ca) as line:
        found = line.ask("GET", "/.well-known/aiip", service=False)
        metadata = line.ask(
            "GET", "/.well-known/oauth-protected-resource/.well-known/aiip/v1", service=False
        ).json()
    anchor = f"https://{bank.authority}"
    document = parse_discovery_document(found.body, anchor=anchor, authority=bank.authority)
    assert document.requirements.mtls
    assert metadata["tls_client_certificate_bound_access_tokens"] is True


# behind a proxy


@contextlib.contextmanager
def behind_proxy(
    folder: Path, server: HandIssuer, ca: trustme.CA, clients: trustme.CA, **options: Any
) -> Iterator[tuple[Bank, int]]:
    """A bank that speaks plain HTTP to a proxy on this computer, and its port."""
    calls: list[Call] = []
    app = make_app(NAME, server, ca, folder, calls)
    with serve_asgi(app, **options) as port:
        yield Bank(NAME, server, ca, calls, clients.issue_cert("shop@client.test"), clients, app), port


def say(port: int, token: str, *fields: tuple[str, str]) -> Heard:
    """A request as a proxy sends it."""
    import http.client

    with contextlib.closing(socket.create_connection((LOOPBACK, port), PATIENCE)) as sock:
        lines = [f"POST /.well-known/aiip/v1/{NAME}/open HTTP/1.1", f"Host: {NAME}", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in (("Authorization", f"Bearer {token}"), *fields)]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        reply = http.client.HTTPResponse(sock, method="POST")
        reply.begin()
        named = tuple((name.lower(), value) for name, value in reply.getheaders())
        return Heard(reply.status, named, reply.read())


def test_a_listed_proxy_passes_a_certificate_on(
    tmp_path: Path, server: HandIssuer, ca: trustme.CA, clients: trustme.CA
) -> None:
    with behind_proxy(tmp_path, server, ca, clients, certificate_proxies=["127.0.0.0/8"]) as (bank, port):
        assert say(port, bank.token(), client_cert(bank.client)).body == b"done"
        assert bank.calls[0].caller.certificate == thumbprint(bank.client)
        refused(say(port, bank.token(), client_cert(clients.issue_cert("thief@client.test"))))
        refused(say(port, bank.token()))
        expired = clients.issue_cert("shop@client.test", not_after=datetime.now(UTC) - timedelta(hours=1))
        refused(say(port, bank.token(expired), client_cert(expired)))
        _, value = client_cert(bank.client)
        for fields in (
            [("Client-Cert", value.strip(":"))],
            [("Client-Cert", ":AAAA:")],
            [("Client-Cert", ":A:")],
            [("Client-Cert", f"{value}, {value}")],
            [("Client-Cert", value), ("Client-Cert", value)],
        ):
            assert say(port, bank.token(), *fields).status == 400, fields
        assert len(bank.calls) == 1


def test_a_proxy_that_is_not_listed_is_not_believed(
    tmp_path: Path, server: HandIssuer, ca: trustme.CA, clients: trustme.CA
) -> None:
    options = {"certificate_proxies": ["192.0.2.1", "2001:db8::/32"]}
    with behind_proxy(tmp_path, server, ca, clients, **options) as (bank, port):
        refused(say(port, bank.token(), client_cert(bank.client)))


def test_nginx_verifies_clients_and_passes_their_certificates_on(
    tmp_path: Path, server: HandIssuer, ca: trustme.CA, clients: trustme.CA
) -> None:
    """RFC 9440, with the lines of docs/how-to/protect-a-resource.md."""
    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    clients.cert_pem.write_to_path(str(tmp_path / "clients.pem"))
    with (
        behind_proxy(tmp_path, server, ca, clients, certificate_proxies=["127.0.0.1"]) as (bank, port),
        nginx(
            port, **forward_client_certificates(tmp_path / "server.pem", tmp_path / "clients.pem")
        ) as front,
    ):
        assert bank.call(bank.client, port=front).body == b"done"
        assert bank.calls[0].caller.certificate == thumbprint(bank.client)
        other = clients.issue_cert("thief@client.test")
        refused(bank.call(other, port=front))
        refused(bank.call(None, port=front))
        refused(bank.call(None, client_cert(bank.client), port=front))
        refused(bank.call(other, client_cert(bank.client), port=front))
        stranger = trustme.CA().issue_cert("shop@client.test")
        assert bank.call(stranger, token=bank.token(stranger), port=front).status == 400
        assert len(bank.calls) == 1


# settings


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"client_ca": "missing.pem"}, "config.bad-certificate"),
        ({"certificate_proxies": ["proxy.example"]}, "config.bad-proxy"),
        ({"certificate_proxies": ["127.0.0.1/8"]}, "config.bad-proxy"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], code: str) -> None:
    import asyncio

    with pytest.raises(ConfigError) as caught:
        asyncio.run(serve_app(None, host=LOOPBACK, port=0, **options))
    assert caught.value.code == code


def test_a_file_without_certificates_is_no_authority_of_clients(tmp_path: Path, ca: trustme.CA) -> None:
    from onym.server.http_server import make_tls_context

    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    (tmp_path / "empty.pem").write_text("nothing")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(ConfigError) as caught:
            make_tls_context(tmp_path / "server.pem", client_ca=tmp_path / name)
        assert caught.value.code == "config.bad-certificate"
    assert json.dumps(caught.value.hint)
