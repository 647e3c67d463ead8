"""The store of long tasks: their states, events, checkpoints and answers (AIIP/HTTPS v1, 3.12).

A task is a row beside the row of its idempotency key, in the same SQLite file: both are inserted in one
transaction, so a task runs at most once for its key, and 202 is sent only after the commit. Every process
that runs tasks is their owner. Each write of an owner names the owner and the states that it may change, so
a process that was taken for dead changes nothing when it goes on.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from onym.ai.endpoint.context import Limits
from onym.ai.records import FINAL_STATES, TaskProgress, TaskState
from onym.errors import AIIPError
from onym.store.sqlite import SQLiteOptions, open_connection, write_transaction

T = TypeVar("T")

#: seconds for which a task is kept after its end
KEPT_SECONDS: Final = 24 * 3600.0
#: seconds between two signs of life of an owner, and after which an owner without one is taken for dead
BEAT_SECONDS: Final = 5.0
OWNER_SECONDS: Final = 60.0
#: a refusal whose reason lasts longer than these seconds does not ask for a retry
SOON: Final = 60
#: the beginning of a holder without an access token, and the condition for all of them
_ADDRESS: Final = "address "
_ANONYMOUS: Final = "holder >= 'address ' AND holder < 'address!'"
_CLAUSE: Final = "AIIP/HTTPS v1 3.12"
_OPTIONS: Final = SQLiteOptions(timeout=10.0, pragmas={"synchronous": "FULL"})
#: tables beside those of the keys; may run twice
TASK_TABLES: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL,
    key TEXT NOT NULL, holder TEXT NOT NULL, caller TEXT NOT NULL, request TEXT NOT NULL,
    call BLOB NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL, runs INTEGER NOT NULL DEFAULT 1,
    version INTEGER NOT NULL DEFAULT 1, seq INTEGER NOT NULL DEFAULT 0, canceling INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL, updated REAL NOT NULL, ended REAL, size INTEGER NOT NULL, progress BLOB,
    inputs BLOB, input BLOB, checkpoint BLOB, error BLOB, answer BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS tasks_holder ON tasks (holder, ended, size);
CREATE INDEX IF NOT EXISTS tasks_key ON tasks (client, principal, target, key);
CREATE INDEX IF NOT EXISTS tasks_running ON tasks (owner) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS tasks_ended ON tasks (ended) WHERE ended IS NOT NULL;
CREATE TABLE IF NOT EXISTS task_events (
    task TEXT NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (task, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task_owners (id TEXT PRIMARY KEY, seen REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS keys_of_tasks BEFORE DELETE ON keys
WHEN EXISTS (SELECT 1 FROM tasks WHERE client = old.client AND principal = old.principal
    AND target = old.target AND key = old.key)
BEGIN SELECT RAISE(IGNORE); END;
"""
_COLUMNS: Final = (
    "id, target, holder, caller, request, owner, state, runs, version, seq, canceling, created, updated, "
    "ended, size, progress, inputs, error, checkpoint IS NOT NULL"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM tasks"  # noqa: S608 - a constant
_ENCODE: Final = msgspec.json.Encoder()
#: the columns of a task that `TaskRecord` leaves out, because they may be large
Blob: TypeAlias = Literal["answer", "call", "checkpoint", "input"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to insert together with its idempotency key. `caller` is who may use it; `call` its request.

    `marker` is the stored answer of the key from the beginning: it names the task.
    """

    id: str
    caller: str
    call: bytes = field(repr=False)
    marker: bytes
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One event of a task. `seq` counts from 1 without gaps."""

    seq: int
    event: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A stored task. `version` changes with every write, `size` is what the task occupies in bytes.

    `holder` is the caller that the task counts for, as that of its key. `caller` is who may use the task.
    `runs` counts how often its function was started since the last checkpoint.
    """

    id: str
    target: str
    holder: str
    caller: str
    request: str
    owner: str
    state: TaskState
    runs: int
    version: int
    seq: int
    canceling: bool
    created: float
    updated: float
    ended: float | None
    size: int
    progress: TaskProgress | None
    inputs: dict[str, Any] | None
    error: dict[str, Any] | None
    resumable: bool

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.state in FINAL_STATES

    @property
    def tag(self) -> str:
        """The ETag of the task's status."""
        return f'"{self.version}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """A write of the owner. None leaves a value as it is; `events` are pairs of type and data."""

    state: TaskState | None = None
    progress: TaskProgress | None = None
    #: the form that the task waits for; `clear_input` removes the form and the input
    inputs: dict[str, Any] | None = None
    clear_input: bool = False
    checkpoint: bytes | None = field(default=None, repr=False)
    error: bytes | None = field(default=None, repr=False)
    answer: bytes | None = field(default=None, repr=False)
    events: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Orphan:
    """A task whose process may be gone.

    `owner` is "ended" for a process that cannot go on with it, "paused" for one that has given no sign of
    life but still has its lock, and "lost" for one that may have lost only its session a moment ago.
    """

    task: TaskRecord
    owner: Literal["ended", "paused", "lost"]


class TaskStore(Protocol):
    """Stores the tasks of one endpoint. `owner` identifies this process.

    Every method raises AIIPError `aiip.unavailable` if the store is out of reach.
    """

    owner: str

    async def find(self, task: str) -> TaskRecord | None:
        """Return the task, or None."""
        ...

    async def read_blob(self, task: str, column: Blob) -> bytes | None:
        """Return a large value of the task, or None."""
        ...

    async def list_events(self, task: str, after: int, most: int) -> list[TaskEvent]:
        """Return at most `most` events with a number greater than `after`, in order."""
        ...

    async def write(self, task: str, change: TaskChange, at: float) -> TaskRecord | None:
        """Write as the owner. None: the task has ended, or has another owner, so nothing was written."""
        ...

    async def mark_canceling(self, task: str, at: float) -> TaskRecord | None:
        """Mark the task as to be cancelled. None: it has ended."""
        ...

    async def put_input(self, task: str, body: bytes, at: float) -> bool:
        """Store the input that the task waits for. False: it does not wait for any."""
        ...

    async def list_orphans(self, at: float) -> list[Orphan]:
        """Return the unfinished tasks whose owner is gone, and those of this process that have not begun."""
        ...

    async def take_over(self, task: TaskRecord, at: float) -> TaskRecord | None:
        """Become the owner of an orphan. None: another process was first."""
        ...

    async def fail_orphan(self, task: TaskRecord, change: TaskChange, at: float) -> bool:
        """End an orphan with this change. False: another process was first."""
        ...

    async def sweep(self, at: float) -> None:
        """Delete expired tasks."""
        ...

    async def has_foreign_changes(self) -> bool:
        """Report whether another process has written since the last call."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


def insert_task(
    base: sqlite3.Connection, task: NewTask, key: tuple[str, ...], *, holder: str, at: float, **row: str
) -> None:
    """Insert the task into the file of keys, in the caller's transaction.

    `key` is the primary key of the idempotency key, `holder` the caller that it counts for; `row` has
    `request` and `owner`. Raises AIIPError `aiip.too-many-requests` or `aiip.unavailable` if the caller, all
    callers without a token, or all callers have too many tasks.
    """
    _delete_expired(base, at)
    _require_room(base, holder, task.limits, at, target=key[2])
    base.execute(
        "INSERT INTO tasks (id, client, principal, target, key, holder, caller, request, call, owner, state,"
        " created, updated, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            task.id, *key, holder, task.caller, row["request"], task.call, row["owner"],
            TaskState.SUBMITTED.value, at, at, len(task.call),
        ),
    )  # fmt: skip
    _append_events(base, task.id, 0, ((_STATE, _encode_state(TaskState.SUBMITTED)),))


def _delete_expired(base: sqlite3.Connection, at: float) -> None:
    """Delete expired tasks, a few at a time."""
    rows = base.execute("SELECT id FROM tasks WHERE ended < ? LIMIT 1000", (at - KEPT_SECONDS,)).fetchall()
    if rows:
        base.executemany("DELETE FROM task_events WHERE task = ?", rows)
        base.executemany("DELETE FROM tasks WHERE id = ?", rows)


@dataclass(frozen=True, slots=True)
class _Quota:
    """The tasks, and their bytes, that one or more callers may have. `condition` selects them."""

    condition: str
    parameters: tuple[str, ...]
    most: int
    size: int
    code: str
    message: str


def _list_quotas(holder: str, limits: Limits) -> Iterator[_Quota]:
    """The quotas of a caller. Those without a token have half of all, so that they cannot keep out others."""
    message = f"the caller has {limits.tasks_kept} tasks, or {limits.kept} bytes of them"
    yield _Quota("holder = ?", (holder,), limits.tasks_kept, limits.kept, "too-many-requests", message)
    if holder.startswith(_ADDRESS):
        half, size = (limits.tasks_total + 1) // 2, (limits.kept_total + 1) // 2
        message = "callers without an access token have all the tasks that are for them"
        yield _Quota(_ANONYMOUS, (), half, size, "unavailable", message)
    message = "the store of tasks is full"
    yield _Quota("1 = 1", (), limits.tasks_total, limits.kept_total, "unavailable", message)


def _require_room(base: sqlite3.Connection, holder: str, limits: Limits, at: float, *, target: str) -> None:
    query = "SELECT count(*) FROM tasks WHERE holder = ? AND ended IS NULL"
    (running,) = base.execute(query, (holder,)).fetchone()
    if running >= limits.tasks_running:
        message = f"the caller has {limits.tasks_running} running tasks"
        hint = "Wait for one to end, or cancel one."
        raise make_task_error("too-many-requests", message, target=target, hint=hint, retryable=True)
    for quota in _list_quotas(holder, limits):
        kept, size, ended = base.execute(
            f"SELECT count(*), coalesce(sum(size), 0), min(ended) FROM tasks WHERE {quota.condition}",  # noqa: S608
            quota.parameters,
        ).fetchone()
        if kept >= quota.most or size >= quota.size:
            wait = KEPT_SECONDS if ended is None else ended + KEPT_SECONDS - at
            hint = "Nothing was done. A task is deleted 24 hours after its end."
            error = make_task_error(
                quota.code, quota.message, target=target, hint=hint, retryable=wait <= SOON
            )
            error.retry_after = max(1, math.floor(wait) + 1)
            raise error


#: the type of an event that reports a new state
_STATE: Final = "state"


def _encode_state(state: TaskState) -> str:
    return _ENCODE.encode({"state": state.value}).decode()


def _append_events(
    base: sqlite3.Connection, task: str, seq: int, events: Collection[tuple[str, str]]
) -> None:
    base.executemany(
        "INSERT INTO task_events VALUES (?, ?, ?, ?)",
        [(task, number, event, data) for number, (event, data) in enumerate(events, seq + 1)],
    )
    size = sum(len(event) + len(data.encode("utf-8", "surrogatepass")) for event, data in events)
    base.execute("UPDATE tasks SET seq = seq + ?, size = size + ? WHERE id = ?", (len(events), size, task))


def make_task_error(code: str, message: str, **fields: Any) -> AIIPError:
    """Return an error of a request to a task, or of a task."""
    return AIIPError(message, code=f"aiip.{code}", clause=_CLAUSE, **fields)


class SQLiteTaskStore:
    """The tasks in the SQLite file of an `IdempotencyStore`, which decides whether an owner is alive.

    Its calls run in one thread. `owner` is that of the key store, `is_owner_alive` reports whether another
    owner still holds its lock.

    The owner of a task is the owner of its key: a process that holds the lock of a file. It also writes the
    time every few seconds, because a paused process keeps its lock.
    """

    def __init__(
        self, path: Path, *, owner: str, is_owner_alive: Callable[[str], bool], clock: Callable[[], float]
    ) -> None:
        """Open the file. Raises sqlite3.Error, OSError."""
        self.owner = owner
        self._is_owner_alive = is_owner_alive
        self._clock = clock
        self._base = open_connection(path, _OPTIONS)
        self._base.executescript(f"BEGIN IMMEDIATE; {TASK_TABLES} COMMIT;")
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="onym-tasks")
        self._data_version = self._get_data_version()
        self._closed = threading.Event()
        self._start_beating()

    def _start_beating(self) -> None:
        self._beat(self._clock())
        # a thread of its own: a busy event loop, or a full queue, must not look like a dead process
        self._heart = threading.Thread(target=self._keep_beating, name="onym-tasks-owner", daemon=True)
        self._heart.start()

    async def find(self, task: str) -> TaskRecord | None:
        """Return the task, or None."""
        return await self._run(self._find, task)

    async def read_blob(self, task: str, column: Blob) -> bytes | None:
        """Return a large value of the task, or None."""

        def select(base: sqlite3.Connection) -> bytes | None:
            row = base.execute(f"SELECT {column} FROM tasks WHERE id = ?", (task,)).fetchone()  # noqa: S608
            return None if row is None else row[0]

        return await self._run(select)

    async def list_events(self, task: str, after: int, most: int) -> list[TaskEvent]:
        """Return at most `most` events with a number greater than `after`, in order."""

        def select(base: sqlite3.Connection) -> list[TaskEvent]:
            rows = base.execute(
                "SELECT seq, event, data FROM task_events WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?",
                (task, after, most),
            ).fetchall()
            return [TaskEvent(seq=seq, event=event, data=data) for seq, event, data in rows]

        return await self._run(select)

    async def write(self, task: str, change: TaskChange, at: float) -> TaskRecord | None:
        """Write as the owner. None: the task has ended, or has another owner, so nothing was written."""
        return await self._run(
            partial(self._write, condition="owner = ?", values=(self.owner,)), task, change, at
        )

    async def mark_canceling(self, task: str, at: float) -> TaskRecord | None:
        """Mark the task as to be cancelled. None: it has ended."""

        def mark(base: sqlite3.Connection) -> TaskRecord | None:
            with self._begin(base):
                found = self._find(base, task)
                if found is None or found.is_final:
                    return None
                if not found.canceling:
                    base.execute(
                        "UPDATE tasks SET canceling = 1, version = version + 1, updated = ? WHERE id = ?",
                        (at, task),
                    )
                    _append_events(base, task, found.seq, (("canceling", "{}"),))
                return self._find(base, task)

        return await self._run(mark)

    async def put_input(self, task: str, body: bytes, at: float) -> bool:
        """Store the input that the task waits for. False: it does not wait for any."""

        def put(base: sqlite3.Connection) -> bool:
            with self._begin(base):
                done = base.execute(
                    "UPDATE tasks SET input = ?, updated = ?, version = version + 1"
                    " WHERE id = ? AND state = ? AND input IS NULL",
                    (body, at, task, TaskState.INPUT_REQUIRED.value),
                )
                return done.rowcount == 1

        return await self._run(put)

    async def list_orphans(self, at: float) -> list[Orphan]:
        """Return the unfinished tasks whose owner is gone, and those of this process that have not begun."""

        def search(base: sqlite3.Connection) -> list[Orphan]:
            owners = base.execute(
                "SELECT DISTINCT tasks.owner, seen FROM tasks LEFT JOIN task_owners ON tasks.owner ="
                " task_owners.id WHERE ended IS NULL AND tasks.owner <> ?",
                (self.owner,),
            ).fetchall()
            rows = base.execute(
                f"{_SELECT} WHERE owner = ? AND state = 'submitted'", (self.owner,)
            ).fetchall()
            found = [Orphan(_make_record(row), "ended") for row in rows]
            for owner, seen in owners:
                silent = math.inf if seen is None else at - seen
                state: Literal["ended", "paused", "lost"]
                if not self._is_owner_alive(owner):
                    state = "ended" if self._has_surely_ended(silent) else "lost"
                elif silent >= OWNER_SECONDS:
                    state = "paused"
                else:
                    continue
                rows = base.execute(f"{_SELECT} WHERE owner = ? AND ended IS NULL", (owner,)).fetchall()
                found += [Orphan(_make_record(row), state) for row in rows]
            return found

        return await self._run(search)

    async def take_over(self, task: TaskRecord, at: float) -> TaskRecord | None:
        """Become the owner of an orphan. None: another process was first."""

        def claim(base: sqlite3.Connection) -> TaskRecord | None:
            with self._begin(base):
                done = base.execute(
                    "UPDATE tasks SET owner = ?, state = ?, runs = runs + 1, version = version + 1,"
                    " updated = ?, inputs = NULL, input = NULL WHERE id = ? AND owner = ? AND state = ?",
                    (self.owner, TaskState.SUBMITTED.value, at, task.id, task.owner, task.state.value),
                )
                if done.rowcount != 1:
                    return None
                _append_events(base, task.id, task.seq, ((_STATE, _encode_state(TaskState.SUBMITTED)),))
                return self._find(base, task.id)

        return await self._run(claim)

    async def fail_orphan(self, task: TaskRecord, change: TaskChange, at: float) -> bool:
        """End an orphan with this change. False: another process was first."""
        values = (task.owner, task.state.value)
        write = partial(self._write, condition="owner = ? AND state = ?", values=values)
        return await self._run(write, task.id, change, at) is not None

    async def sweep(self, at: float) -> None:
        """Delete expired tasks, a few at a time, and owners without tasks."""

        def delete(base: sqlite3.Connection) -> None:
            with self._begin(base):
                _delete_expired(base, at)
                base.execute(
                    "DELETE FROM task_owners WHERE seen < ? AND id NOT IN (SELECT owner FROM tasks)",
                    (at - KEPT_SECONDS,),
                )

        await self._run(delete)

    async def has_foreign_changes(self) -> bool:
        """Report whether another process, or the store of keys, has written since the last call."""

        def compare(_: sqlite3.Connection) -> bool:
            before, self._data_version = self._data_version, self._get_data_version()
            return before != self._data_version

        return await self._run(compare)

    def close(self) -> None:
        """Close the file and end the threads."""
        self._closed.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._heart.join()
        with self._lock:
            self._base.close()

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._closed.is_set():
            raise make_task_error("unavailable", "the endpoint was closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, work, args)

    def _call(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        with self._connection() as base:
            return work(base, *args)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                yield self._base
        except sqlite3.Error as error:
            message = f"tasks cannot be stored now ({type(error).__name__})"
            raise make_task_error("unavailable", message, retryable=True) from error

    def _find(self, base: sqlite3.Connection, task: str) -> TaskRecord | None:
        row = base.execute(f"{_SELECT} WHERE id = ?", (task,)).fetchone()
        return None if row is None else _make_record(row)

    def _write(
        self,
        base: sqlite3.Connection,
        task: str,
        change: TaskChange,
        at: float,
        *,
        condition: str,
        values: tuple[str, ...],
    ) -> TaskRecord | None:
        ends = change.state is not None and change.state in FINAL_STATES
        columns: dict[str, Any] = {
            "state": None if change.state is None else change.state.value,
            "progress": None if change.progress is None else _ENCODE.encode(change.progress),
            "inputs": None if change.inputs is None else _ENCODE.encode(change.inputs),
            "checkpoint": change.checkpoint,
            "error": change.error,
            "answer": change.answer,
            "ended": at if ends else None,
        }
        given = {name: column for name, column in columns.items() if column is not None}
        terms = [f"{name} = ?" for name in given]
        if ends or change.clear_input:
            terms.append("input = NULL")
            terms += [] if "inputs" in given else ["inputs = NULL"]
        replaced = ""
        if change.checkpoint is not None:
            terms.append("runs = 1")
            replaced = " - coalesce(length(checkpoint), 0)"
        terms += ["version = version + 1", "updated = ?", f"size = size + ?{replaced}"]
        octets = sum(len(column) for column in (change.checkpoint, change.answer, change.error) if column)
        text = (
            f"UPDATE tasks SET {', '.join(terms)} WHERE id = ? AND {condition}"  # noqa: S608 - constants
            " AND ended IS NULL"
        )
        with self._begin(base):
            found = self._find(base, task)
            done = base.execute(text, (*given.values(), at, octets, task, *values))
            if found is None or done.rowcount != 1:
                return None
            _append_events(base, task, found.seq, change.events)
            return self._find(base, task)

    def _has_surely_ended(self, silent: float) -> bool:
        """Report whether an owner without its lock, `silent` for these seconds, has ended.

        The lock of a file ends only with its process.
        """
        return True

    def _begin(self, base: sqlite3.Connection) -> AbstractContextManager[object]:
        """The transaction of one write."""
        return write_transaction(base)

    def _get_data_version(self) -> int:
        version: int = self._base.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _beat(self, at: float) -> None:
        with self._connection() as base, self._begin(base):
            self._write_beat(at, base)

    def _write_beat(self, at: float, base: sqlite3.Connection) -> None:
        base.execute(
            "INSERT INTO task_owners VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen",
            (self.owner, at),
        )

    def _keep_beating(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with suppress(AIIPError):  # the next one may succeed
                self._beat(self._clock())


def _make_record(row: tuple[Any, ...]) -> TaskRecord:
    names = TaskRecord.__slots__
    fields = dict(zip(names, row, strict=True))
    progress, inputs, error = fields["progress"], fields["inputs"], fields["error"]
    return TaskRecord(
        **fields
        | {
            "state": TaskState(fields["state"]),
            "canceling": bool(fields["canceling"]),
            "resumable": bool(fields["resumable"]),
            "progress": None if progress is None else msgspec.json.decode(progress, type=TaskProgress),
            "inputs": None if inputs is None else msgspec.json.decode(inputs),
            "error": None if error is None else msgspec.json.decode(error),
        }
    )
