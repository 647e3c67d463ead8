"""Is a string of a rule, and which strings are?"""

from __future__ import annotations

from random import Random
from typing import Final

from onym.errors import GrammarError, UsageError
from onym.registry.abnf._expression import Expression, Kind, expression
from onym.registry.abnf._nfa import NFA, build, members
from onym.registry.abnf._text import octets_of
from onym.registry.abnf.types import Grammar

__all__ = ["MAX_EXAMPLES", "MAX_STRING", "Matcher", "examples", "match", "matcher"]

#: octets of a string that is tried
MAX_STRING: Final = 65_536
#: steps of one match: states looked at, over all octets
MAX_STEPS: Final = 20_000_000
MAX_EXAMPLES: Final = 1_000
#: octets of an example, and how often in a row a try may bring nothing new
_MAX_EXAMPLE: Final = 2_048
_MAX_TRIES: Final = 50
#: repetitions beyond the least that an example takes at most
_MORE: Final = 3
_COMMON: Final = 36


class Matcher:
    """One rule, ready to try strings; cheaper than `match` where there are many."""

    def __init__(self, nfa: NFA) -> None:
        self._nfa = nfa

    def __call__(self, text: str | bytes) -> bool:
        """Is the string of the rule? Raises GrammarError abnf.too-large beyond MAX_STRING octets."""
        octets = octets_of(text)
        if len(octets) > MAX_STRING:
            raise GrammarError(f"the string has more than {MAX_STRING:,} octets", code="abnf.too-large")
        states = self._closed({0})
        steps = 0
        for octet in octets:
            steps += len(states)
            if steps > MAX_STEPS:
                raise GrammarError(f"the match took more than {MAX_STEPS:,} steps", code="abnf.too-large")
            states = self._closed(
                {to for state in states for mask, to in self._nfa.moves[state] if mask >> octet & 1}
            )
            if not states:
                return False
        return 1 in states

    def _closed(self, states: set[int]) -> set[int]:
        stack = list(states)
        jumps = self._nfa.jumps
        while stack:
            for to in jumps[stack.pop()]:
                if to not in states:
                    states.add(to)
                    stack.append(to)
        return states


def matcher(grammar: Grammar, start: str) -> Matcher:
    """The rule `start`, ready to try strings.

    Raises GrammarError where the rule's strings cannot be told (undefined, prose, recursive, too large) and
    UnknownEntryError where there is no such rule.
    """
    return Matcher(build(expression(grammar, start)))


def match(grammar: Grammar, start: str, text: str | bytes) -> bool:
    """Is the string of the rule? Text is taken as UTF-8. Raises what `matcher` and `Matcher` raise."""
    return matcher(grammar, start)(text)


def examples(grammar: Grammar, start: str, count: int, *, seed: int = 0) -> list[str]:
    """Up to `count` different strings of the rule: a shortest one first, then random ones.

    The same seed gives the same strings. Alternatives that were taken least are taken first, so that a
    dozen strings show most of a grammar. Strings that are no UTF-8 are left out; fewer than `count` come
    where the rule has no more, or only long ones. Raises what `matcher` raises, and UsageError for a count
    that is not 1 to MAX_EXAMPLES.
    """
    if not 1 <= count <= MAX_EXAMPLES:
        raise UsageError(f"from 1 to {MAX_EXAMPLES:,} examples can be made, not {count}")
    whole = expression(grammar, start)
    if whole.shortest is None:
        return []
    writer = _Writer(Random(seed))  # noqa: S311 - examples, not secrets
    found: dict[str, None] = {}
    tries = 0
    while len(found) < count and tries < _MAX_TRIES:
        tries += 1
        octets = writer.write(whole, shortest=not found)
        try:
            text = None if octets is None else octets.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and text not in found:
            found[text] = None
            tries = 0
    return list(found)


class _Writer:
    """Walks an expression and writes one of its strings."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.octets: dict[int, list[int]] = {}
        #: how often each alternative was taken
        self.taken: dict[tuple[int, int], int] = {}

    def write(self, whole: Expression, *, shortest: bool) -> bytes | None:
        """A string, or None where it grew too long."""
        out = bytearray()
        stack = [whole]
        while stack:
            part = stack.pop()
            if part.kind == Kind.SET:
                out.append(self.octet(part.mask, best=shortest))
                if len(out) > _MAX_EXAMPLE:
                    return None
            elif part.kind == Kind.CONCATENATION:
                stack.extend(reversed(part.items))
            elif part.kind == Kind.ALTERNATION:
                stack.append(self.shortest(part) if shortest else self.choice(part))
            elif part.kind == Kind.REPETITION:
                times = part.least if shortest else self.times(part)
                if times > _MAX_EXAMPLE and part.items[0].shortest != 0:
                    return None
                stack.extend([part.items[0]] * min(times, _MAX_EXAMPLE))
        return bytes(out)

    def octet(self, mask: int, *, best: bool) -> int:
        octets = self.octets.get(mask)
        if octets is None:
            octets = self.octets[mask] = members(mask)
        # a letter without case is nearly always written small
        if best or (len(octets) == 2 and self.random.random() < 9 / 10):
            return octets[0]
        # two of three are lower-case letters and digits, as far as the set has them
        if self.random.random() < 2 / 3:
            return self.random.choice(octets[:_COMMON])
        return self.random.choice(octets)

    def choice(self, part: Expression) -> Expression:
        least = min(self.taken.get((part.number, item.number), 0) for item in part.items)
        open_ = [item for item in part.items if self.taken.get((part.number, item.number), 0) == least]
        chosen = self.random.choice(open_)
        self.taken[part.number, chosen.number] = least + 1
        return chosen

    @staticmethod
    def shortest(part: Expression) -> Expression:
        return min(part.items, key=lambda item: (item.shortest or 0, item.number))

    def times(self, part: Expression) -> int:
        if part.items[0].shortest is None:
            return part.least
        most = part.least + _MORE if part.most is None else min(part.most, part.least + _MORE)
        return self.random.randint(part.least, most)
