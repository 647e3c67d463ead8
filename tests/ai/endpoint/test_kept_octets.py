"""What is kept under idempotency keys has an end: for one caller, for all, and in the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ai_support import BlockingStore, key_scope
from onym.ai.endpoint.context import Limits
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, RETENTION_SECONDS, KeyScope
from onym.ai.endpoint.task_store import NewTask
from onym.errors import AIIPError

Serving = Callable[..., Any]
NOW = 1_800_000_000.0
DAY = RETENTION_SECONDS
MEGABYTE = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingStore]:
    found = BlockingStore(tmp_path / "k.sqlite", most=1000, size=100, total=250)
    yield found
    found.close()


def anonymous(key: object, address: str = "192.0.2.1", origin: str = "https://one.example") -> KeyScope:
    return key_scope(key, ANONYMOUS_PREFIX + origin, address)


def keep(store: BlockingStore, one: KeyScope, octets: int, at: float = NOW) -> None:
    store.begin(one, "f", at)
    store.complete(one, b"x" * octets)


def refused(store: BlockingStore, one: KeyScope, at: float = NOW, **given: Any) -> AIIPError:
    with pytest.raises(AIIPError) as caught:
        store.begin(one, "f", at, **given)
    return caught.value


def count(file: Path) -> dict[str, tuple[int, int]]:
    """The number of keys and octets that are counted, by holder; it must be what is kept."""
    with contextlib.closing(sqlite3.connect(file)) as base:
        counted = {
            holder: (keys, size)
            for holder, keys, size in base.execute("SELECT holder, keys, size FROM quota")
        }
        rows = base.execute("SELECT holder, coalesce(length(answer), 0) FROM keys").fetchall()
    real: dict[str, tuple[int, int]] = {"": (0, 0), "anonymous": (0, 0)}
    for holder, octets in rows:
        groups = {holder, ""} | ({"anonymous"} if holder.startswith("address ") else set())
        for group in groups:
            keys, size = real.get(group, (0, 0))
            real[group] = keys + 1, size + octets
    assert counted == real
    return {holder: found for holder, found in counted.items() if found != (0, 0)}


def test_a_caller_whose_answers_take_too_much_room_begins_nothing_new(
    store: BlockingStore, tmp_path: Path
) -> None:
    keep(store, key_scope(1), 99)
    keep(store, key_scope(2), 50)
    error = refused(store, key_scope(3))
    assert (error.code, error.target) == ("aiip.too-many-requests", "ai://a.example/x")
    # what was done is told again all the same
    assert store.begin(key_scope(1), "f", NOW) == b"x" * 99
    keep(store, key_scope(1, "client other"), 1)
    assert count(tmp_path / "k.sqlite") == {"client shop": (2, 149), "client other": (1, 1), "": (3, 150)}


def test_all_callers_together_have_an_end_too(store: BlockingStore) -> None:
    for number in range(3):
        keep(store, key_scope(1, f"client {number}"), 99)
    assert refused(store, key_scope(1, "client new")).code == "aiip.unavailable"
    assert store.begin(key_scope(1, "client 0"), "f", NOW) is not None


def test_those_who_show_no_token_have_an_allowance_for_each_address(store: BlockingStore) -> None:
    for number in range(2):
        keep(store, anonymous(number, origin=f"https://{number}.example"), 60)
    assert refused(store, anonymous(9, origin="https://new.example")).code == "aiip.too-many-requests"
    keep(store, anonymous(9, address="192.0.2.2"), 1)
    keep(store, key_scope(1), 1)


def test_all_who_show_no_token_leave_half_of_the_store_to_the_others(
    store: BlockingStore, tmp_path: Path
) -> None:
    for number in range(2):
        keep(store, anonymous(number, address=f"192.0.2.{number}"), 70)
    assert refused(store, anonymous(9, address="192.0.2.9")).code == "aiip.unavailable"
    keep(store, key_scope(1), 70)
    assert count(tmp_path / "k.sqlite")["anonymous"] == (2, 140)


def test_all_who_show_no_token_have_a_hundred_times_the_keys_of_one(tmp_path: Path) -> None:
    store = BlockingStore(tmp_path / "k.sqlite", most=1)
    for number in range(100):
        store.begin(anonymous(1, f"192.0.2.{number}", f"https://{number}.example"), "f", NOW)
    assert refused(store, anonymous(1, "198.51.100.1")).code == "aiip.unavailable"
    store.begin(key_scope(1), "f", NOW)
    store.close()


def test_a_refusal_says_when_there_is_room_again(tmp_path: Path) -> None:
    store = BlockingStore(tmp_path / "k.sqlite", most=2)
    for number in range(2):
        keep(store, anonymous(number), 1, NOW + number)
    early = refused(store, anonymous(3), NOW + 100)
    assert (early.code, early.retryable, early.retry_after) == ("aiip.too-many-requests", False, DAY - 99)
    late = refused(store, anonymous(3), NOW + DAY - 9.5)
    assert (late.retryable, late.retry_after) == (True, 10)
    # who comes back then is let in, although no sweep was due; the next key is one second younger
    assert store.begin(anonymous(3), "f", NOW + DAY - 9.5 + late.retry_after) is None
    assert refused(store, anonymous(4), NOW + DAY + 0.5).retry_after == 1
    store.close()


def test_the_answer_is_only_for_the_address_that_has_used_the_key(store: BlockingStore) -> None:
    keep(store, anonymous(1), 10)
    error = refused(store, anonymous(1, address="192.0.2.2"))
    assert (error.code, error.retryable) == ("aiip.idempotency-mismatch", False)
    assert store.begin(anonymous(1), "f", NOW) == b"x" * 10
    # another origin has keys of its own, and so has a client with a token
    assert store.begin(anonymous(1, origin="https://two.example"), "f", NOW) is None
    assert store.begin(key_scope(1), "f", NOW) is None


def test_a_day_later_there_is_room_again(store: BlockingStore, tmp_path: Path) -> None:
    keep(store, key_scope(1), 200)
    keep(store, key_scope(2, "client other"), 0)
    assert refused(store, key_scope(3), NOW + DAY - 1).code == "aiip.too-many-requests"
    keep(store, key_scope(3), 10, NOW + DAY + 601)
    assert count(tmp_path / "k.sqlite") == {"client shop": (1, 10), "": (1, 10)}


def test_a_refusal_does_not_undo_what_was_forgotten(store: BlockingStore, tmp_path: Path) -> None:
    keep(store, key_scope(1), 10)
    keep(store, key_scope(2), 200, NOW + 700)
    assert refused(store, key_scope(3), NOW + DAY + 1).code == "aiip.too-many-requests"
    assert count(tmp_path / "k.sqlite") == {"client shop": (1, 200), "": (1, 200)}


def test_an_interrupted_key_is_kept_for_two_days_and_counts_for_one(tmp_path: Path) -> None:
    store = BlockingStore(tmp_path / "k.sqlite", most=1)
    store.begin(anonymous(1), "f", NOW)
    store.interrupt(anonymous(1))
    store.begin(anonymous(2), "f", NOW + DAY + 601)
    assert count(tmp_path / "k.sqlite") == {
        "address 192.0.2.1": (1, 0),
        "anonymous": (1, 0),
        "": (2, 0),
    }
    error = refused(store, anonymous(1), NOW + DAY + 602)
    assert (error.code, error.retryable) == ("aiip.idempotency-in-progress", False)
    store.begin(anonymous(3), "f", NOW + 2 * DAY + 1300)
    assert count(tmp_path / "k.sqlite")[""] == (2, 0)
    store.close()


def test_a_sweep_goes_on_until_all_that_is_old_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.endpoint.idempotency._CHUNK", 3)
    store = BlockingStore(tmp_path / "k.sqlite", most=1000)
    for number in range(10):
        keep(store, key_scope(number), 4000)
    for number in range(20, 25):
        keep(store, key_scope(number), 0, NOW + DAY + 1)
    store.close()
    assert count(tmp_path / "k.sqlite")[""] == (5, 0)
    with contextlib.closing(sqlite3.connect(tmp_path / "k.sqlite")) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert base.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_many_who_open_a_new_file_at_once_count_in_one_table(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: BlockingStore(tmp_path / "k.sqlite"), range(6)))
    for number, store in enumerate(stores):
        keep(store, key_scope(f"n{number}"), 1)
    assert len({store.store.identity for store in stores}) == 1
    for store in stores:
        store.close()
    assert count(tmp_path / "k.sqlite") == {"client shop": (6, 6), "": (6, 6)}


VERSION_1 = """
CREATE TABLE owners (id TEXT PRIMARY KEY, gone INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE keys (
    client TEXT NOT NULL, principal TEXT NOT NULL, target TEXT NOT NULL, key TEXT NOT NULL,
    fingerprint TEXT NOT NULL, created REAL NOT NULL, owner TEXT NOT NULL, answer BLOB,
    PRIMARY KEY (client, principal, target, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_created ON keys (created);
CREATE INDEX keys_client ON keys (client, created);
CREATE TABLE kept (client TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER kept_more AFTER UPDATE OF answer ON keys
WHEN old.answer IS NULL AND new.answer IS NOT NULL BEGIN
    INSERT INTO kept VALUES (new.client, length(new.answer)), ('', length(new.answer))
        ON CONFLICT (client) DO UPDATE SET size = size + excluded.size;
END;
CREATE TRIGGER kept_less AFTER DELETE ON keys
WHEN old.answer IS NOT NULL BEGIN
    UPDATE kept SET size = size - length(old.answer) WHERE client IN (old.client, '');
    DELETE FROM kept WHERE client = old.client AND size <= 0;
END;
INSERT OR IGNORE INTO kept VALUES ('', 0);
PRAGMA application_id = 0x4F6E4B01;
PRAGMA user_version = 1;
"""


def test_a_file_of_the_version_before_keeps_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "k.sqlite"
    row = "INSERT INTO keys VALUES (?, '', 'ai://a.example/x', '1', 'f', ?, 'gone', NULL)"
    with contextlib.closing(sqlite3.connect(file)) as base, base:
        base.executescript("PRAGMA journal_mode = WAL;" + VERSION_1)
        for client in ("client shop", "anonymous https://one.example"):
            base.execute(row, (client, NOW))
            base.execute("UPDATE keys SET answer = x'3432' WHERE client = ?", (client,))
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: BlockingStore(file), range(4)))
    assert count(file) == {
        "client shop": (1, 2),
        "address ": (1, 2),
        "anonymous": (1, 2),
        "": (2, 4),
    }
    assert stores[0].begin(key_scope(1), "f", NOW + 1) == b"42"
    assert refused(stores[1], anonymous(1), NOW + 1).code == "aiip.idempotency-mismatch"
    assert stores[2].begin(key_scope(1), "f", NOW + DAY + 601) is None
    for store in stores:
        store.close()


def test_an_approval_is_spent_with_the_key_or_not_at_all(store: BlockingStore, tmp_path: Path) -> None:
    assert store.begin(key_scope(1), "f", NOW, spend="txn-1") is None
    error = refused(store, key_scope(2), spend="txn-1")
    assert (error.code, error.retryable, error.target) == (
        "aiip.approval-mismatch",
        False,
        "ai://a.example/x",
    )
    assert count(tmp_path / "k.sqlite")[""] == (1, 0)
    # the same call again gets its answer and spends nothing
    store.complete(key_scope(1), b"paid")
    assert store.begin(key_scope(1), "f", NOW, spend="txn-1") == b"paid"
    assert store.begin(key_scope(2), "f", NOW, spend="txn-2") is None
    # a call that is refused spends nothing
    keep(store, key_scope(3), 100)
    assert refused(store, key_scope(4), spend="txn-4").code == "aiip.too-many-requests"
    assert store.begin(key_scope(4, "client other"), "f", NOW, spend="txn-4") is None


def test_of_many_calls_with_one_approval_one_begins(tmp_path: Path) -> None:
    stores = [BlockingStore(tmp_path / "k.sqlite") for _ in range(4)]

    def begin(number: int) -> str:
        try:
            stores[number % 4].begin(key_scope(number), "f", NOW, spend="txn")
        except AIIPError as error:
            return error.code
        return "begun"

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(begin, range(9)))
    assert found == ["aiip.approval-mismatch"] * 8 + ["begun"]
    for store in stores:
        store.close()
    assert count(tmp_path / "k.sqlite")[""] == (1, 0)


def test_the_key_of_a_task_is_written_with_it_and_kept_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.endpoint.idempotency._CHUNK", 2)
    store = BlockingStore(tmp_path / "k.sqlite", most=1000)
    tasks = store.store.open_tasks(lambda: NOW)
    try:
        for number in range(3):
            task = NewTask(id=f"t-{number}", caller="c", call=b"", marker=b"marker", limits=Limits())
            assert store.begin(key_scope(f"task {number}"), "f", NOW, task=task) is None
        assert store.begin(key_scope("task 0"), "f", NOW) == b"marker"
        full = Limits(tasks_kept=3)
        refusal = NewTask(id="t-9", caller="c", call=b"", marker=b"marker", limits=full)
        assert refused(store, key_scope("task 9"), task=refusal).code == "aiip.too-many-requests"
        for number in range(3):
            keep(store, key_scope(number), 10, NOW + 1)
        assert count(tmp_path / "k.sqlite")[""] == (6, 48)
        # the keys of running tasks do not hold up the others
        for number in range(8):
            keep(store, key_scope(f"new {number}"), 0, NOW + DAY + 2 + number)
        assert count(tmp_path / "k.sqlite")[""] == (11, 18)
        assert store.begin(key_scope("task 0"), "f", NOW + DAY + 10) == b"marker"
        assert store.store.is_owner_alive(store.owner)
        assert not store.store.is_owner_alive("nobody")
    finally:
        tasks.close()
        store.close()
    with pytest.raises(AIIPError) as caught:
        store.store.is_owner_alive("nobody")
    assert caught.value.code == "aiip.unavailable"
