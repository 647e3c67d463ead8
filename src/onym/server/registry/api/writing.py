"""What the JSON API takes: steps, new requests, texts to be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onym.errors import UnknownEntryError
from onym.registry.records import EventKind
from onym.registry.registries import registry as registry_of
from onym.server.registry import urls
from onym.server.registry.api.convert import record_data, request_data
from onym.server.registry.api.models import CheckBody, CheckReport, EventBody, FindingData, OpenBody
from onym.server.registry.api.reply import decoded, only, reply
from onym.server.registry.checking import Given, check_given, read_for
from onym.server.registry.desk import act, find_absent, find_request, unknown_entry
from onym.server.registry.views.submit import data_of
from onym.server.security import check_match, current, require, version_tag
from onym.server.security.conditional import check_absent

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest
    from starlette.responses import Response

    from onym.registry.store import Applied

__all__ = ["check", "entry_event", "open_request", "request_event"]


async def entry_event(request: HTTPRequest) -> Response:
    """POST: a change of an entry; If-Match names its version.

    An override may be about a name that is registered no longer: If-None-Match: * says that it knows.
    """
    only(request)
    require(current(request))
    row, name, found = await find_absent(request)
    body = await decoded(request, EventBody)
    if found is None and body.event is not EventKind.OVERRIDE:
        raise unknown_entry(row)
    expected = check_absent(request) if found is None else check_match(request, found.version)
    applied = await act(request, body.event, row.id, name=name, data=body.data, expected=expected)
    return _applied(request, applied)


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
    submission = await read_for(request, given)
    data = data_of(submission, body.kind)
    data |= {"kind": str(body.kind), "profile": body.profile or submission.profile.id}
    if body.status is not None:
        data["status"] = body.status
    if body.on_behalf_of:
        data["on_behalf_of"] = body.on_behalf_of
    applied = await act(request, EventKind.OPEN, row.id, name=body.name or submission.name, data=data)
    opened = applied.decision.request
    assert opened is not None  # noqa: S101 - OPEN gives one
    headers = {"location": urls.api("requests", opened.id)}
    tag = version_tag(opened.version, "json")
    return reply(request, request_data(opened), status=201, tag=tag, headers=headers)


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
    report = await check_given(request, given)
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
