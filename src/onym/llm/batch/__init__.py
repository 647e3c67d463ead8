"""Send many requests to one endpoint: a file in, a file out, every row answered exactly once.

    report = onym.llm.batch.run("llm://openai/gpt-5.4-mini", "requests.jsonl", "results.jsonl")

`run` may be killed at any time and called again: see `arun` for the guarantees.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import current_thread, main_thread
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from onym.errors import OnymError, UsageError
from onym.llm.batch import _rows
from onym.llm.batch import _storage as storage
from onym.llm.batch._engine import Engine, Job, Load, LocalEngine, WorkQueue, make_job
from onym.llm.batch._rows import Result
from onym.llm.client import wrap_secret
from onym.llm.credentials import hide_environment
from onym.llm.mapping import OnUnsupported

if TYPE_CHECKING:
    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable
    from onym.net.config import NetConfig
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = [
    "BatchReport",
    "Engine",
    "EngineName",
    "Job",
    "Load",
    "LocalEngine",
    "Order",
    "Progress",
    "Result",
    "WorkQueue",
    "arun",
    "run",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a run. Rows count when their results are durable.

    Tokens and seconds are those of this run.

    `done` counts the rows with a result, including those of earlier runs (`before`); `failed` counts those
    that failed permanently. `load` describes the requests in progress.
    """

    total: int
    done: int = 0
    failed: int = 0
    before: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0
    load: Load = field(default_factory=Load)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Results per second in this run."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the end at this rate; None if it is unknown."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of a run. Rows are those of the whole output, `before` of them from earlier runs.

    `answered` and `failed` are the rows with a result. `repaired` lines of an earlier run were cut or
    damaged, and their rows were sent again. `stopped` tells why rows are left: "max-errors", "cancelled", or
    None. `error` is the first failure of this run as its row has it: `code`, `message`, and perhaps `hint`.
    """

    rows: int
    answered: int
    failed: int
    before: int
    repaired: int
    input_tokens: int
    output_tokens: int
    retries: int
    seconds: float
    output: str
    stopped: str | None = None
    error: dict[str, Any] | None = None

    @property
    def left(self) -> int:
        """Rows without a result."""
        return self.rows - self.answered - self.failed

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data; seconds are rounded to milliseconds."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        out["seconds"] = round(self.seconds, 3)
        out["left"] = self.left
        return out


#: seconds between two calls of `watch`
_WATCH_INTERVAL: Final = 0.2
#: results that may wait to be durable: after a power failure, their rows are sent again
_MAX_UNDURABLE: Final = 1024


class BatchRun:
    """The `WorkQueue` of a run: rows, a journal and counts.

    The run ends after `max_errors` failed rows (None for never). `watch` receives `Progress`.
    """

    def __init__(
        self,
        rows: Iterator[tuple[int, bytes]],
        done: storage.RowBitmap,
        earlier: storage.JournalCounts,
        max_errors: int | None = None,
        watch: Callable[[Progress], object] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stop = asyncio.Event()
        self.stopped: str | None = None
        self._rows = rows
        self._done = done
        self._earlier = earlier
        self._max_errors = max_errors
        self._watch = watch
        self._clock = clock
        self._began = clock()
        self._pending: deque[Result] = deque()
        self.full = False
        self._room = asyncio.Event()
        self._all_durable = asyncio.Event()
        self._broken: OSError | None = None
        self._writer: storage.JournalWriter
        self._engine: Engine
        self._ok = self._failed = self._retries = self._input = self._output = 0
        #: the line of the first failed row
        self._failure: bytes | None = None

    def next_row(self) -> tuple[int, bytes] | None:
        """Return the next row without a result."""
        if self.stop.is_set():
            return None
        for row in self._rows:
            if row[0] not in self._done:
                return row
        return None

    def put_result(self, result: Result) -> None:
        """Append the result to the journal. It counts when it is durable."""
        self._pending.append(result)
        self._writer.append(result.line)
        if len(self._pending) >= _MAX_UNDURABLE:
            self.full = True
            self._room.clear()
        if not result.ok:
            self._failure = self._failure or result.line
            self._check_error_limit()

    async def wait_for_room(self) -> None:
        """Wait while too many results are not durable."""
        while self.full:
            await self._room.wait()

    async def wait_until_durable(self) -> bool:
        """Wait until every result is durable; False if the disk failed."""
        while self._pending and self._broken is None:
            self._all_durable.clear()
            await self._all_durable.wait()
        return self._broken is None

    async def run(self, engine: Engine, journal: Path) -> None:
        """Let the engine answer all rows. Raises the error that stops the run, or the journal's OSError."""
        loop = asyncio.get_running_loop()

        def record_durable(count: int, error: OSError | None) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._record_durable, count, error)

        self._engine = engine
        self._writer = storage.JournalWriter(journal, record_durable)
        watching = asyncio.create_task(self._watch_progress(self._watch)) if self._watch is not None else None
        try:
            await engine.run(self)
        finally:
            if watching is not None:
                watching.cancel()
            # no await: a run that is cancelled twice still writes its results
            self._writer.close()
        # the writer's last callback runs in the next turn of the loop
        await asyncio.sleep(0)
        if self._watch is not None:
            self._watch(self.build_progress())
        if self._broken is not None:
            raise self._broken

    def build_progress(self) -> Progress:
        """Return the state of the run."""
        before = self._earlier.ok + self._earlier.failed
        return Progress(
            total=self._done.total,
            done=before + self._ok + self._failed,
            failed=self._earlier.failed + self._failed,
            before=before,
            input_tokens=self._input,
            output_tokens=self._output,
            retries=self._retries,
            load=self._engine.load,
            seconds=self._clock() - self._began,
        )

    def build_report(self, output: Path) -> BatchReport:
        """Return the result of the run."""
        return BatchReport(
            rows=self._done.total,
            answered=self._earlier.ok + self._ok,
            failed=self._earlier.failed + self._failed,
            before=self._earlier.ok + self._earlier.failed,
            repaired=self._earlier.dropped,
            input_tokens=self._input,
            output_tokens=self._output,
            retries=self._retries,
            seconds=self._clock() - self._began,
            output=str(output),
            stopped=self.stopped,
            error=None if self._failure is None else msgspec.json.decode(self._failure)["error"],
        )

    def _record_durable(self, count: int, error: OSError | None) -> None:
        if error is not None:
            self._broken = error
            self.stop.set()
            self._make_room()
            self._all_durable.set()
            return
        for _ in range(count):
            result = self._pending.popleft()
            self._done.add(result.row)
            self._retries += result.retries
            if result.ok:
                self._ok += 1
                self._input += result.input_tokens
                self._output += result.output_tokens
            else:
                self._failed += 1
        if self.full and len(self._pending) < _MAX_UNDURABLE:
            self._make_room()
        if not self._pending:
            self._all_durable.set()

    def _make_room(self) -> None:
        self.full = False
        self._room.set()

    def _check_error_limit(self) -> None:
        if self._max_errors is not None:
            waiting = sum(not result.ok for result in self._pending)
            if self._failed + waiting >= self._max_errors:
                self.stopped = "max-errors"
                self.stop.set()

    async def _watch_progress(self, watch: Callable[[Progress], object]) -> None:
        while True:
            watch(self.build_progress())
            await asyncio.sleep(_WATCH_INTERVAL)


