"""Imports from the shipped library: by name, by prose, with the RFC that each rule is of."""

from __future__ import annotations

import pytest

from onym.registry.abnf import (
    Grammar,
    Relation,
    RemarkCode,
    compare,
    decide_inclusion,
    list_references,
    match,
    parse_grammar,
    resolve,
)
from onym.registry.abnf._inclusion import load_rfc3986
from onym.registry.abnf._loader import LIBRARY, find_library_rfc, find_library_rule, load_library
from support import linear_enough


def sources(grammar: Grammar) -> dict[str, str | None]:
    return {rule.name: rule.source for rule in grammar.rules.values()}


@pytest.mark.parametrize("rfc", LIBRARY)
def test_the_library_is_closed_and_can_be_decided(rfc: str) -> None:
    for rule in load_library(rfc).rules.values():
        assert rule.node is not None
        assert rule.section == f"RFC {rfc}"
        for reference in list_references(rule.node):
            assert find_library_rule(reference.name, rfc) or find_library_rule(reference.name), (
                rfc,
                reference.name,
            )


def test_undefined_names_come_from_the_library_with_all_that_they_need() -> None:
    grammar = resolve(parse_grammar('s = "x:" host ALPHA'))
    found = sources(grammar)
    assert found["s"] is None
    assert (found["host"], found["IPv6address"], found["ALPHA"]) == ("RFC 3986", "RFC 3986", "RFC 5234")
    assert "segment" not in found
    assert next(iter(found)) == "s"
    told = [(remark.message, remark.rule, remark.column) for remark in grammar.remarks]
    assert told == [
        ("host is taken from RFC 3986", "s", 10),
        ("ALPHA is taken from RFC 5234", "s", 15),
    ]
    assert all(remark.code is RemarkCode.IMPORTED for remark in grammar.remarks)


def test_a_second_resolve_changes_nothing() -> None:
    once = resolve(parse_grammar("s = host\npath = <path-abempty, see [RFC3986]>"))
    assert resolve(once).rules == once.rules
    assert resolve(once).remarks == once.remarks


@pytest.mark.parametrize(
    ("prose", "rule", "same"),
    [
        ("<host, defined in [RFC3986], Section 3.2.2>", "host", "host"),
        ("<path-abempty, defined in [RFC3986], Section 3.3>", "path", "path-abempty"),
        ("<as specified in RFC 3986>", "unreserved", "unreserved"),
        ("<defined in [URI-GEN]>", "authority", "authority"),
        ("<see STD 66>", "port", "port"),
        ("<as in RFC 4234>", "digit", "DIGIT"),
        ("<see RFC 3986, path-rootless>", "dest", "path-rootless"),
        ('<the rule "query" of RFC 3986>', "search", "query"),
        ("<specified in RFC 1738 and RFC 3986>", "fragment", "fragment"),
    ],
)
def test_prose_imports_the_rule_that_it_names(prose: str, rule: str, same: str) -> None:
    grammar = resolve(parse_grammar(f's = "x" {rule}\n{rule} = {prose}'))
    standard = resolve(parse_grammar(f"t = {same}"))
    assert compare(grammar, rule, standard, "t").relation is Relation.EQUAL
    assert RemarkCode.PROSE not in [remark.code for remark in grammar.remarks]


@pytest.mark.parametrize(
    "prose", ["<any host>", "<host, see RFC 1738>", "<see RFC 3986>", "<a word, see [X]>", "<>"]
)
def test_prose_that_names_no_rule_of_the_library_stays(prose: str) -> None:
    grammar = resolve(parse_grammar(f"thing = {prose}"))
    verdict = decide_inclusion(grammar, "thing")
    assert verdict.outcome == "prose"
    assert [remark.code for remark in grammar.remarks] == [RemarkCode.PROSE]


def test_prose_within_a_rule_is_imported_by_its_first_word() -> None:
    grammar = resolve(parse_grammar('s = "x" / <port, see [RFC3986]> "y"'))
    assert match(grammar, "s", "80y")
    assert sources(grammar)["port"] == "RFC 3986"


def test_prose_within_a_rule_never_takes_the_rule_of_its_own_name() -> None:
    grammar = resolve(parse_grammar('host = "x" / <see [RFC3986]>'))
    assert decide_inclusion(grammar, "host").outcome == "prose"
    named = resolve(parse_grammar('dest = "x" / <the path-rootless of [RFC3986]>'))
    assert match(named, "dest", "a/b")


def test_an_angle_reference_to_a_rule_of_the_text_is_that_rule() -> None:
    grammar = resolve(parse_grammar('s = <t> "b"\nt = "a"'))
    assert match(grammar, "s", "ab")
    assert [remark.code for remark in grammar.remarks] == [RemarkCode.ANGLE_REFERENCE]


