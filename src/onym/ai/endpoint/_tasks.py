"""What goes on whoever waits for it: tasks that are not forgotten, and threads that cannot be ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from onym.errors import AIIPError

__all__ = ["TERM", "Keeper", "Tasks", "Term"]

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


class Term:
    """The time of one call under a key, `seconds` from now.

    While `lasting`, its work is that of a thread, which goes on where it is given up: that has no limit.
    """

    def __init__(self, seconds: float, *, lasting: bool) -> None:
        self.lasting = lasting
        self._task: asyncio.Task[Any] | None = None
        self._deadline = asyncio.get_running_loop().time() + seconds
        self.limit = asyncio.timeout_at(None if lasting else self._deadline)

    def begin(self) -> None:
        """Make it the term of this task, and of what that awaits."""
        self._task = asyncio.current_task()
        TERM.set(self)

    def awaited(self) -> None:
        """The thread has returned something to await: that can be ended, and is when the time is over."""
        # a thread knows the context of its call, and may run a loop of its own
        if self.lasting and self._task is asyncio.current_task():
            self.lasting = False
            self.limit.reschedule(self._deadline)


#: of the call under a key that this task makes
TERM: Final[ContextVar[Term | None]] = ContextVar("TERM", default=None)


class Keeper:
    """Calls of the store, which waits for the disk, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self.closed = False

    async def keep(self, work: Callable[..., T], *args: Any) -> T:
        """What the call gives. Raises what it raises, and AIIPError `aiip.unavailable` once it is closed."""
        if self.closed:
            raise AIIPError("the endpoint was closed meanwhile", code="aiip.unavailable")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="onym-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """Let go of the thread, for good."""
        self.closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=False)
