"""Which registered names may be taken for another: look-alikes, and names one letter away.

A registry of 100,000 names is not walked for each: `Names` knows the few that can be near.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["Names", "one_edit", "skeleton"]

#: what is read for something else, after lower case: the longer ones first
_LOOKS: Final = (
    ("rn", "m"),
    ("vv", "w"),
    ("cl", "d"),
    ("0", "o"),
    ("1", "l"),
    ("i", "l"),
    ("5", "s"),
    ("2", "z"),
)
_LAST: Final = "\U0010ffff"


def skeleton(name: str) -> str:
    """The name with what looks alike written alike."""
    for found, stands_for in _LOOKS:
        name = name.replace(found, stands_for)
    return name


def one_edit(one: str, other: str) -> bool:
    """Is one letter put in, left out or changed all that differs? Linear."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    short, long = sorted((one, other), key=len)
    at = next((place for place, each in enumerate(short) if each != long[place]), len(short))
    rest = short[at + 1 :] if len(short) == len(long) else short[at:]
    return rest == long[at + 1 :]


class Names:
    """The names of a registry, in lower case, arranged for looking up what is near."""

    __slots__ = ("_backward", "_forward", "_skeletons", "_spellings")

    def __init__(self, names: Iterable[str]) -> None:
        given = tuple(names)
        self._spellings = {each.lower(): each for each in given if each != each.lower()}
        self._forward = sorted({each.lower() for each in given})
        self._backward = sorted(each[::-1] for each in self._forward)
        # most names are alone with their skeleton: those are found among the names themselves
        self._skeletons: dict[str, list[str]] = {}
        for each in self._forward:
            bare = skeleton(each)
            if bare != each:
                self._skeletons.setdefault(bare, []).append(each)

    def __len__(self) -> int:
        return len(self._forward)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forward)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._range(self._forward, name, name + "\0") != []

    def spelling(self, name: str) -> str:
        """How the registry writes a name that is given in lower case."""
        return self._spellings.get(name, name)

    def near(self, name: str) -> set[str]:
        """Every name with the same skeleton or one letter away from `name`, and some others.

        One edit leaves the first half of a name as it was, or the second: one of them is looked up.
        """
        bare, half = skeleton(name), len(name) // 2
        found = {bare} & {*self._range(self._forward, bare, bare + "\0")}
        found.update(self._skeletons.get(bare, ()))
        begin, end = name[:half], name[half:][::-1]
        found.update(self._range(self._forward, begin, begin + _LAST))
        found.update(each[::-1] for each in self._range(self._backward, end, end + _LAST))
        return found

    @staticmethod
    def _range(some: list[str], begin: str, end: str) -> list[str]:
        return some[bisect_left(some, begin) : bisect_left(some, end)]
