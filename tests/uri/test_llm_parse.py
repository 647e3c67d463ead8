"""Reading llm URIs: what is accepted, what it says, what is refused and where."""

from __future__ import annotations

import pytest

from onym.errors import LLMURIError, ParameterError, SecretError, URIError, URILimitError, URISyntaxError
from onym.uri.llm import LLMURI, check, parse
from onym.uri.llm_syntax import mask_credentials, parse_parts
from onym.uri.parameters import DEFAULT_LIMITS, Limits
from onym.uri.secret import Secret
from support import as_subtests, load_own

CASES = load_own("llm_parse.json")["cases"]
VALID = [case for case in CASES if case["valid"]]
INVALID = [case for case in CASES if not case["valid"]]


@pytest.mark.requirement("llm-4.1-a", "llm-4.3-a", "llm-4.3-b", "llm-8-a", "rfc3986-2.4-a", "onym-userinfo-a")
@pytest.mark.requirement("onym-path-b", "rfc3986-3.1-a", "rfc3986-3.2.2-a", "rfc3986-3.2.2-b", "onym-read-a")
@as_subtests("case", VALID, ids=[case["id"] for case in VALID])
def test_a_good_text_says_what_its_vector_says(case):
    uri = LLMURI.parse(case["text"])
    assert (uri.label, uri.key.reveal() if uri.key else None) == (case["label"], case["key"])
    assert (uri.host, uri.host_type, uri.port) == (case["host"], case["host_type"], case["port"])
    assert (uri.model, list(uri.segments)) == (case["model"], case["segments"])
    assert uri.fragment == case["fragment"]


@pytest.mark.requirement("llm-4.1-c", "llm-8-b", "llm-8-d", "llm-8-f", "onym-read-c")
@as_subtests("case", VALID, ids=[case["id"] for case in VALID])
def test_a_good_text_is_written_in_the_grammar_of_the_draft(case):
    uri = LLMURI.parse(case["text"])
    written = uri.render(reveal=True)
    assert written == case["written"]
    assert LLMURI.parse(written) == uri


@pytest.mark.requirement("onym-read-e", "rfc3986-2.1-a", "onym-path-a", "onym-port-a")
@as_subtests("case", INVALID, ids=[case["id"] for case in INVALID])
def test_a_bad_text_is_refused_with_code_component_offset_and_clause(case):
    with pytest.raises(URIError) as caught:
        LLMURI.parse(case["text"])
    error = caught.value
    assert (error.code, error.component, error.offset) == (case["code"], case["component"], case["offset"])
    assert error.parameter == case.get("parameter")
    assert error.clause
    kind = URISyntaxError if case["code"].startswith("uri.") else LLMURIError
    assert type(error) is kind


def test_the_functions_and_the_value_agree():
    text = "llm://h/m?temp=1"
    assert parse(text) == LLMURI.parse(text)
    assert parse(parse(text)) is not None


def test_a_value_passes_straight_through():
    uri = LLMURI.parse("llm://h/m")
    assert LLMURI.parse(uri) is uri


@pytest.mark.requirement("onym-read-b")
def test_strict_reading_refuses_what_check_calls_an_error():
    lenient = LLMURI.parse("llm://h/llama3:8b?temp=1")
    with pytest.raises(LLMURIError) as caught:
        LLMURI.parse("llm://h/llama3:8b?temp=1", strict=True)
    assert (caught.value.code, caught.value.offset) == ("llm.raw-model", 14)
    with pytest.raises(LLMURIError):
        LLMURI.parse(lenient, strict=True)
    with pytest.raises(ParameterError) as named:
        LLMURI.parse("llm://h/m?api_key=x", strict=True)
    assert named.value.parameter == "api_key"


@pytest.mark.requirement("onym-read-b")
def test_strict_reading_takes_what_has_warnings_alone():
    assert LLMURI.parse("LLM://h:/m?temprature=1&x=a/b", strict=True).model == "m"


def test_other_types_than_text_are_type_errors():
    for wrong in (None, 5, b"llm://h/m", ["llm://h/m"]):
        with pytest.raises(TypeError):
            LLMURI.parse(wrong)


def test_there_is_no_constructor_and_no_subclass():
    with pytest.raises(TypeError, match="parse"):
        LLMURI()
    with pytest.raises(TypeError):
        type("Mine", (LLMURI,), {})


