"""People at a gateway: sign-in at an OpenID provider, step-up, sign-out, and the page about one's sessions.

Other handlers use three functions. `find_session` returns the session of this browser, or None;
`require_session` raises 401 with a link to the sign-in page; `require_step_up` also wants an authentication
of a kind or an age (RFC 9470), and returns the redirect that asks the provider for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from onym.accounts import sign_in
from onym.errors import (
    AccessError,
    AIIPError,
    DeniedError,
    NetError,
    OnymError,
    ProviderError,
    SignatureError,
)
from onym.server.clients import format_cookie
from onym.server.gateway import sessions as gateway_sessions
from onym.server.gateway.dependencies import parse_pairs, read_body, read_form, record_event, require_rate
from onym.server.gateway.responses import PAGE_POLICY, format_time, make_page_response, render_page
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.accounts.oidc import OIDCProvider, Person, SignedIn
    from onym.server.gateway.dependencies import Dependencies, RequestContext
    from onym.server.gateway.sessions import PersonSession, PersonSessions

_LOG: Final = logging.getLogger("onym.server.gateway")
_FORM: Final = "application/x-www-form-urlencoded"
#: a provider signs out many people from one address
_LOGOUT_SHARE: Final = 50
_MOST_ACR_VALUES: Final = 8
#: digits of a `max_age`
_LONGEST_AGE: Final = 8
_SIGNED_OUT: Final = "/auth/signed-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderView:
    """A provider on the sign-in page. `url` begins the sign-in."""

    id: str
    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInView:
    """The page that offers the providers. `next` is the path to open after signing in."""

    providers: tuple[ProviderView, ...]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session on the account page. Times are text in UTC; `id` ends it, `current` is this browser's."""

    id: str
    browser: str
    created: str
    seen: str
    expires: str
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """The page about the person who is signed in."""

    provider: str
    issuer: str
    subject: str
    name: str | None
    email: str | None
    acr: str | None
    amr: tuple[str, ...]
    authenticated: str | None
    sessions: tuple[SessionView, ...]


async def find_session(parts: Dependencies, visit: RequestContext) -> PersonSession | None:
    """Return the session of this browser, or None. Raises StoreError if the store cannot be reached."""
    if visit.session is None and parts.sessions is not None:
        cookie = visit.cookies.get(parts.settings.session_cookie, "")
        visit.session = await parts.sessions.find(cookie)
    return visit.session


async def require_session(parts: Dependencies, visit: RequestContext) -> PersonSession:
    """Return the session of this browser.

    Raises AIIPError `aiip.sign-in-required` (401), whose page has a link to the sign-in page, and StoreError.
    """
    session = await find_session(parts, visit)
    if session is None:
        raise gateway_sessions.make_sign_in_required()
    return session


async def require_step_up(
    parts: Dependencies,
    visit: RequestContext,
    *,
    acr_values: Sequence[str] = (),
    max_age: int | None = None,
    target: str | None = None,
) -> PersonSession | Response:
    """Return the session if its authentication is of one of `acr_values` and at most `max_age` seconds old.

    Otherwise return the redirect to the provider that asks for such an authentication. It leads back to
    `target` (default: the page of this GET request) with a session that has it, or to a page that tells why
    not; so a page asks once. Raises DeniedError for a form, whose page has a link to the same, because the
    policy of the pages lets a form lead to this gateway only; DeniedError `aiip.step-up-required` for a
    program; AIIPError `aiip.sign-in-required`, and `aiip.unavailable` if the provider cannot be reached.
    """
    session = await require_session(parts, visit)
    at = parts.clock()
    shortfall = session.person.find_shortfall(acr_values, max_age, at)
    if shortfall is None:
        return session
    provider = parts.providers.get(session.provider)
    if not visit.wants_page or provider is None:
        raise DeniedError(
            "this needs a sign-in of another kind, or a more recent one",
            code="aiip.step-up-required",
            hint="Open the page in a browser and sign in again.",
        )
    if target is None:
        target = visit.target
    if visit.method == "POST":
        visit.step_up_path = gateway_sessions.build_step_up_path(
            target, acr_values=acr_values, max_age=max_age
        )
        raise DeniedError(
            "this needs a sign-in of another kind, or a more recent one",
            code="aiip.step-up-required",
            hint="Sign in again. You then come back to the page, on which you can do it.",
        )
    flow = sign_in.SignInFlow.begin(
        provider.issuer.id, target, at, acr_values=acr_values, max_age=max_age, session=session.digest
    )
    record_event(parts, visit, "step-up", session.person, provider=provider.issuer.id, decision="asked")
    return await _redirect_to_provider(parts, visit, provider, flow)


