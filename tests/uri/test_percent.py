"""Percent-encoding: RFC 3986 2.1 to 2.5."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onym.errors import URISyntaxError
from onym.testing.strategies import triplets
from onym.uri import components
from onym.uri.components import (
    Quoter,
    decode_component,
    decode_component_bytes,
    find_bad_triplet,
    normalize_triplets,
)
from support import as_subtests

QUOTERS = [value for value in vars(components).values() if isinstance(value, Quoter)]
# without the range of lone surrogates, which have no UTF-8 form
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@as_subtests("quoter", QUOTERS, ids=lambda quoter: f"{quoter.name}-{quoter.safe}")
def test_a_quoter_keeps_unreserved_and_its_own_characters_and_encodes_the_rest_of_ascii(
    quoter: Quoter,
) -> None:
    for code in range(128):
        character = chr(code)
        kept = character.isalnum() or character in "-._~" or character in quoter.safe
        assert quoter.quote(character) == (character if kept else f"%{code:02X}")


@as_subtests(
    ("quoter", "written"),
    [
        (components.SEGMENT, "a%2Fb%3Ac%26d%3De%2Bf%40g%3Fh%23"),
        (components.PCHAR_SEGMENT, "a%2Fb:c&d=e+f@g%3Fh%23"),
        (components.PATH, "a/b:c&d=e+f@g%3Fh%23"),
        (components.QUERY, "a/b:c&d=e+f@g?h%23"),
        (components.QUERY_NAME, "a%2Fb%3Ac%26d%3De%2Bf%40g%3Fh%23"),
        (components.QUERY_VALUE, "a%2Fb%3Ac%26d%3De%2Bf%40g%3Fh%23"),
        (components.USERINFO, "a%2Fb%3Ac%26d%3De%2Bf%40g%3Fh%23"),
        (components.USERINFO_PAIR, "a%2Fb:c&d=e+f%40g%3Fh%23"),
        (components.FRAGMENT, "a/b:c&d=e+f@g?h%23"),
        (components.REG_NAME, "a%2Fb%3Ac&d=e+f%40g%3Fh%23"),
    ],
    ids=lambda value: value.name if isinstance(value, Quoter) else "",
)
def test_each_component_keeps_the_delimiters_that_are_data_there(quoter: Quoter, written: str) -> None:
    assert quoter.quote("a/b:c&d=e+f@g?h#") == written


def test_a_percent_sign_is_data_and_text_beyond_ascii_is_written_as_utf_8() -> None:
    assert components.PATH.quote("100%41") == "100%2541"
    assert components.QUERY.quote("é€😀") == "%C3%A9%E2%82%AC%F0%9F%98%80"
    assert components.SEGMENT.quote("") == ""


@given(st.sampled_from(QUOTERS), TEXTS)
@example(components.PATH, "%")
def test_what_a_quoter_writes_decodes_to_the_same_text(quoter: Quoter, text: str) -> None:
    written = quoter.quote(text)
    assert written.isascii()
    assert decode_component(written, component=quoter.name) == text
    assert normalize_triplets(written) == written


def test_a_lone_surrogate_has_no_utf_8_form() -> None:
    with pytest.raises(URISyntaxError) as caught:
        components.PATH.quote("ab\ud800")
    assert (caught.value.code, caught.value.component, caught.value.offset) == ("uri.bad-utf8", "path", 2)
    with pytest.raises(URISyntaxError) as caught:
        decode_component("%41\ud800", component="query", offset=5)
    assert (caught.value.code, caught.value.component, caught.value.offset) == ("uri.bad-utf8", "query", 8)


def test_a_quoter_shows_its_component() -> None:
    assert repr(components.QUERY_VALUE) == "<Quoter query>"


def test_text_is_decoded_once() -> None:
    assert decode_component("%2541", component="path") == "%41"
    assert decode_component("a+b%2B", component="query") == "a+b+"
    assert decode_component("plain é", component="path") == "plain é"
    assert decode_component("é%C3%a9", component="path") == "éé"


def test_octets_need_not_be_text() -> None:
    assert decode_component_bytes("%00%ff%41é") == b"\x00\xffA\xc3\xa9"


@given(st.binary())
def test_any_octets_come_back_from_their_triplets(octets: bytes) -> None:
    assert decode_component_bytes("".join(f"%{octet:02x}" for octet in octets)) == octets


@pytest.mark.parametrize(
    ("text", "at"),
    [("%", 0), ("ab%4", 2), ("%41%4g", 3), ("%%41", 0), ("%\uff14\uff11", 0), ("%+1", 0), ("% 1", 0)],
)
def test_a_percent_sign_without_two_hexadecimal_digits_is_an_error_where_it_stands(
    text: str, at: int
) -> None:
    with pytest.raises(URISyntaxError) as caught:
        decode_component(text, component="fragment", offset=100)
    error = caught.value
    assert (error.code, error.component, error.offset) == ("uri.bad-percent-encoding", "fragment", 100 + at)
    assert error.clause == "RFC 3986 2.1"
    assert find_bad_triplet(text) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("%FF", 0),
        ("a%C3", 1),
        ("é%41%C3%28", 4),
        ("%C0%AF", 0),  # an overlong slash
        ("%ED%A0%80", 0),  # an encoded surrogate
        ("%41%F4%90%80%80", 3),  # beyond U+10FFFF
    ],
)
def test_octets_that_are_not_utf_8_are_an_error_at_the_first_bad_triplet(text: str, at: int) -> None:
    with pytest.raises(URISyntaxError) as caught:
        decode_component(text, component="path", offset=7)
    error = caught.value
    assert (error.code, error.component, error.offset) == ("uri.bad-utf8", "path", 7 + at)
    assert error.clause == "RFC 3986 2.5"


def test_normal_triplets_are_upper_case_and_unreserved_characters_stand_for_themselves() -> None:
    assert normalize_triplets("%7e%2D%2e%5F%30%61%5a%2f%c3") == "~-._0aZ%2F%C3"
    assert normalize_triplets("%2541 %4") == "%2541 %4"
    assert normalize_triplets("plain") == "plain"
    assert components.uppercase_triplets("%2f%7e") == "%2F%7E"
    assert components.uppercase_triplets("plain") == "plain"


@given(st.lists(st.one_of(triplets(), st.text("aZ9~-/", max_size=2))).map("".join))
def test_normalising_triplets_is_idempotent_and_keeps_the_octets(text: str) -> None:
    normal = normalize_triplets(text)
    assert normalize_triplets(normal) == normal
    assert decode_component_bytes(normal) == decode_component_bytes(text)