@dataclass(frozen=True, slots=True)
class RunState:
    """The state at the start of a run. `finished`: the output is complete."""

    source: _rows.Source
    output: Path
    journal: Path
    done: storage.RowBitmap
    earlier: storage.JournalCounts = field(default_factory=storage.JournalCounts)
    finished: bool = False

    @property
    def rows_left(self) -> int:
        """Rows without a result."""
        return self.done.total - len(self.done)


@contextmanager
def open_run(
    job: Job,
    origin: Path | IO[bytes],
    output: Path,
    *,
    order: str,
    restart: bool,
    retry_errors: bool,
    batches: bool = False,
) -> Iterator[RunState]:
    """Lock the output, check that earlier results match, and repair their journal.

    `batches`: this run continues batches that an earlier run left at the provider.
    """
    output = output.resolve()
    if output.exists() and not output.is_file():
        raise UsageError(f"{output} is not a file", code="usage.output-file")
    if isinstance(origin, Path) and origin.resolve() == output:
        raise UsageError("input and output are the same file", code="usage.output-file")
    if _rows.is_parquet(output):
        # before a request is paid for
        _rows.require_pyarrow()
    direct = order == "completion" and not _rows.is_parquet(output)
    journal = output if direct else output.with_name(output.name + ".journal")
    bound = storage.BindingFile(output)
    try:
        with _rows.open_source(origin, output.parent) as source:
            binding = storage.Binding(
                endpoint=job.endpoint_text,
                settings=storage.compute_digest(job.build_settings()),
                input=source.fingerprint,
                order=order,
            )
            former = None if restart else bound.load()
            if former is None or not batches:
                storage.require_no_open_batches(output)
            if restart:
                for path in (journal, output, storage.get_submission_log_path(output)):
                    path.unlink(missing_ok=True)
            if former is None:
                yield _start_run(bound, binding, source, output, journal)
            else:
                storage.require_same_run(former, binding)
                yield _resume_run(source, output, journal, former.rows, retry_errors=retry_errors)
    finally:
        bound.close()


