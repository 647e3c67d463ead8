"""`onym registry user token`: API tokens, made, listed and revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._registry_base import db_option, find_account, now, opened, run
from onym.cli._registry_text import minute
from onym.errors import UnknownEntryError, UsageError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.accounts import Account
    from onym.registry.store import Store

__all__ = ["token"]

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
@json_option
@click.pass_obj
def token(
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
    session.command = "registry user token"
    if scopes and revoke:
        raise UsageError("--scope makes a token, --revoke ends one", code="usage.command-line")

    async def work() -> tuple[Secret | None, list[Any]]:
        async with opened(session, db) as store:
            account = await find_account(store, login)
            fresh = None
            if revoke is not None:
                await _revoke(store, account, revoke)
            if scopes:
                fresh, made = _new_token(account, label, scopes, days)
                await store.tokens.create(made)
            return fresh, list(await store.tokens.list(account.id))

    fresh, found = run(work())
    session.record(
        {
            "token": None if fresh is None else fresh.reveal(),
            "tokens": [_token_record(each) for each in found],
        }
    )
    if session.as_json:
        return
    if fresh is not None:
        session.say(fresh.reveal())
        session.note("this is the only time that the token is shown")
        return
    session.table([_token_row(each) for each in found], styles=("name",))
    if not found:
        session.note("no tokens")


async def _revoke(store: Store, account: Account, identifier: str) -> None:
    if identifier not in {each.id for each in await store.tokens.list(account.id)}:
        raise UnknownEntryError(
            f"{account.login} has no token of that id",
            code="registry.unknown-token",
            field="token",
            hint=f"see: onym registry user token {account.login}",
        )
    await store.tokens.revoke(identifier, now())


def _new_token(account: Account, label: str, scopes: Sequence[str], days: int) -> tuple[Secret, Any]:
    from onym.registry import accounts

    fresh = accounts.new_token()
    made = accounts.ApiToken(
        id=accounts.new_id("token"),
        digest=accounts.digest_of(fresh),
        account=account.id,
        label=label[: accounts.MAX_LABEL],
        scopes=accounts.read_scopes(scopes),
        created=now(),
        expires=now() + timedelta(days=days),
    )
    return fresh, made


def _token_record(each: Any) -> dict[str, Any]:
    times = {name: getattr(each, name) for name in ("created", "expires", "revoked", "last_used")}
    return {
        "id": each.id,
        "label": each.label,
        "scopes": sorted(each.scopes),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def _token_row(each: Any) -> tuple[str, ...]:
    state = "revoked" if each.revoked else f"until {minute(each.expires)}" if each.expires else ""
    return each.id, ", ".join(sorted(each.scopes)), state, each.label
