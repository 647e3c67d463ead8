"""The grammar: RFC 3986 Appendix A, errors, limits and time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onym.errors import OnymError, URILimitError, URISyntaxError, UsageError
from onym.testing import strategies as ost
from onym.uri.components import classify_ip_literal, format_ipv6, is_ipv4, is_ipvfuture, parse_ipv6
from onym.uri.generic import RULES, compute_offsets, recompose_uri, split_uri
from support import as_subtests, linear_enough, load_own

CASES: dict[str, Any] = load_own("uri_parse.json")
ADDRESSES: dict[str, Any] = load_own("ipv6.json")


def refusal(text: str, rule: str, *, max_length: int = 65_536) -> OnymError | None:
    """Why `rule` refuses `text`, or None."""
    try:
        split_uri(text, rule, max_length=max_length)
    except OnymError as error:
        return error
    return None


@pytest.mark.requirement("rfc3986-A-a", "rfc3986-A-b", "rfc3986-A-c", "rfc3986-A-d")
@as_subtests("case", CASES["valid"], ids=lambda case: case["id"])
def test_a_text_of_the_grammar_gives_its_parts(case: dict[str, Any]) -> None:
    assert split_uri(case["text"])._asdict() == case["parts"]


@as_subtests("case", CASES["valid"], ids=lambda case: case["id"])
def test_a_text_matches_its_rules_and_no_other(case: dict[str, Any]) -> None:
    for rule in RULES:
        if rule in case["rules"]:
            assert recompose_uri(split_uri(case["text"], rule)) == case["text"]
        else:
            with pytest.raises(URISyntaxError):
                split_uri(case["text"], rule)


@as_subtests("case", CASES["invalid"], ids=lambda case: case["id"])
def test_a_text_outside_the_grammar_is_refused_with_code_component_offset_and_clause(
    case: dict[str, Any],
) -> None:
    with pytest.raises(URISyntaxError) as caught:
        split_uri(case["text"], case["rule"])
    error = caught.value
    assert {"code": error.code, "component": error.component, "offset": error.offset} == case["error"]
    assert error.clause is not None
    assert error.clause.startswith("RFC 3986 ")


@pytest.mark.requirement("rfc3986-3.2.2-a")
@as_subtests("case", ADDRESSES["valid"], ids=lambda case: case["literal"])
def test_an_ipv6_address_has_its_value_and_canonical_form(case: dict[str, Any]) -> None:
    value = parse_ipv6(case["literal"])
    assert value == int(case["value"], 16)
    assert value is not None
    assert format_ipv6(value) == case["canonical"]
    assert split_uri(f"//[{case['literal']}]").host_type == "IPv6address"


@pytest.mark.requirement("rfc3986-3.2.2-a")
@as_subtests("case", ADDRESSES["invalid"], ids=lambda case: case["why"])
def test_what_is_no_ipv6_address_is_refused(case: dict[str, Any]) -> None:
    assert parse_ipv6(case["literal"]) is None
    with pytest.raises(URISyntaxError) as caught:
        split_uri(f"x://[{case['literal']}]/")
    assert caught.value.component in ("host", "path", "port")


@as_subtests("case", ADDRESSES["ipvfuture"], ids=lambda case: case["literal"])
def test_ipvfuture_is_read_by_its_rule(case: dict[str, Any]) -> None:
    assert is_ipvfuture(case["literal"]) is case["valid"]
    assert classify_ip_literal(case["literal"]) == ("IPvFuture" if case["valid"] else None)


@given(st.integers(0, 2**128 - 1))
@example(0)
@example(1 << 64)
def test_an_ipv6_value_comes_back_from_its_canonical_form(value: int) -> None:
    assert parse_ipv6(format_ipv6(value)) == value


@given(ost.ipv6_addresses())
def test_the_strategy_gives_ipv6_addresses(text: str) -> None:
    assert parse_ipv6(text) is not None


@given(ost.ipv4_addresses(), ost.ipvfuture_addresses())
def test_the_strategies_give_ipv4_and_ipvfuture_addresses(quad: str, future: str) -> None:
    assert is_ipv4(quad)
    assert is_ipvfuture(future)


@pytest.mark.requirement("rfc3986-3.2.2-b")
@pytest.mark.parametrize(
    "text", ["1.2.3.\u0664", "1.2.3.²", "1.2.3.", "1.2.3.4\n", "1.2.3.+4", "1.2.3.4.5", ""]
)
def test_what_is_no_ipv4_address_is_not_taken_for_one(text: str) -> None:
    assert not is_ipv4(text)


# --- a second reading of Appendix A, rule by rule, to check the first one against ---

_UNRESERVED, _SUB = "[A-Za-z0-9._~-]", "[!$&'()*+,;=]"
_PCT = "%[0-9A-Fa-f][0-9A-Fa-f]"
_PCHAR = f"(?:{_UNRESERVED}|{_PCT}|{_SUB}|[:@])"
_NC = f"(?:{_UNRESERVED}|{_PCT}|{_SUB}|@)"
_DEC = "(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_V4 = rf"{_DEC}\.{_DEC}\.{_DEC}\.{_DEC}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_V4})"
_V6 = "|".join(
    [
        f"(?:{_H16}:){{6}}{_LS32}",
        f"::(?:{_H16}:){{5}}{_LS32}",
        f"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        f"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}",
        f"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}",
        f"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        f"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
)
_VF = f"[vV][0-9A-Fa-f]+\\.(?:{_UNRESERVED}|{_SUB}|:)+"
_HOST = rf"(?:\[(?:{_V6}|{_VF})\]|{_V4}|(?:{_UNRESERVED}|{_PCT}|{_SUB})*)"
_AUTHORITY = f"(?:(?:{_UNRESERVED}|{_PCT}|{_SUB}|:)*@)?{_HOST}(?::[0-9]*)?"
_ABEMPTY = f"(?:/{_PCHAR}*)*"
_ABSOLUTE = f"/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?"
_FRAGMENT = f"(?:#(?:{_PCHAR}|[/?])*)?"
_HIER = f"(?://{_AUTHORITY}{_ABEMPTY}|{_ABSOLUTE}|{_PCHAR}+(?:/{_PCHAR}*)*|)"
_RELATIVE = f"(?://{_AUTHORITY}{_ABEMPTY}|{_ABSOLUTE}|{_NC}+(?:/{_PCHAR}*)*|)"
APPENDIX_A = {
    "URI": f"[A-Za-z][A-Za-z0-9+.-]*:{_HIER}{_TAIL}{_FRAGMENT}",
    "absolute-URI": f"[A-Za-z][A-Za-z0-9+.-]*:{_HIER}{_TAIL}",
    "relative-ref": f"{_RELATIVE}{_TAIL}{_FRAGMENT}",
}
APPENDIX_A["URI-reference"] = f"(?:{APPENDIX_A['URI']}|{APPENDIX_A['relative-ref']})"
ORACLE = {rule: re.compile(pattern).fullmatch for rule, pattern in APPENDIX_A.items()}

# short texts over the characters that decide something
_NEAR = st.text("a1:/?#[]@%4vV.+- é\\", max_size=14)


@pytest.mark.requirement("rfc3986-A-a", "rfc3986-A-b", "rfc3986-A-c", "rfc3986-A-d")
@given(st.one_of(_NEAR, ost.uri_references(), st.text(max_size=20)))
@example("//[::1]")
@example("a@b:c")
def test_the_fast_reading_and_a_transcription_of_appendix_a_agree_on_every_rule(text: str) -> None:
    for rule, oracle in ORACLE.items():
        error = refusal(text, rule)
        assert (error is None) == (oracle(text) is not None)
        if error is not None:
            assert isinstance(error, URISyntaxError)
            assert error.offset is not None
            assert 0 <= error.offset <= len(text)
            assert error.component is not None


@given(ost.uri_references(), st.integers(0, 60), st.sampled_from(" []%#@:/\\é\x00"))
def test_a_spoilt_text_parses_or_names_a_fault(text: str, at: int, character: str) -> None:
    spoilt = text[:at] + character + text[at:]
    for rule, oracle in ORACLE.items():
        assert (refusal(spoilt, rule) is None) == (oracle(spoilt) is not None)


@given(ost.uri_references())
def test_parts_recompose_to_the_text_they_were_read_from(text: str) -> None:
    assert recompose_uri(split_uri(text)) == text


@given(ost.uris(), ost.absolute_uris(), ost.relative_references())
def test_each_strategy_keeps_to_its_rule(uri: str, absolute: str, relative: str) -> None:
    assert split_uri(uri, "URI").scheme
    assert split_uri(absolute, "absolute-URI").fragment is None
    assert split_uri(relative, "relative-ref").scheme is None


@given(ost.uri_references())
def test_offsets_say_where_each_component_stands(text: str) -> None:
    parts = split_uri(text)
    for name, start in compute_offsets(parts)._asdict().items():
        value = getattr(parts, name)
        if value is None:
            assert start == -1
        else:
            assert text[start : start + len(value)] == value


@given(st.text())
def test_any_text_parses_or_raises_an_error_of_our_own(text: str) -> None:
    for rule in RULES:
        error = refusal(text, rule)
        assert error is None or isinstance(error, URISyntaxError)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x://u:p/w@h", "password"),
        ("x://::1/", "brackets"),
        ("x://[fe80::1%25en0]/", "RFC 9844"),
        ("/é", "IRI"),
        ("/a b", "%20"),
        ("/\x07", "percent-encode"),
        ("/{", "percent-encode"),
        ("1:2", "./"),
        ("/%", "%25"),
    ],
)
def test_an_error_says_how_to_go_on(text: str, hint: str) -> None:
    with pytest.raises(URISyntaxError) as caught:
        split_uri(text)
    assert hint in str(caught.value.hint)


def test_a_bad_port_without_a_likely_cause_has_no_hint() -> None:
    with pytest.raises(URISyntaxError) as caught:
        split_uri("x://h:8x/")
    assert caught.value.hint is None


@as_subtests(
    "text",
    [
        "x://user:hunter2secret@h:port",
        "x://user:hunter2secret/@h",
        "x://hunter2secret:hunter2secret:/",
        "x://[hunter2secret]/",
        "x://[vhunter2secret]/",
        "x://u:hunter2secret@h/ ",
        "x://h/?key=hunter2secret^",
        "hunter2secret^:x",
        "#hunter2secret#",
        "%hunter2secret",
        "//[hunter2secret",
    ],
)
def test_no_error_holds_any_of_the_text(text: str) -> None:
    with pytest.raises(URISyntaxError) as caught:
        split_uri(text)
    assert "hunter2" not in f"{caught.value!r} {caught.value} {caught.value.as_dict()}"


def test_parts_do_not_print_the_userinfo() -> None:
    shown = repr(split_uri("x://u:hunter2@h:1/p?q"))
    assert "hunter2" not in shown
    assert shown == "<Parts scheme='x' host='h' port='1' path='/p'>"


def test_a_longer_text_than_allowed_is_refused_before_it_is_read() -> None:
    assert split_uri("x:" + "a" * 10, max_length=12).path == "a" * 10
    with pytest.raises(URILimitError) as caught:
        split_uri("x:" + " " * 11, max_length=12)
    assert (caught.value.code, caught.value.offset) == ("uri.too-long", 12)
    with pytest.raises(URILimitError):
        split_uri("a" * 65_537)


@pytest.mark.parametrize("text", ["x:", " "])
def test_an_unknown_rule_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        split_uri(text, "IRI")


MEGABYTE = 1_000_000
LONG = {
    "good path": "x:" + "a" * MEGABYTE,
    "triplets": "%41" * (MEGABYTE // 3),
    "triplets and a bad one": "%41" * (MEGABYTE // 3) + "%",
    "spaced triplets and a bad one": "http://h/" + "a%41" * (MEGABYTE // 4) + "|",
    "ats": "//" + "a@" * (MEGABYTE // 2),
    "colons in an authority": "//" + "a:" * (MEGABYTE // 2) + "@",
    "no scheme after all": "a" * MEGABYTE + "|:",
    "bracket": "//[" + ":" * MEGABYTE,
    "closed bracket": "//[" + ":" * MEGABYTE + "]",
    "future": "//[v1." + "a" * MEGABYTE + "|]",
    "port": "//h:" + "1" * MEGABYTE + "x",
    "slashes": "/" * MEGABYTE,
    "queries": "?" * MEGABYTE + " ",
    "hashes": "#" * MEGABYTE,
    "beyond ASCII": "é" * MEGABYTE,
    "dots": "." * MEGABYTE,
    "digits and dots": "//" + "1." * (MEGABYTE // 2),
}


@pytest.mark.requirement("onym-read-g")
@as_subtests("name", LONG)
def test_a_megabyte_of_anything_is_read_or_refused_in_linear_time(name: str) -> None:
    with linear_enough(5):
        refusal(LONG[name], "URI-reference", max_length=2 * MEGABYTE)
