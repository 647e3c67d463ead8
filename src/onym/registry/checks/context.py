"""What a check reads and returns: the context of one template, faults, findings and the report.

`DocumentText` is the prose of a document, computed once for all of its templates. `CheckContext` adds one
template, the profile in force, the reference data and the grammar.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, TypeAlias

from onym.registry.checks._grammar import SchemeGrammar
from onym.registry.checks.reference_data import ReferenceData
from onym.registry.documents.types import (
    Block,
    Citation,
    Document,
    DocumentKind,
    Section,
    Template,
    TemplateValue,
)
from onym.registry.records import Status
from onym.registry.registries import Profile


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
        return tuple(finding for finding in self.findings if finding.level is level)

    @property
    def ok(self) -> bool:
        """No errors? Warnings and hints leave it true."""
        return not self.of(Level.ERROR)


#: how much of the document's text the checks of prose read, in characters
MAX_PROSE: Final = 2_000_000
#: lines above and below a citation in which its sentence is looked for
_ABOVE: Final = 3
_BELOW: Final = 2
#: characters of that sentence, before the citation and after it
_BEFORE: Final = 320
_AFTER: Final = 160
#: what may stand under the title of a template without making it a specification: lines, characters
_FEW: Final = 2
_SHORT: Final = 240
_SENTENCE: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+")
_PARAGRAPHS: Final = re.compile(r"\n[ \t]*\n")
_KEY_WORD: Final = re.compile(r"\b(?:MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b")


class DocumentText:
    """The text without markup, comments and page furniture; its sections by their titles."""

    def __init__(self, document: Document) -> None:
        self.document = document
        #: line n of it is line n of the document's text
        self.text = (document.plain or document.text)[:MAX_PROSE]
        self._sections: dict[tuple[str, ...], tuple[Section, ...]] = {}

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The text, line for line."""
        return tuple(self.text.split("\n"))

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def get_line(self, offset: int) -> int:
        """The line of an offset in the text, from 1."""
        return bisect_right(self._starts, offset)

    @cached_property
    def prose(self) -> str:
        """The whole text, white space squeezed, up to the cap."""
        return squeeze_spaces(self.text)

    @cached_property
    def prose_without_blocks(self) -> str:
        """The same without the lines of ABNF."""
        return squeeze_spaces("\n".join(self._lines_without_blocks))

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The same by sentences; headings, and lines that are no text, end one."""
        lines = list(self._lines_without_blocks)
        for at in self._headings:
            lines[at - 1 : at] = [""] if at <= len(lines) else []
        return split_sentences("\n".join("" if line.startswith(("```", "~~~")) else line for line in lines))

    @cached_property
    def _lines_without_blocks(self) -> tuple[str, ...]:
        lines = list(self.lines)
        for block in self.document.blocks:
            for at in range(block.line - 1, min(block.line + block.text.count("\n"), len(lines))):
                lines[at] = ""
        return tuple(lines)

    def find_sections(self, words: tuple[str, ...]) -> tuple[Section, ...]:
        """The sections whose title has one of `words` (lower case), and those below them."""
        found = self._sections.get(words)
        if found is None:
            hit = [_has_word(section.title, words) for section in self.document.sections]
            numbers = {
                section.number
                for section, named in zip(self.document.sections, hit, strict=True)
                if named and section.number
            }
            found = self._sections[words] = tuple(
                section
                for section, named in zip(self.document.sections, hit, strict=True)
                if named or _is_subsection(section.number, numbers)
            )
        return found

    @cached_property
    def is_specification(self) -> bool:
        """Is this a specification, and not a template alone?"""
        document = self.document
        if document.kind is not DocumentKind.MARKDOWN:
            return document.kind is not DocumentKind.TEMPLATE
        if not document.templates:
            return bool(document.sections or document.blocks)
        if any(self._is_outside_fields(block) for block in document.blocks):
            return True
        # the first heading is a title; and a template has headings of its own, or that it stands under
        title, rest = document.sections[:1], document.sections[1:]
        return any(map(self._has_introduction, title)) or any(
            each.text.strip() and not self._is_template_section(each) for each in rest
        )

    def _has_introduction(self, title: Section) -> bool:
        """Is there more under the title, before any template, than a line or two to introduce it?"""
        ends = [template.line for template in self.document.templates]
        ends += [section.line for section in self.document.sections[1:2]]
        end = min(
            (line_number for line_number in ends if line_number > title.line), default=len(self.lines) + 1
        )
        said = [line.strip() for line in self.lines[title.line : end - 1] if line.strip()]
        if _KEY_WORD.search("\n".join(said)):
            return True
        much = len(said) > _FEW or sum(map(len, said)) > _SHORT
        return much and not self._is_template_section(title)

    def _is_outside_fields(self, block: Block) -> bool:
        """Does it stand in no field of a template?"""
        first = squeeze_spaces(block.text.lstrip().partition("\n")[0])
        return first not in self._lines_of_fields

    @cached_property
    def _fields(self) -> tuple[TemplateValue, ...]:
        return tuple(
            value
            for template in self.document.templates
            for value in (*template.values.values(), *template.repeated, *template.unknown)
        )

    @cached_property
    def _lines_of_fields(self) -> frozenset[str]:
        return frozenset(squeeze_spaces(line) for value in self._fields for line in value.text.split("\n"))

    def _is_template_section(self, section: Section) -> bool:
        return (section.number or section.title) in self._template_names or section.line in self._field_lines

    @cached_property
    def _template_names(self) -> frozenset[str | None]:
        return frozenset(template.section for template in self.document.templates)

    @cached_property
    def _field_lines(self) -> frozenset[int]:
        return frozenset(value.line for value in self._fields)

    def is_field(self, line: int) -> bool:
        """Does a field of a template begin on that line?"""
        return line in self._field_lines

    @cached_property
    def _headings(self) -> frozenset[int]:
        return frozenset(section.line for section in self.document.sections)

    def get_title(self, line: int) -> str:
        """The title of the section that a line stands in; "" before the first."""
        at = bisect_right(self.document.sections, line, key=lambda each: each.line)
        return self.document.sections[at - 1].title if at else ""

    def get_sentence(self, cited: Citation) -> str:
        """What stands around a citation: its paragraph's lines nearby, cut to the sentence."""
        above = [cited.line]
        while len(above) <= _ABOVE and self._is_paragraph_line(above[-1] - 1):
            above.append(above[-1] - 1)
        below = cited.line
        while below - cited.line < _BELOW and self._is_paragraph_line(below + 1):
            below += 1
        window = squeeze_spaces("\n".join(self.lines[above[-1] - 1 : below]))
        at = -1 if cited.section is None else window.find(f"ection {cited.section}")
        at = window.find(cited.section or cited.key) if at < 0 else at
        before = window[:at].rpartition(". ")[2] if at >= 0 else window
        after = window[at : at + _AFTER].partition(". ")[0] if at >= 0 else ""
        return before[-_BEFORE:] + after

    def _is_paragraph_line(self, line: int) -> bool:
        """Is that line text of a paragraph?"""
        return (
            0 < line <= len(self.lines) and line not in self._headings and bool(self.lines[line - 1].strip())
        )

    def find_block(self, line: int | None) -> Block | None:
        """The block of ABNF that holds a line of the text."""
        at = 0 if line is None else bisect_right(self._block_starts, line)
        if not at or line is None:
            return None
        block = self.document.blocks[at - 1]
        return block if line <= block.line + block.text.count("\n") else None

    @cached_property
    def _block_starts(self) -> list[int]:
        return [block.line for block in self.document.blocks]


