"""Parameters of an llm URI: typed, nested, bounded, written."""

from __future__ import annotations

import sys

import pytest

from onym.errors import ParameterError, URIError, URISyntaxError
from onym.uri import llm_syntax
from onym.uri.llm import LLMURI
from onym.uri.llm_syntax import Params, format_query, parse_query
from onym.uri.parameters import (
    DEFAULT_LIMITS,
    VALUE_PARSERS,
    WELL_KNOWN,
    Limits,
    find_closest_name,
    is_redirecting,
    is_secret_parameter,
    parse_typed_query,
)
from onym.uri.secret import Secret
from support import as_subtests, load_own

CASES = load_own("llm_params.json")["cases"]
VALID = [case for case in CASES if case["valid"]]
INVALID = [case for case in CASES if not case["valid"]]


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.requirement(
    "llm-4.4-a", "llm-6-a", "llm-6-c", "llm-6-d", "llm-10.3-b", "llm-10.3-c", "onym-query-b"
)
@pytest.mark.requirement(
    "onym-query-c", "onym-query-d", "onym-query-e", "onym-query-f", "llm-4.4-b", "llm-4.4-c"
)
@as_subtests("case", VALID, ids=[case["id"] for case in VALID])
def test_a_good_query_has_the_types_and_the_order_of_its_vector(case):
    params = parse_query(case["query"])
    typed = {name: _plain(value) for name, value in params.items()}
    assert typed == case["typed"]
    assert list(typed) == list(case["typed"])
    assert list(map(type, typed.values())) == list(map(type, case["typed"].values()))


@pytest.mark.requirement("llm-4.4-e", "onym-query-g")
@pytest.mark.parametrize("case", [case for case in VALID if "nested" in case], ids=lambda case: case["id"])
def test_dotted_names_nest(case):
    assert parse_query(case["query"]).nested() == case["nested"]


@pytest.mark.requirement("llm-4.4-d", "llm-6-f", "llm-8-c", "llm-8-e", "onym-read-c")
@as_subtests("case", VALID, ids=[case["id"] for case in VALID])
def test_a_query_is_written_with_nothing_but_unreserved_characters_raw(case):
    typed, _ = parse_typed_query(case["query"], 0, DEFAULT_LIMITS)
    written = format_query(typed, DEFAULT_LIMITS, reveal=True)
    assert written == case["written"]
    assert parse_query(written) == parse_query(case["query"])


@pytest.mark.requirement("llm-10.3-a", "llm-10.3-b", "llm-10.3-c", "llm-10.3-d", "llm-10.3-e", "llm-4.4-f")
@pytest.mark.requirement("onym-query-a", "onym-query-e", "onym-query-g", "onym-query-h", "onym-read-e")
@as_subtests("case", INVALID, ids=[case["id"] for case in INVALID])
def test_a_bad_query_is_refused_by_the_name_of_the_parameter(case):
    with pytest.raises(URIError) as caught:
        parse_query(case["query"])
    error = caught.value
    assert (error.code, error.parameter, error.offset) == (case["code"], case["parameter"], case["offset"])
    assert error.component == "query"
    assert error.clause
    assert type(error) is (URISyntaxError if error.code == "uri.bad-utf8" else ParameterError)
    if error.parameter is not None:
        assert error.parameter in error.message


def test_offsets_count_in_the_whole_text():
    with pytest.raises(ParameterError) as caught:
        LLMURI.parse("llm://a:k@h/m?x=1&temp=3")
    assert (caught.value.offset, caught.value.parameter) == (23, "temp")


def test_the_last_of_equal_pairs_is_the_one_that_is_refused():
    with pytest.raises(ParameterError) as caught:
        parse_query("temp=1&seed=1&seed=1&temp=1")
    assert (caught.value.code, caught.value.offset) == ("llm.duplicate", 14)


@pytest.mark.requirement("llm-6-a")
def test_well_known_parameters_are_attributes():
    uri = LLMURI.parse(
        "llm://h/m?temp=1&max_tokens=2&top_p=0.5&top_k=3&stop=a&seed=4&stream=true&timeout=5&retries=6"
        "&cache=false&format=json&system=s&auth=env:A"
    )
    assert (uri.temp, uri.max_tokens, uri.top_p, uri.top_k, uri.stop, uri.seed) == (1.0, 2, 0.5, 3, ("a",), 4)
    assert (uri.stream, uri.timeout, uri.retries, uri.cache) == (True, 5, 6, False)
    assert (uri.format, uri.system, uri.auth) == ("json", "s", "env:A")
    assert uri.extra == {}
    bare = LLMURI.parse("llm://h/m")
    assert [getattr(bare, name) for name in (*WELL_KNOWN, "auth")] == [None] * 13
    assert set(VALUE_PARSERS) == {*WELL_KNOWN, "auth"}


