"""Calls of MCP tools as invocations of `ai://` resources, and their course as tasks of MCP (SEP-2663)."""

from __future__ import annotations

import json
import math
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.ai.messages import CODES, find_problem_code
from onym.ai.records import Effects
from onym.bridges import _sdk as sdk
from onym.bridges.approvals import PAGE_KEY, ApprovalPage, PermissionPages, build_approval
from onym.errors import AIIPError, OnymError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError
    from mcp.types import CallToolResult, ContentBlock, InputRequiredResult

    from onym.ai.records import Description, Result, TaskStatus
    from onym.ai.tasks import AsyncTaskHandle

#: what a person is told who comes back before the decision
_WAITING: Final = "people have not decided about this call yet"


class ToolCall:
    """One call of a tool, which may be a call again after its input."""

    def __init__(
        self,
        client: sdk.Invoker,
        uri: AIURI,
        description: Description,
        pages: PermissionPages,
        context: Any,
        params: Any,
    ) -> None:
        self._client, self._uri, self._description = client, uri, description
        self._pages = pages
        self._context, self._params = context, params
        # sealed for this tool, these arguments and this principal: see RequestStateBoundary
        state = {} if params.request_state is None else json.loads(params.request_state)
        self._answers: dict[str, Any] = state.get("answers", {})
        self._key: str | None = state.get("key")
        pending = state.get("approval")
        #: the approval that this call waits for
        self._pending = None if pending is None else ApprovalPage(**pending)
        if self._key is None and description.effects is not Effects.READ:
            self._key = secrets.token_urlsafe(16)

    async def run(self, tasks: ToolTasks | None) -> CallToolResult | InputRequiredResult | dict[str, Any]:
        """Ask for what is missing, or invoke the resource, as a task if both sides know tasks."""
        arguments = {**(self._params.arguments or {}), **self._answers}
        questions = sdk.find_questions(self._description, arguments) if self._supports("form") else {}
        for name in list(questions):
            response = (self._params.input_responses or {}).get(name)
            if getattr(response, "action", "accept") != "accept":
                return self._fail("aiip.bad-request", "the person did not give the input")
            value = questions[name].read(getattr(response, "content", None), name)
            if value is not None:
                self._answers[name] = value[0]
                del questions[name]
        if questions:
            return self._ask(
                {
                    name: build_form(str(self._uri), name, question.form)
                    for name, question in questions.items()
                }
            )
        arguments |= self._answers
        try:
            evidence = None
            if self._pending is not None:
                evidence = await self._pages.fetch_evidence(self._pending)
                if evidence is None:
                    return self._ask_permission(_WAITING, self._pending.url, "aiip.approval-required")
            if tasks is not None and self._description.asynchronous and declares_tasks(self._context):
                return await tasks.start(self._context, self._uri, arguments, self._key, evidence)
            result = await self._invoke(arguments, evidence)
        except OnymError as error:
            return await self._explain(error, arguments)
        return build_call_result(result, self._uri)

    async def _explain(
        self, error: OnymError, arguments: Mapping[str, Any]
    ) -> CallToolResult | InputRequiredResult:
        """Return the tool error, or the link to the page where people can lift it."""
        try:
            self._pending = await self._pages.ask_for_approval(error, self._uri, arguments)
        except OnymError as failure:
            return self._fail(failure.code, f"{error.message}: {failure.message}")
        if self._pending is not None:
            self._key = getattr(error, "idempotency_key", None)  # the approval is for this key
            return self._ask_permission(error.message, self._pending.url, error.code)
        link = self._pages.find_page(error)
        if link is None:
            return self._fail(error.code, error.message)
        return self._ask_permission(error.message, link, error.code)

    async def _invoke(self, arguments: Mapping[str, Any], evidence: str | None) -> Result:
        meta = (self._context.params or {}).get("_meta") or {}
        request = {"idempotency_key": self._key, **build_approval(evidence)}
        if "progressToken" not in meta or not isinstance(self._client, sdk.StreamingInvoker):
            return await self._client.invoke(self._uri, arguments, **request)
        stream = await self._client.stream(self._uri, arguments, **request, keep=True)
        last: str | None = None
        async with stream:
            async for event in stream:
                if event.event == "result":
                    last = event.data
                elif event.event in {"progress", "update"}:
                    await self._report(event.data)
        return sdk.read_stream_result(stream.result, last)

    async def _report(self, data: str) -> None:
        """Pass on progress, which is not signed before the end."""
        try:
            report = json.loads(data)
        except (ValueError, RecursionError):
            return
        done = report.get("done") if isinstance(report, dict) else None
        if isinstance(done, int | float) and math.isfinite(done):
            total, note = report.get("total"), report.get("note")
            total = total if isinstance(total, int | float) and math.isfinite(total) else None
            message = sdk.sanitize_text(note) if isinstance(note, str) and note else None
            await self._context.session.report_progress(done, total, message)

    def _supports(self, mode: str) -> bool:
        """Whether this request may be answered by InputRequiredResult with this mode of elicitation."""
        from mcp.types.version import is_version_at_least

        capabilities = self._context.session.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        if elicitation is None or not is_version_at_least(self._context.protocol_version, "2026-07-28"):
            return False
        # no mode at all means forms (MCP, client/elicitation)
        return getattr(elicitation, mode) is not None or (mode == "form" and elicitation.url is None)

    def _ask(self, requests: dict[str, Any]) -> InputRequiredResult:
        from mcp.types import InputRequiredResult

        pending = None if self._pending is None else self._pending._asdict()
        state = json.dumps({"answers": self._answers, "key": self._key, "approval": pending})
        return InputRequiredResult(input_requests=requests, request_state=state)

    def _ask_permission(self, message: str, link: str, code: str) -> CallToolResult | InputRequiredResult:
        """Send the person to the page of those who decide; what the client returns is never the decision."""
        from mcp.types import ElicitRequest, ElicitRequestURLParams

        response = (self._params.input_responses or {}).get("permission")
        if response is not None and getattr(response, "action", None) != "accept":
            return self._fail(code, "the person did not open the page of the approval")
        if not self._supports("url"):
            return self._fail(code, message, {PAGE_KEY: link})
        params = ElicitRequestURLParams(message=sdk.sanitize_text(message), url=link)
        return self._ask({"permission": ElicitRequest(params=params)})

    def _fail(self, code: str, message: str, more: Mapping[str, Any] | None = None) -> CallToolResult:
        return build_call_failure(code, message, self._uri, more)


