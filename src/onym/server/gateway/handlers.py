"""Request handlers of the gateway: resolve and invoke a resource, and the pages for people.

Handlers return verified results only.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse, Response

from onym.ai.client_flows import parse_description
from onym.ai.gateway import forwarding
from onym.ai.gateway.forms import build_form_fields, encode_form_input
from onym.ai.records import Description, Invocation, hash_path, parse_media_type
from onym.ai.request_validation import get_field_values
from onym.errors import AIIPError, AIURIError, DeniedError, URIError
from onym.server.gateway.dependencies import read_body, record_exchange
from onym.server.gateway.responses import (
    TRANSLATED_STATUSES,
    EventStreamResponse,
    StartedStream,
    make_gateway_receipt,
    make_page_response,
    make_result_response,
)
from onym.server.gateway.views import build_gateway_url, render_home, render_resource, render_result
from onym.uri.ai import AIURI, from_target

if TYPE_CHECKING:
    from onym.ai.gateway.forms import FormField
    from onym.ai.records import Resolution, Result
    from onym.server.gateway.dependencies import Dependencies, RequestContext, StoredResult

#: seconds that a description is cached, and the size of the cache
_DESCRIPTION_SECONDS: Final = 60.0
_MAX_DESCRIPTIONS: Final = 1_000
_IDEMPOTENCY_KEY: Final = re.compile(r'"([!#-\[\]-~]{1,255})"\Z')
_DESCRIPTION: Final = "application/aiip+json"


class UpstreamRelay:
    """Builds the requests to authorities, and caches descriptions. `monotonic` returns seconds."""

    def __init__(self, parts: Dependencies, monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._own = parts.settings.own_hosts
        self._monotonic = monotonic
        self._described: OrderedDict[str, tuple[float, Description]] = OrderedDict()

    def parse_target(self, visit: RequestContext) -> AIURI:
        """Return the ai URI of this request's path. Raises AIURIError, DeniedError."""
        uri = from_target(self._parts.settings.prefix, visit.path, visit.query)
        self.note_target(visit, uri)
        forwarding.require_no_loop(uri, self._own)
        return uri

    def note_target(self, visit: RequestContext, uri: AIURI) -> None:
        """Put the URI's authority and hashed path into the audit record."""
        key = self._parts.audit_key
        visit.notes |= {
            "authority": uri.authority_text or "_",
            "path": hash_path(key, str(uri.without_query)),
        }

    async def describe(self, visit: RequestContext, resolution: Resolution) -> tuple[Description, Result]:
        """Return the resource's description, and the signed result that contains it."""
        invocation = Invocation(
            uri=resolution.uri,
            method="GET",
            accept=_DESCRIPTION,
            headers=self.build_forwarded_fields(visit, plain=True),
        )
        result = await self._parts.upstream.exchange(invocation, resolution)
        if result.status != 200:
            raise self.make_result_error(result)
        description = parse_description(result, str(resolution.uri.without_query))
        self._cache_description(resolution.uri, description)
        return description, result

    async def get(self, visit: RequestContext, resolution: Resolution) -> Result:
        """Return the result of a caller's GET."""
        forwarding.require_open_authority(resolution, self._own)
        invocation = Invocation(
            uri=resolution.uri,
            method="GET",
            accept=visit.get_field("accept"),
            headers=self.build_forwarded_fields(visit),
        )
        return await self._parts.upstream.exchange(invocation, resolution)

    async def require_open(self, visit: RequestContext, resolution: Resolution) -> None:
        """Raise DeniedError if this resource must not be invoked through the gateway."""
        forwarding.require_open_authority(resolution, self._own)
        known = self._described.get(str(resolution.uri.without_query))
        if known is None or known[0] <= self._monotonic():
            description, _ = await self.describe(visit, resolution)
        else:
            description = known[1]
        forwarding.require_open_resource(resolution.uri, description)

    def build_invocation(self, visit: RequestContext, uri: AIURI, body: bytes) -> Invocation:
        """Return a caller's POST. Raises AIIPError for a body without a type or with a wrong digest."""
        content_type = visit.get_field("content-type")
        if body and content_type is None:
            raise _make_bad_request("the request has a body and no Content-Type", "RFC 9110 8.3")
        self._check_digest(visit, body)
        return Invocation(
            uri=uri,
            method="POST",
            body=body,
            content_type=content_type if body else None,
            accept=visit.get_field("accept"),
            headers=self.build_forwarded_fields(visit),
            idempotency_key=_parse_idempotency_key(visit.get_field("idempotency-key")),
        )

    def make_result_error(self, result: Result) -> AIIPError:
        """Return the error of a signed result whose status is a failure."""
        from onym.ai.problems import decode_problem

        return decode_problem(
            result.status, result.content_type, result.body, result.receipt.subject, signed=True
        )

    def build_forwarded_fields(
        self, visit: RequestContext, *, plain: bool = False
    ) -> tuple[tuple[str, str], ...]:
        """Return the fields for the endpoint; `plain` leaves out the caller's fields."""
        passed = () if plain else forwarding.select_upstream_fields(visit.fields)
        return (
            *passed,
            ("Via", forwarding.format_via(get_field_values(visit.fields, b"via"), self._parts.settings.name)),
        )

    def _cache_description(self, uri: AIURI, description: Description) -> None:
        # the schemas are untrusted and may be large, and the cache does not need them
        small = replace(description, input=None, output=None)
        self._described[str(uri.without_query)] = (self._monotonic() + _DESCRIPTION_SECONDS, small)
        self._described.move_to_end(str(uri.without_query))
        while len(self._described) > _MAX_DESCRIPTIONS:
            self._described.popitem(last=False)

    def _check_digest(self, visit: RequestContext, body: bytes) -> None:
        """Check Content-Digest as an endpoint does (RFC 9530 2); the client sends a new one."""
        from onym.ai.request_validation import verify_content_digest  # late: cryptography is heavy

        digest = visit.get_field("content-digest")
        if digest is not None:
            verify_content_digest(digest, body)


