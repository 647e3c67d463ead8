"""`AIURI`: the grammar level of draft-sogomonian-ai-uri-scheme-01, and the canonical form."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import AIURIError, OnymError, URIError, URILimitError, URISyntaxError
from onym.testing import strategies as ost
from onym.uri.ai import AIURI, DAMAGED_HINT, REFUSALS
from onym.uri.generic import URI
from support import as_subtests


def test_each_component_is_as_written() -> None:
    uri = AIURI.parse("AI://u@Factory.example:443/pay?amount=10&currency=USD#x")
    assert (uri.scheme, uri.authority, uri.userinfo) == ("AI", "u@Factory.example:443", "u")
    assert (uri.host, uri.host_type, uri.port) == ("Factory.example", "reg-name", "443")
    assert (uri.path, uri.query, uri.fragment) == ("/pay", "amount=10&currency=USD", "x")
    assert str(uri) == "AI://u@Factory.example:443/pay?amount=10&currency=USD#x"


@pytest.mark.requirement("ai-syntax-a")
@pytest.mark.requirement("ai-syntax-b")
@pytest.mark.requirement("ai-i18n-a")
@as_subtests(
    "text",
    [
        "ai:/agent/forklift-42?task=load&zone=A3",
        "ai://bank/service/payments",
        "ai:agent",
        "ai:",
        "ai://",
        "ai:///x",
        "ai:/x//y",
        "ai://127.0.0.1/x",
        "ai://[::1]/x",
        "ai://bank/..%2fadmin",
        "aI:x",
    ],
)
def test_the_grammar_is_the_whole_of_rfc_3986(text: str) -> None:
    assert str(AIURI.parse(text)) == text


@pytest.mark.parametrize("text", ["aix://bank/x", "http://bank/x", "a:x", "aii:/x"])
def test_another_scheme_is_refused(text: str) -> None:
    with pytest.raises(AIURIError) as caught:
        AIURI.parse(text)
    assert (caught.value.code, caught.value.component, caught.value.offset) == (
        "ai.wrong-scheme",
        "scheme",
        0,
    )


@pytest.mark.requirement("ai-i18n-b")
@pytest.mark.requirement("ai-i18n-d")
@pytest.mark.parametrize(
    ("text", "component", "offset"),
    [
        ("ai://bank/café", "path", 13),
        ("ai://bank/x?q=é", "query", 14),
        ("ai://bücher.example/x", "host", 6),
        ("ai:/agent/ x", "path", 10),
        ("ai://bank\\@evil/x", "userinfo", 9),
        ("ai://bank/x\r\nHost: y", "path", 11),
        ("ai//bank/x", "scheme", 0),
        ("a%69://bank/x", "scheme", 1),
        ("", "scheme", 0),
    ],
)
def test_what_is_no_uri_is_refused_where_it_fails(text: str, component: str, offset: int) -> None:
    with pytest.raises(URISyntaxError) as caught:
        AIURI.parse(text)
    assert (caught.value.component, caught.value.offset) == (component, offset)


@pytest.mark.requirement("ai-syntax-c")
def test_the_examples_of_the_draft_are_read_and_the_damaged_one_as_it_was_meant() -> None:
    assert AIURI.parse("ai:/agent/forklift-42?task=load&zone=A3").parameters == (
        ("task", "load"),
        ("zone", "A3"),
    )
    meant = AIURI.parse("ai://factory.example/pay?amount=10&currency=USD")
    assert (meant.authority_text, meant.path) == ("factory.example", "/pay")
    assert meant.parameters == (("amount", "10"), ("currency", "USD"))
    with pytest.raises(URISyntaxError) as caught:
        AIURI.parse("ai://factory.example/pay?amount=10¤cy=USD")
    assert (caught.value.code, caught.value.offset) == ("uri.bad-character", 34)
    assert caught.value.hint == DAMAGED_HINT


@pytest.mark.parametrize("sign", ["%C2%A4", "%c2%a4", "%A4", "&curren;"])
def test_a_damaged_ampersand_is_recognised_encoded_too(sign: str) -> None:
    with pytest.raises(AIURIError) as caught:
        AIURI.parse(f"ai://bank/pay?amount=10{sign}cy=USD").canonical()
    assert (caught.value.code, caught.value.offset) == ("ai.ambiguous-query", 23)
    assert caught.value.hint == DAMAGED_HINT


@pytest.mark.parametrize(
    "text", ["ai://bank/x?a=10%C2%A4", "ai://bank/x?a=%E4%BD%A4cy=1", "ai://bank/%C2%A4cy"]
)
def test_a_currency_sign_elsewhere_is_text(text: str) -> None:
    assert AIURI.parse(text).canonical() == text


def test_a_currency_sign_is_recognised_as_a_damaged_ampersand() -> None:
    with pytest.raises(URISyntaxError) as caught:
        AIURI.parse("ai://bank/pay?amount=10¤cy=USD")
    assert (caught.value.component, caught.value.offset) == ("query", 23)
    assert caught.value.hint == DAMAGED_HINT
    with pytest.raises(URISyntaxError) as caught:
        AIURI.parse("ai://bank/pay?amount=10€")
    assert caught.value.hint != DAMAGED_HINT


def test_an_ai_uri_is_a_value_of_its_own_kind() -> None:
    uri = AIURI.parse("ai://u:hunter2@h/x")
    assert AIURI.parse(uri) is uri
    assert copy.deepcopy(uri) is uri
    assert pickle.loads(pickle.dumps(uri)) == uri
    assert uri == AIURI.parse("ai://u:hunter2@h/x")
    assert uri != URI.parse("ai://u:hunter2@h/x")
    assert repr(uri) == "AIURI('ai://u:***@h/x')"
    with pytest.raises(TypeError):
        type("Sub", (AIURI,), {})
    with pytest.raises(TypeError):
        AIURI.parse(b"ai:x")  # type: ignore[arg-type]
    with pytest.raises(URILimitError):
        AIURI.parse("ai:abc", max_length=5)


@as_subtests(
    ("text", "canonical"),
    [
        ("ai://bank/service/payments", "ai://bank/service/payments"),
        ("AI://Bank.EXAMPLE:443", "ai://bank.example/"),
        ("ai://bank/", "ai://bank/"),
        ("ai://bank?a=b", "ai://bank/?a=b"),
        ("ai://bank:8443/x", "ai://bank:8443/x"),
        ("ai:/agent/forklift-42?task=load&zone=A3", "ai:/agent/forklift-42?task=load&zone=A3"),
        ("ai:/agent#fragment", "ai:/agent"),
        ("ai://bank/%61%7e%c3%a9", "ai://bank/a~%C3%A9"),
        ("ai://bank/a:b@c;d=!$&'()*+,", "ai://bank/a:b@c;d=!$&'()*+,"),
        ("ai://bank/...", "ai://bank/..."),
        ("ai://bank/x?%61=%62&c&d=", "ai://bank/x?a=b&c&d="),
        ("ai://bank/x?q=https%3a%2F%2fh%26", "ai://bank/x?q=https%3A%2F%2Fh%26"),
        ("ai://bank/x?b=1&a=2", "ai://bank/x?b=1&a=2"),
        ("ai://bank/x?n=%e2%80%8c", "ai://bank/x?n=%E2%80%8C"),
        ("ai://bank/100%25", "ai://bank/100%25"),
        ("ai://xn--bcher-kva.example/x", "ai://xn--bcher-kva.example/x"),
        ("ai://a-b--c.example/x", "ai://a-b--c.example/x"),
    ],
)
def test_the_canonical_form_rewrites_only_what_is_spelt_otherwise(text: str, canonical: str) -> None:
    assert AIURI.parse(text).canonical() == canonical
    assert AIURI.parse(canonical).canonical() == canonical


LONG_LABEL = "a" * 64
LONG_NAME = ".".join(["a" * 63] * 4)


@as_subtests(
    ("text", "code", "component", "offset"),
    [
        ("ai:foo", "no-path", "path", 3),
        ("ai:", "no-path", "path", 3),
        ("ai:/", "no-path", "path", 3),
        ("ai:///x", "no-authority", "host", 5),
        ("ai://", "no-authority", "host", 5),
        ("ai://:443/x", "no-authority", "host", 5),
        ("ai:/.//x", "dot-segment", "path", 4),
        ("ai://bank//x", "empty-segment", "path", 10),
        ("ai://bank/x/", "empty-segment", "path", 12),
        ("ai:/x//y", "empty-segment", "path", 6),
        ("ai://u@bank/x", "userinfo", "userinfo", 5),
        ("ai://@bank/x", "userinfo", "userinfo", 5),
        ("ai://bank:/x", "bad-port", "port", 10),
        ("ai://bank:0443/x", "bad-port", "port", 10),
        ("ai://bank:0/x", "bad-port", "port", 10),
        ("ai://bank:65536/x", "bad-port", "port", 10),
        ("ai://bank:99999999999999999999/x", "bad-port", "port", 10),
        ("ai://b%61nk/x", "bad-host", "host", 5),
        ("ai://bank./x", "bad-host", "host", 5),
        ("ai://a..b/x", "bad-host", "host", 5),
        ("ai://-a/x", "bad-host", "host", 5),
        ("ai://a-.b/x", "bad-host", "host", 5),
        ("ai://a_b/x", "bad-host", "host", 5),
        (f"ai://{LONG_LABEL}/x", "bad-host", "host", 5),
        (f"ai://{LONG_NAME}/x", "bad-host", "host", 5),
        ("ai://ab--c/x", "bad-host", "host", 5),
        ("ai://xn--a/x", "bad-host", "host", 5),
        ("ai://[::1]/x", "address-literal", "host", 6),
        ("ai://[v1.a]/x", "address-literal", "host", 6),
        ("ai://127.0.0.1/x", "address-literal", "host", 5),
        ("ai://127.1/x", "address-literal", "host", 5),
        ("ai://2130706433/x", "address-literal", "host", 5),
        ("ai://0x7f.0x1/x", "address-literal", "host", 5),
        ("ai://0X7F/x", "address-literal", "host", 5),
        ("ai://bank/a%00", "forbidden-octet", "path", 11),
        ("ai://bank/a%1f", "forbidden-octet", "path", 11),
        ("ai://bank/a%7F", "forbidden-octet", "path", 11),
        ("ai://bank/..%2fadmin", "forbidden-octet", "path", 12),
        ("ai://bank/a%5Cb", "forbidden-octet", "path", 11),
        ("ai://bank/a%3fb", "forbidden-octet", "path", 11),
        ("ai://bank/a%23b", "forbidden-octet", "path", 11),
        ("ai://bank/./x", "dot-segment", "path", 10),
        ("ai://bank/x/..", "dot-segment", "path", 12),
        ("ai://bank/x/.%2e", "dot-segment", "path", 12),
        ("ai://bank/x/..;a=b", "dot-segment", "path", 12),
        ("ai://bank/x/..%3ba", "dot-segment", "path", 12),
        ("ai://bank/..%252fadmin", "double-encoding", "path", 12),
        ("ai://bank/a%25%34%31", "double-encoding", "path", 11),
        ("ai://bank/x/e%CC%81", "not-nfc", "path", 12),
        ("ai://bank/x/a%E2%80%8Bb", "invisible", "path", 12),
        ("ai://bank/x/%E2%80%AE", "invisible", "path", 12),
        ("ai://bank/x?", "empty-name", "query", 12),
        ("ai://bank/x?a&&b", "empty-name", "query", 14),
        ("ai://bank/x?=a", "empty-name", "query", 12),
        ("ai://bank/x?a=1&a=2", "duplicate-name", "query", 16),
        ("ai://bank/x?a=1&%41=2", "duplicate-name", "query", 16),
        ("ai://bank/x?a=1+1", "ambiguous-query", "query", 15),
        ("ai://bank/x?a=1;b=2", "ambiguous-query", "query", 15),
        ("ai://bank/x?a='", "ambiguous-query", "query", 14),
        ("ai://bank/x?a=%0d%0a", "forbidden-octet", "query", 14),
        ("ai://bank/x?a=%2541", "double-encoding", "query", 14),
        ("ai://bank/x?a%26b=1", "forbidden-octet", "query", 13),
        ("ai://bank/x?b=1&a%3D=1", "forbidden-octet", "query", 17),
        ("ai://bank/x?%e2%80%8f=1", "invisible", "query", 12),
        ("ai://bank/" + "a" * 2_039, "too-long", "path", 2_048),
    ],
)
def test_what_could_be_read_two_ways_has_no_canonical_form(
    text: str, code: str, component: str, offset: int
) -> None:
    uri = AIURI.parse(text)
    with pytest.raises(AIURIError) as caught:
        uri.canonical()
    error = caught.value
    assert (error.code, error.component, error.offset) == (f"ai.{code}", component, offset)
    assert error.clause is not None


def test_each_refusal_says_how_to_go_on_and_none_repeats_the_text() -> None:
    for message, hint in REFUSALS.values():
        assert message
        assert hint
    with pytest.raises(AIURIError) as caught:
        AIURI.parse("ai://bank/x?secret=hunter2&=").canonical()
    assert caught.value.hint == REFUSALS["empty-name"][1]
    assert "hunter2" not in str(caught.value)


def test_what_the_canonical_form_makes_too_long_has_none() -> None:
    query = "a=" + "b" * (2_048 - len("ai://h?a="))
    assert len(f"ai://h?{query}") == 2_048
    with pytest.raises(AIURIError) as caught:
        AIURI.parse(f"ai://h?{query}").canonical()
    assert (caught.value.code, caught.value.offset) == ("ai.too-long", 2_048)
    assert len(AIURI.parse(f"ai://h?{query[:-1]}").canonical()) == 2_048


def test_the_target_is_the_canonical_uri_and_tells_what_is_the_same() -> None:
    uri = AIURI.parse("AI://Bank:443/%7Ex?a=%62&c#top")
    assert str(uri.target) == "ai://bank/~x?a=b&c"
    target = uri.target
    assert target.target is target
    assert uri.target == AIURI.parse("ai://bank/~x?a=b&c").target
    assert uri != uri.target
    assert uri.target.fragment is None
    assert pickle.loads(pickle.dumps(uri.target)) == uri.target


@pytest.mark.parametrize(
    ("text", "authority", "resource", "parameters"),
    [
        ("ai://Bank:443/x", "bank", "ai://bank/x", ()),
        ("ai://bank:8443?b=%26&a", "bank:8443", "ai://bank:8443/", (("b", "&"), ("a", ""))),
        ("ai:/agent/x?caf%C3%A9=%2B#y", None, "ai:/agent/x", (("café", "+"),)),
        ("ai:/agent/x", None, "ai:/agent/x", ()),
    ],
)
def test_authority_resource_and_parameters_are_those_of_the_canonical_form(
    text: str, authority: str | None, resource: str, parameters: tuple[tuple[str, str], ...]
) -> None:
    uri = AIURI.parse(text)
    assert uri.authority_text == authority
    assert str(uri.without_query) == resource
    assert uri.parameters == parameters


@pytest.mark.parametrize("name", ["target", "authority_text", "without_query", "parameters"])
def test_what_has_no_canonical_form_has_none_of_its_parts(name: str) -> None:
    with pytest.raises(AIURIError) as caught:
        getattr(AIURI.parse("ai://u@bank/x"), name)
    assert (caught.value.code, caught.value.component, caught.value.offset) == ("ai.userinfo", "userinfo", 5)


@pytest.mark.parametrize("text", ["ai://bank/x/%ff", "ai://bank/x?%ff", "ai://bank/x?a=%ff"])
def test_octets_that_are_not_utf_8_have_no_canonical_form(text: str) -> None:
    with pytest.raises(URISyntaxError) as caught:
        AIURI.parse(text).canonical()
    assert (caught.value.code, caught.value.offset) == ("uri.bad-utf8", len(text) - 3)


@given(ost.ai_uris())
def test_a_canonical_form_is_its_own_and_normal(text: str) -> None:
    try:
        canonical = AIURI.parse(text).canonical()
    except URIError as error:
        assert error.component is not None  # noqa: PT017
        return
    assert AIURI.parse(canonical).canonical() == canonical
    assert str(URI.parse(canonical).normalize()) == canonical
    assert URI.parse(text).normalize().path == AIURI.parse(canonical).path


@given(st.text(max_size=20))
def test_any_text_parses_or_raises_an_error_of_our_own(text: str) -> None:
    for candidate in (text, "ai:" + text, "ai://" + text):
        try:
            AIURI.parse(candidate).canonical()
        except OnymError as error:
            assert error.code.startswith(("uri.", "ai."))  # noqa: PT017
