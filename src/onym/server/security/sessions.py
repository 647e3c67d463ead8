"""Who sent a request: a browser's session by its cookie, or a program by its API token.

A session id is made anew at each sign-in, so that one that was planted before is worth nothing. Sessions
end at a time, after idleness, and all at once where their owner says so.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from onym.errors import AccessError
from onym.registry.accounts import (
    Account,
    Session,
    digest_of,
    is_token,
    new_session_id,
)
from onym.registry.accounts import (
    Scope as TokenScope,
)
from onym.server.security.visitor import FormKey, Visitor, current
from onym.server.services import Services, services, state
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Authenticate", "end_session", "set_cookie", "start_session"]

_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_BEARER: Final = re.compile(r"Bearer +([!-~]{1,512})\Z", re.IGNORECASE)
_ALL: Final = frozenset(str(each) for each in TokenScope)
#: seconds: how far the last use of a session or token may be behind, so that reads do not write
_TOUCH: Final = 60


class Authenticate:
    """Finds the visitor of each request. Wrong credentials are kept as its `failure`, for the guard."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        visitor = await _find(self._services, request, state(scope).get("address"))
        state(scope)["visitor"] = visitor

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start" and visitor.via is None and visitor.form_key.made:
                settings = self._services.settings
                value = _cookie(settings.form_cookie, visitor.form_key.reveal(), settings.https, None)
                MutableHeaders(scope=message).append("set-cookie", value)
            await send(message)

        await self._app(scope, receive, finish)


async def start_session(
    request: Request, response: Response, account: Account, *, password: Secret | None = None
) -> bool:
    """Sign this browser in, with a new session id; the session that it had before ends.

    `password` is the hash that let it in: False, and no session, where the account's is another by now.
    """
    parts = services(request)
    await _drop(parts, current(request))
    at = parts.clock()
    secret = new_session_id()
    life = timedelta(seconds=parts.settings.session_seconds)
    session = Session(digest=digest_of(secret), account=account.id, created=at, expires=at + life, seen=at)
    if not await parts.store.sessions.create(session, password=password):
        return False
    set_cookie(
        response,
        parts.settings.session_cookie,
        secret,
        parts.settings.https,
        parts.settings.session_seconds,
    )
    return True


async def end_session(request: Request, response: Response, *, everywhere: bool = False) -> None:
    """Sign this browser out, or all of the account's browsers; the cookie goes as well."""
    parts = services(request)
    visitor = current(request)
    if everywhere and visitor.account is not None:
        await parts.store.sessions.drop_all(visitor.account.id)
    await _drop(parts, visitor)
    set_cookie(response, parts.settings.session_cookie, Secret(""), parts.settings.https, 0)


async def _drop(parts: Services, visitor: Visitor) -> None:
    if visitor.session is not None:
        await parts.store.sessions.drop(visitor.session.digest)


async def _find(parts: Services, request: Request, address: str | None) -> Visitor:
    given = request.headers.getlist("authorization")
    if given:
        return await _by_token(parts, given, address)
    value = request.cookies.get(parts.settings.session_cookie, "")
    if _VALUE.match(value):
        found = await _by_session(parts, Secret(value), address)
        if found is not None:
            return found
    value = request.cookies.get(parts.settings.form_cookie, "")
    key = FormKey(Secret(value)) if _VALUE.match(value) else FormKey()
    return Visitor(address=address, form_key=key)


async def _by_session(parts: Services, secret: Secret, address: str | None) -> Visitor | None:
    at = parts.clock()
    session = await parts.store.sessions.find(digest_of(secret), at)
    if session is None:
        return None
    idle = timedelta(seconds=parts.settings.idle_seconds)
    account = await _account(parts, session.account)
    if account is None or session.expires <= at or session.seen + idle <= at:
        await parts.store.sessions.drop(session.digest)
        return None
    if at - session.seen >= timedelta(seconds=_TOUCH):
        await parts.store.sessions.touch(session.digest, at)
    return Visitor(
        account=account,
        via="session",
        session=session,
        scopes=_ALL,
        address=address,
        form_key=FormKey(secret),
    )


async def _by_token(parts: Services, given: list[str], address: str | None) -> Visitor:
    wrong = Visitor(address=address, failure=_bad_token())
    match = _BEARER.match(given[0]) if len(given) == 1 else None
    if match is None or not is_token(match[1]):
        return wrong
    at = parts.clock()
    token = await parts.store.tokens.find(digest_of(Secret(match[1])), at)
    if token is None or token.revoked is not None or _over(token.expires, at):
        return wrong
    account = await _account(parts, token.account)
    if account is None:
        return wrong
    if token.last_used is None or at - token.last_used >= timedelta(seconds=_TOUCH):
        await parts.store.tokens.touch(token.id, at)
    return Visitor(account=account, via="token", token=token, scopes=token.scopes, address=address)


async def _account(parts: Services, identifier: str) -> Account | None:
    account = await parts.store.accounts.get(identifier)
    return None if account is None or account.disabled else account


def _over(expires: datetime | None, at: datetime) -> bool:
    return expires is not None and expires <= at


def _bad_token() -> AccessError:
    return AccessError(
        "this API token is unknown, expired or revoked",
        code="registry.bad-token",
        field="Authorization",
        clause="RFC 6750 3.1",
        hint="send Authorization: Bearer with a token from the account page",
    )


def set_cookie(response: Response, name: str, value: Secret, https: bool, life: int | None) -> None:
    """Set a cookie that scripts cannot read and other sites' forms do not send; `life` in seconds."""
    response.headers.append("set-cookie", _cookie(name, value, https, life))


def _cookie(name: str, value: Secret, https: bool, life: int | None) -> str:
    # without a life it lasts until the browser closes
    parts = [f"{name}={value.reveal()}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if https:
        parts.append("Secure")
    if life is not None:
        parts.append(f"Max-Age={life}")
    return "; ".join(parts)
