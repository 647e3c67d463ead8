"""What an import takes of a file's row: a file is not how somebody gets a say in what is registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from onym.registry.records import Entry

__all__ = ["as_imported"]

_STAYS: Final = (
    "who has a say in it, and whether the IESG approved it, stay as they are here: an override sets them, "
    "with a reason"
)


def as_imported(entry: Entry, before: Entry | None) -> tuple[Entry, str | None]:
    """The row as it is imported, and what is irregular about it, where something was left out.

    A name that is not there yet brings its registrant, designees and approval with it: an export of a
    registry of one's own is restored so. Those of an entry that is there were decided, and its log says why.
    """
    if before is None:
        return entry, None
    brings = (
        (entry.registrant is not None and entry.registrant != before.registrant)
        or not entry.designees <= before.designees
        or (entry.iesg_approved and not before.iesg_approved)
    )
    kept = replace(entry, registrant=None, designees=frozenset(), iesg_approved=False)
    return kept, _STAYS if brings else None
