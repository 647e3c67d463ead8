"""Mistral's own SDK as the judge of the row `mistral`: it sends what we send, and reads what we read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.capture import Capture, Recorded
from contract.oracle import (
    JSON_SCHEMA,
    PICTURE,
    SCHEMA,
    STRICT,
    TOOL,
    UNICODE,
    USER,
    both_ways,
    calls_of,
    check_alike,
    each_call,
    often,
    put,
    read_stream,
)
from onym.errors import AuthenticationError, BadRequestError, NotFoundError, RateLimitError
from onym.llm.types import DocumentPart, Message, TextPart, Usage
from stream_support import finish_of, texts_of, thoughts_of

pytest.importorskip("mistralai")
from mistralai.client import Mistral
from mistralai.client.errors import MistralError
from mistralai.client.models import ChatCompletionRequest, ChatCompletionStreamRequest, TextChunk, ThinkChunk

KEY = "test-key-0123456789"
MODEL = "mistral-large-latest"


@pytest.fixture(scope="module")
def sdk(server: Capture) -> Iterator[Any]:
    with Mistral(api_key=KEY, server_url=server.url) as client:
        yield client


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
TURNS = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
    USER,
]

RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "rain"}
THOUGHT = {"role": "assistant", "content": "Let me see.", "reasoning_content": "hm", "tool_calls": [CALL]}
WIRE_THOUGHT = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Let me see."},
    ],
    "tool_calls": [CALL],
}
RECORDING = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is said?"},
        {"type": "input_audio", "input_audio": {"data": "AAECAw==", "format": "mp3"}},
    ],
}
WIRE_RECORDING = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is said?"},
        {"type": "input_audio", "input_audio": "AAECAw=="},
    ],
}

#: what is asked of us (query of the URI, messages, overrides), and the same of the SDK
CALLS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "plain": ("", [USER], {}, {}),
    "parameters": (
        "temp=0.5&max_tokens=9&top_p=0.9&stop=a,b&seed=7",
        [USER],
        {},
        {"temperature": 0.5, "max_tokens": 9, "top_p": 0.9, "stop": ["a", "b"], "random_seed": 7},
    ),
    "provider parameters": (
        "safe_prompt=true&presence_penalty=0.5&prompt_mode=reasoning&reasoning_effort=high",
        [USER],
        {},
        {
            "safe_prompt": True,
            "presence_penalty": 0.5,
            "prompt_mode": "reasoning",
            "reasoning_effort": "high",
        },
    ),
    "images": ("", [PICTURE], {}, {}),
    "tools": (
        "",
        TURNS,
        {"tools": [TOOL, STRICT], "tool_choice": "weather"},
        {
            "tools": [TOOL, STRICT],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
        },
    ),
    "a tool that has to be called": (
        "",
        [USER],
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": "required"},
    ),
    "tools of the provider": (
        "",
        [USER],
        {"tools": [TOOL, {"type": "image_generation"}]},
        {"tools": [TOOL, {"type": "image_generation"}]},
    ),
    "thinking": ("", [USER, THOUGHT, RESULT], {}, {"messages": [USER, WIRE_THOUGHT, RESULT]}),
    "audio": ("", [RECORDING], {}, {"messages": [WIRE_RECORDING]}),
    "json": ("format=json", [USER], {}, {"response_format": {"type": "json_object"}}),
    "schema": ("", [USER], {"schema": SCHEMA}, {"response_format": JSON_SCHEMA}),
    "unicode": ("", [{"role": "user", "content": UNICODE}], {}, {}),
}


def completion(message: dict[str, Any], finish: str = "stop", **usage: int) -> dict[str, Any]:
    counted = usage or {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": counted,
    }


def sse(whole: dict[str, Any]) -> bytes:
    """The chunks in which Mistral streams this answer: usage comes in the last one, unasked."""
    (choice,) = whole["choices"]
    message = choice["message"]
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    content = message.get("content")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": [part]} if isinstance(part, dict) else {"content": part} for part in content or ()]
    if message.get("tool_calls"):
        deltas.append({"content": "", "tool_calls": message["tool_calls"]})
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": choice["finish_reason"]}
    chunks.append({**head, "choices": [last], "usage": whole["usage"]})
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def answer(server: Capture, whole: dict[str, Any], *, stream: bool) -> None:
    if stream:
        server.answer(sse(whole), media="text/event-stream")
    else:
        server.answer(whole)


HI = completion({"content": "Hi"})


def ours(server: Capture, query: str, messages: Any, overrides: dict[str, Any], *, stream: bool) -> Recorded:
    answer(server, HI, stream=stream)
    put(server.client("mistral", MODEL, query, key=KEY), messages, overrides, stream=stream)
    return server.last()


def theirs(server: Capture, sdk: Any, messages: Any, arguments: dict[str, Any], *, stream: bool) -> Recorded:
    answer(server, HI, stream=stream)
    arguments = {"messages": messages, **arguments}
    if stream:
        list(sdk.chat.stream(model=MODEL, **arguments))
    else:
        sdk.chat.complete(model=MODEL, **arguments)
    return server.last()


#: what the SDK writes though it says the same as nothing
DEFAULTS = ("stream", False), ("prefix", False), ("index", 0)


def said(value: Any) -> Any:
    """A body without what says the same as nothing."""
    if isinstance(value, list):
        return [said(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: said(item) for name, item in value.items() if (name, item) not in DEFAULTS}


@pytest.mark.requirement("llm-6-b", "llm-9-a", "llm-4.4-b", "onym-dialect-a")
@both_ways
@each_call(CALLS)
def test_our_request_is_the_one_that_the_sdk_sends(
    server: Capture, sdk: Any, call: Any, stream: bool
) -> None:
    query, messages, overrides, arguments = call
    one = ours(server, query, messages, overrides, stream=stream)
    two = theirs(server, sdk, messages, arguments, stream=stream)
    assert said(one.json) == said(two.json)
    assert (one.method, one.target) == ("POST", "/v1/chat/completions")
    check_alike(one, two, "authorization", "content-type")


@pytest.mark.requirement("onym-dialect-a")
@both_ways
@each_call(CALLS)
def test_our_bodies_are_of_the_sdks_types(server: Capture, call: Any, stream: bool) -> None:
    query, messages, overrides, _ = call
    body = ours(server, query, messages, overrides, stream=stream).json
    kind = ChatCompletionStreamRequest if stream else ChatCompletionRequest
    taken = kind.model_validate(body)
    assert set(body) <= {field.alias or name for name, field in kind.model_fields.items()}
    assert said(json.loads(taken.model_dump_json(by_alias=True))) == said(body)


def chat_types(body: dict[str, Any]) -> None:
    """Raises ValueError where the SDK's types do not take this body whole."""
    taken = json.loads(ChatCompletionRequest.model_validate(body).model_dump_json(by_alias=True))
    if said(taken) != said(body):
        raise ValueError("a member is not known")


