"""Every URL of the registry service, and one route for all methods of a URL.

Templates and handlers do not write paths themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from onym.registry.service import FeedAddresses
from onym.uri.components import QUERY_NAME, QUERY_VALUE, SEGMENT

if TYPE_CHECKING:
    from starlette.requests import Request

Handler = Callable[["Request"], Awaitable[Response]]


def make_route(path: str, handlers: Mapping[str, Handler], *, name: str | None = None) -> Route:
    """Return a route for all methods of one URL (RFC 9110 9.3.7, 15.5.6)."""
    allow = ", ".join(sorted({*handlers, "OPTIONS", *({"HEAD"} if "GET" in handlers else ())}))

    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        handler = handlers.get(method)
        if handler is not None:
            return await handler(request)
        if method == "OPTIONS":
            return Response(status_code=204, headers={"allow": allow})
        raise HTTPException(405, headers={"allow": allow})

    # serve() gets every method: Starlette's 405 would know only one route
    route = Route(path, serve, name=name or path)
    route.methods = set()
    return route


#: prefix of the JSON API
API_PREFIX: Final = "/api/v1"
#: segments below a registry that are pages, or files of a mirror; entries of these names are below `-`
_TAKEN: Final = frozenset({"changes.atom", "-", "index.html"})

HOME_URL: Final = "/"
SUBMIT_URL: Final = "/submit"
SUBMIT_CHECK_URL: Final = "/submit/check"
LOGIN_URL: Final = "/login"
LOGOUT_URL: Final = "/logout"
ACCOUNT_URL: Final = "/account"
TOKENS_URL: Final = "/account/tokens"
SIGN_OUT_EVERYWHERE_URL: Final = "/account/sign-out-everywhere"
AUDIT_URL: Final = "/audit"
ACCOUNTS_URL: Final = "/accounts"
#: the cookie with a visitor's language
LANGUAGE_COOKIE: Final = "onym-language"
PASSWORD_URL: Final = "/account/password"  # noqa: S105 - an address
OPENAPI_URL: Final = "/openapi.json"
STATISTICS_URL: Final = "/statistics"


def build_path(*segments: str, **query: str | int | None) -> str:
    """Return a path of percent-encoded segments, and a query of the values that are not None or empty."""
    text = "/" + "/".join(SEGMENT.quote(segment) for segment in segments)
    pairs = [
        f"{QUERY_NAME.quote(name.rstrip('_'))}={QUERY_VALUE.quote(str(value))}"
        for name, value in query.items()
        if value not in (None, "")
    ]
    return f"{text}?{'&'.join(pairs)}" if pairs else text


def api_url(*segments: str, **query: str | int | None) -> str:
    """A path of the JSON API."""
    return API_PREFIX + build_path(*segments, **query)


def entries_url(registry: str, **query: str | int | None) -> str:
    """The list of a registry."""
    return build_path("r", registry, **query)


def entry_url(registry: str, name: str) -> str:
    """The stable URL of an entry."""
    return (
        build_path("r", registry, "-", "entry", name) if name in _TAKEN else build_path("r", registry, name)
    )


def compare_url(registry: str, name: str, before: int | None = None, after: int | None = None) -> str:
    """Two versions of an entry, side by side."""
    return build_path("r", registry, name, "compare", before=before, after=after)


def change_url(registry: str, name: str, kind: str | None = None) -> str:
    """The forms that change an entry."""
    return build_path("r", registry, name, "change", kind=kind)


def entry_events_url(registry: str, name: str) -> str:
    """The URL that accepts changes of an entry."""
    return build_path("r", registry, name, "events")


def download_url(registry: str, name: str, form: str) -> str:
    """One entry as a file."""
    return build_path("r", registry, name, "download", form)


def export_url(registry: str, form: str) -> str:
    """A whole registry as a file, from the API."""
    return api_url("registries", registry, "export", form)


def feed_url(registry: str | None) -> str:
    """The Atom feed of a registry's changes; None is the feed of all registries."""
    return build_path("changes.atom") if registry is None else build_path("r", registry, "changes.atom")


def search_url(**query: str | int | None) -> str:
    """Search across the registries."""
    return build_path("search", **query)


def requests_url(**query: str | int | None) -> str:
    """The list of requests."""
    return build_path("requests", **query)


def request_url(identifier: str) -> str:
    """The public status page of a request."""
    return build_path("requests", identifier)


def request_edit_url(identifier: str) -> str:
    """The form that revises a request."""
    return build_path("requests", identifier, "edit")


def request_events_url(identifier: str) -> str:
    """The URL that accepts events of a request."""
    return build_path("requests", identifier, "events")


def review_url(identifier: str) -> str:
    """Template and report side by side, with the possible decisions."""
    return build_path("requests", identifier, "review")


def queue_url(role: str) -> str:
    """The queue of a role: expert, iana or iesg."""
    return build_path("queue", role)


def language_url(language: str, back: str) -> str:
    """The URL that chooses a language and leads back to a page."""
    return build_path("language", language, next=back)


def accounts_url(**query: str | int | None) -> str:
    """The accounts, for administrators."""
    return build_path("accounts", **query)


def account_url(identifier: str, act: str | None = None) -> str:
    """One account, or the URL that accepts an act on it: details, roles, disable, enable or password."""
    return build_path("accounts", identifier, *(() if act is None else (act,)))


def redact_url(registry: str) -> str:
    """The form that removes personal data from the log of a registry."""
    return build_path("r", registry, "-", "redact")


def token_revoke_url(identifier: str) -> str:
    """The URL that revokes an API token."""
    return build_path("account", "tokens", identifier, "revoke")


def help_url(anchor: str | None = None) -> str:
    """The help page with the procedures."""
    return build_path("help") + ("" if anchor is None else f"#{anchor}")


def make_feed_addresses(origin: str, registry: str | None) -> FeedAddresses:
    """Where the links of a registry's feed (None: of all registries) lead, if the service is at `origin`."""
    return FeedAddresses(
        home=origin + (HOME_URL if registry is None else entries_url(registry)),
        entry=lambda entry: origin + entry_url(entry.registry, entry.name),
        feed=origin + feed_url(registry),
    )
