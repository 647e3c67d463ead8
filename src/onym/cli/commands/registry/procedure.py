"""`onym registry template`, `submit`, `decide` and `tick`: take a request through its procedure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._commands import exit_with, make_command
from onym.cli._errors import complete_command, complete_commands
from onym.cli._input import read_body, read_file, read_text_file
from onym.cli._output import Session, select_fields
from onym.cli.commands.registry import _common
from onym.errors import ConfigError, RefusalError, TemplateError, URIError, UsageError
from onym.registry import service
from onym.registry.engine import TIMER_EVENTS
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    Event,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Status,
)
from onym.registry.registries import PROFILES, REGISTRIES, Profile
from onym.registry.registries import get_registry as registry_row
from onym.registry.words import apply_words

if TYPE_CHECKING:
    from onym.registry.checks import Report
    from onym.registry.list_archive import RequestLinks
    from onym.registry.store import Applied, Store
    from onym.server.settings import Settings

#: bytes of the largest file; RFC 3986 has 140,000
MAX_FILE: Final = 4 * 1024 * 1024

_PROFILE: Final = click.Choice(list(PROFILES))

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


async def _check_file(
    session: Session, db: str | None, file: str, options: _SubmitOptions
) -> tuple[service.ParsedSubmission, Report]:
    """Read a template from a file or document, and check it. Raises TemplateError and UsageError."""
    row = registry_row(options.registry)
    if options.profile is not None and options.profile not in row.profiles:
        raise UsageError(
            f"{options.registry} has no procedure {options.profile}",
            code="usage.profile",
            hint=f"use --procedure {' or '.join(row.profiles)}",
        )
    form = service.SubmissionInput(
        registry=row,
        text=read_text_file(file, MAX_FILE),
        profile=options.profile or "",
        status=options.status or "",
        on_behalf_of=options.on_behalf_of or "",
        template_name=options.name or "",
        update=options.revises is not None or options.kind != RequestKind.NEW,
        request=options.revises,
    )
    source, today = "standard input" if file == "-" else file, options.at.date()
    own = _common.find_database(session, db) is not None
    try:
        submission = service.parse_submission(form, source=source)
    except TemplateError as error:
        if not own and error.code == "registry.no-template":
            session.print_note(
                f"no database is set, so the registry is {row.id}; for your own registry add --db DATABASE"
            )
        raise
    if not own:
        return submission, await service.check_submission(submission, None, today=today, source=source)
    async with _common.open_store(session, db) as store:
        filled = service.fill_from_entry(form, await store.entry(row.id, submission.name))
        if filled is not form:
            submission = service.parse_submission(filled, source=source)
        return submission, await service.check_submission(submission, store, today=today, source=source)


def render_blank_template(profile: Profile) -> str:
    """Return the empty template of a profile: its labels in order, with space between them."""
    lines = []
    for field in profile.fields:
        label = field.label[:1].upper() + field.label[1:]
        words = profile.status_words if field.id == "status" else ()
        lines.append(f"{label}: {words[0]}\n" if len(words) == 1 else f"{label}:\n")
    return "\n".join(lines)


@make_command("template", short_help="Print an empty template to fill in.")
@_common.registry_option
@click.option("--procedure", "profile", type=_PROFILE, help="The procedure. Default: the registry's own.")
@_common.pass_database
async def template_command(session: Session, /, registry: str, profile: str | None, db: str | None) -> None:
    """Print an empty template to fill in. Standard error explains each field.

    \b
    Examples:
      onym registry template > myscheme.txt
      onym registry template --procedure rfc4395
      onym registry template -r llm-parameters
    """
    row = registry_row(registry)
    chosen = PROFILES[profile or row.default_profile]
    if chosen.id not in row.profiles:
        row = next(registry for registry in REGISTRIES.values() if chosen.id in registry.profiles)
    known = {"status": GUIDANCE["status"]} if row.is_defined else GUIDANCE
    guidance = {
        field.id: field.help or (row.name_rule if field.id == "name" else known.get(field.id, ""))
        for field in chosen.fields
    }
    session.print_line(render_blank_template(chosen).rstrip())
    names = ("id", "label", "required", "clause", "guideline")
    fields = [{**select_fields(field, *names), "guidance": guidance[field.id]} for field in chosen.fields]
    session.print_record({"profile": chosen.id, "template": render_blank_template(chosen), "fields": fields})
    if session.as_json:
        return
    statuses = f". Status: {', '.join(chosen.status_words)}" if chosen.find_field("status") else ""
    session.print_error(f"\n{chosen.title}{statuses}")
    for field in chosen.fields:
        optional = "" if field.required else " (optional)"
        content = f": {guidance[field.id]}" if guidance[field.id] else ""
        session.print_error(f"  {field.label}{content}{optional} [{field.guideline}]")
    option = _common.format_registry_option(row.id)
    command = complete_commands(session, f"onym registry submit --dry-run{option} FILE")
    session.print_error(f"\nfill it in, then: {session.mask(command)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubmitOptions:
    """The options of `submit_command`; `exact` is whether `--at` was given."""

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
    exact: bool


@make_command("submit", short_help="Check a template or draft, and request registration.")
@click.argument("file", metavar="FILE|REQUEST")
@_common.registry_option
@click.option(
    "--procedure", "profile", type=_PROFILE, help="The procedure. Default: the one that the template fits."
)
@click.option("--status", metavar="STATUS", help="The requested status. Default: the template's.")
@click.option("--kind", type=click.Choice([str(kind) for kind in RequestKind]), default=str(RequestKind.NEW),
              show_default=True, help="The kind of request.")  # fmt: skip
@click.option("--name", help="The template to use, if the file has several.")
@click.option("--on-behalf-of", metavar="WHO", help="The author, if it is not you.")
@click.option("--archive", metavar="URL", help="The URL of the list review's message; starts that review.")
@click.option("--request", "revises", metavar="ID", help="Correct this request instead of opening another.")
@click.option("--anyway", is_flag=True, help="Submit even if the checker finds errors.")
@click.option("--draft", "keep_draft", is_flag=True, help="Open a draft request, which you can still revise.")
@click.option("--dry-run", is_flag=True, help="Only check the file; no database is needed.")
@_common.account_options
@_common.at_option
@_common.pass_database
async def submit_command(
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
      onym registry submit --archive https://lists.example/x uri-schemes-17
    """
    chosen = _SubmitOptions(at=_common.parse_time(at), exact=at is not None, **options)
    _require_archive_url(chosen.archive)
    if _common.is_request_id(file):
        async with _common.open_store(session, db) as store:
            request = await _common.get_request(store, file)
            actor = await _common.resolve_actor(store, request.registry, account=account, role=role)
            _require_submittable(request, actor, chosen)
            request = await _submit_request(store, actor, request, chosen)
            await store.audit.write(
                _common.make_audit_record("registry.submit", request.id, account=actor.id)
            )
        _print_submission(session, request, chosen.at)
        return

    submission, report = await _check_file(session, db, file, chosen)
    report_record = select_fields(report, "source", "profile", "scheme", "ok")
    report_record["findings"] = [finding.as_dict() for finding in report.findings]
    if not session.as_json:
        _common.print_report(session, report)
    if dry_run or not (report.ok or chosen.anyway):
        session.print_record({"report": report_record, "request": None})
        if not report.ok and not dry_run:
            session.print_note("nothing was submitted; correct the errors, or add --anyway")
        elif report.ok and not session.as_json:
            _print_next_steps(session, submission, report.source, chosen.registry, db)
        exit_with(exit_codes.OK if report.ok else exit_codes.CHECK_FAILED)
    async with _common.open_store(session, db) as store:
        actor = await _common.resolve_actor(store, chosen.registry, account=account, role=role)
        change = _open_request if chosen.revises is None else _correct_request
        request = await change(store, actor, submission, chosen)
        request = await _submit_request(store, actor, request, chosen)
        await store.audit.write(_common.make_audit_record("registry.submit", request.id, account=actor.id))
    _print_submission(session, request, chosen.at, report=report_record)


