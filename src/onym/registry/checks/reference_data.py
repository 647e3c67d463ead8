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

#: letters in lower case that look like others, the longer ones first
_LOOK_ALIKES: Final = tuple(
    pair.split() for pair in ("rn m", "vv w", "cl d", "0 o", "1 l", "i l", "5 s", "2 z")
)
_LAST: Final = "\U0010ffff"


def compute_skeleton(name: str) -> str:
    """Return the name with letters that look alike made the same."""
    for letters, replacement in _LOOK_ALIKES:
        name = name.replace(letters, replacement)
    return name


def is_one_edit_apart(one: str, other: str) -> bool:
    """Return whether the names differ in one letter that is added, removed or changed. Linear."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    short, long = sorted((one, other), key=len)
    index = next((index for index, char in enumerate(short) if char != long[index]), len(short))
    rest = short[index + 1 :] if len(short) == len(long) else short[index:]
    return rest == long[index + 1 :]


class NameIndex:
    """The names of a registry in lower case, sorted so that similar names are found quickly."""

    __slots__ = ("_backward", "_forward", "_skeletons", "_spellings")

    def __init__(self, names: Iterable[str]) -> None:
        spelled = tuple(names)
        self._spellings = {name.lower(): name for name in spelled if name != name.lower()}
        self._forward = sorted({name.lower() for name in spelled})
        self._backward = sorted(name[::-1] for name in self._forward)
        # most names are equal to their skeleton and are found among the names
        self._skeletons: dict[str, list[str]] = {}
        for name in self._forward:
            skeleton = compute_skeleton(name)
            if skeleton != name:
                self._skeletons.setdefault(skeleton, []).append(name)

    def __len__(self) -> int:
        return len(self._forward)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forward)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._slice_range(self._forward, name, name + "\0") != []

    def get_spelling(self, name: str) -> str:
        """Return the registry's spelling of a name in lower case."""
        return self._spellings.get(name, name)

    def find_similar(self, name: str) -> set[str]:
        """Return every name with the same skeleton or one letter away from `name`, and some others.

        One edit leaves the first or the second half of a name unchanged, so both halves are searched.
        """
        skeleton, half = compute_skeleton(name), len(name) // 2
        similar = {skeleton} & {*self._slice_range(self._forward, skeleton, skeleton + "\0")}
        similar.update(self._skeletons.get(skeleton, ()))
        begin, end = name[:half], name[half:][::-1]
        similar.update(self._slice_range(self._forward, begin, begin + _LAST))
        similar.update(name[::-1] for name in self._slice_range(self._backward, end, end + _LAST))
        return similar

    @staticmethod
    def _slice_range(names: list[str], begin: str, end: str) -> list[str]:
        return names[bisect_left(names, begin) : bisect_left(names, end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceData:
    """Facts for the checks. If a member is empty, checks that need it report that they could not run.

    `entries` maps names in lower case. If a registry is too large to load, `names` has all of its names, and
    `entries` only those that the document may be about. `rfcs` maps numbers; with `all_rfcs` it is complete.
    `tlds` are top-level domains without the dot, in lower case, `services` the service names of RFC 6335.
    """

    entries: Mapping[str, Entry] = field(default_factory=lambda: EMPTY)
    names: NameIndex | None = None
    rfcs: Mapping[int, RFC] = field(default_factory=lambda: MappingProxyType({}))
    all_rfcs: bool = False
    tlds: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()

    def with_entries(self, entries: Mapping[str, Entry], names: NameIndex | None = None) -> ReferenceData:
        """Return the same facts with these entries, and the names of a large registry."""
        return replace(self, entries=entries, names=names)

    @property
    def has_names(self) -> bool:
        """Whether the registered names are known."""
        return self.names is not None or bool(self.entries)

    def find_similar(self, name: str) -> Collection[str]:
        """Return registered names; they include all that may be confused with `name`."""
        return self.entries.keys() if self.names is None else self.names.find_similar(name)


@cache
def load_builtin(registry: str = "uri-schemes") -> ReferenceData:
    """Return the shipped facts, read once: 400 schemes, known RFCs, top-level domains, service names."""
    # late: only this function needs the data
    from onym.registry.iana import load_builtin_snapshot, load_known_rfcs

    entries = load_builtin_snapshot(registry).entries
    services = _read_data_file("service-names.txt").splitlines()
    return ReferenceData(
        entries=MappingProxyType({entry.name.lower(): entry for entry in entries}),
        rfcs=load_known_rfcs(),
        tlds=_load_tlds(),
        services=frozenset(line for line in services if line and not line.startswith("#")),
    )


@cache
def load_section_titles() -> Mapping[int, Mapping[str, str]]:
    """Return the section titles by number of the RFCs that registrations cite: 3986, 7595, 8126, ..."""
    titles_by_rfc = json.loads(_read_data_file("rfc-sections.json"))
    return MappingProxyType(
        {int(number): MappingProxyType(titles) for number, titles in titles_by_rfc.items()}
    )


@cache
def load_word_list(kind: str) -> frozenset[str]:
    """Return a word list: `general` (RFC 7595 3.8), or names that are registered already.

    These are `link-relations`, `well-known-uris`, `node-names` and `service-names`, which has those that
    `ReferenceData.services` lacks.
    """
    return frozenset(json.loads(_read_data_file("words.json"))[kind].split())


def _read_data_file(name: str) -> str:
    return files("onym.registry.checks").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _load_tlds() -> frozenset[str]:
    """Return the rules with one label of the Public Suffix List's ICANN part."""
    text = files("publicsuffixlist").joinpath("public_suffix_list.dat").read_text(encoding="utf-8")
    part = text.partition("===BEGIN ICANN DOMAINS===")[2].partition("===END ICANN DOMAINS===")[0]
    rules = (line.strip().lstrip("*!.") for line in part.splitlines() if not line.startswith("//"))
    return frozenset(rule.lower() for rule in rules if rule and "." not in rule)
