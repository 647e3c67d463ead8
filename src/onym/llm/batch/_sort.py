"""Lines sorted in bounded memory: what does not fit goes to a temporary file in sorted runs, to be merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

__all__ = ["sorted_lines"]

#: octets of lines that are held before they are written out
_ROOM: Final = 16 * 1024 * 1024
#: what Python adds to the octets of a line
_OVERHEAD: Final = 64
#: octets that are read ahead of each run
_AHEAD: Final = 32 * 1024


def sorted_lines(
    lines: Iterable[bytes], folder: Path, *, key: Callable[[bytes], Any] | None = None, room: int = _ROOM
) -> Iterator[bytes]:
    """The lines (each with its line end) in the order of `key`, the line itself by default.

    At most about `room` octets are held at a time. The temporary file lies in `folder`, has no name where the
    system allows that, and goes with the iterator.
    """
    runs: list[tuple[int, int]] = []
    held: list[bytes] = []
    size = 0
    with TemporaryFile(dir=folder) as spill:
        for line in lines:
            held.append(line)
            size += len(line) + _OVERHEAD
            if size > room:
                held.sort(key=key)
                start = spill.tell()
                spill.writelines(held)
                runs.append((start, spill.tell()))
                held, size = [], 0
        held.sort(key=key)
        if not runs:
            yield from held
            return
        spill.flush()
        yield from merge(*[_run(spill, start, end) for start, end in runs], held, key=key)


def _run(spill: IO[bytes], at: int, end: int) -> Iterator[bytes]:
    """The lines between two places of the file."""
    rest = b""
    while at < end:
        spill.seek(at)
        block = spill.read(min(_AHEAD, end - at))
        at += len(block)
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
