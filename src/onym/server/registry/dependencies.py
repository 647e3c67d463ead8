"""Dependencies of the handlers: lookups, visibility of drafts, cached responses, and applying events.

Only its registrant, IANA and the Designated Experts see a draft request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onym.errors import AccessError, RefusalError, RegistryError, StoreError, UnknownEntryError
from onym.registry.engine import RULES, decide, list_allowed_events
from onym.registry.records import (
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    LogRecord,
    Request,
    Role,
    Scope,
    Status,
)
from onym.registry.registries import REGISTRIES, Registry, get_catalog, use_catalog
from onym.registry.registries import get_registry as registry_of
from onym.registry.service import apply_step
from onym.server.middleware import set_audit_action
from onym.server.registry import urls
from onym.server.registry.actions import EVENT_SCOPES
from onym.server.services import HTTPMiddleware, Services, get_services
from onym.server.sessions import Visitor, get_visitor, require_access
from onym.server.sessions import make_actor as actor_of

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.requests import Request as HTTPRequest
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as ASGIScope

    from onym.accounts.records import Account
    from onym.registry.store import Applied, EntryChange, Store

_INSIDERS: Final = frozenset({Role.IANA, Role.EXPERT})
#: events of a draft before it is public
_BEFORE: Final = frozenset({EventKind.OPEN, EventKind.REVISE, EventKind.WITHDRAW})


def can_see_request(request: HTTPRequest, about: Request) -> bool:
    """May the visitor see this request?"""
    visitor = get_visitor(request)
    if about.public_since is not None:
        return True
    if visitor.account is None:
        return False
    return visitor.account.id == about.registrant or not _INSIDERS.isdisjoint(
        visitor.list_roles(about.registry)
    )


def filter_visible_requests(request: HTTPRequest, found: Iterable[Request]) -> tuple[Request, ...]:
    """Return the requests that the visitor may see."""
    return tuple(about for about in found if can_see_request(request, about))


async def find_hidden_ids(request: HTTPRequest, records: Iterable[LogRecord]) -> frozenset[str]:
    """Return the IDs of the requests in these records that the visitor may not see."""
    known: set[str] = set()
    quiet: set[str] = set()
    for record in records:
        if record.event.request is not None:
            (quiet if record.event.kind in _BEFORE else known).add(record.event.request)
    hidden = set()
    for identifier in quiet - known:
        about = await get_services(request).store.request(identifier)
        if about is not None and not can_see_request(request, about):
            hidden.add(identifier)
    return frozenset(hidden)


async def filter_visible_records(
    request: HTTPRequest, records: tuple[LogRecord, ...]
) -> tuple[LogRecord, ...]:
    """Return the records that the visitor may see."""
    hidden = await find_hidden_ids(request, records)
    return tuple(record for record in records if record.event.request not in hidden)


def redact_record(record: LogRecord) -> LogRecord:
    """Return the record without its content; number, time, kind and digests keep the hash chain visible."""
    return replace(
        record, actor=Actor(id=""), event=replace(record.event, name=None, data={}), rule="", clause=""
    )


#: seconds until a definition by another process is seen
CATALOG_SECONDS: Final = 1.0


class CatalogMiddleware(HTTPMiddleware):
    """Serves each request with the registries that are in force (`onym.registry.registries`)."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        super().__init__(app)
        self._services = services
        self._looked = float("-inf")

    async def serve(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        store, now = self._services.store, self._services.monotonic()
        if now - self._looked >= CATALOG_SECONDS:
            self._looked = now
            # a database that cannot be reached is reported by what needs it
            with suppress(StoreError):
                await store.load_catalog()
        with use_catalog(store.catalog):
            await self._app(scope, receive, send)


#: seconds until a write of another process is seen
PROBE_SECONDS: Final = 0.2
#: cached responses
MAX_CACHED_RESPONSES: Final = 20_000


class CachedResponse(NamedTuple):
    """A cached response body and its strong ETag."""

    body: bytes
    tag: str


class ResponseCache:
    """Response bodies by (registry, name). `head` returns the number of the last log record."""

    def __init__(
        self, head: Callable[[], Awaitable[int]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._head = head
        self._monotonic = monotonic
        self._kept: dict[tuple[str, ...], CachedResponse] = {}
        self._number = -1
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._epoch = 0

    def clear_after_write(self) -> None:
        """Clear the cache after a write of this process."""
        self._kept.clear()
        self._epoch += 1
        self._looked = float("-inf")

    async def get(
        self, key: tuple[str, ...], make: Callable[[], Awaitable[CachedResponse]]
    ) -> CachedResponse:
        """Return the cached response of `key`, or create it with `make`."""
        if self._monotonic() - self._looked >= PROBE_SECONDS:
            await self._refresh_head()
        key = (*key, get_catalog().digest)
        found = self._kept.get(key)
        if found is not None:
            return found
        epoch = self._epoch
        made = await make()
        # a response that was created during a write may be out of date: it is sent and not cached
        if epoch == self._epoch:
            if len(self._kept) >= MAX_CACHED_RESPONSES:
                self._kept.clear()
            self._kept[key] = made
        return made

    async def _refresh_head(self) -> None:
        """Read the head; concurrent readers share one query."""
        task = self._looking
        if task is None or task.done():
            task = self._looking = asyncio.ensure_future(self._probe_head())
        # a reader that disconnects must not cancel the query of the others
        await asyncio.shield(task)

    async def _probe_head(self) -> None:
        number = await self._head()
        if number != self._number:
            self._kept.clear()
            self._epoch += 1
            self._number = number
        self._looked = self._monotonic()


def get_response_cache(request: HTTPConnection) -> ResponseCache:
    """Return the application's cache, created at first use."""
    state = request.app.state
    found = getattr(state, "registry_cache", None)
    if not isinstance(found, ResponseCache):
        store = get_services(request).store

        async def head() -> int:
            return (await store.head()).number

        found = state.registry_cache = ResponseCache(head, get_services(request).monotonic)
    return found


#: accounts whose names one page shows
_MOST_NAMES: Final = 200
_BATCH: Final = 200
#: events that owners, registrants or designees may use without a role
_OWNED: Final = frozenset(rule.event for rule in RULES if rule.who is not None)
#: records per query, and in total for one name or request
_RECORDS: Final = 1_000
_MOST_RECORDS: Final = 20_000


def get_store(request: HTTPRequest) -> Store:
    """Return the application's store."""
    return get_services(request).store


def get_current_time(request: HTTPRequest) -> datetime:
    """Return the time in UTC."""
    return get_services(request).clock()


def find_registry(request: HTTPRequest) -> Registry:
    """Return the registry of the URL. Raises UnknownEntryError."""
    return registry_of(request.path_params["registry"])


async def find_entry(request: HTTPRequest) -> Entry:
    """Return the entry of the URL. Raises UnknownEntryError."""
    row, name, found = await find_entry_or_none(request)
    if found is None:
        was = await get_store(request).list_changes_of_name(row.id, name, limit=1)
        removed = bool(was) and is_removal(was[0])
        raise make_unknown_entry_error(
            row, f"It was removed; see {urls.change_url(row.id, name)}." if removed else None
        )
    return found


def is_removal(change: EntryChange) -> bool:
    """Did this change remove an entry? A row that only waited for review is not an entry."""
    return change.before is not None and change.before.status is not Status.PENDING_REVIEW


def make_unknown_entry_error(row: Registry, hint: str | None = None) -> UnknownEntryError:
    """Return the error for a name without an entry."""
    return UnknownEntryError(
        f"no {row.noun} of that name is registered",
        code="registry.unknown-entry",
        field="name",
        hint=hint or "Search for it, or register it.",
    )


async def find_entry_or_none(request: HTTPRequest) -> tuple[Registry, str, Entry | None]:
    """Return the registry and name of the URL, and the entry or None.

    Overrides may name an entry that was removed. Raises UnknownEntryError for an unknown registry.
    """
    row = find_registry(request)
    key = row.normalize_name(request.path_params["name"])
    # names outside the grammar are looked up too: snapshots contain irregular rows
    return row, key, await get_store(request).entry(row.id, key)


async def find_request(request: HTTPRequest) -> Request:
    """Return the registration request of the URL. Raises UnknownEntryError."""
    found = await find_visible_request(request, request.path_params["id"])
    if found is None:
        raise UnknownEntryError("no such request", code="registry.unknown-request", field="request")
    return found


async def find_visible_request(request: HTTPRequest, identifier: str) -> Request | None:
    """Return the request if it exists and the visitor may see it."""
    found = await get_store(request).request(identifier)
    return found if found is not None and can_see_request(request, found) else None


def list_visitor_events(
    request: HTTPRequest, about: Request | None, entry: Entry | None
) -> tuple[EventKind, ...]:
    """Return the events that the engine and the token's scopes allow the visitor now."""
    subject = about or entry
    visitor = get_visitor(request)
    if subject is None or visitor.account is None:
        return ()
    found = list_allowed_events(
        about, entry, _make_scoped_actor(visitor, subject.registry), get_current_time(request)
    )
    return tuple(kind for kind in found if not EVENT_SCOPES[kind].isdisjoint(visitor.scopes))


def preview_decisions(
    request: HTTPRequest, about: Request, entry: Entry | None, kinds: Iterable[EventKind]
) -> dict[EventKind, Decision]:
    """Return what the engine would decide if the visitor caused these events now, without data.

    Events that need data are left out. Nothing is written.
    """
    if get_visitor(request).account is None:
        return {}
    actor = actor_of(get_visitor(request), about.registry)
    found: dict[EventKind, Decision] = {}
    for kind in kinds:
        event = Event(kind=kind, registry=about.registry, request=about.id, name=about.name)
        with suppress(RefusalError):
            found[kind] = decide(event, actor, get_current_time(request), request=about, entry=entry)
    return found


def _require_profile_in_force(request: HTTPRequest, registry: str, data: Mapping[str, Any]) -> None:
    """Raise RefusalError for a procedure that the operator does not offer (docs/decisions/0026)."""
    row = REGISTRIES[registry]
    offered = get_services(request).settings.list_profiles(row)
    if data.get("profile", row.default_profile) not in offered:
        raise RefusalError(
            f"the procedure {data.get('profile', row.default_profile)} is not in use in this registry",
            code="registry.bad-profile",
            field="profile",
            clause="docs/decisions/0026",
            hint=f"Use {' or '.join(offered)}.",
        )


async def apply_event(
    request: HTTPRequest,
    kind: EventKind,
    registry: str,
    *,
    about: str | None = None,
    name: str | None = None,
    data: Mapping[str, Any] | None = None,
    expected: int | None = None,
) -> Applied:
    """Apply an event as the visitor and return the result. Raises RegistryError and its subclasses."""
    visitor = get_visitor(request)
    require_access(visitor)
    # an event without scopes is refused below
    if EVENT_SCOPES[kind] and EVENT_SCOPES[kind].isdisjoint(visitor.scopes):
        raise make_missing_scope_error(EVENT_SCOPES[kind])
    set_audit_action(request, f"registry.{kind}", about or name or "")
    if kind in (EventKind.IMPORT, EventKind.DEFINE):
        raise RefusalError(
            f"{kind} is only possible on the command line of the registry's server",
            code="registry.not-allowed",
            clause="docs/decisions/0026",
            hint="Use onym registry import or define, or an override with a reason.",
        )
    if kind in _OWNED and Scope.SUBMIT not in visitor.scopes:
        await _require_role(request, visitor, kind, registry, about, name)
    if kind is EventKind.OPEN:
        _require_profile_in_force(request, registry, data or {})
    event = Event(kind=kind, registry=registry, request=about, name=name, data=dict(data or {}))
    applied = await apply_step(
        get_store(request), event, actor_of(visitor, registry), get_current_time(request), expected=expected
    )
    get_response_cache(request).clear_after_write()
    return applied


def make_missing_scope_error(scopes: Iterable[Scope]) -> AccessError:
    """Return the error of a token that has none of these scopes."""
    names = " or ".join(repr(str(scope)) for scope in sorted(scopes))
    return AccessError(
        f"this API token has no scope {names}", code="accounts.missing-scope", field="scope",
        hint="Create a token with that scope on the account page. The account needs the role too.",
    )  # fmt: skip


def _make_scoped_actor(visitor: Visitor, registry: str) -> Actor:
    """Return the visitor as an actor; without the scope `submit` it owns nothing."""
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
    """Raise AccessError if the event needs the scope `submit`, and no role allows it."""
    asked = None if about is None else await get_store(request).request(about)
    entry = None if name is None else await get_store(request).entry(registry, name)
    if kind not in list_allowed_events(
        asked, entry, _make_scoped_actor(visitor, registry), get_current_time(request)
    ):
        require_access(visitor, scope=Scope.SUBMIT)


async def load_accounts(request: HTTPRequest, ids: Iterable[str]) -> dict[str, Account]:
    """Return accounts by ID; other IDs are left out."""
    found = {}
    for identifier in list(dict.fromkeys(ids))[:_MOST_NAMES]:
        try:
            account = await get_store(request).accounts.get(identifier)
        except RegistryError:
            account = None
        if account is not None:
            found[identifier] = account
    return found


async def load_account_names(request: HTTPRequest, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of accounts by ID; other IDs are left out."""
    found = await load_accounts(request, ids)
    return {identifier: account.name or account.login for identifier, account in found.items()}


async def load_actor_names(request: HTTPRequest, records: Iterable[LogRecord]) -> dict[str, str]:
    """Return the names of the actors of these records."""
    return await load_account_names(request, (record.actor.id for record in records))


async def load_entry_history(request: HTTPRequest, registry: str, name: str) -> tuple[LogRecord, ...]:
    """Return the events of a name that the visitor may see, oldest first, at most 20,000."""
    history = partial(get_store(request).history, registry, name, limit=_RECORDS)
    return await filter_visible_records(request, await _load_records(history))


async def load_entry_changes(request: HTTPRequest, registry: str, name: str) -> tuple[EntryChange, ...]:
    """Return the last 20,000 changes of a name's entries, oldest first."""
    found: list[EntryChange] = []
    for _ in range(_MOST_RECORDS // _RECORDS):
        below = found[-1].number if found else None
        part = await get_store(request).list_changes_of_name(registry, name, below=below, limit=_RECORDS)
        if not part:
            break
        found += part
    return tuple(reversed(found))


async def load_request_history(request: HTTPRequest, identifier: str) -> tuple[LogRecord, ...]:
    """Return the events of a request, as `load_entry_history`. Raises UnknownEntryError."""
    return await _load_records(partial(get_store(request).request_history, identifier, limit=_RECORDS))


async def _load_records(load_page: Callable[..., Awaitable[tuple[LogRecord, ...]]]) -> tuple[LogRecord, ...]:
    found: list[LogRecord] = []
    # long records make short pages, so only an empty page is the end
    for _ in range(_MOST_RECORDS // _RECORDS):
        part = await load_page(after=found[-1].number if found else 0)
        if not part:
            break
        found += map(_strip_template, part)
    return tuple(found)


def _strip_template(record: LogRecord) -> LogRecord:
    """Return the record without the pasted text; a history shows the fields instead."""
    if "template" not in record.event.data:
        return record
    data = {name: value for name, value in record.event.data.items() if name != "template"}
    return replace(record, event=replace(record.event, data=data))
