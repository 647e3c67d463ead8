"""ABNF from text: every form of RFC 5234 and RFC 7405, what drafts do to it, and faults at their place."""

from __future__ import annotations

import pytest

from onym.errors import GrammarError, UnknownEntryError
from onym.registry.abnf import (
    Alternation,
    Literal,
    Range,
    RemarkCode,
    Rule,
    Series,
    match,
    parse_blocks,
    parse_grammar,
)
from onym.registry.documents.types import Block
from support import as_subtests


def takes(text: str, *strings: str, start: str = "s") -> list[str]:
    """Which of the strings the rule takes."""
    grammar = parse_grammar(text)
    return [each for each in strings if match(grammar, start, each)]


@as_subtests(
    ("text", "yes", "no"),
    [
        ('s = "ab"', ["ab", "AB", "aB"], ["a", "abc", ""]),
        ('s = %i"ab"', ["ab", "AB"], ["a"]),
        ('s = %s"aB"', ["aB"], ["ab", "AB"]),
        ('s = %S"a"', ["a"], ["A"]),
        ("s = %x61", ["a"], ["A"]),
        ("s = %X6A-6b", ["j", "k"], ["J", "l"]),
        ("s = %d97.98.99", ["abc"], ["ABC", "ab"]),
        ("s = %b1100001", ["a"], ["b"]),
        ("s = %x41-43", ["A", "B", "C"], ["D", "a"]),
        ('s = ""', [""], ["a"]),
        ('s = "a" / "b" "c"', ["a", "bc"], ["ac", "b"]),
        ('s = ("a" / "b") "c"', ["ac", "bc"], ["a"]),
        ('s = ["a"] "b"', ["ab", "b"], ["a"]),
        ('s = *"a"', ["", "aaa"], ["b"]),
        ('s = 1*"a"', ["a", "aa"], [""]),
        ('s = 2"a"', ["aa"], ["a", "aaa"]),
        ('s = 2*"a"', ["aa", "aaa"], ["a"]),
        ('s = 1*2"a"', ["a", "aa"], ["", "aaa"]),
        ('s = *2"a"', ["", "aa"], ["aaa"]),
        ('s = 0"a" "b"', ["b"], ["ab"]),
        ("s = 0<pchar>", [""], ["p"]),
        ('s = 0*0"a"', [""], ["a"]),
        ('s = 0#"a"', [""], []),
        ("s = a\nA = %x62", ["b"], ["a"]),
        ("<s> = t ; <t> is a rule\n<t> = %x62", ["b"], ["s"]),
        ('s = "a"\ns =/ "b" / "c"\nS =/ "d"', ["a", "b", "c", "d"], ["ab"]),
        ('s =/ "a"', ["a"], []),
        ('s="a"/"b"', ["a", "b"], []),
        ('s = "a" ; "b"\n    "c" ; more', ["ac"], ["a", "abc"]),
        ('\ts\t=\t"a"\r\n\t"b"\r\n', ["ab"], []),
        ("s = %xA0-D7FF", ["\u00a0", "\u07ff", "\u0800", "\ud7ff"], ["\u009f", "\ue000"]),
        ("s = %x20-110", ["a", "\u0080", "\u0110"], ["\u0111", "\x1f"]),
        ("s = %x10000-10FFFF", ["\U00010000", "\U0010ffff"], ["\uffff"]),
        ("s = %x105-142", ["\u0105", "\u0142"], ["\u0104", "\u0143"]),
        ("s = %x105-1FF", ["\u0105", "\u01ff"], ["\u0104", "\u0200"]),
        ('s = "b" / "a" %xD800', ["b"], ["a"]),
        ("s = %x1F600", ["\U0001f600"], ["\U0001f601"]),
        ("s = %xE000-FFFF", ["\ue000", "\uffff"], ["\ud7ff"]),
    ],
)
def test_every_form_of_abnf_has_its_strings(text: str, yes: list[str], no: list[str]) -> None:
    assert takes(text, *yes, *no) == yes


def test_octets_beyond_ascii_are_octets_up_to_xff() -> None:
    grammar = parse_grammar("s = %x80-FF")
    assert match(grammar, "s", b"\xff")
    assert not match(grammar, "s", "\u00ff")
    assert match(parse_grammar("s = 2OCTET\nOCTET = %x00-FF"), "s", "\u00ff")


def test_a_range_of_surrogates_has_no_strings() -> None:
    grammar = parse_grammar("s = %xD800-DFFF")
    assert not match(grammar, "s", "")
    assert not match(grammar, "s", "\ud800")


