"""Registry files as CSV, JSON, text tables and Python modules; reading any format and writing a chosen one.

CSV: a spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break as a formula.
Such a cell is written with an apostrophe before it. A cell that begins with apostrophes and then such a
character gets one more apostrophe, so that reading, which removes one, restores the cell exactly. The
cell `-` computes nothing and is what IANA writes for "no well-known URI", so it stays as it is.

Text: a line of `=` marks where columns begin and end, and no cell is folded. A backslash, a line break,
a control character and a space at either end of a cell are written as backslash escapes.

JSON: Onym's own form, which holds every member, and the list form of the snapshot of 2024-04. Contacts
come only from a file that the operator gives; Onym ships none.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import Any, Final, NoReturn

from onym.errors import StoreError, UsageError
from onym.registry import codec
from onym.registry.iana.snapshots import (
    MAX_COLUMNS,
    MAX_FIELD,
    Irregular,
    Snapshot,
    SourceRow,
    SourceTable,
    build_snapshot,
    decode_utf8,
    find_column_id,
    get_cell,
    get_heading,
    is_known_column,
    list_extra_columns,
    make_snapshot_error,
    require_row_limit,
    require_size_limit,
)
from onym.registry.iana.xml_format import is_valid_code_point, write_xml
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry
from onym.registry.registries import get_registry as registry_of

COLUMNS_2015: Final = ("name", "template", "description", "reference")
COLUMNS_2022: Final = (
    "name",
    "template",
    "description",
    "status",
    "well_known",
    "reference",
    "notes",
)

# the full-width forms too: some programs fold them
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _escape_formula(value: str) -> str:
    return f"'{value}" if value != "-" and _FORMULA.match(value) else value


def _unescape_formula(value: str) -> str:
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def write_csv(entries: Sequence[Entry], registry: Registry) -> str:
    """Every column of the registry, then every other field that some entry has."""
    return _format_csv(
        entries,
        registry,
        (*(column.id for column in registry.columns), *list_extra_columns(registry, entries)),
    )


def write_csv_2022(entries: Sequence[Entry], registry: Registry) -> str:
    """The columns of IANA's file from 2015 (RFC 7595) to 2024."""
    return _format_csv(entries, registry, COLUMNS_2022)


def write_csv_2015(entries: Sequence[Entry], registry: Registry, status: Status | None) -> str:
    """One part, as IANA published them under RFC 4395: the entries of one status, which it does not name."""
    if status is None:
        found = {entry.status for entry in entries}
        if len(found) > 1:
            raise UsageError(
                "csv-2015 has one file for each status, but these entries have several",
                code="usage.status-needed",
                hint=f"choose one: {', '.join(sorted(found))}",
            )
    else:
        entries = [entry for entry in entries if entry.status is status]
    return _format_csv(entries, registry, COLUMNS_2015)


