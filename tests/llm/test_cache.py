"""`cache=true` from outside: what is asked once, what is asked again, and what lies on the disk."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConfigError, MalformedResponseError, OnymWarning, ServerError
from onym.llm.cache import CacheSettings, ResponseCache, default_cache
from onym.llm.cache import _store as files
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.llm.config import Config
from onym.llm.types import Completion, Finish, ReasoningDelta, TextDelta, Tool, ToolCall
from onym.net.messages import Flow
from onym.net.policy import Policy
from onym.testing import FakeClock
from onym.testing.fake_provider import FakeProvider

KEY = "sk-test-key-0123456789"
DAY = 86_400.0


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock) -> Iterator[ResponseCache]:
    made = ResponseCache(CacheSettings(folder=tmp_path / "responses"), clock=clock.time)
    yield made
    made.close()


def open_client(fake: FakeProvider, query: str = "cache=true", **how: Any) -> Client:
    key = how.pop("key", KEY)
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return connect(fake.uri("m", query, key=key), **given)


def open_async(fake: FakeProvider, query: str = "cache=true", **how: Any) -> AsyncClient:
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return aconnect(fake.uri("m", query, key=KEY), **given)


@pytest.mark.requirement("onym-cache-a")
def test_an_answer_is_asked_for_once(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer("Paris.", reasoning="hm", usage={"prompt_tokens": 3, "completion_tokens": 1})
    with open_client(fake, cache=cache) as client:
        first = client.chat("Capital of France?")
        second = client.chat("Capital of France?")
    assert second == first
    assert second.raw == first.raw
    assert (second.text, second.usage.input_tokens, second.request_id) == ("Paris.", 3, "req-fake")
    assert len(fake.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_a_kept_answer_carries_its_reasoning_through_a_tool_loop(
    fake: FakeProvider, cache: ResponseCache, streamed: bool
) -> None:
    fake.answer("", reasoning="hm", tool_calls=[("c1", "f", "{}")]).answer("12 degrees.")
    question = {"role": "user", "content": "How warm is it?"}
    with open_client(fake, cache=cache) as client:
        for _ in range(2):
            if streamed:
                with client.stream([question]) as stream:
                    first = stream.completion()
            else:
                first = client.chat([question])
        client.chat([question, first, {"role": "tool", "tool_call_id": "c1", "content": "12"}])
    assert len(fake.requests) == 2
    assert fake.requests[1].json["messages"][1]["reasoning_content"] == "hm"


def test_without_the_wish_nothing_is_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    for query in ("", "cache=false"):
        with open_client(fake, query, cache=cache) as client:
            client.chat("Hi")
            client.chat("Hi")
    assert len(fake.requests) == 4
    assert not cache.settings.folder.exists()


def test_a_call_may_wish_for_it_or_not(fake: FakeProvider, cache: ResponseCache) -> None:
    with open_client(fake, "", cache=cache) as client:
        for _ in range(2):
            client.chat("Hi", cache=True)
    with open_client(fake, "cache=true", cache=cache) as client:
        client.chat("Hi", cache=False)
    assert len(fake.requests) == 2


def test_another_question_parameter_tool_or_key_is_asked_anew(
    fake: FakeProvider, cache: ResponseCache
) -> None:
    with open_client(fake, cache=cache) as client:
        for _ in range(2):
            client.chat("Hi")
            client.chat("Hi!")
            client.chat("Hi", temp=0.5)
            client.chat("Hi", tools=[Tool(name="f")])
    assert len(fake.requests) == 4
    with open_client(fake, cache=cache, key=f"{KEY}0") as client:
        client.chat("Hi")
    assert len(fake.requests) == 5


def test_vectors_are_kept_too(fake: FakeProvider, cache: ResponseCache) -> None:
    with open_client(fake, cache=cache) as client:
        first = client.embed(["one", "two"])
        second = client.embed(["one", "two"])
        client.embed("one")
    assert [list(vector) for vector in second.vectors] == [list(vector) for vector in first.vectors]
    assert (second.model, second.usage) == (first.model, first.usage)
    assert len(fake.requests) == 2


def test_a_list_of_models_is_always_asked_for(fake: FakeProvider, cache: ResponseCache) -> None:
    with open_client(fake, cache=cache) as client:
        client.models()
        client.models()
    assert len(fake.requests) == 2


def test_a_stream_is_replayed_as_events(fake: FakeProvider, cache: ResponseCache) -> None:
    call = ("call_1", "weather", '{"city":"Paris"}')
    fake.answer("It is sunny.", reasoning="hm", tool_calls=[call])
    with open_client(fake, cache=cache) as client:
        with client.stream("Hi") as stream:
            live = list(stream)
            first = stream.completion()
        with client.stream("Hi") as stream:
            replayed = list(stream)
            second = stream.completion()
        assert client.chat("Hi", stream=True) == first
    assert len(live) > len(replayed) == 4
    assert replayed[0] == ReasoningDelta("hm")
    assert replayed[1] == TextDelta("It is sunny.")
    assert replayed[-1] == live[-1]
    assert isinstance(replayed[-1], Finish)
    assert second == first
    assert first.tool_calls == (ToolCall(id=call[0], name=call[1], arguments=call[2]),)
    assert len(fake.requests) == 1


def test_a_stream_that_was_left_is_not_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer("one two three", gate=True)
    with open_client(fake, cache=cache) as client:
        with client.stream("Hi") as stream:
            next(stream)
        fake.release()
        assert client.stream("Hi").completion().text == "Hi"
    assert len(fake.requests) == 2


def test_a_stream_that_breaks_off_is_not_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    head = {"content-type": "text/event-stream"}
    fake.raw(b'data: {"choices":[{"delta":{"content":"on"}}]}\n\n', headers=head, chunked=True)
    with open_client(fake, "cache=true&retries=0", cache=cache) as client:
        with pytest.raises(MalformedResponseError) as caught:
            client.stream("Hi").completion()
        assert isinstance(caught.value.partial, Completion)
        assert caught.value.partial.text == "on"
        assert client.stream("Hi").completion().text == "Hi"
        assert client.stream("Hi").completion().text == "Hi"
    assert len(fake.requests) == 2


def test_a_failure_is_not_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.fail(500)
    with open_client(fake, "cache=true&retries=0", cache=cache) as client:
        with pytest.raises(ServerError):
            client.chat("Hi")
        assert client.chat("Hi").text == client.chat("Hi").text == "Hi"
    assert len(fake.requests) == 2


def test_an_answer_that_was_filtered_is_asked_for_again(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer("", finish="content_filter").answer("cut", finish="length")
    with open_client(fake, cache=cache) as client:
        assert client.chat("Hi").finish_reason == "content_filter"
        assert client.chat("Hi").text == client.chat("Hi").text == "cut"
    assert len(fake.requests) == 2


def test_an_answer_grows_old(fake: FakeProvider, cache: ResponseCache, clock: FakeClock) -> None:
    with open_client(fake, cache=cache) as client:
        client.chat("Hi")
        clock.advance(7 * DAY)
        client.chat("Hi")
        assert len(fake.requests) == 1
        clock.advance(1)
        client.chat("Hi")
    assert len(fake.requests) == 2


def test_coroutines_share_the_cache_and_one_call(fake: FakeProvider, cache: ResponseCache) -> None:
    async def main() -> list[Completion]:
        async with open_async(fake, cache=cache) as client:
            texts = await asyncio.gather(*(client.chat("Hi") for _ in range(20)))
            vectors = [await client.embed("one") for _ in range(2)]
            assert vectors[0].usage == vectors[1].usage
            for _ in range(2):
                async with client.stream("Hello") as stream:
                    assert "".join([text async for text in stream.text]) == "Hello"
            assert (await client.chat("Hello", stream=True)).text == "Hello"
        return texts

    texts = asyncio.run(main())
    assert {answer.text for answer in texts} == {"Hi"}
    assert len(fake.requests) == 3
    with open_client(fake, cache=cache) as client:
        client.chat("Hi")
    assert len(fake.requests) == 3


def test_a_coroutines_failure_is_raised_and_not_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.fail(500)

    async def main() -> str:
        async with open_async(fake, "cache=true&retries=0", cache=cache) as client:
            with pytest.raises(ServerError):
                await client.chat("Hi")
            return (await client.chat("Hi")).text

    assert asyncio.run(main()) == "Hi"


@pytest.mark.requirement("onym-cache-c")
def test_threads_that_ask_at_once_are_one_request(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer("slow", gate=True)
    answers: list[str] = []
    with open_client(fake, "cache=true&stream=true", cache=cache) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.chat("Hi").text)) for _ in range(6)]
        for thread in threads:
            thread.start()
        assert fake.arrived.wait(300)
        fake.release()
        for thread in threads:
            thread.join()
    assert answers == ["slow"] * 6
    assert len(fake.requests) == 1


PROCESS = """
import sys, onym
from onym.llm.cache import _store
_store._PATIENCE = 600.0  # a busy machine may stop a writer for longer than two seconds
with onym.connect(sys.argv[1], policy=onym.Policy.local(), config=onym.Config()) as client:
    print([client.chat(f"question {number}").text for number in range(8)])
