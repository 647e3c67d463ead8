"""IANA's registry XML (namespace http://www.iana.org/assignments): read it, write it, and write into a file.

The reader rejects a document type declaration before the first entity, so nothing is expanded or fetched;
size, depth and row count are limited. A control character is written as the processing instruction
`<?onym-char 1b?>`, which readers of IANA's files skip. References (`[RFC6733][Adam_Barth]`) are `<xref>`
elements. A file that was imported is a frame: a record whose entry has not changed stays as it is.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final, NoReturn
from xml.parsers import expat

from onym.registry import iana
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry

#: the processing instruction's target
CHARACTER_TARGET: Final = "onym-char"

# characters outside production [2] of XML 1.0 2.2
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_IN_ATTRIBUTE: Final = {**_SPECIAL, ord('"'): "&quot;", ord("\n"): "&#10;", ord("\t"): "&#9;"}
_CODE: Final = re.compile("[0-9a-f]{1,6}")
_SPACE: Final = re.compile("[ \t\r\n]+")


def escape_content(text: str) -> str:
    """Return the text as element content; reading it restores every character."""
    escaped = text.translate(_SPECIAL)
    return _FORBIDDEN.sub(lambda match: f"<?{CHARACTER_TARGET} {ord(match[0]):x}?>", escaped)


def escape_text(text: str) -> str:
    """Return the text as element content, with U+FFFD for characters that XML does not allow."""
    return _FORBIDDEN.sub("\ufffd", text).translate(_SPECIAL)


def escape_attribute(text: str) -> str:
    """Return the text as an attribute value in double quotes, with U+FFFD for forbidden characters."""
    return _FORBIDDEN.sub("\ufffd", text).translate(_IN_ATTRIBUTE)


def is_valid_code_point(code: int) -> bool:
    """Return whether a text may have that code point; surrogates are not allowed."""
    return code < 0xD800 or 0xDFFF < code <= 0x10FFFF


def decode_character(data: str, line: int | None) -> str:
    """Return the character that a processing instruction names."""
    if not _CODE.fullmatch(data) or not is_valid_code_point(int(data, 16)):
        raise iana.make_snapshot_error(f"{data[:16]!r} is not a code point", "bad-xml", line=line)
    return chr(int(data, 16))


def collapse_space(text: str) -> str:
    """Return the text with one space between words, and none around it."""
    return _SPACE.sub(" ", text).strip(" \t\r\n")


_REFERENCE: Final = re.compile(r"\[[^\[\]]*\]|(?:[^\[]|\[(?![^\[\]]*\]))+")

#: type, and the prefix in brackets that `data` leaves out
_XREF_TYPES: Final = (
    ("rfc", re.compile(r"RFC(?=[1-9][0-9]{0,5}\Z)")),
    ("registry", re.compile(r"IANA registry (?=[a-z0-9-]+\Z)")),
    ("draft", re.compile(r"(?=(?:RFC-|draft-)[A-Za-z0-9.-]+\Z)")),
    ("uri", re.compile(r"(?=https?://[!#$%&()*+,./0-9:;=?@A-Z_a-z~-]+\Z)")),
    ("person", re.compile(r"(?=(?!RFC|BCP|STD)[^\W\d][\w.,'-]*\Z)")),
)
_RFC_WITH_MORE: Final = re.compile(r"RFC([1-9][0-9]{0,5})\W.*", re.DOTALL)


def _parse_xref(piece: str) -> tuple[str, str, str]:
    inner = piece[1:-1]
    if piece == f"[{inner}]":
        for kind, pattern in _XREF_TYPES:
            prefix = pattern.match(inner)
            if prefix:
                data = inner[prefix.end() :]
                return kind, f"rfc{data}" if kind == "rfc" else data, ""
        more = _RFC_WITH_MORE.fullmatch(inner)
        if more:
            return "rfc", f"rfc{more[1]}", inner
    return "text", "", piece


def _format_xref(kind: str, data: str, text: str, section: str = "") -> str:
    """Return the text of one element on IANA's pages."""
    if kind == "text":
        return text
    if text:
        return f"[{text}]"
    if kind in ("rfc", "bcp", "std"):
        data = data.upper()
    elif kind == "registry":
        data = f"IANA registry {data}"
    return f"[{data}, Section {section}]" if section else f"[{data}]"


