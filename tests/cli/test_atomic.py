from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from onym.cli._output import replace_text_file
from onym.errors import UsageError


def fail_in_the_middle(path, failure):
    with replace_text_file(path) as write:
        write("half")
        raise failure


def test_the_file_appears_whole_when_the_block_ends_well(tmp_path):
    path = tmp_path / "answer.txt"
    with replace_text_file(path) as write:
        write("one ")
        assert not path.exists()
        write("two")
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
    with replace_text_file(path) as write:
        write("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_gets_the_permissions_that_the_umask_leaves(tmp_path):
    path = tmp_path / "answer.txt"
    before = os.umask(0o027)
    try:
        with replace_text_file(path) as write:
            write("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_stays_and_its_target_changes(tmp_path):
    target = tmp_path / "target"
    target.write_text("earlier", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(target)
    with replace_text_file(link) as write:
        write("new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"


def test_what_is_no_regular_file_is_written_to_directly():
    with replace_text_file(Path(os.devnull)) as write:
        write("gone")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_folder_that_is_missing_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError) as caught, replace_text_file(tmp_path / "nowhere" / "answer.txt"):
        pass
    assert caught.value.code == "usage.output-file"


def test_a_target_that_cannot_be_replaced_leaves_no_remains(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="space"), replace_text_file(tmp_path / "answer.txt") as write:
        write("text")
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_in_an_answer_are_written_as_escapes(tmp_path):
    path = tmp_path / "answer.txt"
    with replace_text_file(path) as write:
        write("a\ud800b")
    assert path.read_text(encoding="utf-8") == "a\\ud800b"
