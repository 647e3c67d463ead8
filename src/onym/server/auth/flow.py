"""Signing in with an OpenID provider: to it, and back.

Nothing is kept here between the two: a cookie holds one random secret, and state, nonce and code verifier
follow from it. An answer that comes to another browser, or a second time, finds no cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from onym.errors import AccessError, OnymError, RegistryError, SignatureError, UnknownEntryError
from onym.registry.accounts import Account, check_email, check_name, new_id, new_session_id
from onym.server.auth.targets import safe_target
from onym.server.problems import problem
from onym.server.security.audit import audit_as
from onym.server.security.rates import address_key, too_many
from onym.server.security.sessions import set_cookie, start_session
from onym.server.security.visitor import current
from onym.server.services import services
from onym.sign._strict import decode, encode
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from onym.server.auth.oidc import Person, Provider

__all__ = ["LIFE", "Flow", "begin", "finish"]

#: seconds that somebody may take at the provider
LIFE: Final = 600
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
class Flow:
    """One sign-in under way: its secret, the provider, when it is over (epoch seconds) and where it leads."""

    secret: Secret
    provider: str
    expires: int
    target: str

    def derived(self, purpose: str) -> str:
        """The text for this purpose: "state", "nonce" or "verifier"; 43 characters of base64url."""
        mac = hmac.new(self.secret.reveal().encode(), f"onym oidc {purpose}".encode(), hashlib.sha256)
        return encode(mac.digest())

    def cookie(self) -> Secret:
        """The cookie's value."""
        target = encode(self.target.encode())
        return Secret(f"{self.secret.reveal()}.{self.provider}.{self.expires}.{target}")

    @classmethod
    def read(cls, text: str) -> Flow | None:
        """The flow that a cookie holds, or None."""
        match = _COOKIE.match(text)
        if match is None:
            return None
        try:
            target = decode(match[4], "target").decode("utf-8")
        except (SignatureError, UnicodeDecodeError):
            return None
        return cls(Secret(match[1]), match[2], int(match[3]), safe_target(target))


async def begin(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}: to the provider. `next` is where to go on to afterwards."""
    provider = _provider(request)
    parts = services(request)
    wait = parts.rates.take("logins", address_key(current(request).address))
    if wait:
        return too_many(request, wait)
    flow = Flow(
        secret=new_session_id(),
        provider=provider.issuer.id,
        expires=int(parts.clock().timestamp()) + LIFE,
        target=safe_target(request.query_params.get("next")),
    )
    address = await provider.authorization(
        state=flow.derived("state"), nonce=flow.derived("nonce"), verifier=flow.derived("verifier")
    )
    response = RedirectResponse(address, 303, {"cache-control": "no-store"})
    set_cookie(response, parts.settings.flow_cookie, flow.cookie(), parts.settings.https, LIFE)
    return response


async def finish(request: Request) -> Response | ASGIApp:
    """GET /login/oidc/{provider}/callback: back from the provider, with a code or an error."""
    provider = _provider(request)
    parts = services(request)
    # a bucket of its own: each answer may cost a line in the audit log and a question to the provider
    wait = parts.rates.take("logins", f"callback:{address_key(current(request).address)}")
    if wait:
        return too_many(request, wait)
    audit_as(request, "sign-in.oidc", provider.issuer.id)
    response: Response
    try:
        flow, code = await _answer(request, provider)
        person = await provider.redeem(
            code, nonce=flow.derived("nonce"), verifier=flow.derived("verifier"), at=parts.clock()
        )
        account = await _account(request, provider, person)
        audit_as(request, "sign-in.oidc", provider.issuer.id, account=account.id)
        response = RedirectResponse(flow.target, 303, {"cache-control": "no-store"})
        await start_session(request, response, account)
    except OnymError as error:
        response = problem(request, error)
    # whatever happened, this flow is over
    set_cookie(response, parts.settings.flow_cookie, Secret(""), parts.settings.https, 0)
    return response


async def _answer(request: Request, provider: Provider) -> tuple[Flow, str]:
    """The flow that this answer belongs to, and its code. Raises AccessError."""
    parts = services(request)
    flow = Flow.read(request.cookies.get(parts.settings.flow_cookie, ""))
    given = {name: request.query_params.getlist(name) for name in ("state", "code", "iss", "error")}
    if any(len(values) > 1 for values in given.values()):
        raise _failed("the provider's answer repeats a parameter")
    state, code, issuer, error = (next(iter(values), "") for values in given.values())
    if flow is None or flow.provider != provider.issuer.id or flow.expires <= parts.clock().timestamp():
        raise _failed("this sign-in was not begun in this browser, or took too long")
    if not hmac.compare_digest(state.encode("utf-8", "replace"), flow.derived("state").encode()):
        raise _failed("the answer belongs to another sign-in")
    # RFC 9207 2.4: an answer that names its issuer must name the one that was asked
    if issuer != provider.issuer.issuer and (issuer or (await provider.metadata()).names_issuer):
        raise _failed("the answer is from another issuer")
    if error:
        raise _failed(_ERRORS.get(error, "the provider reports an error"))
    if not _CODE.match(code):
        raise _failed("the answer holds no code")
    return flow, code


async def _account(request: Request, provider: Provider, person: Person) -> Account:
    """The account of this issuer and subject; made now where the settings allow it. Never found by e-mail."""
    parts = services(request)
    issuer = provider.issuer
    account = await parts.store.accounts.by_subject(issuer.issuer, person.subject)
    if account is None and issuer.create:
        made = _new_account(issuer.id, person, request)
        account = await parts.store.accounts.add_linked(made, issuer.issuer, person.subject)
    if account is None or account.disabled:
        raise _failed("there is no open account for this identity", "ask the operator for one")
    return account


def _new_account(provider: str, person: Person, request: Request) -> Account:
    login = new_id(provider)
    return Account(
        id=new_id("user"),
        login=login,
        name=_or_none(check_name, person.name) or login,
        email=_or_none(check_email, person.email),
        created=services(request).clock(),
    )


def _or_none(check: Callable[[str], str], text: str | None) -> str | None:
    """A provider's word where it is usable: a name that is not is no reason to turn somebody away."""
    try:
        return None if text is None else check(text)
    except RegistryError:
        return None


def _provider(request: Request) -> Provider:
    found = services(request).providers.get(request.path_params["provider"])
    if found is None:
        raise UnknownEntryError("no such OpenID provider", code="registry.unknown-provider", field="provider")
    return found


def _failed(message: str, hint: str = "begin again on the sign-in page") -> AccessError:
    return AccessError(message, code="registry.sign-in-failed", hint=hint)
