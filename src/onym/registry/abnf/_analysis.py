"""What the rules of a grammar allow: match, compare and generate strings, and `lint` the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from random import Random
from typing import Final

from onym.errors import GrammarError, UsageError
from onym.registry import abnf
from onym.registry.abnf import _nfa as nfa
from onym.registry.abnf._inclusion import load_rfc3986

#: bytes of a string that is matched
MAX_STRING: Final = 65_536
#: steps of one match: the moves and jumps of all bytes
MAX_STEPS: Final = 20_000_000
#: states in the sets that a matcher caches
_MAX_KEPT: Final = 500_000
MAX_EXAMPLES: Final = 1_000
#: bytes of an example, and attempts in a row without a new example
_MAX_EXAMPLE: Final = 2_048
_MAX_TRIES: Final = 50
#: repetitions of an example beyond the minimum
_MORE: Final = 3
_COMMON: Final = 36
#: rules of RFC 5234 that grammars use most, for "write DIGIT if you mean that rule"
_CORE_NAMES: Final = ("alpha", "digit", "hexdig")


class Matcher:
    """Matches strings against one rule; for many strings this is faster than `match`.

    Sets of states are cached. `steps` limits the work of all strings together; None: MAX_STEPS each.
    """

    def __init__(self, nfa: nfa.NFA, *, steps: int | None = None) -> None:
        self._nfa = nfa
        self._steps = steps
        self._left = steps or 0
        self._first = self._compute_closure({0})
        self._clear_cache()

    def __call__(self, text: str | bytes) -> bool:
        """Return whether the string matches the rule; one with a lone surrogate does not.

        Raises GrammarError abnf.too-large beyond MAX_STRING bytes or the steps.
        """
        octets = nfa.to_octets(text)
        if octets is None:
            return False
        if len(octets) > MAX_STRING:
            raise GrammarError(f"the string has more than {MAX_STRING:,} bytes", code="abnf.too-large")
        if self._steps is None:
            self._left = MAX_STEPS
        number = self._number_states(self._first)
        for octet in octets:
            self._spend_steps(1)
            following = self._moves.get((number, octet))
            number = self._compute_move(number, octet) if following is None else following
            if not self._sets[number]:
                return False
        return 1 in self._sets[number]

    def _clear_cache(self) -> None:
        self._sets: list[frozenset[int]] = []
        self._numbers: dict[frozenset[int], int] = {}
        # (number of a set, byte) -> number of the set that it leads to
        self._moves: dict[tuple[int, int], int] = {}
        self._kept = 0

    def _number_states(self, states: frozenset[int]) -> int:
        number = self._numbers.setdefault(states, len(self._sets))
        if number == len(self._sets):
            self._sets.append(states)
            self._kept += len(states) + 1
        return number

    def _compute_move(self, number: int, octet: int) -> int:
        before, moves = self._sets[number], self._nfa.moves
        self._spend_steps(sum(len(moves[state]) for state in before))
        after = self._compute_closure(
            {to for state in before for mask, to in moves[state] if mask >> octet & 1}
        )
        self._spend_steps(sum(len(self._nfa.jumps[state]) + 1 for state in after))
        if self._kept > _MAX_KEPT:
            self._clear_cache()
            number = self._number_states(before)
        following = self._moves[number, octet] = self._number_states(after)
        self._kept += 1
        return following

    def _compute_closure(self, states: set[int]) -> frozenset[int]:
        stack = list(states)
        jumps = self._nfa.jumps
        while stack:
            for to in jumps[stack.pop()]:
                if to not in states:
                    states.add(to)
                    stack.append(to)
        return frozenset(states)

    def _spend_steps(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            most = MAX_STEPS if self._steps is None else self._steps
            raise GrammarError(f"the match took more than {most:,} steps", code="abnf.too-large")


def build_matcher(grammar: abnf.Grammar, start: str, *, steps: int | None = None) -> Matcher:
    """Return a matcher for the rule `start`; for `steps` see `Matcher`.

    Raises GrammarError if the rule's strings cannot be decided (undefined, prose, recursive, too large), and
    UnknownEntryError if the rule does not exist.
    """
    return Matcher(nfa.build_nfa(nfa.build_expression(grammar, start)), steps=steps)


def match(grammar: abnf.Grammar, start: str, text: str | bytes) -> bool:
    """Return whether the string (UTF-8) matches the rule. Raises what `build_matcher` and `Matcher` raise."""
    return build_matcher(grammar, start)(text)


def generate_examples(grammar: abnf.Grammar, start: str, count: int, *, seed: int = 0) -> list[str]:
    """Return up to `count` different strings of the rule: a shortest one (if it is UTF-8), then random ones.

    The same seed gives the same strings. Alternatives that were used least come first, so that a dozen
    strings show most of a grammar. Strings that are not UTF-8 are left out. The result is shorter than
    `count` if the rule has no more strings, or only long ones. Raises what `build_matcher` raises, and
    UsageError for a count that is not 1 to MAX_EXAMPLES.
    """
    if not 1 <= count <= MAX_EXAMPLES:
        raise UsageError(f"the number of examples must be 1 to {MAX_EXAMPLES:,}, not {count}")
    whole = nfa.build_expression(grammar, start)
    if whole.shortest is None:
        return []
    writer = _ExampleWriter(Random(seed))  # noqa: S311 - examples, not secrets
    examples: dict[str, None] = {}
    tries, shortest = 0, True
    while len(examples) < count and tries < _MAX_TRIES:
        tries += 1
        octets = writer.write_example(whole, shortest=shortest)
        shortest = False
        try:
            text = None if octets is None else octets.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and text not in examples:
            examples[text] = None
            tries = 0
    return list(examples)


class _ExampleWriter:
    """Walks an expression and writes one of its strings."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.octets: dict[int, list[int]] = {}
        #: the alternatives of each alternation that are not used yet in this round
        self.waiting: dict[int, list[nfa.Expression]] = {}

    def write_example(self, whole: nfa.Expression, *, shortest: bool) -> bytes | None:
        """Return a string, or None if it is too long."""
        out = bytearray()
        stack = [whole]
        while stack:
            part = stack.pop()
            if part.kind == nfa.ExpressionKind.SET:
                out.append(self.choose_octet(part.mask, best=shortest))
                if len(out) > _MAX_EXAMPLE:
                    return None
            elif part.kind == nfa.ExpressionKind.CONCATENATION:
                stack.extend(reversed(part.items))
            elif part.kind == nfa.ExpressionKind.ALTERNATION:
                stack.append(self.choose_shortest(part) if shortest else self.choose_alternative(part))
            elif part.kind == nfa.ExpressionKind.REPETITION:
                times = part.least if shortest else self.choose_count(part)
                if times > _MAX_EXAMPLE and part.items[0].shortest != 0:
                    return None
                stack.extend([part.items[0]] * min(times, _MAX_EXAMPLE))
        return bytes(out)

    def choose_octet(self, mask: int, *, best: bool) -> int:
        octets = self.octets.get(mask)
        if octets is None:
            octets = self.octets[mask] = nfa.list_octets(mask)
        # a letter that ignores case is nearly always written in lower case
        if best or (len(octets) == 2 and self.random.random() < 9 / 10):
            return octets[0]
        # two of three bytes are lower-case letters and digits, if the set has them
        if self.random.random() < 2 / 3:
            return self.random.choice(octets[:_COMMON])
        return self.random.choice(octets)

    def choose_alternative(self, part: nfa.Expression) -> nfa.Expression:
        waiting = self.waiting.get(part.number)
        if not waiting:
            waiting = self.waiting[part.number] = list(part.items)
            self.random.shuffle(waiting)
        return waiting.pop()

    @staticmethod
    def choose_shortest(part: nfa.Expression) -> nfa.Expression:
        return min(part.items, key=lambda item: (item.shortest or 0, item.number))

    def choose_count(self, part: nfa.Expression) -> int:
        if part.items[0].shortest is None:
            return part.least
        most = part.least + _MORE if part.most is None else min(part.most, part.least + _MORE)
        return self.random.randint(part.least, most)


