"""One document as the checks read its prose: made once, however many templates it has."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final

from onym.registry.documents.types import Block, Citation, Document, DocumentKind, Section, TemplateValue

__all__ = ["MAX_PROSE", "Reading", "sentences_of", "squeezed"]

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


class Reading:
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

    def line(self, offset: int) -> int:
        """The line of an offset in the text, from 1."""
        return bisect_right(self._starts, offset)

    @cached_property
    def prose(self) -> str:
        """The whole text, white space squeezed, up to the cap."""
        return squeezed(self.text)

    @cached_property
    def prose_without_blocks(self) -> str:
        """The same without the lines of ABNF."""
        return squeezed("\n".join(self._lines_without_blocks))

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The same by sentences; headings, and lines that are no text, end one."""
        lines = list(self._lines_without_blocks)
        for at in self._headings:
            lines[at - 1 : at] = [""] if at <= len(lines) else []
        return sentences_of("\n".join("" if each.startswith(("```", "~~~")) else each for each in lines))

    @cached_property
    def _lines_without_blocks(self) -> tuple[str, ...]:
        lines = list(self.lines)
        for block in self.document.blocks:
            for at in range(block.line - 1, min(block.line + block.text.count("\n"), len(lines))):
                lines[at] = ""
        return tuple(lines)

    def sections(self, words: tuple[str, ...]) -> tuple[Section, ...]:
        """The sections whose title has one of `words` (lower case), and those below them."""
        found = self._sections.get(words)
        if found is None:
            hit = [_has(each.title, words) for each in self.document.sections]
            numbers = {
                each.number
                for each, named in zip(self.document.sections, hit, strict=True)
                if named and each.number
            }
            found = self._sections[words] = tuple(
                each
                for each, named in zip(self.document.sections, hit, strict=True)
                if named or _below(each.number, numbers)
            )
        return found

    @cached_property
    def whole(self) -> bool:
        """Is this a specification, and not a template alone?"""
        document = self.document
        if document.kind is not DocumentKind.MARKDOWN:
            return document.kind is not DocumentKind.TEMPLATE
        if not document.templates:
            return bool(document.sections or document.blocks)
        if any(self._outside(each) for each in document.blocks):
            return True
        # the first heading is a title; and a template has headings of its own, or that it stands under
        title, rest = document.sections[:1], document.sections[1:]
        return any(map(self._says_much, title)) or any(
            each.text.strip() and not self._of_template(each) for each in rest
        )

    def _says_much(self, title: Section) -> bool:
        """Is there more under the title, before any template, than a line or two to introduce it?"""
        ends = [each.line for each in self.document.templates]
        ends += [each.line for each in self.document.sections[1:2]]
        end = min((each for each in ends if each > title.line), default=len(self.lines) + 1)
        said = [each.strip() for each in self.lines[title.line : end - 1] if each.strip()]
        if _KEY_WORD.search("\n".join(said)):
            return True
        much = len(said) > _FEW or sum(map(len, said)) > _SHORT
        return much and not self._of_template(title)

    def _outside(self, block: Block) -> bool:
        """Does it stand in no field of a template?"""
        first = squeezed(block.text.lstrip().partition("\n")[0])
        return first not in self._lines_of_fields

    @cached_property
    def _fields(self) -> tuple[TemplateValue, ...]:
        return tuple(
            value
            for each in self.document.templates
            for value in (*each.values.values(), *each.repeated, *each.unknown)
        )

    @cached_property
    def _lines_of_fields(self) -> frozenset[str]:
        return frozenset(squeezed(line) for each in self._fields for line in each.text.split("\n"))

    def _of_template(self, section: Section) -> bool:
        return (section.number or section.title) in self._template_names or section.line in self._field_lines

    @cached_property
    def _template_names(self) -> frozenset[str | None]:
        return frozenset(each.section for each in self.document.templates)

    @cached_property
    def _field_lines(self) -> frozenset[int]:
        return frozenset(each.line for each in self._fields)

    def is_field(self, line: int) -> bool:
        """Does a field of a template begin on that line?"""
        return line in self._field_lines

    @cached_property
    def _headings(self) -> frozenset[int]:
        return frozenset(each.line for each in self.document.sections)

    def title(self, line: int) -> str:
        """The title of the section that a line stands in; "" before the first."""
        at = bisect_right(self.document.sections, line, key=lambda each: each.line)
        return self.document.sections[at - 1].title if at else ""

    def sentence(self, cited: Citation) -> str:
        """What stands around a citation: its paragraph's lines nearby, cut to the sentence."""
        above = [cited.line]
        while len(above) <= _ABOVE and self._goes_on(above[-1] - 1):
            above.append(above[-1] - 1)
        below = cited.line
        while below - cited.line < _BELOW and self._goes_on(below + 1):
            below += 1
        window = squeezed("\n".join(self.lines[above[-1] - 1 : below]))
        at = -1 if cited.section is None else window.find(f"ection {cited.section}")
        at = window.find(cited.section or cited.key) if at < 0 else at
        before = window[:at].rpartition(". ")[2] if at >= 0 else window
        after = window[at : at + _AFTER].partition(". ")[0] if at >= 0 else ""
        return before[-_BEFORE:] + after

    def _goes_on(self, line: int) -> bool:
        """Is that line text of a paragraph?"""
        return (
            0 < line <= len(self.lines) and line not in self._headings and bool(self.lines[line - 1].strip())
        )

    def block_at(self, line: int | None) -> Block | None:
        """The block of ABNF that holds a line of the text."""
        at = 0 if line is None else bisect_right(self._block_starts, line)
        if not at or line is None:
            return None
        block = self.document.blocks[at - 1]
        return block if line <= block.line + block.text.count("\n") else None

    @cached_property
    def _block_starts(self) -> list[int]:
        return [each.line for each in self.document.blocks]


def sentences_of(text: str) -> tuple[str, ...]:
    """The sentences of a text, white space squeezed; a paragraph ends one too."""
    paragraphs = (squeezed(each) for each in _PARAGRAPHS.split(text))
    return tuple(each for paragraph in paragraphs for each in _SENTENCE.split(paragraph) if each)


def squeezed(text: str) -> str:
    """Runs of white space as one space."""
    return " ".join(text.split())


def _has(title: str, words: tuple[str, ...]) -> bool:
    lowered = title.lower()
    return any(word in lowered for word in words)


def _below(number: str | None, numbers: set[str]) -> bool:
    """Is it the number of a section inside one of these?"""
    while number and "." in number:
        number = number.rpartition(".")[0]
        if number in numbers:
            return True
    return False
