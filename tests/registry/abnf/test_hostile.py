"""Grammars made to cost: each is answered, or refused, soon and within 200 MB, and never passes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from onym.errors import GrammarError
from onym.registry.abnf import (
    Grammar,
    Outcome,
    RemarkCode,
    compare,
    decide_inclusion,
    find_reserved,
    generate_examples,
    lint,
    parse_grammar,
    probe_rule,
    resolve,
)
from onym.registry.abnf._loader import MAX_RULES, MAX_TEXT
from onym.registry.abnf._parser import MAX_DEPTH
from support import linear_enough, untraced

CHAIN = "\n".join(f"r{at} = r{at + 1} r{at + 1}" for at in range(60))
FAN = "\n".join(f'r{at} = r{at + 1} / "x" r{at + 1} / "y" r{at + 1}' for at in range(60))
OPTIONS = " ".join(['[ "a" ]'] * 3_000)
HOSTILE = {
    "subset construction explodes": ('s = "ab:" *pchar "x" 14(pchar)', Outcome.INCLUDED),
    "long counted repeat": ('s = "a:" 1*4096(pchar)', Outcome.INCLUDED),
    "long counted repeat without scheme": ("s = 1*4096(pchar)", Outcome.NOT_INCLUDED),
    "labels of a domain name": (
        's = "dns:" label *126("." label)\nlabel = alnum *61(alnum / "-") alnum\nalnum = ALPHA / DIGIT',
        Outcome.INCLUDED,
    ),
    "stars of stars": ('s = "a:" *( *( *a ) )\na = "a"', Outcome.INCLUDED),
    "huge repeat": ('s = 999999999a\na = "a"', Outcome.TOO_LARGE),
    "repeats of repeats": ('s = "a:" 9999( 9999( 9999("a") ) )', Outcome.TOO_LARGE),
    "doubling": (f's = "a:" r0\n{CHAIN}\nr60 = "a"', Outcome.TOO_LARGE),
    "exponential alternation": (f's = "a:" r0\n{FAN}\nr60 = "a"', Outcome.TOO_LARGE),
    "many options": (f's = "a:" {OPTIONS}', Outcome.INCLUDED),
    "a star of many options": (f's = "a:" *( {OPTIONS} )', Outcome.INCLUDED),
    "near the cap of states": ('s = "a:" 1*12000(pchar)', Outcome.INCLUDED),
    "near the cap of states, of stars": ('s = "a:" 1*7500(*pchar)', Outcome.INCLUDED),
    "a long chain of rules": (
        's = "a:" r0\n' + "\n".join(f'r{at} = "a" r{at + 1}' for at in range(3_900)) + '\nr3900 = ""',
        Outcome.INCLUDED,
    ),
    "a long ring of rules": (
        's = "a:" r0\n' + "\n".join(f'r{at} = "a" r{(at + 1) % 3_900}' for at in range(3_900)),
        Outcome.RECURSIVE,
    ),
}
PROGRAM = """
import json, pathlib, re, sys, time
from onym.registry.abnf import decide_inclusion, parse_grammar, resolve
before = time.process_time()
found = decide_inclusion(resolve(parse_grammar(sys.stdin.read())), "s")
took = time.process_time() - before
# the peak of this process; getrusage would count what its parent had when it was forked
status = pathlib.Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1] if status.exists() else 0
print(json.dumps([found.outcome, took, int(peak) / 1024]))
"""


def measured(program: str, text: str) -> list[Any]:
    """What a process of its own says, not slowed by the measurement of coverage."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=untraced(),
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_costs_seconds_at_most_and_200_megabytes(name: str) -> None:
    text, outcome = HOSTILE[name]
    found, seconds, megabytes = measured(PROGRAM, text)
    assert found == outcome
    assert seconds < 5  # some 0.1; what explodes never ends
    assert megabytes < 200


def refusal(text: str) -> GrammarError:
    with pytest.raises(GrammarError) as caught:
        resolve(parse_grammar(text))
    return caught.value


def test_a_megabyte_of_rules_is_refused_at_once() -> None:
    with linear_enough(1):
        assert refusal('rule = "abc"\n' * 80_000).code == "abnf.too-large"


