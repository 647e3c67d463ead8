"""Pages about registration requests: the form, status, review, queues, and the steps of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from onym.errors import RegistryError, UnknownEntryError, UsageError
from onym.registry import service
from onym.registry.checks.context import Level
from onym.registry.engine import find_appeal_deadline, list_request_states
from onym.registry.records import EMPTY, Entry, EventKind, Request, RequestKind, RequestState, Role, Status
from onym.registry.registries import PROFILES, REGISTRIES, Profile
from onym.registry.registries import get_registry as registry_of
from onym.registry.words import apply_words, name_role, parse_role
from onym.server.registry import checking, dependencies, page_parts, responses, urls
from onym.server.registry.actions import (
    DECISIONS,
    build_actions,
    parse_event_data,
    require_correctable,
    show_error,
)
from onym.server.registry.labels import (
    DEFAULT,
    FIELD_EXAMPLES,
    STATE_LABELS,
    STATUS_LABELS,
    describe_next_step,
    translate_page,
    translate_text,
    use_language,
)
from onym.server.registry.urls import make_route
from onym.server.responses import parse_cursor, parse_page_size
from onym.server.services import get_services
from onym.server.sessions import get_visitor, require_access

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.checks import Report

_PREFIX: Final = "field."
#: fields with a one-line input; other fields have a text area
_ONE_LINE_FIELDS: Final = frozenset({"name", "status", "type", "expires", "anchor"})
#: fields that have a separate choice
_ASIDE: Final = frozenset({"status"})
#: kinds of request that set a status
_ASKS_STATUS: Final = frozenset({RequestKind.NEW, RequestKind.STATUS_CHANGE})
#: controls of the form that are not fields of a template
_OWN_CONTROLS: Final = frozenset({"template", "profile", "status", "on_behalf_of"})
_STEPS: Final = {"revise": EventKind.REVISE, "resubmit": EventKind.RESUBMIT}


async def submit_page(request: HTTPRequest) -> Response:
    """GET: an empty form for a registry."""
    row = registry_of(request.query_params.get("registry") or next(iter(REGISTRIES)))
    name = request.query_params.get("name", "")[:100]
    given = service.SubmissionInput(registry=row, fields={"name": name} if name else EMPTY)
    return _make_form_response(request, given)


async def edit_page(request: HTTPRequest) -> Response:
    """GET: the form over a request that its registrant may revise."""
    about = await dependencies.find_request(request)
    require_access(get_visitor(request))
    entry = await dependencies.get_store(request).entry(about.registry, about.name)
    step = _find_revision_step(request, about, entry)
    if not step:
        raise UsageError(
            f"you cannot revise {about.id} now",
            code="registry.not-allowed",
            hint="The request's page shows the possible actions.",
        )
    return _make_form_response(request, checking.make_input_from_request(about), about=about, step=step)


def _find_revision_step(request: HTTPRequest, about: Request, entry: Entry | None) -> str:
    """Return "revise" or "resubmit", as the engine allows, or ""."""
    allowed = dependencies.list_visitor_events(request, about, entry)
    return next((name for name, kind in _STEPS.items() if kind in allowed), "")


async def _parse_submit_form(
    request: HTTPRequest, form: responses.PageForm
) -> tuple[Request | None, service.SubmissionInput]:
    """Return the request that the form revises, or None, and what the form submits."""
    identifier = form.get_text("request")
    about = await dependencies.find_visible_request(request, identifier) if identifier else None
    return about, service.SubmissionInput(
        registry=registry_of(form.get_text("registry") or next(iter(REGISTRIES))),
        text=form.get_text("template"),
        fields={
            name.removeprefix(_PREFIX): values[0] for name, values in form.items() if name.startswith(_PREFIX)
        },
        profile=form.get_text("profile"),
        status=form.get_text("status"),
        on_behalf_of=form.get_text("on_behalf_of").strip(),
        update=about is not None and about.kind != "new",
        request=None if about is None else about.id,
    )


async def check_form(request: HTTPRequest) -> Response:
    """POST: the report, as a fragment for htmx or in the whole form. Nothing is saved."""
    form = await responses.read_form(request)
    about, given = await _parse_submit_form(request, form)
    entry = (
        await dependencies.get_store(request).entry(about.registry, about.name)
        if about and given.update
        else None
    )
    filled = service.fill_from_entry(given, entry)
    if filled.is_empty:
        report, fault = None, "Nothing to check yet: paste a template, or fill a field."
    else:
        report, fault = await checking.check_for_page(request, filled)
    if request.headers.get("hx-request") == "true":
        macros: Any = responses.get_template_environment().get_template("parts/macros.html").module
        return Response(
            macros.report(report, fault, False, checking.build_excerpt(report, given.text)),
            media_type="text/html",
            headers={"cache-control": "no-store"},
        )
    return _make_form_response(
        request,
        given,
        report=report,
        fault=fault,
        about=about,
        step=form.get_text("step") if about else "open",
    )


async def save_form(request: HTTPRequest) -> Response:
    """POST: open a draft request or revise it. An invalid form is shown again with its errors."""
    form = await responses.read_form(request)
    require_access(get_visitor(request))
    about, given = await _parse_submit_form(request, form)
    try:
        submission = await checking.parse_in_worker(request, given)
        if about is None:
            identifier = await _open_request(request, submission)
            return responses.redirect_to(urls.request_url(identifier), "open")
        kind = _STEPS.get(form.get_text("step"), EventKind.REVISE)
        expected = responses.parse_number(form.get_text("version"), "version")
        await dependencies.apply_event(
            request, kind, about.registry, about=about.id, name=about.name,
            data=service.build_revision_data(submission, about), expected=expected,
        )  # fmt: skip
        return responses.redirect_to(urls.request_url(about.id), str(kind))
    except RegistryError as error:
        return _make_form_response(
            request,
            given,
            error=error,
            about=about,
            step=form.get_text("step") or "open",
        )


def _get_error_status(error: RegistryError) -> int:
    from onym.server.responses import get_problem_type  # late: problems draws pages too

    return get_problem_type(error).status


async def _open_request(request: HTTPRequest, submission: service.ParsedSubmission) -> str:
    row = submission.given.registry
    if not submission.name:
        raise RegistryError(
            "the registration has no name",
            code="registry.missing-data",
            field="name",
            clause=submission.profile.template_clause,
            hint="Fill in the first field of the template.",
        )
    data = service.build_opening_data(submission, RequestKind.NEW)
    applied = await dependencies.apply_event(request, EventKind.OPEN, row.id, name=submission.name, data=data)
    return service.get_applied_request(applied).id


def _make_form_response(
    request: HTTPRequest,
    given: service.SubmissionInput,
    *,
    report: Report | None = None,
    fault: str = "",
    error: RegistryError | None = None,
    about: Request | None = None,
    step: str = "open",
) -> Response:
    """Return the form. `error` is why it was not saved: its field shows it and has the focus."""
    row = given.registry
    offered = get_services(request).settings.list_profiles(row)
    profile = PROFILES[given.profile if given.profile in row.profiles else offered[0]]
    title = f"Revise {about.id}" if about else f"Register a {row.noun}"
    crumb = (urls.request_url(about.id), about.id) if about else (urls.entries_url(row.id), row.title)
    fields = tuple(_build_form_fields(profile, given, report, error))
    tied = next((field.id for field in fields if field.focus), "")
    if error is not None and not tied and error.field in _OWN_CONTROLS:
        tied = str(error.field)
    return responses.make_page_response(
        request,
        "submit.html",
        responses.build_page_frame(request, title, (urls.HOME_URL, "Home"), crumb),
        http_status=200 if error is None else _get_error_status(error),
        registry_choices=page_parts.build_choices(
            [(registry.id, registry.title) for registry in REGISTRIES.values()], row.id
        ),
        registry=row.id,
        noun=row.noun,
        profile_choices=_build_profile_choices(offered, given, about),
        statuses=_build_status_choices(profile, given, about),
        text=given.text,
        fields=fields,
        fields_open=not given.text or any(field.problems for field in fields),
        error=error,
        tied=tied,
        on_behalf_of=given.on_behalf_of,
        report=report,
        excerpt=checking.build_excerpt(report, given.text),
        fault=fault,
        action=urls.SUBMIT_URL,
        check=urls.SUBMIT_CHECK_URL,
        reload=urls.SUBMIT_URL,
        request=about.id if about else "",
        version=about.version if about else 0,
        step=step,
        signed_in=get_visitor(request).account is not None,
        limit=responses.MAX_TEMPLATE,
    )


def _build_profile_choices(
    offered: tuple[str, ...], given: service.SubmissionInput, about: Request | None
) -> Any:
    names = [about.profile] if about else list(offered)
    pairs = [(name, PROFILES[name].title) for name in names]
    if len(pairs) > 1:
        pairs.insert(0, ("", "From the template"))
    return page_parts.build_choices(pairs, given.profile)


def _build_status_choices(profile: Profile, given: service.SubmissionInput, about: Request | None) -> Any:
    if about is not None and about.kind not in _ASKS_STATUS:
        own = str(about.status) if about.status in profile.policies else ""
        return page_parts.build_choices([(own, f"Unchanged: {STATUS_LABELS[about.status]}")], own)
    pairs = [(str(status), STATUS_LABELS[Status(status)]) for status in profile.policies]
    return page_parts.build_choices([("", "From the template"), *pairs], given.status)


def _build_form_fields(
    profile: Profile, given: service.SubmissionInput, report: Report | None, error: RegistryError | None
) -> Iterator[page_parts.FormField]:
    examples = FIELD_EXAMPLES.get(given.registry.id, {})
    for field in profile.all_fields:
        if field.id in _ASIDE:
            continue
        problems = () if report is None else _list_field_problems(report, field.id)
        is_wrong = error is not None and error.field == field.id
        if error is not None and is_wrong:
            problems = (_describe_error(error), *problems)
        yield page_parts.FormField(
            id=field.id,
            label=field.heading,
            value=given.fields.get(field.id, ""),
            required=field.required,
            clause=field.guideline,
            help=field.help if field in profile.fields else "Usually in the specification; optional here.",
            long=field.id not in _ONE_LINE_FIELDS,
            example=examples.get(field.id, ""),
            problems=problems,
            focus=is_wrong,
        )


def _describe_error(error: RegistryError) -> str:
    """Return an error and its hint as sentences."""
    said = f"{error.message[:1].upper()}{error.message[1:]}."
    return f"{said} {error.hint.rstrip('.')}." if error.hint else said


def _list_field_problems(report: Report, field: str) -> tuple[str, ...]:
    found = (finding for finding in report.findings if finding.field == field and finding.level == "error")
    return tuple(f"{finding.message} [{finding.clause}]" for finding in found)


#: the value of a form on the review page, which shows its error there
_REVIEW: Final = "review"
#: lines of a template that the review page numbers
_MOST_LINES: Final = 5_000
_QUEUE: Final = 200
#: role -> title, what is done there
_QUEUES: Final = {
    Role.EXPERT: ("Review queue", "Requests that wait for a Designated Expert, most urgent first."),
    Role.IANA: (
        "IANA queue",
        "Submitted requests. Check that all required fields are filled and all citations are correct.",
    ),
    Role.IESG: ("IESG queue", "Requests that wait for a decision of the IESG."),
}
_REVIEWERS: Final = (Role.EXPERT, Role.IANA, Role.IESG)
#: events that change the text have a separate form
_BY_FORM: Final = frozenset({EventKind.REVISE, EventKind.RESUBMIT})


@translate_page
async def requests_page(request: HTTPRequest) -> Response:
    """All requests, filtered by registry, state and registrant."""
    query = request.query_params
    registry = _require_known_value(query.get("registry", ""), REGISTRIES, "registry")
    state = _require_known_value(query.get("state", ""), [str(known) for known in RequestState], "state")
    visitor, mine = get_visitor(request), query.get("mine") == "1"
    registrant = require_access(visitor).id if mine else None
    page = await dependencies.get_store(request).requests(
        registry=registry or None,
        state=RequestState(state) if state else None,
        registrant=registrant,
        after=parse_cursor(query.get("after")),
        limit=parse_page_size(query.get("limit")),
    )
    states = _list_states(registry)
    more = {"registry": registry, "state": state, "mine": "1" if mine else None, "after": page.next}
    return responses.make_page_response(
        request,
        "requests.html",
        responses.build_page_frame(request, translate_text("Requests"), (urls.HOME_URL, "Home")),
        public_from=translate_text("A request is public from the day it is announced or submitted.")
        if RequestState.LIST_REVIEW in states
        else translate_text("A request is public from the day it is submitted."),
        rows=dependencies.filter_visible_requests(request, page.items),
        now=dependencies.get_current_time(request),
        registry_choices=page_parts.build_choices(
            [("", translate_text("Every registry")), *((row.id, row.title) for row in REGISTRIES.values())],
            registry,
        ),
        states=page_parts.build_choices(
            [
                ("", translate_text("Any state")),
                *((str(known), STATE_LABELS[known]) for known in states),
            ],
            state,
        ),
        mine="" if visitor.account is None or mine else urls.requests_url(mine=1),
        action=urls.requests_url(),
        next="" if page.next is None else urls.requests_url(**more),
    )


def _list_states(registry: str) -> tuple[RequestState, ...]:
    """Return the states that requests of a registry, or of all registries, can be in."""
    rows = [registry_of(registry)] if registry else REGISTRIES.values()
    used = {state for row in rows for name in row.profiles for state in list_request_states(PROFILES[name])}
    return tuple(state for state in STATE_LABELS if state in used)


def _require_known_value(said: str, known: Iterable[str], field: str) -> str:
    if said and said not in known:
        raise UnknownEntryError(
            f"{said!r} is not a known {field}", code=f"registry.unknown-{field}", field=field
        )
    return said


async def _list_request_actions(
    request: HTTPRequest,
    about: Request,
    entry: Entry | None,
    *,
    shown_on: str = "",
    form: responses.PageForm | None = None,
    error: RegistryError | None = None,
) -> tuple[page_parts.ActionView, ...]:
    kinds = tuple(
        kind for kind in dependencies.list_visitor_events(request, about, entry) if kind not in _BY_FORM
    )
    with use_language(DEFAULT):  # the forms of actions are English on every page
        views = build_actions(
            kinds,
            href=urls.request_events_url(about.id),
            version=about.version,
            about=about,
            fields=((field.id, field.label) for field in PROFILES[about.profile].fields),
            missing=(field for field, _ in service.list_missing_fields(about, entry)),
            outcomes=dependencies.preview_decisions(
                request, about, entry, (kind for kind in kinds if kind in DECISIONS)
            ),
        )
    views = tuple(replace(view, shown_on=shown_on) for view in views)
    return views if form is None or error is None else show_error(views, form, error)


def _describe_next_step(about: Request) -> str:
    said = describe_next_step(about)
    timeout = PROFILES[about.profile].expert_timeout
    if about.state in (RequestState.EXPERT_REVIEW, RequestState.MORE_REVIEW) and timeout is not None:
        more = translate_text("Without an explicit rejection within %(days)s days it goes on by time alone.")
        said += " " + more % {"days": timeout.days}
    return said


async def request_page(request: HTTPRequest) -> Response:
    """The public status of a request."""
    return await _make_request_response(request, await dependencies.find_request(request))


@translate_page
async def _make_request_response(
    request: HTTPRequest,
    about: Request,
    *,
    form: responses.PageForm | None = None,
    error: RegistryError | None = None,
) -> Response:
    """Return the page. `error` is why `form` was not accepted."""
    entry = await dependencies.get_store(request).entry(about.registry, about.name)
    records = await dependencies.load_request_history(request, about.id)
    part, earlier = page_parts.paginate_records(
        records, responses.parse_number(request.query_params.get("before"), "before")
    )
    names = await dependencies.load_actor_names(request, part) | await dependencies.load_account_names(
        request, _list_people(about)
    )
    final = about.state.is_final
    may_review = not final and _may_review(request, about)
    return responses.make_page_response(
        request,
        "request.html",
        responses.build_page_frame(
            request, f"{about.id}: {about.name}", (urls.HOME_URL, "Home"), (urls.requests_url(), "Requests")
        ),
        http_status=200 if error is None else _get_error_status(error),
        about=about,
        has_entry=entry is not None,
        final=final,
        missing=_list_missing_labels(about, entry) if about.state is RequestState.SUBMITTED else (),
        appeals=tuple(reversed(about.appeals)),
        appeal_end=find_appeal_deadline(about),
        now=dependencies.get_current_time(request),
        next=_describe_next_step(about),
        names=names,
        steps=page_parts.build_steps(about, records),
        fields=page_parts.build_field_cells(about.registry, about.fields),
        history=part,
        earlier=earlier,
        actions=await _list_request_actions(request, about, entry, form=form, error=error),
        may_edit=bool(_find_revision_step(request, about, entry)),
        may_review=may_review,
    )


def _list_people(about: Request) -> tuple[str, ...]:
    """Return the accounts that the page of a request names."""
    experts = (*filter(None, (about.expert,)), *sorted(about.temporary_experts), *sorted(about.recused))
    return (about.registrant, *experts, *(appeal.by for appeal in about.appeals))


def _may_review(request: HTTPRequest, about: Request) -> bool:
    """Report whether the visitor has a reviewer's role, or is a temporary expert for this request."""
    visitor = get_visitor(request)
    if visitor.account is not None and visitor.account.id in about.temporary_experts:
        return True
    return not visitor.list_roles(about.registry).isdisjoint(_REVIEWERS)


