"""Match, compare, examples, probes, reserved characters, start rules: answers about one grammar."""

from __future__ import annotations

import pytest

from onym.errors import GrammarError, UnknownEntryError, UsageError
from onym.registry.abnf import (
    PROBES,
    Comparison,
    Grammar,
    Outcome,
    Relation,
    build_matcher,
    compare,
    decide_inclusion,
    find_reserved,
    find_wrong_prefix,
    generate_examples,
    match,
    parse_grammar,
    probe_rule,
    resolve,
)
from onym.registry.abnf._analysis import MAX_EXAMPLES, MAX_STRING
from onym.registry.abnf._inclusion import load_rfc3986
from support import as_subtests, linear_enough

LOOSE = 'llm-URI = "llm:" "//" authority path-abempty [ "?" query ] [ "#" fragment ]'
STRICT = """\
llm-URI = "llm:" "//" llm-authority llm-path [ "?" query ] [ "#" fragment ]
llm-authority = [ userinfo "@" ] host [ ":" port ]
llm-path = "/" model-id *( "/" sub-path )
model-id = 1*( unreserved / pct-encoded / "." / "-" )
sub-path = 1*( unreserved / pct-encoded / "." / "-" )
"""
AI = 'ai-uri = "ai:" hier-part [ "?" query ] [ "#" fragment ]'


def grammar(text: str) -> Grammar:
    return resolve(parse_grammar(text))


# compare


def test_the_strict_llm_grammar_is_a_subset_of_the_loose_one() -> None:
    found = compare(grammar(STRICT), "llm-URI", grammar(LOOSE), "llm-URI")
    assert found == Comparison(relation=Relation.SUBSET, only_b="llm://", both="llm:///a")
    assert compare(grammar(LOOSE), "llm-URI", grammar(STRICT), "llm-URI") == Comparison(
        relation=Relation.SUPERSET, only_a="llm://", both="llm:///a"
    )


def test_a_narrower_userinfo_shows_in_the_comparison() -> None:
    narrow = STRICT + 'userinfo = label [ ":" label ]\nlabel = 1*( unreserved / pct-encoded )\n'
    found = compare(grammar(STRICT), "llm-URI", grammar(narrow), "llm-URI")
    assert (found.relation, found.only_a) == (Relation.SUPERSET, "llm://@/a")


@pytest.mark.parametrize(
    ("a", "b", "relation", "only_a", "only_b", "both"),
    [
        ('s = "a"', 's = "A"', Relation.EQUAL, None, None, "a"),
        ('s = %s"a"', 's = "a"', Relation.SUBSET, None, "A", "a"),
        ('s = "a" / "b"', 's = "b" / "c"', Relation.OVERLAP, "a", "c", "b"),
        ('s = "a"', 's = "b"', Relation.DISJOINT, "a", "b", None),
        ("s = %xD800", "s = %xD800", Relation.EQUAL, None, None, None),
        ("s = %xD800", "s = %xD801 %x41", Relation.EQUAL, None, None, None),
        ("s = %xD800", 's = "b"', Relation.SUBSET, None, "b", None),
        ('s = *"a"', 's = *( "a" / "aa" ) ', Relation.EQUAL, None, None, ""),
    ],
)
def test_two_languages_are_equal_within_beside_or_apart(
    a: str, b: str, relation: Relation, only_a: str | None, only_b: str | None, both: str | None
) -> None:
    found = compare(grammar(a), "s", grammar(b), "s")
    assert found == Comparison(relation=relation, only_a=only_a, only_b=only_b, both=both)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('s = "a" [ s ]', "abnf.recursive"),
        ("s = nowhere-to-be-found", "abnf.undefined-rule"),
        ("s = <words>", "abnf.prose"),
        ('s = 999999("a")', "abnf.too-large"),
    ],
)
def test_what_cannot_be_decided_is_refused_and_never_a_pass(text: str, code: str) -> None:
    one, other = grammar(text), grammar('s = "a"')
    for ask in (
        lambda: compare(one, "s", other, "s"),
        lambda: compare(other, "s", one, "s"),
        lambda: match(one, "s", "a"),
        lambda: generate_examples(one, "s", 3),
        lambda: find_wrong_prefix(one, "s", "a"),
        lambda: find_reserved(one, "s"),
    ):
        with pytest.raises(GrammarError) as caught:
            ask()
        assert caught.value.code == code
    assert not decide_inclusion(one, "s").decided
    assert not decide_inclusion(one, "s").ok
    assert not probe_rule(one, "s").decided


