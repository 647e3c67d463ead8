"""Attacks on a gateway that runs: raw sockets, smuggled fields, other sites' forms, authorities that lie.

Names in brackets are those of the attack list (AIIP/HTTPS v1 3.15) and of the vectors ("prov-105").
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway_support import AUTHORITY, Late, World, raw, world
from support import mentions

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def head(
    site: World, *lines: str, target: str | None = None, method: str = "GET", host: bool = True
) -> bytes:
    path = site.path("/tool/add") if target is None else target
    fields = [f"Host: 127.0.0.1:{site.port}"] if host else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", *fields, *lines, "Connection: close", "", ""]).encode(
        "latin-1"
    )


def status(octets: bytes) -> int:
    return int(octets.split(b" ", 2)[1]) if octets.startswith(b"HTTP/1.1 ") else 0


@pytest.fixture(autouse=True)
def _still_up(site: World) -> Any:
    yield
    assert site.ask("POST", "/tool/add", b'{"a":1,"b":2}').json()["sum"] == 3


@pytest.mark.requirement("ai-gateway-e", "ai-gateway-f")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/gateway/{a}/..%252fadmin", id="prov-105 double-encoded slash"),
        pytest.param("/gateway/{a}/%2e%2e/other/pay", id="prov-106 encoded dots"),
        pytest.param("/gateway/{a}/../other/pay", id="prov-106 dots"),
        pytest.param("/gateway/{a}/.%2e/x", id="prov-106 half encoded dots"),
        pytest.param("/gateway/{a}/..;x/y", id="attack 20 dots with parameter"),
        pytest.param("/gateway/{a}/a%2f..%2f..%2fother", id="prov-106 encoded slashes"),
        pytest.param("/gateway/{a}/a%5c..%5cb", id="attack 20 backslash"),
        pytest.param("/gateway/{a}//x", id="attack 20 empty segment"),
        pytest.param("/gateway/{a}/x/", id="slash at the end"),
        pytest.param("/gateway/bank%2f..%2fevil/x", id="prov-107 encoded slash in the authority"),
        pytest.param("/gateway/bank%2fevil/x", id="prov-107"),
        pytest.param("/gateway/user@bank/x", id="prov-107 userinfo"),
        pytest.param("/gateway/bank:443@evil/x", id="prov-107 userinfo that reads as a port"),
        pytest.param("/gateway/bank\\\\evil/x", id="prov-107 backslash"),
        pytest.param("/gateway/%62ank.example/x", id="encoded letter in the authority"),
        pytest.param("/gateway//x", id="prov-108 empty authority"),
        pytest.param("/gateway/", id="prov-108 nothing"),
        pytest.param("/gateway/127.0.0.1/x", id="attack 16 address"),
        pytest.param("/gateway/[::1]/x", id="attack 16 address literal"),
        pytest.param("/gateway/2130706433/x", id="attack 16 decimal address"),
        pytest.param("/gateway/0x7f.1/x", id="attack 16 hexadecimal address"),
        pytest.param("/gateway/{a}/x%3Fy", id="prov-109 encoded question mark"),
        pytest.param("/gateway/{a}/x%23y", id="prov-109 encoded hash"),
        pytest.param("/gateway/{a}/x?a=1&a=2", id="attack 21 duplicate name"),
        pytest.param("/gateway/{a}/x?a=1&A=2", id="attack 21 case variant"),
        pytest.param("/gateway/{a}/x?a=1;b=2", id="attack 21 semicolon"),
        pytest.param("/gateway/{a}/x?a=1+2", id="attack 21 plus"),
        pytest.param("/gateway/{a}/x%0d%0aSet-Cookie:%20a", id="prov-110 line end in the path"),
        pytest.param("/gateway/{a}/x?a=%0d%0aX:%20y", id="prov-110 line end in the query"),
        pytest.param("/gateway/{a}/x%00", id="attack 20 NUL"),
        pytest.param("/gateway/{a}/%c0%ae%c0%ae/x", id="attack 20 overlong UTF-8"),
        pytest.param("/gateway/{a}/%ef%bc%8e/x", id="lower-case triplets"),
        pytest.param("/gateway/{a}/%7Ex", id="encoded unreserved"),
        pytest.param("/gateway/FACTORY.test/x", id="attack 18 capitals"),
        pytest.param("/gateway/factory.test./x", id="attack 18 trailing dot"),
        pytest.param("/gateway/factory.test:443/x", id="attack 18 default port"),
        pytest.param("/gateway/xn--zzzzzz-.test/x", id="attack 19 bad A-label"),
    ],
)
def test_an_ambiguous_address_is_refused_and_nobody_is_asked(site: World, path: str) -> None:
    before = len(site.endpoint.seen)
    found = raw(site.port, head(site, target=path.replace("{a}", site.authority)))
    assert status(found) == 400
    body = json.loads(found.partition(b"\r\n\r\n")[2])
    assert body["code"] in {"malformed-uri", "non-canonical-uri"}
    assert b"\r\nlocation:" not in found.lower()
    assert len(site.endpoint.seen) == before


def test_the_canonical_form_is_told_and_not_gone_to(site: World) -> None:
    answer = site.ask("GET", f"/gateway/{site.authority.upper()}/tool/add")
    assert answer.status == 400
    assert answer.json()["canonical"] == f"ai://{site.authority}/tool/add"
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "target",
    [
        "/gatewayX/{a}/x",
        "/%67ateway/{a}/tool/add",
        "/gateway%2f{a}/x",
        "//gateway/{a}/x",
        "/x/../gateway/{a}/x",
    ],
)
def test_a_trick_with_the_prefix_is_not_the_prefix(site: World, target: str) -> None:
    found = raw(site.port, head(site, target=target.replace("{a}", site.authority)))
    assert status(found) == 404


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        pytest.param(["Host: evil.example"], {}, id="23 two hosts"),
        pytest.param([], {"host": False}, id="23 no host"),
        pytest.param(
            ["Content-Length: 0", "Transfer-Encoding: chunked"], {"method": "POST"}, id="23 CL and TE"
        ),
        pytest.param(["Content-Length: 1", "Content-Length: 2"], {"method": "POST"}, id="23 two CL"),
        pytest.param(["X-A: b", " folded"], {}, id="23 obs-fold"),
        pytest.param(["Transfer-Encoding: xchunked"], {"method": "POST"}, id="23 unknown TE"),
        pytest.param([], {"target": "http://evil.example/gateway/a.example/x"}, id="23 absolute-form"),
        pytest.param([], {"target": "/gateway/a.example/x#y"}, id="prov-109 fragment"),
        pytest.param(["Client_Cert: x"], {}, id="24 underscore"),
        pytest.param(["Authorization: a", "Authorization: b"], {}, id="24 two Authorization"),
        pytest.param(["AIIP-Nonce: a", "AIIP-Nonce: b"], {}, id="24 two AIIP-Nonce"),
        pytest.param(["DPoP: a", "DPoP: b"], {}, id="88 two DPoP"),
        pytest.param(["Via: 1.1 127.0.0.1:{port}"], {}, id="prov-114 came by here"),
    ],
)
def test_a_request_that_two_servers_read_differently_is_refused(
    site: World, lines: list[str], options: dict[str, Any]
) -> None:
    before = len(site.endpoint.seen)
    found = raw(site.port, head(site, *(line.replace("{port}", str(site.port)) for line in lines), **options))
    assert status(found) in {400, 403}
    assert found.count(b"HTTP/1.1 ") == 1
    assert len(site.endpoint.seen) == before


@pytest.mark.parametrize(
    "octets",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n\r\nGET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_http_is_answered_with_400(site: World, octets: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), timeout=300) as line:
        line.sendall(octets)
        line.shutdown(socket.SHUT_WR)
        found = line.recv(65536)
    assert status(found) in {0, 400}


def test_a_client_that_goes_away_in_its_body_costs_nothing(site: World) -> None:
    before = len(site.endpoint.seen)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", site.port), timeout=300) as line:
            line.sendall(
                head(site, "Content-Type: application/json", "Content-Length: 100", method="POST") + b"{"
            )
    site.ask("OPTIONS", "/tool/add")
    assert len(site.endpoint.seen) == before


@pytest.mark.requirement("ai-security-f")
def test_fields_of_the_caller_do_not_go_up_and_nothing_is_passed_through(site: World) -> None:
    """24, 26, 118: tokens and cookies stay; 111: nobody believes Forwarded; 112: no method is overridden."""
    before = len(site.endpoint.seen)
    answer = site.ask(
        "GET",
        "/tool/add",
        Authorization="Bearer secret-token",
        Cookie="session=secret",
        DPoP="x",
        Forwarded="host=evil.example;proto=http;for=10.0.0.1",
        X_Forwarded_For="10.0.0.1",
        X_Forwarded_Host="evil.example",
        X_Original_URL="/gateway/evil/x",
        X_HTTP_Method_Override="DELETE",
        Client_Cert=":MIIB:",
        X_SSL_Client_Cert="x",
        AIIP_Receipt="x",
        Accept_Language="de",
    )
    assert answer.status == 200
    assert not mentions(json.dumps(answer.headers), "evil")
    scopes = site.endpoint.seen[before:]
    assert scopes
    for scope in scopes:
        names = {name.decode() for name, _ in scope["headers"]}
        assert names <= {
            "host", "accept", "accept-encoding", "aiip-nonce", "origin", "via", "accept-language",
            "user-agent", "content-length", "connection",
        }  # fmt: skip
        assert b"secret" not in b"".join(value for _, value in scope["headers"])
    assert scopes[-1]["method"] == "GET"
    fields = dict(scopes[-1]["headers"])
    assert fields[b"accept-language"] == b"de"
    assert fields[b"origin"] == site.base.encode()
    assert fields[b"via"] == f"1.1 127.0.0.1:{site.port}".encode()
    assert fields[b"accept-encoding"] == b"identity"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example", "Sec_Fetch_Site": "same-origin"},
    ],
)
def test_another_sites_page_cannot_invoke(site: World, headers: dict[str, str]) -> None:
    """34: no ambient authority is spent, whatever a page sends."""
    before = len(site.endpoint.seen)
    answer = site.ask("POST", "/tool/add", b'{"a":1,"b":2}', **headers)
    assert (answer.status, answer.json()["code"]) == (403, "forged")
    form = site.at("POST", "/invoke", b"uri=ai%3A%2F%2Fx", **FORM, **headers)
    assert form.status == 403
    assert len(site.endpoint.seen) == before


def test_a_form_without_its_token_does_nothing(site: World) -> None:
    before = len(site.endpoint.seen)
    cookie = f"onym-gateway={'a' * 43}"
    for body in (b"", b"csrf_token=x&uri=ai:x", b"&".join([b"a=b"] * 100)):
        for more in ({}, {"Cookie": cookie}, {"Cookie": "onym-gateway=short; a=b"}):
            answer = site.at("POST", "/invoke", body, **FORM, **more)
            assert answer.status in {400, 403}
    assert site.at("POST", "/invoke", b"{}").status == 415
    assert len(site.endpoint.seen) == before


def test_a_get_never_has_effects(site: World) -> None:
    """34: what a link preview or a prefetch can do is to read a description."""
    before = len(site.endpoint.seen)
    for path in ("/tool/add?a=1", "/agent/forklift", "/tool/write"):
        for accept in ("text/html", "*/*"):
            site.ask("GET", path, Accept=accept, Sec_Purpose="prefetch")
    assert {request["method"] for request in site.endpoint.seen[before:]} == {"GET"}


@pytest.mark.requirement("ai-security-d")
def test_every_answer_is_private_and_inert(site: World) -> None:
    """35, 36, 117: nobody keeps it, nothing in it runs, nothing is set."""
    for answer in (
        site.ask("POST", "/tool/add", b'{"a":1,"b":2}'),
        site.ask("GET", "/tool/add"),
        site.ask("POST", "/tool/page", b"{}"),
        site.ask("POST", "/agent/forklift", b"{}"),
        site.ask("GET", "/no/such", Accept="text/html"),
    ):
        assert answer.headers["cache-control"] == "private, no-store, no-transform"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] in {"no-referrer", "same-origin"}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]
    page = site.ask("POST", "/tool/page", b"{}")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]


def test_a_body_that_is_too_large_is_refused_by_its_word_and_by_its_size(site: World) -> None:
    limit = site.settings.body_limit
    before = len(site.endpoint.seen)
    told = raw(
        site.port, head(site, "Content-Type: text/plain", f"Content-Length: {limit + 1}", method="POST")
    )
    assert status(told) == 413
    untold = head(site, "Content-Type: text/plain", "Transfer-Encoding: chunked", method="POST")
    chunk = b"%x\r\n" % (limit + 1) + b"x" * (limit + 1) + b"\r\n0\r\n\r\n"
    assert status(raw(site.port, untold + chunk)) in {0, 413}
    assert len(site.endpoint.seen) == before


def test_a_head_that_is_too_large_is_refused(site: World) -> None:
    assert status(raw(site.port, head(site, *(f"X-{n}: a" for n in range(150))))) == 413
    assert status(raw(site.port, head(site, "X: " + "a" * 40_000))) == 413
    assert status(raw(site.port, head(site, target=site.path("/" + "a" * 5_000)))) == 413


def test_the_gateway_is_no_authority(site: World) -> None:
    """114: its own name leads nowhere."""
    with world(base_url="http://localhost:1", allowed_hosts=("factory.test", "gw.test")) as inner:
        for name in ("factory.test", "gw.test", "localhost"):
            answer = inner.at("GET", f"/gateway/{name}/x", Host="gw.test")
            assert (answer.status, answer.json()["code"]) == (403, "policy-denied")
        assert inner.endpoint.seen == []


class Liar:
    """An authority that answers as it is told; `forge` changes what a real endpoint would answer."""

    def __init__(self, forge: Any) -> None:
        self.late = Late()
        self._forge = forge
        self.posts = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.posts += scope["method"] == "POST"
        if "/aiip/v1/" not in scope["path"] or (
            scope["method"] != "POST" and not scope["path"].endswith("/get")
        ):
            await self.late.app(scope, receive, send)
            return
        messages: list[Any] = []

        async def keep(message: Any) -> None:
            messages.append(message)

        await self.late.app(scope, receive, keep)
        whole = b"".join(part.get("body", b"") for part in messages[1:])
        code, headers, body = self._forge(messages[0]["status"], list(messages[0]["headers"]), whole)
        headers = [header for header in headers if header[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def lying(forge: Any) -> tuple[Any, Liar]:
    from gateway_support import authority

    liar = Liar(forge)
    late = Late()

    class Both:
        seen = late.seen

        def __init__(self) -> None:
            self.app: Any = None
            self.folder = Path()

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await liar.late(scope, receive, send)
                return
            if liar.late.app is None:
                liar.late.app = authority(AUTHORITY, scope["server"][1], self.folder)
            late.seen.append(scope)
            await liar(scope, receive, send)

    both = Both()
    both.app = both
    return both, liar


def without(name: bytes) -> Any:
    return lambda code, headers, body: (code, [header for header in headers if header[0] != name], body)


def adding(*fields: tuple[bytes, bytes]) -> Any:
    return lambda code, headers, body: (code, [*headers, *fields], body)


def forged_signature(code: int, headers: Any, body: bytes) -> Any:
    changed = [
        (name, value[:-6] + b"AAAAAA" if name == b"aiip-receipt" else value) for name, value in headers
    ]
    return code, changed, body


@pytest.mark.requirement("ai-provenance-b", "ai-gateway-h", "ai-gateway-m")
@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(without(b"aiip-receipt"), id="62, 11 stripped receipt"),
        pytest.param(forged_signature, id="120 signature that does not hold"),
        pytest.param(lambda code, headers, body: (code, headers, b'{"sum":4}'), id="8 body swapped"),
        pytest.param(lambda code, headers, body: (201, headers, body), id="8 status swapped"),
        pytest.param(
            lambda code, headers, body: (
                code,
                [(n, b"text/plain" if n == b"content-type" else v) for n, v in headers],
                body,
            ),
            id="8 content type swapped",
        ),
    ],
)
def test_what_does_not_prove_itself_is_not_released(forge: Any) -> None:
    late, liar = lying(forge)
    with world(late=late) as found:
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert (answer.status, answer.json()["code"]) == (502, "provenance-invalid")
        assert not mentions(answer.body.decode(), "sum")
        assert "aiip-receipt" not in answer.headers
        assert "aiip-gateway-receipt" not in answer.headers
        assert found.lines()[-1]["code"].startswith("aiip.provenance-")
        assert liar.posts == 1


def test_fields_of_a_lying_authority_do_not_come_down() -> None:
    """36, 116: what it says beside its result stays there."""
    late, _ = lying(
        adding(
            (b"set-cookie", b"a=b"),
            (b"access-control-allow-origin", b"*"),
            (b"strict-transport-security", b"max-age=0"),
            (b"service-worker-allowed", b"/"),
            (b"location", b"javascript:alert(1)"),
            (b"clear-site-data", b'"*"'),
            (b"aiip-gateway-receipt", b"forged"),
            (b"content-security-policy", b"default-src *"),
        )
    )
    with world(late=late) as found:
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert answer.status == 200
        for name in ("set-cookie", "location", "clear-site-data", "service-worker-allowed"):
            assert name not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert "sandbox" in answer.headers["content-security-policy"]
        assert [value for name, value in answer.fields if name == "aiip-gateway-receipt"] != ["forged"]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_not_passed_on(code: int) -> None:
    """25: no open redirect."""
    late, liar = lying(
        lambda _code, headers, body: (code, [*headers, (b"location", b"https://evil.example/")], body)
    )
    with world(late=late) as found:
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert (answer.status, answer.json()["code"]) == (502, "upstream-redirect")
        assert "location" not in answer.headers
        assert liar.posts == 1


@pytest.mark.parametrize("code", [401, 403, 407])
def test_an_upstream_401_is_never_passed_through(code: int) -> None:
    late, _ = lying(
        lambda _code, headers, body: (
            code,
            [
                *(header for header in headers if header[0] != b"aiip-receipt"),
                (b"www-authenticate", b"Basic"),
            ],
            body,
        )
    )
    with world(late=late) as found:
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert answer.status in {403, 502}
        assert "www-authenticate" not in answer.headers


def test_a_post_whose_answer_is_lost_is_asked_for_once() -> None:
    """119: no retry without a key."""

    def lost(_code: int, _headers: Any, _body: bytes) -> Any:
        raise RuntimeError("the answer is lost")

    late, liar = lying(lost)
    with world(late=late) as found:
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert answer.status == 502
        assert liar.posts == 1


@pytest.mark.parametrize("cut", [b"event: receipt", b"id: 3"])
def test_a_stream_without_its_end_is_seen_to_fail(cut: bytes) -> None:
    """10, 66: what came is provisional, and the message is not whole."""
    late, _ = lying(lambda code, headers, body: (code, headers, body[: body.index(cut)]))
    with world(late=late) as found:
        body = b'{"to":3}'
        found_octets = raw(
            found.port,
            f"POST {found.path('/tool/count')} HTTP/1.1\r\nHost: 127.0.0.1:{found.port}\r\n"
            f"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body,
        )
        assert b"event: receipt" not in found_octets
        assert b"gateway-receipt" not in found_octets
        assert b"event: error" in found_octets
        assert b"provenance-invalid" in found_octets
        assert not found_octets.endswith(b"0\r\n\r\n")
        assert found.lines()[-1]["decision"] == "refuse"


def test_a_hostile_authority_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A broken stream is one line of the gateway's log: no traceback, and no word of the authority's."""
    late, _ = lying(lambda code, headers, body: (code, headers, body[: body.index(b"event: receipt")]))
    with world(late=late) as found:
        caplog.clear()
        for _ in range(3):
            with pytest.raises(http.client.IncompleteRead) as cut:
                found.ask("POST", "/tool/count", b'{"to":3}', Accept="text/event-stream")
            assert b"event: error" in cut.value.partial
    heard = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(heard) <= 3
    assert all(record.exc_info is None and len(record.getMessage()) < 200 for record in heard)
    assert not any(AUTHORITY in record.getMessage() for record in heard)


