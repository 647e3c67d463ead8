"""What changed between two snapshots, and which row of the state machine allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from onym.errors import UsageError
from onym.registry.iana._cells import cell
from onym.registry.iana._types import Change, ChangeKind, Snapshot
from onym.registry.records import Entry, EventKind, Status
from onym.registry.registries import registry

__all__ = ["change", "differences", "logged"]

#: the event that brings a change about, and its row in the table of rules
_Rule: TypeAlias = tuple[EventKind, str]

_OUTSIDE: Final[_Rule] = (EventKind.IMPORT, "IMPORT")

_ADDED: Final[Mapping[Status, _Rule]] = {
    Status.PROVISIONAL: (EventKind.CHECK_COMPLETE, "I3"),
    Status.PERMANENT: (EventKind.APPROVE, "E2"),
    Status.HISTORICAL: (EventKind.APPROVE, "S4"),
    Status.PENDING_REVIEW: (EventKind.CHECK_COMPLETE, "I4"),
    Status.REGISTERED: (EventKind.APPROVE, "E2"),
    Status.ACTIVE: (EventKind.APPROVE, "E2"),
}

_RUNNING: Final = (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)

_MOVED: Final[Mapping[tuple[Status, Status], _Rule]] = {
    (Status.PROVISIONAL, Status.PERMANENT): (EventKind.ASK_UPGRADE, "S1"),
    (Status.PERMANENT, Status.HISTORICAL): (EventKind.IESG_APPROVE, "S2"),
    (Status.PROVISIONAL, Status.HISTORICAL): (EventKind.RETIRE, "S3"),
    (Status.PENDING_REVIEW, Status.PERMANENT): (EventKind.APPROVE, "E2"),
    (Status.PENDING_REVIEW, Status.PROVISIONAL): (EventKind.APPROVE, "E2"),
    (Status.PENDING_REVIEW, Status.HISTORICAL): (EventKind.APPROVE, "S4"),
    (Status.PENDING_REVIEW, Status.REGISTERED): (EventKind.APPROVE, "E2"),
    (Status.PENDING_REVIEW, Status.ACTIVE): (EventKind.APPROVE, "E2"),
    (Status.REGISTERED, Status.DEPRECATED): (EventKind.RETIRE, "D1"),
    (Status.ACTIVE, Status.SAFE_MODE): (EventKind.ENTER_SAFE_MODE, "N1"),
    (Status.ACTIVE, Status.SUSPENDED): (EventKind.SUSPEND, "N2"),
    (Status.SAFE_MODE, Status.SUSPENDED): (EventKind.SUSPEND, "N2"),
    (Status.SAFE_MODE, Status.ACTIVE): (EventKind.REINSTATE, "N3"),
    (Status.SUSPENDED, Status.ACTIVE): (EventKind.REINSTATE, "N3"),
    **{(each, Status.REVOKED): (EventKind.REVOKE, "N4") for each in (*_RUNNING, Status.EXPIRED)},
    (Status.EXPIRED, Status.ACTIVE): (EventKind.RENEW, "N5"),
    **{(each, Status.EXPIRED): (EventKind.NAMESPACE_EXPIRED, "N6") for each in _RUNNING},
}

_NO_CLAUSE: Final = "no clause of RFC 4395 5.3 or RFC 7595 7.3 defines it (X); only an override records it"


def differences(before: Snapshot, after: Snapshot, *, at: datetime | None = None) -> tuple[Change, ...]:
    """The entries that differ, by name; only columns that both files carry whole are compared.

    An entry of a status that `before` does not cover is no news: it counts as imported. Raises UsageError
    for snapshots of two registries.
    """
    if before.registry != after.registry:
        raise UsageError("snapshots of two registries", code="usage.bad-argument")
    columns = tuple(each for each in before.columns if each in after.columns and each != "status")
    old = {each.name: each for each in before.entries}
    new = {each.name: each for each in after.entries}
    found = []
    for name in sorted({*old, *new}):
        one, two = old.get(name), new.get(name)
        if one is None and two is not None and not _covers(before, two.status):
            found.append(_change(ChangeKind.ADDED, None, two, _OUTSIDE, "", at))
        elif two is None and one is not None and not _covers(after, one.status):
            continue
        else:
            each = change(one, two, columns=columns, at=at)
            if each is not None:
                found.append(each)
    return tuple(found)


def _covers(snapshot: Snapshot, status: Status) -> bool:
    return snapshot.covers is None or status in snapshot.covers


def change(
    before: Entry | None,
    after: Entry | None,
    *,
    columns: tuple[str, ...] | None = None,
    at: datetime | None = None,
) -> Change | None:
    """The change from `before` to `after` (None: no such entry), or None if `columns` show none.

    `columns` are those of the registry where none are named.
    """
    if before is None:
        return None if after is None else _added(after, at)
    if after is None:
        return _removed(before, at)
    if before.status is not after.status:
        return _moved(before, after, at)
    if columns is None:
        columns = tuple(each.id for each in registry(after.registry).columns)
    if all(cell(before, each) == cell(after, each) for each in columns):
        return None
    return _change(ChangeKind.FIELDS, before, after, _update(after), "", at)


def logged(before: Entry | None, after: Entry | None, *, at: datetime) -> Change | None:
    """The change that a record of a log made, as `change`; nothing about it is irregular."""
    found = change(before, after, at=at)
    return None if found is None else replace(found, irregular=None)


def _update(entry: Entry) -> _Rule:
    if entry.status is Status.PROVISIONAL:
        return EventKind.CHECK_COMPLETE, "I3"
    return EventKind.APPROVE, "E2"


def _added(after: Entry, at: datetime | None) -> Change:
    rule = _ADDED.get(after.status)
    reason = f"new, and {after.status} already: no request asks for that status"
    return _change(ChangeKind.ADDED, None, after, rule, reason, at)


def _removed(before: Entry, at: datetime | None) -> Change:
    rule = (EventKind.REJECT, "E5") if before.status is Status.PENDING_REVIEW else None
    return _change(
        ChangeKind.REMOVED, before, None, rule, f"vanished, and was {before.status}: {_NO_CLAUSE}", at
    )


def _moved(before: Entry, after: Entry, at: datetime | None) -> Change:
    rule = _MOVED.get((before.status, after.status))
    reason = f"{before.status} to {after.status}: {_NO_CLAUSE}"
    return _change(ChangeKind.STATUS, before, after, rule, reason, at)


def _change(
    kind: ChangeKind,
    before: Entry | None,
    after: Entry | None,
    rule: _Rule | None,
    reason: str,
    at: datetime | None,
) -> Change:
    """The change, by that rule or, where there is none, irregular for that reason."""
    either = after or before
    assert either is not None  # noqa: S101 - one of them is there
    event, row = rule or (None, None)
    return Change(
        name=either.name,
        kind=kind,
        before=before,
        after=after,
        event=event,
        rule=row,
        irregular=None if rule else reason,
        at=at,
    )
