"""The synchronous client against a real HTTP server on loopback."""

from __future__ import annotations

import json
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onym.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailed,
    DeadlineExceeded,
    MalformedResponseError,
    NetError,
    OnymError,
    OnymWarning,
    PolicyError,
    ProviderError,
    RateLimitError,
    ResponseTooLarge,
    ServerError,
    UnsupportedError,
    URIError,
    UsageError,
)
from onym.llm import embedded, flow
from onym.llm.client import Client, connect
from onym.llm.config import Config
from onym.llm.types import (
    Carried,
    Completion,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.messages import Origin
from onym.net.policy import Policy
from onym.net.transport import Transport
from onym.testing.fake_provider import FakeProvider
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

KEY = "sk-test-key-0123456789"
USAGE = Usage(input_tokens=5, output_tokens=7)


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key=KEY) as server:
        yield server


def open_client(fake: FakeProvider, query: str = "", **how: Any) -> Client:
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return connect(fake.uri("m", query), **given)


@pytest.fixture
def client(fake: FakeProvider) -> Iterator[Client]:
    with open_client(fake, "temp=0.5&retries=0") as made:
        yield made


def test_a_text_goes_out_and_an_answer_comes_back(fake: FakeProvider, client: Client) -> None:
    fake.answer("Paris.", reasoning="hm")
    answer = client.chat("Capital of France?")
    assert (answer.text, answer.reasoning, answer.model, answer.finish_reason) == (
        "Paris.",
        "hm",
        "m",
        "stop",
    )
    assert (answer.usage, answer.request_id) == (USAGE, "req-fake")
    assert answer.raw["id"] == "chatcmpl-1"
    (request,) = fake.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "Capital of France?"}],
        "temperature": 0.5,
    }


@pytest.mark.requirement("onym-call-d")
def test_what_explain_shows_is_what_arrives_and_explain_sends_nothing(
    fake: FakeProvider, client: Client
) -> None:
    tools = [{"name": "a", "parameters": {"type": "object"}}]
    shown = client.explain("Hi", max_tokens=5, tools=tools, streaming=True).as_dict()
    assert fake.requests == []
    with client.stream("Hi", max_tokens=5, tools=tools) as stream:
        stream.completion()
    (request,) = fake.requests
    assert shown["body"] == request.json
    assert shown["url"] == f"http://127.0.0.1:{fake.port}{request.path}"
    for name, value in shown["headers"].items():
        assert request.headers[name.lower()] == (f"Bearer {KEY}" if value == "***" else value)
    assert set(request.headers) - {name.lower() for name in shown["headers"]} <= {
        "host",
        "content-length",
        "accept-encoding",
        "connection",
    }


def test_tool_calls_come_back_and_their_answers_go_out(fake: FakeProvider, client: Client) -> None:
    fake.answer(None, tool_calls=[("c1", "weather", '{"city":"Oslo"}')]).answer("Rain.")
    tools = [{"name": "weather"}]
    asked = client.chat("Weather?", tools=tools)
    assert asked.tool_calls == (ToolCall(id="c1", name="weather", arguments='{"city":"Oslo"}'),)
    assert asked.finish_reason == "tool_calls"
    answer = client.chat(
        ["Weather?", asked, {"role": "tool", "content": "rain", "tool_call_id": "c1"}], tools=tools
    )
    assert answer.text == "Rain."
    assert [message["role"] for message in fake.requests[1].json["messages"]] == ["user", "assistant", "tool"]


def test_a_stream_brings_events_as_they_come(fake: FakeProvider, client: Client) -> None:
    fake.answer("Hello there", reasoning="hm", tool_calls=[("c1", "a", "{}")], pieces=["Hello", " there"])
    with client.stream("Hi") as stream:
        events = list(stream)
        answer = stream.completion()
    assert events == [
        ReasoningDelta("hm"),
        TextDelta("Hello"),
        TextDelta(" there"),
        ToolCallDelta(index=0, id="c1", name="a", arguments="{"),
        ToolCallDelta(index=0, arguments="}"),
        Finish(reason="tool_calls", usage=USAGE, model="m", request_id="req-fake", carried=answer.carried),
    ]
    assert answer == Completion(
        text="Hello there",
        model="m",
        finish_reason="tool_calls",
        reasoning="hm",
        tool_calls=(ToolCall(id="c1", name="a", arguments="{}"),),
        usage=USAGE,
        request_id="req-fake",
        carried=Carried(
            dialect="openai_chat", parts=({"reasoning_content": "hm"},), provider=answer.carried.provider
        ),
    )
    assert fake.requests[0].json["stream_options"] == {"include_usage": True}


