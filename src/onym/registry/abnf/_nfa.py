"""Rules as nondeterministic automata over octets.

A rule becomes an `Expression`, in which equal parts are shared and single octets are joined into sets. An
expression becomes an `NFA` (Thompson's construction). `LazyDFA` computes the deterministic states on
demand.

Terminals up to %xFF are octets. Terminals beyond %xFF are code points and are encoded as UTF-8, as are
ranges that end beyond %xFF (RFC 3987 writes %xA0-D7FF).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from onym.errors import GrammarError
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
    Series,
    list_references,
)


def format_octets(octets: bytes) -> str:
    r"""Octets as UTF-8 text; what is no UTF-8, or is not printable, as \xNN or \uNNNN."""
    text = octets.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def to_octets(text: str | bytes) -> bytes | None:
    """A string as the octets that an automaton reads: UTF-8. None for a lone surrogate: it has none."""
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError:
        return None


#: states of one automaton
MAX_STATES: Final = 50_000
_TOO_LARGE: Final = MAX_STATES + 1


class ExpressionKind:
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


class ExpressionPool:
    """Makes expressions; two that are built alike are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Expression] = {}
        self.empty = self.make_concatenation(())

    def _get_or_make(self, kind: int, *key: object) -> tuple[Expression, bool]:
        found = self._made.get((kind, *key))
        if found is not None:
            return found, False
        new = self._made[(kind, *key)] = Expression(len(self._made), kind)
        return new, True

    def make_octets(self, mask: int) -> Expression:
        """One octet of a set, bit n for octet n. The empty set has no strings."""
        new, fresh = self._get_or_make(ExpressionKind.SET, mask)
        if fresh:
            new.mask = mask
            new.shortest = 1 if mask else None
        return new

    def make_concatenation(self, items: Sequence[Expression]) -> Expression:
        """One after the other."""
        parts = [item for item in items if item.kind != ExpressionKind.NONE]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._get_or_make(ExpressionKind.NONE)[0]
        new, fresh = self._get_or_make(ExpressionKind.CONCATENATION, *(each.number for each in parts))
        if fresh:
            new.items = tuple(parts)
            new.size = min(sum(part.size for part in parts), _TOO_LARGE)
            lengths = [part.shortest for part in parts]
            known = [length for length in lengths if length is not None]
            new.shortest = sum(known) if len(known) == len(lengths) else None
        return new

    def make_alternation(self, items: Sequence[Expression]) -> Expression:
        """One of them; sets of octets melt into one."""
        mask = 0
        rest: dict[int, Expression] = {}
        for item in items:
            for part in item.items if item.kind == ExpressionKind.ALTERNATION else (item,):
                if part.kind == ExpressionKind.SET:
                    mask |= part.mask
                elif part.shortest is not None:
                    rest[part.number] = part
        parts = ([self.make_octets(mask)] if mask or not rest else []) + list(rest.values())
        if len(parts) == 1:
            return parts[0]
        new, fresh = self._get_or_make(ExpressionKind.ALTERNATION, *sorted(item.number for item in parts))
        if fresh:
            new.items = tuple(parts)
            new.size = min(sum(item.size for item in parts), _TOO_LARGE)
            new.shortest = min(item.shortest for item in parts if item.shortest is not None)
        return new

    def make_repetition(self, item: Expression, least: int, most: int | None) -> Expression:
        """`least` to `most` times (None: without end)."""
        if item.kind == ExpressionKind.NONE or most == 0:
            return self.empty
        if least == most == 1:
            return item
        if most is None and item.kind == ExpressionKind.REPETITION and item.most is None and item.least <= 1:
            # a star of a star is a star, and two or more of one or more are two or more
            item, least = item.items[0], least * item.least
        new, fresh = self._get_or_make(ExpressionKind.REPETITION, item.number, least, most)
        if fresh:
            new.items = (item,)
            new.least, new.most = least, most
            new.size = min((least + 1 if most is None else most) * item.size + 1, _TOO_LARGE)
            one = item.shortest
            new.shortest = 0 if least == 0 else None if one is None else least * one
        return new

    def make_text(self, text: str, *, sensitive: bool) -> Expression:
        """A literal string."""
        return self.make_concatenation(
            [self.make_octets(_make_letter_mask(char, sensitive)) for char in text]
        )

    def make_range(self, first: int, last: int) -> Expression:
        """One terminal of a range."""
        if last <= 0xFF:
            return self.make_octets(_make_mask(first, last))
        options = [self.make_octets(_make_mask(first, min(last, 0x7F)))] if first <= 0x7F else []
        for begin, end in _skip_surrogates(max(first, 0x80), last):
            options.extend(
                self.make_concatenation([self.make_octets(_make_mask(low, high)) for low, high in octets])
                for octets in _iter_utf8_ranges(begin, end)
            )
        return self.make_alternation(options)