def test_an_authority_that_is_not_there() -> None:
    with world(timeout=2) as found:
        missing = found.at("GET", "/gateway/nowhere.test/x")
        assert (missing.status, missing.json()["code"]) == (502, "upstream-unreachable")
        label = found.at("GET", "/gateway/bank/x")
        assert (label.status, label.json()["code"]) == (404, "unknown-authority")
        none = found.at("GET", "/gateway/_/x")
        assert (none.status, none.json()["code"]) == (404, "unknown-authority")


@pytest.mark.requirement("ai-gateway-j")
def test_an_authority_with_a_certificate_of_a_stranger_is_refused() -> None:
    """115."""
    with world(ca_files=()) as found:
        answer = found.ask("GET", "/tool/add")
        assert (answer.status, answer.json()["code"]) == (502, "upstream-unreachable")
        assert found.endpoint.seen == []


def test_an_address_that_is_not_public_is_refused() -> None:
    """16: the resolver says 127.0.0.1, and nobody allowed it."""
    with world(network="public") as found:
        answer = found.ask("GET", "/tool/add")
        assert (answer.status, answer.json()["code"]) == (502, "blocked-address")
        assert b"127.0.0.1" not in answer.body.replace(found.base.encode(), b"")
        assert found.endpoint.seen == []


def test_too_many_requests_are_told_when_to_come_again() -> None:
    from onym.server.gateway.settings import GatewayRates
    from onym.server.settings import RateLimit

    rates = GatewayRates(reads=RateLimit(burst=2, per_minute=0.1), writes=RateLimit(burst=1, per_minute=0.1))
    with world(rates=rates) as found:
        assert [found.at("GET", "/").status for _ in range(3)] == [200, 200, 429]
        assert found.ask("POST", "/tool/add", b'{"a":1,"b":2}').status == 200
        late = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert (late.status, late.headers["retry-after"]) == (429, "600")


def test_an_audit_log_that_cannot_be_written_stops_the_gateway_from_answering() -> None:
    with world() as found:
        (found.folder / "audit.jsonl").unlink()
        (found.folder / "audit.jsonl").mkdir()
        answer = found.ask("POST", "/tool/add", b'{"a":1,"b":2}')
        assert (answer.status, answer.json()["code"]) == (503, "unavailable")
        assert not mentions(answer.body.decode(), "sum")
