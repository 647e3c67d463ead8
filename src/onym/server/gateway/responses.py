"""HTTP responses of the gateway: results with receipts, event streams, problems, and pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response, StreamingResponse

from onym.ai.gateway import forwarding
from onym.ai.gateway.permissions import SIGN_IN_SECONDS
from onym.ai.gateway.review import FormField, build_form_fields
from onym.ai.records import EVENTS, JSON, PROBLEM, parse_media_type
from onym.ai.tasks import find_started_task
from onym.errors import AIIPError, NetError, OnymError
from onym.net.messages import SSEDecoder, SSEEvent
from onym.server.gateway.dependencies import record_exchange
from onym.server.gateway.sessions import build_step_up_path
from onym.server.services import STATIC_FOLDER, make_template_environment
from onym.uri.ai import AIURI, to_path

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.types import Receive, Scope, Send

    from onym.ai.client import AsyncAIStream
    from onym.ai.records import Description, Requirements, Resolution, Result
    from onym.ai.tasks import TaskReference
    from onym.server.gateway.dependencies import Dependencies, RequestContext, StoredResult
    from onym.server.gateway.settings import GatewaySettings

#: events and characters that a page shows; the download has all of them
_MOST_EVENTS: Final = 200
_MAX_STREAM_TEXT: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """The events of a stream. `text` joins its chunks of text ("" if the events are not text).

    `result` is the event of that name; `events` are (type, data) pairs without the receipt, and `count` is
    their number.
    """

    text: str
    result: str
    events: tuple[tuple[str, str], ...]
    count: int
    cut: bool


def build_stream_view(body: bytes) -> StreamView | None:
    """Return the view of a verified text/event-stream body, or None if it cannot be parsed."""
    try:
        events = SSEDecoder().feed(body)
    except NetError:
        return None
    if events and events[-1].event == "receipt":
        events.pop()
    text = _join_text(events)
    shown = _limit_events(events[:_MOST_EVENTS])
    return StreamView(
        text=text[:_MAX_STREAM_TEXT],
        result=next(
            (format_json(event.data)[:_MAX_STREAM_TEXT] for event in events if event.event == "result"), ""
        ),
        events=shown,
        count=len(events),
        cut=len(shown) < len(events) or len(text) > _MAX_STREAM_TEXT,
    )


def format_json(text: str) -> str:
    """Return JSON indented, and other text unchanged."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text


def _join_text(events: Sequence[SSEEvent]) -> str:
    pieces = [_parse_text_piece(event.data) for event in events if event.event == "message"]
    return "" if None in pieces else "".join(filter(None, pieces))


def _parse_text_piece(data: str) -> str | None:
    """Return the text of a message (a JSON string, or the member `text` of an object), or None."""
    try:
        message: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(message, dict):
        message = message.get("text")
    return message if isinstance(message, str) else None


def _limit_events(events: Sequence[SSEEvent]) -> tuple[tuple[str, str], ...]:
    """Return the first events that fit on a page."""
    shown, left = [], _MAX_STREAM_TEXT
    for event in events:
        left -= len(event.data)
        if left < 0:
            break
        shown.append((event.event, event.data))
    return tuple(shown)


#: characters of a result that a page shows; the download has all of them
_LONGEST_SHOWN: Final = 64 * 1024
_TEXTS: Final = frozenset({JSON, PROBLEM, "application/aiip+json"})

_VERIFY: Final = (
    "curl -o history.json '{anchor}/.well-known/aiip.jwks.json?history'\n"
    "onym ai verify receipt.jwt --body result --history history.json --uri '{uri}'"
)

