"""Work that runs at the same time: limits, a fair semaphore, tasks that stay alive, and group commits."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

C = TypeVar("C")
T = TypeVar("T")

#: the group whose limit applies to all work together
TOTAL: Final = "total"


class ConcurrencyLimiter:
    """Counts running work by groups, such as all work and the work of one client. For one event loop.

    `limits` maps the name of a group to the number that may run at the same time for one key of that group;
    "total" is one group with one key. `make_error` returns the error to raise for a group that is full.
    """

    def __init__(self, limits: Mapping[str, int], make_error: Callable[[str], Exception]) -> None:
        self._limits = dict(limits)
        self._make_error = make_error
        self._running: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._running[TOTAL, ""]

    def acquire(self, **keys: str) -> Callable[[], None]:
        """Take a slot in every group and return a function that frees it; further calls have no effect.

        `keys` contains a key for every group but the total. Raises the error of the first full group.
        """
        slots = [(TOTAL, ""), *keys.items()]
        for group, key in slots:
            if self._running[group, key] >= self._limits[group]:
                raise self._make_error(group)
        self._running.update(slots)

        def release() -> None:
            self._running.subtract(slots)
            for slot in slots:
                if not self._running[slot]:
                    del self._running[slot]
            slots.clear()

        return release

    @contextmanager
    def reserve(self, **keys: str) -> Iterator[None]:
        """Take a slot for the time of the block. Raises what `acquire` raises."""
        release = self.acquire(**keys)
        try:
            yield
        finally:
            release()


@dataclass(eq=False)
class Slot:
    """A task that waits for its turn to run, or has it."""

    client: str
    granted: asyncio.Future[None]


class FairSemaphore:
    """Lets `most` tasks run at the same time, of one client half of them; the others wait in order.

    For one event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = (most + 1) // 2
        self._running: Counter[str] = Counter()
        self._waiting: deque[Slot] = deque()

    def acquire(self, client: str) -> Slot:
        """Return a slot, whose `granted` is done once the task may run."""
        slot = Slot(client, asyncio.get_running_loop().create_future())
        self._waiting.append(slot)
        self._grant()
        return slot

    def release(self, slot: Slot) -> None:
        """Free the slot, or give up waiting for it."""
        if slot in self._waiting:
            self._waiting.remove(slot)
            return
        self._running[slot.client] -= 1
        if not self._running[slot.client]:
            del self._running[slot.client]
        self._grant()

    def _grant(self) -> None:
        for slot in tuple(self._waiting):
            if self._running.total() >= self._most:
                return
            if self._running[slot.client] < self._share:
                self._waiting.remove(slot)
                self._running[slot.client] += 1
                if not slot.granted.done():
                    slot.granted.set_result(None)


class TaskSet:
    """A set of tasks that keeps every task alive until it has ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._running))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run the coroutine as a task that stays alive even if its waiter is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # its waiter gets the exception, so asyncio need not log it
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task


@dataclass(slots=True, eq=False)
class Job(Generic[C]):
    """One transaction of a group. With a `future`, a caller waits for its result."""

    work: Callable[[C], Any]
    future: asyncio.Future[Any] | Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


class TransactionQueue(Generic[C]):
    """Takes small transactions, which are functions of `C`; a thread commits those that wait together.

    It wakes each waiter when its group is committed. A subclass knows how a group is committed.
    """

    def __init__(self, *, name: str, most: int) -> None:
        """Prepare the thread `name`, which `_thread.start()` starts. A group has at most `most` jobs."""
        self._most = most
        self._queue: SimpleQueue[Job[C] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    async def run(self, work: Callable[[C], T]) -> T:
        """Return the result of the work, once it is committed.

        A caller that is cancelled does not stop the work. Raises the work's exception, and the database's if
        the group cannot be committed: then nothing of it was written.
        """
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(Job(work, future))
        return await future

    def call(self, work: Callable[[C], T]) -> T:
        """Return the result of the work, once it is committed; blocks. Raises as `run` does."""
        self._require_open()
        future: Future[T] = Future()
        self._queue.put(Job(work, future))
        return future.result()

    def post(self, work: Callable[[C], object]) -> None:
        """Run the work soon; its result and its exception are ignored."""
        self._require_open()
        self._queue.put(Job(work))

    def close(self) -> None:
        """Commit what has been submitted, end the thread and close the connection."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._close_connection()

    def _require_open(self) -> None:
        if self._closed:
            raise self._make_closed_error()

    def _make_closed_error(self) -> Exception:
        raise NotImplementedError

    def _close_connection(self) -> None:
        raise NotImplementedError

    def _run_group(self, group: list[Job[C]]) -> None:
        """Commit the group, and set the result or the error of each job."""
        raise NotImplementedError

    def _serve(self) -> None:
        ended = False
        while not ended:
            group: list[Job[C]] = []
            job = self._queue.get()
            with suppress(Empty):
                while job is not None:
                    group.append(job)
                    if len(group) == self._most:
                        break
                    # what arrives while a group is being committed forms the next one
                    job = self._queue.get_nowait()
            ended = job is None
            if group:
                self._run_group(group)
                _deliver_results(group)


def _deliver_results(group: list[Job[C]]) -> None:
    """Wake the waiters: one call for each event loop, because each call wakes the loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[Job[C]]] = {}
    for job in group:
        if isinstance(job.future, Future):
            _settle_futures([job])
        elif job.future is not None:
            waiting.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in waiting.items():
        with suppress(RuntimeError):  # a loop that is closed has no waiters
            loop.call_soon_threadsafe(_settle_futures, jobs)


def _settle_futures(jobs: list[Job[C]]) -> None:
    for job in jobs:
        if job.future is None or job.future.done():  # cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
