"""Rules as nondeterministic automata over bytes (Thompson's construction); `LazyDFA` is deterministic.

Terminals up to %xFF are bytes. Terminals beyond %xFF are code points and are encoded as UTF-8, as are
ranges that end beyond %xFF (RFC 3987 writes %xA0-D7FF).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from onym.errors import GrammarError
from onym.registry import abnf


def format_octets(octets: bytes) -> str:
    r"""Return bytes as UTF-8 text; invalid UTF-8 and unprintable characters become \xNN or \uNNNN."""
    text = octets.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def to_octets(text: str | bytes) -> bytes | None:
    """Return a string in UTF-8, which automata read; None for a lone surrogate, which UTF-8 cannot encode."""
    try:
        return text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError:
        return None


#: states of one automaton
MAX_STATES: Final = 50_000
_TOO_LARGE: Final = MAX_STATES + 1


class ExpressionKind:
    """The kinds of expression."""

    SET = 0
    NONE = 1
    CONCATENATION = 2
    ALTERNATION = 3
    REPETITION = 4


class Expression:
    """A node of the shared graph. `size` is the number of states that it needs, up to _TOO_LARGE."""

    __slots__ = ("items", "kind", "least", "mask", "most", "number", "shortest", "size")

    def __init__(self, number: int, kind: int) -> None:
        self.number = number
        self.kind = kind
        self.mask = 0
        self.items: tuple[Expression, ...] = ()
        self.least = 1
        self.most: int | None = 1
        self.size = 1
        #: length of the shortest string; None without strings
        self.shortest: int | None = 0


class ExpressionPool:
    """Makes expressions; equal expressions are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], Expression] = {}
        self.empty = self.make_concatenation(())

    def _get_or_make(self, kind: int, *key: object) -> tuple[Expression, bool]:
        """Return the expression and whether it is new."""
        known = self._made.get((kind, *key))
        if known is not None:
            return known, False
        new = self._made[(kind, *key)] = Expression(len(self._made), kind)
        return new, True

    def make_octets(self, mask: int) -> Expression:
        """One byte of a set, bit n for byte n. The empty set has no strings."""
        new, fresh = self._get_or_make(ExpressionKind.SET, mask)
        if fresh:
            new.mask = mask
            new.shortest = 1 if mask else None
        return new

    def make_concatenation(self, items: Sequence[Expression]) -> Expression:
        """Items in sequence."""
        parts = [item for item in items if item.kind != ExpressionKind.NONE]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._get_or_make(ExpressionKind.NONE)[0]
        new, fresh = self._get_or_make(ExpressionKind.CONCATENATION, *(part.number for part in parts))
        if fresh:
            new.items = tuple(parts)
            new.size = min(sum(part.size for part in parts), _TOO_LARGE)
            lengths = [part.shortest for part in parts]
            known = [length for length in lengths if length is not None]
            new.shortest = sum(known) if len(known) == len(lengths) else None
        return new

    def make_alternation(self, items: Sequence[Expression]) -> Expression:
        """One of the items; sets of bytes become one set."""
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
        """An item `least` to `most` times (None: no limit)."""
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
        pairs = zip(text, text, strict=True) if sensitive else zip(text.lower(), text.upper(), strict=True)
        return self.make_concatenation([self.make_octets(1 << ord(a) | 1 << ord(b)) for a, b in pairs])

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


def trace_back(parents: Sequence[tuple[int, int]], index: int) -> bytes:
    """Return the bytes that lead from item 0 to an item; `parents` has the item and the byte before each."""
    out = bytearray()
    while index:
        index, octet = parents[index]
        out.append(octet)
    out.reverse()
    return bytes(out)


