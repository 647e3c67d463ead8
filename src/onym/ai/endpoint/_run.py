"""Running a handler: within its time, in its place, its events sent as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from onym.ai.endpoint._deliver import Events, Outlet, Streaming, finish, gone, part, pour
from onym.ai.endpoint._fault import contained
from onym.ai.endpoint._http import Receive, Send, start
from onym.ai.endpoint._once import Keyed, Once
from onym.ai.endpoint._places import Places
from onym.ai.endpoint._tasks import Tasks
from onym.ai.endpoint.context import Answer
from onym.ai.endpoint.signing import check_answer
from onym.ai.endpoint.streams import EVENTS, Wire, encode_event
from onym.errors import AIIPError, OnymError

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Call
    from onym.ai.endpoint.idempotency import Idempotency, Scope
    from onym.ai.endpoint.limits import Limits
    from onym.ai.endpoint.resources import Resource
    from onym.ai.endpoint.signing import Asked, Signing

__all__ = ["Runner", "Streaming"]


class Runner:
    """Runs handlers, `limits.concurrent` of them at a time. `tell` makes an answer of an error."""

    def __init__(
        self, signing: Signing, limits: Limits, clock: Callable[[], float], tell: Callable[..., Answer]
    ) -> None:
        self.signing = signing
        self._limits = limits
        self._tell = tell
        self._places = Places(limits)
        self._tasks = Tasks()
        self._once = Once(self._entered, self._tasks, limits, clock, tell)

    def close(self) -> None:
        """Let go of the thread that keeps answers."""
        self._once.close()

    async def run(self, resource: Resource, call: Call, who: str) -> Answer | Streaming:
        """The handler's answer; `who` is whose share it takes of the places.

        Raises what the handler raises, `aiip.unavailable`, `aiip.too-many-requests`, `aiip.upstream-timeout`.
        """
        release = self._places.take(who)
        limit = asyncio.timeout(self._limits.seconds)
        try:
            async with limit:
                return await self._entered(resource, call, release)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AIIPError(
                "the invocation took longer than the endpoint allows", code="aiip.upstream-timeout"
            ) from error

    async def once(
        self, resource: Resource, call: Call, store: Idempotency, scope: Scope, who: str
    ) -> Answer | Streaming:
        """The answer under a key: given again, or made now and kept, whoever goes away meanwhile."""
        # first: "come again later" must not become what the key is answered with
        release = self._places.take(who)
        return await self._once.run(
            Keyed(
                resource=resource,
                call=call,
                store=store,
                keeper=self._once.keeper,
                scope=scope,
                release=release,
            )
        )

    async def _entered(
        self, resource: Resource, call: Call, release: Callable[[], None]
    ) -> Answer | Streaming:
        try:
            found = await self._begun(resource, call)
        except BaseException:
            release()
            raise
        if isinstance(found, Streaming):
            found.release = release
            return found
        release()
        check_answer(found)
        if len(found.body) > self._limits.answer:
            raise OnymError("the answer is longer than the endpoint sends", code="aiip.internal")
        return found

    async def _begun(self, resource: Resource, call: Call) -> Answer | Streaming:
        with contained():
            result = await resource.handler.invoke(call)
        if isinstance(result, Answer):
            return result
        events = Events(result)
        await events.begin()
        deadline = asyncio.get_running_loop().time() + self._limits.stream_seconds
        return Streaming(events=events, deadline=deadline)

    async def send(self, stream: Streaming, asked: Asked, receive: Receive, send: Send) -> None:
        """Send the events and the receipt that makes them count.

        A caller that goes away ends the stream, and so does whoever cancels this: the function has ended by
        then, but for a plain generator at work in its thread, which ends with its next event. A key binds the
        endpoint to what it has begun; the rest of that is taken, and sent to nobody.
        """
        bound = stream.ends is not None
        outlet = Outlet(send, lasting=bound)
        work = self._tasks.own(self._send(stream, asked, outlet))
        watch = None if bound else self._tasks.own(gone(receive))
        ending = [each for each in (watch, None if bound else work) if each is not None]
        try:
            await asyncio.wait({work, *ending}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            outlet.close()  # whoever cancels may answer in another way
            raise
        finally:
            for each in ending:
                each.cancel()
            if ending:
                await asyncio.wait(ending)
        if not work.cancelled():
            work.result()

    async def _send(self, stream: Streaming, asked: Asked, send: Outlet) -> None:
        answer = Answer(content_type=EVENTS, headers=stream.headers)
        wire = Wire(asked.request_hash, self._limits)
        try:
            try:
                await start(send, answer)
                last = await self._poured(stream, asked, answer, wire, send)
                await part(send, last)
            finally:
                await finish(stream)
            await part(send, b"", more=False)
        finally:
            stream.release()

    async def _poured(
        self, stream: Streaming, asked: Asked, answer: Answer, wire: Wire, send: Outlet
    ) -> bytes:
        """The last event, after all others: the receipt, or the problem that ended them."""
        final = stream.ends is not None
        try:
            await pour(stream, wire, send)
            return encode_event("receipt", self.signing.stream(asked, answer, wire.end))
        except Exception as error:  # noqa: BLE001 - without a receipt, nothing of the stream counts
            told = self._tell(error, asked.subject, final=final)
            return encode_event("problem", told.body.decode())