def _list_missing_labels(about: Request, entry: Entry | None) -> tuple[str, ...]:
    clause = PROFILES[about.profile].template_clause
    return tuple(f"{label} ({clause})" for _, label in service.list_missing_fields(about, entry))


async def post_request_event(request: HTTPRequest) -> Response:
    """POST: one event of a request, from a form with the version that it shows."""
    about = await dependencies.find_request(request)
    form = await responses.read_form(request)
    kind = parse_event_kind(form.get_text("kind"))
    expected = responses.parse_form_version(form)
    try:
        await dependencies.apply_event(
            request,
            kind,
            about.registry,
            about=about.id,
            name=about.name,
            data=parse_event_data(kind, form),
            expected=expected,
        )
    except RegistryError as error:
        require_correctable(request, form, error)
        page = _make_review_response if form.get_text("shown_on") == _REVIEW else _make_request_response
        return await page(request, await dependencies.find_request(request), form=form, error=error)
    return responses.redirect_to(urls.request_url(about.id), str(kind))


def parse_event_kind(said: str) -> EventKind:
    """The event of that id. Raises RegistryError."""
    try:
        return EventKind(said)
    except ValueError:
        raise RegistryError(f"{said!r} is not an event", code="registry.bad-data", field="kind") from None


async def review_page(request: HTTPRequest) -> Response:
    """GET: template and report side by side, for reviewers."""
    return await _make_review_response(request, await dependencies.find_request(request))


