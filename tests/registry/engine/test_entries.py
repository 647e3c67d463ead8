"""Every (status, event, actor) triple about a row, and what each step writes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.engine import RULES, decide, list_allowed_events, publication_refusal
from onym.registry.records import Actor, Decision, DraftReference, Entry, Event, EventKind, Role, Status
from onym.registry.registries import REGISTRIES
from support import as_subtests

from .table import ACTORS, AT

K, T = EventKind, Status

DATA: dict[EventKind, dict[str, Any]] = {
    K.REASSIGN: {"to": "heir", "reason": "out of contact"},
    K.DEMAND_CHANGES: {"reason": "name the encoding"},
    K.ATTACH_SECURITY_NOTE: {"text": "do not follow links"},
    K.DESIGNATE: {"add": ["deputy"]},
    K.RETIRE: {"reason": "no longer in use"},
    K.DRAFT_PUBLISHED: {"reference": "[RFC9999]"},
    K.ENTER_SAFE_MODE: {"reason": "key lost"},
    K.SUSPEND: {"reason": "abuse"},
    K.REINSTATE: {"reason": "mended"},
    K.REVOKE: {"reason": "fraud"},
    K.RENEW: {"expires": "2027-06-30"},
    K.OVERRIDE: {"status": "historical", "reason": "an error of 2015"},
}
OVERRIDES = {"uri-schemes": "historical", "llm-parameters": "deprecated", "ai-namespaces": "suspended"}
#: they concern files and the log, not a row
OUTSIDE = (K.IMPORT, K.REDACT)
ENTRY_EVENTS = tuple(dict.fromkeys(r.event for r in RULES if r.states == (None,) and r.event is not K.OPEN))

SCHEME_STATUSES = (T.PERMANENT, T.PROVISIONAL, T.HISTORICAL, T.PENDING_REVIEW)
KEEPERS = ("iana", "expert", "iesg", "owner", "designee")

#: (registry, event) -> {status: (who, the status after)}
EXPECTED: dict[tuple[str, EventKind], dict[Status, tuple[tuple[str, ...], Status]]] = {
    ("uri-schemes", K.ASK_UPGRADE): {T.PROVISIONAL: (("expert", "iesg"), T.PERMANENT)},
    ("uri-schemes", K.RETIRE): {T.PROVISIONAL: (("owner", "designee"), T.HISTORICAL)},
    ("uri-schemes", K.REASSIGN): {T.PROVISIONAL: (("iesg",), T.PROVISIONAL)},
    ("llm-parameters", K.RETIRE): {T.REGISTERED: (("owner", "designee", "expert"), T.DEPRECATED)},
    ("ai-namespaces", K.ENTER_SAFE_MODE): {T.ACTIVE: (("owner", "designee", "iana"), T.SAFE_MODE)},
    ("ai-namespaces", K.SUSPEND): {
        T.ACTIVE: (("iana",), T.SUSPENDED), T.SAFE_MODE: (("iana",), T.SUSPENDED),
    },
    ("ai-namespaces", K.REINSTATE): {
        T.SAFE_MODE: (("iana",), T.ACTIVE), T.SUSPENDED: (("iana",), T.ACTIVE),
    },
    ("ai-namespaces", K.REVOKE): dict.fromkeys(
        (T.ACTIVE, T.SAFE_MODE, T.SUSPENDED, T.EXPIRED), (("iana",), T.REVOKED)
    ),
    ("ai-namespaces", K.RENEW): {
        T.ACTIVE: (("iana",), T.ACTIVE), T.SAFE_MODE: (("iana",), T.SAFE_MODE),
        T.SUSPENDED: (("iana",), T.SUSPENDED), T.EXPIRED: (("iana",), T.ACTIVE),
    },
    ("ai-namespaces", K.NAMESPACE_EXPIRED): dict.fromkeys(
        (T.ACTIVE, T.SAFE_MODE, T.SUSPENDED), (("iana",), T.EXPIRED)
    ),
}  # fmt: skip
for _registry, _row in REGISTRIES.items():
    for _event, _who in (
        (K.DESIGNATE, ("owner",)),
        (K.EXPIRY_NEAR, ("iana",)),
        (K.DRAFT_EXPIRED, ("iana",)),
        (K.DRAFT_PUBLISHED, ("iana",)),
        (K.ATTACH_SECURITY_NOTE, KEEPERS),
    ):
        EXPECTED[_registry, _event] = {status: (_who, status) for status in _row.statuses}
    EXPECTED[_registry, K.OVERRIDE] = {
        status: (("iana", "iesg"), Status(OVERRIDES[_registry])) for status in _row.statuses
    }
    # a row that shows a request is nobody's yet
    del EXPECTED[_registry, K.DESIGNATE][T.PENDING_REVIEW]
EXPECTED["uri-schemes", K.DEMAND_CHANGES] = {s: (("iesg",), s) for s in SCHEME_STATUSES}


def row(registry: str, status: Status) -> Entry:
    return Entry(
        registry=registry, name="demo", status=status, registrant="owner", designees=frozenset({"designee"}),
        draft=DraftReference(name="draft-demo-00", expires=date(2026, 2, 1)), expires=date(2026, 2, 28),
        fields={"description": "a demo", "reference": "[draft-demo-00]"}, version=2,
    )  # fmt: skip


def when(event: EventKind) -> datetime:
    """Row's draft and registration are over at `AT`, and near their end before that."""
    return AT - timedelta(days=40) if event is K.EXPIRY_NEAR else AT


