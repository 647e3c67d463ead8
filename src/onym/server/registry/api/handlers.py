"""Every operation of the JSON API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from onym.errors import UnknownEntryError
from onym.registry.records import EventKind, RequestState, Role, Status
from onym.registry.registries import REGISTRIES
from onym.registry.registries import registry as registry_of
from onym.server.registry import urls
from onym.server.registry.api.models import (
    ActionList,
    CheckBody,
    CheckReport,
    EntryList,
    EventBody,
    FindingData,
    Health,
    History,
    OpenBody,
    RegistryList,
    RequestList,
    SearchHits,
    VersionData,
    VersionList,
    entry_data,
    record_data,
    registry_data,
    request_data,
)
from onym.server.registry.api.reply import JSON, decoded, only, reply, reply_bytes
from onym.server.registry.build.versions import versions_of
from onym.server.registry.checking import Given, check_given, read_given
from onym.server.registry.desk import (
    act,
    every_entry,
    find_entry,
    find_registry,
    find_request,
    open_to,
    store,
)
from onym.server.registry.fast import Kept, cache_of
from onym.server.registry.files import MEDIA, entry_file
from onym.server.registry.form import check_query, number
from onym.server.registry.render import accepts, encode
from onym.server.registry.views.browse import status_filter
from onym.server.registry.views.submit import data_of
from onym.server.security import check_cursor, check_match, current, page_size, require, version_tag

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.store import Applied

__all__ = [
    "check",
    "entry",
    "entry_actions",
    "entry_event",
    "entry_list",
    "entry_versions",
    "export",
    "health",
    "history",
    "log",
    "one_registry",
    "open_request",
    "registries",
    "request",
    "request_actions",
    "request_event",
    "request_history",
    "request_list",
    "search",
]

_MOST_RECORDS: Final = 1_000
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


_ANY: Final = frozenset({"*/*", JSON})


async def _history(request: HTTPRequest) -> tuple[Any, ...]:
    row = find_registry(request)
    key = row.key(request.path_params["name"])
    records = await store(request).history(row.id, key)
    if not records:
        await find_entry(request)
    return records


async def history(request: HTTPRequest) -> Response:
    """GET: the events of a name, those of an entry that is gone too."""
    only(request)
    records = await _history(request)
    return reply(request, History(records=tuple(map(record_data, records)), next=None))


async def entry_versions(request: HTTPRequest) -> Response:
    """GET: every version of an entry."""
    only(request)
    row, records = find_registry(request), await _history(request)
    found = versions_of(records, row.id, row.key(request.path_params["name"]))
    versions = tuple(
        VersionData(
            version=number_,
            number=record.number,
            at=record.at,
            event=str(record.event.kind),
            entry=entry_data(each),
        )
        for number_, (each, record) in sorted(found.items())
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


async def entry_event(request: HTTPRequest) -> Response:
    """POST: a change of an entry; If-Match names its version."""
    only(request)
    require(current(request))
    found = await find_entry(request)
    body = await decoded(request, EventBody)
    expected = check_match(request, found.version)
    applied = await act(
        request, body.event, found.registry, name=found.name, data=body.data, expected=expected
    )
    return _applied(request, applied)


def _applied(request: HTTPRequest, applied: Applied) -> Response:
    """The log record, and where what it changed is found."""
    decision = applied.decision
    headers: dict[str, str] = {}
    changed: Any = decision.request or decision.entry
    if changed is not None:
        headers["etag"] = version_tag(changed.version, "json")
    if decision.request is not None:
        headers["content-location"] = urls.api("requests", decision.request.id)
    return reply(request, record_data(applied.record), headers=headers)


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
    found = await store(request).search(chosen, text, page_size(query.get("limit"), 20)) if text else ()
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
    page = await store(request).requests(
        registry=registry,
        state=state,
        holder=holder,
        name=None if name is None else check_query(name, "name"),
        after=check_cursor(query.get("after")),
        limit=page_size(query.get("limit")),
    )
    following = None
    if page.next is not None:
        kept = {key: query.get(key) for key in ("registry", "state", "holder", "name", "limit")}
        following = urls.api("requests", **kept, after=page.next)
    found = RequestList(requests=tuple(map(request_data, page.items)), next=following)
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


async def open_request(request: HTTPRequest) -> Response:
    """POST: open a draft request."""
    only(request)
    require(current(request))
    body = await decoded(request, OpenBody)
    row = registry_of(body.registry)
    given = Given(
        registry=row,
        text=body.template,
        fields={**body.fields, **({"name": body.name} if body.name else {})},
        profile=body.profile or "",
        status=body.status or "",
        update=body.kind != "new",
    )
    submission = await asyncio.to_thread(read_given, given)
    data = data_of(submission) | {"kind": str(body.kind), "profile": body.profile or submission.profile.id}
    if body.status is None and body.kind != "new":
        del data["status"]  # the entry's own
    elif body.status is not None:
        data["status"] = body.status
    if body.on_behalf_of:
        data["on_behalf_of"] = body.on_behalf_of
    applied = await act(request, EventKind.OPEN, row.id, name=body.name or submission.name, data=data)
    opened = applied.decision.request
    assert opened is not None  # noqa: S101 - OPEN gives one
    headers = {"location": urls.api("requests", opened.id)}
    tag = version_tag(opened.version, "json")
    return reply(request, request_data(opened), status=201, tag=tag, headers=headers)


async def request(request: HTTPRequest) -> Response:
    """GET: one request."""
    only(request)
    found = await find_request(request)
    return reply(request, request_data(found), tag=version_tag(found.version, "json"))


async def request_history(request: HTTPRequest) -> Response:
    """GET: a request's events."""
    only(request)
    found = await find_request(request)
    records = await store(request).request_history(found.id)
    return reply(request, History(records=tuple(map(record_data, records)), next=None))


