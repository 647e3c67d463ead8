"""What `check` finds, where, by which clause, and how it would put it right."""

from __future__ import annotations

import pytest

from onym.errors import LLMURIError, ParameterError
from onym.uri.llm import LLMURI, Report, check
from onym.uri.llm_check import Diagnostic
from onym.uri.parameters import Limits
from support import as_subtests, load_own

CASES = load_own("llm_check.json")["cases"]
DRAFT = "draft-levy-llm-uri-scheme-00 "


def _found(diagnostic: Diagnostic) -> dict[str, object]:
    clause = (diagnostic.clause or "").removeprefix(DRAFT)
    return {
        "severity": diagnostic.severity,
        "code": diagnostic.code,
        "clause": clause,
        "start": diagnostic.start,
        "end": diagnostic.end,
        "fix": diagnostic.fix,
    }


@pytest.mark.requirement("llm-4.1-c", "llm-8-b", "llm-8-c", "llm-8-d", "llm-4.4-d", "llm-6-f", "onym-read-a")
@pytest.mark.requirement("rfc3986-6.2.2-a", "rfc3986-6.2.2-b", "rfc3986-6.2.2-c")
@as_subtests("case", CASES, ids=[case["id"] for case in CASES])
def test_a_text_has_the_findings_of_its_vector(case):
    report = check(case["text"])
    assert [_found(diagnostic) for diagnostic in report.diagnostics] == case["found"]
    assert report.fixed() == case["fixed"]


@as_subtests("case", CASES, ids=[case["id"] for case in CASES])
def test_a_fix_is_readable_and_has_lost_its_finding(case):
    report = check(case["text"])
    for diagnostic in report.diagnostics:
        if diagnostic.fix is not None:
            left = check(diagnostic.fix)
            assert left.uri is not None
            assert diagnostic.code not in [other.code for other in left.diagnostics]


@as_subtests("case", CASES, ids=[case["id"] for case in CASES])
def test_value_and_text_have_the_same_findings(case):
    report = check(case["text"])
    if report.uri is not None:
        assert report.uri.check() == report.diagnostics
        assert check(report.uri).diagnostics == report.diagnostics


def test_a_report_counts_by_severity():
    report = check("LLM://u:k@h/a:b?x=1&x=2")
    assert [len(part) for part in (report.errors, report.warnings, report.notes)] == [1, 2, 1]
    assert not report.ok
    assert report.uri is not None
    assert check("llm://h/m?x=1&x=2").ok
    assert repr(report) == "<Report of 1 errors, 2 warnings, 1 notes>"


def test_a_refusal_is_the_one_error_of_a_report_without_value():
    report = check("llm://h/m?temp=3&x=1")
    assert report.uri is None
    assert not report.ok
    (found,) = report.diagnostics
    assert (found.code, found.parameter, found.severity) == ("llm.out-of-range", "temp", "error")
    assert (found.start, found.end) == (15, 16)
    assert check("llm://h/m?x=1&temp=3#f").diagnostics[0].end == 20
    assert check("llm://h/m?temp=3").diagnostics[0].end == 16


def test_strict_withholds_the_value_where_there_is_an_error():
    assert check("llm://h/a:b", strict=True).uri is None
    assert check("LLM://h/m", strict=True).uri is not None


def test_limits_count_in_a_check_too():
    assert check("llm://h/m?x=abc", limits=Limits(uri=5)).diagnostics[0].code == "uri.too-long"


@pytest.mark.requirement("llm-4.4-g")
def test_a_long_uri_is_noted_before_intermediaries_cut_it():
    short, long = "llm://h/m?x=" + "a" * 2036, "llm://h/m?x=" + "a" * 2037
    assert check(short).diagnostics == ()
    (found,) = check(long).diagnostics
    assert (found.code, found.severity, found.start, found.end) == ("llm.long", "note", 0, 2049)


KEY = "sk-proj-Zx9Qw3Er5Ty7Ui1Op"