@pytest.mark.requirement("onym-query-i", "llm-4.4-b", "llm-4.4-c")
def test_what_would_redirect_or_replace_the_request_is_withheld():
    uri = LLMURI.parse(
        "llm://h/m?model=x&apiKey=y&baseURL=z&headers.Authorization=a&extra_body=%7B%22model%22:1%7D"
        "&stream.x=1&user=me&a.b=1&a.c=2&Messages=q&system_prompt=p&token=t&token=u&keep=%5B1%5D"
    )
    assert uri.extra == {"user": "me", "a": {"b": 1, "c": 2}, "keep": [1]}
    assert uri.withheld == (
        "model", "apiKey", "baseURL", "headers.Authorization", "extra_body", "stream.x", "Messages",
        "system_prompt", "token",
    )  # fmt: skip
    assert uri.params["apiKey"] == Secret("y")
    assert uri.params["token"] == [Secret("t"), Secret("u")]
    assert uri.model == "m"


@as_subtests(
    "name",
    [
        "model",
        "Model",
        "base_url",
        "baseURL",
        "base-url",
        "API_BASE",
        "apiBase",
        "messages",
        "headers.x",
        "a",
    ],
)
def test_redirecting_names_are_known_in_every_spelling(name):
    assert is_redirecting(name) is (name != "a")


def test_credentials_are_known_by_their_names():
    secret = [
        "api_key",
        "apikey",
        "x-api-key",
        "token",
        "client_secret",
        "headers.Authorization",
        "key",
        "sig",
    ]
    harmless = [
        "max_tokens",
        "stop_token",
        "keyboard",
        "public_key",
        "top_k",
        "web_search.max_uses",
        "author",
    ]
    assert [is_secret_parameter(name) for name in secret] == [True] * len(secret)
    assert [is_secret_parameter(name) for name in harmless] == [False] * len(harmless)


@as_subtests(
    ("name", "meant"),
    [
        ("temprature", "temp"),
        ("max_token", "max_tokens"),
        ("maxtoken", "max_tokens"),
        ("Temp", "temp"),
        ("tmep", "temp"),
        ("topp", "top_p"),
        ("sytem", "system"),
        ("retires", "retries"),
        ("time_out", "timeout"),
        ("stream_", "stream"),
        ("frequency_penalty", None),
        ("top_a", None),
        ("min_p", None),
        ("n", None),
        ("user", None),
        ("x", None),
        ("", None),
    ],
)
def test_slips_lead_to_the_name_that_was_meant(name, meant):
    assert find_closest_name(name) == meant


def test_params_are_a_mapping_that_compares_by_what_is_written():
    params = parse_query("temp=1.0&x=1&x=2&j=%7B%22a%22:1%7D&key=s")
    assert isinstance(params, Params)
    assert (list(params), len(params)) == (["temp", "x", "j", "key"], 4)
    assert params.get("nope", 5) == 5
    assert "temp" in params
    assert params == parse_query("temp=1&x=1&x=2&j=%7B%22a%22%3A1%7D&key=s")
    assert hash(params) == hash(parse_query("temp=1&x=1&x=2&j=%7B%22a%22%3A1%7D&key=s"))
    assert params != parse_query("temp=1&x=1&x=2&j=%7B%22a%22%3A1%7D&key=t")
    assert parse_query("x=1&x=2") != parse_query("x=%5B1,2%5D")
    assert parse_query("temp=1&x=a") == {"temp": 1.0, "x": "a"}
    assert params.items_raw() == (
        ("temp", "1"),
        ("x", "1"),
        ("x", "2"),
        ("j", '{"a":1}'),
        ("key", Secret("s")),
    )
    assert list(params.values()) == [1.0, [1, 2], {"a": 1}, Secret("s")]
    assert list(parse_query("a=1").values()) == [1]
    assert repr(params) == "Params({'temp': 1.0, 'x': [1, 2], 'j': {'a': 1}, 'key': ***})"
    with pytest.raises(TypeError):
        Params()
    with pytest.raises(AttributeError):
        params.x = 1
    with pytest.raises(AttributeError):
        del params._typed


def test_a_view_of_the_parameters_changes_nothing():
    params = parse_query("a=1")
    with pytest.raises(TypeError):
        params.items().mapping["b"] = 2
    nested = parse_query("a.b=%5B1%5D").nested()
    nested["a"]["b"].append(2)
    assert parse_query("a.b=%5B1%5D").nested() == {"a": {"b": [1]}}


