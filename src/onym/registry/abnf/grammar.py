"""The grammar model: the nodes of RFC 5234 section 4, rules with their position, grammars with remarks.

`PrefixFinder` follows the literals that a rule's strings begin with. `Grammar.schemes` and
`Grammar.start` use it to find the rule of a URI scheme. `collect_characters` returns the characters that
a rule's strings may contain: every rule that is reached is included, so the result may be too large but
never too small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from onym.errors import GrammarError, UnknownEntryError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positioned:
    """Where a node stands, counted from 1; two nodes that differ in place alone are equal."""

    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(_Positioned):
    """A string: without case (`"a"`, `%i"a"`), or with case (`%s"a"`, RFC 7405)."""

    text: str
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(_Positioned):
    """`%x41-5A`: one terminal between two values, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(_Positioned):
    """`%x41` or `%x41.42`: the terminals in this order."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(_Positioned):
    """A rule by its name, as it is written; names are compared without case."""

    name: str

    @property
    def key(self) -> str:
        """The name as `Grammar.rules` files it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose(_Positioned):
    """`<words>`: a description for people (RFC 5234 4, prose-val)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenation(_Positioned):
    """One after the other; with no items, the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation(_Positioned):
    """One of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition(_Positioned):
    """`least*most item`; `most` None means without end. `[ item ]` is `*1 item`."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf(_Positioned):
    """`least#most item`: items between commas (RFC 9110 5.6.1). It is not ABNF."""

    item: Node
    least: int
    most: int | None


Node: TypeAlias = (
    Literal | Range | Series | Reference | Prose | Concatenation | Alternation | Repetition | ListOf
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `source` says which RFC it was imported from, None for the text's own.

    `node` is None where the rule's text is not ABNF: `Grammar.problems` says why. `text` is the rule as it
    was written.
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
        """The name as `Grammar.rules` files it."""
        return self.name.lower()


class RemarkCode(StrEnum):
    """What a remark is about; the value is stable."""

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
    """One thing to know about a grammar.

    `rule` is the rule's name, `line` and `column` its place in the text, `section` where it is defined,
    `witness` a string that shows it, `fix` what to write instead.
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
    """Rules by name in lower case, in the order of the text; imported ones come last.

    `others` holds definitions that lost against another of the same name; `problems` the rules that could
    not be read (`read_document` goes on after them); `remarks` what the reader and `resolve` had to say.
    """

    rules: Mapping[str, Rule]
    others: tuple[Rule, ...] = ()
    problems: tuple[GrammarError, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def rule(self, name: str) -> Rule:
        """The rule of that name, whatever its case. Raises UnknownEntryError where there is none."""
        found = self.rules.get(name.lower())
        if found is None:
            raise UnknownEntryError(
                f"the grammar has no rule {name[:80]!r}",
                code="abnf.no-rule",
                field="rule",
                clause="RFC 5234 2.1",
                hint=f"it has {', '.join(each.name for each in list(self.rules.values())[:8]) or 'none'}",
            )
        return found

    @property
    def own(self) -> tuple[Rule, ...]:
        """The rules of the text itself, without the imported ones."""
        return tuple(rule for rule in self.rules.values() if rule.source is None)

    @property
    def sections(self) -> Mapping[str, tuple[str | None, ...]]:
        """For each name that is defined more than once: the sections, the one in force first."""
        twice = {rule.key for rule in self.others}
        return {
            key: (self.rules[key].section, *(rule.section for rule in self.others if rule.key == key))
            for key in self.rules
            if key in twice
        }

    def using(self, section: str | None) -> Grammar:
        """The same grammar with the definitions of that section in force where a rule has several."""
        rules, others = dict(self.rules), list(self.others)
        for at, other in enumerate(others):
            if other.section == section:
                rules[other.key], others[at] = other, rules[other.key]
        return replace(self, rules=rules, others=tuple(others))

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes whose names and colons the text's own rules begin with, in lower case, in its order.

        As with `leading`, only literals are followed.
        """

        return list_schemes(self)

    def start(self, scheme: str) -> str | None:
        """The rule whose strings begin with `scheme:`, None where no rule does.

        Of several, one that no other rule uses is preferred, then one that is called after the scheme or a
        URI; then the first.
        """

        return find_start_rule(self, scheme)


#: beginnings of one rule that are looked at; more than any scheme has
_MAX_HEADS: Final = 64
_MAX_STEPS: Final = 64
#: RFC 3986 3.1, in lower case, as long as a name that is registered may be here
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,62}")


def list_references(node: Node | None) -> list[Reference]:
    """Every reference within a node, in order."""
    out: list[Reference] = []
    stack = [] if node is None else [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Reference):
            out.append(each)
        elif isinstance(each, (Concatenation, Alternation)):
            stack.extend(reversed(each.items))
        elif not isinstance(each, (Literal, Series, Prose)) and hasattr(each, "item"):
            stack.append(each.item)
    return out


def list_prefixes(grammar: Grammar, name: str) -> frozenset[str]:
    """What the strings of a rule can begin with up to the first colon, in lower case ("coap:").

    Only literals are followed; beginnings that are not literal are left out.
    """
    return PrefixFinder(grammar).get_prefixes(grammar.rule(name).key)


