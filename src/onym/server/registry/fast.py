"""Entries as they are sent, kept until the registry changes.

A kept representation is right as long as the log's head is the one under which it was made. Own writes drop
everything at once; other writers are noticed by looking at the head, at most every `PROBE` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

__all__ = ["MOST", "PROBE", "Cache", "Kept", "cache_of"]

#: seconds for which another process's write may stay unseen
PROBE: Final = 0.2
#: representations kept
MOST: Final = 20_000


class Kept(NamedTuple):
    """One representation: its octets and its strong ETag."""

    body: bytes
    tag: str


class Cache:
    """Representations by (registry, name). `head` tells the number of the last log record."""

    def __init__(
        self, head: Callable[[], Awaitable[int]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._head = head
        self._monotonic = monotonic
        self._kept: dict[tuple[str, str], Kept] = {}
        self._number = -1
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._epoch = 0

    def wrote(self) -> None:
        """This process has written: nothing kept holds any more."""
        self._kept.clear()
        self._epoch += 1
        self._looked = float("-inf")

    async def get(self, key: tuple[str, str], make: Callable[[], Awaitable[Kept]]) -> Kept:
        """What is kept for `key`, else what `make` gives now."""
        if self._monotonic() - self._looked >= PROBE:
            await self._look()
        found = self._kept.get(key)
        if found is not None:
            return found
        epoch = self._epoch
        made = await make()
        # what was made while somebody wrote may be of either side: it is sent, and not kept
        if epoch == self._epoch:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[key] = made
        return made

    async def _look(self) -> None:
        """Look at the head; many readers share one look."""
        task = self._looking
        if task is None or task.done():
            task = self._looking = asyncio.ensure_future(self._probe())
        # one reader that goes away must not stop the look of the others
        await asyncio.shield(task)

    async def _probe(self) -> None:
        number = await self._head()
        if number != self._number:
            self._kept.clear()
            self._epoch += 1
            self._number = number
        self._looked = self._monotonic()


def cache_of(request: HTTPConnection) -> Cache:
    """The cache of the application that serves this request, made at first use."""
    from onym.server.services import services  # late: services know nothing of this room

    state = request.app.state
    found = getattr(state, "registry_cache", None)
    if not isinstance(found, Cache):
        store = services(request).store

        async def head() -> int:
            return (await store.head()).number

        found = state.registry_cache = Cache(head, services(request).monotonic)
    return found
