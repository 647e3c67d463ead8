"""How the strings of a rule relate to the URIs of RFC 3986.

Each answer is a shortest string, from a breadth-first search over pairs of states of the rule's automaton and
a minimal deterministic automaton. A rule that uses itself, or is described in words, cannot be decided:
`narrow_grammar` leaves such strings out, and `widen_grammar` allows more (unreserved characters for words).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from onym.errors import GrammarError
from onym.registry import abnf
from onym.registry.abnf import _nfa
from onym.registry.abnf._loader import load_library, map_node, parse_grammar, read_data_file, resolve

#: how often a rule uses itself in the strings of `narrow_grammar`
_DEPTH: Final = 2
#: no string at all
_NOTHING: Final = abnf.Alternation(items=())
_HEX: Final = abnf.Alternation(items=(abnf.Range(first=0x30, last=0x39), abnf.Range(first=0x41, last=0x46)))
#: *( unreserved / pct-encoded ), without rules of other names
_PLAIN: Final = abnf.Repetition(
    item=abnf.Alternation(
        items=(
            *(abnf.Range(first=ord(first), last=ord(last)) for first, last in ("az", "AZ", "09")),
            *(abnf.Literal(text=character) for character in "-._~"),
            abnf.Concatenation(items=(abnf.Literal(text="%"), _HEX, _HEX)),
        )
    ),
    least=1,
    most=None,
)


#: nodes of the rules that are approximated
_MAX_NODES: Final = 20_000


def is_small(grammar: abnf.Grammar, start: str) -> bool:
    """Return whether the rules that `start` uses are few enough to copy them."""
    count = 0
    for key in abnf.find_reached_rules(grammar, start):
        rule = grammar.rules.get(key)
        count += 1 + sum(1 for _ in abnf.iter_nodes(None if rule is None else rule.node))
        if count > _MAX_NODES:
            return False
    return True


def find_open_rules(grammar: abnf.Grammar, start: str) -> tuple[str, ...]:
    """Return the names that `start` reaches and that have no known strings, in the order of the text."""
    names: dict[str, str] = {}
    for key in abnf.find_reached_rules(grammar, start):
        rule = grammar.rules.get(key)
        if rule is not None and (rule.node is None or _has_prose(rule.node)):
            names[key] = rule.name
        for reference in () if rule is None else abnf.list_references(rule.node):
            if reference.key not in grammar.rules:
                names[reference.key] = reference.name
    order = {key: index for index, key in enumerate(grammar.rules)}
    return tuple(names[key] for key in sorted(names, key=lambda key: (order.get(key, len(order)), key)))


def _has_prose(node: abnf.Node) -> bool:
    return any(isinstance(inner, abnf.Prose) for inner in abnf.iter_nodes(node, skip_empty=True))


def narrow_grammar(grammar: abnf.Grammar, start: str) -> abnf.Grammar:
    """Return a grammar whose strings of `start` are strings of the grammar, without the unknown ones."""
    rules = _fill_rules(grammar, start, _NOTHING)
    for cycle in list(abnf.iter_cycles(abnf.map_uses(replace(grammar, rules=rules)))):
        members = set(cycle)
        copies = {key: rules[key] for key in cycle}
        for key, rule in copies.items():
            for depth in range(_DEPTH + 1):
                copy = _rename_cycle(rule, members, depth)
                rules[copy.key] = copy
            rules[key] = _rename_cycle(rule, members, _DEPTH + 1, name=rule.name)
    return replace(grammar, rules=MappingProxyType(rules), others=())


def widen_grammar(grammar: abnf.Grammar, start: str) -> abnf.Grammar:
    """Return a grammar that has all strings of `start`, if unknown rules have only plain characters."""
    rules = _fill_rules(grammar, start, _PLAIN)
    for cycle in list(abnf.iter_cycles(abnf.map_uses(replace(grammar, rules=rules)))):
        members = set(cycle)
        leaves = [
            node
            for key in cycle
            for node in _list_leaves(rules[key].node)
            if not (isinstance(node, abnf.Reference) and node.key in members)
        ]
        anything = abnf.Repetition(item=abnf.Alternation(items=tuple(leaves)), least=0, most=None)
        for key in cycle:
            rules[key] = replace(rules[key], node=anything)
    return replace(grammar, rules=MappingProxyType(rules), others=())


def _fill_rules(grammar: abnf.Grammar, start: str, filling: abnf.Node) -> dict[str, abnf.Rule]:
    """Return the rules that `start` reaches, with `filling` for prose, broken and undefined rules."""

    def fill(node: abnf.Node) -> abnf.Node:
        is_open = isinstance(node, abnf.Prose) or (
            isinstance(node, abnf.Reference) and node.key not in grammar.rules
        )
        return filling if is_open else node

    reached = abnf.find_reached_rules(grammar, start)
    return {
        key: replace(rule, node=filling if rule.node is None else _fill_node(rule.node, fill))
        for key, rule in grammar.rules.items()
        if key in reached
    }


def _fill_node(node: abnf.Node, fill: Callable[[abnf.Node], abnf.Node]) -> abnf.Node:
    """Return the node with `fill` applied, except to `0<pchar>`, which is the empty string."""
    if isinstance(node, abnf.Repetition) and node.most == 0:
        return node
    if isinstance(node, (abnf.Concatenation, abnf.Alternation)):
        return replace(node, items=tuple(_fill_node(item, fill) for item in node.items))
    if isinstance(node, (abnf.Repetition, abnf.ListOf)):
        return replace(node, item=_fill_node(node.item, fill))
    return fill(node)


def _rename_cycle(rule: abnf.Rule, members: set[str], depth: int, *, name: str | None = None) -> abnf.Rule:
    """Return a copy of a rule that uses the copies of the next lower depth; depth 0 has no strings."""

    def rename(node: abnf.Node) -> abnf.Node:
        if isinstance(node, abnf.Reference) and node.key in members:
            return replace(node, name=f"{node.name}@{depth - 1}")
        return node

    new = f"{rule.name}@{depth}" if name is None else name
    assert rule.node is not None  # noqa: S101 - _fill_rules gives every rule a node
    return replace(rule, name=new, node=_NOTHING if depth == 0 else map_node(rule.node, rename))


def _list_leaves(node: abnf.Node | None) -> list[abnf.Node]:
    containers = (abnf.Concatenation, abnf.Alternation, abnf.Repetition, abnf.ListOf)
    return [inner for inner in abnf.iter_nodes(node) if not isinstance(inner, containers)]


_BUDGET: Final = 2_000_000


class DFA:
    """An automaton with the first state 0: class c leads from s to `rows[s][c]`; `table` classifies bytes."""

    __slots__ = ("accepts", "live", "rows", "table")

    def __init__(self, table: bytes, rows: list[list[int]], accepts: list[bool]) -> None:
        self.table = table
        self.rows = rows
        self.accepts = accepts
        self.live = _find_live_states(rows, accepts)


def _find_live_states(rows: list[list[int]], accepts: list[bool]) -> list[bool]:
    """Return for each state whether an accepting state can be reached."""
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


def build_dfa(nfa: _nfa.NFA) -> DFA:
    """Return the minimal automaton of an NFA; it is complete, so it may have a state that accepts nothing."""
    table, shown = _nfa.classify_octets(nfa.collect_masks())
    subsets = _nfa.LazyDFA(nfa, table, shown, budget=_BUDGET)
    rows: list[list[int]] = []
    while len(rows) < len(subsets):
        rows.append(subsets.get_row(len(rows)))
    accepts = [subsets.accepts(state) for state in range(len(rows))]
    return _minimize_dfa(table, rows, accepts, subsets.first)


def _minimize_dfa(table: bytes, rows: list[list[int]], accepts: list[bool], first: int) -> DFA:
    """Merge states that no class distinguishes (Moore's refinement)."""
    block = [int(accepted) for accepted in accepts]
    count = len(set(block))
    while True:
        numbers: dict[tuple[int, ...], int] = {}
        get = block.__getitem__
        new = [numbers.setdefault((get(at), *map(get, row)), len(numbers)) for at, row in enumerate(rows)]
        if len(numbers) == count:
            break
        block, count = new, len(numbers)
    return _renumber_blocks(table, rows, accepts, block, first)


def _renumber_blocks(
    table: bytes, rows: list[list[int]], accepts: list[bool], block: list[int], first: int
) -> DFA:
    """Return a state for each block that can be reached, in breadth-first order."""
    member = {number: state for state, number in enumerate(block)}
    order = [block[first]]
    index = {block[first]: 0}
    for number in order:
        for following in rows[member[number]]:
            if block[following] not in index:
                index[block[following]] = len(order)
                order.append(block[following])
    return DFA(
        table,
        [[index[block[following]] for following in rows[member[number]]] for number in order],
        [accepts[member[number]] for number in order],
    )


def subtract_dfa(first: DFA, second: DFA) -> DFA:
    """Return the strings of the first automaton that the second does not have, minimal."""
    pairs = sorted(set(zip(first.table, second.table, strict=True)))
    class_of = {pair: index for index, pair in enumerate(pairs)}
    table = bytes(class_of[pair] for pair in zip(first.table, second.table, strict=True))
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
    accepts = [first.accepts[a] and not second.accepts[b] for a, b in order]
    return _minimize_dfa(table, rows, accepts, 0)


#: pairs of states that one search visits
MAX_PAIRS: Final = 250_000


def find_shortest(nfa: _nfa.NFA, dfa: DFA, *, accepted: bool, without: int = 0) -> bytes | None:
    """Return the shortest string of `nfa` that `dfa` accepts, or with `accepted` False rejects; None if none.

    Of several strings it is the most readable. Strings with a byte of the mask `without` are left out.
    Raises GrammarError abnf.too-large beyond MAX_PAIRS.
    """
    return _ProductSearch(nfa, dfa, accepted, without).run()


class _ProductSearch:
    """A breadth-first search over pairs of states, grouped by the string that leads to them."""

    def __init__(self, nfa: _nfa.NFA, dfa: DFA, accepted: bool, without: int) -> None:
        self.nfa, self.dfa, self.accepted = nfa, dfa, accepted
        self.without = without
        self.width = len(dfa.rows)
        self.seen = bytearray(len(nfa.moves) * self.width)
        self.count = 0
        # the group before each group, and the last byte
        self.parents: list[tuple[int, int]] = [(-1, 0)]
        self.octets: dict[int, list[int]] = {}
        self.steps: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> bytes | None:
        layer: list[tuple[int, list[int]]] = [(0, [0])]
        self.seen[0] = 1
        while layer:
            # the whole layer is closed first, so that each pair belongs to the first group that reaches it
            ready: list[tuple[int, list[tuple[int, int]]]] = []
            for group, pairs in layer:
                edges = self.collect_edges(pairs)
                if edges is None:
                    return _nfa.trace_back(self.parents, group)
                ready.append((group, edges))
                if self.count > MAX_PAIRS:
                    raise _nfa.make_undecided_error(f"the search took more than {MAX_PAIRS:,} steps")
            following: list[tuple[int, list[int]]] = []
            for group, edges in ready:
                self.expand_group(group, edges, following)
            layer = following
        return None

    def collect_edges(self, pairs: list[int]) -> list[tuple[int, int]] | None:
        """Return what a group leads to as (rank, pair), sorted; None if it has a string that is searched."""
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
        """Return the states that the bytes of a mask lead to in `dfa`, each with its most readable byte."""
        targets = self.steps.get((mask, other))
        if targets is None:
            octets = self.octets.get(mask)
            if octets is None:
                octets = self.octets[mask] = _nfa.list_octets(mask & ~self.without)
            row, table = self.dfa.rows[other], self.dfa.table
            best: dict[int, int] = {}
            for octet in octets:
                best.setdefault(row[table[octet]], _nfa.RANK[octet])
            # in a search for an accepted string, dead states are left out
            live = self.dfa.live
            targets = [(rank, to) for to, rank in best.items() if not self.accepted or live[to]]
            self.steps[mask, other] = targets
        return targets

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
                self.parents.append((group, _nfa.ORDER[rank]))
            layer[-1][1].append(pair)


@cache
def load_rfc3986() -> abnf.Grammar:
    """Return the rules of RFC 3986 Appendix A with the core rules."""
    return resolve(load_library("3986"))


@cache
def build_absolute_uri_dfa() -> DFA:
    """Return the minimal automaton of absolute-URI (RFC 3986 4.3), built once per process."""
    return build_dfa(_nfa.build_rule_nfa(load_rfc3986(), "absolute-URI"))


@cache
def build_uri_dfa() -> DFA:
    """Return the minimal automaton of URI (RFC 3986 3), built once per process."""
    return build_dfa(_nfa.build_rule_nfa(load_rfc3986(), "URI"))


@cache
def _load_probe_rules() -> abnf.Grammar:
    return resolve(parse_grammar(read_data_file("probes.abnf")))


@cache
def build_probe_dfa(rule: str) -> DFA:
    """Return the automaton of one rule of data/probes.abnf, or "": `//` after the scheme of non-URIs."""
    if not rule:
        return subtract_dfa(build_probe_dfa("double-slash"), build_uri_dfa())
    return build_dfa(_nfa.build_rule_nfa(_load_probe_rules(), rule))


#: states of an automaton that `probe_rule` accepts
MAX_PROBE_STATES: Final = 15_000
_HASH: Final = 1 << ord("#")


class Outcome(StrEnum):
    """The answer to a question about a grammar. Only INCLUDED is a pass; the last five are undecided.

    CONDITIONAL is the answer for the case that rules that are not defined, or described in words, have only
    unreserved and percent-encoded characters: no if there is a witness, else yes.
    """

    INCLUDED = "included"
    #: strings without "#" are absolute-URIs, and strings with "#" are URIs
    FRAGMENT_ONLY = "fragment-only"
    NOT_INCLUDED = "not-included"
    CONDITIONAL = "conditional"
    #: the rule has no strings
    EMPTY = "empty"
    #: a rule uses itself
    RECURSIVE = "recursive"
    #: a rule is used but not defined
    UNDEFINED = "undefined"
    #: a rule is described in words
    PROSE = "prose"
    #: a rule is not valid ABNF
    BROKEN = "broken"
    #: the automaton or the search is too large
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the strings of a rule are absolute-URIs (RFC 3986 4.3; RFC 4395 2.2, RFC 7595 3.2).

    `witness` is the shortest string that is not one, `second` the shortest one without "#" if the witness
    has "#" and there is such a string. Both are safe to print: unprintable bytes are escaped. `problem` is
    the reason if nothing was decided, or only for a part of the strings or on a condition. `states` is the
    number of the automaton's states. `open_rules` are the rules that the condition is about.
    """

    outcome: Outcome
    start: str
    witness: str | None = None
    second: str | None = None
    problem: GrammarError | None = None
    states: int = 0
    open_rules: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every string is proved to be an absolute-URI."""
        return self.outcome is Outcome.INCLUDED

    @property
    def decided(self) -> bool:
        """Whether the question was decided, either way."""
        return self.outcome not in _OUTCOMES.values()


def decide_inclusion(grammar: abnf.Grammar, start: str) -> Verdict:
    """Decide whether every string of the rule `start` is an absolute-URI.

    Call `resolve` first: the outcome of undefined names is UNDEFINED. Raises UnknownEntryError if the rule
    does not exist.
    """
    try:
        return _decide_grammar(grammar, start)
    except GrammarError as error:
        return Verdict(outcome=_OUTCOMES[error.code], start=start, problem=error)


def decide_known_part(grammar: abnf.Grammar, start: str) -> Verdict:
    """Return the result of `decide_inclusion`, or what can be decided of an undecidable grammar.

    If rules are recursive, described in words, not valid or not defined, the strings that do not need them
    are decided: if one of these is not an absolute-URI, the answer is no. Otherwise a superset of a
    recursion is decided. CONDITIONAL is the outcome if only unknown rules are left.
    """
    verdict = decide_inclusion(grammar, start)
    if verdict.problem is None or verdict.outcome is Outcome.TOO_LARGE:
        return verdict
    return _decide_part(grammar, start, verdict.problem) or verdict


def _decide_grammar(grammar: abnf.Grammar, start: str) -> Verdict:
    whole = _nfa.build_expression(grammar, start)
    nfa = _nfa.build_nfa(whole)
    if whole.shortest is None:
        return Verdict(outcome=Outcome.EMPTY, start=start, states=len(nfa.moves))
    return _decide_nfa(nfa, start)


def _decide_part(grammar: abnf.Grammar, start: str, error: GrammarError) -> Verdict | None:
    """Return what can be decided without the strings that are not known; None if that is nothing."""
    unknown = find_open_rules(grammar, start)
    if not is_small(grammar, start):
        return None
    try:
        verdict = _decide_grammar(narrow_grammar(grammar, start), start)
        if verdict.outcome in (Outcome.NOT_INCLUDED, Outcome.FRAGMENT_ONLY):
            return replace(verdict, problem=error)
        if verdict.outcome is Outcome.EMPTY and not unknown:
            return None  # a recursion without an end
        verdict = _decide_grammar(widen_grammar(grammar, start), start)
    except GrammarError:
        return None
    if not unknown:
        return verdict if verdict.ok else None
    if grammar.rule(start).name in unknown or verdict.outcome is Outcome.EMPTY:
        return None
    return replace(verdict, outcome=Outcome.CONDITIONAL, problem=error, open_rules=unknown)


def _decide_nfa(nfa: _nfa.NFA, start: str) -> Verdict:
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
        witness=_nfa.format_octets(witness),
        second=None if second is None else _nfa.format_octets(second),
        states=states,
    )


