"""What goes on whoever waits for it: tasks that are not forgotten, and a thread that waits for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["Keeper", "Tasks"]

T = TypeVar("T")


class Tasks:
    """Tasks of one endpoint, each held until it has ended."""

    def __init__(self) -> None:
        self._held: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._held))

    def own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it as a task that is not forgotten, whoever waits for it."""
        task = asyncio.create_task(work)
        self._held.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._held.discard(task)
        if not task.cancelled():
            task.exception()  # it was told to whoever waited; asyncio shall not tell it again


class Keeper:
    """Calls of the store, which waits for the disk, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def keep(self, work: Callable[..., T], *args: Any) -> T:
        """What the call gives. Raises what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="onym-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """Let go of the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)
