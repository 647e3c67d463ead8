"""The pages that the plumbing asks for: errors, signing in, the account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onym.registry.accounts import Scope
from onym.registry.records import Role
from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.contexts import AccountPage, ErrorPage, LoginPage
from onym.server.registry.contexts.parts import Cell, Choice, Link
from onym.server.registry.contexts.work import TokenRow
from onym.server.registry.render import chrome, draw
from onym.server.registry.words import moment, titles
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.accounts import ApiToken
    from onym.server.pages import AccountView, ProblemView, SignInView

__all__ = ["RegistryPages"]

_SCOPES: Final = {
    Scope.READ: "read",
    Scope.SUBMIT: "submit and revise requests",
    Scope.REVIEW: "review as an expert",
    Scope.IANA: "act for IANA",
    Scope.IESG: "act for the IESG",
    Scope.ADMIN: "manage accounts",
}


class RegistryPages:
    """Draws them with the registry's templates; `onym.server.pages.Pages` says what each is given."""

    def problem(self, request: Request, view: ProblemView) -> str:
        """The page of an error."""
        context = ErrorPage(
            page=chrome(request, view.title, (urls.home, "Home")),
            status=view.status,
            title=view.title,
            code=view.code,
            detail=view.detail,
            clause=view.clause,
            field=view.field,
            hint=view.hint,
            back=view.sign_in or urls.home,
            request_id=view.request_id,
        )
        return draw(context)

    def sign_in(self, request: Request, view: SignInView) -> str:
        """The sign-in page."""
        context = LoginPage(
            page=chrome(request, "Sign in", (urls.home, "Home")),
            action=urls.login,
            local=services(request).settings.local_accounts,
            providers=tuple(Link(href=href, text=title) for title, href in view.providers),
            login_name=view.login,
            fault="" if view.error is None else str(view.error),
            target=view.next,
        )
        return draw(context)

    def account(self, request: Request, view: AccountView) -> str:
        """The account page."""
        account = view.account
        context = AccountPage(
            page=chrome(request, "Your account", (urls.home, "Home")),
            login_name=account.login,
            name=account.name,
            email=account.email or "",
            roles=tuple(
                Cell(
                    id=row.id,
                    heading=row.title,
                    value=titles(account.roles_in(row.id) | {Role.REGISTRANT}),
                )
                for row in REGISTRIES.values()
            ),
            tokens=tuple(_token(each, request) for each in view.tokens),
            scopes=tuple(
                Choice(value=str(each), label=label, chosen=each is Scope.READ)
                for each, label in _SCOPES.items()
            ),
            create=urls.tokens,
            new_token="" if view.new_token is None else view.new_token.reveal(),
            sign_out=urls.sign_out_everywhere,
            password="" if account.password_hash is None else urls.password,
            fault="" if view.error is None else str(view.error),
            requests=urls.requests(mine=1),
        )
        return draw(context)


def _token(token: ApiToken, request: Request) -> TokenRow:
    over = token.expires is not None and token.expires <= services(request).clock()
    state = "revoked" if token.revoked is not None else "expired" if over else "in use"
    return TokenRow(
        id=token.id,
        label=token.label,
        scopes=", ".join(sorted(token.scopes)),
        created=moment(token.created),
        expires=moment(token.expires),
        last_used=moment(token.last_used),
        state=state,
        revoke=urls.token_revoke(token.id) if state == "in use" else "",
    )
