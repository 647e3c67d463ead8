"""The report as text and as SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from checks_support import GOOD, OLD, OLD_LABELS, document, draft, report, template
from onym.registry.checks import CHECKS, Level, as_text, format_summary, to_sarif

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-members.json").read_text(encoding="utf-8"))
BAD = draft(
    "see draft-other-thing-03 and <script>\x1b[31m",
    sections={"Introduction": "Kites."},
    fields=GOOD | {"name": "Kite", "contact": "nobody", "applications": "the KCP protocol\x1b[2J"},
)


def test_no_errors_is_said_plainly_with_the_counts():
    found = report(document(template(OLD, labels=OLD_LABELS)))
    assert as_text(found).splitlines()[-1].startswith("no errors, no warnings, no hints (32 checks")
    assert found.ok


def test_the_text_has_the_gravest_first_with_place_witness_fix_and_code():
    text = as_text(report(BAD))
    assert text.splitlines()[2:6] == [
        "error N1 line 1: names are registered in lower case  [RFC 7595 3.8]",
        "  shown by: Kite",
        "  fix: write `Scheme name: kite`",
        "  name-not-lowercase",
    ]
    assert text.index("\nerror ") < text.index("\nwarning ") < text.index("\nnot checked\n")
    assert text.index("\nnot checked\n") < text.index("\nfor a person to judge\n")
    assert format_summary(report(BAD)) in text
    assert "\x1b" not in text


def test_colour_is_the_only_difference_that_colour_makes():
    import re

    painted = as_text(report(BAD), colour=True)
    assert "\x1b[1;31merror\x1b[0m" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == as_text(report(BAD))


def test_sarif_holds_to_the_members_of_its_schema():
    for of in (BAD, document(template()), document()):
        log = to_sarif(report(of), of.text)
        jsonschema.Draft202012Validator(SCHEMA).validate(log)
        json.dumps(log)


def test_sarif_says_rule_level_place_fix_and_fingerprint_of_each_finding():
    found = report(BAD)
    log = to_sarif(found, BAD.text)
    run = log["runs"][0]
    assert run["tool"]["driver"]["name"] == "onym"
    assert len(run["results"]) == len(found.findings)
    for result, each in zip(run["results"], found.findings, strict=True):
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["ruleId"] == f"{each.check}/{each.code}"
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] == (each.line or 1)
        assert region.get("endColumn", 10_000) >= region.get("startColumn", 1)
        assert each.fix is None or f"Fix: {each.fix}" in result["message"]["text"]
    prints = [result["partialFingerprints"]["onymFinding/v1"] for result in run["results"]]
    assert len(set(prints)) > len(prints) // 2


def test_fingerprints_stay_when_lines_move():
    moved = draft("\n\n\n" + "see draft-other-thing-03")
    here = draft("see draft-other-thing-03")

    def prints(of):
        results = to_sarif(report(of), of.text)["runs"][0]["results"]
        return {each["partialFingerprints"]["onymFinding/v1"] for each in results}

    assert prints(moved) == prints(here)


def test_a_source_is_a_relative_reference_and_standard_input_has_a_name():
    for source, uri in (
        ("-", "stdin"),
        ("a b.txt", "a%20b.txt"),
        ("../x/y.xml", "../x/y.xml"),
        ("C:\\x", "C%3A/x"),
    ):
        log = to_sarif(report(document(template(contact="")), source=source))
        assert (
            log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri
        )


def test_every_check_names_a_clause_for_each_profile_that_it_runs_under():
    for row in CHECKS:
        assert row.clauses, row.id
        assert all(clause.startswith("RFC ") for clause in row.clauses.values()), row.id
        assert isinstance(row.level, Level)
    assert {row.id for row in CHECKS} == {
        *(f"N{at}" for at in range(1, 6)),
        *(f"S{at}" for at in range(1, 9)),
        *(f"T{at}" for at in range(1, 9)),
        "O1",
        "O2",
        "C1",
        "C2",
        "D1",
        "D2",
        "D3",
        "R1",
        *(f"Q{at}" for at in range(1, 7)),
    }
