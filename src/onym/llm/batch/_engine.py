"""Engines answer rows: the interface, the job that they receive, and the engine of this process.

While a batch runs, only its engine retries: the client gets `retries=0`. The limit of concurrent requests
follows TCP: it doubles with each round until a rejection halves it, and then grows by one a round.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from onym import errors
from onym.llm import client as llm_client
from onym.llm.batch._rows import Result, Row, decode_row, make_answer_result, make_failed_result
from onym.llm.config import Config
from onym.llm.request_headers import merge_headers, parse_headers
from onym.net.limits import RetryPolicy

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

#: attempts after the first if neither the URI nor the call sets `retries`
DEFAULT_RETRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One endpoint and its settings. `uri` has `retries=0`, because the engine retries while a batch runs.

    `options` are the arguments of `connect` with which the client was set up, except key and configuration.
    """

    uri: LLMURI
    config: Config
    options: Mapping[str, Any]
    overrides: Mapping[str, Any]
    concurrency: int
    retries: int
    settled: llm_client.ClientSetup = field(repr=False)

    @property
    def model(self) -> str:
        """The model's name in the endpoint's spelling."""
        return self.settled.planner.endpoint.model

    @property
    def endpoint_text(self) -> str:
        """The endpoint without key and parameters."""
        return self.settled.planner.endpoint.text

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Credentials that no result may contain."""
        return self.settled.planner.endpoint.secrets

    def build_settings(self) -> dict[str, Any]:
        """Return what changes the answers apart from endpoint and input; it contains no secret."""
        uri = self.uri.without_key()
        settings: dict[str, Any] = {
            "uri": uri.render(),
            "on_unsupported": self.options["on_unsupported"],
            "overrides": dict(self.overrides),
        }
        if "headers" in self.overrides:
            # a `Secret` shows as ***
            headers = {name: str(value) for name, value in self.overrides["headers"].items()}
            settings["overrides"]["headers"] = headers
        # an absent profile adds no member, so that the digest stays the same
        profile = dict(self.config.profiles.get(uri.fragment or "", {}))
        profile.pop("retries", None)
        if profile:
            settings["profile"] = profile
        if self.settled.planner.endpoint.is_embedded:
            from onym.llm import embedded

            file = embedded.get_file_identity(self.model)
            if file:
                settings["file"] = file
        return settings

    def make_client(self) -> llm_client.AsyncClient:
        """Return a client of this job for the running event loop."""
        network = self.settled.network
        if self.concurrency > network.limits.idle_connections:
            limits = replace(network.limits, idle_connections=self.concurrency)
            return llm_client.AsyncClient(self.settled._replace(network=replace(network, limits=limits)))
        return llm_client.AsyncClient(self.settled)


def make_job(
    uri: str | Secret | LLMURI,
    *,
    key: Secret | str | None,
    config: Config | None,
    environ: Mapping[str, str] | None,
    overrides: Mapping[str, Any],
    concurrency: int,
    **options: Any,
) -> Job:
    """Return the job for these arguments. Raises what `connect` raises, also for a missing key."""
    config = Config.load(environ=environ) if config is None else config
    parsed = llm_client.resolve_uri(llm_client.wrap_secret(uri), config)
    profile = config.profiles.get(parsed.fragment or "", {})
    remaining = dict(overrides)
    named = llm_client.find_endpoint_headers(llm_client.wrap_secret(uri), config)
    if named:
        remaining["headers"] = dict(merge_headers(named, parse_headers(remaining.get("headers"))))
    retries = remaining.pop("retries", None)
    if retries is None:
        retries = parsed.params.get("retries", profile.get("retries", DEFAULT_RETRIES))
    quiet = parsed.with_params(retries=0)
    settled = llm_client.build_setup(
        quiet, key=llm_client.wrap_secret(key), config=config, environ=environ, **options
    )
    unkeyed = settled.planner.endpoint.unkeyed
    if unkeyed is not None:
        raise unkeyed
    return Job(
        uri=quiet,
        config=config,
        options=options,
        overrides=remaining,
        concurrency=concurrency,
        retries=int(retries),
        settled=settled,
    )


class Load(NamedTuple):
    """The requests of an engine, for progress displays.

    `active` are in progress and `limit` may be; `pause` is the number of seconds that the server asked to
    wait.
    """

    active: int = 0
    limit: int = 0
    pause: float = 0.0


_INITIAL_LIMIT: Final = 8
#: the longest wait in seconds that a server can ask for
_MAX_PAUSE: Final = 86_400.0


class AdaptiveLimiter:
    """Adapts the number of concurrent requests of one event loop, up to `most`. `clock` is monotonic."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.most = most
        #: the number of requests in progress
        self.active = 0
        #: no request is sent before this time of the clock, as the server asked
        self.resume_at = 0.0
        self._limit = float(min(_INITIAL_LIMIT, most))
        self._slow_from = float(most)
        self._clock = clock
        self._round = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """The number of requests that may be in progress now, at least 1."""
        return int(self._limit)

    @property
    def pause(self) -> float:
        """Seconds that the server asked to wait."""
        return max(0.0, self.resume_at - self._clock())

    @property
    def load(self) -> Load:
        """The requests of this event loop."""
        return Load(self.active, self.limit, self.pause)

    def try_acquire(self) -> int | None:
        """Return what `acquire` returns if no waiting is needed, else None."""
        if self.active >= int(self._limit) or self.resume_at > self._clock():
            return None
        self.active += 1
        return self._round

    async def acquire(self) -> int:
        """Wait for a slot, and return the number of its round."""
        while self.active >= int(self._limit):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    # this waiter was woken and is gone, so wake the next one
                    self._wake_waiters()
                raise
        self.active += 1
        return self._round

    def release(self) -> None:
        """Return the slot."""
        self.active -= 1
        self._wake_waiters()

    def record_success(self) -> None:
        """Raise the limit after an answer, if it is below `most`."""
        if self._limit < self.most:
            step = 1.0 if self._limit < self._slow_from else 1.0 / self._limit
            self._limit = min(float(self.most), self._limit + step)
            self._wake_waiters()

    def record_rejection(self, sent_in: int, retry_after: float | None) -> None:
        """Lower the limit after a rejected request of round `sent_in`; `retry_after` pauses all requests."""
        if retry_after:
            self.resume_at = max(self.resume_at, self._clock() + min(retry_after, _MAX_PAUSE))
        if sent_in == self._round:
            self._round += 1
            self._limit = self._slow_from = max(1.0, self._limit / 2)

    def _wake_waiters(self) -> None:
        free = int(self._limit) - self.active
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1


