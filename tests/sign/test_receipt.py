"""Receipts: what is signed, in which order it is verified, that nothing may differ (AIIP/HTTPS v1 3.8)."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onym.common.text import encode_base64url
from onym.errors import ProvenanceError, SignatureError, UsageError
from onym.sign.keys import RECEIPT_ALGORITHMS, SigningKey, decode_base64url, get_jws_model
from onym.sign.receipts import (
    GATEWAY,
    MAX_RECEIPT,
    ApprovalReference,
    Receipt,
    StreamChain,
    StreamEnd,
    access_token_hash,
    content_digest,
    decode_claims,
    get_kid,
    make_receipt_id,
    request_hash,
    sign_receipt,
    verify_filed,
)
from sign_support import (
    BODY,
    EXPECTED,
    NOW,
    RECEIPT,
    authority,
    b64,
    claims,
    clause,
    code,
    forged,
    header,
    key,
    refusal,
    verified,
)
from support import as_subtests

TOKEN = sign_receipt(RECEIPT, key())
ALL = tuple(RECEIPT_ALGORITHMS)


# what is written


def test_the_header_has_three_members_and_the_claims_are_those_of_the_table() -> None:
    head, payload, _ = TOKEN.split(".")
    assert json.loads(decode_base64url(head, "header")) == {
        "alg": "Ed25519",
        "kid": key().kid,
        "typ": "aiip-receipt+jwt",
    }
    assert json.loads(decode_base64url(payload, "payload")) == {
        "iss": "https://bank.example",
        "sub": "ai://bank.example/payments",
        "aud": "https://app.example",
        "iat": 1_760_000_000,
        "exp": 1_760_000_120,
        "jti": RECEIPT.id,
        "nonce": RECEIPT.nonce,
        "rqh": RECEIPT.request,
        "res": {"st": 200, "ct": "application/json", "cd": RECEIPT.digest, "len": 30},
    }


def test_whole_seconds_are_written_without_a_fraction_and_others_with_it() -> None:
    token = sign_receipt(replace(RECEIPT, issued=NOW + 0.25), key())
    assert b'"iat":1760000000.25,"exp":1760000120,' in decode_base64url(token.split(".")[1], "payload")


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=60),
    st.floats(NOW - 1e6, NOW, allow_nan=False).map(lambda at: round(at, 3)),
)
def test_the_payload_is_the_json_that_python_writes(audience: str, issued: float) -> None:
    receipt = replace(RECEIPT, audience=audience, content_type=audience, issued=issued, expires=issued + 120)
    payload = decode_base64url(sign_receipt(receipt, key()).split(".")[1], "payload")
    claims = json.loads(payload)
    assert payload == json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode()
    assert decode_claims(claims, receipt.kind) == receipt


def test_an_ed25519_signature_is_that_of_the_library() -> None:
    signer = key("Ed25519")
    model = get_jws_model("Ed25519")
    assert signer.sign(b"content") == bytes(model.sign(b"content", signer.native))
    assert "_sign" not in repr(signer)


def test_a_receipt_with_every_claim_is_read_as_it_was_written() -> None:
    full = replace(
        RECEIPT,
        token_hash=access_token_hash("token"),
        task="task-1",
        original=RECEIPT.request,
        policy="policy-7",
        approval=ApprovalReference(hash=RECEIPT.request, issuer="https://gateway.example", by=("ann",)),
        upstream=encode_base64url(sha256(b"x").digest()),
    )
    expected = replace(EXPECTED, token_hash=full.token_hash, task="task-1", original=RECEIPT.request)
    token = sign_receipt(full, key())
    assert verified(token, expected=expected) == full
    assert len(token) < 1200


def test_a_receipt_takes_less_than_the_header_buffers_of_proxies() -> None:
    assert len(TOKEN) < 769


@pytest.mark.parametrize("algorithm", ALL)
def test_every_algorithm_signs_and_verifies(algorithm: str) -> None:
    token = sign_receipt(RECEIPT, key(algorithm))
    assert verified(token, authority(key(algorithm)), algorithms=ALL) == RECEIPT
    assert get_kid(token) == key(algorithm).kid


def test_a_gateways_receipt_is_of_another_type_and_may_be_without_nonce() -> None:
    gateway = replace(
        RECEIPT, kind=GATEWAY, nonce=None, upstream=encode_base64url(sha256(TOKEN.encode()).digest())
    )
    token = sign_receipt(gateway, key())
    assert verify_filed(token, authority(), kind=GATEWAY) == gateway
    assert code(token) == "aiip.provenance-invalid"
    with pytest.raises(ProvenanceError):
        verify_filed(TOKEN, authority(), kind=GATEWAY)


@as_subtests(
    "change",
    [
        {"issuer": ""},
        {"issuer": "https://b\u00e4nk.example"},
        {"subject": "ai://bank.example/payments?amount=10"},
        {"subject": "https://bank.example/"},
        {"audience": "a\nb"},
        {"expires": NOW + 301},
        {"expires": NOW},
        {"issued": float("nan")},
        {"issued": -1.0, "expires": 1.0},
        {"id": "short"},
        {"nonce": "short"},
        {"request": "x"},
        {"status": 99},
        {"status": True},
        {"content_type": "text/plain\r\nX: y"},
        {"digest": "sha-256=:AAAA:"},
        {"digest": None},
        {"length": None},
        {"length": -1},
        {"stream": StreamEnd(1, content_digest(b""))},
        {"digest": None, "length": None},
        {"task": "a b"},
    ],
)
def test_what_nobody_would_accept_is_not_signed(change: dict[str, Any]) -> None:
    with pytest.raises(SignatureError) as caught:
        sign_receipt(replace(RECEIPT, **change), key())
    assert caught.value.code == "sign.bad-claim"


def test_a_receipt_that_is_too_large_for_a_header_is_not_signed() -> None:
    long = replace(RECEIPT, subject="ai://bank.example/" + "a" * 2000, audience="b" * 1000)
    with pytest.raises(SignatureError) as caught:
        sign_receipt(long, key())
    assert caught.value.code == "sign.too-large"


def test_a_key_without_a_kid_signs_no_receipt() -> None:
    with pytest.raises(SignatureError, match="kid") as caught:
        sign_receipt(RECEIPT, SigningKey.generate("Ed25519"))
    assert caught.value.code == "sign.bad-key"


def test_ids_have_128_bits_and_differ() -> None:
    assert len(decode_base64url(make_receipt_id(), "id")) == 16
    assert make_receipt_id() != make_receipt_id()


# the hashes


def test_the_request_hash_is_over_six_lines() -> None:
    target = "ai://bank.example/payments?amount=10&currency=USD"
    found = request_hash(
        method="POST",
        target=target,
        digest=content_digest(b"{}"),
        content_type="application/json",
        idempotency_key="k-1",
    )
    lines = f"aiip-req-v1\nPOST\n{target}\n{content_digest(b'{}')}\napplication/json\nk-1"
    assert found == encode_base64url(sha256(lines.encode()).digest())
    bare = request_hash(method="GET", target=target, digest=None, content_type=None, idempotency_key=None)
    assert bare == encode_base64url(sha256(f"aiip-req-v1\nGET\n{target}\n-\n-\n-".encode()).digest())


@as_subtests("name", ["method", "target", "digest", "content_type", "idempotency_key"])
@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\u00e4"])
def test_a_part_of_a_request_is_one_line_of_ascii(name: str, value: str) -> None:
    parts: dict[str, Any] = {
        "method": "POST", "target": "ai://a.example/", "digest": None, "content_type": None,
        "idempotency_key": None,
    }  # fmt: skip
    with pytest.raises(SignatureError) as caught:
        request_hash(**{**parts, name: value})
    assert caught.value.code == "sign.bad-request"


_PART = st.none() | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)


@given(st.tuples(_PART, _PART, _PART), st.tuples(_PART, _PART, _PART))
def test_two_requests_have_one_hash_only_if_they_are_the_same(
    one: tuple[str | None, ...], two: tuple[str | None, ...]
) -> None:
    def hashed(parts: tuple[str | None, ...]) -> str:
        digest, content_type, idempotency_key = (None if each == "-" else each for each in parts)
        return request_hash(
            method="POST",
            target="ai://a.example/",
            digest=digest,
            content_type=content_type,
            idempotency_key=idempotency_key,
        )

    same = [None if each == "-" else each for each in one] == [None if each == "-" else each for each in two]
    assert (hashed(one) == hashed(two)) is same


def test_the_content_digest_is_that_of_rfc_9530() -> None:
    # RFC 9530, appendix B.1
    assert content_digest(b'{"hello": "world"}\n') == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
    assert content_digest(b"") == f"sha-256=:{b64encode(sha256(b'').digest()).decode()}:"


@pytest.mark.requirement("ai-privacy-e")
def test_the_hash_of_an_access_token_is_that_of_rfc_9449() -> None:
    # RFC 9449, 7.1
    token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
    assert access_token_hash(token) == "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"


# the order of verification


def test_no_receipt_is_a_failure_of_its_own() -> None:
    for nothing in (None, ""):
        assert code(nothing) == "aiip.provenance-missing"


@as_subtests(
    ("token", "step"),
    [
        ("a.b", "1"),
        ("a.b.c.d", "1"),
        ("x" * (MAX_RECEIPT + 1), "1"),
        (TOKEN + "=", "1"),
        (TOKEN.replace(".", " .", 1), "1"),
        (forged(b'{"alg":"none","alg":"Ed25519"}'), "2"),
        (forged(b"[1]"), "2"),
        (forged(header(jku="https://evil.example/")), "3"),
        (forged(header(typ="JWT")), "3"),
        (forged(header(alg="none")), "3"),
        (forged(header(kid=None)), "3"),
        (forged(header(kid=7)), "3"),
        (forged(header(alg="ES256")), "4"),
        (forged(signature=b"\0" * 64), "5"),
        (forged(payload=b'{"iss":1,"iss":2}'), "6"),
        (forged(payload=claims(iss="https://evil.example")), "6 (iss)"),
        (forged(payload=claims(sub="ai://bank.example/other")), "6 (sub)"),
        (forged(payload=claims(aud="https://evil.example")), "6 (aud)"),
        (forged(payload=claims(nonce="b" * 22)), "6 (nonce)"),
        (forged(payload=claims(nonce=None)), "6 (nonce)"),
        (forged(payload=claims(rqh="A" * 43)), "6 (rqh)"),
        (forged(payload=claims(ath="A" * 43)), "6 (ath)"),
        (forged(payload=claims(tsk="t")), "6 (tsk)"),
        (forged(payload=claims(orq="A" * 43)), "6 (orq)"),
        (forged(payload=claims(iat=NOW - 61)), "6 (iat)"),
        (forged(payload=claims(iat=NOW - 50, exp=NOW)), "6 (exp)"),
        (forged(payload=claims(res={**claims()["res"], "st": 201})), "7 (res.st)"),
        (forged(payload=claims(res={**claims()["res"], "ct": "text/html"})), "7 (res.ct)"),
        (forged(payload=claims(res={**claims()["res"], "len": 31})), "7 (res.len)"),
        (forged(payload=claims(res={**claims()["res"], "cd": content_digest(b"")})), "7 (res.cd)"),
    ],
)
def test_the_step_that_refuses_is_in_the_clause(token: str, step: str) -> None:
    assert clause(token) == step


def test_the_reason_is_in_the_cause_and_not_in_what_strangers_see() -> None:
    for token in (TOKEN[:-4], forged(payload=claims(aud="https://evil.example"))):
        error = refusal(token)
        assert error.as_dict().keys() == {"code", "message", "clause"}
        assert error.code == "aiip.provenance-invalid"
        assert isinstance(error.__cause__, SignatureError)
    assert "aud: " in str(error.__cause__)


def test_an_unknown_key_is_told_apart_so_that_a_caller_may_fetch_the_set_again() -> None:
    error = refusal(sign_receipt(RECEIPT, key(number=1)))
    assert (type(error), error.code) == (SignatureError, "sign.unknown-key")


def test_a_revoked_key_is_not_fetched_again() -> None:
    assert clause(TOKEN, authority(revoked=[key().kid])) == "4"


def test_of_a_key_out_of_its_time_the_copy_may_be_too_old() -> None:
    """Where its predecessor is revoked, a key signs before the time that the older copy names."""
    for times in ({"nbf": NOW + 61}, {"exp": NOW - 61}):
        error = refusal(TOKEN, authority({**key().public(), **times}))
        assert (type(error), error.code) == (SignatureError, "sign.unknown-key")
    for times in ({"nbf": NOW + 60}, {"exp": NOW - 60}, {"nbf": NOW - 9, "exp": NOW + 9}):
        assert verified(TOKEN, authority({**key().public(), **times}))


def test_the_clock_may_be_off_by_a_minute_and_no_more() -> None:
    assert verified(TOKEN, at=NOW - 60)
    assert verified(TOKEN, at=NOW + 60)
    for at in (NOW - 60.5, NOW + 60.5):
        assert code(TOKEN, at=at) == "aiip.provenance-stale"
    for no_time in (float("nan"), float("inf")):
        assert refusal(TOKEN, at=no_time)


def test_a_receipt_ends_when_it_says_so() -> None:
    short = sign_receipt(replace(RECEIPT, expires=NOW + 20), key())
    assert verified(short, at=NOW + 19.999)
    assert (code(short, at=NOW + 20), clause(short, at=NOW + 20)) == ("aiip.provenance-stale", "6 (exp)")


def test_a_receipt_that_was_seen_is_stale_and_its_id_is_kept_as_long_as_it_could_count() -> None:
    seen: dict[str, float] = {}

    def was_seen(identity: str, until: float) -> bool:
        known = identity in seen
        seen[identity] = until
        return known

    assert verified(TOKEN, seen=was_seen)
    assert seen == {f"{key().kid}.{RECEIPT.id}": RECEIPT.expires + 60}
    assert clause(TOKEN, seen=was_seen) == "6 (jti)"
    assert code(TOKEN, seen=was_seen) == "aiip.provenance-stale"


def test_an_id_is_recorded_only_once_signature_claims_and_time_hold() -> None:
    def never(identity: str, until: float) -> bool:
        raise AssertionError(identity)

    head, _, signature = TOKEN.rpartition(".")
    other = "B" if signature.startswith("A") else "A"
    assert code(f"{head}.{other}{signature[1:]}", seen=never)
    assert code(TOKEN, seen=never, audience="somebody")
    assert code(TOKEN, seen=never, at=NOW + 100)


def test_without_an_access_token_a_receipt_is_of_none_and_with_one_of_that_one() -> None:
    token_hash = access_token_hash("token")
    bound = sign_receipt(replace(RECEIPT, token_hash=token_hash), key())
    assert verified(bound, expected=replace(EXPECTED, token_hash=token_hash)).token_hash == token_hash
    assert clause(bound) == "6 (ath)"
    assert clause(TOKEN, token_hash=token_hash) == "6 (ath)"


def test_an_answer_without_content_type_is_bound_too() -> None:
    bare = replace(RECEIPT, status=204, content_type=None, digest=content_digest(b""), length=0)
    token = sign_receipt(bare, key())
    assert verified(token, expected=replace(EXPECTED, status=204, content_type=None, body=b"")) == bare
    assert clause(token, status=204, body=b"") == "7 (res.ct)"


def test_a_receipt_is_verified_against_a_body_or_a_stream() -> None:
    for change in ({"body": None}, {"stream": StreamEnd(0, "")}):
        with pytest.raises(UsageError):
            verified(TOKEN, expected=replace(EXPECTED, **change))


def test_the_older_name_of_ed25519_holds_with_such_a_key_alone() -> None:
    assert verified(forged(header(alg="EdDSA"))) == RECEIPT
    assert clause(forged(header(alg="EdDSA")), algorithms=("ES256",)) == "3"
    assert clause(forged(header(key("ES256"), alg="EdDSA")), authority(key("ES256"))) == "4"


def test_algorithms_beyond_the_two_count_only_where_they_are_allowed() -> None:
    for algorithm in ("ES384", "PS256"):
        token = sign_receipt(RECEIPT, key(algorithm))
        assert clause(token, authority(key(algorithm))) == "3"
        assert verified(token, authority(key(algorithm)), algorithms=(algorithm,))
    for never in ("RS256", "HS256", "none"):
        assert clause(forged(header(alg=never)), algorithms=("Ed25519", never)) == "3"


def test_claims_that_are_not_known_are_left_alone() -> None:
    assert verified(forged(payload=claims(ev={"h": "x"}, x=[1]))) == RECEIPT
    assert verified(forged(payload=claims(nbf=NOW))) == RECEIPT


@pytest.mark.parametrize("value", [NOW + 1, "1", None, True])
def test_a_receipt_counts_from_its_issue_on(value: object) -> None:
    payload = json.dumps({**claims(), "nbf": value})
    assert clause(forged(payload=payload)) == "6"


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "iat", "exp", "jti", "rqh", "res"])
def test_no_claim_that_must_be_there_may_be_missing(name: str) -> None:
    assert clause(forged(payload=claims(**{name: None}))) == "6"


def test_res_and_str_are_objects_of_their_form() -> None:
    for res in ("x", [], {}, {"st": 200}, {"st": 200, "cd": content_digest(b"")}, {"st": "200"}):
        assert clause(forged(payload=claims(res=res))) == "6"
    for end in (7, {}, {"n": 1}, {"n": -1, "cd": content_digest(b"")}):
        assert clause(forged(payload=claims(res={"st": 200}, str=end))) == "6"
    both = claims(str={"n": 0, "cd": content_digest(b"")})
    assert clause(forged(payload=both)) == "6"


def test_the_kid_of_a_token_can_be_asked_before_anything_is_verified() -> None:
    assert get_kid(TOKEN) == key().kid
    for token in ("x", forged(header(kid=None)), forged(header(kid=["a"]))):
        with pytest.raises(SignatureError):
            get_kid(token)


# streams


def streamed(*events: tuple[str, str, str]) -> tuple[str, StreamEnd]:
    chain = StreamChain(RECEIPT.request)
    for event in events:
        chain.add(*event)
    receipt = replace(RECEIPT, content_type="text/event-stream", digest=None, length=None, stream=chain.end)
    return sign_receipt(receipt, key()), chain.end


EVENTS = (("1", "message", "one"), ("2", "message", "two\nlines"), ("3", "delta", ""))


def test_the_chain_is_that_of_the_binding() -> None:
    value = sha256(b"aiip-stream-v1\nrqh\n-").digest()
    for event in EVENTS:
        value = sha256(value + sha256("\n".join(event).encode()).digest()).digest()
    chain = StreamChain("rqh")
    for event in EVENTS:
        chain.add(*event)
    assert chain.end == StreamEnd(3, f"sha-256=:{b64encode(value).decode()}:")
    assert StreamChain("rqh", "task").end != StreamChain("rqh").end


def test_a_stream_that_came_whole_holds() -> None:
    token, end = streamed(*EVENTS)
    expected = replace(EXPECTED, content_type="text/event-stream", body=None, stream=end)
    assert verified(token, expected=expected).stream == end


@pytest.mark.parametrize(
    "events",
    [
        EVENTS[:2],
        EVENTS[1:],
        (EVENTS[1], EVENTS[0], EVENTS[2]),
        (*EVENTS, ("4", "message", "more")),
        (*EVENTS[:2], ("3", "delta", " ")),
        (*EVENTS[:2], ("4", "delta", "")),
        (*EVENTS[:2], ("3", "message", "")),
        (),
    ],
)
def test_a_stream_that_was_cut_moved_spliced_or_changed_is_refused(
    events: tuple[tuple[str, str, str], ...],
) -> None:
    token, _ = streamed(*EVENTS)
    _, end = streamed(*events)
    assert clause(token, content_type="text/event-stream", body=None, stream=end) == "7 (str)"


def test_a_stream_of_another_request_or_task_is_refused() -> None:
    token, end = streamed()
    other = StreamChain(RECEIPT.request, "task-1").end
    assert clause(token, content_type="text/event-stream", body=None, stream=other) == "7 (str)"
    assert clause(token, content_type="text/event-stream") == "7 (res.len)"
    assert clause(TOKEN, body=None, stream=end) == "7 (str)"


def test_an_event_without_type_is_the_message_that_readers_see() -> None:
    one, two = StreamChain("r"), StreamChain("r")
    one.add("1", "", "x")
    two.add("1", "message", "x")
    assert one.end == two.end


@pytest.mark.parametrize(
    "event",
    [("a\nb", "m", ""), ("a", "m\r", ""), ("a\0", "m", ""), ("a", "m", "x\r\n"), ("a", "m", "\ud800")],
)
def test_an_event_that_a_reader_would_see_differently_is_not_chained(event: tuple[str, str, str]) -> None:
    with pytest.raises(SignatureError) as caught:
        StreamChain("r").add(*event)
    assert caught.value.code == "sign.bad-event"


# filed receipts


def test_a_filed_receipt_is_judged_by_its_own_time() -> None:
    keys = authority({**key().public(), "nbf": NOW - 10, "exp": NOW + 10})
    assert verify_filed(TOKEN, keys, body=BODY, at=NOW + 10**8) == RECEIPT
    assert verify_filed(TOKEN, authority(), subject=RECEIPT.subject, issuer=RECEIPT.issuer) == RECEIPT


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"body": b"other"}, "7 (res.len)"),
        ({"body": BODY.swapcase()}, "7 (res.cd)"),
        ({"subject": "ai://bank.example/other"}, "6 (sub)"),
        ({"issuer": "https://evil.example"}, "6 (iss)"),
        ({"at": NOW - 61}, "6 (iat)"),
        ({"algorithms": ("ES256",)}, "3"),
    ],
)
def test_a_filed_receipt_that_is_not_of_this_is_refused(change: dict[str, Any], step: str) -> None:
    with pytest.raises(ProvenanceError) as caught:
        verify_filed(TOKEN, authority(), **change)
    assert str(caught.value.clause).endswith(f"step {step}")


@pytest.mark.parametrize("times", [{"nbf": NOW + 61}, {"exp": NOW - 61}])
def test_a_filed_receipt_by_a_key_out_of_its_time_is_refused(times: dict[str, float]) -> None:
    with pytest.raises(ProvenanceError) as caught:
        verify_filed(TOKEN, authority({**key().public(), **times}))
    assert isinstance(caught.value.__cause__, SignatureError)
    assert caught.value.__cause__.code == "sign.key-not-in-force"


def test_a_filed_receipt_by_a_revoked_key_never_holds() -> None:
    with pytest.raises(ProvenanceError) as caught:
        verify_filed(TOKEN, authority({**key().public(), "revoked": {"revoked_at": NOW + 10**6}}))
    assert isinstance(caught.value.__cause__, SignatureError)
    assert caught.value.__cause__.code == "sign.revoked-key"
    with pytest.raises(ProvenanceError):
        verify_filed(None, authority())


# nothing may differ


def _flipped(octets: bytes, bit: int) -> bytes:
    changed = bytearray(octets)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@settings(max_examples=400)
@given(st.data())
@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256"])
def test_a_token_with_any_bit_changed_is_refused(algorithm: str, data: st.DataObject) -> None:
    token = sign_receipt(RECEIPT, key(algorithm)).encode()
    bit = data.draw(st.integers(0, len(token) * 8 - 1))
    assert refusal(_flipped(token, bit).decode("latin-1"), authority(key(algorithm)))


@given(st.integers(0, len(BODY) * 8 - 1))
def test_a_body_with_any_bit_changed_is_refused(bit: int) -> None:
    assert clause(TOKEN, body=_flipped(BODY, bit)) == "7 (res.cd)"


@given(st.text(max_size=300))
def test_any_text_is_refused_and_breaks_nothing(text: str) -> None:
    assert refusal(text)


@given(
    st.dictionaries(st.sampled_from([*claims(), "str", "tsk"]), st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ), min_size=1, max_size=4)
)  # fmt: skip
def test_any_claims_are_a_receipt_or_refused(changes: dict[str, Any]) -> None:
    token = forged(payload=json.dumps({**claims(), **changes}))
    found: object = None
    with suppress(ProvenanceError):
        found = verified(token)
    assert isinstance(found, Receipt) or refusal(token)


def test_helpers_write_what_a_signer_writes() -> None:
    assert verified(forged()) == RECEIPT
    assert b64(b"\xff") == "_w"
