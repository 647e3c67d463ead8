"""What the Bedrock Converse dialect writes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from onym.errors import UnsupportedError, UsageError
from onym.llm.dialects import WireSpec, bedrock_converse, get_dialect
from onym.llm.types import Carried, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

HI = Message(role="user", content="Hi")
SCHEMA = {"type": "object", "title": "a city!", "properties": {"name": {"type": "string"}}}
POINT = {"cachePoint": {"type": "default"}}


def encode(*messages: Message, names: dict[str, str] | None = None, **how: Any) -> dict[str, Any]:
    request = Request(model="m", messages=messages or (HI,), **how)
    return bedrock_converse.encode_chat(request, WireSpec(names=names or {}))


def turns(*messages: Message, **how: Any) -> Any:
    return encode(*messages, **how)["messages"]


def test_the_dialect_is_found_by_its_name_and_says_where_its_operations_are() -> None:
    assert get_dialect("bedrock_converse").name == bedrock_converse.name
    routes = bedrock_converse.routes
    assert (routes.find("chat"), routes.find("stream")) == (
        "/model/{model}/converse",
        "/model/{model}/converse-stream",
    )
    assert (routes.find("embed"), routes.find("models")) == ("/model/{model}/invoke", "/foundation-models")
    assert bedrock_converse.headers == ()
    assert bedrock_converse.defaults == {}


def test_a_text_is_a_block_and_the_model_is_not_in_the_body() -> None:
    assert encode() == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
    assert encode(stream=True) == encode()


def test_parameters_go_where_the_api_has_them() -> None:
    params = {"temp": 0.5, "max_tokens": 9, "top_p": 0.9, "stop": ("a", "b")}
    assert encode(params=params)["inferenceConfig"] == {
        "temperature": 0.5,
        "maxTokens": 9,
        "topP": 0.9,
        "stopSequences": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("wire", "fields"),
    [
        ("additionalModelRequestFields.top_k", {"top_k": 5}),
        ("additionalModelRequestFields.inferenceConfig.topK", {"inferenceConfig": {"topK": 5}}),
    ],
)
def test_a_family_may_have_a_place_for_what_the_api_has_not(wire: str, fields: dict[str, Any]) -> None:
    extra = {"additionalModelRequestFields": {"thinking": {"type": "adaptive"}, "top_k": 1}}
    body = encode(params={"top_k": 5}, names={"top_k": wire}, extra=extra)
    expected = {"thinking": {"type": "adaptive"}, "top_k": 1} | fields
    assert body["additionalModelRequestFields"] == expected


@pytest.mark.parametrize("name", ["top_k", "seed"])
def test_a_parameter_without_a_place_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(params={name: 5})
    assert caught.value.parameter == name


def test_pass_through_parameters_never_replace() -> None:
    extra = {"inferenceConfig": {"temperature": 1, "topP": 0.1}, "serviceTier": {"type": "flex"}}
    body = encode(params={"temp": 0.5}, extra=extra)
    assert body["inferenceConfig"] == {"temperature": 0.5, "topP": 0.1}
    assert body["serviceTier"] == {"type": "flex"}


def test_system_messages_are_blocks_beside_the_turns() -> None:
    parts = (TextPart("b"), TextPart(""), TextPart("c"))
    body = encode(
        Message(role="system", content="a"),
        HI,
        Message(role="system", content=parts),
        Message(role="system", content=""),
    )
    assert body["system"] == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert body["messages"] == [{"role": "user", "content": [{"text": "Hi"}]}]
    assert "system" not in encode(Message(role="system", content=""), HI)


def test_the_cache_point_ends_the_system_prompt_or_the_last_that_the_user_said() -> None:
    cached = {"params": {"cache": True}}
    body = encode(Message(role="system", content="a"), HI, **cached)
    assert body["system"] == [{"text": "a"}, POINT]
    assert body["messages"] == [{"role": "user", "content": [{"text": "Hi"}]}]
    body = encode(
        HI, Message(role="assistant", content="Yes"), HI, Message(role="assistant", content="N"), **cached
    )
    assert [turn["content"] for turn in body["messages"]] == [
        [{"text": "Hi"}],
        [{"text": "Yes"}],
        [{"text": "Hi"}, POINT],
        [{"text": "N"}],
    ]
    assert "system" not in body
    assert turns(Message(role="assistant", content="Yes"), **cached) == [
        {"role": "assistant", "content": [{"text": "Yes"}]}
    ]


def test_neighbours_of_one_role_are_one_turn() -> None:
    calls = tuple(ToolCall(id=f"c{index}", name="f", arguments="{}") for index in range(2))
    found = turns(
        HI,
        Message(role="system", content="s"),
        HI,
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", tool_call_id="c0", content="rain"),
        Message(role="tool", tool_call_id="c1", content='{"sun": 1}'),
        HI,
    )
    assert [turn["role"] for turn in found] == ["user", "assistant", "user"]
    assert found[0]["content"] == [{"text": "Hi"}, {"text": "Hi"}]
    assert found[1]["content"] == [
        {"toolUse": {"toolUseId": f"c{index}", "name": "f", "input": {}}} for index in range(2)
    ]
    assert found[2]["content"] == [
        {"toolResult": {"toolUseId": "c0", "content": [{"text": "rain"}]}},
        {"toolResult": {"toolUseId": "c1", "content": [{"json": {"sun": 1}}]}},
        {"text": "Hi"},
    ]


@pytest.mark.parametrize("content", ["", "[1]", "5", '"x"', "{", "null", "[" * 5000])
def test_a_tool_result_that_is_no_object_is_text(content: str) -> None:
    (turn,) = turns(Message(role="tool", tool_call_id="c", content=content))
    assert turn["content"][0]["toolResult"]["content"] == [{"text": content}]


def test_a_tool_result_may_hold_an_image() -> None:
    parts = (TextPart("see"), ImagePart(data=b"\x01", media_type="image/gif"))
    (turn,) = turns(Message(role="tool", tool_call_id="c", content=parts))
    image = {"image": {"format": "gif", "source": {"bytes": "AQ=="}}}
    assert turn["content"] == [{"toolResult": {"toolUseId": "c", "content": [{"text": "see"}, image]}}]


@pytest.mark.parametrize(
    ("arguments", "sent"), [("", {}), (" ", {}), ("{}", {}), ('{"a":[1,"é"]}', {"a": [1, "é"]})]
)
def test_tool_arguments_are_sent_as_the_object_that_they_are(arguments: str, sent: dict[str, Any]) -> None:
    call = ToolCall(id="c", name="f", arguments=arguments)
    (turn,) = turns(Message(role="assistant", content="so", tool_calls=(call,)))
    assert turn["content"] == [{"text": "so"}, {"toolUse": {"toolUseId": "c", "name": "f", "input": sent}}]


@pytest.mark.parametrize("arguments", ["{", "[]", "1", "[" * 100_000])
def test_tool_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    call = ToolCall(id="c", name="f", arguments=arguments)
    with pytest.raises(UsageError) as caught:
        turns(Message(role="assistant", tool_calls=(call,)))
    assert caught.value.code == "usage.bad-message"


def test_a_tool_result_of_no_call_is_refused() -> None:
    with pytest.raises(UsageError, match="tool_call_id"):
        turns(Message(role="tool", content="x"))


def test_images_are_octets_with_a_format() -> None:
    (turn,) = turns(
        Message(
            role="user",
            content=tuple(
                ImagePart(data=b"\x00\x01", media_type=media)
                for media in ("image/png", "image/JPEG", "image/jpg", "image/gif", "image/webp; q=1")
            ),
        )
    )
    data = b64encode(b"\x00\x01").decode()
    assert turn["content"] == [
        {"image": {"format": form, "source": {"bytes": data}}}
        for form in ("png", "jpeg", "jpeg", "gif", "webp")
    ]


def test_documents_have_names_that_the_api_takes_and_no_two_the_same() -> None:
    names = [None, "a.b_c/d.pdf", "Q3 (new) [x]-y", "é", "Q3 (new)  [x]-y", "x" * 300]
    parts = tuple(DocumentPart(data=b"x", media_type="text/plain", name=name) for name in names)
    found = [
        block["document"]["name"]
        for turn in turns(
            Message(role="user", content=parts),
            Message(role="assistant"),
            Message(role="user", content=parts[:1]),
        )
        for block in turn["content"]
        if "document" in block
    ]
    assert found == [
        "document",
        "a b c d pdf",
        "Q3 (new) [x]-y",
        "document 2",
        "Q3 (new) [x]-y 2",
        "x" * 190,
        "document 3",
    ]


@pytest.mark.parametrize(
    ("media", "form"),
    [
        ("application/pdf", "pdf"),
        ("text/csv", "csv"),
        ("text/plain; charset=utf-8", "txt"),
        ("text/markdown", "md"),
        ("text/html", "html"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ],
)
def test_documents_have_a_format(media: str, form: str) -> None:
    (turn,) = turns(Message(role="user", content=(DocumentPart(data=b"x", media_type=media),)))
    assert turn["content"] == [
        {"document": {"format": form, "name": "document", "source": {"bytes": "eA=="}}}
    ]


@pytest.mark.parametrize(
    ("role", "part"),
    [
        ("user", ImagePart(url="https://example.org/a.png")),
        ("user", DocumentPart(url="https://example.org/a.pdf")),
        ("user", ImagePart(data=b"x", media_type="image/tiff")),
        ("user", DocumentPart(data=b"x", media_type="application/zip")),
        ("system", ImagePart(data=b"x")),
    ],
)
def test_what_the_api_has_no_place_for_is_refused(role: Any, part: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(Message(role=role, content=(part,)))
    assert caught.value.code == "llm.no-part"
    assert "example.org" not in str(caught.value)


TOOL = Tool(name="f", description="d", parameters=SCHEMA, strict=True)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", {"auto": {}}), ("required", {"any": {}}), ("f", {"tool": {"name": "f"}}), (None, None)],
)
def test_tools_have_a_schema_and_a_choice(choice: str | None, sent: Any) -> None:
    config = encode(tools=(TOOL, Tool(name="g")), tool_choice=choice)["toolConfig"]
    assert config["tools"] == [
        {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}, "strict": True}},
        {"toolSpec": {"name": "g", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
    ]
    assert config.get("toolChoice") == sent


def test_the_choice_none_leaves_the_tools_out() -> None:
    assert encode(tools=(TOOL,), tool_choice="none") == encode()


@pytest.mark.parametrize(
    "message",
    [
        Message(role="tool", tool_call_id="c", content="x"),
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments=""),)),
    ],
)
def test_the_choice_none_is_refused_once_a_tool_was_called(message: Message) -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(HI, message, tools=(TOOL,), tool_choice="none")
    assert caught.value.parameter == "tool_choice"


def test_a_schema_is_sent_as_text() -> None:
    body = encode(params={"format": "json_schema"}, schema=SCHEMA)
    form = body["outputConfig"]["textFormat"]
    assert form["type"] == "json_schema"
    assert form["structure"]["jsonSchema"]["name"] == "a_city"
    assert json.loads(form["structure"]["jsonSchema"]["schema"]) == SCHEMA


def test_json_without_a_schema_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        encode(params={"format": "json"})
    assert (caught.value.code, caught.value.parameter) == ("llm.no-json", "format")


def test_carried_reasoning_goes_back_as_it_came() -> None:
    signed = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
    parts = (signed, {"text": ""}, {"text": "so"}, {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}})
    calls = (ToolCall(id="c", name="f", arguments="{}"),)
    mine = Carried(dialect="bedrock_converse", parts=parts)
    (turn,) = turns(Message(role="assistant", content="so", tool_calls=calls, carried=mine))
    assert turn["content"] == [parts[0], *parts[2:]]
    others = Carried(dialect="anthropic_messages", parts=parts)
    (turn,) = turns(Message(role="assistant", content="so", tool_calls=calls, carried=others))
    assert turn["content"] == list(parts[2:])


EMBEDDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "titan": ("amazon.titan-embed-text-v2:0", {"inputText": "a", "dimensions": 256}),
    "titan, multimodal": (
        "amazon.titan-embed-image-v1",
        {"inputText": "a", "embeddingConfig": {"outputEmbeddingLength": 256}},
    ),
    "titan, an ARN": (
        "arn:aws:bedrock:us-east-1::foundation-model/amazon.titan-embed-text-v2:0",
        {"inputText": "a", "dimensions": 256},
    ),
    "cohere": (
        "cohere.embed-english-v3",
        {
            "texts": ["a"],
            "output_dimension": 256,
            "input_type": "search_document",
            "embedding_types": ["float"],
        },
    ),
    "cohere, with a geography": (
        "us.cohere.embed-v4:0",
        {
            "texts": ["a"],
            "output_dimension": 256,
            "input_type": "search_document",
            "embedding_types": ["float"],
        },
    ),
}


@pytest.mark.parametrize(("model", "body"), EMBEDDERS.values(), ids=EMBEDDERS.keys())
def test_the_vendor_in_the_models_id_shapes_an_embeddings_request(model: str, body: dict[str, Any]) -> None:
    extra = {"dimensions": 256}
    assert bedrock_converse.encode_embed(model, ["a"], extra) == body
    assert extra == {"dimensions": 256}


def test_what_cohere_demands_may_be_said_otherwise() -> None:
    body = bedrock_converse.encode_embed("cohere.embed-v4:0", ["a", "b"], {"input_type": "classification"})
    assert body == {"texts": ["a", "b"], "input_type": "classification", "embedding_types": ["float"]}


@pytest.mark.parametrize("texts", [[], ["a", "b"]])
def test_titan_takes_one_text_a_call(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=rf"amazon\.titan-embed-text-v1 .*\b{len(texts)}\b") as caught:
        bedrock_converse.encode_embed("amazon.titan-embed-text-v1", texts, {})
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "model", ["anthropic.claude-3", "amazon.nova-2-multimodal-embeddings-v1:0", "xamazon.titan-embed", ""]
)
def test_a_model_of_another_vendor_has_no_known_embeddings(model: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        bedrock_converse.encode_embed(model, ["a"], {})
    assert caught.value.code == "llm.no-embeddings"