def test_recursion_is_told_by_its_ring() -> None:
    verdict = decide_inclusion(grammar('s = "a:" t\nt = [ u ]\nu = "(" t ")"'), "s")
    assert verdict.outcome is Outcome.RECURSIVE
    assert verdict.problem is not None
    assert verdict.problem.code == "abnf.recursive"
    assert "t > u > t" in verdict.problem.message


def test_a_rule_without_strings_is_an_outcome_of_its_own() -> None:
    verdict = decide_inclusion(grammar("s = %xD800"), "s")
    assert (verdict.outcome, verdict.ok, verdict.decided) == (Outcome.EMPTY, False, True)
    assert generate_examples(grammar("s = %xD800"), "s", 3) == []


def test_a_start_rule_that_does_not_exist_is_unknown() -> None:
    for ask in (decide_inclusion, probe_rule, find_reserved, build_matcher):
        with pytest.raises(UnknownEntryError):
            ask(grammar(AI), "nothing")


# match


def test_the_examples_of_the_llm_draft_are_in_its_grammar() -> None:
    of_llm = build_matcher(grammar(STRICT), "llm-URI")
    for uri in (
        "llm://api.openai.com/gpt-5?temp=0.7&max_tokens=1500",
        "llm://my-app:sk-proj-abc123@api.openai.com/gpt-5",
        "LLM://localhost:11434/mistral?format=json&temp=0#code-review",
    ):
        assert of_llm(uri)
    for uri in ("llm://localhost/llama3:8b", "llm://", "llm:///", "llm://h/a\n", ""):
        assert not of_llm(uri)


def test_a_string_beyond_the_cap_is_refused() -> None:
    every = build_matcher(grammar("s = *OCTET"), "s")
    assert every("a" * MAX_STRING)
    with pytest.raises(GrammarError) as caught:
        every("a" * (MAX_STRING + 1))
    assert caught.value.code == "abnf.too-large"


def test_a_match_that_takes_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._analysis.MAX_STEPS", 100)
    with pytest.raises(GrammarError, match=r"\b100\b") as caught:
        match(grammar("s = *( *ALPHA *ALPHA )"), "s", "ab" * 100)
    assert caught.value.code == "abnf.too-large"


def test_the_steps_of_a_match_count_moves_and_not_states_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._analysis.MAX_STEPS", 1_000)
    many = " / ".join(
        f'"{first}{second}{third}"' for first in "ab" for second in "ab" for third in range(300)
    )
    with pytest.raises(GrammarError, match=r"\b1,000\b") as caught:
        match(grammar(f"s = *( {many} )"), "s", "aa1")
    assert caught.value.code == "abnf.too-large"


def test_states_that_were_seen_before_cost_one_step_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._analysis.MAX_STEPS", 3_000)
    assert match(grammar('s = *( "a" / "bc" / 2"d" )'), "s", "a" * 2_000)


def test_states_are_forgotten_where_they_grow_beyond_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._analysis._MAX_KEPT", 10)
    many = build_matcher(grammar('s = *( *"a" *"b" 3"c" )'), "s")
    assert many("abcccabcccaaaccc")
    assert not many("abcccabcccaaacc")


def test_steps_given_to_a_matcher_are_for_all_its_strings() -> None:
    every = build_matcher(grammar("s = *ALPHA"), "s", steps=100)
    assert every("a" * 50)
    for text in ("a" * 60, "a"):
        with pytest.raises(GrammarError, match=r"\b100\b") as caught:
            every(text)
        assert caught.value.code == "abnf.too-large"


def test_a_lone_surrogate_is_in_no_language() -> None:
    for text in ("\udcff", "\ud800", "a\udc80"):
        assert not match(grammar("s = *OCTET"), "s", text)
    assert match(grammar("s = 3OCTET"), "s", b"\xed\xb3\xbf")


# examples


def test_examples_are_in_the_grammar_and_the_same_for_the_same_seed() -> None:
    llm = grammar(STRICT)
    found = generate_examples(llm, "llm-URI", 50)
    of_llm = build_matcher(llm, "llm-URI")
    assert found[0] == "llm:///a"
    assert len(set(found)) == 50
    assert all(of_llm(uri) for uri in found)
    assert found == generate_examples(llm, "llm-URI", 50)
    assert found[1:] != generate_examples(llm, "llm-URI", 50, seed=1)[1:]
    assert found[:10] == generate_examples(llm, "llm-URI", 10)


def test_examples_take_every_alternative_before_any_again() -> None:
    text = "s = " + " / ".join(f'"{at}x"' for at in range(20))
    assert len(generate_examples(grammar(text), "s", 20)) == 20


