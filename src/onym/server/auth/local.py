"""Signing in with login and password, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.errors import AccessError, OnymError
from onym.registry.accounts import MAX_LOGIN, Account, check_password
from onym.server.auth._forms import read_form
from onym.server.auth.targets import safe_target
from onym.server.pages import SignInView
from onym.server.problems import kind_of, problem, wants_page
from onym.server.security.audit import audit_as
from onym.server.security.rates import address_key, too_many
from onym.server.security.sessions import end_session, start_session
from onym.server.security.visitor import current, require
from onym.server.services import services, state
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

__all__ = ["change_password", "sign_in", "sign_in_page", "sign_in_wait", "sign_out", "sign_out_everywhere"]

#: a login may be tried from so many times as many addresses as one address may try
_LOGIN_SHARE = 5


async def sign_in_page(request: Request) -> Response:
    """GET /login: the form; whoever is signed in goes on at once."""
    target = safe_target(request.query_params.get("next"))
    if current(request).via == "session":
        return RedirectResponse(target, 303)
    return _form(request, target)


async def sign_in(request: Request) -> Response | ASGIApp:
    """POST /login: fields `login`, `password`, `next`."""
    form = await read_form(request)
    login, target = form.text("login").strip().lower(), safe_target(form.text("next"))
    if wait := sign_in_wait(request, login):
        return too_many(request, wait)
    parts = services(request)
    # who types a password into the wrong field must not find it in the log
    known = await parts.store.accounts.by_login(login) if 0 < len(login) <= MAX_LOGIN else None
    audit_as(request, "sign-in.password", None if known is None else known.login)
    account = None
    if parts.settings.local_accounts:
        account = await parts.passwords.account(parts.store, login, Secret(form.text("password")))
    if account is None:
        return _refused(request, _wrong_password(), target, login)
    audit_as(request, "sign-in.password", account.login, account=account.id)
    response = RedirectResponse(target, 303)
    if not await start_session(request, response, account, password=account.password_hash):
        return _refused(request, _wrong_password(), target, login)
    return response


async def sign_out(request: Request) -> Response:
    """POST /logout: end this browser's session."""
    audit_as(request, "sign-out")
    response = RedirectResponse("/", 303)
    await end_session(request, response)
    return response


async def sign_out_everywhere(request: Request) -> Response:
    """POST /account/sign-out-everywhere: end all sessions of the account."""
    _session_account(request)
    audit_as(request, "sign-out.everywhere")
    response = RedirectResponse("/login", 303)
    await end_session(request, response, everywhere=True)
    return response


async def change_password(request: Request) -> Response | ASGIApp:
    """POST /account/password: fields `password` (the old one) and `new_password`; other sessions end."""
    account = _session_account(request)
    form = await read_form(request)
    audit_as(request, "account.password", account.id)
    if wait := sign_in_wait(request, account.login):
        return too_many(request, wait)
    parts = services(request)
    old = account.password_hash
    verdict = await parts.passwords.verify(old, Secret(form.text("password")))
    if old is None or not verdict.ok:
        raise _wrong_password()
    new = Secret(form.text("new_password"))
    check_password(new, login=account.login, name=account.name)
    fresh = await parts.passwords.hash(new)
    if not await parts.store.accounts.replace_password(account.id, old, fresh):
        raise _wrong_password()
    await parts.store.sessions.drop_all(account.id)
    response = RedirectResponse("/account", 303)
    if not await start_session(request, response, account, password=fresh):
        raise _wrong_password()
    return response


def sign_in_wait(request: Request, login: str) -> float:
    """Seconds until this address may try again, or this login be tried; 0: now."""
    rates = services(request).rates
    wait = rates.take("logins", address_key(current(request).address))
    return wait or rates.take("logins", f"login:{login[:MAX_LOGIN]}", times=_LOGIN_SHARE)


def _session_account(request: Request) -> Account:
    visitor = current(request)
    account = require(visitor)
    if visitor.via != "session":
        raise AccessError("this is done in a browser, not with a token", code="registry.missing-scope")
    return account


def _form(
    request: Request, target: str, login: str = "", error: OnymError | None = None, status: int = 200
) -> Response:
    parts = services(request)
    view = SignInView(
        csrf_token=current(request).csrf_token,
        next=target,
        providers=tuple((each.title, f"/login/oidc/{each.id}") for each in parts.settings.issuers),
        login=login,
        error=error,
    )
    html = parts.pages.sign_in(request, view)
    return HTMLResponse(html, status, {"cache-control": "no-store"})


def _refused(request: Request, error: OnymError, target: str, login: str) -> Response:
    if not wants_page(request.scope):
        return problem(request, error)
    state(request.scope)["code"] = error.code
    return _form(request, target, login, error, kind_of(error).status)


def _wrong_password() -> AccessError:
    # one text for all causes: it must not tell which logins there are
    return AccessError(
        "login or password is wrong, or the account is closed",
        code="registry.wrong-password",
        field="password",
        hint="ask the operator for a new password, or sign in another way",
    )
