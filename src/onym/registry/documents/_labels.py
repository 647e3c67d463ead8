"""Which spellings name which field: the labels of a registry's profiles, whatever their case and marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from onym.registry.profiles import PROFILES, TemplateField
from onym.registry.registries import registry as registry_row

__all__ = ["NAME", "Label", "Labels", "labels_of"]

#: the field id of a name
NAME: Final = "name"

_SPACE: Final = re.compile(r"\s+")
_AROUND_SLASH: Final = re.compile(r" ?/ ?")
_USES: Final = re.compile(
    r"applications?(?: ?(?:/|and/or|and|or) ?protocols?)? (?:that|which) uses? (?:[a-z0-9+.'\"-]+ ){0,3}"
    r"(?:uri|scheme)(?: scheme)?(?: name)?\Z"
)
_MARKS: Final = " \t*_`'\"\u201c\u201d:.\uff1a#"
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A spelling, known: the field it names; `weak` and `stand_in` say how much it proves."""

    id: str
    weak: bool = False
    stand_in: bool = False


def _key(text: str) -> str:
    key = _AROUND_SLASH.sub("/", _SPACE.sub(" ", text.strip(_MARKS)).casefold())
    key = key.replace("url", "uri").replace("schema", "scheme").replace("protocols which", "protocols that")
    return key.removesuffix("(s)")


class Labels:
    """Every spelling of the fields of some profiles."""

    def __init__(self, fields: Iterable[TemplateField], needed: Iterable[TemplateField]) -> None:
        found: dict[str, Label] = {}
        for each in fields:
            for spelling in each.labels:
                label = Label(id=each.id, weak=spelling in each.weak, stand_in=spelling in each.stand_ins)
                found.setdefault(_key(spelling), label)
        self._known = found
        self._needed = tuple(needed)
        #: are there the long labels of schemes, which name the scheme in their midst?
        self._of_schemes = any(label.id == "applications" for label in found.values())
        self._prefixes = _prefixes(found)
        #: labels in running text: with a capital and a colon, each space of them any space
        self.inner = _inner(key for key, label in found.items() if not label.weak and not label.stand_in)

    def find(self, text: str) -> Label | None:
        """The label that a text is, marks and case aside; None where it is none."""
        if len(text) > _LONGEST:
            return None
        key = _key(text)
        found = self._known.get(key)
        return self._about_scheme(key) if found is None and self._of_schemes else found

    def _about_scheme(self, key: str) -> Label | None:
        if key.startswith(("uri scheme ", "scheme ")):
            # "URI scheme status": the scheme is named where the standard leaves it out
            found = self._known.get(key.removeprefix("uri ").removeprefix("scheme "))
            if found is not None and not found.weak:
                return found
        return Label(id="applications") if _USES.match(key) else None

    def cut(self, text: str) -> bool:
        """Is this the beginning of a label too long for its line?"""
        return len(text) <= _LONGEST and _key(text) in self._prefixes

    def looked_for(self) -> str:
        """The labels that a template needs, as a person would write them."""
        return ", ".join(f'"{each.label[:1].upper()}{each.label[1:]}:"' for each in self._needed)


def _prefixes(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(
        " ".join(words[:count])
        for key in keys
        for words in [key.split(" ")]
        for count in range(2, len(words))
        if len(words) > 3
    )


def _inner(keys: Iterable[str]) -> re.Pattern[str]:
    spellings = sorted(keys, key=lambda key: (-len(key), key))
    return re.compile(
        "(?<![^ \n])(?=[A-Z])(?i:"
        + "|".join(re.escape(key).replace(r"\ ", r"[ \n]{1,20}") for key in spellings)
        + ") {0,3}:"
    )


@cache
def labels_of(registry: str) -> Labels:
    """The labels of all profiles of a registry. Raises UnknownEntryError where there is no such registry."""
    row = registry_row(registry)
    profiles = [PROFILES[each] for each in row.profiles]
    needed = (each for each in PROFILES[row.default_profile].fields if each.required)
    return Labels((each for form in profiles for each in (*form.fields, *form.elsewhere)), needed)
