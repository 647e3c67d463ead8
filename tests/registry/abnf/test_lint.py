"""Remarks on rules: each kind once, at its place, and none on a grammar that deserves none."""

from __future__ import annotations

import pytest

from onym.errors import UnknownEntryError
from onym.registry.abnf import Remark, RemarkCode, lint, parse_blocks, resolve
from onym.registry.documents.types import Block
from support import linear_enough


def told(text: str, *codes: RemarkCode, start: str | None = None) -> list[Remark]:
    grammar = resolve(parse_blocks([Block(text=text, line=1)]))
    return [remark for remark in lint(grammar, start=start) if remark.code in codes or not codes]


def test_a_clean_grammar_has_remarks_on_its_imports_alone() -> None:
    found = told('x-uri = "x:" 1*ALPHA [ "?" query ]')
    assert {remark.code for remark in found} == {RemarkCode.IMPORTED}


def test_undefined_names_are_told_once_with_their_place() -> None:
    found = told('s = "x:" a\n  b a', RemarkCode.UNDEFINED)
    assert [(remark.rule, remark.line, remark.column) for remark in found] == [("a", 1, 10), ("b", 2, 3)]
    assert "RFC nnnn" in (found[0].fix or "")


def test_unused_rules_are_told_and_the_scheme_rule_is_not() -> None:
    found = told('a = "1"\nx-uri = "x:" b\nb = "2"\nc = c', RemarkCode.UNUSED)
    assert [remark.rule for remark in found] == ["a", "c"]
    assert told("a = b\nb = %x41", RemarkCode.UNUSED) == []


def test_unreachable_rules_are_told_where_a_start_is_given() -> None:
    text = 'x-uri = "x:" b\nb = "2"\nc = d\nd = c'
    assert [remark.rule for remark in told(text, RemarkCode.UNREACHABLE, start="X-URI")] == ["c", "d"]
    with pytest.raises(UnknownEntryError):
        told(text, start="nothing")


def test_recursive_rules_are_told_with_their_ring() -> None:
    text = 's = "x:" a e\na = [ b ]\nb = "(" a ")" / c\nc = "c"\nd = "d" [ d ]\ne = a d'
    found = told(text, RemarkCode.RECURSIVE)
    assert [remark.rule for remark in found] == ["a", "b", "d"]
    assert "through b" in found[0].message
    assert "through" not in found[2].message
    imported = told('s = "x:" addr-spec', RemarkCode.RECURSIVE)
    assert imported == []


def test_a_rule_redefined_with_other_strings_is_told_with_a_witness() -> None:
    text = (
        'x-uri = scheme ":" unreserved port pct-encoded\nscheme = "x"\n'
        'unreserved = ALPHA / DIGIT / "!"\nport = *DIGIT\npct-encoded = "%" 2HEXDIG'
    )
    found = told(text, RemarkCode.REDEFINED)
    assert [remark.rule for remark in found] == ["scheme", "unreserved"]
    assert (found[0].witness, found[1].witness) == ("a", "!")
    assert "RFC 3986" in found[0].message
    core = told("x = ALPHA\nALPHA = %x61-7A", RemarkCode.REDEFINED)
    assert [remark.witness for remark in core] == ["A"]
    assert "RFC 5234" in core[0].message


def test_an_import_under_another_name_is_told_as_another_rule() -> None:
    text = 'ws-uri = "ws:" "//" host path\npath = <path-abempty, see [RFC3986]>\nhost = <host, see [RFC3986]>'
    found = told(text, RemarkCode.REDEFINED)
    assert [remark.rule for remark in found] == ["path"]


def test_a_redefinition_that_cannot_be_compared_is_told_so() -> None:
    found = told('x = "x:" path\npath = *( "/" path )', RemarkCode.UNDECIDED, RemarkCode.REDEFINED)
    assert [(remark.code, remark.rule) for remark in found] == [(RemarkCode.UNDECIDED, "path")]
    assert told("x = host\nhost = <a name>", RemarkCode.UNDECIDED) == []
    assert told("x = host\nhost = |", RemarkCode.UNDECIDED) == []


def test_redundant_alternatives_are_told_at_their_place() -> None:
    text = 'm = 1*( unreserved / pct-encoded / "." / "-" )\nn = [ %x41-42 / "A" / %s"B" ] *( "b" / "b" )'
    found = told(text, RemarkCode.REDUNDANT)
    assert [(remark.rule, remark.line, remark.column) for remark in found] == [
        ("m", 1, 36),
        ("m", 1, 42),
        ("n", 2, 23),
        ("n", 2, 40),
    ]
    assert '"."' in found[0].message
    assert (
        "unreserved"
        in told('m = "~" / tilde\ntilde = "~"'.replace("tilde", "unreserved"), RemarkCode.REDUNDANT)[
            0
        ].message
    )


