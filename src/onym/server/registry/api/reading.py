"""What the JSON API gives to readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.errors import RegistryError, UnknownEntryError
from onym.registry.records import RequestState, Role, Status
from onym.registry.registries import REGISTRIES
from onym.registry.registries import registry as registry_of
from onym.server.registry import urls
from onym.server.registry.api.convert import entry_data, record_data, registry_data, request_data
from onym.server.registry.api.models import (
    MAX_NAME,
    ActionList,
    EntryList,
    Health,
    History,
    RegistryList,
    RequestList,
    SearchHits,
    VersionData,
    VersionList,
)
from onym.server.registry.api.reply import JSON, only, reply, reply_bytes
from onym.server.registry.build.versions import versions_of
from onym.server.registry.desk import (
    every_entry,
    find_entry,
    find_registry,
    find_request,
    open_to,
    store,
    whole_changes,
)
from onym.server.registry.fast import Kept, cache_of
from onym.server.registry.files import MEDIA, entry_file
from onym.server.registry.form import check_query, number
from onym.server.registry.privacy import hidden_ids, seen, withheld, without_hidden
from onym.server.registry.render import accepts, encode
from onym.server.registry.views.browse import status_filter
from onym.server.security import check_cursor, page_size, version_tag

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest
    from starlette.responses import Response

    from onym.registry.records import EventKind, LogRecord

__all__ = [
    "entry",
    "entry_actions",
    "entry_list",
    "entry_versions",
    "export",
    "health",
    "history",
    "log",
    "one_registry",
    "registries",
    "request",
    "request_actions",
    "request_history",
    "request_list",
    "search",
]

#: records in one part of a history
_RECORDS: Final = 200


def _linked(address: str | None) -> dict[str, str]:
    # RFC 8288
    return {} if address is None else {"link": f'<{address}>; rel="next"'}


async def registries(request: HTTPRequest) -> Response:
    """GET: all registries."""
    only(request)
    return reply(request, RegistryList(registries=tuple(map(registry_data, REGISTRIES.values()))))


async def one_registry(request: HTTPRequest) -> Response:
    """GET: one registry."""
    only(request)
    return reply(request, registry_data(find_registry(request)))


async def entry_list(request: HTTPRequest) -> Response:
    """GET: entries by name, filtered, in parts."""
    only(request, "q", "status", "after", "limit")
    row, query = find_registry(request), request.query_params
    status = status_filter(request, row)
    text = check_query(query.get("q", ""), "q")
    size = page_size(query.get("limit"))
    page = await store(request).entries(
        row.id, query=text, status=status, after=check_cursor(query.get("after")), limit=size
    )
    following = None
    if page.next is not None:
        following = urls.api(
            "registries", row.id, "entries", q=text, status=status, after=page.next, limit=query.get("limit")
        )
    found = EntryList(entries=tuple(map(entry_data, page.items)), next=following)
    return reply(request, found, headers=_linked(following))


#: characters of records from which on a part may have been cut short; well below what the store reads at once
_LONG: Final = 2_000_000
_ANY: Final = frozenset({"*/*", JSON})


async def entry(request: HTTPRequest) -> Response:
    """GET: one entry, from what is kept where it still holds."""
    if request.scope["query_string"]:
        only(request)
    if request.headers.get("accept", "*/*") not in _ANY:
        accepts(request, (JSON,))
    params = request.path_params
    key = (params["registry"], params["name"])

    async def make() -> Kept:
        found = await find_entry(request)
        return Kept(encode(entry_data(found)), version_tag(found.version, "json"))

    kept = await cache_of(request).get(key, make)
    return reply_bytes(request, kept.body, kept.tag)


async def history(request: HTTPRequest) -> Response:
    """GET: the events of a name, those of an entry that is gone too, in parts."""
    only(request, "after", "limit")
    row = find_registry(request)
    key = row.key(request.path_params["name"])
    after, size = _part(request)
    records = await store(request).history(row.id, key, after=after, limit=size)
    shown = await without_hidden(request, records)
    if not shown and not after:
        await find_entry(request)  # a name that never was is unknown
    return await _records(
        request, records, size, "registries", row.id, "entries", key, "history", shown=shown
    )


def _part(request: HTTPRequest) -> tuple[int, int]:
    """Beyond which record, and how many."""
    query = request.query_params
    return number(query.get("after"), "after") or 0, page_size(query.get("limit"), _RECORDS)


async def _records(
    request: HTTPRequest,
    records: tuple[LogRecord, ...],
    size: int,
    *path: str,
    shown: tuple[LogRecord, ...] | None = None,
) -> Response:
    """Records, and where those after them are. Those of drafts are withheld from whom they are not for."""
    if shown is None:
        hidden = await hidden_ids(request, records)
        shown = tuple(withheld(each) if each.event.request in hidden else each for each in records)
    following = None
    # long records come in smaller parts than were asked for
    if len(records) == size or sum(map(_weight, records)) > _LONG:
        following = urls.api(*path, after=records[-1].number, limit=request.query_params.get("limit"))
    found = History(records=tuple(map(record_data, shown)), next=following)
    return reply(request, found, headers=_linked(following))


def _weight(record: LogRecord) -> int:
    data = record.event.data
    fields = data.get("fields")
    inner = fields.values() if isinstance(fields, Mapping) else ()
    return sum(len(each) for each in (*data.values(), *inner) if isinstance(each, str))


async def entry_versions(request: HTTPRequest) -> Response:
    """GET: every version of an entry."""
    only(request)
    row = find_registry(request)
    key = row.key(request.path_params["name"])
    changes = await whole_changes(request, row.id, key)
    if not changes:
        await find_entry(request)
    found = versions_of(changes)
    versions = tuple(
        VersionData(
            version=number_,
            number=change.number,
            at=change.at,
            event=str(change.event),
            entry=entry_data(each),
        )
        for number_, (each, change) in sorted(found.items())
    )
    return reply(request, VersionList(versions=versions))


async def entry_actions(request: HTTPRequest) -> Response:
    """GET: what the caller may do about an entry now."""
    only(request)
    found = await find_entry(request)
    return _actions(request, found.version, open_to(request, None, found))


def _actions(request: HTTPRequest, version: int, kinds: tuple[EventKind, ...]) -> Response:
    body = ActionList(version=version, events=tuple(map(str, kinds)))
    return reply(request, body, headers={"cache-control": "private, no-store"})


async def export(request: HTTPRequest) -> Response:
    """GET: a registry as a file; csv-2015 holds one status."""
    only(request, "status")
    row = find_registry(request)
    form = request.path_params["format"]
    status = status_filter(request, row)
    if form == "csv-2015" and status is None:
        status = Status.PERMANENT
    if form in MEDIA:
        accepts(request, (MEDIA[form][0],))
    rows = [each async for each in every_entry(request, row.id) if status is None or each.status is status]
    return entry_file(request, rows, row.id, form, row.id, status)


async def search(request: HTTPRequest) -> Response:
    """GET: entries of one or all registries, best first."""
    only(request, "q", "registry", "limit")
    query = request.query_params
    text = check_query(query.get("q", ""), "q")
    chosen = query.get("registry")
    if chosen is not None:
        registry_of(chosen)
    size = page_size(query.get("limit"), 20)
    found = await store(request).search(chosen, text, size) if text else ()
    return reply(request, SearchHits(query=text, entries=tuple(map(entry_data, found))))


async def request_list(request: HTTPRequest) -> Response:
    """GET: requests, newest first."""
    only(request, "registry", "state", "holder", "name", "after", "limit")
    query = request.query_params
    state = _one_of(RequestState, query.get("state"), "state")
    holder = _one_of(Role, query.get("holder"), "holder")
    registry = query.get("registry")
    if registry is not None:
        registry_of(registry)
    name = query.get("name")
    if name is not None and not check_query(name, "name", MAX_NAME):
        raise RegistryError("this parameter is empty", code="http.bad-form", field="name")
    page = await store(request).requests(
        registry=registry,
        state=state,
        holder=holder,
        name=None if name is None else name.strip(),
        after=check_cursor(query.get("after")),
        limit=page_size(query.get("limit")),
    )
    following = None
    if page.next is not None:
        kept = {key: query.get(key) for key in ("registry", "state", "holder", "name", "limit")}
        following = urls.api("requests", **kept, after=page.next)
    found = RequestList(requests=tuple(map(request_data, seen(request, page.items))), next=following)
    return reply(request, found, headers=_linked(following))


def _one_of(kind: Any, said: str | None, field: str) -> Any:
    if said is None:
        return None
    try:
        return kind(said)
    except ValueError:
        raise UnknownEntryError(
            f"no such {field}",
            code=f"registry.unknown-{field}",
            field=field,
            hint=f"one of {', '.join(kind)}",
        ) from None


async def request(request: HTTPRequest) -> Response:
    """GET: one request."""
    only(request)
    found = await find_request(request)
    return reply(request, request_data(found), tag=version_tag(found.version, "json"))


async def request_history(request: HTTPRequest) -> Response:
    """GET: a request's events, in parts."""
    only(request, "after", "limit")
    found = await find_request(request)
    after, size = _part(request)
    records = await store(request).request_history(found.id, after=after, limit=size)
    return await _records(request, records, size, "requests", found.id, "history")


async def request_actions(request: HTTPRequest) -> Response:
    """GET: what the caller may do about a request now."""
    only(request)
    found = await find_request(request)
    about = await store(request).entry(found.registry, found.name)
    return _actions(request, found.version, open_to(request, found, about))


async def log(request: HTTPRequest) -> Response:
    """GET: the log, beyond a number; whoever follows it asks again from `next`."""
    only(request, "after", "limit")
    after, size = _part(request)
    records = await store(request).log(after=after, limit=size)
    return await _records(request, records, size, "log")


async def health(request: HTTPRequest) -> Response:
    """GET: does the service answer, and its store?"""
    only(request)
    head = await store(request).head()
    body = Health(status="ok", number=head.number, digest=head.digest)
    return reply(request, body, headers={"cache-control": "no-store"})
