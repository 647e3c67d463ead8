"""The published grammars of grammars/ against absolute-URI: verdict, witness and a second opinion."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from automata.fa import dfa, nfa

from onym.registry.abnf import Grammar, Outcome, decide_inclusion, match, parse_grammar, resolve
from onym.registry.abnf._inclusion import build_absolute_uri_dfa, build_uri_dfa, load_rfc3986
from onym.registry.abnf._nfa import NFA, build_rule_nfa, classify_octets
from support import as_subtests

GRAMMARS = Path(__file__).parent / "grammars"

INCLUDED = [
    ("rsync", "rsyncuri"),
    ("sieve", "sieveurl"),
    ("jms", "jms-uri"),
    ("ws", "ws-URI"),
    ("ws", "wss-URI"),
    ("ni", "NI-URI"),
    ("coap", "coap-URI"),
    ("coap", "coaps-URI"),
    ("coap", "coap-tcp-URI"),
    ("file", "file-URI"),
    ("payto", "payto-URI"),
    ("secret-token", "secret-token-URI"),
    ("ipn", "ipn-uri"),
    ("ipps", "ipps-uri"),
    ("reload", "RELOAD-URI"),
    ("vnc", "vnc-uri"),
    ("urn", "assigned-name"),
]
FRAGMENT_ONLY = [
    ("tag", "tagURI", "tag:a,0000:#"),
    ("about", "about-uri", "about:#"),
    ("urn", "namestring", "urn:aa:a#"),
    ("llm", "llm-URI", "llm:///a#"),
    ("llm-loose", "llm-URI", "llm://#"),
    ("ai", "ai-uri", "ai:#"),
]
#: name, start, our shortest witness, one that others found
OUTSIDE = [
    ("tel", "telephone-uri", "tel:+0;a=[", "tel:+0;-=["),
    ("sms", "sms-uri", "sms:+0;a=[", "sms:+0;-=["),
    ("geo", "geo-URI", "geo:0,0;a=[", "geo:0,0;-=["),
    ("pkcs11", "pk11-URI", "pkcs11:a=[", "pkcs11:-=["),
    ("stun", "stunURI", "stun:[::]", "stun:[::]"),
    ("turn", "turnURI", "turn:[::]", "turn:[::]"),
    ("acct", "acctURI", "acct:a@[::]", "acct:!@[::]"),
    ("iax", "iax-uri", "iax:[::]", "iax:[::]"),
    ("dtn", "dtn-uri", 'dtn:///"', 'dtn:///"'),
    ("msrp", "MSRP-URI", "msrp://:;a", "msrp://:;0"),
    ("file-appendix", "file-URI", "file:a|/", "file:A|/"),
]
ALL = [*INCLUDED, *((name, start) for name, start, *_ in (*FRAGMENT_ONLY, *OUTSIDE)), ("xmpp", "xmppuri")]


@cache
def grammar(name: str) -> Grammar:
    return resolve(parse_grammar((GRAMMARS / f"{name}.abnf").read_text(encoding="utf-8")))


def is_absolute_uri(text: str) -> bool:
    return match(load_rfc3986(), "absolute-URI", text)


@as_subtests(("name", "start"), INCLUDED)
def test_a_published_grammar_is_included_in_absolute_uri(name: str, start: str) -> None:
    verdict = decide_inclusion(grammar(name), start)
    assert (verdict.outcome, verdict.witness, verdict.ok) == (Outcome.INCLUDED, None, True)


@pytest.mark.parametrize(("name", "start", "witness"), FRAGMENT_ONLY)
def test_a_grammar_whose_only_fault_is_the_fragment_is_told_so(name: str, start: str, witness: str) -> None:
    verdict = decide_inclusion(grammar(name), start)
    assert (verdict.outcome, verdict.witness, verdict.second) == (Outcome.FRAGMENT_ONLY, witness, None)
    assert match(grammar(name), start, witness)
    assert not is_absolute_uri(witness)
    assert match(load_rfc3986(), "URI", witness)
    assert not verdict.ok


@as_subtests(("name", "start", "witness", "other"), OUTSIDE)
def test_a_grammar_outside_has_the_shortest_witness(name: str, start: str, witness: str, other: str) -> None:
    verdict = decide_inclusion(grammar(name), start)
    assert (verdict.outcome, verdict.witness, verdict.second) == (Outcome.NOT_INCLUDED, witness, None)
    for each in (witness, other):
        assert match(grammar(name), start, each)
        assert not is_absolute_uri(each)
    assert len(witness) == len(other)


def test_after_a_witness_with_a_fragment_comes_one_without() -> None:
    verdict = decide_inclusion(grammar("xmpp"), "xmppuri")
    assert (verdict.outcome, verdict.witness, verdict.second) == (
        Outcome.NOT_INCLUDED,
        "xmpp:#",
        "xmpp:[::]",
    )


@pytest.mark.parametrize("name", ["llm", "ai"])
def test_without_its_fragment_a_draft_grammar_is_included(name: str) -> None:
    text = (GRAMMARS / f"{name}.abnf").read_text(encoding="utf-8").replace('[ "#" fragment ]', "")
    start = {"llm": "llm-URI", "ai": "ai-uri"}[name]
    assert decide_inclusion(resolve(parse_grammar(text)), start).ok


def test_every_grammar_file_says_where_it_is_from_and_is_tried() -> None:
    heads = {path.stem: path.read_text(encoding="utf-8").split("\n")[0] for path in GRAMMARS.glob("*.abnf")}
    assert {name for name, _ in ALL} == heads.keys()
    for name, head in heads.items():
        assert re.match(r"; (RFC \d{4}|draft-[a-z-]+-\d\d), .*start: [\w-]+\Z", head), name


# the second opinion: automata-lib over the same automata


def other(mine: NFA, shown: list[int], table: bytes) -> nfa.NFA:
    """Our automaton in automata-lib's words; a character of the alphabet is a class of octets."""
    symbols = [chr(0x100 + at) for at in range(len(shown))]
    transitions: dict[int, dict[str, set[int]]] = {}
    for state, (moves, jumps) in enumerate(zip(mine.moves, mine.jumps, strict=True)):
        out: dict[str, set[int]] = {"": set(jumps)} if jumps else {}
        for mask, to in moves:
            for at, octet in enumerate(shown):
                if mask >> octet & 1:
                    out.setdefault(symbols[at], set()).add(to)
        transitions[state] = out
    return nfa.NFA(
        states=set(range(len(mine.moves))),
        input_symbols=set(symbols),
        transitions=transitions,
        initial_state=0,
        final_states={1},
    )