def _make_mask(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _skip_surrogates(first: int, last: int) -> Iterator[tuple[int, int]]:
    for low, high in ((0, 0xD7FF), (0xE000, 0x10FFFF)):
        if first <= high and last >= low:
            yield max(first, low), min(last, high)


def _iter_utf8_ranges(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    """Yield code points from 0x80 on as sequences of byte ranges; each sequence has one length."""
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


def build_expression(grammar: abnf.Grammar, start: str, pool: ExpressionPool | None = None) -> Expression:
    """Return the strings of a rule.

    Raises GrammarError: abnf.broken-rule, abnf.undefined-rule, abnf.prose, abnf.recursive, abnf.too-large;
    and UnknownEntryError if the rule does not exist.
    """
    return ExpressionBuilder(grammar, pool or ExpressionPool()).build_rule(start)


class ExpressionBuilder:
    """Translates the rules that a start rule needs, innermost first, each once."""

    def __init__(self, grammar: abnf.Grammar, pool: ExpressionPool) -> None:
        self.grammar = grammar
        self.pool = pool
        self.done: dict[str, Expression] = {}

    def build_rule(self, start: str) -> Expression:
        """Return a rule's strings. Raises what `build_expression` raises."""
        first = self.grammar.rule(start)
        for rule in self.order_rules(first) if first.key not in self.done else ():
            assert rule.node is not None  # noqa: S101 - order_rules() rejects the others
            self.done[rule.key] = self.build_node(rule.node)
        expression = self.done[first.key]
        if expression.size > MAX_STATES:
            raise GrammarError(
                f"the automaton of {first.name} would have more than {MAX_STATES:,} states",
                code="abnf.too-large",
                field=first.name,
                line=first.line,
                hint=_NO_LARGE_REPEATS,
            )
        return expression

    def build_part(self, node: abnf.Node) -> Expression:
        """Return the strings of a part of a rule. Raises what `build_expression` raises."""
        home = abnf.Rule(name="", node=node)
        self.order_rules(home)
        for reference in abnf.list_references(node):
            self.build_rule(reference.name)
        return self.build_node(node)

    def order_rules(self, first: abnf.Rule) -> list[abnf.Rule]:
        """Return the rules that `first` needs, each after those that it uses."""
        undefined: dict[str, abnf.Reference] = {}
        prose: list[tuple[abnf.Rule, abnf.Prose]] = []
        ordered: list[abnf.Rule] = []
        cycle: list[abnf.Rule] = []

        def iter_uses(rule: abnf.Rule) -> Iterator[abnf.Rule]:
            prose.extend((rule, words) for words in find_prose(rule.node))
            uses = []
            for reference in abnf.list_references(rule.node):
                if reference.key in self.grammar.rules:
                    uses.append(self.grammar.rules[reference.key])
                else:
                    undefined.setdefault(reference.key, reference)
            return iter(uses)

        open_: dict[str, int] = {first.key: 0}
        seen = {first.key}
        stack = [(first, iter_uses(first))]
        while stack:
            rule, left = stack[-1]
            following = next(left, None)
            if following is None:
                stack.pop()
                del open_[rule.key]
                ordered.append(rule)
            elif following.key in open_:
                cycle = cycle or [rule for rule, _ in stack[open_[following.key] :]]
            elif following.key not in seen and following.key not in self.done:
                seen.add(following.key)
                open_[following.key] = len(stack)
                stack.append((following, iter_uses(following)))
        _require_decidable(ordered, undefined, prose, cycle)
        return ordered

    def build_node(self, node: abnf.Node) -> Expression:
        pool = self.pool
        if isinstance(node, abnf.Reference):
            return self.done[node.key]
        if isinstance(node, abnf.Literal):
            return pool.make_text(node.text, sensitive=node.sensitive)
        if isinstance(node, abnf.Concatenation):
            return pool.make_concatenation([self.build_node(item) for item in node.items])
        if isinstance(node, abnf.Alternation):
            return pool.make_alternation([self.build_node(item) for item in node.items])
        if isinstance(node, (abnf.Repetition, abnf.ListOf)) and node.most == 0:
            return pool.empty
        if isinstance(node, abnf.Repetition):
            return pool.make_repetition(self.build_node(node.item), node.least, node.most)
        return self.build_leaf(node)

    def build_leaf(self, node: abnf.Node) -> Expression:
        pool = self.pool
        if isinstance(node, abnf.Range):
            return pool.make_range(node.first, node.last)
        if isinstance(node, abnf.Series):
            return pool.make_concatenation([pool.make_range(value, value) for value in node.values])
        assert isinstance(node, abnf.ListOf)  # noqa: S101 - order_rules() rejects prose
        # RFC 9110 5.6.1.1: the form that a sender may write
        pool, item = self.pool, self.build_node(node.item)
        blanks = pool.make_repetition(pool.make_octets(1 << 0x20 | 1 << 0x09), 0, None)
        further = pool.make_concatenation([blanks, pool.make_text(",", sensitive=True), blanks, item])
        most = None if node.most is None else node.most - 1
        filled = pool.make_concatenation([item, pool.make_repetition(further, max(node.least - 1, 0), most)])
        return pool.make_repetition(filled, 0, 1) if node.least == 0 else filled


def find_prose(node: abnf.Node | None) -> list[abnf.Prose]:
    """Return the prose in a node, the last one first, except `0<pchar>`, which is the empty string.

    RFC 3986 Appendix A writes path-empty in that form.
    """
    return [inner for inner in abnf.iter_nodes(node, skip_empty=True) if isinstance(inner, abnf.Prose)][::-1]


def _require_decidable(
    rules: list[abnf.Rule],
    undefined: dict[str, abnf.Reference],
    prose: list[tuple[abnf.Rule, abnf.Prose]],
    cycle: list[abnf.Rule],
) -> None:
    """Raise a GrammarError if the strings of the rules cannot be decided."""
    broken = next((rule for rule in rules if rule.node is None), None)
    if broken is not None:
        raise GrammarError(
            f"the rule {broken.name} is not valid ABNF",
            code="abnf.broken-rule",
            field=broken.name,
            clause="RFC 5234 4",
            **_get_position(broken),
        )
    references = list(undefined.values())
    if references:
        raise GrammarError(
            f"not defined: {', '.join(reference.name for reference in references[:8])}",
            code="abnf.undefined-rule",
            field=references[0].name,
            clause="RFC 5234 2.1",
            hint="define it, or name the RFC that defines it: name = <name, see RFC nnnn>",
            **_get_position(references[0]),
        )
    if prose:
        rule, words = prose[0]
        raise GrammarError(
            f"the rule {rule.name} is described in words",
            code="abnf.prose",
            field=rule.name,
            clause="RFC 5234 4",
            hint="write it as ABNF, or name the rule and the RFC that defines it",
            **_get_position(words),
        )
    if cycle:
        raise GrammarError(
            f"the rule is recursive: {' > '.join(rule.name for rule in [*cycle, cycle[0]][:9])}",
            code="abnf.recursive",
            field=cycle[0].name,
            clause="RFC 5234 2",
            hint="write the recursion as a repetition: *( ... )",
            **_get_position(cycle[0]),
        )


def _get_position(at: abnf.Rule | abnf.Node) -> dict[str, Any]:
    return {"line": at.line, "column": at.column}


#: bytes, most readable first: letters, digits, other visible ASCII, then the rest
ORDER: Final = bytes(
    [*range(0x61, 0x7B), *range(0x30, 0x3A), *range(0x41, 0x5B)]
    + [code for code in range(0x21, 0x7F) if not chr(code).isalnum()]
    + [0x20, 0x09, *range(0x80, 0x100), *(code for code in range(0x20) if code != 0x09), 0x7F]
)
#: index of each byte in ORDER
RANK: Final = bytes(ORDER.index(code) for code in range(256))


class NFA:
    """An automaton with the first state 0 and the only accepting state 1.

    `moves[s]` has pairs (mask of bytes, state), `jumps[s]` the states that are reached without a byte.
    """

    __slots__ = ("jumps", "moves")

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int]]] = [[], []]
        self.jumps: list[list[int]] = [[], []]

    def add_state(self) -> int:
        """Add a state and return its number."""
        self.moves.append([])
        self.jumps.append([])
        return len(self.moves) - 1

    def collect_masks(self) -> set[int]:
        """Return the masks of all moves."""
        return {mask for moves in self.moves for mask, _ in moves}


