"""Event loops in other threads: Playwright's own may run in this one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["arun", "loop_thread"]

_Result = TypeVar("_Result")


def arun(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work` in a loop of its own in another thread: this one may have Playwright's loop."""
    results: list[_Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="arun")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


@contextmanager
def loop_thread(name: str) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A loop that runs in a thread; what is yielded runs a coroutine there and returns its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(timeout=600)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=600)
        loop.close()
