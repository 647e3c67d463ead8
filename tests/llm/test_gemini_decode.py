"""What the Gemini dialect reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import json_support as answers
from onym.errors import ContentFilterError, MalformedResponseError, RateLimitError
from onym.llm.dialects import Exchange, gemini
from onym.llm.types import Carried, Completion, Embeddings, ToolCall, Usage
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

JSON = Headers([("Content-Type", "application/json")])
NAMED = Headers([("X-Request-Id", "req-1")])
KEY = "AIzaSyTESTTESTTESTTESTTESTTESTTESTTEST0"
AT = Exchange(endpoint="llm://host/m", model="asked", secrets=(Secret(KEY),))


def body(*parts: Any, reason: Any = "STOP", **members: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return json.dumps({"candidates": [candidate], **members}).encode()


def decode(data: bytes, headers: Headers = JSON) -> Completion:
    return gemini.decode_chat(200, headers, data, AT)


def test_a_completion_holds_what_the_server_said() -> None:
    usage = {
        "promptTokenCount": 5,
        "toolUsePromptTokenCount": 1,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 2,
        "totalTokenCount": 16,
    }
    data = body(
        {"text": "hm", "thought": True},
        {"text": "H"},
        {"text": "i"},
        usageMetadata=usage,
        modelVersion="gemini-2.5-flash",
        responseId="resp-1",
    )
    whole = decode(data)
    assert (whole.text, whole.reasoning, whole.model) == ("Hi", "hm", "gemini-2.5-flash")
    assert whole.finish_reason == "stop"
    assert whole.usage == Usage(input_tokens=6, output_tokens=10, cached_tokens=2, reasoning_tokens=3)
    assert whole.usage.total_tokens == 16
    assert (whole.request_id, whole.carried) == ("resp-1", None)
    assert whole.raw == json.loads(data)


@as_subtests(
    ("said", "meant"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("OTHER", "other"),
        (None, "other"),
        (["STOP"], "other"),
    ],
)
def test_finish_reasons_have_one_vocabulary(said: Any, meant: str) -> None:
    assert decode(body({"text": "x"}, reason=said)).finish_reason == meant


def test_an_answer_with_calls_stopped_for_them() -> None:
    call = {"functionCall": {"name": "f"}}
    assert decode(body(call)).finish_reason == "tool_calls"
    assert decode(body(call, reason="MAX_TOKENS")).finish_reason == "length"


def test_calls_are_read_in_order_and_get_an_id_where_they_have_none() -> None:
    whole = decode(
        body(
            {"functionCall": {"id": "c9", "name": "a", "args": {"x": [1, "é"]}}},
            {"text": "and"},
            {"functionCall": {"name": "b", "args": {}}},
            {"functionCall": {"id": "", "name": "c"}},
        )
    )
    assert whole.tool_calls == (
        ToolCall(id="c9", name="a", arguments='{"x":[1,"é"]}'),
        ToolCall(id="call_1", name="b", arguments="{}"),
        ToolCall(id="call_2", name="c", arguments="{}"),
    )
    assert whole.text == "and"


def test_a_signed_answer_is_carried_as_it_was_written() -> None:
    parts = (
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "c2ln"},
    )
    assert decode(body(*parts)).carried == Carried(dialect="gemini", parts=parts)
    assert "c2ln" not in repr(decode(body(*parts)).carried)


@pytest.mark.parametrize(
    "candidate",
    [
        {"finishReason": "SAFETY"},
        {"finishReason": "SAFETY", "content": {}},
        {"finishReason": "SAFETY", "content": {"role": "model", "parts": []}},
        {"finishReason": "SAFETY", "content": None},
    ],
)
def test_an_answer_that_was_stopped_before_its_first_word_is_empty(candidate: Any) -> None:
    whole = decode(json.dumps({"candidates": [candidate]}).encode())
    assert (whole.text, whole.finish_reason, whole.reasoning) == ("", "content_filter", None)


def test_parts_of_other_kinds_are_passed_over() -> None:
    parts = [{"executableCode": {"code": "1"}}, {"inlineData": {"data": "AA=="}}, {}, {"text": "x", "new": 1}]
    assert decode(body(*parts)).text == "x"


def test_other_candidates_are_not_mixed_in() -> None:
    candidates = [
        {"index": 1, "content": {"parts": [{"text": "no"}]}},
        {"content": {"parts": [{"text": "yes"}]}, "finishReason": "STOP"},
    ]
    assert decode(json.dumps({"candidates": candidates}).encode()).text == "yes"


@pytest.mark.parametrize(
    ("usage", "meant"),
    [
        (None, Usage()),
        ([], Usage()),
        ({"promptTokenCount": 1}, Usage(input_tokens=1)),
        ({"toolUsePromptTokenCount": 1}, Usage(input_tokens=1)),
        ({"thoughtsTokenCount": 4}, Usage(output_tokens=4, reasoning_tokens=4)),
        ({"promptTokenCount": -1, "candidatesTokenCount": True}, Usage()),
        ({"promptTokenCount": "5", "candidatesTokenCount": 2.5}, Usage()),
    ],
)
def test_usage_that_is_no_count_is_unknown(usage: Any, meant: Usage) -> None:
    assert decode(body({"text": "x"}, usageMetadata=usage)).usage == meant


def test_a_server_that_names_no_model_answers_for_the_one_that_was_asked_for() -> None:
    assert decode(body({"text": "x"})).model == "asked"


@pytest.mark.parametrize("said", ["a\x1bb", "a" * 300, f"x{KEY}", 5, ""])
def test_a_response_id_that_is_not_fit_to_print_is_none(said: Any) -> None:
    assert decode(body({"text": "x"}, responseId=said)).request_id is None


def test_a_header_names_the_exchange_before_the_body_does() -> None:
    assert decode(body({"text": "x"}, responseId="r"), NAMED).request_id == "req-1"


MALFORMED = {
    "nothing": b"",
    "not json": b"hello",
    "cut": body({"text": "x"})[:-1],
    "not utf-8": b'{"candidates":[{"content":{"parts":[{"text":"\xff"}]}}]}',
    "a lone surrogate": b'{"candidates":[{"content":{"parts":[{"text":"\\ud800"}]}}]}',
    "too deep": b"[" * 100_000,
    "a number too large": b'{"candidates":[{"avgLogprobs":1e999}]}',
    "an empty list": b"[]",
    "a list of texts": b'["x"]',
    "a text": b'"Hi"',
    "no candidates": b"{}",
    "empty candidates": b'{"candidates":[]}',
    "another candidate alone": b'{"candidates":[{"index":1}]}',
    "candidates that are no list": b'{"candidates":{"0":1}}',
    "a candidate that is no object": b'{"candidates":["x"]}',
    "content that is no object": b'{"candidates":[{"content":"Hi"}]}',
    "parts that are no list": b'{"candidates":[{"content":{"parts":{"text":"x"}}}]}',
    "a part that is no object": b'{"candidates":[{"content":{"parts":["x"]}}]}',
    "text that is a number": body({"text": 5}),
    "a call that is no object": body({"functionCall": "f"}),
    "a call without name": body({"functionCall": {}}),
    "a call whose name is a number": body({"functionCall": {"name": 5}}),
    "arguments that are no object": body({"functionCall": {"name": "f", "args": "{}"}}),
    "arguments in pieces": body({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.x"}]}}),
    "a call that goes on": body({"functionCall": {"name": "f", "willContinue": True}}),
}


@as_subtests("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_success_that_is_no_completion_is_malformed(data: bytes) -> None:
    answers.check_malformed(lambda: decode(data, NAMED))


def test_an_html_page_with_status_200_is_called_one() -> None:
    answers.check_page(decode)


@pytest.mark.parametrize("in_list", [False, True], ids=["bare", "in a list"])
def test_an_error_inside_a_200_is_the_error_that_it_says(in_list: bool) -> None:
    said = {"error": {"message": "slow down", "code": 429, "status": "RESOURCE_EXHAUSTED"}}
    with pytest.raises(RateLimitError) as caught:
        decode(json.dumps([said] if in_list else said).encode())
    assert caught.value.status == 200


def test_a_blocked_prompt_is_a_filter_and_its_tokens_are_not_lost() -> None:
    said = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"},
        "usageMetadata": {"promptTokenCount": 4},
    }
    with pytest.raises(ContentFilterError) as caught:
        decode(json.dumps(said).encode())
    assert caught.value.provider_code == "PROHIBITED_CONTENT"
    assert caught.value.usage == Usage(input_tokens=4)


def test_feedback_that_blocks_nothing_is_no_failure() -> None:
    assert decode(body({"text": "x"}, promptFeedback={"safetyRatings": []})).text == "x"
    assert decode(body({"text": "x"}, promptFeedback={"blockReason": "SAFETY"})).text == "x"


def test_the_array_of_a_stream_is_one_answer() -> None:
    frames = [
        json.loads(body({"text": "H"}, {"text": "m", "thought": True}, reason=None, modelVersion="g")),
        {"usageMetadata": {"promptTokenCount": 1}},
        json.loads(body({"text": "i"}, usageMetadata={"promptTokenCount": 2}, responseId="r")),
    ]
    whole = decode(json.dumps(frames).encode())
    assert (whole.text, whole.reasoning, whole.model, whole.request_id) == ("Hi", "m", "g", "r")
    assert (whole.usage, whole.finish_reason) == (Usage(input_tokens=2), "stop")
    assert len(whole.raw["candidates"][0]["content"]["parts"]) == 3


def test_vectors_come_in_the_order_of_the_texts() -> None:
    data = {
        "embeddings": [{"values": [1, 0.25]}, {"values": [-2.0]}],
        "usageMetadata": {"promptTokenCount": 4},
    }
    found = gemini.decode_embed(200, NAMED, json.dumps(data).encode(), AT, count=2)
    assert found == Embeddings(
        vectors=((1.0, 0.25), (-2.0,)), model="asked", usage=Usage(input_tokens=4), request_id="req-1"
    )


def test_predictions_hold_vectors_and_count_the_tokens_of_each() -> None:
    data = {
        "predictions": [
            {"embeddings": {"values": [1, 0.25], "statistics": {"token_count": 3.0, "truncated": False}}},
            {"embeddings": {"values": [-2.0], "statistics": {"token_count": 2}}},
        ]
    }
    found = gemini.VERTEX.decode_embed(200, NAMED, json.dumps(data).encode(), AT, count=2)
    assert found == Embeddings(
        vectors=((1.0, 0.25), (-2.0,)), model="asked", usage=Usage(input_tokens=5), request_id="req-1"
    )
    bare = b'{"predictions":[{"embeddings":{"values":[1]}}]}'
    assert gemini.VERTEX.decode_embed(200, JSON, bare, AT, count=1).usage == Usage()


BAD_VECTORS: dict[str, Any] = {
    "no vectors": {},
    "too few": [{"values": [1.0]}],
    "a record that is no object": [[1.0], [2.0]],
    "an empty vector": [{"values": []}, {"values": [1.0]}],
    "texts in a vector": [{"values": ["1"]}, {"values": [1.0]}],
    "no vector": [{}, {"values": [1.0]}],
}


@pytest.mark.parametrize("records", BAD_VECTORS.values(), ids=BAD_VECTORS.keys())
def test_vectors_that_do_not_fit_the_texts_are_malformed(records: Any) -> None:
    with pytest.raises(MalformedResponseError):
        gemini.decode_embed(200, JSON, json.dumps({"embeddings": records}).encode(), AT, count=2)
    if isinstance(records, list):
        records = [{"embeddings": record} for record in records]
    with pytest.raises(MalformedResponseError):
        gemini.VERTEX.decode_embed(200, JSON, json.dumps({"predictions": records}).encode(), AT, count=2)


MODEL = {"name": "models/gemini-2.5-pro", "inputTokenLimit": 1048576, "outputTokenLimit": 65536}


def test_models_are_listed_page_by_page() -> None:
    others = [
        "noise",
        {},
        {"name": ""},
        {"name": "tunedModels/mine"},
        {"name": "models/x", "inputTokenLimit": 0},
    ]
    data = json.dumps({"models": [MODEL, *others], "nextPageToken": "a/b+c=&d"}).encode()
    page = gemini.decode_models(200, JSON, data, AT)
    assert [(model.id, model.context_window, model.max_output_tokens) for model in page.models] == [
        ("gemini-2.5-pro", 1048576, 65536),
        ("tunedModels/mine", None, None),
        ("x", None, None),
    ]
    assert page.models[0].raw == MODEL
    assert page.next == "pageToken=a%2Fb%2Bc%3D%26d&pageSize=1000"


def test_a_last_page_may_be_empty() -> None:
    page = gemini.decode_models(200, JSON, b"{}", AT)
    assert (page.models, page.next) == ((), None)


def test_a_publishers_models_are_listed_without_their_publisher() -> None:
    data = b'{"publisherModels":[{"name":"publishers/google/models/gemini-2.5-pro"}]}'
    assert gemini.VERTEX.decode_models(200, JSON, data, AT).models[0].id == "gemini-2.5-pro"


def test_one_model_is_read_as_in_the_list() -> None:
    found = gemini.decode_model(200, JSON, json.dumps(MODEL).encode(), AT)
    assert (found.id, found.context_window) == ("gemini-2.5-pro", 1048576)


@pytest.mark.parametrize("data", [b'{"models":{}}', b"5", b"[]"])
def test_a_list_of_models_that_is_none_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        gemini.decode_models(200, JSON, data, AT)


@pytest.mark.parametrize("data", [b"{}", b'{"name":5}', b"[]"])
def test_a_model_that_is_none_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        gemini.decode_model(200, JSON, data, AT)


NAMES = [
    "candidates", "content", "parts", "text", "thought", "functionCall", "name", "args", "finishReason",
    "index", "usageMetadata", "promptTokenCount", "promptFeedback", "blockReason", "error", "status", "code",
    "message", "details", "@type", "reason", "fieldViolations", "field", "retryDelay", "embeddings",
    "values", "predictions", "statistics", "token_count", "models", "nextPageToken", "thoughtSignature",
    "responseId",
]  # fmt: skip
TEXTS = st.sampled_from(["type.googleapis.com/google.rpc.RetryInfo", "google.rpc.BadRequest", "7s", "STOP"])
values = answers.any_json(NAMES, TEXTS)


@given(values)
@pytest.mark.requirement("onym-read-f")
def test_any_json_is_read_or_refused_as_one_of_our_errors(value: Any) -> None:
    data = json.dumps(value).encode()
    answers.check_read_or_refused(gemini, data)
    answers.check_read_or_refused(gemini.VERTEX, data)


@given(st.binary(max_size=60))
def test_any_octets_are_refused_as_one_of_our_errors(data: bytes) -> None:
    answers.check_refused(gemini, data)


@given(values)
def test_any_parts_are_read_or_refused_as_one_of_our_errors(value: Any) -> None:
    data = json.dumps({"candidates": [{"content": {"parts": [value, value]}}]}).encode()
    answers.check_read_or_refused(gemini, data)
