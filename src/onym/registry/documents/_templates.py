"""Registration templates: find them by their labels, read their fields, write them as text.

Two styles are in use. In line style a label begins a line (`Status: permanent`, `Status.`, `**Status**`),
and its value continues until the next label. In heading style every field is a section ("3.2. Status"). A
template begins at the label of the name. It ends at the next name, at a heading that is not part of it,
at a horizontal rule, or where the text is indented less than the labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final

from onym.registry.documents._lines import Heading, Line, clean_rows, count_indent, require_at_most
from onym.registry.documents.types import Template, TemplateValue
from onym.registry.registries import PROFILES, TemplateField, get_profile
from onym.registry.registries import get_registry as registry_row

#: the field id of a name
NAME: Final = "name"

_SPACE: Final = re.compile(r"\s+")
_AROUND_SLASH: Final = re.compile(r" ?/ ?")
_USES: Final = re.compile(
    r"applications?(?: ?(?:/|and/or|and|or) ?protocols?)? (?:that|which) uses? (?:[a-z0-9+.'\"-]+ ){0,3}"
    r"(?:uri|scheme)(?: scheme)?(?: name)?\Z"
)
_MARKS: Final = " \t*_`'\"\u201c\u201d:.\uff1a#"
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A spelling, known: the field it names; `weak` and `stand_in` say how much it proves."""

    id: str
    weak: bool = False
    stand_in: bool = False


def _normalize_label(text: str) -> str:
    key = _AROUND_SLASH.sub("/", _SPACE.sub(" ", text.strip(_MARKS)).casefold())
    key = key.replace("url", "uri").replace("schema", "scheme").replace("protocols which", "protocols that")
    return key.removesuffix("(s)")


class Labels:
    """Every spelling of the fields of some profiles."""

    def __init__(self, fields: Iterable[TemplateField], needed: Iterable[TemplateField]) -> None:
        found: dict[str, Label] = {}
        for each in fields:
            for spelling in each.labels:
                label = Label(id=each.id, weak=spelling in each.weak, stand_in=spelling in each.stand_ins)
                found.setdefault(_normalize_label(spelling), label)
        self._known = found
        self._needed = tuple(needed)
        #: are there the long labels of schemes, which name the scheme in their midst?
        self._of_schemes = any(label.id == "applications" for label in found.values())
        self._prefixes = _collect_prefixes(found)
        #: labels in running text: with a capital and a colon, each space of them any space
        self.inner = _compile_inner(
            key for key, label in found.items() if not label.weak and not label.stand_in
        )

    def find(self, text: str) -> Label | None:
        """The label that a text is, marks and case aside; None where it is none."""
        if len(text) > _LONGEST:
            return None
        key = _normalize_label(text)
        found = self._known.get(key)
        return self._find_scheme_label(key) if found is None and self._of_schemes else found

    def _find_scheme_label(self, key: str) -> Label | None:
        if key.startswith(("uri scheme ", "scheme ")):
            # "URI scheme status": the scheme is named where the standard leaves it out
            found = self._known.get(key.removeprefix("uri ").removeprefix("scheme "))
            if found is not None and not found.weak:
                return found
        return Label(id="applications") if _USES.match(key) else None

    def is_prefix(self, text: str) -> bool:
        """Is this the beginning of a label too long for its line?"""
        return len(text) <= _LONGEST and _normalize_label(text) in self._prefixes

    def format_needed(self) -> str:
        """The labels that a template needs, as a person would write them."""
        return ", ".join(f'"{each.label[:1].upper()}{each.label[1:]}:"' for each in self._needed)


