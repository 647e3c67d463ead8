"""The application: middlewares in their order, the sign-in routes, and the registry's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from onym.errors import OnymError, UnknownEntryError
from onym.server import problems
from onym.server.auth import flow, local, tokens
from onym.server.auth.oidc import Provider
from onym.server.auth.passwords import Passwords
from onym.server.mail import Sender
from onym.server.pages import Pages, PlainPages
from onym.server.registry.routing import resource
from onym.server.security.audit import Audit
from onym.server.security.csrf import Guard
from onym.server.security.envelope import Envelope
from onym.server.security.intake import Intake
from onym.server.security.rates import Limiter, Rates
from onym.server.security.sessions import Authenticate
from onym.server.services import Services

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.registry.store import Store
    from onym.server.settings import Settings

__all__ = ["auth_routes", "create_app"]


def create_app(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], datetime] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    routes: Sequence[BaseRoute] | None = None,
    pages: Pages | None = None,
) -> Starlette:
    """The registry's application on an open store.

    `routes` and `pages` are the registry's own where left out. `clock` gives the time in UTC, `monotonic`
    seconds that only grow. The caller closes the store.
    """
    if routes is None:
        from onym.server import registry  # late: the pages need templates and the checker

        routes = registry.routes()
        pages = pages or registry.pages()
    parts = Services(
        settings=settings,
        store=store,
        clock=clock or _now,
        monotonic=monotonic,
        pages=pages or PlainPages(),
        passwords=Passwords(),
        rates=Rates(settings.rates, monotonic),
        providers={
            each.id: Provider(each, f"{settings.base_url}/login/oidc/{each.id}/callback", monotonic)
            for each in settings.issuers
        },
    )
    app = Starlette(
        routes=[*auth_routes(), *routes],
        middleware=[
            Middleware(Envelope, settings),
            Middleware(Audit, parts),
            Middleware(problems.Failures),
            Middleware(Intake, settings),
            Middleware(Authenticate, parts),
            Middleware(Limiter),
            Middleware(Guard, settings),
        ],
        exception_handlers={HTTPException: problems.answer, OnymError: problems.answer},
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.services = parts
    return app


def auth_routes() -> list[BaseRoute]:
    """Signing in and out, the account, its tokens, and what a problem's type means."""
    return [
        Route("/login", local.sign_in_page, methods=["GET"]),
        Route("/login", local.sign_in, methods=["POST"]),
        Route("/logout", local.sign_out, methods=["POST"]),
        Route("/login/oidc/{provider}", flow.begin, methods=["GET"]),
        Route("/login/oidc/{provider}/callback", flow.finish, methods=["GET"]),
        Route("/account", tokens.account_page, methods=["GET"]),
        Route("/account/password", local.change_password, methods=["POST"]),
        Route("/account/sign-out-everywhere", local.sign_out_everywhere, methods=["POST"]),
        Route("/account/tokens", tokens.add, methods=["POST"]),
        Route("/account/tokens/{id}/revoke", tokens.revoke, methods=["POST"]),
        resource("/api/v1/account", {"GET": tokens.api_account}),
        resource("/api/v1/account/tokens", {"GET": tokens.api_list, "POST": tokens.api_add}),
        resource("/api/v1/account/tokens/{id}", {"DELETE": tokens.api_revoke}),
        Route("/problems/{slug}", _problem_type, methods=["GET"]),
    ]


async def _problem_type(request: Request) -> Response:
    kinds = {kind.slug: kind for kind in (*problems.CLASSES.values(), *problems.CODES.values())}
    kind = kinds.get(request.path_params["slug"])
    if kind is None:
        raise UnknownEntryError("no such type of problem", code="registry.unknown-problem", field="type")
    return PlainTextResponse(f"{kind.title} (status {kind.status})\n")


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    parts: Services = app.state.services
    stop = asyncio.Event()
    sender = None if parts.settings.smtp is None else Sender(parts.settings, parts.store, parts.clock)
    task = None if sender is None else asyncio.create_task(sender.run(stop), name="onym mail")
    try:
        yield
    finally:
        stop.set()
        if task is not None:
            await task
        for provider in parts.providers.values():
            await provider.close()
        for part in getattr(app.state, "closing", ()):
            await part.close()


def _now() -> datetime:
    return datetime.now(UTC)
