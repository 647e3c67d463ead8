"""The engine of providers' own batch APIs: cheaper answers within a day, asked for by the file.

What is at the provider is written down before it is there (see `_provider_ledger.py`), so a run that ended in
any way is gone on with by the next one. Stopping a run leaves the batches where they are.
"""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onym.errors import NotFoundError, OnymError, OnymWarning, ProviderError
from onym.llm._plan import encode
from onym.llm.batch._provider_api import find_api, no_api
from onym.llm.batch._provider_fetch import HINT, Fetcher
from onym.llm.batch._provider_flow import TRANSFER, Desk, Found, ask, create, refused, search, watch
from onym.llm.batch._provider_ledger import Chunk, Ledger, ledger_path
from onym.llm.batch._provider_results import Intake
from onym.llm.batch._provider_rows import ROOM, Labels, Load
from onym.llm.batch._results import failed
from onym.llm.batch._rows import label, read_row
from onym.llm.dialects import Exchange
from onym.llm.dialects._batch import Batch
from onym.llm.flow import REAL, Clock
from onym.net.limits import NetLimits
from onym.net.messages import Flow
from onym.net.transport import AsyncTransport, arun

if TYPE_CHECKING:
    from onym.llm.batch._engine import Work
    from onym.llm.batch._job import Job

__all__ = ["POLL", "ProviderBatches", "find_api"]

T = TypeVar("T")

#: seconds before the second look at a batch
POLL: Final = 5.0
#: octets of the results of one batch, uncompressed
_LARGEST: Final = 1 << 40
#: how servers answer who cancels what has ended or is gone: looking at it tells more
_ENDED: Final = (400, 404, 409)
#: rows between two moments in which others get their turn
_TURN: Final = 256


