"""The versions of an entry, and two of them field by field."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from onym.registry.records import Entry
from onym.registry.registries import REGISTRIES
from onym.server.registry.build.parts import fields_of
from onym.server.registry.contexts.browse import Comparison, Piece, VersionOption
from onym.server.registry.words import EVENTS, day, status_view

if TYPE_CHECKING:
    from onym.registry.store import EntryChange

__all__ = ["Version", "compare", "options", "pieces", "versions_of"]

#: words of one field that are aligned; a longer field is shown whole, before and after
_MOST_WORDS: Final = 2_000
#: pairs of equal words that are looked at for one page: aligning takes time with their number, and more than
#: that where words come again and again; beyond it a field is shown whole too
_MOST_PAIRS: Final = 60_000
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")

#: versions offered in a choice; older ones are compared by their address
_MOST_OPTIONS: Final = 200

Version: TypeAlias = "tuple[Entry, EntryChange]"


def versions_of(changes: Iterable[EntryChange]) -> dict[int, Version]:
    """Every version of a name's entries with the change that made it, by number, in the order given."""
    return {each.after.version: (each.after, each) for each in changes if each.after is not None}


def options(versions: Mapping[int, Version]) -> tuple[VersionOption, ...]:
    """The versions as a choice, newest first."""
    return tuple(
        VersionOption(number=number, label=f"{number}: {day(change.at.date())}, {EVENTS[change.event]}")
        for number, (_, change) in sorted(versions.items(), reverse=True)[:_MOST_OPTIONS]
    )


def _values(entry: Entry) -> dict[str, tuple[str, str]]:
    """Field id -> (heading, text) of all that a version says."""
    found = {"status": ("Status", status_view(entry.status).label)}
    for cell in fields_of(entry.registry, entry.fields):
        found[cell.id] = (cell.heading, cell.value)
    found["registrant"] = ("Registrant", entry.registrant or "")
    found["expires"] = ("Holds until", day(entry.expires))
    found["notes_attached"] = (
        "Notes attached",
        "\n".join(f"{each.kind}: {each.text}" for each in entry.notes),
    )
    return found


def compare(before: Entry, after: Entry) -> tuple[Comparison, ...]:
    """Both versions, field by field, in the registry's order; fields that both leave out are left out."""
    old, new = _values(before), _values(after)
    order = [each.id for each in REGISTRIES[after.registry].columns]
    names = sorted({*old, *new}, key=lambda name: (order.index(name) if name in order else len(order), name))
    found = []
    left = _MOST_PAIRS
    for name in names:
        heading = (new.get(name) or old[name])[0]
        one, two = old.get(name, ("", ""))[1], new.get(name, ("", ""))[1]
        if one or two:
            gone, came, looked_at = _aligned(one, two, left)
            left -= looked_at
            found.append(Comparison(id=name, heading=heading, changed=one != two, before=gone, after=came))
    return tuple(found)


def pieces(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both texts, cut where they differ, word by word."""
    return _aligned(before, after, _MOST_PAIRS)[:2]


def _aligned(before: str, after: str, most: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...], int]:
    """The same where no more than `most` pairs of equal words must be looked at; and how many there were."""
    if before == after:
        same = _joined([("same", before)])
        return same, same, 0
    old, new = _WORD.findall(before), _WORD.findall(after)
    counts = Counter(old)
    pairs = sum(counts[word] for word in new)
    if pairs > most or len(old) > _MOST_WORDS or len(new) > _MOST_WORDS:
        return _joined([("gone", before)]), _joined([("new", after)]), 0
    one, two = [], []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        one.append(("same" if tag == "equal" else "gone", "".join(old[a:b])))
        two.append(("same" if tag == "equal" else "new", "".join(new[c:d])))
    return _joined(one), _joined(two), pairs


def _joined(parts: list[tuple[str, str]]) -> tuple[Piece, ...]:
    kept = [part for part in parts if part[1]]
    return tuple(
        Piece(kind=kind, text="".join(text for _, text in group))
        for kind, group in groupby(kept, lambda p: p[0])
    )
