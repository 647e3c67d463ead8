"""Snapshots of a registry: values, limits, how rows become entries, and the snapshots that Onym ships.

Every format reader hands its rows to `build_snapshot`, so that all formats report the same
irregularities. The shipped snapshots hold facts with their provenance and no personal addresses. The
shipped RFC facts are not an RFC index: an RFC that is not listed may exist, and one whose `obsoleted_by`
is empty may be obsolete.
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

from onym.errors import SnapshotError
from onym.registry.records import Entry, EventKind, Status
from onym.registry.registries import PROFILES, Registry
from onym.registry.registries import get_registry as registry_of

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

#: bytes in one file; IANA's largest of this kind has 60,000
MAX_BYTES: Final = 16 * 1024 * 1024
#: columns of one file
MAX_COLUMNS: Final = 100
#: rows in one file
MAX_ROWS: Final = 200_000
#: characters in one cell
MAX_FIELD: Final = 100_000
#: elements or brackets inside one another
MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregular:
    """A row that is not as it should be, and why. It is kept all the same.

    `name` is as published ("" where there is none), `code` the stable kind of irregularity, `line` counts
    from 1 in the file. `entry` holds a row that could not stand beside the others: the second of one name.
    """

    name: str
    code: str
    reason: str
    line: int | None = None
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A registry as read from a file. `entries` are in the order of the file.

    `vintage` is the file's own date as far as it is known ("2022-11-18", "2024-04"). `columns` are the
    columns that the file carries whole, the only ones that `differences` compares; `covers` are the
    statuses of which it has every entry, None for all: one part of 2015 covers one.
    """

    registry: str
    entries: tuple[Entry, ...]
    irregular: tuple[Irregular, ...] = ()
    source: str = "-"
    vintage: str | None = None
    columns: tuple[str, ...] = ()
    covers: frozenset[Status] | None = None

    def find(self, name: str) -> Entry | None:
        """The entry of that key, if there is one."""
        return next((entry for entry in self.entries if entry.name == name), None)


class ChangeKind(StrEnum):
    """What happened to an entry. A change of status may change fields too."""

    ADDED = "added"
    REMOVED = "removed"
    STATUS = "status"
    FIELDS = "fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry that differs between two snapshots.

    `event` is what brings such a change about and `rule` its row in the state machine's table; where no
    rule does, both are None and `irregular` says why. `at` is when it happened, as far as that is known.
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
    """The error for a file that cannot be imported."""
    return SnapshotError(message, code=f"registry.{code}", line=line, field=field, hint=hint)


def require_size_limit(data: bytes, limit: int = MAX_BYTES) -> None:
    """Refuse a file beyond the cap before anything reads it."""
    if len(data) > limit:
        raise make_snapshot_error(f"{len(data)} bytes, and at most {limit} are read", "snapshot-too-large")


def require_row_limit(count: int) -> None:
    """Refuse a file with too many rows."""
    if count > MAX_ROWS:
        raise make_snapshot_error(f"more than {MAX_ROWS} rows", "snapshot-too-large")


def require_field_limit(value: str, column: str, line: int | None) -> str:
    """The value, if it is not beyond the cap."""
    if len(value) > MAX_FIELD:
        raise make_snapshot_error(
            f"more than {MAX_FIELD} characters", "snapshot-too-large", field=column, line=line
        )
    return value


