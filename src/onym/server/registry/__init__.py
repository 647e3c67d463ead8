"""The registry's pages for people and its JSON API; `create_app` mounts what `routes()` gives.

Each page has a frozen context (`contexts/`), from which its HTML is drawn and its JSON twin is made; every
link comes from `urls.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from onym.server.pages import Pages

__all__ = ["pages", "routes"]


def routes() -> list[BaseRoute]:
    """Every route of the registry: the API first, since programs ask most often."""
    from onym.server.registry._routes import all_routes  # late: the pages need templates and the checker

    return all_routes()


def pages() -> Pages:
    """Whoever draws errors, sign-in and account in the registry's own style."""
    from onym.server.registry.drawn import RegistryPages  # late, as above

    return RegistryPages()
