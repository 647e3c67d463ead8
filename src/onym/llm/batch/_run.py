"""`run` and `arun`: a file of requests in, a file of results out."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from onym.errors import OnymError, UsageError
from onym.llm.batch._begin import Begun, begin
from onym.llm.batch._driver import Driver, Limits
from onym.llm.batch._engine import Engine, Local
from onym.llm.batch._finish import finish
from onym.llm.batch._job import Job, make_job
from onym.llm.batch._provider_ledger import ledger_path
from onym.llm.batch._report import BatchReport, Progress
from onym.llm.mapping import OnUnsupported

if TYPE_CHECKING:
    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = ["EngineName", "Order", "arun", "run"]

Order: TypeAlias = Literal["input", "completion"]
EngineName: TypeAlias = Literal["local", "ray", "provider"]

_MOST_AT_ONCE = 4096


def run(
    uri: str | Secret | LLMURI, source: str | os.PathLike[str] | IO[bytes], output: str | os.PathLike[str],
    **options: Any,
) -> BatchReport:  # fmt: skip
    """`arun` for callers without an event loop; the options are the same.

    Ctrl-C stops it: what is under way is waited for, so that nothing is paid twice, and then
    KeyboardInterrupt is raised; a second Ctrl-C does not wait.
    """
    with asyncio.Runner(loop_factory=_loop()) as runner:
        report = runner.run(_politely(uri, source, output, options))
    if report is not None:
        return report
    # connections are closed now, and the program's own handler says what comes of it
    signal.raise_signal(signal.SIGTERM)
    raise KeyboardInterrupt


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where there is one: it takes a third off the time of a row."""
    try:
        import uvloop  # 20 ms, and Windows has none
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _politely(uri: Any, source: Any, output: Any, options: dict[str, Any]) -> BatchReport | None:
    """The report; None where SIGTERM came and the run has been put away."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(arun(uri, source, output, **options, stop=stop))
    with _sigterm(task) as came:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if came.is_set():
                return None
            stop.set()
            await task
            raise


@contextmanager
def _sigterm(task: asyncio.Future[Any]) -> Iterator[asyncio.Event]:
    """Where the program handles SIGTERM itself, have it cancel the run first: it may come anywhere."""
    came = asyncio.Event()
    before = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    if not callable(before) or current_thread() is not main_thread():
        yield came
        return

    def end() -> None:
        came.set()
        task.cancel()

    try:
        loop.add_signal_handler(signal.SIGTERM, end)
    except NotImplementedError:  # Windows has no such signal to wait for
        yield came
        return
    try:
        yield came
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
    """Answer every row of `source` once, into `output`; go on where a former run for it ended.

    `source` is a file of JSON Lines or Parquet, or a stream of JSON Lines, which is read to its end first.
    `output` is JSON Lines, or Parquet by its name. Beside it are `OUTPUT.batch`, which says what the results
    belong to and is locked meanwhile, and `OUTPUT.journal`, which holds the results until they are put in
    order; with `order="completion"` results go straight to the output as they come.

    A result counts once it is durable. A row whose result is durable is never asked again, whatever ends the
    run: a signal, SIGKILL, a full disk, the power. Rows that were under way then (at most `concurrency`), and
    those whose result was not durable yet (at most 1,024, commonly those of some milliseconds), are asked
    again by the next run: towards the provider it is at least once, in the output exactly once.

    `overrides` are arguments of `chat` for every row, weaker than the row's own `params`; a `retries` among
    them, or in the URI, says how often a failed row is tried again (default: 5). `timeout` is of one attempt.
    Rows that fail for good are results, too; with `retry_errors` those of former runs are asked again.
    `max_errors` ends the run after so many of them. `restart` throws former results away. `stop`, once set,
    ends the run after what is under way. The ids are read, and the rows counted, before anything is sent.

    With `engine="provider"` the rows go into batches of the provider's own batch API, which are looked at
    first after `poll` seconds (default: 5), and are gone on with by the next run when this one ends early.
    `cancel` ends those that are there, and sends nothing new.

    Raises what `connect` raises; UsageError for an input, an output or former results that do not fit;
    AuthenticationError, CredentialError, PolicyError or QuotaError, and a NetError when ten rows one after
    another reached no server: the results so far are kept; OSError where the disk fails.
    """
    if not 1 <= concurrency <= _MOST_AT_ONCE:
        raise UsageError(f"concurrency is 1 to {_MOST_AT_ONCE}")
    if order not in get_args(Order):
        raise UsageError("order is input or completion")
    job = make_job(
        uri,
        key=key,
        policy=policy,
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
        raise UsageError("cancel and poll are for the engine provider")
    make = _provider(job, Path(output), cancel=cancel, poll=poll) if provider else _engine(engine)
    given = Path(source) if isinstance(source, str | os.PathLike) else source
    with begin(
        job,
        given,
        Path(output),
        order=order,
        restart=restart,
        retry_errors=retry_errors,
        batches=provider,
    ) as begun:
        driver = Driver(begun.source.rows(), begun.done, begun.found, Limits(max_errors=max_errors), watch)
        if stop is not None:
            driver.stop = stop
        if begun.left:
            await _ask(driver, make(job), begun)
        if not begun.left and not begun.finished and begun.journal != begun.output:
            finish(begun.journal, begun.output, ordered=order == "input")
        if provider and not begun.left:
            # a run may have ended between its last result and the word that its batch is done
            ledger_path(begun.output).unlink(missing_ok=True)
        if cancel and begun.left:
            driver.stopped = "cancelled"
        return driver.report(begun.output)


async def _ask(driver: Driver, engine: Engine, begun: Begun) -> None:
    try:
        await driver.run(engine, begun.journal)
    except OnymError as error:
        kept = "the results so far are kept, the same call goes on from there"
        error.hint = f"{error.hint}; {kept}" if error.hint else kept
        raise


def _provider(job: Job, output: Path, *, cancel: bool, poll: float | None) -> Callable[[Job], Engine]:
    from onym.llm.batch._provider import POLL, ProviderBatches, find_api  # the other engines do without

    find_api(job.settled.planner.endpoint)
    return lambda job: ProviderBatches(job, output, cancel=cancel, poll=POLL if poll is None else poll)


def _engine(given: EngineName | Callable[[Job], Engine]) -> Callable[[Job], Engine]:
    if callable(given):
        return given
    if given == "local":
        return Local
    if given == "ray":
        from onym.llm.batch._ray import Cluster  # ray is an extra, and takes seconds to import

        return Cluster
    raise UsageError("engine is local, ray or provider")
