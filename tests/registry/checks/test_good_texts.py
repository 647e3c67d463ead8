"""What a good text may hold and is not told for; each was a false error once."""

from __future__ import annotations

import pytest

from checks_support import document as made
from onym.registry.checks import Finding, Level, check, choose_profile, is_bare_grammar, load_document
from onym.registry.checks.context import DocumentText, lower_ascii
from onym.registry.documents.types import DocumentKind, Section
from support import as_subtests, linear_enough

TEMPLATE = """\
Scheme name: kitefly
Status: Permanent
Applications/protocols that use this scheme name: kite flying
Contact: Ada Example <ada@example.com>
Change controller: IETF
References: draft-example-kitefly-00
"""
DRAFT = """\
Internet-Draft                                               Example Ltd
Expires: 5 December 2025                                     3 June 2025

                      draft-example-kitefly-00

1.  Introduction

   URIs [RFC3986] of kites [KITE], by [RFC7595] and [RFC5234].

2.  Syntax

   kitefly-URI = "kitefly:" part *( "/" part )
   part        = 1*( ALPHA / DIGIT / "-" / pct-encoded )

   The "/" separates kites.  Characters beyond ASCII are encoded as
   UTF-8 and percent-encoded, and other octets MUST be refused
   [RFC2119] [RFC8174].

3.  Semantics and Operations

   SAID

   It identifies a kite.  The default operation is retrieval.

4.  IANA Considerations

   ASKED

   Scheme name: kitefly

   Status: Permanent

   Applications/protocols that use this scheme name: Kite flying

   Contact: Ada Example <ada@example.com>

   Change controller: IETF

   References: draft-example-kitefly

5.  Security Considerations

   See Section 7 of [RFC3986]; all of it applies.  Privacy: none tells.

6.  References

   [KITE]     Example, A., "Kites", 2020, <https://example.com/kites>.

   [RFC2119]  Bradner, S., "Key words", RFC 2119, March 1997.

   [RFC3986]  Berners-Lee, T., "URI: Generic Syntax", RFC 3986, 2005.

   [RFC5234]  Crocker, D., "ABNF", STD 68, RFC 5234, January 2008.

   [RFC7595]  Thaler, D., "Guidelines", BCP 35, RFC 7595, June 2015.

   [RFC8174]  Leiba, B., "Ambiguity", RFC 8174, May 2017.
"""
XML = """\
<rfc docName="draft-example-kitefly-00"><front><title>Kites</title></front><middle>
<section anchor="IANA"><name>IANA Considerations</name>
{fields}
</section>
<section><name>Semantics and Operations</name><t>{said}</t></section>
</middle><back><references><name>References</name>
<reference anchor="RFC3986"><front><title>URI</title></front></reference>
</references></back></rfc>
"""
KRAMDOWN = """\
---
title: Kites
docname: draft-example-kitefly-latest
normative:
  RFC3986:
--- middle

# Introduction

URIs {{{{RFC3986}}}} of kites, see draft-example-kitefly. {said}

# Syntax {{#Syntax}}

A colon and letters.

# IANA Considerations

""" + TEMPLATE.replace("draft-example-kitefly-00", "draft-example-kitefly")


def told(text: str, *codes: str) -> list[Finding]:
    """What is found: errors and warnings, or, where codes are given, these."""
    found = check(load_document(text)).findings
    return [each for each in found if (each.code in codes if codes else each.level is not Level.HINT)]


def codes(text: str) -> set[str]:
    return {each.code for each in told(text)}


def draft(said: str, at: str = "SAID") -> str:
    return DRAFT.replace(at, said)


@pytest.mark.parametrize(
    "said",
    [
        "IANA is asked to register the following, per [RFC7595], Section 7.4:",
        "IANA registers it as described in Section 7.2 of [RFC7595].",
        "Reserved characters are listed in Appendix A of [RFC3986].",
        "The IANA considerations follow Section 4 of [RFC7595].",
        "The hosts of Section 3.2 of [RFC3986] and its parts.",
    ],
)
def test_a_section_that_is_cited_rightly_is_not_told(said):
    assert told(draft(said)) == []
    assert told(draft(said, "ASKED")) == []


