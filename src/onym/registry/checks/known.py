"""What the checks know of the world: registered names, RFCs, top-level domains, service names.

All of it is shipped; nothing is fetched. A caller that holds a live registry passes its own entries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.registry.records import EMPTY, Entry

if TYPE_CHECKING:
    from onym.registry.checks.near import Names
    from onym.registry.iana import RFC

__all__ = ["Known", "builtin", "section_titles", "words"]

_HERE: Final = "onym.registry.checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts for the checks. An empty member is not known: checks that need it say that they could not run.

    `entries` is by lower-cased name. `names`, where given, are all names of a registry that is too large to
    be held whole: `entries` then has those alone that the document may be about. `rfcs` is by number; with
    `all_rfcs` there are no others. `tlds` are top-level domains without the dot, in lower case, `services`
    the service names of RFC 6335.
    """

    entries: Mapping[str, Entry] = field(default_factory=lambda: EMPTY)
    names: Names | None = None
    rfcs: Mapping[int, RFC] = field(default_factory=lambda: MappingProxyType({}))
    all_rfcs: bool = False
    tlds: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()

    def with_entries(self, entries: Mapping[str, Entry], names: Names | None = None) -> Known:
        """The same facts, with these entries of a registry with these names in place of the shipped."""
        return replace(self, entries=entries, names=names)

    @property
    def has_names(self) -> bool:
        """Is it known which names are registered?"""
        return self.names is not None or bool(self.entries)

    def near(self, name: str) -> Collection[str]:
        """Registered names among which are all that may be taken for `name`."""
        return self.entries.keys() if self.names is None else self.names.near(name)


@cache
def builtin(registry: str = "uri-schemes") -> Known:
    """The shipped facts, read once: about 400 schemes, the RFC index, top-level domains, service names."""
    from onym.registry.iana import builtin as snapshot  # late: its data is only needed here
    from onym.registry.iana import known_rfcs

    return Known(
        entries=MappingProxyType({each.name.lower(): each for each in snapshot(registry).entries}),
        rfcs=known_rfcs(),
        tlds=_tlds(),
        services=_services(),
    )


@cache
def section_titles() -> Mapping[int, Mapping[str, str]]:
    """Section titles by number, of the RFCs that registrations cite sections of: 3986, 7595, 8126, ..."""
    found = json.loads(files(_HERE).joinpath("data/rfc-sections.json").read_text(encoding="utf-8"))
    return MappingProxyType({int(number): MappingProxyType(titles) for number, titles in found.items()})


@cache
def words(kind: str) -> frozenset[str]:
    """A word list: `general` (RFC 7595 3.8), or what was registered long ago and need not be asked for:
    `link-relations`, `well-known-uris`, `node-names`, `service-names` (those that `Known.services` lacks)."""
    found = json.loads(files(_HERE).joinpath("data/words.json").read_text(encoding="utf-8"))
    return frozenset(found[kind].split())


def _services() -> frozenset[str]:
    text = files(_HERE).joinpath("data/service-names.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _tlds() -> frozenset[str]:
    """The one-label rules of the Public Suffix List's ICANN part."""
    text = files("publicsuffixlist").joinpath("public_suffix_list.dat").read_text(encoding="utf-8")
    part = text.partition("===BEGIN ICANN DOMAINS===")[2].partition("===END ICANN DOMAINS===")[0]
    rules = (line.strip().lstrip("*!.") for line in part.splitlines() if not line.startswith("//"))
    return frozenset(rule.lower() for rule in rules if rule and "." not in rule)
