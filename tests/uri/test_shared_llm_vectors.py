"""The shared vectors that concern llm URIs behave as their records say."""

from __future__ import annotations

import pytest

from onym.errors import URIError
from onym.uri.llm import LLMURI, check
from support import as_subtests, generated, linear_enough, load_shared

PARAMS = load_shared("bad_params.json")["cases"]
SYNTAX = load_shared("scheme_syntax.json")["llm"]
REDACTION = load_shared("redaction.json")["cases"]

#: what reading refuses beyond the grammar: no URI can be used that has it
SEMANTIC = {
    "llm.no-model",
    "llm.empty-segment",
    "llm.dot-segment",
    "llm.control-character",
    "llm.bad-port",
    "uri.bad-utf8",
}


def _read(text):
    try:
        return LLMURI.parse(text), None
    except URIError as error:
        return None, error


def _typed(uri, name):
    value = uri.params.nested().get(name, uri.params.get(name))
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.requirement("llm-10.3-a", "llm-10.3-b", "llm-10.3-c", "llm-10.3-d", "llm-10.3-e", "llm-4.4-c")
@as_subtests("case", PARAMS, ids=[case["id"] for case in PARAMS])
def test_a_parameter_has_the_outcome_of_its_record(case):
    text = generated(case, "uri")
    with linear_enough(2):
        uri, error = _read(text)
    if error is not None:
        assert "error" in case["accept"]
        if case["param"] is not None and case["expected"] == "error":
            assert case["param"] in (error.parameter or error.message)
        return
    assert {"accepted", "pass-through"} & set(case["accept"])
    name = case["param"]
    if name in ("api-key", "app-label", "model"):
        return
    if name is not None:
        name = name.replace("\\u0000", "\0")
        assert name in uri.params.nested() or name in uri.params
    if "value" in case:
        assert _typed(uri, name) == case["value"]


@as_subtests("case", PARAMS, ids=[case["id"] for case in PARAMS])
def test_a_check_of_a_parameter_is_done_in_time(case):
    with linear_enough(2):
        check(generated(case, "uri")).as_dict()


def _outcome(text: str, *, strict: bool) -> tuple[str, str | None]:
    try:
        LLMURI.parse(text, strict=strict)
    except URIError as error:
        return "reject", error.code
    return "accept", None


@pytest.mark.requirement("llm-4.1-a", "llm-4.3-a", "onym-read-a", "onym-read-b")
@pytest.mark.parametrize("strict", [False, True])
@as_subtests("case", SYNTAX, ids=[case["id"] for case in SYNTAX])
def test_a_text_is_read_as_its_record_says_or_refused_for_what_it_means(case, strict):
    outcome, code = _outcome(case["uri"], strict=strict)
    expected = case["expected_strict" if strict else "expected_generic"]
    assert outcome == expected or (expected == "accept" and code in SEMANTIC)


@as_subtests("case", [case for case in SYNTAX if "parts" in case], ids=lambda case: case["id"])
def test_a_text_has_the_parts_of_its_record(case):
    if _outcome(case["uri"], strict=False)[0] == "reject":
        return
    uri, parts = LLMURI.parse(case["uri"]), case["parts"]
    assert uri.segments == (parts["model"], *parts["sub_paths"])
    assert uri.label == parts.get("app_label")
    assert (uri.key.reveal() if uri.key else None) == (parts.get("api_key") or None)
    assert uri.fragment == parts["fragment"]
    assert uri.port == (int(parts["port"]) if parts["port"] else None)
    if "%" not in parts["host"]:
        assert uri.host == parts["host"].lower()


@pytest.mark.requirement("llm-4.2.1-c", "llm-10.1-a", "onym-secret-a")
@as_subtests("case", REDACTION, ids=[case["id"] for case in REDACTION])
def test_reading_a_text_with_a_secret_shows_it_nowhere(case):
    text = generated(case, "input")
    if not text.lower().startswith("llm:") or len(text) > 8192 or case.get("known_secret"):
        return
    report = check(text)
    forms = [str(report.as_dict()), repr(report), *map(str, report.diagnostics)]
    if report.uri is not None:
        forms += [str(report.uri), repr(report.uri), repr(report.uri.params)]
    with_secrets = [form for form in forms for secret in case["must_be_absent"] if secret in form]
    assert not with_secrets
