"""How the strings of a rule relate to the URIs of RFC 3986.

`decide_inclusion` decides whether every string is an absolute-URI, `find_wrong_prefix` whether every
string begins with the scheme, `probe_rule` which doubtful forms the rule admits, and `find_reserved`
where it admits reserved characters. Each answer is a shortest string: a breadth-first search over pairs
of states of the rule's automaton and a minimal deterministic automaton that is built once for each
process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._loader import load_library, parse_grammar, read_data_file, resolve
from onym.registry.abnf._nfa import (
    NFA,
    ORDER,
    RANK,
    ExpressionPool,
    LazyDFA,
    build_expression,
    build_nfa,
    build_rule_nfa,
    classify_octets,
    format_octets,
    list_octets,
    too_large_error,
)
from onym.registry.abnf.grammar import Grammar

_BUDGET: Final = 2_000_000


class DFA:
    """States from 0 (first); `rows[s][c]` is where class c leads, `table` the class of each octet."""

    __slots__ = ("accepts", "live", "rows", "table")

    def __init__(self, table: bytes, rows: list[list[int]], accepts: list[bool]) -> None:
        self.table = table
        self.rows = rows
        self.accepts = accepts
        self.live = _find_live_states(rows, accepts)


def _find_live_states(rows: list[list[int]], accepts: list[bool]) -> list[bool]:
    """From which states an accepting one can be reached."""
    before: list[set[int]] = [set() for _ in rows]
    for state, row in enumerate(rows):
        for following in set(row):
            before[following].add(state)
    live = list(accepts)
    stack = [state for state, accepted in enumerate(accepts) if accepted]
    while stack:
        for state in before[stack.pop()]:
            if not live[state]:
                live[state] = True
                stack.append(state)
    return live


def build_dfa(nfa: NFA) -> DFA:
    """The minimal automaton of an NFA, complete (a state that accepts nothing counts)."""
    table, shown = classify_octets(nfa.collect_masks())
    subsets = LazyDFA(nfa, table, shown, budget=_BUDGET)
    rows: list[list[int]] = []
    while len(rows) < len(subsets):
        rows.append(subsets.get_row(len(rows)))
    accepts = [subsets.accepts(state) for state in range(len(rows))]
    return _minimize_dfa(table, rows, accepts, subsets.first)


def _minimize_dfa(table: bytes, rows: list[list[int]], accepts: list[bool], first: int) -> DFA:
    """Moore's refinement: states are one as long as no class leads them apart."""
    block = [int(accepted) for accepted in accepts]
    count = len(set(block))
    while True:
        numbers: dict[tuple[int, ...], int] = {}
        get = block.__getitem__
        new = [numbers.setdefault((block[at], *map(get, row)), len(numbers)) for at, row in enumerate(rows)]
        if len(numbers) == count:
            break
        block, count = new, len(numbers)
    return _renumber_blocks(table, rows, accepts, block, first)


def _renumber_blocks(
    table: bytes, rows: list[list[int]], accepts: list[bool], block: list[int], first: int
) -> DFA:
    """One state for each block that can be reached, in breadth-first order."""
    member = {block_number: state for state, block_number in enumerate(block)}
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


def subtract_dfa(first: DFA, second: DFA) -> DFA:
    """The strings of the first that are not of the second, minimal."""
    return _combine_dfas(first, second, lambda a, b: a and not b)


def _combine_dfas(first: DFA, second: DFA, holds: Callable[[bool, bool], bool]) -> DFA:
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
    return _minimize_dfa(table, rows, [holds(first.accepts[a], second.accepts[b]) for a, b in order], 0)


#: pairs of states that one search looks at
MAX_PAIRS: Final = 250_000


def find_shortest(nfa: NFA, dfa: DFA, *, accepted: bool, without: int = 0) -> bytes | None:
    """The shortest string of `nfa` that `dfa` accepts (or, `accepted` False, refuses); None: there is none.

    Of several the first in the order of readability. Strings with an octet of the mask `without` are left
    out. Breadth first over pairs of states, grouped by the string that leads to them. Raises GrammarError
    abnf.too-large beyond MAX_PAIRS.
    """
    return _ProductSearch(nfa, dfa, accepted, without).run()


