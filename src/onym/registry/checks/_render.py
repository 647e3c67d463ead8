"""Reports as text for people, and as SARIF 2.1.0 for code hosts. Lines and columns count from 1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from onym.registry.checks.context import Finding, Level, Report, to_printable
from onym.registry.checks.runner import CHECKS
from onym.uri.components import PATH

MAX_LINE: Final = 2_000
_STYLES: Final = {Level.ERROR: "1;31", Level.WARNING: "1;33", Level.HINT: "1;36"}
_TITLES: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "hint"}


def as_text(report: Report, *, colour: bool = False) -> str:
    """The report as lines without a last line break. With `colour`, in the codes of a terminal."""
    about = (
        f"{_to_printable_line(report.source)}: "
        + (f'scheme "{_to_printable_line(report.scheme)}", ' if report.scheme else "")
        + report.profile
    )
    lines = [_apply_style(about, "1", colour)]
    plain = [each for each in report.findings if not _is_question(each) and each.code != "could-not-check"]
    for each in plain:
        lines += ["", *_iter_finding_lines(each, colour)]
    lines += _format_group(
        "not checked", [each for each in report.findings if each.code == "could-not-check"], colour
    )
    lines += _format_group(
        "for a person to judge",
        sorted((each for each in report.findings if _is_question(each)), key=lambda each: each.check),
        colour,
    )
    return "\n".join(
        [*lines, "", _apply_style(format_summary(report), "32" if report.ok else "1;31", colour)]
    )


def format_summary(report: Report) -> str:
    """One line: `no errors, 2 warnings, 1 hint (33 checks)`. What a person is asked is no hint here."""
    hints = [
        each for each in report.of(Level.HINT) if not _is_question(each) and each.code != "could-not-check"
    ]
    skipped = len({finding.check for finding in report.findings if finding.code == "could-not-check"})
    ran = f"{_format_count(len(report.ran), 'check')}" + (f", {skipped} not complete" if skipped else "")
    return ", ".join(
        [
            _format_count(len(report.of(Level.ERROR)), "error"),
            _format_count(len(report.of(Level.WARNING)), "warning"),
            f"{_format_count(len(hints), 'hint')} ({ran})",
        ]
    )


def _to_printable_line(text: str) -> str:
    """Nothing in it moves a cursor or reorders a line."""
    return to_printable(text, MAX_LINE)


def _format_count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _is_question(found: Finding) -> bool:
    return found.check.startswith("Q")


def _iter_finding_lines(found: Finding, colour: bool) -> Iterator[str]:
    place = (
        ""
        if found.line is None
        else f"line {found.line}" + (f":{found.column}" if found.column else "") + ": "
    )
    level = _apply_style(_TITLES[found.level], _STYLES[found.level], colour)
    yield f"{level} {found.check} {place}{_to_printable_line(found.message)}  [{found.clause}]"
    if found.witness:
        yield f"  {_apply_style('shown by:', '2', colour)} {_to_printable_line(found.witness)}"
    if found.fix:
        yield f"  {_apply_style('fix:', '32', colour)} {_to_printable_line(found.fix)}"
    yield f"  {_apply_style(found.code, '2', colour)}"


def _format_group(title: str, findings: list[Finding], colour: bool) -> list[str]:
    if not findings:
        return []
    said = [
        f"  {finding.check} {_to_printable_line(finding.message).split(': ', 1)[1]}  [{finding.clause}]"
        for finding in findings
    ]
    return ["", _apply_style(title, "1", colour), *dict.fromkeys(said)]


def _apply_style(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "note"}


def to_sarif(report: Report, text: str = "") -> dict[str, Any]:
    """One SARIF log with one run. `text` is what was checked: it gives each finding the end of its line."""
    from onym._version import __version__

    lines = text.split("\n")
    used = list(dict.fromkeys(f"{finding.check}/{finding.code}" for finding in report.findings))
    driver = {
        "name": "onym",
        "version": __version__,
        "rules": [_build_rule(each, report) for each in used],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "properties": {
                    "profile": report.profile,
                    "scheme": report.scheme,
                    "checks": list(report.ran),
                },
                "results": [_build_result(finding, report, lines, used) for finding in report.findings],
            }
        ],
    }


def _build_rule(identifier: str, report: Report) -> dict[str, Any]:
    check, code = identifier.split("/")
    first = next(finding for finding in report.findings if finding.check == check and finding.code == code)
    title = next(row.title for row in CHECKS if row.id == check)
    return {
        "id": identifier,
        "name": "".join(part.capitalize() for part in code.split("-")),
        "shortDescription": {"text": f"{check}: {title}"},
        "help": {"text": f"Rule: {first.clause}"},
        "defaultConfiguration": {"level": _LEVELS[first.level]},
        "properties": {"clause": first.clause},
    }


def _build_result(found: Finding, report: Report, lines: list[str], used: list[str]) -> dict[str, Any]:
    identifier = f"{found.check}/{found.code}"
    said = [
        found.message,
        f"Shown by: {found.witness}" if found.witness else "",
        f"Fix: {found.fix}" if found.fix else "",
    ]
    properties = {"clause": found.clause, "field": found.field, "witness": found.witness, "fix": found.fix}
    return {
        "ruleId": identifier,
        "ruleIndex": used.index(identifier),
        "level": _LEVELS[found.level],
        # a kind other than "fail" goes with the level "none" alone
        "message": {"text": "\n".join(text for text in said if text)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _encode_uri(report.source)},
                    "region": _build_region(found, lines),
                }
            }
        ],
        "partialFingerprints": {"onymFinding/v1": _compute_fingerprint(found, report)},
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _build_region(found: Finding, lines: list[str]) -> dict[str, int]:
    line = found.line or 1
    region = {"startLine": line}
    if found.column is not None:
        region["startColumn"] = found.column
    length = len(lines[line - 1]) if line <= len(lines) else 0
    if length >= (found.column or 1):
        region["endColumn"] = length + 1
    return region


def _encode_uri(source: str) -> str:
    """A path as a relative reference; standard input by a name that no file has."""
    return "stdin" if source == "-" else PATH.quote(source.replace("\\", "/")).replace(":", "%3A")


def _compute_fingerprint(found: Finding, report: Report) -> str:
    """The same finding keeps it when lines move."""
    parts = (report.scheme, found.check, found.code, found.field, found.witness or found.message)
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode("utf-8", "replace")).hexdigest()[
        :32
    ]
