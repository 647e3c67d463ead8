"""What changed between snapshots is a legal event of the state machine, or irregular with the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from iana_support import entry, load, shared
from onym.errors import RefusalError, UsageError
from onym.registry import codec
from onym.registry.engine import decide
from onym.registry.iana import (
    Change,
    ChangeKind,
    Snapshot,
    combine_snapshots,
    compare_entries,
    compare_snapshots,
    read_snapshot,
)
from onym.registry.records import Actor, Decision, Entry, Event, EventKind, Role, Status
from onym.registry.registries import REGISTRIES

_AT = datetime(2026, 11, 21, tzinfo=UTC)
_ADA = Actor(id="ada", roles=frozenset({Role.REGISTRANT}))
_IANA = Actor(id="iana", roles=frozenset({Role.IANA}))
_EXPERT = Actor(id="expert", roles=frozenset({Role.EXPERT}))
_IESG = Actor(id="iesg", roles=frozenset({Role.IESG}))

#: snapshots of the shared data in their order
_VINTAGES = (
    ("iana-2015-04-uri-schemes-1.csv", "iana-2015-04-uri-schemes-2.csv"),
    ("iana-uri-schemes-2022-11-18.csv",),
    ("iana-uri-schemes-2024-04.json",),
    ("merged-uri-schemes-mid-2026.csv",),
)


def snapshot(*entries: Entry, registry: str = "uri-schemes") -> Snapshot:
    columns = tuple(column.id for column in REGISTRIES[registry].columns)
    return Snapshot(registry=registry, entries=entries, columns=columns)


# ---------- replay through the engine


def step(
    decided: Decision | None, entry: Entry | None, kind: EventKind, actor: Actor, days: int, /, **data: Any
) -> Decision:
    request = decided.request if decided else None
    event = Event(
        kind=kind,
        registry="uri-schemes",
        request=request.id if request else "uri-schemes-1",
        name=data.pop("name", entry.name if entry else None),
        data=data,
    )
    return decide(event, actor, _AT + timedelta(days=days), request=request, entry=entry)


def template(row: Entry) -> dict[str, str]:
    """What a registrant would have sent; the fields that the published row does not show are made up."""
    made = dict.fromkeys(("applications", "contact", "change_controller", "references", "security"), "x")
    # paths, numbers and notes are IANA's to write
    own = set(made) | {"description", "well_known", "reference"}
    return {**made, **{name: value for name, value in row.fields.items() if name in own}}


def by_request(row: Entry, old: Entry | None, kind: str, closing: tuple[EventKind, Actor]) -> Entry:
    """A request of `kind` taken all the way; the entry that it makes."""
    status = {} if kind == "update" else {"status": str(row.status)}
    opened = step(
        None, old, EventKind.OPEN, _ADA, 0, name=row.name, kind=kind, fields=template(row), **status
    )
    announced = step(opened, old, EventKind.ANNOUNCE, _ADA, 0)
    submitted = step(announced, old, EventKind.SUBMIT, _ADA, 28)
    checked = step(submitted, old, EventKind.CHECK_COMPLETE, _IANA, 29)
    done = checked
    if closing[0] is not EventKind.CHECK_COMPLETE:
        done = step(checked, checked.entry or old, closing[0], closing[1], 30)
    assert done.entry is not None
    return done.entry


def replay(each: Change) -> Entry:
    """The event that `each` names, done by the engine on the entry as it was before."""
    row, old, kind = each.after, each.before, each.event
    assert row is not None
    assert kind is not None
    if old is not None:
        old = replace(old, registrant=_ADA.id)
    if kind is EventKind.IMPORT:
        return applied(
            Event(kind=kind, registry=row.registry, name=row.name, data={"entry": codec.to_data(row)})
        )
    if each.kind is ChangeKind.ADDED:
        return by_request(row, None, "new", (kind, _EXPERT))
    if each.kind is ChangeKind.FIELDS:
        return by_request(row, old, "update", (kind, _EXPERT))
    if kind is EventKind.IESG_APPROVE:
        return by_request(row, old, "status-change", (kind, _IESG))
    actor = {EventKind.ASK_UPGRADE: _EXPERT, EventKind.RETIRE: _ADA}[kind]
    return applied(Event(kind=kind, registry=row.registry, name=row.name), old, actor)


def applied(event: Event, old: Entry | None = None, actor: Actor = _IANA) -> Entry:
    decision = decide(event, actor, _AT, request=None, entry=old)
    assert decision.entry is not None
    return decision.entry


def replayed(changes: tuple[Change, ...]) -> Counter[tuple[str, str | None]]:
    counts: Counter[tuple[str, str | None]] = Counter()
    for change in changes:
        counts[str(change.kind), change.rule] += 1
        if change.irregular is None:
            assert change.after is not None
            assert replay(change).status is change.after.status, change.name
    return counts


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (
            0,
            {
                ("added", "I3"): 158,
                ("added", "E2"): 7,
                # the part of 2015 with the historical ones is lost
                ("added", "IMPORT"): 16,
                ("status", "S1"): 2,
                ("fields", "E2"): 13,
                ("fields", "I3"): 1,
            },
        ),
        (
            1,
            {
                ("added", "I3"): 15,
                ("status", "S1"): 1,
                ("status", "S3"): 1,
                ("fields", "I3"): 25,
                ("fields", "E2"): 6,
            },
        ),
        (
            2,
            {
                ("added", "I3"): 30,
                ("added", "S4"): 1,
                ("status", "S1"): 1,
                ("fields", "I3"): 22,
                ("fields", "E2"): 4,
            },
        ),
    ],
)
def test_the_published_history_replays_as_legal_events(at: int, expected: dict[tuple[str, str], int]) -> None:
    before, after = (
        combine_snapshots(*(read_snapshot(shared(name), source=name) for name in names))
        for names in _VINTAGES[at : at + 2]
    )
    changes = compare_snapshots(before, after)
    assert not [change for change in changes if change.irregular]
    assert replayed(changes) == expected


def test_the_history_of_our_own_files_replays() -> None:
    before = combine_snapshots(load("2015-04-uri-schemes-1.csv"), load("2015-04-uri-schemes-2.csv"))
    after = load("uri-schemes-2022-11-18.csv")
    changes = compare_snapshots(before, after, at=_AT)
    assert replayed(changes) == {
        ("added", "I3"): 2,
        ("added", "E2"): 1,
        ("added", "IMPORT"): 2,
        ("status", "S1"): 1,
        ("fields", "E2"): 3,
        ("removed", None): 2,
    }
    assert all(change.at == _AT for change in changes)
    later = compare_snapshots(after, load("uri-schemes-2024-04.json"))
    payment = next(item for item in later if item.name == "payment")
    assert (payment.event, payment.rule) == (EventKind.RETIRE, "S3")


def test_conti_vanished_and_no_rule_lets_it() -> None:
    before = combine_snapshots(load("2015-04-uri-schemes-1.csv"), load("2015-04-uri-schemes-2.csv"))
    changes = compare_snapshots(before, load("uri-schemes-2022-11-18.csv"))
    (conti,) = (change for change in changes if change.name == "conti")
    assert (conti.kind, conti.event, conti.rule, conti.after) == (ChangeKind.REMOVED, None, None, None)
    assert conti.irregular is not None


# ---------- the table


@pytest.mark.parametrize("registry", list(REGISTRIES))
def test_every_move_between_statuses_is_legal_or_says_why_not(registry: str) -> None:
    for old in REGISTRIES[registry].statuses:
        for new in REGISTRIES[registry].statuses:
            found = compare_entries(entry("a", old, registry=registry), entry("a", new, registry=registry))
            if old is new:
                assert found is None
                continue
            assert found is not None
            assert found.kind is ChangeKind.STATUS
            assert (found.event is None) is (found.rule is None) is (found.irregular is not None)


_NEVER = [
    (Status.PERMANENT, Status.PROVISIONAL),
    (Status.HISTORICAL, Status.PERMANENT),
    (Status.HISTORICAL, Status.PROVISIONAL),
]


@pytest.mark.parametrize(("old", "new"), _NEVER)
def test_a_move_that_no_clause_defines_is_irregular_and_the_engine_agrees(old: Status, new: Status) -> None:
    before = replace(entry("a", old), registrant=_ADA.id)
    found = compare_entries(before, entry("a", new))
    assert found is not None
    assert found.irregular is not None
    assert f"{old} to {new}" in found.irregular
    for kind in (EventKind.ASK_UPGRADE, EventKind.RETIRE):
        for actor in (_ADA, _IANA, _EXPERT, _IESG):
            with pytest.raises(RefusalError):
                applied(Event(kind=kind, registry="uri-schemes", name="a"), before, actor)
    with pytest.raises(RefusalError):
        step(None, before, EventKind.OPEN, _ADA, 0, name="a", kind="status-change", status=str(new))


@pytest.mark.requirement("rfc7595-7.3-f")
def test_permanent_to_historical_is_the_iesgs() -> None:
    found = compare_entries(entry("a"), entry("a", Status.HISTORICAL))
    assert found is not None
    assert (found.event, found.rule) == (EventKind.IESG_APPROVE, "S2")
    assert replay(found).status is Status.HISTORICAL


def test_a_request_under_review_that_vanished_was_rejected() -> None:
    found = compare_entries(entry("a", Status.PENDING_REVIEW), None)
    assert found is not None
    assert (found.kind, found.event, found.irregular) == (ChangeKind.REMOVED, EventKind.REJECT, None)


def test_what_begins_as_revoked_is_irregular() -> None:
    found = compare_entries(None, entry("bank", Status.REVOKED, registry="ai-namespaces"))
    assert found is not None
    assert found.event is None
    assert found.irregular is not None


def test_nothing_changed_is_no_change() -> None:
    assert compare_entries(None, None) is None
    assert compare_entries(entry("a", notes="x"), entry("a", notes="x")) is None
    same = snapshot(entry("a"), entry("b"))
    assert compare_snapshots(same, same) == ()


def test_only_columns_that_both_files_carry_are_compared() -> None:
    before, after = snapshot(entry("a", notes="x")), snapshot(entry("a", reference="[RFC1]"))
    (both,) = compare_snapshots(before, after)
    assert (both.kind, both.name) == (ChangeKind.FIELDS, "a")
    assert compare_snapshots(replace(before, columns=("name", "description")), after) == ()


def test_a_status_that_a_file_does_not_cover_is_not_news() -> None:
    permanent = replace(snapshot(entry("a")), covers=frozenset({Status.PERMANENT}))
    whole = snapshot(entry("a"), entry("b", Status.HISTORICAL), entry("c"))
    added = {item.name: item.rule for item in compare_snapshots(permanent, whole)}
    assert added == {"b": "IMPORT", "c": "E2"}
    assert [item.name for item in compare_snapshots(whole, permanent)] == ["c"]


def test_snapshots_of_two_registries_are_not_compared() -> None:
    with pytest.raises(UsageError):
        compare_snapshots(snapshot(), snapshot(registry="ai-namespaces"))
