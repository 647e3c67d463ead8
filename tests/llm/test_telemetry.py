"""Spans and metrics, as the real SDK of OpenTelemetry collects them."""

from __future__ import annotations

import asyncio
import builtins
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from onym.errors import ConfigError, MissingExtraError, OnymError, OnymWarning, RateLimitError
from onym.llm import flow
from onym.llm.cache import CacheSettings, ResponseCache
from onym.llm.client import AsyncClient, Client, aconnect, connect
from onym.llm.config import Config
from onym.llm.telemetry import Telemetry
from onym.llm.types import Completion, DocumentPart, ImagePart, Message, TextPart, Tool, ToolCall
from onym.net.policy import Policy
from onym.testing import FakeClock
from onym.testing.fake_provider import FakeProvider

KEY = "sk-test-key-0123456789"
PROMPT = "a very private question"


class Seen:
    """What was reported."""

    def __init__(self, **how: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        self.clock = FakeClock()
        self.telemetry = Telemetry(self.tracers, self.meters, environ={}, clock=self.clock.monotonic, **how)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    @property
    def said(self) -> dict[str, Any]:
        return dict(self.span.attributes or {})

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self) -> str:
        data = self.reader.get_metrics_data()
        return "".join([span.to_json() for span in self.spans]) + (data.to_json() if data else "")


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key=KEY) as server:
        yield server


@pytest.fixture
def seen() -> Seen:
    return Seen()


def open_client(fake: FakeProvider, seen: Seen, query: str = "retries=0", **how: Any) -> Client:
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return connect(fake.uri("m", query), telemetry=seen.telemetry, **given)


def open_async(fake: FakeProvider, seen: Seen, query: str = "retries=0", **how: Any) -> AsyncClient:
    given = {"policy": Policy.local(), "config": Config.empty(), "environ": {}, **how}
    return aconnect(fake.uri("m", query), telemetry=seen.telemetry, **given)


USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 30},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