class PrefixFinder:
    """Literal beginnings of rules; each rule is looked at once, however many are asked about."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.known: dict[str, set[str]] = {}

    def get_prefixes(self, key: str) -> frozenset[str]:
        """What `list_prefixes` says of the rule filed under `key`."""
        heads = self.find_in_rule(key, _MAX_STEPS)
        return frozenset(head[: head.index(":") + 1] for head in heads if ":" in head)

    def find_in_rule(self, key: str, steps: int) -> set[str]:
        """Return what the strings of a rule begin with."""
        if key not in self.known:
            self.known[key] = set()  # what it begins with while it is being looked at: recursion
            rule = self.grammar.rules.get(key)
            self.known[key] = self.find_in_node(None if rule is None else rule.node, steps)
        return self.known[key]

    def find_in_node(self, node: Node | None, steps: int) -> set[str]:
        """Beginnings up to a colon, or to where they stop to be literal; none where there are too many."""
        if node is None or steps == 0:
            return set()
        if isinstance(node, Literal):
            return {node.text.lower()}
        if isinstance(node, Series):
            return {"".join(map(chr, node.values)).lower()}
        if isinstance(node, Reference):
            return self.find_in_rule(node.key, steps - 1)
        if isinstance(node, Alternation):
            found = set().union(*(self.find_in_node(item, steps - 1) for item in node.items))
            return found if len(found) <= _MAX_HEADS else set()
        if isinstance(node, Repetition) and node.least == node.most == 1:
            return self.find_in_node(node.item, steps - 1)
        return self.find_in_concatenation(node, steps) if isinstance(node, Concatenation) else set()

    def find_in_concatenation(self, node: Concatenation, steps: int) -> set[str]:
        """Return what the strings of a concatenation begin with."""
        done: set[str] = set()
        open_: set[str] = {""}
        for item in node.items:
            joined = {head + tail for head in open_ for tail in self.find_in_node(item, steps - 1)}
            done |= {head for head in joined if ":" in head}
            open_ = {head for head in joined if ":" not in head}
            if not 0 < len(open_) <= _MAX_HEADS or len(done) > _MAX_HEADS:
                return done
        return done | open_


def list_schemes(grammar: Grammar) -> tuple[str, ...]:
    """See `Grammar.schemes`."""
    heads = PrefixFinder(grammar)
    found = (head[:-1] for rule in grammar.own for head in sorted(heads.get_prefixes(rule.key)))
    return tuple(dict.fromkeys(each for each in found if _SCHEME.fullmatch(each)))


def find_start_rule(grammar: Grammar, scheme: str) -> str | None:
    """See `Grammar.start`."""
    wanted = f"{scheme.lower()}:"
    used = {
        reference.key
        for rule in grammar.rules.values()
        for reference in list_references(rule.node)
        if reference.key != rule.key
    }
    heads = PrefixFinder(grammar)
    found = [rule for rule in grammar.own if wanted in heads.get_prefixes(rule.key)]
    if not found:
        return None

    def rank(name: str) -> tuple[bool, bool, bool]:
        key = name.lower()
        plain = key.replace("-", "")
        named = plain.startswith(scheme.lower()) and plain.endswith(("uri", "url"))
        return key in used, not named, not plain.endswith(("uri", "url"))

    return min(found, key=lambda rule: rank(rule.name)).name


def allows_text(grammar: Grammar, start: str) -> bool:
    """Return whether strings of `start` may have free text: a range with all letters, or a percent sign."""
    for node in _iter_reached_nodes(grammar, start):
        if isinstance(node, Literal) and "%" in node.text:
            return True
        if isinstance(node, Series) and ord("%") in node.values:
            return True
        if isinstance(node, Range) and (
            node.first <= ord("%") <= node.last or (node.first <= ord("a") and node.last >= ord("z"))
        ):
            return True
    return False


def _iter_reached_nodes(grammar: Grammar, start: str) -> Iterator[Node]:
    seen: set[str] = set()
    waiting: list[Node] = [Reference(name=start)]
    while waiting:
        for node in _iter_nodes(waiting.pop()):
            yield node
            if isinstance(node, Reference) and node.key not in seen:
                seen.add(node.key)
                rule = grammar.rules.get(node.key)
                if rule is not None and rule.node is not None:
                    waiting.append(rule.node)


def _iter_nodes(whole: Node) -> Iterator[Node]:
    """The node and all below it."""
    waiting = [whole]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (Alternation, Concatenation)):
            waiting.extend(node.items)
        elif isinstance(node, (Repetition, ListOf)):
            waiting.append(node.item)


def find_reached_rules(grammar: Grammar, start: str) -> frozenset[str]:
    """The rules that `start` is made of, itself too, by their names in lower case."""
    found = (node.key for node in _iter_reached_nodes(grammar, start) if isinstance(node, Reference))
    return frozenset((start.lower(), *found))


def find_unused_rules(grammar: Grammar) -> tuple[str, ...]:
    """The text's own rules that no other rule of it refers to, in order: where a grammar may begin."""
    used = {
        node.key
        for rule in grammar.own
        if rule.node is not None
        for node in _iter_nodes(rule.node)
        if isinstance(node, Reference) and node.key != rule.key
    }
    return tuple(rule.name for rule in grammar.own if rule.key not in used and rule.node is not None)
