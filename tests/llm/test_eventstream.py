"""Frames of AWS event streams: every type of header, every cut, every broken octet."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.eventstream import header, message
from onym.errors import NetError, OnymError, ProtocolError, ResponseTooLarge
from onym.llm.dialects.streaming import EventFrame, EventStreamFramer
from support import as_subtests

botocore_eventstream = pytest.importorskip("botocore.eventstream")

Value = tuple[int, Any]


def read(pieces: Iterable[bytes]) -> tuple[list[EventFrame], OnymError | None]:
    frames, found = EventStreamFramer(), []
    try:
        for piece in pieces:
            for frame in frames.feed(piece):
                found.append(frame)  # noqa: PERF402 - those before an error count
        found += frames.close()
    except NetError as error:
        return found, error
    return found, None


def every_cut(data: bytes) -> Iterable[list[bytes]]:
    yield [data[index : index + 1] for index in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


ALL = {
    "yes": (0, True),
    "no": (1, False),
    "byte": (2, -3),
    "short": (3, -300),
    "int": (4, 70_000),
    "long": (5, -(2**40)),
    "octets": (6, b"\x00\xff"),
    "text": (7, "Grüße"),
    "when": (8, 1_700_000_000_000),
    "uuid": (9, bytes(range(16))),
}
EVERY = b"".join(header(name, kind, value) for name, (kind, value) in ALL.items())
STREAM = message(EVERY, b'{"a":1}') + message() + message(header(":event-type", 7, "x"), b"\x00" * 20)


def test_headers_of_every_type_are_read() -> None:
    (frame,), error = read([message(EVERY, b"payload")])
    assert error is None
    assert frame.headers == {name: value for name, (_, value) in ALL.items()}
    assert frame.payload == b"payload"
    assert (frame.get_text("text"), frame.get_text("int"), frame.get_text("none")) == ("Grüße", "", "")


def test_the_same_octets_give_the_same_messages_however_they_are_cut() -> None:
    whole = read([STREAM])
    assert [len(frame.payload) for frame in whole[0]] == [7, 0, 20]
    for pieces in every_cut(STREAM):
        assert read(pieces) == whole


def test_a_message_that_is_cut_short_is_none() -> None:
    ends = [len(message(EVERY, b'{"a":1}')), len(message(EVERY, b'{"a":1}')) + 16]
    for size in range(len(STREAM)):
        found, error = read([STREAM[:size]])
        assert error is None
        assert len(found) == sum(size >= end for end in ends)


@as_subtests("at", range(len(message(EVERY, b"xy"))))
def test_no_octet_can_change_unseen(at: int) -> None:
    good = message(header("a", 7, "b"), b"z")
    bad = bytearray(message(EVERY, b"xy"))
    bad[at] ^= 0x40
    for pieces in ([good + bad], [good, bytes(bad)]):
        found, error = read(pieces)
        assert [frame.payload for frame in found] == [b"z"]
        assert isinstance(error, ProtocolError)
        assert error.code == "net.protocol.eventstream"


BROKEN = {
    "an unknown type": header("a", 10, None),
    "a name beyond the headers": b"\x05ab",
    "no type": b"\x01a",
    "an integer cut short": b"\x01a\x04\x00\x00",
    "a length cut short": b"\x01a\x07\x00",
    "a text beyond the headers": b"\x01a\x07\x00\x09abc",
    "a uuid cut short": b"\x01a\x09abc",
    "a name that is not UTF-8": b"\x01\xff\x00",
    "a text that is not UTF-8": header("a", 7, b"\xff"),
    "a header twice": header("a", 0, None) + header("a", 1, None),
}


@as_subtests("headers", BROKEN.values(), ids=BROKEN.keys())
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    found, error = read([message(), message(headers, b"x")] if headers else [])
    assert len(found) == 1
    assert isinstance(error, ProtocolError)


def prelude(total: int, headers: int) -> bytes:
    data = pack(">II", total, headers)
    return data + pack(">I", crc32(data))


@pytest.mark.parametrize(
    ("total", "headers", "kind"),
    [
        (16 * 1024 * 1024 + 1, 0, ResponseTooLarge),
        (2**32 - 1, 0, ResponseTooLarge),
        (200_000, 128 * 1024 + 1, ResponseTooLarge),
        (15, 0, ProtocolError),
        (0, 0, ProtocolError),
        (20, 5, ProtocolError),
    ],
)
def test_lengths_are_refused_before_anything_is_kept(total: int, headers: int, kind: type[OnymError]) -> None:
    found, error = read([message(), prelude(total, headers)])
    assert len(found) == 1
    assert type(error) is kind


def test_the_largest_message_is_read() -> None:
    payload = bytes(16 * 1024 * 1024 - 16)
    found, error = read([message(b"", payload)])
    assert error is None
    assert len(found[0].payload) == len(payload)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
values = st.one_of(
    st.just((0, True)),
    st.just((1, False)),
    st.tuples(st.just(2), st.integers(-(2**7), 2**7 - 1)),
    st.tuples(st.just(3), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(4), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.sampled_from([5, 8]), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(6), st.binary(max_size=20)),
    st.tuples(st.just(7), st.text(st.characters(codec="utf-8"), max_size=20)),
    st.tuples(st.just(9), st.binary(min_size=16, max_size=16)),
)
messages = st.lists(st.tuples(st.dictionaries(names, values, max_size=4), st.binary(max_size=30)), max_size=4)


@given(messages, st.randoms(use_true_random=False))
def test_what_botocore_reads_is_read_the_same_at_any_cut(
    given: list[tuple[dict[str, Value], bytes]], random: Any
) -> None:
    data = b"".join(
        message(b"".join(header(name, kind, value) for name, (kind, value) in headers.items()), payload)
        for headers, payload in given
    )
    theirs = botocore_eventstream.EventStreamBuffer()
    theirs.add_data(data)
    expected = [(event.headers, event.payload) for event in theirs]
    pieces = []
    while data:
        at = random.randint(1, len(data))
        pieces.append(data[:at])
        data = data[at:]
    found, error = read(pieces)
    assert error is None
    assert [(dict(frame.headers), frame.payload) for frame in found] == expected
    assert len(expected) == len(given)


@given(st.binary(max_size=60))
def test_any_octets_in_a_message_are_headers_or_one_of_our_errors(headers: bytes) -> None:
    found, error = read([message(headers)])
    assert bool(found) != bool(error)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_octets_end_the_same_at_any_cut(data: bytes, at: int) -> None:
    one, two = read([data]), read([data[:at], data[at:]])
    assert (one[0], str(one[1])) == (two[0], str(two[1]))
