"""HTTP responses of the gateway: results with their receipts, event streams, pages and problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response, StreamingResponse

from onym.ai.gateway import forwarding
from onym.ai.gateway.forwarding import (
    PEOPLE_POLICY_HASH,
    POLICY_HASH,
    RECEIPT_HEADER,
    Refusal,
    build_refusal_document,
    format_proxy_status,
    make_refusal,
    sign_gateway_receipt,
)
from onym.ai.gateway.permissions import SIGN_IN_SECONDS
from onym.ai.records import EVENTS, parse_media_type
from onym.ai.tasks import find_started_task
from onym.errors import AIIPError, OnymError
from onym.server.gateway.dependencies import record_exchange
from onym.server.gateway.sessions import build_step_up_path
from onym.server.gateway.views import build_task_url, render_problem

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from onym.ai.client import AsyncAIStream
    from onym.ai.records import Result
    from onym.net.messages import SSEEvent
    from onym.server.gateway.dependencies import Dependencies, RequestContext

#: seconds for which a browser waits for the result of a task, before it gets the task's page
FORM_WAIT: Final = 3.0
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
#: statuses of a signed result that have another meaning for a gateway (3.7)
TRANSLATED_STATUSES: Final = frozenset({206, 401, 403, 407})
#: content security policy of the gateway's pages: forms to this origin, no scripts
PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)


def make_page_response(html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return the response of a page."""
    fields = {
        "content-security-policy": PAGE_POLICY,
        # without a referrer a browser sends forms with `Origin: null` (Fetch 3.1)
        "referrer-policy": "same-origin",
        "vary": "Accept",
        **(headers or {}),
    }
    # untrusted JSON may contain lone surrogates, which UTF-8 cannot encode
    return Response(html.encode("utf-8", "replace"), status, fields, media_type="text/html")


def make_problem_response(parts: Dependencies, visit: RequestContext, error: OnymError) -> Response:
    """Return the response for an error: a page or problem details."""
    refusal = make_refusal(error)
    visit.notes |= {"decision": "refuse", "code": refusal.cause, "status": refusal.status}
    headers = {"proxy-status": format_proxy_status(refusal, parts.settings.name)}
    if refusal.status in {429, 503}:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.status == 400:
        # the error may be about where a request ends: the connection must not be reused
        headers["connection"] = "close"
    if refusal.code == "method-not-allowed":
        headers["allow"] = "GET, HEAD, POST, OPTIONS"
    if visit.wants_page:
        sign_in = build_sign_in_path(parts, visit) if refusal.code == SIGN_IN_REQUIRED else ""
        if refusal.code == "step-up-required":
            sign_in = _find_step_up_path(visit)
        html = render_problem(parts.settings, visit, refusal, sign_in)
        response = make_page_response(html, refusal.status, headers)
    else:
        document = _encode_problem(parts, visit, refusal)
        response = Response(document, refusal.status, headers, media_type=PROBLEM_MEDIA_TYPE)
    for challenge in refusal.challenges or _list_challenges(parts, visit, refusal):
        response.headers.append("www-authenticate", challenge)
    return response


def _list_challenges(parts: Dependencies, visit: RequestContext, refusal: Refusal) -> tuple[str, ...]:
    """Return the values of WWW-Authenticate: a 401 response has at least one (RFC 9110 15.5.2)."""
    if refusal.status != 401:
        return ()
    if parts.programs is not None and not visit.wants_page:
        return parts.programs.challenges
    return (f'Bearer realm="{parts.settings.name}"',)


#: the problem code of a request that needs a signed-in person
SIGN_IN_REQUIRED: Final = "sign-in-required"


def build_sign_in_path(parts: Dependencies, visit: RequestContext) -> str:
    """Return the path of the sign-in page, which leads back to this page; "" without a provider."""
    if not parts.providers:
        return ""
    return f"/auth/login?{urlencode({'next': visit.target if visit.method == 'GET' else '/'})}"


def _find_step_up_path(visit: RequestContext) -> str:
    """Return the path that asks for a better sign-in after a form, and leads back to its page, or "".

    After the redirect from a provider there is none: a page asks once.
    """
    if visit.step_up_path is not None:
        return visit.step_up_path
    if visit.method != "POST":
        return ""
    page = visit.path.decode("latin-1") if visit.path.startswith(b"/approvals/") else "/"
    return build_step_up_path(page, max_age=int(SIGN_IN_SECONDS))


def _encode_problem(parts: Dependencies, visit: RequestContext, refusal: Refusal) -> bytes:
    return msgspec.json.encode(
        build_refusal_document(
            refusal, base_url=parts.settings.base_url, request_id=visit.id, trace=visit.trace_id
        )
    )


def make_gateway_receipt(parts: Dependencies, visit: RequestContext, result: Result) -> str:
    """Return the gateway's receipt for a verified result, and put it into the audit record."""
    visit.notes |= {
        "decision": "permit",
        "status": result.status,
        "jti": result.receipt.id,
        "rqh": result.receipt.request,
    }
    return sign_gateway_receipt(
        result,
        parts.signer(),
        issuer=parts.settings.base_url,
        origin=visit.get_field("origin"),
        nonce=visit.get_field("aiip-nonce"),
        at=parts.clock().timestamp(),
        policy=PEOPLE_POLICY_HASH if parts.providers else POLICY_HASH,
        client=None if visit.program is None else visit.program.client,
        token_hash=None if visit.program is None else visit.program.caller.token_hash,
    )


