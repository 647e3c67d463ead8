"""Cohere's own SDK as the judge: it sends what we send, reads what we read, and its types take our bodies."""

from __future__ import annotations

import base64
import inspect
import typing
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from contract.capture import Capture, Recorded
from contract.oracle import (
    CALL,
    PICTURE,
    SCHEMA,
    TOOL,
    UNICODE,
    USER,
    both_ways,
    calls_of,
    check_alike,
    each_call,
    named_events,
    often,
    put,
    read_stream,
    text,
)
from onym.errors import ProviderError
from onym.llm.client import Client
from onym.llm.dialects import WireSpec, cohere_v2
from onym.llm.types import DocumentPart, Message, Request, TextPart, ToolCall, Usage
from stream_support import finish_of, texts_of, thoughts_of

cohere = pytest.importorskip("cohere")
import httpx  # noqa: E402
from cohere.v2.raw_client import RawV2Client  # noqa: E402

KEY = "test-key-0123456789"
MODEL = "command-a-03-2025"


@pytest.fixture(scope="module")
def sdk(server: Capture) -> Iterator[Any]:
    with httpx.Client(timeout=300) as transport:
        yield cohere.ClientV2(api_key=KEY, base_url=server.url, max_retries=0, httpx_client=transport)


def client(server: Capture, query: str = "", model: str = MODEL) -> Client:
    return server.client("cohere", model, query, key=KEY)


BARE_TOOL = {"name": "now"}
WIRE_BARE = {
    "type": "function",
    "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
}
SYSTEM = {"role": "system", "content": "Be brief."}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
ASKED = {"role": "assistant", "tool_calls": [CALL]}

#: what is asked of us (query of the URI, messages, overrides), and the same of the SDK (messages, arguments)
CALLS: dict[str, tuple[str, Any, dict[str, Any], Any, dict[str, Any]]] = {
    "plain": ("", [USER], {}, [USER], {}),
    "parameters": (
        "temp=0.5&max_tokens=9&top_p=0.9&top_k=40&stop=a,b&seed=7",
        [USER],
        {},
        [USER],
        {"temperature": 0.5, "max_tokens": 9, "p": 0.9, "k": 40, "stop_sequences": ["a", "b"], "seed": 7},
    ),
    "provider parameters": (
        "frequency_penalty=0.5&safety_mode=STRICT&thinking.type=enabled&thinking.token_budget=99",
        [USER],
        {},
        [USER],
        {
            "frequency_penalty": 0.5,
            "safety_mode": "STRICT",
            "thinking": {"type": "enabled", "token_budget": 99},
        },
    ),
    "system": ("", [SYSTEM, USER], {}, [SYSTEM, USER], {}),
    "system by the URI": ("system=Be%20brief.", [USER], {}, [SYSTEM, USER], {}),
    "images": ("", [PICTURE], {}, [PICTURE], {}),
    "tools": (
        "",
        [USER, {**ASKED, "content": None}, RESULT],
        {"tools": [TOOL, BARE_TOOL], "tool_choice": "required"},
        [USER, ASKED, RESULT],
        {"tools": [TOOL, WIRE_BARE], "tool_choice": "REQUIRED"},
    ),
    "no tools now": (
        "",
        [USER],
        {"tools": [{**BARE_TOOL, "strict": True}], "tool_choice": "none"},
        [USER],
        {"tools": [WIRE_BARE], "strict_tools": True, "tool_choice": "NONE"},
    ),
    "any tools": ("", [USER], {"tools": [BARE_TOOL], "tool_choice": "auto"}, [USER], {"tools": [WIRE_BARE]}),
    "thinking": (
        "",
        [USER, {**ASKED, "content": None, "reasoning_content": "hm"}, RESULT],
        {},
        [USER, {**ASKED, "content": [{"type": "thinking", "thinking": "hm"}]}, RESULT],
        {},
    ),
    "json": ("format=json", [USER], {}, [USER], {"response_format": {"type": "json_object"}}),
    "schema": (
        "",
        [USER],
        {"schema": SCHEMA},
        [USER],
        {"response_format": {"type": "json_object", "json_schema": SCHEMA}},
    ),
    "unicode": (
        "",
        [{"role": "user", "content": UNICODE}],
        {},
        [{"role": "user", "content": UNICODE}],
        {},
    ),
}

