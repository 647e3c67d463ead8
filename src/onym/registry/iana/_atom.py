"""Changes as an Atom feed (RFC 4287)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from onym.errors import UsageError
from onym.registry import codec
from onym.registry.iana._cells import cell, status_word
from onym.registry.iana._markup import attribute, plain
from onym.registry.iana._types import Change, ChangeKind
from onym.registry.records import Entry
from onym.registry.registries import Registry
from onym.registry.registries import registry as registry_of

__all__ = ["MAX_CHANGES", "atom"]

#: entries in one feed; the newest come first by the caller's order
MAX_CHANGES: Final = 1000
#: characters of one cell that a summary shows
_SHOWN: Final = 200

# RFC 4151: taggingEntity = authorityName "," date
_TAGGER: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?,[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?")


def atom(
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
    if not _TAGGER.fullmatch(tagger):
        raise UsageError(
            "not the authority of a tag URI",
            code="usage.bad-argument",
            hint="registry.example,2026 (RFC 4151)",
        )
    if updated.utcoffset() is None:
        raise UsageError("`updated` has no offset from UTC", code="usage.bad-argument")
    row = registry_of(registry)
    chosen = [each for each, _ in zip(changes, range(MAX_CHANGES), strict=False)]
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"  <id>tag:{tagger}:{row.id}</id>",
        f"  <title>{plain(row.title)}: changes</title>",
        f"  <updated>{_time(updated)}</updated>",
        f'  <link rel="alternate" href="{attribute(home)}"/>',
        *([] if feed is None else [f'  <link rel="self" href="{attribute(feed)}"/>']),
        # RFC 4287 4.1.1: a feed has an author unless each of its entries has one
        f"  <author><name>{plain(row.title)}</name></author>",
    ]
    for each in chosen:
        lines += _entry(each, row, tagger, link, updated)
    return "\n".join((*lines, "</feed>", ""))


def _time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _entry(
    each: Change, row: Registry, tagger: str, link: Callable[[str], str], updated: datetime
) -> Iterator[str]:
    when = each.at or (each.after.updated if each.after else None) or updated
    yield "  <entry>"
    yield f"    <id>tag:{tagger}:{row.id}:{_digest(each)}</id>"
    yield f"    <title>{plain(_title(each))}</title>"
    yield f"    <updated>{_time(when)}</updated>"
    yield f'    <link rel="alternate" href="{attribute(link(each.name))}"/>'
    yield f'    <category term="{each.kind}"/>'
    yield f'    <summary type="text">{plain(_summary(each, row))}</summary>'
    yield "  </entry>"


def _digest(each: Change) -> str:
    """What makes a change this one: name, kind, time, and the entry before and after."""
    said = [
        each.name,
        each.kind,
        None if each.at is None else _time(each.at),
        *(None if entry is None else codec.to_data(entry) for entry in (each.before, each.after)),
    ]
    whole = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return sha256(whole.encode("ascii")).hexdigest()[:32]


def _title(each: Change) -> str:
    after = status_word(each.after.status).lower() if each.after else ""
    if each.kind is ChangeKind.ADDED:
        return f"{each.name}: added, {after}"
    if each.kind is ChangeKind.REMOVED:
        return f"{each.name}: removed"
    if each.kind is ChangeKind.STATUS and each.before is not None:
        return f"{each.name}: {status_word(each.before.status).lower()} to {after}"
    return f"{each.name}: updated"


def _summary(each: Change, row: Registry) -> str:
    lines = [each.irregular] if each.irregular else []
    for column in row.columns:
        old, new = _shown(each.before, column.id), _shown(each.after, column.id)
        if old == new:
            continue
        if each.kind is ChangeKind.ADDED:
            lines.append(f"{column.heading}: {new}")
        elif each.kind is not ChangeKind.REMOVED:
            lines.append(f"{column.heading}: {old or '(nothing)'}, now {new or '(nothing)'}")
    return "\n".join(lines) or _title(each)


def _shown(entry: Entry | None, column: str) -> str:
    value = "" if entry is None else cell(entry, column)
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
