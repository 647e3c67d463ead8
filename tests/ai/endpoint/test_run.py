"""Invocations whose request ends before they do, and the share of them that one caller has."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ai_support import PATIENCE, key_store
from onym.ai.endpoint import Endpoint, Limits, StreamEvent
from onym.ai.endpoint._runner import get_caller_key, make_limiter
from onym.ai.endpoint.context import ANONYMOUS, Caller
from onym.ai.endpoint.responses import ResponseSender
from onym.errors import AIIPError

Message = dict[str, Any]
NAME = "factory.test"


class Wire:
    """One request as an ASGI server brings it. `here` is cleared by a caller that goes away."""

    def __init__(
        self, path: str, *fields: tuple[str, str], address: str = "192.0.2.1", body: bytes = b""
    ) -> None:
        self.scope: Message = {
            "type": "http",
            "method": "POST",
            "raw_path": f"/.well-known/aiip/v1/{NAME}{path}".encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in self._fields(fields, body)],
            "client": (address, 40_000),
        }
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self.body_sent = asyncio.Event()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.receiving = 0
        self._asked = False
        self._body = body

    @staticmethod
    def _fields(fields: tuple[tuple[str, str], ...], body: bytes) -> list[tuple[str, str]]:
        more = [("content-type", "application/json"), ("content-length", str(len(body)))] if body else []
        return [("host", NAME), *fields, *more]

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        self.receiving += 1
        try:
            await self.left.wait()
        finally:
            self.receiving -= 1
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.flowing.wait()
        self.sent.append(message)
        if message.get("body"):
            self.body_sent.set()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)


class House:
    """An endpoint whose functions wait for `go`, and tell when they ended."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.go, self.began, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ran = 0
        self.app = Endpoint(NAME, keys=key_store(folder), store=folder / "k.sqlite", limits=Limits(**limits))
        self.app.resource("/stream")(self.stream)
        self.app.resource("/kept", effects="write")(self.stream)
        self.app.resource("/late", effects="write")(self.late)
        self.app.resource("/slow", effects="write")(self.slow)
        self.app.resource("/quick")(self.quick)

    async def stream(self) -> AsyncIterator[StreamEvent]:
        self.ran += 1
        try:
            yield StreamEvent(data="one")
            self.began.set()
            await self.go.wait()
            yield StreamEvent(data="two")
        finally:
            await asyncio.sleep(0)  # whoever cleans up may wait for that
            self.ended.set()

    async def late(self) -> AsyncIterator[StreamEvent]:
        """The first event takes its time."""
        self.ran += 1
        self.began.set()
        await self.go.wait()
        yield StreamEvent(data="one")
        self.ended.set()

    async def slow(self) -> int:
        self.ran += 1
        self.began.set()
        await self.go.wait()
        return 1

    async def quick(self) -> int:
        return 1

    @property
    def running(self) -> int:
        return len(self.app._exchanges._runner._limiter)

    @property
    def tasks(self) -> int:
        return len(self.app._exchanges._runner._tasks)

    def begin(self, wire: Wire) -> asyncio.Task[None]:
        return asyncio.create_task(self.app(wire.scope, wire.receive, wire.send))

    async def ask(self, path: str, *fields: tuple[str, str], **more: Any) -> Wire:
        wire = Wire(path, *fields, **more)
        await self.app(wire.scope, wire.receive, wire.send)
        return wire

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - what ends by itself tells nobody
                await asyncio.sleep(0)