def ask(
    event: EventKind, about: Entry | None, actor: Actor, registry: str = "uri-schemes", /, **data: Any
) -> Decision:
    brought = data or dict(DATA.get(event, {}))
    if event is K.OVERRIDE and not data:
        brought["status"] = OVERRIDES[registry]
    asked = Event(kind=event, registry=registry, name="demo", data=brought)
    return decide(asked, actor, when(event), request=None, entry=about)


@pytest.mark.parametrize("registry", list(REGISTRIES))
@as_subtests("event", [e for e in ENTRY_EVENTS if e not in OUTSIDE], ids=str)
def test_each_event_about_a_row_by_each_actor_does_what_it_should_or_is_refused(
    event: EventKind, registry: str
) -> None:
    steps = EXPECTED.get((registry, event), {})
    for status, (name, actor) in itertools.product(REGISTRIES[registry].statuses, ACTORS.items()):
        entry, where = row(registry, status), f"{status} by {name}"
        who, after = steps.get(status, ((), status))
        if name in who:
            decision = ask(event, entry, actor, registry)
            assert decision.entry is not None, where
            assert decision.entry.status is after, where
            assert decision.entry.version == 3, where
            assert decision.entry.updated == when(event), where
            assert decision.request is None, where
        else:
            with pytest.raises(RefusalError) as caught:
                ask(event, entry, actor, registry)
            assert caught.value.code in {"registry.not-allowed", "registry.wrong-role"}, where


@as_subtests("event", [e for e in ENTRY_EVENTS if e not in OUTSIDE], ids=str)
def test_nothing_happens_to_a_row_that_is_not_there(event: EventKind) -> None:
    everybody = Actor(id="owner", roles=frozenset(Role))
    with pytest.raises(RefusalError):
        ask(event, None, everybody)


def test_every_rule_about_rows_is_reached() -> None:
    rules = {r.event for r in RULES if r.states == (None,) and r.effect is not None}
    assert rules - {event for _, event in EXPECTED} == {K.OPEN, *OUTSIDE}


@pytest.mark.parametrize("registry", list(REGISTRIES))
def test_the_buttons_on_a_row_are_what_may_be_asked_for(registry: str) -> None:
    clock = {K.EXPIRY_NEAR, K.DRAFT_EXPIRED, K.NAMESPACE_EXPIRED, K.IMPORT}
    for status, (name, actor) in itertools.product(REGISTRIES[registry].statuses, ACTORS.items()):
        shown = set(list_allowed_events(None, row(registry, status), actor, AT))
        should = {
            event
            for (where, event), steps in EXPECTED.items()
            if where == registry and name in steps.get(status, ((), status))[0]
        }
        assert shown == should - clock, (status, name)


