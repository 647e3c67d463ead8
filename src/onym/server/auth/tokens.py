"""The account page, and API tokens: made by their owner, shown once, revoked at once."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.errors import RegistryError, UnknownEntryError
from onym.registry.accounts import (
    MAX_LABEL,
    ApiToken,
    Scope,
    digest_of,
    new_id,
    new_token,
    read_scopes,
)
from onym.server.auth._forms import read_form
from onym.server.pages import AccountView
from onym.server.security.audit import audit_as
from onym.server.security.visitor import Visitor, current, require
from onym.server.services import services
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["MOST_TOKENS", "account_page", "add", "api_account", "api_add", "api_list", "api_revoke", "revoke"]

#: live tokens of one account
MOST_TOKENS: Final = 50
_DAYS: Final = re.compile(r"[0-9]{1,4}\Z")
_LONGEST_BODY: Final = 16 * 1024


class TokenOrder(msgspec.Struct, forbid_unknown_fields=True):
    """What a token is asked for with. `days` is its life; the longest that there is where left out."""

    label: str
    scopes: list[str]
    #: JSON has one sort of number: 30.0 is 30
    days: int | float | None = None


async def account_page(request: Request) -> Response:
    """GET /account."""
    return await _page(request)


async def add(request: Request) -> Response:
    """POST /account/tokens: fields `label`, `scopes` (several), `days`; the answer shows the token once."""
    form = await read_form(request)
    days = form.text("days").strip()
    if days and not _DAYS.match(days):
        raise _bad_days(request)
    order = TokenOrder(
        label=form.text("label"), scopes=list(form.texts("scopes")), days=int(days) if days else None
    )
    _, secret = await _make(request, order)
    return await _page(request, secret, 201)


async def revoke(request: Request) -> Response:
    """POST /account/tokens/{id}/revoke."""
    await _revoke(request)
    return RedirectResponse("/account", 303)


async def api_account(request: Request) -> Response:
    """GET /api/v1/account: who the caller is, and what it may do."""
    visitor = current(request)
    account = require(visitor)
    roles = {name: sorted(visitor.roles(name)) for name in (*_registries(), *account.roles)}
    return _json(
        {
            "id": account.id,
            "login": account.login,
            "name": account.name,
            "roles": dict(sorted(roles.items())),
            "scopes": sorted(visitor.scopes),
            "via": visitor.via,
        }
    )


async def api_list(request: Request) -> Response:
    """GET /api/v1/account/tokens."""
    account = require(current(request), scope=Scope.READ)
    tokens = await services(request).store.tokens.list(account.id)
    return _json({"tokens": [_plain(each) for each in tokens]})


async def api_add(request: Request) -> Response:
    """POST /api/v1/account/tokens: JSON `label`, `scopes`, `days`; the answer holds `token`, this once."""
    body = await request.body()
    try:
        if len(body) > _LONGEST_BODY:
            raise msgspec.DecodeError("too long")
        order = msgspec.json.decode(body, type=TokenOrder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryError(
            "the body is not the JSON that this takes",
            code="http.bad-form",
            field="body",
            hint='{"label": "ci", "scopes": ["read"], "days": 30}',
        ) from error
    token, secret = await _make(request, order)
    return _json({**_plain(token), "token": secret.reveal()}, 201)


async def api_revoke(request: Request) -> Response:
    """DELETE /api/v1/account/tokens/{id}."""
    await _revoke(request)
    return Response(status_code=204)


async def _make(request: Request, order: TokenOrder) -> tuple[ApiToken, Secret]:
    visitor = current(request)
    account = require(visitor)
    scopes = read_scopes(order.scopes)
    audit_as(request, "token.add", " ".join(sorted(scopes)))
    for scope in scopes:
        # a token makes none that may do more than itself
        require(visitor, scope=scope)
    parts = services(request)
    at = parts.clock()
    known = await parts.store.tokens.list(account.id)
    if sum(_live(each, at) for each in known) >= MOST_TOKENS:
        raise RegistryError(
            f"an account has at most {MOST_TOKENS} tokens",
            code="registry.too-many-tokens",
            field="tokens",
            hint="revoke those that are not used",
        )
    secret = new_token()
    token = ApiToken(
        id=new_id("token"),
        digest=digest_of(secret),
        account=account.id,
        label=_label(order.label),
        scopes=scopes,
        created=at,
        expires=_expires(request, visitor, order, at),
    )
    await parts.store.tokens.create(token)
    return token, secret


async def _revoke(request: Request) -> None:
    visitor = current(request)
    account = require(visitor)
    identifier = request.path_params["id"]
    audit_as(request, "token.revoke", identifier)
    parts = services(request)
    owned = {each.id: each for each in await parts.store.tokens.list(account.id)}
    if identifier not in owned:
        raise UnknownEntryError("no such token", code="registry.unknown-token", field="token")
    for scope in sorted(owned[identifier].scopes):
        # a token ends none that may do more than itself
        require(visitor, scope=scope)
    await parts.store.tokens.revoke(identifier, parts.clock())


def _label(text: str) -> str:
    label = " ".join(unicodedata.normalize("NFC", text[: 4 * MAX_LABEL]).split())
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        raise RegistryError(
            f"a label has 1 to {MAX_LABEL} characters",
            code="registry.bad-label",
            field="label",
            hint="say what the token is for",
        )
    return label


def _expires(request: Request, visitor: Visitor, order: TokenOrder, at: datetime) -> datetime:
    most = services(request).settings.token_days
    days = most if order.days is None else order.days
    if not 1 <= days <= most or days != int(days):
        raise _bad_days(request)
    expires = at + timedelta(days=days)
    own = None if visitor.token is None else visitor.token.expires
    # nor one that lives longer than itself
    return expires if own is None else min(expires, own)


def _bad_days(request: Request) -> RegistryError:
    most = services(request).settings.token_days
    return RegistryError(
        f"days is a number from 1 to {most}",
        code="registry.bad-days",
        field="days",
        hint="leave it out for all",
    )


async def _page(request: Request, secret: Secret | None = None, status: int = 200) -> Response:
    visitor = current(request)
    account = require(visitor)
    parts = services(request)
    view = AccountView(
        csrf_token=visitor.csrf_token,
        account=account,
        tokens=tuple(await parts.store.tokens.list(account.id)),
        new_token=secret,
    )
    return HTMLResponse(parts.pages.account(request, view), status, {"cache-control": "no-store"})


def _live(token: ApiToken, at: datetime) -> bool:
    return token.revoked is None and (token.expires is None or token.expires > at)


def _registries() -> tuple[str, ...]:
    from onym.registry.registries import REGISTRIES

    return tuple(REGISTRIES)


def _plain(token: ApiToken) -> dict[str, Any]:
    times = {name: getattr(token, name) for name in ("created", "expires", "revoked", "last_used")}
    return {"id": token.id, "label": token.label, "scopes": sorted(token.scopes), **times}


def _json(data: dict[str, Any], status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(data), status, {"cache-control": "no-store"}, media_type="application/json"
    )
