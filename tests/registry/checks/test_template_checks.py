"""T1 to T8: the template and its citations."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from checks_support import (
    GOOD,
    KNOWN,
    LABELS,
    OLD,
    OLD_LABELS,
    codes,
    document,
    draft,
    entry,
    finding,
    report,
    template,
)
from onym.errors import UnknownEntryError
from onym.registry import checks
from onym.registry.checks import Level, choose_profile
from onym.registry.documents.types import Citation, DocumentKind, Reference, TemplateValue
from support import as_subtests


def test_a_whole_template_has_no_errors_and_no_warnings():
    found = report(document(template()))
    assert found.ok
    assert not found.of(Level.WARNING)
    assert found.profile == "rfc7595"
    assert found.scheme == "kite"
    old = report(document(template(OLD, labels=OLD_LABELS)))
    assert (old.profile, old.ok) == ("rfc4395", True)


@pytest.mark.parametrize("field", sorted(GOOD))
def test_each_missing_field_is_an_error_with_its_line_to_write(field):
    found = finding(document(template(**{field: ""})), "field-missing")
    assert (found.check, found.level, found.field) == ("T1", Level.ERROR, field)
    assert found.fix.startswith("write `")


def test_a_field_that_is_there_and_blank_is_empty_not_missing():
    assert finding(document(template(contact="  ")), "field-empty").field == "contact"


def test_under_rfc_4395_the_five_further_fields_are_asked_for():
    found = [
        each
        for each in report(document(template()), profile="rfc4395").findings
        if each.code == "field-missing"
    ]
    assert {each.field for each in found} == {
        "syntax",
        "semantics",
        "encoding",
        "interoperability",
        "security",
    }
    assert {each.clause for each in found} == {"RFC 4395 5.4"}


def test_under_rfc_7595_they_belong_in_the_specification():
    found = report(document(template(OLD, labels=OLD_LABELS)), profile="rfc7595")
    hints = [each for each in found.findings if each.code == "field-of-the-other-template"]
    assert len(hints) == 5
    assert all(each.level is Level.HINT for each in hints)


def test_a_text_without_a_template_is_told_which_fields_to_write():
    found = finding(document(text="hello"), "no-template")
    assert "Scheme name" in found.fix or "scheme name" in found.fix
    assert found.level is Level.ERROR


def test_labels_twice_unknown_or_misspelt_are_told_with_their_lines():
    one = template(labels=LABELS | {"applications": "Applications"})
    twice = TemplateValue(id="contact", label="Contact", text="x", line=8)
    odd = TemplateValue(id="", label="Colour", text="red", line=9)
    of = document(
        type(one)(values=one.values, repeated=(twice,), unknown=(odd,), line=1),
        text="Contact: x\nColour: red",
    )
    assert (finding(of, "field-repeated").level, finding(of, "field-repeated").line) == (Level.ERROR, 8)
    assert finding(of, "field-unknown").line == 9
    assert finding(of, "label-spelling").fix == "write `Applications/protocols that use this scheme name:`"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<script>alert(1)</script>", "markup-in-field"),
        ("see <img src=x onerror=y>", "markup-in-field"),
        ("a\x1b[2J", "unprintable-in-field"),
        ("a\u202eb", "unprintable-in-field"),
        ("x" * 1_000_000, "field-too-long"),
        ("See Section 3.5 for guidelines.", "guideline-copied"),
        ("Ada <ada@example.com>", None),
    ],
)
def test_a_field_with_what_no_field_should_hold_is_told(text, code):
    found = codes(document(template(applications=text)), "T1")
    assert found == ({code} if code else set())
    for each in report(document(template(applications=text))).findings:
        assert "\x1b" not in str(each.as_dict())
        assert len(str(each.as_dict())) < 2_000


@pytest.mark.parametrize("status", ["Permanent", "Provisional", "Historical"])
def test_the_three_statuses_pass(status):
    assert not codes(document(template(status=status, references="RFC 9999")), "T2")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("provisional", "status-spelling"),
        ("PERMANENT", "status-spelling"),
        ("Draft", "status-unknown"),
        ("?", "status-unknown"),
        ("Active", "status-unknown"),
    ],
)
def test_another_status_or_spelling_is_told(status, code):
    assert codes(document(template(status=status)), "T2") == {code}


def test_contact_and_controller_hold_an_address():
    of = document(template(contact="Ada", change_controller="the author"))
    found = [each for each in report(of).findings if each.code == "no-address"]
    assert {each.field for each in found} == {"contact", "change_controller"}
    assert found[0].fix.startswith("write `C")


@as_subtests(
    ("contact", "reachable"),
    [
        ("Ada, +1 (201) 555-0123", True),
        ("Ada, tel. 0201 5550123", True),
        ("Ada, mailto:ada@example.com", True),
        ("Ada, sip:ada@example.com", True),
        ("Ada, did:web:example.com", True),
        # a label before a colon is not a scheme
        ("Name:Ada", False),
        ("Note:see:above", False),
        ("Ada, room 1234567", False),
        ("Ada +1", False),
    ],
)
def test_contact_information_is_an_address_a_telephone_number_or_a_uri(contact, reachable):
    assert ("no-address" not in codes(document(template(contact=contact)), "T3")) is reachable


@as_subtests(
    ("status", "word"),
    [
        ("Permenent", "Permanent"),
        ("Provisonal", "Provisional"),
        ("Historic", "Historical"),
        ("Draft", "WORD"),
    ],
)
def test_a_misspelled_status_is_recognised(status, word):
    assert finding(document(template(status=status)), "status-unknown").fix.startswith(
        f"write `Status: {word}`"
    )


@as_subtests(
    ("reference", "level"),
    [
        ("none", Level.ERROR),
        ("N/A", Level.ERROR),
        ("The Book of Kites, Example Press", Level.WARNING),
        ("[RFC3986]", Level.WARNING),
        ("RFC 9999, Section 2", None),
        ("draft-example-kite-00", None),
        ("https://kite.example/spec", None),
    ],
)
def test_a_parameter_needs_a_public_specification(reference, level):
    item = document(template({"name": "kite", "reference": reference}), registry="llm-parameters")
    found = report(item, profile="specification-required").findings
    told = [(each.level, each.clause) for each in found if each.code == "no-specification"]
    assert told == ([] if level is None else [(level, "RFC 8126 4.6")])


def test_a_request_for_a_historical_entry_is_told_that_a_registered_one_changes_its_status():
    def fix(status: str) -> str | None:
        return finding(document(template(name="http", status=status)), "name-taken").fix

    assert "status" in (fix("Historical") or "")
    assert "status" not in (fix("Provisional") or "")


@pytest.mark.parametrize(
    "controller", ["IETF", "IESG <iesg@ietf.org>", "Ada Example", "https://kite.example/"]
)
def test_a_controller_that_everybody_can_reach_passes(controller):
    assert not codes(document(template(change_controller=controller)), "T3")


def test_a_disguised_address_is_a_hint_and_a_controller_of_rfc_4395_needs_none():
    assert codes(document(template(contact="Ada (ada at example dot com)")), "T3") == {"address-disguised"}
    old = document(template(OLD, labels=OLD_LABELS, change_controller="The Kite Society"))
    assert finding(old, "no-address").level is Level.WARNING


def test_a_third_party_names_both_parties():
    text = "Ada <ada@example.com>, on behalf of the makers"
    assert "third-party-unnamed" in codes(document(template(contact=text, change_controller=text)))
    assert "third-party-unnamed" not in codes(document(template(contact=text)))


def test_citations_resolve_both_ways():
    of = draft(references={"KITE": "Kites", "OLD": "Old"}, citations=(("KITE", None), ("NEW", None)))
    assert finding(of, "citation-unlisted").witness == "[NEW]"
    assert finding(of, "reference-uncited").witness == "[OLD]"
    fine = draft(references={"RFC 3986": "URI"}, citations=(("RFC3986", None),))
    assert not codes(fine, "T4")


def test_citations_without_any_list_are_told_once():
    assert finding(draft(citations=(("A", None), ("B", None))), "no-reference-list").message.startswith(
        "2 keys"
    )


def test_drafts_that_are_named_and_not_listed_are_told_with_their_line():
    of = draft("one\nsee draft-other-thing-03 and draft-kite-scheme", name="draft-kite-scheme-00")
    found = [each for each in report(of).findings if each.code == "draft-unlisted"]
    assert [each.witness for each in found] == ["draft-other-thing-03"]
    assert of.text.split("\n")[found[0].line - 1].startswith("see draft-other")
    listed = draft(
        "see draft-other-thing-03", references={"X": "work, draft-other-thing-02"}, citations=(("X", None),)
    )
    assert "draft-unlisted" not in codes(listed)


@pytest.mark.parametrize(
    ("number", "code"),
    [(3986, None), (4395, "rfc-obsolete"), (9998, "rfc-unknown"), (12345, "rfc-unknown")],
)
def test_cited_rfcs_exist_and_stand(number, code):
    found = codes(document(template(references=f"RFC {number}, https://kite.example")), "T4")
    assert found == ({code} if code else set())


def test_an_incomplete_list_of_rfcs_condemns_only_what_cannot_be():
    known = replace(KNOWN, all_rfcs=False)
    for number, code in ((75955, "rfc-unknown"), (9998, "could-not-check"), (10_050, "could-not-check")):
        assert codes(document(template(references=f"RFC {number}, x")), "T4", known=known) == {code}


def test_a_cited_section_exists():
    of = draft(references={"RFC7595": "x"}, citations=(("RFC7595", "7.9"),))
    assert finding(of, "section-unknown").level is Level.ERROR
    assert not codes(draft(references={"RFC7595": "x"}, citations=(("RFC7595", "7.4"),)), "T4")


def cites_at(text: str, key: str, section: str):
    of = draft(text, references={key: "x"})
    line = next(at for at, each in enumerate(of.text.split("\n"), 1) if key in each)
    return type(of)(
        kind=of.kind,
        text=of.text,
        templates=of.templates,
        sections=of.sections,
        citations=(Citation(key=key, section=section, line=line),),
        references=(Reference(key=key, text="x", line=line),),
    )


def test_a_cited_section_is_about_what_the_text_says():
    wrong = cites_at(
        "Nothing.\nThis section provides the registration template for the\nURI scheme in accordance with\n"
        "[RFC7595] Section 3.4.",
        "RFC7595",
        "3.4",
    )
    found = finding(wrong, "section-does-not-fit")
    assert found.fix == "write `[RFC7595] Section 7.4`"
    assert "Definition of Operations" in found.message
    right = cites_at("the registration template of\n[RFC7595] Section 7.4 is", "RFC7595", "7.4")
    assert not codes(right, "T4")
    plain = cites_at("as in [RFC3986] Section 3.1, all of it", "RFC3986", "3.1")
    assert not codes(plain, "T4")


def test_this_document_is_no_citation_but_in_an_rfc():
    found = finding(
        draft(fields=GOOD | {"references": "This document"}, name="draft-kite-00"), "this-document"
    )
    assert "`draft-kite-00`" in found.fix
    assert "this-document" not in codes(
        draft(fields=GOOD | {"references": "This document"}, kind=DocumentKind.RFC)
    )


@pytest.mark.parametrize(
    ("references", "text", "told"),
    [
        ("RFC 3986", "", True),
        ("RFC 3986", "There is no public specification.", False),
        ("RFC 3986, RFC 9999", "", False),
        ("https://kite.example/spec", "", False),
    ],
)
def test_a_provisional_scheme_without_specification_says_why(references, text, told):
    of = document(template(references=references), text=text)
    assert ("no-specification-no-reason" in codes(of)) is told


def test_a_historical_scheme_says_where_it_was_defined():
    assert "no-origin" in codes(document(template(status="Historical", references="none")))
    assert "no-origin" not in codes(document(template(status="Historical", references="RFC 9999")))


def test_a_draft_that_expires_is_a_hint_and_a_wrong_date_a_warning():
    day = {"dated": date(2026, 2, 6), "expires": date(2026, 8, 10)}
    assert "expires on 2026-08-10" in finding(draft(**day), "draft-expires").message
    assert "expired on 2026-08-10" in finding(draft(**day), "draft-expired", today=date(2026, 8, 11)).message
    assert "expired" not in str(codes(draft(**day), today=None))
    wrong = draft(dated=date(2026, 2, 6), expires=date(2027, 8, 10))
    assert finding(wrong, "draft-expiry-wrong").fix == "write `Expires: 10 August 2026`"
    assert codes(draft(), "T7") == {"could-not-check"}
    assert codes(draft(dated=date(2026, 2, 6)), "T7") == {"draft-expires"}
    assert not codes(document(template()), "T7")


def test_differences_from_the_guidelines_are_to_be_noted():
    bare = draft(sections={"Introduction": "Kites."})
    assert "C1" in finding(bare, "differences-not-noted").message
    noted = draft("This does not follow the guidelines of RFC 7595.", sections={"Introduction": "Kites."})
    assert "differences-not-noted" not in codes(noted)
    assert "differences-not-noted" not in codes(document(template()))


def test_the_profile_is_that_of_the_labels_and_an_unknown_one_is_refused():
    assert choose_profile(document(template())) == "rfc7595"
    assert choose_profile(document(template(OLD))) == "rfc4395"
    assert choose_profile(document()) == "rfc7595"
    with pytest.raises(UnknownEntryError):
        report(document(), profile="rfc1")


def test_parameters_and_namespaces_are_checked_by_their_own_rules():
    fields = {
        "name": "topK",
        "type": "int",
        "description": "x",
        "contact": "a@example.com",
        "change_controller": "a@example.com",
        "reference": "RFC 9999",
    }
    found = report(document(template(fields)), profile="specification-required", known=KNOWN)
    assert found.ok
    assert "S1" not in found.ran
    bad = report(document(template(fields | {"name": "top-k"})), profile="specification-required")
    assert [each.code for each in bad.of(Level.ERROR)] == ["name-syntax"]
    missing = report(document(template({"name": "bank"})), profile="expert-review")
    assert {each.field for each in missing.of(Level.ERROR)} == {
        "anchor",
        "description",
        "contact",
        "change_controller",
    }


def test_every_template_of_a_document_is_checked_and_the_cut_is_told():
    of = document(*[template(name=f"kite{at}", contact="") for at in range(25)])
    assert len([each for each in report(of).findings if each.code == "field-missing"]) == 1
    assert any("5 further templates" in each.message for each in report(of).findings)
    pair = document(template(), template(name="http"))
    assert finding(pair, "name-taken").witness == "http"


def test_findings_are_gravest_first_and_then_by_place():
    found = report(
        draft(fields=GOOD | {"contact": "x", "name": "Kite"}), known=KNOWN.with_entries({"z": entry("z")})
    )
    graves = [["error", "warning", "hint"].index(each.level) for each in found.findings]
    assert graves == sorted(graves)
    errors = [each.line or 0 for each in found.of(Level.ERROR)]
    assert errors == sorted(errors)


def test_a_contact_that_points_at_the_authors_addresses_is_looked_for_there():
    points = GOOD | {"contact": "See the Authors' Addresses section"}
    assert codes(document(template(points)), "T3") == {"could-not-check"}
    there = draft(sections={"Authors' Addresses": "Ada, ada@example.com"}, fields=points)
    assert not codes(there, "T3")


def test_rfcs_and_drafts_that_are_called_by_their_names_are_no_keys():
    of = draft("RFC 8446 and draft-x-y", references={"A": "a"}, citations=(("A", None),))
    bare = Citation(key="RFC8446", section=None, line=10, bare=True)
    assert "citation-unlisted" not in codes(replace(of, citations=(*of.citations, bare)))
    keyed = draft("see [RFC8446]", references={"A": "a"}, citations=(("A", None), ("RFC8446", None)))
    assert "citation-unlisted" in codes(keyed)


def test_findings_of_one_check_are_cut_and_the_cut_is_told(monkeypatch):
    monkeypatch.setattr(checks, "MAX_FINDINGS", 3)
    found = [each for each in report(document()).findings if each.check == "T1"]
    many = report(document(template(GOOD | dict.fromkeys(("contact", "references", "status", "name"), ""))))
    assert len(found) == 1
    assert "could-not-check" in {each.code for each in many.findings if each.check == "T1"}


def test_the_list_of_drafts_that_are_not_listed_is_cut():
    of = draft(" ".join(f"draft-wind-number-{chr(97 + at % 26)}{at}" for at in range(60)))
    assert len([each for each in report(of).findings if each.code == "draft-unlisted"]) == 40


def test_a_label_that_is_misspelled_or_has_no_colon_is_told_at_its_line():
    values = dict(template(contact="").values)
    slip = TemplateValue(id="", label="Contakt", text="Ada <ada@example.com>", line=8)
    of = document(type(template())(values=values, unknown=(slip,), line=1), text="x")
    found = finding(of, "field-missing")
    assert (found.field, found.line) == ("contact", 8)
    assert found.fix == "write `Contact:` instead of `Contakt:`"
    assert "field-unknown" not in codes(of)
    of = document(template(contact=""), text="Scheme name: kite\n\nContact Ada <ada@example.com>\n")
    assert of.text.splitlines()[finding(of, "field-missing").line - 1].startswith("Contact Ada")
    of = document(template(contact=""), text="Scheme name: kite\n\nContacts are not listed\n")
    assert "colon" not in finding(of, "field-missing").message
