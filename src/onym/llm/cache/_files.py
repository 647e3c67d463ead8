"""The folder of the response cache: who may read it, the random key, the numbered data files, byte locks."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

__all__ = ["KEY_LENGTH", "ByteLocks", "data_file", "data_files", "make_folder", "random_key", "remove"]

KEY_LENGTH = 32
_STEM, _SUFFIX = "responses.", ".sqlite3"
#: how the names of all files here begin
_OURS = ("key", "locks", _STEM)
#: what SQLite puts beside a data file
_BESIDE = ("", "-wal", "-shm", "-journal")


def make_folder(folder: Path) -> None:
    """Make the folder, for its owner alone. Raises OSError, also where it is somebody else's.

    Where others could write to it so far, what they put there is removed: a key that somebody knows, and
    answers sealed with it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "nt":  # pragma: no cover - rights are the parent folder's there
        return
    state = folder.stat()
    if state.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user")
    if state.st_mode & 0o077:
        folder.chmod(0o700)
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # another process does it too
                if path.name.startswith(_OURS) and not _is_own(path):
                    path.unlink()


def _is_own(path: Path) -> bool:
    """Whether this is a file of this user's that nobody else may write to."""
    state = path.lstat()
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022


def random_key(folder: Path) -> bytes:
    """The key beside the data, made at the first use. Two processes at once agree on one."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        found = path.read_bytes()
        if len(found) == KEY_LENGTH:
            return found
        path.unlink(missing_ok=True)
    fresh = folder / f"key.{os.getpid()}.{token_hex(8)}"
    with os.fdopen(private(fresh), "wb") as file:
        file.write(os.urandom(KEY_LENGTH))
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)  # whole or not at all, and never in place of another's
    finally:
        fresh.unlink()
    return path.read_bytes()


def private(path: Path) -> int:
    """A descriptor of a file that its owner alone may read, made where it is missing; no link is followed."""
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)


def data_files(folder: Path) -> dict[int, Path]:
    """The data files by number."""
    found = {}
    for path in folder.glob(f"{_STEM}*{_SUFFIX}"):
        number = path.name.removeprefix(_STEM).removesuffix(_SUFFIX)
        if number.isascii() and number.isdigit():
            found[int(number)] = path
    return found


def data_file(folder: Path, number: int) -> Path:
    """The data file of that number, empty and private where it is new."""
    path = folder / f"{_STEM}{number}{_SUFFIX}"
    os.close(private(path))
    return path


def remove(path: Path) -> None:
    """Remove a data file and what belongs to it. Its name is never used again: others may have it open."""
    for end in _BESIDE:
        with suppress(OSError):
            path.with_name(path.name + end).unlink(missing_ok=True)


class ByteLocks:
    """Locks between processes, any number in one file: each is one octet of it, named by an offset.

    They end with the process, however it ends. Within one process they exclude nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks"
        self._file: tuple[int, int] | None = None

    def take(self, offset: int) -> bool:
        """Whether this process has the lock now. Raises OSError where the file system has no locks."""
        return _lock(self._descriptor(), offset)

    def give(self, offset: int) -> None:
        """Let others have it."""
        with suppress(OSError):
            _unlock(self._descriptor(), offset)

    def _descriptor(self) -> int:
        # never closed: closing any descriptor of the file gives up all of this process's locks
        if self._file is None or self._file[0] != os.getpid():
            self._file = os.getpid(), private(self._path)
        return self._file[1]


if sys.platform == "win32":  # pragma: no cover - the tests run where there is fcntl
    import msvcrt

    def _lock(descriptor: int, offset: int) -> bool:
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int, offset: int) -> None:
        os.lseek(descriptor, offset, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, offset: int) -> bool:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(descriptor: int, offset: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)
