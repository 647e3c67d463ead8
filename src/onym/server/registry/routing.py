"""One resource per address: its methods in one table, HEAD and OPTIONS answered, 405 with Allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Handler", "resource"]

Handler = Callable[["Request"], Awaitable[Response]]


def resource(path: str, handlers: Mapping[str, Handler], *, name: str | None = None) -> Route:
    """A route for all methods of one address (RFC 9110 9.3.7, 15.5.6)."""
    allow = ", ".join(sorted({*handlers, "OPTIONS", *({"HEAD"} if "GET" in handlers else ())}))

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        handler = handlers.get(method)
        if handler is not None:
            return await handler(request)
        if method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allow})
        raise HTTPException(405, headers={"allow": allow})

    # every method comes here: Starlette's own 405 knows one route alone
    route = Route(path, serve, name=name or path)
    route.methods = set()
    return route
