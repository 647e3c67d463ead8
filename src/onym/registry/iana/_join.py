"""Files that belong together: the parts of 2015, and the CRI numbers of draft-ietf-core-href."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from onym.errors import UsageError
from onym.registry.iana._faults import bad, check_rows, check_size, decoded
from onym.registry.iana._types import Irregular, Snapshot
from onym.registry.records import Entry, Status

__all__ = ["combine", "looks_like_numbers", "with_numbers"]

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")
_LINE: Final = re.compile(r"\s*[0-9]+,[^,\r\n]+(?:\r?\n|\Z)")


def looks_like_numbers(text: str) -> bool:
    """Is it a list of `number,name` without headings?"""
    return _LINE.match(text) is not None


def combine(*parts: Snapshot) -> Snapshot:
    """One snapshot of the parts of one registry. A name in two of them stays where it came first."""
    if not parts or len({each.registry for each in parts}) > 1:
        raise UsageError("parts of one registry are combined", code="usage.bad-argument")
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
        entries=tuple(sorted(entries.values(), key=lambda each: each.name)),
        irregular=tuple(irregular),
        source=", ".join(each.source for each in parts),
        vintage=parts[0].vintage,
        columns=tuple(dict.fromkeys(column for each in parts for column in each.columns)),
        covers=_covered(parts),
    )


def _covered(parts: tuple[Snapshot, ...]) -> frozenset[Status] | None:
    covers: frozenset[Status] = frozenset()
    for part in parts:
        if part.covers is None:
            return None
        covers |= part.covers
    return covers


def with_numbers(snapshot: Snapshot, data: bytes) -> Snapshot:
    """The snapshot with the CRI scheme numbers of a file of `number,name` lines.

    A name that the registry has not, a number given twice and one that differs from the entry's own are
    reported; the entry's own stands. Raises SnapshotError for a file of another kind.
    """
    irregular = list(snapshot.irregular)
    entries = {each.name: each for each in snapshot.entries}
    given: dict[str, str] = {}
    for line, number, shown in _numbers(data):
        name = shown.lower().removesuffix("(obsolete)").rstrip()
        reason = _apply(entries, given, name, number)
        if reason is not None:
            irregular.append(Irregular(name=shown, code="cri-number", reason=reason, line=line))
    columns = tuple(dict.fromkeys((*snapshot.columns, "cri_number")))
    return replace(snapshot, entries=tuple(entries.values()), irregular=tuple(irregular), columns=columns)


def _apply(entries: dict[str, Entry], given: dict[str, str], name: str, number: str) -> str | None:
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


def _numbers(data: bytes) -> Iterator[tuple[int, str, str]]:
    check_size(data)
    reader = csv.reader(io.StringIO(decoded(data), newline=""), strict=True)
    try:
        for count, cells in enumerate(reader):
            check_rows(count)
            if not cells:
                continue
            if len(cells) != 2 or not _NUMBER.fullmatch(cells[0]):
                raise bad(
                    "no line of number,name", "not-numbers", line=reader.line_num, hint="for instance: 2,http"
                )
            yield reader.line_num, cells[0], cells[1]
    except csv.Error as error:
        raise bad(f"not CSV: {error}", "bad-csv", line=reader.line_num) from error
