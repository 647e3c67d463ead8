"""`onym registry show`, `search`, `status`, `review` and `statistics`: read the registry.

Without a database, `show` and `search` read the registry data that Onym ships.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._commands import make_command
from onym.cli._output import Session, select_fields
from onym.cli.commands.registry import _common
from onym.errors import UnknownEntryError, UsageError
from onym.registry.records import Entry, Request, RequestState, Role, Status
from onym.registry.registries import REGISTRIES, list_near_spellings
from onym.registry.registries import get_registry as registry_row

if TYPE_CHECKING:
    from onym.registry.iana import Snapshot
    from onym.registry.store import MonthCounts, Store

#: rows of a search without --limit
_ROWS: Final = 20
_MAX_ROWS: Final = 500
#: months that are shown; --json has more
_MONTHS: Final = 12
#: the end of the short form of a source; --json has the complete form
_ASIDE: Final = re.compile(r"[:;,] ")
#: fields in the rows of a search
_SHOWN: Final = ("reference", "description")
#: states with a next step
_OPEN: Final = (
    RequestState.DRAFT,
    RequestState.LIST_REVIEW,
    RequestState.SUBMITTED,
    RequestState.EXPERT_REVIEW,
    RequestState.MORE_REVIEW,
    RequestState.IETF_REVIEW,
)


@make_command("show", short_help="Show one entry with its status, fields and history.")
@click.argument("name", shell_complete=_common.complete_name)
@_common.registry_option
@_common.pass_database
async def show_command(session: Session, /, name: str, registry: str, db: str | None) -> None:
    """Show one entry with its status, fields and history. Without a database, the shipped data is used.

    \b
    Examples:
      onym registry show http
      onym registry show temp -r llm-parameters
      onym registry show --json --db registry.db llm
    """
    if _common.find_database(session, db) is None:
        _show_shipped(session, registry, name)
    else:
        await _show_own(session, db, registry, name)


def _show_shipped(session: Session, registry: str, name: str) -> None:
    from onym.registry.iana import load_builtin_snapshot

    snapshot = load_builtin_snapshot(registry)
    key = _normalize_name(registry, name)
    entry = snapshot.find(key)
    if entry is None:
        elsewhere = (
            other
            for other in REGISTRIES
            if other != registry and load_builtin_snapshot(other).find(_normalize_name(other, name))
        )
        raise _make_unknown_error(
            registry, key, (entry.name for entry in snapshot.entries), elsewhere=next(elsewhere, None)
        )
    session.print_record(
        {"entry": _common.build_record(entry), "facts": select_fields(snapshot, "source", "vintage")}
    )
    if not session.as_json:
        _common.print_entry(session, entry)
        session.print_note(_format_origin(snapshot))


async def _show_own(session: Session, db: str | None, registry: str, name: str) -> None:
    async with _common.open_store(session, db) as store:
        key = _normalize_name(registry, name)
        entry = await store.entry(registry, key)
        if entry is None:
            requests = (await store.requests(registry=registry, name=key, limit=1)).items
            similar = await store.search(registry, key[:1], _MAX_ROWS)
            raise _make_unknown_error(registry, key, (entry.name for entry in similar), requests=requests)
        records = list(await store.history(registry, key))
        names = await _common.list_logins(store)
    session.print_record(
        {
            "entry": _common.build_record(entry),
            "history": [_common.build_record(record) for record in records],
        }
    )
    if not session.as_json:
        _common.print_entry(session, entry, names)
        _common.print_history(session, records, names)


def _normalize_name(registry: str, name: str) -> str:
    """Return the name in the registry's form; of a URI, its scheme."""
    row = registry_row(registry)
    return row.normalize_name(name.partition(":")[0] if row.id == "uri-schemes" and ":" in name else name)