def _parse_idempotency_key(text: str | None) -> str | None:
    if text is None:
        return None
    match = _IDEMPOTENCY_KEY.match(text)
    if match is None:
        raise _make_bad_request(
            "Idempotency-Key is not a quoted string", "draft-ietf-httpapi-idempotency-key-header-07"
        )
    return match[1]


def _make_bad_request(message: str, clause: str) -> AIIPError:
    return AIIPError(message, code="aiip.bad-request", clause=clause)


_FORM_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 64
#: the page creates the key, and a caller may have changed it
_FORM_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class PageHandler:
    """The pages of one gateway."""

    def __init__(self, parts: Dependencies, relay: UpstreamRelay) -> None:
        self._parts = parts
        self._relay = relay

    def show_home(self, visit: RequestContext) -> Response:
        """Return the start page; for a typed URI, the page that shows its two forms."""
        settings = self._parts.settings
        text = dict(_parse_pairs(visit.query)).get("uri", "").strip()
        if not text:
            return make_page_response(render_home(settings))
        from onym.uri.ai_input import parse_user_input  # late: idna is slow to import

        try:
            typed = parse_user_input(text)
            uri = typed.uri.target
            href = build_gateway_url(settings, uri)
        except URIError as error:
            html = render_home(settings, typed=text, fault=error.message, hint=error.hint or "")
            return make_page_response(html, 400)
        if text == str(uri) and not typed.warnings:
            return RedirectResponse(href, 303)
        warnings = [warning.message for warning in typed.warnings]
        return make_page_response(
            render_home(settings, typed=text, uri=uri, href=href, shown=typed.unicode, warnings=warnings)
        )

    async def show_resource(self, visit: RequestContext, uri: AIURI) -> Response:
        """Return the page of an ai URI."""
        resolution = await self._parts.upstream.resolve(uri)
        closed = self._find_denial(resolution)
        if closed is not None and closed.code != "aiip.policy-denied":
            raise closed  # it does not describe itself without a token
        description, result = await self._relay.describe(visit, resolution)
        make_gateway_receipt(self._parts, visit, result)
        return self._render_resource(visit, resolution, description, result, closed=closed)

    def _find_denial(self, resolution: Resolution) -> AIIPError | None:
        try:
            forwarding.require_open_authority(resolution, self._parts.settings.own_hosts)
        except DeniedError as error:
            if resolution.entry is None or error.hint is None:
                raise
            return error
        return None

    def _render_resource(
        self,
        visit: RequestContext,
        resolution: Resolution,
        description: Description,
        result: Result,
        *,
        status: int = 200,
        **more: Any,
    ) -> Response:
        html = render_resource(
            self._parts.settings,
            resolution,
            description,
            result,
            csrf=visit.form_key.token,
            key=secrets.token_urlsafe(18),
            **more,
        )
        return make_page_response(html, status)

    async def invoke_form(self, visit: RequestContext, body: bytes) -> Response:
        """Invoke the resource, store the result and redirect to it. A second click gets the same result."""
        form = self._parse_form(visit, body)
        uri = _parse_canonical_uri(form.get("uri", ""))
        self._relay.note_target(visit, uri)
        forwarding.require_no_loop(uri, self._parts.settings.own_hosts)
        with self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or ""):
            resolution = await self._parts.upstream.resolve(uri)
            forwarding.require_open_authority(resolution, self._parts.settings.own_hosts)
            description, described = await self._relay.describe(visit, resolution)
            forwarding.require_open_resource(uri, description)
            fields = build_form_fields(description.input)
            typed = _get_typed_values(fields, form)
            try:
                content = encode_form_input(fields, typed)
            except AIIPError as fault:
                return self._render_resource(
                    visit, resolution, description, described, status=422, typed=typed, fault=fault
                )
            invocation = Invocation(
                uri=uri,
                body=content,
                content_type="application/json" if content else None,
                headers=self._relay.build_forwarded_fields(visit, plain=True),
                idempotency_key=_parse_form_key(form.get("key", "")),
            )
            result = await self._parts.upstream.exchange(invocation, resolution)
        owner = visit.form_key.get_secret().reveal()
        name = self._parts.results.put(
            result,
            make_gateway_receipt(self._parts, visit, result),
            owner,
            self._parts.clock(),
            client=visit.client,
        )
        return RedirectResponse(f"/results/{name}", 303)

    def _parse_form(self, visit: RequestContext, body: bytes) -> dict[str, str]:
        """Return the form's fields. Raises DeniedError for a token that this browser did not get."""
        kind = (visit.get_field("content-type") or "").partition(";")[0].strip().lower()
        if kind != _FORM_MEDIA_TYPE:
            raise AIIPError(
                f"a form must have the type {_FORM_MEDIA_TYPE}", code="aiip.unsupported-media-type"
            )
        form = dict(_parse_pairs(body))
        if not visit.form_key.matches_token(form.get("csrf_token", "")):
            raise DeniedError(
                "the form's token is missing or belongs to another browser",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="Reload the page and send the form again.",
            )
        return form

    def show_result(self, visit: RequestContext, name: str, part: str) -> Response:
        """Return a stored result: its page, content or receipts. Raises AIIPError if it is unknown."""
        stored = None if visit.cookie is None else self._parts.results.find(name, visit.cookie)
        if stored is None or part not in {"", *_FILES}:
            raise AIIPError(
                "no such result: results are stored for 15 minutes, for the browser that requested them",
                code="aiip.task-not-found",
            )
        if not part:
            return make_page_response(render_result(self._parts.settings, name, stored))
        return _make_file_response(stored, part)


