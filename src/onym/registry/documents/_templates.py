"""Registration templates: find them by their labels, read their fields, write them as text.

In line style a label begins a line (`Status: permanent`, `**Status**`); in heading style every field is a
section ("3.2. Status"). A template begins at the label of the name, and ends at the next name, at a heading
that is not part of it, at a horizontal rule, or where the text is indented less than the labels.
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
from onym.registry.registries import PROFILES, TemplateField, get_catalog, get_profile, get_registry

#: the field ids of a name and of a syntax
NAME: Final = "name"
SYNTAX: Final = "syntax"

_SPACE: Final = re.compile(r"\s+")
_AROUND_SLASH: Final = re.compile(r" ?/ ?")
_USES: Final = re.compile(
    r"(?:applications?(?: ?(?:/|and/or|and|or) ?protocols?)?|protocols?) (?:that|which) uses? "
    r"(?:[a-z0-9+.'\"-]+ ){0,3}"
    r"(?:uri|scheme)(?: scheme)?(?: name)?\Z"
)
#: fields that the entries of any registry may have
_COMMON_FIELDS: Final = frozenset({NAME, "contact", "references"})
_MARKS: Final = " \t*_`'\"\u201c\u201d:.\uff1a#"
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The field that a known spelling names; a `weak` or `stand_in` spelling proves less."""

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
        self._known: dict[str, Label] = {}
        for field_ in fields:
            for spelling in field_.labels:
                weak, stand_in = spelling in field_.weak, spelling in field_.stand_ins
                label = Label(id=field_.id, weak=weak, stand_in=stand_in)
                self._known.setdefault(_normalize_label(spelling), label)
        self._needed = tuple(needed)
        #: the fields that other lists of names do not have
        self.distinctive = frozenset(field_.id for field_ in self._needed) - _COMMON_FIELDS
        #: whether there are the long labels of schemes, which contain the word "scheme"
        self._of_schemes = any(label.id == "applications" for label in self._known.values())
        #: beginnings of labels of more than three words, which may be wrapped
        self._prefixes = frozenset(
            " ".join(words[:count])
            for words in (key.split(" ") for key in self._known)
            for count in range(2, len(words))
            if len(words) > 3
        )
        #: labels in running text: with a capital and a colon, and with line ends as spaces
        self.inner = _compile_inner(
            key for key, label in self._known.items() if not label.weak and not label.stand_in
        )

    def find(self, text: str) -> Label | None:
        """Return the label of a text, ignoring marks and case; None if it is not a label."""
        if len(text) > _LONGEST:
            return None
        key = _normalize_label(text)
        if key in self._known or not self._of_schemes:
            return self._known.get(key)
        if key.startswith(("uri scheme ", "scheme ")):
            # "URI scheme status": the standard has only "Status"
            label = self._known.get(key.removeprefix("uri ").removeprefix("scheme "))
            if label is not None and not label.weak:
                return label
        return Label(id="applications") if _USES.match(key) else None

    def is_prefix(self, text: str) -> bool:
        """Return whether this may be the beginning of a wrapped label."""
        return len(text) <= _LONGEST and _normalize_label(text) in self._prefixes

    def format_needed(self) -> str:
        """Return the labels that a template needs, in the usual spelling."""
        return ", ".join(f'"{_capitalize_label(field_)}:"' for field_ in self._needed)


def _capitalize_label(field_: TemplateField) -> str:
    return field_.label[:1].upper() + field_.label[1:]


def _compile_inner(keys: Iterable[str]) -> re.Pattern[str]:
    spellings = sorted(keys, key=lambda key: (-len(key), key))
    return re.compile(
        "(?<![^ \n])(?=[A-Z])(?i:"
        + "|".join(re.escape(key).replace(r"\ ", r"[ \n]{1,20}") for key in spellings)
        + ") {0,3}:"
    )


def get_labels(registry: str) -> Labels:
    """Return the labels of all profiles of a registry. Raises UnknownEntryError if it does not exist."""
    return _build_labels(get_registry(registry).id, get_catalog().digest)


