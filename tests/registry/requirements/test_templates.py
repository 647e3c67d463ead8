"""Sections 3 to 5.4 of RFC 4395 and 4 to 7.4 of RFC 7595: what the template must hold."""

from __future__ import annotations

import pytest

from checks_support import GOOD, OLD, OLD_LABELS, codes, document, draft, entry, report, template
from onym.registry.checks import Level, check_request
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import Status
from onym.registry.registries import PROFILES, REGISTRIES
from support import as_subtests

from .desk import COMPLETE, Desk, K, S, T
from .papers import BOTH, KNOWN, asked, found, paper, slip, told

#: the fields of the two templates, in the order of the RFCs
ELEVEN = ("name", "status", "syntax", "semantics", "encoding", "applications", "interoperability", "security",
          "contact", "change_controller", "references")  # fmt: skip
SIX = ("name", "status", "applications", "contact", "change_controller", "references")
TEMPLATE = {"rfc4395": "RFC 4395 5.4", "rfc7595": "RFC 7595 7.4"}
PROVISIONAL = {"rfc4395": "RFC 4395 3", "rfc7595": "RFC 7595 4"}


# -- the fields


@pytest.mark.requirement("rfc4395-5.4-a", "rfc4395-5.2-b", "rfc4395-7-b")
@as_subtests("field", ELEVEN)
def test_the_template_of_2006_has_eleven_fields_and_each_is_demanded(field: str) -> None:
    assert tuple(template_field.id for template_field in PROFILES["rfc4395"].fields) == ELEVEN
    for status in ("permanent", "provisional"):
        form = slip("rfc4395", **{"status": status, field: ""})
        said = told(form, "rfc4395", "field-missing", "T1", "RFC 4395 5.4")
        assert (said.field, said.level) == (field, Level.ERROR)
    assert found(slip("rfc4395"), "rfc4395", "field-missing") is None


@pytest.mark.requirement("rfc7595-7.4-a", "rfc7595-7.2-b")
@pytest.mark.parametrize("field", SIX)
def test_the_template_of_2015_has_six_fields_and_each_is_demanded(field: str) -> None:
    assert tuple(template_field.id for template_field in PROFILES["rfc7595"].fields) == SIX
    said = told(slip("rfc7595", **{field: ""}), "rfc7595", "field-missing", "T1", "RFC 7595 7.4")
    assert (said.field, said.level) == (field, Level.ERROR)
    assert found(slip("rfc7595"), "rfc7595", "field-missing") is None


@pytest.mark.requirement("rfc7595-7.4-h")
def test_the_other_five_fields_belong_in_the_specification_since_2015() -> None:
    old = document(template(OLD, labels=OLD_LABELS))
    said = [f for f in report(old, profile="rfc7595").findings if f.code == "field-of-the-other-template"]
    assert {item.field for item in said} == set(ELEVEN) - set(SIX)
    assert all("belongs in the specification" in item.message for item in said)
    assert found(slip("rfc7595"), "rfc7595", "field-of-the-other-template") is None
    assert found(old, "rfc4395", "field-of-the-other-template") is None


@pytest.mark.requirement("rfc4395-5.4-b", "rfc7595-7.4-b", "rfc4395-5.1-f")
@BOTH
def test_the_status_is_one_of_three_in_whatever_case(profile: str) -> None:
    for word in ("permanent", "provisional", "historical"):
        for spelling in (word, word.capitalize(), word.upper()):
            form = document(template({**GOOD, "status": spelling}))
            assert found(form, profile, "status-unknown") is None
    for other in ("standard", "pending review", "approved", "Sometimes"):
        said = told(
            document(template({**GOOD, "status": other})), profile, "status-unknown", "T2", TEMPLATE[profile]
        )
        assert said.level is Level.ERROR
    assert told(slip(profile, status=""), profile, "field-missing", "T1", TEMPLATE[profile]).field == "status"


@pytest.mark.requirement("rfc4395-3-f", "rfc7595-4-c")
@pytest.mark.requirement("rfc4395-5.4-d", "rfc4395-5.4-e", "rfc7595-7.4-d", "rfc7595-7.4-e")
@BOTH
@pytest.mark.parametrize("field", ["contact", "change_controller"])
def test_contact_and_change_controller_say_how_they_are_reached(profile: str, field: str) -> None:
    other = {"contact": "change_controller", "change_controller": "contact"}[field]
    absent = told(slip(profile, **{field: ""}), profile, "field-missing", "T1", TEMPLATE[profile])
    assert (absent.field, absent.level) == (field, Level.ERROR)
    form = slip(profile, **{field: "Bob Example", other: "Ada <ada@example.com>"})
    said = told(form, profile, "no-address", "T3", TEMPLATE[profile])
    grave = Level.WARNING if (profile, field) == ("rfc4395", "change_controller") else Level.ERROR
    assert (said.field, said.level) == (field, grave)
    for good in ("Bob Example <bob@example.com>", "https://kite.example/contact"):
        assert found(slip(profile, **{field: good}), profile, "no-address") is None


