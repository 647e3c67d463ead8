"""One call for all who want the same answer at the same time: in this process, and between processes."""

from __future__ import annotations

import os
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Lock

from onym.llm.cache._files import ByteLocks

__all__ = ["Flight", "Flights", "flights_of"]


class Flight:
    """One call that is under way in this process. `landed` ends with the octets of its answer, or None."""

    __slots__ = ("_flights", "_held", "_lock", "_over", "key", "landed")

    def __init__(self, flights: Flights, key: bytes) -> None:
        self._flights = flights
        self._lock = Lock()
        self._held = False
        self._over = False
        self.key = key
        self.landed: Future[bytes | None] = Future()
        # a coroutine that stops waiting must not cancel it for the others
        self.landed.set_running_or_notify_cancel()

    def alone(self) -> bool:
        """Whether no other process makes this call. Where that cannot be told, nobody else does."""
        with self._lock:
            # a coroutine may be cancelled, and the flight landed, while a thread is on its way here
            self._held = not self._over and self._flights.take(self.key)
            return self._held

    def land(self, octets: bytes | None) -> None:
        """It is over: hand the answer to those who wait, None where there is none to hand on."""
        with self._lock:
            self._over = True
            if self._held:
                self._flights.give(self.key)
        self._flights.forget(self)
        self.landed.set_result(octets)


class Flights:
    """The calls under way for one folder."""

    def __init__(self, folder: Path) -> None:
        self._locks = ByteLocks(folder)
        self._lock = Lock()
        self._pid = os.getpid()
        self._under_way: dict[bytes, Flight] = {}

    def board(self, key: bytes) -> tuple[Flight, bool]:
        """The flight of this key, and whether it is new: then the caller flies, and lands it."""
        with self._lock:
            if self._pid != os.getpid():  # what a fork brought along never lands here
                self._pid, self._under_way = os.getpid(), {}
            known = self._under_way.get(key)
            if known is not None:
                return known, False
            flight = self._under_way[key] = Flight(self, key)
            return flight, True

    def forget(self, flight: Flight) -> None:
        """This one is over."""
        with self._lock:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]

    def take(self, key: bytes) -> bool:
        """Whether this process may make the call."""
        try:
            return self._locks.take(_offset(key))
        except OSError:
            return True  # no locks here: at worst two processes make the same call

    def give(self, key: bytes) -> None:
        """Let other processes make it."""
        with suppress(OSError):
            self._locks.give(_offset(key))


def _offset(key: bytes) -> int:
    # 62 bits, so that it stays inside a file offset: two keys at one are not to be expected
    return int.from_bytes(key[:8], "big") >> 2


#: by folder: two caches of one folder share their flights, since locks tell processes apart and not caches
_BY_FOLDER: dict[Path, Flights] = {}
_BY_FOLDER_LOCK = Lock()


def flights_of(folder: Path) -> Flights:
    """The flights for this folder, one for the process."""
    with _BY_FOLDER_LOCK:
        return _BY_FOLDER.setdefault(folder.absolute(), Flights(folder))
