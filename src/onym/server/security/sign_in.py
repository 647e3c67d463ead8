"""Sign-in handlers: the password form, OpenID Connect, signing out, and changing a password.

The server keeps no state between the two steps of an OpenID sign-in. A cookie holds one random secret;
`state`, `nonce` and the code verifier are derived from it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

from onym.accounts.passwords import validate_password
from onym.accounts.records import MAX_LOGIN, Account, make_id, validate_email, validate_name
from onym.accounts.tokens import make_session_id
from onym.common.strict_json import decode_base64url, encode_base64url
from onym.errors import AccessError, OnymError, RegistryError, UnknownEntryError
from onym.server.problems import get_problem_type, make_problem_response, wants_page
from onym.server.security.clients import make_address_key
from onym.server.security.middleware import (
    MAX_FORM_FIELDS,
    MAX_FORM_FILES,
    make_too_many_response,
    set_audit_action,
)
from onym.server.security.sessions import end_session, set_cookie, start_session
from onym.server.security.visitor import get_visitor, require_access
from onym.server.services import SignInView, get_request_state, get_services
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from onym.server.security.credentials import OIDCProvider, Person

HOME: Final = "/"
#: a path that begins with one slash; a backslash counts as a slash in browsers, and tabs vanish
_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*\Z")
_MAX_TARGET_LENGTH: Final = 2000
#: pages that signing in leads to again and again
_SIGN_IN_PATHS: Final = ("/login", "/logout")


def sanitize_target(text: str | None) -> str:
    """The path to go on to, or `HOME` for one that would lead elsewhere or around in a circle."""
    if not text or len(text) > _MAX_TARGET_LENGTH or not _PATH.match(text):
        return HOME
    path = text.partition("?")[0].partition("#")[0]
    # dot segments could climb to another path, but never to another host; "/.//" would in some clients
    if "//" in path or any(segment in {".", ".."} for segment in path.split("/")):
        return HOME
    return HOME if path.startswith(_SIGN_IN_PATHS) else text


_MAX_FIELD_LENGTH: Final = 16 * 1024
_MAX_FORM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SignInForm:
    """What a form holds, by field; a field may come several times."""

    values: Mapping[str, tuple[str, ...]]

    def get_text(self, name: str) -> str:
        """The field's value, "" where it is not there. Raises RegistryError for one that came twice."""
        found = self.values.get(name, ())
        if len(found) > 1:
            raise RegistryError("this field came twice", code="http.bad-form", field=name)
        return found[0] if found else ""

    def get_texts(self, name: str) -> tuple[str, ...]:
        """All values of the field."""
        return self.values.get(name, ())


async def read_form(request: Request) -> SignInForm:
    """The form that the request brings. Raises RegistryError for a body or a field that is too long."""
    values: dict[str, tuple[str, ...]] = {}
    # decoding is work for the whole service: these forms are short
    if len(await request.body()) > _MAX_FORM_BYTES:
        raise RegistryError(
            f"the form is longer than {_MAX_FORM_BYTES} octets", code="http.too-large", field="body"
        )
    async with request.form(
        max_files=MAX_FORM_FILES, max_fields=MAX_FORM_FIELDS, max_part_size=_MAX_FORM_BYTES
    ) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str) or len(value) > _MAX_FIELD_LENGTH:
                raise RegistryError(
                    f"a field is a text of at most {_MAX_FIELD_LENGTH} characters",
                    code="http.bad-form",
                    field=name[:100],
                )
            values[name] = (*values.get(name, ()), value)
    return SignInForm(values)


#: a login may be tried from so many times as many addresses as one address may try
_LOGIN_SHARE = 5


async def sign_in_page(request: Request) -> Response:
    """GET /login: the form; whoever is signed in goes on at once."""
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
    # who types a password into the wrong field must not find it in the log
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
    """Seconds until this address may try again, or this login be tried; 0: now."""
    rates = get_services(request).rates
    wait = rates.take_token("logins", make_address_key(get_visitor(request).address))
    return wait or rates.take_token("logins", f"login:{login[:MAX_LOGIN]}", times=_LOGIN_SHARE)


