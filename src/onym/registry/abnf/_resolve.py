"""Imports: rules that a text names and another RFC defines.

An imported rule keeps its own meaning: where the text redefines a name that the imported rule uses, the
import goes on with the RFC's definition, filed as `name@RFC nnnn`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from onym.registry.abnf._library import find, number_of
from onym.registry.abnf._start import references
from onym.registry.abnf.types import (
    Alternation,
    Concatenation,
    Grammar,
    ListOf,
    Node,
    Prose,
    Reference,
    Remark,
    RemarkCode,
    Repetition,
    Rule,
)

__all__ = ["resolve"]

_RFC: Final = re.compile(r"\b(?:RFC|STD)[\s-]?(\d{2,5})\b", re.IGNORECASE)
#: what says that the words are another text's rule: an RFC, a key of the references, or as much in words
_CITES: Final = re.compile(
    r"\b(?:RFC|STD)[\s-]?\d|\[[^\[\]\s]{1,200}\]"
    r"|\b(?<!not )(?:defined|specified)\s+(?:in|by)\b|(?:\A|[,;:.(])\s*see\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
#: STD numbers that texts cite for RFCs of the library
_STD: Final = {"66": "3986", "68": "5234", "97": "9110"}


def resolve(grammar: Grammar) -> Grammar:
    """The grammar with what it imports: names that it uses and does not define, and rules named in prose.

    `host = <host, defined in [RFC3986], Section 3.2.2>` takes that rule; where the words name no rule,
    the rule of the same name is taken (`unreserved = <as specified in RFC 3986>`). Imported rules say
    their RFC in `source`; each import has a remark. What the library does not hold stays as it is.
    """
    return _Resolver(grammar).run()


def map_node(node: Node, leaf: Callable[[Node], Node]) -> Node:
    """A node with its references and prose replaced."""
    if isinstance(node, (Concatenation, Alternation)):
        return replace(node, items=tuple(map_node(item, leaf) for item in node.items))
    if isinstance(node, (Repetition, ListOf)):
        return replace(node, item=map_node(node.item, leaf))
    return leaf(node)


class _Resolver:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.own = dict(grammar.rules)
        self.remarks = list(grammar.remarks)
        # (RFC, key) of each import, and the name under which it is filed
        self.names: dict[tuple[str, str], str] = {}
        self.imported: dict[str, Rule] = {}
        self.waiting: list[tuple[str, Rule]] = []
        #: own rules that are words no more
        self.told: set[str] = set()

    def run(self) -> Grammar:
        itself = {key: found for key, rule in self.own.items() if (found := self.itself(rule)) is not None}
        self.told.update(itself)
        replaced = {key: self.own.pop(key) for key in itself}
        for key, (rfc, rule) in itself.items():
            self.take(rfc, rule, replaced[key].name, at=replaced[key])
        for key, rule in list(self.own.items()):
            if rule.node is not None and rule.source is None:
                self.own[key] = replace(rule, node=self.settled(rule, rule.node))
        others = tuple(
            rule if rule.node is None else replace(rule, node=self.settled(rule, rule.node))
            for rule in self.grammar.others
        )
        while self.waiting:
            rfc, rule = self.waiting.pop()
            self.add(rfc, rule)
        ordered = {each.key: each for each in sorted(self.imported.values(), key=_by_source)}
        return replace(
            self.grammar,
            rules=MappingProxyType({**self.own, **ordered}),
            others=others,
            remarks=tuple(
                each
                for each in self.remarks
                if each.code is not RemarkCode.PROSE or (each.rule or "").lower() not in self.told
            ),
        )

    def itself(self, rule: Rule) -> tuple[str, Rule] | None:
        """Is the whole rule prose that imports the rule of the same name?"""
        if rule.source is not None or not isinstance(rule.node, Prose):
            return None
        found = _named(rule.node, rule.name)
        return found if found is not None and found[1].key == rule.key else None

    def settled(self, rule: Rule, node: Node) -> Node:
        """An own rule's elements with imports for undefined names and for prose."""
        whole = node

        def leaf(each: Node) -> Node:
            if isinstance(each, Prose):
                return self.prose(rule, each, is_whole=each is whole)
            if isinstance(each, Reference) and each.key not in self.own:
                found = find(each.name)
                if found is not None and each.key not in self.imported:
                    self.take(*found, each.name, at=each, used_by=rule)
            return each

        return map_node(node, leaf)

    def prose(self, rule: Rule, words: Prose, *, is_whole: bool) -> Node:
        line, column = words.line, words.column
        text = words.text.strip()
        settles = is_whole and self.own.get(rule.key) is rule
        if _NAME.fullmatch(text) and (text.lower() in self.own or text.lower() in self.imported):
            if settles:
                self.told.add(rule.key)
            self.remarks.append(
                Remark(
                    code=RemarkCode.ANGLE_REFERENCE,
                    message=f"<{text}> is read as the rule {text}",
                    rule=rule.name,
                    fix=f"write {text} without the angle brackets",
                    line=line,
                    column=column,
                )
            )
            return Reference(name=text, line=line, column=column)
        found = _named(words, rule.name if is_whole else None)
        if found is None:
            return words
        name = self.take(*found, found[1].name, at=words, used_by=rule)
        if settles:
            self.told.add(rule.key)
        return Reference(name=name, line=line, column=column)

    def take(self, rfc: str, rule: Rule, name: str, *, at: Rule | Node, used_by: Rule | None = None) -> str:
        """Import one rule, and remark it; the name under which it is filed."""
        filed = self.file(rfc, rule)
        self.remarks.append(
            Remark(
                code=RemarkCode.IMPORTED,
                message=f"{rule.name} is taken from RFC {rfc}",
                rule=used_by.name if used_by is not None else name,
                line=at.line,
                column=at.column,
            )
        )
        return filed

    def file(self, rfc: str, rule: Rule) -> str:
        """The name for an import; its elements are settled later."""
        known = self.names.get((rfc, rule.key))
        if known is not None:
            return known
        taken = rule.key in self.own or rule.key in self.imported
        name = f"{rule.name}@RFC {rfc}" if taken else rule.name
        self.names[rfc, rule.key] = name
        self.imported[name.lower()] = replace(rule, name=name, node=None, source=f"RFC {rfc}")
        self.waiting.append((rfc, rule))
        return name

    def add(self, rfc: str, rule: Rule) -> None:
        """Give an import its elements, whose names are those of its own RFC."""
        assert rule.node is not None  # noqa: S101 - the library is read whole, by a test too

        def leaf(each: Node) -> Node:
            if isinstance(each, Reference):
                found = find(each.name, rfc) or find(each.name)
                assert found is not None  # noqa: S101 - the library is closed, by a test
                return replace(each, name=self.file(*found))
            return each

        name = self.names[rfc, rule.key]
        key = name.lower()
        self.imported[key] = replace(self.imported[key], node=map_node(rule.node, leaf))


