"""Remarks on the rules of a grammar (check S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._inclusion import load_rfc3986
from onym.registry.abnf._language import Relation, compare_expressions, is_covered
from onym.registry.abnf._loader import find_undefined
from onym.registry.abnf._nfa import Expression, ExpressionBuilder, ExpressionPool, find_prose, too_large_error
from onym.registry.abnf.grammar import (
    Alternation,
    Concatenation,
    Grammar,
    Literal,
    Node,
    PrefixFinder,
    Prose,
    Range,
    Reference,
    Remark,
    RemarkCode,
    Rule,
    Series,
    list_references,
)

#: alternatives that are looked at for redundancy in one grammar, and the work that each may cost
_MAX_ALTERNATIVES: Final = 400
_BUDGET: Final = 4_000
_MAX_PAIRS: Final = 2_000
#: work of one comparison with a standard rule; and questions without an answer, after which no more is asked
_STANDARD_BUDGET: Final = 40_000
_MAX_UNDECIDED: Final = 5
#: rules of a ring that a remark names
_MAX_NAMES: Final = 8
#: work that all alternatives of one grammar may cost, in states of their automata
_MAX_WORK: Final = 60_000


def lint(grammar: Grammar, *, start: str | None = None) -> tuple[Remark, ...]:
    """Remarks on the rules of the text itself, in the order of the text.

    Rules that are undefined, defined twice, recursive, described in words, not ABNF; never used (or, with
    `start`, not reachable from it); redefined with other strings than RFC 3986 or RFC 5234 B.1 give them;
    and alternatives that add no string to those beside them. The remarks of the reader and of `resolve`
    are among them. Raises UnknownEntryError where there is no rule `start`.
    """
    found = [
        *grammar.remarks,
        *_check_broken(grammar),
        *_check_undefined(grammar),
        *_check_recursive(grammar),
        *(_check_unused(grammar) if start is None else _check_unreachable(grammar, start)),
        *_check_redefined(grammar),
        *_check_redundant(grammar),
    ]
    return tuple(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))


def _make_remark(rule: Rule, code: RemarkCode, message: str, **more: str | None) -> Remark:
    return Remark(
        code=code,
        message=message,
        rule=rule.name,
        line=rule.line,
        column=rule.column,
        section=rule.section,
        witness=more.get("witness"),
        fix=more.get("fix"),
    )


def _check_broken(grammar: Grammar) -> Iterator[Remark]:
    for problem in grammar.problems:
        yield Remark(
            code=RemarkCode.BROKEN,
            message=problem.message,
            rule=problem.field,
            line=problem.line,
            column=problem.column,
            fix=problem.hint,
        )


def _check_undefined(grammar: Grammar) -> Iterator[Remark]:
    for reference in find_undefined(grammar).values():
        yield Remark(
            code=RemarkCode.UNDEFINED,
            message=f"{reference.name} is used and not defined",
            rule=reference.name,
            line=reference.line,
            column=reference.column,
            fix="define it, or say which RFC it is from: "
            f"{reference.name} = <{reference.name}, see RFC nnnn>",
        )


def _map_uses(grammar: Grammar) -> dict[str, set[str]]:
    return {
        key: {reference.key for reference in list_references(rule.node)}
        for key, rule in grammar.rules.items()
    }


def _collect_reachable(uses: dict[str, set[str]], start: str) -> set[str]:
    """Every rule that a rule needs, itself only where it recurs."""
    seen: set[str] = set()
    stack = list(uses.get(start, ()))
    while stack:
        key = stack.pop()
        if key not in seen and key in uses:
            seen.add(key)
            stack.extend(uses[key])
    return seen


def _iter_components(uses: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan), without recursion of our own."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    held: list[str] = []
    waiting: set[str] = set()
    for root in uses:
        stack = [(root, iter(sorted(uses[root] & uses.keys())))] if root not in index else []
        if stack:
            index[root] = low[root] = len(index)
            held.append(root)
            waiting.add(root)
        while stack:
            key, left = stack[-1]
            following = next(left, None)
            if following is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[key])
                if low[key] == index[key]:
                    at = held.index(key)
                    yield held[at:]
                    waiting -= set(held[at:])
                    del held[at:]
            elif following not in index:
                index[following] = low[following] = len(index)
                held.append(following)
                waiting.add(following)
                stack.append((following, iter(sorted(uses[following] & uses.keys()))))
            elif following in waiting:
                low[key] = min(low[key], index[following])


def _check_recursive(grammar: Grammar) -> Iterator[Remark]:
    uses = _map_uses(grammar)
    for component in _iter_components(uses):
        if len(component) == 1 and component[0] not in uses[component[0]]:
            continue
        for rule in (grammar.rules[key] for key in component):
            if rule.source is None:
                others = [key for key in component[:_MAX_NAMES] if key != rule.key]
                names = ", ".join(grammar.rules[key].name for key in others)
                through = f" through {names}" if names else ""
                yield _make_remark(
                    rule,
                    RemarkCode.RECURSIVE,
                    f"the rule uses itself{through}; its strings cannot be decided",
                    fix="write the recursion as a repetition: *( ... )",
                )


def _check_unused(grammar: Grammar) -> Iterator[Remark]:
    used = {
        reference.key
        for rule in grammar.rules.values()
        for reference in list_references(rule.node)
        if reference.key != rule.key
    }
    free = [rule for rule in grammar.own if rule.key not in used and rule.node is not None]
    heads = PrefixFinder(grammar)
    starts = {rule.key for rule in free if heads.get_prefixes(rule.key)} or {rule.key for rule in free[:1]}
    for rule in free:
        if rule.key not in starts:
            yield _make_remark(rule, RemarkCode.UNUSED, "no other rule uses it", fix="take it out, or use it")


def _check_unreachable(grammar: Grammar, start: str) -> Iterator[Remark]:
    first = grammar.rule(start)
    reached = _collect_reachable(_map_uses(grammar), first.key) | {first.key}
    for rule in grammar.own:
        if rule.key not in reached:
            yield _make_remark(rule, RemarkCode.UNREACHABLE, f"{first.name} does not lead to it")


def _check_redefined(grammar: Grammar) -> Iterator[Remark]:
    standard = load_rfc3986()
    pool = ExpressionPool()
    ours, theirs = ExpressionBuilder(grammar, pool), ExpressionBuilder(standard, pool)
    undecided = 0
    for rule in grammar.own:
        official = standard.rules.get(rule.key)
        if official is None or rule.node is None or isinstance(rule.node, Prose):
            continue
        source = official.source or "RFC 3986"
        try:
            if undecided >= _MAX_UNDECIDED:
                raise too_large_error("several rules before it were too costly")
            found = compare_expressions(
                ours.build_rule(rule.name),
                theirs.build_rule(rule.name),
                budget=_STANDARD_BUDGET,
                most=_MAX_PAIRS,
            )
        except GrammarError as error:
            undecided += 1
            yield _make_remark(
                rule,
                RemarkCode.UNDECIDED,
                f"the rule is also one of {source}; whether it differs was not decided: "
                + error.message.removeprefix("not decided: "),
            )
            continue
        if found.relation is not Relation.EQUAL:
            more = f"; {found.only_a} is of this one alone" if found.only_a is not None else ""
            less = (
                f"; {found.only_b or 'the empty string'} is of that one alone"
                if found.only_b is not None
                else ""
            )
            yield _make_remark(
                rule,
                RemarkCode.REDEFINED,
                f"the rule differs from {rule.name} of {source}{more}{less}",
                witness=found.only_a if found.only_a is not None else found.only_b,
                fix=f"call it otherwise, or take the rule of {source}",
            )


def _check_redundant(grammar: Grammar) -> Iterator[Remark]:
    pool = ExpressionPool()
    translator = ExpressionBuilder(grammar, pool)
    count = work = 0
    costly = False
    for rule, node in _iter_decidable(grammar):
        count += len(node.items)
        if count > _MAX_ALTERNATIVES:
            yield _make_undecided_remark(
                rule, node, f"{_MAX_ALTERNATIVES} alternatives of a grammar are looked at"
            )
            return
        try:
            parts = [translator.build_part(item) for item in node.items]
            work += sum(part.size for part in parts) * len(parts)
            if work > _MAX_WORK:
                raise too_large_error("the alternatives are too costly to compare")
        except GrammarError as error:
            yield _make_undecided_remark(rule, node, error.message.removeprefix("not decided: "))
            return
        superfluous, unsure = _find_superfluous(parts, pool)
        if unsure and not costly:
            costly = True
            yield _make_undecided_remark(rule, node, "comparing them takes too long", more=False)
        for item in (node.items[at] for at in superfluous):
            yield Remark(
                code=RemarkCode.REDUNDANT,
                message=f"the alternative {_format_alternative(item)} adds nothing: "
                "the others have all its strings",
                rule=rule.name,
                line=item.line,
                column=item.column,
                section=rule.section,
                fix="take it out",
            )


def _make_undecided_remark(rule: Rule, node: Node, why: str, *, more: bool = True) -> Remark:
    after = ", nor of any after them" if more else ""
    return Remark(
        code=RemarkCode.UNDECIDED,
        message=f"whether each of these alternatives adds something was not decided{after}: {why}",
        rule=rule.name,
        line=node.line,
        column=node.column,
        section=rule.section,
    )


def _iter_decidable(grammar: Grammar) -> Iterator[tuple[Rule, Alternation]]:
    """The alternations whose strings can be told; of the others another remark says why not."""
    uses = _map_uses(grammar)
    users: dict[str, list[str]] = {}
    for key, used in uses.items():
        for each in used:
            users.setdefault(each, []).append(key)
    ring = {
        key
        for found in _iter_components(uses)
        if len(found) > 1 or found[0] in uses[found[0]]
        for key in found
    }
    untold = {key for key, rule in grammar.rules.items() if rule.node is None or find_prose(rule.node)}
    stack = [*untold, *ring, *(users.keys() - uses.keys())]
    dark = set(stack)
    while stack:
        following = [key for key in users.get(stack.pop(), ()) if key not in dark]
        dark.update(following)
        stack.extend(following)
    for rule in grammar.own:
        for node in _iter_alternations(rule.node):
            if not find_prose(node) and dark.isdisjoint(reference.key for reference in list_references(node)):
                yield rule, node


def _find_superfluous(parts: list[Expression], pool: ExpressionPool) -> tuple[list[int], bool]:
    """Which alternatives the others cover (of two that are equal, the later one); were some too costly?"""
    left = dict(enumerate(parts))
    unsure = False
    for at in reversed(range(len(parts))):
        others = pool.make_alternation([part for number, part in left.items() if number != at])
        try:
            if len(left) > 1 and is_covered(parts[at], others, budget=_BUDGET, most=_MAX_PAIRS):
                del left[at]
        except GrammarError:
            unsure = True
    return [at for at in range(len(parts)) if at not in left], unsure


def _iter_alternations(node: Node | None) -> Iterator[Alternation]:
    stack = [] if node is None else [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Alternation):
            yield each
        if isinstance(each, (Alternation, Concatenation)):
            stack.extend(reversed(each.items))
        elif not isinstance(each, (Literal, Range, Series, Reference, Prose)):
            stack.append(each.item)


def _format_alternative(node: Node) -> str:
    if isinstance(node, Reference):
        return node.name
    return f'"{node.text}"' if isinstance(node, Literal) else "here"
