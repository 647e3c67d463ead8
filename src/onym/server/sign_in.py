"""Sign-in handlers (password, OpenID Connect, sign-out), the account page and API tokens.

A new token is shown once and can be revoked at any time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.accounts import records
from onym.accounts import sign_in as openid_sign_in
from onym.errors import AccessError, OnymError, RegistryError, UnknownEntryError
from onym.registry.records import TOKEN_PREFIX, Role, Scope, get_registry_roles, parse_scopes
from onym.registry.registries import REGISTRIES
from onym.registry.words import apply_words
from onym.server.clients import make_address_key, make_site_key
from onym.server.middleware import MAX_FORM_FIELDS, MAX_FORM_FILES, make_too_many_response, set_audit_action
from onym.server.responses import get_problem_type, make_problem_response, wants_page
from onym.server.services import get_request_state, get_services
from onym.server.sessions import Visitor, end_session, get_visitor, require_access, set_cookie, start_session
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from onym.accounts.oidc import OIDCProvider

_MAX_FIELD_LENGTH: Final = 16 * 1024
_MAX_FORM_BYTES: Final = 64 * 1024


class SignInForm(dict[str, list[str]]):
    """The values of a form by field; a field may appear several times."""

    def get_text(self, name: str) -> str:
        """Return the field's value, or "". Raises RegistryError if the field appears twice."""
        values = self.get(name, [""])
        if len(values) > 1:
            raise RegistryError("this field appears twice", code="http.bad-form", field=name)
        return values[0]


async def read_form(request: Request) -> SignInForm:
    """Return the form of the request. Raises RegistryError if the body or a field is too long."""
    # decoding blocks the whole service, and these forms are short
    if len(await request.body()) > _MAX_FORM_BYTES:
        raise RegistryError(
            f"the form is longer than {_MAX_FORM_BYTES} bytes", code="http.too-large", field="body"
        )
    values = SignInForm()
    async with request.form(
        max_files=MAX_FORM_FILES, max_fields=MAX_FORM_FIELDS, max_part_size=_MAX_FORM_BYTES
    ) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str) or len(value) > _MAX_FIELD_LENGTH:
                raise RegistryError(
                    f"a field must be text of at most {_MAX_FIELD_LENGTH} characters",
                    code="http.bad-form",
                    field=name[:100],
                )
            values.setdefault(name, []).append(value)
    return values


#: a login's rate limit, as a multiple of an address's rate limit
_LOGIN_SHARE: Final = 5
#: the rate limit of one site for one login once the login's is used up, as a multiple of an address's
_SITE_SHARE: Final = 0.2


async def sign_in_page(request: Request) -> Response:
    """GET /login: the form, or a redirect for a signed-in visitor."""
    target = openid_sign_in.sanitize_target(request.query_params.get("next"))
    if get_visitor(request).via == "session":
        return RedirectResponse(target, 303)
    return _make_form_response(request, target)


async def sign_in(request: Request) -> Response | ASGIApp:
    """POST /login: fields `login`, `password`, `next`."""
    form = await read_form(request)
    login, target = (
        form.get_text("login").strip().lower(),
        openid_sign_in.sanitize_target(form.get_text("next")),
    )
    if wait := get_sign_in_wait(request, login):
        return make_too_many_response(request, wait)
    parts = get_services(request)
    # a password that was typed into the wrong field must not get into the log
    known = await parts.store.accounts.find_by_login(login) if 0 < len(login) <= records.MAX_LOGIN else None
    set_audit_action(request, "sign-in.password", None if known is None else known.login)
    account = None
    if parts.settings.local_accounts:
        account = await parts.passwords.authenticate(parts.store, login, Secret(form.get_text("password")))
    if account is None:
        return _make_refusal_response(request, _make_wrong_password_error(), target, login)
    set_audit_action(request, "sign-in.password", account.login, account=account.id)
    response = RedirectResponse(target, 303)
    if not await start_session(request, response, account, password=account.password_hash):
        return _make_refusal_response(request, _make_wrong_password_error(), target, login)
    return response


async def sign_out(request: Request) -> Response:
    """POST /logout: end this browser's session."""
    set_audit_action(request, "sign-out")
    response = RedirectResponse("/", 303)
    await end_session(request, response)
    return response


async def sign_out_everywhere(request: Request) -> Response:
    """POST /account/sign-out-everywhere: end all sessions of the account."""
    _require_session_account(request)
    set_audit_action(request, "sign-out.everywhere")
    response = RedirectResponse("/login", 303)
    await end_session(request, response, everywhere=True)
    return response


async def change_password(request: Request) -> Response | ASGIApp:
    """POST /account/password: fields `password` (the old one) and `new_password`; other sessions end."""
    account = _require_session_account(request)
    form = await read_form(request)
    set_audit_action(request, "account.password", account.id)
    if wait := get_sign_in_wait(request, account.login):
        return make_too_many_response(request, wait)
    parts = get_services(request)
    old = account.password_hash
    verdict = await parts.passwords.verify(old, Secret(form.get_text("password")))
    if old is None or not verdict.ok:
        raise _make_wrong_password_error()
    new = Secret(form.get_text("new_password"))
    openid_sign_in.validate_password(new, login=account.login, name=account.name)
    fresh = await parts.passwords.hash(new)
    if not await parts.store.accounts.replace_password(account.id, old, fresh):
        raise _make_wrong_password_error()
    await parts.store.sessions.drop_all(account.id)
    response = RedirectResponse("/account", 303)
    if not await start_session(request, response, account, password=fresh):
        raise _make_wrong_password_error()
    return response


