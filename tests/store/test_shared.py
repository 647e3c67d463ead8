"""Shared stores: one contract, run against memory, SQLite, PostgreSQL and Valkey."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onym.errors import StoreError, UsageError
from onym.store import open_shared_store
from onym.store.shared import (
    DEFAULT_LIMITS,
    FOREVER,
    MAX_FOUND,
    MAX_KEY,
    PURGE,
    MemoryStore,
    SharedStore,
    SQLiteStore,
    StoreLimits,
    StoreThread,
    hash_part,
    make_key,
    mark_seen,
    require_same_time,
)
from onym.store.shared_servers import PostgresStore, ValkeyStore
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from postgres_support import Postgres, postgres_server
from support import free_port
from valkey_support import ValkeyServer, valkey_server

PATIENT = ValkeyOptions(timeout=60.0)
#: in the future, because Valkey's own clock decides when it drops a value
NOW = 4_000_000_000.0
SOON = NOW + 60


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


Open = Callable[..., SharedStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


def make_valkey_url(server: ValkeyServer) -> Secret:
    return Secret(f"unix://:{server.password}@{server.socket}")


@pytest.fixture(params=["memory", "sqlite", "postgresql", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | Secret | None]:
    """The URL of an empty store; None is memory."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        with server.database() as name:
            yield Secret(server.url(name))
    elif request.param == "valkey":
        address = make_valkey_url(request.getfixturevalue("valkey"))
        with open_valkey(address, PATIENT) as client:
            client.flushall()
            yield address
    else:
        yield None if request.param == "memory" else tmp_path / "shared.sqlite"


@pytest.fixture
def open_store(url: Path | Secret | None, clock: Clock) -> Open:
    """Opens the same store each time; a store in memory is one object."""
    stores: list[SharedStore] = []

    def open_it(limits: StoreLimits = DEFAULT_LIMITS, clock: Callable[[], float] = clock) -> SharedStore:
        if url is None and stores:
            return stores[0]
        stores.append(open_shared_store(url, limits=limits, clock=clock, valkey=PATIENT))
        return stores[-1]

    return open_it


def run(open_store: Open, work: Callable[[SharedStore], Awaitable[None]], **options: StoreLimits) -> None:
    """Run a test with an open store, which is closed afterwards."""

    async def use() -> None:
        store = open_store(**options)
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(use())


