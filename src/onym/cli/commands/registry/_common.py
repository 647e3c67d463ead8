"""Shared parts of `onym registry`: options, the store, the acting account, records and tables."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from onym.accounts.records import ALL_REALMS
from onym.cli._commands import add_options, pass_session
from onym.cli._errors import complete_command
from onym.cli._output import Session, is_terminal
from onym.common.platform import get_user_name
from onym.common.text import escape_unprintable
from onym.errors import AccessError, StoreError, UnknownEntryError, UsageError
from onym.registry.records import (
    DEFAULT_QUOTA,
    Actor,
    Entry,
    Event,
    LogRecord,
    Quota,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
    get_registry_roles,
)
from onym.registry.registries import PROFILES, REGISTRIES, enter_catalog, get_registry
from onym.registry.words import apply_words, name_role, parse_role

if TYPE_CHECKING:
    from onym.accounts.records import Account, AuditRecord
    from onym.registry.checks import Report
    from onym.registry.store import Store

_P = ParamSpec("_P")

#: variables that name the database, in order of precedence; the second is the service's variable
DB_VARIABLES: Final = ("ONYM_REGISTRY_DB", "ONYM_REGISTRY_DATABASE")
#: the database that `init` creates without --db
DEFAULT_DATABASE: Final = "onym-registry.sqlite"
#: the variable for the service's settings file
CONFIG_VARIABLE: Final = "ONYM_REGISTRY_CONFIG"
#: entries or records in one query
PAGE_SIZE: Final = 500
#: characters of an operating system's user in the audit log
_MAX_OPERATOR: Final = 200
_ACCOUNT_VARIABLE: Final = "ONYM_REGISTRY_ACCOUNT"
_REQUEST: Final = re.compile(r"([a-z][a-z0-9-]{0,31})-[1-9][0-9]{0,17}")

db_option = click.option(
    "--db",
    metavar="PATH|URL",
    help="The registry's database: a SQLite file or a postgresql:// URL. Default: ONYM_REGISTRY_DB, then "
    f"the settings file, then {DEFAULT_DATABASE} in this folder.",
)

registry_option = click.option("-r", "--registry", metavar="REGISTRY", default="",
                               help=f"The registry. Default: {next(iter(REGISTRIES))}, or the first that "
                               "your definition has.")  # fmt: skip

at_option = click.option("--at", metavar="TIME",
                         help="Act as if it were this time (ISO 8601, UTC): 2026-12-05T09:00Z")  # fmt: skip


STATUS_CHOICE: Final = click.Choice([str(status) for status in Status])


class RoleChoice(click.Choice[str]):
    """The roles that an account can have. A defined registry's names of them are accepted too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the role as the log has it."""
        role = parse_role(str(value))
        return super().convert(value if role is None else str(role), param, ctx)


ROLE_CHOICE: Final = RoleChoice([str(role) for role in Role if role is not Role.READER])

#: adds `--account` and `--as` to a command
account_options = add_options(
    click.option("--account", metavar="LOGIN",
                 help=f"Act as this account. Default: {_ACCOUNT_VARIABLE}, or the only account."),
    click.option("--as", "role", type=ROLE_CHOICE,
                 help="Act only in this role. Default: every role of the account."),
)  # fmt: skip


