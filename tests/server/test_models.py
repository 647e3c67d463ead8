"""A model of an `llm://` URI behind an `ai://` resource: what it says, and what nobody is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kinds_support import call, collected, run
from onym import errors
from onym.ai.endpoint.context import Answer
from onym.ai.endpoint.kinds import model
from onym.errors import AIIPError
from onym.net.policy import Policy
from onym.server.models import _hide_provider_errors, served_by
from onym.testing.fake_provider import FakeProvider

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key=KEY) as provider:
        yield provider


def ask(fake: FakeProvider, body: Any, query: str = "") -> Any:
    """The JSON of an answer, or the events of a stream."""

    async def work() -> Any:
        served = served_by(fake.uri("m", query), policy=Policy.local())
        try:
            found = await model(served).invoke(call(body))
            return json.loads(found.body) if isinstance(found, Answer) else await collected(found)
        finally:
            await served.close()

    return run(work())


def test_a_completion_comes_from_the_model_of_the_uri(fake: FakeProvider) -> None:
    fake.answer("Hello")
    said = ask(fake, {"prompt": "Hi", "max_tokens": 9, "temperature": 0.5})
    assert (said["text"], said["finish"]) == ("Hello", "stop")
    assert said["usage"]["output_tokens"] is not None
    asked = fake.requests[0].json
    assert (asked["temperature"], asked["messages"]) == (0.5, [{"role": "user", "content": "Hi"}])
    assert 9 in asked.values()


def test_a_stream_has_the_same_text_in_pieces(fake: FakeProvider) -> None:
    fake.answer("Hello you there")
    found = ask(fake, {"prompt": "Hi", "stream": True})
    assert "".join(data["text"] for name, data in found if name == "message") == "Hello you there"
    assert found[-1][0] == "result"
    assert found[-1][1]["text"] == "Hello you there"


def test_what_is_no_text_is_left_out_of_a_stream(fake: FakeProvider) -> None:
    fake.answer("Hello", reasoning="hmm")
    found = ask(fake, {"prompt": "Hi", "stream": True})
    assert found[0] == ("message", {"text": "Hello"})


def test_who_leaves_a_stream_ends_the_call_at_the_provider(fake: FakeProvider) -> None:
    fake.answer("a b", endless=True)

    async def work() -> None:
        served = served_by(fake.uri("m"), policy=Policy.local())
        stream: Any = await model(served).invoke(call({"prompt": "Hi", "stream": True}))
        await anext(stream)
        await stream.aclose()
        await served.close()

    run(work())


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (400, None, "aiip.invalid-input"),
        (401, None, "aiip.internal"),
        (403, None, "aiip.internal"),
        (404, None, "aiip.internal"),
        (400, "context_length_exceeded", "aiip.invalid-input"),
        (500, None, "aiip.unavailable"),
        (503, None, "aiip.unavailable"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_told_by_its_code_and_never_in_the_providers_words(
    fake: FakeProvider, status: int, code: str | None, told: str, stream: bool
) -> None:
    for _ in range(8):
        fake.fail(status, f"key {KEY} of project 7", code=code, headers={"retry-after": "0"})
    with pytest.raises(AIIPError) as found:
        ask(fake, {"prompt": "Hi", "stream": stream}, "retry=0")
    assert found.value.code == told
    for text in (str(found.value), repr(found.value), json.dumps(found.value.as_dict())):
        assert KEY not in text
        assert "project" not in text
        assert str(fake.port) not in text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ContentFilterError, "aiip.policy-denied"),
        (errors.RateLimitError, "aiip.too-many-requests"),
        (errors.OverloadedError, "aiip.unavailable"),
        (errors.DeadlineExceeded, "aiip.upstream-timeout"),
        (errors.ConnectionFailed, "aiip.upstream-unreachable"),
        (errors.MalformedResponseError, "aiip.upstream-unreachable"),
        (errors.ParameterError, "aiip.invalid-input"),
        (errors.QuotaError, "aiip.internal"),
        (errors.CredentialError, "aiip.internal"),
    ],
)
def test_every_error_of_a_model_has_a_code_of_aiip(error: Any, code: str) -> None:
    with pytest.raises(AIIPError) as found, _hide_provider_errors():
        raise error("the words of a provider")
    assert found.value.code == code
    assert "words" not in str(found.value)


def test_the_key_is_in_no_text_of_it(fake: FakeProvider) -> None:
    served = served_by(fake.uri("m"), policy=Policy.local())
    shown = f"{served!r} {model(served).describe()} {vars(served)}"
    assert KEY not in shown
    assert str(fake.port) not in repr(served)
    run(served.close())
