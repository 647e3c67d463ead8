"""What the Gemini dialect writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import UnsupportedError, UsageError
from onym.llm import dialects
from onym.llm.dialects import WireSpec, gemini
from onym.llm.types import Carried, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

USER = Message(role="user", content="Hi")
HI = {"role": "user", "parts": [{"text": "Hi"}]}
SCHEMA = {"type": "object", "title": "city", "properties": {"name": {"type": "string"}}}
TOOL = Tool(name="weather", description="d", parameters=SCHEMA)


def encode(*messages: Message, names: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    made = Request(model="m", messages=messages or (USER,), **request)
    return gemini.encode_chat(made, WireSpec(names=names or {}))


def contents(*messages: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = encode(*messages)["contents"]
    return found


def test_both_dialects_are_found_by_name_and_differ_in_their_embeddings_alone() -> None:
    assert dialects.get_dialect("gemini").name == gemini.name
    assert gemini.VERTEX.name == "gemini_vertex"
    assert gemini.VERTEX.encode_chat is gemini.encode_chat
    assert gemini.VERTEX.decode_chat is gemini.decode_chat
    assert gemini.VERTEX.routes.find("chat") == gemini.routes.find("chat")
    assert gemini.VERTEX.routes.find("embed") != gemini.routes.find("embed")
    assert gemini.VERTEX.routes.find("models") is None


def test_a_plain_request_is_its_contents_and_nothing_else() -> None:
    assert encode() == {"contents": [HI]}
    # streamed or not, the body is the same: the path says which
    assert encode(stream=True) == {"contents": [HI]}


@pytest.mark.requirement("llm-6-b", "llm-9-a")
def test_well_known_parameters_are_members_of_the_generation_config() -> None:
    params = {"temp": 0.5, "max_tokens": 7, "top_p": 0.9, "top_k": 3, "stop": ("a", "b"), "seed": 1}
    assert encode(params=params)["generationConfig"] == {
        "temperature": 0.5,
        "maxOutputTokens": 7,
        "topP": 0.9,
        "topK": 3,
        "stopSequences": ["a", "b"],
        "seed": 1,
    }


def test_a_row_may_rename_a_parameter() -> None:
    assert encode(params={"temp": 1}, names={"temp": "heat"})["heat"] == 1


@pytest.mark.requirement("llm-4.4-b", "llm-6-e")
def test_pass_through_parameters_are_merged_in_and_replace_nothing() -> None:
    extra = {
        "generationConfig": {"temperature": 9, "thinkingConfig": {"thinkingBudget": 0}},
        "contents": [],
        "cachedContent": "cachedContents/1",
    }
    body = encode(params={"temp": 0.5}, extra=extra)
    assert body["generationConfig"] == {"temperature": 0.5, "thinkingConfig": {"thinkingBudget": 0}}
    assert (body["contents"], body["cachedContent"]) == ([HI], "cachedContents/1")


def test_a_format_is_a_media_type_and_a_schema_stands_beside_it() -> None:
    assert encode(params={"format": "json"})["generationConfig"] == {"responseMimeType": "application/json"}
    assert encode(params={"format": "json_schema"}, schema=SCHEMA)["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }


def test_system_messages_are_gathered_in_the_instruction_wherever_they_stand() -> None:
    late = Message(role="system", content=(TextPart("And "), TextPart("kind.")))
    body = encode(Message(role="system", content="Be brief."), USER, late)
    assert body["contents"] == [HI]
    assert body["systemInstruction"] == {
        "parts": [{"text": "Be brief."}, {"text": "And "}, {"text": "kind."}],
    }


def test_an_image_in_a_system_message_has_no_place() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(Message(role="system", content=(ImagePart(url="https://example.org/a.png"),)), USER)
    assert caught.value.code == "llm.no-part"


def test_the_assistant_is_the_model() -> None:
    assert contents(USER, Message(role="assistant", content="Hello"), USER) == [
        HI,
        {"role": "model", "parts": [{"text": "Hello"}]},
        HI,
    ]


def test_octets_go_inline_and_urls_as_files() -> None:
    parts = (
        TextPart("What?"),
        ImagePart(data=b"\0\1\xff\xfe", media_type="image/webp"),
        ImagePart(url="gs://bucket/a", media_type="image/heic"),
        DocumentPart(data=b"%PDF"),
        DocumentPart(url="https://example.org/a.txt", media_type="text/plain", name="a.txt"),
    )
    assert contents(Message(role="user", content=parts))[0]["parts"] == [
        {"text": "What?"},
        {"inlineData": {"mimeType": "image/webp", "data": "AAH//g=="}},
        {"fileData": {"mimeType": "image/heic", "fileUri": "gs://bucket/a"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
        {"fileData": {"mimeType": "text/plain", "fileUri": "https://example.org/a.txt"}},
    ]


@pytest.mark.parametrize(
    ("url", "media"),
    [
        ("https://example.org/a.png", "image/png"),
        ("https://example.org/a.JPG", "image/jpeg"),
        ("https://example.org/a.jpeg?size=9&name=b.gif#x", "image/jpeg"),
        ("https://example.org/a.webp#f", "image/webp"),
        ("https://example.org/a", "image/png"),
        ("https://example.org/a.exe", "image/png"),
        ("https://generativelanguage.googleapis.com/v1beta/files/abc", "image/png"),
    ],
)
def test_the_type_of_an_image_is_read_off_its_url_where_nobody_says_it(url: str, media: str) -> None:
    part = contents(Message(role="user", content=(ImagePart(url=url),)))[0]["parts"][0]
    assert part == {"fileData": {"mimeType": media, "fileUri": url}}


def test_a_message_without_content_is_an_empty_text() -> None:
    assert contents(Message(role="user", content=()))[0]["parts"] == [{"text": ""}]
    assert contents(Message(role="assistant"))[0] == {"role": "model", "parts": [{"text": ""}]}


CALLS = (
    ToolCall(id="c1", name="weather", arguments='{"city":"Ghent"}'),
    ToolCall(id="c2", name="time", arguments=""),
)


def test_tool_calls_are_objects_and_their_results_are_one_turn_that_names_the_functions() -> None:
    found = contents(
        USER,
        Message(role="assistant", content="Let me see.", tool_calls=CALLS),
        Message(role="tool", content='{"sky": "rain"}', tool_call_id="c1"),
        Message(role="tool", content="12:00", tool_call_id="c2", name="clock"),
        USER,
        Message(role="tool", content="[1]", name="late"),
    )
    assert found == [
        HI,
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Ghent"}}},
                {"functionCall": {"id": "c2", "name": "time", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "weather", "response": {"sky": "rain"}}},
                {"functionResponse": {"id": "c2", "name": "time", "response": {"result": "12:00"}}},
            ],
        },
        HI,
        {"role": "user", "parts": [{"functionResponse": {"name": "late", "response": {"result": "[1]"}}}]},
    ]


def test_an_id_of_our_own_is_not_sent_for_the_api_gave_none() -> None:
    call = ToolCall(id="call_0", name="weather", arguments="{}")
    turns = contents(
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="rain", tool_call_id="call_0"),
    )
    assert turns[0]["parts"] == [{"functionCall": {"name": "weather", "args": {}}}]
    assert turns[1]["parts"] == [{"functionResponse": {"name": "weather", "response": {"result": "rain"}}}]


def test_an_id_that_comes_again_means_the_latest_call() -> None:
    turns = []
    for name in ("a", "b"):
        turns.append(
            Message(role="assistant", tool_calls=(ToolCall(id="call_0", name=name, arguments="{}"),))
        )
        turns.append(Message(role="tool", content="x", tool_call_id="call_0"))
    found = contents(*turns)
    assert [item["parts"][0]["functionResponse"]["name"] for item in found[1::2]] == ["a", "b"]


def test_a_result_of_several_parts_keeps_its_images() -> None:
    content = (TextPart("a"), ImagePart(data=b"\0"), TextPart("b"))
    result = contents(Message(role="tool", content=content, name="look"))[0]["parts"][0]["functionResponse"]
    assert result == {
        "name": "look",
        "response": {"result": "a\nb"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}],
    }


@pytest.mark.parametrize("said", ["", "{", '{"a":1e999}', "[" * 100_000, "null", '"x"', "\ud800"])
def test_a_result_that_is_no_json_object_is_wrapped_in_one(said: str) -> None:
    part = contents(Message(role="tool", content=said, name="f"))[0]["parts"][0]
    assert part["functionResponse"]["response"] == {"result": said}


def test_a_result_without_a_function_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        encode(Message(role="tool", content="secret result", tool_call_id="c9"))
    assert caught.value.code == "usage.bad-message"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("arguments", ["[1]", "no", "5", "[" * 100_000, '"a"'])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    with pytest.raises(UsageError) as caught:
        encode(Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments=arguments),)))
    assert caught.value.code == "usage.bad-message"


def test_a_signed_turn_goes_back_as_the_api_wrote_it() -> None:
    parts = ({"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "c2ln"},)
    call = ToolCall(id="call_0", name="weather", arguments="{}")
    turn = Message(
        role="assistant", content="x", tool_calls=(call,), carried=Carried(dialect="gemini", parts=parts)
    )
    answered = Message(role="tool", content="rain", tool_call_id="call_0")
    found = contents(USER, turn, answered)
    assert found[1] == {"role": "model", "parts": list(parts)}
    assert found[2]["parts"][0]["functionResponse"]["name"] == "weather"


def test_what_another_dialect_carries_is_left_out() -> None:
    turn = Message(role="assistant", content="x", carried=Carried(dialect="other", parts=({"a": 1},)))
    assert contents(turn) == [{"role": "model", "parts": [{"text": "x"}]}]


def test_tools_are_declarations_with_json_schemas() -> None:
    body = encode(tools=(TOOL, Tool(name="now")))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "d", "parametersJsonSchema": SCHEMA},
                {"name": "now"},
            ]
        }
    ]
    assert "toolConfig" not in body


STRICT = Tool(name="weather", strict=True)


@pytest.mark.parametrize(
    ("choice", "tools", "calling"),
    [
        ("auto", (TOOL,), {"mode": "AUTO"}),
        ("none", (TOOL,), {"mode": "NONE"}),
        ("required", (TOOL,), {"mode": "ANY"}),
        ("weather", (TOOL,), {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
        (None, (STRICT,), {"mode": "VALIDATED"}),
        ("auto", (STRICT,), {"mode": "VALIDATED"}),
        ("auto", (STRICT, TOOL), {"mode": "AUTO"}),
        ("required", (STRICT,), {"mode": "ANY"}),
    ],
)
def test_a_tool_choice_is_a_mode_of_calling(choice: str | None, tools: Any, calling: Any) -> None:
    body = encode(tools=tools, tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": calling}


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert encode(tool_choice="required") == {"contents": [HI]}


def test_embeddings_are_a_request_for_each_text() -> None:
    extra = {"dimensions": 3, "taskType": "RETRIEVAL_QUERY", "model": "evil"}
    assert gemini.encode_embed("e", ["a", "b"], extra) == {
        "requests": [
            {
                "model": "models/e",
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": 3,
                "taskType": "RETRIEVAL_QUERY",
            }
            for text in "ab"
        ]
    }
    assert gemini.encode_embed("models/e", ["a"], {})["requests"][0]["model"] == "models/e"


def test_embeddings_at_vertex_are_instances_and_parameters() -> None:
    extra = {"dimensions": 3, "taskType": "RETRIEVAL_QUERY", "parameters": {"autoTruncate": False}}
    assert gemini.VERTEX.encode_embed("e", ["a", "b"], extra) == {
        "instances": [{"content": text, "task_type": "RETRIEVAL_QUERY"} for text in "ab"],
        "parameters": {"outputDimensionality": 3, "autoTruncate": False},
    }
    assert gemini.VERTEX.encode_embed("e", ["a"], {}) == {"instances": [{"content": "a"}]}


texts = st.text(st.characters(codec="utf-8"), max_size=10)
arguments = st.dictionaries(
    texts, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, max_size=3
)


@given(texts, arguments)
def test_any_text_and_arguments_reach_the_body_unchanged(said: str, given: dict[str, Any]) -> None:
    call = ToolCall(id="c", name="f", arguments=json.dumps(given))
    turn = contents(Message(role="assistant", content=said, tool_calls=(call,)))[0]
    assert turn["parts"][-1]["functionCall"]["args"] == given
    assert [part["text"] for part in turn["parts"][:-1]] == ([said] if said else [])
    answer = contents(Message(role="tool", content=json.dumps(given), name="f"))[0]
    assert answer["parts"][0]["functionResponse"]["response"] == given
