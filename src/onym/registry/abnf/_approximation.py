"""Grammars with fewer or with more strings than one that cannot be decided.

A rule that uses itself is in general not regular, and a rule that is described in words or not defined has
no known strings. `narrow_grammar` leaves such strings out, so each of its strings is one of the grammar.
`widen_grammar` allows more strings in place of a recursion; in place of an unknown rule it allows only
unreserved and percent-encoded characters (RFC 3986 2.3), which is an assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from onym.registry.abnf._loader import map_node
from onym.registry.abnf.grammar import (
    Alternation,
    Concatenation,
    Grammar,
    ListOf,
    Literal,
    Node,
    Prose,
    Range,
    Reference,
    Repetition,
    Rule,
    find_reached_rules,
    iter_cycles,
    iter_nodes,
    list_references,
    map_uses,
)

#: how often a rule uses itself in the strings of `narrow_grammar`
_DEPTH: Final = 2
#: no string at all
_NOTHING: Final = Alternation(items=())
_HEX: Final = Alternation(items=(Range(first=0x30, last=0x39), Range(first=0x41, last=0x46)))
#: *( unreserved / pct-encoded ), without rules of other names
_PLAIN: Final = Repetition(
    item=Alternation(
        items=(
            *(Range(first=ord(first), last=ord(last)) for first, last in ("az", "AZ", "09")),
            *(Literal(text=character) for character in "-._~"),
            Concatenation(items=(Literal(text="%"), _HEX, _HEX)),
        )
    ),
    least=1,
    most=None,
)


#: nodes of the rules that are approximated
_MAX_NODES: Final = 20_000


def is_small(grammar: Grammar, start: str) -> bool:
    """Return whether the rules that `start` uses are few enough to copy them."""
    count = 0
    for key in find_reached_rules(grammar, start):
        rule = grammar.rules.get(key)
        count += 1 + sum(1 for _ in iter_nodes(None if rule is None else rule.node))
        if count > _MAX_NODES:
            return False
    return True


def find_open_rules(grammar: Grammar, start: str) -> tuple[str, ...]:
    """Return the names that `start` reaches and that have no known strings, in the order of the text."""
    names: dict[str, str] = {}
    for key in find_reached_rules(grammar, start):
        rule = grammar.rules.get(key)
        if rule is not None and (rule.node is None or _has_prose(rule.node)):
            names[key] = rule.name
        for reference in () if rule is None else list_references(rule.node):
            if reference.key not in grammar.rules:
                names[reference.key] = reference.name
    order = {key: index for index, key in enumerate(grammar.rules)}
    return tuple(names[key] for key in sorted(names, key=lambda key: (order.get(key, len(order)), key)))


def _has_prose(node: Node) -> bool:
    return any(isinstance(inner, Prose) for inner in iter_nodes(node, skip_empty=True))


def narrow_grammar(grammar: Grammar, start: str) -> Grammar:
    """Return a grammar whose strings of `start` are strings of the grammar, without the unknown ones."""
    rules = _fill_rules(grammar, start, _NOTHING)
    for cycle in list(iter_cycles(map_uses(replace(grammar, rules=rules)))):
        members = set(cycle)
        copies = {key: rules[key] for key in cycle}
        for key, rule in copies.items():
            for depth in range(_DEPTH + 1):
                copy = _rename_cycle(rule, members, depth)
                rules[copy.key] = copy
            rules[key] = _rename_cycle(rule, members, _DEPTH + 1, name=rule.name)
    return replace(grammar, rules=MappingProxyType(rules), others=())


def widen_grammar(grammar: Grammar, start: str) -> Grammar:
    """Return a grammar that has all strings of `start`, if unknown rules have only plain characters."""
    rules = _fill_rules(grammar, start, _PLAIN)
    for cycle in list(iter_cycles(map_uses(replace(grammar, rules=rules)))):
        members = set(cycle)
        leaves = [
            node
            for key in cycle
            for node in _list_leaves(rules[key].node)
            if not (isinstance(node, Reference) and node.key in members)
        ]
        anything = Repetition(item=Alternation(items=tuple(leaves)), least=0, most=None)
        for key in cycle:
            rules[key] = replace(rules[key], node=anything)
    return replace(grammar, rules=MappingProxyType(rules), others=())


def _fill_rules(grammar: Grammar, start: str, filling: Node) -> dict[str, Rule]:
    """Return the rules that `start` reaches, with `filling` for prose, broken and undefined rules."""

    def fill(node: Node) -> Node:
        is_open = isinstance(node, Prose) or (isinstance(node, Reference) and node.key not in grammar.rules)
        return filling if is_open else node

    reached = find_reached_rules(grammar, start)
    return {
        key: replace(rule, node=filling if rule.node is None else _fill_node(rule.node, fill))
        for key, rule in grammar.rules.items()
        if key in reached
    }


def _fill_node(node: Node, fill: Callable[[Node], Node]) -> Node:
    """Return the node with `fill` applied, except to `0<pchar>`, which is the empty string."""
    if isinstance(node, Repetition) and node.most == 0:
        return node
    if isinstance(node, (Concatenation, Alternation)):
        return replace(node, items=tuple(_fill_node(item, fill) for item in node.items))
    if isinstance(node, (Repetition, ListOf)):
        return replace(node, item=_fill_node(node.item, fill))
    return fill(node)


def _rename_cycle(rule: Rule, members: set[str], depth: int, *, name: str | None = None) -> Rule:
    """Return a copy of a rule that uses the copies of the next lower depth; depth 0 has no strings."""

    def rename(node: Node) -> Node:
        if isinstance(node, Reference) and node.key in members:
            return replace(node, name=f"{node.name}@{depth - 1}")
        return node

    new = f"{rule.name}@{depth}" if name is None else name
    assert rule.node is not None  # noqa: S101 - _fill_rules gives every rule a node
    return replace(rule, name=new, node=_NOTHING if depth == 0 else map_node(rule.node, rename))


def _list_leaves(node: Node | None) -> list[Node]:
    containers = (Concatenation, Alternation, Repetition, ListOf)
    return [inner for inner in iter_nodes(node) if not isinstance(inner, containers)]