@pytest.mark.requirement("onym-telemetry-a")
def test_a_call_is_a_span_by_the_conventions(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("Hello", usage=USAGE)
    query = "temp=0.5&top_p=0.9&max_tokens=9&seed=7&stop=a,b&format=json&frequency_penalty=1&retries=0"
    with open_client(fake, seen, query) as client:
        client.chat(PROMPT)
    assert (seen.span.name, seen.span.kind) == ("chat m", SpanKind.CLIENT)
    assert seen.span.status.status_code is StatusCode.UNSET
    assert seen.span.instrumentation_scope is not None
    assert seen.span.instrumentation_scope.name == "onym"
    assert seen.said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai-compatible-local",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ("a", "b"),
        "gen_ai.request.frequency_penalty": 1.0,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "m",
        "gen_ai.response.id": seen.said["gen_ai.response.id"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "onym.request_id": "req-fake",
        "server.address": "127.0.0.1",
        "server.port": fake.port,
    }


PROVIDERS = {
    "llm://openai/m": "openai",
    "llm://anthropic/m": "anthropic",
    "llm://gemini/m": "gcp.gemini",
    "llm://mistral/m": "mistral_ai",
    "llm://xai/m": "x_ai",
    "llm://groq/m": "groq",
}


@pytest.mark.parametrize("uri", PROVIDERS)
def test_providers_are_called_what_the_conventions_call_them(uri: str) -> None:
    from onym.llm.telemetry import build_call_attributes

    plan = connect(uri, key=KEY, config=Config.empty(), environ={}).explain("Hi")
    assert build_call_attributes(plan)["gen_ai.provider.name"] == PROVIDERS[uri]
    assert build_call_attributes(plan)["server.port"] == 443


def test_a_parameter_of_any_type_breaks_no_span(fake: FakeProvider, seen: Seen) -> None:
    with open_client(fake, seen) as client:
        client.chat("Hi", extra={"frequency_penalty": {"odd": 1}, "dimensions": "many"})
    assert "gen_ai.request.frequency_penalty" not in seen.said
    assert "gen_ai.embeddings.dimension.count" not in seen.said


def test_a_call_is_measured(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("Hello", usage=USAGE)
    with open_client(fake, seen) as client:
        client.chat("Hi")
    (duration,) = seen.points("gen_ai.client.operation.duration")
    assert duration.count == 1
    assert duration.explicit_bounds[0] == 0.01
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai-compatible-local",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "server.address": "127.0.0.1",
        "server.port": fake.port,
    }
    tokens = seen.points("gen_ai.client.token.usage")
    assert {point.attributes["gen_ai.token.type"]: point.sum for point in tokens} == {
        "input": 50,
        "output": 20,
    }
    assert tokens[0].explicit_bounds[-1] == 67108864
    assert seen.points("gen_ai.client.operation.time_to_first_chunk") == []


def test_embeddings_are_a_span_of_their_own(fake: FakeProvider, seen: Seen) -> None:
    with open_client(fake, seen) as client:
        client.embed(["one", "two"], dimensions=8)
    assert seen.span.name == "embeddings m"
    assert seen.said["gen_ai.operation.name"] == "embeddings"
    assert seen.said["gen_ai.embeddings.dimension.count"] == 8
    assert "gen_ai.response.finish_reasons" not in seen.said
    types = [point.attributes["gen_ai.token.type"] for point in seen.points("gen_ai.client.token.usage")]
    assert types == ["input"]


def test_a_stream_is_measured_from_its_first_piece_to_its_end(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("one two three", usage=USAGE)
    with open_client(fake, seen) as client, client.stream("Hi") as stream:
        seen.clock.advance(2.0)
        next(stream)
        assert seen.spans == ()
        seen.clock.advance(3.0)
        list(stream)
    assert seen.said["gen_ai.request.stream"] is True
    assert seen.said["gen_ai.response.time_to_first_chunk"] == 2.0
    assert seen.said["gen_ai.response.finish_reasons"] == ("stop",)
    assert seen.said["gen_ai.usage.input_tokens"] == 50
    (first,) = seen.points("gen_ai.client.operation.time_to_first_chunk")
    (whole,) = seen.points("gen_ai.client.operation.duration")
    assert (first.sum, whole.sum) == (2.0, 5.0)


def test_a_chat_that_streams_on_the_wire_is_one_span(fake: FakeProvider, seen: Seen) -> None:
    with open_client(fake, seen, "stream=true") as client:
        client.chat("Hi")

    async def main() -> None:
        async with open_async(fake, seen, "stream=true") as client:
            await client.chat("Hi")

    asyncio.run(main())
    for span in seen.spans:
        assert span.attributes is not None
        assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
        assert span.attributes["gen_ai.request.stream"] is True
    assert len(seen.spans) == 2


def test_a_failure_is_an_error_by_its_code_without_the_servers_words(fake: FakeProvider, seen: Seen) -> None:
    fake.fail(400, f"you said: {PROMPT}", code="invalid_prompt")
    with open_client(fake, seen) as client, pytest.raises(OnymError):
        client.chat(PROMPT)
    assert seen.said["error.type"] == "provider.bad-request"
    assert seen.said["http.response.status_code"] == 400
    assert (seen.span.status.status_code, seen.span.status.description) == (
        StatusCode.ERROR,
        "provider.bad-request",
    )
    assert PROMPT not in seen.everything()
    (duration,) = seen.points("gen_ai.client.operation.duration")
    assert duration.attributes["error.type"] == "provider.bad-request"
    assert seen.points("gen_ai.client.token.usage") == []


def test_a_retry_is_an_event_of_the_span(
    fake: FakeProvider, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow._SystemClock, "random", staticmethod(lambda: 0.0))
    fake.fail(429, headers={"retry-after-ms": "1"}).drop().answer("Hello")
    with open_client(fake, seen, "retries=2") as client:
        client.chat("Hi")
    first, second = seen.span.events
    assert (first.name, second.name) == ("onym.retry", "onym.retry")
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.attributes["http.response.status_code"] == 429
    assert second.attributes["error.type"] == "net.connection.broken"
    assert second.attributes["onym.retry.delay"] >= 0
    assert "error.type" not in seen.said


def test_a_stream_that_breaks_off_is_a_failure_with_what_was_counted(fake: FakeProvider, seen: Seen) -> None:
    head = {"content-type": "text/event-stream"}
    pieces = (
        b'data: {"choices":[{"delta":{"content":"on"}}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1}}\n\n'
    )
    fake.raw(pieces, headers=head, chunked=True)
    with open_client(fake, seen) as client, pytest.raises(OnymError):
        client.stream("Hi").completion()
    assert seen.said["error.type"] == "provider.malformed"
    assert seen.said["gen_ai.usage.input_tokens"] == 4
    assert seen.span.status.status_code is StatusCode.ERROR


def test_a_connection_that_is_lost_in_the_middle_is_a_failure(fake: FakeProvider, seen: Seen) -> None:
    head = {"content-type": "text/event-stream"}
    data = b'data: {"choices":[{"delta":{"content":"on"}}]}\n\n'
    fake.raw(data, headers=head, chunked=True, whole=False)
    fake.raw(data, headers=head, chunked=True, whole=False)
    with open_client(fake, seen) as client, pytest.raises(OnymError):
        client.stream("Hi").completion()

    async def main() -> None:
        async with open_async(fake, seen) as client:
            with pytest.raises(OnymError):
                await client.stream("Hi").completion()

    asyncio.run(main())
    kinds = [span.attributes["error.type"] for span in seen.spans if span.attributes]
    assert kinds == ["net.connection.truncated"] * 2


def test_a_stream_that_was_left_is_no_failure(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("one two", endless=True).answer("one two", endless=True)
    with open_client(fake, seen) as client:
        with client.stream("Hi") as stream:
            next(stream)
        stream = client.stream("Hi")
        next(stream)
        del stream
        gc.collect()
    assert len(seen.spans) == 2
    for span in seen.spans:
        assert span.attributes is not None
        assert span.attributes["onym.stream.abandoned"] is True
        assert span.status.status_code is StatusCode.UNSET


def test_coroutines_are_reported_alike(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("Hello", usage=USAGE).fail(429).fail(429)

    async def main() -> None:
        async with open_async(fake, seen) as client:
            await client.chat("Hi")
            with pytest.raises(RateLimitError):
                await client.chat("Hi")
            with pytest.raises(RateLimitError):
                await client.stream("Hi")
            async with client.stream("Hi") as stream:
                assert [text async for text in stream.text]
            await client.embed("one")

    asyncio.run(main())
    names = [(span.name, (span.attributes or {}).get("error.type")) for span in seen.spans]
    assert names == [
        ("chat m", None),
        ("chat m", "provider.rate-limit"),
        ("chat m", "provider.rate-limit"),
        ("chat m", None),
        ("embeddings m", None),
    ]


def test_a_failure_of_a_call_that_might_be_kept_is_reported_as_any_other(
    fake: FakeProvider, seen: Seen, tmp_path: Path
) -> None:
    cache = ResponseCache(CacheSettings(folder=tmp_path / "responses"))
    for _ in range(5):
        fake.fail(429)
    query = "cache=true&retries=0"
    with open_client(fake, seen, query, cache=cache) as client:
        for call in (client.chat, client.stream):
            with pytest.raises(RateLimitError):
                call("Hi")
    with open_client(fake, seen) as client, pytest.raises(RateLimitError):
        client.stream("Hi")

    async def main() -> None:
        async with open_async(fake, seen, query, cache=cache) as client:
            with pytest.raises(RateLimitError):
                await client.chat("Hi")
            with pytest.raises(RateLimitError):
                await client.stream("Hi")

    asyncio.run(main())
    cache.close()
    assert [(span.attributes or {}).get("error.type") for span in seen.spans] == ["provider.rate-limit"] * 5


def test_what_comes_after_the_end_is_not_heard(seen: Seen) -> None:
    plan = connect("llm://openai/m", key=KEY, config=Config.empty(), environ={}).explain("Hi")
    observed = seen.telemetry.begin_call(plan)
    observed.record_error(ValueError("no"))
    observed.record_error(KeyError("no"))
    observed.record_answer(Completion(text="", model="m", finish_reason="stop"))
    observed.on_close(None)
    assert seen.said["error.type"] == "ValueError"


def test_a_server_that_counts_nothing_and_names_no_model_is_reported_without(seen: Seen) -> None:
    uri = "llm://embedded/smollm2-135m-instruct"
    plan = connect(uri, config=Config.empty(), environ={}).explain("Hi", format="text")
    seen.telemetry.begin_call(plan).record_answer(Completion(text="", model="", finish_reason="stop"))
    assert "server.address" not in seen.said
    assert "gen_ai.response.model" not in seen.said
    assert seen.said["gen_ai.output.type"] == "text"
    assert seen.points("gen_ai.client.token.usage") == []


def test_a_cancelled_coroutine_ends_its_span(fake: FakeProvider, seen: Seen) -> None:
    fake.answer("one two", gate=True).answer("one two", gate=True)

    async def main() -> None:
        async with open_async(fake, seen) as client:
            call = asyncio.create_task(client.chat("Hi", stream=True))
            await asyncio.to_thread(fake.arrived.wait, 300)
            call.cancel()
            await asyncio.wait([call])
            stream = await client.stream("Hi")
            await anext(stream)
            reading = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            await stream.close()

    asyncio.run(main())
    fake.release()
    kinds = [(span.attributes or {}).get("error.type") for span in seen.spans]
    assert kinds == ["asyncio.exceptions.CancelledError"] * 2


def test_a_span_belongs_to_the_span_around_the_call(fake: FakeProvider, seen: Seen) -> None:
    with open_client(fake, seen) as client, seen.tracers.get_tracer("test").start_as_current_span("around"):
        client.chat("Hi")
    call, around = seen.spans
    assert call.parent is not None
    assert around.context is not None
    assert call.parent.span_id == around.context.span_id


@pytest.mark.requirement("onym-telemetry-a")
def test_no_key_and_no_word_of_the_conversation_is_reported_unasked(fake: FakeProvider, seen: Seen) -> None:
    fake.answer(f"the answer, with {KEY}")
    with open_client(fake, seen, "system=a%20secret%20plan&retries=0") as client:
        client.chat(PROMPT)
        client.embed(PROMPT)
        client.stream(PROMPT).completion()
    for text in (KEY, PROMPT, "the answer", "secret plan"):
        assert text not in seen.everything()


CONVERSATION = [
    Message(role="user", name="Ann", content=(TextPart("look"), ImagePart(data=b"12345"))),
    Message(role="assistant", tool_calls=(ToolCall(id="c1", name="weather", arguments='{"city":"Paris"}'),)),
    Message(role="tool", tool_call_id="c1", content="sunny"),
    Message(role="user", content=(ImagePart(url="https://example.com/x.png"), TextPart(f"my key is {KEY}"))),
]


def test_content_is_reported_where_it_is_asked_for_with_keys_masked(fake: FakeProvider) -> None:
    seen = Seen(capture_content=True)
    fake.answer("It is fine.", reasoning="hm", tool_calls=[("c2", "weather", "{}")])
    with open_client(fake, seen, "system=be%20brief&retries=0") as client:
        client.chat(iter(CONVERSATION))
    assert KEY not in seen.everything()
    assert json.loads(seen.said["gen_ai.system_instructions"]) == [{"type": "text", "content": "be brief"}]
    assert json.loads(seen.said["gen_ai.input.messages"]) == [
        {
            "role": "user",
            "name": "Ann",
            "parts": [
                {"type": "text", "content": "look"},
                {"type": "image", "octets": 5, "modality": "image", "mime_type": "image/png"},
            ],
        },
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": '{"city":"Paris"}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sunny"}]},
        {
            "role": "user",
            "parts": [
                {
                    "type": "uri",
                    "uri": "https://example.com/x.png",
                    "modality": "image",
                    "mime_type": "image/png",
                },
                {"type": "text", "content": "my key is ***"},
            ],
        },
    ]
    assert json.loads(seen.said["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "It is fine."},
                {"type": "tool_call", "id": "c2", "name": "weather", "arguments": "{}"},
            ],
            "finish_reason": "tool_call",
        }
    ]