def decode_utf8(data: bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise make_snapshot_error(
            "not UTF-8", "not-utf8", line=line, hint="convert it, for instance: iconv -t utf-8"
        ) from error


#: the field that keeps a status word which is none of ours, so that it is written as it was read
PUBLISHED_STATUS: Final = "published_status"

# columns that are the entry's own members, and so are never read from its fields
_MEMBER_COLUMNS: Final = frozenset({"name", "status", PUBLISHED_STATUS})

#: fields that no template asks for: when a merged file saw a scheme first
_EXTRA_FIELDS: Final = frozenset({"first_seen"})

#: kinds of notes that belong into the column (RFC 4395 3, 5.4 and 7; RFC 7595 7.2, 7.4 and 10)
_PUBLIC_NOTES: Final = frozenset({"separate-use", "security", "draft-expired"})

_STATUSES: Final = {status.value.replace("-", ""): status for status in Status}


def fold_word(text: str) -> str:
    """Letters and digits alone, in lower case: well-known, Well-Known and well_known are one word."""
    return re.sub("[^a-z0-9]", "", text.lower())


def parse_status(word: str) -> Status | None:
    """The status that a word means, whatever its case and hyphens; None if it means none."""
    return _STATUSES.get(fold_word(word)) if len(word) <= 32 else None


def format_status(status: Status) -> str:
    """As IANA prints it: Permanent, Pending Review."""
    return status.value.replace("-", " ").title()


def get_cell(entry: Entry, column: str) -> str:
    """What the entry shows in that column; "" where it says nothing."""
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
    """The column's text, and a line for each note that the procedure put on the entry for all to see.

    One that the text has already, from a file that was written so, is not said twice.
    """
    lines = list(filter(None, entry.fields.get("notes", "").split("\n")))
    for note in entry.notes:
        if note.kind in _PUBLIC_NOTES and note.text not in lines:
            lines.append(note.text)
    return "\n".join(lines)


def _get_published_status(entry: Entry) -> str:
    """A word that was kept because it is no status; one that is would belie the entry's own."""
    word = entry.fields.get(PUBLISHED_STATUS, "") if entry.status is Status.PENDING_REVIEW else ""
    return "" if parse_status(word) else word


def get_heading(registry: Registry, column: str) -> str:
    """The column's heading in this registry; a field that is no column of it goes by its id."""
    return next(
        (known_column.heading for known_column in registry.columns if known_column.id == column), column
    )


def find_column_id(registry: Registry, title: str) -> str:
    """The column that a heading or tag means; one that the registry does not know gets an id made of it."""
    wanted = fold_word(title)
    for column in registry.columns:
        if wanted in (fold_word(column.id), fold_word(column.heading)):
            return column.id
    return re.sub("[^a-z0-9]+", "_", title.strip().lower()).strip("_")


def is_known_column(registry: Registry, column: str) -> bool:
    """Is it a column of this registry, or a field of one of its templates?"""
    return column in _list_template_fields(registry) or any(
        known_column.id == column for known_column in registry.columns
    )


@cache
def _list_template_fields(registry: Registry) -> frozenset[str]:
    profiles = [PROFILES[profile] for profile in registry.profiles]
    return _EXTRA_FIELDS.union(
        field.id for profile in profiles for field in (*profile.fields, *profile.elsewhere)
    )


def list_extra_columns(registry: Registry, entries: Iterable[Entry]) -> tuple[str, ...]:
    """The fields that entries have beyond the registry's columns, sorted."""
    known = _MEMBER_COLUMNS.union(column.id for column in registry.columns)
    return tuple(sorted({name for entry in entries for name in entry.fields} - known))


_Finding: TypeAlias = tuple[str, str]

#: IANA appends this to a name that is kept for the record
_OBSOLETE: Final = re.compile(r"\A(\S+)\s+\(OBSOLETE\)\Z", re.IGNORECASE)
#: the directory of the template files of each status
_FOLDERS: Final = {
    Status.PERMANENT: "perm",
    Status.PROVISIONAL: "prov",
    Status.HISTORICAL: "historic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One row as the file has it: cells by column id. `status` holds where the row names none."""

    line: int | None
    cells: Mapping[str, str]
    status: Status | None = None
    registered: str | None = None
    updated: str | None = None


@dataclass(slots=True, kw_only=True)
class SourceTable:
    """What a format's reader hands over. `findings` are the reader's own."""

    rows: Iterable[SourceRow]
    columns: tuple[str, ...]
    vintage: str | None = None
    covers: frozenset[Status] | None = None
    findings: list[Irregular] = field(default_factory=list)


def build_snapshot(table: SourceTable, registry: Registry, *, source: str) -> Snapshot:
    """The snapshot that a table makes: each row an entry, the second of one name set aside."""
    entries: dict[str, Entry] = {}
    irregular: list[Irregular] = []
    last = ""
    for count, row in enumerate(table.rows, 1):
        require_row_limit(count)
        shown = row.cells.get("name", "")
        if not shown.strip():
            irregular.append(Irregular(name="", code="no-name", reason="a row without a name", line=row.line))
            continue
        if "\0" in shown:
            reason = "a NUL in the name, which no database holds; this row is set aside"
            irregular.append(
                Irregular(name=shown.replace("\0", "?"), code="bad-name", reason=reason, line=row.line)
            )
            continue
        entry, findings = _build_entry(row, registry)
        if entry.name in entries:
            reason = f"{entry.name} is there already; this row is set aside"
            irregular.append(
                Irregular(name=shown, code="duplicate", reason=reason, line=row.line, entry=entry)
            )
            continue
        entries[entry.name] = entry
        if entry.name < last:
            findings.append(("unsorted", f"stands after {last}"))
        last = entry.name
        irregular += (
            Irregular(name=shown, code=code, reason=reason, line=row.line) for code, reason in findings
        )
    return Snapshot(
        registry=registry.id,
        entries=tuple(entries.values()),
        # the reader's own findings are complete only now: rows may be read as they are asked for
        irregular=(*table.findings, *irregular),
        source=source,
        vintage=table.vintage,
        columns=table.columns,
        covers=table.covers,
    )


def _build_entry(row: SourceRow, registry: Registry) -> tuple[Entry, list[_Finding]]:
    cells = {name: require_field_limit(value, name, row.line) for name, value in row.cells.items() if value}
    findings = [
        ("untrimmed", f"{name} has white space around it")
        for name, value in cells.items()
        if value != value.strip()
    ]
    shown = cells.pop("name")
    obsolete = _OBSOLETE.match(shown)
    key = registry.normalize_name(obsolete[1] if obsolete else shown)
    word = cells.pop("status", "")
    # ours to set, not a file's
    cells.pop(PUBLISHED_STATUS, None)
    status = parse_status(word) if word else row.status
    if status not in registry.statuses:
        findings.append(_make_status_finding(word))
        if word:
            cells[PUBLISHED_STATUS] = word
        status = Status.PENDING_REVIEW
    registered, updated = (
        _parse_day(row.registered, "date", findings),
        _parse_day(row.updated, "updated", findings),
    )
    expires = None
    if any(column.id == "expires" for column in registry.columns):
        expires = _parse_day(cells.get("expires"), "expires", findings)
    if expires is not None:
        del cells["expires"]
    entry = Entry(
        registry=registry.id,
        name=key,
        spelling=None if shown == key else shown,
        status=status,
        fields=MappingProxyType(cells),
        expires=expires,
        registered=_to_midnight(registered),
        updated=_to_midnight(updated),
    )
    findings += _iter_findings(entry, registry, obsolete=obsolete is not None)
    return entry, findings


def _make_status_finding(word: str) -> _Finding:
    if not word:
        return "no-status", "no status; filed as pending review"
    return "unknown-status", f"no status of this registry is called {word[:40]!r}; filed as pending review"


def _parse_day(text: str | None, what: str, findings: list[_Finding]) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        findings.append(("bad-date", f"{what} is not a date: {text[:40]!r}"))
        return None


def _to_midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def _iter_findings(entry: Entry, registry: Registry, *, obsolete: bool) -> Iterator[_Finding]:
    """What is odd about a row by itself."""
    if obsolete:
        yield "obsolete-in-name", f"the name carries a remark; filed as {entry.name}"
    if not registry.is_valid_name(entry.name):
        yield "name-not-allowed", f"{registry.name_clause}: {registry.name_rule}"
        return
    spelling = entry.spelling or entry.name
    if registry.fold_case and not obsolete and spelling != spelling.lower():
        yield "upper-case", f"scheme names are lower case (RFC 3986 3.1); filed as {entry.name}"
    if registry.id != "uri-schemes":
        return
    if not entry.name[-1].isalnum():
        yield "ends-in-punctuation", f"ends in {entry.name[-1]!r}"
    if "." in entry.name and not _is_tld(entry.name.partition(".")[0]):
        yield "not-a-reversed-domain", "has a '.' and is not a reversed domain name (RFC 7595 3.8)"
    yield from _iter_template_findings(entry)


def _iter_template_findings(entry: Entry) -> Iterator[_Finding]:
    template = entry.fields.get("template", "").strip()
    if not template or entry.status not in _FOLDERS:
        return
    folder, _, name = template.partition("/")
    if folder != _FOLDERS[entry.status]:
        yield "template-path", f"{entry.status.value}, and its template is filed under {folder[:40]}/"
    if name.lower() != entry.name:
        yield "template-name", f"its template is filed as {name[:40]!r}"


def _is_tld(label: str) -> bool:
    return _load_suffixes().publicsuffix(label) is not None


@cache
def _load_suffixes() -> PublicSuffixList:
    # a large table, and only dotted names ask for it
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)


_FILES: Final = {
    "uri-schemes": "uri_schemes.json",
    "llm-parameters": "llm_parameters.json",
    "ai-namespaces": "ai_namespaces.json",
}


def load_shipped_json(name: str) -> Any:
    """The JSON of a file of `onym.registry.data`."""
    return json.loads(pkgutil.get_data("onym.registry", f"data/{name}") or b"")


@cache
def load_builtin_snapshot(registry: str) -> Snapshot:
    """The shipped snapshot of a registry, read once. Raises UnknownEntryError for one that there is not."""
    row = registry_of(registry)
    data = load_shipped_json(_FILES[row.id])
    columns = tuple(data["columns"])
    return Snapshot(
        registry=row.id,
        entries=tuple(_parse_builtin_entry(row.id, columns, cells) for cells in data["rows"]),
        irregular=tuple(
            Irregular(name=name, code=code, reason=reason, line=line)
            for name, code, reason, line in data.get("irregular", ())
        ),
        source=data["source"],
        vintage=data["vintage"],
        columns=columns,
    )


def _parse_builtin_entry(registry: str, columns: tuple[str, ...], row: list[str]) -> Entry:
    cells = {column: value for column, value in zip(columns, row, strict=True) if value}
    name, status = cells.pop("name"), Status(cells.pop("status"))
    key = registry_of(registry).normalize_name(name)
    return Entry(
        registry=registry,
        name=key,
        spelling=None if name == key else name,
        status=status,
        fields=MappingProxyType(cells),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RFC:
    """One RFC. `title` is "" where it is not known.

    `basis` says where it is from: "text" the RFC's own header, or the header of the one that replaced it,
    "cited" a registry's row cites it, "known" the editors' knowledge, which also names successors that no
    header at hand does.
    """

    number: int
    title: str = ""
    obsoleted_by: tuple[int, ...] = ()
    basis: str


@cache
def load_known_rfcs() -> Mapping[int, RFC]:
    """The shipped facts, by number."""
    return MappingProxyType(
        {
            number: RFC(number=number, title=title, obsoleted_by=tuple(by), basis=basis)
            for number, title, by, basis in load_shipped_json("rfcs.json")["rows"]
        }
    )