def test_the_first_event_is_there_before_the_last_is_written(fake: FakeProvider, client: Client) -> None:
    fake.answer(pieces=["one ", "two"], gate=True)
    with client.stream("Hi") as stream:
        text = stream.text
        assert next(text) == "one "
        assert stream.partial().text == "one "
        assert stream.partial().finish_reason == "other"
        fake.release()
        assert list(text) == ["two"]


def test_leaving_a_stream_early_closes_the_connection(fake: FakeProvider, client: Client) -> None:
    fake.answer(pieces=["more "], endless=True)
    with client.stream("Hi") as stream:
        assert next(stream.text) == "more "
    assert fake.gone.wait(300)
    with pytest.raises(UsageError) as caught:
        stream.completion()
    assert caught.value.code == "usage.closed-stream"
    assert stream.partial().text == "more "
    assert list(stream) == []
    assert client.chat("again").text == "again"


def test_a_uri_that_streams_is_streamed_on_the_wire_and_put_together(fake: FakeProvider) -> None:
    fake.answer("Hello there").answer("Hello there")
    with open_client(fake, "stream=true") as client:
        streamed, whole = client.chat("Hi"), client.chat("Hi", stream=False)
    assert [request.json.get("stream", False) for request in fake.requests] == [True, False]
    assert (streamed.text, streamed.usage, streamed.model) == (whole.text, whole.usage, whole.model)
    assert (streamed.finish_reason, streamed.request_id) == (whole.finish_reason, whole.request_id)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, "invalid_api_key", AuthenticationError), (429, None, RateLimitError), (500, None, ServerError)],
)
@pytest.mark.parametrize("how", ["chat", "stream", "models", "embed"])
def test_failures_are_typed_and_say_where(
    fake: FakeProvider, client: Client, how: str, status: int, code: str | None, kind: type[ProviderError]
) -> None:
    fake.fail(status, "said", code=code, headers={"x-request-id": "r-1", "retry-after": "3"})
    with pytest.raises(ProviderError) as caught:
        getattr(client, how)(*([] if how == "models" else ["Hi"]))
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.request_id, error.retry_after) == (status, "r-1", 3.0)
    assert error.endpoint == f"llm://127.0.0.1:{fake.port}/m"


def test_an_error_in_the_middle_of_a_stream_comes_after_what_came(fake: FakeProvider, client: Client) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"Hel"}}],"usage":{"prompt_tokens":3}}\n\n'
    failure = b'data: {"error":{"message":"m","code":429}}\n\n'
    for _ in range(2):
        fake.raw(chunk, failure, headers={"content-type": "text/event-stream"}, chunked=True)
    texts = []
    with client.stream("Hi") as stream, pytest.raises(RateLimitError) as caught:  # noqa: PT012 - a loop
        for text in stream.text:
            texts.append(text)  # noqa: PERF402 - what came before the failure counts
    assert texts == ["Hel"]
    assert caught.value.usage == Usage(input_tokens=3)
    assert isinstance(caught.value.partial, Completion)
    assert (caught.value.partial.text, caught.value.partial.usage) == ("Hel", caught.value.usage)
    with pytest.raises(RateLimitError) as again:
        client.chat("Hi", stream=True)
    assert isinstance(again.value.partial, Completion)
    assert again.value.partial.text == "Hel"