def _print_next_steps(
    session: Session, submission: service.ParsedSubmission, source: str, registry: str, db: str | None
) -> None:
    """Print where to submit a template that was only checked."""
    status = service.get_requested_status(submission) or registry_row(registry).default_status
    review = (
        submission.profile.list_review.get(Status(status)) if status in submission.profile.policies else None
    )
    if review is not None:
        must = "needs" if review.required else "should have"
        session.print_note(
            apply_words(
                f"{status} {must} list review first [{review.clause}]: post it to uri-review@ietf.org; "
                f"{review.reasonable.days} days are reasonable"
            )
        )
    iana = "to IANA by mail to iana@iana.org, or " if registry == "uri-schemes" else ""
    option = _common.format_registry_option(registry)
    database = " --db DATABASE" if _common.find_database(session, db) is None else ""
    command = complete_commands(session, f"onym registry submit{option} {source}{database}")
    session.print_note(f"submit it {iana}to your own registry with {command}")


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


def _require_submittable(request: Request, actor: Actor, options: _SubmitOptions) -> None:
    """Raise RefusalError if the options would have no effect. The engine checks whose request it is."""
    if options.archive is not None and options.archive != request.archive:
        if request.state is not RequestState.DRAFT:
            raise _make_announced_error(request)
    elif not options.keep_draft and request.registrant == actor.id and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        announce = _make_announce_command(request)
        later = f"{review.reasonable.days} days later, run onym registry submit {request.id}"
        raise RefusalError(
            apply_words(f"nothing was submitted: {request.status} needs list review first"),
            code="registry.not-allowed",
            clause=review.clause,
            hint=apply_words(f"post it to uri-review@ietf.org, then run {announce}; {later}"),
        )


