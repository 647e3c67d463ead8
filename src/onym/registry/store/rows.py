"""Values and rows: what the store returns, and what each table stores of a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from unicodedata import normalize

from onym.errors import StoreError
from onym.registry.codec import Codable, canonicalize_json, from_data, to_data
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, LogRecord, Notice, Request, Role
from onym.registry.store.schema import find_wake_day


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
    """A notice that its sender has claimed. `attempts` includes the current one."""

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


_Value = TypeVar("_Value", bound=Codable)
#: characters of one field that are searched
MAX_TEXT: Final = 4000
#: characters of the records that are read together, beyond the first one
MOST_TEXT: Final = 8_000_000
_TEXT_FIELDS: Final = ("description", "applications", "reference", "references", "notes")


def decode_record(cls: type[_Value], record: str) -> _Value:
    """The value in a `record` column. Raises StoreError (registry.bad-record)."""
    try:
        data = json.loads(record)
    except (ValueError, RecursionError):
        raise StoreError(
            f"a {cls.__name__.lower()} in the database is not JSON",
            code="registry.bad-record",
            hint="Run: onym registry verify",
        ) from None
    return from_data(cls, data)


def make_log_row(record: LogRecord, name: str | None) -> dict[str, Any]:
    """`name`: of the entry that it is about."""
    return {
        "number": record.number,
        "at": record.at,
        "registry": record.event.registry,
        "name": name,
        "request": record.event.request,
        "kind": str(record.event.kind),
        "digest": record.digest,
        "record": canonicalize_json(to_data(record)),
    }


def make_entry_row(entry: Entry) -> dict[str, Any]:
    """A row of `entries`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "version": entry.version,
        "wake": find_wake_day(entry.expires, None if entry.draft is None else entry.draft.expires),
        "record": canonicalize_json(to_data(entry)),
    }


def make_text_row(entry: Entry) -> dict[str, Any]:
    """A row of `entry_text`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "folded": fold_text(entry.name),
        "text": fold_text(_join_text_fields(entry.fields)),
    }


def make_request_row(request: Request, opened: int) -> dict[str, Any]:
    """A row of `requests`; `opened` is the number of the log record that began it."""
    return {
        "id": request.id,
        "opened": opened,
        "registry": request.registry,
        "name": request.name,
        "state": str(request.state),
        "holder": None if request.holder is None else str(request.holder),
        "registrant": request.registrant,
        "version": request.version,
        "record": canonicalize_json(to_data(request)),
    }


def make_notice_row(notice: Notice, record: LogRecord) -> dict[str, Any]:
    """A row of `outbox`, to be sent at once."""
    return {
        "number": record.number,
        "registry": record.event.registry,
        "request": record.event.request,
        "recipient": str(notice.to),
        "is_role": isinstance(notice.to, Role),
        "subject": notice.subject.replace("\0", " "),
        "text": notice.text.replace("\0", " "),
        "ready": record.at,
        "attempts": 0,
    }


def fold_text(text: str) -> str:
    """The text as it is compared: in NFC, without case, cut at `MAX_TEXT`. PostgreSQL holds no NUL."""
    # folding can take letters apart again, so it is composed after it too (UAX #15, 3.13 of Unicode)
    folded = normalize("NFC", normalize("NFC", text[:MAX_TEXT]).casefold())
    return folded.replace("\0", " ")


def _join_text_fields(fields: Mapping[str, str]) -> str:
    return "\n".join(fields[name] for name in _TEXT_FIELDS if fields.get(name))
