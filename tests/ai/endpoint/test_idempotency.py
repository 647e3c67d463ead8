"""Idempotency keys: what was begun under one is begun once, whoever asks again, whatever ends meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import PATIENCE, BlockingStore, Line, key_scope, key_store
from onym.ai.endpoint import Answer, Call, Caller, Endpoint, Limits, StreamEvent
from onym.ai.endpoint.idempotency import RETENTION_SECONDS, SQLiteIdempotencyStore, StoreClaim
from onym.errors import AIIPError, ConfigError
from onym.net.messages import Headers, SSEDecoder

Serving = Callable[..., Any]
KEY = ("Idempotency-Key", '"8e03978e-40d5"')
SCOPE = key_scope("k")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingStore]:
    found = BlockingStore(tmp_path / "k.sqlite", most=3)
    yield found
    found.close()


def refused(work: Callable[[], object]) -> AIIPError:
    with pytest.raises(AIIPError) as caught:
        work()
    return caught.value


class Counter:
    """Resources that count what they do; `go` lets the slow one end."""

    def __init__(self) -> None:
        self.ran = 0
        self.began, self.go = threading.Event(), threading.Event()

    def fill(self, app: Endpoint) -> None:
        @app.resource("/pay", effects="write")
        def pay(amount: int) -> int:
            self.ran += 1
            return self.ran

        @app.resource("/slow", effects="write")
        def slow() -> int:
            self.ran += 1
            self.began.set()
            self.go.wait(PATIENCE)
            return self.ran

        @app.resource("/fails", effects="write")
        def fails() -> int:
            self.ran += 1
            raise RuntimeError("half done")

        @app.resource("/stream", effects="write")
        async def stream(breaks: bool = False) -> AsyncIterator[StreamEvent]:
            self.ran += 1
            yield StreamEvent(data="a", id="first", event="part")
            if breaks:
                raise RuntimeError("half done")
            yield StreamEvent(data="b")


def test_a_write_needs_a_key(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        heard = line.ask("POST", "/pay?amount=1")
        assert (heard.status, heard.json()["code"]) == (400, "idempotency-required")
        assert heard.receipt
        assert line.ask("GET", "/pay").json()["idempotency"] is True
    assert counter.ran == 0


def test_the_same_request_is_answered_again_with_a_new_receipt(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        one = line.ask("POST", "/pay?amount=1", b"", KEY, ("AIIP-Nonce", "A" * 22))
        two = line.ask("POST", "/pay?amount=1", b"", KEY, ("AIIP-Nonce", "B" * 22))
        assert (one.body, two.body) == (b"1", b"1")
        assert (one.get("idempotency-replayed"), two.get("idempotency-replayed")) == (None, "?1")
        assert one.receipt != two.receipt
        other = line.ask("POST", "/pay?amount=1", b"", ("Idempotency-Key", '"another"'))
        assert other.body == b"2"
    assert counter.ran == 2


@pytest.mark.parametrize("target", ["/pay?amount=2", "/pay"])
def test_another_request_under_the_key_is_refused(serving: Serving, target: str) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        line.ask("POST", "/pay?amount=1", b"", KEY)
        body = b"" if "?" in target else b'{"amount":1}'
        heard = line.ask("POST", target, body, KEY, ("Content-Type", "application/json"))
        assert (heard.status, heard.json()["code"]) == (422, "idempotency-mismatch")
    assert counter.ran == 1


def test_input_that_does_not_fit_leaves_the_key_free(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        assert line.ask("POST", "/pay?amount=x", b"", KEY).status == 422
        assert line.ask("POST", "/pay?amount=1", b"", KEY).body == b"1"


def test_keys_of_two_callers_are_two_keys(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        one = line.ask("POST", "/pay?amount=1", b"", KEY, ("Origin", "https://one.example"))
        two = line.ask("POST", "/pay?amount=1", b"", KEY, ("Origin", "https://two.example"))
        assert (one.body, two.body) == (b"1", b"2")


def test_while_it_runs_a_second_request_waits_elsewhere(serving: Serving, ca: trustme.CA) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line), Line(line.authority, ca) as other, ThreadPoolExecutor(1) as pool:
        first = pool.submit(line.ask, "POST", "/slow", b"", KEY)
        assert counter.began.wait(PATIENCE)
        second = other.ask("POST", "/slow", b"", KEY)
        counter.go.set()
        assert first.result(PATIENCE).body == b"1"
        third = other.ask("POST", "/slow", b"", KEY)
    assert (second.status, second.json()["code"]) == (409, "idempotency-in-progress")
    assert (second.get("retry-after"), second.json()["retryable"]) == ("1", True)
    assert (third.body, third.get("idempotency-replayed")) == (b"1", "?1")


def test_doubles_at_the_same_moment_run_once(serving: Serving, ca: trustme.CA) -> None:
    counter = Counter()
    counter.go.set()
    with serving(counter.fill) as (_, line):
        barrier = threading.Barrier(8)

        def ask(_: int) -> int:
            with Line(line.authority, ca) as own:
                barrier.wait(PATIENCE)
                return own.ask("POST", "/slow", b"", KEY).status

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(ask, range(8)))
    assert counter.ran == 1
    assert set(found) <= {200, 409}
    assert 200 in found


def test_what_failed_is_not_tried_again(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        one, two = (line.ask("POST", "/fails", b"", KEY) for _ in range(2))
        assert (one.status, two.status) == (500, 500)
        assert two.get("idempotency-replayed") == "?1"
    assert counter.ran == 1


def test_a_caller_that_goes_away_does_not_stop_what_was_begun(serving: Serving, ca: trustme.CA) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        with Line(line.authority, ca) as gone:
            gone.sock.sendall(gone.head("POST", f"/.well-known/aiip/v1/{line.authority}/slow", b"", KEY))
            assert counter.began.wait(PATIENCE)
        counter.go.set()
        while (heard := line.ask("POST", "/slow", b"", KEY)).status == 409:
            pass
        assert heard.body == b"1"
    assert counter.ran == 1


def test_a_stream_is_given_again_event_by_event(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        one, two = (line.ask("POST", "/stream", b"", KEY) for _ in range(2))
    assert counter.ran == 1
    assert two.get("idempotency-replayed") == "?1"
    first, second = SSEDecoder().feed(one.body), SSEDecoder().feed(two.body)
    assert first[:-1] == second[:-1] == [("part", "a", "first"), ("message", "b", "2")]
    assert first[-1].event == second[-1].event == "receipt"
    assert first[-1].data != second[-1].data


def test_a_stream_that_broke_is_not_begun_again(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill) as (_, line):
        line.ask("POST", "/stream?breaks=true", b"", KEY)
        heard = line.ask("POST", "/stream?breaks=true", b"", KEY)
    assert (heard.status, heard.json()["code"]) == (409, "idempotency-in-progress")
    assert heard.json()["retryable"] is False
    assert counter.ran == 1


def test_an_invocation_over_its_time_keeps_its_key(serving: Serving) -> None:
    counter = Counter()
    with serving(counter.fill, limits=Limits(seconds=0.05)) as (_, line):
        one, two = (line.ask("POST", "/slow", b"", KEY) for _ in range(2))
        counter.go.set()
        while (last := line.ask("POST", "/slow", b"", KEY)).status == 409:
            pass
    assert (one.status, two.status) == (504, 409)
    assert (last.body, last.get("idempotency-replayed")) == (b"1", "?1")
    assert counter.ran == 1


CHILD = """
import asyncio, sys, time
from ai_support import BlockingStore, key_scope
store = BlockingStore(sys.argv[1])
store.begin(key_scope("k"), "f", time.time())
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
def test_what_a_killed_process_had_begun_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "k.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        other = BlockingStore(file, most=9)
        running = refused(lambda: other.begin(SCOPE, "f", 1e9))
        assert running.retryable
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        for _ in range(2):
            interrupted = refused(lambda: other.begin(SCOPE, "f", 1e9))
            assert interrupted.code == "aiip.idempotency-in-progress"
            assert not interrupted.retryable
        # somebody else's request under the key is told as such all the same
        assert refused(lambda: other.begin(SCOPE, "g", 1e9)).code == "aiip.idempotency-mismatch"
        other.close()
    finally:
        child.kill()
        child.communicate()
    assert [each.name for each in tmp_path.glob("*.lock")] == []


