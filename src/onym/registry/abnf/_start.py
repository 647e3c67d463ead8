"""Which rule a scheme begins with, told from the literals that its strings must begin with."""

from __future__ import annotations

import re
from typing import Final

from onym.registry.abnf.types import (
    Alternation,
    Concatenation,
    Grammar,
    Literal,
    Node,
    Prose,
    Reference,
    Repetition,
    Series,
)

__all__ = ["Heads", "leading", "references", "schemes", "start_rule"]

#: beginnings of one rule that are looked at; more than any scheme has
_MAX_HEADS: Final = 64
_MAX_STEPS: Final = 64
#: RFC 3986 3.1, in lower case, as long as a name that is registered may be here
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,62}")


def references(node: Node | None) -> list[Reference]:
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


def leading(grammar: Grammar, name: str) -> frozenset[str]:
    """What the strings of a rule can begin with up to the first colon, in lower case ("coap:").

    Only literals are followed; beginnings that are not literal are left out.
    """
    return Heads(grammar).of(grammar.rule(name).key)


class Heads:
    """Literal beginnings of rules; each rule is looked at once, however many are asked about."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.known: dict[str, set[str]] = {}

    def of(self, key: str) -> frozenset[str]:
        """What `leading` says of the rule filed under `key`."""
        heads = self.rule(key, _MAX_STEPS)
        return frozenset(head[: head.index(":") + 1] for head in heads if ":" in head)

    def rule(self, key: str, steps: int) -> set[str]:
        if key not in self.known:
            self.known[key] = set()  # what it begins with while it is being looked at: recursion
            rule = self.grammar.rules.get(key)
            self.known[key] = self.node(None if rule is None else rule.node, steps)
        return self.known[key]

    def node(self, node: Node | None, steps: int) -> set[str]:
        """Beginnings up to a colon, or to where they stop to be literal; none where there are too many."""
        if node is None or steps == 0:
            return set()
        if isinstance(node, Literal):
            return {node.text.lower()}
        if isinstance(node, Series):
            return {"".join(map(chr, node.values)).lower()}
        if isinstance(node, Reference):
            return self.rule(node.key, steps - 1)
        if isinstance(node, Alternation):
            found = set().union(*(self.node(item, steps - 1) for item in node.items))
            return found if len(found) <= _MAX_HEADS else set()
        if isinstance(node, Repetition) and node.least == node.most == 1:
            return self.node(node.item, steps - 1)
        return self.joined(node, steps) if isinstance(node, Concatenation) else set()

    def joined(self, node: Concatenation, steps: int) -> set[str]:
        done: set[str] = set()
        open_: set[str] = {""}
        for item in node.items:
            joined = {head + each for head in open_ for each in self.node(item, steps - 1)}
            done |= {head for head in joined if ":" in head}
            open_ = {head for head in joined if ":" not in head}
            if not 0 < len(open_) <= _MAX_HEADS or len(done) > _MAX_HEADS:
                return done
        return done | open_


def schemes(grammar: Grammar) -> tuple[str, ...]:
    """See `Grammar.schemes`."""
    heads = Heads(grammar)
    found = (head[:-1] for rule in grammar.own for head in sorted(heads.of(rule.key)))
    return tuple(dict.fromkeys(each for each in found if _SCHEME.fullmatch(each)))


def start_rule(grammar: Grammar, scheme: str) -> str | None:
    """See `Grammar.start`."""
    wanted = f"{scheme.lower()}:"
    used = {
        each.key for rule in grammar.rules.values() for each in references(rule.node) if each.key != rule.key
    }
    heads = Heads(grammar)
    found = [rule for rule in grammar.own if wanted in heads.of(rule.key)]
    if not found:
        return None

    def rank(name: str) -> tuple[bool, bool, bool]:
        key = name.lower()
        plain = key.replace("-", "")
        named = plain.startswith(scheme.lower()) and plain.endswith(("uri", "url"))
        return key in used, not named, not plain.endswith(("uri", "url"))

    return min(found, key=lambda rule: rank(rule.name)).name