def _make_announce_command(request: Request) -> str:
    """Return the command that begins list review; an operator's own registry needs no URL for it."""
    if registry_row(request.registry).is_defined:
        return f"onym registry decide {request.id} announce"
    return f"onym registry submit {request.id} --archive URL --draft"


def _make_announced_error(request: Request) -> RefusalError:
    waits = request.state is RequestState.LIST_REVIEW
    again = f"run onym registry decide {request.id} revise, then the same command again" if waits else None
    return RefusalError(
        f"--archive starts list review, but {request.id} is already in {request.state}",
        code="registry.not-allowed",
        hint=again and f"to correct the URL, {again}",
    )


async def _open_request(
    store: Store, actor: Actor, submission: service.ParsedSubmission, options: _SubmitOptions
) -> Request:
    event = Event(
        kind=EventKind.OPEN,
        registry=options.registry,
        request=await store.next_request_id(options.registry),
        name=submission.name,
        data=service.build_opening_data(submission, RequestKind(options.kind)),
    )
    return service.get_applied_request(
        await service.apply_step(store, event, actor, options.at, exact=options.exact)
    )


async def _correct_request(
    store: Store, actor: Actor, submission: service.ParsedSubmission, options: _SubmitOptions
) -> Request:
    """Resubmit a rejected request, or revise any other open one."""
    request = await _common.get_request(store, options.revises or "")
    if options.archive is not None and request.state not in _WAITING:
        raise _make_announced_error(request)
    kind = EventKind.RESUBMIT if request.state is RequestState.REJECTED else EventKind.REVISE
    data = service.build_request_data(submission, request.kind)
    return await _apply_step(store, actor, request, kind, options, **data)


async def _submit_request(store: Store, actor: Actor, request: Request, options: _SubmitOptions) -> Request:
    """Announce the list review if a URL is given, then submit, unless the draft is to be kept."""
    if request.state not in _WAITING and options.revises is not None:
        return request
    if options.archive is not None and request.state is RequestState.DRAFT:
        request = await _apply_step(
            store, actor, request, EventKind.ANNOUNCE, options, archive=options.archive
        )
    if options.keep_draft or (_needs_list_review(request) and request.registrant == actor.id):
        return request
    return await _apply_step(store, actor, request, EventKind.SUBMIT, options)


#: states before submission
_WAITING: Final = (RequestState.DRAFT, RequestState.LIST_REVIEW)


def _needs_list_review(request: Request) -> bool:
    review = PROFILES[request.profile].list_review.get(request.status)
    return review is not None and review.required and request.announced is None


async def _apply_step(
    store: Store, actor: Actor, request: Request, kind: EventKind, options: _SubmitOptions, **data: Any
) -> Request:
    event = Event(kind=kind, registry=request.registry, request=request.id, name=request.name, data=data)
    return service.get_applied_request(
        await service.apply_step(
            store, event, actor, options.at, expected=request.version, exact=options.exact
        )
    )