@cache
def _build_labels(registry: str, digest: str) -> Labels:
    """Return the labels under the definition with this digest."""
    row = get_registry(registry)
    profiles = [PROFILES[profile] for profile in row.profiles]
    fields = (field_ for profile in profiles for field_ in (*profile.fields, *profile.elsewhere))
    return Labels(fields, (field_ for field_ in PROFILES[row.default_profile].fields if field_.required))


_LEAD: Final = re.compile(r"(?P<indent> *)(?:(?:[-*+•o] {1,4})|(?P<table>\| *))?(?P<bold>\*\*|__|\*|_|`)?")
#: the number of a list item; only before a label with a colon, because headings have numbers too
_ITEM: Final = re.compile(r" *(?:\d{1,2}[.)]|\([a-z0-9]{1,2}\)|[a-z][.)]) {1,4}(?=[A-Z*_`])")
_WORDS: Final = re.compile(r"[A-Z][A-Za-z/&'-]*(?: [A-Za-z/&'()-]+){0,7}\Z")
#: characters of a line in which a label is searched
_WIDEST: Final = 120


@dataclass(slots=True, kw_only=True)
class LabelMatch:
    """A label and its position in a line; `bare` labels have no colon."""

    label: Label | None
    spelling: str
    rest: str
    indent: int
    bare: bool


def _split_lead(text: str) -> tuple[int, bool, str, str]:
    """Return the indentation, whether it is a table row, the marks of emphasis and the rest of a line."""
    # the pattern matches every text
    lead = next(_LEAD.finditer(text))
    return len(lead["indent"]), lead["table"] is not None, lead["bold"] or "", text[lead.end() :]


def find_label(line: Line, labels: Labels) -> LabelMatch | None:
    """Return the label, or a text of that form, at the beginning of a line."""
    item = _ITEM.match(line.text)
    if item is not None:
        text = " " * count_indent(line.text) + line.text[item.end() :]
        match = find_label(Line(number=line.number, text=text), labels)
        return match if match is not None and match.label is not None and not match.bare else None
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


def _find_cell_label(body: str, indent: int, labels: Labels) -> LabelMatch | None:
    cells = [part.strip() for part in body.rstrip("| ").split("|")]
    label = labels.find(cells[0]) if len(cells) > 1 else None
    if label is None:
        return None
    rest = " ".join(cell for cell in cells[1:] if cell)
    return LabelMatch(label=label, spelling=cells[0].strip("*_` :"), rest=rest, indent=indent, bare=False)


def separate_labels(lines: list[Line], labels: Labels) -> list[Line]:
    """Return the lines with each label at the beginning of a line, and wrapped labels joined."""
    separated: list[Line] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if _has_inner_label(line, labels):
            end = index
            while end < len(lines) and lines[end].text and lines[end].heading is None:
                end += 1
            separated.extend(_split_labels(lines[index:end], labels))
            index = end
        elif index + 1 < len(lines) and _is_wrapped_label(line, lines[index + 1], labels):
            joined = f"{line.text} {lines[index + 1].text.lstrip(' ')}"
            separated.append(Line(number=line.number, text=joined, code=line.code))
            index += 2
        else:
            separated.append(line)
            index += 1
    return separated


def _has_inner_label(line: Line, labels: Labels) -> bool:
    """Return whether the line begins with the label of the name and has another label after it."""
    if line.heading is not None or line.toc or not line.text:
        return False
    match = find_label(line, labels)
    if match is None or match.label is None or match.label.id != NAME or match.bare:
        return False
    return labels.inner.search(match.rest) is not None


def _split_labels(lines: list[Line], labels: Labels) -> list[Line]:
    text = "\n".join(line.text for line in lines)
    indent = count_indent(lines[0].text)
    starts = [match.start() for match in labels.inner.finditer(text) if match.start() > indent + 4]
    separated: list[Line] = []
    index = passed = 0
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        index += text.count("\n", passed, start)
        passed = start
        rows = text[start:end].strip(" ").rstrip("\n ").split("\n")
        # a wrapped label is joined on its first line
        head = labels.inner.match(text[start:end].lstrip(" "))
        if head is not None and "\n" in head[0]:
            rows = [" ".join(" ".join(rows).split())]
        for offset, row in enumerate(rows):
            number = lines[index].number + offset
            separated.append(Line(number=number, text=" " * indent + row.strip(" ")))
    return separated


