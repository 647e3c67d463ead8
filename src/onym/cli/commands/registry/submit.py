"""`onym registry template` and `submit`: an empty template, and a request from a filled one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._input import exit_with, pass_session, read_text_file
from onym.cli._output import Session
from onym.cli.commands.registry._common import (
    account_options,
    at_option,
    build_record,
    db_option,
    find_database,
    get_request,
    is_request_id,
    open_store,
    parse_time,
    print_report,
    print_request,
    registry_option,
    resolve_actor,
    run_async,
)
from onym.errors import RefusalError, URIError, UsageError
from onym.registry.records import Actor, Event, EventKind, Request, RequestKind, RequestState, Status
from onym.registry.registries import PROFILES, REGISTRIES, Profile
from onym.registry.registries import get_registry as registry_row
from onym.registry.service import (
    ParsedSubmission,
    SubmissionInput,
    apply_step,
    build_opening_data,
    build_request_data,
    check_submission,
    fill_from_entry,
    get_applied_request,
    get_requested_status,
    parse_submission,
)

if TYPE_CHECKING:
    from onym.registry.checks import Report
    from onym.registry.store import Store

#: bytes of the largest file; RFC 3986 has 140,000
MAX_FILE: Final = 4 * 1024 * 1024
_DAY: Final = timedelta(days=1)

#: the content of each field, on one line
GUIDANCE: Final = {
    "status": "one of the words above",
    "syntax": "the grammar (ABNF), or the section that contains it",
    "semantics": "what such a URI identifies, and the operations on it",
    "encoding": "the characters and the charset (UTF-8 unless there is a reason)",
    "applications": "the applications that create and read such URIs",
    "interoperability": "differences between implementations, or: none known",
    "security": "the risks: secrets, malicious URIs, privacy",
    "contact": "a person or role, with an address",
    "change_controller": "who may change the registration, with an address",
    "references": "the documents that define the scheme, with stable addresses",
    "reference": "the document that defines the parameter",
    "type": "the type of a value: int, float, bool, string",
    "description": "one sentence",
    "anchor": "the https origin of the namespace's discovery document",
    "keys": "thumbprints (RFC 7638) of its keys, one per line",
    "expires": "the last valid day, such as 2027-01-31",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """The submission in a file, and the checker's report on it."""

    source: str
    submission: ParsedSubmission
    report: Report


async def _check_file(session: Session, db: str | None, file: str, asked: _SubmitOptions) -> CheckedFile:
    """Read a template from a file or document, and check it. Raises TemplateError and UsageError."""
    row = registry_row(asked.registry)
    if asked.profile is not None and asked.profile not in row.profiles:
        raise UsageError(
            f"{asked.registry} has no procedure {asked.profile}",
            code="usage.profile",
            hint=f"use --profile {' or '.join(row.profiles)}",
        )
    given = SubmissionInput(
        registry=row,
        text=read_text_file(file, MAX_FILE),
        profile=asked.profile or "",
        status=asked.status or "",
        on_behalf_of=asked.on_behalf_of or "",
        template_name=asked.name or "",
        update=asked.revises is not None or asked.kind != RequestKind.NEW,
        request=asked.revises,
    )
    source = "standard input" if file == "-" else file
    submission = parse_submission(given, source=source)
    if find_database(session, db) is None:
        report = await check_submission(submission, None, source=source)
    else:
        async with open_store(session, db) as store:
            entry = await store.entry(row.id, submission.name)
            filled = fill_from_entry(given, entry)
            if filled is not given:
                submission = parse_submission(filled, source=source)
            report = await check_submission(submission, store, source=source)
    return CheckedFile(source=source, submission=submission, report=report)


def render_blank_template(profile: Profile) -> str:
    """Return the empty template of a profile: its labels in order, with space between them."""
    lines = []
    for field in profile.fields:
        label = field.label[:1].upper() + field.label[1:]
        value = (
            f" {profile.status_words[0]}" if field.id == "status" and len(profile.status_words) == 1 else ""
        )
        lines.append(f"{label}:{value}\n")
    return "\n".join(lines)


