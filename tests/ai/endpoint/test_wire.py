"""Where an answer ends, what may be kept of it, and requests whose end two servers see in two places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import trustme

from ai_factory import NAME, resources
from ai_support import Line, authority_ca, key_store, serve_authority
from onym.ai.endpoint import Answer, Endpoint

DOCUMENT = "/.well-known/aiip"
JSON = ("Content-Type", "application/json")


def odd(app: Endpoint) -> None:
    """Handlers that do what they should not."""

    @app.resource("/odd/status")
    def status(status: int) -> Answer:
        return Answer(status=status, content_type=None, body=b"HTTP/1.1 200 OK\r\n\r\n")

    @app.resource("/odd/field")
    def field(value: str) -> Answer:
        return Answer(content_type="text/plain", body=b"x", headers=(("ETag", value), ("Retry-After", "1")))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, trustme.CA]]:
    folder = tmp_path_factory.mktemp("wire")
    keys, ca = key_store(folder), authority_ca()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=folder / "keys.sqlite")
        resources(app, [])
        odd(app)
        return app

    with serve_authority(make, NAME, ca=ca) as (_, authority):
        yield authority, ca


@pytest.fixture
def line(served: tuple[str, trustme.CA]) -> Iterator[Line]:
    with Line(*served) as found:
        yield found


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_content_ends_with_its_head_whatever_a_handler_says(
    line: Line, status: int
) -> None:
    heard = line.ask("POST", "/odd/status", json.dumps({"status": status}).encode(), JSON)
    assert (heard.status, heard.body, heard.get("content-length")) == (status, b"", None)
    assert heard.receipt is not None
    again = line.ask("GET", "/tool/add")  # what follows is the next answer, and not the rest of this one
    assert (again.status, again.json()["uri"]) == (200, f"ai://{line.authority}/tool/add")


@pytest.mark.parametrize("status", [100, 101, 103])
def test_a_status_that_ends_nothing_is_a_fault(line: Line, status: int) -> None:
    heard = line.ask("POST", "/odd/status", json.dumps({"status": status}).encode(), JSON)
    assert (heard.status, heard.json()["code"]) == (500, "internal")
    assert line.ask("GET", "/tool/add").status == 200


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b=c", "a\nb", "\x00", "\u20ac", "\xe9"])
def test_a_field_of_a_handler_that_no_head_can_hold_is_left_out(line: Line, value: str) -> None:
    heard = line.ask("POST", "/odd/field", json.dumps({"value": value}).encode(), JSON)
    assert (heard.status, heard.get("etag"), heard.get("retry-after")) == (200, None, "1")
    assert heard.get("set-cookie") is None


@pytest.mark.parametrize("path", [DOCUMENT, f"{DOCUMENT}.jwks.json"])
def test_a_document_that_somebody_has_is_not_sent_again(line: Line, path: str) -> None:
    first = line.ask("GET", path, service=False)
    tag = str(first.get("etag"))
    assert re.fullmatch(r'"[A-Za-z0-9_-]{24}"', tag)
    for value in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = line.ask("GET", path, b"", ("If-None-Match", value), service=False)
        assert (again.status, again.body, again.get("etag")) == (304, b"", tag)
        assert again.get("cache-control") == first.get("cache-control")
    other = line.ask("GET", path, b"", ("If-None-Match", '"x"'), service=False)
    assert (other.status, other.body) == (200, first.body)
    assert line.ask("HEAD", path, service=False).get("etag") == tag


def test_a_document_that_is_not_there_has_no_tag(line: Line) -> None:
    heard = line.ask("GET", f"{DOCUMENT}/other", b"", ("If-None-Match", "*"), service=False)
    assert (heard.status, heard.get("etag")) == (404, None)


def test_a_kept_description_is_not_given_to_who_asks_for_a_receipt(line: Line) -> None:
    for fields in ((), (("AIIP-Nonce", "A" * 22),)):
        heard = line.ask("GET", "/tool/add", b"", *fields)
        assert heard.get("vary") == "AIIP-Nonce, Authorization, Origin"


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "x"])
@pytest.mark.parametrize("framing", ["Content-Length: {0}", "Transfer-Encoding: chunked"])
def test_a_body_behind_an_upgrade_is_not_read_as_a_request(line: Line, protocol: str, framing: str) -> None:
    hidden = f"GET {DOCUMENT} HTTP/1.1\r\nHost: {line.authority}\r\n\r\n"
    head = (
        f"POST /.well-known/aiip/v1/{line.authority}/tool/add HTTP/1.1\r\nHost: {line.authority}\r\n"
        f"Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
        f"{framing.format(len(hidden))}\r\n\r\n"
    )
    line.sock.sendall(head.encode())
    heard = line.rest(hidden.encode())  # a segment of its own: a server may have answered the first by now
    assert heard.count(b"HTTP/1.1 ") == 1
    assert heard.startswith(b"HTTP/1.1 400 ")


def test_an_upgrade_of_a_request_without_a_body_is_passed_over(line: Line) -> None:
    heard = line.ask("GET", "/tool/add", b"", ("Connection", "Upgrade"), ("Upgrade", "h2c"))
    assert heard.status == 200


def test_a_head_with_two_meanings_is_the_last_of_its_connection(line: Line) -> None:
    one = line.head("GET", DOCUMENT, b"", ("X_Y", "z"))
    heard = line.rest(one + line.head("GET", DOCUMENT, b""))
    assert heard.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in heard
