"""Authentication of requests: the visitor, found by a browser session's cookie or a program's API token.

Every sign-in creates a new session ID. Sessions end at a fixed time, after idleness, or when their
owner ends all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from onym.accounts.records import Account, ApiToken, Session, hash_secret, is_token, make_session_id
from onym.errors import AccessError, OnymError
from onym.registry.records import TOKEN_PREFIX, Actor, Role, get_registry_roles, is_administrator, limit_roles
from onym.registry.records import Scope as TokenScope
from onym.server.clients import CSRFKey, format_cookie
from onym.server.services import HTTPMiddleware, Services, get_request_state, get_services
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The sender of a request. `via` is how they signed in, or None.

    `scopes` are those of the API token; a browser session has all. `address` is the client's address, also
    behind trusted proxies. `failure` is the error of credentials that are invalid.
    """

    account: Account | None = None
    via: Literal["session", "token"] | None = None
    session: Session | None = None
    token: ApiToken | None = None
    scopes: frozenset[str] = frozenset()
    address: str | None = None
    failure: OnymError | None = None
    form_key: CSRFKey = field(default_factory=CSRFKey)

    @property
    def csrf_token(self) -> str:
        """The token that forms send as `csrf_token`, and scripts in `X-CSRF-Token`."""
        return self.form_key.token

    def list_roles(self, registry: str) -> frozenset[Role]:
        """Return the roles in a registry that the token's scopes allow.

        Every signed-in visitor is a registrant: RFC 7595 7.2 lets anyone request a registration.
        """
        if self.account is None:
            return frozenset()
        return limit_roles(get_registry_roles(self.account, registry) | {Role.REGISTRANT}, self.scopes)

    @property
    def is_administrator(self) -> bool:
        """May the visitor manage accounts now?"""
        return self.account is not None and is_administrator(self.account) and TokenScope.ADMIN in self.scopes


def get_visitor(request: HTTPConnection) -> Visitor:
    """Return the visitor who sent this request; without a sign-in it has no account."""
    visitor = get_request_state(request.scope).get("visitor")
    return visitor if isinstance(visitor, Visitor) else Visitor()


def require_access(
    visitor: Visitor,
    *,
    registry: str | None = None,
    roles: Iterable[Role] = (),
    scope: TokenScope | str | None = None,
    administrator: bool = False,
) -> Account:
    """Return the visitor's account if it has the required access. Raises AccessError.

    If `roles` are given, the account needs one of them in `registry`. A token needs `scope`.
    """
    if visitor.account is None:
        raise AccessError(
            "this needs a signed-in account",
            code="accounts.not-signed-in",
            hint="Sign in, or send an API token as Authorization: Bearer.",
        )
    if scope is not None and scope not in visitor.scopes:
        raise AccessError(
            f"this API token has no scope {str(scope)!r}",
            code="accounts.missing-scope",
            field="scope",
            hint="Create a token with that scope on the account page.",
        )
    wanted = frozenset(roles)
    if wanted and (registry is None or visitor.list_roles(registry).isdisjoint(wanted)):
        names = " or ".join(sorted(wanted))
        raise AccessError(
            f"this needs the role {names}" + (f" in {registry}" if registry else ""),
            code="registry.wrong-role",
            field="role",
            hint=f"The operator can grant it: onym registry user roles {visitor.account.login} "
            f"--add {min(wanted)}" + (f" -r {registry}" if registry else ""),
        )
    if administrator and not visitor.is_administrator:
        raise AccessError("this needs an administrator", code="registry.wrong-role", field="role")
    return visitor.account


def make_actor(visitor: Visitor, registry: str) -> Actor:
    """Return the visitor as an actor of the engine and the log. Raises AccessError without a sign-in."""
    account = require_access(visitor)
    return Actor(id=account.id, roles=visitor.list_roles(registry))


_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_BEARER: Final = re.compile(r"Bearer +([!-~]{1,512})\Z", re.IGNORECASE)
_ALL_SCOPES: Final = frozenset(str(token_scope) for token_scope in TokenScope)
#: seconds between two updates of the last use of a session or token, so that most reads do not write
_TOUCH_SECONDS: Final = 60


