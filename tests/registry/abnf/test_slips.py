"""What is meant as a rule and is none, rules broken over lines, and `=/` on rules of other RFCs."""

from __future__ import annotations

import pytest

from onym.errors import GrammarError
from onym.registry.abnf import Outcome, RemarkCode, decide_inclusion, match, parse_grammar, resolve
from onym.registry.abnf._parser import Chunk, parse_rule
from onym.registry.checks import load_document, load_grammar


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('s ::= "x"', '"=", not "::="'),
        ('s : "x"', 'by "="'),
        ('s := "x"', 'by "="'),
        ('s -> "x"', 'by "="'),
        ('s_t = "x"', 'write "-" for "_"'),
        ('1s = "x"', "begins with a letter"),
        ('-s = "x"', "begins with a letter"),
        ('\u00e9t\u00e9 = "x"', "ASCII letters"),
    ],
)
def test_a_line_that_was_meant_as_a_rule_is_answered_with_what_to_write(text: str, said: str) -> None:
    for whole in (text, f'a = "b"\n\n{text}\n'):
        with pytest.raises(GrammarError) as caught:
            parse_grammar(whole)
        assert caught.value.hint is not None
        assert said in caught.value.hint
        assert caught.value.line == len(whole.rstrip().split("\n"))


def test_plain_words_are_answered_with_what_a_rule_is() -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar("these are words")
    assert caught.value.hint == "a rule is `name = elements`"


@pytest.mark.parametrize(
    "text", ['s\n  = "x"', 's ; the start\n\t=\n\t"x"', 'a = b\ns\n   =/ "x"\nb = "y"', '\ufeffs = "x"']
)
def test_the_sign_of_a_definition_may_stand_on_the_next_line(text: str) -> None:
    assert match(parse_grammar(text), "s", "x")


def test_a_name_alone_before_an_element_is_still_an_element() -> None:
    assert match(parse_grammar('s = "x"\n  t\nt = "y"'), "s", "xy")


def test_alternatives_are_added_to_a_rule_of_another_rfc() -> None:
    # as RFC 6532 3.1 does
    grammar = resolve(parse_grammar('s = "a:" 1*VCHAR\nVCHAR =/ %xA0-D7FF'))
    assert match(grammar, "s", "a:b\u00e9")
    assert not match(grammar, "s", "a: ")
    assert any(each.code is RemarkCode.IMPORTED and each.rule == "VCHAR" for each in grammar.remarks)


def test_alternatives_added_to_nothing_are_remarked() -> None:
    grammar = parse_grammar('s = hots\nhosts = "x"\nhots =/ "y"')
    (remark,) = grammar.remarks
    assert (remark.code, remark.rule, remark.line, remark.column) == (RemarkCode.UNDEFINED, "hots", 3, 1)
    assert match(grammar, "s", "y")


def test_a_grammar_whose_only_rule_is_broken_is_answered_with_the_fault() -> None:
    with pytest.raises(GrammarError) as caught:
        load_grammar(load_document('a-uri = "a:\n'))
    assert (caught.value.code, caught.value.line, caught.value.column) == ("abnf.syntax", 1, 9)


@pytest.mark.parametrize("text", ["<a = b>", "<a = b", "a> = b", 'z = "k:"\n\na> = "b"'])
def test_one_angle_bracket_alone_names_no_rule(text: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar(text)
    assert caught.value.line == len(text.split("\n"))
    assert "both" in (caught.value.hint or "")


def test_a_line_with_one_angle_bracket_never_ends_a_rule_silently() -> None:
    grammar = parse_grammar('s = "k:" "a"\n<a = b>')
    assert list(grammar.rules) == ["s"]
    assert decide_inclusion(resolve(grammar), "s").outcome is Outcome.PROSE


def test_a_rule_without_its_sign_is_refused_at_its_place() -> None:
    for text, column in (("a b", 3), ("a", 1)):
        with pytest.raises(GrammarError) as caught:
            parse_rule(Chunk(name="a", text=text, line=4))
        assert (caught.value.code, caught.value.line, caught.value.column) == ("abnf.syntax", 4, column)


@pytest.mark.parametrize("text", ['1a = "x"', '\u00e9 = "a"', "only words", '; why\n  1a = "x"'])
def test_a_text_without_rules_is_answered_with_line_and_column(text: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_grammar(text)
    last = text.split("\n")[-1]
    assert caught.value.code == "abnf.none"
    assert (caught.value.line, caught.value.column) == (
        len(text.split("\n")),
        len(last) - len(last.lstrip()) + 1,
    )


@pytest.mark.parametrize(
    ("text", "string"),
    [
        ('s = "a" / t ; see [Page 3]\nt = "b"', "b"),
        ('s = "a"\n      / "b" ; as on [Page 3]', "b"),
        ('s = "a"\n      "b" ; as on [Page 3]', "ab"),
        ('s = "a"\nRFC-1 = "b" ; January 2005\nRFC 1234   Kites   January 2005\n  / "c"', "a"),
    ],
)
def test_a_comment_that_names_a_page_is_no_running_foot(text: str, string: str) -> None:
    assert match(parse_grammar(text), "s", string)


def test_a_rule_line_that_ends_as_a_running_foot_is_told_and_never_dropped() -> None:
    for text in ('s = "a"\nt = "b" [Page 3]', 's = "a"\n  / "b" [Page 3]', 's = "a"\n/ "b" [Page 3]'):
        with pytest.raises(GrammarError) as caught:
            parse_grammar(text)
        assert (caught.value.code, caught.value.line) == ("abnf.syntax", 2)