@as_subtests(
    "said",
    [
        "The first is items[0], of s.Split('=')[0], as f(x)[KITES] gives.",
        'As in:\n\n      { "a": [1], "b": ["x"], "c": [Foo] }\n      [12] 1',
        "Both are of [RFC3986, KITE] alone.",
        "A length has   size = 3   or so.\n\n      size = 3\n      E = mc*2\n      x = items[0]",
        '      [section]\n      name = "kite"\n      size = 3',
        "Unlike RFC 8446, it has no state.",
        "These are invalid: kitefly:%zz and kitefly:a//b.",
        "The URI kitefly:%zz is not valid.",
        "Write kitefly:%s or kitefly:$name in a program.",
        "THE USE OF THE INFORMATION HEREIN WILL NOT INFRINGE ANY RIGHTS",
        "The file _config.yml and the field _id.value are read.",
        'Clients look up _stun._udp records; links have rel="search".',
        "Clients read /.well-known/kitefly [KITE].",
    ],
)
def test_what_is_no_citation_no_grammar_and_no_name_is_not_told(said):
    assert told(draft(said)) == []


def test_what_is_wrong_is_still_told():
    assert codes(draft("See [KITES].")) == {"citation-unlisted"}
    assert codes(draft("      kitefly:%zz")) == {"example-not-a-uri"}
    assert codes(draft("The parameter MAY NOT be used.")) == {"keyword-unknown"}
    assert codes(draft("Clients read /.well-known/kitefly.")) == {"not-requested"}
    assert codes(
        draft("This is the registration template of the URI\n   scheme, as in [RFC7595] Section 3.4.")
    ) == {"section-does-not-fit"}
    assert codes(DRAFT.replace("part *( ", "part *( ( ")) >= {"abnf-syntax"}
    assert codes(DRAFT.replace("encoded as\n   UTF-8 and p", "p")) == {"no-charset"}
    assert codes(DRAFT.replace(", and other octets MUST be refused", "")) == {"not-only-utf-8"}


@as_subtests(
    "said",
    [
        "The kite asked for a wrong turn; these are fine: kitefly:%zz",
        "These must not be cached:\n\n      kitefly:%zz",
        "A server must not log these:\n\n      kitefly:%zz",
        "Spaces must not be used in names and a kite for Ann is kitefly:%zz",
        "For invoices sent to the wrong kite, fetch kitefly:%zz",
        "Fetch kitefly:%zz if the forbidden kite",
        "These kites are forbidden at night; fetch kitefly:%zz",
        "These are never invalid: kitefly:%zz",
        "A server rejects those kites and answers kitefly:%zz",
        "Invalid ones are rare.\n\n      kitefly:%zz",
        "      kitefly:a%zz0\n      kitefly:%zz\n      kitefly:b%zz   ; invalid",
    ],
)
def test_a_common_word_nearby_excuses_no_bad_example(said):
    assert "example-not-a-uri" in codes(draft(said))


@as_subtests(
    "said",
    [
        "Invalid:\n\n      kitefly:%zz\n      kitefly:a%zz",
        "Examples of malformed URIs:\n\n      kitefly:%zz\n      kitefly:a%zz",
        "The following must be refused: kitefly:%zz",
        "A reader refuses these: kitefly:%zz",
        "These are all invalid: kitefly:%zz",
        "URIs with a broken octet are not allowed, as in kitefly:%zz",
        "      kitefly:%zz   ; invalid\n      kitefly:a%zz  not allowed",
        "kitefly:%zz and kitefly:a%zz are not valid.",
        "This is a counter-example: kitefly:%zz.",
        "Do not write kitefly:%zz, which is malformed.",
        "x\n\n3.1.  Invalid Names\n\n" + "   Some text is here.\n\n" * 5 + "      kitefly:%zz",
    ],
)
def test_what_is_shown_as_wrong_is_excused(said):
    assert told(draft(said), "example-not-a-uri") == []