def _make_unknown_error(
    registry: str,
    name: str,
    names: Iterable[str],
    *,
    requests: Sequence[Request] = (),
    elsewhere: str | None = None,
) -> UnknownEntryError:
    """Build the error for a name that is not registered, with a hint."""
    from difflib import get_close_matches

    row = registry_row(registry)
    close = get_close_matches(name, names, n=4)
    if requests:
        hint = f"the name was requested: onym registry status {requests[0].id}"
    elif elsewhere is not None:
        hint = f"a {registry_row(elsewhere).noun} has this name: onym registry show {name} -r {elsewhere}"
    elif len(name) > row.name_limit:
        hint = f"the name of a {row.noun} has at most {row.name_limit} characters [{row.limit_clause}]"
    elif not row.is_valid_name(name):
        hint = f"the name of a {row.noun} must match this rule: {row.name_rule}"
    elif close:
        hint = f"similar names are {', '.join(close)}"
    else:
        option = _common.format_registry_option(row.id)
        hint = f"the name is free; to request it, run onym registry template{option}"
    message = f'no {row.noun} "{name}" is registered'
    return UnknownEntryError(message, code="registry.unknown-entry", field="name", hint=hint)


def _format_origin(snapshot: Snapshot) -> str:
    dated = f" of {snapshot.vintage}" if snapshot.vintage else ""
    source = _ASIDE.split(snapshot.source, maxsplit=1)[0]
    return f"data that Onym ships{dated} ({source}); use --db for your own registry"


