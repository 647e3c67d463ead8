"""The clauses of the llm draft that the reader and writer of URIs hold, one by one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onym
from onym.errors import LLMURIError, ParameterError, URIError, URILimitError
from onym.uri.llm import LLMURI, check, parse
from onym.uri.parameters import Limits
from support import as_subtests

KEY = "sk-made-up-0123456789"


def codes(text: str) -> set[str]:
    return {found.code for found in check(text).diagnostics}


# -- 4.1 and 4.2


@pytest.mark.requirement("llm-4.1-a")
@pytest.mark.parametrize("scheme", ["llm", "LLM", "Llm"])
def test_the_scheme_is_llm_in_any_case(scheme: str) -> None:
    assert parse(f"{scheme}://h/m").host == "h"


@pytest.mark.requirement("llm-4.1-a")
@pytest.mark.parametrize("text", ["https://h/m", "llms://h/m", "ai://h/m", "//h/m", "h/m", "://h/m"])
def test_another_scheme_or_none_is_refused(text: str) -> None:
    with pytest.raises(URIError) as caught:
        parse(text)
    assert caught.value.component == "scheme"


@pytest.mark.requirement("llm-4.1-c", "rfc3986-3.1-a")
def test_the_scheme_is_written_in_lower_case_and_another_case_is_reported() -> None:
    assert str(parse("LLM://h/m")) == "llm://h/m"
    report = check("LLM://h/m")
    assert report.diagnostics[0].code == "llm.scheme-case"
    assert report.fixed() == "llm://h/m"


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a", "onym-secret-a")
@pytest.mark.parametrize(
    "show", [str, repr, format, lambda u: f"{u}", lambda u: u.render(), lambda u: str(u.check())]
)
def test_no_way_to_show_a_uri_shows_its_key(show: Callable[[LLMURI], str]) -> None:
    uri = parse(f"llm://my-app:{KEY}@api.openai.com/gpt-5")
    assert KEY not in show(uri)
    assert uri.render(reveal=True).count(KEY) == 1


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a")
def test_a_produced_uri_has_the_redaction_marker_in_place_of_its_key() -> None:
    uri = LLMURI.build(host="h", model="m", label="my-app", key=KEY)
    assert str(uri) == "llm://my-app:***@h/m"


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a")
def test_a_logged_uri_is_sanitized_by_the_filter(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("onym.tests.requirements")
    logger.addFilter(onym.RedactingFilter())
    with caplog.at_level(logging.WARNING):
        logger.warning("calling %s", f"llm://my-app:{KEY}@api.openai.com/gpt-5")
    assert KEY not in caplog.text
    assert "llm://my-app:***@api.openai.com/gpt-5" in caplog.text


@pytest.mark.requirement("llm-4.2.3-a")
@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("api.openai.com", 443),
        ("10.0.0.1", 443),
        ("localhost", 11434),
        ("127.0.0.2", 11434),
        ("[::1]", 11434),
    ],
)
def test_an_omitted_port_is_443_or_11434_on_this_machine(host: str, port: int) -> None:
    uri = parse(f"llm://{host}/m")
    assert uri.port is None
    assert uri.effective_port == port


@pytest.mark.requirement("onym-port-a")
@pytest.mark.parametrize("port", ["0", "65536", "99999999999999999999", "-1", "1e3", "x"])
def test_a_port_outside_1_to_65535_is_refused(port: str) -> None:
    with pytest.raises(URIError) as caught:
        parse(f"llm://h:{port}/m")
    assert caught.value.component == "port"


@pytest.mark.requirement("onym-port-a")
def test_the_first_and_the_last_port_are_read() -> None:
    assert [parse(f"llm://h:{port}/m").port for port in (1, 65535)] == [1, 65535]


# -- 4.3


@pytest.mark.requirement("llm-4.3-a")
@pytest.mark.parametrize("text", ["llm://h", "llm://h/", "llm://h?temp=1", "llm://h/?temp=1", "llm://h#f"])
def test_a_uri_without_a_model_is_refused(text: str) -> None:
    with pytest.raises(LLMURIError) as caught:
        parse(text)
    assert caught.value.code == "llm.no-model"


@pytest.mark.requirement("llm-4.3-a", "llm-4.3-b")
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.2", "anthropic/claude-sonnet-4.5", "llama3"])
def test_the_path_is_the_models_name_as_the_provider_knows_it(model: str) -> None:
    assert parse(f"llm://h/{model}").model == model


@pytest.mark.requirement("llm-4.3-c", "onym-path-b")
def test_segments_are_neither_resolved_nor_split_at_an_encoded_slash() -> None:
    uri = parse("llm://h/a%2Fb/c")
    assert (uri.segments, uri.model) == (("a/b", "c"), "a/b/c")
    assert str(uri) == "llm://h/a%2Fb/c"
    assert uri != parse("llm://h/a/b/c")


@pytest.mark.requirement("onym-path-a")
@pytest.mark.parametrize("path", ["/.", "/..", "/a/../b", "/a/./b", "/%2e%2e/b", "//m", "/a//b", "/a/"])
def test_dot_and_empty_segments_are_refused(path: str) -> None:
    with pytest.raises(LLMURIError) as caught:
        parse(f"llm://h{path}")
    assert caught.value.component == "path"


# -- 4.4 and 6

_VALUES: dict[str, tuple[str, Any]] = {
    "temp": ("0.7", 0.7),
    "max_tokens": ("1500", 1500),
    "top_p": ("0.9", 0.9),
    "top_k": ("40", 40),
    "stop": ("a,b", ("a", "b")),
    "seed": ("7", 7),
    "stream": ("true", True),
    "timeout": ("30000", 30000),
    "retries": ("3", 3),
    "cache": ("false", False),
    "format": ("json", "json"),
    "system": ("Be%20brief.", "Be brief."),
}


@pytest.mark.requirement("llm-4.4-a", "llm-6-a")
@as_subtests("name", _VALUES)
def test_each_of_the_twelve_names_is_read_typed_and_written_under_that_name(name: str) -> None:
    written, value = _VALUES[name]
    uri = parse(f"llm://h/m?{name}={written}")
    assert getattr(uri, name) == uri.params[name] == value
    assert type(getattr(uri, name)) is type(value)
    assert f"?{name}=" in str(uri)
    assert parse(str(uri)) == uri


@pytest.mark.requirement("llm-4.4-c")
@given(name=st.text("abcxyzABC_-0", min_size=1, max_size=12), value=st.text("abcxyz019._~-", max_size=20))
def test_no_unrecognized_name_with_a_plain_value_is_an_error(name: str, value: str) -> None:
    uri = parse(f"llm://h/m?x{name}={value}")
    assert uri.params.items_raw()


@pytest.mark.requirement("llm-4.4-d", "llm-8-c", "llm-6-f")
def test_values_and_provider_parameters_are_written_with_reserved_characters_encoded() -> None:
    reserved = ":/?#[]@!$&'()*+,;= %\""
    uri = LLMURI.build(host="h", model="m", system=reserved, params={"user": reserved})
    query = str(uri).partition("?")[2]
    assert re.fullmatch(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2}|[=&])+", query)
    assert query.count("=") == 2
    assert (parse(str(uri)).system, parse(str(uri)).params["user"]) == (reserved, reserved)


@pytest.mark.requirement("llm-4.4-d", "llm-8-c", "llm-6-f")
def test_a_reserved_character_that_stands_raw_in_a_value_is_reported_and_mended() -> None:
    report = check("llm://h/m?user=a/b")
    assert [found.code for found in report.diagnostics] == ["llm.raw-value"]
    assert report.fixed() == "llm://h/m?user=a%2Fb"


@pytest.mark.requirement("llm-4.4-e", "onym-query-g")
def test_nested_keys_are_flattened_by_dots_both_ways() -> None:
    uri = parse("llm://h/m?web_search.max_uses=3&web_search.enabled=true")
    assert uri.extra == {"web_search": {"max_uses": 3, "enabled": True}}
    built = LLMURI.build(host="h", model="m", params={"web_search": {"max_uses": 3, "enabled": True}})
    assert built == uri


@pytest.mark.requirement("onym-query-g")
@pytest.mark.parametrize("query", ["a=1&a.b=2", "a.b=2&a=1", "a.b=1&a.b.c=2"])
def test_a_clash_of_dotted_names_is_refused(query: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(f"llm://h/m?{query}")
    assert caught.value.code == "llm.clash"


@pytest.mark.requirement("llm-4.4-f", "llm-10.3-d", "onym-query-h")
@pytest.mark.parametrize(
    ("name", "octets", "start", "unit"),
    [("x", 4096, "", "a"), ("format", 4096, "", "a"), ("x", 2048, "%5B", "1"), ("x", 2048, "%7B", "1")],
)
def test_a_value_is_bounded_in_length(name: str, octets: int, start: str, unit: str) -> None:
    with pytest.raises((ParameterError, URILimitError)) as caught:
        parse(f"llm://h/m?{name}={start}{unit * (octets + 1)}")
    assert caught.value.parameter == name


@pytest.mark.requirement("llm-4.4-f", "llm-10.3-d")
def test_a_value_of_exactly_the_bound_is_read() -> None:
    assert len(parse(f"llm://h/m?x={'a' * 4096}").params["x"]) == 4096
    limits = Limits(uri=20_000, system=9_000)
    assert len(parse(f"llm://h/m?system={'a' * 9_000}", limits=limits).system or "") == 9_000


@pytest.mark.requirement("llm-4.4-g")
def test_a_uri_beyond_8192_octets_is_refused_and_one_beyond_2048_is_reported() -> None:
    with pytest.raises(URILimitError):
        parse("llm://h/m?x=" + "a" * 4000 + "&y=" + "a" * 4000 + "&z=" + "a" * 400)
    assert "llm.long" in codes("llm://h/m?x=" + "a" * 2048)
    assert "llm.long" not in codes("llm://h/m?x=" + "a" * 1000)


@pytest.mark.requirement("llm-6-c", "llm-10.3-c")
@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_a_boolean_is_true_or_false_in_any_case(text: str, value: bool) -> None:
    assert parse(f"llm://h/m?stream={text}").stream is value


@pytest.mark.requirement("llm-6-c", "llm-10.3-c", "llm-10.3-a")
@pytest.mark.parametrize("text", ["1", "0", "yes", "on", "", "truee", "t"])
def test_anything_else_is_no_boolean(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(f"llm://h/m?cache={text}")
    assert caught.value.parameter == "cache"


@pytest.mark.requirement("llm-6-d", "llm-10.3-b", "llm-10.3-a", "onym-query-e")
@as_subtests(
    "text",
    ["1e0", "0x1", "inf", "nan", "1_0", "%D9%A1", "%201", "1%20", ".5", "1.", "", "--1", "1,5", "1" * 33],
)
@pytest.mark.parametrize("name", ["temp", "seed"])
def test_what_is_not_decimal_notation_is_refused(name: str, text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(f"llm://h/m?{name}={text}")
    assert caught.value.parameter == name


@pytest.mark.requirement("onym-query-e")
@pytest.mark.parametrize(
    "query", ["temp=2.1", "temp=-0.1", "top_p=1.1", "max_tokens=0", "top_k=-1", "timeout=0", "retries=101"]
)
def test_a_number_out_of_its_range_is_refused(query: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(f"llm://h/m?{query}")
    assert caught.value.code == "llm.out-of-range"


@pytest.mark.requirement("llm-10.3-e", "llm-10.3-a", "onym-query-h")
@pytest.mark.parametrize(
    "value",
    [
        "%7B",
        "%7B%22a%22%3A1",
        "%7B%22a%22%3A1%2C%22a%22%3A2%7D",
        "%5BNaN%5D",
        "%5B1%2C%5D",
        "%5B" * 33 + "%5D" * 33,
    ],
)
def test_a_structured_value_that_is_no_sound_json_is_refused(value: str) -> None:
    with pytest.raises((ParameterError, URILimitError)) as caught:
        parse(f"llm://h/m?x={value}")
    assert caught.value.parameter == "x"


@pytest.mark.requirement("llm-10.3-e", "onym-query-f")
def test_a_sound_structured_value_is_read_as_data() -> None:
    assert parse("llm://h/m?web_search=%7B%22maxUses%22%3A3%7D").extra == {"web_search": {"maxUses": 3}}


@pytest.mark.requirement("onym-query-f")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("7", 7),
        ("0.5", 0.5),
        ("%5B1%5D", [1]),
        ("abc", "abc"),
        ("%22123%22", "123"),
        ("1e3", "1e3"),
    ],
)
def test_an_unknown_parameter_is_typed(text: str, value: Any) -> None:
    found = parse(f"llm://h/m?x={text}").params["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.requirement("onym-query-a")
def test_a_well_known_parameter_stands_once_but_stop_lists() -> None:
    with pytest.raises(ParameterError) as caught:
        parse("llm://h/m?temp=1&temp=1")
    assert caught.value.parameter == "temp"
    assert parse("llm://h/m?stop=a&stop=b,c").stop == ("a", "b", "c")


@pytest.mark.requirement("onym-query-b")
def test_an_unknown_parameter_that_stands_twice_is_a_list_in_order() -> None:
    assert parse("llm://h/m?x=2&y=0&x=1").params["x"] == [2, 1]
    assert "llm.repeated" in codes("llm://h/m?x=2&x=1")


@pytest.mark.requirement("onym-query-c")
def test_a_plus_sign_is_a_plus_sign() -> None:
    assert parse("llm://h/m?system=a+b&x=a+b").system == "a+b"
    assert "llm.plus" in codes("llm://h/m?system=a+b")


@pytest.mark.requirement("onym-query-d")
def test_a_raw_comma_separates_stop_sequences_and_an_encoded_one_is_text() -> None:
    uri = parse("llm://h/m?stop=a,b%2Cc")
    assert uri.stop == ("a", "b,c")
    assert parse(str(uri)).stop == uri.stop


@pytest.mark.requirement("onym-query-i")
@pytest.mark.parametrize(
    "name", ["model", "messages", "base_url", "baseURL", "API-Base", "extra_headers", "verify"]
)
def test_a_redirecting_name_is_read_and_kept_out_of_the_request(name: str) -> None:
    uri = parse(f"llm://h/m?{name}=x&user=u")
    assert uri.withheld == (name,)
    assert uri.extra == {"user": "u"}
    assert "llm.withheld" in codes(f"llm://h/m?{name}=x")
