"""A report as SARIF 2.1.0, the form that code hosts take. Lines and columns count from 1."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from onym.registry.checks._table import CHECKS
from onym.registry.checks.report import Finding, Level, Report
from onym.uri._percent import PATH

__all__ = ["sarif"]

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "note"}


def sarif(report: Report, text: str = "") -> dict[str, Any]:
    """One SARIF log with one run. `text` is what was checked: it gives each finding the end of its line."""
    from onym._version import __version__

    lines = text.split("\n")
    used = list(dict.fromkeys(f"{each.check}/{each.code}" for each in report.findings))
    driver = {
        "name": "onym",
        "version": __version__,
        "rules": [_rule(each, report) for each in used],
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
                "results": [_result(each, report, lines, used) for each in report.findings],
            }
        ],
    }


def _rule(identifier: str, report: Report) -> dict[str, Any]:
    check, code = identifier.split("/")
    first = next(each for each in report.findings if each.check == check and each.code == code)
    title = next(row.title for row in CHECKS if row.id == check)
    return {
        "id": identifier,
        "name": "".join(part.capitalize() for part in code.split("-")),
        "shortDescription": {"text": f"{check}: {title}"},
        "help": {"text": f"Rule: {first.clause}"},
        "defaultConfiguration": {"level": _LEVELS[first.level]},
        "properties": {"clause": first.clause},
    }


def _result(found: Finding, report: Report, lines: list[str], used: list[str]) -> dict[str, Any]:
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
        "message": {"text": "\n".join(each for each in said if each)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(report.source)},
                    "region": _region(found, lines),
                }
            }
        ],
        "partialFingerprints": {"onymFinding/v1": _fingerprint(found, report)},
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _region(found: Finding, lines: list[str]) -> dict[str, int]:
    line = found.line or 1
    region = {"startLine": line}
    if found.column is not None:
        region["startColumn"] = found.column
    length = len(lines[line - 1]) if line <= len(lines) else 0
    if length >= (found.column or 1):
        region["endColumn"] = length + 1
    return region


def _uri(source: str) -> str:
    """A path as a relative reference; standard input by a name that no file has."""
    return "stdin" if source == "-" else PATH.quote(source.replace("\\", "/")).replace(":", "%3A")


def _fingerprint(found: Finding, report: Report) -> str:
    """The same finding keeps it when lines move."""
    parts = (report.scheme, found.check, found.code, found.field, found.witness or found.message)
    return hashlib.sha256("\x1f".join(str(each) for each in parts).encode("utf-8", "replace")).hexdigest()[
        :32
    ]