def test_a_permanent_entry_is_told_the_way_to_historical() -> None:
    with pytest.raises(RefusalError) as caught:
        ask(K.RETIRE, row("uri-schemes", T.PERMANENT), ACTORS["owner"])
    assert caught.value.clause == "RFC 7595 7.3"
    assert caught.value.hint is not None
    assert "status-change" in caught.value.hint


def test_an_override_keeps_its_reason_and_who_did_it() -> None:
    decision = ask(
        K.OVERRIDE, row("uri-schemes", T.PERMANENT), ACTORS["iana"], status="provisional", reason="undo 17"
    )
    assert decision.rule == "X"
    assert decision.entry is not None
    (note,) = decision.entry.notes
    assert (note.kind, note.text, note.by, note.at) == ("override", "undo 17", "iana", AT)


@as_subtests(
    "data",
    [
        {"status": "historical"},
        {"reason": "x"},
        {"remove": True, "status": "historical", "reason": "x"},
        {"status": "pending-review", "reason": "x"},
        {"status": "active", "reason": "x"},
        {"restore": {"v": 1}, "reason": "x"},
        {"undoes": 3, "status": "historical", "reason": "x"},
        {"undoes": 3, "reason": "x"},
        {"undoes": 0, "restore": {"v": 1}, "reason": "x"},
        {"undoes": True, "restore": {"v": 1}, "reason": "x"},
        {"undoes": "three", "restore": {"v": 1}, "reason": "x"},
        {"undoes": 3, "restore": "text", "reason": "x"},
        {"undoes": 3, "restore": {"fields": 3}, "reason": "x"},
        {"iesg_approved": "perhaps", "reason": "x"},
        {"iesg_approved": True, "status": "historical", "reason": "x"},
        {"remove": True, "reason": "   "},
        {"remove": True, "reason": 7},
    ],
)
def test_an_override_without_a_reason_or_with_no_one_deed_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(RefusalError):
        ask(K.OVERRIDE, row("uri-schemes", T.PROVISIONAL), ACTORS["iana"], **data)


def test_an_import_keeps_what_only_this_registry_knows() -> None:
    old = replace(row("uri-schemes", T.PROVISIONAL), pending=("uri-schemes-9",), registered=AT)
    file = Entry(registry="uri-schemes", name="demo", status=T.PERMANENT, fields={"description": "new"})
    decision = ask(K.IMPORT, old, ACTORS["iana"], entry=codec.to_data(file))
    assert decision.entry is not None
    kept = decision.entry
    assert (kept.status, kept.fields["description"], kept.version) == (T.PERMANENT, "new", 3)
    assert (kept.registrant, kept.designees, kept.pending) == (
        old.registrant,
        old.designees,
        ("uri-schemes-9",),
    )
    fresh = ask(K.IMPORT, None, ACTORS["iana"], entry=codec.to_data(file)).entry
    assert fresh is not None
    assert fresh.version == 1


@pytest.mark.parametrize("name", ["owner", "expert", "iesg", "reader"])
def test_only_iana_imports(name: str) -> None:
    file = Entry(registry="uri-schemes", name="demo", status=T.PERMANENT)
    with pytest.raises(RefusalError):
        ask(K.IMPORT, None, ACTORS[name], entry=codec.to_data(file))


def test_a_reassigned_row_has_a_new_registrant_and_no_designees_and_both_are_told() -> None:
    decision = ask(
        K.REASSIGN, row("uri-schemes", T.PROVISIONAL), ACTORS["iesg"],
        to="heir", reason="out of contact", change_controller="Heir <heir@example.com>",
    )  # fmt: skip
    assert decision.entry is not None
    assert (decision.entry.registrant, decision.entry.designees) == ("heir", frozenset())
    assert decision.entry.fields["change_controller"] == "Heir <heir@example.com>"
    assert {notice.to for notice in decision.notices} == {"heir", "owner"}


def test_designees_come_and_go_and_are_counted() -> None:
    entry = row("uri-schemes", T.PROVISIONAL)
    decision = ask(K.DESIGNATE, entry, ACTORS["owner"], add=["a", "b"], remove=["designee"])
    assert decision.entry is not None
    assert decision.entry.designees == {"a", "b"}
    for data in ({"add": "abc"}, {"add": [1]}, {"add": [str(n) for n in range(80)]}):
        with pytest.raises(RefusalError):
            ask(K.DESIGNATE, entry, ACTORS["owner"], **data)