#: errors that affect every row: the run stops, and the row is sent again by the next run
FATAL_ERRORS: Final = (
    errors.AuthenticationError,
    errors.CredentialError,
    errors.PolicyError,
    errors.QuotaError,
)
_THROTTLED_ERRORS: Final = (errors.RateLimitError, errors.OverloadedError)
#: the largest number of attempts that a busy server may reject, apart from failed attempts
_MAX_REJECTIONS: Final = 20
#: rows per slot that may wait for their next attempt while others take their place
_MAX_PARKED: Final = 4
#: the run stops after so many consecutive rows that reached no server
_MAX_UNREACHED: Final = 10
_RETRY_POLICY: Final = RetryPolicy(base=0.5, cap=30.0)


class WorkQueue(Protocol):
    """The rows to answer and the place for their results, all in one event loop."""

    stop: asyncio.Event
    #: whether too many results are not durable yet
    full: bool

    def next_row(self) -> tuple[int, bytes] | None:
        """Return the next row, its index and its JSON; None if there is none."""

    def put_result(self, result: Result) -> None:
        """Accept the result of a row."""

    async def wait_for_room(self) -> None:
        """Wait until enough results are durable."""

    async def wait_until_durable(self) -> bool:
        """Wait until every result is durable; False if the disk failed."""


class Engine(Protocol):
    """Answers rows until none is left, `work.stop` is set, or an error affects every row."""

    @property
    def load(self) -> Load:
        """The requests in progress."""

    async def run(self, work: WorkQueue) -> None:
        """Take rows and return results; raises the OnymError that stops the run."""


