"""What goes back over HTTPS: results with their receipts, streams of events, problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from onym.ai.gateway import fields
from onym.ai.gateway.problems import Refusal, document, proxy_status, refusal_of
from onym.ai.gateway.witness import HEADER, witness
from onym.errors import OnymError
from onym.server.gateway.draw import draw
from onym.server.gateway.views import problem_view

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from onym.ai.records import Result
    from onym.net.sse import SSEEvent
    from onym.server.gateway.parts import Events, Parts
    from onym.server.gateway.visit import Visit

__all__ = [
    "PAGE_POLICY",
    "TRANSLATED",
    "Begun",
    "page",
    "problem",
    "result_answer",
    "stream_answer",
    "witness_of",
]

PROBLEM: Final = "application/problem+json"
#: statuses of a signed answer that would mean something else from a gateway (3.7)
TRANSLATED: Final = frozenset({206, 401, 403, 407})
#: the pages that are drawn here: forms that come back here, and nothing that runs
PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)


def page(html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A page that was drawn here."""
    given = {
        "content-security-policy": PAGE_POLICY,
        # without a referrer a browser sends its forms with `Origin: null` (Fetch 3.1)
        "referrer-policy": "same-origin",
        "vary": "Accept",
        **(headers or {}),
    }
    # JSON of a stranger may hold halves of characters, which no encoding has
    return Response(html.encode("utf-8", "replace"), status, given, media_type="text/html")


def problem(parts: Parts, visit: Visit, error: OnymError) -> Response:
    """The answer that tells of this error, as a page or as problem details."""
    refusal = refusal_of(error)
    visit.notes |= {"decision": "refuse", "code": refusal.cause, "status": refusal.status}
    headers = {"proxy-status": proxy_status(refusal, parts.settings.name)}
    if refusal.status in {429, 503}:
        headers["retry-after"] = "1"
    if refusal.status == 400:
        # where one request ends and the next begins may be what is wrong
        headers["connection"] = "close"
    if refusal.code == "method-not-allowed":
        headers["allow"] = "GET, HEAD, POST, OPTIONS"
    if visit.wants_page:
        return page(draw(problem_view(parts.settings, visit, refusal)), refusal.status, headers)
    return Response(_document(parts, visit, refusal), refusal.status, headers, media_type=PROBLEM)


def _document(parts: Parts, visit: Visit, refusal: Refusal) -> bytes:
    return msgspec.json.encode(
        document(refusal, base_url=parts.settings.base_url, request_id=visit.id, trace=visit.trace)
    )


def witness_of(parts: Parts, visit: Visit, result: Result) -> str:
    """The gateway's own receipt for a result that was verified just now; noted for the audit log."""
    visit.notes |= {
        "decision": "permit",
        "status": result.status,
        "jti": result.receipt.id,
        "rqh": result.receipt.request,
    }
    return witness(
        result,
        parts.signer(),
        issuer=parts.settings.base_url,
        origin=visit.field("origin"),
        nonce=visit.field("aiip-nonce"),
        at=parts.clock().timestamp(),
    )


def result_answer(parts: Parts, visit: Visit, result: Result) -> Response:
    """A verified result, its receipt unchanged and the gateway's own beside it."""
    headers = dict(fields.to_client(result.headers))
    headers |= {
        "content-security-policy": fields.RESULT_POLICY,
        "vary": "Accept",
        "aiip-receipt": result.token,
        HEADER: witness_of(parts, visit, result),
    }
    shown = fields.disposition(result.content_type)
    if result.content_type is not None:
        headers["content-type"] = result.content_type
    if result.receipt.digest is not None and "content-digest" in result.headers:
        headers["content-digest"] = result.receipt.digest  # what was verified, not what was said
    if shown is not None and result.body:
        headers["content-disposition"] = shown
    return Response(result.body, result.status, headers)


@dataclass(frozen=True, slots=True)
class Begun:
    """A stream whose first event was waited for; `first` is None where it ended without one.

    `record` writes the last line of the audit log. Raises AIIPError `aiip.unavailable`.
    """

    stream: Events
    first: SSEEvent | None
    rest: AsyncIterator[SSEEvent]
    record: Callable[[], None]


def stream_answer(parts: Parts, visit: Visit, begun: Begun, done: Callable[[], None]) -> Response:
    """Events as they come, provisional until the receipt; `done` is called at the end, come what may."""
    headers = {
        "content-security-policy": fields.RESULT_POLICY,
        "vary": "Accept",
        "aiip-provisional": "?1",
    }
    return _Streaming(begun, done, _events(parts, visit, begun), headers)


class _Streaming(StreamingResponse):
    """Ends its stream also where the client left before it began: nothing of it runs then."""

    def __init__(
        self, begun: Begun, done: Callable[[], None], events: AsyncIterator[bytes], headers: dict[str, str]
    ) -> None:
        super().__init__(events, 200, headers, media_type="text/event-stream")
        self._begun, self._done = begun, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            try:
                await self._begun.stream.close()
            finally:
                self._done()


async def _events(parts: Parts, visit: Visit, begun: Begun) -> AsyncIterator[bytes]:
    try:
        async with begun.stream:
            yield b": provisional until the event receipt\n\n"
            if begun.first is not None:
                yield _encoded(begun.first)
            async for event in begun.rest:
                yield _encoded(event)
            result = begun.stream.result
            own = witness_of(parts, visit, result)
            begun.record()  # what the events become by their receipt is in the log before
            yield encode_event("receipt", result.token)
            yield encode_event("gateway-receipt", own)
    except OnymError as error:
        refusal = refusal_of(error)
        visit.notes |= {"decision": "refuse", "code": refusal.cause, "status": refusal.status}
        yield encode_event("error", _document(parts, visit, refusal).decode("utf-8"))
        # the message must not end as if it were whole: the server closes the connection instead
        raise


def _encoded(event: SSEEvent) -> bytes:
    return encode_event(event.event, event.data, event.id)


def encode_event(event: str, data: str, id: str | None = None) -> bytes:  # noqa: A002
    """One server-sent event; read again, it has the same type, data and id."""
    lines = [] if id is None else [f"id: {id}"]
    lines += [] if event == "message" else [f"event: {event}"]
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8")
