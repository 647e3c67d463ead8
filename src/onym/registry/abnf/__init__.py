"""ABNF grammars (RFC 5234, RFC 7405): parse, compare, lint and draw them.

`parse_grammar` and `parse_blocks` return a `Grammar`. `resolve` adds the rules of other RFCs that the
grammar names. You can then ask questions about a rule: `decide_inclusion` decides whether all of its
strings are absolute-URIs (RFC 4395 2.2, RFC 7595 3.2), `probe_rule` lists the doubtful forms that it
allows, and `compare` relates two rules. `match` tests a string, `generate_examples` returns strings,
`lint` returns remarks on the rules, and `render_railroad` draws them.

All work is bounded. If a question cannot be decided, or only beyond a limit, the result is an undecided
outcome and never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from onym._lazy import make_lazy_names
from onym.errors import GrammarError, UnknownEntryError

if TYPE_CHECKING:
    from onym.registry.abnf._analysis import Comparison as Comparison
    from onym.registry.abnf._analysis import Matcher as Matcher
    from onym.registry.abnf._analysis import Relation as Relation
    from onym.registry.abnf._analysis import build_matcher as build_matcher
    from onym.registry.abnf._analysis import compare as compare
    from onym.registry.abnf._analysis import generate_examples as generate_examples
    from onym.registry.abnf._analysis import lint as lint
    from onym.registry.abnf._analysis import match as match
    from onym.registry.abnf._inclusion import PROBES as PROBES
    from onym.registry.abnf._inclusion import Outcome as Outcome
    from onym.registry.abnf._inclusion import Probe as Probe
    from onym.registry.abnf._inclusion import Probes as Probes
    from onym.registry.abnf._inclusion import ReservedCharacter as ReservedCharacter
    from onym.registry.abnf._inclusion import Verdict as Verdict
    from onym.registry.abnf._inclusion import decide_inclusion as decide_inclusion
    from onym.registry.abnf._inclusion import decide_known_part as decide_known_part
    from onym.registry.abnf._inclusion import find_reserved as find_reserved
    from onym.registry.abnf._inclusion import find_wrong_prefix as find_wrong_prefix
    from onym.registry.abnf._inclusion import probe_rule as probe_rule
    from onym.registry.abnf._loader import parse_blocks as parse_blocks
    from onym.registry.abnf._loader import parse_grammar as parse_grammar
    from onym.registry.abnf._loader import resolve as resolve
    from onym.registry.abnf._railroad import render_railroad as render_railroad

_HOMES = {
    "onym.registry.abnf._inclusion": (
        "PROBES Outcome Probe Probes ReservedCharacter Verdict decide_inclusion decide_known_part "
        "find_reserved find_wrong_prefix probe_rule"
    ),
    "onym.registry.abnf._analysis": (
        "Comparison Matcher Relation build_matcher compare generate_examples lint match"
    ),
    "onym.registry.abnf._loader": "parse_blocks parse_grammar resolve",
    "onym.registry.abnf._railroad": "render_railroad",
    "onym.registry.abnf": "Grammar Remark RemarkCode Rule",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positioned:
    """The position of a node, counted from 1; it does not matter for equality."""

    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(_Positioned):
    """A string that ignores case (`"a"`, `%i"a"`) or is case-sensitive (`%s"a"`, RFC 7405)."""

    text: str
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(_Positioned):
    """`%x41-5A`: one terminal of a range; both ends are included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(_Positioned):
    """`%x41` or `%x41.42`: the terminals in this order."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(_Positioned):
    """A reference to a rule, as written; names are compared without case."""

    name: str

    @property
    def key(self) -> str:
        """The key in `Grammar.rules`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose(_Positioned):
    """`<words>`: a description in prose (RFC 5234 4, prose-val)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenation(_Positioned):
    """Items in sequence; without items, the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation(_Positioned):
    """One of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition(_Positioned):
    """`least*most item`; `most` None means no limit. `[ item ]` is `*1 item`."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf(_Positioned):
    """`least#most item`: items separated by commas (RFC 9110 5.6.1), which ABNF does not have."""

    item: Node
    least: int
    most: int | None


