"""What is kept under idempotency keys has an end: for one caller, for all, and in the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onym.ai.endpoint import Endpoint, Limits
from onym.ai.endpoint.idempotency import ANONYMOUS_PREFIX, RETENTION_SECONDS, IdempotencyStore, KeyScope
from onym.errors import AIIPError, UsageError

Serving = Callable[..., Any]
NOW = 1_800_000_000.0
MEGABYTE = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IdempotencyStore]:
    found = IdempotencyStore(tmp_path / "k.sqlite", most=1000, octets=100, total=250)
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
        counted = dict(base.execute("SELECT client, octets FROM kept"))
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
    assert "nothing was done" in str(error.hint)
    # what was done is told again all the same
    assert store.begin(scope(1), "f", NOW).answer == b"x" * 99
    keep(store, scope(1, "client other"), 1)
    assert count(tmp_path / "k.sqlite") == {"client shop": 149, "client other": 1, "": 150}


def test_all_callers_together_have_an_end_too(store: IdempotencyStore) -> None:
    for number in range(3):
        keep(store, scope(1, f"client {number}"), 99)
    assert refused(store, scope(1, "client new")).code == "aiip.unavailable"
    assert store.begin(scope(1, "client 0"), "f", NOW).answer is not None


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


def test_a_file_of_before_is_counted_when_it_is_opened(store: IdempotencyStore, tmp_path: Path) -> None:
    keep(store, scope(1), 70)
    keep(store, scope(1, "client other"), 30)
    store.begin(scope(2), "f", NOW)
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "k.sqlite")) as base:
        base.executescript("DROP TRIGGER kept_more; DROP TRIGGER kept_less; DROP TABLE kept;")
    opened = IdempotencyStore(tmp_path / "k.sqlite", most=9, octets=70)
    assert count(tmp_path / "k.sqlite") == {"client shop": 70, "client other": 30, "": 100}
    assert refused(opened, scope(3)).code == "aiip.too-many-requests"
    opened.close()
    IdempotencyStore(tmp_path / "k.sqlite", most=9).close()
    assert count(tmp_path / "k.sqlite")[""] == 100


def test_many_who_open_a_file_at_once_count_it_once(tmp_path: Path) -> None:
    keeper = IdempotencyStore(tmp_path / "k.sqlite", most=9)
    keep(keeper, scope(1), 10)
    with contextlib.closing(sqlite3.connect(tmp_path / "k.sqlite")) as base:
        base.executescript("DROP TRIGGER kept_more; DROP TRIGGER kept_less; DROP TABLE kept;")
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: IdempotencyStore(tmp_path / "k.sqlite", most=9), range(6)))
    for number, each in enumerate(stores):
        keep(each, scope(f"n{number}"), 1)
        each.close()
    keeper.close()
    assert count(tmp_path / "k.sqlite") == {"client shop": 16, "": 16}


def test_the_file_does_not_grow_from_day_to_day_and_gives_space_back(tmp_path: Path) -> None:
    file = tmp_path / "k.sqlite"
    store = IdempotencyStore(file, most=100)

    def size() -> int:
        with contextlib.closing(sqlite3.connect(file)) as base:
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return file.stat().st_size

    sizes = []
    for day in range(3):
        at = NOW + day * (RETENTION_SECONDS + 700)
        for number in range(4):
            keep(store, scope(f"{day}-{number}"), MEGABYTE, at)
        sizes.append(size())
    assert max(sizes) < 5 * MEGABYTE
    for turn in range(1, 3):
        keep(store, scope(f"later-{turn}"), 1, NOW + 4 * RETENTION_SECONDS + turn * 700)
    assert size() < MEGABYTE
    store.close()


def test_over_its_octets_the_function_does_not_run(serving: Serving) -> None:
    ran: list[int] = []

    def fill(app: Endpoint) -> None:
        @app.resource("/write", effects="write")
        def write() -> str:
            ran.append(1)
            return "x" * 100

    def ask(line: Any, number: int) -> Any:
        return line.ask("POST", "/write", b"", ("Idempotency-Key", f'"{number}"'))

    with serving(fill, limits=Limits(kept=100)) as (_, line):
        assert ask(line, 1).status == 200
        heard = ask(line, 2)
        assert (heard.status, heard.json()["code"], heard.get("retry-after")) == (
            429,
            "too-many-requests",
            "1",
        )
        assert heard.receipt
        assert ask(line, 1).get("idempotency-replayed") == "?1"
    assert len(ran) == 1


@pytest.mark.parametrize("limit", ["kept", "kept_total", "share"])
def test_a_limit_of_nothing_is_a_slip(limit: str) -> None:
    with pytest.raises(UsageError):
        Limits(**{limit: 0})
