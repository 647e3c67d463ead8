"""What a run knows of its rows: which are done, which have the same label, in which order they come."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import UsageError
from onym.llm.batch._storage import RowBitmap, count_rows, sort_lines


@given(st.integers(0, 300), st.lists(st.integers(-5, 310)))
def test_the_set_of_done_rows_is_a_set_of_places(total, places):
    done, model = RowBitmap(total), set()
    for place in places:
        fresh = 0 <= place < total and place not in model
        assert done.add(place) is fresh
        if fresh:
            model.add(place)
        assert len(done) == len(model)
    assert {place for place in range(-10, total + 20) if place in done} == model


def test_the_set_takes_one_bit_a_row():
    done = RowBitmap(1_000_000)
    for place in range(0, 1_000_000, 7):
        done.add(place)
    done.add(999_999)
    assert len(done._bits) == 125_000


def test_a_place_beyond_the_input_takes_no_memory():
    done = RowBitmap(10)
    assert not done.add(10**15)
    assert 10**15 not in done
    assert len(done._bits) == 0


@given(
    st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"") + b"\n")),
    st.integers(1, 500),
)
def test_lines_are_sorted_however_little_room_there_is(lines, room):
    with tempfile.TemporaryDirectory() as folder:
        assert list(sort_lines(lines, Path(folder), room=room)) == sorted(lines)


def test_runs_that_are_longer_than_what_is_read_ahead_keep_their_lines(tmp_path):
    lines = [b"%08d %s\n" % (at * 7919 % 10_000, b"x" * (at % 90)) for at in range(10_000)]
    assert list(sort_lines(lines, tmp_path, room=200_000)) == sorted(lines)
    assert list(tmp_path.iterdir()) == []


def rows(*values):
    return [(index, json.dumps(value).encode()) for index, value in enumerate(values)]


def test_rows_are_counted(tmp_path):
    assert count_rows(rows({"id": "a"}, {}, {"custom_id": "b"}, 5), tmp_path) == 4
    assert count_rows([], tmp_path) == 0


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (({"id": "a"}, {"id": "b"}, {"id": "a"}), "0 and 2"),
        (({"id": "2"}, {"id": "b"}, {}), "0 and 2"),
        (({"id": "x"}, {"custom_id": "x"}), "0 and 1"),
        (({"id": 5}, {"id": "5"}), "0 and 1"),
    ],
)
def test_two_rows_of_one_label_are_refused_by_their_numbers(tmp_path, values, named):
    with pytest.raises(UsageError, match=named) as caught:
        count_rows(rows(*values), tmp_path)
    assert caught.value.code == "usage.same-id"


@given(st.lists(st.integers(0, 40), max_size=60))
def test_labels_are_refused_exactly_where_two_are_the_same(names):
    values = [{"id": f"n{name}"} for name in names]
    with tempfile.TemporaryDirectory() as folder:
        if len(set(names)) == len(names):
            assert count_rows(rows(*values), Path(folder)) == len(names)
        else:
            with pytest.raises(UsageError):
                count_rows(rows(*values), Path(folder))