def _is_wrapped_label(line: Line, after: Line, labels: Labels) -> bool:
    """Return whether the end of the line divides a label."""
    if line.heading is not None or line.toc or ":" in line.text or not line.text or not after.text:
        return False
    body = _split_lead(line.text)[3]
    if not labels.is_prefix(body) or not body[:1].isupper():
        return False
    rest = after.text[:_WIDEST].partition(":")
    return bool(rest[1]) and labels.find(f"{body} {rest[0]}") is not None


#: templates of one document; fields of one template, with unknown and repeated fields
MAX_TEMPLATES: Final = 500
MAX_FIELDS: Final = 200

#: words of the longest name; "kite and kites" are two names
_NAME_WORDS: Final = 4

_RULE: Final = re.compile(r" *(?:-{3,}|={3,}|_{3,}|\*{3,}) *\Z")
#: words that with a colon begin a remark inside a value, not a field
_REMARKS: Final = frozenset(
    (
        *("note", "notes", "example", "examples", "abnf", "where", "default", "warning", "see", "todo"),
        *("http", "https", "mailto", "email", "e-mail", "phone", "url", "uri", "changes"),
    )
)
#: fields of one word, without quotes, full stop and marks
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
    """A template that is being read."""

    line: int
    section: str | None
    indent: int
    #: None in line style, else the level of the section whose subsections are the fields
    container: int | None = None
    name_key: str | None = None
    #: number of fields before the name, which a later field of the same id replaces
    early: int = 0
    fields: list[_OpenField] = field(default_factory=list)

    @property
    def field_ids(self) -> frozenset[str]:
        return frozenset(field_.id for field_ in self.fields[self.early :])

    def is_value_label(self, found: LabelMatch) -> bool:
        """Return whether the label of a name is part of a value: indented, or bare among headings."""
        if self.container is not None:
            return found.bare
        return self.has_label_column() and found.indent > self.indent + 1

    def has_label_column(self) -> bool:
        """Return whether indented text is part of a value: two labels are at the column of the labels."""
        return self.fields[-1].rest == "" or [field_.column for field_ in self.fields].count(self.indent) > 1


def clean_value(text: str) -> str:
    """Return a value without blank lines around it, spaces at ends of lines and common indentation."""
    return _dedent_rows(clean_rows(text))


def _dedent_rows(rows: list[str]) -> str:
    filled = [index for index, row in enumerate(rows) if row]
    rows = rows[filled[0] : filled[-1] + 1] if filled else []
    margin = min((count_indent(row) for row in rows if row), default=0)
    return "\n".join(row[margin:] for row in rows)


def _build_value(field_: _OpenField, *, last: bool, indent: int, markdown: bool) -> TemplateValue:
    rows = _trim_trailing_prose(field_, indent) if last else field_.body
    text = _dedent_rows(rows)
    if markdown and not field_.rest and text.startswith(": "):
        # a definition list of kramdown
        text = _dedent_rows(f"  {text[2:]}".split("\n"))
    if field_.rest:
        # keep the paragraph after the first line separate
        gap = "\n" if rows and not rows[0] and text else ""
        text = f"{field_.rest}\n{gap}{text}".rstrip("\n")
    if field_.id in _ATOMS:
        bare = text.strip(_QUOTES).removesuffix(".").strip(_QUOTES)
        text = text if any(map(str.isspace, bare)) else bare
    return TemplateValue(id=field_.id, label=field_.spelling, text=text, line=field_.line)


#: the beginning of a list item, or of a line of an address
_LIST_ITEM: Final = re.compile(r" *(?:[\[*<:-]|o |http|(?:phone|tel|fax|e-?mail|ur[il]) ?:)", re.IGNORECASE)


def _trim_trailing_prose(field_: _OpenField, indent: int) -> list[str]:
    """Return the last field's rows without the prose after the template, at the column of the labels."""
    some = bool(field_.rest)
    for index, row in enumerate(field_.body):
        # the next item of a list (of references, people, links) is part of the value
        is_item = _LIST_ITEM.match(row) is not None
        apart = index > 0 and not field_.body[index - 1]
        if row and some and apart and count_indent(row) <= indent and not is_item:
            return field_.body[:index]
        some = some or bool(row)
    return field_.body


