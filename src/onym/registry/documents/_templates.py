"""Registration templates, found by their labels and read into fields.

Two styles are in use. In line style a label begins a line (`Status: permanent`, `Status.`, `**Status**`)
and its value goes on until the next label. In heading style every field is a section ("3.2. Status").
A template begins at the label of the name; it ends at the next name, at a heading that is no part of it,
at a rule, or where the text falls back left of the labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from onym.registry.documents._found import Found, apart, find
from onym.registry.documents._labels import NAME, Label, Labels
from onym.registry.documents._lines import Heading, Line, capped, indent_of, mended
from onym.registry.documents.types import Template, TemplateValue

__all__ = ["MAX_FIELDS", "MAX_TEMPLATES", "clean", "read_templates"]

#: templates of one document; fields of one template, foreign and repeated ones counted
MAX_TEMPLATES: Final = 500
MAX_FIELDS: Final = 200

_RULE: Final = re.compile(r" *(?:-{3,}|={3,}|_{3,}|\*{3,}) *\Z")
#: one word and a colon that begin a remark inside a value, not a field
_REMARKS: Final = frozenset(
    (
        *("note", "notes", "example", "examples", "abnf", "where", "default", "warning", "see", "todo"),
        *("http", "https", "mailto", "email", "e-mail", "phone", "url", "uri", "changes"),
    )
)
#: these two are one word or name: quotes, a final stop and marks are not part of them
_ATOMS: Final = frozenset({NAME, "status"})
_QUOTES: Final = "\"'`\u201c\u201d\u2018\u2019*_ "


@dataclass(slots=True, kw_only=True)
class _Field:
    id: str
    spelling: str
    line: int
    rest: str = ""
    level: int = 0
    column: int = 0
    stand_in: bool = False
    body: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Builder:
    """A template being read."""

    line: int
    section: str | None
    indent: int
    #: 0 in line style; else the level of the section whose subsections are the fields
    container: int | None = None
    name_key: str | None = None
    #: fields that came before the name: they hold unless they come again after it
    early: int = 0
    fields: list[_Field] = field(default_factory=list)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(each.id for each in self.fields[self.early :])

    def swallows(self, found: Found) -> bool:
        """Is even the label of a name part of a value: deeper than the labels, or bare among headings?"""
        if self.container is not None:
            return found.bare
        return self.level_columns() and found.indent > self.indent + 1

    def level_columns(self) -> bool:
        """Is what stands deeper part of a value? So it is once two labels stood at the labels' column."""
        return self.fields[-1].rest == "" or sum(each.column == self.indent for each in self.fields) > 1


def clean(text: str) -> str:
    """A value as it is kept: no blank lines around it, no spaces at ends of lines, no common indentation."""
    return _dedented(mended(text))


def _dedented(rows: list[str]) -> str:
    first, end = 0, len(rows)
    while first < end and not rows[first]:
        first += 1
    while end > first and not rows[end - 1]:
        end -= 1
    rows = rows[first:end]
    margin = min((indent_of(row) for row in rows if row), default=0)
    return "\n".join(row[margin:] for row in rows)


def _value(found: _Field, *, last: bool, indent: int, markdown: bool) -> TemplateValue:
    rows = _own(found, indent) if last else found.body
    text = _dedented(rows)
    if markdown and not found.rest and text.startswith(": "):
        # a definition list of kramdown
        text = _dedented(f"  {text[2:]}".split("\n"))
    if found.rest:
        # a paragraph after the first line stays one
        gap = "\n" if rows and not rows[0] and text else ""
        text = f"{found.rest}\n{gap}{text}".rstrip("\n")
    if found.id in _ATOMS:
        text = _atom(text)
    return TemplateValue(id=found.id, label=found.spelling, text=text, line=found.line)


def _atom(text: str) -> str:
    bare = text.strip(_QUOTES).removesuffix(".").strip(_QUOTES)
    return text if any(each.isspace() for each in bare) else bare


