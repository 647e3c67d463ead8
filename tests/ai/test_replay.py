"""What was seen once does not count again, and nothing is forgotten before its time."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from onym.ai.replay import MemoryReplays, ReplayFile, Replays
from onym.errors import ProvenanceError


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    if request.param == "memory":
        return MemoryReplays
    return lambda most=100_000: ReplayFile(tmp_path / "seen.sqlite", most)


def test_an_id_is_new_once(make) -> None:
    store: Replays = make()
    assert not store.seen("a", 100.0, now=1.0)
    assert store.seen("a", 100.0, now=2.0)
    assert not store.seen("b", 100.0, now=2.0)


def test_an_id_is_known_until_its_last_second_and_new_after_it(make) -> None:
    store: Replays = make()
    store.seen("a", 100.0, now=1.0)
    assert store.seen("a", 100.0, now=100.0)
    assert not store.seen("a", 300.0, now=100.1)


def test_a_full_store_refuses_and_forgets_nothing(make) -> None:
    store: Replays = make(2)
    store.seen("a", 100.0, now=1.0)
    store.seen("b", 50.0, now=1.0)
    with pytest.raises(ProvenanceError) as caught:
        store.seen("c", 100.0, now=2.0)
    assert caught.value.code == "aiip.unavailable"
    assert caught.value.retryable
    assert store.seen("a", 100.0, now=2.0)
    # one has ended: there is room
    assert not store.seen("c", 100.0, now=51.0)


def test_an_overlong_id_is_refused(make) -> None:
    with pytest.raises(ProvenanceError):
        make().seen("x" * 2_000, 100.0, now=1.0)


def test_of_many_at_once_one_is_the_first(make) -> None:
    store: Replays = make()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.seen("a", 100.0, now=1.0))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(answers) == [False] + [True] * 7


def test_a_file_is_for_its_owner_and_shared_by_processes(tmp_path: Path) -> None:
    path = tmp_path / "seen.sqlite"
    ReplayFile(path).seen("a", 100.0, now=1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ReplayFile(path).seen("a", 100.0, now=2.0)


def test_a_file_that_cannot_be_used_is_no_new_id_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onym.ai.replay._BUSY_SECONDS", 0.01)
    store = ReplayFile(tmp_path / "seen.sqlite")
    with closing(sqlite3.connect(tmp_path / "seen.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ProvenanceError) as caught:
            store.seen("a", 100.0, now=1.0)
        assert (caught.value.code, caught.value.retryable) == ("aiip.unavailable", True)
        other.execute("ROLLBACK")
        assert not store.seen("a", 100.0, now=1.0)
        other.execute("DROP TABLE seen")
    with pytest.raises(ProvenanceError) as caught:
        store.seen("b", 100.0, now=1.0)
    assert caught.value.code == "aiip.unavailable"