@as_subtests(
    ("text", "line", "column", "words"),
    [
        ('s = "a" | "b"', 1, 9, '"/", not "|"'),
        ('s = "a"\n  {b}', 2, 3, "*( ... )"),
        ("s = 'a'", 1, 5, "double quotes"),
        ("s = a_b", 1, 6, 'write "-"'),
        ("s = \u201ca\u201d", 1, 5, "straight"),
        ('s = "a', 1, 5, "not closed"),
        ("s = <a", 1, 5, "not closed"),
        ("s = %q1", 1, 5, "%x, %d or %b"),
        ("s = a+", 1, 6, "1*"),
        ("s = a, b", 1, 6, "comma"),
        ("s = a.", 1, 6, "full stop"),
        ("s = a!", 1, 6, "no meaning"),
        ("s = a\x07", 1, 6, "U+0007"),
        ("s =", 1, 3, "no elements"),
        ("s = ; nothing", 1, 3, "no elements"),
        ("s = a /", 1, 7, "missing"),
        ("s = / a", 1, 5, "missing"),
        ("s = ()", 1, 6, "missing"),
        ("s = (a", 1, 5, "is not closed"),
        ("s = [a)", 1, 5, "is not closed"),
        ("s = a)", 1, 6, "closes nothing"),
        ("s = a]", 1, 6, "closes nothing"),
        ("s = a b = c", 1, 9, "second ="),
        ("s = a =/ c", 1, 7, "second =/"),
        ("s = 2", 1, 5, "no element"),
        ("s = *", 1, 5, "no element"),
        ("s = * / a", 1, 7, "no element"),
        ("s = 2 3 a", 1, 7, "two repeat numbers"),
        ("s = ** a", 1, 6, "no element"),
        ("s = 3*2a", 1, 5, "below its begin"),
        ("s = %x42-41", 1, 5, "below its begin"),
        ("s = %d4A", 1, 5, "digit"),
        ("s = %x110000", 1, 5, "Unicode"),
        ('s = "a\u00e9"', 1, 7, "%xE9"),
        ('s = %s"\t"', 1, 8, "%x9"),
    ],
)
def test_a_fault_is_told_with_line_and_column(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert error.field == "s"
    assert words in str(error)
    assert error.code == "abnf.syntax"


def test_places_count_from_the_line_that_the_caller_names() -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar('s = "a"\n\nt = |', line=41)
    assert (caught.value.line, caught.value.column, caught.value.field) == (43, 5, "t")
    rule = parse_grammar('\n   s = "a"', line=7, section="3.1").rule("S")
    assert (rule.line, rule.column, rule.section, rule.name) == (8, 4, "3.1", "s")


@pytest.mark.parametrize("text", ["", "\n\n", "; a comment\n", "only words"])
def test_text_without_rules_is_refused(text: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar(text)
    assert caught.value.code == "abnf.none"


def test_words_between_rules_are_refused_where_abnf_alone_is_read() -> None:
    text = 's = "a"\n\nWhere a is a letter.\n\nt = "b"'
    with pytest.raises(GrammarError) as caught:
        parse_grammar(text)
    assert (caught.value.line, caught.value.column, caught.value.code) == (3, 1, "abnf.syntax")
    grammar = parse_blocks([Block(text=text, line=1)])
    assert list(grammar.rules) == ["s", "t"]
    assert [(each.code, each.line) for each in grammar.remarks] == [(RemarkCode.IGNORED_TEXT, 3)]


def test_lost_indentation_and_page_breaks_do_no_harm() -> None:
    text = (
        's = "a"\n"b" t\n\nLevy Expires 10 August 2026 [Page 4]\n\f\n'
        "Internet-Draft LLM URI Scheme February 2026\n\n/ t\n t = %x63\u00b6\n"
    )
    assert takes(text, "abc", "c", "ab") == ["abc", "c"]


def test_indented_rules_may_begin_at_any_column() -> None:
    assert takes('   s = t\n       / "b"\n     t = "a"\n', "a", "b") == ["a", "b"]


def test_after_an_empty_line_a_rule_goes_on_where_it_is_indented() -> None:
    assert takes(' s = "a" /\n\n     "b"\n\n   "c"', "a", "bc", "b") == ["a", "bc"]


@pytest.mark.parametrize(
    ("text", "code", "column", "string"),
    [
        ('s = 1#"a"', RemarkCode.LIST_OPERATOR, 5, "a , a"),
        ('s = #"a"', RemarkCode.LIST_OPERATOR, 5, ""),
        ('s = 2#3"a"', RemarkCode.LIST_OPERATOR, 5, "a,a\t,a"),
        ('s = 1 * "a"', RemarkCode.SPACED_REPEAT, 5, "aa"),
        ('s = 1* "a"', RemarkCode.SPACED_REPEAT, 5, "aa"),
        ('s = 2 "a"', RemarkCode.SPACED_REPEAT, 5, "aa"),
    ],
)
def test_what_is_not_abnf_and_is_understood_is_remarked(
    text: str, code: RemarkCode, column: int, string: str
) -> None:
    grammar = parse_grammar(text, line=3, section="2")
    assert match(grammar, "s", string)
    assert not match(grammar, "s", "a,a,a,a,")
    remark = grammar.remarks[0]
    assert (remark.code, remark.rule, remark.line, remark.column) == (code, "s", 3, column)
    assert remark.section == "2"


def test_two_spellings_of_four_digits_differ_as_the_rfc_says() -> None:
    assert takes('s = 4d\nd = "1"', "1111", "11111") == ["1111"]
    assert takes('s = 4*d\nd = "1"', "1111", "11111") == ["1111", "11111"]


def test_the_last_of_two_definitions_is_in_force_and_both_are_kept() -> None:
    blocks = [
        Block(text='s = "loose"', line=10, section="3.1"),
        Block(text='s = "strict"\nt = s', line=20, section="3.2"),
    ]
    grammar = parse_blocks(blocks)
    assert match(grammar, "t", "strict")
    assert [(each.section, each.line) for each in grammar.others] == [("3.1", 10)]
    assert grammar.sections == {"s": ("3.2", "3.1")}
    remark = grammar.remarks[0]
    assert (remark.code, remark.line, remark.section) == (RemarkCode.REPEATED, 10, "3.1")
    assert "other elements" in remark.message
    assert not match(grammar, "t", "loose")


def test_a_definition_in_an_appendix_loses_against_the_body() -> None:
    body, appendix = Block(text='s = "a"', line=1, section="2"), Block(text='s = "b"', line=9, section="F")
    assert match(parse_blocks([body, appendix]), "s", "a")
    twice = parse_blocks([appendix, Block(text='s = "c"', line=12, section="Appendix G.1")])
    assert match(twice, "s", "c")


def test_the_same_definition_again_is_told_as_such() -> None:
    grammar = parse_blocks([Block(text='s = "a" / b', line=1), Block(text='s="a"/b', line=5)])
    assert "same elements" in grammar.remarks[0].message
    assert "line 5" in grammar.remarks[0].message


def test_a_document_is_read_on_after_a_broken_rule() -> None:
    grammar = parse_blocks([Block(text='s = t u\nt = "a" \'b\'\nu = "c"\nt =/ "d"\nv =/ |', line=4)])
    assert [(each.line, each.field) for each in grammar.problems] == [(5, "t"), (8, "v")]
    assert grammar.rule("t").node is None
    with pytest.raises(GrammarError) as caught:
        match(grammar, "s", "ac")
    assert (caught.value.code, caught.value.field, caught.value.line) == ("abnf.broken-rule", "t", 5)
    assert match(grammar, "u", "c")


def test_a_broken_addition_leaves_no_half_of_a_rule() -> None:
    grammar = parse_blocks([Block(text='s = "a"\ns =/ |', line=1)])
    assert grammar.rule("s").node is None


def test_a_rule_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(UnknownEntryError) as caught:
        parse_grammar('s = "a"').rule("nothing")
    assert caught.value.code == "abnf.no-rule"
    assert "s" in (caught.value.hint or "")


def test_prose_is_remarked_where_it_is_the_whole_rule() -> None:
    remarks = parse_grammar('s = <any word>\nt = "a" <words>').remarks
    assert [(each.code, each.rule) for each in remarks] == [(RemarkCode.PROSE, "s")]


def test_a_rule_keeps_its_text_and_its_nodes() -> None:
    grammar = parse_grammar('s = "a" /\n    %x41-5A / %d13.10 ; end')
    rule = grammar.rule("s")
    assert rule.text == 's = "a" /\n    %x41-5A / %d13.10 ; end'
    assert rule == Rule(
        name="s",
        node=Alternation(items=(Literal(text="a"), Range(first=65, last=90), Series(values=(13, 10)))),
    )
    assert isinstance(rule.node, Alternation)
    assert [(each.line, each.column) for each in rule.node.items] == [(1, 5), (2, 5), (2, 15)]
