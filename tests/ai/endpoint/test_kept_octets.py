"""What is kept under idempotency keys has an end: for one caller, for all, and in the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, RETENTION_SECONDS, IdempotencyStore, KeyScope
from onym.errors import AIIPError

Serving = Callable[..., Any]
NOW = 1_800_000_000.0
MEGABYTE = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IdempotencyStore]:
    found = IdempotencyStore(tmp_path / "k.sqlite", most=1000, size=100, total=250)
    yield found
    found.close()


def scope(key: object, client: str = "client shop") -> KeyScope:
    return KeyScope(client=client, principal="", target="ai://a.example/x", key=str(key))


def keep(store: IdempotencyStore, one: KeyScope, octets: int, at: float = NOW) -> None:
    store.begin(one, "f", at)
    store.complete(one, b"x" * octets)


def refused(store: IdempotencyStore, one: KeyScope, at: float = NOW) -> AIIPError:
    with pytest.raises(AIIPError) as caught:
        store.begin(one, "f", at)
    return caught.value


def count(file: Path) -> dict[str, int]:
    """What is counted, by client; it must be what is kept."""
    with contextlib.closing(sqlite3.connect(file)) as base:
        counted = dict(base.execute("SELECT client, size FROM kept"))
        real = dict(
            base.execute("SELECT client, sum(length(answer)) FROM keys WHERE answer <> x'' GROUP BY client")
        )
    assert counted == {**real, "": sum(real.values())}
    return counted


def test_a_caller_whose_answers_take_too_much_room_begins_nothing_new(
    store: IdempotencyStore, tmp_path: Path
) -> None:
    keep(store, scope(1), 99)
    keep(store, scope(2), 50)
    error = refused(store, scope(3))
    assert (error.code, error.retryable, error.target) == (
        "aiip.too-many-requests",
        True,
        "ai://a.example/x",
    )
    # what was done is told again all the same
    assert store.begin(scope(1), "f", NOW) == b"x" * 99
    keep(store, scope(1, "client other"), 1)
    assert count(tmp_path / "k.sqlite") == {"client shop": 149, "client other": 1, "": 150}


def test_all_callers_together_have_an_end_too(store: IdempotencyStore) -> None:
    for number in range(3):
        keep(store, scope(1, f"client {number}"), 99)
    assert refused(store, scope(1, "client new")).code == "aiip.unavailable"
    assert store.begin(scope(1, "client 0"), "f", NOW) is not None


def test_those_who_show_no_token_share_one_allowance_of_octets(store: IdempotencyStore) -> None:
    for number in range(2):
        keep(store, scope(1, f"{ANONYMOUS_PREFIX}https://{number}.example"), 60)
    assert refused(store, scope(1, f"{ANONYMOUS_PREFIX}https://new.example")).code == "aiip.too-many-requests"
    store.begin(scope(1, "client shop"), "f", NOW)


def test_a_day_later_there_is_room_again(store: IdempotencyStore, tmp_path: Path) -> None:
    keep(store, scope(1), 200)
    keep(store, scope(2, "client other"), 0)
    assert refused(store, scope(3), NOW + RETENTION_SECONDS - 1).code == "aiip.too-many-requests"
    keep(store, scope(3), 10, NOW + RETENTION_SECONDS + 601)
    assert count(tmp_path / "k.sqlite") == {"client shop": 10, "": 10}


def test_a_refusal_does_not_undo_what_was_forgotten(store: IdempotencyStore, tmp_path: Path) -> None:
    keep(store, scope(1), 10)
    keep(store, scope(2), 200, NOW + 700)
    assert refused(store, scope(3), NOW + RETENTION_SECONDS + 1).code == "aiip.too-many-requests"
    assert count(tmp_path / "k.sqlite") == {"client shop": 200, "": 200}


def test_many_who_open_a_new_file_at_once_count_in_one_table(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: IdempotencyStore(tmp_path / "k.sqlite", most=9), range(6)))
    for number, store in enumerate(stores):
        keep(store, scope(f"n{number}"), 1)
    for store in stores:
        store.close()
    assert count(tmp_path / "k.sqlite") == {"client shop": 6, "": 6}