def _print_submission(
    session: Session, request: Request, at: datetime, *, report: dict[str, Any] | None = None
) -> None:
    record = {"request": _common.build_record(request)}
    session.print_record(record if report is None else {**record, "report": report})
    if session.as_json:
        return
    _common.print_request(session, request, at)
    if request.state is RequestState.DRAFT and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        needs = f"{request.status} needs list review [{review.clause}]: post it to uri-review@ietf.org"
        announce = complete_command(session, _make_announce_command(request))
        session.print_note(f"{apply_words(needs)}, then {announce}")
    elif request.state in _WAITING:
        submit = complete_command(session, f"onym registry submit {request.id}")
        session.print_note(f"not submitted yet; run {submit}")
    else:
        rules, began = PROFILES[request.profile].list_review.get(request.status), request.announced
        if rules is not None and began is not None and at - began < rules.reasonable:
            days = f"{(at - began).days} of {rules.reasonable.days} days"
            session.print_note(
                apply_words(f"list review ran {days} [{rules.clause}]; the expert is notified")
            )
        status = complete_command(session, f"onym registry status {request.id}")
        session.print_note(f"submitted; {status} shows who has the next step")


#: events that `decide_command` does not offer: others open requests, import rows and link messages, and
#: `tick_command` does the rest
_NOT_HERE: Final = frozenset({*TIMER_EVENTS, EventKind.OPEN, EventKind.IMPORT, EventKind.LINK_MESSAGES})
_DECISIONS: Final = tuple(str(kind) for kind in EventKind if kind not in _NOT_HERE)
#: how often `tick_command` looks for due events, because an event may make others due
_ROUNDS: Final = 20
#: characters of --data
_MAX_DATA: Final = 1_000_000


@make_command("decide", short_help="Take a step of a procedure, such as approve or reject.")
@click.argument("target", metavar="REQUEST|NAME")
@click.argument("decision", type=click.Choice(_DECISIONS), metavar="DECISION")
@click.option("--reason", help="The reason, which is logged and sent to the registrant.")
@click.option("--set", "members", metavar="MEMBER=TEXT", multiple=True,
              help="Another member of the event (repeatable).")  # fmt: skip
@click.option("-d", "--data", metavar="DATA",
              help="Members of the event: a JSON object, @FILE, or - for standard input.")  # fmt: skip
@click.option("--if-version", "expect", type=click.IntRange(0), metavar="VERSION",
              help="Fail unless the request has this version.")  # fmt: skip
@_common.registry_option
@_common.account_options
@_common.at_option
@_common.pass_database
async def decide_command(
    session: Session,
    /,
    target: str,
    decision: str,
    reason: str | None,
    members: Sequence[str],
    data: str | None,
    expect: int | None,
    registry: str,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
) -> None:
    """Take a step of a procedure for a request (uri-schemes-17) or for the entry NAME.

    You act as the account of --account, with its roles. If the procedure does not allow a step, the error
    names the clause and the possible steps. Steps:

    \b
      registrant  revise announce submit resubmit withdraw designate retire
      IANA        check-complete reject-incomplete assign-expert
                  draft-published override
      expert      ask-more-review resume-review approve approve-as-provisional
                  ask-ietf-review reject assign-expert recuse
      IESG        iesg-approve iesg-decline ask-upgrade reassign
                  demand-changes appoint-expert
      appeals     appeal appeal-to-iab withdraw-appeal uphold-appeal
                  dismiss-appeal
      namespaces  enter-safe-mode suspend reinstate revoke renew
      every role with an update: attach-security-note

    \b
    Examples:
      onym registry decide uri-schemes-17 check-complete --as iana
      onym registry decide uri-schemes-17 reject --as expert --reason "in use"
      onym registry decide uri-schemes-17 assign-expert --as iana --set expert=eve
      onym registry decide uri-schemes-17 appeal --reason "another draft was read"
      onym registry decide conti override --set remove=yes --reason "never used"
      onym registry decide conti override --set undoes=423 --reason "it is used"
      onym registry decide agents renew -r ai-namespaces --set expires=2028-01-31
    """
    event_data = _build_event_data(reason, members, data)
    when = _common.parse_time(at)
    kind = EventKind(decision)
    async with _common.open_store(session, db) as store:
        if _common.is_request_id(target):
            request = await _common.get_request(store, target)
            registry, name, identifier = request.registry, request.name, request.id
        else:
            name, identifier = registry_row(registry).normalize_name(target), None
        event = Event(kind=kind, registry=registry, request=identifier, name=name, data=event_data)
        actor = await _common.resolve_actor(store, registry, account=account, role=role)
        try:
            applied = await service.apply_step(
                store, event, actor, when, expected=expect, exact=at is not None
            )
        except RefusalError as error:
            if error.code == "registry.incomplete" and identifier is not None:
                again = complete_command(session, f"onym registry decide {identifier} reject-incomplete")
                error.hint = f"return it to its registrant: {again}"
            if error.code == "registry.missing-data" and error.field is not None:
                option = "--reason TEXT" if error.field == "reason" else f"--set {error.field}=TEXT"
                error.hint = f"add {option}"
            raise
        await store.audit.write(
            _common.make_audit_record(f"registry.{kind}", identifier or name or "", account=actor.id)
        )
        logins = await _common.list_logins(store)
    _print_applied(session, applied, logins, when)


