"""The registration form: checked while it is written, saved as a draft request, revised later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from onym.errors import RegistryError, UsageError
from onym.registry.profiles import PROFILES, Profile
from onym.registry.records import EMPTY, EventKind, Request, RequestKind, Status
from onym.registry.registries import REGISTRIES
from onym.registry.registries import registry as registry_of
from onym.server.registry import urls
from onym.server.registry.build.parts import choices, report_view
from onym.server.registry.checking import Given, Submission, check_given, given_status, read_for, with_row
from onym.server.registry.contexts import CheckResult, SubmitPage
from onym.server.registry.contexts.parts import FormField, ReportView
from onym.server.registry.desk import act, find_request, known_request, open_to, request_id, store
from onym.server.registry.form import MAX_TEMPLATE, Form, number, read_form
from onym.server.registry.render import chrome, environment, respond, see_other
from onym.server.registry.words import STATUS_LABELS
from onym.server.security import current, require
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

__all__ = ["check", "edit_page", "save", "submit_page"]

_PREFIX: Final = "field."
#: fields that are a line; all others are a box
_SHORT: Final = frozenset({"name", "status", "type", "expires", "anchor"})
#: fields that a choice of its own asks for
_ASIDE: Final = frozenset({"status"})
#: other kinds leave the entry's status as it is
_ASKS_STATUS: Final = frozenset({RequestKind.NEW, RequestKind.STATUS_CHANGE})
_STEPS: Final = {"revise": EventKind.REVISE, "resubmit": EventKind.RESUBMIT}


async def submit_page(request: HTTPRequest) -> Response:
    """GET: an empty form for a registry."""
    row = registry_of(request.query_params.get("registry") or "uri-schemes")
    name = request.query_params.get("name", "")[:100]
    given = Given(registry=row, fields={"name": name} if name else EMPTY)
    return _page(request, given, None)


async def edit_page(request: HTTPRequest) -> Response:
    """GET: the form over a request that its registrant may revise."""
    about = await find_request(request)
    require(current(request))
    step = await step_of(request, about)
    if not step:
        raise UsageError(
            f"{about.id} cannot be revised by you now",
            code="registry.not-allowed",
            hint="see its status page for what may be done",
        )
    return _page(request, _given_of(about), None, about=about, step=step)


async def step_of(request: HTTPRequest, about: Request) -> str:
    """revise or resubmit, whichever the engine allows; "" for neither."""
    entry = await store(request).entry(about.registry, about.name)
    allowed = open_to(request, about, entry)
    return next((name for name, kind in _STEPS.items() if kind in allowed), "")


def _given_of(about: Request) -> Given:
    return Given(
        registry=REGISTRIES[about.registry],
        text=about.template,
        fields={**about.fields, "name": about.name},
        profile=about.profile,
        status=str(about.status),
        on_behalf_of=about.on_behalf_of or "",
        update=about.kind != "new",
    )


def _given(form: Form, *, update: bool = False) -> Given:
    return Given(
        registry=registry_of(form.text("registry") or "uri-schemes"),
        text=form.text("template"),
        fields={
            name.removeprefix(_PREFIX): values[0] for name, values in form.items() if name.startswith(_PREFIX)
        },
        profile=form.text("profile"),
        status=form.text("status"),
        on_behalf_of=form.text("on_behalf_of").strip(),
        update=update,
    )


async def check(request: HTTPRequest) -> Response:
    """POST: the report, as a fragment for htmx, as JSON, or in the whole form. Nothing is saved."""
    form = await read_form(request)
    about = await known_request(request, form.text("request")) if form.text("request") else None
    given = _given(form, update=about is not None and about.kind != "new")
    entry = await store(request).entry(about.registry, about.name) if about and given.update else None
    report = await _report(request, with_row(given, entry))
    if request.headers.get("hx-request") == "true":
        # as in check.html, the report alone
        macros: Any = environment().get_template("parts/macros.html").module
        return Response(macros.report(report), media_type="text/html", headers={"cache-control": "no-store"})
    if "text/html" not in request.headers.get("accept", "text/html"):
        return respond(request, CheckResult(page=chrome(request, "Check"), report=report))
    return _page(request, given, report, about=about, step=form.text("step") if about else "open")


async def _report(request: HTTPRequest, given: Given) -> ReportView:
    if given.empty:
        return report_view(None, fault="Nothing to check yet: paste a template, or fill a field.")
    try:
        report = await check_given(request, given)
    except RegistryError as error:
        return report_view(None, fault=str(error))
    return report_view(report)


async def save(request: HTTPRequest) -> Response:
    """POST: open a draft request, or revise one. What cannot be read comes back with its faults."""
    form = await read_form(request)
    require(current(request))
    about = await known_request(request, form.text("request")) if form.text("request") else None
    given = _given(form, update=about is not None and about.kind != "new")
    try:
        submission = await read_for(request, given)
        if about is None:
            identifier = await _open(request, submission)
            return see_other(urls.request(identifier), "open")
        kind = _STEPS.get(form.text("step"), EventKind.REVISE)
        expected = number(form.text("version"), "version")
        await act(
            request, kind, about.registry, about=about.id, name=about.name,
            data=data_of(submission, about.kind), expected=expected,
        )  # fmt: skip
        return see_other(urls.request(about.id), str(kind))
    except RegistryError as error:
        report = report_view(None, fault=str(error))
        return _page(
            request, given, report, about=about, step=form.text("step") or "open", status=_status(error)
        )


def _status(error: RegistryError) -> int:
    from onym.server.problems import kind_of  # late: problems draws pages too

    return kind_of(error).status


def data_of(submission: Submission, kind: RequestKind) -> dict[str, Any]:
    """What OPEN, REVISE and RESUBMIT of such a request carry; a status where it asks for one."""
    fields = {key: text for key, text in submission.fields.items() if key != "status" and text.strip()}
    data: dict[str, Any] = {"fields": fields, "template": submission.given.text}
    status = given_status(submission)
    if status and kind in _ASKS_STATUS:
        data["status"] = status
    if submission.draft is not None:
        data["draft"] = submission.draft
    return data


async def _open(request: HTTPRequest, submission: Submission) -> str:
    row = submission.given.registry
    if not submission.name:
        raise _nameless(submission.profile)
    data = data_of(submission, RequestKind.NEW) | {"kind": "new", "profile": submission.profile.id}
    if submission.given.on_behalf_of:
        data["on_behalf_of"] = submission.given.on_behalf_of
    applied = await act(request, EventKind.OPEN, row.id, name=submission.name, data=data)
    return request_id(applied)


def _nameless(profile: Profile) -> RegistryError:
    return RegistryError(
        "the name is missing",
        code="registry.missing-data",
        field="name",
        clause=profile.template_clause,
        hint="fill the first field of the template",
    )


def _page(
    request: HTTPRequest,
    given: Given,
    report: ReportView | None,
    *,
    about: Request | None = None,
    step: str = "open",
    status: int = 200,
) -> Response:
    row = given.registry
    offered = services(request).settings.profiles_in(row)
    profile = PROFILES[given.profile if given.profile in row.profiles else offered[0]]
    title = f"Revise {about.id}" if about else f"Register a {row.noun}"
    crumb = (urls.request(about.id), about.id) if about else (urls.entries(row.id), row.title)
    context = SubmitPage(
        page=chrome(request, title, (urls.home, "Home"), crumb),
        registries=choices([(each.id, each.title) for each in REGISTRIES.values()], row.id),
        registry=row.id,
        noun=row.noun,
        profiles=_profiles(offered, given, about),
        statuses=_statuses(profile, given, about),
        text=given.text,
        fields=tuple(_fields(profile, given.fields, report)),
        on_behalf_of=given.on_behalf_of,
        report=report,
        action=urls.submit,
        check=urls.submit_check,
        reload=urls.submit,
        request=about.id if about else "",
        version=about.version if about else 0,
        step=step,
        signed_in=current(request).account is not None,
        limit=MAX_TEMPLATE,
    )
    return respond(request, context, status=status)


def _profiles(offered: tuple[str, ...], given: Given, about: Request | None) -> Any:
    names = [about.profile] if about else list(offered)
    pairs = [(name, PROFILES[name].title) for name in names]
    if len(pairs) > 1:
        pairs.insert(0, ("", "As the template's labels say"))
    return choices(pairs, given.profile)


def _statuses(profile: Profile, given: Given, about: Request | None) -> Any:
    if about is not None and about.kind not in _ASKS_STATUS:
        own = str(about.status) if about.status in profile.policies else ""
        return choices([(own, f"As it is: {STATUS_LABELS[about.status][0]}")], own)
    pairs = [(str(each), STATUS_LABELS[Status(each)][0]) for each in profile.policies]
    return choices([("", "As the template says"), *pairs], given.status)


def _fields(profile: Profile, given: Mapping[str, str], report: ReportView | None) -> Any:
    for each in (*profile.fields, *profile.elsewhere):
        if each.id in _ASIDE:
            continue
        problems = () if report is None else _problems(report, each.id)
        yield FormField(
            id=each.id,
            label=each.label[0].upper() + each.label[1:],
            value=given.get(each.id, ""),
            required=each.required,
            clause=each.guideline,
            help="" if each in profile.fields else "Belongs in the specification; may be given here.",
            long=each.id not in _SHORT,
            problems=problems,
        )


def _problems(report: ReportView, field: str) -> tuple[str, ...]:
    found = (each for each in report.findings if each.field == field and each.level == "error")
    return tuple(f"{each.message} [{each.clause}]" for each in found)