def _make_mask(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _make_letter_mask(char: str, sensitive: bool) -> int:
    if sensitive:
        return 1 << ord(char)
    return 1 << ord(char.lower()) | 1 << ord(char.upper())


def _skip_surrogates(first: int, last: int) -> Iterator[tuple[int, int]]:
    for low, high in ((0, 0xD7FF), (0xE000, 0x10FFFF)):
        if first <= high and last >= low:
            yield max(first, low), min(last, high)


def _iter_utf8_ranges(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    """Code points from 0x80 on as sequences of octet ranges, each of one length."""
    for ceiling in (0x7FF, 0xFFFF, 0x10FFFF):
        if first <= min(last, ceiling):
            yield from _iter_equal_length_ranges(chr(first).encode(), chr(min(last, ceiling)).encode())
            first = ceiling + 1


def _iter_equal_length_ranges(low: bytes, high: bytes) -> Iterator[list[tuple[int, int]]]:
    if low[0] == high[0] and len(low) > 1:
        for rest in _iter_equal_length_ranges(low[1:], high[1:]):
            yield [(low[0], low[0]), *rest]
        return
    tail = len(low) - 1
    begin, end = low[0], high[0]
    if low[1:] != b"\x80" * tail:
        for rest in _iter_equal_length_ranges(low[1:], b"\xbf" * tail):
            yield [(begin, begin), *rest]
        begin += 1
    above = high[1:] != b"\xbf" * tail
    if begin <= end - above:
        yield [(begin, end - above), *[(0x80, 0xBF)] * tail]
    if above:
        for rest in _iter_equal_length_ranges(b"\x80" * tail, high[1:]):
            yield [(end, end), *rest]


def build_expression(grammar: Grammar, start: str, pool: ExpressionPool | None = None) -> Expression:
    """The strings of a rule. Raises GrammarError: abnf.broken-rule, abnf.undefined-rule, abnf.prose,
    abnf.recursive, abnf.too-large; UnknownEntryError where there is no such rule.
    """
    return ExpressionBuilder(grammar, pool or ExpressionPool()).build_rule(start)


class ExpressionBuilder:
    """Translates the rules that a start rule needs, the innermost first, each once."""

    def __init__(self, grammar: Grammar, pool: ExpressionPool) -> None:
        self.grammar = grammar
        self.pool = pool
        self.done: dict[str, Expression] = {}

    def build_rule(self, start: str) -> Expression:
        """A rule's strings; raises what `build_expression` raises."""
        first = self.grammar.rule(start)
        for rule in self.order_rules(first) if first.key not in self.done else ():
            assert rule.node is not None  # noqa: S101 - order() has refused the others
            self.done[rule.key] = self.build_node(rule.node)
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

    def build_part(self, node: Node) -> Expression:
        """The strings of a part of a rule; raises what `build_expression` raises."""
        home = Rule(name="", node=node)
        self.order_rules(home)
        for reference in list_references(node):
            self.build_rule(reference.name)
        return self.build_node(node)

    def order_rules(self, first: Rule) -> list[Rule]:
        """The rules needed, each after those that it uses."""
        undefined: dict[str, Reference] = {}
        prose: list[tuple[Rule, Prose]] = []
        out: list[Rule] = []
        cycle: list[Rule] = []
        open_: dict[str, int] = {first.key: 0}
        seen = {first.key}
        stack = [(first, iter(self.find_uses(first, undefined, prose)))]
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
                stack.append((following, iter(self.find_uses(following, undefined, prose))))
        _raise_undecidable(out, undefined, prose, cycle)
        return out

    def find_uses(
        self, rule: Rule, undefined: dict[str, Reference], prose: list[tuple[Rule, Prose]]
    ) -> list[Rule]:
        prose.extend((rule, words) for words in find_prose(rule.node))
        out = []
        for reference in list_references(rule.node):
            found = self.grammar.rules.get(reference.key)
            if found is None:
                undefined.setdefault(reference.key, reference)
            else:
                out.append(found)
        return out

    def build_node(self, node: Node) -> Expression:
        pool = self.pool
        if isinstance(node, Reference):
            return self.done[node.key]
        if isinstance(node, Literal):
            return pool.make_text(node.text, sensitive=node.sensitive)
        if isinstance(node, Concatenation):
            return pool.make_concatenation([self.build_node(item) for item in node.items])
        if isinstance(node, Alternation):
            return pool.make_alternation([self.build_node(item) for item in node.items])
        if isinstance(node, (Repetition, ListOf)) and node.most == 0:
            return pool.empty
        if isinstance(node, Repetition):
            return pool.make_repetition(self.build_node(node.item), node.least, node.most)
        return self.build_leaf(node)

    def build_leaf(self, node: Node) -> Expression:
        pool = self.pool
        if isinstance(node, Range):
            return pool.make_range(node.first, node.last)
        if isinstance(node, Series):
            return pool.make_concatenation([pool.make_range(value, value) for value in node.values])
        assert isinstance(node, ListOf)  # noqa: S101 - prose was refused before
        return self.build_list(node)

    def build_list(self, node: ListOf) -> Expression:
        """RFC 9110 5.6.1.1: what a sender may write."""
        pool, item = self.pool, self.build_node(node.item)
        blanks = pool.make_repetition(pool.make_octets(1 << 0x20 | 1 << 0x09), 0, None)
        further = pool.make_concatenation([blanks, pool.make_text(",", sensitive=True), blanks, item])
        most = None if node.most is None else node.most - 1
        filled = pool.make_concatenation([item, pool.make_repetition(further, max(node.least - 1, 0), most)])
        return pool.make_repetition(filled, 0, 1) if node.least == 0 else filled


def find_prose(node: Node | None) -> list[Prose]:
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


def _raise_undecidable(
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
        names = ", ".join(reference.name for reference in list(undefined.values())[:8])
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
            f"the rule is recursive: {' > '.join(reference.name for reference in [*cycle, cycle[0]][:9])}",
            code="abnf.recursive",
            field=cycle[0].name,
            clause="RFC 5234 2",
            line=cycle[0].line,
            column=cycle[0].column,
            hint="write the recursion as a repetition: *( ... )",
        )


#: octets, the most readable first: letters, digits, the rest of ASCII that is seen, then what is not
ORDER: Final = bytes(
    [*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x41, 0x5B)]
    + [code for code in range(0x21, 0x7F) if not chr(code).isalnum()]
    + [0x20, 0x09, *range(0x80, 0x100), *(code for code in range(0x20) if code != 0x09), 0x7F]
)
#: place of each octet in ORDER
RANK: Final = bytes(ORDER.index(code) for code in range(256))


class NFA:
    """States from 0 (first) and 1 (last, the only one that accepts).

    `moves[s]` holds (mask of octets, state), `jumps[s]` the states that are reached for nothing.
    """

    __slots__ = ("jumps", "moves")

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int]]] = [[], []]
        self.jumps: list[list[int]] = [[], []]

    def add_state(self) -> int:
        """A new state."""
        self.moves.append([])
        self.jumps.append([])
        return len(self.moves) - 1

    def collect_masks(self) -> set[int]:
        """Every mask that a move has."""
        return {mask for moves in self.moves for mask, _ in moves}