async def _redirect_to_provider(
    parts: Dependencies, visit: RequestContext, provider: OIDCProvider, flow: sign_in.SignInFlow
) -> Response:
    at, sessions = parts.clock(), parts.sessions
    if sessions is None:
        raise gateway_sessions.make_sign_in_required()
    try:
        url = await provider.build_authorization_url(flow, at)
    except OnymError as error:
        raise convert_provider_error(visit, provider, error) from error
    prefix = parts.settings.flow_cookie
    for name in sign_in.list_stale_flows(_verify_flows(sessions, visit, prefix), prefix, at):
        _set_cookie(parts, visit, name, Secret(""), 0)
    name = f"{prefix}-{flow.id}"
    _set_cookie(parts, visit, name, sessions.sign_flow(name, flow.to_cookie()), sign_in.FLOW_SECONDS)
    return RedirectResponse(url, 303)


def _verify_flows(sessions: PersonSessions, visit: RequestContext, prefix: str) -> dict[str, str]:
    """Return the cookies of this browser's sign-ins, with "" for those that this gateway has not set."""
    return {
        name: sessions.verify_flow(name, value)
        for name, value in visit.cookies.items()
        if name.startswith(f"{prefix}-")
    }


def _set_cookie(
    parts: Dependencies, visit: RequestContext, name: str, value: Secret, life: int | None = None
) -> None:
    """Set a cookie with the response, whatever that is. `life` is in seconds; 0 deletes the cookie."""
    # Lax: the redirect of the provider, which is another site, must bring the cookie
    cookie = format_cookie(name, value, "Lax", https=parts.settings.is_https, life=life)
    visit.new_cookies.append(cookie)


def convert_provider_error(visit: RequestContext, provider: OIDCProvider, error: OnymError) -> OnymError:
    """Return an error of a provider as the person sees it."""
    title = provider.issuer.title or provider.issuer.id
    if isinstance(error, AccessError):
        if error.code == "accounts.step-up-required":
            return DeniedError(error.message, code="aiip.step-up-required", hint=error.hint)
        _LOG.warning("request %s: a sign-in at %s failed: %s", visit.id, title, error.message)
        return AIIPError(error.message, code="aiip.sign-in-failed", hint=error.hint)
    if isinstance(error, SignatureError):
        _LOG.warning("request %s: an ID token of %s is invalid: %s", visit.id, title, error.code)
        return AIIPError(
            f"the ID token of {title} is not valid",
            code="aiip.sign-in-failed",
            hint="Sign in again. If it fails again, ask the operator of this gateway.",
        )
    if isinstance(error, NetError | ProviderError):
        _LOG.warning("request %s: %s cannot be used: %s (%s)", visit.id, title, error.code, error.message)
        return AIIPError(
            f"{title} cannot be reached now, so you cannot sign in there; sessions continue",
            code="aiip.unavailable",
            retryable=True,
            hint="Try again later.",
        )
    return error


def make_view_response(
    parts: Dependencies,
    visit: RequestContext,
    template: str,
    view: Any,
    *,
    headers: dict[str, str] | None = None,
    **members: Any,
) -> Response:
    """Return a view as a page, or as JSON for a program."""
    fields = {"vary": "Accept, Cookie", **(headers or {})}
    if visit.wants_page:
        return make_page_response(render_page(template, parts.settings, view=view, **members), 200, fields)
    return Response(msgspec.json.encode(view), 200, fields, media_type="application/json")


