"""Long tasks behind the gateway: their URLs, the requests to them, and the page that shows one (3.12).

A URL names everything that the gateway needs to verify the endpoint's receipts: the resource, the task and
the hash of the request that began it. So the gateway stores nothing, and every gateway of a fleet can serve
it. The two values that open an anonymous task are in the query, which logs leave out.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import RedirectResponse, Response

from onym.ai.client_flows import exchange_task, open_task_events
from onym.ai.exchange import TaskTarget
from onym.ai.gateway import forwarding
from onym.ai.gateway.review import build_form_fields, encode_form_input
from onym.ai.records import EVENTS, JSON, Invocation, TaskPart, format_task_target
from onym.ai.tasks import TaskReference, parse_task_status
from onym.errors import AIIPError, UsageError
from onym.server.gateway import responses
from onym.server.gateway.dependencies import is_form, make_reload_headers, parse_form, parse_pairs, read_body
from onym.uri.ai import AIURI, from_target

if TYPE_CHECKING:
    from onym.ai.client_flows import Session
    from onym.ai.records import Resolution, Result, TaskStatus
    from onym.net.messages import SSEEvent
    from onym.server.gateway.dependencies import Dependencies, RequestContext
    from onym.server.gateway.handlers import UpstreamRelay
    from onym.server.gateway.settings import GatewaySettings

#: part of the gateway's URL -> part of the task, and the methods
_PARTS: Final[dict[str, tuple[TaskPart, frozenset[str]]]] = {
    "status": ("", frozenset({"GET", "DELETE"})),
    "events": ("events", frozenset({"GET"})),
    "result": ("result", frozenset({"GET"})),
    "input": ("input", frozenset({"POST"})),
    "cancel": ("", frozenset({"POST"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenTask:
    """A task, and what a request to it needs. `personal` tells that only its person can open it."""

    reference: TaskReference
    resolution: Resolution
    session: Session
    personal: bool

    def get_target(self, part: TaskPart) -> TaskTarget:
        return TaskTarget(id=self.reference.id, original=self.reference.request, part=part)


class TaskHandler:
    """Handles the requests to tasks. A request needs what an invocation of the resource needs."""

    def __init__(self, parts: Dependencies, relay: UpstreamRelay) -> None:
        self._parts = parts
        self._relay = relay

    async def handle_request(self, visit: RequestContext, name: str) -> Response:
        """Return the response to a request below `/tasks/NAME`. Raises OnymError."""
        if name not in _PARTS:
            raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")
        uri = from_target(f"/tasks/{name}", visit.path, b"")
        visit.audited = True
        self._relay.note_target(visit, uri)
        forwarding.require_no_loop(uri, self._parts.settings.own_hosts)
        reference = _parse_reference(visit, uri)
        part, methods = _PARTS[name]
        if visit.method not in methods:
            message = f"this part of a task supports only {', '.join(sorted(methods))}"
            raise AIIPError(message, code="aiip.method-not-allowed")
        if self._parts.programs is not None:
            await self._parts.programs.authenticate(visit)
        body = await read_body(self._parts, visit) if visit.method == "POST" else b""
        form = None
        if name == "cancel" or (name == "input" and is_form(visit)):
            form = parse_form(visit, body)  # raises for a form of another browser
        with ExitStack() as stack:
            stack.enter_context(
                self._parts.slots.reserve(client=visit.client, authority=uri.authority_text or "")
            )
            task = await self._open_task(visit, uri, reference, by_form=form is not None)
            if name == "events":
                return await self._follow_events(visit, task, stack)
            if name == "input" and form is not None:
                return await self._answer_by_form(visit, task, form)
            method = "DELETE" if name == "cancel" else visit.method
            plain = name == "cancel" or visit.wants_page
            result = await self._exchange(visit, task, part, method, body, plain=plain)
        return self._respond(visit, name, task, result)

    async def _open_task(
        self, visit: RequestContext, uri: AIURI, reference: TaskReference, *, by_form: bool
    ) -> _OpenTask:
        resolution = await self._parts.upstream.resolve(uri)
        credentials = await self._relay.authorize_task(visit, resolution, by_form=by_form)
        session = self._parts.upstream.session
        if credentials is not None:
            session = replace(session, credentials=credentials)
        # without a grant the authority gets no token, and so the task is anybody's who has its URL
        personal = credentials is not None and None not in (credentials.subject, credentials.grant)
        return _OpenTask(reference=reference, resolution=resolution, session=session, personal=personal)

    async def _exchange(
        self, visit: RequestContext, task: _OpenTask, part: TaskPart, method: str, body: bytes, *, plain: bool
    ) -> Result:
        invocation = Invocation(
            uri=task.resolution.uri,
            method=method,
            body=body if part == "input" else b"",
            content_type=JSON if part == "input" else None,
            headers=self._relay.build_forwarded_fields(visit, plain=plain),
        )
        _require_bound(visit, invocation, reference=task.reference, part=part)
        flow = exchange_task(task.session, invocation, task.resolution, task.get_target(part))
        return await self._parts.upstream.run(flow)

    def _respond(self, visit: RequestContext, name: str, task: _OpenTask, result: Result) -> Response:
        if result.status in responses.TRANSLATED_STATUSES or (result.status >= 400 and visit.wants_page):
            raise self._relay.make_result_error(result)
        if name == "cancel":
            return self._lead_to_status(visit, task, result)
        if visit.wants_page and name in {"status", "result"}:
            return self._show_page(visit, task, result)
        return responses.make_result_response(self._parts, visit, result)

    def _lead_to_status(self, visit: RequestContext, task: _OpenTask, result: Result) -> Response:
        responses.make_gateway_receipt(self._parts, visit, result)
        return RedirectResponse(responses.build_task_url(self._parts.settings, task.reference), 303)

    def _show_page(
        self,
        visit: RequestContext,
        task: _OpenTask,
        result: Result,
        *,
        typed: dict[str, str] | None = None,
        fault: AIIPError | None = None,
    ) -> Response:
        """Return the page of a task, or the redirect to the page of its result, which shows the proof."""
        settings, reference = self._parts.settings, task.reference
        if result.content_type is None or not result.content_type.startswith("application/aiip-task"):
            name = self._parts.results.put(
                result,
                responses.make_gateway_receipt(self._parts, visit, result),
                visit.form_key.get_secret().reveal(),
                self._parts.clock(),
                client=visit.client,
            )
            return RedirectResponse(f"/results/{name}", 303)
        status = parse_task_status(result, request=reference.request, task=reference.id)
        responses.make_gateway_receipt(self._parts, visit, result)
        # a page with a form is not loaded again: that would delete what the person types
        headers = {} if status.is_final or status.inputs is not None else make_reload_headers(visit)
        html = _render_task(
            settings,
            status,
            result,
            links={part: responses.build_task_url(settings, reference, part) for part in _PARTS},
            csrf=visit.form_key.token,
            reloads=bool(headers),
            personal=task.personal,
            question=_hash_question(status),
            controls=responses.build_control_views(build_form_fields(status.inputs), typed),
            fault=fault,
        )
        return responses.make_page_response(html, 200 if fault is None else 422, headers)

    async def _answer_by_form(
        self, visit: RequestContext, task: _OpenTask, form: Mapping[str, str]
    ) -> Response:
        """Send what a person typed as the input that the task waits for. The signed status has its schema."""
        result = await self._exchange(visit, task, "", "GET", b"", plain=True)
        if result.status != 200:
            raise self._relay.make_result_error(result)
        status = parse_task_status(result, request=task.reference.request, task=task.reference.id)
        if status.inputs is None:
            # answered before, for example by a second click
            return self._lead_to_status(visit, task, result)
        fields = build_form_fields(status.inputs)
        typed = {field.name: form.get(f"in{index}", "") for index, field in enumerate(fields)}
        try:
            if form.get("question") != _hash_question(status):
                raise AIIPError("the task asks something else now", code="aiip.invalid-input")
            content = encode_form_input(fields, typed)
            answer = await self._exchange(visit, task, "input", "POST", content, plain=True)
            if answer.status >= 400:
                raise self._relay.make_result_error(answer)
        except AIIPError as fault:
            if fault.code != "aiip.invalid-input":
                raise
            return self._show_page(visit, task, result, typed=typed, fault=fault)
        return self._lead_to_status(visit, task, answer)

    async def _follow_events(self, visit: RequestContext, task: _OpenTask, stack: ExitStack) -> Response:
        """Return the events after those that the caller has.

        The gateway reads them from the first one on, because only so it can verify the receipt.
        """
        after = _parse_event_number(visit)
        upstream = self._parts.upstream
        invocation = Invocation(
            uri=task.resolution.uri,
            method="GET",
            accept=EVENTS,
            headers=self._relay.build_forwarded_fields(visit, plain=True),
        )
        _require_bound(visit, invocation, reference=task.reference, part="events")
        flow = open_task_events(task.session, invocation, task.resolution, task.get_target("events"), None)
        opened = await upstream.run(flow)
        if opened.result is not None:
            raise self._relay.make_result_error(opened.result)
        stream = upstream.read_stream(opened)
        events = _skip_events(aiter(stream), after)
        response = await responses.start_event_response(self._parts, visit, stream, events, stack)
        return (
            responses.make_result_response(self._parts, visit, stream.result)
            if response is None
            else response
        )


def _require_bound(
    visit: RequestContext, invocation: Invocation, *, reference: TaskReference, part: TaskPart
) -> None:
    """Raise AIIPError `aiip.sender-constraint` if a program's proof is for another request."""
    if visit.program is not None:
        visit.program.require_bound_to(invocation, format_task_target(reference.id, part))


