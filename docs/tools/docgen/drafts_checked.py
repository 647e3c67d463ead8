"""docs/explanation/drafts-checked.md: what `onym scheme check` really says of both drafts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from docgen.paths import DOCS, ROOT
from docgen.text import GENERATED, cell, code, prose
from onym.registry.checks import Finding, Level, Report, check, format_summary, load_document

__all__ = ["DRAFTS", "PAGE", "drafts_checked_page"]

PAGE = DOCS / "explanation" / "drafts-checked.md"
SPECS = ROOT.parent / "shared" / "spec"
#: the day as of which a draft has expired or not: the page does not change with the calendar
AS_OF = date(2026, 11, 21)
DRAFTS = ("draft-levy-llm-uri-scheme-00", "draft-sogomonian-ai-uri-scheme-01")

#: draft -> what its author should change: paragraphs, the last line of each the codes of its findings
CHANGES: dict[str, str] = {
    DRAFTS[0]: """\
Move `[ "#" fragment ]` out of `llm-URI` (3.1, 3.2), and let 4.5 say no more than RFC 3986 3.5. Without the
fragment, every string of 3.2 is an absolute-URI.
fragment-in-syntax example-has-fragment

Define `llm-URI` once (3.1 takes strings that 3.2 does not) and `userinfo` once (3.2 imports that of RFC 3986,
4.2.1 narrows it).
repeated-rule redefined-rule

Demand a host, and forbid `.` and `..` as model identifiers: `llm:///A` and `llm:///.` are in the grammar.
empty-host dot-segments

Cite RFC 3986 3.2.1, which deprecates user:password, and say why it is used all the same.
password-in-userinfo

Cite or drop OPENAI-API and RFC 8446, list draft-sogomonian-ai-uri-scheme, and write the draft's name in place
of "This document".
reference-uncited draft-unlisted this-document

Write examples with reserved hosts: `api.example.com` in place of a provider's.
real-host-in-example
""",
    DRAFTS[1]: """\
Move `[ "#" fragment ]` out of `ai-uri`, and demand something after the colon: `ai:` alone is in the grammar.
fragment-in-syntax bare-scheme

Cite RFC 7595 Section 7.4 for the template; 3.4 defines operations.
section-does-not-fit

Name a change controller who can be reached.
no-address

Ask IANA for the well-known URIs, the link relation, the service name and the node name that the text uses.
not-requested

Give a reference for AIIP, and a list of references.
protocol-without-reference no-reference-list

Restore `&currency` where the text has a currency sign.
example-not-ascii

Replace NEED NOT, which BCP 14 does not define.
keyword-unknown
""",
}
_TITLES = {Level.ERROR: "Errors", Level.WARNING: "Warnings", Level.HINT: "Hints"}


def drafts_checked_page() -> str:
    """The page; where the drafts are not beside this checkout, the page as it stands."""
    if not all(_path(name).is_file() for name in DRAFTS):
        return PAGE.read_text(encoding="utf-8")
    return "\n".join(
        [
            GENERATED,
            "# Both drafts, checked\n",
            (
                "This page has the findings of `onym scheme check` about the two Internet-Drafts that Onym "
                "implements, from a real run, and what their authors should change. An error blocks "
                "registration, a warning needs an answer, and a hint is informational. The questions for the "
                "reviewer that end every report are left out. "
                "[Check a URI scheme](../how-to/check-a-scheme.md) shows the command.\n"
            ),
            *(_draft(name) for name in DRAFTS),
        ]
    )


def _path(name: str) -> Path:
    return SPECS / f"{name}.txt"


def _report(name: str, profile: str) -> Report:
    document = load_document(_path(name).read_text(encoding="utf-8"), source=f"{name}.txt")
    return check(document, profile=profile, today=AS_OF, source=f"{name}.txt")


def _draft(name: str) -> str:
    new, old = _report(name, "rfc7595"), _report(name, "rfc4395")
    return "\n".join(
        [
            f"## {name}\n",
            f"Under RFC 7595: {format_summary(new)}.\n",
            "### What its author should change\n",
            _changes(name, new),
            *(_level(new, level) for level in Level),
            "### Under RFC 4395\n",
            f"The template of 2006 has eleven fields. {format_summary(old).capitalize()}. These are added:\n",
            _list_findings(_further(old, new)),
        ]
    )


def _changes(name: str, report: Report) -> str:
    found = {each.code for each in report.findings}
    lines = []
    for paragraph in CHANGES[name].strip().split("\n\n"):
        *text, codes = paragraph.split("\n")
        missing = set(codes.split()) - found
        assert not missing, f"{name}: no finding of {missing}"
        lines.append(f"- {' '.join(text)} ({', '.join(code(each) for each in codes.split())})")
    return "\n".join(lines) + "\n"


def _level(report: Report, level: Level) -> str:
    listed = [each for each in report.of(level) if not each.check.startswith("Q")]
    return (
        f"### {_TITLES[level]}\n\n{_list_findings(listed)}" if listed else f"### {_TITLES[level]}\n\nNone.\n"
    )


def _further(old: Report, new: Report) -> tuple[Finding, ...]:
    """What only the older profile says; hints on spelling aside."""
    known = {(each.check, each.code, each.line, each.witness, each.level) for each in new.findings}
    return tuple(
        each
        for each in old.findings
        if each.level is not Level.HINT
        and (each.check, each.code, each.line, each.witness, each.level) not in known
    )


def _list_findings(findings: Iterable[Finding]) -> str:
    return "\n".join(_describe(finding) for finding in findings) + "\n"


def _describe(finding: Finding) -> str:
    """One finding: where, what, a string that shows it, and the correction."""
    place = f", line {finding.line}" if finding.line else ""
    said = [f"- **{finding.check}** {code(finding.code)}{place}: {cell(finding.message)}."]
    if finding.witness and "`" not in finding.witness:
        said.append(f"Shown by {code(finding.witness)}.")
    if finding.fix:
        said.append(f"*Fix:* {prose(finding.fix)}.")
    return " ".join([*said, f"({finding.clause})"])
