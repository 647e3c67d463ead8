"""RFC 4395 section 2 and RFC 7595 section 3: what the definition of a scheme must say, clause by clause."""

from __future__ import annotations

import pytest

from checks_support import KNOWN, OLD_LABELS, document, report, template
from onym.registry.checks import CHECKS, Level, as_text
from support import as_subtests

from .desk import COMPLETE, Desk, K, T
from .papers import BOTH, PROFILES, asked, found, grave, paper, slip, told

#: sections of the same matter in both RFCs
_OLD_OF = {"3.1": "2.1", "3.2": "2.2", "3.3": "2.3", "3.4": "2.4", "3.5": "2.5", "3.6": "2.6", "3.7": "2.7",
           "3.8": "2.8"}  # fmt: skip


def at(section: str, profile: str) -> str:
    """A section of RFC 7595, or the one of RFC 4395 that it comes from."""
    return f"RFC 7595 {section}" if profile == "rfc7595" else f"RFC 4395 {_OLD_OF[section]}"


#: a breach of each MUST: what is left out or written, the code, the check, the section
BREACHES = (
    ({"abnf": 'kite-URI = "kite:" 1*( ALPHA / "^" )'}, "not-a-uri", "S1", "3.2"),
    (
        {"sections": {"Semantics and Operations": ""}, "fields": {"semantics": ""}},
        "no-semantics",
        "O1",
        "3.3",
    ),
    (
        {"sections": {"Encoding Considerations": ""}, "fields": {"encoding": "none"}},
        "no-charset",
        "S8",
        "3.6",
    ),
    (
        {
            "sections": {"Security Considerations": "", "Privacy Considerations": ""},
            "fields": {"security": ""},
        },
        "no-security",
        "C1",
        "3.7",
    ),
)


@BOTH
@pytest.mark.parametrize("status", ["permanent", "provisional", "historical"])
def test_a_specification_that_keeps_every_guideline_earns_no_error_and_no_warning(
    profile: str, status: str
) -> None:
    assert not grave(paper(profile, status=status), profile)


@pytest.mark.requirement("rfc4395-2-a", "rfc4395-3-a", "rfc7595-3-a")
@BOTH
@pytest.mark.parametrize(("breach", "code", "check", "section"), BREACHES)
def test_a_permanent_request_that_misses_what_is_demanded_has_errors(
    profile: str, breach: dict[str, dict[str, str]], code: str, check: str, section: str
) -> None:
    broken = paper(profile, status="permanent", **breach)
    assert told(broken, profile, code, check, at(section, profile)).level is Level.ERROR
    assert not report(broken, profile=profile).ok


@pytest.mark.requirement("rfc4395-2-b", "rfc4395-3-b", "rfc4395-3-j", "rfc7595-4-g")
@BOTH
@pytest.mark.parametrize(("breach", "code", "check", "section"), BREACHES)
def test_a_provisional_request_is_told_the_same_and_to_note_the_differences(
    profile: str, breach: dict[str, dict[str, str]], code: str, check: str, section: str
) -> None:
    broken = paper(profile, **breach)
    told(broken, profile, code, check, at(section, profile))
    clause = {"rfc4395": "RFC 4395 3", "rfc7595": "RFC 7595 4"}[profile]
    missed = told(broken, profile, "differences-not-noted", "T6", clause)
    assert missed.level is Level.WARNING
    assert check in missed.message
    noted = paper(
        profile, f"It does not meet the guidelines of {at(section, profile)}, because ...", **breach
    )
    assert found(noted, profile, "differences-not-noted") is None
    assert found(noted, profile, code) is not None


@pytest.mark.requirement("rfc4395-2-b", "rfc4395-3-b")
def test_only_provisional_requests_may_note_differences_in_place_of_keeping_the_guidelines() -> None:
    for profile in PROFILES:
        broken = paper(profile, status="permanent", abnf=BREACHES[0][0]["abnf"])
        assert found(broken, profile, "differences-not-noted") is None
        assert found(paper(profile), profile, "differences-not-noted") is None


# -- what only a person can judge


