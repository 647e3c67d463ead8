"""Normalisation: RFC 3986 6.2.2 and 6.2.3."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given

from onym.testing import strategies as ost
from onym.uri.generic import URI, normalize_parts, recompose_uri, split_uri
from support import as_subtests, linear_enough, load_own

CASES: dict[str, Any] = load_own("uri_normalize.json")


@pytest.mark.requirement("rfc3986-6.2.2-a", "rfc3986-6.2.2-b", "rfc3986-6.2.2-c", "rfc3986-6.2.2-d")
@pytest.mark.requirement("rfc3986-6.2.3-a")
@as_subtests("case", CASES["same"], ids=lambda case: case["id"])
def test_a_text_has_its_normal_form_and_that_is_its_own(case: dict[str, Any]) -> None:
    assert str(URI.parse(case["text"]).normalize()) == case["normal"]
    assert str(URI.parse(case["normal"]).normalize()) == case["normal"]


@as_subtests("case", CASES["different"], ids=lambda case: case["id"])
def test_what_may_name_different_things_keeps_different_forms(case: dict[str, Any]) -> None:
    assert URI.parse(case["a"]).normalize() != URI.parse(case["b"]).normalize()


@given(ost.uri_references())
@example("x:/a/..//b")
@example("x/../a:b")
@example("a/..//b")
@example("//%31.2.3.4:00")
@example("urn:A/../b:%41")
def test_a_normal_form_is_readable_with_the_same_parts_and_is_its_own(text: str) -> None:
    parts = normalize_parts(split_uri(text))
    assert split_uri(recompose_uri(parts)) == parts
    assert normalize_parts(parts) == parts


@given(ost.uri_references())
def test_a_normal_form_has_no_capital_where_case_says_nothing(text: str) -> None:
    uri = URI.parse(text).normalize()
    assert uri.scheme is None or uri.scheme == uri.scheme.lower()
    host = re.sub("%..", "", uri.host or "")
    assert host == host.lower()
    for triplet in re.findall("%..", str(uri)):
        assert triplet == triplet.upper()


@given(ost.uri_references())
def test_normalising_keeps_what_is_there_and_what_is_absent(text: str) -> None:
    before, after = URI.parse(text), URI.parse(text).normalize()
    for name in ("scheme", "authority", "userinfo", "host", "query", "fragment"):
        assert (getattr(before, name) is None) == (getattr(after, name) is None)


@pytest.mark.parametrize("unit", ["../", "a/../", "%7e", "%c3%A9", "./", "//", "a/"])
def test_a_megabyte_is_normalised_in_linear_time(unit: str) -> None:
    for prefix in ("", "/", "x:", "x://h/", "//"):
        parts = split_uri(prefix + unit * (200_000 // len(unit)), max_length=300_000)
        with linear_enough(5):
            normalize_parts(parts)