def test_of_two_examples_that_begin_alike_each_has_its_own_remark():
    long = "kitefly:" + "a" * 60
    said = f"Write {long}%zy (invalid) or {long}%zz as you like."
    assert [each.witness for each in told(draft(said), "example-not-a-uri")] == [f"{long}%zz"]
    said = "Write kitefly:%zza (invalid) or kitefly:%zz as you like."
    assert [each.witness for each in told(draft(said), "example-not-a-uri")] == ["kitefly:%zz"]


def test_hundreds_of_bad_examples_in_a_long_line_take_seconds_at_most():
    words = "x " * 100_000
    row = words + " ".join(f"kitefly:%zz{at} x" for at in range(300)) + words
    document = load_document(f"# Kites\n\n{TEMPLATE}\n## Use\n\n{row}\n")
    with linear_enough():
        check(document)


UTF8 = (
    "Characters beyond ASCII are encoded as\n   UTF-8 and percent-encoded, and other octets MUST be refused"
)


@pytest.mark.parametrize(
    "said",
    [
        "Octets are UTF-8.  Other parties MUST NOT be told of the kite.",
        "Octets are UTF-8.  A server answers an invalid request with an error.",
    ],
)
def test_a_sentence_on_something_else_says_nothing_of_octets_that_are_not_utf_8(said):
    assert "not-only-utf-8" in codes(DRAFT.replace(UTF8, said))


def test_the_sentence_on_octets_that_are_not_utf_8_may_be_anywhere():
    said = "Octets are UTF-8.\n\n   Percent-encoded octets that are malformed are ignored"
    assert codes(DRAFT.replace(UTF8, said)) == set()


@pytest.mark.parametrize(
    "said",
    [
        "Messages are not UTF-8",
        "URIs are never encoded in UTF-8",
        "URIs hold non-UTF-8 data",
        "The JSON API of our web site is sent as UTF-8",
    ],
)
def test_utf_8_of_something_else_or_denied_names_no_charset(said):
    assert codes(DRAFT.replace(UTF8, said)) == {"no-charset"}


@pytest.mark.parametrize(
    "said",
    [
        "Characters that are not ASCII are encoded as UTF-8",
        "Percent-encoded data does not decode to invalid UTF-8",
        "The path is UTF-8",
    ],
)
def test_a_sentence_on_uris_names_the_charset_wherever_it_stands(said):
    assert "no-charset" not in codes(DRAFT.replace(UTF8, said))


ABNF = '```abnf\nkitefly-uri = "kitefly:" 1*DIGIT\n```\n'


@pytest.mark.parametrize(
    "under",
    [
        "Clients MUST fly.\n",
        ABNF,
        "One line.\nAnother line.\nAnd a third one.\n",
        "Words and words. " * 20,
    ],
)
def test_prose_under_the_title_makes_a_specification(under):
    text = f"# The kitefly URI Scheme\n\n{under}\n\n## IANA Considerations\n\n{TEMPLATE}"
    assert DocumentText(load_document(text)).is_specification
    bare = text.replace("draft-example-kitefly-00", "none")
    assert {"no-security", "no-semantics"} <= codes(bare)
    assert "no-specification" not in codes(bare)
    assert not any("the template alone" in each.message for each in check(load_document(bare)).findings)


@pytest.mark.parametrize("under", ["Clients MUST fly.\n", ABNF])
def test_prose_over_the_template_under_one_title_makes_a_specification(under):
    assert DocumentText(load_document(f"# The kitefly URI Scheme\n\n{under}\n{TEMPLATE}")).is_specification