#: pairs of deterministic states that one comparison visits, and NFA states visited to build them
MAX_PAIRS: Final = 20_000
_BUDGET: Final = 400_000


class Relation(StrEnum):
    """The relation of the language of A to that of B."""

    EQUAL = "equal"
    SUBSET = "subset"
    SUPERSET = "superset"
    OVERLAP = "overlap"
    DISJOINT = "disjoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The relation of two languages, and a shortest string (safe to print) of only A, only B, and both."""

    relation: Relation
    only_a: str | None = None
    only_b: str | None = None
    both: str | None = None


def compare(a: abnf.Grammar, start_a: str, b: abnf.Grammar, start_b: str) -> Comparison:
    """Compare the strings of two rules. Two rules without strings are equal.

    Raises GrammarError if that cannot be decided: undefined names, prose, recursion, or automata that are
    too large (abnf.too-large). Raises UnknownEntryError if a rule does not exist.
    """
    pool = nfa.ExpressionPool()
    return compare_expressions(nfa.build_expression(a, start_a, pool), nfa.build_expression(b, start_b, pool))


def compare_expressions(
    first: nfa.Expression, second: nfa.Expression, *, budget: int = _BUDGET, most: int = MAX_PAIRS
) -> Comparison:
    """Compare two expressions of one pool, within `budget` NFA states and `most` pairs."""
    if first is second:
        if first.shortest is None:
            return Comparison(relation=Relation.EQUAL)
        found = _PairSearch(first, first, budget, most).find_witnesses(("both",))
        return Comparison(relation=Relation.EQUAL, both=found.get("both"))
    found = _PairSearch(first, second, budget, most).find_witnesses(("only_a", "only_b", "both"))
    relation = {
        (False, False): Relation.EQUAL,
        (False, True): Relation.SUBSET,
        (True, False): Relation.SUPERSET,
        (True, True): Relation.OVERLAP if "both" in found else Relation.DISJOINT,
    }["only_a" in found, "only_b" in found]
    return Comparison(relation=relation, **found)