@pytest.mark.requirement("rfc4395-2.1-a", "rfc4395-2.2-c", "rfc4395-2.3-a", "rfc4395-2.3-b")
def test_the_reviewer_of_2006_is_asked_for_utility_precedent_clarity_and_access() -> None:
    for item in (paper("rfc4395"), paper("rfc4395", status="permanent"), slip("rfc4395")):
        questions = asked(item, "rfc4395")
        assert questions["ask-utility"] == "RFC 4395 2.1"
        assert questions["ask-precedent"] == "RFC 4395 2.2"
        assert questions["ask-clarity"] == questions["ask-access"] == "RFC 4395 2.3"
        text = as_text(report(item, profile="rfc4395"))
        assert "the Internet community" in text
        assert "software finds what a URI identifies" in text


@pytest.mark.requirement(
    "rfc7595-3.1-a",
    "rfc7595-3.2-d",
    "rfc7595-3.3-a",
    "rfc7595-3.3-b",
    "rfc7595-3.3-c",
    "rfc7595-3.3-d",
    "rfc7595-3.4-e",
    "rfc7595-3.8-d",
)
def test_the_reviewer_of_2015_is_asked_for_safety_and_rights_to_the_name_as_well() -> None:
    for item in (paper("rfc7595"), paper("rfc7595", status="permanent"), slip("rfc7595")):
        assert asked(item, "rfc7595") == {
            "ask-utility": "RFC 7595 3.1",
            "ask-precedent": "RFC 7595 3.2",
            "ask-clarity": "RFC 7595 3.3",
            "ask-access": "RFC 7595 3.3",
            "ask-safety": "RFC 7595 3.4",
            "ask-trademark": "RFC 7595 3.8",
        }
    mapping = next(f for f in report(paper("rfc7595"), profile="rfc7595").findings if f.code == "ask-access")
    assert "mapping in both directions" in mapping.message
    assert "leaves out" in mapping.message


@pytest.mark.requirement("rfc7595-7.2-r")
def test_the_checker_goes_through_every_subsection_of_the_requirements() -> None:
    ran = set(report(paper("rfc7595", status="permanent"), profile="rfc7595").ran)
    seen = {row.clauses["rfc7595"] for row in CHECKS if row.id in ran}
    assert {f"RFC 7595 3.{number}" for number in range(1, 9)} <= seen


# -- 2.2, 3.2: syntax


@pytest.mark.requirement("rfc4395-2.2-a", "rfc7595-3.2-b")
@BOTH
@pytest.mark.parametrize(
    ("abnf", "code", "witness"),
    [
        ('kite-URI = "kite:" 1*( ALPHA / "^" )', "not-a-uri", "kite:^"),
        ('kite-URI = "kite:" 1*ALPHA [ "#" fragment ]', "fragment-in-syntax", "kite:A#"),
        ('kite-URI = "kite://" 1*ALPHA ":" 1*ALPHA', "not-a-uri", "kite://a:a"),
    ],
)
def test_a_string_of_the_scheme_that_is_no_absolute_uri_is_shown(
    profile: str, abnf: str, code: str, witness: str
) -> None:
    said = told(paper(profile, abnf=abnf), profile, code, "S1", at("3.2", profile))
    assert said.level is Level.ERROR
    assert (said.witness or "").lower() == witness.lower()
    for good in ('kite-URI = "kite:" 1*ALPHA', 'kite-URI = "kite:" 1*( ALPHA / "%5E" )'):
        ours = report(paper(profile, abnf=good), profile=profile).findings
        assert not [our for our in ours if our.check == "S1"]


@pytest.mark.requirement("rfc7595-3.2-a")
def test_a_permanent_request_without_a_grammar_is_told_that_nothing_could_be_decided() -> None:
    bare = report(paper("rfc7595", status="permanent", abnf=""), profile="rfc7595").findings
    told_so = [item for item in bare if (item.check, item.code) == ("S1", "could-not-check")]
    assert "no ABNF for this scheme" in told_so[0].message
    assert (told_so[0].clause, told_so[0].fix is not None) == ("RFC 7595 3.2", True)
    alone = report(slip("rfc7595", status="permanent"), profile="rfc7595").findings
    assert {"S1", "O1"} <= {item.check for item in alone if item.code == "could-not-check"}
    whole = report(paper("rfc7595", status="permanent"), profile="rfc7595").findings
    assert not [item for item in whole if item.code == "could-not-check" and item.check in ("S1", "O1")]


