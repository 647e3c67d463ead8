"""Registry files as CSV, JSON, text tables and Python modules; reading any format and writing a chosen one.

CSV: a spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break as a formula. Such a
cell, and one of apostrophes before such a character, is written with an apostrophe before it, which reading
removes. Text: a line of `=` marks the columns, and special characters are backslash escapes. JSON: Onym's
format and the list format of the snapshot of 2024-04. Onym ships no contacts.
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
from onym.registry import codec, iana
from onym.registry.iana.xml_format import is_valid_code_point, read_xml, write_into_frame, write_xml
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry, get_registry

COLUMNS_2015: Final = ("name", "template", "description", "reference")
COLUMNS_2022: Final = ("name", "template", "description", "status", "well_known", "reference", "notes")

# full-width forms too, because some programs convert them
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def _escape_formula(value: str) -> str:
    return f"'{value}" if value != "-" and _FORMULA.match(value) else value


def _unescape_formula(value: str) -> str:
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def _select_part(entries: Sequence[Entry], status: Status | None) -> Sequence[Entry]:
    """Return the entries of one part of 2015, whose file does not name their status (RFC 4395)."""
    if status is not None:
        return [entry for entry in entries if entry.status is status]
    statuses = {entry.status for entry in entries}
    if len(statuses) > 1:
        raise UsageError(
            "csv-2015 has one file for each status, but these entries have several",
            code="usage.status-needed",
            hint=f"choose one: {', '.join(sorted(statuses))}",
        )
    return entries


def _write_csv(entries: Iterable[Entry], registry: Registry, columns: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([iana.get_heading(registry, column) for column in columns])
    for entry in entries:
        writer.writerow([_escape_formula(iana.get_cell(entry, column)) for column in columns])
    return out.getvalue()


def iter_csv_rows(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first line, the last line and the cells of each CSV record that is not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    first = 1
    try:
        for cells in reader:
            if cells:
                yield first, reader.line_num, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise iana.make_snapshot_error(f"not CSV: {error}", "bad-csv", line=reader.line_num) from error


def _read_csv(text: str, registry: Registry, status: Status | None) -> iana.SourceTable:
    """Return the rows of a CSV file; `status` is that of all rows if the file has no such column."""
    records = iter_csv_rows(text)
    titles = [_unescape_formula(cell) for cell in next(records, (1, 1, []))[2]]
    columns = tuple(iana.find_column_id(registry, item) for item in titles[: iana.MAX_COLUMNS + 1])
    if "status" not in columns and status is None and Status.PENDING_REVIEW not in registry.statuses:
        status = registry.default_status
    _require_columns(registry, columns, titles, status)
    findings = [
        iana.Irregular(
            name="", code="unknown-column", reason=f"column {title[:40]!r} is kept as {item}", line=1
        )
        for title, item in zip(titles, columns, strict=True)
        if not iana.is_known_column(registry, item)
    ]
    table = iana.SourceTable(rows=(), columns=columns, findings=findings)
    if "status" not in columns:
        table.covers = frozenset() if status is None else frozenset({status})
    table.rows = _iter_table_rows(records, columns, status, findings)
    return table


def _require_columns(
    registry: Registry, columns: Sequence[str], titles: Sequence[str], status: Status | None
) -> None:
    own = ",".join(column.heading for column in registry.columns)
    if "name" not in columns:
        raise iana.make_snapshot_error(
            f"no column with names in {','.join(titles)[:60]!r}",
            "not-a-registry",
            line=1,
            hint=f"the first line names the columns: {own}",
        )
    if len(columns) > iana.MAX_COLUMNS or len(set(columns)) < len(columns) or "" in columns:
        raise iana.make_snapshot_error("columns without names, repeated, or too many", "bad-csv", line=1)
    if "status" not in columns and status is None:
        raise iana.make_snapshot_error(
            "the file has no column Status, and its part of the registry is unknown",
            "part-unknown",
            line=1,
            field="status",
            hint=f"pass the status, one of {', '.join(registry.statuses)}"
            if registry.is_defined
            else "pass the status: uri-schemes-1.csv is permanent, -2 provisional, -3 historical",
        )


def _iter_table_rows(
    records: Iterable[tuple[int, int, list[str]]],
    columns: Sequence[str],
    status: Status | None,
    findings: list[iana.Irregular],
) -> Iterator[iana.SourceRow]:
    for line, _, raw in records:
        cells = [_unescape_formula(cell) for cell in raw]
        if len(cells) != len(columns):
            name = cells[columns.index("name")] if len(cells) > columns.index("name") else ""
            reason = f"{len(cells)} cells, but the table has {len(columns)} columns"
            findings.append(iana.Irregular(name=name, code="ragged-row", reason=reason, line=line))
        yield iana.SourceRow(line=line, cells=dict(zip(columns, cells, strict=False)), status=status)


#: member `format` of Onym's JSON format
FORMAT: Final = "onym-registry"
_VERSION: Final = 1
_RFC_PAGES: Final = "https://www.rfc-editor.org/rfc/rfc"
#: columns that the list of 2024-04 has completely; of references it has only RFCs
_LIST_COLUMNS: Final = ("name", "template", "description", "status", "well_known")
_MAX_REFERENCES: Final = 100


def parse_strict_json(text: str) -> Any:
    """Return the JSON value. Raises SnapshotError for repeated members, NaN, and nesting that is too deep."""
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise iana.make_snapshot_error(f"not JSON: {error.msg}", "bad-json", line=error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise iana.make_snapshot_error("JSON too deep, or a number too long", "bad-json") from error


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise iana.make_snapshot_error("an object repeats a member", "bad-json")
    return members


def _reject_constant(word: str) -> NoReturn:
    raise iana.make_snapshot_error(f"{word} is not a JSON number", "bad-json")


def _write_json(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Return every entry with all members, one entry a line."""
    head = {"format": FORMAT, "version": _VERSION, "registry": registry.id, "updated": updated.isoformat()}
    lines = [
        "  " + json.dumps(codec.to_data(entry), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        for entry in entries
    ]
    body = "\n" + ",\n".join(lines) + "\n " if lines else ""
    return f'{json.dumps(head)[:-1]}, "entries": [{body}]}}\n'


def _read_entries(data: Mapping[str, Any], registry: Registry, *, source: str) -> iana.Snapshot:
    """Return the snapshot in a file of Onym's JSON format."""
    if data.get("format") != FORMAT or data.get("version") != _VERSION:
        raise iana.make_snapshot_error(
            "the JSON is not a registry in Onym's format",
            "not-a-registry",
            field="format",
            hint=f'"format": "{FORMAT}", "version": {_VERSION}',
        )
    iana.require_registry(data.get("registry"), registry, field="registry")
    rows = data.get("entries")
    if not isinstance(rows, list):
        raise iana.make_snapshot_error("the file has no list of entries", "bad-json", field="entries")
    iana.require_row_limit(len(rows))
    entries = tuple(_parse_entry(row, f"entries[{index}]", registry) for index, row in enumerate(rows))
    if len({entry.name for entry in entries}) < len(entries):
        raise iana.make_snapshot_error("two entries have the same name", "duplicate-name", field="entries")
    vintage = data.get("updated")
    return iana.Snapshot(
        registry=registry.id,
        entries=entries,
        source=source,
        vintage=vintage if isinstance(vintage, str) else None,
        columns=tuple(column.id for column in registry.columns),
    )


def _parse_entry(row: object, place: str, registry: Registry) -> Entry:
    try:
        entry = codec.from_data(Entry, row)
    except StoreError as error:
        raise iana.make_snapshot_error(f"{place}: {error.message}", "bad-json", field=error.field) from error
    if entry.registry != registry.id or entry.status not in registry.statuses:
        message = f"{place}: another registry, or a status that this registry does not have"
        raise iana.make_snapshot_error(message, "bad-json", field=place)
    if any(len(value) > iana.MAX_FIELD for value in entry.fields.values()):
        message = f"{place}: more than {iana.MAX_FIELD} characters"
        raise iana.make_snapshot_error(message, "snapshot-too-large", field=place)
    return entry


def _iter_list_rows(data: Sequence[Any]) -> Iterator[iana.SourceRow]:
    """Yield the rows of the list of 2024-04: scheme, description, status, template, wku, refs, obsolete."""
    for index, item in enumerate(data):
        place = f"[{index}]"
        if not isinstance(item, dict) or not isinstance(item.get("scheme"), str):
            raise iana.make_snapshot_error(
                f"{place}: not an object with a scheme", "not-a-registry", field=place
            )
        name = f"{item['scheme']} (OBSOLETE)" if item.get("obsolete") is True else item["scheme"]
        texts = {column: item.get(column) for column in ("template", "description", "status")}
        cells = {
            "name": name,
            **{column: "" if text is None else text for column, text in texts.items()},
            "well_known": _parse_well_known(item.get("wku")),
            "reference": _format_references(item.get("refs", []), place),
        }
        wrong = next((column for column, value in cells.items() if not isinstance(value, str)), None)
        if wrong is not None:
            raise iana.make_snapshot_error(f"{place}: {wrong} is not a text", "bad-json", field=wrong)
        # the index in the list: the parser does not report lines
        yield iana.SourceRow(line=index + 1, cells=cells)


def _parse_well_known(value: object) -> Any:
    """Return `-` for null (RFC 8615 5.2), and a page of the RFC Editor as IANA cites it."""
    if value is None:
        return "-"
    if isinstance(value, str) and value.startswith(_RFC_PAGES):
        return f"[RFC{value.removeprefix(_RFC_PAGES).removesuffix('.html')}]"
    return value


def _format_references(value: object, place: str) -> str:
    if not isinstance(value, list) or len(value) > _MAX_REFERENCES:
        raise iana.make_snapshot_error(
            f"{place}: refs is not a list, or is too long", "bad-json", field="refs"
        )
    if not all(isinstance(item, str) for item in value):
        raise iana.make_snapshot_error(f"{place}: a reference is not a text", "bad-json", field="refs")
    return "".join(f"[RFC{item}]" if item.isdecimal() else f"[{item}]" for item in value)


_RULER: Final = re.compile(r"^=+(?: {2}=+)*$", re.MULTILINE)
_UPDATED: Final = re.compile(r"^Last Updated: ([0-9]{4}-[0-9]{2}-[0-9]{2})$", re.MULTILINE)
_ESCAPE: Final = re.compile(r"\\(\\|n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_SHORT_ESCAPES: Final = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED: Final = {meant: f"\\{short}" for short, meant in _SHORT_ESCAPES.items()}
_GAP: Final = "  "


def _write_text(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Return the title, the date and one line for each entry."""
    rows = [
        [_escape_cell(iana.get_cell(entry, column.id)) for column in registry.columns] for entry in entries
    ]
    titles = [column.heading for column in registry.columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [
        registry.title,
        "",
        f"Last Updated: {updated.isoformat()}",
        f"Reference: [{registry.reference}]",
        "",
        _format_line(titles, widths),
        _GAP.join("=" * width for width in widths),
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
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescape_cell(text: str, line: int) -> str:
    def decode(match: re.Match[str]) -> str:
        escape = match[1]
        if escape in _SHORT_ESCAPES:
            return _SHORT_ESCAPES[escape]
        code = int(escape[1:], 16)
        if not is_valid_code_point(code):
            raise iana.make_snapshot_error(f"the character {match[0]} does not exist", "bad-text", line=line)
        return chr(code)

    return _ESCAPE.sub(decode, text)


def _read_text(text: str, registry: Registry) -> iana.SourceTable:
    """Return the rows under the ruler. Raises SnapshotError (registry.not-a-registry)."""
    ruler = _RULER.search(text)
    if ruler is None:
        raise iana.make_snapshot_error("the text has no line of = under the headings", "not-a-registry")
    spans = [match.span() for match in re.finditer("=+", ruler[0])]
    head = text[: ruler.start()].splitlines()
    titles = _split_cells(head[-1] if head else "", spans)
    columns = tuple(iana.find_column_id(registry, title) for title in titles[: iana.MAX_COLUMNS + 1])
    repeated = len(set(columns)) < len(columns)
    if not {"name", "status"} <= set(columns) or repeated or len(columns) > iana.MAX_COLUMNS:
        message = "no columns of a registry above the line of ="
        raise iana.make_snapshot_error(message, "not-a-registry", line=len(head) or 1)
    updated = _UPDATED.search(text, 0, ruler.start())
    below = text[ruler.end() :].split("\n")[1:]
    return iana.SourceTable(
        rows=_iter_text_rows(below, spans, columns, len(head) + 2),
        columns=columns,
        vintage=updated[1] if updated else None,
    )


def _iter_text_rows(
    lines: Sequence[str], spans: Sequence[tuple[int, int]], columns: Sequence[str], first: int
) -> Iterator[iana.SourceRow]:
    for number, line in enumerate(lines, first):
        if line:
            cells = [_unescape_cell(cell, number) for cell in _split_cells(line, spans)]
            yield iana.SourceRow(line=number, cells=dict(zip(columns, cells, strict=True)))


def _split_cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[begin:end].strip(" ") for begin, end in spans]


#: registry -> the constant with one column, its comment, and the column's id ("" for the status)
_TABLE_COLUMNS: Final = {
    "uri-schemes": ("STATUSES", "the status of each one", ""),
    "llm-parameters": ("TYPES", "the type of each one's value", "type"),
    "ai-namespaces": ("STATUSES", "the status of each one", ""),
}


def write_table(entries: Iterable[Entry], *, registry: str) -> str:
    """Return a Python module with the names in the order given, and one column; without pending entries.

    Every text is a literal, so an entry cannot add code. Raises UnknownEntryError if the registry does not
    exist.
    """
    row = get_registry(registry)
    constant, comment, column = _TABLE_COLUMNS[row.id]
    chosen = [entry for entry in entries if entry.status is not Status.PENDING_REVIEW]
    # a JSON string without escapes for Unicode is also a Python string
    names = [json.dumps(entry.name, ensure_ascii=False) for entry in chosen]
    values = [entry.fields.get(column, "") if column else str(entry.status) for entry in chosen]
    tuple_rows = "".join(f"    {name},\n" for name in names)
    dict_rows = "".join(
        f"    {name}: {json.dumps(value, ensure_ascii=False)},\n"
        for name, value in zip(names, values, strict=True)
    )
    exported = sorted((constant, "WELL_KNOWN"))
    about = f"{row.title}.\n\nWritten by `onym registry export -r {row.id} --format tables`.\n"
    return (
        f'"""{about}"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Final\n\n"
        f"__all__ = {json.dumps(exported)}\n\n"
        f"#: their names, in the registry's order\nWELL_KNOWN: Final = (\n{tuple_rows})\n\n"
        f"#: {comment}\n{constant}: Final = {{\n{dict_rows}}}\n"
    )


#: a reference to a person or an organisation, not to a document, page or registry
_CONTACT_REFERENCE: Final = re.compile(r"\[(?!RFC|draft-|status-change-|http|IANA registry )([^\[\]]+)\]")
_MAX_CONTACT: Final = 1000


def _add_contacts(snapshot: iana.Snapshot, data: bytes) -> iana.Snapshot:
    """Return the snapshot with a field `contact` for each entry whose reference names a contact of the file.

    The file is a JSON list of [id, name, organisation, URI, date]; a name that it does not have is
    reported as `contact-unknown`. Raises SnapshotError.
    """
    people = _parse_contacts(data)
    irregular = list(snapshot.irregular)
    entries = []
    for entry in snapshot.entries:
        names = _CONTACT_REFERENCE.findall(entry.fields.get("reference", ""))
        for name in names:
            if name not in people:
                reason = f"the file has no contact {name[:60]!r}"
                irregular.append(iana.Irregular(name=entry.name, code="contact-unknown", reason=reason))
        contact = "; ".join(people[name] for name in names if name in people)
        fields = {**entry.fields, "contact": contact}
        entries.append(replace(entry, fields=MappingProxyType(fields)) if contact else entry)
    return replace(snapshot, entries=tuple(entries), irregular=tuple(irregular))


def _parse_contacts(data: bytes) -> dict[str, str]:
    iana.require_size_limit(data)
    rows = parse_strict_json(iana.decode_utf8(data))
    if not isinstance(rows, list):
        hint = "[[id, name, organisation, URI, date], ...]"
        raise iana.make_snapshot_error("the file is not a list of contacts", "bad-contacts", hint=hint)
    iana.require_row_limit(len(rows))
    people = {}
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 5 or not all(_is_contact_text(item) for item in row):
            message = f"[{index}]: not [id, name, organisation, URI, date]"
            raise iana.make_snapshot_error(message, "bad-contacts", field=f"[{index}]")
        identifier, name, organisation, uri, _ = row
        people[identifier.strip("[]")] = _format_contact(name or organisation, uri)
    return people


def _is_contact_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_CONTACT


def _format_contact(name: str, uri: str) -> str:
    """Return `Adam Barth <abarth@example.org>`; IANA writes `&` for `@`, against harvesters."""
    address = uri.removeprefix("mailto:")
    if address != uri and "@" not in address:
        address = address.replace("&", "@", 1)
    return f"{name} <{address}>" if address else name


#: values of `format`; the headings distinguish both CSV vintages
READ_FORMATS: Final = ("csv", "csv-2015", "csv-2022", "json", "text", "xml")

#: IANA's file names of 2015: uri-schemes-1.csv is the first part
_PART: Final = re.compile(r"-([123])\.[a-z]+\Z")
_PARTS: Final = {"1": Status.PERMANENT, "2": Status.PROVISIONAL, "3": Status.HISTORICAL}
_DATE: Final = re.compile(
    r"(?<![0-9])((?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])(?:-[0-9]{2})?|mid-20[0-9]{2})(?![0-9])"
)
_CRI_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")
_CRI_LINE: Final = re.compile(r"\s*[0-9]+,[^,\r\n]+(?:\r?\n|\Z)")


def read_snapshot(
    data: bytes,
    *,
    format: str | None = None,  # noqa: A002 - the usual name
    registry: str = "uri-schemes",
    contacts: bytes | None = None,
    status: Status | None = None,
    source: str = "-",
) -> iana.Snapshot:
    """Read a registry file.

    `format` is one of READ_FORMATS; None detects it. `source` is the file's name; it gives the date if the
    file has none, and the status of a part of 2015 if `status` is None. `contacts` is a JSON list of
    [id, name, organisation, URI, date], which fills the field `contact`.

    Raises SnapshotError with the line if the file is not a registry, hostile or too large, and UsageError
    for an unknown format. The snapshot keeps irregular rows and reports them.
    """
    if format is not None and format not in READ_FORMATS:
        raise UsageError(
            f"the format {format[:40]!r} does not exist",
            code="usage.bad-format",
            hint=f"Choose one of {', '.join(READ_FORMATS)}.",
        )
    iana.require_size_limit(data)
    row = get_registry(registry)
    part = _PART.search(source)
    snapshot = _read_format(data, format, row, status or (_PARTS[part[1]] if part else None), source)
    if snapshot.vintage is None:
        dated = _DATE.search(source)
        snapshot = replace(snapshot, vintage=dated[1] if dated else None)
    return snapshot if contacts is None else _add_contacts(snapshot, contacts)


def _read_format(
    data: bytes, format_: str | None, registry: Registry, status: Status | None, source: str
) -> iana.Snapshot:
    if format_ == "xml" or (format_ is None and data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")):
        return replace(iana.build_snapshot(read_xml(data, registry), registry, source=source), frame=data)
    text = iana.decode_utf8(data)
    if format_ == "json" or (format_ is None and text.lstrip().startswith(("{", "["))):
        value = parse_strict_json(text)
        if not isinstance(value, list) or registry.id != "uri-schemes":
            return _read_entries(value if isinstance(value, dict) else {}, registry, source=source)
        iana.require_row_limit(len(value))
        table = iana.SourceTable(rows=_iter_list_rows(value), columns=_LIST_COLUMNS)
    elif format_ == "text" or (format_ is None and _RULER.search(text)):
        table = _read_text(text, registry)
    elif _CRI_LINE.match(text):
        raise iana.make_snapshot_error(
            "the file has CRI numbers and is not a registry",
            "not-a-registry",
            line=1,
            hint="add them to a registry's entries with onym.registry.iana.add_cri_numbers",
        )
    else:
        table = _read_csv(text, registry, status)
    return iana.build_snapshot(table, registry, source=source)


def add_cri_numbers(snapshot: iana.Snapshot, data: bytes) -> iana.Snapshot:
    """Return the snapshot with the CRI numbers (draft-ietf-core-href) of a file of `number,name` lines.

    Names that are not registered, numbers that are repeated, and numbers that differ from the entry's number
    are reported and not added. Raises SnapshotError for a file of another kind.
    """
    iana.require_size_limit(data)
    irregular = list(snapshot.irregular)
    entries = {entry.name: entry for entry in snapshot.entries}
    holders: dict[str, str] = {}
    for count, (_, line, cells) in enumerate(iter_csv_rows(iana.decode_utf8(data))):
        iana.require_row_limit(count)
        if len(cells) != 2 or not _CRI_NUMBER.fullmatch(cells[0]):
            message = "the line is not number,name"
            raise iana.make_snapshot_error(message, "not-numbers", line=line, hint="for instance: 2,http")
        number, spelling = cells
        name = spelling.lower().removesuffix("(obsolete)").rstrip()
        reason = _set_cri_number(entries, holders, name, number)
        if reason is not None:
            irregular.append(iana.Irregular(name=spelling, code="cri-number", reason=reason, line=line))
    columns = tuple(dict.fromkeys((*snapshot.columns, "cri_number")))
    return replace(snapshot, entries=tuple(entries.values()), irregular=tuple(irregular), columns=columns)


def _set_cri_number(entries: dict[str, Entry], holders: dict[str, str], name: str, number: str) -> str | None:
    """Add the number to the entry, or return the reason why not."""
    holder = holders.setdefault(number, name)
    if holder != name:
        return f"{number} is the number of {holder} already"
    entry = entries.get(name)
    if entry is None:
        return f"{number} is for a scheme that is not registered"
    current = entry.fields.get("cri_number")
    if current is not None and current != number:
        return f"{number}, but the entry has {current}"
    entries[name] = replace(entry, fields=MappingProxyType({**entry.fields, "cri_number": number}))
    return None


#: values of `format` for writing
WRITE_FORMATS: Final = READ_FORMATS
_SCHEMES_ONLY: Final = frozenset({"csv-2015", "csv-2022"})


def write_entries(
    entries: Iterable[Entry],
    *,
    format: str,  # noqa: A002 - the usual name
    registry: str,
    updated: date,
    status: Status | None = None,
    frame: bytes | None = None,
) -> str:
    """Return the entries as text, in the order given; encode it as UTF-8 and keep its line ends.

    `updated` is the date of the file. `status` chooses the part for csv-2015. JSON has all members, XML and
    text the registry's columns (XML also the dates), csv the columns and every other field. XML is written
    into `frame`, the file that was imported, if there is one. Raises
    UsageError for a format that is unknown or not of this registry, and StoreError for values that JSON
    cannot represent.
    """
    row = get_registry(registry)
    if format not in WRITE_FORMATS or (format in _SCHEMES_ONLY and row.id != "uri-schemes"):
        raise UsageError(
            f"{row.id} has no format {format[:40]!r}",
            code="usage.bad-format",
            hint=f"one of {', '.join(WRITE_FORMATS)}; csv-2015 and csv-2022 are for uri-schemes",
        )
    chosen: Sequence[Entry] = tuple(entries)
    if format == "csv-2015":
        return _write_csv(_select_part(chosen, status), row, COLUMNS_2015)
    if format == "csv-2022":
        return _write_csv(chosen, row, COLUMNS_2022)
    if format == "csv":
        columns = (*(column.id for column in row.columns), *iana.list_extra_columns(row, chosen))
        return _write_csv(chosen, row, columns)
    day = date(updated.year, updated.month, updated.day)
    if format == "xml" and frame is not None:
        return write_into_frame(frame, chosen, row, day)
    return {"json": _write_json, "text": _write_text, "xml": write_xml}[format](chosen, row, day)