def _require_session_account(request: Request) -> Account:
    visitor = get_visitor(request)
    account = require_access(visitor)
    if visitor.via != "session":
        raise AccessError("this is done in a browser, not with a token", code="registry.missing-scope")
    return account


def _make_form_response(
    request: Request, target: str, login: str = "", error: OnymError | None = None, status: int = 200
) -> Response:
    parts = get_services(request)
    view = SignInView(
        csrf_token=get_visitor(request).csrf_token,
        next=target,
        providers=tuple((each.title, f"/login/oidc/{each.id}") for each in parts.settings.issuers),
        login=login,
        error=error,
    )
    html = parts.pages.render_sign_in(request, view)
    return HTMLResponse(html, status, {"cache-control": "no-store"})


def _make_refusal_response(request: Request, error: OnymError, target: str, login: str) -> Response:
    if not wants_page(request.scope):
        return make_problem_response(request, error)
    get_request_state(request.scope)["code"] = error.code
    return _make_form_response(request, target, login, error, get_problem_type(error).status)


def _make_wrong_password_error() -> AccessError:
    # one text for all causes: it must not tell which logins there are
    return AccessError(
        "login or password is wrong, or the account is closed",
        code="registry.wrong-password",
        field="password",
        hint="ask the operator for a new password, or sign in another way",
    )


#: seconds that somebody may take at the provider
FLOW_SECONDS: Final = 600
_COOKIE: Final = re.compile(
    r"([A-Za-z0-9_-]{43})\.([a-z0-9-]{1,32})\.([0-9]{1,12})\.([A-Za-z0-9_-]{1,2700})\Z"
)
_CODE: Final = re.compile(r"[\x20-\x7e]{1,4096}\Z")
#: OpenID Connect Core 3.1.2.6 and RFC 6749 4.1.2.1; other words are not repeated
_ERRORS: Final = {
    "access_denied": "you, or the provider, said no",
    "login_required": "you are not signed in there",
    "interaction_required": "the provider needs an answer from you",
    "consent_required": "the provider needs your consent",
    "temporarily_unavailable": "the provider is busy: try again later",
    "server_error": "the provider had an error: try again later",
}


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """One sign-in under way: its secret, the provider, when it is over (epoch seconds) and where it leads."""

    secret: Secret
    provider: str
    expires: int
    target: str

    def derive_text(self, purpose: str) -> str:
        """The text for this purpose: "state", "nonce" or "verifier"; 43 characters of base64url."""
        mac = hmac.new(self.secret.reveal().encode(), f"onym oidc {purpose}".encode(), hashlib.sha256)
        return encode_base64url(mac.digest())

    def to_cookie(self) -> Secret:
        """The cookie's value."""
        target = encode_base64url(self.target.encode())
        return Secret(f"{self.secret.reveal()}.{self.provider}.{self.expires}.{target}")

    @classmethod
    def from_cookie(cls, text: str) -> SignInFlow | None:
        """The flow that a cookie holds, or None."""
        match = _COOKIE.match(text)
        if match is None:
            return None
        try:
            target = decode_base64url(match[4]).decode("utf-8")
        except ValueError:
            return None
        return cls(Secret(match[1]), match[2], int(match[3]), sanitize_target(target))


