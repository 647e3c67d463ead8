"""Change control: upgrades, updates, reassignment, retirement, security notes, and IETF documents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onym.registry.engine import publication_refusal
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import Entry

from .desk import BOTH, COMPLETE, FOUR_WEEKS, KIND, PEOPLE, TWO, Desk, K, S, T

MAKERS = ("owner", "designee", "stranger", "iana", "expert", "iesg")
CONTROL = {"rfc4395": "RFC 4395 5.3", "rfc7595": "RFC 7595 7.3"}
STEPS = {"rfc4395": "RFC 4395 5.2", "rfc7595": "RFC 7595 7.2"}


def permanent(profile: str, **about: object) -> Desk:
    return Desk(profile, entry=T.PERMANENT, fields=COMPLETE, designees=frozenset({"designee"}), **about)


def provisional(profile: str, **about: object) -> Desk:
    return Desk(profile, entry=T.PROVISIONAL, fields=COMPLETE, designees=frozenset({"designee"}), **about)


# -- S1, U1 to U3, S2, S3


@pytest.mark.requirement("rfc4395-5.2-l", "rfc4395-5.2-o", "rfc7595-7.2-p", "rfc7595-7.2-y")
@BOTH
@pytest.mark.parametrize("who", ["expert", "iesg"])
def test_the_expert_or_the_iesg_asks_for_an_upgrade_unprompted(profile: str, who: str) -> None:
    desk = provisional(profile)
    desk.only_for(("expert", "iesg"), K.ASK_UPGRADE, None)
    done = desk.do(K.ASK_UPGRADE, who, None, reason="it is a standard now")
    assert (done.rule, done.clause, desk.status) == ("S1", STEPS[profile], T.PERMANENT)
    assert len(desk.book.entries) == 1
    for status in (T.PERMANENT, T.HISTORICAL, T.PENDING_REVIEW):
        Desk(profile, entry=status).refuses(K.ASK_UPGRADE, who, None)


@pytest.mark.requirement("rfc4395-5.2-l", "rfc7595-7.2-p")
@BOTH
@pytest.mark.parametrize("who", ["owner", "designee", "stranger", "iana", "expert", "iesg"])
def test_an_upgrade_may_be_asked_for_by_request(profile: str, who: str) -> None:
    desk = provisional(profile)
    assert desk.received(T.PERMANENT, by=who, kind=KIND.STATUS_CHANGE).rule == "I4"


@pytest.mark.requirement("rfc4395-5.3-e", "rfc7595-7.3-e", "rfc7595-7.1-e")
@BOTH
def test_provisional_to_permanent_goes_as_a_new_permanent_registration_does(profile: str) -> None:
    desk = provisional(profile)
    desk.opened(T.PERMANENT, kind=KIND.STATUS_CHANGE)
    if profile == "rfc7595":
        assert desk.refuses(K.SUBMIT, "owner").clause == "RFC 7595 7.2 item 3"
    desk.do(K.ANNOUNCE, "owner")
    desk.do(K.SUBMIT, "owner")
    assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I4"
    assert desk.status is T.PROVISIONAL
    desk.only_for(("expert",), K.APPROVE)
    done = desk.do(K.APPROVE, "expert")
    assert (done.rule, done.clause, desk.status) == ("S1", CONTROL[profile], T.PERMANENT)


@pytest.mark.requirement("rfc4395-5.3-e", "rfc7595-7.3-e")
@BOTH
@pytest.mark.parametrize("registrant", ["owner", None])
def test_anyone_may_ask_for_an_upgrade_and_takes_nothing_from_its_registrant(
    profile: str, registrant: str | None
) -> None:
    own = {**COMPLETE, "contact": "Ada <ada@example.com>"}
    desk = Desk(profile, entry=T.PROVISIONAL, registrant=registrant, fields=own)
    stolen = desk.refuses(
        K.OPEN, "stranger", kind=KIND.STATUS_CHANGE, status=T.PERMANENT, profile=profile,
        fields={"contact": "Mallory <m@example.com>"},
    )  # fmt: skip
    assert (stolen.code, stolen.field) == ("registry.bad-data", "contact")
    asked = {"contact": own["contact"], "applications": "more of them"}
    desk.received(T.PERMANENT, by="stranger", kind=KIND.STATUS_CHANGE, fields=asked)
    assert desk.refuses(K.REVISE, "stranger", fields={"change_controller": "Mallory"}).code
    assert desk.do(K.APPROVE, "expert").rule == "S1"
    assert (desk.status, desk.entry.registrant) == (T.PERMANENT, registrant)
    assert (desk.entry.fields["contact"], desk.entry.fields["applications"]) == tuple(asked.values())


@BOTH
def test_an_upgrade_by_another_leaves_what_its_registrant_changed_meanwhile(profile: str) -> None:
    desk = Desk(profile, entry=T.PROVISIONAL, fields=COMPLETE)
    desk.received(T.PERMANENT, by="stranger", kind=KIND.STATUS_CHANGE, fields=COMPLETE)
    desk.book.entries["uri-schemes", "demo"] = replace(
        desk.entry, fields={**desk.entry.fields, "change_controller": "Cy <cy@example.com>"}
    )
    desk.do(K.APPROVE, "expert")
    assert desk.entry.fields["change_controller"] == "Cy <cy@example.com>"


@pytest.mark.parametrize("name", ["dtn", "ipn"])
def test_an_imported_row_without_registrant_is_upgraded_as_in_iana_s_own_registry(name: str) -> None:
    row = next(entry for entry in load_builtin_snapshot("uri-schemes").entries if entry.name == name)
    desk = Desk("rfc7595")
    desk.book.entries["uri-schemes", name] = replace(row, status=T.PROVISIONAL)
    fields = {**COMPLETE, "references": "[RFC9171][RFC9758]"}
    about = {"name": name, "kind": KIND.STATUS_CHANGE, "status": T.PERMANENT, "fields": fields}
    desk.do(K.OPEN, "stranger", **about)
    desk.do(K.ANNOUNCE, "stranger")
    desk.at += FOUR_WEEKS
    desk.do(K.SUBMIT, "stranger")
    assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I4"
    # what an RFC defines, or who controls it, is the IESG's to approve as well (RFC 7595 7.3)
    assert desk.do(K.APPROVE, "expert").rule == "U2"
    assert desk.do(K.IESG_APPROVE, "iesg").rule == "E4"
    entry = desk.book.entries["uri-schemes", name]
    assert (entry.status, entry.registrant) == (T.PERMANENT, None)


@pytest.mark.requirement("rfc4395-5.3-a", "rfc7595-7.3-a")
@BOTH
def test_an_update_goes_the_way_of_an_initial_registration(profile: str) -> None:
    desk = permanent(profile)
    desk.opened(by="stranger", kind=KIND.UPDATE, fields={"contact": "Bo"})
    if profile == "rfc7595":
        assert desk.refuses(K.SUBMIT, "stranger").clause == "RFC 7595 7.2 item 3"
    desk.do(K.ANNOUNCE, "stranger")
    desk.do(K.SUBMIT, "stranger")
    assert desk.do(K.CHECK_COMPLETE, "iana").rule == "I4"
    assert desk.entry.fields["contact"] == COMPLETE["contact"]
    desk.only_for(("expert",), K.APPROVE)
    desk.do(K.APPROVE, "expert")
    assert (desk.status, desk.entry.fields) == (
        T.PERMANENT,
        {**COMPLETE, **_same(desk.entry), "contact": "Bo"},
    )


def _same(entry: Entry) -> dict[str, str]:
    return {name: entry.fields[name] for name in ("reference", "description")}


@pytest.mark.requirement("rfc4395-5.3-b", "rfc7595-7.3-b")
@BOTH
def test_an_update_of_what_an_iesg_approved_document_defines_needs_the_iesg_too(profile: str) -> None:
    desk = permanent(profile, iesg_approved=True)
    desk.received(kind=KIND.UPDATE, fields={"contact": "Bo"})
    done = desk.do(K.APPROVE, "expert")
    assert (done.rule, done.clause, desk.state()) == ("U2", CONTROL[profile], S.IETF_REVIEW)
    assert desk.entry.fields["contact"] == COMPLETE["contact"]
    desk.only_for(("iesg",), K.IESG_APPROVE)
    assert desk.do(K.IESG_APPROVE, "iesg").rule == "U2"
    assert desk.entry.fields["contact"] == "Bo"
    declined = permanent(profile, iesg_approved=True)
    declined.received(kind=KIND.UPDATE, fields={"contact": "Bo"})
    declined.do(K.APPROVE, "expert")
    declined.do(K.IESG_DECLINE, "iesg", reason="no")
    assert declined.entry.fields["contact"] == COMPLETE["contact"]


@pytest.mark.requirement("rfc4395-5.3-c", "rfc7595-7.3-c")
@BOTH
def test_a_provisional_entry_is_updated_by_its_registrant_or_whom_they_designate(profile: str) -> None:
    asked = {"kind": KIND.UPDATE, "fields": {"contact": "Bo"}, "profile": profile}
    for who in PEOPLE.keys() - {"owner", "designee", "reader", "nobody"}:
        refusal = provisional(profile).refuses(K.OPEN, who, **asked)
        assert (refusal.rule, refusal.clause) == ("U1", CONTROL[profile])
    for who in ("owner", "designee"):
        desk = provisional(profile)
        desk.received(by=who, **asked)
        if profile == "rfc4395":
            desk.do(K.APPROVE, "expert")
        assert desk.entry.fields["contact"] == "Bo"
    desk = provisional(profile)
    desk.only_for(("owner",), K.DESIGNATE, None, add=["stranger"])
    assert desk.do(K.DESIGNATE, "owner", None, add=["stranger"]).rule == "U1"
    desk.opened(by="stranger", **asked)


@pytest.mark.requirement("rfc4395-5.3-d", "rfc7595-7.3-d")
@BOTH
def test_the_iesg_reassigns_a_provisional_entry_or_asks_for_changes(profile: str) -> None:
    desk = provisional(profile)
    given = {"to": "stranger", "reason": "out of contact", "change_controller": "Cy <cy@example.com>"}
    desk.only_for(("iesg",), K.REASSIGN, None, **given)
    done = desk.do(K.REASSIGN, "iesg", None, **given)
    assert (done.rule, done.clause) == ("U3", CONTROL[profile])
    assert (desk.entry.registrant, desk.entry.designees) == ("stranger", frozenset())
    assert desk.entry.fields["change_controller"] == "Cy <cy@example.com>"
    for status in (T.PERMANENT, T.HISTORICAL):
        Desk(profile, entry=status).refuses(K.REASSIGN, "iesg", None, **given)
    for who in (provisional(profile), permanent(profile)):
        who.only_for(("iesg",), K.DEMAND_CHANGES, None, reason="name the port")
        assert who.do(K.DEMAND_CHANGES, "iesg", None, reason="name the port").rule == "U3"
        assert [note.kind for note in who.entry.notes] == ["changes-demanded"]


@pytest.mark.requirement("rfc4395-5.3-d", "rfc7595-7.3-d")
@BOTH
def test_a_request_to_reassign_waits_for_the_iesg_and_for_nobody_else(profile: str) -> None:
    desk = provisional(profile)
    assert desk.received(by="stranger", kind=KIND.REASSIGN, fields={}).rule == "S2"
    desk.only_for(("iesg",), K.IESG_APPROVE)
    assert desk.do(K.IESG_APPROVE, "iesg").rule == "U3"
    assert desk.entry.registrant == "stranger"
    for status in (T.PERMANENT, T.HISTORICAL):
        other = Desk(profile, entry=status, fields=COMPLETE)
        asked = {"kind": KIND.REASSIGN, "profile": profile}
        assert other.refuses(K.OPEN, "stranger", **asked).rule == "U3"


@pytest.mark.requirement("rfc4395-5.3-f", "rfc4395-4-b", "rfc7595-7.3-f", "rfc7595-5-b")
@BOTH
def test_permanent_to_historical_is_the_iesgs_to_approve(profile: str) -> None:
    desk = permanent(profile)
    done = desk.received(T.HISTORICAL, by="stranger", kind=KIND.STATUS_CHANGE, fields={})
    assert (done.rule, desk.state(), desk.status) == ("S2", S.IETF_REVIEW, T.PERMANENT)
    desk.refuses(K.APPROVE, "expert")
    desk.only_for(("iesg",), K.IESG_APPROVE)
    done = desk.do(K.IESG_APPROVE, "iesg")
    assert (done.rule, done.clause, desk.status) == ("S2", CONTROL[profile], T.HISTORICAL)
    for who in PEOPLE:
        permanent(profile).refuses(K.RETIRE, who, None)


@pytest.mark.requirement("rfc4395-5.3-g", "rfc4395-4-b", "rfc7595-7.3-g", "rfc7595-5-b")
@BOTH
@pytest.mark.parametrize("who", ["owner", "designee"])
def test_provisional_to_historical_is_asked_for_by_who_may_update_it(profile: str, who: str) -> None:
    desk = provisional(profile)
    desk.only_for(("owner", "designee"), K.RETIRE, None)
    done = desk.do(K.RETIRE, who, None, reason="out of use")
    assert (done.rule, done.clause, desk.status) == ("S3", CONTROL[profile], T.HISTORICAL)
    by_request = provisional(profile)
    asked = {"kind": KIND.STATUS_CHANGE, "status": T.HISTORICAL, "profile": profile}
    assert by_request.refuses(K.OPEN, "stranger", **asked).rule == "U1"
    assert by_request.received(T.HISTORICAL, by=who, kind=KIND.STATUS_CHANGE).rule == "S3"
    assert by_request.status is T.HISTORICAL


@pytest.mark.requirement("rfc4395-4-b", "rfc7595-5-b")
@BOTH
def test_any_individual_may_ask_for_a_new_historical_entry(profile: str) -> None:
    desk = Desk(profile)
    assert desk.received(T.HISTORICAL, by="stranger").rule == "I4"
    desk.only_for(("expert",), K.APPROVE)
    assert desk.do(K.APPROVE, "expert").rule == "S4"
    assert desk.status is T.HISTORICAL


@BOTH
def test_what_no_clause_defines_is_refused(profile: str) -> None:
    for status, wanted in (
        (T.PERMANENT, T.PROVISIONAL),
        (T.PERMANENT, T.PERMANENT),
        (T.HISTORICAL, T.PROVISIONAL),
        (T.HISTORICAL, T.PERMANENT),
    ):
        desk = Desk(profile, entry=status, fields=COMPLETE)
        for who in MAKERS:
            asked = {"kind": KIND.STATUS_CHANGE, "status": wanted, "profile": profile}
            assert desk.refuses(K.OPEN, who, TWO, **asked).rule == "X"


# -- U5, C1


@pytest.mark.requirement("rfc4395-7-a", "rfc7595-10-a")
@BOTH
@pytest.mark.parametrize("status", [T.PERMANENT, T.PROVISIONAL, T.HISTORICAL])
def test_later_security_information_is_attached_to_the_entry(profile: str, status: T) -> None:
    clause = {"rfc4395": "RFC 4395 7", "rfc7595": "RFC 7595 10"}[profile]
    for who in ("owner", "designee", "iana", "expert", "iesg"):
        desk = Desk(profile, entry=status, fields=COMPLETE, designees=frozenset({"designee"}))
        done = desk.do(
            K.ATTACH_SECURITY_NOTE, who, None, text="handlers run commands", reference="CVE-2026-0001"
        )
        assert (done.rule, done.clause, desk.status) == ("U5", clause, status)
        assert [(note.kind, note.text, note.by) for note in desk.entry.notes] == [
            ("security", "handlers run commands [CVE-2026-0001]", who)
        ]
    desk = Desk(profile, entry=status, designees=frozenset({"designee"}))
    desk.only_for(("owner", "designee", "iana", "expert", "iesg"), K.ATTACH_SECURITY_NOTE, None, text="x")


@pytest.mark.requirement("rfc4395-5.1-d", "rfc7595-3-b")
def test_an_ietf_document_waits_for_the_entry_that_its_scheme_needs() -> None:
    def refusal(status: T | None, profile: str, *, standards_track: bool) -> str | None:
        row = None if status is None else Entry(registry="uri-schemes", name="demo", status=status)
        return publication_refusal(
            row, standards_track=standards_track, document="RFC 9999", profile_id=profile
        )

    for profile, clause in (("rfc4395", "RFC 4395 5.1"), ("rfc7595", "RFC 7595 3")):
        assert refusal(T.PERMANENT, profile, standards_track=True) is None
        for status in (None, T.PENDING_REVIEW, T.PROVISIONAL, T.HISTORICAL):
            assert clause in (refusal(status, profile, standards_track=True) or "")
    for status in (None, T.PENDING_REVIEW):
        assert "Expert Review" in (refusal(status, "rfc4395", standards_track=False) or "")
    assert refusal(T.PROVISIONAL, "rfc4395", standards_track=False) is None