@make_command("search", short_help="Find entries by name, description or reference.")
@click.argument("text", default="")
@_common.registry_option
@click.option("--status", "wanted", type=_common.STATUS_CHOICE, metavar="STATUS", help="Only this status.")
@click.option("--limit", type=click.IntRange(1, _MAX_ROWS), metavar="N", default=_ROWS, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@_common.pass_database
async def search_command(
    session: Session, /, text: str, registry: str, wanted: str | None, limit: int, db: str | None
) -> None:
    """Find entries with TEXT in the name, description or reference. Without TEXT, list all entries.

    \b
    Examples:
      onym registry search mail
      onym registry search --status historical --limit 50
      onym registry search --json --db registry.db llm
    """
    status = None if wanted is None else Status(wanted)
    statuses = registry_row(registry).statuses
    if status is not None and status not in statuses:
        raise UsageError(
            f"{registry} has no status {status}",
            code="usage.bad-status",
            hint=f"use one of {', '.join(map(str, statuses))}",
        )
    snapshot = None
    matches: Sequence[Entry]
    if _common.find_database(session, db) is None:
        from onym.registry.iana import load_builtin_snapshot

        snapshot = load_builtin_snapshot(registry)
        matches = rank_entries(snapshot.entries, text, status)
    else:
        async with _common.open_store(session, db) as store:
            if text and status is None:
                matches = await store.search(registry, text, limit + 1)
            else:
                matches = (await store.entries(registry, query=text, status=status, limit=limit + 1)).items
    _print_matches(session, matches[:limit], more=len(matches) > limit, snapshot=snapshot)


def rank_entries(entries: Iterable[Entry], text: str, status: Status | None) -> list[Entry]:
    """Return matching entries: equal names, names with the prefix, names with the text, other fields.

    If there are none, the result is the entries whose name is one letter away.
    """
    wanted = text.strip().casefold()
    offered = [entry for entry in entries if status in (None, entry.status)]
    ranked = []
    for entry in offered:
        rank = _rank_entry(entry, wanted)
        if rank is not None:
            ranked.append((rank, entry.name, entry))
    if not ranked:
        near = list_near_spellings(wanted)
        return [entry for entry in offered if entry.name.casefold() in near]
    return [entry for _, _, entry in sorted(ranked, key=lambda match: match[:2])]


def _rank_entry(entry: Entry, wanted: str) -> int | None:
    name = entry.name.casefold()
    if name == wanted:
        return 0
    if name.startswith(wanted):
        return 1
    if wanted in name:
        return 2
    return 3 if any(wanted in value.casefold() for value in entry.fields.values()) else None


def _print_matches(
    session: Session, entries: Sequence[Entry], *, more: bool, snapshot: Snapshot | None
) -> None:
    record: dict[str, Any] = {"entries": [_common.build_record(entry) for entry in entries], "more": more}
    if snapshot is not None:
        record["facts"] = select_fields(snapshot, "source", "vintage")
    session.print_record(record)
    rows = [
        (
            entry.name,
            str(entry.status),
            *(_common.shorten_text(entry.fields.get(name, "")) for name in _SHOWN),
        )
        for entry in entries
    ]
    session.print_table(rows, styles=("name",))
    if session.as_json:
        return
    if not entries:
        session.print_note("no entry matches")
    elif more:
        session.print_note("the list is cut; use --limit to see more entries")
    if snapshot is not None:
        session.print_note(_format_origin(snapshot))


@make_command("status", short_help="Show the state, holder and due date of a request.")
@click.argument("request")
@_common.at_option
@_common.pass_database
async def status_command(session: Session, /, request: str, at: str | None, db: str | None) -> None:
    """Show the state, holder, due date and history of REQUEST, which is an ID (uri-schemes-17) or a name.

    \b
    Examples:
      onym registry status uri-schemes-17
      onym registry status --json llm | jq '.requests[].holder'
    """
    when = _common.parse_time(at)
    async with _common.open_store(session, db) as store:
        by_id = await store.request(request)
        requests = [] if by_id is None else [by_id]
        # parameters keep the case of their names; other names are stored in lower case
        for name in () if requests else dict.fromkeys((request.strip(), request.strip().lower())):
            requests += (await store.requests(name=name)).items
        if not requests:
            raise _common.make_request_error(
                f'the registry has no request "{request}", as an ID or as a name'
            )
        histories = {item.id: list(await store.request_history(item.id)) for item in requests}
        logins = await _common.list_logins(store)
    session.print_record(
        {
            "requests": [
                {
                    **_common.build_record(item),
                    "history": [_common.build_record(record) for record in histories[item.id]],
                }
                for item in requests
            ]
        }
    )
    if session.as_json:
        return
    for number, item in enumerate(requests):
        session.print_line() if number else None
        _common.print_request(session, item, when, logins)
        _common.print_history(session, histories[item.id], logins)


@make_command("review", short_help="List open requests and who has the next step.")
@click.option("-r", "--registry", metavar="REGISTRY", help="Only this registry.")
@click.option("--for", "role", type=_common.ROLE_CHOICE, help="Only requests that wait for this role.")
@_common.at_option
@_common.pass_database
async def review_command(
    session: Session, /, registry: str | None, role: str | None, at: str | None, db: str | None
) -> None:
    """List open requests: what they request, their state, and who has the next step until when.

    \b
    Examples:
      onym registry review
      onym registry review --for expert
    """
    when = _common.parse_time(at)
    if registry is not None:
        registry = registry_row(registry).id
    holder = None if role is None else Role(role)
    requests: list[Request] = []
    async with _common.open_store(session, db) as store:
        for state in _OPEN:
            page = await store.requests(registry=registry, state=state, holder=holder)
            requests += page.items
            while page.next is not None:
                page = await store.requests(registry=registry, state=state, holder=holder, after=page.next)
                requests += page.items
    # the earliest due date first; requests without one follow, the oldest first
    requests.sort(key=lambda request: (request.due is None, request.due or request.since, request.id))
    session.print_record({"requests": [_common.build_record(request) for request in requests]})
    rows = [
        (request.id, request.name, f"{request.kind} {request.status}", str(request.state),
         _common.format_holder(request, when))
        for request in requests
    ]  # fmt: skip
    session.print_table(rows, styles=("name",))
    if not requests and not session.as_json:
        session.print_note("no requests are open")


@make_command("statistics", short_help="Count entries and requests, and the time of each stage.")
@_common.pass_store
async def statistics_command(session: Session, store: Store, /) -> None:
    """Count entries by status and requests by state, with the median time of each stage, and months.

    \b
    Examples:
      onym registry statistics
      onym registry statistics --json | jq '.registries[].months'
    """
    found = await store.compute_statistics()
    session.print_record(asdict(found) | {"at": None if found.at is None else found.at.isoformat()})
    if session.as_json:
        return
    for number, numbers in enumerate(found.registries):
        session.print_line() if number else None
        session.print_line(session.paint(numbers.registry, "name"))
        rows = [("entries", str(status), str(count)) for status, count in numbers.entries.items()]
        rows += [("requests", str(state), str(count)) for state, count in numbers.requests.items()]
        rows += [
            ("median time", time.stage, f"{timedelta(seconds=time.median_seconds)} ({time.count} ended)")
            for time in numbers.stages
        ]
        rows += [("month", month.month, _format_month(month)) for month in numbers.months[-_MONTHS:]]
        session.print_table(rows, indent="  ", styles=("dim",))


def _format_month(month: MonthCounts) -> str:
    entries = f"{month.added} new, {month.changed} changed entries"
    return f"{entries}; {month.opened} opened, {month.ended} ended requests"