class PeopleHandler:
    """Handles the requests below `/auth` and `/account`."""

    def __init__(self, parts: Dependencies) -> None:
        self._parts = parts
        self._pages = {
            "/auth/login": self._show_sign_in,
            "/auth/step-up": self._begin_step_up,
            "/auth/signed-out": self._show_signed_out,
        }

    async def handle_request(self, visit: RequestContext, method: str) -> Response:
        """Return the response to this request. Raises OnymError."""
        sessions = self._parts.sessions
        if sessions is None:
            raise AIIPError(
                "this gateway has no sign-in",
                code="aiip.endpoint-unknown",
                hint="The operator can add [[providers]] to its settings.",
            )
        path = visit.path.decode("latin-1")
        if method == "GET" and path in self._pages:
            return await self._pages[path](visit)
        match method, path.split("/")[1:]:
            case "GET", ["auth", "login", name]:
                return await self._begin_sign_in(visit, self._find_provider(name))
            case "GET", ["auth", "callback", name]:
                return await self._finish_sign_in(visit, self._find_provider(name), sessions)
            case "POST", ["auth", "logout"]:
                return await self._sign_out(visit, sessions)
            case "POST", ["auth", "logout", name]:
                return await self._end_by_provider(visit, self._find_provider(name), sessions)
            case "GET", ["account"]:
                return await self._show_account(visit, sessions)
            case "POST", ["account", "sessions", "end"]:
                return await self._end_sessions(visit, sessions)
        raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")

    def _find_provider(self, name: str) -> OIDCProvider:
        provider = self._parts.providers.get(name)
        if provider is None:
            raise AIIPError("this gateway has no such provider", code="aiip.endpoint-unknown")
        return provider

    async def _show_sign_in(self, visit: RequestContext) -> Response:
        target = sign_in.sanitize_target(dict(parse_pairs(visit.query)).get("next"))
        if visit.wants_page and await find_session(self._parts, visit) is not None:
            return RedirectResponse(target, 303)
        query = urlencode({"next": target})
        view = SignInView(
            providers=tuple(
                ProviderView(
                    id=provider.issuer.id,
                    title=provider.issuer.title or provider.issuer.id,
                    url=f"/auth/login/{provider.issuer.id}?{query}",
                )
                for provider in self._parts.providers.values()
            ),
            next=target,
        )
        return make_view_response(self._parts, visit, "sign_in.html", view)

    async def _show_signed_out(self, visit: RequestContext) -> Response:
        return make_view_response(self._parts, visit, "signed_out.html", {"signed_out": True})

    async def _begin_sign_in(self, visit: RequestContext, provider: OIDCProvider) -> Response:
        await self._take_login_token(visit, "begin")
        target = dict(parse_pairs(visit.query)).get("next")
        flow = sign_in.SignInFlow.begin(provider.issuer.id, target, self._parts.clock())
        return await _redirect_to_provider(self._parts, visit, provider, flow)

    async def _begin_step_up(self, visit: RequestContext) -> Response:
        """Ask for `acr_values` and `max_age` of the query, then open `next`."""
        await self._take_login_token(visit, "begin")
        query = dict(parse_pairs(visit.query))
        target = sign_in.sanitize_target(query.get("next"))
        acr_values, age = query.get("acr_values", "").split(), query.get("max_age", "")
        if len(acr_values) > _MOST_ACR_VALUES or (age and not (age.isdecimal() and len(age) <= _LONGEST_AGE)):
            raise AIIPError("acr_values or max_age cannot be read", code="aiip.bad-request")
        max_age = int(age) if age else None
        outcome = await require_step_up(
            self._parts, visit, acr_values=acr_values, max_age=max_age, target=target
        )
        return outcome if isinstance(outcome, Response) else RedirectResponse(target, 303)

    async def _take_login_token(self, visit: RequestContext, step: str, times: int = 1) -> None:
        await require_rate(self._parts, "logins", f"{step}:{visit.client}", "too many sign-ins", times=times)

    async def _finish_sign_in(
        self, visit: RequestContext, provider: OIDCProvider, sessions: PersonSessions
    ) -> Response:
        """Finish a sign-in or a step-up: back from the provider, with a code or an error."""
        parts = self._parts
        await self._take_login_token(visit, "callback")
        parameters: dict[str, list[str]] = {name: [] for name in sign_in.CALLBACK_PARAMETERS}
        for name, value in parse_pairs(visit.query):
            if name in parameters:
                parameters[name].append(value)
        prefix = parts.settings.flow_cookie
        flows = _verify_flows(sessions, visit, prefix)
        name, cookie = sign_in.find_flow_cookie(flows, prefix, parameters["state"])
        if name in flows:
            # whatever comes of it, this response is the end of the flow
            _set_cookie(parts, visit, name, Secret(""), 0)
        event = "sign-in"
        try:
            flow, code = await sign_in.check_callback(provider, cookie, parameters, parts.clock())
            event = "step-up" if flow.session else "sign-in"
            if not await sessions.use_flow(flow.id, flow.expires):
                raise sign_in.make_sign_in_error("the provider's response was used before")
            previous = await find_session(parts, visit)
            if flow.session and (previous is None or previous.digest != flow.session):
                raise _make_step_up_error("your session has ended or changed since", "Open the page again.")
            signed = await provider.redeem_code(code, flow, parts.clock())
            session = await self._open_session(visit, provider, sessions, flow, signed, previous)
        except OnymError as error:
            shown = convert_provider_error(visit, provider, error)
            record_event(parts, visit, event, provider=provider.issuer.id, decision="refuse", code=shown.code)
            raise shown from error
        try:
            record_event(
                parts,
                visit,
                event,
                session.person,
                provider=provider.issuer.id,
                decision="permit",
                acr=session.person.acr,
            )
        except OnymError:
            await sessions.end(session)
            raise
        _set_cookie(parts, visit, parts.settings.session_cookie, session.secret or Secret(""))
        return RedirectResponse(flow.target, 303)

    async def _open_session(
        self,
        visit: RequestContext,
        provider: OIDCProvider,
        sessions: PersonSessions,
        flow: sign_in.SignInFlow,
        signed: SignedIn,
        previous: PersonSession | None,
    ) -> PersonSession:
        """Return the new session of this browser, in place of its previous one."""
        # the cookie tells it, so it may be in the future
        began = min(flow.began, self._parts.clock().timestamp())
        if flow.session and previous is not None:
            if not gateway_sessions.is_same_person(signed.person, previous.person):
                raise _make_step_up_error(
                    "another person signed in", "Sign in as the person that you are here, or sign out first."
                )
            return await sessions.renew(previous, signed.person, signed.tokens, began=began)
        session = await sessions.create(
            signed.person,
            signed.tokens,
            provider=provider.issuer.id,
            client_id=provider.issuer.client_id,
            began=began,
            browser=gateway_sessions.describe_browser(visit.get_field("user-agent") or ""),
        )
        if previous is not None:
            await sessions.end(previous)
        return session

    async def _sign_out(self, visit: RequestContext, sessions: PersonSessions) -> Response:
        """End this browser's session, and go on to the provider's own sign-out page."""
        await read_form(self._parts, visit)
        session = await find_session(self._parts, visit)
        url = _SIGNED_OUT
        if session is not None:
            await sessions.end(session)
            record_event(self._parts, visit, "logout", session.person, provider=session.provider, ended=1)
            url = await self._build_sign_out_url(visit, session) or url
        _set_cookie(self._parts, visit, self._parts.settings.session_cookie, Secret(""), 0)
        if visit.wants_page:
            return RedirectResponse(url, 303)
        body = {"signed_out": True, "provider_sign_out": None if url == _SIGNED_OUT else url}
        return Response(msgspec.json.encode(body), 200, media_type="application/json")

    async def _build_sign_out_url(self, visit: RequestContext, session: PersonSession) -> str | None:
        """Return the URL of the provider's sign-out page, or None if there is none or it is not known now."""
        provider = self._parts.providers.get(session.provider)
        if provider is None:
            return None
        try:
            return await provider.build_sign_out_url(self._parts.settings.base_url + _SIGNED_OUT)
        except (NetError, ProviderError) as error:
            _LOG.warning("request %s: no sign-out at %s: %s", visit.id, session.provider, error.code)
            return None

    async def _end_by_provider(
        self, visit: RequestContext, provider: OIDCProvider, sessions: PersonSessions
    ) -> Response:
        """End the sessions that a logout token names (OpenID Connect Back-Channel Logout 1.0, 2.5 to 2.8)."""
        await self._take_login_token(visit, "logout", _LOGOUT_SHARE)
        kind = (visit.get_field("content-type") or "").partition(";")[0].strip().lower()
        pairs = parse_pairs(await read_body(self._parts, visit)) if kind == _FORM else []
        tokens = [value for name, value in pairs if name == "logout_token"]
        if len(tokens) != 1:
            return _make_logout_failure("the request has no logout_token, or more than one")
        try:
            token = await provider.verify_logout(tokens[0], self._parts.clock())
        except SignatureError as error:
            record_event(
                self._parts, visit, "logout", provider=provider.issuer.id, decision="refuse", code=error.code
            )
            return _make_logout_failure(error.message)
        except (NetError, ProviderError) as error:
            raise convert_provider_error(visit, provider, error) from error
        ended = await sessions.end_signed_out(token)
        if ended is None:
            return _make_logout_failure("the logout token was used before")
        record_event(self._parts, visit, "logout", provider=provider.issuer.id, ended=ended)
        return Response(None, 200)

    async def _show_account(self, visit: RequestContext, sessions: PersonSessions) -> Response:
        session = await require_session(self._parts, visit)
        person = session.person
        view = AccountView(
            provider=self._get_title(session),
            issuer=person.issuer,
            subject=person.subject,
            name=person.name,
            email=person.email,
            acr=person.acr,
            amr=person.amr,
            authenticated=None if person.auth_time is None else format_time(person.auth_time),
            sessions=tuple(
                SessionView(
                    id=found.digest,
                    browser=found.browser,
                    created=format_time(found.created),
                    seen=format_time(found.seen),
                    expires=format_time(found.expires),
                    current=found.digest == session.digest,
                )
                for found in await sessions.list_sessions(person)
            ),
        )
        headers = {"content-security-policy": await self._build_policy(visit, session)}
        csrf = visit.form_key.token
        programs = self._parts.programs is not None
        return make_view_response(
            self._parts, visit, "account.html", view, headers=headers, csrf=csrf, programs=programs
        )

    def _get_title(self, session: PersonSession) -> str:
        provider = self._parts.providers.get(session.provider)
        return session.provider if provider is None else provider.issuer.title or provider.issuer.id

    async def _build_policy(self, visit: RequestContext, session: PersonSession) -> str:
        """Return the page's policy: signing out leads from a form to the provider, which browsers check."""
        url = await self._build_sign_out_url(visit, session)
        if url is None:
            return PAGE_POLICY
        uri = URI.parse(url)
        port = "" if uri.port is None else f":{uri.port}"
        return PAGE_POLICY.replace(
            "form-action 'self'", f"form-action 'self' {uri.scheme}://{uri.host}{port}"
        )

    async def _end_sessions(self, visit: RequestContext, sessions: PersonSessions) -> Response:
        """End one session of the person (field `session`), or all (field `all`)."""
        session = await require_session(self._parts, visit)
        form = await read_form(self._parts, visit)
        person: Person = session.person
        if form.get("all"):
            ended = await sessions.end_all(person.issuer, person.subject)
        else:
            ended = int(await sessions.end_one(person, form.get("session", "")))
        record_event(self._parts, visit, "logout", person, provider=session.provider, ended=ended)
        over = bool(form.get("all")) or form.get("session") == session.digest
        if over:
            _set_cookie(self._parts, visit, self._parts.settings.session_cookie, Secret(""), 0)
        if visit.wants_page:
            return RedirectResponse(_SIGNED_OUT if over else "/account", 303)
        body = msgspec.json.encode({"ended": ended, "signed_out": over})
        return Response(body, 200, media_type="application/json")


def _make_step_up_error(message: str, hint: str) -> DeniedError:
    return DeniedError(message, code="aiip.step-up-required", hint=hint)


def _make_logout_failure(message: str) -> Response:
    body = msgspec.json.encode({"error": "invalid_request", "error_description": message})
    return Response(body, 400, media_type="application/json")
