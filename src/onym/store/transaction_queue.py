"""Small transactions that wait for each other are committed together, by a thread of their own.

`onym.store.sqlite.GroupWriter` and `onym.store.postgres.PostgresWriter` say how a group is committed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Job", "TransactionQueue"]

C = TypeVar("C")
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job(Generic[C]):
    """One transaction of a group. Without a `future`, nobody waits for it."""

    work: Callable[[C], Any]
    future: asyncio.Future[Any] | Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


class TransactionQueue(Generic[C]):
    """Takes transactions, which are functions of `C`, and wakes each waiter when its group is committed."""

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
