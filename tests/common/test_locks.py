"""Locks between processes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onym.common.files import lock_file, try_lock, unlock, wait_for_lock

_TAKE = """
import sys
from pathlib import Path
from onym.common.files import lock_file
with lock_file(Path(sys.argv[1]), on_wait=lambda: print("waits", flush=True)):
    print("has it", flush=True)
"""


def test_another_process_waits_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock_file(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        other = subprocess.Popen([sys.executable, "-c", _TAKE, str(path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "waits\n"
        assert other.poll() is None
    with other:
        assert other.stdout.readline() == "has it\n"
    assert other.returncode == 0
    assert path.exists()


def test_a_free_lock_is_taken_without_waiting(tmp_path: Path) -> None:
    with lock_file(tmp_path / "lock", on_wait=lambda: pytest.fail("waited")):
        pass


def test_an_open_file_is_locked_and_unlocked(tmp_path: Path) -> None:
    descriptors = [os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    try:
        assert try_lock(descriptors[0])
        assert not try_lock(descriptors[1])
        unlock(descriptors[0])
        wait_for_lock(descriptors[1])
        assert not try_lock(descriptors[0])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_link_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    link = tmp_path / "link"
    with pytest.raises(OSError, match="link") as caught, lock_file(link):
        pytest.fail("locked")
    assert (caught.value.errno, str(caught.value.filename)) == (errno.ELOOP, str(link))
