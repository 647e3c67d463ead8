"""What every response of the API says beside its content: who may read it, and how long its URL will work.

Reads without an account are shared with pages of all origins (CORS), so that browsers can use the API and
the files. Writes, pages and responses to signed-in visitors are not. Operations that will go are in
`DEPRECATIONS`; their responses have the fields of RFC 9745 and RFC 8594.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from onym.server.registry import urls
from onym.server.registry.api.openapi import DEPRECATIONS, OPERATIONS, Deprecation
from onym.server.services import HTTPMiddleware, encode_fields, get_request_state, replace_fields
from onym.server.sessions import Visitor

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.server.settings import Settings

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: seconds for which a browser may remember a preflight
_PREFLIGHT_SECONDS: Final = 86_400
# without Access-Control-Allow-Credentials, browsers send no cookies along
_ANY_ORIGIN: Final = (("access-control-allow-origin", "*"), ("cross-origin-resource-policy", "cross-origin"))
_SHARED_FIELDS: Final = encode_fields(
    *_ANY_ORIGIN,
    ("access-control-expose-headers", "Deprecation, ETag, Link, Retry-After, Sunset, X-Request-Id"),
)
_PREFLIGHT_FIELDS: Final = encode_fields(
    *_ANY_ORIGIN,
    ("access-control-allow-methods", "GET, HEAD"),
    ("access-control-allow-headers", "If-None-Match"),
    ("access-control-max-age", str(_PREFLIGHT_SECONDS)),
)
_PARAMETER: Final = re.compile(r"\\\{[a-z]+\\\}")


def _compile_path(path: str) -> str:
    return _PARAMETER.sub("[^/]+", re.escape(path))


def _compile_operations(method: str) -> re.Pattern[str]:
    """Return the pattern of the paths of a method; the group that matches is the operation's ID."""
    paths = (
        f"(?P<{operation.id}>{_compile_path(urls.API_PREFIX + operation.path)})"
        for operation in OPERATIONS
        if operation.method == method
    )
    return re.compile("|".join(paths))


_PATHS: Final = {method: _compile_operations(method) for method in {row.method for row in OPERATIONS}}
#: paths that anyone may read from anywhere: the API's public reads, and files
_SHARED: Final = re.compile(
    "|".join(
        (
            *(
                _compile_path(urls.API_PREFIX + operation.path)
                for operation in OPERATIONS
                if operation.public and operation.method == "GET"
            ),
            re.escape(urls.OPENAPI_URL),
            r"(?:/r/[^/]+)?/changes\.atom",
            r"/r/[^/]+/[^/]+/download/[^/]+",
        )
    )
)


def find_operation(method: str, path: str) -> str | None:
    """Return the ID of the API's operation with this method and path, or None."""
    pattern = _PATHS.get("GET" if method == "HEAD" else method)
    found = None if pattern is None else pattern.fullmatch(path)
    return None if found is None else found.lastgroup


def list_deprecation_fields(row: Deprecation, policy: str) -> Iterator[tuple[str, str]]:
    """Yield the header fields of a deprecated operation. `policy` is the URL of the page that explains it."""
    yield "deprecation", f"@{int(row.since.timestamp())}"
    yield "link", f'<{policy}>; rel="deprecation"; type="text/html"'
    if row.sunset is not None:
        yield "sunset", format_datetime(row.sunset, usegmt=True)
        yield "link", f'<{policy}>; rel="sunset"; type="text/html"'
    if row.successor is not None:
        yield "link", f'<{row.successor}>; rel="successor-version"'


class APIPolicyMiddleware(HTTPMiddleware):
    """Adds the header fields of CORS and of deprecation."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app)
        self._policy = settings.base_url + urls.help_url("api")

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        method, path = scope["method"], scope["path"]
        shared = method in _READS and _SHARED.fullmatch(path) is not None
        # every read passes here: the operation matters only if one of them is deprecated
        row = DEPRECATIONS.get(find_operation(method, path) or "") if DEPRECATIONS else None
        if not shared and row is None:
            await self._app(scope, receive, send)
            return

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                if shared and _is_anonymous(scope):
                    replace_fields(message, _PREFLIGHT_FIELDS if method == "OPTIONS" else _SHARED_FIELDS)
                if row is not None:
                    message["headers"].extend(encode_fields(*list_deprecation_fields(row, self._policy)))
            await send(message)

        await self._app(scope, receive, finish)


def _is_anonymous(scope: Scope) -> bool:
    visitor = get_request_state(scope).get("visitor")
    return isinstance(visitor, Visitor) and visitor.via is None