def _collect_prefixes(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(
        " ".join(words[:count])
        for key in keys
        for words in [key.split(" ")]
        for count in range(2, len(words))
        if len(words) > 3
    )


def _compile_inner(keys: Iterable[str]) -> re.Pattern[str]:
    spellings = sorted(keys, key=lambda key: (-len(key), key))
    return re.compile(
        "(?<![^ \n])(?=[A-Z])(?i:"
        + "|".join(re.escape(key).replace(r"\ ", r"[ \n]{1,20}") for key in spellings)
        + ") {0,3}:"
    )


@cache
def get_labels(registry: str) -> Labels:
    """The labels of all profiles of a registry. Raises UnknownEntryError where there is no such registry."""
    row = registry_row(registry)
    profiles = [PROFILES[profile] for profile in row.profiles]
    needed = (each for each in PROFILES[row.default_profile].fields if each.required)
    return Labels((each for form in profiles for each in (*form.fields, *form.elsewhere)), needed)


_LEAD: Final = re.compile(r"(?P<indent> *)(?:(?:[-*+•o] {1,4})|(?P<table>\| *))?(?P<bold>\*\*|__|\*|_|`)?")
#: the number of an item: only before a label with its colon, for headings have numbers too
_ITEM: Final = re.compile(r" *(?:\d{1,2}[.)]|\([a-z0-9]{1,2}\)|[a-z][.)]) {1,4}(?=[A-Z*_`])")
_WORDS: Final = re.compile(r"[A-Z][A-Za-z/&'-]*(?: [A-Za-z/&'()-]+){0,7}\Z")
#: characters of a line in which a label is looked for
_WIDEST: Final = 120


@dataclass(slots=True, kw_only=True)
class LabelMatch:
    """A label where it stands."""

    label: Label | None
    spelling: str
    rest: str
    indent: int
    bare: bool


def _split_lead(text: str) -> tuple[int, bool, str, str]:
    """(indentation, is it a table's row?, marks of emphasis, the rest) of a line."""
    # it matches at every beginning, be it nothing
    lead = next(_LEAD.finditer(text))
    return len(lead["indent"]), lead["table"] is not None, lead["bold"] or "", text[lead.end() :]


def find_label(line: Line, labels: Labels) -> LabelMatch | None:
    """The label, or what has the form of one, that a line begins with."""
    item = _ITEM.match(line.text)
    if item is not None:
        return _find_numbered_label(line, item, labels)
    indent, table, bold, body = _split_lead(line.text)
    if table:
        return _find_cell_label(body, indent, labels)
    before, colon, rest = body[:_WIDEST].replace("\uff1a", ":").partition(":")
    rest = body[len(before) + 1 :]
    if colon and (not rest or not rest[0].isalnum()) and not rest.startswith("//"):
        label = labels.find(before)
        if bold:
            rest = rest.removeprefix(bold).removeprefix("`")
        if label is not None or _WORDS.match(before.rstrip("*_` ")):
            return LabelMatch(
                label=label, spelling=before.strip("*_` "), rest=rest.strip(" "), indent=indent, bare=False
            )
    label = labels.find(body)
    if label is None or not body[:1].isupper():
        return None
    return LabelMatch(label=label, spelling=body.strip("*_` .:"), rest="", indent=indent, bare=True)


def _find_numbered_label(line: Line, item: re.Match[str], labels: Labels) -> LabelMatch | None:
    """A label that is an item of a numbered list."""
    margin = count_indent(line.text)
    found = find_label(Line(number=line.number, text=" " * margin + line.text[item.end() :]), labels)
    return found if found is not None and found.label is not None and not found.bare else None


def _find_cell_label(body: str, indent: int, labels: Labels) -> LabelMatch | None:
    """A row of a table whose first cell is a label."""
    cells = [part.strip() for part in body.rstrip("| ").split("|")]
    label = labels.find(cells[0]) if len(cells) > 1 else None
    if label is None:
        return None
    rest = " ".join(cell for cell in cells[1:] if cell)
    return LabelMatch(label=label, spelling=cells[0].strip("*_` :"), rest=rest, indent=indent, bare=False)


def separate_labels(lines: list[Line], labels: Labels) -> list[Line]:
    """The same lines, labels that share a line put on lines of their own, wrapped labels made whole."""
    out: list[Line] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if _has_inner_label(line, labels):
            end = at
            while end < len(lines) and lines[end].text and lines[end].heading is None:
                end += 1
            out.extend(_split_labels(lines[at:end], labels))
            at = end
        elif at + 1 < len(lines) and _is_wrapped_label(line, lines[at + 1], labels):
            joined = f"{line.text} {lines[at + 1].text.lstrip(' ')}"
            out.append(Line(number=line.number, text=joined, code=line.code))
            at += 2
        else:
            out.append(line)
            at += 1
    return out


def _has_inner_label(line: Line, labels: Labels) -> bool:
    """Does it begin with the label of the name, and hold another label after it?"""
    if line.heading is not None or line.toc or not line.text:
        return False
    found = find_label(line, labels)
    if found is None or found.label is None or found.label.id != NAME or found.bare:
        return False
    return labels.inner.search(found.rest) is not None


def _split_labels(lines: list[Line], labels: Labels) -> list[Line]:
    text = "\n".join(line.text for line in lines)
    starts = [
        0,
        *(
            match.start()
            for match in labels.inner.finditer(text)
            if match.start() > count_indent(lines[0].text) + 4
        ),
    ]
    margin = " " * count_indent(lines[0].text)
    out: list[Line] = []
    row = passed = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        row += text.count("\n", passed, start)
        passed = start
        rows = text[start:end].strip(" ").rstrip("\n ").split("\n")
        # a label that was wrapped is made whole on its first line
        head = labels.inner.match(text[start:end].lstrip(" "))
        if head is not None and "\n" in head[0]:
            rows = [" ".join(" ".join(rows).split())]
        for offset, each in enumerate(rows):
            out.append(Line(number=lines[row].number + offset, text=margin + each.strip(" ")))
    return out


def _is_wrapped_label(line: Line, after: Line, labels: Labels) -> bool:
    """Is a label cut in two by the end of the line?"""
    if line.heading is not None or line.toc or ":" in line.text or not line.text or not after.text:
        return False
    body = _split_lead(line.text)[3]
    if not labels.is_prefix(body) or not body[:1].isupper():
        return False
    rest = after.text[:_WIDEST].partition(":")
    return bool(rest[1]) and labels.find(f"{body} {rest[0]}") is not None


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
class _OpenField:
    id: str
    spelling: str
    line: int
    rest: str = ""
    level: int = 0
    column: int = 0
    stand_in: bool = False
    body: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _TemplateBuilder:
    """A template being read."""

    line: int
    section: str | None
    indent: int
    #: 0 in line style; else the level of the section whose subsections are the fields
    container: int | None = None
    name_key: str | None = None
    #: fields that came before the name: they hold unless they come again after it
    early: int = 0
    fields: list[_OpenField] = field(default_factory=list)

    @property
    def field_ids(self) -> frozenset[str]:
        return frozenset(each.id for each in self.fields[self.early :])

    def is_value_label(self, found: LabelMatch) -> bool:
        """Is even the label of a name part of a value: deeper than the labels, or bare among headings?"""
        if self.container is not None:
            return found.bare
        return self.has_label_column() and found.indent > self.indent + 1

    def has_label_column(self) -> bool:
        """Is what stands deeper part of a value? So it is once two labels stood at the labels' column."""
        return self.fields[-1].rest == "" or sum(each.column == self.indent for each in self.fields) > 1


def clean_value(text: str) -> str:
    """A value as it is kept: no blank lines around it, no spaces at ends of lines, no common indentation."""
    return _dedent_rows(clean_rows(text))


def _dedent_rows(rows: list[str]) -> str:
    first, end = 0, len(rows)
    while first < end and not rows[first]:
        first += 1
    while end > first and not rows[end - 1]:
        end -= 1
    rows = rows[first:end]
    margin = min((count_indent(row) for row in rows if row), default=0)
    return "\n".join(row[margin:] for row in rows)


def _build_value(found: _OpenField, *, last: bool, indent: int, markdown: bool) -> TemplateValue:
    rows = _trim_trailing_prose(found, indent) if last else found.body
    text = _dedent_rows(rows)
    if markdown and not found.rest and text.startswith(": "):
        # a definition list of kramdown
        text = _dedent_rows(f"  {text[2:]}".split("\n"))
    if found.rest:
        # a paragraph after the first line stays one
        gap = "\n" if rows and not rows[0] and text else ""
        text = f"{found.rest}\n{gap}{text}".rstrip("\n")
    if found.id in _ATOMS:
        text = _clean_atom(text)
    return TemplateValue(id=found.id, label=found.spelling, text=text, line=found.line)


def _clean_atom(text: str) -> str:
    bare = text.strip(_QUOTES).removesuffix(".").strip(_QUOTES)
    return text if any(character.isspace() for character in bare) else bare


def _trim_trailing_prose(found: _OpenField, indent: int) -> list[str]:
    """The last field's rows: prose that follows a template at the labels' column is no part of it."""
    some = bool(found.rest)
    for at, row in enumerate(found.body):
        apart = at > 0 and not found.body[at - 1]
        if row and some and (apart or at == 0) and count_indent(row) <= indent and not _is_list_item(row):
            if at == 0:
                continue
            return found.body[:at]
        some = some or bool(row)
    return found.body


def _is_list_item(row: str) -> bool:
    """Does it go on with a list: of references, of people, of links?"""
    return row.lstrip(" ").startswith(("[", "-", "*", "o ", "<", "http", ":"))


class _TemplateReader:
    """Reads lines in order; what it finds is in `done`."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.open: _TemplateBuilder | None = None
        self.section: str | None = None
        self.level = 0
        self.before_blank = True
        self.levels: list[int] = []
        self.done: list[_TemplateBuilder] = []

    def read_lines(self, lines: list[Line]) -> None:
        for line in lines:
            if line.heading is not None:
                self._read_heading(line, line.heading)
            elif not (self._read_rule(line) or self._read_label(line)):
                self._read_text(line)
            self.before_blank = line.blank
        self._close_template()

    def _close_template(self) -> None:
        if self.open is not None:
            self.done.append(self.open)
            require_at_most(self.done, MAX_TEMPLATES, "templates")
        self.open = None

    def _start_template(self, line: Line, indent: int, container: int | None = None) -> _TemplateBuilder:
        self._close_template()
        self.open = _TemplateBuilder(
            line=line.number, section=self.section, indent=indent, container=container
        )
        return self.open

    def _add_field(self, builder: _TemplateBuilder, line: Line, found: LabelMatch, level: int = 0) -> None:
        label = found.label
        builder.fields.append(
            _OpenField(
                id="" if label is None else label.id,
                spelling=found.spelling,
                line=line.number,
                rest=found.rest,
                level=level,
                column=found.indent,
                stand_in=label is not None and label.stand_in,
            )
        )
        require_at_most(builder.fields, MAX_FIELDS, "fields in one template")

    # headings

    def _read_heading(self, line: Line, heading: Heading) -> None:
        label = self.labels.find(heading.title)
        while self.levels and self.levels[-1] >= heading.level:
            self.levels.pop()
        parent = self.levels[-1] if self.levels else 0
        self.levels.append(heading.level)
        builder = self.open
        if builder is not None and builder.container is not None and heading.level > builder.container:
            self._read_field_heading(builder, line, heading, label)
            return
        self._close_template()
        if label is not None and label.id == NAME and not label.weak:
            if heading.number is not None and heading.number.count(".") + 1 == heading.level:
                # numbered by depth: the section around it is known, even if it is not here
                parent = heading.level - 1
            self._read_field_heading(self._start_template(line, 0, parent), line, heading, label)
        self.section = heading.name

    def _read_field_heading(
        self, builder: _TemplateBuilder, line: Line, heading: Heading, label: Label | None
    ) -> None:
        if label is None and builder.fields and heading.level > builder.fields[-1].level:
            body = builder.fields[-1].body
            above = next((row for row in reversed(body) if row), "")
            body.append(" " * count_indent(above) + line.text)
            return
        if label is not None and label.id == NAME and builder.fields:
            builder = self._start_template(line, 0, builder.container)
        found = LabelMatch(label=label, spelling=heading.title, rest="", indent=0, bare=True)
        self._add_field(builder, line, found, heading.level)
        if label is not None and label.id == NAME:
            builder.name_key = heading.title.casefold()

    # lines

    def _read_rule(self, line: Line) -> bool:
        """A rule across the page ends a template."""
        if not _RULE.match(line.text):
            return False
        if self.open is None or (self.open.container is not None and len(line.text) < 5):
            return True
        if count_indent(line.text) > self.open.indent:
            return False
        self._close_template()
        return True

    def _read_label(self, line: Line) -> bool:
        """Take the line for a field, if it is one."""
        if not line.text or line.toc or line.code == "abnf":
            return False
        found = find_label(line, self.labels)
        if found is None:
            return False
        builder = self.open
        if builder is None:
            return self._read_first_label(line, found)
        if found.label is None:
            return self._read_unknown_label(builder, line, found)
        if found.label.id == NAME:
            return self._read_name(builder, line, found, weak=found.label.weak)
        return self._read_field(builder, line, found, found.label.id)

    def _read_first_label(self, line: Line, found: LabelMatch) -> bool:
        label = found.label
        if label is None or (found.bare and (label.id != NAME or label.weak)):
            return False
        builder = self._start_template(line, found.indent)
        self._add_field(builder, line, found)
        if label.id == NAME:
            builder.name_key = found.spelling.casefold()
        return True

    def _read_name(self, builder: _TemplateBuilder, line: Line, found: LabelMatch, *, weak: bool) -> bool:
        """A name begins a template, unless one was begun without."""
        if builder.name_key is None:
            if weak and found.indent > builder.indent:
                return False
            builder.early = len(builder.fields)
            builder.indent = min(builder.indent, found.indent)
        elif (weak and found.spelling.casefold() != builder.name_key) or builder.is_value_label(found):
            return False
        else:
            builder = self._start_template(line, found.indent)
        self._add_field(builder, line, found)
        builder.name_key = found.spelling.casefold()
        return True

    def _read_field(self, builder: _TemplateBuilder, line: Line, found: LabelMatch, identifier: str) -> bool:
        if builder.container is not None:
            return False
        if found.indent > builder.indent:
            if builder.has_label_column() or identifier in builder.field_ids:
                return False
        elif found.indent < builder.indent:
            builder.indent = found.indent
        self._add_field(builder, line, found)
        return True

    def _read_unknown_label(self, builder: _TemplateBuilder, line: Line, found: LabelMatch) -> bool:
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
        self._add_field(builder, line, found)
        return True

    def _read_text(self, line: Line) -> None:
        builder = self.open
        if builder is None:
            return
        outside = line.text and count_indent(line.text) < builder.indent
        if builder.container is None and outside and line.code is None:
            self._close_template()
            return
        builder.fields[-1].body.append(line.text)


def _build_template(builder: _TemplateBuilder, *, markdown: bool) -> Template:
    """What was read, sorted: values by field, what came again, what is foreign."""
    values: dict[str, TemplateValue] = {}
    repeated: list[TemplateValue] = []
    unknown: list[TemplateValue] = []
    named = builder.field_ids
    proper = frozenset(each.id for each in builder.fields if each.id and not each.stand_in)
    for at, each in enumerate(builder.fields):
        last = at == len(builder.fields) - 1 and builder.container is None
        value = _build_value(each, last=last, indent=builder.indent, markdown=markdown)
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


def _is_complete(builder: _TemplateBuilder, labels: Labels) -> bool:
    """Is it a template beyond doubt? A name, and another field that only a registration has."""
    ids = {each.id for each in builder.fields if each.id}
    if builder.name_key is None or NAME not in ids:
        return False
    known = labels.find(builder.name_key)
    if builder.container is not None:
        return "status" in ids
    weak = known is None or known.weak
    return len(ids) > (2 if weak else 1)


def _is_partial(builder: _TemplateBuilder, labels: Labels) -> bool:
    """Is it what somebody may have meant for one? A name alone, or two fields without."""
    if builder.name_key is not None:
        known = labels.find(builder.name_key)
        return known is not None and not known.weak
    return len({each.id for each in builder.fields if each.id}) > 1


def find_templates(
    lines: list[Line], labels: Labels, *, markdown: bool, partial: bool
) -> tuple[Template, ...]:
    """Every template of the lines, in order. `partial` allows one without name, or a name alone."""
    reader = _TemplateReader(labels)
    reader.read_lines(separate_labels(lines, labels))
    chosen = [builder for builder in reader.done if _is_complete(builder, labels)]
    if not chosen and partial:
        chosen = [builder for builder in reader.done if _is_partial(builder, labels)]
    return tuple(_build_template(builder, markdown=markdown) for builder in chosen)


#: fields that RFC 4395 5.4 demands and RFC 7595 7.4 moved to the specification; security and
#: interoperability sections are often added to an RFC 7595 template, so these two prove nothing
_OLD: Final = ("syntax", "semantics", "encoding")
_MARGIN: Final = "    "


def profile_of_template(template: Template, registry: str = "uri-schemes") -> str:
    """The profile whose labels the template uses: "rfc4395" or "rfc7595", elsewhere the registry's only one.

    Raises UnknownEntryError for a registry that there is not.
    """
    profiles = registry_row(registry).profiles
    if len(profiles) == 1:
        return profiles[0]
    return "rfc4395" if any(field_id in template.values for field_id in _OLD) else "rfc7595"


def profile_reason(template: Template, registry: str = "uri-schemes") -> str:
    """Why `profile_of_template` chose as it did, as a sentence."""
    row = registry_row(registry)
    if len(row.profiles) == 1:
        return f"{row.title} has no other procedure"
    old = [template.values[field_id] for field_id in _OLD if field_id in template.values]
    if old:
        labels = ", ".join(f'"{each.label}" (line {each.line})' for each in old)
        return f"it has fields of RFC 4395 5.4 that RFC 7595 7.4 leaves out: {labels}"
    return "it has none of the syntax, semantics and encoding fields of RFC 4395 5.4"


def to_text(values: Mapping[str, str], profile_id: str) -> str:
    """A template in the standard's form, fields in its order, those of the other template after them.

    `values` are by field id; blank ones are left out. Reading the text gives the same values, cleaned
    (no spaces at ends of lines, no common indentation). Raises UnknownEntryError for a profile that
    does not exist.
    """
    chosen = get_profile(profile_id)
    parts = []
    for each in (*chosen.fields, *chosen.elsewhere):
        value = clean_value(values.get(each.id, ""))
        if value:
            parts.append(_format_field(each, value))
    return "\n\n".join(parts) + ("\n" if parts else "")


def _format_field(each: TemplateField, value: str) -> str:
    label = each.label[:1].upper() + each.label[1:]
    if "\n" not in value:
        return f"{label}: {value}"
    # four columns: no label, heading or rule of a value is taken for one of the template
    rows = [f"{_MARGIN}{row}" if row else "" for row in value.split("\n")]
    return "\n".join((f"{label}:", *rows))