async def request_actions(request: HTTPRequest) -> Response:
    """GET: what the caller may do about a request now."""
    only(request)
    found = await find_request(request)
    about = await store(request).entry(found.registry, found.name)
    return _actions(request, found.version, open_to(request, found, about))


async def request_event(request: HTTPRequest) -> Response:
    """POST: a step of a request; If-Match names its version."""
    only(request)
    require(current(request))
    found = await find_request(request)
    body = await decoded(request, EventBody)
    expected = check_match(request, found.version)
    applied = await act(
        request,
        body.event,
        found.registry,
        about=found.id,
        name=found.name,
        data=body.data,
        expected=expected,
    )
    return _applied(request, applied)


async def check(request: HTTPRequest) -> Response:
    """POST: check a template, draft or RFC text. Nothing is saved."""
    only(request)
    body = await decoded(request, CheckBody)
    row = registry_of(body.registry)
    if body.profile is not None and body.profile not in row.profiles:
        raise UnknownEntryError(
            "no such profile in this registry", code="registry.unknown-profile", field="profile",
            hint=f"one of {', '.join(row.profiles)}",
        )  # fmt: skip
    given = Given(
        registry=row,
        text=body.template,
        fields=body.fields,
        profile=body.profile or "",
        status=body.status or "",
    )
    _, report = await check_given(request, given)
    findings = tuple(
        FindingData(
            check=each.check, code=each.code, level=str(each.level), message=each.message, clause=each.clause,
            field=each.field, line=each.line, column=each.column, witness=each.witness, fix=each.fix,
        )
        for each in report.findings
    )  # fmt: skip
    found = CheckReport(
        ok=report.ok, profile=report.profile, scheme=report.scheme, findings=findings, ran=report.ran
    )
    return reply(request, found, headers={"cache-control": "no-store"})


async def log(request: HTTPRequest) -> Response:
    """GET: the log, beyond a number; whoever follows it asks again from `next`."""
    only(request, "after", "limit")
    query = request.query_params
    after = number(query.get("after"), "after") or 0
    size = page_size(query.get("limit"), _RECORDS)
    records = await store(request).log(after=after, limit=size)
    following = None
    if len(records) == size:
        following = urls.api("log", after=records[-1].number, limit=query.get("limit"))
    found = History(records=tuple(map(record_data, records)), next=following)
    return reply(request, found, headers=_linked(following))


async def health(request: HTTPRequest) -> Response:
    """GET: does the service answer, and its store?"""
    only(request)
    head = await store(request).head()
    body = Health(status="ok", number=head.number, digest=head.digest)
    return reply(request, body, headers={"cache-control": "no-store"})
