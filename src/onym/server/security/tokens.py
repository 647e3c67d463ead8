"""The account page and API tokens. A new token is shown once and can be revoked at any time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.accounts.records import ApiToken, get_realm, hash_secret, make_id, make_token, validate_label
from onym.errors import RegistryError, UnknownEntryError
from onym.registry.records import TOKEN_PREFIX, Role, Scope, get_registry_roles, parse_scopes
from onym.registry.registries import REGISTRIES
from onym.registry.words import apply_words
from onym.server.security.middleware import set_audit_action
from onym.server.security.sessions import Visitor, get_visitor, require_access
from onym.server.security.sign_in import read_form
from onym.server.services import get_services
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request

#: usable tokens of one account
MAX_TOKENS: Final = 50
_DAYS: Final = re.compile(r"[0-9]{1,4}\Z")
_LONGEST_BODY: Final = 16 * 1024
_SCOPES: Final = {
    Scope.READ: "read",
    Scope.SUBMIT: "submit and revise requests",
    Scope.REVIEW: "review as an expert",
    Scope.IANA: "act for IANA",
    Scope.IESG: "act for the IESG",
    Scope.ADMIN: "manage accounts",
}


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a new token. `days` is its lifetime; the default is the longest allowed."""

    label: str
    scopes: list[str]
    #: JSON has one number type: 30.0 is 30
    days: int | float | None = None


async def account_page(request: Request) -> Response:
    """GET /account."""
    return await _make_account_response(request, None, 200)


async def create_token(request: Request) -> Response:
    """POST /account/tokens: fields `label`, `scopes` (several), `days`; the page shows the token once."""
    form = await read_form(request)
    days = form.get_text("days").strip()
    if days and not _DAYS.match(days):
        raise _make_days_error(request)
    order = TokenRequest(
        label=form.get_text("label"), scopes=form.get("scopes", []), days=int(days) if days else None
    )
    _, secret = await _store_new_token(request, order)
    return await _make_account_response(request, secret, 201)


async def revoke_token(request: Request) -> Response:
    """POST /account/tokens/{id}/revoke."""
    await _revoke_own_token(request)
    return RedirectResponse("/account", 303)


async def get_api_account(request: Request) -> Response:
    """GET /api/v1/account: the caller's account, roles and scopes."""
    visitor = get_visitor(request)
    account = require_access(visitor)
    roles = {name: sorted(visitor.list_roles(name)) for name in (*REGISTRIES, *map(get_realm, account.roles))}
    return _make_json_response(
        {
            "id": account.id,
            "login": account.login,
            "name": account.name,
            "roles": dict(sorted(roles.items())),
            "scopes": sorted(visitor.scopes),
            "via": visitor.via,
        }
    )


async def list_api_tokens(request: Request) -> Response:
    """GET /api/v1/account/tokens."""
    account = require_access(get_visitor(request), scope=Scope.READ)
    tokens = await get_services(request).store.tokens.list(account.id)
    return _make_json_response({"tokens": [_to_token_data(token) for token in tokens]})


async def create_api_token(request: Request) -> Response:
    """POST /api/v1/account/tokens: JSON `label`, `scopes`, `days`; only this response contains `token`."""
    body = await request.body()
    try:
        if len(body) > _LONGEST_BODY:
            raise msgspec.DecodeError("too long")
        order = msgspec.json.decode(body, type=TokenRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryError(
            "the body is not a valid token request",
            code="http.bad-form",
            field="body",
            hint='Send JSON such as {"label": "ci", "scopes": ["read"], "days": 30}.',
        ) from error
    token, secret = await _store_new_token(request, order)
    return _make_json_response({**_to_token_data(token), "token": secret.reveal()}, 201)


async def revoke_api_token(request: Request) -> Response:
    """DELETE /api/v1/account/tokens/{id}."""
    await _revoke_own_token(request)
    return Response(status_code=204)


async def _store_new_token(request: Request, order: TokenRequest) -> tuple[ApiToken, Secret]:
    visitor = get_visitor(request)
    account = require_access(visitor)
    scopes = parse_scopes(order.scopes)
    set_audit_action(request, "token.add", " ".join(sorted(scopes)))
    for scope in scopes:
        # a token cannot create a token with more scopes
        require_access(visitor, scope=scope)
    parts = get_services(request)
    at = parts.clock()
    known = await parts.store.tokens.list(account.id)
    if sum(token.is_live(at) for token in known) >= MAX_TOKENS:
        raise RegistryError(
            f"the account has {MAX_TOKENS} tokens already, the most allowed",
            code="accounts.too-many-tokens",
            field="tokens",
            hint="Revoke tokens that are not used.",
        )
    secret = make_token(TOKEN_PREFIX)
    token = ApiToken(
        id=make_id("token"),
        digest=hash_secret(secret),
        account=account.id,
        label=validate_label(order.label),
        scopes=scopes,
        created=at,
        expires=_compute_expiry(request, visitor, order, at),
    )
    await parts.store.tokens.create(token)
    return token, secret


async def _revoke_own_token(request: Request) -> None:
    visitor = get_visitor(request)
    account = require_access(visitor)
    identifier = request.path_params["id"]
    set_audit_action(request, "token.revoke", identifier)
    parts = get_services(request)
    owned = {token.id: token for token in await parts.store.tokens.list(account.id)}
    if identifier not in owned:
        raise UnknownEntryError(
            f"the account has no token {identifier!r}", code="accounts.unknown-token", field="token"
        )
    for scope in sorted(owned[identifier].scopes):
        # a token cannot revoke a token with more scopes
        require_access(visitor, scope=scope)
    await parts.store.tokens.revoke(identifier, parts.clock())


def _compute_expiry(request: Request, visitor: Visitor, order: TokenRequest, at: datetime) -> datetime:
    most = get_services(request).settings.token_days
    days = most if order.days is None else order.days
    if not 1 <= days <= most or days != int(days):
        raise _make_days_error(request)
    expires = at + timedelta(days=days)
    own = None if visitor.token is None else visitor.token.expires
    # nor a token that lives longer
    return expires if own is None else min(expires, own)


def _make_days_error(request: Request) -> RegistryError:
    most = get_services(request).settings.token_days
    return RegistryError(
        f"days must be a whole number from 1 to {most}",
        code="accounts.bad-days",
        field="days",
        hint=f"Leave it out for {most} days.",
    )


async def _make_account_response(request: Request, secret: Secret | None, status: int) -> Response:
    account = require_access(get_visitor(request))
    parts = get_services(request)
    at = parts.clock()
    html = parts.render_page(
        request,
        "account.html",
        "Your account",
        account=account,
        roles=[
            (row.title, get_registry_roles(account, row.id) | {Role.REGISTRANT})
            for row in REGISTRIES.values()
        ],
        tokens=[(token, _get_token_state(token, at)) for token in await parts.store.tokens.list(account.id)],
        scopes={scope: apply_words(text) for scope, text in _SCOPES.items()},
        new_token="" if secret is None else secret.reveal(),
    )
    return HTMLResponse(html, status, {"cache-control": "no-store"})


def _get_token_state(token: ApiToken, at: datetime) -> str:
    if token.revoked is not None:
        return "revoked"
    return "in use" if token.is_live(at) else "expired"


def _to_token_data(token: ApiToken) -> dict[str, Any]:
    times = {name: getattr(token, name) for name in ("created", "expires", "revoked", "last_used")}
    return {"id": token.id, "label": token.label, "scopes": sorted(token.scopes), **times}


def _make_json_response(data: dict[str, Any], status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(data), status, {"cache-control": "no-store"}, media_type="application/json"
    )
