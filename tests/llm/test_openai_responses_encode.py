"""What the OpenAI Responses dialect writes."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import UnsupportedError, UsageError
from onym.llm import dialects
from onym.llm.dialects import WireSpec, openai_responses
from onym.llm.types import Carried, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

USER = Message(role="user", content="Hi")
WIRE_USER = {"type": "message", "role": "user", "content": "Hi"}

#: an object that takes no other members
CLOSED = {"additionalProperties": False}


def system(text: Any) -> Message:
    return Message(role="system", content=text)


def encode(*messages: Message, names: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    made = Request(model="m", messages=messages or (USER,), **request)
    return openai_responses.encode_chat(made, WireSpec(names=names or {}))


def test_a_plain_request_is_model_input_and_the_wish_not_to_be_kept() -> None:
    assert encode() == {"model": "m", "input": [WIRE_USER], "store": False}


def test_a_dialect_is_found_by_its_name() -> None:
    found = dialects.get_dialect("openai_responses")
    assert found.name == "openai_responses"
    assert (found.routes.find("chat"), found.routes.find("stream")) == ("/responses", None)
    assert (found.routes.find("embed"), found.routes.find("models")) == ("/embeddings", "/models")


@pytest.mark.requirement("llm-6-b", "llm-9-a")
def test_well_known_parameters_go_out_under_this_apis_names() -> None:
    body = encode(params={"temp": 0.5, "max_tokens": 7, "top_p": 0.9})
    assert (body["temperature"], body["max_output_tokens"], body["top_p"]) == (0.5, 7, 0.9)
    assert "max_tokens" not in body


def test_a_name_that_a_row_gives_goes_before_the_dialects_own() -> None:
    body = encode(params={"temp": 1, "stop": ("a", "b"), "top_k": 3}, names={"temp": "t", "stop": "x.stop"})
    assert (body["t"], body["x"]) == (1, {"stop": ["a", "b"]})
    assert "top_k" not in body


@pytest.mark.parametrize("name", ["top_k", "stop", "seed"])
def test_what_the_api_does_not_have_is_known_to_be_missing(name: str) -> None:
    assert openai_responses.parameters.get(name) is None


@pytest.mark.requirement("llm-4.4-b", "llm-6-e")
def test_pass_through_parameters_reach_the_body_and_replace_nothing_in_it() -> None:
    extra = {"text": {"verbosity": "low", "format": "evil"}, "model": "evil", "input": [], "stream": True}
    body = encode(params={"format": "json"}, extra=extra)
    assert body["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    assert (body["model"], body["input"]) == ("m", [WIRE_USER])


@pytest.mark.parametrize(
    ("extra", "store"),
    [
        ({}, False),
        ({"store": True}, True),
        ({"store": False}, False),
        ({"background": True}, None),
        ({"conversation": "conv_1"}, None),
        ({"previous_response_id": "resp_1"}, False),
    ],
)
def test_a_response_is_kept_by_the_server_only_where_the_caller_asks(
    extra: dict[str, Any], store: bool | None
) -> None:
    assert encode(extra=extra).get("store") is store


def test_a_stream_is_asked_for_and_needs_no_options() -> None:
    body = encode(stream=True)
    assert body["stream"] is True
    assert "stream_options" not in body
    assert "stream" not in encode()


def test_system_messages_that_come_first_are_the_instructions() -> None:
    body = encode(system("Be brief."), system((TextPart("Be "), TextPart("kind."))), USER)
    assert body["instructions"] == "Be brief.\n\nBe kind."
    assert body["input"] == [WIRE_USER]


def test_system_messages_that_come_later_keep_their_place() -> None:
    body = encode(system("One."), USER, system("Two."), USER)
    assert body["instructions"] == "One."
    assert [item["role"] for item in body["input"]] == ["user", "system", "user"]


def test_a_system_message_with_more_than_text_is_no_instruction() -> None:
    body = encode(system("One."), system((ImagePart(url="https://example.org/a.png"),)), system("Two."), USER)
    assert body["instructions"] == "One."
    assert [item["role"] for item in body["input"]] == ["system", "system", "user"]


def test_system_messages_alone_are_the_input() -> None:
    body = encode(system("Tell a joke."))
    assert "instructions" not in body
    assert body["input"] == [{"type": "message", "role": "system", "content": "Tell a joke."}]


@pytest.mark.parametrize(
    ("title", "name"),
    [("City", "City"), ("a city!", "a_city"), (None, "answer"), ("x" * 80, "x" * 64)],
)
def test_a_schema_is_sent_strict_and_named_by_its_title(title: object, name: str) -> None:
    schema = {"type": "object", "title": title, "properties": {}, "required": [], **CLOSED}
    body = encode(params={"format": "json_schema"}, schema=schema)
    assert body["text"] == {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": True}}


def test_images_and_documents_go_by_url_or_as_data() -> None:
    message = Message(
        role="user",
        content=(
            TextPart("look"),
            ImagePart(url="https://example.org/a.png", detail="low"),
            ImagePart(data=b"\x00\x01", media_type="image/jpeg"),
            DocumentPart(url="https://example.org/a.pdf", name="a.pdf"),
            DocumentPart(data=b"\x00\x01"),
            DocumentPart(data=b"hi", media_type="text/plain", name="a.txt"),
        ),
    )
    (sent,) = encode(message)["input"]
    assert sent["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_image", "image_url": "data:image/jpeg;base64,AAE=", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {
            "type": "input_file",
            "filename": "document.pdf",
            "file_data": "data:application/pdf;base64,AAE=",
        },
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]


CALL = ToolCall(id="c1", name="weather", arguments='{"city":"Oslo"}')
WIRE_CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city":"Oslo"}',
}


def said(*texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "role": "assistant", "content": content}


def test_a_tool_conversation_is_written_item_by_item() -> None:
    picture = (TextPart("rain"), ImagePart(data=b"\x00", media_type="image/png"))
    body = encode(
        USER,
        Message(role="assistant", tool_calls=(CALL,)),
        Message(role="tool", content="rain", tool_call_id="c1", name="weather"),
        Message(role="assistant", content="It rains.", tool_calls=(CALL,), name="bot"),
        Message(role="tool", content=picture, tool_call_id="c1"),
        Message(role="assistant", content=(TextPart("a"), TextPart("b"))),
    )
    assert body["input"] == [
        WIRE_USER,
        WIRE_CALL,
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        said("It rains."),
        WIRE_CALL,
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "rain"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
            ],
        },
        said("a", "b"),
    ]


def test_a_tool_result_without_its_calls_id_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        encode(USER, Message(role="tool", content="rain"))
    assert caught.value.code == "usage.bad-message"


def test_an_image_in_an_assistants_turn_has_no_place() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(Message(role="assistant", content=(ImagePart(url="https://example.org/a.png"),)))
    assert caught.value.code == "llm.no-part"


ITEMS = (
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"},
)


def test_what_the_api_wants_back_goes_back_as_it_was() -> None:
    turn = Message(
        role="assistant",
        content="never sent twice",
        tool_calls=(CALL,),
        carried=Carried(dialect="openai_responses", parts=ITEMS),
    )
    body = encode(USER, turn, Message(role="tool", content="rain", tool_call_id="c1"))
    assert body["input"][1:3] == list(ITEMS)
    assert body["include"] == ["reasoning.encrypted_content"]


def test_what_another_api_wants_back_stays_here() -> None:
    turn = Message(role="assistant", content="Hi", carried=Carried(dialect="gemini", parts=ITEMS))
    body = encode(USER, turn)
    assert body["input"] == [WIRE_USER, said("Hi")]
    assert "include" not in body


def test_encrypted_reasoning_is_asked_for_only_where_the_model_surely_reasons() -> None:
    assert "include" not in encode()
    effort = {"reasoning": {"effort": "low"}}
    assert encode(extra=effort)["include"] == ["reasoning.encrypted_content"]
    assert encode(extra={**effort, "include": []})["include"] == []


def test_tools_are_flat_and_say_whether_they_are_strict() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], **CLOSED}
    tools = (Tool(name="a"), Tool(name="b", description="B", parameters=schema, strict=True))
    body = encode(tools=tools, tool_choice="b")
    assert body["tools"] == [
        {
            "type": "function",
            "name": "a",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "function", "name": "b", "description": "B", "parameters": schema, "strict": True},
    ]
    assert body["tool_choice"] == {"type": "function", "name": "b"}


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_tool_choice_that_is_a_mode_stays_a_word(choice: str) -> None:
    assert encode(tools=(Tool(name="a"),), tool_choice=choice)["tool_choice"] == choice


def test_without_tools_no_choice_is_sent() -> None:
    assert "tool_choice" not in encode(tool_choice="auto")
    assert "tool_choice" not in encode(tools=(Tool(name="a"),))


def test_texts_to_embed_go_as_in_the_chat_dialect() -> None:
    body = openai_responses.encode_embed("m", ("a", "b"), {"dimensions": 8})
    assert body == {"model": "m", "input": ["a", "b"], "dimensions": 8}
