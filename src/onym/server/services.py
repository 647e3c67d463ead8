"""What handlers and middlewares share: settings, store, clock, sign-in, page templates and request state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from onym.accounts.oidc import OIDCProvider
    from onym.accounts.passwords import Passwords
    from onym.accounts.records import Account, ApiToken
    from onym.errors import OnymError
    from onym.registry.store import Store
    from onym.server.security.clients import TokenBuckets
    from onym.server.settings import Settings
    from onym.uri.secret import Secret


def make_template_environment(package: str) -> Environment:
    """Return the templates of a package. They escape all values and reject undefined names."""
    from jinja2 import (
        Environment,
        PackageLoader,
        StrictUndefined,
    )  # late: an application that serves only the API needs no Jinja

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """The content of an error page. `sign_in` is the sign-in URL, or "" if signing in does not help."""

    status: int
    title: str
    detail: str
    code: str
    request_id: str
    hint: str = ""
    clause: str = ""
    field: str = ""
    sign_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInView:
    """The sign-in form: POST `login`, `password`, `next` and `csrf_token` to `/login`.

    `providers` are (title, URL) pairs of OpenID providers, `error` is the reason of the last failure.
    """

    csrf_token: str
    next: str
    providers: tuple[tuple[str, str], ...] = ()
    login: str = ""
    error: OnymError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """The visitor's account.

    Its forms have a `csrf_token`: `/account/tokens` (label, scopes several times, days),
    `/account/tokens/{id}/revoke`, `/account/password` (password, new_password),
    `/account/sign-out-everywhere`. `new_token` is shown once, `error` is the error of the last form.
    """

    csrf_token: str
    account: Account
    tokens: tuple[ApiToken, ...]
    new_token: Secret | None = None
    error: OnymError | None = None


class Pages(Protocol):
    """A renderer of pages; its methods return whole HTML documents."""

    def render_problem(self, request: Request, view: ProblemView) -> str:
        """Return the error page."""

    def render_sign_in(self, request: Request, view: SignInView) -> str:
        """Return the sign-in page."""

    def render_account(self, request: Request, view: AccountView) -> str:
        """Return the account page."""


_STATE_KEY: Final = "onym"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one application. `clock` returns the time in UTC, `monotonic` seconds."""

    settings: Settings
    store: Store
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    pages: Pages
    passwords: Passwords
    rates: TokenBuckets
    providers: Mapping[str, OIDCProvider]


def get_services(request: HTTPConnection) -> Services:
    """Return the services of the application that serves this request."""
    return cast("Services", request.app.state.services)


def get_request_state(scope: Any) -> dict[str, Any]:
    """Return the middlewares' data about this request: request_id, address, visitor, audit and code."""
    return cast("dict[str, Any]", scope.setdefault(_STATE_KEY, {}))


class HTTPMiddleware:
    """An ASGI middleware that sees HTTP requests only. WebSockets are rejected."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or the lifespan."""
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        raise NotImplementedError