async def _make_review_response(
    request: HTTPRequest,
    about: Request,
    *,
    form: responses.PageForm | None = None,
    error: RegistryError | None = None,
) -> Response:
    """Return the page. `error` is why `form` was not accepted."""
    if not _may_review(request, about):
        require_access(get_visitor(request), registry=about.registry, roles=_REVIEWERS)
    entry = await dependencies.get_store(request).entry(about.registry, about.name)
    report, fault = await checking.check_for_page(
        request, service.fill_from_entry(checking.make_input_from_request(about), entry)
    )
    findings = () if report is None else report.findings
    names = await dependencies.load_account_names(request, (about.registrant,))
    lines = checking.split_lines(about.template)[:_MOST_LINES] if about.template else ()
    other = None if entry is None or about.id in entry.pending else entry
    queue = _find_queue_link(request, about)
    return responses.make_page_response(
        request,
        "review.html",
        responses.build_page_frame(
            request,
            f"Review of {about.id}",
            (urls.HOME_URL, "Home"),
            queue,
            (urls.request_url(about.id), about.id),
        ),
        http_status=200 if error is None else _get_error_status(error),
        about=about,
        registrant=names.get(about.registrant, about.registrant),
        now=dependencies.get_current_time(request),
        lines=lines,
        faults={finding.line for finding in findings if finding.line and finding.level is not Level.HINT},
        fields=page_parts.build_field_cells(about.registry, about.fields),
        missing=_list_missing_labels(about, entry),
        report=report,
        fault=fault,
        existing=other,
        actions=await _list_request_actions(request, about, entry, shown_on=_REVIEW, form=form, error=error),
    )


