"""What a row cannot hold: long notes, ids and names that are none, namespaces that no resolver could use."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from onym.errors import RefusalError
from onym.registry import codec
from onym.registry.engine import RegistryState, decide
from onym.registry.iana import read_namespaces, write_namespaces
from onym.registry.records import Actor, Entry, Event, EventKind, Note, Role, Status
from onym.registry.registries import REGISTRIES

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PEOPLE = {role: Actor(id=f"user-{role}", roles=frozenset({role, Role.REGISTRANT})) for role in Role}
OWNER = PEOPLE[Role.REGISTRANT]
ROW = Entry(registry="uri-schemes", name="kite", status=Status.PROVISIONAL, registrant=OWNER.id, version=1)
THUMBPRINT = "A" * 43


def step(kind: EventKind, actor: Actor, row: Entry = ROW, **data: Any) -> Any:
    event = Event(kind=kind, registry=row.registry, name=row.name, data=data)
    return decide(event, actor, AT, request=None, entry=row)


def opened(registry: str = "ai-namespaces", **data: Any) -> Any:
    event = Event(kind=EventKind.OPEN, registry=registry, request=f"{registry}-1", name="robots", data=data)
    return decide(event, OWNER, AT, request=None, entry=None)


def refusal(work: Any, *args: Any, **data: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        work(*args, **data)
    return caught.value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("anchor", "javascript:alert(1)"),
        ("anchor", "http://robots.example"),
        ("anchor", "https://robots.example/path"),
        ("anchor", "https://user@robots.example"),
        ("anchor", "https://Robots.example"),
        ("keys", "zzz"),
        ("keys", " ".join(f"{at:042}A" for at in range(17))),
        ("expires", "soon"),
        ("expires", "2026-02-28"),
    ],
)
def test_a_namespace_that_no_resolver_could_use_is_not_asked_for(field: str, text: str) -> None:
    given = {"anchor": "https://robots.example", "keys": THUMBPRINT, "expires": "2027-02-28", field: text}
    error = refusal(opened, fields=given)
    assert (error.code, error.field) == ("registry.bad-data", field)


@pytest.mark.parametrize("keys", ["", THUMBPRINT, f"{THUMBPRINT}, {'E' * 43}"])
def test_every_namespace_that_is_taken_goes_into_the_signed_file(keys: str) -> None:
    book = RegistryState()
    fields = {
        "anchor": "https://robots.example:8443", "keys": keys, "expires": "2026-03-01", "description": "x",
        "contact": "R <r@example.org>", "change_controller": "R <r@example.org>",
    }  # fmt: skip
    about = {"registry": "ai-namespaces", "request": "ai-namespaces-1", "name": "robots"}
    for kind, role, data in (
        (EventKind.OPEN, Role.REGISTRANT, {"fields": fields}),
        (EventKind.SUBMIT, Role.REGISTRANT, {}),
        (EventKind.CHECK_COMPLETE, Role.IANA, {}),
        (EventKind.APPROVE, Role.EXPERT, {}),
    ):
        book.apply(Event(kind=kind, data=data, **about), PEOPLE[role], AT)
    written = write_namespaces(book.entries.values(), issued=AT, expires=AT.replace(year=2027))
    assert read_namespaces(written).namespaces["robots"].expires == date(2026, 3, 1)


def test_a_note_is_short_enough_to_be_shown() -> None:
    error = refusal(step, EventKind.ATTACH_SECURITY_NOTE, OWNER, text="n" * 10_001)
    assert (error.code, error.field) == ("registry.too-large", "notes")
    assert step(EventKind.ATTACH_SECURITY_NOTE, OWNER, text="n" * 10_000).entry.notes


def test_whoever_may_update_an_entry_does_not_fill_it_with_notes() -> None:
    notes = (Note(kind="security", text="x", at=AT, by=OWNER.id),) * 100
    full = replace(ROW, notes=notes)
    assert refusal(step, EventKind.ATTACH_SECURITY_NOTE, OWNER, full, text="x").code == "registry.too-large"
    assert len(step(EventKind.ATTACH_SECURITY_NOTE, PEOPLE[Role.IANA], full, text="x").entry.notes) == 101


@pytest.mark.parametrize("word", ["", "a b", "x" * 201, "a\nb", "\u202eabc", 7, None])
def test_ids_and_names_of_drafts_are_words(word: object) -> None:
    named = {"name": word, "expires": "2027-01-01"}
    assert refusal(opened, "uri-schemes", status="provisional", draft=named).field == "draft"
    assert refusal(step, EventKind.DESIGNATE, OWNER, add=[word]).field == "add"
    assert refusal(step, EventKind.REASSIGN, PEOPLE[Role.IESG], to=word, reason="x").field == "to"


@pytest.mark.parametrize("said", ["false?", "off", 2, [1], {"a": 1}])
def test_an_entry_is_removed_by_a_plain_yes_alone(said: object) -> None:
    error = refusal(step, EventKind.OVERRIDE, PEOPLE[Role.IANA], remove=said, reason="x")
    assert (error.code, error.field) == ("registry.bad-data", "remove")


@pytest.mark.parametrize("said", [False, "no", "false", "", None])
def test_a_removal_that_is_denied_is_none(said: object) -> None:
    error = refusal(step, EventKind.OVERRIDE, PEOPLE[Role.IANA], remove=said, reason="x")
    assert "status" in (error.hint or "")
    assert step(EventKind.OVERRIDE, PEOPLE[Role.IANA], remove="yes", reason="x").removed


def test_a_long_separate_use_is_noted_in_short() -> None:
    use = "u" * 50_000
    book = RegistryState()
    book.apply(
        Event(
            kind=EventKind.IMPORT, registry="uri-schemes", name="kite", data={"entry": codec.to_data(ROW)},
        ),
        PEOPLE[Role.IANA], AT,
    )  # fmt: skip
    about = {"registry": "uri-schemes", "request": "uri-schemes-1", "name": "kite"}
    data = {"kind": "note-separate-use", "fields": {"description": use}}
    for kind, role, given in (
        (EventKind.OPEN, Role.REGISTRANT, data),
        (EventKind.SUBMIT, Role.REGISTRANT, {}),
        (EventKind.CHECK_COMPLETE, Role.IANA, {}),
        (EventKind.APPROVE, Role.EXPERT, {}),
    ):
        book.apply(Event(kind=kind, data=given, **about), PEOPLE[role], AT)
    *_, note = book.entries["uri-schemes", "kite"].notes
    assert note.kind == "separate-use"
    assert len(note.text) < 5_000


@pytest.mark.parametrize("registry", ["uri-schemes", "ai-namespaces"])
def test_letters_outside_ascii_are_folded_into_no_name(registry: str) -> None:
    row = REGISTRIES[registry]
    assert row.normalize_name(" KITE ") == "kite"
    assert not row.is_valid_name(row.normalize_name("\u212aite"))
    event = Event(kind=EventKind.OPEN, registry=registry, request=f"{registry}-1", name="\u212aite")
    data = {"status": "provisional"} if registry == "uri-schemes" else {}
    error = refusal(decide, replace(event, data=data), OWNER, AT, request=None, entry=None)
    assert error.code == "registry.bad-name"
