"""Random small grammars: what this package says, and what `re` and automata-lib say of the same language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from hypothesis import given, settings
from hypothesis import strategies as st

from onym.registry.abnf import Comparison, Relation, compare, generate_examples, match, parse_grammar


@dataclass(frozen=True)
class Both:
    """One language, as ABNF and as a regular expression."""

    abnf: str
    regex: str


LEAVES = st.sampled_from(
    [
        Both('%s"a"', "a"),
        Both('%s"b"', "b"),
        Both('"a"', "(a|A)"),
        Both('%s"ab"', "ab"),
        Both("%x61-62", "(a|b)"),
        Both("%d98.97", "ba"),
        Both("%b1100001", "a"),
        Both('""', "()"),
    ]
)


def repeated(item: Both, least: int, more: int | None) -> Both:
    if more is None:
        return Both(f"{least}*( {item.abnf} )", f"({item.regex})" * least + f"({item.regex})*")
    tail = f"(({item.regex})|())" * more
    return Both(f"{least}*{least + more}( {item.abnf} )", (f"({item.regex})" * least + tail) or "()")


def larger(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(
            lambda each: Both(
                f"( {' / '.join(item.abnf for item in each)} )",
                "(" + "|".join(f"({item.regex})" for item in each) + ")",
            )
        ),
        several.map(
            lambda each: Both(
                f"( {' '.join(item.abnf for item in each)} )", "".join(f"({item.regex})" for item in each)
            )
        ),
        inner.map(lambda item: Both(f"[ {item.abnf} ]", f"(({item.regex})|())")),
        st.builds(repeated, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
    )


LANGUAGES = st.recursive(LEAVES, larger, max_leaves=8)
STRINGS = st.text("abAc", max_size=7)


@settings(max_examples=300, deadline=None)
@given(LANGUAGES, st.lists(STRINGS, max_size=12))
def test_match_agrees_with_re(language: Both, strings: list[str]) -> None:
    grammar = parse_grammar(f"s = {language.abnf}")
    for each in strings:
        assert match(grammar, "s", each) == bool(re.fullmatch(language.regex, each, re.ASCII))


@settings(max_examples=100, deadline=None)
@given(LANGUAGES, st.integers(0, 3))
def test_each_example_is_in_the_language_and_the_first_is_a_shortest(language: Both, seed: int) -> None:
    grammar = parse_grammar(f"s = {language.abnf}")
    found = generate_examples(grammar, "s", 8, seed=seed)
    assert found
    assert all(re.fullmatch(language.regex, each) for each in found)
    assert len(found) == len(set(found))
    whole = theirs(language)
    assert len(found[0]) == whole.minimum_word_length()
    assert found == generate_examples(grammar, "s", 8, seed=seed)


def theirs(language: Both) -> DFA:
    return DFA.from_nfa(NFA.from_regex(language.regex, input_symbols={"a", "b", "A"}))


def relation(a: DFA, b: DFA) -> Relation:
    if a == b:
        return Relation.EQUAL
    if a <= b:
        return Relation.SUBSET
    if b <= a:
        return Relation.SUPERSET
    shared = a & b  # automata-lib wants a name for what its methods are called on
    return Relation.DISJOINT if shared.isempty() else Relation.OVERLAP


@settings(max_examples=150, deadline=None)
@given(LANGUAGES, LANGUAGES)
def test_compare_agrees_with_automata_lib(first: Both, second: Both) -> None:
    a, b = parse_grammar(f"s = {first.abnf}"), parse_grammar(f"s = {second.abnf}")
    x, y = theirs(first), theirs(second)
    found = compare(a, "s", b, "s")
    assert found.relation is relation(x, y)
    for witness, left, right in ((found.only_a, x, y), (found.only_b, y, x)):
        beyond = left - right
        assert (witness is None) == beyond.isempty()
        if witness is not None:
            assert beyond.accepts_input(witness)
            assert len(witness) == beyond.minimum_word_length()
    shared = x & y
    assert (found.both is None) == shared.isempty()
    if found.both is not None:
        assert shared.accepts_input(found.both)
        assert len(found.both) == shared.minimum_word_length()


@settings(max_examples=50, deadline=None)
@given(LANGUAGES)
def test_a_language_equals_itself_written_otherwise(language: Both) -> None:
    a, b = (
        parse_grammar(f"s = {language.abnf}"),
        parse_grammar(f"s = t\nt =/ 1({language.abnf})\nt =/ {language.abnf}"),
    )
    found = compare(a, "s", b, "s")
    assert found == Comparison(relation=Relation.EQUAL, both=found.both)
    assert found.both is not None
