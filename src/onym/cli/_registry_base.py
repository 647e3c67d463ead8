"""What the commands of `onym registry` share: the database, who acts, the time, and running coroutines."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from onym.cli._output import Session, is_terminal
from onym.cli._text import printable
from onym.errors import AccessError, StoreError, UnknownEntryError, UsageError
from onym.registry.records import Actor, Role
from onym.registry.registries import REGISTRIES

if TYPE_CHECKING:
    from onym.registry.accounts import Account
    from onym.registry.records import Entry, Request
    from onym.registry.store import Store

__all__ = [
    "HERE",
    "PAGE",
    "account_options",
    "acting",
    "all_entries",
    "at_option",
    "complete",
    "counted",
    "db_option",
    "find_account",
    "find_request",
    "is_request",
    "logins",
    "moment",
    "needed_place",
    "now",
    "opened",
    "place_of",
    "registry_option",
    "run",
    "working",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_Result = TypeVar("_Result")

#: variables that name the database, the first one set wins; the second is the service's own
DB_VARIABLES: Final = ("ONYM_REGISTRY_DB", "ONYM_REGISTRY_DATABASE")
#: the database that init makes where none is named
HERE: Final = "onym-registry.sqlite"
#: names the file of the service's settings
CONFIG_VARIABLE: Final = "ONYM_REGISTRY_CONFIG"
#: entries or records asked of the store at once
PAGE: Final = 500
_ACCOUNT_VARIABLE: Final = "ONYM_REGISTRY_ACCOUNT"
_REQUEST: Final = re.compile(rf"(?:{'|'.join(map(re.escape, REGISTRIES))})-[1-9][0-9]{{0,17}}")

db_option = click.option(
    "--db",
    metavar="PATH|URL",
    help="The registry's database: a SQLite file, or a postgresql:// URL. Default: ONYM_REGISTRY_DB, then "
    f"the settings' file, then {HERE} in this folder.",
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
            type=click.Choice([str(each) for each in Role if each is not Role.READER]),
            help="Use this role of the account alone. Default: all that it holds.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the shipped registry that begin so, for the shell."""
    from onym.errors import OnymError
    from onym.registry.iana import builtin

    try:
        entries = builtin(ctx.params.get("registry") or next(iter(REGISTRIES))).entries
    except OnymError:
        return []
    return [entry.name for entry in entries if entry.name.startswith(incomplete.lower())]


def is_request(text: str) -> bool:
    """Is that the id of a request ("uri-schemes-17")?"""
    return _REQUEST.fullmatch(text) is not None


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def moment(text: str | None) -> datetime:
    """The time that `--at` says, else the present. Raises UsageError."""
    if text is None:
        return now()
    try:
        value = datetime.fromisoformat(text)
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            "--at is no time of ISO 8601", code="usage.time", hint="as in --at 2026-12-05T09:00Z"
        ) from None


def place_of(session: Session, db: str | None, config: str | None = None) -> str | None:
    """Where the database is, None where nobody said; a password in it is masked from here on.

    `--db` says it, then a variable, then the service's settings, then a file of init's in this folder.
    """
    place = db or next((os.environ[name] for name in DB_VARIABLES if os.environ.get(name)), None)
    place = place or _configured(config)
    if place is None and Path(HERE).is_file():
        place = HERE
    if place is not None and "://" in place:
        _hide_password(session, place)
    return place


def _configured(config: str | None) -> str | None:
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


def needed_place(session: Session, db: str | None) -> str:
    """Where the database is. Raises UsageError where nobody said which."""
    place = place_of(session, db)
    if place is None:
        raise UsageError(
            "this needs a registry of your own: no database was named",
            code="registry.no-database",
            hint="onym registry init --db registry.db makes one; then --db registry.db, or ONYM_REGISTRY_DB",
        )
    return place


@asynccontextmanager
async def opened(session: Session, db: str | None, *, create: bool = False) -> AsyncIterator[Store]:
    """The store. Raises UsageError where nobody said which, StoreError where it cannot be used."""
    place = needed_place(session, db)
    from onym.registry.store import Store  # late: SQLAlchemy takes longer than all the rest

    try:
        store = await Store.open(place, create=create)
    except StoreError as error:
        raise (_absent(place) if error.code == "registry.no-database" else error) from None
    async with store:
        yield store


def _absent(place: str) -> UsageError:
    """There is no database where the command line, or a variable, says."""
    error = UsageError(f"there is no registry in {place}", code="registry.no-database")
    # what to run next, instead of what the code alone would say
    vars(error)["command"] = f"onym registry init --db {shlex.quote(place)}"
    return error


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


async def find_account(store: Store, login: str) -> Account:
    """The account of that login. Raises UnknownEntryError that names near ones."""
    account = await store.accounts.by_login(login.strip().lower())
    if account is not None:
        return account
    from difflib import get_close_matches

    close = get_close_matches(login, [each.login for each in await store.accounts.list()], n=3)
    raise UnknownEntryError(
        "there is no account of that login",
        code="registry.unknown-account",
        field="account",
        hint=f"near ones: {', '.join(close)}" if close else "onym registry user list shows them",
    )


async def logins(store: Store) -> dict[str, str]:
    """Every account's login, by id."""
    found: list[Account] = []
    while part := await store.accounts.list(after=found[-1].login if found else ""):
        found += part
    return {each.id: each.login for each in found}


async def find_request(store: Store, identifier: str) -> Request:
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


async def acting(store: Store, registry: str, *, account: str | None, role: str | None) -> Actor:
    """Who acts: the account that `--account` names, with all its roles or the one of `--as`.

    Whoever has an account is a registrant (RFC 7595 7.2). Raises AccessError, UnknownEntryError, UsageError.
    """
    login = account or os.environ.get(_ACCOUNT_VARIABLE)
    found = await _only_account(store) if login is None else await find_account(store, login)
    if found.disabled:
        raise AccessError("that account is disabled", code="registry.disabled", field="account")
    roles = found.roles_in(registry) | {Role.REGISTRANT}
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


async def _only_account(store: Store) -> Account:
    accounts = [each for each in await store.accounts.list() if not each.disabled]
    if len(accounts) != 1:
        raise UsageError(
            "say who acts" if accounts else "the registry has no account yet",
            code="registry.no-account",
            hint=f"--account LOGIN, or set {_ACCOUNT_VARIABLE}"
            if accounts
            else "onym registry user add LOGIN",
        )
    return accounts[0]


async def all_entries(store: Store, registry: str) -> tuple[Entry, ...]:
    """Every entry of a registry, in order of names."""
    found: list[Entry] = []
    after: str | None = None
    while True:
        page = await store.entries(registry, after=after, limit=PAGE)
        found += page.items
        after = page.next
        if after is None:
            return tuple(found)


@contextmanager
def working(session: Session, text: str) -> Iterator[None]:
    """Something that moves while work goes on, on a terminal; else nothing."""
    if session.as_json or not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def counted(session: Session, text: str, total: int) -> Iterator[Callable[[int], object] | None]:
    """A bar that counts while work goes on, on a terminal; else None."""
    if session.as_json or not is_terminal(sys.stderr):
        yield None
        return
    from onym.cli._bar import counting

    with counting(printable(text), total) as tell:
        yield tell
