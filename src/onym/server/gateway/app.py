"""The gateway as an ASGI app: the guard before every route, the headers and the record of every answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect

from onym.ai.gateway.fields import FIXED
from onym.ai.gateway.guard import Head, check_head, values
from onym.ai.gateway.witness import check_nonce
from onym.errors import AIIPError, DeniedError, OnymError
from onym.net.addresses import parse_network
from onym.server.gateway.answers import problem
from onym.server.gateway.record import record
from onym.server.gateway.visit import Visit
from onym.server.security.envelope import client_address
from onym.server.security.rates import address_key
from onym.server.security.visitor import FormKey
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from onym.ai.telemetry import Telemetry
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.routes import Routes

__all__ = ["Gateway"]

_LOG: Final = logging.getLogger("onym.server.gateway")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_HSTS: Final = ("strict-transport-security", "max-age=63072000; includeSubDomains")
#: folders whose answers are for everybody to keep
_PUBLIC: Final = {b"/static": frozenset({"cache-control"}), b"/.well-known": frozenset({"cache-control"})}


class Gateway:
    """Serves one gateway. `closing` are called, in their order, when the server stops."""

    def __init__(
        self,
        parts: Parts,
        routes: Routes,
        closing: tuple[Callable[[], Awaitable[None]], ...] = (),
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._parts = parts
        self._routes = routes
        self._closing = closing
        settings = parts.settings
        self._hosts = frozenset(settings.allowed_hosts)
        self._fixed = (*FIXED, _HSTS) if settings.https else FIXED
        networks = [parse_network(each) for each in settings.trusted_proxies]
        self._proxies = tuple(each for each in networks if each is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                for close in self._closing:
                    await close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        telemetry = self._telemetry
        if telemetry is None or not self._routes.asks(scope["raw_path"]):
            await self._visited(scope, receive, send)
            return
        came = values(scope["headers"], b"traceparent")
        parent = came[0].decode("latin-1") if len(came) == 1 else None
        with telemetry.serving("gateway", scope["method"], parent) as stage:
            await self._visited(scope, receive, stage.hearing(send))

    async def _visited(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = address_key(client_address(scope, self._proxies))
        cookie = self._cookie(scope)
        visit = Visit(
            scope=scope,
            receive=receive,
            id=str(uuid4()),
            client=client,
            cookie=cookie,
            form_key=FormKey(None if cookie is None else Secret(cookie)),
        )
        answer = await self._answer(visit)
        if answer is None:
            return

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._envelop(visit, MutableHeaders(scope=message))
            await send(message)

        await answer(scope, receive, finish)

    def _envelop(self, visit: Visit, headers: MutableHeaders) -> None:
        own = _PUBLIC.get(visit.path.rpartition(b"/")[0], frozenset())
        for name, value in self._fixed:
            if name not in own and not (name == "referrer-policy" and name in headers):
                headers[name] = value
        headers["x-request-id"] = visit.id
        if "content-security-policy" not in headers:
            headers["content-security-policy"] = "default-src 'none'; frame-ancestors 'none'"
        if visit.form_key.made:
            secure = "; Secure" if self._parts.settings.https else ""
            value = f"{self._parts.settings.cookie}={visit.form_key.reveal().reveal()}"
            headers.append("set-cookie", f"{value}; Path=/; HttpOnly; SameSite=Strict{secure}")

    async def _answer(self, visit: Visit) -> Response | None:
        """The answer, with its line in the audit log; None where nobody waits for it any more."""
        try:
            answer = await self._handled(visit)
        except ClientDisconnect:
            return None
        if not visit.streaming:
            try:
                record(self._parts, visit)
            except AIIPError as error:
                return problem(self._parts, visit, error)
        return answer

    async def _handled(self, visit: Visit) -> Response:
        try:
            return await self._checked(visit)
        except OnymError as error:
            return self._refused(visit, error)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001
            return self._refused(visit, OnymError(type(error).__name__), error)

    def _refused(self, visit: Visit, error: OnymError, cause: Exception | None = None) -> Response:
        answer = problem(self._parts, visit, error)
        if self._telemetry is not None:
            self._telemetry.refused(error if cause is None else cause)
        if answer.status_code >= 500:
            # neither the token nor what was asked stands in these messages; the files of ours do, here alone
            said = error.message if error.hint is None else f"{error.message}; {error.hint}"
            _LOG.warning("request %s: %s (%s)", visit.id, error.code, said, exc_info=cause)
        return answer

    async def _checked(self, visit: Visit) -> Response:
        settings = self._parts.settings
        head = Head(path=visit.path, query=visit.query, fields=visit.fields)
        check_head(head, hosts=self._hosts, name=settings.name)
        check_nonce(visit.field("aiip-nonce"))
        wait = self._parts.rates.take("writes" if visit.method == "POST" else "reads", visit.client)
        if wait:
            raise AIIPError(
                "too many requests in a short time", code="aiip.too-many-requests", retryable=True
            )
        if visit.method == "POST":
            self._check_source(visit)
        return await self._routes.answer(visit)

    def _check_source(self, visit: Visit) -> None:
        """Refuse what a page of another site has sent (attack 34). Programs send neither field."""
        site, origin = visit.field("sec-fetch-site"), visit.field("origin")
        if site not in {None, "same-origin"} or origin not in {None, self._parts.settings.base_url}:
            raise DeniedError(
                "this was sent by a page of another site",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="open the resource's page here; a program leaves Origin out",
            )

    def _cookie(self, scope: Scope) -> str | None:
        """What this browser's form tokens follow from, where it has been here before."""
        name = self._parts.settings.cookie.encode("ascii")
        for value in values(scope["headers"], b"cookie"):
            for pair in value.split(b";"):
                key, _, text = pair.strip().partition(b"=")
                if key == name and _COOKIE.fullmatch(text.decode("latin-1")):
                    return text.decode("latin-1")
        return None
