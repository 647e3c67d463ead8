"""What a function raises that is no Exception: it ends the call that it was raised in, and not the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from onym.errors import OnymError

__all__ = ["contained", "plainly"]

T = TypeVar("T")


@contextmanager
def contained() -> Iterator[None]:
    """Around what a function does within the task that awaits it.

    Raises OnymError `aiip.internal` from an exit, an interrupt, or a cancel that nobody asked this task for:
    a loop hands the first two on to whoever runs it, and takes the third for the end of the task.
    """
    task = asyncio.current_task()
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if _ends(task, error):
            raise
        raise _fault(error) from error


def plainly(work: Callable[..., T], *args: Any) -> T:
    """What the work gives, in a thread whose result is awaited elsewhere. Raises as `contained`.

    A future does not hold StopIteration, so that whoever awaits it waits for ever; and GeneratorExit out of a
    future ends all who wait.
    """
    try:
        return work(*args)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise _fault(error) from error


def _fault(error: BaseException) -> OnymError:
    return OnymError(f"the function raised {type(error).__name__}", code="aiip.internal")


def _ends(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """Does it come from outside? A task counts its cancels; a coroutine is thrown away from elsewhere."""
    try:
        running = asyncio.current_task()
    except RuntimeError:
        return True
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return running is not task