class _ProductSearch:
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
                edges = self.collect_edges(pairs)
                if edges is None:
                    return self.build_string(group)
                ready.append((group, edges))
                if self.count > MAX_PAIRS:
                    raise too_large_error(f"the search took more than {MAX_PAIRS:,} steps")
            following: list[tuple[int, list[int]]] = []
            for group, edges in ready:
                self.expand_group(group, edges, following)
            layer = following
        return None

    def collect_edges(self, pairs: list[int]) -> list[tuple[int, int]] | None:
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
                out.extend((rank, base + to) for rank, to in self.get_targets(mask, other))
        self.count += len(pairs)
        out.sort()
        return out

    def get_targets(self, mask: int, other: int) -> list[tuple[int, int]]:
        """By the octets of a mask: the states that the fixed automaton goes to, each by its best octet."""
        found = self.steps.get((mask, other))
        if found is None:
            octets = self.octets.get(mask)
            if octets is None:
                octets = self.octets[mask] = list_octets(mask & ~self.without)
            row, table = self.dfa.rows[other], self.dfa.table
            best: dict[int, int] = {}
            for octet in octets:
                best.setdefault(row[table[octet]], RANK[octet])
            # where an accepted string is sought, what can lead to none is left out
            live = self.dfa.live
            found = [(rank, to) for to, rank in best.items() if not self.accepted or live[to]]
            self.steps[mask, other] = found
        return found

    def expand_group(
        self, group: int, edges: list[tuple[int, int]], layer: list[tuple[int, list[int]]]
    ) -> None:
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

    def build_string(self, group: int) -> bytes:
        out = bytearray()
        while group:
            group, rank = self.parents[group]
            out.append(ORDER[rank])
        out.reverse()
        return bytes(out)


@cache
def load_rfc3986() -> Grammar:
    """RFC 3986 Appendix A with the core rules."""
    return resolve(load_library("3986"))


@cache
def build_absolute_uri_dfa() -> DFA:
    """absolute-URI of RFC 3986 4.3, minimal; made once for each process."""
    return build_dfa(build_rule_nfa(load_rfc3986(), "absolute-URI"))


@cache
def build_uri_dfa() -> DFA:
    """URI of RFC 3986 3, minimal; made once for each process."""
    return build_dfa(build_rule_nfa(load_rfc3986(), "URI"))


@cache
def _load_probe_rules() -> Grammar:
    return resolve(parse_grammar(read_data_file("probes.abnf")))


@cache
def build_probe_dfa(rule: str) -> DFA:
    """The strings of one rule of data/probes.abnf."""
    return build_dfa(build_rule_nfa(_load_probe_rules(), rule))


@cache
def build_improper_slashes_dfa() -> DFA:
    """Strings with `//` after the scheme that are no URI: what follows is no authority and path."""
    return subtract_dfa(build_probe_dfa("double-slash"), build_uri_dfa())


#: states of an automaton that `probe_rule` asks
MAX_PROBE_STATES: Final = 15_000
_HASH: Final = 1 << ord("#")


class Outcome(StrEnum):
    """How a question about a grammar ended. Only INCLUDED is a pass."""

    INCLUDED = "included"
    #: every fault is a fragment: the strings are URIs, those without "#" are absolute-URIs
    FRAGMENT_ONLY = "fragment-only"
    NOT_INCLUDED = "not-included"
    #: the rule has no string at all
    EMPTY = "empty"
    #: not decided: a rule uses itself
    RECURSIVE = "recursive"
    #: not decided: a rule is used and not defined
    UNDEFINED = "undefined"
    #: not decided: a rule is described in words
    PROSE = "prose"
    #: not decided: a rule is not ABNF
    BROKEN = "broken"
    #: not decided: the automaton or the search grew beyond its cap
    TOO_LARGE = "too-large"


