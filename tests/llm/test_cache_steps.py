"""A call through the cache: read the store, wait for another caller, or make the call."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from onym.errors import ConnectionFailed
from onym.llm.cache._store import (
    AnswerStore,
    CacheLookup,
    PendingCalls,
    encode_answer,
    get_pending_calls,
    lookup_flow,
)
from onym.llm.types import Completion
from onym.net.messages import Flow, Work
from onym.net.transport import arun_flow, run_flow
from onym.testing import FakeClock

KEY = b"a name of thirty-two octets, so."
ANSWER = Completion(text="Hi", model="m", finish_reason="stop")
NO_TRANSPORT = cast("Any", None)
FILTERED = Completion(text="", model="m", finish_reason="content_filter")


class Room:
    """A store and its flights."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.store = AnswerStore(folder, size=10**6, age=1e9, trouble=pytest.fail)
        self.store.load_key()
        self.flights = get_pending_calls(folder)
        self.calls = 0

    def flow(
        self,
        call: Callable[[float], Completion],
        acall: Callable[[float], Awaitable[Completion]] | None = None,
        *,
        key: bytes = KEY,
        patience: float = 5.0,
    ) -> Flow[Completion]:
        def send(waited: float) -> Flow[Completion]:
            return (yield Work(lambda: call(waited), acall and (lambda: acall(waited))))  # type: ignore[no-any-return]

        lookup = CacheLookup(key=key, patience=patience)
        return lookup_flow(lookup, Completion, self.store, self.flights, send, self.clock.monotonic)

    def run(self, call: Callable[[float], Completion], **given: Any) -> Completion:
        return run_flow(self.flow(call, **given), NO_TRANSPORT, sleep=self.clock.sleep)

    async def arun(self, acall: Callable[[float], Awaitable[Completion]], **given: Any) -> Completion:
        return await arun_flow(self.flow(pytest.fail, acall, **given), NO_TRANSPORT, sleep=self.clock.asleep)

    def ask(self, answer: Completion = ANSWER, **given: Any) -> Completion:
        def call(waited: float) -> Completion:
            self.calls += 1
            return answer

        return self.run(call, **given)

    async def aask(self, answer: Completion = ANSWER, **given: Any) -> Completion:
        async def call(waited: float) -> Completion:
            self.calls += 1
            return answer

        return await self.arun(call, **given)


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
        room.run(fail)
    assert room.ask() == ANSWER
    assert room.flights.join(KEY)[1]


def test_a_cancelled_coroutine_lets_the_next_one_call(room: Room) -> None:
    async def main() -> Completion:
        begun = asyncio.Event()

        async def hang(waited: float) -> Completion:
            begun.set()
            await asyncio.Event().wait()
            return ANSWER

        task = asyncio.create_task(room.arun(hang))
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

    threads = [threading.Thread(target=lambda: answers.append(room.run(slow))) for _ in range(8)]
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
        tasks = [asyncio.create_task(room.arun(slow)) for _ in range(100)]
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

    thread = threading.Thread(target=lambda: room.run(slow))
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

        first = asyncio.create_task(room.arun(slow))
        await begun.wait()
        impatient, patient = (asyncio.create_task(room.arun(slow)) for _ in range(2))
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
    times: list[float] = []

    def call(waited: float) -> Completion:
        times.append(waited)
        return ANSWER

    flow = room.flow(call)
    assert isinstance(next(flow), Work)
    flight.finish(None)
    room.clock.advance(2)
    call_work = flow.send(None)
    assert isinstance(call_work, Work)
    store_work = flow.send(call_work.call())
    assert isinstance(store_work, Work)
    store_work.call()
    assert times == [2.0]
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
from onym.llm.cache._store import _compute_offset
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


def test_what_another_process_is_asking_is_waited_for(room: Room) -> None:
    content = encode_answer(ANSWER)
    assert content is not None
    other = Other(room.store.folder, content)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            other.end()

    assert run_flow(room.flow(pytest.fail), NO_TRANSPORT, sleep=sleep) == ANSWER
    assert pauses == [0.01, 0.02, 0.04]


def test_a_process_that_died_is_not_waited_for(room: Room) -> None:
    other = Other(room.store.folder, b"")
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        other.end(kill=True)

    assert run_flow(room.flow(lambda waited: ANSWER), NO_TRANSPORT, sleep=sleep) == ANSWER
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
