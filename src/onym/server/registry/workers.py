"""Where checks run: short texts in a thread, long ones in a process that is ended when it takes too long.

Strangers may have texts checked, so that work has bounds: on how many are checked at once, on how many of
one visitor are under way or wait, and on time and memory of the long ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import RegistryError
from onym.server.registry._check_parent import Child

if TYPE_CHECKING:
    from onym.registry.checks import Known, Report
    from onym.server.registry.checking import Given, Submission

__all__ = ["AT_ONCE", "LONG", "SECONDS", "Turns", "Workers", "workers_of"]

Asked: TypeAlias = tuple[str, ...]
#: checks at once, of short texts and of long ones each
AT_ONCE: Final = 2
#: checks of one visitor under way or waiting
EACH: Final = 4
#: characters from which on a text is long; short ones are checked in a second at most
LONG: Final = 32_000
#: that a check of a long text may take
SECONDS: Final = 30.0


class Turns:
    """Takes turns: so many at once, and no more than a few of one visitor."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH) -> None:
        self._turn = asyncio.Semaphore(at_once)
        self._each = each
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """A turn of that visitor. Raises RegistryError (429) where enough of its own wait already."""
        if self._held[key] >= self._each:
            raise RegistryError(
                "too many texts of yours are being checked",
                code="http.too-many-requests",
                hint="wait for their reports",
            )
        self._held[key] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]


class Workers:
    """Checks texts. `seconds` is what a long one may take."""

    def __init__(self, *, at_once: int = AT_ONCE, seconds: float = SECONDS, long: int = LONG) -> None:
        self._short, self._long = Turns(at_once), Turns(at_once)
        # whoever saves a text is not held up, or refused, for the checks that ran while it was typed
        self._reads = Turns(at_once)
        self._seconds = seconds
        self._from = long
        self._idle: list[Child] = []

    async def check(self, given: Given, known_of: Callable[[Asked], Awaitable[Known]], *, key: str) -> Report:
        """The report. `known_of` tells what is known of the names that a text asks for; `key` is the visitor.

        Raises RegistryError where nothing can be read, and with the codes http.too-many-requests and
        registry.check-too-long.
        """
        size = len(given.text) + sum(map(len, given.fields.values()))
        if size >= self._from:
            async with self._long.of(key):
                return await self._check_long(given, known_of)
        from onym.server.registry.checking import asked_of, examined, read_given  # late: it asks for this

        async with self._short.of(key):
            submission = await asyncio.to_thread(read_given, given)
            known = await known_of(asked_of(submission))
            return await asyncio.to_thread(examined, submission, known)

    async def _check_long(self, given: Given, known_of: Callable[[Asked], Awaitable[Known]]) -> Report:
        child = self._idle.pop() if self._idle else Child(self._seconds)
        try:
            asked = await asyncio.to_thread(child.read, given)
            known = await known_of(asked)
            report = await asyncio.to_thread(child.check, known)
        except RegistryError:
            if child.alive:
                self._idle.append(child)
            raise
        except BaseException:
            child.end()
            raise
        self._idle.append(child)
        return report

    async def read(self, given: Given, *, key: str) -> Submission:
        """The text, read and not checked. Raises RegistryError."""
        from onym.server.registry.checking import read_given  # late, as above

        async with self._reads.of(key):
            return await asyncio.to_thread(read_given, given)

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, []
        for child in idle:
            child.end()


def workers_of(app: Any) -> Workers:
    """The workers of an application, made at first use; it closes them when it ends."""
    found = getattr(app.state, "registry_workers", None)
    if not isinstance(found, Workers):
        found = app.state.registry_workers = Workers()
        app.state.closing = (*getattr(app.state, "closing", ()), found)
    return found