def test_of_many_threads_with_stores_of_their_own_one_begins(tmp_path: Path) -> None:
    stores = [BlockingStore(tmp_path / "k.sqlite", most=9) for _ in range(6)]
    barrier, begun = threading.Barrier(len(stores)), []

    def begin(store: BlockingStore) -> None:
        barrier.wait(PATIENCE)
        try:
            store.begin(SCOPE, "f", 1e9)
        except AIIPError:
            return
        begun.append(store)

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(begin, stores))
    assert len(begun) == 1
    begun[0].complete(SCOPE, b"done")
    assert all(store.begin(SCOPE, "f", 1e9) == b"done" for store in stores)
    for store in stores:
        store.close()


def test_a_process_that_ended_in_good_order_leaves_no_lock(tmp_path: Path) -> None:
    first = BlockingStore(tmp_path / "k.sqlite", most=9)
    first.begin(SCOPE, "f", 1e9)
    first.close()
    second = BlockingStore(tmp_path / "k.sqlite", most=9)
    error = refused(lambda: second.begin(SCOPE, "f", 1e9))
    assert (error.code, error.retryable) == ("aiip.idempotency-in-progress", False)
    second.close()
    assert list(tmp_path.glob("*.lock")) == []
    assert (tmp_path / "k.sqlite").stat().st_mode & 0o077 == 0


