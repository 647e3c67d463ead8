"""Streams of the Gemini dialect, cut wherever a network may cut them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_support as streams
from onym.errors import (
    ContentFilterError,
    MalformedResponseError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
)
from onym.llm.dialects import gemini
from onym.llm.dialects.gemini import StreamDecoder, decode_chat
from onym.llm.dialects.streaming import WholeBodyDecoder
from onym.llm.types import Carried, Finish, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from onym.net.messages import Headers
from support import as_subtests


def frame(*parts: Any, reason: str | None = None, **members: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "modelVersion": "g-1", "responseId": "resp", **members}


HELLO = [
    frame({"text": "hm", "thought": True}, usageMetadata={"promptTokenCount": 3, "trafficType": "ON_DEMAND"}),
    frame({"text": "Hé"}),
    frame({"text": "llo\n"}, reason="STOP"),
    {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 1}},
]
FINISH = Finish(
    reason="stop",
    usage=Usage(input_tokens=3, output_tokens=3, reasoning_tokens=1),
    model="g-1",
    request_id="r",
)
HELLO_EVENTS = [ReasoningDelta("hm"), TextDelta("Hé"), TextDelta("llo\n"), FINISH]


def sse(*frames: Any, end: bytes = b"", line: str = "\r\n") -> bytes:
    head = [f"data: {json.dumps(frame, ensure_ascii=False)}{line}{line}".encode() for frame in frames]
    return b"".join(head) + end


def decode(pieces: Iterable[bytes], request_id: str | None = "r") -> streams.Ended:
    return streams.read(StreamDecoder(request_id, streams.AT), pieces)


def test_a_stream_becomes_events_and_ends_with_its_octets() -> None:
    decoder = StreamDecoder("r", streams.AT)
    assert decoder.feed(sse(*HELLO)) == HELLO_EVENTS[:3]
    # a frame with a finish reason is not the last: usage may follow
    assert not decoder.done
    assert decoder.close() == HELLO_EVENTS[3:]
    assert decoder.done


LATE_ERROR = json.dumps({"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}, indent=2).encode()
TOOLS = [
    frame({"text": "Let me see."}),
    frame({"functionCall": {"name": "a", "args": {"x": 1}}, "thoughtSignature": "c2ln"}),
    frame({"functionCall": {"id": "c9", "name": "b"}}, {"text": ""}, reason="STOP"),
]
STREAMS: dict[str, bytes] = {
    "a plain answer": sse(*HELLO),
    "with LF": sse(*HELLO, line="\n"),
    "with CR": sse(*HELLO, line="\r"),
    "with comments, a BOM and no space": b"\xef\xbb\xbf: keep-alive\n\n"
    + sse(*HELLO).replace(b"data: ", b"data:"),
    "tool calls": sse(*TOOLS),
    "a gateway's DONE": sse(*HELLO, end=b"data: [DONE]\n\n"),
    "an error on the way": sse(*HELLO[:2], {"error": {"status": "RESOURCE_EXHAUSTED"}}, *HELLO[2:]),
    "a bare error at the end": sse(*HELLO[:2], end=LATE_ERROR),
    "a bare list at the end": sse(*HELLO[:2], end=b"[" + LATE_ERROR + b"\n]\n"),
    "bare noise": sse(*HELLO[:2], end=b"{oops\n\n") + sse(*HELLO[2:]),
    "bad octets on the way": sse(*HELLO[:3]) + b'data: {"candidates": "\xff"}\n\n' + sse(*HELLO[3:]),
    "half a character at the end": sse(*HELLO[:2]) + b"data: \xc3",
    "no JSON on the way": sse(*HELLO[:2], end=b"data: oops\n\n") + sse(*HELLO[2:]),
    "cut off": sse(*HELLO[:2])[:-20],
    "nothing": b"",
}


@as_subtests("data", STREAMS.values(), ids=STREAMS.keys())
def test_the_same_octets_give_the_same_events_however_they_are_cut(data: bytes) -> None:
    streams.check_same(decode, streams.every_cut(data))


def test_line_ends_make_no_difference() -> None:
    for name in ("with LF", "with CR", "with comments, a BOM and no space", "a gateway's DONE", "bare noise"):
        assert decode([STREAMS[name]]) == (HELLO_EVENTS, None), name


@pytest.mark.parametrize("data", [sse(*HELLO), sse(*TOOLS)], ids=["text", "tools"])
def test_a_stream_that_is_cut_off_gives_no_event_wrongly_or_twice(data: bytes) -> None:
    whole, _ = decode([data])
    said = [item for item in whole if not isinstance(item, Finish)]
    for at in range(len(data)):
        events, error = decode([data[:at]])
        if error is None:
            # the finish reason had come: only what follows it is missing
            assert events[:-1] == said
            assert streams.finish_of(events).reason == streams.finish_of(whole).reason
        else:
            assert type(error) is MalformedResponseError
            assert events == said[: len(events)]


def test_calls_come_whole_and_are_told_apart_by_their_order() -> None:
    events, error = decode([STREAMS["tool calls"]])
    assert error is None
    assert events[1:3] == [
        ToolCallDelta(index=0, id="call_0", name="a", arguments='{"x":1}'),
        ToolCallDelta(index=1, id="c9", name="b", arguments="{}"),
    ]
    whole = streams.put_together(events)
    assert whole.tool_calls == (
        ToolCall(id="call_0", name="a", arguments='{"x":1}'),
        ToolCall(id="c9", name="b", arguments="{}"),
    )
    assert whole.finish_reason == "tool_calls"


def test_a_signed_turn_is_carried_with_its_texts_put_together() -> None:
    frames = [
        frame({"text": "h", "thought": True}),
        frame({"text": "m", "thought": True}),
        frame({"text": "a"}),
        frame({"text": "b"}, {"text": "c"}),
        frame({"text": "", "thoughtSignature": "c2ln"}, reason="STOP"),
    ]
    assert streams.finish_of(decode([sse(*frames)])[0]).carried == Carried(
        dialect="gemini",
        parts=(
            {"text": "hm", "thought": True},
            {"text": "abc"},
            {"text": "", "thoughtSignature": "c2ln"},
        ),
    )


def test_an_unsigned_turn_carries_nothing() -> None:
    assert streams.finish_of(decode([sse(*HELLO)])[0]).carried is None


def test_the_body_names_the_exchange_where_no_header_does() -> None:
    assert streams.finish_of(decode([sse(*HELLO)], request_id=None)[0]).request_id == "resp"


def test_a_frame_without_usage_does_not_forget_it() -> None:
    frames = [frame({"text": "a"}, usageMetadata={"promptTokenCount": 4}), frame(reason="MAX_TOKENS")]
    frames.append({"usageMetadata": {"trafficType": "ON_DEMAND"}})
    events, error = decode([sse(*frames)])
    assert error is None
    assert events[-1] == Finish(reason="length", usage=Usage(input_tokens=4), model="g-1", request_id="r")


def test_other_candidates_are_not_mixed_in() -> None:
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "x"}]}, "finishReason": "SAFETY"}]}
    assert decode([sse(*HELLO[:2], other, *HELLO[2:])]) == (HELLO_EVENTS, None)


def test_an_error_on_the_way_is_typed_and_keeps_what_came_and_the_usage() -> None:
    events, error = decode([STREAMS["an error on the way"]])
    assert events == HELLO_EVENTS[:2]
    streams.check_failed(error, RateLimitError, Usage(input_tokens=3))


@pytest.mark.parametrize("name", ["a bare error at the end", "a bare list at the end"])
def test_an_error_that_stands_bare_after_the_events_is_read_too(name: str) -> None:
    events, error = decode([STREAMS[name]])
    assert events == HELLO_EVENTS[:2]
    assert type(error) is OverloadedError


def test_bare_text_is_kept_up_to_a_bound() -> None:
    decoder = StreamDecoder("r", streams.AT)
    decoder.feed(sse(*HELLO[:2]) + b"{\n")
    for _ in range(40):
        decoder.feed(b"x" * 100_000 + b"\n")
    decoder.feed(b"}\n" + sse(*HELLO[2:]))
    assert decoder.close() == [FINISH]


def test_a_blocked_prompt_is_a_filter() -> None:
    said = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    events, error = decode([sse(said)])
    assert events == []
    assert type(error) is ContentFilterError
    assert isinstance(error, ProviderError)
    assert (error.provider_code, error.usage) == ("SAFETY", Usage(input_tokens=3))


BROKEN: dict[str, bytes] = {
    "no end": sse(*HELLO[:2]),
    "nothing at all": b"",
    "comments alone": b": waiting\n\n: waiting\n\n",
    "DONE at once": b"data: [DONE]\n\n",
    "usage alone": sse(HELLO[3]),
    "no JSON": b"data: hello\n\n",
    "a text": b'data: "x"\n\n',
    "a list of texts": b'data: ["x"]\n\n',
    "too deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "candidates that are no list": sse({"candidates": 5}),
    "a candidate that is no object": sse({"candidates": [1]}),
    "parts that are no list": sse({"candidates": [{"content": {"parts": 5}}]}),
    "text that is a number": sse(frame({"text": 5})),
    "a call without a name": sse(frame({"functionCall": {}})),
    "arguments in pieces": sse(frame({"functionCall": {"name": "f", "willContinue": True}})),
}


@as_subtests("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_stream_that_is_no_answer_is_malformed(data: bytes) -> None:
    streams.check_malformed(decode([data]))


def test_octets_that_are_not_utf8_end_it_after_what_was_whole() -> None:
    events, error = decode([STREAMS["bad octets on the way"]])
    assert events == HELLO_EVENTS[:3]
    assert isinstance(error, ProtocolError)


def test_an_event_without_end_is_refused_at_its_cap() -> None:
    decoder = StreamDecoder("r", streams.AT)
    decoder.feed(sse(*HELLO[:2]))
    streams.check_capped(decoder, b"data: " + b"x" * 1_000_000)


@pytest.mark.parametrize(
    ("media", "kind"),
    [
        ("text/event-stream", StreamDecoder),
        (None, StreamDecoder),
        ("application/json; charset=UTF-8", WholeBodyDecoder),
        ("text/html", WholeBodyDecoder),
    ],
)
def test_the_content_type_says_whether_a_stream_came(media: str | None, kind: type) -> None:
    assert type(streams.decoder_for(gemini, media)) is kind


def test_a_stream_that_came_as_an_array_becomes_its_events() -> None:
    data = json.dumps(HELLO).encode()
    decoder = WholeBodyDecoder(decode_chat, 200, Headers([("x-request-id", "r")]), streams.AT)
    for index in range(len(data)):
        assert decoder.feed(data[index : index + 1]) == []
    assert decoder.close() == [ReasoningDelta("hm"), TextDelta("Héllo\n"), FINISH]


def test_an_error_in_the_array_of_a_stream_is_that_error() -> None:
    decoder = WholeBodyDecoder(decode_chat, 200, Headers(), streams.AT)
    decoder.feed(json.dumps([HELLO[0], json.loads(LATE_ERROR)]).encode())
    with pytest.raises(OverloadedError):
        decoder.close()


@given(st.lists(st.tuples(streams.texts, st.booleans()), max_size=6), st.randoms(use_true_random=False))
def test_texts_survive_any_cut(parts: list[tuple[str, bool]], random: Random) -> None:
    frames = [frame({"text": said, "thought": thought}) for said, thought in parts]
    data = sse(*frames, frame(reason="STOP"))
    events, error = decode(streams.any_cut(data, random))
    assert error is None
    expected = [ReasoningDelta(said) if thought else TextDelta(said) for said, thought in parts if said]
    assert events[:-1] == expected


@given(st.binary(max_size=80), st.integers(0, 80))
@pytest.mark.requirement("onym-read-f")
def test_any_octets_end_in_events_or_one_of_our_errors(data: bytes, at: int) -> None:
    streams.check_same(decode, ([data], [data[:at], data[at:]]))
