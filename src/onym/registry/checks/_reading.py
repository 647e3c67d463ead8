"""One document as the checks read its prose: made once, however many templates it has."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final

from onym.registry.documents.types import Block, Citation, Document, DocumentKind, Section

__all__ = ["MAX_PROSE", "Reading", "squeezed"]

#: how much of the document's text the checks of prose read, in characters
MAX_PROSE: Final = 2_000_000
#: lines above and below a citation in which its sentence is looked for
_ABOVE: Final = 3
_BELOW: Final = 2
#: characters of that sentence, before the citation and after it
_BEFORE: Final = 320
_AFTER: Final = 160


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
        lines = list(self.lines)
        for block in self.document.blocks:
            for at in range(block.line - 1, min(block.line + block.text.count("\n"), len(lines))):
                lines[at] = ""
        return squeezed("\n".join(lines))

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
        # the first heading is a title; and a template has headings of its own, or that it stands under
        return any(each.text.strip() and not self._of_template(each) for each in document.sections[1:])

    def _of_template(self, section: Section) -> bool:
        return (section.number or section.title) in self._template_names or section.line in self._field_lines

    @cached_property
    def _template_names(self) -> frozenset[str | None]:
        return frozenset(each.section for each in self.document.templates)

    @cached_property
    def _field_lines(self) -> frozenset[int]:
        return frozenset(
            value.line
            for each in self.document.templates
            for value in (*each.values.values(), *each.repeated, *each.unknown)
        )

    def is_field(self, line: int) -> bool:
        """Does a field of a template begin on that line?"""
        return line in self._field_lines

    @cached_property
    def _headings(self) -> frozenset[int]:
        return frozenset(each.line for each in self.document.sections)

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