@pytest.mark.requirement("onym-call-c")
@pytest.mark.parametrize("whole", [True, False], ids=["ended", "broken off"])
def test_a_stream_that_stops_short_loses_nothing_and_is_not_begun_again(
    fake: FakeProvider, whole: bool
) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    fake.raw(chunk, headers={"content-type": "text/event-stream"}, chunked=True, whole=whole)
    kind: type[NetError | ProviderError] = MalformedResponseError if whole else ConnectionFailed
    with open_client(fake) as client, client.stream("Hi") as stream:
        assert next(stream) == TextDelta("Hel")
        with pytest.raises(kind) as caught:
            next(stream)
    assert isinstance(caught.value.partial, Completion)
    assert caught.value.partial.text == "Hel"
    assert caught.value.endpoint == f"llm://127.0.0.1:{fake.port}/m"
    assert len(fake.requests) == 1


def test_a_server_that_answers_a_stream_whole_is_understood(fake: FakeProvider, client: Client) -> None:
    fake.raw(b'{"model":"m","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}')
    with client.stream("Hi") as stream:
        assert list(stream.text) == ["Hi"]


def test_what_may_pass_is_tried_again(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow._SystemClock, "random", staticmethod(lambda: 0.0))
    fake.fail(503).drop().answer("third time")
    with open_client(fake) as client:
        assert client.chat("Hi").text == "third time"
    assert len(fake.requests) == 3


@pytest.mark.requirement("onym-call-b")
def test_the_timeout_of_the_uri_ends_a_call_that_takes_longer(fake: FakeProvider) -> None:
    fake.answer("late", gate=True)
    with open_client(fake, "timeout=50&retries=5") as client, pytest.raises(NetError) as caught:
        client.chat("Hi")
    assert caught.value.code == "net.timeout"
    assert "timeout=50" in caught.value.message
    fake.release()


def test_a_stream_that_falls_silent_ends_after_the_idle_timeout(fake: FakeProvider) -> None:
    texts = []
    with open_client(fake) as client:
        for milliseconds in (50, 1000, 30_000):  # the last for a machine that is very busy
            fake.answer(pieces=["Hel", "lo"], gate=True)
            with client.stream("Hi", idle_timeout=milliseconds) as stream:
                with pytest.raises(DeadlineExceeded) as caught:
                    list(stream)
                assert caught.value.code == "net.timeout.idle"
                assert isinstance(caught.value.partial, Completion)
                texts.append(caught.value.partial.text)
            if texts[-1] == "Hel":
                break
    assert texts[-1] == "Hel"
    fake.release()


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "50"])
def test_an_idle_timeout_is_a_whole_number_of_milliseconds(fake: FakeProvider, value: Any) -> None:
    with open_client(fake) as client, pytest.raises(UsageError) as caught:
        client.explain("Hi", idle_timeout=value)
    assert caught.value.code == "usage.idle-timeout"


@pytest.mark.requirement("onym-operation-a")
def test_vectors_come_for_texts(fake: FakeProvider, client: Client) -> None:
    one, two = client.embed(["a", "bb"]), client.embed("a")
    assert [len(vector) for vector in one.vectors] == [3, 3]
    assert one.vectors[0] == two.vectors[0] != one.vectors[1]
    assert (one.model, one.usage.input_tokens) == ("m", 2)


@pytest.mark.requirement("onym-operation-a")
def test_models_are_listed(fake: FakeProvider, client: Client) -> None:
    assert [model.id for model in client.models()] == ["fake-model"]


def test_one_connection_serves_many_calls(fake: FakeProvider, client: Client) -> None:
    for text in ("a", "b", "c"):
        assert client.chat(text).text == text
    assert {request.connection for request in fake.requests} == {1}


def test_a_stream_that_was_read_to_its_end_leaves_its_connection_to_the_next(
    fake: FakeProvider, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the end of the body may be late on a busy machine
    monkeypatch.setattr("onym.llm.flow._PATIENCE", 60)
    for _ in range(3):
        assert client.stream("one two").completion().text == "one two"
        with client.stream("one two") as stream:
            while not isinstance(next(stream), Finish):
                pass
        assert client.chat("Hi", stream=True).text == "Hi"
    assert {request.connection for request in fake.requests} == {1}


def test_a_body_that_does_not_end_after_its_last_event_is_not_waited_for(
    fake: FakeProvider, client: Client
) -> None:
    fake.answer("Hi", linger=True)
    assert client.stream("Hi").completion().text == "Hi"
    fake.release()
    assert client.chat("again").text == "again"
    assert [request.connection for request in fake.requests] == [1, 2]


def test_threads_share_a_client(fake: FakeProvider, client: Client) -> None:
    texts = [f"number {index}" for index in range(100)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: client.chat(text).text, texts)) == texts