Node: TypeAlias = (
    Literal | Range | Series | Reference | Prose | Concatenation | Alternation | Repetition | ListOf
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `source` is the RFC that it was imported from, None for a rule of the text.

    `node` is None if the rule is not valid ABNF; `Grammar.problems` has the error. `text` is the rule as
    written.
    """

    name: str
    node: Node | None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    section: str | None = None
    source: str | None = None
    text: str = field(default="", compare=False, repr=False)

    @property
    def key(self) -> str:
        """The key in `Grammar.rules`."""
        return self.name.lower()


class RemarkCode(StrEnum):
    """The kind of a remark; the value is stable."""

    LIST_OPERATOR = "list-operator"
    SPACED_REPEAT = "spaced-repeat"
    ANGLE_REFERENCE = "angle-reference"
    IGNORED_TEXT = "ignored-text"
    IMPORTED = "imported"
    REPEATED = "repeated-rule"
    REDEFINED = "redefined-rule"
    UNDEFINED = "undefined-rule"
    UNUSED = "unused-rule"
    UNREACHABLE = "unreachable-rule"
    RECURSIVE = "recursive-rule"
    REDUNDANT = "redundant-alternative"
    PROSE = "prose-rule"
    BROKEN = "broken-rule"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One remark on a grammar.

    `rule` is the rule's name, `line` and `column` its position, `section` the section that defines it,
    `witness` a string that shows the problem, `fix` what to write instead.
    """

    code: RemarkCode
    message: str
    rule: str | None = None
    line: int | None = None
    column: int | None = None
    section: str | None = None
    witness: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Rules by name in lower case, in the order of the text; imported rules come last.

    `others` has definitions that another definition of the same name replaces, `problems` the errors of
    rules that are not valid, and `remarks` the remarks of the parser and of `resolve`.
    """

    rules: Mapping[str, Rule]
    others: tuple[Rule, ...] = ()
    problems: tuple[GrammarError, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def rule(self, name: str) -> Rule:
        """Return the rule of that name, ignoring case. Raises UnknownEntryError if it does not exist."""
        rule = self.rules.get(name.lower())
        if rule is None:
            names = [known.name for known in list(self.rules.values())[:8]]
            raise UnknownEntryError(
                f"the grammar has no rule {name[:80]!r}",
                code="abnf.no-rule",
                field="rule",
                clause="RFC 5234 2.1",
                hint=f"it has {', '.join(names) or 'no rules'}",
            )
        return rule

    @property
    def own(self) -> tuple[Rule, ...]:
        """The rules of the text, without imported rules."""
        return tuple(rule for rule in self.rules.values() if rule.source is None)

    @property
    def sections(self) -> Mapping[str, tuple[str | None, ...]]:
        """For each name with several definitions: their sections, that of the current definition first."""
        repeated = {rule.key for rule in self.others}
        return {
            key: (rule.section, *(other.section for other in self.others if other.key == key))
            for key, rule in self.rules.items()
            if key in repeated
        }

    @property
    def schemes(self) -> tuple[str, ...]:
        """The scheme names that the text's rules begin with, in lower case and in order of the text.

        Only literals are followed; rules that begin otherwise are left out.
        """
        finder = PrefixFinder(self)
        names = (prefix[:-1] for rule in self.own for prefix in sorted(finder.get_prefixes(rule.key)))
        return tuple(dict.fromkeys(name for name in names if _SCHEME.fullmatch(name)))

    def start(self, scheme: str) -> str | None:
        """Return the rule whose strings begin with `scheme:`; None if no rule does.

        Of several rules, the one that is named after the scheme (`kite-URI`) is preferred, then an unused
        one, then one whose name begins with the scheme or ends with URI, then the first.
        """
        wanted = scheme.lower()
        return self.find_starts((wanted,)).get(wanted)

    def find_starts(self, schemes: Iterable[str]) -> dict[str, str]:
        """Return `start` for each of the schemes (in lower case) that has a rule; each rule is read once."""
        used, finder = _collect_used(self), PrefixFinder(self)
        by_scheme: dict[str, list[Rule]] = {scheme: [] for scheme in schemes}
        for rule in self.own:
            for prefix in finder.get_prefixes(rule.key):
                if prefix[:-1] in by_scheme:
                    by_scheme[prefix[:-1]].append(rule)

        def is_total(rule: Rule) -> bool:
            # a rule of references, `uri / relative`, is not the rule of the scheme
            items = rule.node.items if isinstance(rule.node, Alternation) else ()
            return all(finder.has_colon(item) for item in items)

        def rank(rule: Rule, scheme: str) -> tuple[bool, ...]:
            bare, key = re.sub(r"[^a-z0-9]", "", scheme), rule.key.replace("-", "")
            is_uri = key.endswith(("uri", "url"))
            named = is_uri and key.startswith(bare)
            exact = key in (f"{bare}uri", f"{bare}url")
            return not exact, not is_total(rule), rule.key in used, not named, not is_uri

        return {
            scheme: min(rules, key=lambda rule: rank(rule, scheme)).name
            for scheme, rules in by_scheme.items()
            if rules
        }


def make_remark(
    code: RemarkCode,
    message: str,
    at: Rule | Node,
    *,
    rule: Rule | None = None,
    name: str | None = None,
    witness: str | None = None,
    fix: str | None = None,
) -> Remark:
    """Return a remark at the position of a rule or of a node of `rule`; `name` overrides the rule's name."""
    home = at if isinstance(at, Rule) else rule
    return Remark(
        code=code,
        message=message,
        rule=name if home is None or name is not None else home.name,
        line=at.line,
        column=at.column,
        section=None if home is None else home.section,
        witness=witness,
        fix=fix,
    )


#: prefixes of one rule, and rules that are followed; no scheme needs more
_MAX_PREFIXES: Final = 64
_MAX_STEPS: Final = 64
#: RFC 3986 3.1, in lower case, up to the registry's maximum length
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,62}")


