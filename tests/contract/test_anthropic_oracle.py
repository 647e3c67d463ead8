"""Anthropic's own SDK as the judge: it sends what we send, reads what we read, and its types take our bodies.

Two things differ on purpose: its version header (its 2026-10-21 takes no sampling parameters) and the header
that bears the key (the API takes both, and servers of the same shape know `x-api-key` alone).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from contract.capture import Capture, Recorded
from contract.oracle import (
    SCHEMA,
    UNICODE,
    both_ways,
    check_alike,
    each_call,
    named_events,
    often,
    put,
    read_stream,
)
from onym.errors import ProviderError
from onym.llm.dialects import Exchange, anthropic_messages
from onym.llm.types import DocumentPart, Finish, ImagePart, Message, TextPart, Tool, ToolCall, Usage
from onym.net.messages import Headers
from stream_support import texts_of, thoughts_of
from support import ImportedLate

anthropic: Any = ImportedLate("anthropic")
params: Any = ImportedLate("anthropic.types.message_create_params")

KEY = "sk-ant-test-key-0123456789"
MODEL = "claude-haiku-4-5"
#: what the next version of the API leaves out, and with it the SDK's types
GONE = {"temperature", "top_p", "top_k"}


@pytest.fixture(scope="module")
def sdk(server: Capture) -> Iterator[Any]:
    pinned = {"anthropic-version": "2023-06-01"}
    with anthropic.Anthropic(
        api_key=KEY, base_url=server.url, max_retries=0, default_headers=pinned
    ) as client:
        yield client


def block_start(index: int, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def message(*blocks: Any, **members: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
        **members,
    }


def pieces(text: str) -> list[str]:
    """A text in at most three pieces."""
    third = max(1, len(text) // 3)
    return [text[:third], text[third : 2 * third], text[2 * third :]] if text else []


def deltas(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A block as a stream writes it."""
    if block["type"] == "text":
        yield block_start(index, {"type": "text", "text": ""})
        yield from (delta(index, "text_delta", text=piece) for piece in pieces(block["text"]))
    elif block["type"] == "thinking":
        yield block_start(index, {"type": "thinking", "thinking": "", "signature": ""})
        yield from (delta(index, "thinking_delta", thinking=piece) for piece in pieces(block["thinking"]))
        yield delta(index, "signature_delta", signature=block["signature"])
    elif block["type"] == "tool_use":
        yield block_start(index, {**block, "input": {}})
        yield delta(index, "input_json_delta", partial_json="")
        arguments = json.dumps(block["input"]) if block["input"] else ""
        yield from (delta(index, "input_json_delta", partial_json=piece) for piece in pieces(arguments))
    else:
        yield block_start(index, block)
    yield {"type": "content_block_stop", "index": index}


def stream_of(whole: Mapping[str, Any]) -> bytes:
    """The same message, streamed."""
    usage = {**whole["usage"], "output_tokens": 1}
    first = {**whole, "content": [], "stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": first}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        events += deltas(index, block)
    last = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    counts = {name: value for name, value in whole["usage"].items() if name.startswith("output")}
    events.append({"type": "message_delta", "delta": last, "usage": counts})
    events.append({"type": "message_stop"})
    return named_events(*events)


HELLO = message({"type": "text", "text": "Hello"})


# the same call, sent by both

TOOL = Tool(name="weather", description="d", parameters=SCHEMA, strict=True)
WIRE_TOOL = {"name": "weather", "description": "d", "input_schema": SCHEMA, "strict": True}
PNG, PDF = b"\x89PNG", b"%PDF-1.7"
USER = Message(role="user", content="Hello")
WIRE_USER = {"role": "user", "content": "Hello"}


def base64(kind: str, media: str, data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media, "data": b64encode(data).decode()}
    return {"type": kind, "source": source}


def by_url(kind: str, url: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "url", "url": url}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