ANSWER = {"id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": []}}
END = {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}


def ours(server: Capture, query: str, messages: Any, overrides: Any, *, stream: bool) -> Recorded:
    put(client(server, query), messages, overrides, stream=stream)
    return server.last()


def theirs(server: Capture, sdk: Any, messages: Any, arguments: Any, *, stream: bool) -> Recorded:
    if stream:
        list(sdk.chat_stream(model=MODEL, messages=messages, **arguments))
    else:
        sdk.chat(model=MODEL, messages=messages, **arguments)
    return server.last()


def answer(server: Capture, *, stream: bool) -> None:
    if stream:
        server.answer(named_events(END), media="text/event-stream")
    else:
        server.answer(ANSWER)


@pytest.mark.requirement("llm-6-b", "llm-9-a", "llm-4.4-b", "onym-dialect-a")
@both_ways
@each_call(CALLS)
def test_our_request_is_the_one_that_the_sdk_sends(
    server: Capture, sdk: Any, call: Any, stream: bool
) -> None:
    query, messages, overrides, wire, arguments = call
    answer(server, stream=stream)
    one = ours(server, query, messages, overrides, stream=stream)
    two = theirs(server, sdk, wire, arguments, stream=stream)
    assert one.json == two.json
    check_alike(one, two, "authorization", "content-type")


def known(value: Any) -> bool:
    """Whether the SDK's models, which take any member, knew each one that came."""
    if isinstance(value, BaseModel):
        return not value.model_extra and all(known(getattr(value, name)) for name in value.model_fields_set)
    return all(known(item) for item in value) if isinstance(value, list) else True


@pytest.mark.requirement("onym-dialect-a")
@both_ways
@each_call(CALLS)
def test_our_bodies_are_of_the_sdks_types(server: Capture, call: Any, stream: bool) -> None:
    query, messages, overrides, _, _ = call
    answer(server, stream=stream)
    body = ours(server, query, messages, overrides, stream=stream).json
    assert body.pop("stream") is stream
    method = RawV2Client.chat_stream if stream else RawV2Client.chat
    kinds = typing.get_type_hints(method)
    assert set(body) <= set(inspect.signature(method).parameters)
    for name, value in body.items():
        assert known(TypeAdapter(kinds[name]).validate_python(value)), name


@pytest.mark.requirement("onym-operation-a")
@pytest.mark.parametrize(
    ("overrides", "arguments"),
    [
        ({}, {"input_type": "search_document", "embedding_types": ["float"]}),
        (
            {"extra": {"dimensions": 256, "input_type": "search_query", "truncate": "END"}},
            {
                "input_type": "search_query",
                "output_dimension": 256,
                "truncate": "END",
                "embedding_types": ["float"],
            },
        ),
    ],
    ids=["plain", "with all that the caller says"],
)
def test_vectors_are_asked_for_and_read_as_the_sdk_does(
    server: Capture, sdk: Any, overrides: dict[str, Any], arguments: dict[str, Any]
) -> None:
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 3}}
    vectors = {"float": [[0.5, -1], [0.25, 2.0]]}
    server.answer({"id": "x", "response_type": "embeddings_by_type", "embeddings": vectors, "meta": meta})
    two = sdk.embed(model="embed-v4.0", texts=["a", "bb"], **arguments)
    wanted = server.last()
    with client(server, model="embed-v4.0") as onym:
        one = onym.embed(["a", "bb"], **overrides)
    sent = server.last()
    assert (sent.method, sent.target, sent.json) == (wanted.method, wanted.target, wanted.json)
    assert [list(vector) for vector in one.vectors] == two.embeddings.float_
    assert one.usage.input_tokens == two.meta.billed_units.input_tokens


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_packed_vectors_are_the_numbers_that_were_packed(server: Capture, numbers: list[float]) -> None:
    packed = base64.b64encode(array("f", numbers).tobytes()).decode()
    server.answer({"id": "x", "embeddings": {"base64": [packed]}})
    with client(server, model="embed-v4.0") as onym:
        found = onym.embed("a", extra={"embedding_types": ["base64"]})
    assert server.last().json["embedding_types"] == ["base64"]
    assert list(found.vectors[0]) == numbers