def test_a_value_does_not_change():
    uri = LLMURI.parse("llm://h/m?x=%5B1%5D")
    with pytest.raises(AttributeError):
        uri.host = "evil"
    with pytest.raises(AttributeError):
        del uri.host
    with pytest.raises(AttributeError):
        uri.params.new = 1
    uri.params["x"].append(2)
    uri.extra["x"].append(3)
    dict(uri.params.items())["x"].append(4)
    assert uri.params["x"] == [1]
    assert not hasattr(uri, "__dict__")


@pytest.mark.requirement("llm-4.4-g")
def test_a_text_of_8192_octets_is_read_and_one_more_is_refused():
    start = "llm://h/m?x=" + "a" * 4096 + "&y="
    fits = start + "b" * (8192 - len(start))
    assert len(LLMURI.parse(fits).params["x"]) == 4096
    with pytest.raises(URILimitError) as caught:
        LLMURI.parse(fits + "b")
    assert (caught.value.code, caught.value.offset, caught.value.parameter) == ("uri.too-long", 8192, "y")


@pytest.mark.parametrize(
    ("text", "component", "parameter"),
    [
        ("llm://h/m?system=" + "%61" * 3000, "query", "system"),
        ("llm://h/m?" + "=" * 9000, "query", None),
        ("llm://h/m?" + "a" * 9000, "query", None),
        ("llm://h/" + "m" * 9000, "path", "model"),
        ("llm://" + "h" * 9000, "host", None),
    ],
)
def test_a_text_that_is_too_long_is_refused_by_naming_what_crosses_the_limit(text, component, parameter):
    with pytest.raises(URILimitError) as caught:
        LLMURI.parse(text)
    assert (caught.value.component, caught.value.parameter) == (component, parameter)


def test_limits_can_be_set_one_by_one():
    tight = DEFAULT_LIMITS.replace(uri=20)
    with pytest.raises(URILimitError):
        LLMURI.parse("llm://h.example/mmmmm", limits=tight)
    with pytest.raises(ParameterError) as caught:
        LLMURI.parse("llm://h/m?x=%5B%5B1%5D%5D", limits=Limits(depth=1))
    assert (caught.value.code, caught.value.parameter) == ("llm.too-deep", "x")
    assert LLMURI.parse("llm://h/" + "m" * 9000, limits=Limits(uri=10000)).model == "m" * 9000


@pytest.mark.parametrize(
    ("code", "clause", "text"),
    [
        ("uri.bad-character", "RFC 3986 3.4", "llm://h/m?web=a b"),
        ("uri.bad-percent-encoding", "RFC 3986 2.1", "llm://h/m?web=%4"),
    ],
)
def test_a_syntax_error_in_a_value_names_the_parameter_in_its_message_alone(code, clause, text):
    with pytest.raises(URISyntaxError, match=r"\bweb\b") as caught:
        LLMURI.parse(text)
    assert (caught.value.code, caught.value.clause, caught.value.parameter) == (code, clause, None)


def test_an_error_shows_the_way_for_unicode():
    with pytest.raises(URISyntaxError) as caught:
        LLMURI.parse("llm://h/é")
    assert "from_iri" in caught.value.hint


@pytest.mark.requirement("onym-read-h")
def test_an_iri_is_converted_by_from_iri_alone():
    uri = LLMURI.from_iri("llm://bücher.example/modèle?system=ü")
    assert (uri.host, uri.model, uri.system) == ("xn--bcher-kva.example", "modèle", "ü")
    with pytest.raises(URISyntaxError):
        LLMURI.from_iri("llm://b\u0000/é")
    with pytest.raises(LLMURIError):
        LLMURI.from_iri("llm://bücher.example/a:b", strict=True)


@pytest.mark.requirement("llm-4.2.3-a")
@as_subtests(
    ("host", "port"),
    [
        ("localhost", 11434),
        ("LOCALHOST.", 11434),
        ("a.localhost", 11434),
        ("127.0.0.1", 11434),
        ("127.1.2.3", 11434),
        ("[::1]", 11434),
        ("[0:0:0:0:0:0:0.0.0.1]", 11434),
        ("[::2]", 443),
        ("[v1.x]", 443),
        ("notlocalhost", 443),
        ("127.0.0.1.example", 443),
        ("api.openai.com", 443),
        ("128.0.0.1", 443),
    ],
)
def test_the_default_port_is_443_and_11434_for_loopback_hosts(host, port):
    uri = LLMURI.parse(f"llm://{host}/m")
    assert (uri.port, uri.default_port, uri.effective_port) == (None, port, port)
    assert uri.is_loopback is (port == 11434)
    assert LLMURI.parse(f"llm://{host}:99/m").effective_port == 99


