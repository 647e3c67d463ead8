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
#: steps of one match: moves and jumps looked at, over all octets
MAX_STEPS: Final = 20_000_000
#: states in the sets that a matcher remembers
_MAX_KEPT: Final = 500_000
MAX_EXAMPLES: Final = 1_000
#: octets of an example, and how often in a row a try may bring nothing new
_MAX_EXAMPLE: Final = 2_048
_MAX_TRIES: Final = 50
#: repetitions beyond the least that an example takes at most
_MORE: Final = 3
_COMMON: Final = 36


class Matcher:
    """One rule, ready to try strings; cheaper than `match` where there are many.

    Sets of states that were met before are not made again. `steps` caps the work of all strings together;
    None: each string has MAX_STEPS of its own.
    """

    def __init__(self, nfa: NFA, *, steps: int | None = None) -> None:
        self._nfa = nfa
        self._steps = steps
        self._left = steps or 0
        self._first = self._closed({0})
        self._forget()

    def __call__(self, text: str | bytes) -> bool:
        """Is the string of the rule? A lone surrogate is in no language.

        Raises GrammarError abnf.too-large beyond MAX_STRING octets, and beyond the steps.
        """
        octets = octets_of(text)
        if octets is None:
            return False
        if len(octets) > MAX_STRING:
            raise GrammarError(f"the string has more than {MAX_STRING:,} octets", code="abnf.too-large")
        if self._steps is None:
            self._left = MAX_STEPS
        number = self._number(self._first)
        for octet in octets:
            self._spend(1)
            following = self._moves.get((number, octet))
            number = self._moved(number, octet) if following is None else following
            if not self._sets[number]:
                return False
        return 1 in self._sets[number]

    def _forget(self) -> None:
        self._sets: list[frozenset[int]] = []
        self._numbers: dict[frozenset[int], int] = {}
        # (number of a set, octet) -> number of the set that it leads to
        self._moves: dict[tuple[int, int], int] = {}
        self._kept = 0

    def _number(self, states: frozenset[int]) -> int:
        number = self._numbers.setdefault(states, len(self._sets))
        if number == len(self._sets):
            self._sets.append(states)
            self._kept += len(states) + 1
        return number

    def _moved(self, number: int, octet: int) -> int:
        before, moves = self._sets[number], self._nfa.moves
        self._spend(sum(len(moves[state]) for state in before))
        after = self._closed({to for state in before for mask, to in moves[state] if mask >> octet & 1})
        self._spend(sum(len(self._nfa.jumps[state]) + 1 for state in after))
        if self._kept > _MAX_KEPT:
            self._forget()
            number = self._number(before)
        found = self._moves[number, octet] = self._number(after)
        self._kept += 1
        return found

    def _closed(self, states: set[int]) -> frozenset[int]:
        stack = list(states)
        jumps = self._nfa.jumps
        while stack:
            for to in jumps[stack.pop()]:
                if to not in states:
                    states.add(to)
                    stack.append(to)
        return frozenset(states)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            most = MAX_STEPS if self._steps is None else self._steps
            raise GrammarError(f"the match took more than {most:,} steps", code="abnf.too-large")


def matcher(grammar: Grammar, start: str, *, steps: int | None = None) -> Matcher:
    """The rule `start`, ready to try strings; `steps` as `Matcher` takes them.

    Raises GrammarError where the rule's strings cannot be told (undefined, prose, recursive, too large) and
    UnknownEntryError where there is no such rule.
    """
    return Matcher(build(expression(grammar, start)), steps=steps)


def match(grammar: Grammar, start: str, text: str | bytes) -> bool:
    """Is the string of the rule? Text is taken as UTF-8. Raises what `matcher` and `Matcher` raise."""
    return matcher(grammar, start)(text)


def examples(grammar: Grammar, start: str, count: int, *, seed: int = 0) -> list[str]:
    """Up to `count` different strings of the rule: a shortest one first, if it is UTF-8, then random ones.

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
    tries, shortest = 0, True
    while len(found) < count and tries < _MAX_TRIES:
        tries += 1
        octets = writer.write(whole, shortest=shortest)
        shortest = False
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
        #: the alternatives of each alternation that are still to be taken in this round
        self.waiting: dict[int, list[Expression]] = {}

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
        waiting = self.waiting.get(part.number)
        if not waiting:
            waiting = self.waiting[part.number] = list(part.items)
            self.random.shuffle(waiting)
        return waiting.pop()

    @staticmethod
    def shortest(part: Expression) -> Expression:
        return min(part.items, key=lambda item: (item.shortest or 0, item.number))

    def times(self, part: Expression) -> int:
        if part.items[0].shortest is None:
            return part.least
        most = part.least + _MORE if part.most is None else min(part.most, part.least + _MORE)
        return self.random.randint(part.least, most)
