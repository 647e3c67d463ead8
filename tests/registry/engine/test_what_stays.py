"""What a step does not concern stays as it is: who may update a row, its notes, its state, its text."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from onym.registry import codec
from onym.registry.engine import decide, publication_refusal
from onym.registry.records import (
    Actor,
    Decision,
    DraftReference,
    Entry,
    Event,
    EventKind,
    Note,
    RequestKind,
    RequestState,
    Role,
    Status,
)

from .table import ACTORS, AT, LIVE, SCENES
from .test_ambiguities import FORTNIGHT, Desk

K, R, S, T = EventKind, RequestKind, RequestState, Status
TWO = "uri-schemes-2"


def row_of(desk: Desk) -> Entry:
    return desk.book.entries["uri-schemes", "demo"]


def imported(status: Status, **members: Any) -> Desk:
    """A row of a published registry: no registrant, no date."""
    desk = Desk("rfc7595")
    entry = Entry(registry="uri-schemes", name="demo", status=status, fields={"description": "d"}, **members)
    desk.ask(K.IMPORT, "iana", request=None, entry=codec.to_data(entry))
    return desk


def update(desk: Desk, request: str = TWO, /, *, by: str = "owner", **fields: str) -> Decision:
    """An update of the row, as far as IANA's check."""
    desk.ask(K.OPEN, by, request=request, kind=R.UPDATE, fields=fields, profile=desk.profile)
    desk.ask(K.ANNOUNCE, by, request=request)
    desk.ask(K.SUBMIT, by, request=request)
    return desk.ask(K.CHECK_COMPLETE, "iana", request=request)


def change(desk: Desk, status: Status, request: str = TWO, /, *, by: str = "owner", **data: Any) -> None:
    """A change of status, as far as IANA's check."""
    desk.ask(
        K.OPEN, by, request=request, kind=R.STATUS_CHANGE, status=status, profile=desk.profile, **data
    )  # fmt: skip
    desk.ask(K.ANNOUNCE, by, request=request)
    desk.ask(K.SUBMIT, by, request=request)
    desk.ask(K.CHECK_COMPLETE, "iana", request=request)


# ---------- who may update a row


def test_an_approved_update_of_an_imported_row_gives_it_to_nobody() -> None:
    desk = imported(T.PERMANENT)
    update(desk, by="stranger", contact="Stranger <s@example.com>")
    desk.ask(K.APPROVE, "expert", request=TWO)
    row = row_of(desk)
    assert row.fields["contact"] == "Stranger <s@example.com>"
    assert (row.registrant, row.registered) == (None, None)


def test_an_imported_row_that_is_retired_is_not_given_to_who_asked() -> None:
    desk = imported(T.PERMANENT)
    change(desk, T.HISTORICAL, by="stranger")
    desk.ask(K.IESG_APPROVE, "iesg", request=TWO)
    row = row_of(desk)
    assert (row.status, row.registrant, row.registered) == (T.HISTORICAL, None, None)


def test_an_upgrade_that_the_expert_asks_for_leaves_the_row_to_its_registrant() -> None:
    desk = imported(T.PROVISIONAL)
    desk.ask(K.REASSIGN, "iesg", request=None, to="owner", reason="it is theirs")
    whole = SCENES["new permanent"].request("rfc7595", S.DRAFT).fields
    change(desk, T.PERMANENT, by="expert", fields=whole)
    desk.ask(K.APPROVE, "expert", request=TWO)
    row = row_of(desk)
    assert (row.status, row.registrant, row.registered) == (T.PERMANENT, "owner", None)


def test_a_new_name_is_its_registrants_from_the_day_it_is_approved() -> None:
    desk = Desk("rfc7595")
    desk.to_expert(T.PERMANENT)
    desk.at += FORTNIGHT
    desk.ask(K.APPROVE, "expert")
    assert (row_of(desk).registrant, row_of(desk).registered) == ("owner", desk.at)


# ---------- what happened while the IETF reviews a request


def in_ietf_review(**data: Any) -> Desk:
    desk = Desk("rfc7595")
    desk.to_expert(T.PERMANENT, **data)
    desk.ask(K.ASK_IETF_REVIEW, "expert")
    return desk


def test_an_update_during_ietf_review_outlasts_the_approval() -> None:
    desk = in_ietf_review()
    assert update(desk, contact="Bo <bo@example.com>").rule == "I3"
    desk.ask(K.IESG_APPROVE, "iesg")
    row = row_of(desk)
    assert (row.status, row.fields["contact"], row.pending) == (T.PERMANENT, "Bo <bo@example.com>", ())


