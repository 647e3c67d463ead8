"""Ways round the procedure that a hostile reading of both RFCs found; each is shut."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry.engine import publication_refusal
from onym.registry.records import DraftReference

from .desk import BOTH, COMPLETE, FORTNIGHT, KIND, ONE, TWO, Desk, K, T


def refused(desk: Desk, *asked: Any, **data: Any) -> None:
    """This must be refused, or lead nowhere that it should not."""
    with pytest.raises(RefusalError):
        desk.do(*asked, **data)


# -- what silence does


def test_an_expert_cannot_approve_over_the_entry_of_another_once_the_fortnight_has_passed() -> None:
    """RFC 4395 5.2 step 2 and 3: a name in use is rejected, or noted by the IESG; never overwritten."""
    desk = Desk("rfc4395")
    for number, who in ((ONE, "owner"), (TWO, "stranger")):
        desk.opened(T.PROVISIONAL, by=who, request=number)
        desk.do(K.SUBMIT, who, number)
        desk.do(K.CHECK_COMPLETE, "iana", number)
    desk.do(K.APPROVE, "expert", ONE)
    desk.do(K.ASK_UPGRADE, "expert", None)
    desk.at += FORTNIGHT
    desk.tick()
    with suppress(RefusalError):
        desk.do(K.APPROVE, "expert", TWO)
    assert (desk.status, desk.entry.registrant) == (T.PERMANENT, "owner")


def test_silence_does_not_change_what_an_iesg_approved_document_defines() -> None:
    """RFC 4395 5.3: the update also requires IESG approval."""
    desk = Desk("rfc4395", entry=T.PROVISIONAL, iesg_approved=True, fields=COMPLETE)
    desk.opened(kind=KIND.UPDATE, fields={"syntax": "another"})
    desk.do(K.SUBMIT, "owner")
    desk.do(K.CHECK_COMPLETE, "iana")
    desk.at += FORTNIGHT
    desk.tick()
    assert desk.entry.fields["syntax"] == COMPLETE["syntax"]


def test_an_update_of_what_an_iesg_approved_document_defines_is_not_registered_at_once() -> None:
    """RFC 7595 7.3: the update also requires IESG approval, of a provisional entry too."""
    desk = Desk("rfc7595", entry=T.PROVISIONAL, iesg_approved=True, fields=COMPLETE)
    desk.opened(kind=KIND.UPDATE, fields={"references": "another"})
    desk.do(K.SUBMIT, "owner")
    desk.do(K.CHECK_COMPLETE, "iana")
    assert desk.entry.fields["references"] == COMPLETE["references"]


# -- changes of status that no clause defines


@BOTH
def test_a_revised_request_does_not_make_a_permanent_entry_provisional(profile: str) -> None:
    """RFC 4395 5.3, RFC 7595 7.3 define no such transition (row X); OPEN refuses it, REVISE does not."""
    desk = Desk(profile, entry=T.PERMANENT, fields=COMPLETE)
    desk.opened(T.HISTORICAL, kind=KIND.STATUS_CHANGE)
    with suppress(RefusalError):
        desk.do(K.REVISE, "owner", status=T.PROVISIONAL)
        desk.do(K.SUBMIT, "owner")
        desk.do(K.CHECK_COMPLETE, "iana")
        desk.do(K.APPROVE, "expert")
    assert desk.status is T.PERMANENT


@BOTH
def test_a_revised_request_does_not_make_a_permanent_entry_historical_without_the_iesg(profile: str) -> None:
    """RFC 4395 5.3, RFC 7595 7.3: permanent to historical requires IESG approval."""
    desk = Desk(profile, entry=T.PERMANENT, fields=COMPLETE)
    desk.opened(T.HISTORICAL, kind=KIND.STATUS_CHANGE)
    with suppress(RefusalError):
        desk.do(K.REVISE, "owner", status=T.PERMANENT)
        desk.do(K.ANNOUNCE, "owner")
        desk.do(K.SUBMIT, "owner")
        desk.do(K.CHECK_COMPLETE, "iana")
        desk.do(K.ASK_MORE_REVIEW, "expert", reason="which status?")
        desk.do(K.REVISE, "owner", status=T.HISTORICAL)
        desk.do(K.APPROVE, "expert")
    assert desk.status is T.PERMANENT


@BOTH
@pytest.mark.parametrize("how", [K.APPROVE, K.ASK_IETF_REVIEW])
def test_an_upgrade_under_review_does_not_revive_an_entry_retired_meanwhile(profile: str, how: Any) -> None:
    """No clause leads from historical to anything (row X)."""
    desk = Desk(profile, entry=T.PROVISIONAL, fields=COMPLETE)
    desk.received(T.PERMANENT, kind=KIND.STATUS_CHANGE)
    desk.do(K.RETIRE, "owner", None)
    with suppress(RefusalError):
        desk.do(how, "expert")
    assert desk.status is T.HISTORICAL


@BOTH
def test_a_request_to_reassign_does_not_reach_an_entry_that_has_become_permanent(profile: str) -> None:
    """RFC 4395 5.3, RFC 7595 7.3: the IESG reassigns provisional registrations; OPEN and REASSIGN know it."""
    desk = Desk(profile, entry=T.PROVISIONAL, fields=COMPLETE)
    desk.received(by="stranger", kind=KIND.REASSIGN)
    desk.do(K.ASK_UPGRADE, "expert", None)
    with suppress(RefusalError):
        desk.do(K.IESG_APPROVE, "iesg")
    assert desk.entry.registrant == "owner"


# -- who may ask


@BOTH
@pytest.mark.parametrize("who", ["expert", "iesg"])
def test_only_who_may_update_a_provisional_entry_asks_to_retire_it(profile: str, who: str) -> None:
    """RFC 4395 5.3, RFC 7595 7.3: by anyone authorized to update it; others may ask for upgrades alone."""
    desk = Desk(profile, entry=T.PROVISIONAL, fields=COMPLETE)
    with suppress(RefusalError):
        desk.opened(T.HISTORICAL, by=who, kind=KIND.STATUS_CHANGE)
        desk.do(K.SUBMIT, who)
        desk.do(K.CHECK_COMPLETE, "iana")
    assert desk.status is T.PROVISIONAL


@pytest.mark.parametrize(
    "asked", [{"kind": KIND.UPDATE}, {"kind": KIND.STATUS_CHANGE, "status": T.HISTORICAL}]
)
def test_who_was_replaced_by_the_iesg_changes_the_entry_no_more(asked: dict[str, Any]) -> None:
    """RFC 7595 7.3: the registrant's right went with the reassignment; a draft opened before keeps it."""
    desk = Desk("rfc7595", entry=T.PROVISIONAL, fields=COMPLETE)
    desk.opened(fields={"contact": "Mallory <m@example.com>"}, **asked)
    desk.do(K.REASSIGN, "iesg", None, to="stranger", reason="out of contact")
    with suppress(RefusalError):
        desk.do(K.SUBMIT, "owner")
        desk.do(K.CHECK_COMPLETE, "iana")
    assert (desk.status, desk.entry.fields["contact"]) == (T.PROVISIONAL, COMPLETE["contact"])