async def begin_oidc_sign_in(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}: to the provider. `next` is where to go on to afterwards."""
    provider = _find_provider(request)
    parts = get_services(request)
    wait = parts.rates.take_token("logins", make_address_key(get_visitor(request).address))
    if wait:
        return make_too_many_response(request, wait)
    flow = SignInFlow(
        secret=make_session_id(),
        provider=provider.issuer.id,
        expires=int(parts.clock().timestamp()) + FLOW_SECONDS,
        target=sanitize_target(request.query_params.get("next")),
    )
    address = await provider.build_authorization_url(
        state=flow.derive_text("state"),
        nonce=flow.derive_text("nonce"),
        verifier=flow.derive_text("verifier"),
    )
    response = RedirectResponse(address, 303, {"cache-control": "no-store"})
    set_cookie(response, parts.settings.flow_cookie, flow.to_cookie(), parts.settings.is_https, FLOW_SECONDS)
    return response


async def finish_oidc_sign_in(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}/callback: back from the provider, with a code or an error."""
    provider = _find_provider(request)
    parts = get_services(request)
    # a bucket of its own: each answer may cost a line in the audit log and a question to the provider
    wait = parts.rates.take_token("logins", f"callback:{make_address_key(get_visitor(request).address)}")
    if wait:
        return make_too_many_response(request, wait)
    set_audit_action(request, "sign-in.oidc", provider.issuer.id)
    response: Response
    try:
        flow, code = await _parse_callback(request, provider)
        person = await provider.redeem_code(
            code, nonce=flow.derive_text("nonce"), verifier=flow.derive_text("verifier"), at=parts.clock()
        )
        account = await _find_or_create_account(request, provider, person)
        set_audit_action(request, "sign-in.oidc", provider.issuer.id, account=account.id)
        response = RedirectResponse(flow.target, 303, {"cache-control": "no-store"})
        await start_session(request, response, account)
    except OnymError as error:
        response = make_problem_response(request, error)
    # whatever happened, this flow is over
    set_cookie(response, parts.settings.flow_cookie, Secret(""), parts.settings.is_https, 0)
    return response


async def _parse_callback(request: Request, provider: OIDCProvider) -> tuple[SignInFlow, str]:
    """The flow that this answer belongs to, and its code. Raises AccessError."""
    parts = get_services(request)
    flow = SignInFlow.from_cookie(request.cookies.get(parts.settings.flow_cookie, ""))
    given = {name: request.query_params.getlist(name) for name in ("state", "code", "iss", "error")}
    if any(len(values) > 1 for values in given.values()):
        raise _make_sign_in_error("the provider's answer repeats a parameter")
    state, code, issuer, error = (next(iter(values), "") for values in given.values())
    if flow is None or flow.provider != provider.issuer.id or flow.expires <= parts.clock().timestamp():
        raise _make_sign_in_error("this sign-in was not begun in this browser, or took too long")
    if not hmac.compare_digest(state.encode("utf-8", "replace"), flow.derive_text("state").encode()):
        raise _make_sign_in_error("the answer belongs to another sign-in")
    # RFC 9207 2.4: an answer that names its issuer must name the one that was asked
    if issuer != provider.issuer.issuer and (issuer or (await provider.get_metadata()).names_issuer):
        raise _make_sign_in_error("the answer is from another issuer")
    if error:
        raise _make_sign_in_error(_ERRORS.get(error, "the provider reports an error"))
    if not _CODE.match(code):
        raise _make_sign_in_error("the answer holds no code")
    return flow, code


async def _find_or_create_account(request: Request, provider: OIDCProvider, person: Person) -> Account:
    """The account of this issuer and subject; made now where the settings allow it. Never found by e-mail."""
    parts = get_services(request)
    issuer = provider.issuer
    account = await parts.store.accounts.find_by_subject(issuer.issuer, person.subject)
    if account is None and issuer.create:
        made = _make_account(issuer.id, person, request)
        account = await parts.store.accounts.add_linked(made, issuer.issuer, person.subject)
    if account is None or account.disabled:
        raise _make_sign_in_error("there is no open account for this identity", "ask the operator for one")
    return account


def _make_account(provider: str, person: Person, request: Request) -> Account:
    login = make_id(provider)
    return Account(
        id=make_id("user"),
        login=login,
        name=_validate_or_none(validate_name, person.name) or login,
        email=_validate_or_none(validate_email, person.email),
        created=get_services(request).clock(),
    )


def _validate_or_none(check: Callable[[str], str], text: str | None) -> str | None:
    """A provider's word where it is usable: a name that is not is no reason to turn somebody away."""
    try:
        return None if text is None else check(text)
    except RegistryError:
        return None


def _find_provider(request: Request) -> OIDCProvider:
    found = get_services(request).providers.get(request.path_params["provider"])
    if found is None:
        raise UnknownEntryError("no such OpenID provider", code="registry.unknown-provider", field="provider")
    return found


def _make_sign_in_error(message: str, hint: str = "begin again on the sign-in page") -> AccessError:
    return AccessError(message, code="registry.sign-in-failed", hint=hint)