def find_wrong_prefix(grammar: abnf.Grammar, start: str, *schemes: str) -> str | None:
    """Return the shortest string of the rule that begins with no `scheme:`, ignoring case; None if none.

    Raises GrammarError if that cannot be decided.
    """
    pool = _nfa.ExpressionPool()
    anything = pool.make_repetition(pool.make_octets((1 << 256) - 1), 0, None)
    names = pool.make_alternation([pool.make_text(f"{scheme}:", sensitive=False) for scheme in schemes])
    prefixed = pool.make_concatenation([names, anything])
    return _find_witness(
        _nfa.build_rule_nfa(grammar, start), build_dfa(_nfa.build_nfa(prefixed)), accepted=False
    )


def _find_witness(nfa: _nfa.NFA, dfa: DFA, *, accepted: bool) -> str | None:
    witness = find_shortest(nfa, dfa, accepted=accepted)
    return None if witness is None else _nfa.format_octets(witness)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A form of a URI: its id, its title, the clause that describes it and the rule of data/probes.abnf."""

    id: str
    title: str
    clause: str
    rule: str


#: the forms that `probe_rule` searches
PROBES: Final = (
    Probe(id="bare-scheme", title="only the scheme and a colon", clause="RFC 3986 3", rule="bare-scheme"),
    Probe(id="empty-host", title="an empty host", clause="RFC 3986 3.2.2", rule="empty-host"),
    Probe(id="password", title="user:password", clause="RFC 3986 3.2.1", rule="password"),
    Probe(id="dot-segments", title="dot segments", clause="RFC 3986 3.3", rule="dot-segments"),
    Probe(id="empty-port", title="an empty port", clause="RFC 3986 3.2.3", rule="empty-port"),
    Probe(id="encoded-slash", title="an encoded slash, %2F", clause="RFC 3986 2.2", rule="encoded-slash"),
    Probe(id="encoded-octet", title="a byte beyond UTF-8, %FF", clause="RFC 3986 2.5", rule="encoded-octet"),
    Probe(id="fragment", title="a fragment", clause="RFC 3986 3.5", rule="fragment-part"),
    Probe(id="improper-slashes", title="// without an authority", clause="RFC 3986 3.2", rule=""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The forms that a rule allows: for each id of PROBES the shortest string, None if there is none.

    If nothing was decided, `problem` is the reason and `found` is empty.
    """

    found: Mapping[str, str | None]
    problem: GrammarError | None = None

    @property
    def decided(self) -> bool:
        """Whether the questions were decided."""
        return self.problem is None

    def admits(self, identifier: str) -> bool:
        """Return whether the rule allows this form. Raises KeyError if nothing was decided."""
        return self.found[identifier] is not None


