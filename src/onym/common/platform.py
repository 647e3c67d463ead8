"""Differences between operating systems: the only module that imports what only Unix or only Windows has.

On Windows, access lists replace file modes, so every file passes the checks for owner and mode here.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

IS_WINDOWS: Final = sys.platform == "win32"

#: flags for `os.open`, 0 if the system does not have them
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
CLOSE_ON_EXEC: Final = getattr(os, "O_CLOEXEC", 0)
BINARY: Final = getattr(os, "O_BINARY", 0)

_OTHERS: Final = 0o077
# linux/fcntl.h, linux/fs.h
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_OTHERS_WRITE: Final = 0o022


def get_user_id() -> int:
    """The number of the user whose rights this process has; 0 on Windows."""
    return 0 if sys.platform == "win32" else os.geteuid()


def get_user_name() -> str:
    """The name of the user whose rights this process was started with."""
    try:
        import pwd  # late: Unix only

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        from getpass import getuser  # late: reads variables, which anyone can set

        return getuser()


def is_owned_by_user(state: os.stat_result) -> bool:
    """Whether the file belongs to the user of this process."""
    return IS_WINDOWS or state.st_uid == get_user_id()


def is_open_to_others(state: os.stat_result) -> bool:
    """Whether the mode gives the group or other users any right."""
    return not IS_WINDOWS and bool(state.st_mode & _OTHERS)


def is_writable_by_others(state: os.stat_result) -> bool:
    """Whether the mode lets the group or other users write."""
    return not IS_WINDOWS and bool(state.st_mode & _OTHERS_WRITE)


def swap_folders(one: Path, other: Path) -> bool:
    """Exchange two folders of one file system in one step; False if the system cannot do that."""
    if sys.platform != "linux":
        return False
    import ctypes  # late: few programs exchange folders

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # a C library without it
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


def limit_process(*, memory: int, niceness: int) -> None:
    """Lower the priority of this process and limit its address space in bytes, as far as the system can."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.nice(niceness)
    import resource  # late: only a process that limits itself needs it

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


if sys.platform == "win32":  # pragma: no cover - the tests run on Unix
    import msvcrt

    def sync_file(descriptor: int) -> None:
        """Return after the content of the file is on the disk. Raises OSError."""
        os.fsync(descriptor)

    def sync_folder(folder: Path) -> None:
        """Do nothing: Windows has no folders to flush."""

    def try_lock_byte(descriptor: int, offset: int) -> bool:
        """Lock one byte of the file between processes; False if another process has the lock."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def unlock_byte(descriptor: int, offset: int) -> None:
        """Release the lock of one byte. Raises OSError."""
        os.lseek(descriptor, offset, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def sync_file(descriptor: int) -> None:
        """Return after the content of the file is on the disk. Raises OSError."""
        if sys.platform == "darwin":  # pragma: no cover - the tests run on Linux
            with suppress(OSError):
                # fsync of macOS stops at the drive's own cache
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
                return
            os.fsync(descriptor)
        else:
            os.fdatasync(descriptor)

    def sync_folder(folder: Path) -> None:
        """Return after the names in the folder are on the disk. Raises OSError."""
        descriptor = os.open(folder, os.O_RDONLY | CLOSE_ON_EXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def try_lock_byte(descriptor: int, offset: int) -> bool:
        """Lock one byte of the file between processes; False if another process has the lock."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock_byte(descriptor: int, offset: int) -> None:
        """Release the lock of one byte. Raises OSError."""
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, offset)
