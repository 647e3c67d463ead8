"""RFC and Internet-Draft XML (RFC 7991, and version 2) converted to lines, safely.

The parser is expat, which loads nothing. Entities may only represent single characters, and the depth and
number of elements are limited. References included from other files are identified by the file name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from html.entities import name2codepoint
from typing import Final
from xml.parsers import expat

from onym.errors import TemplateError
from onym.registry.documents import _lines
from onym.registry.documents.types import Reference

MAX_DEPTH: Final = 64
MAX_ELEMENTS: Final = 200_000
#: characters of the text of an entity
MAX_ENTITY: Final = 2

#: character entities of xml2rfc; the others are those of HTML
_ENTITIES: Final[Mapping[str, str]] = {"nbsp": " ", "zwsp": "", "nbhy": "-", "wj": ""}
_INCLUDED: Final = re.compile(
    r"reference\.(?P<series>RFC|BCP|STD|I-D|W3C)\.(?P<name>[A-Za-z0-9._-]{1,80}?)(?:\.xml)?\Z"
)
_INCLUDE: Final = re.compile(r"include=[\"'](?P<name>[^\"']{1,200})[\"']")

#: elements whose text is a paragraph, and its indentation
_PARAGRAPHS: Final[Mapping[str, int]] = {
    "t": 3, "dt": 3, "dd": 6, "li": 6, "preamble": 3, "postamble": 3, "blockquote": 6, "aside": 6, "note": 3,
}  # fmt: skip
_CELLS: Final = frozenset({"td", "th", "c", "ttcol"})
#: elements whose anchor is a key
_REFERENCES: Final = frozenset({"reference", "referencegroup"})
#: elements whose text is not part of the document
_SILENT: Final = frozenset(
    {"author", "area", "workgroup", "keyword", "cref", "iref", "date", "seriesInfo", "svg"}
)


@dataclass(slots=True, kw_only=True)
class FlatDocument:
    """A document's lines and metadata."""

    lines: list[_lines.Line] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    #: the names of its sections, figures and paragraphs
    anchors: set[str] = field(default_factory=set)
    name: str | None = None
    dated: date | None = None
    expires: date | None = None


