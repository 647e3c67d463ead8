"""`onym registry user`: accounts, roles, passwords and API tokens."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from onym.accounts import passwords, records, tokens
from onym.cli._input import pass_session
from onym.cli._output import Session, is_terminal
from onym.cli.commands.registry._common import (
    db_option,
    format_minute,
    get_account,
    open_store,
    run_async,
    utc_now,
)
from onym.errors import UnknownEntryError, UsageError
from onym.registry import accounts
from onym.registry.records import Role
from onym.registry.registries import REGISTRIES
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.accounts.records import Account
    from onym.registry.store import Store

_TOKEN_DAYS: Final = 365
_SCOPES: Final = ("read", "submit", "review", "iana", "iesg", "admin")


@click.command("token", short_help="Make, list or revoke API tokens.")
@click.argument("login")
@click.option("--label", default="", help="What it is for.")
@click.option(
    "--scope", "scopes", type=click.Choice(_SCOPES), multiple=True, help="What it may do (repeatable)."
)
@click.option(
    "--days", type=click.IntRange(1, 3660), default=_TOKEN_DAYS, show_default=True, help="How long it holds."
)
@click.option("--revoke", metavar="ID", help="End that token.")
@db_option
@pass_session
def token_command(
    session: Session,
    /,
    login: str,
    label: str,
    scopes: Sequence[str],
    days: int,
    revoke: str | None,
    db: str | None,
) -> None:
    """List the tokens of LOGIN; with --scope make one, with --revoke end one. A new token is shown once.

    \b
    Example:
      onym registry user token ann --label ci --scope read --scope submit
    """
    if scopes and revoke:
        raise UsageError("--scope makes a token, --revoke ends one", code="usage.command-line")

    async def work() -> tuple[Secret | None, list[Any]]:
        async with open_store(session, db) as store:
            account = await get_account(store, login)
            fresh = None
            if revoke is not None:
                await _revoke_token(store, account, revoke)
            if scopes:
                fresh, made = _make_token(account, label, scopes, days)
                await store.tokens.create(made)
            return fresh, list(await store.tokens.list(account.id))

    fresh, found = run_async(work())
    session.print_record(
        {
            "token": None if fresh is None else fresh.reveal(),
            "tokens": [_build_token_record(token) for token in found],
        }
    )
    if session.as_json:
        return
    if fresh is not None:
        session.print_line(fresh.reveal())
        session.print_note("this is the only time that the token is shown")
        return
    session.print_table([_build_token_row(token) for token in found], styles=("name",))
    if not found:
        session.print_note("no tokens")


async def _revoke_token(store: Store, account: Account, identifier: str) -> None:
    if identifier not in {token.id for token in await store.tokens.list(account.id)}:
        raise UnknownEntryError(
            f"{account.login} has no token of that id",
            code="accounts.unknown-token",
            field="token",
            hint=f"see: onym registry user token {account.login}",
        )
    await store.tokens.revoke(identifier, utc_now())


def _make_token(account: Account, label: str, scopes: Sequence[str], days: int) -> tuple[Secret, Any]:
    fresh = tokens.make_token(accounts.TOKEN_PREFIX)
    made = records.ApiToken(
        id=records.make_id("token"),
        digest=tokens.hash_secret(fresh),
        account=account.id,
        label=label[: records.MAX_LABEL],
        scopes=accounts.parse_scopes(scopes),
        created=utc_now(),
        expires=utc_now() + timedelta(days=days),
    )
    return fresh, made


def _build_token_record(each: Any) -> dict[str, Any]:
    times = {name: getattr(each, name) for name in ("created", "expires", "revoked", "last_used")}
    return {
        "id": each.id,
        "label": each.label,
        "scopes": sorted(each.scopes),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _build_token_row(each: Any) -> tuple[str, ...]:
    state = "revoked" if each.revoked else f"until {format_minute(each.expires)}" if each.expires else ""
    return each.id, ", ".join(sorted(each.scopes)), state, each.label


#: every registry, as roles are held
_ALL: Final = "*"
_ROLES: Final = [str(role) for role in Role if role is not Role.READER]

_registry = click.option(
    "-r",
    "--registry",
    type=click.Choice([_ALL, *REGISTRIES]),
    default=_ALL,
    show_default=True,
    help="Where the roles are held; * is everywhere.",
)
_stdin = click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from standard input, so that no history holds it.",
)


@click.group("user", short_help="Accounts: add, list, roles, email, password, token, disable.")
def user_command() -> None:
    """Manage accounts: who may sign in, in which roles, with which API tokens. Each takes --json.

    \b
    Examples:
      onym registry user add ann --name "Ann Example" --email ann@example.net --role expert
      onym registry user roles ann --add iana -r uri-schemes
      onym registry user token ann --label ci --scope read --scope submit
    """


user_command.add_command(token_command)


def ask_password(session: Session, login: str, *, from_stdin: bool) -> Secret:
    """A new password: asked for twice on a terminal, else one line of standard input. Raises UsageError."""
    if from_stdin or not is_terminal(sys.stdin):
        if not from_stdin:
            raise UsageError(
                "a password is needed, and nobody is there to type it",
                code="usage.password",
                hint="pipe it: pass show registry | onym registry ... --password-stdin",
            )
        text = sys.stdin.buffer.readline().decode("utf-8", "replace").rstrip("\r\n")
    else:
        from getpass import getpass

        text = getpass(f"password for {login}: ")
        if getpass("again: ") != text:
            raise UsageError("the two passwords differ", code="usage.password")
    password = Secret(text)
    if text:
        session.secrets.append(password)
    return password


def make_account(
    login: str,
    *,
    name: str,
    email: str | None,
    password: Secret | None,
    roles: Mapping[str, frozenset[Role]],
) -> Account:
    """An account, checked. Raises RegistryError for a bad login, name, address or password."""
    good = records.validate_login(login)
    if password is not None:
        passwords.validate_password(password, login=good, name=name)
    return records.Account(
        id=records.make_id("user"),
        login=good,
        name=records.validate_name(name),
        email=None if email is None else records.validate_email(email),
        password_hash=None if password is None else passwords.hash_password(password),
        roles=dict(roles),
        created=utc_now(),
    )


def _build_account_record(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "login": account.login,
        "name": account.name,
        "email": account.email,
        "password": account.password_hash is not None,
        "roles": {name: sorted(map(str, roles)) for name, roles in account.roles.items() if roles},
        "disabled": account.disabled,
        "created": account.created.isoformat(),
    }


def _print_account(session: Session, account: Account) -> None:
    session.print_record(_build_account_record(account))
    session.print_table(
        [
            ("account", f"{account.login} ({account.name})"),
            ("id", account.id),
            ("address", account.email or "-"),
            ("roles", _format_roles(account)),
            (
                "sign-in",
                "disabled" if account.disabled else "password" if account.password_hash else "OpenID Connect",
            ),
        ],
        styles=("dim",),
    )


def _format_roles(account: Account) -> str:
    held = (
        f"{', '.join(sorted(map(str, roles)))} in {name}" for name, roles in account.roles.items() if roles
    )
    return "; ".join(sorted(held)).replace(f" in {_ALL}", " everywhere") or "registrant"


@user_command.command("add", short_help="Add an account.")
@click.argument("login")
@click.option("--name", help="The name shown beside decisions. Default: the login.")
@click.option("--email", metavar="ADDRESS", help="Where notices go.")
@click.option(
    "--role", "roles", type=click.Choice(_ROLES), multiple=True, help="A role it holds (repeatable)."
)
@click.option("--no-password", is_flag=True, help="Sign-in by OpenID Connect or tokens alone.")
@_registry
@_stdin
@db_option
@pass_session
def add_command(
    session: Session,
    /,
    login: str,
    name: str | None,
    email: str | None,
    roles: Sequence[str],
    no_password: bool,
    registry: str,
    password_stdin: bool,
    db: str | None,
) -> None:
    """Add the account LOGIN. Without roles it may ask for registrations, as anybody may (RFC 7595 7.2).

    \b
    Example:
      onym registry user add ann --name "Ann Example" --email ann@example.net --role expert
    """

    async def work() -> Account:
        async with open_store(session, db) as store:
            password = None if no_password else ask_password(session, login, from_stdin=password_stdin)
            account = make_account(
                login,
                name=name or login,
                email=email,
                password=password,
                roles={registry: frozenset(map(Role, roles))} if roles else {},
            )
            await store.accounts.add(account)
            return account

    _print_account(session, run_async(work()))


@user_command.command("list", short_help="List the accounts.")
@db_option
@pass_session
def list_command(session: Session, /, db: str | None) -> None:
    """List every account: login, name, roles, whether it may sign in.

    \b
    Example:
      onym registry user list
    """

    async def work() -> list[Account]:
        async with open_store(session, db) as store:
            found: list[Account] = []
            while part := await store.accounts.list(after=found[-1].login if found else ""):
                found += part
            return found

    found = run_async(work())
    session.print_record({"accounts": [_build_account_record(account) for account in found]})
    session.print_table(
        [
            (account.login, account.name, "disabled" if account.disabled else "", _format_roles(account))
            for account in found
        ],
        styles=("name",),
    )
    if not found and not session.as_json:
        session.print_note("no accounts: onym registry user add LOGIN")


@user_command.command("roles", short_help="Show, give or take roles.")
@click.argument("login")
@click.option("--add", "given", type=click.Choice(_ROLES), multiple=True, help="Give this role (repeatable).")
@click.option(
    "--remove", "taken", type=click.Choice(_ROLES), multiple=True, help="Take it away (repeatable)."
)
@_registry
@db_option
@pass_session
def roles_command(
    session: Session, /, login: str, given: Sequence[str], taken: Sequence[str], registry: str, db: str | None
) -> None:
    """Show the roles of LOGIN; with --add and --remove, change them.

    \b
    Example:
      onym registry user roles ann --add expert -r uri-schemes
    """

    async def work() -> Account:
        async with open_store(session, db) as store:
            account = await get_account(store, login)
            if given or taken:
                held = account.roles.get(registry, frozenset())
                _require_held(account, registry, frozenset(map(Role, taken)) - held)
                wanted = (held | set(map(Role, given))) - set(map(Role, taken))
                await store.accounts.set_roles(account.id, registry, frozenset(wanted))
            return await get_account(store, login)

    _print_account(session, run_async(work()))


def _require_held(account: Account, registry: str, lacking: frozenset[Role]) -> None:
    """Raises UsageError for roles that are to be taken away and are not held there."""
    if not lacking:
        return
    role = min(lacking)
    held = next((name for name, roles in account.roles.items() if role in roles), None)
    call = f"onym registry user roles {account.login}"
    raise UsageError(
        f"{account.login} does not hold the role {role} {_format_registry(registry)}",
        code="usage.role",
        hint=f"{call} shows what it holds"
        if held is None
        else f"held {_format_registry(held)}: {call} --remove {role} -r {shlex.quote(held)}",
    )


def _format_registry(registry: str) -> str:
    return "in every registry at once" if registry == _ALL else f"in {registry}"


@user_command.command("email", short_help="Set the address where notices go.")
@click.argument("login")
@click.argument("address", required=False)
@click.option("--none", "gone", is_flag=True, help="Take the address away: no notices.")
@db_option
@pass_session
def email_command(session: Session, /, login: str, address: str | None, gone: bool, db: str | None) -> None:
    """Send the notices of LOGIN to ADDRESS from now on.

    \b
    Example:
      onym registry user email ann ann@example.net
    """
    if (address is None) is not gone:
        raise UsageError("give an ADDRESS, or --none", code="usage.command-line")

    async def work() -> Account:
        async with open_store(session, db) as store:
            account = await get_account(store, login)
            wanted = None if address is None else records.validate_email(address)
            await store.accounts.set_email(account.id, wanted)
            return await get_account(store, login)

    _print_account(session, run_async(work()))


@user_command.command("password", short_help="Set a new password, and end every session.")
@click.argument("login")
@_stdin
@db_option
@pass_session
def password_command(session: Session, /, login: str, password_stdin: bool, db: str | None) -> None:
    """Set a new password for LOGIN. Every session of the account ends.

    \b
    Example:
      onym registry user password ann
    """

    async def work() -> Account:
        async with open_store(session, db) as store:
            account = await get_account(store, login)
            fresh = ask_password(session, account.login, from_stdin=password_stdin)
            passwords.validate_password(fresh, login=account.login, name=account.name)
            await store.accounts.set_password(account.id, passwords.hash_password(fresh))
            await store.sessions.drop_all(account.id)
            return await get_account(store, login)

    _print_account(session, run_async(work()))


@user_command.command("disable", short_help="Let an account sign in no more.")
@click.argument("login")
@db_option
@pass_session
def disable_command(session: Session, /, login: str, db: str | None) -> None:
    """Let LOGIN sign in no more: sessions end, tokens no longer hold. What it did stays in the log.

    \b
    Example:
      onym registry user disable ann
    """
    _print_account(session, run_async(_set_enabled(session, db, login, on=False)))


@user_command.command("enable", short_help="Let a disabled account sign in again.")
@click.argument("login")
@db_option
@pass_session
def enable_command(session: Session, /, login: str, db: str | None) -> None:
    """Let LOGIN, which was disabled, sign in again, with the roles and tokens that it had.

    \b
    Example:
      onym registry user enable ann
    """
    _print_account(session, run_async(_set_enabled(session, db, login, on=True)))


async def _set_enabled(session: Session, db: str | None, login: str, *, on: bool) -> Account:
    async with open_store(session, db) as store:
        account = await get_account(store, login)
        await (store.accounts.enable if on else store.accounts.disable)(account.id)
        return await get_account(store, login)
