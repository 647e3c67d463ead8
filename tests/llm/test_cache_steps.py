"""A call through the cache: who looks, who waits, who calls. One generator, two drivers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConnectionFailed
from onym.llm.cache._single_flight import (
    CacheLookup,
    CallStep,
    DiskStep,
    JoinStep,
    PauseStep,
    PendingCalls,
    arun_steps,
    get_pending_calls,
    lookup_steps,
    run_steps,
)
from onym.llm.cache._store import AnswerStore, encode_answer
from onym.llm.types import Completion
from onym.testing.clock import FakeClock

KEY = b"a name of thirty-two octets, so."
ANSWER = Completion(text="Hi", model="m", finish_reason="stop")
FILTERED = Completion(text="", model="m", finish_reason="content_filter")


class Room:
    """A store and its flights."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.store = AnswerStore(folder, size=10**6, age=1e9, trouble=pytest.fail)
        self.store.load_key()
        self.flights = get_pending_calls(folder)
        self.calls = 0

    def steps(self, key: bytes = KEY, patience: float = 5.0) -> Any:
        question = CacheLookup(key=key, patience=patience)
        return lookup_steps(question, Completion, self.store, self.flights, self.clock.monotonic)

    def ask(self, answer: Completion = ANSWER, **given: Any) -> Completion:
        def call(waited: float) -> Completion:
            self.calls += 1
            return answer

        return run_steps(self.steps(**given), call, self.clock.sleep)

    async def aask(self, answer: Completion = ANSWER, **given: Any) -> Completion:
        async def call(waited: float) -> Completion:
            self.calls += 1
            return answer

        return await arun_steps(self.steps(**given), call, self.clock.asleep)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path / "responses")
    yield room
    room.store.close()


def test_the_second_of_two_calls_is_answered_from_the_store(room: Room) -> None:
    assert room.ask() == room.ask() == ANSWER
    assert room.calls == 1
    assert room.ask(key=b"another name, of other octets...") == ANSWER
    assert room.calls == 2


def test_coroutines_find_what_threads_kept(room: Room) -> None:
    room.ask()
    assert asyncio.run(room.aask()) == ANSWER
    assert room.calls == 1


def test_an_answer_that_is_not_kept_is_asked_for_again(room: Room) -> None:
    assert room.ask(FILTERED) == room.ask(FILTERED) == FILTERED
    assert room.calls == 2
    assert room.store.contents().entries == 0


def test_what_cannot_be_read_is_asked_for_again_and_replaced(room: Room) -> None:
    room.store.put(KEY, b'{"format":0}')
    assert room.ask() == room.ask() == ANSWER
    assert room.calls == 1


@pytest.mark.parametrize("error", [ConnectionFailed("broke"), KeyboardInterrupt()])
def test_a_failure_is_raised_and_the_next_call_is_made(room: Room, error: BaseException) -> None:
    def fail(waited: float) -> Completion:
        raise error

    with pytest.raises(type(error)):
        run_steps(room.steps(), fail)
    assert room.ask() == ANSWER
    assert room.flights.join(KEY)[1]


def test_a_cancelled_coroutine_lets_the_next_one_call(room: Room) -> None:
    async def main() -> Completion:
        begun = asyncio.Event()

        async def hang(waited: float) -> Completion:
            begun.set()
            await asyncio.Event().wait()
            return ANSWER

        task = asyncio.create_task(arun_steps(room.steps(), hang))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await room.aask()

    assert asyncio.run(main()) == ANSWER


def test_many_threads_that_ask_at_once_make_one_call(room: Room) -> None:
    inside, gate = threading.Event(), threading.Event()
    answers: list[Completion] = []

    def slow(waited: float) -> Completion:
        room.calls += 1
        inside.set()
        assert gate.wait(300)
        return ANSWER

    threads = [
        threading.Thread(target=lambda: answers.append(run_steps(room.steps(), slow))) for _ in range(8)
    ]
    threads[0].start()
    assert inside.wait(300)
    for thread in threads[1:]:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert answers == [ANSWER] * 8
    assert room.calls == 1


@pytest.mark.requirement("onym-cache-c")
def test_many_coroutines_that_ask_at_once_make_one_call(room: Room) -> None:
    async def main() -> list[Completion]:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def slow(waited: float) -> Completion:
            room.calls += 1
            begun.set()
            await gate.wait()
            return ANSWER

        # more than the threads of the loop's pool
        tasks = [asyncio.create_task(arun_steps(room.steps(), slow)) for _ in range(100)]
        await begun.wait()
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [ANSWER] * 100
    assert room.calls == 1


def test_a_coroutine_and_a_thread_wait_for_each_other(room: Room) -> None:
    inside, gate = threading.Event(), threading.Event()

    def slow(waited: float) -> Completion:
        room.calls += 1
        inside.set()
        assert gate.wait(300)
        return ANSWER

    thread = threading.Thread(target=lambda: run_steps(room.steps(), slow))
    thread.start()
    assert inside.wait(300)

    async def main() -> Completion:
        waiting = asyncio.create_task(room.aask())
        await asyncio.sleep(0)
        gate.set()
        return await waiting

    assert asyncio.run(main()) == ANSWER
    thread.join()
    assert room.calls == 1