def get_sign_in_wait(request: Request, login: str) -> float:
    """Return the seconds until this address and this login may try again.

    Many addresses together can use up the attempts of a login. They cannot lock its owner out: each site
    then has a few attempts of its own for the login.
    """
    rates, address = get_services(request).rates, get_visitor(request).address
    wait = rates.take_token("logins", make_address_key(address))
    if wait or not rates.take_token("logins", f"login:{login[: records.MAX_LOGIN]}", times=_LOGIN_SHARE):
        return wait
    return rates.take_token(
        "logins", f"login:{login[: records.MAX_LOGIN]}:{make_site_key(address)}", times=_SITE_SHARE
    )


def _require_session_account(request: Request) -> records.Account:
    visitor = get_visitor(request)
    account = require_access(visitor)
    if visitor.via != "session":
        raise AccessError(
            "this needs a browser session; an API token is not accepted", code="accounts.missing-scope"
        )
    return account


def _make_form_response(
    request: Request, target: str, login: str = "", error: OnymError | None = None, status: int = 200
) -> Response:
    parts = get_services(request)
    html = parts.render_page(
        request,
        "login.html",
        "Sign in",
        local=parts.settings.local_accounts,
        next=target,
        providers=[(issuer.title or issuer.id, f"/login/oidc/{issuer.id}") for issuer in parts.settings.oidc],
        login=login,
        error=error,
    )
    return HTMLResponse(html, status, {"cache-control": "no-store"})


def _make_refusal_response(request: Request, error: OnymError, target: str, login: str) -> Response:
    if not wants_page(request.scope):
        return make_problem_response(request, error)
    get_request_state(request.scope)["code"] = error.code
    return _make_form_response(request, target, login, error, get_problem_type(error).status)


def _make_wrong_password_error() -> AccessError:
    # one message for all causes, so that it does not reveal which logins exist
    return AccessError(
        "the login or password is wrong, or the account is closed",
        code="accounts.wrong-password",
        field="password",
        hint="Ask the operator for a new password, or sign in another way.",
    )


async def begin_oidc_sign_in(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}: redirect to the provider. `next` is the target path."""
    provider = _find_provider(request)
    parts = get_services(request)
    wait = parts.rates.take_token("logins", make_address_key(get_visitor(request).address))
    if wait:
        return make_too_many_response(request, wait)
    settings, at = parts.settings, parts.clock()
    flow = openid_sign_in.SignInFlow.begin(provider.issuer.id, request.query_params.get("next"), at)
    address = await provider.build_authorization_url(flow, at)
    response = RedirectResponse(address, 303, {"cache-control": "no-store"})
    for name in openid_sign_in.list_stale_flows(request.cookies, settings.flow_cookie, at):
        set_cookie(response, name, Secret(""), settings.is_https, 0)
    name = f"{settings.flow_cookie}-{flow.id}"
    set_cookie(response, name, flow.to_cookie(), settings.is_https, openid_sign_in.FLOW_SECONDS)
    return response


async def finish_oidc_sign_in(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}/callback: back from the provider, with a code or an error."""
    provider = _find_provider(request)
    parts = get_services(request)
    # a separate bucket: a callback may cost an audit record and a request to the provider
    wait = parts.rates.take_token("logins", f"callback:{make_address_key(get_visitor(request).address)}")
    if wait:
        return make_too_many_response(request, wait)
    set_audit_action(request, "sign-in.oidc", provider.issuer.id)
    parameters = {name: request.query_params.getlist(name) for name in openid_sign_in.CALLBACK_PARAMETERS}
    name, cookie = openid_sign_in.find_flow_cookie(
        request.cookies, parts.settings.flow_cookie, parameters["state"]
    )
    response: Response
    try:
        flow, code = await openid_sign_in.check_callback(provider, cookie, parameters, parts.clock())
        person = (await provider.redeem_code(code, flow, parts.clock())).person
        account = await openid_sign_in.find_or_create_account(
            parts.store, provider.issuer, person, parts.clock()
        )
        account = await openid_sign_in.apply_group_roles(
            parts.store, account, provider.issuer, person, parts.clock()
        )
        set_audit_action(request, "sign-in.oidc", provider.issuer.id, account=account.id)
        response = RedirectResponse(flow.target, 303, {"cache-control": "no-store"})
        await start_session(request, response, account)
    except OnymError as error:
        response = make_problem_response(request, error)
    if cookie:  # the flow ends in any case
        set_cookie(response, name, Secret(""), parts.settings.is_https, 0)
    return response


def _find_provider(request: Request) -> OIDCProvider:
    found = get_services(request).providers.get(request.path_params["provider"])
    if found is None:
        raise UnknownEntryError(
            f"no OpenID provider is called {request.path_params['provider']!r}",
            code="accounts.unknown-provider",
            field="provider",
        )
    return found


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
    roles = {
        name: sorted(visitor.list_roles(name))
        for name in (*REGISTRIES, *map(records.get_realm, account.roles))
    }
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


async def _store_new_token(request: Request, order: TokenRequest) -> tuple[records.ApiToken, Secret]:
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
    secret = records.make_token(TOKEN_PREFIX)
    token = records.ApiToken(
        id=records.make_id("token"),
        digest=records.hash_secret(secret),
        account=account.id,
        label=records.validate_label(order.label),
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


def _get_token_state(token: records.ApiToken, at: datetime) -> str:
    if token.revoked is not None:
        return "revoked"
    return "in use" if token.is_live(at) else "expired"


def _to_token_data(token: records.ApiToken) -> dict[str, Any]:
    times = {name: getattr(token, name) for name in ("created", "expires", "revoked", "last_used")}
    return {"id": token.id, "label": token.label, "scopes": sorted(token.scopes), **times}


def _make_json_response(data: dict[str, Any], status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(data), status, {"cache-control": "no-store"}, media_type="application/json"
    )
