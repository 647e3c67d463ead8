"""Registries to test with: who acts, what they ask, and ways to run coroutines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from onym.registry.records import Actor, Entry, Event, EventKind, Role, Status
from onym.registry.store import Applied, Store

__all__ = [
    "AT",
    "ELEVEN",
    "EXPERT",
    "IANA",
    "IESG",
    "REGISTRANT",
    "SCHEMES",
    "ask",
    "entry",
    "generated",
    "in_store",
    "open_event",
    "opened",
    "registered",
    "run",
    "under_review",
]

_Result = TypeVar("_Result")

SCHEMES = "uri-schemes"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
REGISTRANT = Actor(id="user-ada", roles=frozenset({Role.REGISTRANT}))
IANA = Actor(id="user-iana", roles=frozenset({Role.IANA}))
EXPERT = Actor(id="user-expert", roles=frozenset({Role.EXPERT}))
IESG = Actor(id="user-iesg", roles=frozenset({Role.IESG}))
FIELDS = {
    "applications": "Conti clients",
    "contact": "Ada <ada@example.org>",
    "change_controller": "Ada <ada@example.org>",
    "references": "RFC 9999",
    "description": "A scheme for tests",
}


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run(work)


def in_store(
    url: str, work: Callable[[Store], Awaitable[_Result]], *, create: bool = True, **options: Any
) -> _Result:
    """Run `work` on a store at `url`."""

    async def inner() -> _Result:
        async with await Store.open(url, create=create, **options) as store:
            return await work(store)

    return run(inner())


def open_event(name: str = "conti", *, status: str = "provisional", **more: Any) -> Event:
    data = {"kind": "new", "status": status, "fields": FIELDS, "profile": "rfc7595", **more}
    return Event(kind=EventKind.OPEN, registry=SCHEMES, name=name, data=data)


def ask(kind: EventKind, request: str | None = None, *, name: str | None = None, **data: Any) -> Event:
    return Event(kind=kind, registry=SCHEMES, request=request, name=name, data=data)


#: the fields of RFC 4395 5.4
ELEVEN = {
    **FIELDS,
    **dict.fromkeys(("syntax", "semantics", "encoding", "interoperability", "security"), "See RFC 9999."),
}


async def opened(store: Store, name: str = "conti", **more: Any) -> str:
    """The id of a new draft request."""
    applied = await store.apply(open_event(name, **more), REGISTRANT, AT)
    assert applied.record.event.request is not None
    return applied.record.event.request


async def registered(store: Store, name: str = "conti") -> Applied:
    """A provisional entry, through the procedure."""
    identifier = await opened(store, name)
    await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT + timedelta(hours=1))
    return await store.apply(ask(EventKind.CHECK_COMPLETE, identifier), IANA, AT + timedelta(hours=2))


async def under_review(store: Store, name: str = "conti") -> str:
    """The id of a request that the Designated Expert holds: for historical, which needs no list review."""
    identifier = await opened(store, name, status="historical")
    await store.apply(ask(EventKind.SUBMIT, identifier), REGISTRANT, AT + timedelta(hours=1))
    await store.apply(ask(EventKind.CHECK_COMPLETE, identifier), IANA, AT + timedelta(hours=2))
    return identifier


def entry(name: str, *, status: Status = Status.PERMANENT, **fields: str) -> Entry:
    return Entry(registry=SCHEMES, name=name, status=status, fields=fields)


def generated(count: int, *, seed: int = 1) -> list[Entry]:
    """Entries of made-up words, always the same ones."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(4000)]
    return [
        entry(
            f"{chance.choice(words)}{number}",
            status=chance.choice((Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL)),
            description=" ".join(chance.choices(words, k=12)),
            reference=f"[RFC{chance.randint(1, 9999)}]",
        )
        for number in range(count)
    ]
