"""Limits on what one visitor, address or registrant may take: sign-in, connections, uploads and storage."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from app_support import registry_service
from onym.accounts.records import Account
from onym.server import registry as room
from onym.server.settings import Quotas, RateLimit, RateLimits, load_settings
from onym.uri.secret import Secret
from server_support import ALICE, PASSWORD, PASSWORD_HASH, START, World, settings, world

PROXY = ("127.0.0.1/32", "testclient/32")
LOGINS = RateLimit(burst=3, per_minute=1)
MANY = RateLimit(burst=10_000, per_minute=10_000)


def sign_in_from(site: World, address: str, password: str) -> int:
    """The status of a sign-in by a program, from an address that the proxy reports."""
    site.client.cookies.clear()
    data = {"csrf_token": site.csrf(), "login": "alice", "password": password}
    headers = {"accept": "application/json", "x-forwarded-for": address}
    answer: int = site.client.post("/login", data=data, headers=headers, follow_redirects=False).status_code
    return answer


@pytest.fixture
def attacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A service behind a proxy, in which sixty addresses have guessed the password of one account."""
    monkeypatch.setattr(
        "onym.server.middleware.get_client_address",
        lambda scope, proxies: dict(scope["headers"]).get(b"x-forwarded-for", b"198.51.100.1").decode(),
    )
    given = settings(rates=RateLimits(reads=MANY, writes=MANY, logins=LOGINS))
    with world(tmp_path, given) as site:
        # a hash that is checked in no time: sixty checks of a real one take some ten seconds
        hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        site.do(site.store.accounts.set_password, ALICE.id, Secret(hasher.hash(PASSWORD)))
        found = [sign_in_from(site, f"192.0.2.{number}", "a wrong guess") for number in range(60)]
        # the limit of the login is used up: 15 attempts at once, then one try for each address
        assert set(found) == {401}
        yield site


def test_each_of_sixty_addresses_gets_few_guesses_and_they_do_not_lock_the_owner_out(attacked: World) -> None:
    # after the limit of the login, an address has one try (a fifth of 3) and then waits
    assert sign_in_from(attacked, "192.0.2.59", "another guess") == 429
    # the 65,536 networks of one IPv6 site share theirs
    assert sign_in_from(attacked, "2001:db8:9:1::1", "a guess") == 401
    assert sign_in_from(attacked, "2001:db8:9:2::1", "a guess") == 429
    assert sign_in_from(attacked, "203.0.113.7", PASSWORD) == 303
    # and not an owner in a network of IPv6
    assert sign_in_from(attacked, "2001:db8:1:2::7", PASSWORD) == 303


def test_an_address_sends_only_so_many_bytes(tmp_path: Path) -> None:
    rates = RateLimits(reads=MANY, writes=MANY, uploads=RateLimit(burst=100, per_minute=60))
    with world(tmp_path, settings(rates=rates), routes=room.list_routes()) as site:
        headers = site.token("read", "submit")

        def send(size: int) -> int:
            body = {"template": "x" * size}
            answer: int = site.client.post("/api/v1/check", json=body, headers=headers).status_code
            return answer

        # the text is not a template, which is told after it was read
        assert [send(60 * 1024) for _ in range(2)] == [422, 429]
        site.clock.advance(minutes=2)
        assert send(60 * 1024) == 422


def connect(port: int, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))


def ask(connection: socket.socket) -> bytes:
    connection.sendall(
        b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % connection.getpeername()[1]
    )
    return connection.recv(4096)


def test_one_address_has_only_so_many_connections_and_others_are_served(tmp_path: Path) -> None:
    with (
        registry_service(str(tmp_path / "r.db"), connections_per_address=3) as service,
        ExitStack() as opened,
    ):
        port = int(service.url.rpartition(":")[2])
        held = [opened.enter_context(connect(port, "127.0.0.1")) for _ in range(3)]
        assert ask(held[0]).startswith(b"HTTP/1.1 200")
        beyond = opened.enter_context(connect(port, "127.0.0.1"))
        assert beyond.recv(4096).startswith(b"HTTP/1.1 429")
        assert beyond.recv(4096) == b""
        other = opened.enter_context(connect(port, "127.0.0.2"))
        assert ask(other).startswith(b"HTTP/1.1 200")
        # a connection that ends makes room; the server may see its end a little later
        held[1].close()
        for _ in range(1000):
            with connect(port, "127.0.0.1") as again:
                found = ask(again)
            if found.startswith(b"HTTP/1.1 200"):
                break
        assert found.startswith(b"HTTP/1.1 200")


def test_a_trusted_proxy_has_no_limit_of_connections(tmp_path: Path) -> None:
    options: dict[str, Any] = {"connections_per_address": 2, "trusted_proxies": ["127.0.0.1/32"]}
    with registry_service(str(tmp_path / "r.db"), **options) as service, ExitStack() as opened:
        port = int(service.url.rpartition(":")[2])
        held = [opened.enter_context(connect(port, "127.0.0.1")) for _ in range(5)]
        assert all(ask(connection).startswith(b"HTTP/1.1 200") for connection in held)


RITA = Account(
    id="user-rita", login="rita", name="Rita", email=None, password_hash=PASSWORD_HASH, created=START
)  # fmt: skip


def opening(name: str, text: str = "") -> dict[str, Any]:
    template = f"Scheme name: {name}\nStatus: Provisional\nContact: Rita <r@example.org>\n{text}"
    return {"registry": "uri-schemes", "template": template}


@pytest.mark.parametrize(
    ("quotas", "field"),
    [
        (Quotas(open_requests=2), "request"),
        (Quotas(daily_bytes=128 * 1024), "data"),
    ],
)
def test_a_registrant_stores_only_so_much(tmp_path: Path, quotas: Quotas, field: str) -> None:
    with world(tmp_path, settings(quotas=quotas), routes=room.list_routes()) as site:
        site.do(site.store.accounts.add, RITA)
        headers = site.token("read", "submit", account=RITA.id)
        found = [
            site.client.post(
                "/api/v1/requests",
                json=opening(f"zed{number}", "x" * 24 * 1024),
                headers=headers,
            )
            for number in range(3)
        ]
        assert [answer.status_code for answer in found[:2]] == [201, 201]
        problem = found[2].json()
        assert (problem["code"], problem["field"]) == ("registry.quota", field)
        if field == "data":
            site.clock.advance(days=1)
            again = site.client.post("/api/v1/requests", json=opening("zed9", "x"), headers=headers)
            assert again.status_code == 201
        site.do(site.store.verify)


def test_quotas_and_limits_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "registry.toml"
    file.write_text(
        "connections_per_address = 9\n[quotas]\nopen_requests = 5\n"
        "[rates.uploads]\nburst = 1\nper_minute = 2\n"
    )
    found = load_settings(file, environ={})
    assert (found.connections_per_address, found.quotas.open_requests) == (9, 5)
    assert found.quotas.daily_bytes == Quotas().daily_bytes
    assert found.rates.uploads == RateLimit(burst=1, per_minute=2)