# where a URI may lead


@pytest.mark.requirement("llm-10.5-a")
def test_this_machine_is_refused_unless_it_was_allowed(fake: FakeProvider) -> None:
    with open_client(fake, policy=None) as client, pytest.raises(PolicyError) as caught:
        client.chat("Hi")
    assert caught.value.hint
    assert fake.requests == []


def test_the_environment_may_allow_this_machine_where_the_program_names_no_policy(fake: FakeProvider) -> None:
    environ = {"ONYM_ALLOW_LOOPBACK": "1"}
    with open_client(fake, policy=None, environ=environ) as client:
        assert client.chat("Hi").text == "Hi"
    for policy in (Policy.trusted(), Policy.untrusted()):
        with open_client(fake, policy=policy, environ=environ) as client, pytest.raises(PolicyError):
            client.chat("Hi")
    with (
        open_client(fake, policy=None, environ={"ONYM_ALLOW_LOOPBACK": "yes"}) as client,
        pytest.raises(PolicyError),
    ):
        client.chat("Hi")


def test_the_configuration_names_endpoints_and_a_policy(fake: FakeProvider, tmp_path: Any) -> None:
    path = tmp_path / "config.toml"
    lines = ["[endpoints]", f'fast = "{fake.uri("m")}#brief"', "[profiles.brief]", 'system = "Be brief."']
    path.write_text("\n".join([*lines, "[policy]", 'preset = "local"']), encoding="utf-8")
    config = Config.load(path)
    for how in ({"config": config, "environ": {}}, {"environ": {"ONYM_CONFIG": str(path)}}):
        with connect("fast", **how) as client:
            assert client.chat("Hi").text == "Hi"
    assert fake.requests[0].json["messages"][0] == {"role": "system", "content": "Be brief."}
    with pytest.raises(ConfigError) as caught:
        connect("fats", config=config, environ={})
    assert caught.value.code == "config.no-endpoint"
    assert "fast" in (caught.value.hint or "")
    with pytest.raises(ConfigError) as caught:
        connect("x", config=Config.empty())
    assert caught.value.code == "config.no-endpoint"
    assert "llm://" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "http://a/b", "llm://", "two words"])
def test_what_is_neither_a_name_nor_a_uri_is_refused(text: str) -> None:
    with pytest.raises(URIError):
        connect(text, config=Config.empty(), environ={})


def test_arguments_of_connect_that_cannot_be_used_are_refused(fake: FakeProvider) -> None:
    with pytest.raises(UsageError, match="on_unsupported"):
        open_client(fake, on_unsupported="ignore")
    with pytest.raises(UnsupportedError) as caught:
        connect("llm://elevenlabs/v3", config=Config.empty(), environ={})
    assert caught.value.code == "llm.no-dialect"


@pytest.mark.parametrize("form", [str, Secret, LLMURI.parse])
def test_a_uri_may_be_a_text_a_secret_or_a_value(fake: FakeProvider, form: Any) -> None:
    with connect(form(fake.uri()), policy=Policy.local(), config=Config.empty(), environ={}) as client:
        assert client.chat("Hi").text == "Hi"


@pytest.mark.parametrize("key", [KEY, Secret(KEY)])
def test_a_key_of_the_program_goes_before_the_uris(fake: FakeProvider, key: Any) -> None:
    uri = fake.uri("m", key="sk-wrong-key-0123456789")
    with connect(uri, key=key, policy=Policy.local(), config=Config.empty(), environ={}) as client:
        assert client.chat("Hi").text == "Hi"


