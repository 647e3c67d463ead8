"""What every handler does: find the store, the time and the visitor; take a step; name the people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from onym.errors import RegistryError, UnknownEntryError
from onym.registry.engine import allowed
from onym.registry.records import Actor, Entry, Event, EventKind, LogRecord, Role
from onym.registry.registries import Registry
from onym.registry.registries import registry as registry_of
from onym.server.registry.actions import SCOPES
from onym.server.registry.fast import cache_of
from onym.server.security import actor as actor_of
from onym.server.security import audit_as, current, require
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.records import Request
    from onym.registry.store import Applied, Store

__all__ = [
    "act",
    "actor_or_reader",
    "every_entry",
    "find_entry",
    "find_registry",
    "find_request",
    "names_of",
    "now",
    "open_to",
    "people",
    "request_id",
    "store",
]

#: people named on one page
_MOST_NAMES: Final = 200
_BATCH: Final = 200


def store(request: HTTPRequest) -> Store:
    """The store of this application."""
    return services(request).store


def now(request: HTTPRequest) -> datetime:
    """The time, in UTC."""
    return services(request).clock()


def find_registry(request: HTTPRequest) -> Registry:
    """The registry that the address names. Raises UnknownEntryError."""
    return registry_of(request.path_params["registry"])


async def find_entry(request: HTTPRequest) -> Entry:
    """The entry that the address names. Raises UnknownEntryError."""
    row = find_registry(request)
    key = row.key(request.path_params["name"])
    # a name outside the grammar is looked up too: snapshots hold irregular rows
    found = await store(request).entry(row.id, key)
    if found is None:
        raise UnknownEntryError(
            f"no {row.noun} of that name is registered",
            code="registry.unknown-entry",
            field="name",
            hint="search for it, or register it",
        )
    return found


async def find_request(request: HTTPRequest) -> Request:
    """The registration request that the address names. Raises UnknownEntryError."""
    found = await store(request).request(request.path_params["id"])
    if found is None:
        raise UnknownEntryError("no such request", code="registry.unknown-request", field="request")
    return found


def actor_or_reader(request: HTTPRequest, registry: str) -> Actor:
    """Who asks, as the engine knows them; somebody without any role where nobody is signed in."""
    visitor = current(request)
    if visitor.account is None:
        return Actor(id="", roles=frozenset({Role.READER}))
    return actor_of(visitor, registry)


def open_to(request: HTTPRequest, about: Request | None, entry: Entry | None) -> tuple[EventKind, ...]:
    """The events that the visitor may ask for now, as the engine says and the token's scopes let."""
    subject = about or entry
    visitor = current(request)
    if subject is None or visitor.account is None:
        return ()
    found = allowed(about, entry, actor_or_reader(request, subject.registry), now(request))
    return tuple(kind for kind in found if not SCOPES[kind].isdisjoint(visitor.scopes))


async def act(
    request: HTTPRequest,
    kind: EventKind,
    registry: str,
    *,
    about: str | None = None,
    name: str | None = None,
    data: Mapping[str, Any] | None = None,
    expected: int | None = None,
) -> Applied:
    """Take a step as the visitor; what the store applied. Raises RegistryError in all its kinds."""
    visitor = current(request)
    require(visitor)
    if SCOPES[kind].isdisjoint(visitor.scopes):
        require(visitor, scope=min(SCOPES[kind]))
    audit_as(request, f"registry.{kind}", about or name or "")
    event = Event(kind=kind, registry=registry, request=about, name=name, data=dict(data or {}))
    applied = await store(request).apply(event, actor_of(visitor, registry), now(request), expected=expected)
    cache_of(request).wrote()
    return applied


def request_id(applied: Applied) -> str:
    """The id of the request that an event was about, or opened."""
    assert applied.decision.request is not None  # noqa: S101 - an event about a request has one
    return applied.decision.request.id


async def names_of(request: HTTPRequest, ids: Iterable[str]) -> dict[str, str]:
    """Accounts' names by id, for those that are accounts."""
    found = {}
    for each in list(dict.fromkeys(ids))[:_MOST_NAMES]:
        try:
            account = await store(request).accounts.get(each)
        except RegistryError:
            account = None
        if account is not None:
            found[each] = account.name or account.login
    return found


async def people(request: HTTPRequest, records: Iterable[LogRecord]) -> dict[str, str]:
    """The names of whoever acted in these records."""
    return await names_of(request, (each.actor.id for each in records))


async def every_entry(request: HTTPRequest, registry: str) -> AsyncIterator[Entry]:
    """All entries of a registry, by name, read in parts."""
    after: str | None = None
    while True:
        page = await store(request).entries(registry, after=after, limit=_BATCH)
        for entry in page.items:
            yield entry
        after = page.next
        if after is None:
            return
