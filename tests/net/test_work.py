"""What a flow has to wait for besides the network: a call that a driver makes, of coroutines in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from onym.net.messages import Flow, Work
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow

NOWHERE = cast("Any", None)


def flow() -> Flow[tuple[threading.Thread, str]]:
    where = yield Work(threading.current_thread)
    return where, (yield Work(lambda: "again"))


def test_work_is_done_where_the_flow_is() -> None:
    assert run_flow(flow(), cast("Transport", NOWHERE)) == (threading.current_thread(), "again")


def test_coroutines_go_on_meanwhile() -> None:
    where, found = asyncio.run(arun_flow(flow(), cast("AsyncTransport", NOWHERE)))
    assert found == "again"
    assert where is not threading.current_thread()


def broken() -> None:
    raise KeyError("x")


def test_work_that_fails_ends_the_flow() -> None:
    ended: list[bool] = []

    def failing() -> Flow[None]:
        try:
            yield Work(broken)
        finally:
            ended.append(True)

    with pytest.raises(KeyError):
        run_flow(failing(), cast("Transport", NOWHERE))
    with pytest.raises(KeyError):
        asyncio.run(arun_flow(failing(), cast("AsyncTransport", NOWHERE)))
    assert ended == [True, True]


def test_an_error_of_work_is_thrown_into_the_flow() -> None:
    def flow() -> Flow[str]:
        try:
            yield Work(broken)
        except KeyError:
            return "caught"
        return "not raised"

    assert run_flow(flow(), cast("Transport", NOWHERE)) == "caught"
    assert asyncio.run(arun_flow(flow(), cast("AsyncTransport", NOWHERE))) == "caught"


def test_coroutines_await_the_work_that_is_one() -> None:
    async def awork() -> str:
        return "awaited"

    def flow() -> Flow[str]:
        return (yield Work(lambda: "called", awork))  # type: ignore[no-any-return]

    assert run_flow(flow(), cast("Transport", NOWHERE)) == "called"
    assert asyncio.run(arun_flow(flow(), cast("AsyncTransport", NOWHERE))) == "awaited"
