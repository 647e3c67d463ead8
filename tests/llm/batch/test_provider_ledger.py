"""What is at the provider is written down durably, and read again whatever cut it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import ResponseTooLarge, UsageError
from onym.llm.batch import _storage as module
from onym.llm.batch._storage import (
    BatchBuilder,
    LabelStore,
    Submission,
    SubmissionLog,
    get_submission_log_path,
    make_request_name,
    require_no_open_batches,
    to_ranges,
)
from onym.llm.dialects.streaming import LineFramer
from support import as_subtests

TOKEN = "0123456789abcdef"


def chunk(*rows):
    return Submission(TOKEN, rows, 1.0)


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_just_the_numbers(numbers):
    found = to_ranges(sorted(numbers))
    one = chunk(*found)
    assert list(one.iter_indexes()) == sorted(numbers)
    assert one.count == len(numbers)
    assert {number for number in range(202) if number in one} == numbers
    assert all(one.parse_request_name(make_request_name(one.token, number)) == number for number in numbers)


@as_subtests("name", ["", "5", f"{TOKEN}", f"{TOKEN}-", f"{TOKEN}-05", f"{TOKEN}-6",
                                  f"{TOKEN}-\u0665", f"{TOKEN}-5 ", f"x{TOKEN}-5", f"{TOKEN}--5",
                                  f"{TOKEN}-{'9' * 5000}"])  # fmt: skip
def test_names_that_were_not_given_name_no_row(name):
    assert chunk((5, 5)).parse_request_name(name) is None


def test_a_ledger_knows_after_a_restart_what_it_knew(tmp_path):
    path = tmp_path / "x"
    ledger = SubmissionLog(path)
    one = ledger.record_plan("a", [1, 2, 5], 7.0)
    two = ledger.record_plan("b", [6], 8.0)
    ledger.record_plan("c", [7], 9.0)
    ledger.record_created(one, "batch_1")
    ledger.record_candidates(two, ("x", "y"))
    ledger.record_end(ledger.submissions["c"], "dropped")
    ledger.close()
    again = SubmissionLog(path)
    assert again.submissions == {"a": one, "b": two}
    assert (one.rows, one.at, one.batch) == (((1, 2), (5, 5)), 7.0, "batch_1")
    assert two.candidates == ("x", "y")
    again.record_created(again.submissions["b"], "y")
    assert again.submissions["b"].candidates == ()
    for chunk in list(again.submissions.values()):
        again.record_end(chunk, "done")
    again.close()
    assert not path.exists()


def test_a_ledger_cut_at_any_octet_knows_a_moment_before_and_goes_on(tmp_path):
    path = tmp_path / "x"
    ledger = SubmissionLog(path)
    one = ledger.record_plan("a", [1, 2], 7.0)
    ledger.record_created(one, "b")
    ledger.record_end(one, "done")
    data = path.read_bytes()
    ends = [at + 1 for at, octet in enumerate(data) if octet == 10]
    for at in range(len(data) + 1):
        path.write_bytes(data[:at])
        cut = SubmissionLog(path)
        whole = sum(end <= at for end in ends)
        known = cut.submissions.get("a")
        assert (known is not None, known and known.batch) == [
            (False, None), (True, None), (True, "b"), (False, None),
        ][whole]  # fmt: skip
        cut.record_plan("n", [9], 1.0)
        os.close(cut._descriptor)
        assert "n" in SubmissionLog(path).submissions


@pytest.mark.parametrize("line", [b"x\n", b"[]\n", b'{"chunk": 1}\n', b"\xff\n", b'{"chunk":"a","rows":7}\n'])
def test_a_damaged_ledger_is_not_guessed_at(tmp_path, line):
    path = get_submission_log_path(tmp_path / "out")
    path.write_bytes(line)
    for use in (lambda: SubmissionLog(path), lambda: require_no_open_batches(tmp_path / "out")):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.code == "usage.batch-ledger"


def test_words_about_a_batch_that_nobody_knows_change_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(
        b'{"chunk":"a","batch":"b"}\n{"chunk":"a"}\n{"chunk":"b","rows":[[1,1]]}\n{"chunk":"b"}\n'
    )
    assert list(SubmissionLog(path).submissions) == ["b"]


def test_each_step_is_synced_before_it_counts(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        module, "sync_file", lambda descriptor: seen.append(Path(tmp_path / "x").read_bytes())
    )
    ledger = SubmissionLog(tmp_path / "x")
    ledger.record_created(ledger.record_plan("a", [1], 1.0), "b")
    assert [data.count(b"\n") for data in seen] == [1, 2]


@given(st.dictionaries(st.integers(0, 300), st.text(max_size=9)))
def test_labels_come_back(tmp_path_factory, labels):
    found = LabelStore(tmp_path_factory.getbasetemp())
    for index in sorted(labels):
        found.put(index, labels[index])
        assert found.get(index) == labels[index]
    assert {index: found.get(index) for index in labels} == labels
    assert {index for index in range(301) if index in found} == set(labels)
    found.close()


def test_a_load_takes_one_line_however_large():
    load = BatchBuilder(TOKEN, 2, 10)
    assert load.has_room(b"x" * 99)
    load.add(1, b"x" * 99)
    assert not load.has_room(b"x")
    few = BatchBuilder(TOKEN, 1, 10)
    few.add(1, b"x")
    assert not few.has_room(b"x")
    assert make_request_name(few.token, 7) == f"{TOKEN}-7"


@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(0, 60)))
def test_lines_are_the_same_however_they_are_cut(pieces, cuts):
    data = b"\n".join(pieces)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    lines = LineFramer()
    found = []
    for start, end in pairwise(places):
        found += lines.feed(data[start:end])
    found += lines.close()
    assert found == [item.strip() for item in data.split(b"\n") if item.strip()]


def test_a_line_without_end_is_refused():
    lines = LineFramer(1024 * 1024)
    for _ in range(2):
        assert list(lines.feed(b"x" * 512 * 1024)) == []
    with pytest.raises(ResponseTooLarge):
        list(lines.feed(b"x"))
