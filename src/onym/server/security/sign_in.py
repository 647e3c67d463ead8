"""Sign-in handlers: the password form, OpenID Connect, signing out, and changing a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.accounts.passwords import validate_password
from onym.accounts.records import MAX_LOGIN, Account
from onym.accounts.sign_in import (
    CALLBACK_PARAMETERS,
    FLOW_SECONDS,
    SignInFlow,
    apply_group_roles,
    check_callback,
    find_flow_cookie,
    find_or_create_account,
    list_stale_flows,
    sanitize_target,
)
from onym.errors import AccessError, OnymError, RegistryError, UnknownEntryError
from onym.server.problems import get_problem_type, make_problem_response, wants_page
from onym.server.security.clients import make_address_key, make_site_key
from onym.server.security.middleware import (
    MAX_FORM_FIELDS,
    MAX_FORM_FILES,
    make_too_many_response,
    set_audit_action,
)
from onym.server.security.sessions import end_session, get_visitor, require_access, set_cookie, start_session
from onym.server.services import get_request_state, get_services
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
    target = sanitize_target(request.query_params.get("next"))
    if get_visitor(request).via == "session":
        return RedirectResponse(target, 303)
    return _make_form_response(request, target)


async def sign_in(request: Request) -> Response | ASGIApp:
    """POST /login: fields `login`, `password`, `next`."""
    form = await read_form(request)
    login, target = form.get_text("login").strip().lower(), sanitize_target(form.get_text("next"))
    if wait := get_sign_in_wait(request, login):
        return make_too_many_response(request, wait)
    parts = get_services(request)
    # a password that was typed into the wrong field must not get into the log
    known = await parts.store.accounts.find_by_login(login) if 0 < len(login) <= MAX_LOGIN else None
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
    validate_password(new, login=account.login, name=account.name)
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
    if wait or not rates.take_token("logins", f"login:{login[:MAX_LOGIN]}", times=_LOGIN_SHARE):
        return wait
    return rates.take_token(
        "logins", f"login:{login[:MAX_LOGIN]}:{make_site_key(address)}", times=_SITE_SHARE
    )


def _require_session_account(request: Request) -> Account:
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
    flow = SignInFlow.begin(provider.issuer.id, request.query_params.get("next"), at)
    address = await provider.build_authorization_url(flow, at)
    response = RedirectResponse(address, 303, {"cache-control": "no-store"})
    for name in list_stale_flows(request.cookies, settings.flow_cookie, at):
        set_cookie(response, name, Secret(""), settings.is_https, 0)
    name = f"{settings.flow_cookie}-{flow.id}"
    set_cookie(response, name, flow.to_cookie(), settings.is_https, FLOW_SECONDS)
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
    parameters = {name: request.query_params.getlist(name) for name in CALLBACK_PARAMETERS}
    name, cookie = find_flow_cookie(request.cookies, parts.settings.flow_cookie, parameters["state"])
    response: Response
    try:
        flow, code = await check_callback(provider, cookie, parameters, parts.clock())
        person = (await provider.redeem_code(code, flow, parts.clock())).person
        account = await find_or_create_account(parts.store, provider.issuer, person, parts.clock())
        account = await apply_group_roles(parts.store, account, provider.issuer, person, parts.clock())
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
