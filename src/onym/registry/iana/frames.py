"""Write a registry into the XML file that it was imported from, so that the file comes back as it went in.

IANA's files have more than the columns of a registry: people, the registration rule, the expert, notes,
cross references with sections, `<well-known>`, other tables. The frame is that file. A record of the frame
whose entry has not changed stays element by element; of another entry only the columns that changed are
written anew, records of removed entries go, and new ones come in. Without a frame, `write_xml` writes only
what the registry has.

The reader of `xml_format` checks a frame first: it rejects declarations, entities, and files that are too
large, too deep or not a registry.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from onym.registry.iana.snapshots import SourceTable, build_snapshot, get_cell, require_size_limit
from onym.registry.iana.xml_format import (
    NAMESPACE,
    RegistryReader,
    escape_attribute,
    escape_content,
    find_tag_column,
    iter_column_elements,
    parse_registry,
)
from onym.registry.records import Entry
from onym.registry.registries import Registry

_SPACE: Final = f"{{{NAMESPACE}}}"
_XML: Final = "{http://www.w3.org/XML/1998/namespace}"
_INDENT: Final = "\n      "


def write_into_frame(frame: bytes, entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Return the frame with these entries as its records. Raises SnapshotError if it is not a registry."""
    require_size_limit(frame)
    reader = parse_registry(frame, registry)
    builder = ET.TreeBuilder(insert_comments=True, insert_pis=True)
    # the reader has rejected declarations and entities, and limited size and depth
    root = ET.fromstring(frame, parser=ET.XMLParser(target=builder))  # noqa: S314 - checked by the reader
    changed = _Merge(registry, reader, {entry.name: entry for entry in entries}).merge_records(root)
    title = root.find(f"{_SPACE}updated")
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
        for parent in list(root.iter(f"{_SPACE}registry")):
            for record in list(parent.findall(f"{_SPACE}record")):
                row = next(self._rows)
                if row is None:
                    continue  # of another table
                main = parent if main is None else main
                found = build_snapshot(
                    SourceTable(rows=[row], columns=()), self._registry, source="frame"
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
            if get_cell(was, column.id) != get_cell(entry, column.id)
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
        record = ET.Element(f"{_SPACE}record")
        for name, time in (("date", entry.registered), ("updated", entry.updated)):
            if time is not None:
                record.set(name, time.date().isoformat())
        record.text, record.tail = _INDENT, "\n    "
        for column in self._registry.columns:
            self._replace_column(record, column.id, self._make_elements(entry, column.id))
        name = get_cell(entry, "name").casefold()
        places = [number for number, element in enumerate(table) if element.tag == f"{_SPACE}record"]
        names = [_read_name(table[number], self._registry) for number in places]
        later = (place for place, other in zip(places, names, strict=True) if other > name)
        table.insert(next(later, places[-1] + 1 if places else len(table)), record)


def _read_name(record: ET.Element, registry: Registry) -> str:
    found = next((element for element in record if _get_column(element, registry) == "name"), None)
    return "" if found is None else "".join(found.itertext()).strip().casefold()


def _get_column(element: ET.Element, registry: Registry) -> str | None:
    """Return the column of an element inside a record; None for a comment."""
    tag: Any = element.tag
    return find_tag_column(registry, tag.removeprefix(_SPACE)) if isinstance(tag, str) else None


def _find_main_table(root: ET.Element, registry: Registry) -> ET.Element:
    wanted = (f"{registry.id}-1", registry.id)
    tables = {table.get("id"): table for table in root.iter(f"{_SPACE}registry")}
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
