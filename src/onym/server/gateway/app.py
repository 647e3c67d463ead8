"""The gateway as an ASGI application: routes, request checks, response headers and the audit record."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import uuid4

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from onym.ai.gateway.forwarding import FIXED_FIELDS, validate_nonce
from onym.ai.messages import CODES, GatewayRequestHead, get_field_values, validate_gateway_head
from onym.errors import AIIPError, DeniedError, OnymError
from onym.server import clients
from onym.server.gateway.dependencies import RequestContext, read_body, record_exchange, require_rate
from onym.server.gateway.responses import STATIC_FILES, make_problem_response
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from onym.ai.telemetry import Telemetry
    from onym.server.gateway.approval_pages import ApprovalHandler
    from onym.server.gateway.consents import ConsentHandler
    from onym.server.gateway.delegation import Delegation
    from onym.server.gateway.dependencies import Dependencies
    from onym.server.gateway.handlers import ExchangeHandler, PageHandler
    from onym.server.gateway.people import PeopleHandler
    from onym.server.gateway.tasks import TaskHandler

_KEY_SECONDS: Final = 600
#: methods that change something, which pages of other sites must not send
_WRITES: Final = frozenset({"POST", "DELETE"})
_LOG: Final = logging.getLogger("onym.server.gateway")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
#: what a load balancer asks: does the process run, and can it serve
_PROBES: Final = frozenset({b"/healthz", b"/readyz"})
#: seconds between two checks for `/readyz`, which anybody may ask for
_CHECK_SECONDS: Final = 5.0
_StageName: TypeAlias = Literal["exchange", "signin", "approve", "task"]
#: first part of a path -> what telemetry calls such requests
_STAGES: Final[dict[bytes, _StageName]] = {
    b"invoke": "exchange", b"auth": "signin", b"approvals": "approve", b"tasks": "task",
}  # fmt: skip
_SIGN_IN_STEPS: Final = frozenset({b"login", b"callback", b"step-up", b"logout"})
#: folders whose responses are public and cacheable
_PUBLIC: Final = {b"/static": frozenset({"cache-control"}), b"/.well-known": frozenset({"cache-control"})}


class Gateway:
    """The ASGI app of one gateway. `close` closes what it has opened, and is called when the server stops."""

    def __init__(
        self,
        parts: Dependencies,
        site: PageHandler,
        exchanges: ExchangeHandler,
        tasks: TaskHandler,
        people: PeopleHandler,
        delegation: Delegation | None,
        approvals: ApprovalHandler,
        consents: ConsentHandler | None,
        close: Callable[[], Awaitable[None]],
        telemetry: Telemetry | None,
    ) -> None:
        self.parts = parts
        self._site = site
        self._exchanges = exchanges
        self._tasks = tasks
        self._people = people
        self.delegation = delegation
        self._approvals = approvals
        self._consents = consents
        self.close = close
        self._telemetry = telemetry
        settings = parts.settings
        self._hosts = frozenset(settings.allowed_hosts)
        self._fixed = (*FIXED_FIELDS, clients.HSTS) if settings.is_https else FIXED_FIELDS
        self._proxies = clients.parse_blocks(settings.trusted_proxies)
        self._prefix = settings.prefix.encode("ascii") + b"/"
        self._readiness = _Readiness(parts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or the lifespan."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http" and scope["raw_path"] in _PROBES:
            await (await self._answer_probe(scope["raw_path"]))(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve_request(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                error = await self._readiness.check()
                if error is not None:
                    await self.close()
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer_probe(self, path: bytes) -> Response:
        """Answer a load balancer, whatever name of this host it uses. Only the code of an error is shown."""
        error = await self._readiness.check() if path == b"/readyz" else None
        text, status = ("ok", 200) if error is None else (error.code, 503)
        return PlainTextResponse(f"{text}\n", status, {"cache-control": "no-store"})

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        telemetry = self._telemetry
        path = scope["raw_path"]
        stage, step = ("exchange", None) if path.startswith(self._prefix) else _find_stage(path)
        if telemetry is None or stage is None:
            await self._handle_request(scope, receive, send)
            return
        came = get_field_values(scope["headers"], b"traceparent")
        parent = came[0].decode("latin-1") if len(came) == 1 else None
        with telemetry.observe_request(
            "gateway", scope["method"], parent, stage=stage, step=step
        ) as observed:
            await self._handle_request(scope, receive, observed.observe_send(send))

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = clients.make_address_key(clients.get_client_address(scope, self._proxies))
        cookies = _parse_cookies(scope)
        cookie = self._find_secret(cookies)
        visit = RequestContext(
            scope=scope,
            receive=receive,
            id=str(uuid4()),
            client=client,
            cookie=cookie,
            form_key=clients.CSRFKey(None if cookie is None else Secret(cookie)),
            cookies=cookies,
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
        if visit.dpop_nonce is not None:
            headers["dpop-nonce"] = visit.dpop_nonce
        if "content-security-policy" not in headers:
            headers["content-security-policy"] = "default-src 'none'; frame-ancestors 'none'"
        for cookie in visit.new_cookies:
            headers.append("set-cookie", cookie)
        if visit.form_key.made:
            settings, secret = self.parts.settings, visit.form_key.get_secret()
            cookie = clients.format_cookie(settings.cookie_name, secret, "Strict", https=settings.is_https)
            headers.append("set-cookie", cookie)

    async def _respond_and_record(self, visit: RequestContext) -> Response | None:
        """Return the response and write its audit record; None if the client has disconnected."""
        try:
            answer = await self._respond_or_refuse(visit)
        except ClientDisconnect:
            return None
        if not visit.streaming:
            try:
                record_exchange(self.parts, visit)
            except AIIPError as error:
                return make_problem_response(self.parts, visit, error)
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
        answer = make_problem_response(self.parts, visit, error)
        if self._telemetry is not None:
            self._telemetry.record_refusal(error if cause is None else cause)
        if answer.status_code >= 500:
            # these messages contain no token and no input; only the log shows paths of local files
            text = error.message if error.hint is None else f"{error.message}; {error.hint}"
            _LOG.warning("request %s: %s (%s)", visit.id, error.code, text, exc_info=cause)
        return answer

    async def _check_and_route(self, visit: RequestContext) -> Response:
        settings = self.parts.settings
        head = GatewayRequestHead(path=visit.path, query=visit.query, fields=visit.fields)
        validate_gateway_head(head, hosts=self._hosts, name=settings.name)
        validate_nonce(visit.get_field("aiip-nonce"))
        kind: clients.BucketKind = "writes" if visit.method in _WRITES else "reads"
        await require_rate(self.parts, kind, visit.client, "too many requests")
        if visit.method in _WRITES:
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
                return await self._site.invoke_form(visit, await read_body(self.parts, visit))
            case method, ["", "auth" | "account" | "approvals" | "connections" | "consents", *_]:
                return await self._serve_people(visit, method)
            case "GET", ["", ".well-known", name]:
                return self._serve_document(visit, name)
            case "GET", ["", "static", name] if name in STATIC_FILES:
                file, kind = STATIC_FILES[name]
                headers = {"cache-control": "public, max-age=31536000, immutable"}
                return Response(file.read_bytes(), 200, headers, media_type=kind)
            case _, ["", "tasks", name, _, *_]:
                return await self._tasks.handle_request(visit, name)
            case "GET", ["", "results", *rest] if len(rest) <= 2:
                return await self._site.serve_results(visit, *rest)
            case "GET", ["", "problems", *_, name] if name in CODES:
                return PlainTextResponse(f"{CODES[name].title} (code {CODES[name].name})\n")
        raise _make_unknown_error()

    def _serve_document(self, visit: RequestContext, name: str) -> Response:
        """Serve the key sets, and the metadata for programs (RFC 9728)."""
        headers, programs = {"cache-control": f"public, max-age={_KEY_SECONDS}"}, self.parts.programs
        if name in {"aiip.jwks.json", "jwks.json"}:
            keys = self.parts.jwks(visit.query == b"history")
            return Response(keys, 200, headers, media_type="application/jwk-set+json")
        if name == "oauth-protected-resource" and programs is not None:
            document = msgspec.json.encode(programs.build_metadata())
            return Response(document, 200, headers, media_type="application/json")
        raise _make_unknown_error()

    async def _serve_people(self, visit: RequestContext, method: str) -> Response:
        """Serve what is about people who sign in: their sign-in, account, approvals and connections."""
        _, name, *rest = visit.path.decode("latin-1").split("/")
        if name == "approvals":
            return await self._approvals.handle_request(visit, method, rest)
        if name == "consents" and self._consents is not None:
            return await self._consents.handle_request(visit, method, rest)
        if self.delegation is None or not visit.path.startswith(b"/connections"):
            return await self._people.handle_request(visit, method)
        if method == "GET" and visit.path == b"/connections/begin":
            return await self._site.begin_connection(visit)
        return await self.delegation.handle_connections(visit, method)

    def _check_source(self, visit: RequestContext) -> None:
        """Reject requests from pages of other sites (attack 34). Programs send neither field."""
        site, origin = visit.get_field("sec-fetch-site"), visit.get_field("origin")
        if site not in {None, "same-origin"} or origin not in {None, self.parts.settings.base_url}:
            raise DeniedError(
                "this was sent by a page of another site",
                code="aiip.forged",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="Use the resource's page on this gateway. A program must not send Origin.",
            )

    def _find_secret(self, cookies: dict[str, str]) -> str | None:
        """Return the secret of this browser's form tokens and results, or None."""
        settings = self.parts.settings
        names = (settings.session_cookie, settings.cookie_name)
        return next((cookies[name] for name in names if _COOKIE.fullmatch(cookies.get(name, ""))), None)


