"""Merging snapshots: the parts of 2015, CRI numbers (draft-ietf-core-href), and rows beside existing entries.

An import never changes who controls an entry: registrant, designees and IESG approval stay as the log
has them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from onym.errors import UsageError
from onym.registry.iana.snapshots import (
    Irregular,
    Snapshot,
    decode_utf8,
    get_cell,
    make_snapshot_error,
    require_row_limit,
    require_size_limit,
)
from onym.registry.records import Entry, Status
from onym.registry.registries import get_registry

_CONTROL_KEPT: Final = (
    "who has a say in it, and whether the IESG approved it, stay as they are here: an override sets them, "
    "with a reason"
)


def prepare_import(entry: Entry, before: Entry | None) -> tuple[Entry, str | None]:
    """The row as it is imported, and what is irregular about it, where something was left out.

    A name that is not there yet brings its registrant, designees and approval with it: an export of a
    registry of one's own is restored so. A row that waits for review is not there yet. Those of an entry that
    is there were decided, and its log says why.
    """
    if before is None or (before.status is Status.PENDING_REVIEW and entry.status is not before.status):
        return entry, None
    brings = (
        (entry.registrant is not None and entry.registrant != before.registrant)
        or not entry.designees <= before.designees
        or (entry.iesg_approved and not before.iesg_approved)
    )
    kept = replace(entry, registrant=None, designees=frozenset(), iesg_approved=False)
    return kept, _CONTROL_KEPT if brings else None


def fill_missing_columns(snapshot: Snapshot, there: Iterable[Entry]) -> tuple[Entry, ...]:
    """The file's rows, each beside the entry of its name that is there already.

    In columns that the file does not carry a row says what the entry has. So it does where the file shows
    what the entry shows: a column of notes has the notes of the procedure in it, and a date has no time.
    """
    lacks = frozenset(column.id for column in get_registry(snapshot.registry).columns).difference(
        snapshot.columns
    )
    before = {entry.name: entry for entry in there}
    return tuple(_merge_existing(entry, before.get(entry.name), lacks) for entry in snapshot.entries)


def _merge_existing(entry: Entry, old: Entry | None, lacks: frozenset[str]) -> Entry:
    if old is None:
        return entry
    alike = {
        name
        for name in (*entry.fields, *old.fields)
        if name in lacks or (name not in _MEMBERS and get_cell(entry, name) == get_cell(old, name))
    }
    if "notes" not in lacks and get_cell(entry, "notes") == get_cell(old, "notes"):
        alike.add("notes")
    fields = {name: value for name, value in entry.fields.items() if name not in alike or name in lacks}
    kept = {name: value for name, value in old.fields.items() if name in alike}
    return replace(
        entry,
        fields={**kept, **fields},
        expires=entry.expires or (old.expires if "expires" in lacks else None),
        registered=_keep_time_of_day(entry.registered, old.registered),
    )


def _keep_time_of_day(given: datetime | None, old: datetime | None) -> datetime | None:
    return old if given is not None and old is not None and given.date() == old.date() else given


#: columns that are members of an entry, and not among its fields
_MEMBERS: Final = frozenset({"name", "status"})


_CRI_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")
_CRI_LINE: Final = re.compile(r"\s*[0-9]+,[^,\r\n]+(?:\r?\n|\Z)")


def is_cri_number_list(text: str) -> bool:
    """Is it a list of `number,name` without headings?"""
    return _CRI_LINE.match(text) is not None


def combine_snapshots(*parts: Snapshot) -> Snapshot:
    """One snapshot of the parts of one registry. A name in two of them stays where it came first."""
    if not parts or len({snapshot.registry for snapshot in parts}) > 1:
        raise UsageError("only snapshots of the same registry can be combined", code="usage.bad-argument")
    entries: dict[str, Entry] = {}
    irregular: list[Irregular] = []
    for part in parts:
        irregular += part.irregular
        for entry in part.entries:
            if entry.name in entries:
                reason = f"{entry.name} is in another part already; this row is set aside"
                irregular.append(Irregular(name=entry.name, code="duplicate", reason=reason, entry=entry))
            else:
                entries[entry.name] = entry
    return Snapshot(
        registry=parts[0].registry,
        entries=tuple(sorted(entries.values(), key=lambda entry: entry.name)),
        irregular=tuple(irregular),
        source=", ".join(snapshot.source for snapshot in parts),
        vintage=parts[0].vintage,
        columns=tuple(dict.fromkeys(column for snapshot in parts for column in snapshot.columns)),
        covers=_merge_covered(parts),
    )


def _merge_covered(parts: tuple[Snapshot, ...]) -> frozenset[Status] | None:
    covers: frozenset[Status] = frozenset()
    for part in parts:
        if part.covers is None:
            return None
        covers |= part.covers
    return covers


def add_cri_numbers(snapshot: Snapshot, data: bytes) -> Snapshot:
    """The snapshot with the CRI scheme numbers of a file of `number,name` lines.

    A name that the registry has not, a number given twice and one that differs from the entry's own are
    reported; the entry's own stands. Raises SnapshotError for a file of another kind.
    """
    irregular = list(snapshot.irregular)
    entries = {entry.name: entry for entry in snapshot.entries}
    given: dict[str, str] = {}
    for line, number, shown in _iter_cri_numbers(data):
        name = shown.lower().removesuffix("(obsolete)").rstrip()
        reason = _set_cri_number(entries, given, name, number)
        if reason is not None:
            irregular.append(Irregular(name=shown, code="cri-number", reason=reason, line=line))
    columns = tuple(dict.fromkeys((*snapshot.columns, "cri_number")))
    return replace(snapshot, entries=tuple(entries.values()), irregular=tuple(irregular), columns=columns)


def _set_cri_number(entries: dict[str, Entry], given: dict[str, str], name: str, number: str) -> str | None:
    """Write the number into the entry; why not, where it cannot be."""
    holder = given.setdefault(number, name)
    if holder != name:
        return f"{number} is the number of {holder} already"
    entry = entries.get(name)
    if entry is None:
        return f"{number} is for a scheme that is not registered"
    own = entry.fields.get("cri_number")
    if own is not None and own != number:
        return f"{number}, and the entry has {own}"
    entries[name] = replace(entry, fields=MappingProxyType({**entry.fields, "cri_number": number}))
    return None


def _iter_cri_numbers(data: bytes) -> Iterator[tuple[int, str, str]]:
    require_size_limit(data)
    reader = csv.reader(io.StringIO(decode_utf8(data), newline=""), strict=True)
    try:
        for count, cells in enumerate(reader):
            require_row_limit(count)
            if not cells:
                continue
            if len(cells) != 2 or not _CRI_NUMBER.fullmatch(cells[0]):
                raise make_snapshot_error(
                    "no line of number,name", "not-numbers", line=reader.line_num, hint="for instance: 2,http"
                )
            yield reader.line_num, cells[0], cells[1]
    except csv.Error as error:
        raise make_snapshot_error(f"not CSV: {error}", "bad-csv", line=reader.line_num) from error
