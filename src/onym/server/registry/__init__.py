"""The registry's pages for people and its JSON API; `create_app` mounts the routes of `list_routes()`.

A page is one function that passes its values to one template, in the module of its subject (`entry_pages`,
`request_pages`, `account_pages`, `log_pages`, `help_page`); its URL is in `urls.py`. The module's `ROUTES`
name its pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

__all__ = ["list_routes"]


def list_routes() -> list[BaseRoute]:
    """Return every route of the registry: the API first, because most requests are the API's."""
    # late: importing this package must not load the templates and the checker
    from starlette.routing import Mount

    from onym.server.registry import account_pages, entry_pages, help_page, labels, log_pages, request_pages
    from onym.server.registry.api.openapi import list_api_routes
    from onym.server.registry.responses import StaticAssets
    from onym.server.services import STATIC_FOLDER

    return [
        *list_api_routes(),
        *help_page.ROUTES,
        *request_pages.ROUTES,
        *log_pages.ROUTES,
        *account_pages.ROUTES,
        *labels.ROUTES,
        *entry_pages.ROUTES,
        Mount("/static", StaticAssets(directory=STATIC_FOLDER), name="static"),
    ]
