"""The rules of other RFCs that schemes import, shipped as data: one file of ABNF for each RFC."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from onym.registry.abnf._read import read
from onym.registry.abnf.types import Grammar, Rule

__all__ = ["LIBRARY", "find", "library", "number_of", "shipped"]

#: the RFCs of the library, in the order in which a name without one is looked up
LIBRARY: Final = ("5234", "3986", "5322", "3987", "9110", "6838", "4648", "8288")
#: earlier and later RFCs with the same rules
_SAME: Final = {
    **dict.fromkeys(("2234", "4234"), "5234"),
    **dict.fromkeys(("2822", "6854"), "5322"),
    **dict.fromkeys(("2616", "7230", "7231"), "9110"),
    **dict.fromkeys(("4288",), "6838"),
    **dict.fromkeys(("3548",), "4648"),
    **dict.fromkeys(("5988",), "8288"),
}


def number_of(rfc: str) -> str | None:
    """The RFC of the library that has the rules of that RFC ("4234" gives "5234"); None: not shipped."""
    number = _SAME.get(rfc, rfc)
    return number if number in LIBRARY else None


def shipped(name: str) -> str:
    """A data file of this package."""
    return (files("onym.registry.abnf") / "data" / name).read_text(encoding="utf-8")


@cache
def library(rfc: str) -> Grammar:
    """The rules shipped for one RFC of LIBRARY."""
    return read(shipped(f"rfc{rfc}.abnf"), section=f"RFC {rfc}")


def find(name: str, rfc: str | None = None) -> tuple[str, Rule] | None:
    """A rule of the library and the RFC that it is of; `rfc` names the only one to look at."""
    for number in LIBRARY if rfc is None else (rfc,):
        rule = library(number).rules.get(name.lower())
        if rule is not None:
            return number, rule
    return None
