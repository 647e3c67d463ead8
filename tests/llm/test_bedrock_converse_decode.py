"""What the Bedrock Converse dialect reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import json_support as answers
from onym.errors import MalformedResponseError, RateLimitError
from onym.llm.dialects import Exchange, bedrock_converse
from onym.llm.types import Carried, ToolCall, Usage
from onym.net.messages import Headers
from support import as_subtests

JSON = Headers([("Content-Type", "application/json"), ("x-amzn-RequestId", "req-1")])
AT = Exchange(endpoint="llm://host/m", model="asked")


def body(*blocks: Any, **members: Any) -> bytes:
    content = list(blocks) or [{"text": "Hi"}]
    whole = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    return json.dumps({**whole, **members}).encode()


def decode(data: bytes, headers: Headers = JSON) -> Any:
    return bedrock_converse.decode_chat(200, headers, data, AT)


def test_a_completion_holds_what_the_server_said() -> None:
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}
    whole = decode(body({"text": "Hi"}, {"text": "!"}, usage=usage, metrics={"latencyMs": 3}))
    assert (whole.text, whole.reasoning, whole.finish_reason) == ("Hi!", None, "stop")
    assert (whole.model, whole.request_id, whole.carried) == ("asked", "req-1", None)
    assert whole.usage == Usage(input_tokens=5, output_tokens=7)
    assert whole.raw["metrics"] == {"latencyMs": 3}


@as_subtests(
    ("said", "meant"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_tool_use", "other"),
        (None, "other"),
        ([], "other"),
    ],
)
def test_finish_reasons_have_one_vocabulary(said: Any, meant: str) -> None:
    assert decode(body(stopReason=said)).finish_reason == meant


@pytest.mark.parametrize(
    ("usage", "meant"),
    [
        (None, Usage()),
        ([1], Usage()),
        ({"inputTokens": 3, "outputTokens": 2}, Usage(input_tokens=3, output_tokens=2)),
        (
            {"inputTokens": 3, "outputTokens": 2, "cacheReadInputTokens": 10, "cacheWriteInputTokens": 100},
            Usage(input_tokens=113, output_tokens=2, cached_tokens=10),
        ),
        ({"inputTokens": 3, "cacheWriteInputTokens": 4}, Usage(input_tokens=7)),
        ({"cacheReadInputTokens": 10}, Usage(cached_tokens=10)),
        ({"inputTokens": -1, "outputTokens": True, "cacheReadInputTokens": "1"}, Usage()),
    ],
)
def test_cached_input_is_counted_in(usage: Any, meant: Usage) -> None:
    assert decode(body(usage=usage)).usage == meant


SIGNED = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
SEALED = {"reasoningContent": {"redactedContent": "AAEC"}}


def test_reasoning_is_read_and_carried_where_it_is_signed() -> None:
    unsigned = {"reasoningContent": {"reasoningText": {"text": "so"}}}
    whole = decode(body(SIGNED, unsigned, {"text": "Hi"}))
    assert (whole.text, whole.reasoning) == ("Hi", "hmso")
    assert whole.carried == Carried(dialect="bedrock_converse", parts=(SIGNED, unsigned, {"text": "Hi"}))
    assert decode(body(unsigned)).carried is None
    sealed = decode(body(SEALED, {"text": "Hi"}))
    assert (sealed.reasoning, sealed.carried.parts[0]) == (None, SEALED)
    assert decode(body({"reasoningContent": 5}, {"reasoningContent": {"reasoningText": 5}})).carried is None


def test_tool_calls_are_read_in_order_and_the_servers_own_are_not_the_callers() -> None:
    whole = decode(
        body(
            {"text": "Let me see."},
            {"toolUse": {"toolUseId": "c1", "name": "a", "input": {"x": [1]}}},
            {"toolUse": {"toolUseId": "s1", "name": "web", "input": {}, "type": "server_tool_use"}},
            {"toolResult": {"toolUseId": "s1", "content": []}},
            {"toolUse": {"name": "b"}},
            stopReason="tool_use",
        )
    )
    assert whole.tool_calls == (
        ToolCall(id="c1", name="a", arguments='{"x":[1]}'),
        ToolCall(id="call_1", name="b", arguments=""),
    )


def test_text_with_citations_is_text() -> None:
    cited = {"citationsContent": {"content": [{"text": "ci"}, {"x": 1}, 5, {"text": "ted"}], "citations": []}}
    assert decode(body({"text": "so "}, cited, {"citationsContent": {"content": 5}})).text == "so cited"


MALFORMED = {
    "nothing": b"",
    "not json": b"hello",
    "cut": body()[:-1],
    "not utf-8": b'{"output":{"message":{"content":[{"text":"\xff"}]}}}',
    "too deep": b"[" * 100_000,
    "a list": b"[]",
    "no output": b"{}",
    "an output that is no object": b'{"output":"Hi"}',
    "no message": b'{"output":{}}',
    "no content": b'{"output":{"message":{}}}',
    "content that is text": b'{"output":{"message":{"content":"Hi"}}}',
    "a block that is no object": body("Hi"),
    "a text that is none": body({"text": 5}),
    "a tool call that is no object": body({"toolUse": 5}),
    "a tool call without name": body({"toolUse": {"toolUseId": "c"}}),
}


@as_subtests("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_success_that_is_no_completion_is_malformed(data: bytes) -> None:
    answers.check_malformed(lambda: decode(data))


def test_an_html_page_with_status_200_is_called_one() -> None:
    answers.check_page(decode)


def test_an_error_inside_a_200_is_the_error_that_it_says() -> None:
    with pytest.raises(RateLimitError) as caught:
        decode(b'{"__type":"ThrottlingException","message":"slow down"}')
    assert caught.value.status == 200


# embeddings


def embed(data: Any, count: int = 1, headers: Headers = JSON) -> Any:
    encoded = data if isinstance(data, bytes) else json.dumps(data).encode()
    return bedrock_converse.decode_embed(200, headers, encoded, AT, count=count)


def test_titans_one_vector_is_read() -> None:
    found = embed({"embedding": [1, -0.5], "inputTextTokenCount": 4, "embeddingsByType": {}})
    assert found.vectors == ((1.0, -0.5),)
    assert (found.model, found.usage, found.request_id) == ("asked", Usage(input_tokens=4), "req-1")


@pytest.mark.parametrize(
    "data",
    [
        {"embeddings": [[1, 2], [3, 4]], "id": "i", "response_type": "embeddings_floats", "texts": []},
        {"embeddings": {"float": [[1, 2], [3, 4]], "int8": [[0]]}, "response_type": "embeddings_by_type"},
    ],
)
def test_coheres_vectors_are_read_in_either_shape(data: Any) -> None:
    counted = Headers([("X-Amzn-Bedrock-Input-Token-Count", "7")])
    found = embed(data, 2, counted)
    assert found.vectors == ((1.0, 2.0), (3.0, 4.0))
    assert found.usage == Usage(input_tokens=7)


@pytest.mark.parametrize("said", ["", "-1", "x", "٣", "9" * 13])
def test_a_count_in_a_header_that_is_none_is_unknown(said: str) -> None:
    assert (
        embed({"embedding": [1]}, 1, Headers([("x-amzn-bedrock-input-token-count", said)])).usage == Usage()
    )


@as_subtests(
    "data",
    [
        {},
        {"embedding": []},
        {"embedding": "x"},
        {"embedding": [1, "x"]},
        {"embeddings": []},
        {"embeddings": [[1], [2]]},
        {"embeddings": {"int8": [[1]]}},
        {"embeddings": {"float": 5}},
        {"embeddings": [5]},
        b"[]",
        b"",
    ],
)
def test_vectors_that_are_not_one_for_each_text_are_malformed(data: Any) -> None:
    with pytest.raises(MalformedResponseError) as caught:
        embed(data)
    assert caught.value.request_id == "req-1"


# models


MODEL = {"modelId": "amazon.nova-pro-v1:0", "providerName": "Amazon", "modelArn": "arn:x"}


def test_models_are_listed_and_looked_up() -> None:
    page = bedrock_converse.decode_models(
        200, JSON, json.dumps({"modelSummaries": [MODEL, {"modelName": "x"}, 5]}).encode(), AT
    )
    assert [model.id for model in page.models] == ["amazon.nova-pro-v1:0"]
    assert page.next is None
    info = bedrock_converse.decode_model(200, JSON, json.dumps({"modelDetails": MODEL}).encode(), AT)
    assert info == page.models[0]
    assert (info.owner, info.context_window, info.raw) == ("Amazon", None, MODEL)


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"modelSummaries":{}}', b'{"modelDetails":{}}', b"x"])
def test_answers_without_models_are_malformed(data: bytes) -> None:
    for read in (bedrock_converse.decode_models, bedrock_converse.decode_model):
        with pytest.raises(MalformedResponseError):
            read(200, JSON, data, AT)


MEMBERS = [
    "output", "message", "content", "text", "toolUse", "name", "input", "stopReason", "usage", "inputTokens",
    "reasoningContent", "reasoningText", "signature", "citationsContent", "embeddings", "embedding", "float",
    "modelSummaries", "modelDetails", "modelId", "__type", "Output",
]  # fmt: skip
anything = answers.any_json(MEMBERS)


@given(anything)
def test_any_json_is_an_answer_or_one_of_our_errors(data: Any) -> None:
    encoded = json.dumps(data).encode()
    shapes = [encoded, json.dumps({"output": {"message": {"content": [data, {"text": "x"}]}}}).encode()]
    for shape in shapes:
        answers.check_read_or_refused(bedrock_converse, shape)


@given(st.binary(max_size=60))
def test_any_octets_are_an_answer_or_one_of_our_errors(data: bytes) -> None:
    answers.check_refused(bedrock_converse, data)
