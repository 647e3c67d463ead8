"""One exchange, without a network: what goes out, and which answers count."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from onym.ai.exchange import Caller, RequestAttempt, StreamReader
from onym.ai.messages import decode_problem
from onym.ai.records import (
    ANONYMOUS_AUDIENCE,
    EVENTS,
    AnchorDocument,
    Invocation,
    Resolution,
    parse_media_type,
)
from onym.errors import AIIPError, InvocationError, ProvenanceError, SignatureError, UsageError
from onym.net.messages import ConnectionInfo, Headers, Reply
from onym.sign.keys import AuthorityKeys, SigningKey, read_authority_keys
from onym.sign.receipts import (
    Receipt,
    StreamChain,
    access_token_hash,
    content_digest,
    make_receipt_id,
    sign_receipt,
)
from onym.uri.ai import AIURI
from onym.uri.secret import Secret
from support import as_subtests

KEY = SigningKey.generate("Ed25519").with_thumbprint()
OTHER = SigningKey.generate("ES256").with_thumbprint()
ANCHOR = "https://factory.example"
SERVICE = f"{ANCHOR}/.well-known/aiip/v1"
TARGET = "ai://factory.example/agent/forklift-42?zone=A3"
JSON = "application/json"


def keys_of(*keys: SigningKey) -> AuthorityKeys:
    return read_authority_keys(json.dumps({"keys": [each.public() for each in keys]}).encode())


def resolution(uri: str = TARGET, **changes: Any) -> Resolution:
    document = AnchorDocument(
        anchor=ANCHOR, authority="factory.example", service=SERVICE, jwks=f"{ANCHOR}/jwks"
    )
    return replace(
        Resolution(uri=AIURI.parse(uri), authority="factory.example", document=document, keys=keys_of(KEY)),
        **changes,
    )


def asking(caller: Caller | None = None, **changes: Any) -> RequestAttempt:
    given: dict[str, Any] = {"uri": AIURI.parse(TARGET), "body": b'{"task":"load"}', "content_type": JSON}
    return RequestAttempt(Invocation(**{**given, **changes}), resolution(), caller or Caller(), 5.0)


def receipt_for(question: RequestAttempt, body: bytes, **changes: Any) -> Receipt:
    now = time.time()
    given: dict[str, Any] = {
        "issuer": ANCHOR,
        "subject": question.target,
        "audience": question.caller.audience,
        "issued": now,
        "expires": now + 120,
        "id": make_receipt_id(),
        "nonce": question.nonce,
        "request": question.request_hash,
        "status": 200,
        "content_type": JSON,
        "digest": content_digest(body),
        "length": len(body),
    }
    return Receipt(**{**given, **changes})


def reply(
    body: bytes, *tokens: str, status: int = 200, content_type: str | None = JSON, **more: str
) -> Reply:
    fields = [("AIIP-Receipt", each) for each in tokens] + list(more.items())
    if content_type is not None:
        fields.append(("Content-Type", content_type))
    return Reply(status, Headers(fields), body, None, ConnectionInfo("192.0.2.1"))


def never(identity: str, until: float) -> bool:
    return False


def header(question: RequestAttempt, name: str) -> Any:
    return dict(question.build_request().request.headers).get(name)


def test_a_request_goes_to_the_service_with_the_whole_uri_in_its_path() -> None:
    send = asking().build_request()
    assert str(send.request.origin) == "https://factory.example:443"
    assert send.request.target == "/.well-known/aiip/v1/factory.example/agent/forklift-42?zone=A3"
    assert send.request.method == "POST"
    assert send.timeout == 5.0


def test_each_question_has_a_nonce_of_its_own_and_asks_for_plain_content() -> None:
    first, second = asking(), asking()
    assert first.nonce != second.nonce
    assert len(first.nonce) >= 22
    assert header(first, "AIIP-Nonce") == first.nonce
    assert header(first, "Accept-Encoding") == "identity"


def test_a_body_goes_with_its_type_and_digest_and_a_bare_request_with_neither() -> None:
    full = asking()
    assert header(full, "Content-Type") == JSON
    assert header(full, "Content-Digest") == content_digest(b'{"task":"load"}')
    bare = asking(body=b"", content_type=None, method="GET")
    assert header(bare, "Content-Type") is None
    assert header(bare, "Content-Digest") is None


def test_a_token_goes_as_a_secret_and_the_receipt_is_made_out_to_its_client() -> None:
    caller = Caller(token=Secret("made-up-token"), client_id="client-1", origin="https://gw.example")
    question = asking(caller)
    sent = header(question, "Authorization")
    assert isinstance(sent, Secret)
    assert sent.reveal() == "Bearer made-up-token"
    assert "made-up" not in repr(question)
    assert caller.audience == "client-1"
    assert question.build_request().request.credential == "factory.example"
    body = b"{}"
    good = receipt_for(question, body, token_hash=access_token_hash("made-up-token"))
    assert question.verify_reply(
        reply(body, sign_receipt(good, KEY)), question.resolution.keys, time.time(), never
    ).receipt == replace(good, issued=good.issued, expires=good.expires)


def test_without_a_token_the_origin_or_the_word_anonymous_is_the_audience() -> None:
    assert Caller(origin="https://gw.example").audience == "https://gw.example"
    assert Caller().audience == ANONYMOUS_AUDIENCE
    assert header(asking(Caller(origin="https://gw.example")), "Origin") == "https://gw.example"


def test_an_idempotency_key_is_a_structured_string_and_bare_in_the_hash() -> None:
    with_key, without = asking(idempotency_key="k-1"), asking()
    assert header(with_key, "Idempotency-Key") == '"k-1"'
    assert with_key.request_hash != without.request_hash


@pytest.mark.parametrize("key", ["", 'a"b', "a\\b", "a b", "ä", "x" * 256, "a\nb"])
def test_an_idempotency_key_that_no_header_can_hold_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        asking(idempotency_key=key)


@pytest.mark.parametrize("name", ["Cookie", "authorization", "HOST", "AIIP-Nonce", "Content-Digest", "DPoP"])
def test_a_header_that_onym_makes_cannot_be_given(name: str) -> None:
    with pytest.raises(UsageError):
        asking(headers=((name, "x"),))
    assert header(asking(headers=(("traceparent", "00-1"),)), "traceparent") == "00-1"


def test_a_good_answer_is_released_with_its_receipt() -> None:
    question = asking()
    body = b'{"done":true}'
    token = sign_receipt(receipt_for(question, body), KEY)
    result = question.verify_reply(reply(body, token), question.resolution.keys, time.time(), never)
    assert result.json() == {"done": True}
    assert result.token == token
    assert result.receipt.issuer == ANCHOR
    assert not result.replayed
    assert "signature" in result.checks


def test_an_answer_given_again_says_so() -> None:
    question = asking(idempotency_key="k-1")
    token = sign_receipt(receipt_for(question, b"{}"), KEY)
    answer = reply(b"{}", token, **{"Idempotency-Replayed": "?1"})
    assert question.verify_reply(answer, question.resolution.keys, time.time(), never).replayed


WRONG: dict[str, dict[str, Any]] = {
    "issuer": {"issuer": "https://evil.example"},
    "resource": {"subject": "ai://factory.example/agent/other"},
    "audience": {"audience": "somebody-else"},
    "nonce": {"nonce": "A" * 32},
    "request": {"request": "A" * 43},
    "status": {"status": 201},
    "content type": {"content_type": "text/html"},
    "content": {"digest": content_digest(b"other")},
    "length": {"length": 3},
    "token": {"token_hash": "A" * 43},
}


@pytest.mark.requirement("ai-provenance-b")
@as_subtests("changes", WRONG.values(), ids=WRONG.keys())
def test_an_answer_for_another_question_is_refused(changes: dict[str, Any]) -> None:
    question = asking()
    body = b'{"done":true}'
    token = sign_receipt(receipt_for(question, body, **changes), KEY)
    with pytest.raises(ProvenanceError) as caught:
        question.verify_reply(reply(body, token), question.resolution.keys, time.time(), never)
    assert caught.value.code == "aiip.provenance-invalid"
    assert caught.value.target == "ai://factory.example/agent/forklift-42"


def test_an_answer_whose_octets_or_status_were_changed_on_the_way_is_refused() -> None:
    question = asking()
    body = b'{"amount":10}'
    token = sign_receipt(receipt_for(question, body), KEY)
    for answer in (
        reply(b'{"amount":11}', token),
        reply(body, token, status=201),
        reply(body, token, content_type="text/html"),
        reply(body, token, content_type=None),
        reply(b"", token),
    ):
        with pytest.raises(ProvenanceError):
            question.verify_reply(answer, question.resolution.keys, time.time(), never)


def test_a_receipt_that_was_seen_before_is_refused() -> None:
    question = asking()
    token = sign_receipt(receipt_for(question, b"{}"), KEY)
    with pytest.raises(ProvenanceError) as caught:
        question.verify_reply(reply(b"{}", token), question.resolution.keys, time.time(), lambda *_: True)
    assert caught.value.code == "aiip.provenance-stale"


def test_a_key_that_is_not_in_the_set_is_told_apart_so_that_the_set_can_be_fetched_again() -> None:
    question = asking()
    token = sign_receipt(receipt_for(question, b"{}"), OTHER)
    with pytest.raises(SignatureError) as caught:
        question.verify_reply(reply(b"{}", token), question.resolution.keys, time.time(), never)
    assert caught.value.code == "sign.unknown-key"


def test_success_without_a_receipt_and_two_receipts_are_refused() -> None:
    question = asking()
    with pytest.raises(ProvenanceError) as caught:
        question.verify_reply(reply(b"{}"), question.resolution.keys, time.time(), never)
    assert caught.value.code == "aiip.provenance-missing"
    token = sign_receipt(receipt_for(question, b"{}"), KEY)
    with pytest.raises(ProvenanceError):
        question.verify_reply(reply(b"{}", token, token), question.resolution.keys, time.time(), never)


@pytest.mark.parametrize("signed", [False, True])
def test_a_redirect_is_not_followed_signed_or_not(signed: bool) -> None:
    question = asking()
    tokens = [sign_receipt(receipt_for(question, b"", status=302), KEY)] if signed else []
    with pytest.raises(AIIPError) as caught:
        question.verify_reply(reply(b"", *tokens, status=302), question.resolution.keys, time.time(), never)
    assert caught.value.code == "aiip.upstream-redirect"


def test_an_unsigned_refusal_is_a_failure_that_nobody_vouches_for() -> None:
    question = asking()
    body = json.dumps(
        {"code": "insufficient-scope", "detail": "scope pay is missing", "status": 403}
    ).encode()
    answer = reply(body, status=403, content_type="application/problem+json")
    with pytest.raises(InvocationError) as caught:
        question.verify_reply(answer, question.resolution.keys, time.time(), never)
    error = caught.value
    assert (error.code, error.status, error.message) == (
        "aiip.insufficient-scope",
        403,
        "scope pay is missing",
    )
    assert "not signed" in (error.hint or "")
    assert error.problem is not None


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"x":"' + b"a" * 70_000 + b'"}']
)
def test_a_refusal_that_is_no_problem_document_still_has_its_status(body: bytes) -> None:
    error = decode_problem(500, "application/problem+json", body, "ai://a.example/x", signed=True)
    assert error.status == 500
    assert error.problem == {}
    assert error.code == "aiip.invocation-failed"


@as_subtests(
    ("code", "said", "again"),
    [
        ("upstream-timeout", None, True),
        ("upstream-timeout", True, True),
        ("upstream-timeout", False, False),  # under a key: a later try with another would be a second deed
        ("upstream-timeout", "false", True),
        ("internal", True, False),  # a stranger's word makes nobody repeat what has effects
        ("no-such-code", True, False),
        ("internal", None, False),
    ],
)
@pytest.mark.parametrize("signed", [True, False])
def test_a_problem_may_take_hope_of_a_later_try_and_never_give_it(
    code: str, said: object, again: bool, signed: bool
) -> None:
    body = json.dumps({"code": code} | ({} if said is None else {"retryable": said})).encode()
    error = decode_problem(504, "application/problem+json", body, "ai://a.example/x", signed=signed)
    assert error.retryable is again


def test_a_problem_of_another_type_is_not_read() -> None:
    error = decode_problem(500, "text/html", b'{"detail":"x"}', "ai://a.example/x", signed=True)
    assert error.problem == {}


def test_a_result_that_is_no_json_says_so() -> None:
    question = asking()
    result = question.verify_reply(
        reply(b"{", sign_receipt(receipt_for(question, b"{"), KEY)),
        question.resolution.keys,
        time.time(),
        never,
    )
    with pytest.raises(ProvenanceError):
        result.json()


@pytest.mark.parametrize(
    ("text", "yes"),
    [("text/event-stream", True), ("Text/Event-Stream; charset=utf-8", True), (JSON, False), (None, False)],
)
def test_events_are_told_by_their_media_type(text: str | None, yes: bool) -> None:
    assert (parse_media_type(text) == EVENTS) is yes


# streams

STREAM_EVENTS = (("1", "message", "one"), ("2", "message", "two"), ("3", "done", "x"))
EVENT_TYPE = "text/event-stream"


def wire(events: Any, token: str | None) -> bytes:
    text = "".join(f"id: {number}\nevent: {kind}\ndata: {data}\n\n" for number, kind, data in events)
    if token is not None:
        text += f"event: receipt\ndata: {token}\n\n"
    return text.encode()


def stream_token(question: RequestAttempt, events: Any = STREAM_EVENTS, key: SigningKey = KEY) -> str:
    chain = StreamChain(question.request_hash)
    for each in events:
        chain.add(*each)
    return sign_receipt(
        receipt_for(question, b"", content_type=EVENT_TYPE, digest=None, length=None, stream=chain.end),
        key,
    )


def read_stream(question: RequestAttempt, octets: bytes) -> Receipt:
    reader = StreamReader(question, 200, EVENT_TYPE)
    for at in range(0, len(octets), 7):
        reader.feed(octets[at : at + 7])
    return reader.verify_end(question.resolution.keys, time.time(), never)


def test_a_stream_holds_by_its_last_event() -> None:
    question = asking()
    assert read_stream(question, wire(STREAM_EVENTS, stream_token(question))).stream is not None


@pytest.mark.requirement("ai-provenance-b")
@pytest.mark.parametrize(
    "events",
    [
        STREAM_EVENTS[:2],
        STREAM_EVENTS[1:],
        (STREAM_EVENTS[1], STREAM_EVENTS[0], STREAM_EVENTS[2]),
        (*STREAM_EVENTS, ("4", "message", "more")),
        (("1", "message", "One"), *STREAM_EVENTS[1:]),
        (("1", "other", "one"), *STREAM_EVENTS[1:]),
        (("9", "message", "one"), *STREAM_EVENTS[1:]),
        (),
    ],
    ids=["cut", "begun late", "moved", "added", "changed", "retyped", "renumbered", "emptied"],
)
def test_a_stream_that_was_touched_is_refused(events: Any) -> None:
    question = asking()
    with pytest.raises(ProvenanceError):
        read_stream(question, wire(events, stream_token(question)))


def test_a_stream_without_receipt_or_that_goes_on_behind_it_is_refused() -> None:
    question = asking()
    with pytest.raises(ProvenanceError) as caught:
        read_stream(question, wire(STREAM_EVENTS, None))
    assert caught.value.code == "aiip.provenance-missing"
    with pytest.raises(ProvenanceError):
        read_stream(question, wire(STREAM_EVENTS, stream_token(question)) + wire(STREAM_EVENTS[:1], None))


def ended_by(octets: bytes) -> AIIPError:
    with pytest.raises(AIIPError) as caught:
        read_stream(asking(), wire(STREAM_EVENTS[:1], None) + octets)
    return caught.value


def test_why_a_stream_ended_is_told_as_nobody_signed_it() -> None:
    told = {"code": "upstream-timeout", "detail": "no sea today", "status": 504, "title": "Late"}
    error = ended_by(b"event: problem\ndata: " + json.dumps(told).encode() + b"\n\n")
    assert isinstance(error, InvocationError)
    assert (error.code, error.message, error.status) == ("aiip.upstream-timeout", "no sea today", 504)
    assert error.problem == told
    assert "not signed" in (error.hint or "")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"status": "x"}', b'{"status": 200}', b"[" * 70_000])
def test_a_problem_that_says_nothing_is_a_failure_too(data: bytes) -> None:
    error = ended_by(b"event: problem\ndata: " + data + b"\n\n")
    assert (error.code, error.message, error.status) == (
        "aiip.invocation-failed", "the endpoint failed", None
    )  # fmt: skip


def test_a_problem_that_is_not_the_last_event_is_no_reason() -> None:
    assert ended_by(b"event: problem\ndata: {}\n\ndata: x\n\n").code == "aiip.provenance-missing"


def test_an_event_that_is_called_problem_counts_where_the_receipt_is_for_it() -> None:
    question, events = asking(), (*STREAM_EVENTS, ("4", "problem", "x"))
    assert read_stream(question, wire(events, stream_token(question, events))).stream is not None


def test_the_receipt_of_another_stream_is_refused() -> None:
    question = asking()
    with pytest.raises(ProvenanceError):
        read_stream(question, wire(STREAM_EVENTS, stream_token(asking())))


@pytest.mark.parametrize(
    "fields",
    [
        {"Content-type": "text/html"},
        {"Content-Digest": "sha-256=:AAAA:"},
        {"content-digest": f"x=1, {content_digest(b'')}"},
    ],
)
def test_a_field_that_says_another_thing_than_the_receipt_is_refused(fields: dict[str, str]) -> None:
    question, body = asking(), b"{}"
    token = sign_receipt(receipt_for(question, body), KEY)
    with pytest.raises(ProvenanceError):
        question.verify_reply(reply(body, token, **fields), question.resolution.keys, time.time(), never)


def test_a_digest_that_agrees_with_the_receipt_is_no_hindrance() -> None:
    question, body = asking(), b"{}"
    token = sign_receipt(receipt_for(question, body), KEY)
    told = {"Content-Digest": f"sha-512=:AAAA:, {content_digest(body)}"}
    assert (
        question.verify_reply(reply(body, token, **told), question.resolution.keys, time.time(), never).body
        == body
    )
