"""Heads and bodies that two servers could read in two ways, or that cost too much, go no further (3.14)."""

from __future__ import annotations

import hashlib
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from ai_support import PATIENCE, Line
from onym.ai.endpoint import Endpoint, Limits
from onym.ai.messages import MAX_FIELDS, parse_request_head, validate_json_depth, verify_content_digest
from onym.errors import AIIPError
from onym.server import http_server
from onym.sign.receipts import content_digest

Serving = Callable[..., Any]
JSON = ("Content-Type", "application/json")
CHUNKED = b"POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n"


class Resources:
    """One that counts, one that waits, one whose stream never ends."""

    def __init__(self) -> None:
        self.ran = 0
        self.began, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()

    def fill(self, app: Endpoint) -> None:
        @app.resource("/run")
        def run(data: Any = None) -> int:
            self.ran += 1
            return self.ran

        @app.resource("/wait")
        def wait() -> int:
            self.began.set()
            self.go.wait(PATIENCE)
            return 1

        @app.resource("/asleep")
        async def asleep() -> int:
            import asyncio

            await asyncio.Event().wait()
            return 1

        @app.resource("/large")
        def large() -> bytes:
            return b"x" * 2000

        @app.resource("/endless")
        async def endless() -> AsyncIterator[int]:
            import asyncio

            try:
                yield 1
                self.began.set()
                await asyncio.Event().wait()
            finally:
                self.ended.set()


def code_of(line: Line, *fields: tuple[str, str], target: str = "/run", body: bytes = b"") -> str:
    heard = line.ask("POST", target, body, *fields)
    return "" if heard.status == 200 else str(heard.json()["code"])