def _find_queue_link(request: HTTPRequest, about: Request) -> tuple[str, str]:
    """Return the queue of the visitor's role in this registry."""
    held = get_visitor(request).list_roles(about.registry)
    role = about.holder if about.holder in held and about.holder in _QUEUES else None
    role = role or next((role for role in _REVIEWERS if role in held), None)
    if role is None:
        # a temporary expert has no queue
        return urls.requests_url(), "Requests"
    return urls.queue_url(name_role(role)), apply_words(_QUEUES[role][0])


async def queue_page(request: HTTPRequest) -> Response:
    """GET: the requests that wait for a role, in the registries where the visitor has it."""
    role = parse_role(request.path_params["role"])
    if role not in _QUEUES:
        raise UnknownEntryError("no such queue", code="registry.unknown-queue", field="role")
    visitor = get_visitor(request)
    require_access(visitor)
    held = [name for name in REGISTRIES if role in visitor.list_roles(name)]
    if not held:
        require_access(visitor, registry=next(iter(REGISTRIES)), roles=(role,))
    found: list[Request] = []
    for registry in held:
        found += (
            await dependencies.get_store(request).requests(registry=registry, holder=role, limit=_QUEUE)
        ).items
    found.sort(key=lambda about: (about.due is None, about.due or about.since))
    now = dependencies.get_current_time(request)
    rows = [about for about in found if not about.state.is_final]
    title, intro = map(apply_words, _QUEUES[role])
    mine = responses.list_all_roles(request)
    return responses.make_page_response(
        request,
        "queue.html",
        responses.build_page_frame(request, title, (urls.HOME_URL, "Home")),
        role=str(role),
        title=title,
        intro=intro,
        rows=rows,
        redactable=[REGISTRIES[name] for name in held] if role is Role.IANA else [],
        overdue=sum(about.due is not None and about.due < now for about in rows),
        now=now,
        queues=tuple(
            page_parts.Link(
                href=urls.queue_url(name_role(queue_role)), text=apply_words(text), current=queue_role is role
            )
            for queue_role, (text, _) in _QUEUES.items()
            if queue_role in mine
        ),
    )


ROUTES: Final = (
    make_route(urls.SUBMIT_URL, {"GET": submit_page, "POST": save_form}),
    make_route(urls.SUBMIT_CHECK_URL, {"POST": check_form}),
    make_route("/requests", {"GET": requests_page}),
    make_route("/requests/{id}", {"GET": request_page}),
    make_route("/requests/{id}/edit", {"GET": edit_page}),
    make_route("/requests/{id}/review", {"GET": review_page}),
    make_route("/requests/{id}/events", {"POST": post_request_event}),
    make_route("/queue/{role}", {"GET": queue_page}),
)
