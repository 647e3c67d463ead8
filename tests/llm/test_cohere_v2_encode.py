"""What the Cohere dialect writes."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import UnsupportedError, UsageError
from onym.llm import dialects
from onym.llm.dialects import Routes, WireSpec, cohere_v2
from onym.llm.types import (
    Carried,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    Request,
    Role,
    TextPart,
    Tool,
    ToolCall,
)

USER = Message(role="user", content="Hi")
CALL = ToolCall(id="c1", name="weather", arguments='{"city":"Oslo"}')
WIRE_CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def encode(*messages: Message, names: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    made = Request(model="m", messages=messages or (USER,), **request)
    return cohere_v2.encode_chat(made, WireSpec(names=names or {}))


def test_the_dialect_is_found_by_its_name_and_says_where_it_is_spoken() -> None:
    dialect = dialects.get_dialect("cohere_v2")
    assert dialect.name == "cohere_v2"
    assert dialect.routes == Routes(
        chat="/v2/chat", embed="/v2/embed", models="/v1/models?page_size=1000", model="/v1/models/{model}"
    )
    assert (tuple(dialect.headers), dict(dialect.defaults)) == ((), {})
    assert dict(dialect.parameters) == {
        "temp": "temperature",
        "max_tokens": "max_tokens",
        "top_p": "p",
        "top_k": "k",
        "stop": "stop_sequences",
        "seed": "seed",
        "stream": "stream",
        "format": "response_format",
        "system": "messages[0]",
    }


def test_a_plain_request_says_whether_it_is_streamed_and_nothing_more() -> None:
    assert encode() == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
    assert encode(stream=True)["stream"] is True


@pytest.mark.requirement("llm-6-b", "llm-9-a")
def test_well_known_parameters_have_the_names_of_the_api() -> None:
    params = {"temp": 0.5, "max_tokens": 7, "top_p": 0.9, "top_k": 3, "stop": ("a", "b"), "seed": 1}
    body = encode(params=params)
    del body["model"], body["messages"], body["stream"]
    assert body == {
        "temperature": 0.5, "max_tokens": 7, "p": 0.9, "k": 3, "stop_sequences": ["a", "b"], "seed": 1
    }  # fmt: skip


def test_a_name_of_the_spec_goes_before_that_of_the_dialect() -> None:
    body = encode(params={"top_p": 0.5}, names={"top_p": "sampling.p"})
    assert body["sampling"] == {"p": 0.5}
    assert "p" not in body


@pytest.mark.requirement("llm-4.4-b", "llm-6-e")
def test_pass_through_parameters_reach_the_body_and_replace_nothing_in_it() -> None:
    extra = {"safety_mode": "STRICT", "model": "evil", "messages": [], "stream": True, "p": 9}
    body = encode(params={"top_p": 0.5}, extra={**extra, "thinking": {"type": "disabled"}})
    assert (body["safety_mode"], body["thinking"]) == ("STRICT", {"type": "disabled"})
    assert (body["model"], body["p"], body["stream"]) == ("m", 0.5, False)
    assert body["messages"] == [{"role": "user", "content": "Hi"}]


def test_formats_are_response_formats_with_the_schema_in_them() -> None:
    assert encode(params={"format": "json"})["response_format"] == {"type": "json_object"}
    body = encode(params={"format": "json_schema"}, schema=SCHEMA)
    assert body["response_format"] == {"type": "json_object", "json_schema": SCHEMA}


def test_system_messages_become_one_at_the_head() -> None:
    late = Message(role="system", content=(TextPart("Be kind."), TextPart("Be clear.")))
    body = encode(Message(role="system", content="Be brief."), USER, late)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind.\n\nBe clear."},
        {"role": "user", "content": "Hi"},
    ]


def test_images_go_by_url_or_as_data() -> None:
    content = (
        TextPart("look"),
        ImagePart(url="https://example.org/a.png", detail="low"),
        ImagePart(data=b"\x00\x01", media_type="image/jpeg"),
    )
    (sent,) = encode(Message(role="user", content=content))["messages"]
    assert sent["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAE="}},
    ]


def test_a_tool_conversation_is_written_turn_by_turn() -> None:
    document = DocumentPart(data=b'{"sky":"grey"}', media_type="application/json", name="d1")
    messages = (
        USER,
        Message(role="assistant", tool_calls=(CALL,)),
        Message(role="tool", content="rain", tool_call_id="c1", name="weather"),
        Message(
            role="tool",
            content=(
                TextPart("and"),
                document,
                DocumentPart(data="Grüße".encode(), media_type="text/plain; charset=utf-8"),
            ),
            tool_call_id="c1",
        ),
        Message(role="assistant", content="It rains.", tool_calls=(CALL,)),
        Message(role="assistant", content=(TextPart("It"), TextPart(" rains."))),
        Message(role="assistant"),
    )
    _, asked, answer, parts, both, pieces, empty = encode(*messages)["messages"]
    assert asked == {"role": "assistant", "tool_calls": [WIRE_CALL]}
    assert answer == {"role": "tool", "tool_call_id": "c1", "content": "rain"}
    assert parts["content"] == [
        {"type": "text", "text": "and"},
        {"type": "document", "document": {"data": {"sky": "grey"}, "id": "d1"}},
        {"type": "document", "document": {"data": {"text": "Grüße"}}},
    ]
    assert both == {"role": "assistant", "content": "It rains.", "tool_calls": [WIRE_CALL]}
    assert pieces["content"] == [{"type": "text", "text": "It"}, {"type": "text", "text": " rains."}]
    assert empty == {"role": "assistant", "content": ""}


def test_what_another_dialect_carried_is_left_out() -> None:
    carried = Carried(dialect="anthropic_messages", parts=({"type": "thinking"},))
    (sent,) = encode(Message(role="assistant", content="Hi", carried=carried))["messages"]
    assert sent == {"role": "assistant", "content": "Hi"}


PDF = DocumentPart(data=b"%PDF")
REFUSED: dict[str, tuple[Role, ContentPart, str]] = {
    "a document of the user": ("user", PDF, "documents.*user"),
    "an image of the assistant": ("assistant", ImagePart(data=b"x"), "images.*assistant"),
    "a document of the system": ("system", PDF, "documents.*system"),
    "an image from a tool": ("tool", ImagePart(data=b"x"), "images.*tool"),
    "a PDF from a tool": ("tool", PDF, "documents.*text"),
    "a URL from a tool": ("tool", DocumentPart(url="https://example.org/a"), "documents.*URL"),
}


@pytest.mark.parametrize(("role", "part", "what"), REFUSED.values(), ids=REFUSED.keys())
def test_a_part_that_has_no_place_is_refused(role: Role, part: ContentPart, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what) as caught:
        encode(Message(role=role, content=(part,), tool_call_id="c1" if role == "tool" else None))
    assert (caught.value.code, caught.value.parameter) == ("llm.no-part", "messages")


@pytest.mark.parametrize(
    ("data", "media"),
    [(b"[1]", "application/json"), (b"{", "application/json"), (b"[" * 100_000, "application/json"),
     (b"\xff", "text/plain")],
)  # fmt: skip
def test_a_document_that_is_not_what_it_says_is_a_mistake_of_the_caller(data: bytes, media: str) -> None:
    part = DocumentPart(data=data, media_type=media)
    with pytest.raises(UsageError) as caught:
        encode(Message(role="tool", tool_call_id="c1", content=(part,)))
    assert caught.value.code == "usage.bad-message"


def test_tools_have_a_schema_even_where_there_is_none() -> None:
    body = encode(tools=(Tool(name="a"), Tool(name="b", description="B", parameters=SCHEMA)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "b", "description": "B", "parameters": SCHEMA}},
    ]
    assert not {"strict_tools", "tool_choice"} & set(body)


@pytest.mark.parametrize(
    ("strict", "sent"), [((True, None), True), ((True, True), True), ((False, None), None)]
)
def test_one_switch_holds_all_tools_to_their_schemas(strict: Any, sent: bool | None) -> None:
    tools = tuple(Tool(name=f"t{index}", strict=item) for index, item in enumerate(strict))
    assert encode(tools=tools).get("strict_tools") is sent


def test_tools_of_which_some_are_strict_and_some_are_not_are_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(tools=(Tool(name="a", strict=True), Tool(name="b", strict=False)))
    assert (caught.value.code, caught.value.parameter) == ("llm.no-strict-tools", "tools")


@pytest.mark.parametrize(
    ("choice", "sent"), [(None, None), ("auto", None), ("none", "NONE"), ("required", "REQUIRED")]
)
def test_a_tool_choice_is_a_word_in_capitals_or_nothing(choice: str | None, sent: str | None) -> None:
    assert encode(tools=(Tool(name="a"),), tool_choice=choice).get("tool_choice") == sent


def test_a_tool_cannot_be_named() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(tools=(Tool(name="a"),), tool_choice="a")
    assert (caught.value.code, caught.value.parameter) == ("llm.no-tool-choice", "tool_choice")
    assert caught.value.hint is not None


def test_vectors_are_asked_for_as_floats_of_documents() -> None:
    assert cohere_v2.encode_embed("e", ("a", "b"), {}) == {
        "model": "e",
        "texts": ["a", "b"],
        "input_type": "search_document",
        "embedding_types": ["float"],
    }


def test_what_the_caller_says_of_vectors_counts() -> None:
    extra = {"dimensions": 256, "input_type": "search_query", "embedding_types": ["int8"], "truncate": "END"}
    assert cohere_v2.encode_embed("e", ("a",), {**extra, "model": "evil"}) == {
        "model": "e",
        "texts": ["a"],
        "input_type": "search_query",
        "embedding_types": ["int8"],
        "output_dimension": 256,
        "truncate": "END",
    }
    assert extra["dimensions"] == 256
