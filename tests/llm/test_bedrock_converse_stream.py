"""Streams of the Bedrock Converse dialect, cut wherever a network may cut them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_support as streams
from contract.eventstream import event, exception, header, message
from json_support import any_json
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    MalformedResponseError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, bedrock_converse
from onym.llm.dialects.bedrock_converse import StreamDecoder
from onym.llm.dialects.streaming import WholeBodyDecoder
from onym.llm.types import Carried, Finish, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from onym.net.messages import Headers
from support import as_subtests


def delta(index: int, **members: Any) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": members, "p": "abc"})


def start(index: int, **members: Any) -> bytes:
    return event("contentBlockStart", {"contentBlockIndex": index, "start": members, "p": "ab"})


def stop(index: int) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": index, "p": "abcd"})


BEGIN = event("messageStart", {"p": "abcdef", "role": "assistant"})
METADATA = event(
    "metadata",
    {
        "metrics": {"latencyMs": 5},
        "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 9, "cacheReadInputTokens": 4},
    },
)
USAGE = Usage(input_tokens=7, output_tokens=2, cached_tokens=4)


def ending(reason: str = "end_turn") -> bytes:
    return event("messageStop", {"p": "a", "stopReason": reason}) + METADATA


SAID = [delta(0, text="Hé"), delta(0, text=""), delta(0, text="llo\n"), stop(0)]
HELLO = BEGIN + b"".join(SAID) + ending()
HELLO_EVENTS = [
    TextDelta("Hé"),
    TextDelta("llo\n"),
    Finish(reason="stop", usage=USAGE, model="asked", request_id="r"),
]
THOUGHT = [
    delta(0, reasoningContent={"text": "h"}),
    delta(0, reasoningContent={"text": "m"}),
    delta(0, reasoningContent={"signature": "si"}),
    delta(0, reasoningContent={"signature": "g"}),
    stop(0),
    delta(1, reasoningContent={"redactedContent": b64encode(b"\x00").decode()}),
    delta(1, reasoningContent={"redactedContent": b64encode(b"\x01\x02").decode()}),
    stop(1),
    delta(2, text="so"),
    stop(2),
]
CALLS = [
    start(3, toolUse={"toolUseId": "c1", "name": "a"}),
    delta(3, toolUse={"input": ""}),
    delta(3, toolUse={"input": '{"x"'}),
    delta(3, toolUse={"input": ": 1}"}),
    stop(3),
    start(4, toolUse={"toolUseId": "c2", "name": "b"}),
    stop(4),
]
TURN = BEGIN + b"".join(THOUGHT + CALLS) + ending("tool_use")


def decode(pieces: Iterable[bytes]) -> streams.Ended:
    return streams.read(StreamDecoder("r", streams.AT), pieces)


def test_a_stream_becomes_events_and_ends_with_finish() -> None:
    assert decode([HELLO]) == (HELLO_EVENTS, None)


BROKEN = bytearray(HELLO)
BROKEN[len(BEGIN) + len(SAID[0]) + 40] ^= 1
STREAMS: dict[str, bytes] = {
    "a plain answer": HELLO,
    "reasoning and tool calls": TURN,
    "without metadata": HELLO[: -len(METADATA)],
    "noise after the end": HELLO + b"\x00" * 40,
    "events of the future": BEGIN + event("blip", b"\xff") + event("", {}) + HELLO,
    "an exception on the way": BEGIN + SAID[0] + exception("throttlingException", {"message": "m"}) + SAID[2],
    "a wrong checksum on the way": bytes(BROKEN),
    "no JSON on the way": BEGIN + SAID[0] + event("contentBlockDelta", b"oops") + HELLO,
    "cut off": HELLO[:-300],
    "nothing": b"",
}


@as_subtests("data", STREAMS.values(), ids=STREAMS.keys())
def test_the_same_octets_give_the_same_events_however_they_are_cut(data: bytes) -> None:
    streams.check_same(decode, streams.every_cut(data))


@pytest.mark.parametrize("data", [HELLO, TURN], ids=["plain", "calls"])
def test_a_stream_cut_off_anywhere_has_no_event_that_is_wrong_or_doubled(data: bytes) -> None:
    whole, _ = decode([data])
    stopped = len(data) - len(METADATA)
    for size in range(len(data)):
        events, error = decode([data[:size]])
        if size < stopped:
            assert isinstance(error, MalformedResponseError), size
            assert events == whole[: len(events)]
        else:
            # the answer is whole, and only its usage is missing
            assert error is None
            assert events[:-1] == whole[:-1]
            assert streams.finish_of(events).usage == Usage()


def test_metadata_that_never_comes_leaves_the_usage_unknown() -> None:
    events, error = decode([STREAMS["without metadata"]])
    assert error is None
    assert events[:-1] == HELLO_EVENTS[:-1]
    assert events[-1] == Finish(reason="stop", model="asked", request_id="r")


def test_nothing_is_read_after_the_end_and_events_of_the_future_are_skipped() -> None:
    assert decode([STREAMS["noise after the end"]]) == (HELLO_EVENTS, None)
    assert decode([STREAMS["events of the future"]]) == (HELLO_EVENTS, None)


def test_reasoning_and_tool_calls_come_in_pieces_and_the_turn_is_carried() -> None:
    events, error = decode([TURN])
    assert error is None
    assert events[:-1] == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("so"),
        ToolCallDelta(index=0, id="c1", name="a"),
        ToolCallDelta(index=0, arguments='{"x"'),
        ToolCallDelta(index=0, arguments=": 1}"),
        ToolCallDelta(index=1, id="c2", name="b"),
    ]
    finish = streams.finish_of(events)
    assert finish.reason == "tool_calls"
    assert finish.carried == Carried(
        dialect="bedrock_converse",
        parts=(
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
            {"reasoningContent": {"redactedContent": b64encode(b"\x00\x01\x02").decode()}},
            {"text": "so"},
            {"toolUse": {"toolUseId": "c1", "name": "a", "input": {"x": 1}}},
            {"toolUse": {"toolUseId": "c2", "name": "b", "input": {}}},
        ),
    )
    assert streams.put_together(events).tool_calls == (
        ToolCall(id="c1", name="a", arguments='{"x": 1}'),
        ToolCall(id="c2", name="b", arguments=""),
    )


def carried(*frames: bytes) -> Carried | None:
    events, error = decode([BEGIN + b"".join(frames)])
    assert error is None
    return streams.finish_of(events).carried


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000])
def test_a_turn_that_cannot_be_given_back_is_not_carried(arguments: str) -> None:
    call = [start(3, toolUse={"toolUseId": "c", "name": "a"}), delta(3, toolUse={"input": arguments})]
    assert carried(*THOUGHT, *call, ending("tool_use")) is None
    assert carried(delta(0, reasoningContent={"redactedContent": "?"}), ending()) is None


def test_blocks_are_carried_in_the_order_of_their_indexes() -> None:
    turn = carried(delta(1, text="so"), *THOUGHT[:4], ending())
    assert turn is not None
    assert [set(part) for part in turn.parts] == [{"reasoningContent"}, {"text"}]


def test_unsigned_reasoning_is_not_carried() -> None:
    assert carried(delta(0, reasoningContent={"text": "hm"}), delta(1, text="x"), ending()) is None


def test_tools_of_the_servers_own_are_not_the_callers() -> None:
    events, error = decode(
        [
            BEGIN
            + b"".join(THOUGHT)
            + start(3, toolUse={"toolUseId": "s", "name": "web", "type": "server_tool_use"})
            + delta(3, toolUse={"input": '{"q'})
            + delta(3, toolUse={"input": '": 1}'})
            + start(4, toolResult={"toolUseId": "s"})
            + delta(4, toolResult=[{"text": "found"}])
            + start(5, toolUse={"name": "mine"})
            + ending("tool_use")
        ]
    )
    assert error is None
    assert [event for event in events if isinstance(event, ToolCallDelta)] == [
        ToolCallDelta(index=0, id="call_0", name="mine")
    ]
    finish = streams.finish_of(events)
    assert finish.carried is not None
    assert [set(part) for part in finish.carried.parts[:3]] == [
        {"reasoningContent"},
        {"reasoningContent"},
        {"text"},
    ]
    assert finish.carried.parts[3:] == (
        {"toolUse": {"toolUseId": "s", "name": "web", "type": "server_tool_use", "input": {"q": 1}}},
        {"toolResult": {"toolUseId": "s", "content": [{"text": "found"}]}},
        {"toolUse": {"toolUseId": "call_0", "name": "mine", "input": {}}},
    )


def test_a_turn_with_the_servers_tools_goes_back_as_a_whole_answer_does() -> None:
    call = {"toolUseId": "s", "name": "web", "type": "server_tool_use"}
    source = {"title": "Weather", "location": {"web": {"url": "https://example.org"}}}
    events, error = decode(
        [
            BEGIN
            + start(0, toolUse=call)
            + start(1, toolResult={"toolUseId": "s", "status": "success"})
            + delta(1, toolResult=[{"text": "rain"}])
            + delta(1, toolResult=[{"json": {"c": 9}}])
            + delta(2, text="It ")
            + delta(2, text="rains.")
            + delta(2, citation=source)
            + ending("end_turn")
        ]
    )
    assert error is None
    carried = streams.finish_of(events).carried
    content = [
        {"toolUse": {**call, "input": {}}},
        {
            "toolResult": {
                "toolUseId": "s",
                "status": "success",
                "content": [{"text": "rain"}, {"json": {"c": 9}}],
            }
        },
        {"citationsContent": {"content": [{"text": "It rains."}], "citations": [source]}},
    ]
    answer = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    whole = bedrock_converse.decode_chat(200, Headers(), json.dumps(answer).encode(), Exchange())
    assert carried is not None
    assert whole.carried is not None
    assert carried.parts == whole.carried.parts


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        ("throttlingException", RateLimitError),
        ("internalServerException", ServerError),
        ("modelStreamErrorException", ServerError),
        ("validationException", BadRequestError),
        ("serviceUnavailableException", OverloadedError),
        ("someNewException", ServerError),
    ],
)
def test_an_exception_on_the_way_is_its_error_and_what_came_before_is_kept(
    kind: str, meant: type[ProviderError]
) -> None:
    for payload in ({"message": "why"}, b"", b"oops", []):
        events, error = decode([BEGIN + SAID[0] + exception(kind, payload) + SAID[2]])
        assert events == [TextDelta("Hé")]
        assert type(error) is meant
        assert isinstance(error, ProviderError)
        assert (error.provider_code, error.status, error.request_id) == (kind, 200, "r")
        assert ("why" in str(error)) == (payload == {"message": "why"})


def test_an_unmodeled_error_on_the_way_is_told_by_its_headers() -> None:
    texts = {":message-type": "error", ":error-code": "ExpiredTokenException", ":error-message": "late"}
    frame = message(b"".join(header(name, 7, value) for name, value in texts.items()))
    events, error = decode([BEGIN + SAID[0] + frame])
    assert events == [TextDelta("Hé")]
    assert type(error) is AuthenticationError
    assert "late" in str(error)


def test_usage_is_kept_where_an_exception_comes_with_the_rest() -> None:
    decoder = StreamDecoder("r", streams.AT)
    decoder.usage = USAGE
    decoder.feed(exception("throttlingException", {}))
    assert isinstance(decoder.error, RateLimitError)
    assert decoder.error.usage == USAGE
    assert decoder.feed(HELLO) == []


WRONG = {
    "a start that is no object": event("contentBlockStart", {"start": 5}),
    "a delta that is no object": event("contentBlockDelta", {"delta": "x"}),
    "an index that is no number": event("contentBlockDelta", {"delta": {}, "contentBlockIndex": "0"}),
    "an event that is no object": event("messageStop", []),
    "a call that is no object": start(0, toolUse=5),
    "a call without name": start(0, toolUse={"toolUseId": "c"}),
    "a call that begins twice": CALLS[0] + CALLS[0],
    "a call that never began": delta(0, toolUse={"input": "{"}),
    "metadata before the answer": METADATA,
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_members_of_a_wrong_kind_are_malformed(data: bytes) -> None:
    # without it the stream would end well
    events, error = decode([BEGIN + SAID[0] + data + ending()])
    assert events[0] == TextDelta("Hé")
    assert isinstance(error, MalformedResponseError)
    assert (error.endpoint, error.request_id, error.status) == ("llm://host/m", "r", 200)


def test_a_wrong_checksum_is_an_error_of_the_protocol() -> None:
    events, error = decode([STREAMS["a wrong checksum on the way"]])
    assert events == [TextDelta("Hé")]
    assert isinstance(error, ProtocolError)


@pytest.mark.parametrize(
    ("media", "kind"),
    [
        ("application/vnd.amazon.eventstream", StreamDecoder),
        (None, StreamDecoder),
        ("application/json", WholeBodyDecoder),
        ("text/html", WholeBodyDecoder),
    ],
)
def test_the_content_type_says_how_an_answer_is_read(media: str | None, kind: type) -> None:
    assert type(streams.decoder_for(bedrock_converse, media)) is kind


def test_a_whole_answer_to_a_request_for_a_stream_becomes_its_events() -> None:
    headers = Headers([("content-type", "application/json"), ("x-amzn-requestid", "r")])
    decoder = bedrock_converse.stream_decoder(200, headers, streams.AT)
    data = {"output": {"message": {"content": [{"text": "Hi"}]}}, "stopReason": "end_turn"}
    assert decoder.feed(json.dumps(data).encode()) == []
    assert decoder.close() == [TextDelta("Hi"), Finish(reason="stop", model="asked", request_id="r")]


@given(st.lists(streams.texts, max_size=6), st.randoms(use_true_random=False))
def test_texts_survive_any_cut(parts: list[str], random: Random) -> None:
    data = BEGIN + b"".join(delta(0, text=part) for part in parts) + ending()
    streams.check_texts(decode(streams.any_cut(data, random)), parts)


NAMES = [
    "contentBlockIndex", "delta", "start", "text", "toolUse", "input", "name", "stopReason", "usage",
    "reasoningContent", "signature", "redactedContent", "type",
]  # fmt: skip
anything = any_json(NAMES)
kinds = st.sampled_from(["contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "other"])


@given(st.lists(st.tuples(kinds, anything), max_size=6), st.integers(0, 400))
def test_any_events_end_in_events_or_one_of_our_errors(given: list[tuple[str, Any]], at: int) -> None:
    data = b"".join(event(kind, value) for kind, value in given)
    streams.check_same(decode, ([data], [data[:at], data[at:]]))


@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_octets_end_in_events_or_one_of_our_errors(data: bytes, at: int) -> None:
    streams.check_same(decode, ([data], [data[:at], data[at:]]))