def test_the_most_text_and_the_most_rules_are_read_within_a_second() -> None:
    text = "\n".join(f'rule-{at} = *( "a" / b ) [ %x41-5A ]' for at in range(MAX_RULES))
    with linear_enough():
        assert len(parse_grammar(text[:MAX_TEXT]).rules) == MAX_RULES
    assert refusal(f"{text}\nmore = a").code == "abnf.too-large"


def test_groups_within_each_other_are_capped() -> None:
    parse_grammar(f's = {"(" * MAX_DEPTH}"a"{")" * MAX_DEPTH}')
    error = refusal(f's = {"(" * 100_000}"a"{")" * 100_000}')
    assert (error.code, error.line, error.column) == ("abnf.too-deep", 1, MAX_DEPTH + 5)


@pytest.mark.parametrize("text", ["s = 1234567890a", "s = 1*1234567890a", "s = 1#1234567890a"])
def test_a_repeat_of_ten_digits_is_refused(text: str) -> None:
    error = refusal(text)
    assert (error.code, error.line, error.column) == ("abnf.syntax", 1, text.index("1") + 1)
    assert "digits" in error.message


def test_a_number_of_many_digits_is_refused() -> None:
    assert "Unicode" in refusal(f"s = %x{'F' * 100_000}").message
    assert "Unicode" in refusal(f"s = %d{'9' * 100_000}").message


def test_a_comparison_that_explodes_is_an_outcome_of_its_own_within_seconds() -> None:
    a = resolve(parse_grammar('s = *pchar "x" 14(pchar)'))
    b = resolve(parse_grammar('s = *pchar "x" 15(pchar)'))
    with linear_enough(), pytest.raises(GrammarError) as caught:
        compare(a, "s", b, "s")
    assert caught.value.code == "abnf.too-large"


def test_an_automaton_that_grows_in_each_state_is_stopped() -> None:
    a = parse_grammar('s = *( "a" / "b" ) "a" 300( "a" / "b" )')
    b = parse_grammar('s = *( "a" / "b" ) "b" 300( "a" / "b" )')
    with pytest.raises(GrammarError) as caught:
        compare(a, "s", b, "s")
    assert caught.value.code == "abnf.too-large"


def test_lint_of_many_alternatives_ends_within_a_second() -> None:
    one = " / ".join(f'"{at:04}"' for at in range(2_000))
    many = "\n".join(f'r{at} = *pchar "x" 14(pchar) / *pchar "y" 14(pchar) / r{at + 1}' for at in range(80))
    for text in (f"s = {one}", many):
        grammar = resolve(parse_grammar(text))
        with linear_enough(5):
            lint(grammar)


def test_questions_beside_inclusion_cost_no_more() -> None:
    """Each is answered or refused soon, for every hostile grammar."""
    for text, _ in HOSTILE.values():
        grammar = resolve(parse_grammar(text))
        for ask in QUESTIONS:
            with linear_enough(), contextlib.suppress(GrammarError):
                ask(grammar, "s")


def lint_from(grammar: Grammar, start: str) -> object:
    return lint(grammar, start=start)


def examples_of(grammar: Grammar, start: str) -> list[str]:
    return generate_examples(grammar, start, 20)


def start_of(grammar: Grammar, start: str) -> str | None:
    return grammar.start(start)


QUESTIONS: tuple[Callable[[Grammar, str], object], ...] = (
    probe_rule,
    find_reserved,
    lint_from,
    examples_of,
    start_of,
)


def test_lint_asks_no_more_where_its_questions_are_too_costly() -> None:
    names = ["path", "query", "fragment", "host", "userinfo", "segment", "pchar", "reg-name"]
    one = '( *unreserved "x" 14(unreserved) )'
    text = "\n".join(f"{name} = {one} / {one}" for name in names)
    grammar = resolve(parse_grammar(f"s = {' '.join(names)}\n{text}"))
    with linear_enough():
        found = [remark for remark in lint(grammar) if remark.code is RemarkCode.UNDECIDED]
    # one remark for each rule, and one for the alternatives of `path`
    assert sorted(remark.rule or "" for remark in found) == sorted([*names, "path"])


def test_the_search_itself_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._inclusion.MAX_PAIRS", 5)
    verdict = decide_inclusion(resolve(parse_grammar('s = "a:" *pchar')), "s")
    assert verdict.outcome is Outcome.TOO_LARGE
    assert verdict.problem is not None
    assert verdict.problem.code == "abnf.too-large"
    assert not verdict.decided
