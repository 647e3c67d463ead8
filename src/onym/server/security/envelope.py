"""The outermost middleware: a request id, the client's address, and the headers that every answer has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from starlette.datastructures import MutableHeaders

from onym.net.addresses import Address, Network, parse_address, parse_network
from onym.server.services import state

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.server.settings import Settings

__all__ = ["CONTENT_SECURITY_POLICY", "Envelope", "client_address"]

#: nothing inline, nothing from elsewhere; connect-src is for the search as one types
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS: Final = (
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
)
#: two years
_HSTS: Final = ("strict-transport-security", "max-age=63072000; includeSubDomains")
_MOST_HOPS: Final = 32


class Envelope:
    """Puts request id and address into the request's state, and security headers on each answer."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._fixed = (*_HEADERS, _HSTS) if settings.https else _HEADERS
        networks = [parse_network(each) for each in settings.trusted_proxies]
        self._proxies = tuple(each for each in networks if each is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a WebSocket is turned away, since there are none."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(uuid4())
        found = state(scope)
        found["request_id"] = request_id
        found["address"] = client_address(scope, self._proxies)

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._fixed:
                    headers[name] = value
                headers["x-request-id"] = request_id
                headers.add_vary_header("Cookie, Authorization")
                visitor = found.get("visitor")
                if "cache-control" not in headers and visitor is not None and visitor.account is not None:
                    headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, finish)


def client_address(scope: Scope, proxies: tuple[Network, ...]) -> str | None:
    """The client's IP address: the peer's, or what trusted proxies say in X-Forwarded-For.

    The field is read from its end, since its beginning is whatever the client wrote. What is no address
    ends the walk.
    """
    peer = scope.get("client")
    address = parse_address(str(peer[0])) if peer else None
    if address is None:
        return None
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    hops = ",".join(fields).split(",")[-_MOST_HOPS:]
    while hops and _trusted(address, proxies):
        nearer = parse_address(hops.pop().strip())
        if nearer is None:
            break
        address = nearer
    return str(address)


def _trusted(address: Address, proxies: tuple[Network, ...]) -> bool:
    return any(network.holds(address) for network in proxies)
