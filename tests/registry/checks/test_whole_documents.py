"""Whole texts, read and checked: our own fixtures, requests of the service, published templates."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from onym.errors import RegistryError
from onym.registry.checks import (
    Level,
    ReferenceData,
    Report,
    as_text,
    check,
    check_request,
    load_document,
    to_sarif,
)
from onym.registry.checks.context import load_builtin, load_section_titles, load_word_list
from onym.registry.records import Request, RequestKind, RequestState, Status
from support import as_subtests, linear_enough

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).resolve().parents[3].parent / "shared"
TODAY = date(2026, 1, 10)


def checked(name: str, **more: object) -> Report:
    text = (DATA / name).read_text(encoding="utf-8")
    return check(load_document(text, source=name), today=TODAY, source=name, **more)  # type: ignore[arg-type]


def shared(path: str) -> str:
    whole = SHARED / path
    if not whole.is_file():
        pytest.skip(f"the specifications and data are not beside this checkout: {path}")
    return whole.read_text(encoding="utf-8", errors="replace")


def test_a_good_draft_has_no_errors_and_no_warnings():
    report = checked("kite-good.txt")
    assert report.scheme == "kite"
    assert not [each for each in report.findings if each.level is not Level.HINT]
    unchecked = {each.check for each in report.findings if each.code == "could-not-check"}
    assert unchecked <= {"T4"}
    assert "no errors, no warnings" in as_text(report)


def test_a_bad_draft_earns_a_finding_of_nearly_every_check():
    report = checked("kite-bad.txt")
    found = {each.code for each in report.findings}
    assert found >= {
        "name-not-lowercase",
        "name-very-short",
        "status-unknown",
        "no-address",
        "markup-in-field",
        "citation-unlisted",
        "reference-uncited",
        "section-unknown",
        "section-does-not-fit",
        "draft-unlisted",
        "rfc-obsolete",
        "this-document",
        "draft-expiry-wrong",
        "draft-expired",
        "fragment-in-syntax",
        "empty-host",
        "dot-segments",
        "reserved-unexplained",
        "recursive-rule",
        "example-not-ascii",
        "example-has-fragment",
        "no-charset",
        "password-in-userinfo",
        "no-semantics",
        "no-security",
        "protocol-without-reference",
        "not-requested",
        "real-host-in-example",
        "keyword-unknown",
        "keywords-undefined",
    }
    lines = (DATA / "kite-bad.txt").read_text(encoding="utf-8").split("\n")
    for each in report.findings:
        assert each.line is None or 1 <= each.line <= len(lines)
        if each.code in ("example-not-ascii", "real-host-in-example", "reference-uncited", "keyword-unknown"):
            assert (each.witness or "").strip("[]") in lines[(each.line or 0) - 1]


def test_the_profile_changes_clauses_and_what_is_missing():
    new, old = checked("kite-bad.txt", profile="rfc7595"), checked("kite-bad.txt", profile="rfc4395")
    assert {each.clause.split(" ")[1] for each in new.findings if each.check[0] in "NTSOCQ"} <= {
        "7595",
        "8174",
    }
    assert {each.clause.split(" ")[1] for each in old.findings if each.check[0] in "NTSOCQ"} <= {
        "4395",
        "8174",
    }
    assert {each.field for each in old.findings if each.code == "field-missing"} == {
        "syntax",
        "semantics",
        "encoding",
        "interoperability",
        "security",
    }


def request(**more: object) -> Request:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given = {
        "id": "uri-schemes-17",
        "registry": "uri-schemes",
        "profile": "rfc7595",
        "kind": RequestKind.NEW,
        "name": "http",
        "status": Status.PROVISIONAL,
        "state": RequestState.DRAFT,
        "registrant": "ada",
        "opened": at,
        "since": at,
        "fields": {"contact": "Ada <ada@example.com>", "references": "RFC 9999"},
    }
    return Request(**(given | more))  # type: ignore[arg-type]


def test_a_request_is_checked_by_its_template_or_by_its_fields():
    report = check_request(request())
    assert (report.source, report.scheme, report.profile) == ("uri-schemes-17", "http", "rfc7595")
    codes = {each.code for each in report.findings}
    assert codes >= {"name-taken", "field-missing"}
    pasted = check_request(request(template="Scheme name: kite\nStatus: Permanent\n", profile="rfc4395"))
    assert (pasted.scheme, pasted.profile) == ("kite", "rfc4395")
    assert "name-taken" not in {
        each.code for each in check_request(request(kind=RequestKind.UPDATE)).findings
    }


def test_a_request_for_a_parameter_is_checked_by_its_own_fields():
    fields = {"type": "int", "description": "how many\nkites", "contact": "ada@example.com", "reference": "x"}
    more = {"registry": "llm-parameters", "profile": "specification-required", "status": Status.REGISTERED}
    report = check_request(request(name="kites", fields=fields, **more), ReferenceData())
    assert [(each.code, each.field) for each in report.of(Level.ERROR)] == [
        ("field-missing", "change_controller")
    ]


def test_a_pasted_text_without_a_template_is_told_so_and_does_not_raise():
    for text in ("hello", "\x00\x01", "<html><script>alert(1)</script>", "a" * 100_000):
        report = check_request(request(template=text), ReferenceData())
        assert "no-template" in {each.code for each in report.findings}
        assert "\x00" not in as_text(report)


@pytest.mark.parametrize(
    "text",
    [
        "Scheme name: kite\nContact: " + "x" * 1_000_000,
        "Scheme name: kite\nContact: " + "<" * 1_000_000,
        "Scheme name: kite\nReferences: " + "[A] " * 100_000,
        "Scheme name: kite\nApplications: " + "A (" * 200_000,
        "Scheme name: " + "a-" * 300_000,
        "Scheme name: kite\nSyntax: " + "draft-" * 150_000,
        "Scheme name: kite\nContact: " + "a@" * 300_000,
        "Scheme name: kite\nContact: " + "_a." * 300_000,
        "Scheme name: kite\nContact: " + "see section 1 of " * 50_000,
        "Scheme name: kite\nContact: " + "not a relative " * 60_000,
    ],
)
def test_a_field_of_a_million_characters_takes_seconds_at_most(text):
    with linear_enough(), suppress(RegistryError):  # beyond the caps of the reader: refused, as good
        assert len(as_text(check(load_document(text), known=load_builtin()))) < 100_000


def test_the_shipped_facts_are_there():
    known = load_builtin()
    assert known.entries["http"].status is Status.PERMANENT
    assert {"com", "org", "uk"} <= known.tlds
    assert "co.uk" not in known.tlds
    assert "imap" in " ".join(known.services)
    assert known.rfcs[4395].obsoleted_by == (7595,)
    assert load_section_titles()[7595]["7.4"] == "URI Scheme Registration Template"
    assert "icon" in load_word_list("link-relations")


@pytest.mark.parametrize("number", [3986, 4395, 5234, 7405, 7595, 8126, 8288, 8615])
def test_the_shipped_section_titles_are_those_of_the_rfcs(number):
    text = shared(f"spec/rfc/rfc{number}.txt")
    for section, title in load_section_titles()[number].items():
        first = " ".join(text.split())
        assert f"{section}. {title}" in first.replace("  ", " "), section


def published() -> dict[str, list[object]]:
    table: dict[str, list[object]] = json.loads((DATA / "published.json").read_text(encoding="utf-8"))
    return table


@as_subtests("name", sorted(published()))
def test_published_templates_give_the_results_that_the_table_has(name):
    text = shared(f"data/iana/templates/{name}")
    report = check(load_document(text, source=name), today=date(2026, 11, 21), source=name)
    # the questions for a person are the same for each
    levels = [each.level for each in report.findings if not each.check.startswith("Q")]
    assert [report.profile, report.scheme, *(levels.count(level) for level in Level)] == published()[name]
    json.dumps(to_sarif(report, text))
    as_text(report)
