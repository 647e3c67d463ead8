"""One call for all callers that send the same request at the same time.

`lookup_steps` is a generator: read the store, wait for the caller that sends the request, or send it.
`run_steps` and `arun_steps` drive it. Locks in one file do the same between processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onym.llm.cache._store import ByteLocks, decode_answer, encode_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.cache._store import AnswerStore
    from onym.llm.types import Answer
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


@dataclass(frozen=True, slots=True)
class DiskStep:
    """Do this, which may wait for a disk."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class PauseStep:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JoinStep:
    """Wait for this call for at most so many seconds. Returns the bytes of its answer, or None."""

    flight: PendingCall
    seconds: float


@dataclass(frozen=True, slots=True)
class CallStep:
    """Make the call itself; so many seconds of its time have gone by."""

    waited: float


Steps: TypeAlias = Generator[DiskStep | PauseStep | JoinStep | CallStep, Any, A]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """What is asked for: its name in the store, how long to wait for another's call, what not to keep."""

    key: bytes
    patience: float
    secrets: Iterable[Secret] = ()


def lookup_steps(
    question: CacheLookup,
    kind: type[A],
    store: AnswerStore,
    flights: PendingCalls,
    clock: Callable[[], float] = time.monotonic,
) -> Steps[A]:
    """Find the answer in the store, wait for an identical call in progress, or make the call.

    A failure is not shared: where the call that was waited for brings nothing, everybody calls for himself.
    """
    start = clock()
    flight, ours = flights.join(question.key)
    if not ours:
        octets = yield JoinStep(flight, question.patience)
        shared: A | None = None if octets is None else decode_answer(octets, kind)
        if shared is not None:
            return shared
        answer: A = yield CallStep(clock() - start)
        yield from _store_answer(question, store, answer)
        return answer
    octets = None
    try:
        found = yield from _find_stored(question, kind, store, flight, clock)
        if found is not None:
            octets, answer = found
            return answer
        answer = yield CallStep(clock() - start)
        octets = yield from _store_answer(question, store, answer)
        return answer
    finally:
        flight.finish(octets)


def _find_stored(
    question: CacheLookup, kind: type[A], store: AnswerStore, flight: PendingCall, clock: Callable[[], float]
) -> Generator[DiskStep | PauseStep, Any, tuple[bytes, A] | None]:
    """What the store has, once no other process is about to put something there."""
    start, pause = clock(), _FIRST_LOOK
    found = yield from _read_stored(question, kind, store)
    while found is None:
        if (yield DiskStep(flight.try_lock)):
            # another process may have ended its call since the store was read
            return (yield from _read_stored(question, kind, store))
        if clock() - start >= question.patience:
            return None
        yield PauseStep(pause)
        pause = min(pause * 2, _LAST_LOOK)
        found = yield from _read_stored(question, kind, store)
    return found


def _read_stored(
    question: CacheLookup, kind: type[A], store: AnswerStore
) -> Generator[DiskStep, Any, tuple[bytes, A] | None]:
    octets: bytes | None = yield DiskStep(lambda: store.get(question.key))
    answer = None if octets is None else decode_answer(octets, kind)
    return None if octets is None or answer is None else (octets, answer)


def _store_answer(
    question: CacheLookup, store: AnswerStore, answer: Answer
) -> Generator[DiskStep, Any, bytes | None]:
    octets = encode_answer(answer, question.secrets)
    if octets is not None:
        yield DiskStep(lambda: store.put(question.key, octets))
    return octets


def run_steps(
    steps: Steps[A], call: Callable[[float], A], sleep: Callable[[float], object] = time.sleep
) -> A:
    """Take the steps; `call` gets the seconds that have gone by."""

    def take(step: DiskStep | PauseStep | JoinStep | CallStep) -> Any:
        if isinstance(step, DiskStep):
            return step.work()
        if isinstance(step, CallStep):
            return call(step.waited)
        if isinstance(step, JoinStep):
            return _wait_for_call(step)
        return sleep(step.seconds)

    return _drive_generator(steps, take)


def _wait_for_call(step: JoinStep) -> bytes | None:
    from concurrent.futures import TimeoutError as NotYet  # another class than the built-in until 3.11

    try:
        return step.flight.landed.result(step.seconds)
    except NotYet:
        return None


def _drive_generator(steps: Steps[A], take: Callable[[Any], Any]) -> A:
    try:
        step = next(steps)
        while True:
            try:
                result = take(step)
            except BaseException as error:  # noqa: BLE001 - the generator lands its flight, and raises it again
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def arun_steps(
    steps: Steps[A],
    call: Callable[[float], Awaitable[A]],
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> A:
    """`run_steps` for coroutines: what touches the disk is done in a thread."""
    import asyncio

    async def take(step: DiskStep | PauseStep | JoinStep | CallStep) -> Any:
        if isinstance(step, DiskStep):
            return await asyncio.to_thread(step.work)
        if isinstance(step, CallStep):
            return await call(step.waited)
        if isinstance(step, JoinStep):
            landed = asyncio.wrap_future(step.flight.landed)
            try:
                done, _ = await asyncio.wait([landed], timeout=step.seconds)
                return landed.result() if done else None
            finally:
                landed.cancel()  # this view of it alone: the flight goes on
        return await (sleep or asyncio.sleep)(step.seconds)

    try:
        step = next(steps)
        while True:
            try:
                result = await take(step)
            except BaseException as error:  # noqa: BLE001 - the generator lands its flight, and raises it again
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
