"""`onym registry user`: accounts, roles, passwords and API tokens."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from onym.accounts import records, sign_in
from onym.cli._commands import OrderedGroup, confirm_action, make_command, make_duration_option, yes_option
from onym.cli._errors import complete_command
from onym.cli._output import Session, is_terminal, select_fields
from onym.cli.commands.registry import _common
from onym.errors import UnknownEntryError, UsageError
from onym.registry.records import TOKEN_PREFIX, Role, parse_scopes
from onym.registry.words import name_role
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.accounts.records import Account
    from onym.registry.store import Store

_SCOPES: Final = ("read", "submit", "review", "iana", "iesg", "admin")


@make_command("token", short_help="Create, list or revoke API tokens.")
@click.argument("login")
@click.option("--label", default="", help="The purpose of the token.")
@click.option("--scope", "scopes", type=click.Choice(_SCOPES), multiple=True, metavar="SCOPE",
              help="A permission: read, submit, review, iana, iesg or admin (repeatable).")  # fmt: skip
@make_duration_option("--lifetime", least=86_400.0, most=3660 * 86_400.0, default="365d", show_default=True,
                      help="How long the token is valid.")  # fmt: skip
@click.option("--revoke", metavar="ID", help="Revoke this token.")
@yes_option
@_common.pass_database
async def token_command(
    session: Session,
    /,
    login: str,
    label: str,
    scopes: Sequence[str],
    lifetime: float,
    revoke: str | None,
    yes: bool,
    db: str | None,
) -> None:
    """Create, list or revoke API tokens of LOGIN. --scope creates a token, which is shown only once.

    \b
    Example:
      onym registry user token ann --label ci --scope read --scope submit
    """
    if scopes and revoke:
        raise UsageError(
            "--scope creates a token; it cannot be combined with --revoke", code="usage.command-line"
        )

    async with _common.open_store(session, db) as store:
        account = await _common.get_account(store, login)
        fresh = None
        if revoke is not None:
            if revoke not in {token.id for token in await store.tokens.list(account.id)}:
                raise UnknownEntryError(
                    f"{account.login} does not have a token with this ID",
                    code="accounts.unknown-token",
                    field="token",
                    hint=f"onym registry user token {account.login} lists the tokens",
                )
            confirm_action(session, f"Revoke {revoke} of {account.login}?", yes=yes)
            act = _common.make_audit_record("token.revoke", f"{account.login}: {revoke}")
            await store.tokens.revoke(revoke, _common.utc_now(), audit=act)
        if scopes:
            days = round(lifetime / 86_400)
            fresh, made = _make_token(account, label, scopes, days)
            granted = f"{account.login}: {made.id}, {' '.join(sorted(made.scopes))}, {days} days"
            await store.tokens.create(made, audit=_common.make_audit_record("token.add", granted))
        listed = await store.tokens.list(account.id)
    session.print_record(
        {
            "token": None if fresh is None else fresh.reveal(),
            "tokens": [_build_token_record(token) for token in listed],
        }
    )
    if session.as_json:
        return
    if fresh is not None:
        session.print_line(fresh.reveal())
        session.print_note("the token is shown only now")
        return
    session.print_table([_build_token_row(token) for token in listed], styles=("name",))
    if not listed:
        session.print_note(f"{account.login} has no tokens")


def _make_token(account: Account, label: str, scopes: Sequence[str], days: int) -> tuple[Secret, Any]:
    fresh = records.make_token(TOKEN_PREFIX)
    made = records.ApiToken(
        id=records.make_id("token"),
        digest=records.hash_secret(fresh),
        account=account.id,
        label=label[: records.MAX_LABEL],
        scopes=parse_scopes(scopes),
        created=_common.utc_now(),
        expires=_common.utc_now() + timedelta(days=days),
    )
    return fresh, made


def _build_token_record(token: records.ApiToken) -> dict[str, Any]:
    times = select_fields(token, "created", "expires", "revoked", "last_used")
    return {
        **select_fields(token, "id", "label"),
        "scopes": sorted(token.scopes),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _build_token_row(token: records.ApiToken) -> tuple[str, ...]:
    state = (
        "revoked"
        if token.revoked
        else f"until {_common.format_minute(token.expires)}"
        if token.expires
        else ""
    )
    return token.id, ", ".join(sorted(token.scopes)), state, token.label


#: every registry, in the roles of an account
_ALL: Final = "*"

_registry = click.option(
    "-r",
    "--registry",
    metavar="REGISTRY",
    default=_ALL,
    show_default=True,
    help="The registry of the roles; * is all of them.",
)
_stdin = click.option("--password-stdin", is_flag=True,
                      help="Read the password from standard input, not from the terminal.")  # fmt: skip


@click.group("user", cls=OrderedGroup, short_help="Manage accounts, roles, passwords and API tokens.")
def user_command() -> None:
    """Manage accounts, roles, passwords and API tokens. Every command accepts --json.

    \b
    Examples:
      onym registry user add ann --email ann@example.net --role expert
      onym registry user roles ann --add iana -r uri-schemes
      onym registry user token ann --label ci --scope read --scope submit
    """


user_command.add_command(token_command)


def ask_password(session: Session, login: str, *, from_stdin: bool) -> Secret:
    """Ask for a new password twice on a terminal, or read a line of standard input. Raises UsageError."""
    if from_stdin or not is_terminal(sys.stdin):
        if not from_stdin:
            raise UsageError(
                "a password is needed, but standard input is not a terminal",
                code="usage.password",
                hint="add --password-stdin, and pipe the password into the command",
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
    login: str, *, name: str, email: str | None, password: Secret | None, roles: Mapping[str, frozenset[Role]]
) -> Account:
    """Build a valid account. Raises RegistryError for an invalid login, name, address or password."""
    good = records.validate_login(login)
    if password is not None:
        sign_in.validate_password(password, login=good, name=name)
    return records.Account(
        id=records.make_id("user"),
        login=good,
        name=records.validate_name(name),
        email=None if email is None else records.validate_email(email),
        password_hash=None if password is None else sign_in.hash_password(password),
        roles=dict(roles),
        created=_common.utc_now(),
    )


def describe_new_account(account: Account) -> str:
    """Return the subject of the audit record of a new account."""
    return f"{account.login}: {_format_roles(account)}"


def _build_account_record(account: Account) -> dict[str, Any]:
    return {
        **select_fields(account, "id", "login", "name", "email"),
        "password": account.password_hash is not None,
        "roles": {name: sorted(map(str, roles)) for name, roles in account.roles.items() if roles},
        "disabled": account.disabled,
        "created": account.created.isoformat(),
    }


def _print_account(session: Session, account: Account) -> None:
    session.print_record(_build_account_record(account))
    method = "disabled" if account.disabled else "password" if account.password_hash else "OpenID Connect"
    rows = [
        ("account", f"{account.login} ({account.name})"),
        ("id", account.id),
        ("address", account.email or "-"),
        ("roles", _format_roles(account)),
        ("sign-in", method),
    ]
    session.print_table(rows, styles=("dim",))


def _format_roles(account: Account) -> str:
    held = (
        f"{', '.join(sorted(name_role(Role(role)) for role in roles))} {_format_realm(name)}"
        for name, roles in account.roles.items()
        if roles
    )
    return "; ".join(sorted(held)) or name_role(Role.REGISTRANT)


def _format_realm(name: str) -> str:
    realm, _, provider = name.partition("@")
    where = "everywhere" if realm == _ALL else f"in {realm}"
    return f"{where} (by a group of {provider})" if provider else where


@user_command.command("add", short_help="Add an account.")
@click.argument("login")
@click.option("--name", help="The name shown beside decisions. Default: the login.")
@click.option("--email", metavar="ADDRESS", help="The e-mail address for notices.")
@click.option(
    "--role", "roles", type=_common.ROLE_CHOICE, multiple=True, help="A role of the account (repeatable)."
)
@click.option("--no-password", is_flag=True, help="Allow sign-in only by OpenID Connect or tokens.")
@_registry
@_stdin
@_common.pass_store
async def add_command(
    session: Session,
    store: Store,
    /,
    login: str,
    name: str | None,
    email: str | None,
    roles: Sequence[str],
    no_password: bool,
    registry: str,
    password_stdin: bool,
) -> None:
    """Add an account. Without roles it may request registrations, as everybody may (RFC 7595 7.2).

    \b
    Example:
      onym registry user add ann --email ann@example.net --role expert
    """
    account = make_account(
        login,
        name=name or login,
        email=email,
        password=None if no_password else ask_password(session, login, from_stdin=password_stdin),
        roles={registry: frozenset(map(Role, roles))} if roles else {},
    )
    await store.accounts.add(
        account, audit=_common.make_audit_record("account.add", describe_new_account(account))
    )
    _print_account(session, account)


@user_command.command("list", short_help="List the accounts.")
@_common.pass_store
async def list_command(session: Session, store: Store, /) -> None:
    """List the accounts with login, name, roles and state.

    \b
    Example:
      onym registry user list
    """
    listed = await _common.list_accounts(store)
    session.print_record({"accounts": [_build_account_record(account) for account in listed]})
    rows = [
        (account.login, account.name, "disabled" if account.disabled else "", _format_roles(account))
        for account in listed
    ]
    session.print_table(rows, styles=("name",))
    if not listed and not session.as_json:
        command = complete_command(session, "onym registry user add LOGIN")
        session.print_note(f"the registry has no accounts; add one with {command}")


@user_command.command("roles", short_help="Show, add or remove roles.")
@click.argument("login")
@click.option("--add", "added", type=_common.ROLE_CHOICE, multiple=True, help="Add this role (repeatable).")
@click.option(
    "--remove", "removed", type=_common.ROLE_CHOICE, multiple=True, help="Remove this role (repeatable)."
)
@_registry
@_common.pass_store
async def roles_command(
    session: Session, store: Store, /, login: str, added: Sequence[str], removed: Sequence[str], registry: str
) -> None:
    """Show the roles of LOGIN, or change them with --add and --remove.

    \b
    Example:
      onym registry user roles ann --add expert -r uri-schemes
    """
    account = await _common.get_account(store, login)
    if added or removed:
        held = account.roles.get(registry, frozenset())
        lost = frozenset(map(Role, removed))
        _require_held(account, registry, lost - held)
        after = (held | set(map(Role, added))) - lost
        subject = records.describe_role_changes(account.login, registry, held, after)
        await store.accounts.set_roles(
            account.id, registry, after, audit=_common.make_audit_record("account.roles", subject)
        )
    _print_account(session, await _common.get_account(store, login))


def _require_held(account: Account, registry: str, lacking: frozenset[Role]) -> None:
    """Raise UsageError for roles to remove that the account does not have in the registry."""
    if not lacking:
        return
    role = min(lacking)
    held = next((name for name, roles in account.roles.items() if role in roles), None)
    call = f"onym registry user roles {account.login}"
    raise UsageError(
        f"{account.login} does not have the role {role} {records.describe_realm(registry)}",
        code="usage.role",
        hint=f"{call} shows its roles"
        if held is None
        else f"a group of the provider {held.partition('@')[2]} gives it; remove the account from the group"
        if "@" in held
        else f"the role is {records.describe_realm(held)}; run {call} --remove {role} -r {shlex.quote(held)}",
    )


@user_command.command("email", short_help="Set the e-mail address for notices.")
@click.argument("login")
@click.argument("address", required=False)
@click.option("--none", "remove", is_flag=True, help="Remove the address; no notices are sent.")
@_common.pass_database
async def email_command(
    session: Session, /, login: str, address: str | None, remove: bool, db: str | None
) -> None:
    """Set the e-mail address for the notices of LOGIN.

    \b
    Example:
      onym registry user email ann ann@example.net
    """
    if (address is None) is not remove:
        raise UsageError("give either an ADDRESS or --none", code="usage.command-line")
    async with _common.open_store(session, db) as store:
        account = await _common.get_account(store, login)
        email = None if address is None else records.validate_email(address)
        # not the address: the audit log cannot forget it
        subject = f"{account.login}: {'removed' if email is None else 'changed'}"
        await store.accounts.set_email(
            account.id, email, audit=_common.make_audit_record("account.email", subject)
        )
        _print_account(session, await _common.get_account(store, login))


@user_command.command("password", short_help="Set a new password and end every session.")
@click.argument("login")
@_stdin
@_common.pass_store
async def password_command(session: Session, store: Store, /, login: str, password_stdin: bool) -> None:
    """Set a new password for LOGIN and end every session of the account.

    \b
    Example:
      onym registry user password ann
    """
    account = await _common.get_account(store, login)
    password = ask_password(session, account.login, from_stdin=password_stdin)
    sign_in.validate_password(password, login=account.login, name=account.name)
    act = _common.make_audit_record("account.password", account.login)
    await store.accounts.set_password(account.id, sign_in.hash_password(password), audit=act)
    await store.sessions.drop_all(account.id)
    _print_account(session, await _common.get_account(store, login))


@user_command.command("disable", short_help="Prevent an account from signing in.")
@click.argument("login")
@_common.pass_store
async def disable_command(session: Session, store: Store, /, login: str) -> None:
    """Prevent LOGIN from signing in: sessions end and tokens become invalid. Its log entries stay.

    \b
    Example:
      onym registry user disable ann
    """
    account = await _common.get_account(store, login)
    await store.accounts.disable(
        account.id, audit=_common.make_audit_record("account.disable", account.login)
    )
    _print_account(session, await _common.get_account(store, login))


@user_command.command("enable", short_help="Allow a disabled account to sign in again.")
@click.argument("login")
@_common.pass_store
async def enable_command(session: Session, store: Store, /, login: str) -> None:
    """Allow LOGIN to sign in again, with the roles and tokens that it had.

    \b
    Example:
      onym registry user enable ann
    """
    account = await _common.get_account(store, login)
    await store.accounts.enable(account.id, audit=_common.make_audit_record("account.enable", account.login))
    _print_account(session, await _common.get_account(store, login))
