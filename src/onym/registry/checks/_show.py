"""A report for people: by gravity, each finding with its place and fix; "no errors" said plainly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onym.registry.checks._context import shown
from onym.registry.checks.report import Finding, Level, Report

__all__ = ["as_text", "summary"]

MAX_LINE: Final = 2_000
_STYLES: Final = {Level.ERROR: "1;31", Level.WARNING: "1;33", Level.HINT: "1;36"}
_TITLES: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "hint"}


def as_text(report: Report, *, colour: bool = False) -> str:
    """The report as lines without a last line break. With `colour`, in the codes of a terminal."""
    about = (
        f"{_clean(report.source)}: "
        + (f'scheme "{_clean(report.scheme)}", ' if report.scheme else "")
        + report.profile
    )
    lines = [_paint(about, "1", colour)]
    plain = [each for each in report.findings if not _asks(each) and each.code != "could-not-check"]
    for each in plain:
        lines += ["", *_block(each, colour)]
    lines += _group(
        "not checked", [each for each in report.findings if each.code == "could-not-check"], colour
    )
    lines += _group(
        "for a person to judge",
        sorted((each for each in report.findings if _asks(each)), key=lambda each: each.check),
        colour,
    )
    return "\n".join([*lines, "", _paint(summary(report), "32" if report.ok else "1;31", colour)])


def summary(report: Report) -> str:
    """One line: `no errors, 2 warnings, 1 hint (33 checks)`. What a person is asked is no hint here."""
    hints = [each for each in report.of(Level.HINT) if not _asks(each) and each.code != "could-not-check"]
    skipped = len({each.check for each in report.findings if each.code == "could-not-check"})
    ran = f"{_count(len(report.ran), 'check')}" + (f", {skipped} not complete" if skipped else "")
    return ", ".join(
        [
            _count(len(report.of(Level.ERROR)), "error"),
            _count(len(report.of(Level.WARNING)), "warning"),
            f"{_count(len(hints), 'hint')} ({ran})",
        ]
    )


def _clean(text: str) -> str:
    """Nothing in it moves a cursor or reorders a line."""
    return shown(text, MAX_LINE)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _asks(found: Finding) -> bool:
    return found.check.startswith("Q")


def _block(found: Finding, colour: bool) -> Iterator[str]:
    place = (
        ""
        if found.line is None
        else f"line {found.line}" + (f":{found.column}" if found.column else "") + ": "
    )
    level = _paint(_TITLES[found.level], _STYLES[found.level], colour)
    yield f"{level} {found.check} {place}{_clean(found.message)}  [{found.clause}]"
    if found.witness:
        yield f"  {_paint('shown by:', '2', colour)} {_clean(found.witness)}"
    if found.fix:
        yield f"  {_paint('fix:', '32', colour)} {_clean(found.fix)}"
    yield f"  {_paint(found.code, '2', colour)}"


def _group(title: str, findings: list[Finding], colour: bool) -> list[str]:
    if not findings:
        return []
    said = [f"  {each.check} {_clean(each.message).split(': ', 1)[1]}  [{each.clause}]" for each in findings]
    return ["", _paint(title, "1", colour), *dict.fromkeys(said)]


def _paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text
