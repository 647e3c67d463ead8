"""Ollama's own SDK as the judge: it sends what we send, reads what we read, and its types take our bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.capture import Capture, Recorded
from contract.oracle import UNICODE, USER, both_ways, check_alike, each_call, often, put, read_stream, text
from onym.errors import NotFoundError, ServerError
from onym.llm import dialects
from onym.llm.client import Client
from onym.llm.types import ToolCallDelta
from stream_support import finish_of, texts_of, thoughts_of

ollama = pytest.importorskip("ollama")
from ollama._types import ChatRequest, EmbedRequest, Options  # noqa: E402

KEY = "test-key-0123456789"
MODEL = "llama3.2"


@pytest.fixture(scope="module")
def sdk(server: Capture) -> Iterator[Any]:
    with ollama.Client(host=server.url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield client


def client(server: Capture, query: str = "") -> Client:
    return server.client("ollama", MODEL, query, key=KEY)


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}
SYSTEM = {"role": "system", "content": "Be brief."}
PICTURE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAECAw=="}},
    ],
}
CALL = {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"name":"Oslo"}'}}
WIRE_CALL = {"function": {"name": "weather", "arguments": {"name": "Oslo"}}}

#: what is asked of us (query of the URI, messages, overrides), and the same of the SDK (messages, arguments)
CALLS: dict[str, tuple[str, Any, dict[str, Any], Any, dict[str, Any]]] = {
    "plain": ("", [USER], {}, [USER], {}),
    "parameters": (
        "temp=0.5&max_tokens=9&top_p=0.9&top_k=40&stop=a,b&seed=7",
        [USER],
        {},
        [USER],
        {
            "options": {
                "temperature": 0.5,
                "num_predict": 9,
                "top_p": 0.9,
                "top_k": 40,
                "stop": ["a", "b"],
                "seed": 7,
            }
        },
    ),
    "provider parameters": (
        "temp=0.5&options.num_ctx=8192&keep_alive=5m&think=true",
        [USER],
        {},
        [USER],
        {"options": {"temperature": 0.5, "num_ctx": 8192}, "keep_alive": "5m", "think": True},
    ),
    "options by their plain names": (
        "num_ctx=8192&repeat_penalty=1.1&temperature=0.5&options.min_p=0.05",
        [USER],
        {},
        [USER],
        {"options": {"num_ctx": 8192, "repeat_penalty": 1.1, "temperature": 0.5, "min_p": 0.05}},
    ),
    "system": ("", [SYSTEM, USER], {}, [SYSTEM, USER], {}),
    "system by the URI": ("system=Be%20brief.", [USER], {}, [SYSTEM, USER], {}),
    "images": (
        "",
        [PICTURE],
        {},
        [{"role": "user", "content": "What is this?", "images": [b"\x00\x01\x02\x03"]}],
        {},
    ),
    "tools": (
        "",
        [
            USER,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
        ],
        {"tools": [TOOL]},
        [
            USER,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [WIRE_CALL]},
            {"role": "tool", "tool_name": "weather", "content": "rain"},
        ],
        {"tools": [TOOL]},
    ),
    "thinking": (
        "",
        [USER, {"role": "assistant", "content": "Well.", "thinking": "hm", "tool_calls": [CALL]}],
        {},
        [USER, {"role": "assistant", "content": "Well.", "thinking": "hm", "tool_calls": [WIRE_CALL]}],
        {},
    ),
    "no tools now": ("", [USER], {"tools": [TOOL], "tool_choice": "none"}, [USER], {}),
    "json": ("format=json", [USER], {}, [USER], {"format": "json"}),
    "schema": ("", [USER], {"schema": SCHEMA}, [USER], {"format": SCHEMA}),
    "unicode": (
        "",
        [{"role": "user", "content": UNICODE}],
        {},
        [{"role": "user", "content": UNICODE}],
        {},
    ),
}


def test_every_option_of_the_sdk_that_acts_on_a_chat_has_a_place_in_options() -> None:
    elsewhere = {"stop", "seed", "top_k", "top_p"}  # well-known names
    not_for_chat = {"logits_all", "vocab_only", "embedding_only"}
    for name in set(Options.model_fields) - elsewhere - not_for_chat:
        assert dialects.get_dialect("ollama").parameters[name] == f"options.{name}"


def said(**message: Any) -> dict[str, Any]:
    return {"model": MODEL, "message": {"role": "assistant", "content": "", **message}, "done": False}


ANSWER = {**said(), "done": True, "done_reason": "stop"}


def ndjson(*records: Any) -> bytes:
    return b"".join(f"{json.dumps(record)}\n".encode() for record in records)


def answer(server: Capture, *, stream: bool) -> None:
    if stream:
        server.answer(ndjson(ANSWER), media="application/x-ndjson")
    else:
        server.answer(ANSWER)


def ours(server: Capture, query: str, messages: Any, overrides: Any, *, stream: bool) -> Recorded:
    put(client(server, query), messages, overrides, stream=stream)
    return server.last()


def theirs(server: Capture, sdk: Any, messages: Any, arguments: Any, *, stream: bool) -> Recorded:
    found = sdk.chat(model=MODEL, messages=messages, stream=stream, **arguments)
    if stream:
        list(found)
    return server.last()


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """Without the empty list of tools that the SDK sends where there are none."""
    return {name: value for name, value in body.items() if name != "tools" or value}


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
    assert one.json == plain(two.json)
    check_alike(one, two, "authorization", "content-type")


def typed_message(message: dict[str, Any]) -> Any:
    images = [ollama.Image(value=item) for item in message.get("images", ())]
    return ollama.Message.model_validate({**message, **({"images": images} if images else {})})


@pytest.mark.requirement("onym-dialect-a")
@both_ways
@each_call(CALLS)
def test_our_bodies_are_of_the_sdks_types(server: Capture, call: Any, stream: bool) -> None:
    query, messages, overrides, _, _ = call
    answer(server, stream=stream)
    body = ours(server, query, messages, overrides, stream=stream).json
    typed = {**body, "messages": [typed_message(item) for item in body["messages"]]}
    # what the types do not know, they leave out
    assert ChatRequest.model_validate(typed).model_dump(exclude_none=True) == body


@pytest.mark.requirement("onym-operation-a")
def test_vectors_are_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer({"model": MODEL, "embeddings": [[0.5, -1], [0.25, 2.0]], "prompt_eval_count": 3})
    two = sdk.embed(MODEL, ["a", "bb"], truncate=False, dimensions=2)
    wanted = server.last()
    with client(server) as onym:
        one = onym.embed(["a", "bb"], extra={"dimensions": 2, "truncate": False})
    sent = server.last()
    assert (sent.method, sent.target, sent.json) == (wanted.method, wanted.target, wanted.json)
    assert EmbedRequest.model_validate(sent.json).model_dump(exclude_none=True) == sent.json
    assert [list(vector) for vector in one.vectors] == two.embeddings
    assert (one.model, one.usage.input_tokens) == (two.model, two.prompt_eval_count)


@pytest.mark.requirement("onym-operation-a")
def test_models_are_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer(
        {"models": [{"name": "a:1", "model": "a:1", "size": 5}, {"name": "b", "model": "b:latest"}]}
    )
    two = sdk.list()
    wanted = server.last()
    with client(server) as onym:
        one = onym.models()
    assert (server.last().method, server.last().target) == (wanted.method, wanted.target)
    assert [item.id for item in one] == [model.model for model in two.models]


@pytest.mark.requirement("onym-operation-a")
def test_one_model_is_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    facts = {"general.architecture": "llama", "llama.context_length": 131072}
    server.answer({"model_info": facts, "details": {"family": "llama"}, "capabilities": ["completion"]})
    two = sdk.show(MODEL)
    wanted = server.last()
    with client(server) as onym:
        one = onym.model()
    sent = server.last()
    assert (sent.method, sent.target, sent.json) == (wanted.method, wanted.target, wanted.json)
    assert (one.id, one.context_window) == (MODEL, two.modelinfo["llama.context_length"])
    assert one.raw["capabilities"] == two.capabilities


# the same bytes, read by both

FINISHES = {"stop": "stop", "length": "length", "load": "other"}
counts = st.integers(0, 9_999)
arguments = st.dictionaries(text, st.none() | st.booleans() | st.integers(-99, 99) | text, max_size=3)
calls = st.lists(st.tuples(st.sampled_from(["f", "g"]), arguments), max_size=3)
ends = st.fixed_dictionaries(
    {"done": st.just(True), "done_reason": st.sampled_from(list(FINISHES))},
    optional={"prompt_eval_count": counts, "eval_count": counts, "total_duration": counts},
)
pieces = st.fixed_dictionaries({"content": text}, optional={"thinking": text, "calls": calls})


def message_of(piece: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", **piece}
    if "calls" in piece:
        found = message.pop("calls")
        message["tool_calls"] = [{"function": {"name": name, "arguments": given}} for name, given in found]
    return message


def calls_of(message: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.function.name, dict(call.function.arguments)) for call in message.tool_calls or ()]


@pytest.mark.requirement("onym-dialect-b")
@often
@given(pieces, ends)
def test_the_same_answer_reads_the_same(
    server: Capture, sdk: Any, piece: dict[str, Any], end: dict[str, Any]
) -> None:
    body = {"model": MODEL, "message": message_of(piece), **end}
    server.answer(body)
    two = sdk.chat(model=MODEL, messages=[USER])
    with client(server) as onym:
        one = onym.chat([USER])
    assert (one.text, one.reasoning or "") == (two.message.content, two.message.thinking or "")
    found = calls_of(two.message)
    assert [(call.name, json.loads(call.arguments)) for call in one.tool_calls] == found
    assert [call.id for call in one.tool_calls] == [f"call_{index}" for index in range(len(found))]
    assert one.finish_reason == ("tool_calls" if found else FINISHES[two.done_reason])
    assert (one.usage.input_tokens, one.usage.output_tokens) == (two.prompt_eval_count, two.eval_count)
    assert (one.model, one.raw) == (two.model, body)


@pytest.mark.requirement("onym-dialect-b")
@often
@given(st.lists(pieces, max_size=4), ends)
def test_the_same_stream_reads_the_same(
    server: Capture, sdk: Any, given: list[dict[str, Any]], end: dict[str, Any]
) -> None:
    records = [{"model": MODEL, "message": message_of(piece), "done": False} for piece in given]
    server.answer(ndjson(*records, {**said(), **end}), media="application/x-ndjson")
    two = list(sdk.chat(model=MODEL, messages=[USER], stream=True))
    events, _ = read_stream(client(server), [USER])
    messages = [chunk.message for chunk in two]
    assert texts_of(events) == [item.content for item in messages if item.content]
    assert thoughts_of(events) == [item.thinking for item in messages if item.thinking]
    asked = [event for event in events if isinstance(event, ToolCallDelta)]
    found = [call for message in messages for call in calls_of(message)]
    assert [(item.name, json.loads(item.arguments)) for item in asked] == found
    assert [item.index for item in asked] == list(range(len(found)))
    finish = finish_of(events)
    last = two[-1]
    assert finish.reason == ("tool_calls" if found else FINISHES[last.done_reason])
    assert (finish.usage.input_tokens, finish.usage.output_tokens) == (
        last.prompt_eval_count,
        last.eval_count,
    )


def test_an_error_before_and_inside_a_stream_is_one_for_both(server: Capture, sdk: Any) -> None:
    server.answer({"error": "model 'm' not found"}, status=404)
    with pytest.raises(ollama.ResponseError, match="not found"):
        list(sdk.chat(model=MODEL, messages=[USER], stream=True))
    with client(server) as onym, pytest.raises(NotFoundError), onym.stream([USER]) as stream:
        list(stream)
    server.answer(ndjson(said(content="a"), {"error": "out of memory"}), media="application/x-ndjson")
    with pytest.raises(ollama.ResponseError, match="out of memory"):
        list(sdk.chat(model=MODEL, messages=[USER], stream=True))
    with client(server) as onym, onym.stream([USER]) as stream, pytest.raises(ServerError):
        list(stream)
