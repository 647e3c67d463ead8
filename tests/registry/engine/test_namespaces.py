"""Namespaces: who updates them, until when they can be approved, and what a renewal is (decision 0027)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry.engine import RegistryState, list_allowed_events
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, RequestKind, Role, Status
from support import as_subtests

from .table import ACTORS, AT

K, T = EventKind, Status
ONE, TWO = "ai-namespaces-1", "ai-namespaces-2"
FIELDS = {
    "anchor": "https://bank.example", "description": "d", "contact": "c", "change_controller": "c",
    "expires": "2026-03-10",
}  # fmt: skip
ROW = Entry(
    registry="ai-namespaces", name="bank", status=T.ACTIVE, registrant="owner", fields=FIELDS,
    designees=frozenset({"designee"}), expires=date(2026, 9, 1), version=1,
)  # fmt: skip


def ask(
    book: RegistryState,
    kind: EventKind,
    who: str,
    request: str | None = None,
    /,
    *,
    days: int = 0,
    **data: Any,
) -> Decision:
    event = Event(kind=kind, registry="ai-namespaces", request=request, name="bank", data=data)
    return book.apply(event, ACTORS[who], AT + timedelta(days=days))


def refused(*asked: Any, **data: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        ask(*asked, **data)
    return caught.value


def held(**changes: Any) -> RegistryState:
    return RegistryState(entries={("ai-namespaces", "bank"): replace(ROW, **changes)})


def to_expert(book: RegistryState, who: str, request: str, /, **data: Any) -> None:
    ask(book, K.OPEN, who, request, **data)
    ask(book, K.SUBMIT, who, request)
    ask(book, K.CHECK_COMPLETE, "iana", request)


def test_a_namespace_whose_last_day_passed_under_review_is_not_approved() -> None:
    book = RegistryState()
    to_expert(book, "owner", ONE, fields=FIELDS)
    error = refused(book, K.APPROVE, "expert", ONE, days=10)
    assert (error.rule, error.clause, error.code) == ("E2", "docs/decisions/0027", "registry.not-allowed")
    assert K.APPROVE not in list_allowed_events(
        book.requests[ONE], None, ACTORS["expert"], AT + timedelta(days=10)
    )
    ask(book, K.ASK_MORE_REVIEW, "expert", ONE, days=10, reason="name a later day")
    ask(book, K.REVISE, "owner", ONE, days=11, fields={"expires": "2026-12-31"})
    row = ask(book, K.APPROVE, "expert", ONE, days=11).entry
    assert row is not None
    assert (row.status, row.expires) == (T.ACTIVE, date(2026, 12, 31))


def test_a_namespace_is_approved_on_the_last_day_that_it_asks_for() -> None:
    book = RegistryState()
    to_expert(book, "owner", ONE, fields=FIELDS)
    assert ask(book, K.APPROVE, "expert", ONE, days=9).rule == "E2"


def test_an_update_whose_last_day_passed_under_review_is_not_approved() -> None:
    book = held()
    to_expert(book, "owner", ONE, kind=RequestKind.UPDATE, fields={"expires": "2026-03-05"})
    assert refused(book, K.APPROVE, "expert", ONE, days=10).rule == "E2"


@pytest.mark.parametrize("status", [T.ACTIVE, T.SAFE_MODE, T.SUSPENDED])
@pytest.mark.parametrize("day", ["2026-03-02", "2026-08-31", "2026-09-01"])
def test_a_renewal_is_for_longer(status: Status, day: str) -> None:
    error = refused(held(status=status), K.RENEW, "iana", expires=day)
    assert (error.field, error.clause) == ("expires", "docs/decisions/0027")
    assert "2026-09-01" in error.message
    assert ask(held(status=status), K.RENEW, "iana", expires="2026-09-02").entry is not None


def test_a_namespace_without_an_end_is_not_renewed_to_have_one() -> None:
    error = refused(held(expires=None), K.RENEW, "iana", expires="2030-01-01")
    assert (error.field, error.clause) == ("expires", "docs/decisions/0027")


def test_a_namespace_that_has_expired_is_renewed_to_any_day_to_come() -> None:
    row = ask(held(status=T.EXPIRED), K.RENEW, "iana", expires="2026-03-02").entry
    assert row is not None
    assert (row.status, row.expires) == (T.ACTIVE, date(2026, 3, 2))


ANCHOR = {"kind": RequestKind.UPDATE, "fields": {"anchor": "https://evil.example"}}


@pytest.mark.parametrize("who", ["stranger", "expert", "iana"])
@as_subtests("status", [T.ACTIVE, T.SAFE_MODE, T.SUSPENDED, T.EXPIRED])
def test_a_namespace_is_not_updated_by_strangers(status: Status, who: str) -> None:
    error = refused(held(status=status), K.OPEN, who, ONE, **ANCHOR)
    assert (error.rule, error.clause) == ("U1", "docs/decisions/0027")


@pytest.mark.parametrize("who", ["owner", "designee"])
def test_a_namespace_is_updated_by_its_registrant_and_their_designees(who: str) -> None:
    book = held()
    to_expert(book, who, ONE, **ANCHOR)
    row = ask(book, K.APPROVE, "expert", ONE).entry
    assert row is not None
    assert (row.fields["anchor"], row.registrant) == ("https://evil.example", "owner")


@pytest.mark.parametrize("who", ["owner", "stranger", "iana"])
def test_a_namespace_that_was_revoked_is_updated_by_nobody(who: str) -> None:
    assert refused(held(status=T.REVOKED), K.OPEN, who, ONE, **ANCHOR).rule == "N4"
    separate = refused(held(status=T.REVOKED), K.OPEN, who, ONE, kind=RequestKind.SEPARATE_USE)
    assert separate.hint == "Choose another name."


def test_an_update_of_a_namespace_that_was_revoked_meanwhile_is_not_granted() -> None:
    book = held()
    to_expert(book, "owner", ONE, **ANCHOR)
    ask(book, K.OPEN, "owner", TWO, **ANCHOR)
    ask(book, K.SUBMIT, "owner", TWO)
    ask(book, K.REVOKE, "iana", reason="fraud")
    error = refused(book, K.APPROVE, "expert", ONE)
    assert (error.rule, error.hint) == ("E2", "Reject it.")
    assert ask(book, K.CHECK_COMPLETE, "iana", TWO).rule == "I2"
    assert book.entries["ai-namespaces", "bank"].fields["anchor"] == FIELDS["anchor"]


@pytest.mark.parametrize("who", ["iana", "iesg"])
def test_the_operator_of_the_root_gives_a_namespace_that_is_nobodys_a_registrant(who: str) -> None:
    book = held(registrant=None, designees=frozenset())
    done = ask(book, K.OVERRIDE, who, registrant="stranger", reason="the bank's own account")
    assert (done.rule, done.clause) == ("X", "docs/decisions/0027")
    assert ask(book, K.OPEN, "stranger", ONE, **ANCHOR).rule == "R1"
    nobody = Actor(id="nobody-else", roles=frozenset({Role.REGISTRANT}))
    event = Event(
        kind=K.OVERRIDE, registry="ai-namespaces", name="bank", data={"registrant": "x", "reason": "y"}
    )
    with pytest.raises(RefusalError):
        book.apply(event, nobody, AT)
