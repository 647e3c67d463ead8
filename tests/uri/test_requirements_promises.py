"""What the reader and writer of URIs hold of the draft's sections 8, 10.1 and 11, and of Onym's promises."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onym
from onym.errors import LLMURIError, OnymError, SecretError, URIError, URISyntaxError
from onym.testing.strategies import llm_uris
from onym.uri.generic import URI
from onym.uri.llm import LLMURI, check, parse
from onym.uri.redact import redact

KEY = "sk-made-up-0123456789"
#: the draft's own grammar: 3.2 and 4.2.1, with the reg-name, query and fragment of RFC 3986. An empty label
#: before a key is the one thing that Onym adds
_WORD = r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+"
_IN_THE_GRAMMAR = re.compile(
    rf"llm://(?:(?:{_WORD})?(?::{_WORD})?@)?(?:\[[0-9A-Za-z:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-F]{{2}})+)"
    rf"(?::[0-9]+)?/{_WORD}(?:/{_WORD})*(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{{2}})*)?"
    r"(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*)?"
)


# -- 8


@pytest.mark.requirement("llm-8-a", "rfc3986-2.1-a", "onym-read-h")
@pytest.mark.parametrize(
    "text", ["llm://h/m?x=%", "llm://h/m?x=%4", "llm://h/m?x=%GG", "llm://h/a b", "llm://h/é"]
)
def test_what_rfc_3986_section_2_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(URISyntaxError):
        parse(text)


@pytest.mark.requirement("onym-read-h", "llm-8-f")
def test_an_iri_becomes_a_uri_in_utf_8_and_its_host_by_idna() -> None:
    uri = LLMURI.from_iri("llm://bücher.example/modèle?system=größe")
    assert uri.host == "xn--bcher-kva.example"
    assert (uri.model, uri.system) == ("modèle", "größe")
    assert str(uri).isascii()
    assert "mod%C3%A8le" in str(uri)


@pytest.mark.requirement("llm-8-f")
def test_non_ascii_parts_are_written_as_utf_8() -> None:
    uri = LLMURI.build(host="h", model="ö", label="é", system="€")
    assert str(uri) == "llm://%C3%A9@h/%C3%B6?system=%E2%82%AC"


@pytest.mark.requirement("llm-8-b")
def test_everything_outside_unreserved_is_encoded_in_the_model() -> None:
    everything = "".join(map(chr, range(0x21, 0x7F))).replace("/", "")
    path = str(LLMURI.build(host="h", model=f"a{everything}")).removeprefix("llm://h/")
    assert re.fullmatch(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+", path)
    assert parse(f"llm://h/{path}").model == f"a{everything}"


@pytest.mark.requirement("llm-8-b", "onym-read-a", "onym-read-b")
def test_a_raw_colon_in_a_model_is_read_reported_mended_and_refused_by_strict_reading() -> None:
    report = check("llm://h/llama3:8b")
    found = report.diagnostics[0]
    assert (found.code, found.severity, found.start, found.end) == ("llm.raw-model", "error", 14, 15)
    assert found.clause == "draft-levy-llm-uri-scheme-00 3.2"
    assert found.fix == report.fixed() == "llm://h/llama3%3A8b"
    assert parse("llm://h/llama3:8b").model == "llama3:8b"
    with pytest.raises(LLMURIError) as caught:
        parse("llm://h/llama3:8b", strict=True)
    assert caught.value.code == found.code


@pytest.mark.requirement("llm-8-d", "onym-userinfo-a")
def test_colons_and_at_signs_of_userinfo_are_written_encoded_and_read_back() -> None:
    uri = LLMURI.build(host="h", model="m", label="a@b:c", key="k:1@2")
    assert uri.render(reveal=True) == "llm://a%40b%3Ac:k%3A1%402@h/m"
    again = parse(uri.render(reveal=True))
    assert (again.label, again.key and again.key.reveal()) == ("a@b:c", "k:1@2")


@pytest.mark.requirement("onym-userinfo-a")
def test_userinfo_is_split_at_its_first_raw_colon() -> None:
    uri = parse("llm://a%3Ab:c:d@h/m")
    assert (uri.label, uri.key and uri.key.reveal()) == ("a:b", "c:d")


@pytest.mark.requirement("llm-8-e")
def test_a_structured_value_is_written_fully_encoded() -> None:
    text = str(LLMURI.build(host="h", model="m", params={"x": [{"a": "b c"}, 1]}))
    assert re.fullmatch(r"llm://h/m\?x=(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+", text)
    assert parse(text).params["x"] == [{"a": "b c"}, 1]


@pytest.mark.requirement("onym-read-c", "llm-8-a")
@given(llm_uris())
def test_what_is_written_is_in_the_drafts_grammar_and_reads_back_equal(text: str) -> None:
    uri = parse(text)
    written = uri.render(reveal=True)
    assert _IN_THE_GRAMMAR.fullmatch(written)
    assert parse(written) == uri


@pytest.mark.requirement("onym-read-d")
@given(llm_uris())
def test_normalizing_twice_is_normalizing_once(text: str) -> None:
    once = onym.normalize(text)
    assert onym.normalize(once) == once
    assert onym.normalize(once).render(reveal=True) == once.render(reveal=True)


@pytest.mark.requirement("onym-host-a")
def test_a_word_is_an_alias_until_it_has_a_port() -> None:
    assert onym.normalize("llm://openai/gpt-5").host == "api.openai.com"
    assert onym.normalize("llm://openai:8443/gpt-5").host == "openai"
    assert onym.normalize("llm://no-such-alias/gpt-5").host == "no-such-alias"


# -- 10.1 and 11


@pytest.mark.requirement("llm-10.1-b", "onym-secret-a")
def test_a_uri_with_a_key_is_not_pickled_and_its_key_is_not_walked_into() -> None:
    uri = parse(f"llm://my-app:{KEY}@h/m")

    @dataclasses.dataclass
    class Holder:
        uri: LLMURI
        key: object

    holder = Holder(uri, uri.key)
    assert KEY not in str(dataclasses.asdict(holder)) + repr(holder) + repr(vars(holder))
    assert not hasattr(uri.key, "__dict__")
    for value in (uri, uri.key):
        with pytest.raises(SecretError):
            pickle.dumps(value)
    assert copy.deepcopy(uri) == uri


@pytest.mark.requirement("llm-10.1-b", "onym-read-e")
@pytest.mark.parametrize(
    "text",
    [
        f"llm://my-app:{KEY}@h/m?temp=hot",
        f"llm://my-app:{KEY}@h:99999/m",
        f"llm://my-app:{KEY}%@h/m",
        f"llm://my-app:{KEY}/@h/m",
        f"https://my-app:{KEY}@h/m",
        f"llm://my-app:{KEY}@h/m?temp={KEY}",
    ],
)
def test_an_error_names_place_and_clause_and_never_the_key(text: str) -> None:
    with pytest.raises(URIError) as caught:
        parse(text)
    error = caught.value
    assert error.component is not None
    assert error.offset is not None
    assert error.clause is not None
    assert KEY not in f"{error}{error!r}{error.as_dict()}{error.__cause__}{error.__context__}"


@pytest.mark.requirement("llm-11-b")
def test_each_part_that_tells_something_can_be_taken_out_before_sharing() -> None:
    uri = parse(f"llm://my-app:{KEY}@api.openai.com/gpt-5?temp=0.2&user=u#code-review")
    shared = uri.without_key().with_label(None).without_params("temp", "user").with_fragment(None)
    assert shared.render(reveal=True) == "llm://api.openai.com/gpt-5"
    assert redact(f"see {uri.render(reveal=True)}!") == f"see {uri}!"


# -- promises about any text


@pytest.mark.requirement("onym-read-f", "onym-read-a")
@given(st.one_of(st.text(), st.text().map(lambda text: f"llm://{text}"), llm_uris()))
def test_any_text_gives_a_value_or_an_error_of_onym_and_check_never_raises(text: str) -> None:
    report = check(text)
    try:
        uri = parse(text)
    except OnymError:
        assert report.uri is None
        assert report.errors
    else:
        assert report.uri == uri


@pytest.mark.requirement("onym-read-g", "onym-secret-b")
@pytest.mark.parametrize(
    "work",
    [
        lambda n: check("llm://h/m?" + "a=1&" * n),
        lambda n: check("llm://" + "a:" * n + "@h/m"),
        lambda n: check("llm://h/" + "%41" * n),
        lambda n: URI.parse("/" + "../" * n, max_length=10**7).normalize(),
        lambda n: redact("llm://a:" * n),
        lambda n: redact("sk-" * n),
    ],
)
def test_forty_times_the_text_takes_far_less_than_its_square(work: Callable[[int], object]) -> None:
    def seconds(n: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            with contextlib.suppress(OnymError):
                work(n)
            best = min(best, time.thread_time() - start)
        return best

    small, large = seconds(500), seconds(20_000)
    # linear time is 40 times as long, quadratic time 1,600 times
    assert large < 400 * small + 0.1
