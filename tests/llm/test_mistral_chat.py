"""Bodies of Mistral's chat dialect, where they are not OpenAI's."""

from __future__ import annotations

from typing import Any

from onym.llm.dialects import WireSpec, openai_chat
from onym.llm.types import DocumentPart, ImagePart, Message, Request, TextPart, Tool

SPEC = WireSpec()


def encode(*messages: Message, **members: Any) -> dict[str, Any]:
    return openai_chat.MISTRAL.encode_chat(Request(model="m", messages=messages, **members), SPEC)


def user(*parts: Any) -> Message:
    return Message(role="user", content=parts)


def test_no_member_is_sent_that_the_api_does_not_know() -> None:
    body = encode(Message(role="user", content="Hi", name="Ann"), stream=True)
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    asked = encode(Message(role="user", content="Hi"), stream=True, extra={"stream_options": {"a": 1}})
    assert asked["stream_options"] == {"a": 1}


def test_a_tools_result_keeps_the_name_of_its_tool() -> None:
    result = Message(role="tool", content="rain", tool_call_id="c1", name="weather")
    assert encode(result)["messages"][0]["name"] == "weather"


def test_every_tool_has_parameters() -> None:
    body = encode(
        user(TextPart("Hi")), tools=(Tool(name="now"), Tool(name="w", parameters={"type": "object"}))
    )
    assert [tool["function"]["parameters"] for tool in body["tools"]] == [
        {"type": "object", "properties": {}},
        {"type": "object"},
    ]


def test_documents_are_urls_or_data_urls_and_images_are_openais() -> None:
    image = ImagePart(url="https://example.org/a.png")
    message = user(
        DocumentPart(url="https://example.org/a.pdf", name="a.pdf"), DocumentPart(data=b"%PDF"), image
    )
    assert encode(message)["messages"][0]["content"] == [
        {
            "type": "document_url",
            "document_url": "https://example.org/a.pdf",
            "document_name": "a.pdf",
        },
        {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERg=="},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_seed_and_dimensions_have_names_of_their_own() -> None:
    assert encode(user(TextPart("Hi")), params={"seed": 7})["random_seed"] == 7
    body = openai_chat.MISTRAL.encode_embed("e", ["a"], {"dimensions": 8, "x": 1})
    assert body == {"model": "e", "input": ["a"], "output_dimension": 8, "x": 1}


def test_answers_are_read_as_openais() -> None:
    assert openai_chat.MISTRAL.decode_chat is openai_chat.decode_chat
    assert openai_chat.MISTRAL.stream_decoder is openai_chat.stream_decoder
    assert openai_chat.MISTRAL.name == "mistral_chat"