def _start_run(
    bound: storage.BindingFile, binding: storage.Binding, source: _rows.Source, output: Path, journal: Path
) -> RunState:
    for path in (journal, output):
        if path.exists() and path.stat().st_size:
            raise UsageError(
                f"{path} exists, and does not belong to a batch",
                code="usage.output-file",
                hint="Choose another output, or delete the file with --restart (restart=True).",
            )
    rows = storage.count_rows(source.iter_rows(), output.parent)
    bound.save(msgspec.structs.replace(binding, rows=rows))
    # an output that is its own journal exists from the start
    storage.touch_file(journal)
    return RunState(source, output, journal, storage.RowBitmap(rows))


def _resume_run(
    source: _rows.Source, output: Path, journal: Path, rows: int, *, retry_errors: bool
) -> RunState:
    """Return the state after an earlier run, however it ended."""
    done = storage.RowBitmap(rows)
    if not journal.exists() and output.exists():
        # the earlier run was complete: its output is the journal
        if not _rows.is_parquet(output):
            counts = storage.repair_journal(output, done)
            if len(done) == rows and not (retry_errors and counts.failed):
                return RunState(source, output, journal, done, counts, finished=True)
            done = storage.RowBitmap(rows)
            counts = storage.repair_journal(output, done, into=journal, drop_failed=retry_errors)
            return RunState(source, output, journal, done, counts)
        _rows.restore_journal(output, journal)
    storage.touch_file(journal)
    counts = storage.repair_journal(journal, done, drop_failed=retry_errors)
    return RunState(source, output, journal, done, counts)


Order: TypeAlias = Literal["input", "completion"]
EngineName: TypeAlias = Literal["local", "ray", "provider"]

_MAX_CONCURRENCY = 4096


def run(
    uri: str | Secret | LLMURI, source: str | os.PathLike[str] | IO[bytes], output: str | os.PathLike[str],
    **options: Any,
) -> BatchReport:  # fmt: skip
    """Run `arun` without an event loop, with the same options.

    Ctrl-C stops the run: it waits for the requests in progress, so that none is paid for twice, and raises
    KeyboardInterrupt; a second Ctrl-C does not wait.
    """
    # from here on no frame of a traceback holds the text, which holds the key, or the environment
    uri = wrap_secret(uri)
    options.update(key=wrap_secret(options.get("key")), environ=hide_environment(options.get("environ")))
    with asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
        report = runner.run(_run_until_signal(uri, source, output, options))
    if report is not None:
        return report
    # connections are closed, so the program's own handler may decide what happens
    signal.raise_signal(signal.SIGTERM)
    raise KeyboardInterrupt


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the faster event loop if it is installed: it saves a third of the time per row."""
    try:
        import uvloop  # late: 20 ms, and it does not exist on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run_until_signal(
    uri: Any, source: Any, output: Any, options: dict[str, Any]
) -> BatchReport | None:
    """Return the report; None if SIGTERM arrived and the run has ended."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(arun(uri, source, output, **options, stop=stop))
    with _cancel_on_sigterm(task) as received:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if received.is_set():
                return None
            stop.set()
            await task
            raise


@contextmanager
def _cancel_on_sigterm(task: asyncio.Future[Any]) -> Iterator[asyncio.Event]:
    """If the program handles SIGTERM, cancel the run first: the signal may arrive at any point."""
    received = asyncio.Event()
    before = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    if not callable(before) or current_thread() is not main_thread():
        yield received
        return

    def end() -> None:
        received.set()
        task.cancel()

    try:
        loop.add_signal_handler(signal.SIGTERM, end)
    except NotImplementedError:  # Windows cannot wait for this signal
        yield received
        return
    try:
        yield received
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)


