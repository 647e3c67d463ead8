"""The application on a real store in a temporary folder, and a client that speaks to it in process."""

from __future__ import annotations

import asyncio
import html
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.testclient import TestClient

from onym.accounts.records import ALL_REALMS, Account, ApiToken, hash_secret, make_token
from onym.accounts.sign_in import hash_password
from onym.errors import OnymError, RefusalError, StoreError
from onym.registry.records import TOKEN_PREFIX, Role, parse_scopes
from onym.registry.store import Store
from onym.server.app import create_app
from onym.server.middleware import set_audit_action
from onym.server.responses import is_fresh, make_version_tag, parse_cursor, parse_page_size, require_match
from onym.server.sessions import get_visitor, make_actor, require_access
from onym.server.settings import RateLimit, RateLimits, Settings
from onym.uri.secret import Secret

BASE = "https://registry.example.org"
PASSWORD = "four unrelated words here"
START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
#: hashed once for all tests: it takes 64 MiB and a while
PASSWORD_HASH = hash_password(Secret(PASSWORD))

ALICE = Account(
    id="user-alice",
    login="alice",
    name="Alice Example",
    email="alice@example.org",
    password_hash=PASSWORD_HASH,
    roles={"uri-schemes": frozenset({Role.EXPERT})},
    created=START,
)
ROOT = Account(
    id="user-root",
    login="root",
    name="Root Example",
    email=None,
    password_hash=PASSWORD_HASH,
    roles={ALL_REALMS: frozenset({Role.IANA})},
    created=START,
)


class Clock:
    """Two clocks that move together, when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds

    def advance(self, **time: float) -> None:
        self.seconds += timedelta(**time).total_seconds()


@dataclass
class World:
    """One application under test."""

    client: TestClient
    store: Store
    clock: Clock
    settings: Settings
    app: Any
    tokens: list[Secret] = field(default_factory=list)

    def do(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Await a call of the store, in the application's loop."""
        assert self.client.portal is not None

        async def work() -> Any:
            return await call(*args, **kwargs)

        return self.client.portal.call(work)

    def csrf(self, path: str = "/login") -> str:
        """The token of the form at this address."""
        page = self.client.get(path, headers={"accept": "text/html"})
        found = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
        assert found is not None, page.text
        return html.unescape(found[1])

    def sign_in(self, login: str = "alice", password: str = PASSWORD, **more: str) -> Any:
        data = {"csrf_token": self.csrf(), "login": login, "password": password, **more}
        return self.client.post("/login", data=data, headers={"accept": "text/html"}, follow_redirects=False)

    def token(self, *scopes: str, account: str = "user-alice", **changes: Any) -> dict[str, str]:
        """The header with a new API token."""
        secret = make_token(TOKEN_PREFIX)
        token = ApiToken(
            id=f"token-{len(self.tokens)}",
            digest=hash_secret(secret),
            account=account,
            label="test",
            scopes=parse_scopes(scopes),
            created=self.clock.now(),
            **{"expires": None, **changes},
        )
        self.do(self.store.tokens.create, token)
        self.tokens.append(secret)
        return {"authorization": f"Bearer {secret.reveal()}"}

    def audit(self) -> list[Any]:
        """The audit log, oldest first."""
        page = self.do(self.store.audit.page, limit=500)
        return list(reversed(page.items))


def settings(**changes: Any) -> Settings:
    generous = RateLimit(burst=10_000, per_minute=10_000)
    rates = RateLimits(reads=generous, writes=generous, logins=generous)
    return Settings(**{"base_url": BASE, "rates": rates, "profile": "any", **changes})