def _format_csv(entries: Iterable[Entry], registry: Registry, columns: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([get_heading(registry, column) for column in columns])
    for entry in entries:
        writer.writerow([_escape_formula(get_cell(entry, column)) for column in columns])
    return out.getvalue()


def read_csv(text: str, registry: Registry, status: Status | None) -> SourceTable:
    """The rows of a CSV file; `status` is that of the part, for a file that has no such column."""
    lines = _CSVReader(text)
    titles = next(lines.iter_rows(), [])
    columns = tuple(find_column_id(registry, item) for item in titles[: MAX_COLUMNS + 1])
    _require_columns(columns, titles, status)
    findings = [
        Irregular(name="", code="unknown-column", reason=f"column {title[:40]!r} is kept as {item}", line=1)
        for title, item in zip(titles, columns, strict=True)
        if not is_known_column(registry, item)
    ]
    table = SourceTable(rows=(), columns=columns, findings=findings)
    if "status" not in columns:
        table.covers = frozenset() if status is None else frozenset({status})
    table.rows = _iter_csv_rows(lines, columns, status, findings)
    return table


def _require_columns(columns: Sequence[str], titles: Sequence[str], status: Status | None) -> None:
    if "name" not in columns:
        first = ",".join(titles)[:60]
        raise make_snapshot_error(
            f"no column with names in {first!r}",
            "not-a-registry",
            line=1,
            hint="the first line of IANA's CSV names the columns: URI Scheme,Template,...",
        )
    if len(columns) > MAX_COLUMNS or len(set(columns)) < len(columns) or "" in columns:
        raise make_snapshot_error("columns without names, twice the same one, or too many", "bad-csv", line=1)
    if "status" not in columns and status is None:
        raise make_snapshot_error(
            "no column Status, and nothing says which part of the registry this is",
            "part-unknown",
            line=1,
            field="status",
            hint="give the status; uri-schemes-1.csv says permanent, -2 provisional, -3 historical",
        )


class _CSVReader:
    """The records of CSV text, with the line on which each began."""

    def __init__(self, text: str) -> None:
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        self.began = 1

    def iter_rows(self) -> Iterator[list[str]]:
        # an earlier reader may have stopped at a row, before the beginning of the next one
        self.began = self._reader.line_num + 1
        try:
            for cells in self._reader:
                if cells:
                    yield [_unescape_formula(cell) for cell in cells]
                self.began = self._reader.line_num + 1
        except csv.Error as error:
            raise make_snapshot_error(f"not CSV: {error}", "bad-csv", line=self._reader.line_num) from error


def _iter_csv_rows(
    lines: _CSVReader, columns: Sequence[str], status: Status | None, findings: list[Irregular]
) -> Iterator[SourceRow]:
    for cells in lines.iter_rows():
        if len(cells) != len(columns):
            name = cells[columns.index("name")] if len(cells) > columns.index("name") else ""
            findings.append(
                Irregular(
                    name=name,
                    code="ragged-row",
                    reason=f"{len(cells)} cells, and the table has {len(columns)} columns",
                    line=lines.began,
                )
            )
        yield SourceRow(line=lines.began, cells=dict(zip(columns, cells, strict=False)), status=status)


#: member `format` of Onym's own JSON format
FORMAT: Final = "onym-registry"
_VERSION: Final = 1
_RFC_PAGES: Final = "https://www.rfc-editor.org/rfc/rfc"
#: what the list of 2024-04 carries whole; of references it has the RFCs alone
_LIST_COLUMNS: Final = ("name", "template", "description", "status", "well_known")
_MAX_REFERENCES: Final = 100


def parse_strict_json(text: str) -> Any:
    """The JSON value. Refuses the same member twice, numbers that JSON has not, and unsafe depth."""
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise make_snapshot_error(f"not JSON: {error.msg}", "bad-json", line=error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise make_snapshot_error("JSON too deep, or a number too long", "bad-json") from error


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise make_snapshot_error("an object with twice the same member", "bad-json")
    return found


def _reject_constant(word: str) -> NoReturn:
    raise make_snapshot_error(f"{word} is not a JSON number", "bad-json")


def write_json(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Every entry whole, one a line."""
    head = {"format": FORMAT, "version": _VERSION, "registry": registry.id, "updated": updated.isoformat()}
    lines = [
        "  " + json.dumps(codec.to_data(entry), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        for entry in entries
    ]
    body = "\n" + ",\n".join(lines) + "\n " if lines else ""
    return f'{json.dumps(head)[:-1]}, "entries": [{body}]}}\n'


def read_entries(data: Mapping[str, Any], registry: Registry, *, source: str) -> Snapshot:
    """Return the snapshot in a file of Onym's own JSON format."""
    if data.get("format") != FORMAT or data.get("version") != _VERSION:
        raise make_snapshot_error(
            "JSON, and no registry of ours",
            "not-a-registry",
            field="format",
            hint=f'"format": "{FORMAT}", "version": {_VERSION}',
        )
    if data.get("registry") != registry.id:
        raise make_snapshot_error(
            f"this is the registry {str(data.get('registry'))[:40]!r}",
            "wrong-registry",
            field="registry",
            hint=f"{registry.id} was asked for",
        )
    rows = data.get("entries")
    if not isinstance(rows, list):
        raise make_snapshot_error("no list of entries", "bad-json", field="entries")
    require_row_limit(len(rows))
    entries = tuple(_parse_entry(row, at, registry) for at, row in enumerate(rows))
    names = {entry.name for entry in entries}
    if len(names) < len(entries):
        raise make_snapshot_error("twice the same name", "duplicate-name", field="entries")
    vintage = data.get("updated")
    return Snapshot(
        registry=registry.id,
        entries=entries,
        source=source,
        vintage=vintage if isinstance(vintage, str) else None,
        columns=tuple(column.id for column in registry.columns),
    )


def _parse_entry(row: object, at: int, registry: Registry) -> Entry:
    where = f"entries[{at}]"
    try:
        entry = codec.from_data(Entry, row)
    except StoreError as error:
        raise make_snapshot_error(f"{where}: {error.message}", "bad-json", field=error.field) from error
    if entry.registry != registry.id or entry.status not in registry.statuses:
        raise make_snapshot_error(
            f"{where}: another registry, or a status that it has not", "bad-json", field=where
        )
    if any(len(value) > MAX_FIELD for value in entry.fields.values()):
        raise make_snapshot_error(
            f"{where}: more than {MAX_FIELD} characters", "snapshot-too-large", field=where
        )
    return entry


def read_list(data: Sequence[Any]) -> SourceTable:
    """The rows of the list of 2024-04: scheme, description, status, template, wku, refs, obsolete."""
    require_row_limit(len(data))
    return SourceTable(rows=_iter_list_rows(data), columns=_LIST_COLUMNS)


def _iter_list_rows(data: Sequence[Any]) -> Iterator[SourceRow]:
    for at, item in enumerate(data):
        if not isinstance(item, dict) or not isinstance(item.get("scheme"), str):
            raise make_snapshot_error(f"[{at}]: no object with a scheme", "not-a-registry", field=f"[{at}]")
        cells = {
            "name": f"{item['scheme']} (OBSOLETE)" if item.get("obsolete") is True else item["scheme"],
            "template": _get_text(item, "template"),
            "description": _get_text(item, "description"),
            "status": _get_text(item, "status"),
            "well_known": _parse_well_known(item.get("wku")),
            "reference": _format_references(item.get("refs", []), at),
        }
        wrong = next((name for name, value in cells.items() if not isinstance(value, str)), None)
        if wrong is not None:
            raise make_snapshot_error(f"[{at}]: {wrong} is not a text", "bad-json", field=wrong)
        # its place in the list; which line that is, the parser does not say
        yield SourceRow(line=at + 1, cells=cells)


def _get_text(row: Mapping[str, Any], member: str) -> Any:
    value = row.get(member)
    return "" if value is None else value


def _parse_well_known(value: object) -> Any:
    """`-` where the list has null (RFC 8615 5.2); a page of the RFC Editor's as IANA cites it."""
    if value is None:
        return "-"
    if isinstance(value, str) and value.startswith(_RFC_PAGES):
        return f"[RFC{value.removeprefix(_RFC_PAGES).removesuffix('.html')}]"
    return value


def _format_references(value: object, at: int) -> str:
    if not isinstance(value, list) or len(value) > _MAX_REFERENCES:
        raise make_snapshot_error(f"[{at}]: refs is not a list, or is too long", "bad-json", field="refs")
    if not all(isinstance(item, str) for item in value):
        raise make_snapshot_error(f"[{at}]: a reference is not a text", "bad-json", field="refs")
    return "".join(f"[RFC{item}]" if item.isdecimal() else f"[{item}]" for item in value)


_RULER: Final = re.compile(r"^=+(?: {2}=+)*$", re.MULTILINE)
_UPDATED: Final = re.compile(r"^Last Updated: ([0-9]{4}-[0-9]{2}-[0-9]{2})$", re.MULTILINE)
_ESCAPE: Final = re.compile(r"\\(\\|n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_SHORT_ESCAPES: Final = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_GAP: Final = "  "


def write_text(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Title, date and one line for each entry."""
    rows = [
        [_escape_cell(get_cell(entry, known_column.id)) for known_column in registry.columns]
        for entry in entries
    ]
    titles = [known_column.heading for known_column in registry.columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    ruler = _GAP.join("=" * width for width in widths)
    lines = [
        registry.title,
        "",
        f"Last Updated: {updated.isoformat()}",
        f"Reference: [{registry.reference}]",
        "",
        _format_line(titles, widths),
        ruler,
        *(_format_line(row, widths) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _format_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(" ")


def _escape_cell(value: str) -> str:
    text = "".join(map(_escape_character, value))
    if text.startswith(" "):
        text = f"\\x20{text[1:]}"
    return f"{text[:-1]}\\x20" if text.endswith(" ") else text


def _escape_character(char: str) -> str:
    if char == "\\":
        return "\\\\"
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    for short, meant in _SHORT_ESCAPES.items():
        if char == meant:
            return f"\\{short}"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescape_cell(text: str, line: int) -> str:
    def meant(found: re.Match[str]) -> str:
        said = found[1]
        if said in _SHORT_ESCAPES:
            return _SHORT_ESCAPES[said]
        code = int(said[1:], 16)
        if not is_valid_code_point(code):
            raise make_snapshot_error("no such character", "bad-text", line=line)
        return chr(code)

    return _ESCAPE.sub(meant, text)


def is_text_table(text: str) -> bool:
    """Is there a ruler?"""
    return _RULER.search(text) is not None


def read_text(text: str, registry: Registry) -> SourceTable:
    """The rows under the ruler. Raises SnapshotError (registry.not-a-registry)."""
    ruler = _RULER.search(text)
    if ruler is None:
        raise make_snapshot_error("no table: no line of = under the headings", "not-a-registry")
    spans = [found.span() for found in re.finditer("=+", ruler[0])]
    head = text[: ruler.start()].splitlines()
    titles = _split_cells(head[-1] if head else "", spans)
    columns = tuple(find_column_id(registry, title) for title in titles[: MAX_COLUMNS + 1])
    if (
        not {"name", "status"} <= set(columns)
        or len(set(columns)) < len(columns)
        or len(columns) > MAX_COLUMNS
    ):
        raise make_snapshot_error(
            "no columns of a registry above the line of =", "not-a-registry", line=len(head) or 1
        )
    updated = _UPDATED.search(text, 0, ruler.start())
    below = text[ruler.end() :].split("\n")[1:]
    return SourceTable(
        rows=_iter_text_rows(below, spans, columns, len(head) + 2),
        columns=columns,
        vintage=updated[1] if updated else None,
    )


def _iter_text_rows(
    lines: Sequence[str], spans: Sequence[tuple[int, int]], columns: Sequence[str], first: int
) -> Iterator[SourceRow]:
    for number, line in enumerate(lines, first):
        if line:
            cells = [_unescape_cell(cell, number) for cell in _split_cells(line, spans)]
            yield SourceRow(line=number, cells=dict(zip(columns, cells, strict=True)))


def _split_cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[begin:end].strip(" ") for begin, end in spans]


#: registry -> the constant with one column, what that column is of each entry, its id ("" for the status)
_TABLE_COLUMNS: Final = {
    "uri-schemes": ("STATUSES", "the status of each one", ""),
    "llm-parameters": ("TYPES", "the type of each one's value", "type"),
    "ai-namespaces": ("STATUSES", "the status of each one", ""),
}


def write_table(entries: Iterable[Entry], *, registry: str) -> str:
    """The module: names in the order given, and one column of them. Pending entries are not registered yet.

    Every text is written as a literal, so that no entry says anything to Python. Raises UnknownEntryError
    for a registry that there is not.
    """
    row = registry_of(registry)
    constant, what, column = _TABLE_COLUMNS[row.id]
    chosen = [entry for entry in entries if entry.status is not Status.PENDING_REVIEW]
    cells = [
        (
            _format_literal(item.name),
            _format_literal(item.fields.get(column, "") if column else str(item.status)),
        )
        for item in chosen
    ]
    names = "".join(f"    {name},\n" for name, _ in cells)
    values = "".join(f"    {name}: {value},\n" for name, value in cells)
    exported = sorted((constant, "WELL_KNOWN"))
    about = f"{row.title}.\n\nWritten by `onym registry export -r {row.id} --format tables`.\n"
    return (
        f'"""{about}"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Final\n\n"
        f"__all__ = {json.dumps(exported)}\n\n"
        f"#: their names, in the registry's order\nWELL_KNOWN: Final = (\n{names})\n\n"
        f"#: {what}\n{constant}: Final = {{\n{values}}}\n"
    )


def _format_literal(text: str) -> str:
    """A string of JSON in full characters is one of Python."""
    return json.dumps(text, ensure_ascii=False)


#: a reference that names a person or an organisation, and no document, page or registry
_CONTACT_REFERENCE: Final = re.compile(r"\[(?!RFC|draft-|status-change-|http|IANA registry )([^\[\]]+)\]")
_MAX_CONTACT: Final = 1000


def add_contacts(snapshot: Snapshot, data: bytes) -> Snapshot:
    """The snapshot with a `contact` for every entry whose reference names somebody of the file.

    The file is a JSON list of [id, name, organisation, URI, date]; a name that it does not have is
    reported as `contact-unknown`. Raises SnapshotError.
    """
    people = _parse_contacts(data)
    irregular = list(snapshot.irregular)
    entries = []
    for entry in snapshot.entries:
        named = _CONTACT_REFERENCE.findall(entry.fields.get("reference", ""))
        irregular += (
            Irregular(name=entry.name, code="contact-unknown", reason=f"no contact is called {name[:60]!r}")
            for name in named
            if name not in people
        )
        entries.append(_add_contact(entry, [people[name] for name in named if name in people]))
    return replace(snapshot, entries=tuple(entries), irregular=tuple(irregular))


def _add_contact(entry: Entry, found: list[str]) -> Entry:
    if not found:
        return entry
    return replace(entry, fields=MappingProxyType({**entry.fields, "contact": "; ".join(found)}))


def _parse_contacts(data: bytes) -> dict[str, str]:
    require_size_limit(data)
    rows = parse_strict_json(decode_utf8(data))
    if not isinstance(rows, list):
        raise make_snapshot_error(
            "no list of contacts", "bad-contacts", hint="[[id, name, organisation, URI, date], ...]"
        )
    require_row_limit(len(rows))
    people = {}
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5 or not all(_is_contact_text(item) for item in row):
            raise make_snapshot_error(
                f"[{at}]: not [id, name, organisation, URI, date]", "bad-contacts", field=f"[{at}]"
            )
        identifier, name, organisation, uri, _ = row
        people[identifier.strip("[]")] = _format_contact(name or organisation, uri)
    return people


def _is_contact_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_CONTACT


def _format_contact(name: str, uri: str) -> str:
    """`Adam Barth <abarth@example.org>`. IANA writes `&` for `@`, against harvesters."""
    where = uri.removeprefix("mailto:")
    if where != uri and "@" not in where:
        where = where.replace("&", "@", 1)
    return f"{name} <{where}>" if where else name


#: what may be given as `format`; both CSV vintages are told by their headings
READ_FORMATS: Final = ("csv", "csv-2015", "csv-2022", "json", "text", "xml")

#: IANA's file names of 2015: uri-schemes-1.csv is the first part
_PART: Final = re.compile(r"-([123])\.[a-z]+\Z")
_PARTS: Final = {"1": Status.PERMANENT, "2": Status.PROVISIONAL, "3": Status.HISTORICAL}
_DATE: Final = re.compile(
    r"(?<![0-9])((?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])(?:-[0-9]{2})?|mid-20[0-9]{2})(?![0-9])"
)


def read_snapshot(
    data: bytes,
    *,
    format: str | None = None,  # noqa: A002 - what it is called everywhere
    registry: str = "uri-schemes",
    contacts: bytes | None = None,
    status: Status | None = None,
    source: str = "-",
) -> Snapshot:
    """The snapshot that `data` holds.

    `format` is one of READ_FORMATS, None to be told by the data. `source` is the file's name: it gives the
    date where the file has none and, for a part of 2015, the status, unless `status` does. `contacts` is a
    file of contacts (`_contacts.py`), which fills the field `contact`.

    Raises SnapshotError with the line for what is no registry, hostile or beyond its caps, UsageError for
    an unknown format. Irregular rows are kept, and reported in the snapshot.
    """
    if format is not None and format not in READ_FORMATS:
        raise UsageError(
            f"there is no format {format[:40]!r}",
            code="usage.bad-format",
            hint=f"Choose one of {', '.join(READ_FORMATS)}.",
        )
    require_size_limit(data)
    row = registry_of(registry)
    snapshot = _read_format(data, format, row, status or _find_part_status(source), source)
    if snapshot.vintage is None:
        dated = _DATE.search(source)
        snapshot = replace(snapshot, vintage=dated[1] if dated else None)
    if contacts is not None:
        # merged import  # few imports bring one

        snapshot = add_contacts(snapshot, contacts)
    return snapshot


def _find_part_status(source: str) -> Status | None:
    part = _PART.search(source)
    return _PARTS[part[1]] if part else None


def _read_format(
    data: bytes, format_: str | None, registry: Registry, status: Status | None, source: str
) -> Snapshot:
    # each reader is loaded when a file asks for it
    if format_ == "xml" or (format_ is None and data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")):
        from onym.registry.iana.xml_format import read_xml

        return build_snapshot(read_xml(data, registry), registry, source=source)
    text = decode_utf8(data)
    if format_ == "json" or (format_ is None and text.lstrip().startswith(("{", "["))):
        return _read_json(text, registry, source)
    return build_snapshot(_read_table(text, format_, registry, status), registry, source=source)


def _read_json(text: str, registry: Registry, source: str) -> Snapshot:

    value = parse_strict_json(text)
    if isinstance(value, list) and registry.id == "uri-schemes":
        return build_snapshot(read_list(value), registry, source=source)
    return read_entries(value if isinstance(value, dict) else {}, registry, source=source)


def _read_table(text: str, format_: str | None, registry: Registry, status: Status | None) -> SourceTable:

    if format_ == "text" or (format_ is None and is_text_table(text)):
        return read_text(text, registry)
    from onym.registry.iana.merge import is_cri_number_list

    if is_cri_number_list(text):
        raise make_snapshot_error(
            "CRI numbers, and no registry",
            "not-a-registry",
            line=1,
            hint="join them onto a registry's entries: onym.registry.iana.with_numbers",
        )
    return read_csv(text, registry, status)


#: what may be given as `format`
WRITE_FORMATS: Final = ("csv", "csv-2015", "csv-2022", "json", "text", "xml")
_SCHEMES_ONLY: Final = frozenset({"csv-2015", "csv-2022"})


def write_entries(
    entries: Iterable[Entry],
    *,
    format: str,  # noqa: A002 - what it is called everywhere
    registry: str,
    updated: date,
    status: Status | None = None,
) -> str:
    """The entries as text, in the order given; to be encoded as UTF-8, line ends as they are.

    `updated` is the day that the file says it is of. `status` chooses the part for csv-2015. JSON carries
    everything, XML and text the registry's columns (XML the dates too), csv the columns and every other
    field. Raises UsageError for a format that is unknown or not of this registry, and StoreError from the
    codec for values that JSON cannot hold.
    """
    row = registry_of(registry)
    if format not in WRITE_FORMATS or (format in _SCHEMES_ONLY and row.id != "uri-schemes"):
        raise UsageError(
            f"{row.id} has no format {format[:40]!r}",
            code="usage.bad-format",
            hint=f"one of {', '.join(WRITE_FORMATS)}; csv-2015 and csv-2022 are for uri-schemes",
        )
    chosen = tuple(entries)
    if format == "csv-2015":
        return write_csv_2015(chosen, row, status)
    if format == "csv-2022":
        return write_csv_2022(chosen, row)
    if format == "csv":
        return write_csv(chosen, row)
    day = date(updated.year, updated.month, updated.day)
    return {"json": write_json, "text": write_text, "xml": write_xml}[format](chosen, row, day)
