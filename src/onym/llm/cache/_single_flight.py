"""One call for all callers that send the same request at the same time.

`lookup_flow` reads the store, waits for the caller that sends the request, or sends it. Locks in one file
do the same between processes.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from onym.llm.cache._store import ByteLocks, decode_answer, encode_answer
from onym.net.messages import Wait, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.cache._store import AnswerStore
    from onym.llm.types import Answer
    from onym.net.messages import Flow
    from onym.uri.secret import Secret


class PendingCall:
    """One call in progress in this process. `landed` ends with the bytes of its answer, or None."""

    __slots__ = ("_flights", "_held", "_lock", "_over", "key", "landed")

    def __init__(self, flights: PendingCalls, key: bytes) -> None:
        self._flights = flights
        self._lock = Lock()
        self._held = False
        self._over = False
        self.key = key
        self.landed: Future[bytes | None] = Future()
        # a coroutine that stops waiting must not cancel it for the others
        self.landed.set_running_or_notify_cancel()

    def try_lock(self) -> bool:
        """Whether no other process makes this call. True if the locks do not work."""
        with self._lock:
            # a coroutine may be cancelled, and the flight landed, while a thread is on its way here
            self._held = not self._over and self._flights.acquire_lock(self.key)
            return self._held

    def finish(self, octets: bytes | None) -> None:
        """It is over: hand the answer to those who wait, None where there is none to hand on."""
        with self._lock:
            self._over = True
            if self._held:
                self._flights.release_lock(self.key)
        self._flights.remove_call(self)
        self.landed.set_result(octets)


class PendingCalls:
    """The calls under way for one folder."""

    def __init__(self, folder: Path) -> None:
        self._locks = ByteLocks(folder)
        self._lock = Lock()
        self._pid = os.getpid()
        self._under_way: dict[bytes, PendingCall] = {}

    def join(self, key: bytes) -> tuple[PendingCall, bool]:
        """The flight of this key, and whether it is new: then the caller flies, and lands it."""
        with self._lock:
            if self._pid != os.getpid():  # what a fork brought along never lands here
                self._pid, self._under_way = os.getpid(), {}
            known = self._under_way.get(key)
            if known is not None:
                return known, False
            flight = self._under_way[key] = PendingCall(self, key)
            return flight, True

    def remove_call(self, flight: PendingCall) -> None:
        """This one is over."""
        with self._lock:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]

    def acquire_lock(self, key: bytes) -> bool:
        """Whether this process may make the call."""
        try:
            return self._locks.acquire(_compute_offset(key))
        except OSError:
            return True  # no locks here: at worst two processes make the same call

    def release_lock(self, key: bytes) -> None:
        """Let other processes make it."""
        with suppress(OSError):
            self._locks.release(_compute_offset(key))


def _compute_offset(key: bytes) -> int:
    # 62 bits, so that it stays inside a file offset: two keys at one are not to be expected
    return int.from_bytes(key[:8], "big") >> 2


#: by folder: two caches of one folder share their flights, since locks tell processes apart and not caches
_BY_FOLDER: dict[Path, PendingCalls] = {}
_BY_FOLDER_LOCK = Lock()


def get_pending_calls(folder: Path) -> PendingCalls:
    """The flights for this folder, one for the process."""
    with _BY_FOLDER_LOCK:
        return _BY_FOLDER.setdefault(folder.absolute(), PendingCalls(folder))


A = TypeVar("A", bound="Answer")

#: seconds between two looks at what another process does
_FIRST_LOOK = 0.01
_LAST_LOOK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """What is asked for: its name in the store, how long to wait for another's call, what not to keep."""

    key: bytes
    patience: float
    secrets: Iterable[Secret] = ()


def lookup_flow(
    lookup: CacheLookup,
    kind: type[A],
    store: AnswerStore,
    calls: PendingCalls,
    call: Callable[[float], Flow[A]],
    clock: Callable[[], float] = time.monotonic,
) -> Flow[A]:
    """Find the answer in the store, wait for an identical call in progress, or make the call.

    `call` gets the seconds that were spent waiting. A failure is not shared: if the other call brings no
    answer, every waiting caller makes its own.
    """
    start = clock()
    pending, is_new = calls.join(lookup.key)
    if not is_new:
        content = yield _wait_for_call(pending, lookup.patience)
        shared: A | None = None if content is None else decode_answer(content, kind)
        if shared is not None:
            return shared
        answer = yield from call(clock() - start)
        yield from _store_answer(lookup, store, answer)
        return answer
    content = None
    try:
        stored = yield from _find_stored(lookup, kind, store, pending, clock)
        if stored is not None:
            content, answer = stored
            return answer
        answer = yield from call(clock() - start)
        content = yield from _store_answer(lookup, store, answer)
        return answer
    finally:
        pending.finish(content)


def _find_stored(
    lookup: CacheLookup, kind: type[A], store: AnswerStore, pending: PendingCall, clock: Callable[[], float]
) -> Flow[tuple[bytes, A] | None]:
    """What the store has, once no other process is about to put something there."""
    start, pause = clock(), _FIRST_LOOK
    stored = yield from _read_stored(lookup, kind, store)
    while stored is None:
        if (yield Work(pending.try_lock)):
            # another process may have ended its call since the store was read
            return (yield from _read_stored(lookup, kind, store))
        if clock() - start >= lookup.patience:
            return None
        yield Wait(pause)
        pause = min(pause * 2, _LAST_LOOK)
        stored = yield from _read_stored(lookup, kind, store)
    return stored


def _read_stored(lookup: CacheLookup, kind: type[A], store: AnswerStore) -> Flow[tuple[bytes, A] | None]:
    content: bytes | None = yield Work(lambda: store.get(lookup.key))
    answer = None if content is None else decode_answer(content, kind)
    return None if content is None or answer is None else (content, answer)


def _store_answer(lookup: CacheLookup, store: AnswerStore, answer: Answer) -> Flow[bytes | None]:
    content = encode_answer(answer, lookup.secrets)
    if content is not None:
        yield Work(lambda: store.put(lookup.key, content))
    return content


def _wait_for_call(pending: PendingCall, seconds: float) -> Work:
    """Wait for the bytes of another caller's answer; None if it brings none, or takes longer."""

    def wait() -> bytes | None:
        done, _ = concurrent.futures.wait([pending.landed], seconds)
        return pending.landed.result() if done else None

    async def await_call() -> bytes | None:
        import asyncio  # 20 ms that a synchronous client does not need

        landed = asyncio.wrap_future(pending.landed)
        try:
            done, _ = await asyncio.wait([landed], timeout=seconds)
            return landed.result() if done else None
        finally:
            landed.cancel()  # only this view of it: the call goes on

    return Work(wait, await_call)