def is_covered(part: nfa.Expression, whole: nfa.Expression, *, budget: int, most: int) -> bool:
    """Return whether every string of `part` is also one of `whole`."""
    return "only_a" not in _PairSearch(part, whole, budget, most).find_witnesses(("only_a",))


class _PairSearch:
    """A breadth-first search over pairs of states of two deterministic automata, built on demand."""

    def __init__(self, first: nfa.Expression, second: nfa.Expression, budget: int, most: int) -> None:
        self.most = most
        a, b = nfa.build_nfa(first), nfa.build_nfa(second)
        table, shown_octets = nfa.classify_octets(a.collect_masks() | b.collect_masks())
        self.octets = shown_octets
        self.a = nfa.LazyDFA(a, table, shown_octets, budget=budget)
        self.b = nfa.LazyDFA(b, table, shown_octets, budget=budget)

    def find_witnesses(self, wanted: tuple[str, ...]) -> dict[str, str]:
        """Return a shortest string for each wanted kind that exists."""
        a, b = self.a, self.b
        found: dict[str, str] = {}
        pairs = [(a.first, b.first)]
        parents: list[tuple[int, int]] = [(-1, 0)]
        seen = {pairs[0]}
        for index, (x, y) in enumerate(pairs):
            kind = _KINDS.get((a.accepts(x), b.accepts(y)))
            if kind in wanted and kind not in found:
                found[kind] = nfa.format_octets(nfa.trace_back(parents, index))
                if len(found) == len(wanted):
                    break
            for octet, to in zip(self.octets, zip(a.get_row(x), b.get_row(y), strict=True), strict=True):
                if to not in seen and self.can_lead_to(to, wanted):
                    seen.add(to)
                    pairs.append(to)
                    parents.append((index, octet))
            if len(pairs) > self.most:
                raise nfa.make_undecided_error(f"the comparison took more than {self.most:,} steps")
        return found

    def can_lead_to(self, pair: tuple[int, int], wanted: tuple[str, ...]) -> bool:
        """Return whether a wanted string can still follow this pair."""
        x, y = pair[0] != self.a.dead, pair[1] != self.b.dead
        return any(x if kind == "only_a" else y if kind == "only_b" else x and y for kind in wanted)


_KINDS: Final = {(True, False): "only_a", (False, True): "only_b", (True, True): "both"}


#: alternatives of one grammar that are checked for redundancy, and the work for each of them
_MAX_ALTERNATIVES: Final = 400
_LINT_BUDGET: Final = 4_000
_MAX_LINT_PAIRS: Final = 2_000
#: work of one comparison with a standard rule, and undecided comparisons after which no more are made
_STANDARD_BUDGET: Final = 40_000
_MAX_UNDECIDED: Final = 5
#: rules of a cycle that a remark names
_MAX_NAMES: Final = 8
#: work for all alternatives of one grammar, in states of their automata
_MAX_WORK: Final = 60_000
_NO_RECURSION: Final = "write the recursion as a repetition: *( ... )"


