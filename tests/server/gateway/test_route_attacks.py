"""Attack 108 at a gateway: requests that two servers read differently, at the routes for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from gateway_support import raw
from people_support import Browser, People, people
from support import as_subtests

pytestmark = pytest.mark.xdist_group("gateway-people")

TASK = "/tasks/{authority}/AAAAAAAAAAAAAAAAAAAAAA"
#: method and target of each route
ROUTES = (
    ("GET", "/auth/login?next=/account"),
    ("GET", "/auth/login/real"),
    ("GET", "/auth/callback/real?code=a&state=b"),
    ("GET", "/auth/step-up?max_age=0"),
    ("POST", "/auth/logout"),
    ("POST", "/auth/logout/real"),
    ("GET", "/account"),
    ("GET", "/connections"),
    ("GET", "/consents"),
    ("GET", "/approvals"),
    ("POST", "/approvals"),
    ("GET", "/approvals/AAAAAAAAAAAAAAAAAAAAAA"),
    ("GET", TASK),
    ("GET", f"{TASK}/events"),
    ("DELETE", TASK),
    ("GET", "/.well-known/jwks.json"),
    ("GET", "/.well-known/oauth-protected-resource"),
)
HIDDEN = "GET /account HTTP/1.1\r\nHost: {host}\r\n\r\n"
#: name -> (request line, fields, body); {line} is the usual one without its version
ATTACKS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "no host": ("{line} HTTP/1.1", (), ""),
    "two hosts": ("{line} HTTP/1.1", ("Host: {host}", "Host: {host}"), ""),
    "another host": ("{line} HTTP/1.1", ("Host: evil.example",), ""),
    "two hosts in one": ("{line} HTTP/1.1", ("Host: {host}, evil.example",), ""),
    "HTTP/1.0 without a host": ("{line} HTTP/1.0", (), ""),
    "HTTP/1.0 with another host": ("{line} HTTP/1.0", ("Host: evil.example",), ""),
    "absolute form": ("{method} http://{host}{target} HTTP/1.1", ("Host: {host}",), ""),
    "absolute form of another": ("{method} http://evil.example{target} HTTP/1.1", ("Host: {host}",), ""),
    "fragment": ("{line}#x HTTP/1.1", ("Host: {host}",), ""),
    "CL and TE": (
        "{line} HTTP/1.1",
        ("Host: {host}", "Content-Length: 5", "Transfer-Encoding: chunked"),
        "0\r\n\r\n" + HIDDEN,
    ),
    "two CL": ("{line} HTTP/1.1", ("Host: {host}", "Content-Length: 0", "Content-Length: 60"), HIDDEN),
    "CL with a sign": ("{line} HTTP/1.1", ("Host: {host}", "Content-Length: +0"), HIDDEN),
    "another TE": ("{line} HTTP/1.1", ("Host: {host}", "Transfer-Encoding: xchunked"), HIDDEN),
    "space before the colon": (
        "{line} HTTP/1.1",
        ("Host: {host}", "Transfer-Encoding : chunked"),
        "0\r\n\r\n" + HIDDEN,
    ),
    "folded field": ("{line} HTTP/1.1", ("Host: {host}", "X-A: b", " Cookie: a=b"), HIDDEN),
    "underscore": ("{line} HTTP/1.1", ("Host: {host}", "Content_Length: 5"), ""),
    "two tokens": ("{line} HTTP/1.1", ("Host: {host}", "Authorization: DPoP a", "Authorization: DPoP b"), ""),
    "two proofs": ("{line} HTTP/1.1", ("Host: {host}", "DPoP: a", "DPoP: b"), ""),
}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with people(tmp_path_factory.mktemp("routes")) as found:
        yield found


def send(town: People, line: str, fields: tuple[str, ...], body: str, method: str, target: str) -> bytes:
    """All that the gateway says to this request, until it closes the connection."""
    site = town.towns[0]
    parts = {
        "host": f"127.0.0.1:{site.port}",
        "method": method,
        "target": target.format(authority=site.authority),
    }
    parts["line"] = f"{method} {parts['target']}"
    return raw(site.port, ("\r\n".join((line, *fields, "", "")) + body).format(**parts).encode())


@as_subtests("attack", sorted(ATTACKS))
def test_attack_108_a_request_with_two_meanings_is_refused_at_the_routes_for_people(
    attack: str, town: People
) -> None:
    for method, target in ROUTES:
        heard = send(town, *ATTACKS[attack], method, target)
        assert re.match(rb"HTTP/1\.1 400 ", heard), (method, target, heard[:300])
        assert heard.count(b"HTTP/1.1 ") == 1, (method, target, heard)
        for field in (b"\nlocation:", b"\nset-cookie:"):
            assert field not in heard.lower()
        assert b"evil.example" not in heard


def test_attack_108_a_host_of_a_stranger_is_in_no_redirect(town: People) -> None:
    """The URLs of a sign-in come from the settings, whatever fields a request has."""
    browser, port = Browser(), town.ports[0]
    fields = {
        "Forwarded": 'host="evil.example";proto=https',
        "X_Forwarded_Host": "evil.example",
        "X_Forwarded_Proto": "https",
        "X_Original_URL": "/evil.example",
        "X_HTTP_Method_Override": "DELETE",
    }
    for method, target in ROUTES:
        answer = browser.open(port, method, target.format(authority=town.towns[0].authority), **fields)
        # a logout token and a form are missing; everything else is a good request
        assert answer.status in (
            {400, 401, 403, 404, 415} if method != "GET" else {200, 303, 401, 403, 404}
        ), target
        assert "evil.example" not in json.dumps(answer.fields) + answer.body.decode()


def test_attack_108_http_1_0_has_one_answer_at_the_routes_for_people(town: People) -> None:
    for method, target in ROUTES:
        heard = send(town, "{line} HTTP/1.0", ("Host: {host}",), HIDDEN, method, target)
        assert len(re.findall(rb"HTTP/1\.[01] \d{3} ", heard)) == 1, (method, target, heard)
        assert b"transfer-encoding" not in heard.lower()