def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, white space squeezed; a paragraph ends one too."""
    paragraphs = (squeeze_spaces(paragraph) for paragraph in _PARAGRAPHS.split(text))
    return tuple(sentence for paragraph in paragraphs for sentence in _SENTENCE.split(paragraph) if sentence)


def squeeze_spaces(text: str) -> str:
    """Runs of white space as one space."""
    return " ".join(text.split())


def _has_word(title: str, words: tuple[str, ...]) -> bool:
    lowered = title.lower()
    return any(word in lowered for word in words)


def _is_subsection(number: str | None, numbers: set[str]) -> bool:
    """Is it the number of a section inside one of these?"""
    while number and "." in number:
        number = number.rpartition(".")[0]
        if number in numbers:
            return True
    return False


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
class Check:
    """One check of the table. `clauses` is by profile: a check runs only under the profiles named there."""

    id: str
    title: str
    clauses: dict[str, str]
    level: Level
    run: Callable[[CheckContext], Faults]


@dataclass(kw_only=True)
class CheckContext:
    """Everything a check may ask of one template in one document."""

    document: Document
    reading: DocumentText
    profile: Profile
    known: ReferenceData
    template: Template | None
    syntax: SchemeGrammar
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
        name = lower_ascii(self.name)
        return name if _SCHEME.fullmatch(name) else (self.syntax.scheme or "")

    @cached_property
    def status(self) -> Status | None:
        """The status asked for, None where the template names none of the three, or two of them."""
        text = _ASIDE.sub("", "" if self.template is None else self.template.text("status")[:4096])
        found = [word.lower() for word in _WORD.findall(text)]
        if not found or len({each for each in found if each in _STATUSES}) > 1:
            return None
        return _STATUSES.get(found[0])

    def get_field(self, identifier: str) -> str:
        """A field of the template, white space squeezed; "" where absent."""
        return "" if self.template is None else squeeze_spaces(self.template.text(identifier))

    def get_line(self, identifier: str) -> int | None:
        """Where that field stands."""
        return None if self.template is None else self.template.line_of(identifier)

    def find_sections(self, *words: str) -> tuple[Section, ...]:
        """The sections whose title has one of `words` (lower case), and those below them."""
        return self.reading.find_sections(words)

    def collect_prose(self, identifier: str, *words: str) -> str:
        """A field's text together with the sections about the same matter.

        A specification whose headings are lost is all one section.
        """
        if self.is_specification and not self.document.sections:
            return self.prose
        found = (squeeze_spaces(section.text) for section in self.find_sections(*words))
        return "\n".join([self.get_field(identifier), *found]).strip()

    @property
    def prose(self) -> str:
        """The whole text, white space squeezed, up to the cap."""
        return self.reading.prose

    @property
    def is_specification(self) -> bool:
        """Is this a specification, and not a template alone?"""
        return self.reading.is_specification


_LOWER: Final = {at: at + 32 for at in range(ord("A"), ord("Z") + 1)}
_STATUSES: Final = {
    each.value: each
    for each in (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL, Status.REGISTERED, Status.ACTIVE)
}


def make_fault(code: str, message: str, **where: object) -> Fault:
    """A fault; `where` takes the other members of `Fault`."""
    return Fault(code=code, message=message, **where)  # type: ignore[arg-type]  # the members are Fault's own


def make_unchecked(what: str, why: str, *, line: int | None = None, fix: str | None = None) -> Fault:
    """The check did not run, and why: silence means checked."""
    return Fault(
        code="could-not-check",
        message=f"not checked: {what}: {why}",
        level=Level.HINT,
        line=line,
        fix=fix,
    )


def lower_ascii(name: str) -> str:
    """In lower case within ASCII alone: the sign of Kelvin is no k (decision 0026)."""
    return name.translate(_LOWER)


def clean_name(text: str) -> str:
    """A scheme's name without what texts put around it: quotes, brackets, a closing colon or `://`."""
    stripped = _NAME_JUNK.sub("", text.strip()[:4096])
    return re.sub(r":(?://)?$", "", stripped)


def to_printable(text: str, limit: int = MAX_SHOWN) -> str:
    """A stranger's text, safe to repeat: cut to `limit` characters, what does not print as its code point."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(
        piece
        if piece.isprintable() and (piece.isascii() or unicodedata.category(piece)[0] in "LNPSZ")
        else _format_code_point(piece)
        for piece in cut
    )


def _format_code_point(character: str) -> str:
    return f"<U+{ord(character):04X}>"