def test_a_transport_of_the_programs_own_stays_open(fake: FakeProvider) -> None:
    with Transport(Policy.local()) as transport:
        for _ in range(2):
            with open_client(fake, transport=transport) as client:
                assert client.chat("Hi").text == "Hi"
    assert {request.connection for request in fake.requests} == {1}


def test_the_network_settings_apply_unless_a_policy_is_given_too(fake: FakeProvider) -> None:
    network = NetConfig(policy=Policy.local(), limits=NetLimits(body=10))
    options: Any = {"network": network, "config": Config.empty(), "environ": {}}
    with connect(fake.uri("m"), **options) as client, pytest.raises(ResponseTooLarge):
        client.chat("Hi")
    with connect(fake.uri("m"), policy=Policy.trusted(), **options) as client, pytest.raises(PolicyError):
        client.chat("Hi")


# what must be said, and what must not


def test_what_was_asked_for_and_will_not_happen_is_said_at_the_call(fake: FakeProvider) -> None:
    with open_client(fake, "base_url=x&api_base=y") as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.explain("Hi")
        for call in (client.chat, client.stream, client.embed):
            with pytest.warns(OnymWarning) as caught:
                call("Hi")
            assert {warning.filename for warning in caught} == {__file__}
            assert len(caught) == 2
    assert "base_url" not in fake.requests[0].json


@pytest.mark.requirement("onym-secret-a", "llm-10.1-a", "llm-10.1-b")
def test_the_key_is_in_no_repr_error_traceback_or_warning(fake: FakeProvider) -> None:
    uri = fake.uri("m", f"x_api_key={KEY}x&retries=0")
    with connect(uri, policy=Policy.local(), config=Config.empty(), environ={}) as client:
        fake.fail(401, f"bad key {KEY}")
        texts = [repr(client), repr(client.explain()), str(client.explain().as_dict())]
        with pytest.warns(OnymWarning) as warned, pytest.raises(AuthenticationError) as caught:
            client.chat("Hi")
        texts += [str(warning.message) for warning in warned]
        error = caught.value
        texts += [repr(error), str(error), json.dumps(error.as_dict())]
        report = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)
        ours = [
            frame
            for frame in report.stack
            if "/src/onym/" in frame.filename and "/testing/" not in frame.filename
        ]
        assert len(ours) > 2
        texts += [str(frame.locals) for frame in ours]
    assert KEY not in "".join(texts)


@pytest.mark.requirement("onym-secret-a")
@pytest.mark.parametrize(
    "uri",
    [
        f"llm://me:{KEY}@elevenlabs/v3",
        f"llm://me:{KEY}@openai/gpt-4.1?top_k=1",
        f"llm://me:{KEY}@h/m?temp=9",
    ],
)
def test_no_frame_of_a_refused_connect_holds_the_key(uri: str) -> None:
    def attempt(make: Any) -> None:
        make()

    for open_it in (
        lambda: connect(uri, config=Config.empty(), environ={}),
        lambda: connect(uri.replace(KEY, "x"), key=KEY, config=Config.empty(), environ={}),
    ):
        with pytest.raises(OnymError) as caught:
            attempt(open_it)
        error = caught.value
        report = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)
        frames = [frame for frame in report.stack if "/src/onym/" in frame.filename]
        assert len(frames) > 1
        assert KEY not in "".join(str(frame.locals) for frame in frames)


# the embedded model


def test_the_embedded_model_is_started_by_the_first_call_and_spoken_to_over_loopback(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ensure(model: str) -> embedded.EmbeddedEndpoint:
        asked.append(model)
        return embedded.EmbeddedEndpoint(
            origin=Origin("http", "127.0.0.1", fake.port), key=Secret(KEY), model=model
        )

    monkeypatch.setattr(embedded, "ensure_server", ensure)
    with connect("llm://embedded/smollm2-135m-instruct", config=Config.empty(), environ={}) as client:
        client.explain("Hi")
        assert asked == []
        assert client.chat("Hi").text == "Hi"
        with client.stream("Hi") as stream:
            assert stream.completion().text == "Hi"
    assert asked == ["smollm2-135m-instruct"] * 2
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
