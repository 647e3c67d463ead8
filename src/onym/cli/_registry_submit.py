"""`onym registry template|submit`: an empty template, and the way from a filled one to a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._registry_base import (
    account_options,
    acting,
    all_entries,
    at_option,
    db_option,
    find_request,
    is_request,
    moment,
    opened,
    place_of,
    registry_option,
    run,
)
from onym.cli._registry_text import draw_report, draw_request, record_of
from onym.errors import RefusalError, URIError, UsageError
from onym.registry.profiles import PROFILES
from onym.registry.records import Actor, Entry, Event, EventKind, Request, RequestKind, RequestState, Status
from onym.registry.registries import REGISTRIES
from onym.registry.registries import registry as registry_row

if TYPE_CHECKING:
    from onym.cli._registry_draft import Draft
    from onym.registry.store import Applied, Store

__all__ = ["submit", "template"]


@click.command("template", short_help="Print an empty template to fill in.")
@registry_option
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="The procedure. Default: the registry's own."
)
@json_option
@click.pass_obj
def template(session: Session, /, registry: str, profile: str | None) -> None:
    """Print the empty template of a procedure; what belongs in each field is said on standard error.

    \b
    Examples:
      onym registry template > myscheme.txt
      onym registry template --profile rfc4395
      onym registry template -r llm-parameters
    """
    session.command = "registry template"
    from onym.cli._registry_draft import GUIDANCE, blank

    row = registry_row(registry)
    chosen = PROFILES[profile or row.default_profile]
    if chosen.id not in row.profiles:
        row = next(each for each in REGISTRIES.values() if chosen.id in each.profiles)
    guidance = {each.id: GUIDANCE.get(each.id, row.name_rule) for each in chosen.fields}
    session.say(blank(chosen).rstrip())
    session.record(
        {
            "profile": chosen.id,
            "template": blank(chosen),
            "fields": [
                {
                    "id": each.id,
                    "label": each.label,
                    "required": each.required,
                    "clause": each.clause,
                    "guideline": each.guideline,
                    "guidance": guidance[each.id],
                }
                for each in chosen.fields
            ],
        }
    )
    if session.as_json:
        return
    statuses = f". Status: {', '.join(chosen.status_words)}" if chosen.field("status") else ""
    session.complain(f"\n{chosen.title}{statuses}")
    for each in chosen.fields:
        optional = "" if each.required else " (may be left out)"
        session.complain(f"  {each.label}: {guidance[each.id]}{optional} [{each.guideline}]")
    session.complain(f"\nfill it in, then: onym registry submit --dry-run{_option(row.id)} FILE")


def _option(registry: str) -> str:
    """The option for a registry that is not the first."""
    return "" if registry == next(iter(REGISTRIES)) else f" -r {registry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options of `submit`."""

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
    #: did somebody name that time?
    exact: bool


@click.command("submit", short_help="Check a template or draft, and ask for registration.")
@click.argument("file", metavar="FILE|REQUEST")
@registry_option
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="The procedure. Default: the one the template fits."
)
@click.option("--status", metavar="STATUS", help="The status asked for. Default: the template's.")
@click.option(
    "--kind",
    type=click.Choice([str(each) for each in RequestKind]),
    default=str(RequestKind.NEW),
    show_default=True,
    help="What is asked for.",
)
@click.option("--name", help="Which template, where the file has several.")
@click.option("--on-behalf-of", metavar="WHO", help="Who invented it, where that is not you.")
@click.option("--archive", metavar="URL", help="Where its list review can be read; begins that review.")
@click.option("--request", "revises", metavar="ID", help="Correct this request instead of opening another.")
@click.option("--anyway", is_flag=True, help="Submit although the checker found errors.")
@click.option(
    "--draft", "keep_draft", is_flag=True, help="Open it and stop: a draft that can still be revised."
)
@click.option("--dry-run", is_flag=True, help="Check alone; needs no database.")
@account_options
@at_option
@db_option
@json_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    file: str,
    dry_run: bool,
    account: str | None,
    role: str | None,
    at: str | None,
    db: str | None,
    **options: Any,
) -> None:
    """Check FILE (a template, or a draft with one in it; - reads standard input), then ask for registration.

    With the id of a draft in place of FILE, that draft is submitted. Exit code 1 when the checker found
    errors, and nothing was submitted.

    \b
    Examples:
      onym registry template > myscheme.txt     (fill it in)
      onym registry submit --dry-run myscheme.txt
      onym registry submit --db registry.db --account ann myscheme.txt
      onym registry submit --archive https://mailarchive.ietf.org/arch/msg/uri-review/x uri-schemes-17
    """
    session = ctx.find_object(Session)
    assert session is not None  # noqa: S101 - the group always makes one
    session.command = "registry submit"
    asked = _Asked(at=moment(at), exact=at is not None, **options)
    _check_archive(asked.archive)
    who = {"account": account, "role": role}
    if is_request(file):
        run(_submit_draft(session, db, file, asked, who))
        return
    from onym.cli._registry_draft import read_draft

    draft = read_draft(
        file,
        asked.registry,
        profile=asked.profile,
        name=asked.name,
        kind="update" if asked.revises else asked.kind,
        entries=None if place_of(session, db) is None else run(_entries(session, db, asked.registry)),
    )
    if not session.as_json:
        draw_report(session, draft.report)
    if dry_run or not (draft.report.ok or asked.anyway):
        session.record({"report": _report_record(draft), "request": None})
        if not draft.report.ok and not dry_run:
            session.note("nothing was submitted: mend the errors, or add --anyway")
        elif draft.report.ok and not session.as_json:
            _tell_next(session, draft, asked)
        ctx.exit(exit_codes.OK if draft.report.ok else exit_codes.CHECK_FAILED)
    run(_submit_file(session, db, draft, asked, who))


