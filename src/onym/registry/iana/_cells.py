"""Cells: what stands in which column of an entry, the same for every format that has rows and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from onym.registry.profiles import PROFILES
from onym.registry.records import Entry, Status
from onym.registry.registries import Registry

__all__ = [
    "PUBLISHED_STATUS",
    "cell",
    "column_id",
    "extra_columns",
    "folded",
    "heading",
    "is_known",
    "status_of",
    "status_word",
]

#: the field that keeps a status word which is none of ours, so that it is written as it was read
PUBLISHED_STATUS: Final = "published_status"

# columns that are the entry's own members, and so are never read from its fields
_OWN: Final = frozenset({"name", "status", PUBLISHED_STATUS})

#: fields that no template asks for: when a merged file saw a scheme first
_ALSO: Final = frozenset({"first_seen"})

#: kinds of notes that belong into the column (RFC 4395 3, 5.4 and 7; RFC 7595 7.2, 7.4 and 10)
_PUBLIC_NOTES: Final = frozenset({"separate-use", "security", "draft-expired"})

_STATUSES: Final = {each.value.replace("-", ""): each for each in Status}


def folded(text: str) -> str:
    """Letters and digits alone, in lower case: well-known, Well-Known and well_known are one word."""
    return re.sub("[^a-z0-9]", "", text.lower())


def status_of(word: str) -> Status | None:
    """The status that a word means, whatever its case and hyphens; None if it means none."""
    return _STATUSES.get(folded(word)) if len(word) <= 32 else None


def status_word(status: Status) -> str:
    """As IANA prints it: Permanent, Pending Review."""
    return status.value.replace("-", " ").title()


def cell(entry: Entry, column: str) -> str:
    """What the entry shows in that column; "" where it says nothing."""
    if column == "name":
        return entry.name if entry.spelling is None else entry.spelling
    if column == "status":
        return _published(entry) or status_word(entry.status)
    if column == "notes" and entry.notes:
        return _notes(entry)
    if column == "expires" and entry.expires is not None:
        return entry.expires.isoformat()
    return entry.fields.get(column, "")


def _notes(entry: Entry) -> str:
    """The column's text, and a line for each note that the procedure put on the entry for all to see.

    One that the text has already, from a file that was written so, is not said twice.
    """
    lines = list(filter(None, entry.fields.get("notes", "").split("\n")))
    for note in entry.notes:
        if note.kind in _PUBLIC_NOTES and note.text not in lines:
            lines.append(note.text)
    return "\n".join(lines)


def _published(entry: Entry) -> str:
    """A word that was kept because it is no status; one that is would belie the entry's own."""
    word = entry.fields.get(PUBLISHED_STATUS, "") if entry.status is Status.PENDING_REVIEW else ""
    return "" if status_of(word) else word


def heading(registry: Registry, column: str) -> str:
    """The column's heading in this registry; a field that is no column of it goes by its id."""
    return next((each.heading for each in registry.columns if each.id == column), column)


def column_id(registry: Registry, title: str) -> str:
    """The column that a heading or tag means; one that the registry does not know gets an id made of it."""
    wanted = folded(title)
    for each in registry.columns:
        if wanted in (folded(each.id), folded(each.heading)):
            return each.id
    return re.sub("[^a-z0-9]+", "_", title.strip().lower()).strip("_")


def is_known(registry: Registry, column: str) -> bool:
    """Is it a column of this registry, or a field of one of its templates?"""
    return column in _template_fields(registry) or any(each.id == column for each in registry.columns)


@cache
def _template_fields(registry: Registry) -> frozenset[str]:
    profiles = [PROFILES[each] for each in registry.profiles]
    return _ALSO.union(field.id for each in profiles for field in (*each.fields, *each.elsewhere))


def extra_columns(registry: Registry, entries: Iterable[Entry]) -> tuple[str, ...]:
    """The fields that entries have beyond the registry's columns, sorted."""
    known = _OWN.union(each.id for each in registry.columns)
    return tuple(sorted({name for entry in entries for name in entry.fields} - known))
