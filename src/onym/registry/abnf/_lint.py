"""Remarks on the rules of a grammar (check S6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._inclusion import load_rfc3986
from onym.registry.abnf._language import Relation, compare_expressions, is_covered
from onym.registry.abnf._nfa import (
    Expression,
    ExpressionBuilder,
    ExpressionPool,
    find_prose,
    make_undecided_error,
)
from onym.registry.abnf.grammar import (
    Alternation,
    Grammar,
    Literal,
    Node,
    PrefixFinder,
    Prose,
    Reference,
    Remark,
    RemarkCode,
    Rule,
    find_reached_rules,
    find_unused_rules,
    iter_cycles,
    iter_nodes,
    list_references,
    make_remark,
    map_uses,
)

#: alternatives of one grammar that are checked for redundancy, and the work for each of them
_MAX_ALTERNATIVES: Final = 400
_BUDGET: Final = 4_000
_MAX_PAIRS: Final = 2_000
#: work of one comparison with a standard rule, and undecided comparisons after which no more are made
_STANDARD_BUDGET: Final = 40_000
_MAX_UNDECIDED: Final = 5
#: rules of a cycle that a remark names
_MAX_NAMES: Final = 8
#: work for all alternatives of one grammar, in states of their automata
_MAX_WORK: Final = 60_000
_NO_RECURSION: Final = "write the recursion as a repetition: *( ... )"


def lint(grammar: Grammar, *, start: str | None = None) -> tuple[Remark, ...]:
    """Return remarks on the rules of the text, in the order of the text.

    They report rules that are undefined, repeated, recursive, described in words, not valid ABNF, unused
    (or, with `start`, not reached from it), or defined with other strings than in RFC 3986 or RFC 5234 B.1;
    and alternatives that add no string. The remarks of the parser and of `resolve` are included. Raises
    UnknownEntryError if the rule `start` does not exist.
    """
    remarks = [
        *grammar.remarks,
        *_check_broken(grammar),
        *_check_undefined(grammar),
        *_check_recursive(grammar),
        *(_check_unused(grammar) if start is None else _check_unreachable(grammar, start)),
        *_check_redefined(grammar),
        *_check_redundant(grammar),
    ]
    return tuple(sorted(remarks, key=lambda remark: (remark.line or 0, remark.column or 0)))


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
    first: dict[str, Reference] = {}
    for rule in grammar.rules.values():
        for reference in list_references(rule.node):
            if reference.key not in grammar.rules:
                first.setdefault(reference.key, reference)
    for reference in first.values():
        name = reference.name
        yield make_remark(
            RemarkCode.UNDEFINED,
            f"{name} is used but not defined",
            reference,
            name=name,
            fix=f"define it, or name the RFC that defines it: {name} = <{name}, see RFC nnnn>",
        )


def _check_recursive(grammar: Grammar) -> Iterator[Remark]:
    for cycle in iter_cycles(map_uses(grammar)):
        for rule in (grammar.rules[key] for key in cycle):
            if rule.source is None:
                names = ", ".join(grammar.rules[key].name for key in cycle[:_MAX_NAMES] if key != rule.key)
                through = f" through {names}" if names else ""
                message = f"the rule uses itself{through}; its strings cannot be decided"
                yield make_remark(RemarkCode.RECURSIVE, message, rule, fix=_NO_RECURSION)


def _check_unused(grammar: Grammar) -> Iterator[Remark]:
    unused = [grammar.rule(name) for name in find_unused_rules(grammar)]
    finder = PrefixFinder(grammar)
    starts = {rule.key for rule in unused if finder.get_prefixes(rule.key)}
    for rule in unused:
        if rule.key not in (starts or {unused[0].key}):
            message = "no other rule uses this rule"
            yield make_remark(RemarkCode.UNUSED, message, rule, fix="remove it, or use it")


def _check_unreachable(grammar: Grammar, start: str) -> Iterator[Remark]:
    first = grammar.rule(start)
    reached = find_reached_rules(grammar, first.key)
    for rule in grammar.own:
        if rule.key not in reached:
            yield make_remark(RemarkCode.UNREACHABLE, f"{first.name} does not use this rule", rule)


def _check_redefined(grammar: Grammar) -> Iterator[Remark]:
    standard = load_rfc3986()
    pool = ExpressionPool()
    own_builder, standard_builder = ExpressionBuilder(grammar, pool), ExpressionBuilder(standard, pool)
    undecided = 0
    for rule in grammar.own:
        official = standard.rules.get(rule.key)
        if official is None or rule.node is None or isinstance(rule.node, Prose):
            continue
        source = official.source or "RFC 3986"
        try:
            if undecided >= _MAX_UNDECIDED:
                raise make_undecided_error("the comparisons of earlier rules took too long")
            comparison = compare_expressions(
                own_builder.build_rule(rule.name),
                standard_builder.build_rule(rule.name),
                budget=_STANDARD_BUDGET,
                most=_MAX_PAIRS,
            )
        except GrammarError as error:
            undecided += 1
            message = f"{source} has this rule too; whether the two differ was not decided: "
            reason = error.message.removeprefix("not decided: ")
            yield make_remark(RemarkCode.UNDECIDED, message + reason, rule)
            continue
        if comparison.relation is not Relation.EQUAL:
            own, other = comparison.only_a, comparison.only_b
            more = f"; only this rule has {own}" if own is not None else ""
            less = f"; only that rule has {other or 'the empty string'}" if other is not None else ""
            yield make_remark(
                RemarkCode.REDEFINED,
                f"the rule differs from {rule.name} of {source}{more}{less}",
                rule,
                witness=own if own is not None else other,
                fix=f"rename it, or use the rule of {source}",
            )


def _check_redundant(grammar: Grammar) -> Iterator[Remark]:
    pool = ExpressionPool()
    builder = ExpressionBuilder(grammar, pool)
    count = work = 0
    costly = False
    for rule, node in _iter_decidable(grammar):
        count += len(node.items)
        try:
            if count > _MAX_ALTERNATIVES:
                raise make_undecided_error(f"only {_MAX_ALTERNATIVES} alternatives of a grammar are compared")
            parts = [builder.build_part(item) for item in node.items]
            work += sum(part.size for part in parts) * len(parts)
            if work > _MAX_WORK:
                raise make_undecided_error("comparing the alternatives takes too long")
        except GrammarError as error:
            reason = error.message.removeprefix("not decided: ")
            yield _make_undecided_remark(
                rule, node, f"this and all further alternatives add strings: {reason}"
            )
            return
        redundant, unsure = _find_redundant(parts, pool)
        if unsure and not costly:
            costly = True
            yield _make_undecided_remark(
                rule, node, "these alternatives add strings: the comparison takes too long"
            )
        for item in (node.items[index] for index in redundant):
            message = (
                f"the alternative {_format_alternative(item)} adds nothing: the others have all its strings"
            )
            yield make_remark(RemarkCode.REDUNDANT, message, item, rule=rule, fix="remove it")


def _make_undecided_remark(rule: Rule, node: Node, question: str) -> Remark:
    return make_remark(RemarkCode.UNDECIDED, f"it was not decided whether {question}", node, rule=rule)


def _iter_decidable(grammar: Grammar) -> Iterator[tuple[Rule, Alternation]]:
    """Yield the alternations whose strings can be decided; other remarks explain the rest."""
    uses = map_uses(grammar)
    users: dict[str, list[str]] = {}
    for key, used in uses.items():
        for name in used:
            users.setdefault(name, []).append(key)
    undecidable = {key for cycle in iter_cycles(uses) for key in cycle}
    undecidable |= {key for key, rule in grammar.rules.items() if rule.node is None or find_prose(rule.node)}
    undecidable |= users.keys() - uses.keys()
    stack = list(undecidable)
    while stack:
        following = [key for key in users.get(stack.pop(), ()) if key not in undecidable]
        undecidable.update(following)
        stack.extend(following)
    for rule in grammar.own:
        for node in iter_nodes(rule.node):
            if (
                isinstance(node, Alternation)
                and not find_prose(node)
                and undecidable.isdisjoint(reference.key for reference in list_references(node))
            ):
                yield rule, node


def _find_redundant(parts: list[Expression], pool: ExpressionPool) -> tuple[list[int], bool]:
    """Return the alternatives that the others cover (of equal ones the later), and if some took too long."""
    left = dict(enumerate(parts))
    unsure = False
    for index in reversed(range(len(parts))):
        others = pool.make_alternation([part for number, part in left.items() if number != index])
        try:
            if len(left) > 1 and is_covered(parts[index], others, budget=_BUDGET, most=_MAX_PAIRS):
                del left[index]
        except GrammarError:
            unsure = True
    return [index for index in range(len(parts)) if index not in left], unsure


def _format_alternative(node: Node) -> str:
    if isinstance(node, Reference):
        return node.name
    return f'"{node.text}"' if isinstance(node, Literal) else "here"