def probe_rule(grammar: abnf.Grammar, start: str) -> Probes:
    """Search a rule for each form of PROBES. Raises UnknownEntryError if the rule does not exist."""
    try:
        nfa = _nfa.build_rule_nfa(grammar, start)
        if len(nfa.moves) > MAX_PROBE_STATES:
            raise _nfa.make_undecided_error(f"the automaton has more than {MAX_PROBE_STATES:,} states")
        found = {probe.id: _find_witness(nfa, build_probe_dfa(probe.rule), accepted=True) for probe in PROBES}
    except GrammarError as error:
        return Probes(found=MappingProxyType({}), problem=error)
    return Probes(found=MappingProxyType(found))


#: states of an automaton that `find_reserved` accepts, which asks 64 questions
MAX_RESERVED_STATES: Final = 4_000
#: RFC 3986 2.2: gen-delims, then sub-delims
RESERVED: Final = ":/?#[]@!$&'()*+,;="
#: each component as RFC 3986 Appendix B splits a string; {c} is the character
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
#: characters that end a component
_NEVER: Final = {"authority": "/?#", "path": "?#", "query": "#", "fragment": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCharacter:
    """A reserved character that the rule allows in a component, and the shortest string with it."""

    character: str
    component: str
    witness: str


def find_reserved(grammar: abnf.Grammar, start: str) -> tuple[ReservedCharacter, ...]:
    """Return the components in which the strings of a rule may have each reserved character as data.

    Delimiters are left out, such as the "?" before the query. Raises GrammarError if that cannot be decided,
    and UnknownEntryError if the rule does not exist.
    """
    nfa = _nfa.build_rule_nfa(grammar, start)
    if len(nfa.moves) > MAX_RESERVED_STATES:
        raise _nfa.make_undecided_error(f"the automaton has more than {MAX_RESERVED_STATES:,} states")
    return tuple(
        ReservedCharacter(character=character, component=component, witness=witness)
        for character in RESERVED
        for component, never in _NEVER.items()
        if character not in never
        and (witness := _find_witness(nfa, _build_form_dfa(component, character), accepted=True)) is not None
    )


@cache
def _build_form_dfa(component: str, character: str) -> DFA:
    value = f"%x{ord(character):02X}"
    text = _COMPONENTS[component]
    if character == "/":
        # a second slash after the first would begin an authority
        text = text.replace(' / before "/" {d} *o', "")
    else:
        text = text.replace(' / before "/" /', " /").replace("before {c} /", "before {c} *o /")
    grammar = parse_grammar(text.format(c=value, d=value) + _PARTS)
    return build_dfa(_nfa.build_rule_nfa(grammar, "at"))
