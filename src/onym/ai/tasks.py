"""Long tasks as a client sees them: status, events, result, input and cancellation (AIIP/HTTPS v1, 3.12).

`AIClient.start` returns a `TaskHandle`, `AsyncAIClient.start` an `AsyncTaskHandle`. A `TaskReference` is all
that another process needs to go on: `AIClient.task(reference)`. The result is released only if its receipt
names the task and the request that began it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
import platformdirs

from onym.ai import records
from onym.ai.client_flows import PendingAnswer, Session, exchange_task, open_task_events
from onym.ai.exchange import StreamReader, TaskTarget
from onym.ai.messages import decode_problem
from onym.common.files import lock_file, write_file
from onym.errors import (
    AIIPError,
    ConfigError,
    DeadlineExceeded,
    InvocationError,
    NetError,
    ProvenanceError,
    TaskRunning,
    UsageError,
)
from onym.net.messages import Flow, SSEEvent, Wait

T = TypeVar("T")

_CLAUSE: Final = "AIIP/HTTPS v1 3.12"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")
_HASH: Final = re.compile(r"[A-Za-z0-9_-]{43}")
#: seconds for which one request may wait at the endpoint, and the shortest and longest pause between two
_HOLD_SECONDS: Final = 20.0
_PAUSES: Final = (0.2, 30.0)
#: requests in a row that may fail, and connections in a row that may bring no event
_MOST_FAILURES: Final = 8
#: tasks in the file of this computer
_MOST_TASKS: Final = 500
#: bytes of a status
_LONGEST_STATUS: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReference:
    """A task at an endpoint: all that is needed to go on with it, in this process or in another one.

    `uri` is the canonical ai URI without its query, `request` the hash of the request that began the task.
    For a caller without an access token, whoever knows the `id` can use the task: keep it private.
    """

    uri: str
    id: str
    request: str

    def __post_init__(self) -> None:
        if not (_ID.fullmatch(self.id) and _HASH.fullmatch(self.request)):
            raise UsageError("this is not the reference of a task", code="usage.bad-argument")

    def as_dict(self) -> dict[str, str]:
        """Return the values, to store them: `TaskReference(**values)` reads them."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTask:
    """A task that was begun on this computer, and when (seconds since the epoch)."""

    reference: TaskReference
    started: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One event of a task: `state`, `progress` or `canceling`, with its number. `data` is its JSON value."""

    seq: int
    type: str
    data: Any


class _StatusFormat(msgspec.Struct, frozen=True, rename={"request": "rqh", "poll_after": "pollAfter"}):
    """The members of `application/aiip-task+json` that a client uses."""

    id: str
    state: records.TaskState
    target: str
    request: str
    created: float
    updated: float
    expires: float | None = None
    poll_after: float = 1.0
    progress: records.TaskProgress | None = None
    inputs: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    seq: int = 0
    canceling: bool = False


def is_task_result(result: records.Result) -> bool:
    """Report whether a result is the status of a task that has begun, and not the result itself."""
    return result.status == 202 and records.parse_media_type(result.content_type) == records.TASK


def find_started_task(result: records.Result) -> TaskReference | None:
    """Return the task that a verified response to an invocation has begun, or None.

    Raises ProvenanceError for a response that is not the status of its own task.
    """
    if not is_task_result(result):
        return None
    status = parse_task_status(result, request=result.receipt.request)
    return TaskReference(uri=result.receipt.subject, id=status.id, request=status.request)


def parse_task_status(
    result: records.Result, *, request: str | None = None, task: str | None = None
) -> records.TaskStatus:
    """Parse the status in a verified body; `request` and `task` are the expected ones, if known.

    Raises ProvenanceError for a body that is not the status of this task.
    """
    target = result.receipt.subject
    if records.parse_media_type(result.content_type) != records.TASK or len(result.body) > _LONGEST_STATUS:
        raise ProvenanceError("the response is not the status of a task", target=target, clause=_CLAUSE)
    result.json()  # no member twice
    try:
        parsed = msgspec.json.decode(result.body, type=_StatusFormat)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = f"the status of the task is invalid: {str(error)[:200]}"
        raise ProvenanceError(why, target=target, clause=_CLAUSE) from None
    status = records.TaskStatus(**msgspec.structs.asdict(parsed))
    same = status.target == target and status.request == (request or status.request)
    if not (same and status.id == (task or status.id) and _ID.fullmatch(status.id)):
        raise ProvenanceError("the status is of another task", target=target, clause=_CLAUSE)
    return status


@dataclass(frozen=True, slots=True)
class TaskFlows:
    """The requests to one task, as generators that `run_flow` and `arun_flow` drive."""

    session: Session
    resolution: records.Resolution
    reference: TaskReference

    def fetch_status(self, wait: float = 0.0) -> Flow[records.TaskStatus]:
        """Fetch the status; with `wait`, when the task has ended or needs input, or after these seconds."""
        result = yield from self._exchange("", headers=_prefer_wait(wait))
        return self._parse(result)

    def cancel(self) -> Flow[records.TaskStatus]:
        """Ask the endpoint to cancel the task. Raises InvocationError `aiip.task-not-cancelable`."""
        return self._parse((yield from self._exchange("", method="DELETE")))

    def send_input(self, body: bytes) -> Flow[records.TaskStatus]:
        """Send the input that the task waits for. Raises InvocationError `aiip.task-not-waiting`."""
        return self._parse((yield from self._exchange("input", method="POST", body=body)))

    def wait_for_end(self, seconds: float | None) -> Flow[records.TaskStatus]:
        """Wait until the task has ended or needs input. Raises TaskRunning after `seconds`."""
        status: records.TaskStatus = yield from self._poll(self.fetch_status, _needs_caller, seconds)
        return status

    def fetch_result(self, seconds: float | None) -> Flow[records.Result]:
        """Fetch the result as soon as it is there.

        Raises TaskRunning after `seconds`, and if the task needs input; InvocationError if it has failed.
        """

        def fetch(wait: float) -> Flow[records.Result]:
            return (yield from self._exchange("result", headers=_prefer_wait(wait), raises=False))

        def is_there(result: records.Result) -> bool:
            return not is_task_result(result) or _needs_caller(self._parse(result))

        result: records.Result = yield from self._poll(fetch, is_there, seconds)
        if is_task_result(result):
            raise self._make_running_error("the task waits for input")
        if result.status >= 400:
            raise _decode_failure(result)
        return result

    def open_events(self, earlier: StreamReader | None, after: int) -> Flow[Any]:
        """Open the stream of events, after those that an earlier connection has brought."""
        headers = (("Last-Event-ID", str(after)),) if after else ()
        invocation = records.Invocation(
            uri=self.resolution.uri, method="GET", accept=records.EVENTS, headers=headers
        )
        opened = yield from open_task_events(
            self.session, invocation, self.resolution, self._get_target("events"), earlier
        )
        if opened.result is not None:
            raise _decode_failure(opened.result)
        return opened

    def _poll(self, fetch: Any, is_enough: Any, seconds: float | None) -> Flow[Any]:
        clock, failures = self.session.settings.clock, 0
        deadline = None if seconds is None else clock() + seconds
        while True:
            left = _HOLD_SECONDS if deadline is None else max(0.0, deadline - clock())
            hold = min(_HOLD_SECONDS, left, self.session.timeout / 2)
            pause, began = _PAUSES[0], clock()
            try:
                found = yield from fetch(hold)
                if is_enough(found):
                    return found
                failures = 0
                # an endpoint that has held the request may get the next one at once
                if hold < 1 or clock() - began < hold / 2:
                    pause = self._get_poll_pause(found)
            except (NetError, InvocationError) as error:
                failures += 1
                if failures >= _MOST_FAILURES or not getattr(error, "retryable", False):
                    raise
                pause = _get_backoff(failures)
            if deadline is not None:
                left = deadline - clock()
                if left <= _PAUSES[0]:
                    raise self._make_running_error("the task is still running")
                pause = min(pause, left)  # a last look at the end
            yield Wait(pause)

    def _get_poll_pause(self, found: records.TaskStatus | records.Result) -> float:
        """Return how long to wait before the next request: as long as the endpoint asks for (`pollAfter`)."""
        status = found if isinstance(found, records.TaskStatus) else self._parse(found)
        return min(max(1.0, status.poll_after), _PAUSES[1])

    def _exchange(
        self,
        part: records.TaskPart,
        *,
        method: str = "GET",
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
        raises: bool = True,
    ) -> Flow[records.Result]:
        invocation = records.Invocation(
            uri=self.resolution.uri,
            method=method,
            body=body,
            content_type=records.JSON if body else None,
            headers=headers,
        )
        result = yield from exchange_task(self.session, invocation, self.resolution, self._get_target(part))
        if raises and result.status >= 400:
            raise _decode_failure(result)
        return result

    def _get_target(self, part: records.TaskPart) -> TaskTarget:
        return TaskTarget(id=self.reference.id, original=self.reference.request, part=part)

    def _parse(self, result: records.Result) -> records.TaskStatus:
        return parse_task_status(result, request=self.reference.request, task=self.reference.id)

    def _make_running_error(self, message: str) -> TaskRunning:
        return make_running_error(message, self.reference)


def make_running_error(message: str, reference: TaskReference) -> TaskRunning:
    """Return the error of a result that is not there yet."""
    error = TaskRunning(
        message,
        target=reference.uri,
        clause=_CLAUSE,
        retryable=True,
        hint=f"Get it later with: onym ai tasks wait {reference.id}",
    )
    error.task = reference.id
    return error


def _decode_failure(result: records.Result) -> InvocationError:
    target = result.receipt.subject
    return decode_problem(result.status, result.content_type, result.body, target, signed=True)


def _get_backoff(failures: int) -> float:
    return min(_PAUSES[0] * float(2**failures), _PAUSES[1])


def _needs_caller(status: records.TaskStatus) -> bool:
    return status.is_final or status.state in {
        records.TaskState.INPUT_REQUIRED,
        records.TaskState.AUTH_REQUIRED,
    }


def _prefer_wait(seconds: float) -> tuple[tuple[str, str], ...]:
    return (("Prefer", f"wait={int(seconds)}"),) if seconds >= 1 else ()


def build_reference(resolution: records.Resolution, status: records.TaskStatus) -> TaskReference:
    """Return the reference of a task whose status was verified."""
    return TaskReference(uri=str(resolution.uri.without_query), id=status.id, request=status.request)


def pause_flow(seconds: float) -> Flow[None]:
    """Wait for some seconds."""
    yield Wait(seconds)


class _EventLog:
    """What was read of a task's events, over several connections."""

    def __init__(self) -> None:
        self.reader: StreamReader | None = None
        self.last = 0
        self._failures = 0

    def accept(self, event: SSEEvent) -> TaskEvent:
        """Return the event. Raises ProvenanceError for one that is not the next one."""
        if event.id != str(self.last + 1):
            raise ProvenanceError("an event of the task is missing, or comes twice", clause=_CLAUSE)
        self.last += 1
        self._failures = 0
        try:
            data = msgspec.json.decode(event.data)
        except msgspec.DecodeError:
            raise ProvenanceError("an event of the task is not JSON", clause=_CLAUSE) from None
        return TaskEvent(seq=self.last, type=event.event, data=data)

    def get_pause(self, error: AIIPError | NetError) -> float:
        """Return how long to wait before the stream is resumed; raise the error if it cannot be."""
        self._failures += 1
        ended = isinstance(error, ProvenanceError) and error.code == "aiip.provenance-missing"
        again = ended or isinstance(error, NetError) or getattr(error, "retryable", False)
        if not again or isinstance(error, DeadlineExceeded) or self._failures > _MOST_FAILURES:
            raise error
        return _get_backoff(self._failures - 1)


