"""No text breaks the reader: an answer, or an error of Onym's own, and soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import URIError
from onym.testing.strategies import near_llm_texts
from onym.uri.llm import LLMURI, check
from onym.uri.llm_syntax import LOOSE_LIMITS, parse_query
from onym.uri.parameters import DEFAULT_LIMITS
from support import as_subtests, linear_enough

LONG = DEFAULT_LIMITS.replace(uri=100_000)
COMPONENTS = ("scheme", "userinfo", "host", "port", "path", "query", "fragment")


def _refusal(read: Callable[[], object]) -> URIError | None:
    """What `read` raises of Onym's own; anything else goes through."""
    try:
        read()
    except URIError as error:
        return error
    return None


def _exercise(text: str) -> None:
    """Everything that can be asked of a text."""
    report = check(text)
    json.dumps(report.as_dict())
    for found in report.diagnostics:
        assert str(found)
        assert found.as_error().code == found.code
    error = _refusal(lambda: LLMURI.parse(text))
    if error is None:
        _exercise_value(LLMURI.parse(text))
        return
    assert report.uri is None
    assert error.code == report.diagnostics[0].code
    assert error.component in COMPONENTS
    assert error.offset is not None
    assert 0 <= error.offset <= len(text)
    assert error.clause
    assert str(error)


def _exercise_value(uri: LLMURI) -> None:
    # triplets are longer than what they stand for, so the limit on the whole does not hold
    assert LLMURI.parse(uri.render(reveal=True), limits=LONG) == uri
    assert str(uri).startswith("llm://")
    assert repr(uri).startswith("LLMURI('llm://")
    assert hash(uri) == hash(uri.normalize().with_port(uri.port).with_host(uri.host_text))
    assert len(uri.params.items_raw()) >= len(uri.params)
    assert set(uri.withheld) <= set(uri.params)
    json.dumps(uri.extra)
    assert uri.normalize().normalize() == uri.normalize()
    assert uri.effective_port


@pytest.mark.requirement("onym-read-f", "onym-read-e")
@given(near_llm_texts())
def test_texts_near_to_llm_uris_are_read_or_refused(text):
    _exercise(text)


@pytest.mark.requirement("onym-read-f")
@given(st.text(st.characters()))
def test_any_text_is_read_or_refused(text):
    _exercise(text)


@pytest.mark.requirement("onym-read-f")
@given(st.text(st.characters(codec="ascii"), max_size=60).map("llm://h/m?{}".format))
def test_any_query_is_read_or_refused(text):
    _exercise(text)


@pytest.mark.requirement("onym-read-f")
@given(st.text(st.characters()))
def test_any_iri_is_read_or_refused(text):
    for iri in (text, f"llm://{text}/m", f"llm://h/{text}"):
        error = _refusal(lambda: LLMURI.from_iri(iri))  # noqa: B023  called at once
        assert error is None or error.code


@pytest.mark.requirement("onym-read-f")
@given(st.text(st.sampled_from('{}[]",:\\u0123456789eE.+-trufalsn dD8'), max_size=40))
def test_any_json_is_read_or_refused(text):
    query = "x=" + "".join(f"%{ord(character):02X}" for character in text)
    error = _refusal(lambda: parse_query(query))
    if error is None:
        assert json.dumps(parse_query(query).nested(), allow_nan=False)
    else:
        assert error.parameter == "x"


HUGE = {
    "letters": "a" * 1_000_000,
    "model": "llm://h/" + "m" * 1_000_000,
    "segments": "llm://h" + "/m" * 500_000,
    "slashes": "llm://h" + "/" * 1_000_000,
    "query": "llm://h/m?" + "&" * 1_000_000,
    "equals": "llm://h/m?" + "=" * 1_000_000,
    "triplets": "llm://h/m?x=" + "%61" * 1_000_000,
    "bad triplets": "llm://h/m?x=" + "%" * 1_000_000,
    "stops": "llm://h/m?stop=" + "a," * 500_000,
    "digits": "llm://h/m?max_tokens=" + "9" * 1_000_000,
    "brackets": "llm://h/m?x=" + "%5B" * 500_000 + "%5D" * 500_000,
    "ats": "llm://" + "@" * 1_000_000 + "/m",
    "colons": "llm://" + ":" * 1_000_000 + "/m",
    "literal": "llm://[" + ":" * 1_000_000 + "]/m",
    "unicode": "llm://h/" + "é" * 1_000_000,
    "surrogates": "llm://h/" + "\ud800" * 1_000_000,
    "blanks": " " * 1_000_000,
}

FULL = {
    "pairs": "llm://h/m?" + "&".join(f"temprature{i}=a/b:{i}" for i in range(256)),
    "slips": "llm://h/m?" + "&".join(f"maxtoken{i}={i}" for i in range(256)),
    "raw segments": "llm://h" + "/a:b" * 2000,
    "raw key": "llm://" + "a:" * 4000 + "@h/m",
    "dots": "llm://h/m?" + "&".join(f"{'a.' * 25}k{i}=1" for i in range(140)),
    "quotes": "llm://h/m?x=%5B" + "%22%5C" * 680,
    "backslashes": "llm://h/m?x=%5B%22" + "%5C" * 2000,
    "brackets": "llm://h/m?x=" + "%5B" * 1000 + "%5D" * 1000,
    "empty pairs": "llm://h/m?" + "&" * 255,
    "triplets": "llm://h/" + "%61" * 2700,
    "ats": "llm://" + "@" * 8000 + "h/m",
    "reserved": "llm://h/m?x=" + "/" * 4000 + "&y=" + "?" * 4000,
}


@pytest.mark.requirement("onym-read-g", "onym-read-f")
@as_subtests("text", [*HUGE.values(), *FULL.values()], ids=[*HUGE, *(f"full {name}" for name in FULL)])
def test_no_text_takes_long(text):
    with linear_enough():
        _exercise(text)


@pytest.mark.requirement("onym-read-g")
def test_the_time_to_read_grows_with_the_length_alone():
    def best(text: str) -> float:
        times = []
        for _ in range(5):
            start = time.thread_time()
            _refusal(lambda: LLMURI.parse(text, limits=LOOSE_LIMITS))
            times.append(time.thread_time() - start)
        return min(times)

    shapes = [
        lambda n: "llm://" + "a" * n,
        lambda n: "llm://h" + "/a" * (n // 2),
        lambda n: "llm://" + "a:" * (n // 2) + "@h/m",
        lambda n: "llm://h/m?" + "x=%41&" * (n // 6),
        lambda n: "llm://h/m?x=%5B" + "%22%5C" * (n // 6),
        lambda n: "llm://h/m?x=%5B%22" + "%5C" * (n // 3),
        lambda n: "llm://h/m?" + "&".join(f"a.b{i}=1" for i in range(n // 8)),
        lambda n: "llm://h/" + "%41" * (n // 3) + "%",
    ]
    for shape in shapes:
        small, large = best(shape(4_000)), best(shape(160_000))
        # linear time is 40 times as long, quadratic time 1,600 times
        assert large < 400 * small + 0.1