@pytest.mark.parametrize(
    "given",
    [
        '\n\n    kitefly-uri = "kitefly:" 1*DIGIT\n',
        '\n\n```abnf\nkitefly-uri = "kitefly:" 1*DIGIT\n```\n',
        ' kitefly-uri = "kitefly:" a\n    a = 1*DIGIT\n    b = a\n',
    ],
)
def test_a_grammar_in_a_field_leaves_a_template_alone(given):
    field = f"URI scheme syntax:{given}\nStatus"
    text = f"# Request\n\n{TEMPLATE.replace('Status', field)}"
    assert load_document(text).blocks
    assert not DocumentText(load_document(text)).is_specification


@pytest.mark.parametrize("mark", ["```toml\n{}\n```", "~~~ python\n{}\n~~~"])
def test_marked_code_of_another_language_is_no_grammar(mark):
    said = mark.format('name = "kite"\nsize = 3\nx = items[0]')
    assert load_document(KRAMDOWN.format(said=f"\n\n{said}\n")).blocks == ()
    xml = '<sourcecode type="toml">name = "kite"\nsize = 3</sourcecode>'
    assert load_document(XML.format(fields="", said=f"a</t>{xml}<t>b")).blocks == ()


@pytest.mark.parametrize(
    "text",
    [
        f"# Request\n\n{TEMPLATE}",
        f"# Request\n\nI ask for this.\n\n## The template\n\n{TEMPLATE}",
        "# Request\n\n"
        + "\n".join("## {}\n\n{}\n".format(*each.split(": ", 1)) for each in TEMPLATE.splitlines()),
    ],
)
def test_a_template_under_headings_is_a_template_and_no_specification(text):
    assert told(text) == []
    assert not DocumentText(load_document(text)).is_specification


def test_markdown_with_sections_of_its_own_is_a_specification():
    assert DocumentText(load_document(KRAMDOWN.format(said=""))).is_specification
    assert DocumentText(load_document("# A\n\ntext\n\n# B\n")).is_specification


def test_a_reference_to_a_draft_makes_no_draft():
    text = TEMPLATE.replace(
        "draft-example-kitefly-00", "\n   Internet-Draft draft-example-kitefly-00,\n   work"
    )
    assert load_document(text).kind is DocumentKind.TEMPLATE
    assert told(text) == []


def test_own_anchors_and_plain_mentions_are_no_keys():
    said = 'Unlike RFC 8446, see <xref target="IANA"/> and <xref target="RFC3986"/>.'
    assert not told(XML.format(fields="", said=said), "citation-unlisted", "reference-uncited")
    assert told(XML.format(fields="", said='<xref target="KITE"/>'), "citation-unlisted")
    said = "Unlike RFC 8446, see {{Syntax}}."
    assert not told(KRAMDOWN.format(said=said), "citation-unlisted", "draft-unlisted")
    assert told(KRAMDOWN.format(said="See {{Sytnax}}."), "citation-unlisted")


def test_the_line_that_the_checker_asks_for_passes():
    full = '[KITE] Example, A., "Kites", https://example.com/kites'
    text = TEMPLATE.replace("draft-example-kitefly-00", full)
    assert told(text) == []
    assert told(text.replace("kite flying", "kites [KITE]")) == []
    assert [each.key for each in load_document(text).references] == ["KITE"]
    # keys alone, or sections, are cited there and not listed
    for cited in ("[KITE]", "[KITE], [RFC3986]", "[KITE] Section 2 of it", "[KITE] and [RFC3986] both"):
        assert load_document(TEMPLATE.replace("draft-example-kitefly-00", cited)).references == ()


@pytest.mark.parametrize("kind", ["ul", "ol"])
@pytest.mark.parametrize("item", ["<li><t>{}</t></li>", "<li>{}</li>", "<li>\n<t>{}</t>\n</li>"])
def test_items_of_lists_may_be_the_fields(kind, item):
    rows = [item.format(each.replace("<", "&lt;")) for each in TEMPLATE.splitlines()]
    text = XML.format(fields=f"<{kind}>{''.join(f'{each}{chr(10)}' for each in rows)}</{kind}>", said="x")
    (template,) = load_document(text).templates
    assert (template.text("name"), len(template.values)) == ("kitefly", 6)


