"""What it takes that octets are still there after the power went."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Final

__all__ = ["APPEND", "OPEN", "fresh", "sync", "sync_folder", "touch", "write_all"]

#: how a file beside an output is opened. Its name can be foreseen: where others may write to the folder, a
#: link in its place would lead to another file. Windows leaves the line ends alone
OPEN: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
#: how a journal is: every write goes to its end
APPEND: Final = OPEN | os.O_APPEND


def fresh(path: Path) -> IO[bytes]:
    """A new file to write, in the place of what has that name, which is not followed; raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, OPEN | os.O_EXCL, 0o666), "wb")


def touch(path: Path) -> None:
    """Make an empty file where there is none; raises OSError."""
    os.close(os.open(path, APPEND, 0o666))


def _sync_apple(descriptor: int) -> None:
    import fcntl

    try:
        # fsync of macOS stops at the drive's own cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        os.fsync(descriptor)


def sync(descriptor: int) -> None:
    """Return once the octets of the file are on the disk; raises OSError."""
    if sys.platform == "darwin":
        _sync_apple(descriptor)
    else:
        getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_folder(folder: Path) -> None:
    """Return once the names in the folder are on the disk. Windows has no such thing, and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every octet; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
