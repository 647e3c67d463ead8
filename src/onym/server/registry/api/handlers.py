"""Handlers of the JSON API: read entries, requests and the log; open, change and check requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from onym.errors import RegistryError, UnknownEntryError
from onym.registry import service
from onym.registry.records import EventKind, RequestState, Role
from onym.registry.registries import REGISTRIES
from onym.registry.registries import get_registry as registry_of
from onym.server.registry import dependencies, log_pages, responses, urls
from onym.server.registry.api import models
from onym.server.registry.checking import check_submission, parse_in_worker
from onym.server.registry.entry_pages import parse_status_filter
from onym.server.registry.log_pages import load_statistics
from onym.server.registry.page_parts import index_versions
from onym.server.responses import (
    make_cached_response,
    make_entity_tag,
    make_version_tag,
    parse_cursor,
    parse_page_size,
    require_absent,
    require_match,
)
from onym.server.sessions import get_visitor, require_access

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.records import LogRecord
    from onym.registry.store import Applied

JSON: Final = "application/json"
_Body = TypeVar("_Body")
#: control characters except tab, line feed, form feed and carriage return
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
#: nested lists and objects
_DEEPEST: Final = 12


def make_api_response(
    request: HTTPRequest,
    value: Any,
    *,
    status: int = 200,
    tag: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a value as JSON. `tag` is the ETag of its version; the default is a hash of the body."""
    responses.negotiate_media_type(request, (JSON,))
    body = msgspec.json.encode(value)
    return make_bytes_response(request, body, tag or make_entity_tag(body), status=status, headers=headers)