def test_a_tool_without_arguments_is_of_the_sdks_types(server: Capture) -> None:
    overrides = {"tools": [{"type": "function", "function": {"name": "now"}}]}
    chat_types(ours(server, "", [USER], overrides, stream=False).json)


def test_a_message_with_a_name_is_of_the_sdks_types(server: Capture) -> None:
    chat_types(ours(server, "", [{**USER, "name": "Ann"}], {}, stream=False).json)


@pytest.mark.parametrize(
    "document",
    [
        DocumentPart(data=b"%PDF"),
        DocumentPart(url="https://example.org/a.pdf"),
        DocumentPart(data=b"RIFF", media_type="audio/wav"),
        DocumentPart(url="https://example.org/a.mp3", media_type="audio/mpeg"),
    ],
)
def test_a_document_is_of_the_sdks_types(server: Capture, document: DocumentPart) -> None:
    message = Message(role="user", content=(TextPart("Read."), document))
    chat_types(ours(server, "", [message], {}, stream=False).json)


def test_the_dimensions_of_vectors_are_of_the_sdks_types(server: Capture) -> None:
    vectors = [{"object": "embedding", "index": 0, "embedding": [1, 0.5]}]
    server.answer({"id": "x", "object": "list", "model": "e", "data": vectors, "usage": {}})
    with server.client("mistral", "mistral-embed", key=KEY) as client:
        client.embed(["a"], extra={"dimensions": 2})
    assert server.last().json == {"model": "mistral-embed", "input": ["a"], "output_dimension": 2}


@pytest.mark.requirement("onym-operation-a")
def test_vectors_are_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}
    vectors = [{"object": "embedding", "index": at, "embedding": [at, 0.5]} for at in range(2)]
    server.answer({"id": "x", "object": "list", "model": "e", "data": vectors, "usage": usage})
    with server.client("mistral", "mistral-embed", key=KEY) as client:
        one = client.embed(["a", "bb"])
    two = sdk.embeddings.create(model="mistral-embed", inputs=["a", "bb"])
    assert [list(vector) for vector in one.vectors] == [answer.embedding for answer in two.data]
    assert (one.model, one.usage.input_tokens) == (two.model, two.usage.prompt_tokens)
    a, b = server.requests[-2:]
    assert (a.method, a.target, a.json) == (b.method, b.target, b.json)


@pytest.mark.requirement("onym-operation-a")
def test_models_are_listed_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    record = {"id": "m", "object": "model", "type": "base", "capabilities": {"vision": True}}
    facts = {"created": 5, "owned_by": "mistralai", "max_context_length": 131072}
    server.answer({"object": "list", "data": [{**record, **facts}]})
    with server.client("mistral", MODEL, key=KEY) as client:
        (one,) = client.models()
    (two,) = sdk.models.list().data
    assert (one.id, one.created, one.owner, one.context_window) == (
        two.id,
        two.created,
        two.owned_by,
        two.max_context_length,
    )
    a, b = server.requests[-2:]
    assert (a.method, a.target) == (b.method, b.target) == ("GET", "/v1/models")