def test_a_value_is_put_read_replaced_and_deleted(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        assert await store.get("session/a") is None
        assert await store.put_new("session/a", b"one", SOON)
        assert not await store.put_new("session/a", b"two", SOON)
        first = await store.get("session/a")
        assert first is not None
        assert (first.value, first.until) == (b"one", SOON)
        await store.put("session/a", b"\x00\xff", SOON + 1)
        second = await store.get("session/a")
        assert second is not None
        assert (second.value, second.until) == (b"\x00\xff", SOON + 1)
        assert second.version != first.version
        assert not await store.replace("session/a", b"late", SOON, version=first.version)
        assert await store.replace("session/a", b"", SOON, version=second.version)
        assert not await store.replace("session/b", b"new", SOON, version=second.version)
        found = await store.get("session/a")
        assert found is not None
        assert found.value == b""
        await store.delete("session/a")
        await store.delete("session/a")
        assert await store.get("session/a") is None

    run(open_store, work)


def test_a_version_never_comes_back(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        await store.put_new("session/a", b"one", SOON)
        first = await store.get("session/a")
        assert first is not None
        await store.delete("session/a")
        await store.put_new("session/a", b"one", SOON)
        assert not await store.replace("session/a", b"two", SOON, version=first.version)

    run(open_store, work)


def test_a_value_is_taken_once(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        await store.put("flow/a", b"one", SOON)
        taken = await asyncio.gather(*(store.take("flow/a") for _ in range(20)))
        assert sorted(value or b"" for value in taken) == [b""] * 19 + [b"one"]

    run(open_store, work)


def test_one_of_many_writers_wins(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        puts = await asyncio.gather(
            *(store.put_new("lock/a", str(number).encode(), SOON) for number in range(20))
        )
        assert puts.count(True) == 1
        found = await store.get("lock/a")
        assert found is not None
        assert found.value == str(puts.index(True)).encode()
        swaps = await asyncio.gather(
            *(store.replace("lock/a", b"new", SOON, version=found.version) for _ in range(20))
        )
        assert swaps.count(True) == 1

    run(open_store, work)


def test_what_has_expired_is_absent(open_store: Open, clock: Clock) -> None:
    async def work(store: SharedStore) -> None:
        for key in ("a/get", "a/take", "a/replace", "a/new", "a/put"):
            await store.put(key, b"old", SOON)
        await store.put("a/later", b"later", SOON + 1)
        stored = await store.get("a/replace")
        assert stored is not None
        clock.now = SOON
        assert await store.get("a/get") is None
        assert await store.take("a/take") is None
        assert not await store.replace("a/replace", b"new", FOREVER, version=stored.version)
        assert [key for key, _ in await store.find("a/", limit=10)] == ["a/later"]
        assert await store.count("a/") == 1
        assert await store.put_new("a/new", b"new", FOREVER)
        await store.put("a/put", b"new", FOREVER)
        assert [value.value for _, value in await store.find("a/", limit=10)] == [b"later", b"new", b"new"]

    run(open_store, work)


def test_a_longer_life_replaces_a_shorter_one(open_store: Open, clock: Clock) -> None:
    async def work(store: SharedStore) -> None:
        for number in range(200):
            await store.put("a/b", b"short", SOON + number)
        await store.put("a/b", b"long", FOREVER)
        clock.now = SOON + 1000
        found = await store.get("a/b")
        assert found is not None
        assert found.value == b"long"

    run(open_store, work)


def test_keys_are_found_by_their_beginning_in_order(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        keys = ["person", "person/1", "person/1/session/b", "person/1/session/a", "person/10/session/c"]
        others = ["perso", "person0", "personal/1", "person/1/sessionx", "person/1/sessio", "q"]
        for key in keys + others:
            await store.put(key, key.encode(), SOON)

        async def find(prefix: str, limit: int = 100, after: str | None = None) -> list[str]:
            found = await store.find(prefix, limit=limit, after=after)
            assert all(value.value == key.encode() for key, value in found)
            return [key for key, _ in found]

        assert await find("person/1/session/") == ["person/1/session/a", "person/1/session/b"]
        assert await find("person/1/session/", 1) == ["person/1/session/a"]
        assert await find("person/1/session/", 1, "person/1/session/a") == ["person/1/session/b"]
        assert await find("person/1/session/", 1, "person/1/session/b") == []
        assert await find("") == sorted(keys + others)
        assert await find("person") == sorted(key for key in keys + others if key.startswith("person"))
        assert (
            await find("person/", 3) == sorted(key for key in keys + others if key.startswith("person/"))[:3]
        )
        assert await store.count("") == len(keys + others)
        assert await store.count("person/1/session/") == 2
        assert await store.count("nobody/") == 0
        await store.take("person/1/session/a")
        await store.delete("person/1/session/b")
        assert await find("person/1/session/") == []

    run(open_store, work)


def test_a_mark_is_new_once(open_store: Open, clock: Clock) -> None:
    async def work(store: SharedStore) -> None:
        assert await mark_seen(store, "proof", "id 1", SOON)
        assert not await mark_seen(store, "proof", "id 1", SOON)
        assert await mark_seen(store, "logout", "id 1", SOON)
        assert await mark_seen(store, "proof", "id\x00\ud800" + "x" * 1_000_000, SOON)
        marks = await asyncio.gather(*(mark_seen(store, "proof", "race", SOON) for _ in range(50)))
        assert marks.count(True) == 1
        assert await store.count("") == 0
        assert await store.find("", limit=10) == []
        clock.now = SOON
        assert await mark_seen(store, "proof", "id 1", SOON + 60)
        assert not await mark_seen(store, "proof", "id 1", SOON + 60)

    run(open_store, work)


def is_valkey(url: Path | Secret | None) -> bool:
    return isinstance(url, Secret) and url.reveal().startswith("unix:")


def test_no_mark_and_no_value_is_dropped_for_lack_of_room(
    open_store: Open, url: Path | Secret | None, clock: Clock
) -> None:
    """Attack 66: a store without room rejects new marks, and knows the old ones."""
    few = StoreLimits(entries=6, kind=4, marks=5)

    async def work(store: SharedStore) -> None:
        for number in range(5):
            assert await mark_seen(store, "proof", str(number), SOON)
        with pytest.raises(StoreError) as full:
            await mark_seen(store, "proof", "one more", SOON)
        assert full.value.code == "store.full"
        assert full.value.http_status == 503
        for number in range(5):
            assert not await mark_seen(store, "proof", str(number), SOON)
        clock.now = SOON + 60
        assert await mark_seen(store, "proof", "one more", SOON + 120)

    if not is_valkey(url):  # its limit of marks is maxmemory: see below
        run(open_store, work, limits=few)


def test_one_kind_of_values_leaves_room_for_the_others(open_store: Open, clock: Clock) -> None:
    few = StoreLimits(entries=6, kind=4, value=8)

    async def work(store: SharedStore) -> None:
        for number in range(4):
            await store.put(f"flow/{number}", b"a", SOON)
        for put in (store.put, store.put_new):
            with pytest.raises(StoreError) as full:
                await put("flow/new", b"a", SOON)
            assert full.value.code == "store.full"
        await store.put("flow/0", b"b", SOON)
        await store.put("session/0", b"a", SOON)
        await store.put("session/1", b"a", SOON)
        with pytest.raises(StoreError) as full:
            await store.put("session/2", b"a", SOON)
        assert full.value.code == "store.full"
        assert await store.count("") == 6
        with pytest.raises(StoreError) as large:
            await store.put("flow/0", b"123456789", SOON)
        assert large.value.code == "store.too-large"
        with pytest.raises(StoreError):
            await store.put_new("flow/0", b"123456789", SOON)
        found = await store.get("flow/0")
        assert found is not None
        with pytest.raises(StoreError):
            await store.replace("flow/0", b"123456789", SOON, version=found.version)
        await store.delete("flow/0")
        await store.put("flow/new", b"a", SOON)
        clock.now = SOON + 60
        await store.put("session/2", b"a", SOON + 120)
        assert await store.count("") == 1

    run(open_store, work, limits=few)


def test_what_has_expired_makes_room_in_any_number(open_store: Open, clock: Clock) -> None:
    most = 3 * PURGE + 1

    async def work(store: SharedStore) -> None:
        for number in range(most):
            await store.put(f"a/{number}", b"a", SOON)
            await store.mark(f"a/{number}", SOON)
        clock.now = SOON + 60
        for number in range(most):
            await store.put(f"b/{number}", b"a", SOON + 120)
            await store.mark(f"b/{number}", SOON + 120)
        assert await store.count("a/") == 0
        assert await store.count("b/") == most

    run(open_store, work, limits=StoreLimits(entries=most, kind=most, marks=most))


@pytest.mark.parametrize(
    "key", ["", "/", "a/", "/a", "a//b", "a b", "a\x7f", "ä", "a\n", "a\0", "x" * (MAX_KEY + 1)]
)
def test_a_key_is_printable_ascii(open_store: Open, key: str) -> None:
    async def work(store: SharedStore) -> None:
        for call in (
            store.put(key, b"", SOON),
            store.put_new(key, b"", SOON),
            store.replace(key, b"", SOON, version=1),
            store.get(key),
            store.take(key),
            store.delete(key),
            store.mark(key, SOON),
        ):
            with pytest.raises(UsageError) as caught:
                await call
            assert caught.value.code == "store.bad-key"
        if key not in ("", "a/"):  # the beginning of keys
            with pytest.raises(UsageError):
                await store.find(key, limit=1)
            with pytest.raises(UsageError):
                await store.find("a/", limit=1, after=key)
            with pytest.raises(UsageError):
                await store.count(key)

    run(open_store, work)


@pytest.mark.parametrize("limit", [0, -1, MAX_FOUND + 1])
def test_a_search_is_limited(open_store: Open, limit: int) -> None:
    async def work(store: SharedStore) -> None:
        with pytest.raises(UsageError) as caught:
            await store.find("a/", limit=limit)
        assert caught.value.code == "store.bad-limit"

    run(open_store, work)


def test_a_file_that_was_closed_is_told(tmp_path: Path) -> None:
    async def work() -> str:
        store = SQLiteStore(tmp_path / "shared.sqlite")
        await store.close()
        with pytest.raises(StoreError) as caught:
            await store.get("a/b")
        return caught.value.code

    assert asyncio.run(work()) == "store.closed"


def test_the_store_stays_after_it_was_closed(open_store: Open) -> None:
    async def put() -> tuple[str, bool]:
        store = open_store()
        await store.put("a/b", b"value", FOREVER)
        await store.mark("a/b", FOREVER)
        epoch = await store.epoch()
        is_memory = isinstance(store, MemoryStore)
        await store.close()
        return epoch, is_memory

    epoch, is_memory = asyncio.run(put())

    async def work(store: SharedStore) -> None:
        found = await store.get("a/b")
        new = await store.mark("a/b", FOREVER)
        assert (found is None, new, epoch == await store.epoch()) == (is_memory, is_memory, not is_memory)

    run(open_store, work)


def test_a_store_that_is_there_passes_its_check(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        assert len(await store.epoch()) >= 22
        assert await store.epoch() == await store.epoch()
        await store.check()

    run(lambda: open_store(clock=time.time), work)


def test_a_store_with_another_time_fails_its_check(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        with pytest.raises(StoreError) as caught:
            await store.check()
        assert caught.value.code == "store.clock"

    store = open_store()
    if isinstance(store, PostgresStore | ValkeyStore):
        run(lambda: store, work)


def test_keys_are_made_of_any_text() -> None:
    assert make_key("session", "abc") == "session/abc"
    odd = make_key("person", "a/b", "x" * 65, "", "ü", "~")
    assert odd.count("/") == 5
    assert odd == "/".join(["person", *(hash_part(part) for part in ("a/b", "x" * 65, "", "ü", "~"))])
    assert len({hash_part(text) for text in ("a", "b", "\ud800", "")}) == 4


def test_clocks_may_differ_by_five_seconds() -> None:
    require_same_time(5.0)
    require_same_time(-5.0)
    for difference in (5.1, -5.1, float("inf")):
        with pytest.raises(StoreError) as caught:
            require_same_time(difference)
        assert caught.value.code == "store.clock"


@pytest.mark.parametrize(
    "url", ["http://example.com", "mysql://root:hunter2@db/x", Secret("ftp://u:hunter2@x/")]
)
def test_another_url_is_rejected_and_not_shown(url: str | Secret) -> None:
    with pytest.raises(StoreError) as caught:
        open_shared_store(url)
    assert caught.value.code == "store.bad-url"
    assert "hunter2" not in str(caught.value)


def test_a_file_of_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE notes (text TEXT)")

    async def work(store: SharedStore) -> None:
        with pytest.raises(StoreError) as caught:
            await store.check()
        assert caught.value.code == "store.bad-file"

    run(lambda: SQLiteStore(path), work)


def test_a_file_that_cannot_be_opened_is_unreachable(tmp_path: Path) -> None:
    async def work(store: SharedStore) -> None:
        for call in (store.get("a/b"), store.mark("a/b", SOON), store.check(), store.epoch()):
            with pytest.raises(StoreError) as caught:
                await call
            assert caught.value.code == "store.unreachable"
            assert caught.value.http_status == 503

    run(lambda: SQLiteStore(tmp_path / "missing" / "shared.sqlite"), work)


def remove_files(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def test_a_new_file_in_place_of_the_old_one_is_another_epoch(tmp_path: Path) -> None:
    """What the file knew is gone, so proofs that were made before are stale."""
    path = tmp_path / "shared.sqlite"

    async def work(store: SharedStore) -> None:
        epoch = await store.epoch()
        assert await store.mark("a/b", FOREVER)
        remove_files(tmp_path)
        with pytest.raises(StoreError) as caught:
            await store.mark("a/b", FOREVER, epoch=epoch)
        with pytest.raises(StoreError):  # each time, also for another user of the store
            await store.mark("a/c", FOREVER, epoch=epoch)
        assert caught.value.code == "store.epoch"
        new = await store.epoch()
        assert new != epoch
        assert await store.mark("a/b", FOREVER, epoch=new)
        assert not await store.mark("a/b", FOREVER, epoch=new)

    run(lambda: SQLiteStore(path), work)


def _mark_many(url: str, start: threading.Event, results: multiprocessing.Queue[int]) -> None:
    async def work() -> int:
        store = open_shared_store(url)
        marks = [await store.mark(f"a/{number}", FOREVER) for number in range(200)]
        await store.close()
        return sum(marks)

    start.wait()
    results.put(asyncio.run(work()))


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    """Attack 65, in the store: of many uses in several processes one is the first."""
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[int] = context.Queue()
    start = context.Event()
    workers = [
        context.Process(target=_mark_many, args=(str(tmp_path / "shared.sqlite"), start, results))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    start.set()
    marked = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert sum(marked) == 200


def test_values_are_not_shown(open_store: Open) -> None:
    async def work(store: SharedStore) -> None:
        await store.put("a/b", b"hunter2", SOON)
        assert "hunter2" not in repr(await store.get("a/b"))

    run(open_store, work)


def test_callers_without_a_loop_use_a_thread(tmp_path: Path) -> None:
    with StoreThread() as thread:
        store = open_shared_store(tmp_path / "shared.sqlite")
        assert thread.run(store.put_new("a/b", b"value", FOREVER))
        assert thread.run(store.take("a/b")) == b"value"
        with pytest.raises(UsageError):
            thread.run(store.get(""))
        thread.run(store.close())


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """Closed stores leave no thread behind."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("onym-")]
    assert not left


def test_a_valkey_server_without_memory_drops_nothing(valkey: ValkeyServer) -> None:
    """Attack 66: new marks and values are rejected, and the old ones are known."""
    address = make_valkey_url(valkey)

    async def work(store: SharedStore) -> None:
        assert await mark_seen(store, "proof", "old", FOREVER)
        await store.put("a/b", b"old", FOREVER)
        admin.config_set("maxmemory", "1")
        for call in (mark_seen(store, "proof", "new", FOREVER), store.put("a/c", b"new", FOREVER)):
            with pytest.raises(StoreError) as caught:
                await call
            assert (caught.value.code, caught.value.http_status) == ("valkey.full", 503)
        found = await store.get("a/b")
        assert found is not None
        assert not await mark_seen(store, "proof", "old", FOREVER)
        admin.config_set("maxmemory", "0")
        assert not await mark_seen(store, "proof", "old", FOREVER)
        assert await mark_seen(store, "proof", "new", FOREVER)
        assert await store.count("a/") == 1

    with open_valkey(address, PATIENT) as admin:
        admin.flushall()
        try:
            run(lambda: open_shared_store(address, valkey=PATIENT), work)
        finally:
            admin.config_set("maxmemory", "0")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_valkey_server_that_drops_values_is_rejected(valkey: ValkeyServer, policy: str) -> None:
    address = make_valkey_url(valkey)

    async def work(store: SharedStore) -> None:
        for call in (store.get("a/b"), store.mark("a/b", FOREVER), store.check()):
            with pytest.raises(StoreError) as caught:
                await call
            assert caught.value.code == "store.eviction"

    with open_valkey(address, PATIENT) as admin:
        admin.config_set("maxmemory-policy", policy)
        try:
            run(lambda: open_shared_store(address, valkey=PATIENT), work)
        finally:
            admin.config_set("maxmemory-policy", "noeviction")


def test_an_emptied_valkey_server_is_another_epoch(valkey: ValkeyServer) -> None:
    """What the server knew is gone, so the first mark fails and proofs of before are stale."""
    address = make_valkey_url(valkey)

    async def work(store: SharedStore) -> None:
        epoch = await store.epoch()
        assert await store.mark("a/b", FOREVER)
        admin.flushall()
        with pytest.raises(StoreError) as caught:
            await store.mark("a/b", FOREVER, epoch=epoch)
        with pytest.raises(StoreError):  # each time, also for another user of the store
            await store.mark("a/c", FOREVER, epoch=epoch)
        assert caught.value.code == "store.epoch"
        new = await store.epoch()
        assert new != epoch
        assert await store.mark("a/b", FOREVER, epoch=new)
        assert not await store.mark("a/b", FOREVER, epoch=new)

    with open_valkey(address, PATIENT) as admin:
        admin.flushall()
        run(lambda: open_shared_store(address, valkey=PATIENT), work)


def test_a_database_that_lost_its_marks_is_another_epoch(postgres: Postgres) -> None:
    with postgres.database() as name:

        async def work(store: SharedStore) -> None:
            epoch = await store.epoch()
            assert await store.mark("a/b", FOREVER)
            for table in ("facts", "entries", "marks"):
                postgres.execute(f"DROP TABLE onym_shared_{table}", name)
            postgres.execute("DELETE FROM onym_formats", name)
            codes = []
            for _ in range(2):
                with pytest.raises(StoreError) as caught:
                    await store.mark("a/b", FOREVER, epoch=epoch)
                codes.append(caught.value.code)
            assert codes == ["store.missing-tables", "store.epoch"]
            new = await store.epoch()
            assert new != epoch
            assert await store.mark("a/b", FOREVER, epoch=new)
            assert not await store.mark("a/b", FOREVER, epoch=new)

        run(lambda: open_shared_store(postgres.url(name)), work)


def test_tables_of_a_later_version_are_left_alone(postgres: Postgres) -> None:
    async def work(store: SharedStore) -> None:
        with pytest.raises(StoreError) as caught:
            await store.get("a/b")
        assert caught.value.code == "store.newer"

    async def use(store: SharedStore) -> None:
        await store.check()

    with postgres.database() as name:
        run(lambda: open_shared_store(postgres.url(name)), use)
        postgres.execute("UPDATE onym_formats SET version = 2 WHERE name = 'shared'", name)
        run(lambda: open_shared_store(postgres.url(name)), work)


@pytest.mark.parametrize("scheme", ["valkey", "postgresql"])
def test_a_server_that_is_not_there_is_unreachable(scheme: str) -> None:
    address = Secret(f"{scheme}://user:hunter2@127.0.0.1:{free_port()}/0")

    async def work(store: SharedStore) -> None:
        for call in (
            store.get("a/b"),
            store.put("a/b", b"", SOON),
            store.mark("a/b", SOON),
            store.take("a/b"),
            store.find("a/", limit=1),
            store.count("a/"),
            store.epoch(),
            store.check(),
        ):
            with pytest.raises(StoreError) as caught:
                await call
            assert caught.value.code.endswith(".unreachable")
            assert caught.value.http_status == 503
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))

    run(lambda: open_shared_store(address), work)


def test_a_call_that_was_cancelled_does_not_mix_up_the_answers(url: Path | Secret | None) -> None:
    """A caller that goes away must not leave its answer to the next one: it may be another person's."""

    async def work(store: SharedStore) -> None:
        for number in range(50):
            await store.put(f"a/{number}", str(number).encode(), FOREVER)
        for round_ in range(20):
            calls = [asyncio.ensure_future(store.get(f"a/{number}")) for number in range(50)]
            for _ in range(round_ % 5):
                await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
            for number, value in enumerate(found):
                if not isinstance(value, BaseException):
                    assert value is not None
                    assert value.value == str(number).encode()
            for number in range(0, 50, 7):
                again = await store.get(f"a/{number}")
                assert again is not None
                assert again.value == str(number).encode()

    run(lambda: open_shared_store(url, valkey=PATIENT), work)


def test_many_calls_at_once_use_few_connections(valkey: ValkeyServer) -> None:
    """Attack 65: 10,000 uses of one proof at once have one winner, and the server is not flooded."""
    address = make_valkey_url(valkey)

    async def work(store: SharedStore) -> None:
        marks = await asyncio.gather(*(mark_seen(store, "proof", "race", FOREVER) for _ in range(10_000)))
        assert marks.count(True) == 1
        assert len(admin.client_list()) < 64

    with open_valkey(address, PATIENT) as admin:
        admin.flushall()
        run(lambda: open_shared_store(address, valkey=PATIENT), work)