class _TemplateReader:
    """Reads lines in order and collects templates in `done`."""

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

    def _add_field(self, builder: _TemplateBuilder, line: Line, match: LabelMatch, level: int = 0) -> None:
        label = match.label
        builder.fields.append(
            _OpenField(
                id="" if label is None else label.id,
                spelling=match.spelling,
                line=line.number,
                rest=match.rest,
                level=level,
                column=match.indent,
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
                # the number shows the level of the section around it, even if that is not here
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
        match = LabelMatch(label=label, spelling=heading.title, rest="", indent=0, bare=True)
        self._add_field(builder, line, match, heading.level)
        if label is not None and label.id == NAME:
            builder.name_key = heading.title.casefold()

    # lines

    def _read_rule(self, line: Line) -> bool:
        """Read a horizontal rule, which ends a template."""
        if not _RULE.match(line.text):
            return False
        if self.open is None or (self.open.container is not None and len(line.text) < 5):
            return True
        if count_indent(line.text) > self.open.indent:
            return False
        self._close_template()
        return True

    def _read_label(self, line: Line) -> bool:
        """Read the line as a field; return False if it is not a field."""
        if not line.text or line.toc or line.code == "abnf":
            return False
        match = find_label(line, self.labels)
        if match is None:
            return False
        builder = self.open
        if builder is None:
            return self._read_first_label(line, match)
        if match.label is None:
            return self._read_unknown_label(builder, line, match)
        if match.label.id == NAME:
            return self._read_name(builder, line, match, weak=match.label.weak)
        return self._read_field(builder, line, match, match.label.id)

    def _read_first_label(self, line: Line, match: LabelMatch) -> bool:
        label = match.label
        if label is None or (match.bare and (label.id != NAME or label.weak)):
            return False
        builder = self._start_template(line, match.indent)
        self._add_field(builder, line, match)
        if label.id == NAME:
            builder.name_key = match.spelling.casefold()
        return True

    def _read_name(self, builder: _TemplateBuilder, line: Line, match: LabelMatch, *, weak: bool) -> bool:
        """Read a name, which begins a template unless an open template has no name yet."""
        if builder.name_key is None:
            if weak and match.indent > builder.indent:
                return False
            builder.early = len(builder.fields)
            builder.indent = min(builder.indent, match.indent)
        elif (weak and match.spelling.casefold() != builder.name_key) or builder.is_value_label(match):
            return False
        else:
            builder = self._start_template(line, match.indent)
        self._add_field(builder, line, match)
        builder.name_key = match.spelling.casefold()
        return True

    def _read_field(self, builder: _TemplateBuilder, line: Line, match: LabelMatch, identifier: str) -> bool:
        if builder.container is not None:
            return False
        if match.indent > builder.indent:
            if builder.has_label_column() or identifier in builder.field_ids:
                return False
        elif match.indent < builder.indent:
            builder.indent = match.indent
        self._add_field(builder, line, match)
        return True

    def _read_unknown_label(self, builder: _TemplateBuilder, line: Line, match: LabelMatch) -> bool:
        """Read an unknown label; it must be at the column of the labels and begin a paragraph."""
        last = builder.fields[-1]
        begins = self.before_blank or (last.rest != "" and not last.body)
        one_word = " " not in match.spelling
        if (
            builder.container is not None
            or match.indent != builder.indent
            or not begins
            or (one_word and match.spelling.casefold() in _REMARKS)
        ):
            return False
        self._add_field(builder, line, match)
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
    """Return the template: values by field, repeated fields and unknown labels."""
    values: dict[str, TemplateValue] = {}
    repeated: list[TemplateValue] = []
    unknown: list[TemplateValue] = []
    later_ids = builder.field_ids
    proper = frozenset(field_.id for field_ in builder.fields if field_.id and not field_.stand_in)
    for index, field_ in enumerate(builder.fields):
        last = index == len(builder.fields) - 1 and builder.container is None
        value = _build_value(field_, last=last, indent=builder.indent, markdown=markdown)
        if not field_.id or (field_.stand_in and field_.id in proper):
            unknown.append(value)
        elif field_.id in values or (index < builder.early and field_.id in later_ids):
            repeated.append(value)
        else:
            values[field_.id] = value
    return Template(
        values=MappingProxyType(values),
        repeated=tuple(repeated),
        unknown=tuple(unknown),
        line=builder.line,
        section=builder.section,
    )


def _is_complete(builder: _TemplateBuilder, labels: Labels) -> bool:
    """Return whether it is certainly a template: a name, and another field of a registration."""
    ids = {field_.id for field_ in builder.fields if field_.id}
    if builder.name_key is None or NAME not in ids:
        return False
    if builder.container is not None:
        return "status" in ids
    label = labels.find(builder.name_key)
    if label is not None and not label.weak:
        return len(ids) > 1
    # "Name:" begins entries of many registries, such as the payment target types of RFC 8905
    return len(ids) > 2 and not labels.distinctive.isdisjoint(ids)


def _is_form(template: Template) -> bool:
    """Return whether the template is the blank form of a procedure: its name is a sentence, not a name."""
    return len(template.text(NAME).split()) > _NAME_WORDS


def _is_partial(builder: _TemplateBuilder, labels: Labels) -> bool:
    """Return whether it may be meant as a template: only a name, or two fields without a name."""
    if builder.name_key is not None:
        label = labels.find(builder.name_key)
        return label is not None and not label.weak
    return len({field_.id for field_ in builder.fields if field_.id}) > 1


def find_templates(
    lines: list[Line], labels: Labels, *, markdown: bool, partial: bool
) -> tuple[Template, ...]:
    """Return every template of the lines, in order. `partial` accepts one without a name, or only a name."""
    reader = _TemplateReader(labels)
    reader.read_lines(separate_labels(lines, labels))
    chosen = [builder for builder in reader.done if _is_complete(builder, labels)]
    if not chosen and partial:
        chosen = [builder for builder in reader.done if _is_partial(builder, labels)]
    templates = [_build_template(builder, markdown=markdown) for builder in chosen]
    # a pasted form may be meant as a request that is not filled in yet
    return tuple(template for template in templates if partial or not _is_form(template))


#: fields that RFC 4395 5.4 requires and RFC 7595 7.4 moved to the specification; security and
#: interoperability are left out because they are often added to a template of RFC 7595
_OLD: Final = ("syntax", "semantics", "encoding")
_MARGIN: Final = "    "


def profile_of_template(template: Template, registry: str = "uri-schemes") -> str:
    """Return the profile of the template's labels: "rfc4395" or "rfc7595", or the registry's only profile.

    Raises UnknownEntryError if the registry does not exist.
    """
    profiles = get_registry(registry).profiles
    if len(profiles) == 1:
        return profiles[0]
    return "rfc4395" if any(field_id in template.values for field_id in _OLD) else "rfc7595"


def profile_reason(template: Template, registry: str = "uri-schemes") -> str:
    """Return why `profile_of_template` chose the profile, as a sentence."""
    row = get_registry(registry)
    if len(row.profiles) == 1:
        return f"{row.title} has no other procedure"
    old = [template.values[field_id] for field_id in _OLD if field_id in template.values]
    if old:
        labels = ", ".join(f'"{value.label}" (line {value.line})' for value in old)
        return f"it has fields of RFC 4395 5.4 that RFC 7595 7.4 leaves out: {labels}"
    return "it has none of the syntax, semantics and encoding fields of RFC 4395 5.4"


def to_text(values: Mapping[str, str], profile_id: str) -> str:
    """Return a template in the form of the standard; fields of the other template come last.

    `values` are by field id; empty values are left out. Reading the text gives the same values without
    spaces at ends of lines and common indentation. Raises UnknownEntryError if the profile does not exist.
    """
    profile = get_profile(profile_id)
    parts = []
    for field_ in (*profile.fields, *profile.elsewhere):
        value = clean_value(values.get(field_.id, ""))
        if "\n" in value:
            # four columns, so that a value has no label, heading or rule of the template
            value = "".join(f"\n{_MARGIN}{row}" if row else "\n" for row in value.split("\n"))
            parts.append(f"{_capitalize_label(field_)}:{value}")
        elif value:
            parts.append(f"{_capitalize_label(field_)}: {value}")
    return "\n\n".join(parts) + ("\n" if parts else "")
