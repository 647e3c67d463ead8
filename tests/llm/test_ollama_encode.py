"""What Ollama's dialect writes."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import UnsupportedError, UsageError
from onym.llm import dialects
from onym.llm.dialects import Routes, WireSpec, ollama
from onym.llm.types import ContentPart, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall
from onym.uri.parameters import WELL_KNOWN

USER = Message(role="user", content="Hi")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def encode(*messages: Message, names: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    made = Request(model="llama3:8b", messages=messages or (USER,), **request)
    return ollama.encode_chat(made, WireSpec(names=names or {}))


def asking(identity: str, name: str, arguments: str = "{}") -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(id=identity, name=name, arguments=arguments),))


def result(identity: str, content: str = "rain", **members: Any) -> Message:
    return Message(role="tool", content=content, tool_call_id=identity, **members)


def test_the_dialect_is_found_by_its_name_and_says_where_it_is_spoken() -> None:
    dialect = dialects.get_dialect("ollama")
    assert dialect.name == "ollama"
    assert dialect.routes == Routes(
        chat="/api/chat", embed="/api/embed", models="/api/tags", model="/api/show", model_body=True
    )
    assert (tuple(dialect.headers), dict(dialect.defaults)) == ((), {})
    assert {name: dialect.parameters[name] for name in dialect.parameters if name in WELL_KNOWN} == {
        "temp": "options.temperature",
        "max_tokens": "options.num_predict",
        "top_p": "options.top_p",
        "top_k": "options.top_k",
        "stop": "options.stop",
        "seed": "options.seed",
        "stream": "stream",
        "format": "format",
        "system": "messages[0]",
    }


def test_a_plain_request_says_that_it_is_not_streamed() -> None:
    assert encode() == {
        "model": "llama3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": False,
    }
    assert encode(stream=True)["stream"] is True


@pytest.mark.requirement("llm-6-b", "llm-9-a")
def test_well_known_parameters_are_options() -> None:
    params = {"temp": 0.5, "max_tokens": 7, "top_p": 0.9, "top_k": 3, "stop": ("a", "b"), "seed": 1}
    assert encode(params=params)["options"] == {
        "temperature": 0.5, "num_predict": 7, "top_p": 0.9, "top_k": 3, "stop": ["a", "b"], "seed": 1
    }  # fmt: skip


def test_a_name_of_the_spec_goes_before_that_of_the_dialect() -> None:
    assert encode(params={"max_tokens": 5}, names={"max_tokens": "options.n"})["options"] == {"n": 5}


@pytest.mark.requirement("llm-4.4-b", "llm-6-e")
def test_pass_through_parameters_join_the_options_and_replace_nothing() -> None:
    extra = {
        "options": {"num_ctx": 8192, "temperature": 9},
        "keep_alive": "5m",
        "think": True,
        "model": "evil",
        "stream": True,
    }
    body = encode(params={"temp": 0.5}, extra=extra)
    assert body["options"] == {"temperature": 0.5, "num_ctx": 8192}
    assert (body["keep_alive"], body["think"]) == ("5m", True)
    assert (body["model"], body["stream"]) == ("llama3:8b", False)


def test_a_format_is_a_word_or_the_schema_itself() -> None:
    assert encode(params={"format": "json"})["format"] == "json"
    assert encode(params={"format": "json_schema"}, schema=SCHEMA)["format"] == SCHEMA


def test_system_messages_stay_where_they_are() -> None:
    system = Message(role="system", content="Be brief.")
    assert [item["role"] for item in encode(system, USER, system)["messages"]] == ["system", "user", "system"]


def test_images_are_bare_base64_beside_the_text() -> None:
    content = (TextPart("look"), ImagePart(data=b"\x00\x01", media_type="image/jpeg"), TextPart("here"))
    (sent,) = encode(Message(role="user", content=content))["messages"]
    assert sent == {"role": "user", "content": "look\n\nhere", "images": ["AAE="]}


def test_parts_that_are_text_alone_bring_no_images() -> None:
    (sent,) = encode(Message(role="user", content=(TextPart("look"),)))["messages"]
    assert sent == {"role": "user", "content": "look"}


@pytest.mark.parametrize(
    ("part", "what"),
    [
        (ImagePart(url="https://example.org/a.png"), "images.*URL"),
        (DocumentPart(data=b"%PDF"), "document"),
        (DocumentPart(url="https://example.org/a.pdf"), "document"),
    ],
)
def test_a_part_that_has_no_place_is_refused(part: ContentPart, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what) as caught:
        encode(Message(role="user", content=(part,)))
    assert (caught.value.code, caught.value.parameter) == ("llm.no-part", "messages")


def test_a_call_goes_back_as_an_object_and_its_result_by_the_name_of_the_tool() -> None:
    _, asked, answer = encode(USER, asking("call_0", "weather", '{"city":"Oslo"}'), result("call_0"))[
        "messages"
    ]
    assert asked == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}],
    }
    assert answer == {"role": "tool", "content": "rain", "tool_name": "weather"}


def test_the_name_that_a_result_gives_itself_goes_first_and_unknown_ones_stay_away() -> None:
    sent = encode(asking("c", "a"), result("c", name="b"), result("unknown"), Message(role="tool"))
    assert [item.get("tool_name") for item in sent["messages"]] == [None, "b", None, None]


def test_ids_that_come_again_in_later_turns_mean_the_last_call() -> None:
    turns = (asking("call_0", "a"), result("call_0"), asking("call_0", "b"), result("call_0"))
    assert [item.get("tool_name") for item in encode(*turns)["messages"]] == [None, "a", None, "b"]


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    (sent,) = encode(asking("c", "a", arguments))["messages"]
    assert sent["tool_calls"] == [{"function": {"name": "a", "arguments": {}}}]


@pytest.mark.parametrize("arguments", ["{", "[]", "5", "null", "[" * 100_000])
def test_arguments_that_are_no_object_are_a_mistake_of_the_caller(arguments: str) -> None:
    with pytest.raises(UsageError) as caught:
        encode(asking("c", "a", arguments))
    assert caught.value.code == "usage.bad-message"


def test_tools_are_written_with_what_is_known_of_them() -> None:
    tools = (Tool(name="a", strict=False), Tool(name="b", description="B", parameters=SCHEMA))
    body = encode(tools=tools, tool_choice="auto")
    assert body["tools"] == [
        {"type": "function", "function": {"name": "a"}},
        {"type": "function", "function": {"name": "b", "description": "B", "parameters": SCHEMA}},
    ]
    assert "tool_choice" not in body


def test_where_no_tool_may_be_called_none_is_offered() -> None:
    assert "tools" not in encode(tools=(Tool(name="a"),), tool_choice="none")


@pytest.mark.parametrize("choice", ["required", "a"])
def test_a_call_cannot_be_forced(choice: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(tools=(Tool(name="a"),), tool_choice=choice)
    assert (caught.value.code, caught.value.parameter) == ("llm.no-tool-choice", "tool_choice")


def test_a_tool_cannot_be_held_to_its_schema() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(tools=(Tool(name="a", strict=True),))
    assert (caught.value.code, caught.value.parameter) == ("llm.no-strict-tools", "tools")


def test_vectors_are_asked_for_in_one_request() -> None:
    extra = {"dimensions": 64, "truncate": False, "model": "evil"}
    assert ollama.encode_embed("e", ("a", "b"), extra) == {
        "model": "e",
        "input": ["a", "b"],
        "dimensions": 64,
        "truncate": False,
    }
