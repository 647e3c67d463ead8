"""The engine of providers' batch APIs: cheaper answers within a day, requested by the file.

Onym records a batch before it creates it (see `SubmissionLog`), so the next run continues after any
interruption. When a run stops, its batches continue at the provider.
"""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from onym import errors
from onym.llm.batch import _provider_flow as api_flow
from onym.llm.batch import _storage as storage
from onym.llm.batch._engine import Job, Load, WorkQueue
from onym.llm.batch._rows import Result, decode_row, make_answer_result, make_failed_result
from onym.llm.batch._storage import get_label
from onym.llm.dialects import Exchange
from onym.llm.dialects.batch_api import Batch, BatchApi, BatchRequest, make_unanswered_error
from onym.llm.dialects.streaming import DecodeChat, LineFramer
from onym.llm.flow import SYSTEM_CLOCK, Clock
from onym.llm.plan import encode_body
from onym.llm.types import Completion
from onym.net.messages import Flow
from onym.net.transport import AsyncTransport, arun_flow

if TYPE_CHECKING:
    from onym.net.messages import AsyncStreamBody

#: bytes of one line of the results
_MAX_LINE_SIZE: Final = 64 * 1024 * 1024
#: more rows than any input has
_UNBOUNDED: Final = 1 << 62


@dataclass(slots=True)
class ResultCollector:
    """Decodes lines of results and passes on a result for each row that waits for one.

    Rows with a result, rows of another batch and unknown names are skipped.
    """

    labels: storage.LabelStore
    put_result: Callable[[Result], None]
    api: BatchApi
    decode: DecodeChat
    exchange: Exchange
    #: the rows with a result
    done: storage.RowBitmap = field(default_factory=lambda: storage.RowBitmap(_UNBOUNDED))

    def collect_line(self, submission: storage.Submission, line: bytes) -> bool:
        """Decode one line of this batch's results; False if it is malformed."""
        answer = self.api.decode_line(line, self.decode, self.exchange)
        if answer is None:
            return False
        index = submission.parse_request_name(answer.name)
        if index is not None and self._is_missing(index):
            self._put_outcome(index, answer.outcome)
        return True

    def belongs_to(self, submission: storage.Submission, line: bytes) -> bool | None:
        """Whether a line belongs to this batch; None if it is malformed."""
        answer = self.api.decode_line(line, self.decode, self.exchange)
        return None if answer is None else submission.parse_request_name(answer.name) is not None

    def iter_missing(self, submission: storage.Submission) -> Iterator[int]:
        """Return the rows of a batch that have no result."""
        return (index for index in submission.iter_indexes() if self._is_missing(index))

    def has_missing(self, submission: storage.Submission) -> bool:
        """Whether a row has no result."""
        return next(self.iter_missing(submission), None) is not None

    def fail_missing(self, submission: storage.Submission, batch: Batch) -> Iterator[int]:
        """Pass on an error, if possible the provider's, for each row without a result; yield its index."""
        ending = batch.ending or "completed"
        unanswered = make_unanswered_error(ending, self.exchange)
        line_errors = {fault.line: fault.error for fault in batch.faults if fault.line is not None}
        batch_errors = [fault.error for fault in batch.faults if fault.line is None and ending == "failed"]
        for line, index in enumerate(submission.iter_indexes(), 1):
            if self._is_missing(index):
                self._put_outcome(
                    index, line_errors.get(line) or (batch_errors[0] if batch_errors else unanswered)
                )
                yield index

    def _is_missing(self, index: int) -> bool:
        return index in self.labels and index not in self.done

    def _put_outcome(self, index: int, outcome: Completion | errors.OnymError) -> None:
        self.done.add(index)
        label = self.labels.get(index)
        if isinstance(outcome, Completion):
            self.put_result(make_answer_result(index, label, outcome, 1))
            return
        was_sent = not outcome.code.startswith("provider.batch-")
        self.put_result(make_failed_result(index, label, outcome, int(was_sent), self.exchange.secrets))


#: times that results are fetched before their errors are reported
_MAX_FETCHES: Final = 3
#: how to continue without the missing results
CANCEL_HINT: Final = "Run again with --cancel to give up the rows that have no answer."


#: seconds before the second poll of a batch
DEFAULT_POLL: Final = 5.0
#: bytes of the results of one batch, uncompressed
_MAX_RESULTS_SIZE: Final = 1 << 40
#: statuses for cancelling a batch that has ended or is gone: polling it tells more
_ENDED_STATUSES: Final = (400, 404, 409)
#: rows after which other tasks get their turn
_ROWS_PER_TURN: Final = 256


