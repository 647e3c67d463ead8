"""Grammars, really decided: what S1 to S8 and C2 say of texts of ABNF, and which rule they begin with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checks_support import GOOD, codes, draft, finding, report, template
from onym.errors import GrammarError, UnknownEntryError
from onym.registry.checks import Level, as_text, check, is_bare_grammar, load_document, load_grammar
from onym.registry.checks._grammar import SchemeGrammar
from onym.registry.checks.context import ReferenceData, to_visible
from onym.registry.documents.types import DocumentKind
from support import as_subtests, linear_enough

SAID = {"Encoding Considerations": "UTF-8", "Syntax": 'The "/" divides, "?" and ":" too.'}


def of(abnf: str, **more: object):
    return draft(sections=SAID, abnf=abnf, **more)


@pytest.mark.parametrize(
    ("abnf", "code"),
    [
        ('kite-URI = "kite:" 1*( ALPHA / DIGIT )', None),
        ('kite-URI = "kite:" path-rootless [ "?" query ] [ "#" fragment ]', "fragment-in-syntax"),
        ('kite-URI = "kite:" 1*ALPHA "[" ', "not-a-uri"),
        # every string of a superset of the recursion is an absolute-URI
        ('kite-URI = "kite:" loop\nloop = "(" [ loop ] ")"', None),
        ('kite-URI = "kite:" loop\nloop = "[" [ loop ] "]"', "not-a-uri"),
        ('kite-URI = "kite:" loop "["\nloop = "(" loop ")"', "recursive-rule"),
        ('kite-URI = "kite:" nowhere', "undefined-rule"),
        ('kite-URI = "kite:" [ nowhere ] "["', "not-a-uri"),
        ('kite-URI = "kite:" <whatever there is>', "prose-rule"),
        ('kite-URI = "kite:" name\nname = <any name of a kite>', "prose-rule"),
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


@as_subtests(
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
    document = load_document(BARE)
    assert is_bare_grammar(document)
    found = check(document, known=ReferenceData())
    assert found.scheme == "kite"
    assert found.ran == ("S1", "S3", "S4", "S6") or set(found.ran) <= {"S1", "S2", "S3", "S4", "S6"}
    assert [each.code for each in found.of(Level.ERROR)] == ["fragment-in-syntax"]
    assert not is_bare_grammar(load_document("Scheme name: kite\n"))


@pytest.mark.parametrize("text", ["# Kites\n\nkite = good\n", "Abstract\n\n a = b\n", "", "hello"])
def test_other_texts_are_not_taken_for_abnf(text):
    assert not is_bare_grammar(load_document(text))


def test_the_rule_to_begin_with_is_the_one_named_or_the_scheme_s_or_the_only_one():
    assert load_grammar(load_document(BARE))[1] == "kite-URI"
    assert load_grammar(load_document(BARE), "ALPHA")[1] == "ALPHA"
    assert load_grammar(load_document('a = b\nb = "x" [ b2 ]\nb2 = "y"\n'))[1] == "a"
    with pytest.raises(UnknownEntryError):
        load_grammar(load_document(BARE), "nope")
    with pytest.raises(GrammarError) as caught:
        load_grammar(load_document('a = "x"\nb = "y"\n'))
    assert "a, b" in caught.value.hint
    with pytest.raises(GrammarError) as caught:
        load_grammar(load_document("Scheme name: kite\n"))
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
    empty = SchemeGrammar("kite")
    assert (empty.accepts("kite:a"), empty.reserved, empty.remarks, empty.imported) == (None, (), (), "")
    assert (empty.probe("empty-host"), empty.line_of("a"), empty.source_of("a")) == (None, None, "")
    assert empty.begins("kite").witness is None
    assert empty.begins("kite").problem
    assert not empty.holds_text
    assert not empty.decidable


def too_large(*_: object, **__: object) -> None:
    raise GrammarError("too large", code="abnf.too-large")


@pytest.mark.parametrize(
    ("name", "check_id"),
    [
        ("resolve", "S1"),
        ("find_wrong_prefix", "S2"),
        ("lint", None),
        ("find_reserved", None),
        ("build_matcher", "S7"),
    ],
)
def test_whatever_the_grammar_refuses_is_told_and_never_raised(monkeypatch, name, check_id):
    monkeypatch.setattr(f"onym.registry.abnf.{name}", too_large)
    told = report(of('kite-URI = "kite:" 1*ALPHA', examples=("kite:a",)))
    unchecked = {each.check for each in told.findings if each.code == "could-not-check"}
    assert check_id is None or check_id in unchecked
    assert told.findings


def test_an_example_beyond_the_steps_of_a_match_is_not_taken_for_wrong(monkeypatch):
    monkeypatch.setattr("onym.registry.checks._grammar.MAX_STEPS", 1)
    told = of('kite-URI = "kite:" 1*ALPHA', examples=("kite:1",))
    assert codes(told, "S7") == {"could-not-check"}


def test_blocks_beyond_the_caps_of_the_reader_are_told():
    assert "abnf-too-large" in codes(of("a = b\n" * 60_000), "S1")
    assert "abnf-none" in codes(of("; nothing\n"), "S1")


def test_the_list_operator_admits_commas_and_is_told():
    listed = of('kite-URI = "kite:" 1#ALPHA')
    assert "list-operator" in codes(listed)
    assert "no-charset" not in codes(listed)


@pytest.mark.parametrize(
    "text",
    [
        'kite-URI = kite-scheme ":" name\nkite-scheme = "kite"\nname = *( %x21-7E )\n',
        'kite-URI = "kite" ; the name\n    ":" name\nname = *( %x21-7E )\n',
        'kite-URI = %x6B.69.74.65 ":" name\nname = *( %x21-7E )\n',
        'kite-URI = ( "kite" / "kites" ) ":" name\nname = *( %x21-7E )\n',
        'kite-URI = scheme ":" *( %x21-7E )\n',
        'kite-URI = "kite:" *( %x21-7E )\nkite-list = "list" kite-URI *( "," kite-URI )\n',
    ],
)
def test_the_rule_of_the_scheme_is_found_however_its_name_is_written(text):
    found = check(load_document(text), known=ReferenceData())
    assert "not-a-uri" in [each.code for each in found.of(Level.ERROR)]
    assert found.scheme in ("kite", None)


@pytest.mark.parametrize(
    "text",
    [
        'first = "a:" name\nsecond = "b:" name\nname = *( %x21-7E )\n',
        'a = *( %x21-7E )\nb = "b"\n',
        'a = "a" b\nb = "b" a\n',
    ],
)
def test_a_grammar_whose_rule_is_not_clear_is_a_warning_and_no_pass(text):
    found = check(load_document(text), known=ReferenceData())
    (warning,) = [each for each in found.findings if each.code == "no-start-rule"]
    assert (warning.check, warning.level, warning.line) == ("S1", Level.WARNING, 1)
    (left,) = [each for each in found.findings if each.check == "S1" and each is not warning]
    assert left.code == "could-not-check"
    assert "template" not in left.message
    assert "no ABNF" not in left.message


def test_a_draft_without_a_template_is_told_as_a_hint_that_its_rule_is_not_clear():
    two = replace(draft("Kites.", abnf='first = "a:" ALPHA\nsecond = "b:" ALPHA'), templates=())
    assert codes(two, "S1") == {"could-not-check"}
    assert not any("no ABNF" in each.message for each in report(two).findings if each.check == "S1")


def test_the_schemes_of_a_text_without_a_template_are_inferred_from_the_names_of_rules():
    two = replace(
        draft("Kites.", abnf='a-URI = "a:" ALPHA "["\nb-URI = "b:" ALPHA "]"\nc = "c:" ALPHA'), templates=()
    )
    found = report(two)
    assert found.scheme == "a"
    assert [each.witness for each in found.findings if each.code == "not-a-uri"] == ["a:a[", "b:a]"]


def test_the_grammar_of_something_else_is_not_taken_for_the_scheme_s():
    other = of('token = 1*( ALPHA / "^" )')
    assert codes(other, "S1") == {"no-start-rule", "could-not-check"}
    named = of('kite-URI = scheme ":" *pchar')
    assert codes(named, "S2") == {"wrong-prefix"}


@pytest.mark.parametrize(
    "abnf",
    [
        'kite-params = "a" SP "b"',
        "Kite-Flags = *( ALPHA / SP )",
        'kite-URI-list = *( ALPHA / SP )\nuri = *( ALPHA / "[" )',
        'kitefly-URI = "a" SP "b"',
    ],
)
def test_a_header_named_after_the_scheme_is_not_taken_for_its_rule(abnf):
    other = of(abnf)
    assert codes(other, "S1") == {"no-start-rule", "could-not-check"}
    assert codes(other, "S2") == {"could-not-check"}


@pytest.mark.parametrize("rule", ["kite", "kite-URI", "kite-url", "kiteURI", "KITE-Uri"])
def test_a_rule_that_is_called_the_scheme_is_taken_for_its_rule(rule):
    assert codes(of(f'{rule} = scheme ":" *( %x21-7E )'), "S1") == {"not-a-uri"}
    assert codes(of(f'{rule} = kite-scheme ":" *( %x21-7E )\nkite-scheme = "kite"'), "S1") == {"not-a-uri"}


def test_a_name_with_marks_has_a_rule_of_its_letters():
    dotted = of('comexamplekite-URI = scheme ":" *pchar', fields=GOOD | {"name": "com.example.kite"})
    assert codes(dotted, "S2") == {"wrong-prefix"}


@pytest.mark.parametrize("name", ["", "example", "see Section 3.8"])
def test_text_on_no_scheme_to_be_asked_for_is_not_told_that_its_rule_is_not_clear(name):
    text = of('URI = scheme ":" hier-part', fields=GOOD | {"name": name})
    text = text if name else replace(text, templates=())
    assert codes(text, "S1") == {"could-not-check"}
    assert not {each.code for each in report(text).of(Level.ERROR) if each.check == "S8"}


def test_a_letter_with_one_rule_of_something_else_in_it_is_not_judged_by_it():
    mail = 'Dear all,\n\nI propose a header:\n\n   Kite-Header = "a" SP "b"\n\nIt is new.\n'
    assert load_document(mail).blocks
    assert not {each.code for each in check(load_document(mail)).findings} & {"not-a-uri", "no-start-rule"}


def test_a_broken_rule_is_told_as_such_and_as_no_other_scheme():
    broken = of('kite-URI = "kite:" (\nspare = "foo:" ALPHA')
    assert codes(broken, "S1") == {"abnf-syntax", "could-not-check"}
    assert "name-not-in-syntax" not in codes(broken, "S2")
    alone = check(load_document('kite-URI = "kite:" (\nname = *( %x21-7E )\n'), known=ReferenceData())
    assert [each.code for each in alone.of(Level.ERROR)] == ["abnf-syntax"]


def test_a_wrong_character_is_reported_once():
    found = report(of('kite-URI = "kite:" a | b\na = "x"\nb = "y"')).findings
    at = [(each.check, each.code) for each in found if each.column is not None and each.field == "syntax"]
    assert at == [("S1", "abnf-syntax")]


def test_spaces_that_nobody_sees_are_visible_in_a_witness():
    found = report(of('kite-URI = "kite:" "y "'))
    assert finding(of('kite-URI = "kite:" "y "'), "not-a-uri").witness == "kite:y "
    assert "  shown by: kite:y<U+0020>\n" in as_text(found)
    assert to_visible(" a b  c\u200b") == "<U+0020>a b<U+0020><U+0020>c<U+200B>"


@pytest.mark.parametrize(
    "abnf",
    [
        'kite-URI = "kite:" loop\nloop = "(" loop ")"',
        'kite-URI = "kite:" <whatever there is>',
        'kite-URI = "kite:" 1*999999( ALPHA / "-" )',
    ],
)
def test_what_was_not_decided_is_told_as_no_pass(abnf):
    found = [each for each in report(of(abnf)).findings if each.check == "S1"]
    assert {each.level for each in found} == {Level.WARNING, Level.HINT}
    (left,) = [each for each in found if each.code == "could-not-check"]
    assert left.message.startswith("not checked: inclusion in absolute-URI")


@pytest.mark.parametrize(
    ("abnf", "code", "witness"),
    [
        ('kite-URI = "kite:" nowhere', "undefined-rule", None),
        ('kite-URI = "kite:" name\nname = <any name of a kite>', "prose-rule", None),
        # only the string without the undefined rule is known to be wrong, and there is none
        ('kite-URI = "kite:" name "["\nname = <any name of a kite>', "prose-rule", "kite:a["),
    ],
)
def test_an_answer_on_a_condition_is_a_warning_that_names_the_rule(abnf, code, witness):
    # decision 0053: the answer says what it depends on, instead of no answer
    (found,) = [each for each in report(of(abnf)).findings if each.check == "S1"]
    assert (found.level, found.code, found.witness) == (Level.WARNING, code, witness)
    assert ("nowhere" if code == "undefined-rule" else "name") in found.message


@pytest.mark.parametrize("least", [2_000, 9_000])
def test_reserved_characters_that_are_too_costly_to_ask_for_are_told(least):
    prose = "Kites have no relative references."
    big = draft(prose, sections=SAID, abnf=f'kite-URI = "kite:" 1*{least}(pchar) / "kite:/"')
    for name in ("S4", "S5"):
        assert "could-not-check" in codes(big, name)
    small = draft(prose, sections=SAID, abnf='kite-URI = "kite:" 1*9(pchar) / "kite:/"')
    assert "could-not-check" not in codes(small, "S4") | codes(small, "S5")
    assert "slash-without-hierarchy" in codes(small, "S4")


def test_the_examples_of_a_check_share_their_steps(monkeypatch):
    monkeypatch.setattr("onym.registry.checks._grammar.MAX_STEPS", 60)
    examples = ("kite:aa", "kite:1", "kite:bbbbbbbbbbbbbbbbb", "kite:ccccccccccccc", "kite:dddd")
    told = report(of('kite-URI = "kite:" 1*ALPHA', examples=examples)).findings
    (left,) = [each for each in told if each.check == "S7" and each.code == "could-not-check"]
    assert "whether 3 of the examples fit the syntax" in left.message
    assert "steps" in left.message
    assert [each.witness for each in told if each.code == "example-not-in-syntax"] == ["kite:1"]


def test_examples_against_thousands_of_options_take_seconds_together(monkeypatch):
    monkeypatch.setattr("onym.registry.checks._grammar.MAX_STEPS", 1_000_000)
    examples = tuple("kite:" + "a" * (3_700 + at) for at in range(50))
    with linear_enough():
        assert codes(of('kite-URI = "kite:" *4000[pchar]', examples=examples), "S7") == {"could-not-check"}


def test_what_a_remark_could_not_decide_is_told_as_not_checked():
    many = " / ".join(f'"{at:04}"' for at in range(401))
    assert "could-not-check" in codes(of(f'kite-URI = "kite:" ( {many} )'), "S6")


def test_of_two_templates_the_grammar_of_one_is_no_fault_of_the_other():
    one = of('kite-URI = "kite:" ALPHA')
    two = replace(one, templates=(*one.templates, template(name="kites")))
    assert "name-not-in-syntax" not in codes(two)
    assert "name-not-in-syntax" in codes(replace(one, templates=two.templates[1:]))
