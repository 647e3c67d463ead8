"""Registry files: read published registries of every format, write them, and compare two of them.

    snapshot = load_builtin_snapshot("uri-schemes")              # facts that Onym ships
    snapshot = read_snapshot(data, source="uri-schemes-1.csv")   # detects CSV, XML, JSON or text
    text = write_entries(snapshot.entries, format="xml", registry="uri-schemes", updated=date(2026, 11, 21))
    changes = compare_snapshots(before, after)

Irregular rows are kept and reported (`Snapshot.irregular`). A row that cannot become an entry stops the
import.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym._lazy import make_lazy_names
from onym.errors import SnapshotError
from onym.registry.records import Entry, EventKind, Status
from onym.registry.registries import PROFILES, Registry, get_catalog, get_registry

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

    from onym.registry.iana.changes import combine_snapshots as combine_snapshots
    from onym.registry.iana.changes import compare_entries as compare_entries
    from onym.registry.iana.changes import compare_logged_entries as compare_logged_entries
    from onym.registry.iana.changes import compare_snapshots as compare_snapshots
    from onym.registry.iana.changes import fill_missing_columns as fill_missing_columns
    from onym.registry.iana.changes import format_atom_feed as format_atom_feed
    from onym.registry.iana.changes import prepare_import as prepare_import
    from onym.registry.iana.formats import READ_FORMATS as READ_FORMATS
    from onym.registry.iana.formats import WRITE_FORMATS as WRITE_FORMATS
    from onym.registry.iana.formats import add_cri_numbers as add_cri_numbers
    from onym.registry.iana.formats import read_snapshot as read_snapshot
    from onym.registry.iana.formats import write_entries as write_entries
    from onym.registry.iana.formats import write_table as write_table
    from onym.registry.iana.namespaces import Namespace as Namespace
    from onym.registry.iana.namespaces import NamespaceFile as NamespaceFile
    from onym.registry.iana.namespaces import check_namespace_fields as check_namespace_fields
    from onym.registry.iana.namespaces import read_namespaces as read_namespaces
    from onym.registry.iana.namespaces import write_namespaces as write_namespaces

#: bytes in one file; IANA's largest of this kind has 60,000
MAX_BYTES: Final = 16 * 1024 * 1024
#: columns of one file
MAX_COLUMNS: Final = 100
#: rows in one file
MAX_ROWS: Final = 200_000
#: characters in one cell
MAX_FIELD: Final = 100_000
#: nested elements or brackets
MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregular:
    """An irregular row, which is kept, and the reason.

    `name` is as published ("" if the row has none), `code` the stable kind of irregularity, `line` counts
    from 1 in the file. `entry` is the entry of a row that was set aside: the second of one name.
    """

    name: str
    code: str
    reason: str
    line: int | None = None
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A registry as read from a file. `entries` are in the order of the file.

    `vintage` is the date of the file if it is known ("2022-11-18", "2024-04"). `columns` are the columns
    that the file has completely; `compare_snapshots` compares only these. `covers` are the statuses of which
    the file has every entry, None for all; a part of 2015 covers one.
    """

    registry: str
    entries: tuple[Entry, ...]
    irregular: tuple[Irregular, ...] = ()
    source: str = "-"
    vintage: str | None = None
    columns: tuple[str, ...] = ()
    covers: frozenset[Status] | None = None
    #: the XML file itself, into which an export writes the entries (`onym.registry.iana.xml_format`)
    frame: bytes | None = field(default=None, repr=False, compare=False)

    def find(self, name: str) -> Entry | None:
        """Return the entry of that name; None if it does not exist."""
        return next((entry for entry in self.entries if entry.name == name), None)


