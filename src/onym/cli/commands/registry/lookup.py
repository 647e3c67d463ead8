"""`onym registry show`, `search`, `status` and `review`: read the registry.

Without a database, `show` and `search` read the registry data that Onym ships.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._input import pass_session
from onym.cli._output import Session
from onym.cli.commands.registry._common import (
    at_option,
    build_entry_rows,
    build_record,
    build_request_rows,
    complete_name,
    db_option,
    find_database,
    list_logins,
    open_store,
    parse_time,
    print_entry,
    print_history,
    print_request,
    registry_option,
    run_async,
)
from onym.errors import UnknownEntryError, UsageError
from onym.registry.records import Entry, LogRecord, Request, RequestState, Role, Status
from onym.registry.registries import REGISTRIES
from onym.registry.registries import get_registry as registry_row

if TYPE_CHECKING:
    from onym.registry.iana import Snapshot

#: rows of a search without --limit
_ROWS: Final = 20
_MOST_ROWS: Final = 500
#: the end of the short form of a source; --json has the complete form
_ASIDE: Final = re.compile(r"[:;,] ")
#: states with a next step
_OPEN: Final = (
    RequestState.DRAFT,
    RequestState.LIST_REVIEW,
    RequestState.SUBMITTED,
    RequestState.EXPERT_REVIEW,
    RequestState.MORE_REVIEW,
    RequestState.IETF_REVIEW,
)


@click.command("show", short_help="Show one entry with its status, fields and history.")
@click.argument("name", shell_complete=complete_name)
@registry_option
@db_option
@pass_session
def show_command(session: Session, /, name: str, registry: str, db: str | None) -> None:
    """Show one entry with its status, fields and history. Without a database, the shipped data is used.

    \b
    Examples:
      onym registry show http
      onym registry show temp -r llm-parameters
      onym registry show --json --db registry.db llm
    """
    if find_database(session, db) is None:
        _show_shipped(session, registry, name)
    else:
        run_async(_show_own(session, db, registry, name))


def _show_shipped(session: Session, registry: str, name: str) -> None:
    from onym.registry.iana import load_builtin_snapshot

    facts = load_builtin_snapshot(registry)
    key = _normalize_name(registry, name)
    entry = facts.find(key)
    if entry is None:
        raise _make_unknown_error(
            registry, key, (entry.name for entry in facts.entries), elsewhere=_find_shipped_elsewhere
        )
    session.print_record({"entry": build_record(entry), "facts": _build_facts_record(facts)})
    if not session.as_json:
        print_entry(session, entry)
        session.print_note(_format_origin(facts))


async def _show_own(session: Session, db: str | None, registry: str, name: str) -> None:
    async with open_store(session, db) as store:
        key = _normalize_name(registry, name)
        entry = await store.entry(registry, key)
        if entry is None:
            asked = (await store.requests(registry=registry, name=key, limit=1)).items
            near = await store.search(registry, key[:1], _MOST_ROWS)
            raise _make_unknown_error(registry, key, (entry.name for entry in near), requests=asked)
        records = list(await store.history(registry, key))
        names = await list_logins(store)
    session.print_record(
        {"entry": build_record(entry), "history": [build_record(record) for record in records]}
    )
    if not session.as_json:
        print_entry(session, entry, names)
        print_history(session, records, names)


def _normalize_name(registry: str, name: str) -> str:
    """Return the name in the registry's form; of a URI, its scheme."""
    row = registry_row(registry)
    return row.normalize_name(name.partition(":")[0] if row.id == "uri-schemes" and ":" in name else name)


def _find_shipped_elsewhere(registry: str, name: str) -> str | None:
    """Return another shipped registry that has the name."""
    from onym.registry.iana import load_builtin_snapshot

    others = (other for other in REGISTRIES if other != registry)
    return next(
        (
            other
            for other in others
            if load_builtin_snapshot(other).find(_normalize_name(other, name)) is not None
        ),
        None,
    )


def _make_unknown_error(
    registry: str,
    name: str,
    names: Iterable[str],
    *,
    requests: Sequence[Request] = (),
    elsewhere: Callable[[str, str], str | None] = lambda registry, name: None,
) -> UnknownEntryError:
    row = registry_row(registry)
    return UnknownEntryError(
        f'no {row.noun} "{name}" is registered',
        code="registry.unknown-entry",
        field="name",
        hint=_suggest_next(registry, name, names, requests, elsewhere(registry, name)),
    )


def _suggest_next(
    registry: str, name: str, names: Iterable[str], requests: Sequence[Request], other: str | None
) -> str:
    """Return a hint for a name that is not registered."""
    from difflib import get_close_matches

    row = registry_row(registry)
    if requests:
        return f"the name was requested: onym registry status {requests[0].id}"
    if other is not None:
        return f"a {registry_row(other).noun} has this name: onym registry show {name} -r {other}"
    if len(name) > row.name_limit:
        return f"the name of a {row.noun} has at most {row.name_limit} characters [{row.limit_clause}]"
    if not row.is_valid_name(name):
        return f"the name of a {row.noun} must match this rule: {row.name_rule}"
    close = get_close_matches(name, names, n=4)
    if close:
        return f"similar names are {', '.join(close)}"
    option = "" if row.id == next(iter(REGISTRIES)) else f" -r {row.id}"
    return f"the name is free; to request it, run onym registry template{option}"


def _build_facts_record(facts: Snapshot) -> dict[str, Any]:
    return {"source": facts.source, "vintage": facts.vintage}


def _format_origin(facts: Snapshot) -> str:
    dated = f" of {facts.vintage}" if facts.vintage else ""
    source = _ASIDE.split(facts.source, maxsplit=1)[0]
    return f"data that Onym ships{dated} ({source}); use --db for your own registry"