def test_a_draft_that_expired_during_ietf_review_is_told_once() -> None:
    desk = in_ietf_review(draft={"name": "draft-demo-00", "expires": "2026-03-10"})
    desk.at += FORTNIGHT
    assert [item.rule for item in desk.tick()] == ["U4"]
    desk.ask(K.IESG_APPROVE, "iesg")
    assert (row_of(desk).draft, desk.tick()) == (None, [])
    assert [note.kind for note in row_of(desk).notes] == ["draft-expired"]


def test_a_draft_that_became_an_rfc_during_ietf_review_stays_one() -> None:
    desk = in_ietf_review(draft={"name": "draft-demo-00", "expires": "2026-09-10"})
    desk.ask(K.DRAFT_PUBLISHED, "iana", request=None, reference="[RFC9999]")
    desk.ask(K.IESG_APPROVE, "iesg")
    assert (row_of(desk).draft, row_of(desk).fields["reference"]) == (None, "[RFC9999]")


def test_a_draft_of_which_the_row_says_that_it_expired_does_not_come_back_with_an_approval() -> None:
    desk = Desk("rfc4395")
    desk.to_expert(T.PERMANENT, draft={"name": "draft-demo-00", "expires": "2026-03-16"})
    desk.at += FORTNIGHT
    desk.tick()  # provisional meanwhile
    desk.at += timedelta(days=7)
    assert [item.rule for item in desk.tick()] == ["U4"]
    desk.ask(K.APPROVE, "expert")
    assert (desk.status, row_of(desk).draft, desk.tick()) == (T.PERMANENT, None, [])


@pytest.mark.parametrize("approved", [True, False])
def test_what_an_upgrade_asks_for_is_written_when_the_iesg_approves_it_and_not_before(approved: bool) -> None:
    desk = Desk("rfc7595")
    desk.submitted(T.PROVISIONAL)
    desk.ask(K.CHECK_COMPLETE, "iana")
    before = row_of(desk)
    change(desk, T.PERMANENT, fields={"contact": "Bo <bo@example.com>"})
    desk.ask(K.ASK_IETF_REVIEW, "expert", request=TWO)
    meanwhile = row_of(desk)
    assert (meanwhile.fields, meanwhile.pending) == (before.fields, (TWO,))
    if approved:
        desk.ask(K.IESG_APPROVE, "iesg", request=TWO)
        assert row_of(desk).fields == {**before.fields, "contact": "Bo <bo@example.com>"}
    else:
        desk.ask(K.IESG_DECLINE, "iesg", request=TWO, reason="no consensus")
        assert row_of(desk).fields == before.fields
    assert row_of(desk).pending == ()


# ---------- what two weeks of silence registered


def unreviewed_row() -> Desk:
    desk = Desk("rfc4395")
    desk.to_expert(T.PROVISIONAL)
    desk.at += FORTNIGHT
    desk.tick()
    return desk


def is_unreviewed(desk: Desk) -> bool:
    said = publication_refusal(
        row_of(desk), standards_track=False, document="RFC 99999", profile_id="rfc4395"
    )
    return said is not None


def notes(desk: Desk) -> list[str]:
    return [note.kind for note in row_of(desk).notes]


def test_an_update_that_no_expert_saw_leaves_a_row_unreviewed() -> None:
    desk = unreviewed_row()
    desk.profile = "rfc7595"
    # whoever has every role is no expert where IANA's step is done
    everybody = Actor(id="ada", roles=frozenset(Role))
    desk.ask(K.OPEN, "owner", request=TWO, kind=R.UPDATE, fields={"contact": "Bo"}, profile="rfc7595")
    desk.ask(K.SUBMIT, "owner", request=TWO)
    asked = Event(kind=K.CHECK_COMPLETE, registry="uri-schemes", request=TWO, name="demo")
    assert desk.book.apply(asked, everybody, desk.at).rule == "I3"
    assert (row_of(desk).fields["contact"], is_unreviewed(desk)) == ("Bo", True)


def test_a_row_that_is_retired_without_an_expert_stays_unreviewed() -> None:
    desk = unreviewed_row()
    change(desk, T.HISTORICAL)
    assert (desk.status, is_unreviewed(desk)) == (T.HISTORICAL, True)


def test_silence_about_an_update_leaves_one_note_that_the_row_is_unreviewed() -> None:
    desk = unreviewed_row()
    update(desk, contact="Bo")
    desk.at += FORTNIGHT
    desk.tick()
    assert (row_of(desk).fields["contact"], notes(desk)) == ("Bo", ["unreviewed"])
    assert row_of(desk).notes[0].at == desk.at


