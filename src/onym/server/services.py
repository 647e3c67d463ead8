"""The services that handlers share: settings, store, clock, sign-in and page templates.

`create_app` takes a `Pages`, which the registry's templates implement. `PlainPages` renders the same pages
without style sheets or scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import HTTPConnection, Request

    from onym.accounts.oidc import OIDCProvider
    from onym.accounts.passwords import Passwords
    from onym.accounts.records import Account, ApiToken
    from onym.errors import OnymError
    from onym.registry.store import Store
    from onym.server.security.clients import TokenBuckets
    from onym.server.settings import Settings
    from onym.uri.secret import Secret


def make_template_environment(package: str) -> Environment:
    """Return the templates of a package. They escape all values and reject undefined names."""
    from jinja2 import (
        Environment,
        PackageLoader,
        StrictUndefined,
    )  # late: an application that serves only the API needs no Jinja

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """The content of an error page. `sign_in` is the sign-in URL, or "" if signing in does not help."""

    status: int
    title: str
    detail: str
    code: str
    request_id: str
    hint: str = ""
    clause: str = ""
    field: str = ""
    sign_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInView:
    """The sign-in form: POST `login`, `password`, `next` and `csrf_token` to `/login`.

    `providers` are (title, URL) pairs of OpenID providers, `error` is the reason of the last failure.
    """

    csrf_token: str
    next: str
    providers: tuple[tuple[str, str], ...] = ()
    login: str = ""
    error: OnymError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """The visitor's account.

    Its forms have a `csrf_token`: `/account/tokens` (label, scopes several times, days),
    `/account/tokens/{id}/revoke`, `/account/password` (password, new_password),
    `/account/sign-out-everywhere`. `new_token` is shown once, `error` is the error of the last form.
    """

    csrf_token: str
    account: Account
    tokens: tuple[ApiToken, ...]
    new_token: Secret | None = None
    error: OnymError | None = None


class Pages(Protocol):
    """A renderer of pages; its methods return whole HTML documents."""

    def render_problem(self, request: Request, view: ProblemView) -> str:
        """Return the error page."""
        ...

    def render_sign_in(self, request: Request, view: SignInView) -> str:
        """Return the sign-in page."""
        ...

    def render_account(self, request: Request, view: AccountView) -> str:
        """Return the account page."""
        ...


_DOCUMENT: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    '<meta name="viewport" content="width=device-width"></head><body><main><h1>{title}</h1>{body}</main>'
    "</body></html>"
)
_ENDS: Final = (("/logout", "Sign out"), ("/account/sign-out-everywhere", "Sign out everywhere"))


class PlainPages:
    """Pages without style sheets and scripts."""

    def render_problem(self, request: Request, view: ProblemView) -> str:
        """Return the error page."""
        lines = [view.detail, view.hint, view.clause and f"Rule: {view.clause}"]
        body = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
        body += f"<p><small>{escape(view.code)} · {escape(view.request_id)}</small></p>"
        if view.sign_in:
            body += f'<p><a href="{escape(view.sign_in)}">Sign in</a></p>'
        return _render_document(view.title, body)

    def render_sign_in(self, request: Request, view: SignInView) -> str:
        """Return the sign-in page."""
        fault = f'<p role="alert">{escape(view.error.message)}</p>' if view.error else ""
        form = (
            '<form method="post" action="/login">'
            + _render_hidden_fields(csrf_token=view.csrf_token, next=view.next)
            + f'<p><label>Login <input name="login" value="{escape(view.login)}" required '
            'autocomplete="username"></label></p><p><label>Password <input name="password" type="password" '
            'required autocomplete="current-password"></label></p><p><button>Sign in</button></p></form>'
        )
        links = "".join(
            f'<p><a href="{escape(href)}">Sign in with {escape(title)}</a></p>'
            for title, href in view.providers
        )
        return _render_document("Sign in", fault + form + links)

    def render_account(self, request: Request, view: AccountView) -> str:
        """Return the account page."""
        parts = [f"<p>{escape(view.account.name)} ({escape(view.account.login)})</p>"]
        if view.error is not None:
            parts.append(f'<p role="alert">{escape(view.error.message)}</p>')
        if view.new_token is not None:
            parts.append(f"<p>Your new token, shown once: <code>{escape(view.new_token.reveal())}</code></p>")
        hidden = _render_hidden_fields(csrf_token=view.csrf_token)
        parts.extend(
            f'<form method="post" action="/account/tokens/{escape(token.id)}/revoke">{hidden}<p>'
            f"{escape(token.label)}: {escape(' '.join(sorted(token.scopes)))} <button>Revoke</button></p>"
            "</form>"
            for token in view.tokens
        )
        parts.extend(
            f'<form method="post" action="{action}">{hidden}<button>{text}</button></form>'
            for action, text in _ENDS
        )
        return _render_document("Account", "".join(parts))


def _render_document(title: str, body: str) -> str:
    return _DOCUMENT.format(title=escape(title), body=body)


def _render_hidden_fields(**values: str) -> str:
    return "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in values.items()
    )


_STATE_KEY: Final = "onym"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one application. `clock` returns the time in UTC, `monotonic` seconds."""

    settings: Settings
    store: Store
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    pages: Pages
    passwords: Passwords
    rates: TokenBuckets
    providers: Mapping[str, OIDCProvider]


def get_services(request: HTTPConnection) -> Services:
    """Return the services of the application that serves this request."""
    return cast("Services", request.app.state.services)


def get_request_state(scope: Any) -> dict[str, Any]:
    """Return the middlewares' data about this request: request_id, address, visitor, audit and code."""
    return cast("dict[str, Any]", scope.setdefault(_STATE_KEY, {}))
