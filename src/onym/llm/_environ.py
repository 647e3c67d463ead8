"""The variables of the environment, as they go through functions whose frames a traceback may print."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import cast

__all__ = ["variables"]


class _Variables:
    """Values by name; printed, it shows none.

    It is no `Mapping` by class: tools that print the locals of a frame print such member by member.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[str, str]) -> None:
        self._of = of

    def __getitem__(self, name: str) -> str:
        return self._of[name]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of this name, or `default`."""
        return self._of.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def keys(self) -> Iterator[str]:
        """The names, so that a `dict` can be made of it."""
        return iter(self._of)

    def __repr__(self) -> str:
        return "the environment"


def variables(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """The variables to read, `os.environ` by default, as a value that shows none of them."""
    given: object = os.environ if environ is None else environ
    # it does what this project asks of a mapping: to be read by name
    shown_nowhere = given if isinstance(given, _Variables) else _Variables(cast("Mapping[str, str]", given))
    return cast("Mapping[str, str]", shown_nowhere)
