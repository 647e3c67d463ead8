"""What holds for every llm URI, drawn by the public strategies."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onym.testing import strategies as llm
from onym.uri.generic import split_uri
from onym.uri.llm import LLMURI, check
from onym.uri.secret import Secret

_PART = r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+"
#: draft 3.2 and 4.2.1; host, port, query and fragment are RFC 3986's, judged by `split`
_DRAFT_GRAMMAR = re.compile(
    rf"llm://(?:{_PART}(?::{_PART})?@)?[^@/?#]+/{_PART}(?:/{_PART})*(?:\?[^#]*)?(?:#.*)?", re.DOTALL
).fullmatch
_PAIRS = re.compile(rf"(?:{_PART})?=(?:(?:{_PART}|,)*)").fullmatch


@pytest.mark.requirement("onym-read-c", "llm-8-a", "llm-8-b", "llm-8-c", "llm-8-d", "llm-8-e", "llm-8-f")
@given(llm.llm_uris())
def test_what_is_written_is_inside_the_grammar_of_the_draft_and_reads_back_equal(uri):
    text = uri.render(reveal=True)
    parts = split_uri(text, "URI")
    assert _DRAFT_GRAMMAR(text)
    assert all(_PAIRS(pair) for pair in (parts.query or "=").split("&"))
    again = LLMURI.parse(text, strict=True)
    assert again == uri
    assert hash(again) == hash(uri)
    assert again.render(reveal=True) == text
    assert (again.extra, again.withheld, again.params) == (uri.extra, uri.withheld, uri.params)


@pytest.mark.requirement("onym-read-d")
@given(llm.llm_uris(), st.dictionaries(llm.llm_hosts(), llm.llm_hosts(), max_size=2))
def test_normalising_twice_is_normalising_once(uri, aliases):
    assume(not set(aliases) & set(aliases.values()))
    once = uri.normalize(aliases)
    twice = once.normalize(aliases)
    assert twice == once
    assert twice.render(reveal=True) == once.render(reveal=True)


@pytest.mark.requirement("onym-read-a", "onym-read-c")
@given(llm.llm_texts())
def test_every_spelling_reads_and_its_writing_reads_back_equal(text):
    uri = LLMURI.parse(text)
    again = LLMURI.parse(uri.render(reveal=True))
    assert again == uri
    assert again.params == uri.params
    report = check(text)
    assert report.uri == uri
    assert all(0 <= found.start <= found.end <= len(text) for found in report.diagnostics)
    assert [found.start for found in report.diagnostics] == sorted(
        found.start for found in report.diagnostics
    )


@given(llm.llm_texts())
def test_what_is_fixed_has_no_error_that_had_a_fix(text):
    report = check(text)
    fixed = report.fixed(reveal=True)
    if fixed is not None:
        had_fix = {found.code for found in report.errors if found.fix is not None}
        assert not had_fix & {found.code for found in check(fixed).errors}


@given(llm.llm_texts())
def test_strict_reading_refuses_exactly_what_has_an_error(text):
    report = check(text)
    strict = check(text, strict=True)
    assert (strict.uri is None) is bool(report.errors)
    assert strict.diagnostics == report.diagnostics


@pytest.mark.requirement("onym-secret-a", "llm-10.1-a")
@given(llm.llm_uris(), st.text("ABCdef0123456789_-", min_size=12))
def test_no_writing_holds_the_key_unless_it_is_asked_for(uri, key):
    known = uri.with_key(key)
    public = uri.without_key().render(reveal=True)
    assume(key not in public)
    assert key not in str(known) + repr(known) + f"{known}" + str(check(known).as_dict())
    assert key in known.render(reveal=True)
    assert known.key == Secret(key)
    assert known.without_key() == uri.without_key()


@given(llm.llm_models(), llm.llm_labels(), llm.llm_keys(), llm.llm_hosts(), st.integers(1, 65535))
def test_parts_come_back_as_they_were_given(model, label, key, host, port):
    uri = LLMURI.build(host, model=model, label=label, key=key, port=port)
    assert (uri.segments, uri.model) == (model, "/".join(model))
    assert (uri.label, uri.key, uri.host, uri.port) == (label, Secret(key), host, port)


@pytest.mark.requirement("llm-6-a", "llm-10.3-b", "llm-10.3-c")
@given(llm.well_known_params())
def test_well_known_values_come_back_with_their_types(params):
    uri = LLMURI.build("h", model="m", params=params)
    for name, value in params.items():
        assert getattr(uri, name) == value
        assert type(getattr(uri, name)) is type(value)


@pytest.mark.requirement("llm-4.4-b", "llm-4.4-e", "onym-query-f")
@given(llm.extra_params())
def test_other_values_come_back_with_their_types(params):
    uri = LLMURI.build("h", model="m", params=params)
    nested = uri.params.nested()
    assert nested == params
    assert json.dumps(nested) == json.dumps(params)


@settings(max_examples=30)
@given(llm.llm_uris(), llm.llm_uris())
def test_equal_values_have_equal_hashes_and_texts(one, other):
    same = one.render(reveal=True) == other.render(reveal=True)
    assert (one == other) is same
    if same:
        assert hash(one) == hash(other)