class AuthenticationMiddleware(HTTPMiddleware):
    """Finds the visitor of a request. CSRFMiddleware raises the `failure` of invalid credentials."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        super().__init__(app)
        self._services = services

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = Request(scope, receive)
        visitor = await _find_visitor(self._services, request, get_request_state(scope).get("address"))
        get_request_state(scope)["visitor"] = visitor

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start" and visitor.via is None and visitor.form_key.made:
                settings = self._services.settings
                secret = visitor.form_key.get_secret()
                value = format_cookie(settings.form_cookie, secret, "Lax", https=settings.is_https)
                MutableHeaders(scope=message).append("set-cookie", value)
            await send(message)

        await self._app(scope, receive, finish)


async def start_session(
    request: Request, response: Response, account: Account, *, password: Secret | None = None
) -> bool:
    """Sign this browser in with a new session ID, and end its previous session.

    `password` is the verified hash. Return False, without a session, if the account's hash has changed since.
    """
    parts = get_services(request)
    await _drop_session(parts, get_visitor(request))
    at = parts.clock()
    secret = make_session_id()
    life = timedelta(seconds=parts.settings.session_seconds)
    session = Session(digest=hash_secret(secret), account=account.id, created=at, expires=at + life, seen=at)
    if not await parts.store.sessions.create(session, password=password):
        return False
    set_cookie(
        response,
        parts.settings.session_cookie,
        secret,
        parts.settings.is_https,
        parts.settings.session_seconds,
    )
    return True


async def end_session(request: Request, response: Response, *, everywhere: bool = False) -> None:
    """Sign this browser out, or all browsers of the account, and delete the cookie."""
    parts = get_services(request)
    visitor = get_visitor(request)
    if everywhere and visitor.account is not None:
        await parts.store.sessions.drop_all(visitor.account.id)
    await _drop_session(parts, visitor)
    set_cookie(response, parts.settings.session_cookie, Secret(""), parts.settings.is_https, 0)


async def _drop_session(parts: Services, visitor: Visitor) -> None:
    if visitor.session is not None:
        await parts.store.sessions.drop(visitor.session.digest)


async def _find_visitor(parts: Services, request: Request, address: str | None) -> Visitor:
    given = request.headers.getlist("authorization")
    if given:
        return await _find_by_token(parts, given, address)
    value = request.cookies.get(parts.settings.session_cookie, "")
    if _VALUE.match(value):
        found = await _find_by_session(parts, Secret(value), address)
        if found is not None:
            return found
    value = request.cookies.get(parts.settings.form_cookie, "")
    key = CSRFKey(Secret(value)) if _VALUE.match(value) else CSRFKey()
    return Visitor(address=address, form_key=key)


async def _find_by_session(parts: Services, secret: Secret, address: str | None) -> Visitor | None:
    at = parts.clock()
    session = await parts.store.sessions.find(hash_secret(secret), at)
    if session is None:
        return None
    idle = timedelta(seconds=parts.settings.idle_seconds)
    account = await _find_active_account(parts, session.account)
    if account is None or session.expires <= at or session.seen + idle <= at:
        await parts.store.sessions.drop(session.digest)
        return None
    if at - session.seen >= timedelta(seconds=_TOUCH_SECONDS):
        await parts.store.sessions.touch(session.digest, at)
    return Visitor(
        account=account,
        via="session",
        session=session,
        scopes=_ALL_SCOPES,
        address=address,
        form_key=CSRFKey(secret),
    )


async def _find_by_token(parts: Services, given: list[str], address: str | None) -> Visitor:
    wrong = Visitor(address=address, failure=_make_token_error())
    match = _BEARER.match(given[0]) if len(given) == 1 else None
    if match is None or not is_token(match[1], TOKEN_PREFIX):
        return wrong
    at = parts.clock()
    token = await parts.store.tokens.find(hash_secret(Secret(match[1])), at)
    if token is None or not token.is_live(at):
        return wrong
    account = await _find_active_account(parts, token.account)
    if account is None:
        return wrong
    if token.last_used is None or at - token.last_used >= timedelta(seconds=_TOUCH_SECONDS):
        await parts.store.tokens.touch(token.id, at)
    return Visitor(account=account, via="token", token=token, scopes=token.scopes, address=address)


async def _find_active_account(parts: Services, identifier: str) -> Account | None:
    account = await parts.store.accounts.get(identifier)
    return None if account is None or account.disabled else account


def _make_token_error() -> AccessError:
    return AccessError(
        "this API token is unknown, expired or revoked",
        code="accounts.bad-token",
        field="Authorization",
        clause="RFC 6750 3.1",
        hint="Send Authorization: Bearer with a token from the account page.",
    )


def set_cookie(response: Response, name: str, value: Secret, https: bool, life: int | None) -> None:
    """Set a cookie that is HttpOnly and SameSite=Lax; `life` is in seconds."""
    response.headers.append("set-cookie", format_cookie(name, value, "Lax", https=https, life=life))