class LocalEngine:
    """The engine of this process: one event loop, with as many concurrent requests as the server accepts.

    `rest(seconds)` waits, or returns early when the run is stopped; `chance` returns a number in [0, 1).
    Engines with the same `control` share its slots; a `client` that is passed in stays open.
    """

    def __init__(
        self,
        job: Job,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        rest: Callable[[float], Awaitable[Any]] | None = None,
        control: AdaptiveLimiter | None = None,
        client: llm_client.AsyncClient | None = None,
    ) -> None:
        self._job = job
        self._control = control or AdaptiveLimiter(job.concurrency, clock)
        self._given = client
        self._chance = chance
        self._rest = rest or self._wait_or_stop
        self._working: set[asyncio.Task[None]] = set()
        self._parked = 0
        self._unreached = 0
        self._fatal: errors.OnymError | None = None
        self._client: llm_client.AsyncClient
        self._work: WorkQueue

    @property
    def load(self) -> Load:
        """The requests in progress."""
        return self._control.load

    async def run(self, work: WorkQueue) -> None:
        """See `Engine`. After a stop it waits for the requests in progress; cancelling drops them."""
        self._work = work
        self._client = self._given or self._job.make_client()
        try:
            for _ in range(self._job.concurrency):
                self._start_worker()
            while self._working:
                done, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
                self._working -= done
                # a bug, which must not be hidden
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

    def _start_worker(self) -> None:
        self._working.add(asyncio.get_running_loop().create_task(self._run_worker()))

    async def _run_worker(self) -> None:
        """Answer rows until none is left."""
        work, control = self._work, self._control
        while not work.stop.is_set():
            if work.full:
                await work.wait_for_room()
            # usually a slot is free without waiting
            sent_in = control.try_acquire()
            if sent_in is None:
                sent_in = await self._acquire_slot()
            row = work.next_row()
            if row is None:
                control.release()
                return
            result = await self._answer_row(decode_row(*row, self._job.model), sent_in)
            if result is not None:
                work.put_result(result)
            if len(self._working) - self._parked > self._job.concurrency:
                # another worker took the slot while this row waited
                return

    async def _acquire_slot(self) -> int:
        """Return a slot as soon as the server accepts requests."""
        sent_in = await self._control.acquire()
        while (pause := self._control.pause) > 0 and not self._work.stop.is_set():
            self._control.release()
            await self._rest(pause)
            sent_in = await self._control.acquire()
        return sent_in

    async def _answer_row(self, row: Row, sent_in: int) -> Result | None:
        """Send a row until it has a result; None if the next run must send it again. Releases the slot."""
        if row.error is not None:
            self._control.release()
            return make_failed_result(row.position, row.id, row.error, 0)
        job, refusals, failures = self._job, 0, 0
        overrides = {**job.overrides, **row.overrides} if job.overrides else row.overrides
        retries = job.retries if row.retries is None else row.retries
        while True:
            try:
                completion = await self._client.chat(row.messages, **overrides)
            except errors.OnymError as error:
                failure = error
            else:
                self._control.record_success()
                self._unreached = 0
                return make_answer_result(row.position, row.id, completion, refusals + failures + 1)
            finally:
                self._control.release()
            if isinstance(failure, _THROTTLED_ERRORS):
                self._control.record_rejection(sent_in, failure.retry_after)
                refusals += 1
            else:
                failures += 1
            if (
                failures > retries
                or refusals > min(_MAX_REJECTIONS, retries * _MAX_REJECTIONS)
                or not _is_retryable(failure)
            ):
                return self._fail_row(row, failure, refusals + failures)
            # `Retry-After` pauses all rows: the random delay keeps them from continuing at the same moment
            delay = _RETRY_POLICY.delay(refusals + failures - 1, None, self._chance)
            if not await self._wait_parked(delay):
                return None
            sent_in = await self._acquire_slot()
            if self._work.stop.is_set():
                self._control.release()
                return None

    def _fail_row(self, row: Row, failure: errors.OnymError, attempts: int) -> Result | None:
        """Return the error as the row's result, or stop the run if it affects every row."""
        if isinstance(failure, errors.NetError) and _is_retryable(failure):
            self._unreached += 1
        else:
            self._unreached = 0
        if isinstance(failure, FATAL_ERRORS) or self._unreached >= _MAX_UNREACHED:
            self._fatal = self._fatal or failure
            self._work.stop.set()
            return None
        return make_failed_result(row.position, row.id, failure, attempts, self._job.secrets)

    async def _wait_parked(self, seconds: float) -> bool:
        """Wait without a slot while another row uses it; False if the run was stopped."""
        if self._parked < _MAX_PARKED * self._job.concurrency:
            self._parked += 1
            self._start_worker()
            try:
                await self._rest(seconds)
            finally:
                self._parked -= 1
        else:
            await self._rest(seconds)
        return not self._work.stop.is_set()

    async def _wait_or_stop(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._work.stop.wait()
        except TimeoutError:
            return


def _is_retryable(failure: errors.OnymError) -> bool:
    return isinstance(failure, errors.NetError | errors.ProviderError) and failure.retryable
