"""Two snapshots: combine and import them, compare them, and publish changes as an Atom feed (RFC 4287).

An import never changes who controls an entry: registrant, designees and IESG approval stay as the log
has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Final, TypeAlias

from onym.common.text import shorten_text
from onym.errors import UsageError
from onym.registry import codec, iana
from onym.registry.iana.xml_format import escape_attribute, escape_text
from onym.registry.records import Entry, EventKind, Status
from onym.registry.registries import Registry, get_registry

_CONTROL_KEPT: Final = (
    "registrant, designees and IESG approval stay unchanged; an override with a reason can change them"
)
#: columns that are members of an entry, not fields
_MEMBERS: Final = frozenset({"name", "status"})


def prepare_import(entry: Entry, before: Entry | None) -> tuple[Entry, str | None]:
    """Return the row as it is imported, and what is irregular if a value was left out.

    A new name keeps the registrant, designees and approval of the file, so that an export of a registry can
    be restored; so does a name that is pending review. An existing entry keeps its own, which its log
    records.
    """
    if before is None or (before.status is Status.PENDING_REVIEW and entry.status is not before.status):
        return entry, None
    differs = (
        (entry.registrant is not None and entry.registrant != before.registrant)
        or not entry.designees <= before.designees
        or (entry.iesg_approved and not before.iesg_approved)
    )
    kept = replace(entry, registrant=None, designees=frozenset(), iesg_approved=False)
    return kept, _CONTROL_KEPT if differs else None


def fill_missing_columns(snapshot: iana.Snapshot, current: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the file's rows, completed from the current entries of the same names.

    Columns that the file does not have keep the entry's value. So do columns that show the same text: a
    column of notes includes the notes of the procedure, and a date has no time.
    """
    columns = {column.id for column in get_registry(snapshot.registry).columns}
    missing = columns.difference(snapshot.columns)
    before = {entry.name: entry for entry in current}
    return tuple(
        _merge_existing(entry, before[entry.name], missing) if entry.name in before else entry
        for entry in snapshot.entries
    )


def _merge_existing(entry: Entry, old: Entry, missing: set[str]) -> Entry:
    names = {*entry.fields, *old.fields, "notes"}
    shown_alike = {
        name for name in names - _MEMBERS if iana.get_cell(entry, name) == iana.get_cell(old, name)
    }
    kept = {name: value for name, value in old.fields.items() if name in shown_alike | missing}
    fields = {
        name: value for name, value in entry.fields.items() if name in missing or name not in shown_alike
    }
    registered = entry.registered
    if registered is not None and old.registered is not None and registered.date() == old.registered.date():
        registered = old.registered
    return replace(
        entry,
        fields={**kept, **fields},
        expires=entry.expires or (old.expires if "expires" in missing else None),
        registered=registered,
    )


def combine_snapshots(*parts: iana.Snapshot) -> iana.Snapshot:
    """Return one snapshot of the parts of one registry; of a repeated name the first part's row is kept."""
    if not parts or len({part.registry for part in parts}) > 1:
        raise UsageError("only snapshots of the same registry can be combined", code="usage.bad-argument")
    entries: dict[str, Entry] = {}
    irregular: list[iana.Irregular] = []
    for part in parts:
        irregular += part.irregular
        for entry in part.entries:
            if entry.name in entries:
                reason = f"{entry.name} is in another part already; this row is set aside"
                irregular.append(
                    iana.Irregular(name=entry.name, code="duplicate", reason=reason, entry=entry)
                )
            else:
                entries[entry.name] = entry
    covers = [part.covers for part in parts if part.covers is not None]
    return iana.Snapshot(
        registry=parts[0].registry,
        entries=tuple(sorted(entries.values(), key=lambda entry: entry.name)),
        irregular=tuple(irregular),
        source=", ".join(part.source for part in parts),
        vintage=parts[0].vintage,
        columns=tuple(dict.fromkeys(column for part in parts for column in part.columns)),
        covers=frozenset().union(*covers) if len(covers) == len(parts) else None,
    )


#: the event that causes a change, and its row in the table of rules
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
    **{(status, Status.EXPIRED): (EventKind.NAMESPACE_EXPIRED, "N6") for status in _RUNNING},
}

