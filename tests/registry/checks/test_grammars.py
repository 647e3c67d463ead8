"""Grammars, really decided: what S1 to S8 and C2 say of texts of ABNF, and which rule they begin with."""

from __future__ import annotations

import pytest

from checks_support import GOOD, codes, draft, finding, report
from onym.errors import GrammarError, UnknownEntryError
from onym.registry.checks import Level, check
from onym.registry.checks._grammar import Syntax
from onym.registry.checks.known import Known
from onym.registry.checks.load import grammar_alone, load, load_grammar
from onym.registry.documents.types import DocumentKind
from support import linear_enough

SAID = {"Encoding Considerations": "UTF-8", "Syntax": 'The "/" divides, "?" and ":" too.'}


def of(abnf: str, **more: object):
    return draft(sections=SAID, abnf=abnf, **more)


@pytest.mark.parametrize(
    ("abnf", "code"),
    [
        ('kite-URI = "kite:" 1*( ALPHA / DIGIT )', None),
        ('kite-URI = "kite:" path-rootless [ "?" query ] [ "#" fragment ]', "fragment-in-syntax"),
        ('kite-URI = "kite:" 1*ALPHA "[" ', "not-a-uri"),
        ('kite-URI = "kite:" loop\nloop = "(" [ loop ] ")"', "recursive-rule"),
        ('kite-URI = "kite:" nowhere', "undefined-rule"),
        ('kite-URI = "kite:" <whatever there is>', "prose-rule"),
        ('kite-URI = "kite:" 1*999999( ALPHA / "-" )', "grammar-too-large"),
        ('kite-URI = "kite:" ( "a"\n', "abnf-syntax"),
        ('kite-URI = "kite:" loop\nloop = "(" loop ")"', "recursive-rule"),
    ],
)
def test_s1_gives_each_outcome_a_code_of_its_own(abnf, code):
    with linear_enough(5):
        found = codes(of(abnf), "S1") - {"could-not-check"}
    assert found == ({code} if code else set())


def test_s1_shows_the_shortest_witness_and_the_line_of_the_rule():
    found = finding(of('; kites\nkite-URI = "kite:" "x" [ "#" fragment ]'), "fragment-in-syntax")
    assert (found.witness, found.line) == ("kite:x#", 21)
    assert found.fix.endswith('write `kite-URI = "kite:" "x"`')


def test_s1_and_s2_tell_the_grammar_of_another_scheme():
    other = of('kit-URI = "kit:" 1*ALPHA')
    assert codes(other, "S2") == {"name-not-in-syntax"}
    assert codes(other, "S1") == {"could-not-check"}
    mixed = of('kite-URI = ( "kite:" / "kit:" ) 1*ALPHA')
    assert finding(mixed, "wrong-prefix").witness.startswith("kit:")


@pytest.mark.parametrize(
    ("abnf", "code", "witness"),
    [
        ('kite-URI = "kite:" "//" 1*ALPHA [ ";x" ] ":" 1*ALPHA', "improper-double-slash", "kite://"),
        ('kite-URI = "kite:" "//" authority path-abempty', "empty-host", "kite://"),
        ('kite-URI = "kite:" *ALPHA', "bare-scheme", "kite:"),
        ('kite-URI = "kite:" path-absolute', "dot-segments", "kite:/."),
        ('kite-URI = "kite:" 1*( ALPHA / ";" )', "reserved-unexplained", "kite:"),
        ('kite-URI = "kite:" 1*ALPHA\nkite-URI = "kite:" 1*DIGIT', "repeated-rule", ""),
        ('kite-URI = "kite:" 1*ALPHA\nspare = "x"', "unused-rule", ""),
        ('kite-URI = "kite:" 1*( ALPHA / "a" )', "redundant-alternative", ""),
        ('kite-URI = "kite:" 1*unreserved\nunreserved = ALPHA', "redefined-rule", ""),
        ('kite-URI = "kite:" "//" userinfo "@" host', "password-in-userinfo", "kite://"),
        ('kite-URI = "kite:" api-key\napi-key = 1*ALPHA', "secret-in-syntax", "api-key"),
        ('kite-URI = "kite:" 1*pct-encoded', "not-only-utf-8", "kite:%"),
    ],
)
def test_each_fault_of_a_grammar_is_found(abnf, code, witness):
    assert (finding(of(abnf), code).witness or "").startswith(witness)
    fine = of('kite-URI = "kite:" kite-name\nkite-name = 1*( ALPHA / DIGIT )')
    assert code not in codes(fine)


def test_a_scheme_of_digits_alone_holds_no_text():
    bare = draft(sections={"Introduction": "Kites."}, abnf='kite-URI = "kite:" 1*DIGIT')
    assert "no-charset" not in codes(bare)
    lettered = draft(sections={"Introduction": "Kites."}, abnf='kite-URI = "kite:" 1*ALPHA')
    assert "no-charset" in codes(lettered)


def test_an_encoding_field_that_points_elsewhere_is_not_checked():
    fields = GOOD | {"encoding": "See Section 4 of RFC 9999"}
    pointed = draft(abnf='kite-URI = "kite:" 1*ALPHA', fields=fields, kind=DocumentKind.TEMPLATE)
    assert codes(pointed, "S8") == {"could-not-check"}