def pass_database(
    function: Callable[Concatenate[Session, _P], Coroutine[Any, Any, None]],
) -> Callable[_P, None]:
    """Add `--db` and `--json` to a coroutine function, and run it with the session as a command."""

    @db_option
    @pass_session
    @wraps(function)
    def run(session: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        import asyncio  # late: asyncio is not needed to print help

        asyncio.run(_run_with_catalog(function, session, *args, **kwargs))

    return run


async def _run_with_catalog(
    function: Callable[..., Coroutine[Any, Any, None]], session: Session, /, *args: Any, **kwargs: Any
) -> None:
    """Run a command with the registries of its database in force, and the option `registry` resolved."""
    await _load_catalog(session, kwargs.get("db"), kwargs.get("config"))
    if "registry" in kwargs:
        kwargs["registry"] = resolve_registry(kwargs["registry"])
    await function(session, *args, **kwargs)


async def _load_catalog(session: Session, db: str | None, config: str | None) -> None:
    place = find_database(session, db, config)
    if place is None or ("://" not in place and not Path(place).is_file()):  # noqa: ASYNC240 - the only task
        return
    from onym.registry.store import Store  # late: SQLAlchemy takes most of the import time

    try:
        async with await Store.open(place) as store:
            enter_catalog(store.catalog)
    except StoreError as error:
        # `init` creates the tables; other commands report that they are missing
        if error.code not in ("registry.no-database", "registry.wrong-schema"):
            raise


def resolve_registry(registry: str | None) -> str | None:
    """Return the registry of an option; "" is the first in force, None is all. Raises UnknownEntryError."""
    if registry in (None, ALL_REALMS):
        return registry
    return next(iter(REGISTRIES)) if registry == "" else get_registry(str(registry)).id


def pass_store(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Do what `pass_database` does, and pass the open store in place of `db`."""

    @db_option
    @pass_session
    @wraps(function)
    def run(session: Session, /, *, db: str | None, **kwargs: Any) -> None:
        import asyncio  # late: asyncio is not needed to print help

        async def work() -> None:
            async with open_store(session, db) as store:
                if "registry" in kwargs:
                    kwargs["registry"] = resolve_registry(kwargs["registry"])
                await function(session, store, **kwargs)

        asyncio.run(work())

    return run


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a name from the registry data that Onym ships."""
    from onym.errors import OnymError
    from onym.registry.iana import load_builtin_snapshot

    try:
        entries = load_builtin_snapshot(ctx.params.get("registry") or next(iter(REGISTRIES))).entries
    except OnymError:
        return []
    return [entry.name for entry in entries if entry.name.startswith(incomplete.lower())]


def format_registry_option(registry: str) -> str:
    """Return the option for a registry that is not the default."""
    return "" if registry == next(iter(REGISTRIES)) else f" -r {registry}"


def is_request_id(text: str) -> bool:
    """Return whether the text is a request ID ("uri-schemes-17")."""
    match = _REQUEST.fullmatch(text)
    return match is not None and match[1] in REGISTRIES


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def get_operator() -> str:
    """Return "command line, USER", as the audit log names the operating system's user."""
    user = get_user_name()
    if user == "root" and os.environ.get("SUDO_USER"):
        user = f"root for {os.environ['SUDO_USER']}"
    return escape_unprintable(f"command line, {user}"[:_MAX_OPERATOR])


def make_audit_record(action: str, subject: str, *, account: str | None = None) -> AuditRecord:
    """Build the audit record of an act on the command line; `account` is the ID of the account that acts."""
    from onym.accounts.records import AuditRecord

    operator = get_operator()
    return AuditRecord(
        at=utc_now(),
        account=account or operator,
        action=action,
        subject=subject,
        outcome="ok",
        address=operator,
    )


def parse_time(text: str | None) -> datetime:
    """Return the time of `--at`, or the present time. Raises UsageError."""
    if text is None:
        return utc_now()
    try:
        value = datetime.fromisoformat(text)
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--at {text} is not an ISO 8601 time",
            code="usage.time",
            hint="write a time such as 2026-12-05T09:00Z",
        ) from None


def find_database(session: Session, db: str | None, config: str | None = None) -> str | None:
    """Return the path or URL of the database, or None if it is not set; mask the password of a URL.

    The order is `--db`, the variables, the service's settings, and the file that `init` creates in this
    folder.
    """
    place = db or next((os.environ[name] for name in DB_VARIABLES if os.environ.get(name)), None)
    place = place or _load_configured_database(config)
    if place is None and Path(DEFAULT_DATABASE).is_file():
        place = DEFAULT_DATABASE
    if place is not None and "://" in place:
        _hide_password(session, place)
    return place


def _load_configured_database(config: str | None) -> str | None:
    """Return the database that the settings file names, if any. Raises ConfigError."""
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


def require_database(session: Session, db: str | None, config: str | None = None) -> str:
    """Return the path or URL of the database. Raises UsageError if it is not set."""
    place = find_database(session, db, config)
    if place is None:
        raise UsageError(
            "this command needs your own registry, but no database is set",
            code="registry.no-database",
            hint="create one with onym registry init --db registry.db, then use --db or ONYM_REGISTRY_DB",
        )
    return place


@asynccontextmanager
async def open_store(session: Session, db: str | None, *, create: bool = False) -> AsyncIterator[Store]:
    """Open the store. Raises UsageError for a missing database, and StoreError for an unusable one."""
    place = require_database(session, db)
    session.print_detail("database", place)
    from onym.registry.store import Store  # late: SQLAlchemy takes most of the import time

    try:
        store = await Store.open(place, create=create)
    except StoreError as error:
        if error.code != "registry.no-database":
            raise
        missing = UsageError(f"{place} does not contain a registry", code="registry.no-database")
        # the command for the code has no path
        vars(missing)["command"] = f"onym registry init --db {shlex.quote(place)}"
        raise missing from None
    store.quota = _load_quota()
    async with store:
        enter_catalog(store.catalog)
        yield store


def _load_quota() -> Quota:
    """Return the quota of registrants in the service's settings file, or the default one."""
    if not os.environ.get(CONFIG_VARIABLE):
        return DEFAULT_QUOTA
    from onym.server.settings import load_settings

    return load_settings().quotas


async def get_account(store: Store, login: str) -> Account:
    """Return the account of a login. Raises UnknownEntryError that suggests similar logins."""
    account = await store.accounts.find_by_login(login.strip().lower())
    if account is not None:
        return account
    close = get_close_matches(login, [account.login for account in await store.accounts.list()], n=3)
    raise UnknownEntryError(
        f'the registry has no account "{login}"',
        code="accounts.unknown-account",
        field="account",
        hint=f"did you mean {', '.join(close)}?" if close else "onym registry user list shows the accounts",
    )


async def list_logins(store: Store) -> dict[str, str]:
    """Return every account's login by ID."""
    return {account.id: account.login for account in await list_accounts(store)}


async def list_accounts(store: Store) -> list[Account]:
    """Return every account, by login."""
    accounts: list[Account] = []
    while page := await store.accounts.list(after=accounts[-1].login if accounts else ""):
        accounts += page
    return accounts


async def get_request(store: Store, identifier: str) -> Request:
    """Return the request of an ID. Raises UnknownEntryError."""
    request = await store.request(identifier)
    if request is None:
        raise make_request_error(f'the registry has no request "{identifier}"')
    return request


def make_request_error(message: str) -> UnknownEntryError:
    """Build the error for a request that does not exist."""
    return UnknownEntryError(
        message,
        code="registry.unknown-request",
        field="request",
        hint="onym registry review lists the open requests",
    )


async def resolve_actor(store: Store, registry: str, *, account: str | None, role: str | None) -> Actor:
    """Return the acting account, with all its roles or only the one of `--as`.

    Every account has the role registrant (RFC 7595 7.2). Raises AccessError, UnknownEntryError and
    UsageError.
    """
    login = account or os.environ.get(_ACCOUNT_VARIABLE)
    acting = await _get_only_account(store) if login is None else await get_account(store, login)
    if acting.disabled:
        message = f"the account {acting.login} is disabled"
        raise AccessError(message, code="registry.disabled", field="account")
    roles = get_registry_roles(acting, registry) | {Role.REGISTRANT}
    if role is None:
        return Actor(id=acting.id, roles=roles)
    if Role(role) not in roles:
        raise AccessError(
            f"{acting.login} does not have the role {role} in {registry}",
            code="registry.wrong-role",
            field="role",
            hint=f"onym registry user roles {acting.login} --add {role} -r {registry}",
        )
    return Actor(id=acting.id, roles=frozenset({Role(role)}))


async def _get_only_account(store: Store) -> Account:
    accounts = [account for account in await store.accounts.list() if not account.disabled]
    if len(accounts) == 1:
        return accounts[0]
    message, hint = "the registry has no account yet", "add one with onym registry user add LOGIN"
    if accounts:
        message = "more than one account could act"
        hint = f"add --account LOGIN, or set {_ACCOUNT_VARIABLE}"
    raise UsageError(message, code="registry.no-account", hint=hint)


@contextmanager
def show_status(session: Session, text: str) -> Iterator[None]:
    """Show a spinner on a terminal."""
    if session.as_json or not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def show_counter(session: Session, text: str, total: int) -> Iterator[Callable[[int], object] | None]:
    """Show a counting bar on a terminal; otherwise yield None."""
    if session.as_json or not is_terminal(sys.stderr):
        yield None
        return
    from onym.cli._output import show_count

    with show_count(escape_unprintable(text), total) as advance:
        yield advance


#: the person or body of each role, in the terms of the RFCs
_HOLDERS: Final = {
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
#: shorter headings for long labels of templates
_HEADINGS: Final = {"applications": "Applications"}
#: characters of a text in a table cell
_SHORT: Final = 72


def build_record(value: Entry | Request | LogRecord | Event) -> dict[str, Any]:
    """Return the project's JSON form without its version."""
    from onym.registry.codec import to_data

    return {name: member for name, member in to_data(value).items() if name != "v"}


def format_minute(at: datetime) -> str:
    """Format a time in UTC, to the minute."""
    return at.strftime("%Y-%m-%d %H:%MZ")


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def shorten_text(text: str) -> str:
    """Return a text on one line, cut to the width of a table cell."""
    flat = _join_lines(text)
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"


def print_entry(session: Session, entry: Entry, names: Mapping[str, str] | None = None) -> None:
    """Print one entry: status, columns, fields and notes. `names` are logins by ID."""
    row = get_registry(entry.registry)
    name = session.paint(escape_unprintable(entry.spelling or entry.name), "name")
    status = session.paint(str(entry.status), "warning" if entry.pending else "good")
    session.print_line(f"{name}  {row.noun}, {status}")
    headings = row.map_headings() | _HEADINGS
    rows = [
        (headings.get(name) or name.replace("_", " ").capitalize(), _join_lines(entry.fields[name]))
        for name in (*headings, *sorted(set(entry.fields) - set(headings)))
        if name not in ("name", "status") and entry.fields.get(name, "").strip()
    ]
    if entry.pending:
        command = complete_command(session, f"onym registry status {entry.pending[-1]}")
        rows.append(("Under review", f"{', '.join(entry.pending)}  ({command})"))
    if entry.draft is not None:
        rows.append(("Draft", f"{entry.draft.name}, expires {entry.draft.expires.isoformat()}"))
    if entry.expires is not None:
        rows.append(("Expires", entry.expires.isoformat()))
    for heading, at in (("Registered", entry.registered), ("Updated", entry.updated)):
        if at is not None:
            rows.append((heading, format_minute(at)))
    session.print_table(rows, indent="  ", styles=("dim",))
    if entry.notes:
        session.print_line("\nnotes")
        known = names or {}
        notes = [
            (format_minute(note.at), note.kind, known.get(note.by, note.by), _join_lines(note.text))
            for note in entry.notes
        ]
        session.print_table(notes, indent="  ", styles=("dim",))


def print_history(session: Session, records: Sequence[LogRecord], names: dict[str, str]) -> None:
    """Print the history of an entry or a request: time, event, person and rule. `names` are logins by ID."""
    if not records:
        return
    session.print_line("\nhistory")
    rows = []
    for record in records:
        event = record.event
        reason = event.data.get("reason")
        roles = ", ".join(sorted(name_role(role) for role in record.actor.roles - {Role.READER}))
        login = names.get(record.actor.id, record.actor.id)
        actor = f"{login} ({roles})" if roles else login
        clause = f"[{record.clause}]" + (f" {shorten_text(reason)}" if isinstance(reason, str) else "")
        rows.append((format_minute(record.at), str(event.kind), actor, clause))
    session.print_table(rows, indent="  ", styles=("dim", "name"))


def format_holder(request: Request, at: datetime) -> str:
    """Return who has the next step and until when; "" after the last step."""
    if request.holder is None:
        return ""
    holder = apply_words(_HOLDERS.get(request.holder, str(request.holder)))
    if request.due is None:
        return holder
    days = (request.due - at).days
    count = f"{abs(days)} day{'' if abs(days) == 1 else 's'}"
    left = f"{count} overdue" if days < 0 else "due today" if days == 0 else f"{count} left"
    return f"{holder}, until {request.due.date().isoformat()} ({left})"


def _list_request_people(request: Request, names: Mapping[str, str]) -> list[tuple[str, str]]:
    expert = "" if request.expert is None else names.get(request.expert, request.expert)
    if request.expert in request.temporary_experts:
        expert += " (temporary)"
    recused = ", ".join(sorted(names.get(person, person) for person in request.recused))
    rows = [("expert", expert), ("recused", recused)]
    for appeal in request.appeals:
        until = f", answer due {appeal.due.date().isoformat()}" if appeal.decided is None else ""
        by = names.get(appeal.by, appeal.by)
        said = f"{appeal.level}, {appeal.state}: by {by}, against {appeal.against}{until}"
        rows += [("appeal", said), ("grounds", _join_lines(appeal.grounds))]
        rows.append(("answer", _join_lines(appeal.reason or "")))
    return rows


def print_request(
    session: Session, request: Request, at: datetime, names: Mapping[str, str] | None = None
) -> None:
    """Print the status of one request: kind, state, holder and due date. `names` are logins by ID."""
    state = session.paint(str(request.state), _ENDED.get(request.state, "warning"))
    session.print_line(f"{session.paint(request.id, 'name')}  {state}")
    rows = [
        ("asks for", f"{request.kind}: {request.name}, {request.status}"),
        ("held by", format_holder(request, at)),
        ("since", format_minute(request.since)),
        ("procedure", PROFILES[request.profile].title),
        ("on behalf of", request.on_behalf_of or ""),
        (
            apply_words("list review"),
            "" if request.announced is None else f"since {format_minute(request.announced)}",
        ),
        ("archive", request.archive or ""),
        ("messages", f"{len(request.messages)} in the list's archive" if request.messages else ""),
        *_list_request_people(request, names or {}),
        ("outcome", request.outcome or ""),
        ("reason", _join_lines(request.reason or "")),
        ("next", _name_correction(session, request)),
    ]
    session.print_table([row for row in rows if row[1]], indent="  ", styles=("dim",))


def _name_correction(session: Session, request: Request) -> str:
    """Return the command with which a registrant tries again after a rejection, or ""."""
    if request.state is not RequestState.REJECTED or request.kind is not RequestKind.NEW:
        return ""
    command = f"onym registry submit{format_registry_option(request.registry)} FILE"
    if request.outcome == "incomplete":
        return complete_command(session, f"{command} --request {request.id}")
    return f"{complete_command(session, command)} (a new request)"


def print_report(session: Session, report: Report) -> None:
    """Print the checker's findings."""
    from onym.registry.checks import as_text  # late: only this function needs grammars and documents

    session.print_line(as_text(report.without_questions(), colour=session.has_colour(sys.stdout)).rstrip())
