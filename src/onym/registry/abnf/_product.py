"""The shortest string of an NFA that a fixed automaton accepts, or that it does not."""

from __future__ import annotations

from typing import Final

from onym.registry.abnf._dfa import DFA
from onym.registry.abnf._nfa import NFA, ORDER, RANK, members, too_large

__all__ = ["MAX_PAIRS", "search"]

#: pairs of states that one search looks at
MAX_PAIRS: Final = 250_000


def search(nfa: NFA, dfa: DFA, *, accepted: bool, without: int = 0) -> bytes | None:
    """The shortest string of `nfa` that `dfa` accepts (or, `accepted` False, refuses); None: there is none.

    Of several the first in the order of readability. Strings with an octet of the mask `without` are left
    out. Breadth first over pairs of states, grouped by the string that leads to them. Raises GrammarError
    abnf.too-large beyond MAX_PAIRS.
    """
    return _Search(nfa, dfa, accepted, without).run()


class _Search:
    def __init__(self, nfa: NFA, dfa: DFA, accepted: bool, without: int) -> None:
        self.nfa, self.dfa, self.accepted = nfa, dfa, accepted
        self.without = without
        self.width = len(dfa.rows)
        self.seen = bytearray(len(nfa.moves) * self.width)
        self.count = 0
        # where a group came from, and the rank of its last octet
        self.parents: list[tuple[int, int]] = [(-1, 0)]
        self.octets: dict[int, list[int]] = {}
        self.steps: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> bytes | None:
        layer: list[tuple[int, list[int]]] = [(0, [0])]
        self.seen[0] = 1
        while layer:
            # a whole layer is closed before any of it moves on: a pair counts where it is reached first
            ready: list[tuple[int, list[tuple[int, int]]]] = []
            for group, pairs in layer:
                edges = self.edges(pairs)
                if edges is None:
                    return self.text(group)
                ready.append((group, edges))
                if self.count > MAX_PAIRS:
                    raise too_large(f"the search took more than {MAX_PAIRS:,} steps")
            following: list[tuple[int, list[int]]] = []
            for group, edges in ready:
                self.spread(group, edges, following)
            layer = following
        return None

    def edges(self, pairs: list[int]) -> list[tuple[int, int]] | None:
        """What a group leads to as (rank, pair), sorted; None where it holds a string that was sought."""
        nfa, dfa, width, seen = self.nfa, self.dfa, self.width, self.seen
        out: list[tuple[int, int]] = []
        for pair in pairs:  # grows while it is read
            state, other = divmod(pair, width)
            if state == 1 and dfa.accepts[other] == self.accepted:
                return None
            for target in nfa.jumps[state]:
                number = target * width + other
                if not seen[number]:
                    seen[number] = 1
                    pairs.append(number)
            for mask, target in nfa.moves[state]:
                base = target * width
                out.extend((rank, base + to) for rank, to in self.step(mask, other))
        self.count += len(pairs)
        out.sort()
        return out

    def step(self, mask: int, other: int) -> list[tuple[int, int]]:
        """By the octets of a mask: the states that the fixed automaton goes to, each by its best octet."""
        found = self.steps.get((mask, other))
        if found is None:
            octets = self.octets.get(mask)
            if octets is None:
                octets = self.octets[mask] = members(mask & ~self.without)
            row, table = self.dfa.rows[other], self.dfa.table
            best: dict[int, int] = {}
            for octet in octets:
                best.setdefault(row[table[octet]], RANK[octet])
            # where an accepted string is sought, what can lead to none is left out
            live = self.dfa.live
            found = [(rank, to) for to, rank in best.items() if not self.accepted or live[to]]
            self.steps[mask, other] = found
        return found

    def spread(self, group: int, edges: list[tuple[int, int]], layer: list[tuple[int, list[int]]]) -> None:
        last = -1
        for rank, pair in edges:
            if self.seen[pair]:
                continue
            self.seen[pair] = 1
            if rank != last:
                last = rank
                layer.append((len(self.parents), []))
                self.parents.append((group, rank))
            layer[-1][1].append(pair)

    def text(self, group: int) -> bytes:
        out = bytearray()
        while group:
            group, rank = self.parents[group]
            out.append(ORDER[rank])
        out.reverse()
        return bytes(out)
