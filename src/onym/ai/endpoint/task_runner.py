"""Running long tasks: their turns, their functions, and what happens to them after a crash (3.12).

A task is run again after a crash only if nothing can happen twice: if its function had not begun, if the
resource only reads, or if the function has stored a checkpoint. Every other task fails as interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from onym.ai.endpoint._runner import encode_answer
from onym.ai.endpoint.context import Answer, Call, FormT, Limits, decode_call
from onym.ai.endpoint.responses import Resource, Site, close_events, contain_faults
from onym.ai.endpoint.schemas import build_schema
from onym.ai.endpoint.signing import validate_answer
from onym.ai.endpoint.task_store import Orphan, TaskChange, TaskRecord, TaskStore, make_task_error
from onym.ai.records import FINAL_STATES, Effects, TaskProgress, TaskState
from onym.ai.telemetry import Telemetry
from onym.common.concurrency import FairSemaphore, TaskSet
from onym.errors import AIIPError, OnymError, TaskCancelled, UsageError

_LOG: Final = logging.getLogger("onym.ai.endpoint")
#: seconds between two looks at the store, and between two progress reports of one task
_LOOK_SECONDS: Final = 1.0
_PROGRESS_SECONDS: Final = 0.5
#: how often the function of a task is started without a new checkpoint
_MOST_RUNS: Final = 3
#: seconds between two searches for orphans, and two sweeps
_SEARCH_SECONDS: Final = 5.0
_SWEEP_SECONDS: Final = 600.0
#: seconds for a function to end after its time limit
_GRACE_SECONDS: Final = 5.0
#: characters of a note, and bytes of a checkpoint and of an input
_LONGEST_NOTE: Final = 500
_LONGEST_VALUE: Final = 64 * 1024
MAX_TASK_INPUT: Final = 64 * 1024
#: events that reports leave to questions, and that questions leave to the end
_REPORT_ROOM: Final = 16
_QUESTION_ROOM: Final = 8
_ENCODE: Final = msgspec.json.Encoder()
_INTERRUPTED: Final = "the process that ran the task has ended; it is unknown how far the task came"


class MakeProblem(Protocol):
    """Makes the error response of an error; with `final` the caller is not asked to retry."""

    def __call__(
        self, error: BaseException, target: str | None, trace: str | None = None, *, final: bool = False
    ) -> Answer:
        """Return the error response."""
        ...


class RunningTask:
    """The task of one running function; implements `onym.ai.endpoint.Task`."""

    def __init__(self, runner: TaskRunner, record: TaskRecord, restored: Any) -> None:
        self.record = record
        self.restored = restored
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._canceled = asyncio.Event()
        self._canceled_in_thread = record.canceling
        #: what to cancel if the caller cancels the task
        self.stop: Callable[[], object] | None = None
        self._form: type[Any] | None = None
        self._input: asyncio.Future[bytes] | None = None
        self._progress: TaskProgress | None = None
        self._flush: asyncio.Task[None] | None = None
        self._flushed = 0.0
        if record.canceling:
            self._canceled.set()

    @property
    def id(self) -> str | None:
        """The task's ID."""
        return self.record.id

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked to cancel the task."""
        return self._canceled_in_thread

    def cancel(self) -> None:
        """Tell the function that the caller has cancelled the task."""
        if not self._canceled_in_thread:
            self._canceled_in_thread = True
            self._canceled.set()
            if self.stop is not None:
                self.stop()

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the caller has asked to cancel the task."""
        if self.cancelled:
            raise TaskCancelled

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress; from any thread."""
        if not (math.isfinite(done) and (total is None or math.isfinite(total))):
            raise UsageError("progress needs finite numbers", code="usage.bad-argument")
        report = TaskProgress(
            done=float(done), total=None if total is None else float(total), note=_clean_text(note)
        )
        self._loop.call_soon_threadsafe(self._set_progress, report)

    def _set_progress(self, report: TaskProgress) -> None:
        self._progress = report
        self._flush_if_reported()

    async def _flush_later(self) -> None:
        await asyncio.sleep(max(0.0, self._flushed + _PROGRESS_SECONDS - self._loop.time()))
        report, self._progress = self._progress, None
        try:
            if report is not None:
                with suppress(AIIPError):  # a later report may succeed
                    await self.write(TaskChange(progress=report, events=self.take_progress_event(report)))
                self._flushed = self._loop.time()
        finally:
            self._flush = None
        self._flush_if_reported()

    def _flush_if_reported(self) -> None:
        if self._progress is not None and self._flush is None:
            self._flush = self._runner.spawn(self._flush_later())

    def take_pending(self) -> TaskProgress | None:
        """Return the last report if it has not been written, so that it is written with the end."""
        report, self._progress = self._progress, None
        return report

    def take_progress_event(self, report: TaskProgress) -> tuple[tuple[str, str], ...]:
        """Return the event of a report; nothing if the task has as many events as it may have."""
        limits, record = self._runner.limits, self.record
        if record.seq >= limits.task_events - _REPORT_ROOM or record.size >= limits.task_bytes:
            return ()
        return (("progress", _ENCODE.encode(report).decode()),)

    async def checkpoint(self, value: Any) -> None:
        """Store the value. Raises AIIPError `aiip.too-large`, `aiip.interrupted`, `aiip.unavailable`."""
        octets = _ENCODE.encode(value)
        if len(octets) > _LONGEST_VALUE:
            message = f"the checkpoint is longer than {_LONGEST_VALUE} bytes"
            raise make_task_error("too-large", message)
        if await self.write(TaskChange(checkpoint=octets)) is None:
            raise _make_interruption()

    async def ask(self, form: type[FormT], question: str) -> FormT:
        """Ask the caller for input, and wait for it."""
        self.raise_if_cancelled()
        schema = build_schema(form) | {"description": _clean_text(question)}
        self._form = form
        try:
            while True:
                body = await self._wait_for_input(schema)
                try:
                    return msgspec.json.decode(body, type=form)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue  # another process has taken it without the form
        finally:
            self._form = None

    async def _wait_for_input(self, schema: dict[str, Any]) -> bytes:
        most = self._runner.limits.task_events
        # a function may ask until an answer suits it, and the caller may never give such an answer
        if self.record.seq >= most - _QUESTION_ROOM:
            raise make_task_error("too-large", f"the task has asked as often as its {most} events allow")
        self._input = self._loop.create_future()
        state, events = TaskState.INPUT_REQUIRED, (("state", '{"state":"input-required"}'),)
        change = TaskChange(state=state, inputs=schema, clear_input=True, events=events)
        if await self.write(change) is None:
            raise _make_interruption()
        canceled = asyncio.ensure_future(self._canceled.wait())
        waiting: set[asyncio.Future[Any]] = {self._input, canceled}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            self.raise_if_cancelled()
            body = self._input.result()
        finally:
            canceled.cancel()
            self._input = None
        events = (("state", '{"state":"working"}'),)
        if await self.write(TaskChange(state=TaskState.WORKING, clear_input=True, events=events)) is None:
            raise _make_interruption()
        return body

    def deliver(self, body: bytes) -> None:
        """Give the function the input that it waits for."""
        if self._input is not None and not self._input.done():
            self._input.set_result(body)

    def validate_input(self, body: bytes) -> None:
        """Raise AIIPError `aiip.invalid-input` for input that the function does not accept."""
        if self._form is not None:
            try:
                msgspec.json.decode(body, type=self._form)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                known = isinstance(error, msgspec.ValidationError)
                why = str(error) if known else "the body is not valid JSON"
                raise make_task_error("invalid-input", f"the input is invalid: {why}") from None

    async def write(self, change: TaskChange) -> TaskRecord | None:
        """Write as the owner of the task, and remember what was written."""
        written = await self._runner.write(self.record.id, change)
        if written is not None:
            self.record = written
        return written


class DetachedTask:
    """The task of a call whose caller waits for the result, and gets no reports."""

    id: str | None = None
    cancelled: bool = False
    restored: Any = None

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Do nothing."""

    def raise_if_cancelled(self) -> None:
        """Do nothing: such a call cannot be cancelled."""

    async def checkpoint(self, value: Any) -> None:
        """Do nothing: such a call is not continued."""

    async def ask(self, form: type[FormT], question: str) -> FormT:
        """Raise AIIPError `aiip.bad-request`."""
        raise make_task_error(
            "bad-request",
            "the resource needs further input, which only a task can get",
            hint="Send Prefer: respond-async, and then the input to the task.",
        )


