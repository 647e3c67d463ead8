"""Streams of the Anthropic Messages dialect, cut wherever a network may cut them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_support as streams
from json_support import any_json
from onym.errors import (
    BadRequestError,
    MalformedResponseError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    ServerError,
)
from onym.llm.dialects import anthropic_messages
from onym.llm.dialects.anthropic_messages import StreamDecoder
from onym.llm.dialects.streaming import WholeBodyDecoder
from onym.llm.types import Carried, Finish, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from onym.net.messages import Headers
from support import as_subtests


def start(**usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 3, "output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def begin(index: int, kind: str = "text", **block: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    block = {"type": kind, **empty.get(kind, {}), **block}
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def words(text: str, index: int = 0) -> dict[str, Any]:
    return piece(index, "text_delta", text=text)


def stop(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2, **usage}}


LAST = {"type": "message_stop"}
PING = {"type": "ping"}
HELLO = [start(), begin(0), PING, words("Hé"), words("llo\n"), stop(), end(), LAST]
HELLO_EVENTS = [
    TextDelta("Hé"),
    TextDelta("llo\n"),
    Finish(reason="stop", usage=Usage(input_tokens=3, output_tokens=2), model="m-1", request_id="r"),
]


def sse(*events: Any, line: str = "\n", last: bytes = b"") -> bytes:
    texts = [
        f"event: {event['type']}{line}data: {json.dumps(event, ensure_ascii=False)}{line}{line}"
        for event in events
    ]
    return "".join(texts).encode() + last


def decode(pieces: Iterable[bytes]) -> streams.Ended:
    return streams.read(StreamDecoder("r", streams.AT), pieces)


def test_a_stream_becomes_events_and_ends_with_finish() -> None:
    assert decode([sse(*HELLO)]) == (HELLO_EVENTS, None)


THINKING = [
    start(cache_read_input_tokens=4, cache_creation_input_tokens=None),
    begin(0, "thinking"),
    piece(0, "thinking_delta", thinking="h"),
    piece(0, "thinking_delta", thinking="m"),
    piece(0, "signature_delta", signature="c2ln"),
    stop(0),
    begin(1, "redacted_thinking", data="eA=="),
    stop(1),
    begin(2),
    words("Let me see.", 2),
    piece(2, "citations_delta", citation={"type": "char_location", "cited_text": "x"}),
    piece(2, "citations_delta", citation={"type": "char_location", "cited_text": "y"}),
    stop(2),
    begin(3, "tool_use", id="toolu_1", name="a"),
    piece(3, "input_json_delta", partial_json=""),
    piece(3, "input_json_delta", partial_json='{"x"'),
    piece(3, "input_json_delta", partial_json=":[1]}"),
    stop(3),
    begin(4, "tool_use", id="toolu_2", name="b"),
    stop(4),
    end("tool_use", output_tokens=9, output_tokens_details={"thinking_tokens": 5}),
    LAST,
]
THOUGHT = Carried(
    dialect="anthropic_messages",
    parts=(
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
        {
            "type": "text",
            "text": "Let me see.",
            "citations": [
                {"type": "char_location", "cited_text": "x"},
                {"type": "char_location", "cited_text": "y"},
            ],
        },
        {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {"x": [1]}},
        {"type": "tool_use", "id": "toolu_2", "name": "b", "input": {}},
    ),
)

STREAMS: dict[str, bytes] = {
    "a plain answer": sse(*HELLO),
    "with CRLF": sse(*HELLO, line="\r\n"),
    "with CR": sse(*HELLO, line="\r"),
    "with comments, a BOM and no space": b"\xef\xbb\xbf: keep-alive\n\n" + sse(*HELLO).replace(b": ", b":"),
    "without message_stop": sse(*HELLO[:-1]),
    "noise after message_stop": sse(*HELLO) + b"data: {nonsense\n\ndata: \xff\n\n",
    "an error on the way": sse(*HELLO[:4], {"type": "error", "error": {"type": "overloaded_error"}}, *HELLO),
    "bad octets on the way": sse(*HELLO[:5], last=b'data: {"type": "\xff"}\n\n') + sse(*HELLO[5:]),
    "half a character at the end": sse(*HELLO[:5], last=b"data: \xc3"),
    "no JSON on the way": sse(*HELLO[:5], last=b"data: oops\n\n") + sse(*HELLO[5:]),
    "cut off": sse(*HELLO)[:-200],
    "nothing": b"",
}


@as_subtests("data", STREAMS.values(), ids=STREAMS.keys())
def test_the_same_octets_give_the_same_events_however_they_are_cut(data: bytes) -> None:
    streams.check_same(decode, streams.every_cut(data))


def test_a_long_answer_of_every_kind_is_the_same_at_each_cut() -> None:
    data = sse(*THINKING)
    expected = decode([data])
    assert expected[1] is None
    for at in range(1, len(data)):
        assert decode([data[:at], data[at:]]) == expected
    assert decode([data[at : at + 1] for at in range(len(data))]) == expected


@pytest.mark.parametrize("stream", [HELLO, THINKING], ids=["plain", "every kind"])
def test_a_stream_that_ends_early_says_nothing_wrong_and_nothing_twice(stream: list[Any]) -> None:
    data = sse(*stream)
    whole, _ = decode([data])
    reasoned = len(sse(*stream[:-1]))
    for at in range(len(data)):
        events, error = decode([data[:at]])
        if at < reasoned:
            assert type(error) is MalformedResponseError
            assert events == whole[: len(events)]
            assert not any(isinstance(event, Finish) for event in events)
        else:
            assert (events, error) == (whole, None)


def test_line_ends_and_a_missing_end_make_no_difference() -> None:
    for name in list(STREAMS)[1:6]:
        assert decode([STREAMS[name]]) == (HELLO_EVENTS, None), name


def test_thinking_tools_and_what_is_signed_are_read_as_they_come() -> None:
    events, error = decode([sse(*THINKING)])
    assert error is None
    assert events == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("Let me see."),
        ToolCallDelta(index=0, id="toolu_1", name="a"),
        ToolCallDelta(index=0, arguments='{"x"'),
        ToolCallDelta(index=0, arguments=":[1]}"),
        ToolCallDelta(index=1, id="toolu_2", name="b"),
        ToolCallDelta(index=1, arguments="{}"),
        Finish(
            reason="tool_calls",
            usage=Usage(input_tokens=7, output_tokens=9, cached_tokens=4, reasoning_tokens=5),
            model="m-1",
            request_id="r",
            carried=THOUGHT,
        ),
    ]


def test_a_stream_put_together_is_what_the_whole_body_says() -> None:
    one = streams.put_together(decode([sse(*THINKING)])[0])
    message = {
        **start()["message"],
        "content": list(THOUGHT.parts),
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 4,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 5},
        },
    }
    headers = Headers([("request-id", "r")])
    two = anthropic_messages.decode_chat(200, headers, json.dumps(message).encode(), streams.AT)
    assert one.tool_calls == two.tool_calls
    assert one.tool_calls[0] == ToolCall(id="toolu_1", name="a", arguments='{"x":[1]}')
    assert two.carried == THOUGHT
    for name in ("text", "reasoning", "model", "finish_reason", "usage", "request_id"):
        assert getattr(one, name) == getattr(two, name), name


def test_counts_that_come_later_replace_those_from_the_start() -> None:
    more = end("max_tokens", input_tokens=30, cache_read_input_tokens=5, output_tokens=8)
    events, _ = decode([sse(start(cache_creation_input_tokens=100), begin(0), words("a"), more, LAST)])
    usage = Usage(input_tokens=135, output_tokens=8, cached_tokens=5)
    assert events[-1] == Finish(reason="length", usage=usage, model="m-1", request_id="r")


def test_what_is_not_known_is_skipped() -> None:
    events, error = decode(
        [
            sse(
                {"type": "new_event", "message": 5},
                {"type": ["x"]},
                start(),
                begin(0, "new_block", text="not the model's words"),
                words("nor these"),
                piece(0, "new_delta", text=5),
                piece(0, "thinking_delta", thinking="nor this"),
                piece(0, ["x"]),  # type: ignore[arg-type]
                stop(0),
                stop(7),
                begin(1, "server_tool_use", id="s", name="web_search", input={}),
                piece(1, "input_json_delta", partial_json='{"q":1}'),
                stop(1),
                begin(2),
                words("Hi", 2),
                end("pause_turn"),
                LAST,
            )
        ]
    )
    assert error is None
    assert events[:-1] == [TextDelta("Hi")]
    finish = streams.finish_of(events)
    assert finish.reason == "other"
    assert finish.carried is not None
    assert finish.carried.parts[1] == {
        "type": "server_tool_use",
        "id": "s",
        "name": "web_search",
        "input": {"q": 1},
    }


def test_thinking_inside_a_block_of_text_is_thinking() -> None:
    odd = [piece(0, "thinking_delta", thinking="hm"), words("Hi"), piece(0, "signature_delta", signature="x")]
    events, error = decode([sse(start(), begin(0), start(), *odd, stop(), end(), LAST)])
    assert error is None
    assert events[:-1] == [ReasoningDelta("hm"), TextDelta("Hi")]
    assert streams.finish_of(events).carried is None


def test_what_a_block_holds_at_its_start_is_not_lost() -> None:
    events, error = decode(
        [
            sse(
                start(),
                begin(0, "thinking", thinking="h", signature="b2xk"),
                piece(0, "thinking_delta", thinking="m"),
                piece(0, "signature_delta", signature="c2ln"),
                begin(1, text="He"),
                words("llo", 1),
                begin(2, "tool_use", name="a", input={"x": 1}),
                end("tool_use"),
                LAST,
            )
        ]
    )
    assert error is None
    assert events[:-1] == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("He"),
        TextDelta("llo"),
        ToolCallDelta(index=0, name="a"),
        ToolCallDelta(index=0, arguments='{"x":1}'),
    ]
    finish = streams.finish_of(events)
    assert finish.carried is not None
    assert [dict(part) for part in finish.carried.parts] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "name": "a", "input": {"x": 1}},
    ]


def test_a_call_that_was_cut_off_keeps_its_text_and_carries_nothing() -> None:
    cut = [*THINKING[:16], end("max_tokens"), LAST]
    events, error = decode([sse(*cut)])
    assert error is None
    assert events[-2] == ToolCallDelta(index=0, arguments='{"x"')
    finish = streams.finish_of(events)
    assert (finish.reason, finish.carried) == ("length", None)


def test_an_end_without_a_reason_is_an_end_for_another_reason() -> None:
    events, error = decode([sse(start(), end(None), LAST)])
    assert error is None
    assert isinstance(events[0], Finish)
    assert events[0].reason == "other"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, OverloadedError),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, BadRequestError),
        ({"type": "error", "error": {"type": "api_error"}}, ServerError),
        ({"type": "error"}, ServerError),
        ({"type": "odd", "error": {"code": 529}}, OverloadedError),
    ],
)
def test_an_error_in_the_middle_is_typed_and_keeps_what_came_and_the_usage(
    event: Any, kind: type[ProviderError]
) -> None:
    events, error = decode([sse(start(), begin(0), words("a"), event, words("b"))])
    assert events == [TextDelta("a")]
    streams.check_failed(error, kind, Usage(input_tokens=3, output_tokens=1))


def test_an_event_called_error_is_one() -> None:
    data = b'event: error\ndata: {"message": "m", "code": "overloaded_error"}\n\n'
    assert isinstance(decode([data])[1], OverloadedError)


BROKEN: dict[str, bytes] = {
    "no end": sse(*HELLO[:6]),
    "nothing at all": b"",
    "comments alone": b": waiting\n\n",
    "pings alone": sse(PING, PING),
    "an end at once": sse(LAST),
    "no JSON": b"data: hello\n\n",
    "a list": b"data: []\n\n",
    "too deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "a start without message": sse({"type": "message_start"}),
    "a block that is no object": sse(
        start(), {"type": "content_block_start", "index": 0, "content_block": 5}
    ),
    "a block without index": sse(start(), {"type": "content_block_start", "content_block": {"type": "text"}}),
    "a block twice": sse(start(), begin(0), begin(0)),
    "a call without name": sse(start(), begin(0, "tool_use", id="t")),
    "a piece of no block": sse(start(), words("a")),
    "a piece without index": sse(start(), begin(0), {"type": "content_block_delta", "delta": {}}),
    "a delta that is no object": sse(
        start(), begin(0), {"type": "content_block_delta", "index": 0, "delta": 1}
    ),
    "a piece that is a number": sse(start(), begin(0), piece(0, "text_delta", text=5)),
    "OpenAI's": b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n',
}


@as_subtests("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_stream_that_is_no_answer_is_malformed(data: bytes) -> None:
    streams.check_malformed(decode([data]))


def test_octets_that_are_not_utf8_end_it_after_what_was_whole() -> None:
    events, error = decode([STREAMS["bad octets on the way"]])
    assert events == HELLO_EVENTS[:2]
    assert isinstance(error, ProtocolError)


def test_after_its_end_a_stream_says_nothing_more() -> None:
    streams.check_silent_after_its_end(StreamDecoder("r", streams.AT), sse(*HELLO), HELLO_EVENTS)


@pytest.mark.parametrize(
    ("media", "kind"),
    [("text/event-stream", StreamDecoder), (None, StreamDecoder), ("application/json", WholeBodyDecoder)],
)
def test_the_content_type_says_whether_a_stream_came(media: str | None, kind: type) -> None:
    assert type(streams.decoder_for(anthropic_messages, media)) is kind


def test_a_whole_answer_to_a_request_for_a_stream_becomes_its_events() -> None:
    message = {**start()["message"], "content": list(THOUGHT.parts), "stop_reason": "tool_use"}
    headers = Headers([("content-type", "application/json"), ("request-id", "r")])
    decoder = anthropic_messages.stream_decoder(200, headers, streams.AT)
    assert decoder.feed(json.dumps(message).encode()) == []
    assert decoder.close() == [
        ReasoningDelta("hm"),
        TextDelta("Let me see."),
        ToolCallDelta(index=0, id="toolu_1", name="a", arguments='{"x":[1]}'),
        ToolCallDelta(index=1, id="toolu_2", name="b", arguments="{}"),
        Finish(
            reason="tool_calls",
            usage=Usage(input_tokens=3, output_tokens=1),
            model="m-1",
            request_id="r",
            carried=THOUGHT,
        ),
    ]


@given(st.lists(streams.texts, max_size=6), st.randoms(use_true_random=False))
def test_texts_survive_any_cut(parts: list[str], random: Random) -> None:
    data = sse(start(), begin(0), *map(words, parts), stop(), end(), LAST)
    streams.check_texts(decode(streams.any_cut(data, random)), parts)


MEMBERS = ["type", "index", "delta", "content_block", "message", "usage", "text", "name", "error"]
KINDS = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
     "message_stop", "error", "text", "tool_use", "thinking", "text_delta", "input_json_delta",
     "citations_delta"]
)  # fmt: skip
members = any_json(MEMBERS, KINDS)
records = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    KINDS,
    st.dictionaries(st.sampled_from(MEMBERS), members, max_size=4),
)


@given(st.lists(records, max_size=4))
@pytest.mark.requirement("onym-read-f")
def test_any_events_end_in_events_or_one_of_our_errors(events: list[Any]) -> None:
    data = sse(start(), begin(0), begin(1, "tool_use", id="t", name="f"), *events)
    streams.check_same(decode, ([data], [data[at : at + 1] for at in range(len(data))]))


@given(st.binary(max_size=80), st.integers(0, 80))
@pytest.mark.requirement("onym-read-f")
def test_any_octets_end_in_events_or_one_of_our_errors(data: bytes, at: int) -> None:
    streams.check_same(decode, ([data], [data[:at], data[at:]]))
