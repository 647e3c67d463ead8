"""Tasks of A2A in a shared store: the processes of an agent see the same tasks, each for its user only.

A task is kept for 24 hours after its last change. Every write compares the version, so that of two processes
that change a task one notices. A process that runs tasks renews a sign of life. The tasks of a process that
was killed are settled by the process that is asked for them next.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from onym.ai.tasks import TaskReference
from onym.errors import AIIPError, OnymError, StoreError
from onym.store.shared import MAX_FOUND, SharedStore, make_key

if TYPE_CHECKING:
    from a2a.server.cluster import TaskEventStream, VersionedTaskStore
    from a2a.server.context import ServerCallContext
    from a2a.types import Task

    from onym.ai.tasks import AsyncTaskHandle
    from onym.bridges._sdk import TaskInvoker

#: states of a task by their names in A2A; others are in the middle of the work
FINAL: Final = frozenset({"completed", "failed", "canceled", "rejected"})
WAITING: Final = frozenset({"input-required", "auth-required"})
#: tasks of one caller that are kept, and that run or wait
MAX_KEPT: Final = 1000
MAX_RUNNING: Final = 100
#: seconds that a task is kept after its last change
_KEPT_SECONDS: Final = 24 * 3600.0
#: seconds that a sign of life counts, and between two of them
_LIFE_SECONDS: Final = 30.0
_RENEW_SECONDS: Final = 10.0
#: seconds between two looks at a task that another process runs
_LOOK_SECONDS: Final = 0.5


class _Stored(NamedTuple):
    """A task in the store: its version, the process that runs it ("" if none does), and its protobuf form."""

    version: int
    process: str
    octets: bytes


def get_state(task: Task) -> str:
    """Return the state of a task, such as "input-required"."""
    from a2a.types import TaskState

    name: str = TaskState.Name(task.status.state)
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


def get_owner(context: ServerCallContext) -> str:
    """Return the user's name, "" without one."""
    return context.user.user_name if context.user.is_authenticated else ""


class SharedTasks:
    """The tasks of one agent in a shared store; `name` keeps those of several agents apart."""

    def __init__(self, shared: SharedStore, name: str) -> None:
        self._shared, self._name = shared, name
        self._process = secrets.token_urlsafe(12)
        self._running: set[str] = set()
        self._alive_until = 0.0
        self._renewing: asyncio.Task[None] | None = None

    def _make_key(self, owner: str, task_id: str) -> str:
        return make_key("a2a-task", self._name, f"user {owner}", task_id)

    async def load(self, owner: str, task_id: str) -> tuple[Task, _Stored] | None:
        """Return a user's task, or None."""
        found = await self._shared.get(self._make_key(owner, task_id))
        return None if found is None else _decode(found.value)

    async def save(self, owner: str, task: Task, *, version: int | None) -> int | None:
        """Keep a task if the store has this version of it (None: none yet). A cancellation needs no version.

        Return the new version, or None if another process has changed the task. Raises AIIPError
        `aiip.too-many-requests` for a new task of a user who has too many unfinished ones.
        """
        key, until = self._make_key(owner, task.id), time.time() + _KEPT_SECONDS
        await self._show_life(task)
        found = await self._shared.get(key)
        known = None if found is None else _decode(found.value)
        if get_state(task) == "canceled" and version is not None:
            # a cancellation wins against everything but an end
            if known is None or get_state(known[0]) in FINAL:
                return None
        elif version != (None if known is None else known[1].version):
            return None
        process = "" if get_state(task) in FINAL | WAITING else self._process
        record = _Stored(1 if known is None else known[1].version + 1, process, task.SerializeToString())
        octets = msgspec.msgpack.encode(record)
        if found is None:
            await self._make_room(owner)
            await self._shared.put(make_key("a2a-user", self._name, task.id), owner.encode(), until)
            written = await self._shared.put_new(key, octets, until)
        else:
            written = await self._shared.replace(key, octets, until, version=found.version)
        return record.version if written else None

    async def find_owner(self, task_id: str) -> str | None:
        """Return whose task this is; the caller has checked that it may know."""
        found = await self._shared.get(make_key("a2a-user", self._name, task_id))
        return None if found is None else found.value.decode()

    async def _make_room(self, owner: str) -> None:
        """Delete a user's oldest tasks beyond the limit. Raises AIIPError if too many are unfinished."""
        tasks = await self.find_all(owner)
        unfinished = sum(get_state(task) not in FINAL for task in tasks)
        if unfinished >= MAX_RUNNING:
            raise AIIPError(f"{MAX_RUNNING} tasks of this caller run or wait", code="aiip.too-many-requests")
        ended = sorted(
            (task for task in tasks if get_state(task) in FINAL),
            key=lambda task: task.status.timestamp.ToNanoseconds(),
        )
        for task in ended[: max(0, len(tasks) + 1 - MAX_KEPT)]:
            await self.delete(owner, task.id)

    async def find_all(self, owner: str) -> list[Task]:
        """Return all tasks of a user."""
        prefix = make_key("a2a-task", self._name, f"user {owner}") + "/"
        tasks: list[Task] = []
        after: str | None = None
        while True:
            rows = await self._shared.find(prefix, limit=MAX_FOUND, after=after)
            tasks += [_decode(row.value)[0] for _, row in rows]
            if len(rows) < MAX_FOUND:
                return tasks
            after = rows[-1][0]

    async def delete(self, owner: str, task_id: str) -> None:
        """Forget a task."""
        self._running.discard(task_id)
        await self._shared.delete(self._make_key(owner, task_id))

    async def is_abandoned(self, stored: _Stored) -> bool:
        """Report whether the process that ran a task is gone."""
        if stored.process in {"", self._process}:
            return False
        return await self._shared.get(make_key("a2a-life", stored.process)) is None

    async def _show_life(self, task: Task) -> None:
        """Tell other processes, before a task is stored as running, that this process is there."""
        if get_state(task) in FINAL | WAITING:
            self._running.discard(task.id)
            return
        self._running.add(task.id)
        if self._alive_until - time.time() < _LIFE_SECONDS - _RENEW_SECONDS:
            await self._renew()
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._keep_alive())

    async def _renew(self) -> None:
        until = time.time() + _LIFE_SECONDS
        await self._shared.put(make_key("a2a-life", self._process), b"", until)
        self._alive_until = until

    async def _keep_alive(self) -> None:
        while self._running:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await self._renew()
            except StoreError:
                continue  # out of reach; its tasks cannot be stored either

    async def close(self) -> None:
        """Stop the signs of life."""
        self._running.clear()
        if self._renewing is not None:
            self._renewing.cancel()

    # the tasks of endpoints for which tasks here stand

    async def keep_reference(self, task_id: str, reference: TaskReference) -> None:
        """Remember the endpoint's task, so that another process can go on with it."""
        value = json.dumps(reference.as_dict()).encode()
        await self._shared.put(self._make_reference_key(task_id), value, time.time() + _KEPT_SECONDS)

    async def open_reference(self, client: TaskInvoker, task_id: str) -> AsyncTaskHandle | None:
        """Return a handle of the endpoint's task, None if there is none."""
        found = await self._shared.get(self._make_reference_key(task_id))
        return None if found is None else await client.task(TaskReference(**json.loads(found.value)))

    async def forget_reference(self, task_id: str) -> None:
        """Forget the endpoint's task, which has ended."""
        await self._shared.delete(self._make_reference_key(task_id))

    def _make_reference_key(self, task_id: str) -> str:
        return make_key("a2a-reference", self._name, task_id)