class ChangeKind(StrEnum):
    """The kind of a change. A change of status may change fields too."""

    ADDED = "added"
    REMOVED = "removed"
    STATUS = "status"
    FIELDS = "fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry that differs between two snapshots.

    `event` is the event that causes such a change and `rule` its row in the table of the state machine; if
    no rule allows it, both are None and `irregular` is the reason. `at` is the time, if it is known.
    """

    name: str
    kind: ChangeKind
    before: Entry | None = None
    after: Entry | None = None
    irregular: str | None = None
    event: EventKind | None = None
    rule: str | None = None
    at: datetime | None = None


def make_snapshot_error(
    message: str, code: str, *, line: int | None = None, field: str | None = None, hint: str | None = None
) -> SnapshotError:
    """Return the error for a file that cannot be imported."""
    return SnapshotError(message, code=f"registry.{code}", line=line, field=field, hint=hint)


def require_size_limit(data: bytes, limit: int = MAX_BYTES) -> None:
    """Raise a SnapshotError for a file that is too large."""
    if len(data) > limit:
        raise make_snapshot_error(f"{len(data)} bytes, but the limit is {limit}", "snapshot-too-large")


def require_row_limit(count: int) -> None:
    """Raise a SnapshotError for a file with too many rows."""
    if count > MAX_ROWS:
        raise make_snapshot_error(f"more than {MAX_ROWS} rows", "snapshot-too-large")


def require_registry(identifier: object, registry: Registry, *, field: str, line: int | None = None) -> None:
    """Raise a SnapshotError for a file of another registry."""
    if identifier != registry.id:
        raise make_snapshot_error(
            f"this is the registry {str(identifier or '')[:40]!r}",
            "wrong-registry",
            line=line,
            field=field,
            hint=f"the requested registry is {registry.id}",
        )


def format_utc_time(time: datetime) -> str:
    """Return `2026-11-21T00:00:00Z`, in UTC and full seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


#: Python also reads other forms of ISO 8601, of which two may be the same time
_UTC_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def parse_utc_time(text: str) -> datetime:
    """Return the time that `format_utc_time` wrote. Raises ValueError for any other form."""
    if _UTC_TIME.fullmatch(text) is None:
        raise ValueError("not a time of the form 2026-11-21T00:00:00Z")
    return datetime.fromisoformat(text)


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises SnapshotError with the line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise make_snapshot_error(
            "not UTF-8", "not-utf8", line=line, hint="convert it, for instance: iconv -t utf-8"
        ) from error


#: the field that keeps an unknown status word, so that it is written as it was read
PUBLISHED_STATUS: Final = "published_status"

# columns that are members of the entry, not fields
_MEMBER_COLUMNS: Final = frozenset({"name", "status", PUBLISHED_STATUS})

#: fields without a template: the first time that a merged file had a scheme
_EXTRA_FIELDS: Final = frozenset({"first_seen"})

#: kinds of notes that the column shows (RFC 4395 3, 5.4 and 7; RFC 7595 7.2, 7.4 and 10)
_PUBLIC_NOTES: Final = frozenset({"separate-use", "security", "draft-expired"})

_STATUSES: Final = {status.value.replace("-", ""): status for status in Status}


def fold_word(text: str) -> str:
    """Return only letters and digits, in lower case: well-known, Well-Known and well_known are equal."""
    return re.sub("[^a-z0-9]", "", text.lower())


def parse_status(word: str) -> Status | None:
    """Return the status of a word, ignoring case and hyphens; None if it is not a status."""
    return _STATUSES.get(fold_word(word)) if len(word) <= 32 else None


def format_status(status: Status) -> str:
    """Return the status as IANA prints it: Permanent, Pending Review."""
    return status.value.replace("-", " ").title()


def get_cell(entry: Entry, column: str) -> str:
    """Return the text of an entry in that column; "" if it has none."""
    if column == "name":
        return entry.name if entry.spelling is None else entry.spelling
    if column == "status":
        return _get_published_status(entry) or format_status(entry.status)
    if column == "notes" and entry.notes:
        return _format_notes(entry)
    if column == "expires" and entry.expires is not None:
        return entry.expires.isoformat()
    return entry.fields.get(column, "")