def lint(grammar: abnf.Grammar, *, start: str | None = None) -> tuple[abnf.Remark, ...]:
    """Return remarks on the rules of the text, in the order of the text.

    They report rules that are undefined, repeated, recursive, described in words, not valid ABNF, unused
    (or, with `start`, not reached from it), or defined with other strings than in RFC 3986 or RFC 5234 B.1;
    and alternatives that add no string. The remarks of the parser and of `resolve` are included. Raises
    UnknownEntryError if the rule `start` does not exist.
    """
    remarks = [
        *grammar.remarks,
        *_check_broken(grammar),
        *_check_undefined(grammar),
        *_check_recursive(grammar),
        *(_check_unused(grammar) if start is None else _check_unreachable(grammar, start)),
        *_check_redefined(grammar),
        *_check_redundant(grammar),
    ]
    return tuple(sorted(remarks, key=lambda remark: (remark.line or 0, remark.column or 0)))


def _check_broken(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    for problem in grammar.problems:
        yield abnf.Remark(
            code=abnf.RemarkCode.BROKEN,
            message=problem.message,
            rule=problem.field,
            line=problem.line,
            column=problem.column,
            fix=problem.hint,
        )


def _check_undefined(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    first: dict[str, abnf.Reference] = {}
    for rule in grammar.rules.values():
        for reference in abnf.list_references(rule.node):
            if reference.key not in grammar.rules:
                first.setdefault(reference.key, reference)
    for reference in first.values():
        name = reference.name
        fix = f"define it, or name the RFC that defines it: {name} = <{name}, see RFC nnnn>"
        near = get_close_matches(reference.key, [*grammar.rules, *_CORE_NAMES], n=1, cutoff=0.8)
        if near:
            known = grammar.rules[near[0]].name if near[0] in grammar.rules else near[0].upper()
            fix = f"write {known} if you mean that rule, or {fix}"
        yield abnf.make_remark(
            abnf.RemarkCode.UNDEFINED,
            "the rule is used but not defined",
            reference,
            name=name,
            fix=fix,
        )


def _check_recursive(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    for cycle in abnf.iter_cycles(abnf.map_uses(grammar)):
        for rule in (grammar.rules[key] for key in cycle):
            if rule.source is None:
                names = ", ".join(grammar.rules[key].name for key in cycle[:_MAX_NAMES] if key != rule.key)
                through = f" through {names}" if names else ""
                message = f"the rule uses itself{through}; its strings cannot be decided"
                yield abnf.make_remark(abnf.RemarkCode.RECURSIVE, message, rule, fix=_NO_RECURSION)


def _check_unused(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    unused = [grammar.rule(name) for name in abnf.find_unused_rules(grammar)]
    finder = abnf.PrefixFinder(grammar)
    starts = {rule.key for rule in unused if finder.get_prefixes(rule.key)}
    for rule in unused:
        if rule.key not in (starts or {unused[0].key}):
            message = "no other rule uses this rule"
            yield abnf.make_remark(abnf.RemarkCode.UNUSED, message, rule, fix="remove it, or use it")


def _check_unreachable(grammar: abnf.Grammar, start: str) -> Iterator[abnf.Remark]:
    first = grammar.rule(start)
    reached = abnf.find_reached_rules(grammar, first.key)
    for rule in grammar.own:
        if rule.key not in reached:
            yield abnf.make_remark(abnf.RemarkCode.UNREACHABLE, f"{first.name} does not use this rule", rule)


def _check_redefined(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    standard = load_rfc3986()
    pool = nfa.ExpressionPool()
    own_builder, standard_builder = (
        nfa.ExpressionBuilder(grammar, pool),
        nfa.ExpressionBuilder(standard, pool),
    )
    undecided = 0
    for rule in grammar.own:
        official = standard.rules.get(rule.key)
        if official is None or rule.node is None or isinstance(rule.node, abnf.Prose):
            continue
        source = official.source or "RFC 3986"
        try:
            if undecided >= _MAX_UNDECIDED:
                raise nfa.make_undecided_error("the comparisons of earlier rules took too long")
            comparison = compare_expressions(
                own_builder.build_rule(rule.name),
                standard_builder.build_rule(rule.name),
                budget=_STANDARD_BUDGET,
                most=_MAX_LINT_PAIRS,
            )
        except GrammarError as error:
            undecided += 1
            message = f"{source} has this rule too; whether the two differ was not decided: "
            reason = error.message.removeprefix("not decided: ")
            yield abnf.make_remark(abnf.RemarkCode.UNDECIDED, message + reason, rule)
            continue
        if comparison.relation is not Relation.EQUAL:
            own, other = comparison.only_a, comparison.only_b
            more = f"; only this rule has {own}" if own is not None else ""
            less = f"; only that rule has {other or 'the empty string'}" if other is not None else ""
            yield abnf.make_remark(
                abnf.RemarkCode.REDEFINED,
                f"the rule differs from {rule.name} of {source}{more}{less}",
                rule,
                witness=own if own is not None else other,
                fix=f"rename it, or use the rule of {source}",
            )


def _check_redundant(grammar: abnf.Grammar) -> Iterator[abnf.Remark]:
    pool = nfa.ExpressionPool()
    builder = nfa.ExpressionBuilder(grammar, pool)
    count = work = 0
    costly = False
    for rule, node in _iter_decidable(grammar):
        count += len(node.items)
        try:
            if count > _MAX_ALTERNATIVES:
                raise nfa.make_undecided_error(
                    f"only {_MAX_ALTERNATIVES} alternatives of a grammar are compared"
                )
            parts = [builder.build_part(item) for item in node.items]
            work += sum(part.size for part in parts) * len(parts)
            if work > _MAX_WORK:
                raise nfa.make_undecided_error("comparing the alternatives takes too long")
        except GrammarError as error:
            reason = error.message.removeprefix("not decided: ")
            yield _make_undecided_remark(
                rule, node, f"this and all further alternatives add strings: {reason}"
            )
            return
        redundant, unsure = _find_redundant(parts, pool)
        if unsure and not costly:
            costly = True
            yield _make_undecided_remark(
                rule, node, "these alternatives add strings: the comparison takes too long"
            )
        for item in (node.items[index] for index in redundant):
            message = (
                f"the alternative {_format_alternative(item)} adds nothing: the others have all its strings"
            )
            yield abnf.make_remark(abnf.RemarkCode.REDUNDANT, message, item, rule=rule, fix="remove it")


def _make_undecided_remark(rule: abnf.Rule, node: abnf.Node, question: str) -> abnf.Remark:
    return abnf.make_remark(
        abnf.RemarkCode.UNDECIDED, f"it was not decided whether {question}", node, rule=rule
    )


def _iter_decidable(grammar: abnf.Grammar) -> Iterator[tuple[abnf.Rule, abnf.Alternation]]:
    """Yield the alternations whose strings can be decided; other remarks explain the rest."""
    uses = abnf.map_uses(grammar)
    users: dict[str, list[str]] = {}
    for key, used in uses.items():
        for name in used:
            users.setdefault(name, []).append(key)
    undecidable = {key for cycle in abnf.iter_cycles(uses) for key in cycle}
    undecidable |= {
        key for key, rule in grammar.rules.items() if rule.node is None or nfa.find_prose(rule.node)
    }
    undecidable |= users.keys() - uses.keys()
    stack = list(undecidable)
    while stack:
        following = [key for key in users.get(stack.pop(), ()) if key not in undecidable]
        undecidable.update(following)
        stack.extend(following)
    for rule in grammar.own:
        for node in abnf.iter_nodes(rule.node):
            if (
                isinstance(node, abnf.Alternation)
                and not nfa.find_prose(node)
                and undecidable.isdisjoint(reference.key for reference in abnf.list_references(node))
            ):
                yield rule, node


def _find_redundant(parts: list[nfa.Expression], pool: nfa.ExpressionPool) -> tuple[list[int], bool]:
    """Return the alternatives that the others cover (of equal ones the later), and if some took too long."""
    left = dict(enumerate(parts))
    unsure = False
    for index in reversed(range(len(parts))):
        others = pool.make_alternation([part for number, part in left.items() if number != index])
        try:
            if len(left) > 1 and is_covered(parts[index], others, budget=_LINT_BUDGET, most=_MAX_LINT_PAIRS):
                del left[index]
        except GrammarError:
            unsure = True
    return [index for index in range(len(parts)) if index not in left], unsure


def _format_alternative(node: abnf.Node) -> str:
    if isinstance(node, abnf.Reference):
        return node.name
    return f'"{node.text}"' if isinstance(node, abnf.Literal) else "here"
