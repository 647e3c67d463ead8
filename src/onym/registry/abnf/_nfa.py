"""Thompson's automaton of an expression, and its subset automaton made as far as it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._expression import Expression, Kind, Pool, expression
from onym.registry.abnf.types import Grammar

__all__ = ["NFA", "ORDER", "RANK", "Subsets", "automaton", "build", "classes", "members", "too_large"]

#: octets, the most readable first: letters, digits, the rest of ASCII that is seen, then what is not
ORDER: Final = bytes(
    [*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x41, 0x5B)]
    + [each for each in range(0x21, 0x7F) if not chr(each).isalnum()]
    + [0x20, 0x09, *range(0x80, 0x100), *(each for each in range(0x20) if each != 0x09), 0x7F]
)
#: place of each octet in ORDER
RANK: Final = bytes(ORDER.index(each) for each in range(256))


class NFA:
    """States from 0 (first) and 1 (last, the only one that accepts).

    `moves[s]` holds (mask of octets, state), `jumps[s]` the states that are reached for nothing.
    """

    __slots__ = ("jumps", "moves")

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int]]] = [[], []]
        self.jumps: list[list[int]] = [[], []]

    def state(self) -> int:
        """A new state."""
        self.moves.append([])
        self.jumps.append([])
        return len(self.moves) - 1

    def masks(self) -> set[int]:
        """Every mask that a move has."""
        return {mask for moves in self.moves for mask, _ in moves}


def automaton(grammar: Grammar, start: str, pool: Pool | None = None) -> NFA:
    """The automaton of a rule. Raises what `expression` raises."""
    return build(expression(grammar, start, pool))


def build(whole: Expression) -> NFA:
    """An expression's automaton.

    Each part adds moves out of its first state and into its last one only, never the other way, so that
    alternatives can share both.
    """
    nfa = NFA()
    moves, jumps, state = nfa.moves, nfa.jumps, nfa.state
    stack: list[tuple[Expression, int, int]] = [(whole, 0, 1)]
    while stack:
        part, first, last = stack.pop()
        if part.kind == Kind.SET:
            if part.mask:
                moves[first].append((part.mask, last))
        elif part.kind == Kind.NONE:
            jumps[first].append(last)
        elif part.kind == Kind.ALTERNATION:
            stack.extend((item, first, last) for item in part.items)
        elif part.kind == Kind.CONCATENATION:
            for item in part.items[:-1]:
                middle = state()
                stack.append((item, first, middle))
                first = middle
            stack.append((part.items[-1], first, last))
        else:
            _repeat(nfa, part, first, last, stack)
    return nfa


def _repeat(
    nfa: NFA, part: Expression, first: int, last: int, stack: list[tuple[Expression, int, int]]
) -> None:
    item = part.items[0]
    for _ in range(part.least):
        middle = nfa.state()
        stack.append((item, first, middle))
        first = middle
    if part.most is None:
        middle = nfa.state()
        nfa.jumps[first].append(middle)
        nfa.jumps[middle].append(last)
        stack.append((item, middle, middle))
        return
    for _ in range(part.most - part.least):
        nfa.jumps[first].append(last)
        middle = nfa.state()
        stack.append((item, first, middle))
        first = middle
    nfa.jumps[first].append(last)


def members(mask: int) -> list[int]:
    """The octets of a mask, the most readable first."""
    return [each for each in ORDER if mask >> each & 1]


def classes(masks: Iterable[int]) -> tuple[bytes, list[int]]:
    """Octets that no mask tells apart are one class: the class of each octet, and one octet of each class.

    The octet that stands for a class is its most readable one; classes are numbered in that order.
    """
    ordered = sorted(masks)
    numbers: dict[tuple[int, ...], int] = {}
    table = bytearray(256)
    shown: list[int] = []
    signs: list[list[int]] = [[] for _ in range(256)]
    for at, mask in enumerate(ordered):
        for octet in range(256):
            if mask >> octet & 1:
                signs[octet].append(at)
    for octet in ORDER:
        sign = tuple(signs[octet])
        number = numbers.setdefault(sign, len(numbers))
        if number == len(shown):
            shown.append(octet)
        table[octet] = number
    return bytes(table), shown


def too_large(what: str) -> GrammarError:
    """The outcome of its own for what grew beyond a cap."""
    return GrammarError(
        f"not decided: {what}",
        code="abnf.too-large",
        hint="write large repeats without their numbers: 1*( ... )",
    )


class Subsets:
    """The deterministic automaton of an NFA, state by state as it is asked for.

    `table` is the class of each octet, `shown` an octet of each class. `budget` caps the work: NFA states
    looked at in all. Beyond it GrammarError abnf.too-large.
    """

    def __init__(self, nfa: NFA, table: bytes, shown: Sequence[int], *, budget: int) -> None:
        self._nfa = nfa
        self._classes: dict[int, list[int]] = {}
        self._shown = shown
        self._numbers: dict[frozenset[int], int] = {}
        self._kernels: list[frozenset[int]] = []
        self._rows: list[list[int] | None] = []
        self._accepts: list[bool] = []
        self._budget = budget
        self.table = table
        self.dead = self._number(frozenset())
        self.first = self._number(frozenset((0,)))

    def _number(self, kernel: frozenset[int]) -> int:
        found = self._numbers.setdefault(kernel, len(self._kernels))
        if found == len(self._kernels):
            self._kernels.append(kernel)
            self._rows.append(None)
            self._accepts.append(False)
            self._spend(len(kernel) + 1)
        return found

    def _spend(self, steps: int) -> None:
        self._budget -= steps
        if self._budget < 0:
            raise too_large("the deterministic automaton grows beyond its cap")

    def _closed(self, kernel: frozenset[int]) -> list[int]:
        jumps = self._nfa.jumps
        out = list(kernel)
        seen = set(kernel)
        for state in out:
            for following in jumps[state]:
                if following not in seen:
                    seen.add(following)
                    out.append(following)
        self._spend(len(out))
        return out

    def _of(self, mask: int) -> list[int]:
        found = self._classes.get(mask)
        if found is None:
            found = [at for at, octet in enumerate(self._shown) if mask >> octet & 1]
            self._classes[mask] = found
        return found

    def row(self, number: int) -> list[int]:
        """The state that each class leads to."""
        row = self._rows[number]
        if row is not None:
            return row
        by_mask: dict[int, set[int]] = {}
        moves = self._nfa.moves
        for state in self._closed(self._kernels[number]):
            if state == 1:
                self._accepts[number] = True
            for mask, following in moves[state]:
                by_mask.setdefault(mask, set()).add(following)
        targets: list[set[int]] = [set() for _ in self._shown]
        for mask, states in by_mask.items():
            for each in self._of(mask):
                targets[each] |= states
        row = [self._number(frozenset(each)) for each in targets]
        self._rows[number] = row
        return row

    def accepts(self, number: int) -> bool:
        """Does the state accept?"""
        self.row(number)
        return self._accepts[number]

    def __len__(self) -> int:
        return len(self._kernels)
