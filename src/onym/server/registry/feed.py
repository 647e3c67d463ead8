"""The Atom feed of a registry's changes (RFC 4287), newest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.responses import Response

from onym.errors import RefusalError
from onym.registry.engine import Book
from onym.registry.records import Entry, LogRecord
from onym.server.registry import urls
from onym.server.registry.desk import find_registry, now, store
from onym.server.registry.render import accepts
from onym.server.security import entity_tag, is_fresh
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.iana import Change, ChangeKind

__all__ = ["changes_of", "feed"]

#: names in one feed, and log records looked at for them
_MOST: Final = 50
_WINDOW: Final = 500
_MEDIA: Final = "application/atom+xml"


async def feed(request: Request) -> Response:
    """GET: the last changes of a registry."""
    from onym.registry.iana import atom  # late: writers are needed by few requests

    row = find_registry(request)
    accepts(request, (_MEDIA, "application/xml", "text/xml", "text/html"))
    head = await store(request).head()
    recent = await store(request).log(after=max(0, head.number - _WINDOW), limit=_WINDOW)
    found: list[Change] = []
    for name in await _names(request, row.id, reversed(recent)):
        found += changes_of(await store(request).history(row.id, name), row.id, name)
    found.sort(key=lambda each: (each.at is not None, each.at), reverse=True)
    origin = services(request).settings.base_url
    body = atom(
        found[:_MOST],
        registry=row.id,
        updated=found[0].at if found and found[0].at else head.at or now(request),
        tagger=f"{urlsplit(origin).hostname or 'localhost'},2026",
        link=lambda name: origin + urls.entry(row.id, name),
        home=origin + urls.entries(row.id),
        feed=origin + urls.feed(row.id),
    ).encode("utf-8")
    tag = entity_tag(body)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if is_fresh(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type=_MEDIA)


async def _names(request: Request, registry: str, records: Iterable[LogRecord]) -> list[str]:
    """The last names that something happened to, each once."""
    names: dict[str, None] = {}
    for record in records:
        event = record.event
        if event.registry != registry or len(names) >= _MOST:
            continue
        name = event.name
        if name is None and event.request is not None:
            about = await store(request).request(event.request)
            name = None if about is None else about.name
        if name is not None:
            names[name] = None
    return list(names)


def changes_of(records: Iterable[LogRecord], registry: str, name: str) -> list[Change]:
    """What happened to one entry, oldest first; events that left it as it was are no changes."""
    from onym.registry.iana import Change  # late, as above

    book, found = Book(), []
    before: Entry | None = None
    for record in records:
        try:
            book.apply(record.event, record.actor, record.at)
        except RefusalError:
            continue
        after = book.entries.get((registry, name))
        if after != before:
            found.append(
                Change(name=name, kind=_kind(before, after), before=before, after=after, at=record.at)
            )
        before = after
    return found


def _kind(before: Entry | None, after: Entry | None) -> ChangeKind:
    from onym.registry.iana import ChangeKind  # late, as above

    if before is None:
        return ChangeKind.ADDED
    if after is None:
        return ChangeKind.REMOVED
    return ChangeKind.STATUS if before.status is not after.status else ChangeKind.FIELDS