class FlowClient(Protocol):
    """What a handle needs of a client: `onym.ai.client.AIClient` is one."""

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow."""
        ...

    def read_stream(self, opened: PendingAnswer) -> Any:
        """Return the events of a response as an `AIStream`."""
        ...


class AsyncFlowClient(Protocol):
    """What an asynchronous handle needs of a client: `onym.ai.client.AsyncAIClient` is one."""

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow."""
        ...

    def read_stream(self, opened: PendingAnswer) -> Any:
        """Return the events of a response as an `AsyncAIStream`."""
        ...


@dataclass(frozen=True, slots=True)
class _Handle:
    """A task: its reference, its first status, and the result if it came at once."""

    reference: TaskReference | None
    first: records.TaskStatus | None
    _flows: TaskFlows | None
    _result: records.Result | None

    @property
    def id(self) -> str | None:
        """The ID of the task; None if the endpoint returned the result at once."""
        return None if self.reference is None else self.reference.id

    def _get_flows(self) -> TaskFlows:
        if self._flows is None:
            raise UsageError("the endpoint returned the result at once, so there is no task")
        return self._flows


@dataclass(frozen=True, slots=True)
class TaskHandle(_Handle):
    """A long task that `AIClient.start` has begun, or that `AIClient.task` goes on with."""

    _client: FlowClient

    def status(self) -> records.TaskStatus:
        """Return the task's status now."""
        return self._client.run(self._get_flows().fetch_status())

    def wait(self, timeout: float | None = None) -> records.TaskStatus:
        """Wait until the task has ended or needs input. Raises TaskRunning after `timeout` seconds."""
        return self._client.run(self._get_flows().wait_for_end(timeout))

    def result(self, timeout: float | None = None) -> records.Result:
        """Return the verified result as soon as it is there.

        Raises TaskRunning after `timeout` seconds and if the task needs input, InvocationError if the task
        has failed or was cancelled, ProvenanceError for a result of another task.
        """
        if self._result is not None:
            return self._result
        return self._client.run(self._get_flows().fetch_result(timeout))

    def events(self) -> Iterator[TaskEvent]:
        """Yield the task's events from the first one on, also those to come.

        A connection that breaks is replaced by another one, without gaps. The events are provisional until
        the iterator ends; ProvenanceError at the end means that they are not the endpoint's.
        """
        flows, log = self._get_flows(), _EventLog()
        while True:
            try:
                opened = self._client.run(flows.open_events(log.reader, log.last))
                log.reader = opened.reader
                with self._client.read_stream(opened) as stream:
                    for event in stream:
                        yield log.accept(event)
                    stream.result  # noqa: B018 - raises if the receipt is missing
                return
            except (AIIPError, NetError) as error:
                pause = log.get_pause(error)
            self._client.run(pause_flow(pause))

    def cancel(self) -> records.TaskStatus:
        """Ask the endpoint to cancel the task, which ends when its function has ended."""
        return self._client.run(self._get_flows().cancel())

    def send_input(self, values: Mapping[str, Any]) -> records.TaskStatus:
        """Send the input that the task waits for (`inputs` of its status is the JSON Schema)."""
        return self._client.run(self._get_flows().send_input(records.encode_json(dict(values))))


