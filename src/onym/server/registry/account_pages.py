"""Pages of accounts and of the service itself: sign-in, account, audit log and errors."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from onym.accounts.records import ApiToken
from onym.errors import AccessError
from onym.registry.records import Role, Scope, get_registry_roles, is_administrator
from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.dependencies import get_store, load_account_names
from onym.server.registry.responses import build_page_frame, make_page_response, render_page
from onym.server.registry.urls import make_route
from onym.server.security.conditional_requests import parse_cursor, parse_page_size
from onym.server.security.sessions import get_visitor, require_access
from onym.server.services import AccountView, ProblemView, SignInView, get_services

_SCOPES: Final = {
    Scope.READ: "read",
    Scope.SUBMIT: "submit and revise requests",
    Scope.REVIEW: "review as an expert",
    Scope.IANA: "act for IANA",
    Scope.IESG: "act for the IESG",
    Scope.ADMIN: "manage accounts",
}


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


class RegistryPages:
    """Renders `onym.server.services.Pages` with the registry's templates."""

    def render_problem(self, request: Request, view: ProblemView) -> str:
        """The page of an error."""
        return render_page(
            "error.html",
            build_page_frame(request, view.title, (urls.HOME_URL, "Home")),
            problem=view,
        )

    def render_sign_in(self, request: Request, view: SignInView) -> str:
        """The sign-in page."""
        return render_page(
            "login.html",
            build_page_frame(request, "Sign in", (urls.HOME_URL, "Home")),
            local=get_services(request).settings.local_accounts,
            view=view,
        )

    def render_account(self, request: Request, view: AccountView) -> str:
        """The account page."""
        account = view.account
        return render_page(
            "account.html",
            build_page_frame(request, "Your account", (urls.HOME_URL, "Home")),
            account=account,
            roles=[
                (row.title, get_registry_roles(account, row.id) | {Role.REGISTRANT})
                for row in REGISTRIES.values()
            ],
            tokens=[(token, _get_token_state(token, request)) for token in view.tokens],
            scopes=_SCOPES,
            new_token="" if view.new_token is None else view.new_token.reveal(),
            error=view.error,
        )


def _get_token_state(token: ApiToken, request: Request) -> str:
    if token.revoked is not None:
        return "revoked"
    is_over = token.expires is not None and token.expires <= get_services(request).clock()
    return "expired" if is_over else "in use"


ROUTES: Final = (make_route(urls.AUDIT_URL, {"GET": audit_page}),)