_NO_CLAUSE: Final = "no clause of RFC 4395 5.3 or RFC 7595 7.3 allows it (X); only an override can record it"


def compare_snapshots(
    before: iana.Snapshot, after: iana.Snapshot, *, at: datetime | None = None
) -> tuple[iana.Change, ...]:
    """Return the entries that differ, by name; only columns that both files have completely are compared.

    An entry with a status that `before` does not cover is reported as imported. Raises UsageError for
    snapshots of two registries.
    """
    if before.registry != after.registry:
        raise UsageError("the snapshots belong to two registries", code="usage.bad-argument")
    columns = tuple(column for column in before.columns if column in after.columns and column != "status")
    old = {entry.name: entry for entry in before.entries}
    new = {entry.name: entry for entry in after.entries}
    changes: list[iana.Change | None] = []
    for name in sorted({*old, *new}):
        one, two = old.get(name), new.get(name)
        if one is None and two is not None and not _is_covered(before, two.status):
            changes.append(_make_change(iana.ChangeKind.ADDED, None, two, _IMPORT_RULE, "", at))
        elif one is None or two is not None or _is_covered(after, one.status):
            changes.append(compare_entries(one, two, columns=columns, at=at))
    return tuple(filter(None, changes))


def _is_covered(snapshot: iana.Snapshot, status: Status) -> bool:
    return snapshot.covers is None or status in snapshot.covers


def compare_entries(
    before: Entry | None,
    after: Entry | None,
    *,
    columns: tuple[str, ...] | None = None,
    at: datetime | None = None,
) -> iana.Change | None:
    """Return the change from `before` to `after` (None: no such entry); None if `columns` show none.

    The default of `columns` are the columns of the registry.
    """
    if before is None:
        if after is None:
            return None
        reason = f"new with the status {after.status}, which no request can ask for"
        return _make_change(iana.ChangeKind.ADDED, None, after, _ADDITION_RULES.get(after.status), reason, at)
    if after is None:
        rule = (EventKind.REJECT, "E5") if before.status is Status.PENDING_REVIEW else None
        reason = f"removed with the status {before.status}: {_NO_CLAUSE}"
        return _make_change(iana.ChangeKind.REMOVED, before, None, rule, reason, at)
    if before.status is not after.status:
        rule = _STATUS_RULES.get((before.status, after.status))
        reason = f"{before.status} to {after.status}: {_NO_CLAUSE}"
        return _make_change(iana.ChangeKind.STATUS, before, after, rule, reason, at)
    if columns is None:
        columns = tuple(column.id for column in get_registry(after.registry).columns)
    if all(iana.get_cell(before, column) == iana.get_cell(after, column) for column in columns):
        return None
    update = _ADDITION_RULES[Status.PROVISIONAL if after.status is Status.PROVISIONAL else Status.PERMANENT]
    return _make_change(iana.ChangeKind.FIELDS, before, after, update, "", at)


def compare_logged_entries(before: Entry | None, after: Entry | None, *, at: datetime) -> iana.Change | None:
    """Return the change of a log record as `compare_entries` does; a logged change is never irregular."""
    change = compare_entries(before, after, at=at)
    return None if change is None else replace(change, irregular=None)


def _make_change(
    kind: iana.ChangeKind,
    before: Entry | None,
    after: Entry | None,
    rule: _Rule | None,
    reason: str,
    at: datetime | None,
) -> iana.Change:
    """Return the change by that rule; without a rule it is irregular for that reason."""
    either = after or before
    assert either is not None  # noqa: S101 - callers pass one
    event, row = rule or (None, None)
    return iana.Change(
        name=either.name,
        kind=kind,
        before=before,
        after=after,
        event=event,
        rule=row,
        irregular=None if rule else reason,
        at=at,
    )


#: entries of one feed
MAX_CHANGES: Final = 1000
#: what the feed of all registries has in its ID in place of a registry
_ALL: Final = "all"
#: characters of one cell in a summary
_MAX_CELL: Final = 200

# RFC 4151: taggingEntity = authorityName "," date
_TAG_AUTHORITY: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?,[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?"
)


