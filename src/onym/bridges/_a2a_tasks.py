"""Messages of A2A as invocations of an `ai://` resource, and their course as tasks.

A task is one invocation, or several in one conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from onym.ai.endpoint.kinds import MAX_ANSWER, MAX_UPDATES
from onym.ai.exchange import IDEMPOTENCY_KEY
from onym.ai.records import EVENTS, Effects, parse_media_type
from onym.bridges import _a2a_store
from onym.bridges import _sdk as sdk
from onym.bridges.approvals import PAGE_KEY, PERMISSION_CODES, ApprovalPage, PermissionPages, build_approval
from onym.common.text import encode_base64url
from onym.errors import AIIPError, InvocationError, OnymError, TaskRunning
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContext, RequestContextBuilder
    from a2a.server.cluster import StoredTask, VersionedTaskStore
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
    from a2a.server.tasks import TaskUpdater
    from a2a.types import AgentCard, Message, Part, Task

    from onym.ai.records import Description, Result, TaskStatus
    from onym.ai.tasks import AsyncTaskHandle

#: the A2A extension for receipts in metadata
EXTENSION: Final = "urn:onym:a2a:aiip-receipt:1"
#: members of an input that can be a message's text, in order of preference
_TEXTS: Final = ("message", "prompt", "text")
#: metadata of a task: the agent's own names of the conversation, the message that waits for a permission, and
#: the ID of the approval that was asked for
_CONTEXT, _TASK, _PENDING, _APPROVAL = "aiip-context", "aiip-task", "aiip-pending", "aiip-approval"
#: members of a part of A2A that is a file
_FILE_MEMBERS: Final = frozenset({"raw", "url", "mediaType", "filename"})
#: seconds that a task may wait for a person before its place in memory is released; the task stays
_WAIT_SECONDS: Final = 600.0
#: seconds between two looks at the progress of a task elsewhere, for its result, and for the end of a run
_PROGRESS_SECONDS: Final = 5.0
_RESULT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.02
#: characters of a text of the agent
_LONGEST_TEXT: Final = 64 * 1024


def _make_context_builder(description: Description, store: VersionedTaskStore) -> RequestContextBuilder:
    """Checks a message before anything is started, and derives a missing context from its ID.

    A repeated message has the same context, so that it is the same invocation.
    """
    from a2a.server.agent_execution import SimpleRequestContextBuilder
    from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError

    class Lasting(SimpleRequestContextBuilder):
        """Builds the SDK's context, with a derived context ID."""

        async def build(
            self,
            context: Any,
            params: Any = None,
            task_id: str | None = None,
            context_id: str | None = None,
            task: Any = None,
        ) -> Any:
            message_id = "" if params is None else params.message.message_id
            if params is not None:
                kinds = {part.WhichOneof("content") for part in params.message.parts}
                if kinds & {"raw", "url"}:
                    raise ContentTypeNotSupportedError(
                        "files cannot be sent to this agent, only text and data"
                    )
                try:
                    _build_arguments(params.message, description, None)
                except AIIPError as error:
                    raise InvalidParamsError(error.message, data={sdk.CODE_KEY: error.code}) from None
            known = await store.get(task_id, context) if task_id else None
            if known is not None:
                context_id = context_id or known.task.context_id
                await _remember(params.message, known, store, context)
            derived = _hash_text(f"context {message_id}") if message_id else None
            return await super().build(context, params, task_id, context_id or derived, task)

    return Lasting()


async def _remember(
    message: Message, known: StoredTask, store: VersionedTaskStore, context: ServerCallContext
) -> None:
    """Keep a message in the history of a waiting task also if its ID was used before; the SDK would not."""
    task = known.task
    same = [earlier for earlier in task.history if earlier.message_id == message.message_id]
    if (
        _a2a_store.get_state(task) in _a2a_store.WAITING
        and same
        and all(earlier.parts != message.parts for earlier in same)
    ):
        task.history.append(message)
        await store.save(task, event=None, prev=None, prev_version=known.version, context=context)


