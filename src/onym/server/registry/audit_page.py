"""The page of the audit log."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from onym.errors import AccessError
from onym.registry.records import Role, is_administrator
from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.dependencies import get_store, load_account_names
from onym.server.registry.responses import build_page_frame, make_page_response
from onym.server.registry.urls import make_route
from onym.server.responses import parse_cursor, parse_page_size
from onym.server.sessions import get_visitor, require_access


async def audit_page(request: Request) -> Response:
    """GET: the audit log, for IANA."""
    visitor = get_visitor(request)
    require_access(visitor)
    held = [registry for registry in REGISTRIES if Role.IANA in visitor.list_roles(registry)]
    account = require_access(
        visitor, registry=held[0] if held else next(iter(REGISTRIES)), roles=(Role.IANA,)
    )
    if not is_administrator(account):
        # the log contains events of all registries, and sign-ins with addresses
        raise AccessError(
            "this needs the role iana in every registry", code="registry.wrong-role", field="role"
        )
    page = await get_store(request).audit.page(
        after=parse_cursor(request.query_params.get("after")),
        limit=parse_page_size(request.query_params.get("limit")),
    )
    names = await load_account_names(request, (record.account for record in page.items if record.account))
    return make_page_response(
        request,
        "audit.html",
        build_page_frame(request, "Audit log", (urls.HOME_URL, "Home")),
        records=page.items,
        names=names,
        next="" if page.next is None else urls.build_path("audit", after=page.next),
    )


ROUTES: Final = (make_route(urls.AUDIT_URL, {"GET": audit_page}),)
