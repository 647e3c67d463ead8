"""Event streams as the standard reads them, in any cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import ProtocolError, ResponseTooLarge
from onym.net.messages import SSEDecoder, SSEEvent
from support import as_subtests


def decode(*pieces: bytes, max_event: int = 10_000) -> list[SSEEvent]:
    decoder = SSEDecoder(max_event)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


def message(data: str, event: str = "message", identity: str = "") -> SSEEvent:
    return SSEEvent(event, data, identity)


@as_subtests(
    ("text", "events"),
    [
        (b"data: a\n\n", [message("a")]),
        (b"data:a\r\n\r\n", [message("a")]),
        (b"data: a\r\r", [message("a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [message("a")]),
        (b"data:  a\n\n", [message(" a")]),
        (b"data: a\ndata:\ndata\ndata: b\n\n", [message("a\n\n\nb")]),
        (b"data\n\n", [message("")]),
        (b": comment\n\ndata: a\n\n", [message("a")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [message("a", "x"), message("b")]),
        (b"event: x\n\ndata: b\n\n", [message("b")]),
        (b"id: 7\ndata: a\n\ndata: b\n\n", [message("a", identity="7"), message("b", identity="7")]),
        (b"id: 7\nid: a\0b\ndata: a\n\nid\ndata: b\n\n", [message("a", identity="7"), message("b")]),
        (b"retry: 10\nfoo: bar\nDATA: x\ndata: a\n\n", [message("a")]),
        (b"data: a:b\n\n", [message("a:b")]),
        (b"data: \xe2\x82\xac\xc2\x85\xe2\x80\xa8\n\n", [message("€\x85\u2028")]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"", []),
    ],
)
def test_a_stream_is_read_as_the_standard_says(text: bytes, events: list[SSEEvent]) -> None:
    assert decode(text) == events
    assert decode(*(text[i : i + 1] for i in range(len(text)))) == events


STREAM = (
    "\ufeffdata: größer\r\n\r\nevent: délta\rdata: one\rdata: two\r\r"
    ": comment\n\nid: 3\ndata: last\n\n\r\ndata: €\r\n\n"
).encode()


@given(st.lists(st.integers(1, len(STREAM)), max_size=12))
def test_any_cut_of_the_octets_gives_the_same_events(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(places)]
    assert decode(*pieces) == decode(STREAM)
    assert len(decode(STREAM)) == 4


@given(st.binary(max_size=100), st.integers(0, 100))
def test_octets_at_random_end_in_events_or_an_error_of_ours(data: bytes, cut: int) -> None:
    outcomes: list[list[SSEEvent] | None] = []
    for pieces in ((data,), (data[:cut], data[cut:])):
        try:
            outcomes.append(decode(*pieces))
        except ProtocolError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [message("a")]
    assert decoder.feed(b"\ndata: b\n\n") == [message("b")]


FIELDS = (b"data: ", b"data:", b"event: x", b"id: 1", b": c", b"a", b"\xc3\xa9", b"\xff")
LINE_ENDS = (b"\n", b"\n\n", b"\r", b"\r\n")
PIECES = st.lists(st.sampled_from(FIELDS + LINE_ENDS), max_size=30)


def outcome(pieces: Iterable[bytes]) -> tuple[list[SSEEvent], str | None]:
    """The events that come before an error, and its code."""
    decoder = SSEDecoder(12)
    events = []
    try:
        for piece in pieces:
            for event in decoder.events(piece):
                events.append(event)  # noqa: PERF402 - what came before an error is kept
    except (ProtocolError, ResponseTooLarge) as error:
        return events, error.code
    return events, None


@given(PIECES)
def test_events_and_what_ends_them_do_not_hang_on_the_cut(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    octet_by_octet = outcome(data[at : at + 1] for at in range(len(data)))
    assert outcome([data]) == octet_by_octet
    assert outcome(pieces) == octet_by_octet


def test_events_before_an_error_are_given_before_it_is_raised() -> None:
    found: list[SSEEvent] = []
    with pytest.raises(ProtocolError):
        found.extend(SSEDecoder().events(b"data: a\n\ndata: b\n\ndata: \xff\n\n"))
    assert found == [message("a"), message("b")]


@pytest.mark.parametrize("text", [b"data: \xff\n\n", b"data: \xc3\n\n", b"\xed\xa0\x80"])
def test_what_is_not_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(text)
    assert caught.value.code == "net.protocol.sse"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"data: " + b"a" * 100,),
        (b"data: ", b"a" * 50, b"a" * 50),
        (b"data: " + b"a" * 101 + b"\n\n",),
        (b"data: " + b"a" * 40 + b"\n",) * 3,
        (b"data\n" * 101,),
        (b": " + b"c" * 101,),
    ],
)
def test_an_event_beyond_its_cap_is_refused(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ResponseTooLarge) as caught:
        decode(*pieces, max_event=100)
    assert caught.value.code == "net.too-large.event"


def test_the_cap_is_for_one_event_not_for_the_stream() -> None:
    assert len(decode(*[b"data: " + b"a" * 90 + b"\n\n"] * 50, max_event=100)) == 50