def _format_notes(entry: Entry) -> str:
    """Return the column's text with a line for each public note of the procedure, without repetition."""
    lines = list(filter(None, entry.fields.get("notes", "").split("\n")))
    for note in entry.notes:
        if note.kind in _PUBLIC_NOTES and note.text not in lines:
            lines.append(note.text)
    return "\n".join(lines)


def _get_published_status(entry: Entry) -> str:
    # a word that is a status would contradict the status of the entry
    word = entry.fields.get(PUBLISHED_STATUS, "") if entry.status is Status.PENDING_REVIEW else ""
    return "" if parse_status(word) else word


def get_heading(registry: Registry, column: str) -> str:
    """Return the column's heading in this registry; for other fields the id."""
    return next((known.heading for known in registry.columns if known.id == column), column)


def find_column_id(registry: Registry, title: str) -> str:
    """Return the id of the column with that heading or tag; for an unknown column an id made of it."""
    wanted = fold_word(title)
    for column in registry.columns:
        if wanted in (fold_word(column.id), fold_word(column.heading)):
            return column.id
    return re.sub("[^a-z0-9]+", "_", title.strip().lower()).strip("_")


def is_known_column(registry: Registry, column: str) -> bool:
    """Return whether it is a column of this registry, or a field of one of its templates."""
    return column in _list_known_columns(registry, get_catalog().digest)


@cache
def _list_known_columns(registry: Registry, digest: str) -> frozenset[str]:
    """Return the columns; `digest` tells the definitions apart that have the same registry."""
    profiles = [PROFILES[profile] for profile in registry.profiles]
    fields = (field.id for profile in profiles for field in profile.all_fields)
    return _EXTRA_FIELDS.union(fields, (column.id for column in registry.columns))