PICTURES = Message(
    role="user",
    content=(
        TextPart("What is this?"),
        ImagePart(url="https://example.org/a.png"),
        ImagePart(data=PNG, media_type="image/png"),
    ),
)
WIRE_PICTURES = {
    "role": "user",
    "content": [
        text("What is this?"),
        by_url("image", "https://example.org/a.png"),
        base64("image", "image/png", PNG),
    ],
}
DOCUMENTS = Message(
    role="user",
    content=(
        DocumentPart(data=PDF, name="report.pdf"),
        DocumentPart(url="https://example.org/a.pdf"),
        DocumentPart(data="Grüße".encode(), media_type="text/plain"),
    ),
)
WIRE_DOCUMENTS = {
    "role": "user",
    "content": [
        {**base64("document", "application/pdf", PDF), "title": "report.pdf"},
        by_url("document", "https://example.org/a.pdf"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}},
    ],
}
CALLED = (
    ToolCall(id="toolu_1", name="weather", arguments='{"name": "Oslo"}'),
    ToolCall(id="toolu_2", name="weather", arguments=""),
)
TURNS = (
    Message(role="system", content="Be brief."),
    USER,
    Message(role="assistant", content="Let me see.", tool_calls=CALLED),
    Message(role="tool", content="rain", tool_call_id="toolu_1"),
    Message(role="tool", content=(ImagePart(data=PNG),), tool_call_id="toolu_2"),
)
WIRE_TURNS = [
    WIRE_USER,
    {
        "role": "assistant",
        "content": [
            text("Let me see."),
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"name": "Oslo"}},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [base64("image", "image/png", PNG)]},
        ],
    },
]
FORMAT = {"format": {"type": "json_schema", "schema": SCHEMA}}

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
MARKED: Any = (
    {"role": "system", "content": [{"type": "text", "text": "Be brief.", **MARK}]},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?", **MARK},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}, **MARK},
            {
                "type": "file",
                "file": {"file_data": f"data:application/pdf;base64,{b64encode(PDF).decode()}"},
                **MARK,
            },
        ],
    },
)