def _hash_question(status: TaskStatus) -> str:
    """Return what tells the questions of a task apart; "" if it asks nothing."""
    if status.inputs is None:
        return ""
    return hashlib.sha256(msgspec.json.encode(dict(status.inputs))).hexdigest()[:32]


async def _skip_events(events: AsyncIterator[SSEEvent], after: int) -> AsyncIterator[SSEEvent]:
    skipped = 0
    async for event in events:
        if skipped < after:
            skipped += 1
            continue
        yield event


def _parse_reference(visit: RequestContext, uri: AIURI) -> TaskReference:
    members: dict[str, Any] = dict(parse_pairs(visit.query))
    try:
        return TaskReference(
            uri=str(uri.without_query), id=members.get("task", ""), request=members.get("request", "")
        )
    except UsageError:
        raise AIIPError(
            "the task does not exist, or belongs to another caller", code="aiip.task-not-found"
        ) from None


def _parse_event_number(visit: RequestContext) -> int:
    text = (visit.get_field("last-event-id") or "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise AIIPError("Last-Event-ID is not the number of an event", code="aiip.bad-request")
    return int(text)


#: heading and colour of a task's page by its state
_TASK_HEADINGS: Final = {
    "completed": ("It has ended", "registered"),
    "failed": ("It has failed", "revoked"),
    "rejected": ("It was refused", "revoked"),
    "canceled": ("It was cancelled", "revoked"),
    "input-required": ("It has a question", "pending-review"),
}


def _render_task(
    settings: GatewaySettings,
    status: TaskStatus,
    result: Result,
    *,
    links: Mapping[str, str],
    csrf: str,
    reloads: bool,
    personal: bool,
    question: str,
    controls: Sequence[responses.ControlView],
    fault: AIIPError | None = None,
) -> str:
    """Return the page of a long task. `result` is the verified response with its status.

    `reloads` tells that the browser loads the page again every few seconds, `personal` that only the person
    who began the task can open it. `controls` are those of the input that it waits for, `question` names it,
    and `fault` is what is wrong with the values.
    """
    heading, mark = _TASK_HEADINGS.get(status.state, ("It is running", "pending-review"))
    return responses.render_page(
        "task.html",
        settings,
        status=status,
        result=result,
        heading=heading,
        mark=mark,
        begun=responses.format_time(status.created),
        proof=responses.build_proof(result),
        links=links,
        csrf=csrf,
        reloads=reloads,
        personal=personal,
        question=question,
        controls=controls,
        fault="" if fault is None else fault.message,
        hint="" if fault is None else fault.hint or "",
    )
