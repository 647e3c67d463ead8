"""Calls under an idempotency key: run once, whoever goes away meanwhile, and answered again (3.11).

A key has the result that its call came to, be it late; where nobody can know what that is, it says so. What
it has is told as final: whoever tries again by another key does the thing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from onym.ai.endpoint._deliver import Outlet, Streaming, finish, pour
from onym.ai.endpoint._kept import again, kept_answer, kept_events
from onym.ai.endpoint._tasks import Keeper, Tasks, Term
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.ai.endpoint.streams import Wire
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Call
    from onym.ai.endpoint.idempotency import Idempotency, Scope
    from onym.ai.endpoint.limits import Limits
    from onym.ai.endpoint.resources import Resource

__all__ = ["Enter", "Keyed", "Once"]

#: runs a handler, and gives its place back when it has ended
Enter: TypeAlias = Callable[["Resource", "Call", Callable[[], None]], Awaitable[Answer | Streaming]]
_LATE = "the invocation took longer than the endpoint allows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """One call under a key. `release` gives its place back, `keeper` asks the store."""

    resource: Resource
    call: Call
    store: Idempotency
    keeper: Keeper
    scope: Scope
    release: Callable[[], None]

    @property
    def lasts(self) -> bool:
        """Does its work begin in a thread, which goes on where it is given up?"""
        return bool(getattr(self.resource.handler, "lasts", False))


class Once:
    """Runs calls under keys by `enter`; `tell` makes an answer of an error."""

    def __init__(
        self,
        enter: Enter,
        tasks: Tasks,
        limits: Limits,
        clock: Callable[[], float],
        tell: Callable[..., Answer],
    ) -> None:
        self._enter = enter
        self._tasks = tasks
        self._limits = limits
        self._clock = clock
        self._tell = tell
        self.keeper = Keeper()

    def close(self) -> None:
        """Let go of the thread that keeps answers; calls from now on have another."""
        self.keeper.close()
        self.keeper = Keeper()

    async def run(self, keyed: Keyed) -> Answer | Streaming:
        """The answer under a key: given again, or made now and kept."""
        task = self._tasks.own(self._found(keyed))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._unheard, keyed.call))
            raise

    async def _found(self, keyed: Keyed) -> Answer | Streaming:
        begin = keyed.store.begin
        try:
            stored = await keyed.keeper.keep(begin, keyed.scope, keyed.call.request_hash, self._clock())
            found = None if stored.answer is None else again(stored.answer, self._limits.stream_seconds)
        except BaseException:
            keyed.release()
            raise
        if found is None:
            return await self._first(keyed)
        if isinstance(found, Answer):
            keyed.release()
        else:
            found.release = keyed.release
        return found

    async def _first(self, keyed: Keyed) -> Answer | Streaming:
        """What it comes to. Whoever asked is told when the time is over; a thread goes on, in its place."""
        term = Term(self._limits.seconds, lasting=keyed.lasts)
        work = self._tasks.own(self._kept(keyed, term))
        await asyncio.wait({work}, timeout=self._limits.seconds if term.lasting else None)
        if not term.lasting:
            await asyncio.wait({work})
        if work.done():
            return work.result()
        error = AIIPError(
            f"{_LATE}, and goes on",
            code="aiip.upstream-timeout",
            hint="ask again with the same idempotency key: what it comes to will be the answer",
        )
        return self._tell(error, keyed.scope.target, final=True)

    async def _kept(self, keyed: Keyed, term: Term) -> Answer | Streaming:
        term.begin()
        found: Answer | Streaming
        try:
            async with term.limit:
                found = await self._enter(keyed.resource, keyed.call, keyed.release)
            octets = kept_answer(found) if isinstance(found, Answer) else None
        except Exception as error:  # noqa: BLE001 - the refusal is the answer that this key has
            if isinstance(error, TimeoutError) and term.limit.expired():
                return await self._given_up(keyed, error)
            found = self._tell(error, keyed.scope.target, final=True)
            octets = kept_answer(found)
        except BaseException:
            with suppress(AIIPError):  # a store that is closed has said so already
                keyed.store.interrupt(keyed.scope)
            raise
        if isinstance(found, Streaming):
            found.ends = partial(self._streamed, keyed)
        else:
            await self._complete(keyed, octets or b"")
        return found

    async def _given_up(self, keyed: Keyed, error: TimeoutError) -> Answer:
        """It was ended when its time was over, and nobody knows how far it came."""
        await self._interrupt(keyed)
        told = AIIPError(
            _LATE,
            code="aiip.upstream-timeout",
            hint="interrupted: find out whether it took effect, then use a new key",
        )
        told.__cause__ = error
        return self._tell(told, keyed.scope.target, final=True)

    async def _streamed(self, keyed: Keyed, events: list[StreamEvent] | None) -> None:
        if events is None:
            await self._interrupt(keyed)
        else:
            await self._complete(keyed, kept_events(events))

    async def _complete(self, keyed: Keyed, octets: bytes) -> None:
        try:
            await keyed.keeper.keep(keyed.store.complete, keyed.scope, octets)
        except AIIPError as error:
            # it has happened, and whoever asked is told; the log says that its key is not answered again
            self._tell(error, keyed.scope.target)
            if not keyed.keeper.closed:  # which interrupts what runs on
                await self._interrupt(keyed)

    async def _interrupt(self, keyed: Keyed) -> None:
        try:
            await keyed.keeper.keep(keyed.store.interrupt, keyed.scope)
        except AIIPError as error:
            self._tell(error, keyed.scope.target)

    def _unheard(self, call: Call, task: asyncio.Task[Answer | Streaming]) -> None:
        """Nobody waits for this answer any more. Events that a key is bound to are taken all the same."""
        if task.cancelled() or task.exception() is not None:
            return
        found = task.result()
        if isinstance(found, Streaming):
            self._tasks.own(self._drain(found, call))

    async def _drain(self, stream: Streaming, call: Call) -> None:
        try:
            if stream.ends is not None:
                await pour(stream, Wire(call.request_hash, self._limits), Outlet(None, lasting=True))
        except Exception as error:  # noqa: BLE001 - the log is all that can be told
            self._tell(error, str(call.uri.without_query))
        finally:
            try:
                await finish(stream)
            finally:
                stream.release()