class ProviderBatches:
    """An `Engine`: rows go into batches of the provider, results are fetched when these have ended.

    `poll` is the seconds before the second look at a batch. With `cancel` nothing new is sent, and the
    batches that are at the provider are ended. `rest(seconds)` waits, or returns early when the run is
    stopped; `room` is how many octets of requests go into one batch.
    """

    def __init__(
        self,
        job: Job,
        output: Path,
        *,
        cancel: bool = False,
        poll: float = POLL,
        clock: Clock = REAL,
        rest: Callable[[float], Awaitable[Any]] | None = None,
        room: int = ROOM,
    ) -> None:
        planner = job.settled.planner
        endpoint = planner.endpoint
        self._job = job
        self._planner = planner
        self._api = find_api(endpoint)
        self._output = output.resolve()
        self._cancel = cancel
        self._poll = poll
        self._room = room
        self._rest = rest or self._wait
        self._desk = Desk(
            api=self._api,
            endpoint=endpoint,
            exchange=Exchange(endpoint=endpoint.text, secrets=endpoint.secrets, model=endpoint.model),
            clock=clock,
            retries=job.retries,
            stopped=self._stopped,
        )
        #: requests in a batch and those of them that are done, by the batch's identifier
        self._figures: dict[str, tuple[int, int]] = {}
        self._work: Work
        self._ledger: Ledger
        self._labels: Labels
        self._intake: Intake
        self._fetcher: Fetcher
        self._transport: AsyncTransport

    def _stopped(self) -> bool:
        return self._work.stop.is_set()

    @property
    def flying(self) -> int:
        """Requests that the provider has yet to answer, as far as it says."""
        return sum(total - done for total, done in self._figures.values())

    @property
    def limit(self) -> int:
        """Requests in the batches that go on."""
        return sum(total for total, _ in self._figures.values())

    @property
    def pause(self) -> float:
        """Nobody is kept waiting."""
        return 0.0

    async def run(self, work: Work) -> None:
        """See `Engine`. When the run is stopped, the batches go on at the provider."""
        async with AsyncExitStack() as stack:
            self._prepare(work, stack)
            await self._recover()
            await self._submit()
            await self._collect()

    def _prepare(self, work: Work, stack: AsyncExitStack) -> None:
        """What a run needs, and what closes it."""
        self._work = work
        self._ledger = Ledger(ledger_path(self._output))
        stack.callback(self._ledger.close)
        self._labels = Labels(self._output.parent)
        stack.callback(self._labels.close)
        decode = self._desk.endpoint.dialect.decode_chat
        self._intake = Intake(
            self._labels, work.give, api=self._api, decode=decode, exchange=self._desk.exchange
        )
        policy = self._job.settled.policy
        self._transport = AsyncTransport(policy)
        stack.push_async_callback(self._transport.close)
        wide = AsyncTransport(policy, limits=NetLimits(body=_LARGEST))
        stack.push_async_callback(wide.close)
        self._fetcher = Fetcher(self._desk, work, self._intake, wide, self._rest, give_up=self._cancel)

    async def _recover(self) -> None:
        """Look for batches of which a former run did not learn whether they were created."""
        for chunk in list(self._ledger.chunks.values()):
            if chunk.batch is None and not chunk.maybe:
                found = await self._ask(self._search(chunk))
                if found is None:
                    return
                self._note(chunk, found)
            if chunk.maybe:
                await self._resolve(chunk)

    def _search(self, chunk: Chunk) -> Flow[Found | None]:
        known = [each.batch for each in self._ledger.chunks.values() if each.batch is not None]
        return search(self._desk, chunk.token, chunk.count, chunk.at, known)

    def _note(self, chunk: Chunk, found: Found) -> None:
        if found.batch is not None:
            self._ledger.created(chunk, found.batch)
        elif found.maybe:
            self._ledger.maybe(chunk, found.maybe)
        else:
            self._ledger.end(chunk, "dropped")

    async def _resolve(self, chunk: Chunk) -> None:
        """Find out which of the batches that may be this one is it, as far as they have ended."""
        for each in chunk.maybe:
            try:
                batch = await self._ask(ask(self._desk, self._api.retrieve(each), self._desk.batch))
            except NotFoundError:
                batch = Batch(id=each, ending="gone")
            if batch is None:
                return
            if batch.ending is None:
                continue
            ours = batch.ending != "gone" and await self._fetcher.is_ours(chunk, batch)
            if ours is None:
                return
            if ours:
                self._ledger.created(chunk, each)
                return
            left = tuple(other for other in chunk.maybe if other != each)
            self._note(chunk, Found(None, left))

    async def _submit(self) -> None:
        """Put the rows that are at no provider yet into batches, and have these created."""
        there = self._ledger.rows()
        load = self._new_load()
        turns = 0
        while (taken := self._work.take()) is not None:
            turns += 1
            if turns % _TURN == 0:
                await asyncio.sleep(0)
            index, line = taken
            if index in there:
                self._labels.put(index, label(index, line))
                continue
            body = None if self._cancel else self._body(index, line)
            if body is None:
                continue
            request = self._api.line(load.name(index), body)
            if not load.fits(request):
                await self._send(load)
                load = self._new_load()
                request = self._api.line(load.name(index), body)
            self._labels.put(index, label(index, line))
            load.add(index, request)
        await self._send(load)

    def _new_load(self) -> Load:
        return Load(secrets.token_hex(8), self._api.most, self._room)

    def _body(self, index: int, line: bytes) -> bytes | None:
        """The request of a row as JSON; None for a row that cannot be asked, which is its result."""
        job, row = self._job, read_row(index, line, self._job.model)
        error = row.error
        if error is None:
            try:
                plan = self._planner.chat(row.messages, {**job.overrides, **row.overrides}, stream=False)
                for text in plan.warnings:
                    warnings.warn(text, OnymWarning, stacklevel=2)
                return encode(plan.body or {})
            except OnymError as refusal:
                error = refusal.with_traceback(None)
        self._work.give(failed(index, row.id, error, 0, job.secrets))
        return None

    async def _send(self, load: Load) -> None:
        """Have one batch created. Its rows are written down before, its identifier after."""
        if not load.rows or self._work.stop.is_set():
            return
        desk, api = self._desk, self._api
        try:
            uploaded = None
            upload = api.upload(load.token, load.lines)
            if upload is not None:
                load.lines.clear()
                uploaded = await self._ask(ask(desk, upload, desk.uploaded, timeout=TRANSFER))
                if uploaded is None:
                    return
            chunk = self._ledger.plan(load.token, load.rows, desk.clock.time())
            call = api.create(load.token, load.lines, uploaded)
            load.lines.clear()
        except ProviderError as error:
            raise self._maybe_no_api(error) from None
        looked = False

        def look() -> Flow[Found | None]:
            nonlocal looked
            looked = True
            return self._search(chunk)

        try:
            found = await self._ask(create(desk, call, look))
        except OnymError as error:
            # whoever looked did so after an attempt in the dark: there may be one, whatever failed since
            if refused(error) and not looked:
                self._ledger.end(chunk, "dropped")
            if isinstance(error, ProviderError):
                raise self._maybe_no_api(error) from None
            raise
        if found is not None:
            self._note(chunk, found)

    def _maybe_no_api(self, error: ProviderError) -> OnymError:
        """What it means that nothing is where batches are created."""
        if error.status in (404, 405, 501) and error.provider_code != "model_not_found":
            return no_api(self._desk.endpoint)
        return error

    async def _collect(self) -> None:
        """Fetch the results of one batch after the other, as they end."""
        if self._cancel:
            await self._cancel_all()
        while not self._work.stop.is_set():
            for chunk in list(self._ledger.chunks.values()):
                if not self._intake.lacks(chunk):
                    # what it brought is there from a former run
                    await self._close(chunk)
            owners = self._owners()
            if not owners:
                return
            batch = await self._ask(watch(self._desk, tuple(owners), self._see, self._poll))
            if batch is None:
                return
            await self._finish(owners[batch.id], batch)

    def _owners(self) -> dict[str, Chunk]:
        """The batches to watch, and whose they are, or may be."""
        owners: dict[str, Chunk] = {}
        for chunk in self._ledger.chunks.values():
            for each in (chunk.batch,) if chunk.batch is not None else chunk.maybe:
                owners.setdefault(each, chunk)
        return owners

    def _see(self, batch: Batch) -> None:
        total = batch.total or 0
        self._figures[batch.id] = (total, min(total, batch.finished or 0))

    async def _cancel_all(self) -> None:
        for chunk in self._ledger.chunks.values():
            if chunk.batch is not None:
                try:
                    await self._ask(ask(self._desk, self._api.cancel(chunk.batch), self._desk.batch))
                except ProviderError as error:
                    if error.status not in _ENDED:
                        raise

    async def _finish(self, chunk: Chunk, batch: Batch) -> None:
        """A batch has ended: give each of its rows a result."""
        self._figures.pop(batch.id, None)
        if chunk.batch is None:
            await self._resolve(chunk)
            if chunk.batch != batch.id:
                return
        if batch.ending == "gone":
            if not self._cancel:
                error = batch.faults[0].error
                error.hint = f"was the batch {batch.id} begun with another key? {HINT}"
                raise error
        elif not await self._fetcher.fetch(chunk, batch):
            return
        for _ in self._intake.give_up(chunk, batch):
            if self._work.full:
                await self._work.room()
        await self._close(chunk)

    async def _close(self, chunk: Chunk) -> None:
        if await self._work.settled():
            self._ledger.end(chunk, "done")

    async def _ask(self, flow: Flow[T]) -> T:
        return await arun(flow, self._transport, sleep=self._rest)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._work.stop.wait()
