"""Collecting findings over one text, each with the edit that would put it right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onym.errors import URIError
from onym.uri._llm_write import masked
from onym.uri._query import roomy
from onym.uri._values import DRAFT
from onym.uri.diagnostics import SEVERITIES, Diagnostic, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.uri._limits import Limits
    from onym.uri.llm import LLMURI

__all__ = ["Edit", "Findings", "looks_like_key", "reserved_span"]

_RESERVED = re.compile("[^A-Za-z0-9._~%-]")


class Edit(NamedTuple):
    """Replace what stands from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


class Findings:
    """The findings on `text`, an llm URI read within `limits`; fixes cost time and are made if `fixing`."""

    def __init__(self, text: str, limits: Limits, *, fixing: bool = True) -> None:
        self._text = text
        self._limits = roomy(limits)
        self._fixing = fixing
        self._found: list[Diagnostic] = []
        self._edits: list[Edit] = []

    def add(
        self,
        severity: Severity,
        code: str,
        message: str,
        clause: str,
        component: str | None,
        span: tuple[int, int],
        *,
        edit: str | Edit | None = None,
        parameter: str | None = None,
    ) -> None:
        """Add one finding.

        `clause` is a section of the draft, or names another document too. An `edit` given as text is for
        `span`; where it leads to no readable URI, there is no fix.
        """
        start, end = span
        fix = None
        if edit is not None and self._fixing:
            edit = Edit(start, end, edit) if isinstance(edit, str) else edit
            better = _edited(self._text, [edit])
            if _value(better, self._limits) is not None:
                self._edits.append(edit)
                fix = masked(better)
        self._found.append(
            Diagnostic(
                f"llm.{code}",
                severity,
                message,
                clause=f"{DRAFT} {clause}" if clause[0].isdigit() else clause,
                component=component,
                start=start,
                end=end,
                fix=fix,
                parameter=parameter,
            )
        )

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What was found, in order of the text, errors first."""
        return tuple(sorted(self._found, key=lambda found: (found.start, SEVERITIES.index(found.severity))))

    def fixed(self) -> LLMURI | None:
        """The value of the text with every edit made, or None where together they make no URI."""
        return _value(_edited(self._text, self._edits), self._limits)


def _edited(text: str, edits: Iterable[Edit]) -> str:
    """`text` with the edits made from the end on; one that reaches into another is left out."""
    limit = len(text) + 1
    for edit in sorted(edits, reverse=True):
        if edit.end <= limit:
            text = text[: edit.start] + edit.text + text[edit.end :]
            limit = edit.start
    return text


def _value(text: str, limits: Limits) -> LLMURI | None:
    from onym.uri.llm import LLMURI  # that module imports this one

    try:
        return LLMURI.parse(text, limits=limits)
    except URIError:
        return None


def reserved_span(raw: str) -> tuple[int, int] | None:
    """From the first to behind the last character that should not stand raw, or None."""
    found = [match.start() for match in _RESERVED.finditer(raw)]
    return (found[0], found[-1] + 1) if found else None


def looks_like_key(text: str) -> bool:
    """Whether the text has the shape of a provider's key somewhere."""
    from onym.uri._redact_keys import keys

    return next(keys(text), None) is not None
