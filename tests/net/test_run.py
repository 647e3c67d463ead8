"""The two drivers of flows give the same, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from net_support import OK, Server, answering, asking, free_port
from onym.errors import ConnectionFailed, NetError, UsageError
from onym.net.config import NetConfig
from onym.net.connections import drive_coroutine
from onym.net.messages import Ask, Flow, Origin, Records, Reply, Send, Wait
from onym.net.policy import Policy
from onym.net.records import RecordResolver
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def do(kind: str, flow: Flow[Any], waits: list[float] | None = None) -> Any:
    """Drive the flow; `waits` takes the seconds that it asked to wait, None lets it wait."""
    if kind == "sync":
        with Transport(Policy.local()) as transport:
            return (
                run_flow(flow, transport) if waits is None else run_flow(flow, transport, sleep=waits.append)
            )

    async def sleep(seconds: float) -> None:
        assert waits is not None
        waits.append(seconds)

    async def scenario() -> Any:
        async with AsyncTransport(Policy.local()) as transport:
            return await (
                arun_flow(flow, transport) if waits is None else arun_flow(flow, transport, sleep=sleep)
            )

    return asyncio.run(scenario())


def test_a_flow_is_resumed_with_replies_and_returns_its_value(kind: str) -> None:
    def flow(send: Send) -> Flow[list[int]]:
        statuses = []
        for _ in range(2):
            reply = yield send
            assert isinstance(reply, Reply)
            statuses.append(reply.status)
        return statuses

    with Server(answering(OK)) as server:
        assert do(kind, flow(asking(Origin("http", "127.0.0.1", server.port)))) == [200, 200]
        assert server.connections == 1


def test_an_error_of_the_network_is_thrown_into_the_flow_which_may_go_on(kind: str) -> None:
    def flow(bad: Send, good: Send) -> Flow[tuple[str, int]]:
        try:
            yield bad
        except NetError as error:
            code = error.code
        answer = yield Wait(0.0)
        assert answer is None
        reply = yield good
        assert reply is not None
        return code, reply.status

    with Server(answering(OK)) as server, free_port() as port:
        sends = [asking(Origin("http", "127.0.0.1", each)) for each in (port, server.port)]
        assert do(kind, flow(*sends)) == ("net.connection.refused", 200)


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_flow_asks_of_dns_is_answered_or_fails_where_nobody_is_to_ask(kind: str, asked: bool) -> None:
    found = Records(status="found", values=("v",), validated=True)

    class Fixed(RecordResolver):
        def ask(self, ask: Ask) -> Records:
            assert ask == Ask("_aiip.bank.test", "TXT", 1.0)
            return found

        async def aask(self, ask: Ask) -> Records:
            return self.ask(ask)

    def flow() -> Flow[Records]:
        records = yield Ask("_aiip.bank.test", "TXT", 1.0)
        assert isinstance(records, Records)
        return records

    async def scenario() -> Records:
        async with AsyncTransport(
            NetConfig(policy=Policy.local(), records=Fixed() if asked else None)
        ) as transport:
            return await arun_flow(flow(), transport)

    if kind == "sync":
        with Transport(NetConfig(policy=Policy.local(), records=Fixed() if asked else None)) as transport:
            answer = run_flow(flow(), transport)
    else:
        answer = asyncio.run(scenario())
    assert answer == found if asked else (answer.status, answer.values) == ("failed", ())


def test_a_transport_that_is_closed_asks_nobody(kind: str) -> None:
    question = Ask("_aiip.bank.test", "TXT")
    if kind == "sync":
        transport = Transport(Policy.local())
        transport.close()
        with pytest.raises(UsageError):
            transport.ask(question)
        return

    async def scenario() -> None:
        waiting = AsyncTransport(Policy.local())
        await waiting.close()
        with pytest.raises(UsageError):
            await waiting.ask(question)

    asyncio.run(scenario())


def test_an_error_that_the_flow_does_not_take_comes_out(kind: str) -> None:
    def flow(send: Send) -> Flow[None]:
        yield send

    with free_port() as port, pytest.raises(ConnectionFailed):
        do(kind, flow(asking(Origin("http", "127.0.0.1", port))))


def test_waits_are_handed_to_the_sleeper_and_never_negative(kind: str) -> None:
    def flow() -> Flow[str]:
        yield Wait(1.5)
        yield Wait(-3.0)
        return "done"

    waits: list[float] = []
    assert do(kind, flow(), waits) == "done"
    assert waits == [1.5, 0.0]


def test_a_flow_is_closed_when_its_driver_is_broken_off(kind: str) -> None:
    closed: list[bool] = []

    def flow() -> Generator[Send | Wait, Reply | None, None]:
        try:
            yield asking(Origin("http", "127.0.0.1", 80), headers=(("Host", "x"),))
        finally:
            closed.append(True)

    with pytest.raises(UsageError):
        do(kind, flow())
    assert closed == [True]


def test_a_coroutine_that_waits_is_no_blocking_one() -> None:
    with pytest.raises(RuntimeError):
        drive_coroutine(asyncio.sleep(0))