@contextmanager
def world(
    folder: Path, given: Settings | None = None, *, database: bytes | None = None, **options: Any
) -> Iterator[World]:
    """The application on a database: a copy of `database`, or a new one."""
    clock = Clock()
    chosen = given or settings()
    path = folder / "registry.db"
    path.touch(mode=0o600)
    path.write_bytes(database or _make_database())
    store = asyncio.run(_open(path))
    parts = {"clock": clock.now, "monotonic": clock.monotonic, "routes": routes(), **options}
    try:
        app = create_app(chosen, store, **parts)
    except BaseException:
        asyncio.run(store.close())
        raise
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        # as `serve` does: the store closes when the application has ended, in the same loop
        try:
            async with inner(app) as given:
                yield given
        finally:
            await store.close()

    app.router.lifespan_context = lifespan
    with TestClient(app, base_url=chosen.base_url, raise_server_exceptions=True) as client:
        yield World(client, store, clock, chosen, app)


@cache
def _make_database() -> bytes:
    """A database with two accounts: made once, and copied."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "registry.db"
        asyncio.run(_fill(path))
        return path.read_bytes()


async def _fill(path: Path) -> None:
    async with await Store.open(str(path), create=True) as store:
        for account in (ALICE, ROOT):
            await store.accounts.add(account)


async def _open(path: Path) -> Store:
    store = await Store.open(str(path))
    # connections belong to this loop, which ends; the application's loop makes its own
    await store.close()
    return store


def routes() -> list[BaseRoute]:
    """Handlers that show what the plumbing tells them."""
    return [
        Route("/", _who),
        Route("/who", _who),
        Route("/api/v1/who", _who),
        Route("/echo", _echo, methods=["POST"]),
        Route("/api/v1/echo", _echo, methods=["POST", "PUT"]),
        Route("/actor", _actor),
        Route("/experts", _experts),
        Route("/administrators", _administrators),
        Route("/fail/{what}", _fail, methods=["GET", "POST"]),
        Route("/thing", _thing, methods=["GET", "PUT"]),
        Route("/list", _list),
        Route("/named", _named, methods=["POST"]),
    ]


async def _who(request: Request) -> Response:
    visitor = get_visitor(request)
    return JSONResponse(
        {
            "account": visitor.account.id if visitor.account else None,
            "via": visitor.via,
            "scopes": sorted(visitor.scopes),
            "address": visitor.address,
            "administrator": visitor.is_administrator,
            "csrf": visitor.csrf_token,
        }
    )


async def _echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse({"body": body.decode("utf-8", "replace"), "form": await _form(request)})


async def _form(request: Request) -> Mapping[str, str]:
    async with request.form() as form:
        return {name: str(value) for name, value in form.multi_items()}


async def _actor(request: Request) -> Response:
    found = make_actor(get_visitor(request), "uri-schemes")
    return JSONResponse({"id": found.id, "roles": sorted(found.roles)})


async def _experts(request: Request) -> Response:
    require_access(get_visitor(request), registry="uri-schemes", roles=(Role.EXPERT,), scope="review")
    return JSONResponse({})


async def _administrators(request: Request) -> Response:
    require_access(get_visitor(request), administrator=True)
    return JSONResponse({})


async def _fail(request: Request) -> Response:
    failures: dict[str, Exception] = {
        "refusal": RefusalError(
            "not in this state", rule="R4", clause="RFC 7595 7.2", hint="announce it first"
        ),
        "store": StoreError("/var/lib/secret.db is locked", hint="ask sekret"),
        "onym": OnymError("boom sekret"),
        "bug": RuntimeError("sekret stack"),
    }
    raise failures[request.path_params["what"]]


async def _thing(request: Request) -> Response:
    tag = make_version_tag(7, "json")
    if request.method == "PUT":
        return JSONResponse({"expected": require_match(request, 7)})
    if is_fresh(request, tag):
        return Response(status_code=304, headers={"etag": tag})
    return JSONResponse({}, headers={"etag": tag})


async def _list(request: Request) -> Response:
    query = request.query_params
    return JSONResponse(
        {"after": parse_cursor(query.get("after")), "limit": parse_page_size(query.get("limit"))}
    )


async def _named(request: Request) -> Response:
    set_audit_action(request, "thing.done", "thing-1")
    return JSONResponse({})