def test_a_document_is_reported_by_its_name_and_length() -> None:
    from onym.llm.telemetry import _format_message

    part = DocumentPart(data=b"123", name="report.pdf")
    assert _format_message(Message(role="user", content=(part,)))["parts"] == [
        {
            "type": "document",
            "octets": 3,
            "modality": "document",
            "mime_type": "application/pdf",
            "name": "report.pdf",
        }
    ]


def test_content_of_streams_is_reported_too(fake: FakeProvider) -> None:
    seen = Seen(capture_content=True)
    fake.answer("one two")

    async def main() -> None:
        async with open_async(fake, seen) as client:
            await client.stream("Hi").completion()

    asyncio.run(main())
    (message,) = json.loads(seen.said["gen_ai.output.messages"])
    assert message["parts"] == [{"type": "text", "content": "one two"}]


@pytest.mark.parametrize(
    ("text", "captures"),
    [("true", True), ("SPAN_ONLY", True), ("span_and_event", True), ("EVENT_ONLY", False), ("", False)],
)
def test_opentelemetrys_own_switch_asks_for_content(text: str, captures: bool) -> None:
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    assert Telemetry(environ={name: text}).captures is captures
    assert Telemetry(environ={name: "true"}, capture_content=False).captures is False


def test_a_span_that_is_not_sampled_reads_no_messages(fake: FakeProvider) -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(sampler=ALWAYS_OFF)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracers, MeterProvider(), environ={}, capture_content=True)
    given: dict[str, Any] = {"policy": Policy.local(), "config": Config.empty(), "environ": {}}
    with connect(fake.uri(), telemetry=telemetry, **given) as client:
        assert client.chat("Hi").text == "Hi"
    assert exporter.get_finished_spans() == ()


