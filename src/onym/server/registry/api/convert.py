"""Records as the API gives them."""

from __future__ import annotations

from typing import Any

from onym.registry.records import Entry, LogRecord, Note, Request
from onym.registry.registries import Registry
from onym.server.registry import urls
from onym.server.registry.api.models import (
    ColumnData,
    DraftData,
    EntryData,
    HistoryRecord,
    NoteData,
    RegistryData,
    RequestData,
)

__all__ = ["entry_data", "record_data", "registry_data", "request_data"]


def registry_data(row: Registry) -> RegistryData:
    """A registry, as the API gives it."""
    return RegistryData(
        id=row.id,
        title=row.title,
        noun=row.noun,
        reference=row.reference,
        profiles=row.profiles,
        statuses=tuple(map(str, row.statuses)),
        columns=tuple(ColumnData(id=each.id, heading=each.heading) for each in row.columns),
        entries=urls.api("registries", row.id, "entries"),
        page=urls.entries(row.id),
        feed=urls.feed(row.id),
    )


def _note(note: Note) -> NoteData:
    return NoteData(kind=note.kind, text=note.text, at=note.at, by=note.by)


def _draft(about: Entry | Request) -> DraftData | None:
    return None if about.draft is None else DraftData(name=about.draft.name, expires=about.draft.expires)


def entry_data(entry: Entry) -> EntryData:
    """An entry, as the API gives it."""
    return EntryData(
        registry=entry.registry,
        name=entry.name,
        spelling=entry.spelling,
        status=str(entry.status),
        fields=dict(entry.fields),
        notes=tuple(map(_note, entry.notes)),
        registrant=entry.registrant,
        designees=tuple(sorted(entry.designees)),
        iesg_approved=entry.iesg_approved,
        draft=_draft(entry),
        pending=entry.pending,
        expires=entry.expires,
        registered=entry.registered,
        updated=entry.updated,
        version=entry.version,
        page=urls.entry(entry.registry, entry.name),
    )


def request_data(about: Request) -> RequestData:
    """A request, as the API gives it."""
    return RequestData(
        id=about.id,
        registry=about.registry,
        profile=about.profile,
        kind=str(about.kind),
        name=about.name,
        status=str(about.status),
        state=str(about.state),
        registrant=about.registrant,
        on_behalf_of=about.on_behalf_of,
        fields=dict(about.fields),
        template=about.template,
        opened=about.opened,
        since=about.since,
        holder=None if about.holder is None else str(about.holder),
        due=about.due,
        announced=about.announced,
        archive=about.archive,
        timed_out=about.timed_out,
        draft=_draft(about),
        outcome=about.outcome,
        reason=about.reason,
        version=about.version,
        page=urls.request(about.id),
    )


def record_data(record: LogRecord) -> HistoryRecord:
    """A log record, as the API gives it."""
    event = record.event
    return HistoryRecord(
        number=record.number,
        at=record.at,
        actor=record.actor.id,
        roles=tuple(sorted(map(str, record.actor.roles))),
        event=str(event.kind),
        registry=event.registry,
        request=event.request,
        name=event.name,
        data=_jsonable(event.data),
        rule=record.rule,
        clause=record.clause,
        previous=record.previous,
        digest=record.digest,
    )


def _jsonable(value: Any) -> Any:
    if hasattr(value, "items"):
        return {str(key): _jsonable(item) for key, item in value.items()}
    return [_jsonable(each) for each in value] if isinstance(value, list | tuple) else value