def test_a_security_note_names_its_reference() -> None:
    decision = ask(
        K.ATTACH_SECURITY_NOTE,
        row("uri-schemes", T.PERMANENT),
        ACTORS["expert"],
        text="weak",
        reference="RFC 1",
    )
    assert decision.entry is not None
    assert decision.entry.notes[-1].text == "weak [RFC 1]"
    assert decision.rule == "U5"


def test_an_expired_draft_leaves_a_note_and_a_published_one_a_reference() -> None:
    entry = row("uri-schemes", T.PROVISIONAL)
    expired = ask(K.DRAFT_EXPIRED, entry, ACTORS["iana"]).entry
    assert expired is not None
    assert expired.draft is None
    assert expired.notes[-1].text == "draft-demo-00 expired on 2026-02-01"
    published = ask(K.DRAFT_PUBLISHED, entry, ACTORS["iana"], reference="[RFC9999]", iesg_approved=True).entry
    assert published is not None
    assert (published.fields["reference"], published.draft, published.iesg_approved) == (
        "[RFC9999]",
        None,
        True,
    )


@pytest.mark.parametrize("day", ["2026-03-01", "2020-01-01", "soon", "", 5])
def test_a_namespace_is_renewed_to_a_day_to_come_alone(day: object) -> None:
    with pytest.raises(RefusalError):
        ask(K.RENEW, row("ai-namespaces", T.ACTIVE), ACTORS["iana"], "ai-namespaces", expires=day)


def test_an_ietf_document_waits_for_the_entry_that_its_scheme_needs() -> None:
    def refusal(entry: Entry | None, profile: str, *, standards_track: bool = False) -> str | None:
        return publication_refusal(
            entry, standards_track=standards_track, document="draft-x", profile_id=profile
        )

    permanent, provisional = row("uri-schemes", T.PERMANENT), row("uri-schemes", T.PROVISIONAL)
    for profile, clause in (("rfc4395", "RFC 4395 5.1"), ("rfc7595", "RFC 7595 3")):
        assert refusal(permanent, profile, standards_track=True) is None
        assert refusal(provisional, profile) is None
        assert clause in (refusal(provisional, profile, standards_track=True) or "")
    for missing in (None, row("uri-schemes", T.PENDING_REVIEW)):
        assert "RFC 4395 5.1" in (refusal(missing, "rfc4395") or "")
        assert refusal(missing, "rfc7595") is None


def test_an_upgrade_unprompted_waits_while_a_request_is_under_review() -> None:
    entry = replace(row("uri-schemes", T.PROVISIONAL), pending=("uri-schemes-9",))
    with pytest.raises(RefusalError) as caught:
        ask(K.ASK_UPGRADE, entry, ACTORS["expert"])
    assert caught.value.hint == "Decide that request."


def test_a_standards_track_rfc_is_no_reference_of_a_provisional_entry() -> None:
    with pytest.raises(RefusalError) as caught:
        ask(
            K.DRAFT_PUBLISHED, row("uri-schemes", T.PROVISIONAL), ACTORS["iana"],
            reference="[RFC9999]", standards_track=True,
        )  # fmt: skip
    assert (caught.value.rule, caught.value.clause) == ("C1", "RFC 7595 3")


@pytest.mark.parametrize("registry", list(REGISTRIES))
def test_a_redaction_changes_no_row_and_is_ianas_with_a_reason(registry: str) -> None:
    decision = ask(K.REDACT, None, ACTORS["iana"], registry, reason="ticket 7", records={})
    assert (decision.rule, decision.clause) == ("REDACT", "docs/decisions/0056")
    assert (decision.entry, decision.request, decision.notices) == (None, None, ())
    with pytest.raises(RefusalError) as caught:
        ask(K.REDACT, None, ACTORS["iana"], registry, records={})
    assert caught.value.code == "registry.missing-data"
    for name in ("expert", "iesg", "owner"):
        with pytest.raises(RefusalError) as caught:
            ask(K.REDACT, None, ACTORS[name], registry, reason="ticket 7", records={})
        assert caught.value.code == "registry.wrong-role"