def make_executor(
    client: sdk.Invoker,
    uri: AIURI,
    description: Description,
    pages: PermissionPages,
    tasks: _a2a_store.SharedTasks,
) -> AgentExecutor:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.tasks import TaskUpdater

    class Invoking(AgentExecutor):
        """Invoke the resource once for one message."""

        async def execute(self, context: Any, event_queue: Any) -> None:
            await _Run(client, uri, description, pages, tasks, context, event_queue).execute()

        async def cancel(self, context: Any, event_queue: Any) -> None:
            await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()

    return Invoking()


def make_handler(
    executor: AgentExecutor,
    card: AgentCard,
    client: sdk.Invoker,
    uri: AIURI,
    description: Description,
    tasks: _a2a_store.SharedTasks,
) -> DefaultRequestHandlerV2:
    """Return the SDK's handler of requests, which cancels only what has had no effect.

    An invocation with effects may have had them already, so "canceled" could be a lie.
    """
    from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import TaskNotCancelableError

    store = _a2a_store.make_task_store(tasks, sdk.CODE_KEY)

    class Handler(DefaultRequestHandlerV2):
        """Handles requests as the SDK does, except that some tasks are not cancelled."""

        async def on_get_task(self, params: Any, context: Any) -> Task | None:
            found = await tasks.load(_a2a_store.get_owner(context), params.id)
            if found is not None and await tasks.is_abandoned(found[1]):
                make_run = partial(_Run, client, uri, description, PermissionPages(None, None), tasks)
                await _settle(make_run, store, found[0], context)
            task: Task | None = await super().on_get_task(params, context)
            return task

        async def on_cancel_task(self, params: Any, context: Any) -> Task | None:
            found = await tasks.load(_a2a_store.get_owner(context), params.id)
            state = "" if found is None else _a2a_store.get_state(found[0])
            handle = await _open_remote(client, description, tasks, params.id)
            if found is not None and handle is not None and state not in _a2a_store.FINAL:
                return await _cancel_there(handle, params.id, context)
            if (
                found is not None
                and state not in _a2a_store.FINAL | _a2a_store.WAITING
                and description.effects is not Effects.READ
            ):
                raise TaskNotCancelableError(
                    "the invocation may already have had its effect, so it is not cancelled"
                )
            task: Task | None = await super().on_cancel_task(params, context)
            return task

    async def _cancel_there(handle: AsyncTaskHandle, task_id: str, context: ServerCallContext) -> Task | None:
        """Cancel the task at the endpoint, which says how it has ended."""
        if not await _cancel_remote(handle):
            raise TaskNotCancelableError("the endpoint has not cancelled the task")
        await tasks.forget_reference(task_id)
        stored = await store.get(task_id, context)
        while (
            stored is not None and _a2a_store.get_state(stored.task) == "working"
        ):  # its own run sees the end as well
            await asyncio.sleep(_PAUSE_SECONDS)
            stored = await store.get(task_id, context)
        if stored is None or _a2a_store.get_state(stored.task) == "canceled":
            return None if stored is None else stored.task
        found: Task | None = await DefaultRequestHandlerV2.on_cancel_task(
            handler, CancelTaskRequest(id=task_id), context
        )
        return found

    handler = Handler(
        executor,
        store,
        card,
        request_context_builder=_make_context_builder(description, store),
        validate_input_modes=True,
        event_stream=_a2a_store.make_change_stream(tasks),
        interrupted_task_timeout=_WAIT_SECONDS,
    )
    return handler


async def _cancel_remote(handle: AsyncTaskHandle) -> bool:
    """Cancel an endpoint's task, and report whether it has ended so."""
    try:
        await handle.cancel()
        return (await handle.wait(_RESULT_SECONDS)).state == "canceled"
    except AIIPError:
        return False


async def _settle(
    make_run: Callable[[Any, Any], _Run], store: VersionedTaskStore, task: Task, context: ServerCallContext
) -> None:
    """Go on with the task of a process that is gone, or end it if its result is lost."""
    from a2a.server.cluster import ConcurrentTaskModificationError
    from a2a.server.tasks import TaskManager

    manager = TaskManager(store, context, task.id, task.context_id, None)
    await manager.get_task()
    request = SimpleNamespace(
        current_task=task,
        message=task.history[-1],
        task_id=task.id,
        context_id=task.context_id,
        call_context=context,
        configuration=None,
    )
    # of several processes that settle a task, one does
    with contextlib.suppress(ConcurrentTaskModificationError):
        await make_run(request, SimpleNamespace(enqueue_event=manager.process)).settle()


