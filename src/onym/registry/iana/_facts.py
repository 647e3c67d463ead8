"""RFCs as far as Onym knows them offline: the numbers that registries cite, some titles, what replaced which.

It is no RFC index. A number that is not here may well exist; one whose `obsoleted_by` is empty may well be
obsolete. What is said, holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from onym.registry.iana._builtin import shipped

__all__ = ["RFC", "known_rfcs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RFC:
    """One RFC. `title` is "" where it is not known.

    `basis` says where it is from: "text" the RFC's own header, or the header of the one that replaced it,
    "cited" a registry's row cites it, "known" the editors' knowledge, which also names successors that no
    header at hand does.
    """

    number: int
    title: str = ""
    obsoleted_by: tuple[int, ...] = ()
    basis: str


@cache
def known_rfcs() -> Mapping[int, RFC]:
    """The shipped facts, by number."""
    return MappingProxyType(
        {
            number: RFC(number=number, title=title, obsoleted_by=tuple(by), basis=basis)
            for number, title, by, basis in shipped("rfcs.json")["rows"]
        }
    )
