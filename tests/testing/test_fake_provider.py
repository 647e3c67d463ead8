"""The fake provider and the fake clock, as other people's tests use them."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from onym.testing import FakeClock
from onym.testing.fake_provider import FakeProvider
from onym.uri.llm import LLMURI

BODY = {"model": "m", "messages": [{"role": "user", "content": "say it back"}]}


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(models=("a", "b")) as server:
        yield server


def ask(
    fake: FakeProvider,
    body: Any = BODY,
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=300)
    try:
        if body is None:
            connection.request("GET", path, headers=headers or {})
        else:
            connection.request("POST", path, json.dumps(body), headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers.get_content_type(), reply.read()
    finally:
        connection.close()


def test_unscripted_it_says_the_last_message_back(fake: FakeProvider) -> None:
    status, media, data = ask(fake)
    assert (status, media) == (200, "application/json")
    assert json.loads(data)["choices"][0]["message"]["content"] == "say it back"
    (request,) = fake.requests
    assert (request.method, request.path, request.json) == ("POST", "/v1/chat/completions", BODY)


def test_asked_for_a_stream_it_streams_word_by_word(fake: FakeProvider) -> None:
    status, media, data = ask(fake, {**BODY, "stream": True, "stream_options": {"include_usage": True}})
    assert (status, media) == (200, "text/event-stream")
    assert data.endswith(b"data: [DONE]\n\n")
    chunks = [json.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")]
    pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
    assert pieces == [None, "say ", "it ", "back", None]
    assert chunks[-1]["usage"]["total_tokens"] == 12
    assert b"usage" not in ask(fake, {**BODY, "stream": True})[2]


def test_content_of_parts_is_said_back_as_json(fake: FakeProvider) -> None:
    parts = [{"type": "text", "text": "x"}]
    _, _, data = ask(fake, {**BODY, "messages": [{"role": "user", "content": parts}]})
    assert json.loads(json.loads(data)["choices"][0]["message"]["content"]) == parts


def test_scripted_answers_come_first_in_first_out(fake: FakeProvider) -> None:
    fake.answer("one").fail(
        429, "slow down", code="rate_limit_exceeded", headers={"retry-after": "1"}
    ).answer("two")
    assert b"one" in ask(fake)[2]
    status, _, data = ask(fake)
    assert (status, json.loads(data)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert b"two" in ask(fake)[2]


def test_a_whole_answer_may_wait_at_the_gate(fake: FakeProvider) -> None:
    fake.answer("late", gate=True).release()
    assert b"late" in ask(fake)[2]


def test_a_key_is_asked_for_where_one_was_set() -> None:
    with FakeProvider(key="k-1") as fake:
        assert ask(fake)[0] == 401
        assert ask(fake, headers={"Authorization": "Bearer k-1"})[0] == 200
        assert "k-1" not in repr(fake.requests)
        assert LLMURI.parse(fake.uri("m", "temp=0.5")).temp == 0.5


def test_models_and_vectors_are_made_up_and_can_be_scripted(fake: FakeProvider) -> None:
    _, _, data = ask(fake, None, "/v1/models")
    assert [load["id"] for load in json.loads(data)["data"]] == ["a", "b"]
    for texts in ("x", ["x", "y", ""]):
        _, _, data = ask(fake, {"model": "m", "input": texts}, "/v1/embeddings")
        assert len(json.loads(data)["data"]) == len(texts)
    fake.raw(b"[]")
    assert ask(fake, None, "/v1/models")[2] == b"[]"


def test_raw_octets_may_be_sent_whole_chunked_or_broken_off(fake: FakeProvider) -> None:
    fake.raw(b"a", b"", b"b").raw(b"a", b"b", chunked=True)
    assert [ask(fake)[2] for _ in range(2)] == [b"ab", b"ab"]
    for chunked in (True, False):
        fake.raw(b"a", chunked=chunked, whole=False)
        with pytest.raises(http.client.IncompleteRead):
            ask(fake)
    fake.raw(status=204)
    assert ask(fake)[0] == 204


def test_it_may_hang_up_without_a_word(fake: FakeProvider) -> None:
    fake.drop()
    with pytest.raises(http.client.RemoteDisconnected):
        ask(fake)


def test_closing_it_ends_connections_that_are_still_open() -> None:
    with FakeProvider() as fake:
        fake.answer(pieces=["more"], endless=True)
        connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=300)
        connection.request("POST", "/v1/chat/completions", json.dumps({**BODY, "stream": True}))
        reply = connection.getresponse()
        reply.read(10)
        idle = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=300)
        idle.request("GET", "/v1/models")
        idle.getresponse().read()
    assert fake.gone.wait(300)
    connection.close()
    with pytest.raises((OSError, http.client.HTTPException)):
        again(idle)
    idle.close()


def again(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/v1/models")
    connection.getresponse()


def test_a_fake_clock_moves_when_it_is_told_to() -> None:
    clock = FakeClock(now=100.0, chance=0.5)
    start = clock.monotonic()
    clock.sleep(2.0)
    asyncio.run(clock.asleep(1.0))
    clock.advance(4.0)
    assert clock.monotonic() - start == 7.0
    assert clock.time() == 107.0
    assert clock.slept == [2.0, 1.0]
    assert clock.random() == 0.5