#: what is asked of us (query of the URI, messages, overrides), and the same of the SDK
CALLS: dict[str, tuple[str, tuple[Message, ...], dict[str, Any], dict[str, Any]]] = {
    "plain": ("", (USER,), {}, {}),
    "parameters": (
        "temp=0.5&max_tokens=9&top_p=0.9&top_k=3&stop=a,b",
        (USER,),
        {},
        {
            "max_tokens": 9,
            "stop_sequences": ["a", "b"],
            "extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 3},
        },
    ),
    "tools of the provider": (
        "",
        (USER,),
        {"tools": [TOOL, SEARCH], "tool_choice": "web_search"},
        {"tools": [WIRE_TOOL, SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
    ),
    "a tool of the provider only": ("", (USER,), {"tools": [SEARCH]}, {"tools": [SEARCH]}),
    "cache marks": (
        "",
        MARKED,
        {"tools": [{"name": "now", "input_schema": {"type": "object"}, **MARK}]},
        {
            "system": [{**text("Be brief."), **MARK}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {**text("What is this?"), **MARK},
                        {**by_url("image", "https://example.org/a.png"), **MARK},
                        {**base64("document", "application/pdf", PDF), **MARK},
                    ],
                }
            ],
            "tools": [{"name": "now", "input_schema": {"type": "object"}, **MARK}],
        },
    ),
    "provider parameters": (
        "max_tokens=2048&thinking.type=enabled&thinking.budget_tokens=1024&metadata.user_id=u&service_tier=auto",
        (USER,),
        {},
        {
            "max_tokens": 2048,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "metadata": {"user_id": "u"},
            "service_tier": "auto",
        },
    ),
    "system": ("system=Be%20brief.", (USER,), {}, {"system": "Be brief."}),
    "images": ("", (PICTURES,), {}, {"messages": [WIRE_PICTURES]}),
    "documents": ("", (DOCUMENTS,), {}, {"messages": [WIRE_DOCUMENTS]}),
    "tools": (
        "",
        TURNS,
        {"tools": [TOOL], "tool_choice": "weather"},
        {
            "system": "Be brief.",
            "messages": WIRE_TURNS,
            "tools": [WIRE_TOOL],
            "tool_choice": {"type": "tool", "name": "weather"},
        },
    ),
    "a tool at least": (
        "tool_choice.disable_parallel_tool_use=true",
        (USER,),
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [WIRE_TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    ),
    "schema": (
        "output_config.effort=low",
        (USER,),
        {"schema": SCHEMA},
        {"output_config": {**FORMAT, "effort": "low"}},
    ),
    "cache": ("cache=true", (USER,), {}, {"cache_control": {"type": "ephemeral"}}),
    "unicode": (
        "",
        (Message(role="user", content=UNICODE),),
        {},
        {"messages": [{"role": "user", "content": UNICODE}]},
    ),
}


def client(server: Capture, query: str = "") -> Any:
    return server.client("anthropic", MODEL, query, key=KEY)


def ours(server: Capture, query: str, messages: Any, overrides: dict[str, Any], *, stream: bool) -> Recorded:
    put(client(server, query), messages, overrides, stream=stream)
    return server.last()


def theirs(server: Capture, sdk: Any, arguments: dict[str, Any], *, stream: bool) -> Recorded:
    given = {"model": MODEL, "max_tokens": 4096, "messages": [WIRE_USER], **arguments}
    if stream:
        list(sdk.messages.create(stream=True, **given))
    else:
        sdk.messages.create(**given)
    return server.last()


def answer(server: Capture, whole: Mapping[str, Any], *, stream: bool) -> None:
    if stream:
        server.answer(stream_of(whole), media="text/event-stream; charset=utf-8")
    else:
        server.answer(dict(whole))


@pytest.mark.requirement("llm-6-b", "llm-9-a", "llm-4.4-b", "onym-dialect-a")
@pytest.mark.filterwarnings("ignore::onym.errors.OnymWarning")
@both_ways
@each_call(CALLS)
def test_our_request_is_the_one_that_the_sdk_sends(
    server: Capture, sdk: Any, call: Any, stream: bool
) -> None:
    query, messages, overrides, arguments = call
    answer(server, HELLO, stream=stream)
    one = ours(server, query, messages, overrides, stream=stream)
    two = theirs(server, sdk, arguments, stream=stream)
    assert one.json == two.json
    assert (one.method, one.target) == ("POST", "/v1/messages")
    check_alike(one, two, "anthropic-version", "content-type", "accept")
    assert (one.headers["x-api-key"], two.headers["authorization"]) == (KEY, f"Bearer {KEY}")


def consume(value: Any) -> None:
    """Read what pydantic checks only as it is read."""
    if isinstance(value, Mapping):
        for item in value.values():
            consume(item)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            consume(item)


@cache
def load_kind(stream: bool) -> tuple[Any, Any]:
    """The SDK's type of a request and its adapter, which must stay alive while its results are read."""
    kind = params.MessageCreateParamsStreaming if stream else params.MessageCreateParamsNonStreaming
    return kind, TypeAdapter(kind)


def check(body: Any, *, stream: bool) -> None:
    kind, adapter = load_kind(stream)
    consume(adapter.validate_python(body))
    assert set(body) <= kind.__required_keys__ | kind.__optional_keys__ | GONE


@pytest.mark.requirement("onym-dialect-a")
@pytest.mark.filterwarnings("ignore::onym.errors.OnymWarning")
@both_ways
@each_call(CALLS)
def test_our_bodies_are_of_the_sdks_types(server: Capture, call: Any, stream: bool) -> None:
    query, messages, overrides, _ = call
    with client(server, query) as onym:
        check(onym.explain(messages, streaming=stream, **overrides).as_dict()["body"], stream=stream)


@pytest.mark.parametrize("wrong", [{"type": "text"}, {"type": "tool_result"}, {"type": "image", "source": 5}])
def test_the_sdks_types_refuse_what_is_wrong(wrong: Any) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [wrong]}]}
    with pytest.raises(ValidationError):
        check(body, stream=False)


MODELS = {
    "data": [
        {
            "type": "model",
            "id": MODEL,
            "display_name": "Claude",
            "created_at": "2025-10-15T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": 200_000,
            "max_tokens": 64_000,
        }
    ],
    "has_more": False,
    "first_id": MODEL,
    "last_id": MODEL,
}


