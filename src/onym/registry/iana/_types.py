"""What an import gives, and what changed between two of them; and the caps that every format shares."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from onym.registry.records import Entry, EventKind, Status

__all__ = [
    "MAX_BYTES",
    "MAX_COLUMNS",
    "MAX_DEPTH",
    "MAX_FIELD",
    "MAX_ROWS",
    "Change",
    "ChangeKind",
    "Irregular",
    "Snapshot",
]

#: octets in one file; IANA's largest of this kind has 60,000
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
    """A registry as some file had it. `entries` stand in the file's order.

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
        return next((each for each in self.entries if each.name == name), None)


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