#: part of a result -> the name of the downloaded file
_FILES: Final = {"body": "result", "receipt": "receipt.jwt", "gateway-receipt": "gateway-receipt.jwt"}


def _make_file_response(stored: StoredResult, part: str) -> Response:
    content = {
        "body": stored.result.body,
        "receipt": stored.result.token.encode("ascii"),
        "gateway-receipt": stored.witness.encode("ascii"),
    }[part]
    headers = {
        "content-disposition": f'attachment; filename="{_FILES[part]}"',
        "content-security-policy": "default-src 'none'; sandbox",
        # always downloaded and never shown, whatever type it declares
        "content-type": "application/octet-stream" if part == "body" else "application/jwt",
    }
    return Response(content, 200, headers)


def _parse_pairs(octets: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            octets.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise AIIPError(f"the form has more than {_MOST_FIELDS} fields", code="aiip.bad-request") from None


def _parse_canonical_uri(text: str) -> AIURI:
    uri = AIURI.parse(text)
    if str(uri.target) != text:
        raise AIURIError(
            "the target is not a canonical ai URI", code="ai.non-canonical", hint=str(uri.target)
        )
    return uri


def _parse_form_key(text: str) -> str | None:
    if text and not _FORM_KEY.fullmatch(text):
        raise AIIPError("the form's idempotency key is invalid", code="aiip.bad-request")
    return text or None


def _get_typed_values(fields: tuple[FormField, ...], form: dict[str, str]) -> dict[str, str]:
    return {field.name: form.get(f"in{index}", "") for index, field in enumerate(fields)}


_ALLOWED_METHODS: Final = "GET, HEAD, POST, OPTIONS"
_EVENT_STREAM: Final = "text/event-stream"


class ExchangeHandler:
    """Handles the requests below the gateway's prefix."""

    def __init__(self, parts: Dependencies, relay: UpstreamRelay, site: PageHandler) -> None:
        self._parts = parts
        self._relay = relay
        self._site = site

    async def handle_request(self, visit: RequestContext) -> Response:
        """Return the response to this request. Raises OnymError."""
        uri = self._relay.parse_target(visit)
        if visit.method == "OPTIONS":
            visit.audited = False
            return Response(None, 204, {"allow": _ALLOWED_METHODS, "accept-post": "*/*"})
        if visit.method not in {"GET", "POST"}:
            raise AIIPError(
                f"the method {visit.scope['method'][:20]} is not allowed for ai URIs; use GET or POST",
                code="aiip.method-not-allowed",
            )
        body = await read_body(self._parts, visit) if visit.method == "POST" else b""
        with ExitStack() as stack:
            stack.enter_context(
                self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or "")
            )
            if visit.method == "GET" and visit.wants_page:
                return await self._site.show_resource(visit, uri)
            resolution = await self._parts.upstream.resolve(uri)
            if visit.method == "GET":
                return self._make_response(visit, await self._relay.get(visit, resolution))
            invocation = self._relay.build_invocation(visit, uri, body)
            await self._relay.require_open(visit, resolution)
            if _EVENT_STREAM not in (visit.get_field("accept") or ""):
                return self._make_response(visit, await self._parts.upstream.exchange(invocation, resolution))
            stream = await self._parts.upstream.exchange_stream(invocation, resolution)
            rest = aiter(stream)
            try:
                first = await anext(rest, None)
                if first is None and parse_media_type(stream.result.content_type) != _EVENT_STREAM:
                    return self._make_response(visit, stream.result)
                # before the first byte: a client that disconnects early has seen events all the same
                visit.notes |= {"decision": "provisional", "status": 200}
                record_exchange(self._parts, visit, "begun")
            except BaseException:
                await stream.close()
                raise
            visit.streaming = True
            begun = StartedStream(stream, first, rest, lambda: record_exchange(self._parts, visit))
            return EventStreamResponse(self._parts, visit, begun, self._finish_stream(visit, stack.pop_all()))

    def _finish_stream(self, visit: RequestContext, stack: ExitStack) -> Callable[[], None]:
        """Return the function that ends a stream."""

        def over() -> None:
            # a failure here was reported already, or the log has only the record of the beginning
            with stack, suppress(AIIPError):
                record_exchange(self._parts, visit)

        return over

    def _make_response(self, visit: RequestContext, result: Result) -> Response:
        """Return the response of a result. A status with another meaning for gateways becomes a problem."""
        strange = result.status in TRANSLATED_STATUSES or (result.status >= 400 and visit.wants_page)
        if strange or (300 <= result.status < 400 and result.status != 304):
            raise self._relay.make_result_error(result)
        return make_result_response(self._parts, visit, result)
