"""The gateway as an ASGI app: guard, routes by raw path, the headers of every answer, the audit log."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from onym.ai.codes import CODES
from onym.ai.gateway.fields import FIXED, media_type
from onym.ai.gateway.guard import Head, check_head, values
from onym.ai.gateway.problems import refusal_of
from onym.ai.gateway.witness import check_nonce
from onym.errors import AIIPError, ConfigError, DeniedError, OnymError
from onym.net.addresses import parse_network
from onym.server.gateway.answers import TRANSLATED, Begun, problem, result_answer, stream_answer
from onym.server.gateway.draw import STATIC
from onym.server.gateway.visit import Visit
from onym.server.security.envelope import client_address
from onym.server.security.rates import address_key
from onym.server.security.visitor import FormKey
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from onym.ai.records import Result
    from onym.ai.telemetry import Telemetry
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.relay import Relay
    from onym.server.gateway.site import Site

__all__ = ["Gateway"]

_LOG: Final = logging.getLogger("onym.server.gateway")
_ALLOW: Final = "GET, HEAD, POST, OPTIONS"
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_HSTS: Final = ("strict-transport-security", "max-age=63072000; includeSubDomains")
_KEY_SECONDS: Final = 600
_EVENTS: Final = "text/event-stream"
#: where the pages' forms go
_FORM: Final = b"/invoke"

#: folders whose answers are for everybody to keep
_PUBLIC: Final = {b"/static": frozenset({"cache-control"}), b"/.well-known": frozenset({"cache-control"})}

Handler = Callable[[Visit], Awaitable[Response]]


class Gateway:
    """Serves one gateway. `closing` are called, in their order, when the server stops."""

    def __init__(
        self,
        parts: Parts,
        relay: Relay,
        site: Site,
        closing: tuple[Callable[[], Awaitable[None]], ...] = (),
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._parts = parts
        self._relay = relay
        self._site = site
        self._closing = closing
        settings = parts.settings
        self._hosts = frozenset(settings.allowed_hosts)
        self._fixed = (*FIXED, _HSTS) if settings.https else FIXED
        networks = [parse_network(each) for each in settings.trusted_proxies]
        self._proxies = tuple(each for each in networks if each is not None)
        self._prefix = settings.prefix.encode("ascii") + b"/"
        self._routes: dict[tuple[str, bytes], Handler] = {
            ("GET", b"/"): self._home,
            ("POST", _FORM): self._invoke,
            ("GET", b"/.well-known/aiip.jwks.json"): self._keys,
        }

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
        telemetry, path = self._telemetry, scope["raw_path"]
        if telemetry is None or not (path.startswith(self._prefix) or path == _FORM):
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
        try:
            if not visit.notes.pop("later", False):
                self._record(visit)
        except (OSError, ConfigError) as error:
            # an audit log that cannot be written stops what it should record
            _LOG.error("request %s: the audit log cannot be written (%s)", visit.id, type(error).__name__)
            return problem(
                self._parts, visit, AIIPError("this cannot be recorded now", code="aiip.unavailable")
            )
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
            # neither the token nor what was asked stands in these messages
            _LOG.warning(
                "request %s: %s (%s)", visit.id, refusal_of(error).cause, error.message, exc_info=cause
            )
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
        return await self._route(visit)

    def _check_source(self, visit: Visit) -> None:
        """Refuse what a page of another site has sent (attack 34). Programs send neither field."""
        site, origin = visit.field("sec-fetch-site"), visit.field("origin")
        if site not in {None, "same-origin"} or origin not in {None, self._parts.settings.base_url}:
            raise DeniedError(
                "this was sent by a page of another site",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="open the resource's page here; a program leaves Origin out",
            )

    async def _route(self, visit: Visit) -> Response:
        if visit.path.startswith(self._prefix):
            visit.audited = True
            return await self._gateway(visit)
        found = self._routes.get((visit.method, visit.path))
        if found is not None:
            return await found(visit)
        return self._small(visit)

    def _small(self, visit: Visit) -> Response:
        """Files, kept results, and what a problem's type means."""
        words = visit.path.decode("latin-1").split("/")[1:]
        if visit.method == "GET" and words[0] == "static" and len(words) == 2 and words[1] in STATIC:
            file, kind = STATIC[words[1]]
            headers = {"cache-control": "public, max-age=31536000, immutable"}
            return Response(file.read_bytes(), 200, headers, media_type=kind)
        if visit.method == "GET" and words[0] == "results" and 2 <= len(words) <= 3:
            return self._site.result(visit, words[1], words[2] if len(words) == 3 else "")
        if visit.method == "GET" and words[0] == "problems" and words[-1] in CODES:
            row = CODES[words[-1]]
            return PlainTextResponse(f"{row.title} (code {row.name})\n")
        raise AIIPError("there is nothing at this address", code="aiip.endpoint-unknown")

    async def _home(self, visit: Visit) -> Response:
        return self._site.home(visit)

    async def _keys(self, visit: Visit) -> Response:
        headers = {"cache-control": f"public, max-age={_KEY_SECONDS}"}
        octets = self._parts.jwks(visit.query == b"history")
        return Response(octets, 200, headers, media_type="application/jwk-set+json")

    async def _invoke(self, visit: Visit) -> Response:
        visit.audited = True
        return await self._site.invoke(visit, await self._body(visit))

    async def _gateway(self, visit: Visit) -> Response:
        uri = self._relay.target(visit)
        if visit.method == "OPTIONS":
            visit.audited = False
            return Response(None, 204, {"allow": _ALLOW, "accept-post": "*/*"})
        if visit.method not in {"GET", "POST"}:
            raise AIIPError("this method is not for ai URIs", code="aiip.method-not-allowed")
        body = await self._body(visit) if visit.method == "POST" else b""
        with ExitStack() as stack:
            stack.enter_context(self._parts.slots.take(visit.client, uri.authority_text or ""))
            if visit.method == "GET" and visit.wants_page:
                return await self._site.resource(visit, uri)
            resolution = await self._relay.resolve(uri)
            if visit.method == "GET":
                return self._whole(visit, await self._relay.get(visit, resolution))
            invocation = self._relay.invocation(visit, uri, body)
            await self._relay.admit(visit, resolution)
            if _EVENTS not in (visit.field("accept") or ""):
                return self._whole(visit, await self._relay.invoke(invocation, resolution))
            stream = await self._relay.open(invocation, resolution)
            rest = aiter(stream)
            try:
                first = await anext(rest, None)
            except BaseException:
                await stream.close()
                raise
            if first is None and media_type(stream.result.content_type) != _EVENTS:
                return self._whole(visit, stream.result)
            # whoever leaves early has seen events all the same
            visit.notes |= {"later": True, "decision": "provisional", "status": 200}
            return stream_answer(
                self._parts, visit, Begun(stream, first, rest), self._after(visit, stack.pop_all())
            )

    def _after(self, visit: Visit, stack: ExitStack) -> Callable[[], None]:
        """What is done when a stream is over."""

        def over() -> None:
            with stack:
                self._record(visit)

        return over

    def _whole(self, visit: Visit, result: Result) -> Response:
        """A result that is there; statuses that mean another thing from a gateway become its own problem."""
        strange = result.status in TRANSLATED or (result.status >= 400 and visit.wants_page)
        if strange or (300 <= result.status < 400 and result.status != 304):
            raise self._relay.refused(result)
        return result_answer(self._parts, visit, result)

    async def _body(self, visit: Visit) -> bytes:
        """The body, as far as it may go. Raises AIIPError `aiip.too-large`."""
        limit = self._parts.settings.body_limit
        told = values(visit.fields, b"content-length")
        if told and (len(told[0]) > 15 or int(told[0]) > limit):
            raise _too_large(limit)
        chunks, taken = [], 0
        while True:
            message = await visit.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            taken += len(message.get("body", b""))
            if taken > limit:
                raise _too_large(limit)
            chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _record(self, visit: Visit) -> None:
        """One line of the audit log, for a request about an ai URI."""
        if self._parts.journal is None or not visit.audited:
            return
        self._parts.journal.append(
            {"event": "exchange", "id": visit.id, "method": visit.scope["method"], **visit.notes},
            at=self._parts.clock(),
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


def _too_large(limit: int) -> AIIPError:
    return AIIPError(f"the body is larger than {limit} octets", code="aiip.too-large")