@click.command("template", short_help="Print an empty template to fill in.")
@registry_option
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="The procedure. Default: the registry's own."
)
@pass_session
def template_command(session: Session, /, registry: str, profile: str | None) -> None:
    """Print an empty template to fill in. Standard error explains each field.

    \b
    Examples:
      onym registry template > myscheme.txt
      onym registry template --profile rfc4395
      onym registry template -r llm-parameters
    """
    row = registry_row(registry)
    chosen = PROFILES[profile or row.default_profile]
    if chosen.id not in row.profiles:
        row = next(registry for registry in REGISTRIES.values() if chosen.id in registry.profiles)
    guidance = {field.id: GUIDANCE.get(field.id, row.name_rule) for field in chosen.fields}
    session.print_line(render_blank_template(chosen).rstrip())
    session.print_record(
        {
            "profile": chosen.id,
            "template": render_blank_template(chosen),
            "fields": [
                {
                    "id": field.id,
                    "label": field.label,
                    "required": field.required,
                    "clause": field.clause,
                    "guideline": field.guideline,
                    "guidance": guidance[field.id],
                }
                for field in chosen.fields
            ],
        }
    )
    if session.as_json:
        return
    statuses = f". Status: {', '.join(chosen.status_words)}" if chosen.find_field("status") else ""
    session.print_error(f"\n{chosen.title}{statuses}")
    for field in chosen.fields:
        optional = "" if field.required else " (optional)"
        session.print_error(f"  {field.label}: {guidance[field.id]}{optional} [{field.guideline}]")
    session.print_error(
        f"\nfill it in, then: onym registry submit --dry-run{_format_registry_option(row.id)} FILE"
    )


def _format_registry_option(registry: str) -> str:
    """Return the option for a registry that is not the default."""
    return "" if registry == next(iter(REGISTRIES)) else f" -r {registry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubmitOptions:
    """The options of `submit_command`."""

    registry: str
    profile: str | None
    status: str | None
    kind: str
    name: str | None
    on_behalf_of: str | None
    archive: str | None
    revises: str | None
    anyway: bool
    keep_draft: bool
    at: datetime
    #: whether `--at` was given
    exact: bool


@click.command("submit", short_help="Check a template or draft, and request registration.")
@click.argument("file", metavar="FILE|REQUEST")
@registry_option
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="The procedure. Default: the one that the template fits.",
)
@click.option("--status", metavar="STATUS", help="The requested status. Default: the template's.")
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in RequestKind]),
    default=str(RequestKind.NEW),
    show_default=True,
    help="The kind of request.",
)
@click.option("--name", help="The template to use, if the file has several.")
@click.option("--on-behalf-of", metavar="WHO", help="The author, if it is not you.")
@click.option("--archive", metavar="URL", help="The URL of the list review's message; starts that review.")
@click.option("--request", "revises", metavar="ID", help="Correct this request instead of opening another.")
@click.option("--anyway", is_flag=True, help="Submit even if the checker finds errors.")
@click.option(
    "--draft", "keep_draft", is_flag=True, help="Open the request as a draft, which you can still revise."
)
@click.option("--dry-run", is_flag=True, help="Only check the file; no database is needed.")
@account_options
@at_option
@db_option
@pass_session
def submit_command(
    session: Session,
    /,
    file: str,
    dry_run: bool,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
    **options: Any,
) -> None:
    """Check a template or a draft that contains one (- reads standard input), and request registration.

    Pass the ID of a draft request instead of FILE to submit that draft. The exit code is 1 if the checker
    found errors and nothing was submitted.

    \b
    Examples:
      onym registry template > myscheme.txt     (fill it in)
      onym registry submit --dry-run myscheme.txt
      onym registry submit --db registry.db --account ann myscheme.txt
      onym registry submit --archive https://mailarchive.ietf.org/arch/msg/uri-review/x uri-schemes-17
    """
    asked = _SubmitOptions(at=parse_time(at), exact=at is not None, **options)
    _require_archive_url(asked.archive)
    who = {"account": account, "role": role}
    if is_request_id(file):
        run_async(_submit_draft(session, db, file, asked, who))
        return

    draft = run_async(_check_file(session, db, file, asked))
    if not session.as_json:
        print_report(session, draft.report)
    if dry_run or not (draft.report.ok or asked.anyway):
        session.print_record({"report": _build_report_record(draft), "request": None})
        if not draft.report.ok and not dry_run:
            session.print_note("nothing was submitted; correct the errors, or add --anyway")
        elif draft.report.ok and not session.as_json:
            _print_next_steps(session, draft, asked)
        exit_with(exit_codes.OK if draft.report.ok else exit_codes.CHECK_FAILED)
    run_async(_submit_file(session, db, draft, asked, who))


