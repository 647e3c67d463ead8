"""How rows are answered: the seam that engines fit, and the engine of this process.

While a batch runs, its engine is the one owner of retries: the client underneath is told `retries=0`, so that
every refusal of the server is seen here and slows down all rows, and nothing is tried again at two levels.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.errors import (
    AuthenticationError,
    CredentialError,
    NetError,
    OnymError,
    OverloadedError,
    PolicyError,
    ProviderError,
    QuotaError,
    RateLimitError,
)
from onym.llm.batch._control import Control
from onym.llm.batch._results import Result, answered, failed
from onym.llm.batch._rows import Row, read_row
from onym.net.retry import RetryPolicy

if TYPE_CHECKING:
    from onym.llm.batch._job import Job
    from onym.llm.client import AsyncClient

__all__ = ["FATAL", "Engine", "Local", "Work"]

#: what no other row can do better: the run stops, and the row keeps its turn
FATAL: Final = (AuthenticationError, CredentialError, PolicyError, QuotaError)
_THROTTLED: Final = (RateLimitError, OverloadedError)
#: attempts that the server may refuse for being busy, beside those that fail
_REFUSALS: Final = 20
#: rows that may wait for their next attempt while others take their place, per slot
_PARKED: Final = 4
#: rows in a row that reach no server, after their retries, before the run stops
_OUTAGE: Final = 10
_PATIENCE: Final = RetryPolicy(base=0.5, cap=30.0)


class Work(Protocol):
    """Rows to be answered and the place for their results. All of it in one event loop."""

    stop: asyncio.Event
    #: whether too many results wait to be durable
    full: bool

    def take(self) -> tuple[int, bytes] | None:
        """The next row, its place and its JSON; None where there is no more to do."""
        ...

    def give(self, result: Result) -> None:
        """Take the result of a row that was taken."""
        ...

    async def room(self) -> None:
        """Return once not too many results wait to be durable."""
        ...

    async def settled(self) -> bool:
        """Return once every result that was given is durable; False where the disk failed."""
        ...


class Engine(Protocol):
    """Answers rows until none is left, `work.stop` is set, or one fails in a way that all would.

    `flying`, `limit` and `pause` are for people to watch (see `Progress`).
    """

    @property
    def flying(self) -> int:
        """Requests under way."""
        ...

    @property
    def limit(self) -> int:
        """How many may be."""
        ...

    @property
    def pause(self) -> float:
        """Seconds for which the server wants to be left alone."""
        ...

    async def run(self, work: Work) -> None:
        """Take rows and give results; raises the OnymError that stops the whole run."""
        ...


class Local:
    """The engine of this process: one event loop, as many requests at once as the server bears.

    `rest(seconds)` waits, or returns early when the run is stopped; `chance` is in [0, 1). Engines that share
    a `control` share its slots, those that get a `client` leave it open.
    """

    def __init__(
        self,
        job: Job,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        rest: Callable[[float], Awaitable[Any]] | None = None,
        control: Control | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        self._job = job
        self._control = control or Control(job.concurrency, clock)
        self._given = client
        self._chance = chance
        self._rest = rest or self._wait
        self._working: set[asyncio.Task[None]] = set()
        self._parked = 0
        self._unreached = 0
        self._fatal: OnymError | None = None
        self._client: AsyncClient
        self._work: Work

    @property
    def flying(self) -> int:
        """Requests under way."""
        return self._control.flying

    @property
    def limit(self) -> int:
        """How many may be."""
        return self._control.limit

    @property
    def pause(self) -> float:
        """Seconds for which the server wants to be left alone."""
        return self._control.pause

    async def run(self, work: Work) -> None:
        """See `Engine`. Requests under way when the run is stopped are waited for; cancelling drops them."""
        self._work = work
        self._client = self._given or self._job.client()
        try:
            for _ in range(self._job.concurrency):
                self._hire()
            while self._working:
                done, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
                self._working -= done
                # a bug, not an answer: let it be seen
                for bug in [task.exception() for task in done]:
                    if bug is not None:
                        raise bug
        finally:
            for task in self._working:
                task.cancel()
            await asyncio.gather(*self._working, return_exceptions=True)
            if self._given is None:
                await self._client.close()
        if self._fatal is not None:
            raise self._fatal

    def _hire(self) -> None:
        self._working.add(asyncio.get_running_loop().create_task(self._serve()))

    async def _serve(self) -> None:
        """Answer row after row."""
        work, control = self._work, self._control
        while not work.stop.is_set():
            if work.full:
                await work.room()
            # mostly there is a slot, and no need to wait for one
            sent_in = control.try_enter()
            if sent_in is None:
                sent_in = await self._slot()
            taken = work.take()
            if taken is None:
                control.leave()
                return
            result = await self._answer(read_row(*taken, self._job.model), sent_in)
            if result is not None:
                work.give(result)
            if len(self._working) - self._parked > self._job.concurrency:
                # somebody came in while this row waited
                return

    async def _slot(self) -> int:
        """A slot, once the server lets anybody ask."""
        sent_in = await self._control.enter()
        while (pause := self._control.pause) > 0 and not self._work.stop.is_set():
            self._control.leave()
            await self._rest(pause)
            sent_in = await self._control.enter()
        return sent_in

    async def _answer(self, row: Row, sent_in: int) -> Result | None:
        """The result of a row, asked as often as it takes; None where it keeps its turn. Ends the slot."""
        if row.error is not None:
            self._control.leave()
            return failed(row.place, row.id, row.error, 0)
        job, refusals, failures = self._job, 0, 0
        overrides = {**job.overrides, **row.overrides} if job.overrides else row.overrides
        retries = job.retries if row.retries is None else row.retries
        while True:
            try:
                completion = await self._client.chat(row.messages, **overrides)
            except OnymError as error:
                failure = error
            else:
                self._control.succeeded()
                self._unreached = 0
                return answered(row.place, row.id, completion, refusals + failures + 1)
            finally:
                self._control.leave()
            if isinstance(failure, _THROTTLED):
                self._control.refused(sent_in, failure.retry_after)
                refusals += 1
            else:
                failures += 1
            if failures > retries or refusals > min(_REFUSALS, retries * _REFUSALS) or not _again(failure):
                return self._given_up(row, failure, refusals + failures)
            if not await self._park(_pause(failure, refusals + failures - 1, self._chance)):
                return None
            sent_in = await self._slot()
            if self._work.stop.is_set():
                self._control.leave()
                return None

    def _given_up(self, row: Row, failure: OnymError, attempts: int) -> Result | None:
        """The row's error as its result, unless it is everybody's."""
        if isinstance(failure, NetError) and _again(failure):
            self._unreached += 1
        else:
            self._unreached = 0
        if isinstance(failure, FATAL) or self._unreached >= _OUTAGE:
            self._fatal = self._fatal or failure
            self._work.stop.set()
            return None
        return failed(row.place, row.id, failure, attempts, self._job.secrets)

    async def _park(self, seconds: float) -> bool:
        """Wait without a slot, while somebody else takes the place; False where the run was stopped."""
        if self._parked < _PARKED * self._job.concurrency:
            self._parked += 1
            self._hire()
            try:
                await self._rest(seconds)
            finally:
                self._parked -= 1
        else:
            await self._rest(seconds)
        return not self._work.stop.is_set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._work.stop.wait()
        except TimeoutError:
            return


def _again(failure: OnymError) -> bool:
    return isinstance(failure, NetError | ProviderError) and failure.retryable


def _pause(failure: OnymError, attempt: int, chance: Callable[[], float]) -> float:
    # what the server asked for is everybody's pause: this keeps all from coming back at the same moment
    return _PATIENCE.delay(attempt, None, chance)
