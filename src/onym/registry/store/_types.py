"""What the store hands out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from onym.registry.records import Actor, Decision, Entry, Event, EventKind, LogRecord, Request, Role

__all__ = [
    "Applied",
    "Decide",
    "EntryChange",
    "Head",
    "ImportReport",
    "Irregularity",
    "OutboxNotice",
    "Page",
    "Verified",
]

_Item = TypeVar("_Item", covariant=True)


class Decide(Protocol):
    """The engine: `onym.registry.engine.decide`."""

    def __call__(
        self, event: Event, actor: Actor, at: datetime, *, request: Request | None, entry: Entry | None
    ) -> Decision:
        """What the event does. Raises RefusalError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of the log. An empty log has number 0, the digest of sixty-four zeros, and no time."""

    number: int
    digest: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An accepted event: its log record, and what the engine decided."""

    record: LogRecord
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """What one record changed of an entry: None before for a new one, None after for one that it removed."""

    #: the log record's
    number: int
    at: datetime
    event: EventKind
    name: str
    #: of the entry after it, or of the one that it removed
    version: int
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[_Item]):
    """Some items in order; `next` is the cursor of the page after, None at the end."""

    items: tuple[_Item, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Irregularity:
    """A row of an import that was not `taken`, or not whole, and why."""

    name: str
    reason: str
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did. `absent` are names of the registry that the source lacks: they stay as they are."""

    added: int
    changed: int
    same: int
    absent: tuple[str, ...] = ()
    irregular: tuple[Irregularity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxNotice:
    """A notice that waits to be sent, claimed by whoever holds this. `attempts` counts this one too."""

    id: int
    registry: str
    request: str | None
    #: an account id, or a role of the registry; the sender finds the addresses
    to: str | Role
    subject: str
    text: str
    attempts: int
    #: the log record that it tells of
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify` found sound: log records, entries and requests, and the head."""

    records: int
    entries: int
    requests: int
    head: Head
