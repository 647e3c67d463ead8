"""Every dialect's stream: whole, cut anywhere, cut off anywhere, broken, and nothing like a stream.

The table is `dialect_support`. What is tested byte by byte is tested on the decoder; what a connection can
do to a stream, through a real server and both clients.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from contract.eventstream import exception, header, message
from dialect_server import Outcome, Served, check_events, check_sound, decode, paths, with_value
from dialect_support import AT, CASES, JSON, KEY, NO_USAGE, ONE, REQUEST_ID, TEXT, Case, dumps
from onym.errors import (
    ConnectionFailed,
    MalformedResponseError,
    NetError,
    ProtocolError,
    ProviderError,
    ResponseTooLarge,
    ServerError,
)
from onym.llm.dialects import DIALECTS, Dialect, get_dialect
from onym.llm.types import Finish, TextDelta, ToolCall
from support import as_subtests

CALLS = (ToolCall(id="c1", name="look", arguments='{"q":"é"}'),)
EACH = pytest.mark.parametrize("name", sorted(CASES))


@pytest.fixture(scope="module", params=sorted(CASES))
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(request.param) as server:
        yield server


def of(name: str) -> tuple[Case, Dialect]:
    return CASES[name], get_dialect(name)


@cache
def good(name: str) -> Outcome:
    case, dialect = of(name)
    return decode(dialect, case.media, [case.stream])


def check_prefix(name: str, found: Outcome) -> None:
    """Nothing wrong, nothing twice: what came is how the good answer begins."""
    whole = good(name)
    check_events(found.events)
    said = [event for event in found.events if type(event) is not Finish]
    assert said == whole.events[: len(said)]
    if found.error is None:
        finish, last = found.events[-1], whole.events[-1]
        assert isinstance(finish, Finish)
        assert isinstance(last, Finish)
        assert len(said) == len(whole.events) - 1
        assert (finish.reason, finish.model, finish.carried) == (last.reason, last.model, last.carried)
        assert finish.usage in (last.usage, CASES[name].so_far)
    else:
        assert found.error.endpoint == AT.endpoint
        assert isinstance(found.error, MalformedResponseError)
        assert found.error.usage in (NO_USAGE, CASES[name].so_far, CASES[name].usage)
        assert found.error.request_id == REQUEST_ID
        assert not found.error.retryable


def test_the_table_has_a_row_for_every_dialect() -> None:
    assert set(CASES) == set(DIALECTS)


# -- good streams


@EACH
@pytest.mark.requirement("onym-stream-a")
def test_a_stream_cut_anywhere_gives_the_same_events(name: str) -> None:
    case, dialect = of(name)
    stream, whole = case.stream, good(name)
    check_events(whole.events)
    assert decode(dialect, case.media, [bytes([item]) for item in stream]).same() == whole.same()
    for at in range(1, len(stream)):
        assert decode(dialect, case.media, [stream[:at], stream[at:]]).same() == whole.same(), at


@pytest.mark.requirement("onym-stream-b", "onym-call-e")
def test_streamed_and_whole_say_the_same(served: Served) -> None:
    case = served.case
    whole, streamed = served.chat(case.body).whole, served.stream(case.stream).whole
    assert whole is not None
    assert streamed is not None
    for item in (whole, streamed):
        check_sound(item)
        assert (item.text, item.reasoning, item.tool_calls) == (TEXT, case.reasoning, CALLS)
        assert (item.finish_reason, item.usage, item.model) == ("tool_calls", case.usage, "m-1")
        assert item.request_id == REQUEST_ID
    assert whole.carried == streamed.carried


@pytest.mark.requirement("onym-stream-a", "onym-call-e")
def test_a_stream_that_comes_byte_by_byte_gives_the_same_events(served: Served) -> None:
    stream = served.case.stream
    at_once = served.stream(stream)
    assert at_once.error is None
    assert served.stream(*(bytes([item]) for item in stream), chunked=True).same() == at_once.same()


@pytest.mark.requirement("onym-stream-b")
def test_a_whole_answer_where_a_stream_was_asked_for_is_handed_out_as_events(served: Served) -> None:
    found = served.stream(served.case.body, media=JSON)
    assert found.whole is not None
    check_events(found.events)
    assert (found.whole.text, found.whole.tool_calls) == (TEXT, CALLS)
    assert found.whole.usage == served.case.usage


# -- cut off


@EACH
@pytest.mark.requirement("onym-stream-a")
def test_a_stream_cut_off_at_any_byte_is_never_wrong_or_doubled(name: str) -> None:
    case, dialect = of(name)
    errors = 0
    for at in range(len(case.stream)):
        found = decode(dialect, case.media, [case.stream[:at]])
        check_prefix(name, found)
        errors += found.error is not None
    assert errors > len(case.stream) / 2


@EACH
@pytest.mark.requirement("onym-stream-c")
def test_a_stream_cut_off_between_two_events_keeps_what_came(name: str) -> None:
    case, dialect = of(name)
    found = decode(dialect, case.media, [b"".join(case.frames[: case.before])]).failure
    assert isinstance(found, MalformedResponseError)
    # a count that only a failure brings is not there yet
    assert found.usage == (NO_USAGE if name == "cohere_v2" else case.so_far)
    assert found.partial.text == ONE  # type: ignore[attr-defined]
    assert found.partial.reasoning == case.reasoning  # type: ignore[attr-defined]


@pytest.mark.requirement("onym-stream-a", "onym-stream-c", "onym-call-e")
@pytest.mark.parametrize("how", ["the end of the body", "a lost connection"])
def test_a_body_that_ends_early_ends_as_the_decoder_says_or_as_a_lost_connection(
    served: Served, how: str
) -> None:
    case = served.case
    lost = how == "a lost connection"
    # at the edges of the events, and at a prime step elsewhere; every byte is the decoder's own test
    edges = [len(b"".join(case.frames[:count])) for count in range(len(case.frames))]
    for at in sorted({*edges, *range(0, len(case.stream), 61)}):
        found = served.stream(case.stream[:at], whole=not lost)
        alone = decode(served.dialect, case.media, [case.stream[:at]])
        said = [event for event in alone.events if type(event) is not Finish]
        if lost and found.error is not None:
            assert isinstance(found.error, ConnectionFailed)
            assert found.error.partial.text == "".join(  # type: ignore[attr-defined]
                text.text for text in said if isinstance(text, TextDelta)
            )
            assert found.events == said
        else:
            assert type(found.error) is type(alone.error)
            assert found.events == alone.events
        if found.error is not None:
            assert found.error.endpoint == served.endpoint
            assert found.error.partial.usage in (NO_USAGE, case.so_far, case.usage)  # type: ignore[attr-defined]


# -- an error on the way


@pytest.mark.requirement("onym-stream-c", "onym-call-c", "onym-call-e")
def test_an_error_on_the_way_is_typed_and_keeps_what_came(served: Served) -> None:
    case = served.case
    before = len(served.fake.requests)
    found = served.stream(case.broken)
    error = found.failure
    assert type(error) is case.late_class
    assert isinstance(error, ProviderError)
    assert (error.endpoint, error.request_id, error.status) == (served.endpoint, REQUEST_ID, 200)
    assert error.usage == case.so_far
    assert error.partial.text == ONE  # type: ignore[attr-defined]
    assert error.partial.reasoning == case.reasoning  # type: ignore[attr-defined]
    assert error.partial.usage == case.so_far  # type: ignore[attr-defined]
    assert [event for event in found.events if isinstance(event, TextDelta)] == [TextDelta(ONE)]
    assert len(served.fake.requests) == before + 2  # one of each client: nothing was tried again


@EACH
@pytest.mark.requirement("onym-stream-a", "onym-stream-c")
def test_an_error_on_the_way_is_the_same_however_it_is_cut(name: str) -> None:
    case, dialect = of(name)
    stream = case.broken
    whole = decode(dialect, case.media, [stream])
    assert type(whole.failure) is case.late_class
    for at in range(1, len(stream)):
        assert decode(dialect, case.media, [stream[:at], stream[at:]]).same() == whole.same(), at


@EACH
@pytest.mark.requirement("onym-secret-a")
def test_a_key_that_the_server_says_again_in_a_stream_is_not_shown(name: str) -> None:
    case, dialect = of(name)
    late = case.late.replace(b'"no"', dumps(f"the key {KEY} is no good"))
    if name == "bedrock_converse":
        late = exception("throttlingException", {"message": f"the key {KEY} is no good"})
    stream = b"".join(case.frames[: case.before]) + late
    error = decode(dialect, case.media, [stream]).failure
    assert type(error) is case.late_class
    assert "is no good" in str(error)
    assert KEY not in str(error) + repr(error) + json.dumps(error.as_dict()) + repr(error.args)


# -- nothing like a stream


PAGE = b"<!doctype html><html><body><h1>Sign in</h1></body></html>"


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
@as_subtests(
    ("media", "body"),
    [
        ("text/html", PAGE),
        (None, PAGE),
        (None, b""),
        (JSON, b""),
        (JSON, b"[]"),
        (JSON, b"oops"),
        (None, b"{}\n"),
    ],
)
def test_what_is_no_stream_is_malformed(served: Served, media: str | None, body: bytes) -> None:
    error = served.stream(body, media=media).failure
    if body == PAGE and media is None and served.case.row == "bedrock":
        assert isinstance(error, ProtocolError)
    else:
        assert type(error) is MalformedResponseError
        assert error.request_id == REQUEST_ID
    assert error.endpoint == served.endpoint
    assert not error.retryable
    assert "Sign in" not in str(error)


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
def test_a_page_of_a_gateway_with_502_is_a_failure_of_the_server(served: Served) -> None:
    error = served.stream(PAGE, media="text/html", status=502).failure
    assert type(error) is ServerError
    assert (error.endpoint, error.request_id, error.status) == (served.endpoint, REQUEST_ID, 502)
    assert "HTML" in str(error)


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
def test_an_error_body_with_200_where_a_stream_was_asked_for_is_the_error_that_it_is(served: Served) -> None:
    body, kind = served.case.in_answer
    error = served.stream(dumps(body), media=JSON).failure
    assert type(error) is kind
    assert error.endpoint == served.endpoint


# -- too much


def _huge(case: Case) -> bytes:
    """The beginning of an event that is too long, well formed so far."""
    if case.row == "bedrock":
        return message(header(":event-type", 7, "contentBlockDelta"), b" " * case.longest)
    return b"data: " * (case.media != "application/x-ndjson") + b'{"' + b"a" * case.longest


@pytest.mark.requirement("onym-net-e", "onym-stream-c", "onym-call-e")
def test_one_event_beyond_its_cap_is_refused_after_those_before_it(served: Served) -> None:
    case = served.case
    found = served.stream(b"".join(case.frames[: case.before]), _huge(case))
    error = found.failure
    assert type(error) is ResponseTooLarge
    assert error.code == "net.too-large.event"
    assert error.endpoint == served.endpoint
    assert error.partial.text == ONE  # type: ignore[attr-defined]
    assert error.partial.usage == (NO_USAGE if case.row == "cohere" else case.so_far)  # type: ignore[attr-defined]


def bomb(start: bytes, size: int) -> bytes:
    """Gzip of `start` and `size` MiB of blanks, in a thousandth of that."""
    return gzip.compress(start + b" " * (size * 1024 * 1024), 9)


@pytest.mark.requirement("onym-net-e", "onym-stream-c", "onym-call-e")
def test_a_gzip_bomb_in_a_stream_is_refused_after_the_events_before_it(served: Served) -> None:
    case = served.case
    octets = bomb(b"".join(case.frames[: case.before]) + _huge(case)[:64], 20)
    error = served.stream(octets, more={"content-encoding": "gzip"}).failure
    assert type(error) is ResponseTooLarge
    assert error.code == "net.too-large.event"
    assert error.endpoint == served.endpoint
    assert error.partial.text == ONE  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", ["bedrock_converse", "gemini", "ollama", "openai_chat"]
)  # the kinds of frames
@pytest.mark.requirement("onym-net-e")
def test_a_gzip_bomb_in_a_stream_takes_little_memory(name: str) -> None:
    case = CASES[name]
    octets = bomb(b"".join(case.frames[: case.before]) + _huge(case)[:64], 48)
    tracemalloc.start()
    with Served(name) as served:
        error = served.stream(octets, more={"content-encoding": "gzip"}).failure
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, ResponseTooLarge)
    assert peak < 192 * 1024 * 1024


@pytest.mark.requirement("onym-call-e")
def test_a_stream_in_gzip_is_the_same_stream(served: Served) -> None:
    plain = served.stream(served.case.stream)
    coded = served.stream(gzip.compress(served.case.stream), more={"content-encoding": "gzip"})
    assert coded.same() == plain.same()
    cut = served.stream(gzip.compress(served.case.stream)[:-9], more={"content-encoding": "gzip"})
    assert cut.error is None or isinstance(cut.error, NetError)


# -- something else in one place


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-stream-c")
@as_subtests("octets", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\\ud83d", b"\xf0\x9f"])
def test_octets_that_are_no_text_end_a_stream_with_an_error(name: str, octets: bytes) -> None:
    case, dialect = of(name)
    stream = case.replaced("🌍", octets)[1]
    found = decode(dialect, case.media, [stream])
    if octets == b"\\ud83d" and found.error is None:
        check_sound(found.whole)  # type: ignore[arg-type]
        return
    assert type(found.failure) in (MalformedResponseError, ProtocolError)
    assert found.failure.endpoint == AT.endpoint
    assert found.failure.partial.text == ONE  # type: ignore[attr-defined]
    assert decode(dialect, case.media, [bytes([item]) for item in stream]).same() == found.same()


ODD: tuple[Any, ...] = (
    None,
    7,
    -1,
    1.5,
    True,
    "",
    "x",
    [],
    {},
    [None],
    ["x"],
    [7],
    [[]],
    [{}],
    {"a": 1},
    2**70,
)


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f")
def test_a_member_of_the_wrong_kind_is_passed_over_or_a_typed_error(name: str) -> None:
    case, dialect = of(name)
    tried = 0
    for index, (kind, data) in enumerate(case.records):
        before, after = b"".join(case.frames[:index]), b"".join(case.frames[index + 1 :]) + case.tail
        for path in paths(data):
            for odd in ODD:
                stream = before + case.write(kind, with_value(data, path, odd)) + after
                found = decode(dialect, case.media, [stream])
                check_events(found.events)
                partial = found.whole or found.failure.partial
                check_sound(partial)  # type: ignore[arg-type]
                if found.error is not None:
                    assert found.error.endpoint == AT.endpoint, (path, odd)
                tried += 1
    assert tried > 500


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f")
@pytest.mark.parametrize(
    "deep", [b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000], ids=["open", "closed"]
)
def test_an_event_that_nests_without_end_is_a_typed_error(name: str, deep: bytes) -> None:
    case, dialect = of(name)
    for index, (kind, data) in enumerate(case.records):
        before, after = b"".join(case.frames[:index]), b"".join(case.frames[index + 1 :]) + case.tail
        for path in [(), *paths(data)]:
            if len(path) > 1:
                continue
            said = dumps(with_value(data, path, "@")).replace(b'"@"', deep)
            found = decode(dialect, case.media, [before + case.write(kind, said) + after])
            check_events(found.events)
            if kind not in ("messageStart", "contentBlockStop"):  # bedrock's are not read
                assert found.failure.endpoint == AT.endpoint


@EACH
@pytest.mark.requirement("onym-stream-a")
def test_an_event_that_comes_twice_or_not_at_all_breaks_nothing(name: str) -> None:
    """A lost or doubled event cannot be seen in every dialect; what comes out is sound all the same."""
    case, dialect = of(name)
    for index in range(len(case.frames)):
        for frames in (
            (*case.frames[: index + 1], *case.frames[index:]),
            (*case.frames[:index], *case.frames[index + 1 :]),
        ):
            found = decode(dialect, case.media, [b"".join(frames) + case.tail])
            check_events(found.events)
            check_sound(found.whole or found.failure.partial)  # type: ignore[arg-type]


# nothing says that a stream of Gemini's is over but the end of its octets
@pytest.mark.parametrize("name", [name for name in sorted(CASES) if not name.startswith("gemini")])
@pytest.mark.requirement("onym-stream-a")
def test_nothing_is_read_after_the_end(name: str) -> None:
    case, dialect = of(name)
    noise = case.stream + case.frames[case.before - 1] + b"\xff\xff data: {nonsense\n\n"
    assert decode(dialect, case.media, [noise]).same() == good(name).same()
