"""The whole table of addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from onym.server.registry.api.operations import api_routes
from onym.server.registry.feed import feed
from onym.server.registry.openapi import openapi_document
from onym.server.registry.render import STATIC
from onym.server.registry.routing import resource
from onym.server.registry.views import browse, change, submit, work

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import Scope

__all__ = ["all_routes"]


class _Assets(StaticFiles):
    """Files whose address holds their hash: they may be kept for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code == 200 and scope["query_string"].startswith(b"v="):
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def all_routes() -> list[BaseRoute]:
    """API, pages, files; addresses below a registry before the one that takes any name."""
    return [
        *api_routes(),
        resource("/openapi.json", {"GET": openapi_document}),
        resource("/", {"GET": browse.home_page}),
        resource("/search", {"GET": browse.search_page}),
        resource("/help", {"GET": browse.help_page}),
        resource("/submit", {"GET": submit.submit_page, "POST": submit.save}),
        resource("/submit/check", {"POST": submit.check}),
        resource("/requests", {"GET": work.requests_page}),
        resource("/requests/{id}", {"GET": work.request_page}),
        resource("/requests/{id}/edit", {"GET": submit.edit_page}),
        resource("/requests/{id}/review", {"GET": work.review_page}),
        resource("/requests/{id}/events", {"POST": work.request_event}),
        resource("/queue/{role}", {"GET": work.queue_page}),
        resource("/audit", {"GET": change.audit_page}),
        resource("/r/{registry}", {"GET": browse.list_page}),
        resource("/r/{registry}/changes.atom", {"GET": feed}),
        resource("/r/{registry}/-/entry/{name}", {"GET": browse.entry_page}),
        resource("/r/{registry}/{name}", {"GET": browse.entry_page}),
        resource("/r/{registry}/{name}/compare", {"GET": browse.compare_page}),
        resource("/r/{registry}/{name}/change", {"GET": change.change_page, "POST": change.open_change}),
        resource("/r/{registry}/{name}/events", {"POST": change.entry_event}),
        resource("/r/{registry}/{name}/download/{form}", {"GET": browse.download}),
        Mount("/static", _Assets(directory=STATIC), name="static"),
    ]