def _print_next_steps(session: Session, draft: CheckedFile, asked: _SubmitOptions) -> None:
    """Print where to submit a template that was only checked."""
    submission = draft.submission
    status = get_requested_status(submission) or registry_row(asked.registry).default_status
    review = (
        submission.profile.list_review.get(Status(status)) if status in submission.profile.policies else None
    )
    if review is not None:
        must = "needs" if review.required else "should have"
        session.print_note(
            f"{status} {must} list review first [{review.clause}]: post it to uri-review@ietf.org; "
            f"{review.reasonable.days} days are reasonable"
        )
    iana = "to IANA by mail to iana@iana.org, or " if asked.registry == "uri-schemes" else ""
    session.print_note(
        f"submit it {iana}to your own registry with onym registry submit"
        f"{_format_registry_option(asked.registry)} {draft.source} --db DATABASE"
    )


def _build_report_record(draft: CheckedFile) -> dict[str, Any]:
    report = draft.report
    return {
        "source": report.source,
        "profile": report.profile,
        "scheme": report.scheme,
        "ok": report.ok,
        "findings": [finding.as_dict() for finding in report.findings],
    }


async def _submit_file(
    session: Session, db: str | None, draft: CheckedFile, asked: _SubmitOptions, who: dict[str, Any]
) -> None:
    async with open_store(session, db) as store:
        actor = await resolve_actor(store, asked.registry, **who)
        if asked.revises is None:
            request = await _open_request(store, actor, draft, asked)
        else:
            request = await _correct_request(store, actor, draft, asked)
        request = await _submit_request(store, actor, request, asked)
    _print_submission(session, request, asked.at, report=_build_report_record(draft))


async def _submit_draft(
    session: Session, db: str | None, identifier: str, asked: _SubmitOptions, who: dict[str, Any]
) -> None:
    async with open_store(session, db) as store:
        request = await get_request(store, identifier)
        actor = await resolve_actor(store, request.registry, **who)
        _require_submittable(request, actor, asked)
        request = await _submit_request(store, actor, request, asked)
    _print_submission(session, request, asked.at)


def _require_archive_url(url: str | None) -> None:
    """Raise UsageError unless `url` is an https URL."""
    if url is None:
        return
    from onym.uri import URI

    try:
        uri = URI.parse(url)
        good = uri.scheme == "https" and bool(uri.host)
    except URIError:
        good = False
    if not good:
        raise UsageError(
            f"--archive {url} is not an https URL",
            code="usage.archive",
            hint="use the URL of the message, as in https://mailarchive.ietf.org/arch/msg/uri-review/...",
        )


def _require_submittable(request: Request, actor: Actor, asked: _SubmitOptions) -> None:
    """Raise RefusalError if the options would have no effect. The engine checks whose request it is."""
    if asked.archive is not None and asked.archive != request.archive:
        if request.state is not RequestState.DRAFT:
            raise _make_announced_error(request)
    elif not asked.keep_draft and request.registrant == actor.id and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        raise RefusalError(
            f"nothing was submitted: {request.status} needs list review first",
            code="registry.not-allowed",
            clause=review.clause,
            hint="post it to uri-review@ietf.org, then run onym registry submit "
            f"{request.id} --archive URL --draft; four weeks later, run it without --archive",
        )


