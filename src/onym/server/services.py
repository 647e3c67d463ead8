"""What handlers and middlewares share: settings, store, clock, sign-in, page templates and request state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.accounts.oidc import OIDCProvider
    from onym.accounts.sign_in import Passwords
    from onym.registry.store import Store
    from onym.server.clients import TokenBuckets
    from onym.server.settings import Settings


#: the folder of style sheet, script and icon
STATIC_FOLDER: Final = Path(__file__).parent / "static"


def make_template_environment(package: str) -> Environment:
    """Return the templates of a package. They escape all values and reject undefined names."""
    from jinja2 import (
        Environment,
        PackageLoader,
        StrictUndefined,
    )  # late: an application that serves only the API needs no Jinja

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["sentence"] = _format_sentence
    environment.globals["asset"] = _build_asset_url
    return environment


@cache
def _build_asset_url(name: str) -> str:
    """Return the URL of a static file; it changes with the content."""
    return f"/static/{name}?v={hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]}"


def _format_sentence(text: str) -> str:
    """Return an error message as a sentence."""
    if not text:
        return ""
    end = "" if text.endswith((".", "!", "?")) else "."
    first = text.partition(" ")[0]
    # a URL keeps its case
    return text + end if "://" in first else text[:1].upper() + text[1:] + end


_STATE_KEY: Final = "onym"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one application. `clock` returns the time in UTC, `monotonic` seconds.

    `render_page` returns an HTML document for a request, the name of a template, a title and the template's
    values.
    """

    settings: Settings
    store: Store
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    render_page: Callable[..., str]
    passwords: Passwords
    rates: TokenBuckets
    providers: Mapping[str, OIDCProvider]


def get_services(request: HTTPConnection) -> Services:
    """Return the services of the application that serves this request."""
    return cast("Services", request.app.state.services)


def get_request_state(scope: Any) -> dict[str, Any]:
    """Return the middlewares' data about this request: request_id, address, visitor, audit and code."""
    return cast("dict[str, Any]", scope.setdefault(_STATE_KEY, {}))


def replace_fields(message: Message, fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Put header fields into the start of a response, in place of fields with their names (lower case).

    One pass over the fields of the response: starlette's `MutableHeaders` makes one for each.
    """
    names = {name for name, _ in fields}
    message["headers"] = [pair for pair in message.get("headers", ()) if pair[0] not in names]
    message["headers"].extend(fields)


def encode_fields(*fields: tuple[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Return header fields as ASGI has them."""
    return tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in fields)


class HTTPMiddleware:
    """An ASGI middleware that sees HTTP requests only. WebSockets are rejected."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or the lifespan."""
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        raise NotImplementedError
