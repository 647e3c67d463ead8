"""Request handlers of the gateway: resolve and invoke a resource, and the pages for people.

Handlers return verified results only.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from starlette.responses import RedirectResponse, Response

from onym.ai.client_flows import parse_description
from onym.ai.gateway import forwarding
from onym.ai.gateway.permissions import Step
from onym.ai.gateway.review import CallToReview, build_form_fields, build_review, encode_form_input
from onym.ai.messages import get_field_values
from onym.ai.records import Description, Effects, Invocation, hash_path
from onym.ai.tasks import ask_for_task, find_started_task
from onym.errors import AIIPError, AIURIError, DeniedError, URIError
from onym.server.gateway import responses
from onym.server.gateway.delegation import make_review_token
from onym.server.gateway.dependencies import parse_form, parse_pairs, read_body
from onym.server.gateway.people import find_session, make_view_response, require_session
from onym.uri.ai import AIURI, from_target

if TYPE_CHECKING:
    from onym.ai.credentials import Credentials
    from onym.ai.gateway.approvals import ApprovalRecord
    from onym.ai.gateway.grants import SubjectCredentials
    from onym.ai.gateway.review import FormField
    from onym.ai.records import Resolution, Result
    from onym.server.gateway.delegation import Delegation
    from onym.server.gateway.dependencies import Dependencies, RequestContext, StoredResult

#: seconds that a description is cached, and the size of the cache
_DESCRIPTION_SECONDS: Final = 60.0
_MAX_DESCRIPTIONS: Final = 1_000
_IDEMPOTENCY_KEY: Final = re.compile(r'"([!#-\[\]-~]{1,255})"\Z')
_DESCRIPTION: Final = "application/aiip+json"


class UpstreamRelay:
    """Builds the requests to authorities, and caches descriptions. `monotonic` returns seconds.

    `delegation` decides for whom calls are sent; None for a gateway where nobody can sign in.
    """

    def __init__(
        self, parts: Dependencies, monotonic: Callable[[], float], delegation: Delegation | None = None
    ) -> None:
        self._parts = parts
        self.delegation = delegation
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
        self.require_authority(resolution)
        invocation = Invocation(
            uri=resolution.uri,
            method="GET",
            accept=visit.get_field("accept"),
            headers=self.build_forwarded_fields(visit),
        )
        _require_bound(visit, invocation)
        return await self._parts.upstream.exchange(invocation, resolution)

    def require_authority(self, resolution: Resolution) -> None:
        """Raise DeniedError if the gateway never calls this authority."""
        if self.delegation is None:
            forwarding.require_open_authority(resolution, self._own)
        else:
            forwarding.require_reachable_authority(resolution, self._own)

    async def authorize_program(
        self, visit: RequestContext, resolution: Resolution, description: Description
    ) -> Credentials | None:
        """Return the credentials for an invocation without a form, None for one without a token.

        Raises AIIPError if this resource must not be invoked so.
        """
        if self.delegation is not None:
            return await self.delegation.authorize_program(visit, resolution, description)
        forwarding.require_open_resource(resolution.uri, description)
        return None

    async def authorize_task(
        self, visit: RequestContext, resolution: Resolution, *, by_form: bool
    ) -> SubjectCredentials | None:
        """Return the credentials for a request to a task of this resource, None for one without a token.

        `by_form` is true for a form whose token was checked. Raises AIIPError if the caller may not use tasks
        of this resource.
        """
        description, _ = await self.get_description(visit, resolution)
        if self.delegation is not None:
            return await self.delegation.authorize_task(visit, resolution, description, by_form=by_form)
        forwarding.require_open_resource(resolution.uri, description)
        return None

    async def find_demand(
        self, visit: RequestContext, resolution: Resolution, known: tuple[Description, Result | None]
    ) -> Result | None:
        """Return the signed description if the endpoint may demand an approval that people give here.

        None for a call that is not a program's for a person. `known` is what `get_description` returned.
        """
        program, (description, described) = visit.program, known
        if program is None or program.person is None or self.delegation is None:
            return None
        if not description.approval or not self.delegation.is_listed(resolution):
            return None
        return described or (await self.describe(visit, resolution))[1]

    async def get_description(
        self, visit: RequestContext, resolution: Resolution
    ) -> tuple[Description, Result | None]:
        """Return the resource's description and its result; None for that of a read from the last minute."""
        self.require_authority(resolution)
        known = self._described.get(str(resolution.uri.without_query))
        # what does more than read may have changed since
        if known is None or known[0] <= self._monotonic() or known[1].effects is not Effects.READ:
            return await self.describe(visit, resolution)
        return known[1], None

    def build_invocation(self, visit: RequestContext, uri: AIURI, body: bytes) -> Invocation:
        """Return a caller's POST. Raises AIIPError for a missing type, a wrong digest or a wrong proof."""
        content_type = visit.get_field("content-type")
        if body and content_type is None:
            raise _make_bad_request("the request has a body and no Content-Type", "RFC 9110 8.3")
        self._check_digest(visit, body)
        invocation = Invocation(
            uri=uri,
            method="POST",
            body=body,
            content_type=content_type if body else None,
            accept=visit.get_field("accept"),
            headers=self.build_forwarded_fields(visit),
            idempotency_key=_parse_idempotency_key(visit.get_field("idempotency-key")),
        )
        _require_bound(visit, invocation)
        return invocation

    def make_result_error(self, result: Result) -> AIIPError:
        """Return the error of a signed result whose status is a failure."""
        from onym.ai.messages import decode_problem

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
        from onym.ai.messages import verify_content_digest  # late: cryptography is heavy

        digest = visit.get_field("content-digest")
        if digest is not None:
            verify_content_digest(digest, body)


