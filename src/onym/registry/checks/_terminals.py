"""Which characters the strings of a rule may hold: a walk over the nodes of a grammar, linear, no recursion.

Every rule that is reached counts, so a rule that makes no string at all counts too: the answer may be too
large by its characters, never too small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onym.registry.abnf.types import (
    Alternation,
    Concatenation,
    ListOf,
    Literal,
    Range,
    Reference,
    Repetition,
    Series,
)

if TYPE_CHECKING:
    from onym.registry.abnf.types import Grammar, Node

__all__ = ["Characters", "characters", "reached_rules", "unused_rules"]

_ASCII: Final = range(128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Characters:
    """ASCII characters that may occur; `letters`: may any letter, as in `ALPHA`?"""

    found: frozenset[str]
    letters: bool


def characters(grammar: Grammar, start: str) -> Characters:
    """What the strings of `start` are made of."""
    found: set[str] = set()
    letters = False
    for node in _reached(grammar, start):
        if isinstance(node, Literal):
            found.update(node.text.lower(), node.text.upper() if not node.sensitive else node.text)
        elif isinstance(node, Series):
            found.update(chr(each) for each in node.values if each in _ASCII)
        elif isinstance(node, Range):
            found.update(chr(each) for each in _ASCII if node.first <= each <= node.last)
            letters |= node.first <= ord("a") and node.last >= ord("z")
        elif isinstance(node, ListOf):
            found.add(",")
    return Characters(found=frozenset(found), letters=letters)


def _reached(grammar: Grammar, start: str) -> Iterator[Node]:
    seen: set[str] = set()
    waiting: list[Node] = [Reference(name=start)]
    while waiting:
        for node in _nodes(waiting.pop()):
            yield node
            if isinstance(node, Reference) and node.key not in seen:
                seen.add(node.key)
                rule = grammar.rules.get(node.key)
                if rule is not None and rule.node is not None:
                    waiting.append(rule.node)


def _nodes(whole: Node) -> Iterator[Node]:
    """The node and all below it."""
    waiting = [whole]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (Alternation, Concatenation)):
            waiting.extend(node.items)
        elif isinstance(node, (Repetition, ListOf)):
            waiting.append(node.item)


def reached_rules(grammar: Grammar, start: str) -> frozenset[str]:
    """The rules that `start` is made of, itself too, by their names in lower case."""
    found = (node.key for node in _reached(grammar, start) if isinstance(node, Reference))
    return frozenset((start.lower(), *found))


def unused_rules(grammar: Grammar) -> tuple[str, ...]:
    """The text's own rules that no other rule of it refers to, in order: where a grammar may begin."""
    used = {
        node.key
        for rule in grammar.own
        if rule.node is not None
        for node in _nodes(rule.node)
        if isinstance(node, Reference) and node.key != rule.key
    }
    return tuple(rule.name for rule in grammar.own if rule.key not in used and rule.node is not None)
