"""What a page says of a stream of events."""

from __future__ import annotations

import pytest

from onym.server.gateway.responses import build_stream_view


def events(*parts: tuple[str, str]) -> bytes:
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in parts).encode()


def test_pieces_of_text_are_joined_and_the_receipt_is_left_out() -> None:
    found = build_stream_view(
        events(
            ("message", '{"text":"Once "}'),
            ("message", '"upon"'),
            ("result", '{"a":1}'),
            ("receipt", "eyJ.eyJ.x"),
        )
    )
    assert found is not None
    assert (found.text, found.count, found.cut) == ("Once upon", 3, False)
    assert found.result == '{\n  "a": 1\n}'
    assert found.events == (("message", '{"text":"Once "}'), ("message", '"upon"'), ("result", '{"a":1}'))


@pytest.mark.parametrize("data", ["plain", "7", '{"number":1}', '{"text":1}', "[" * 5000])
def test_events_that_are_no_pieces_of_text_are_not_joined(data: str) -> None:
    found = build_stream_view(events(("message", '"x"'), ("message", data)))
    assert found is not None
    assert (found.text, found.count) == ("", 2)


def test_a_result_that_is_no_json_is_shown_as_it_is() -> None:
    found = build_stream_view(events(("result", "done")))
    assert found is not None
    assert (found.result, found.text) == ("done", "")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (events(*[("message", "1")] * 300), 200),
        (events(("message", "1"), ("message", "x" * 70_000)), 1),
    ],
)
def test_a_long_stream_is_cut_and_says_so(body: bytes, shown: int) -> None:
    found = build_stream_view(body)
    assert found is not None
    assert (len(found.events), found.cut) == (shown, True)


def test_octets_that_are_no_text_are_no_stream() -> None:
    assert build_stream_view(b"data: \xff\n\n") is None
