"""`onym registry decide` and `tick`: take a step of a procedure, and process due events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._input import pass_session
from onym.cli._output import Session
from onym.cli.commands.registry._common import (
    account_options,
    at_option,
    build_record,
    db_option,
    find_database,
    get_request,
    is_request_id,
    list_logins,
    open_store,
    parse_time,
    print_entry,
    print_request,
    registry_option,
    resolve_actor,
    run_async,
    utc_now,
)
from onym.errors import ConfigError, RefusalError, UsageError
from onym.registry.records import IANA_CLOCK, Event, EventKind
from onym.registry.registries import get_registry as registry_row
from onym.registry.service import apply_step

if TYPE_CHECKING:
    from onym.registry.store import Applied, Store
    from onym.server.settings import Settings

#: events that `decide_command` does not offer: others open requests and import rows, and `tick_command` does
#: the rest
_NOT_HERE: Final = frozenset(
    {
        EventKind.OPEN,
        EventKind.IMPORT,
        EventKind.REVIEW_TIMEOUT,
        EventKind.DRAFT_EXPIRED,
        EventKind.NAMESPACE_EXPIRED,
    }
)
_DECISIONS: Final = tuple(str(kind) for kind in EventKind if kind not in _NOT_HERE)
#: how often `tick_command` looks for due events, because an event may make others due
_ROUNDS: Final = 20
#: characters of --data
_MAX_DATA: Final = 1_000_000


@click.command("decide", short_help="Take a step of a procedure, such as approve or reject.")
@click.argument("target", metavar="REQUEST|NAME")
@click.argument("decision", type=click.Choice(_DECISIONS), metavar="DECISION")
@click.option("--reason", help="The reason, which is logged and sent to the registrant.")
@click.option(
    "--set", "members", metavar="MEMBER=TEXT", multiple=True, help="Another member of the event (repeatable)."
)
@click.option("--data", metavar="JSON", help="Members of the event as one JSON object.")
@click.option(
    "--expect", type=click.IntRange(0), metavar="VERSION", help="Fail unless the request has this version."
)
@registry_option
@account_options
@at_option
@db_option
@pass_session
def decide_command(
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
      IANA        check-complete reject-incomplete draft-published override
      expert      ask-more-review resume-review approve approve-as-provisional ask-ietf-review reject
      IESG        iesg-approve iesg-decline ask-upgrade reassign demand-changes
      namespaces  enter-safe-mode suspend reinstate revoke renew
      every role with an update: attach-security-note

    \b
    Examples:
      onym registry decide uri-schemes-17 check-complete --as iana
      onym registry decide uri-schemes-17 reject --as expert --reason "in use under another name"
      onym registry decide conti override --set remove=yes --reason "never used, asked for by its author"
      onym registry decide conti override --set undoes=423 --reason "it is used after all"
      onym registry decide agents renew -r ai-namespaces --set expires=2028-01-31
    """
    event_data = _build_event_data(reason, members, data)
    when = parse_time(at)

    async def work() -> tuple[Applied, dict[str, str]]:
        async with open_store(session, db) as store:
            event = await _build_event(store, target, EventKind(decision), registry, event_data)
            actor = await resolve_actor(store, event.registry, account=account, role=role)
            with _translate_missing_data():
                applied = await apply_step(store, event, actor, when, expected=expect, exact=at is not None)
            return applied, await list_logins(store)

    _print_applied(session, *run_async(work()), when)


@contextmanager
def _translate_missing_data() -> Iterator[None]:
    """Name the option for a missing member in the hint."""
    try:
        yield
    except RefusalError as error:
        if error.code == "registry.missing-data" and error.field is not None:
            error.hint = f"add {'--reason TEXT' if error.field == 'reason' else f'--set {error.field}=TEXT'}"
        raise


def _build_event_data(reason: str | None, members: Sequence[str], data: str | None) -> dict[str, Any]:
    """Build the members of the event: --data first, then --set and --reason. Raises UsageError."""
    try:
        found = json.loads(data[: _MAX_DATA + 1]) if data is not None else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            "--data is not a JSON object",
            code="usage.data",
            hint="""write it as in --data '{"add": ["ann"]}'""",
        )
    for member in members:
        name, equals, text = member.partition("=")
        if not name or not equals:
            raise UsageError(f'--set "{member}" is not MEMBER=TEXT', code="usage.data")
        found[name] = text
    return found if reason is None else {**found, "reason": reason}


async def _build_event(
    store: Store, target: str, kind: EventKind, registry: str, data: dict[str, Any]
) -> Event:
    if is_request_id(target):
        request = await get_request(store, target)
        return Event(kind=kind, registry=request.registry, request=request.id, name=request.name, data=data)
    return Event(kind=kind, registry=registry, name=registry_row(registry).normalize_name(target), data=data)