@pytest.mark.requirement("onym-operation-a")
def test_models_are_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer(MODELS)
    with client(server) as onym:
        one, sent = onym.models(), server.last()
    two = sdk.models.list(limit=1000)
    assert (sent.method, sent.target) == (server.last().method, server.last().target)
    (found,), (wanted,) = one, two.data
    assert (found.id, found.context_window, found.max_output_tokens, found.created) == (
        wanted.id,
        wanted.max_input_tokens,
        wanted.max_tokens,
        int(wanted.created_at.timestamp()),
    )


def test_the_next_page_of_models_is_the_one_that_the_sdk_asks_for(server: Capture, sdk: Any) -> None:
    page = {**MODELS, "has_more": True, "last_id": "claude&x"}
    server.answer(page)
    wanted = sdk.models.list(limit=1000)
    found = anthropic_messages.decode_models(200, Headers(), json.dumps(page).encode(), Exchange())
    server.answer(MODELS)
    wanted.get_next_page()
    assert found.next is not None
    assert parse_qs(found.next) == parse_qs(urlsplit(server.last().target).query)


@pytest.mark.requirement("onym-operation-a")
def test_one_model_is_asked_for_and_read_as_the_sdk_does(server: Capture, sdk: Any) -> None:
    server.answer(cast("list[Any]", MODELS["data"])[0])
    with client(server) as onym:
        found, sent = onym.model(), server.last()
    wanted = sdk.models.retrieve(MODEL)
    assert (sent.method, sent.target) == (server.last().method, server.last().target)
    assert (found.id, found.context_window, found.max_output_tokens) == (
        wanted.id,
        wanted.max_input_tokens,
        wanted.max_tokens,
    )


# the same bytes, read by both

words = st.text(st.characters(codec="utf-8"), max_size=20)
counts = st.integers(0, 10_000)
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
inputs = st.dictionaries(words, plain | st.lists(plain, max_size=2), max_size=2)
blocks = st.one_of(
    st.builds(lambda said: {"type": "text", "text": said}, words),
    st.builds(
        lambda said, mark: {"type": "thinking", "thinking": said, "signature": mark},
        words,
        st.sampled_from(["", "c2ln"]),
    ),
    st.just({"type": "redacted_thinking", "data": "eA=="}),
    st.builds(
        lambda name, given: {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": given},
        st.sampled_from(["f", "g"]),
        inputs,
    ),
)
answers = st.builds(
    lambda content, reason, usage: message(*content, stop_reason=reason, usage=usage),
    st.lists(blocks, max_size=4),
    st.sampled_from(
        [
            "end_turn",
            "max_tokens",
            "stop_sequence",
            "tool_use",
            "pause_turn",
            "refusal",
            "model_context_window_exceeded",
        ]
    ),
    st.fixed_dictionaries(
        {"input_tokens": counts, "output_tokens": counts},
        optional={
            "cache_creation_input_tokens": st.none() | counts,
            "cache_read_input_tokens": st.none() | counts,
            "output_tokens_details": st.fixed_dictionaries({"thinking_tokens": counts}),
        },
    ),
)

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "other",
}


def usage_of(usage: Any) -> Usage:
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    details = usage.output_tokens_details
    return Usage(
        input_tokens=usage.input_tokens + (cached or 0) + (written or 0),
        output_tokens=usage.output_tokens,
        cached_tokens=cached,
        reasoning_tokens=details and details.thinking_tokens,
    )


def said(whole: Any, kind: str) -> str:
    return "".join(getattr(block, kind) for block in whole.content if block.type == kind)


def assert_same(one: Any, two: Any) -> None:
    assert one.text == said(two, "text")
    assert (one.reasoning or "") == said(two, "thinking")
    assert one.finish_reason == FINISHES[two.stop_reason]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in one.tool_calls] == [
        (block.id, block.name, block.input) for block in two.content if block.type == "tool_use"
    ]
    assert one.usage == usage_of(two.usage)
    assert one.model == two.model


