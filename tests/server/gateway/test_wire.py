"""Fields of a request that a gateway must not leave out, pass on or believe; and of an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from ai_support import PATIENCE
from gateway_support import Answer, World, raw, world
from onym.ai.endpoint import Answer as Signed
from onym.ai.endpoint.responses import Resource
from onym.sign.receipts import content_digest

BODY = b'{"a":1,"b":2}'


@pytest.fixture(scope="module")
def site() -> Iterator[World]:
    with world() as found:
        yield found


def head(site: World, *fields: str) -> bytes:
    lines = [f"POST {site.path('/tool/add')} HTTP/1.1", f"Host: 127.0.0.1:{site.port}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def refused(site: World, fields: tuple[str, ...], body: bytes = BODY) -> tuple[bytes, str]:
    """Status and code of the refusal; nobody was asked, and nothing comes after it."""
    before = len(site.endpoint.seen)
    heard = raw(site.port, head(site, "Content-Type: application/json", *fields) + body)
    assert heard.count(b"HTTP/1.1 ") == 1
    assert all(request["method"] != "POST" for request in site.endpoint.seen[before:])
    start, _, content = heard.partition(b"\r\n\r\n")
    return start.split(b" ", 2)[1], json.loads(content)["code"]


@pytest.mark.parametrize(
    "name",
    [
        "Accept", "Content-Type", "content-length", "Content-Digest", "Idempotency-Key", "HOST", "Origin",
        "AIIP-Nonce", "Cookie", "Authorization", "Via",
    ],
)  # fmt: skip
def test_a_field_that_counts_is_not_taken_out_by_naming_it_in_connection(site: World, name: str) -> None:
    fields = (f"Content-Length: {len(BODY)}", f"Connection: keep-alive, {name}")
    assert refused(site, fields) == (b"400", "bad-request")


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "", "x"])
def test_a_coded_body_is_not_passed_on_as_a_plain_one(site: World, coding: str) -> None:
    fields = (f"Content-Length: {len(BODY)}", f"Content-Encoding: {coding}", "Connection: close")
    assert refused(site, fields) == (b"415", "unsupported-media-type")


def test_a_body_that_says_that_it_is_plain_is_taken(site: World) -> None:
    assert site.ask("POST", "/tool/add", BODY, Content_Encoding="Identity").status == 200


@pytest.mark.parametrize("coding", ["gzip, chunked", "deflate, chunked"])
def test_a_transfer_coding_that_is_not_undone_is_refused(site: World, coding: str) -> None:
    chunked = b"d\r\n" + BODY + b"\r\n0\r\n\r\n"
    assert refused(site, (f"Transfer-Encoding: {coding}",), chunked) == (b"400", "bad-request")


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "x"])
@pytest.mark.parametrize("framing", ["Content-Length: {0}", "Transfer-Encoding: chunked"])
def test_a_body_behind_an_upgrade_is_not_read_as_a_request(site: World, protocol: str, framing: str) -> None:
    hidden = f"GET {site.path('/tool/add')} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode()
    fields = ("Connection: Upgrade", f"Upgrade: {protocol}", framing.format(len(hidden)))
    before = len(site.endpoint.seen)
    with socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE) as line:
        line.sendall(head(site, *fields))
        first = line.recv(65536)
        assert first.startswith(b"HTTP/1.1 400 ")
        try:
            line.sendall(hidden)
            rest = b"".join(iter(lambda: line.recv(65536), b""))
        except ConnectionError:
            rest = b""
    assert b"HTTP/1.1 " not in rest
    assert len(site.endpoint.seen) == before


@pytest.mark.parametrize(
    "field", ["Content-Type: text/plain; x=\xe9", "Content-Type:", "Content-Type: a/b\tc"]
)
def test_a_media_type_that_is_none_is_the_callers_fault(site: World, field: str) -> None:
    heard = raw(site.port, head(site, field, f"Content-Length: {len(BODY)}", "Connection: close") + BODY)
    assert heard.startswith(b"HTTP/1.1 400 ")


def forged(site: World, *fields: tuple[bytes, bytes], status: int | None = None) -> Answer:
    """What comes of an invocation whose answer has these fields too."""
    inner = site.endpoint.app

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        async def changed(message):  # type: ignore[no-untyped-def]
            if message["type"] == "http.response.start" and scope["method"] == "POST":
                message = {**message, "headers": [*message["headers"], *fields]}
            await send(message)

        await inner(scope, receive, changed)

    site.endpoint.app = app
    try:
        return site.ask("POST", "/tool/add", BODY)
    finally:
        site.endpoint.app = inner


def test_a_digest_that_comes_down_is_the_one_that_was_verified(site: World) -> None:
    plain = site.ask("POST", "/tool/add", BODY)
    good = content_digest(plain.body)
    assert (
        forged(site, (b"content-digest", f"sha-512=:AAAA:, {good}".encode())).headers["content-digest"]
        == good
    )
    assert "content-digest" not in plain.headers


@pytest.mark.parametrize(
    "field",
    [
        (b"content-digest", b"sha-256=:" + b"A" * 43 + b"=:"),
        (b"content-type", b"text/html"),
    ],
)
def test_an_answer_that_contradicts_its_receipt_is_not_released(
    site: World, field: tuple[bytes, bytes]
) -> None:
    found = forged(site, field)
    assert (found.status, found.json()["code"]) == (502, "provenance-invalid")


def test_a_part_of_a_result_that_nobody_asked_for_is_no_result(site: World) -> None:
    @site.endpoint.app.resource("/odd/part")  # type: ignore[untyped-decorator]
    def part() -> Signed:
        return Signed(status=206, content_type="text/plain", body=b"x")

    found = site.ask("POST", "/odd/part", b"{}")
    assert (found.status, found.json()["code"]) == (502, "invocation-failed")


def test_a_description_with_half_a_character_is_shown_all_the_same(
    site: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Resource.encode_description

    def halved(self: Resource) -> bytes:
        return described(self).replace(b'"title":"Adder"', rb'"title":"\ud800 Adder"')

    site.endpoint.app.resource("/odd/half", title="Adder")(lambda: None)
    monkeypatch.setattr(Resource, "encode_description", halved)
    page = site.ask("GET", "/odd/half", Accept="text/html")
    assert page.status == 200
    assert b"? Adder" in page.body
