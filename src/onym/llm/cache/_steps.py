"""A call through the cache as a generator: what to look up, what to wait for, when to call. Driven twice."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onym.llm.cache._value import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.cache._flight import Flight, Flights
    from onym.llm.cache._store import Store
    from onym.llm.types import Completion, Embeddings
    from onym.uri.secret import Secret

__all__ = ["Call", "Disk", "Pause", "Question", "Steps", "adrive", "drive", "steps"]

A = TypeVar("A", "Completion", "Embeddings")

#: seconds between two looks at what another process does
_FIRST_LOOK = 0.01
_LAST_LOOK = 0.25


@dataclass(frozen=True, slots=True)
class Disk:
    """Do this, which may wait for a disk."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Join:
    """Wait until this flight lands, at most so many seconds; the octets, or None."""

    flight: Flight
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Make the call itself; so many seconds of its time have gone by."""

    waited: float


Steps: TypeAlias = Generator[Disk | Pause | Join | Call, Any, A]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked for: its name in the store, how long to wait for another's call, what not to keep."""

    key: bytes
    patience: float
    secrets: Iterable[Secret] = ()


def steps(
    question: Question,
    kind: type[A],
    store: Store,
    flights: Flights,
    clock: Callable[[], float] = time.monotonic,
) -> Steps[A]:
    """From the store, from whoever asks the same right now, or by a call.

    A failure is not shared: where the call that was waited for brings nothing, everybody calls for himself.
    """
    start = clock()
    flight, ours = flights.board(question.key)
    if not ours:
        octets = yield Join(flight, question.patience)
        shared: A | None = None if octets is None else unpack(octets, kind)
        if shared is not None:
            return shared
        answer: A = yield Call(clock() - start)
        yield from _keep(question, store, answer)
        return answer
    octets = None
    try:
        found = yield from _look(question, kind, store, flight, clock)
        if found is not None:
            octets, answer = found
            return answer
        answer = yield Call(clock() - start)
        octets = yield from _keep(question, store, answer)
        return answer
    finally:
        flight.land(octets)


def _look(
    question: Question, kind: type[A], store: Store, flight: Flight, clock: Callable[[], float]
) -> Generator[Disk | Pause, Any, tuple[bytes, A] | None]:
    """What the store has, once no other process is about to put something there."""
    start, pause = clock(), _FIRST_LOOK
    found = yield from _get(question, kind, store)
    while found is None:
        if (yield Disk(flight.alone)):
            # another process may have ended its call since the store was read
            return (yield from _get(question, kind, store))
        if clock() - start >= question.patience:
            return None
        yield Pause(pause)
        pause = min(pause * 2, _LAST_LOOK)
        found = yield from _get(question, kind, store)
    return found


def _get(question: Question, kind: type[A], store: Store) -> Generator[Disk, Any, tuple[bytes, A] | None]:
    octets: bytes | None = yield Disk(lambda: store.get(question.key))
    answer = None if octets is None else unpack(octets, kind)
    return None if octets is None or answer is None else (octets, answer)


def _keep(
    question: Question, store: Store, answer: Completion | Embeddings
) -> Generator[Disk, Any, bytes | None]:
    octets = pack(answer, question.secrets)
    if octets is not None:
        yield Disk(lambda: store.put(question.key, octets))
    return octets


def drive(steps: Steps[A], call: Callable[[float], A], sleep: Callable[[float], object] = time.sleep) -> A:
    """Take the steps; `call` gets the seconds that have gone by."""

    def take(step: Disk | Pause | Join | Call) -> Any:
        if isinstance(step, Disk):
            return step.work()
        if isinstance(step, Call):
            return call(step.waited)
        if isinstance(step, Join):
            return _landed(step)
        return sleep(step.seconds)

    return _run(steps, take)


def _landed(step: Join) -> bytes | None:
    from concurrent.futures import TimeoutError as NotYet  # another class than the built-in until 3.11

    try:
        return step.flight.landed.result(step.seconds)
    except NotYet:
        return None


def _run(steps: Steps[A], take: Callable[[Any], Any]) -> A:
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


async def adrive(
    steps: Steps[A],
    call: Callable[[float], Awaitable[A]],
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> A:
    """`drive` for coroutines: what touches the disk is done in a thread."""
    import asyncio

    async def take(step: Disk | Pause | Join | Call) -> Any:
        if isinstance(step, Disk):
            return await asyncio.to_thread(step.work)
        if isinstance(step, Call):
            return await call(step.waited)
        if isinstance(step, Join):
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