# -- list review


def test_a_corrected_request_for_permanent_needs_list_review_too() -> None:
    """RFC 7595 7.2 item 3: a MUST for permanent registration; RESUBMIT may raise the status without it."""
    desk = Desk("rfc7595")
    desk.opened(T.PROVISIONAL, fields={"contact": "Ada"})
    desk.do(K.SUBMIT, "owner")
    desk.do(K.REJECT_INCOMPLETE, "iana")
    refused(desk, K.RESUBMIT, "owner", ONE, fields=COMPLETE, status=T.PERMANENT)


def test_a_request_revised_to_permanent_under_review_needs_list_review_too() -> None:
    """RFC 7595 7.2 item 3: a historical request needs none, and more review lets its status be raised."""
    desk = Desk("rfc7595")
    desk.opened(T.HISTORICAL)
    desk.do(K.SUBMIT, "owner")
    desk.do(K.CHECK_COMPLETE, "iana")
    desk.do(K.ASK_MORE_REVIEW, "expert", reason="is it not in use?")
    with suppress(RefusalError):
        desk.do(K.REVISE, "owner", status=T.PERMANENT)
        desk.do(K.APPROVE, "expert")
    assert desk.status is not T.PERMANENT


def test_an_update_of_a_permanent_entry_needs_the_list_review_that_the_entry_needed() -> None:
    """RFC 7595 7.3: the same mechanism as for an initial registration; a status named at OPEN evades it."""
    desk = Desk("rfc7595", entry=T.PERMANENT, fields=COMPLETE)
    refused(desk, K.OPEN, "owner", ONE, kind=KIND.UPDATE, status=T.PROVISIONAL)
    desk.opened(T.PERMANENT, kind=KIND.UPDATE)
    refused(desk, K.SUBMIT, "owner")


# -- completeness


def test_an_update_cannot_take_the_contact_out_of_an_entry() -> None:
    """RFC 7595 4: contact information must be included; 7.3: by the same mechanism, so step 1 holds."""
    desk = Desk("rfc7595", entry=T.PROVISIONAL, fields=COMPLETE)
    desk.opened(kind=KIND.UPDATE, fields={"contact": "", "change_controller": " "})
    desk.do(K.SUBMIT, "owner")
    refused(desk, K.CHECK_COMPLETE, "iana")
    assert desk.entry.fields["contact"]