def _by_source(rule: Rule) -> tuple[str, int]:
    return rule.source or "", rule.line


def _named(words: Prose, own: str | None) -> tuple[str, Rule] | None:
    """The rule of the library that prose names: its first word, else the rule's own name, else any word."""
    if not _CITES.search(words.text):
        return None
    cited = [_STD.get(each, each) for each in _RFC.findall(words.text)]
    numbers: list[str | None] = [number_of(each) for each in cited] or [None]
    for number, given in zip(numbers, cited or [None], strict=True):
        if given is not None and number is None:
            continue  # an RFC that is not shipped: its rules are not guessed
        for name in _candidates(words.text, own):
            found = find(name, number)
            if found is not None:
                return found
    return None


def _candidates(text: str, own: str | None) -> Iterator[str]:
    found = _NAME.findall(text)
    yield from found[:1]
    if own is not None:
        yield own
    yield from (each for each in found[1:] if "-" in each or f'"{each}"' in text or f"'{each}'" in text)


def undefined(grammar: Grammar) -> dict[str, Reference]:
    """The first reference to each name that no rule defines."""
    out: dict[str, Reference] = {}
    for rule in grammar.rules.values():
        for each in references(rule.node):
            if each.key not in grammar.rules:
                out.setdefault(each.key, each)
    return out