def _own(found: _Field, indent: int) -> list[str]:
    """The last field's rows: prose that follows a template at the labels' column is no part of it."""
    some = bool(found.rest)
    for at, row in enumerate(found.body):
        apart = at > 0 and not found.body[at - 1]
        if row and some and (apart or at == 0) and indent_of(row) <= indent and not _item(row):
            if at == 0:
                continue
            return found.body[:at]
        some = some or bool(row)
    return found.body


def _item(row: str) -> bool:
    """Does it go on with a list: of references, of people, of links?"""
    return row.lstrip(" ").startswith(("[", "-", "*", "o ", "<", "http", ":"))


class _Reader:
    """Reads lines in order; what it finds is in `done`."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.open: _Builder | None = None
        self.section: str | None = None
        self.level = 0
        self.before_blank = True
        self.levels: list[int] = []
        self.done: list[_Builder] = []

    def read(self, lines: list[Line]) -> None:
        for line in lines:
            if line.heading is not None:
                self._heading(line, line.heading)
            elif not (self._rule(line) or self._label(line)):
                self._text(line)
            self.before_blank = line.blank
        self._close()

    def _close(self) -> None:
        if self.open is not None:
            self.done.append(self.open)
            capped(self.done, MAX_TEMPLATES, "templates")
        self.open = None

    def _start(self, line: Line, indent: int, container: int | None = None) -> _Builder:
        self._close()
        self.open = _Builder(line=line.number, section=self.section, indent=indent, container=container)
        return self.open

    def _add(self, builder: _Builder, line: Line, found: Found, level: int = 0) -> None:
        label = found.label
        builder.fields.append(
            _Field(
                id="" if label is None else label.id,
                spelling=found.spelling,
                line=line.number,
                rest=found.rest,
                level=level,
                column=found.indent,
                stand_in=label is not None and label.stand_in,
            )
        )
        capped(builder.fields, MAX_FIELDS, "fields in one template")

    # headings

    def _heading(self, line: Line, heading: Heading) -> None:
        label = self.labels.find(heading.title)
        while self.levels and self.levels[-1] >= heading.level:
            self.levels.pop()
        parent = self.levels[-1] if self.levels else 0
        self.levels.append(heading.level)
        builder = self.open
        if builder is not None and builder.container is not None and heading.level > builder.container:
            self._field_heading(builder, line, heading, label)
            return
        self._close()
        if label is not None and label.id == NAME and not label.weak:
            if heading.number is not None and heading.number.count(".") + 1 == heading.level:
                # numbered by depth: the section around it is known, even if it is not here
                parent = heading.level - 1
            self._field_heading(self._start(line, 0, parent), line, heading, label)
        self.section = heading.name

    def _field_heading(self, builder: _Builder, line: Line, heading: Heading, label: Label | None) -> None:
        if label is None and builder.fields and heading.level > builder.fields[-1].level:
            body = builder.fields[-1].body
            above = next((row for row in reversed(body) if row), "")
            body.append(" " * indent_of(above) + line.text)
            return
        if label is not None and label.id == NAME and builder.fields:
            builder = self._start(line, 0, builder.container)
        found = Found(label=label, spelling=heading.title, rest="", indent=0, bare=True)
        self._add(builder, line, found, heading.level)
        if label is not None and label.id == NAME:
            builder.name_key = heading.title.casefold()

    # lines

    def _rule(self, line: Line) -> bool:
        """A rule across the page ends a template."""
        if not _RULE.match(line.text):
            return False
        if self.open is None or (self.open.container is not None and len(line.text) < 5):
            return True
        if indent_of(line.text) > self.open.indent:
            return False
        self._close()
        return True

    def _label(self, line: Line) -> bool:
        """Take the line for a field, if it is one."""
        if not line.text or line.toc or line.code == "abnf":
            return False
        found = find(line, self.labels)
        if found is None:
            return False
        builder = self.open
        if builder is None:
            return self._first(line, found)
        if found.label is None:
            return self._foreign(builder, line, found)
        if found.label.id == NAME:
            return self._name(builder, line, found, weak=found.label.weak)
        return self._field(builder, line, found, found.label.id)

    def _first(self, line: Line, found: Found) -> bool:
        label = found.label
        if label is None or (found.bare and (label.id != NAME or label.weak)):
            return False
        builder = self._start(line, found.indent)
        self._add(builder, line, found)
        if label.id == NAME:
            builder.name_key = found.spelling.casefold()
        return True

    def _name(self, builder: _Builder, line: Line, found: Found, *, weak: bool) -> bool:
        """A name begins a template, unless one was begun without."""
        if builder.name_key is None:
            if weak and found.indent > builder.indent:
                return False
            builder.early = len(builder.fields)
            builder.indent = min(builder.indent, found.indent)
        elif (weak and found.spelling.casefold() != builder.name_key) or builder.swallows(found):
            return False
        else:
            builder = self._start(line, found.indent)
        self._add(builder, line, found)
        builder.name_key = found.spelling.casefold()
        return True

    def _field(self, builder: _Builder, line: Line, found: Found, identifier: str) -> bool:
        if builder.container is not None:
            return False
        if found.indent > builder.indent:
            if builder.level_columns() or identifier in builder.ids:
                return False
        elif found.indent < builder.indent:
            builder.indent = found.indent
        self._add(builder, line, found)
        return True

    def _foreign(self, builder: _Builder, line: Line, found: Found) -> bool:
        """A label that no template has: at the labels' column, and at the beginning of a paragraph."""
        last = builder.fields[-1]
        begins = self.before_blank or (last.rest != "" and not last.body)
        one_word = " " not in found.spelling
        if (
            builder.container is not None
            or found.indent != builder.indent
            or not begins
            or (one_word and found.spelling.casefold() in _REMARKS)
        ):
            return False
        self._add(builder, line, found)
        return True

    def _text(self, line: Line) -> None:
        builder = self.open
        if builder is None:
            return
        outside = line.text and indent_of(line.text) < builder.indent
        if builder.container is None and outside and line.code is None:
            self._close()
            return
        builder.fields[-1].body.append(line.text)


