"""O1, O2, C1, D1 to D3 and Q1 to Q6: what the text says."""

from __future__ import annotations

import pytest

from checks_support import GOOD, OLD, OLD_LABELS, codes, document, draft, finding, report, template
from onym.registry.checks import Level, load_document
from onym.registry.documents.types import DocumentKind
from support import as_subtests

SECURITY = """\
URIs may be stale and resources reassigned. Untrusted input can be crafted. Decode once. Do not trust an IP
address. Passwords are sensitive. Phishing is a semantic attack. Privacy: a kite tells who flies it."""
SECTIONS = {
    "Semantics": "A kite URI identifies a kite. The default operation is to fly it, which is safe.",
    "Security Considerations": SECURITY,
}
PERMANENT = GOOD | {"status": "Permanent"}


def test_a_specification_with_all_sections_passes():
    assert not codes(draft(sections=SECTIONS), "O1")
    assert not codes(draft(sections=SECTIONS), "C1")
    assert report(draft(sections=SECTIONS)).ok


@pytest.mark.parametrize(("fields", "level"), [(GOOD, Level.WARNING), (PERMANENT, Level.ERROR)])
def test_missing_semantics_and_security_are_graver_for_permanent_schemes(fields, level):
    bare = draft(sections={"Introduction": "Kites."}, fields=fields)
    assert finding(bare, "no-semantics").level is level
    assert finding(bare, "no-security").level is level


def test_under_rfc_4395_both_are_errors_for_provisional_ones_too():
    bare = draft(sections={"Introduction": "Kites."})
    assert finding(bare, "no-security", profile="rfc4395").level is Level.ERROR
    assert finding(bare, "no-security", profile="rfc4395").clause == "RFC 4395 2.7"


def test_semantics_without_operations_and_without_a_default_one_are_hints():
    of = draft(sections=SECTIONS | {"Semantics": "Kites are nice."})
    assert {"no-operations", "no-default-operation"} == codes(of, "O1")
    assert codes(of, "O1", profile="rfc4395") == {"no-operations"}


def test_a_template_alone_says_that_the_specification_was_not_checked():
    assert codes(document(template()), "C1") == {"could-not-check"}
    assert codes(document(template(PERMANENT)), "O1") == {"could-not-check"}
    assert not codes(document(template()), "O1")


@pytest.mark.parametrize("text", ["None", "N/A", "none known.", ""])
def test_security_considerations_that_say_nothing_are_none(text):
    of = document(template(OLD, labels=OLD_LABELS, security=text or " "))
    assert "no-security" in codes(of) or "field-empty" in codes(of)


def test_topics_of_rfc_3986_that_are_not_mentioned_are_listed():
    of = draft(sections=SECTIONS | {"Security Considerations": "Passwords are sensitive. Privacy matters."})
    found = finding(of, "security-topics")
    assert "rare IP address formats (7.4)" in found.message
    assert "sensitive information" not in found.message
    assert found.line == 20
    cited = draft(
        "See Section 7 of [RFC3986].", sections=SECTIONS | {"Security Considerations": "All apply."}
    )
    assert "security-topics" not in codes(cited)


def test_privacy_is_asked_for_by_rfc_7595_alone():
    quiet = SECTIONS | {"Security Considerations": SECURITY.partition(" Privacy")[0]}
    assert finding(draft(sections=quiet), "no-privacy").level is Level.WARNING
    assert finding(draft(sections=quiet, fields=PERMANENT), "no-privacy").level is Level.ERROR
    assert "no-privacy" not in codes(draft(sections=quiet), profile="rfc4395")
    told = quiet["Security Considerations"] + " A URI reveals to the server which gauge a person looks at."
    assert "no-privacy" not in codes(draft(sections=SECTIONS | {"Security Considerations": told}))
    told = quiet["Security Considerations"] + " A URI reveals nothing."
    assert "no-privacy" in codes(draft(sections=SECTIONS | {"Security Considerations": told}))


def test_empty_security_considerations_are_told_at_their_section():
    of = draft(sections=SECTIONS | {"Security Considerations": "None."})
    section = next(row for row in of.sections if "Security" in row.title)
    assert finding(of, "no-security").line == section.line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("AIIP (Artificial Intelligence Internet Protocol)", True),
        ("Kite Control Protocol (KCP)", True),
        ("the KCP protocol", True),
        ("the KITE protocol", False),
        ("the KCP protocol [RFC9999]", False),
        ("kite libraries and CLI tools", False),
    ],
)
def test_a_protocol_that_is_named_has_a_reference(text, told):
    assert ("protocol-without-reference" in codes(document(template(applications=text)))) is told