@pytest.mark.parametrize("mark", ["{}. ", "{}) ", "({}) "])
def test_numbered_items_may_be_the_fields(mark):
    rows = [mark.format(at) + each for at, each in enumerate(TEMPLATE.splitlines(), 1)]
    for text in ("\n".join(rows), "Dear all,\n\n" + "\n".join(f"   {each}" for each in rows)):
        (template,) = load_document(text).templates
        assert (template.text("name"), len(template.values)) == ("kitefly", 6)


def test_each_template_has_its_own_profile_and_a_document_that_knows_rfc_7595_that_one():
    old = TEMPLATE.replace("Status", "Scheme syntax: see Section 2\nStatus")
    both = load_document(f"{old}\n---\n\n{TEMPLATE}")
    assert [choose_profile(both, each) for each in both.templates] == ["rfc4395", "rfc7595"]
    missing = {each.line for each in check(both).findings if each.code == "field-missing"}
    assert missing == {1}
    assert choose_profile(load_document(old + "   and [RFC7595] Guidelines for URI Schemes")) == "rfc7595"
    assert choose_profile(load_document(old, source="rfc8905.txt")) == "rfc7595"
    assert choose_profile(load_document(old, source="rfc7512.txt")) == "rfc4395"
    dated = "Internet-Draft\nExpires: {}\n\n" + old
    assert choose_profile(load_document(dated.format("5 December 2025"))) == "rfc7595"
    assert choose_profile(load_document(dated.format("5 December 2012"))) == "rfc4395"


@pytest.mark.parametrize("name", ["\u0639\u0644\u06cc\u200c\u0631\u0636\u0627", "\U0001f468\u200d\U0001f469"])
def test_names_of_people_may_need_joiners_and_names_of_schemes_may_not(name):
    assert told(TEMPLATE.replace("Ada Example", name)) == []
    bad = TEMPLATE.replace("kitefly\n", "kite\u200cfly\n", 1)
    assert codes(bad) == {"name-syntax", "unprintable-in-field"}


def test_prose_with_a_rule_in_it_is_no_grammar_alone():
    mail = 'Dear all,\n\nI propose a scheme:\n\n   kite-URI = "kite:" 1*ALPHA\n\nPlease register it.\n'
    assert load_document(mail).blocks
    assert not is_bare_grammar(load_document(mail))
    assert "no-template" in codes(mail)
    assert is_bare_grammar(load_document('kite-URI = "kite:" 1*ALPHA\n'))


@pytest.mark.parametrize("before", ["<!-- a -->\n<!-- b: <rfc> -->\n", "\ufeff<!-- a -->", ""])
def test_a_comment_before_the_root_leaves_it_xml(before):
    assert load_document(f"{before}{XML.format(fields='', said='x')}").kind is DocumentKind.XML
    assert load_document("<!-- a\n# b\n").kind is DocumentKind.MARKDOWN


@pytest.mark.parametrize("name", ["..", "<>", ":", "\u212aite"])
def test_a_name_of_marks_alone_is_no_name_and_the_kelvin_sign_no_k(name):
    (found,) = told(TEMPLATE.replace("kitefly\n", f"{name}\n", 1), "name-syntax", "name-not-lowercase")
    assert (found.code, found.level) == ("name-syntax", Level.ERROR)
    assert lower_ascii("\u212aItE") == "\u212aite"


def test_s2_leaves_a_name_to_n1_that_is_none():
    bad = DRAFT.replace("name: kitefly", "name: \u212aitefly")
    assert not told(bad, "wrong-prefix", "name-not-in-syntax")
    assert [each.check for each in told(bad, "name-syntax")] == ["N1"]
    assert [each for each in told(bad, "could-not-check") if each.check == "S2"]


