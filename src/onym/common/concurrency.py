"""Work that runs at the same time: limits that refuse, a fair semaphore, and tasks that stay alive."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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