@pytest.mark.requirement("llm-10.1-a")
@pytest.mark.parametrize(
    ("text", "component"),
    [
        (f"llm://{KEY}@h/m", "userinfo"),
        (f"llm://h/{KEY}", "path"),
        (f"llm://h/m?stop={KEY}", "query"),
        (f"llm://h/m#{KEY}", "fragment"),
    ],
)
def test_a_key_in_the_wrong_place_is_found_and_masked(text, component):
    report = check(text)
    assert [(found.code, found.component) for found in report.warnings] == [("llm.key-shaped", component)]
    assert KEY not in str(report.as_dict())


def test_a_fixed_text_holds_the_key_when_it_is_asked_for():
    report = check("LLM://a:k@h/m")
    assert report.fixed() == "llm://a:***@h/m"
    assert report.fixed(reveal=True) == "llm://a:k@h/m"


def test_fixes_that_reach_into_each_other_are_not_both_made():
    report = check("llm://h/m?&")
    assert [found.code for found in report.diagnostics] == ["llm.empty-pair", "llm.empty-pair"]
    assert report.fixed() == "llm://h/m"


def test_fixes_that_together_make_no_uri_leave_the_text_unfixed():
    report = check("llm://h/m?temprature=1&Temp=1")
    assert [found.fix is not None for found in report.diagnostics] == [True, True]
    assert report.fixed() is None


@as_subtests(
    ("text", "fixed"),
    [
        ("llm:/h/m", "llm://h/m"),
        ('"llm://h/m"\n', "llm://h/m"),
        ("llm://h//a///b//?x=%zz", "llm://h/a/b?x=%25zz"),
        ("llm://h/a b|c?x=[1]", None),
        ("llm://h/é ü", "llm://h/%C3%A9%20%C3%BC"),
        ("llm://u:p@ss@h/m", None),
        ("llm://h/\x00", None),
        ("llm://h/", None),
        ("llm://" + "é" * 9000, None),
        ("", None),
    ],
)
def test_a_refused_text_is_repaired_where_that_makes_a_uri(text, fixed):
    report = check(text)
    assert report.uri is None
    assert report.fixed() == fixed
    assert report.diagnostics[0].fix == fixed


def test_a_diagnostic_is_a_value():
    one = Diagnostic("llm.x", "note", "a message", clause=None, component=None, start=1, end=2)
    same = Diagnostic("llm.x", "note", "a message", clause=None, component=None, start=1, end=2)
    other = Diagnostic(
        "llm.x", "error", "another", clause="4.4", component="query", start=1, end=2, parameter="p"
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "llm.x"
    assert one.as_dict() == {
        "code": "llm.x",
        "severity": "note",
        "message": "a message",
        "start": 1,
        "end": 2,
    }
    assert str(one) == "note: a message at 1-2 (llm.x)"
    assert str(other) == "error: another at 1-2 [4.4] (llm.x)"
    assert repr(one) == "<Diagnostic note llm.x 1-2>"
    assert type(one.as_error()) is LLMURIError
    assert type(other.as_error()) is ParameterError
    with pytest.raises(AttributeError):
        one.code = "llm.y"
    with pytest.raises(AttributeError):
        del one.code


def test_a_report_is_plain_data_for_json():
    data = check("LLM://a:k@h/m?x").as_dict()
    assert data["ok"] is True
    assert data["uri"] == "llm://a:***@h/m?x="
    assert data["fixed"] == "llm://a:***@h/m?x="
    assert [entry["code"] for entry in data["diagnostics"]] == [
        "llm.scheme-case",
        "llm.key-in-uri",
        "llm.no-value",
    ]
    assert check("nothing").as_dict()["uri"] is None
    assert isinstance(check("nothing"), Report)


def test_a_message_never_holds_a_value():
    value = "Quite%20Unusual"
    texts = [
        f"llm://h/m?{name}={value}"
        for name in ("temp", "stream", "x;y", "auth", "format", "base_url", "seed")
    ]
    for text in texts:
        for found in check(text).diagnostics:
            assert "Unusual" not in found.message


def test_another_type_than_text_is_a_type_error():
    with pytest.raises(TypeError):
        check(None)


def test_a_check_does_not_change_what_it_checks():
    uri = LLMURI.parse("LLM://h/a:b")
    uri.check()
    assert uri == LLMURI.parse("llm://h/a%3Ab")