@pytest.mark.parametrize(
    "fields",
    [
        [("Host", "factory.test")],
        [("Authorization", "a"), ("Authorization", "b")],
        [("AIIP-Nonce", "A" * 22), ("aiip-nonce", "A" * 22)],
        [("AIIP-Other", "a"), ("AIIP-Other", "a")],
        [("Idempotency-Key", '"a"'), ("Idempotency-Key", '"a"')],
        [("Content-Type", "a/b"), ("Content-Type", "a/b")],
        [("Origin", "https://a.example"), ("Origin", "https://a.example")],
        [("DPoP", "a"), ("DPoP", "b")],
        [("Client_Cert", "x")],
        [("Content_Length", "5")],
        [("AIIP-Nonce", "A" * 21)],
        [("AIIP-Nonce", "A" * 129)],
        [("AIIP-Nonce", "A" * 21 + "=")],
        [("AIIP-Nonce", "")],
        [("Idempotency-Key", "bare")],
        [("Idempotency-Key", '""')],
        [("Idempotency-Key", f'"{"a" * 256}"')],
        [("Idempotency-Key", '"a"b"')],
        [("Origin", "https://a.example/path")],
        [("Origin", "https://a.example, https://b.example")],
        [("Content-Type", "text/\xff")],
        [("Content-Type", "")],
        [(f"X-{each}", "x") for each in range(MAX_FIELDS)],
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(
    serving: Serving, fields: list[tuple[str, str]]
) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        heard = line.ask("POST", "/run", b"", *fields)
        assert (heard.status, heard.json()["code"]) == (400, "bad-request")
        assert heard.receipt is None
    assert resources.ran == 0


@pytest.mark.parametrize(
    ("octets", "status"),
    [
        (CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\nx", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nHost: other.example\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\n\r\n", 400),
        (b"POST {t} HTTP/1.0\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: other.example\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nX-A: b\r\n folded\r\n\r\n", 400),
        (b"POST {t}\xff HTTP/1.1\r\nHost: {h}\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nClient_Cert: x\r\n\r\n", 400),
        (b"POST {t}#f HTTP/1.1\r\nHost: {h}\r\n\r\n", 400),
        (b"POST https://{h}{t} HTTP/1.1\r\nHost: {h}\r\n\r\n", 400),
        (b"POST {t}? HTTP/1.1\r\nHost: {h}\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (CHUNKED + b"\r\n0\r\nAIIP-Nonce: AAAAAAAAAAAAAAAAAAAAAA\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost : {h}\r\n\r\n", 400),
        (b"POST {t} HTTP/1.1\nHost: {h}\n\n", 400),
        (b"POST {t} HTTP/1.1\r\nHost: {h}\r\nX: a\x00b\r\n\r\n", 400),
        (b"\x16\x03\x01\x00", 400),
    ],
)
def test_malformed_http_is_answered_once_and_runs_nothing(
    serving: Serving, ca: trustme.CA, octets: bytes, status: int
) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        target = f"/.well-known/aiip/v1/{line.authority}/run".encode()
        octets = octets.replace(b"{t}", target).replace(b"{h}", line.authority.encode())
        with Line(line.authority, ca) as raw:
            if b"\r\n\r\n" in octets:
                octets = octets.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
            heard = raw.rest(octets + b"\r\n\r\n" * (b"\n\n" not in octets.replace(b"\r", b"")))
        assert heard.startswith(f"HTTP/1.1 {status}".encode())
        assert heard.count(b"HTTP/1.1 ") == 1
        assert resources.ran == 0
        assert line.ask("POST", "/run").body == b"1"


@pytest.mark.parametrize(
    "path",
    [
        "/a/../run", "/a/%2e%2e/run", "/..;x/run", "/a%2Frun", "/a%5Crun", "//run", "/%252e%252e/run",
        "/%c0%ae/run", "/run%00", "/ru%6E", "/run/", "/run?a=1&a=2", "/run?a=1&A=2", "/run?a=1;b=2",
        "/run?a=1+2", "/run?a=%0d%0aSet-Cookie:x", "/run?", "/run?'", "/run?a=%250d",
    ],
)  # fmt: skip
def test_paths_and_queries_with_two_meanings_are_refused(serving: Serving, path: str) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        head = line.head("POST", f"/.well-known/aiip/v1/{line.authority}{path}", b"", ("Connection", "close"))
        heard = line.rest(head)
    assert heard.startswith(b"HTTP/1.1 400")
    assert b"aiip-receipt" not in heard
    assert resources.ran == 0


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/.well-known/aiip/v1/other.example/run", "unknown-authority"),
        ("/.well-known/aiip/v1/_/run", "unknown-authority"),
        ("/.well-known/aiip/v1x/{a}/run", "endpoint-unknown"),
        ("/.well-known/aiip/v1/../v1/{a}/run", "malformed-uri"),
        ("/.well-known/aiip%2Fv1/{a}/run", "endpoint-unknown"),
        ("/.well-known/aiip/v1/user@{a}/run", "malformed-uri"),
        ("/.well-known/aiip/v1/FACTORY.test/run", "non-canonical-uri"),
    ],
)
def test_the_prefix_and_the_authority_are_exact(serving: Serving, target: str, code: str) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        heard = line.ask("POST", target.replace("{a}", line.authority), service=False)
    assert heard.json()["code"] == code
    assert resources.ran == 0


def test_another_spelling_is_told_with_the_canonical_one(serving: Serving) -> None:
    with serving(Resources().fill) as (_, line):
        assert line.ask("POST", "/ru%6E").json()["canonical"] == f"ai://{line.authority}/run"


def digest(name: str, body: bytes) -> str:
    return f"{name}=:{b64encode(hashlib.new(name.replace('-', ''), body).digest()).decode()}:"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (digest("sha-256", b"1"), ""),
        (digest("sha-512", b"1"), ""),
        (digest("sha-512", b"1") + ", md5=:AAAA:", ""),
        (digest("sha-256", b"2"), "bad-request"),
        (digest("sha-256", b"1") + ", " + digest("sha-512", b"2"), "bad-request"),
        ("md5=:AAAA:", "bad-request"),
        ("sha-256=:A", "bad-request"),
        ("sha-256=(1 2)", "bad-request"),
        ("", "bad-request"),
        ("\xff", "bad-request"),
    ],
)
def test_a_digest_that_is_there_must_hold(serving: Serving, value: str, code: str) -> None:
    with serving(Resources().fill) as (_, line):
        fields = ("Content-Digest", value), JSON
        assert code_of(line, *fields, body=b"1") == ("invalid-input" if code == "" else code)


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "x"])
def test_a_body_with_a_coding_is_refused(serving: Serving, coding: str) -> None:
    with serving(Resources().fill) as (_, line):
        heard = line.ask("POST", "/run", b"{}", ("Content-Encoding", coding), JSON)
        assert (heard.status, heard.json()["code"]) == (415, "unsupported-media-type")
        assert code_of(line, ("Content-Encoding", "identity"), JSON, body=b"{}") == ""