def _tell_next(session: Session, draft: Draft, asked: _Asked) -> None:
    """Where a template that was only checked goes now."""
    wanted = Status(draft.data(asked.registry, kind=asked.kind, status=asked.status, on_behalf_of=None).get(
        "status", registry_row(asked.registry).default_status
    ).lower())  # fmt: skip
    review = draft.profile.list_review.get(wanted)
    if review is not None:
        must = "needs" if review.required else "should have"
        session.note(
            f"{wanted} {must} list review first [{review.clause}]: post it to uri-review@ietf.org; "
            f"{review.reasonable.days} days are reasonable"
        )
    iana = "to IANA: a mail to iana@iana.org; " if asked.registry == "uri-schemes" else ""
    session.note(
        f"to hand it in: {iana}to a registry of your own: onym registry submit{_option(asked.registry)} "
        f"{draft.source} --db DATABASE"
    )


async def _entries(session: Session, db: str | None, registry: str) -> dict[str, Entry]:
    """The entries of one's own registry, for the checks of names."""
    async with opened(session, db) as store:
        return {entry.name: entry for entry in await all_entries(store, registry)}


def _report_record(draft: Draft) -> dict[str, Any]:
    report = draft.report
    return {
        "source": report.source,
        "profile": report.profile,
        "scheme": report.scheme,
        "ok": report.ok,
        "findings": [each.as_dict() for each in report.findings],
    }


async def _submit_file(
    session: Session, db: str | None, draft: Draft, asked: _Asked, who: dict[str, Any]
) -> None:
    async with opened(session, db) as store:
        actor = await acting(store, asked.registry, **who)
        if asked.revises is None:
            request = await _open(store, actor, draft, asked)
        else:
            request = await _correct(store, actor, draft, asked)
        request = await _hand_in(store, actor, request, asked)
    _tell(session, request, asked.at, report=_report_record(draft))


async def _submit_draft(
    session: Session, db: str | None, identifier: str, asked: _Asked, who: dict[str, Any]
) -> None:
    async with opened(session, db) as store:
        request = await find_request(store, identifier)
        actor = await acting(store, request.registry, **who)
        _check_handed_in(request, actor, asked)
        request = await _hand_in(store, actor, request, asked)
    _tell(session, request, asked.at)


def _check_archive(url: str | None) -> None:
    """Raises UsageError for what is no https address."""
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
            "--archive is no https address",
            code="usage.archive",
            hint="where the message can be read: https://mailarchive.ietf.org/arch/msg/uri-review/...",
        )


def _check_handed_in(request: Request, actor: Actor, asked: _Asked) -> None:
    """Would what is asked happen? Whose request it is, the engine says. Raises RefusalError."""
    if asked.archive is not None and asked.archive != request.archive:
        if request.state is not RequestState.DRAFT:
            raise _announced(request)
    elif not asked.keep_draft and request.registrant == actor.id and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        raise RefusalError(
            f"nothing was handed in: {request.status} needs list review first",
            code="registry.not-allowed",
            clause=review.clause,
            hint="post it to uri-review@ietf.org, then onym registry submit "
            f"{request.id} --archive URL --draft; four weeks later, without --archive",
        )