def build_rule_nfa(grammar: Grammar, start: str, pool: ExpressionPool | None = None) -> NFA:
    """The automaton of a rule. Raises what `expression` raises."""
    return build_nfa(build_expression(grammar, start, pool))


def build_nfa(whole: Expression) -> NFA:
    """An expression's automaton.

    Each part adds moves out of its first state and into its last one only, never the other way, so that
    alternatives can share both.
    """
    nfa = NFA()
    moves, jumps, state = nfa.moves, nfa.jumps, nfa.add_state
    stack: list[tuple[Expression, int, int]] = [(whole, 0, 1)]
    while stack:
        part, first, last = stack.pop()
        if part.kind == ExpressionKind.SET:
            if part.mask:
                moves[first].append((part.mask, last))
        elif part.kind == ExpressionKind.NONE:
            jumps[first].append(last)
        elif part.kind == ExpressionKind.ALTERNATION:
            stack.extend((item, first, last) for item in part.items)
        elif part.kind == ExpressionKind.CONCATENATION:
            for item in part.items[:-1]:
                middle = state()
                stack.append((item, first, middle))
                first = middle
            stack.append((part.items[-1], first, last))
        else:
            _add_repetition(nfa, part, first, last, stack)
    return nfa


def _add_repetition(
    nfa: NFA, part: Expression, first: int, last: int, stack: list[tuple[Expression, int, int]]
) -> None:
    item = part.items[0]
    for _ in range(part.least):
        middle = nfa.add_state()
        stack.append((item, first, middle))
        first = middle
    if part.most is None:
        middle = nfa.add_state()
        nfa.jumps[first].append(middle)
        nfa.jumps[middle].append(last)
        stack.append((item, middle, middle))
        return
    for _ in range(part.most - part.least):
        nfa.jumps[first].append(last)
        middle = nfa.add_state()
        stack.append((item, first, middle))
        first = middle
    nfa.jumps[first].append(last)