class ThreadedTask:
    """A task for a function in a thread; implements `onym.ai.endpoint.ThreadTask`."""

    def __init__(self, task: RunningTask | DetachedTask) -> None:
        self._task = task
        self._loop = asyncio.get_running_loop()

    @property
    def id(self) -> str | None:
        """The task's ID."""
        return self._task.id

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked to cancel the task."""
        return self._task.cancelled

    @property
    def restored(self) -> Any:
        """The value of the last checkpoint of an interrupted call, or None."""
        return self._task.restored

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress."""
        self._task.progress(done, total, note)

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the caller has asked to cancel the task."""
        self._task.raise_if_cancelled()

    def checkpoint(self, value: Any) -> None:
        """Store the value, and wait until it is stored."""
        asyncio.run_coroutine_threadsafe(self._task.checkpoint(value), self._loop).result()

    def ask(self, form: type[FormT], question: str) -> FormT:
        """Ask the caller for input, and wait for it."""
        return asyncio.run_coroutine_threadsafe(self._task.ask(form, question), self._loop).result()


@dataclass(kw_only=True)
class TaskRunner:
    """Runs the tasks of one endpoint in this process, and takes over those of processes that are gone."""

    site: Site
    store: TaskStore
    limits: Limits
    clock: Callable[[], float]
    make_problem: MakeProblem
    telemetry: Telemetry | None = None
    _beginning: set[str] = field(default_factory=set, init=False)
    #: whether there were changes that have not been read
    _stale: bool = field(default=False, init=False)
    #: the parts of the watcher's work that failed the last time
    _failing: set[tuple[str, str]] = field(default_factory=set, init=False)
    _running: dict[str, RunningTask] = field(default_factory=dict, init=False)
    _waiters: dict[str, set[asyncio.Future[None]]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _watcher: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tasks = TaskSet()
        self._slots = FairSemaphore(self.limits.task_slots)

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run the coroutine until it ends, or until the runner is closed."""
        return self._tasks.spawn(work)

    def ensure_watching(self) -> None:
        """Look after the tasks of other processes from now on."""
        if self._watcher is None or self._watcher.done():
            self._watcher = self.spawn(self._watch())

    def close(self) -> None:
        """Stop every running function. Their tasks are continued or end when an endpoint starts again."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self.store.close()

    def find_running(self, task: str) -> RunningTask | None:
        """Return the task if this process runs it."""
        return self._running.get(task)

    # run ----------------------------------------------------------------------------------------------------

    @contextmanager
    def beginning(self, task: str) -> Iterator[None]:
        """Store and launch a new task in the block. If the block fails in between, the task runs later."""
        self._beginning.add(task)
        try:
            yield
        finally:
            self._beginning.discard(task)

    def launch(self, record: TaskRecord, resource: Resource, call: Call, restored: Any) -> None:
        """Run the function of the task, as soon as it is its turn."""
        self._running[record.id] = running = RunningTask(self, record, restored)
        self.spawn(self._run(running, resource, replace(call, task=running)))

    async def _run(self, running: RunningTask, resource: Resource, call: Call) -> None:
        slot = self._slots.acquire(running.record.holder)
        running.stop = slot.granted.cancel
        try:
            with suppress(asyncio.CancelledError):  # by `stop`
                await asyncio.wait({slot.granted})
            if not self._closed:
                await self._run_to_end(running, resource, call)
        except Exception as error:
            if self._closed:
                raise
            # whatever failed, the task must end; this logs it
            answer = self.make_problem(error, running.record.target, final=True)
            await self._write_surely(running, self._make_end(TaskState.FAILED, answer))
        finally:
            self._slots.release(slot)
            self._running.pop(running.record.id, None)
            self.notify(running.record.id)

    async def _run_to_end(self, running: RunningTask, resource: Resource, call: Call) -> None:
        if not running.cancelled:
            events = (("state", '{"state":"working"}'),)
            begun = await self._write_surely(running, TaskChange(state=TaskState.WORKING, events=events))
            if begun is None:
                return  # another process has it
            if begun.canceling:
                running.cancel()
        if running.cancelled:
            change = self._make_end(TaskState.CANCELED, self._make_canceled_answer(running.record.target))
        else:
            change = await self._run_function(running, resource, call)
        report = running.take_pending()
        if report is not None:
            reported = (*running.take_progress_event(report), *change.events)
            change = replace(change, progress=report, events=reported)
        if not self._closed:
            await self._write_surely(running, change)

    async def _run_function(self, running: RunningTask, resource: Resource, call: Call) -> TaskChange:
        """Run the function to its end, and return the end of the task."""
        target = resource.uri
        work = self.spawn(self._call_handler(resource, call))
        # what has begun an effect decides for itself when it stops, and a thread cannot be stopped
        stoppable = resource.effects is Effects.READ and not getattr(resource.handler, "lasts", False)
        running.stop = work.cancel if stoppable else None
        await asyncio.wait({work}, timeout=self.limits.task_seconds)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=_GRACE_SECONDS)
            if not work.done() or work.cancelled() or work.exception() is not None:
                error = _make_timeout_error(resource.effects)
                return self._make_end(TaskState.FAILED, self.make_problem(error, target, final=True))
        fault = asyncio.CancelledError() if work.cancelled() else work.exception()
        if fault is None:
            return self._make_end(TaskState.COMPLETED, work.result())
        if running.cancelled and isinstance(fault, TaskCancelled | asyncio.CancelledError):
            return self._make_end(TaskState.CANCELED, self._make_canceled_answer(target))
        answer = self.make_problem(fault, target, final=True)
        refused = 400 <= answer.status < 500 and not isinstance(fault, TaskCancelled)
        return self._make_end(TaskState.REJECTED if refused else TaskState.FAILED, answer)

    async def _call_handler(self, resource: Resource, call: Call) -> Answer:
        with contain_faults():
            answer = await resource.handler.invoke(replace(call, accept=None))
        if not isinstance(answer, Answer):
            await close_events(answer)
            raise OnymError("the handler of a task returned a stream", code="aiip.internal")
        validate_answer(answer)
        if len(answer.body) > self.limits.answer:
            message = f"the handler's answer is longer than {self.limits.answer} bytes"
            raise OnymError(message, code="aiip.internal")
        return answer

    def _make_canceled_answer(self, target: str) -> Answer:
        return self.make_problem(
            make_task_error("task-canceled", "the task was cancelled"), target, final=True
        )

    def _make_end(self, state: TaskState, answer: Answer) -> TaskChange:
        data = _ENCODE.encode({"state": state.value, "status": answer.status}).decode()
        return TaskChange(
            state=state,
            answer=encode_answer(answer),
            error=None if state is TaskState.COMPLETED else answer.body,
            events=(("state", data),),
        )

    async def _write_surely(self, running: RunningTask, change: TaskChange) -> TaskRecord | None:
        """Write, and try again as long as the store is out of reach."""
        pause = _LOOK_SECONDS
        while True:
            try:
                return await running.write(change)
            except AIIPError as error:
                if self._closed:
                    raise
                self.make_problem(error, running.record.target)  # for the log
            await asyncio.sleep(pause)
            pause = min(2 * pause, 30.0)

    async def write(self, task: str, change: TaskChange) -> TaskRecord | None:
        """Write as the owner, and wake those who wait for a change."""
        written = await self.store.write(task, change, self.clock())
        if written is not None and change.state is not None:
            self._count(change.state)
        self.notify(task)
        return written

    def _count(self, state: TaskState, error: str | None = None) -> None:
        if self.telemetry is not None:
            self.telemetry.count_task(self.site.authority, state.value, error)

    # other processes ----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Notice what other processes write, and take care of tasks whose process is gone."""
        loop = asyncio.get_running_loop()
        search = sweep = loop.time()
        while not self._closed:
            if self._running or self._waiters:
                await self._attempt("the changes of other processes cannot be read", self._look)
            if loop.time() >= search:
                search = loop.time() + _SEARCH_SECONDS
                await self._attempt("interrupted tasks cannot be found", self._search)
            if loop.time() >= sweep:
                sweep = loop.time() + _SWEEP_SECONDS
                await self._attempt("expired tasks cannot be deleted", self._sweep)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _attempt(self, failure: str, work: Callable[[], Awaitable[None]], task: str = "") -> None:
        """Do a part of the watcher's work. A failure is logged once, until the part has succeeded again."""
        part = failure, task
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the watcher must not end
            if part not in self._failing:
                self._failing.add(part)
                # without the ID, which is all that a caller without a token needs
                reason = error.message if isinstance(error, AIIPError) else type(error).__name__
                _LOG.warning("%s: %s", failure, reason, exc_info=not isinstance(error, AIIPError))
        else:
            self._failing.discard(part)

    async def _look(self) -> None:
        self._stale = await self.store.has_foreign_changes() or self._stale
        if self._stale:
            await self._refresh()
            self._stale = False

    async def _search(self) -> None:
        orphans = await self.store.list_orphans(self.clock())
        for orphan in orphans:
            failure = "an interrupted task can be neither continued nor ended"
            await self._attempt(failure, partial(self._recover, orphan), orphan.task.id)
        known = {"", *(orphan.task.id for orphan in orphans)}
        self._failing = {part for part in self._failing if part[1] in known}

    async def _sweep(self) -> None:
        await self.store.sweep(self.clock())

    async def _refresh(self) -> None:
        for task, running in tuple(self._running.items()):
            record = await self.store.find(task)
            if record is None:
                continue
            if record.canceling:
                running.cancel()
            if record.state is TaskState.INPUT_REQUIRED:
                body = await self.store.read_blob(task, "input")
                if body is not None:
                    running.deliver(body)
        for task in tuple(self._waiters):
            self.notify(task)

    async def _recover(self, orphan: Orphan) -> None:
        """Run an orphan again if nothing can happen twice, else end it as interrupted."""
        task = orphan.task
        if task.id in self._beginning or task.id in self._running:
            return
        resource = self.site.resources.get(task.target)
        if not self.site.has_target(task.target):
            return  # of another endpoint that shares the file
        if resource is not None and not task.canceling and self._may_run_again(orphan, resource):
            octets = await self.store.read_blob(task.id, "call")
            taken = None if octets is None else await self.store.take_over(task, self.clock())
            if octets is not None and taken is not None:
                value = await self.store.read_blob(task.id, "checkpoint")
                restored = None if value is None else msgspec.json.decode(value)
                self.launch(taken, resource, decode_call(octets), restored)
                self.notify(task.id)
            return
        if orphan.owner == "lost" and task.state is not TaskState.SUBMITTED:
            return  # its owner may be alive; soon it has a session again, or has certainly ended
        if task.canceling and task.state is TaskState.SUBMITTED:
            change = self._make_end(TaskState.CANCELED, self._make_canceled_answer(task.target))
        else:
            answer = self.make_problem(_make_interruption(), task.target, final=True)
            change = self._make_end(TaskState.FAILED, answer)
        if await self.store.fail_orphan(task, change, self.clock()):
            state = TaskState.FAILED if change.state is None else change.state
            self._count(state, "aiip.interrupted" if state is TaskState.FAILED else None)
            self.notify(task.id)

    def _may_run_again(self, orphan: Orphan, resource: Resource) -> bool:
        task = orphan.task
        if task.state is TaskState.SUBMITTED:
            return True  # its function has not begun, and its owner cannot begin it any more
        if task.runs >= _MOST_RUNS:
            return False
        # a paused owner could go on beside a second run
        return resource.effects is Effects.READ or (task.resumable and orphan.owner == "ended")

    # waiting ------------------------------------------------------------------------------------------------

    async def require(self, task: str) -> TaskRecord:
        """Return the task. Raises AIIPError `aiip.task-not-found`."""
        record = await self.store.find(task)
        if record is None:
            raise make_task_error("task-not-found", "the task does not exist, or belongs to another caller")
        return record

    async def wait_for_change(self, task: str, known: str | None, seconds: float) -> TaskRecord:
        """Wait for another version than the caller's, or without one for the end or a question."""
        waiting = FINAL_STATES | {TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}
        if known is None:
            return await self._wait_for(task, seconds, lambda record: record.state in waiting)
        return await self._wait_for(
            task, seconds, lambda record: record.is_final or record.tag != known.strip()
        )

    async def _wait_for(self, task: str, seconds: float, holds: Callable[[TaskRecord], bool]) -> TaskRecord:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            changed = self.register(task)
            try:
                record = await self.require(task)
                if holds(record) or not await wait_until_done(changed, deadline - loop.time()):
                    return record
            finally:
                self.unregister(task, changed)

    def register(self, task: str) -> asyncio.Future[None]:
        """Return a future that is done with the next change of the task; end with `unregister`."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(task, set()).add(future)
        return future

    def unregister(self, task: str, future: asyncio.Future[None]) -> None:
        """Forget a future of `register`."""
        waiters = self._waiters.get(task)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[task]

    def notify(self, task: str) -> None:
        """Wake those who wait for a change of the task."""
        for future in self._waiters.get(task, ()):
            if not future.done():
                future.set_result(None)


async def wait_until_done(future: asyncio.Future[None], seconds: float) -> bool:
    """Wait for the future, at most `seconds`, and report whether it is done."""
    done, _ = await asyncio.wait({future}, timeout=max(0.0, seconds))
    return bool(done)


def _make_interruption(message: str = _INTERRUPTED) -> AIIPError:
    hint = "Find out whether it took effect, then begin a new task with a new key."
    return make_task_error("interrupted", message, hint=hint)


def _make_timeout_error(effects: Effects) -> AIIPError:
    """Return the error of a task that has exceeded its time limit; a thread may still be running."""
    message = "the task exceeded the endpoint's time limit"
    if effects is Effects.READ:
        return make_task_error("upstream-timeout", message)
    return _make_interruption(f"{message}; it is unknown how far the task came")


def _clean_text(text: object) -> str:
    """Return the text, cut, without halves of surrogate pairs, which UTF-8 cannot encode."""
    return str(text)[:_LONGEST_NOTE].encode("utf-8", "replace").decode("utf-8")
