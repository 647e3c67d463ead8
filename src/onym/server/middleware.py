"""ASGI middlewares: request limits, response headers, CSRF protection, rate limits and the audit log."""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from onym.accounts.records import AuditRecord
from onym.errors import AccessError, OnymError, RegistryError
from onym.server.clients import HSTS, BucketKind, get_client_address, make_address_key, parse_blocks
from onym.server.responses import make_problem_response
from onym.server.services import (
    HTTPMiddleware,
    Services,
    encode_fields,
    get_request_state,
    get_services,
    replace_fields,
)
from onym.server.sessions import Visitor, get_visitor

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.server.settings import Settings

#: RFC 9110 9.2.1
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_MAX_SUBJECT_LENGTH: Final = 200
_LOG: Final = logging.getLogger("onym.server")


def set_audit_action(
    request: Request, action: str, subject: str | None = None, *, account: str | None = None
) -> None:
    """Name the action of this request for the audit log. Call it before the action, to log failures.

    `account` is the account that acts, if the request came without one.
    """
    get_request_state(request.scope)["audit"] = (action, subject, account)


def make_audit_record(request: Request, action: str, subject: str) -> AuditRecord:
    """Return the audit record of an act that succeeds, for the transaction that does it.

    The audit log has no second record of the request, unless its response is an error.
    """
    set_audit_action(request, action, subject)
    found, account = get_request_state(request.scope), get_visitor(request).account
    found["audited"] = True
    return AuditRecord(
        at=get_services(request).clock(),
        account=None if account is None else account.id,
        action=action,
        subject=subject[:_MAX_SUBJECT_LENGTH],
        outcome="ok",
        address=found.get("address"),
    )


class AuditMiddleware(HTTPMiddleware):
    """Writes the audit record just before the response is sent, when its outcome is known.

    An act of `make_audit_record` is recorded with the change itself; the middleware adds only its failure.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        super().__init__(app)
        self._services = services

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._write_record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, finish)

    async def _write_record(self, scope: Scope, status: int) -> None:
        record = self._build_record(scope, status)
        if record is None:
            return
        try:
            await self._services.store.audit.write(record)
        except OnymError as error:
            # the action is complete and in the registry's log: the response must still be sent
            _LOG.error(
                "no audit line for request %s: %s", get_request_state(scope).get("request_id"), error.code
            )

    def _build_record(self, scope: Scope, status: int) -> AuditRecord | None:
        found = get_request_state(scope)
        if status < 400 and found.get("audited"):
            return None
        visitor = found.get("visitor")
        account = visitor.account.id if visitor is not None and visitor.account is not None else None
        named = found.get("audit")
        if named is None:
            # without an account nothing changes, and anonymous requests must not fill the log
            if account is None or scope["method"] in SAFE_METHODS:
                return None
            named = (f"http.{scope['method'].lower()}"[:_MAX_SUBJECT_LENGTH], scope["path"], None)
        action, subject, other = named
        code = found.get("code") or f"http.{status}"
        return AuditRecord(
            at=self._services.clock(),
            account=other or account,
            action=action,
            subject=None if subject is None else subject[:_MAX_SUBJECT_LENGTH],
            outcome="ok" if status < 400 else code,
            address=found.get("address"),
        )


#: bytes of path and query
MAX_URL_BYTES: Final = 8 * 1024
#: bytes of all header fields
MAX_HEADER_BYTES: Final = 64 * 1024
_LENGTH: Final = re.compile(rb"[0-9]{1,15}\Z")


class RequestLimitsMiddleware(HTTPMiddleware):
    """Checks Host, URL, headers and the size of the body while it arrives."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app)
        self._hosts = frozenset(settings.allowed_hosts)
        self._url = settings.base_url
        self._limit = settings.body_limit

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises RegistryError with the codes `http.wrong-host`, `http.too-large`, ..."""
        self._check_head(scope)
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit:
                raise self._make_too_large_error()
            return message

        await self._app(scope, counted, send)

    def _check_head(self, scope: Scope) -> None:
        headers = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            raise RegistryError(
                "this service does not serve that host",
                code="http.wrong-host",
                field="Host",
                hint=f"Open {self._url}, the URL of the service in its settings.",
            )
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
        if len(path) + len(scope["query_string"]) > MAX_URL_BYTES:
            raise RegistryError(
                f"path and query are longer than {MAX_URL_BYTES} bytes", code="http.address-too-long"
            )
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
            raise RegistryError(
                f"the header fields are longer than {MAX_HEADER_BYTES} bytes",
                code="http.too-large",
                field="headers",
            )
        lengths = [value for name, value in headers if name == b"content-length"]
        if any(not _LENGTH.match(value) or int(value) > self._limit for value in lengths):
            raise self._make_too_large_error()

    def _make_too_large_error(self) -> RegistryError:
        return RegistryError(
            f"the body is larger than {self._limit} bytes", code="http.too-large", field="body"
        )


#: no inline code and no other origins; connect-src is for the search while you type
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


class HeadersMiddleware(HTTPMiddleware):
    """Puts request ID and address into the request's state, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app)
        self._fixed = encode_fields(*_HEADERS, *([HSTS] if settings.is_https else ()))
        self._proxies = parse_blocks(settings.trusted_proxies)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request_id = str(uuid4())
        found = get_request_state(scope)
        found["request_id"] = request_id
        found["address"] = get_client_address(scope, self._proxies)

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                replace_fields(message, (*self._fixed, (b"x-request-id", request_id.encode("ascii"))))
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Cookie, Authorization")
                visitor = found.get("visitor")
                if "cache-control" not in headers and visitor is not None and visitor.account is not None:
                    headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, finish)


CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "x-csrf-token"
MAX_FORM_FIELDS: Final = 200
MAX_FORM_FILES: Final = 4
_URLENCODED: Final = "application/x-www-form-urlencoded"
_FORMS: Final = frozenset({_URLENCODED, "multipart/form-data"})
_LONGEST_TOKEN: Final = 200


class CSRFMiddleware(HTTPMiddleware):
    """Raises the error of invalid credentials, and rejects forged writes."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app)
        self._origin = settings.base_url
        self._limit = settings.body_limit

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = Request(scope, receive)
        visitor = get_visitor(request)
        if visitor.failure is not None:
            raise visitor.failure
        if scope["method"] not in SAFE_METHODS and visitor.via != "token":
            self._check_source(request)
            receive = await self._check_token(request, receive)
        await self._app(scope, receive, send)

    def _check_source(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        good = origin in {None, self._origin} if site is None else site in {"same-origin", "none"}
        if not good:
            raise _make_forgery_error(
                "this form was sent by a page of another site", "Origin" if site is None else "Sec-Fetch-Site"
            )

    async def _check_token(self, request: Request, receive: Receive) -> Receive:
        """Check the token. The body of a form is read for that, and replayed to the handler."""
        visitor = get_visitor(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        given = request.headers.get(CSRF_HEADER)
        if kind in _FORMS and given is None:
            body = await _read_body(receive)
            given = await self._form_token(request.scope, body, kind)
            receive = _replay_body(body, receive)
        elif visitor.via is None and kind not in _FORMS:
            return receive  # a program's request, which carries no cookie that could be abused
        if given is None or not visitor.form_key.matches_token(given):
            raise _make_forgery_error("the form's token is missing or belongs to another browser", CSRF_FIELD)
        return receive

    async def _form_token(self, scope: Scope, body: bytes, kind: str) -> str | None:
        if kind == _URLENCODED:
            return _urlencoded_token(body)
        request = Request(scope, _replay_body(body, _receive_disconnect))
        try:
            async with request.form(
                max_files=MAX_FORM_FILES, max_fields=MAX_FORM_FIELDS, max_part_size=self._limit
            ) as form:
                found = form.getlist(CSRF_FIELD)
        except (MultiPartException, HTTPException, ValueError) as error:
            raise _make_form_error() from error
        return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _urlencoded_token(body: bytes) -> str | None:
    """Return the form's token. Other fields are not decoded, because the body may be large."""
    pairs = body.split(b"&", MAX_FORM_FIELDS)
    if len(pairs) > MAX_FORM_FIELDS:
        raise _make_form_error()
    found = [
        value for name, _, value in (pair.partition(b"=") for pair in pairs) if name == CSRF_FIELD.encode()
    ]
    if len(found) != 1 or len(found[0]) > _LONGEST_TOKEN:
        return None
    return unquote_to_bytes(found[0]).decode("utf-8", "replace")


async def _read_body(receive: Receive) -> bytes:
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay_body(body: bytes, then: Receive) -> Receive:
    """Return a `receive` that yields the body again, then the messages of `then`."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await then()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


def _make_form_error() -> RegistryError:
    return RegistryError(
        "the form cannot be read",
        code="http.bad-form",
        field="body",
        hint="Send it as application/x-www-form-urlencoded or multipart/form-data.",
    )


def _make_forgery_error(message: str, field: str) -> AccessError:
    return AccessError(
        message, code="http.forged", field=field, hint="Reload the page and send the form again."
    )


class RateLimitMiddleware(HTTPMiddleware):
    """Answers 429 with Retry-After (RFC 6585 4) if a visitor exceeds its rate limit."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = Request(scope, receive)
        kind: BucketKind = "reads" if scope["method"] in SAFE_METHODS else "writes"
        wait = get_services(request).rates.take_token(kind, _make_visitor_key(get_visitor(request)))
        if wait:
            await make_too_many_response(request, wait)(scope, receive, send)
            return
        if kind == "writes":
            receive = _limit_uploads(request, receive)
        await self._app(scope, receive, send)


def _limit_uploads(request: Request, receive: Receive) -> Receive:
    """Return a `receive` that counts the bytes of the body for the client's address."""
    rates, key = get_services(request).rates, make_address_key(get_visitor(request).address)

    async def count() -> Message:
        message = await receive()
        size = len(message.get("body", b""))
        wait = rates.take_token("uploads", key, cost=size / 1024) if size else 0
        if wait:
            raise make_too_many_error(wait)
        return message

    return count


def make_too_many_response(request: Request, wait: float) -> ASGIApp:
    """Return the 429 response. `wait` is in seconds."""
    headers = {"retry-after": str(max(1, math.ceil(wait)))}
    return make_problem_response(request, make_too_many_error(wait), headers=headers)


def make_too_many_error(wait: float) -> RegistryError:
    """Return the error of a client that exceeds a rate limit. `wait` is in seconds."""
    return RegistryError(
        "too many requests",
        code="http.too-many-requests",
        hint=f"Try again in {max(1, math.ceil(wait))} seconds.",
    )


def _make_visitor_key(visitor: Visitor) -> str:
    if visitor.token is not None:
        return f"token:{visitor.token.id}"
    if visitor.account is not None:
        return f"account:{visitor.account.id}"
    return make_address_key(visitor.address)