def list_octets(mask: int) -> list[int]:
    """The octets of a mask, the most readable first."""
    return [octet for octet in ORDER if mask >> octet & 1]


def classify_octets(masks: Iterable[int]) -> tuple[bytes, list[int]]:
    """Octets that no mask tells apart are one class: the class of each octet, and one octet of each class.

    The octet that stands for a class is its most readable one; classes are numbered in that order.
    """
    ordered = sorted(masks)
    numbers: dict[tuple[int, ...], int] = {}
    table = bytearray(256)
    shown: list[int] = []
    signs: list[list[int]] = [[] for _ in range(256)]
    for at, mask in enumerate(ordered):
        for octet in range(256):
            if mask >> octet & 1:
                signs[octet].append(at)
    for octet in ORDER:
        sign = tuple(signs[octet])
        number = numbers.setdefault(sign, len(numbers))
        if number == len(shown):
            shown.append(octet)
        table[octet] = number
    return bytes(table), shown


def too_large_error(what: str) -> GrammarError:
    """The outcome of its own for what grew beyond a cap."""
    return GrammarError(
        f"not decided: {what}",
        code="abnf.too-large",
        hint="write large repeats without their numbers: 1*( ... )",
    )


class LazyDFA:
    """The deterministic automaton of an NFA, state by state as it is asked for.

    `table` is the class of each octet, `shown` an octet of each class. `budget` caps the work: NFA states
    looked at in all. Beyond it GrammarError abnf.too-large.
    """

    def __init__(self, nfa: NFA, table: bytes, shown: Sequence[int], *, budget: int) -> None:
        self._nfa = nfa
        self._classes: dict[int, list[int]] = {}
        self._shown = shown
        self._numbers: dict[frozenset[int], int] = {}
        self._kernels: list[frozenset[int]] = []
        self._rows: list[list[int] | None] = []
        self._accepts: list[bool] = []
        self._budget = budget
        self.table = table
        self.dead = self._number_kernel(frozenset())
        self.first = self._number_kernel(frozenset((0,)))

    def _number_kernel(self, kernel: frozenset[int]) -> int:
        found = self._numbers.setdefault(kernel, len(self._kernels))
        if found == len(self._kernels):
            self._kernels.append(kernel)
            self._rows.append(None)
            self._accepts.append(False)
            self._spend_budget(len(kernel) + 1)
        return found

    def _spend_budget(self, steps: int) -> None:
        self._budget -= steps
        if self._budget < 0:
            raise too_large_error("the deterministic automaton grows beyond its cap")

    def _compute_closure(self, kernel: frozenset[int]) -> list[int]:
        jumps = self._nfa.jumps
        out = list(kernel)
        seen = set(kernel)
        for state in out:
            for following in jumps[state]:
                if following not in seen:
                    seen.add(following)
                    out.append(following)
        self._spend_budget(len(out))
        return out

    def _list_classes(self, mask: int) -> list[int]:
        found = self._classes.get(mask)
        if found is None:
            found = [at for at, octet in enumerate(self._shown) if mask >> octet & 1]
            self._classes[mask] = found
        return found

    def get_row(self, number: int) -> list[int]:
        """The state that each class leads to."""
        row = self._rows[number]
        if row is not None:
            return row
        by_mask: dict[int, set[int]] = {}
        moves = self._nfa.moves
        for state in self._compute_closure(self._kernels[number]):
            if state == 1:
                self._accepts[number] = True
            for mask, following in moves[state]:
                by_mask.setdefault(mask, set()).add(following)
        targets: list[set[int]] = [set() for _ in self._shown]
        for mask, states in by_mask.items():
            for octet_class in self._list_classes(mask):
                targets[octet_class] |= states
        row = [self._number_kernel(frozenset(target)) for target in targets]
        self._rows[number] = row
        return row

    def accepts(self, number: int) -> bool:
        """Does the state accept?"""
        self.get_row(number)
        return self._accepts[number]

    def __len__(self) -> int:
        return len(self._kernels)