def test_longer_alternatives_are_compared_as_languages() -> None:
    found = told('s = "x:" ( 1*ALPHA / "a" *ALPHA / 2DIGIT )', RemarkCode.REDUNDANT)
    assert [remark.column for remark in found] == [22]
    assert "here" in found[0].message


def test_alternatives_that_cannot_be_decided_have_no_remark() -> None:
    assert told('s = "a" / nowhere', RemarkCode.REDUNDANT) == []
    big = 's = *ALPHA "x" 12ALPHA / *ALPHA "y" 13ALPHA'
    assert told(big, RemarkCode.REDUNDANT) == []


def test_broken_rules_prose_and_repeated_rules_are_among_the_remarks() -> None:
    found = told('s = "x:" | t\nt = <any words>\nu = "a"\nu = "b"\nv = 1#u')
    assert {remark.code for remark in found} >= {
        RemarkCode.BROKEN,
        RemarkCode.PROSE,
        RemarkCode.REPEATED,
        RemarkCode.LIST_OPERATOR,
    }
    broken = next(remark for remark in found if remark.code is RemarkCode.BROKEN)
    assert (broken.rule, broken.line, broken.column) == ("s", 1, 10)
    places = [(remark.line or 0, remark.column or 0) for remark in found]
    assert places == sorted(places)


def test_no_more_alternatives_are_looked_at_than_the_work_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onym.registry.abnf._analysis._MAX_WORK", 3)
    text = 's = t ( "aa" / "aa" ) ( "bb" / "bb" )\nt = "cc" / "cc"'
    (remark,) = told(text, RemarkCode.REDUNDANT, RemarkCode.UNDECIDED)
    assert (remark.code, remark.rule, remark.line) == (RemarkCode.UNDECIDED, "s", 1)


def test_alternatives_beyond_the_cap_are_told_once() -> None:
    many = " / ".join(f'"{at:04}"' for at in range(401))
    (remark,) = told(f's = {many}\nt = s ( "a" / "a" )', RemarkCode.REDUNDANT, RemarkCode.UNDECIDED)
    assert (remark.code, remark.rule) == (RemarkCode.UNDECIDED, "s")
    assert "400" in remark.message


def test_words_and_undefined_names_keep_no_other_alternatives_from_being_looked_at() -> None:
    rules = "\n".join(
        f'p{at} = <x {at}> / "0"\nq{at} = nowhere{at} / "0"\nr{at} = p{at} / "0"\nl{at} = "a" [ l{at} ] / "0"'
        for at in range(8)
    )
    names = " ".join(f"{letter}{at}" for letter in "pqrl" for at in range(8))
    found = told(f's = {names} n\n{rules}\nn = ALPHA / "a"', RemarkCode.REDUNDANT, RemarkCode.UNDECIDED)
    assert [(remark.code, remark.rule) for remark in found] == [(RemarkCode.REDUNDANT, "n")]


def test_alternatives_too_large_to_compare_are_told_once() -> None:
    rules = "\n".join(f'r{at} = 60000"a" / "b"' for at in range(8))
    found = told(f"s = {' '.join(f'r{at}' for at in range(8))}\n{rules}", RemarkCode.UNDECIDED)
    assert [remark.rule for remark in found] == ["r0"]
    big = 's = *ALPHA "x" 12ALPHA / *ALPHA "y" 13ALPHA\nt = s ( *ALPHA "x" 12ALPHA / *ALPHA "z" 13ALPHA )'
    found = told(big, RemarkCode.UNDECIDED)
    assert [remark.rule for remark in found] == ["s"]


def test_unused_rules_are_told_in_linear_time() -> None:
    long = "/".join(['"a"'] * 40_000)
    rules = "\n".join(f"r{at}=x" for at in range(1_000))
    grammar = resolve(parse_blocks([Block(text=f"x = {long}\n{rules}", line=1)]))
    with linear_enough(15):
        found = [remark for remark in lint(grammar) if remark.code is RemarkCode.UNUSED]
    assert len(found) == 999


def test_a_diamond_of_rules_is_reached_once() -> None:
    text = 's = a b\na = c d\nb = c\nc = "c"'
    assert told(text, RemarkCode.UNREACHABLE, start="s") == []


def test_a_name_that_is_undefined_twice_is_told_once_across_rules() -> None:
    (slip,) = told('s = "x:" 1*DIGT', RemarkCode.UNDEFINED)
    assert (slip.fix or "").startswith("write DIGIT if you mean that rule")
    found = told('s = "x:" a b\nb = a\nc = ALPHA', RemarkCode.UNDEFINED)
    assert [(remark.rule, remark.line) for remark in found] == [("a", 1)]