def make_bytes_response(
    request: HTTPRequest,
    body: bytes,
    tag: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return encoded JSON, or 304 if the client has it."""
    if status == 200 and request.method in ("GET", "HEAD"):
        return make_cached_response(request, body, JSON, tag=tag, headers=headers)
    given = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    return Response(body, status, given, media_type=JSON)


def require_known_parameters(request: HTTPRequest, names: tuple[str, ...]) -> None:
    """Raise RegistryError for unknown, repeated and empty query parameters."""
    for name in ("limit", "after"):
        if request.query_params.get(name) == "":
            raise RegistryError("the parameter is empty", code="http.bad-limit", field=name)
    for name in request.query_params:
        if name not in names or len(request.query_params.getlist(name)) > 1:
            raise RegistryError(
                f"the parameter {name[:64]!r} is unknown or repeated",
                code="http.bad-form",
                field=name[:64],
                hint=f"The parameters are {', '.join(names)}." if names else "This URL has no parameters.",
            )


async def decode_body(request: HTTPRequest, kind: type[_Body]) -> _Body:
    """Return the decoded JSON body.

    Raises HTTPException 415 and RegistryError: http.bad-form (400) if the body breaks the schema,
    registry.bad-data (422) for invalid data in free fields.
    """
    responses.negotiate_media_type(request, (JSON,))
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != JSON:
        raise HTTPException(415)
    body = await request.body()
    try:
        found = msgspec.json.decode(body, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(
            f"the body is invalid: {error}"[:300], code="http.bad-form", field="body"
        ) from None
    _require_clean_text(msgspec.to_builtins(found), 0)
    return found


def _require_clean_text(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise RegistryError(
            f"the body is nested more than {_DEEPEST} levels deep", code="registry.bad-data", field="body"
        )
    if isinstance(value, str) and _CONTROL.search(value):
        raise RegistryError(
            "a text in the body contains control characters", code="registry.bad-data", field="body"
        )
    if isinstance(value, dict):
        for key, item in value.items():
            _require_clean_text(key, depth + 1)
            _require_clean_text(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _require_clean_text(item, depth + 1)


#: records on one page of a history
_RECORDS: Final = 200


def _make_link_header(address: str | None) -> dict[str, str]:
    # RFC 8288
    return {} if address is None else {"link": f'<{address}>; rel="next"'}


async def list_registries(request: HTTPRequest) -> Response:
    """GET: all registries."""
    return make_api_response(
        request, models.RegistryList(registries=tuple(map(models.to_registry_data, REGISTRIES.values())))
    )


async def get_registry(request: HTTPRequest) -> Response:
    """GET: one registry."""
    return make_api_response(request, models.to_registry_data(dependencies.find_registry(request)))


async def list_entries(request: HTTPRequest) -> Response:
    """GET: entries by name, filtered, in pages."""
    row, query = dependencies.find_registry(request), request.query_params
    status = parse_status_filter(request, row)
    text = responses.clean_query(query.get("q", ""), "q")
    size = parse_page_size(query.get("limit"))
    page = await dependencies.get_store(request).entries(
        row.id, query=text, status=status, after=parse_cursor(query.get("after")), limit=size
    )
    following = None
    if page.next is not None:
        following = urls.api_url(
            "registries", row.id, "entries", q=text, status=status, after=page.next, limit=query.get("limit")
        )
    found = models.EntryList(entries=tuple(map(models.to_entry_data, page.items)), next=following)
    return make_api_response(request, found, headers=_make_link_header(following))


#: characters of records from which a page may be incomplete; well below the store's limit
_LONG: Final = 2_000_000
_ANY: Final = frozenset({"*/*", JSON})


async def get_entry(request: HTTPRequest) -> Response:
    """GET: one entry, from the cache if it is current."""
    if request.headers.get("accept", "*/*") not in _ANY:
        responses.negotiate_media_type(request, (JSON,))
    params = request.path_params
    key = (params["registry"], params["name"])

    async def make() -> dependencies.CachedResponse:
        found = await dependencies.find_entry(request)
        return dependencies.CachedResponse(
            msgspec.json.encode(models.to_entry_data(found)), make_version_tag(found.version, "json")
        )

    kept = await dependencies.get_response_cache(request).get(key, make)
    return make_bytes_response(request, kept.body, kept.tag)


async def get_entry_history(request: HTTPRequest) -> Response:
    """GET: the events of a name, also of a removed entry, in pages."""
    row = dependencies.find_registry(request)
    key = row.normalize_name(request.path_params["name"])
    after, size = _parse_page(request)
    records = await dependencies.get_store(request).history(row.id, key, after=after, limit=size)
    shown = await dependencies.filter_visible_records(request, records)
    if not shown and not after:
        await dependencies.find_entry(request)  # raises for a name that never existed
    return await _make_records_response(
        request, records, size, "registries", row.id, "entries", key, "history", shown=shown
    )


def _parse_page(request: HTTPRequest) -> tuple[int, int]:
    """Return the record number to start after, and the page size."""
    query = request.query_params
    return responses.parse_number(query.get("after"), "after") or 0, parse_page_size(
        query.get("limit"), _RECORDS
    )


async def _make_records_response(
    request: HTTPRequest,
    records: tuple[LogRecord, ...],
    size: int,
    *path: str,
    shown: tuple[LogRecord, ...] | None = None,
) -> Response:
    """Return a page of records with a link to the next page. Records of hidden drafts are redacted."""
    if shown is None:
        hidden = await dependencies.find_hidden_ids(request, records)
        shown = tuple(
            dependencies.redact_record(record) if record.event.request in hidden else record
            for record in records
        )
    following = None
    # long records make smaller pages than requested
    if len(records) == size or sum(map(_measure_record, records)) > _LONG:
        following = urls.api_url(*path, after=records[-1].number, limit=request.query_params.get("limit"))
    found = models.History(records=tuple(map(models.to_history_record, shown)), next=following)
    return make_api_response(request, found, headers=_make_link_header(following))


def _measure_record(record: LogRecord) -> int:
    data = record.event.data
    fields = data.get("fields")
    inner = fields.values() if isinstance(fields, Mapping) else ()
    return sum(len(text) for text in (*data.values(), *inner) if isinstance(text, str))


async def list_entry_versions(request: HTTPRequest) -> Response:
    """GET: every version of an entry."""
    row = dependencies.find_registry(request)
    key = row.normalize_name(request.path_params["name"])
    changes = await dependencies.load_entry_changes(request, row.id, key)
    if not changes:
        await dependencies.find_entry(request)
    found = index_versions(changes)
    versions = tuple(
        models.VersionData(
            version=number_,
            number=change.number,
            at=change.at,
            event=change.event,
            entry=models.to_entry_data(version),
        )
        for number_, (version, change) in sorted(found.items())
    )
    return make_api_response(request, models.VersionList(versions=versions))


async def list_entry_actions(request: HTTPRequest) -> Response:
    """GET: the events that the caller may use on an entry now."""
    found = await dependencies.find_entry(request)
    return _make_actions_response(
        request, found.version, dependencies.list_visitor_events(request, None, found)
    )


def _make_actions_response(request: HTTPRequest, version: int, kinds: tuple[EventKind, ...]) -> Response:
    body = models.ActionList(version=version, events=kinds)
    return make_api_response(request, body, headers={"cache-control": "private, no-store"})


async def export_registry(request: HTTPRequest) -> Response:
    """GET: a registry as a file; csv-2015 contains one status."""
    row = dependencies.find_registry(request)
    form = request.path_params["format"]
    status = parse_status_filter(request, row)
    if form == "csv-2015":
        status = status or service.DEFAULT_CSV_STATUS
    if form in responses.MEDIA_TYPES:
        responses.negotiate_media_type(request, (responses.MEDIA_TYPES[form][0],))
    rows = [
        entry
        async for entry in service.iter_entries(dependencies.get_store(request), row.id)
        if status is None or entry.status is status
    ]
    frame = await dependencies.get_store(request).get_frame(row.id) if form == "xml" else None
    return responses.make_file_response(request, rows, row.id, form, row.id, status, frame=frame)


async def search_entries(request: HTTPRequest) -> Response:
    """GET: entries of one or all registries, best first."""
    query = request.query_params
    text = responses.clean_query(query.get("q", ""), "q")
    chosen = query.get("registry")
    if chosen is not None:
        registry_of(chosen)
    size = parse_page_size(query.get("limit"), 20)
    found = await dependencies.get_store(request).search(chosen, text, size) if text else ()
    return make_api_response(
        request, models.SearchHits(query=text, entries=tuple(map(models.to_entry_data, found)))
    )


async def list_requests(request: HTTPRequest) -> Response:
    """GET: requests, newest first."""
    query = request.query_params
    state = _parse_enum(RequestState, query.get("state"), "state")
    holder = _parse_enum(Role, query.get("holder"), "holder")
    registry = query.get("registry")
    if registry is not None:
        registry_of(registry)
    name = query.get("name")
    if name is not None and not responses.clean_query(name, "name", models.MAX_NAME):
        raise RegistryError("the parameter is empty", code="http.bad-form", field="name")
    page = await dependencies.get_store(request).requests(
        registry=registry,
        state=state,
        holder=holder,
        name=None if name is None else name.strip(),
        after=parse_cursor(query.get("after")),
        limit=parse_page_size(query.get("limit")),
    )
    following = None
    if page.next is not None:
        kept = {key: query.get(key) for key in ("registry", "state", "holder", "name", "limit")}
        following = urls.api_url("requests", **kept, after=page.next)
    found = models.RequestList(
        requests=tuple(
            map(models.to_request_data, dependencies.filter_visible_requests(request, page.items))
        ),
        next=following,
    )
    return make_api_response(request, found, headers=_make_link_header(following))


def _parse_enum(kind: Any, said: str | None, field: str) -> Any:
    if said is None:
        return None
    try:
        return kind(said)
    except ValueError:
        raise UnknownEntryError(
            f"{said!r} is not a known {field}",
            code=f"registry.unknown-{field}",
            field=field,
            hint=f"one of {', '.join(kind)}",
        ) from None


async def get_request(request: HTTPRequest) -> Response:
    """GET: one request."""
    found = await dependencies.find_request(request)
    return make_api_response(
        request, models.to_request_data(found), tag=make_version_tag(found.version, "json")
    )


async def get_request_history(request: HTTPRequest) -> Response:
    """GET: a request's events, in pages."""
    found = await dependencies.find_request(request)
    after, size = _parse_page(request)
    records = await dependencies.get_store(request).request_history(found.id, after=after, limit=size)
    return await _make_records_response(request, records, size, "requests", found.id, "history")


async def list_request_actions(request: HTTPRequest) -> Response:
    """GET: the events that the caller may use on a request now."""
    found = await dependencies.find_request(request)
    about = await dependencies.get_store(request).entry(found.registry, found.name)
    return _make_actions_response(
        request, found.version, dependencies.list_visitor_events(request, found, about)
    )


async def get_log(request: HTTPRequest) -> Response:
    """GET: the log after a number; followers continue at `next`."""
    after, size = _parse_page(request)
    records = await dependencies.get_store(request).log(after=after, limit=size)
    return await _make_records_response(request, records, size, "log")


async def get_statistics(request: HTTPRequest) -> Response:
    """GET: entries by status, requests by state, the time of each stage, and months."""
    return make_api_response(request, await load_statistics(request))


async def get_health(request: HTTPRequest) -> Response:
    """GET: the state of the service and its store."""
    head = await dependencies.get_store(request).head()
    body = models.Health(status="ok", number=head.number, digest=head.digest)
    return make_api_response(request, body, headers={"cache-control": "no-store"})


async def change_entry(request: HTTPRequest) -> Response:
    """POST: a change of an entry; If-Match names its version.

    An override of a removed name needs If-None-Match: * instead.
    """
    require_access(get_visitor(request))
    row, name, found = await dependencies.find_entry_or_none(request)
    body = await decode_body(request, models.EventBody)
    if found is None and body.event is not EventKind.OVERRIDE:
        raise dependencies.make_unknown_entry_error(row)
    expected = require_absent(request) if found is None else require_match(request, found.version)
    applied = await dependencies.apply_event(
        request, body.event, row.id, name=name, data=body.data, expected=expected
    )
    return _make_applied_response(request, applied)


async def change_request(request: HTTPRequest) -> Response:
    """POST: an event of a request; If-Match names its version."""
    require_access(get_visitor(request))
    found = await dependencies.find_request(request)
    body = await decode_body(request, models.EventBody)
    expected = require_match(request, found.version)
    applied = await dependencies.apply_event(
        request,
        body.event,
        found.registry,
        about=found.id,
        name=found.name,
        data=body.data,
        expected=expected,
    )
    return _make_applied_response(request, applied)


def _make_applied_response(request: HTTPRequest, applied: Applied) -> Response:
    """Return the log record, and the URL of the changed request."""
    decision = applied.decision
    headers: dict[str, str] = {}
    changed: Any = decision.request or decision.entry
    if changed is not None:
        headers["etag"] = make_version_tag(changed.version, "json")
    if decision.request is not None:
        headers["content-location"] = urls.api_url("requests", decision.request.id)
    return make_api_response(request, models.to_history_record(applied.record), headers=headers)


async def open_request(request: HTTPRequest) -> Response:
    """POST: open a draft request."""
    require_access(get_visitor(request))
    body = await decode_body(request, models.OpenBody)
    row = registry_of(body.registry)
    given = service.SubmissionInput(
        registry=row,
        text=body.template,
        fields={**body.fields, **({"name": body.name} if body.name else {})},
        profile=body.profile or "",
        status=body.status or "",
        on_behalf_of=body.on_behalf_of or "",
        update=body.kind != "new",
    )
    submission = await parse_in_worker(request, given)
    data = service.build_opening_data(submission, body.kind)
    if body.profile:
        data["profile"] = body.profile
    if body.status is not None:
        data["status"] = body.status
    applied = await dependencies.apply_event(
        request, EventKind.OPEN, row.id, name=body.name or submission.name, data=data
    )
    opened = service.get_applied_request(applied)
    headers = {"location": urls.api_url("requests", opened.id)}
    tag = make_version_tag(opened.version, "json")
    return make_api_response(request, models.to_request_data(opened), status=201, tag=tag, headers=headers)


async def link_messages(request: HTTPRequest) -> Response:
    """POST: link the messages of a mailing list's archive to the open requests that they are about."""
    row = dependencies.find_registry(request)
    require_access(get_visitor(request), registry=row.id, roles=(Role.IANA, Role.EXPERT))
    body = await decode_body(request, models.ArchiveBody)
    data = body.archive.encode("utf-8")
    content, plans = await service.plan_archive_links(
        dependencies.get_store(request), row.id, data, link=body.link
    )
    linked = []
    for links in plans:
        about = links.request
        applied = await dependencies.apply_event(
            request,
            EventKind.LINK_MESSAGES,
            row.id,
            about=about.id,
            name=about.name,
            data=links.event_data,
            expected=about.version,
        )
        after = service.get_applied_request(applied)
        messages = tuple(
            models.MessageData(url=message.url, subject=message.subject, at=message.at)
            for message in links.messages
        )
        linked.append(
            models.LinkedMessages(
                request=after.id, state=str(after.state), version=after.version, messages=messages
            )
        )
    report = models.ArchiveReport(
        messages=len(content.messages), skipped=content.skipped, requests=tuple(linked)
    )
    return make_api_response(request, report, headers={"cache-control": "no-store"})


async def redact_log(request: HTTPRequest) -> Response:
    """POST: remove every line with a text from the registry's log, or list these lines."""
    row = dependencies.find_registry(request)
    log_pages.require_redactor(request, row)
    body = await decode_body(request, models.RedactionBody)
    found = await log_pages.redact(request, row, body.text, body.reason, dry_run=body.dry_run)
    report = models.RedactionReport(
        record=found.number, removed={str(number): tuple(places) for number, places in found.places.items()}
    )
    return make_api_response(request, report, headers={"cache-control": "no-store"})


async def list_audit_records(request: HTTPRequest) -> Response:
    """GET: the audit log, the newest record first, in pages."""
    page, accounts = await log_pages.load_audit_page(request)
    query, following = request.query_params, None
    if page.next is not None:
        given = {name: query.get(name) for name in ("account", "action", "limit")}
        following = urls.api_url("audit", after=page.next, **given)
    logins = {identifier: account.login for identifier, account in accounts.items()}
    records = tuple(models.to_audit_data(record, logins) for record in page.items)
    found = models.AuditList(records=records, next=following)
    return make_api_response(
        request, found, headers={"cache-control": "no-store", **_make_link_header(following)}
    )


async def check_template(request: HTTPRequest) -> Response:
    """POST: check a template, draft or RFC text. Nothing is saved."""
    body = await decode_body(request, models.CheckBody)
    row = registry_of(body.registry or next(iter(REGISTRIES)))
    if body.profile is not None and body.profile not in row.profiles:
        raise UnknownEntryError(
            f"{body.profile!r} is not a profile of {row.id}",
            code="registry.unknown-profile", field="profile",
            hint=f"one of {', '.join(row.profiles)}",
        )  # fmt: skip
    given = service.SubmissionInput(
        registry=row,
        text=body.template,
        fields=body.fields,
        profile=body.profile or "",
        status=body.status or "",
        all_templates=not body.fields and not body.status,
    )
    report = await check_submission(request, given)
    return make_api_response(request, models.to_check_report(report), headers={"cache-control": "no-store"})