def test_bodies_have_a_size(serving: Serving, ca: trustme.CA) -> None:
    with serving(Resources().fill, limits=Limits(body=10)) as (_, line):
        assert code_of(line, JSON, body=b'{"data":1}') == ""
        heard = line.ask("POST", "/run", b'{"data":12}', JSON)
        assert (heard.status, heard.json()["code"]) == (413, "too-large")
        assert heard.receipt
        target = f"/.well-known/aiip/v1/{line.authority}/run"
        chunked = line.head("POST", target, b"", ("Transfer-Encoding", "chunked"), JSON)
        assert line.say(chunked + b'5\r\n{"dat\r\n8\r\na":1234}\r\n0\r\n\r\n').status == 413
    with serving(Resources().fill, limits=Limits(body=10)) as (_, line):
        target = f"/.well-known/aiip/v1/{line.authority}/run"
        # said to be huge, and never sent: refused at once
        head = line.head("POST", target, b"", ("Content-Length", str(10**15)))
        assert line.say(head).status == 413


def test_a_chunked_body_is_read(serving: Serving) -> None:
    with serving(Resources().fill) as (_, line):
        target = f"/.well-known/aiip/v1/{line.authority}/run"
        head = line.head("POST", target, b"", ("Transfer-Encoding", "chunked"), JSON)
        assert line.say(head + b"2\r\n{}\r\n0\r\n\r\n").body == b"1"


def test_deep_json_is_refused(serving: Serving) -> None:
    with serving(Resources().fill, limits=Limits(depth=5)) as (_, line):
        assert code_of(line, JSON, body=b'{"data":[[[[]]]]}') == ""
        assert code_of(line, JSON, body=b'{"data":[[[[[]]]]]}') == "too-large"
        assert code_of(line, JSON, body=b'{"data":["[[[[[[", "\\"[[[["]}') == ""
        assert code_of(line, JSON, body=b'{"data":[[],[],[],[],[],[]]}') == ""


def code_raised(work: Callable[[], object]) -> str | None:
    try:
        work()
    except AIIPError as error:
        return error.code
    return None


@given(st.binary(max_size=200), st.integers(1, 5))
def test_the_depth_of_anything_can_be_told(body: bytes, most: int) -> None:
    assert code_raised(lambda: validate_json_depth(body, most)) in {None, "aiip.too-large"}


@given(st.text(st.characters(max_codepoint=255), max_size=60), st.binary(max_size=20))
def test_any_digest_field_is_judged(value: str, body: bytes) -> None:
    assert code_raised(lambda: verify_content_digest(value, body)) in {None, "aiip.bad-request"}


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=5))
def test_any_head_is_judged(fields: list[tuple[bytes, bytes]]) -> None:
    scope = {"method": "POST", "raw_path": b"/", "query_string": b"", "headers": [(b"host", b"a"), *fields]}
    codes = {None, "aiip.bad-request", "aiip.unsupported-media-type"}
    assert code_raised(lambda: parse_request_head(scope, {"a"})) in codes


def test_a_length_that_is_no_number_is_refused() -> None:
    # the parser in front refuses it as well
    for value in (b"+1", b"1" * 19, b"", "²".encode("latin-1")):
        scope = {"headers": [(b"host", b"a"), (b"content-length", value)]}
        with pytest.raises(AIIPError):
            parse_request_head({"method": "POST", "raw_path": b"/", "query_string": b"", **scope}, {"a"})
    headers = [(b"host", b"a"), (b"content-length", b"1"), (b"transfer-encoding", b"chunked")]
    request = {"method": "POST", "raw_path": b"/", "query_string": b"", "headers": headers}
    with pytest.raises(AIIPError) as refusal:
        parse_request_head(request, {"a"})
    assert refusal.value.code == "aiip.bad-request"
    assert parse_request_head({**request, "headers": headers[:2]}, {"a"}).length == 1