@pytest.mark.requirement("rfc4395-2.2-b", "rfc7595-3.2-c")
@BOTH
def test_a_component_of_rfc_3986_that_is_made_anew_is_told(profile: str) -> None:
    anew = paper(profile, abnf='kite-URI = "kite:" 1*unreserved\nunreserved = ALPHA / "_"')
    assert "unreserved" in told(anew, profile, "redefined-rule", "S6", at("3.2", profile)).message
    reused = paper(profile, abnf='kite-URI = "kite:" 1*unreserved')
    assert found(reused, profile, "redefined-rule") is None
    same = paper(
        profile,
        abnf='kite-URI = "kite:" 1*unreserved\nunreserved = DIGIT / ALPHA / "-" / "." / "_" / "~"',
    )
    assert found(same, profile, "redefined-rule") is None


@pytest.mark.requirement("rfc4395-2.2-d", "rfc7595-3.2-e")
@BOTH
def test_a_scheme_without_relative_references_is_told_of_its_slashes_and_dots(profile: str) -> None:
    text = "There are no relative references. A slash parts names."
    slashed = paper(profile, text, abnf='kite-URI = "kite:" 1*( ALPHA / "/" )')
    told(slashed, profile, "slash-without-hierarchy", "S4", at("3.2", profile))
    dotted = paper(profile, text, abnf='kite-URI = "kite:" 1*( ALPHA / "." )')
    assert told(dotted, profile, "dot-segments", "S4", at("3.2", profile)).witness == "kite:."
    hierarchical = paper(profile, "A slash parts names.", abnf='kite-URI = "kite:" 1*ALPHA *( "/" 1*ALPHA )')
    plain = paper(profile, text)
    for item in (hierarchical, plain):
        assert not grave(item, profile) & {"slash-without-hierarchy", "dot-segments"}


@pytest.mark.requirement("rfc4395-2.2-e", "rfc7595-3.2-f", "rfc7595-3.2-g")
@BOTH
def test_double_slashes_without_an_authority_behind_them_are_told(profile: str) -> None:
    broken = paper(profile, abnf='kite-URI = "kite://" 1*ALPHA ":" 1*ALPHA')
    said = told(broken, profile, "improper-double-slash", "S3", at("3.2", profile))
    assert (said.witness or "").startswith("kite://")
    for good in ('kite-URI = "kite://" 1*ALPHA *( "/" 1*ALPHA )', 'kite-URI = "kite:" 1*ALPHA'):
        assert found(paper(profile, abnf=good), profile, "improper-double-slash") is None


@pytest.mark.requirement("rfc4395-2.2-f", "rfc7595-3.2-h")
@BOTH
def test_a_reserved_character_of_which_the_text_never_speaks_is_told(profile: str) -> None:
    abnf = 'kite-URI = "kite:" 1*ALPHA *( ";" 1*ALPHA )'
    assert (
        ";"
        in told(paper(profile, abnf=abnf), profile, "reserved-unexplained", "S5", at("3.2", profile)).message
    )
    explained = paper(profile, "A semicolon parts names, and is percent-encoded in one.", abnf=abnf)
    assert found(explained, profile, "reserved-unexplained") is None


# -- 2.3 to 2.5, 3.3 to 3.5: semantics, operations, context