def _build_event_data(reason: str | None, members: Sequence[str], data: str | None) -> dict[str, Any]:
    """Build the members of the event: --data first, then --set and --reason. Raises UsageError."""
    try:
        event_data = {} if data is None else json.loads(read_body(data, _MAX_DATA))
    except (ValueError, RecursionError):
        event_data = None
    if not isinstance(event_data, dict):
        raise UsageError(
            "--data is not a JSON object",
            code="usage.data",
            hint="""write it as in --data '{"add": ["ann"]}'""",
        )
    for member in members:
        name, equals, text = member.partition("=")
        if not name or not equals:
            raise UsageError(f'--set "{member}" is not MEMBER=TEXT', code="usage.data")
        event_data[name] = text
    return event_data if reason is None else {**event_data, "reason": reason}


def _print_applied(session: Session, applied: Applied, names: dict[str, str], at: datetime) -> None:
    decision = applied.decision
    session.print_record(
        {
            "number": applied.record.number,
            "rule": decision.rule,
            "clause": decision.clause,
            "request": None if decision.request is None else _common.build_record(decision.request),
            "entry": None if decision.entry is None else _common.build_record(decision.entry),
            "removed": decision.removed,
        }
    )
    if session.as_json:
        return
    done = session.paint("done", "good")
    session.print_line(f"{done}: {applied.record.event.kind}, rule {decision.rule} [{decision.clause}]")
    if decision.request is not None:
        _common.print_request(session, decision.request, at, names)
    if decision.removed:
        session.print_line(f"{applied.record.event.name or ''} was removed from the registry")
    elif decision.entry is not None:
        _common.print_entry(session, decision.entry, names)


@make_command("link-messages", short_help="Link the messages of a mailing list's archive.")
@click.argument("file", metavar="FILE")
@click.option("--link", metavar="URL", help="The address of a message without Archived-At: an https URL "
              "with {id} for its Message-ID.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List the messages without linking them.")
@_common.registry_option
@_common.account_options
@_common.at_option
@_common.pass_database
async def link_messages_command(
    session: Session,
    /,
    file: str,
    link: str | None,
    dry_run: bool,
    registry: str,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
) -> None:
    """Link the messages of a mailing list's archive (mbox or Atom) to the open requests that they are about.

    A message is about a request if it has the request's ID or answers such a message, if the request names it
    as its archive, or if its subject has the requested name and a word such as "scheme". The first message
    with the ID of a draft starts its list review. You can link an archive again: only new messages are added.

    \b
    Examples:
      onym registry link-messages --dry-run 2026-11.mbox
      onym registry link-messages --as iana 2026-11.mbox
      onym registry link-messages --link 'https://lists.example/{id}' old.mbox
    """
    from onym.registry.list_archive import MAX_BYTES  # late: mail and XML for this command alone

    when, data = _common.parse_time(at), read_file(file, MAX_BYTES)
    async with _common.open_store(session, db) as store:
        content, plans = await service.plan_archive_links(store, registry, data, link=link)
        actor = await _common.resolve_actor(store, registry, account=account, role=role)
        linked = [links.request for links in plans]
        if not dry_run:
            linked = [
                await _link_messages(store, actor, links, when, exact=at is not None) for links in plans
            ]
    records = [
        {
            "request": request.id,
            "state": str(request.state),
            "messages": [{"url": message.url, "subject": message.subject} for message in links.messages],
        }
        for request, links in zip(linked, plans, strict=True)
    ]
    session.print_record(
        {
            "messages": len(content.messages), "skipped": content.skipped, "dry_run": dry_run,
            "requests": records,
        }
    )  # fmt: skip
    if session.as_json:
        return
    for request, links in zip(linked, plans, strict=True):
        session.print_line(f"{session.paint(request.id, 'name')}  {request.state}")
        rows = [(_common.shorten_text(message.subject), message.url) for message in links.messages]
        session.print_table(rows, indent="  ")
    done = "would be linked" if dry_run else "linked"
    total = sum(len(links.messages) for links in plans)
    session.print_note(f"{len(content.messages)} messages read, {total} {done}")
    if content.skipped:
        session.print_note(
            f"{content.skipped} messages have no ID, date or address; add --link for addresses"
        )