class _XMLFlattener:
    """The handlers of expat. Text is collected per source line, so that line numbers stay correct."""

    def __init__(self) -> None:
        self.flat = FlatDocument()
        self.is_rfc = False
        self.parser = expat.ParserCreate(encoding="utf-8")
        self.parser.buffer_text = False
        self.path: list[str] = []
        self.elements = 0
        self.rows: dict[int, list[str]] = {}
        self.numbers: list[int] = []
        self.back = False
        self.titling: tuple[int, int, _lines.Heading] | None = None
        self.language: str | None = None
        self.reference: tuple[str, int] | None = None
        self.entry: list[str] = []
        self.cells: list[str] = []
        self.silent = 0
        #: the mark of a list item until its first line is written
        self.bullet = ""
        self._set_handlers()

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def _set_handlers(self) -> None:
        parser = self.parser
        parser.StartElementHandler = self._handle_start
        parser.EndElementHandler = self._handle_end
        parser.CharacterDataHandler = self._add_characters
        parser.EntityDeclHandler = self._handle_entity
        parser.ProcessingInstructionHandler = self._handle_instruction
        parser.SkippedEntityHandler = self._handle_skipped_entity

    # errors

    def _make_error(
        self, message: str, code: str = "registry.hostile-xml", hint: str | None = None
    ) -> TemplateError:
        column = self.parser.CurrentColumnNumber + 1
        return TemplateError(message, code=code, line=self.line, column=column, hint=hint)

    def _handle_entity(
        self,
        name: str,
        is_parameter: bool,
        value: str | None,
        base: str | None,
        system: str | None,
        public: str | None,
        notation: str | None,
    ) -> None:
        simple = value is not None and len(value) <= MAX_ENTITY and not set(value) & set("&%<")
        if is_parameter or not simple:
            hint = "write references out, or include them with xi:include; other entities are not read"
            raise self._make_error(f"the entity {name[:40]!r} is more than a character", hint=hint)

    def _handle_skipped_entity(self, name: str, is_parameter: bool) -> None:
        known = _ENTITIES.get(name)
        if known is None and name in name2codepoint:
            known = chr(name2codepoint[name])
        if known is None:
            message, hint = f"the entity {name[:40]!r} is not declared", "write the character itself"
            raise self._make_error(message, code="registry.bad-xml", hint=hint)
        self._add_characters(known)

    # elements

    def _handle_start(self, name: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if len(self.path) >= MAX_DEPTH or self.elements > MAX_ELEMENTS:
            raise self._make_error(f"elements nest deeper than {MAX_DEPTH}, or are more than {MAX_ELEMENTS}")
        self.path.append(name)
        self.silent += name in _SILENT
        opening = _OPENING.get(name)
        if "anchor" in attributes and name not in _REFERENCES:
            self.flat.anchors.add(attributes["anchor"])
        if name in _PARAGRAPHS:
            self._flush_text()
        if opening is not None:
            opening(self, attributes)

    def _handle_end(self, name: str) -> None:
        closing = _CLOSING.get(name)
        if closing is not None:
            closing(self)
        elif name in _PARAGRAPHS:
            self._flush_text(self._get_indent())
            self._add_blank_line()
            if name == "li":
                self.bullet = ""
        self.silent -= name in _SILENT
        self.path.pop()

    def _add_characters(self, text: str) -> None:
        if self.reference is not None:
            if text != "\n" or self.entry[-1:] != [" "]:
                self.entry.append(" " if text == "\n" else text)
        elif not self.silent and text != "\n":
            self.rows.setdefault(self.line, []).append(text)

    # sections

    def _start_rfc(self, attributes: dict[str, str]) -> None:
        number = attributes.get("number", "")
        draft = attributes.get("docName", "")
        self.is_rfc = number.isascii() and number.isdigit() and len(number) < 6
        self.flat.name = f"RFC {int(number)}" if self.is_rfc else (draft[:200] or None)

    def _start_date(self, attributes: dict[str, str]) -> None:
        if self.path[-3:-1] == ["rfc", "front"]:
            self.flat.dated = _parse_date_attributes(attributes)

    def _start_section(self, attributes: dict[str, str]) -> None:
        self._flush_text()
        depth = self.path.count("section") + self.path.count("references")
        del self.numbers[depth:]
        self.numbers += [0] * (depth - len(self.numbers))
        self.numbers[depth - 1] += 1
        title = attributes.get("title", "References" if self.path[-1] == "references" else "")
        title = " ".join(title.split())
        first = chr(ord("A") + (self.numbers[0] - 1) % 26) if self.back else str(self.numbers[0])
        number = ".".join((first, *map(str, self.numbers[1:depth])))
        heading = _lines.Heading(level=depth, number=number, title=title)
        self.titling = (len(self.flat.lines), self.line, heading)
        self._add_line(f"{number}.  {title}", heading=heading)

    def _end_name(self) -> None:
        text = self._take_text()
        if self.titling is None or self.path[-2] not in ("section", "references"):
            return
        index, line, former = self.titling
        heading = _lines.Heading(level=former.level, number=former.number, title=text)
        self.flat.lines[index] = _lines.Line(number=line, text=f"{heading.number}.  {text}", heading=heading)

    def _end_section(self) -> None:
        self._flush_text(3)
        self._add_blank_line()

    def _start_back(self, attributes: dict[str, str]) -> None:
        # reference sections continue the numbers of the middle; appendices begin at A
        self.flat.lines.append(_lines.Line(number=self.line, text=""))

    def _start_section_or_appendix(self, attributes: dict[str, str]) -> None:
        if "back" in self.path and not self.back:
            self.back = True
            self.numbers.clear()
        self._start_section(attributes)

    # text

    def _add_line(
        self,
        text: str,
        number: int | None = None,
        *,
        heading: _lines.Heading | None = None,
        code: str | None = None,
    ) -> None:
        line = _lines.Line(
            number=self.line if number is None else number, text=text, heading=heading, code=code
        )
        self.flat.lines.append(line)
        _lines.require_at_most(self.flat.lines, _lines.MAX_LINES, "lines")

    def _add_blank_line(self) -> None:
        if self.flat.lines and self.flat.lines[-1].text:
            self._add_line("")

    def _flush_text(self, indent: int = 3) -> None:
        """Write the collected text as prose."""
        rows, self.rows = self.rows, {}
        for number, parts in rows.items():
            text = " ".join("".join(parts).replace("\u00a0", " ").split())
            if text:
                bullet, self.bullet = self.bullet, ""
                self._add_line(" " * indent + bullet + text, number)

    def _take_text(self) -> str:
        """Return the collected text as one line."""
        rows, self.rows = self.rows, {}
        return " ".join(" ".join("".join(row) for row in rows.values()).split())

    def _start_break(self, attributes: dict[str, str]) -> None:
        self._flush_text(self._get_indent())

    def _get_indent(self) -> int:
        return max((_PARAGRAPHS.get(element, 3) for element in self.path), default=3)

    def _start_hanging_text(self, attributes: dict[str, str]) -> None:
        """`<t hangText="Status:">` of version 2 is a label."""
        text = " ".join(attributes.get("hangText", "").split())
        if text:
            self._add_line("   " + text.rstrip(":.") + ":")
            self.path[-1] = "t"

    def _end_term(self) -> None:
        number = next(iter(self.rows), self.line)
        text = self._take_text()
        if text:
            self._add_line("   " + text.rstrip(":. ") + ":", number)

    def _start_code(self, attributes: dict[str, str]) -> None:
        self._flush_text()
        self._add_blank_line()
        self.language = attributes.get("type", "").casefold()

    def _end_code(self) -> None:
        rows, self.rows = self.rows, {}
        numbers = sorted(rows)
        for number in range(numbers[0], numbers[-1] + 1) if numbers else ():
            text = "".join(rows.get(number, ())).replace("\n", "").replace("\r", "").expandtabs(8).rstrip()
            self._add_line(text, number, code=self.language or "")
        self.language = None
        self._add_line("")

    def _start_link(self, attributes: dict[str, str]) -> None:
        """Write a cross reference as xml2rfc prints it."""
        target = attributes.get("target", "")
        section = attributes.get("section", "")
        if section and attributes.get("sectionFormat", "of") == "of":
            self._add_characters(f" Section {section} of [{target}] ")
        elif section:
            self._add_characters(f" [{target}], Section {section} ")
        else:
            self._add_characters(f"[{target}]")

    def _start_eref(self, attributes: dict[str, str]) -> None:
        self._add_characters(f"<{attributes.get('target', '')}>")

    def _end_cell(self) -> None:
        self.cells.append(self._take_text())

    def _end_row(self) -> None:
        cells, self.cells = self.cells, []
        self._add_line(f"   | {' | '.join(cells)} |")

    def _start_list_item(self, attributes: dict[str, str]) -> None:
        self.bullet = "o "

    # references

    def _start_reference(self, attributes: dict[str, str]) -> None:
        self.reference = (attributes.get("anchor", "")[:200], self.line)
        self.entry.clear()

    def _start_series(self, attributes: dict[str, str]) -> None:
        if self.reference is not None:
            self.entry.append(f" {attributes.get('name', '')} {attributes.get('value', '')} ")

    def _end_reference(self) -> None:
        if self.reference is not None and self.reference[0]:
            key, line = self.reference
            text = " ".join("".join(self.entry).split())
            self.flat.references.append(Reference(key=key, text=text, line=line))
        self.reference = None

    def _add_included_reference(self, name: str) -> None:
        match = _INCLUDED.search(name)
        if match is not None:
            key = match["series"] + match["name"].lstrip("0")
            if match["series"] == "I-D":
                key = f"I-D.{match['name']}"
            self.flat.references.append(Reference(key=key, text="", line=self.line))

    def _start_xinclude(self, attributes: dict[str, str]) -> None:
        self._add_included_reference(attributes.get("href", ""))

    def _handle_instruction(self, target: str, data: str) -> None:
        match = _INCLUDE.search(data[:1000]) if target == "rfc" else None
        if match is not None:
            self._add_included_reference(match["name"])


def _parse_date_attributes(attributes: Mapping[str, str]) -> date | None:
    month = attributes.get("month", "")
    number = _lines.MONTHS.index(month.capitalize()) + 1 if month.capitalize() in _lines.MONTHS else month
    try:
        return date(int(attributes.get("year", "")), int(number), int(attributes.get("day") or 1))
    except ValueError:
        return None


_OPENING: Final[Mapping[str, Callable[[_XMLFlattener, dict[str, str]], None]]] = {
    "rfc": _XMLFlattener._start_rfc,
    "date": _XMLFlattener._start_date,
    "back": _XMLFlattener._start_back,
    "section": _XMLFlattener._start_section_or_appendix,
    "references": _XMLFlattener._start_section,
    "t": _XMLFlattener._start_hanging_text,
    "br": _XMLFlattener._start_break,
    "vspace": _XMLFlattener._start_break,
    "artwork": _XMLFlattener._start_code,
    "sourcecode": _XMLFlattener._start_code,
    "xref": _XMLFlattener._start_link,
    "relref": _XMLFlattener._start_link,
    "eref": _XMLFlattener._start_eref,
    "li": _XMLFlattener._start_list_item,
    "reference": _XMLFlattener._start_reference,
    "seriesInfo": _XMLFlattener._start_series,
    "xi:include": _XMLFlattener._start_xinclude,
}
_CLOSING: Final[Mapping[str, Callable[[_XMLFlattener], None]]] = {
    "name": _XMLFlattener._end_name,
    "section": _XMLFlattener._end_section,
    "dt": _XMLFlattener._end_term,
    "artwork": _XMLFlattener._end_code,
    "sourcecode": _XMLFlattener._end_code,
    "reference": _XMLFlattener._end_reference,
    "tr": _XMLFlattener._end_row,
    **dict.fromkeys(_CELLS, _XMLFlattener._end_cell),
}


def flatten_xml(text: str) -> FlatDocument:
    """Return the lines of an XML document. Raises TemplateError: hostile-xml, bad-xml, too-large."""
    _lines.require_at_most(text, _lines.MAX_TEXT, "characters")
    flattener = _XMLFlattener()
    data = text.lstrip("\ufeff \t\r\n").encode("utf-8", "surrogatepass")
    try:
        flattener.parser.Parse(data, True)
    except expat.ExpatError as error:
        message = f"the XML is not valid: {expat.ErrorString(error.code)}"
        line, column = error.lineno, error.offset + 1
        raise TemplateError(message, code="registry.bad-xml", line=line, column=column) from None
    flat = flattener.flat
    flat.expires = None if flattener.is_rfc else _lines.compute_expiry(flat.dated)
    return flat
