"""What stands close to a good text and is wrong: each was silent once, for a check that was too lenient."""

from __future__ import annotations

import pytest

from onym.registry.checks import Finding, check, load_document

RULES = '   kite-URI = "kite:" part *( "/" part )\n   part     = 1*( ALPHA / DIGIT / "-" / pct-encoded )'
DRAFT = f"""\
Internet-Draft                                               Example Ltd
Expires: 5 December 2025                                     3 June 2025

                      draft-example-kite-00

1.  Introduction

   Kites.  SAID

2.  Syntax

{RULES}

3.  IANA Considerations

   Scheme name: kite

   Status: Permanent

   Applications/protocols that use this scheme name: Kite flying

   Contact: Ada Example <ada@example.com>

   Change controller: IETF

   References: draft-example-kite
"""
LIST = """
4.  References

   [RFC3986]  Berners-Lee, T., "URI: Generic Syntax", RFC 3986, 2005.
"""
MARKDOWN = """\
# Kites

Kites.

## Syntax

```{}
{}
```

## IANA Considerations

Scheme name: kite
Status: Permanent
Applications/protocols that use this scheme name: Kite flying
Contact: Ada Example <ada@example.com>
Change controller: IETF
References: https://example.com/kite
"""
XML = """\
<rfc docName="draft-example-kite-00"><front><title>Kites</title></front><middle>
<section><name>IANA</name><t>Scheme name: kite</t><t>Status: Permanent</t><t>Contact: Ada a@example.com</t>\
<t>Change controller: IETF</t><t>References: [KITE] Example, A., "The Kites", 2020.</t></section></middle>
<back><references><name>References</name>{}<reference anchor="RFC3986"><front><title>URI</title></front>\
</reference></references></back></rfc>
"""


def found(text: str, *wanted: str) -> list[Finding]:
    return [each for each in check(load_document(text)).findings if each.code in wanted]


def codes(text: str) -> set[str]:
    return {each.code for each in check(load_document(text)).findings}


def draft(said: str, rules: str = RULES, after: str = LIST) -> str:
    return DRAFT.replace("SAID", said).replace(RULES, rules) + after


def rules_of(rules: str) -> list[str]:
    indented = "\n".join(f"   {each}" for each in rules.split("\n"))
    return [
        "\n".join(row.strip() for row in each.text.split("\n"))
        for each in load_document(draft("", indented)).blocks
    ]


@pytest.mark.parametrize(
    "rules",
    [
        'kite-URI = "kite:" 3 DIGIT "["',
        'kite-URI = "kite:" year\nyear = 4 DIGIT',
        'year = 4 DIGIT\nkite-URI = "kite:" year',
        'kite-URI = "kite:" number\nnumber = 3',
        'number = 3\nkite-URI = "kite:" number',
        'kite-URI = "kite:" number\nnumber = 3 digit\n  / "x"\ndigit = "["',
        "kite-URI = kite\nkite = scheme 2 DIGIT",
    ],
)
def test_a_repeat_apart_from_its_element_is_seen_beside_rules(rules):
    (block,) = rules_of(rules)
    assert block == "\n".join(each.strip() for each in rules.split("\n"))


def test_a_spaced_repeat_and_what_it_admits_are_told():
    text = draft("", '   kite-URI = "kite:" 3 DIGIT "["')
    assert codes(text) >= {"not-a-uri", "spaced-repeat"}
    year = draft("", '   kite-URI = "kite:" year\n   year = 4 DIGIT')
    assert found(year, "spaced-repeat")
    assert not found(year, "undefined-rule", "abnf-undefined-rule")
    assert found(draft("", '   kite-URI = "kite:" number\n   number = 3'), "abnf-syntax")


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        ("size = 3", []),
        ("size = 3 feet", []),
        ('name = "kite"\nsize = 3', ['name = "kite"']),
        ('size = 3 feet\n  wide\nname = "kite"\nsize = 4', ['name = "kite"']),
        ("x = items[0]\nsize = 3", []),
    ],
)
def test_an_assignment_of_a_number_is_no_rule_where_nothing_is_surely_one(rules, seen):
    assert rules_of(rules) == seen


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("See [RFC2616, RFC99999].", {"rfc-unknown", "rfc-obsolete", "citation-unlisted"}),
        ("By (HTTP)[RFC2616] it is read.", {"citation-unlisted", "rfc-obsolete"}),
        ("By HTTP[RFC2616] it is read.", {"citation-unlisted", "rfc-obsolete"}),
        ("By FTP[RFC99999] it is read.", {"citation-unlisted", "rfc-unknown"}),
    ],
)
def test_the_number_of_an_rfc_in_brackets_is_a_citation_wherever_it_stands(said, wanted):
    assert codes(draft(said)) >= wanted


