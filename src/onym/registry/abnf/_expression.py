"""Rules as regular expressions over octets: equal parts are shared, single octets become one set.

Terminals up to %xFF are octets. Those beyond are code points, and stand for their UTF-8 octets, as does
every range that ends beyond %xFF (RFC 3987 writes %xA0-D7FF); its part below %x80 is the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._start import references
from onym.registry.abnf.types import (
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
    Series,
)

__all__ = ["MAX_STATES", "Expression", "Kind", "Pool", "Translator", "expression", "words"]

#: states of one automaton
MAX_STATES: Final = 50_000
_TOO_LARGE: Final = MAX_STATES + 1


class Kind:
    """The five kinds of expression."""

    SET = 0
    NONE = 1
    CONCATENATION = 2
    ALTERNATION = 3
    REPETITION = 4


class Expression:
    """One node of the shared graph. `size` is the number of states that it needs, capped."""

    __slots__ = ("items", "kind", "least", "mask", "most", "number", "shortest", "size")

    def __init__(self, number: int, kind: int) -> None:
        self.number = number
        self.kind = kind
        self.mask = 0
        self.items: tuple[Expression, ...] = ()
        self.least = 1
        self.most: int | None = 1
        self.size = 1
        #: length of the shortest string; None: there is no string at all
        self.shortest: int | None = 0


class Pool:
    """Makes expressions; two that are built alike are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Expression] = {}
        self.empty = self.concatenation(())

    def _make(self, kind: int, *key: object) -> tuple[Expression, bool]:
        found = self._made.get((kind, *key))
        if found is not None:
            return found, False
        new = self._made[(kind, *key)] = Expression(len(self._made), kind)
        return new, True

    def octets(self, mask: int) -> Expression:
        """One octet of a set, bit n for octet n. The empty set has no strings."""
        new, fresh = self._make(Kind.SET, mask)
        if fresh:
            new.mask = mask
            new.shortest = 1 if mask else None
        return new

    def concatenation(self, items: Sequence[Expression]) -> Expression:
        """One after the other."""
        parts = [each for each in items if each.kind != Kind.NONE]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._make(Kind.NONE)[0]
        new, fresh = self._make(Kind.CONCATENATION, *(each.number for each in parts))
        if fresh:
            new.items = tuple(parts)
            new.size = min(sum(each.size for each in parts), _TOO_LARGE)
            lengths = [each.shortest for each in parts]
            known = [each for each in lengths if each is not None]
            new.shortest = sum(known) if len(known) == len(lengths) else None
        return new

    def alternation(self, items: Sequence[Expression]) -> Expression:
        """One of them; sets of octets melt into one."""
        mask = 0
        rest: dict[int, Expression] = {}
        for each in items:
            for part in each.items if each.kind == Kind.ALTERNATION else (each,):
                if part.kind == Kind.SET:
                    mask |= part.mask
                elif part.shortest is not None:
                    rest[part.number] = part
        parts = ([self.octets(mask)] if mask or not rest else []) + list(rest.values())
        if len(parts) == 1:
            return parts[0]
        new, fresh = self._make(Kind.ALTERNATION, *sorted(each.number for each in parts))
        if fresh:
            new.items = tuple(parts)
            new.size = min(sum(each.size for each in parts), _TOO_LARGE)
            new.shortest = min(each.shortest for each in parts if each.shortest is not None)
        return new

    def repetition(self, item: Expression, least: int, most: int | None) -> Expression:
        """`least` to `most` times (None: without end)."""
        if item.kind == Kind.NONE or most == 0:
            return self.empty
        if least == most == 1:
            return item
        if most is None and item.kind == Kind.REPETITION and item.most is None and item.least <= 1:
            # a star of a star is a star, and two or more of one or more are two or more
            item, least = item.items[0], least * item.least
        new, fresh = self._make(Kind.REPETITION, item.number, least, most)
        if fresh:
            new.items = (item,)
            new.least, new.most = least, most
            new.size = min((least + 1 if most is None else most) * item.size + 1, _TOO_LARGE)
            one = item.shortest
            new.shortest = 0 if least == 0 else None if one is None else least * one
        return new

    def text(self, text: str, *, sensitive: bool) -> Expression:
        """A literal string."""
        return self.concatenation([self.octets(_letter(char, sensitive)) for char in text])

    def span(self, first: int, last: int) -> Expression:
        """One terminal of a range."""
        if last <= 0xFF:
            return self.octets(_mask(first, last))
        options = [self.octets(_mask(first, min(last, 0x7F)))] if first <= 0x7F else []
        for begin, end in _without_surrogates(max(first, 0x80), last):
            options.extend(
                self.concatenation([self.octets(_mask(low, high)) for low, high in octets])
                for octets in _utf8_ranges(begin, end)
            )
        return self.alternation(options)


