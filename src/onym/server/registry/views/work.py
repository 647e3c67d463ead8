"""Pages about requests: lists, status, review, queues, and the forms that take a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.errors import RegistryError, UnknownEntryError, UsageError
from onym.registry.profiles import PROFILES
from onym.registry.records import Entry, EventKind, Request, RequestState, Role
from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.actions import actions_of, data_of
from onym.server.registry.build.parts import (
    choices,
    fields_of,
    history_lines,
    last_of,
    report_view,
    request_row,
)
from onym.server.registry.build.steps import steps_of
from onym.server.registry.checking import check_saved, missing_of
from onym.server.registry.contexts import QueuePage, RequestPage, RequestsPage, ReviewPage
from onym.server.registry.contexts.parts import ActionView, Link
from onym.server.registry.desk import (
    act,
    find_request,
    names_of,
    now,
    open_to,
    people,
    store,
    whole_request_history,
)
from onym.server.registry.form import number, read_form
from onym.server.registry.privacy import seen
from onym.server.registry.render import chrome, respond, roles_anywhere, see_other
from onym.server.registry.views.submit import step_of
from onym.server.registry.words import KINDS, NEXT, ROLES, STATES, moment, status_view
from onym.server.security import check_cursor, current, page_size, require

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

__all__ = ["queue_page", "request_event", "request_page", "requests_page", "review_page"]

_FINAL: Final = frozenset(
    {RequestState.APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.TIMED_OUT}
)
#: lines of a template that the review page numbers
_MOST_LINES: Final = 5_000
_QUEUE: Final = 200
#: role -> title, what is done there
_QUEUES: Final = {
    Role.EXPERT: ("Review queue", "Requests that wait for a Designated Expert, the most urgent first."),
    Role.IANA: ("IANA queue", "Submitted requests: is every required field there, and every citation right?"),
    Role.IESG: ("IESG queue", "Requests that the IESG approves or declines."),
}
_REVIEWERS: Final = (Role.EXPERT, Role.IANA, Role.IESG)
#: steps that change the text have a form of their own
_BY_FORM: Final = frozenset({EventKind.REVISE, EventKind.RESUBMIT})


async def requests_page(request: HTTPRequest) -> Response:
    """All requests, filtered by registry, state and registrant."""
    query = request.query_params
    registry = _known(query.get("registry", ""), REGISTRIES, "registry")
    state = _known(query.get("state", ""), [str(each) for each in RequestState], "state")
    visitor, mine = current(request), query.get("mine") == "1"
    registrant = require(visitor).id if mine else None
    page = await store(request).requests(
        registry=registry or None,
        state=RequestState(state) if state else None,
        registrant=registrant,
        after=check_cursor(query.get("after")),
        limit=page_size(query.get("limit")),
    )
    more = {"registry": registry, "state": state, "mine": "1" if mine else None, "after": page.next}
    context = RequestsPage(
        page=chrome(request, "Requests", (urls.home, "Home")),
        rows=tuple(request_row(each, now(request)) for each in seen(request, page.items)),
        registries=choices(
            [("", "Every registry"), *((each.id, each.title) for each in REGISTRIES.values())], registry
        ),
        states=choices([("", "Anywhere"), *((str(each), text) for each, text in STATES.items())], state),
        mine="" if visitor.account is None or mine else urls.requests(mine=1),
        action=urls.requests(),
        next="" if page.next is None else urls.requests(**more),
    )
    return respond(request, context)


def _known(said: str, known: Iterable[str], field: str) -> str:
    if said and said not in known:
        raise UnknownEntryError(f"no such {field}", code=f"registry.unknown-{field}", field=field)
    return said


async def _actions(request: HTTPRequest, about: Request, entry: Entry | None) -> tuple[ActionView, ...]:
    kinds = (each for each in open_to(request, about, entry) if each not in _BY_FORM)
    return actions_of(
        kinds,
        href=urls.request_events(about.id),
        version=about.version,
        about=about,
        missing=((each.id, each.label) for each in PROFILES[about.profile].fields),
    )


def _next(about: Request) -> str:
    said = NEXT[about.state]
    policy = PROFILES[about.profile].policies.get(about.status)
    if (
        about.state is RequestState.SUBMITTED
        and policy is not None
        and policy.at_once
        and about.kind == "new"
    ):
        said = "IANA checks that it is complete, then registers it at once (first come, first served)."
    timeout = PROFILES[about.profile].expert_timeout
    if about.state in (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW) and timeout is not None:
        said += f" Without an explicit rejection within {timeout.days} days it goes on by time alone."
    return said


async def request_page(request: HTTPRequest) -> Response:
    """The public status of a request."""
    about = await find_request(request)
    entry = await store(request).entry(about.registry, about.name)
    records = await whole_request_history(request, about.id)
    part, earlier = last_of(records, number(request.query_params.get("before"), "before"))
    names = await people(request, part) | await names_of(request, (about.registrant,))
    reviews = bool(current(request).roles(about.registry) & set(_REVIEWERS)) and about.state not in _FINAL
    final = about.state in _FINAL
    context = RequestPage(
        page=chrome(request, f"{about.id}: {about.name}", (urls.home, "Home"), (urls.requests(), "Requests")),
        id=about.id,
        registry=about.registry,
        registry_title=REGISTRIES[about.registry].title,
        name=about.name,
        entry="" if entry is None else urls.entry(about.registry, about.name),
        kind=KINDS[about.kind],
        profile=PROFILES[about.profile].title,
        status=status_view(about.status),
        state=str(about.state),
        state_label=STATES[about.state],
        final=final,
        holder="" if about.holder is None else ROLES[about.holder],
        since=moment(about.since),
        due=moment(about.due),
        overdue=about.due is not None and about.due < now(request) and not final,
        next=_next(about),
        reason=about.reason or "",
        registrant=names.get(about.registrant, about.registrant),
        on_behalf_of=about.on_behalf_of or "",
        opened=moment(about.opened),
        archive=about.archive or "",
        steps=steps_of(about, records),
        fields=fields_of(about.registry, about.fields),
        text=about.template,
        history=history_lines(part, names, links=False),
        earlier="" if earlier is None else urls.request_history(about.id, earlier),
        actions=await _actions(request, about, entry),
        edit=urls.request_edit(about.id) if await step_of(request, about) else "",
        review=urls.review(about.id) if reviews else "",
        version=about.version,
    )
    return respond(request, context)


async def request_event(request: HTTPRequest) -> Response:
    """POST: one step of a request, from a form that names the version it saw."""
    about = await find_request(request)
    form = await read_form(request)
    kind = kind_of_event(form.text("kind"))
    expected = number(form.text("version"), "version")
    if expected is None:
        raise UsageError(
            "the form names no version", code="http.precondition-required", hint="load the page again"
        )
    await act(
        request,
        kind,
        about.registry,
        about=about.id,
        name=about.name,
        data=data_of(kind, form),
        expected=expected,
    )
    return see_other(urls.request(about.id), str(kind))


def kind_of_event(said: str) -> EventKind:
    """The event of that id. Raises RegistryError."""
    try:
        return EventKind(said)
    except ValueError:
        raise RegistryError("no such event", code="registry.bad-data", field="kind") from None


async def review_page(request: HTTPRequest) -> Response:
    """Template and report side by side, for whoever decides."""
    about = await find_request(request)
    require(current(request), registry=about.registry, roles=_REVIEWERS)
    entry = await store(request).entry(about.registry, about.name)
    report, fault = await check_saved(request, about, entry)
    view = report_view(report, fault=fault, profile=about.profile)
    names = await names_of(request, (about.registrant,))
    lines = tuple(about.template.split("\n")[:_MOST_LINES]) if about.template else ()
    other = None if entry is None or about.id in entry.pending else entry
    queue = _queue_of(request, about)
    context = ReviewPage(
        page=chrome(
            request, f"Review of {about.id}", (urls.home, "Home"), queue, (urls.request(about.id), about.id)
        ),
        id=about.id,
        request=urls.request(about.id),
        registry=about.registry,
        name=about.name,
        kind=KINDS[about.kind],
        profile=PROFILES[about.profile].title,
        status=status_view(about.status),
        state_label=STATES[about.state],
        registrant=names.get(about.registrant, about.registrant),
        due=moment(about.due),
        overdue=about.due is not None and about.due < now(request),
        lines=lines,
        faults=tuple(sorted({each.line for each in view.findings if each.line and each.level != "hint"})),
        fields=fields_of(about.registry, about.fields),
        missing=tuple(
            f"{label} ({PROFILES[about.profile].template_clause})" for _, label in missing_of(about, entry)
        ),
        report=view,
        existing=None
        if other is None
        else Link(
            href=urls.entry(other.registry, other.name),
            text=f"{other.name}, {status_view(other.status).label}",
        ),
        actions=await _actions(request, about, entry),
        archive=about.archive or "",
    )
    return respond(request, context)


def _queue_of(request: HTTPRequest, about: Request) -> tuple[str, str]:
    """The queue that the visitor has come from: that of a role held in this registry."""
    held = current(request).roles(about.registry)
    role = about.holder if about.holder in held and about.holder in _QUEUES else None
    role = role or next(each for each in _REVIEWERS if each in held)
    return urls.queue(str(role)), _QUEUES[role][0]


async def queue_page(request: HTTPRequest) -> Response:
    """What waits for a role, in every registry where the visitor holds it."""
    role = next((each for each in _QUEUES if each == request.path_params["role"]), None)
    if role is None:
        raise UnknownEntryError("no such queue", code="registry.unknown-queue", field="role")
    visitor = current(request)
    require(visitor)
    held = [each for each in REGISTRIES if role in visitor.roles(each)]
    if not held:
        require(visitor, registry=next(iter(REGISTRIES)), roles=(role,))
    found: list[Request] = []
    for registry in held:
        found += (await store(request).requests(registry=registry, holder=role, limit=_QUEUE)).items
    found.sort(key=lambda each: (each.due is None, each.due or each.since))
    rows = tuple(
        replace(request_row(each, now(request)), href=urls.review(each.id))
        for each in found
        if each.state not in _FINAL
    )
    title, intro = _QUEUES[role]
    mine = roles_anywhere(request)
    context = QueuePage(
        page=chrome(request, title, (urls.home, "Home")),
        role=str(role),
        title=title,
        intro=intro,
        rows=rows,
        overdue=sum(each.overdue for each in rows),
        queues=tuple(
            Link(href=urls.queue(str(each)), text=text, current=each is role)
            for each, (text, _) in _QUEUES.items()
            if each in mine
        ),
    )
    return respond(request, context)