def key(number: int) -> tuple[str, str]:
    return ("idempotency-key", f'"key-{number}"')


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario with a house of these limits."""

    def play(scenario: Callable[[House], Awaitable[None]], **limits: Any) -> None:
        async def main() -> None:
            house = House(tmp_path, **limits)
            try:
                async with asyncio.timeout(PATIENCE):
                    await scenario(house)
            finally:
                await house.app.aclose()

        asyncio.run(main())

    return play


def test_a_cancelled_request_ends_its_stream_before_it_ends_itself(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        wire = Wire("/stream")
        task = house.begin(wire)
        await house.began.wait()
        assert house.running == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert house.ended.is_set()
        assert (house.running, house.tasks, wire.receiving) == (0, 0, 0)

    played(scenario)


async def until_it_began(house: House, wire: Wire) -> None:
    """Ask, with a time that is over once the function has begun."""

    async def end(limit: asyncio.Timeout) -> None:
        await house.began.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
        group.create_task(end(limit))
        await house.app(wire.scope, wire.receive, wire.send)


def test_the_time_of_a_middleware_is_not_swallowed(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        for path, fields in (("/stream", ()), ("/kept", (key(1),))):
            house.began.clear()
            wire = Wire(path, *fields)
            with pytest.raises(TimeoutError):
                await until_it_began(house, wire)

    played(scenario)


def test_a_cancelled_request_leaves_a_keyed_stream_to_its_end_and_sends_no_more_of_it(
    played: Callable[..., None],
) -> None:
    async def scenario(house: House) -> None:
        wire = Wire("/kept", key(1))
        task = house.begin(wire)
        await house.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen = len(wire.sent)
        assert house.running == 1  # its place is taken for as long as it runs
        house.go.set()
        await house.until(lambda: house.running == 0)
        assert len(wire.sent) == seen
        again = await house.ask("/kept", key(1))
        assert b"data: one" in again.body
        assert b"data: two" in again.body
        assert b"event: receipt" in again.body
        assert house.ran == 1

    played(scenario)


def test_a_keyed_stream_that_is_cancelled_before_its_first_event_is_kept(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        task = house.begin(Wire("/late", key(1)))
        await house.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        house.go.set()
        await house.until(lambda: house.running == 0 and house.tasks == 0)
        assert house.ended.is_set()
        again = await house.ask("/late", key(1))
        assert b"data: one" in again.body
        assert house.ran == 1

    played(scenario)


def test_a_keyed_invocation_that_is_cancelled_is_kept_or_told_of(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        task = house.begin(Wire("/slow", key(1)))
        await house.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        house.go.set()
        await house.until(lambda: house.tasks == 0)
        assert (await house.ask("/slow", key(1))).body == b"1"
        # a refusal that nobody waits for is nobody's
        task = house.begin(Wire("/late", key(1)))
        await asyncio.sleep(0)
        house.app._exchanges.store.close()  # type: ignore[union-attr]
        await asyncio.wait({task})
        assert (house.running, house.ran) in {(0, 1), (0, 2)}

    played(scenario)


def test_a_keyed_stream_that_nobody_waits_for_and_that_is_too_large_is_interrupted(
    played: Callable[..., None],
) -> None:
    async def scenario(house: House) -> None:
        task = house.begin(Wire("/late", key(1)))
        await house.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        house.go.set()
        await house.until(lambda: house.running == 0 and house.tasks == 0)
        refused = await house.ask("/late", key(1))
        assert refused.status == 409
        assert b"interrupted" in refused.body

    played(scenario, stream_events=1, event_bytes=1)


@pytest.mark.parametrize("path", ["/slow", "/late", "/kept"])
def test_what_the_end_of_the_server_cuts_off_is_interrupted(played: Callable[..., None], path: str) -> None:
    async def scenario(house: House) -> None:
        task = house.begin(Wire(path, key(1)))
        await house.began.wait()
        for each in list(house.app._exchanges._runner._tasks):
            each.cancel()  # as a loop does that ends
        await asyncio.wait({task})
        await house.until(lambda: house.running == 0 and house.tasks == 0)
        refused = await house.ask(path, key(1))
        assert refused.status == 409
        assert b"interrupted" in refused.body
        assert house.ran == 1

    played(scenario)


def test_a_replayed_stream_that_nobody_waits_for_gives_its_place_back(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        house.go.set()
        await house.ask("/kept", key(1))
        for turns in range(12):  # wherever it is by then
            task = house.begin(Wire("/kept", key(1)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        await house.until(lambda: house.running == 0 and house.tasks == 0)

    played(scenario)


def test_who_goes_away_is_noticed_and_nobody_listens_on(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        wire = Wire("/stream")
        task = house.begin(wire)
        await house.began.wait()
        wire.left.set()
        await task
        assert house.ended.is_set()
        assert (house.running, wire.receiving) == (0, 0)
        wire = Wire("/stream")
        house.go.set()
        task = house.begin(wire)
        await task
        assert wire.receiving == 0
        assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    played(scenario)


def test_a_server_that_says_the_caller_has_gone_ends_what_no_key_binds(played: Callable[..., None]) -> None:
    class Broken(Wire):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if b"one" in message.get("body", b""):
                raise OSError("gone")

    async def scenario(house: House) -> None:
        house.go.set()
        wire = Broken("/kept", key(1))
        await house.app(wire.scope, wire.receive, wire.send)
        assert b"two" not in wire.body
        assert b"data: two" in (await house.ask("/kept", key(1))).body
        wire = Broken("/stream")
        await house.app(wire.scope, wire.receive, wire.send)
        assert b"event: receipt" not in wire.body
        assert house.running == 0

    played(scenario)


# shares ---------------------------------------------------------------------------------------------------


def test_slow_readers_of_one_address_leave_room_for_others(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        slow = [Wire("/stream") for _ in range(2)]
        for wire in slow:
            wire.flowing.clear()
        tasks = [house.begin(wire) for wire in slow]
        await house.until(lambda: house.running == 2)
        refused = await house.ask("/quick")
        assert refused.status == 429
        assert (b"retry-after", b"1") in refused.sent[0]["headers"]
        assert b'"code":"too-many-requests"' in refused.body
        assert any(name == b"aiip-receipt" for name, _ in refused.sent[0]["headers"])
        assert (await house.ask("/quick", address="192.0.2.2")).status == 200
        assert (await house.ask("/quick", address="2001:db8::1")).status == 200
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (await house.ask("/quick")).status == 200

    played(scenario, concurrent=4)


def test_a_stream_that_is_given_again_counts_until_it_has_been_read(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        house.go.set()
        await house.ask("/kept", key(1))
        slow = Wire("/kept", key(1))
        slow.flowing.clear()
        task = house.begin(slow)
        await house.until(lambda: house.running == 1)
        assert (await house.ask("/quick")).status == 429
        slow.flowing.set()
        await task
        assert (await house.ask("/quick")).status == 200

    played(scenario, share=1)


def test_who_is_refused_a_place_leaves_its_key_free(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        task = house.begin(Wire("/slow", key(1)))
        await house.began.wait()
        assert (await house.ask("/slow", key(2))).status == 429
        house.go.set()
        await task
        assert (await house.ask("/slow", key(2))).body == b"1"
        assert house.ran == 2

    played(scenario, share=1)


def test_slow_plain_functions_of_one_address_leave_threads_for_others(played: Callable[..., None]) -> None:
    async def scenario(house: House) -> None:
        held = threading.Event()

        def plain(wait: bool) -> int:
            return int(not wait or held.wait(PATIENCE))

        house.app.resource("/plain")(plain)
        slow = [house.begin(Wire("/plain", body=b'{"wait": true}')) for _ in range(4)]
        try:
            await house.until(lambda: sum(task.done() for task in slow) == 2)
            wire = Wire("/plain", body=b'{"wait": false}', address="192.0.2.2")
            await house.app(wire.scope, wire.receive, wire.send)
            assert wire.status == 200
        finally:
            held.set()
            await asyncio.wait(slow)

    played(scenario, threads=4)


def test_a_share_is_half_unless_it_is_said() -> None:
    assert Limits().of_one_caller == 64
    assert Limits(concurrent=1).of_one_caller == 1
    assert Limits(concurrent=6).of_one_caller == 3
    assert Limits(threads=6).of_one_caller == 3
    assert Limits(threads=1).of_one_caller == 1
    assert Limits(concurrent=5, share=5).of_one_caller == 5


def test_places_are_given_back_once() -> None:
    places = make_limiter(Limits(concurrent=2, share=1))
    give = places.acquire(caller="a")
    with pytest.raises(AIIPError) as caught:
        places.acquire(caller="a")
    assert (caught.value.code, caught.value.retryable) == ("aiip.too-many-requests", True)
    places.acquire(caller="b")
    with pytest.raises(AIIPError) as caught:
        places.acquire(caller="c")
    assert caught.value.code == "aiip.unavailable"
    give()
    give()
    assert len(places) == 1
    places.acquire(caller="a")


def test_a_share_is_of_the_client_that_a_token_names_or_of_a_network() -> None:
    known = Caller(audience="shop", client_id="shop")
    assert get_caller_key(known, ("192.0.2.1", 1)) == get_caller_key(known, None) == "client shop"
    one, two, other = (
        get_caller_key(ANONYMOUS, (text, 1)) for text in ("2001:db8::1", "2001:db8::2", "2001:db8:1::1")
    )
    assert one == two != other
    assert get_caller_key(ANONYMOUS, ("192.0.2.1", 1)) != get_caller_key(ANONYMOUS, ("192.0.2.2", 1))
    assert get_caller_key(ANONYMOUS, None) == get_caller_key(ANONYMOUS, ("", None)) == "address "
    # a dual-stack socket writes IPv4 addresses so
    assert get_caller_key(ANONYMOUS, ("::ffff:192.0.2.1", 1)) == get_caller_key(ANONYMOUS, ("192.0.2.1", 1))
    assert get_caller_key(ANONYMOUS, ("::ffff:192.0.2.1", 1)) != get_caller_key(
        ANONYMOUS, ("::ffff:192.0.2.2", 1)
    )
    # what a caller says of itself is no name
    assert get_caller_key(Caller(audience="https://a.example"), None) == get_caller_key(ANONYMOUS, None)


def test_an_outlet_that_is_closed_sends_nothing() -> None:
    async def scenario() -> None:
        await ResponseSender(None, lasting=True)({"type": "http.response.body"})

    asyncio.run(scenario())


@pytest.mark.parametrize(("path", "fields"), [("/stream", ()), ("/kept", (key(1),))])
def test_a_caller_that_takes_nothing_holds_its_place_for_a_time_and_not_for_ever(
    played: Callable[..., None], monkeypatch: pytest.MonkeyPatch, path: str, fields: tuple[Any, ...]
) -> None:
    monkeypatch.setattr("onym.ai.endpoint.responses._SEND_SECONDS", 0.01)

    async def scenario(house: House) -> None:
        wire = Wire(path, *fields)
        wire.flowing.clear()
        house.go.set()
        with suppress(TimeoutError):  # which a server takes for the end of the connection
            await house.app(wire.scope, wire.receive, wire.send)
        assert (house.running, house.tasks, wire.sent) == (0, 0, [])
        assert house.ended.is_set()
        if fields:  # what a key binds goes on, and is kept
            assert b"data: two" in (await house.ask(path, *fields)).body

    played(scenario)


def test_a_kept_answer_that_nobody_can_read_gives_its_place_back(
    played: Callable[..., None], tmp_path: Path
) -> None:
    async def scenario(house: House) -> None:
        house.go.set()
        await house.ask("/slow", key(1))
        with closing(sqlite3.connect(tmp_path / "k.sqlite")) as database, database:
            assert database.execute("UPDATE keys SET answer = x'c1'").rowcount == 1
        assert (await house.ask("/slow", key(1))).status == 500
        assert house.running == 0

    played(scenario)