def _mask(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _letter(char: str, sensitive: bool) -> int:
    if sensitive:
        return 1 << ord(char)
    return 1 << ord(char.lower()) | 1 << ord(char.upper())


def _without_surrogates(first: int, last: int) -> Iterator[tuple[int, int]]:
    for low, high in ((0, 0xD7FF), (0xE000, 0x10FFFF)):
        if first <= high and last >= low:
            yield max(first, low), min(last, high)


def _utf8_ranges(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    """Code points from 0x80 on as sequences of octet ranges, each of one length."""
    for ceiling in (0x7FF, 0xFFFF, 0x10FFFF):
        if first <= min(last, ceiling):
            yield from _same_length(chr(first).encode(), chr(min(last, ceiling)).encode())
            first = ceiling + 1


def _same_length(low: bytes, high: bytes) -> Iterator[list[tuple[int, int]]]:
    if low[0] == high[0] and len(low) > 1:
        for rest in _same_length(low[1:], high[1:]):
            yield [(low[0], low[0]), *rest]
        return
    tail = len(low) - 1
    begin, end = low[0], high[0]
    if low[1:] != b"\x80" * tail:
        for rest in _same_length(low[1:], b"\xbf" * tail):
            yield [(begin, begin), *rest]
        begin += 1
    above = high[1:] != b"\xbf" * tail
    if begin <= end - above:
        yield [(begin, end - above), *[(0x80, 0xBF)] * tail]
    if above:
        for rest in _same_length(b"\x80" * tail, high[1:]):
            yield [(end, end), *rest]


def expression(grammar: Grammar, start: str, pool: Pool | None = None) -> Expression:
    """The strings of a rule. Raises GrammarError: abnf.broken-rule, abnf.undefined-rule, abnf.prose,
    abnf.recursive, abnf.too-large; UnknownEntryError where there is no such rule.
    """
    return Translator(grammar, pool or Pool()).rule(start)


class Translator:
    """Translates the rules that a start rule needs, the innermost first, each once."""

    def __init__(self, grammar: Grammar, pool: Pool) -> None:
        self.grammar = grammar
        self.pool = pool
        self.done: dict[str, Expression] = {}

    def rule(self, start: str) -> Expression:
        """A rule's strings; raises what `expression` raises."""
        first = self.grammar.rule(start)
        for rule in self.order(first) if first.key not in self.done else ():
            assert rule.node is not None  # noqa: S101 - order() has refused the others
            self.done[rule.key] = self.node(rule.node)
        found = self.done[first.key]
        if found.size > MAX_STATES:
            raise GrammarError(
                f"the automaton of {first.name} would have more than {MAX_STATES:,} states",
                code="abnf.too-large",
                field=first.name,
                line=first.line,
                hint="write large repeats without their numbers: 1*( ... )",
            )
        return found

    def part(self, node: Node) -> Expression:
        """The strings of a part of a rule; raises what `expression` raises."""
        home = Rule(name="", node=node)
        self.order(home)
        for each in references(node):
            self.rule(each.name)
        return self.node(node)

    def order(self, first: Rule) -> list[Rule]:
        """The rules needed, each after those that it uses."""
        undefined: dict[str, Reference] = {}
        prose: list[tuple[Rule, Prose]] = []
        out: list[Rule] = []
        cycle: list[Rule] = []
        open_: dict[str, int] = {first.key: 0}
        seen = {first.key}
        stack = [(first, iter(self.uses(first, undefined, prose)))]
        while stack:
            rule, left = stack[-1]
            following = next(left, None)
            if following is None:
                stack.pop()
                del open_[rule.key]
                out.append(rule)
            elif following.key in open_:
                cycle = cycle or [each for each, _ in stack[open_[following.key] :]]
            elif following.key not in seen and following.key not in self.done:
                seen.add(following.key)
                open_[following.key] = len(stack)
                stack.append((following, iter(self.uses(following, undefined, prose))))
        _refuse(out, undefined, prose, cycle)
        return out

    def uses(
        self, rule: Rule, undefined: dict[str, Reference], prose: list[tuple[Rule, Prose]]
    ) -> list[Rule]:
        prose.extend((rule, each) for each in words(rule.node))
        out = []
        for each in references(rule.node):
            found = self.grammar.rules.get(each.key)
            if found is None:
                undefined.setdefault(each.key, each)
            else:
                out.append(found)
        return out

    def node(self, node: Node) -> Expression:
        pool = self.pool
        if isinstance(node, Reference):
            return self.done[node.key]
        if isinstance(node, Literal):
            return pool.text(node.text, sensitive=node.sensitive)
        if isinstance(node, Concatenation):
            return pool.concatenation([self.node(item) for item in node.items])
        if isinstance(node, Alternation):
            return pool.alternation([self.node(item) for item in node.items])
        if isinstance(node, (Repetition, ListOf)) and node.most == 0:
            return pool.empty
        if isinstance(node, Repetition):
            return pool.repetition(self.node(node.item), node.least, node.most)
        return self.leaf(node)

    def leaf(self, node: Node) -> Expression:
        pool = self.pool
        if isinstance(node, Range):
            return pool.span(node.first, node.last)
        if isinstance(node, Series):
            return pool.concatenation([pool.span(each, each) for each in node.values])
        assert isinstance(node, ListOf)  # noqa: S101 - prose was refused before
        return self.list_of(node)

    def list_of(self, node: ListOf) -> Expression:
        """RFC 9110 5.6.1.1: what a sender may write."""
        pool, item = self.pool, self.node(node.item)
        blanks = pool.repetition(pool.octets(1 << 0x20 | 1 << 0x09), 0, None)
        further = pool.concatenation([blanks, pool.text(",", sensitive=True), blanks, item])
        most = None if node.most is None else node.most - 1
        filled = pool.concatenation([item, pool.repetition(further, max(node.least - 1, 0), most)])
        return pool.repetition(filled, 0, 1) if node.least == 0 else filled


def words(node: Node | None) -> list[Prose]:
    """Prose that matters: `0<pchar>` is the empty string (RFC 3986 Appendix A), whatever it says."""
    out: list[Prose] = []
    stack = [] if node is None else [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Prose):
            out.append(each)
        elif isinstance(each, (Concatenation, Alternation)):
            stack.extend(each.items)
        elif isinstance(each, (Repetition, ListOf)) and each.most != 0:
            stack.append(each.item)
    return out


def _refuse(
    rules: list[Rule], undefined: dict[str, Reference], prose: list[tuple[Rule, Prose]], cycle: list[Rule]
) -> None:
    broken = [rule for rule in rules if rule.node is None]
    if broken:
        raise GrammarError(
            f"the rule {broken[0].name} is not ABNF",
            code="abnf.broken-rule",
            field=broken[0].name,
            clause="RFC 5234 4",
            line=broken[0].line,
            column=broken[0].column,
        )
    if undefined:
        first = next(iter(undefined.values()))
        names = ", ".join(each.name for each in list(undefined.values())[:8])
        raise GrammarError(
            f"not defined: {names}",
            code="abnf.undefined-rule",
            field=first.name,
            clause="RFC 5234 2.1",
            line=first.line,
            column=first.column,
            hint="define it, or say which RFC it is from: name = <name, see RFC nnnn>",
        )
    if prose:
        rule, told = prose[0]
        raise GrammarError(
            f"the rule {rule.name} is described in words",
            code="abnf.prose",
            field=rule.name,
            clause="RFC 5234 4",
            line=told.line,
            column=told.column,
            hint="write it as ABNF, or name the rule and the RFC that defines it",
        )
    if cycle:
        raise GrammarError(
            f"the rule is recursive: {' > '.join(each.name for each in [*cycle, cycle[0]][:9])}",
            code="abnf.recursive",
            field=cycle[0].name,
            clause="RFC 5234 2",
            line=cycle[0].line,
            column=cycle[0].column,
            hint="write the recursion as a repetition: *( ... )",
        )