def test_what_is_no_name_is_told_once():
    bad = TEMPLATE.replace("kitefly\n", "see Section 3.8\n", 1)
    assert [each.code for each in told(bad) if each.field == "name"] == ["name-syntax"]


def test_the_place_of_a_bad_character_is_its_place_in_the_line():
    (found,) = told(TEMPLATE.replace("kitefly\n", "k\u0456tefly\n", 1), "name-syntax")
    assert (found.line, found.column) == (1, 15)
    (found,) = told(TEMPLATE.replace(" kitefly\n", "\n\n   kite fly\n", 1), "name-syntax")
    assert (found.line, found.column) == (3, 8)


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        ("Permanent/Provisional", "write `Status: WORD`, where WORD is one of"),
        ("Provisional -> Permanent", "write `Status: WORD`, where WORD is one of"),
        ("Historic", "write `Status: Historical`"),
        ("Requested: permanent", "write `Status: Permanent`"),
    ],
)
def test_a_status_is_one_and_the_fix_keeps_what_is_asked_for(status, fix):
    (found,) = told(TEMPLATE.replace("Permanent", status), "status-unknown")
    assert found.level is Level.ERROR
    assert found.fix.startswith(fix)


@pytest.mark.parametrize("status", ["historical (was permanent)", "Provisional; permanent later"])
def test_a_remark_beside_the_status_is_no_second_one(status):
    assert not told(TEMPLATE.replace("Permanent", status), "status-unknown")


def test_comments_and_markup_are_not_read_as_prose():
    said = 'x <!-- They WILL NOT use rel="kites", draft-other-kites-01 --> y <bcp14>MUST</bcp14>'
    codes_of = codes(XML.format(fields="", said=said))
    assert "keywords-undefined" in codes_of
    assert not codes_of & {"keyword-unknown", "not-requested", "draft-unlisted"}
    section = '<xref target="RFC3986" section="7"/> applies; nothing else does.'
    text = XML.format(fields="", said=section).replace("Semantics and Operations", "Security Considerations")
    assert not told(text, "security-topics")
    assert not told(KRAMDOWN.format(said="{::boilerplate bcp14-tagged}\n\nThey MUST."), "keywords-undefined")


def test_what_replaced_an_obsolete_rfc_is_named_even_after_several_steps():
    (found,) = told(draft("As in RFC 2234, once."), "rfc-obsolete")
    assert found.fix.startswith("cite RFC 5234,")
    assert not told(draft("This obsoletes RFC 2234."), "rfc-obsolete")
    assert not told(draft("x").replace("Expires: 5", "Obsoletes: RFC 2234\nExpires: 5"), "rfc-obsolete")


def test_references_of_xml_on_one_line_are_cited():
    text = XML.format(fields="", said='<xref target="RFC3986"/>').replace("\n", " ")
    assert not told(text, "reference-uncited")


def test_sections_inside_those_of_a_title_are_found_whatever_their_number():
    numbers = ["1", "1.1", "1.1.1", "2", "11", None]
    titles = ["Security", "A", "B", "C", "D", "Security too"]
    of = made(
        sections=tuple(
            Section(number=number, title=title, text="x", line=at)
            for at, (number, title) in enumerate(zip(numbers, titles, strict=True), 1)
        )
    )
    reading = DocumentText(of)
    assert [each.title for each in reading.find_sections(("security",))] == [
        "Security",
        "A",
        "B",
        "Security too",
    ]
    assert reading.find_sections(("security",)) is reading.find_sections(("security",))


def test_many_sections_and_templates_take_seconds_at_most():
    heads = "".join(f"{at}.  Security {at}\n\n   text\n\n" for at in range(1, 900))
    nested = "".join(f"1.{at % 900}.  Security\n\n   text\n\n" for at in range(1, 4900))
    rows = "".join(f"   {row}\n" for row in TEMPLATE.splitlines()) + "\n"
    with linear_enough():
        check(load_document(f"Internet-Draft\n\n{heads}{rows * 20}"))
        check(load_document(f"Internet-Draft\n\n{nested}"))