"""


@pytest.mark.requirement("onym-cache-c")
def test_processes_that_ask_the_same_at_once_ask_once_each(fake: FakeProvider, tmp_path: Path) -> None:
    environ = {**os.environ, "ONYM_CACHE_DIR": str(tmp_path / "responses")}
    uri = fake.uri("m", "cache=true&timeout=1200000", key=KEY)
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROCESS, uri],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    said = {process.communicate(timeout=600)[0] for process in running}
    assert {process.returncode for process in running} == {0}
    assert said == {str([f"question {number}" for number in range(8)]) + "\n"}
    asked = [request.json["messages"][0]["content"] for request in fake.requests]
    assert sorted(asked) == [f"question {number}" for number in range(8)]


@pytest.mark.requirement("onym-cache-a")
def test_nothing_on_the_disk_holds_the_key_or_the_prompt(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer("an answer").answer("another")
    uri = "cache=true&x_api_key=sk-pass-through-0123"
    with open_client(fake, uri, cache=cache) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", OnymWarning)
        client.chat("a very private question")
        client.stream("a very private question").completion()
    cache.close()
    folder = cache.settings.folder
    assert {path.name for path in folder.iterdir()} <= {"key", "locks", "responses.1.sqlite3"}
    octets = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"an answer" in octets
    for secret in (KEY, "sk-pass-through", "private", "question"):
        assert secret.encode() not in octets


def test_an_answer_that_quotes_the_key_is_not_kept(fake: FakeProvider, cache: ResponseCache) -> None:
    fake.answer(f"your key is {KEY}")
    with open_client(fake, cache=cache) as client:
        client.chat("Hi")
        client.chat("Hi")
    assert len(fake.requests) == 2


def test_a_cache_that_cannot_be_written_warns_once_and_the_calls_go_on(
    fake: FakeProvider, tmp_path: Path
) -> None:
    place = tmp_path / "a file"
    place.touch()
    broken = ResponseCache(CacheSettings(folder=place))
    with open_client(fake, cache=broken) as client:
        with pytest.warns(OnymWarning, match=re.escape(str(place))) as caught:
            assert client.chat("Hi").text == "Hi"
        # said once: from here on a warning would be an error
        assert client.chat("Hi").text == "Hi"
        assert client.embed("Hi").vectors
        assert client.stream("Hi").completion().text == "Hi"
    assert len(caught) == 1
    assert KEY not in str(caught[0].message)

    async def main() -> str:
        async with open_async(fake, cache=broken) as client:
            await client.stream("Hi").completion()
            return (await client.chat("Hi")).text

    assert asyncio.run(main()) == "Hi"


def test_a_ruined_file_costs_the_answers_and_no_call(fake: FakeProvider, cache: ResponseCache) -> None:
    with open_client(fake, cache=cache) as client:
        client.chat("Hi")
        cache.close()
        files.list_data_files(cache.settings.folder)[1].write_bytes(b"ruined" * 1000)
        client.chat("Hi")
        client.chat("Hi")
    assert len(fake.requests) == 2


def test_waiting_for_another_counts_into_the_time_of_the_call(
    fake: FakeProvider, cache: ResponseCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_client(fake, "cache=true&timeout=10000", cache=cache) as client:
        plan = client.explain("Hi")
        times: list[float] = []
        real = Client._send_chat

        def spy(self: Client, plan: Any, observed: Any) -> Flow[Completion]:
            times.append(plan.timeout)
            return real(self, plan, observed)

        monkeypatch.setattr(Client, "_send_chat", spy)
        monkeypatch.setattr(cache, "lookup_flow", lambda plan, kind, call: call(4.0))
        client.chat("Hi")
    assert plan.timeout == 10.0
    assert times == [6.0]


def test_explain_says_that_the_cache_is_asked_first(fake: FakeProvider) -> None:
    with open_client(fake) as client:
        note = next(note for note in client.explain("Hi").notes if note.parameter == "cache")
    assert (note.action, note.reason) == ("client", "answered from the cache when it can")


def test_a_cache_can_be_looked_at_and_cleared(fake: FakeProvider, cache: ResponseCache) -> None:
    with open_client(fake, cache=cache) as client:
        client.chat("Hi")
        assert cache.contents().entries == 1
        assert cache.clear().entries == 1
        client.chat("Hi")
    assert len(fake.requests) == 2
    assert repr(cache) == f"ResponseCache('{cache.settings.folder}')"


AMOUNTS = [
    ("ONYM_CACHE_SIZE", "500000", "size", 500_000),
    ("ONYM_CACHE_SIZE", "1GB", "size", 10**9),
    ("ONYM_CACHE_SIZE", " 64 MiB ", "size", 64 * 2**20),
    ("ONYM_CACHE_SIZE", "0", "size", 0),
    ("ONYM_CACHE_AGE", "90", "age", 90),
    ("ONYM_CACHE_AGE", "12h", "age", 43_200),
    ("ONYM_CACHE_AGE", "2W", "age", 1_209_600),
]


@pytest.mark.parametrize(("name", "text", "field", "amount"), AMOUNTS)
def test_the_environment_sets_the_bounds(name: str, text: str, field: str, amount: int) -> None:
    assert getattr(CacheSettings.from_environment({"ONYM_CACHE_DIR": "/x", name: text}), field) == amount


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5GB", "1 day", "1e3", "٣", "1" * 16])
@pytest.mark.parametrize("name", ["ONYM_CACHE_SIZE", "ONYM_CACHE_AGE"])
def test_a_bound_that_is_no_amount_is_refused_by_name(name: str, text: str, fake: FakeProvider) -> None:
    with pytest.raises(ConfigError, match=name):
        CacheSettings.from_environment({name: text})
    with open_client(fake, environ={name: text}) as client, pytest.raises(ConfigError, match=name):
        client.chat("Hi")
    assert fake.requests == []


def test_the_cache_lies_in_the_users_cache_folder_or_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    default = CacheSettings.from_environment({})
    assert default.folder.parts[-2:] == ("onym", "responses")
    assert (default.size, default.age) == (256 * 2**20, 7 * DAY)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert CacheSettings.from_environment({"ONYM_CACHE_DIR": "~/answers"}).folder == Path(
        "/home/somebody/answers"
    )
    monkeypatch.setenv("ONYM_CACHE_DIR", "/elsewhere")
    assert CacheSettings.from_environment().folder == Path("/elsewhere")


def test_clients_of_one_environment_share_one_cache(fake: FakeProvider, tmp_path: Path) -> None:
    environ = {"ONYM_CACHE_DIR": str(tmp_path / "responses")}
    for _ in range(2):
        with open_client(fake, environ=environ) as client:
            client.chat("Hi")
    assert len(fake.requests) == 1
    assert default_cache(environ) is default_cache(dict(environ))
    default_cache(environ).close()
