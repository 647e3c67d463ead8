"""Two languages beside each other: which strings are of one alone, which of both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from onym.registry.abnf._expression import Expression, Pool, expression
from onym.registry.abnf._nfa import Subsets, build, classes, too_large
from onym.registry.abnf._text import shown
from onym.registry.abnf.types import Grammar

__all__ = ["MAX_PAIRS", "Comparison", "Relation", "compare", "compared", "covered"]

#: pairs of deterministic states that one comparison looks at, and NFA states looked at to make them
MAX_PAIRS: Final = 20_000
_BUDGET: Final = 400_000


class Relation(StrEnum):
    """How the language of A lies to that of B."""

    EQUAL = "equal"
    SUBSET = "subset"
    SUPERSET = "superset"
    OVERLAP = "overlap"
    DISJOINT = "disjoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How two languages lie, each with a shortest string (safe to print): of A alone, B alone, of both."""

    relation: Relation
    only_a: str | None = None
    only_b: str | None = None
    both: str | None = None


def compare(a: Grammar, start_a: str, b: Grammar, start_b: str) -> Comparison:
    """Compare the strings of two rules. Two rules without any string are equal.

    Raises GrammarError where that cannot be decided: undefined names, prose, recursion, and abnf.too-large
    where the deterministic automata grow beyond their caps; UnknownEntryError where there is no such rule.
    """
    pool = Pool()
    return compared(expression(a, start_a, pool), expression(b, start_b, pool))


def compared(
    first: Expression, second: Expression, *, budget: int = _BUDGET, most: int = MAX_PAIRS
) -> Comparison:
    """Compare two expressions of one pool, within `budget` NFA states and `most` pairs."""
    if first is second:
        # built alike: nothing has to be searched but one string of it
        alone = _Pairs(first, first, budget, most).run(("both",)) if first.shortest is not None else {}
        return Comparison(relation=Relation.EQUAL, both=alone.get("both"))
    found = _Pairs(first, second, budget, most).run(("only_a", "only_b", "both"))
    sides = ("only_a" in found, "only_b" in found)
    relation = {
        (False, False): Relation.EQUAL,
        (False, True): Relation.SUBSET,
        (True, False): Relation.SUPERSET,
        (True, True): Relation.OVERLAP if "both" in found else Relation.DISJOINT,
    }[sides]
    return Comparison(relation=relation, **found)


def covered(part: Expression, whole: Expression, *, budget: int, most: int) -> bool:
    """Is every string of `part` one of `whole`?"""
    return "only_a" not in _Pairs(part, whole, budget, most).run(("only_a",))


class _Pairs:
    """Breadth-first search over pairs of states of two subset automata, made as they are needed."""

    def __init__(self, first: Expression, second: Expression, budget: int, most: int) -> None:
        self.most = most
        a, b = build(first), build(second)
        table, shown_octets = classes(a.masks() | b.masks())
        self.octets = shown_octets
        self.a = Subsets(a, table, shown_octets, budget=budget)
        self.b = Subsets(b, table, shown_octets, budget=budget)

    def run(self, wanted: tuple[str, ...]) -> dict[str, str]:
        """A shortest string for each kind that is wanted and exists."""
        a, b = self.a, self.b
        found: dict[str, str] = {}
        pairs = [(a.first, b.first)]
        parents: list[tuple[int, int]] = [(-1, 0)]
        seen = {pairs[0]}
        for at, (x, y) in enumerate(pairs):
            kind = _KINDS.get((a.accepts(x), b.accepts(y)))
            if kind in wanted and kind not in found:
                found[kind] = self.text(parents, at)
                if len(found) == len(wanted):
                    break
            for octet, to in zip(self.octets, zip(a.row(x), b.row(y), strict=True), strict=True):
                if to not in seen and self.hopeful(to, wanted):
                    seen.add(to)
                    pairs.append(to)
                    parents.append((at, octet))
            if len(pairs) > self.most:
                raise too_large(f"the comparison took more than {self.most:,} steps")
        return found

    def hopeful(self, pair: tuple[int, int], wanted: tuple[str, ...]) -> bool:
        """Can anything that is wanted still come of this pair?"""
        x, y = pair[0] != self.a.dead, pair[1] != self.b.dead
        return any(x if kind == "only_a" else y if kind == "only_b" else x and y for kind in wanted)

    @staticmethod
    def text(parents: list[tuple[int, int]], at: int) -> str:
        out = bytearray()
        while at:
            at, octet = parents[at]
            out.append(octet)
        out.reverse()
        return shown(bytes(out))


_KINDS: Final = {(True, False): "only_a", (False, True): "only_b", (True, True): "both"}