@pytest.mark.requirement("rfc4395-3-g", "rfc7595-4-d")
@BOTH
def test_who_registers_for_another_names_both(profile: str) -> None:
    one = "Ada Example <ada@example.com>, on behalf of its maker"
    said = told(
        slip(profile, contact=one, change_controller=one),
        profile,
        "third-party-unnamed",
        "T3",
        {"rfc4395": "RFC 4395 3", "rfc7595": "RFC 7595 4"}[profile],
    )
    assert said.level is Level.WARNING
    both = slip(profile, contact=one, change_controller="Bo Maker <bo@example.com>")
    assert found(both, profile, "third-party-unnamed") is None
    desk = Desk(profile)
    desk.opened(T.PROVISIONAL, by="stranger", on_behalf_of="Bo Maker <bo@example.com>")
    assert (desk.request().registrant, desk.request().on_behalf_of) == (
        "stranger",
        "Bo Maker <bo@example.com>",
    )


@pytest.mark.requirement("rfc4395-5.4-f", "rfc7595-7.4-f")
@BOTH
def test_references_are_cited_in_full(profile: str) -> None:
    bare = paper(profile, citations=(("KITE-SPEC", None),), references={"RFC3986": "Uniform ..."})
    assert "KITE-SPEC" in told(bare, profile, "citation-unlisted", "T4", _T4[profile]).message
    full = paper(profile, citations=(("KITE-SPEC", None),), references={"KITE-SPEC": "Kites, 2026."})
    assert found(full, profile, "citation-unlisted") is None
    gone = slip(profile, references="RFC 88888")
    assert told(gone, profile, "rfc-unknown", "T4", _T4[profile]).level is Level.ERROR


_T4 = {"rfc4395": "RFC 4395 5.2 step 1", "rfc7595": "RFC 7595 7.2 step 1"}


# -- provisional, historical


@pytest.mark.requirement("rfc4395-3-d", "rfc7595-4-b")
@BOTH
def test_a_name_in_use_is_an_error_and_cannot_be_asked_for_anew(profile: str) -> None:
    clause = {"rfc4395": "RFC 4395 5.2 step 2", "rfc7595": "RFC 7595 7.2 step 7"}[profile]
    for name in ("http", "HTTP"):
        said = told(slip(profile, name=name), profile, "name-taken", "N2", clause)
        assert said.level is Level.ERROR
    assert found(slip(profile), profile, "name-taken") is None
    for status in Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL:
        desk = Desk(profile, entry=status)
        refusal = desk.refuses(
            K.OPEN, "stranger", name="Demo", status=T.PROVISIONAL, fields=COMPLETE, profile=profile
        )
        assert (refusal.rule, refusal.code) == ("R1", "registry.not-allowed")


@pytest.mark.requirement("rfc4395-3-h", "rfc7595-4-e")
@BOTH
def test_a_provisional_request_without_a_specification_gives_its_reasons(profile: str) -> None:
    bare = slip(profile, references="none")
    said = told(bare, profile, "no-specification-no-reason", "T5", PROVISIONAL[profile])
    assert said.level is Level.WARNING
    reasoned = slip(profile, references="none, because the protocol is proprietary")
    cited = slip(profile, references="[KITE] Kites, https://kite.example/spec")
    for item in (reasoned, cited):
        assert found(item, profile, "no-specification-no-reason") is None


@pytest.mark.requirement("rfc7595-7.4-g")
def test_only_a_permanent_registration_demands_a_specification() -> None:
    said = told(
        slip("rfc7595", status="permanent", references="none"),
        "rfc7595",
        "no-specification",
        "T5",
        "RFC 7595 7.4",
    )
    assert said.level is Level.ERROR
    assert found(slip("rfc7595", status="permanent"), "rfc7595", "no-specification") is None
    for status in ("provisional", "historical"):
        assert found(slip("rfc7595", status=status, references="none"), "rfc7595", "no-specification") is None
    assert report(slip("rfc7595", references="none"), profile="rfc7595").ok


@pytest.mark.requirement("rfc4395-3-i")
def test_a_provisional_request_of_2006_needs_valid_security_considerations() -> None:
    for text in ("none", "TBD", "n/a"):
        said = told(slip("rfc4395", security=text), "rfc4395", "no-security", "C1", "RFC 4395 2.7")
        assert said.level is Level.ERROR
    assert (
        told(slip("rfc4395", security=""), "rfc4395", "field-missing", "T1", "RFC 4395 5.4").field
        == "security"
    )
    assert found(slip("rfc4395"), "rfc4395", "no-security") is None


@pytest.mark.requirement("rfc7595-4-f")
def test_a_provisional_request_of_2015_should_have_them_or_explain_why_not() -> None:
    none = {"Security Considerations": "None.", "Privacy Considerations": ""}
    said = told(paper("rfc7595", sections=none), "rfc7595", "no-security", "C1", "RFC 7595 3.7")
    assert said.level is Level.WARNING
    why = {"Security Considerations": "A full analysis is not available: a third party made the scheme."}
    for item in (paper("rfc7595", sections=why), paper("rfc7595")):
        assert found(item, "rfc7595", "no-security") is None


