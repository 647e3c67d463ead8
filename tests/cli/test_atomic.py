from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from onym.cli._atomic_file import AtomicFile
from onym.errors import UsageError


def fail_in_the_middle(path, failure):
    with AtomicFile(path) as out:
        out.write("half")
        raise failure


def test_the_file_appears_whole_when_the_block_ends_well(tmp_path):
    path = tmp_path / "answer.txt"
    with AtomicFile(path) as out:
        out.write("one ")
        assert not path.exists()
        out.write("two")
    assert path.read_text(encoding="utf-8") == "one two"
    assert [each.name for each in tmp_path.iterdir()] == ["answer.txt"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_block_that_fails_leaves_no_file_and_no_remains(tmp_path, failure):
    with pytest.raises(failure):
        fail_in_the_middle(tmp_path / "answer.txt", failure)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_block_leaves_the_earlier_file_as_it_was(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_text("earlier", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        fail_in_the_middle(path, KeyboardInterrupt)
    assert path.read_text(encoding="utf-8") == "earlier"


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_text("earlier", encoding="utf-8")
    path.chmod(0o640)
    with AtomicFile(path) as out:
        out.write("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_gets_the_permissions_that_the_umask_leaves(tmp_path):
    path = tmp_path / "answer.txt"
    before = os.umask(0o027)
    try:
        with AtomicFile(path) as out:
            out.write("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_stays_and_its_target_changes(tmp_path):
    target = tmp_path / "target"
    target.write_text("earlier", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(target)
    with AtomicFile(link) as out:
        out.write("new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"


def test_what_is_no_regular_file_is_written_to_directly():
    with AtomicFile(Path(os.devnull)) as out:
        out.write("gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_folder_that_is_missing_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        AtomicFile(tmp_path / "nowhere" / "answer.txt")


def test_a_target_that_cannot_be_replaced_leaves_no_remains(tmp_path, monkeypatch):
    out = AtomicFile(tmp_path / "answer.txt")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="space"), out:
        out.write("text")
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_in_an_answer_are_written_as_escapes(tmp_path):
    path = tmp_path / "answer.txt"
    with AtomicFile(path) as out:
        out.write("a\ud800b")
    assert path.read_text(encoding="utf-8") == "a\\ud800b"
