"""Reference resolution: RFC 3986 5.2, with the examples of 5.4."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from onym.errors import URISyntaxError
from onym.testing import strategies as ost
from onym.uri.components import normalize_triplets
from onym.uri.generic import URI, recompose_uri, remove_dot_segments, resolve_reference, split_uri
from support import as_subtests, linear_enough, load_own

CASES: dict[str, Any] = load_own("uri_resolve.json")


@pytest.mark.requirement("rfc3986-5.2-a", "rfc3986-5.2-b", "rfc3986-5.4-a")
@as_subtests("case", CASES["valid"], ids=lambda case: case["id"])
def test_a_reference_resolves_to_its_target(case: dict[str, Any]) -> None:
    target = URI.parse(case["base"]).resolve(case["ref"], strict=case["strict"])
    assert str(target) == case["target"]
    assert target == URI.parse(case["target"])


@pytest.mark.parametrize("case", CASES["invalid"], ids=lambda case: case["id"])
def test_a_base_without_scheme_and_a_bad_reference_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(URISyntaxError) as caught:
        URI.parse(case["base"]).resolve(case["ref"])
    error = caught.value
    assert {"code": error.code, "component": error.component, "offset": error.offset} == case["error"]
    assert error.clause == case["clause"]


@pytest.mark.requirement("rfc3986-5.4-a")
def test_all_examples_of_the_rfc_are_among_the_vectors() -> None:
    examples = [case for case in CASES["valid"] if case["clause"].startswith("RFC 3986 5.4")]
    assert len(examples) == 43  # 42, one of them strict and not


def literal_5_2_4(path: str) -> str:
    """The algorithm as the RFC words it: quadratic, and obviously the same."""
    source, output = path, ""
    while source:
        if source.startswith(("../", "./")):
            source = source[source.index("/") + 1 :]
        elif source.startswith("/./") or source == "/.":
            source = "/" + source[3:]
        elif source.startswith("/../") or source == "/..":
            source = "/" + source[4:]
            output = output[: max(output.rfind("/"), 0)]
        elif source in (".", ".."):
            source = ""
        else:
            end = source.find("/", 1)
            end = len(source) if end < 0 else end
            output, source = output + source[:end], source[end:]
    return output


@pytest.mark.requirement("rfc3986-5.2-c")
@given(st.text("./a", max_size=24))
@example("/a/b/c/./../../g")
@example("mid/content=5/../6")
@example(".//..")
@example("a/..//b")
def test_dot_segments_are_removed_as_the_rfc_words_it(path: str) -> None:
    assert remove_dot_segments(path) == literal_5_2_4(path)


def has_dot_segment(path: str) -> bool:
    return any(segment in (".", "..") for segment in path.split("/"))


@given(ost.uris(), ost.uri_references(), st.booleans())
def test_a_target_is_a_uri_without_dot_segments(base: str, reference: str, strict: bool) -> None:
    target = URI.parse(base).resolve(reference, strict=strict)
    assert URI.parse(str(target), "URI") == target
    if not reference:
        return  # the path of the base stands as it is
    path = target.path.removeprefix("/.") if target.path.startswith("/.//") else target.path
    assert not has_dot_segment(path) or path == URI.parse(base).path


@given(ost.uris(), ost.uris())
def test_a_reference_with_a_scheme_takes_nothing_from_the_base(base: str, reference: str) -> None:
    target = URI.parse(base).resolve(reference)
    assert (target.scheme, target.authority, target.query, target.fragment) == (
        URI.parse(reference).scheme,
        URI.parse(reference).authority,
        URI.parse(reference).query,
        URI.parse(reference).fragment,
    )


@given(ost.uris(), ost.uri_references())
def test_resolving_a_target_again_changes_nothing(base: str, reference: str) -> None:
    target = URI.parse(base).resolve(reference)
    assume(reference.partition("#")[0].partition("?")[0])
    assert URI.parse(base).resolve(target) == target


@given(ost.uris())
def test_the_empty_reference_is_the_base_without_its_fragment(base: str) -> None:
    assert str(URI.parse(base).resolve("")) == base.partition("#")[0]


@given(ost.hosts(), ost.relative_references())
def test_a_normal_reference_has_the_same_target(host: str, reference: str) -> None:
    base = URI.parse(f"x://{host}/a/b/c?q")
    # resolution decodes nothing: to it, %2e is a segment like any other
    decoded = URI.parse(normalize_triplets(reference))
    assert base.resolve(decoded).normalize() == base.resolve(decoded.normalize()).normalize()


def test_a_reference_may_be_text_or_a_value() -> None:
    base = URI.parse("http://a/b")
    assert base.resolve(URI.parse("c")) == base.resolve("c") == URI.parse("http://a/c")


def test_a_value_longer_than_the_default_limit_resolves() -> None:
    long = URI.parse("a" * 100_000, max_length=200_000)
    assert len(str(URI.parse("http://a/").resolve(long))) == 100_009


def test_parts_resolve_without_values() -> None:
    assert recompose_uri(resolve_reference(split_uri("http://a/b"), split_uri("c"))) == "http://a/c"


@pytest.mark.parametrize("unit", ["../", "a/../", "./", "/..", "//", "a/b/c/.."])
def test_a_megabyte_of_segments_resolves_in_linear_time(unit: str) -> None:
    reference = split_uri(unit * (1_000_000 // len(unit)), max_length=2_000_000)
    with linear_enough():
        resolve_reference(split_uri("http://a/b/c"), reference)