def test_a_language_with_few_strings_gives_them_all() -> None:
    assert sorted(generate_examples(grammar('s = ["a"] %s"b"'), "s", 10)) == ["ab", "b"] or {
        example.lower() for example in generate_examples(grammar('s = ["a"] %s"b"'), "s", 10)
    } == {"ab", "b"}


def test_strings_that_are_no_utf8_or_too_long_are_no_examples() -> None:
    assert generate_examples(grammar("s = %xFF"), "s", 3) == []
    assert generate_examples(grammar('s = 5000"a"'), "s", 3) == []
    assert generate_examples(grammar('s = 100( 100"a" )'), "s", 3) == []
    assert generate_examples(grammar('s = 5000( "" )'), "s", 3) == [""]
    assert generate_examples(grammar('s = "b" / "a" *%xD800'), "s", 9)[0] in ("a", "b")


def test_a_shortest_string_that_is_no_utf8_keeps_no_other_from_being_an_example() -> None:
    found = generate_examples(grammar("s = %x80-FF / 2ALPHA"), "s", 5)
    assert len(found) == 5
    assert all(len(example) == 2 for example in found)


def test_a_thousand_examples_of_a_long_alternation_are_soon_made() -> None:
    strings = (f"%x{at // 200 + 33:X}.{at // 15 % 14 + 48:X}.{at % 15 + 60:X}" for at in range(16_000))
    many = grammar("s = " + "/".join(strings))
    with linear_enough(15):
        found = generate_examples(many, "s", MAX_EXAMPLES)
    assert len(found) == MAX_EXAMPLES


@pytest.mark.parametrize("count", [0, -1, MAX_EXAMPLES + 1])
def test_a_count_of_examples_beyond_its_bounds_is_refused(count: int) -> None:
    with pytest.raises(UsageError):
        generate_examples(grammar(AI), "ai-uri", count)


# probes


def test_the_probes_of_both_drafts_are_as_measured() -> None:
    llm = probe_rule(grammar(STRICT), "llm-URI")
    ai = probe_rule(grammar(AI), "ai-uri")
    assert dict(llm.found) == {
        "bare-scheme": None,
        "empty-host": "llm:///a",
        "password": "llm://:@/a",
        "dot-segments": "llm:///.",
        "empty-port": "llm://:/a",
        "encoded-slash": "llm:///%2f",
        "encoded-octet": "llm:///%ff",
        "fragment": "llm:///a#",
        "improper-slashes": None,
    }
    assert dict(ai.found) == {
        "bare-scheme": "ai:",
        "empty-host": "ai://",
        "password": "ai://:@",
        "dot-segments": "ai:.",
        "empty-port": "ai://:",
        "encoded-slash": "ai:%2f",
        "encoded-octet": "ai:%ff",
        "fragment": "ai:#",
        "improper-slashes": None,
    }
    assert llm.decided
    assert not llm.admits("bare-scheme")
    assert ai.admits("bare-scheme")
    assert list(ai.found) == [probe.id for probe in PROBES]


def test_slashes_before_no_authority_are_found() -> None:
    found = probe_rule(grammar('s = "x:" *( "/" / "a" / "|" )'), "s").found
    assert found["improper-slashes"] == "x://|"
    assert found["empty-host"] == "x://"
    narrow = grammar('s = "x://" 1*ALPHA "/" 1*ALPHA')
    assert set(probe_rule(narrow, "s").found.values()) == {None}


# S2: the scheme's name


def test_a_string_that_begins_otherwise_is_shown() -> None:
    text = grammar('s = "coap" [ "s" ] ":" *pchar')
    assert find_wrong_prefix(text, "s", "coap") == "coaps:"
    assert find_wrong_prefix(grammar(STRICT), "llm-URI", "llm") is None
    assert find_wrong_prefix(grammar(STRICT), "llm-URI", "LLM") is None
    assert find_wrong_prefix(grammar("s = *ALPHA"), "s", "llm") == ""


@as_subtests(
    ("text", "scheme", "start"),
    [
        (STRICT, "llm", "llm-URI"),
        (STRICT, "LLM", "llm-URI"),
        (STRICT, "ai", None),
        ('u = name ":" *pchar\nname = "geo"', "geo", "u"),
        ('u = scheme ":" host\nscheme = "stun" / "stuns"', "stuns", "u"),
        ('u = %x61.69 ":" host', "ai", "u"),
        ('u = 1"ai" ":" host', "ai", "u"),
        ('u = *"ai" ":" host', "ai", None),
        ('u = <ai> ":"\nv = "x" / %x41-42', "ai", None),
        ('a = "x:1"\nx-uri = "x:2"\nb = "x:3" a x-url\nx-url = "x:4"', "x", "x-uri"),
        ('part = "x:1"\nwhole = part "2"', "x", "whole"),
        ('u = u ":"', "u", None),
        ('u = "ab" "cd" / *"x"', "ab", None),
        ('u = ( "a" / "b" / "c" ) ":"', "c", "u"),
        ("u = ( " + " / ".join(f'"a{at}"' for at in range(90)) + ' ) ":"', "a1", None),
        ("u = " + " ".join(['( "a" / "b" )'] * 10) + ' ":"', "aaaaaaaaaa", None),
    ],
)
def test_the_start_rule_is_the_one_that_begins_with_the_name(
    text: str, scheme: str, start: str | None
) -> None:
    assert grammar(text).start(scheme) == start