def build_rule_nfa(grammar: abnf.Grammar, start: str, pool: ExpressionPool | None = None) -> NFA:
    """Return the automaton of a rule. Raises what `build_expression` raises."""
    return build_nfa(build_expression(grammar, start, pool))


def build_nfa(whole: Expression) -> NFA:
    """Return the automaton of an expression.

    A part adds only moves out of its first state and into its last state, so alternatives share both.
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
    """Return the bytes of a mask, most readable first."""
    return [octet for octet in ORDER if mask >> octet & 1]


def classify_octets(masks: Iterable[int]) -> tuple[bytes, list[int]]:
    """Return the class of each byte, and the most readable byte of each class.

    Bytes that no mask distinguishes have the same class; classes are numbered by readability.
    """
    signs: list[list[int]] = [[] for _ in range(256)]
    for index, mask in enumerate(sorted(masks)):
        for octet in list_octets(mask):
            signs[octet].append(index)
    numbers: dict[tuple[int, ...], int] = {}
    table = bytearray(256)
    shown: list[int] = []
    for octet in ORDER:
        number = numbers.setdefault(tuple(signs[octet]), len(numbers))
        if number == len(shown):
            shown.append(octet)
        table[octet] = number
    return bytes(table), shown


_NO_LARGE_REPEATS: Final = "write large repeats without their numbers: 1*( ... )"


def make_undecided_error(reason: str) -> GrammarError:
    """Return the error for a question that exceeds a limit."""
    return GrammarError(f"not decided: {reason}", code="abnf.too-large", hint=_NO_LARGE_REPEATS)


class LazyDFA:
    """The deterministic automaton of an NFA, which computes each state when it is needed.

    `table` has the class of each byte, `shown` a byte of each class. `budget` limits the NFA states that are
    visited. Beyond it, methods raise GrammarError abnf.too-large.
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
        number = self._numbers.setdefault(kernel, len(self._kernels))
        if number == len(self._kernels):
            self._kernels.append(kernel)
            self._rows.append(None)
            self._accepts.append(False)
            self._spend_budget(len(kernel) + 1)
        return number

    def _spend_budget(self, steps: int) -> None:
        self._budget -= steps
        if self._budget < 0:
            raise make_undecided_error("the deterministic automaton is too large")

    def _compute_closure(self, kernel: frozenset[int]) -> list[int]:
        jumps = self._nfa.jumps
        closure = list(kernel)
        seen = set(kernel)
        for state in closure:
            for following in jumps[state]:
                if following not in seen:
                    seen.add(following)
                    closure.append(following)
        self._spend_budget(len(closure))
        return closure

    def _list_classes(self, mask: int) -> list[int]:
        classes = self._classes.get(mask)
        if classes is None:
            classes = [index for index, octet in enumerate(self._shown) if mask >> octet & 1]
            self._classes[mask] = classes
        return classes

    def get_row(self, number: int) -> list[int]:
        """Return the state that each class leads to."""
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
        """Return whether the state accepts."""
        self.get_row(number)
        return self._accepts[number]

    def __len__(self) -> int:
        return len(self._kernels)