@pytest.mark.parametrize(
    "said",
    [
        "As [1] says and [Smith] too, kites fly [2] and [3].",
        "As others say, kites fly in the air\n   [1], and so does all that\n   [2] tells of them.",
        "All kites are told of by many [Smith], [Jones].",
    ],
)
def test_numbers_and_words_that_are_cited_without_any_list_are_told(said):
    assert found(draft(said, after=""), "no-reference-list")
    assert not found(draft(said), "no-reference-list")


@pytest.mark.parametrize(
    "said",
    [
        "The list of all kites has an item [1] of its own.",
        'As in:\n\n      { "a": [1], "b": ["x"], "c": [Foo] }\n      [12] 1 [Bar]',
        "The first is items[0], then it is of s.Split('=')[1], or (this)[Foo] of f_[Bar].",
        "As in:\n\n      Head [Foo] [Bar]\n      x = that is what it is [1] [2];",
    ],
)
def test_brackets_of_figures_and_code_need_no_list(said):
    assert not found(draft(said, after=""), "no-reference-list")


@pytest.mark.parametrize("uri", ["kite:50%discount", "kite:100%sure", "kite:a%d.txt", "kite:%scar"])
def test_a_bad_percent_encoding_is_no_form_of_a_program(uri):
    assert found(draft(f"As in {uri} here."), "example-not-a-uri")


@pytest.mark.parametrize("uri", ["kite:%s", "kite:a/%d", "kite:a?b=%s&c=%d", "kite:%s/b"])
def test_a_part_to_fill_in_is_no_example(uri):
    assert load_document(draft(f"As in {uri} here.")).examples == ()


def test_a_path_that_begins_with_a_dollar_sign_is_an_example():
    assert found(draft("As in kite:/$metadata here."), "example-not-in-syntax")
    assert not found(draft("As in kite:$name here."), "example-not-in-syntax")


@pytest.mark.parametrize(
    "said",
    [
        "The protocol of RFC 2616 replaces the older text of the kite.",
        "This replaced kite text is sent with the protocol of RFC 2616.",
        "It replaces the older text, and is sent by RFC 2616.",
        "It obsoletes RFC 2068, and HTTP is that of RFC 2616.",
    ],
)
def test_a_verb_elsewhere_in_the_line_leaves_an_obsolete_rfc_told(said):
    assert "RFC 2616" in [each.witness for each in found(draft(said), "rfc-obsolete")]


@pytest.mark.parametrize(
    "said",
    [
        "This obsoletes RFC 2616.",
        "This text of many words replaces\n   [RFC2616] in all of its parts.",
        "This obsoletes RFC 2068 and RFC 2616.",
        "This obsoletes RFCs 2068, 2069, and 2616.",
        "RFC 2616 is obsolete.",
        "RFC 2616, which has been replaced, told more.",
        "RFC 2616 (obsoleted by RFC 9110) told more.",
    ],
)
def test_an_rfc_that_is_said_to_be_replaced_is_not_told(said):
    assert not found(draft(said), "rfc-obsolete")


@pytest.mark.parametrize(
    "said",
    [
        "The client MUST [RFC2119] fetch https://host.example/.well-known/kites first.",
        "The client MUST [BCP14] fetch https://host.example/.well-known/kites first.",
        "The client fetches /.well-known/kites as HTTP [RFC9110] tells.",
        "The client fetches /.well-known/kites as UTF-8 (RFC 3629) by RFC 8615.",
        "Publish a TXT record at _kite.domain for it.",
    ],
)
def test_a_citation_of_what_registers_no_names_is_none_of_their_registration(said):
    assert found(draft(said), "not-requested")


@pytest.mark.parametrize(
    "said",
    ["Fetch /.well-known/kites [KITES].", "The client MUST [RFC2119] [KITES] fetch /.well-known/kites."],
)
def test_a_citation_beside_it_may_be_of_the_registration(said):
    assert not found(draft(said), "not-requested")


@pytest.mark.parametrize("mark", ["bnf", "ebnf", "grammar", "text", "abnf"])
def test_a_grammar_in_text_marked_as_one_is_read(mark):
    text = MARKDOWN.format(mark, 'kite-URI = "kite:" 1*( %x20 / "[" )')
    assert found(text, "not-a-uri")
    assert load_document(MARKDOWN.format("http-message", 'name = "kite" 1*DIGIT')).blocks == ()


def test_a_reference_after_the_field_of_the_references_is_told_where_it_is_not_cited():
    for between in ("", "\n"):
        witnesses = [each.witness for each in found(XML.format(between), "reference-uncited")]
        assert witnesses == ["[RFC3986]"]
