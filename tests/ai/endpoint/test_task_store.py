"""The stores of long tasks, in SQLite and PostgreSQL: quotas by caller, sizes, and replaced owners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ai_support import key_scope
from onym.ai.endpoint import Limits
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, SQLiteIdempotencyStore
from onym.ai.endpoint.postgres import PostgresIdempotencyStore
from onym.ai.endpoint.task_store import KEPT_SECONDS, NewTask, TaskChange, TaskRecord
from onym.ai.records import TaskState
from onym.errors import AIIPError
from onym.uri.secret import Secret
from postgres_support import Postgres, postgres_server

WORKING = TaskChange(state=TaskState.WORKING)
FAILED = TaskChange(state=TaskState.FAILED, answer=b"answer")


class Machine:
    """The keys and the tasks of one process, for tests that wait for each call."""

    def __init__(self, place: Path | Secret) -> None:
        self.now = time.time()
        self.keys = (
            PostgresIdempotencyStore(place, most=1000)
            if isinstance(place, Secret)
            else SQLiteIdempotencyStore(place, most=1000)
        )
        self.tasks = self.keys.open_tasks(time.time)

    def close(self) -> None:
        self.tasks.close()
        self.keys.close()

    def begin(
        self,
        name: str,
        client: str = "client shop",
        address: str = "192.0.2.1",
        after: float = 0.0,
        **limits: Any,
    ) -> None:
        task = NewTask(id=name, caller="c", call=b"", marker=b"m", limits=Limits(**limits))
        scope = key_scope(name, client, address)
        assert asyncio.run(self.keys.begin(scope, "f", self.now + after, task=task)) is None

    def refuse(self, name: str, *given: Any, **limits: Any) -> AIIPError:
        with pytest.raises(AIIPError) as caught:
            self.begin(name, *given, **limits)
        return caught.value

    def find(self, name: str) -> TaskRecord:
        found = asyncio.run(self.tasks.find(name))
        assert found is not None
        return found

    def write(self, name: str, change: TaskChange) -> TaskRecord | None:
        return asyncio.run(self.tasks.write(name, change, self.now))


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def join(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Machine]]:
    """Opens the store for one more process."""
    with ExitStack() as stack:
        place: Path | Secret = tmp_path / "store.sqlite"
        if request.param == "postgresql":
            server: Postgres = request.getfixturevalue("postgres")
            place = Secret(server.url(stack.enter_context(server.database()), tcp=True))

        def open_machine() -> Machine:
            machine = Machine(place)
            stack.callback(machine.close)
            return machine

        yield open_machine


def test_a_caller_without_a_token_is_counted_by_its_address(join: Callable[[], Machine]) -> None:
    """Attack 97: neither another origin nor another address gives more than half of the tasks."""
    machine = join()
    for number in range(2):
        machine.begin(f"o{number}", f"{ANONYMOUS_PREFIX}https://{number}.example", tasks_running=2)
    error = machine.refuse("o2", f"{ANONYMOUS_PREFIX}https://2.example", tasks_running=2)
    assert (error.code, error.retryable) == ("aiip.too-many-requests", True)
    machine.begin("p", f"{ANONYMOUS_PREFIX}anonymous", "192.0.2.2", tasks_total=6)
    full = machine.refuse("q", f"{ANONYMOUS_PREFIX}anonymous", "192.0.2.3", tasks_total=6)
    assert full.code == "aiip.unavailable"
    for number in range(3):
        machine.begin(f"c{number}", tasks_total=6)
    assert machine.refuse("c3", "client other", tasks_total=6).code == "aiip.unavailable"


def test_a_replaced_checkpoint_does_not_count(join: Callable[[], Machine]) -> None:
    machine = join()
    machine.begin("t")
    begun = machine.find("t").size
    for octets in (1_000, 1_000, 3_000, 10):
        written = machine.write("t", TaskChange(checkpoint=b"x" * octets))
        assert written is not None
        assert written.size == begun + octets


def test_a_full_quota_says_when_there_will_be_room(join: Callable[[], Machine]) -> None:
    machine = join()
    machine.begin("t", tasks_kept=1)
    error = machine.refuse("u", tasks_kept=1)
    assert (error.code, error.retryable) == ("aiip.too-many-requests", False)
    assert error.retry_after == KEPT_SECONDS + 1  # at the earliest: nothing has ended
    assert machine.write("t", FAILED) is not None
    full = machine.refuse("u", "client other", after=10, tasks_total=1)
    assert (full.code, full.retryable) == ("aiip.unavailable", False)
    assert full.retry_after == pytest.approx(KEPT_SECONDS - 9, abs=1)
    for after, wait, retryable in ((10, KEPT_SECONDS - 10, False), (KEPT_SECONDS - 30, 30, True)):
        error = machine.refuse("u", after=after, tasks_kept=1)
        assert error.retry_after == pytest.approx(wait + 1, abs=1)
        assert error.retryable is retryable
    # there is room then, also if nothing has swept
    machine.begin("u", after=KEPT_SECONDS + 1, tasks_kept=1)


def test_an_orphan_that_has_gone_on_is_not_ended(join: Callable[[], Machine]) -> None:
    first, second = join(), join()
    first.begin("t")
    found = second.find("t")
    assert first.write("t", WORKING) is not None
    assert not asyncio.run(second.tasks.fail_orphan(found, FAILED, first.now))
    assert first.find("t").state is TaskState.WORKING
    assert asyncio.run(second.tasks.fail_orphan(second.find("t"), FAILED, first.now))
    assert first.find("t").state is TaskState.FAILED


def test_the_writes_of_an_owner_that_was_replaced_change_no_row(join: Callable[[], Machine]) -> None:
    """Attack 95: it was paused, or its machine was away, and goes on."""
    first, second = join(), join()
    first.begin("t")
    assert first.write("t", WORKING) is not None
    taken = asyncio.run(second.tasks.take_over(second.find("t"), first.now))
    assert taken is not None
    assert taken.owner == second.tasks.owner
    events = asyncio.run(second.tasks.list_events("t", 0, 100))
    late = TaskChange(state=TaskState.COMPLETED, answer=b"late", events=(("state", "{}"),))
    for change in (WORKING, TaskChange(checkpoint=b"1"), late):
        assert first.write("t", change) is None
    assert second.find("t") == taken
    assert asyncio.run(second.tasks.list_events("t", 0, 100)) == events
    assert asyncio.run(second.tasks.read_blob("t", "checkpoint")) is None
    # and of two that take it over, one is the first
    assert asyncio.run(first.tasks.take_over(taken, first.now)) is not None
    assert asyncio.run(second.tasks.take_over(taken, first.now)) is None