@pytest.mark.parametrize(
    ("text", "schemes"),
    [
        (STRICT, ("llm",)),
        ('u = scheme ":" host\nscheme = "stun" / "stuns"', ("stun", "stuns")),
        ('u = "Kite" ; the name\n  ":" *pchar', ("kite",)),
        ('u = %x6B.69.74.65 ":" *pchar', ("kite",)),
        ('time = hour ":" 2DIGIT\nhour = 2DIGIT\nport = ":" *DIGIT\nodd = "1a:" / "a b:"', ()),
        ('a-URI = "a:" *pchar\nb-URI = "b:" *pchar', ("a", "b")),
        ("u = *pchar", ()),
        ("u = ftp-like\nftp-like = absolute-URI", ()),
    ],
)
def test_the_schemes_of_a_grammar_are_those_that_its_own_rules_begin_with(
    text: str, schemes: tuple[str, ...]
) -> None:
    assert grammar(text).schemes == schemes


def test_a_start_rule_is_never_an_imported_or_a_broken_one() -> None:
    from onym.registry.abnf import parse_blocks
    from onym.registry.documents.types import Block

    assert parse_blocks([Block(text="u = |\nv = %x", line=1)]).start("u") is None


# S5: reserved characters


def test_reserved_characters_are_found_component_by_component() -> None:
    found = {
        (reserved.character, reserved.component): reserved.witness
        for reserved in find_reserved(grammar(STRICT), "llm-URI")
    }
    of = build_matcher(grammar(STRICT), "llm-URI")
    assert all(of(witness) for witness in found.values())
    assert {component for character, component in found if character == "@"} == {
        "authority",
        "query",
        "fragment",
    }
    assert (":", "path") not in found
    assert found["[", "authority"] == "llm://[::]/a"
    assert ("#", "fragment") not in found


def test_a_slash_and_a_colon_in_a_path_are_data() -> None:
    found = {
        (reserved.character, reserved.component): reserved.witness
        for reserved in find_reserved(grammar('s = "x:" path-rootless / "y:" path-absolute'), "s")
    }
    assert found[":", "path"] == "x::"
    assert found["/", "path"] == "y:/"
    assert ("/", "authority") not in found
    slashes = find_reserved(grammar('s = "x://" *( "/" / ";" )'), "s")
    assert [(reserved.character, reserved.component, reserved.witness) for reserved in slashes] == [
        ("/", "path", "x:///"),
        (";", "authority", "x://;"),
        (";", "path", "x:///;"),
    ] or {(reserved.character, reserved.component) for reserved in slashes} == {
        ("/", "path"),
        (";", "authority"),
        (";", "path"),
    }


# printing


def test_witnesses_are_safe_to_print() -> None:
    assert decide_inclusion(grammar("s = %x1B.07 %xFF"), "s").witness == "\\x1b\\x07\\xff"
    assert decide_inclusion(grammar("s = %x202E"), "s").witness == "\\u202e"
    assert decide_inclusion(grammar("s = %xE9.300"), "s").witness is not None


def test_the_generic_grammar_is_included_in_itself() -> None:
    assert decide_inclusion(load_rfc3986(), "absolute-URI").ok
    assert decide_inclusion(load_rfc3986(), "URI").outcome is Outcome.FRAGMENT_ONLY


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ('2*( 1*( %s"a" ) )', {2, 3, 4}),
        ('1*( 2*( %s"a" ) )', {2, 3, 4}),
        ('2*( *( %s"a" ) )', {0, 1, 2, 3, 4}),
        ('*( 1*( %s"a" ) )', {0, 1, 2, 3, 4}),
        ('2*( 2*( %s"a" ) )', {4}),
        ('3*( 1*2( %s"a" ) )', {3, 4}),
    ],
)
def test_a_repeat_of_a_repeat_counts_both(rule: str, counts: set[int]) -> None:
    grammar = parse_grammar(f"s = {rule}")
    assert {count for count in range(5) if match(grammar, "s", "a" * count)} == counts
