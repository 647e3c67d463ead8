"""Load from several threads, and servers that are stopped under it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from ai_support import PATIENCE

__all__ = ["Load", "load", "stopped", "wait_until"]

#: how long a server stays stopped, in seconds, after what the test waits for has happened
STOP_SECONDS = float(os.environ.get("ONYM_STOP_SECONDS", "0"))


def wait_until(condition: Callable[[], bool], describe: Callable[[], object] = str) -> None:
    last = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < last, describe()
        time.sleep(0.005)  # other threads bring it about


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """These processes do nothing for the time of the block, and keep all that they have open."""
    held = list(pids)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        yield
        threading.Event().wait(max(0.0, began + STOP_SECONDS - time.monotonic()))
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)


class Load:
    """What the calls of several threads have brought, in the order in which they ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.results: list[Any] = []
        self._threads: list[Future[None]] = []

    def wait_for(self, result: Any, *, more: int = 1) -> None:
        """Wait until this result has come `more` times from now on."""
        before = len(self.results)
        self.wait_until(
            lambda: self.results[before:].count(result) >= more, lambda: Counter(self.results[before:])
        )

    def wait_until(self, condition: Callable[[], bool], describe: Callable[[], object] = str) -> None:
        """Wait until the condition holds; a call that fails ends the test."""
        wait_until(lambda: condition() or self._failed(), describe)
        if self._failed():
            self.ended.set()
            self.check()

    def run(self, pool: ThreadPoolExecutor, call: Callable[[], Any]) -> None:
        self._threads.append(pool.submit(self._repeat, call))

    def _repeat(self, call: Callable[[], Any]) -> None:
        while not self.ended.is_set():
            self.results.append(call())

    def _failed(self) -> bool:
        return any(thread.done() and thread.exception() for thread in self._threads)

    def check(self) -> None:
        for thread in self._threads:
            thread.result(PATIENCE)


@contextmanager
def load(*calls: Callable[[], Any], times: int = 1) -> Iterator[Load]:
    """Each call again and again, in `times` threads of its own, until the block ends."""
    work = Load()
    with ThreadPoolExecutor(len(calls) * times) as pool:
        try:
            for call in calls * times:
                work.run(pool, call)
            yield work
        finally:
            work.ended.set()
        work.check()
