"""The Jinja environment that every service's pages are drawn with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["templates_of"]


def templates_of(package: str) -> Environment:
    """The templates of a package: everything escaped, nothing undefined."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # late: programs get no pages

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
