"""Streams of Ollama's dialect, cut wherever a network may cut them."""

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
from onym.errors import MalformedResponseError, ProviderError, RateLimitError, ServerError
from onym.llm.dialects import ollama
from onym.llm.dialects.ollama import StreamDecoder
from onym.llm.dialects.streaming import WholeBodyDecoder
from onym.llm.types import Carried, Finish, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from onym.net.messages import Headers
from support import as_subtests


def piece(**message: Any) -> dict[str, Any]:
    return {"model": "m:1", "message": {"role": "assistant", "content": "", **message}, "done": False}


def end(reason: str | None = "stop", **members: Any) -> dict[str, Any]:
    counts = {"prompt_eval_count": 3, "eval_count": 2}
    return {**piece(), "done": True, "done_reason": reason, **counts, **members}


HELLO = [piece(thinking="hm"), piece(content="Hé"), piece(content="llo\n"), piece(), end()]
COUNTED = Usage(input_tokens=3, output_tokens=2)
THOUGHT = Carried(dialect="ollama", parts=({"thinking": "hm"},))
HELLO_EVENTS = [
    ReasoningDelta("hm"),
    TextDelta("Hé"),
    TextDelta("llo\n"),
    Finish(reason="stop", usage=COUNTED, model="m:1", request_id="r", carried=THOUGHT),
]
TOOLS = [
    piece(content="Let me see."),
    piece(tool_calls=[{"function": {"name": "a", "arguments": {"x": 1}}}]),
    piece(tool_calls=[{"function": {"name": "b", "arguments": {}}}, {"id": "c3", "function": {"name": "c"}}]),
    end(),
]


def lines(*records: Any, line: str = "\n") -> bytes:
    return b"".join(f"{json.dumps(record, ensure_ascii=False)}{line}".encode() for record in records)


def decode(pieces: Iterable[bytes]) -> streams.Ended:
    return streams.read(StreamDecoder("r", streams.AT), pieces)


def test_a_stream_becomes_events_and_ends_with_finish() -> None:
    assert decode([lines(*HELLO)]) == (HELLO_EVENTS, None)


STREAMS: dict[str, bytes] = {
    "a plain answer": lines(*HELLO),
    "with CRLF": lines(*HELLO, line="\r\n"),
    "with empty lines": b"\n\n" + lines(*HELLO, line="\n \n\n"),
    "without the last line end": lines(*HELLO)[:-1],
    "tool calls": lines(*TOOLS),
    "noise after the end": lines(*HELLO) + b"{nonsense\n\xff\n",
    "an error on the way": lines(*HELLO[:3], {"error": "m"}, *HELLO[3:]),
    "no JSON on the way": lines(*HELLO[:3]) + b"oops\n" + lines(*HELLO[3:]),
    "bad octets on the way": lines(*HELLO[:3]) + b'{"model":"\xff"}\n' + lines(*HELLO[3:]),
    "cut off": lines(*HELLO)[:-20],
    "nothing": b"",
}


@as_subtests("data", STREAMS.values(), ids=STREAMS.keys())
def test_the_same_octets_give_the_same_events_however_they_are_cut(data: bytes) -> None:
    streams.check_same(decode, streams.every_cut(data))


@pytest.mark.parametrize("records", [HELLO, TOOLS], ids=["text", "tools"])
def test_a_stream_that_is_cut_off_anywhere_loses_and_doubles_nothing(records: list[Any]) -> None:
    data = lines(*records)
    whole, _ = decode([data])
    for at in range(len(data) - 1):
        found, error = decode([data[:at]])
        assert found == whole[: len(found)]
        assert type(error) is MalformedResponseError
    # the line end itself may be missing
    assert decode([data[:-1]]) == (whole, None)


@pytest.mark.parametrize("name", ["with CRLF", "with empty lines", "without the last line end"])
def test_line_ends_make_no_difference(name: str) -> None:
    assert decode([STREAMS[name]]) == (HELLO_EVENTS, None)


def test_tool_calls_come_whole_and_are_numbered_through() -> None:
    events, error = decode([lines(*TOOLS)])
    assert error is None
    assert events == [
        TextDelta("Let me see."),
        ToolCallDelta(index=0, id="call_0", name="a", arguments='{"x":1}'),
        ToolCallDelta(index=1, id="call_1", name="b", arguments="{}"),
        ToolCallDelta(index=2, id="c3", name="c"),
        Finish(reason="tool_calls", usage=COUNTED, model="m:1", request_id="r"),
    ]
    assert streams.put_together(events).tool_calls == (
        ToolCall(id="call_0", name="a", arguments='{"x":1}'),
        ToolCall(id="call_1", name="b", arguments="{}"),
        ToolCall(id="c3", name="c", arguments=""),
    )


