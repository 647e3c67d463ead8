"""botocore as the judge: it sends what we send, reads what we read, and its model takes our bodies."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.capture import Capture, Recorded
from contract.eventstream import event, exception
from contract.oracle import SCHEMA, TOOL, UNICODE, USER, both_ways, each_call, often, read_stream, text
from onym.errors import ProviderError
from onym.llm import credentials as clouds
from onym.llm.client import Client, connect
from onym.llm.config import Config
from onym.llm.dialects import Exchange, WireSpec, bedrock_converse
from onym.llm.providers import ProviderTable
from onym.llm.types import DocumentPart, ImagePart, Message, Request, TextDelta, TextPart, Usage
from onym.net.messages import Headers
from onym.net.policy import Policy
from stream_support import finish_of, texts_of, thoughts_of

pytest.importorskip("botocore")
import botocore.auth
import botocore.config
import botocore.exceptions
import botocore.parsers
import botocore.session
import botocore.validate
from botocore.awsrequest import AWSRequest, AWSResponse

ACCESS, SECRET, TOKEN = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "a-session-token"
MODEL = "us.anthropic.claude-sonnet-4-20250514-v1:0"
ARN = f"arn:aws:bedrock:us-east-1:123456789012:inference-profile/{MODEL}"
TITAN = "amazon.titan-embed-text-v2:0"
NOW = datetime(2026, 11, 21, 19, 30, tzinfo=UTC)
NO_RETRIES = botocore.config.Config(retries={"max_attempts": 0})
STREAMED = "application/vnd.amazon.eventstream"
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def session() -> Any:
    found = botocore.session.Session()
    found.set_credentials(ACCESS, SECRET, TOKEN)
    return found


@pytest.fixture(scope="module")
def sdk(server: Capture, session: Any) -> Any:
    return session.create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=server.url, config=NO_RETRIES
    )


@pytest.fixture(scope="module")
def control(server: Capture, session: Any) -> Any:
    return session.create_client(
        "bedrock", region_name="us-east-1", endpoint_url=server.url, config=NO_RETRIES
    )


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One time for both, and a region for a host that has none."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: NOW)
    clock = SimpleNamespace(strftime=time.strftime, gmtime=lambda _: time.gmtime(NOW.timestamp()))
    monkeypatch.setattr(clouds, "time", clock)
    monkeypatch.setattr(clouds, "parse_region", lambda _: "us-east-1")
    # no machine of a cloud is asked for credentials
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def ours(server: Capture, query: str = "", model: str = MODEL, **changes: Any) -> Client:
    """A client of ours that signs with the variables' keys."""
    row = server.row("bedrock", **{"params": {}, "chain": "aws", "signing": "aws-sigv4", **changes})
    return connect(
        f"llm://127.0.0.1:{server.port}/{model}" + (f"?{query}" if query else ""),
        providers=ProviderTable.builtin().register(row),
        policy=Policy.local(),
        config=Config(),
        environ=KEYS,
    )


PNG = b"\x89PNG\x00\x01"
SPEC = {"toolSpec": {"name": "weather", "description": "d", "inputSchema": {"json": SCHEMA}}}
SAID = {"role": "user", "content": [{"text": "Hello"}]}
TURNS = [
    {"role": "system", "content": "Be brief."},
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"name": "Ås"}'}},
            {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "content": '{"sun": true}'},
]
TOLD = [
    SAID,
    {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"name": "Ås"}}},
            {"toolUse": {"toolUseId": "c2", "name": "weather", "input": {}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "rain"}]}},
            {"toolResult": {"toolUseId": "c2", "content": [{"json": {"sun": True}}]}},
        ],
    },
]
PARTS = (
    TextPart("What is this?"),
    ImagePart(data=PNG),
    DocumentPart(data=b"%PDF", name="a_b.pdf"),
)
SEEN = [
    {"text": "What is this?"},
    {"image": {"format": "png", "source": {"bytes": PNG}}},
    {"document": {"format": "pdf", "name": "a b pdf", "source": {"bytes": b"%PDF"}}},
]
TEXT_FORMAT = {
    "type": "json_schema",
    "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA, separators=(",", ":")), "name": "city"}},
}

