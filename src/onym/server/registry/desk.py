"""What every handler does: find the store, the time and the visitor; take a step; name the people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from onym.errors import AccessError, RefusalError, RegistryError, UnknownEntryError
from onym.registry.accounts import Scope
from onym.registry.engine import RULES, allowed
from onym.registry.people import with_accounts
from onym.registry.records import Actor, Entry, Event, EventKind, LogRecord, Status
from onym.registry.registries import REGISTRIES, Registry
from onym.registry.registries import registry as registry_of
from onym.server.registry import urls
from onym.server.registry.actions import SCOPES
from onym.server.registry.fast import cache_of
from onym.server.registry.privacy import may_see, without_hidden
from onym.server.security import Visitor, audit_as, current, require
from onym.server.security import actor as actor_of
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.records import Request
    from onym.registry.store import Applied, EntryChange, Store

__all__ = [
    "act",
    "every_entry",
    "find_absent",
    "find_entry",
    "find_registry",
    "find_request",
    "known_request",
    "names_of",
    "now",
    "open_to",
    "people",
    "request_id",
    "store",
    "unknown_entry",
    "was_removed",
    "whole_changes",
    "whole_history",
    "whole_request_history",
]

#: people named on one page
_MOST_NAMES: Final = 200
_BATCH: Final = 200
#: events that are somebody's for another reason than a role: owners', registrants', designees'
_OWNED: Final = frozenset(rule.event for rule in RULES if rule.who is not None)
#: records read at once, and of one name or request altogether: the first ones, from which versions follow
_RECORDS: Final = 1_000
_MOST_RECORDS: Final = 20_000


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
    row, name, found = await find_absent(request)
    if found is None:
        was = await store(request).changes_of(row.id, name, limit=1)
        removed = bool(was) and was_removed(was[0])
        raise unknown_entry(row, f"it was removed: {urls.change(row.id, name)}" if removed else None)
    return found


def was_removed(change: EntryChange) -> bool:
    """Did an entry go by this change? A row that only waited for review was none."""
    return change.before is not None and change.before.status is not Status.PENDING_REVIEW


def unknown_entry(row: Registry, hint: str | None = None) -> UnknownEntryError:
    """There is no entry of that name."""
    return UnknownEntryError(
        f"no {row.noun} of that name is registered",
        code="registry.unknown-entry",
        field="name",
        hint=hint or "search for it, or register it",
    )


async def find_absent(request: HTTPRequest) -> tuple[Registry, str, Entry | None]:
    """The registry and the name that the address names, and the entry of that name, if there is one.

    For overrides, which are about names that were registered too. Raises UnknownEntryError.
    """
    row = find_registry(request)
    key = row.key(request.path_params["name"])
    # a name outside the grammar is looked up too: snapshots hold irregular rows
    return row, key, await store(request).entry(row.id, key)


async def find_request(request: HTTPRequest) -> Request:
    """The registration request that the address names. Raises UnknownEntryError."""
    found = await known_request(request, request.path_params["id"])
    if found is None:
        raise UnknownEntryError("no such request", code="registry.unknown-request", field="request")
    return found


async def known_request(request: HTTPRequest, identifier: str) -> Request | None:
    """The request of that id, if there is one that the visitor may know of."""
    found = await store(request).request(identifier)
    return found if found is not None and may_see(request, found) else None


def open_to(request: HTTPRequest, about: Request | None, entry: Entry | None) -> tuple[EventKind, ...]:
    """The events that the visitor may ask for now, as the engine says and the token's scopes let."""
    subject = about or entry
    visitor = current(request)
    if subject is None or visitor.account is None:
        return ()
    found = allowed(about, entry, _acting(visitor, subject.registry), now(request))
    return tuple(kind for kind in found if not SCOPES[kind].isdisjoint(visitor.scopes))