def _decode(octets: bytes) -> tuple[Task, _Stored]:
    from a2a.types import Task

    stored = msgspec.msgpack.decode(octets, type=_Stored)
    return Task.FromString(stored.octets), stored


def make_task_store(tasks: SharedTasks, code: str) -> VersionedTaskStore:
    """Return the SDK's interface to these tasks.

    Without a user, a task can be reached only by its ID, and none are listed. `code` names an error's code in
    its data.
    """
    from a2a.server.cluster import (
        ConcurrentTaskModificationError,
        StoredTask,
        TaskVersion,
        VersionedTaskStore,
    )
    from a2a.server.tasks import InMemoryTaskStore
    from a2a.types import ListTasksResponse
    from a2a.utils.errors import UnsupportedOperationError

    class Store(VersionedTaskStore):
        """Keeps the tasks of each user apart."""

        async def save(
            self, task: Any, *, event: Any, prev: Any, prev_version: Any, context: Any
        ) -> TaskVersion:
            version = None if prev_version.is_missing else prev_version._value
            try:
                saved = await tasks.save(get_owner(context), task, version=version)
            except OnymError as error:
                raise UnsupportedOperationError(error.message, data={code: error.code}) from None
            if saved is None:
                raise ConcurrentTaskModificationError(task.id)
            return TaskVersion(saved)

        async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
            found = await tasks.load(get_owner(context), task_id)
            return None if found is None else StoredTask(found[0], TaskVersion(found[1].version))

        async def list(self, params: Any, context: ServerCallContext) -> ListTasksResponse:
            owner = get_owner(context)
            if not owner:
                return ListTasksResponse(page_size=params.page_size)
            page = InMemoryTaskStore(get_owner)  # filters, sorts and pages as the SDK does
            for task in await tasks.find_all(owner):
                await page.save(task, context)
            return await page.list(params, context)

        async def delete(self, task_id: str, context: ServerCallContext) -> None:
            await tasks.delete(get_owner(context), task_id)

    return Store()


def make_change_stream(tasks: SharedTasks) -> TaskEventStream:
    """Return the changes of tasks that other processes run, for those who subscribe to them here."""
    from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent

    class Changes(TaskEventStream):
        """Looks at the task itself twice a second."""

        async def publish(self, task_id: str, event: VersionedEvent) -> None:
            """Do nothing: others look at the task itself."""

        async def subscribe(
            self, task_id: str, *, after: TaskVersion
        ) -> AsyncGenerator[VersionedEvent, None]:
            owner, last = await tasks.find_owner(task_id), after
            while owner is not None:
                found = await tasks.load(owner, task_id)
                if found is None:
                    return
                version = TaskVersion(found[1].version)
                if version.is_after(last):
                    last = version
                    yield VersionedEvent(found[0], version)
                await asyncio.sleep(_LOOK_SECONDS)

        async def destroy(self, task_id: str) -> None:
            """Do nothing: the task itself stays."""

    return Changes()