def _print_applied(session: Session, applied: Applied, names: dict[str, str], at: datetime) -> None:
    decision = applied.decision
    session.print_record(
        {
            "number": applied.record.number,
            "rule": decision.rule,
            "clause": decision.clause,
            "request": None if decision.request is None else build_record(decision.request),
            "entry": None if decision.entry is None else build_record(decision.entry),
            "removed": decision.removed,
        }
    )
    if session.as_json:
        return
    done = session.paint("done", "good")
    session.print_line(f"{done}: {applied.record.event.kind}, row {decision.rule} [{decision.clause}]")
    if decision.request is not None:
        print_request(session, decision.request, at)
    if decision.removed:
        session.print_line(f"{applied.record.event.name or ''} is no longer registered")
    elif decision.entry is not None:
        print_entry(session, decision.entry, names)


@click.command("tick", short_help="Process due timeouts and expiries.")
@at_option
@click.option("--dry-run", is_flag=True, help="List due events without processing them.")
@click.option("--send", is_flag=True, help="Send waiting mail afterwards, as `serve` does while it runs.")
@click.option("--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG.")
@db_option
@pass_session
def tick_command(
    session: Session, /, at: str | None, dry_run: bool, send: bool, config: str | None, db: str | None
) -> None:
    """Process due events: review timeouts, expired drafts and expired namespaces.

    Run it from cron or a systemd timer, once a day or more often. It is safe to run it more than once.
    Notices wait in the database until `serve` or --send sends them.

    \b
    Examples:
      onym registry tick
      onym registry tick --dry-run --at 2026-12-24
      onym registry tick --send --config /etc/onym/registry.toml
    """
    when = parse_time(at)
    if send and dry_run:
        raise UsageError("--send cannot be combined with --dry-run", code="usage.command-line")
    db = find_database(session, db, config)
    settings = _load_mail_settings(config) if send else None
    found = run_async(_run_tick(session, db, when, dry_run=dry_run))
    sent = None if settings is None else run_async(_send_mail(session, db, settings))
    session.print_record({"at": when.isoformat(), "dry_run": dry_run, "events": found, "sent": sent})
    session.print_table(
        [
            (row["event"]["kind"], row["event"].get("request") or row["event"]["name"], row["said"])
            for row in found
        ],
        styles=("name",),
    )
    if session.as_json:
        return
    if not found:
        session.print_note("nothing is due")
    if sent is not None:
        session.print_line(f"{sent} notices were processed; failed ones are retried")


def _load_mail_settings(config: str | None) -> Settings:
    """Return the service's settings. Raises ConfigError if they have no mail server."""
    from onym.server.settings import load_settings  # late: few commands need the web server's settings

    settings = load_settings(config)
    if settings.smtp is None:
        raise ConfigError(
            "no mail server is set",
            code="config.missing-setting",
            hint="add [smtp] with host and sender to the settings file",
        )
    return settings


async def _send_mail(session: Session, db: str | None, settings: Settings) -> int:
    """Send the waiting notices; return how many were processed."""
    from onym.server.mail import MailSender

    done = 0
    async with open_store(session, db) as store:
        sender = MailSender(settings, store, utc_now)
        while claimed := await sender.send_due():
            done += claimed
    return done


async def _run_tick(session: Session, db: str | None, at: datetime, *, dry_run: bool) -> list[dict[str, Any]]:
    async with open_store(session, db) as store:
        if dry_run:
            return [
                {"event": build_record(event), "said": "due"} for event in await store.list_due_events(at)
            ]
        return await _run_due_timers(store, at)


async def _run_due_timers(store: Store, at: datetime) -> list[dict[str, Any]]:
    """Process every due event, and those that become due; return each with its result."""
    found: list[dict[str, Any]] = []
    refused: list[Event] = []
    for _ in range(_ROUNDS):
        events = [event for event in await store.list_due_events(at) if event not in refused]
        if not events:
            break
        for event in events:
            done, said = await _run_timer(store, event, at)
            refused += [] if done else [event]
            found.append({"event": build_record(event), "said": said})
    return found


async def _run_timer(store: Store, event: Event, at: datetime) -> tuple[bool, str]:
    """Process one due event; return whether it was applied, and the result."""
    try:
        decision = (await store.apply(event, IANA_CLOCK, at)).decision
    except RefusalError as error:
        return False, f"no longer due: {error.message}"
    return True, f"row {decision.rule} [{decision.clause}]"
