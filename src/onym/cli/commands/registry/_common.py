"""What the commands of `onym registry` share: options, the store, the acting account, records and tables."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from onym.cli._output import Session, has_colour, is_terminal
from onym.common.text import escape_unprintable
from onym.errors import AccessError, StoreError, UnknownEntryError, UsageError
from onym.registry.accounts import get_registry_roles
from onym.registry.records import Actor, Entry, Event, LogRecord, Request, RequestState, Role
from onym.registry.registries import PROFILES, REGISTRIES, get_registry

if TYPE_CHECKING:
    from onym.accounts.records import Account
    from onym.registry.checks import Report
    from onym.registry.store import Store

_F = TypeVar("_F", bound=Callable[..., Any])
_Result = TypeVar("_Result")

#: variables that name the database, the first one set wins; the second is the service's own
DB_VARIABLES: Final = ("ONYM_REGISTRY_DB", "ONYM_REGISTRY_DATABASE")
#: the database that init makes where none is named
DEFAULT_DATABASE: Final = "onym-registry.sqlite"
#: names the file of the service's settings
CONFIG_VARIABLE: Final = "ONYM_REGISTRY_CONFIG"
#: entries or records asked of the store at once
PAGE_SIZE: Final = 500
_ACCOUNT_VARIABLE: Final = "ONYM_REGISTRY_ACCOUNT"
_REQUEST: Final = re.compile(rf"(?:{'|'.join(map(re.escape, REGISTRIES))})-[1-9][0-9]{{0,17}}")

db_option = click.option(
    "--db",
    metavar="PATH|URL",
    help="The registry's database: a SQLite file, or a postgresql:// URL. Default: ONYM_REGISTRY_DB, then "
    f"the settings' file, then {DEFAULT_DATABASE} in this folder.",
)

registry_option = click.option(
    "-r",
    "--registry",
    type=click.Choice(list(REGISTRIES)),
    default=next(iter(REGISTRIES)),
    show_default=True,
    help="Which of the registries.",
)

at_option = click.option(
    "--at",
    metavar="TIME",
    help="Act as if it were this time (ISO 8601, UTC), to rehearse: 2026-12-05T09:00Z",
)


def account_options(function: _F) -> _F:
    """Who acts: an account of the registry, and as which of its roles."""
    options = (
        click.option(
            "--account",
            metavar="LOGIN",
            help=f"Act as this account. Default: {_ACCOUNT_VARIABLE}, else the only account there is.",
        ),
        click.option(
            "--as",
            "role",
            type=click.Choice([str(role) for role in Role if role is not Role.READER]),
            help="Use this role of the account alone. Default: all that it holds.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the shipped registry that begin so, for the shell."""
    from onym.errors import OnymError
    from onym.registry.iana import load_builtin_snapshot

    try:
        entries = load_builtin_snapshot(ctx.params.get("registry") or next(iter(REGISTRIES))).entries
    except OnymError:
        return []
    return [entry.name for entry in entries if entry.name.startswith(incomplete.lower())]


def is_request_id(text: str) -> bool:
    """Is that the id of a request ("uri-schemes-17")?"""
    return _REQUEST.fullmatch(text) is not None


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def parse_time(text: str | None) -> datetime:
    """The time that `--at` says, else the present. Raises UsageError."""
    if text is None:
        return utc_now()
    try:
        value = datetime.fromisoformat(text)
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            "--at is no time of ISO 8601", code="usage.time", hint="as in --at 2026-12-05T09:00Z"
        ) from None


def find_database(session: Session, db: str | None, config: str | None = None) -> str | None:
    """Where the database is, None where nobody said; a password in it is masked from here on.

    `--db` says it, then a variable, then the service's settings, then a file of init's in this folder.
    """
    place = db or next((os.environ[name] for name in DB_VARIABLES if os.environ.get(name)), None)
    place = place or _load_configured_database(config)
    if place is None and Path(DEFAULT_DATABASE).is_file():
        place = DEFAULT_DATABASE
    if place is not None and "://" in place:
        _hide_password(session, place)
    return place


def _load_configured_database(config: str | None) -> str | None:
    """The database of the settings' file, where there is one and it names it. Raises ConfigError."""
    if config is None and not os.environ.get(CONFIG_VARIABLE):
        return None
    from onym.server.settings import Settings, load_settings

    database = load_settings(config).database.reveal()
    return None if database == Settings().database.reveal() else database