@pytest.mark.requirement("llm-4.3-c", "onym-path-b")
def test_an_encoded_slash_and_a_separator_make_different_values():
    encoded, separated = LLMURI.parse("llm://h/a%2Fb"), LLMURI.parse("llm://h/a/b")
    assert encoded.model == separated.model == "a/b"
    assert encoded != separated
    assert (encoded.segments, separated.segments) == (("a/b",), ("a", "b"))


def test_values_are_equal_by_their_normal_form():
    same = [
        "llm://u:k@h.example/m?temp=0.70&stop=a,b",
        "LLM://%75:%6b@H.EXAMPLE:/%6D?temp=0.7&stop=a&stop=b",
        "llm://u:k@h%2Eexample/m?&temp=0.7&stop=%61,b",
    ]
    values = [LLMURI.parse(text) for text in same]
    assert len(set(values)) == 1
    assert LLMURI.parse("llm://[0::1]/m") == LLMURI.parse("llm://[::0:1]/m")
    assert LLMURI.parse("llm://@h/m") == LLMURI.parse("llm://h/m")


@pytest.mark.parametrize(
    "other",
    [
        "llm://u:j@h/m?x=1",
        "llm://v:k@h/m?x=1",
        "llm://u:k@i/m?x=1",
        "llm://u:k@h:443/m?x=1",
        "llm://u:k@h/n?x=1",
        "llm://u:k@h/m?x=1.0",
        "llm://u:k@h/m?x=true",
        "llm://u:k@h/m?x=%221%22",
        "llm://u:k@h/m?x=1#",
    ],
)
def test_values_differ_where_any_part_does(other):
    assert LLMURI.parse("llm://u:k@h/m?x=1") != LLMURI.parse(other)


def test_a_value_equals_no_text():
    assert LLMURI.parse("llm://h/m") != "llm://h/m"


KEY = "sk-proj-Zx9Qw3Er5Ty7Ui1Op"


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a", "llm-10.1-b", "onym-secret-a", "llm-11-b")
@as_subtests(
    "text",
    [
        f"llm://app:{KEY}@h.example/m?temp=1",
        f"llm://:{KEY}@h.example/m",
        f"llm://app:a:{KEY}@h.example/m:x",
        f"llm://{KEY}@h.example/m",
        f"llm://h.example/{KEY}",
        f"llm://h.example/m?api_key={KEY}&temp=1",
        f"llm://h.example/m?token={KEY}&token={KEY}",
        f"llm://h.example/m?headers.Authorization=Bearer%20{KEY}",
        f"llm://h.example/m?tool=%7B%22api_key%22%3A%22{KEY}%22%7D",
        f"llm://h.example/m?tools=%5B%7B%22a%22%3A%7B%22client_secret%22%3A%22{KEY}%22%7D%7D%5D",
        f"llm://h.example/m?stop={KEY}",
        f"llm://h.example/m#{KEY}",
        f"llm://h.example/m?base=llm%3A%2F%2Fapp%3A{KEY}%40i.example%2Fn",
    ],
)
def test_no_form_that_a_person_sees_holds_a_key(text):
    import copy
    import pickle

    uri = LLMURI.parse(text)
    report = check(text)
    shown = [
        str(uri),
        repr(uri),
        f"{uri}",
        f"{uri:>300}",
        repr(uri.params),
        uri.render(),
        str(report.as_dict()),
    ]
    shown += [repr(report), report.fixed(), *map(repr, report.diagnostics), *map(str, report.diagnostics)]
    assert not [form for form in shown if KEY in form]
    assert "***" in str(uri)
    assert KEY in uri.render(reveal=True)
    with pytest.raises(SecretError):
        pickle.dumps(uri)
    assert copy.copy(uri) is uri
    assert copy.deepcopy(uri) is uri


def test_an_app_label_survives_masking():
    assert str(LLMURI.parse("llm://my-app:secret-key@h/m")) == "llm://my-app:***@h/m"