def test_only_who_began_completes(tmp_path: Path, store: BlockingStore) -> None:
    other = BlockingStore(tmp_path / "k.sqlite", most=9)
    store.begin(SCOPE, "f", 1e9)
    other.complete(SCOPE, b"forged")
    other.interrupt(SCOPE)
    assert refused(lambda: other.begin(SCOPE, "f", 1e9)).retryable
    store.complete(SCOPE, b"true")
    store.complete(SCOPE, b"twice")
    assert other.begin(SCOPE, "f", 1e9) == b"true"
    other.close()


def test_keys_are_kept_for_a_day_and_forgotten_behind_it(store: BlockingStore) -> None:
    store.begin(SCOPE, "f", 1e9)
    store.complete(SCOPE, b"done")
    assert store.begin(SCOPE, "f", 1e9 + RETENTION_SECONDS - 1) == b"done"
    assert store.begin(SCOPE, "f", 1e9 + RETENTION_SECONDS + 601) is None


def test_more_keys_than_are_kept_for_one_caller_are_refused_and_none_is_given_up(
    store: BlockingStore,
) -> None:
    def begin(key: str, client: str = "c", at: float = 1e9) -> object:
        return store.begin(key_scope(key, client), "f", at)

    for key in "123":
        begin(key)
    assert refused(lambda: begin("4")).code == "aiip.too-many-requests"
    assert refused(lambda: begin("1")).code == "aiip.idempotency-in-progress"
    begin("1", client="d")
    begin("4", at=1e9 + RETENTION_SECONDS + 1)


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and long enough to be seen as none" * 20)
    for path in (tmp_path / "none" / "k.sqlite", tmp_path / "text"):
        with pytest.raises(ConfigError) as caught:
            BlockingStore(path, most=1)
        assert caught.value.code == "config.bad-store"


def test_a_store_that_fails_later_is_told_as_such(tmp_path: Path, store: BlockingStore) -> None:
    with closing(sqlite3.connect(tmp_path / "k.sqlite")) as base, base:
        base.execute("DROP TABLE keys")
    assert refused(lambda: store.begin(SCOPE, "f", 1e9)).code == "aiip.unavailable"