def test_an_import_keeps_its_meaning_where_the_text_redefines_what_it_uses() -> None:
    grammar = resolve(parse_grammar('s = path-abempty "!" unreserved\nunreserved = "z"\nALPHA = "0"'))
    assert match(grammar, "s", "/abc~!z")
    assert not match(grammar, "s", "/abc~!y")
    found = sources(grammar)
    assert found["unreserved"] is None
    assert (found["unreserved@RFC 3986"], found["ALPHA@RFC 5234"]) == ("RFC 3986", "RFC 5234")


def test_of_one_name_in_two_rfcs_both_can_be_imported() -> None:
    grammar = resolve(
        parse_grammar("s = a / b\na = <quoted-string, see RFC 9110>\nb = <quoted-pair, see RFC 5322>")
    )
    assert match(grammar, "s", b'"\\\xff"')
    assert match(grammar, "b", "\\a")
    assert not match(grammar, "b", b"\\\xff")
    assert {"quoted-pair", "quoted-pair@RFC 9110"} <= sources(grammar).keys()


def test_names_of_no_library_stay_undefined() -> None:
    verdict = decide_inclusion(resolve(parse_grammar('s = "a:" nowhere ALPHA elsewhere')), "s")
    assert verdict.outcome == "undefined"
    assert verdict.problem is not None
    assert verdict.problem.code == "abnf.undefined-rule"
    assert "nowhere, elsewhere" in verdict.problem.message
    assert (verdict.problem.line, verdict.problem.column) == (1, 10)
    assert not verdict.decided


def test_a_broken_rule_is_never_replaced_by_an_import() -> None:
    from onym.registry.abnf import parse_blocks
    from onym.registry.documents.types import Block

    grammar = resolve(parse_blocks([Block(text="s = \"a:\" host\nhost = a 'b'", line=1)]))
    assert decide_inclusion(grammar, "s").outcome == "broken"


def test_earlier_rfcs_stand_for_those_that_replaced_them() -> None:
    assert [find_library_rfc(number) for number in ("2234", "4234", "5234", "7230", "1035")] == [
        "5234",
        "5234",
        "5234",
        "9110",
        None,
    ]


def test_an_iri_has_characters_beyond_ascii_and_a_uri_has_not() -> None:
    grammar = resolve(parse_grammar("s = absolute-IRI"))
    assert match(grammar, "s", "http://r\u00e9sum\u00e9.example/\U0001f600")
    found = compare(grammar, "s", load_rfc3986(), "absolute-URI")
    assert found.relation is Relation.SUPERSET
    verdict = decide_inclusion(grammar, "s")
    assert verdict.witness == "a:\\xa0"


def test_media_type_names_take_their_incremental_alternatives() -> None:
    grammar = resolve(parse_grammar("s = <type-name, see RFC 6838>"))
    assert match(grammar, "s", "vnd.example+json")
    assert not match(grammar, "s", "a/b")


@pytest.mark.parametrize(
    ("prose", "rule"),
    [
        ("<segment in UTF-8>", "part"),
        ("<segment per octet>", "part"),
        ("<segment from a path>", "part"),
        ("<any octet in the log>", "segment"),
        ("<a host that people see>", "host"),
        ("<not defined here>", "host"),
        ("<host [of a mail]>", "part"),
        ("<host in STDs>", "part"),
    ],
)
def test_prose_that_cites_nothing_is_no_rule_of_an_rfc(prose: str, rule: str) -> None:
    for text in (f'kite = "kite:" {prose}', f'kite = "kite:" {rule}\n{rule} = {prose}'):
        assert decide_inclusion(resolve(parse_grammar(text)), "kite").outcome == "prose"


@pytest.mark.parametrize("prose", ["<segment, see above>", "<segment as specified in the generic syntax>"])
def test_prose_that_cites_without_a_number_takes_the_rule_that_it_names(prose: str) -> None:
    assert decide_inclusion(resolve(parse_grammar(f'kite = "kite:" {prose}')), "kite").ok


def test_a_rule_that_is_another_in_angle_brackets_is_not_told_as_words() -> None:
    grammar = resolve(parse_grammar('s = a\na = <b>\nb = "x"'))
    assert match(grammar, "s", "x")
    assert [remark.code for remark in grammar.remarks] == [RemarkCode.ANGLE_REFERENCE]


def test_an_import_of_a_definition_that_lost_leaves_the_remark_on_the_other() -> None:
    grammar = resolve(parse_grammar("host = <host, see RFC 3986>\nhost = <a word>"))
    assert decide_inclusion(grammar, "host").outcome == "prose"
    assert RemarkCode.PROSE in [remark.code for remark in grammar.remarks]


def test_thousands_of_imports_are_resolved_in_linear_time() -> None:
    grammar = parse_grammar("\n".join(f"r{at} = <host, RFC 3986>" for at in range(3_900)))
    with linear_enough(4):
        resolved = resolve(grammar)
    assert RemarkCode.PROSE not in {remark.code for remark in resolved.remarks}
