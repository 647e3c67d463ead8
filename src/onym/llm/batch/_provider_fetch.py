"""How the results of a batch are fetched: line by line, as often as it takes until they are whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

from onym.errors import MalformedResponseError, NetError, OnymError, ProviderError
from onym.llm.batch._provider_flow import TRANSFER, Desk, ask
from onym.llm.batch._provider_ledger import Chunk
from onym.llm.batch._provider_results import Intake, Lines
from onym.llm.dialects._batch import Batch, Call
from onym.net.messages import Reply
from onym.net.transport import AsyncTransport, arun

if TYPE_CHECKING:
    from onym.llm.batch._engine import Work
    from onym.net.messages import AsyncStreamBody

__all__ = ["HINT", "Fetcher"]

#: times that results are fetched before what is wrong with them counts
_FETCHES: Final = 3
#: how to go on without them
HINT: Final = "--cancel gives up the rows that have no answer"


class Fetcher:
    """Fetches results by `transport`, which takes large answers, and puts them into the intake.

    With `give_up` what stays unreadable is passed over.
    """

    def __init__(
        self,
        desk: Desk,
        work: Work,
        intake: Intake,
        transport: AsyncTransport,
        rest: Callable[[float], Awaitable[Any]],
        *,
        give_up: bool,
    ) -> None:
        self._desk = desk
        self._work = work
        self._intake = intake
        self._transport = transport
        self._rest = rest
        self._give_up = give_up

    async def is_ours(self, chunk: Chunk, batch: Batch) -> bool | None:
        """Whether the first line of the results says so; None where the run was stopped."""
        for call in self._desk.api.results(batch):
            async with aclosing(self._lines(call)) as lines:
                async for line in lines:
                    ours = self._intake.is_ours(chunk, line)
                    if ours is not None:
                        return ours
                    break
        if self._work.stop.is_set():
            return None
        if self._give_up:
            return False
        raise self._damaged(f"the results of the batch {batch.id} do not say whose they are")

    async def fetch(self, chunk: Chunk, batch: Batch) -> bool:
        """Take all results that there are; False where the run was stopped.

        Raises what is wrong with them.
        """
        for attempt in range(_FETCHES):
            failure: OnymError | None = None
            try:
                if not await self._read(chunk, batch):
                    failure = self._damaged(f"the results of the batch {batch.id} are damaged")
            except (NetError, ProviderError) as error:
                failure = error
            if self._work.stop.is_set():
                return False
            if not self._intake.lacks(chunk) or (failure is None and batch.ending != "completed"):
                return True
            if attempt < _FETCHES - 1:
                await self._rest(self._desk.pause(attempt, failure or TimeoutError()).seconds)
        if failure is not None and not self._give_up:
            raise failure
        return True

    async def _read(self, chunk: Chunk, batch: Batch) -> bool:
        """Take the results; False where a line of them is not whole."""
        sound = True
        for call in self._desk.api.results(batch):
            async with aclosing(self._lines(call)) as lines:
                async for line in lines:
                    sound = self._intake.take(chunk, line) and sound
                    if self._work.stop.is_set():
                        return sound
                    if self._work.full:
                        await self._work.room()
        return sound

    async def _lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The lines of an answer, as they come; they end early where the run is stopped."""
        flow = ask(self._desk, call, _same, timeout=TRANSFER, stream=True)
        reply = await arun(flow, self._transport, sleep=self._rest)
        if reply is None:
            return
        lines = Lines()
        async with cast("AsyncStreamBody", reply.stream) as body:
            while (data := await body.aread()) and not self._work.stop.is_set():
                for line in lines.feed(data):
                    yield line
        for line in lines.close():
            yield line

    def _damaged(self, text: str) -> MalformedResponseError:
        return MalformedResponseError(text, endpoint=self._desk.exchange.endpoint, status=200, hint=HINT)


def _same(reply: Reply) -> Reply:
    return reply
