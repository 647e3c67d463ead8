"""Drawing: a view becomes a page. The style is the registry's: one sheet for all pages of Onym."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.server._templates import templates_of

if TYPE_CHECKING:
    from jinja2 import Environment

    from onym.server.gateway.views import View

__all__ = ["STATIC", "asset", "draw"]

#: what is served under /static/: name -> (file, media type)
STATIC: Final = {
    "onym.css": (Path(__file__).parent.parent / "static" / "onym.css", "text/css"),
    "icon.svg": (Path(__file__).parent.parent / "static" / "icon.svg", "image/svg+xml"),
}


@cache
def environment() -> Environment:
    """The one Jinja environment of these pages."""
    found = templates_of("onym.server.gateway")
    found.filters["sentence"] = _sentence
    found.globals["asset"] = asset
    return found


@cache
def asset(name: str) -> str:
    """The address of a static file; it changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(STATIC[name][0].read_bytes()).hexdigest()[:12]}"


def _sentence(text: str) -> str:
    """A message, as errors word it, with a capital letter and a full stop."""
    end = "" if text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + end if text else ""


def draw(view: View) -> str:
    """The whole HTML document."""
    members: dict[str, Any] = {each.name: getattr(view, each.name) for each in fields(view)}
    return environment().get_template(view.template).render(members)