_SPACE_ATTRIBUTE: Final = "http://www.w3.org/XML/1998/namespace space"
#: IANA's tags that differ from the column id; in some registries `name` is the key
_COLUMNS: Final = {
    "value": "name",
    "name": "name",
    "file": "template",
    "xref": "reference",
    "controller": "change_controller",
}
#: different tags inside records; several may be the same column
_MAX_TAGS: Final = 1000
#: columns that older files of IANA do not have
_LATE_COLUMNS: Final = frozenset({"cri_number"})
_PARTS: Final = (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL)


def parse_registry(data: bytes, registry: Registry) -> RegistryReader:
    """Return the reader of a file, after it has read it. Raises SnapshotError."""
    reader = RegistryReader(registry)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise iana.make_snapshot_error(
            f"not XML: {expat.ErrorString(error.code)}", "bad-xml", line=error.lineno
        ) from error
    return reader


def find_tag_column(registry: Registry, tag: str) -> str:
    """Return the column of an element inside a record."""
    return _COLUMNS.get(tag) or iana.find_column_id(registry, tag)


def read_xml(data: bytes, registry: Registry) -> iana.SourceTable:
    """Return the records of the registry's tables. Raises SnapshotError (hostile-xml, bad-xml and others)."""
    reader = parse_registry(data, registry)
    return iana.SourceTable(
        rows=reader.rows,
        columns=tuple(reader.columns),
        vintage=reader.updated,
        findings=reader.findings,
    )