@pytest.mark.requirement("rfc4395-4-a", "rfc7595-5-a")
@BOTH
def test_a_historical_request_says_where_the_scheme_was_defined(profile: str) -> None:
    clause = {"rfc4395": "RFC 4395 4", "rfc7595": "RFC 7595 5"}[profile]
    said = told(slip(profile, status="historical", references="none"), profile, "no-origin", "T8", clause)
    assert said.level is Level.WARNING
    assert found(slip(profile, status="historical"), profile, "no-origin") is None
    assert found(slip(profile, references="none"), profile, "no-origin") is None
    desk = Desk(profile)
    desk.received(T.HISTORICAL)
    assert desk.do(K.APPROVE, "expert").rule == "S4"
    assert (desk.status, "demo.example" in desk.entry.fields["reference"]) == (T.HISTORICAL, True)


# -- drafts


@pytest.mark.requirement("rfc4395-5.4-c", "rfc7595-7.4-c")
@BOTH
def test_a_template_in_a_draft_is_told_when_it_expires(profile: str) -> None:
    # 185 days after 2026-01-01
    said = told(paper(profile), profile, "draft-expires", "T7", TEMPLATE[profile])
    assert "2026-07-05" in said.message
    past = draft(fields=GOOD, dated=paper(profile).dated.replace(year=2024))
    told(past, profile, "draft-expired", "T7", TEMPLATE[profile])
    assert codes(slip(profile), "T7") == set()


@pytest.mark.requirement("rfc4395-5.4-c", "rfc7595-7.4-c")
@BOTH
def test_an_entry_from_a_draft_is_updated_when_the_draft_expires_or_becomes_an_rfc(profile: str) -> None:
    expiry = {"draft": {"name": "draft-demo-00", "expires": "2026-05-01"}}
    desk = Desk(profile)
    desk.received(T.PROVISIONAL, **expiry)
    if profile == "rfc4395":
        desk.do(K.APPROVE, "expert")
    assert desk.entry.draft is not None
    desk.only_for(("iana",), K.DRAFT_PUBLISHED, None, reference="[RFC9999]")
    assert desk.tick() == []
    desk.at = desk.at.replace(month=5, day=2)
    assert [item.rule for item in desk.tick()] == ["U4"]
    assert [(note.kind, note.text) for note in desk.entry.notes] == [
        ("draft-expired", "draft-demo-00 expired on 2026-05-01")
    ]
    published = desk.do(K.DRAFT_PUBLISHED, "iana", None, reference="[RFC9999]")
    assert (published.rule, published.clause) == ("U4", TEMPLATE[profile])
    assert (desk.entry.fields["reference"], desk.entry.draft, desk.status) == (
        "[RFC9999]",
        None,
        T.PROVISIONAL,
    )


# -- the service asks the same of a request


@pytest.mark.requirement("rfc4395-5.1-a", "rfc7595-7.2-k")
@BOTH
def test_the_expert_sees_a_request_against_the_criteria_of_the_status_that_it_asks_for(profile: str) -> None:
    bare = {**COMPLETE, "references": "none"}
    reports = {}
    for status in (T.PERMANENT, T.PROVISIONAL, T.HISTORICAL):
        desk = Desk(profile)
        desk.received(status, fields=bare)
        reports[status] = {finding.code for finding in check_request(desk.request(), KNOWN).findings}
    assert (
        "no-specification-no-reason" in reports[T.PROVISIONAL] - reports[T.PERMANENT] - reports[T.HISTORICAL]
    )
    assert "no-origin" in reports[T.HISTORICAL] - reports[T.PERMANENT] - reports[T.PROVISIONAL]
    if profile == "rfc7595":
        assert "no-specification" in reports[T.PERMANENT] - reports[T.PROVISIONAL] - reports[T.HISTORICAL]


@BOTH
def test_a_request_comes_with_its_questions_for_the_reviewer(profile: str) -> None:
    desk = Desk(profile)
    desk.submitted(T.PERMANENT)
    assert desk.state() is S.SUBMITTED
    said = {finding.code for finding in check_request(desk.request(), KNOWN).findings}
    assert set(asked(slip(profile), profile)) <= said


# -- 9: the registry itself


@pytest.mark.requirement("rfc7595-9-a", "rfc7595-9-b", "rfc7595-9-c")
def test_one_registry_with_status_and_notes_refers_to_rfc_7595_and_holds_example() -> None:
    row = REGISTRIES["uri-schemes"]
    assert [str(status) for status in row.statuses] == [
        "permanent",
        "provisional",
        "historical",
        "pending-review",
    ]
    assert {"Status", "Notes"} <= {column.heading for column in row.columns}
    assert row.reference == "RFC 7595"
    (example,) = [item for item in load_builtin_snapshot("uri-schemes").entries if item.name == "example"]
    assert example.status is Status.PERMANENT
    assert "RFC7595" in example.fields["reference"].replace(" ", "")
    assert entry("example").name in {item.name for item in load_builtin_snapshot("uri-schemes").entries}
