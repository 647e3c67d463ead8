"""What it takes that octets are still there after the power went."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["APPEND", "sync", "sync_folder", "write_all"]

#: how a journal is opened: every write goes to its end, Windows leaves the line ends alone
APPEND: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


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