@click.command("search", short_help="Find entries by name, description or reference.")
@click.argument("text", default="")
@registry_option
@click.option(
    "--status", "wanted", type=click.Choice([str(status) for status in Status]), help="Only this status."
)
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST_ROWS),
    default=_ROWS,
    show_default=True,
    help="Maximum number of rows.",
)
@db_option
@pass_session
def search_command(
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
    if find_database(session, db) is not None:
        found, facts = run_async(_search_own(session, db, registry, text, status, limit + 1)), None
    else:
        from onym.registry.iana import load_builtin_snapshot

        facts = load_builtin_snapshot(registry)
        found = rank_entries(facts.entries, text, status)
    _print_found(session, found[:limit], more=len(found) > limit, facts=facts)


async def _search_own(
    session: Session, db: str | None, registry: str, text: str, status: Status | None, limit: int
) -> list[Entry]:
    async with open_store(session, db) as store:
        if text and status is None:
            return list(await store.search(registry, text, limit))
        return list((await store.entries(registry, query=text, status=status, limit=limit)).items)


def rank_entries(entries: Iterable[Entry], text: str, status: Status | None) -> list[Entry]:
    """Return matching entries: equal names, names with the prefix, names with the text, other fields."""
    wanted = text.strip().casefold()
    found = []
    for entry in entries:
        if status is not None and entry.status is not status:
            continue
        rank = _rank_entry(entry, wanted)
        if rank is not None:
            found.append((rank, entry.name, entry))
    return [entry for _, _, entry in sorted(found, key=lambda match: match[:2])]


def _rank_entry(entry: Entry, wanted: str) -> int | None:
    name = entry.name.casefold()
    if name == wanted:
        return 0
    if name.startswith(wanted):
        return 1
    if wanted in name:
        return 2
    return 3 if any(wanted in value.casefold() for value in entry.fields.values()) else None


def _print_found(session: Session, found: list[Entry], *, more: bool, facts: Snapshot | None) -> None:
    record: dict[str, Any] = {"entries": [build_record(item) for item in found], "more": more}
    session.print_record(record if facts is None else {**record, "facts": _build_facts_record(facts)})
    session.print_table(build_entry_rows(found), styles=("name",))
    if session.as_json:
        return
    if not found:
        session.print_note("no entry matches")
    elif more:
        session.print_note("there are more entries; use --limit to see them")
    if facts is not None:
        session.print_note(_format_origin(facts))


@click.command("status", short_help="Show the state, holder and due date of a request.")
@click.argument("request")
@at_option
@db_option
@pass_session
def status_command(session: Session, /, request: str, at: str | None, db: str | None) -> None:
    """Show the state, holder, due date and history of REQUEST, which is an ID (uri-schemes-17) or a name.

    \b
    Examples:
      onym registry status uri-schemes-17
      onym registry status --json llm | jq '.requests[].holder'
    """
    when = parse_time(at)
    found, records, names = run_async(_load_status(session, db, request))
    session.print_record(
        {
            "requests": [
                {**build_record(item), "history": [build_record(line) for line in records[item.id]]}
                for item in found
            ]
        }
    )
    if session.as_json:
        return
    for number, item in enumerate(found):
        session.print_line() if number else None
        print_request(session, item, when)
        print_history(session, records[item.id], names)


async def _load_status(
    session: Session, db: str | None, request: str
) -> tuple[list[Request], dict[str, list[LogRecord]], dict[str, str]]:
    async with open_store(session, db) as store:
        one = await store.request(request)
        # parameters keep the case of their names; other names are stored in lower case
        names = () if one is not None else dict.fromkeys((request.strip(), request.strip().lower()))
        found = [] if one is None else [one]
        for name in names:
            found += (await store.requests(name=name)).items
        if not found:
            raise UnknownEntryError(
                f'there is no request "{request}", and no request for this name',
                code="registry.unknown-request",
                field="request",
                hint="onym registry review lists the open requests",
            )
        records = {item.id: list(await store.request_history(item.id)) for item in found}
        known = await list_logins(store)
    return found, records, known


@click.command("review", short_help="List open requests and who has the next step.")
@click.option("-r", "--registry", help="Only this registry.")
@click.option(
    "--for",
    "role",
    type=click.Choice([str(role) for role in Role if role is not Role.READER]),
    help="Only requests that wait for this role.",
)
@at_option
@db_option
@pass_session
def review_command(
    session: Session, /, registry: str | None, role: str | None, at: str | None, db: str | None
) -> None:
    """List open requests: what they request, their state, and who has the next step until when.

    \b
    Examples:
      onym registry review
      onym registry review --for expert
    """
    when = parse_time(at)
    if registry is not None:
        registry = registry_row(registry).id
    found = run_async(_list_open_requests(session, db, registry, None if role is None else Role(role)))
    session.print_record({"requests": [build_record(item) for item in found]})
    session.print_table(build_request_rows(found, when), styles=("name",))
    if not found and not session.as_json:
        session.print_note("there are no open requests")


async def _list_open_requests(
    session: Session, db: str | None, registry: str | None, role: Role | None
) -> list[Request]:
    found: list[Request] = []
    async with open_store(session, db) as store:
        for state in _OPEN:
            after = None
            while True:
                page = await store.requests(registry=registry, state=state, holder=role, after=after)
                found += page.items
                after = page.next
                if after is None:
                    break
    # the earliest due date first; requests without one follow, the oldest first
    return sorted(found, key=lambda request: (request.due is None, request.due or request.since, request.id))
