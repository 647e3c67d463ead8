"""What is not public yet: drafts, until they are announced or submitted.

A draft is its registrant's, and IANA and the Designated Experts may see it: they are asked for advice.
Everybody else finds no such request, and records of the log that tell of one are withheld.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onym.registry.records import Actor, EventKind, LogRecord, Request, RequestState, Role
from onym.server.security import current
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

__all__ = ["hidden_ids", "is_private", "may_see", "seen", "withheld", "without_hidden"]

_INSIDERS: Final = frozenset({Role.IANA, Role.EXPERT})
#: what happens to a draft before anybody else knows of it
_BEFORE: Final = frozenset({EventKind.OPEN, EventKind.REVISE, EventKind.WITHDRAW})


def is_private(about: Request) -> bool:
    """Has nobody been asked yet?"""
    quiet = about.announced is None and about.submitted is None and about.expert_asked is None
    return quiet and about.state in (RequestState.DRAFT, RequestState.WITHDRAWN)


def may_see(request: HTTPRequest, about: Request) -> bool:
    """May the visitor know of it?"""
    visitor = current(request)
    if not is_private(about):
        return True
    if visitor.account is None:
        return False
    return visitor.account.id == about.registrant or not _INSIDERS.isdisjoint(visitor.roles(about.registry))


def seen(request: HTTPRequest, found: Iterable[Request]) -> tuple[Request, ...]:
    """Those that the visitor may know of."""
    return tuple(each for each in found if may_see(request, each))


async def hidden_ids(request: HTTPRequest, records: Iterable[LogRecord]) -> frozenset[str]:
    """Ids of the requests in these records that the visitor may not know of."""
    known: set[str] = set()
    quiet: set[str] = set()
    for record in records:
        if record.event.request is not None:
            (quiet if record.event.kind in _BEFORE else known).add(record.event.request)
    hidden = set()
    for identifier in quiet - known:
        about = await services(request).store.request(identifier)
        if about is not None and not may_see(request, about):
            hidden.add(identifier)
    return frozenset(hidden)


async def without_hidden(request: HTTPRequest, records: tuple[LogRecord, ...]) -> tuple[LogRecord, ...]:
    """The records that the visitor may read."""
    hidden = await hidden_ids(request, records)
    return tuple(each for each in records if each.event.request not in hidden)


def withheld(record: LogRecord) -> LogRecord:
    """The record without what it tells: number, time, kind and digests stay, so that the chain is seen."""
    return replace(
        record, actor=Actor(id=""), event=replace(record.event, name=None, data={}), rule="", clause=""
    )