def _require_bound(visit: RequestContext, invocation: Invocation) -> None:
    """Raise AIIPError `aiip.sender-constraint` if a program's proof is for another request."""
    if visit.program is not None:
        visit.program.require_bound_to(invocation)


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


#: the page creates the key, and a caller may have changed it
_FORM_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


#: takes the signed description, the call and the endpoint's challenge, and returns the page of the approval
AskApproval: TypeAlias = "Callable[[RequestContext, Result, Invocation, str], Awaitable[Response]]"


class CallApprovals(Protocol):
    """The approvals of calls that programs send (`onym.server.gateway.approval_pages.ApprovalHandler`)."""

    async def find_call(self, visit: RequestContext, invocation: Invocation) -> ApprovalRecord | None:
        """Return the record of a call that this program has sent before, to be approved, or None."""
        ...

    async def ask_for_call(
        self, visit: RequestContext, described: Result, invocation: Invocation, token: str
    ) -> Response:
        """Take a call that the endpoint wants approved, and return the response to its sender."""
        ...

    async def mark_sent(self, visit: RequestContext, record: ApprovalRecord) -> None:
        """Record that a program has sent its approved call."""
        ...


class PageHandler:
    """The pages of one gateway. `ask_approval` takes a call that the endpoint wants approved."""

    def __init__(self, parts: Dependencies, relay: UpstreamRelay, ask_approval: AskApproval) -> None:
        self._parts = parts
        self._relay = relay
        self._ask_approval = ask_approval

    def show_home(self, visit: RequestContext) -> Response:
        """Return the start page; for a typed URI, the page that shows its two forms."""
        settings = self._parts.settings
        text = dict(parse_pairs(visit.query)).get("uri", "").strip()
        if not text:
            return responses.make_page_response(responses.render_home(settings))
        from onym.uri.iri import parse_user_input  # late: idna is slow to import

        try:
            typed = parse_user_input(text)
            uri = typed.uri.target
            href = responses.build_gateway_url(settings, uri)
        except URIError as error:
            html = responses.render_home(settings, typed=text, fault=error.message, hint=error.hint or "")
            return responses.make_page_response(html, 400)
        if text == str(uri) and not typed.warnings:
            return RedirectResponse(href, 303)
        warnings = [warning.message for warning in typed.warnings]
        return responses.make_page_response(
            responses.render_home(
                settings, typed=text, uri=uri, href=href, shown=typed.unicode, warnings=warnings
            )
        )

    async def show_resource(self, visit: RequestContext, uri: AIURI) -> Response:
        """Return the page of an ai URI."""
        resolution = await self._parts.upstream.resolve(uri)
        closed = self._find_denial(resolution)
        if closed is not None and closed.code != "aiip.policy-denied":
            raise closed  # it does not describe itself without a token
        description, result = await self._relay.describe(visit, resolution)
        responses.make_gateway_receipt(self._parts, visit, result)
        way_out = None
        if self._relay.delegation is not None:
            closed = await self._relay.delegation.find_obstacle(visit, resolution, description)
            if closed is not None:
                way_out = self._relay.delegation.build_way_out(closed, visit.target)
        return self._render_resource(visit, resolution, description, result, closed=closed, way_out=way_out)

    async def begin_connection(self, visit: RequestContext) -> Response:
        """Lead a person to the server of the authority whose resource the query names."""
        delegation = self._relay.delegation
        if delegation is None:
            raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")
        uri = _parse_canonical_uri(dict(parse_pairs(visit.query)).get("uri", ""))
        self._relay.note_target(visit, uri)
        forwarding.require_no_loop(uri, self._parts.settings.own_hosts)
        with self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or ""):
            resolution = await self._parts.upstream.resolve(uri)
            self._relay.require_authority(resolution)
            description, _ = await self._relay.describe(visit, resolution)
            page = responses.build_gateway_url(self._parts.settings, uri).removeprefix(
                self._parts.settings.base_url
            )
            return await delegation.begin_connection(visit, resolution, description, page)

    def _find_denial(self, resolution: Resolution) -> AIIPError | None:
        try:
            self._relay.require_authority(resolution)
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
        html = responses.render_resource(
            self._parts.settings,
            resolution,
            description,
            result,
            csrf=visit.form_key.token,
            key=secrets.token_urlsafe(18),
            people=self._relay.delegation is not None,
            as_service=visit.asks_as_service,
            **more,
        )
        return responses.make_page_response(html, status)

    async def invoke_form(self, visit: RequestContext, body: bytes) -> Response:
        """Invoke the resource, store the result and redirect to it. A second click gets the same result."""
        form = parse_form(visit, body)
        uri = _parse_canonical_uri(form.get("uri", ""))
        self._relay.note_target(visit, uri)
        forwarding.require_no_loop(uri, self._parts.settings.own_hosts)
        with self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or ""):
            resolution = await self._parts.upstream.resolve(uri)
            self._relay.require_authority(resolution)
            description, described = await self._relay.describe(visit, resolution)
            if self._relay.delegation is None:
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
            credentials = None
            if self._relay.delegation is not None:
                review = _ReviewedCall(invocation, described, form.get("review", ""))
                delegation, seen = self._relay.delegation, review.is_confirmed(visit)
                step = await delegation.find_step(visit, resolution, description, reviewed=seen)
                if step is Step.REVIEW:
                    return self._render_review(visit, resolution, description, review, form)
                credentials = await delegation.authorize(visit, resolution, description, step)
            if description.asynchronous:
                invocation = ask_for_task(invocation, responses.FORM_WAIT)
            result = await self._parts.upstream.exchange(invocation, resolution, credentials=credentials)
            challenge = forwarding.find_approval_challenge(result)
            if challenge is not None and self._relay.delegation is not None:
                return await self._ask_approval(visit, described, invocation, challenge)
        return responses.redirect_to_result(self._parts, visit, result)

    def _render_review(
        self,
        visit: RequestContext,
        resolution: Resolution,
        description: Description,
        call: _ReviewedCall,
        form: Mapping[str, str],
    ) -> Response:
        """Return the page that shows what will be sent, with the form that sends exactly that."""
        invocation = call.invocation
        review = build_review(
            CallToReview(
                uri=str(invocation.uri),
                method=invocation.method,
                body=invocation.body,
                content_type=invocation.content_type,
                effects=description.effects,
                reversible=description.reversible,
                title=description.title,
                schema=description.input,
                reason="",
                proof=f"signed by {resolution.document.anchor}, verified by this gateway",
                person="" if visit.session is None else visit.session.person.name or "",
                client=self._parts.settings.name,
                request=invocation.compute_request_hash(),
            )
        )
        hidden = {name: form[name] for name in form if name not in {"csrf_token", "review"}}
        html = responses.render_page(
            "review.html",
            self._parts.settings,
            review=review,
            hidden=hidden,
            token=call.make_token(visit),
            csrf=visit.form_key.token,
            back=responses.build_gateway_url(self._parts.settings, invocation.uri),
        )
        return responses.make_page_response(html)

    async def serve_results(self, visit: RequestContext, name: str = "", part: str = "") -> Response:
        """Return the list of results, or what is below the name of one of them."""
        return await (self._show_result(visit, name, part) if name else self._list_results(visit))

    async def _list_results(self, visit: RequestContext) -> Response:
        """Return the list of this browser's results; those of a person only while the person is signed in."""
        found = [] if visit.cookie is None else self._parts.results.list_results(visit.cookie)
        session = await find_session(self._parts, visit) if found else None
        person = None if session is None else (session.person.issuer, session.person.subject)
        shown = [(name, stored) for name, stored in found if stored.person in {None, person}]
        return make_view_response(self._parts, visit, "results.html", responses.build_result_list(shown))

    async def _show_result(self, visit: RequestContext, name: str, part: str) -> Response:
        """Return a stored result: its page, content or receipts.

        Raises AIIPError if it is unknown, and `aiip.sign-in-required` if its person has signed out.
        """
        stored = None if visit.cookie is None else self._parts.results.find(name, visit.cookie)
        if stored is not None and stored.person is not None:
            person = (await require_session(self._parts, visit)).person
            stored = stored if (person.issuer, person.subject) == stored.person else None
        if stored is None or part not in {"", *_FILES}:
            raise AIIPError(
                "no such result: results are stored for 15 minutes, for the browser that requested them",
                code="aiip.task-not-found",
            )
        if not part:
            return responses.make_page_response(responses.render_result(self._parts.settings, name, stored))
        return _make_file_response(stored, part)


