"""Whatever is left of a journal, every sound line counts once and nothing else does."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import RateLimitError
from onym.llm.batch._rows import make_answer_result, make_failed_result
from onym.llm.batch._storage import (
    JournalWriter,
    RowBitmap,
    decode_head,
    parse_index,
    read_lines,
    repair_journal,
)
from onym.llm.types import Completion, ToolCall, Usage


def ok(index, text="hello\nworld"):
    done = Completion(text=text, model="m", finish_reason="stop", usage=Usage(input_tokens=3))
    return make_answer_result(index, f"id-{index}", done, 1).line


def bad(index):
    return make_failed_result(index, f"id-{index}", RateLimitError("no"), 3).line


LINES = [ok(4), bad(0), ok(2, 'quote " and }{'), ok(1)]
WHOLE = b"".join(LINES)


def mended(path, data, **more):
    path.write_bytes(data)
    done = RowBitmap(10)
    found = repair_journal(path, done, **more)
    return found, [index for index in range(10) if index in done]


def test_a_journal_cut_at_any_octet_keeps_its_whole_lines_and_no_other(tmp_path):
    path = tmp_path / "j"
    for cut in range(len(WHOLE) + 1):
        found, done = mended(path, WHOLE[:cut])
        kept = WHOLE[:cut].count(b"\n")
        # a line that lacks nothing but its end is whole
        kept += cut + 1 in {sum(map(len, LINES[:at])) for at in range(1, 5)}
        assert path.read_bytes() == b"".join(LINES[:kept]), cut
        assert done == sorted([4, 0, 2, 1][:kept]), cut
        assert found.ok + found.failed == kept, cut
        lost = path.read_bytes() != WHOLE[:cut] and WHOLE[:cut] + b"\n" != path.read_bytes()
        assert found.dropped == lost, cut


def test_a_second_repair_changes_nothing(tmp_path):
    path = tmp_path / "j"
    mended(path, WHOLE[:-20])
    once = path.read_bytes()
    found, _ = mended(path, once)
    assert (found.dropped, path.read_bytes()) == (0, once)


JUNK = [
    b"\0" * 50 + b"\n",
    b"\n",
    b"{}\n",
    b'{"index":99,"status":"ok"}\n',
    b'{"index":-1,"status":"ok"}\n',
    LINES[0],
    b'{"index":5,"status":"?"}\n',
    b'{"status":"ok","index":5}\n',
    b'{"index":5,"status":"ok","text":"\xff"}\n',
]


@pytest.mark.parametrize("junk", JUNK)
def test_damage_in_the_middle_costs_the_damaged_lines_alone(tmp_path, junk):
    path = tmp_path / "j"
    found, done = mended(path, LINES[0] + junk + LINES[1] + LINES[2])
    assert path.read_bytes() == LINES[0] + LINES[1] + LINES[2]
    assert done == [0, 2, 4]
    assert found == (2, 1, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_failed_rows_are_dropped_where_they_are_to_be_asked_again(tmp_path):
    path = tmp_path / "j"
    found, done = mended(path, WHOLE, drop_failed=True)
    assert path.read_bytes() == LINES[0] + LINES[2] + LINES[3]
    assert (found.ok, found.failed, done) == (3, 0, [1, 2, 4])


def test_a_finished_output_stays_as_it_is_while_a_journal_is_made_of_it(tmp_path):
    path, into = tmp_path / "out", tmp_path / "j"
    mended(path, WHOLE, into=into, drop_failed=True)
    assert path.read_bytes() == WHOLE
    assert into.read_bytes() == LINES[0] + LINES[2] + LINES[3]


def test_a_journal_that_is_not_there_holds_nothing(tmp_path):
    done = RowBitmap(5)
    assert repair_journal(tmp_path / "none", done) == (0, 0, 0)
    assert not (tmp_path / "none").exists()


@given(st.lists(st.sampled_from([*LINES, b"\n", b"\0\0\0", b'{"index":', b"{}\n", bad(3)])))
def test_any_heap_of_lines_and_rubbish_becomes_a_journal_of_distinct_sound_lines(parts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        found, done = mended(path, b"".join(parts))
        lines = list(read_lines(path))
    assert all(line.endswith(b"\n") and decode_head(line) is not None for line in lines)
    assert sorted(map(parse_index, lines)) == done
    assert found.ok + found.failed == len(lines)


def test_a_lone_surrogate_becomes_a_question_mark_and_the_line_is_sound():
    line = make_answer_result(1, "a", Completion(
        text="x\ud800", model="m", finish_reason="stop",
        tool_calls=(ToolCall(id="1", name="f", arguments="\udfff"),)), 1).line  # fmt: skip
    assert b'"text":"x?"' in line
    assert decode_head(line).index == 1


class Told:
    """Counts what a writer says is durable."""

    def __init__(self):
        self.count = 0
        self.error = None
        self.groups = []
        self.came = threading.Event()

    def __call__(self, count, error):
        self.count += count
        self.error = error
        self.groups.append(count)
        self.came.set()


def test_lines_are_told_durable_in_groups_once_they_are_synced(tmp_path):
    told, synced = Told(), []

    def sync(descriptor):
        synced.append(os.fstat(descriptor).st_size)
        assert told.count < len(LINES)

    writer = JournalWriter(tmp_path / "j", told, gather=0.0, synced=sync)
    for line in LINES:
        writer.append(line)
    writer.close()
    writer.close()
    assert (tmp_path / "j").read_bytes() == WHOLE
    assert told.count == sum(told.groups) == 4
    assert synced[-1] == len(WHOLE)


def test_what_comes_while_the_disk_is_busy_is_synced_together(tmp_path):
    told, gate, busy = Told(), threading.Event(), threading.Event()

    def sync(descriptor):
        busy.set()
        assert gate.wait(600)

    writer = JournalWriter(tmp_path / "j", told, gather=0.0, synced=sync)
    writer.append(LINES[0])
    assert busy.wait(600)
    for line in LINES[1:]:
        writer.append(line)
    gate.set()
    writer.close()
    assert told.groups == [1, 3]


def test_a_disk_that_cannot_sync_ends_the_writing_and_takes_back_what_does_not_count(tmp_path):
    path, told = tmp_path / "j", Told()
    path.write_bytes(LINES[0])

    def sync(descriptor):
        raise OSError(errno.EIO, "broken")

    writer = JournalWriter(path, told, synced=sync)
    writer.append(LINES[1])
    assert told.came.wait(600)
    writer.append(LINES[2])
    writer.close()
    assert (told.count, told.error.errno) == (0, errno.EIO)
    assert path.read_bytes() == LINES[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path):
    told = Told()
    writer = JournalWriter(Path("/dev/full"), told)
    writer.append(LINES[0])
    writer.close()
    assert (told.count, told.error.errno) == (0, errno.ENOSPC)