class _Element:
    """An open element: its tag, its attributes and the text so far."""

    __slots__ = ("attributes", "line", "pieces", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.pieces: list[str] = []

    def get_text(self) -> str:
        whole = "".join(self.pieces)
        return whole if self.attributes.get(_SPACE_ATTRIBUTE) == "preserve" else collapse_space(whole)


class RegistryReader:
    """The handlers of expat, and the rows that they have read."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rows: list[iana.SourceRow] = []
        #: the row of each record of the file; None for one of another table
        self.records: list[iana.SourceRow | None] = []
        self.findings: list[iana.Irregular] = []
        #: empty elements may be left out, so only late columns may be missing
        self.columns = {column.id: None for column in registry.columns if column.id not in _LATE_COLUMNS}
        self.updated: str | None = None
        #: tags inside records -> column ids
        self._ids: dict[str, str] = {}
        self._open: list[_Element] = []
        self._cells: dict[str, list[str]] = {}
        #: the open nested tables: (id, status from the title)
        self._tables: list[tuple[str, Status | None]] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._reject_declaration
        self.parser.EntityDeclHandler = self._reject_declaration
        self.parser.ExternalEntityRefHandler = self._reject_declaration
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text
        self.parser.ProcessingInstructionHandler = self._add_instruction

    def _reject_declaration(self, *_: Any) -> NoReturn:
        raise iana.make_snapshot_error(
            "the file has a document type declaration or an entity",
            "hostile-xml",
            line=self.parser.CurrentLineNumber,
            hint="IANA's files have none; remove the DOCTYPE",
        )

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self._open) >= iana.MAX_DEPTH:
            raise iana.make_snapshot_error(
                f"elements nest beyond {iana.MAX_DEPTH} levels", "hostile-xml", line=line
            )
        namespace, _, tag = name.rpartition(" ")
        if not self._open:
            if namespace != NAMESPACE or tag != "registry":
                hint = f'<registry xmlns="{NAMESPACE}">'
                raise iana.make_snapshot_error(
                    "not a registry of IANA", "not-a-registry", line=line, hint=hint
                )
            iana.require_registry(attributes.get("id"), self.registry, field="id", line=line)
        if tag == "registry":
            self._tables.append((attributes.get("id", ""), None))
        elif tag == "record":
            if self._is_in_record():
                raise iana.make_snapshot_error("a record inside a record", "bad-xml", line=line)
            self._cells = {}
        self._open.append(_Element(tag, attributes, line))

    def _is_in_record(self) -> bool:
        return any(element.tag == "record" for element in self._open)

    def _add_text(self, text: str) -> None:
        self._open[-1].pieces.append(text)

    def _add_instruction(self, target: str, data: str) -> None:
        if target == CHARACTER_TARGET and self._open:
            self._open[-1].pieces.append(decode_character(data, self.parser.CurrentLineNumber))

    def _end_element(self, _: str) -> None:
        element = self._open.pop()
        parent = self._open[-1].tag if self._open else ""
        if element.tag == "registry":
            self._tables.pop()
        elif element.tag == "record":
            self._finish_record(element)
        elif parent == "record":
            self._add_cell(element)
        elif self._is_in_record():
            self._open[-1].pieces.append(self._format_element(element))
        elif parent == "registry":
            self._read_table_property(element)

    def _read_table_property(self, element: _Element) -> None:
        if element.tag == "updated" and len(self._tables) == 1:
            self.updated = element.get_text()
        elif element.tag == "title":
            words = iana.fold_word(element.get_text())
            status = next((part for part in _PARTS if words.startswith(part.value)), None)
            self._tables[-1] = (self._tables[-1][0], status)

    def _format_element(self, element: _Element) -> str:
        text, about = element.get_text(), element.attributes
        if element.tag != "xref":
            return text
        return _format_xref(about.get("type", ""), about.get("data", ""), text, about.get("section", ""))

    def _add_cell(self, element: _Element) -> None:
        column = self._ids.get(element.tag)
        if column is None:
            column = self._add_column(element)
        self._cells.setdefault(column, []).append(self._format_element(element))

    def _add_column(self, element: _Element) -> str:
        column = find_tag_column(self.registry, element.tag)
        if not column or len(self.columns) >= iana.MAX_COLUMNS or len(self._ids) >= _MAX_TAGS:
            message = f"the column {element.tag[:40]!r} is not valid, or there are too many"
            raise iana.make_snapshot_error(message, "bad-xml", line=element.line)
        self._ids[element.tag] = column
        self.columns[column] = None
        if not iana.is_known_column(self.registry, column):
            reason = f"{element.tag[:40]!r} is kept as {column[:40]}"
            self._add_finding("", "unknown-column", reason, element.line)
        return column

    def _add_finding(self, name: str, code: str, reason: str, line: int) -> None:
        self.findings.append(iana.Irregular(name=name, code=code, reason=reason, line=line))

    def _finish_record(self, element: _Element) -> None:
        iana.require_row_limit(len(self.rows) + len(self.findings))
        cells = {
            column: ("" if column == "reference" else "\n").join(filter(None, pieces))
            for column, pieces in self._cells.items()
        }
        table, status = self._tables[-1]
        if table not in (self.registry.id, f"{self.registry.id}-1") and status is None:
            reason = f"a row of {table[:40]!r}, which is not in this registry; ignored"
            self._add_finding(cells.get("name", ""), "other-table", reason, element.line)
            self.records.append(None)
            return
        row = iana.SourceRow(
            line=element.line,
            cells=cells,
            status=status,
            registered=element.attributes.get("date"),
            updated=element.attributes.get("updated"),
        )
        self.rows.append(row)
        self.records.append(row)


NAMESPACE: Final = "http://www.iana.org/assignments"


def write_xml(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Return the registry as a nested `<registry>` of records, in the order given."""
    lines = [
        "<?xml version='1.0' encoding='UTF-8'?>",
        f'<registry xmlns="{NAMESPACE}" id="{registry.id}">',
        f"  <title>{escape_content(registry.title)}</title>",
        f"  <updated>{updated.isoformat()}</updated>",
        f'  <registry id="{registry.id}-1">',
        f"    <title>{escape_content(registry.title)}</title>",
        *(f"    {element}" for element in _iter_reference_elements(registry.reference)),
    ]
    for entry in entries:
        lines += _iter_record_lines(entry, registry)
    return "\n".join((*lines, "  </registry>", "</registry>", ""))


def _iter_record_lines(entry: Entry, registry: Registry) -> Iterator[str]:
    dates = "".join(
        f' {name}="{time.date().isoformat()}"'
        for name, time in (("date", entry.registered), ("updated", entry.updated))
        if time is not None
    )
    yield f"    <record{dates}>"
    for column in registry.columns:
        yield from (f"      {element}" for element in iter_column_elements(entry, column.id))
    yield "    </record>"


def iter_column_elements(entry: Entry, column: str) -> Iterator[str]:
    """Yield the elements of an entry's column."""
    value = iana.get_cell(entry, column)
    if column == "reference":
        yield from _iter_reference_elements(value)
    elif value:
        tag, attributes = _TAGS.get(column, (column.replace("_", "-"), ""))
        yield _format_tag(tag, value, attributes)


_TAGS: Final = {"name": ("value", ""), "template": ("file", ' type="template"')}


def _format_tag(tag: str, value: str, attributes: str = "") -> str:
    # readers may collapse white space without this attribute
    keep = "" if value == collapse_space(value) else ' xml:space="preserve"'
    return f"<{tag}{attributes}{keep}>{escape_content(value)}</{tag}>"


def _iter_reference_elements(value: str) -> Iterator[str]:
    for kind, data, text in map(_parse_xref, _REFERENCE.findall(value)):
        named = f' type="{kind}"' + (f' data="{escape_attribute(data)}"' if data else "")
        yield _format_tag("xref", text, named) if text else f"<xref{named}/>"


_PREFIX: Final = f"{{{NAMESPACE}}}"
_XML: Final = "{http://www.w3.org/XML/1998/namespace}"
_INDENT: Final = "\n      "


def write_into_frame(frame: bytes, entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Return the frame with these entries as its records. Raises SnapshotError if it is not a registry."""
    iana.require_size_limit(frame)
    reader = parse_registry(frame, registry)
    builder = ET.TreeBuilder(insert_comments=True, insert_pis=True)
    # the reader has rejected declarations and entities, and limited size and depth
    root = ET.fromstring(frame, parser=ET.XMLParser(target=builder))  # noqa: S314 - checked by the reader
    changed = _Merge(registry, reader, {entry.name: entry for entry in entries}).merge_records(root)
    title = root.find(f"{_PREFIX}updated")
    if changed and title is not None:
        title.text = updated.isoformat()
    return "".join((*_format_prolog(frame), *_format_element(root), "\n"))


class _Merge:
    """The records of a frame and the present entries."""

    def __init__(self, registry: Registry, reader: RegistryReader, present: dict[str, Entry]) -> None:
        self._registry = registry
        self._rows = iter(reader.records)
        self._left = present
        self._seen: set[str] = set()

    def merge_records(self, root: ET.Element) -> bool:
        """Bring the records to the present entries; report whether any changed."""
        changed, main = False, None
        for parent in list(root.iter(f"{_PREFIX}registry")):
            for record in list(parent.findall(f"{_PREFIX}record")):
                row = next(self._rows)
                if row is None:
                    continue  # of another table
                main = parent if main is None else main
                found = iana.build_snapshot(
                    iana.SourceTable(rows=[row], columns=()), self._registry, source="frame"
                ).entries
                if not found or found[0].name in self._seen:
                    continue  # a row without a name, or the second of one name, which no import takes
                self._seen.add(found[0].name)
                entry = self._left.pop(found[0].name, None)
                if entry is None:
                    _remove_element(parent, record)
                    changed = True
                else:
                    changed |= self._update_record(record, found[0], entry)
        target = main if main is not None else _find_main_table(root, self._registry)
        for entry in self._left.values():
            self._insert_record(target, entry)
        return changed or bool(self._left)

    def _update_record(self, record: ET.Element, was: Entry, entry: Entry) -> bool:
        columns = [
            column.id
            for column in self._registry.columns
            if iana.get_cell(was, column.id) != iana.get_cell(entry, column.id)
        ]
        for column in columns:
            self._replace_column(record, column, self._make_elements(entry, column))
        if columns and entry.updated is not None:
            record.set("updated", entry.updated.date().isoformat())
        return bool(columns)

    def _replace_column(self, record: ET.Element, column: str, fresh: list[ET.Element]) -> None:
        old = [element for element in record if _get_column(element, self._registry) == column]
        at = list(record).index(old[0]) if old else len(record)
        for element in old:
            _remove_element(record, element)
        for number, element in enumerate(fresh):
            element.tail = _INDENT
            record.insert(at + number, element)

    def _make_elements(self, entry: Entry, column: str) -> list[ET.Element]:
        source = "".join(iter_column_elements(entry, column))
        return list(ET.fromstring(f'<record xmlns="{NAMESPACE}">{source}</record>'))  # noqa: S314 - our own

    def _insert_record(self, table: ET.Element, entry: Entry) -> None:
        record = ET.Element(f"{_PREFIX}record")
        for name, time in (("date", entry.registered), ("updated", entry.updated)):
            if time is not None:
                record.set(name, time.date().isoformat())
        record.text, record.tail = _INDENT, "\n    "
        for column in self._registry.columns:
            self._replace_column(record, column.id, self._make_elements(entry, column.id))
        name = iana.get_cell(entry, "name").casefold()
        places = [number for number, element in enumerate(table) if element.tag == f"{_PREFIX}record"]
        names = [_read_name(table[number], self._registry) for number in places]
        later = (place for place, other in zip(places, names, strict=True) if other > name)
        table.insert(next(later, places[-1] + 1 if places else len(table)), record)


def _read_name(record: ET.Element, registry: Registry) -> str:
    found = next((element for element in record if _get_column(element, registry) == "name"), None)
    return "" if found is None else "".join(found.itertext()).strip().casefold()


def _get_column(element: ET.Element, registry: Registry) -> str | None:
    """Return the column of an element inside a record; None for a comment."""
    tag: Any = element.tag
    return find_tag_column(registry, tag.removeprefix(_PREFIX)) if isinstance(tag, str) else None


def _find_main_table(root: ET.Element, registry: Registry) -> ET.Element:
    wanted = (f"{registry.id}-1", registry.id)
    tables = {table.get("id"): table for table in root.iter(f"{_PREFIX}registry")}
    return next((tables[name] for name in wanted if name in tables), root)


def _remove_element(parent: ET.Element, element: ET.Element) -> None:
    """Remove an element; the text after it stays."""
    siblings = list(parent)
    at = siblings.index(element)
    tail = (element.tail or "").lstrip()
    if tail:
        if at:
            siblings[at - 1].tail = (siblings[at - 1].tail or "") + tail
        else:
            parent.text = (parent.text or "") + tail
    parent.remove(element)


_INSTRUCTION: Final = re.compile(rb"<\?(?!xml[\s?])[^?]*(?:\?(?!>)[^?]*)*\?>|<!--.*?-->", re.DOTALL)


def _format_prolog(frame: bytes) -> Iterator[str]:
    """Yield the declaration, and the instructions and comments before the root, such as the style sheet."""
    yield "<?xml version='1.0' encoding='UTF-8'?>\n"
    before = frame[: frame.index(b"<registry")]
    for found in _INSTRUCTION.findall(before):
        yield found.decode("utf-8") + "\n"


def _format_element(element: ET.Element, *, outer: bool = True) -> Iterator[str]:
    tag: Any = element.tag
    if not isinstance(tag, str):
        marks = ("<!--", "-->") if tag is ET.Comment else ("<?", "?>")
        yield f"{marks[0]}{element.text or ''}{marks[1]}"
        return
    namespace, _, name = tag.removeprefix("{").rpartition("}")
    spaces = f' xmlns="{escape_attribute(namespace)}"' if outer else ""
    attributes = "".join(
        f' {key.replace(_XML, "xml:")}="{escape_attribute(value)}"' for key, value in element.attrib.items()
    )
    if not len(element) and not element.text:
        yield f"<{name}{spaces}{attributes}/>"
        return
    yield f"<{name}{spaces}{attributes}>{escape_content(element.text or '')}"
    for child in element:
        child_tag: Any = child.tag
        foreign = isinstance(child_tag, str) and not child_tag.startswith(f"{{{namespace}}}")
        yield from _format_element(child, outer=foreign)
        yield escape_content(child.tail or "")
    yield f"</{name}>"
