"""Which rows have their answer: one bit for each."""

from __future__ import annotations

__all__ = ["Done"]


class Done:
    """A set of places below `total`; takes one bit for each place up to the highest."""

    __slots__ = ("_bits", "count", "total")

    def __init__(self, total: int) -> None:
        self._bits = bytearray()
        self.total = total
        self.count = 0

    def __contains__(self, index: int) -> bool:
        at = index >> 3
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> (index & 7) & 1)

    def __len__(self) -> int:
        return self.count

    def add(self, index: int) -> bool:
        """Put it in; False where it is in already, or is no place of this input."""
        if not 0 <= index < self.total:
            return False
        at, bit = index >> 3, 1 << (index & 7)
        if at >= len(self._bits):
            # half as much again, so that a million rows need few copies
            room = min(max(at + 1, len(self._bits) * 3 // 2), (self.total + 7) >> 3)
            self._bits.extend(bytes(room - len(self._bits)))
        if self._bits[at] & bit:
            return False
        self._bits[at] |= bit
        self.count += 1
        return True
