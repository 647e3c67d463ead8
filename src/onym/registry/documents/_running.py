"""Lines as one running text, in which an offset still knows its line."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from onym.registry.documents._lines import Line

__all__ = ["Running"]


class Running:
    """The lines that `keep` lets pass, joined, each run of spaces one; `line_of` finds an offset's line."""

    def __init__(self, lines: Iterable[Line], keep: Callable[[Line], bool]) -> None:
        self._starts: list[int] = []
        self._numbers: list[int] = []
        parts: list[str] = []
        at = 0
        for line in lines:
            text = " ".join(line.text.split()) if keep(line) else ""
            self._starts.append(at)
            self._numbers.append(line.number)
            parts.append(text)
            at += len(text) + 1
        self.text = "\n".join(parts)

    def line_of(self, offset: int) -> int:
        """The number of the line that holds this offset."""
        return self._numbers[bisect_right(self._starts, offset) - 1]