def redirect_to_result(parts: Dependencies, visit: RequestContext, result: Result) -> Response:
    """Return the redirect of a browser to a task that began, or to the result, which is stored for it."""
    witness, task = make_gateway_receipt(parts, visit, result), find_started_task(result)
    if task is not None:
        return RedirectResponse(build_task_url(parts.settings, task), 303)
    name = parts.results.put(
        result,
        witness,
        visit.form_key.get_secret().reveal(),
        parts.clock(),
        client=visit.client,
        as_service=visit.asks_as_service,
        person=None if visit.session is None else (visit.session.person.issuer, visit.session.person.subject),
    )
    return RedirectResponse(f"/results/{name}", 303)


def make_result_response(parts: Dependencies, visit: RequestContext, result: Result) -> Response:
    """Return the response of a verified result, with its unchanged receipt and the gateway's receipt."""
    headers = dict(forwarding.select_client_fields(result.headers))
    headers |= {
        "content-security-policy": forwarding.RESULT_POLICY,
        "vary": "Accept",
        "aiip-receipt": result.token,
        RECEIPT_HEADER: make_gateway_receipt(parts, visit, result),
    }
    shown = forwarding.get_content_disposition(result.content_type)
    if result.content_type is not None:
        headers["content-type"] = result.content_type
    if result.receipt.digest is not None and "content-digest" in result.headers:
        headers["content-digest"] = result.receipt.digest  # what was verified, not what was said
    if shown is not None and result.body:
        headers["content-disposition"] = shown
    return Response(result.body, result.status, headers)


@dataclass(frozen=True, slots=True)
class StartedStream:
    """A stream whose first event has arrived; `first` is None if the stream ended without one.

    `record` writes the last audit record. Raises AIIPError `aiip.unavailable`.
    """

    stream: AsyncAIStream
    first: SSEEvent | None
    rest: AsyncIterator[SSEEvent]
    record: Callable[[], None]


class EventStreamResponse(StreamingResponse):
    """A response that streams events, provisional until the receipt.

    It closes its stream even if the client disconnects before the first byte; `done` is always called last.
    """

    def __init__(
        self, parts: Dependencies, visit: RequestContext, begun: StartedStream, done: Callable[[], None]
    ) -> None:
        headers = {
            "content-security-policy": forwarding.RESULT_POLICY,
            "vary": "Accept",
            "aiip-provisional": "?1",
        }
        events = _stream_events(parts, visit, begun)
        super().__init__(events, 200, headers, media_type="text/event-stream")
        self._begun, self._done = begun, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. After a fault of the upstream the response stays without its end.

        The server then closes the connection and logs one line. An exception would be a traceback in the log,
        for as many calls as a hostile authority fails.
        """
        try:
            with suppress(OnymError):
                await super().__call__(scope, receive, send)
        finally:
            try:
                await self._begun.stream.close()
            finally:
                self._done()


async def start_event_response(
    parts: Dependencies,
    visit: RequestContext,
    stream: AsyncAIStream,
    events: AsyncIterator[SSEEvent],
    reserved: ExitStack,
) -> EventStreamResponse | None:
    """Return the response that streams `events`, which are those of `stream` that the caller gets.

    None if the upstream's response is not a stream of events. What is `reserved` is released at the end of
    the stream. Raises OnymError for a failure before the first event.
    """
    try:
        first = await anext(events, None)
        if first is None and parse_media_type(stream.result.content_type) != EVENTS:
            return None
        # before the first byte: a client that disconnects early has seen events all the same
        visit.notes |= {"decision": "provisional", "status": 200}
        record_exchange(parts, visit, "begun")
    except BaseException:
        await stream.close()
        raise
    visit.streaming = True
    held = reserved.pop_all()

    def finish() -> None:
        # a failure here was reported already, or the log has only the record of the beginning
        with held, suppress(AIIPError):
            record_exchange(parts, visit)

    begun = StartedStream(stream, first, events, lambda: record_exchange(parts, visit))
    return EventStreamResponse(parts, visit, begun, finish)


async def _stream_events(
    parts: Dependencies, visit: RequestContext, begun: StartedStream
) -> AsyncIterator[bytes]:
    try:
        async with begun.stream:
            yield b": provisional until the event receipt\n\n"
            if begun.first is not None:
                yield encode_event(*begun.first)
            async for event in begun.rest:
                yield encode_event(*event)
            result = begun.stream.result
            own = make_gateway_receipt(parts, visit, result)
            begun.record()  # what the events become by their receipt is in the log before
            yield encode_event("receipt", result.token)
            yield encode_event("gateway-receipt", own)
    except OnymError as error:
        refusal = make_refusal(error)
        visit.notes |= {"decision": "refuse", "code": refusal.cause, "status": refusal.status}
        yield encode_event("error", _encode_problem(parts, visit, refusal).decode("utf-8"))
        # the message must not end as if it were whole: the server closes the connection instead
        raise


def encode_event(event: str, data: str, id: str | None = None) -> bytes:  # noqa: A002
    """Encode one server-sent event, so that parsing it gives the same type, data and ID."""
    lines = [] if id is None else [f"id: {id}"]
    lines += [] if event == "message" else [f"event: {event}"]
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8")