def _hide_password(session: Session, url: str) -> None:
    from onym.uri.secret import Secret

    authority = url.partition("://")[2].partition("/")[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    if password:
        session.secrets.append(Secret(password))


def require_database(session: Session, db: str | None) -> str:
    """Where the database is. Raises UsageError where nobody said which."""
    place = find_database(session, db)
    if place is None:
        raise UsageError(
            "this needs a registry of your own: no database was named",
            code="registry.no-database",
            hint="onym registry init --db registry.db makes one; then --db registry.db, or ONYM_REGISTRY_DB",
        )
    return place


@asynccontextmanager
async def open_store(session: Session, db: str | None, *, create: bool = False) -> AsyncIterator[Store]:
    """The store. Raises UsageError where nobody said which, StoreError where it cannot be used."""
    place = require_database(session, db)
    from onym.registry.store import Store  # late: SQLAlchemy takes longer than all the rest

    try:
        store = await Store.open(place, create=create)
    except StoreError as error:
        raise (_make_missing_error(place) if error.code == "registry.no-database" else error) from None
    async with store:
        yield store


def _make_missing_error(place: str) -> UsageError:
    """There is no database where the command line, or a variable, says."""
    error = UsageError(f"there is no registry in {place}", code="registry.no-database")
    # what to run next, instead of what the code alone would say
    vars(error)["command"] = f"onym registry init --db {shlex.quote(place)}"
    return error


def run_async(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


async def get_account(store: Store, login: str) -> Account:
    """The account of that login. Raises UnknownEntryError that names near ones."""
    account = await store.accounts.find_by_login(login.strip().lower())
    if account is not None:
        return account
    from difflib import get_close_matches

    close = get_close_matches(login, [account.login for account in await store.accounts.list()], n=3)
    raise UnknownEntryError(
        "there is no account of that login",
        code="accounts.unknown-account",
        field="account",
        hint=f"near ones: {', '.join(close)}" if close else "onym registry user list shows them",
    )


async def list_logins(store: Store) -> dict[str, str]:
    """Every account's login, by id."""
    found: list[Account] = []
    while part := await store.accounts.list(after=found[-1].login if found else ""):
        found += part
    return {account.id: account.login for account in found}


async def get_request(store: Store, identifier: str) -> Request:
    """The request of that id. Raises UnknownEntryError."""
    found = await store.request(identifier)
    if found is None:
        raise UnknownEntryError(
            "there is no such request",
            code="registry.unknown-request",
            field="request",
            hint="onym registry review lists the open ones",
        )
    return found


async def resolve_actor(store: Store, registry: str, *, account: str | None, role: str | None) -> Actor:
    """Who acts: the account that `--account` names, with all its roles or the one of `--as`.

    Whoever has an account is a registrant (RFC 7595 7.2). Raises AccessError, UnknownEntryError, UsageError.
    """
    login = account or os.environ.get(_ACCOUNT_VARIABLE)
    found = await _get_only_account(store) if login is None else await get_account(store, login)
    if found.disabled:
        raise AccessError("that account is disabled", code="registry.disabled", field="account")
    roles = get_registry_roles(found, registry) | {Role.REGISTRANT}
    if role is None:
        return Actor(id=found.id, roles=roles)
    if Role(role) not in roles:
        raise AccessError(
            f"{found.login} does not hold the role {role} in {registry}",
            code="registry.wrong-role",
            field="role",
            hint=f"onym registry user roles {found.login} --add {role} -r {registry}",
        )
    return Actor(id=found.id, roles=frozenset({Role(role)}))


async def _get_only_account(store: Store) -> Account:
    accounts = [account for account in await store.accounts.list() if not account.disabled]
    if len(accounts) != 1:
        raise UsageError(
            "say who acts" if accounts else "the registry has no account yet",
            code="registry.no-account",
            hint=f"--account LOGIN, or set {_ACCOUNT_VARIABLE}"
            if accounts
            else "onym registry user add LOGIN",
        )
    return accounts[0]


@contextmanager
def show_status(session: Session, text: str) -> Iterator[None]:
    """Something that moves while work goes on, on a terminal; else nothing."""
    if session.as_json or not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def show_counter(session: Session, text: str, total: int) -> Iterator[Callable[[int], object] | None]:
    """A bar that counts while work goes on, on a terminal; else None."""
    if session.as_json or not is_terminal(sys.stderr):
        yield None
        return
    from onym.cli._output import show_count

    with show_count(escape_unprintable(text), total) as tell:
        yield tell


#: whom a role means, in the RFCs' words
_WHO: Final = {
    Role.REGISTRANT: "the registrant",
    Role.IANA: "IANA",
    Role.EXPERT: "the Designated Expert",
    Role.IESG: "the IESG",
}
_ENDED: Final = {
    RequestState.APPROVED: "good",
    RequestState.TIMED_OUT: "good",
    RequestState.REJECTED: "bad",
    RequestState.WITHDRAWN: "bad",
}
#: labels of templates that are too long for a column
_HEADINGS: Final = {"applications": "Applications"}
#: characters of a text in a table
_SHORT: Final = 72


def build_record(value: Entry | Request | LogRecord | Event) -> dict[str, Any]:
    """The JSON form of the project, without the version of the form."""
    from onym.registry.codec import to_data

    return {name: member for name, member in to_data(value).items() if name != "v"}


def format_minute(at: datetime) -> str:
    """A time in UTC, to the minute."""
    return at.strftime("%Y-%m-%d %H:%MZ")


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _shorten_text(text: str) -> str:
    flat = _join_lines(text)
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"


def build_entry_rows(entries: Iterable[Entry]) -> list[tuple[str, str, str, str]]:
    """Rows for a table: name, status, reference, description."""
    return [
        (
            entry.name,
            str(entry.status),
            _shorten_text(entry.fields.get("reference", "")),
            _shorten_text(entry.fields.get("description", "")),
        )
        for entry in entries
    ]


def _map_headings(entry: Entry) -> dict[str, str]:
    """Field ids and what people call them: the registry's columns, then the templates' labels."""
    row = get_registry(entry.registry)
    found = {column.id: column.heading for column in row.columns} | _HEADINGS
    for identifier in row.profiles:
        for field in (*PROFILES[identifier].fields, *PROFILES[identifier].elsewhere):
            found.setdefault(field.id, field.label[:1].upper() + field.label[1:])
    return found


def print_entry(session: Session, entry: Entry, names: Mapping[str, str] | None = None) -> None:
    """One entry: what it is, its columns and fields, its notes. `names` are logins by id."""
    row = get_registry(entry.registry)
    name = session.paint(escape_unprintable(entry.spelling or entry.name), "name")
    status = session.paint(str(entry.status), "warning" if entry.pending else "good")
    session.print_line(f"{name}  {row.noun}, {status}")
    headings = _map_headings(entry)
    said = [
        (headings.get(name) or name.replace("_", " ").capitalize(), _join_lines(entry.fields[name]))
        for name in (*headings, *sorted(set(entry.fields) - set(headings)))
        if name not in ("name", "status") and entry.fields.get(name, "").strip()
    ]
    if entry.pending:
        said.append(
            ("Under review", f"{', '.join(entry.pending)}  (onym registry status {entry.pending[-1]})")
        )
    if entry.draft is not None:
        said.append(("Draft", f"{entry.draft.name}, expires {entry.draft.expires.isoformat()}"))
    if entry.expires is not None:
        said.append(("Expires", entry.expires.isoformat()))
    if entry.registered is not None:
        said.append(("Registered", format_minute(entry.registered)))
    if entry.updated is not None:
        said.append(("Updated", format_minute(entry.updated)))
    session.print_table(said, indent="  ", styles=("dim",))
    if entry.notes:
        session.print_line("\nnotes")
        known = names or {}
        rows = [
            (format_minute(note.at), note.kind, known.get(note.by, note.by), _join_lines(note.text))
            for note in entry.notes
        ]
        session.print_table(rows, indent="  ", styles=("dim",))


def print_history(session: Session, records: Sequence[LogRecord], names: dict[str, str]) -> None:
    """The timeline of an entry or a request: when, what, who, by which rule. `names` are logins by id."""
    if not records:
        return
    session.print_line("\nhistory")
    rows = []
    for record in records:
        event = record.event
        reason = event.data.get("reason")
        roles = ", ".join(sorted(str(role) for role in record.actor.roles - {Role.READER}))
        who = names.get(record.actor.id, record.actor.id)
        said = f"[{record.clause}]" + (f" {_shorten_text(reason)}" if isinstance(reason, str) else "")
        rows.append(
            (
                format_minute(record.at),
                str(event.kind),
                f"{who} ({roles})" if roles else who,
                record.rule,
                said,
            )
        )
    session.print_table(rows, indent="  ", styles=("dim", "name"))


def format_holder(request: Request, at: datetime) -> str:
    """Whose move it is and until when; "" at the end of the way."""
    if request.holder is None:
        return ""
    who = _WHO.get(request.holder, str(request.holder))
    if request.due is None:
        return who
    days = (request.due - at).days
    count = f"{abs(days)} day{'' if abs(days) == 1 else 's'}"
    left = f"{count} overdue" if days < 0 else "due today" if days == 0 else f"{count} left"
    return f"{who}, until {request.due.date().isoformat()} ({left})"


def print_request(session: Session, request: Request, at: datetime) -> None:
    """The status of one request: what is asked, where it stands, who holds it, until when."""
    state = session.paint(str(request.state), _ENDED.get(request.state, "warning"))
    session.print_line(f"{session.paint(request.id, 'name')}  {state}")
    said = [
        ("asks for", f"{request.kind}: {request.name}, {request.status}"),
        ("held by", format_holder(request, at)),
        ("since", format_minute(request.since)),
        ("procedure", PROFILES[request.profile].title),
        ("on behalf of", request.on_behalf_of or ""),
        ("list review", "" if request.announced is None else f"since {format_minute(request.announced)}"),
        ("archive", request.archive or ""),
        ("outcome", request.outcome or ""),
        ("reason", _join_lines(request.reason or "")),
    ]
    session.print_table([row for row in said if row[1]], indent="  ", styles=("dim",))


def build_request_rows(requests: Iterable[Request], at: datetime) -> list[tuple[str, ...]]:
    """Rows for a table: id, name, what is asked, state, who holds it and until when."""
    return [
        (
            request.id,
            request.name,
            f"{request.kind} {request.status}",
            str(request.state),
            format_holder(request, at),
        )
        for request in requests
    ]


def print_report(session: Session, report: Report) -> None:
    """What the checker found, or plainly that there are no errors."""
    from onym.registry.checks import as_text  # late: grammars and documents are not needed elsewhere

    session.print_line(as_text(report, colour=has_colour(sys.stdout)).rstrip())