_OUTCOMES: Final[Mapping[str, Outcome]] = MappingProxyType(
    {
        "abnf.recursive": Outcome.RECURSIVE,
        "abnf.undefined-rule": Outcome.UNDEFINED,
        "abnf.prose": Outcome.PROSE,
        "abnf.broken-rule": Outcome.BROKEN,
        "abnf.too-large": Outcome.TOO_LARGE,
    }
)
_DECIDED: Final = (Outcome.INCLUDED, Outcome.FRAGMENT_ONLY, Outcome.NOT_INCLUDED, Outcome.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the strings of a rule are absolute-URIs (RFC 3986 4.3; RFC 4395 2.2, RFC 7595 3.2).

    `witness` is the shortest string that is none; `second` the shortest one without "#", where the witness
    has one and there is such a string. Both are safe to print: octets that are no printable text are
    written as escapes. `problem` says why nothing was decided. `states` counts those of the automaton.
    """

    outcome: Outcome
    start: str
    witness: str | None = None
    second: str | None = None
    problem: GrammarError | None = None
    states: int = 0

    @property
    def ok(self) -> bool:
        """Is every string an absolute-URI, proved?"""
        return self.outcome is Outcome.INCLUDED

    @property
    def decided(self) -> bool:
        """Was the question answered, either way?"""
        return self.outcome in _DECIDED


def decide_inclusion(grammar: Grammar, start: str) -> Verdict:
    """Decide whether every string of the rule `start` is an absolute-URI.

    By breadth-first search over pairs of states of the rule's automaton and the fixed one of absolute-URI.
    Call `resolve` first: names that are not defined are an outcome of their own. Raises UnknownEntryError
    where the grammar has no such rule.
    """
    try:
        whole = build_expression(grammar, start)
        nfa = build_nfa(whole)
        if whole.shortest is None:
            return Verdict(outcome=Outcome.EMPTY, start=start, states=len(nfa.moves))
        return _decide_nfa(nfa, start)
    except GrammarError as error:
        return Verdict(outcome=_OUTCOMES[error.code], start=start, problem=error)


def _decide_nfa(nfa: NFA, start: str) -> Verdict:
    states = len(nfa.moves)
    witness = find_shortest(nfa, build_absolute_uri_dfa(), accepted=False)
    if witness is None:
        return Verdict(outcome=Outcome.INCLUDED, start=start, states=states)
    second = None
    outcome = Outcome.NOT_INCLUDED
    if b"#" in witness:
        second = find_shortest(nfa, build_absolute_uri_dfa(), accepted=False, without=_HASH)
        if second is None and find_shortest(nfa, build_uri_dfa(), accepted=False) is None:
            outcome = Outcome.FRAGMENT_ONLY
    return Verdict(
        outcome=outcome,
        start=start,
        witness=format_octets(witness),
        second=None if second is None else format_octets(second),
        states=states,
    )


def find_wrong_prefix(grammar: Grammar, start: str, scheme: str) -> str | None:
    """The shortest string of the rule that does not begin with `scheme:`, whatever its case; None: no such.

    Raises GrammarError where that cannot be decided.
    """
    return _find_witness(
        build_nfa(build_expression(grammar, start)), _build_prefix_dfa(scheme), accepted=False
    )


def _build_prefix_dfa(scheme: str) -> DFA:
    pool = ExpressionPool()
    octets = pool.make_repetition(pool.make_octets((1 << 256) - 1), 0, None)
    return build_dfa(
        build_nfa(pool.make_concatenation([pool.make_text(f"{scheme}:", sensitive=False), octets]))
    )


def _find_witness(nfa: NFA, dfa: DFA, *, accepted: bool) -> str | None:
    found = find_shortest(nfa, dfa, accepted=accepted)
    return None if found is None else format_octets(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One form of a URI: its id, what it is, the clause that speaks of it, the rule of data/probes.abnf."""

    id: str
    title: str
    clause: str
    rule: str


#: the forms that `probe_rule` looks for
PROBES: Final = (
    Probe(id="bare-scheme", title="the scheme and a colon alone", clause="RFC 3986 3", rule="bare-scheme"),
    Probe(id="empty-host", title="an empty host", clause="RFC 3986 3.2.2", rule="empty-host"),
    Probe(id="password", title="user:password", clause="RFC 3986 3.2.1", rule="password"),
    Probe(id="dot-segments", title="dot segments", clause="RFC 3986 3.3", rule="dot-segments"),
    Probe(id="empty-port", title="an empty port", clause="RFC 3986 3.2.3", rule="empty-port"),
    Probe(id="encoded-slash", title="an encoded slash, %2F", clause="RFC 3986 2.2", rule="encoded-slash"),
    Probe(id="encoded-octet", title="an octet of no UTF-8, %FF", clause="RFC 3986 2.5", rule="encoded-octet"),
    Probe(id="fragment", title="a fragment", clause="RFC 3986 3.5", rule="fragment-part"),
    Probe(id="improper-slashes", title="// before no authority", clause="RFC 3986 3.2", rule=""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What a rule admits: for each id of PROBES the shortest such string, None where it admits none.

    `problem` says why nothing could be asked; `found` is empty then.
    """

    found: Mapping[str, str | None]
    problem: GrammarError | None = None

    @property
    def decided(self) -> bool:
        """Were the questions answered?"""
        return self.problem is None

    def admits(self, identifier: str) -> bool:
        """Does the rule admit this form? KeyError where nothing was decided."""
        return self.found[identifier] is not None


def probe_rule(grammar: Grammar, start: str) -> Probes:
    """Ask a rule for each form of PROBES. Raises UnknownEntryError where there is no such rule."""
    try:
        nfa = build_nfa(build_expression(grammar, start))
        if len(nfa.moves) > MAX_PROBE_STATES:
            raise too_large_error(f"the automaton has more than {MAX_PROBE_STATES:,} states")
        found = {
            probe.id: _find_witness(
                nfa,
                build_probe_dfa(probe.rule) if probe.rule else build_improper_slashes_dfa(),
                accepted=True,
            )
            for probe in PROBES
        }
    except GrammarError as error:
        return Probes(found=MappingProxyType({}), problem=error)
    return Probes(found=MappingProxyType(found))


#: states of an automaton that is asked; there are 64 questions
MAX_RESERVED_STATES: Final = 4_000
#: RFC 3986 2.2: gen-delims, then sub-delims
RESERVED: Final = ":/?#[]@!$&'()*+,;="
#: each component as RFC 3986 Appendix B takes a string apart; {c} is the character
_COMPONENTS: Final = {
    "authority": 'at = before "//" *a {c} *o',
    "path": 'at = before "//" *a "/" *p {c} *o / before {c} / before n *p {c} *o'
    ' / before "/" / before "/" {d} *o / before "/" n *p {c} *o',
    "query": 'at = before *p "?" *q {c} *o',
    "fragment": 'at = before *p [ "?" *q ] "#" *o {c} *o',
}
_PARTS: Final = """
before = 1*( %x00-22 / %x24-2E / %x30-39 / %x3B-3E / %x40-FF ) ":"
a = %x00-22 / %x24-2E / %x30-3E / %x40-FF
n = %x00-22 / %x24-2E / %x30-3E / %x40-FF
p = %x00-22 / %x24-3E / %x40-FF
q = %x00-22 / %x24-FF
o = %x00-FF
"""
#: characters that end a component, and so are never within it
_NEVER: Final = {"authority": "/?#", "path": "?#", "query": "#", "fragment": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCharacter:
    """A reserved character that the rule admits within a component, and the shortest string that shows it."""

    character: str
    component: str
    witness: str


def find_reserved(grammar: Grammar, start: str) -> tuple[ReservedCharacter, ...]:
    """Where the strings of a rule may have each reserved character, component by component.

    A delimiter counts where it is data, not where it divides: the "?" before the query does not. Raises
    GrammarError where that cannot be decided, UnknownEntryError where there is no such rule.
    """
    nfa = build_nfa(build_expression(grammar, start))
    if len(nfa.moves) > MAX_RESERVED_STATES:
        raise too_large_error(f"the automaton has more than {MAX_RESERVED_STATES:,} states")
    out = []
    for character in RESERVED:
        for component, never in _NEVER.items():
            if character not in never:
                found = find_shortest(nfa, _build_form_dfa(component, character), accepted=True)
                if found is not None:
                    out.append(
                        ReservedCharacter(
                            character=character, component=component, witness=format_octets(found)
                        )
                    )
    return tuple(out)


@cache
def _build_form_dfa(component: str, character: str) -> DFA:
    value = f"%x{ord(character):02X}"
    text = _COMPONENTS[component]
    if character == "/":
        # a slash after the first would make the two an authority's
        text = text.replace(' / before "/" {d} *o', "")
    else:
        text = text.replace(' / before "/" /', " /").replace("before {c} /", "before {c} *o /")
    grammar = parse_grammar(text.format(c=value, d=value) + _PARTS)
    return build_dfa(build_rule_nfa(grammar, "at"))
