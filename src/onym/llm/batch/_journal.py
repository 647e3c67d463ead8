"""The journal: results as lines, appended, and durable before they count.

`repair` reads a journal that a run left behind, whatever ended that run. A line that was cut, holds anything
but a result, or answers a row again is dropped; rows without a sound line are asked again. `Writer` appends
in a thread of its own: what came while the disk was busy is written and synced together (group commit).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from onym.llm.batch._done import Done
from onym.llm.batch._files import APPEND, fresh, sync, sync_folder, write_all
from onym.llm.batch._results import read_head

__all__ = ["Found", "Writer", "read_lines", "repair"]

#: seconds for which results are gathered before they are synced, unless so many octets come together
_GATHER: Final = 0.01
_PLENTY: Final = 1024 * 1024


class Found(NamedTuple):
    """What stood in a journal: rows with an answer, rows that failed for good, lines that were dropped."""

    ok: int = 0
    failed: int = 0
    dropped: int = 0


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal with their ends; nothing where there is no such file."""
    try:
        with path.open("rb") as journal:
            yield from journal
    except FileNotFoundError:
        return


def repair(path: Path, done: Done, *, into: Path | None = None, drop_failed: bool = False) -> Found:
    """Put the rows that have a sound line into `done`, and make the journal hold just these lines.

    With `into` they go there and `path` stays as it is. With `drop_failed` the lines of failed rows are
    dropped too, so that these are asked again. What is counted is durable. Raises OSError.
    """
    sound, counts = _Sound(path, done, drop_failed=drop_failed), [0, 0]
    for status in sound:
        counts[status] += 1
    if into is not None or (sound.dropped and not sound.only_tail):
        again = Done(done.total)
        _rewrite(path, into or path, again, drop_failed=drop_failed)
    elif path.exists():
        descriptor = os.open(path, APPEND)
        try:
            os.ftruncate(descriptor, sound.end)
            if sound.unended:
                write_all(descriptor, b"\n")
            sync(descriptor)
        finally:
            os.close(descriptor)
    return Found(counts[1], counts[0], sound.dropped)


class _Sound:
    """Reads a journal: a status (1 for ok, 0 for failed) for each line that is kept."""

    def __init__(self, path: Path, done: Done, *, drop_failed: bool) -> None:
        self._path = path
        self._done = done
        self._drop_failed = drop_failed
        #: where the last line that is kept ends
        self.end = 0
        #: whether that line lacks its line end
        self.unended = False
        self.dropped = 0
        #: whether all that was dropped stands after all that is kept
        self.only_tail = True

    def __iter__(self) -> Iterator[int]:
        for line, ok in self.lines():
            self.end += len(line)
            self.only_tail = self.dropped == 0
            self.unended = not line.endswith(b"\n")
            yield int(ok)

    def lines(self) -> Iterator[tuple[bytes, bool]]:
        """The lines that are kept, and whether each is an answer."""
        for line in read_lines(self._path):
            head = read_head(line)
            if (
                head is None
                or (self._drop_failed and head.status == "error")
                or not self._done.add(head.index)
            ):
                self.dropped += 1
            else:
                yield line, head.status == "ok"


def _rewrite(path: Path, target: Path, done: Done, *, drop_failed: bool) -> None:
    """A file of the sound lines in the place of `target`, whole or not at all."""
    part = target.with_name(target.name + ".part")
    with fresh(part) as out:
        for line, _ in _Sound(path, done, drop_failed=drop_failed).lines():
            out.write(line if line.endswith(b"\n") else line + b"\n")
        out.flush()
        os.fsync(out.fileno())
    part.replace(target)
    sync_folder(target.parent)


class Writer:
    """Appends lines to a journal and tells when they are durable.

    `told(count, error)` is called from the writing thread: `count` more lines are on the disk, in the order
    in which they were put; or there was an OSError, and nothing is written any more. What was not synced is
    cut off again then, as far as the disk lets it.
    """

    def __init__(
        self,
        path: Path,
        told: Callable[[int, OSError | None], None],
        *,
        gather: float = _GATHER,
        synced: Callable[[int], None] = sync,
    ) -> None:
        self._descriptor = os.open(path, APPEND, 0o666)
        sync_folder(path.parent)
        self._durable = os.fstat(self._descriptor).st_size
        self._told = told
        self._gather = gather
        self._sync = synced
        self._wake = threading.Condition()
        self._lines: list[bytes] = []
        self._size = 0
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="onym-batch-journal", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Take a line to be written soon. Never waits."""
        with self._wake:
            self._lines.append(line)
            self._size += len(line)
            if len(self._lines) == 1 or self._size > _PLENTY:
                self._wake.notify()

    def close(self) -> None:
        """Write and sync what was put, then close the file. May be called again."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _work(self) -> None:
        try:
            while lines := self._next():
                data = b"".join(lines)
                write_all(self._descriptor, data)
                self._sync(self._descriptor)
                self._durable += len(data)
                self._told(len(lines), None)
        except OSError as error:
            self._undo()
            self._told(0, error)

    def _next(self) -> list[bytes]:
        """The lines of the next group; none at the end."""
        with self._wake:
            while not self._lines and not self._ending:
                self._wake.wait()
            self._wake.wait_for(lambda: self._ending or self._size > _PLENTY, self._gather)
            lines, self._lines, self._size = self._lines, [], 0
            return lines

    def _undo(self) -> None:
        # after a failed sync the system may show octets that are not on the disk: they must not count later
        try:
            os.ftruncate(self._descriptor, self._durable)
            os.fsync(self._descriptor)
        except OSError:
            return
