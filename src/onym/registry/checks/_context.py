"""What one check sees: the document, one of its templates, the profile in force, the facts, the grammar."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Final, TypeAlias

from onym.registry.checks._grammar import Syntax
from onym.registry.checks._reading import Reading, squeezed
from onym.registry.checks.known import Known
from onym.registry.checks.report import Finding, Level
from onym.registry.documents.types import Document, Section, Template
from onym.registry.profiles import Profile
from onym.registry.records import Status

__all__ = ["Context", "Fault", "Faults", "Row", "fault", "lowered", "shown", "squeezed", "unchecked"]

#: longest stretch of a stranger's text that a finding repeats, in characters
MAX_SHOWN: Final = 80

#: a remark beside the status
_ASIDE: Final = re.compile(r"\([^()]*\)|[;.,](?: |\n).*\Z", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z-]*")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,62}")
_NAME_JUNK: Final = re.compile(
    r"^[\s\"'<`\u2018\u2019\u201c\u201d*_]+|[\s\"'>`\u2018\u2019\u201c\u201d*_.,;]+$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a check function says; the table adds id, clause and, where `level` is None, the level."""

    code: str
    message: str
    level: Level | None = None
    clause: str | None = None
    field: str | None = None
    line: int | None = None
    column: int | None = None
    witness: str | None = None
    fix: str | None = None


Faults: TypeAlias = Iterator[Fault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check of the table. `clauses` is by profile: a check runs only under the profiles named there."""

    id: str
    title: str
    clauses: dict[str, str]
    level: Level
    run: Callable[[Context], Faults]


@dataclass(kw_only=True)
class Context:
    """Everything a check may ask of one template in one document."""

    document: Document
    reading: Reading
    profile: Profile
    known: Known
    template: Template | None
    syntax: Syntax
    today: date | None = None
    #: an update of the entry of this name, not a new one
    update: bool = False
    #: what the checks before this one found, for T6
    so_far: list[Finding] = field(default_factory=list)

    @cached_property
    def name(self) -> str:
        """The name asked for, without quotes, brackets and a closing colon; "" where there is none."""
        return clean_name(self.raw_name)

    @property
    def raw_name(self) -> str:
        """The name as the template writes it."""
        return "" if self.template is None else self.template.text("name")

    @cached_property
    def scheme(self) -> str:
        """The scheme that the document is about, in lower case: the template's, else its grammar's; or ""."""
        name = lowered(self.name)
        return name if _SCHEME.fullmatch(name) else (self.syntax.scheme or "")

    @cached_property
    def status(self) -> Status | None:
        """The status asked for, None where the template names none of the three, or two of them."""
        text = _ASIDE.sub("", "" if self.template is None else self.template.text("status")[:4096])
        found = [each.lower() for each in _WORD.findall(text)]
        if not found or len({each for each in found if each in _STATUSES}) > 1:
            return None
        return _STATUSES.get(found[0])

    def value(self, identifier: str) -> str:
        """A field of the template, white space squeezed; "" where absent."""
        return "" if self.template is None else squeezed(self.template.text(identifier))

    def line(self, identifier: str) -> int | None:
        """Where that field stands."""
        return None if self.template is None else self.template.line_of(identifier)

    def sections(self, *words: str) -> tuple[Section, ...]:
        """The sections whose title has one of `words` (lower case), and those below them."""
        return self.reading.sections(words)

    def prose_of(self, identifier: str, *words: str) -> str:
        """A field's text together with the sections about the same matter.

        A specification whose headings are lost is all one section.
        """
        if self.whole and not self.document.sections:
            return self.prose
        found = (squeezed(each.text) for each in self.sections(*words))
        return "\n".join([self.value(identifier), *found]).strip()

    @property
    def prose(self) -> str:
        """The whole text, white space squeezed, up to the cap."""
        return self.reading.prose

    @property
    def whole(self) -> bool:
        """Is this a specification, and not a template alone?"""
        return self.reading.whole


_LOWER: Final = {at: at + 32 for at in range(ord("A"), ord("Z") + 1)}
_STATUSES: Final = {
    each.value: each
    for each in (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL, Status.REGISTERED, Status.ACTIVE)
}


def fault(code: str, message: str, **where: object) -> Fault:
    """A fault; `where` takes the other members of `Fault`."""
    return Fault(code=code, message=message, **where)  # type: ignore[arg-type]  # the members are Fault's own


def unchecked(what: str, why: str, *, line: int | None = None, fix: str | None = None) -> Fault:
    """The check did not run, and why: silence means checked."""
    return Fault(
        code="could-not-check",
        message=f"not checked: {what}: {why}",
        level=Level.HINT,
        line=line,
        fix=fix,
    )


def lowered(name: str) -> str:
    """In lower case within ASCII alone: the sign of Kelvin is no k (decision 0026)."""
    return name.translate(_LOWER)


def clean_name(text: str) -> str:
    """A scheme's name without what texts put around it: quotes, brackets, a closing colon or `://`."""
    stripped = _NAME_JUNK.sub("", text.strip()[:4096])
    return re.sub(r":(?://)?$", "", stripped)


def shown(text: str, limit: int = MAX_SHOWN) -> str:
    """A stranger's text, safe to repeat: cut to `limit` characters, what does not print as its code point."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(
        each
        if each.isprintable() and (each.isascii() or unicodedata.category(each)[0] in "LNPSZ")
        else _code(each)
        for each in cut
    )


def _code(character: str) -> str:
    return f"<U+{ord(character):04X}>"