#: the extension of MCP for long tasks (SEP-2663), and its names of the states of a task
_TASKS: Final = "io.modelcontextprotocol/tasks"
_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {"input-required": "input_required", "completed": "completed", "canceled": "cancelled"}
)
#: codes of a failure that the tool has not reported itself
_BROKEN: Final = frozenset({"aiip.internal", "aiip.interrupted"})
#: seconds for which the result of a task that has ended is waited for, and tasks with an answer in parts
_RESULT_SECONDS: Final = 30.0
_MOST_PARTIAL: Final = 1000


def declares_tasks(context: Any) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and _TASKS in (capabilities.extensions or {})


def make_missing_tasks_error() -> MCPError:
    """Return the error for a request that needs tasks, but does not declare the extension."""
    from mcp.shared.exceptions import MCPError
    from mcp.types import (
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        ClientCapabilities,
        MissingRequiredClientCapabilityErrorData,
    )

    required = MissingRequiredClientCapabilityErrorData(
        required_capabilities=ClientCapabilities(extensions={_TASKS: {}})
    )
    message = f"the request does not declare {_TASKS}"
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, _dump(required))


class ToolTasks:
    """The tasks of endpoints as those of MCP. A task's ID is its sealed reference, for one principal only."""

    def __init__(self, client: sdk.TaskInvoker, effects: Mapping[str, Effects], codec: Any) -> None:
        self._client, self._effects, self._codec = client, effects, codec
        self._partial: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def start(
        self, context: Any, uri: AIURI, arguments: Mapping[str, Any], key: str | None, evidence: str | None
    ) -> CallToolResult | dict[str, Any]:
        """Begin a task; return its CreateTaskResult, or the result if there was no need for a task."""
        handle = await self._client.start(uri, arguments, idempotency_key=key, **build_approval(evidence))
        if handle.reference is None or handle.first is None:
            return build_call_result(await handle.result(), uri)
        sealed = self._codec.seal(
            json.dumps({"task": handle.reference.as_dict(), "by": _name_principal(context)}).encode()
        )
        # what a task has beyond its status is in the answers to tasks/get
        return {**_describe_task(sealed, handle.first), "resultType": "task"}

    async def get(self, context: Any, params: Any) -> dict[str, Any]:
        """Return the status of a task, with its result, its error or what it asks for."""
        handle = await self._open(context, params.task_id)
        status = await handle.status()
        answer = _describe_task(params.task_id, status)
        uri = AIURI.parse(status.target)
        if status.state == "completed":
            result = build_call_result(await handle.result(_RESULT_SECONDS), uri)
            return {**answer, "result": _dump(result)}
        if status.state in {"failed", "rejected"}:
            code, message = _read_problem(status.error)
            if code in _BROKEN:
                return {**answer, "status": "failed", "error": {"code": -32603, "message": message}}
            failure = build_call_failure(code, message, uri)
            return {**answer, "status": "completed", "result": _dump(failure)}
        if status.state == "input-required":
            given = self._partial.get(handle.id or "", {})
            questions = self._find_questions(status)
            asked = {name: question for name, question in questions.items() if name not in given}
            answer["inputRequests"] = {
                name: _dump(build_form(status.target, name, question.form))
                for name, question in asked.items()
            }
        return answer

    async def update(self, context: Any, params: Any) -> dict[str, Any]:
        """Take answers to what a task asks for, and send them on when all are there."""
        handle = await self._open(context, params.task_id)
        status = await handle.status()
        if status.state != "input-required":
            return {}
        questions, name = self._find_questions(status), handle.id or ""
        given = self._partial.setdefault(name, {})
        self._partial.move_to_end(name)
        while len(self._partial) > _MOST_PARTIAL:
            self._partial.popitem(last=False)
        for label in questions.keys() & params.input_responses.keys():
            response = params.input_responses[label]
            if response.get("action") != "accept":
                self._partial.pop(name, None)
                await handle.cancel()
                return {}
            value = questions[label].read(response.get("content"), label)
            if value is not None:
                given[label] = value[0]
        if questions and questions.keys() == given.keys():
            del self._partial[name]
            values = {label: value for label, value in given.items() if label != _PLAIN}
            await handle.send_input({**given.get(_PLAIN, {}), **values})
        return {}

    async def cancel(self, context: Any, params: Any) -> dict[str, Any]:
        """Ask the endpoint to cancel a task. One that has ended stays as it is."""
        handle = await self._open(context, params.task_id)
        try:
            await handle.cancel()
        except AIIPError as error:
            if error.code != "aiip.task-not-cancelable":
                raise
        return {}

    async def _open(self, context: Any, sealed: str) -> AsyncTaskHandle:
        """Return the task with this ID. Unknown ones and those of others are the same error."""
        from mcp.server.request_state import InvalidRequestState
        from mcp.shared.exceptions import MCPError
        from mcp.types import INVALID_PARAMS

        from onym.ai.tasks import TaskReference

        try:
            known = json.loads(self._codec.unseal(sealed))
            if known["by"] != _name_principal(context):
                raise KeyError("by")
            reference = TaskReference(**known["task"])
        except (InvalidRequestState, KeyError, TypeError, ValueError, OnymError):
            raise MCPError(INVALID_PARAMS, "there is no such task") from None
        return await self._client.task(reference)

    def _find_questions(self, status: TaskStatus) -> dict[str, sdk.Question]:
        """Return forms for the input of a task: one for each object in it, and one for the rest."""
        schema = sdk.normalize_input_schema(status.inputs)
        if self._effects.get(status.target) not in sdk.ASKING:
            return {}
        members = {
            name: sdk.resolve_member(member, schema)
            for name, member in schema.get("properties", {}).items()
            if isinstance(member, dict)
        }
        plain = {name: member for name, member in members.items() if member.get("type") != "object"}
        rest = {
            **schema,
            "properties": plain,
            "required": [n for n in schema.get("required", []) if n in plain],
        }
        asked = {name: member for name, member in members.items() if name not in plain}
        if plain:
            asked[_PLAIN] = rest
        found = {name: sdk.make_form(name, member) for name, member in asked.items()}
        return {name: question for name, question in found.items() if question is not None}