class ProviderEngine:
    """An `Engine` that puts rows into batches of the provider and fetches the results when a batch has ended.

    `poll` is the number of seconds before the second poll of a batch. With `cancel` nothing new is sent, and
    the batches at the provider are cancelled. `rest(seconds)` waits, or returns early when the run is
    stopped; `room` is the size of one batch's requests in bytes.
    """

    def __init__(
        self,
        job: Job,
        output: Path,
        *,
        cancel: bool = False,
        poll: float = DEFAULT_POLL,
        clock: Clock = SYSTEM_CLOCK,
        rest: Callable[[float], Awaitable[Any]] | None = None,
        room: int = storage.MAX_BATCH_SIZE,
    ) -> None:
        planner = job.settled.planner
        endpoint = planner.endpoint
        self._job = job
        self._planner = planner
        self._api = api_flow.require_batch_api(endpoint)
        self._output = output.resolve()
        self._cancel = cancel
        self._poll = poll
        self._room = room
        self._rest = rest or self._wait_or_stop
        self._client = api_flow.BatchClient(
            api=self._api,
            endpoint=endpoint,
            exchange=endpoint.make_exchange(),
            clock=clock,
            retries=job.retries,
            stopped=self._is_stopped,
        )
        #: requests in a batch and the finished ones, by the batch's identifier
        self._figures: dict[str, tuple[int, int]] = {}
        self._work: WorkQueue
        self._ledger: storage.SubmissionLog
        self._labels: storage.LabelStore
        self._collector: ResultCollector
        self._transport: AsyncTransport
        #: accepts large responses
        self._result_transport: AsyncTransport

    def _is_stopped(self) -> bool:
        return self._work.stop.is_set()

    @property
    def load(self) -> Load:
        """The requests of unfinished batches, as far as the provider reports them."""
        total = sum(total for total, _ in self._figures.values())
        return Load(total - sum(done for _, done in self._figures.values()), total)

    async def run(self, work: WorkQueue) -> None:
        """See `Engine`. When the run is stopped, its batches continue at the provider."""
        async with AsyncExitStack() as stack:
            self._open_resources(work, stack)
            await self._recover_submissions()
            await self._submit_rows()
            await self._collect_results()

    def _open_resources(self, work: WorkQueue, stack: AsyncExitStack) -> None:
        """Open what a run needs; `stack` closes it."""
        self._work = work
        self._ledger = storage.SubmissionLog(storage.get_submission_log_path(self._output))
        stack.callback(self._ledger.close)
        self._labels = storage.LabelStore(self._output.parent)
        stack.callback(self._labels.close)
        decode = self._client.endpoint.dialect.decode_chat
        self._collector = ResultCollector(
            self._labels, work.put_result, self._api, decode, self._client.exchange
        )
        network = self._job.settled.network
        self._transport = AsyncTransport(network)
        stack.push_async_callback(self._transport.close)
        limits = replace(network.limits, body=_MAX_RESULTS_SIZE)
        self._result_transport = AsyncTransport(replace(network, limits=limits))
        stack.push_async_callback(self._result_transport.close)

    async def _recover_submissions(self) -> None:
        """Search for batches of an earlier run if it is unknown whether they were created."""
        for submission in list(self._ledger.submissions.values()):
            if submission.batch is None and not submission.candidates:
                search = await self._run_flow(self._search_batch(submission))
                if search is None:
                    return
                self._record_search(submission, search)
            if submission.candidates:
                await self._resolve_submission(submission)

    def _search_batch(self, submission: storage.Submission) -> Flow[api_flow.BatchSearch | None]:
        known = [other.batch for other in self._ledger.submissions.values() if other.batch is not None]
        return api_flow.search_batches(self._client, submission.token, submission.count, submission.at, known)

    def _record_search(self, submission: storage.Submission, search: api_flow.BatchSearch) -> None:
        if search.batch is not None:
            self._ledger.record_created(submission, search.batch)
        elif search.candidates:
            self._ledger.record_candidates(submission, search.candidates)
        else:
            self._ledger.record_end(submission, "dropped")

    async def _resolve_submission(self, submission: storage.Submission) -> None:
        """Find out which of the candidates is this batch, as far as they have ended."""
        for identifier in submission.candidates:
            try:
                batch = await self._run_flow(
                    api_flow.call_api(self._client, self._api.retrieve(identifier), self._api.decode_batch)
                )
            except errors.NotFoundError:
                batch = Batch(id=identifier, ending="gone")
            if batch is None:
                return
            if batch.ending is None:
                continue
            is_own = batch.ending != "gone" and await self._belongs_to(submission, batch)
            if is_own is None:
                return
            if is_own:
                self._ledger.record_created(submission, identifier)
                return
            remaining = tuple(other for other in submission.candidates if other != identifier)
            self._record_search(submission, api_flow.BatchSearch(None, remaining))

    async def _submit_rows(self) -> None:
        """Put the rows that are not at the provider into batches, and create these."""
        submitted = self._ledger.get_rows()
        builder = self._new_builder()
        turns = 0
        while (row := self._work.next_row()) is not None:
            turns += 1
            if turns % _ROWS_PER_TURN == 0:
                await asyncio.sleep(0)
            index, line = row
            if index in submitted:
                self._labels.put(index, get_label(index, line))
                continue
            body = None if self._cancel else self._encode_row(index, line)
            if body is None:
                continue
            request = self._api.encode_line(storage.make_request_name(builder.token, index), body)
            if not builder.has_room(request):
                await self._send_batch(builder)
                builder = self._new_builder()
                request = self._api.encode_line(storage.make_request_name(builder.token, index), body)
            self._labels.put(index, get_label(index, line))
            builder.add(index, request)
        await self._send_batch(builder)

    def _new_builder(self) -> storage.BatchBuilder:
        return storage.BatchBuilder(secrets.token_hex(8), self._api.most, self._room)

    def _encode_row(self, index: int, line: bytes) -> bytes | None:
        """Return the request of a row as JSON; None for an invalid row, which becomes a failed result."""
        job, row = self._job, decode_row(index, line, self._job.model)
        error = row.error
        if error is None:
            try:
                plan = self._planner.chat(row.messages, {**job.overrides, **row.overrides}, stream=False)
                for text in plan.warnings:
                    warnings.warn(text, errors.OnymWarning, stacklevel=2)
                return encode_body(plan.body or {})
            except errors.OnymError as refusal:
                error = refusal.with_traceback(None)
        self._work.put_result(make_failed_result(index, row.id, error, 0, job.secrets))
        return None

    async def _send_batch(self, builder: storage.BatchBuilder) -> None:
        """Create one batch. Its rows are recorded before, its identifier after."""
        if not builder.rows or self._work.stop.is_set():
            return
        client, api = self._client, self._api
        try:
            uploaded = None
            upload = api.upload(builder.token, builder.lines)
            if upload is not None:
                builder.lines.clear()
                uploaded = await self._run_flow(
                    api_flow.call_api(client, upload, api.decode_upload, timeout=api_flow.TRANSFER_TIMEOUT)
                )
                if uploaded is None:
                    return
            submission = self._ledger.record_plan(builder.token, builder.rows, client.clock.time())
            call = api.create(builder.token, builder.lines, uploaded)
            builder.lines.clear()
        except errors.ProviderError as error:
            raise self._explain_missing_api(error) from None
        searched = False

        def find_batch() -> Flow[api_flow.BatchSearch | None]:
            nonlocal searched
            searched = True
            return self._search_batch(submission)

        try:
            search = await self._run_flow(api_flow.create_batch(client, call, find_batch))
        except errors.OnymError as error:
            # a search follows an attempt with unknown outcome: the batch may exist, whatever failed
            # afterwards
            if api_flow.is_rejected(error) and not searched:
                self._ledger.record_end(submission, "dropped")
            if isinstance(error, errors.ProviderError):
                raise self._explain_missing_api(error) from None
            raise
        if search is not None:
            self._record_search(submission, search)

    def _explain_missing_api(self, error: errors.ProviderError) -> errors.OnymError:
        """Return a clearer error if the batch API does not exist at this endpoint."""
        if error.status in (404, 405, 501) and error.provider_code != "model_not_found":
            return api_flow.make_no_api_error(self._client.endpoint)
        return error

    async def _collect_results(self) -> None:
        """Fetch the results of every batch when it has ended."""
        if self._cancel:
            await self._cancel_all()
        while not self._work.stop.is_set():
            for submission in list(self._ledger.submissions.values()):
                if not self._collector.has_missing(submission):
                    # an earlier run has collected its results
                    await self._close_submission(submission)
            owners = self._list_pending()
            if not owners:
                return
            batch = await self._run_flow(
                api_flow.watch_batches(self._client, tuple(owners), self._record_figures, self._poll)
            )
            if batch is None:
                return
            await self._finish_batch(owners[batch.id], batch)

    def _list_pending(self) -> dict[str, storage.Submission]:
        """Return the batches to poll, or candidates for them, with their submissions."""
        owners: dict[str, storage.Submission] = {}
        for submission in self._ledger.submissions.values():
            for identifier in (submission.batch,) if submission.batch is not None else submission.candidates:
                owners.setdefault(identifier, submission)
        return owners

    def _record_figures(self, batch: Batch) -> None:
        total = batch.total or 0
        self._figures[batch.id] = (total, min(total, batch.finished or 0))

    async def _cancel_all(self) -> None:
        for submission in self._ledger.submissions.values():
            if submission.batch is not None:
                try:
                    await self._run_flow(
                        api_flow.call_api(
                            self._client, self._api.cancel(submission.batch), self._api.decode_batch
                        )
                    )
                except errors.ProviderError as error:
                    if error.status not in _ENDED_STATUSES:
                        raise

    async def _finish_batch(self, submission: storage.Submission, batch: Batch) -> None:
        """Give each row of a finished batch a result."""
        self._figures.pop(batch.id, None)
        if submission.batch is None:
            await self._resolve_submission(submission)
            if submission.batch != batch.id:
                return
        if batch.ending == "gone":
            if not self._cancel:
                error = batch.faults[0].error
                error.hint = f"Was the batch {batch.id} created with another API key? {CANCEL_HINT}"
                raise error
        elif not await self._fetch_results(submission, batch):
            return
        for _ in self._collector.fail_missing(submission, batch):
            if self._work.full:
                await self._work.wait_for_room()
        await self._close_submission(submission)

    async def _belongs_to(self, submission: storage.Submission, batch: Batch) -> bool | None:
        """Whether the first line of the results belongs to this batch; None if the run was stopped."""
        for call in self._client.api.download(batch):
            async with aclosing(self._iter_lines(call)) as lines:
                async for line in lines:
                    is_own = self._collector.belongs_to(submission, line)
                    if is_own is not None:
                        return is_own
                    break
        if self._work.stop.is_set():
            return None
        if self._cancel:
            return False
        raise self._make_damaged_error(f"the results of the batch {batch.id} do not name their requests")

    async def _fetch_results(self, submission: storage.Submission, batch: Batch) -> bool:
        """Fetch all results; False if the run was stopped. Raises the error if they stay incomplete."""
        for attempt in range(_MAX_FETCHES):
            failure: errors.OnymError | None = None
            try:
                if not await self._collect_lines(submission, batch):
                    failure = self._make_damaged_error(f"the results of the batch {batch.id} are damaged")
            except (errors.NetError, errors.ProviderError) as error:
                failure = error
            if self._work.stop.is_set():
                return False
            if not self._collector.has_missing(submission) or (
                failure is None and batch.ending != "completed"
            ):
                return True
            if attempt < _MAX_FETCHES - 1:
                await self._rest(self._client.compute_wait(attempt, failure or TimeoutError()).seconds)
        if failure is not None and not self._cancel:
            raise failure
        return True

    async def _collect_lines(self, submission: storage.Submission, batch: Batch) -> bool:
        """Collect the results; False if one of their lines is malformed."""
        valid = True
        for call in self._client.api.download(batch):
            async with aclosing(self._iter_lines(call)) as lines:
                async for line in lines:
                    valid = self._collector.collect_line(submission, line) and valid
                    if self._work.stop.is_set():
                        return valid
                    if self._work.full:
                        await self._work.wait_for_room()
        return valid

    async def _iter_lines(self, call: BatchRequest) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a response as they arrive; ends early if the run is stopped."""
        flow = api_flow.send_call(self._client, call, timeout=api_flow.TRANSFER_TIMEOUT, stream=True)
        reply = await arun_flow(flow, self._result_transport, sleep=self._rest)
        if reply is None:
            return
        lines = LineFramer(_MAX_LINE_SIZE)
        async with cast("AsyncStreamBody", reply.stream) as body:
            while (data := await body.aread()) and not self._work.stop.is_set():
                for line in lines.feed(data):
                    yield line
        for line in lines.close():
            yield line

    def _make_damaged_error(self, text: str) -> errors.MalformedResponseError:
        return errors.MalformedResponseError(
            text, endpoint=self._client.exchange.endpoint, status=200, hint=CANCEL_HINT
        )

    async def _close_submission(self, submission: storage.Submission) -> None:
        if await self._work.wait_until_durable():
            self._ledger.record_end(submission, "done")

    async def _run_flow(self, flow: Flow[api_flow.T]) -> api_flow.T:
        return await arun_flow(flow, self._transport, sleep=self._rest)

    async def _wait_or_stop(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._work.stop.wait()