def test_an_answer_from_the_cache_says_so_and_counts_no_tokens(
    fake: FakeProvider, seen: Seen, tmp_path: Path
) -> None:
    cache = ResponseCache(CacheSettings(folder=tmp_path / "responses"))
    fake.answer("Hi", usage=USAGE)
    with open_client(fake, seen, "cache=true", cache=cache) as client:
        client.chat("Hi")
        client.chat("Hi")
        client.stream("Hello").completion()
        client.stream("Hello").completion()

    async def main() -> None:
        async with open_async(fake, seen, "cache=true", cache=cache) as client:
            await client.chat("Hi")
            await client.stream("Hello").completion()

    asyncio.run(main())
    cache.close()
    told = [(span.attributes or {}).get("onym.cached", False) for span in seen.spans]
    assert told == [False, True, False, True, True, True]
    counted = {
        point.attributes["gen_ai.token.type"]: point.count
        for point in seen.points("gen_ai.client.token.usage")
    }
    assert counted == {"input": 2, "output": 2}
    assert len(fake.requests) == 2


def test_cost_is_reported_where_it_is_asked_for_and_known(fake: FakeProvider, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    text = '[openai-compatible-local]\nsource = "x"\nchecked = 2026-11-01\n[openai-compatible-local.models]\n'
    path.write_text(text + 'm = { input = "2", output = "4" }\n', encoding="utf-8")
    seen = Seen()
    environ = {"ONYM_PRICES": str(path)}
    seen.telemetry = Telemetry(seen.tracers, seen.meters, environ=environ, cost=True)
    fake.answer("Hi", usage=USAGE)
    with open_client(fake, seen) as client:
        client.chat("Hi")
    assert seen.said["onym.cost"] == pytest.approx(0.00018)
    assert seen.said["onym.cost.currency"] == "USD"
    (spent,) = seen.points("onym.client.cost")
    assert spent.value == pytest.approx(0.00018)

    path.write_text("no longer TOML", encoding="utf-8")
    with open_client(fake, seen) as client:
        assert client.chat("Hi").text == "Hi"
    with pytest.raises(ConfigError):
        Telemetry(environ=environ, cost=True)


def test_a_cost_that_is_not_known_is_not_reported(fake: FakeProvider) -> None:
    seen = Seen(cost=True)
    with open_client(fake, seen) as client:
        client.chat("Hi")
    assert "onym.cost" not in seen.said
    assert seen.points("onym.client.cost") == []


def test_a_variable_turns_it_on_for_the_global_providers(
    fake: FakeProvider, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: seen.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: seen.meters)
    given: dict[str, Any] = {"policy": Policy.local(), "config": Config.empty()}
    for environ in ({"ONYM_TELEMETRY": text} for text in (" True", "1", "0", "")):
        with connect(fake.uri("m"), environ=environ, **given) as client:
            client.chat("Hi")
    with connect(fake.uri("m"), environ={}, **given) as client:
        client.chat("Hi")
    assert len(seen.spans) == 2


def test_without_the_library_it_is_refused_or_warned_of(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: Any) -> Any:
        if name == "opentelemetry":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(MissingExtraError) as caught:
        Telemetry()
    assert caught.value.command == "pip install 'onym[telemetry]'"
    given: dict[str, Any] = {"policy": Policy.local(), "config": Config.empty()}
    with pytest.warns(OnymWarning, match="ONYM_TELEMETRY"):
        client = connect(fake.uri("m"), environ={"ONYM_TELEMETRY": "1"}, **given)
    assert client.chat("Hi").text == "Hi"
    client.close()


def test_a_call_without_telemetry_and_cache_loads_neither() -> None:
    import subprocess
    import sys

    code = (
        "import sys, onym\n"
        "from onym.testing.fake_provider import FakeProvider\n"
        "with FakeProvider() as fake:\n"
        "    with onym.connect(fake.uri(), policy=onym.Policy.local(), config=onym.Config()) as client:\n"
        "        client.chat('Hi')\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'onym.llm.cache',\n"
        "       'onym.llm.telemetry', 'onym.llm.prices'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_tools_are_no_content_of_the_span(fake: FakeProvider, seen: Seen) -> None:
    with open_client(fake, seen) as client:
        client.chat("Hi", tools=[Tool(name="secret_tool", description="does it")])
    assert "secret_tool" not in seen.everything()
