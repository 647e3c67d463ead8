"""R1: is a registry's own list in order? It runs over entries, not over a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from onym.registry.checks._context import shown
from onym.registry.checks.report import Finding, Level, Report
from onym.registry.records import Entry, Status

__all__ = ["CLAUSE", "check_entries"]

CLAUSE: Final = "RFC 7595 9"
_DIRECTORIES: Final = {"perm": Status.PERMANENT, "prov": Status.PROVISIONAL, "historic": Status.HISTORICAL}


def check_entries(entries: Sequence[Entry], *, source: str = "registry") -> Report:
    """R1: names unique and sorted, template paths trimmed and in the folder of their status."""
    findings = [*_names(entries), *_templates(entries)]
    return Report(source=source, profile="rfc7595", scheme=None, findings=tuple(findings), ran=("R1",))


def _found(code: str, entry: Entry, message: str, fix: str, field: str) -> Finding:
    return Finding(
        check="R1",
        code=code,
        level=Level.WARNING,
        message=message,
        clause=CLAUSE,
        field=field,
        witness=shown(entry.spelling or entry.name),
        fix=fix,
    )


def _names(entries: Sequence[Entry]) -> list[Finding]:
    count = Counter(each.name.lower() for each in entries)
    seen: set[str] = set()
    found: list[Finding] = []
    for before, each in zip([None, *entries], entries, strict=False):
        name = each.name.lower()
        if count[name] > 1 and name in seen:
            found.append(
                _found("name-twice", each, "the name stands twice, ignoring case", "keep one row", "name")
            )
        seen.add(name)
        if before is not None and name < before.name.lower():
            found.append(_found("not-sorted", each, "the row is out of order", "sort rows by name", "name"))
    return found


def _templates(entries: Sequence[Entry]) -> list[Finding]:
    found: list[Finding] = []
    for each in entries:
        path = each.fields.get("template", "")
        if path != path.strip():
            found.append(
                _found(
                    "path-not-trimmed", each, "white space around the template path", "trim it", "template"
                )
            )
        folder = path.strip().strip("/").split("/")[0]
        fits = _DIRECTORIES.get(folder)
        if fits is not None and fits is not each.status:
            found.append(
                _found(
                    "folder-does-not-fit",
                    each,
                    f"the template is filed under {shown(folder)}/, and the status is {each.status}",
                    "move the template",
                    "template",
                )
            )
    return found
