"""Long tasks at an endpoint: begin them, and answer the requests to them (AIIP/HTTPS v1, 3.12).

`Prefer: respond-async` begins a task at a resource with `task=True`. The response is 202 with the status of
the task, after the task was stored. Requests to the task name it by its ID and are for the same client and
the same person only: for everybody else the task does not exist.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from onym.ai import records
from onym.ai.endpoint import responses, task_runner
from onym.ai.endpoint._runner import decode_stored_answer, encode_answer, make_limiter
from onym.ai.endpoint.context import (
    Answer,
    Call,
    Caller,
    Limits,
    decode_approval,
    encode_call,
    identify_caller,
)
from onym.ai.endpoint.idempotency import IdempotencyStore, KeyScope
from onym.ai.endpoint.policy import CheckedApproval
from onym.ai.endpoint.sender import require_bound_request, verify_request_binding
from onym.ai.endpoint.signing import ReceiptRequest, ReceiptSigner
from onym.ai.endpoint.task_store import KEPT_SECONDS, NewTask, TaskRecord, make_task_error
from onym.ai.messages import Preferences, RequestHead, bad_request
from onym.errors import AIIPError
from onym.sign.receipts import StreamChain
from onym.uri.ai import AIURI

_PATH: Final = re.compile(re.escape(records.TASKS) + r"([A-Za-z0-9_-]{32})(?:/(events|result|input))?\Z")
_METHODS: Final = {"": "DELETE, GET, HEAD", "events": "GET, HEAD", "result": "GET, HEAD", "input": "POST"}
#: the parts that contain the result, or what leads to it
_RESULTS: Final = frozenset({"events", "result"})
#: seconds that a request may wait for a change, and between two comments in a silent stream
MOST_WAIT: Final = 30.0
_SILENCE_SECONDS: Final = 15.0
#: events that are read from the store at once
_PAGE: Final = 500
_COMMENT: Final = b": waiting\n\n"


def is_task_path(raw_path: bytes) -> bool:
    """Report whether a request is to a task."""
    return raw_path.startswith(records.TASKS.encode("ascii"))


def make_task_id() -> str:
    """Return a new ID: 192 random bits in base64url, as a word that no command takes for an option."""
    return next(name for name in iter(lambda: secrets.token_urlsafe(24), "") if not name.startswith("-"))


@dataclass(kw_only=True)
class TaskService:
    """Begins the tasks of one endpoint and answers the requests to them.

    `authenticate` returns the caller of a request, whose sign-in must be as strong and as recent as the
    resource demands; without a resource, any sign-in is enough. `send_signed` signs and sends an answer,
    `read_body` returns None if the caller has disconnected.
    """

    site: responses.Site
    signing: ReceiptSigner
    runner: task_runner.TaskRunner
    limits: Limits
    clock: Callable[[], float]
    make_problem: task_runner.MakeProblem
    authenticate: Callable[[RequestHead, responses.Resource | None], Awaitable[Caller]]
    send_signed: Callable[[ReceiptRequest, Answer, responses.Send], Awaitable[None]]
    read_body: Callable[[responses.Receive, RequestHead], Awaitable[bytes | None]]

    def __post_init__(self) -> None:
        self._watching = make_limiter(self.limits)

    # begin --------------------------------------------------------------------------------------------------

    async def begin(
        self,
        request: ReceiptRequest,
        resource: responses.Resource,
        call: Call,
        keys: IdempotencyStore,
        scope: KeyScope,
        preferences: Preferences,
        approval: CheckedApproval | None = None,
    ) -> Answer:
        """Begin a task, or find the one that has the key; return 202, or the result if it came in time.

        The task of a read without a key gets a key of its own in the same `scope`. A new task spends the
        `approval`, and the receipts of its result name it.
        """
        task = make_task_id()
        new = NewTask(
            id=task,
            caller=identify_caller(request.caller),
            call=encode_call(call, None if approval is None else approval.reference),
            marker=encode_task_marker(task),
            limits=self.limits,
        )
        if call.idempotency_key is None:
            scope = replace(scope, key=f"\n{task}")  # no key in a request can contain a line end
        spend = None if approval is None else approval.transaction
        with self.runner.beginning(task):
            stored = await keys.begin(scope, request.request_hash, self.clock(), spend=spend, task=new)
            if stored is None:
                record = await self.runner.require(task)
                self.runner.launch(record, resource, call, None)
        if stored is not None:
            answer = decode_stored_answer(stored, self.limits.stream_seconds)
            earlier = get_task_of_answer(answer)
            if earlier is None:
                assert isinstance(answer, Answer)  # noqa: S101 - a resource with tasks has no streams
                return answer  # of an earlier call that waited
            return await self.make_started_answer(earlier, preferences, replayed=True)
        if preferences.wait:
            wait = min(preferences.wait, MOST_WAIT)
            record = await self.runner.wait_for_change(task, None, wait)
            if record.is_final:
                answer = await self._load_answer(record)
                return replace(answer, headers=(*answer.headers, _format_wait(wait)))
        return await self.make_started_answer(task, preferences)

    async def replay(self, task: str) -> Answer:
        """Return the result of the task to a caller that uses its key and waits for the result.

        Raises AIIPError `aiip.idempotency-in-progress`, and `aiip.task-not-found` if it was deleted.
        """
        record = await self.runner.require(task)
        if not record.is_final:
            raise make_task_error(
                "idempotency-in-progress",
                "the first request with this key is running as a task",
                target=record.target,
                retryable=True,
                hint=f"Get its status from {records.TASKS}{task}.",
            )
        answer = await self._load_answer(record)
        return replace(answer, headers=(*answer.headers, ("Idempotency-Replayed", "?1")))

    async def make_started_answer(
        self, task: str, preferences: Preferences, *, replayed: bool = False
    ) -> Answer:
        """Return 202 with the status of the task."""
        record = await self.runner.require(task)
        answer = self._make_status_answer(record)
        headers = (
            *answer.headers,
            ("Location", f"{self.site.anchor}{records.TASKS}{task}"),
            ("Preference-Applied", "respond-async"),
            *((("Idempotency-Replayed", "?1"),) if replayed else ()),
        )
        return replace(answer, status=202, headers=headers)

    # requests -----------------------------------------------------------------------------------------------

    async def serve(
        self, head: RequestHead, receive: responses.Receive, send: responses.Send, watcher: str
    ) -> None:
        """Serve a request to a task. `watcher` is the key of the caller's share of waiting requests.

        Raises AIIPError, before anything is sent, if the caller is not known or must not use the task.
        """
        match = _PATH.fullmatch(head.raw_path.decode("latin-1"))
        record = None if match is None or head.query else await self._find_own(match[1])
        part: Any = "" if match is None else match[2] or ""
        resource = None if record is None else self.site.resources.get(record.target)
        caller, refusal = await self._identify(head, resource if part in _RESULTS else None)
        send = responses.add_nonce(send, caller.next_nonce)
        if record is None or record.caller != identify_caller(caller):
            # one answer, so that nobody learns which tasks exist
            raise make_task_error("task-not-found", "the task does not exist, or belongs to another caller")
        request = ReceiptRequest(
            head,
            AIURI.parse(record.target),
            caller,
            task=record.id,
            original=record.request,
            target=records.format_task_target(record.id, part),
        )
        try:
            if refusal is not None:
                raise refusal
            self._require_scopes(caller, resource)
            if head.method not in _METHODS[part]:
                await self._refuse_method(request, part, send)
                return
            if part == "input" or head.method == "DELETE":
                effects = records.Effects.READ if resource is None else resource.effects
                require_bound_request(caller, effects, always=self.site.requirements.request_binding)
            body = await self.read_body(receive, head) if part == "input" else b""
            if body is None:
                return  # the caller has disconnected
            request.set_body(body)
            verify_request_binding(caller, lambda: request.request_hash)
            if part in {"events", "result"}:
                stored = await self.runner.store.read_blob(record.id, "call")
                request.approval = None if stored is None else decode_approval(stored)
            if part == "events":
                await self._send_events(request, record, receive, send, watcher)
                return
            answer = await self._answer_part(record, part, head, body, watcher)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            answer = self.make_problem(error, record.target, head.trace_id)
        await self.send_signed(request, answer, send)

    async def _identify(
        self, head: RequestHead, resource: responses.Resource | None
    ) -> tuple[Caller, AIIPError | None]:
        """Return the caller, and the refusal if its sign-in is too weak or too old for the resource."""
        try:
            return await self.authenticate(head, resource), None
        except AIIPError as error:
            if not isinstance(error.caller, Caller):
                raise
            return error.caller, error

    async def _find_own(self, task: str) -> TaskRecord | None:
        """Return the task. One of another authority, whose endpoint shares the store, does not exist here."""
        record = await self.runner.store.find(task)
        return record if record is not None and self.site.has_target(record.target) else None

    async def _refuse_method(self, request: ReceiptRequest, part: str, send: responses.Send) -> None:
        error = make_task_error("method-not-allowed", f"this part of a task supports only {_METHODS[part]}")
        answer = self.make_problem(error, request.subject, request.head.trace_id)
        await self.send_signed(request, replace(answer, headers=(("Allow", _METHODS[part]),)), send)

    def _require_scopes(self, caller: Caller, resource: responses.Resource | None) -> None:
        if resource is not None and self.site.protected is not None:
            missing = sorted({*resource.scopes} - caller.scopes)
            if missing:
                raise make_task_error(
                    "insufficient-scope", f"the token lacks the scopes {', '.join(missing)}"
                )

    async def _answer_part(
        self, record: TaskRecord, part: str, head: RequestHead, body: bytes, watcher: str
    ) -> Answer:
        if head.method == "DELETE":
            return await self._cancel(record)
        if part == "input":
            return await self._take_input(record, head, body)
        wait = Preferences.parse(head.headers).wait
        if part == "result":
            return await self._answer_result(record, wait, watcher)
        known = head.headers.get("if-none-match")
        if wait:
            with self._watching.reserve(caller=watcher):
                record = await self.runner.wait_for_change(record.id, known, min(wait, MOST_WAIT))
        answer = self._make_status_answer(record, wait)
        if known is not None and record.tag in {tag.strip() for tag in known.split(",")}:
            return replace(answer, status=304, content_type=None, body=b"")
        return answer

    async def _answer_result(self, record: TaskRecord, wait: float | None, watcher: str) -> Answer:
        if wait and not record.is_final:
            with self._watching.reserve(caller=watcher):
                record = await self.runner.wait_for_change(record.id, None, min(wait, MOST_WAIT))
        if record.is_final:
            return await self._load_answer(record)
        return replace(self._make_status_answer(record, wait), status=202)

    async def _cancel(self, record: TaskRecord) -> Answer:
        marked = await self.runner.store.mark_canceling(record.id, self.clock())
        if marked is None:
            raise make_task_error("task-not-cancelable", "the task has ended already", target=record.target)
        running = self.runner.find_running(record.id)
        if running is not None:
            running.cancel()
        self.runner.notify(record.id)
        return replace(self._make_status_answer(marked), status=202)

    async def _take_input(self, record: TaskRecord, head: RequestHead, body: bytes) -> Answer:
        if record.state is not records.TaskState.INPUT_REQUIRED:
            message = f"the task does not wait for input: its state is {record.state}"
            raise make_task_error("task-not-waiting", message, target=record.target)
        if not records.is_json(head.content_type):
            raise make_task_error("unsupported-media-type", "the input must be JSON")
        running = self.runner.find_running(record.id)
        if running is not None:
            running.validate_input(body)
        if not await self.runner.store.put_input(record.id, body, self.clock()):
            raise make_task_error(
                "task-not-waiting", "the task has got its input already", target=record.target
            )
        if running is not None:
            running.deliver(body)
        self.runner.notify(record.id)
        return replace(self._make_status_answer(await self.runner.require(record.id)), status=202)

    def _make_status_answer(self, record: TaskRecord, wait: float | None = None) -> Answer:
        age = self.clock() - record.created
        ended = record.ended
        status = records.TaskStatus(
            id=record.id,
            state=record.state,
            target=record.target,
            request=record.request,
            created=record.created,
            updated=record.updated,
            expires=None if ended is None else ended + KEPT_SECONDS,
            poll_after=1.0 if age < 10 else 5.0,
            progress=record.progress,
            inputs=record.inputs,
            error=record.error,
            seq=record.seq,
            canceling=record.canceling and not record.is_final,
        )
        headers = [("ETag", record.tag), ("Vary", "Authorization, Origin")]
        if not record.is_final:
            headers.append(("Retry-After", str(int(status.poll_after))))
        if wait:
            headers.append(_format_wait(wait))
        body = records.encode_task_status(status, f"{self.site.anchor}{records.TASKS}{record.id}")
        return Answer(content_type=records.TASK, body=body, headers=tuple(headers))

    async def _load_answer(self, record: TaskRecord) -> Answer:
        octets = await self.runner.store.read_blob(record.id, "answer")
        answer = None if octets is None else decode_stored_answer(octets, self.limits.stream_seconds)
        if not isinstance(answer, Answer):
            raise make_task_error("task-not-found", "the task does not exist, or belongs to another caller")
        fields = tuple(header for header in answer.headers if header[0] != "Idempotency-Replayed")
        return replace(answer, headers=fields)

    # events -------------------------------------------------------------------------------------------------

    async def _send_events(
        self,
        request: ReceiptRequest,
        record: TaskRecord,
        receive: responses.Receive,
        send: responses.Send,
        watcher: str,
    ) -> None:
        """Send the events from the number that the caller has, and the receipt after the last one."""
        after = _parse_event_number(request.head, record)
        answer = Answer(content_type=records.EVENTS)
        if request.head.method == "HEAD":
            await self.send_signed(request, answer, send)
            return
        with self._watching.reserve(caller=watcher):
            chain = StreamChain(request.request_hash, record.id)
            for event in await self.runner.store.list_events(record.id, 0, after) if after else ():
                chain.add(str(event.seq), event.event, event.data)
            await responses.send_head(send, answer)
            try:
                await self._follow_until_gone(request, record.id, chain, after, receive, send)
            except Exception as error:  # noqa: BLE001 - without a receipt, the caller resumes
                self.make_problem(error, record.target)  # for the log
            with suppress(OSError):
                await responses.send_body_part(send, b"", more=False)

    async def _follow_until_gone(
        self,
        request: ReceiptRequest,
        task: str,
        chain: StreamChain,
        after: int,
        receive: responses.Receive,
        send: responses.Send,
    ) -> None:
        """Send events until the last one, until the caller disconnects, or until the stream's time limit."""
        work = self.runner.spawn(self._follow(request, task, chain, after, send))
        gone = self.runner.spawn(responses.wait_for_disconnect(receive))
        try:
            await asyncio.wait(
                {work, gone}, return_when=asyncio.FIRST_COMPLETED, timeout=self.limits.stream_seconds
            )
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled():
            with suppress(OSError):  # the caller has disconnected (ASGI 2.4)
                work.result()

    async def _follow(
        self, request: ReceiptRequest, task: str, chain: StreamChain, after: int, send: responses.Send
    ) -> None:
        while True:
            changed = self.runner.register(task)
            try:
                record = await self.runner.require(task)
                events = await self.runner.store.list_events(task, after, _PAGE)
                for event in events:
                    chain.add(str(event.seq), event.event, event.data)
                    await responses.send_body_part(
                        send, responses.encode_event(event.event, event.data, str(event.seq))
                    )
                    after = event.seq
                if record.is_final and after >= record.seq:
                    receipt = self.signing.sign_stream(
                        request, Answer(content_type=records.EVENTS), chain.end
                    )
                    await responses.send_body_part(send, responses.encode_event("receipt", receipt))
                    return
                if not events and not await task_runner.wait_until_done(changed, _SILENCE_SECONDS):
                    await responses.send_body_part(send, _COMMENT)
            finally:
                self.runner.unregister(task, changed)


def get_task_of_answer(answer: object) -> str | None:
    """Return the ID of the task that a stored answer stands for, or None."""
    if isinstance(answer, Answer) and answer.status == 0:
        return answer.body.decode("ascii")
    return None


def encode_task_marker(task: str) -> bytes:
    """Return what the row of a key has as its answer if the request runs as a task."""
    return encode_answer(Answer(status=0, content_type=None, body=task.encode("ascii")))


def _format_wait(seconds: float) -> tuple[str, str]:
    return "Preference-Applied", f"wait={int(seconds)}"


def _parse_event_number(head: RequestHead, record: TaskRecord) -> int:
    text = head.headers.get("last-event-id")
    if text is None or not text.strip():
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > record.seq:
        raise bad_request("Last-Event-ID is not the number of an event of this task")
    return int(text)
