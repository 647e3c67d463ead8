"""What a function raises ends its call with an answer, and nothing else: neither the server nor the truth."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent import futures
from typing import Any

import pytest

from ai_support import Heard
from onym.ai.endpoint import Endpoint, Limits
from onym.ai.endpoint.responses import contain_faults
from onym.net.messages import SSEDecoder

Played = Callable[..., None]
RAISED: tuple[Callable[[], BaseException], ...] = (
    lambda: SystemExit(1),
    KeyboardInterrupt,
    asyncio.CancelledError,
    futures.CancelledError,
    GeneratorExit,
    lambda: BaseExceptionGroup("both", [SystemExit(1)]),
    StopIteration,
    StopAsyncIteration,
)


def fill(app: Endpoint, raised: Callable[[], BaseException]) -> None:
    @app.resource("/plain")
    def plain() -> int:
        raise raised()

    @app.resource("/coroutine")
    async def coroutine() -> int:
        raise raised()

    @app.resource("/write", effects="write")
    def write() -> int:
        raise raised()

    @app.resource("/whole")
    async def whole() -> int:
        return 1


def fill_streams(app: Endpoint, raised: Callable[[], BaseException]) -> None:
    def fails() -> int:
        raise raised()

    @app.resource("/first")
    async def first() -> AsyncIterator[int]:
        yield fails()

    @app.resource("/plain-first")
    def plain_first() -> Iterator[int]:
        yield fails()

    @app.resource("/made")
    def made() -> Iterator[int]:
        raise raised()

    @app.resource("/later")
    async def later() -> AsyncIterator[int]:
        yield 1
        raise raised()

    @app.resource("/plain-later")
    def plain_later() -> Iterator[int]:
        yield 1
        raise raised()

    @app.resource("/kept-later", effects="write")
    def kept_later() -> Iterator[int]:
        yield 1
        raise raised()


def events(heard: Heard) -> list[tuple[str, str]]:
    return [(each.event, each.data) for each in SSEDecoder().feed(heard.body)]


@pytest.mark.parametrize("raised", RAISED)
def test_whatever_a_function_raises_is_told_as_internal_and_the_next_call_is_served(
    played: Played, caplog: pytest.LogCaptureFixture, raised: Callable[[], BaseException]
) -> None:
    name = type(raised()).__name__

    async def scenario(app: Endpoint, post: Any) -> None:
        fill(app, raised)
        fill_streams(app, raised)
        for number, path in enumerate(("/plain", "/coroutine", "/write", "/first", "/plain-first", "/made")):
            caplog.clear()
            heard = await post(path, str(number))
            assert (path, heard.status, heard.json()["code"]) == (path, 500, "internal")
            assert heard.receipt
            assert name in caplog.text  # the log has it, with its traceback
        for number, path in enumerate(("/later", "/plain-later", "/kept-later"), 10):
            caplog.clear()
            *_, (kind, told) = found = events(await post(path, str(number)))
            assert (path, found[0], kind) == (path, ("message", "1"), "problem")
            assert json.loads(told)["code"] == "internal"
            assert name in caplog.text
        assert (await post("/whole")).body == b"1"
        runner = app._exchanges._runner
        assert (len(runner._limiter), len(runner._tasks)) == (0, 0)

    played(scenario)


def test_a_stream_that_raises_while_it_is_closed_ends_nobody_else(played: Played) -> None:
    closed = []

    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/long")
        async def long() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                closed.append(1)
                raise SystemExit(1)

        found = events(await post("/long"))
        assert [kind for kind, _ in found] == ["message", "problem"]
        assert closed == [1]

    played(scenario, limits=Limits(stream_events=1))


def test_the_cancel_of_a_task_and_the_end_of_a_coroutine_are_not_faults() -> None:
    async def waits() -> None:
        with contain_faults():
            await asyncio.Future()

    async def main() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_coroutine_that_is_thrown_away_ends_in_silence() -> None:
    class Never:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def waits() -> None:
        with contain_faults():
            await Never()

    async def begin(coroutine: Any) -> None:
        coroutine.send(None)

    coroutine = waits()
    asyncio.run(begin(coroutine))
    coroutine.close()


# times ----------------------------------------------------------------------------------------------------


def test_a_time_that_ran_out_within_the_function_is_not_told_as_the_endpoints(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/stream")
        async def stream() -> AsyncIterator[int]:
            yield 1
            raise TimeoutError("database said no")

        *_, (kind, told) = events(await post("/stream"))
        problem = json.loads(told)
        assert (kind, problem["code"], problem["retryable"]) == ("problem", "internal", False)
        assert "database said no" in caplog.text

    played(scenario)


def test_a_stream_out_of_its_time_is_told_as_such_and_the_log_says_where_it_was(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/stream")
        async def stream() -> AsyncIterator[int]:
            yield 1
            await waits_for_ever()

        *_, (kind, told) = events(await post("/stream"))
        assert (kind, json.loads(told)["code"]) == ("problem", "upstream-timeout")
        assert "waits_for_ever" in caplog.text

    async def waits_for_ever() -> None:
        await asyncio.Future()

    caplog.set_level(logging.ERROR, "onym.ai.endpoint")
    # enough to come there on a busy machine
    played(scenario, limits=Limits(stream_seconds=2.0))


# iterators ------------------------------------------------------------------------------------------------


class Counted:
    """An iterator with no more than an iterator has."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 2:
            raise StopIteration
        return self.at


class Awaited(Counted):
    """The same, awaited."""

    def __aiter__(self) -> Awaited:
        return self

    async def __anext__(self) -> int:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


async def numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


def plain_iterator() -> Iterator[int]:
    return Counted()


def awaited_iterator() -> AsyncIterator[int]:
    asyncio.get_running_loop()
    return Awaited()


def awaited_generator() -> AsyncIterator[int]:
    return numbers()


async def coroutine_of_a_generator() -> AsyncIterator[int]:
    return numbers()


async def coroutine_of_an_iterator() -> Iterator[int]:
    return Counted()


@pytest.mark.parametrize(
    "function",
    [
        plain_iterator,
        awaited_iterator,
        awaited_generator,
        coroutine_of_a_generator,
        coroutine_of_an_iterator,
    ],
)
def test_an_iterator_by_its_annotation_is_a_stream_that_a_receipt_ends(
    played: Played, function: Callable[..., Any]
) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        app.resource("/stream")(function)
        found = events(await post("/stream"))
        assert found[:-1] == [("message", "1"), ("message", "2")]
        assert found[-1][0] == "receipt"

    played(scenario)


def test_a_plain_function_that_makes_an_iterator_does_so_in_a_thread(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        @app.resource("/rows")
        def rows() -> Iterator[bool]:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return iter([True])

        assert events(await post("/rows"))[0] == ("message", "true")

    played(scenario)


def test_a_plain_function_around_a_coroutine_is_awaited(played: Played) -> None:
    async def scenario(app: Endpoint, post: Any) -> None:
        async def behind() -> int:
            return 1

        @app.resource("/around")
        def around() -> int:
            return behind()  # type: ignore[return-value]

        assert (await post("/around")).body == b"1"

    played(scenario)
