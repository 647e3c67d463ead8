"""Rows that other distributions bring, through the entry-point group `onym.providers`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onym.errors import ConfigError
from onym.llm.providers._row import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "installed", "rows"]

GROUP = "onym.providers"


def installed() -> tuple[EntryPoint, ...]:
    """The entry points of this environment, by name, so that the order is always the same."""
    # 28 ms of imports, for the first unknown name alone
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))


def rows(points: Iterable[EntryPoint]) -> list[tuple[str, Provider]]:
    """(where from, row) of each. An entry point names a Provider, or an iterable of them.

    Raises ConfigError that names the entry point and its distribution.
    """
    return [(_origin(point), row) for point in points for row in _load(point)]


def _origin(point: EntryPoint) -> str:
    owner = "" if point.dist is None else f" of {point.dist.name}"
    return f"entry point {point.name!r}{owner}"


def _load(point: EntryPoint) -> tuple[Provider, ...]:
    try:
        found = point.load()
    except Exception as error:
        raise _bad(point, f"fails to load ({type(error).__name__})") from error
    if isinstance(found, Provider):
        return (found,)
    if isinstance(found, Iterable) and not isinstance(found, str | bytes):
        listed = tuple(found)
        if all(isinstance(row, Provider) for row in listed):
            return listed
    raise _bad(point, "is neither a Provider nor a list of them")


def _bad(point: EntryPoint, why: str) -> ConfigError:
    return ConfigError(
        f"{_origin(point)} in the group {GROUP} {why}",
        code="provider.bad-plugin",
        hint="uninstall or upgrade that distribution",
    )