def iter_nodes(node: Node | None, *, skip_empty: bool = False) -> Iterator[Node]:
    """Yield a node and all nodes below it in order of the text; `skip_empty` leaves out repeats of zero."""
    stack = [] if node is None else [node]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, (Concatenation, Alternation)):
            stack.extend(reversed(current.items))
        elif isinstance(current, (Repetition, ListOf)) and not (skip_empty and current.most == 0):
            stack.append(current.item)


def list_references(node: Node | None) -> list[Reference]:
    """Return every reference within a node, in order."""
    return [inner for inner in iter_nodes(node) if isinstance(inner, Reference)]


def _collect_used(grammar: Grammar) -> set[str]:
    """Return the keys of the rules that another rule uses."""
    return {
        reference.key
        for rule in grammar.rules.values()
        for reference in list_references(rule.node)
        if reference.key != rule.key
    }


def find_unused_rules(grammar: Grammar) -> tuple[str, ...]:
    """Return the text's own rules that no other rule uses, in order: candidates for the start rule."""
    used = _collect_used(grammar)
    return tuple(rule.name for rule in grammar.own if rule.key not in used and rule.node is not None)


def _iter_reached_nodes(grammar: Grammar, start: str) -> Iterator[Node]:
    seen: set[str] = set()
    waiting: list[Node] = [Reference(name=start)]
    while waiting:
        for node in iter_nodes(waiting.pop()):
            yield node
            if isinstance(node, Reference) and node.key not in seen:
                seen.add(node.key)
                rule = grammar.rules.get(node.key)
                if rule is not None and rule.node is not None:
                    waiting.append(rule.node)


def find_reached_rules(grammar: Grammar, start: str) -> frozenset[str]:
    """Return the keys of `start` and of the rules that it uses, directly or not."""
    nodes = _iter_reached_nodes(grammar, start)
    return frozenset(node.key for node in nodes if isinstance(node, Reference))


def map_uses(grammar: Grammar) -> dict[str, set[str]]:
    """Return for the key of each rule the keys that it uses."""
    return {
        key: {reference.key for reference in list_references(rule.node)}
        for key, rule in grammar.rules.items()
    }