def test_a_coroutine_that_stops_waiting_stops_nobody_else(room: Room) -> None:
    async def main() -> list[Any]:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def slow(waited: float) -> Completion:
            room.calls += 1
            begun.set()
            await gate.wait()
            return ANSWER

        first = asyncio.create_task(arun_steps(room.steps(), slow))
        await begun.wait()
        impatient, patient = (asyncio.create_task(arun_steps(room.steps(), slow)) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        gate.set()
        return [await first, await patient, impatient.cancelled()]

    assert asyncio.run(main()) == [ANSWER, ANSWER, True]
    assert room.calls == 1


def test_those_who_waited_for_a_failure_call_for_themselves(room: Room) -> None:
    flight, ours = room.flights.join(KEY)
    assert ours
    asking = room.steps()
    assert isinstance(next(asking), JoinStep)
    flight.finish(None)
    room.clock.advance(2)
    step = asking.send(None)
    assert step == CallStep(2.0)
    keep = asking.send(ANSWER)
    assert isinstance(keep, DiskStep)
    keep.work()
    assert room.store.get(KEY) == encode_answer(ANSWER)


def test_waiting_has_an_end(room: Room) -> None:
    room.flights.join(KEY)
    assert room.ask(patience=0.0) == ANSWER
    assert asyncio.run(room.aask(patience=0.0)) == ANSWER
    assert room.calls == 2


OTHER = """
import sys
from pathlib import Path
from onym.llm.cache._store import ByteLocks
from onym.llm.cache._single_flight import _compute_offset
from onym.llm.cache._store import AnswerStore as Store
folder, key, value = Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
store = Store(folder, size=10**6, age=1e9, trouble=print)
store.load_key()
locks = ByteLocks(folder)
print(locks.acquire(_compute_offset(key)), flush=True)
sys.stdin.readline()
if value:
    store.put(key, value)
store.close()
"""


class Other:
    """Another process that makes the call of `KEY`, until it is told to end it."""

    def __init__(self, folder: Path, value: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(folder), KEY.hex(), value.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "True\n"

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self._process.kill()
        self._process.communicate("\n" if not kill else None, timeout=600)


def play_out(asking: Any, step: Any) -> Any:
    """To the end, without a call."""
    try:
        while True:
            assert not isinstance(step, CallStep)
            step = asking.send(step.work() if isinstance(step, DiskStep) else None)
    except StopIteration as stop:
        return stop.value


def test_what_another_process_is_asking_is_waited_for(room: Room) -> None:
    octets = encode_answer(ANSWER)
    assert octets is not None
    other = Other(room.store.folder, octets)
    asking, step, pauses = room.steps(), None, []
    step = next(asking)
    while len(pauses) < 3:
        if isinstance(step, PauseStep):
            pauses.append(step.seconds)
            step = asking.send(None)
        else:
            assert isinstance(step, DiskStep)
            step = asking.send(step.work())
    other.end()
    assert play_out(asking, step) == ANSWER
    assert pauses == [0.01, 0.02, 0.04]


def test_a_process_that_died_is_not_waited_for(room: Room) -> None:
    other = Other(room.store.folder, b"")
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        other.end(kill=True)

    assert run_steps(room.steps(), lambda waited: ANSWER, sleep) == ANSWER
    assert len(naps) == 1


def test_a_process_that_takes_too_long_is_waited_for_so_long_and_no_longer(room: Room) -> None:
    other = Other(room.store.folder, b"")
    assert room.ask(patience=3.0) == ANSWER
    assert 3.0 <= sum(room.clock.slept) <= 3.25
    assert max(room.clock.slept) == 0.25
    other.end()


def test_where_there_are_no_locks_every_process_calls(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise OSError("no locks available")

    monkeypatch.setattr(room.flights._locks, "acquire", refuse)
    monkeypatch.setattr(room.flights._locks, "release", refuse)
    assert room.ask() == ANSWER


def test_a_flight_that_a_fork_brought_along_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = PendingCalls(tmp_path)
    stale, first = flights.join(KEY)
    monkeypatch.setattr(flights, "_pid", -1)
    _, second = flights.join(KEY)
    assert first
    assert second
    stale.finish(None)
    assert not flights.join(KEY)[1]


def test_a_flight_that_is_over_takes_no_lock(room: Room) -> None:
    flight, _ = room.flights.join(KEY)
    flight.finish(None)
    assert not flight.try_lock()
    assert Other(room.store.folder, b"").end() is None


def test_two_caches_of_one_folder_share_their_flights(tmp_path: Path) -> None:
    assert get_pending_calls(tmp_path) is get_pending_calls(tmp_path)
    assert get_pending_calls(tmp_path / "other") is not get_pending_calls(tmp_path)
