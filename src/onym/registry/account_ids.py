"""The accounts that an event names: logins become account IDs, and unknown or disabled accounts are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.errors import RefusalError, UnknownEntryError
from onym.registry.records import Event, EventKind

if TYPE_CHECKING:
    from onym.registry.store import Store

#: members of `Event.data` that give an account a say
_ACCOUNT_MEMBERS: Final = MappingProxyType(
    {
        EventKind.REASSIGN: ("to",),
        EventKind.OVERRIDE: ("registrant",),
        EventKind.DESIGNATE: ("add",),
    }
)
#: people named at once
_MAX_PEOPLE: Final = 64


async def resolve_accounts(store: Store, event: Event) -> Event:
    """The event with account ids for the logins or ids of whom it gives a say; others come back as they are.

    Whom it takes a say from may be anybody, so that the id of an account that never was goes too. Raises
    UnknownEntryError (registry.unknown-account), RefusalError (registry.disabled-account,
    registry.bad-data for more than 64); `field` is the member.
    """
    found: dict[str, Any] = {}
    for member in _ACCOUNT_MEMBERS.get(event.kind, ()):
        given = event.data.get(member)
        # what is no text, or no list of texts, is the engine's to refuse
        if isinstance(given, str) and given.strip():
            found[member] = await _get_account_id(store, given, member)
        elif isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
            found[member] = [
                await _get_account_id(store, each, member) for each in _limit_people(given, member)
            ]
    if event.kind is EventKind.DESIGNATE:
        found |= await _resolve_removed(store, event.data.get("remove"))
    return replace(event, data={**event.data, **found}) if found else event


async def _resolve_removed(store: Store, given: object) -> dict[str, Any]:
    """Ids beside the words: what was designated may be either."""
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        return {}
    both = []
    for each in _limit_people(given, "remove"):
        account = await store.accounts.find_by_login(each)
        both += [each] if account is None else [each, account.id]
    return {"remove": list(dict.fromkeys(both))}


def _limit_people(given: Sequence[str], member: str) -> Sequence[str]:
    if len(given) > _MAX_PEOPLE:
        raise RefusalError(f"more than {_MAX_PEOPLE} people at once", code="registry.bad-data", field=member)
    return given


async def _get_account_id(store: Store, word: str, member: str) -> str:
    # an id goes before a login, so that nobody is taken for another by taking that one's id as a login
    account = await store.accounts.get(word.strip()) or await store.accounts.find_by_login(word)
    if account is None:
        raise UnknownEntryError(
            "there is no account of that login or id", code="registry.unknown-account", field=member,
            hint="whoever is to have a say signs in once first, or is added: onym registry user add LOGIN",
        )  # fmt: skip
    if account.disabled:
        raise RefusalError(
            "that account is disabled", code="registry.disabled-account", field=member,
            hint="onym registry user enable LOGIN",
        )  # fmt: skip
    return account.id
