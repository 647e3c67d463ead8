"""The Atom feed of a registry's changes (RFC 4287), newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.responses import Response

from onym.server.registry import urls
from onym.server.registry.desk import find_registry, now, store
from onym.server.registry.render import accepts
from onym.server.security import entity_tag, is_fresh
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["feed"]

#: changes in one feed
_MOST: Final = 50
_MEDIA: Final = "application/atom+xml"


async def feed(request: Request) -> Response:
    """GET: the last changes of a registry that its columns show."""
    from onym.registry.iana import atom, logged  # late: writers are needed by few requests

    row = find_registry(request)
    accepts(request, (_MEDIA, "application/xml", "text/xml", "text/html"))
    last = await store(request).changes(row.id, limit=_MOST)
    origin = services(request).settings.base_url
    body = atom(
        filter(None, (logged(each.before, each.after, at=each.at) for each in last)),
        registry=row.id,
        updated=last[0].at if last else (await store(request).head()).at or now(request),
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