#: the name of the form for the members of a task's input that are no objects
_PLAIN: Final = "input"


def _name_principal(context: Any) -> str:
    from mcp.server.request_state import authenticated_principal

    return authenticated_principal(context) or ""


def _describe_task(sealed: str, status: TaskStatus) -> dict[str, Any]:
    kept = None if status.expires is None else round((status.expires - status.created) * 1000)
    return {
        "taskId": sealed,
        "status": _STATUSES.get(status.state, "working"),
        "createdAt": datetime.fromtimestamp(status.created, UTC).isoformat(),
        "lastUpdatedAt": datetime.fromtimestamp(status.updated, UTC).isoformat(),
        "ttlMs": kept,
        "pollIntervalMs": max(1, round(status.poll_after * 1000)),
    }


def _read_problem(problem: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the code and the text of a problem document (RFC 9457), which an endpoint has written."""
    known = problem or {}
    row = find_problem_code(str(known.get("code"))) or CODES["internal"]
    return f"aiip.{row.name}", sdk.sanitize_text(str(known.get("detail") or row.title))


def _dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def serve_tasks(server: Server[Any], tasks: ToolTasks) -> None:
    """Serve the methods of the extension, for requests that declare it."""
    from mcp.shared.exceptions import MCPError
    from mcp.types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, RequestParams
    from mcp.types.version import is_version_at_least
    from pydantic import Field

    class TaskParams(RequestParams):
        """The parameters of all three methods."""

        task_id: str
        input_responses: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def serve(work: Callable[[Any, Any], Awaitable[dict[str, Any]]]) -> Any:
        async def handle(context: Any, params: Any) -> dict[str, Any]:
            if not is_version_at_least(context.protocol_version, "2026-07-28"):
                raise MCPError(METHOD_NOT_FOUND, "tasks need MCP 2026-07-28")
            if not declares_tasks(context):
                raise make_missing_tasks_error()
            fields = getattr(context.request, "headers", {"mcp-name": params.task_id})
            if fields.get("mcp-name") != params.task_id:
                raise MCPError(HEADER_MISMATCH, "the header Mcp-Name is not the ID of the task")
            try:
                return await work(context, params)
            except OnymError as error:
                data = {sdk.CODE_KEY: error.code}
                raise MCPError(INVALID_PARAMS, sdk.sanitize_text(error.message), data) from None

        return handle

    server.extensions[_TASKS] = {}
    for method, work in (("get", tasks.get), ("update", tasks.update), ("cancel", tasks.cancel)):
        server.add_request_handler(f"tasks/{method}", TaskParams, serve(work))


def build_form(uri: str, name: str, form: Mapping[str, Any]) -> Any:
    """Return the request for a form, which says who asks."""
    from mcp.types import ElicitRequest, ElicitRequestFormParams

    about = form.get("description") or form.get("title") or name
    message = f"{uri} asks: {sdk.sanitize_text(str(about), 300)}"
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(form)))


def build_call_failure(
    code: str, message: str, uri: AIURI, more: Mapping[str, Any] | None = None
) -> CallToolResult:
    """Return a tool error with a code."""
    from mcp.types import CallToolResult, TextContent

    texts = [sdk.sanitize_text(message), *(str(value) for value in (more or {}).values())]
    meta = {sdk.CODE_KEY: code, sdk.URI_KEY: str(uri), **(more or {})}
    return CallToolResult(content=[TextContent(text=" ".join(texts))], is_error=True, _meta=meta)


def build_call_result(result: Result, uri: AIURI) -> CallToolResult:
    """Return a verified result as that of a tool, with its receipt."""
    from mcp.types import CallToolResult

    value = next(
        (
            value
            for value in sdk.decode_json_result(result)
            if isinstance(value, dict) and sdk.is_shallow(value)
        ),
        None,
    )
    return CallToolResult(
        content=_decode_content(value) or (_build_content(result, uri) if result.body else []),
        # MCP before 2026-07-28 can send values other than objects only as text
        structured_content=value,
        _meta={sdk.RECEIPT_KEY: result.token, sdk.URI_KEY: str(uri)},
    )


def _decode_content(value: dict[str, Any] | None) -> list[ContentBlock]:
    """Return the blocks of `{"content": […]}`, which is how `mcp_tool` answers with content."""
    from mcp.types import ContentBlock
    from pydantic import TypeAdapter, ValidationError

    if value is None or value.keys() != {"content"} or not isinstance(value["content"], list):
        return []
    try:
        blocks: list[ContentBlock] = TypeAdapter(list[ContentBlock]).validate_python(value["content"])
    except ValidationError:
        return []
    return blocks


def _build_content(result: Result, uri: AIURI) -> list[ContentBlock]:
    """Return text, images and audio as such, and any other content as a resource with its bytes."""
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextContent

    text = sdk.decode_text_result(result)
    if text is not None:
        return [TextContent(text=text)]
    kind = result.content_type or "application/octet-stream"
    data = b64encode(result.body).decode("ascii")
    shown = kind.partition(";")[0].strip().lower()
    if shown.startswith("image/"):
        return [ImageContent(data=data, mime_type=shown)]
    if shown.startswith("audio/"):
        return [AudioContent(data=data, mime_type=shown)]
    return [EmbeddedResource(resource=BlobResourceContents(uri=str(uri), mime_type=kind, blob=data))]