@dataclass(frozen=True, slots=True)
class AsyncTaskHandle(_Handle):
    """The async version of `TaskHandle`."""

    _client: AsyncFlowClient

    async def status(self) -> records.TaskStatus:
        """Return the task's status now."""
        return await self._client.run(self._get_flows().fetch_status())

    async def wait(self, timeout: float | None = None) -> records.TaskStatus:  # noqa: ASYNC109 - as TaskHandle
        """Wait until the task has ended or needs input; see `TaskHandle.wait`."""
        return await self._client.run(self._get_flows().wait_for_end(timeout))

    async def result(self, timeout: float | None = None) -> records.Result:  # noqa: ASYNC109 - as TaskHandle
        """Return the verified result as soon as it is there; see `TaskHandle.result`."""
        if self._result is not None:
            return self._result
        return await self._client.run(self._get_flows().fetch_result(timeout))

    async def events(self) -> AsyncIterator[TaskEvent]:
        """Yield the task's events; see `TaskHandle.events`."""
        flows, log = self._get_flows(), _EventLog()
        while True:
            try:
                opened = await self._client.run(flows.open_events(log.reader, log.last))
                log.reader = opened.reader
                async with self._client.read_stream(opened) as stream:
                    async for event in stream:
                        yield log.accept(event)
                    stream.result  # noqa: B018 - raises if the receipt is missing
                return
            except (AIIPError, NetError) as error:
                pause = log.get_pause(error)
            await self._client.run(pause_flow(pause))

    async def cancel(self) -> records.TaskStatus:
        """Ask the endpoint to cancel the task; see `TaskHandle.cancel`."""
        return await self._client.run(self._get_flows().cancel())

    async def send_input(self, values: Mapping[str, Any]) -> records.TaskStatus:
        """Send the input that the task waits for; see `TaskHandle.send_input`."""
        return await self._client.run(self._get_flows().send_input(records.encode_json(dict(values))))