@dataclass(frozen=True, slots=True)
class _ReviewedCall:
    """A call from a form, and the token of its review page ("" before that was shown)."""

    invocation: Invocation
    described: Result
    given: str

    def is_confirmed(self, visit: RequestContext) -> bool:
        """Does the form come from the review page of exactly this call and description?"""
        given = self.given.encode("utf-8", "replace")
        return bool(given) and hmac.compare_digest(given, self.make_token(visit).encode())

    def make_token(self, visit: RequestContext) -> str:
        """Return the token of this call's review page."""
        invocation = self.invocation
        key = invocation.idempotency_key or ""
        return make_review_token(visit, [str(invocation.uri), key, invocation.body, self.described.body])


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

    def __init__(
        self, parts: Dependencies, relay: UpstreamRelay, site: PageHandler, approvals: CallApprovals
    ) -> None:
        self._parts = parts
        self._relay = relay
        self._site = site
        self._approvals = approvals

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
        # before the body is read: a token that is not valid, or a proof that was used, costs no more
        program = None if self._parts.programs is None else await self._parts.programs.authenticate(visit)
        body = await read_body(self._parts, visit) if visit.method == "POST" else b""
        with ExitStack() as stack:
            stack.enter_context(
                self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or "")
            )
            if visit.method == "GET" and visit.wants_page and program is None:
                return await self._site.show_resource(visit, uri)
            resolution = await self._parts.upstream.resolve(uri)
            if visit.method == "GET":
                return self._make_response(visit, await self._relay.get(visit, resolution))
            invocation = self._relay.build_invocation(visit, uri, body)
            known = await self._relay.get_description(visit, resolution)
            described = await self._relay.find_demand(visit, resolution, known)
            if described is not None:
                return await self._invoke_with_approval(visit, invocation, described)
            credentials = await self._relay.authorize_program(visit, resolution, known[0])
            upstream = self._parts.upstream
            if _EVENT_STREAM not in (visit.get_field("accept") or ""):
                result = await upstream.exchange(invocation, resolution, credentials=credentials)
                return self._make_response(visit, result)
            stream = await upstream.exchange_stream(invocation, resolution, credentials=credentials)
            response = await responses.start_event_response(self._parts, visit, stream, aiter(stream), stack)
            return self._make_response(visit, stream.result) if response is None else response

    async def _invoke_with_approval(
        self, visit: RequestContext, invocation: Invocation, described: Result
    ) -> Response:
        """Send a program's call to an endpoint that may want it approved, with evidence if there is any."""
        resolution = described.resolution
        description = parse_description(described, str(resolution.uri.without_query))
        # the endpoint may also run the call as it is, so the gateway's own rule must allow that
        allowed = replace(description, approval=False)
        credentials = await self._relay.authorize_program(visit, resolution, allowed)
        record = await self._approvals.find_call(visit, invocation)
        evidence = None if record is None else record.evidence
        invocation = replace(invocation, approval=evidence)
        result = await self._parts.upstream.exchange(invocation, resolution, credentials=credentials)
        challenge = forwarding.find_approval_challenge(result)
        if challenge is not None:
            return await self._approvals.ask_for_call(visit, described, invocation, challenge)
        if record is not None and evidence is not None and result.status < 400:
            await self._approvals.mark_sent(visit, record)
        return self._make_response(visit, result)

    def _make_response(self, visit: RequestContext, result: Result) -> Response:
        """Return the response of a result. A status with another meaning for gateways becomes a problem."""
        strange = result.status in responses.TRANSLATED_STATUSES or (
            result.status >= 400 and visit.wants_page
        )
        if strange or (300 <= result.status < 400 and result.status != 304):
            raise self._relay.make_result_error(result)
        response = responses.make_result_response(self._parts, visit, result)
        task = find_started_task(result) if visit.method == "POST" else None
        if task is not None:
            response.headers["location"] = responses.build_task_url(self._parts.settings, task)
        return response