def _iter_components(uses: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan), without Python recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    component: list[str] = []
    waiting: set[str] = set()
    for root in uses:
        stack = [(root, iter(sorted(uses[root] & uses.keys())))] if root not in index else []
        if stack:
            index[root] = low[root] = len(index)
            component.append(root)
            waiting.add(root)
        while stack:
            key, left = stack[-1]
            following = next(left, None)
            if following is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[key])
                if low[key] == index[key]:
                    first = component.index(key)
                    yield component[first:]
                    waiting -= set(component[first:])
                    del component[first:]
            elif following not in index:
                index[following] = low[following] = len(index)
                component.append(following)
                waiting.add(following)
                stack.append((following, iter(sorted(uses[following] & uses.keys()))))
            elif following in waiting:
                low[key] = min(low[key], index[following])


def iter_cycles(uses: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the keys of rules that use each other or themselves."""
    for component in _iter_components(uses):
        if len(component) > 1 or component[0] in uses[component[0]]:
            yield component


_APPENDIX: Final = re.compile(r"(?:Appendix )?[A-Z](?:\.|\Z)")


def is_in_appendix(section: str | None) -> bool:
    """Return whether the name of a section is that of an appendix: "A", "B.1", "Appendix C"."""
    return _APPENDIX.match(section or "") is not None


def allows_text(grammar: Grammar, start: str) -> bool:
    """Return whether strings of `start` may have free text: a range with all letters, or a percent sign."""
    return any(_is_text_node(node) for node in _iter_reached_nodes(grammar, start))


def _is_text_node(node: Node) -> bool:
    if isinstance(node, Range):
        has_letters = node.first <= ord("a") and node.last >= ord("z")
        return has_letters or node.first <= ord("%") <= node.last
    if isinstance(node, Series):
        return ord("%") in node.values
    return isinstance(node, Literal) and "%" in node.text


class PrefixFinder:
    """Literal prefixes of rules; each rule is read once."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._by_rule: dict[str, set[str]] = {}

    def get_prefixes(self, key: str) -> frozenset[str]:
        """Return the prefixes of a rule's strings up to the first colon, in lower case ("coap:")."""
        prefixes = self._find_in_rule(key, _MAX_STEPS)
        return frozenset(prefix[: prefix.index(":") + 1] for prefix in prefixes if ":" in prefix)

    def has_colon(self, node: Node) -> bool:
        """Return whether the strings of a node begin with a name and a colon."""
        return any(":" in prefix for prefix in self._find_in_node(node, _MAX_STEPS))

    def _find_in_rule(self, key: str, steps: int) -> set[str]:
        if key not in self._by_rule:
            self._by_rule[key] = set()  # for a rule that uses itself
            rule = self.grammar.rules.get(key)
            self._by_rule[key] = self._find_in_node(None if rule is None else rule.node, steps)
        return self._by_rule[key]

    def _find_in_node(self, node: Node | None, steps: int) -> set[str]:
        """Return the prefixes up to a colon or to the first part that is not literal; empty if too many."""
        if node is None or steps == 0:
            return set()
        if isinstance(node, Literal):
            return {node.text.lower()}
        if isinstance(node, Series):
            return {"".join(map(chr, node.values)).lower()}
        if isinstance(node, Reference):
            return self._find_in_rule(node.key, steps - 1)
        if isinstance(node, Alternation):
            prefixes = set().union(*(self._find_in_node(item, steps - 1) for item in node.items))
            return prefixes if len(prefixes) <= _MAX_PREFIXES else set()
        if isinstance(node, Repetition) and node.least == node.most == 1:
            return self._find_in_node(node.item, steps - 1)
        return self._find_in_concatenation(node, steps) if isinstance(node, Concatenation) else set()

    def _find_in_concatenation(self, node: Concatenation, steps: int) -> set[str]:
        complete: set[str] = set()
        open_: set[str] = {""}
        for item in node.items:
            joined = {head + tail for head in open_ for tail in self._find_in_node(item, steps - 1)}
            complete |= {prefix for prefix in joined if ":" in prefix}
            open_ = {prefix for prefix in joined if ":" not in prefix}
            if not 0 < len(open_) <= _MAX_PREFIXES or len(complete) > _MAX_PREFIXES:
                return complete
        return complete | open_