def _in_force(request: HTTPRequest, registry: str, data: Mapping[str, Any]) -> None:
    """Which procedure a request follows is the operator's choice (docs/decisions/0026)."""
    row = REGISTRIES[registry]
    offered = services(request).settings.profiles_in(row)
    if data.get("profile", row.default_profile) not in offered:
        raise RefusalError(
            "that procedure is not in force here",
            code="registry.bad-profile",
            field="profile",
            clause="docs/decisions/0026",
            hint=f"in force: {', '.join(offered)}",
        )


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
        raise _missing_scope(SCOPES[kind])
    audit_as(request, f"registry.{kind}", about or name or "")
    if kind is EventKind.IMPORT:
        raise RefusalError(
            "rows are imported at the registry's own machine",
            code="registry.not-allowed",
            clause="docs/decisions/0026",
            hint="onym registry import; or override, with a reason",
        )
    if kind in _OWNED and Scope.SUBMIT not in visitor.scopes:
        await _require_role(request, visitor, kind, registry, about, name)
    if kind is EventKind.OPEN:
        _in_force(request, registry, data or {})
    event = Event(kind=kind, registry=registry, request=about, name=name, data=dict(data or {}))
    event = await with_accounts(store(request), event)
    applied = await store(request).apply(event, actor_of(visitor, registry), now(request), expected=expected)
    cache_of(request).wrote()
    return applied


def _missing_scope(scopes: Iterable[Scope]) -> AccessError:
    names = " or ".join(repr(str(each)) for each in sorted(scopes))
    return AccessError(
        f"this API token has no scope {names}", code="registry.missing-scope", field="scope",
        hint="make a token with that scope on the account page; the account needs the role too",
    )  # fmt: skip


def _acting(visitor: Visitor, registry: str) -> Actor:
    """The visitor; without the scope `submit` as nobody's registrant, with its other roles alone."""
    found = actor_of(visitor, registry)
    return found if Scope.SUBMIT in visitor.scopes else Actor(id="", roles=found.roles)


async def _require_role(
    request: HTTPRequest,
    visitor: Visitor,
    kind: EventKind,
    registry: str,
    about: str | None,
    name: str | None,
) -> None:
    """What is open to owners needs the scope `submit`, unless a role opens it too. Raises AccessError."""
    asked = None if about is None else await store(request).request(about)
    entry = None if name is None else await store(request).entry(registry, name)
    if kind not in allowed(asked, entry, _acting(visitor, registry), now(request)):
        require(visitor, scope=Scope.SUBMIT)


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


async def whole_history(request: HTTPRequest, registry: str, name: str) -> tuple[LogRecord, ...]:
    """Every event about a name that the visitor may read, oldest first; 20,000 at most, without templates."""

    async def read(after: int) -> tuple[LogRecord, ...]:
        return await store(request).history(registry, name, after=after, limit=_RECORDS)

    return await without_hidden(request, await _whole(read))


async def whole_changes(request: HTTPRequest, registry: str, name: str) -> tuple[EntryChange, ...]:
    """Every change of the entries of a name, oldest first; the last 20,000 at most."""
    found: list[EntryChange] = []
    for _ in range(_MOST_RECORDS // _RECORDS):
        below = found[-1].number if found else None
        part = await store(request).changes_of(registry, name, below=below, limit=_RECORDS)
        if not part:
            break
        found += part
    return tuple(reversed(found))


async def whole_request_history(request: HTTPRequest, identifier: str) -> tuple[LogRecord, ...]:
    """Every event of a request, as `whole_history`. Raises UnknownEntryError where there is none."""

    async def read(after: int) -> tuple[LogRecord, ...]:
        return await store(request).request_history(identifier, after=after, limit=_RECORDS)

    return await _whole(read)


async def _whole(read: Callable[[int], Awaitable[tuple[LogRecord, ...]]]) -> tuple[LogRecord, ...]:
    found: list[LogRecord] = []
    # a part may be short because its records are long, so what ends it is an empty one
    for _ in range(_MOST_RECORDS // _RECORDS):
        part = await read(found[-1].number if found else 0)
        if not part:
            break
        found += map(_without_template, part)
    return tuple(found)


def _without_template(record: LogRecord) -> LogRecord:
    """The record without the text that was pasted: a history shows the fields that were read from it."""
    if "template" not in record.event.data:
        return record
    data = {name: value for name, value in record.event.data.items() if name != "template"}
    return replace(record, event=replace(record.event, data=data))


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
