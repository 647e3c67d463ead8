"""Changes of an entry, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from onym.errors import AccessError, RegistryError, UsageError
from onym.registry.records import Entry, EventKind, Role
from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.actions import SCOPES, actions_of, control_of, data_of, requests_for, undo_of
from onym.server.registry.build.parts import value_of
from onym.server.registry.contexts import AuditPage, ChangePage
from onym.server.registry.contexts.parts import ActionField
from onym.server.registry.contexts.work import AuditLine
from onym.server.registry.desk import (
    act,
    find_absent,
    find_entry,
    names_of,
    open_to,
    request_id,
    store,
    unknown_entry,
    was_removed,
)
from onym.server.registry.form import Form, number, read_form
from onym.server.registry.render import chrome, respond, see_other
from onym.server.registry.views.browse import crumbs_of
from onym.server.registry.views.work import kind_of_event
from onym.server.registry.words import day, moment, status_view
from onym.server.security import check_cursor, current, page_size, require

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.registries import Registry
    from onym.registry.store import EntryChange
    from onym.server.registry.contexts.parts import ActionView

__all__ = ["audit_page", "change_page", "entry_event", "open_change"]

#: columns that an update may bring, by registry: (field id, label)
_UPDATES: Final = {
    "uri-schemes": ("description", "applications", "contact", "change_controller", "references", "reference"),
    "llm-parameters": ("type", "description", "contact", "change_controller", "reference"),
    "ai-namespaces": ("anchor", "keys", "description", "contact", "change_controller"),
}
_PREFIX: Final = "field."
#: who may undo what removed an entry
_OVERRIDES: Final = frozenset({Role.IANA, Role.IESG})


async def change_page(request: HTTPRequest) -> Response:
    """GET: every change that the visitor may ask for."""
    row, name, entry = await find_absent(request)
    last = await store(request).changes_of(row.id, name, limit=1)
    if entry is None:
        return _removed(request, row, last)
    account = current(request).account
    here = (urls.entry(row.id, entry.name), entry.name)
    context = ChangePage(
        page=chrome(request, f"Change {entry.name}", *crumbs_of(row, here)),
        registry=row.id,
        name=entry.name,
        entry=here[0],
        status=status_view(entry.status),
        version=entry.version,
        direct=_direct(request, entry, last),
        requested=() if account is None else tuple(_with_fields(each, entry) for each in requests_for(entry)),
        signed_in=account is not None,
        removed="",
    )
    return respond(request, context)


def _direct(request: HTTPRequest, entry: Entry, last: tuple[EntryChange, ...]) -> tuple[ActionView, ...]:
    """What takes effect at once; the last override is undone by whoever may override."""
    kinds = open_to(request, None, entry)
    href = urls.entry_events(entry.registry, entry.name)
    found = actions_of(kinds, href=href, version=entry.version, about=entry)
    if EventKind.OVERRIDE in kinds:
        found += control_of(entry, current(request).roles(entry.registry), href=href)
    if EventKind.OVERRIDE in kinds and last:
        found += undo_of(last[0], href=href, version=entry.version)
    return found


def _removed(request: HTTPRequest, row: Registry, last: tuple[EntryChange, ...]) -> Response:
    """Of a name that is registered no longer: when it was removed, and how that is undone."""
    change, visitor = last[0] if last else None, current(request)
    if change is None or change.before is None or not was_removed(change):
        raise unknown_entry(row)
    may = not SCOPES[EventKind.OVERRIDE].isdisjoint(visitor.scopes) and not _OVERRIDES.isdisjoint(
        visitor.roles(row.id)
    )
    here = (urls.entries(row.id, q=change.name), change.name)
    context = ChangePage(
        page=chrome(request, f"Change {change.name}", *crumbs_of(row, here)),
        registry=row.id,
        name=change.name,
        entry=here[0],
        status=status_view(change.before.status),
        version=change.version,
        direct=undo_of(change, href=urls.entry_events(row.id, change.name), version=0) if may else (),
        requested=(),
        signed_in=visitor.account is not None,
        removed=f"It is registered no longer: record {change.number} of {day(change.at.date())} removed it.",
    )
    return respond(request, context)


def _with_fields(view: ActionView, entry: Entry) -> ActionView:
    """An update asks for the fields themselves."""
    from dataclasses import replace

    if view.kind != "update":
        return view
    fields = tuple(
        ActionField(
            id=_PREFIX + each,
            label=each.replace("_", " ").capitalize(),
            kind="long",
            required=False,
            help="",
            value=value_of(entry, each),
        )
        for each in _UPDATES[entry.registry]
    )
    return replace(view, fields=fields)


async def entry_event(request: HTTPRequest) -> Response:
    """POST: a change that takes effect at once."""
    row, name, entry = await find_absent(request)
    form = await read_form(request)
    kind = kind_of_event(form.text("kind"))
    if entry is None and kind is not EventKind.OVERRIDE:
        raise unknown_entry(row)
    expected = _version(form)
    applied = await act(request, kind, row.id, name=name, data=data_of(kind, form), expected=expected)
    if applied.decision.entry is None:  # it is gone, and its page with it
        return see_other(urls.entries(row.id, q=name), str(kind))
    return see_other(urls.entry(row.id, name), str(kind))


def _version(form: Form) -> int:
    found = number(form.text("version"), "version")
    if found is None:
        raise UsageError(
            "the form names no version", code="http.precondition-required", hint="load the page again"
        )
    return found


async def open_change(request: HTTPRequest) -> Response:
    """POST: a change that opens a request; it is a draft, to be submitted on its own page."""
    entry = await find_entry(request)
    form = await read_form(request)
    require(current(request))
    data = _data(entry, form)
    # the form came filled with what the entry had then
    expected = number(form.text("version"), "version")
    applied = await act(
        request, EventKind.OPEN, entry.registry, name=entry.name, data=data, expected=expected
    )
    return see_other(urls.request(request_id(applied)), "open")


def _data(entry: Entry, form: Form) -> dict[str, Any]:
    """What the request brings: the fields that differ from the entry's, which keeps its others."""
    kind = form.text("kind")
    given = {
        name.removeprefix(_PREFIX): values[0].strip()
        for name, values in form.items()
        if name.startswith(_PREFIX) and values[0].strip()
    }
    said = {key: text for key, text in given.items() if text != value_of(entry, key).strip()}
    grounds = form.text("use").strip() or form.text("grounds").strip()
    data: dict[str, Any] = {"kind": kind, "fields": {**said, "name": entry.name}}
    if kind == "status-change":
        data["status"] = form.text("status")
    if kind in ("note-separate-use", "reassign"):
        if not grounds:
            raise RegistryError("say why", code="registry.missing-data", field="grounds")
        data["template"] = grounds
    if kind == "note-separate-use":
        data["fields"]["description"] = grounds  # what the entry's note will say
    return data


async def audit_page(request: HTTPRequest) -> Response:
    """GET: the audit log, for IANA."""
    visitor = current(request)
    require(visitor)
    held = [each for each in REGISTRIES if Role.IANA in visitor.roles(each)]
    account = require(visitor, registry=held[0] if held else next(iter(REGISTRIES)), roles=(Role.IANA,))
    if not account.administrator:
        # it tells of every registry, and of who signed in from where
        raise AccessError(
            "this needs the role iana in every registry", code="registry.wrong-role", field="role"
        )
    page = await store(request).audit.page(
        after=check_cursor(request.query_params.get("after")),
        limit=page_size(request.query_params.get("limit")),
    )
    names = await names_of(request, (each.account for each in page.items if each.account))
    context = AuditPage(
        page=chrome(request, "Audit log", (urls.home, "Home")),
        lines=tuple(
            AuditLine(
                at=moment(each.at),
                account="nobody" if each.account is None else names.get(each.account, each.account),
                action=each.action,
                subject=each.subject or "",
                outcome=each.outcome,
                address=each.address or "",
            )
            for each in page.items
        ),
        next="" if page.next is None else urls.path("audit", after=page.next),
    )
    return respond(request, context)