def _find_stage(path: bytes) -> tuple[_StageName | None, str | None]:
    """Return the stage of a request in telemetry and its step, which is a word of ours; None for a page."""
    _, folder, name, *_ = (*path.split(b"/"), b"", b"")
    stage = _STAGES.get(folder)
    return stage, name.decode() if stage == "signin" and name in _SIGN_IN_STEPS else None


class _Readiness:
    """Whether the gateway can serve: its store with the same time, its secrets and its signing keys."""

    def __init__(self, parts: Dependencies) -> None:
        self._parts = parts
        self._checked = float("-inf")
        self._turn = asyncio.Lock()
        self._error: OnymError | None = None

    async def check(self) -> OnymError | None:
        """Return why the gateway cannot serve, or None. The answer may be five seconds old."""
        async with self._turn:
            now = time.monotonic()
            if now - self._checked >= _CHECK_SECONDS:
                self._error = await self._find_error()
                self._checked = now
        return self._error

    async def _find_error(self) -> OnymError | None:
        sessions = self._parts.sessions
        try:
            self._parts.jwks(False)
            if sessions is not None:
                await sessions.check()
        except OnymError as error:
            _LOG.warning("not ready: %s (%s)", error.message, error.code)
            return error
        return None


def _make_unknown_error() -> AIIPError:
    return AIIPError("this URL does not exist", code="aiip.endpoint-unknown")


def _parse_cookies(scope: Scope) -> dict[str, str]:
    """Return the cookies of a request; of two with one name, the first, which has the longer path."""
    cookies: dict[str, str] = {}
    for value in get_field_values(scope["headers"], b"cookie"):
        for pair in value.decode("latin-1").split(";"):
            name, _, text = pair.strip().partition("=")
            cookies.setdefault(name, text)
    return cookies