@as_subtests(("name", "start"), ALL)
def test_automata_lib_gives_the_same_verdict(name: str, start: str) -> None:
    mine, absolute = build_rule_nfa(grammar(name), start), build_rule_nfa(load_rfc3986(), "absolute-URI")
    table, shown = classify_octets(mine.collect_masks() | absolute.collect_masks())
    theirs = dfa.DFA.from_nfa(other(mine, shown, table))
    standard = dfa.DFA.from_nfa(other(absolute, shown, table))
    verdict = decide_inclusion(grammar(name), start)
    assert (theirs <= standard) == verdict.ok
    if verdict.witness is not None:
        beyond = theirs - standard
        assert beyond.minimum_word_length() == len(verdict.witness)
        assert beyond.accepts_input("".join(chr(0x100 + table[octet]) for octet in verdict.witness.encode()))


@pytest.mark.parametrize(("rule", "states"), [("absolute-URI", 176), ("URI", 179)])
def test_the_fixed_automata_are_as_small_as_automata_lib_makes_them(rule: str, states: int) -> None:
    ours = build_rule_nfa(load_rfc3986(), rule)
    table, shown = classify_octets(ours.collect_masks())
    theirs = dfa.DFA.from_nfa(other(ours, shown, table), minify=True)
    mine = {"absolute-URI": build_absolute_uri_dfa, "URI": build_uri_dfa}[rule]()
    # theirs leaves out the state that accepts nothing
    assert (len(mine.rows) - 1, len(theirs.states)) == (states, states)