RECORDS = [
    {"name": "a", "context_length": 128000, "endpoints": ["chat"]},
    {"name": "b", "is_deprecated": False},
]


@pytest.mark.requirement("onym-operation-a")
def test_models_are_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer({"models": RECORDS})
    two = sdk.models.list(page_size=1000)
    wanted = server.last()
    with client(server) as onym:
        one = onym.models()
    assert (server.last().method, server.last().target) == (wanted.method, wanted.target)
    assert [(item.id, item.context_window) for item in one] == [
        (model.name, model.context_length) for model in two.models
    ]


@pytest.mark.requirement("onym-operation-a")
def test_one_model_is_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer(RECORDS[0])
    two = sdk.models.get(MODEL)
    wanted = server.last()
    with client(server) as onym:
        one = onym.model()
    assert (server.last().method, server.last().target) == (wanted.method, wanted.target)
    assert (one.id, one.context_window) == (two.name, two.context_length)


def test_documents_of_a_tools_result_are_those_of_the_sdk(server: Capture, sdk: Any) -> None:
    data = DocumentPart(data=b'{"sky":"grey"}', media_type="application/json", name="d1")
    note = DocumentPart(data=b"wet", media_type="text/plain")
    call = ToolCall(id="c1", name="weather", arguments="{}")
    turns = (
        Message(role="user", content="Hello"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c1", content=(TextPart("so"), data, note)),
    )
    body = cohere_v2.encode_chat(Request(model=MODEL, messages=turns), WireSpec())
    content = [
        cohere.TextToolContent(text="so"),
        cohere.DocumentToolContent(document=cohere.Document(data={"sky": "grey"}, id="d1")),
        cohere.DocumentToolContent(document=cohere.Document(data={"text": "wet"})),
    ]
    server.answer(ANSWER)
    wire = [
        USER,
        cohere.AssistantChatMessageV2.model_validate(ASKED),
        cohere.ToolChatMessageV2(tool_call_id="c1", content=content),
    ]
    assert theirs(server, sdk, wire, {}, stream=False).json == body
    assert known(TypeAdapter(cohere.ChatMessages).validate_python(body["messages"]))


# the same bytes, read by both


def usage_of(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    counts = usage.tokens or usage.billed_units
    return Usage(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=usage.cached_tokens,
    )


FINISHES = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "TIMEOUT": "other",
}
counts = st.fixed_dictionaries(
    {"input_tokens": st.integers(0, 9_999), "output_tokens": st.integers(0, 9_999)}
)
usages = st.none() | st.fixed_dictionaries(
    {"billed_units": counts}, optional={"tokens": counts, "cached_tokens": st.integers(0, 99)}
)
names = st.sampled_from(["f", "g"])
calls = st.lists(st.tuples(st.text("abc1", min_size=1, max_size=4), names, text), max_size=3)
parts = st.lists(st.tuples(st.sampled_from(["text", "thinking"]), text), max_size=4)
answers = st.fixed_dictionaries(
    {"parts": parts, "plan": text, "calls": calls, "finish": st.sampled_from(list(FINISHES)), "usage": usages}
)


def wire_calls(said: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
        for identity, name, arguments in said
    ]


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_answer_reads_the_same(server: Capture, sdk: Any, answer: dict[str, Any]) -> None:
    message = {
        "role": "assistant",
        "content": [{"type": kind, kind: said} for kind, said in answer["parts"]],
        "tool_plan": answer["plan"],
        "tool_calls": wire_calls(answer["calls"]),
    }
    body = {"id": "x", "finish_reason": answer["finish"], "message": message, "usage": answer["usage"]}
    server.answer(body)
    two = sdk.chat(model=MODEL, messages=[USER])
    with client(server) as onym:
        one = onym.chat([USER])
    assert one.text == "".join(part.text for part in two.message.content if part.type == "text")
    thought = "".join(part.thinking for part in two.message.content if part.type == "thinking")
    assert (one.reasoning or "") == thought + two.message.tool_plan
    assert one.finish_reason == FINISHES[two.finish_reason]
    assert calls_of(one) == [
        (call.id, call.function.name, call.function.arguments) for call in two.message.tool_calls
    ]
    assert one.usage == usage_of(two.usage)
    assert one.raw == body


def streamed(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message-start", "id": "x", "delta": {"message": {"role": "assistant", "content": []}}}
    for index, (kind, said) in enumerate(answer["parts"]):
        opening = {"type": kind, kind: ""}
        yield {"type": "content-start", "index": index, "delta": {"message": {"content": opening}}}
        yield {"type": "content-delta", "index": index, "delta": {"message": {"content": {kind: said}}}}
        yield {"type": "content-end", "index": index}
    yield {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": answer["plan"]}}}
    for index, call in enumerate(wire_calls(answer["calls"])):
        arguments = call["function"].pop("arguments")
        call["function"]["arguments"] = arguments[:2]
        yield {"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": call}}}
        rest = {"function": {"arguments": arguments[2:]}}
        yield {"type": "tool-call-delta", "index": index, "delta": {"message": {"tool_calls": rest}}}
        yield {"type": "tool-call-end", "index": index}
    end = {"finish_reason": answer["finish"], "usage": answer["usage"]}
    yield {"type": "message-end", "id": "x", "delta": end}


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_stream_reads_the_same(server: Capture, sdk: Any, answer: dict[str, Any]) -> None:
    server.answer(named_events(*streamed(answer)), media="text/event-stream")
    two = list(sdk.chat_stream(model=MODEL, messages=[USER]))
    events, whole = read_stream(client(server), [USER])
    pieces = [item.delta.message.content for item in two if item.type == "content-delta"]
    plans = [item.delta.message.tool_plan for item in two if item.type == "tool-plan-delta"]
    assert texts_of(events) == [p.text for p in pieces if p.text]
    assert thoughts_of(events) == [said for said in [*(piece.thinking for piece in pieces), *plans] if said]
    starts = [item.delta.message.tool_calls for item in two if item.type == "tool-call-start"]
    deltas = [item for item in two if item.type == "tool-call-delta"]
    assert calls_of(whole) == [
        (
            start.id,
            start.function.name,
            start.function.arguments
            + "".join(d.delta.message.tool_calls.function.arguments for d in deltas if d.index == index),
        )
        for index, start in enumerate(starts)
    ]
    finish = finish_of(events)
    assert finish.reason == FINISHES[two[-1].delta.finish_reason]
    assert finish.usage == usage_of(two[-1].delta.usage)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 498, 499, 500, 501, 503, 504])
def test_each_status_that_the_sdk_has_an_error_for_is_a_typed_error_of_ours(
    server: Capture, sdk: Any, status: int
) -> None:
    server.answer({"id": "x", "message": "said"}, status=status)
    with pytest.raises(cohere.core.ApiError) as theirs:
        sdk.chat(model=MODEL, messages=[USER])
    assert type(theirs.value) is not cohere.core.ApiError
    with client(server, "retries=0") as onym, pytest.raises(ProviderError, match="said") as ours:
        onym.chat([USER])
    assert ours.value.status == theirs.value.status_code == status
