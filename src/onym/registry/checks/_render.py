"""Reports as text and as SARIF 2.1.0. Lines and columns count from 1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from onym._version import __version__
from onym.registry.checks.context import Finding, Level, Report, to_printable
from onym.registry.checks.runner import CHECKS
from onym.registry.registries import PROFILES
from onym.uri.components import PATH

MAX_LINE: Final = 2_000
_STYLES: Final = {Level.ERROR: "1;31", Level.WARNING: "1;33", Level.HINT: "1;36"}


def as_text(report: Report, *, colour: bool = False) -> str:
    """Return the report as lines without a last line break. With `colour`, it has terminal colours."""
    profile = PROFILES.get(report.profile)
    noun = "scheme" if profile is None or profile.own_rules is None else "name"
    about = (
        f"{_to_printable_line(report.source)}: "
        + (f'{noun} "{_to_printable_line(report.scheme)}", ' if report.scheme else "")
        + report.profile
    )
    lines = [_apply_style(about, "1", colour)]
    for finding in report.plain:
        lines += ["", *_iter_finding_lines(finding, colour)]
    lines += _format_group("not checked", report.unchecked, colour)
    lines += _format_group("for a person to judge", report.questions, colour)
    summary = _apply_style(format_summary(report), "32" if report.ok else "1;31", colour)
    return "\n".join([*lines, "", summary])


def format_summary(report: Report) -> str:
    """Return one line: `no errors, 2 warnings, 1 hint (33 checks)`. Questions for a person are not hints."""
    counts = report.counts
    skipped = len({finding.check for finding in report.unchecked})
    ran = _format_count(len(report.ran), "check") + (f", {skipped} not complete" if skipped else "")
    found = ", ".join(_format_count(counts[level], level) for level in Level)
    return f"{found} ({ran})"


def _to_printable_line(text: str) -> str:
    return to_printable(text, MAX_LINE)


def _format_count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _iter_finding_lines(finding: Finding, colour: bool) -> Iterator[str]:
    column = f":{finding.column}" if finding.column else ""
    place = "" if finding.line is None else f"line {finding.line}{column}: "
    level = _apply_style(finding.level, _STYLES[finding.level], colour)
    yield f"{level} {finding.check} {place}{_to_printable_line(finding.message)}  [{finding.clause}]"
    if finding.witness:
        yield f"  {_apply_style('shown by:', '2', colour)} {_to_printable_line(finding.witness)}"
    if finding.fix:
        yield f"  {_apply_style('fix:', '32', colour)} {_to_printable_line(finding.fix)}"
    yield f"  {_apply_style(finding.code, '2', colour)}"


def _format_group(title: str, findings: Sequence[Finding], colour: bool) -> list[str]:
    if not findings:
        return []
    rows = [
        f"  {finding.check} {_to_printable_line(finding.message).split(': ', 1)[1]}  [{finding.clause}]"
        for finding in findings
    ]
    return ["", _apply_style(title, "1", colour), *dict.fromkeys(rows)]


def _apply_style(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "note"}


def to_sarif(report: Report, text: str = "") -> dict[str, Any]:
    """Return a SARIF log with one run. `text` is the checked text, which gives the ends of lines."""
    lines = text.split("\n")
    used = list(dict.fromkeys(f"{finding.check}/{finding.code}" for finding in report.findings))
    driver = {
        "name": "onym",
        "version": __version__,
        "rules": [_build_rule(identifier, report) for identifier in used],
    }
    properties = {"profile": report.profile, "scheme": report.scheme, "checks": list(report.ran)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "properties": properties,
        "results": [_build_result(finding, report, lines, used) for finding in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


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


def _build_result(finding: Finding, report: Report, lines: list[str], used: list[str]) -> dict[str, Any]:
    identifier = f"{finding.check}/{finding.code}"
    texts = [
        finding.message,
        f"Shown by: {finding.witness}" if finding.witness else "",
        f"Fix: {finding.fix}" if finding.fix else "",
    ]
    properties = {name: getattr(finding, name) for name in ("clause", "field", "witness", "fix")}
    location = {
        "artifactLocation": {"uri": _encode_uri(report.source)},
        "region": _build_region(finding, lines),
    }
    return {
        "ruleId": identifier,
        "ruleIndex": used.index(identifier),
        # "kind" is left out: any kind except "fail" requires the level "none"
        "level": _LEVELS[finding.level],
        "message": {"text": "\n".join(filter(None, texts))},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"onymFinding/v1": _compute_fingerprint(finding, report)},
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _build_region(finding: Finding, lines: list[str]) -> dict[str, int]:
    line = finding.line or 1
    region = {"startLine": line}
    if finding.column is not None:
        region["startColumn"] = finding.column
    length = len(lines[line - 1]) if line <= len(lines) else 0
    if length >= (finding.column or 1):
        region["endColumn"] = length + 1
    return region


def _encode_uri(source: str) -> str:
    """Return the path as a relative reference; standard input as a name that no file has."""
    return "stdin" if source == "-" else PATH.quote(source.replace("\\", "/")).replace(":", "%3A")


def _compute_fingerprint(finding: Finding, report: Report) -> str:
    """Return a digest that stays the same if the finding moves to another line."""
    parts = (report.scheme, finding.check, finding.code, finding.field, finding.witness or finding.message)
    text = "\x1f".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
