"""A 400 that names a parameter, by its typed members alone, is remembered for the process, and shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from onym.errors import BadRequestError, OnymWarning, ProviderError, UnsupportedError
from onym.llm.client import Client, connect
from onym.llm.config import Config
from onym.llm.mapping import RejectedParameters
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.fixture(autouse=True)
def lessons() -> Iterator[None]:
    from onym.llm.mapping import REJECTED_PARAMETERS

    REJECTED_PARAMETERS.clear()
    yield
    REJECTED_PARAMETERS.clear()


def open_client(fake: FakeProvider, query: str, **how: Any) -> Client:
    return connect(fake.uri("m", query), policy=Policy.local(), config=Config.empty(), environ={}, **how)


def refuse(fake: FakeProvider, parameter: str, code: str = "unsupported_parameter") -> None:
    fake.fail(400, code=code, param=parameter)


@pytest.mark.requirement("onym-call-f")
def test_where_parameters_are_errors_the_next_call_is_refused_before_it_is_sent(fake: FakeProvider) -> None:
    refuse(fake, "temperature")
    with open_client(fake, "temp=0.5") as client:
        with pytest.raises(BadRequestError):
            client.chat("Hi")
        with pytest.raises(UnsupportedError, match="unsupported_parameter") as caught:
            client.chat("Hi")
        assert caught.value.parameter == "temp"
        assert caught.value.source not in {None, *(row.source for row in ProviderTable.builtin())}
    assert len(fake.requests) == 1
    with pytest.raises(UnsupportedError):
        open_client(fake, "temp=0.5")


def test_where_they_may_be_dropped_the_call_goes_on_without_it(fake: FakeProvider) -> None:
    refuse(fake, "temperature")
    with open_client(fake, "temp=0.5&seed=7", on_unsupported="drop") as client:
        with pytest.warns(OnymWarning, match=r"\btemp\b"):
            assert client.chat("Hi").text == "Hi"
        assert client.chat("Hi").text == "Hi"
        note = next(note for note in client.explain("Hi").notes if note.parameter == "temp")
        assert (note.action, note.wire_name) == ("dropped", None)
        assert "unsupported_parameter" in str(note.reason)
    sent = [request.json for request in fake.requests]
    assert ["temperature" in body for body in sent] == [True, False, False]
    assert all(body["seed"] == 7 for body in sent)


def test_a_warning_says_so_where_warnings_are_wanted(fake: FakeProvider) -> None:
    refuse(fake, "temperature", "unsupported_value")
    with open_client(fake, "temp=0.5", on_unsupported="warn") as client:
        for sent in (2, 3):
            with pytest.warns(OnymWarning, match=r"\btemp\b"):
                client.chat("Hi")
            assert len(fake.requests) == sent


def test_nested_and_passed_through_parameters_are_learned_too(fake: FakeProvider) -> None:
    refuse(fake, "logprobs")
    with open_client(fake, "logprobs=true", on_unsupported="drop") as client, pytest.warns(OnymWarning):
        client.chat("Hi")
    assert "logprobs" not in fake.requests[-1].json
    with pytest.raises(UnsupportedError) as caught:
        open_client(fake, "logprobs=true")
    assert caught.value.parameter == "logprobs"


@pytest.mark.parametrize(
    ("parameter", "code", "status"),
    [
        ("temperature", "invalid_value", 400),
        ("messages", "unsupported_parameter", 400),
        ("model", "unsupported_parameter", 400),
        ("seed", "unsupported_parameter", 400),
        ("temperature", "unsupported_parameter", 500),
    ],
    ids=["another code", "not a parameter", "the model", "one that was not sent", "no refusal"],
)
def test_nothing_else_teaches_anything(fake: FakeProvider, parameter: str, code: str, status: int) -> None:
    fake.fail(status, "temperature is unsupported", code=code, param=parameter)
    with open_client(fake, "temp=0.5&retries=0", on_unsupported="drop") as client:
        with pytest.raises(ProviderError) as caught:
            client.chat("Hi")
        assert (caught.value.status, caught.value.provider_code) == (status, code)
        assert client.chat("Hi").text == "Hi"
    assert all("temperature" in request.json for request in fake.requests)


@pytest.mark.requirement("onym-call-f")
def test_prose_alone_teaches_nothing_even_where_dropping_is_allowed(fake: FakeProvider) -> None:
    fake.fail(400, "Unsupported parameter: 'temperature'")
    with open_client(fake, "temp=0.5", on_unsupported="drop") as client, pytest.raises(BadRequestError):
        client.chat("Hi")


def test_another_model_of_the_same_server_is_not_judged_by_it(fake: FakeProvider) -> None:
    refuse(fake, "temperature")
    with open_client(fake, "temp=0.5", on_unsupported="drop") as client, pytest.warns(OnymWarning):
        client.chat("Hi")
    with connect(
        fake.uri("other", "temp=0.5"), policy=Policy.local(), config=Config.empty(), environ={}
    ) as client:
        client.chat("Hi")
    assert "temperature" in fake.requests[-1].json


def test_a_switch_of_the_providers_cache_that_was_refused_is_not_sent_again(fake: FakeProvider) -> None:
    usual = ProviderTable.builtin()
    row = replace(usual.get("openai-compatible"), name="capture", hosts=("127.0.0.1",), aliases=(),
                  default_port=fake.port, params={"cache": "cache_control"})  # fmt: skip
    providers = usual.register(row)
    refuse(fake, "cache_control")
    with open_client(fake, "cache=true", on_unsupported="drop", providers=providers, cache=None) as client:
        with pytest.warns(OnymWarning, match=r"\bcache\b"):
            client.chat("Hi")
        client.chat("Ho")
        actions = {note.action for note in client.explain("Hi").notes if note.parameter == "cache"}
    assert actions == {"dropped", "client"}
    assert ["cache_control" in request.json for request in fake.requests] == [True, False, False]
    with pytest.raises(UnsupportedError, match="unsupported_parameter") as caught:
        open_client(fake, "cache=true", providers=providers)
    assert caught.value.parameter == "cache"


def test_a_value_that_was_refused_says_nothing_of_other_values(fake: FakeProvider) -> None:
    refuse(fake, "reasoning_effort", "unsupported_value")
    with open_client(fake, "reasoning_effort=minimal") as client, pytest.raises(BadRequestError):
        client.chat("Hi")
    # somebody else of this process, with a value that the server takes
    with open_client(fake, "reasoning_effort=low") as client:
        assert client.chat("Hi").text == "Hi"
    with pytest.raises(UnsupportedError, match="unsupported_value") as caught:
        open_client(fake, "reasoning_effort=minimal")
    assert caught.value.parameter == "reasoning_effort"


@pytest.mark.parametrize("code", ["unsupported_parameter", "unsupported_value"])
@pytest.mark.parametrize("parameter", ["messages[0]", "messages", "stream", "system"])
@pytest.mark.parametrize("how", ["drop", "warn", "error"])
def test_no_server_talks_the_system_prompt_away(
    fake: FakeProvider, parameter: str, code: str, how: Any
) -> None:
    refuse(fake, parameter, code)
    with open_client(fake, "system=Be%20safe", on_unsupported=how) as client:
        with pytest.raises(BadRequestError):
            client.chat("Hi", stream=False)
        client.chat("Hi")
    said = [[message["role"] for message in request.json["messages"]] for request in fake.requests]
    assert said == [["system", "user"]] * 2


def test_what_a_server_says_of_ever_more_values_is_forgotten() -> None:
    lessons = RejectedParameters()
    for number in range(1000):
        lessons.add_rejection("a", f"p {number}", "r")
    assert list(lessons.get_rejections("a")) == [f"p {number}" for number in range(936, 1000)]


def test_another_wire_format_of_the_same_model_is_not_judged_by_it(fake: FakeProvider) -> None:
    refuse(fake, "temperature")
    with open_client(fake, "temp=0.5", on_unsupported="drop") as client, pytest.warns(OnymWarning):
        client.chat("Hi")
    plan = open_client(fake, "temp=0.5&api=responses").explain("Hi")
    assert plan.body is not None
    assert plan.body["temperature"] == 0.5


def test_no_more_than_so_many_endpoints_are_remembered() -> None:
    lessons = RejectedParameters(size=2)
    for name in "abc":
        lessons.add_rejection(name, "p", "r")
    assert [dict(lessons.get_rejections(name)) for name in "abc"] == [{}, {"p": "r"}, {"p": "r"}]
    lessons.clear()
    assert not lessons.get_rejections("c")
    assert lessons.version == 4
