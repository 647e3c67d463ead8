"""Attacks of an endpoint on its clients, and of one authority on another at the same client."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onym.ai.client_flows import _LONGEST_DESCRIPTION, parse_description
from onym.ai.exchange import MAX_EVENTS, StreamReader
from onym.ai.replay import MemoryReplays, ReplayFile, Replays
from onym.errors import ProvenanceError, ResponseTooLarge

Make = Callable[[int], Replays]


class Asked:
    """As much of a question as a stream needs."""

    request_hash = "x" * 43
    target = "ai://a.example/x"
    task = None


def test_a_stream_of_a_million_empty_events_is_cut_off() -> None:
    # 8 MiB, the most that a gateway takes, were 1.4 million events and eight seconds of its event loop
    reader = StreamReader(Asked(), 200, "text/event-stream")  # type: ignore[arg-type]
    with pytest.raises(ResponseTooLarge) as caught:
        reader.feed(b"data\n\n" * (MAX_EVENTS + 1))
    assert (caught.value.code, caught.value.endpoint) == ("net.too-large.event", "ai://a.example/x")


def test_as_many_events_as_an_endpoint_sends_are_taken() -> None:
    reader = StreamReader(Asked(), 200, "text/event-stream")  # type: ignore[arg-type]
    assert len(reader.feed(b"data\n\n" * MAX_EVENTS)) == MAX_EVENTS
    assert reader.feed(b"event: receipt\ndata: a.b.c\n\n") == []
    assert reader.token == "a.b.c"


@pytest.mark.parametrize("field", ["event: a\0b", "data: one\nevent: a\0b"])
def test_an_event_that_no_chain_can_hold_is_a_result_that_does_not_hold(field: str) -> None:
    reader = StreamReader(Asked(), 200, "text/event-stream")  # type: ignore[arg-type]
    with pytest.raises(ProvenanceError) as caught:
        reader.feed(f"{field}\ndata: x\n\n".encode())
    assert (caught.value.target, caught.value.clause) == (Asked.target, "AIIP/HTTPS v1 3.8, streams")


def test_a_description_has_a_size() -> None:
    class Given:
        body = b" " * (_LONGEST_DESCRIPTION + 1)

    found: Any = Given()
    with pytest.raises(ProvenanceError) as caught:
        parse_description(found, "ai://a.example/x")
    assert (caught.value.target, caught.value.clause) == ("ai://a.example/x", "AIIP/HTTPS v1 3.6")


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        return MemoryReplays
    return lambda most: ReplayFile(tmp_path / "seen.sqlite", most)


def seen(store: Replays, owner: str, number: int, now: float = 1.0) -> bool:
    return store.seen(f"https://{owner}.example\nkid.{number}", 100.0, now=now)


def test_one_authority_does_not_fill_the_store_for_the_others(make: Make) -> None:
    store = make(10)
    for number in range(8):
        assert not seen(store, "evil", number)
    with pytest.raises(ProvenanceError) as caught:
        seen(store, "evil", 8)
    assert caught.value.code == "aiip.unavailable"
    assert not seen(store, "bank", 1)
    assert seen(store, "evil", 0)
    # what has ended gives its place back
    assert not seen(store, "evil", 9, now=101.0)


def test_all_together_fill_it_all_the_same(make: Make) -> None:
    store = make(4)
    for owner in ("a", "b", "c", "d"):
        assert not seen(store, owner, 1)
    with pytest.raises(ProvenanceError):
        seen(store, "e", 1)


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_store_of_receipts_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    path.touch()
    path.chmod(0o666)
    ReplayFile(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