@pytest.mark.requirement("rfc4395-2.3-a", "rfc7595-3.3-a")
@pytest.mark.requirement("rfc4395-2.4-a", "rfc7595-3.4-a", "rfc7595-3.4-b", "rfc7595-3.4-c")
@BOTH
def test_a_definition_without_semantics_or_without_operations_is_told(profile: str) -> None:
    silent = paper(
        profile, status="permanent", sections={"Semantics and Operations": ""}, fields={"semantics": ""}
    )
    assert told(silent, profile, "no-semantics", "O1", at("3.3", profile)).level is Level.ERROR
    idle = paper(profile, sections={"Semantics and Operations": "Kites are red."}, fields={"semantics": ""})
    assert told(idle, profile, "no-operations", "O1", at("3.4", profile)).level is Level.HINT
    for code in ("no-semantics", "no-operations"):
        assert found(paper(profile), profile, code) is None


@pytest.mark.requirement("rfc7595-3.4-d")
def test_a_definition_of_2015_without_a_default_operation_is_told_one_of_2006_is_not() -> None:
    sections = {"Semantics and Operations": "A kite URI identifies a kite; GET is what can be done."}
    told(paper("rfc7595", sections=sections), "rfc7595", "no-default-operation", "O1", "RFC 7595 3.4")
    assert found(paper("rfc7595"), "rfc7595", "no-default-operation") is None
    assert found(paper("rfc4395", sections=sections), "rfc4395", "no-default-operation") is None


@pytest.mark.requirement("rfc4395-2.5-a", "rfc7595-3.5-a")
@BOTH
def test_a_protocol_that_uses_the_scheme_needs_a_reference(profile: str) -> None:
    cited = "the Kite Control Protocol (KCP) [KCP-SPEC]"
    bare = slip(profile, applications="the Kite Control Protocol (KCP)")
    assert told(bare, profile, "protocol-without-reference", "O2", at("3.5", profile)).witness == "KCP"
    assert found(slip(profile, applications=cited), profile, "protocol-without-reference") is None


# -- 2.6, 3.6: characters


@pytest.mark.requirement("rfc4395-2.6-a", "rfc7595-3.6-a")
@BOTH
def test_text_in_uris_without_a_character_encoding_is_told(profile: str) -> None:
    silent = {"sections": {"Encoding Considerations": ""}, "fields": {"encoding": "as usual"}}
    said = told(paper(profile, status="permanent", **silent), profile, "no-charset", "S8", at("3.6", profile))
    assert said.level is Level.ERROR
    numbers = paper(profile, abnf='kite-URI = "kite:" 1*DIGIT', **silent)
    for item in (paper(profile, status="permanent"), numbers):
        assert found(item, profile, "no-charset") is None


@pytest.mark.requirement("rfc7595-3.6-b")
def test_a_syntax_that_admits_more_octets_than_the_text_names_is_told() -> None:
    wide = paper("rfc7595", abnf='kite-URI = "kite:" 1*( ALPHA / pct-encoded )')
    said = told(wide, "rfc7595", "not-only-utf-8", "S8", "RFC 7595 3.6")
    assert (said.witness or "").lower() == "kite:%ff"
    assert found(paper("rfc7595"), "rfc7595", "not-only-utf-8") is None


# -- 2.7, 3.7: security and privacy


@pytest.mark.requirement("rfc4395-2.7-a", "rfc7595-3.7-a", "rfc7595-10-b", "rfc4395-7-b")
@BOTH
@pytest.mark.parametrize("text", ["", "None.", "TBD"])
def test_a_permanent_scheme_without_security_considerations_has_an_error(profile: str, text: str) -> None:
    sections = {"Security Considerations": text, "Privacy Considerations": ""}
    broken = paper(profile, status="permanent", sections=sections, fields={"security": ""})
    assert told(broken, profile, "no-security", "C1", at("3.7", profile)).level is Level.ERROR
    thin = paper(
        profile, sections={"Security Considerations": "It is safe.", "Privacy Considerations": ""},
        fields={"security": ""},
    )  # fmt: skip
    assert (
        "malicious construction (7.2)"
        in told(thin, profile, "security-topics", "C1", at("3.7", profile)).message
    )


@pytest.mark.requirement("rfc7595-3.7-a")
def test_a_permanent_scheme_of_2015_without_a_word_on_privacy_has_an_error() -> None:
    sections = {"Privacy Considerations": ""}
    broken = paper("rfc7595", status="permanent", sections=sections)
    assert told(broken, "rfc7595", "no-privacy", "C1", "RFC 7595 3.7").level is Level.ERROR
    assert found(paper("rfc4395", status="permanent", sections=sections), "rfc4395", "no-privacy") is None


