"""The audit log as a file: appended under a lock, continued after a restart, mended on request."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onym.ai.gateway._log_file import held, is_named, open_log, stamp, tail_of, torn, unusable, write_line
from onym.ai.gateway.audit import LONGEST_LINE, Chain, Verdict, hash_line, verify_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

__all__ = ["Journal", "mend", "verify_file"]


class Journal:
    """An open audit log. Raises ConfigError where it cannot be opened, or its last line has no end.

    Two processes may append to one file: each takes the lock and goes on behind the line that stands there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = -1
        self._size = 0
        self._chain = Chain()
        with self._locked():
            pass

    def append(self, members: dict[str, Any], *, at: datetime) -> str:
        """Write one line and return its hash. Raises OSError where it cannot be written whole."""
        with self._locked():
            line = self._chain.line({"at": stamp(at), **members})
            try:
                write_line(self._file, line)
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
            self._chain.keep(line)
            self._size += len(line)
            return self._chain.previous

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file that has the name now, and know its end."""
        while True:
            if self._file < 0:
                self._file = open_log(self.path)
                self._size = -1
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if is_named(self._file, self.path):
                break
            self.close()  # rotated: the name is another file's by now
        try:
            self._follow()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _follow(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._size:
            return
        tail = tail_of(self._file, size)
        if tail.torn:
            raise torn(self.path, len(tail.torn))
        self._chain = Chain.after(tail.line)
        self._size = size


def mend(path: str | Path, *, at: datetime) -> int:
    """Take out a last line without an end, and say so in a line of its own. Returns the octets taken out."""
    here = Path(path)
    with held(here) as file:
        size = os.fstat(file).st_size
        tail = tail_of(file, size)
        if tail.torn:
            chain = Chain.after(tail.line)
            note = {"event": "mended", "octets": len(tail.torn), "was": hash_line(tail.torn)}
            line = chain.line({"at": stamp(at), **note})
            os.ftruncate(file, size - len(tail.torn))
            write_line(file, line)
            os.fsync(file)
        return len(tail.torn)


def verify_file(path: str | Path, *, previous: str | None = None, begun: Collection[str] = ()) -> Verdict:
    """What the file says of itself; see `verify_lines`. Raises ConfigError where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            # a line without an end would be read whole
            lines = iter(lambda: file.readline(LONGEST_LINE + 2), b"")
            return verify_lines(lines, previous=previous, begun=begun)
    except OSError as error:
        raise unusable(Path(path), error) from None