async def arun(
    uri: str | Secret | LLMURI,
    source: str | os.PathLike[str] | IO[bytes],
    output: str | os.PathLike[str],
    *,
    key: Secret | str | None = None,
    policy: Policy | None = None,
    network: NetConfig | None = None,
    config: Config | None = None,
    providers: ProviderTable | None = None,
    environ: Mapping[str, str] | None = None,
    on_unsupported: OnUnsupported = "error",
    system_filter: Callable[[str], str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    concurrency: int = 32,
    order: Order = "input",
    engine: EngineName | Callable[[Job], Engine] = "local",
    restart: bool = False,
    retry_errors: bool = False,
    max_errors: int | None = None,
    watch: Callable[[Progress], object] | None = None,
    stop: asyncio.Event | None = None,
    cancel: bool = False,
    poll: float | None = None,
) -> BatchReport:
    """Answer every row of `source` once, into `output`, and continue an earlier run for this output.

    `source` is a file of JSON Lines or Parquet, or a stream of JSON Lines, which is first read to its end.
    `output` is JSON Lines, or Parquet by its name. Beside it are `OUTPUT.batch`, which records what the
    results belong to and is locked during a run, and `OUTPUT.journal`, which contains the results until they
    are sorted; with `order="completion"` results are appended to the output as they arrive.

    A result counts when it is durable. A row with a durable result is never sent again, whatever ends the
    run: a signal, SIGKILL, a full disk, a power failure. Rows that were in progress then (at most
    `concurrency`), and rows whose result was not durable yet (at most 1,024, usually those of some
    milliseconds), are sent again by the next run: the provider receives a row at least once, and the output
    contains it exactly once.

    `overrides` are arguments of `chat` for every row; the row's own `params` take precedence. `retries`, in
    `overrides` or in the URI, is how often a failed row is tried again (default: 5). `timeout` is that of one
    attempt. Rows that fail permanently are results too; with `retry_errors` those of earlier runs are sent
    again. `max_errors` ends the run after that many of them. `restart` deletes earlier results. `stop`, once
    set, ends the run after the requests in progress. The ids are checked, and the rows counted, before
    anything is sent.

    With `engine="provider"` the rows go into batches of the provider's batch API, which are polled for the
    second time after `poll` seconds (default: 5). If this run ends early, the next one continues them.
    `cancel` cancels the existing batches and sends nothing new.

    Raises what `connect` raises; UsageError for an invalid input or output, or for results of another run;
    AuthenticationError, CredentialError, PolicyError or QuotaError, and NetError if ten consecutive rows
    reached no server (the results so far are saved); OSError if the disk fails.
    """
    uri, key, environ = wrap_secret(uri), wrap_secret(key), hide_environment(environ)
    if not 1 <= concurrency <= _MAX_CONCURRENCY:
        raise UsageError(f"concurrency must be from 1 to {_MAX_CONCURRENCY}")
    if order not in get_args(Order):
        raise UsageError("order must be input or completion")
    job = make_job(
        uri,
        key=key,
        policy=policy,
        network=network,
        config=config,
        providers=providers,
        environ=environ,
        on_unsupported=on_unsupported,
        system_filter=system_filter,
        overrides=overrides or {},
        concurrency=concurrency,
    )
    provider = engine == "provider"
    if not provider and (cancel or poll is not None):
        raise UsageError("cancel and poll need engine=provider")
    make = (
        _make_provider_engine(job, Path(output), cancel=cancel, poll=poll)
        if provider
        else _find_engine(engine)
    )
    origin = Path(source) if isinstance(source, str | os.PathLike) else source
    with open_run(
        job, origin, Path(output), order=order, restart=restart, retry_errors=retry_errors, batches=provider
    ) as state:
        driver = BatchRun(state.source.iter_rows(), state.done, state.earlier, max_errors, watch)
        if stop is not None:
            driver.stop = stop
        if state.rows_left:
            await _run_engine(driver, make(job), state)
        if not state.rows_left and not state.finished and state.journal != state.output:
            _rows.write_output(state.journal, state.output, ordered=order == "input")
        if provider and not state.rows_left:
            # an earlier run may have ended between its last result and recording that its batch is done
            storage.get_submission_log_path(state.output).unlink(missing_ok=True)
        if cancel and state.rows_left:
            driver.stopped = "cancelled"
        return driver.build_report(state.output)


async def _run_engine(driver: BatchRun, engine: Engine, state: RunState) -> None:
    try:
        await driver.run(engine, state.journal)
    except OnymError as error:
        advice = "The results so far are saved; run the same command again to continue."
        error.hint = f"{error.hint.rstrip('.')}. {advice}" if error.hint else advice
        raise


def _make_provider_engine(
    job: Job, output: Path, *, cancel: bool, poll: float | None
) -> Callable[[Job], Engine]:
    from onym.llm.batch._provider import DEFAULT_POLL, ProviderEngine  # late: only this engine needs it
    from onym.llm.batch._provider_flow import require_batch_api

    if job.overrides.get("headers"):
        raise UsageError(
            "a batch of the provider cannot have headers",
            code="usage.header",
            hint="Put them into the provider entry, or use another engine.",
        )
    require_batch_api(job.settled.planner.endpoint)
    return lambda job: ProviderEngine(job, output, cancel=cancel, poll=DEFAULT_POLL if poll is None else poll)


def _find_engine(engine: EngineName | Callable[[Job], Engine]) -> Callable[[Job], Engine]:
    if callable(engine):
        return engine
    if engine == "local":
        return LocalEngine
    if engine == "ray":
        from onym.llm.batch._ray import RayEngine  # late: ray is an extra, and takes seconds to import

        return RayEngine
    raise UsageError("engine must be local, ray or provider")
