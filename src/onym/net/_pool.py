"""Connections that wait to be used again, for one key each, within bounds."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from onym.net._wire import Connection
from onym.net.limits import NetLimits

__all__ = ["Pool"]

C = TypeVar("C", bound=Connection)


class _Process:
    """Which of the processes this is, without a system call for each question: forks are counted."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0
        # Windows has no forks
        getattr(os, "register_at_fork", dict)(after_in_child=self._forked)

    def _forked(self) -> None:
        self.number += 1


_process = _Process()


class Pool(Generic[C]):
    """Idle connections by key, the youngest first. Threads may share it.

    A process that was forked off starts empty: it must not speak on its parent's connections.
    """

    def __init__(self, limits: NetLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: OrderedDict[Hashable, deque[tuple[C, float]]] = OrderedDict()
        self._count = 0
        self._process = _process.number

    def take(self, key: Hashable) -> C | None:
        """A connection for this key that is still good, or None."""
        with self._lock:
            self._forget_after_fork()
            waiting = self._idle.get(key)
            while waiting:
                connection, since = waiting.pop()
                self._count -= 1
                if not waiting:
                    del self._idle[key]
                if self._clock() - since < self._limits.idle and connection.is_usable():
                    return connection
                connection.close()
            return None

    def give(self, key: Hashable, connection: C) -> None:
        """Keep a connection whose exchange has ended well; those that have waited longest may have to go."""
        with self._lock:
            self._forget_after_fork()
            self._idle.setdefault(key, deque()).append((connection, self._clock()))
            self._idle.move_to_end(key)
            self._count += 1
            self._shed()

    def _shed(self) -> None:
        """Close what is too many or too old, the key first that has not been used for longest."""
        while self._idle:
            key, waiting = next(iter(self._idle.items()))
            connection, since = waiting[0]
            if self._count <= self._limits.idle_connections and self._clock() - since < self._limits.idle:
                return
            connection.close()
            waiting.popleft()
            self._count -= 1
            if not waiting:
                del self._idle[key]

    def clear(self) -> None:
        """Close them all."""
        with self._lock:
            self._forget_after_fork()
            for waiting in self._idle.values():
                for connection, _ in waiting:
                    connection.close()
            self._idle.clear()
            self._count = 0

    def _forget_after_fork(self) -> None:
        if self._process != _process.number:
            self._process = _process.number
            self._idle.clear()
            self._count = 0
