"""How a call under an idempotency key ends: the key has its true result, or says that nobody knows."""

from __future__ import annotations

import asyncio
import functools
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ai_support import PATIENCE, Heard
from onym.ai.endpoint import Answer, Call, Endpoint, Limits
from onym.ai.endpoint.functions import FunctionHandler
from onym.errors import AIIPError, ResolveError

Played = Callable[..., None]
SHORT = Limits(seconds=0.05)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what ends in a thread tells nobody
        await asyncio.sleep(0.001)


def running(app: Endpoint) -> tuple[int, int]:
    runner = app._exchanges._runner
    return len(runner._limiter), len(runner._tasks)


def is_final(heard: Heard) -> bool:
    """Nobody who takes the answer by its word tries again."""
    return heard.json()["retryable"] is False and heard.get("retry-after") is None


def is_interrupted(heard: Heard) -> bool:
    """Whether the first request with this key was interrupted: it does not run, and a retry does not help."""
    found = (heard.status, heard.json()["code"], is_final(heard))
    return found == (409, "idempotency-in-progress", True)


class Till:
    """A plain function that takes its time, and counts what it did."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.paid = 0

    def pay(self) -> str:
        self.began.set()
        self.go.wait(PATIENCE)
        self.paid += 1
        return "paid"


def test_what_a_thread_comes_to_after_its_time_is_what_its_key_has(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/pay", effects="write")(till.pay)
        first = await post("/pay", "a")
        assert (first.status, first.json()["code"]) == (504, "upstream-timeout")
        assert is_final(first)
        meanwhile = await post("/pay", "a")
        assert (meanwhile.status, meanwhile.json()["code"]) == (409, "idempotency-in-progress")
        assert (meanwhile.json()["retryable"], meanwhile.get("retry-after")) == (True, "1")
        assert running(app)[0] == 1  # its place is taken for as long as it runs
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        last = await post("/pay", "a")
        assert (last.status, last.body, last.get("idempotency-replayed")) == (200, b"paid", "?1")
        assert till.paid == 1

    played(scenario, limits=SHORT)


def test_one_that_fails_after_its_time_is_kept_as_failed(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        def pay() -> str:
            till.pay()
            raise RuntimeError("half done")

        assert (await post("/pay", "a")).status == 504
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        last = await post("/pay", "a")
        assert (last.status, last.get("idempotency-replayed")) == (500, "?1")

    played(scenario, limits=SHORT)


def test_threads_of_one_caller_that_are_out_of_their_time_leave_places_for_others(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/pay", effects="write")(till.pay)
        for key in "ab":
            assert (await post("/pay", key)).status == 504
        assert (await post("/pay", "c")).status == 429
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        await post("/pay", "c")  # which may be out of its time as well, on a busy machine
        await until(lambda: running(app) == (0, 0))
        assert (await post("/pay", "c")).body == b"paid"
        assert till.paid == 3

    played(scenario, limits=Limits(seconds=0.05, threads=4, share=2))


def test_one_that_waits_for_a_thread_beyond_its_time_is_done_all_the_same(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/pay", effects="write")(till.pay)
        assert [(await post("/pay", key)).status for key in "ab"] == [504, 504]
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        assert [(await post("/pay", key)).body for key in "ab"] == [b"paid", b"paid"]
        assert till.paid == 2

    played(scenario, limits=Limits(seconds=0.05, threads=1, share=2))


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function around another, as decorators make them."""

    @functools.wraps(function)
    def around(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return around


@pytest.mark.parametrize("around", [lambda function: function, logged], ids=["itself", "in a plain function"])
def test_a_coroutine_out_of_its_time_is_ended_and_its_key_says_interrupted(
    played: Played, around: Callable[..., Any]
) -> None:
    ended = []

    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        @around
        async def pay() -> str:
            try:
                await asyncio.Future()
            finally:
                ended.append(1)
            return "paid"

        first = await post("/pay", "a")
        assert (first.status, first.json()["code"]) == (504, "upstream-timeout")
        assert is_final(first)
        assert (ended, running(app)) == ([1], (0, 0))
        last = await post("/pay", "a")
        assert is_interrupted(last)

    played(scenario, limits=Limits(seconds=0.5))


def test_one_around_a_coroutine_that_ends_in_its_time_is_kept(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        @logged
        async def pay() -> str:
            await asyncio.sleep(0)
            return "paid"

        answers = [await post("/pay", "a") for _ in range(2)]
        assert [each.body for each in answers] == [b"paid", b"paid"]

    played(scenario)


def test_what_a_thread_gives_to_be_awaited_after_its_time_is_not_waited_for(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        async def later() -> str:
            await asyncio.Future()
            return "paid"

        @app.resource("/pay", effects="write")
        @logged
        def pay() -> Any:
            till.pay()
            return later()

        first = await post("/pay", "a")
        assert (first.status, first.json()["code"]) == (504, "upstream-timeout")
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        last = await post("/pay", "a")
        assert is_interrupted(last)

    played(scenario, limits=SHORT)


def test_what_a_thread_awaits_in_a_loop_of_its_own_does_not_end_its_call(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        @logged
        async def inner() -> str:
            await asyncio.sleep(0)
            return "asked"

        @app.resource("/pay", effects="write")
        def pay(call: Call) -> str:
            asyncio.run(FunctionHandler(inner).invoke(call))
            return till.pay()

        assert (await post("/pay", "a")).status == 504
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        assert (await post("/pay", "a")).body == b"paid"

    played(scenario, limits=SHORT)


def test_a_plain_stream_out_of_its_time_before_its_first_event_is_interrupted(played: Played) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        def pay() -> Iterator[str]:
            yield till.pay()

        assert is_final(await post("/pay", "a"))
        till.go.set()
        assert is_interrupted(await post("/pay", "a"))

    played(scenario, limits=SHORT)


def test_a_stream_under_a_key_that_is_out_of_its_time_asks_nobody_to_try_again(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        async def pay() -> Any:
            yield 1
            await asyncio.Future()

        heard = await post("/pay", "a")
        assert b'"code":"upstream-timeout"' in heard.body
        assert b'"retryable":false' in heard.body

    played(scenario, limits=Limits(stream_seconds=0.05))


@pytest.mark.parametrize(
    "error",
    [AIIPError("not today", code="aiip.unavailable", retryable=True), ResolveError("no address")],
)
def test_a_failure_that_a_key_keeps_asks_nobody_to_try_again(played: Played, error: Exception) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        async def pay() -> str:
            raise error

        @app.resource("/read")
        async def read() -> str:
            raise error

        one, two = await post("/pay", "a"), await post("/pay", "a")
        assert (one.status, two.get("idempotency-replayed")) == (two.status, "?1")
        assert is_final(one)
        assert is_final(two)
        assert not is_final(await post("/read"))

    played(scenario)


def test_the_end_of_the_app_does_not_wait_for_a_thread_that_is_out_of_its_time(
    played: Played, tmp_path: Path
) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/pay", effects="write")(till.pay)
        assert (await post("/pay", "a")).status == 504
        await app.aclose()
        refused = await post("/pay", "a")  # by a store that was opened anew
        assert is_interrupted(refused)

    try:
        played(scenario, limits=SHORT)
        assert till.paid == 0
    finally:
        till.go.set()


def test_a_thread_that_returns_after_the_end_of_the_app_is_told_once_and_opens_nothing(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    till = Till()

    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/pay", effects="write")(till.pay)
        assert (await post("/pay", "a")).status == 504
        await until(till.began.is_set)
        thread = app._exchanges.store
        assert thread is not None
        await app.aclose()
        caplog.clear()
        till.go.set()
        await until(lambda: running(app) == (0, 0))
        assert [each.levelno for each in caplog.records] == [logging.ERROR]
        assert "the endpoint was closed" in caplog.text
        assert thread.closed
        assert thread is not app._exchanges.store
        last = await post("/pay", "a")  # by a store that was opened anew
        assert is_interrupted(last)

    played(scenario, limits=SHORT)


# answers that cannot be kept ------------------------------------------------------------------------------


def full(file: Path, *, of: str) -> None:
    """From now on the file takes no changes of this column."""
    with closing(sqlite3.connect(file)) as base, base:
        base.execute(
            f"CREATE TRIGGER full BEFORE UPDATE OF {of} ON keys"
            " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )


@pytest.mark.parametrize("column", ["answer", "answer, owner"])
def test_a_result_that_cannot_be_kept_leaves_its_key_interrupted(
    played: Played, tmp_path: Path, column: str
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        def pay() -> str:
            full(tmp_path / "keys.sqlite", of=column)
            return "paid"

        assert (await post("/pay", "a")).body == b"paid"
        for _ in range(2):
            refused = await post("/pay", "a")
            assert is_interrupted(refused)

    played(scenario)


def test_an_answer_that_has_no_form_to_be_kept_in_is_a_fault_that_is_kept(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/pay", effects="write")
        def pay() -> Answer:
            return Answer(headers=(("ETag", object()),))  # type: ignore[arg-type]

        assert [(await post("/pay", "a")).status for _ in range(2)] == [500, 500]

    played(scenario)
