"""The routes of the registry: JSON API, pages and static files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from onym.server.registry import entry_pages, request_pages
from onym.server.registry.api.openapi import api_routes, get_openapi_document
from onym.server.registry.responses import STATIC_FOLDER, get_changes_feed
from onym.server.registry.urls import make_route

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import Scope


class _StaticAssets(StaticFiles):
    """Files whose address holds their hash: they may be kept for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code == 200 and scope["query_string"].startswith(b"v="):
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def build_routes() -> list[BaseRoute]:
    """API, pages, files; addresses below a registry before the one that takes any name."""
    return [
        *api_routes(),
        make_route("/openapi.json", {"GET": get_openapi_document}),
        make_route("/", {"GET": entry_pages.home_page}),
        make_route("/search", {"GET": entry_pages.search_page}),
        make_route("/help", {"GET": entry_pages.help_page}),
        make_route("/submit", {"GET": request_pages.submit_page, "POST": request_pages.save_form}),
        make_route("/submit/check", {"POST": request_pages.check_form}),
        make_route("/requests", {"GET": request_pages.requests_page}),
        make_route("/requests/{id}", {"GET": request_pages.request_page}),
        make_route("/requests/{id}/edit", {"GET": request_pages.edit_page}),
        make_route("/requests/{id}/review", {"GET": request_pages.review_page}),
        make_route("/requests/{id}/events", {"POST": request_pages.post_request_event}),
        make_route("/queue/{role}", {"GET": request_pages.queue_page}),
        make_route("/audit", {"GET": entry_pages.audit_page}),
        make_route("/r/{registry}", {"GET": entry_pages.list_page}),
        make_route("/r/{registry}/changes.atom", {"GET": get_changes_feed}),
        make_route("/r/{registry}/-/entry/{name}", {"GET": entry_pages.entry_page}),
        make_route("/r/{registry}/{name}", {"GET": entry_pages.entry_page}),
        make_route("/r/{registry}/{name}/compare", {"GET": entry_pages.compare_page}),
        make_route(
            "/r/{registry}/{name}/change", {"GET": entry_pages.change_page, "POST": entry_pages.open_change}
        ),
        make_route("/r/{registry}/{name}/events", {"POST": entry_pages.post_entry_event}),
        make_route("/r/{registry}/{name}/download/{form}", {"GET": entry_pages.download_entry}),
        Mount("/static", _StaticAssets(directory=STATIC_FOLDER), name="static"),
    ]
