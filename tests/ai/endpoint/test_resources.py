"""Functions as resources over real TLS: described, invoked, streamed; each answer signed for its request."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jwcrypto import jwk, jws  # type: ignore[import-untyped]

from ai_support import Heard, Line
from onym.ai.discovery_document import parse_discovery_document
from onym.ai.endpoint import Answer, Call, Endpoint, Limits, StreamEvent
from onym.ai.messages import CODES
from onym.errors import AIIPError, NetError, ProvenanceError
from onym.net.messages import SSEDecoder
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import Expected, StreamChain, content_digest, request_hash, verify_receipt

NONCE = "A" * 22
JSON = ("Content-Type", "application/json")
Serving = Callable[..., Any]


@dataclass
class Order:
    item: str
    count: int = 1


def fill(app: Endpoint) -> None:
    """All that is served here."""
    fill_results(app)
    fill_odd(app)
    fill_streams(app)


def fill_results(app: Endpoint) -> None:
    @app.resource("/tool/add", title="Adder")
    def add(a: int, b: int = 1) -> int:
        """Adds two numbers.

        The second may be left out.
        """
        return a + b

    @app.resource("/tool/order", scopes=["orders"])
    async def order(order: Order, note: str = "") -> Order:
        """Doubles an order"""
        return Order(order.item + note, order.count * 2)

    @app.resource("/tool/picture", media_type="image/png")
    def picture() -> bytes:
        return b"\x89PNG"

    @app.resource("/tool/octets")
    def octets() -> bytes:
        return b"\x00"

    @app.resource("/tool/text")
    def text(name: str) -> str:
        return f"hello {name}\n"


def fill_odd(app: Endpoint) -> None:
    @app.resource("/tool/nothing")
    def nothing() -> None:
        pass

    @app.resource("/tool/answer")
    def answer(call: Call) -> Answer:
        fields = (("ETag", '"x"'), ("Set-Cookie", "a=b"), ("X-Other", "y"))
        return Answer(status=201, content_type="text/plain", body=str(call.uri).encode(), headers=fields)

    @app.resource("/tool/fails")
    def fails(how: str) -> str:
        if how == "bug":
            raise RuntimeError("sekret")
        if how == "net":
            raise NetError("10.0.0.1 sekret")
        raise AIIPError("not today", code="aiip.unavailable", hint="come tomorrow")


def fill_streams(app: Endpoint) -> None:
    @app.resource("/tool/count")
    async def count(to: int) -> AsyncIterator[int]:
        for each in range(to):
            yield each

    @app.resource("/tool/lines")
    def lines(to: int) -> Iterator[str]:
        for each in range(to):
            yield f"line {each}\nü"

    @app.resource("/tool/named")
    async def named(bad: str = "") -> AsyncIterator[StreamEvent]:
        if bad == "first":
            raise AIIPError("nothing to stream", code="aiip.unavailable")
        yield StreamEvent(data="one\n\ntwo", event="chunk", id="x1")
        if bad == "later":
            raise RuntimeError("sekret")
        if bad:
            yield StreamEvent(data="x", event=bad)
        yield StreamEvent(data="")


def checked(line: Line, heard: Heard, method: str, target: str, body: bytes = b"", **more: Any) -> Any:
    """The receipt, verified with Onym against what was asked and heard."""
    keys = read_authority_keys(line.ask("GET", "/.well-known/aiip.jwks.json", service=False).body)
    given = {
        "content_type": None,
        "key": None,
        "audience": "anonymous",
        "stream": None,
        "token": None,
        **more,
    }
    uri = f"ai://{line.authority}{target}"
    expected = Expected(
        issuer=f"https://{line.authority}",
        subject=uri.partition("?")[0],
        audience=given["audience"],
        nonce=NONCE,
        request=request_hash(
            method=method,
            target=uri,
            digest=content_digest(body) if body else None,
            content_type=given["content_type"],
            idempotency_key=given["key"],
        ),
        status=heard.status,
        content_type=heard.get("content-type"),
        body=None if given["stream"] else heard.body,
        stream=given["stream"],
    )
    token = given["token"] or heard.receipt
    return verify_receipt(token, keys, expected, at=time.time(), seen=lambda *_: False)


def test_a_resource_describes_itself(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("GET", "/tool/add", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "GET", "/tool/add")
        told = heard.json()
    assert (heard.status, heard.get("content-type")) == (200, "application/aiip+json")
    assert heard.get("cache-control") == "private, no-store"
    assert told["uri"] == f"ai://{line.authority}/tool/add"
    assert (told["title"], told["description"]) == ("Adder", "The second may be left out.")
    assert told["methods"] == ["GET", "POST"]
    assert told["output"] == {"type": "integer"}
    assert (told["input"]["type"], told["input"]["required"]) == ("object", ["a"])
    assert (told["effects"], told["scopes"], told["idempotency"]) == ("read", [], False)
    assert (told["async"], told["approval"]) == (False, False)


def test_head_says_the_same_without_the_body_and_is_signed(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("HEAD", "/tool/add", b"", ("AIIP-Nonce", NONCE))
        whole = line.ask("GET", "/tool/add")
        assert heard.body == b""
        assert heard.get("content-length") == str(len(whole.body))
        assert checked(line, heard, "HEAD", "/tool/add").length == 0
    assert whole.get("cache-control") == "private, max-age=60"


def test_options_tells_the_methods(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("OPTIONS", "/tool/add", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "OPTIONS", "/tool/add")
    assert (heard.status, heard.body, heard.get("content-type")) == (204, b"", None)
    assert heard.get("allow") == "GET, HEAD, OPTIONS, POST"
    assert heard.get("accept-post") == "application/json"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("claimed", [True, False])
def test_other_methods_are_refused_as_such_with_a_body_too(
    serving: Serving, method: str, claimed: bool
) -> None:
    digest = [("Content-Digest", content_digest(b"{}"))] if claimed else []
    with serving(fill) as (_, line):
        heard = line.ask(method, "/tool/add", b"{}", ("AIIP-Nonce", NONCE), *digest)
        assert (heard.status, heard.json()["code"]) == (405, "method-not-allowed")
        assert heard.get("allow") == "GET, HEAD, OPTIONS, POST"
        if claimed:  # the receipt is tied to the digest that the head claims
            checked(line, heard, method, "/tool/add", b"{}")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused_signed(serving: Serving, method: str) -> None:
    with serving(fill) as (_, line):
        heard = line.ask(method, "/tool/add", b"", ("AIIP-Nonce", NONCE), ("X-HTTP-Method-Override", "POST"))
        checked(line, heard, method, "/tool/add")
    assert (heard.status, heard.json()["code"]) == (405, "method-not-allowed")
    assert heard.get("allow") == "GET, HEAD, OPTIONS, POST"


def test_a_description_takes_no_body(serving: Serving) -> None:
    with serving(fill) as (_, line):
        assert line.ask("GET", "/tool/add", b"{}").json()["code"] == "bad-request"


@pytest.mark.parametrize(
    ("target", "body", "type_", "answer"),
    [
        ("/tool/add?a=1&b=2", b"", "application/json", b"3"),
        ("/tool/add", b'{"a":1}', "application/json", b"2"),
        ("/tool/add?b=5", b'{"a":1}', "application/json", b"6"),
        ("/tool/order", b'{"order":{"item":"x"},"note":"!"}', "application/json", b'{"item":"x!","count":2}'),
        ("/tool/picture", b"", "image/png", b"\x89PNG"),
        ("/tool/octets", b"", "application/octet-stream", b"\x00"),
        ("/tool/text?name=%C3%BC", b"", "text/plain; charset=utf-8", "hello ü\n".encode()),
        ("/tool/nothing", b"", None, b""),
    ],
)
def test_a_function_is_invoked_and_its_result_signed(
    serving: Serving, target: str, body: bytes, type_: str | None, answer: bytes
) -> None:
    with serving(fill) as (_, line):
        fields = [JSON] if body else []
        heard = line.ask("POST", target, body, ("AIIP-Nonce", NONCE), *fields)
        receipt = checked(line, heard, "POST", target, body, content_type=fields[0][1] if fields else None)
    assert heard.status == (204 if type_ is None else 200)
    assert (heard.get("content-type"), heard.body) == (type_, answer)
    assert heard.get("cache-control") == "private, no-store, no-transform"
    assert heard.get("x-content-type-options") == "nosniff"
    assert receipt.expires - receipt.issued == 120


def test_one_byte_of_difference_breaks_the_receipt(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/add?a=1", b"", ("AIIP-Nonce", NONCE))
        for changed in (
            Heard(heard.status, heard.fields, b"3"),
            Heard(201, heard.fields, heard.body),
            Heard(heard.status, (("content-type", "text/html"), *heard.fields), heard.body),
        ):
            with pytest.raises(ProvenanceError):
                checked(line, changed, "POST", "/tool/add?a=1")
        with pytest.raises(ProvenanceError):
            checked(line, heard, "POST", "/tool/add?a=2")


@pytest.mark.requirement("ai-provenance-a", "ai-provenance-d")
def test_an_independent_library_verifies_the_receipt(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/add?a=1", b"", ("AIIP-Nonce", NONCE))
        published = line.ask("GET", "/.well-known/aiip.jwks.json", service=False).json()
    found = jws.JWS()
    found.allowed_algs = ["Ed25519", "EdDSA"]
    found.deserialize(heard.receipt)
    header = json.loads(found.objects["protected"])
    assert header == {"typ": "aiip-receipt+jwt", "alg": "Ed25519", "kid": header["kid"]}
    key = next(each for each in published["keys"] if each["kid"] == header["kid"])
    imported = jwk.JWK(**{name: key[name] for name in ("kty", "crv", "x")})
    assert imported.thumbprint() == header["kid"]
    found.verify(imported)
    claims = json.loads(found.payload)
    assert claims["res"] == {
        "st": 200,
        "ct": "application/json",
        "cd": content_digest(heard.body),
        "len": len(heard.body),
    }
    assert (claims["nonce"], claims["aud"]) == (NONCE, "anonymous")


def test_an_origin_is_the_audience_of_a_caller_without_a_token(serving: Serving) -> None:
    with serving(fill) as (_, line):
        origin = ("Origin", "https://gateway.example")
        heard = line.ask("POST", "/tool/add?a=1", b"", ("AIIP-Nonce", NONCE), origin)
        checked(line, heard, "POST", "/tool/add?a=1", audience="https://gateway.example")


def test_two_receipts_are_never_the_same(serving: Serving) -> None:
    with serving(fill) as (_, line):
        tokens = {line.ask("POST", "/tool/add?a=1", b"", ("AIIP-Nonce", NONCE)).receipt for _ in range(3)}
    assert len(tokens) == 3


@pytest.mark.parametrize(
    ("target", "body", "where"),
    [
        ("/tool/add", b'{"a":"1"}', "$.a"),
        ("/tool/add?a=x", b"", "$.a"),
        ("/tool/add?a=1", b'{"a":1}', "$.a"),
        ("/tool/add?a=1&c=2", b"", "`c`"),
        ("/tool/add?a=1", b"[]", "object"),
        ("/tool/add", b'{"a":1,"c":2}', "`c`"),
        ("/tool/add", b"{}", "`a`"),
        ("/tool/add", b"{", "not JSON"),
        ("/tool/order", b'{"note":"\xff"}', "not UTF-8"),
        ("/tool/order", b'{"order":{"item":"x","count":"2"}}', "$.order.count"),
    ],
)
def test_input_that_does_not_fit_runs_nothing_and_names_the_member(
    serving: Serving, target: str, body: bytes, where: str
) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", target, body, ("AIIP-Nonce", NONCE), JSON)
        checked(line, heard, "POST", target, body, content_type=JSON[1])
    assert (heard.status, heard.json()["code"]) == (422, "invalid-input")
    assert where in heard.json()["detail"]


def test_a_number_that_is_none_is_refused(serving: Serving) -> None:
    def more(app: Endpoint) -> None:
        @app.resource("/f")
        def f(x: float) -> float:
            return x

    with serving(more) as (_, line):
        assert line.ask("POST", "/f?x=1.5").body == b"1.5"
        for text in ("nan", "inf", "-inf"):
            assert line.ask("POST", f"/f?x={text}").status == 422


def test_another_media_type_is_refused(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/add", b"a=1", ("Content-Type", "application/x-www-form-urlencoded"))
    assert (heard.status, heard.json()["code"]) == (415, "unsupported-media-type")
    assert heard.receipt


def test_a_function_may_see_the_call_and_shape_the_answer(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/answer", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "POST", "/tool/answer")
    assert (heard.status, heard.body) == (201, f"ai://{line.authority}/tool/answer".encode())
    assert heard.get("etag") == '"x"'
    assert heard.get("set-cookie") is heard.get("x-other") is None


@pytest.mark.parametrize(
    ("how", "status", "code", "detail"),
    [
        ("bug", 500, "internal", CODES["internal"].title),
        ("net", 502, "upstream-unreachable", CODES["upstream-unreachable"].title),
        ("told", 503, "unavailable", "not today (come tomorrow)"),
    ],
)
def test_a_failure_is_a_signed_problem_that_tells_no_secrets(
    serving: Serving, caplog: pytest.LogCaptureFixture, how: str, status: int, code: str, detail: str
) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", f"/tool/fails?how={how}", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "POST", f"/tool/fails?how={how}")
    problem = heard.json()
    assert (heard.status, problem["status"], problem["code"]) == (status, status, code)
    assert heard.get("content-type") == "application/problem+json"
    assert problem["detail"] == detail
    assert problem["target"] == f"ai://{line.authority}/tool/fails"
    assert b"sekret" not in heard.body
    assert problem["instance"].removeprefix("urn:uuid:") in caplog.text
    assert heard.get("retry-after") == (None if how == "bug" else "1")


@pytest.mark.requirement("ai-provenance-a")
def test_what_is_not_there_is_a_signed_404(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/none", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "POST", "/tool/none")
    assert (heard.status, heard.json()["code"]) == (404, "endpoint-unknown")


def events_of(line: Line, heard: Heard, target: str) -> list[tuple[str, str, str]]:
    """The events of a stream whose receipt holds."""
    events = SSEDecoder().feed(heard.body)
    chain = StreamChain(
        request_hash(
            method="POST",
            target=f"ai://{line.authority}{target}",
            digest=None,
            content_type=None,
            idempotency_key=None,
        )
    )
    for each in events[:-1]:
        chain.add(each.id, each.event, each.data)
    assert events[-1].event == "receipt"
    checked(line, heard, "POST", target, stream=chain.end, token=events[-1].data)
    return [(each.id, each.event, each.data) for each in events[:-1]]


@pytest.mark.parametrize(
    ("target", "events"),
    [
        ("/tool/count?to=3", [("1", "message", "0"), ("2", "message", "1"), ("3", "message", "2")]),
        ("/tool/count?to=0", []),
        ("/tool/lines?to=1", [("1", "message", '"line 0\\nü"')]),
        ("/tool/named", [("x1", "chunk", "one\n\ntwo"), ("2", "message", "")]),
    ],
)
def test_a_generator_answers_with_events_that_a_receipt_ends(
    serving: Serving, target: str, events: list[tuple[str, str, str]]
) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", target, b"", ("AIIP-Nonce", NONCE))
        assert events_of(line, heard, target) == events
    assert heard.get("content-type") == "text/event-stream"
    assert heard.receipt is None


def test_a_stream_that_fails_before_its_first_event_is_a_problem(serving: Serving) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", "/tool/named?bad=first", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "POST", "/tool/named?bad=first")
    assert (heard.status, heard.json()["code"]) == (503, "unavailable")


@pytest.mark.parametrize("bad", ["later", "receipt", "problem"])
def test_a_stream_that_breaks_has_no_receipt(serving: Serving, bad: str) -> None:
    with serving(fill) as (_, line):
        heard = line.ask("POST", f"/tool/named?bad={bad}", b"", ("AIIP-Nonce", NONCE))
        events = SSEDecoder().feed(heard.body)
        assert line.ask("POST", "/tool/add?a=1").body == b"2"
    assert [each.event for each in events] == ["chunk", "problem"]
    assert json.loads(events[-1].data)["code"] == "internal"
    assert b"sekret" not in heard.body


@pytest.mark.parametrize("limits", [Limits(stream_events=2), Limits(stream_bytes=30), Limits(event_bytes=10)])
def test_a_stream_beyond_its_limits_has_no_receipt(serving: Serving, limits: Limits) -> None:
    with serving(fill, limits=limits) as (_, line):
        heard = line.ask("POST", "/tool/count?to=200", b"", ("AIIP-Nonce", NONCE))
    *_, last = SSEDecoder().feed(heard.body)
    assert (last.event, json.loads(last.data)["code"]) == ("problem", "too-large")


@pytest.mark.requirement("ai-discovery-c")
def test_the_anchor_document_lists_what_is_served(serving: Serving) -> None:
    with serving(fill, origins=["https://www.factory.test"], pin_max_age=600) as (_, line):
        heard = line.ask("GET", "/.well-known/aiip", service=False)
        document = parse_discovery_document(
            heard.body, anchor=f"https://{line.authority}", authority=line.authority
        )
    assert len(document.endpoints) == 11
    assert document.scopes == ("orders",)
    assert document.service == f"https://{line.authority}/.well-known/aiip/v1"
    assert document.jwks == f"https://{line.authority}/.well-known/aiip.jwks.json"
    assert (document.origins, document.pin_max_age) == (("https://www.factory.test",), 600)
    assert heard.get("cache-control") == "public, max-age=300"


def test_other_documents_of_the_anchor(serving: Serving) -> None:
    with serving(fill) as (_, line):
        said = line.ask("POST", "/tool/none").json()["type"].removeprefix(f"https://{line.authority}")
        assert line.ask("GET", said, service=False).body.startswith(b"endpoint-unknown: ")
        assert line.ask("HEAD", said, service=False).body == b""
        history = line.ask("GET", "/.well-known/aiip.jwks.json?history", service=False)
        assert history.json()["keys"]
        for target in (
            "/.well-known/aiip?x",
            "/.well-known/aiip/",
            "/.well-known/aiip.jwks.json?other",
            "/.well-known/oauth-protected-resource/.well-known/aiip/v1",
            "/.well-known/aiip/problems/none",
            "/",
        ):
            assert line.ask("GET", target, service=False).json()["code"] == "endpoint-unknown"
        refused = line.ask("POST", "/.well-known/aiip", service=False)
    assert (refused.status, refused.get("allow")) == (405, "GET, HEAD")


def test_keys_that_cannot_sign_are_told_before_anything_runs(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.sign.keystore._LOOKUP_SECONDS", 0.0)  # at once, and not within 50 ms
    ran = []

    def more(app: Endpoint) -> None:
        @app.resource("/run")
        def run() -> int:
            ran.append(1)
            return 1

    with serving(more) as (_, line):
        for each in tmp_path.glob("*/keys/*.json"):
            each.unlink()
        heard = line.ask("POST", "/run", b"", ("AIIP-Nonce", NONCE))
    assert (heard.status, heard.json()["code"]) == (501, "receipt-unavailable")
    assert heard.receipt is None
    assert ran == []
    assert "keys" not in heard.json()["detail"]


@pytest.mark.requirement("ai-provenance-e")
def test_keys_may_change_while_requests_are_under_way(serving: Serving, tmp_path: Path) -> None:
    from onym.sign.keystore import KeyStore

    class Moving:
        now = time.time()

    keys = KeyStore(tmp_path / "rotating")
    keys.new(at=Moving.now)

    def more(app: Endpoint) -> None:
        @app.resource("/rotate")
        def rotate() -> str:
            """Changes the key between the check before it runs and the signature behind it."""
            at = time.time()
            return keys.revoke(str(keys.signer(at).kid), at)

    with serving(more, keys=keys) as (_, line):
        heard = line.ask("POST", "/rotate", b"", ("AIIP-Nonce", NONCE))
        receipt = checked(line, heard, "POST", "/rotate")
        assert heard.body.decode() == keys.signer(time.time()).kid
        published = line.ask("GET", "/.well-known/aiip.jwks.json", service=False).json()
    assert receipt.status == 200
    assert len(published["revoked"]) == 1


def test_a_plain_signer_will_do(serving: Serving) -> None:
    from onym.sign.keys import SigningKey

    key = SigningKey.generate("ES256").with_thumbprint()
    with serving(fill, keys=key) as (_, line):
        heard = line.ask("POST", "/tool/add?a=1", b"", ("AIIP-Nonce", NONCE))
        checked(line, heard, "POST", "/tool/add?a=1")
        assert line.ask("GET", "/.well-known/aiip.jwks.json?history", service=False).json()["keys"]


def test_the_log_of_refusals_says_nothing_of_callers_faults(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "onym.ai.endpoint")
    with serving(fill) as (_, line):
        line.ask("POST", "/tool/add?a=x")
    assert caplog.records == []