def _announced(request: Request) -> RefusalError:
    waits = request.state is RequestState.LIST_REVIEW
    again = f"onym registry decide {request.id} revise, then the same again" if waits else None
    return RefusalError(
        f"--archive begins list review, and {request.id} is in {request.state} already",
        code="registry.not-allowed",
        hint=again and f"to correct the address: {again}",
    )


async def _open(store: Store, actor: Actor, draft: Draft, asked: _Asked) -> Request:
    event = Event(
        kind=EventKind.OPEN,
        registry=asked.registry,
        request=await store.next_request_id(asked.registry),
        name=draft.name,
        data=draft.data(
            asked.registry, kind=asked.kind, status=asked.status, on_behalf_of=asked.on_behalf_of
        ),
    )
    return _after(await store.apply(event, actor, asked.at, exact=asked.exact))


async def _correct(store: Store, actor: Actor, draft: Draft, asked: _Asked) -> Request:
    """A rejected request is handed in again, any other open one revised."""
    request = await find_request(store, asked.revises or "")
    if asked.archive is not None and request.state not in _WAITING:
        raise _announced(request)
    rejected = request.state is RequestState.REJECTED
    data = draft.data(request.registry, kind=str(request.kind), status=asked.status, on_behalf_of=None)
    return await _step(
        store,
        actor,
        request,
        EventKind.RESUBMIT if rejected else EventKind.REVISE,
        asked,
        {name: data[name] for name in ("fields", "template", "status", "draft") if name in data},
    )


async def _hand_in(store: Store, actor: Actor, request: Request, asked: _Asked) -> Request:
    """List review where it is named, then submission, unless the draft is to be kept."""
    if request.state not in _WAITING and asked.revises is not None:
        return request
    if asked.archive is not None and request.state is RequestState.DRAFT:
        request = await _step(store, actor, request, EventKind.ANNOUNCE, asked, {"archive": asked.archive})
    unreviewed = _needs_list_review(request) and request.registrant == actor.id
    if asked.keep_draft or unreviewed:
        return request
    return await _step(store, actor, request, EventKind.SUBMIT, asked, {})


#: before it is handed in
_WAITING: Final = (RequestState.DRAFT, RequestState.LIST_REVIEW)


def _needs_list_review(request: Request) -> bool:
    review = PROFILES[request.profile].list_review.get(request.status)
    return review is not None and review.required and request.announced is None


async def _step(
    store: Store, actor: Actor, request: Request, kind: EventKind, asked: _Asked, data: dict[str, Any]
) -> Request:
    event = Event(kind=kind, registry=request.registry, request=request.id, name=request.name, data=data)
    return _after(await store.apply(event, actor, asked.at, expected=request.version, exact=asked.exact))


def _after(applied: Applied) -> Request:
    request = applied.decision.request
    assert request is not None  # noqa: S101 - every event about a request gives one
    return request


def _tell(session: Session, request: Request, at: datetime, *, report: dict[str, Any] | None = None) -> None:
    session.record({"request": record_of(request), **({} if report is None else {"report": report})})
    if session.as_json:
        return
    draw_request(session, request, at)
    if request.state is RequestState.DRAFT and _needs_list_review(request):
        review = PROFILES[request.profile].list_review[request.status]
        session.note(
            f"{request.status} needs list review [{review.clause}]: post it to uri-review@ietf.org, then "
            f"onym registry submit {request.id} --archive URL"
        )
    elif request.state in (RequestState.DRAFT, RequestState.LIST_REVIEW):
        session.note(f"not handed in yet: onym registry submit {request.id}")
    else:
        _tell_review_time(session, request, at)
        session.note(f"handed in; onym registry status {request.id} says who has the next move")


def _tell_review_time(session: Session, request: Request, at: datetime) -> None:
    review = PROFILES[request.profile].list_review.get(request.status)
    if review is None or request.announced is None or at - request.announced >= review.reasonable:
        return
    days = (at - request.announced).days
    session.note(
        f"list review ran {days} of {review.reasonable.days} days [{review.clause}]; the expert is told"
    )