class TaskFile:
    """The tasks that this user has begun on this computer, in one private file, the newest last.

    It contains references and no results. The default is in the user's state folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or platformdirs.user_state_path("onym") / "aiip-tasks.json"

    def list(self) -> tuple[StartedTask, ...]:
        """Return the tasks. Raises OSError, and ConfigError for a file that is not one of tasks."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[StartedTask, ...])
        except FileNotFoundError:
            return ()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(
                f"{self._path} does not contain tasks", hint="Remove the file; the tasks themselves stay."
            ) from None

    def add(self, reference: TaskReference, at: float) -> None:
        """Add a task that was begun `at` (seconds since the epoch). Raises as `list` does."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_file(self._path.with_name(f"{self._path.name}.lock")):
            others = [task for task in self.list() if task.reference.id != reference.id]
            tasks = [*others, StartedTask(reference=reference, started=at)][-_MOST_TASKS:]
            write_file(self._path, msgspec.json.encode(tasks), mode=0o600)

    def find(self, name: str) -> TaskReference:
        """Return the task with this ID, or with an ID that begins like this.

        Raises UsageError if there is none, or more than one. Raises as `list` does.
        """
        found = [task.reference for task in self.list() if task.reference.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        hint = "List the tasks: onym ai tasks list. A task of another computer needs --uri and --request."
        if found:
            raise UsageError(f"{len(found)} tasks have an ID that begins with {name}", hint=hint)
        raise UsageError(f"this computer has begun no task {name}", hint=hint)


def ask_for_task(invocation: records.Invocation, wait: float | None) -> records.Invocation:
    """Return the invocation with the preference for a task, after `wait` seconds."""
    preference = "respond-async" if wait is None else f"respond-async, wait={max(0, int(wait))}"
    return replace(invocation, headers=(*invocation.headers, ("Prefer", preference)))
