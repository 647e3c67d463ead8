"""What an import takes of a file's row: a file is not how somebody gets a say in what is registered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from onym.registry.iana._cells import cell
from onym.registry.iana._types import Snapshot
from onym.registry.records import Entry, Status
from onym.registry.registries import registry

__all__ = ["as_imported", "filled"]

_STAYS: Final = (
    "who has a say in it, and whether the IESG approved it, stay as they are here: an override sets them, "
    "with a reason"
)


def as_imported(entry: Entry, before: Entry | None) -> tuple[Entry, str | None]:
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
    return kept, _STAYS if brings else None


def filled(snapshot: Snapshot, there: Iterable[Entry]) -> tuple[Entry, ...]:
    """The file's rows, each beside the entry of its name that is there already.

    In columns that the file does not carry a row says what the entry has. So it does where the file shows
    what the entry shows: a column of notes has the notes of the procedure in it, and a date has no time.
    """
    lacks = frozenset(each.id for each in registry(snapshot.registry).columns).difference(snapshot.columns)
    before = {entry.name: entry for entry in there}
    return tuple(_beside(entry, before.get(entry.name), lacks) for entry in snapshot.entries)


def _beside(entry: Entry, old: Entry | None, lacks: frozenset[str]) -> Entry:
    if old is None:
        return entry
    alike = {
        name
        for name in (*entry.fields, *old.fields)
        if name in lacks or (name not in _MEMBERS and cell(entry, name) == cell(old, name))
    }
    if "notes" not in lacks and cell(entry, "notes") == cell(old, "notes"):
        alike.add("notes")
    fields = {name: value for name, value in entry.fields.items() if name not in alike or name in lacks}
    kept = {name: value for name, value in old.fields.items() if name in alike}
    return replace(
        entry,
        fields={**kept, **fields},
        expires=entry.expires or (old.expires if "expires" in lacks else None),
        registered=_same_day(entry.registered, old.registered),
    )


def _same_day(given: datetime | None, old: datetime | None) -> datetime | None:
    return old if given is not None and old is not None and given.date() == old.date() else given


#: columns that are members of an entry, and not among its fields
_MEMBERS: Final = frozenset({"name", "status"})
