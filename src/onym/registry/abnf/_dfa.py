"""Deterministic automata whole: made from an NFA, minimised, and combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onym.registry.abnf._nfa import NFA, Subsets, classes

__all__ = ["DFA", "deterministic", "difference"]

_BUDGET: Final = 2_000_000


class DFA:
    """States from 0 (first); `rows[s][c]` is where class c leads, `table` the class of each octet."""

    __slots__ = ("accepts", "live", "rows", "table")

    def __init__(self, table: bytes, rows: list[list[int]], accepts: list[bool]) -> None:
        self.table = table
        self.rows = rows
        self.accepts = accepts
        self.live = _live(rows, accepts)


def _live(rows: list[list[int]], accepts: list[bool]) -> list[bool]:
    """From which states an accepting one can be reached."""
    before: list[set[int]] = [set() for _ in rows]
    for state, row in enumerate(rows):
        for following in set(row):
            before[following].add(state)
    live = list(accepts)
    stack = [state for state, each in enumerate(accepts) if each]
    while stack:
        for state in before[stack.pop()]:
            if not live[state]:
                live[state] = True
                stack.append(state)
    return live


def deterministic(nfa: NFA) -> DFA:
    """The minimal automaton of an NFA, complete (a state that accepts nothing counts)."""
    table, shown = classes(nfa.masks())
    subsets = Subsets(nfa, table, shown, budget=_BUDGET)
    rows: list[list[int]] = []
    while len(rows) < len(subsets):
        rows.append(subsets.row(len(rows)))
    accepts = [subsets.accepts(state) for state in range(len(rows))]
    return _minimal(table, rows, accepts, subsets.first)


def _minimal(table: bytes, rows: list[list[int]], accepts: list[bool], first: int) -> DFA:
    """Moore's refinement: states are one as long as no class leads them apart."""
    block = [int(each) for each in accepts]
    count = len(set(block))
    while True:
        numbers: dict[tuple[int, ...], int] = {}
        get = block.__getitem__
        new = [numbers.setdefault((block[at], *map(get, row)), len(numbers)) for at, row in enumerate(rows)]
        if len(numbers) == count:
            break
        block, count = new, len(numbers)
    return _renumbered(table, rows, accepts, block, first)


def _renumbered(
    table: bytes, rows: list[list[int]], accepts: list[bool], block: list[int], first: int
) -> DFA:
    """One state for each block that can be reached, in breadth-first order."""
    member = {each: state for state, each in enumerate(block)}
    order = [block[first]]
    place = {block[first]: 0}
    for each in order:
        for following in rows[member[each]]:
            if block[following] not in place:
                place[block[following]] = len(order)
                order.append(block[following])
    return DFA(
        table,
        [[place[block[following]] for following in rows[member[each]]] for each in order],
        [accepts[member[each]] for each in order],
    )


def difference(first: DFA, second: DFA) -> DFA:
    """The strings of the first that are not of the second, minimal."""
    return _combined(first, second, lambda a, b: a and not b)


def _combined(first: DFA, second: DFA, holds: Callable[[bool, bool], bool]) -> DFA:
    pairs = sorted({(first.table[octet], second.table[octet]) for octet in range(256)})
    where = {pair: at for at, pair in enumerate(pairs)}
    table = bytes(where[first.table[octet], second.table[octet]] for octet in range(256))
    order = [(0, 0)]
    numbers = {(0, 0): 0}
    rows: list[list[int]] = []
    for a, b in order:
        row = []
        for x, y in pairs:
            following = first.rows[a][x], second.rows[b][y]
            number = numbers.setdefault(following, len(order))
            if number == len(order):
                order.append(following)
            row.append(number)
        rows.append(row)
    return _minimal(table, rows, [holds(first.accepts[a], second.accepts[b]) for a, b in order], 0)