def test_a_credential_is_masked_unless_revealed():
    typed, hides = parse_typed_query("key=s%20t&x=1", 0, DEFAULT_LIMITS)
    assert hides
    assert format_query(typed, DEFAULT_LIMITS, reveal=False) == "key=***&x=1"
    assert format_query(typed, DEFAULT_LIMITS, reveal=True) == "key=s%20t&x=1"
    assert not parse_typed_query("x=1&y=%7B%22token%22:%7B%22type%22:1%7D%7D", 0, DEFAULT_LIMITS)[1]


def test_a_json_value_that_names_a_credential_is_one():
    for text in ('{"api_key":"x"}', '{"a":[{"b":{"token":"x"}}]}', '[1,{"password":"x"}]'):
        assert isinstance(parse_query(f"x={_encoded(text)}")["x"], Secret)
    for text in ('{"key":"x"}', '{"max_tokens":"x"}', '{"password":{"type":"string"}}', '[["token"]]'):
        assert not isinstance(parse_query(f"x={_encoded(text)}")["x"], Secret)


def _encoded(text: str) -> str:
    return "".join(f"%{octet:02X}" for octet in text.encode())


@pytest.mark.requirement("llm-10.3-d", "llm-4.4-f", "onym-query-h")
def test_lengths_are_bounded_in_octets():
    assert parse_query("x=" + "%C3%A9" * 2048)["x"] == "é" * 2048
    with pytest.raises(ParameterError) as caught:
        parse_query("x=" + "%C3%A9" * 2049)
    assert caught.value.code == "llm.value-too-long"
    assert len(parse_query("system=" + "a" * 8192)["system"]) == 8192
    with pytest.raises(ParameterError):
        parse_query("system=" + "a" * 8193)
    assert parse_query("x=%22" + "a" * 4096 + "%22")["x"] == "a" * 4096
    with pytest.raises(ParameterError):
        parse_query("x=%22" + "a" * 4097 + "%22")
    with pytest.raises(ParameterError):
        parse_query("key=" + "a" * 4097)
    fits = "x=%5B" + "%20" * 2046 + "%5D"
    assert parse_query(fits)["x"] == []
    assert parse_query("x=" + "%5B" * 32 + "%5D" * 32)["x"]
    assert parse_query("x=%5B%22" + "%5B" * 99 + "%22,%22" + "%5C%22%5B" * 40 + "%22%5D")["x"][0] == "[" * 99


def test_limits_bound_each_kind_of_value():
    tight = Limits(value=3, system=2, json=4, depth=1, parameters=2, number=3)
    assert parse_query("x=abc&y=100", limits=tight) == {"x": "abc", "y": 100}
    assert parse_query("x=1000", limits=Limits(number=3))["x"] == "1000"
    for query in (
        "x=abcd",
        "system=abc",
        "x=%5B1,2%5D",
        "x=%5B%5B%5D%5D",
        "a.b=1",
        "a=1&b=2&c=3",
        "seed=1000",
    ):
        with pytest.raises(ParameterError):
            parse_query(query, limits=tight)
    with pytest.raises(ParameterError):
        parse_query("stop=a,b&stop=c", limits=Limits(parameters=2))
    with pytest.raises(ParameterError):
        parse_query("x=%5B1000%5D", limits=Limits(number=3))
    long = "9" * 640
    assert parse_query(f"x={long}", limits=Limits(number=640))["x"] == int(long)


def test_a_deep_caller_gets_an_error_of_onym_for_json_too():
    limits = Limits(depth=200)
    query = "x=" + "%5B" * 190 + "%5D" * 190

    def below(depth: int) -> object:
        return below(depth - 1) if depth else parse_query(query, limits=limits)

    depth = sys.getrecursionlimit()
    outcomes = set()
    for margin in range(40, 400, 2):
        try:
            below(depth - len(_stack()) - margin)
            outcomes.add("read")
        except ParameterError as error:
            outcomes.add(error.code)
        except RecursionError:
            outcomes.add("the caller's own")
    assert outcomes <= {"read", "llm.too-deep", "the caller's own"}
    assert "read" in outcomes
    if sys.version_info < (3, 12):  # later versions count the calls of the JSON reader by themselves
        assert "llm.too-deep" in outcomes


def _stack() -> list[object]:
    frame, frames = sys._getframe(), []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (1e-7, "0.0000001"),
        (-1.5e-8, "-0.000000015"),
        (1.25e20, "125000000000000000000.0"),
        (-1e16, "-10000000000000000.0"),
        (0.1, "0.1"),
        (123456.75, "123456.75"),
    ],
)
def test_floats_are_written_in_decimal_notation(number, text):
    assert llm_syntax.format_decimal(number) == text
    assert float(text) == number


def test_what_is_no_finite_number_is_not_written():
    for number in (float("nan"), float("inf")):
        with pytest.raises(ParameterError):
            llm_syntax.format_decimal(number)
