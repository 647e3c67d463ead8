"""Attack 108 at an endpoint: requests that two servers read differently, at every route (3.14)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from ai_support import Line, key_store, serve_authority
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.context import Task
from onym.ai.endpoint.oauth import JWTAuthorization
from support import as_subtests

NAME = "bank.test"
TASK = "/.well-known/aiip/tasks/AAAAAAAAAAAAAAAAAAAAAA"
RESOURCE = "/.well-known/aiip/v1/{authority}/tool/add"
#: method and target of each route
ROUTES = (
    ("POST", RESOURCE),
    ("GET", RESOURCE),
    ("GET", TASK),
    ("DELETE", TASK),
    ("GET", f"{TASK}/events"),
    ("GET", f"{TASK}/result"),
    ("POST", f"{TASK}/input"),
    ("GET", "/.well-known/aiip"),
    ("GET", "/.well-known/aiip.jwks.json"),
    ("GET", "/.well-known/oauth-protected-resource/.well-known/aiip/v1"),
)
HIDDEN = "GET /.well-known/aiip HTTP/1.1\r\nHost: {authority}\r\n\r\n"
#: name -> (request line, fields, body); {line} is the usual one without its version
ATTACKS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "no host": ("{line} HTTP/1.1", (), ""),
    "an empty host": ("{line} HTTP/1.1", ("Host: ",), ""),
    "two hosts": ("{line} HTTP/1.1", ("Host: {authority}", "Host: {authority}"), ""),
    "another host": ("{line} HTTP/1.1", ("Host: evil.example",), ""),
    "two hosts in one": ("{line} HTTP/1.1", ("Host: {authority}, evil.example",), ""),
    "userinfo in the host": ("{line} HTTP/1.1", ("Host: evil.example@{authority}",), ""),
    "HTTP/1.0 without a host": ("{line} HTTP/1.0", (), ""),
    "HTTP/1.0 with another host": ("{line} HTTP/1.0", ("Host: evil.example",), ""),
    "absolute form": ("{method} https://{authority}{target} HTTP/1.1", ("Host: {authority}",), ""),
    "absolute form of another": (
        "{method} https://evil.example{target} HTTP/1.1",
        ("Host: {authority}",),
        "",
    ),
    "fragment": ("{line}#x HTTP/1.1", ("Host: {authority}",), ""),
    "CL and TE": (
        "{line} HTTP/1.1",
        ("Host: {authority}", "Content-Length: 5", "Transfer-Encoding: chunked"),
        "0\r\n\r\n" + HIDDEN,
    ),
    "TE and CL": (
        "{line} HTTP/1.1",
        ("Host: {authority}", "Transfer-Encoding: chunked", "Content-Length: 4"),
        "0\r\n\r\n" + HIDDEN,
    ),
    "two CL": ("{line} HTTP/1.1", ("Host: {authority}", "Content-Length: 0", "Content-Length: 60"), HIDDEN),
    "CL with a sign": ("{line} HTTP/1.1", ("Host: {authority}", "Content-Length: +0"), HIDDEN),
    "another TE": ("{line} HTTP/1.1", ("Host: {authority}", "Transfer-Encoding: xchunked"), HIDDEN),
    "space before the colon": (
        "{line} HTTP/1.1",
        ("Host: {authority}", "Transfer-Encoding : chunked"),
        "0\r\n\r\n" + HIDDEN,
    ),
    "folded field": (
        "{line} HTTP/1.1",
        ("Host: {authority}", "X-A: b", " Transfer-Encoding: chunked"),
        HIDDEN,
    ),
    "underscore": ("{line} HTTP/1.1", ("Host: {authority}", "Content_Length: 5"), ""),
    "two tokens": (
        "{line} HTTP/1.1",
        ("Host: {authority}", "Authorization: DPoP a", "Authorization: DPoP b"),
        "",
    ),
    "two proofs": ("{line} HTTP/1.1", ("Host: {authority}", "DPoP: a", "DPoP: b"), ""),
    "two keys": (
        "{line} HTTP/1.1",
        ("Host: {authority}", 'Idempotency-Key: "a"', 'Idempotency-Key: "b"'),
        "",
    ),
}


@dataclass
class Bank:
    """A running endpoint with protected resources and tasks."""

    authority: str
    ca: trustme.CA
    calls: list[str]

    def send(self, attack: str, method: str, target: str) -> bytes:
        """All that the endpoint says to this attack at this route, until it closes the connection."""
        line, fields, body = ATTACKS[attack]
        parts = {
            "authority": self.authority,
            "method": method,
            "target": target.format(authority=self.authority),
        }
        parts["line"] = f"{method} {parts['target']}"
        head = "\r\n".join((line, *fields, "", "")) + body
        with Line(self.authority, self.ca) as connection:
            return connection.rest(head.format(**parts).encode())


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[Bank]:
    folder, calls = tmp_path_factory.mktemp("routes"), list[str]()
    with serve_authority(lambda name: make_endpoint(name, folder, calls), NAME, ca=ca) as found:
        yield Bank(found[1], ca, calls)


def make_endpoint(authority: str, folder: Path, calls: list[str]) -> Endpoint:
    # no token of these requests is valid, so the issuer is never asked
    guard = JWTAuthorization("https://login.test", f"https://{authority}/.well-known/aiip/v1")
    app = Endpoint(authority, keys=key_store(folder), authorization=guard, store=folder / "keys.sqlite")

    @app.resource("/tool/add", task=True)
    async def add(task: Task) -> str:
        calls.append("add")
        return "done"

    return app


@as_subtests("attack", sorted(ATTACKS))
def test_attack_108_a_request_with_two_meanings_ends_its_connection(attack: str, bank: Bank) -> None:
    for method, target in ROUTES:
        heard = bank.send(attack, method, target)
        assert re.match(rb"HTTP/1\.1 400 ", heard), (method, target, heard[:300])
        # nothing behind it is read as a request
        assert heard.count(b"HTTP/1.1 ") == 1, (method, target, heard)
        assert b"\nlocation:" not in heard.lower()
        assert b"evil.example" not in heard
    assert bank.calls == []


def test_attack_108_a_host_of_a_proxy_changes_no_url(bank: Bank) -> None:
    """Neither Forwarded nor its relatives are read: URLs of answers come from the settings."""
    fields = [
        ("Forwarded", 'for=10.0.0.1;host="evil.example";proto=http'),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Prefix", "/evil.example"),
        ("X-Original-URL", "/evil.example"),
        ("X-Rewrite-URL", "/evil.example"),
        ("X-HTTP-Method-Override", "DELETE"),
    ]
    with Line(bank.authority, bank.ca) as line:
        for method, target in ROUTES:
            heard = line.ask(method, target.format(authority=bank.authority), b"", *fields, service=False)
            assert heard.status in {200, 401, 404}
            assert "evil.example" not in json.dumps(heard.fields) + heard.body.decode()


def test_attack_108_http_1_0_has_one_answer_and_a_closed_connection(bank: Bank) -> None:
    for method, target in ROUTES:
        head = (
            f"{method} {target.format(authority=bank.authority)} HTTP/1.0\r\nHost: {bank.authority}\r\n\r\n"
        )
        with Line(bank.authority, bank.ca) as line:
            heard = line.rest(head.encode() * 2)
        assert re.match(rb"HTTP/1\.[01] (200|401|404) ", heard), (method, target, heard[:300])
        assert len(re.findall(rb"HTTP/1\.[01] \d{3} ", heard)) == 1
        assert b"transfer-encoding" not in heard.lower()
    assert bank.calls == []