POINT = {"cachePoint": {"type": "default"}}
MARK = {"cache_control": {"type": "ephemeral"}}
MARKED = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief.", **MARK}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Hello", **MARK}, {"type": "text", "text": "Go on."}],
    },
    TURNS[2],
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain", **MARK}]},
    TURNS[4],
]

#: what is asked of us (query of the URI, messages, overrides), and the same of the SDK
CALLS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "plain": ("", [USER], {}, {"messages": [SAID]}),
    "parameters": (
        "temp=0.5&max_tokens=9&top_p=0.9&stop=a,b",
        [USER],
        {},
        {
            "messages": [SAID],
            "inferenceConfig": {"temperature": 0.5, "maxTokens": 9, "topP": 0.9, "stopSequences": ["a", "b"]},
        },
    ),
    "parameters of the model": (
        "top_k=5&additionalModelRequestFields.thinking.type=adaptive&serviceTier.type=flex",
        [USER],
        {},
        {
            "messages": [SAID],
            "additionalModelRequestFields": {"top_k": 5, "thinking": {"type": "adaptive"}},
            "serviceTier": {"type": "flex"},
        },
    ),
    "system": ("system=Be%20brief.", [USER], {}, {"messages": [SAID], "system": [{"text": "Be brief."}]}),
    "tools": (
        "",
        TURNS,
        {"tools": [TOOL], "tool_choice": "weather"},
        {
            "messages": TOLD,
            "system": [{"text": "Be brief."}],
            "toolConfig": {"tools": [SPEC], "toolChoice": {"tool": {"name": "weather"}}},
        },
    ),
    "tools of the provider": (
        "",
        [USER],
        {"tools": [TOOL, {"systemTool": {"name": "nova_code_interpreter"}}]},
        {
            "messages": [SAID],
            "toolConfig": {"tools": [SPEC, {"systemTool": {"name": "nova_code_interpreter"}}]},
        },
    ),
    "cache marks": (
        "",
        MARKED,
        {"tools": [{**TOOL, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        {
            "system": [{"text": "Be brief."}, POINT],
            "messages": [
                {"role": "user", "content": [{"text": "Hello"}, POINT, {"text": "Go on."}]},
                TOLD[1],
                {"role": "user", "content": [*TOLD[2]["content"][:1], POINT, *TOLD[2]["content"][1:]]},
            ],
            "toolConfig": {"tools": [SPEC, {"cachePoint": {"type": "default", "ttl": "1h"}}]},
        },
    ),
    "any tool": (
        "",
        [USER],
        {"tools": [TOOL], "tool_choice": "required"},
        {"messages": [SAID], "toolConfig": {"tools": [SPEC], "toolChoice": {"any": {}}}},
    ),
    "images": (
        "",
        [Message(role="user", content=PARTS[:2])],
        {},
        {"messages": [{"role": "user", "content": SEEN[:2]}]},
    ),
    "schema": (
        "",
        [USER],
        {"schema": SCHEMA},
        {"messages": [SAID], "outputConfig": {"textFormat": TEXT_FORMAT}},
    ),
    "unicode": (
        "",
        [{"role": "user", "content": UNICODE}],
        {},
        {"messages": [{"role": "user", "content": [{"text": UNICODE}]}]},
    ),
}
TOP_K = {"params": {"top_k": "additionalModelRequestFields.top_k"}}
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "metrics": {"latencyMs": 1},
}
ENDING = event("messageStop", {"stopReason": "end_turn"}) + event("metadata", {"usage": ANSWER["usage"]})


def assert_signed(request: Recorded, server: Capture) -> None:
    """That the signature is the one that botocore's signer makes of the request as it came."""
    covered = {"content-type"} & set(request.headers)
    again = AWSRequest(
        method=request.method,
        url=server.url + request.target,
        headers={name: request.headers[name] for name in covered},
        data=request.body,
    )
    keys = botocore.credentials.Credentials(ACCESS, SECRET, TOKEN)
    botocore.auth.SigV4Auth(keys, "bedrock", "us-east-1").add_auth(again)
    for name in ("Authorization", "X-Amz-Date", "X-Amz-Security-Token"):
        assert request.headers[name.lower()] == again.headers[name], name


def same_request(one: Recorded, two: Recorded) -> None:
    assert (one.method, one.target) == (two.method, two.target)
    assert one.json == two.json
    for name in ("x-amz-date", "x-amz-security-token", "host"):
        assert one.headers[name] == two.headers[name], name


@pytest.mark.requirement("onym-dialect-a")
@pytest.mark.parametrize("model", [MODEL, ARN], ids=["id", "arn"])
@both_ways
@each_call(CALLS)
def test_our_request_is_the_one_that_the_sdk_sends(
    server: Capture, sdk: Any, call: Any, stream: bool, model: str
) -> None:
    query, messages, overrides, arguments = call
    with ours(server, query, model, **TOP_K) as client:
        if stream:
            server.answer(ENDING, media=STREAMED)
            with client.stream(messages, **overrides) as events:
                list(events)
            one = server.last()
            list(sdk.converse_stream(modelId=model, **arguments)["stream"])
        else:
            server.answer(ANSWER)
            client.chat(messages, **overrides)
            one = server.last()
            sdk.converse(modelId=model, **arguments)
    two = server.last()
    same_request(one, two)
    assert one.headers["content-type"] == two.headers["content-type"]
    for request in (one, two):
        assert_signed(request, server)
    scope = "Credential={}/20261121/us-east-1/bedrock/aws4_request, SignedHeaders={}, "
    start = "AWS4-HMAC-SHA256 " + scope.format(ACCESS, "content-type;host;x-amz-date;x-amz-security-token")
    assert one.headers["authorization"].startswith(start)
    assert two.headers["authorization"].startswith(start)


@pytest.mark.requirement("onym-dialect-a")
@each_call(CALLS)
def test_the_sdks_model_of_the_service_takes_our_bodies(server: Capture, session: Any, call: Any) -> None:
    query, messages, overrides, _ = call
    server.answer(ANSWER)
    with ours(server, query, **TOP_K) as client:
        client.chat(messages, **overrides)
    service = session.get_service_model("bedrock-runtime")
    shape = service.operation_model("Converse").input_shape
    body = {"modelId": MODEL, **server.last().json}
    report = botocore.validate.ParamValidator().validate(body, shape)
    assert not report.has_errors(), report.generate_report()
    # it ignores members that it does not know
    assert set(body) <= set(shape.members)
    body["inferenceConfig"] = {"maxTokens": "9"}
    assert botocore.validate.ParamValidator().validate(body, shape).has_errors()


def test_documents_are_sent_as_the_sdk_sends_them(server: Capture, sdk: Any) -> None:
    server.answer(ANSWER)
    sdk.converse(modelId=MODEL, messages=[{"role": "user", "content": SEEN}])
    request = Request(model=MODEL, messages=(Message(role="user", content=PARTS),))
    assert bedrock_converse.encode_chat(request, WireSpec()) == server.last().json


def test_the_cache_point_is_one_of_the_services(session: Any) -> None:
    shape = session.get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    for messages in (
        (Message(role="system", content="a"), Message(role="user", content="b")),
        (Message(role="user", content="b"),),
    ):
        request = Request(model=MODEL, messages=messages, params={"cache": True})
        body = {"modelId": MODEL, **bedrock_converse.encode_chat(request, WireSpec())}
        assert str(body).count("cachePoint") == 1
        assert not botocore.validate.ParamValidator().validate(body, shape).has_errors()


@pytest.mark.requirement("onym-dialect-c")
def test_what_was_carried_is_taken_back(session: Any) -> None:
    blocks = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "AAEC"}},
        {"toolUse": {"toolUseId": "c", "name": "f", "input": {"x": 1}}},
    ]
    answer = {**ANSWER, "output": {"message": {"role": "assistant", "content": blocks}}}
    whole = bedrock_converse.decode_chat(200, Headers(), json.dumps(answer).encode(), Exchange())
    turn = Message(role="assistant", tool_calls=whole.tool_calls, carried=whole.carried)
    request = Request(model=MODEL, messages=(Message(role="user", content="b"), turn))
    body = bedrock_converse.encode_chat(request, WireSpec())
    assert body["messages"][1]["content"] == blocks
    shape = session.get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    report = botocore.validate.ParamValidator().validate({"modelId": MODEL, **body}, shape)
    assert not report.has_errors(), report.generate_report()


