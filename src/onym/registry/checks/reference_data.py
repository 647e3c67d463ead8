"""Reference data for the checks: registered names, RFCs, top-level domains and service names.

All of it is shipped; nothing is fetched. Pass your own entries to check against a live registry.
`NameIndex` finds similar names in a registry of 100,000 names without comparing all of them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.registry.records import EMPTY, Entry

if TYPE_CHECKING:
    from onym.registry.iana import RFC

#: what is read for something else, after lower case: the longer ones first
_LOOKS: Final = (
    ("rn", "m"),
    ("vv", "w"),
    ("cl", "d"),
    ("0", "o"),
    ("1", "l"),
    ("i", "l"),
    ("5", "s"),
    ("2", "z"),
)
_LAST: Final = "\U0010ffff"


def compute_skeleton(name: str) -> str:
    """The name with what looks alike written alike."""
    for found, stands_for in _LOOKS:
        name = name.replace(found, stands_for)
    return name


def is_one_edit_apart(one: str, other: str) -> bool:
    """Is one letter put in, left out or changed all that differs? Linear."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    short, long = sorted((one, other), key=len)
    at = next((place for place, character in enumerate(short) if character != long[place]), len(short))
    rest = short[at + 1 :] if len(short) == len(long) else short[at:]
    return rest == long[at + 1 :]


class NameIndex:
    """The names of a registry, in lower case, arranged for looking up what is near."""

    __slots__ = ("_backward", "_forward", "_skeletons", "_spellings")

    def __init__(self, names: Iterable[str]) -> None:
        given = tuple(names)
        self._spellings = {name.lower(): name for name in given if name != name.lower()}
        self._forward = sorted({name.lower() for name in given})
        self._backward = sorted(name[::-1] for name in self._forward)
        # most names are alone with their skeleton: those are found among the names themselves
        self._skeletons: dict[str, list[str]] = {}
        for name in self._forward:
            bare = compute_skeleton(name)
            if bare != name:
                self._skeletons.setdefault(bare, []).append(name)

    def __len__(self) -> int:
        return len(self._forward)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forward)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._slice_range(self._forward, name, name + "\0") != []

    def get_spelling(self, name: str) -> str:
        """How the registry writes a name that is given in lower case."""
        return self._spellings.get(name, name)

    def find_similar(self, name: str) -> set[str]:
        """Every name with the same skeleton or one letter away from `name`, and some others.

        One edit leaves the first half of a name as it was, or the second: one of them is looked up.
        """
        bare, half = compute_skeleton(name), len(name) // 2
        found = {bare} & {*self._slice_range(self._forward, bare, bare + "\0")}
        found.update(self._skeletons.get(bare, ()))
        begin, end = name[:half], name[half:][::-1]
        found.update(self._slice_range(self._forward, begin, begin + _LAST))
        found.update(each[::-1] for each in self._slice_range(self._backward, end, end + _LAST))
        return found

    @staticmethod
    def _slice_range(some: list[str], begin: str, end: str) -> list[str]:
        return some[bisect_left(some, begin) : bisect_left(some, end)]


_HERE: Final = "onym.registry.checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceData:
    """Facts for the checks. An empty member is not known: checks that need it say that they could not run.

    `entries` is by lower-cased name. `names`, where given, are all names of a registry that is too large to
    be held whole: `entries` then has those alone that the document may be about. `rfcs` is by number; with
    `all_rfcs` there are no others. `tlds` are top-level domains without the dot, in lower case, `services`
    the service names of RFC 6335.
    """

    entries: Mapping[str, Entry] = field(default_factory=lambda: EMPTY)
    names: NameIndex | None = None
    rfcs: Mapping[int, RFC] = field(default_factory=lambda: MappingProxyType({}))
    all_rfcs: bool = False
    tlds: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()

    def with_entries(self, entries: Mapping[str, Entry], names: NameIndex | None = None) -> ReferenceData:
        """The same facts, with these entries of a registry with these names in place of the shipped."""
        return replace(self, entries=entries, names=names)

    @property
    def has_names(self) -> bool:
        """Is it known which names are registered?"""
        return self.names is not None or bool(self.entries)

    def find_similar(self, name: str) -> Collection[str]:
        """Registered names among which are all that may be taken for `name`."""
        return self.entries.keys() if self.names is None else self.names.find_similar(name)


@cache
def load_builtin(registry: str = "uri-schemes") -> ReferenceData:
    """The shipped facts, read once: about 400 schemes, the RFC index, top-level domains, service names."""
    from onym.registry.iana import load_builtin_snapshot as snapshot  # late: its data is only needed here
    from onym.registry.iana import load_known_rfcs

    return ReferenceData(
        entries=MappingProxyType({entry.name.lower(): entry for entry in snapshot(registry).entries}),
        rfcs=load_known_rfcs(),
        tlds=_load_tlds(),
        services=_load_services(),
    )


@cache
def load_section_titles() -> Mapping[int, Mapping[str, str]]:
    """Section titles by number, of the RFCs that registrations cite sections of: 3986, 7595, 8126, ..."""
    found = json.loads(files(_HERE).joinpath("data/rfc-sections.json").read_text(encoding="utf-8"))
    return MappingProxyType({int(number): MappingProxyType(titles) for number, titles in found.items()})


@cache
def load_word_list(kind: str) -> frozenset[str]:
    """A word list: `general` (RFC 7595 3.8), or what was registered long ago and need not be asked for:
    `link-relations`, `well-known-uris`, `node-names`, `service-names` (those that `Known.services` lacks)."""
    found = json.loads(files(_HERE).joinpath("data/words.json").read_text(encoding="utf-8"))
    return frozenset(found[kind].split())


def _load_services() -> frozenset[str]:
    text = files(_HERE).joinpath("data/service-names.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _load_tlds() -> frozenset[str]:
    """The one-label rules of the Public Suffix List's ICANN part."""
    text = files("publicsuffixlist").joinpath("public_suffix_list.dat").read_text(encoding="utf-8")
    part = text.partition("===BEGIN ICANN DOMAINS===")[2].partition("===END ICANN DOMAINS===")[0]
    rules = (line.strip().lstrip("*!.") for line in part.splitlines() if not line.startswith("//"))
    return frozenset(rule.lower() for rule in rules if rule and "." not in rule)
