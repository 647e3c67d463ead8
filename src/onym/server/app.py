"""The registry's application: its middlewares and routes, and the function that serves it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from onym.accounts.oidc import OIDCProvider
from onym.accounts.sign_in import Passwords
from onym.errors import OnymError, UnknownEntryError
from onym.registry.registries import use_catalog
from onym.server import http_server, middleware, responses, sign_in
from onym.server.clients import TokenBuckets
from onym.server.http_server import BoundedProtocol
from onym.server.notices import MailSender
from onym.server.registry.urls import make_route
from onym.server.services import Services
from onym.server.sessions import AuthenticationMiddleware

if TYPE_CHECKING:
    import socket

    from starlette.requests import Request

    from onym.registry.store import Store
    from onym.server.notices import WebhookSender
    from onym.server.settings import Settings


def create_app(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], datetime] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    routes: Sequence[BaseRoute] | None = None,
) -> Starlette:
    """Create the registry's application on an open store, which the caller closes.

    `routes` default to the registry's. `clock` returns the time in UTC, `monotonic` seconds.
    """
    from onym.server import registry  # late: the pages need templates and the checker
    from onym.server.registry.api.policies import APIPolicyMiddleware
    from onym.server.registry.dependencies import CatalogMiddleware
    from onym.server.registry.responses import render_service_page

    parts = Services(
        settings=settings,
        store=store,
        clock=clock or _get_utc_now,
        monotonic=monotonic,
        render_page=render_service_page,
        passwords=Passwords(),
        rates=TokenBuckets(settings.rates, monotonic),
        providers={
            issuer.id: OIDCProvider(issuer, f"{settings.base_url}/login/oidc/{issuer.id}/callback", monotonic)
            for issuer in settings.oidc
        },
    )
    store.quota = settings.quotas
    app = Starlette(
        routes=[*list_auth_routes(), *(registry.list_routes() if routes is None else routes)],
        middleware=[
            Middleware(APIPolicyMiddleware, settings),
            Middleware(middleware.HeadersMiddleware, settings),
            Middleware(CatalogMiddleware, parts),
            Middleware(middleware.AuditMiddleware, parts),
            Middleware(responses.ErrorMiddleware),
            Middleware(middleware.RequestLimitsMiddleware, settings),
            Middleware(AuthenticationMiddleware, parts),
            Middleware(middleware.RateLimitMiddleware),
            Middleware(middleware.CSRFMiddleware, settings),
        ],
        exception_handlers={HTTPException: responses.respond_to_error, OnymError: responses.respond_to_error},
        lifespan=_run_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.services = parts
    return app


def list_auth_routes() -> list[BaseRoute]:
    """Return the routes of sign-in, sign-out, accounts and API tokens, and the pages of problem types."""
    return [
        Route("/login", sign_in.sign_in_page, methods=["GET"]),
        Route("/login", sign_in.sign_in, methods=["POST"]),
        Route("/logout", sign_in.sign_out, methods=["POST"]),
        Route("/login/oidc/{provider}", sign_in.begin_oidc_sign_in, methods=["GET"]),
        Route("/login/oidc/{provider}/callback", sign_in.finish_oidc_sign_in, methods=["GET"]),
        Route("/account", sign_in.account_page, methods=["GET"]),
        Route("/account/password", sign_in.change_password, methods=["POST"]),
        Route("/account/sign-out-everywhere", sign_in.sign_out_everywhere, methods=["POST"]),
        Route("/account/tokens", sign_in.create_token, methods=["POST"]),
        Route("/account/tokens/{id}/revoke", sign_in.revoke_token, methods=["POST"]),
        make_route("/api/v1/account", {"GET": sign_in.get_api_account}),
        make_route(
            "/api/v1/account/tokens", {"GET": sign_in.list_api_tokens, "POST": sign_in.create_api_token}
        ),
        make_route("/api/v1/account/tokens/{id}", {"DELETE": sign_in.revoke_api_token}),
        Route("/problems/{slug}", _show_problem_type, methods=["GET"]),
    ]


async def _show_problem_type(request: Request) -> Response:
    kinds = {
        kind.slug: kind
        for kind in (*responses.PROBLEM_TYPES_BY_CLASS.values(), *responses.PROBLEM_TYPES_BY_CODE.values())
    }
    kind = kinds.get(request.path_params["slug"])
    if kind is None:
        raise UnknownEntryError(
            f"no problem type is called {request.path_params['slug']!r}",
            code="registry.unknown-problem",
            field="type",
        )
    return PlainTextResponse(f"{kind.title} (status {kind.status})\n")


@asynccontextmanager
async def _run_lifespan(app: Starlette) -> AsyncIterator[None]:
    parts: Services = app.state.services
    # a provider or a mapping that the settings do not have any more gives no role
    granted = {
        (f"{row.realm}@{issuer.id}", role)
        for issuer in parts.settings.oidc
        for row in issuer.groups
        for role in row.roles
    }
    await parts.store.accounts.drop_group_roles(granted)
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(sender.run(stop))
        for sender in list_senders(parts.settings, parts.store, parts.clock)
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        for provider in parts.providers.values():
            await provider.close()
        for part in getattr(app.state, "closing", ()):
            await part.close()


def list_senders(
    settings: Settings, store: Store, clock: Callable[[], datetime]
) -> list[MailSender | WebhookSender]:
    """Return what sends the notices of the outbox: mail and webhooks, as far as the settings have them."""
    found: list[MailSender | WebhookSender] = []
    if settings.smtp is not None:
        found.append(MailSender(settings, store, clock))
    if settings.webhooks:
        from onym.server.notices import WebhookSender  # late: few services have webhooks
        from onym.server.settings import require_registries_of_webhooks

        with use_catalog(store.catalog):
            require_registries_of_webhooks(settings.webhooks)
        found.append(WebhookSender(settings, store, clock))
    return found


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


def run_registry(settings: Settings, *, ready: Callable[[int], object] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, StoreError.

    `ready` is called with the port once the service listens; port 0 of the settings takes a free one.
    """
    with asyncio.Runner(loop_factory=http_server.get_loop_factory()) as runner:
        runner.run(serve(settings, ready=ready))


async def serve(
    settings: Settings,
    *,
    app: Any = None,
    sockets: Sequence[socket.socket] | None = None,
    ready: Callable[[int], object] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve in this loop until a signal comes or `stop` is set.

    `app` is created on the settings' store by default; `sockets` replace the settings' address.
    Raises ConfigError if the service cannot listen, StoreError.
    """
    async with AsyncExitStack() as stack:
        if app is None:
            from onym.registry.store import Store  # late: the database library is heavy

            store = await Store.open(settings.database)
            stack.push_async_callback(_close_store, store)
            app = create_app(settings, store)
        await http_server.serve_app(
            app,
            host=settings.host,
            port=settings.port,
            # a proxy in front terminates TLS; the middlewares read the fields that it forwards
            plain=True,
            sockets=sockets,
            ready=ready,
            stop=stop,
            protocol=BoundedProtocol,
            connections_per_address=settings.connections_per_address,
            # a proxy brings the connections of many clients
            unlimited=settings.trusted_proxies,
        )


async def _close_store(store: Store) -> None:
    """Close the store completely, although Ctrl-C cancels this task."""
    closing = asyncio.ensure_future(store.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
