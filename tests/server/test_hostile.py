"""Attacks on the plumbing that once worked."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onym.accounts.oidc import _get_list
from onym.common.text import encode_base64url
from onym.errors import SignatureError
from onym.server import http_server
from onym.server.settings import Issuer, RateLimit, RateLimits
from onym.sign.keys import read_keys
from onym.uri.secret import Secret
from server.test_run import exchange, with_server
from server_support import World, settings, world
from support import linear_enough

FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


@pytest.mark.parametrize("unit", [b"%41", b"a&", b";", b"%"])
def test_a_large_form_is_not_decoded_to_find_its_token(site: World, unit: bytes) -> None:
    body = b"a=" + unit * (3_900_000 // len(unit))
    with linear_enough(1):  # to decode it takes two seconds
        answer = site.client.post("/login", content=body, headers=FORM)
    assert answer.status_code in {400, 403}


def test_a_form_of_ours_is_not_large(site: World) -> None:
    body = f"csrf_token={site.csrf()}&login=alice&password={'%41' * 100_000}"
    answer = site.client.post("/login", content=body, headers=FORM)
    assert (answer.status_code, answer.json()["code"]) == (413, "http.too-large")


def test_a_token_is_found_among_many_fields_and_not_under_another_spelling(site: World) -> None:
    token = site.csrf()
    fields = "&".join(f"a{number}=b" for number in range(150))
    good = site.client.post("/echo", content=f"{fields}&csrf_token={token}&c=d", headers=FORM)
    assert good.status_code == 200
    for body in (
        f"csrf%5Ftoken={token}",
        f"csrf_token={token}&csrf_token={token}",
        f"csrf_token={token}" * 40,
    ):
        assert site.client.post("/echo", content=body, headers=FORM).status_code == 403


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 100\r\n\r\na=",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\naaa",
    ],
)
def test_a_body_that_never_ends_is_cut_off_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server.BoundedProtocol, "body_seconds", 0.2)
    head = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
    assert with_server(tmp_path, lambda port: exchange(port, head + sent)) == b""


@pytest.mark.parametrize("framing", [b"Content-Length: %d", b"Transfer-Encoding: chunked"])
def test_a_body_behind_an_upgrade_is_not_read_as_the_next_request(tmp_path: Path, framing: bytes) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n\r\n"
    head = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    head += (framing % len(hidden) if b"%" in framing else framing) + b"\r\n\r\n"

    async def smuggle(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        said = await reader.read(65536)
        with suppress(ConnectionError):
            writer.write(hidden)
            said += await asyncio.wait_for(reader.read(), 300)
        writer.close()
        return said

    said = with_server(tmp_path, smuggle)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_an_upgrade_without_a_body_is_passed_over(tmp_path: Path) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    last = b"Connection: close\r\n\r\n"
    said = with_server(tmp_path, lambda port: exchange(port, head + last))
    assert said.startswith(b"HTTP/1.1 ")
    assert not said.startswith(b"HTTP/1.1 400 ")


def test_a_client_that_takes_no_answer_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server.BoundedProtocol, "take_seconds", 0.2)
    body = b"x" * 3_900_000
    head = (
        b"POST /api/v1/echo HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: text/plain\r\nContent-Length: "
    )
    asked = (head + f"{len(body)}\r\n\r\n".encode() + body) * 6

    async def stubborn(port: int) -> int:
        """Asks and does not read, until the service has enough of it; what came of the answers."""
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            taken = 0
            with suppress(ConnectionError):
                await asyncio.wait_for(loop.sock_sendall(client, asked), 300)
            with suppress(ConnectionError):
                while part := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 300):
                    taken += len(part)
            return taken

    assert with_server(tmp_path, stubborn) < 6 * len(body)


_MANY = RateLimit(burst=1_000_000, per_minute=1_000_000)


def test_a_password_typed_as_a_login_is_not_in_the_audit_log(site: World) -> None:
    site.sign_in(login="hunter2 is my password")
    (line,) = [record for record in site.audit() if record.action == "sign-in.password"]
    assert (line.subject, line.outcome) == (None, "accounts.wrong-password")


def test_a_token_ends_none_that_may_do_more(site: World) -> None:
    read, both = site.token("read"), site.token("read", "submit")
    path = "/api/v1/account/tokens/{}"
    refused = site.client.delete(path.format("token-1"), headers=read)
    assert (refused.status_code, refused.json()["code"]) == (403, "accounts.missing-scope")
    assert site.client.get("/who", headers=both).json()["via"] == "token"
    assert site.client.delete(path.format("token-0"), headers=both).status_code == 204


def test_a_token_does_not_sign_its_account_out(site: World) -> None:
    site.sign_in()
    refused = site.client.post("/account/sign-out-everywhere", headers=site.token("read"))
    assert refused.status_code == 403
    assert site.client.get("/who").json()["via"] == "session"


def test_strangers_do_not_fill_the_audit_log_with_answers_of_no_provider(tmp_path: Path) -> None:
    issuer = Issuer(id="one", issuer="https://idp.example", client_id="c", client_secret=Secret("s"))
    rates = RateLimits(reads=_MANY, writes=_MANY, logins=RateLimit(burst=3, per_minute=1))
    with world(tmp_path, settings(oidc=(issuer,), rates=rates)) as found:
        for _ in range(20):
            found.client.get("/login/oidc/one/callback?code=x&state=y")
        assert len(found.audit()) == 3


def test_a_modulus_that_begins_with_zeros_is_measured_whole() -> None:
    n = b"\0" * 800 + ((1 << 64_000) - 1 - (1 << 64)).to_bytes(8_000, "big")
    key = {"kty": "RSA", "n": encode_base64url(n), "e": "AQAB"}
    with pytest.raises(SignatureError) as caught:
        read_keys(json.dumps({"keys": [key]}).encode())
    assert caught.value.code == "sign.weak-key"


@pytest.mark.parametrize("value", [None, 1, "S256", {"S256": 1}])
def test_a_list_of_a_provider_that_is_none_lists_nothing(value: object) -> None:
    assert _get_list({"a": value}, "a", "S256") == []
    assert _get_list({}, "a", "S256") == ["S256"]