# the same bytes, read by both

text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
counts = st.integers(0, 10_000)
written = st.builds(lambda text: {"type": "text", "text": text}, text)
thoughts = st.builds(
    lambda texts: {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts]},
    st.lists(text, min_size=1, max_size=2),
)
references = st.just({"type": "reference", "reference_ids": [1, 2]})
calls = st.lists(
    st.builds(
        lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
        st.sampled_from(["f", "g"]),
        text,
    ),
    max_size=2,
).map(lambda found: [{**call, "id": f"call{at:05}", "index": at} for at, call in enumerate(found)])
contents = st.none() | text | st.lists(written | thoughts | references, min_size=1, max_size=4)
answers = st.builds(
    lambda content, calls, finish, taken, given: completion(
        {"content": content, "tool_calls": calls or None},
        finish,
        prompt_tokens=taken,
        completion_tokens=given,
        total_tokens=taken + given,
    ),
    contents,
    calls,
    st.sampled_from(["stop", "length", "model_length", "tool_calls", "error"]),
    counts,
    counts,
)
FINISHES = {"model_length": "length", "error": "other"}


def text_and_thought(content: Any) -> tuple[str, str]:
    """Text and reasoning of a content as the SDK reads it."""
    if not isinstance(content, list):
        return content or "", ""
    text = [part.text for part in content if part.type == "text"]
    thought = [item for part in content if isinstance(part, ThinkChunk) for item in part.thinking]
    return "".join(text), "".join(item.text for item in thought if isinstance(item, TextChunk))


def sdk_calls_of(calls: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in calls or ()]


def usage_of(usage: Any) -> Usage:
    return Usage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_answer_reads_the_same(server: Capture, sdk: Any, whole: dict[str, Any]) -> None:
    answer(server, whole, stream=False)
    with server.client("mistral", MODEL, key=KEY) as client:
        one = client.chat([USER])
    two = sdk.chat.complete(model=MODEL, messages=[USER])
    (choice,) = two.choices
    assert (one.text, one.reasoning or "") == text_and_thought(choice.message.content)
    assert calls_of(one) == sdk_calls_of(choice.message.tool_calls)
    assert one.finish_reason == FINISHES.get(choice.finish_reason, choice.finish_reason)
    assert (one.model, one.usage) == (two.model, usage_of(two.usage))


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_stream_reads_the_same(server: Capture, sdk: Any, whole: dict[str, Any]) -> None:
    answer(server, whole, stream=True)
    events, one = read_stream(server.client("mistral", MODEL, key=KEY), [USER])
    chunks = [item.data for item in sdk.chat.stream(model=MODEL, messages=[USER])]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    pieces = [text_and_thought(choice.delta.content) for choice in choices]
    assert texts_of(events) == [text for text, _ in pieces if text]
    assert thoughts_of(events) == [thought for _, thought in pieces if thought]
    assert calls_of(one) == [call for choice in choices for call in sdk_calls_of(choice.delta.tool_calls)]
    finish = finish_of(events)
    reason = choices[-1].finish_reason
    assert finish.reason == FINISHES.get(reason, reason)
    assert (finish.model, finish.usage) == (chunks[-1].model, usage_of(chunks[-1].usage))


FORBIDDEN = {
    "object": "error",
    "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "n"], "msg": "not permitted"}]},
    "type": "invalid_request_error",
    "param": None,
    "code": None,
}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"message": "Unauthorized", "request_id": "r"}, AuthenticationError),
        (401, {"detail": "Unauthorized"}, AuthenticationError),
        (400, {"object": "error", "message": "m", "type": "invalid_model", "code": "1500"}, BadRequestError),
        (422, FORBIDDEN, BadRequestError),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "m", "type": "extra_forbidden"}]}, BadRequestError),
        (404, {"message": "no Route matched with those values"}, NotFoundError),
        (429, {"message": "Requests rate limit exceeded"}, RateLimitError),
        (429, {"object": "error", "type": "rate_limited", "code": "1300"}, RateLimitError),
    ],
)
def test_what_the_sdk_raises_is_a_typed_error(
    server: Capture, sdk: Any, status: int, body: Any, kind: type[Exception]
) -> None:
    server.answer(body, status=status)
    with pytest.raises(MistralError) as caught:
        sdk.chat.complete(model=MODEL, messages=[USER])
    assert caught.value.status_code == status
    client = server.client("mistral", MODEL, "retries=0", key=KEY)
    with client, pytest.raises(kind) as found:
        client.chat([USER])
    assert type(found.value) is kind
