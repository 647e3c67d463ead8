"""Outside the procedure: who controls an imported row, and overrides that are undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.codec import seal_record
from onym.registry.engine import RegistryState
from onym.registry.records import Decision, Entry, Event, EventKind, LogRecord, RequestKind, Status

from .table import ACTORS, AT, COMPLETE, replay

K, R, T = EventKind, RequestKind, Status
ONE, TWO = "uri-schemes-1", "uri-schemes-2"


class Ledger:
    """A book and its log, about `demo`."""

    def __init__(self, row: Entry | None = None) -> None:
        self.book, self.log = RegistryState(), list[LogRecord]()
        #: the entry as each record found it
        self.found: list[Entry | None] = []
        if row is not None:
            self.ask(K.IMPORT, "iana", entry=codec.to_data(row))

    def apply(self, event: Event, who: str) -> Decision:
        found = self.book.entries.get(("uri-schemes", "demo"))
        done = self.book.apply(event, ACTORS[who], AT)
        self.found.append(found)
        last = self.log[-1] if self.log else None
        self.log.append(
            seal_record(last, at=AT, actor=ACTORS[who], event=event, rule=done.rule, clause=done.clause)
        )
        return done

    def ask(self, kind: EventKind, who: str, request: str | None = None, /, **data: Any) -> Decision:
        event = Event(kind=kind, registry="uri-schemes", request=request, name="demo", data=data)
        return self.apply(event, who)

    def received(self, who: str, request: str, /, **data: Any) -> Decision:
        self.ask(K.OPEN, who, request, **data)
        self.ask(K.ANNOUNCE, who, request)
        self.ask(K.SUBMIT, who, request)
        return self.ask(K.CHECK_COMPLETE, "iana", request)

    def undo(self, number: int, who: str = "iana") -> Decision:
        """As the store asks for it, which knows what that record found."""
        found = self.found[number - 1]
        assert found is not None
        return self.ask(K.OVERRIDE, who, undoes=number, restore=codec.to_data(found), reason="wrong")

    def refuses(self, work: Any, *asked: Any, **data: Any) -> RefusalError:
        before = (dict(self.book.entries), dict(self.book.requests))
        with pytest.raises(RefusalError) as caught:
            work(*asked, **data)
        assert (self.book.entries, self.book.requests) == before
        return caught.value

    @property
    def row(self) -> Entry:
        return self.book.entries["uri-schemes", "demo"]


def imported(status: Status = T.PERMANENT, reference: str = "[RFC9110]", **members: Any) -> Ledger:
    fields = {"description": "d", "reference": reference}
    return Ledger(Entry(registry="uri-schemes", name="demo", status=status, fields=fields, **members))


# ---------- what an IESG-approved document defines, and rows that are nobody's


@pytest.mark.parametrize("reference", ["[RFC9110]", "[RFC9110, Section 4]", "RFC 2397", "[RFC-ietf-x-07]"])
@pytest.mark.parametrize("fields", [{"reference": "https://evil.example/"}, {"contact": "Mallory"}])
def test_an_update_of_an_imported_row_that_an_rfc_defines_needs_the_iesg(
    reference: str, fields: dict[str, str]
) -> None:
    ledger = imported(reference=reference)
    ledger.received("stranger", ONE, kind=R.UPDATE, fields=fields)
    before = ledger.row.fields
    done = ledger.ask(K.APPROVE, "expert", ONE)
    assert (done.rule, done.clause, ledger.row.fields) == ("U2", "RFC 7595 7.3", before)
    assert ledger.ask(K.IESG_APPROVE, "iesg", ONE).rule == "U2"
    assert ledger.row.fields == {**before, **fields}
    assert ledger.row.registrant is None


def test_who_controls_a_row_that_is_nobodys_is_the_iesgs_to_say() -> None:
    ledger = imported(reference="[W3C]")
    ledger.received("stranger", ONE, kind=R.UPDATE, fields={"change_controller": "Mallory"})
    assert ledger.ask(K.APPROVE, "expert", ONE).rule == "U2"
    ledger.received("stranger", TWO, kind=R.UPDATE, fields={"contact": "Cy"})
    assert ledger.ask(K.APPROVE, "expert", TWO).rule == "E2"


def test_the_expert_decides_about_a_row_of_a_registrant_that_no_iesg_document_defines() -> None:
    ledger = imported(registrant="owner")
    ledger.received("owner", ONE, kind=R.UPDATE, fields={"change_controller": "Ada"})
    assert ledger.ask(K.APPROVE, "expert", ONE).rule == "E2"


@pytest.mark.parametrize(("fields", "rule"), [({}, "S1"), ({"reference": "[X]"}, "U2")])
def test_an_upgrade_that_changes_what_the_iesg_approved_needs_it_again(
    fields: dict[str, str], rule: str
) -> None:
    row = Entry(
        registry="uri-schemes", name="demo", status=T.PROVISIONAL, registrant="owner", iesg_approved=True,
        fields={**COMPLETE, "reference": "[RFC3986]"},
    )  # fmt: skip
    ledger = Ledger(row)
    ledger.received("owner", ONE, kind=R.STATUS_CHANGE, status="permanent", fields=fields)
    assert ledger.ask(K.APPROVE, "expert", ONE).rule == rule
    if fields:
        assert ledger.row.fields["reference"] == "[RFC3986]"
        ledger.ask(K.IESG_APPROVE, "iesg", ONE)
    assert (ledger.row.status, ledger.row.fields["reference"]) == (
        T.PERMANENT, fields.get("reference", "[RFC3986]"),
    )  # fmt: skip


@pytest.mark.parametrize(("fields", "rule"), [({}, "S3"), ({"reference": "[X]"}, "I4")])
def test_a_retirement_is_no_way_round_the_iesg(fields: dict[str, str], rule: str) -> None:
    ledger = imported(T.PROVISIONAL, registrant="owner", iesg_approved=True)
    done = ledger.received("owner", ONE, kind=R.STATUS_CHANGE, status="historical", fields=fields)
    assert done.rule == rule
    if fields:
        assert ledger.ask(K.APPROVE, "expert", ONE).rule == "U2"
        assert ledger.ask(K.IESG_APPROVE, "iesg", ONE).rule == "S2"
    assert ledger.row.status is T.HISTORICAL


# ---------- overrides that say who controls a row


def test_the_iesg_gives_an_imported_row_a_registrant_who_then_updates_it() -> None:
    ledger = imported(designees=frozenset({"designee"}))
    done = ledger.ask(
        K.OVERRIDE, "iesg", registrant="owner", change_controller="W3C <w3c@example.org>",
        iesg_approved="no", reason="as the W3C asked",
    )  # fmt: skip
    assert (done.rule, done.clause) == ("X", "RFC 7595 7.1")
    row = ledger.row
    assert (row.status, row.registrant, row.designees) == (T.PERMANENT, "owner", frozenset())
    assert row.fields["change_controller"] == "W3C <w3c@example.org>"
    assert [(note.kind, note.by) for note in row.notes] == [("override", "iesg")]
    assert [notice.to for notice in done.notices] == ["owner"]
    assert ledger.ask(K.DESIGNATE, "owner", add=["deputy"]).rule == "U1"
    ledger.received("owner", ONE, kind=R.UPDATE, fields={"contact": "Bo"})
    assert ledger.ask(K.APPROVE, "expert", ONE).rule == "E2"


@pytest.mark.parametrize("member", ["registrant", "change_controller"])
@pytest.mark.parametrize("who", ["iana", "expert", "owner"])
def test_who_controls_a_row_is_set_by_the_iesg_alone(member: str, who: str) -> None:
    ledger = imported()
    error = ledger.refuses(ledger.ask, K.OVERRIDE, who, **{member: "mallory"}, reason="x")
    assert (error.code, error.clause) == ("registry.wrong-role", "RFC 7595 7.1")


@pytest.mark.parametrize("who", ["iana", "iesg"])
@pytest.mark.parametrize(("said", "kept"), [("yes", True), (True, True), ("no", False), (False, False)])
def test_it_is_recorded_that_an_iesg_approved_document_defines_a_row(
    who: str, said: object, kept: bool
) -> None:
    ledger = imported(iesg_approved=not kept, registrant="owner")
    done = ledger.ask(K.OVERRIDE, who, iesg_approved=said, reason="RFC 9110 is of the IETF stream")
    assert (done.clause, ledger.row.iesg_approved) == ("docs/decisions/0026", kept)
    assert [notice.to for notice in done.notices] == ["owner"]


def test_a_row_that_changes_hands_is_told_to_both() -> None:
    ledger = imported(registrant="owner")
    done = ledger.ask(K.OVERRIDE, "iesg", registrant="stranger", reason="merged")
    assert [(notice.to, notice.subject) for notice in done.notices] == [
        ("stranger", "demo: the entry is yours now"), ("owner", "demo: changed by override"),
    ]  # fmt: skip
    again = ledger.ask(K.OVERRIDE, "iesg", registrant="stranger", reason="said twice")
    assert [notice.to for notice in again.notices] == ["stranger"]


@pytest.mark.parametrize("data", [{"registrant": "two words"}, {"registrant": 7}, {"change_controller": 7}])
def test_what_is_no_account_or_no_text_controls_nothing(data: dict[str, Any]) -> None:
    ledger = imported()
    assert ledger.refuses(ledger.ask, K.OVERRIDE, "iesg", **data, reason="x").code == "registry.bad-data"


def test_a_row_that_only_shows_a_request_gets_no_registrant_by_override() -> None:
    ledger = Ledger()
    ledger.received("owner", ONE, status="permanent", fields=COMPLETE)
    error = ledger.refuses(ledger.ask, K.OVERRIDE, "iesg", registrant="stranger", reason="x")
    assert (error.code, error.hint) == ("registry.not-allowed", "Decide the request first.")


# ---------- undone


def test_a_removed_entry_is_restored_by_the_number_of_the_record_that_removed_it() -> None:
    ledger = imported(registrant="owner", designees=frozenset({"designee"}), iesg_approved=True)
    before = ledger.row
    assert ledger.ask(K.OVERRIDE, "iana", remove="yes", reason="by mistake").removed
    done = ledger.undo(2)
    assert done.rule == "X"
    row = ledger.row
    assert row.notes[-1].text == "wrong"
    assert replace(row, notes=(), version=before.version, updated=before.updated) == before
    assert [notice.to for notice in done.notices] == ["owner"]
    # the log tells the same story, without the log of before
    assert replay(ledger.log).entries == ledger.book.entries


def test_a_status_that_was_set_by_mistake_is_undone_by_number() -> None:
    ledger = imported(registrant="owner")
    ledger.ask(K.OVERRIDE, "iana", status="historical", reason="mistaken")
    ledger.undo(2)
    assert (ledger.row.status, ledger.row.registrant) == (T.PERMANENT, "owner")
    assert [note.text for note in ledger.row.notes] == ["mistaken", "wrong"]
    # and the undoing itself
    ledger.undo(3)
    assert ledger.row.status is T.HISTORICAL


def test_a_request_that_waits_beside_an_override_does_not_hinder_its_undoing() -> None:
    ledger = imported(registrant="owner")
    ledger.ask(K.OVERRIDE, "iana", iesg_approved=True, reason="mistaken")
    ledger.received("owner", ONE, kind=R.UPDATE, fields={"contact": "Bo"})
    ledger.undo(2)
    assert (ledger.row.iesg_approved, ledger.row.pending) == (False, (ONE,))


def test_a_request_of_a_removed_entry_does_not_come_back_with_it() -> None:
    ledger = imported(registrant="owner")
    ledger.received("owner", ONE, kind=R.UPDATE, fields={"contact": "Bo"})
    ledger.ask(K.OVERRIDE, "iana", remove=True, reason="by mistake")
    ledger.ask(K.REJECT, "expert", ONE, reason="gone")
    ledger.undo(len(ledger.log) - 1)
    assert ledger.row.pending == ()


def test_iana_does_not_undo_what_the_iesg_said_of_who_controls_a_row() -> None:
    ledger = imported(registrant="owner")
    ledger.ask(K.OVERRIDE, "iesg", registrant="stranger", reason="merged")
    assert ledger.refuses(ledger.undo, 2).code == "registry.wrong-role"
    ledger.undo(2, "iesg")
    assert ledger.row.registrant == "owner"


def test_a_row_that_only_showed_a_request_is_not_restored() -> None:
    ledger = Ledger()
    ledger.received("owner", ONE, status="permanent", fields=COMPLETE)
    ledger.ask(K.OVERRIDE, "iana", remove=True, reason="mistaken")
    assert ledger.refuses(ledger.undo, len(ledger.log)).hint == "Open the request again."


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"registry": "ai-namespaces"}, {"status": T.ACTIVE}], ids=str
)
def test_what_is_restored_has_the_name_and_a_status_of_its_registry(change: dict[str, Any]) -> None:
    ledger = Ledger()
    other = replace(Entry(registry="uri-schemes", name="demo", status=T.PERMANENT), **change)
    error = ledger.refuses(ledger.ask, K.OVERRIDE, "iana", undoes=7, restore=codec.to_data(other), reason="x")
    assert error.code in ("registry.bad-data", "registry.bad-status")


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"undoes": 7}, "restore"),
        ({"undoes": 0, "restore": {"v": 1}}, "undoes"),
        ({"undoes": "7", "restore": {"v": 1}}, "undoes"),
        ({"undoes": 7, "restore": "text"}, "restore"),
        ({"undoes": 7, "restore": {"v": 1, "fields": 3}}, "restore"),
    ],
)
def test_an_undoing_without_the_entry_that_it_gives_back_is_refused(data: dict[str, Any], field: str) -> None:
    ledger = Ledger()
    assert ledger.refuses(ledger.ask, K.OVERRIDE, "iana", **data, reason="x").field == field


def test_a_plain_restoration_is_refused() -> None:
    ledger = Ledger()
    error = ledger.refuses(ledger.ask, K.OVERRIDE, "iana", restore={"v": 1}, reason="x")
    assert error.hint == "To restore an entry, undo the record that removed it."


def test_iana_gives_an_entry_to_nobody_by_saying_that_something_is_undone() -> None:
    ledger = imported()
    made_up = replace(ledger.row, registrant="mallory")
    data = {"undoes": 1, "restore": codec.to_data(made_up), "reason": "x"}
    assert ledger.refuses(ledger.ask, K.OVERRIDE, "iana", **data).code == "registry.wrong-role"


def test_an_entry_is_not_restored_over_a_row_that_shows_a_request() -> None:
    ledger = imported()
    ledger.ask(K.OVERRIDE, "iana", remove=True, reason="by mistake")
    ledger.received("stranger", ONE, status="permanent", fields=COMPLETE)
    assert ledger.row.status is T.PENDING_REVIEW
    ledger.ask(K.OVERRIDE, "iana", status="provisional", reason="registered at once")
    assert ledger.refuses(ledger.undo, len(ledger.log)).hint == "Open the request again."
    other = imported(registrant="owner")
    other.ask(K.OVERRIDE, "iana", remove=True, reason="by mistake")
    other.received("stranger", ONE, status="permanent", fields=COMPLETE)
    assert other.refuses(other.undo, 2, "iesg").hint == "Open the request again."
