"""What is at the provider is written down durably, and read again whatever cut it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import ResponseTooLarge, UsageError
from onym.llm.batch import _provider_ledger as module
from onym.llm.batch import _provider_results as results_module
from onym.llm.batch._provider_ledger import Chunk, Ledger, ledger_path, ranges, refuse_open
from onym.llm.batch._provider_results import Lines
from onym.llm.batch._provider_rows import Labels, Load

TOKEN = "0123456789abcdef"


def chunk(*rows):
    return Chunk(TOKEN, rows, 1.0)


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_just_the_numbers(numbers):
    found = ranges(sorted(numbers))
    one = chunk(*found)
    assert list(one.indexes()) == sorted(numbers)
    assert one.count == len(numbers)
    assert {number for number in range(202) if number in one} == numbers
    assert all(one.index(one.name(number)) == number for number in numbers)


@pytest.mark.parametrize("name", ["", "5", f"{TOKEN}", f"{TOKEN}-", f"{TOKEN}-05", f"{TOKEN}-6",
                                  f"{TOKEN}-\u0665", f"{TOKEN}-5 ", f"x{TOKEN}-5", f"{TOKEN}--5",
                                  f"{TOKEN}-{'9' * 5000}"])  # fmt: skip
def test_names_that_were_not_given_name_no_row(name):
    assert chunk((5, 5)).index(name) is None


def test_a_ledger_knows_after_a_restart_what_it_knew(tmp_path):
    path = tmp_path / "x"
    ledger = Ledger(path)
    one = ledger.plan("a", [1, 2, 5], 7.0)
    two = ledger.plan("b", [6], 8.0)
    ledger.plan("c", [7], 9.0)
    ledger.created(one, "batch_1")
    ledger.maybe(two, ("x", "y"))
    ledger.end(ledger.chunks["c"], "dropped")
    ledger.close()
    again = Ledger(path)
    assert again.chunks == {"a": one, "b": two}
    assert (one.rows, one.at, one.batch) == (((1, 2), (5, 5)), 7.0, "batch_1")
    assert two.maybe == ("x", "y")
    again.created(again.chunks["b"], "y")
    assert again.chunks["b"].maybe == ()
    for each in list(again.chunks.values()):
        again.end(each, "done")
    again.close()
    assert not path.exists()


def test_a_ledger_cut_at_any_octet_knows_a_moment_before_and_goes_on(tmp_path):
    path = tmp_path / "x"
    ledger = Ledger(path)
    one = ledger.plan("a", [1, 2], 7.0)
    ledger.created(one, "b")
    ledger.end(one, "done")
    data = path.read_bytes()
    ends = [at + 1 for at, octet in enumerate(data) if octet == 10]
    for at in range(len(data) + 1):
        path.write_bytes(data[:at])
        cut = Ledger(path)
        whole = sum(end <= at for end in ends)
        known = cut.chunks.get("a")
        assert (known is not None, known and known.batch) == [
            (False, None), (True, None), (True, "b"), (False, None),
        ][whole]  # fmt: skip
        cut.plan("n", [9], 1.0)
        os.close(cut._descriptor)
        assert "n" in Ledger(path).chunks


@pytest.mark.parametrize("line", [b"x\n", b"[]\n", b'{"chunk": 1}\n', b"\xff\n", b'{"chunk":"a","rows":7}\n'])
def test_a_damaged_ledger_is_not_guessed_at(tmp_path, line):
    path = ledger_path(tmp_path / "out")
    path.write_bytes(line)
    for use in (lambda: Ledger(path), lambda: refuse_open(tmp_path / "out")):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.code == "usage.batch-ledger"


def test_words_about_a_batch_that_nobody_knows_change_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(
        b'{"chunk":"a","batch":"b"}\n{"chunk":"a"}\n{"chunk":"b","rows":[[1,1]]}\n{"chunk":"b"}\n'
    )
    assert list(Ledger(path).chunks) == ["b"]


def test_each_step_is_synced_before_it_counts(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "sync", lambda descriptor: seen.append(Path(tmp_path / "x").read_bytes()))
    ledger = Ledger(tmp_path / "x")
    ledger.created(ledger.plan("a", [1], 1.0), "b")
    assert [data.count(b"\n") for data in seen] == [1, 2]


@given(st.dictionaries(st.integers(0, 300), st.text(max_size=9)))
def test_labels_come_back(tmp_path_factory, labels):
    found = Labels(tmp_path_factory.getbasetemp())
    for index in sorted(labels):
        found.put(index, labels[index])
        assert found.get(index) == labels[index]
    assert {index: found.get(index) for index in labels} == labels
    assert {index for index in range(301) if index in found} == set(labels)
    found.close()


def test_a_load_takes_one_line_however_large():
    load = Load(TOKEN, 2, 10)
    assert load.fits(b"x" * 99)
    load.add(1, b"x" * 99)
    assert not load.fits(b"x")
    few = Load(TOKEN, 1, 10)
    few.add(1, b"x")
    assert not few.fits(b"x")
    assert few.name(7) == f"{TOKEN}-7"


@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(0, 60)))
def test_lines_are_the_same_however_they_are_cut(pieces, cuts):
    data = b"\n".join(pieces)
    places = sorted({min(each, len(data)) for each in cuts} | {0, len(data)})
    lines = Lines()
    found = []
    for start, end in pairwise(places):
        found += lines.feed(data[start:end])
    found += lines.close()
    assert found == [each.strip() for each in data.split(b"\n") if each.strip()]


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(results_module, "_LONGEST", 1024 * 1024)
    lines = Lines()
    for _ in range(2):
        assert list(lines.feed(b"x" * 512 * 1024)) == []
    with pytest.raises(ResponseTooLarge):
        list(lines.feed(b"x"))