def ask(sdk: Any, method: str = "create") -> Any:
    return getattr(sdk.messages, method)(model=MODEL, max_tokens=4096, messages=[WIRE_USER])


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_answer_reads_the_same(server: Capture, sdk: Any, whole: dict[str, Any]) -> None:
    answer(server, whole, stream=False)
    with client(server) as onym:
        one = onym.chat([USER])
    assert_same(one, ask(sdk))
    assert one.raw == whole


@pytest.mark.requirement("onym-dialect-b")
@often
@given(answers)
def test_the_same_stream_reads_the_same(server: Capture, sdk: Any, whole: dict[str, Any]) -> None:
    answer(server, whole, stream=True)
    with ask(sdk, "stream") as stream:
        events = list(stream)
        two = stream.get_final_message()
    found, one = read_stream(client(server), [USER])
    assert_same(one, two)
    assert texts_of(found) == [event.text for event in events if event.type == "text" and event.text]
    assert thoughts_of(found) == [
        event.thinking for event in events if event.type == "thinking" and event.thinking
    ]


@often
@given(answers)
def test_what_is_carried_is_the_same_whole_and_streamed_and_the_sdk_takes_it_back(
    whole: dict[str, Any],
) -> None:
    one = anthropic_messages.decode_chat(200, Headers(), json.dumps(whole).encode(), Exchange())
    decoder = anthropic_messages.StreamDecoder()
    finish = decoder.feed(stream_of(whole))[-1]
    assert isinstance(finish, Finish)
    assert finish.carried == one.carried
    signed = any(block.get("signature") or "data" in block for block in whole["content"])
    assert (one.carried is not None) == signed
    if one.carried is not None:
        turn = {"role": "assistant", "content": [dict(part) for part in one.carried.parts]}
        check({"model": MODEL, "max_tokens": 1, "messages": [WIRE_USER, turn]}, stream=False)


THOUGHT = message(
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "eA=="},
    text("Let me see."),
    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"name": "Oslo"}},
    stop_reason="tool_use",
)


@pytest.mark.requirement("onym-dialect-c")
@both_ways
def test_a_signed_turn_goes_back_as_the_sdk_sends_it_back(server: Capture, sdk: Any, stream: bool) -> None:
    answer(server, THOUGHT, stream=stream)
    with client(server) as onym:
        if stream:
            with onym.stream([USER], tools=[TOOL]) as events:
                finish = list(events)[-1]
            one = events.completion()
        else:
            finish = one = onym.chat([USER], tools=[TOOL])
        turn = Message(role="assistant", content=one.text, tool_calls=one.tool_calls, carried=finish.carried)
        result = Message(role="tool", content="rain", tool_call_id=one.tool_calls[0].id)
        answer(server, HELLO, stream=False)
        onym.chat([USER, turn, result], tools=[TOOL])
    sent = server.last().json
    answer(server, THOUGHT, stream=False)
    content = ask(sdk).content
    answers = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]
    sdk.messages.create(
        model=MODEL,
        max_tokens=4096,
        messages=[
            WIRE_USER,
            {"role": "assistant", "content": content},
            {"role": "user", "content": answers},
        ],
        tools=[WIRE_TOOL],
    )
    assert sent == server.last().json


FAILURES = [
    (400, "invalid_request_error"),
    (401, "authentication_error"),
    (402, "billing_error"),
    (403, "permission_error"),
    (404, "not_found_error"),
    (413, "request_too_large"),
    (429, "rate_limit_error"),
    (500, "api_error"),
    (504, "timeout_error"),
    (529, "overloaded_error"),
]


@pytest.mark.parametrize(("status", "kind"), FAILURES, ids=lambda value: str(value))
def test_the_same_failure_is_told_by_the_same_type(server: Capture, sdk: Any, status: int, kind: str) -> None:
    server.answer({"type": "error", "error": {"type": kind, "message": "said"}}, status=status)
    with pytest.raises(anthropic.APIStatusError) as wanted:
        ask(sdk)
    with client(server, "retries=0") as onym, pytest.raises(ProviderError) as found:
        onym.chat([USER])
    assert (found.value.status, found.value.provider_code) == (wanted.value.status_code, wanted.value.type)
