"""What a conversion gives: URIs or plain data, and notes on what had no place in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from onym.errors import UsageError
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

__all__ = ["Conversion", "Named", "Note", "Notes", "Written"]


class Note(NamedTuple):
    """What was not carried, or means something else now. `where` is its name in the source, or ""."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


class Named(NamedTuple):
    """One URI, and the name that the source has for it, None where it has none."""

    name: str | None
    uri: LLMURI


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """URIs out of another form, in the order of the source. Printed, it shows no key."""

    found: tuple[Named, ...]
    notes: tuple[Note, ...] = ()

    @property
    def uris(self) -> tuple[LLMURI, ...]:
        """The URIs alone."""
        return tuple(each.uri for each in self.found)

    @property
    def uri(self) -> LLMURI:
        """The one URI that there is. Raises UsageError where there is none, or more than one."""
        if len(self.found) != 1:
            raise UsageError(f"the source gives {len(self.found) or 'no'} URIs, not one")
        return self.found[0].uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A URI in another form: plain data, ready for JSON. `repr` leaves `value` out: it may hold a key."""

    value: Mapping[str, Any] = field(repr=False)
    notes: tuple[Note, ...] = ()


class Notes:
    """Notes while they are collected; `below` writes under a longer name into the same list."""

    __slots__ = ("_list", "_prefix")

    def __init__(self, prefix: str = "", listed: list[Note] | None = None) -> None:
        self._prefix = prefix
        self._list: list[Note] = [] if listed is None else listed

    def below(self, name: str) -> Notes:
        """The same collection, for what stands below `name`."""
        return Notes(self._path(name), self._list)

    def add(self, name: str, text: str) -> None:
        """Remember one, without any credential; the same is not said twice."""
        note = Note(redact(self._path(name)), redact(text))
        if note not in self._list:
            self._list.append(note)

    def all(self) -> tuple[Note, ...]:
        """What was collected."""
        return tuple(self._list)

    def _path(self, name: str) -> str:
        return ".".join(part for part in (self._prefix, name) if part)