USES = (
    'GET /.well-known/kite\nLink: <kite:x>; rel="kite"\n'
    '_kite._tcp.example. IN SRV 0 0 1 x.\n_wind.example.com. IN TXT "x"'
)


def test_names_of_other_registries_are_to_be_asked_for():
    of = draft(USES, sections={"IANA Considerations": "None."})
    found = [each for each in report(of).findings if each.code == "not-requested"]
    assert [(each.clause, each.line - of.text.count("\n", 0, of.text.index("GET"))) for each in found] == [
        ("RFC 8615 3.1", 1),
        ("RFC 8288 2.1.1.1", 2),
        ("RFC 6335 8.1", 3),
        ("RFC 8552 4.1", 4),
    ]
    assert 'the well-known URI suffix "kite"' in found[0].fix


def test_names_that_are_asked_for_or_registered_are_not_told():
    asked = (
        'Register the well-known URI "kite", the link relation "kite", the service name "kite" '
        'and the node name "_wind".'
    )
    assert "not-requested" not in codes(draft(USES, sections={"IANA Considerations": asked}))
    old = '/.well-known/openid-configuration rel="next" _imap._tcp.example.com _dmarc.example.com'
    assert "not-requested" not in codes(draft(old, sections={"IANA Considerations": "None."}))


@pytest.mark.parametrize("text", ["kite://example.com/.well-known/x", "It has well-known URI support."])
def test_support_for_well_known_uris_needs_its_reference(text):
    assert "well-known-without-reference" in codes(draft(text))
    assert "well-known-without-reference" not in codes(draft(text + " See RFC 8615."))


def test_a_field_that_claims_support_needs_it_too_and_a_dash_claims_none():
    assert finding(document(template(well_known="yes")), "well-known-without-reference").field == "well_known"
    assert not codes(document(template(well_known="-")), "D2")
    assert not codes(document(template(well_known="RFC 8615, RFC 9999")), "D2")


@as_subtests(("value", "told"), [("-", False), ("yes", True), ("RFC 8615 3", False)])
def test_the_registry_s_column_in_a_template_is_read_and_is_no_claim_without_a_value(value, told):
    text = f"Scheme name: kite\nStatus: Provisional\nWell-Known URI Support: {value}\n"
    found = {each.code: each for each in report(load_document(text)).findings}
    assert ("well-known-without-reference" in found) is told
    assert "a column of the registry" in found["field-unknown"].message
    assert "remove" not in found["field-unknown"].fix


@as_subtests(
    ("uri", "told"),
    [
        ("kite://api.openai.com/x", True),
        ("kite://ada@openai.com/x", True),
        ("kite://ada@bank/x", False),
        ("kite://your-host/x", False),
        ("kite://bafybeibdkyv3mly2rxxeqiydl5ntbm/x", False),
        ("kite://example/x", False),
        ("kite://wing.v2/x", False),
        ("kite://8.8.8.8/x", True),
        ("kite://[2606:4700::1]/x", True),
        ("kite://[2001:db8::1]/x", False),
        ("kite://192.0.2.7:80/x", False),
        ("kite://a.example.com/x", False),
        ("kite://wind.example", False),
        ("kite://localhost:11434/x", False),
        ("kite:x", False),
        ("kite:///x", False),
        ("kite://{host}/x", False),
    ],
)
def test_example_hosts_are_reserved_ones(uri, told):
    assert ("real-host-in-example" in codes(draft(examples=(uri,)))) is told


def test_key_words_are_those_of_bcp_14_and_bcp_14_is_cited():
    assert finding(draft("Clients MUST fly."), "keywords-undefined").line == 7
    assert "keywords-undefined" not in codes(draft("Clients MUST fly [RFC2119]."))
    assert finding(draft("BCP 14. They NEED NOT fly."), "keyword-unknown").witness == "NEED NOT"
    assert not codes(draft('BCP 14. The words "MAY NOT" are not used. They MAY fly.'), "D3")


def test_what_a_person_judges_is_asked_and_never_passed():
    asked = [each for each in report(document(template())).findings if each.check.startswith("Q")]
    assert {each.code: each.clause for each in asked} == {
        "ask-utility": "RFC 7595 3.1",
        "ask-trademark": "RFC 7595 3.8",
        "ask-clarity": "RFC 7595 3.3",
        "ask-precedent": "RFC 7595 3.2",
        "ask-access": "RFC 7595 3.3",
        "ask-safety": "RFC 7595 3.4",
    }
    assert {each.level for each in asked} == {Level.HINT}


def test_markdown_is_checked_like_a_draft():
    said = {"Kites": "x", "Introduction": "x"}
    assert "no-security" in codes(draft(sections=said, kind=DocumentKind.MARKDOWN))