@pytest.mark.requirement("llm-10.1-c")
def test_a_reference_to_a_key_is_no_secret():
    import pickle

    for reference in ("env:MY_KEY", "keyring:onym/me", "file:/run/key", "vault:kv/a#b", "one-password:onym"):
        uri = LLMURI.build("h.example", model="m", auth=reference, temp=1)
        assert uri.auth == reference
        assert str(uri) == uri.render(reveal=True)
        assert pickle.loads(pickle.dumps(uri)) == uri
        assert uri.extra == {}
        assert uri.withheld == ()


def test_what_only_looks_like_a_reference_is_masked():
    assert mask_credentials(f"llm://h/m?x=1&auth={KEY}") == "llm://h/m?x=1&auth=***"
    assert (
        mask_credentials(f"llm://a:{KEY}@h/m?auth=one-password%3Ax")
        == "llm://a:***@h/m?auth=one-password%3Ax"
    )


def test_what_was_read_shows_no_key_while_it_is_being_read():
    assert KEY not in repr(parse_parts(f"llm://:{KEY}@h/m", DEFAULT_LIMITS))


def test_a_value_without_a_key_is_pickled_with_its_diagnostics():
    import pickle

    uri = LLMURI.parse("LLM://h/a:b?x=" + "1" * 40)
    again = pickle.loads(pickle.dumps(uri))
    assert again == uri
    assert again.check() == uri.check()


def _frames_of(error):
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


@pytest.mark.requirement("onym-read-e", "onym-secret-a")
@as_subtests(
    "text",
    [
        f"llm://app:{KEY}@h/m?temp=x",
        f"llm://app:{KEY}%00@h/m",
        f"llm://app:{KEY}/x@h/m",
        f"llm://app:{KEY}@h/m?x={{}}",
        f"llm://app:{KEY}@h/" + "m" * 9000,
        f"llm://app:{KEY}@h/m?auth={KEY}",
        f"llm://h/m?temp={KEY}",
        f"llm://h/m?temp={KEY}&x=%",
        f"llm://h/m?{KEY}=1&{KEY}.x=2",
        f"llm://h:{KEY}/m",
    ],
)
@pytest.mark.parametrize("read", [LLMURI.parse, LLMURI.from_iri])
def test_no_error_and_no_frame_of_its_traceback_holds_a_key(read, text):
    with pytest.raises(URIError) as caught:
        read(text)
    error = caught.value
    assert (error.__context__, error.__cause__) == (None, None)
    frames = [frame for frame in _frames_of(error) if frame.f_code.co_filename != __file__]
    seen = [str(error), repr(error), str(error.as_dict())]
    seen += [repr(value) for frame in frames for value in frame.f_locals.values()]
    assert len(frames) == 1
    assert not [form for form in seen if KEY in form]


def test_an_error_names_a_parameter_but_no_key_in_its_place():
    with pytest.raises(ParameterError) as caught:
        LLMURI.parse(f"llm://h/m?{KEY}=%7B")
    assert caught.value.parameter == "***"
    with pytest.raises(ParameterError) as long:
        LLMURI.parse(f"llm://h/m?{'n' * 100}=%7B")
    assert long.value.parameter == "n" * 63 + "…"
    with pytest.raises(ParameterError) as odd:
        LLMURI.parse("llm://h/m?a%0Ab=%7B")
    assert odd.value.parameter == "a\\x0ab"


def test_the_key_is_a_secret():
    uri = LLMURI.parse("llm://a:k@h/m")
    assert uri.key == Secret("k")
    assert LLMURI.parse("llm://a@h/m").key is None


def test_limits_are_values_with_bounds():
    import pickle

    from onym.errors import UsageError

    limits = Limits(depth=5)
    assert limits == DEFAULT_LIMITS.replace(depth=5)
    assert len({limits, Limits(depth=5), DEFAULT_LIMITS}) == 2
    assert limits != "limits"
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert "depth=5" in repr(limits)
    with pytest.raises(AttributeError):
        limits.depth = 6
    with pytest.raises(AttributeError):
        del limits.depth
    for wrong in ({"uri": 0}, {"value": -1}, {"json": 1.5}, {"depth": True}, {"depth": 201}, {"number": 641}):
        with pytest.raises(UsageError):
            Limits(**wrong)