def test_an_upgrade_needs_the_fields_that_a_new_permanent_registration_needs() -> None:
    """RFC 4395 5.3: requested and approved in the same manner as a new permanent registration."""
    desk = Desk("rfc4395", entry=T.PROVISIONAL, fields={"contact": "Ada <ada@example.com>"})
    desk.submitted(T.PERMANENT, kind=KIND.STATUS_CHANGE, fields={})
    refused(desk, K.CHECK_COMPLETE, "iana")


@BOTH
def test_a_new_request_names_the_status_that_it_asks_for(profile: str) -> None:
    """RFC 4395 5.4, RFC 7595 7.4: the status is a field that must be supplied."""
    Desk(profile).refuses(K.OPEN, "owner", fields=COMPLETE)


def test_notes_are_the_experts_to_approve_not_the_registrants_to_write() -> None:
    """RFC 7595 9: the Notes column may contain notes approved by the Designated Expert."""
    desk = Desk("rfc7595")
    fields = COMPLETE | {"notes": "endorsed by the IESG"}
    refused(desk, K.OPEN, "owner", ONE, status=T.PROVISIONAL, fields=fields)


# -- names in use


def test_the_conflict_process_applies_to_a_name_under_review_as_well() -> None:
    """RFC 7595 7.2 step 7: regardless of the status of the existing entry, and 9: Pending Review is one."""
    desk = Desk("rfc7595")
    desk.received(T.PERMANENT)
    assert desk.status is T.PENDING_REVIEW
    desk.opened(T.PROVISIONAL, by="stranger", request=TWO, kind=KIND.SEPARATE_USE)


def test_a_request_under_review_is_shown_when_the_one_before_it_goes() -> None:
    """RFC 7595 7.2 step 3: each request under review stands in the registry as Pending Review."""
    desk = Desk("rfc7595")
    for number, who in ((ONE, "owner"), (TWO, "stranger")):
        desk.opened(T.HISTORICAL, by=who, request=number)
    for number, who in ((ONE, "owner"), (TWO, "stranger")):
        desk.do(K.SUBMIT, who, number)
        desk.do(K.CHECK_COMPLETE, "iana", number)
    desk.do(K.REJECT, "expert", ONE, reason="not its maker")
    assert desk.status is T.PENDING_REVIEW


def test_a_name_as_long_as_rfc_3986_allows_is_not_refused_in_its_name() -> None:
    """RFC 3986 3.1 sets no limit; the limit of 63 characters is Onym's own and should say so."""
    desk = Desk("rfc7595")
    refusal = desk.refuses(K.OPEN, "owner", name="a" * 64, status=T.PROVISIONAL, fields=COMPLETE)
    assert refusal.clause != "RFC 3986 3.1"


# -- IETF documents


def test_an_entry_that_silence_made_has_not_passed_expert_review() -> None:
    """RFC 4395 5.1: a scheme in any RFC must undergo Expert Review; two weeks of silence are none."""
    desk = Desk("rfc4395")
    desk.received(T.PROVISIONAL)
    desk.at += FORTNIGHT
    desk.tick()
    assert (
        publication_refusal(desk.entry, standards_track=False, document="RFC 99999", profile_id="rfc4395")
        is not None
    )


def test_no_standards_track_document_becomes_the_reference_of_a_provisional_entry() -> None:
    """RFC 7595 3: permanent status is REQUIRED; row C1 blocks, and DRAFT_PUBLISHED never asks."""
    draft = DraftReference(name="draft-demo-01", expires=date(2026, 9, 1))
    desk = Desk("rfc7595", entry=T.PROVISIONAL, fields=COMPLETE, draft=draft)
    refused(
        desk,
        K.DRAFT_PUBLISHED,
        "iana",
        None,
        reference="[RFC99999]",
        iesg_approved=True,
        standards_track=True,
    )


# -- the IESG's word


def test_an_upgrade_that_the_iesg_declines_leaves_no_permanent_entry() -> None:
    """RFC 7595 7.2 step 6: the expert asked the IESG; its refusal must not be empty."""
    desk = Desk("rfc7595")
    desk.received(T.PERMANENT)
    desk.do(K.ASK_IETF_REVIEW, "expert")
    with suppress(RefusalError):
        desk.do(K.ASK_UPGRADE, "expert", None)
    desk.do(K.IESG_DECLINE, "iesg", reason="no consensus")
    assert desk.status is T.PROVISIONAL
