"""Values to rows and back: what each table keeps of a record, an entry and a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from unicodedata import normalize

from onym.errors import StoreError
from onym.registry.chain import canonical
from onym.registry.codec import Codable, from_data, to_data
from onym.registry.records import Entry, LogRecord, Notice, Request, Role
from onym.registry.store._tables import wake_day

__all__ = [
    "MOST_TEXT",
    "entry_row",
    "fold",
    "log_row",
    "notice_row",
    "read_value",
    "request_row",
    "storable",
    "text_row",
]

_Value = TypeVar("_Value", bound=Codable)
#: characters of one field that are searched
MAX_TEXT: Final = 4000
#: characters of the records that are read together, beyond the first one
MOST_TEXT: Final = 8_000_000
_TEXT_FIELDS: Final = ("description", "applications", "reference", "references", "notes")


def read_value(cls: type[_Value], record: str) -> _Value:
    """The value in a `record` column. Raises StoreError (registry.bad-record)."""
    try:
        data = json.loads(record)
    except (ValueError, RecursionError):
        raise StoreError(
            f"a {cls.__name__.lower()} in the database is not JSON",
            code="registry.bad-record",
            hint="run: onym registry verify",
        ) from None
    return from_data(cls, data)


def log_row(record: LogRecord, name: str | None) -> dict[str, Any]:
    """`name`: of the entry that it is about."""
    return {
        "number": record.number,
        "at": record.at,
        "registry": record.event.registry,
        "name": name,
        "request": record.event.request,
        "kind": str(record.event.kind),
        "digest": record.digest,
        "record": canonical(to_data(record)),
    }


def entry_row(entry: Entry) -> dict[str, Any]:
    """A row of `entries`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "version": entry.version,
        "wake": wake_day(entry.expires, None if entry.draft is None else entry.draft.expires),
        "record": canonical(to_data(entry)),
    }


def text_row(entry: Entry) -> dict[str, Any]:
    """A row of `entry_text`."""
    return {
        "registry": entry.registry,
        "name": entry.name,
        "status": str(entry.status),
        "folded": fold(entry.name),
        "text": fold(_text(entry.fields)),
    }


def request_row(request: Request, opened: int) -> dict[str, Any]:
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
        "record": canonical(to_data(request)),
    }


def notice_row(notice: Notice, record: LogRecord) -> dict[str, Any]:
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


def fold(text: str) -> str:
    """The text as it is compared: in NFC, without case, cut at `MAX_TEXT`. PostgreSQL holds no NUL."""
    # folding can take letters apart again, so it is composed after it too (UAX #15, 3.13 of Unicode)
    folded = normalize("NFC", normalize("NFC", text[:MAX_TEXT]).casefold())
    return folded.replace("\0", " ")


def storable(text: str) -> bool:
    """May it be asked for in any database? PostgreSQL has no NUL, and UTF-8 no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _text(fields: Mapping[str, str]) -> str:
    return "\n".join(fields[each] for each in _TEXT_FIELDS if fields.get(each))
