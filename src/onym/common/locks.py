"""Locks between processes. The system releases a lock at the latest when its process ends.

The lock is that of the library `filelock` (flock on Unix, LockFileEx on Windows). `filelock` is imported
late: it takes 50 ms, and most commands take no lock. Every function raises OSError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from onym.common.platform import BINARY, CLOSE_ON_EXEC, NO_FOLLOW

_FLAGS: Final = os.O_RDWR | os.O_CREAT | NO_FOLLOW | CLOSE_ON_EXEC | BINARY
#: seconds between two attempts
_POLL: Final = 0.005


@contextmanager
def lock_file(path: Path, *, mode: int = 0o600, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock `path`, a file that exists only to be locked; it is created, and never removed.

    `on_wait` is called once if another process has the lock.
    """
    descriptor = os.open(path, _FLAGS, mode)
    try:
        if on_wait is None or not try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another process has the lock."""
    from filelock import lock_descriptor  # late: see above

    return lock_descriptor(descriptor, blocking=False)


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file until it is closed or unlocked, and wait while another process has the lock."""
    from filelock import lock_descriptor  # late: see above

    lock_descriptor(descriptor, poll_interval=_POLL)


def unlock(descriptor: int) -> None:
    """Release the lock of an open file."""
    from filelock import unlock_descriptor  # late: see above

    unlock_descriptor(descriptor)