#: check -> (clause, sentence), in the order of the client's checks
_CHECKS: Final = {
    "form": ("3.8 step 1", "It has three parts in strict base64url, within the size limit"),
    "header": (
        "3.8 steps 2, 3",
        "Its header contains only the receipt type, an allowed algorithm and a key ID",
    ),
    "key": ("3.8 step 4", "The authority publishes the key on its own origin"),
    "signature": ("3.8 step 5", "The signature is valid"),
    "issuer": ("3.8 step 6", "The authority's anchor issued it"),
    "resource": ("3.8 step 6", "It is for this resource"),
    "audience": ("3.8 step 6", "Its audience is this gateway"),
    "nonce": ("3.8 step 6", "It contains the nonce of this gateway's request"),
    "request": ("3.8 step 6", "It is for this request: same method, target, body and types"),
    "time": ("3.8 step 6", "It was signed just now"),
    "replay": ("3.8 step 6", "It was not used before"),
    "status": ("3.8 step 7", "The status matches the signed status"),
    "content type": ("3.8 step 7", "The content type matches the signed type"),
    "content": ("3.8 step 7", "The content matches the signed digest"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView:
    """A control of the form, with its ID on the page and its value."""

    id: str
    field: FormField
    value: str
    ticked: bool = False


def build_gateway_url(settings: GatewaySettings, uri: AIURI) -> str:
    """Return the gateway's URL of a canonical URI."""
    return settings.base_url + to_path(settings.prefix, uri)


def build_task_url(settings: GatewaySettings, reference: TaskReference, part: str = "status") -> str:
    """Return the gateway's URL of a part of a task."""
    path = to_path(f"/tasks/{part}", AIURI.parse(reference.uri))
    return f"{settings.base_url}{path}?{urlencode({'task': reference.id, 'request': reference.request})}"


def render_home(settings: GatewaySettings, **members: Any) -> str:
    """Return the start page with the field for an ai URI, which was `typed` or has a `fault`."""
    unset = dict.fromkeys(("typed", "fault", "hint", "uri", "shown", "warnings", "href"), "")
    return render_page("home.html", settings, **{**unset, **members})


def render_problem(
    settings: GatewaySettings, visit: RequestContext, refusal: forwarding.Refusal, sign_in: str = ""
) -> str:
    """Return the page of a refusal. `sign_in` is the path of the sign-in page, if that helps."""
    href = _build_canonical_url(settings, refusal.canonical or "")
    return render_page(
        "error.html",
        settings,
        refusal=refusal,
        request_id=visit.id,
        canonical_href=href,
        sign_in=sign_in,
    )


def _build_canonical_url(settings: GatewaySettings, canonical: str) -> str:
    from onym.errors import URIError

    try:
        return build_gateway_url(settings, AIURI.parse(canonical)) if canonical else ""
    except URIError:
        return ""


def format_time(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as people read it (UTC)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def build_proof(result: Result) -> tuple[tuple[tuple[str, str], ...], list[tuple[str, str]], str]:
    """Return (name, value) rows about the receipt, (clause, sentence) of its checks, and the receipt."""
    receipt = result.receipt
    bound = (
        ("Content", f"{receipt.digest}, {receipt.length} bytes")
        if receipt.stream is None
        else ("Events", f"{receipt.stream.count}, chain {receipt.stream.digest}")
    )
    approval = receipt.approval
    approved = (
        () if approval is None else (("Approved by", f"{' and '.join(approval.by)} at {approval.issuer}"),)
    )
    rows = (
        ("Issued by", receipt.issuer),
        ("For the resource", receipt.subject),
        ("Audience", receipt.audience),
        ("Signed at", format_time(receipt.issued)),
        ("Status", str(receipt.status)),
        bound,
        *approved,
        ("Request hash", receipt.request),
        ("Receipt id", receipt.id),
    )
    return rows, [_CHECKS[check] for check in result.checks if check in _CHECKS], result.token


def _describe_requirements(asks: Requirements) -> str:
    words = ["signed results", "no sign-in" if asks.auth == "none" else "an access token"]
    words += ["client certificates"] if asks.mtls else []
    words += ["proofs of possession (DPoP)"] if asks.dpop != "none" else []
    return ", ".join(words)


def build_control_views(
    fields: tuple[FormField, ...], typed: dict[str, str] | None = None
) -> tuple[ControlView, ...]:
    """Return the controls of a form, with the typed values or the schema's defaults."""
    return tuple(
        ControlView(
            id=f"in{index}",
            field=field,
            value=(typed or {}).get(field.name, "") if typed is not None else field.value,
            ticked=field.kind == "flag" and (typed.get(field.name) if typed else field.value) == "true",
        )
        for index, field in enumerate(fields)
    )


def render_resource(
    settings: GatewaySettings,
    resolution: Resolution,
    description: Description,
    result: Result,
    *,
    csrf: str,
    key: str,
    closed: AIIPError | None = None,
    way_out: tuple[str, str] | None = None,
    people: bool = False,
    as_service: bool = False,
    typed: dict[str, str] | None = None,
    fault: AIIPError | None = None,
) -> str:
    """Return the page of a described resource.

    `closed` is the error that prevents invoking it, `way_out` the path and the name of a link that helps.
    With `people`, the caller has checked the effects for the person who is signed in. `as_service` tells that
    the gateway asks in its own name.
    """
    uri = resolution.uri
    shut = closed if people else closed or forwarding.find_denial(uri, description)
    if shut is None and "POST" not in description.methods:
        words, code = "this resource only describes itself and cannot be invoked", ""
    else:
        words, code = ("", "") if shut is None else (shut.message, shut.code.removeprefix("aiip."))
    return render_page(
        "resource.html",
        settings,
        resolution=resolution,
        requirements=_describe_requirements(resolution.document.requirements),
        description=description,
        title=description.title or uri.path.rpartition("/")[2] or resolution.authority,
        address=build_gateway_url(settings, uri),
        output=""
        if description.output is None
        else _format_json_body(msgspec.json.encode(dict(description.output))),
        proof=build_proof(result),
        closed=words,
        closed_code=code,
        as_service=as_service,
        way_out=way_out,
        csrf=csrf,
        key=key,
        controls=build_control_views(build_form_fields(description.input), typed),
        fault="" if fault is None else fault.message,
        hint="" if fault is None else fault.hint or "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A result in the list of a browser's results. `at` is text in UTC."""

    url: str
    uri: str
    status: int
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultListView:
    """The results of one browser, the newest first."""

    results: tuple[ResultRow, ...]


def build_result_list(results: Sequence[tuple[str, StoredResult]]) -> ResultListView:
    """Return the list of these results, without their queries."""
    return ResultListView(
        results=tuple(
            ResultRow(
                url=f"/results/{name}",
                uri=str(stored.result.resolution.uri.without_query),
                status=stored.result.status,
                at=format_time(stored.at.timestamp()),
            )
            for name, stored in results
        )
    )


def render_result(settings: GatewaySettings, name: str, stored: StoredResult) -> str:
    """Return the page of the result of a form."""
    result = stored.result
    uri = result.resolution.uri
    text = _decode_text(result)
    is_stream = parse_media_type(result.content_type) == "text/event-stream"
    return render_page(
        "result.html",
        settings,
        result=result,
        folder=f"/results/{name}",
        address=build_gateway_url(settings, uri),
        text=(text or "")[:_LONGEST_SHOWN],
        cut=text is not None and len(text) > _LONGEST_SHOWN,
        shown=text is not None,
        at=format_time(stored.at.timestamp()),
        proof=build_proof(result),
        as_service=stored.as_service,
        commands=_VERIFY.format(anchor=result.resolution.anchor, uri=uri.without_query),
        stream=build_stream_view(result.body) if is_stream else None,
    )


def _decode_text(result: Result) -> str | None:
    kind = parse_media_type(result.content_type)
    if kind in _TEXTS or kind.endswith("+json"):
        return _format_json_body(result.body)
    if kind.startswith("text/"):
        return result.body.decode("utf-8", "replace")
    return None


def _format_json_body(body: bytes) -> str:
    """Return short JSON indented, and other content unchanged."""
    if len(body) <= _LONGEST_SHOWN:
        try:
            return msgspec.json.format(body, indent=2).decode("utf-8", "replace")
        except msgspec.DecodeError:
            pass
    return body.decode("utf-8", "replace")


#: files of /static/: name -> (file, media type)
STATIC_FILES: Final = {
    "onym.css": (STATIC_FOLDER / "onym.css", "text/css"),
    "icon.svg": (STATIC_FOLDER / "icon.svg", "image/svg+xml"),
}


@cache
def get_template_environment() -> Environment:
    """Return the Jinja environment of these pages."""
    return make_template_environment("onym.server.gateway")


def render_page(template: str, settings: GatewaySettings, /, **members: Any) -> str:
    """Return the whole HTML document."""
    values = {**members, "name": settings.name, "people": bool(settings.providers)}
    return get_template_environment().get_template(template).render(values)


#: seconds for which a browser waits for the result of a task, before it gets the task's page
FORM_WAIT: Final = 3.0
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
    refusal = forwarding.make_refusal(error)
    visit.notes |= {"decision": "refuse", "code": refusal.cause, "status": refusal.status}
    headers = {"proxy-status": forwarding.format_proxy_status(refusal, parts.settings.name)}
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
        elif refusal.code == "sign-in-failed" and parts.providers:
            sign_in = "/auth/login"
        html = render_problem(parts.settings, visit, refusal, sign_in)
        response = make_page_response(html, refusal.status, headers)
    else:
        document = _encode_problem(parts, visit, refusal)
        response = Response(document, refusal.status, headers, media_type=PROBLEM)
    for challenge in refusal.challenges or _list_challenges(parts, visit, refusal):
        response.headers.append("www-authenticate", challenge)
    return response


def _list_challenges(
    parts: Dependencies, visit: RequestContext, refusal: forwarding.Refusal
) -> tuple[str, ...]:
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


def _encode_problem(parts: Dependencies, visit: RequestContext, refusal: forwarding.Refusal) -> bytes:
    return msgspec.json.encode(
        forwarding.build_refusal_document(
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
    return forwarding.sign_gateway_receipt(
        result,
        parts.signer(),
        issuer=parts.settings.base_url,
        origin=visit.get_field("origin"),
        nonce=visit.get_field("aiip-nonce"),
        at=parts.clock().timestamp(),
        policy=forwarding.PEOPLE_POLICY_HASH if parts.providers else forwarding.POLICY_HASH,
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
        forwarding.RECEIPT_HEADER: make_gateway_receipt(parts, visit, result),
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
        refusal = forwarding.make_refusal(error)
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