def format_atom_feed(
    changes: Iterable[iana.Change],
    *,
    registry: str | None,
    updated: datetime,
    tagger: str,
    link: Callable[[Entry], str],
    home: str,
    feed: str | None = None,
) -> str:
    """Return a feed with an entry for each of the first MAX_CHANGES changes, in the order given.

    Without a `registry`, the changes belong to several registries, and their titles name the registry.
    `tagger` is part of the ids and must never change: a domain and a day on which the operator owned it
    ("registry.example,2026"). `link` returns the URL of an entry's page, `home` is the page of the registry,
    `feed` the URL of the feed. `updated` (aware) is the time of changes without a time.

    The same change at the same time has the same id in every feed. Raises UsageError for an invalid `tagger`
    and for a time without an offset.
    """
    if not _TAG_AUTHORITY.fullmatch(tagger):
        raise UsageError(
            f"{tagger[:80]!r} is not the authority of a tag URI",
            code="usage.bad-argument",
            hint="Write it as registry.example,2026 (RFC 4151).",
        )
    if updated.utcoffset() is None:
        raise UsageError("`updated` needs an offset from UTC", code="usage.bad-argument")
    title = "All registries" if registry is None else get_registry(registry).title
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"  <id>tag:{tagger}:{registry or _ALL}</id>",
        f"  <title>{escape_text(title)}: changes</title>",
        f"  <updated>{iana.format_utc_time(updated)}</updated>",
        f'  <link rel="alternate" href="{escape_attribute(home)}"/>',
        *([] if feed is None else [f'  <link rel="self" href="{escape_attribute(feed)}"/>']),
        # RFC 4287 4.1.1: a feed has an author unless each of its entries has one
        f"  <author><name>{escape_text(title)}</name></author>",
    ]
    for change, _ in zip(changes, range(MAX_CHANGES), strict=False):
        lines += _iter_entry_lines(change, tagger, link, updated, named=registry is None)
    return "\n".join((*lines, "</feed>", ""))


def _iter_entry_lines(
    change: iana.Change, tagger: str, link: Callable[[Entry], str], updated: datetime, *, named: bool
) -> Iterator[str]:
    about = change.after or change.before
    assert about is not None  # noqa: S101 - a change has one
    row = get_registry(about.registry)
    title = f"{_format_title(change)} ({row.id})" if named else _format_title(change)
    time = change.at or (change.after.updated if change.after else None) or updated
    yield "  <entry>"
    yield f"    <id>tag:{tagger}:{row.id}:{_compute_change_id(change)}</id>"
    yield f"    <title>{escape_text(title)}</title>"
    yield f"    <updated>{iana.format_utc_time(time)}</updated>"
    yield f'    <link rel="alternate" href="{escape_attribute(link(about))}"/>'
    yield f'    <category term="{change.kind}"/>'
    yield f'    <summary type="text">{escape_text(_format_summary(change, row))}</summary>'
    yield "  </entry>"


def _compute_change_id(change: iana.Change) -> str:
    """Return a digest of the name, kind and time, and of the entry before and after."""
    parts = [
        change.name,
        change.kind,
        None if change.at is None else iana.format_utc_time(change.at),
        *(None if entry is None else codec.to_data(entry) for entry in (change.before, change.after)),
    ]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("ascii")).hexdigest()[:32]


def _format_title(change: iana.Change) -> str:
    after = iana.format_status(change.after.status).lower() if change.after else ""
    if change.kind is iana.ChangeKind.ADDED:
        return f"{change.name}: added, {after}"
    if change.kind is iana.ChangeKind.REMOVED:
        return f"{change.name}: removed"
    if change.kind is iana.ChangeKind.STATUS and change.before is not None:
        return f"{change.name}: {iana.format_status(change.before.status).lower()} to {after}"
    return f"{change.name}: updated"


def _format_summary(change: iana.Change, row: Registry) -> str:
    lines = [change.irregular] if change.irregular else []
    for column in row.columns:
        old, new = (
            "" if entry is None else shorten_text(iana.get_cell(entry, column.id), _MAX_CELL)
            for entry in (change.before, change.after)
        )
        if old == new:
            continue
        if change.kind is iana.ChangeKind.ADDED:
            lines.append(f"{column.heading}: {new}")
        elif change.kind is not iana.ChangeKind.REMOVED:
            lines.append(f"{column.heading}: {old or '(nothing)'}, now {new or '(nothing)'}")
    return "\n".join(lines) or _format_title(change)
