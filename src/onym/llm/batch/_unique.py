"""No two rows with the same label, found before anything is paid for, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from onym.errors import UsageError
from onym.llm.batch._rows import label
from onym.llm.batch._sort import sorted_lines

__all__ = ["count_rows"]


def count_rows(rows: Iterable[tuple[int, bytes]], folder: Path) -> int:
    """How many rows there are. Raises UsageError where two have the same label, and says which two."""
    counted = _Counted(rows)
    before = b""
    for entry in sorted_lines(counted, folder):
        if entry[:32] == before[:32]:
            first, second = sorted((int(before[32:], 16), int(entry[32:], 16)))
            raise UsageError(
                f"the rows {first} and {second} have the same id (rows are counted from 0)",
                code="usage.same-id",
                hint="make the ids differ, or leave them out",
            )
        before = entry
    return counted.count


class _Counted:
    """An entry for each row: a digest of its label, then its place, both in hexadecimal digits."""

    def __init__(self, rows: Iterable[tuple[int, bytes]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for index, line in self._rows:
            self.count += 1
            # equal digests of 128 bits are equal labels for all that is known
            digest = blake2b(label(index, line).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            yield b"%s%x\n" % (digest.encode(), index)