def test_examples_that_the_grammar_cannot_decide_are_told():
    undecided = of('kite-URI = "kite:" <anything>', examples=("kite:a",))
    assert codes(undecided, "S7") == {"could-not-check"}
    long = of('kite-URI = "kite:" 1*ALPHA', examples=("kite:a", "kite:1"))
    assert finding(long, "example-not-in-syntax").witness == "kite:1"


def test_which_rfc_each_imported_rule_comes_from_is_a_hint():
    found = finding(of('kite-URI = "kite:" host'), "rules-imported")
    assert found.level is Level.HINT
    assert "host" in found.message
    assert "(RFC 3986)" in found.message


BARE = '; kites\nkite-URI = "kite:" 1*ALPHA [ "#" fragment ]\n'


def test_abnf_alone_is_checked_as_a_grammar_and_nothing_else():
    document = load(BARE)
    assert grammar_alone(document)
    found = check(document, known=Known())
    assert found.scheme == "kite"
    assert found.ran == ("S1", "S3", "S4", "S6") or set(found.ran) <= {"S1", "S2", "S3", "S4", "S6"}
    assert [each.code for each in found.of(Level.ERROR)] == ["fragment-in-syntax"]
    assert not grammar_alone(load("Scheme name: kite\n"))


@pytest.mark.parametrize("text", ["# Kites\n\nkite = good\n", "Abstract\n\n a = b\n", "", "hello"])
def test_other_texts_are_not_taken_for_abnf(text):
    assert not grammar_alone(load(text))


def test_the_rule_to_begin_with_is_the_one_named_or_the_scheme_s_or_the_only_one():
    assert load_grammar(load(BARE))[1] == "kite-URI"
    assert load_grammar(load(BARE), "ALPHA")[1] == "ALPHA"
    assert load_grammar(load('a = b\nb = "x" [ b2 ]\nb2 = "y"\n'))[1] == "a"
    with pytest.raises(UnknownEntryError):
        load_grammar(load(BARE), "nope")
    with pytest.raises(GrammarError) as caught:
        load_grammar(load('a = "x"\nb = "y"\n'))
    assert "a, b" in caught.value.hint
    with pytest.raises(GrammarError) as caught:
        load_grammar(load("Scheme name: kite\n"))
    assert caught.value.code == "abnf.none"


def test_a_hostile_grammar_is_an_outcome_and_takes_a_second():
    for abnf in (
        'kite-URI = "kite:" *pchar "x" 14(pchar)',
        'kite-URI = "kite:" 1*4096(pchar)',
        'kite-URI = "kite:" ' + "(" * 200 + "ALPHA" + ")" * 200,
        'kite-URI = "kite:" 999999999ALPHA',
        "\n".join(f"r{at} = r{at + 1} r{at + 1}" for at in range(60)) + '\nr60 = "kite:"',
    ):
        with linear_enough():
            assert report(of(abnf)).findings


def test_a_large_grammar_is_decided_and_what_was_left_out_is_told():
    found = report(of('kite-URI = "kite:" 1*40000( ALPHA / "-" )')).findings
    left = {each.check for each in found if each.code == "could-not-check"}
    assert {"S3", "S4", "S5", "C2"} <= left
    assert "S1" not in left


def test_a_syntax_without_a_grammar_has_no_answers_and_says_so():
    empty = Syntax("kite")
    assert (empty.accepts("kite:a"), empty.reserved, empty.remarks, empty.imported) == (None, (), (), "")
    assert (empty.probe("empty-host"), empty.line_of("a"), empty.source_of("a")) == (None, None, "")
    assert empty.begins("kite").problem == "there is no grammar"
    assert not empty.holds_text
    assert not empty.decidable


def too_large(*_: object, **__: object) -> None:
    raise GrammarError("too large", code="abnf.too-large")


@pytest.mark.parametrize(
    ("name", "check_id"),
    [("resolve", "S1"), ("begins", "S2"), ("lint", None), ("reserved", None), ("matcher", "S7")],
)
def test_whatever_the_grammar_refuses_is_told_and_never_raised(monkeypatch, name, check_id):
    monkeypatch.setattr(f"onym.registry.abnf.{name}", too_large)
    told = report(of('kite-URI = "kite:" 1*ALPHA', examples=("kite:a",)))
    unchecked = {each.check for each in told.findings if each.code == "could-not-check"}
    assert check_id is None or check_id in unchecked
    assert told.findings


def test_an_example_beyond_the_steps_of_a_match_is_not_taken_for_wrong(monkeypatch):
    monkeypatch.setattr("onym.registry.abnf._match.MAX_STEPS", 1)
    told = of('kite-URI = "kite:" 1*ALPHA', examples=("kite:1",))
    assert codes(told, "S7") == {"could-not-check"}


def test_blocks_beyond_the_caps_of_the_reader_are_told():
    assert "abnf-too-large" in codes(of("a = b\n" * 60_000), "S1")
    assert "abnf-none" in codes(of("; nothing\n"), "S1")


def test_the_list_operator_admits_commas_and_is_told():
    listed = of('kite-URI = "kite:" 1#ALPHA')
    assert "list-operator" in codes(listed)
    assert "no-charset" not in codes(listed)
