"""The registry's pages for people and its JSON API; `create_app` mounts what `routes()` gives.

Each page has a frozen context (`contexts/`), from which its HTML is drawn and its JSON twin is made; every
link comes from `urls.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from onym.server.services import Pages

__all__ = ["list_routes", "make_pages"]


def list_routes() -> list[BaseRoute]:
    """Every route of the registry: the API first, since programs ask most often."""
    from onym.server.registry.routes import build_routes  # late: the pages need templates and the checker

    return build_routes()


def make_pages() -> Pages:
    """Whoever draws errors, sign-in and account in the registry's own style."""
    from onym.server.registry.responses import RegistryPages  # late, as above

    return RegistryPages()
