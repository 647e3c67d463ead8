"""Changes between two snapshots: which rule of the state machine allows each, and an Atom feed (RFC 4287)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, TypeAlias

from onym.errors import UsageError
from onym.registry import codec
from onym.registry.iana.snapshots import Change, ChangeKind, Snapshot, format_status, get_cell
from onym.registry.iana.xml_format import escape_attribute, escape_text
from onym.registry.records import Entry, EventKind, Status
from onym.registry.registries import Registry, get_registry
from onym.registry.registries import get_registry as registry_of

#: the event that brings a change about, and its row in the table of rules
_Rule: TypeAlias = tuple[EventKind, str]

_IMPORT_RULE: Final[_Rule] = (EventKind.IMPORT, "IMPORT")

_ADDITION_RULES: Final[Mapping[Status, _Rule]] = {
    Status.PROVISIONAL: (EventKind.CHECK_COMPLETE, "I3"),
    Status.PERMANENT: (EventKind.APPROVE, "E2"),
    Status.HISTORICAL: (EventKind.APPROVE, "S4"),
    Status.PENDING_REVIEW: (EventKind.CHECK_COMPLETE, "I4"),
    Status.REGISTERED: (EventKind.APPROVE, "E2"),
    Status.ACTIVE: (EventKind.APPROVE, "E2"),
}

_RUNNING: Final = (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)

_STATUS_RULES: Final[Mapping[tuple[Status, Status], _Rule]] = {
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
    **{(status, Status.REVOKED): (EventKind.REVOKE, "N4") for status in (*_RUNNING, Status.EXPIRED)},
    (Status.EXPIRED, Status.ACTIVE): (EventKind.RENEW, "N5"),
    **{(known_status, Status.EXPIRED): (EventKind.NAMESPACE_EXPIRED, "N6") for known_status in _RUNNING},
}

_NO_CLAUSE: Final = "no clause of RFC 4395 5.3 or RFC 7595 7.3 defines it (X); only an override records it"


def compare_snapshots(before: Snapshot, after: Snapshot, *, at: datetime | None = None) -> tuple[Change, ...]:
    """The entries that differ, by name; only columns that both files carry whole are compared.

    An entry of a status that `before` does not cover is no news: it counts as imported. Raises UsageError
    for snapshots of two registries.
    """
    if before.registry != after.registry:
        raise UsageError("the snapshots belong to two registries", code="usage.bad-argument")
    columns = tuple(column for column in before.columns if column in after.columns and column != "status")
    old = {entry.name: entry for entry in before.entries}
    new = {entry.name: entry for entry in after.entries}
    found = []
    for name in sorted({*old, *new}):
        one, two = old.get(name), new.get(name)
        if one is None and two is not None and not _is_covered(before, two.status):
            found.append(_make_change(ChangeKind.ADDED, None, two, _IMPORT_RULE, "", at))
        elif two is None and one is not None and not _is_covered(after, one.status):
            continue
        else:
            each = compare_entries(one, two, columns=columns, at=at)
            if each is not None:
                found.append(each)
    return tuple(found)


def _is_covered(snapshot: Snapshot, status: Status) -> bool:
    return snapshot.covers is None or status in snapshot.covers


def compare_entries(
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
        return None if after is None else _make_addition(after, at)
    if after is None:
        return _make_removal(before, at)
    if before.status is not after.status:
        return _make_status_change(before, after, at)
    if columns is None:
        columns = tuple(column.id for column in get_registry(after.registry).columns)
    if all(get_cell(before, column) == get_cell(after, column) for column in columns):
        return None
    return _make_change(ChangeKind.FIELDS, before, after, _find_update_rule(after), "", at)


def compare_logged_entries(before: Entry | None, after: Entry | None, *, at: datetime) -> Change | None:
    """The change that a record of a log made, as `compare_entries`; nothing about it is irregular."""
    found = compare_entries(before, after, at=at)
    return None if found is None else replace(found, irregular=None)


def _find_update_rule(entry: Entry) -> _Rule:
    if entry.status is Status.PROVISIONAL:
        return EventKind.CHECK_COMPLETE, "I3"
    return EventKind.APPROVE, "E2"


def _make_addition(after: Entry, at: datetime | None) -> Change:
    rule = _ADDITION_RULES.get(after.status)
    reason = f"new, and {after.status} already: no request asks for that status"
    return _make_change(ChangeKind.ADDED, None, after, rule, reason, at)


def _make_removal(before: Entry, at: datetime | None) -> Change:
    rule = (EventKind.REJECT, "E5") if before.status is Status.PENDING_REVIEW else None
    return _make_change(
        ChangeKind.REMOVED, before, None, rule, f"vanished, and was {before.status}: {_NO_CLAUSE}", at
    )


def _make_status_change(before: Entry, after: Entry, at: datetime | None) -> Change:
    rule = _STATUS_RULES.get((before.status, after.status))
    reason = f"{before.status} to {after.status}: {_NO_CLAUSE}"
    return _make_change(ChangeKind.STATUS, before, after, rule, reason, at)


def _make_change(
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


#: entries in one feed; the newest come first by the caller's order
MAX_CHANGES: Final = 1000
#: characters of one cell that a summary shows
_MAX_CELL: Final = 200

# RFC 4151: taggingEntity = authorityName "," date
_TAG_AUTHORITY: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?,[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?"
)


def format_atom_feed(
    changes: Iterable[Change],
    *,
    registry: str,
    updated: datetime,
    tagger: str,
    link: Callable[[str], str],
    home: str,
    feed: str | None = None,
) -> str:
    """A feed with one entry for each of the first MAX_CHANGES changes, in the order given.

    `tagger` mints the ids and never changes: a domain of the operator's and a day on which it was theirs
    ("registry.example,2026"). `link` gives the URL of an entry's page from its name, `home` is the
    registry's page, `feed` the feed's own URL. `updated` (aware) stands for changes without a time.

    The same change at the same time has the same id in every feed. Raises UsageError.
    """
    if not _TAG_AUTHORITY.fullmatch(tagger):
        raise UsageError(
            "this is not the authority of a tag URI",
            code="usage.bad-argument",
            hint="Write it as registry.example,2026 (RFC 4151).",
        )
    if updated.utcoffset() is None:
        raise UsageError("`updated` needs an offset from UTC", code="usage.bad-argument")
    row = registry_of(registry)
    chosen = [change for change, _ in zip(changes, range(MAX_CHANGES), strict=False)]
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"  <id>tag:{tagger}:{row.id}</id>",
        f"  <title>{escape_text(row.title)}: changes</title>",
        f"  <updated>{_format_time(updated)}</updated>",
        f'  <link rel="alternate" href="{escape_attribute(home)}"/>',
        *([] if feed is None else [f'  <link rel="self" href="{escape_attribute(feed)}"/>']),
        # RFC 4287 4.1.1: a feed has an author unless each of its entries has one
        f"  <author><name>{escape_text(row.title)}</name></author>",
    ]
    for item in chosen:
        lines += _iter_entry_lines(item, row, tagger, link, updated)
    return "\n".join((*lines, "</feed>", ""))


def _format_time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _iter_entry_lines(
    each: Change, row: Registry, tagger: str, link: Callable[[str], str], updated: datetime
) -> Iterator[str]:
    when = each.at or (each.after.updated if each.after else None) or updated
    yield "  <entry>"
    yield f"    <id>tag:{tagger}:{row.id}:{_compute_change_id(each)}</id>"
    yield f"    <title>{escape_text(_format_title(each))}</title>"
    yield f"    <updated>{_format_time(when)}</updated>"
    yield f'    <link rel="alternate" href="{escape_attribute(link(each.name))}"/>'
    yield f'    <category term="{each.kind}"/>'
    yield f'    <summary type="text">{escape_text(_format_summary(each, row))}</summary>'
    yield "  </entry>"


def _compute_change_id(each: Change) -> str:
    """What makes a change this one: name, kind, time, and the entry before and after."""
    said = [
        each.name,
        each.kind,
        None if each.at is None else _format_time(each.at),
        *(None if entry is None else codec.to_data(entry) for entry in (each.before, each.after)),
    ]
    whole = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return sha256(whole.encode("ascii")).hexdigest()[:32]


def _format_title(each: Change) -> str:
    after = format_status(each.after.status).lower() if each.after else ""
    if each.kind is ChangeKind.ADDED:
        return f"{each.name}: added, {after}"
    if each.kind is ChangeKind.REMOVED:
        return f"{each.name}: removed"
    if each.kind is ChangeKind.STATUS and each.before is not None:
        return f"{each.name}: {format_status(each.before.status).lower()} to {after}"
    return f"{each.name}: updated"


def _format_summary(each: Change, row: Registry) -> str:
    lines = [each.irregular] if each.irregular else []
    for column in row.columns:
        old, new = _shorten_cell(each.before, column.id), _shorten_cell(each.after, column.id)
        if old == new:
            continue
        if each.kind is ChangeKind.ADDED:
            lines.append(f"{column.heading}: {new}")
        elif each.kind is not ChangeKind.REMOVED:
            lines.append(f"{column.heading}: {old or '(nothing)'}, now {new or '(nothing)'}")
    return "\n".join(lines) or _format_title(each)


def _shorten_cell(entry: Entry | None, column: str) -> str:
    value = "" if entry is None else get_cell(entry, column)
    return value if len(value) <= _MAX_CELL else f"{value[: _MAX_CELL - 1]}…"