def list_extra_columns(registry: Registry, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the fields that entries have beyond the registry's columns, sorted."""
    known = _MEMBER_COLUMNS.union(column.id for column in registry.columns)
    return tuple(sorted({name for entry in entries for name in entry.fields} - known))


_Finding: TypeAlias = tuple[str, str]

#: IANA appends this to obsolete names
_OBSOLETE: Final = re.compile(r"\A(\S+)\s+\(OBSOLETE\)\Z", re.IGNORECASE)
#: the directory of the template files of each status
_FOLDERS: Final = {
    Status.PERMANENT: "perm",
    Status.PROVISIONAL: "prov",
    Status.HISTORICAL: "historic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One row of a file: cells by column id. `status` applies if the row does not name one."""

    line: int | None
    cells: Mapping[str, str]
    status: Status | None = None
    registered: str | None = None
    updated: str | None = None


@dataclass(slots=True, kw_only=True)
class SourceTable:
    """The rows of a file. `findings` are the irregularities that the reader of the format found."""

    rows: Iterable[SourceRow]
    columns: tuple[str, ...]
    vintage: str | None = None
    covers: frozenset[Status] | None = None
    findings: list[Irregular] = field(default_factory=list)


def build_snapshot(table: SourceTable, registry: Registry, *, source: str) -> Snapshot:
    """Return the snapshot of a table: each row becomes an entry; the second of one name is set aside."""
    entries: dict[str, Entry] = {}
    irregular: list[Irregular] = []
    last = ""
    for count, row in enumerate(table.rows, 1):
        require_row_limit(count)
        spelling = row.cells.get("name", "")
        kept = None
        if not spelling.strip():
            spelling, findings = "", [("no-name", "the row has no name")]
        elif "\0" in spelling:
            spelling = spelling.replace("\0", "?")
            findings = [("bad-name", "the name has a NUL, which cannot be stored; this row is set aside")]
        else:
            entry, findings = _build_entry(row, registry)
            if entry.name in entries:
                kept = entry
                findings = [("duplicate", f"{entry.name} is in the file already; this row is set aside")]
            else:
                entries[entry.name] = entry
                if entry.name < last:
                    findings.append(("unsorted", f"comes after {last}"))
                last = entry.name
        irregular += (
            Irregular(name=spelling, code=code, reason=reason, line=row.line, entry=kept)
            for code, reason in findings
        )
    return Snapshot(
        registry=registry.id,
        entries=tuple(entries.values()),
        # rows may be read on demand, so the reader's findings are complete only now
        irregular=(*table.findings, *irregular),
        source=source,
        vintage=table.vintage,
        columns=table.columns,
        covers=table.covers,
    )


def _build_entry(row: SourceRow, registry: Registry) -> tuple[Entry, list[_Finding]]:
    cells = {name: value for name, value in row.cells.items() if value}
    for name, value in cells.items():
        if len(value) > MAX_FIELD:
            message = f"more than {MAX_FIELD} characters"
            raise make_snapshot_error(message, "snapshot-too-large", field=name, line=row.line)
    findings = [
        ("untrimmed", f"{name} has white space around it")
        for name, value in cells.items()
        if value != value.strip()
    ]
    spelling = cells.pop("name")
    obsolete = _OBSOLETE.match(spelling)
    key = registry.normalize_name(obsolete[1] if obsolete else spelling)
    word = cells.pop("status", "")
    # a file cannot set this field
    cells.pop(PUBLISHED_STATUS, None)
    status = parse_status(word) if word else row.status
    if status not in registry.statuses and Status.PENDING_REVIEW not in registry.statuses:
        if word:
            reason = f"this registry has no status {word[:40]!r}"
            hint = f"Write one of {', '.join(registry.statuses)}, or leave the status out."
            raise make_snapshot_error(reason, "unknown-status", field="status", line=row.line, hint=hint)
        findings.append(("no-status", f"no status; imported as {registry.default_status}"))
        status = registry.default_status
    elif status not in registry.statuses:
        if word:
            reason = f"this registry has no status {word[:40]!r}; imported as pending review"
            findings.append(("unknown-status", reason))
            cells[PUBLISHED_STATUS] = word
        else:
            findings.append(("no-status", "no status; imported as pending review"))
        status = Status.PENDING_REVIEW
    registered = _parse_day(row.registered, "date", findings)
    updated = _parse_day(row.updated, "updated", findings)
    expires = None
    if any(column.id == "expires" for column in registry.columns):
        expires = _parse_day(cells.get("expires"), "expires", findings)
    if expires is not None:
        del cells["expires"]
    entry = Entry(
        registry=registry.id,
        name=key,
        spelling=None if spelling == key else spelling,
        status=status,
        fields=MappingProxyType(cells),
        expires=expires,
        registered=_to_midnight(registered),
        updated=_to_midnight(updated),
    )
    findings += _iter_findings(entry, registry, obsolete=obsolete is not None)
    return entry, findings


def _parse_day(text: str | None, column: str, findings: list[_Finding]) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        findings.append(("bad-date", f"{column} is not a date: {text[:40]!r}"))
        return None


def _to_midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def _iter_findings(entry: Entry, registry: Registry, *, obsolete: bool) -> Iterator[_Finding]:
    """Yield the irregularities of one row."""
    if obsolete:
        yield "obsolete-in-name", f"the name has a comment; imported as {entry.name}"
    if not registry.is_valid_name(entry.name):
        yield "name-not-allowed", f"{registry.name_clause}: {registry.name_rule}"
        return
    spelling = entry.spelling or entry.name
    if registry.fold_case and not obsolete and spelling != spelling.lower():
        yield "upper-case", f"scheme names are lower case (RFC 3986 3.1); imported as {entry.name}"
    if registry.id != "uri-schemes":
        return
    if not entry.name[-1].isalnum():
        yield "ends-in-punctuation", f"ends in {entry.name[-1]!r}"
    if "." in entry.name and not _load_suffixes().publicsuffix(entry.name.partition(".")[0]):
        yield "not-a-reversed-domain", "has a '.' but is not a reversed domain name (RFC 7595 3.8)"
    yield from _iter_template_findings(entry)


def _iter_template_findings(entry: Entry) -> Iterator[_Finding]:
    template = entry.fields.get("template", "").strip()
    if not template or entry.status not in _FOLDERS:
        return
    folder, _, name = template.partition("/")
    if folder != _FOLDERS[entry.status]:
        yield "template-path", f"{entry.status.value}, but its template is in {folder[:40]}/"
    if name.lower() != entry.name:
        yield "template-name", f"its template is called {name[:40]!r}"


@cache
def _load_suffixes() -> PublicSuffixList:
    # late: a large table that only names with dots need
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)


_FILES: Final = {
    "uri-schemes": "uri_schemes.json",
    "llm-parameters": "llm_parameters.json",
    "ai-namespaces": "ai_namespaces.json",
}


def load_shipped_json(name: str) -> Any:
    """Return the JSON of a file of `onym.registry.data`."""
    return json.loads(pkgutil.get_data("onym.registry", f"data/{name}") or b"")


@cache
def load_builtin_snapshot(registry: str) -> Snapshot:
    """Return the shipped snapshot of a registry, read once. Raises UnknownEntryError if it does not exist."""
    row = get_registry(registry)
    if row.id not in _FILES:
        # an operator's registry begins empty
        return Snapshot(registry=row.id, entries=(), irregular=(), source="Onym")
    data = load_shipped_json(_FILES[row.id])
    columns = tuple(data["columns"])
    return Snapshot(
        registry=row.id,
        entries=tuple(_parse_builtin_entry(row, columns, cells) for cells in data["rows"]),
        irregular=tuple(
            Irregular(name=name, code=code, reason=reason, line=line)
            for name, code, reason, line in data.get("irregular", ())
        ),
        source=data["source"],
        vintage=data["vintage"],
        columns=columns,
    )


def _parse_builtin_entry(registry: Registry, columns: tuple[str, ...], row: list[str]) -> Entry:
    cells = {column: value for column, value in zip(columns, row, strict=True) if value}
    name, status = cells.pop("name"), Status(cells.pop("status"))
    key = registry.normalize_name(name)
    return Entry(
        registry=registry.id,
        name=key,
        spelling=None if name == key else name,
        status=status,
        fields=MappingProxyType(cells),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RFC:
    """One RFC. `title` is "" if it is not known.

    `basis` is the source: "text" is the header of the RFC or of its successor, "cited" a row of a registry,
    "known" the knowledge of the editors, which also covers successors without a header.
    """

    number: int
    title: str = ""
    obsoleted_by: tuple[int, ...] = ()
    basis: str


@cache
def load_known_rfcs() -> Mapping[int, RFC]:
    """Return the shipped RFC facts by number."""
    return MappingProxyType(
        {
            number: RFC(number=number, title=title, obsoleted_by=tuple(by), basis=basis)
            for number, title, by, basis in load_shipped_json("rfcs.json")["rows"]
        }
    )


# unused parts are not loaded: an entry of the shipped snapshot needs neither CSV nor XML
_HOMES = {
    "onym.registry.iana.changes": (
        "combine_snapshots compare_entries compare_logged_entries compare_snapshots fill_missing_columns "
        "format_atom_feed prepare_import"
    ),
    "onym.registry.iana.formats": (
        "READ_FORMATS WRITE_FORMATS add_cri_numbers read_snapshot write_entries write_table"
    ),
    "onym.registry.iana.namespaces": (
        "Namespace NamespaceFile check_namespace_fields read_namespaces write_namespaces"
    ),
    "onym.registry.iana": (
        "MAX_BYTES RFC Change ChangeKind Irregular Snapshot load_builtin_snapshot load_known_rfcs"
    ),
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
