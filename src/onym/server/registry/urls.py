"""Every link of the service, from one builder: no template and no handler writes a path of its own."""

from __future__ import annotations

from typing import Final

from onym.uri._percent import QUERY_NAME, QUERY_VALUE, SEGMENT

__all__ = [
    "API",
    "account",
    "api",
    "asset",
    "audit",
    "change",
    "compare",
    "download",
    "entries",
    "entry",
    "entry_events",
    "export",
    "feed",
    "help_page",
    "history",
    "home",
    "login",
    "logout",
    "oidc",
    "path",
    "queue",
    "request",
    "request_edit",
    "request_events",
    "requests",
    "review",
    "search",
    "submit",
    "token_revoke",
]

#: where the JSON API begins
API: Final = "/api/v1"
#: segments below a registry that are pages; an entry of such a name is found behind `-`, which begins no name
_TAKEN: Final = frozenset({"changes.atom", "-"})

home: Final = "/"
submit: Final = "/submit"
submit_check: Final = "/submit/check"
login: Final = "/login"
logout: Final = "/logout"
account: Final = "/account"
tokens: Final = "/account/tokens"
sign_out_everywhere: Final = "/account/sign-out-everywhere"
audit: Final = "/audit"
password: Final = "/account/password"  # noqa: S105 - an address
openapi: Final = "/openapi.json"


def path(*segments: str, **query: str | int | None) -> str:
    """A path of raw segments, each percent-encoded, and a query of what is not None or empty."""
    text = "/" + "/".join(SEGMENT.quote(each) for each in segments)
    pairs = [
        f"{QUERY_NAME.quote(name.rstrip('_'))}={QUERY_VALUE.quote(str(value))}"
        for name, value in query.items()
        if value not in (None, "")
    ]
    return f"{text}?{'&'.join(pairs)}" if pairs else text


def api(*segments: str, **query: str | int | None) -> str:
    """A path of the JSON API."""
    return API + path(*segments, **query)


def asset(name: str, version: str) -> str:
    """A file of `static/`; `version` makes a changed file another address."""
    return f"/static/{name}?v={version}"


def entries(registry: str, **query: str | int | None) -> str:
    """The list of a registry."""
    return path("r", registry, **query)


def entry(registry: str, name: str) -> str:
    """The stable address of an entry."""
    return path("r", registry, "-", "entry", name) if name in _TAKEN else path("r", registry, name)


def history(registry: str, name: str, before: int) -> str:
    """An entry's events before that number, on its page."""
    return f"{entry(registry, name)}?before={before}#history"


def request_history(identifier: str, before: int) -> str:
    """A request's events before that number, on its page."""
    return f"{request(identifier)}?before={before}#history"


def compare(registry: str, name: str, before: int | None = None, after: int | None = None) -> str:
    """Two versions of an entry, side by side."""
    return path("r", registry, name, "compare", before=before, after=after)


def change(registry: str, name: str, kind: str | None = None) -> str:
    """The forms that change an entry."""
    return path("r", registry, name, "change", kind=kind)


def entry_events(registry: str, name: str) -> str:
    """Where a change of an entry is sent."""
    return path("r", registry, name, "events")


def download(registry: str, name: str, form: str) -> str:
    """One entry as a file."""
    return path("r", registry, name, "download", form)


def export(registry: str, form: str) -> str:
    """A whole registry as a file, from the API."""
    return api("registries", registry, "export", form)


def feed(registry: str) -> str:
    """The Atom feed of a registry's changes."""
    return path("r", registry, "changes.atom")


def search(**query: str | int | None) -> str:
    """Search across the registries."""
    return path("search", **query)


def requests(**query: str | int | None) -> str:
    """The list of requests."""
    return path("requests", **query)


def request(identifier: str) -> str:
    """The public status page of a request."""
    return path("requests", identifier)


def request_edit(identifier: str) -> str:
    """The form that revises a request."""
    return path("requests", identifier, "edit")


def request_events(identifier: str) -> str:
    """Where a step of a request is sent."""
    return path("requests", identifier, "events")


def review(identifier: str) -> str:
    """Template and report side by side, with the decisions that are open."""
    return path("requests", identifier, "review")


def queue(role: str) -> str:
    """What waits for a role: expert, iana or iesg."""
    return path("queue", role)


def token_revoke(identifier: str) -> str:
    """Where an API token is revoked."""
    return path("account", "tokens", identifier, "revoke")


def oidc(provider: str) -> str:
    """Where signing in with an OpenID provider begins."""
    return path("login", "oidc", provider)


def help_page(anchor: str | None = None) -> str:
    """The procedure, in plain words and as a picture."""
    return path("help") + ("" if anchor is None else f"#{anchor}")
