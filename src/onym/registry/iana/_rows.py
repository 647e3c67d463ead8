"""Rows to entries: every format ends here, so that every format reports the same irregularities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from onym.registry.iana._cells import PUBLISHED_STATUS, status_of
from onym.registry.iana._faults import check_rows, field_fits
from onym.registry.iana._types import Irregular, Snapshot
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

__all__ = ["Row", "Table", "assemble"]

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
class Row:
    """One row as the file has it: cells by column id. `status` holds where the row names none."""

    line: int | None
    cells: Mapping[str, str]
    status: Status | None = None
    registered: str | None = None
    updated: str | None = None


@dataclass(slots=True, kw_only=True)
class Table:
    """What a format's reader hands over. `findings` are the reader's own."""

    rows: Iterable[Row]
    columns: tuple[str, ...]
    vintage: str | None = None
    covers: frozenset[Status] | None = None
    findings: list[Irregular] = field(default_factory=list)


def assemble(table: Table, registry: Registry, *, source: str) -> Snapshot:
    """The snapshot that a table makes: each row an entry, the second of one name set aside."""
    entries: dict[str, Entry] = {}
    irregular: list[Irregular] = []
    last = ""
    for count, row in enumerate(table.rows, 1):
        check_rows(count)
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
        entry, findings = _entry(row, registry)
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


def _entry(row: Row, registry: Registry) -> tuple[Entry, list[_Finding]]:
    cells = {name: field_fits(value, name, row.line) for name, value in row.cells.items() if value}
    findings = [
        ("untrimmed", f"{name} has white space around it")
        for name, value in cells.items()
        if value != value.strip()
    ]
    shown = cells.pop("name")
    obsolete = _OBSOLETE.match(shown)
    key = registry.key(obsolete[1] if obsolete else shown)
    word = cells.pop("status", "")
    # ours to set, not a file's
    cells.pop(PUBLISHED_STATUS, None)
    status = status_of(word) if word else row.status
    if status not in registry.statuses:
        findings.append(_no_status(word))
        if word:
            cells[PUBLISHED_STATUS] = word
        status = Status.PENDING_REVIEW
    registered, updated = _day(row.registered, "date", findings), _day(row.updated, "updated", findings)
    expires = None
    if any(each.id == "expires" for each in registry.columns):
        expires = _day(cells.get("expires"), "expires", findings)
    if expires is not None:
        del cells["expires"]
    entry = Entry(
        registry=registry.id,
        name=key,
        spelling=None if shown == key else shown,
        status=status,
        fields=MappingProxyType(cells),
        expires=expires,
        registered=_midnight(registered),
        updated=_midnight(updated),
    )
    findings += _judge(entry, registry, obsolete=obsolete is not None)
    return entry, findings


def _no_status(word: str) -> _Finding:
    if not word:
        return "no-status", "no status; filed as pending review"
    return "unknown-status", f"no status of this registry is called {word[:40]!r}; filed as pending review"


def _day(text: str | None, what: str, findings: list[_Finding]) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        findings.append(("bad-date", f"{what} is no date: {text[:40]!r}"))
        return None


def _midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def _judge(entry: Entry, registry: Registry, *, obsolete: bool) -> Iterator[_Finding]:
    """What is odd about a row by itself."""
    if obsolete:
        yield "obsolete-in-name", f"the name carries a remark; filed as {entry.name}"
    if not registry.allows(entry.name):
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
        yield "not-a-reversed-domain", "has a '.' and is no reversed domain name (RFC 7595 3.8)"
    yield from _judge_template(entry)


def _judge_template(entry: Entry) -> Iterator[_Finding]:
    template = entry.fields.get("template", "").strip()
    if not template or entry.status not in _FOLDERS:
        return
    folder, _, name = template.partition("/")
    if folder != _FOLDERS[entry.status]:
        yield "template-path", f"{entry.status.value}, and its template is filed under {folder[:40]}/"
    if name.lower() != entry.name:
        yield "template-name", f"its template is filed as {name[:40]!r}"


def _is_tld(label: str) -> bool:
    return _suffixes().publicsuffix(label) is not None


@cache
def _suffixes() -> PublicSuffixList:
    # a large table, and only dotted names ask for it
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)