def test_an_interruption_that_could_not_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every other process would say that the request is still running."""
    monkeypatch.setattr("onym.ai.endpoint.idempotency._RETRY_SECONDS", 0.01)

    async def look() -> bool:
        store, other = (SQLiteIdempotencyStore(tmp_path / "k.sqlite", most=9) for _ in range(2))
        await store.begin(SCOPE, "f", 1e9)
        run, away = store._writer.run, [True]

        async def run_when_there(work: Any) -> Any:
            if away:
                away.pop()
                raise sqlite3.OperationalError("disk I/O error")
            return await run(work)

        monkeypatch.setattr(store._writer, "run", run_when_there)
        with pytest.raises(AIIPError):
            await store.interrupt(SCOPE)
        try:
            while True:
                with pytest.raises(AIIPError) as caught:
                    await other.begin(SCOPE, "f", 1e9)
                if not caught.value.retryable:
                    return caught.value.code == "aiip.idempotency-in-progress"
                await asyncio.sleep(0)
        finally:
            store.close()
            other.close()

    assert asyncio.run(look())


def test_owners_of_nothing_are_forgotten(tmp_path: Path, store: BlockingStore) -> None:
    BlockingStore(tmp_path / "k.sqlite", most=1).close()
    alive = BlockingStore(tmp_path / "k.sqlite", most=1)
    store.begin(SCOPE, "f", 1e9)
    with closing(sqlite3.connect(tmp_path / "k.sqlite")) as base, base:
        owners = {row[0] for row in base.execute("SELECT id FROM owners")}
    assert owners == {store.owner, alive.owner}
    alive.close()


def test_without_a_file_keys_are_in_memory() -> None:
    store = BlockingStore(None, most=1)
    assert store.begin(SCOPE, "f", 1e9) is None
    assert refused(lambda: store.begin(SCOPE, "f", 1e9)).retryable
    store.interrupt(SCOPE)
    assert not refused(lambda: store.begin(SCOPE, "f", 1e9)).retryable
    store.close()


def test_what_happened_is_told_even_where_it_cannot_be_kept(serving: Serving, tmp_path: Path) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/drop", effects="write")
        def drop() -> int:
            with closing(sqlite3.connect(tmp_path / "keys.sqlite")) as base, base:
                base.execute("DROP TABLE keys")
            return 1

    with serving(fill) as (_, line):
        assert line.ask("POST", "/drop", b"", KEY).body == b"1"
        assert line.ask("POST", "/drop", b"", KEY).status == 503


def test_a_handler_may_have_no_check_of_its_own(serving: Serving) -> None:
    class Handler:
        def describe(self) -> dict[str, Any]:
            return {"title": "own"}

        async def invoke(self, call: Call) -> Answer:
            assert call.caller == Caller(audience="anonymous")
            assert isinstance(call.headers, Headers)
            return Answer(body=b"1", headers=(("Retry-After", "5"),))

    with serving(lambda app: app.add("/own", Handler(), effects="write")) as (app, line):
        assert app.resources[0].title == "own"
        assert isinstance(app.handler(f"ai://{line.authority}/own"), Handler)
        assert app.handler("ai://other/own") is None
        line.ask("POST", "/own", b"", KEY)
        heard = line.ask("POST", "/own", b"", KEY)
    assert (heard.get("retry-after"), heard.get("idempotency-replayed")) == ("5", "?1")


def test_one_address_with_too_many_keys_locks_out_nobody_else(played: Any) -> None:
    counter = Counter()

    async def scenario(app: Endpoint, post: Any) -> None:
        counter.fill(app)
        answers = [await post("/pay", f"k{number}", address="2001:db8::1", amount=1) for number in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        told = answers[-1].json()
        assert (told["code"], told["retryable"]) == ("too-many-requests", False)
        assert RETENTION_SECONDS - 60 < int(answers[-1].get("retry-after") or 0) <= RETENTION_SECONDS + 1
        # another address of the /64 is the same caller, one of another network is not
        assert (await post("/pay", "k9", address="2001:db8::ffff:1", amount=1)).status == 429
        assert (await post("/pay", "k9", address="2001:db8:0:1::1", amount=1)).status == 200
        assert (await post("/pay", "k8", address="192.0.2.7", amount=1)).status == 200
        # and what the first one has done is told again
        again = await post("/pay", "k0", address="2001:db8::1", amount=1)
        assert (again.status, again.get("idempotency-replayed")) == (200, "?1")

    played(scenario, limits=Limits(keys=3))
    assert counter.ran == 5


def test_the_answer_of_an_anonymous_caller_is_not_given_to_another_address(played: Any) -> None:
    counter = Counter()

    async def scenario(app: Endpoint, post: Any) -> None:
        counter.fill(app)
        assert (await post("/pay", "known", amount=1)).body == b"1"
        other = await post("/pay", "known", address="192.0.2.2", amount=1)
        assert (other.status, other.json()["code"]) == (422, "idempotency-mismatch")
        assert other.json()["retryable"] is False
        assert (await post("/pay", "known", amount=1)).body == b"1"

    played(scenario)
    assert counter.ran == 1


def make_app(folder: Path, store: str, authority: str = "factory.test") -> Endpoint:
    return Endpoint(authority, keys=folder / "keys", store=folder / store)


OTHER = """
import sys
from pathlib import Path
from onym.ai.endpoint import Endpoint
app = Endpoint("factory.test", keys=Path(sys.argv[1]) / "keys", store=Path(sys.argv[1]) / sys.argv[2])
app.check()
print("serving", flush=True)
sys.stdin.read()
"""


def test_two_processes_of_one_authority_with_two_stores_are_refused(tmp_path: Path) -> None:
    key_store(tmp_path)
    command = [sys.executable, "-c", OTHER, str(tmp_path), "one.sqlite"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "serving\n"
        second = make_app(tmp_path, "two.sqlite")
        with pytest.raises(ConfigError) as caught:
            second.check()
        assert caught.value.code == "config.other-store"
        assert caught.value.hint
        # the same store, and another authority with the same keys, are not in the way
        for app in (make_app(tmp_path, "one.sqlite"), make_app(tmp_path, "two.sqlite", "other.test")):
            app.check()
            app.close()
        child.kill()
        child.wait(PATIENCE)
        # the note of a process that is gone binds nobody
        second.check()
        with pytest.raises(ConfigError):
            make_app(tmp_path, "one.sqlite").check()
        second.close()
    finally:
        child.kill()
        child.communicate()


def test_many_that_start_at_once_with_one_store_all_serve(tmp_path: Path) -> None:
    key_store(tmp_path)
    old = make_app(tmp_path, "old.sqlite")
    old.check()
    old.close()
    apps = [make_app(tmp_path, "new.sqlite") for _ in range(8)]
    barrier = threading.Barrier(len(apps))

    def check(app: Endpoint) -> None:
        barrier.wait(PATIENCE)
        app.check()

    with ThreadPoolExecutor(len(apps)) as pool:
        list(pool.map(check, apps))
    for app in apps:
        app.close()


def test_a_folder_of_keys_that_cannot_take_a_note_is_used_all_the_same(tmp_path: Path) -> None:
    key_store(tmp_path)
    for authority in ("one.test", "two.test"):
        claim = StoreClaim(tmp_path / "keys", authority, "a")
        claim.close()
        claim.close()
    notes = sorted((tmp_path / "keys").glob("store-*.lock"))
    assert len(notes) == 2
    notes[0].write_bytes(b"this is not a database, and long enough to be seen as none" * 20)
    notes[1].unlink()
    notes[1].mkdir()
    for authority in ("one.test", "two.test"):
        StoreClaim(tmp_path / "keys", authority, "b").close()


def test_a_store_of_the_author_is_used_and_left_open(played: Any, tmp_path: Path) -> None:
    counter = Counter()
    store = SQLiteIdempotencyStore(tmp_path / "own.sqlite", most=9)

    async def scenario(app: Endpoint, post: Any) -> None:
        counter.fill(app)
        assert (await post("/pay", "a", amount=1)).body == b"1"
        await app.aclose()
        assert not store.closed
        assert (await post("/pay", "a", amount=1)).body == b"1"

    played(scenario, store=store)
    store.close()
    assert counter.ran == 1