def _make_announced_error(request: Request) -> RefusalError:
    waits = request.state is RequestState.LIST_REVIEW
    again = f"run onym registry decide {request.id} revise, then the same command again" if waits else None
    return RefusalError(
        f"--archive starts list review, but {request.id} is already in {request.state}",
        code="registry.not-allowed",
        hint=again and f"to correct the URL, {again}",
    )


async def _open_request(store: Store, actor: Actor, draft: CheckedFile, asked: _SubmitOptions) -> Request:
    event = Event(
        kind=EventKind.OPEN,
        registry=asked.registry,
        request=await store.next_request_id(asked.registry),
        name=draft.submission.name,
        data=build_opening_data(draft.submission, RequestKind(asked.kind)),
    )
    return get_applied_request(await apply_step(store, event, actor, asked.at, exact=asked.exact))


async def _correct_request(store: Store, actor: Actor, draft: CheckedFile, asked: _SubmitOptions) -> Request:
    """Resubmit a rejected request, or revise any other open one."""
    request = await get_request(store, asked.revises or "")
    if asked.archive is not None and request.state not in _WAITING:
        raise _make_announced_error(request)
    rejected = request.state is RequestState.REJECTED
    return await _apply_step(
        store,
        actor,
        request,
        EventKind.RESUBMIT if rejected else EventKind.REVISE,
        asked,
        build_request_data(draft.submission, request.kind),
    )


async def _submit_request(store: Store, actor: Actor, request: Request, asked: _SubmitOptions) -> Request:
    """Announce the list review if a URL is given, then submit, unless the draft is to be kept."""
    if request.state not in _WAITING and asked.revises is not None:
        return request
    if asked.archive is not None and request.state is RequestState.DRAFT:
        request = await _apply_step(
            store, actor, request, EventKind.ANNOUNCE, asked, {"archive": asked.archive}
        )
    unreviewed = _needs_list_review(request) and request.registrant == actor.id
    if asked.keep_draft or unreviewed:
        return request
    return await _apply_step(store, actor, request, EventKind.SUBMIT, asked, {})


#: states before submission
_WAITING: Final = (RequestState.DRAFT, RequestState.LIST_REVIEW)


def _needs_list_review(request: Request) -> bool:
    review = PROFILES[request.profile].list_review.get(request.status)
    return review is not None and review.required and request.announced is None


async def _apply_step(
    store: Store, actor: Actor, request: Request, kind: EventKind, asked: _SubmitOptions, data: dict[str, Any]
) -> Request:
    event = Event(kind=kind, registry=request.registry, request=request.id, name=request.name, data=data)
    return get_applied_request(
        await apply_step(store, event, actor, asked.at, expected=request.version, exact=asked.exact)
    )


def _print_submission(
    session: Session, request: Request, at: datetime, *, report: dict[str, Any] | None = None
) -> None:
    session.print_record({"request": build_record(request), **({} if report is None else {"report": report})})
    if session.as_json:
        return
    print_request(session, request, at)
    if request.state is RequestState.DRAFT and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        session.print_note(
            f"{request.status} needs list review [{review.clause}]: post it to uri-review@ietf.org, then "
            f"onym registry submit {request.id} --archive URL"
        )
    elif request.state in (RequestState.DRAFT, RequestState.LIST_REVIEW):
        session.print_note(f"not submitted yet; run onym registry submit {request.id}")
    else:
        _print_review_time(session, request, at)
        session.print_note(f"submitted; onym registry status {request.id} shows who has the next step")


def _print_review_time(session: Session, request: Request, at: datetime) -> None:
    review = PROFILES[request.profile].list_review.get(request.status)
    if review is None or request.announced is None or at - request.announced >= review.reasonable:
        return
    days = (at - request.announced).days
    session.print_note(
        f"list review ran {days} of {review.reasonable.days} days [{review.clause}]; the expert is notified"
    )
