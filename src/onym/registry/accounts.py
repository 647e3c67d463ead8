"""What accounts may do in the registry: roles and scopes, and the accounts that an event names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from onym.accounts.records import ALL_REALMS, Account
from onym.errors import RefusalError, RegistryError, UnknownEntryError
from onym.registry.records import Event, EventKind, Role

if TYPE_CHECKING:
    from onym.accounts.store import AccountStore

#: the beginning of every API token of a registry
TOKEN_PREFIX: Final = "onym_reg_"  # noqa: S105


class Scope(StrEnum):
    """What an API token may do. A scope lets the token use a role that the account has."""

    READ = "read"
    SUBMIT = "submit"
    REVIEW = "review"
    IANA = "iana"
    IESG = "iesg"
    ADMIN = "admin"


#: which role each scope lets a token use
_SCOPE_ROLES: Final[Mapping[Scope, Role]] = {
    Scope.READ: Role.READER,
    Scope.SUBMIT: Role.REGISTRANT,
    Scope.REVIEW: Role.EXPERT,
    Scope.IANA: Role.IANA,
    Scope.IESG: Role.IESG,
}


def get_registry_roles(account: Account, registry: str) -> frozenset[Role]:
    """Return the account's roles in a registry, including those in every registry."""
    names = account.get_roles(registry)
    return frozenset(role for role in Role if role in names)


def is_administrator(account: Account) -> bool:
    """Report whether the account may manage other accounts: it has the role IANA in every registry."""
    return Role.IANA in account.roles.get(ALL_REALMS, frozenset())


def parse_scopes(words: Iterable[str]) -> frozenset[str]:
    """Return the scopes. Raises RegistryError (field "scopes") for an unknown scope, or none."""
    names = tuple(words)
    unknown = [name for name in names if name not in frozenset(Scope)]
    if unknown or not names:
        raise RegistryError(
            f"there is no scope {unknown[0][:40]!r}" if unknown else "a token needs at least one scope",
            code="registry.bad-scope",
            field="scopes",
            hint=f"Choose from {', '.join(Scope)}.",
        )
    return frozenset(names)


def limit_roles(roles: frozenset[Role], scopes: Iterable[str]) -> frozenset[Role]:
    """Return the roles that a token with these scopes may use."""
    return roles & {_SCOPE_ROLES[Scope(scope)] for scope in scopes if scope in _SCOPE_ROLES}


#: members of `Event.data` that name accounts with a new say in an entry
_ACCOUNT_MEMBERS: Final = {
    EventKind.REASSIGN: ("to",),
    EventKind.OVERRIDE: ("registrant",),
    EventKind.DESIGNATE: ("add",),
}
#: people in one event
_MAX_PEOPLE: Final = 64


async def resolve_accounts(store: AccountStore, event: Event) -> Event:
    """Return the event with account IDs instead of logins. Events without accounts come back unchanged.

    Accounts that lose their say may be unknown, so that the ID of a former account can be removed. Raises
    UnknownEntryError (accounts.unknown-account) and RefusalError (registry.disabled-account, and
    registry.bad-data for more than 64 people); `field` is the member of `Event.data`.
    """
    members: dict[str, Any] = {}
    for member in _ACCOUNT_MEMBERS.get(event.kind, ()):
        value = event.data.get(member)
        # the engine rejects other types
        if isinstance(value, str) and value.strip():
            members[member] = await _get_account_id(store, value, member)
        elif _is_text_list(value):
            members[member] = [
                await _get_account_id(store, word, member) for word in _limit_people(value, member)
            ]
    removed = event.data.get("remove")
    if event.kind is EventKind.DESIGNATE and _is_text_list(removed):
        members["remove"] = await _resolve_removed(store, _limit_people(removed, "remove"))
    return replace(event, data={**event.data, **members}) if members else event


def _is_text_list(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


async def _resolve_removed(store: AccountStore, words: Sequence[str]) -> list[str]:
    """Return the words and the IDs of the logins among them: designated experts may be listed as either."""
    names: dict[str, None] = {}
    for word in words:
        account = await store.accounts.find_by_login(word)
        names |= dict.fromkeys([word] if account is None else [word, account.id])
    return list(names)


def _limit_people(words: Sequence[str], member: str) -> Sequence[str]:
    if len(words) > _MAX_PEOPLE:
        raise RefusalError(
            f"an event names at most {_MAX_PEOPLE} people, not {len(words)}",
            code="registry.bad-data",
            field=member,
        )
    return words


async def _get_account_id(store: AccountStore, word: str, member: str) -> str:
    # IDs take precedence, so that a person cannot take another one's ID as a login
    account = await store.accounts.get(word.strip()) or await store.accounts.find_by_login(word)
    if account is None:
        raise UnknownEntryError(
            "there is no account with this login or ID",
            code="accounts.unknown-account",
            field=member,
            hint="The person signs in once, or you add the account: onym registry user add LOGIN",
        )
    if account.disabled:
        raise RefusalError(
            "the account is disabled",
            code="registry.disabled-account",
            field=member,
            hint="Enable it: onym registry user enable LOGIN",
        )
    return account.id
