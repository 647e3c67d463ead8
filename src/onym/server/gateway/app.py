"""The gateway as an ASGI application: routes, request checks, response headers and the audit record."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from onym.ai.gateway.forwarding import FIXED_FIELDS, validate_nonce
from onym.ai.problems import CODES
from onym.ai.request_validation import GatewayRequestHead, get_field_values, validate_gateway_head
from onym.errors import AIIPError, DeniedError, OnymError
from onym.server.gateway.dependencies import RequestContext, read_body, record_exchange
from onym.server.gateway.responses import make_problem_response
from onym.server.gateway.views import STATIC_FILES
from onym.server.security.clients import (
    HSTS,
    CSRFKey,
    format_cookie,
    get_client_address,
    make_address_key,
    parse_blocks,
)
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from onym.ai.telemetry import Telemetry
    from onym.server.gateway.dependencies import Dependencies
    from onym.server.gateway.handlers import ExchangeHandler, PageHandler

_KEY_SECONDS: Final = 600
#: the action of the pages' forms
_FORM: Final = b"/invoke"
_LOG: Final = logging.getLogger("onym.server.gateway")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
#: folders whose responses are public and cacheable
_PUBLIC: Final = {b"/static": frozenset({"cache-control"}), b"/.well-known": frozenset({"cache-control"})}


class Gateway:
    """The ASGI app of one gateway. `close` is called when the server stops."""

    def __init__(
        self,
        parts: Dependencies,
        site: PageHandler,
        exchanges: ExchangeHandler,
        close: Callable[[], Awaitable[None]],
        telemetry: Telemetry | None,
    ) -> None:
        self._parts = parts
        self._site = site
        self._exchanges = exchanges
        self._close = close
        self._telemetry = telemetry
        settings = parts.settings
        self._hosts = frozenset(settings.allowed_hosts)
        self._fixed = (*FIXED_FIELDS, HSTS) if settings.is_https else FIXED_FIELDS
        self._proxies = parse_blocks(settings.trusted_proxies)
        self._prefix = settings.prefix.encode("ascii") + b"/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or the lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve_request(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        telemetry = self._telemetry
        path = scope["raw_path"]
        if telemetry is None or not (path.startswith(self._prefix) or path == _FORM):
            await self._handle_request(scope, receive, send)
            return
        came = get_field_values(scope["headers"], b"traceparent")
        parent = came[0].decode("latin-1") if len(came) == 1 else None
        with telemetry.observe_request("gateway", scope["method"], parent) as stage:
            await self._handle_request(scope, receive, stage.observe_send(send))

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = make_address_key(get_client_address(scope, self._proxies))
        cookie = self._find_cookie(scope)
        visit = RequestContext(
            scope=scope,
            receive=receive,
            id=str(uuid4()),
            client=client,
            cookie=cookie,
            form_key=CSRFKey(None if cookie is None else Secret(cookie)),
        )
        answer = await self._respond_and_record(visit)
        if answer is None:
            return

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(visit, MutableHeaders(scope=message))
            await send(message)

        await answer(scope, receive, finish)

    def _add_headers(self, visit: RequestContext, headers: MutableHeaders) -> None:
        own = _PUBLIC.get(visit.path.rpartition(b"/")[0], frozenset())
        for name, value in self._fixed:
            if name not in own and not (name == "referrer-policy" and name in headers):
                headers[name] = value
        headers["x-request-id"] = visit.id
        if "content-security-policy" not in headers:
            headers["content-security-policy"] = "default-src 'none'; frame-ancestors 'none'"
        if visit.form_key.made:
            settings, secret = self._parts.settings, visit.form_key.get_secret()
            cookie = format_cookie(settings.cookie_name, secret, "Strict", https=settings.is_https)
            headers.append("set-cookie", cookie)

    async def _respond_and_record(self, visit: RequestContext) -> Response | None:
        """Return the response and write its audit record; None if the client has disconnected."""
        try:
            answer = await self._respond_or_refuse(visit)
        except ClientDisconnect:
            return None
        if not visit.streaming:
            try:
                record_exchange(self._parts, visit)
            except AIIPError as error:
                return make_problem_response(self._parts, visit, error)
        return answer

    async def _respond_or_refuse(self, visit: RequestContext) -> Response:
        try:
            return await self._check_and_route(visit)
        except OnymError as error:
            return self._make_error_response(visit, error)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001
            return self._make_error_response(visit, OnymError(type(error).__name__), error)

    def _make_error_response(
        self, visit: RequestContext, error: OnymError, cause: Exception | None = None
    ) -> Response:
        answer = make_problem_response(self._parts, visit, error)
        if self._telemetry is not None:
            self._telemetry.record_refusal(error if cause is None else cause)
        if answer.status_code >= 500:
            # these messages contain no token and no input; only the log shows paths of local files
            text = error.message if error.hint is None else f"{error.message}; {error.hint}"
            _LOG.warning("request %s: %s (%s)", visit.id, error.code, text, exc_info=cause)
        return answer

    async def _check_and_route(self, visit: RequestContext) -> Response:
        settings = self._parts.settings
        head = GatewayRequestHead(path=visit.path, query=visit.query, fields=visit.fields)
        validate_gateway_head(head, hosts=self._hosts, name=settings.name)
        validate_nonce(visit.get_field("aiip-nonce"))
        wait = self._parts.rates.take_token("writes" if visit.method == "POST" else "reads", visit.client)
        if wait:
            raise AIIPError("too many requests", code="aiip.too-many-requests", retryable=True)
        if visit.method == "POST":
            self._check_source(visit)
        if visit.path.startswith(self._prefix):
            visit.audited = True
            return await self._exchanges.handle_request(visit)
        return await self._serve_page(visit)

    async def _serve_page(self, visit: RequestContext) -> Response:
        """Serve a page, a form, the keys, a static file or the description of a problem type."""
        match visit.method, visit.path.decode("latin-1").split("/"):
            case "GET", ["", ""]:
                return self._site.show_home(visit)
            case "POST", ["", "invoke"]:
                visit.audited = True
                return await self._site.invoke_form(visit, await read_body(self._parts, visit))
            case "GET", ["", ".well-known", "aiip.jwks.json"]:
                headers = {"cache-control": f"public, max-age={_KEY_SECONDS}"}
                keys = self._parts.jwks(visit.query == b"history")
                return Response(keys, 200, headers, media_type="application/jwk-set+json")
            case "GET", ["", "static", name] if name in STATIC_FILES:
                file, kind = STATIC_FILES[name]
                headers = {"cache-control": "public, max-age=31536000, immutable"}
                return Response(file.read_bytes(), 200, headers, media_type=kind)
            case "GET", ["", "results", name]:
                return self._site.show_result(visit, name, "")
            case "GET", ["", "results", name, part]:
                return self._site.show_result(visit, name, part)
            case "GET", ["", "problems", *_, name] if name in CODES:
                return PlainTextResponse(f"{CODES[name].title} (code {CODES[name].name})\n")
        raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")

    def _check_source(self, visit: RequestContext) -> None:
        """Reject requests from pages of other sites (attack 34). Programs send neither field."""
        site, origin = visit.get_field("sec-fetch-site"), visit.get_field("origin")
        if site not in {None, "same-origin"} or origin not in {None, self._parts.settings.base_url}:
            raise DeniedError(
                "this was sent by a page of another site",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="Use the resource's page on this gateway. A program must not send Origin.",
            )

    def _find_cookie(self, scope: Scope) -> str | None:
        """Return the secret of this browser's form tokens, or None."""
        name = self._parts.settings.cookie_name.encode("ascii")
        for value in get_field_values(scope["headers"], b"cookie"):
            for pair in value.split(b";"):
                key, _, text = pair.strip().partition(b"=")
                if key == name and _COOKIE.fullmatch(text.decode("latin-1")):
                    return text.decode("latin-1")
        return None