# -- 2.8, 3.8: names


@pytest.mark.requirement("rfc4395-2.8-a", "rfc4395-3-c", "rfc7595-3.8-a", "rfc7595-4-a")
@BOTH
@as_subtests("name", ["1kite", "ki_te", "-kite", "k\u00eete", "ki te", "\u0430i"])
def test_a_name_that_rfc_3986_does_not_allow_is_an_error_and_refused(profile: str, name: str) -> None:
    said = told(slip(profile, name=name), profile, "name-syntax", "N1", at("3.8", profile))
    assert said.level is Level.ERROR
    desk = Desk(profile)
    asked_for = {"status": T.PROVISIONAL, "fields": COMPLETE, "profile": profile}
    assert desk.refuses(K.OPEN, "owner", name=name, **asked_for).code == "registry.bad-name"
    for good in ("kite", "k2", "kite+air", "kite-x"):
        assert not [
            finding
            for finding in report(slip(profile, name=good), profile=profile).findings
            if finding.check == "N1"
        ]
        assert Desk(profile).do(K.OPEN, "owner", name=good, **asked_for).rule == "R1"


@pytest.mark.requirement("rfc4395-2.8-b", "rfc7595-3.8-b")
@BOTH
def test_a_name_in_capitals_is_an_error_and_filed_in_lower_case(profile: str) -> None:
    said = told(slip(profile, name="Kite"), profile, "name-not-lowercase", "N1", at("3.8", profile))
    assert (said.level, "kite" in (said.fix or "")) == (Level.ERROR, True)
    desk = Desk(profile)
    desk.do(K.OPEN, "owner", name="DEMO", status=T.PERMANENT, fields=COMPLETE, profile=profile)
    assert desk.request().name == "demo"


@pytest.mark.requirement("rfc7595-3.8-c", "rfc7595-3.8-e", "rfc7595-3.8-f")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("k", "name-very-short"),
        ("ki", "name-very-short"),
        ("httq", "name-near"),
        ("universal-id", "name-grandiose"),
        ("kite-standard", "name-grandiose"),
        ("data", "name-general"),
    ],
)
def test_a_name_that_is_short_near_another_general_or_grandiose_is_hinted_at(name: str, code: str) -> None:
    said = told(slip("rfc7595", name=name), "rfc7595", code, "N4", "RFC 7595 3.8")
    assert said.level is Level.HINT
    assert "(a heuristic)" in said.message
    assert not [finding for finding in report(slip("rfc7595")).findings if finding.check == "N4"]


@pytest.mark.requirement("rfc7595-3.8-g")
def test_a_name_that_is_a_service_name_too_is_hinted_at_unless_the_text_says_so() -> None:
    told(slip("rfc7595", name="imap"), "rfc7595", "service-name", "N5", "RFC 7595 3.8")
    both = slip("rfc7595", name="imap", applications="IMAP, of the service name imap [IMAP]")
    for item in (both, slip("rfc7595")):
        assert found(item, "rfc7595", "service-name") is None
    assert found(slip("rfc4395", name="imap"), "rfc4395", "service-name") is None


@pytest.mark.requirement("rfc7595-3.8-h", "rfc7595-3.8-i")
def test_a_dot_is_for_reversed_domain_names_alone() -> None:
    said = told(slip("rfc7595", name="kite.flying"), "rfc7595", "dot-without-domain", "N3", "RFC 7595 3.8")
    assert said.level is Level.ERROR
    assert "com.example.flying" in (said.fix or "")
    assert "com" in KNOWN.tlds
    assert found(slip("rfc7595", name="com.example.mything"), "rfc7595", "dot-without-domain") is None


def test_the_private_names_of_2006_have_hyphens() -> None:
    private = document(template({"name": "com-example-info", "status": "provisional"}, labels=OLD_LABELS))
    told(private, "rfc4395", "private-name", "N3", "RFC 4395 2.8")