@pytest.mark.parametrize("event", [K.ASK_UPGRADE, K.APPROVE])
def test_an_expert_who_approves_a_row_ends_its_being_unreviewed(event: EventKind) -> None:
    desk = unreviewed_row()
    if event is K.APPROVE:
        update(desk, contact="Bo")
        desk.ask(event, "expert", request=TWO)
    else:
        desk.ask(event, "expert", request=None)
    assert (is_unreviewed(desk), notes(desk)) == (False, [])


# ---------- namespaces that expire


def namespace(status: Status, **members: Any) -> Entry:
    return Entry(
        registry="ai-namespaces", name="demo", status=status, registrant="owner",
        expires=date(2026, 2, 28), version=2, **members,
    )  # fmt: skip


def after(row: Entry, *events: EventKind, **data: Any) -> Entry:
    for kind in events:
        given = {"reason": "because", "expires": "2026-12-31", **data}
        asked = Event(kind=kind, registry="ai-namespaces", name="demo", data=given)
        found = decide(asked, ACTORS["iana"], AT, request=None, entry=row).entry
        assert found is not None
        row = found
    return row


ROUND = (K.NAMESPACE_EXPIRED, K.RENEW)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((K.SUSPEND, *ROUND), T.SUSPENDED),
        ((K.ENTER_SAFE_MODE, *ROUND), T.SAFE_MODE),
        ((K.ENTER_SAFE_MODE, K.SUSPEND, *ROUND), T.SUSPENDED),
        ((K.SUSPEND, *ROUND, K.REINSTATE), T.ACTIVE),
        ((K.SUSPEND, K.REINSTATE, *ROUND), T.ACTIVE),
        (ROUND, T.ACTIVE),
    ],
)
def test_a_namespace_that_is_renewed_is_what_it_was_before_it_expired(
    events: tuple[EventKind, ...], status: Status
) -> None:
    assert after(namespace(T.ACTIVE), *events).status is status


@pytest.mark.parametrize("status", [T.SAFE_MODE, T.SUSPENDED])
def test_a_state_that_an_import_or_an_override_set_outlasts_an_expiry(status: Status) -> None:
    assert after(namespace(status), *ROUND).status is status
    overridden = after(namespace(T.ACTIVE), K.OVERRIDE, status=str(status))
    assert after(overridden, *ROUND).status is status
    # and twice over: the file with which the first renewal is recorded has another day
    again = replace(after(overridden, *ROUND), expires=date(2026, 2, 28))
    assert after(again, *ROUND).status is status


def test_a_namespace_that_was_made_active_by_import_is_renewed_as_active() -> None:
    stale = Note(kind="suspended", text="abuse", at=AT, by="iana")
    assert after(namespace(T.ACTIVE, notes=(stale,)), *ROUND).status is T.ACTIVE


# ---------- imports


def test_an_import_keeps_the_fields_that_no_column_of_the_registry_shows() -> None:
    own = {
        "contact": "Ada <ada@example.com>",
        "change_controller": "Ada",
        "applications": "a",
        "references": "r",
    }
    shown = {"description": "d", "reference": "[R]", "well_known": "x"}
    desk = imported(T.PERMANENT)
    old = replace(
        row_of(desk), fields={**own, **shown, "published_status": "Odd"},
        draft=DraftReference(name="draft-demo-00", expires=date(2026, 9, 1)),
    )  # fmt: skip
    desk.book.entries["uri-schemes", "demo"] = old
    file = Entry(
        registry="uri-schemes", name="demo", status=T.PERMANENT,
        fields={"description": "new", "contact": "Bo"},
    )  # fmt: skip
    desk.ask(K.IMPORT, "iana", request=None, entry=codec.to_data(file))
    assert row_of(desk).fields == {**own, "description": "new", "contact": "Bo"}
    assert row_of(desk).draft == old.draft


# ---------- who hears of a withdrawal


@pytest.mark.parametrize("state", LIVE, ids=str)
def test_a_withdrawal_is_told_to_whoever_was_asked_to_decide(state: RequestState) -> None:
    told = {
        S.SUBMITTED: [Role.IANA], S.EXPERT_REVIEW: [Role.EXPERT], S.MORE_REVIEW: [Role.EXPERT],
        S.IETF_REVIEW: [Role.IESG],
    }  # fmt: skip
    scene = SCENES["new permanent"]
    # whose move it is, which in more-review is the registrant's
    holder = Role.REGISTRANT if state is S.MORE_REVIEW else told.get(state, [Role.REGISTRANT])[0]
    request = scene.request("rfc7595", state, holder=holder)
    asked = Event(kind=K.WITHDRAW, registry="uri-schemes", request=request.id, name="demo")
    decision = decide(
        asked, ACTORS["owner"], AT, request=request, entry=scene.entry("rfc7595", state)
    )  # fmt: skip
    assert [notice.to for notice in decision.notices] == told.get(state, [])