def test_a_bearer_key_is_sent_as_the_sdk_sends_it(server: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-x")
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        raw = SimpleNamespace(stream=lambda **_: iter([json.dumps(ANSWER).encode()]))
        return AWSResponse(request.url, 200, {"content-type": "application/json"}, raw)

    # it sends no bearer key over HTTP, so it is stopped before it sends
    client = botocore.session.Session().create_client("bedrock-runtime", region_name="us-east-1")
    client.meta.events.register("before-send", answer)
    client.converse(modelId=MODEL, messages=[SAID])
    server.answer(ANSWER)
    with server.client("bedrock", MODEL, key="bedrock-api-key-x", params={}) as mine:
        mine.chat([USER])
    one, two = server.last(), sent[0]
    assert one.headers["authorization"] == two.headers["Authorization"].decode()
    assert two.url == f"https://bedrock-runtime.us-east-1.amazonaws.com{one.target}"
    assert one.json == json.loads(two.body)
    assert "x-amz-date" not in one.headers


@pytest.mark.requirement("onym-operation-a")
@pytest.mark.parametrize(
    ("model", "texts", "extra", "body", "answer"),
    [
        (
            TITAN,
            ["a"],
            {"dimensions": 256},
            {"inputText": "a", "dimensions": 256},
            {"embedding": [0.5, 1], "inputTextTokenCount": 1},
        ),
        (
            "cohere.embed-v4:0",
            ["a", "b"],
            {"truncate": "END"},
            {
                "texts": ["a", "b"],
                "truncate": "END",
                "input_type": "search_document",
                "embedding_types": ["float"],
            },
            {"embeddings": {"float": [[0.5, 1], [0, 2]]}, "response_type": "embeddings_by_type"},
        ),
    ],
)
def test_vectors_are_asked_for_as_the_sdk_asks(
    server: Capture, sdk: Any, model: str, texts: list[str], extra: Any, body: Any, answer: Any
) -> None:
    server.answer(answer)
    with ours(server, "", model) as client:
        found = client.embed(texts, extra=extra)
    one = server.last()
    theirs = sdk.invoke_model(modelId=model, body=json.dumps(body), contentType="application/json")
    same_request(one, server.last())
    for request in (one, server.last()):
        assert_signed(request, server)
    read = json.loads(theirs["body"].read())
    vectors = [read["embedding"]] if "embedding" in read else read["embeddings"]["float"]
    assert [list(vector) for vector in found.vectors] == vectors
    assert found.model == model


@pytest.mark.requirement("onym-operation-a")
def test_models_are_asked_for_and_read_as_the_sdk_does(server: Capture, control: Any) -> None:
    record = {
        "modelArn": f"arn:aws:bedrock:us-east-1::foundation-model/{TITAN}",
        "modelId": TITAN,
        "providerName": "Amazon",
    }
    with ours(server, "", TITAN) as client:
        server.answer({"modelSummaries": [record]})
        page, one = client.models(), server.last()
        theirs, two = control.list_foundation_models(), server.last()
        assert [(item.id, item.owner) for item in page] == [
            (model["modelId"], model["providerName"]) for model in theirs["modelSummaries"]
        ]
        server.answer({"modelDetails": record})
        info, three = client.model(), server.last()
        detail, four = control.get_foundation_model(modelIdentifier=TITAN), server.last()
        assert info.id == detail["modelDetails"]["modelId"]
    for mine, other in ((one, two), (three, four)):
        same_request(mine, other)
        assert_signed(mine, server)
        # nothing in the body, nothing in the headers: the signatures themselves are equal
        assert mine.headers["authorization"] == other.headers["authorization"]


# the same bytes, read by both


def usage_of(usage: Any) -> Usage:
    cached = usage.get("cacheReadInputTokens")
    return Usage(
        input_tokens=usage["inputTokens"] + (cached or 0) + usage.get("cacheWriteInputTokens", 0),
        output_tokens=usage["outputTokens"],
        cached_tokens=cached,
    )


counts = st.integers(0, 10_000)
names = st.text("abc1", min_size=1, max_size=4)
inputs = st.dictionaries(names, st.integers(-5, 5) | text, max_size=2)
usages = st.fixed_dictionaries(
    {"inputTokens": counts, "outputTokens": counts, "totalTokens": counts},
    optional={"cacheReadInputTokens": counts, "cacheWriteInputTokens": counts},
)
blocks = st.lists(
    st.one_of(
        st.fixed_dictionaries({"text": text}),
        st.fixed_dictionaries(
            {"toolUse": st.fixed_dictionaries({"toolUseId": names, "name": names, "input": inputs})}
        ),
        st.fixed_dictionaries(
            {
                "reasoningContent": st.fixed_dictionaries(
                    {"reasoningText": st.fixed_dictionaries({"text": text}, optional={"signature": names})}
                )
            }
        ),
    ),
    max_size=4,
)
reasons = st.sampled_from(
    ["end_turn", "tool_use", "max_tokens", "stop_sequence", "guardrail_intervened", "content_filtered"]
)
MEANT = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


@pytest.mark.requirement("onym-dialect-b")
@often
@given(blocks, reasons, usages)
def test_the_same_answer_reads_the_same(
    server: Capture, sdk: Any, content: list[Any], reason: str, usage: dict[str, int]
) -> None:
    message = {"role": "assistant", "content": content}
    server.answer({**ANSWER, "output": {"message": message}, "stopReason": reason, "usage": usage})
    with ours(server) as client:
        one = client.chat([USER])
    two = sdk.converse(modelId=MODEL, messages=[SAID])
    read = two["output"]["message"]["content"]
    assert one.text == "".join(block.get("text", "") for block in read)
    thoughts = [block["reasoningContent"]["reasoningText"] for block in read if "reasoningContent" in block]
    assert (one.reasoning or "") == "".join(thought["text"] for thought in thoughts)
    assert [(call.id, call.name, json.loads(call.arguments)) for call in one.tool_calls] == [
        tuple(block["toolUse"][name] for name in ("toolUseId", "name", "input"))
        for block in read
        if "toolUse" in block
    ]
    assert (one.carried is not None) == any("signature" in thought for thought in thoughts)
    assert one.finish_reason == MEANT[two["stopReason"]]
    assert one.usage == usage_of(two["usage"])


def stream_of(content: list[Any], reason: str, usage: dict[str, int]) -> bytes:
    """The answer as the service streams it."""
    frames = [event("messageStart", {"role": "assistant"})]
    for index, block in enumerate(content):
        deltas: list[Any] = []
        if "text" in block:
            deltas = [{"text": piece} for piece in block["text"]]
        elif "toolUse" in block:
            call = block["toolUse"]
            start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
            frames.append(event("contentBlockStart", {"contentBlockIndex": index, "start": start}))
            deltas = [{"toolUse": {"input": piece}} for piece in json.dumps(call["input"])]
        else:
            said = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {name: value}} for name, value in said.items()]
        frames += [
            event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}) for delta in deltas
        ]
        frames.append(event("contentBlockStop", {"contentBlockIndex": index}))
    frames.append(event("messageStop", {"stopReason": reason}))
    frames.append(event("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}))
    return b"".join(frames)


@pytest.mark.requirement("onym-dialect-b")
@often
@given(blocks, reasons, usages)
def test_the_same_stream_reads_the_same(
    server: Capture, sdk: Any, content: list[Any], reason: str, usage: dict[str, int]
) -> None:
    server.answer(stream_of(content, reason, usage), media=STREAMED)
    events, whole = read_stream(ours(server), [USER])
    theirs = list(sdk.converse_stream(modelId=MODEL, messages=[SAID])["stream"])
    deltas = [event["contentBlockDelta"]["delta"] for event in theirs if "contentBlockDelta" in event]
    assert texts_of(events) == [delta["text"] for delta in deltas if delta.get("text")]
    assert thoughts_of(events) == [
        delta["reasoningContent"]["text"] for delta in deltas if delta.get("reasoningContent", {}).get("text")
    ]
    finish = finish_of(events)
    assert (
        finish.reason
        == MEANT[next(event["messageStop"]["stopReason"] for event in theirs if "messageStop" in event)]
    )
    assert finish.usage == usage_of(
        next(event["metadata"]["usage"] for event in theirs if "metadata" in event)
    )
    starts = [
        event["contentBlockStart"]["start"]["toolUse"] for event in theirs if "contentBlockStart" in event
    ]
    assert [(call.id, call.name) for call in whole.tool_calls] == [
        (call["toolUseId"], call["name"]) for call in starts
    ]
    sent = [block["toolUse"]["input"] for block in content if "toolUse" in block]
    assert [json.loads(call.arguments) for call in whole.tool_calls] == sent
    arguments = "".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta)
    assert "".join(call.arguments for call in whole.tool_calls) == arguments


ERRORS = [
    (429, "ThrottlingException"),
    (403, "AccessDeniedException"),
    (404, "ResourceNotFoundException"),
    (400, "ValidationException"),
    (403, "UnrecognizedClientException"),
    (424, "ModelErrorException"),
    (418, "NeverHeardOfException"),
]


@pytest.mark.parametrize("place", ["header", "header with a tail", "body"])
@pytest.mark.parametrize(("status", "name"), ERRORS)
def test_an_error_has_the_name_that_the_sdk_reads(session: Any, status: int, name: str, place: str) -> None:
    body: dict[str, str] = {"message": "why"}
    headers = {"x-amzn-requestid": "r1"}
    if place == "body":
        body["__type"] = f"com.amazon.coral.service#{name}"
    else:
        headers["x-amzn-errortype"] = name + (":http://internal.amazon.com/" if "tail" in place else "")
    data = json.dumps(body).encode()
    shape = session.get_service_model("bedrock-runtime").operation_model("Converse").output_shape
    parser = botocore.parsers.create_parser("rest-json")
    two = parser.parse({"status_code": status, "headers": headers, "body": data}, shape)
    one = bedrock_converse.decode_error(status, Headers(list(headers.items())), data, Exchange())
    assert one.provider_code == two["Error"]["Code"] == name
    assert two["Error"]["Message"] == "why"
    assert "why" in str(one)
    assert one.request_id == two["ResponseMetadata"]["RequestId"]


@pytest.mark.parametrize("name", ["throttlingException", "validationException", "modelStreamErrorException"])
def test_an_exception_inside_a_stream_has_the_name_that_the_sdk_reads(
    server: Capture, sdk: Any, name: str
) -> None:
    delta = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}})
    server.answer(delta + exception(name, {"message": "why"}) + ENDING, media=STREAMED)
    seen: list[Any] = []
    with ours(server) as client, pytest.raises(ProviderError) as mine:  # noqa: SIM117
        with client.stream([USER]) as stream:
            seen.extend(stream)
    with pytest.raises(botocore.exceptions.EventStreamError) as theirs:
        list(sdk.converse_stream(modelId=MODEL, messages=[SAID])["stream"])
    assert mine.value.provider_code == theirs.value.response["Error"]["Code"] == name
    assert "why" in str(mine.value)
    assert seen == [TextDelta("Hi")]