async def _link_messages(
    store: Store, actor: Actor, links: RequestLinks, at: datetime, *, exact: bool
) -> Request:
    about = links.request
    event = Event(
        kind=EventKind.LINK_MESSAGES, registry=about.registry, request=about.id, name=about.name,
        data=links.event_data,
    )  # fmt: skip
    return service.get_applied_request(
        await service.apply_step(store, event, actor, at, expected=about.version, exact=exact)
    )


@make_command("tick", short_help="Process due timeouts and expiries.")
@_common.at_option
@click.option("--dry-run", is_flag=True, help="List due events without processing them.")
@click.option("--send", is_flag=True, help="Send waiting mail and webhooks afterwards, as `serve` does.")
@click.option("--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG.")
@_common.pass_database
async def tick_command(
    session: Session, /, at: str | None, dry_run: bool, send: bool, config: str | None, db: str | None
) -> None:
    """Process due events: review timeouts, reminders, expired drafts and expired namespaces.

    Run it from cron or a systemd timer, once a day or more often. It is safe to run it more than once.
    Notices wait in the database until `serve` or --send sends them.

    \b
    Examples:
      onym registry tick
      onym registry tick --dry-run --at 2026-12-24
      onym registry tick --send --config /etc/onym/registry.toml
    """
    when = _common.parse_time(at)
    if send and dry_run:
        raise UsageError("--send cannot be combined with --dry-run", code="usage.command-line")
    db = _common.find_database(session, db, config)
    settings = _load_sending_settings(config) if send else None
    events: list[dict[str, Any]]
    async with _common.open_store(session, db) as store:
        if dry_run:
            due = await store.list_due_events(when)
            events = [{"event": _common.build_record(event), "said": "due"} for event in due]
        else:
            events = await _run_due_timers(store, when)
    sent = None if settings is None else await _send_notices(session, db, settings)
    session.print_record({"at": when.isoformat(), "dry_run": dry_run, "events": events, "sent": sent})
    rows = [
        (row["event"]["kind"], row["event"].get("request") or row["event"]["name"], row["said"])
        for row in events
    ]
    session.print_table(rows, styles=("name",))
    if session.as_json:
        return
    if not events:
        session.print_note("nothing is due")
    if sent is not None:
        session.print_line(f"{sent} notices were processed; failed ones are retried")


def _load_sending_settings(config: str | None) -> Settings:
    """Return the service's settings. Raises ConfigError if they have no mail server and no webhook."""
    from onym.server.settings import load_settings  # late: few commands need the web server's settings

    settings = load_settings(config)
    if settings.smtp is None and not settings.webhooks:
        raise ConfigError(
            "no mail server and no webhook is set",
            code="config.missing-setting",
            hint="add [smtp] with host and sender, or [[webhooks]], to the settings file",
        )
    return settings


async def _send_notices(session: Session, db: str | None, settings: Settings) -> int:
    """Send waiting mail and webhooks; return how many notices were processed."""
    from onym.server.app import list_senders

    done = 0
    async with _common.open_store(session, db) as store:
        for sender in list_senders(settings, store, _common.utc_now):
            while claimed := await sender.send_due():
                done += claimed
    return done


async def _run_due_timers(store: Store, at: datetime) -> list[dict[str, Any]]:
    """Process every due event, and those that become due; return each with its result."""
    results: list[dict[str, Any]] = []
    refused: list[Event] = []
    for _ in range(_ROUNDS):
        events = [event for event in await store.list_due_events(at) if event not in refused]
        if not events:
            break
        for event in events:
            try:
                decision = (await store.apply(event, IANA_CLOCK, at)).decision
                result = f"rule {decision.rule} [{decision.clause}]"
            except RefusalError as error:
                refused.append(event)
                result = f"no longer due: {error.message}"
            results.append({"event": _common.build_record(event), "said": result})
    return results