def test_a_refusal_before_the_body_is_read_is_tied_to_the_digest_that_was_claimed(serving: Serving) -> None:
    import json

    from onym.sign.receipts import request_hash

    with serving(Resources().fill, limits=Limits(body=10)) as (_, line):
        body = b'{"data":"too large"}'
        heard = line.ask("POST", "/run", body, JSON, ("Content-Digest", content_digest(body)))
        payload = str(heard.receipt).split(".")[1]
        from base64 import urlsafe_b64decode

        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["rqh"] == request_hash(
        method="POST",
        target=f"ai://{line.authority}/run",
        digest=content_digest(body),
        content_type="application/json",
        idempotency_key=None,
    )


def test_slow_callers_are_cut_off_and_others_served(
    serving: Serving, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        target = f"/.well-known/aiip/v1/{line.authority}/run"
        with (
            monkeypatch.context() as short,
            Line(line.authority, ca) as head,
            Line(line.authority, ca) as body,
        ):
            for name in ("head_seconds", "body_seconds"):
                short.setattr(http_server.BoundedProtocol, name, 0.1)
            head.sock.sendall(b"POST / HT")
            body.sock.sendall(body.head("POST", target, b"12")[:-4] + b"\r\n\r\n1")
            assert head.rest() == b""
            assert body.rest() == b""
        with Line(line.authority, ca) as fresh:
            assert fresh.ask("POST", "/run").body == b"1"


def test_invocations_beyond_the_cap_are_told_to_come_later(serving: Serving, ca: trustme.CA) -> None:
    resources = Resources()
    with (
        serving(resources.fill, limits=Limits(concurrent=1)) as (_, line),
        Line(line.authority, ca) as other,
    ):
        line.sock.sendall(line.head("POST", f"/.well-known/aiip/v1/{line.authority}/wait", b""))
        assert resources.began.wait(PATIENCE)
        heard = other.ask("POST", "/run")
        assert (heard.status, heard.json()["code"], heard.get("retry-after")) == (503, "unavailable", "1")
        assert other.ask("GET", "/run").status == 200
        resources.go.set()
        while other.ask("POST", "/run").status == 503:
            pass
    assert resources.ran == 1


def test_an_invocation_has_its_time(serving: Serving) -> None:
    with serving(Resources().fill, limits=Limits(seconds=0.05, concurrent=1)) as (_, line):
        for _ in range(2):
            heard = line.ask("POST", "/asleep")
            assert (heard.status, heard.json()["code"]) == (504, "upstream-timeout")
            assert heard.receipt


def test_an_answer_beyond_its_cap_is_not_sent(serving: Serving) -> None:
    with serving(Resources().fill, limits=Limits(answer=1999)) as (_, line):
        assert line.ask("POST", "/large").status == 500


def test_a_stream_has_its_time(serving: Serving) -> None:
    with serving(Resources().fill, limits=Limits(stream_seconds=0.1)) as (_, line):
        heard = line.ask("POST", "/endless")
    assert b"event: problem" in heard.body
    assert b"upstream-timeout" in heard.body
    assert b"event: receipt" not in heard.body


def test_a_caller_that_goes_away_ends_the_stream(serving: Serving, ca: trustme.CA) -> None:
    resources = Resources()
    with serving(resources.fill, limits=Limits(concurrent=1)) as (_, line):
        with Line(line.authority, ca) as gone:
            gone.sock.sendall(gone.head("POST", f"/.well-known/aiip/v1/{line.authority}/endless", b""))
            assert resources.began.wait(PATIENCE)
            assert not resources.ended.is_set()
        assert resources.ended.wait(PATIENCE)
        while line.ask("POST", "/run").status == 503:
            pass


def test_a_caller_that_goes_away_before_its_body_leaves_nothing(serving: Serving, ca: trustme.CA) -> None:
    resources = Resources()
    with serving(resources.fill) as (_, line):
        with Line(line.authority, ca) as gone:
            head = gone.head("POST", f"/.well-known/aiip/v1/{line.authority}/run", b"12345")
            gone.sock.sendall(head + b"1")
        assert line.ask("POST", "/run").body == b"1"
