"""The client for coroutines against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    MalformedResponseError,
    NetError,
    OnymWarning,
    PolicyError,
    RateLimitError,
    UsageError,
)
from onym.llm import embedded
from onym.llm.client import AsyncClient, aconnect
from onym.llm.config import Config
from onym.llm.types import Completion, Finish, TextDelta, Usage
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.testing.fake_provider import FakeProvider
from onym.uri.secret import Secret

KEY = "sk-test-key-0123456789"
USAGE = Usage(input_tokens=5, output_tokens=7)
T = TypeVar("T")


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key=KEY) as server:
        yield server


def open_client(fake: FakeProvider, query: str = "retries=0", **how: Any) -> AsyncClient:
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return aconnect(fake.uri("m", query), **given)


def run(
    fake: FakeProvider, steps: Callable[[AsyncClient], Coroutine[Any, Any, T]], query: str = "retries=0"
) -> T:
    async def main() -> T:
        async with open_client(fake, query) as client:
            return await steps(client)

    return asyncio.run(main())


def test_a_text_goes_out_and_an_answer_comes_back(fake: FakeProvider) -> None:
    fake.answer("Paris.")
    answer = run(fake, lambda client: client.chat("Capital of France?", temp=0.5))
    assert (answer.text, answer.usage, answer.request_id) == ("Paris.", USAGE, "req-fake")
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert fake.requests[0].json["temperature"] == 0.5


def test_many_calls_at_once_each_get_their_own_answer(fake: FakeProvider) -> None:
    texts = [f"number {index}" for index in range(64)]

    async def steps(client: AsyncClient) -> list[Completion]:
        return await asyncio.gather(*(client.chat(text) for text in texts))

    assert [answer.text for answer in run(fake, steps)] == texts


async def begin_with(client: AsyncClient, how: str) -> list[Any]:
    stream = client.stream("one two")
    if how.startswith("await"):
        stream = await stream
    if how.endswith("with"):
        async with stream:
            return [event async for event in stream]
    return [event async for event in stream]


@pytest.mark.parametrize("how", ["with", "await", "iterate", "await and with"])
def test_a_stream_may_begin_in_each_way(fake: FakeProvider, how: str) -> None:
    events = run(fake, lambda client: begin_with(client, how))
    assert events == [
        TextDelta("one "),
        TextDelta("two"),
        Finish(reason="stop", usage=USAGE, model="m", request_id="req-fake"),
    ]
    assert len(fake.requests) == 1


def test_a_stream_that_was_read_to_its_end_leaves_its_connection_to_the_next(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the end of the body may be late on a busy machine
    monkeypatch.setattr("onym.llm.flow._PATIENCE", 60)

    async def steps(client: AsyncClient) -> None:
        for _ in range(3):
            assert (await client.stream("one two").completion()).text == "one two"

    run(fake, steps)
    assert {request.connection for request in fake.requests} == {1}


def test_a_body_that_does_not_end_after_its_last_event_is_not_waited_for(fake: FakeProvider) -> None:
    fake.answer("Hi", linger=True)
    assert run(fake, lambda client: client.stream("Hi").completion()).text == "Hi"
    fake.release()


def test_a_stream_that_is_never_begun_sends_nothing(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> list[Any]:
        stream = client.stream("Hi")
        await stream.close()
        with pytest.raises(UsageError):
            await stream.completion()
        return [event async for event in stream]

    assert run(fake, steps) == []
    assert fake.requests == []


def test_a_stream_whose_opening_failed_is_over(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> list[Any]:
        stream = client.stream("Hi")
        fake.fail(400)
        with pytest.raises(BadRequestError):
            await stream
        with pytest.raises(UsageError) as caught:
            await stream.completion()
        assert caught.value.code == "usage.closed-stream"
        return [event async for event in stream]

    assert run(fake, steps) == []
    assert len(fake.requests) == 1


def test_a_stream_whose_opening_was_cancelled_is_over(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> list[Any]:
        stream = client.stream("Hi")
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [event async for event in stream]

    assert run(fake, steps) == []


def test_the_text_and_the_whole_of_a_stream(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> tuple[list[str], Completion, Completion]:
        async with client.stream("one two") as stream:
            texts = [text async for text in stream.text]
            return texts, await stream.completion(), stream.partial()

    texts, whole, partial = run(fake, steps)
    assert texts == ["one ", "two"]
    assert whole == partial
    assert (whole.text, whole.finish_reason) == ("one two", "stop")


def test_leaving_a_stream_early_closes_the_connection(fake: FakeProvider) -> None:
    fake.answer(pieces=["more "], endless=True)

    async def steps(client: AsyncClient) -> str:
        async with client.stream("Hi") as stream:
            async for text in stream.text:
                return text
        return ""

    assert run(fake, steps) == "more "
    assert fake.gone.wait(300)


@pytest.mark.parametrize("streaming", [True, False])
def test_cancelling_a_call_closes_the_connection(fake: FakeProvider, streaming: bool) -> None:
    fake.answer(pieces=["more "], endless=True)

    async def steps(client: AsyncClient) -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async with client.stream("Hi") as stream:
                async for _ in stream:
                    begun.set()

        async def chat() -> None:
            begun.set()
            await client.chat("Hi", stream=True)

        task = asyncio.create_task(read() if streaming else chat())
        await begun.wait()
        assert await asyncio.to_thread(fake.arrived.wait, 300)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(fake, steps)
    assert fake.gone.wait(300)


def test_failures_are_typed_and_say_where(fake: FakeProvider) -> None:
    for call in (
        lambda client: client.chat("Hi"),
        lambda client: client.models(),
        lambda client: client.embed("Hi"),
        lambda client: client.stream("Hi").completion(),
    ):
        fake.fail(401, "said", code="invalid_api_key")
        with pytest.raises(AuthenticationError) as caught:
            run(fake, call)
        assert caught.value.endpoint == f"llm://127.0.0.1:{fake.port}/m"


@pytest.mark.parametrize("whole", [True, False], ids=["ended", "broken off"])
def test_a_stream_that_stops_short_loses_nothing(fake: FakeProvider, whole: bool) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    fake.raw(chunk, headers={"content-type": "text/event-stream"}, chunked=True, whole=whole)
    kind: type[NetError] | type[MalformedResponseError] = (
        MalformedResponseError if whole else ConnectionFailed
    )
    with pytest.raises(kind) as caught:
        run(fake, lambda client: client.chat("Hi", stream=True))
    assert isinstance(caught.value.partial, Completion)
    assert caught.value.partial.text == "Hel"


def test_an_error_in_the_middle_keeps_the_usage(fake: FakeProvider) -> None:
    chunk = b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n'
    failure = b'data: {"error":{"message":"m","code":429}}\n\n'
    fake.raw(chunk, failure, headers={"content-type": "text/event-stream"}, chunked=True)
    with pytest.raises(RateLimitError) as caught:
        run(fake, lambda client: client.chat("Hi"), "stream=true")
    assert caught.value.usage == Usage(input_tokens=3)


def test_vectors_and_models(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> tuple[Any, Any]:
        return await client.embed(["a", "bb"], dimensions=3), await client.models()

    vectors, models = run(fake, steps)
    assert len(vectors.vectors) == 2
    assert [model.id for model in models] == ["fake-model"]
    assert fake.requests[0].json["dimensions"] == 3


def test_this_machine_is_refused_unless_it_was_allowed(fake: FakeProvider) -> None:
    async def main() -> None:
        async with open_client(fake, policy=None) as client:
            await client.chat("Hi")

    with pytest.raises(PolicyError):
        asyncio.run(main())
    assert fake.requests == []


def test_a_transport_of_the_programs_own_stays_open(fake: FakeProvider) -> None:
    async def main() -> None:
        async with AsyncTransport(Policy.local()) as transport:
            for _ in range(2):
                async with open_client(fake, transport=transport) as client:
                    await client.chat("Hi")

    asyncio.run(main())
    assert {request.connection for request in fake.requests} == {1}


def test_what_was_asked_for_and_will_not_happen_is_said_at_the_call(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> None:
        calls: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: client.chat("Hi"),
            lambda: client.stream("Hi").completion(),
            lambda: client.embed("Hi"),
        )
        for call in calls:
            with pytest.warns(OnymWarning, match="base_url"):
                await call()

    run(fake, steps, "base_url=x")


@pytest.mark.requirement("onym-secret-a")
def test_a_client_shows_no_key(fake: FakeProvider) -> None:
    async def steps(client: AsyncClient) -> str:
        return repr(client) + repr(client.explain("Hi")) + str(client.explain("Hi").as_dict())

    shown = run(fake, steps)
    assert f"AsyncClient('llm://127.0.0.1:{fake.port}/m')" in shown
    assert KEY not in shown


def test_the_embedded_model_is_started_by_the_first_call(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(model: str) -> embedded.EmbeddedEndpoint:
        return embedded.EmbeddedEndpoint(
            origin=Origin("http", "127.0.0.1", fake.port), key=Secret(KEY), model=model
        )

    monkeypatch.setattr(embedded, "ensure_server", ensure)

    async def main() -> list[str]:
        async with aconnect("llm://embedded/m", config=Config.empty(), environ={}) as client:
            whole = await client.chat("Hi")
            async with client.stream("Ho") as stream:
                return [whole.text, (await stream.completion()).text]

    assert asyncio.run(main()) == ["Hi", "Ho"]
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