def _follows(client: sdk.Invoker, description: Description) -> bool:
    """Report whether tasks here stand for tasks at the endpoint."""
    return description.asynchronous and isinstance(client, sdk.TaskInvoker)


async def _open_remote(
    client: sdk.Invoker, description: Description, tasks: _a2a_store.SharedTasks, task_id: str
) -> AsyncTaskHandle | None:
    """Return the endpoint's task for which a task here stands, or None."""
    if not (description.asynchronous and isinstance(client, sdk.TaskInvoker)):
        return None
    return await tasks.open_reference(client, task_id)


class _Run:
    """One message: the invocation that it causes, and the events that tell of it."""

    def __init__(
        self,
        client: sdk.Invoker,
        uri: AIURI,
        description: Description,
        pages: PermissionPages,
        tasks: _a2a_store.SharedTasks,
        context: RequestContext,
        event_queue: Any,
    ) -> None:
        from a2a.server.tasks import TaskUpdater

        self._client, self._uri, self._description = client, uri, description
        self._pages, self._tasks = pages, tasks
        self._task = context.current_task
        self._waiting = self._task is not None and _a2a_store.get_state(self._task) == "auth-required"
        self._message = self._find_message(cast("Message", context.message))
        self._evidence: str | None = None
        self._context = context
        self._queue = event_queue
        self._updater: TaskUpdater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        self._begun = self._task is not None
        self._artifact = _hash_text(f"artifact {context.task_id} {self._message.message_id}")[:22]
        self._chunks: list[str] = []
        self._size = 0

    def _find_message(self, message: Message) -> Message:
        """Return the message to act on: the one that waits for a permission, if the task waits for one."""
        if self._task is None or not self._waiting:
            return message
        pending = _get_notes(self._task).get(_PENDING)
        return next((known for known in self._task.history if known.message_id == pending), message)

    async def execute(self) -> None:
        """Invoke the resource, and tell of it by a Message, or by a Task with its states."""
        streaming = str(self._context.call_context.state.get("method")) in {
            "SendStreamingMessage",
            "message/stream",
        }
        configuration = self._context.configuration
        at_once = configuration is not None and configuration.return_immediately
        remote = _follows(self._client, self._description)
        if self._begun or streaming or at_once or remote:
            await self._begin()
        try:
            if await self._waits_for_approval():
                return
            result = await (self._follow() if remote else self._stream() if streaming else self._invoke())
        except OnymError as error:
            await self._refuse(error)
            return
        if result is not None:
            await self._deliver(result)

    async def _waits_for_approval(self) -> bool:
        """Fetch the evidence of the approval that the task waits for; without any, tell the page again."""
        notes = _get_notes(self._task) if self._task is not None and self._waiting else {}
        if not isinstance(notes.get(_APPROVAL), str) or not isinstance(notes.get(PAGE_KEY), str):
            return False
        asked = ApprovalPage(notes[_APPROVAL], notes[PAGE_KEY])
        self._evidence = await self._pages.fetch_evidence(asked)
        if self._evidence is not None:
            return False
        text = f"people have not decided about this request yet {asked.url}"
        await self._update("auth-required", text, notes)
        return True

    async def _follow(self) -> Result | None:
        """Begin a task at the endpoint, or answer it, and follow it; None if it waits for a message."""
        client, name = cast("sdk.TaskInvoker", self._client), str(self._context.task_id)
        handle = await self._tasks.open_reference(client, name)
        if handle is None:
            arguments, request = self._build_request()
            handle = await client.start(self._uri, arguments, **request)
            if handle.reference is None:
                whole: Result = await handle.result()
                return whole
            await self._tasks.keep_reference(name, handle.reference)
        else:
            form = sdk.normalize_input_schema((await handle.status()).inputs)
            try:
                await handle.send_input(_build_input(self._message, form))
            except InvocationError as error:
                await self._update("input-required", error.message, {sdk.CODE_KEY: error.code})
                return None
        return await self._read_end(handle, await self._watch(handle))

    async def _read_end(self, handle: AsyncTaskHandle, status: TaskStatus) -> Result | None:
        """Return the result of an endpoint's task that has ended, or ask for the input that it needs."""
        if status.state == "input-required":
            question = str((status.inputs or {}).get("description", ""))
            await self._update("input-required", question, {"aiip-input": dict(status.inputs or {})})
            return None
        await self._tasks.forget_reference(str(self._context.task_id))
        return await handle.result(_RESULT_SECONDS)

    async def settle(self) -> None:
        """Tell what has become of a task whose process is gone, as far as anybody knows."""
        name = str(self._context.task_id)
        follows = _follows(self._client, self._description)
        handle = (
            await self._tasks.open_reference(cast("sdk.TaskInvoker", self._client), name) if follows else None
        )
        try:
            if handle is None:
                raise AIIPError(
                    "the process that ran the task is gone, and with it the result", code="aiip.interrupted"
                )
            status = await handle.wait(0)
            result = await self._read_end(handle, status)
        except TaskRunning:
            return
        except OnymError as error:
            await self._refuse(error)
            return
        if result is not None:
            await self._deliver(result)

    async def _watch(self, handle: AsyncTaskHandle) -> TaskStatus:
        """Wait until the task at the endpoint has ended or needs input, and tell of its progress."""
        told = ""
        while True:
            try:
                return await handle.wait(_PROGRESS_SECONDS)
            except TaskRunning:
                progress = (await handle.status()).progress
                note = "" if progress is None else progress.note or f"{progress.done} of {progress.total}"
                if note and note != told:
                    told = note
                    await self._update("working", note)

    def _build_request(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the input, and the idempotency key with the evidence, if there is any."""
        arguments = _build_arguments(self._message, self._description, self._task)
        key = derive_idempotency_key(self._message.message_id)
        return arguments, {"idempotency_key": key, **build_approval(self._evidence)}

    async def _invoke(self) -> Result:
        arguments, request = self._build_request()
        return await self._client.invoke(self._uri, arguments, **request)

    async def _stream(self) -> Result:
        """Invoke the resource, and pass on its events. They are provisional until the receipt is verified."""
        if not isinstance(self._client, sdk.StreamingInvoker):
            return await self._invoke()
        arguments, request = self._build_request()
        stream = await self._client.stream(self._uri, arguments, **request, keep=True)
        last: str | None = None
        async with stream:
            async for event in stream:
                if event.event == "result":
                    last = event.data
                else:
                    await self._relay(event.event, event.data)
        return sdk.read_stream_result(stream.result, last)

    async def _relay(self, name: str, data: str) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        members = value if isinstance(value, dict) else {}
        note = members.get("note")
        if isinstance(note, str) and note:
            await self._update("working", note)
        text = members.get("text")
        if isinstance(text, str) and text:
            await self._add_chunk(text)
        elif name not in {"update", "message", "progress"}:
            await self._add_chunk(data)

    async def _add_chunk(self, text: str) -> None:
        from a2a.helpers import new_text_part

        self._chunks.append(text)
        self._size += len(text)
        if self._size > MAX_ANSWER or len(self._chunks) > MAX_UPDATES:
            raise AIIPError("the stream is too large", code="aiip.upstream-failed")
        await self._updater.add_artifact(
            [new_text_part(text)],
            artifact_id=self._artifact,
            append=len(self._chunks) > 1,
            name="result",
        )

    async def _begin(self) -> None:
        from a2a.helpers import new_task_from_user_message

        if self._task is None and not self._begun:
            await self._queue.enqueue_event(new_task_from_user_message(self._message))
        self._begun = True
        await self._update("working")

    async def _deliver(self, result: Result) -> None:
        """Tell the result: as a Message if no task is known yet and the result is not an agent's answer."""
        answer = _read_answer(result)
        state: str = str(answer.get("state", "completed"))
        if not self._begun and "state" not in answer:
            await self._queue.enqueue_event(_build_reply(result, self._message, self._uri))
            return
        if not self._begun:
            await self._begin()
        notes = {sdk.RECEIPT_KEY: result.token, sdk.URI_KEY: str(self._uri)}
        notes |= {
            name: answer[member]
            for name, member in ((_CONTEXT, "context"), (_TASK, "task"))
            if member in answer
        }
        asks = state in _a2a_store.WAITING
        if not asks:
            await self._add_result(result, notes)
        text = answer.get("text") if asks else None
        await self._update(state, text if isinstance(text, str) else "", notes)

    async def _add_result(self, result: Result, notes: Mapping[str, Any]) -> None:
        """Add what was verified: to the text that was passed on, or in its place if that is different."""
        passed = "".join(self._chunks)
        stream = parse_media_type(result.content_type) == EVENTS
        parts = [] if passed and stream else _build_parts(result)
        texts = [part.text for part in parts if part.WhichOneof("content") == "text"]
        same = bool(passed) and (stream or texts == [passed])
        if same:
            parts = [part for part in parts if part.WhichOneof("content") != "text"]
        if parts:
            await self._updater.add_artifact(
                parts,
                artifact_id=self._artifact,
                append=same,
                last_chunk=True,
                name="result",
                metadata={EXTENSION: dict(notes)},
                extensions=[EXTENSION],
            )

    async def _refuse(self, error: OnymError) -> None:
        """Tell of an error: a permission that is missing can be given elsewhere, all else is an end."""
        if not self._begun:
            await self._begin()
        notes = {sdk.CODE_KEY: error.code, sdk.URI_KEY: str(self._uri)}
        if error.code in PERMISSION_CODES:
            await self._ask_permission(error, notes)
            return
        if self._chunks:
            from a2a.helpers import new_text_part

            # nothing that was passed on before was verified
            withdrawn = [new_text_part("withdrawn: this part of the result could not be verified")]
            await self._updater.add_artifact(
                withdrawn, artifact_id=self._artifact, append=False, last_chunk=True
            )
        state = "canceled" if error.code == "aiip.task-canceled" else "failed"
        await self._tasks.forget_reference(str(self._context.task_id))
        await self._update(state, sdk.sanitize_text(error.message), notes)

    async def _ask_permission(self, error: OnymError, notes: dict[str, str]) -> None:
        """Tell where people can lift a refusal; the message stays to be sent again."""
        text, link = error.message, None
        try:
            asked = await self._pages.ask_for_approval(error, self._uri, self._build_request()[0])
        except OnymError as failure:
            text = f"{text}: {failure.message}"
        else:
            link = self._pages.find_page(error) if asked is None else asked.url
            notes |= {} if asked is None else {_APPROVAL: asked.id}
        notes |= {_PENDING: self._message.message_id, PAGE_KEY: link or ""}
        await self._update("auth-required", f"{sdk.sanitize_text(text)} {link or ''}".rstrip(), notes)

    async def _update(self, state: str, text: str = "", notes: Mapping[str, Any] | None = None) -> None:
        from a2a.helpers import new_text_part
        from a2a.types import TaskState

        number = TaskState.Value(f"TASK_STATE_{state.upper().replace('-', '_')}")
        message = self._updater.new_agent_message([new_text_part(sanitize_lines(text))]) if text else None
        metadata = (
            None if notes is None else {EXTENSION: {name: value for name, value in notes.items() if value}}
        )
        if message is not None and metadata is not None:
            message.metadata.update(metadata)
            message.extensions.append(EXTENSION)
        await self._updater.update_status(number, message, metadata=metadata)


def sanitize_lines(text: str) -> str:
    """Make remote text of several lines safe to show."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text[:_LONGEST_TEXT])


def _get_notes(task: Task) -> Mapping[str, Any]:
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

    notes = MessageToDict(task.metadata).get(EXTENSION, {})
    return notes if isinstance(notes, dict) else {}


def _read_answer(result: Result) -> dict[str, Any]:
    """Return the members of an agent's answer, with `state` only if it is one of A2A's that ends the call."""
    values = sdk.decode_json_result(result)
    members = values[0] if values and isinstance(values[0], dict) else {}
    names = {"state", "text", "context", "task"}
    answer = {name: members[name] for name in names if isinstance(members.get(name), str)}
    if answer.get("state") not in _a2a_store.FINAL | _a2a_store.WAITING:
        answer.pop("state", None)
    return answer


def _build_arguments(message: Message, description: Description, task: Task | None) -> dict[str, Any]:
    """Build the input from a message, by the resource's schema.

    In a task, the agent is told its own names of the conversation, if it has given any.
    """
    from a2a.helpers import get_text_parts

    known = frozenset(sdk.normalize_input_schema(description.input).get("properties", ()))
    data = [sdk.decode_part(part) for part in message.parts if part.WhichOneof("content") == "data"]
    text = "\n".join(get_text_parts(message.parts))
    arguments: dict[str, Any] = {}
    if text:
        arguments[next((name for name in _TEXTS if name in known), _TEXTS[0])] = text
    if data and "data" in known:
        arguments["data"] = data[0] if len(data) == 1 else data
    else:
        for part in data:
            arguments |= part if isinstance(part, dict) else {}
    notes = {} if task is None else _get_notes(task)
    names = {"context": notes.get(_CONTEXT) or message.context_id, "task": notes.get(_TASK)}
    return arguments | {name: value for name, value in names.items() if value and name in known}


def _build_input(message: Message, form: Mapping[str, Any]) -> dict[str, Any]:
    """Build the input for a form from a message: its data, or its text as the only member of the form."""
    from a2a.helpers import get_text_parts

    values: dict[str, Any] = {}
    for part in message.parts:
        value = sdk.decode_part(part) if part.WhichOneof("content") == "data" else None
        values |= value if isinstance(value, dict) else {}
    members, text = list(form.get("properties", {})), "\n".join(get_text_parts(message.parts))
    return {members[0]: text} if not values and text and len(members) == 1 else values


def _build_reply(result: Result, message: Message, uri: AIURI) -> Message:
    from a2a.helpers import new_message

    reply = new_message(_build_parts(result), context_id=message.context_id)
    reply.extensions.append(EXTENSION)
    reply.metadata.update({EXTENSION: {sdk.RECEIPT_KEY: result.token, sdk.URI_KEY: str(uri)}})
    return reply


def _build_parts(result: Result) -> list[Part]:
    """Return text as text and JSON as data; the `text` of an agent or a model is its own part.

    JSON that a data part would change, and content that does not match its media type, is sent as bytes.
    """
    from a2a.helpers import new_raw_part, new_text_part

    kind = result.content_type or "application/octet-stream"
    value, text = sdk.decode_json_result(result), sdk.decode_text_result(result)
    if value and sdk.can_carry(value[0]):
        members = value[0] if isinstance(value[0], dict) else {}
        answer = members.get("text")
        texts = [new_text_part(answer)] if isinstance(answer, str) and answer else []
        if members.get("state") in _a2a_store.FINAL | _a2a_store.WAITING and isinstance(answer, str):
            data = members.get("data") or []
            return texts + [_build_item_part(item) for item in (data if isinstance(data, list) else [data])]
        return [*texts, sdk.build_data_part(value[0])]
    if text is not None and not sdk.is_json(kind):
        return [new_text_part(text, media_type=kind)]
    return [new_raw_part(result.body, media_type=kind)]


def _build_item_part(item: Any) -> Part:
    """Return a file that an agent answers in A2A's form as such, and all else as data."""
    from a2a.types import Part
    from google.protobuf.json_format import ParseDict, ParseError

    if isinstance(item, dict) and len({"raw", "url"} & item.keys()) == 1 and item.keys() <= _FILE_MEMBERS:
        try:
            part: Part = ParseDict(item, Part())
            return part
        except ParseError:
            pass
    return sdk.build_data_part(item)


def derive_idempotency_key(message_id: str) -> str | None:
    """Return the message's ID as an idempotency key, so that a repeated message is the same invocation.

    The digest is used for an ID that is not a valid key (AIIP/HTTPS v1 3.11). Without an ID the key is
    random.
    """
    if not message_id:
        return None
    return message_id if IDEMPOTENCY_KEY.fullmatch(message_id) else _hash_text(message_id)


def _hash_text(text: str) -> str:
    return encode_base64url(sha256(text.encode()).digest())
