"""Idempotency keys and tasks in PostgreSQL: several machines run a request once, whatever happens to one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ai_support import PATIENCE, key_store
from onym.ai.endpoint import Endpoint, Limits, Task, task_store
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, RETENTION_SECONDS, KeyScope
from onym.ai.endpoint.postgres import PostgresIdempotencyStore
from onym.ai.endpoint.task_store import NewTask
from onym.errors import AIIPError, ConfigError, UsageError
from onym.store.postgres import hash_lock
from onym.uri.secret import Secret
from postgres_support import Postgres, postgres_server
from support import free_port

from .conftest import NAME, _posts

NOW = 1_800_000_000.0
DAY = RETENTION_SECONDS


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield name


@pytest.fixture
def url(server: Postgres, database: str) -> Secret:
    return Secret(server.url(database, tcp=True))


class Store:
    """A store of one machine, for tests that wait for each call."""

    def __init__(self, url: Secret, **limits: Any) -> None:
        self.store = PostgresIdempotencyStore(url, **{"most": 9, **limits})
        self.owner = self.store.owner

    def begin(self, one: KeyScope, fingerprint: str = "f", now: float = NOW, **given: Any) -> bytes | None:
        return asyncio.run(self.store.begin(one, fingerprint, now, **given))

    def complete(self, one: KeyScope, answer: bytes) -> None:
        asyncio.run(self.store.complete(one, answer))

    def interrupt(self, one: KeyScope) -> None:
        asyncio.run(self.store.interrupt(one))

    def refuse(self, one: KeyScope, fingerprint: str = "f", now: float = NOW, **given: Any) -> AIIPError:
        with pytest.raises(AIIPError) as caught:
            self.begin(one, fingerprint, now, **given)
        return caught.value


@pytest.fixture
def open_store(url: Secret) -> Iterator[Callable[..., Store]]:
    opened: list[Store] = []

    def open_it(**limits: int) -> Store:
        opened.append(Store(url, **limits))
        return opened[-1]

    yield open_it
    for store in opened:
        store.store.close()


def key(name: object, client: str = "client shop", address: str = "192.0.2.1") -> KeyScope:
    holder = f"address {address}" if client.startswith(ANONYMOUS_PREFIX) else client
    return KeyScope(client=client, principal="ann", target="ai://a.example/x", key=str(name), holder=holder)


def count(server: Postgres, database: str) -> dict[str, tuple[int, int]]:
    """The number of keys and bytes that are counted, by holder; it must be what is kept."""
    counted = {
        holder: (keys, size)
        for holder, keys, size in server.execute("SELECT * FROM onym_endpoint.quota", database)
    }
    real: dict[str, tuple[int, int]] = {"": (0, 0), "anonymous": (0, 0)}
    for holder, size in server.execute(
        "SELECT holder, coalesce(length(answer), 0) FROM onym_endpoint.keys", database
    ):
        for group in {holder, ""} | ({"anonymous"} if holder.startswith("address ") else set()):
            keys, total = real.get(group, (0, 0))
            real[group] = keys + 1, total + size
    assert counted == real
    return {holder: found for holder, found in counted.items() if found != (0, 0)}


def end_session(server: Postgres, owner: str) -> None:
    """End the session that has the lock of an owner, as a broken network does."""
    server.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory' "
        f"AND (classid::bigint << 32 | objid::bigint) = {hash_lock(owner)}"
    )


def test_a_request_begins_once_in_the_fleet(open_store: Callable[..., Store]) -> None:
    first, second = open_store(), open_store()
    assert first.store.identity == second.store.identity
    assert first.begin(key(1)) is None
    for store in (first, second):
        running = store.refuse(key(1))
        assert (running.code, running.retryable) == ("aiip.idempotency-in-progress", True)
        assert store.refuse(key(1), "other").code == "aiip.idempotency-mismatch"
    first.complete(key(1), b"\x00answer")
    assert first.begin(key(1)) == second.begin(key(1)) == b"\x00answer"
    assert second.begin(key(1, "client other")) is None
    second.interrupt(key(1, "client other"))
    for store in (first, second):
        lost = store.refuse(key(1, "client other"))
        assert (lost.code, lost.retryable) == ("aiip.idempotency-in-progress", False)


def test_of_many_machines_one_begins(open_store: Callable[..., Store]) -> None:
    """Attack 76: one key, and one approval under many keys, on four machines at once."""
    stores = [open_store(most=1000) for _ in range(4)]

    def begin(number: int) -> str:
        try:
            stores[number % 4].begin(key(number // 8), spend=f"txn-{number // 16}")
        except AIIPError as error:
            return error.code
        return "begun"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(begin, range(160)))
    assert found.count("begun") == 10
    assert found.count("aiip.approval-mismatch") + found.count("aiip.idempotency-in-progress") == 150


def test_quotas_are_those_of_the_file(
    open_store: Callable[..., Store], server: Postgres, database: str
) -> None:
    store = open_store(most=3, size=100, total=250)
    store.begin(key(1))
    store.complete(key(1), b"x" * 99)
    store.begin(key(2))
    store.complete(key(2), b"x" * 50)
    assert store.refuse(key(3)).code == "aiip.too-many-requests"
    for number in range(2):
        store.begin(key(number, ANONYMOUS_PREFIX + f"https://{number}.example"))
        store.complete(key(number, ANONYMOUS_PREFIX + f"https://{number}.example"), b"x" * 40)
    assert count(server, database) == {
        "client shop": (2, 149),
        "address 192.0.2.1": (2, 80),
        "anonymous": (2, 80),
        "": (4, 229),
    }
    store.begin(key(3, "client other"))
    store.complete(key(3, "client other"), b"x" * 50)
    assert store.refuse(key(1, "client new")).code == "aiip.unavailable"
    late = store.refuse(key(4), now=NOW + DAY - 1)
    assert late.retry_after == 2
    store.begin(key(5, "client fresh"), now=NOW + DAY + 601)
    store.begin(key(6, "client fresh"), now=NOW + 2 * DAY + 1300)
    assert count(server, database) == {"client fresh": (1, 0), "": (2, 0)}


def test_an_approval_is_spent_with_the_key_or_not_at_all(
    open_store: Callable[..., Store], server: Postgres, database: str
) -> None:
    store = open_store()
    assert store.begin(key(1), spend="txn-1") is None
    error = store.refuse(key(2), spend="txn-1")
    assert (error.code, error.retryable) == ("aiip.approval-mismatch", False)
    assert count(server, database)[""] == (1, 0)
    store.complete(key(1), b"paid")
    assert store.begin(key(1), spend="txn-1") == b"paid"


@pytest.mark.parametrize("text", ["ann\0", "ann\ud800", "Änn"])
def test_any_name_of_a_caller_has_keys(open_store: Callable[..., Store], text: str) -> None:
    store = open_store()
    one = KeyScope(client=text, principal=text, target="ai://a.example/x", key="1", holder=text)
    assert store.begin(one) is None
    assert store.begin(key(1, "client other")) is None
    store.complete(one, b"42")
    assert store.begin(one) == b"42"


def test_a_broken_connection_does_not_lose_a_running_call(
    open_store: Callable[..., Store], server: Postgres
) -> None:
    first, second = open_store(), open_store()
    first.begin(key(1))
    end_session(server, first.owner)
    assert first.refuse(key(2)).code == "aiip.unavailable"
    assert first.begin(key(3)) is None  # a new connection with the same owner
    assert second.refuse(key(1)).retryable
    first.complete(key(1), b"done")
    assert second.begin(key(1)) == b"done"


def test_who_was_taken_for_dead_changes_nothing(open_store: Callable[..., Store], server: Postgres) -> None:
    """Attack 95: a machine that comes back finds its calls interrupted, and says so like all others."""
    first, second = open_store(), open_store()
    first.begin(key(1))
    end_session(server, first.owner)
    assert not second.refuse(key(1)).retryable
    with pytest.raises(AIIPError):
        first.complete(key(1), b"late")
    first.complete(key(1), b"late")
    for store in (first, second):
        assert not store.refuse(key(1)).retryable


def test_a_store_that_is_away_is_unavailable_before_the_effect(
    open_store: Callable[..., Store], server: Postgres, database: str
) -> None:
    """The failure matrix: PostgreSQL gone is 503 before effects, and a new attempt once it is back."""
    store = open_store()
    server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
    end_session(server, store.owner)
    for _ in range(3):
        error = store.refuse(key(1))
        assert (error.code, error.retryable) == ("aiip.unavailable", True)
    with pytest.raises(AIIPError):
        store.complete(key(1), b"")
    server.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')

    async def begin() -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    assert await store.store.begin(key(1), "f", NOW) is None
                except AIIPError:
                    await asyncio.sleep(0.05)
                else:
                    return

    asyncio.run(begin())


CHILD = """
import asyncio, sys
from onym.ai.endpoint.idempotency import KeyScope
from onym.ai.endpoint.postgres import PostgresIdempotencyStore
store = PostgresIdempotencyStore(sys.stdin.readline().strip(), most=9)
shop = "client shop"
scope = KeyScope(client=shop, principal="ann", target="ai://a.example/x", key="1", holder=shop)
asyncio.run(store.begin(scope, "f", 1_800_000_000.0))
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
def test_what_a_killed_machine_had_begun_is_interrupted(
    open_store: Callable[..., Store], url: Secret
) -> None:
    """The failure matrix: a machine killed in a keyed call is 409 interrupted on the others."""
    other = open_store()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(url.reveal() + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "begun\n"
        assert other.refuse(key(1)).retryable
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        while (found := other.refuse(key(1))).retryable:  # the server is about to notice it
            pass
        assert found.code == "aiip.idempotency-in-progress"
        assert other.refuse(key(1), "other").code == "aiip.idempotency-mismatch"
    finally:
        child.kill()
        child.communicate()


def play(
    url: Secret, tmp_path: Path, work: Callable[..., Awaitable[None]], fill: Callable[..., None]
) -> None:
    """Runs a scenario with two endpoints of one authority that share the database."""

    async def main() -> None:
        keys = key_store(tmp_path)
        limits = Limits(keys=10_000)
        apps = [Endpoint(NAME, keys=keys, store=url, policy=POLICY, limits=limits) for _ in range(2)]
        for app in apps:
            fill(app)
            app.check()
        try:
            async with asyncio.timeout(PATIENCE):
                await work(apps, [_posts(app) for app in apps])
        finally:
            for app in apps:
                await app.aclose()

    asyncio.run(main())


POLICY = "permit(principal, action, resource);"


def test_two_endpoints_run_one_key_once(url: Secret, tmp_path: Path) -> None:
    ran: list[int] = []

    def fill(app: Endpoint) -> None:
        @app.resource("/pay", effects="financial")
        async def pay(amount: int) -> int:
            ran.append(amount)
            await asyncio.sleep(0.01)
            return amount

    async def work(apps: list[Endpoint], posts: list[Any]) -> None:
        calls = [posts[number % 2]("/pay", f"k{number % 10}", amount=number % 10) for number in range(60)]
        heard = await asyncio.gather(*calls)
        assert sorted(ran) == list(range(10))
        assert {one.status for one in heard} <= {200, 409}
        again = [
            await posts[number % 2]("/pay", f"k{number % 10}", amount=number % 10) for number in range(20)
        ]
        assert [one.json() for one in again] == [number % 10 for number in range(20)]
        assert sorted(ran) == list(range(10))
        assert (await posts[1]("/pay", "k1", amount=7)).status == 422

    play(url, tmp_path, work, fill)


class Clock:
    """The time of a machine, which a test sets ahead or back."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.mark.parametrize("ahead", [61.0, DAY, -DAY])
def test_a_machine_with_another_time_does_not_start(url: Secret, tmp_path: Path, ahead: float) -> None:
    """The failure matrix: clocks that are five seconds apart are not ready."""
    keys = key_store(tmp_path, at=time.time() - 2 * DAY)
    app = Endpoint(NAME, keys=keys, store=url, clock=Clock(ahead))
    with pytest.raises(ConfigError) as caught:
        app.check()
    assert caught.value.code == "config.bad-store"


@pytest.mark.parametrize("ahead", [61.0, 2 * DAY, -DAY])
def test_a_machine_whose_time_changes_begins_nothing_and_deletes_nothing(
    open_store: Callable[..., Store], server: Postgres, database: str, ahead: float
) -> None:
    clock = Clock()
    right, wrong = open_store(), open_store(clock=clock)
    tasks = wrong.store.open_tasks(clock)
    task = NewTask(id="t", caller="c", call=b"", marker=b"m", limits=Limits())
    right.begin(key(1), now=clock(), task=task)
    wrong.begin(key(2), now=clock())
    clock.ahead = ahead
    error = wrong.refuse(key(3), now=clock())
    assert (error.code, error.retryable) == ("aiip.unavailable", True)
    wrong.store._sweep(clock())
    for call in (tasks.list_orphans, tasks.sweep):
        with pytest.raises(AIIPError) as caught:
            asyncio.run(call(clock()))
        assert caught.value.code == "aiip.unavailable"
    wrong.complete(key(2), b"done")  # what has begun still ends
    assert right.begin(key(2), now=time.time()) == b"done"
    assert count(server, database)[""] == (2, 5)
    clock.ahead = 0.0
    assert wrong.begin(key(3), now=clock()) is None
    tasks.close()


def test_a_change_is_seen_also_if_the_look_runs_again(open_store: Callable[..., Store]) -> None:
    """A transaction that fails beside the look makes it run a second time."""
    store = open_store().store
    tasks = store.open_tasks(time.time)
    gate = threading.Event()

    async def work() -> None:
        assert await tasks.has_foreign_changes()  # the first look
        assert not await tasks.has_foreign_changes()
        await store.transact(lambda base: base.execute("SELECT nextval('task_changes')").rowcount)
        calls = [
            asyncio.ensure_future(store.transact(lambda _: gate.wait(PATIENCE))),
            asyncio.ensure_future(tasks.has_foreign_changes()),
            asyncio.ensure_future(store.transact(lambda _: 1 // 0)),
        ]
        await asyncio.sleep(0)  # they wait for the writer now
        gate.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert found[1] is True
        assert isinstance(found[2], ZeroDivisionError)

    try:
        asyncio.run(work())
    finally:
        gate.set()
        tasks.close()


def test_an_owner_that_may_have_lost_only_its_session_has_not_certainly_ended(
    open_store: Callable[..., Store], server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "BEAT_SECONDS", 3600.0)  # no sign of life in the time of this test
    first, second = open_store(), open_store()
    one, other = (store.store.open_tasks(time.time) for store in (first, second))
    task = NewTask(id="t", caller="c", call=b"", marker=b"m", limits=Limits())
    first.begin(key(1), now=time.time(), task=task)

    def look(at: float = 0.0) -> list[str]:
        return [orphan.owner for orphan in asyncio.run(other.list_orphans(time.time() + at))]

    try:
        assert look() == []
        end_session(server, first.owner)
        assert look() == ["lost"]
        # the database may have been away for a day, so that nobody could give a sign of life
        assert look(DAY) == ["lost"]
        with pytest.raises(AIIPError):
            asyncio.run(one.find("t"))
        asyncio.run(one.find("t"))  # a new session with the same owner
        assert look() == []
        end_session(server, first.owner)
        monkeypatch.setattr(task_store, "BEAT_SECONDS", 0.0)
        assert look() == ["ended"]
    finally:
        one.close(), other.close()


def test_a_running_task_whose_owner_lost_its_session_is_not_continued_beside_it(
    url: Secret, server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of PostgreSQL all sessions are new, and the functions go on."""
    monkeypatch.setattr(task_store, "BEAT_SECONDS", 3600.0)
    ran: list[Any] = []
    go, began = asyncio.Event(), asyncio.Event()

    def fill(app: Endpoint) -> None:
        @app.resource("/copy", effects="write", task=True)
        async def copy(task: Task) -> int:
            ran.append(task.restored)
            await task.checkpoint(1)
            began.set()
            await go.wait()
            return 2

        @app.resource("/plain", effects="write", task=True)
        async def plain() -> int:
            await go.wait()
            return 3

    async def work(apps: list[Endpoint], posts: list[Any]) -> None:
        tasks: Any = apps[1]._exchanges.tasks
        started = [await posts[0](path, path, ("prefer", "respond-async")) for path in ("/copy", "/plain")]
        await began.wait()
        own: Any = apps[0]._exchanges.store
        end_session(server, own.owner)
        await tasks.runner._search()
        assert ran == [None]
        go.set()
        for answer in started:
            while not (record := await tasks.runner.require(answer.json()["id"])).is_final:
                pass  # the other endpoint is about to write it
            assert record.state == "completed"
        assert ran == [None]

    play(url, tmp_path, work, fill)


def test_a_database_that_cannot_be_used_stops_the_start(
    server: Postgres, database: str, tmp_path: Path
) -> None:
    keys = key_store(tmp_path)
    for address in (
        Secret(f"postgresql://u:hunter2@127.0.0.1:{free_port()}/x"),
        Secret(server.url(database, tcp=True).replace(server.password, "hunter2")),
    ):
        app = Endpoint(NAME, keys=keys, store=address)
        with pytest.raises(ConfigError) as caught:
            app.check()
        assert caught.value.code == "config.bad-store"
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in repr(app.__dict__)
    with pytest.raises(UsageError):
        Endpoint(NAME, keys=keys, store=Secret("keys.sqlite"))