@pytest.mark.parametrize(
    ("reason", "meant"), [("stop", "stop"), ("length", "length"), ("load", "other"), (None, "stop")]
)
def test_the_end_says_why(reason: str | None, meant: str) -> None:
    events, error = decode([lines(end(reason))])
    assert error is None
    assert events == [Finish(reason=meant, usage=COUNTED, model="m:1", request_id="r")]  # type: ignore[arg-type]


def test_the_last_line_may_hold_text_or_no_message_at_all() -> None:
    last = {**end(), "message": {"content": "!"}}
    assert decode([lines(last)])[0][0] == TextDelta("!")
    events, error = decode([lines({"done": True, "done_reason": "stop"})])
    assert (events, error) == ([Finish(reason="stop", model="asked", request_id="r")], None)


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"error": "m"}, ServerError),
        ({"error": {"message": "m", "code": 429}}, RateLimitError),
        ({**end(), "error": "m"}, ServerError),
    ],
)
def test_an_error_in_the_stream_is_typed_and_keeps_what_came(record: Any, kind: type[ProviderError]) -> None:
    events, error = decode([lines(piece(content="a"), record, piece(content="b"))])
    assert events == [TextDelta("a")]
    streams.check_failed(error, kind, Usage())


BROKEN: dict[str, bytes] = {
    "no end": lines(*HELLO[:-1]),
    "empty lines alone": b"\n\n",
    "no JSON": b"hello\n",
    "server-sent events": b"data: {}\n\n",
    "a list": b"[]\n",
    "too deep": b"[" * 100_000 + b"\n",
    "no message": lines({"done": False}),
    "a stream of /api/generate": lines({"response": "Hi", "done": False}, {"response": "", "done": True}),
    "a message that is no object": lines({"message": "Hi", "done": True}),
    "content that is a number": lines(piece(content=5)),
    "tool calls that are no list": lines(piece(tool_calls={"a": 1})),
    "a tool call without function": lines(piece(tool_calls=[{}])),
    "a tool call without name": lines(piece(tool_calls=[{"function": {}}])),
}


@as_subtests("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_stream_that_is_no_answer_is_malformed(data: bytes) -> None:
    streams.check_malformed(decode([data]))


def test_a_line_without_end_is_refused_at_its_cap() -> None:
    streams.check_capped(StreamDecoder("r", streams.AT), b"x" * 1_000_000)


def test_after_its_end_a_stream_says_nothing_more() -> None:
    decoder = StreamDecoder("r", streams.AT)
    streams.check_silent_after_its_end(decoder, lines(*HELLO), HELLO_EVENTS)
    assert decoder.usage == COUNTED


@pytest.mark.parametrize(
    ("media", "kind"),
    [("application/x-ndjson", StreamDecoder), (None, StreamDecoder), ("application/json", WholeBodyDecoder)],
)
def test_the_content_type_says_whether_a_stream_came(media: str | None, kind: type) -> None:
    assert type(streams.decoder_for(ollama, media)) is kind


def test_a_whole_answer_to_a_request_for_a_stream_becomes_its_events() -> None:
    message = {
        "content": "Hi",
        "thinking": "hm",
        "tool_calls": [{"function": {"name": "a", "arguments": {}}}],
    }
    decoder = ollama.stream_decoder(200, Headers([("content-type", "application/json")]), streams.AT)
    assert decoder.feed(json.dumps({"message": message, "done": True}, indent=1).encode()) == []
    assert decoder.close() == [
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        ToolCallDelta(index=0, id="call_0", name="a", arguments="{}"),
        Finish(reason="tool_calls", model="asked", carried=THOUGHT),
    ]


@given(st.lists(streams.texts, max_size=6), st.randoms(use_true_random=False))
def test_texts_survive_any_cut(parts: list[str], random: Random) -> None:
    data = lines(*[piece(content=part) for part in parts], end())
    streams.check_texts(decode(streams.any_cut(data, random)), parts)


@given(st.binary(max_size=80), st.integers(0, 80))
@pytest.mark.requirement("onym-read-f")
def test_any_octets_end_in_events_or_one_of_our_errors(data: bytes, at: int) -> None:
    streams.check_same(decode, ([data], [data[:at], data[at:]]))


NAMES = [
    "content", "thinking", "tool_calls", "function", "name", "arguments", "id", "done", "done_reason",
    "error",
]  # fmt: skip
values = any_json(NAMES)
records = st.fixed_dictionaries({"message": values, "done": values}, optional={"error": values})


@given(st.lists(records, max_size=4))
def test_any_lines_end_in_events_or_one_of_our_errors(given: list[Any]) -> None:
    found, error = decode([lines(*given)])
    assert (error is None) == any(isinstance(item, Finish) for item in found)