def _template(builder: _Builder, *, markdown: bool) -> Template:
    """What was read, sorted: values by field, what came again, what is foreign."""
    values: dict[str, TemplateValue] = {}
    repeated: list[TemplateValue] = []
    unknown: list[TemplateValue] = []
    named = builder.ids
    proper = frozenset(each.id for each in builder.fields if each.id and not each.stand_in)
    for at, each in enumerate(builder.fields):
        last = at == len(builder.fields) - 1 and builder.container is None
        value = _value(each, last=last, indent=builder.indent, markdown=markdown)
        if not each.id or (each.stand_in and each.id in proper):
            unknown.append(value)
        elif each.id in values or (at < builder.early and each.id in named):
            repeated.append(value)
        else:
            values[each.id] = value
    return Template(
        values=MappingProxyType(values),
        repeated=tuple(repeated),
        unknown=tuple(unknown),
        line=builder.line,
        section=builder.section,
    )


def _whole(builder: _Builder, labels: Labels) -> bool:
    """Is it a template beyond doubt? A name, and another field that only a registration has."""
    ids = {each.id for each in builder.fields if each.id}
    if builder.name_key is None or NAME not in ids:
        return False
    known = labels.find(builder.name_key)
    if builder.container is not None:
        return "status" in ids
    weak = known is None or known.weak
    return len(ids) > (2 if weak else 1)


def _part(builder: _Builder, labels: Labels) -> bool:
    """Is it what somebody may have meant for one? A name alone, or two fields without."""
    if builder.name_key is not None:
        known = labels.find(builder.name_key)
        return known is not None and not known.weak
    return len({each.id for each in builder.fields if each.id}) > 1


def read_templates(
    lines: list[Line], labels: Labels, *, markdown: bool, partial: bool
) -> tuple[Template, ...]:
    """Every template of the lines, in order. `partial` allows one without name, or a name alone."""
    reader = _Reader(labels)
    reader.read(apart(lines, labels))
    chosen = [each for each in reader.done if _whole(each, labels)]
    if not chosen and partial:
        chosen = [each for each in reader.done if _part(each, labels)]
    return tuple(_template(each, markdown=markdown) for each in chosen)
