"""Files that are read within a limit and replaced as a whole."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onym.common import files
from onym.common.files import create_file, read_file, remove_file, replace_file, write_file


def reason_of(path: Path, limit: int = 10, **options: bool) -> int | None:
    with pytest.raises(OSError, match=str(path)) as caught:
        read_file(path, limit, **options)
    return caught.value.errno


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_file(path, 10) == b"x" * 10
    assert reason_of(path, 9) == errno.EFBIG


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert reason_of(tmp_path / "pipe") == errno.EINVAL
    assert reason_of(tmp_path) == errno.EINVAL
    assert reason_of(tmp_path / "none") == errno.ENOENT


def test_a_link_is_followed_unless_the_caller_forbids_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_file(link, 1) == b"x"
    assert reason_of(link, follow_links=False) == errno.ELOOP


def test_the_state_is_checked_before_the_content_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"long content")

    def refuse(state: os.stat_result) -> None:
        raise PermissionError(state.st_size)

    with pytest.raises(PermissionError, match="12"):
        read_file(path, 1, check=refuse)


def test_a_write_replaces_the_whole_file_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o664)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    write_file(path, b"mine", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_mode_that_the_umask_allows(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from onym.common.files import write_file;"
        "os.umask(0o027); write_file(Path(sys.argv[1]), b'x')"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "file"], check=True)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_after_an_error_the_old_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail_midway() -> None:
        with replace_file(path) as stream:
            stream.write(b"half")
            raise KeyError("interrupted")

    with pytest.raises(KeyError):
        fail_midway()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_creating_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert create_file(path, b"first")
    assert not create_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    remove_file(path)
    remove_file(path)
    assert not list(tmp_path.iterdir())


def make_folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "index.html").write_text(text)
    return path


@pytest.mark.parametrize("can_swap", [True, False])
def test_a_folder_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_swap: bool
) -> None:
    if not can_swap:
        monkeypatch.setattr(files, "swap_folders", lambda *_: False)
    folder = tmp_path / "public"
    for text in ("one", "two", "three"):
        files.replace_folder(make_folder(tmp_path / "new", text), folder)
        assert (folder / "index.html").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["public"]


def test_a_folder_stays_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "swap_folders", lambda *_: False)
    folder = make_folder(tmp_path / "public", "old")
    with pytest.raises(OSError, match="new"):
        files.replace_folder(tmp_path / "new", folder)
    assert (folder / "index.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["public"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges folders in one step")
def test_readers_find_the_folder_at_every_moment(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "public", "0")
    stop = threading.Event()
    missing: list[OSError] = []

    def read() -> None:
        while not stop.is_set():
            try:
                folder.stat()
            except OSError as error:
                missing.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        files.replace_folder(make_folder(tmp_path / "new", str(number)), folder)
    stop.set()
    reader.join()
    assert missing == []
