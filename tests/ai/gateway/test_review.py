"""What a person is shown before they approve a call: nothing is hidden from them, nothing misleads them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.ai.gateway.review import (
    MAX_CHARACTERS,
    MAX_LINES,
    MAX_MEMBERS,
    CallToReview,
    Review,
    build_review,
    describe_effects,
    format_digest,
    parse_reviewed_json,
    show_text,
)
from onym.ai.records import Effects
from onym.common.text import encode_base64url
from onym.errors import AIIPError
from support import as_subtests

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "Amount"},
        "to": {"$ref": "#/$defs/Payee", "title": "Payee"},
        "pin": {"type": "string", "title": "PIN", "writeOnly": True},
        "code": {"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"type": "string"}},
        "memo": {"type": "string"},
    },
    "$defs": {"Payee": {"type": "object", "properties": {"iban": {"type": "string", "title": "IBAN"}}}},
}
REQUEST = encode_base64url(bytes(range(32)))
CALL = CallToReview(
    uri="ai://bank.example/payments",
    method="POST",
    body=b"",
    content_type="application/json",
    effects=Effects.FINANCIAL,
    title="Pay an invoice",
    schema=SCHEMA,
    reason="payments need a second person",
    proof="TLS certificate of bank.example",
    person="Ann",
    client="shop",
    request=REQUEST,
)


def shown(body: Any, earlier: Any = None, **changes: Any) -> Review:
    call = replace(CALL, body=body if isinstance(body, bytes) else json.dumps(body).encode(), **changes)
    before = None if earlier is None else replace(CALL, body=json.dumps(earlier).encode())
    return build_review(call, before)


def values(review: Review) -> dict[str, str]:
    return {row.label: row.value for row in review.rows}


def refused(body: bytes, **changes: Any) -> str:
    with pytest.raises(AIIPError) as caught:
        shown(body, **changes)
    return caught.value.code


def test_every_member_is_shown_by_the_titles_of_the_schema() -> None:
    review = shown({"amount": 10.5, "to": {"iban": "DE02"}, "lines": ["a", "b"]})
    assert values(review) == {"Amount": "10.5", "Payee / IBAN": "DE02", "lines / 1": "a", "lines / 2": "b"}
    assert [row.path for row in review.rows] == ["$.amount", "$.to.iban", "$.lines[1]", "$.lines[2]"]
    assert review.effects == "It moves money or makes a binding order."
    assert (review.authority, review.title) == ("bank.example", "Pay an invoice")
    assert (review.person, review.client, review.reason) == ("Ann", "shop", "payments need a second person")
    assert review.digest_groups == ("00010203", "04050607", "08090a0b", "0c0d0e0f")


def test_parameters_of_the_query_are_shown() -> None:
    review = shown({"amount": 1}, uri="ai://bank.example/payments?memo=caf%C3%A9")
    assert values(review) == {"memo": "café", "Amount": "1"}
    with pytest.raises(AIIPError):
        shown(b"", uri="ai://bank.example/payments?other=1")


def test_empty_values_and_no_input_are_shown_as_such() -> None:
    assert values(shown({"memo": "", "lines": [], "to": {}})) == {
        "memo": "(empty)",
        "lines": "[]",
        "Payee": "{}",
    }
    assert shown(b"").rows == ()


def test_without_a_schema_members_have_their_own_names() -> None:
    assert values(shown({"a": {"b": None}}, schema=None)) == {"a / b": "null"}
    assert values(shown(b"[1]", schema=None)) == {"1": "1"}
    assert values(shown(b'"x"', schema={})) == {"Input": "x"}


def test_a_body_that_is_no_json_is_type_size_and_digest() -> None:
    (row,) = shown(b"\x00" * 7, content_type="image/png").rows
    assert row.label == "Body"
    assert row.value.startswith("image/png, 7 bytes, SHA-256 ")
    assert "\x00" not in row.value
    assert shown(b"\x00", content_type=None).rows[0].value.startswith("no media type, 1 bytes")


def test_a_write_only_member_is_masked_and_bound() -> None:
    one, two = shown({"pin": "1234", "code": "9"}), shown({"pin": "1235", "code": "9"})
    assert "1234" not in repr(one)
    assert [row.hidden for row in one.rows] == [True, True]
    changed = shown({"pin": "1235"}, {"pin": "1234"})
    assert (changed.rows[0].change, changed.rows[0].before) == ("changed", changed.rows[0].value)
    # the request hash covers it, so the approval does
    assert one.shown == two.shown
    nested = {"properties": {"card": {"type": "object", "writeOnly": True}}}
    assert "4111" not in repr(shown({"card": {"number": "4111"}}, schema=nested))


def test_changes_against_the_last_such_call_are_marked() -> None:
    review = shown(
        {"amount": 100, "to": {"iban": "DE02"}, "memo": "x"},
        {"amount": 10, "to": {"iban": "DE02"}, "lines": ["a"]},
    )
    assert review.compared
    assert {row.label: (row.change, row.before) for row in review.rows} == {
        "Amount": ("changed", "10"),
        "Payee / IBAN": ("", ""),
        "memo": ("new", ""),
        "lines / 1": ("gone", "a"),
    }
    assert not shown({"amount": 1}).compared
    unreadable = build_review(replace(CALL, body=b"{}"), replace(CALL, body=b'{"a":1,"a":2}'))
    assert unreadable.rows[0].change == "new"


@pytest.mark.parametrize(
    ("effects", "reversible", "word"),
    [
        (Effects.READ, False, "reads"),
        (Effects.WRITE, False, "cannot be undone"),
        (Effects.WRITE, True, "promises"),
        (Effects.FINANCIAL, True, "money"),
        (Effects.PHYSICAL, False, "physical"),
    ],
)
def test_effects_are_told_in_words(effects: Effects, reversible: bool, word: str) -> None:
    assert word in describe_effects(effects, reversible=reversible)


# attack 83


@as_subtests(
    ("text", "expected"),
    [
        ("<b>10</b>", "<b>10</b>"),  # a page escapes it; here it is text
        ("a\u202eb", "a[U+202E right-to-left override]b"),
        ("a\u200bb", "a[U+200B zero width space]b"),
        ("a\u2066b", "a[U+2066 left-to-right isolate]b"),
        ("a\x1b[2Jb", "a[U+001B control character][2Jb"),
        ("a\rb", "a[U+000D control character]b"),
        ("a\u2028b", "a[U+2028 line separator]b"),
        ("a\u3164b", "a[U+3164 hangul filler]b"),
        ("a\ufe0fb", "a[U+FE0F variation selector-16]b"),
        ("a\u00a0b", "a[U+00A0 no-break space]b"),
        ("a\U000e0041b", "a[U+E0041 tag latin capital letter a]b"),
        ("a\nb", "a\nb"),
        ("café", "café"),
        ("שלום", "שלום"),
        ("e" + "\u0301" * 4, "e" + "\u0301" * 3 + "[U+0301 combining acute accent]"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, expected: str) -> None:
    assert show_text(text) == expected
    assert shown({"memo": text}).rows[0].value == expected


def test_a_label_is_one_line() -> None:
    schema = {"properties": {"memo": {"title": "Memo\n\nAmount: 1 EUR" + "x" * 500}}}
    label = shown({"memo": "x"}, schema=schema).rows[0].label
    assert "\n" not in label
    assert "[cut: " in label
    assert "\n" not in shown(b"", title="a\nb").title


def test_long_values_are_cut_with_a_count() -> None:
    text = shown({"memo": "a\n" * 10_000}).rows[0].value
    assert text.count("\n") == MAX_LINES
    assert text.endswith(
        f"[cut: {10_001 - MAX_LINES} more lines, {20_000 - 2 * MAX_LINES + 1} more characters]"
    )
    text = shown({"memo": "x" * 50_000}).rows[0].value
    assert text == "x" * MAX_CHARACTERS + f" [cut: {50_000 - MAX_CHARACTERS} more characters]"


def test_members_beyond_the_limit_are_counted() -> None:
    review = shown({"lines": ["x"] * (MAX_MEMBERS + 5)})
    assert (len(review.rows), review.omitted) == (MAX_MEMBERS, 5)


def test_an_authority_is_shown_in_both_forms() -> None:
    review = shown({"amount": 1}, uri="ai://xn--80ak6aa92e.com/payments")
    assert review.authority == "xn--80ak6aa92e.com"
    assert "\u0430\u0440\u0440\u04cf\u0435.com" in review.unicode
    assert any("Cyrillic" in warning for warning in review.warnings)
    mixed = shown({"amount": 1}, uri="ai://xn--pypal-4ve.com/payments")
    assert len(mixed.warnings) == 2
    assert shown({"amount": 1}).warnings == ()


@given(st.text(max_size=300))
def test_no_shown_text_has_an_unseen_character(text: str) -> None:
    assert all(part.isprintable() for part in show_text(text).split("\n"))
    assert show_text(text, lines=1).isprintable()


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_equal_reviews_show_equal_calls(value: Any) -> None:
    try:
        body = json.dumps(value).encode()
        review = shown(body, schema=None)
    except AIIPError:
        return
    assert review.shown == shown(body, schema=None).shown
    assert review.shown != shown(body, schema=None, person="Bob").shown


# attack 84


@as_subtests(
    "body",
    [
        b'{"amount":1,"amount":2}',
        b'{"to":{"iban":"a","iban":"b"}}',
        b'{"amount":1e400}',
        b'{"amount":NaN}',
        b'{"amount":9223372036854775808}',
        b'{"amount":-9223372036854775809}',
        b'{"amount":1.00000000000000001}',
        b'{"other":1}',
        b'{"to":{"bic":"x"}}',
        b'{"memo":"\\ud800"}',
        b'{"\\ud800":1}',
        b"[" * 20 + b"]" * 20,
        b"{",
        b"\xff",
    ],
)
def test_a_call_with_two_meanings_is_refused_before_it_is_shown(body: bytes) -> None:
    assert refused(body) == "aiip.invalid-input"


@pytest.mark.parametrize("body", [b'{"amount":9223372036854775807}', b'{"amount":10.10}', b'{"amount":1e3}'])
def test_plain_numbers_are_shown(body: bytes) -> None:
    assert shown(body).rows[0].label == "Amount"
    parse_reviewed_json(body)


def test_a_schema_may_allow_other_members() -> None:
    schema = SCHEMA | {"additionalProperties": {"type": "string", "writeOnly": True}}
    assert shown({"other": "secret"}, schema=schema).rows[0].hidden


def test_the_digest_is_that_of_the_request() -> None:
    assert "".join(format_digest(REQUEST)) == bytes(range(16)).hex()
