"""What a check found, and the report that holds it. Data alone; SARIF and text are made of it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "Level", "Report"]


class Level(StrEnum):
    """How grave: an error blocks registration, a warning asks for an answer, a hint is a heuristic."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    `check` is the id of the check ("S1"), `code` its stable kebab-case name ("fragment-in-syntax"),
    `clause` the rule of the profile in force, `field` the template field or None, `line` and `column`
    count from 1, `witness` a string that shows it, `fix` what to write instead.
    """

    check: str
    code: str
    level: Level
    message: str
    clause: str
    field: str | None = None
    line: int | None = None
    column: int | None = None
    witness: str | None = None
    fix: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`; members that say nothing are left out."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: str(value) if name == "level" else value
            for name, value in found.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about one document under one profile, gravest first, then by place."""

    source: str
    profile: str
    scheme: str | None
    findings: tuple[Finding, ...]
    #: ids of the checks that ran; a check that could not run says why in a finding of its own
    ran: tuple[str, ...] = ()

    def of(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
        return tuple(each for each in self.findings if each.level is level)

    @property
    def ok(self) -> bool:
        """No errors? Warnings and hints leave it true."""
        return not self.of(Level.ERROR)
